/*
 * Trees of a schedule from the solver's forests. A forest edge is an edge between terminals over a
 * physical path. Where relays are terminals, as switches that copy or add, a tree's way to one
 * becomes the beginning of the paths that leave it:
 *
 *   forest   a -> s, s -> b, s -> c        schedule   a -> (s) -> b, a -> (s) -> c
 *
 * A reduce phase is a broadcast on the network with links turned around: so are its trees.
 * docs/theory.md, "src/schedule/".
 */
#include "schedule/solve/trees.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/repair_internal.h"
#include "solver/trees/optimum.h"

/* How a tree reaches a relay among its terminals: from which rank, by which nodes. */
struct reach {
  int rank; /* node */
  const int *path;
  int n_path;
};

struct conversion {
  const struct copse_topology *topology;
  int n_terminals;
  bool reduce;
  struct copse_schedule *schedule;
  struct reach *reaches; /* [n_nodes] of the tree at hand */
  struct copse_arena *scratch;
  struct copse_err *err;
};

/* Converts one tree's edges between ranks. */
static copse_status convert_edges(struct conversion *c, const struct copse_forest_tree *from,
                                  struct copse_schedule_edge *edges) {
  const struct copse_node *nodes = c->topology->nodes;
  bool reduce = c->reduce;
  int done = 0, n_edges = c->topology->n_ranks - 1;
  for (int i = 0; i < c->n_terminals - 1; i++) {
    const struct copse_forest_edge *edge = &from->edges[i];
    const struct reach *before = nodes[edge->src].rank < 0 ? &c->reaches[edge->src] : NULL;
    bool ends = nodes[edge->dst].rank >= 0;
    int rank = before ? before->rank : edge->src, n_before = before ? before->n_path - 1 : 0;
    int *path, n = n_before + edge->n_path;
    struct copse_arena *arena = ends ? &c->schedule->arena : c->scratch;
    COPSE_DO(COPSE_ARRAY(arena, (size_t)n, path, c->err));
    for (int k = 0; k < n; k++)
      path[ends && reduce ? n - 1 - k : k] =
          k < n_before ? before->path[k] : edge->path[k - n_before];
    if (!ends) {
      c->reaches[edge->dst] = (struct reach){rank, path, n};
      continue;
    }
    edges[reduce ? n_edges - 1 - done : done] =
        (struct copse_schedule_edge){.src = nodes[reduce ? edge->dst : rank].rank,
                                     .dst = nodes[reduce ? rank : edge->dst].rank,
                                     .path = path,
                                     .n_path = n};
    done++;
  }
  return COPSE_OK;
}

copse_status copse_add_trees(const struct copse_topology *t, const struct copse_forest *forest,
                             int n_terminals, bool reduce, struct copse_q unit,
                             struct copse_schedule *s, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct conversion c = {.topology = t,
                         .n_terminals = n_terminals,
                         .reduce = reduce,
                         .schedule = s,
                         .scratch = &scratch,
                         .err = err};
  size_t before = (size_t)s->n_trees, n = before + (size_t)forest->n_trees;
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_nodes, c.reaches, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, n, trees, err));
  if (before > 0) memcpy(trees, s->trees, before * sizeof *trees);
  s->trees = trees;
  for (int i = 0; i < forest->n_trees; i++) {
    const struct copse_forest_tree *from = &forest->trees[i];
    struct copse_schedule_tree *to = &trees[s->n_trees++];
    struct copse_schedule_edge *edges;
    to->root = t->nodes[from->root].rank;
    to->phase = reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
    to->n_edges = t->n_ranks - 1;
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)to->n_edges, edges, err));
    COPSE_DO(convert_edges(&c, from, edges));
    COPSE_DO(copse_q_mul(unit, (struct copse_q){from->multiplicity, 1}, &to->weight, err));
    to->edges = edges;
  }
  return COPSE_OK;
}

/* ---- parts --------------------------------------------------------------------------------- */

struct packing {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  const struct copse_instance *instance;
  struct copse_schedule *schedule;
  struct copse_solve_seconds *seconds;
  struct copse_err *err;
};

/* Makes what one phase of a part has to pack: its roots with their shares, its part of the links,
 * and as terminals the ranks and the extra nodes. */
