/*
 * copse solve --groups: reads the list, solves for the largest rate that all groups reach together,
 * checks the schedules with each other, and writes them with an index.
 */
#include "cli/solve_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "schedule/solve/solve.h"
#include "verify/groups.h"

struct job {
  struct copse_cli_solve *args;
  const char *file; /* schedule/groups.h: the list of groups */
  const struct copse_cli_many *how;
  struct copse_topology *topology;
  struct copse_group *list;
  int n;
  struct copse_groups *groups;
  struct copse_solve_seconds seconds;
  double total;
  struct copse_err *err;
};

/* ---- input --------------------------------------------------------------------------------- */

/* Ranks were listed in `whole`; some of it may be broken. */
static copse_status move_list(struct job *j, const struct copse_topology *whole) {
  for (int g = 0; g < j->n; g++)
    for (int r = 0; r < j->list[g].n; r++) {
      const char *id = whole->nodes[j->list[g].nodes[r]].id;
      j->list[g].nodes[r] = copse_topology_find(j->topology, id);
      if (j->list[g].nodes[r] < 0)
        return copse_fail_at(j->err, COPSE_BAD_INPUT, j->file, j->list[g].line,
                             "'%.80s' can't be down and in a group", id);
    }
  return COPSE_OK;
}

static copse_status load(struct job *j) {
  struct copse_cli_topology *args = &j->args->topology;
  struct copse_topology *whole = NULL;
  char *data = NULL;
  size_t size;
  copse_status status;
  args->has_groups = true;
  COPSE_TRY(copse_cli_load_whole(args, &whole, j->err));
  COPSE_TRY(copse_file_read(j->file, &data, &size, j->err));
  COPSE_TRY(copse_group_list_parse(copse_file_label(j->file), data, size, whole,
                                   j->args->solve.collective, j->args->solve.root, &j->list, &j->n,
                                   j->err));
  if (args->n_faults == 0) {
    j->topology = whole;
    whole = NULL;
    goto out;
  }
  COPSE_TRY(
      copse_cli_change_topology(args, whole, args->faults, args->n_faults, &j->topology, j->err));
  status = move_list(j, whole);
out:
  free(data);
  copse_topology_free(whole);
  return status;
}

/* ---- solving ------------------------------------------------------------------------------- */

/* Schedules that their own verifier refuses must never reach a file. */
static copse_status self_check(struct job *j) {
  struct copse_verify_groups_report report;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status = copse_verify_groups(j->groups, j->topology, "schedules", &report, &local);
  if (status == COPSE_OK) return COPSE_OK;
  return copse_fail(j->err, status == COPSE_REFUTED ? COPSE_INTERNAL : status,
                    "the computed schedules fail verification: %s", local.text);
}

static copse_status name_files(struct job *j) {
  for (int g = 0; g < j->n; g++) {
    char name[40];
    snprintf(name, sizeof name, "group-%d.json", g);
    j->groups->members[g].file = copse_arena_strdup(&j->groups->arena, name);
    if (!j->groups->members[g].file) return copse_fail_nomem(j->err);
  }
  return COPSE_OK;
}

static copse_status write_all(struct job *j) {
  char *text = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_cli_make_folder(j->how->folder, j->err));
  for (int g = 0; g < j->n; g++) {
    const struct copse_groups_member *it = &j->groups->members[g];
    COPSE_TRY(copse_cli_write_schedule(j->how->folder, it->file, it->schedule, j->err));
  }
  COPSE_TRY(copse_groups_to_json(j->groups, &text, &size, j->err));
  COPSE_TRY(copse_cli_write_in(j->how->folder, "index.json", text, size, j->err));
out:
  free(text);
  return status;
}

/* ---- the report ----------------------------------------------------------------------------- */

static double rate(struct copse_q time) { return 1 / copse_q_to_double(time); }

static double slowdown(const struct job *j, int g) {
  return copse_q_to_double(j->groups->time_per_GB) /
         copse_q_to_double(j->groups->members[g].schedule->bound.time_per_GB);
}

