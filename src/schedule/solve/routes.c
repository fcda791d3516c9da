/*
 * Trees over the fabric's own routes. An edge from rank to rank loads every link of the pair's
 * route, so the network is one of ranks alone, a link for each pair, and what is limited is the sum
 * over the links whose routes take a physical link (struct copse_joint_limits):
 *
 *   routes                      network of ranks            limits
 *   a -> s -> b, a -> s -> c    a -> b, a -> c              a -> s: (a, b) + (a, c)
 *
 * Of several routes of a pair the first is its link; each other one goes by a node of its own. They
 * are those that plans' messages take, at first; then others of the pair that are shorter by the
 * prices, until there are none. The joint programme finds what each link carries, the makers of
 * trees pack it, and paths are put back (copse_solve_trees_in_parts). The prices of its limits are
 * the proof. docs/theory.md, "The fabric's own routes".
 */
#include "schedule/solve/routes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exact.h"
#include "base/types.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/trees.h"
#include "topology/route.h"
#include "verify/verify.h"

struct routed {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  struct copse_way *ways; /* [n_ways] by source, then destination */
  size_t n_ways, ways_capacity;
  struct copse_way_finder *finder;
  struct copse_arena arena;
  struct copse_instance physical, instance;
  struct copse_joint_limits limits;
  struct copse_joint joint, phases[2]; /* of all; of an allreduce each by itself */
  struct copse_schedule *schedule;
  struct copse_err *err;
};

static void release(struct routed *r) {
  copse_way_finder_free(r->finder);
  copse_arena_free(&r->arena);
  copse_instance_free(&r->physical);
  copse_instance_free(&r->instance);
  copse_joint_free(&r->joint);
  for (int i = 0; i < 2; i++) copse_joint_free(&r->phases[i]);
}

/* ---- ways ----------------------------------------------------------------------------------- */

static int by_pair(const void *a, const void *b) {
  const struct copse_way *x = a, *y = b;
  if (x->src != y->src) return x->src - y->src;
  if (x->dst != y->dst) return x->dst - y->dst;
  return memcmp(x->nodes, y->nodes, (size_t)x->n_nodes * sizeof *x->nodes); /* as many */
}

static copse_status add_way(struct routed *r, const struct copse_way *way) {
  int *nodes;
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)way->n_nodes, nodes, r->err));
  memcpy(nodes, way->nodes, (size_t)way->n_nodes * sizeof *nodes);
  COPSE_DO(COPSE_GROW_IN(&r->arena, r->ways, r->ways_capacity, r->n_ways + 1, r->err));
  r->ways[r->n_ways] = *way;
  r->ways[r->n_ways++].nodes = nodes;
  return COPSE_OK;
}

/* Sorts them, each once. */
static void sort_ways(struct routed *r) {
  size_t n = 0;
  COPSE_SORT(r->ways, r->n_ways, by_pair);
  for (size_t i = 0; i < r->n_ways; i++)
    if (n == 0 || by_pair(&r->ways[n - 1], &r->ways[i]) != 0) r->ways[n++] = r->ways[i];
  r->n_ways = n;
}

/* Begins with those of plans' messages that no rank forwards. */
static copse_status begin_ways(struct routed *r) {
  COPSE_AT_END(copse_routes_free) struct copse_routes routes = {0};
  COPSE_DO(copse_plan_routes_find(r->topology, &routes, r->err));
  for (int src = 0; src < routes.n_ranks; src++)
    for (int dst = 0; dst < routes.n_ranks; dst++)
      for (int k = 0; k < routes.ways && src != dst; k++) {
        struct copse_way way = {.src = src, .dst = dst};
        way.nodes = copse_route_way(&routes, src, dst, k, &way.n_nodes);
        if (copse_way_is_one(r->finder, &way)) COPSE_DO(add_way(r, &way));
      }
  sort_ways(r);
  return COPSE_OK;
}

static int hop_of(const struct routed *r, const struct copse_way *way, int hop) {
  return copse_topology_find_link(r->topology, way->nodes[hop], way->nodes[hop + 1]);
}

static int64_t length_of(const struct routed *r, const struct copse_way *way,
                         const int64_t *lengths) {
  int64_t sum = 0;
  for (int i = 0; i + 1 < way->n_nodes; i++) sum += lengths[hop_of(r, way, i)];
  return sum;
}