static copse_status make_network(const struct copse_instance *instance,
                                 const struct copse_joint_part *part,
                                 const struct copse_joint_group *group, bool reduce,
                                 struct copse_arena *scratch, struct copse_network *out,
                                 struct copse_err *err) {
  const struct copse_network *from = &instance->network;
  const int64_t *capacities = reduce ? part->reduce : part->broadcast;
  int n_ranks = from->n_terminals, extra = group ? group->n_extra[reduce] : 0, *terminals;
  size_t links = (size_t)from->n_links, all = (size_t)(n_ranks + extra);
  struct copse_net_link *to;
  struct copse_net_root *roots;
  COPSE_DO(COPSE_ARRAY(scratch, links, to, err));
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)n_ranks, roots, err));
  COPSE_DO(COPSE_ARRAY(scratch, all, terminals, err));
  memcpy(terminals, from->terminals, (size_t)n_ranks * sizeof *terminals);
  if (extra > 0) memcpy(terminals + n_ranks, group->extra[reduce], (size_t)extra * sizeof(int));
  *out = *from;
  out->n_links = out->n_roots = out->n_sinks = 0;
  out->sinks = NULL; /* equal weights only make ranks of an orbit alike */
  out->links = to;
  out->roots = roots;
  out->terminals = terminals;
  out->n_terminals = (int)all;
  for (int e = 0; e < from->n_links; e++) {
    const struct copse_net_link *link = &from->links[e];
    if (capacities[e] > 0)
      to[out->n_links++] = (struct copse_net_link){reduce ? link->dst : link->src,
                                                   reduce ? link->src : link->dst, capacities[e]};
  }
  for (int i = 0; i < n_ranks; i++)
    if (part->weights[i] > 0)
      roots[out->n_roots++] = (struct copse_net_root){from->terminals[i], part->weights[i]};
  return COPSE_OK;
}

/* Takes the route of an edge where links stand for routes: its path is its link, or two by way of
 * the route's own node. A reduction's forest has links turned around. */
static copse_status take_way(const struct copse_instance *instance, bool reduce,
                             struct copse_forest *forest, struct copse_forest_edge *edge,
                             struct copse_err *err) {
  int n = edge->n_path, src = reduce ? edge->path[n - 1] : edge->path[0];
  int next = reduce ? edge->path[n - 2] : edge->path[1], e = 0, *nodes;
  const struct copse_network *network = &instance->network;
  while (e < network->n_links && (network->links[e].src != src || network->links[e].dst != next))
    e++;
  const struct copse_way *way = e < network->n_links ? instance->ways[e] : NULL;
  if (!way) return copse_fail(err, COPSE_INTERNAL, "a tree has an edge that is no route");
  COPSE_DO(COPSE_ARRAY(&forest->arena, (size_t)way->n_nodes, nodes, err));
  for (int i = 0; i < way->n_nodes; i++) nodes[i] = way->nodes[reduce ? way->n_nodes - 1 - i : i];
  edge->path = nodes;
  edge->n_path = way->n_nodes;
  return COPSE_OK;
}

static copse_status take_ways(const struct copse_instance *instance, bool reduce,
                              struct copse_forest *forest, struct copse_err *err) {
  int n = instance->network.n_terminals - 1;
  for (int t = 0; t < forest->n_trees && instance->ways; t++) {
    struct copse_forest_edge *edges;
    COPSE_DO(COPSE_ARRAY(&forest->arena, (size_t)n, edges, err));
    memcpy(edges, forest->trees[t].edges, (size_t)n * sizeof *edges);
    for (int i = 0; i < n; i++) COPSE_DO(take_way(instance, reduce, forest, &edges[i], err));
    forest->trees[t].edges = edges;
  }
  return COPSE_OK;
}

/* Packs `share` of the data. */
static copse_status pack_phase(struct packing *p, const struct copse_joint_part *part,
                               const struct copse_joint_group *group, bool reduce,
                               struct copse_q share) {
  struct copse_forest_options options = {
      .as_given = true, .progress = p->options->progress, .trust_from = p->options->trust_from};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_network network;
  COPSE_AT_END(copse_forest_free) struct copse_forest forest = {0};
  COPSE_DO(copse_q_div(share, (struct copse_q){part->whole, 1}, &share, p->err));
  COPSE_DO(make_network(p->instance, part, group, reduce, &scratch, &network, p->err));
  COPSE_DO(copse_forest_solve(&network, &options, &forest, p->err));
  COPSE_DO(take_ways(p->instance, reduce, &forest, p->err));
  COPSE_DO(copse_add_trees(p->topology, &forest, network.n_terminals, reduce, share, p->schedule,
                           p->err));
  p->seconds->split += forest.seconds_split;
  p->seconds->pack += forest.seconds_pack;
  return COPSE_OK;
}

