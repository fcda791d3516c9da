/*
 * Many schedules of one topology, each solved and verified by itself: --pareto one for each number
 * of trees, --each-failure one for each node that may fail. A failure that a symmetry of the fabric
 * takes to another is solved once; the other's schedule is the image of the first.
 */
#include "cli/solve_many.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schedule/demand.h"
#include "schedule/adapt.h"
#include "topology/symmetry/symmetry.h"
#include "verify/verify.h"

/* ---- --pareto: how good schedules of few trees are ------------------------------------------ */

#define PARETO_MOST 64 /* trees per root, without --k */

struct row {
  int64_t k;
  struct copse_q time_per_GB;
  int trees, height;
  bool best; /* faster than with any fewer trees */
};

struct curve {
  const struct copse_topology *topology;
  struct copse_solve_options options;
  struct copse_q bound;
  int64_t exact_k;
  struct row *rows;
  int n;
};

static copse_status add_row(struct curve *c, int64_t k, struct copse_err *err) {
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds ignored;
  struct row *row = &c->rows[c->n];
  copse_status status;
  c->options.k = k;
  COPSE_TRY(
      copse_cli_solve_checked(c->topology, &c->options, false, &schedule, &ignored, NULL, err));
  *row = (struct row){schedule->k, schedule->time_per_GB, schedule->n_trees,
                      copse_schedule_height(schedule), true};
  if (k == 0) {
    c->bound = schedule->bound.time_per_GB;
    c->exact_k = schedule->k;
  } else {
    c->n++;
  }
out:
  copse_schedule_free(schedule);
  return status;
}

static copse_status trace(struct curve *c, int64_t most, const struct copse_progress *progress,
                          struct copse_err *err) {
  struct row exact;
  COPSE_DO(copse_calloc((size_t)most + 1, sizeof *c->rows, &c->rows, err));
  COPSE_DO(add_row(c, 0, err));
  exact = c->rows[0];
  for (int64_t k = 1; k < exact.k && k <= most; k++) {
    COPSE_DO(add_row(c, k, err));
    copse_progress_report(progress, "k", k, exact.k < most ? exact.k : most);
  }
  c->rows[c->n++] = exact;
  for (int i = 1; i < c->n; i++)
    for (int j = 0; j < i && c->rows[i].best; j++)
      c->rows[i].best = copse_q_cmp(c->rows[i].time_per_GB, c->rows[j].time_per_GB) < 0;
  return COPSE_OK;
}

/* Over the bound, as a part of it. */
static double above(const struct curve *c, const struct row *row) {
  return copse_q_to_double(row->time_per_GB) / copse_q_to_double(c->bound) - 1;
}

static void print_curve(const struct curve *c) {
  printf("%s of %s: bound %s s/GB, %.10g GB/s; the exact optimum is built with k = %" PRId64 "\n",
         copse_collective_name(c->options.collective), c->topology->name,
         COPSE_CLI_FRACTION(c->bound), 1 / copse_q_to_double(c->bound), c->exact_k);
  printf("%8s %22s %14s %10s %8s %7s\n", "k", "s/GB", "GB/s", "above", "trees", "height");
  for (int i = 0; i < c->n; i++) {
    const struct row *row = &c->rows[i];
    printf("%8" PRId64 " %22s %14.10g %8.3f %% %8d %7d%s\n", row->k,
           COPSE_CLI_FRACTION(row->time_per_GB), 1 / copse_q_to_double(row->time_per_GB),
           100 * above(c, row), row->trees, row->height, row->best ? "" : "  (fewer do as well)");
  }
}

static copse_status print_curve_json(const struct curve *c, struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text,
                 "{\"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n"
                 " \"bound_time_per_GB\": \"%s\", \"exact_k\": %" PRId64 ", \"rows\": [",
                 copse_collective_name(c->options.collective), c->topology->n_ranks,
                 c->topology->n_nodes, c->topology->n_links, COPSE_CLI_FRACTION(c->bound),
                 c->exact_k);
  for (int i = 0; i < c->n; i++) {
    const struct row *row = &c->rows[i];
    copse_text_add(&text,
                   "%s\n  {\"k\": %" PRId64
                   ", \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, "
                   "\"above_bound\": %s, \"trees\": %d, \"max_height\": %d, \"pareto\": %s}",
                   i > 0 ? "," : "", row->k, COPSE_CLI_FRACTION(row->time_per_GB),
                   COPSE_CLI_NUMBER(1 / copse_q_to_double(row->time_per_GB)),
                   COPSE_CLI_NUMBER(above(c, row)), row->trees, row->height,
                   COPSE_CLI_BOOL(row->best));
  }
  copse_text_add(&text, "\n ]}\n");
  return copse_cli_print(&text, err);
}

