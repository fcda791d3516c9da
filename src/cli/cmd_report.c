/* copse report TOPO -c COLLECTIVE -o FILE.html: schedule, proof and predictions on one page. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/kinds.h"
#include "cli/options.h"
#include "predict/bounds.h"
#include "view/report.h"
#include "cli/solve_args.h"

struct options {
  struct copse_cli_solve what;
  const char *output, *nccl;
  struct copse_cli_costs costs;
  bool json;
};

static void print_done(const struct options *o, const struct copse_cli_work *w) {
  const char *collective = copse_collective_name(w->schedule->collective);
  if (o->json)
    printf("{\"collective\": \"%s\", \"topology\": %s, \"output\": %s, \"bytes\": %zu}\n",
           collective, copse_cli_quoted(w->topology->name), copse_cli_quoted(o->output),
           w->text.size);
  else
    printf("%s of %s: %s, %zu KiB\n", collective, w->topology->name, o->output,
           (w->text.size + 1023) / 1024);
}

static copse_status write_report(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  struct copse_predict_options predict = copse_predict_defaults;
  double sizes[COPSE_REPORT_SIZES];
  struct copse_solve_seconds seconds;
  COPSE_AT_END(copse_nccl_graphs_free) struct copse_nccl_graphs graphs = {0};
  COPSE_DO(copse_cli_costs(&o->what.topology, &o->costs, &predict, &w->err));
  COPSE_DO(copse_cli_load_nccl(o->nccl, &graphs, &predict, &w->err));
  COPSE_DO(copse_cli_begin_solve(&o->what, w));
  COPSE_DO(copse_arrangement_make(w->topology, &w->arrangement, &w->err));
  COPSE_DO(copse_cli_solve_checked(w->topology, &o->what.solve, o->what.has_tolerance, &w->schedule,
                                   &seconds, NULL, &w->err));
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  COPSE_DO(
      copse_predict_all(w->topology, w->schedule, &predict, w->columns, &w->n_columns, &w->err));
  struct copse_report report = {.topology = w->topology,
                                .schedule = w->schedule,
                                .arrangement = w->arrangement,
                                .predictions = w->columns,
                                .n_predictions = w->n_columns};
  for (int i = 0; i < COPSE_REPORT_SIZES; i++) sizes[i] = (double)copse_report_size(i);
  COPSE_DO(copse_predictions_time(w->topology, w->columns, w->n_columns, sizes, COPSE_REPORT_SIZES,
                                  false, report.us[0], &w->err));
  const struct copse_bounds_question question = {w->schedule->collective, w->schedule->root,
                                                 w->schedule, predict.sim.alpha_us};
  COPSE_DO(copse_bounds_predict(w->topology, &question, sizes, COPSE_REPORT_SIZES, report.bound_us,
                                &w->err));
  COPSE_DO(copse_report_page(&report, &w->text, &w->err));
  COPSE_DO(copse_cli_write(o->output, w->text.data, w->text.size, &w->err));
  copse_cli_progress_end();
  if (!copse_cli_is_stdout(o->output)) print_done(o, w);
  return COPSE_OK;
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  int bad = copse_cli_solve_check(&o->what, "report", n_left, left);
  if (bad) return bad;
  if (!o->output) return copse_cli_usage("report", "name the page with -o");
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("report", "of --json and -o - only one can have standard output");
  return copse_cli_do(write_report, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option output[] = {
    {"--output", 'o', "FILE", "the page (- for standard output)", TO(output), .common = true}, {0}};
static const struct copse_option own[] = {
    {"--nccl", 0, "GRAPH",
     "compare with NCCL's own rings (a file of NCCL_GRAPH_DUMP_FILE), not\n"
     "with the best rings",
     TO(nccl), .common = true, .takes = COPSE_KIND_GRAPHS},
    {"--json", 'j', NULL, "what was made as one JSON object on standard output", TO(json),
     .common = true},
    {0}};

static void begin(void *options) {
  *(struct options *)options =
      (struct options){.what = COPSE_CLI_SOLVE_INIT, .costs = COPSE_CLI_COSTS_INIT};
}

const struct copse_command copse_cmd_report = {
    .name = "report",
    .does = "write a page: topology, proof, trees, predictions",
    .usage =
        "usage: copse report TOPO -c COLLECTIVE -o FILE.html [options]\n\n"
        "Solves as 'copse solve' does and writes one page that needs nothing else: the topology,\n"
        "the load of its links and the cut that bounds them, the trees to step through, and\n"
        "predicted bandwidth and time over message sizes beside today's algorithms. Pictures are\n"
        "laid out by Graphviz (the program 'dot'), at most 2500 nodes.\n\n",
    .example = "example: copse report topologies/a100-x2.json -c allreduce -o a100-x2.html\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "The page", .options = output},
                 COPSE_CLI_SOLVE_SECTION(struct options, what),
                 {.title = "More options", .options = own},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, what.topology),
                 COPSE_CLI_CHANGE_SECTION(struct options, what.topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