/* ---- rounded parts ------------------------------------------------------------------------- */

struct remainder {
  int64_t of; /* part->weights[member] * whole modulo part->whole */
  int member;
};

COPSE_ORDER(largest_first, struct remainder, COPSE_DOWN(of) ?: COPSE_UP(member))

/* Rounds shares to `whole` units, by largest remainders (Hamilton). */
static copse_status round_shares(const struct copse_joint_part *part, int n, int64_t whole,
                                 struct copse_arena *arena, int64_t *weights,
                                 struct copse_err *err) {
  struct remainder *list;
  int64_t left = whole;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, list, err));
  for (int i = 0; i < n; i++) {
    __int128 product = (__int128)part->weights[i] * whole;
    weights[i] = (int64_t)(product / part->whole);
    list[i] = (struct remainder){(int64_t)(product % part->whole), i};
    left -= weights[i];
  }
  COPSE_SORT(list, n, largest_first);
  for (int i = 0; i < left; i++) weights[list[i].member]++;
  return COPSE_OK;
}

/* Rounds the links of one phase: u times what they had, rounded down. */
static copse_status round_phase(const struct copse_instance *instance,
                                const struct copse_joint_part *part, bool reduce, struct copse_q u,
                                struct copse_arena *arena, int64_t *to, bool *carries,
                                struct copse_err *err) {
  const int64_t *from = reduce ? part->reduce : part->broadcast;
  struct copse_network network;
  int64_t *capacities;
  COPSE_DO(make_network(instance, part, NULL, reduce, arena, &network, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network.n_links, capacities, err));
  COPSE_DO(copse_optimum_round(&network, u, 1, capacities, carries, err));
  for (int e = 0, i = 0; e < instance->network.n_links; e++)
    to[e] = from[e] > 0 ? capacities[i++] : 0;
  return COPSE_OK;
}

copse_status copse_round_part(const struct copse_instance *instance,
                              const struct copse_joint_part *part, struct copse_q within,
                              struct copse_arena *arena, struct copse_joint_part *to, bool *found,
                              struct copse_err *err) {
  int n = instance->network.n_terminals;
  size_t links = (size_t)instance->network.n_links;
  int64_t *weights, *phases[2];
  struct copse_q more, u;
  *found = false;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, weights, err));
  COPSE_DO(COPSE_ARRAYS(arena, links, int64_t, err, &phases[0], &phases[1]));
  COPSE_DO(copse_q_add(COPSE_Q_ONE, within, &more, err));
  for (int64_t each = 1; each <= COPSE_ROUNDED_SHARES && n * each < part->whole && !*found;
       each += (each + 1) / 2) {
    *to = (struct copse_joint_part){.rate = part->rate, .whole = n * each, .weights = weights};
    if (copse_q_make(to->whole, part->whole, &u, NULL) || copse_q_mul(u, more, &u, NULL)) break;
    COPSE_DO(round_shares(part, n, to->whole, arena, weights, err));
    *found = true;
    for (int reduce = 0; reduce < 2 && *found; reduce++) {
      struct copse_joint_part rounded = *part;
      rounded.weights = weights;
      if (reduce ? !part->reduce : !part->broadcast) continue;
      COPSE_DO(round_phase(instance, &rounded, reduce, u, arena, phases[reduce], found, err));
    }
  }
  to->broadcast = part->broadcast ? phases[0] : NULL;
  to->reduce = part->reduce ? phases[1] : NULL;
  return COPSE_OK;
}

copse_status copse_solve_trees_in_parts(
    const struct copse_topology *topology, const struct copse_solve_options *options,
    const struct copse_instance *instance, const struct copse_tree_parts *parts,
    struct copse_schedule *s, struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct packing p = {topology, options, instance, s, seconds, err};
  s->n_trees = 0;
  s->n_rotations = 0; /* roots of one orbit may have unequal shares */
  for (int reduce = 1; reduce >= 0; reduce--)
    for (int i = 0; i < parts->n; i++) {
      const struct copse_joint_part *part = &parts->of[i];
      struct copse_q share = COPSE_Q_ONE;
      if (part->whole == 0 || !(reduce ? part->reduce : part->broadcast)) continue;
      if (parts->n > 1) COPSE_DO(copse_q_div(part->rate, parts->rate, &share, err));
      COPSE_DO(pack_phase(&p, part, parts->groups ? &parts->groups[i] : NULL, reduce, share));
    }
  s->k = copse_schedule_unit_k(s);
  return copse_tree_time(topology, s->trees, (size_t)s->n_trees, &s->time_per_GB, err);
}

