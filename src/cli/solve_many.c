/*
 * Many schedules of one topology: --each-failure one for each node that may fail, solved and
 * verified by itself; --groups, those of groups of ranks that share the fabric at the same time,
 * verified together; --pareto, all proposals. A failure that a symmetry of the fabric takes to
 * another is solved once; the other's schedule is the image of the first.
 */
#include "cli/solve_many.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "predict/policy.h"
#include "predict/predict.h"
#include "predict/propose.h"
#include "schedule/adapt.h"
#include "schedule/solve/solve.h"
#include "topology/symmetry/symmetry.h"
#include "verify/groups.h"
#include "verify/verify.h"

/* The result of one failure, or of the healthy topology. */
struct outcome {
  bool done, solved; /* solved: else `why` */
  int like;          /* node whose failure was solved in its place, or -1 */
  int n_ranks;
  struct copse_q time_per_GB, bound;
  struct copse_err why;
  char sha256[COPSE_SHA256_HEX];
  const char *file; /* its name in the folder, or NULL */
};

struct job {
  struct copse_cli_solve *args;
  const struct copse_cli_many *how;
  struct copse_solve_options options;
  struct copse_cli_work *work; /* its topology: with the arguments' changes */
  double start;
  struct copse_err *err;
  /* --each-failure */
  struct copse_symmetry alike;       /* of base; none where schedules have no image */
  const char **ids;                  /* [n_nodes of base] the image that is being made */
  struct outcome healthy, *outcomes; /* [n_nodes of base] */
  int n_failures, n_done;
  /* --groups */
  struct copse_group *list;
  int n_groups;
  struct copse_groups *groups;
  struct copse_solve_seconds seconds;
  double total;
};

static double rate(struct copse_q time) { return 1 / copse_q_to_double(time); }

static copse_status solve(struct job *j, const struct copse_topology *topology, bool has_tolerance,
                          struct copse_schedule **out, struct copse_err *err) {
  struct copse_solve_seconds ignored;
  return copse_cli_solve_checked(topology, &j->options, has_tolerance, out, &ignored, NULL, err);
}

static copse_status write_schedule(struct job *j, const char *name,
                                   const struct copse_schedule *schedule) {
  const char *path = copse_arena_printf(&j->work->arena, "%s/%s", j->how->folder, name);
  if (!path) return copse_fail_nomem(j->err);
  return copse_file_print(path, copse_schedule_print, schedule, j->err);
}

/* ---- --each-failure ------------------------------------------------------------------------- */

static bool fails(const struct job *j, int node) {
  return strcmp(j->work->topology->nodes[node].type, j->how->each_failure) == 0;
}

/* files */

/* Names a failure's file, "down-h0.nic3.json"; characters that trouble shells are replaced, and the
 * node's number keeps such names apart. NULL when memory ran out. */
static const char *name_file(struct job *j, int node) {
  static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const char *id = j->work->topology->nodes[node].id;
  char *name = copse_arena_printf(&j->work->arena, "down-%s.json", id);
  if (!name || strspn(name, good) == strlen(name)) return name;
  name = copse_arena_printf(&j->work->arena, "down-%s~%d.json", id, node);
  for (char *p = name; p && p < name + strlen("down-") + strlen(id); p++)
    if (!strchr(good, *p)) *p = '_';
  return name;
}

/* Keeps a result; node < 0: the healthy fabric's. */
static copse_status keep(struct job *j, int node, const struct copse_schedule *schedule) {
  struct outcome *o = node < 0 ? &j->healthy : &j->outcomes[node];
  o->done = o->solved = true;
  o->time_per_GB = schedule->time_per_GB;
  o->bound = schedule->bound.time_per_GB;
  o->n_ranks = schedule->n_ranks;
  memcpy(o->sha256, schedule->topology_sha256, sizeof o->sha256);
  if (!j->how->folder || j->options.bound_only) return COPSE_OK;
  o->file = node < 0 ? "healthy.json" : name_file(j, node);
  if (!o->file) return copse_fail_nomem(j->err);
  return write_schedule(j, o->file, schedule);
}

/* solving */

/* Makes what is left of base when this node fails as well. */
static copse_status break_one(const struct job *j, int node, struct copse_topology **out) {
  const struct copse_cli_topology *topology = &j->args->topology;
  struct copse_fault faults[COPSE_CLI_MAX_FAULTS + 1];
  int n = topology->n_faults;
  memcpy(faults, topology->faults, (size_t)n * sizeof *faults);
  faults[n] = (struct copse_fault){j->work->topology->nodes[node].id, COPSE_Q_ZERO};
  return copse_cli_change_topology(topology, j->work->whole, faults, n + 1, out, j->err);
}

