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
 *
 * Before all that trees of any paths, which are optimal and low, are hung on the routes: a rank on
 * whose way some link carries too much is hung elsewhere in its tree, with all below it. Where
 * every link then takes the bound's time at most, the cuts of the bound are the proof.
 */
#include "schedule/solve/routes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exact.h"
#include "base/types.h"
#include "schedule/solve/instance.h"
#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/switches.h"
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

/* Adds a way to each pair that has a shorter one than those it uses. */
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

/* ---- trees hung on routes ------------------------------------------------------------------- */

/* A tree by rank. */
struct hanging {
  const struct copse_schedule_tree *from;
  bool reduce;
  double weight;      /* of M */
  int *parent;        /* [n] -1: the root */
  int *way;           /* [n] of the pair */
  int *depth, *below; /* [n] hops from the root, and to the lowest that hangs there */
};

/* All of them, and what links carry. The price of a link grows steeply with its load, so that trees
 * leave what is over the time that they may take. */
struct hanger {
  const struct copse_topology *t;
  const struct copse_routes *routes;
  int n, n_trees; /* n: ranks */
  struct hanging *trees;
  int highest;   /* hops */
  size_t *first; /* [n * n * ways + 1] of a pair's way: into links */
  int *links;
  double target, steep;     /* s per GB that links may take; exponent */
  double priced;            /* the weight that prices are of */
  double *bandwidth, *load; /* [n_links] of M */
  double *price;            /* [n_links] of one more tree */
  int64_t work;             /* ways that may still be looked at */
  struct copse_arena arena;
  struct copse_err *err;
};

static void release_hanger(struct hanger *h) { copse_arena_free(&h->arena); }

/* Lists links of ways over relays alone, of equal ones the first. */
static copse_status list_ways(struct hanger *h) {
  const struct copse_routes *routes = h->routes;
  size_t ways = (size_t)routes->ways, all = (size_t)h->n * (size_t)h->n * ways, n = 0;
  COPSE_DO(COPSE_ARRAY(&h->arena, all + 1, h->first, h->err));
  COPSE_DO(COPSE_ARRAY(&h->arena, routes->n_nodes, h->links, h->err));
  for (size_t i = 0; i < all; i++) {
    int src = (int)(i / ways) / h->n, dst = (int)(i / ways) % h->n, way = (int)(i % ways), m;
    const int *nodes = copse_route_way(routes, src, dst, way, &m);
    h->first[i] = n;
    if (src == dst || !copse_route_is_hop(h->t, nodes, m)) continue;
    if (way > 0 && routes->first[i] == routes->first[i - (size_t)way]) continue;
    for (int j = 0; j + 1 < m; j++)
      h->links[n++] = copse_topology_find_link(h->t, nodes[j], nodes[j + 1]);
  }
  h->first[all] = n;
  return COPSE_OK;
}

/* Returns the number of the first way between a rank and the one that it hangs on. */
static size_t ways_to(const struct hanger *h, const struct hanging *tree, int parent, int v) {
  size_t src = (size_t)(tree->reduce ? v : parent), dst = (size_t)(tree->reduce ? parent : v);
  return (src * (size_t)h->n + dst) * (size_t)h->routes->ways;
}

static void set_price(struct hanger *h, int link) {
  double time = 1 / h->bandwidth[link] / h->target;
  double before = exp(h->steep * (h->load[link] * time - 1));
  h->price[link] = before * (exp(h->steep * h->priced * time) - 1);
}

static void set_prices(struct hanger *h, double weight) {
  if (h->priced == weight) return;
  h->priced = weight;
  for (int e = 0; e < h->t->n_links; e++) set_price(h, e);
}

/* Adds a way's load, or takes it away. */
static void load_way(struct hanger *h, size_t way, double amount) {
  for (size_t i = h->first[way]; i < h->first[way + 1]; i++) {
    h->load[h->links[i]] += amount;
    set_price(h, h->links[i]);
  }
}

/* Returns the price of the cheapest way from `first` on, INFINITY: there is none; *way: which. */
static double cheapest(struct hanger *h, size_t first, int *way) {
  double least = INFINITY;
  for (int k = 0; k < h->routes->ways; k++) {
    size_t at = first + (size_t)k;
    double sum = 0;
    if (h->first[at] == h->first[at + 1]) break;
    for (size_t i = h->first[at]; i < h->first[at + 1]; i++) sum += h->price[h->links[i]];
    if (sum >= least) continue;
    least = sum;
    *way = k;
  }
  h->work--;
  return least;
}

