/*
 * Rings, double binary trees and direct exchange as spanning trees over routes.
 *
 * Double binary tree (Sanders, Speck, Traff, Parallel Computing 35(12), 2009), 6 ranks in order:
 * half of the data over each tree, and whoever forwards in one is a leaf of the other.
 *
 *        4               3
 *      /   \           /   \
 *     2     5 .       5     2
 *    / \     \       / \   /
 *   1   3     6     6   4 1
 */
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "predict/baseline_internal.h"
#include "predict/policy.h"
#include "schedule/loads.h"

/* A shape: which rank is to hang from which, parents first. */
struct link_up {
  int parent, child;
};

struct shape {
  struct link_up *links; /* [n_ranks] */
  int n;
  char *in_tree; /* [n_ranks] scratch of grow_tree */
  int *route;    /* [n_nodes + 1] the same */
};

static copse_status start_shape(struct copse_baseline_work *w, struct shape *shape) {
  const struct copse_topology *t = w->topology;
  size_t n = (size_t)t->n_ranks, nodes = (size_t)t->n_nodes;
  COPSE_DO(copse_arena_array(&w->scratch, n, sizeof *shape->links, &shape->links, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, n, 1, &shape->in_tree, w->err));
  return copse_arena_array(&w->scratch, nodes + 1, sizeof(int), &shape->route, w->err);
}

static void add_link(struct shape *shape, int parent, int child) {
  shape->links[shape->n++] = (struct link_up){parent, child};
}

/* ---- from a shape to a tree over routes ------------------------------------------------ */

struct grower {
  struct copse_baseline_work *w;
  bool reduce;
  char *in_tree; /* [n_ranks] */
  int *route;    /* [n_nodes + 1] from parent to child, against the links where it reduces */
  struct copse_schedule_edge *edges;
  int n_edges;
};

static copse_status add_edge(struct grower *g, const int *route, int n, int parent, int child) {
  struct copse_schedule_edge *edge = &g->edges[g->n_edges++];
  int *path;
  COPSE_DO(copse_arena_array(g->w->arena, (size_t)n, sizeof *path, &path, g->w->err));
  for (int i = 0; i < n; i++) path[i] = route[g->reduce ? n - 1 - i : i];
  *edge =
      (struct copse_schedule_edge){g->reduce ? child : parent, g->reduce ? parent : child, path, n};
  g->in_tree[child] = 1;
  return COPSE_OK;
}

/* Ranks on the way join the tree where they are met; the way starts at the last one in it. */
static copse_status join(struct grower *g, int parent, int child) {
  const struct copse_topology *t = g->w->topology;
  int n, start = 0;
  const int *found =
      copse_route(&g->w->routes, g->reduce ? child : parent, g->reduce ? parent : child, &n);
  for (int i = 0; i < n; i++) g->route[i] = found[g->reduce ? n - 1 - i : i];
  for (int i = 0; i < n; i++) {
    int rank = t->nodes[g->route[i]].rank;
    if (rank >= 0 && g->in_tree[rank]) start = i;
  }
  for (int i = start + 1; i < n; i++) {
    int rank = t->nodes[g->route[i]].rank;
    if (rank < 0) continue;
    COPSE_DO(add_edge(g, g->route + start, i - start + 1, t->nodes[g->route[start]].rank, rank));
    start = i;
  }
  return COPSE_OK;
}

static void reverse(struct copse_schedule_edge *edges, int n) {
  for (int i = 0, j = n - 1; i < j; i++, j--) {
    struct copse_schedule_edge e = edges[i];
    edges[i] = edges[j];
    edges[j] = e;
  }
}

