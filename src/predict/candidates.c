/*
 * Several schedules of one collective, made, verified and timed by the simulator, and which is best
 * for which message sizes: as few ranges as there can be, each with a schedule close to the
 * fastest.
 */
#include "predict/candidates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "predict/baseline.h"
#include "schedule/solve/bound_at.h"
#include "verify/verify.h"
#include "predict/policy.h"

static copse_status check(const struct copse_schedule *schedule,
                          const struct copse_topology *topology, const char *name,
                          struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status = copse_verify_schedule(schedule, topology, "schedule", &report, &local);
  if (status == COPSE_OK || status == COPSE_OVERFLOW) return status;
  return copse_fail(err, status == COPSE_REFUTED ? COPSE_INTERNAL : status,
                    "the %s schedule fails verification: %s", name, local.text);
}

/* Verifies a schedule and takes it into the list; releases it otherwise. */
static copse_status add(struct copse_candidates *c, const char *name,
                        struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_candidate *it = &c->list[c->n];
  copse_status status;
  *it = (struct copse_candidate){.schedule = schedule};
  schedule->others_excluded = c->topology->others_excluded;
  status = check(schedule, c->topology, name, err);
  if (status == COPSE_OVERFLOW && c->n > 0) {
    copse_schedule_free(schedule);
    return COPSE_OK;
  }
  c->n++; /* released with the list */
  COPSE_TRY(status);
  snprintf(it->name, sizeof it->name, "%s", name);
  COPSE_TRY(copse_schedule_expand(schedule, err));
  COPSE_TRY(
      copse_predict_schedule(c->topology, schedule, &c->options, &c->predictions[c->n - 1], err));
out:
  return status;
}

/* The best schedules of few trees: as fast as the optimum with luck, and shallow. */
static copse_status add_fewer(struct copse_candidates *c, const struct copse_solve_options *options,
                              struct copse_err *err) {
  struct copse_solve_options fewer = *options;
  int64_t exact = c->list[0].schedule->k;
  fewer.tolerance = COPSE_Q_ZERO;
  for (fewer.k = 1; fewer.k <= 8 && fewer.k < exact; fewer.k *= 2) {
    struct copse_schedule *schedule;
    struct copse_solve_seconds ignored;
    char name[24];
    snprintf(name, sizeof name, "k=%" PRId64, fewer.k);
    COPSE_DO(copse_solve_schedule(c->topology, &fewer, &schedule, &ignored, err));
    COPSE_DO(add(c, name, schedule, err));
  }
  return COPSE_OK;
}

static copse_status add_equal_shares(struct copse_candidates *c,
                                     const struct copse_solve_options *options,
                                     struct copse_err *err) {
  struct copse_solve_options equal = *options;
  struct copse_solve_seconds ignored;
  struct copse_schedule *schedule;
  equal.equal_shares = true;
  COPSE_DO(copse_solve_schedule(c->topology, &equal, &schedule, &ignored, err));
  if (copse_q_eq(schedule->time_per_GB, c->list[0].schedule->time_per_GB))
    copse_schedule_free(schedule);
  else
    COPSE_DO(add(c, "equal shares", schedule, err));
  return COPSE_OK;
}

static copse_status add_baselines(struct copse_candidates *c,
                                  const struct copse_solve_options *options,
                                  struct copse_err *err) {
  struct copse_baseline_shared shared = {0};
  const struct copse_baseline_options like = {.collective = options->collective,
                                              .root = options->root,
                                              .like = c->list[0].schedule,
                                              .shared = &shared};
  copse_status status = COPSE_OK;
  for (int kind = 0; kind < COPSE_N_BASELINES; kind++) {
    struct copse_err why = COPSE_ERR_INIT;
    struct copse_schedule *schedule;
    if (!copse_baseline_exists((enum copse_baseline)kind, options->collective)) continue;
    status =
        copse_baseline_make(c->topology, (enum copse_baseline)kind, &like, &schedule, NULL, &why);
    if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW) continue;
    if (status != COPSE_OK) COPSE_TRY(copse_fail(err, status, "%s", why.text));
    COPSE_TRY(add(c, copse_baseline_name((enum copse_baseline)kind), schedule, err));
  }
  status = COPSE_OK;
