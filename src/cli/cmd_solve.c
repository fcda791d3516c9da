/*
 * copse solve TOPO -c COLLECTIVE -o SCHEDULE: the exact optimum and a schedule that reaches it, and
 * what is said of it: the bound, the healthy fabric, predictions. Tables of many schedules are in
 * solve_many.c, groups in solve_groups.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/solve_args.h"
#include "cli/solve_groups.h"
#include "cli/solve_many.h"
#include "predict/candidates.h"
#include "predict/sizes.h"
#include "schedule/demand.h"
#include "view/draw_schedule.h"

/* ---- --objective: the schedule that is fastest at one message size ------------------------- */

struct objective {
  uint64_t bytes; /* 0: throughput, the optimum itself */
  struct copse_size_answer found; /* where bytes is not 0; its schedule is the caller's */
};

/* What a message is that only latency matters to. */
#define LATENCY_BYTES 1024
/* As far as `copse simulate` goes. */
#define MOST_BYTES ((uint64_t)1 << 48)

/* "throughput", "latency" (1 KiB) or a size; false for anything else. */
static bool parse_objective(const char *text, struct objective *out) {
  out->bytes = 0;
  if (strcmp(text, "throughput") == 0) return true;
  if (strcmp(text, "latency") == 0) {
    out->bytes = LATENCY_BYTES;
    return true;
  }
  return copse_cli_parse_size(text, MOST_BYTES, &out->bytes) && out->bytes > 0;
}

/* Nine seconds at most for 64 ranks: what somebody waits for who asks for one size. */
#define OBJECTIVE_WORK 1.8e8

static copse_status solve_objective(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_predict_options *predict,
                                    struct objective *objective, struct copse_schedule **out,
                                    struct copse_solve_seconds *seconds, struct copse_err *err) {
  const struct copse_size_question question = {.solve = options,
                                               .predict = predict,
                                               .bytes = (double)objective->bytes,
                                               .work = OBJECTIVE_WORK};
  copse_status status = copse_solve_for_size(topology, &question, &objective->found, seconds, err);
  *out = objective->found.schedule;
  return status;
}

/* How far from what nothing beats at that size, and what proves it. */
static void print_gap(const struct copse_schedule *s, const struct copse_topology *t, double us) {
  const struct copse_bound_at *at = s->bound_at;
  char gap[COPSE_GAP_TEXT];
  double bound = copse_q_to_double(at->us);
  printf("%s above the bound of %.6g us at %" PRId64 " bytes", copse_gap_text(us, bound, gap),
         bound, at->bytes);
  if (at->kind == COPSE_BOUND_AT_CUT && at->rank >= 0)
    printf(": what must go %s %s\n", at->reversed ? "out of" : "into",
           t->nodes[t->rank_nodes[at->rank]].id);
  else
    printf(": %s\n", at->kind == COPSE_BOUND_AT_LENGTHS  ? "how far all bytes must go"
                     : at->kind == COPSE_BOUND_AT_VOLUME ? "how many messages there must be"
                                                         : "what must cross from part to part");
}

static void print_objective(const struct objective *objective) {
  const struct copse_size_answer *found = &objective->found;
  if (objective->bytes == 0) return;
  printf("fastest of %d at %" PRIu64 " bytes: %s, in %d chunks, predicted %.6g us", found->n_tried,
         objective->bytes, found->name, found->chunks, found->us);
  printf("; without --objective %.6g us\n", found->first_us);
}

static void add_objective(struct copse_text *text, const struct objective *objective) {
  const struct copse_size_answer *found = &objective->found;
  if (objective->bytes == 0) return;
  copse_text_add(text, ",\n \"objective\": {\"bytes\": %" PRIu64 ", \"chosen\": ",
                 objective->bytes);
  copse_text_add_json_string(text, found->name);
  copse_text_add(text, ", \"chunks\": %d, \"tried\": %d, \"predicted_us\": %s", found->chunks,
                 found->n_tried, COPSE_CLI_NUMBER(found->us));
  copse_text_add(text, ", \"without_us\": %s}", COPSE_CLI_NUMBER(found->first_us));
}

/* ---- what is lost to broken parts: the same on the healthy fabric --------------------------- */

struct healthy {
  bool known;      /* false: not asked for, or `why` */
  const char *why; /* NULL, or why there is nothing to compare with */
  int n_ranks;
  struct copse_q time_per_GB;
  double slowdown; /* time of what is left over this; less than 1 where ranks were lost */
};