/* ---- fewer trees --------------------------------------------------------------------------- */

copse_status copse_smallest_k(const struct copse_topology *topology,
                              const struct copse_solve_options *o, bool reversed, int64_t *k,
                              struct copse_err *err) {
  COPSE_AT_END(copse_instance_free) struct copse_instance instance = {0};
  COPSE_AT_END(copse_optimum_free) struct copse_optimum optimum = {.x = COPSE_Q_ZERO};
  struct copse_scale exact;
  struct copse_q limit, loss, u;
  bool carries;
  COPSE_AT_END(copse_free_at) int64_t *capacities = NULL;
  *k = 0;
  COPSE_DO(copse_instance_make(topology, o->label, o->root, reversed, &instance, err));
  COPSE_DO(copse_calloc((size_t)topology->n_links, sizeof *capacities, &capacities, err));
  COPSE_DO(copse_optimum_find(&instance.network, o->progress, &optimum, err));
  if (optimum.x.num == 0) return COPSE_OK; /* the phase itself says who can't be reached */
  COPSE_DO(copse_optimum_scale(&instance.network, optimum.x, &exact, err));
  COPSE_DO(copse_q_add(COPSE_Q_ONE, o->tolerance, &limit, err));
  for (int64_t tried = 1; tried < exact.k && tried <= COPSE_TRIED_K && *k == 0; tried++) {
    COPSE_DO(copse_q_mul(limit, (struct copse_q){tried, 1}, &u, err));
    COPSE_DO(copse_q_div(u, optimum.x, &u, err));
    COPSE_DO(copse_optimum_round(&instance.network, u, tried, capacities, &carries, err));
    copse_progress_report(o->progress, "k", tried, exact.k);
    if (!carries) continue; /* the least U for this k, below, is larger */
    COPSE_DO(copse_optimum_fixed_k(&instance.network, optimum.x, tried, &u, capacities, err));
    COPSE_DO(copse_q_mul(u, optimum.x, &loss, err)); /* time over the optimum: U x / k */
    COPSE_DO(copse_q_div(loss, (struct copse_q){tried, 1}, &loss, err));
    if (copse_q_cmp(loss, limit) <= 0) *k = tried;
  }
  return COPSE_OK;
}

/* ==== trees hung by prices ==================================================================== */

/*
 * Repair (repair.h) where an allreduce's phases run together and nearly all links are full. A way
 * may take a link that is full, at a price that grows exponentially with the part of the capacity
 * that is used. Ranks are moved off links with too much as long as that is cheaper, so that what is
 * too much anywhere spreads over all links that have a little room, and no two trees push each
 * other to and fro: each move makes the sum of all prices less. One move is
 *
 *   u > v      to      w > v           or, where v is in a host over which a kid comes in as well,
 *   u > v > k  to      w > k > v
 *
 * and no rank comes to hang too deep.
 */

/* The way to a rank that has moved, listed at a link that it crossed when it was made. */
struct listed_way {
  int variant, rank, next; /* at the same link, -1: none */
};

struct prices {
  struct repairing *r;
  int most;        /* depth of a rank */
  int steep;       /* how fast prices grow */
  int64_t n_looks; /* at nodes */
  struct copse_nearest near;
  int *way, *kid_way; /* [n_nodes] links of ways that are left */
  struct listed_way *ways;
  size_t n_ways, ways_capacity;
  int *last_way; /* [n_links] the last one listed there, -1: none */
};

static void free_prices(struct prices *p) { free(p->ways); }

static bool is_tired(const struct prices *p) {
  return p->n_looks > (int64_t)p->r->from->looks * p->r->base.n_ranks;
}

/* Returns what a rank of the base tree hangs on, -1: nowhere, or it is the root. */
static int up_of(struct repairing *r, int index, int rank) {
  const struct variant *v = &r->variants[index];
  int at = find_move(r, index, rank);
  return at < 0 ? r->trees[v->tree].up[rank] : v->moves[at].up;
}

