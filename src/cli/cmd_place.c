/* copse place: which expert on which GPU, for a trace of how tokens were routed. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/topology_args.h"
#include "schedule/placement/place.h"

static const char help[] =
    "usage: copse place --demand TRACE [--experts E] -t TOPO [options]\n"
    "       copse place --generate --experts E (--ranks N | -t TOPO) [options] [-o TRACE]\n\n"
    "Finds which expert of a Mixture-of-Experts layer should be on which GPU, so that the\n"
    "all-to-alls of a routing trace (dispatch and combine of every step, added up) take\n"
    "least time by the bandwidth of the topology's cuts: around each GPU, each host, and\n"
    "what narrow links separate. That is a lower bound for any all-to-all, without latency.\n"
    "Beside the placement stands a bound that no placement can beat.\n\n"
    "  -d, --demand FILE     the trace: {\"format\": \"copse-trace/1\", \"token_bytes\": 8192,\n"
    "                        \"steps\": [{\"counts\": [[...]]}, ...]}; counts has one row per\n"
    "                        rank, in it how many tokens the rank has for each expert\n"
    "  -E, --experts E       how many experts there are; the trace must agree\n"
    "  -t, --topology FILE   the topology, in any input format\n"
    "  -c, --capacity C      at most so many experts on a GPU (default experts / GPUs, rounded "
    "up)\n"
    "  -T, --time-limit S    stop after about S seconds (default 60; 0: none). A result that was\n"
    "                        cut short depends on the machine's speed\n"
    "  -o, --output FILE     where to write the placement, JSON (- for standard output)\n"
    "  -j, --json            the report as one JSON object\n"
    "      --progress        show progress even where standard error is no terminal\n\n"
    "  -g, --generate        make up a trace with Zipf-like popularity instead\n"
    "      --ranks N         its ranks, where no topology says how many\n"
    "      --steps S         (default 16)\n"
    "      --tokens N        of each rank in each step (default 1024)\n"
    "      --top-k K         experts per token (default 2)\n"
    "      --zipf X          exponent: 0 all alike, 1 (default) strongly skewed; up to 8\n"
    "      --locality P      percent of tokens that follow their rank's own order of popularity\n"
    "                        (default 0)\n"
    "      --drift P         percent of experts whose popularity changes per step (default 0)\n"
    "      --token-bytes B   (default 8192)\n"
    "      --seed N          (default 1)\n\n"
    "example: copse place --generate --experts 64 -t topologies/a100-x4.json -o trace.json\n"
    "         copse place --demand trace.json --experts 64 -t topologies/a100-x4.json\n";

struct options {
  const char *trace, *output;
  struct copse_cli_topology topology;
  struct copse_place_options place;
  struct copse_trace_spec spec;
  int experts, ranks;
  bool generate, json, progress;
  const char *for_generate, *for_placing; /* options given that only one of both has */
};

/* ---- reports ------------------------------------------------------------------------------- */

static double gain(const struct copse_place_report *r) {
  return r->time_us > 0 ? r->default_us / r->time_us : 1;
}
static double gap(const struct copse_place_report *r) {
  return r->bound_us > 0 ? r->time_us / r->bound_us - 1 : 0;
}
static bool is_exact(const struct copse_place_report *r) {
  return r->placement.proof != COPSE_PLACE_GAP;
}

static void print_report(const struct copse_place_report *r, const struct copse_topology *t) {
  const struct copse_placement *p = &r->placement;
  printf("%d experts on %d GPUs of %s, at most %d each; %d steps, %lld tokens\n", r->n_experts,
         r->n_ranks, t->name, r->capacity, r->n_steps, (long long)r->tokens);
  printf("%-22s %14s %14s\n", "all-to-all, by cuts", "trace (us)", "step (us)");
  printf("%-22s %14.2f %14.2f\n", "default placement", r->default_us, r->default_us / r->n_steps);
  printf("%-22s %14.2f %14.2f  %.3f times as fast\n", "placement found", r->time_us,
         r->time_us / r->n_steps, gain(r));
  printf("%-22s %14.2f %14.2f  ", "bound", r->bound_us, r->bound_us / r->n_steps);
  if (p->proof == COPSE_PLACE_CERTIFIED)
    printf("optimal, proved exactly\n");
  else if (p->proof == COPSE_PLACE_ILP)
    printf("optimal, by branch and cut (to 1e-6)\n");
  else
    printf("gap at most %.2f %%%s\n", 100 * gap(r), p->out_of_time ? "; out of time" : "");
}

