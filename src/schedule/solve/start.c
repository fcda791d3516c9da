/* What every schedule of a solver begins and ends with. */
#include <string.h>

#include "base/collective.h"
#include "schedule/solve/internal.h"

void *copse_solving_take(struct copse_solving *b, int n, size_t size) {
  return copse_arena_alloc(&b->schedule->arena, n > 0 ? (size_t)n : 1, size);
}

/* Of what topology, and whose ranks. */
static copse_status describe(struct copse_solving *b, struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  const struct copse_topology *topology = b->topology;
  char sha256[COPSE_SHA256_HEX];
  const char **ids = copse_solving_take(b, topology->n_nodes, sizeof *ids);
  int *ranks = copse_solving_take(b, topology->n_ranks, sizeof *ranks);
  copse_status status = copse_topology_sha256(topology, sha256, err);
  if (status != COPSE_OK) return status;
  schedule->collective = b->options->collective;
  schedule->root = b->options->root;
  schedule->topology_name = copse_arena_strdup(&schedule->arena, topology->name);
  schedule->topology_sha256 = copse_arena_strdup(&schedule->arena, sha256);
  if (!ids || !ranks || !schedule->topology_name || !schedule->topology_sha256)
    return copse_fail_nomem(err);
  for (int i = 0; i < topology->n_nodes; i++)
    if (!(ids[i] = copse_arena_strdup(&schedule->arena, topology->nodes[i].id)))
      return copse_fail_nomem(err);
  memcpy(ranks, topology->rank_nodes, (size_t)topology->n_ranks * sizeof *ranks);
  schedule->nodes = ids;
  schedule->n_nodes = topology->n_nodes;
  schedule->rank_nodes = ranks;
  schedule->n_ranks = topology->n_ranks;
  schedule->others_excluded = topology->others_excluded;
  return COPSE_OK;
}

static copse_status check_options(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_err *err) {
  const char *name = copse_collective_name(options->collective);
  if (options->collective == COPSE_ALLTOALL && options->k > 0)
    return copse_fail(err, COPSE_INVALID, "an alltoall has flows, not k trees");
  if (options->collective != COPSE_ALLTOALL && (options->demand || options->no_forward))
    return copse_fail(err, COPSE_INVALID, "a demand or no-forward is for alltoall");
  if (copse_collective_rooted(options->collective)) {
    if (options->root < 0 || options->root >= topology->n_ranks)
      return copse_fail(err, COPSE_INVALID, "%s needs a root from 0 to %d", name,
                        topology->n_ranks - 1);
  } else if (options->root >= 0) {
    return copse_fail(err, COPSE_INVALID, "%s has no root", name);
  }
  if (options->k < 0 || options->k > (1 << 20))
    return copse_fail(err, COPSE_INVALID, "k must be from 1 to %d", 1 << 20);
  return COPSE_OK;
}

copse_status copse_solving_start(struct copse_solving *b, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(check_options(b->topology, b->options, err));
  COPSE_TRY(copse_calloc(1, sizeof *b->schedule, &b->schedule, err));
  COPSE_TRY(describe(b, err));
out:
  return status;
}

struct copse_schedule *copse_solving_finish(struct copse_solving *b) {
  struct copse_schedule *schedule = b->schedule;
  b->schedule = NULL;
  return schedule;
}

void copse_solving_free(struct copse_solving *b) {
  copse_solving_free_phases(b);
  copse_solve_symmetry_free(&b->symmetry);
  copse_schedule_release(b->schedule);
  b->schedule = NULL;
}
