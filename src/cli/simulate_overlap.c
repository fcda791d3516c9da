/* copse simulate --overlap: how many parts a Mixture-of-Experts layer should be cut into. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "predict/overlap.h"
#include "predict/predict.h"

#define MAX_DEGREES 64

struct overlap {
  int64_t tokens, token_bytes;
  const char *compute;
  int degrees[MAX_DEGREES];
  bool degrees_given;
  struct copse_overlap_problem problem;
  struct copse_prediction predictions[2]; /* dispatch, combine */
  struct copse_compute_point *points;
  struct copse_overlap_row rows[MAX_DEGREES];
  int best;
};

/* Parses "A:B", two decimals; false for anything else, such as a file's name. */
static bool parse_affine(const char *text, struct copse_compute *out) {
  char alpha[64];
  const char *colon = strchr(text, ':');
  struct copse_q a, b;
  if (!colon || (size_t)(colon - text) >= sizeof alpha) return false;
  memcpy(alpha, text, (size_t)(colon - text));
  alpha[colon - text] = '\0';
  if (copse_q_parse_decimal(alpha, &a, NULL) != COPSE_OK || a.num < 0) return false;
  if (copse_q_parse_decimal(colon + 1, &b, NULL) != COPSE_OK || b.num < 0) return false;
  *out = (struct copse_compute){.alpha_us = copse_q_to_double(a),
                                .us_per_token = copse_q_to_double(b)};
  return true;
}

static bool parse_degrees(char *text, struct overlap *s) {
  char *rest = NULL;
  s->problem.n_degrees = 0;
  s->degrees_given = true;
  for (char *d = strtok_r(text, ":", &rest); d; d = strtok_r(NULL, ":", &rest)) {
    int64_t v;
    if (s->problem.n_degrees == MAX_DEGREES ||
        !copse_cli_parse_int(d, 1, COPSE_OVERLAP_MAX_DEGREE, &v))
      return false;
    s->degrees[s->problem.n_degrees++] = (int)v;
  }
  return s->problem.n_degrees > 0;
}

/* Parses one key=value. Returns the error, or NULL. */
static const char *parse_pair(char *pair, struct overlap *s) {
  char *value = strchr(pair, '=');
  if (!value) return "--overlap takes key=value pairs, such as tokens=4096,compute=20:0.05";
  *value++ = '\0';
  if (strcmp(pair, "tokens") == 0)
    return copse_cli_parse_int(value, 1, (int64_t)1 << 40, &s->tokens)
               ? NULL
               : "--overlap: tokens must be a positive integer";
  if (strcmp(pair, "token-bytes") == 0)
    return copse_cli_parse_int(value, 1, (int64_t)1 << 40, &s->token_bytes)
               ? NULL
               : "--overlap: token-bytes must be a positive integer";
  if (strcmp(pair, "degrees") == 0)
    return parse_degrees(value, s) ? NULL
                                   : "--overlap: degrees must be up to 64 integers from 1 to "
                                     "4096, such as 1:2:4:8";
  if (strcmp(pair, "compute") == 0) {
    s->compute = value;
    return *value ? NULL : "--overlap: compute must be ALPHA:BETA or a file";
  }
  if (strcmp(pair, "network") == 0) {
    s->problem.network = strcmp(value, "shared") == 0 ? COPSE_OVERLAP_SHARED : COPSE_OVERLAP_ONE;
    return s->problem.network == COPSE_OVERLAP_SHARED || strcmp(value, "one") == 0
               ? NULL
               : "--overlap: network must be one or shared";
  }
  return "--overlap takes tokens, token-bytes, compute, degrees and network";
}

