/*
 * Schedules: heights and rates, and the compact form written out. Images under a rotation's powers,
 * of several rotations one after the other, are listed in place; alltoall flows are then sorted by
 * pair.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "schedule/chunks.h"
#include "schedule/schedule.h"

void copse_schedule_free(struct copse_schedule *schedule) {
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

bool copse_schedule_fits_k(const struct copse_schedule *s) {
  bool broadcasts = copse_collective_broadcasts(s->collective);
  int64_t roots = copse_collective_rooted(s->collective) ? 1 : s->n_ranks, whole;
  for (int t = 0; t < s->n_trees && s->k > 0; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    if (broadcasts && tree->phase == COPSE_PHASE_REDUCE) continue;
    if (copse_mul_overflows(s->k, roots, &whole) || whole % tree->weight.den != 0) return false;
  }
  return true;
}

/* A place that is done is marked in `done`: its cycle's least place comes first. */
copse_status copse_sum_cycles(int order, const int *image, int n, struct copse_q *values,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *done = NULL;
  COPSE_DO(copse_calloc((size_t)n, 1, &done, err));
  for (int first = 0; first < n; first++) {
    struct copse_q sum = COPSE_Q_ZERO;
    int length = 0, at = first;
    if (done[first]) continue;
    do {
      COPSE_DO(copse_q_add(sum, values[at], &sum, err));
      at = image[at];
      length++;
    } while (at != first);
    if (order % length != 0) {
      return copse_fail(err, COPSE_INVALID, "a cycle does not divide the order");
    }
    COPSE_DO(copse_q_mul(sum, (struct copse_q){order / length, 1}, &sum, err));
    do {
      values[at] = sum;
      done[at] = 1;
      at = image[at];
    } while (at != first);
  }
  return COPSE_OK;
}