static void measure(const struct hanger *h, struct hanging *tree) {
  memset(tree->below, 0, (size_t)h->n * sizeof *tree->below);
  for (int v = 0; v < h->n; v++) {
    int hops = 0;
    for (int u = tree->parent[v]; u >= 0; u = tree->parent[u])
      if (tree->below[u] < ++hops) tree->below[u] = hops;
    tree->depth[v] = hops;
  }
}

static bool hangs_below(const struct hanging *tree, int u, int v) {
  while (u >= 0 && u != v) u = tree->parent[u];
  return u == v;
}

static bool is_late(const struct hanger *h, int link) {
  return h->load[link] > h->target * h->bandwidth[link] * (1 + COPSE_ROUTES_ROUNDING);
}

/* Whether some link of the way that v hangs by carries too much. */
static bool hangs_late(const struct hanger *h, const struct hanging *tree, int v) {
  size_t way = ways_to(h, tree, tree->parent[v], v) + (size_t)tree->way[v];
  for (size_t i = h->first[way]; i < h->first[way + 1]; i++)
    if (is_late(h, h->links[i])) return true;
  return false;
}

/* Hangs v, with all below it, where that is cheapest; at equal cost it stays. */
static void rehang(struct hanger *h, struct hanging *tree, int v) {
  int parent = tree->parent[v], way = tree->way[v];
  size_t before = ways_to(h, tree, parent, v) + (size_t)way;
  double least = 0;
  load_way(h, before, -tree->weight);
  for (size_t i = h->first[before]; i < h->first[before + 1]; i++) least += h->price[h->links[i]];
  for (int u = 0; u < h->n; u++) {
    int other = -1;
    if (tree->depth[u] + 1 + tree->below[v] > h->highest || hangs_below(tree, u, v)) continue;
    double price = cheapest(h, ways_to(h, tree, u, v), &other);
    if (price >= least * (1 - COPSE_ROUTES_ROUNDING)) continue;
    least = price;
    parent = u;
    way = other;
  }
  bool moved = parent != tree->parent[v];
  tree->parent[v] = parent;
  tree->way[v] = way;
  load_way(h, ways_to(h, tree, parent, v) + (size_t)way, tree->weight);
  if (moved) measure(h, tree);
}

static double longest_time(const struct hanger *h) {
  double most = 0;
  for (int e = 0; e < h->t->n_links; e++) most = fmax(most, h->load[e] / h->bandwidth[e]);
  return most;
}

/* Hangs a tree as it is, each edge by the cheapest way of its pair. *made: all have one. */
static copse_status hang(struct hanger *h, const struct copse_schedule_tree *from, double weight,
                         struct hanging *to, bool *made) {
  *to = (struct hanging){from, from->phase == COPSE_PHASE_REDUCE, weight, NULL, NULL, NULL, NULL};
  COPSE_DO(COPSE_ARRAYS(&h->arena, (size_t)h->n, int, h->err, &to->parent, &to->way, &to->depth,
                        &to->below));
  to->parent[from->root] = -1;
  for (int e = 0; e < from->n_edges; e++) {
    int v = to->reduce ? from->edges[e].src : from->edges[e].dst;
    to->parent[v] = to->reduce ? from->edges[e].dst : from->edges[e].src;
    size_t first = ways_to(h, to, to->parent[v], v);
    *made = *made && cheapest(h, first, &to->way[v]) < INFINITY;
    if (*made) load_way(h, first + (size_t)to->way[v], weight);
  }
  measure(h, to);
  if (h->highest < to->below[from->root]) h->highest = to->below[from->root];
  return COPSE_OK;
}

