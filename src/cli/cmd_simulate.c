/*
 * copse simulate SCHEDULE|PLAN|FOLDER -t TOPO: predicted times over message sizes, beside today's
 * algorithms, of a folder of plans each at the sizes that it is for; --overlap: how many parts a
 * Mixture-of-Experts layer should be cut into.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "predict/predict.h"
#include "predict/propose.h"
#include "schedule/adapt.h"

#define MAX_BYTES ((uint64_t)1 << 48)

/* ---- a schedule or plan and what it is compared with ------------------------------------- */

struct options {
  const char *schedule, *overlap;
  struct copse_cli_topology topology;
  uint64_t min_bytes, max_bytes;
  int64_t factor;
  struct copse_cli_costs costs;
  struct copse_predict_options predict;
  struct copse_cli_nccl nccl;
  int model; /* of models[] */
  bool no_baselines, json;
  const char *of_table; /* an option given that says what the table has */
};

enum { MODEL_PLAN, MODEL_LINKS };
static const char *const models[] = {"plan", "links", NULL};

struct job {
  const struct options *o;
  struct copse_cli_work *work; /* its schedule: NULL for a plan */
  struct copse_foreign what;   /* what the schedule or plan does */
  bool is_other;               /* it was made for another topology; that has been said */
  const char *plan, *path;     /* of a folder: name and path of the file at hand; else NULL */
  struct copse_q on_routes;    /* copse_bound_on_routes of the schedule, or of that beside a plan */
  int n_printed;               /* tables, or objects of plans */
  struct copse_err *err;
};

/* Checks that two nodes are joined, as the schedule's path has it. */
static copse_status check_path(const struct job *job, const int *nodes, int n_nodes,
                               const int *number) {
  const struct copse_schedule *s = job->work->schedule;
  const struct copse_topology *t = job->work->topology;
  for (int i = 0; i + 1 < n_nodes; i++) {
    int a = number[nodes[i]], b = number[nodes[i + 1]];
    if (a >= 0 && b >= 0 && copse_topology_find_link(t, a, b) >= 0) continue;
    return copse_fail_at(
        job->err, COPSE_BAD_INPUT, copse_file_label(job->o->schedule), 0,
        "goes from \"%.80s\" to \"%.80s\", a link that %.80s lacks: %s, or simulate "
        "the plan ('copse lower'), whose messages take the routes that are there",
        s->nodes[nodes[i]], s->nodes[nodes[i + 1]], t->name,
        job->o->topology.n_faults > 0 ? "solve for what is left (solve takes the same --down)"
                                      : "name with -t the topology that it was solved for");
  }
  return COPSE_OK;
}

/* Checks all paths of a schedule that was made before: what is down may be on them. */
static copse_status check_paths(const struct job *job) {
  const struct copse_schedule *s = job->work->schedule;
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  int *number; /* [n_nodes] of the schedule's nodes in the topology */
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)s->n_nodes, number, job->err));
  for (int i = 0; i < s->n_nodes; i++)
    number[i] = copse_topology_find(job->work->topology, s->nodes[i]);
  for (int t = 0; t < s->n_trees; t++)
    for (int e = 0; e < s->trees[t].n_edges; e++)
      COPSE_DO(check_path(job, s->trees[t].edges[e].path, s->trees[t].edges[e].n_path, number));
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      COPSE_DO(check_path(job, s->flows[f].paths[p].nodes, s->flows[f].paths[p].n_nodes, number));
  return COPSE_OK;
}

/* Notes that the schedule was made for another fabric than the one it is simulated on, such as the
 * same one degraded. */
static copse_status note_other_topology(struct job *job, const char *made_for, const char *name) {
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_topology_sha256(job->work->topology, sha256, job->err));
  if (strcmp(sha256, made_for) == 0 || job->is_other) return COPSE_OK;
  job->is_other = true;
  copse_note(&copse_cli_notes, "%s; it is simulated on the one given",
             copse_cli_other_topology(&job->o->topology, job->o->schedule, name, made_for,
                                      job->work->topology, (char[COPSE_CLI_OTHER_TEXT]){0}));
  return COPSE_OK;
}

/* ---- the table ------------------------------------------------------------------------- */

/* Prints the name of each column that exists, or `what`, above it. */
static void print_cells(const struct copse_cli_work *w, const char *what) {
  for (int i = 0; i < w->n_columns; i++)
    if (copse_prediction_exists(&w->columns[i])) printf("  %26s", what ? what : w->columns[i].name);
}

