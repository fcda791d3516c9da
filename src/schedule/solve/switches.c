/*
 * Switches that copy or add for an allreduce: which sets of them to try, the programme that divides
 * links and shares between the sets, and its trees; then a bound for any trees that use them. The
 * reasons are in switches.h.
 */
#include "schedule/solve/switches.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/shares.h"
#include "schedule/solve/symmetry.h"
#include "solver/joint/joint.h"
#include "solver/trees/forest.h"

/* One set of switches: what the trees of both phases reach besides the ranks. */
struct way {
  int n[2], *nodes[2]; /* [0] those that copy, [1] that add */
};

struct job {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  const struct copse_instance *instance;
  struct copse_schedule *schedule;
  bool *usable[2]; /* [n_nodes] counted once all the way from the ranks (to them) */
  bool *branches;  /* [n_nodes] with three neighbours or more */
  bool *local;     /* [n_nodes] with a rank for a neighbour */
  struct way ways[COPSE_SWITCH_WAYS];
  int n_ways;
  struct copse_joint joint;
  struct copse_schedule_tree *trees;
  size_t n_trees, trees_capacity;
  struct copse_solve_seconds *seconds;
  struct copse_arena scratch;
  struct copse_err *err;
};

bool copse_has_clever_switch(const struct copse_topology *topology) {
  for (int v = 0; v < topology->n_nodes; v++)
    if (topology->nodes[v].multicast || topology->nodes[v].aggregation) return true;
  return false;
}

/* ---- which switches ------------------------------------------------------------------------ */

/* Takes out switches with a way in (for those that add: out) that counts more than once, until
 * none is left. */
static void drop_beyond_relays(const struct copse_topology *t, bool adds, bool *usable) {
  for (bool again = true; again;) {
    again = false;
    for (int e = 0; e < t->n_links; e++) {
      int near = adds ? t->links[e].src : t->links[e].dst;
      int far = adds ? t->links[e].dst : t->links[e].src;
      if (!usable[near] || usable[far] || t->nodes[far].rank >= 0) continue;
      usable[near] = false;
      again = true;
    }
  }
}

static void find_neighbours(struct job *j, int *one, int *other) {
  const struct copse_topology *t = j->topology;
  for (int v = 0; v < t->n_nodes; v++) one[v] = other[v] = -1;
  for (int e = 0; e < t->n_links; e++)
    for (int i = 0; i < 2; i++) {
      int v = i ? t->links[e].dst : t->links[e].src, w = i ? t->links[e].src : t->links[e].dst;
      if (t->nodes[w].rank >= 0) j->local[v] = true;
      if (one[v] < 0 || one[v] == w)
        one[v] = w;
      else if (other[v] < 0 || other[v] == w)
        other[v] = w;
      else
        j->branches[v] = true;
    }
}

static copse_status find_switches(struct job *j) {
  const struct copse_topology *t = j->topology;
  size_t nodes = (size_t)t->n_nodes;
  int *one, *other;
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof(bool), &j->usable[0], j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof(bool), &j->usable[1], j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof(bool), &j->branches, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof(bool), &j->local, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *one, &one, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *other, &other, j->err));
  for (int v = 0; v < t->n_nodes; v++) {
    j->usable[0][v] = t->nodes[v].rank < 0 && t->nodes[v].multicast;
    j->usable[1][v] = t->nodes[v].rank < 0 && t->nodes[v].aggregation;
  }
  drop_beyond_relays(t, false, j->usable[0]);
  drop_beyond_relays(t, true, j->usable[1]);
  find_neighbours(j, one, other);
  return COPSE_OK;
}

static bool same_way(const struct way *a, const struct way *b) {
  for (int i = 0; i < 2; i++)
    if (a->n[i] != b->n[i] ||
        (a->n[i] > 0 && memcmp(a->nodes[i], b->nodes[i], (size_t)a->n[i] * sizeof(int)) != 0))
      return false;
  return true;
}