/* Adds to each pair that has one a way that is shorter than all of its own. */
static copse_status add_shorter(struct routed *r, const int64_t *lengths) {
  size_t n = r->n_ways;
  for (size_t i = 0, next; i < n; i = next) {
    int src = r->ways[i].src, dst = r->ways[i].dst;
    int64_t least = INT64_MAX;
    struct copse_way way;
    for (next = i; next < n && r->ways[next].src == src && r->ways[next].dst == dst; next++) {
      int64_t length = length_of(r, &r->ways[next], lengths);
      if (length < least) least = length;
    }
    if (copse_way_shortest(r->finder, src, dst, lengths, &way) < least) COPSE_DO(add_way(r, &way));
  }
  sort_ways(r);
  return COPSE_OK;
}

/* ---- the network of ranks ------------------------------------------------------------------- */

static int64_t narrowest(const struct routed *r, const struct copse_way *way) {
  int64_t least = INT64_MAX;
  for (int i = 0; i + 1 < way->n_nodes; i++) {
    int64_t capacity = r->physical.links[hop_of(r, way, i)].capacity;
    if (capacity < least) least = capacity;
  }
  return least;
}

static void add_link(struct copse_instance *to, int src, int dst, int64_t capacity,
                     const struct copse_way *way) {
  to->ways[to->network.n_links] = way;
  to->links[to->network.n_links++] = (struct copse_net_link){src, dst, capacity};
}

/* Makes the network: its nodes are the topology's, and one more for each further route of a
 * pair. */
static copse_status make_network(struct routed *r) {
  const struct copse_topology *t = r->topology;
  struct copse_instance *to = &r->instance;
  struct copse_network *network = &to->network;
  size_t most = 2 * r->n_ways;
  COPSE_DO(COPSE_ARRAY(&to->arena, most, to->links, r->err));
  COPSE_DO(COPSE_ARRAY(&to->arena, most, to->ways, r->err));
  to->scale = r->physical.scale;
  *network = (struct copse_network){.n_nodes = t->n_nodes,
                                    .n_terminals = t->n_ranks,
                                    .links = to->links,
                                    .terminals = t->rank_nodes,
                                    .threads = r->options->threads};
  for (size_t i = 0; i < r->n_ways; i++) {
    const struct copse_way *way = &r->ways[i], *before = i > 0 ? way - 1 : NULL;
    int src = t->rank_nodes[way->src], dst = t->rank_nodes[way->dst];
    int64_t capacity = narrowest(r, way);
    bool first = !before || before->src != way->src || before->dst != way->dst;
    add_link(to, src, first ? dst : network->n_nodes, capacity, way);
    if (!first) add_link(to, network->n_nodes++, dst, capacity, NULL);
  }
  return COPSE_OK;
}

static copse_status make_limits(struct routed *r) {
  const struct copse_instance *from = &r->instance;
  size_t links = (size_t)from->network.n_links, sum = 0;
  int64_t *capacities;
  int *first, *of, n = 0;
  for (size_t i = 0; i < r->n_ways; i++) sum += (size_t)r->ways[i].n_nodes;
  COPSE_DO(COPSE_ARRAY(&r->instance.arena, links + 1, first, r->err));
  COPSE_DO(COPSE_ARRAY(&r->instance.arena, sum, of, r->err));
  COPSE_DO(COPSE_ARRAY(&r->instance.arena, (size_t)r->topology->n_links, capacities, r->err));
  for (int e = 0; e < r->topology->n_links; e++) capacities[e] = r->physical.links[e].capacity;
  for (size_t e = 0; e < links; e++) {
    const struct copse_way *way = from->ways[e];
    first[e] = n;
    for (int i = 0; way && i + 1 < way->n_nodes; i++) of[n++] = hop_of(r, way, i);
  }
  first[links] = n;
  r->limits = (struct copse_joint_limits){r->topology->n_links, capacities, first, of};
  return COPSE_OK;
}

/* ---- the optimum ---------------------------------------------------------------------------- */