static copse_status print_json(const struct copse_place_report *r, const struct copse_topology *t,
                               struct copse_err *err) {
  static const char *const keys[] = {"default_time_us", "time_us", "bound_us", "gain", "gap"};
  const double values[] = {r->default_us, r->time_us, r->bound_us, gain(r), gap(r)};
  const struct copse_placement *p = &r->placement;
  struct copse_text text = {0};
  copse_text_add(&text, "{\"topology\": ");
  copse_text_add_json_string(&text, t->name);
  copse_text_add(&text,
                 ", \"nranks\": %d, \"experts\": %d, \"capacity\": %d, \"steps\": %d, "
                 "\"tokens\": %lld, \"cuts\": %d",
                 r->n_ranks, r->n_experts, r->capacity, r->n_steps, (long long)r->tokens,
                 r->n_cuts);
  for (int i = 0; i < 5; i++) {
    copse_text_add(&text, ", \"%s\": ", keys[i]);
    copse_text_add_json_number(&text, values[i]);
  }
  copse_text_add(&text, ", \"optimal\": %s, \"proof\": \"%s\", \"out_of_time\": %s, \"rank_of\": [",
                 is_exact(r) ? "true" : "false", copse_place_proof_name(p->proof),
                 p->out_of_time ? "true" : "false");
  for (int e = 0; e < r->n_experts; e++)
    copse_text_add(&text, "%s%d", e > 0 ? ", " : "", p->rank_of[e]);
  copse_text_add(&text, "], \"evaluations\": %lld, \"rounds\": %d, \"nodes\": %lld}\n",
                 (long long)p->evaluations, p->rounds, (long long)p->nodes);
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fwrite(text.data, 1, text.size, stdout);
  copse_text_free(&text);
  return status;
}

/* ---- the two jobs ---------------------------------------------------------------------------- */

static copse_status place(const struct options *o, struct copse_topology *topology,
                          struct copse_place_report *report, struct copse_err *err) {
  struct copse_trace trace = {0};
  struct copse_cli_progress state;
  struct copse_progress progress = copse_cli_progress_start(&state, o->progress);
  struct copse_place_options options = o->place;
  char *text = NULL;
  size_t size;
  copse_status status;
  options.progress = &progress;
  COPSE_TRY(copse_trace_load(o->trace, topology->n_ranks, o->experts, &trace, err));
  status = copse_place_experts(topology, &trace, &options, report, err);
  copse_cli_progress_end(&state);
  if (status != COPSE_OK) goto out;
  if (o->output) {
    COPSE_TRY(copse_place_report_to_json(report, topology, &text, &size, err));
    COPSE_TRY(copse_file_write(o->output, text, size, err));
  }
  if (o->json)
    COPSE_TRY(print_json(report, topology, err));
  else if (!o->output || strcmp(o->output, "-") != 0)
    print_report(report, topology);
out:
  free(text);
  copse_trace_free(&trace);
  return status;
}

static copse_status generate(const struct options *o, const struct copse_topology *topology,
                             struct copse_err *err) {
  struct copse_trace_spec spec = o->spec;
  struct copse_trace trace = {0};
  char *text = NULL;
  size_t size;
  copse_status status;
  spec.n_experts = o->experts;
  spec.n_ranks = topology ? topology->n_ranks : o->ranks;
  COPSE_TRY(copse_trace_generate(&spec, &trace, err));
  COPSE_TRY(copse_trace_to_json(&trace, &text, &size, err));
  status = copse_file_write(o->output ? o->output : "-", text, size, err);
out:
  free(text);
  copse_trace_free(&trace);
  return status;
}