static void print_column(const struct job *job, const struct copse_prediction *c) {
  char text[COPSE_DETOUR_TEXT];
  if (!copse_prediction_exists(c)) {
    printf("# %-10s not applicable: %s\n", c->name, c->why.text);
    return;
  }
  printf("# %-10s %s%s\n", c->name,
         COPSE_CLI_RATES(c->time_per_GB, job->what.collective, job->work->topology->n_ranks),
         c->time_per_GB.num ? " at most" : "");
  if (c->instead[0]) printf("# %-10s predicted without a plan: %s\n", "", c->instead);
  if (c->note[0]) printf("# %-10s %s\n", "", c->note);
  if (copse_prediction_detour(c, job->work->topology, text)) printf("# %-10s %s\n", "", text);
}

/* Prints which bound the table has: that of any allreduce, so what is optimal among fewer may be
 * above it. */
static void print_which_bound(const struct job *job) {
  const struct copse_schedule *s = job->is_other ? NULL : job->work->schedule;
  if (job->what.collective != COPSE_ALLREDUCE) return;
  printf("# bound: no allreduce of any kind is faster; whether one is as fast isn't known\n");
  if (!s || s->bound.kind == COPSE_BOUND_CUT) return;
  printf("#        the optimum of %s is %s s/GB%s\n",
         s->bound.kind == COPSE_BOUND_PHASES
             ? "reduce_scatter and allgather in turn, equal shares,"
             : "reduce and broadcast forests with common shares",
         COPSE_CLI_Q(s->bound.time_per_GB),
         copse_q_eq(s->time_per_GB, s->bound.time_per_GB) ? ", which this schedule has" : "");
}

/* Prints, where that is more, what trees take at least on the routes that a plan's messages do. */
static void print_routes_bound(const struct job *job, uint64_t bytes, double us) {
  double bound = 1e-3 * copse_q_to_double(job->on_routes) * (double)bytes;
  if (job->on_routes.num == 0) return; /* or there are no trees */
  printf("# bound: trees on the fabric's own routes take at least %s s/GB; at %" PRIu64
         " bytes %s is %s above that\n",
         COPSE_CLI_Q(job->on_routes), bytes, job->plan ? job->plan : "this",
         copse_gap_text(us, bound, (char[COPSE_GAP_TEXT]){0}));
}

/* Prints titles over the columns of numbers. */
static void print_titles(const struct job *job) {
  printf("#\n# %12s", "size");
  print_cells(job->work, NULL);
  printf("  %7.7s to  %10.10s%s\n# %12s", job->work->columns[0].name, job->work->columns[0].name,
         job->plan ? "  file" : "", "");
  print_cells(job->work, "time    algbw    busbw");
  printf("  %10s  %10s\n# %12s", "the best", "above the", "(B)");
  print_cells(job->work, "(us)   (GB/s)   (GB/s)");
  printf("  %10s  %10s\n", "other", "bound");
}

/* Prints the head of the table. At the last of the sizes, `bytes`, the first column takes `us`. */
static void print_head(const struct job *job, uint64_t bytes, double us) {
  const struct options *o = job->o;
  const struct copse_sim_options *sim = &o->predict.sim;
  bool has_root = copse_collective_rooted(job->what.collective) && job->what.root >= 0;
  char root[24] = "";
  if (has_root) snprintf(root, sizeof root, " from root %d", job->what.root);
  if (has_root && job->what.collective == COPSE_REDUCE)
    snprintf(root, sizeof root, " to root %d", job->what.root);
  printf("# copse simulate: %s%s, %d rank%s, topology %s\n",
         copse_collective_name(job->what.collective), root, job->work->topology->n_ranks,
         COPSE_S(job->work->topology->n_ranks), job->work->topology->name);
  printf("# minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRId64
         "(factor) alpha: %g us message: %g us",
         o->min_bytes, o->max_bytes, o->factor, sim->alpha_us, sim->message_us);
  if (o->predict.fifo >= 0) printf(" fifo: %d", o->predict.fifo);
  if (sim->alpha_occupies) printf(" alpha occupies links (bounds do not count that)");
  if (sim->duplex > 1) printf(" duplex: %g", sim->duplex);
  if (sim->reduce_us_per_byte > 0) printf(" reduce: %g GB/s", 1e-3 / sim->reduce_us_per_byte);
  printf("; a model, not a measurement\n");
  /* of a folder each plan has a bandwidth of its own */
  for (int i = job->plan ? 1 : 0; i < job->work->n_columns; i++)
    print_column(job, &job->work->columns[i]);
  print_which_bound(job);
  if (!job->plan) print_routes_bound(job, bytes, us);
  print_titles(job);
}

static double algbw(uint64_t size, double us) { return us > 0 ? 1e-3 * (double)size / us : 0; }