int copse_schedule_paths(const struct copse_schedule *schedule) {
  int n = 0;
  for (int f = 0; f < schedule->n_flows; f++) n += schedule->flows[f].n_paths;
  return n;
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

/* The highest tree, of stages one after the other; -1 when memory ran out. */
static int trees_height(const struct copse_schedule *schedule, double *mean_height) {
  int height = 0, stage = 0, before = 0; /* before: the stages of the piece so far */
  double weighed_mean_height = 0, whole = 0;
  int *depth = calloc((size_t)schedule->n_ranks, sizeof *depth);
  if (!depth) return -1;
  for (int i = 0; i < schedule->n_trees; i++) {
    int h = tree_height(&schedule->trees[i], depth);
    weighed_mean_height += copse_q_to_double(schedule->trees[i].weight) * h;
    whole += copse_q_to_double(schedule->trees[i].weight);
    if (i > 0 && schedule->trees[i].piece != schedule->trees[i - 1].piece) before = stage = 0;
    if (i > 0 && schedule->trees[i].stage > schedule->trees[i - 1].stage) {
      before += stage;
      stage = 0;
    }
    if (h > stage) stage = h;
    if (before + stage > height) height = before + stage;
  }
  *mean_height = whole > 0 ? weighed_mean_height / whole : 0;
  free(depth);
  return height;
}

int copse_schedule_height(const struct copse_schedule *schedule) {
  double mean_height;
  return schedule->collective == COPSE_ALLTOALL ? flows_height(schedule)
                                                : trees_height(schedule, &mean_height);
}

double copse_schedule_mean_height(const struct copse_schedule *schedule) {
  double mean_height = -1;
  (void)trees_height(schedule, &mean_height);
  return mean_height;
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

/* One rotation at a time: all that is listed so far, under each of its powers. */
struct expansion {
  struct copse_schedule *schedule; /* its arena takes what is made */
  int *power;                      /* [n_nodes] of the rotation at hand */
  int *rank_of;                    /* [n_nodes] */
  struct copse_schedule_tree *trees;
  struct copse_schedule_flow *flows;
  size_t n_trees, n_flows;
  struct copse_err *err;
};

/* Nobody has the memory for more at the sizes of today; and it is better said than tried. */
#define MOST_BYTES ((int64_t)8 << 30)

int64_t copse_schedule_chunk_bytes(const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  for (int t = 0; t < s->n_trees; t++)
    if (copse_q_cmp(s->trees[t].weight, most) > 0) most = s->trees[t].weight;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      if (copse_q_cmp(s->flows[f].paths[p].weight, most) > 0) most = s->flows[f].paths[p].weight;
  /* up to a unit more for each end of a piece, which falls on a multiple of 16 bytes */
  __int128 whole = (__int128)s->objective.bytes * most.num, part = (__int128)most.den;
  int64_t bytes = (int64_t)(whole / (part * s->objective.chunks)) + 2 * COPSE_LEAST_CHUNK_BYTES;
  return bytes > COPSE_CHUNK_BYTES ? bytes : COPSE_CHUNK_BYTES;
}

int64_t copse_schedule_images(const struct copse_schedule *schedule) {
  int64_t images = 1;
  for (int i = 0; i < schedule->n_rotations; i++)
    if (__builtin_mul_overflow(images, schedule->rotations[i].order, &images)) return INT64_MAX;
  return images;
}

static copse_status map_nodes(struct expansion *x, const int *nodes, int n, const int **out) {
  int *to;
  COPSE_DO(COPSE_ARRAY(&x->schedule->arena, (size_t)n, to, x->err));
  for (int i = 0; i < n; i++) to[i] = x->power[nodes[i]];
  *out = to;
  return COPSE_OK;
}

static int map_rank(const struct expansion *x, int rank) {
  return x->rank_of[x->power[x->schedule->rank_nodes[rank]]];
}

/* The image of a flow: the nodes of its paths mapped, the weights the same. */
static copse_status map_flow(struct expansion *x, const struct copse_schedule_flow *from) {
  struct copse_schedule_path *paths;
  COPSE_DO(COPSE_ARRAY(&x->schedule->arena, (size_t)from->n_paths, paths, x->err));
  for (int p = 0; p < from->n_paths; p++) {
    paths[p] = from->paths[p];
    COPSE_DO(map_nodes(x, paths[p].nodes, paths[p].n_nodes, &paths[p].nodes));
  }
  x->flows[x->n_flows++] = (struct copse_schedule_flow){
      map_rank(x, from->src), map_rank(x, from->dst), from->n_paths, paths};
  return COPSE_OK;
}

static copse_status map_tree(struct expansion *x, const struct copse_schedule_tree *from) {
  struct copse_schedule_edge *edges;
  COPSE_DO(COPSE_ARRAY(&x->schedule->arena, (size_t)from->n_edges, edges, x->err));
  for (int e = 0; e < from->n_edges; e++) {
    const struct copse_schedule_edge *edge = &from->edges[e];
    edges[e] = (struct copse_schedule_edge){
        .src = map_rank(x, edge->src), .dst = map_rank(x, edge->dst), .n_path = edge->n_path};
    COPSE_DO(map_nodes(x, edge->path, edge->n_path, &edges[e].path));
  }
  x->trees[x->n_trees] = *from;
  x->trees[x->n_trees].root = map_rank(x, from->root);
  x->trees[x->n_trees++].edges = edges;
  return COPSE_OK;
}

/* How much all images take, about; what is asked of the arena is rounded up. */
static int64_t bytes_of_images(const struct copse_schedule *s) {
  int64_t bytes = 0, all;
  for (int t = 0; t < s->n_trees; t++)
    for (int e = 0; e < s->trees[t].n_edges; e++)
      bytes += (int64_t)sizeof(struct copse_schedule_edge) + 4 * s->trees[t].edges[e].n_path + 8;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      bytes += (int64_t)sizeof(struct copse_schedule_path) + 4 * s->flows[f].paths[p].n_nodes + 8;
  return __builtin_mul_overflow(bytes, copse_schedule_images(s), &all) ? INT64_MAX : all;
}

static copse_status check_size(const struct copse_schedule *s, struct copse_err *err) {
  int64_t images = copse_schedule_images(s), bytes = bytes_of_images(s);
  int64_t most = s->n_trees > s->n_flows ? s->n_trees : s->n_flows;
  if (bytes <= MOST_BYTES && images <= INT32_MAX / (most > 0 ? most : 1)) return COPSE_OK;
  return copse_fail(err, COPSE_NOMEM,
                    "the schedule in full would take %" PRId64 " GiB; up to %" PRId64
                    " are written out. verify reads the compact form as it is",
                    bytes >> 30, MOST_BYTES >> 30);
}

/* What is listed, under all powers of one rotation. */
static copse_status turn(struct expansion *x, const struct copse_permutation *rotation,
                         const struct copse_schedule_tree *trees,
                         const struct copse_schedule_flow *flows) {
  struct copse_schedule *s = x->schedule;
  size_t n_trees = x->n_trees, n_flows = x->n_flows, order = (size_t)rotation->order;
  COPSE_DO(COPSE_ARRAY(&s->arena, n_trees * order, x->trees, x->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, n_flows * order, x->flows, x->err));
  if (n_trees > 0) memcpy(x->trees, trees, n_trees * sizeof *trees);
  if (n_flows > 0) memcpy(x->flows, flows, n_flows * sizeof *flows);
  for (int v = 0; v < s->n_nodes; v++) x->power[v] = v;
  for (size_t power = 1; power < order; power++) {
    for (int v = 0; v < s->n_nodes; v++) x->power[v] = rotation->image[x->power[v]];
    for (size_t t = 0; t < n_trees; t++) COPSE_DO(map_tree(x, &trees[t]));
    for (size_t f = 0; f < n_flows; f++) COPSE_DO(map_flow(x, &flows[f]));
  }
  return COPSE_OK;
}

static int compare_flows(const void *a, const void *b) {
  const struct copse_schedule_flow *x = a, *y = b;
  return x->src != y->src ? (x->src > y->src) - (x->src < y->src)
                          : (x->dst > y->dst) - (x->dst < y->dst);
}

copse_status copse_schedule_expand(struct copse_schedule *s, struct copse_err *err) {
  struct expansion x = {.schedule = s, .err = err};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t nodes = (size_t)s->n_nodes;
  if (s->n_rotations == 0) return COPSE_OK;
  COPSE_DO(check_size(s, err));
  x.n_trees = (size_t)s->n_trees;
  x.n_flows = (size_t)s->n_flows;
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, err, &x.power, &x.rank_of));
  for (int r = 0; r < s->n_ranks; r++) x.rank_of[s->rank_nodes[r]] = r;
  COPSE_DO(turn(&x, &s->rotations[0], s->trees, s->flows));
  for (int i = 1; i < s->n_rotations; i++) COPSE_DO(turn(&x, &s->rotations[i], x.trees, x.flows));
  qsort(x.flows, x.n_flows, sizeof *x.flows, compare_flows);
  s->trees = x.trees;
  s->flows = x.flows;
  s->n_trees = (int)x.n_trees;
  s->n_flows = (int)x.n_flows;
  s->n_rotations = 0;
  return COPSE_OK;
}
