/*
 * copse solve TOPO -c COLLECTIVE -o SCHEDULE: the exact optimum and a schedule that reaches it, and
 * what is said of it: the bound, the healthy fabric, predictions. Many schedules at once are in
 * solve_many.c.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/solve_args.h"
#include "cli/options.h"
#include "cli/policy.h"
#include "cli/solve_many.h"
#include "predict/policy.h"
#include "predict/predict.h"
#include "predict/sizes.h"
#include "schedule/loads.h"
#include "view/draw_schedule.h"

/* ---- --objective: the schedule that is fastest at one message size ------------------------- */

struct objective {
  uint64_t bytes;                 /* 0: throughput, the optimum itself */
  struct copse_q tolerance;       /* for the sake of fewer trees */
  struct copse_size_answer found; /* where bytes is not 0; its schedule is the caller's */
  double routes_us; /* > 0: no trees on the fabric's own routes are faster, and that is more than
                       the bound */
};

/* What a message is that only latency matters to. */
#define LATENCY_BYTES 1024
#define MOST_BYTES ((uint64_t)1 << 48) /* as far as `copse simulate` goes */

static copse_status solve_objective(const struct copse_topology *topology,
                                    const struct copse_cli_solve *what,
                                    const struct copse_predict_options *predict,
                                    struct objective *objective, struct copse_schedule **out,
                                    struct copse_solve_seconds *seconds, struct copse_err *err) {
  objective->tolerance = what->has_tolerance ? what->solve.tolerance : COPSE_NEAR_OPTIMUM;
  const struct copse_size_question question = {.solve = &what->solve,
                                               .predict = predict,
                                               .bytes = (double)objective->bytes,
                                               .tolerance = objective->tolerance,
                                               .work = COPSE_SIZES_WORK(topology->n_ranks)};
  copse_status status = copse_solve_for_size(topology, &question, &objective->found, seconds, err);
  *out = objective->found.schedule;
  return status;
}

/* Finds the bound of trees on the fabric's own routes, on which what is found is predicted too. */
static copse_status bound_on_routes(struct objective *o,
                                    const struct copse_predict_options *predict,
                                    struct copse_cli_work *w) {
  COPSE_AT_END(copse_prediction_free) struct copse_prediction it = {0};
  struct copse_q time;
  COPSE_DO(copse_predict_schedule(w->topology, w->schedule, predict, &it, &w->err));
  COPSE_DO(copse_bound_on_routes(w->topology, w->schedule, it.runs_per_GB, &time, &w->err));
  o->routes_us = 1e-3 * copse_q_to_double(time) * (double)o->bytes;
  return COPSE_OK;
}

/* Prints what fewer hops and trees than the fastest's cost, and what they may. */
static void print_price(const struct objective *objective) {
  const struct copse_size_answer *found = &objective->found;
  bool hops = found->hops<found->fastest_hops, trees = found->us> found->least_us * (1 + SAME_TIME);
  double part = copse_q_to_double(objective->tolerance);
  if (found->us <= found->fastest_us * (1 + SAME_TIME)) return;
  printf("the fastest found takes %.6g us, with %d hop%s", found->fastest_us, found->fastest_hops,
         COPSE_S(found->fastest_hops));
  if (found->fastest_trees > 0)
    printf(" and %d tree%s; this one has %d and %d", found->fastest_trees,
           COPSE_S(found->fastest_trees), found->hops, found->schedule->n_trees);
  else
    printf("; this one has %d", found->hops);
  printf(" and takes %.2g %% longer", 100 * (found->us / found->fastest_us - 1));
  if (hops) printf(", up to %g %% for fewer hops", 100 * MODEL_ERROR);
  if (trees) printf(", up to %g %% (--tolerance) for fewer trees", 100 * part);
  if (hops && trees) printf(", %g %% for both", 100 * fmax(part, MODEL_ERROR));
  printf("\n");
}

static void print_objective(const struct objective *objective) {
  const struct copse_size_answer *found = &objective->found;
  if (objective->bytes == 0) return;
  printf("fastest of %d at %" PRIu64 " bytes: %s, in ", found->n_tried, objective->bytes,
         found->name);
  if (found->chunks > 0)
    printf("%d chunk%s", found->chunks, COPSE_S(found->chunks));
  else
    printf("chunks as by default");
  printf(", predicted %.6g us", found->us);
  printf("; without --objective %.6g us\n", found->first_us);
  if (objective->routes_us > 0)
    printf(
        "%s above the %.6g us that trees on the fabric's own routes take at least, by bandwidth "
        "alone\n",
        copse_gap_text(found->us, objective->routes_us, (char[COPSE_GAP_TEXT]){0}),
        objective->routes_us);
  print_price(objective);
}