/* Finds the links of the way to a rank that hangs somewhere; returns how many. */
static int way_to(struct repairing *r, int index, int rank, int *way) {
  const struct variant *v = &r->variants[index];
  struct copse_image image = copse_image_of(&r->images, v->image);
  const struct copse_schedule_edge *edge =
      &r->base.trees[v->tree].edges[r->trees[v->tree].edge[rank]];
  int at = find_move(r, index, rank), n_path = at < 0 ? edge->n_path : v->places[at].n_path;
  for (int last = -1, i = 0; i < n_path; i++) {
    int node = at < 0 ? copse_image_node(&r->images, &image, edge->path[i]) : v->places[at].path[i];
    if (i > 0) way[i - 1] = broken_link(r, last, node);
    last = node;
  }
  return n_path - 1;
}

static void load_way(struct repairing *r, const int *way, int n, int64_t trees) {
  for (int i = 0; i < n; i++) r->load[way[i]] += trees;
}

/* Returns what so many more trees on a link cost, -1: it carries none. With y for the part of its
 * capacity by which it is over that with half of them, the price is trees / capacity 2^(steep y),
 * where powers are linear between whole exponents. */
static int64_t price(const struct prices *p, int link, int64_t trees) {
  const int64_t one = COPSE_REPAIR_ONE, middle = COPSE_REPAIR_MOST_POWER * one;
  int64_t capacity = copse_smaller(p->r->capacity[link], COPSE_REPAIR_MOST_CAPACITY);
  if (capacity <= 0) return -1;
  int64_t over = copse_smaller(trees / 2 - room(p->r, link), capacity);
  int64_t power = middle + copse_larger(over, -capacity) * p->steep * one / capacity;
  power = copse_larger(0, copse_smaller(power, 2 * middle));
  __int128 cost = (__int128)((one + power % one) << (power / one)) * trees / capacity;
  return cost < COPSE_REPAIR_MOST_PRICE ? 1 + (int64_t)cost : COPSE_REPAIR_MOST_PRICE;
}

static int64_t price_of_way(const struct prices *p, const int *way, int n, int64_t trees) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) sum += price(p, way[i], trees);
  return sum;
}

/* Returns the depth of a rank; -1: it hangs nowhere, or is `above` or below that one. */
static int depth_beside(struct repairing *r, int index, int rank, int above) {
  int depth = 0, root = r->trees[r->variants[index].tree].root;
  for (; rank != root; depth++) {
    if (rank < 0 || rank == above) return -1;
    rank = up_of(r, index, rank);
  }
  return depth;
}

/* Returns how far down it goes from a rank, but not over `without`, which hangs on it; or -1. */
static int height_below(struct repairing *r, int index, int rank, int without) {
  const struct variant *v = &r->variants[index];
  const struct copse_base_tree *tree = &r->trees[v->tree];
  mark(r, index);
  bool hide = without >= 0 && r->move_at[without] == 0;
  if (hide) r->move_at[without] = -1;
  int most = copse_moved_below(tree, r->move_at, rank);
  for (int i = 0; i < v->n; i++) {
    int up = v->moves[i].rank, hops = 0;
    for (; up >= 0 && up != rank && up != without && up != tree->root; hops++)
      up = r->move_at[up] == 0 ? tree->up[up] : v->moves[r->move_at[up] - 1].up;
    if (up != rank || hops == 0) continue;
    hops += copse_moved_below(tree, r->move_at, v->moves[i].rank);
    if (hops > most) most = hops;
  }
  if (hide) r->move_at[without] = 0;
  return most;
}

/* What a search is for: ways to `rank` for so many trees, cheaper than `limit`, from a rank at most
 * `deepest` in the tree that is not `above` or below that one; or from `only`, if that is not -1.
 */
struct wanted {
  int index, rank, above, deepest, only;
  int64_t trees, limit;
};

/* A rank that hangs on the one that a search is for, and what a way from it costs. */
struct kid {
  int rank;
  int64_t cost;
};

/* Returns the link into a relay that a search from node `to` goes back over, where there is but
 * one, as of a NIC; else -1. A switch has hundreds of such: to queue what is beyond takes half as
 * long. */
static int only_way_on(const struct repairing *r, int relay, int to) {
  int first = r->entering.first[relay], n = r->entering.first[relay + 1] - first;
  if (r->numbers.rank_of[relay] >= 0 || n != 2) return -1;
  int one = r->entering.item[first], other = r->entering.item[first + 1];
  bool back = r->from->network->links[one].src == to;
  if (back == (r->from->network->links[other].src == to)) return -1;
  return back ? other : one;
}

/* Searches backwards through relays, the cheapest way first: the node of the rank found, or -1.
 * kids [COPSE_REPAIR_KIDS] or NULL: the nearest. */
