/* The mesh: what comes in. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/interpreter/executor.h"
#include "runtime/transport/mesh_internal.h"

/* Of a message of the mesh's own; more is nothing that copse has sent. */
#define MOST_OWN_BYTES ((size_t)1 << 24)
/* Looked at in one step, so that others get their turn. */
#define MOST_AT_ONCE 64

static void push(struct copse_letters *letters, struct copse_letter *it) {
  it->next = NULL;
  *letters->tail = it;
  letters->tail = &it->next;
}

static struct copse_letter *pop(struct copse_letters *letters) {
  struct copse_letter *it = letters->head;
  letters->head = it->next;
  if (!letters->head) letters->tail = &letters->head;
  return it;
}

static void free_letter(struct copse_letter *it) {
  free(it->own);
  free(it);
}

void copse_mesh_free_letters(struct copse_letters *letters) {
  while (letters->head) free_letter(pop(letters));
}

static void refuse(struct copse_mesh *mesh, const struct copse_err *why) {
  (void)copse_mesh_fail(mesh, why);
}

/* ---- taking messages from the wire -------------------------------------------------------- */

static bool start(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it, void *bytes) {
  copse_status status =
      mesh->wire.receive(mesh->wire.context, it->message, bytes, it->n, &it->request);
  it->started = true;
  if (status == COPSE_OK) return true;
  (void)copse_mesh_wire_failed(mesh, "receiving from", from, status);
  return false;
}

/* Whether it is there; only asked of the oldest of its queue. */
static bool is_there(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it) {
  int done = 0;
  if (!it->started || mesh->broken.status != COPSE_OK) return false;
  copse_status status = mesh->wire.test(mesh->wire.context, it->request, &done);
  if (status != COPSE_OK) (void)copse_mesh_wire_failed(mesh, "receiving from", from, status);
  return status == COPSE_OK && done;
}

static void sort_in(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it) {
  struct copse_peer *peer = &mesh->peers[from];
  if (it->tag >= COPSE_MESH_BEGIN) {
    push(&peer->launches, it);
    return;
  }
  push(&peer->control, it);
  struct copse_err why = COPSE_ERR_INIT;
  if (it->n > MOST_OWN_BYTES) {
    (void)copse_fail(&why, COPSE_REFUTED, "rank %u sends what copse %s doesn't know", from,
                     COPSE_VERSION_STRING);
    refuse(mesh, &why);
    return;
  }
  it->own = malloc(it->n ? it->n : 1);
  if (it->own)
    (void)start(mesh, from, it, it->own);
  else
    (void)copse_mesh_out_of_memory(mesh);
}

static void collect(struct copse_mesh *mesh) {
  for (int i = 0; i < MOST_AT_ONCE && mesh->broken.status == COPSE_OK; i++) {
    int from = -1;
    struct copse_letter seen = {.message = NULL};
    copse_status status =
        mesh->wire.next(mesh->wire.context, &from, &seen.tag, &seen.n, &seen.message);
    if (status != COPSE_OK) {
      (void)copse_mesh_wire_failed(mesh, "looking for messages at", mesh->me, status);
      return;
    }
    if (!seen.message) return;
    struct copse_letter *it = malloc(sizeof *it);
    if (!it) {
      (void)copse_mesh_out_of_memory(mesh);
      return;
    }
    *it = seen;
    mesh->peers[from].heard = copse_clock_seconds();
    sort_in(mesh, (uint32_t)from, it);
  }
}

/* ---- the mesh's own ------------------------------------------------------------------------ */

static void take_reason(struct copse_mesh *mesh, uint32_t from, const struct copse_letter *it) {
  struct copse_mesh_reason reason;
  struct copse_err why = COPSE_ERR_INIT;
  memset(&reason, 0, sizeof reason);
  memcpy(&reason, it->own, it->n < sizeof reason ? it->n : sizeof reason);
  reason.text[sizeof reason.text - 1] = '\0';
  bool known = reason.status > COPSE_OK && reason.status <= COPSE_ABORTED;
  (void)copse_fail(&why, known ? (copse_status)reason.status : COPSE_INTERNAL,
                   "%s (told by rank %u)", reason.text, from);
  (void)copse_mesh_break(mesh, &why);
}

/* Whether it is progress. */
static bool take_own(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it) {
  struct copse_mesh_pong pong;
  if (it->tag == COPSE_MESH_GATHER) {
    push(&mesh->peers[from].gathered, it);
    return true;
  }
  if (it->tag == COPSE_MESH_PING) {
    memset(&pong, 0, sizeof pong);
    pong.moves = mesh->moves;
    pong.waits_for = copse_mesh_waits_for(mesh, NULL, 0);
    pong.launch = (uint32_t)mesh->call.launch;
    copse_mesh_send_own(mesh, from, COPSE_MESH_PONG, &pong, sizeof pong);
  } else if (it->tag == COPSE_MESH_PONG && it->n == sizeof pong) {
    memcpy(&pong, it->own, sizeof pong);
    copse_mesh_heard_pong(mesh, from, &pong);
  } else if (it->tag == COPSE_MESH_ABORT) {
    take_reason(mesh, from, it);
  }
  free_letter(it);
  return false;
}