/* Trees reach the optimum exactly, so the optimum alone will do; the phases of an allreduce may
 * do better than their bounds one after the other. */
static bool bound_is_time(const struct copse_solve_options *o, bool has_tolerance) {
  return o->bound_only || (o->collective != COPSE_ALLREDUCE && o->collective != COPSE_ALLTOALL &&
                           o->k == 0 && !has_tolerance);
}

/*
 * Solves the same on `healthy`, which may have ranks that `broken` lost; a root is the same GPU.
 * A demand for fewer ranks than `healthy` has is not comparable, nor one with no solution there.
 */
static copse_status compare_healthy(const struct copse_topology *healthy,
                                    const struct copse_topology *broken,
                                    const struct copse_solve_options *options, bool has_tolerance,
                                    struct copse_q time_per_GB, struct healthy *out,
                                    struct copse_err *err) {
  struct copse_solve_options like = *options;
  struct copse_solve_seconds ignored;
  struct copse_schedule *schedule = NULL;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status;
  *out = (struct healthy){.n_ranks = healthy->n_ranks};
  if (options->demand && healthy->n_ranks != broken->n_ranks) {
    out->why = "the demand is for the ranks that are left";
    return COPSE_OK;
  }
  like.bound_only = bound_is_time(options, has_tolerance);
  if (options->root >= 0 && options->root < broken->n_ranks) {
    const char *root = broken->nodes[broken->rank_nodes[options->root]].id;
    like.root = healthy->nodes[copse_topology_find(healthy, root)].rank;
  }
  status =
      copse_cli_solve_checked(healthy, &like, has_tolerance, &schedule, &ignored, NULL, &local);
  if (status == COPSE_INFEASIBLE) {
    out->why = "a rank can't be reached there either";
    return COPSE_OK;
  }
  if (status == COPSE_BAD_INPUT) { /* such as a relay that is balanced only without what is down */
    out->why = "no such schedule can be made there";
    return COPSE_OK;
  }
  if (status == COPSE_OVERFLOW || status == COPSE_NOMEM) { /* what was asked for is there */
    out->why = status == COPSE_NOMEM ? "there is too little memory for it"
                                     : "its numbers don't fit into 64 bits";
    return COPSE_OK;
  }
  if (status != COPSE_OK) return copse_fail(err, status, "the healthy fabric: %s", local.text);
  out->time_per_GB = schedule->time_per_GB;
  out->known = schedule->time_per_GB.num > 0; /* a single rank: nothing moves */
  if (out->known)
    out->slowdown = copse_q_to_double(time_per_GB) / copse_q_to_double(schedule->time_per_GB);
  copse_schedule_free(schedule);
  return COPSE_OK;
}

static void print_healthy(const struct healthy *h) {
  if (h->known)
    printf("healthy: %s s/GB, %.10g GB/s on %d ranks; what is left takes %.4g times as long\n",
           COPSE_CLI_FRACTION(h->time_per_GB), 1 / copse_q_to_double(h->time_per_GB), h->n_ranks,
           h->slowdown);
  else if (h->why)
    printf("healthy: no comparison: %s\n", h->why);
}

static void add_healthy(struct copse_text *text, const struct healthy *h) {
  if (!h->known && !h->why) return;
  copse_text_add(text, ",\n \"healthy\": {\"nranks\": %d", h->n_ranks);
  if (h->known) {
    copse_text_add(text, ", \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"slowdown\": %s",
                   COPSE_CLI_FRACTION(h->time_per_GB),
                   COPSE_CLI_NUMBER(1 / copse_q_to_double(h->time_per_GB)),
                   COPSE_CLI_NUMBER(h->slowdown));
  } else {
    copse_cli_add_string(text, ", \"not_comparable\": ", h->why);
  }
  copse_text_add(text, "}");
}

/* ---- --predict: times by message size, beside today's algorithms ---------------------------- */

#define N_SIZES 4 /* 64 KiB, 1 MiB, 64 MiB, 1 GiB */

struct prediction {
  int n; /* 0: nothing was asked for */
  struct copse_prediction columns[COPSE_MAX_PREDICTIONS];
  double us[COPSE_MAX_PREDICTIONS][N_SIZES];
};

static const double sizes[N_SIZES] = {65536, 1048576, 67108864, 1073741824};
static const char *const size_names[N_SIZES] = {"64 KiB", "1 MiB", "64 MiB", "1 GiB"};

