/*
 * The one maker of schedules to choose among: solver, fewer trees, equal shares, baselines
 * (their sources: baseline.h), allreduces in stages (doubling.c).
 */
#include "predict/propose.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"
#include "predict/baseline.h"
#include "predict/doubling.h"
#include "predict/policy.h"
#include "schedule/adapt.h"
#include "schedule/loads.h"
#include "schedule/solve/routes.h"
#include "topology/modify.h"
#include "verify/verify.h"

/* ==== proposals =============================================================================== */

struct proposing {
  const struct copse_proposer *p;
  const struct copse_schedule *first;
  struct copse_topology *balanced;             /* NULL: the topology is */
  struct copse_baseline_shared *shared, owned; /* of the topology; the proposer's, or `owned` */
  struct copse_err *err;
};

static void release(struct proposing *g) {
  copse_topology_free(g->balanced);
  copse_baseline_shared_free(&g->owned);
}

int copse_proposal_hops(const struct copse_schedule *schedule) {
  bool twice = schedule->collective == COPSE_ALLREDUCE && !copse_schedule_doubles(schedule);
  return copse_schedule_height(schedule) * (twice ? 2 : 1);
}

copse_status copse_proposal_check(const struct copse_topology *topology,
                                  const struct copse_schedule *schedule, const char *name,
                                  struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_verify_schedule(schedule, topology, "schedule", &report, &why);
  if (status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, status == COPSE_REFUTED ? COPSE_INTERNAL : status,
                    "the %s schedule fails verification: %s", name, why.text);
}

bool copse_proposal_beats(const struct copse_schedule *a, const struct copse_schedule *b,
                          int64_t most_edges) {
  int64_t edges = copse_schedule_edges(b);
  return edges > most_edges && copse_schedule_edges(a) < edges &&
         copse_q_cmp(a->time_per_GB, b->time_per_GB) <= 0 &&
         copse_proposal_hops(a) <= copse_proposal_hops(b);
}

/* ---- of another topology ------------------------------------------------------------------ */

struct mending {
  const struct copse_topology *t;
  const struct copse_routes *routes;
};

/* Replaces a way between two ranks that is not there. */
static copse_status mend_way(void *context, struct copse_arena *arena, int src, int dst,
                             const int **path, int *n_path, struct copse_err *err) {
  const struct mending *m = context;
  bool is_there = true;
  int n, *nodes;
  for (int i = 0; i + 1 < *n_path && is_there; i++)
    is_there = (*path)[i] >= 0 && (*path)[i + 1] >= 0 &&
               copse_topology_find_link(m->t, (*path)[i], (*path)[i + 1]) >= 0;
  if (is_there) return COPSE_OK;
  if (!m->routes) return copse_fail(err, COPSE_UNSUPPORTED, "too many pairs of ranks for routes");
  const int *route = copse_route(m->routes, src, dst, &n);
  if (!copse_route_is_hop(m->t, route, n))
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks between two ranks");
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, nodes, err));
  memcpy(nodes, route, (size_t)n * sizeof *nodes);
  *path = nodes;
  *n_path = n;
  return COPSE_OK;
}

/* Takes, of trees, the cut that bounds a direct exchange, and so any schedule. */
static copse_status take_bound(const struct copse_topology *t, const struct copse_schedule *like,
                               struct copse_schedule *s, struct copse_err *err) {
  const struct copse_baseline_options of = {.collective = s->collective, .root = s->root};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *direct = NULL;
  int *cut;
  s->bound_at = NULL;
  s->routes = NULL; /* another topology may have other routes */
  if (s->collective == COPSE_ALLTOALL) {
    s->bound = like->bound;
    return copse_arena_text(&s->arena, like->topology_sha256, &s->topology_sha256, err);
  }
  COPSE_DO(copse_baseline_make(t, COPSE_BASELINE_DIRECT, &of, &direct, NULL, err));
  COPSE_DO(copse_arena_text(&s->arena, direct->topology_sha256, &s->topology_sha256, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)direct->bound.n_cut, cut, err));
  memcpy(cut, direct->bound.cut, (size_t)direct->bound.n_cut * sizeof *cut);
  s->bound = direct->bound;
  s->bound.cut = cut;
  return COPSE_OK;
}