static copse_status hang_all(struct hanger *h, const struct copse_schedule *s, int copies,
                             bool *made) {
  size_t links = (size_t)h->t->n_links;
  COPSE_DO(list_ways(h));
  COPSE_DO(COPSE_ARRAYS(&h->arena, links, double, h->err, &h->bandwidth, &h->load, &h->price));
  COPSE_DO(COPSE_ARRAY(&h->arena, (size_t)(s->n_trees * copies), h->trees, h->err));
  for (int e = 0; e < h->t->n_links; e++)
    h->bandwidth[e] = copse_q_to_double(h->t->links[e].bandwidth);
  for (int i = 0; i < s->n_trees * copies && *made; i++) {
    const struct copse_schedule_tree *tree = &s->trees[i / copies];
    double weight = copse_q_to_double(tree->weight) / copies;
    set_prices(h, weight);
    COPSE_DO(hang(h, tree, weight, &h->trees[h->n_trees++], made));
  }
  return COPSE_OK;
}

/* Goes through all trees, ever steeper, until no link carries too much. */
static void rehang_all(struct hanger *h) {
  for (int round = 0; round < COPSE_ROUTES_HANG_ROUNDS && h->work > 0; round++) {
    bool late = false, all = round >= COPSE_ROUTES_LATE_ROUNDS;
    h->steep = fmin(2 * h->steep, COPSE_ROUTES_STEEPEST);
    h->priced = 0; /* prices are of another steepness */
    for (int i = 0; i < h->n_trees; i++) {
      struct hanging *tree = &h->trees[i];
      set_prices(h, tree->weight);
      for (int v = 0; v < h->n && h->work > 0; v++) {
        bool is_late = tree->parent[v] >= 0 && hangs_late(h, tree, v);
        late = late || is_late;
        if (is_late || (all && tree->parent[v] >= 0)) rehang(h, tree, v);
      }
    }
    if (!late) break;
  }
}

/* ---- lower, at the same time ---------------------------------------------------------------- */

/* Whether links of a way can take so much more. */
static bool has_room(const struct hanger *h, size_t way, double weight) {
  for (size_t i = h->first[way]; i < h->first[way + 1]; i++) {
    int e = h->links[i];
    if (h->load[e] + weight > h->target * h->bandwidth[e] * (1 + COPSE_ROUTES_ROUNDING))
      return false;
  }
  return h->first[way] < h->first[way + 1]; /* false: the pair has no such way */
}

/* Returns which of the ways from `first` on has room; -1: none. */
static int find_room(struct hanger *h, size_t first, double weight) {
  int k = 0;
  h->work--;
  while (k < h->routes->ways && !has_room(h, first + (size_t)k, weight)) k++;
  return k < h->routes->ways ? k : -1;
}

/* Hangs v higher up where links have room, as high as goes. */
static void raise(struct hanger *h, struct hanging *tree, int v) {
  int parent = tree->parent[v], way = tree->way[v];
  load_way(h, ways_to(h, tree, parent, v) + (size_t)way, -tree->weight);
  for (int u = 0; u < h->n; u++) {
    if (tree->depth[u] >= tree->depth[parent] || hangs_below(tree, u, v)) continue;
    int k = find_room(h, ways_to(h, tree, u, v), tree->weight);
    if (k < 0) continue;
    parent = u;
    way = k;
  }
  bool moved = parent != tree->parent[v];
  tree->parent[v] = parent;
  tree->way[v] = way;
  load_way(h, ways_to(h, tree, parent, v) + (size_t)way, tree->weight);
  if (moved) measure(h, tree);
}

static void raise_all(struct hanger *h) {
  double target = h->target, most = longest_time(h);
  if (h->target < most) h->target = most;
  for (int depth = 2; depth <= h->highest; depth++)
    for (int i = 0; i < h->n_trees; i++)
      for (int v = 0; v < h->n && h->work > 0; v++)
        if (h->trees[i].depth[v] == depth) raise(h, &h->trees[i], v);
  h->target = target;
}

/* ---- as a schedule -------------------------------------------------------------------------- */

/* Returns the next vertex of a tree in the order of its edges: by depth, at each depth from behind
 * the root's number on, so that roots do not all begin with the same rank; -1: no more. *at: 0 at
 * first. */
static int next_vertex(const struct hanger *h, const struct hanging *tree, int *at) {
  for (; *at < h->highest * h->n; ++*at) {
    int v = (tree->from->root + *at) % h->n;
    if (tree->depth[v] != *at / h->n + 1) continue;
    ++*at;
    return v;
  }
  return -1;
}