static double busbw(const struct job *job, uint64_t size, double us) {
  return algbw(size, us) *
         copse_collective_bus_factor(job->what.collective, job->work->topology->n_ranks);
}

/* Returns the shortest time of the baselines, 0 if there is none. */
static double best_other(const struct job *job, const double *us) {
  double best = 0;
  for (int i = 1; i < job->work->n_columns; i++)
    if (copse_prediction_exists(&job->work->columns[i]) && (best == 0 || us[i] < best))
      best = us[i];
  return best;
}

static void print_row(const struct job *job, uint64_t size, const double *us, double bound_us) {
  double best = best_other(job, us);
  char gap[COPSE_GAP_TEXT];
  printf("  %12" PRIu64, size);
  for (int i = 0; i < job->work->n_columns; i++)
    if (copse_prediction_exists(&job->work->columns[i]))
      printf("  %10.*f %7.2f %7.2f", us[i] < 1e5 ? 2 : 0, us[i], algbw(size, us[i]),
             busbw(job, size, us[i]));
  if (best > 0)
    printf("  %10.3f", us[0] / best);
  else
    printf("  %10s", "-");
  printf("  %10s", copse_gap_text(us[0], bound_us, gap));
  printf(job->plan ? "  %s\n" : "%s\n", job->plan ? job->plan : "");
}

/* ---- JSON ------------------------------------------------------------------------------ */

static void print_json_head(const struct job *job) {
  const struct copse_sim_options *sim = &job->o->predict.sim;
  if (job->plan) printf("{\"plan\": %s, ", copse_cli_quoted(job->plan));
  printf(
      "%s\"collective\": \"%s\", \"nranks\": %d, \"topology\": %s, \"alpha_us\": %s, "
      "\"message_us\": %s, \"fifo\": %d, \"duplex\": %s",
      job->plan ? "" : "{", copse_collective_name(job->what.collective),
      job->work->topology->n_ranks, copse_cli_quoted(job->work->topology->name),
      COPSE_CLI_NUMBER(sim->alpha_us), COPSE_CLI_NUMBER(sim->message_us),
      job->work->columns[0].sim.fifo, COPSE_CLI_NUMBER(sim->duplex));
  if (sim->reduce_us_per_byte > 0)
    printf(", \"reduce_GBps\": %s", COPSE_CLI_NUMBER(1e-3 / sim->reduce_us_per_byte));
  if (sim->alpha_occupies) printf(", \"alpha_occupies\": true");
  if (job->on_routes.num > 0)
    printf(", \"routes_bound_time_per_GB\": \"%s\"", COPSE_Q_STRING(job->on_routes));
  printf(", \"algorithms\": [");
  for (int i = 0; i < job->work->n_columns; i++) {
    const struct copse_prediction *c = &job->work->columns[i];
    printf("%s{\"name\": \"%s\", ", i > 0 ? ", " : "", c->name);
    if (copse_prediction_exists(c))
      printf("\"time_per_GB\": \"%s\"", COPSE_Q_STRING(c->time_per_GB));
    else
      printf("\"not_applicable\": %s", copse_cli_quoted(c->why.text));
    if (c->runs_per_GB.num > 0) printf(", \"runs_per_GB\": \"%s\"", COPSE_Q_STRING(c->runs_per_GB));
    if (c->instead[0]) printf(", \"without_plan\": %s", copse_cli_quoted(c->instead));
    if (c->note[0]) printf(", \"note\": %s", copse_cli_quoted(c->note));
    printf("}");
  }
  printf("], \"unit\": {\"time\": \"us\", \"algbw\": \"GB/s\", \"busbw\": \"GB/s\"}, \"rows\": [");
}

static void print_json_row(const struct job *job, uint64_t size, const double *us, double bound_us,
                           bool first) {
  double best = best_other(job, us);
  bool comma = false;
  printf("%s\n {\"size\": %" PRIu64 ", \"times\": {", first ? "" : ",", size);
  for (int i = 0; i < job->work->n_columns; i++) {
    if (!copse_prediction_exists(&job->work->columns[i])) continue;
    printf("%s\"%s\": {\"time\": %s, \"algbw\": %s, \"busbw\": %s}", comma ? ", " : "",
           job->work->columns[i].name, COPSE_CLI_NUMBER(us[i]),
           COPSE_CLI_NUMBER(algbw(size, us[i])), COPSE_CLI_NUMBER(busbw(job, size, us[i])));
    comma = true;
  }
  printf("}, \"to_best_other\": %s, %s}", COPSE_CLI_NUMBER(best > 0 ? us[0] / best : NAN),
         COPSE_CLI_BOUND(us[0], bound_us));
}