/* Replaces a path over what is not there by the fabric's own route. The bound is one of any
 * schedule, like's where that is of lengths. */
static copse_status place_on(const struct copse_topology *t, const struct copse_routes *routes,
                             const struct copse_schedule *like, struct copse_schedule *s,
                             struct copse_err *err) {
  COPSE_DO(copse_schedule_place(s, t, err));
  COPSE_DO(copse_arena_text(&s->arena, t->name, &s->topology_name, err));
  COPSE_DO(copse_schedule_change_ways(s, mend_way, &(struct mending){t, routes}, err));
  COPSE_DO(take_bound(t, like, s, err));
  return s->n_flows > 0 ? copse_flow_time(t, s->flows, s->n_flows, &s->time_per_GB, err)
                        : copse_tree_time(t, s->trees, (size_t)s->n_trees, &s->time_per_GB, err);
}

copse_status copse_proposal_adopt(const struct copse_topology *t, enum copse_proposal_way way,
                                  const struct copse_routes *routes,
                                  const struct copse_schedule *like, struct copse_schedule *s,
                                  struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  if (way == COPSE_PROPOSAL_MENDED) {
    bool repaired;
    COPSE_DO(copse_schedule_repair(s, t, &repaired, err));
    if (!repaired) return copse_fail(err, COPSE_UNSUPPORTED, "trees that can't be mended");
    s->bound = like->bound;
  } else {
    COPSE_DO(place_on(t, way == COPSE_PROPOSAL_REROUTED ? routes : NULL, like, s, err));
    if (s->collective == COPSE_ALLTOALL || copse_schedule_doubles(s))
      return copse_proposal_check(t, s, "healthy", err);
    const struct copse_bound of_any = s->bound;
    s->bound = like->bound; /* which lasts as long, and says more where it holds for these trees */
    if (copse_verify_schedule(s, t, "schedule", &report, &why) == COPSE_OK) return COPSE_OK;
    s->bound = of_any;
  }
  return copse_proposal_check(t, s, "healthy", err);
}

/* ==== proposals =============================================================================== */

static bool wants(const struct copse_proposer *p, enum copse_proposal_kind kind, const char *name) {
  return !p->wants || p->wants(p->context, kind, name);
}

/* Hands a schedule on; releases it where it is not right. */
static copse_status offer(struct proposing *g, struct copse_schedule *schedule, const char *name) {
  const struct copse_topology *t = g->p->topology;
  struct copse_err why = COPSE_ERR_INIT;
  schedule->others_excluded = t->others_excluded;
  copse_status status = copse_proposal_check(t, schedule, name, &why);
  if (status == COPSE_OK) status = copse_schedule_expand(schedule, &why);
  if (status != COPSE_OK) copse_schedule_free(schedule);
  if (status == COPSE_OVERFLOW && g->first) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
  if (!g->first) g->first = schedule;
  return g->p->take(g->p->context, schedule, name, g->err);
}

/* Adopts a schedule for the balanced topology, which has the same nodes, as one of the real one. */
static copse_status adopt(struct proposing *g, struct copse_schedule *schedule) {
  COPSE_DO(copse_schedule_expand(schedule, g->err));
  return place_on(g->p->topology, g->p->routes, NULL, schedule, g->err);
}