/* Of an expanded schedule and all baselines of its collective. */
static copse_status predict(const struct copse_schedule *schedule,
                            const struct copse_topology *topology,
                            const struct copse_predict_options *options, struct prediction *out,
                            struct copse_err *err) {
  COPSE_DO(copse_predict_all(topology, schedule, options, out->columns, &out->n, err));
  return copse_predictions_time(topology, out->columns, out->n, sizes, N_SIZES, false,
                                &out->us[0][0], err);
}

static void free_prediction(struct prediction *prediction) {
  copse_predictions_free(prediction->columns, prediction->n);
}

static void print_prediction(const struct prediction *prediction,
                             const struct copse_topology *topology) {
  const struct copse_prediction *own = prediction->columns;
  char detour[COPSE_DETOUR_TEXT];
  if (prediction->n == 0) return;
  if (own->instead[0]) printf("predicted without a plan: %s\n", own->instead);
  if (copse_prediction_detour(own, topology, detour)) printf("%s\n", detour);
  printf("predicted us");
  for (int c = 0; c < prediction->n; c++)
    if (copse_prediction_exists(&prediction->columns[c]))
      printf("%14s", prediction->columns[c].name);
  printf("\n");
  for (int i = 0; i < N_SIZES; i++) {
    printf("%12s", size_names[i]);
    for (int c = 0; c < prediction->n; c++)
      if (copse_prediction_exists(&prediction->columns[c]))
        printf("%14.*f", prediction->us[c][i] < 1e5 ? 2 : 0, prediction->us[c][i]);
    printf("\n");
  }
}

static void add_prediction(struct copse_text *text, const struct prediction *prediction) {
  bool first = true;
  if (prediction->n == 0) return;
  copse_text_add(text, ",\n \"predicted_us\": {");
  for (int c = 0; c < prediction->n; c++) {
    if (!copse_prediction_exists(&prediction->columns[c])) continue;
    copse_text_add(text, "%s\n  \"%s\": {", first ? "" : ",", prediction->columns[c].name);
    first = false;
    for (int i = 0; i < N_SIZES; i++)
      copse_text_add(text, "%s\"%.0f\": %s", i > 0 ? ", " : "", sizes[i],
                     COPSE_CLI_NUMBER(prediction->us[c][i]));
    copse_text_add(text, "}");
  }
  copse_text_add(text, "}");
}

/* ---- the report ----------------------------------------------------------------------------- */

struct seconds {
  double read, verify, write, total;
  struct copse_solve_seconds solve;
};

struct report {
  const struct copse_topology *topology;
  const struct copse_schedule *schedule; /* as it is written: a compact one is not expanded */
  struct healthy healthy;
  struct prediction prediction;
  const struct objective *objective;
  bool bound_only;
  struct seconds seconds;
};

static void add_cut(struct copse_text *text, const struct copse_schedule *s, const int *cut,
                    int n) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) copse_cli_add_string(text, i > 0 ? ", " : "", s->nodes[cut[i]]);
  copse_text_add(text, "]");
}

static const char *const bound_kinds[] = {"cut", "phases", "lengths", "forests"};

static int count_paths(const struct copse_schedule *s) {
  int n = 0;
  for (int f = 0; f < s->n_flows; f++) n += s->flows[f].n_paths;
  return n;
}