static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_place_report report = {0};
  copse_status status = COPSE_OK;
  if (copse_cli_has_topology(&o->topology))
    COPSE_TRY(copse_cli_load_topology(&o->topology, &topology, &err));
  if (o->generate)
    COPSE_TRY(generate(o, topology, &err));
  else
    COPSE_TRY(place(o, topology, &report, &err));
out:
  copse_place_report_free(&report);
  copse_topology_release(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

/* ---- options --------------------------------------------------------------------------------- */

enum long_option {
  RANKS = 256,
  STEPS,
  TOKENS,
  TOP_K,
  ZIPF,
  LOCALITY,
  DRIFT,
  TOKEN_BYTES,
  SEED,
  PROGRESS
};

/* An option that is a whole number, and where it goes. */
struct whole {
  int option;
  const char *name;
  int64_t min, max;
  int *to;
};

/* A decimal number in [0, max]; false for anything else. */
static bool parse_decimal(const char *text, double max, double *out) {
  struct copse_q q;
  if (copse_q_parse_decimal(text, &q, NULL) != COPSE_OK || q.num < 0) return false;
  *out = copse_q_to_double(q);
  return *out <= max;
}

/* 0, or the exit status after what was wrong has been said; -1: no such option. */
static int parse_whole(struct options *o, int c) {
  const struct whole all[] = {{'E', "--experts", 1, INT32_MAX, &o->experts},
                              {'c', "--capacity", 1, INT32_MAX, &o->place.capacity},
                              {RANKS, "--ranks", 1, INT32_MAX, &o->ranks},
                              {STEPS, "--steps", 1, INT32_MAX, &o->spec.n_steps},
                              {TOKENS, "--tokens", 1, 1 << 30, &o->spec.tokens},
                              {TOP_K, "--top-k", 1, INT32_MAX, &o->spec.top_k},
                              {LOCALITY, "--locality", 0, 100, &o->spec.locality},
                              {DRIFT, "--drift", 0, 100, &o->spec.drift}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int64_t v;
    if (all[i].option != c) continue;
    if (!copse_cli_parse_int(optarg, all[i].min, all[i].max, &v))
      return copse_cli_usage("place", "%s must be an integer from %lld to %lld", all[i].name,
                             (long long)all[i].min, (long long)all[i].max);
    *all[i].to = (int)v;
    return 0;
  }
  return -1;
}

/* Options that one of the two uses of this command has no use for. */
static void note_use(struct options *o, int c) {
  static const struct {
    int option;
    const char *name;
  } generating[] = {{RANKS, "--ranks"}, {STEPS, "--steps"}, {TOKENS, "--tokens"},
                    {TOP_K, "--top-k"}, {ZIPF, "--zipf"},   {LOCALITY, "--locality"},
                    {DRIFT, "--drift"}, {SEED, "--seed"},   {TOKEN_BYTES, "--token-bytes"}};
  for (size_t i = 0; i < sizeof generating / sizeof *generating; i++)
    if (generating[i].option == c) o->for_generate = generating[i].name;
  if (c == 'c') o->for_placing = "--capacity";
  if (c == 'T') o->for_placing = "--time-limit";
}

static int parse_one(struct options *o, int c, char **argv) {
  int64_t v;
  note_use(o, c);
  int whole = parse_whole(o, c);
  if (whole >= 0) return whole;
  switch (c) {
    case 'd': o->trace = optarg; return 0;
    case 't': o->topology.path = optarg; return 0;
    case 'o': o->output = optarg; return 0;
    case 'g': o->generate = true; return 0;
    case 'j': o->json = true; return 0;
    case PROGRESS: o->progress = true; return 0;
    case 'T':
      if (parse_decimal(optarg, 1e6, &o->place.seconds)) return 0;
      return copse_cli_usage("place", "--time-limit must be seconds, 0 to 1000000");
    case ZIPF:
      if (parse_decimal(optarg, 8, &o->spec.zipf)) return 0;
      return copse_cli_usage("place", "--zipf must be a number from 0 to 8");
    case TOKEN_BYTES:
      if (copse_cli_parse_int(optarg, 1, (int64_t)1 << 40, &o->spec.token_bytes)) return 0;
      return copse_cli_usage("place", "--token-bytes must be an integer from 1 to 2^40");
    case SEED:
      if (!copse_cli_parse_int(optarg, 0, INT64_MAX, &v))
        return copse_cli_usage("place", "--seed must be an integer of at least 0");
      o->spec.seed = (uint64_t)v;
      return 0;
    default: return copse_cli_topology_option(&o->topology, "place", argv, c);
  }
}

static int check_options(const struct options *o, int left) {
  if (left > 0) return copse_cli_usage("place", "name the trace with --demand");
  if (o->generate) {
    if (o->trace) return copse_cli_usage("place", "--generate makes a trace; leave out --demand");
    if (o->experts == 0) return copse_cli_usage("place", "say how many --experts");
    if (copse_cli_has_topology(&o->topology) == (o->ranks != 0))
      return copse_cli_usage("place", "say how many --ranks, or name a topology with -t");
    if (o->json) return copse_cli_usage("place", "--generate writes a trace; leave out --json");
    if (o->for_placing)
      return copse_cli_usage("place", "--generate places nothing; leave out %s", o->for_placing);
    if ((int64_t)o->spec.n_steps * o->spec.tokens > (int64_t)1 << 32)
      return copse_cli_usage("place", "--steps times --tokens is too much, at most 2^32");
    return 0;
  }
  if (!o->trace) return copse_cli_usage("place", "name the trace with --demand");
  if (!copse_cli_has_topology(&o->topology))
    return copse_cli_usage("place", "name the topology with -t or --synthetic");
  if (o->for_generate) return copse_cli_usage("place", "%s is for --generate", o->for_generate);
  if (o->json && o->output && strcmp(o->output, "-") == 0)
    return copse_cli_usage("place", "--json and -o - would both write to standard output");
  return 0;
}

int copse_cmd_place(int argc, char **argv) {
  static const struct option longs[] = {{"demand", required_argument, NULL, 'd'},
                                        {"experts", required_argument, NULL, 'E'},
                                        {"topology", required_argument, NULL, 't'},
                                        COPSE_CLI_TOPOLOGY_OPTIONS,
                                        {"capacity", required_argument, NULL, 'c'},
                                        {"time-limit", required_argument, NULL, 'T'},
                                        {"output", required_argument, NULL, 'o'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"progress", no_argument, NULL, PROGRESS},
                                        {"generate", no_argument, NULL, 'g'},
                                        {"ranks", required_argument, NULL, RANKS},
                                        {"steps", required_argument, NULL, STEPS},
                                        {"tokens", required_argument, NULL, TOKENS},
                                        {"top-k", required_argument, NULL, TOP_K},
                                        {"zipf", required_argument, NULL, ZIPF},
                                        {"locality", required_argument, NULL, LOCALITY},
                                        {"drift", required_argument, NULL, DRIFT},
                                        {"token-bytes", required_argument, NULL, TOKEN_BYTES},
                                        {"seed", required_argument, NULL, SEED},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {
      .place = {.seconds = 60},
      .spec = {
          .n_steps = 16, .tokens = 1024, .top_k = 0, .zipf = 1, .token_bytes = 8192, .seed = 1}};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":d:E:t:l:c:T:o:jgh", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      fputs(copse_cli_topology_help, stdout);
      return COPSE_EXIT_DONE;
    }
    int exit = parse_one(&o, c, argv);
    if (exit != 0) return exit;
  }
  if (o.spec.top_k == 0) o.spec.top_k = o.experts == 1 ? 1 : 2; /* a lone expert takes all */
  int exit = check_options(&o, argc - optind);
  return exit != 0 ? exit : run(&o);
}