/* Solves; where relays are out of balance, with links narrowed. */
static copse_status solve(struct proposing *g, const struct copse_solve_options *options,
                          struct copse_schedule **out, struct copse_solve_seconds *seconds) {
  const struct copse_topology *t = g->p->topology;
  struct copse_err why = COPSE_ERR_INIT;
  if (options == g->p->solve && g->p->solved)
    return copse_schedule_borrow(g->p->solved, out, g->err);
  if (!g->balanced) {
    copse_status status = copse_solve_schedule(t, options, out, seconds, &why);
    if (status == COPSE_OK) return COPSE_OK;
    if (status != COPSE_BAD_INPUT || options->collective == COPSE_ALLTOALL ||
        copse_topology_balance(t, &g->balanced, &why) != COPSE_OK)
      return copse_fail(g->err, status, "%s", why.text);
  }
  COPSE_DO(copse_solve_schedule(g->balanced, options, out, seconds, g->err));
  copse_status status = adopt(g, *out);
  if (status != COPSE_OK) copse_schedule_free(*out);
  return status;
}

/* Offers a solved schedule; without a name it has its k's. */
static copse_status offer_solved(struct proposing *g, const struct copse_solve_options *options,
                                 const char *name, struct copse_solve_seconds *seconds) {
  struct copse_schedule *schedule;
  char trees[COPSE_PROPOSAL_NAME];
  COPSE_DO(solve(g, options, &schedule, seconds));
  snprintf(trees, sizeof trees, "k=%" PRId64, schedule->k);
  return offer(g, schedule, name ? name : trees);
}

/* Offers the best schedules of few trees, of the numbers that are asked for those from least to
 * most: as fast as the optimum with luck, and shallow. */
static copse_status offer_fewer(struct proposing *g, int least, int most) {
  static const int few[] = {1, 2, 3, 4, 6, 8, 12, 16};
  struct copse_solve_options fewer = *g->p->solve;
  struct copse_solve_seconds ignored;
  int n = g->p->most_k > 0 ? g->p->most_k : (int)(sizeof few / sizeof *few);
  fewer.tolerance = COPSE_Q_ZERO;
  for (int i = 0; i < n; i++) {
    char name[COPSE_PROPOSAL_NAME];
    int k = g->p->most_k > 0 ? i + 1 : few[i];
    if (k < least || k > most || k >= g->first->k) continue;
    snprintf(name, sizeof name, "k=%d", k);
    fewer.k = k;
    if (wants(g->p, COPSE_PROPOSAL_SOLVED, name)) COPSE_DO(offer_solved(g, &fewer, name, &ignored));
  }
  return COPSE_OK;
}

/* Offers trees near the optimum, where its own are more. */
static copse_status offer_near(struct proposing *g) {
  struct copse_solve_options near = *g->p->solve;
  struct copse_solve_seconds ignored;
  if (near.k > 0 || near.tolerance.num > 0 || g->first->k == 1 ||
      !wants(g->p, COPSE_PROPOSAL_SOLVED, COPSE_NEAR_NAME))
    return COPSE_OK;
  near.tolerance = COPSE_NEAR_OPTIMUM;
  return offer_solved(g, &near, COPSE_NEAR_NAME, &ignored);
}

/* Finds how long the busiest link takes, in s per GB, where each edge of the first schedule takes
 * the fabric's own route. */
static copse_status find_detours(struct proposing *g, double *time) {
  const struct copse_topology *t = g->p->topology;
  const struct copse_schedule *s = g->first;
  COPSE_AT_END(copse_free_at) int64_t *load = NULL;
  *time = 0;
  COPSE_DO(copse_calloc((size_t)t->n_links, sizeof *load, &load, g->err));
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++) {
      int64_t amount = llround(copse_q_to_double(s->trees[i].weight) * ROUTED_WHOLE);
      const struct copse_schedule_edge *edge = &s->trees[i].edges[e];
      int n;
      (void)copse_route_take(t, g->p->routes, edge->src, edge->dst, amount, load, &n);
    }
  for (int e = 0; e < t->n_links; e++)
    *time = fmax(*time, (double)load[e] / ROUTED_WHOLE / copse_q_to_double(t->links[e].bandwidth));
  return COPSE_OK;
}

