#include "schedule/solve/solve.h"

#include "base/collective.h"
#include "schedule/loads.h"
#include "schedule/solve/internal.h"

/* Trees, their time, and the bound that belongs to it. */
static copse_status fill(struct copse_solving *b, struct copse_solve_seconds *seconds,
                         struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_schedule *schedule = b->schedule;
  bool exact = o->collective == COPSE_ALLREDUCE && o->k == 0 && o->tolerance.num == 0;
  bool may_differ = exact && !o->equal_shares && !o->compact;
  copse_status status;
  COPSE_TRY(copse_solving_bound(b, err));
  schedule->time_per_GB = schedule->bound.time_per_GB;
  if (o->bound_only) {
    if (may_differ) COPSE_TRY(copse_solving_free_shares(b, seconds, err));
    if (exact && o->in_network) COPSE_TRY(copse_solving_switches(b, seconds, err));
    return COPSE_OK;
  }
  COPSE_TRY(copse_solving_trees(b, err));
  if (b->templates)
    COPSE_TRY(copse_solve_symmetry_set(b->topology, &b->symmetry, schedule, err));
  else
    COPSE_TRY(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                              &schedule->time_per_GB, err));
  /* The phases of an allreduce may load different links: then together they are faster
   * than one after the other, and only a bound for any allreduce is one. */
  if (copse_q_cmp(schedule->time_per_GB, schedule->bound.time_per_GB) < 0)
    COPSE_TRY(copse_solving_narrowest_bound(b, err));
  if (may_differ) COPSE_TRY(copse_solving_free_shares(b, seconds, err));
  if (exact && o->in_network) COPSE_TRY(copse_solving_switches(b, seconds, err));
  if (o->in_network) COPSE_TRY(copse_solving_list_switches(b, err));
  if (!b->compact) COPSE_TRY(copse_schedule_expand(schedule, err));
out:
  return status;
}

copse_status copse_solve_schedule(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) {
  struct copse_solving b = {.topology = topology, .options = options};
  copse_status status;
  *out = NULL;
  *seconds = (struct copse_solve_seconds){0};
  COPSE_TRY(copse_solving_start(&b, err));
  if (options->collective == COPSE_ALLTOALL) {
    COPSE_TRY(copse_solve_alltoall(topology, options, b.schedule, seconds, err));
  } else {
    COPSE_TRY(copse_solving_phases(&b, seconds, err));
    COPSE_TRY(fill(&b, seconds, err));
    COPSE_TRY(copse_solving_meet_tolerance(&b, options, err));
  }
  *out = copse_solving_finish(&b);
out:
  copse_solving_free(&b);
  return status;
}