/* A way in which those of `copying` copy and those of `adding` add, as far as they can. */
static copse_status add_way(struct job *j, const bool *copying, const bool *adding) {
  const bool *wanted[2] = {copying, adding};
  struct way *way = &j->ways[j->n_ways];
  if (j->n_ways == COPSE_SWITCH_WAYS) return COPSE_OK;
  *way = (struct way){0};
  for (int i = 0; i < 2; i++) {
    COPSE_DO(copse_arena_array(&j->scratch, (size_t)j->topology->n_nodes, sizeof(int),
                               &way->nodes[i], j->err));
    for (int v = 0; v < j->topology->n_nodes; v++)
      if (wanted[i][v] && j->usable[i][v] && j->branches[v]) way->nodes[i][way->n[i]++] = v;
  }
  for (int w = 0; w < j->n_ways; w++)
    if (same_way(way, &j->ways[w])) return COPSE_OK;
  j->n_ways++;
  return COPSE_OK;
}

/* The switches next to ranks if `locals`, the others if `others`, and `one` in any case. */
static copse_status add_tiers(struct job *j, bool *set, bool locals, bool others, int one) {
  for (int v = 0; v < j->topology->n_nodes; v++)
    set[v] = v == one || (j->local[v] ? locals : others);
  return add_way(j, set, set);
}

/* One or two switches: every set of them for copying with every set for adding. */
static copse_status add_all_sets(struct job *j, const int *nodes, int n, bool *copying,
                                 bool *adding) {
  for (int sets = 0; sets < 1 << 2 * n; sets++) {
    for (int i = 0; i < n; i++) {
      copying[nodes[i]] = sets >> 2 * i & 1;
      adding[nodes[i]] = sets >> 2 * i & 2;
    }
    COPSE_DO(add_way(j, copying, adding));
  }
  return COPSE_OK;
}

/* With `all`, every set, if there are few switches: *done then, or where there are more. */
static copse_status list_ways(struct job *j, bool all, bool *done) {
  size_t nodes = (size_t)j->topology->n_nodes;
  bool *copying, *adding;
  int *found, n = 0;
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *copying, &copying, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *adding, &adding, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *found, &found, j->err));
  for (int v = 0; v < j->topology->n_nodes; v++)
    if (j->branches[v] && (j->usable[0][v] || j->usable[1][v])) found[n++] = v;
  *done = all || n > COPSE_SWITCH_FEW;
  if (all) return add_all_sets(j, found, n, copying, adding);
  COPSE_DO(add_tiers(j, copying, false, false, -1));
  COPSE_DO(add_tiers(j, copying, true, false, -1));
  COPSE_DO(add_tiers(j, copying, true, true, -1));
  for (int i = 0; i < n; i++)
    if (!j->local[found[i]]) COPSE_DO(add_tiers(j, copying, true, false, found[i]));
  return COPSE_OK;
}

/* ---- the programme ------------------------------------------------------------------------- */

static bool in_way(const struct way *way, int i, int node) {
  int k = 0;
  while (k < way->n[i] && way->nodes[i][k] != node) k++;
  return k < way->n[i];
}

/* The way that a permutation of the nodes takes this one to, or -1. */
static int way_image(const struct job *j, const int *image, int way) {
  const struct way *from = &j->ways[way];
  for (int w = 0; w < j->n_ways; w++) {
    const struct way *to = &j->ways[w];
    bool same = true;
    for (int i = 0; i < 2; i++) {
      same = same && from->n[i] == to->n[i];
      for (int k = 0; k < from->n[i] && same; k++) same = in_way(to, i, image[from->nodes[i][k]]);
    }
    if (same) return w;
  }
  return -1;
}

/* Those of the fabric's symmetries that take every way to one. */
static copse_status keep_symmetries(struct job *j, const struct copse_permutation *found,
                                    int n_found, struct copse_joint_options *options) {
  struct copse_permutation *kept;
  int *groups;
  COPSE_DO(copse_arena_array(&j->scratch, (size_t)n_found, sizeof *kept, &kept, j->err));
  options->symmetries = kept;
  COPSE_DO(copse_arena_array(&j->scratch, (size_t)n_found * COPSE_SWITCH_WAYS, sizeof *groups,
                             &groups, j->err));
  for (int i = 0; i < n_found; i++) {
    int *images = groups + (ptrdiff_t)options->n_symmetries * COPSE_SWITCH_WAYS;
    bool good = true;
    for (int w = 0; w < j->n_ways; w++) {
      images[w] = way_image(j, found[i].image, w);
      good = good && images[w] >= 0;
    }
    if (good)
      kept[options->n_symmetries++] =
          (struct copse_permutation){.image = found[i].image, .groups = images};
  }
  return COPSE_OK;
}