/* Whether there is no such schedule here, and others do: one may need ranks to reach each other
 * that the collective does not. */
static bool is_left_out(copse_status status) {
  return status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW || status == COPSE_INFEASIBLE;
}

/* Offers the best trees on the fabric's own routes. */
static copse_status offer_best_routed(struct proposing *g) {
  struct copse_solve_options routed = *g->p->solve;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT, *err = g->err;
  struct copse_schedule *schedule;
  routed.on_routes = true;
  routed.equal_shares = routed.compact = routed.in_network = false;
  routed.k = 0;
  g->err = &why;
  copse_status status = solve(g, &routed, &schedule, &ignored);
  g->err = err;
  if (is_left_out(status)) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  return offer(g, schedule, "routes");
}

/* Offers the first schedule's trees, so many copies of each, hung on the fabric's own routes, where
 * they load links less there than they did. */
static copse_status offer_hung(struct proposing *g, int copies, double detours) {
  const struct copse_baseline_options like = {.collective = g->first->collective,
                                              .root = g->first->root,
                                              .like = g->first,
                                              .shared = g->shared};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *hung = NULL;
  char name[COPSE_PROPOSAL_NAME] = "routes";
  bool made;
  copse_proposal_name_add(name, sizeof name, "routes", copies);
  if (!wants(g->p, COPSE_PROPOSAL_SOLVED, name)) return COPSE_OK;
  COPSE_DO(copse_baseline_make(g->p->topology, COPSE_BASELINE_DIRECT, &like, &hung, NULL, g->err));
  copse_status status =
      copse_hang_on_routes(g->p->topology, g->p->routes, g->first->bound.time_per_GB, copies, 0,
                           g->first, hung, &made, g->err);
  if (status == COPSE_OVERFLOW) return COPSE_OK;
  if (status != COPSE_OK) return status;
  if (!made || copse_q_to_double(hung->time_per_GB) * (1 + CLOSE_TIME) > detours) return COPSE_OK;
  struct copse_schedule *schedule = hung;
  hung = NULL;
  return offer(g, schedule, name);
}

/* Offers trees on the fabric's own routes, where those load a link more than the first one's paths.
 */
static copse_status offer_routed(struct proposing *g) {
  const struct copse_solve_options *o = g->p->solve;
  double detours;
  if (o->collective == COPSE_ALLTOALL || o->on_routes || o->in_network || !g->p->routes)
    return COPSE_OK;
  COPSE_DO(find_detours(g, &detours));
  double without = copse_q_to_double(g->first->time_per_GB);
  if (detours <= fmax(without * (1 + CLOSE_TIME), without + g->p->least_gain)) return COPSE_OK;
  if (copse_routes_count(g->p->routes) > MOST_ROUTED_WAYS)
    COPSE_DO(offer_hung(g, 1, detours));
  else if (wants(g->p, COPSE_PROPOSAL_SOLVED, "routes"))
    COPSE_DO(offer_best_routed(g));
  return offer_hung(g, ROUTED_COPIES, detours);
}

/* Ends a name that is too long for `size` with a whole word and " ..". */
static void end_at_word(char *name, size_t size) {
  size_t n = size - sizeof " ..";
  while (n > 0 && name[n] != ' ') n--;
  if (n > 0 && name[n - 1] == ',') n--;
  memcpy(name + n, " ..", sizeof " ..");
}

void copse_proposal_name_print(char *name, size_t size, const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (vsnprintf(name, size, format, values) >= (int)size) end_at_word(name, size);
  va_end(values);
}

void copse_proposal_name_add(char *name, size_t size, const char *done, int copies) {
  const bool more = !strstr(name, done);
  char times[16] = "", added[64];
  if (copies > 1) snprintf(times, sizeof times, " x%d", copies);
  snprintf(added, sizeof added, "%s%s%s", more ? ", " : "", more ? done : "", times);
  if (strlen(name) + strlen(added) >= size) end_at_word(name, size - strlen(added));
  strcat(name, added);
}

