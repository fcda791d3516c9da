/*
 * From options to a schedule: phases of equal shares, each at its optimum (phases.h), then what may
 * be faster for an allreduce: unequal shares, and switches that copy or add; and where a tolerance
 * is given, whether the trees are within it.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/types.h"
#include "schedule/loads.h"
#include "schedule/solve/phases.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/shares.h"
#include "schedule/solve/solve.h"
#include "schedule/solve/switches.h"

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
  copse_schedule_free(best);
  return status;
}

/* A tolerance chooses among equal shares. Where unequal ones are so much faster that those are
 * outside it, the exact schedule takes their place. `options`: as they were given. */
static copse_status meet_tolerance(struct copse_solving *b,
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
  copse_schedule_free(b->schedule);
  b->schedule = best;
  best = NULL;
out:
  copse_schedule_free(best);
  return status;
}

/*
 * Unequal shares where they are faster. Also where they are not, but today's bound leaves open
 * whether anything is: then only the bound changes. Where switches are marked the programme, which
 * counts every copy, has trees but no bound.
 */
static copse_status try_free_shares(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                    struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_shares shares = {0};
  struct copse_bound forests;
  struct copse_q time;
  copse_status status;
  double start = copse_clock_seconds();
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  bool marked = copse_has_clever_switch(b->topology);
  if (schedule->bound.kind == COPSE_BOUND_CUT && !open) return COPSE_OK;
  if (marked && b->options->bound_only) return COPSE_OK;
  COPSE_TRY(copse_free_shares_find(b->topology, b->options, &b->broadcast.instance,
                                   schedule->time_per_GB, marked || !open, &shares, &time, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (shares.outcome != COPSE_JOINT_PROVED) goto out;
  int order = copse_q_cmp(time, schedule->time_per_GB);
  if (order < 0 && !b->options->bound_only && b->topology->n_ranks > COPSE_FREE_SHARES_RANKS) {
    copse_free_shares_note(b->options, time);
    goto out;
  }
  if (order < 0 && b->options->bound_only) schedule->time_per_GB = time;
  if (order < 0 && !b->options->bound_only) {
    struct copse_solve_part part = {shares.whole, shares.weights, shares.broadcast, shares.reduce,
                                    NULL};
    COPSE_TRY(copse_solving_part(b, &b->broadcast.instance, &part, seconds, err));
  }
  if (marked) {
    if (order < 0) COPSE_TRY(copse_solving_narrowest_bound(b, err));
    goto out;
  }
  COPSE_TRY(copse_free_shares_bound(b->topology, &shares, time, schedule, err));
  forests = schedule->bound;
  COPSE_TRY(copse_solving_narrowest_bound(b, err)); /* one that holds for any allreduce says more */
  if (copse_q_cmp(schedule->bound.time_per_GB, time) < 0) {
    forests.cut = schedule->bound.cut;
    forests.n_cut = schedule->bound.n_cut;
    schedule->bound = forests;
  }
out:
  copse_shares_free(&shares);
  return status;
}

/* One copy into switches that copy, one out of those that add, where that is faster. The bound is
 * one that holds for any allreduce, or for any trees; if neither is reached without such switches,
 * what was said before stands. */
static copse_status try_switches(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                 struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_bound before = schedule->bound;
  bool faster = false;
  COPSE_DO(copse_solving_narrowest_bound(b, err));
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  if (open)
    COPSE_DO(copse_bound_with_switches(b->topology, b->options, &b->broadcast.instance, schedule,
                                       seconds, err));
  if (open && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    COPSE_DO(copse_solve_with_switches(b->topology, b->options, &b->broadcast.instance,
                                       schedule->time_per_GB, schedule, seconds, &faster, err));
  if (!faster && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    schedule->bound = before;
  return COPSE_OK;
}

/* Which switches the trees' time counts on, if any. */
static copse_status list_switches(struct copse_solving *b, struct copse_err *err) {
  struct copse_schedule *s = b->schedule;
  int *copying = copse_solving_take(b, b->topology->n_nodes, sizeof *copying);
  int *adding = copse_solving_take(b, b->topology->n_nodes, sizeof *adding);
  bool *copies = copse_solving_take(b, b->topology->n_nodes, sizeof *copies);
  bool *adds = copse_solving_take(b, b->topology->n_nodes, sizeof *adds), counts;
  if (!copying || !adding || !copies || !adds) return copse_fail_nomem(err);
  COPSE_DO(copse_tree_switches(b->topology, s->trees, (size_t)s->n_trees, s->time_per_GB, copies,
                               adds, &counts, err));
  for (int v = 0; v < b->topology->n_nodes && counts; v++) {
    if (copies[v]) copying[s->n_copying++] = v;
    if (adds[v]) adding[s->n_adding++] = v;
  }
  s->copying = copying;
  s->adding = adding;
  return COPSE_OK;
}

/* Trees, their time, and the bound that belongs to it. */
static copse_status fill(struct copse_solving *b, struct copse_solve_seconds *seconds,
                         struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_schedule *schedule = b->schedule;
  bool exact = o->collective == COPSE_ALLREDUCE && o->k == 0 && o->tolerance.num == 0;
  bool may_differ = exact && !o->equal_shares && !o->compact;
  COPSE_DO(copse_solving_bound(b, err));
  schedule->time_per_GB = schedule->bound.time_per_GB;
  if (o->bound_only) {
    if (may_differ) COPSE_DO(try_free_shares(b, seconds, err));
    if (exact && o->in_network) COPSE_DO(try_switches(b, seconds, err));
    return COPSE_OK;
  }
  COPSE_DO(copse_solving_trees(b, err));
  if (b->orbit_trees)
    COPSE_DO(copse_solve_symmetry_set(b->topology, &b->symmetry, schedule, err));
  else
    COPSE_DO(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                             &schedule->time_per_GB, err));
  /* The phases of an allreduce may load different links: then together they are faster
   * than one after the other, and only a bound for any allreduce is one. */
  if (copse_q_cmp(schedule->time_per_GB, schedule->bound.time_per_GB) < 0)
    COPSE_DO(copse_solving_narrowest_bound(b, err));
  if (may_differ) COPSE_DO(try_free_shares(b, seconds, err));
  if (exact && o->in_network) COPSE_DO(try_switches(b, seconds, err));
  if (o->in_network) COPSE_DO(list_switches(b, err));
  if (!b->compact) COPSE_DO(copse_schedule_expand(schedule, err));
  return COPSE_OK;
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
    COPSE_TRY(meet_tolerance(&b, options, err));
  }
  *out = copse_solving_finish(&b);
out:
  copse_solving_free(&b);
  return status;
}
