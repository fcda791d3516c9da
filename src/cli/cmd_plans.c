/* copse plans TOPO -o FOLDER: a set of plans that covers all message sizes. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/kinds.h"
#include "cli/options.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "predict/bounds.h"
#include "predict/candidates.h"

/* Sizes at which candidates are compared, and up to which there are packets. */
#define SMALLEST ((uint64_t)1 << 10)
#define LARGEST ((uint64_t)1 << 30)
#define LARGEST_PACKETS ((uint64_t)256 << 10)
/* What is slower than the fastest by less is not told of. */
#define WORTH_SAYING 0.0005

struct options {
  struct copse_cli_topology topology;
  const char *output;
  bool wanted[COPSE_ALLTOALL + 1];
  int root; /* -1: not given */
  struct copse_lower_options lower;
  struct copse_cli_costs costs;
  bool no_low_latency, json;
  bool by_default; /* the collectives are those that are made without -c */
};

struct job {
  const struct options *o;
  struct copse_cli_work *work;
  struct copse_topology *topology;
  struct copse_predict_options predicted;
  struct copse_candidates candidates, healthy; /* of the collective at hand */
  struct copse_text index;            /* all plans so far */
  struct copse_text table;
  struct copse_text losses;  /* what fewer hops and fewer plans cost, a line each */
  struct copse_text written; /* names of files, each on a line */
  char *making; /* the folder that they are made in, beside or inside the one asked for */
  bool exists;  /* that one does */
  int n_plans;
  struct copse_err *err;
};

/* ---- files ------------------------------------------------------------------------------- */

static copse_status write_file(struct job *j, const char *name, const void *data, size_t size) {
  COPSE_DO(copse_cli_write_in(j->making, name, data, size, j->err));
  copse_text_add(&j->written, "%s\n", name);
  return copse_text_status(&j->written, j->err);
}

/* A plan left from another call could be narrower than the right one, and win. */
static copse_status refuse_old_plans(struct job *j) {
  DIR *dir = opendir(j->o->output);
  bool found = false;
  if (!dir) return copse_fail_at(j->err, COPSE_IO, j->o->output, 0, "cannot be opened");
  for (const struct dirent *it; !found && (it = readdir(dir)) != NULL;) {
    size_t n = strlen(it->d_name);
    found = n > 5 && strcmp(it->d_name + n - 5, ".plan") == 0;
  }
  closedir(dir);
  return found ? copse_fail_at(j->err, COPSE_INVALID, j->o->output, 0,
                               "holds plans already, which a job would load as well: name another "
                               "folder or remove them")
               : COPSE_OK;
}

/*
 * A job would load some plans of a set without the others. So they are made in another folder, and
 * put in place at the end: FOLDER.making-XXXXXX beside a new one; a folder that exists may be a
 * mount or the current one, and gets FOLDER/.making-XXXXXX, whose files are moved up.
 */
static copse_status begin_folder(struct job *j) {
  const char *output = j->o->output;
  size_t n = strlen(output);
  mode_t mask = umask(0);
  umask(mask);
  while (n > 1 && output[n - 1] == '/') n--;
  j->exists = access(output, F_OK) == 0;
  if (j->exists) COPSE_DO(copse_cli_make_folder(output, j->err)); /* refuses what is none */
  if (j->exists) COPSE_DO(refuse_old_plans(j));
  j->making = copse_arena_printf(&j->work->arena, "%.*s%s.making-XXXXXX", (int)n, output,
                                 j->exists ? "/" : "");
  if (!j->making) return copse_fail_nomem(j->err);
  char *made = mkdtemp(j->making);
  if (made && chmod(made, 0777 & ~mask) == 0) return COPSE_OK;
  if (!made) j->making = NULL;
  return copse_fail_at(j->err, COPSE_IO, output, 0, "cannot be made a folder: %s", strerror(errno));
}

/* The path of a file in a folder, where names end in '\n'; NULL when memory ran out. */
static const char *path_in(struct job *j, const char *folder, const char *name) {
  return copse_arena_printf(&j->work->arena, "%s/%.*s", folder, (int)strcspn(name, "\n"), name);
}