static copse_status grow_tree(struct copse_baseline_work *w, enum copse_phase phase, int root,
                              struct copse_q weight, const struct shape *shape) {
  struct grower g = {.w = w,
                     .reduce = phase == COPSE_PHASE_REDUCE,
                     .in_tree = shape->in_tree,
                     .route = shape->route};
  size_t n = (size_t)w->topology->n_ranks;
  COPSE_DO(copse_arena_array(w->arena, n, sizeof *g.edges, &g.edges, w->err));
  memset(g.in_tree, 0, n);
  g.in_tree[root] = 1;
  for (int i = 0; i < shape->n; i++)
    if (!g.in_tree[shape->links[i].child])
      COPSE_DO(join(&g, shape->links[i].parent, shape->links[i].child));
  if (g.reduce) reverse(g.edges, g.n_edges);
  COPSE_DO(copse_grow(&w->trees, &w->trees_capacity, w->n_trees + 1, sizeof *w->trees, w->err));
  w->trees[w->n_trees++] = (struct copse_schedule_tree){
      .root = root, .phase = phase, .weight = weight, .n_edges = g.n_edges, .edges = g.edges};
  return COPSE_OK;
}

/* The shape as a tree of every phase that the collective has. */
static copse_status grow_phases(struct copse_baseline_work *w, int root, struct copse_q weight,
                                const struct shape *shape) {
  copse_collective collective = w->options->collective;
  if (copse_collective_reduces(collective))
    COPSE_DO(grow_tree(w, COPSE_PHASE_REDUCE, root, weight, shape));
  if (copse_collective_broadcasts(collective))
    COPSE_DO(grow_tree(w, COPSE_PHASE_BROADCAST, root, weight, shape));
  return COPSE_OK;
}

static bool has_root(const struct copse_baseline_work *w, int rank) {
  return w->options->root < 0 || w->options->root == rank;
}

/* ---- ring ------------------------------------------------------------------------------ */

/* Whether data gets from one rank to the other without a third. */
static bool adjacent(const struct copse_baseline_work *w, int src, int dst) {
  int n;
  const int *route = copse_route(&w->routes, src, dst, &n);
  for (int i = 1; i + 1 < n; i++)
    if (w->topology->nodes[route[i]].rank >= 0) return false;
  return n > 0;
}

static bool closes(const struct copse_baseline_work *w, const int *ring, int n) {
  for (int i = 0; i < n; i++)
    if (!adjacent(w, ring[i], ring[(i + 1) % n])) return false;
  return true;
}

/* Depth first, lowest rank first: next[d] is the rank to try at depth d. */
static bool search_ring(const struct copse_baseline_work *w, int *ring, int *next, char *used) {
  int n = w->topology->n_ranks, depth = 1, tries = 0;
  ring[0] = 0;
  next[1] = 1;
  used[0] = 1;
  while (depth > 0 && tries++ < RING_TRIES) {
    int rank = next[depth];
    while (rank < n && (used[rank] || !adjacent(w, ring[depth - 1], rank))) rank++;
    if (rank == n) { /* back */
      if (--depth > 0) used[ring[depth]] = 0;
      continue;
    }
    next[depth] = rank + 1;
    ring[depth] = rank;
    if (depth == n - 1) {
      if (adjacent(w, rank, 0)) return true;
      continue;
    }
    used[rank] = 1;
    next[++depth] = 1;
  }
  return false;
}

static copse_status find_ring(struct copse_baseline_work *w, int *ring) {
  int n = w->topology->n_ranks, *next = NULL;
  char *used = NULL;
  for (int i = 0; i < n; i++) ring[i] = i;
  if (n < 3 || closes(w, ring, n)) return COPSE_OK;
  COPSE_DO(copse_arena_array(&w->scratch, (size_t)n + 1, sizeof *next, &next, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, (size_t)n, 1, &used, w->err));
  if (!search_ring(w, ring, next, used))
    for (int i = 0; i < n; i++) ring[i] = i;
  return COPSE_OK;
}

/* ---- channels -------------------------------------------------------------------------- */

/* How rings and trees are laid out. */
struct layout {
  const int *ring; /* [n_ranks] the order of channel 0 */
  int channels;
  bool both_ways;
};

/* What grows the trees of one channel in an order of the ranks. */
typedef copse_status grow_fn(struct copse_baseline_work *w, const int *order, struct copse_q weight,
                             struct shape *shape);

/* Channel c: host by host, each host's ranks in the ring's order turned on by c; every other
 * host backwards, so that a rank hands over to its like. */