static void print_objective_json(const struct objective *objective) {
  const struct copse_size_answer *found = &objective->found;
  if (objective->bytes == 0) return;
  printf(",\n \"objective\": {\"bytes\": %" PRIu64
         ", \"chosen\": %s, \"chunks\": %d, \"tried\": %d",
         objective->bytes, copse_cli_quoted(found->name), found->chunks, found->n_tried);
  printf(", \"predicted_us\": %s, \"without_us\": %s", COPSE_CLI_NUMBER(found->us),
         COPSE_CLI_NUMBER(found->first_us));
  printf(", \"tolerance\": \"%s\", \"fastest_us\": %s, \"fastest_trees\": %d",
         COPSE_Q_STRING(objective->tolerance), COPSE_CLI_NUMBER(found->fastest_us),
         found->fastest_trees);
  printf(", \"hops\": %d, \"fastest_hops\": %d", found->hops, found->fastest_hops);
  if (objective->routes_us > 0)
    printf(", \"routes_bound_us\": %s", COPSE_CLI_NUMBER(objective->routes_us));
  printf("}");
}

/* ---- what is lost to broken parts: the same on the healthy fabric --------------------------- */

struct healthy {
  bool known;      /* false: not asked for, or `why` */
  const char *why; /* NULL, or why there is nothing to compare with */
  copse_collective collective;
  int n_ranks;
  struct copse_q time_per_GB;
  double slowdown; /* time of what is left over this; less than 1 where ranks were lost */
};

/* Whether the optimum alone will do, as trees reach it exactly; the phases of an allreduce may do
 * better than their bounds one after the other. */
static bool bound_is_time(const struct copse_solve_options *o, bool has_tolerance) {
  return o->bound_only || (o->collective != COPSE_ALLREDUCE && o->collective != COPSE_ALLTOALL &&
                           o->k == 0 && !has_tolerance);
}

/* Returns why a failure of the healthy fabric leaves what was asked for as good as it is; else
 * NULL. */
static const char *why_not_comparable(copse_status status) {
  switch (status) {
    case COPSE_INFEASIBLE: return "a rank can't be reached there either";
    /* such as a relay that is balanced only without what is down */
    case COPSE_BAD_INPUT: return "no such schedule can be made there";
    case COPSE_NOMEM: return "there is too little memory for it";
    case COPSE_OVERFLOW: return "its numbers don't fit into 64 bits";
    default: return NULL;
  }
}

/*
 * Solves the same on `healthy`, which may have ranks that `broken` lost; a root is the same GPU.
 * A demand for fewer ranks than `healthy` has is not comparable, nor one with no solution there.
 */
static copse_status compare_healthy(const struct copse_topology *healthy,
                                    const struct copse_topology *broken,
                                    const struct copse_solve_options *options, bool has_tolerance,
                                    const struct copse_schedule *made, struct healthy *out,
                                    struct copse_err *err) {
  struct copse_solve_options like = *options;
  struct copse_solve_seconds ignored;
  struct copse_schedule *schedule = NULL;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status;
  *out = (struct healthy){.collective = options->collective, .n_ranks = healthy->n_ranks};
  if (options->demand && healthy->n_ranks != broken->n_ranks) {
    out->why = "the demand is for the ranks that are left";
    return COPSE_OK;
  }
  like.healthy = NULL;
  like.notes = NULL; /* the same were made for what is left */
  like.bound_only = bound_is_time(options, has_tolerance);
  like.compact = made->n_rotations > 0; /* its time is all that counts: no trees are listed */
  if (options->root >= 0 && options->root < broken->n_ranks) {
    const char *root = broken->nodes[broken->rank_nodes[options->root]].id;
    like.root = healthy->nodes[copse_topology_find(healthy, root)].rank;
  }
  status =
      copse_cli_solve_checked(healthy, &like, has_tolerance, &schedule, &ignored, NULL, &local);
  out->why = why_not_comparable(status);
  if (out->why) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "the healthy fabric: %s", local.text);
  out->time_per_GB = schedule->time_per_GB;
  out->known = schedule->time_per_GB.num > 0; /* a single rank: nothing moves */
  if (out->known)
    out->slowdown = copse_q_to_double(made->time_per_GB) / copse_q_to_double(schedule->time_per_GB);
  copse_schedule_free(schedule);
  return COPSE_OK;
}

static void print_healthy(const struct healthy *h) {
  if (h->known)
    printf("healthy: %s on %d ranks; what is left takes %.4g times as long\n",
           COPSE_CLI_RATES(h->time_per_GB, h->collective, h->n_ranks), h->n_ranks, h->slowdown);
  else if (h->why)
    printf("healthy: no comparison: %s\n", h->why);
}