const char *copse_proposal_without_size(const char *name) {
  size_t digits = strspn(name, "0123456789");
  bool sized = digits > 0 && strchr("KM", name[digits]) && strncmp(name + digits + 1, ": ", 2) == 0;
  return sized ? name + digits + 3 : name;
}

static copse_status offer_baselines(struct proposing *g) {
  const struct copse_solve_options *o = g->p->solve;
  const struct copse_baseline_options like = {.collective = o->collective,
                                              .root = o->root,
                                              .demand = o->demand,
                                              .like = g->first,
                                              .quick = true,
                                              .shared = g->shared};
  for (int kind = 0; kind < COPSE_N_ARRANGEMENTS; kind++) {
    const char *name = copse_proposal_name((enum copse_baseline)kind);
    struct copse_err why = COPSE_ERR_INIT;
    struct copse_schedule *schedule;
    const enum copse_proposal_kind from =
        kind < COPSE_N_BASELINES ? COPSE_PROPOSAL_BASELINE : COPSE_PROPOSAL_SCATTER;
    if (!copse_baseline_exists((enum copse_baseline)kind, o->collective) ||
        !wants(g->p, from, name))
      continue;
    copse_status status = copse_baseline_make(g->p->topology, (enum copse_baseline)kind, &like,
                                              &schedule, NULL, &why);
    if (is_left_out(status)) continue;
    if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
    COPSE_DO(offer(g, schedule, name));
  }
  return COPSE_OK;
}

/* Offers an alltoall in one hop, where the first one's flows pass through ranks: for small messages
 * a hop costs more than the bytes that links carry twice. */
static copse_status offer_direct(struct proposing *g) {
  struct copse_solve_options direct = *g->p->solve;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *made = NULL;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT;
  direct.no_forward = true;
  if (copse_proposal_hops(g->first) < 2 || !wants(g->p, COPSE_PROPOSAL_BASELINE, "direct"))
    return COPSE_OK;
  copse_status status = copse_solve_schedule(g->p->topology, &direct, &made, &ignored, &why);
  if (is_left_out(status)) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
  COPSE_DO(copse_schedule_expand(made, g->err));
  COPSE_DO(copse_schedule_place(made, g->p->topology, g->err));
  made->no_forward = false; /* so that the first one's bound holds for it */
  COPSE_DO(copse_baseline_copy_bound(g->p->topology, g->first, made, g->err));
  struct copse_schedule *schedule = made;
  made = NULL;
  return offer(g, schedule, "direct");
}

/* Offers scattered trees of so many hops more, hung on the fabric's own routes, where the busiest
 * link takes less than *time, in s per GB: a host that others hang on sends to fewer. */
static copse_status offer_balanced(struct proposing *g, int higher, double *time) {
  const struct copse_baseline_options like = {.collective = g->first->collective,
                                              .root = g->first->root,
                                              .like = g->first,
                                              .shared = g->shared};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *trees = NULL;
  struct copse_err why = COPSE_ERR_INIT;
  char name[COPSE_PROPOSAL_NAME];
  bool made;
  snprintf(name, sizeof name, higher > 0 ? "scatter, balanced, %d higher" : "scatter, balanced",
           higher);
  if (!wants(g->p, COPSE_PROPOSAL_SCATTER, name)) return COPSE_OK;
  copse_status status =
      copse_baseline_make(g->p->topology, COPSE_BASELINE_SCATTER, &like, &trees, NULL, &why);
  if (is_left_out(status)) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
  double most = fmin(*time, copse_q_to_double(trees->time_per_GB));
  status = copse_hang_on_routes(g->p->topology, g->p->routes, g->first->bound.time_per_GB, 1,
                                higher, trees, trees, &made, g->err);
  if (status == COPSE_OVERFLOW) return COPSE_OK;
  if (status != COPSE_OK) return status;
  if (!made || copse_q_to_double(trees->time_per_GB) * (1 + CLOSE_TIME) > most) return COPSE_OK;
  *time = copse_q_to_double(trees->time_per_GB);
  struct copse_schedule *schedule = trees;
  trees = NULL;
  return offer(g, schedule, name);
}