/* Finds the best rate of these phases together, into an empty *out. */
static copse_status solve(struct routed *r, bool broadcasts, bool reduces,
                          struct copse_joint *out) {
  const struct copse_solve_options *o = r->options;
  const struct copse_network *network = &r->instance.network;
  struct copse_joint_group all = {.n_members = network->n_terminals,
                                  .members = network->terminals,
                                  .broadcasts = broadcasts,
                                  .reduces = reduces,
                                  .root = o->root < 0 ? -1 : r->topology->rank_nodes[o->root]};
  struct copse_joint_options options = {
      .max_columns = COPSE_ROUTES_COLUMNS, .limits = &r->limits, .progress = o->progress};
  return copse_joint_find(network, &all, 1, &options, out, r->err);
}

static copse_status find_optimum(struct routed *r) {
  const struct copse_solve_options *o = r->options;
  copse_joint_free(&r->joint);
  copse_instance_free(&r->instance);
  COPSE_DO(make_network(r));
  COPSE_DO(make_limits(r));
  COPSE_DO(solve(r, copse_collective_broadcasts(o->collective),
                 copse_collective_reduces(o->collective), &r->joint));
  bool found = r->joint.outcome == COPSE_JOINT_PROVED || r->joint.outcome == COPSE_JOINT_CLOSE;
  if (found && r->joint.rate.num == 0)
    return copse_fail_at(r->err, COPSE_INFEASIBLE, o->label, 0,
                         "no tree over the fabric's own routes reaches all ranks");
  if (found) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_UNSUPPORTED, o->label, 0,
                       "the best trees on the fabric's own routes are not found: %s; leave out "
                       "--routes",
                       r->joint.outcome == COPSE_JOINT_TOO_LARGE
                           ? "the linear programme is too large"
                           : "the simplex method gives up");
}

/* Converts prices to whole numbers where those fit. */
static bool exact_prices(const struct copse_q *prices, int n, int64_t *whole) {
  int64_t common = 1;
  for (int e = 0; e < n; e++)
    if (copse_lcm(common, prices[e].den, &common, NULL) != COPSE_OK) return false;
  for (int e = 0; e < n; e++)
    if (copse_mul_overflows(prices[e].num, common / prices[e].den, &whole[e]) ||
        whole[e] > COPSE_ROUTES_LONGEST)
      return false;
  return true;
}

/* Rounds prices where they don't: any lengths prove a bound. */
static void round_prices(const struct copse_q *prices, int n, int64_t *whole) {
  struct copse_q largest = COPSE_Q_ZERO;
  COPSE_MPQ(unit);
  COPSE_MPQ(price);
  COPSE_MPZ(rounded);
  for (int e = 0; e < n; e++)
    if (copse_q_cmp(prices[e], largest) > 0) largest = prices[e];
  copse_mpq_set(price, largest);
  mpq_set_si(unit, COPSE_ROUTES_LONGEST, 1);
  mpq_div(unit, unit, price);
  for (int e = 0; e < n; e++) {
    copse_mpq_set(price, prices[e]);
    mpq_mul(price, price, unit);
    mpz_fdiv_q(rounded, mpq_numref(price), mpq_denref(price));
    whole[e] = mpz_get_si(rounded);
  }
}

void copse_routes_whole_prices(const struct copse_q *prices, int n, int64_t *whole) {
  int64_t divisor = 0;
  if (!exact_prices(prices, n, whole)) round_prices(prices, n, whole);
  for (int e = 0; e < n; e++) divisor = copse_gcd(divisor, whole[e]);
  for (int e = 0; e < n && divisor > 1; e++) whole[e] /= divisor;
}

/* Sets the bound to what the prices prove, as the verifier adds it up. */
static copse_status set_bound(struct routed *r, const int64_t *whole) {
  struct copse_arena *arena = &r->schedule->arena;
  const struct copse_topology *t = r->topology;
  struct copse_schedule_routes *routes;
  struct copse_schedule_length *lengths;
  COPSE_DO(COPSE_ARRAY(arena, 1, routes, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)t->n_links, lengths, r->err));
  for (int e = 0; e < t->n_links; e++)
    if (whole[e] > 0)
      lengths[routes->n_lengths++] = (struct copse_schedule_length){
          t->links[e].src, t->links[e].dst, (struct copse_q){whole[e], 1}};
  routes->lengths = lengths;
  r->schedule->routes = routes;
  return copse_verify_routes_bound(r->schedule, t, "schedule", &routes->time_per_GB, r->err);
}