static int search_by_price(struct prices *p, const struct wanted *w, struct kid *kids, int *n_kids,
                           int64_t *cost) {
  struct repairing *r = p->r;
  const struct copse_net_link *links = r->from->network->links;
  const struct variant *v = &r->variants[w->index];
  struct copse_image image = copse_image_of(&r->images, v->image);
  int start = copse_image_node(&r->images, &image, r->base.rank_nodes[w->rank]);
  copse_nearest_reset(&p->near);
  (void)copse_nearest_offer(&p->near, start, 0);
  while (p->near.n > 0) {
    int b = copse_nearest_take(&p->near);
    *cost = p->near.distance[b];
    p->n_looks++;
    if (*cost >= w->limit) break;
    if (b != start && r->numbers.rank_of[b] >= 0) {
      int rank = copse_image_rank(&r->images, v->image, b, r->seen);
      int depth = w->only < 0 ? depth_beside(r, w->index, rank, w->above) : 0;
      if (kids && *n_kids < COPSE_REPAIR_KIDS && up_of(r, w->index, rank) == w->rank)
        kids[(*n_kids)++] = (struct kid){rank, *cost};
      if (w->only < 0 ? depth >= 0 && depth <= w->deepest : rank == w->only) return b;
      continue;
    }
    for (int i = r->entering.first[b]; i < r->entering.first[b + 1]; i++) {
      int e = r->entering.item[i], a = links[e].src, on = only_way_on(r, a, b);
      int64_t more = price(p, e, w->trees),
              beyond = on < 0 || more < 0 ? 0 : price(p, on, w->trees);
      int to = on < 0 ? a : links[on].src;
      if (more < 0 || beyond < 0 || !copse_nearest_offer(&p->near, to, *cost + more + beyond))
        continue;
      r->via[a] = e;
      if (on >= 0) r->via[to] = on;
    }
  }
  return -1;
}

/* A place for a rank: on one at most so deep; or that is the place of `kid`, which hangs on the
 * rank, and the rank's is on it. */
struct found {
  bool any;
  int kid, deepest; /* kid -1: none */
  int64_t cost;
};

/* Finds the cheapest place for a rank, whose own way is not loaded meanwhile. */
static void find_place(struct prices *p, int index, int rank, int64_t trees, int64_t limit,
                       struct found *best) {
  struct repairing *r = p->r;
  struct kid kids[COPSE_REPAIR_KIDS];
  struct wanted w = {index, rank, rank, 0, -1, trees, limit};
  int n_kids = 0;
  int64_t cost;
  w.deepest = p->most - 1 - height_below(r, index, rank, -1);
  *best = (struct found){false, -1, w.deepest, limit};
  best->any = search_by_price(p, &w, kids, &n_kids, &cost) >= 0;
  if (best->any) best->cost = cost;
  for (const struct kid *kid = kids; kid < kids + n_kids; kid++) {
    int n = way_to(r, index, kid->rank, p->kid_way);
    int below = height_below(r, index, kid->rank, -1);
    int beside = height_below(r, index, rank, kid->rank) + 1;
    load_way(r, p->kid_way, n, -trees);
    int64_t other = kid->cost - price_of_way(p, p->kid_way, n, trees);
    w.rank = kid->rank;
    w.deepest = p->most - 1 - (below > beside ? below : beside);
    w.limit = best->cost - other;
    if (search_by_price(p, &w, NULL, NULL, &cost) >= 0)
      *best = (struct found){true, kid->rank, w.deepest, cost + other};
    load_way(r, p->kid_way, n, trees);
  }
}

/* Lists the way to a rank that has moved at its links. */
static copse_status list_way(struct prices *p, int index, int at) {
  const struct place *place = &p->r->variants[index].places[at];
  int rank = p->r->variants[index].moves[at].rank;
  for (int i = 0; i + 1 < place->n_path; i++) {
    int link = broken_link(p->r, place->path[i], place->path[i + 1]);
    COPSE_DO(COPSE_GROW(p->ways, p->ways_capacity, p->n_ways + 1, p->r->err));
    p->ways[p->n_ways] = (struct listed_way){index, rank, p->last_way[link]};
    p->last_way[link] = (int)p->n_ways++;
  }
  return COPSE_OK;
}