static void order_channel(const struct copse_baseline_work *w, const struct layout *l, int c,
                          int *order) {
  int n = w->topology->n_ranks, places = w->hosts.first[1], filled = 0;
  for (int h = 0; h < w->hosts.n_hosts && l->channels > 1; h++) {
    int *start = order + filled, k = 0;
    for (int i = 0; i < n; i++) {
      if (w->hosts.of_rank[l->ring[i]] != h) continue;
      int turned = (k++ - c + places) % places;
      start[h % 2 == 0 ? turned : places - 1 - turned] = l->ring[i];
    }
    filled += places;
  }
  if (l->channels == 1) memcpy(order, l->ring, (size_t)n * sizeof *order);
}

static void turn_around(int *order, int n) {
  for (int i = 0, j = n - 1; i < j; i++, j--) {
    int rank = order[i];
    order[i] = order[j];
    order[j] = rank;
  }
}

static copse_status lay_out(struct copse_baseline_work *w, const struct layout *l, grow_fn *grow) {
  size_t n = (size_t)w->topology->n_ranks;
  int ways = l->both_ways ? 2 : 1;
  struct copse_q weight = {1, (int64_t)l->channels * ways};
  struct shape shape = {0};
  int *order = NULL;
  w->n_trees = 0;
  COPSE_DO(start_shape(w, &shape));
  COPSE_DO(copse_arena_array(&w->scratch, n, sizeof *order, &order, w->err));
  for (int c = 0; c < l->channels; c++) {
    for (int way = 0; way < ways; way++) {
      order_channel(w, l, c, order);
      if (way == 1) turn_around(order, (int)n);
      COPSE_DO(grow(w, order, weight, &shape));
    }
  }
  return COPSE_OK;
}

/* Builds the layout in a place of its own and looks at the time. */
static copse_status time_of(struct copse_baseline_work *w, const struct layout *l, grow_fn *grow,
                            struct copse_q *time) {
  struct copse_arena scratch = {0}, *arena = w->arena;
  copse_status status;
  w->arena = &scratch;
  COPSE_TRY(lay_out(w, l, grow));
  status = copse_tree_time(w->topology, w->trees, w->n_trees, time, w->err);
out:
  w->arena = arena;
  copse_arena_free(&scratch);
  return status;
}

/* What lay_out_best chooses from. */
struct choice {
  grow_fn *grow;
  bool directed;        /* the two ways round differ */
  int64_t trees;        /* per order and way */
  const int *orders[2]; /* that found by search, and that of the ranks; may be the same */
};

/* Of all layouts the fastest, of equals the simplest. */
static copse_status lay_out_best(struct copse_baseline_work *w, const struct choice *choice) {
  int64_t n = w->topology->n_ranks;
  int channels = w->hosts.n_hosts > 1 && w->hosts.even ? w->hosts.first[1] : 1;
  struct layout best = {choice->orders[0], 1, false};
  struct copse_q best_time, time;
  COPSE_DO(time_of(w, &best, choice->grow, &best_time));
  for (int way = 1; way < 8; way++) {
    struct layout l = {choice->orders[way / 4], way / 2 % 2 == 0 ? 1 : channels, way % 2 == 1};
    int64_t edges = choice->trees * n * l.channels * (l.both_ways ? 2 : 1);
    bool again = way >= 4 && choice->orders[1] == choice->orders[0];
    if (again || edges > MOST_EDGES || (l.both_ways && !choice->directed)) continue;
    if (way / 2 % 2 == 1 && channels == 1) continue;
    COPSE_DO(time_of(w, &l, choice->grow, &time));
    if (copse_q_cmp(time, best_time) >= 0) continue;
    best = l;
    best_time = time;
  }
  return lay_out(w, &best, choice->grow);
}

static int64_t roots_of(const struct copse_baseline_work *w) {
  return w->options->root < 0 ? w->topology->n_ranks : 1;
}

/* ---- rings ----------------------------------------------------------------------------- */

static copse_status grow_chains(struct copse_baseline_work *w, const int *order,
                                struct copse_q weight, struct shape *shape) {
  int n = w->topology->n_ranks;
  weight.den *= roots_of(w);
  for (int start = 0; start < n; start++) {
    if (!has_root(w, order[start])) continue;
    shape->n = 0;
    for (int i = 0; i + 1 < n; i++)
      add_link(shape, order[(start + i) % n], order[(start + i + 1) % n]);
    COPSE_DO(grow_phases(w, order[start], weight, shape));
  }
  return COPSE_OK;
}

