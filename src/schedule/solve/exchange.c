/* An alltoall within a given part of the links, as groups that share a fabric have one. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "schedule/solve/instance.h"
#include "schedule/loads.h"
#include "schedule/solve/solve.h"
#include "solver/alltoall/gather.h"

/* Beyond, an exact bound of a group alone is often out of reach; it is told, not built on. */
#define EXACT_RANKS 64

struct build {
  const struct copse_topology *topology;
  const struct copse_solve_part *part;
  struct copse_schedule *schedule;
  struct copse_instance instance;
  struct copse_schedule_flow *flows;
  int *sources; /* nodes of all ranks but the sink */
  struct copse_err *err;
};

/* Paths come by source: each run of one source is a flow. */
static copse_status add_flows(struct build *b, int sink, const struct copse_gather_path *from,
                              size_t n) {
  struct copse_schedule *s = b->schedule;
  struct copse_schedule_path *paths = copse_arena_alloc(&s->arena, n, sizeof *paths);
  copse_status status = COPSE_OK;
  if (!paths) return copse_fail_nomem(b->err);
  for (size_t i = 0; i < n; i++) {
    int src = b->topology->nodes[b->sources[from[i].source]].rank;
    struct copse_schedule_flow *last = b->flows + s->n_flows - 1;
    paths[i].nodes = from[i].nodes;
    paths[i].n_nodes = from[i].n_nodes;
    COPSE_TRY(copse_q_make(from[i].amount, b->part->whole, &paths[i].weight, b->err));
    if (i > 0 && last->src == src)
      last->n_paths++;
    else
      b->flows[s->n_flows++] = (struct copse_schedule_flow){src, sink, 1, &paths[i]};
  }
out:
  return status;
}

static copse_status fill_sink(struct build *b, int sink) {
  const struct copse_topology *t = b->topology;
  struct copse_gather_path *paths = NULL;
  size_t n;
  int n_sources = 0;
  copse_status status;
  for (int r = 0; r < t->n_ranks; r++)
    if (r != sink) b->sources[n_sources++] = t->rank_nodes[r];
  COPSE_TRY(copse_gather_paths(&b->instance.network, b->part->exchange[sink], b->sources, n_sources,
                               b->part->whole / t->n_ranks, t->rank_nodes[sink],
                               &b->schedule->arena, &paths, &n, b->err));
  status = add_flows(b, sink, paths, n);
out:
  free(paths);
  return status;
}

static copse_status fill(struct build *b) {
  size_t n = (size_t)b->topology->n_ranks;
  copse_status status;
  COPSE_TRY(copse_instance_scale(b->topology, &b->instance, b->err));
  COPSE_TRY(copse_calloc(n, sizeof *b->sources, &b->sources, b->err));
  b->flows = copse_arena_alloc(&b->schedule->arena, n * n, sizeof *b->flows);
  if (!b->flows) return copse_fail_nomem(b->err);
  for (int r = 0; r < b->topology->n_ranks; r++) COPSE_TRY(fill_sink(b, r));
  b->schedule->flows = b->flows;
  status = copse_flow_time(b->topology, b->flows, b->schedule->n_flows, &b->schedule->time_per_GB,
                           b->err);
out:
  return status;
}

copse_status copse_solve_exchange_in_part(const struct copse_topology *topology,
                                          const struct copse_solve_options *options,
                                          const struct copse_solve_part *part,
                                          struct copse_schedule **out,
                                          struct copse_solve_seconds *seconds,
                                          struct copse_err *err) {
  struct copse_solve_options bound_only = *options;
  struct copse_solve_seconds bound_seconds;
  struct build b = {.topology = topology, .part = part, .err = err};
  copse_status status;
  *out = NULL;
  bound_only.bound_only = true;
  if (topology->n_ranks > EXACT_RANKS) bound_only.tolerance = (struct copse_q){1, 100};
  COPSE_TRY(copse_solve_schedule(topology, &bound_only, &b.schedule, &bound_seconds, err));
  seconds->optimum += bound_seconds.optimum;
  double start = copse_clock_seconds();
  if (part) COPSE_TRY(fill(&b));
  seconds->pack += copse_clock_seconds() - start;
  *out = b.schedule;
  b.schedule = NULL;
out:
  copse_schedule_release(b.schedule);
  copse_instance_free(&b.instance);
  free(b.sources);
  return status;
}