/* Makes a schedule for one failure, as `image` makes it one for the failure of node `to`; verified
 * like every other. */
static copse_status turn(struct job *j, int to, const int *image, const struct copse_schedule *from,
                         struct copse_schedule **out) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *topology = NULL;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *made = NULL;
  struct copse_verify_report report;
  *out = NULL;
  COPSE_DO(break_one(j, to, &topology));
  for (int v = 0; v < from->n_nodes; v++)
    j->ids[v] =
        j->work->topology->nodes[image[copse_topology_find(j->work->topology, from->nodes[v])]].id;
  COPSE_DO(copse_schedule_image(from, j->ids, topology, &made, j->err));
  if (!j->options.bound_only) {
    copse_status status = copse_verify_schedule(made, topology, "schedule", &report, j->err);
    if (status == COPSE_REFUTED) j->err->status = status = COPSE_INTERNAL;
    COPSE_DO(status);
  }
  *out = made;
  made = NULL;
  return COPSE_OK;
}

/* Fills in the failures to which automorphisms take the failure of `node`. */
static copse_status fill_orbit(struct job *j, int node, struct copse_schedule *schedule) {
  COPSE_AT_END(copse_orbit_free) struct copse_orbit orbit = {0};
  COPSE_DO(copse_orbit_find(&j->alike, j->work->topology->n_nodes, node, &orbit, j->err));
  if (orbit.n > 1) COPSE_DO(copse_schedule_expand(schedule, j->err));
  for (int i = 1; i < orbit.n; i++) {
    int to = orbit.members[i];
    struct copse_schedule *image;
    if (!fails(j, to) || j->outcomes[to].done) continue;
    COPSE_DO(turn(j, to, orbit.images[i], schedule, &image));
    copse_status status = keep(j, to, image);
    copse_schedule_free(image);
    COPSE_DO(status);
    j->outcomes[to].like = node;
    copse_progress_report(&j->work->progress, "failures", ++j->n_done, j->n_failures);
  }
  return COPSE_OK;
}

static copse_status solve_failure(struct job *j, int node) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *left = NULL;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *schedule = NULL;
  struct copse_err why = COPSE_ERR_INIT;
  struct outcome *o = &j->outcomes[node];
  o->done = true;
  o->like = -1;
  COPSE_DO(break_one(j, node, &left));
  copse_status status = solve(j, left, j->args->has_tolerance, &schedule, &why);
  if (status == COPSE_INFEASIBLE) {
    o->why = why;
    copse_progress_report(&j->work->progress, "failures", ++j->n_done, j->n_failures);
    return copse_topology_sha256(left, o->sha256, j->err);
  }
  if (status != COPSE_OK)
    return copse_fail(j->err, status, "without '%.80s': %s", j->work->topology->nodes[node].id,
                      why.text);
  COPSE_DO(keep(j, node, schedule));
  copse_progress_report(&j->work->progress, "failures", ++j->n_done, j->n_failures);
  return j->alike.n + j->alike.n_others > 0 ? fill_orbit(j, node, schedule) : COPSE_OK;
}

static copse_status solve_healthy(struct job *j) {
  struct copse_schedule *schedule;
  COPSE_DO(solve(j, j->work->topology, j->args->has_tolerance, &schedule, j->err));
  copse_status status = keep(j, -1, schedule);
  copse_schedule_free(schedule);
  return status;
}

/* the index and the table */

static double slowdown(const struct job *j, const struct outcome *o) {
  return copse_q_to_double(o->time_per_GB) / copse_q_to_double(j->healthy.time_per_GB);
}

static void add_outcome(const struct outcome *o, struct copse_text *text) {
  copse_text_add(text, "\"topology_sha256\": \"%s\"", o->sha256);
  if (o->file) copse_text_add(text, ", \"file\": %s", copse_cli_quoted(o->file));
  if (o->solved) {
    copse_text_add(text,
                   ", \"time_per_GB\": \"%s\", \"bound_time_per_GB\": \"%s\", \"algbw_GBps\": %s",
                   COPSE_Q_STRING(o->time_per_GB), COPSE_Q_STRING(o->bound),
                   COPSE_CLI_NUMBER(rate(o->time_per_GB)));
  } else {
    copse_text_add(text, ", \"no_solution\": %s", copse_cli_quoted(o->why.text));
  }
}

