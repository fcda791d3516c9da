#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>

void copse_schedule_release(struct copse_schedule *schedule) {
  if (!schedule) return;
  copse_arena_free(&schedule->arena);
  free(schedule);
}

/* Edges come in an order in which one end's depth is known before it is needed: from the
 * root outwards in a broadcast tree, and so backwards in a reduce tree. */
static int tree_height(const struct copse_schedule_tree *tree, int *depth) {
  int height = 0;
  depth[tree->root] = 0;
  for (int i = 0; i < tree->n_edges; i++) {
    bool reduce = tree->phase == COPSE_PHASE_REDUCE;
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    int parent = reduce ? edge->dst : edge->src, child = reduce ? edge->src : edge->dst;
    depth[child] = depth[parent] + 1;
    if (depth[child] > height) height = depth[child];
  }
  return height;
}

/* Ranks that a path visits after its first. */
static int path_hops(const struct copse_schedule_path *path, const char *is_rank) {
  int hops = 0;
  for (int i = 1; i < path->n_nodes; i++) hops += is_rank[path->nodes[i]];
  return hops;
}

static int flows_height(const struct copse_schedule *schedule) {
  int height = 0;
  char *is_rank = calloc((size_t)schedule->n_nodes, 1);
  if (!is_rank) return -1;
  for (int r = 0; r < schedule->n_ranks; r++) is_rank[schedule->rank_nodes[r]] = 1;
  for (int f = 0; f < schedule->n_flows; f++) {
    for (int p = 0; p < schedule->flows[f].n_paths; p++) {
      int h = path_hops(&schedule->flows[f].paths[p], is_rank);
      if (h > height) height = h;
    }
  }
  free(is_rank);
  return height;
}

int copse_schedule_height(const struct copse_schedule *schedule) {
  int height = 0;
  if (schedule->collective == COPSE_ALLTOALL) return flows_height(schedule);
  int *depth = calloc((size_t)schedule->n_ranks, sizeof *depth);
  if (!depth) return -1;
  for (int i = 0; i < schedule->n_trees; i++) {
    int h = tree_height(&schedule->trees[i], depth);
    if (h > height) height = h;
  }
  free(depth);
  return height;
}

double copse_schedule_mean_height(const struct copse_schedule *schedule) {
  double mean_height = 0, whole = 0;
  int *depth = calloc((size_t)schedule->n_ranks, sizeof *depth);
  if (!depth) return -1;
  for (int i = 0; i < schedule->n_trees; i++) {
    const struct copse_schedule_tree *tree = &schedule->trees[i];
    mean_height += copse_q_to_double(tree->weight) * tree_height(tree, depth);
    whole += copse_q_to_double(tree->weight);
  }
  free(depth);
  return whole > 0 ? mean_height / whole : 0;
}

double copse_schedule_algbw(const struct copse_schedule *schedule) {
  struct copse_q t = schedule->time_per_GB;
  return t.num == 0 ? (double)INFINITY : (double)t.den / (double)t.num;
}

/* The image of a flow: the nodes of its paths mapped, the weights the same. */
static bool map_flow(struct copse_schedule *s, const struct copse_schedule_flow *from,
                     const int *power, const int *rank_of, struct copse_schedule_flow *to) {
  struct copse_schedule_path *paths =
      copse_arena_alloc(&s->arena, (size_t)from->n_paths, sizeof *paths);
  if (!paths) return false;
  for (int p = 0; p < from->n_paths; p++) {
    const struct copse_schedule_path *path = &from->paths[p];
    int *nodes = copse_arena_alloc(&s->arena, (size_t)path->n_nodes, sizeof *nodes);
    if (!nodes) return false;
    for (int i = 0; i < path->n_nodes; i++) nodes[i] = power[path->nodes[i]];
    paths[p] = (struct copse_schedule_path){nodes, path->n_nodes, path->weight};
  }
  *to =
      (struct copse_schedule_flow){rank_of[power[s->rank_nodes[from->src]]],
                                   rank_of[power[s->rank_nodes[from->dst]]], from->n_paths, paths};
  return true;
}

static int compare_flows(const void *a, const void *b) {
  const struct copse_schedule_flow *x = a, *y = b;
  return x->src != y->src ? (x->src > y->src) - (x->src < y->src)
                          : (x->dst > y->dst) - (x->dst < y->dst);
}

copse_status copse_schedule_expand(struct copse_schedule *s, struct copse_err *err) {
  size_t order = (size_t)s->rotation.order, n = (size_t)s->n_flows, nodes = (size_t)s->n_nodes;
  if (order <= 1) return COPSE_OK;
  struct copse_schedule_flow *flows = copse_arena_alloc(&s->arena, order * n + 1, sizeof *flows);
  int *power = copse_arena_alloc(&s->arena, nodes, sizeof *power);
  int *rank_of = copse_arena_alloc(&s->arena, nodes, sizeof *rank_of);
  if (!flows || !power || !rank_of || order * n > INT32_MAX) return copse_fail_nomem(err);
  for (size_t v = 0; v < nodes; v++) power[v] = (int)v;
  for (int r = 0; r < s->n_ranks; r++) rank_of[s->rank_nodes[r]] = r;
  for (size_t g = 0; g < order; g++) {
    for (size_t f = 0; f < n; f++)
      if (!map_flow(s, &s->flows[f], power, rank_of, &flows[g * n + f]))
        return copse_fail_nomem(err);
    for (size_t v = 0; v < nodes; v++) power[v] = s->rotation.image[power[v]];
  }
  qsort(flows, order * n, sizeof *flows, compare_flows);
  s->flows = flows;
  s->n_flows = (int)(order * n);
  s->rotation = (struct copse_schedule_rotation){1, NULL};
  return COPSE_OK;
}