static copse_status offer_all_balanced(struct proposing *g) {
  double bound = copse_q_to_double(g->first->bound.time_per_GB), time = INFINITY;
  if (!copse_collective_rooted(g->p->solve->collective) || !g->p->routes) return COPSE_OK;
  for (int higher = 0; higher <= MOST_HIGHER && time > bound * (1 + CLOSE_TIME); higher++)
    COPSE_DO(offer_balanced(g, higher, &time));
  return COPSE_OK;
}

static const char *stages_name(const struct copse_doubling *d, char name[COPSE_DOUBLING_NAME]) {
  size_t n = (size_t)snprintf(name, COPSE_DOUBLING_NAME, "stages %d", d->bases[0]);
  for (int i = 1; i < d->n_digits; i++)
    n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, "x%d", d->bases[i]);
  if (d->gateways) n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, " of gateways");
  if (d->turned) n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, " turned");
  if (d->n_scattered > 0)
    n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, ", %d scattered", d->n_scattered);
  if (d->copies > 1) snprintf(name + n, COPSE_DOUBLING_NAME - n, " x%d", d->copies);
  return name;
}

/* Offers stages with pieces in 2 and 4 copies too, as long as the busiest link takes less: a rank
 * may have several NICs, of which one piece takes one. */
static copse_status offer_copies(struct proposing *g, struct copse_doubling *d) {
  const struct copse_proposer *p = g->p;
  char name[COPSE_DOUBLING_NAME];
  double time = INFINITY;
  for (d->copies = 1; d->copies <= ROUTED_COPIES; d->copies *= 2) {
    struct copse_schedule *schedule;
    struct copse_err why = COPSE_ERR_INIT;
    if (!wants(p, COPSE_PROPOSAL_STAGES, stages_name(d, name))) continue;
    copse_status status =
        copse_doubling_make(p->topology, p->routes, d, g->shared, &schedule, &why);
    if (status == COPSE_UNSUPPORTED && d->copies > 1) break;
    if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
    if (copse_q_to_double(schedule->time_per_GB) * (1 + CLOSE_TIME) > time) {
      copse_schedule_free(schedule);
      break;
    }
    time = copse_q_to_double(schedule->time_per_GB);
    COPSE_DO(offer(g, schedule, name));
  }
  return COPSE_OK;
}

static copse_status offer_stages(struct proposing *g) {
  const struct copse_proposer *p = g->p;
  struct copse_doubling list[COPSE_MOST_DOUBLINGS];
  int n;
  if (p->solve->collective != COPSE_ALLREDUCE || !p->routes) return COPSE_OK;
  COPSE_DO(copse_doublings_find(p->topology, p->routes, list, &n, g->err));
  for (int i = 0; i < n; i++) COPSE_DO(offer_copies(g, &list[i]));
  return COPSE_OK;
}

