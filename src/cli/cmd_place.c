/* copse place: which expert on which GPU, for a trace of how tokens were routed; --generate makes
 * such traces. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "schedule/placement/place.h"

struct options {
  const char *trace, *output;
  struct copse_cli_topology topology;
  struct copse_place_options place;
  struct copse_trace_spec spec;
  int experts, ranks;
  bool generate, json;
  const char *for_generate, *for_placing; /* the last such option given; NULL: none */
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
    printf("gap at most %.2f %%\n", 100 * gap(r));
}

static void print_json(const struct copse_place_report *r, const struct copse_topology *t) {
  static const char *const keys[] = {"default_time_us", "time_us", "bound_us", "gain", "gap"};
  const double values[] = {r->default_us, r->time_us, r->bound_us, gain(r), gap(r)};
  const struct copse_placement *p = &r->placement;
  printf(
      "{\"topology\": %s, \"nranks\": %d, \"experts\": %d, \"capacity\": %d, \"steps\": %d, "
      "\"tokens\": %lld, \"cuts\": %d",
      copse_cli_quoted(t->name), r->n_ranks, r->n_experts, r->capacity, r->n_steps,
      (long long)r->tokens, r->n_cuts);
  for (int i = 0; i < 5; i++) printf(", \"%s\": %s", keys[i], COPSE_CLI_NUMBER(values[i]));
  printf(", \"optimal\": %s, \"proof\": \"%s\", \"rank_of\": [", COPSE_CLI_BOOL(is_exact(r)),
         copse_place_proof_name(p->proof));
  for (int e = 0; e < r->n_experts; e++) printf("%s%d", e > 0 ? ", " : "", p->rank_of[e]);
  printf("], \"evaluations\": %lld, \"rounds\": %d, \"nodes\": %lld}\n", (long long)p->evaluations,
         p->rounds, (long long)p->nodes);
}

/* ---- the two jobs ---------------------------------------------------------------------------- */

static copse_status place(const struct options *o, struct copse_cli_work *w,
                          struct copse_trace *trace, struct copse_place_report *report) {
  struct copse_place_options options = o->place;
  options.progress = &w->progress;
  COPSE_DO(copse_file_read(o->trace, &w->data, &w->size, &w->err));
  COPSE_DO(copse_trace_parse(copse_file_label(o->trace), w->data, w->size, w->topology->n_ranks,
                             o->experts, trace, &w->err));
  COPSE_DO(copse_place_experts(w->topology, trace, &options, report, &w->err));
  copse_cli_progress_end();
  if (o->output) {
    COPSE_DO(copse_place_report_to_json(report, w->topology, &w->made, &w->made_size, &w->err));
    COPSE_DO(copse_cli_write(o->output, w->made, w->made_size, &w->err));
  }
  if (o->json || !copse_cli_is_stdout(o->output))
    (o->json ? print_json : print_report)(report, w->topology);
  return COPSE_OK;
}

static copse_status generate(const struct options *o, struct copse_cli_work *w,
                             struct copse_trace *trace) {
  struct copse_trace_spec spec = o->spec;
  spec.n_experts = o->experts;
  spec.n_ranks = w->topology ? w->topology->n_ranks : o->ranks;
  COPSE_DO(copse_trace_generate(&spec, trace, &w->err));
  COPSE_DO(copse_trace_to_json(trace, &w->made, &w->made_size, &w->err));
  return copse_cli_write(o->output ? o->output : "-", w->made, w->made_size, &w->err);
}

static copse_status do_job(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct copse_place_report report = {0};
  struct copse_trace trace = {0};
  if (copse_cli_has_topology(&o->topology))
    COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  copse_status status = o->generate ? generate(o, w, &trace) : place(o, w, &trace, &report);
  copse_place_report_free(&report);
  copse_trace_free(&trace);
  return status;
}

