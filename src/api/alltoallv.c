/* The public API of the run-time alltoallv planner. */
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/online/online.h"

struct copse_alltoallv {
  struct copse_planner *planner;
  int n_ranks;
  struct copse_online_transfer *hops; /* grows to the longest list asked for, then stays */
  size_t capacity;
};

static copse_status reject(const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  (void)copse_fail(&err, COPSE_INVALID, "%s", what);
  return copse_publish_error(&err);
}

copse_status copse_alltoallv_create(const copse_topology *topology, const copse_schedule *offline,
                                    copse_alltoallv **out) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_alltoallv *a = NULL;
  copse_status status;
  if (!topology || !out) return reject(topology ? "out is NULL" : "topology is NULL");
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *a, &a, &err));
  a->n_ranks = topology->n_ranks;
  COPSE_TRY(copse_planner_create(topology, offline, NULL, &a->planner, &err));
  *out = a;
  return COPSE_OK;
out:
  free(a);
  return copse_publish_error(&err);
}

copse_status copse_alltoallv_plan(copse_alltoallv *planner, const int64_t *bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!planner || !bytes) return reject(planner ? "bytes is NULL" : "planner is NULL");
  copse_status status = copse_planner_plan(planner->planner, bytes, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

void copse_alltoallv_bound(const copse_alltoallv *planner, double *bound_seconds,
                           double *busiest_seconds) {
  struct copse_online_bound bound;
  copse_planner_bound(planner->planner, &bound);
  if (bound_seconds) *bound_seconds = bound.seconds;
  if (busiest_seconds) *busiest_seconds = copse_planner_busiest_seconds(planner->planner);
}

static copse_status list_hops(copse_alltoallv *a, int rank, int which, copse_transfer *out,
                              int64_t capacity, int64_t *n) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_status status;
  if (!a || !n || (!out && capacity > 0)) return reject("a NULL argument");
  if (rank < 0 || rank >= a->n_ranks || capacity < 0)
    return reject("rank or capacity out of range");
  COPSE_TRY(copse_grow(&a->hops, &a->capacity, (size_t)capacity, sizeof *a->hops, &err));
  COPSE_TRY(copse_planner_transfers(a->planner, rank, which, a->hops, capacity, n, &err));
  for (int64_t i = 0; i < *n && i < capacity; i++) {
    const struct copse_online_transfer *h = &a->hops[i];
    out[i] = (copse_transfer){h->from,       h->to,           h->piece.origin, h->piece.final,
                              h->piece.step, h->piece.offset, h->piece.bytes};
  }
  return COPSE_OK;
out:
  return copse_publish_error(&err);
}

copse_status copse_alltoallv_sends(copse_alltoallv *planner, int rank, copse_transfer *out,
                                   int64_t capacity, int64_t *n) {
  return list_hops(planner, rank, COPSE_ONLINE_SENDS, out, capacity, n);
}

copse_status copse_alltoallv_receives(copse_alltoallv *planner, int rank, copse_transfer *out,
                                      int64_t capacity, int64_t *n) {
  return list_hops(planner, rank, COPSE_ONLINE_RECEIVES, out, capacity, n);
}

void copse_alltoallv_free(copse_alltoallv *planner) {
  if (!planner) return;
  copse_planner_release(planner->planner);
  free(planner->hops);
  free(planner);
}