static copse_status divide(struct job *j) {
  struct copse_permutation *found = NULL;
  int n_found = 0;
  struct copse_joint_group groups[COPSE_SWITCH_WAYS];
  struct copse_joint_options options = {
      .max_columns = COPSE_SWITCH_COLUMNS, .separate = true, .progress = j->options->progress};
  double start = copse_clock_seconds();
  for (int w = 0; w < j->n_ways; w++)
    groups[w] = (struct copse_joint_group){
        .n_members = j->topology->n_ranks,
        .members = j->topology->rank_nodes,
        .broadcasts = true,
        .reduces = true,
        .root = -1,
        .n_extra = {j->ways[w].n[0], j->ways[w].n[1]},
        .extra = {j->ways[w].nodes[0], j->ways[w].nodes[1]},
    };
  copse_status status;
  if (!j->options->no_symmetry && j->topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_TRY(copse_fabric_symmetries(j->topology, &found, &n_found, j->err));
  COPSE_TRY(keep_symmetries(j, found, n_found, &options));
  status = copse_joint_find(&j->instance->network, groups, j->n_ways, &options, &j->joint, j->err);
  j->seconds->optimum += copse_clock_seconds() - start;
out:
  copse_groups_symmetries_free(found, n_found);
  return status;
}

static void forget_ways(struct job *j) {
  j->n_ways = 0;
  copse_joint_free(&j->joint);
  j->joint = (struct copse_joint){0};
}

/* A few sets first; all, if these don't come to the bound. */
static copse_status choose_ways(struct job *j, struct copse_q *time, bool *found) {
  struct copse_q scale = {j->instance->scale, 1};
  bool all = false, done = false;
  *found = false;
  while (!done) {
    forget_ways(j);
    COPSE_DO(list_ways(j, all, &done));
    if (j->n_ways == 1) { /* none */
      copse_note(j->options->notes,
                 "%s: no switch is of use: one that copies or adds must be marked, and so must all "
                 "relays between it and the ranks",
                 j->options->label);
      return COPSE_OK;
    }
    COPSE_DO(divide(j));
    *found = j->joint.outcome == COPSE_JOINT_PROVED &&
             copse_q_div(scale, j->joint.rate, time, NULL) == COPSE_OK;
    done = done || (*found && copse_q_eq(*time, j->schedule->bound.time_per_GB));
    all = true;
  }
  if (!*found)
    copse_note(j->options->notes, "%s: switches that copy or add are not made use of: %s",
               j->options->label,
               j->joint.outcome == COPSE_JOINT_TOO_LARGE ? "there are too many links"
                                                         : "the fractions don't fit 64 bits");
  return COPSE_OK;
}

/* ---- trees --------------------------------------------------------------------------------- */

/* How a tree reaches its switches: from which rank, by which nodes. */
struct reach {
  int rank; /* node */
  int *path, n_path;
};

struct phase {
  struct job *j;
  bool reduce;
  struct copse_q unit;   /* of M per unit of a tree's multiplicity */
  struct reach *reaches; /* [n_nodes] */
  int *line;             /* [n_nodes * 2] a path under construction */
  struct copse_arena scratch;
};

/* A path of its own, turned around for a reduction. */
static copse_status keep_path(const struct phase *p, const int *line, int n, const int **out) {
  int *path = copse_arena_alloc(&p->j->schedule->arena, (size_t)n, sizeof *path);
  if (!path) return copse_fail_nomem(p->j->err);
  for (int i = 0; i < n; i++) path[i] = line[p->reduce ? n - 1 - i : i];
  *out = path;
  return COPSE_OK;
}

static copse_status reach_switch(struct phase *p, int node, int rank, const int *line, int n) {
  struct reach *to = &p->reaches[node];
  to->rank = rank;
  to->n_path = n;
  COPSE_DO(copse_arena_array(&p->scratch, (size_t)n, sizeof(int), &to->path, p->j->err));
  memcpy(to->path, line, (size_t)n * sizeof *line);
  return COPSE_OK;
}

/* Edges between ranks, by way of the switches that the tree branches at. */
static copse_status convert_edges(struct phase *p, const struct copse_forest_tree *from, int n_from,
                                  struct copse_schedule_edge *edges, int n_edges) {
  const struct copse_node *nodes = p->j->topology->nodes;
  int done = 0;
  for (int i = 0; i < n_from; i++) {
    const struct copse_forest_edge *edge = &from->edges[i];
    int n = 0, rank = edge->src;
    if (nodes[edge->src].rank < 0) { /* the way to the switch, which the edge's begins with */
      const struct reach *reach = &p->reaches[edge->src];
      rank = reach->rank;
      n = reach->n_path - 1;
      memcpy(p->line, reach->path, (size_t)n * sizeof *p->line);
    }
    memcpy(p->line + n, edge->path, (size_t)edge->n_path * sizeof *p->line);
    n += edge->n_path;
    if (nodes[edge->dst].rank < 0) {
      COPSE_DO(reach_switch(p, edge->dst, rank, p->line, n));
      continue;
    }
    struct copse_schedule_edge *to = &edges[p->reduce ? n_edges - 1 - done : done];
    done++;
    to->src = nodes[p->reduce ? edge->dst : rank].rank;
    to->dst = nodes[p->reduce ? rank : edge->dst].rank;
    to->n_path = n;
    COPSE_DO(keep_path(p, p->line, n, &to->path));
  }
  return COPSE_OK;
}

static copse_status convert_tree(struct phase *p, const struct copse_forest_tree *from,
                                 int n_from) {
  struct job *j = p->j;
  int n = j->topology->n_ranks - 1;
  struct copse_schedule_tree tree = {.root = j->topology->nodes[from->root].rank, .n_edges = n};
  struct copse_schedule_edge *edges =
      copse_arena_alloc(&j->schedule->arena, (size_t)n, sizeof *edges);
  if (!edges) return copse_fail_nomem(j->err);
  tree.phase = p->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  tree.edges = edges;
  COPSE_DO(copse_q_mul(p->unit, (struct copse_q){from->multiplicity, 1}, &tree.weight, j->err));
  COPSE_DO(convert_edges(p, from, n_from, edges, n));
  COPSE_DO(copse_grow(&j->trees, &j->trees_capacity, j->n_trees + 1, sizeof *j->trees, j->err));
  j->trees[j->n_trees++] = tree;
  return COPSE_OK;
}

/* The network of one phase of a way: ranks and its switches as terminals. */
static copse_status way_network(struct phase *p, int w, struct copse_instance *out) {
  struct job *j = p->j;
  const struct copse_topology *t = j->topology;
  const struct copse_joint_part *part = &j->joint.parts[w];
  struct copse_instance whole = *j->instance;
  int extra = j->ways[w].n[p->reduce], *terminals;
  size_t n = (size_t)(t->n_ranks + extra);
  int64_t *weights;
  COPSE_DO(copse_arena_array(&p->scratch, n, sizeof *terminals, &terminals, j->err));
  COPSE_DO(copse_arena_array(&p->scratch, n, sizeof *weights, &weights, j->err));
  memcpy(terminals, t->rank_nodes, (size_t)t->n_ranks * sizeof *terminals);
  memcpy(terminals + t->n_ranks, j->ways[w].nodes[p->reduce], (size_t)extra * sizeof *terminals);
  memcpy(weights, part->weights, (size_t)t->n_ranks * sizeof *weights);
  whole.network.terminals = terminals;
  whole.network.n_terminals = t->n_ranks + extra;
  return copse_free_shares_instance(&whole, weights, p->reduce ? part->reduce : part->broadcast,
                                    p->reduce, out, j->err);
}

static copse_status pack_phase(struct job *j, int w, bool reduce) {
  const struct copse_joint_part *part = &j->joint.parts[w];
  struct copse_forest_options options = {
      .as_given = true, .progress = j->options->progress, .trust_from = j->options->trust_from};
  struct phase p = {.j = j, .reduce = reduce};
  struct copse_instance instance = {0};
  struct copse_forest forest = {0};
  size_t nodes = (size_t)j->topology->n_nodes;
  copse_status status;
  COPSE_TRY(copse_arena_array(&p.scratch, nodes, sizeof *p.reaches, &p.reaches, j->err));
  COPSE_TRY(copse_arena_array(&p.scratch, nodes * (nodes + 1), sizeof *p.line, &p.line, j->err));
  COPSE_TRY(copse_q_div(part->rate, j->joint.rate, &p.unit, j->err));
  COPSE_TRY(copse_q_div(p.unit, (struct copse_q){part->whole, 1}, &p.unit, j->err));
  COPSE_TRY(way_network(&p, w, &instance));
  COPSE_TRY(copse_forest_solve(&instance.network, &options, &forest, j->err));
  for (int i = 0; i < forest.n_trees; i++)
    COPSE_TRY(convert_tree(&p, &forest.trees[i], instance.network.n_terminals - 1));
  j->seconds->split += forest.seconds_split;
  j->seconds->pack += forest.seconds_pack;
out:
  copse_arena_free(&p.scratch);
  copse_forest_free(&forest);
  copse_instance_free(&instance);
  return status;
}

static copse_status make_trees(struct job *j) {
  struct copse_schedule *s = j->schedule;
  struct copse_schedule_tree *trees;
  for (int reduce = 1; reduce >= 0; reduce--)
    for (int w = 0; w < j->n_ways; w++)
      if (j->joint.parts[w].whole > 0) COPSE_DO(pack_phase(j, w, reduce));
  trees = copse_arena_alloc(&s->arena, j->n_trees, sizeof *trees);
  if (!trees) return copse_fail_nomem(j->err);
  memcpy(trees, j->trees, j->n_trees * sizeof *trees);
  s->trees = trees;
  s->n_trees = (int)j->n_trees;
  s->k = copse_schedule_unit_k(s);
  return copse_tree_time(j->topology, trees, j->n_trees, &s->time_per_GB, j->err);
}

copse_status copse_solve_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_q at_most, struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, bool *faster,
                                       struct copse_err *err) {
  struct job j = {.topology = topology,
                  .options = options,
                  .instance = instance,
                  .schedule = schedule,
                  .seconds = seconds,
                  .err = err};
  struct copse_q time;
  bool found;
  copse_status status;
  *faster = false;
  COPSE_TRY(find_switches(&j));
  COPSE_TRY(choose_ways(&j, &time, &found));
  *faster = found && copse_q_cmp(time, at_most) < 0;
  if (*faster && options->bound_only) schedule->time_per_GB = time;
  if (*faster && !options->bound_only) COPSE_TRY(make_trees(&j));
out:
  forget_ways(&j);
  copse_arena_free(&j.scratch);
  free(j.trees);
  return status;
}

