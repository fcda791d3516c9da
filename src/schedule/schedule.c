#include "schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/collective.h"

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

int64_t copse_schedule_unit_k(const struct copse_schedule *schedule) {
  int64_t whole = 1;
  for (int t = 0; t < schedule->n_trees; t++)
    if (copse_lcm(whole, schedule->trees[t].weight.den, &whole, NULL) != COPSE_OK) return 0;
  if (copse_collective_rooted(schedule->collective)) return whole;
  return whole / copse_gcd(whole, schedule->n_ranks);
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

const char *copse_rate_text(struct copse_q time_per_GB, int digits, char buffer[COPSE_RATE_TEXT]) {
  struct copse_schedule of = {.time_per_GB = time_per_GB};
  if (time_per_GB.num == 0) return "nothing to send";
  snprintf(buffer, COPSE_RATE_TEXT, "%.*g GB/s", digits, copse_schedule_algbw(&of));
  return buffer;
}
