/* The mesh's life, what goes out, and launches. */
#include "runtime/transport/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/transport/mesh_internal.h"

#define DEFAULT_TIMEOUT_SECONDS 600.0
/* So much may be on its way before workers wait for it: enough for any pipeline, and no second
 * copy of a large message. */
#define MOST_OUTGOING_BYTES ((size_t)64 << 20)
/* How long a broken mesh tries to tell the others. */
#define FAREWELL_SECONDS 0.5

/* ---- life -------------------------------------------------------------------------------- */

/* What all ranks must have in common before they exchange anything else. */
struct hello {
  char version[32];
  uint32_t call_bytes, pong_bytes;
};

static copse_status greet(struct copse_mesh *mesh, struct copse_err *err) {
  struct hello mine, *all = NULL;
  copse_status status;
  memset(&mine, 0, sizeof mine);
  strncpy(mine.version, COPSE_VERSION_STRING, sizeof mine.version - 1);
  mine.call_bytes = sizeof(struct copse_mesh_call);
  mine.pong_bytes = sizeof(struct copse_mesh_pong);
  COPSE_TRY(copse_calloc(mesh->n, sizeof *all, &all, err));
  status = copse_mesh_all_gather(mesh, &mine, all, sizeof mine);
  if (status != COPSE_OK) {
    status = copse_mesh_tell(mesh, err);
    goto out;
  }
  for (uint32_t r = 0; r < mesh->n; r++) {
    all[r].version[sizeof all[r].version - 1] = '\0';
    if (memcmp(&all[r], &mine, sizeof mine) == 0) continue;
    status = copse_fail(err, COPSE_REFUTED,
                        "rank %u runs copse %s and rank %u copse %s; must be the same", r,
                        all[r].version, mesh->me, mine.version);
    goto out;
  }
out:
  free(all);
  return status;
}

copse_status copse_mesh_new(const copse_wire *wire, double timeout_seconds, struct copse_mesh **out,
                            struct copse_err *err) {
  struct copse_mesh *mesh = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *mesh, &mesh, err));
  mesh->wire = *wire;
  mesh->n = (uint32_t)wire->n_ranks;
  mesh->me = (uint32_t)wire->rank;
  mesh->timeout = timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS;
  mesh->gather_waits_for = COPSE_MESH_NOBODY;
  COPSE_TRY(copse_calloc(mesh->n, sizeof *mesh->peers, &mesh->peers, err));
  for (uint32_t r = 0; r < mesh->n; r++) {
    struct copse_peer *peer = &mesh->peers[r];
    peer->launches.tail = &peer->launches.head;
    peer->control.tail = &peer->control.head;
    peer->gathered.tail = &peer->gathered.head;
    peer->sent_end = &peer->sent;
  }
  COPSE_TRY(greet(mesh, err));
  *out = mesh;
  return COPSE_OK;
out:
  if (mesh)
    copse_mesh_free(mesh);
  else
    wire->end(wire->context, 0);
  return status;
}

static void refuse_aborted(struct copse_mesh *mesh) {
  struct copse_err why = COPSE_ERR_INIT;
  if (mesh->broken.status != COPSE_OK || !atomic_load(&mesh->aborted)) return;
  (void)copse_fail(&why, COPSE_ABORTED, "copse_comm_abort was called on rank %u", mesh->me);
  (void)copse_mesh_fail(mesh, &why);
}

/* After a failure the wire may still write to what has been started, and read what goes out: that
 * memory, a few pages, is left to it. */
void copse_mesh_free(struct copse_mesh *mesh) {
  if (!mesh) return;
  refuse_aborted(mesh); /* others still wait */
  bool orderly = mesh->broken.status == COPSE_OK && mesh->n_outgoing == 0;
  mesh->wire.end(mesh->wire.context, orderly);
  for (uint32_t r = 0; orderly && mesh->peers && r < mesh->n; r++) {
    copse_mesh_free_letters(&mesh->peers[r].launches);
    copse_mesh_free_letters(&mesh->peers[r].control);
    copse_mesh_free_letters(&mesh->peers[r].gathered);
  }
  if (orderly) free(mesh->peers);
  while (mesh->free_parcels) {
    struct copse_parcel *next = mesh->free_parcels->next;
    free(mesh->free_parcels);
    mesh->free_parcels = next;
  }
  free(mesh);
}

