/*
 * copse solve --pareto: hops against bandwidth. Schedules of few and many trees per root and the
 * baselines are made and verified; of these the table has the ones that no other beats or equals in
 * both height and time, with the message sizes at which each is predicted to be the fastest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/solve_many.h"
#include "predict/baseline.h"
#include "predict/predict.h"
#include "verify/verify.h"

#define MOST_K 64      /* trees per root, without --k */
#define N_SIZES 11     /* 1 KiB to 1 GiB in powers of 4 */
#define SAME_TIME 1e-9 /* relative: equal but for rounding */

struct row {
  char name[24]; /* "optimal", "k=2", "ring" */
  int64_t k;     /* 0: of a baseline, which has no k */
  struct copse_q time_per_GB;
  int trees, height;
  bool best[N_SIZES];
  struct copse_prediction prediction;
};

struct job {
  const struct copse_cli_many *how;
  struct copse_solve_options options;
  struct copse_cli_work *work; /* its schedule: the exact one */
  struct copse_predict_options predicted;
  struct copse_routes routes;
  struct row *rows; /* by height, and so by falling time */
  size_t n_rows, rows_capacity;
  struct copse_err *err;
};

static void release(struct job *j) {
  for (size_t i = 0; i < j->n_rows; i++) copse_predictions_free(&j->rows[i].prediction, 1);
  free(j->rows);
  copse_routes_free(&j->routes);
}

static double bytes_of(int i) { return (double)((uint64_t)1024 << 2 * i); }

static double rate(struct copse_q time) { return 1 / copse_q_to_double(time); }

/* Over the bound, as a part of it. */
static double above(const struct job *j, const struct row *row) {
  return copse_q_to_double(row->time_per_GB) /
             copse_q_to_double(j->work->schedule->bound.time_per_GB) -
         1;
}

/* ---- the frontier -------------------------------------------------------------------------- */

/* Whether there is no reason to take b instead of a. */
static bool covers(const struct row *a, const struct row *b) {
  int time = copse_q_cmp(a->time_per_GB, b->time_per_GB);
  if (a->height > b->height || time > 0) return false;
  return a->height < b->height || time < 0 || a->trees <= b->trees;
}

/* Puts it in its place, and takes out what it covers. `schedule` is expanded. */
static copse_status add(struct job *j, struct row row, const struct copse_schedule *schedule) {
  size_t kept = 0, at = 0;
  for (size_t i = 0; i < j->n_rows; i++)
    if (covers(&j->rows[i], &row)) return COPSE_OK;
  COPSE_DO(COPSE_GROW(j->rows, j->rows_capacity, j->n_rows + 1, j->err));
  COPSE_DO(
      copse_predict_schedule(j->work->topology, schedule, &j->predicted, &row.prediction, j->err));
  for (size_t i = 0; i < j->n_rows; i++)
    if (covers(&row, &j->rows[i]))
      copse_predictions_free(&j->rows[i].prediction, 1);
    else
      j->rows[kept++] = j->rows[i];
  while (at < kept && j->rows[at].height < row.height) at++;
  memmove(j->rows + at + 1, j->rows + at, (kept - at) * sizeof *j->rows);
  j->rows[at] = row;
  j->n_rows = kept + 1;
  return COPSE_OK;
}

static copse_status consider(struct job *j, struct copse_schedule *schedule, const char *name) {
  struct row row = {.k = schedule->k,
                    .time_per_GB = schedule->time_per_GB,
                    .trees = schedule->n_trees,
                    .height = copse_schedule_height(schedule)};
  snprintf(row.name, sizeof row.name, "%s", name);
  COPSE_DO(copse_schedule_expand(schedule, j->err));
  return add(j, row, schedule);
}

/* Of k trees per root; 0: the exact one, which stays. */
static copse_status consider_k(struct job *j, int64_t k) {
  struct copse_solve_options options = j->options;
  struct copse_solve_seconds ignored;
  struct copse_schedule *schedule;
  char name[24] = "optimal";
  options.k = k;
  if (k > 0) snprintf(name, sizeof name, "k=%" PRId64, k);
  COPSE_DO(copse_cli_solve_checked(j->work->topology, &options, false, &schedule, &ignored, NULL,
                                   j->err));
  copse_status status = consider(j, schedule, name);
  if (k == 0)
    j->work->schedule = schedule;
  else
    copse_schedule_free(schedule);
  return status;
}

static copse_status consider_baseline(struct job *j, enum copse_baseline kind,
                                      struct copse_baseline_shared *shared) {
  const struct copse_baseline_options like = {.collective = j->options.collective,
                                              .root = j->options.root,
                                              .like = j->work->schedule,
                                              .shared = shared};
  struct copse_schedule *schedule;
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_baseline_make(j->work->topology, kind, &like, &schedule, NULL, &why);
  if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW) return COPSE_OK; /* there is none */
  if (status != COPSE_OK) return copse_fail(j->err, status, "%s", why.text);
  status = copse_verify_schedule(schedule, j->work->topology, "schedule", &report, &why);
  status = copse_cli_own(status, copse_baseline_name(kind), &why, j->err);
  if (status == COPSE_OK) status = consider(j, schedule, copse_baseline_name(kind));
  copse_schedule_free(schedule);
  return status;
}