static void print_folder_head(const struct job *job) {
  const struct copse_topology *t = job->work->topology;
  printf("{\"folder\": %s, \"topology\": %s, \"nranks\": %d, \"plans\": [\n",
         copse_cli_quoted(job->o->schedule), copse_cli_quoted(t->name), t->n_ranks);
}

/* ---- all together ---------------------------------------------------------------------- */

/* Lists the sizes: -b, times -f, up to -e: no more than there are powers of two. */
static int list_sizes(const struct options *o, uint64_t sizes[64]) {
  int n = 0;
  for (uint64_t size = o->min_bytes; size <= o->max_bytes && n < 64; size *= (uint64_t)o->factor) {
    sizes[n++] = size;
    if (size > o->max_bytes / (uint64_t)o->factor) break;
  }
  return n;
}

/* Finds the bounds by what a hop costs the first column, packets less. None where a file doesn't
 * name its root. */
static copse_status find_bounds(struct job *job, const double *bytes, int n, double *us) {
  const struct copse_schedule *s = job->is_other ? NULL : job->work->schedule;
  const struct copse_bounds_question question = {job->what.collective, job->what.root, s,
                                                 job->work->columns[0].sim.alpha_us};
  for (int i = 0; i < n; i++) us[i] = 0;
  bool has_root = job->what.root >= 0 || !copse_collective_rooted(job->what.collective);
  const int64_t *demand = job->work->schedule ? job->work->schedule->demand : job->what.demand;
  if (!s && (!has_root || demand)) return COPSE_OK;
  return copse_bounds_predict(job->work->topology, &question, bytes, n, us, job->err);
}

/* Prints a row of all columns' times for each of these sizes [n_sizes <= 64]; before them a
 * head. */
static copse_status run_sizes(struct job *job, const uint64_t *sizes, int n_sizes, bool head) {
  double bytes[64], bound_us[64], row[COPSE_MAX_PREDICTIONS], all[COPSE_MAX_PREDICTIONS * 64];
  int n = job->work->n_columns;
  for (int i = 0; i < n_sizes; i++) bytes[i] = (double)sizes[i];
  COPSE_DO(find_bounds(job, bytes, n_sizes, bound_us));
  COPSE_DO(copse_predictions_time(job->work->topology, job->work->columns, n, bytes, n_sizes, false,
                                  all, job->err));
  copse_cli_progress_end();
  if (job->o->json && job->plan) {
    if (job->n_printed == 0) print_folder_head(job);
    if (job->n_printed > 0) printf(",\n");
  }
  if (job->o->json)
    print_json_head(job);
  else if (head)
    print_head(job, sizes[n_sizes - 1], all[n_sizes - 1]);
  job->n_printed++;
  for (int i = 0; i < n_sizes; i++) {
    for (int c = 0; c < n; c++) row[c] = all[c * n_sizes + i];
    if (job->o->json)
      print_json_row(job, sizes[i], row, bound_us[i], i == 0);
    else
      print_row(job, sizes[i], row, bound_us[i]);
  }
  if (job->o->json) printf("\n]}%s", job->plan ? "" : "\n");
  /* of a folder below the rows of all plans of a kind: it is that of the last one's schedule */
  if (!job->o->json && job->plan) print_routes_bound(job, sizes[n_sizes - 1], all[n_sizes - 1]);
  return COPSE_OK;
}

/* Finds what trees take at least on the routes of a plan's messages, by the bound of its schedule;
 * 0 where that isn't beside it. */
static copse_status find_routes_bound(struct job *job, const char *path) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *s = NULL;
  struct copse_cli_work *w = job->work;
  struct copse_err why = COPSE_ERR_INIT;
  const char *end = strrchr(path, '.'),
             *beside =
                 copse_arena_printf(&w->arena, "%.*s.json", end ? (int)(end - path) : 0, path);
  if (!beside) return copse_fail_nomem(job->err);
  if (!end || strchr(end, '/') || access(beside, F_OK) != 0) return COPSE_OK;
  copse_status status = copse_schedule_load(beside, &s, &why);
  if (status == COPSE_NOMEM) return copse_fail_nomem(job->err);
  if (status != COPSE_OK || s->collective != job->what.collective || s->root != job->what.root)
    return COPSE_OK; /* it is no part of the plan */
  return copse_bound_on_routes(w->topology, s, w->columns[0].runs_per_GB, &job->on_routes,
                               job->err);
}