static void add_index(const struct job *j, struct copse_text *text) {
  bool first = true;
  copse_text_add(text,
                 COPSE_JSON_HEAD("failures") ", \"collective\": \"%s\", \"topology\": %s, "
                 "\"nranks\": %d,\n \"healthy\": {",
                 copse_collective_name(j->options.collective),
                 copse_cli_quoted(j->work->topology->name), j->work->topology->n_ranks);
  add_outcome(&j->healthy, text);
  copse_text_add(text, "},\n \"type\": %s, \"failures\": [",
                 copse_cli_quoted(j->how->each_failure));
  for (int v = 0; v < j->work->topology->n_nodes; v++) {
    const struct outcome *o = &j->outcomes[v];
    if (!o->done) continue;
    copse_text_add(text, "%s\n  {\"down\": %s, ", first ? "" : ",",
                   copse_cli_quoted(j->work->topology->nodes[v].id));
    first = false;
    add_outcome(o, text);
    if (o->solved) copse_text_add(text, ", \"slowdown\": %s", COPSE_CLI_NUMBER(slowdown(j, o)));
    if (o->like >= 0)
      copse_text_add(text, ", \"image_of\": %s",
                     copse_cli_quoted(j->work->topology->nodes[o->like].id));
    copse_text_add(text, "}");
  }
  copse_text_add(text, "\n ]}\n");
}

/* Prints a result. A single rank that is left has nothing to send. */
static void print_solved(const struct job *j, const struct outcome *o) {
  double algbw = rate(o->time_per_GB);
  printf("%18s ", COPSE_CLI_Q(o->time_per_GB));
  if (o->time_per_GB.num > 0)
    printf("%10.6g %10.6g %10.4f\n", algbw,
           algbw * copse_collective_bus_factor(j->options.collective, o->n_ranks), slowdown(j, o));
  else
    printf("%10s %10s %10s\n", "-", "-", "-");
}

static void print_table(const struct job *j) {
  int solved = 0;
  printf("%s of %s: %s when healthy\n", copse_collective_name(j->options.collective),
         j->work->topology->name,
         COPSE_CLI_RATES(j->healthy.time_per_GB, j->options.collective, j->healthy.n_ranks));
  printf("%-24s %18s %10s %10s %10s\n", "without", "s/GB", "algbw", "busbw", "slowdown");
  for (int v = 0; v < j->work->topology->n_nodes; v++) {
    const struct outcome *o = &j->outcomes[v];
    if (!o->done) continue;
    solved += o->like < 0;
    printf("%-24s ", j->work->topology->nodes[v].id);
    if (o->solved)
      print_solved(j, o);
    else
      printf("no solution: %s\n", o->why.text);
  }
  printf("%d failures, %.3f seconds", j->n_failures, copse_clock_seconds() - j->start);
  if (solved < j->n_failures)
    printf("; %d solved, the others are their images under symmetries of the fabric", solved);
  printf("\n");
}

static copse_status write_report(struct job *j) {
  struct copse_text *index = &j->work->text;
  add_index(j, index);
  COPSE_DO(copse_text_status(index, j->err));
  if (j->how->folder)
    COPSE_DO(copse_cli_write_in(j->how->folder, "index.json", index->data, index->size, j->err));
  copse_cli_progress_end();
  if (j->how->json)
    fputs(index->data, stdout);
  else
    print_table(j);
  return COPSE_OK;
}

/* all of it */

/* Finds the rotation of hosts that the nodes' names show, and whatever else is found. */
static copse_status find_alike(struct job *j) {
  struct copse_permutation rotation;
  COPSE_DO(copse_topology_symmetry(j->work->topology, &j->alike, j->err));
  COPSE_DO(copse_topology_host_rotation(j->work->topology, &j->alike.arena, &rotation, j->err));
  if (!rotation.image) return COPSE_OK;
  return copse_symmetry_add(&j->alike, rotation, j->work->topology->n_nodes, 0, j->err);
}

static copse_status load_failures(struct job *j) {
  const struct copse_cli_topology *topology = &j->args->topology;
  COPSE_DO(copse_cli_load_whole(topology, &j->work->whole, j->err));
  COPSE_DO(copse_cli_change_topology(topology, j->work->whole, topology->faults, topology->n_faults,
                                     &j->work->topology, j->err));
  COPSE_DO(copse_cli_find_root(j->args, j->work->topology, &j->options, j->err));
  COPSE_DO(copse_cli_load_demand(j->args, &j->options, j->work));
  size_t n = (size_t)j->work->topology->n_nodes;
  COPSE_DO(COPSE_ARRAY(&j->work->arena, n, j->outcomes, j->err));
  COPSE_DO(COPSE_ARRAY(&j->work->arena, n, j->ids, j->err));
  for (int v = 0; v < j->work->topology->n_nodes; v++) j->n_failures += fails(j, v);
  if (j->n_failures == 0)
    return copse_fail_at(j->err, COPSE_BAD_INPUT, j->options.label, 0,
                         "no node of type \"%.40s\" that could fail", j->how->each_failure);
  if (j->work->topology->n_ranks == 1)
    return copse_fail_at(j->err, COPSE_BAD_INPUT, j->options.label, 0,
                         "a single rank: nothing moves, whatever fails");
  bool images = j->options.root < 0 && !j->work->demand && !j->options.no_symmetry;
  return images ? find_alike(j) : COPSE_OK;
}