static void print_healthy_json(const struct healthy *h) {
  if (!h->known && !h->why) return;
  printf(",\n \"healthy\": {\"nranks\": %d", h->n_ranks);
  if (h->known)
    printf(", \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"slowdown\": %s}",
           COPSE_Q_STRING(h->time_per_GB), COPSE_CLI_NUMBER(1 / copse_q_to_double(h->time_per_GB)),
           COPSE_CLI_NUMBER(h->slowdown));
  else
    printf(", \"not_comparable\": %s}", copse_cli_quoted(h->why));
}

/*
 * Notes where unequal shares of an allreduce are faster than the equal ones that a number of trees
 * is for. Solves twice more.
 */
static copse_status note_equal_shares(const struct copse_topology *topology,
                                      const struct copse_solve_options *options,
                                      struct copse_err *err) {
  struct copse_solve_options like = *options;
  struct copse_schedule *made = NULL, *equal = NULL;
  struct copse_solve_seconds ignored;
  struct copse_q best;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status;
  if (options->collective != COPSE_ALLREDUCE || options->k == 0 || options->equal_shares ||
      options->bound_only)
    return COPSE_OK;
  COPSE_TRY(copse_solve_best_time(topology, options, &best, &made, &why));
  like.k = 0;
  like.equal_shares = true;
  like.bound_only = made == NULL;
  COPSE_TRY(copse_solve_schedule(topology, &like, &equal, &ignored, &why));
  if (copse_q_cmp(best, equal->time_per_GB) < 0)
    copse_note(options->notes, "%s: --k gives equal shares; without it unequal ones take %s s/GB",
               options->label, COPSE_CLI_Q(best));
out:
  copse_schedule_free(made);
  copse_schedule_free(equal);
  if (status == COPSE_OK) return COPSE_OK;
  if (status != COPSE_OVERFLOW && status != COPSE_NOMEM)
    return copse_fail(err, status, "%s", why.text);
  copse_note(options->notes, "%s: what unequal shares would take is not known: %s", options->label,
             why.text); /* --k may be there because of just that */
  return COPSE_OK;
}

/* ---- --predict: times by message size, beside today's algorithms ---------------------------- */

#define N_SIZES 4 /* 64 KiB, 1 MiB, 64 MiB, 1 GiB */

static const double sizes[N_SIZES] = {65536, 1048576, 67108864, 1073741824};
static const char *const size_names[N_SIZES] = {"64 KiB", "1 MiB", "64 MiB", "1 GiB"};

/* ---- the report ----------------------------------------------------------------------------- */

struct seconds {
  double read, verify, write, total;
  struct copse_solve_seconds solve;
};

struct report {
  const struct copse_topology *topology;
  const struct copse_schedule *schedule; /* as it is written: a compact one is not expanded */
  struct healthy healthy;
  const struct copse_prediction *columns; /* [n_columns] of --predict */
  int n_columns;
  double us[COPSE_MAX_PREDICTIONS][N_SIZES];
  char detour[COPSE_DETOUR_TEXT]; /* of what is left, without --predict */
  const struct objective *objective;
  bool bound_only, occupies; /* --alpha-occupies */
  struct seconds seconds;
  struct copse_guessed guessed; /* links of the bound */
  struct copse_arena arena;     /* those */
};

static void free_report(struct report *r) { copse_arena_free(&r->arena); }

/* Prints what the bound rests on that nobody has measured: lines, or JSON. */
static void print_guessed(const struct report *r, bool json) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  if (r->guessed.n == 0) return;
  if (json) {
    copse_text_add(&text, ",\n \"guessed\": ");
    copse_guessed_json(r->topology, &r->guessed, &text);
  } else {
    copse_guessed_text(r->topology, &r->guessed, "the bound rests on a guess: ", &text);
  }
  if (!text.failed) fputs(text.data, stdout);
}

static void print_prediction(const struct report *r) {
  const struct copse_prediction *own = r->columns;
  char detour[COPSE_DETOUR_TEXT];
  if (r->n_columns == 0) return;
  if (own->instead[0]) printf("predicted without a plan: %s\n", own->instead);
  if (copse_prediction_detour(own, r->topology, detour)) printf("%s\n", detour);
  printf("predicted us");
  for (int c = 0; c < r->n_columns; c++)
    if (copse_prediction_exists(&r->columns[c])) printf("%14s", r->columns[c].name);
  printf("\n");
  for (int i = 0; i < N_SIZES; i++) {
    printf("%12s", size_names[i]);
    for (int c = 0; c < r->n_columns; c++)
      if (copse_prediction_exists(&r->columns[c]))
        printf("%14.*f", r->us[c][i] < 1e5 ? 2 : 0, r->us[c][i]);
    printf("\n");
  }
}