static copse_status add_plan(struct job *job) {
  struct copse_cli_work *w = job->work;
  const char *label = job->plan ? job->path : copse_file_label(job->o->schedule);
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_plan_decode(label, w->data, w->size, &w->plan, job->err));
  const struct copse_plan_header *header = &w->plan->header;
  COPSE_DO(copse_predict_plan(label, w->topology, w->plan, &job->o->predict, &w->columns[0],
                              &job->what, job->err));
  copse_sha256_text(header->topology_sha256, sha256);
  COPSE_DO(note_other_topology(job, sha256, w->plan->name));
  if (job->plan) return COPSE_OK; /* at its own sizes */
  COPSE_DO(find_routes_bound(job, job->o->schedule));
  if (job->o->min_bytes < header->min_bytes || job->o->max_bytes > header->max_bytes)
    copse_note(&copse_cli_notes,
               "%s is for messages of %s; predictions of others are of what it would do", label,
               COPSE_CLI_RANGE(header->min_bytes, header->max_bytes));
  return COPSE_OK;
}

static copse_status add_any_plan(struct job *job, enum copse_cli_kind kind) {
  struct copse_cli_work *w = job->work;
  struct copse_prediction *c = &w->columns[w->n_columns++];
  const struct copse_predict_options *o = &job->o->predict;
  const char *label = copse_file_label(job->o->schedule);
  if (job->o->overlap)
    return copse_fail_at(job->err, COPSE_UNSUPPORTED, label, 0,
                         "--overlap needs a schedule, not a plan");
  if (kind == COPSE_KIND_PLAN) return add_plan(job);
  bool msccl = kind == COPSE_KIND_MSCCL;
  *c = (struct copse_prediction){.name = msccl ? "msccl" : "mscclpp", .sim = o->sim};
  copse_predict_cut(o, &c->sim);
  COPSE_DO((msccl ? copse_sim_dag_of_msccl : copse_sim_dag_of_mscclpp)(
      label, w->data, w->size, w->topology, &c->dag, &job->what, job->err));
  c->time_per_GB = c->runs_per_GB = job->what.time_per_GB;
  return COPSE_OK;
}

static copse_status load_schedule(struct job *job) {
  struct copse_cli_work *w = job->work;
  COPSE_DO(copse_schedule_parse(copse_file_label(job->o->schedule), w->data, w->size, &w->schedule,
                                job->err));
  free(w->data); /* long: not beside the simulation */
  w->data = NULL;
  job->what =
      (struct copse_foreign){.collective = w->schedule->collective, .root = w->schedule->root};
  return COPSE_OK;
}

/* Adds the first column, of whatever the file is. */
static copse_status add_first(struct job *job) {
  const struct options *o = job->o;
  struct copse_cli_work *w = job->work;
  COPSE_DO(copse_file_read(o->schedule, &w->data, &w->size, job->err));
  enum copse_cli_kind kind = copse_cli_kind_of(w->data, w->size);
  bool is_plan = kind == COPSE_KIND_PLAN || kind == COPSE_KIND_MSCCL || kind == COPSE_KIND_MSCCLPP;
  if (!is_plan) COPSE_DO(load_schedule(job));
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, job->err));
  if (is_plan) return add_any_plan(job, kind);
  COPSE_DO(copse_schedule_choose_ranks(w->schedule, &w->topology, job->err));
  COPSE_DO(copse_schedule_check_ranks(w->schedule, copse_file_label(o->schedule), w->topology,
                                      job->err));
  COPSE_DO(note_other_topology(job, w->schedule->topology_sha256, w->schedule->topology_name));
  if (o->overlap) return COPSE_OK;
  COPSE_DO(copse_schedule_expand(w->schedule, job->err));
  if (job->is_other) COPSE_DO(check_paths(job));
  struct copse_prediction *c = &w->columns[w->n_columns++];
  COPSE_DO(copse_predict_schedule(w->topology, w->schedule, &o->predict, c, job->err));
  return copse_bound_on_routes(w->topology, w->schedule, c->runs_per_GB, &job->on_routes, job->err);
}

static copse_status add_baselines(struct job *job) {
  const struct copse_baseline_options like = {
      .collective = job->what.collective,
      .root = job->what.root,
      .demand = job->work->schedule ? job->work->schedule->demand : job->what.demand,
      .like = job->is_other ? NULL : job->work->schedule};
  if (job->o->no_baselines) return COPSE_OK;
  copse_cli_phase("baselines");
  return copse_predict_baselines(&like, job->work->topology, &job->o->predict, job->work->columns,
                                 &job->work->n_columns, job->err);
}