static copse_status solve_failures(struct job *j) {
  COPSE_DO(load_failures(j));
  if (j->how->folder) COPSE_DO(copse_cli_make_folder(j->how->folder, j->err));
  COPSE_DO(solve_healthy(j));
  for (int v = 0; v < j->work->topology->n_nodes; v++)
    if (fails(j, v) && !j->outcomes[v].done) COPSE_DO(solve_failure(j, v));
  return write_report(j);
}

/* ---- --groups -------------------------------------------------------------------------------- */

/* Moves the lists of ranks from `whole`, in which they were listed; some of it may be broken. */
static copse_status move_list(struct job *j) {
  for (int g = 0; g < j->n_groups; g++)
    for (int r = 0; r < j->list[g].n; r++) {
      const char *id = j->work->whole->nodes[j->list[g].nodes[r]].id;
      j->list[g].nodes[r] = copse_topology_find(j->work->topology, id);
      if (j->list[g].nodes[r] < 0)
        return copse_fail_at(j->err, COPSE_BAD_INPUT, j->how->groups, j->list[g].line,
                             "'%.80s' can't be down and in a group", id);
    }
  return COPSE_OK;
}

static copse_status load_groups(struct job *j) {
  struct copse_cli_topology *args = &j->args->topology;
  struct copse_cli_work *w = j->work;
  if (j->args->root)
    return copse_fail(
        j->err, COPSE_INVALID,
        "with --groups the root is a place in each group's list, from 0, not \"%.80s\"",
        j->args->root);
  args->has_groups = true;
  COPSE_DO(copse_cli_load_whole(args, &w->whole, j->err));
  COPSE_DO(copse_file_read(j->how->groups, &w->data, &w->size, j->err));
  COPSE_DO(copse_group_list_parse(copse_file_label(j->how->groups), w->data, w->size, w->whole,
                                  j->options.collective, j->options.root, &j->list, &j->n_groups,
                                  j->err));
  COPSE_DO(copse_cli_change_topology(args, w->whole, args->faults, args->n_faults, &w->topology,
                                     j->err));
  return move_list(j);
}

/* Verifies what was computed: schedules that their own verifier refuses must never reach a file. */
static copse_status check_groups(struct job *j) {
  struct copse_verify_groups_report report;
  struct copse_err why = COPSE_ERR_INIT;
  return copse_cli_own(
      copse_verify_groups(j->groups, j->work->topology, "schedules", &report, &why),
      "the computed schedules fail verification", &why, j->err);
}

static copse_status name_files(struct job *j) {
  for (int g = 0; g < j->n_groups; g++) {
    const char *name = copse_arena_printf(&j->groups->arena, "group-%d.json", g);
    if (!name) return copse_fail_nomem(j->err);
    j->groups->members[g].file = name;
  }
  return COPSE_OK;
}

static copse_status write_groups(struct job *j) {
  struct copse_cli_work *w = j->work;
  COPSE_DO(copse_cli_make_folder(j->how->folder, j->err));
  for (int g = 0; g < j->n_groups; g++) {
    const struct copse_groups_member *it = &j->groups->members[g];
    COPSE_DO(write_schedule(j, it->file, it->schedule));
  }
  COPSE_DO(copse_groups_to_json(j->groups, &w->made, &w->made_size, j->err));
  return copse_cli_write_in(j->how->folder, "index.json", w->made, w->made_size, j->err);
}

static double group_slowdown(const struct job *j, int g) {
  return copse_q_to_double(j->groups->time_per_GB) /
         copse_q_to_double(j->groups->members[g].schedule->bound.time_per_GB);
}