/* ---- launches --------------------------------------------------------------------------------
 * A peer's messages are started as soon as it is known where they go, and count in the order in
 * which they were sent. */

static const char *type_name(uint32_t type) {
  return type < COPSE_N_TYPES ? copse_type_name((enum copse_type)type) : "?";
}
static const char *redop_name(uint32_t redop) {
  return redop < COPSE_N_REDOPS ? copse_redop_name((enum copse_redop)redop) : "?";
}

void copse_mesh_compare_calls(struct copse_mesh *mesh, uint32_t from) {
  const struct copse_mesh_call *mine = &mesh->call, *other = &mesh->peers[from].call;
  struct copse_err why = COPSE_ERR_INIT;
  if (memcmp(mine, other, sizeof *mine) == 0) return;
  if (memcmp(mine->plan, other->plan, sizeof mine->plan) != 0)
    (void)copse_fail(&why, COPSE_REFUTED, "rank %u and rank %u run different plans", mesh->me,
                     from);
  else if (mine->pair_counts != other->pair_counts)
    (void)copse_fail(&why, COPSE_REFUTED, "rank %u and rank %u have different pair_counts",
                     mesh->me, from);
  else
    (void)copse_fail(&why, COPSE_REFUTED,
                     "rank %u calls with %llu elements of %s, %s, and rank %u with %llu of %s, %s",
                     mesh->me, (unsigned long long)mine->count, type_name(mine->type),
                     redop_name(mine->redop), from, (unsigned long long)other->count,
                     type_name(other->type), redop_name(other->redop));
  refuse(mesh, &why);
}

void copse_mesh_refuse_late(struct copse_mesh *mesh, uint32_t from) {
  struct copse_err why = COPSE_ERR_INIT;
  (void)copse_fail(&why, COPSE_REFUTED,
                   "rank %u sends in launch %llu to rank %u, which has left it: the plan is wrong",
                   from, (unsigned long long)mesh->peers[from].call.launch, mesh->me);
  refuse(mesh, &why);
}

static bool start_begin(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it) {
  struct copse_peer *peer = &mesh->peers[from];
  if (it->n == sizeof peer->next_call) return start(mesh, from, it, &peer->next_call);
  struct copse_err why = COPSE_ERR_INIT;
  (void)copse_fail(&why, COPSE_REFUTED, "rank %u announces a launch in %zu bytes, must be %zu",
                   from, it->n, sizeof peer->next_call);
  refuse(mesh, &why);
  return false;
}

/* False where it must wait for this rank's own launch. */
static bool start_part(struct copse_mesh *mesh, uint32_t from, struct copse_letter *it) {
  uint64_t launch = mesh->peers[from].call.launch;
  struct copse_err why = COPSE_ERR_INIT;
  void *bytes = NULL;
  if (launch > mesh->call.launch) return false;
  if (!mesh->reader || launch < mesh->call.launch) {
    copse_mesh_refuse_late(mesh, from);
    return false;
  }
  if (mesh->reader->place(mesh->reader->context, from, it->tag, it->n, &bytes, &why) == COPSE_OK)
    return start(mesh, from, it, bytes);
  refuse(mesh, &why);
  return false;
}

static void start_launches(struct copse_mesh *mesh, uint32_t from) {
  struct copse_letter *it = mesh->peers[from].launches.head;
  for (; it; it = it->next) {
    bool begins = it->tag == COPSE_MESH_BEGIN;
    /* what it announces is known when it is there and has been taken from the queue */
    if (begins && it != mesh->peers[from].launches.head) return;
    if (!it->started && !(begins ? start_begin(mesh, from, it) : start_part(mesh, from, it)))
      return;
    if (begins) return;
  }
}

/* Whether anything has come. */
static bool end_launches(struct copse_mesh *mesh, uint32_t from) {
  struct copse_peer *peer = &mesh->peers[from];
  bool moved = false;
  while (peer->launches.head && is_there(mesh, from, peer->launches.head)) {
    struct copse_letter *it = pop(&peer->launches);
    moved = true;
    if (it->tag != COPSE_MESH_BEGIN) {
      mesh->reader->arrived(mesh->reader->context, from, it->tag);
    } else {
      peer->call = peer->next_call;
      if (mesh->reader && peer->call.launch == mesh->call.launch)
        copse_mesh_compare_calls(mesh, from);
      start_launches(mesh, from);
    }
    free_letter(it);
  }
  return moved;
}

bool copse_mesh_take_in(struct copse_mesh *mesh) {
  bool moved = false;
  collect(mesh);
  for (uint32_t r = 0; r < mesh->n && mesh->broken.status == COPSE_OK; r++) {
    struct copse_peer *peer = &mesh->peers[r];
    while (peer->control.head && is_there(mesh, r, peer->control.head))
      moved = take_own(mesh, r, pop(&peer->control)) || moved;
    if (!peer->launches.head || mesh->broken.status != COPSE_OK) continue;
    start_launches(mesh, r);
    moved = end_launches(mesh, r) || moved;
  }
  return moved;
}
