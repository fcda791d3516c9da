#include "cli/solve_checked.h"

#include "base/clock.h"
#include "verify/verify.h"

/* Beyond this the exact optimum of an alltoall is often out of reach, and 1 % is what users ask
 * for. */
#define EXACT_ALLTOALL_RANKS 64

struct copse_q copse_cli_default_tolerance(const struct copse_topology *topology) {
  return topology->n_ranks > EXACT_ALLTOALL_RANKS ? (struct copse_q){1, 100} : COPSE_Q_ZERO;
}

/* A schedule that its own verifier refuses must never reach a file. */
static copse_status self_check(const struct copse_schedule *schedule,
                               const struct copse_topology *topology, struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status = copse_verify_schedule(schedule, topology, "schedule", &report, &local);
  if (status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, status == COPSE_REFUTED ? COPSE_INTERNAL : status,
                    "the computed schedule fails verification: %s", local.text);
}

copse_status copse_cli_note_equal_shares(const struct copse_topology *topology,
                                         const struct copse_solve_options *options,
                                         struct copse_err *err) {
  struct copse_solve_options like = *options;
  struct copse_schedule *made = NULL, *equal = NULL;
  struct copse_solve_seconds ignored;
  struct copse_q best;
  struct copse_err why = COPSE_ERR_INIT;
  char time[COPSE_Q_TEXT];
  copse_status status;
  if (options->collective != COPSE_ALLREDUCE || options->k == 0 || options->equal_shares ||
      options->bound_only)
    return COPSE_OK;
  COPSE_TRY(copse_solve_best_time(topology, options, &best, &made, &why));
  like.k = 0;
  like.equal_shares = true;
  like.bound_only = made == NULL;
  COPSE_TRY(copse_solve_schedule(topology, &like, &equal, &ignored, &why));
  if (copse_q_cmp(best, equal->time_per_GB) < 0)
    copse_note(options->notes, "%s: --k gives equal shares; without it unequal ones take %s s/GB",
               options->label, copse_q_text(best, time));
out:
  copse_schedule_release(made);
  copse_schedule_release(equal);
  if (status == COPSE_OK) return COPSE_OK;
  if (status != COPSE_OVERFLOW && status != COPSE_NOMEM)
    return copse_fail(err, status, "%s", why.text);
  copse_note(options->notes, "%s: what unequal shares would take is not known: %s", options->label,
             why.text); /* --k may be there because of just that */
  return COPSE_OK;
}

copse_status copse_cli_solve_checked(const struct copse_topology *topology,
                                     const struct copse_solve_options *options, bool has_tolerance,
                                     struct copse_schedule **out,
                                     struct copse_solve_seconds *seconds, double *verify_seconds,
                                     struct copse_err *err) {
  struct copse_solve_options chosen = *options;
  struct copse_schedule *schedule = NULL;
  copse_status status;
  *out = NULL;
  if (!has_tolerance && chosen.collective == COPSE_ALLTOALL)
    chosen.tolerance = copse_cli_default_tolerance(topology);
  COPSE_TRY(copse_solve_schedule(topology, &chosen, &schedule, seconds, err));
  double mark = copse_clock_seconds();
  if (!chosen.bound_only) COPSE_TRY(self_check(schedule, topology, err));
  if (verify_seconds) *verify_seconds = copse_clock_seconds() - mark;
  *out = schedule;
  schedule = NULL;
out:
  copse_schedule_release(schedule);
  return status;
}