static copse_status print_json(const struct report *r, struct copse_err *err) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  struct copse_text text = {0};
  copse_text_add(&text, "{\"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n",
                 copse_collective_name(s->collective), t->n_ranks, t->n_nodes, t->n_links);
  copse_text_add(&text,
                 " \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"bound_time_per_GB\": \"%s\", "
                 "\"bound_kind\": \"%s\",\n",
                 COPSE_CLI_FRACTION(s->time_per_GB), COPSE_CLI_NUMBER(copse_schedule_algbw(s)),
                 COPSE_CLI_FRACTION(s->bound.time_per_GB), bound_kinds[s->bound.kind]);
  if (r->bound_only)
    copse_text_add(&text, " \"k\": null, \"trees\": null, \"max_height\": null,\n");
  else if (s->collective == COPSE_ALLTOALL)
    copse_text_add(&text,
                   " \"k\": null, \"trees\": null, \"flows\": %d, \"images\": %" PRId64
                   ", \"paths\": %d, "
                   "\"max_height\": %d,\n",
                   s->n_flows, copse_schedule_images(s), count_paths(s), copse_schedule_height(s));
  else
    copse_text_add(&text,
                   " \"k\": %" PRId64 ", \"trees\": %d, \"images\": %" PRId64
                   ", \"max_height\": %d, \"mean_height\": %.6g,\n",
                   s->k, s->n_trees, copse_schedule_images(s), copse_schedule_height(s),
                   copse_schedule_mean_height(s));
  if (sec->solve.orbits > 0) copse_text_add(&text, " \"orbits\": %d,\n", sec->solve.orbits);
  copse_text_add(&text, " \"cut\": ");
  add_cut(&text, s, s->bound.cut, s->bound.n_cut);
  if (s->bound.kind == COPSE_BOUND_PHASES) {
    copse_text_add(&text, ",\n \"reduce_cut\": ");
    add_cut(&text, s, s->bound.reduce_cut, s->bound.n_reduce_cut);
  }
  add_healthy(&text, &r->healthy);
  add_objective(&text, r->objective);
  if (s->bound_at)
    copse_text_add(&text, ",\n \"bound_at\": {\"bytes\": %" PRId64 ", \"us\": \"%s\"}",
                   s->bound_at->bytes, COPSE_CLI_FRACTION(s->bound_at->us));
  add_prediction(&text, &r->prediction);
  copse_text_add(
      &text,
      ",\n \"seconds\": {\"read\": %.6f, \"optimum\": %.6f, \"split\": %.6f, \"pack\": "
      "%.6f, \"verify\": %.6f, \"write\": %.6f, \"total\": %.6f},\n \"peak_MiB\": %ld}\n",
      sec->read, sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->write,
      sec->total, copse_peak_mib());
  return copse_cli_print(&text, err);
}

/* The smaller side of the cut, by ranks: what a reader looks for on the machine. */
static void print_cut(const struct copse_topology *t, const struct copse_schedule *s) {
  char *inside = calloc((size_t)t->n_nodes, 1);
  int ranks_inside = 0, shown = 0;
  if (!inside) return;
  for (int i = 0; i < s->bound.n_cut; i++) inside[s->bound.cut[i]] = 1;
  for (int r = 0; r < t->n_ranks; r++) ranks_inside += inside[t->rank_nodes[r]];
  bool show_inside = 2 * ranks_inside <= t->n_ranks;
  int ranks = show_inside ? ranks_inside : t->n_ranks - ranks_inside;
  bool reduces = copse_collective_reduces(s->collective) && s->collective != COPSE_ALLREDUCE;
  struct copse_q through = COPSE_Q_ZERO;
  bool exact = true;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    bool crosses = reduces ? !inside[l->src] && inside[l->dst] : inside[l->src] && !inside[l->dst];
    if (crosses && copse_q_add(through, l->bandwidth, &through, NULL) != COPSE_OK) exact = false;
  }
  printf("bottleneck: the links %s", show_inside == reduces ? "into" : "out of");
  for (int r = 0; r < t->n_ranks; r++) {
    if ((bool)inside[t->rank_nodes[r]] != show_inside) continue;
    if (shown < 8) printf("%s%s", shown ? ", " : " ", t->nodes[t->rank_nodes[r]].id);
    shown++;
  }
  if (shown > 8) printf(", ... (%d ranks)", ranks);
  if (exact) printf(": %.10g GB/s", copse_q_to_double(through));
  printf("\n");
  free(inside);
}

/* The links that bound an alltoall: those of the greatest length. */
static void print_busy_lengths(const struct copse_topology *t, const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  int n = 0, first = -1;
  for (int i = 0; i < s->bound.n_lengths; i++)
    if (copse_q_cmp(s->bound.lengths[i].length, most) > 0) most = s->bound.lengths[i].length;
  for (int i = 0; i < s->bound.n_lengths; i++) {
    if (!copse_q_eq(s->bound.lengths[i].length, most)) continue;
    if (n++ == 0) first = i;
  }
  if (first < 0) return;
  printf("bottleneck: %s -> %s", s->nodes[s->bound.lengths[first].src],
         s->nodes[s->bound.lengths[first].dst]);
  if (n > 1) printf(" and %d links like it", n - 1);
  printf(" (%d of %d links count in the bound)\n", s->bound.n_lengths, t->n_links);
}

