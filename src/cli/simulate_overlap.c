#include "cli/simulate_overlap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "predict/overlap.h"

#define MAX_DEGREES 64

const char copse_cli_overlap_help[] =
    "      --overlap SPEC     for an alltoall schedule: how many parts to cut a layer's tokens\n"
    "                         into, so that the all-to-all of one part runs while experts\n"
    "                         compute another. SPEC is a list of key=value, with commas:\n"
    "           tokens=N          that a rank sends (a token for k experts counts k times)\n"
    "           token-bytes=B     of one token (default 8192)\n"
    "           compute=A:B       an expert's rank takes A us + B us per token; or a file,\n"
    "           compute=FILE      {\"format\": \"copse-compute/1\", \"points\": [{\"tokens\": "
    "512,\n"
    "                             \"us\": 80.5}, ...]}, with straight lines between points\n"
    "           degrees=1:2:4     numbers of parts to try (default 1:2:4:8:16)\n"
    "           network=one       one all-to-all at a time, dispatches first (default);\n"
    "           network=shared    a dispatch and a combine together, each at half speed\n";

struct spec {
  int64_t tokens, token_bytes;
  const char *compute;
  int degrees[MAX_DEGREES], n_degrees;
  bool degrees_given;
  enum copse_overlap_network network;
};

struct job {
  struct spec spec;
  struct copse_overlap_problem problem;
  struct copse_sim_dag dispatch, combine;
  struct copse_compute_point *points;
  struct copse_overlap_row rows[MAX_DEGREES];
  int best;
};

/* ---- the specification ---------------------------------------------------------------------- */

/* "A:B", two decimals; false for anything else, such as a file's name. */
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

static bool parse_degrees(char *text, struct spec *s) {
  char *rest = NULL;
  s->n_degrees = 0;
  s->degrees_given = true;
  for (char *d = strtok_r(text, ":", &rest); d; d = strtok_r(NULL, ":", &rest)) {
    int64_t v;
    if (s->n_degrees == MAX_DEGREES || !copse_cli_parse_int(d, 1, COPSE_OVERLAP_MAX_DEGREE, &v))
      return false;
    s->degrees[s->n_degrees++] = (int)v;
  }
  return s->n_degrees > 0;
}

/* One key=value. What is wrong with it, or NULL. */
static const char *parse_pair(char *pair, struct spec *s) {
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
    s->network = strcmp(value, "shared") == 0 ? COPSE_OVERLAP_SHARED : COPSE_OVERLAP_ONE;
    return s->network == COPSE_OVERLAP_SHARED || strcmp(value, "one") == 0
               ? NULL
               : "--overlap: network must be one or shared";
  }
  return "--overlap knows tokens, token-bytes, compute, degrees and network";
}