int copse_cli_solve_pareto(struct copse_cli_solve *args, const struct copse_cli_many *how) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, how->progress);
  struct curve c = {.options = args->solve};
  copse_status status;
  c.options.label = copse_cli_topology_label(&args->topology);
  COPSE_TRY(copse_cli_load_topology(&args->topology, &topology, &err));
  c.topology = topology;
  if (topology->n_ranks == 1) {
    status = copse_fail(&err, COPSE_INVALID, "%s has a single rank: nothing moves, and no trees",
                        c.options.label);
    goto out;
  }
  COPSE_TRY(trace(&c, args->solve.k > 0 ? args->solve.k : PARETO_MOST, &progress, &err));
  copse_cli_progress_end(&bar);
  if (how->json)
    status = print_curve_json(&c, &err);
  else
    print_curve(&c);
out:
  if (status != COPSE_OK) copse_cli_progress_end(&bar);
  free(c.rows);
  copse_topology_free(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(args, &err);
}

/* ---- --each-failure ------------------------------------------------------------------------- */

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
  const char *type; /* of the nodes that fail, one at a time: "nic" */
  const struct copse_cli_many *how;
  struct copse_solve_options options;
  struct copse_topology *whole, *base; /* as the file has it; with the arguments' changes */
  struct copse_symmetry alike;         /* of base; none where schedules have no image */
  struct outcome healthy, *outcomes;   /* [n_nodes of base] */
  int n;                               /* failures */
  int64_t *demand;
  struct copse_err *err;
};

static bool fails(const struct job *j, int node) {
  return strcmp(j->base->nodes[node].type, j->type) == 0;
}

/* files */

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
  copse_status status = COPSE_OK;
  o->done = o->solved = true;
  o->time_per_GB = schedule->time_per_GB;
  o->bound = schedule->bound.time_per_GB;
  memcpy(o->sha256, schedule->topology_sha256, sizeof o->sha256);
  if (!j->how->folder || j->options.bound_only) return COPSE_OK;
  if (node < 0)
    copse_text_add(&name, "healthy.json");
  else
    COPSE_TRY(name_file(j, node, &name));
  COPSE_TRY(copse_text_status(&name, j->err));
  COPSE_TRY(copse_cli_write_schedule(j->how->folder, name.data, schedule, j->err));
  o->file = name.data;
  name.data = NULL;
out:
  copse_text_free(&name);
  return status;
}

/* solving */

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
  copse_topology_free(topology);
  if (status != COPSE_OK) {
    copse_schedule_free(*out);
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
    copse_schedule_free(image);
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
  copse_schedule_free(schedule);
  copse_topology_free(left);
  return status;
}

static copse_status solve_healthy(struct job *j) {
  struct copse_schedule *schedule = NULL;
  copse_status status;
  COPSE_TRY(solve(j, j->base, &schedule, j->err));
  status = keep(j, -1, schedule);
out:
  copse_schedule_free(schedule);
  return status;
}

/* the index and the table */

static double slowdown(const struct job *j, const struct outcome *o) {
  return copse_q_to_double(o->time_per_GB) / copse_q_to_double(j->healthy.time_per_GB);
}

static void add_outcome(const struct outcome *o, struct copse_text *text) {
  copse_text_add(text, "\"topology_sha256\": \"%s\"", o->sha256);
  if (o->file) {
    copse_cli_add_string(text, ", \"file\": ", o->file);
  }
  if (o->solved) {
    copse_text_add(text,
                   ", \"time_per_GB\": \"%s\", \"bound_time_per_GB\": \"%s\", \"algbw_GBps\": %s",
                   COPSE_CLI_FRACTION(o->time_per_GB), COPSE_CLI_FRACTION(o->bound),
                   COPSE_CLI_NUMBER(1 / copse_q_to_double(o->time_per_GB)));
  } else {
    copse_cli_add_string(text, ", \"no_solution\": ", o->why.text);
  }
}