copse_status copse_propose(const struct copse_proposer *p, struct copse_solve_seconds *seconds,
                           struct copse_err *err) {
  COPSE_AT_END(release) struct proposing g = {.p = p, .err = err};
  g.shared = p->shared ? p->shared : &g.owned;
  struct copse_solve_options equal = *p->solve;
  struct copse_solve_seconds ignored;
  bool chosen =
      p->solve->collective != COPSE_ALLTOALL && (p->solve->k > 0 || p->solve->tolerance.num > 0);
  COPSE_DO(offer_solved(&g, p->solve, chosen ? NULL : "optimal", seconds));
  if (p->topology->n_ranks == 1) return COPSE_OK;
  if (p->solve->collective != COPSE_ALLTOALL) COPSE_DO(offer_near(&g));
  equal.equal_shares = true;
  if (p->solve->collective == COPSE_ALLREDUCE && !p->solve->equal_shares &&
      wants(p, COPSE_PROPOSAL_SOLVED, "equal shares"))
    COPSE_DO(offer_solved(&g, &equal, "equal shares", &ignored));
  COPSE_DO(offer_routed(&g));
  if (p->solve->collective == COPSE_ALLTOALL) COPSE_DO(offer_direct(&g));
  if (p->solve->collective != COPSE_ALLTOALL) COPSE_DO(offer_fewer(&g, 1, 1));
  COPSE_DO(offer_baselines(&g));
  COPSE_DO(offer_stages(&g));
  if (p->solve->collective == COPSE_ALLTOALL) return COPSE_OK;
  COPSE_DO(offer_fewer(&g, 2, INT32_MAX));
  return offer_all_balanced(&g);
}

/* Offers trees over the fabric at hand, which has few peers at a switch. */
static copse_status offer_sparse(struct proposing *g, int peers, int k) {
  struct copse_solve_options few = *g->p->solve;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT, *err = g->err;
  char name[COPSE_PROPOSAL_NAME];
  few.k = k;
  snprintf(name, sizeof name, "%d peer%s at a switch%s", peers, COPSE_S(peers),
           k > 0 ? ", k=1" : "");
  if (!wants(g->p, COPSE_PROPOSAL_SOLVED, name)) return COPSE_OK;
  g->err = &why;
  copse_status status = offer_solved(g, &few, name, &ignored);
  g->err = err;
  if (status == COPSE_OK || is_left_out(status)) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

copse_status copse_propose_sparse(const struct copse_proposer *proposer, int most,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_routes_free) struct copse_routes own = {0};
  struct copse_proposer p = *proposer;
  if (p.solve->collective == COPSE_ALLTOALL) return COPSE_OK;
  if (!p.routes) COPSE_DO(copse_plan_routes_find(p.topology, &own, err));
  if (!p.routes) p.routes = &own;
  for (int tries = 0; most > 0 && tries < SPARSE_TRIES;) {
    COPSE_AT_END(release) struct proposing g = {.p = &p, .err = err};
    int peers;
    COPSE_DO(copse_topology_sparse(p.topology, most, &peers, &g.balanced, err));
    for (int k = 0; k < 2 && g.balanced; k++) COPSE_DO(offer_sparse(&g, peers, k));
    tries += g.balanced != NULL;
    most = peers > SPARSE_FEW ? peers / 2 : peers - 1;
  }
  return COPSE_OK;
}

copse_status copse_propose_switch(const struct copse_topology *t,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_err *err) {
  struct copse_solve_options wanted = *options;
  struct copse_solve_seconds ignored;
  bool marked = false;
  *out = NULL;
  for (int v = 0; v < t->n_nodes; v++)
    marked = marked || (t->nodes[v].multicast && t->nodes[v].aggregation);
  if (options->collective != COPSE_ALLREDUCE || !marked) return COPSE_OK;
  wanted.in_network = true;
  COPSE_DO(copse_solve_schedule(t, &wanted, out, &ignored, err));
  if (copse_schedule_is_group(*out)) return COPSE_OK;
  copse_schedule_free(*out);
  *out = NULL;
  return COPSE_OK;
}

copse_status copse_propose_compact(const struct copse_topology *t,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule **out, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *compact = NULL;
  struct copse_solve_options wanted = *options;
  struct copse_solve_seconds ignored;
  *out = NULL;
  wanted.compact = true;
  COPSE_DO(copse_solve_schedule(t, &wanted, &compact, &ignored, err));
  if (compact->n_rotations == 0) return COPSE_OK;
  COPSE_DO(copse_schedule_expand(compact, err));
  COPSE_DO(copse_proposal_check(t, compact, "compact", err));
  *out = compact;
  compact = NULL;
  return COPSE_OK;
}