static void print_text(const struct job *j) {
  printf("%d groups of %s at the same time: %s s/GB, %.10g GB/s each\n", j->n, j->topology->name,
         COPSE_CLI_FRACTION(j->groups->time_per_GB), rate(j->groups->time_per_GB));
  if (copse_q_eq(j->groups->time_per_GB, j->groups->bound_time_per_GB))
    printf("optimal among all trees and flows of these groups that run together\n");
  else
    printf("at most %.3g %% above the optimum of trees and flows that run together\n",
           100 * (copse_q_to_double(j->groups->time_per_GB) /
                      copse_q_to_double(j->groups->bound_time_per_GB) -
                  1));
  printf("%5s %-14s %5s %14s %10s %6s %6s %7s\n", "group", "collective", "ranks", "alone GB/s",
         "slowdown", "k", "trees", "height");
  for (int g = 0; g < j->n; g++) {
    const struct copse_schedule *s = j->groups->members[g].schedule;
    printf("%5d %-14s %5d %14.10g %10.4f ", g, copse_collective_name(s->collective), s->n_ranks,
           rate(s->bound.time_per_GB), slowdown(j, g));
    if (j->args->solve.bound_only)
      printf("%6s %6s %7s\n", "-", "-", "-");
    else if (s->collective == COPSE_ALLTOALL)
      printf("%6s %6d %7d\n", "-", s->n_flows, copse_schedule_height(s));
    else
      printf("%6" PRId64 " %6d %7d\n", s->k, s->n_trees, copse_schedule_height(s));
  }
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, total %.3f\n", j->seconds.optimum,
         j->seconds.split, j->seconds.pack, j->total);
}

static void add_group(const struct job *j, int g, struct copse_text *text) {
  const struct copse_groups_member *member = &j->groups->members[g];
  const struct copse_schedule *s = member->schedule;
  copse_text_add(text, "%s\n  {\"collective\": \"%s\", \"nranks\": %d, ", g > 0 ? "," : "",
                 copse_collective_name(s->collective), s->n_ranks);
  if (j->how->folder) copse_text_add(text, "\"file\": \"%s\", ", member->file);
  if (!j->args->solve.bound_only)
    copse_text_add(text, "\"k\": %" PRId64 ", \"trees\": %d, \"flows\": %d, \"max_height\": %d, ",
                   s->k, s->n_trees, s->n_flows, copse_schedule_height(s));
  copse_text_add(text, "\"alone_bound_time_per_GB\": \"%s\", \"slowdown\": %s}",
                 COPSE_CLI_FRACTION(s->bound.time_per_GB), COPSE_CLI_NUMBER(slowdown(j, g)));
}

static copse_status print_json(const struct job *j) {
  struct copse_q time = j->groups->time_per_GB, bound = j->groups->bound_time_per_GB;
  struct copse_text text = {0};
  copse_text_add(&text,
                 "{\"nodes\": %d, \"links\": %d, \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, "
                 "\"bound_time_per_GB\": \"%s\", \"bound_kind\": \"groups\", "
                 "\"groups_optimal\": %s,\n \"groups\": [",
                 j->topology->n_nodes, j->topology->n_links, COPSE_CLI_FRACTION(time),
                 COPSE_CLI_NUMBER(rate(time)), COPSE_CLI_FRACTION(bound),
                 COPSE_CLI_BOOL(copse_q_eq(time, bound)));
  for (int g = 0; g < j->n; g++) add_group(j, g, &text);
  copse_text_add(&text,
                 "\n ],\n \"seconds\": {\"optimum\": %.6f, \"split\": %.6f, \"pack\": %.6f, "
                 "\"total\": %.6f}}\n",
                 j->seconds.optimum, j->seconds.split, j->seconds.pack, j->total);
  return copse_cli_print(&text, j->err);
}

static copse_status run(struct job *j, struct copse_cli_progress *bar,
                        const struct copse_progress *progress) {
  double start = copse_clock_seconds();
  const struct copse_cli_topology *topology = &j->args->topology;
  struct copse_solve_groups_options options = {.exclude = topology->exclude_others,
                                               .bound_only = j->args->solve.bound_only,
                                               .no_symmetry = j->args->solve.no_symmetry,
                                               .label = copse_cli_topology_label(topology),
                                               .groups_label = copse_file_label(j->file),
                                               .progress = progress};
  copse_status status;
  COPSE_TRY(load(j));
  if (!topology->has_others)
    copse_note(&copse_cli_notes,
               "GPUs forward for groups that they are not in, as switches do; --others exclude "
               "leaves them out");
  COPSE_TRY(
      copse_solve_groups(j->topology, j->list, j->n, &options, &j->groups, &j->seconds, j->err));
  COPSE_TRY(name_files(j));
  if (!j->args->solve.bound_only) COPSE_TRY(self_check(j));
  if (j->how->folder) COPSE_TRY(write_all(j));
  j->total = copse_clock_seconds() - start;
  copse_cli_progress_end(bar);
  if (j->how->json)
    status = print_json(j);
  else
    print_text(j);
out:
  return status;
}

int copse_cli_solve_groups(struct copse_cli_solve *args, const char *file,
                           const struct copse_cli_many *how) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, how->progress);
  struct job j = {.args = args, .file = file, .how = how, .err = &err};
  copse_status status = run(&j, &bar, &progress);
  if (status != COPSE_OK) copse_cli_progress_end(&bar);
  copse_groups_release(j.groups);
  copse_group_list_free(j.list, j.n);
  copse_topology_free(j.topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(args, &err);
}