/* ---- the bound ----------------------------------------------------------------------------- */

void copse_mark_unbalanced(const struct copse_topology *t, bool *unbalanced) {
  for (int v = 0; v < t->n_nodes; v++)
    unbalanced[v] = t->nodes[v].multicast || t->nodes[v].aggregation;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_node *src = &t->nodes[t->links[e].src], *dst = &t->nodes[t->links[e].dst];
    if (src->multicast || src->aggregation) unbalanced[t->links[e].dst] = true;
    if (dst->multicast || dst->aggregation) unbalanced[t->links[e].src] = true;
  }
}

/* By symmetries, if there are any. */
static copse_status find_proof(const struct copse_topology *topology,
                               const struct copse_solve_options *options,
                               const struct copse_instance *instance, const bool *unbalanced,
                               struct copse_shares *out, struct copse_err *err) {
  struct copse_shares_options search = {.at_least = COPSE_Q_ZERO,
                                        .max_columns = COPSE_SWITCH_COLUMNS,
                                        .symmetric = true,
                                        .unbalanced = unbalanced,
                                        .progress = options->progress};
  if (!options->no_symmetry && topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(copse_shares_find(topology, instance, &search, out, err));
  if (out->outcome == COPSE_JOINT_PROVED) return COPSE_OK;
  copse_shares_free(out);
  search.symmetric = false;
  return copse_shares_find(topology, instance, &search, out, err);
}

copse_status copse_bound_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_shares proof = {.outcome = COPSE_JOINT_UNPROVED};
  struct copse_q time, scale = {instance->scale, 1};
  bool *unbalanced = NULL;
  double start = copse_clock_seconds();
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, sizeof *unbalanced, &unbalanced, err));
  copse_mark_unbalanced(topology, unbalanced);
  COPSE_TRY(find_proof(topology, options, instance, unbalanced, &proof, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (proof.outcome != COPSE_JOINT_PROVED || copse_q_div(scale, proof.rate, &time, NULL)) goto out;
  if (copse_q_cmp(time, schedule->bound.time_per_GB) <= 0) goto out;
  COPSE_TRY(copse_free_shares_bound(topology, &proof, time, schedule, err));
out:
  free(unbalanced);
  copse_shares_free(&proof);
  return status;
}