/* Removes the files that were made, and their folder; a call that fails leaves none. */
static void remove_made(struct job *j) {
  for (const char *name = j->written.data; name && *name; name = strchr(name, '\n') + 1) {
    const char *path = path_in(j, j->making, name);
    if (path) remove(path);
  }
  if (j->making) rmdir(j->making);
}

static copse_status cannot_place(struct job *j) {
  return copse_fail_at(j->err, COPSE_IO, j->o->output, 0, "cannot be put in place: %s",
                       strerror(errno));
}

/* Moves all files up; if one can't be, those that were are removed. */
static copse_status move_up(struct job *j) {
  const char *name = j->written.data;
  copse_status status = COPSE_OK;
  while (status == COPSE_OK && *name) {
    const char *from = path_in(j, j->making, name), *to = path_in(j, j->o->output, name);
    if (!from || !to)
      status = copse_fail_nomem(j->err);
    else if (rename(from, to) != 0)
      status = cannot_place(j);
    else
      name = strchr(name, '\n') + 1;
  }
  for (const char *it = j->written.data; status != COPSE_OK && it < name;
       it = strchr(it, '\n') + 1) {
    const char *to = path_in(j, j->o->output, it);
    if (to) remove(to);
  }
  return status;
}

static copse_status put_in_place(struct job *j) {
  if (!j->exists) return rename(j->making, j->o->output) == 0 ? COPSE_OK : cannot_place(j);
  COPSE_DO(move_up(j));
  return rmdir(j->making) == 0 ? COPSE_OK : cannot_place(j);
}

/* ---- one plan ---------------------------------------------------------------------------- */

/* Lowers, proves and writes one plan for the sizes of `range`. */
static copse_status write_plan(struct job *j, const struct copse_candidate_range *range,
                               const char *name) {
  const struct copse_candidate *candidate = &j->candidates.list[range->candidate];
  struct copse_lower_options options = candidate->lower;
  struct copse_proof_report report;
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_plan *plan = NULL;
  char *bytes = NULL;
  size_t size;
  copse_status status;
  options.min_bytes = (int64_t)range->min_bytes;
  options.max_bytes = (int64_t)range->max_bytes;
  COPSE_TRY(copse_lower_schedule(candidate->schedule, &options, &plan, j->err));
  COPSE_TRY(copse_cli_own(copse_prove_plan(plan, name, &report, &why),
                          "a plan of ours fails its proof", &why, j->err));
  COPSE_TRY(copse_plan_encode(plan, &bytes, &size, j->err));
  COPSE_TRY(write_file(j, name, bytes, size));
  j->n_plans++;
out:
  free(bytes);
  copse_plan_free(plan);
  return status;
}

static copse_status write_schedule(struct job *j, const struct copse_schedule *schedule,
                                   const char *name) {
  char *text = NULL;
  size_t size;
  copse_status status = copse_schedule_to_json(schedule, &text, &size, j->err);
  if (status == COPSE_OK) status = write_file(j, name, text, size);
  free(text);
  return status;
}

/* ---- the table and the index -------------------------------------------------------------- */

static const char *most_of(const struct copse_candidate_range *range, const char *any,
                           char text[24]) {
  if (range->max_bytes >= INT64_MAX) return any;
  snprintf(text, 24, "%" PRIu64, range->max_bytes);
  return text;
}

static void add_to_table(struct job *j, const struct copse_candidate_range *range, double us,
                         double optimal_us, double bound_us) {
  const struct copse_candidate *it = &j->candidates.list[range->candidate];
  copse_text_add(&j->table, "%-14s %12" PRIu64 " %12s  %-36s %7d %12.6g %12s %12.6g\n",
                 copse_collective_name(it->schedule->collective), range->min_bytes,
                 most_of(range, "any", (char[24]){0}), it->name,
                 copse_schedule_height(it->schedule), us,
                 copse_gap_text(us, bound_us, (char[COPSE_GAP_TEXT]){0}), optimal_us);
}