/* How good it is, and by which bound. */
static void print_standing(const struct copse_schedule *s, bool bound_only) {
  char bound[COPSE_Q_TEXT];
  bool equal = copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
  copse_q_text(s->bound.time_per_GB, bound);
  if (s->bound.kind == COPSE_BOUND_PHASES && equal)
    printf("reduce_scatter and allgather, equal shares, each at its bound%s\n",
           bound_only ? "; overlapped they may be faster" : "");
  else if (s->bound.kind == COPSE_BOUND_FORESTS && equal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else if (equal)
    printf("optimal: equal to the bound\n");
  else if (s->collective == COPSE_ALLREDUCE && s->bound.kind == COPSE_BOUND_CUT)
    printf(
        "reduce_scatter and allgather load different links, so they are faster than in turn;\n"
        "no allreduce is faster than %s s/GB\n",
        bound);
  else
    printf("bound: %s s/GB; this is %.3g %% above it\n", bound,
           100 * (copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1));
}

static void print_flows(const struct report *r) {
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  print_busy_lengths(r->topology, s);
  if (!r->bound_only)
    printf("%d flows%s over %d paths, at most %d hops\n", s->n_flows,
           s->n_rotations > 0 ? " of base ranks" : "", count_paths(s), copse_schedule_height(s));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under a rotation of order %d\n", s->rotations[0].order);
  printf("seconds: flow %.3f, paths %.3f, verify %.3f, total %.3f\n", sec->solve.optimum,
         sec->solve.pack, sec->verify, sec->total);
}

static void print_trees(const struct report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  if (s->bound.kind == COPSE_BOUND_FORESTS)
    printf("bottleneck: %d cuts, of both phases\n", s->bound.n_cuts);
  else
    print_cut(t, s);
  if (sec->solve.orbits > 0 && sec->solve.orbits < t->n_ranks)
    printf("symmetry: the %d ranks are of %d kind%s\n", t->n_ranks, sec->solve.orbits,
           sec->solve.orbits == 1 ? "" : "s");
  if (!r->bound_only)
    printf("k = %" PRId64 ", %d trees%s, at most %d hops high, %.3g on average\n", s->k, s->n_trees,
           s->n_rotations > 0 ? " of base ranks" : "", copse_schedule_height(s),
           copse_schedule_mean_height(s));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under %d symmetr%s: %" PRId64 " trees in all\n",
           s->n_rotations, s->n_rotations == 1 ? "y" : "ies",
           s->n_trees * copse_schedule_images(s));
  if (s->n_copying + s->n_adding > 0)
    printf("the time counts on %d switches to copy, on %d to add, which no plan can ask of them\n",
           s->n_copying, s->n_adding);
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, verify %.3f, total %.3f\n",
         sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->total);
}

static void print_text(const struct report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  char rate[COPSE_RATE_TEXT];
  printf("%s of %s: %s s/GB, %s\n", copse_collective_name(s->collective), t->name,
         COPSE_CLI_FRACTION(s->time_per_GB), copse_rate_text(s->time_per_GB, 10, rate));
  if (t->n_ranks == 1) {
    printf("a single rank: nothing moves\n");
  } else {
    print_standing(s, r->bound_only);
    print_healthy(&r->healthy);
    if (s->collective == COPSE_ALLTOALL)
      print_flows(r);
    else
      print_trees(r);
  }
  print_objective(r->objective);
  if (s->bound_at) print_gap(s, t, r->objective->found.us);
  print_prediction(&r->prediction, t);
}

/* ---- one schedule --------------------------------------------------------------------------- */

struct options {
  struct copse_cli_solve what;
  const char *output, *draw, *each_failure, *groups;
  struct objective objective;
  struct copse_cli_costs costs;
  struct copse_predict_options predicted; /* by the costs and the profile */
  int tree;                               /* to draw; -1: the loads */
  bool json, progress, pareto, predict, stages;
};

/* Who looks on while the solver works. */
struct watcher {
  struct copse_cli_progress bar; /* first: what a progress function gets */
  const struct copse_topology *topology;
};

/* Links by their source, a line each: "gpu0 -> gpu1 1, gpu2 1". */
static void print_stage(void *ctx, const char *graph, int64_t k, const struct copse_net_link *links,
                        int n) {
  const struct copse_topology *t = ((const struct watcher *)ctx)->topology;
  printf("%s, %lld tree%s per root:\n", graph, (long long)k, k == 1 ? "" : "s");
  for (int v = 0; v < t->n_nodes; v++) {
    const char *before = " -> ";
    for (int i = 0; i < n; i++) {
      if (links[i].src != v) continue;
      if (before[1] == '-') printf("  %s", t->nodes[v].id);
      printf("%s%s %lld", before, t->nodes[links[i].dst].id, (long long)links[i].capacity);
      before = ", ";
    }
    if (before[1] != '-') putchar('\n');
  }
}