/* Hangs a rank that hangs nowhere where a search finds. */
static copse_status hang(struct prices *p, const struct wanted *w) {
  struct repairing *r = p->r;
  const struct copse_net_link *links = r->from->network->links;
  int64_t cost;
  int at = find_move(r, w->index, w->rank), n = 0, *path;
  struct variant *v = &r->variants[w->index];
  int end = search_by_price(p, w, NULL, NULL, &cost), node = r->base.rank_nodes[v->places[at].rank];
  if (end < 0) return copse_fail(r->err, COPSE_INTERNAL, "a place that was found is gone");
  for (int a = end; a != node; a = links[r->via[a]].dst) n++;
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)n + 1, path, r->err));
  v->places[at].path = path;
  v->places[at].n_path = n + 1;
  for (int a = end; a != node; a = links[r->via[a]].dst) {
    *path++ = a;
    r->load[r->via[a]] += w->trees;
  }
  *path = node;
  v->moves[at].up = copse_image_rank(&r->images, v->image, end, r->seen);
  return list_way(p, w->index, at);
}

/* Moves a rank of so many of a variant's trees to a cheaper place, or if it hangs nowhere to any;
 * the others of these trees stay as they are. */
static copse_status move_rank(struct prices *p, int index, int rank, int64_t trees, bool *done) {
  struct repairing *r = p->r;
  bool hangs = up_of(r, index, rank) >= 0;
  int n = hangs ? way_to(r, index, rank, p->way) : 0, at, rest;
  struct found to;
  load_way(r, p->way, n, -trees);
  find_place(p, index, rank, trees, hangs ? price_of_way(p, p->way, n, trees) : INT64_MAX / 4, &to);
  load_way(r, p->way, n, trees);
  *done = to.any;
  if (!*done) return COPSE_OK;
  if (trees < r->variants[index].trees) {
    COPSE_DO(copse_repair_split(r, index, trees, &rest));
    for (int i = 0; i < r->variants[rest].n; i++) COPSE_DO(list_way(p, rest, i));
  }
  if (hangs) COPSE_DO(copse_repair_detach(r, index, rank, &at));
  if (to.kid >= 0) COPSE_DO(copse_repair_detach(r, index, to.kid, &at));
  struct wanted w = {index, to.kid < 0 ? rank : to.kid, rank, to.deepest, -1, trees, INT64_MAX};
  COPSE_DO(hang(p, &w));
  if (to.kid < 0) return COPSE_OK;
  w.rank = rank, w.only = to.kid;
  return hang(p, &w);
}

/* Moves ranks that have moved before off a link that has too much. */
static copse_status drain_moved(struct prices *p, int link) {
  struct repairing *r = p->r;
  for (int c = p->last_way[link], next; c >= 0 && room(r, link) < 0 && !is_tired(p); c = next) {
    struct listed_way way = p->ways[c];
    const struct variant *v = &r->variants[way.variant];
    const struct place *place = &v->places[find_move(r, way.variant, way.rank)];
    bool crosses = false, done;
    next = way.next;
    for (int i = 0; i + 1 < place->n_path && !crosses; i++)
      crosses = broken_link(r, place->path[i], place->path[i + 1]) == link;
    int64_t trees = copse_smaller(v->trees, -room(r, link));
    if (crosses) COPSE_DO(move_rank(p, way.variant, way.rank, trees, &done));
  }
  return COPSE_OK;
}

/* Does the same with ranks that hang as in the healthy schedule. The image of before is looked at
 * first: neighbouring images cross neighbouring links. */
static copse_status drain_healthy(struct prices *p, int link) {
  struct repairing *r = p->r;
  const struct copse_link *of = &r->t->links[link];
  struct copse_image_users *all = &r->left[link];
  int start = 0;
  if (!all->item)
    COPSE_DO(copse_numbering_image_users(&r->numbers, &r->images, &r->crossing, of->src, of->dst,
                                         r->arena, all, r->err));
  while (start < all->n && all->item[start].image < r->last_image) start++;
  for (int i = 0; i < all->n && room(r, link) < 0 && !is_tired(p); i++) {
    struct copse_image_user at = all->item[(start + i) % all->n];
    struct copse_image image = copse_image_of(&r->images, at.image);
    struct copse_tree_user user = r->users[at.user];
    int first;
    if (is_gone(r, &image, r->base.trees[user.tree].root) || is_gone(r, &image, user.rank))
      continue;
    COPSE_DO(copse_repair_variants(r, user.tree, at.image, &first));
    for (int v = first; v >= 0 && room(r, link) < 0; v = r->variants[v].next) {
      bool done;
      if (find_move(r, v, user.rank) >= 0) continue;
      int64_t trees = copse_smaller(r->variants[v].trees, -room(r, link));
      COPSE_DO(move_rank(p, v, user.rank, trees, &done));
      if (done) r->last_image = at.image;
    }
  }
  return COPSE_OK;
}

