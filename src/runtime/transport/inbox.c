/* The transport: what comes in. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/types.h"
#include "runtime/transport/internal.h"

/* Of a message of the transport's own; more is nothing that copse has sent. */
#define MOST_OWN_BYTES ((size_t)1 << 24)
/* Looked at in one step, so that others get their turn. */
#define MOST_AT_ONCE 64

static void push(struct copse_messages *messages, struct copse_message *it) {
  it->next = NULL;
  *messages->tail = it;
  messages->tail = &it->next;
}

static struct copse_message *pop(struct copse_messages *messages) {
  struct copse_message *it = messages->head;
  messages->head = it->next;
  if (!messages->head) messages->tail = &messages->head;
  return it;
}

static void free_message(struct copse_message *it) {
  free(it->own);
  free(it);
}

void copse_transport_free_messages(struct copse_messages *messages) {
  while (messages->head) free_message(pop(messages));
}

/* ---- taking messages from the wire -------------------------------------------------------- */

static bool start(struct copse_transport *transport, uint32_t from, struct copse_message *it,
                  void *bytes) {
  copse_status status =
      transport->wire.receive(transport->wire.context, it->message, bytes, it->n, &it->request);
  it->started = true;
  if (status == COPSE_OK) return true;
  (void)copse_transport_wire_failed(transport, "receiving from", from, status);
  return false;
}

/* Whether it is there; only asked of the oldest of its queue. */
static bool is_there(struct copse_transport *transport, uint32_t from, struct copse_message *it) {
  int done = 0;
  if (!it->started || transport->broken.status != COPSE_OK) return false;
  copse_status status = transport->wire.test(transport->wire.context, it->request, &done);
  if (status != COPSE_OK)
    (void)copse_transport_wire_failed(transport, "receiving from", from, status);
  return status == COPSE_OK && done;
}

static void sort_in(struct copse_transport *transport, uint32_t from, struct copse_message *it) {
  struct copse_peer *peer = &transport->peers[from];
  if (it->tag >= COPSE_TRANSPORT_BEGIN) {
    push(&peer->launches, it);
    return;
  }
  push(&peer->control, it);
  if (it->n > MOST_OWN_BYTES) {
    (void)copse_transport_refuse(transport, COPSE_REFUTED,
                                 "rank %u sends what copse %s doesn't know", from,
                                 COPSE_VERSION_STRING);
    return;
  }
  it->own = malloc(it->n ? it->n : 1);
  if (it->own)
    (void)start(transport, from, it, it->own);
  else
    (void)copse_transport_out_of_memory(transport);
}

static void collect(struct copse_transport *transport) {
  for (int i = 0; i < MOST_AT_ONCE && transport->broken.status == COPSE_OK; i++) {
    int from = -1;
    struct copse_message seen = {.message = NULL};
    copse_status status =
        transport->wire.next(transport->wire.context, &from, &seen.tag, &seen.n, &seen.message);
    if (status != COPSE_OK) {
      (void)copse_transport_wire_failed(transport, "looking for messages at", transport->me,
                                        status);
      return;
    }
    if (!seen.message) return;
    struct copse_message *it = malloc(sizeof *it);
    if (!it) {
      (void)copse_transport_out_of_memory(transport);
      return;
    }
    *it = seen;
    transport->peers[from].last_message = copse_clock_seconds();
    sort_in(transport, (uint32_t)from, it);
  }
}

/* ---- the transport's own ------------------------------------------------------------------------
 */

static void take_reason(struct copse_transport *transport, uint32_t from,
                        const struct copse_message *it) {
  struct copse_transport_reason reason;
  struct copse_err why = COPSE_ERR_INIT;
  memset(&reason, 0, sizeof reason);
  memcpy(&reason, it->own, it->n < sizeof reason ? it->n : sizeof reason);
  reason.text[sizeof reason.text - 1] = '\0';
  bool known = reason.status > COPSE_OK && reason.status <= COPSE_ABORTED;
  (void)copse_fail(&why, known ? (copse_status)reason.status : COPSE_INTERNAL,
                   "%s (reported by rank %u)", reason.text, from);
  (void)copse_transport_break(transport, &why);
}

/* Whether it is progress. */
static bool take_own(struct copse_transport *transport, uint32_t from, struct copse_message *it) {
  struct copse_transport_pong pong;
  if (it->tag == COPSE_TRANSPORT_GATHER) {
    push(&transport->peers[from].gathered, it);
    return true;
  }
  if (it->tag == COPSE_TRANSPORT_PING) {
    memset(&pong, 0, sizeof pong);
    pong.moves = transport->moves;
    pong.waits_for = copse_transport_waits_for(transport, NULL, 0);
    pong.launch = (uint32_t)transport->call.launch;
    copse_transport_send_own(transport, from, COPSE_TRANSPORT_PONG, &pong, sizeof pong);
  } else if (it->tag == COPSE_TRANSPORT_PONG && it->n == sizeof pong) {
    memcpy(&pong, it->own, sizeof pong);
    copse_transport_take_pong(transport, from, &pong);
  } else if (it->tag == COPSE_TRANSPORT_ABORT) {
    take_reason(transport, from, it);
  }
  free_message(it);
  return false;
}