static copse_status simulate(struct job *job) {
  const struct options *o = job->o;
  uint64_t sizes[64];
  copse_cli_phase("read");
  COPSE_DO(add_first(job));
  if (o->overlap) return copse_cli_simulate_overlap(o->overlap, job->work, &o->predict, o->json);
  COPSE_DO(add_baselines(job));
  copse_cli_phase("simulate");
  return run_sizes(job, sizes, list_sizes(o, sizes), true);
}

/* ---- a folder of plans ------------------------------------------------------------------ */

struct entry {
  const char *name;
  struct copse_plan_header header;
};

COPSE_ORDER(by_range, struct entry,
            COPSE_UP(header.collective) ?: COPSE_UP(header.root) ?: COPSE_UP(header.min_bytes) ?:
            strcmp(a->name, b->name))

static copse_status read_plan(struct job *job, const char *name) {
  struct copse_cli_work *w = job->work;
  const char *path = copse_arena_printf(&w->arena, "%s/%s", job->o->schedule, name);
  if (!path) return copse_fail_nomem(job->err);
  free(w->data);
  w->data = NULL;
  COPSE_DO(copse_file_read(path, &w->data, &w->size, job->err));
  job->plan = name;
  job->path = path;
  return COPSE_OK;
}

static copse_status read_entry(struct job *job, const struct copse_cli_listed *it,
                               struct entry *to) {
  struct copse_cli_work *w = job->work;
  COPSE_DO(read_plan(job, it->name));
  COPSE_DO(copse_plan_decode(job->path, w->data, w->size, &w->plan, job->err));
  COPSE_DO(copse_cli_check_indexed(it, w->plan, job->err));
  *to = (struct entry){it->name, w->plan->header};
  copse_plan_free(w->plan);
  w->plan = NULL;
  return COPSE_OK;
}

/* Lists the *.plan of a folder, by collective and size. */
static copse_status list_plans(struct job *job, struct entry **out, int *n) {
  const struct copse_cli_listed *list;
  COPSE_DO(copse_cli_list_plans(job->o->schedule, &job->work->arena, &list, n, job->err));
  COPSE_DO(COPSE_ARRAY(&job->work->arena, (size_t)*n, *out, job->err));
  for (int i = 0; i < *n; i++) COPSE_DO(read_entry(job, &list[i], &(*out)[i]));
  COPSE_SORT(*out, *n, by_range);
  return COPSE_OK;
}

/* Lists the sizes of -b, -f and -e that the plan is for; where it lies between two of them, its
 * smallest size. Returns how many. */
static int sizes_of_plan(const struct options *o, const struct copse_plan_header *h,
                         uint64_t sizes[64]) {
  int all = list_sizes(o, sizes), n = 0;
  for (int i = 0; i < all; i++)
    if (sizes[i] >= h->min_bytes && sizes[i] <= h->max_bytes) sizes[n++] = sizes[i];
  if (n == 0 && h->min_bytes >= o->min_bytes && h->min_bytes <= o->max_bytes)
    sizes[n++] = h->min_bytes;
  return n;
}

static copse_status simulate_entry(struct job *job, const struct entry *it, bool last) {
  struct copse_cli_work *w = job->work;
  uint64_t sizes[64];
  int n = sizes_of_plan(job->o, &it->header, sizes);
  if (n == 0) return COPSE_OK;
  copse_cli_phase(it->name);
  COPSE_DO(read_plan(job, it->name));
  free(job->what.demand);
  job->what.demand = NULL;
  COPSE_DO(add_plan(job));
  bool new_kind = w->n_columns == 0;
  if (new_kind) {
    w->n_columns = 1;
    COPSE_DO(add_baselines(job));
  }
  copse_cli_phase("simulate");
  if (last) COPSE_DO(find_routes_bound(job, job->path));
  COPSE_DO(run_sizes(job, sizes, n, new_kind));
  job->on_routes = COPSE_Q_ZERO;
  copse_predictions_free(w->columns, 1);
  w->columns[0] = (struct copse_prediction){0};
  copse_plan_free(w->plan);
  w->plan = NULL;
  return COPSE_OK;
}

/* Whether two plans do the same, for other sizes. */
static bool is_like(const struct copse_plan_header *a, const struct copse_plan_header *b) {
  return a->collective == b->collective && a->root == b->root &&
         a->collective != COPSE_ALLTOALL; /* each has a demand of its own */
}