/* Detaches what leaves ranks by links with too much: what comes to them can't be less. */
static copse_status detach_leaving(struct prices *p) {
  struct repairing *r = p->r;
  for (int e = 0; e < r->t->n_links; e++) {
    const struct copse_link *of = &r->t->links[e];
    struct copse_image_users *all = &r->left[e];
    if (r->numbers.rank_of[of->src] < 0 || room(r, e) >= 0) continue;
    if (!all->item)
      COPSE_DO(copse_numbering_image_users(&r->numbers, &r->images, &r->crossing, of->src, of->dst,
                                           r->arena, all, r->err));
    for (int i = 0; i < all->n && room(r, e) < 0; i++) {
      struct copse_image image = copse_image_of(&r->images, all->item[i].image);
      struct copse_tree_user user = r->users[all->item[i].user];
      int first, rest, at;
      if (is_gone(r, &image, r->base.trees[user.tree].root) || is_gone(r, &image, user.rank))
        continue;
      COPSE_DO(copse_repair_variants(r, user.tree, all->item[i].image, &first));
      if (find_move(r, first, user.rank) >= 0) continue;
      if (-room(r, e) < r->variants[first].trees)
        COPSE_DO(copse_repair_split(r, first, -room(r, e), &rest));
      COPSE_DO(copse_repair_detach(r, first, user.rank, &at));
    }
  }
  return COPSE_OK;
}

/* Finds places for all that hangs nowhere, for some trees at a time; *hangs: some have none. */
static copse_status place_detached(struct prices *p, bool *hangs) {
  struct repairing *r = p->r;
  for (bool moving = true; moving && !is_tired(p);) {
    moving = *hangs = false;
    for (int v = 0; v < (int)r->n_variants; v++)
      for (int i = 0; i < r->variants[v].n && !is_tired(p); i++) {
        bool done;
        if (r->variants[v].moves[i].up != COPSE_HANGS_NOWHERE) continue;
        int64_t piece = copse_smaller(r->variants[v].trees, 1 + r->k / COPSE_REPAIR_CUT);
        COPSE_DO(move_rank(p, v, r->variants[v].moves[i].rank, piece, &done));
        moving = moving || done;
        *hangs = *hangs || !done;
      }
  }
  return COPSE_OK;
}

/* Finds places, then goes through all links with too much, with steeper prices where that has not
 * become much less. */
static copse_status settle_by_prices(struct prices *p, bool *settled) {
  const struct repairing *r = p->r;
  int64_t before = INT64_MAX, over = 1;
  bool hangs = true;
  p->steep = COPSE_REPAIR_STEEP;
  if (r->from->leaving) COPSE_DO(detach_leaving(p));
  COPSE_DO(place_detached(p, &hangs));
  while (!hangs && over > 0 && p->steep <= COPSE_REPAIR_STEEPEST && !is_tired(p)) {
    over = 0;
    for (int e = 0; e < r->t->n_links; e++) over += copse_larger(0, -room(r, e));
    if (over > before - before / COPSE_REPAIR_MUCH) p->steep *= 2;
    before = over;
    for (int e = 0; e < r->t->n_links; e++) {
      if (room(r, e) < 0) COPSE_DO(drain_moved(p, e));
      if (room(r, e) < 0) COPSE_DO(drain_healthy(p, e));
    }
  }
  *settled = over == 0;
  return COPSE_OK;
}

copse_status copse_repair_by_prices(struct repairing *detached, struct copse_schedule *schedule,
                                    bool *made) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_repair_release) struct repairing r = {0};
  COPSE_AT_END(free_prices) struct prices p = {.r = &r, .most = detached->height};
  COPSE_DO(copse_repair_copy(detached, &arena, &r));
  p.most += COPSE_REPAIR_HIGHEST;
  COPSE_DO(copse_nearest_prepare(r.arena, r.t->n_nodes, &p.near, r.err));
  COPSE_DO(COPSE_ARRAYS(r.arena, (size_t)r.t->n_nodes, int, r.err, &p.way, &p.kid_way));
  COPSE_DO(COPSE_ARRAY(r.arena, (size_t)r.t->n_links, p.last_way, r.err));
  for (int e = 0; e < r.t->n_links; e++) p.last_way[e] = -1;
  COPSE_DO(settle_by_prices(&p, made));
  return *made ? copse_repair_keep(&r, schedule) : COPSE_OK;
}
