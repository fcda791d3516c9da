#include "cli/solve_failures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/types.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/folder.h"
#include "cli/solve_checked.h"
#include "schedule/demand.h"
#include "schedule/adapt.h"
#include "verify/verify.h"
#include "topology/symmetry/symmetry.h"

/* One failure, or none: what came of it. */
struct outcome {
  bool done, solved; /* solved: else `why` */
  int like;          /* node whose failure was solved in its place, or -1 */
  struct copse_q time_per_GB, bound;
  struct copse_err why;
  char sha256[COPSE_SHA256_HEX];
  char *file; /* its name in the folder, or NULL */
};

struct job {
  const struct copse_cli_solve *args;
  const struct copse_cli_failures *what;
  struct copse_solve_options options;
  struct copse_topology *whole, *base; /* as the file has it; with the arguments' changes */
  struct copse_symmetry alike;         /* of base; none where schedules have no image */
  struct outcome healthy, *outcomes;   /* [n_nodes of base] */
  int n;                               /* failures */
  int64_t *demand;
  struct copse_err *err;
};

static bool fails(const struct job *j, int node) {
  return strcmp(j->base->nodes[node].type, j->what->type) == 0;
}

/* ---- files ----------------------------------------------------------------------------- */

/* "down-h0.nic3.json"; characters that trouble shells are replaced, and the node's number keeps
 * such names apart. */
static copse_status name_file(struct job *j, int node, struct copse_text *name) {
  static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const char *id = j->base->nodes[node].id;
  bool plain = strspn(id, good) == strlen(id);
  copse_text_add(name, "down-");
  for (const char *p = id; *p; p++) copse_text_append(name, strchr(good, *p) ? p : "_", 1);
  if (!plain) copse_text_add(name, "~%d", node);
  copse_text_add(name, ".json");
  return copse_text_status(name, j->err);
}

/* node < 0: the healthy fabric. */
static copse_status keep(struct job *j, int node, const struct copse_schedule *schedule) {
  struct outcome *o = node < 0 ? &j->healthy : &j->outcomes[node];
  struct copse_text name = {0};
  char *text = NULL;
  size_t size;
  copse_status status = COPSE_OK;
  o->done = o->solved = true;
  o->time_per_GB = schedule->time_per_GB;
  o->bound = schedule->bound.time_per_GB;
  memcpy(o->sha256, schedule->topology_sha256, sizeof o->sha256);
  if (!j->what->folder || j->options.bound_only) return COPSE_OK;
  if (node < 0)
    copse_text_add(&name, "healthy.json");
  else
    COPSE_TRY(name_file(j, node, &name));
  COPSE_TRY(copse_text_status(&name, j->err));
  COPSE_TRY(copse_schedule_to_json(schedule, &text, &size, j->err));
  COPSE_TRY(copse_cli_write_in(j->what->folder, name.data, text, size, j->err));
  o->file = name.data;
  name.data = NULL;
out:
  copse_text_free(&name);
  free(text);
  return status;
}

/* ---- solving --------------------------------------------------------------------------- */

/* What is left of base when this node fails as well. */
static copse_status break_one(const struct job *j, int node, struct copse_topology **out) {
  const struct copse_cli_topology *topology = &j->args->topology;
  struct copse_fault faults[COPSE_CLI_MAX_FAULTS + 1];
  int n = topology->n_faults;
  memcpy(faults, topology->faults, (size_t)n * sizeof *faults);
  faults[n] = (struct copse_fault){j->base->nodes[node].id, COPSE_Q_ZERO};
  return copse_cli_change_topology(topology, j->whole, faults, n + 1, out, j->err);
}

static copse_status solve(struct job *j, const struct copse_topology *topology,
                          struct copse_schedule **out, struct copse_err *err) {
  struct copse_solve_seconds ignored;
  return copse_cli_solve_checked(topology, &j->options, j->args->has_tolerance, out, &ignored, NULL,
                                 err);
}

/* A schedule for one failure, as `image` makes it one for the failure of node `to`; verified like
 * every other. */
static copse_status turn(struct job *j, int to, const int *image, const struct copse_schedule *from,
                         struct copse_schedule **out) {
  struct copse_topology *topology = NULL;
  struct copse_verify_report report;
  const char **ids = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(break_one(j, to, &topology));
  COPSE_TRY(copse_calloc((size_t)from->n_nodes, sizeof *ids, &ids, j->err));
  for (int v = 0; v < from->n_nodes; v++)
    ids[v] = j->base->nodes[image[copse_topology_find(j->base, from->nodes[v])]].id;
  COPSE_TRY(copse_schedule_image(from, ids, topology, out, j->err));
  if (j->options.bound_only) goto out;
  status = copse_verify_schedule(*out, topology, "schedule", &report, j->err);
  if (status == COPSE_REFUTED) j->err->status = status = COPSE_INTERNAL;
out:
  free(ids);
  copse_topology_release(topology);
  if (status != COPSE_OK) {
    copse_schedule_release(*out);
    *out = NULL;
  }
  return status;
}

