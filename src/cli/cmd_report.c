/* copse report TOPO -c COLLECTIVE -o FILE.html: schedule, proof and predictions on one page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "predict/candidates.h"
#include "view/report.h"
#include "cli/solve_args.h"
#include "schedule/demand.h"

struct options {
  struct copse_cli_solve what;
  const char *output;
  struct copse_cli_costs costs;
  bool progress, json;
};

struct job {
  struct copse_topology *topology;
  struct copse_arrangement *arrangement;
  struct copse_schedule *schedule;
  int64_t *demand;
  struct copse_report report;
  struct copse_text page;
};

static copse_status predict(const struct options *o, struct copse_report *r,
                            struct copse_err *err) {
  struct copse_predict_options options = copse_predict_defaults;
  double sizes[COPSE_REPORT_SIZES];
  for (int i = 0; i < COPSE_REPORT_SIZES; i++) sizes[i] = (double)copse_report_size(i);
  COPSE_DO(copse_cli_costs(&o->what.topology, &o->costs, &options, err));
  COPSE_DO(copse_predict_all(r->topology, r->schedule, &options, r->predictions, &r->n_predictions,
                             err));
  COPSE_DO(copse_predictions_time(r->topology, r->predictions, r->n_predictions, sizes,
                                  COPSE_REPORT_SIZES, false, &r->us[0][0], err));
  const struct copse_bounds_question question = {r->schedule->collective, r->schedule->root,
                                                 r->schedule, options.sim.alpha_us};
  return copse_bounds_predict(r->topology, &question, sizes, COPSE_REPORT_SIZES, r->bound_us, err);
}

static copse_status make(struct options *o, struct job *job, struct copse_err *err) {
  struct copse_solve_seconds seconds;
  struct copse_solve_options *solve = &o->what.solve;
  COPSE_DO(copse_cli_load_topology(&o->what.topology, &job->topology, err));
  if (o->what.demand)
    COPSE_DO(copse_demand_load(o->what.demand, job->topology->n_ranks, &job->demand, err));
  solve->label = copse_cli_topology_label(&o->what.topology);
  solve->demand = job->demand;
  solve->notes = &copse_cli_notes;
  COPSE_DO(copse_arrangement_make(job->topology, &job->arrangement, err));
  COPSE_DO(copse_cli_solve_checked(job->topology, solve, o->what.has_tolerance, &job->schedule,
                                   &seconds, NULL, err));
  COPSE_DO(copse_schedule_expand(job->schedule, err));
  job->report.topology = job->topology;
  job->report.schedule = job->schedule;
  job->report.arrangement = job->arrangement;
  COPSE_DO(predict(o, &job->report, err));
  COPSE_DO(copse_report_page(&job->report, &job->page, err));
  return copse_file_write(o->output, job->page.data, job->page.size, err);
}

static copse_status print_done(const struct options *o, const struct job *job,
                               struct copse_err *err) {
  struct copse_text text = {0};
  const char *collective = copse_collective_name(job->schedule->collective);
  if (!o->json) {
    printf("%s of %s: %s, %zu KiB\n", collective, job->topology->name, o->output,
           (job->page.size + 1023) / 1024);
    return COPSE_OK;
  }
  copse_text_add(&text, "{\"collective\": \"%s\", \"topology\": ", collective);
  copse_text_add_json_string(&text, job->topology->name);
  copse_cli_add_string(&text, ", \"output\": ", o->output);
  copse_text_add(&text, ", \"bytes\": %zu}\n", job->page.size);
  return copse_cli_print(&text, err);
}

static int write_report(struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, o->progress);
  struct job job = {0};
  o->what.solve.progress = &progress;
  copse_status status = make(o, &job, &err);
  copse_cli_progress_end(&bar);
  if (status == COPSE_OK && strcmp(o->output, "-") != 0) status = print_done(o, &job, &err);
  copse_predictions_free(job.report.predictions, job.report.n_predictions);
  copse_text_free(&job.page);
  free(job.demand);
  copse_arrangement_free(job.arrangement);
  copse_schedule_free(job.schedule);
  copse_topology_free(job.topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(&o->what, &err);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  int bad = copse_cli_solve_check(&o->what, "report", n_left, left);
  if (bad) return bad;
  if (!o->output) return copse_cli_usage("report", "name the page with -o");
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("report", "of --json and -o - only one can have standard output");
  return write_report(o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option output[] = {
    {"--output", 'o', "FILE", "the page (- for standard output)", TO(output)}, {0}};
static const struct copse_option own[] = {
    {"--json", 'j', NULL, "what was made as one JSON object on standard output", TO(json)},
    COPSE_OPTION_PROGRESS(struct options),
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
    .example = "\nexample: copse report topologies/a100-x2.json -c allreduce -o a100-x2.html\n",
    .takes_topology = true,
    .sections = {{.column = 22, .options = output},
                 COPSE_CLI_SOLVE_SECTION(struct options, what),
                 {.column = 22, .options = own},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, what.topology),
                 COPSE_CLI_CHANGE_SECTION(struct options, what.topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