/* Where the plan taken is not the fastest one: why, and by how much. */
static void add_loss(struct job *j, const struct copse_candidate_range *range) {
  const struct copse_candidate *list = j->candidates.list;
  if (range->loss < WORTH_SAYING) return;
  copse_text_add(&j->losses,
                 "%s from %" PRIu64 " bytes: up to %.1f %% slower (at %" PRIu64
                 " bytes) than %s, for ",
                 copse_collective_name(list[range->candidate].schedule->collective),
                 range->min_bytes, 100 * range->loss, range->loss_bytes, list[range->fastest].name);
  if (range->fewer_hops > 0)
    copse_text_add(&j->losses, "%d hop%s less\n", range->fewer_hops,
                   range->fewer_hops == 1 ? "" : "s");
  else
    copse_text_add(&j->losses, "a plan less\n");
}

static void add_to_index(struct job *j, const struct copse_candidate_range *range, int number) {
  const struct copse_candidate *it = &j->candidates.list[range->candidate];
  const struct copse_schedule *s = it->schedule;
  const char *collective = copse_collective_name(s->collective);
  copse_text_add(&j->index, "%s\n  {\"collective\": \"%s\", ", j->index.size ? "," : "",
                 collective);
  if (copse_collective_rooted(s->collective)) copse_text_add(&j->index, "\"root\": %d, ", s->root);
  copse_text_add(&j->index,
                 "\"min_bytes\": %" PRIu64
                 ", \"max_bytes\": %s,\n"
                 "   \"plan\": \"%s-%d.plan\", \"schedule\": \"%s-%d.json\",",
                 range->min_bytes, most_of(range, "null", (char[24]){0}), collective, number,
                 collective, number);
  if (it->lower.low_latency)
    copse_text_add(&j->index, " \"low_latency\": true,%s",
                   it->lower.one_hop ? " \"one_hop\": true," : "");
  copse_text_add(&j->index, "\n   \"chosen\": %s, \"time_per_GB\": \"%s\", \"max_height\": %d",
                 copse_cli_quoted(it->name), COPSE_Q_STRING(s->time_per_GB),
                 copse_schedule_height(s));
  if (s->n_trees > 0)
    copse_text_add(&j->index, ", \"mean_height\": %.6g", copse_schedule_mean_height(s));
  copse_text_add(&j->index, ",\n   \"above_fastest\": %.6g", range->loss);
  if (range->loss > 0)
    copse_text_add(&j->index, ", \"fastest\": %s, \"at_bytes\": %" PRIu64 ", \"fewer_hops\": %d",
                   copse_cli_quoted(j->candidates.list[range->fastest].name), range->loss_bytes,
                   range->fewer_hops);
  copse_text_add(&j->index, "}");
}

/* ---- all of them ------------------------------------------------------------------------- */

static copse_status make_range(struct job *j, const struct copse_candidate_range *range,
                               int number) {
  const struct copse_candidates *c = &j->candidates;
  const struct copse_schedule *schedule = c->list[range->candidate].schedule;
  double us[1][COPSE_MAX_CANDIDATES], bound_us,
      bytes = (double)(range->min_bytes > SMALLEST ? range->min_bytes : SMALLEST);
  const struct copse_bounds_question question = {schedule->collective, schedule->root, schedule,
                                                 c->predictions[range->candidate].sim.alpha_us};
  char name[64];
  snprintf(name, sizeof name, "%s-%d.json", copse_collective_name(schedule->collective), number);
  COPSE_DO(write_schedule(j, schedule, name));
  snprintf(name, sizeof name, "%s-%d.plan", copse_collective_name(schedule->collective), number);
  COPSE_DO(write_plan(j, range, name));
  COPSE_DO(copse_candidates_time(c, &bytes, 1, true, us, j->err));
  COPSE_DO(copse_bounds_predict(j->topology, &question, &bytes, 1, &bound_us, j->err));
  add_to_table(j, range, us[0][range->candidate], us[0][0], bound_us);
  add_loss(j, range);
  add_to_index(j, range, number);
  return COPSE_OK;
}