static const char *parse_spec(char *text, struct overlap *s) {
  char *rest = NULL;
  for (char *pair = strtok_r(text, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
    const char *wrong = parse_pair(pair, s);
    if (wrong) return wrong;
  }
  if (s->tokens == 0) return "--overlap: say how many tokens a rank sends, tokens=N";
  if (!s->compute) return "--overlap: say how long experts compute, compute=ALPHA:BETA or a file";
  if (!s->degrees_given) /* of our own choice leave out what can't be */
    while (s->problem.n_degrees > 1 && s->degrees[s->problem.n_degrees - 1] > s->tokens)
      s->problem.n_degrees--;
  for (int i = 0; i < s->problem.n_degrees; i++)
    if (s->degrees[i] > s->tokens) return "--overlap: a degree is larger than the tokens";
  return NULL;
}

/* Returns the gain of a row over degree 1; NAN where that isn't among the degrees. */
static double gain(const struct overlap *it, const struct copse_overlap_row *row) {
  for (int i = 0; i < it->problem.n_degrees; i++)
    if (it->rows[i].degree == 1 && it->rows[i].total_us > 0 && row->total_us > 0)
      return it->rows[i].total_us / row->total_us;
  return NAN;
}

static void print_overlap(const struct overlap *it, const struct copse_topology *t) {
  printf("# copse simulate --overlap: %d ranks, topology %s; a model, not a measurement\n",
         t->n_ranks, t->name);
  printf("# %lld tokens of %lld bytes from each rank, %.10g at the busiest expert's; network: %s\n",
         (long long)it->tokens, (long long)it->token_bytes, it->problem.tokens,
         it->problem.network == COPSE_OVERLAP_ONE ? "one all-to-all at a time" : "shared");
  printf("#\n# %6s  %12s  %12s  %12s  %12s  %8s\n", "degree", "dispatch", "compute", "combine",
         "total", "gain");
  printf("# %6s  %12s  %12s  %12s  %12s  %8s\n", "", "(us)", "(us)", "(us)", "(us)", "");
  for (int i = 0; i < it->problem.n_degrees; i++) {
    const struct copse_overlap_row *r = &it->rows[i];
    printf("  %6d  %12.2f  %12.2f  %12.2f  %12.2f  ", r->degree, r->degree * r->dispatch_us,
           r->degree * r->compute_us, r->degree * r->combine_us, r->total_us);
    if (isfinite(gain(it, r)))
      printf("%8.3f%s\n", gain(it, r), i == it->best ? "  best" : "");
    else
      printf("%8s%s\n", "-", i == it->best ? "  best" : "");
  }
}

static void print_overlap_json(const struct overlap *it, const struct copse_topology *t) {
  printf(
      "{\"topology\": %s, \"nranks\": %d, \"tokens\": %lld, \"token_bytes\": %lld, \"network\": "
      "\"%s\", \"best_degree\": %d, \"rows\": [",
      copse_cli_quoted(t->name), t->n_ranks, (long long)it->tokens, (long long)it->token_bytes,
      it->problem.network == COPSE_OVERLAP_ONE ? "one" : "shared", it->rows[it->best].degree);
  for (int i = 0; i < it->problem.n_degrees; i++) {
    const struct copse_overlap_row *r = &it->rows[i];
    const char *const keys[] = {"dispatch_us", "compute_us", "combine_us", "total_us", "gain"};
    const double values[] = {r->degree * r->dispatch_us, r->degree * r->compute_us,
                             r->degree * r->combine_us, r->total_us, gain(it, r)};
    printf("%s\n {\"degree\": %d", i > 0 ? "," : "", r->degree);
    for (int k = 0; k < 5; k++) printf(", \"%s\": %s", keys[k], COPSE_CLI_NUMBER(values[k]));
    printf("}");
  }
  printf("\n]}\n");
}

static copse_status load_compute(struct overlap *it, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  if (parse_affine(it->compute, &it->problem.compute)) return COPSE_OK;
  COPSE_DO(copse_file_read(it->compute, &data, &size, err));
  return copse_compute_parse(copse_file_label(it->compute), data, size, &it->problem.compute,
                             &it->points, err);
}

static copse_status choose_degree(struct overlap *it, struct copse_schedule *schedule,
                                  const struct copse_topology *topology,
                                  const struct copse_predict_options *options,
                                  struct copse_err *err) {
  double share;
  int n;
  if (schedule->collective != COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "--overlap is for the schedule of an alltoall");
  COPSE_DO(load_compute(it, err));
  COPSE_DO(copse_schedule_expand(schedule, err));
  COPSE_DO(copse_overlap_predict(schedule, topology, options, it->predictions, &n, err));
  if (*it->predictions[0].instead)
    copse_note(&copse_cli_notes, "not predicted as a plan: %s", it->predictions[0].instead);
  COPSE_DO(copse_overlap_busiest_share(schedule, &share, err));
  it->problem.topology = topology;
  it->problem.dispatch = &it->predictions[0];
  it->problem.combine = n > 1 ? &it->predictions[1] : NULL;
  it->problem.bytes = (double)it->tokens * (double)it->token_bytes;
  it->problem.combine_bytes = it->problem.bytes * share;
  it->problem.tokens = (double)it->tokens * share;
  it->problem.degrees = it->degrees;
  return copse_overlap_choose(&it->problem, it->rows, &it->best, err);
}

copse_status copse_cli_simulate_overlap(const char *spec, struct copse_cli_work *w,
                                     const struct copse_predict_options *options, bool json) {
  struct overlap it = {
      .token_bytes = 8192, .degrees = {1, 2, 4, 8, 16}, .problem = {.n_degrees = 5}};
  char *text = copse_arena_strdup(&w->arena, spec);
  if (!text) return copse_fail_nomem(&w->err);
  const char *wrong = parse_spec(text, &it);
  if (wrong)
    return copse_fail(&w->err, COPSE_INVALID, "simulate: %s (see 'copse simulate --help')", wrong);
  copse_status status = choose_degree(&it, w->schedule, w->topology, options, &w->err);
  if (status == COPSE_OK) (json ? print_overlap_json : print_overlap)(&it, w->topology);
  copse_predictions_free(it.predictions, 2);
  free(it.points);
  return status;
}