uint32_t copse_mesh_rank(const struct copse_mesh *mesh) { return mesh->me; }
uint32_t copse_mesh_size(const struct copse_mesh *mesh) { return mesh->n; }
unsigned copse_mesh_most_tag(const struct copse_mesh *mesh) { return mesh->wire.most_tag; }
void copse_mesh_set_timeout(struct copse_mesh *mesh, double seconds) { mesh->timeout = seconds; }
void copse_mesh_abort(struct copse_mesh *mesh) { atomic_store(&mesh->aborted, true); }

/* ---- its end ------------------------------------------------------------------------------ */

copse_status copse_mesh_break(struct copse_mesh *mesh, const struct copse_err *why) {
  if (mesh->broken.status == COPSE_OK) mesh->broken = *why;
  return mesh->broken.status;
}

copse_status copse_mesh_wire_failed(struct copse_mesh *mesh, const char *what, uint32_t rank,
                                    copse_status status) {
  struct copse_err why = COPSE_ERR_INIT;
  (void)copse_fail(&why, status, "rank %u, %s rank %u: %s", mesh->me, what, rank,
                   mesh->wire.why(mesh->wire.context));
  return copse_mesh_fail(mesh, &why);
}

copse_status copse_mesh_out_of_memory(struct copse_mesh *mesh) {
  struct copse_err why = COPSE_ERR_INIT;
  (void)copse_fail(&why, COPSE_NOMEM, "rank %u: out of memory", mesh->me);
  return copse_mesh_fail(mesh, &why);
}

copse_status copse_mesh_tell(const struct copse_mesh *mesh, struct copse_err *err) {
  if (mesh->broken.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, mesh->broken.status, "%s", mesh->broken.text);
}

/* Broken first: what fails while the others are told must not come back here. */
copse_status copse_mesh_fail(struct copse_mesh *mesh, const struct copse_err *why) {
  if (mesh->broken.status != COPSE_OK) return mesh->broken.status;
  struct copse_mesh_reason reason;
  memset(&reason, 0, sizeof reason);
  reason.status = (uint32_t)why->status;
  snprintf(reason.text, sizeof reason.text, "%s", why->text);
  copse_status status = copse_mesh_break(mesh, why);
  for (uint32_t r = 0; r < mesh->n; r++)
    if (r != mesh->me) copse_mesh_send_own(mesh, r, COPSE_MESH_ABORT, &reason, sizeof reason);
  for (double end = copse_clock_seconds() + FAREWELL_SECONDS;
       mesh->n_outgoing > 0 && copse_clock_seconds() < end;)
    (void)copse_mesh_push_out(mesh);
  return status;
}

/* ---- what goes out -------------------------------------------------------------------------- */

/* A free one that is large enough; allocating costs page faults, each time. */
static struct copse_parcel *find_parcel(struct copse_mesh *mesh, size_t n) {
  for (struct copse_parcel **at = &mesh->free_parcels; *at; at = &(*at)->next) {
    struct copse_parcel *it = *at;
    if (it->capacity < n || it->capacity / 4 > n + 4096) continue;
    *at = it->next;
    return it;
  }
  struct copse_parcel *parcel = malloc(sizeof *parcel + n);
  if (parcel) parcel->capacity = n;
  return parcel;
}

static struct copse_parcel *new_parcel(struct copse_mesh *mesh, size_t n) {
  struct copse_parcel *parcel = find_parcel(mesh, n);
  if (!parcel) {
    (void)copse_mesh_out_of_memory(mesh);
    return NULL;
  }
  parcel->refs = 1;
  parcel->n = n;
  mesh->bytes_outgoing += n;
  return parcel;
}

struct copse_parcel *copse_mesh_new_parcel(struct copse_mesh *mesh, size_t n) {
  if (mesh->bytes_outgoing > 0 && mesh->bytes_outgoing + n > MOST_OUTGOING_BYTES) return NULL;
  return new_parcel(mesh, n);
}

unsigned char *copse_parcel_bytes(struct copse_parcel *parcel) { return parcel->bytes; }

void copse_mesh_drop(struct copse_mesh *mesh, struct copse_parcel *parcel) {
  if (--parcel->refs > 0) return;
  mesh->bytes_outgoing -= parcel->n;
  parcel->next = mesh->free_parcels;
  mesh->free_parcels = parcel;
}

static void post(struct copse_mesh *mesh, uint32_t to, unsigned tag, struct copse_parcel *parcel) {
  struct copse_peer *peer = &mesh->peers[to];
  struct copse_outgoing *it = calloc(1, sizeof *it);
  if (!it) {
    (void)copse_mesh_out_of_memory(mesh);
    return;
  }
  copse_status status =
      mesh->wire.send(mesh->wire.context, (int)to, tag, parcel->bytes, parcel->n, &it->request);
  if (status != COPSE_OK) {
    free(it);
    (void)copse_mesh_wire_failed(mesh, "sending to", to, status);
    return;
  }
  it->counts = tag >= COPSE_MESH_GATHER;
  it->parcel = parcel;
  parcel->refs++;
  *peer->sent_end = it;
  peer->sent_end = &it->next;
  mesh->n_outgoing++;
}