/* From which bytes on a range's candidate is slower than candidate `by`; false: not at its last. */
static copse_status find_switch(const struct job *j, int by, const struct copse_candidate_range *range,
                                uint64_t *from, bool *found, struct copse_err *err) {
  const struct copse_candidates *c = &j->candidates;
  *found = false;
  for (uint64_t size = LARGEST; size >= SMALLEST; size /= 2) {
    const double bytes = (double)size;
    double us[2];
    if (size > range->max_bytes || size < range->min_bytes) continue;
    COPSE_DO(copse_predictions_time(c->topology, &c->predictions[by], 1, &bytes, 1, true, &us[0], err));
    COPSE_DO(copse_predictions_time(c->topology, &c->predictions[range->candidate], 1, &bytes, 1, true,
                                    &us[1], err));
    if (us[0] >= us[1]) return COPSE_OK;
    *found = true;
    *from = size / 2 < range->min_bytes || size == SMALLEST ? range->min_bytes : size;
  }
  return COPSE_OK;
}

/* Plans for switches that copy and add, where they are faster, beside those that need none: not every
 * job can use the switch. Their ranges lie within the others', so that communicators that can, do. */
static copse_status make_switched(struct job *j, const struct copse_solve_options *options,
                                  const struct copse_candidate_range *ranges, int n) {
  int number = n;
  bool found = false;
  COPSE_DO(copse_candidates_switch(&j->candidates, options, &found, j->err));
  for (int i = 0; found && i < n; i++) {
    struct copse_candidate_range it = {.max_bytes = ranges[i].max_bytes,
                                       .candidate = j->candidates.n - 1};
    bool faster = false;
    COPSE_DO(find_switch(j, it.candidate, &ranges[i], &it.min_bytes, &faster, j->err));
    it.fastest = it.candidate;
    if (faster) COPSE_DO(make_range(j, &it, ++number));
  }
  return COPSE_OK;
}

/* What there is to choose from, with --verbose. */
static copse_status say_candidates(const struct job *j, copse_collective collective) {
  static const double bytes[] = {4096, 1 << 20, 1 << 30};
  double us[3][COPSE_MAX_CANDIDATES];
  if (!copse_cli_asked.verbose) return COPSE_OK;
  COPSE_DO(copse_candidates_time(&j->candidates, bytes, 3, true, us, j->err));
  for (int i = 0; i < j->candidates.n; i++)
    copse_cli_say("%s by %s: %s us at 4 KiB, %s at 1 MiB, %s at 1 GiB (null: not simulated)",
                  copse_collective_name(collective), j->candidates.list[i].name,
                  COPSE_CLI_NUMBER(us[0][i]), COPSE_CLI_NUMBER(us[1][i]),
                  COPSE_CLI_NUMBER(us[2][i]));
  return COPSE_OK;
}

/* Whether the ranks are the same in both. */
static bool has_ranks_of(const struct copse_topology *t, const struct copse_topology *other) {
  bool same = t->n_ranks == other->n_ranks;
  for (int r = 0; r < t->n_ranks && same; r++)
    same = strcmp(t->nodes[t->rank_nodes[r]].id, other->nodes[other->rank_nodes[r]].id) == 0;
  return same;
}

/* What there is to choose from in chunks; of a broken topology also what the healthy one has. */
static copse_status make_candidates(struct job *j, const struct copse_solve_options *options) {
  const struct copse_topology *healthy = j->work->whole;
  struct copse_solve_seconds ignored;
  COPSE_DO(
      copse_candidates_make(j->topology, options, &j->predicted, &j->candidates, &ignored, j->err));
  if (healthy && has_ranks_of(j->topology, healthy)) {
    COPSE_DO(copse_candidates_make(healthy, options, &j->predicted, &j->healthy, &ignored, j->err));
    COPSE_DO(copse_candidates_search(&j->healthy, options, j->err));
    COPSE_DO(copse_candidates_adopt(&j->candidates, &j->healthy, j->err));
  }
  return copse_candidates_search(&j->candidates, options, j->err);
}

