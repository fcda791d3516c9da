/* Fewer trees than the exact schedule has, within a tolerance of the optimum. */
#include <stdlib.h>

#include "schedule/solve/internal.h"
#include "schedule/solve/switches.h"
#include "solver/trees/optimum.h"

/* More trees than this per root are as good as the exact number, and slow to try. */
#define MAX_TRIED_K 4096

copse_status copse_solving_smallest_k(const struct copse_solving *b, bool reversed, int64_t *k,
                                      struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_instance instance = {0};
  struct copse_optimum optimum = {.x = COPSE_Q_ZERO};
  struct copse_scale exact;
  struct copse_q limit, loss, u, inverse;
  int64_t *capacities = NULL;
  copse_status status;
  *k = 0;
  COPSE_TRY(copse_instance_make(b->topology, o->label, o->root, reversed, &instance, err));
  COPSE_TRY(copse_calloc((size_t)b->topology->n_links, sizeof *capacities, &capacities, err));
  COPSE_TRY(copse_optimum_find(&instance.network, o->progress, &optimum, err));
  if (optimum.x.num == 0) goto out; /* the phase itself says who can't be reached */
  COPSE_TRY(copse_optimum_scale(&instance.network, optimum.x, &exact, err));
  COPSE_TRY(copse_q_add(COPSE_Q_ONE, o->tolerance, &limit, err));
  for (int64_t tried = 1; tried < exact.k && tried <= MAX_TRIED_K && *k == 0; tried++) {
    COPSE_TRY(copse_optimum_fixed_k(&instance.network, optimum.x, tried, &u, capacities, err));
    COPSE_TRY(copse_q_make(1, tried, &inverse, err));
    COPSE_TRY(copse_q_mul(u, optimum.x, &loss, err)); /* time over the optimum: U x / k */
    COPSE_TRY(copse_q_mul(loss, inverse, &loss, err));
    if (copse_q_cmp(loss, limit) <= 0) *k = tried;
    copse_progress_report(o->progress, "k", tried, exact.k);
  }
out:
  free(capacities);
  copse_optimum_free(&optimum);
  copse_instance_free(&instance);
  return status;
}

/* Whether trees of equal shares may be further from the best ones than the tolerance says. */
static bool may_miss(const struct copse_solve_options *o) {
  return o->collective == COPSE_ALLREDUCE && o->tolerance.num > 0 && o->k == 0 &&
         !o->equal_shares && !o->compact && !o->bound_only;
}

copse_status copse_solve_best_time(const struct copse_topology *topology,
                                   const struct copse_solve_options *options, struct copse_q *time,
                                   struct copse_schedule **made, struct copse_err *err) {
  struct copse_solve_options exact = *options;
  struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  copse_status status;
  *made = NULL;
  exact.k = 0;
  exact.tolerance = COPSE_Q_ZERO;
  exact.bound_only = !copse_has_clever_switch(topology);
  COPSE_TRY(copse_solve_schedule(topology, &exact, &best, &ignored, err));
  *time = best->time_per_GB;
  if (exact.bound_only) goto out;
  *made = best;
  best = NULL;
out:
  copse_schedule_release(best);
  return status;
}

copse_status copse_solving_meet_tolerance(struct copse_solving *b,
                                          const struct copse_solve_options *options,
                                          struct copse_err *err) {
  struct copse_solve_options exact = *options;
  struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  struct copse_q limit, time;
  copse_status status;
  if (!may_miss(options)) return COPSE_OK;
  COPSE_TRY(copse_solve_best_time(b->topology, options, &time, &best, err));
  COPSE_TRY(copse_q_add(COPSE_Q_ONE, options->tolerance, &limit, err));
  COPSE_TRY(copse_q_mul(limit, time, &limit, err));
  if (copse_q_cmp(b->schedule->time_per_GB, limit) <= 0) goto out;
  exact.tolerance = COPSE_Q_ZERO;
  if (!best) COPSE_TRY(copse_solve_schedule(b->topology, &exact, &best, &ignored, err));
  copse_schedule_release(b->schedule);
  b->schedule = best;
  best = NULL;
out:
  copse_schedule_release(best);
  return status;
}
