/* copse report TOPO -c COLLECTIVE -o FILE.html: schedule, proof and predictions on one page. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "predict/predict.h"
#include "predict/propose.h"
#include "topology/words.h"
#include "view/report.h"
#include "cli/solve_args.h"

struct options {
  struct copse_cli_solve what;
  const char *output;
  struct copse_cli_nccl nccl;
  struct copse_cli_costs costs;
  bool json;
  struct copse_report_row *row; /* of many topologies: what the index will say; or NULL */
};

static void print_done(const struct options *o, const struct copse_cli_work *w) {
  const char *collective = copse_collective_name(w->schedule->collective);
  if (o->json) {
    printf("{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d,\n",
           copse_cli_quoted(w->topology->name), collective, w->topology->n_ranks);
    copse_cli_print_rates_json(w->schedule);
    copse_cli_print_cut_json(w->schedule);
    printf(",\n \"output\": %s, \"bytes\": %zu}\n", copse_cli_quoted(o->output), w->text.size);
  } else
    printf("%s of %s: %s, %zu KiB\n", collective, w->topology->name, o->output,
           (w->text.size + 1023) / 1024);
}

static copse_status write_report(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  struct copse_predict_options predict = copse_predict_defaults;
  double sizes[COPSE_REPORT_SIZES];
  struct copse_solve_seconds seconds;
  COPSE_AT_END(copse_cli_nccl_free) struct copse_cli_nccl_graphs graphs = {0};
  COPSE_DO(copse_cli_costs(&o->what.topology, &o->costs, &predict, &w->err));
  COPSE_DO(copse_cli_load_nccl(&o->nccl, &graphs, &predict, &w->err));
  COPSE_DO(copse_cli_begin_solve(&o->what, w));
  COPSE_DO(copse_arrangement_make(w->whole ? w->whole : w->topology, &w->arrangement, &w->err));
  COPSE_DO(copse_cli_solve_checked(w->topology, &o->what.solve, o->what.has_tolerance, &w->schedule,
                                   &seconds, NULL, &w->err));
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  COPSE_DO(
      copse_predict_all(w->topology, w->schedule, &predict, w->columns, &w->n_columns, &w->err));
  struct copse_report report = {.topology = w->topology,
                                .schedule = w->schedule,
                                .arrangement = w->arrangement,
                                .predictions = w->columns,
                                .made_by = copse_cli_asked.line,
                                .n_predictions = w->n_columns};
  for (int i = 0; i < COPSE_REPORT_SIZES; i++) sizes[i] = (double)copse_report_size(i);
  COPSE_DO(copse_predictions_time(w->topology, w->columns, w->n_columns, sizes, COPSE_REPORT_SIZES,
                                  false, report.us[0], &w->err));
  const struct copse_bounds_question question = {w->schedule->collective, w->schedule->root,
                                                 w->schedule, predict.sim.alpha_us};
  COPSE_DO(copse_bounds_predict(w->topology, &question, sizes, COPSE_REPORT_SIZES, report.bound_us,
                                &w->err));
  COPSE_DO(copse_bound_on_routes(w->topology, w->schedule, w->columns[0].runs_per_GB,
                                 &report.on_routes, &w->err));
  COPSE_DO(copse_report_page(&report, &w->text, &w->err));
  COPSE_DO(copse_cli_write(o->output, w->text.data, w->text.size, &w->err));
  copse_cli_progress_end();
  if (!copse_cli_is_stdout(o->output) && !o->row) print_done(o, w);
  return COPSE_OK;
}

/* ---- many topologies: a folder of pages and the index of them ------------------------------ */

/* Fills in what the index says of a page. Its texts are malloc'd; without memory they are left
 * out. */
static void fill_row(const struct options *o, const struct copse_cli_work *w) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  const struct copse_schedule *s = w->schedule;
  struct copse_report_row *row = o->row;
  bool reduces = s->collective != COPSE_ALLREDUCE && copse_collective_reduces(s->collective);
  row->n_ranks = s->n_ranks;
  if (s->time_per_GB.num > 0) {
    row->algbw = copse_schedule_algbw(s);
    row->busbw = row->algbw * copse_collective_bus_factor(s->collective, s->n_ranks);
    if (!copse_q_eq(s->time_per_GB, s->bound.time_per_GB))
      row->above = copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1;
  }
  if (s->bound.n_cut == 0) return;
  const char *words = copse_cut_words(w->topology, s->bound.cut, s->bound.n_cut, reduces, &arena);
  if (words) row->bottleneck = strdup(words);
}