static copse_status make_collective(struct job *j, copse_collective collective,
                                    const struct copse_progress *progress) {
  int root = j->o->root < 0 ? 0 : j->o->root;
  struct copse_solve_options options = {.collective = collective,
                                        .root = copse_collective_rooted(collective) ? root : -1,
                                        .tolerance = COPSE_Q_ZERO,
                                        .label = copse_cli_topology_label(&j->o->topology),
                                        .progress = progress};
  struct copse_candidate_range ranges[COPSE_MAX_RANGES];
  int n;
  copse_status status;
  if (collective == COPSE_ALLTOALL) options.tolerance = copse_cli_default_tolerance(j->topology);
  COPSE_TRY(make_candidates(j, &options));
  if (!j->o->no_low_latency)
    COPSE_TRY(copse_candidates_packets(&j->candidates, LARGEST_PACKETS, j->err));
  COPSE_TRY(say_candidates(j, collective));
  COPSE_TRY(copse_candidates_ranges(&j->candidates, SMALLEST, LARGEST, ranges, &n, j->err));
  for (int i = 0; i < n; i++) COPSE_TRY(make_range(j, &ranges[i], i + 1));
  COPSE_TRY(make_switched(j, &options, ranges, n));
out:
  copse_candidates_free(&j->candidates);
  copse_candidates_free(&j->healthy);
  return status;
}

static copse_status finish(struct job *j) {
  struct copse_text *text = &j->work->text;
  copse_text_add(text,
                 COPSE_JSON_HEAD("plans") ", \"topology\": %s, \"nranks\": %d,\n"
                 " \"ranges\": [%s\n ]}\n",
                 copse_cli_quoted(j->topology->name), j->topology->n_ranks,
                 j->index.data ? j->index.data : "");
  COPSE_DO(copse_text_status(&j->index, j->err));
  COPSE_DO(copse_text_status(text, j->err));
  COPSE_DO(write_file(j, "index.json", text->data, text->size));
  COPSE_DO(put_in_place(j));
  if (j->o->json) {
    fputs(text->data, stdout);
  } else {
    COPSE_DO(copse_text_status(&j->table, j->err));
    COPSE_DO(copse_text_status(&j->losses, j->err));
    printf("%-14s %12s %12s  %-36s %7s %12s %12s %12s\n%s%s%d plans for %s in %s, all proved%s\n",
           "collective", "from bytes", "to", "schedule", "height", "us there", "above bound",
           "optimal", j->table.data, j->losses.data ? j->losses.data : "", j->n_plans,
           j->topology->name, j->o->output,
           j->o->by_default ? " (-c makes those of broadcast, reduce and alltoall)" : "");
  }
  return COPSE_OK;
}

static copse_status make_all(struct job *j) {
  COPSE_DO(begin_folder(j));
  for (int c = 0; c <= COPSE_ALLTOALL; c++)
    if (j->o->wanted[c]) COPSE_DO(make_collective(j, (copse_collective)c, &j->work->progress));
  copse_cli_progress_end();
  return finish(j);
}

static copse_status make_plans(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct job j = {.o = o, .work = w, .predicted = copse_predict_defaults, .err = &w->err};
  j.predicted.lower = o->lower;
  COPSE_DO(copse_cli_costs(&o->topology, &o->costs, &j.predicted, &w->err));
  w->place = copse_cli_topology_label(&o->topology);
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  j.topology = w->topology;
  copse_status status = make_all(&j);
  if (status != COPSE_OK) remove_made(&j);
  copse_text_free(&j.written);
  copse_text_free(&j.index);
  copse_text_free(&j.table);
  copse_text_free(&j.losses);
  return status;
}

/* ---- options ----------------------------------------------------------------------------- */

static int check(struct options *o, int n_left, char *const *left) {
  bool any = false;
  int bad = copse_cli_take_topology(&o->topology, "plans", n_left, left);
  if (bad) return bad;
  if (!o->output) return copse_cli_usage("plans", "name the folder with -o");
  if (o->root >= 0 && !o->wanted[COPSE_BROADCAST] && !o->wanted[COPSE_REDUCE])
    return copse_cli_usage("plans", "--root is for broadcast and reduce");
  for (int c = 0; c <= COPSE_ALLTOALL; c++) any = any || o->wanted[c];
  o->by_default = !any;
  if (!any)
    o->wanted[COPSE_ALLREDUCE] = o->wanted[COPSE_ALLGATHER] = o->wanted[COPSE_REDUCE_SCATTER] =
        true;
  return COPSE_EXIT_DONE;
}

static int run(void *arguments, int n_left, char **left) {
  int bad = check(arguments, n_left, left);
  return bad ? bad : copse_cli_do(make_plans, arguments);
}

