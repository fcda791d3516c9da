/* Bounds in floating point, for tables beside predicted times: docs/theory.md, "Every size". */
#include "predict/bounds.h"

#include <stdio.h>

#include "predict/policy.h"
#include "schedule/solve/bound_at.h"
#include "schedule/solve/solve.h"

/* COPSE_OK without bounds (*out NULL) where they would leave 64 bits. */
static copse_status make_bounds(const struct copse_topology *topology,
                                const struct copse_bounds_question *question,
                                const struct copse_schedule *schedule, struct copse_bounds **out,
                                struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_q alpha;
  *out = NULL;
  copse_status status = copse_q_from_double(question->alpha_us, &alpha, &why);
  if (status == COPSE_OK)
    status = copse_bounds_new(topology, question->collective, question->root, alpha, schedule, out,
                              &why);
  if (status == COPSE_OK || status == COPSE_OVERFLOW) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

/* Of one size; 0 where none is known. */
static copse_status bound_at(struct copse_bounds *bounds, double bytes, double *us,
                             struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_bound_at at;
  copse_status status = copse_bounds_at(bounds, (int64_t)bytes, &arena, &at, NULL);
  *us = status == COPSE_OK ? copse_q_to_double(at.us) : 0;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

copse_status copse_bounds_predict(const struct copse_topology *topology,
                                  const struct copse_bounds_question *question, const double *bytes,
                                  int n, double *us, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *lengths = NULL;
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *bounds = NULL;
  struct copse_solve_seconds ignored;
  for (int i = 0; i < n; i++) us[i] = 0;
  if (!question->schedule && question->collective == COPSE_ALLTOALL) {
    struct copse_solve_options options = {.collective = COPSE_ALLTOALL,
                                          .root = -1,
                                          .bound_only = true,
                                          .tolerance = {1, LENGTHS_WITHIN},
                                          .label = topology->name};
    COPSE_DO(copse_solve_schedule(topology, &options, &lengths, &ignored, err));
  }
  COPSE_DO(make_bounds(topology, question, question->schedule ? question->schedule : lengths,
                       &bounds, err));
  for (int i = 0; i < n && bounds; i++) COPSE_DO(bound_at(bounds, bytes[i], &us[i], err));
  return COPSE_OK;
}

copse_status copse_bound_state(const struct copse_topology *topology,
                               struct copse_schedule *schedule, double bytes, double alpha_us,
                               struct copse_err *err) {
  const struct copse_bounds_question question = {schedule->collective, schedule->root, schedule,
                                                 alpha_us};
  struct copse_bound_at *at = copse_arena_alloc(&schedule->arena, 1, sizeof *at);
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *bounds = NULL;
  if (!at) return copse_fail_nomem(err);
  COPSE_DO(make_bounds(topology, &question, schedule, &bounds, err));
  copse_status status =
      bounds ? copse_bounds_at(bounds, (int64_t)bytes, &schedule->arena, at, NULL) : COPSE_OVERFLOW;
  schedule->bound_at = status == COPSE_OK && at->us.num > 0 ? at : NULL;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

const char *copse_gap_text(double us, double bound_us, char buffer[COPSE_GAP_TEXT]) {
  double percent = bound_us > 0 ? 100 * (us / bound_us - 1) : 0;
  if (bound_us <= 0) return "-";
  snprintf(buffer, COPSE_GAP_TEXT, "%.*f %%", percent < 100 ? 1 : 0, percent < 0 ? 0 : percent);
  return buffer;
}