static void print_groups(const struct job *j) {
  printf("%d groups of %s at the same time: %s s/GB, algbw %.6g GB/s each\n", j->n_groups,
         j->work->topology->name, COPSE_CLI_Q(j->groups->time_per_GB),
         rate(j->groups->time_per_GB));
  if (copse_q_eq(j->groups->time_per_GB, j->groups->bound_time_per_GB))
    printf("optimal among all trees and flows of these groups that run together\n");
  else
    printf("at most %.3g %% above the optimum of trees and flows that run together\n",
           100 * (copse_q_to_double(j->groups->time_per_GB) /
                      copse_q_to_double(j->groups->bound_time_per_GB) -
                  1));
  printf("%5s %-14s %5s %12s %12s %10s %6s %6s %7s\n", "group", "collective", "ranks",
         "alone algbw", "alone busbw", "slowdown", "k", "trees", "height");
  for (int g = 0; g < j->n_groups; g++) {
    const struct copse_schedule *s = j->groups->members[g].schedule;
    double algbw = rate(s->bound.time_per_GB);
    printf("%5d %-14s %5d %12.6g %12.6g %10.4f ", g, copse_collective_name(s->collective),
           s->n_ranks, algbw, algbw * copse_collective_bus_factor(s->collective, s->n_ranks),
           group_slowdown(j, g));
    if (j->options.bound_only)
      printf("%6s %6s %7s\n", "-", "-", "-");
    else if (s->collective == COPSE_ALLTOALL)
      printf("%6s %6d %7d\n", "-", s->n_flows, copse_schedule_height(s));
    else
      printf("%6" PRId64 " %6d %7d\n", s->k, s->n_trees, copse_schedule_height(s));
  }
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, total %.3f\n", j->seconds.optimum,
         j->seconds.split, j->seconds.pack, j->total);
}

static void print_group_json(const struct job *j, int g) {
  const struct copse_groups_member *member = &j->groups->members[g];
  const struct copse_schedule *s = member->schedule;
  printf("%s\n  {\"collective\": \"%s\", \"nranks\": %d, ", g > 0 ? "," : "",
         copse_collective_name(s->collective), s->n_ranks);
  if (j->how->folder) printf("\"file\": \"%s\", ", member->file);
  if (!j->options.bound_only)
    printf("\"k\": %" PRId64 ", \"trees\": %d, \"flows\": %d, \"max_height\": %d, ", s->k,
           s->n_trees, s->n_flows, copse_schedule_height(s));
  printf("\"alone_bound_time_per_GB\": \"%s\", \"slowdown\": %s}",
         COPSE_Q_STRING(s->bound.time_per_GB), COPSE_CLI_NUMBER(group_slowdown(j, g)));
}

static void print_groups_json(const struct job *j) {
  struct copse_q time = j->groups->time_per_GB, bound = j->groups->bound_time_per_GB;
  printf(
      "{\"topology\": %s, \"nodes\": %d, \"links\": %d, \"time_per_GB\": \"%s\", \"algbw_GBps\": "
      "%s, "
      "\"bound_time_per_GB\": \"%s\", \"bound_kind\": \"groups\", "
      "\"groups_optimal\": %s,\n \"groups\": [",
      copse_cli_quoted(j->work->topology->name), j->work->topology->n_nodes,
      j->work->topology->n_links, COPSE_Q_STRING(time), COPSE_CLI_NUMBER(rate(time)),
      COPSE_Q_STRING(bound), COPSE_CLI_BOOL(copse_q_eq(time, bound)));
  for (int g = 0; g < j->n_groups; g++) print_group_json(j, g);
  printf(
      "\n ],\n \"seconds\": {\"optimum\": %.6f, \"split\": %.6f, \"pack\": %.6f, "
      "\"total\": %.6f}}\n",
      j->seconds.optimum, j->seconds.split, j->seconds.pack, j->total);
}

static copse_status solve_groups(struct job *j) {
  const struct copse_cli_topology *topology = &j->args->topology;
  struct copse_solve_groups_options options = {.exclude = topology->exclude_others,
                                               .bound_only = j->options.bound_only,
                                               .no_symmetry = j->options.no_symmetry,
                                               .label = j->options.label,
                                               .groups_label = copse_file_label(j->how->groups),
                                               .progress = &j->work->progress};
  COPSE_DO(load_groups(j));
  if (!topology->has_others)
    copse_note(&copse_cli_notes,
               "GPUs forward for groups that they are not in, as switches do; --others exclude "
               "leaves them out");
  COPSE_DO(copse_solve_groups(j->work->topology, j->list, j->n_groups, &options, &j->groups,
                              &j->seconds, j->err));
  COPSE_DO(name_files(j));
  if (!j->options.bound_only) COPSE_DO(check_groups(j));
  if (j->how->folder) COPSE_DO(write_groups(j));
  j->total = copse_clock_seconds() - j->start;
  copse_cli_progress_end();
  (j->how->json ? print_groups_json : print_groups)(j);
  return COPSE_OK;
}