static int take_collective(void *options, const char *command, char *value) {
  copse_collective collective;
  int exit = copse_cli_take_collective(command, value, &collective);
  if (exit == COPSE_EXIT_DONE) ((struct options *)options)->wanted[collective] = true;
  return exit;
}

static int take_instances(void *options, const char *command, char *value) {
  int64_t number = COPSE_LOWER_AUTO;
  if (strcmp(value, "auto") != 0 &&
      !copse_cli_parse_int(value, 1, COPSE_LOWER_MOST_INSTANCES, &number))
    return copse_cli_usage(command, "--instances must be a number up to %d",
                           COPSE_LOWER_MOST_INSTANCES);
  ((struct options *)options)->lower.instances = (int)number;
  return COPSE_EXIT_DONE;
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const char *const automatic[] = {"auto", NULL};
static const struct copse_option own[] = {
    {"--collective", 'c', "C",
     "one of allgather, reduce_scatter, allreduce, broadcast, reduce,\n"
     "alltoall; may be given several times (default: allreduce, allgather\n"
     "and reduce_scatter)",
     .words = copse_cli_collectives, .take = take_collective, .common = true},
    {"--root", 'r', "R", "the root rank of a broadcast or reduce (default 0)", TO(root),
     COPSE_OPTION_RANGE(0, INT32_MAX), .must = "a number up to 2147483647"},
    {"--output", 'o', "FOLDER", "made if it is not there; must hold no plans", TO(output),
     .common = true},
    {"--workers", 'w', "N", "at most N workers per rank (default 32; see 'copse lower')",
     TO(lower.max_workers), COPSE_OPTION_RANGE(1, 1024), .must = "a number up to 1024",
     .common = true},
    {"--instances", 'I', "N",
     "cut each tree into N parts, for more workers (default auto, as\n"
     "'copse lower' has it)",
     .words = automatic, .take = take_instances},
    {"--no-low-latency", 0, NULL,
     "no plans of packets for messages of up to 256 KiB, nor, below those,\n"
     "of one hop for an allreduce, where all ranks join each other",
     TO(no_low_latency)},
    {"--json", 'j', NULL, "the index on standard output instead of a table", TO(json),
     .common = true},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){
      .root = -1, .lower.instances = COPSE_LOWER_AUTO, .costs = COPSE_CLI_COSTS_INIT};
}

static const char columns[] =
    "The table has for each plan the sizes it is for (of the whole message, as nccl-tests counts\n"
    "them), the schedule, its height in hops, the predicted time at the first of the sizes, how "
    "far\n"
    "that is above what nothing beats, and the time of the optimum for long messages there. "
    "Names:\n"
    "\"64K: ..\" was searched for that size, \"stages\" are recursive doubling, \"exchanged\" has "
    "sends in\n"
    "another order, \"packets\" carry data and flag together. \"by the switch\" is multicast, for switches\n"
    "marked \"multicast\" and \"aggregation\": beside the others, which serve where the switch can't.\n";
static const char usage[] =
    "usage: copse plans TOPO -o FOLDER [options]\n\n"
    "Makes plans for all message sizes: for each collective it solves for the optimum, for few\n"
    "trees, the best rings, double binary tree and direct exchange, searches as 'copse solve\n"
    "--objective' for some sizes, finds by 'copse simulate' which is fastest where, in chunks or\n"
    "packets, and lowers, proves and writes those, each with the sizes that it is for. For the\n"
    "sake of few plans one that is predicted within 1 % of the fastest will do, or 3 % with fewer\n"
    "hops; what that costs is said. The folder is what COPSE_PLAN_DIR and copse_comm_load_plans "
    "take; beside each plan is\n"
    "its schedule, and index.json tells all. It is made beside and renamed at the end, so that a\n"
    "call that is interrupted leaves nothing that loads.\n\n";

const struct copse_command copse_cmd_plans = {
    .name = "plans",
    .does = "make a set of plans for all message sizes",
    .usage = usage,
    .example = "example: copse plans a100-x2 -c allreduce -o plans\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own, .after = columns},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, topology),
                 COPSE_CLI_CHANGE_SECTION(struct options, topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