/* Generates columns by ways. What they lack after so many rounds, the bound shows. */
static copse_status find_all(struct routed *r) {
  int64_t *whole;
  size_t before = 0;
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)r->topology->n_links, whole, r->err));
  COPSE_DO(begin_ways(r));
  for (int round = 0; r->n_ways > before && round < COPSE_ROUTES_ROUNDS; round++) {
    before = r->n_ways;
    COPSE_DO(find_optimum(r));
    copse_routes_whole_prices(r->joint.prices, r->limits.n, whole);
    if (round + 1 < COPSE_ROUTES_ROUNDS) COPSE_DO(add_shorter(r, whole));
  }
  return set_bound(r, whole);
}

/* Whether two phases, each at its own best rate, take together as long as at the joint one. */
static bool in_turn_as_fast(const struct copse_joint *phases, struct copse_q joint) {
  struct copse_q sum, product;
  if (!phases[0].parts || !phases[1].parts) return false;
  if (copse_q_mul(phases[0].rate, phases[1].rate, &product, NULL) != COPSE_OK ||
      copse_q_add(phases[0].rate, phases[1].rate, &sum, NULL) != COPSE_OK ||
      copse_q_mul(sum, joint, &sum, NULL) != COPSE_OK)
    return false;
  return copse_q_cmp(product, sum) >= 0;
}

/*
 * Chooses what is packed: parts [2], of an allreduce one for each phase where those in turn are as
 * fast as together. Their shares are equal then, and their trees few and low; the joint optimum has
 * any of the shares that reach it.
 */
static copse_status choose_parts(struct routed *r, struct copse_joint_part *parts, int *n) {
  *n = 1;
  parts[0] = r->joint.parts[0];
  if (r->options->collective != COPSE_ALLREDUCE) return COPSE_OK;
  for (int reduce = 0; reduce < 2; reduce++)
    COPSE_DO(solve(r, !reduce, reduce, &r->phases[reduce]));
  if (!in_turn_as_fast(r->phases, r->joint.rate)) return COPSE_OK;
  *n = 2;
  for (int reduce = 0; reduce < 2; reduce++) {
    parts[reduce] = r->phases[reduce].parts[0];
    parts[reduce].rate = r->joint.rate; /* each has all of the data */
  }
  return COPSE_OK;
}

static copse_status set_trees(struct routed *r, struct copse_solve_seconds *seconds) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_joint_part parts[2];
  int n;
  COPSE_DO(choose_parts(r, parts, &n));
  for (int i = 0; i < n && r->options->tolerance.num > 0; i++) {
    struct copse_joint_part rounded;
    bool found;
    COPSE_DO(copse_round_part(&r->instance, &parts[i], r->options->tolerance, &scratch, &rounded,
                              &found, r->err));
    if (found) parts[i] = rounded;
  }
  const struct copse_tree_parts all = {parts, n, r->joint.rate, NULL};
  return copse_solve_trees_in_parts(r->topology, r->options, &r->instance, &all, r->schedule,
                                    seconds, r->err);
}

copse_status copse_solve_on_routes(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule *schedule,
                                   struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_AT_END(release)
  struct routed r = {.topology = topology, .options = options, .schedule = schedule, .err = err};
  double start = copse_clock_seconds();
  if (topology->n_ranks > COPSE_ROUTES_RANKS)
    return copse_fail_at(err, COPSE_UNSUPPORTED, options->label, 0,
                         "the best trees on the fabric's own routes are found for at most %d "
                         "ranks, and these are %d; leave out --routes",
                         COPSE_ROUTES_RANKS, topology->n_ranks);
  COPSE_DO(copse_way_finder_new(topology, &r.finder, err));
  COPSE_DO(copse_instance_scale(topology, &r.physical, err));
  COPSE_DO(find_all(&r));
  seconds->optimum += copse_clock_seconds() - start;
  if (!options->bound_only) return set_trees(&r, seconds);
  schedule->time_per_GB = schedule->routes->time_per_GB;
  return COPSE_OK;
}