static copse_status trace(struct job *j) {
  struct copse_baseline_shared shared = {0};
  int64_t most = j->options.k > 0 ? j->options.k : MOST_K;
  copse_status status = COPSE_OK;
  COPSE_DO(consider_k(j, 0));
  if (most >= j->work->schedule->k) most = j->work->schedule->k - 1;
  for (int64_t k = 1; k <= most; k++) {
    COPSE_DO(consider_k(j, k));
    copse_progress_report(&j->work->progress, "k", k, most);
  }
  for (int kind = 0; kind < COPSE_N_BASELINES && status == COPSE_OK; kind++)
    if (copse_baseline_exists((enum copse_baseline)kind, j->options.collective))
      status = consider_baseline(j, (enum copse_baseline)kind, &shared);
  copse_baseline_shared_free(&shared);
  return status;
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* At each size the fastest, of equals the one of fewest hops. */
static copse_status find_best(struct job *j) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int n = (int)j->n_rows;
  struct copse_prediction *predictions;
  double bytes[N_SIZES], *us;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, predictions, j->err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n * N_SIZES, us, j->err));
  for (int i = 0; i < n; i++) predictions[i] = j->rows[i].prediction; /* borrowed */
  for (int i = 0; i < N_SIZES; i++) bytes[i] = bytes_of(i);
  COPSE_DO(
      copse_predictions_time(j->work->topology, predictions, n, bytes, N_SIZES, true, us, j->err));
  for (int s = 0; s < N_SIZES; s++) {
    int best = 0;
    for (int i = 1; i < n; i++)
      if (us[i * N_SIZES + s] < us[best * N_SIZES + s] * (1 - SAME_TIME)) best = i;
    j->rows[best].best[s] = true;
  }
  return COPSE_OK;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* "1K-64K, 1G" */
static void print_sizes(const struct row *row) {
  static const char *const names[N_SIZES] = {"1K", "4K",  "16K", "64K",  "256K", "1M",
                                             "4M", "16M", "64M", "256M", "1G"};
  const char *comma = "  ";
  for (int i = 0; i < N_SIZES; i++) {
    int last = i;
    if (!row->best[i]) continue;
    while (last + 1 < N_SIZES && row->best[last + 1]) last++;
    printf("%s%s%s%s", comma, names[i], last > i ? "-" : "", last > i ? names[last] : "");
    comma = ", ";
    i = last;
  }
  printf("%s\n", comma[0] == ' ' ? "  -" : "");
}

static void print_rows(const struct job *j) {
  const struct copse_schedule *exact = j->work->schedule;
  struct copse_q bound = exact->bound.time_per_GB;
  printf("%s of %s: bound %s; the exact optimum is built with k = %" PRId64 "\n",
         copse_collective_name(j->options.collective), j->work->topology->name,
         COPSE_CLI_RATES(bound, exact->collective, exact->n_ranks), exact->k);
  printf("%6s  %-10s %8s %7s %12s %10s %10s %10s  %s\n", "hops", "schedule", "k", "trees", "s/GB",
         "algbw", "busbw", "above", "fastest at");
  for (size_t i = 0; i < j->n_rows; i++) {
    const struct row *row = &j->rows[i];
    char k[24] = "-";
    if (row->k > 0) snprintf(k, sizeof k, "%" PRId64, row->k);
    printf("%6d  %-10s %8s %7d %12s %10.6g %10.6g %8.3f %%", row->height, row->name, k, row->trees,
           COPSE_CLI_Q(row->time_per_GB), rate(row->time_per_GB),
           rate(row->time_per_GB) * copse_collective_bus_factor(exact->collective, exact->n_ranks),
           100 * above(j, row));
    print_sizes(row);
  }
}

static void print_rows_json(const struct job *j) {
  const struct copse_schedule *exact = j->work->schedule;
  printf(
      "{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n"
      " \"bound_time_per_GB\": \"%s\", \"exact_k\": %" PRId64 ", \"rows\": [",
      copse_cli_quoted(j->work->topology->name), copse_collective_name(j->options.collective),
      j->work->topology->n_ranks, j->work->topology->n_nodes, j->work->topology->n_links,
      COPSE_Q_STRING(exact->bound.time_per_GB), exact->k);
  for (size_t i = 0; i < j->n_rows; i++) {
    const struct row *row = &j->rows[i];
    const char *comma = "";
    printf("%s\n  {\"schedule\": \"%s\", \"k\": ", i > 0 ? "," : "", row->name);
    printf(row->k > 0 ? "%" PRId64 : "null", row->k);
    printf(
        ", \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"above_bound\": %s, \"trees\": %d, "
        "\"max_height\": %d, \"fastest_at\": [",
        COPSE_Q_STRING(row->time_per_GB), COPSE_CLI_NUMBER(rate(row->time_per_GB)),
        COPSE_CLI_NUMBER(above(j, row)), row->trees, row->height);
    for (int s = 0; s < N_SIZES; s++)
      if (row->best[s]) printf("%s%.0f", comma, bytes_of(s)), comma = ", ";
    printf("]}");
  }
  printf("\n ]}\n");
}

/* ---- the whole ----------------------------------------------------------------------------- */

static copse_status solve_pareto(void *options, struct copse_cli_work *w) {
  struct copse_cli_many *how = options;
  COPSE_AT_END(release)
  struct job j = {.how = how, .work = w, .predicted = copse_predict_defaults, .err = &w->err};
  COPSE_DO(copse_cli_begin_solve(how->args, w));
  j.options = how->args->solve;
  if (w->topology->n_ranks == 1)
    return copse_fail(&w->err, COPSE_INVALID, "%s has a single rank: nothing moves, and no trees",
                      j.options.label);
  COPSE_DO(copse_cli_costs(&how->args->topology, how->costs, &j.predicted, &w->err));
  COPSE_DO(copse_predict_routes(w->topology, &j.routes, &j.predicted, &w->err));
  COPSE_DO(trace(&j));
  COPSE_DO(find_best(&j));
  copse_cli_progress_end();
  (how->json ? print_rows_json : print_rows)(&j);
  return COPSE_OK;
}

int copse_cli_solve_pareto(struct copse_cli_many *how) { return copse_cli_do(solve_pareto, how); }