/* Expands a compact schedule. */
static copse_status draw(const struct options *o, const struct copse_topology *topology,
                         const struct copse_arrangement *arrangement,
                         struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_text text = {0};
  copse_status status;
  COPSE_TRY(copse_schedule_expand(schedule, err));
  if (o->tree >= 0)
    COPSE_TRY(
        copse_schedule_draw_part(schedule, topology, arrangement, o->tree, false, &text, err));
  else
    COPSE_TRY(copse_schedule_draw_load(schedule, topology, arrangement, false, &text, err));
  status = copse_file_write(o->draw, text.data, text.size, err);
out:
  copse_text_free(&text);
  return status;
}

/* Solves, and writes what was found. The schedule stays as it was written. */
static copse_status solve_and_write(struct options *o, const struct copse_topology *topology,
                                    struct copse_schedule **out, struct seconds *sec,
                                    struct copse_err *err) {
  const struct copse_solve_options *solve = &o->what.solve;
  char *text = NULL;
  size_t size;
  copse_status status;
  if (o->objective.bytes > 0)
    COPSE_TRY(
        solve_objective(topology, solve, &o->predicted, &o->objective, out, &sec->solve, err));
  else
    COPSE_TRY(copse_cli_solve_checked(topology, solve, o->what.has_tolerance, out, &sec->solve,
                                      &sec->verify, err));
  if (o->objective.bytes > 0)
    COPSE_TRY(copse_bound_state(topology, *out, (double)o->objective.bytes,
                                o->predicted.sim.alpha_us, err));
  COPSE_TRY(copse_cli_note_equal_shares(topology, solve, err));
  double mark = copse_clock_seconds();
  if (o->output) {
    COPSE_TRY(copse_schedule_to_json(*out, &text, &size, err));
    COPSE_TRY(copse_file_write(o->output, text, size, err));
  }
  sec->write = copse_clock_seconds() - mark;
  if (solve->compact && (*out)->n_rotations == 0)
    copse_note(&copse_cli_notes,
               "no trees of base ranks were found that reach the optimum under the symmetries of "
               "%s; all trees are listed",
               solve->label);
out:
  free(text);
  return status;
}

static copse_status print_report(const struct options *o, const struct report *report,
                                 struct copse_err *err) {
  if (o->json) return print_json(report, err);
  if (!copse_cli_is_stdout(o->output) && !copse_cli_is_stdout(o->draw)) print_text(report);
  return COPSE_OK;
}

static int solve_one(struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL, *whole = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_arrangement *arrangement = NULL;
  struct copse_solve_options *solve = &o->what.solve;
  struct report report = {.objective = &o->objective, .bound_only = solve->bound_only};
  struct watcher watcher;
  struct copse_progress progress = copse_cli_progress_start(&watcher.bar, o->progress);
  int64_t *demand = NULL;
  copse_status status;
  double start = copse_clock_seconds(), mark;
  solve->label = copse_cli_topology_label(&o->what.topology);
  solve->progress = &progress;
  solve->notes = &copse_cli_notes;
  COPSE_TRY(copse_cli_load_topologies(&o->what.topology, &topology, &whole, &err));
  o->predicted = copse_predict_defaults;
  COPSE_TRY(copse_cli_costs(&o->what.topology, &o->costs, &o->predicted, &err));
  watcher.topology = topology;
  if (o->stages) progress.stage = print_stage;
  if (o->what.demand)
    COPSE_TRY(copse_demand_load(o->what.demand, topology->n_ranks, &demand, &err));
  solve->demand = demand;
  mark = copse_clock_seconds();
  report.seconds.read = mark - start;
  if (o->draw) COPSE_TRY(copse_arrangement_make(topology, &arrangement, &err));
  start += copse_clock_seconds() - mark; /* a picture is no part of solving */
  COPSE_TRY(solve_and_write(o, topology, &schedule, &report.seconds, &err));
  report.seconds.total = copse_clock_seconds() - start;
  if (whole)
    COPSE_TRY(compare_healthy(whole, topology, solve, o->what.has_tolerance, schedule->time_per_GB,
                              &report.healthy, &err));
  copse_cli_progress_end(&watcher.bar);
  struct copse_schedule as_written = *schedule; /* for the report: its lists are not expanded */
  report.topology = topology;
  report.schedule = &as_written;
  if (o->predict) {
    COPSE_TRY(copse_schedule_expand(schedule, &err));
    COPSE_TRY(predict(schedule, topology, &o->predicted, &report.prediction, &err));
  }
  if (o->draw) COPSE_TRY(draw(o, topology, arrangement, schedule, &err));
  status = print_report(o, &report, &err);
out:
  free_prediction(&report.prediction);
  if (status != COPSE_OK) copse_cli_progress_end(&watcher.bar);
  free(demand);
  copse_arrangement_free(arrangement);
  copse_schedule_free(schedule);
  copse_topology_free(topology);
  copse_topology_free(whole);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(&o->what, &err);
}