bool copse_transport_take_part(struct copse_transport *transport, uint32_t from, void *part,
                               size_t bytes) {
  struct copse_messages *gathered = &transport->peers[from].gathered;
  if (!gathered->head) return false;
  struct copse_message *it = pop(gathered);
  if (it->n == bytes)
    memcpy(part, it->own, bytes);
  else
    (void)copse_transport_refuse(
        transport, COPSE_REFUTED,
        "rank %u agrees on something else than rank %u (%zu bytes, not %zu): another version, or "
        "other calls",
        from, transport->me, it->n, bytes);
  free_message(it);
  return true;
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

void copse_transport_compare_calls(struct copse_transport *transport, uint32_t from) {
  const struct copse_transport_call *mine = &transport->call, *other = &transport->peers[from].call;
  const char *what = memcmp(mine->plan, other->plan, sizeof mine->plan) != 0 ? "run different plans"
                     : mine->pair_counts != other->pair_counts ? "have different pair_counts"
                                                               : NULL;
  if (memcmp(mine, other, sizeof *mine) == 0) return;
  if (what)
    (void)copse_transport_refuse(transport, COPSE_REFUTED, "rank %u and rank %u %s", transport->me,
                                 from, what);
  else
    (void)copse_transport_refuse(
        transport, COPSE_REFUTED,
        "rank %u calls with %llu elements of %s, %s, and rank %u with %llu of %s, %s",
        transport->me, (unsigned long long)mine->count, type_name(mine->type),
        redop_name(mine->redop), from, (unsigned long long)other->count, type_name(other->type),
        redop_name(other->redop));
}

void copse_transport_refuse_late(struct copse_transport *transport, uint32_t from) {
  (void)copse_transport_refuse(
      transport, COPSE_REFUTED,
      "rank %u sends in launch %llu to rank %u, which has left it: the plan is wrong", from,
      (unsigned long long)transport->peers[from].call.launch, transport->me);
}

static bool start_begin(struct copse_transport *transport, uint32_t from,
                        struct copse_message *it) {
  struct copse_peer *peer = &transport->peers[from];
  if (it->n == sizeof peer->next_call) return start(transport, from, it, &peer->next_call);
  (void)copse_transport_refuse(transport, COPSE_REFUTED,
                               "rank %u announces a launch in %zu bytes, must be %zu", from, it->n,
                               sizeof peer->next_call);
  return false;
}

/* False where it must wait for this rank's own launch. */
static bool start_part(struct copse_transport *transport, uint32_t from, struct copse_message *it) {
  uint64_t launch = transport->peers[from].call.launch;
  struct copse_err why = COPSE_ERR_INIT;
  void *bytes = NULL;
  if (launch > transport->call.launch) return false;
  if (!transport->running || launch < transport->call.launch) {
    copse_transport_refuse_late(transport, from);
    return false;
  }
  if (copse_engine_place(transport->running, from, it->tag, it->n, &bytes, &why) == COPSE_OK)
    return start(transport, from, it, bytes);
  (void)copse_transport_fail(transport, &why);
  return false;
}

static void start_launches(struct copse_transport *transport, uint32_t from) {
  struct copse_message *it = transport->peers[from].launches.head;
  for (; it; it = it->next) {
    bool begins = it->tag == COPSE_TRANSPORT_BEGIN;
    /* what it announces is known when it is there and has been taken from the queue */
    if (begins && it != transport->peers[from].launches.head) return;
    if (!it->started &&
        !(begins ? start_begin(transport, from, it) : start_part(transport, from, it)))
      return;
    if (begins) return;
  }
}

/* Whether anything has come. */
static bool end_launches(struct copse_transport *transport, uint32_t from) {
  struct copse_peer *peer = &transport->peers[from];
  bool moved = false;
  while (peer->launches.head && is_there(transport, from, peer->launches.head)) {
    struct copse_message *it = pop(&peer->launches);
    moved = true;
    if (it->tag != COPSE_TRANSPORT_BEGIN) {
      copse_engine_arrived(transport->running, from, it->tag);
    } else {
      peer->call = peer->next_call;
      if (transport->running && peer->call.launch == transport->call.launch)
        copse_transport_compare_calls(transport, from);
      start_launches(transport, from);
    }
    free_message(it);
  }
  return moved;
}

bool copse_transport_take_in(struct copse_transport *transport) {
  bool moved = false;
  collect(transport);
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++) {
    struct copse_peer *peer = &transport->peers[r];
    while (peer->control.head && is_there(transport, r, peer->control.head))
      moved = take_own(transport, r, pop(&peer->control)) || moved;
    if (!peer->launches.head || transport->broken.status != COPSE_OK) continue;
    start_launches(transport, r);
    moved = end_launches(transport, r) || moved;
  }
  return moved;
}