/* Writes a tree's edges, of a reduction backwards. */
static copse_status keep_edges(const struct hanger *h, const struct hanging *tree,
                               struct copse_arena *arena, struct copse_schedule_edge *edges) {
  int n = 0, most = h->n - 1;
  for (int at = 0, v; (v = next_vertex(h, tree, &at)) >= 0; n++) {
    int m, *path, src = tree->reduce ? v : tree->parent[v],
                  dst = tree->reduce ? tree->parent[v] : v;
    const int *nodes = copse_route_way(h->routes, src, dst, tree->way[v], &m);
    COPSE_DO(COPSE_ARRAY(arena, (size_t)m, path, h->err));
    memcpy(path, nodes, (size_t)m * sizeof *path);
    edges[tree->reduce ? most - 1 - n : n] = (struct copse_schedule_edge){src, dst, path, m};
  }
  return COPSE_OK;
}

static copse_status keep_all(struct hanger *h, int copies, struct copse_schedule *s) {
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)h->n_trees, trees, h->err));
  for (int i = 0; i < h->n_trees; i++) {
    struct copse_schedule_edge *edges;
    const struct copse_schedule_tree *from = h->trees[i].from;
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)h->n - 1, edges, h->err));
    COPSE_DO(keep_edges(h, &h->trees[i], &s->arena, edges));
    trees[i] = *from;
    trees[i].edges = edges;
    COPSE_DO(copse_q_div(from->weight, (struct copse_q){copies, 1}, &trees[i].weight, h->err));
  }
  s->trees = trees;
  s->n_trees = h->n_trees;
  s->k = copse_schedule_unit_k(s);
  return copse_tree_time(h->t, trees, (size_t)h->n_trees, &s->time_per_GB, h->err);
}

copse_status copse_hang_on_routes(const struct copse_topology *topology,
                                  const struct copse_routes *routes, struct copse_q target,
                                  int copies, int higher, const struct copse_schedule *from,
                                  struct copse_schedule *to, bool *made, struct copse_err *err) {
  COPSE_AT_END(release_hanger)
  struct hanger h = {.t = topology,
                     .routes = routes,
                     .n = topology->n_ranks,
                     .target = copse_q_to_double(target),
                     .steep = COPSE_ROUTES_STEEP,
                     .work = COPSE_ROUTES_WORK,
                     .err = err};
  *made = (int64_t)from->n_trees * copies * h.n <= COPSE_ROUTES_VERTICES;
  if (*made) COPSE_DO(hang_all(&h, from, copies, made));
  if (!*made) return COPSE_OK;
  h.highest += higher;
  rehang_all(&h);
  raise_all(&h);
  return keep_all(&h, copies, to);
}

/* ---- without a programme -------------------------------------------------------------------- */

/* Adds to each orbit the links that cross a cut: out of it, or into it. */
static copse_status count_crossing(const struct routed *r, const int *cut, int n, bool into,
                                   const int *first, int *crossing) {
  const struct copse_topology *t = r->topology;
  COPSE_AT_END(copse_free_at) bool *inside = NULL;
  COPSE_DO(copse_calloc((size_t)t->n_nodes, sizeof *inside, &inside, r->err));
  for (int i = 0; i < n; i++) inside[cut[i]] = true;
  for (int e = 0; e < t->n_links; e++) {
    int src = t->links[e].src, dst = t->links[e].dst;
    crossing[first[e]] += inside[into ? dst : src] && !inside[into ? src : dst];
  }
  return COPSE_OK;
}

/* Prices the links that cross the bound's cuts; of an allreduce, where shares are free in the bound
 * to be proved, with the mean over all images under the fabric's symmetries. */