static void print_prediction_json(const struct report *r) {
  bool first = true;
  if (r->n_columns == 0) return;
  printf(",\n \"predicted_us\": {");
  for (int c = 0; c < r->n_columns; c++) {
    if (!copse_prediction_exists(&r->columns[c])) continue;
    printf("%s\n  \"%s\": {", first ? "" : ",", r->columns[c].name);
    first = false;
    for (int i = 0; i < N_SIZES; i++)
      printf("%s\"%.0f\": %s", i > 0 ? ", " : "", sizes[i], COPSE_CLI_NUMBER(r->us[c][i]));
    printf("}");
  }
  printf("}");
}

static void print_detour_json(const struct report *r) {
  char detour[COPSE_DETOUR_TEXT];
  if (!copse_prediction_detour(&r->columns[0], r->topology, detour)) return;
  printf(",\n \"plan\": {\"time_per_GB\": \"%s\", \"why\": %s}",
         COPSE_Q_STRING(r->columns[0].runs_per_GB), copse_cli_quoted(detour));
}

static void print_json(const struct report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  printf(
      "{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n",
      copse_cli_quoted(t->name), copse_collective_name(s->collective), t->n_ranks, t->n_nodes,
      t->n_links);
  copse_cli_print_rates_json(s);
  if (r->bound_only)
    printf(" \"k\": null, \"trees\": null, \"max_height\": null,\n");
  else if (s->collective == COPSE_ALLTOALL)
    printf(" \"k\": null, \"trees\": null, \"flows\": %d, \"images\": %" PRId64
           ", \"paths\": %d, "
           "\"max_height\": %d,\n",
           s->n_flows, copse_schedule_images(s), copse_schedule_paths(s), copse_schedule_height(s));
  else
    printf(" \"k\": %" PRId64 ", \"trees\": %d, \"images\": %" PRId64
           ", \"changes\": %d, \"max_height\": %d, \"mean_height\": %.6g,\n",
           s->k, s->n_trees, copse_schedule_images(s), s->n_changes, copse_schedule_height(s),
           copse_schedule_mean_height(s));
  if (sec->solve.orbits > 0) printf(" \"orbits\": %d,\n", sec->solve.orbits);
  copse_cli_print_cut_json(s);
  if (s->routes)
    printf(",\n \"routes\": {\"bound_time_per_GB\": \"%s\", \"optimal\": %s}",
           COPSE_Q_STRING(s->routes->time_per_GB),
           COPSE_CLI_BOOL(copse_q_cmp(s->time_per_GB, s->routes->time_per_GB) <= 0));
  print_guessed(r, true);
  print_healthy_json(&r->healthy);
  print_detour_json(r);
  print_objective_json(r->objective);
  if (s->bound_at)
    printf(",\n \"bound_at\": {\"bytes\": %" PRId64 ", \"us\": \"%s\"}", s->bound_at->bytes,
           COPSE_Q_STRING(s->bound_at->us));
  print_prediction_json(r);
  copse_cli_print_notes_json();
  printf(
      ",\n \"seconds\": {\"read\": %.6f, \"optimum\": %.6f, \"split\": %.6f, \"pack\": "
      "%.6f, \"verify\": %.6f, \"write\": %.6f, \"total\": %.6f},\n \"peak_MiB\": %ld}\n",
      sec->read, sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->write,
      sec->total, copse_peak_mib());
}

/* Prints how good it is among trees on the fabric's own routes, and beside any. */
static void print_on_routes(const struct copse_schedule *s) {
  const struct copse_q best = s->routes->time_per_GB, any = s->bound.time_per_GB;
  printf("on the fabric's own routes: ");
  if (copse_q_cmp(s->time_per_GB, best) <= 0)
    printf("optimal among trees of such edges\n");
  else
    printf("no trees of such edges take less than %s s/GB; this is %.3g %% above it\n",
           COPSE_CLI_Q(best), copse_cli_gap_percent(s->time_per_GB, best));
  if (copse_q_cmp(s->time_per_GB, any) <= 0)
    printf("free routes: none faster\n");
  else
    printf("free routes: bound %s s/GB; this is %.3g %% above it\n", COPSE_CLI_Q(any),
           copse_cli_gap_percent(s->time_per_GB, any));
}