static void add_index(const struct job *j, struct copse_text *text) {
  bool first = true;
  copse_text_add(text, "{\"format\": \"copse-failures/1\", \"collective\": \"%s\", \"topology\": ",
                 copse_collective_name(j->options.collective));
  copse_text_add_json_string(text, j->base->name);
  copse_text_add(text, ", \"nranks\": %d,\n \"healthy\": {", j->base->n_ranks);
  add_outcome(&j->healthy, text);
  copse_cli_add_string(text, "},\n \"type\": ", j->type);
  copse_text_add(text, ", \"failures\": [");
  for (int v = 0; v < j->base->n_nodes; v++) {
    const struct outcome *o = &j->outcomes[v];
    if (!o->done) continue;
    copse_text_add(text, "%s\n  {\"down\": ", first ? "" : ",");
    first = false;
    copse_text_add_json_string(text, j->base->nodes[v].id);
    copse_text_add(text, ", ");
    add_outcome(o, text);
    if (o->solved) copse_text_add(text, ", \"slowdown\": %s", COPSE_CLI_NUMBER(slowdown(j, o)));
    if (o->like >= 0) {
      copse_cli_add_string(text, ", \"image_of\": ", j->base->nodes[o->like].id);
    }
    copse_text_add(text, "}");
  }
  copse_text_add(text, "\n ]}\n");
}

/* A single rank that is left has nothing to send. */
static void print_solved(const struct job *j, const struct outcome *o) {
  printf("%18s ", COPSE_CLI_FRACTION(o->time_per_GB));
  if (o->time_per_GB.num > 0)
    printf("%14.10g %10.4f\n", 1 / copse_q_to_double(o->time_per_GB), slowdown(j, o));
  else
    printf("%14s %10s\n", "-", "-");
}

static void print_table(const struct job *j, double seconds) {
  int solved = 0;
  printf("%s of %s: %s s/GB, %.10g GB/s when healthy\n",
         copse_collective_name(j->options.collective), j->base->name,
         COPSE_CLI_FRACTION(j->healthy.time_per_GB), 1 / copse_q_to_double(j->healthy.time_per_GB));
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

static copse_status write_report(struct job *j, double seconds) {
  struct copse_text index = {0};
  copse_status status;
  add_index(j, &index);
  COPSE_TRY(copse_text_status(&index, j->err));
  if (j->how->folder)
    COPSE_TRY(copse_cli_write_in(j->how->folder, "index.json", index.data, index.size, j->err));
  if (j->how->json)
    fputs(index.data, stdout);
  else
    print_table(j, seconds);
out:
  copse_text_free(&index);
  return status;
}

/* all of it */

/* The rotation of hosts that the nodes' names tell, and whatever else is found. */
static copse_status find_alike(struct job *j) {
  struct copse_permutation rotation;
  COPSE_DO(copse_topology_symmetry(j->base, &j->alike, j->err));
  COPSE_DO(copse_topology_host_rotation(j->base, &j->alike.arena, &rotation, j->err));
  if (!rotation.image) return COPSE_OK;
  return copse_symmetry_add(&j->alike, rotation, j->base->n_nodes, 0, j->err);
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
                           "no node of type \"%.40s\" that could fail", j->type);
  else if (j->base->n_ranks == 1)
    status = copse_fail_at(j->err, COPSE_BAD_INPUT, j->options.label, 0,
                           "a single rank: nothing moves, whatever fails");
  else if (j->options.root < 0 && !j->demand && !j->options.no_symmetry)
    status = find_alike(j);
out:
  return status;
}

static copse_status run(struct job *j, const struct copse_progress *progress) {
  double start = copse_clock_seconds();
  int done = 0;
  COPSE_DO(load(j));
  if (j->how->folder) COPSE_DO(copse_cli_make_folder(j->how->folder, j->err));
  COPSE_DO(solve_healthy(j));
  for (int v = 0; v < j->base->n_nodes; v++) {
    if (!fails(j, v)) continue;
    if (!j->outcomes[v].done) COPSE_DO(solve_failure(j, v, progress, &done));
  }
  return write_report(j, copse_clock_seconds() - start);
}

int copse_cli_solve_failures(struct copse_cli_solve *args, const char *type,
                             const struct copse_cli_many *how) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, how->progress);
  struct job j = {.args = args, .type = type, .how = how, .options = args->solve, .err = &err};
  j.options.label = copse_cli_topology_label(&args->topology);
  copse_status status = run(&j, &progress);
  copse_cli_progress_end(&bar);
  for (int v = 0; j.outcomes && v < j.base->n_nodes; v++) free(j.outcomes[v].file);
  free(j.healthy.file);
  free(j.outcomes);
  copse_symmetry_free(&j.alike);
  free(j.demand);
  copse_topology_free(j.whole);
  copse_topology_free(j.base);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(args, &err);
}
