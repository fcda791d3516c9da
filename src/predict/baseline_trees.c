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
#include <string.h>

#include "base/types.h"
#include "predict/baseline_internal.h"
#include "predict/policy.h"
#include "schedule/loads.h"

/* A shape: which rank is to hang from which, parents first. */
struct link_up {
  int parent, child;
  const struct copse_baseline_way *way; /* of the data; NULL: the fabric's own route */
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
  shape->links[shape->n++] = (struct link_up){parent, child, NULL};
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

/* Joins a rank to the tree. Ranks on the way join where they are met; the way starts at the last
 * one in it. */
static copse_status join(struct grower *g, const struct link_up *link) {
  const struct copse_topology *t = g->w->topology;
  int parent = link->parent, child = link->child, n, start = 0;
  int from = g->reduce ? child : parent, to = g->reduce ? parent : child;
  const int *found = copse_route(&g->w->routes, from, to, &n);
  if (link->way) {
    found = link->way->nodes;
    n = link->way->n;
  }
  COPSE_DO(copse_route_require(t, from, to, n, g->w->err));
  for (int i = 0; i < n; i++) g->route[i] = found[g->reduce ? n - 1 - i : i];
  if (link->way && g->w->options->pass_on) return add_edge(g, g->route, n, parent, child);
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
    if (!g.in_tree[shape->links[i].child]) COPSE_DO(join(&g, &shape->links[i]));
  if (g.reduce) reverse(g.edges, g.n_edges);
  return COPSE_PUSH(
      w->trees, w->n_trees, w->trees_capacity, w->err,
      (struct copse_schedule_tree){
          .root = root, .phase = phase, .weight = weight, .n_edges = g.n_edges, .edges = g.edges});
}

/* Grows the shape as a tree of every phase that the collective has. */
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

static int64_t roots_of(const struct copse_baseline_work *w) {
  return w->options->root < 0 ? w->topology->n_ranks : 1;
}

/* ---- rings ---------------------------------------------------------------------------- */

/* Grows a chain. A ring's data go one way round: a chain from the root has it forwards, one to the
 * root backwards. */
static copse_status grow_chain(struct copse_baseline_work *w,
                               const struct copse_baseline_ring *ring, enum copse_phase phase,
                               int start, struct copse_q weight, struct shape *shape) {
  int n = w->topology->n_ranks;
  shape->n = 0;
  for (int i = 0; i + 1 < n; i++) {
    bool reduce = phase == COPSE_PHASE_REDUCE;
    int from = reduce ? (start - i - 1 + n) % n : (start + i) % n, to = (from + 1) % n;
    const struct copse_baseline_way *way =
        ring->ways && ring->ways[from].n ? &ring->ways[from] : NULL;
    shape->links[shape->n++] =
        (struct link_up){ring->order[reduce ? to : from], ring->order[reduce ? from : to], way};
  }
  return grow_tree(w, phase, ring->order[start], weight, shape);
}

copse_status copse_baseline_chains(struct copse_baseline_work *w,
                                   const struct copse_baseline_ring *ring, struct copse_q weight) {
  copse_collective collective = w->options->collective;
  struct shape shape = {0};
  COPSE_DO(start_shape(w, &shape));
  COPSE_DO(copse_q_div(weight, (struct copse_q){roots_of(w), 1}, &weight, w->err));
  for (int start = 0; start < w->topology->n_ranks; start++) {
    if (!has_root(w, ring->order[start])) continue;
    if (copse_collective_reduces(collective))
      COPSE_DO(grow_chain(w, ring, COPSE_PHASE_REDUCE, start, weight, &shape));
    if (copse_collective_broadcasts(collective))
      COPSE_DO(grow_chain(w, ring, COPSE_PHASE_BROADCAST, start, weight, &shape));
  }
  return COPSE_OK;
}

/* ---- double binary trees --------------------------------------------------------------- */

/* Returns how the second tree names its ranks: inner ranks of the first (even) become leaves
 * (odd). */
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

/* Adds the in-order tree of labels low ... high: the left part is full, so that odd labels are
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

/* Grows the in-order trees: of all ranks where the root is free (allreduce); else of all but it. */
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

/* Orders channel c of several host by host, each host's ranks turned on by c; every other host
 * backwards, so that a rank hands over to its like. One channel: the ranks in order. */
static void order_channel(const struct copse_baseline_work *w, int channels, int c, int *order) {
  int places = w->hosts.first[1];
  for (int r = 0; r < w->topology->n_ranks; r++) {
    int h = w->hosts.of_rank[r], turned = (w->hosts.place[r] - c + places) % places;
    int at = h * places + (h % 2 == 0 ? turned : places - 1 - turned);
    order[channels == 1 ? r : at] = r;
  }
}

static copse_status lay_out(struct copse_baseline_work *w, int channels, struct shape *shape) {
  int *order = NULL;
  w->n_trees = 0;
  COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)w->topology->n_ranks, order, w->err));
  for (int c = 0; c < channels; c++) {
    order_channel(w, channels, c, order);
    COPSE_DO(grow_binary(w, order, (struct copse_q){1, channels}, shape));
  }
  return COPSE_OK;
}