/* Prints how good it is, and by which bound. */
static void print_standing(const struct copse_schedule *s, bool bound_only) {
  bool equal = copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
  const char *bound = COPSE_CLI_Q(s->bound.time_per_GB);
  if (s->bound.kind == COPSE_BOUND_PHASES && equal)
    printf("reduce_scatter and allgather, equal shares, each at its bound%s\n",
           bound_only ? "; overlapped they may be faster" : "");
  else if (equal && bound_only)
    printf("the bound alone: no %s%s takes less\n", copse_collective_name(s->collective),
           s->bound.kind == COPSE_BOUND_FORESTS
               ? " by reduce and broadcast forests with common shares"
               : "");
  else if (s->bound.kind == COPSE_BOUND_FORESTS && equal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else if (equal)
    printf("optimal: equal to the bound\n");
  else if (copse_schedule_doubles(s))
    printf(
        "in stages, for short messages, which cross the fabric less often; no allreduce is faster "
        "than %s s/GB\n",
        bound);
  else if (s->collective == COPSE_ALLREDUCE && s->bound.kind == COPSE_BOUND_CUT)
    printf(
        "reduce_scatter and allgather load different links, so they are faster than in turn;\n"
        "no allreduce is faster than %s s/GB\n",
        bound);
  else if (s->bound.kind == COPSE_BOUND_FORESTS)
    printf(
        "no reduce and broadcast forests with common shares take less than %s s/GB; this is %.3g "
        "%% above it\n",
        bound, copse_cli_gap_percent(s->time_per_GB, s->bound.time_per_GB));
  else
    printf("bound: %s s/GB; this is %.3g %% above it\n", bound,
           100 * (copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1));
}

static void print_flows(const struct report *r) {
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  copse_cli_print_bottleneck(r->topology, s);
  if (!r->bound_only)
    printf("%d flows%s over %d paths, at most %d hop%s\n", s->n_flows,
           s->n_rotations > 0 ? " of base ranks" : "", copse_schedule_paths(s),
           copse_schedule_height(s), COPSE_S(copse_schedule_height(s)));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under a rotation of order %d\n", s->rotations[0].order);
  printf("seconds: flow %.3f, paths %.3f, verify %.3f, total %.3f\n", sec->solve.optimum,
         sec->solve.pack, sec->verify, sec->total);
}

static void print_trees(const struct report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct seconds *sec = &r->seconds;
  copse_cli_print_bottleneck(r->topology, s);
  if (sec->solve.orbits > 0 && sec->solve.orbits < t->n_ranks)
    printf("symmetry: the %d ranks are of %d kind%s\n", t->n_ranks, sec->solve.orbits,
           COPSE_S(sec->solve.orbits));
  if (!r->bound_only)
    printf("k = %" PRId64 ", %d tree%s%s, at most %d hop%s high, %.3g on average\n", s->k,
           s->n_trees, COPSE_S(s->n_trees), s->n_rotations > 0 ? " of base ranks" : "",
           copse_schedule_height(s), COPSE_S(copse_schedule_height(s)),
           copse_schedule_mean_height(s));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under %d symmetr%s: %" PRId64 " trees in all\n",
           s->n_rotations, s->n_rotations == 1 ? "y" : "ies", copse_schedule_count_all(s));
  if (!r->bound_only && s->n_changes > 0)
    printf("repaired: %d changes of such trees where they met what is broken\n", s->n_changes);
  if (s->n_copying + s->n_adding > 0)
    printf(
        "the time counts on %d switches to copy, on %d to add: plans of one group of ranks can "
        "(lower)\n",
        s->n_copying, s->n_adding);
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, verify %.3f, total %.3f\n",
         sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->total);
}

static void print_text(const struct report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  printf("%s of %s: %s\n", copse_collective_name(s->collective), t->name,
         COPSE_CLI_RATES(s->time_per_GB, s->collective, t->n_ranks));
  if (t->n_ranks == 1) {
    printf("a single rank: nothing moves\n");
  } else {
    if (s->routes)
      print_on_routes(s);
    else
      print_standing(s, r->bound_only);
    print_guessed(r, false);
    print_healthy(&r->healthy);
    if (r->detour[0]) printf("%s\n", r->detour);
    if (s->collective == COPSE_ALLTOALL)
      print_flows(r);
    else
      print_trees(r);
  }
  print_objective(r->objective);
  if (s->bound_at) copse_cli_print_gap(s, t, r->objective->found.us);
  if (s->bound_at && r->occupies)
    printf("that bound does not count how long latency keeps links busy (--alpha-occupies)\n");
  print_prediction(r);
}

/* ---- one schedule --------------------------------------------------------------------------- */