out:
  copse_baseline_shared_free(&shared);
  return status;
}

copse_status copse_candidates_make(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   const struct copse_predict_options *predict,
                                   struct copse_candidates *out,
                                   struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_schedule *schedule;
  char name[24] = "optimal";
  copse_status status;
  *out = (struct copse_candidates){.topology = topology,
                                   .options = predict ? *predict : copse_predict_defaults};
  COPSE_TRY(copse_predict_routes(topology, &out->routes, &out->options, err));
  COPSE_TRY(copse_solve_schedule(topology, options, &schedule, seconds, err));
  if (options->k > 0 || options->tolerance.num > 0)
    snprintf(name, sizeof name, "k=%" PRId64, schedule->k);
  COPSE_TRY(add(out, name, schedule, err));
  if (options->collective == COPSE_ALLTOALL || topology->n_ranks == 1) goto out;
  COPSE_TRY(add_fewer(out, options, err));
  if (options->collective == COPSE_ALLREDUCE && !options->equal_shares)
    COPSE_TRY(add_equal_shares(out, options, err));
  COPSE_TRY(add_baselines(out, options, err));
out:
  return status;
}

void copse_candidates_free(struct copse_candidates *candidates) {
  for (int i = 0; i < candidates->n; i++) copse_schedule_free(candidates->list[i].schedule);
  copse_predictions_free(candidates->predictions, candidates->n);
  copse_routes_free(&candidates->routes);
  candidates->n = 0;
}

copse_status copse_candidates_time(const struct copse_candidates *candidates, const double *bytes,
                                   int n_sizes, bool quick, double (*us)[COPSE_MAX_CANDIDATES],
                                   struct copse_err *err) {
  double *all = NULL; /* [candidates][n_sizes] */
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)candidates->n * (size_t)n_sizes, sizeof *all, &all, err));
  COPSE_TRY(copse_predictions_time(candidates->topology, candidates->predictions, candidates->n,
                                   bytes, n_sizes, quick, all, err));
  for (int i = 0; i < candidates->n * n_sizes; i++) us[i % n_sizes][i / n_sizes] = all[i];
out:
  free(all);
  return status;
}

static int hops(const struct copse_candidates *candidates, int i) {
  const struct copse_schedule *s = candidates->list[i].schedule;
  return s ? copse_schedule_height(s) : 0;
}

int copse_candidates_best(const struct copse_candidates *candidates, const double *us) {
  double least = us[0];
  int best = -1;
  for (int i = 1; i < candidates->n; i++)
    if (us[i] < least) least = us[i];
  for (int i = 0; i < candidates->n; i++) {
    int more = best >= 0 ? hops(candidates, i) - hops(candidates, best) : -1;
    if (us[i] > least * (1 + MODEL_ERROR) || more > 0) continue;
    if (more < 0 || us[i] * (1 + SAME_TIME) < us[best]) best = i;
  }
  return best;
}

int copse_candidates_lasting(const struct copse_candidates *candidates,
                             double (*us)[COPSE_MAX_CANDIDATES], int n_sizes, int *n_close) {
  int best = 0;
  *n_close = 0;
  for (int i = 0; i < candidates->n; i++) {
    int n = 0;
    for (; n < n_sizes; n++) {
      int at = copse_candidates_best(candidates, us[n]);
      if (us[n][i] > us[n][at] * (1 + CLOSE_TIME) || hops(candidates, i) > hops(candidates, at))
        break;
    }
    if (n <= *n_close) continue;
    best = i;
    *n_close = n;
  }
  return best;
}