/* ---- options --------------------------------------------------------------------------------- */

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

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  (void)left;
  if (o->spec.top_k == 0) o->spec.top_k = o->experts == 1 ? 1 : 2; /* a lone expert takes all */
  int exit = check_options(o, n_left);
  return exit != 0 ? exit : copse_cli_do(do_job, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
#define POSITIVE_TO(member) \
  TO(member), COPSE_OPTION_RANGE(1, INT32_MAX), .must = "an integer from 1 to 2147483647"
#define PERCENT_TO(member) \
  TO(member), COPSE_OPTION_RANGE(0, 100), .must = "an integer from 0 to 100"
#define GENERATE COPSE_OPTION_MARK(struct options, for_generate)
#define PLACE COPSE_OPTION_MARK(struct options, for_placing)

static const struct copse_option placing[] = {
    {"--demand", 'd', "FILE",
     "the trace: {\"format\": \"copse-trace/1\", \"token_bytes\": 8192,\n"
     "\"steps\": [{\"counts\": [[...]]}, ...]}; counts has one row per\n"
     "rank, in it how many tokens the rank has for each expert",
     TO(trace), .common = true, .takes = COPSE_KIND_TRACE},
    {"--experts", 'E', "E", "how many experts there are; the trace must agree",
     POSITIVE_TO(experts), .common = true},
    {"--topology", 't', "FILE", "the topology, in any input format", TO(topology.path),
     .common = true, .takes = COPSE_KIND_TOPOLOGY},
    {"--capacity", 0, "C", "at most so many experts on a GPU (default experts / GPUs, rounded up)",
     POSITIVE_TO(place.capacity), PLACE},
    {"--output", 'o', "FILE", "where to write the placement, JSON (- for standard output)",
     TO(output), .writes = true, .common = true},
    {"--json", 'j', NULL, "the report as one JSON object", TO(json), .common = true},
    {0}};

static const struct copse_option generating[] = {
    {"--generate", 'g', NULL, "make up a trace with Zipf-like popularity instead", TO(generate)},
    {"--ranks", 0, "N", "its ranks, where no topology says how many", POSITIVE_TO(ranks), GENERATE},
    {"--steps", 0, "S", "(default 16)", POSITIVE_TO(spec.n_steps), GENERATE},
    {"--tokens", 0, "N", "of each rank in each step (default 1024)", TO(spec.tokens),
     COPSE_OPTION_RANGE(1, 1 << 30), .must = "an integer from 1 to 1073741824", GENERATE},
    {"--top-k", 0, "K", "experts per token (default 2)", POSITIVE_TO(spec.top_k), GENERATE},
    {"--zipf", 0, "X", "exponent: 0 all alike, 1 (default) strongly skewed; up to 8", TO(spec.zipf),
     COPSE_OPTION_RANGE(0, 8), .must = "a number from 0 to 8", GENERATE},
    {"--locality", 0, "P",
     "percent of tokens that follow their rank's own order of popularity\n"
     "(default 0)",
     PERCENT_TO(spec.locality), GENERATE},
    {"--drift", 0, "P", "percent of experts whose popularity changes per step (default 0)",
     PERCENT_TO(spec.drift), GENERATE},
    {"--token-bytes", 0, "B", "(default 8192)", TO(spec.token_bytes),
     COPSE_OPTION_RANGE(1, 1ULL << 40), .must = "an integer from 1 to 2^40", GENERATE},
    {"--seed", 0, "N", "(default 1)", TO(spec.seed), COPSE_OPTION_RANGE(0, INT64_MAX),
     .must = "an integer of at least 0", GENERATE},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){
      .spec = {.n_steps = 16, .tokens = 1024, .zipf = 1, .token_bytes = 8192, .seed = 1}};
}

const struct copse_command copse_cmd_place = {
    .name = "place",
    .does = "put experts on GPUs for a routing trace",
    .usage =
        "usage: copse place --demand TRACE [--experts E] -t TOPO [options]\n"
        "       copse place --generate --experts E (--ranks N | -t TOPO) [-o TRACE]\n\n"
        "Finds which expert of a Mixture-of-Experts layer should be on which GPU, so that the\n"
        "all-to-alls of a routing trace (dispatch and combine of every step, added up) take\n"
        "least time by the bandwidth of the topology's cuts: around each GPU, each host, and\n"
        "what narrow links separate. That is a lower bound for any all-to-all, without latency.\n"
        "Beside the placement stands a bound that no placement can beat.\n\n",
    .example =
        "example: copse place --generate --experts 64 -t a100-x4 -o trace.json\n"
        "         copse place --demand trace.json --experts 64 -t a100-x4\n",
    .sections = {{.title = "Placing", .options = placing},
                 {.title = "Making up a trace", .options = generating},
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, topology),
                 COPSE_CLI_FAULT_SECTION(struct options, topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