/* ---- options -------------------------------------------------------------------------------- */

static int check_failures(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  if (o->draw || o->pareto || o->predict || o->objective.bytes > 0 ||
      copse_cli_is_stdout(o->output))
    return copse_cli_usage("solve",
                           "--each-failure makes many schedules: leave out --draw, --objective, "
                           "--predict and --pareto, and give a folder to -o");
  if (strcmp(o->each_failure, "gpu") == 0 &&
      (what->topology.ranks || what->demand || what->solve.root >= 0))
    return copse_cli_usage("solve",
                           "the failure of a gpu moves ranks: leave out --ranks, --demand and "
                           "--root");
  return COPSE_EXIT_DONE;
}

static int check_groups(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  const struct copse_solve_options *solve = &what->solve;
  bool other = o->draw || o->pareto || o->each_failure || what->topology.ranks || what->demand ||
               o->predict || o->objective.bytes > 0;
  if (other || copse_cli_is_stdout(o->output) || what->has_tolerance || solve->k > 0 ||
      solve->no_forward || solve->in_network || solve->compact)
    return copse_cli_usage("solve",
                           "--groups makes a schedule for each: leave out --ranks, --k, "
                           "--tolerance, --demand, --no-forward, --in-network, --compact, --draw, "
                           "--objective, --predict, --pareto and --each-failure, and give a "
                           "folder to -o");
  if (what->solve.bound_only && o->output)
    return copse_cli_usage("solve", "--bound-only makes no schedules: leave out -o");
  return COPSE_EXIT_DONE;
}

static int check(const struct options *o) {
  if (o->stages &&
      (o->groups || o->each_failure || o->pareto || o->objective.bytes > 0 || o->json ||
       o->what.solve.collective == COPSE_ALLTOALL || o->what.solve.bound_only ||
       copse_cli_is_stdout(o->output) || copse_cli_is_stdout(o->draw)))
    return copse_cli_usage(
        "solve",
        "--stages prints the graphs that one schedule's trees come from: leave out "
        "alltoall, --groups, --each-failure, --pareto, --objective, --bound-only, "
        "--json, -o - and --draw -");
  if (o->groups) return check_groups(o);
  if (o->each_failure) return check_failures(o);
  if (o->pareto && (o->what.solve.collective == COPSE_ALLTOALL || o->what.has_tolerance ||
                    o->what.solve.bound_only || o->output || o->draw))
    return copse_cli_usage("solve",
                           "--pareto makes a table about trees: leave out alltoall, --tolerance, "
                           "--bound-only, -o and --draw");
  if (o->pareto && (o->what.solve.in_network || o->what.solve.compact))
    return copse_cli_usage("solve",
                           "--pareto counts the trees of each rank, and no switch copies for them: "
                           "leave out --in-network and --compact");
  if (o->what.solve.bound_only && (o->output || o->draw || o->predict || o->what.solve.k > 0))
    return copse_cli_usage(
        "solve", "--bound-only makes no schedule: leave out -o, --draw, --predict and --k");
  if (o->pareto && (o->predict || o->objective.bytes > 0))
    return copse_cli_usage("solve",
                           "--predict and --objective are for one schedule: leave out --pareto");
  if (o->objective.bytes > 0 && o->what.solve.bound_only)
    return copse_cli_usage("solve", "--objective chooses among schedules: leave out --bound-only");
  if (o->objective.bytes > 0 && o->what.solve.compact)
    return copse_cli_usage("solve", "--objective lists all trees: leave out --compact");
  if ((o->objective.bytes > 0 || o->predict) && o->what.solve.in_network)
    return copse_cli_usage("solve",
                           "--objective and --predict are for trees that no switch copies for, as "
                           "plans have them: leave out --in-network");
  if (o->tree >= 0 && !o->draw) return copse_cli_usage("solve", "--tree is for --draw");
  if (o->json + copse_cli_is_stdout(o->output) + copse_cli_is_stdout(o->draw) > 1)
    return copse_cli_usage("solve",
                           "of --json, -o - and --draw - only one can have standard output");
  return COPSE_EXIT_DONE;
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  int bad = copse_cli_solve_check(&o->what, "solve", n_left, left);
  if (!bad) bad = check(o);
  if (bad) return bad;
  const struct copse_cli_many many = {o->output, o->json, o->progress};
  if (o->each_failure) return copse_cli_solve_failures(&o->what, o->each_failure, &many);
  if (o->groups) return copse_cli_solve_groups(&o->what, o->groups, &many);
  return o->pareto ? copse_cli_solve_pareto(&o->what, &many) : solve_one(o);
}

