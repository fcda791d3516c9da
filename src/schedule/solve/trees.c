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