/* ---- all of them ------------------------------------------------------------------------------
 */

static copse_status solve_many(void *options, struct copse_cli_work *w) {
  struct copse_cli_many *how = options;
  struct job j = {.args = how->args,
                  .how = how,
                  .options = how->args->solve,
                  .start = copse_clock_seconds(),
                  .work = w,
                  .err = &w->err};
  w->solved = j.options.label = copse_cli_topology_label(&how->args->topology);
  copse_status status = how->each_failure ? solve_failures(&j) : solve_groups(&j);
  copse_groups_release(j.groups);
  copse_group_list_free(j.list, j.n_groups);
  copse_symmetry_free(&j.alike);
  return status;
}

int copse_cli_solve_many(struct copse_cli_many *how) { return copse_cli_do(solve_many, how); }

/* ---- --pareto ------------------------------------------------------------------------------- */

/*
 * copse solve --pareto: hops against bandwidth. Of the proposals that --objective and plans begin
 * with, and of every number of trees, the table has those that no other beats or equals in both
 * hops and time, and those that are predicted to be the fastest at some message size.
 */

#define MOST_K 64      /* trees per root, without --k */
#define MOST_TIMED_K 16 /* with more they are of interest on the frontier alone */
#define MOST_PIECES 16  /* chunks of a schedule for a size */
#define N_SIZES 11      /* 1 KiB to 1 GiB in powers of 4 */

struct row {
  char name[COPSE_PROPOSAL_NAME]; /* "optimal", "k=2", "rings" */
  int64_t k;                      /* 0: of a baseline, which has no k */
  struct copse_q time_per_GB;
  int trees, height, hops;
  double us[N_SIZES]; /* INFINITY: more than a row before it takes */
  bool listed, best[N_SIZES];
};

struct pareto {
  const struct copse_cli_many *how;
  struct copse_solve_options options;
  struct copse_cli_work *work; /* work->schedule is the exact optimum */
  struct copse_predict_options predicted;
  struct copse_routes routes;
  double least_us[N_SIZES]; /* of all rows */
  struct row *rows;         /* as proposed, then by hops */
  size_t n_rows, rows_capacity;
};

static void free_pareto(struct pareto *j) {
  free(j->rows);
  copse_routes_free(&j->routes);
}

static double bytes_of(int i) { return (double)((uint64_t)1024 << 2 * i); }