static int take_objective(void *options, const char *command, char *value) {
  if (parse_objective(value, &((struct options *)options)->objective)) return COPSE_EXIT_DONE;
  return copse_cli_usage(command, "--objective must be throughput, latency or a size such as 64K");
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const char *const objectives[] = {"throughput", "latency", NULL};
static const struct copse_option own[] = {
    {"--bound-only", 'b', NULL, "the optimum and its cut, no trees", TO(what.solve.bound_only)},
    {"--pareto", 0, NULL,
     "a table instead of a schedule: the best time of k trees per root, for\n"
     "each k up to the optimum's, at most 64 or --k K",
     TO(pareto)},
    {"--each-failure", 0, "TYPE",
     "solve also for the failure of each single node of a type: nic, switch\n"
     "...; with -o FOLDER healthy.json, down-ID.json, index.json",
     TO(each_failure)},
    {"--groups", 0, "FILE",
     "schedules for groups of ranks that run at the same time, a list of ranks\n"
     "a line; with -o FOLDER group-0.json ..., index.json",
     TO(groups)},
    {"--objective", 0, "O",
     "throughput (the default), latency or a message size such as 64K: the\n"
     "fastest schedule there by 'copse simulate' that a search of some\n"
     "seconds finds; the file says in how many chunks",
     .words = objectives, .take = take_objective},
    {"--predict", 0, NULL,
     "also the predicted times of 64 KiB, 1 MiB, 64 MiB and 1 GiB, beside\n"
     "ring, double binary tree and direct exchange (see 'copse simulate')",
     TO(predict)},
    {"--stages", 0, NULL, "also the network and the split graph on the way to the trees",
     TO(stages)},
    {"--output", 'o', "FILE", "where to write the schedule (- for standard output)", TO(output)},
    {"--draw", 0, "FILE",
     "a picture of the links' loads as SVG: the bottleneck, the cut; laid\n"
     "out by Graphviz (the program 'dot'), at most 2500 nodes",
     TO(draw)},
    {"--tree", 0, "I", "draw tree I (from 0) instead, of an alltoall what rank I sends", TO(tree),
     COPSE_OPTION_RANGE(0, INT32_MAX), .must = "a tree's number, from 0"},
    {"--json", 'j', NULL, "the report as one JSON object", TO(json)},
    COPSE_OPTION_PROGRESS(struct options),
    {0}};

static void begin(void *options) {
  *(struct options *)options =
      (struct options){.what = COPSE_CLI_SOLVE_INIT, .costs = COPSE_CLI_COSTS_INIT, .tree = -1};
}

const struct copse_command copse_cmd_solve = {
    .name = "solve",
    .does = "compute an exactly optimal schedule",
    .usage =
        "usage: copse solve TOPO -c COLLECTIVE [-o SCHEDULE.json] [options]\n\n"
        "Computes an exactly optimal schedule and the cut that proves the optimum. The\n"
        "schedule is verified before it is written.\n\n",
    .example =
        "\nexample: copse solve topologies/a100-x2.json -c allreduce -o a100-x2.allreduce.json\n",
    .takes_topology = true,
    .sections = {COPSE_CLI_SOLVE_SECTION(struct options, what),
                 {.column = 22, .options = own},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, what.topology),
                 COPSE_CLI_CHANGE_SECTION(struct options, what.topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