void copse_mesh_send_own(struct copse_mesh *mesh, uint32_t to, unsigned tag, const void *bytes,
                         size_t n) {
  struct copse_parcel *parcel = new_parcel(mesh, n);
  if (!parcel) return;
  if (n > 0) memcpy(parcel->bytes, bytes, n);
  post(mesh, to, tag, parcel);
  copse_mesh_drop(mesh, parcel);
}

void copse_mesh_send(struct copse_mesh *mesh, uint32_t to, unsigned tag,
                     struct copse_parcel *parcel) {
  struct copse_peer *peer = &mesh->peers[to];
  if (peer->announced != mesh->call.launch) {
    copse_mesh_send_own(mesh, to, COPSE_MESH_BEGIN, &mesh->call, sizeof mesh->call);
    peer->announced = mesh->call.launch;
  }
  if (parcel)
    post(mesh, to, tag, parcel);
  else
    copse_mesh_send_own(mesh, to, tag, NULL, 0);
}

static bool pop_sent(struct copse_mesh *mesh, struct copse_peer *peer) {
  struct copse_outgoing *it = peer->sent;
  bool counts = it->counts;
  peer->sent = it->next;
  if (!peer->sent) peer->sent_end = &peer->sent;
  mesh->n_outgoing--;
  copse_mesh_drop(mesh, it->parcel);
  free(it);
  return counts;
}

bool copse_mesh_push_out(struct copse_mesh *mesh) {
  bool moved = false;
  for (uint32_t r = 0; r < mesh->n && mesh->n_outgoing > 0; r++) {
    struct copse_peer *peer = &mesh->peers[r];
    while (peer->sent) {
      int done = 0;
      copse_status status = mesh->wire.test(mesh->wire.context, peer->sent->request, &done);
      if (status == COPSE_OK && !done) break;
      moved = pop_sent(mesh, peer) || moved; /* also after an error the request is gone */
      if (status != COPSE_OK) {
        (void)copse_mesh_wire_failed(mesh, "sending to", r, status);
        return moved;
      }
    }
  }
  return moved;
}

bool copse_mesh_is_sent(const struct copse_mesh *mesh) { return mesh->n_outgoing == 0; }

uint32_t copse_mesh_sends_to(const struct copse_mesh *mesh) {
  for (uint32_t r = 0; r < mesh->n; r++)
    if (mesh->peers[r].sent) return r;
  return COPSE_MESH_NOBODY;
}

/* ---- launches ------------------------------------------------------------------------------- */

copse_status copse_mesh_begin(struct copse_mesh *mesh, const struct copse_mesh_call *call,
                              const struct copse_mesh_reader *reader, struct copse_err *err) {
  uint64_t number = mesh->call.launch + 1;
  if (mesh->broken.status != COPSE_OK) return copse_mesh_tell(mesh, err);
  mesh->call = *call;
  mesh->call.launch = number;
  mesh->reader = reader;
  copse_mesh_watch(mesh, true);
  for (uint32_t r = 0; r < mesh->n; r++)
    if (mesh->peers[r].call.launch == number) copse_mesh_compare_calls(mesh, r);
  return copse_mesh_tell(mesh, err);
}

copse_status copse_mesh_end(struct copse_mesh *mesh, struct copse_err *err) {
  mesh->reader = NULL;
  for (uint32_t r = 0; r < mesh->n && mesh->broken.status == COPSE_OK; r++) {
    const struct copse_letter *it = mesh->peers[r].launches.head;
    if (it && it->started && it->tag != COPSE_MESH_BEGIN) copse_mesh_refuse_late(mesh, r);
  }
  return copse_mesh_tell(mesh, err);
}

copse_status copse_mesh_step(struct copse_mesh *mesh, bool moved, struct copse_err *err) {
  refuse_aborted(mesh);
  if (mesh->broken.status == COPSE_OK) moved = copse_mesh_take_in(mesh) || moved;
  if (mesh->broken.status == COPSE_OK) moved = copse_mesh_push_out(mesh) || moved;
  if (mesh->broken.status == COPSE_OK) copse_mesh_watch(mesh, moved);
  return copse_mesh_tell(mesh, err);
}