copse_status copse_candidates_ranges(const struct copse_candidates *candidates, uint64_t smallest,
                                     uint64_t largest,
                                     struct copse_candidate_range ranges[COPSE_MAX_RANGES], int *n,
                                     struct copse_err *err) {
  double us[64][COPSE_MAX_CANDIDATES], bytes[64] = {0}; /* there are no more powers of two */
  int n_sizes = 0, n_close;
  *n = 0;
  for (uint64_t size = smallest; size <= largest && n_sizes < 64; size *= 2)
    bytes[n_sizes++] = (double)size;
  COPSE_DO(copse_candidates_time(candidates, bytes, n_sizes, true, us, err));
  for (int i = 0; i < n_sizes && *n < COPSE_MAX_RANGES; i += n_close) {
    int best = copse_candidates_lasting(candidates, us + i, n_sizes - i, &n_close);
    uint64_t size = (uint64_t)bytes[i];
    if (*n > 0) ranges[*n - 1].max_bytes = size - 1;
    ranges[*n] = (struct copse_candidate_range){*n == 0 ? 0 : size, INT64_MAX, best};
    ++*n;
  }
  return COPSE_OK;
}

/* ---- what nothing beats --------------------------------------------------------------------- */

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

copse_status copse_bounds_predict(const struct copse_topology *topology,
                                  const struct copse_bounds_question *question, const double *bytes,
                                  int n, double *us, struct copse_err *err) {
  struct copse_schedule *lengths = NULL;
  struct copse_bounds *bounds = NULL;
  struct copse_solve_seconds ignored;
  copse_status status;
  for (int i = 0; i < n; i++) us[i] = 0;
  if (!question->schedule && question->collective == COPSE_ALLTOALL) {
    struct copse_solve_options options = {.collective = COPSE_ALLTOALL,
                                          .root = -1,
                                          .bound_only = true,
                                          .tolerance = {1, LENGTHS_WITHIN},
                                          .label = topology->name};
    COPSE_TRY(copse_solve_schedule(topology, &options, &lengths, &ignored, err));
  }
  COPSE_TRY(make_bounds(topology, question, question->schedule ? question->schedule : lengths,
                        &bounds, err));
  for (int i = 0; i < n && bounds; i++) {
    struct copse_arena arena = {0};
    struct copse_bound_at at;
    status = copse_bounds_at(bounds, (int64_t)bytes[i], &arena, &at, NULL);
    if (status == COPSE_OK) us[i] = copse_q_to_double(at.us);
    copse_arena_free(&arena);
    if (status == COPSE_NOMEM) {
      status = copse_fail_nomem(err);
      goto out;
    }
  }
  status = COPSE_OK;
out:
  copse_bounds_free(bounds);
  copse_schedule_free(lengths);
  return status;
}

copse_status copse_bound_state(const struct copse_topology *topology,
                               struct copse_schedule *schedule, double bytes, double alpha_us,
                               struct copse_err *err) {
  const struct copse_bounds_question question = {schedule->collective, schedule->root, schedule,
                                                 alpha_us};
  struct copse_bound_at *at = copse_arena_alloc(&schedule->arena, 1, sizeof *at);
  struct copse_bounds *bounds;
  if (!at) return copse_fail_nomem(err);
  COPSE_DO(make_bounds(topology, &question, schedule, &bounds, err));
  copse_status status =
      bounds ? copse_bounds_at(bounds, (int64_t)bytes, &schedule->arena, at, NULL) : COPSE_OVERFLOW;
  copse_bounds_free(bounds);
  schedule->bound_at = status == COPSE_OK && at->us.num > 0 ? at : NULL;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

const char *copse_gap_text(double us, double bound_us, char buffer[COPSE_GAP_TEXT]) {
  double percent = bound_us > 0 ? 100 * (us / bound_us - 1) : 0;
  if (bound_us <= 0) return "-";
  snprintf(buffer, COPSE_GAP_TEXT, "%.*f %%", percent < 100 ? 1 : 0, percent < 0 ? 0 : percent);
  return buffer;
}
