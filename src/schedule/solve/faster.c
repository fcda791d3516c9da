/* What makes an allreduce faster than two phases of equal shares: unequal ones, and switches that
 * copy or add. */
#include <stdlib.h>

#include "base/clock.h"
#include "schedule/loads.h"
#include "schedule/solve/internal.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/shares.h"
#include "schedule/solve/switches.h"

copse_status copse_solving_free_shares(struct copse_solving *b, struct copse_solve_seconds *seconds,
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

copse_status copse_solving_switches(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                    struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_bound before = schedule->bound;
  bool faster = false;
  copse_status status;
  COPSE_TRY(copse_solving_narrowest_bound(b, err));
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  if (open)
    COPSE_TRY(copse_bound_with_switches(b->topology, b->options, &b->broadcast.instance, schedule,
                                        seconds, err));
  if (open && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    COPSE_TRY(copse_solve_with_switches(b->topology, b->options, &b->broadcast.instance,
                                        schedule->time_per_GB, schedule, seconds, &faster, err));
  if (!faster && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    schedule->bound = before;
out:
  return status;
}

copse_status copse_solving_list_switches(struct copse_solving *b, struct copse_err *err) {
  struct copse_schedule *s = b->schedule;
  int *copying = copse_solving_take(b, b->topology->n_nodes, sizeof *copying);
  int *adding = copse_solving_take(b, b->topology->n_nodes, sizeof *adding);
  bool *copies = NULL, *adds = NULL, counts;
  copse_status status;
  if (!copying || !adding) return copse_fail_nomem(err);
  COPSE_TRY(copse_calloc((size_t)b->topology->n_nodes, sizeof *copies, &copies, err));
  COPSE_TRY(copse_calloc((size_t)b->topology->n_nodes, sizeof *adds, &adds, err));
  COPSE_TRY(copse_tree_switches(b->topology, s->trees, (size_t)s->n_trees, s->time_per_GB, copies,
                                adds, &counts, err));
  for (int v = 0; v < b->topology->n_nodes && counts; v++) {
    if (copies[v]) copying[s->n_copying++] = v;
    if (adds[v]) adding[s->n_adding++] = v;
  }
  s->copying = copying;
  s->adding = adding;
out:
  free(copies);
  free(adds);
  return status;
}