/* All failures that automorphisms take that of `node` to. */
static copse_status fill_orbit(struct job *j, int node, struct copse_schedule *schedule,
                               const struct copse_progress *progress, int *done) {
  struct copse_orbit orbit = {0};
  copse_status status;
  COPSE_TRY(copse_orbit_find(&j->alike, j->base->n_nodes, node, &orbit, j->err));
  if (orbit.n > 1) COPSE_TRY(copse_schedule_expand(schedule, j->err));
  for (int i = 1; i < orbit.n; i++) {
    int to = orbit.members[i];
    struct copse_schedule *image;
    if (!fails(j, to) || j->outcomes[to].done) continue;
    COPSE_TRY(turn(j, to, orbit.images[i], schedule, &image));
    status = keep(j, to, image);
    copse_schedule_release(image);
    COPSE_TRY(status);
    j->outcomes[to].like = node;
    copse_progress_report(progress, "failures", ++*done, j->n);
  }
out:
  copse_orbit_free(&orbit);
  return status;
}

static copse_status solve_failure(struct job *j, int node, const struct copse_progress *progress,
                                  int *done) {
  struct copse_topology *left = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_err why = COPSE_ERR_INIT;
  struct outcome *o = &j->outcomes[node];
  copse_status status;
  o->done = true;
  o->like = -1;
  COPSE_TRY(break_one(j, node, &left));
  status = solve(j, left, &schedule, &why);
  if (status == COPSE_INFEASIBLE) {
    o->why = why;
    status = copse_topology_sha256(left, o->sha256, j->err);
    copse_progress_report(progress, "failures", ++*done, j->n);
    goto out;
  }
  if (status != COPSE_OK) {
    status = copse_fail(j->err, status, "without '%.80s': %s", j->base->nodes[node].id, why.text);
    goto out;
  }
  COPSE_TRY(keep(j, node, schedule));
  copse_progress_report(progress, "failures", ++*done, j->n);
  if (j->alike.n + j->alike.n_others > 0) COPSE_TRY(fill_orbit(j, node, schedule, progress, done));
out:
  copse_schedule_release(schedule);
  copse_topology_release(left);
  return status;
}

static copse_status solve_healthy(struct job *j) {
  struct copse_schedule *schedule = NULL;
  copse_status status;
  COPSE_TRY(solve(j, j->base, &schedule, j->err));
  status = keep(j, -1, schedule);
out:
  copse_schedule_release(schedule);
  return status;
}

/* ---- what is told ---------------------------------------------------------------------- */

static double slowdown(const struct job *j, const struct outcome *o) {
  return copse_q_to_double(o->time_per_GB) / copse_q_to_double(j->healthy.time_per_GB);
}

static void add_outcome(const struct outcome *o, struct copse_text *text) {
  char q[COPSE_Q_TEXT];
  copse_text_add(text, "\"topology_sha256\": \"%s\"", o->sha256);
  if (o->file) {
    copse_text_add(text, ", \"file\": ");
    copse_text_add_json_string(text, o->file);
  }
  if (o->solved) {
    copse_text_add(text, ", \"time_per_GB\": \"%s\"", copse_q_text(o->time_per_GB, q));
    copse_text_add(text, ", \"bound_time_per_GB\": \"%s\"", copse_q_text(o->bound, q));
    copse_text_add(text, ", \"algbw_GBps\": ");
    copse_text_add_json_number(text, 1 / copse_q_to_double(o->time_per_GB));
  } else {
    copse_text_add(text, ", \"no_solution\": ");
    copse_text_add_json_string(text, o->why.text);
  }
}

static void add_index(const struct job *j, struct copse_text *text) {
  bool first = true;
  copse_text_add(text, "{\"format\": \"copse-failures/1\", \"collective\": \"%s\", \"topology\": ",
                 copse_collective_name(j->options.collective));
  copse_text_add_json_string(text, j->base->name);
  copse_text_add(text, ", \"nranks\": %d,\n \"healthy\": {", j->base->n_ranks);
  add_outcome(&j->healthy, text);
  copse_text_add(text, "},\n \"type\": ");
  copse_text_add_json_string(text, j->what->type);
  copse_text_add(text, ", \"failures\": [");
  for (int v = 0; v < j->base->n_nodes; v++) {
    const struct outcome *o = &j->outcomes[v];
    if (!o->done) continue;
    copse_text_add(text, "%s\n  {\"down\": ", first ? "" : ",");
    first = false;
    copse_text_add_json_string(text, j->base->nodes[v].id);
    copse_text_add(text, ", ");
    add_outcome(o, text);
    if (o->solved) {
      copse_text_add(text, ", \"slowdown\": ");
      copse_text_add_json_number(text, slowdown(j, o));
    }
    if (o->like >= 0) {
      copse_text_add(text, ", \"image_of\": ");
      copse_text_add_json_string(text, j->base->nodes[o->like].id);
    }
    copse_text_add(text, "}");
  }
  copse_text_add(text, "\n ]}\n");
}