static copse_status price_cuts(struct routed *r, int64_t *whole) {
  const struct copse_bound *bound = &r->schedule->bound;
  size_t links = (size_t)r->topology->n_links;
  bool both = bound->kind == COPSE_BOUND_PHASES;
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry symmetry = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first, *members, *crossing;
  int64_t common = 1;
  if (both) COPSE_DO(copse_fabric_symmetries(r->topology, &symmetry, r->err));
  COPSE_DO(copse_links_orbits(&r->physical.network, symmetry.generators,
                              symmetry.n + symmetry.n_others, &scratch, &first, r->err));
  COPSE_DO(COPSE_ARRAYS(&scratch, links, int, r->err, &members, &crossing));
  COPSE_DO(count_crossing(r, bound->cut, bound->n_cut,
                          !both && copse_collective_reduces(r->options->collective), first,
                          crossing));
  if (both)
    COPSE_DO(count_crossing(r, bound->reduce_cut, bound->n_reduce_cut, true, first, crossing));
  for (size_t e = 0; e < links; e++) members[first[e]]++;
  for (size_t e = 0; e < links; e++)
    COPSE_DO(copse_lcm(common, members[first[e]], &common, r->err));
  for (size_t e = 0; e < links; e++) whole[e] = crossing[first[e]] * (common / members[first[e]]);
  return COPSE_OK;
}

/* Solves for trees on any paths, of equal shares, and hangs them on the routes: *done, they take no
 * longer than the bound of any trees, or by the tolerance, and the bound's cuts prove it. */
static copse_status hang_best(struct routed *r, bool *done) {
  struct copse_solve_options any = *r->options;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *from = NULL;
  COPSE_AT_END(copse_routes_free) struct copse_routes routes = {0};
  struct copse_solve_seconds ignored;
  struct copse_schedule *s = r->schedule;
  struct copse_q limit;
  int64_t *whole;
  bool made = true;
  *done = false;
  if (copse_has_clever_switch(r->topology) ||
      (s->bound.kind != COPSE_BOUND_CUT && s->bound.kind != COPSE_BOUND_PHASES))
    return COPSE_OK;
  any.on_routes = any.bound_only = false;
  any.equal_shares = any.collective == COPSE_ALLREDUCE;
  if (any.tolerance.num == 0) any.tolerance = COPSE_Q_ZERO;
  COPSE_DO(copse_solve_schedule(r->topology, &any, &from, &ignored, r->err));
  COPSE_DO(copse_schedule_expand(from, r->err));
  COPSE_DO(copse_plan_routes_find(r->topology, &routes, r->err));
  COPSE_DO(copse_q_add(COPSE_Q_ONE, any.tolerance, &limit, r->err));
  COPSE_DO(copse_q_mul(limit, s->bound.time_per_GB, &limit, r->err));
  for (int copies = 1; copies <= COPSE_ROUTES_COPIES && made && !*done; copies *= 2) {
    COPSE_DO(copse_hang_on_routes(r->topology, &routes, s->bound.time_per_GB, copies, 0, from, s,
                                  &made, r->err));
    *done = made && copse_q_cmp(s->time_per_GB, limit) <= 0;
  }
  if (!*done) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)r->topology->n_links, whole, r->err));
  COPSE_DO(price_cuts(r, whole));
  COPSE_DO(set_bound(r, whole));
  *done = copse_q_eq(s->routes->time_per_GB, s->bound.time_per_GB);
  return COPSE_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

copse_status copse_solve_on_routes(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule *schedule,
                                   struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_AT_END(release)
  struct routed r = {.topology = topology, .options = options, .schedule = schedule, .err = err};
  struct copse_err why = COPSE_ERR_INIT;
  double start = copse_clock_seconds();
  bool hung;
  if (topology->n_ranks > COPSE_ROUTES_RANKS)
    return copse_fail_at(err, COPSE_UNSUPPORTED, options->label, 0,
                         "the best trees on the fabric's own routes are found for at most %d "
                         "ranks, and these are %d; leave out --routes",
                         COPSE_ROUTES_RANKS, topology->n_ranks);
  COPSE_DO(copse_way_finder_new(topology, &r.finder, err));
  COPSE_DO(copse_instance_scale(topology, &r.physical, err));
  r.err = &why;
  copse_status status = hang_best(&r, &hung);
  r.err = err;
  if (status == COPSE_OVERFLOW) hung = false; /* other numbers may fit */
  if (status != COPSE_OK && status != COPSE_OVERFLOW)
    return copse_fail(err, status, "%s", why.text);
  if (!hung) COPSE_DO(find_all(&r));
  seconds->optimum += copse_clock_seconds() - start;
  if (!options->bound_only) return hung ? COPSE_OK : set_trees(&r, seconds);
  schedule->n_trees = 0;
  schedule->time_per_GB = schedule->routes->time_per_GB;
  return COPSE_OK;
}