/* Builds the layout in a place of its own and looks at the time. */
static copse_status time_of(struct copse_baseline_work *w, int channels, struct shape *shape,
                            struct copse_q *time) {
  struct copse_arena scratch = {0}, *arena = w->arena;
  w->arena = &scratch;
  copse_status status = lay_out(w, channels, shape);
  if (status == COPSE_OK) status = copse_tree_time(w->topology, w->trees, w->n_trees, time, w->err);
  w->arena = arena;
  copse_arena_free(&scratch);
  return status;
}

copse_status copse_baseline_tree(struct copse_baseline_work *w) {
  int channels = w->hosts.n_hosts > 1 && w->hosts.even ? w->hosts.first[1] : 1;
  int64_t edges = 2 * roots_of(w) * w->topology->n_ranks * channels;
  struct shape shape = {0};
  struct copse_q once, turned;
  COPSE_DO(start_shape(w, &shape));
  if (channels == 1 || edges > MOST_EDGES) return lay_out(w, 1, &shape);
  COPSE_DO(time_of(w, 1, &shape, &once));
  COPSE_DO(time_of(w, channels, &shape, &turned));
  return lay_out(w, copse_q_cmp(turned, once) < 0 ? channels : 1, &shape);
}

/* ---- scattered ------------------------------------------------------------------------- */

/* Adds a host: links from the rank at a place to those that are not yet in the tree; the root
 * is. */
static void add_host(const struct copse_baseline_work *w, struct shape *shape, int from, int root) {
  int host = w->hosts.of_rank[from], first = w->hosts.first[host];
  int n = w->hosts.first[host + 1] - first;
  for (int i = 1; i < n; i++) {
    int rank = w->hosts.members[first + (w->hosts.place[from] + i) % n];
    if (rank != root) add_link(shape, from, rank);
  }
}

/* Adds a tree of the rank `gate` of the root's host and a like one of another host, -1: there is
 * none. */
static void add_scattered(const struct copse_baseline_work *w, struct shape *shape, int root,
                          int gate, int other) {
  int home = w->hosts.of_rank[root], place = w->hosts.place[gate];
  shape->n = 0;
  if (gate != root) add_link(shape, root, gate);
  if (other >= 0) add_link(shape, gate, w->hosts.members[w->hosts.first[other] + place]);
  for (int i = 1; other >= 0 && i < w->hosts.n_hosts; i++) {
    int h = (other + i) % w->hosts.n_hosts, first = w->hosts.members[w->hosts.first[other] + place];
    if (h != home) add_link(shape, first, w->hosts.members[w->hosts.first[h] + place]);
  }
  add_host(w, shape, gate, root);
  for (int i = 0; other >= 0 && i < w->hosts.n_hosts; i++) {
    int h = (other + i) % w->hosts.n_hosts;
    if (h != home) add_host(w, shape, w->hosts.members[w->hosts.first[h] + place], root);
  }
}

copse_status copse_baseline_scatter(struct copse_baseline_work *w) {
  const struct copse_hosts *hosts = &w->hosts;
  struct shape shape = {0};
  int root = w->options->root, n = w->topology->n_ranks, others = hosts->n_hosts - 1;
  int home = hosts->of_rank[root], places = hosts->first[home + 1] - hosts->first[home];
  int n_trees = others > 0 ? places * others : n - 1;
  if (!hosts->even || n < 2 || n_trees > MOST_TRANSFERS / n)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "hosts of unlike sizes, or too many ranks");
  COPSE_DO(start_shape(w, &shape));
  for (int i = 0; i < places; i++) {
    int gate = hosts->members[hosts->first[home] + (hosts->place[root] + i) % places];
    if (others == 0 && gate == root) continue;
    for (int h = 0; h < hosts->n_hosts; h++) {
      int other = (home + i + h) % hosts->n_hosts;
      if (others > 0 && other == home) continue;
      add_scattered(w, &shape, root, gate, others > 0 ? other : -1);
      COPSE_DO(grow_phases(w, root, (struct copse_q){1, n_trees}, &shape));
    }
  }
  return COPSE_OK;
}

/* ---- over hosts ------------------------------------------------------------------------ */

copse_status copse_baseline_hosts(struct copse_baseline_work *w) {
  const struct copse_hosts *hosts = &w->hosts;
  struct shape shape = {0};
  int n = w->topology->n_ranks;
  COPSE_DO(start_shape(w, &shape));
  for (int root = 0; root < n; root++) {
    int home = hosts->of_rank[root];
    shape.n = 0;
    for (int to_host = 1; to_host >= 0; to_host--) /* first between hosts, then within each */
      for (int i = to_host; i < hosts->n_hosts; i++) {
        int h = (home + i) % hosts->n_hosts;
        int there = hosts->members[hosts->first[h] + hosts->place[root]];
        if (to_host)
          add_link(&shape, root, there);
        else
          add_host(w, &shape, there, root);
      }
    COPSE_DO(grow_phases(w, root, (struct copse_q){1, n}, &shape));
  }
  return COPSE_OK;
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