static const char *parse_spec(char *text, struct spec *s) {
  char *rest = NULL;
  *s = (struct spec){.token_bytes = 8192, .degrees = {1, 2, 4, 8, 16}, .n_degrees = 5};
  for (char *pair = strtok_r(text, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
    const char *wrong = parse_pair(pair, s);
    if (wrong) return wrong;
  }
  if (s->tokens == 0) return "--overlap: say how many tokens a rank sends, tokens=N";
  if (!s->compute) return "--overlap: say how long experts compute, compute=ALPHA:BETA or a file";
  if (!s->degrees_given) /* of our own choice leave out what can't be */
    while (s->n_degrees > 1 && s->degrees[s->n_degrees - 1] > s->tokens) s->n_degrees--;
  for (int i = 0; i < s->n_degrees; i++)
    if (s->degrees[i] > s->tokens) return "--overlap: a degree is larger than the tokens";
  return NULL;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The total of degree 1, 0 where it isn't among the degrees. */
static double total_undivided(const struct job *job) {
  for (int i = 0; i < job->problem.n_degrees; i++)
    if (job->rows[i].degree == 1) return job->rows[i].total_us;
  return 0;
}

static void print_table(const struct job *job, const struct copse_topology *t) {
  const struct spec *s = &job->spec;
  double alone = total_undivided(job);
  printf("# copse simulate --overlap: %d ranks, topology %s; a model, not a measurement\n",
         t->n_ranks, t->name);
  printf("# %lld tokens of %lld bytes from each rank, %.10g at the busiest expert's; network: %s\n",
         (long long)s->tokens, (long long)s->token_bytes, job->problem.tokens,
         s->network == COPSE_OVERLAP_ONE ? "one all-to-all at a time" : "shared");
  printf("#\n# %6s  %12s  %12s  %12s  %12s  %8s\n", "degree", "dispatch", "compute", "combine",
         "total", "gain");
  printf("# %6s  %12s  %12s  %12s  %12s  %8s\n", "", "(us)", "(us)", "(us)", "(us)", "");
  for (int i = 0; i < job->problem.n_degrees; i++) {
    const struct copse_overlap_row *r = &job->rows[i];
    printf("  %6d  %12.2f  %12.2f  %12.2f  %12.2f  ", r->degree, r->degree * r->dispatch_us,
           r->degree * r->compute_us, r->degree * r->combine_us, r->total_us);
    if (alone > 0 && r->total_us > 0)
      printf("%8.3f%s\n", alone / r->total_us, i == job->best ? "  best" : "");
    else
      printf("%8s%s\n", "-", i == job->best ? "  best" : "");
  }
}

static copse_status print_json(const struct job *job, const struct copse_topology *t,
                               struct copse_err *err) {
  struct copse_text text = {0};
  double alone = total_undivided(job);
  copse_text_add(&text, "{\"topology\": ");
  copse_text_add_json_string(&text, t->name);
  copse_text_add(&text,
                 ", \"nranks\": %d, \"tokens\": %lld, \"token_bytes\": %lld, \"network\": "
                 "\"%s\", \"best_degree\": %d, \"rows\": [",
                 t->n_ranks, (long long)job->spec.tokens, (long long)job->spec.token_bytes,
                 job->spec.network == COPSE_OVERLAP_ONE ? "one" : "shared",
                 job->rows[job->best].degree);
  for (int i = 0; i < job->problem.n_degrees; i++) {
    const struct copse_overlap_row *r = &job->rows[i];
    const char *const keys[] = {"dispatch_us", "compute_us", "combine_us", "total_us", "gain"};
    const double values[] = {r->degree * r->dispatch_us, r->degree * r->compute_us,
                             r->degree * r->combine_us, r->total_us,
                             alone > 0 && r->total_us > 0 ? alone / r->total_us : 0};
    copse_text_add(&text, "%s\n {\"degree\": %d", i > 0 ? "," : "", r->degree);
    for (int k = 0; k < 5; k++) {
      copse_text_add(&text, ", \"%s\": ", keys[k]);
      if (k == 4 && values[k] == 0)
        copse_text_add(&text, "null");
      else
        copse_text_add_json_number(&text, values[k]);
    }
    copse_text_add(&text, "}");
  }
  copse_text_add(&text, "\n]}\n");
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fwrite(text.data, 1, text.size, stdout);
  copse_text_free(&text);
  return status;
}

/* ---- all together ---------------------------------------------------------------------------- */

static copse_status load_compute(struct job *job, struct copse_err *err) {
  char *data = NULL;
  size_t size;
  copse_status status = COPSE_OK;
  if (parse_affine(job->spec.compute, &job->problem.compute)) return COPSE_OK;
  COPSE_TRY(copse_file_read(job->spec.compute, &data, &size, err));
  status = copse_compute_parse(copse_file_label(job->spec.compute), data, size,
                               &job->problem.compute, &job->points, err);
out:
  free(data);
  return status;
}

static copse_status choose(struct job *job, struct copse_schedule *schedule,
                           const struct copse_topology *topology, struct copse_err *err) {
  double share;
  copse_status status;
  if (schedule->collective != COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "--overlap is for the schedule of an alltoall");
  COPSE_TRY(load_compute(job, err));
  COPSE_TRY(copse_schedule_expand(schedule, err));
  COPSE_TRY(copse_sim_dag_of_schedule(schedule, topology, &job->dispatch, err));
  if (schedule->demand)
    COPSE_TRY(copse_overlap_add_combine(schedule, topology, &job->combine, err));
  COPSE_TRY(copse_overlap_busiest_share(schedule, &share, err));
  job->problem.topology = topology;
  job->problem.dispatch = &job->dispatch;
  job->problem.combine = schedule->demand ? &job->combine : NULL;
  job->problem.bytes = (double)job->spec.tokens * (double)job->spec.token_bytes;
  job->problem.tokens = (double)job->spec.tokens * share;
  job->problem.network = job->spec.network;
  job->problem.degrees = job->spec.degrees;
  job->problem.n_degrees = job->spec.n_degrees;
  status = copse_overlap_choose(&job->problem, job->rows, &job->best, err);
out:
  return status;
}

int copse_cli_overlap(const char *spec, struct copse_schedule *schedule,
                      const struct copse_topology *topology, const struct copse_sim_options *sim,
                      bool json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct job job = {.problem = {.sim = sim}};
  char *text = strdup(spec);
  if (!text) {
    copse_fail_nomem(&err);
    return copse_cli_fail(&err);
  }
  const char *wrong = parse_spec(text, &job.spec);
  if (wrong) {
    free(text);
    return copse_cli_usage("simulate", "%s", wrong);
  }
  copse_status status = choose(&job, schedule, topology, &err);
  if (status == COPSE_OK && json) status = print_json(&job, topology, &err);
  if (status == COPSE_OK && !json) print_table(&job, topology);
  copse_sim_dag_free(&job.dispatch);
  copse_sim_dag_free(&job.combine);
  free(job.points);
  free(text);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}