static copse_status simulate_folder(struct job *job) {
  struct copse_cli_work *w = job->work;
  const struct options *o = job->o;
  struct entry *entries;
  int n;
  if (o->overlap)
    return copse_fail_at(job->err, COPSE_UNSUPPORTED, o->schedule, 0,
                         "--overlap needs a schedule, not plans");
  copse_cli_phase("read");
  COPSE_DO(list_plans(job, &entries, &n));
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, job->err));
  for (int i = 0; i < n; i++) {
    bool new_kind = i == 0 || !is_like(&entries[i].header, &entries[i - 1].header);
    if (new_kind) {
      copse_predictions_free(w->columns, w->n_columns);
      memset(w->columns, 0, sizeof w->columns);
      w->n_columns = 0;
    }
    uint64_t sizes[64];
    bool last = i + 1 == n || !is_like(&entries[i].header, &entries[i + 1].header) ||
                sizes_of_plan(o, &entries[i + 1].header, sizes) == 0;
    COPSE_DO(simulate_entry(job, &entries[i], last));
  }
  if (o->json && job->n_printed == 0) print_folder_head(job);
  if (o->json) printf("\n]}\n");
  return COPSE_OK;
}

/* Takes the costs: nothing beside links where only they are asked for, unless it is given. */
static copse_status take_costs(struct options *o, struct copse_err *err) {
  o->predict.links = o->model == MODEL_LINKS;
  if (o->predict.links && o->costs.message_us < 0) o->costs.message_us = 0;
  return copse_cli_costs(&o->topology, &o->costs, &o->predict, err);
}

static copse_status predict(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  struct job job = {.o = o, .work = w, .err = &w->err};
  COPSE_AT_END(copse_cli_nccl_free) struct copse_cli_nccl_graphs graphs = {0};
  COPSE_DO(take_costs(o, &w->err));
  COPSE_DO(copse_cli_load_nccl(&o->nccl, &graphs, &o->predict, &w->err));
  struct stat about;
  bool is_folder = stat(o->schedule, &about) == 0 && S_ISDIR(about.st_mode);
  copse_status status = is_folder ? simulate_folder(&job) : simulate(&job);
  free(job.what.demand);
  return status;
}

/* ---- options --------------------------------------------------------------------------- */

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  if (n_left != 1) return copse_cli_usage("simulate", "give one schedule, plan or folder of plans");
  if (!copse_cli_has_topology(&o->topology))
    return copse_cli_usage("simulate", "name the topology with -t or --synthetic");
  if (o->min_bytes < 1 || o->min_bytes > o->max_bytes)
    return copse_cli_usage("simulate", "-b must be at least 1 and not more than -e");
  if (o->overlap && o->of_table)
    return copse_cli_usage("simulate",
                           "--overlap prints no table of sizes: leave out -b, -e, -f and "
                           "--no-baselines");
  o->schedule = left[0];
  return copse_cli_do(predict, o);
}

static int take_nccl(void *options, const char *command, char *value) {
  return copse_cli_take_nccl(&((struct options *)options)->nccl, command, value);
}

static int take_chunk(void *options, const char *command, char *value) {
  uint64_t bytes;
  if (!copse_cli_parse_size(value, MAX_BYTES, &bytes) || bytes == 0)
    return copse_cli_usage(command, "--chunk must be a number of bytes, such as 64K");
  ((struct options *)options)->predict.chunk_bytes = (double)bytes;
  return COPSE_EXIT_DONE;
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
#define MARK(member) COPSE_OPTION_MARK(struct options, member)
#define SIZE_TO(member)                         \
  TO(member), COPSE_OPTION_RANGE(0, MAX_BYTES), \
      .bytes = true, .must = "a number of bytes, such as 1000, 64K or 1G", MARK(of_table)

static const struct copse_option own[] = {
    {"--topology", 't', "FILE", "the topology, in any input format", TO(topology.path),
     .common = true, .takes = COPSE_KIND_TOPOLOGY},
    {"--minbytes", 'b', "N", "smallest size (default 1K); K, M, G: times 1024, ...",
     SIZE_TO(min_bytes), .spelled = "-b", .common = true},
    {"--maxbytes", 'e', "N", "largest size (default 10G)", SIZE_TO(max_bytes), .spelled = "-e",
     .common = true},
    {"--stepfactor", 'f', "F", "next size = size * F (default 4)", TO(factor),
     COPSE_OPTION_RANGE(2, INT32_MAX), .must = "an integer of at least 2", .spelled = "-f",
     MARK(of_table), .common = true},
    {"--model", 0, "plan",
     "a schedule as the plan that 'copse lower' makes of it (default): its\n"
     "workers, chunks and order, each message on the fabric's own route; or",
     TO(model), .words = models},
    {"--model", 0, "links",
     "as nothing but its own transfers over its own paths: with -a 0 a model\n"
     "of pure links, their latency and bandwidth",
     TO(model), .words = models},
    {"--chunk", 0, "N",
     "bytes of a chunk, all of them (default: as plans are cut, 32K to\n"
     "512K, see 'copse lower --chunk'; a plan as it says itself; a baseline\n"
     "as is best for it at each size)",
     .take = take_chunk},
    {"--fifo", 0, "N",
     "chunks of a transfer that may be on their way over links, as slots of\n"
     "a plan's buffers (default 4, a plan's own, a baseline's 8; 0: any\n"
     "number)",
     TO(predict.fifo), COPSE_OPTION_RANGE(0, COPSE_SIM_MAX_FIFO),
     .must = "an integer from 0 to 1024"},
    {"--nccl", 0, "GRAPH",
     "NCCL's own rings (a file of NCCL_GRAPH_DUMP_FILE, or graph.xml of\n"
     "'copse tune') in place of the best rings; where hosts differ, once for\n"
     "each kind of host",
     .take = take_nccl, MARK(of_table), .takes = COPSE_KIND_GRAPHS},
    {"--no-baselines", 0, NULL, "the schedule alone", TO(no_baselines), MARK(of_table)},
    {"--json", 'j', NULL, "one JSON object instead of the table", TO(json), .common = true},
    {0}};

static const struct copse_option of_overlap[] = {
    {"--overlap", 0, "SPEC",
     "for an alltoall schedule: how many parts to cut a layer's tokens\n"
     "into, so that the all-to-all of one part runs while experts\n"
     "compute another. SPEC is a list of key=value, with commas:",
     TO(overlap)},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){.min_bytes = 1024,
                                                .max_bytes = (uint64_t)10 << 30,
                                                .factor = 4,
                                                .costs = COPSE_CLI_COSTS_INIT,
                                                .predict = copse_predict_defaults};
}