/* A single rank that is left has nothing to send. */
static void print_solved(const struct job *j, const struct outcome *o) {
  char q[COPSE_Q_TEXT];
  printf("%18s ", copse_q_text(o->time_per_GB, q));
  if (o->time_per_GB.num > 0)
    printf("%14.10g %10.4f\n", 1 / copse_q_to_double(o->time_per_GB), slowdown(j, o));
  else
    printf("%14s %10s\n", "-", "-");
}

static void print_table(const struct job *j, double seconds) {
  char q[COPSE_Q_TEXT];
  int solved = 0;
  printf("%s of %s: %s s/GB, %.10g GB/s when healthy\n",
         copse_collective_name(j->options.collective), j->base->name,
         copse_q_text(j->healthy.time_per_GB, q), 1 / copse_q_to_double(j->healthy.time_per_GB));
  printf("%-24s %18s %14s %10s\n", "without", "s/GB", "GB/s", "slowdown");
  for (int v = 0; v < j->base->n_nodes; v++) {
    const struct outcome *o = &j->outcomes[v];
    if (!o->done) continue;
    solved += o->like < 0;
    printf("%-24s ", j->base->nodes[v].id);
    if (o->solved)
      print_solved(j, o);
    else
      printf("no solution: %s\n", o->why.text);
  }
  printf("%d failures, %.3f seconds", j->n, seconds);
  if (solved < j->n)
    printf("; %d solved, the others are their images under symmetries of the fabric", solved);
  printf("\n");
}

static copse_status tell(struct job *j, double seconds) {
  struct copse_text index = {0};
  copse_status status;
  add_index(j, &index);
  COPSE_TRY(copse_text_status(&index, j->err));
  if (j->what->folder)
    COPSE_TRY(copse_cli_write_in(j->what->folder, "index.json", index.data, index.size, j->err));
  if (j->what->json)
    fputs(index.data, stdout);
  else
    print_table(j, seconds);
out:
  copse_text_free(&index);
  return status;
}

/* ---- all of it ------------------------------------------------------------------------- */

/* The rotation of hosts that the nodes' names tell, and whatever else is found. */
static copse_status find_alike(struct job *j) {
  struct copse_permutation rotation;
  copse_status status;
  COPSE_TRY(copse_topology_symmetry(j->base, &j->alike, j->err));
  COPSE_TRY(copse_topology_host_rotation(j->base, &rotation, j->err));
  if (rotation.image) status = copse_symmetry_add(&j->alike, rotation, j->err);
out:
  return status;
}

static copse_status load(struct job *j) {
  const struct copse_cli_topology *topology = &j->args->topology;
  copse_status status;
  COPSE_TRY(copse_cli_load_whole(topology, &j->whole, j->err));
  COPSE_TRY(copse_cli_change_topology(topology, j->whole, topology->faults, topology->n_faults,
                                      &j->base, j->err));
  if (j->args->demand)
    COPSE_TRY(copse_demand_load(j->args->demand, j->base->n_ranks, &j->demand, j->err));
  j->options.demand = j->demand;
  COPSE_TRY(copse_calloc((size_t)j->base->n_nodes, sizeof *j->outcomes, &j->outcomes, j->err));
  for (int v = 0; v < j->base->n_nodes; v++) j->n += fails(j, v);
  if (j->n == 0)
    status = copse_fail_at(j->err, COPSE_BAD_INPUT, j->options.label, 0,
                           "no node of type \"%.40s\" that could fail", j->what->type);
  else if (j->base->n_ranks == 1)
    status = copse_fail_at(j->err, COPSE_BAD_INPUT, j->options.label, 0,
                           "a single rank: nothing moves, whatever fails");
  else if (j->options.root < 0 && !j->demand && !j->options.no_symmetry)
    status = find_alike(j);
out:
  return status;
}

static copse_status run(struct job *j, const struct copse_progress *progress) {
  copse_status status;
  double start = copse_clock_seconds();
  int done = 0;
  COPSE_TRY(load(j));
  if (j->what->folder) COPSE_TRY(copse_cli_make_folder(j->what->folder, j->err));
  COPSE_TRY(solve_healthy(j));
  for (int v = 0; v < j->base->n_nodes; v++) {
    if (!fails(j, v)) continue;
    if (!j->outcomes[v].done) COPSE_TRY(solve_failure(j, v, progress, &done));
  }
  status = tell(j, copse_clock_seconds() - start);
out:
  return status;
}

int copse_cli_solve_failures(struct copse_cli_solve *args,
                             const struct copse_cli_failures *failures) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, failures->progress);
  struct job j = {.args = args, .what = failures, .options = args->solve, .err = &err};
  j.options.label = copse_cli_topology_label(&args->topology);
  copse_status status = run(&j, &progress);
  copse_cli_progress_end(&bar);
  for (int v = 0; j.outcomes && v < j.base->n_nodes; v++) free(j.outcomes[v].file);
  free(j.healthy.file);
  free(j.outcomes);
  copse_symmetry_free(&j.alike);
  free(j.demand);
  copse_topology_release(j.whole);
  copse_topology_release(j.base);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(args, &err);
}