copse_status copse_baseline_ring(struct copse_baseline_work *w) {
  int *ring = NULL, *ranks = NULL;
  size_t n = (size_t)w->topology->n_ranks;
  COPSE_DO(copse_arena_array(&w->scratch, n, sizeof *ring, &ring, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, n, sizeof *ranks, &ranks, w->err));
  COPSE_DO(find_ring(w, ring));
  for (size_t i = 0; i < n; i++) ranks[i] = (int)i;
  bool same = memcmp(ring, ranks, n * sizeof *ring) == 0;
  struct choice choice = {grow_chains, true, roots_of(w), {ring, same ? ring : ranks}};
  return lay_out_best(w, &choice);
}

/* ---- double binary trees --------------------------------------------------------------- */

/* How the second tree names its ranks: inner ranks of the first (even) become leaves (odd). */
static int label_of(int i, int n, bool second) {
  if (!second) return i;
  return n % 2 == 0 ? n + 1 - i : i % n + 1;
}

struct in_order {
  int n; /* labels 1 ... n are the ranks after place `base` of the order, going round */
  const int *order;
  int base, n_ranks;
  bool second;
};

static int rank_of(const struct in_order *o, int i) {
  return o->order[(o->base + label_of(i, o->n, o->second)) % o->n_ranks];
}

/* The in-order tree of labels low ... high: the left part is full, so that odd labels are
 * leaves. Returns its root's rank; its links follow each other, parents first. */
static int add_in_order(const struct in_order *o, int low, int high, int parent,
                        struct shape *shape) {
  int half = 1;
  while (2 * half <= high - low + 1) half *= 2;
  int middle = low + half - 1, rank = rank_of(o, middle);
  if (parent >= 0) add_link(shape, parent, rank);
  if (low < middle) (void)add_in_order(o, low, middle - 1, rank, shape);
  if (middle < high) (void)add_in_order(o, middle + 1, high, rank, shape);
  return rank;
}

/* Where the root is free (allreduce), all ranks are in the in-order trees; else all but it. */
static copse_status grow_binary(struct copse_baseline_work *w, const int *order,
                                struct copse_q weight, struct shape *shape) {
  int n = w->topology->n_ranks;
  bool free_roots = w->options->collective == COPSE_ALLREDUCE;
  weight.den *= 2 * (free_roots ? 1 : roots_of(w));
  for (int start = 0; start < (free_roots ? 1 : n); start++) {
    if (!free_roots && !has_root(w, order[start])) continue;
    for (int second = 0; second < 2; second++) {
      struct in_order o = {free_roots ? n : n - 1, order, free_roots ? n - 1 : start, n, second};
      int root = order[start], top = root;
      shape->n = 0;
      if (o.n > 0) top = add_in_order(&o, 1, o.n, free_roots ? -1 : root, shape);
      COPSE_DO(grow_phases(w, free_roots ? top : root, weight, shape));
    }
  }
  return COPSE_OK;
}

copse_status copse_baseline_tree(struct copse_baseline_work *w) {
  int *order = NULL;
  COPSE_DO(
      copse_arena_array(&w->scratch, (size_t)w->topology->n_ranks, sizeof *order, &order, w->err));
  for (int i = 0; i < w->topology->n_ranks; i++) order[i] = i;
  struct choice choice = {grow_binary, false, 2 * roots_of(w), {order, order}};
  return lay_out_best(w, &choice);
}

/* ---- direct ---------------------------------------------------------------------------- */

copse_status copse_baseline_direct(struct copse_baseline_work *w) {
  struct shape shape = {0};
  int n = w->topology->n_ranks;
  COPSE_DO(start_shape(w, &shape));
  for (int root = 0; root < n; root++) {
    if (!has_root(w, root)) continue;
    shape.n = 0;
    for (int i = 1; i < n; i++) add_link(&shape, root, (root + i) % n);
    COPSE_DO(grow_phases(w, root, (struct copse_q){1, w->options->root < 0 ? n : 1}, &shape));
  }
  return COPSE_OK;
}
