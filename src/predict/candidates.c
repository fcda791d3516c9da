/*
 * Several schedules of one collective, timed by the simulator, and which is best for which message
 * sizes: as few ranges as there can be, each with a schedule close to the fastest.
 */
#include "predict/candidates.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "predict/policy.h"

/* Of few trees those of powers of two. */
static bool wants(void *context, const char *name, int n_trees) {
  const struct copse_candidates *c = context;
  (void)name;
  return c->list[0].schedule->collective != COPSE_ALLTOALL && n_trees <= 8 &&
         (n_trees & (n_trees - 1)) == 0;
}

static copse_status take(void *context, struct copse_schedule *schedule, const char *name,
                         struct copse_err *err) {
  struct copse_candidates *c = context;
  struct copse_candidate *it = &c->list[c->n];
  if (strcmp(name, "equal shares") == 0 &&
      copse_q_eq(schedule->time_per_GB, c->list[0].schedule->time_per_GB)) {
    copse_schedule_free(schedule);
    return COPSE_OK;
  }
  *it = (struct copse_candidate){.schedule = schedule}; /* released with the list */
  snprintf(it->name, sizeof it->name, "%s", name);
  return copse_predict_schedule(c->topology, schedule, &c->options, &c->predictions[c->n++], err);
}

copse_status copse_candidates_make(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   const struct copse_predict_options *predict,
                                   struct copse_candidates *out,
                                   struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_proposer proposer = {topology, options, NULL, out, wants, take};
  *out = (struct copse_candidates){.topology = topology,
                                   .options = predict ? *predict : copse_predict_defaults};
  COPSE_DO(copse_predict_routes(topology, &out->routes, &out->options, err));
  proposer.routes = out->options.routes;
  return copse_propose(&proposer, seconds, err);
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
  COPSE_AT_END(copse_free_at) double *all = NULL; /* [candidates][n_sizes] */
  COPSE_DO(copse_calloc((size_t)candidates->n * (size_t)n_sizes, sizeof *all, &all, err));
  COPSE_DO(copse_predictions_time(candidates->topology, candidates->predictions, candidates->n,
                                  bytes, n_sizes, quick, all, err));
  for (int i = 0; i < candidates->n * n_sizes; i++) us[i % n_sizes][i / n_sizes] = all[i];
  return COPSE_OK;
}

static int hops(const struct copse_candidates *candidates, int i) {
  const struct copse_schedule *s = candidates->list[i].schedule;
  return s ? copse_proposal_hops(s) : 0;
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