static copse_status write_page(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  copse_status status = write_report(o, w);
  if (status == COPSE_OK)
    fill_row(o, w);
  else
    o->row->failure = strdup(w->err.text);
  return status;
}

struct index {
  const struct options *options;
  const struct copse_report_row *rows;
  int n;
};

static copse_status write_index(void *options, struct copse_cli_work *w) {
  const struct index *index = options;
  const char *collective = copse_collective_name(index->options->what.solve.collective);
  char title[80];
  int failed = 0;
  for (int i = 0; i < index->n; i++) failed += index->rows[i].failure || !index->rows[i].page;
  snprintf(title, sizeof title, "%s of %d topologies", collective, index->n);
  copse_report_index(title, index->rows, index->n, copse_cli_asked.line, &w->text);
  COPSE_DO(copse_text_status(&w->text, &w->err));
  COPSE_DO(copse_cli_write_in(index->options->output, "index.html", w->text.data, w->text.size,
                              &w->err));
  if (index->options->json)
    printf("{\"collective\": \"%s\", \"output\": %s, \"topologies\": %d, \"failed\": %d}\n",
           collective, copse_cli_quoted(index->options->output), index->n, failed);
  else
    printf("%s: %s/index.html, %d pages, %d failed\n", title, index->options->output,
           index->n - failed, failed);
  return COPSE_OK;
}

/* Names a page so that no other is called the same: of "dir/a100-x2.json" "a100-x2.html". */
static char *name_page(const char *path, const struct copse_report_row *rows, int n) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path,
             *dot = strrchr(base, '.');
  int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base), same = 0;
  char *name = malloc((size_t)length + 24);
  if (!name) return NULL;
  for (int tries = 0; tries <= n; tries++) {
    if (tries == 0)
      snprintf(name, (size_t)length + 24, "%.*s.html", length, base);
    else
      snprintf(name, (size_t)length + 24, "%.*s-%d.html", length, base, tries + 1);
    same = strcmp(name, "index.html") == 0;
    for (int i = 0; i < n; i++) same += rows[i].page && strcmp(rows[i].page, name) == 0;
    if (same == 0) return name;
  }
  return name;
}

static int one_of_many(const struct options *o, const char *path, struct copse_report_row *rows,
                       int n) {
  struct options one = *o;
  COPSE_AT_END(copse_free_at) char *output = NULL;
  char *page = name_page(path, rows, n);
  struct copse_report_row *row = &rows[n];
  *row = (struct copse_report_row){.name = path, .page = page};
  if (!page || asprintf(&output, "%s/%s", o->output, page) < 0) {
    struct copse_err err = COPSE_ERR_INIT;
    output = NULL;
    (void)copse_fail_nomem(&err);
    row->failure = strdup(err.text);
    return copse_cli_fail(&err);
  }
  one.what.topology.path = path;
  one.output = output;
  one.row = row;
  return copse_cli_do(write_page, &one);
}

static bool is_page(const char *path) {
  char head[4097] = "";
  FILE *file = fopen(path, "r");
  if (!file) return false;
  head[fread(head, 1, sizeof head - 1, file)] = '\0';
  fclose(file);
  return strstr(head, COPSE_PAGE_MARK) != NULL;
}

/* Removes pages of an earlier run, whose index goes as well: what a folder holds is of one run.
 * Other files stay, also HTML that copse didn't make. */
static copse_status remove_old(const char *folder, struct copse_err *err) {
  struct dirent **found = NULL;
  int n = scandir(folder, &found, NULL, alphasort);
  if (n < 0) return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be opened");
  for (int i = 0; i < n; i++) {
    const char *name = found[i]->d_name, *dot = strrchr(name, '.');
    COPSE_AT_END(copse_free_at) char *path = NULL;
    if (dot && strcmp(dot, ".html") == 0 && asprintf(&path, "%s/%s", folder, name) >= 0 &&
        is_page(path))
      (void)unlink(path);
    free(found[i]);
  }
  free(found);
  return COPSE_OK;
}