static const char usage[] =
    "usage: copse simulate SCHEDULE|PLAN|FOLDER -t TOPO [options]\n\n"
    "Predicts the time of a schedule or plan over message sizes, beside the best rings that NCCL\n"
    "could run, double binary tree and direct exchange, or for an alltoall pairwise, spread-out, "
    "2dh (Tutel) and birkhoff "
    "(FAST),\n"
    "on the same topology and demand. An alpha-beta model with a queue at every link: each link\n"
    "costs its latency and bytes / bandwidth, each hop from rank to rank alpha, each message a "
    "part\n"
    "of that at the worker that sends it. Incast, memory and, without --reduce, arithmetic cost\n"
    "nothing. The file, or -, is what 'copse solve' wrote, what 'copse lower' wrote, or MSCCL XML\n"
    "or an MSCCL++ plan of any origin. A schedule is predicted as the plan that it lowers to, "
    "where\n"
    "each pair of ranks has its shortest route; of one that can't be a plan, or is too large for\n"
    "that, its own transfers are, and the table says why. Of a folder that 'copse plans' wrote\n"
    "each plan has the rows of the sizes that it is for.\n\n";
static const char sizes[] =
    "The size is M: for an allgather the gathered buffer, for an alltoall what a rank sends\n"
    "(with a demand, the rank that sends most). algbw is M / time, busbw that times what "
    "nccl-tests\n"
    "multiply by. The bound is what no schedule beats at that size, with what a hop costs the "
    "first column.\n";
static const char overlap_keys[] =
    "      tokens=N        that a rank sends (a token for k experts counts k times)\n"
    "      token-bytes=B   of one token (default 8192)\n"
    "      compute=A:B     an expert's rank takes A us + B us per token; or a file,\n"
    "      compute=FILE    {\"format\": \"copse-compute/1\", \"points\":\n"
    "                      [{\"tokens\": 512, \"us\": 80.5}, ...]}, with straight\n"
    "                      lines between points\n"
    "      degrees=1:2:4   numbers of parts to try (default 1:2:4:8:16)\n"
    "      network=one     one all-to-all at a time, dispatches first (default);\n"
    "      network=shared  a dispatch and a combine together, each at half speed\n";
static const char example[] =
    "example: copse simulate a100-x2.allreduce.json -t a100-x2 -b 64K -e 1G\n"
    "         copse simulate plans -t a100-x2 --down h0.nic3\n";

const struct copse_command copse_cmd_simulate = {
    .name = "simulate",
    .does = "predict times over message sizes, beside baselines",
    .usage = usage,
    .example = example,
    .sections = {{.title = "The table", .options = own, .after = sizes},
                 {.title = "Overlap with computing", .options = of_overlap, .after = overlap_keys},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .takes = COPSE_KIND_SCHEDULE | COPSE_KIND_PLAN | COPSE_KIND_MSCCL | COPSE_KIND_MSCCLPP,
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
