/* The optimum of the phases and its certificate. */
#include "base/collective.h"
#include "schedule/solve/internal.h"

/* T/M at the optimum: 1 / (W x), with x in units of the instance's scale. */
static copse_status phase_time(const struct copse_solved_phase *phase, struct copse_q *time,
                               struct copse_err *err) {
  struct copse_q x = phase->forest.optimum.x, scale, total;
  copse_status status;
  *time = COPSE_Q_ZERO;
  if (x.num == 0) return COPSE_OK; /* a single rank */
  COPSE_TRY(copse_q_make(phase->instance.scale, 1, &scale, err));
  COPSE_TRY(copse_q_make(phase->instance.network.n_roots, 1, &total, err));
  COPSE_TRY(copse_q_mul(x, total, &total, err));
  COPSE_TRY(copse_q_div(scale, total, time, err));
out:
  return status;
}

static copse_status phase_cut(struct copse_solving *b, const struct copse_solved_phase *phase,
                              const int **cut, int *n, struct copse_err *err) {
  int *nodes = copse_solving_take(b, b->topology->n_nodes, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(err);
  *n = 0;
  for (int i = 0; i < b->topology->n_nodes; i++)
    if (phase->forest.optimum.in_cut[i]) nodes[(*n)++] = i;
  *cut = nodes;
  return COPSE_OK;
}

copse_status copse_solving_narrowest_bound(struct copse_solving *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  struct copse_solve_seconds ignored = {0};
  struct copse_solve_options options = *b->options;
  struct copse_solving narrow = {
      .topology = b->topology, .options = &options, .schedule = b->schedule};
  struct copse_q out_of, into;
  copse_status status;
  options.root = 0;
  options.bound_only = true;
  COPSE_TRY(copse_solving_phase(&narrow, false, &narrow.broadcast, &ignored, err));
  COPSE_TRY(copse_solving_phase(&narrow, true, &narrow.reduce, &ignored, err));
  COPSE_TRY(phase_time(&narrow.broadcast, &out_of, err));
  COPSE_TRY(phase_time(&narrow.reduce, &into, err));
  bound->kind = COPSE_BOUND_CUT;
  if (copse_q_cmp(out_of, into) >= 0) {
    bound->time_per_GB = out_of;
    COPSE_TRY(phase_cut(&narrow, &narrow.broadcast, &bound->cut, &bound->n_cut, err));
  } else { /* what must enter S leaves the rest: turn S around */
    bound->time_per_GB = into;
    for (int i = 0; i < b->topology->n_nodes; i++)
      narrow.reduce.forest.optimum.in_cut[i] = !narrow.reduce.forest.optimum.in_cut[i];
    COPSE_TRY(phase_cut(&narrow, &narrow.reduce, &bound->cut, &bound->n_cut, err));
  }
out:
  copse_solving_free_phases(&narrow);
  return status;
}

copse_status copse_solving_bound(struct copse_solving *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  const struct copse_solved_phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  copse_status status;
  struct copse_q time;
  if (b->options->collective != COPSE_ALLREDUCE) {
    const struct copse_solved_phase *only = b->broadcast.used ? &b->broadcast : &b->reduce;
    COPSE_TRY(phase_time(only, &bound->time_per_GB, err));
    COPSE_TRY(phase_cut(b, only, &bound->cut, &bound->n_cut, err));
    return COPSE_OK;
  }
  bound->kind = COPSE_BOUND_PHASES;
  COPSE_TRY(phase_time(&b->broadcast, &bound->time_per_GB, err));
  COPSE_TRY(phase_time(reduce, &time, err));
  COPSE_TRY(copse_q_add(bound->time_per_GB, time, &bound->time_per_GB, err));
  COPSE_TRY(phase_cut(b, &b->broadcast, &bound->cut, &bound->n_cut, err));
  COPSE_TRY(phase_cut(b, reduce, &bound->reduce_cut, &bound->n_reduce_cut, err));
out:
  return status;
}