/* Reports every topology that can be reported; the exit status is the first other than 0. */
static int report_many(struct options *o, int n, char **paths) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_report_row *rows;
  int first = COPSE_EXIT_DONE;
  copse_status status = copse_cli_make_folder(o->output, &err);
  if (status == COPSE_OK) status = remove_old(o->output, &err);
  if (status == COPSE_OK) status = copse_calloc((size_t)n, sizeof *rows, &rows, &err);
  if (status != COPSE_OK) return copse_cli_fail(&err);
  copse_cli_asked.json = false; /* one object, at the end */
  for (int i = 0; i < n; i++) {
    int exit = one_of_many(o, paths[i], rows, i);
    if (first == COPSE_EXIT_DONE) first = exit;
  }
  struct index index = {o, rows, n};
  int exit = copse_cli_do(write_index, &index);
  for (int i = 0; i < n; i++) {
    free((char *)rows[i].page);
    free((char *)rows[i].failure);
    free((char *)rows[i].bottleneck);
  }
  free(rows);
  return first == COPSE_EXIT_DONE ? exit : first;
}

/* Whether a path ends in "/", or is of a folder that is there. */
static bool is_folder(const char *path) {
  struct stat about;
  size_t n = strlen(path);
  return (n > 0 && path[n - 1] == '/') || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  bool folder = o->output && is_folder(o->output);
  bool many = (n_left > 1 || (n_left == 1 && folder)) && !o->what.topology.synthetic;
  int bad = copse_cli_solve_check(&o->what, "report", many ? 1 : n_left, left);
  if (bad) return bad;
  if (!o->output) return copse_cli_usage("report", "name the page with -o");
  if (!folder && !copse_cli_may_be(o->output, ".html"))
    return copse_cli_usage("report",
                           "-o is a page of HTML: give it a name that ends in .html; pictures are "
                           "'copse topo --draw' and 'copse solve --draw'");
  if (many && copse_cli_is_stdout(o->output))
    return copse_cli_usage("report", "of many topologies -o is a folder");
  if (many) return report_many(o, n_left, left);
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("report", "of --json and -o - only one can have standard output");
  return copse_cli_do(write_report, o);
}

static int take_nccl(void *options, const char *command, char *value) {
  return copse_cli_take_nccl(&((struct options *)options)->nccl, command, value);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option output[] = {
    {"--output", 'o', "FILE",
     "the page (- for standard output); of several topologies a folder, with\n"
     "an index.html; pages of an earlier run go",
     TO(output), .writes = true, .common = true},
    {0}};
static const struct copse_option own[] = {
    {"--nccl", 0, "GRAPH",
     "compare with NCCL's own rings (a file of NCCL_GRAPH_DUMP_FILE, or\n"
     "graph.xml of 'copse tune'), not with the best rings; where hosts differ,\n"
     "once for each kind of host",
     .take = take_nccl, .common = true, .takes = COPSE_KIND_GRAPHS},
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
        "usage: copse report TOPO -c COLLECTIVE -o FILE.html [options]\n"
        "       copse report TOPO TOPO .. -c COLLECTIVE -o FOLDER [options]\n\n"
        "Solves as 'copse solve' does and writes one page that needs nothing else: the topology,\n"
        "the load of its links and the cut that bounds them, the trees to step through, and\n"
        "predicted bandwidth and time over message sizes beside today's algorithms. Pictures are\n"
        "laid out by Graphviz (the program 'dot'), at most 2500 nodes. Of several topologies\n"
        "it writes a page each and an index of them, as an artifact of CI.\n\n",
    .example = "example: copse report a100-x2 -c allreduce -o a100-x2.html\n"
        "         copse report *.json -c allreduce -o pages/\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "The page", .options = output},
                 COPSE_CLI_SOLVE_SECTION(struct options, what),
                 {.title = "More options", .options = own},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, what.topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