struct options {
  struct copse_cli_solve what;
  const char *output, *draw, *each_failure, *groups;
  struct objective objective;
  struct copse_cli_costs costs;
  struct copse_predict_options predicted; /* by the costs and the profile */
  int tree;                               /* to draw; -1: the loads */
  bool json, pareto, predict, stages;
};

/* Prints links by their source, a line each: "gpu0 -> gpu1 1, gpu2 1". */
static void print_stage(void *ctx, const char *graph, int64_t k, const struct copse_net_link *links,
                        int n) {
  const struct copse_topology *t = ((const struct copse_cli_work *)ctx)->topology;
  printf("%s, %lld tree%s per root:\n", graph, (long long)k, COPSE_S(k));
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
static copse_status draw(const struct options *o, struct copse_cli_work *w) {
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  if (o->tree >= 0)
    COPSE_DO(copse_schedule_draw_part(w->schedule, w->topology, w->arrangement, o->tree, false,
                                      &w->text, &w->err));
  else
    COPSE_DO(copse_schedule_draw_load(w->schedule, w->topology, w->arrangement, false, &w->text,
                                      &w->err));
  return copse_cli_write(o->draw, w->text.data, w->text.size, &w->err);
}

/* Solves, and writes what was found. The schedule stays as it was written. */
static copse_status solve_and_write(struct options *o, struct seconds *sec,
                                    struct copse_cli_work *w) {
  const struct copse_solve_options *solve = &o->what.solve;
  if (o->objective.bytes > 0)
    COPSE_DO(solve_objective(w->topology, &o->what, &o->predicted, &o->objective, &w->schedule,
                             &sec->solve, &w->err));
  else
    COPSE_DO(copse_cli_solve_checked(w->topology, solve, o->what.has_tolerance, &w->schedule,
                                     &sec->solve, &sec->verify, &w->err));
  if (o->objective.bytes > 0)
    COPSE_DO(copse_bound_state(w->topology, w->schedule, (double)o->objective.bytes,
                               o->predicted.sim.alpha_us, &w->err));
  if (o->objective.bytes > 0) COPSE_DO(bound_on_routes(&o->objective, &o->predicted, w));
  const struct copse_schedule *found = w->schedule;
  copse_cli_say("bound %s s/GB: %s, of %d node%s and %d length%s",
                COPSE_CLI_Q(found->bound.time_per_GB), copse_cli_bound_kinds[found->bound.kind],
                found->bound.n_cut, COPSE_S(found->bound.n_cut), found->bound.n_lengths,
                COPSE_S(found->bound.n_lengths));
  copse_cli_say("reached %s s/GB: k = %" PRId64
                ", %d tree%s, %d flow%s; optimum %.3f s, split %.3f s, pack %.3f s, verify %.3f s",
                COPSE_CLI_Q(found->time_per_GB), found->k, found->n_trees, COPSE_S(found->n_trees),
                found->n_flows, COPSE_S(found->n_flows), sec->solve.optimum, sec->solve.split,
                sec->solve.pack, sec->verify);
  COPSE_DO(note_equal_shares(w->topology, solve, &w->err));
  double mark = copse_clock_seconds();
  if (o->output)
    COPSE_DO(copse_cli_write_schedule(
        o->output, w->schedule,
        "--k 1 or --tolerance make fewer trees, --bound-only has the optimum and its proof",
        &w->made_size, &w->err));
  sec->write = copse_clock_seconds() - mark;
  if (solve->compact && w->schedule->n_rotations == 0)
    copse_note(&copse_cli_notes,
               "no trees of base ranks were found that reach the optimum under the symmetries of "
               "%s; all trees are listed",
               solve->label);
  return COPSE_OK;
}

/* Finds, beside what a failure costs the schedule, what it costs a plan: messages take the routes
 * that the fabric has, which for few GPUs beside what is down may be longer than the schedule's
 * paths. */
static copse_status find_detour(const struct options *o, char text[COPSE_DETOUR_TEXT],
                                struct copse_cli_work *w) {
  const bool asked = w->whole && !o->predict && !o->what.solve.bound_only &&
                     !o->what.solve.in_network && w->topology->n_ranks <= MOST_DETOUR_RANKS;
  if (!asked) return COPSE_OK;
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  COPSE_DO(
      copse_predict_schedule(w->topology, w->schedule, &o->predicted, &w->columns[0], &w->err));
  w->n_columns = 1;
  (void)copse_prediction_detour(&w->columns[0], w->topology, text);
  return COPSE_OK;
}

static copse_status solve_one(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  const struct copse_solve_options *solve = &o->what.solve;
  COPSE_AT_END(free_report)
  struct report report = {.objective = &o->objective, .bound_only = solve->bound_only};
  double start = copse_clock_seconds(), mark;
  COPSE_DO(copse_cli_begin_solve(&o->what, w));
  o->predicted = copse_predict_defaults;
  COPSE_DO(copse_cli_costs(&o->what.topology, &o->costs, &o->predicted, &w->err));
  if (o->stages) w->progress.stage = print_stage;
  mark = copse_clock_seconds();
  report.seconds.read = mark - start;
  report.occupies = o->costs.alpha_occupies;
  if (o->draw)
    COPSE_DO(copse_arrangement_make(w->whole ? w->whole : w->topology, &w->arrangement, &w->err));
  start += copse_clock_seconds() - mark; /* a picture is no part of solving */
  COPSE_DO(solve_and_write(o, &report.seconds, w));
  report.seconds.total = copse_clock_seconds() - start;
  if (w->whole)
    COPSE_DO(compare_healthy(w->whole, w->topology, solve, o->what.has_tolerance, w->schedule,
                             &report.healthy, &w->err));
  copse_cli_progress_end();
  struct copse_schedule as_written = *w->schedule; /* for the report: its lists are not expanded */
  report.topology = w->topology;
  report.schedule = &as_written;
  COPSE_DO(copse_guessed_find(w->topology, &as_written, &report.arena, &report.guessed, &w->err));
  if (o->predict) {
    COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
    COPSE_DO(copse_predict_all(w->topology, w->schedule, &o->predicted, w->columns, &w->n_columns,
                               &w->err));
    COPSE_DO(copse_predictions_time(w->topology, w->columns, w->n_columns, sizes, N_SIZES, false,
                                    report.us[0], &w->err));
  }
  report.columns = w->columns;
  report.n_columns = w->n_columns;
  COPSE_DO(find_detour(o, report.detour, w));
  if (o->draw) COPSE_DO(draw(o, w));
  if (o->json)
    print_json(&report);
  else if (!copse_cli_is_stdout(o->output) && !copse_cli_is_stdout(o->draw))
    print_text(&report);
  return COPSE_OK;
}

/* ---- options -------------------------------------------------------------------------------- */

static int check_failures(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  const struct copse_cli_rule rules[] = {
      {o->draw || o->pareto || o->predict || o->objective.bytes > 0 ||
           copse_cli_is_stdout(o->output),
       "--each-failure makes many schedules: leave out --draw, --objective, --predict and "
       "--pareto, and give a folder to -o"},
      {strcmp(o->each_failure, "gpu") == 0 &&
           (what->topology.ranks || what->demand || what->solve.root >= 0),
       "the failure of a gpu moves ranks: leave out --ranks, --demand and --root"}};
  return COPSE_CLI_CHECK("solve", rules);
}

static int check_groups(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  const struct copse_solve_options *solve = &what->solve;
  const struct copse_cli_rule rules[] = {
      {o->draw || o->pareto || o->each_failure || what->topology.ranks || what->demand ||
           o->predict || o->objective.bytes > 0 || copse_cli_is_stdout(o->output) ||
           what->has_tolerance || solve->k > 0 || solve->no_forward || solve->in_network ||
           solve->compact || solve->on_routes,
       "--groups makes a schedule for each: leave out --ranks, --k, --tolerance, --demand, "
       "--no-forward, --in-network, --compact, --routes, --draw, --objective, --predict, --pareto "
       "and "
       "--each-failure, and give a folder to -o"},
      {solve->bound_only && o->output, "--bound-only makes no schedules: leave out -o"}};
  return COPSE_CLI_CHECK("solve", rules);
}

static int check(const struct options *o) {
  const struct copse_solve_options *solve = &o->what.solve;
  bool alltoall = solve->collective == COPSE_ALLTOALL, objective = o->objective.bytes > 0;
  bool to_stdout = copse_cli_is_stdout(o->output), draw_stdout = copse_cli_is_stdout(o->draw);
  const struct copse_cli_rule stages[] = {
      {o->stages && (o->groups || o->each_failure || o->pareto || objective || o->json ||
                     alltoall || solve->bound_only || to_stdout || draw_stdout),
       "--stages prints the graphs that one schedule's trees come from: leave out alltoall, "
       "--groups, --each-failure, --pareto, --objective, --bound-only, --json, -o - and --draw -"}};
  const struct copse_cli_rule rules[] = {
      {o->pareto &&
           (alltoall || o->what.has_tolerance || solve->bound_only || o->output || o->draw),
       "--pareto makes a table about trees: leave out alltoall, --tolerance, --bound-only, -o and "
       "--draw"},
      {!copse_cli_may_be(o->draw, ".svg"), "--draw writes SVG: give it a name that ends in .svg"},
      {o->pareto && (solve->in_network || solve->compact),
       "--pareto counts the trees of each rank, and no switch copies for them: leave out "
       "--in-network and --compact"},
      {solve->bound_only && (o->output || o->draw || o->predict || solve->k > 0),
       "--bound-only makes no schedule: leave out -o, --draw, --predict and --k"},
      {o->pareto && (o->predict || objective),
       "--predict and --objective are for one schedule: leave out --pareto"},
      {objective && solve->bound_only,
       "--objective chooses among schedules: leave out --bound-only"},
      {objective && solve->compact, "--objective lists all trees: leave out --compact"},
      {o->predict && solve->in_network,
       "--predict is for trees that no switch copies for, as plans have them: leave out "
       "--in-network"},
      {solve->on_routes && (o->pareto || o->stages),
       "--routes fabric makes one schedule: leave out --pareto and --stages"},
      {o->tree >= 0 && !o->draw, "--tree is for --draw"},
      {o->json + to_stdout + draw_stdout > 1,
       "of --json, -o - and --draw - only one can have standard output"}};
  int bad = COPSE_CLI_CHECK("solve", stages);
  if (bad) return bad;
  if (o->groups) return check_groups(o);
  return o->each_failure ? check_failures(o) : COPSE_CLI_CHECK("solve", rules);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  o->what.for_size = o->objective.bytes > 0;
  int bad = copse_cli_solve_check(&o->what, "solve", n_left, left);
  if (!bad) bad = check(o);
  if (bad) return bad;
  struct copse_cli_many many = {&o->what,  o->each_failure, o->groups,
                                o->output, o->json,         &o->costs};
  if (o->pareto) return copse_cli_solve_pareto(&many);
  return o->each_failure || o->groups ? copse_cli_solve_many(&many) : copse_cli_do(solve_one, o);
}

#define OBJECTIVES "throughput, latency or a size such as 64K"
_Static_assert(MOST_BYTES == (uint64_t)256 << 40, "what a refusal names");

/* Takes "throughput", "latency" (1 KiB) or a size. */
static int take_objective(void *options, const char *command, char *value) {
  uint64_t *bytes = &((struct options *)options)->objective.bytes;
  *bytes = strcmp(value, "latency") == 0 ? LATENCY_BYTES : 0;
  if (*bytes > 0 || strcmp(value, "throughput") == 0) return COPSE_EXIT_DONE;
  if (copse_cli_parse_size(value, MOST_BYTES, bytes) && *bytes > 0) return COPSE_EXIT_DONE;
  return copse_cli_usage(command, "--objective must be %s: whole numbers up to 256T", OBJECTIVES);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const char *const objectives[] = {"throughput", "latency", NULL};
static const struct copse_option instead[] = {
    {"--bound-only", 0, NULL, "the optimum and its cut, no trees", TO(what.solve.bound_only)},
    {"--pareto", 0, NULL,
     "a table instead of a schedule: hops against bandwidth. Of what 'copse\n"
     "plans' and --objective begin with, and of every k up to the optimum's,\n"
     "at most 64 or --k K, those that no other equals in both, and those\n"
     "that are the fastest at some size, lowered for it",
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
     "seconds finds; the file says in how many chunks, docs/solving.md what\n"
     "its name means (\"Names of schedules\")",
     .words = objectives, .take = take_objective, .must = OBJECTIVES},
    {0}};
static const struct copse_option own[] = {
    {"--predict", 0, NULL,
     "also the predicted times of 64 KiB, 1 MiB, 64 MiB and 1 GiB, beside\n"
     "best rings, double binary tree and direct exchange (see 'copse simulate')",
     TO(predict)},
    {"--stages", 0, NULL, "also the network and the split graph on the way to the trees",
     TO(stages)},
    {"--output", 'o', "FILE", "where to write the schedule (- for standard output)", TO(output),
     .writes = true, .common = true},
    {"--draw", 0, "FILE",
     "a picture of the links' loads as SVG: the bottleneck, the cut; laid\n"
     "out by Graphviz (the program 'dot'), at most 2500 nodes",
     TO(draw), .writes = true},
    {"--tree", 0, "I", "draw tree I (from 0) instead, of an alltoall what rank I sends", TO(tree),
     COPSE_OPTION_RANGE(0, INT32_MAX), .must = "a tree's number, from 0"},
    {"--json", 'j', NULL, "the report as one JSON object", TO(json), .common = true},
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
    .example = "example: copse solve a100-x2 -c allreduce -o a100-x2.allreduce.json\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {COPSE_CLI_SOLVE_SECTION(struct options, what),
                 {.title = "Other schedules than one for throughput", .options = instead},
                 {.title = "What is reported", .options = own},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, what.topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