/* Returns how far a row is over the bound, as a part of it. */
static double above(const struct pareto *j, const struct row *row) {
  return copse_q_to_double(row->time_per_GB) /
             copse_q_to_double(j->work->schedule->bound.time_per_GB) -
         1;
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* Times a schedule at a size; chunks 0: cut as its objective or the plan says. */
static copse_status time_cut(struct pareto *j, const struct copse_prediction *prediction,
                             const struct copse_schedule *schedule, int size, struct row *row,
                             struct copse_err *err) {
  struct copse_sim_options sim = prediction->sim;
  copse_sim_options_of_schedule(schedule, &sim);
  struct copse_sim_question question = {.dag = &prediction->dag,
                                        .options = &sim,
                                        .unit_bytes = bytes_of(size),
                                        .most_us = fmin(j->least_us[size], row->us[size])};
  if (isinf(question.most_us))
    question.most_us = 0;
  else
    question.most_us *= 1 + CLOSE_TIME;
  sim.quick_part = QUICK_PART;
  COPSE_DO(copse_simulate_all(j->work->topology, &question, 1, err));
  row->us[size] = fmin(row->us[size], question.result.us);
  return COPSE_OK;
}

/* Times a schedule that is made for a size, in which ranks deal short messages to their workers, in
 * several numbers of chunks. */
static copse_status time_for_size(struct pareto *j, struct copse_schedule *schedule, int size,
                                  struct row *row, struct copse_err *err) {
  COPSE_AT_END(copse_prediction_free) struct copse_prediction prediction = {0};
  struct copse_schedule_objective *objective = &schedule->objective;
  objective->bytes = (int64_t)bytes_of(size);
  objective->chunks = 1;
  objective->alpha_occupies = j->predicted.sim.alpha_occupies;
  COPSE_DO(
      copse_q_make(llround(j->predicted.sim.alpha_us * 1e6), 1000000, &objective->alpha_us, err));
  COPSE_DO(copse_predict_schedule(j->work->topology, schedule, &j->predicted, &prediction, err));
  for (; objective->chunks <= MOST_PIECES; objective->chunks *= 2)
    COPSE_DO(time_cut(j, &prediction, schedule, size, row, err));
  return COPSE_OK;
}

/* Times a schedule at all sizes, as it is and as it is lowered for each. */
static copse_status time_row(struct pareto *j, struct copse_schedule *schedule, struct row *row,
                             struct copse_err *err) {
  const struct copse_schedule_objective none = schedule->objective;
  COPSE_AT_END(copse_prediction_free) struct copse_prediction prediction = {0};
  copse_status status = COPSE_OK;
  COPSE_DO(copse_predict_schedule(j->work->topology, schedule, &j->predicted, &prediction, err));
  for (int i = 0; i < N_SIZES; i++) {
    COPSE_DO(time_cut(j, &prediction, schedule, i, row, err));
  }
  for (int i = 0; i < N_SIZES && status == COPSE_OK; i++)
    if (!copse_prediction_is_coarse(&prediction)) status = time_for_size(j, schedule, i, row, err);
  schedule->objective = none;
  for (int i = 0; i < N_SIZES; i++) j->least_us[i] = fmin(j->least_us[i], row->us[i]);
  return status;
}

/* ---- the frontier -------------------------------------------------------------------------- */

/* Whether there is no reason to take b, but for its time at some size, instead of a. */
static bool covers(const struct row *a, const struct row *b) {
  int time = copse_q_cmp(a->time_per_GB, b->time_per_GB);
  if (a->hops > b->hops || time > 0) return false;
  return a->hops < b->hops || time < 0 || a->trees <= b->trees;
}

static bool is_covered(const struct pareto *j, const struct row *row) {
  for (size_t i = 0; i < j->n_rows; i++)
    if (covers(&j->rows[i], row)) return true;
  return false;
}

static copse_status take(void *context, struct copse_schedule *schedule, const char *name,
                         struct copse_err *err) {
  struct pareto *j = context;
  struct row row = {.k = schedule->k,
                    .time_per_GB = schedule->time_per_GB,
                    .trees = schedule->n_trees,
                    .height = copse_schedule_height(schedule),
                    .hops = copse_proposal_hops(schedule)};
  bool timed = strncmp(name, "k=", 2) != 0 || row.k <= MOST_TIMED_K || !is_covered(j, &row);
  if (strcmp(name, COPSE_NEAR_NAME) == 0)
    snprintf(row.name, sizeof row.name, "k=%" PRId64, row.k);
  else
    snprintf(row.name, sizeof row.name, "%s", name);
  for (int i = 0; i < N_SIZES; i++) row.us[i] = INFINITY;
  copse_status status = timed ? time_row(j, schedule, &row, err) : COPSE_OK;
  if (status == COPSE_OK) status = COPSE_GROW(j->rows, j->rows_capacity, j->n_rows + 1, err);
  if (status == COPSE_OK) j->rows[j->n_rows++] = row;
  if (!j->work->schedule)
    j->work->schedule = schedule;
  else
    copse_schedule_free(schedule);
  copse_progress_report(&j->work->progress, "proposals", (int64_t)j->n_rows, 0);
  return status;
}

COPSE_ORDER(by_hops, struct row,
            COPSE_UP(hops) ?: copse_q_cmp(b->time_per_GB, a->time_per_GB) ?: COPSE_UP(trees))

/* Finds at each size the fastest, of those within CLOSE_TIME the one of fewest hops, on the
 * frontier if there is one; and what is to be listed. */
static void find_listed(struct pareto *j) {
  struct row *rows = j->rows;
  for (size_t i = 0; i < j->n_rows; i++) {
    rows[i].listed = true;
    for (size_t b = 0; b < j->n_rows && rows[i].listed; b++)
      rows[i].listed =
          i == b || !covers(&rows[b], &rows[i]) || (i < b && covers(&rows[i], &rows[b]));
  }
  for (int s = 0; s < N_SIZES; s++) {
    struct row *best = NULL;
    for (size_t i = 0; i < j->n_rows; i++) {
      struct row *row = &rows[i];
      if (row->us[s] > j->least_us[s] * (1 + CLOSE_TIME)) continue;
      if (!best || row->hops < best->hops ||
          (row->hops == best->hops && row->listed && !best->listed))
        best = row;
    }
    if (best) best->listed = best->best[s] = true;
  }
  COPSE_SORT(rows, j->n_rows, by_hops);
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Prints the sizes at which a row is best: "1K-64K, 1G". */
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

static void print_rows(const struct pareto *j) {
  const struct copse_schedule *exact = j->work->schedule;
  struct copse_q bound = exact->bound.time_per_GB;
  int width = 10;
  for (size_t i = 0; i < j->n_rows; i++)
    if (j->rows[i].listed && (int)strlen(j->rows[i].name) > width)
      width = (int)strlen(j->rows[i].name);
  printf("%s of %s: bound %s; the exact optimum is built with k = %" PRId64 "\n",
         copse_collective_name(j->options.collective), j->work->topology->name,
         COPSE_CLI_RATES(bound, exact->collective, exact->n_ranks), exact->k);
  printf("%6s  %-*s %8s %7s %12s %10s %10s %10s  %s\n", "hops", width, "schedule", "k", "trees",
         "s/GB", "algbw", "busbw", "above", "fastest at");
  for (size_t i = 0; i < j->n_rows; i++) {
    const struct row *row = &j->rows[i];
    char k[24] = "-";
    if (!row->listed) continue;
    if (row->k > 0) snprintf(k, sizeof k, "%" PRId64, row->k);
    printf("%6d  %-*s %8s %7d %12s %10.6g %10.6g %8.3f %%", row->hops, width, row->name, k,
           row->trees, COPSE_CLI_Q(row->time_per_GB), rate(row->time_per_GB),
           rate(row->time_per_GB) * copse_collective_bus_factor(exact->collective, exact->n_ranks),
           100 * above(j, row));
    print_sizes(row);
  }
}

static void print_rows_json(const struct pareto *j) {
  const struct copse_schedule *exact = j->work->schedule;
  const char *between = "";
  printf(
      "{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n"
      " \"bound_time_per_GB\": \"%s\", \"exact_k\": %" PRId64 ", \"rows\": [",
      copse_cli_quoted(j->work->topology->name), copse_collective_name(j->options.collective),
      j->work->topology->n_ranks, j->work->topology->n_nodes, j->work->topology->n_links,
      COPSE_Q_STRING(exact->bound.time_per_GB), exact->k);
  for (size_t i = 0; i < j->n_rows; i++) {
    const struct row *row = &j->rows[i];
    const char *comma = "";
    if (!row->listed) continue;
    printf("%s\n  {\"schedule\": \"%s\", \"k\": ", between, row->name);
    between = ",";
    printf(row->k > 0 ? "%" PRId64 : "null", row->k);
    printf(
        ", \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"above_bound\": %s, \"trees\": %d, "
        "\"max_height\": %d, \"hops\": %d, \"fastest_at\": [",
        COPSE_Q_STRING(row->time_per_GB), COPSE_CLI_NUMBER(rate(row->time_per_GB)),
        COPSE_CLI_NUMBER(above(j, row)), row->trees, row->height, row->hops);
    for (int s = 0; s < N_SIZES; s++)
      if (row->best[s]) printf("%s%.0f", comma, bytes_of(s)), comma = ", ";
    printf("]}");
  }
  printf("\n ]}\n");
}

/* ---- the whole ----------------------------------------------------------------------------- */

static copse_status solve_pareto(void *options, struct copse_cli_work *w) {
  struct copse_cli_many *how = options;
  COPSE_AT_END(free_pareto)
  struct pareto j = {.how = how, .work = w, .predicted = copse_predict_defaults};
  struct copse_solve_seconds ignored;
  COPSE_DO(copse_cli_begin_solve(how->args, w));
  j.options = how->args->solve;
  if (w->topology->n_ranks == 1)
    return copse_fail(&w->err, COPSE_INVALID, "%s has a single rank: nothing moves, and no trees",
                      j.options.label);
  COPSE_DO(copse_cli_costs(&how->args->topology, how->costs, &j.predicted, &w->err));
  COPSE_DO(copse_predict_routes(w->topology, &j.routes, &j.predicted, &w->err));
  for (int i = 0; i < N_SIZES; i++) j.least_us[i] = INFINITY;
  const struct copse_proposer proposer = {
      .topology = w->topology,
      .solve = &j.options,
      .routes = j.predicted.routes,
      .shared = j.predicted.shared,
      .most_k = j.options.k > 0 ? (int)fmin((double)j.options.k, INT32_MAX) : MOST_K,
      .context = &j,
      .take = take};
  j.options.k = 0;
  COPSE_DO(copse_propose(&proposer, &ignored, &w->err));
  find_listed(&j);
  copse_cli_progress_end();
  (how->json ? print_rows_json : print_rows)(&j);
  return COPSE_OK;
}

int copse_cli_solve_pareto(struct copse_cli_many *how) { return copse_cli_do(solve_pareto, how); }
