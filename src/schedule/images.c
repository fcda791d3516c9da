/*
 * Images of compact schedules, what changes do to them, and how high and how many that makes.
 * Listed are images under a rotation's powers, of several rotations one after the other, in place;
 * alltoall flows are then sorted by pair. With changes each image is listed by itself. A vertex's
 * depth after some ranks have moved is found by stretches: from the vertex up to the first rank
 * that moved, from where that hangs now up to the next, until the root is there. docs/formats.md,
 * "Compact form"; docs/theory.md, "Heuristics that prove themselves".
 */
#include "schedule/images.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

copse_status copse_images_make(const struct copse_permutation *rotations, int n, int n_nodes,
                               struct copse_arena *arena, struct copse_images *out,
                               struct copse_err *err) {
  size_t nodes = (size_t)n_nodes;
  *out = (struct copse_images){.n = n, .n_images = 1};
  for (int g = 0; g < n; g++) {
    int place = 0;
    const int *image = rotations[g].image;
    COPSE_DO(COPSE_ARRAYS(arena, nodes, int, err, &out->list[g], &out->at[g], &out->first[g],
                          &out->length[g]));
    out->order[g] = rotations[g].order;
    if (__builtin_mul_overflow(out->n_images, out->order[g], &out->n_images))
      return copse_fail(err, COPSE_OVERFLOW, "the images of a schedule are too many to number");
    for (int v = 0; v < n_nodes; v++) {
      int first = place;
      if (out->length[g][v] > 0) continue;
      for (int u = v; place == first || u != v; u = image[u]) {
        out->list[g][place] = u;
        out->at[g][u] = place++;
      }
      if (out->order[g] % (place - first) != 0)
        return copse_fail(err, COPSE_INVALID, "a cycle does not divide the order");
      for (int i = first; i < place; i++) {
        out->first[g][out->list[g][i]] = first;
        out->length[g][out->list[g][i]] = place - first;
      }
    }
  }
  return COPSE_OK;
}

struct copse_image copse_image_of(const struct copse_images *images, int64_t number) {
  struct copse_image image; /* powers of the generators that there are: the rest takes time */
  for (int g = 0; g < images->n; g++) {
    int64_t rest = number <= UINT32_MAX ? (uint32_t)number / (uint32_t)images->order[g]
                                        : number / images->order[g];
    image.powers[g] = (int)(number - rest * images->order[g]);
    number = rest;
  }
  return image;
}

static int turned(const struct copse_images *images, int g, int power, int node) {
  int first = images->first[g][node], length = images->length[g][node];
  int place = images->at[g][node] - first + power;
  if (place >= length) place = place < 2 * length ? place - length : place % length;
  return images->list[g][first + place];
}

int copse_image_node(const struct copse_images *images, const struct copse_image *image, int node) {
  for (int g = 0; g < images->n; g++)
    if (image->powers[g] > 0) node = turned(images, g, image->powers[g], node);
  return node;
}

int copse_image_back(const struct copse_images *images, const struct copse_image *image, int node) {
  for (int g = images->n - 1; g >= 0; g--)
    if (image->powers[g] > 0) node = turned(images, g, images->order[g] - image->powers[g], node);
  return node;
}

copse_status copse_image_ranks_make(const int *rank_of, int n_nodes, struct copse_arena *arena,
                                    struct copse_image_ranks **out, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, 1, *out, err));
  **out = (struct copse_image_ranks){.rank_of = rank_of, .image = -1};
  return COPSE_ARRAYS(arena, (size_t)n_nodes, int, err, &(*out)->known, &(*out)->rank);
}

int copse_image_rank(const struct copse_images *images, int64_t image, int node,
                     struct copse_image_ranks *ranks) {
  if (image != ranks->image) ranks->n_images++;
  ranks->image = image;
  if (ranks->known[node] != ranks->n_images) {
    struct copse_image of = copse_image_of(images, image);
    ranks->known[node] = ranks->n_images;
    ranks->rank[node] = ranks->rank_of[copse_image_back(images, &of, node)];
  }
  return ranks->rank[node];
}

/* ---- a base tree --------------------------------------------------------------------------- */

/* Sets each rank's parent and depth. Edges come from the root outwards. */
static void hang(const struct copse_schedule_tree *tree, struct copse_base_tree *out) {
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  for (int v = 0; v < out->n; v++) out->edge[v] = out->up[v] = -1;
  for (int i = 0; i < tree->n_edges; i++) {
    int e = reduce ? tree->n_edges - 1 - i : i;
    int from = reduce ? tree->edges[e].dst : tree->edges[e].src;
    int to = reduce ? tree->edges[e].src : tree->edges[e].dst;
    out->edge[to] = e;
    out->up[to] = from;
    out->depth[to] = out->depth[from] + 1;
  }
}

/* Places so that what hangs below a rank is a stretch: sizes from the leaves up, then each rank's
 * place from the root down. `order`: ranks, each behind what it hangs on. */
static void place(const struct copse_schedule_tree *tree, struct copse_base_tree *out, int *next) {
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  for (int v = 0; v < out->n; v++) out->end[v] = 1;
  for (int i = tree->n_edges - 1; i >= 0; i--) {
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    out->end[reduce ? edge->dst : edge->src] += out->end[reduce ? edge->src : edge->dst];
  }
  out->begin[out->root] = 0;
  next[out->root] = 1;
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    int from = reduce ? edge->dst : edge->src, to = reduce ? edge->src : edge->dst;
    out->begin[to] = next[from];
    next[from] += out->end[to];
    next[to] = out->begin[to] + 1;
  }
  for (int v = 0; v < out->n; v++) {
    out->rank[out->begin[v]] = v;
    out->end[v] += out->begin[v];
  }
}

copse_status copse_base_tree_make(const struct copse_schedule *schedule, int index,
                                  struct copse_arena *arena, struct copse_base_tree *out,
                                  struct copse_err *err) {
  const struct copse_schedule_tree *tree = &schedule->trees[index];
  int n = schedule->n_ranks + schedule->n_absent, *next;
  size_t ranks = (size_t)n;
  *out = (struct copse_base_tree){.n = n, .root = tree->root};
  COPSE_DO(COPSE_ARRAYS(arena, ranks, int, err, &out->edge, &out->up, &out->depth, &out->begin,
                        &out->end, &out->rank, &next));
  hang(tree, out);
  place(tree, out, next);
  return COPSE_OK;
}

/* ---- ranks that moved ---------------------------------------------------------------------- */

int copse_moved_depth(const struct copse_base_tree *tree, const struct copse_moved *moved,
                      const int *move_at, int v) {
  for (int depth = 0; depth < tree->n; depth++) {
    if (move_at[v] == 0 && v == tree->root) return depth;
    v = move_at[v] == 0 ? tree->up[v] : moved[move_at[v] - 1].up;
    if (v < 0) return -1;
  }
  return -1;
}

int copse_moved_below(const struct copse_base_tree *tree, const int *move_at, int rank) {
  int most = tree->depth[rank];
  for (int at = tree->begin[rank] + 1; at < tree->end[rank];) {
    int v = tree->rank[at];
    if (move_at[v] == 0 && tree->depth[v] > most) most = tree->depth[v];
    at = move_at[v] == 0 ? at + 1 : tree->end[v];
  }
  return most - tree->depth[rank];
}

int copse_moved_height(const struct copse_base_tree *tree, const struct copse_moved *moved,
                       const int *move_at, int n, int height) {
  for (int i = 0; i < n; i++) {
    int top = moved[i].rank, depth, below = copse_moved_below(tree, move_at, top);
    if (moved[i].up == COPSE_IS_ABSENT) {
      if (below > 0) return -1;
      continue;
    }
    depth = copse_moved_depth(tree, moved, move_at, top);
    if (depth < 0) return -1;
    if (depth + below > height) height = depth + below;
  }
  return height;
}

/* Computes the depths of all ranks, which moved in no circle, and where each hangs.
 * O(ranks + n) */
static void find_depths(const struct copse_base_tree *tree, const struct copse_moved *moved, int n,
                        int *up, int *depth) {
  const int unknown = -2;
  memcpy(up, tree->up, (size_t)tree->n * sizeof *up);
  for (int i = 0; i < tree->n; i++) depth[i] = unknown;
  depth[tree->root] = 0;
  for (int i = 0; i < n; i++) {
    up[moved[i].rank] = moved[i].up;
    if (moved[i].up < 0) depth[moved[i].rank] = -1;
  }
  for (int i = 0; i < tree->n; i++) {
    int below = 0, known = i;
    for (; depth[known] == unknown; known = up[known]) below++;
    bool hangs = depth[known] >= 0;
    below += depth[known];
    for (int at = i; depth[at] == unknown; at = up[at]) depth[at] = hangs ? below-- : -1;
  }
}

int copse_moved_deepest(const struct copse_base_tree *tree, const struct copse_moved *moved, int n,
                        int *up, int *depth, int *deepest) {
  int rank = -1;
  find_depths(tree, moved, n, up, depth);
  for (int i = 0; i < tree->n; i++)
    if (depth[i] > *deepest) *deepest = depth[i], rank = i;
  return rank;
}

/* Lists the ranks that a change of a schedule moves, absent ones first, on the numbers of its base
 * tree: out [n_absent + n_edges]; returns how many. rank_of [n_nodes]. */
static int change_moves(const struct copse_schedule *s, const struct copse_images *images,
                        const int *rank_of, const struct copse_schedule_change *change,
                        struct copse_moved *out) {
  struct copse_image image = copse_image_of(images, change->image);
  bool reduce = s->trees[change->tree].phase == COPSE_PHASE_REDUCE;
  int n = 0;
  for (int i = 0; i < s->n_absent; i++)
    out[n++] = (struct copse_moved){
        rank_of[copse_image_back(images, &image, s->rank_nodes[s->n_ranks + i])], COPSE_IS_ABSENT};
  for (int i = 0; i < change->n_edges; i++) {
    const struct copse_schedule_edge *edge = &change->edges[i];
    int to = reduce ? edge->src : edge->dst, from = reduce ? edge->dst : edge->src;
    out[n++] = (struct copse_moved){rank_of[copse_image_back(images, &image, s->rank_nodes[to])],
                                    rank_of[copse_image_back(images, &image, s->rank_nodes[from])]};
  }
  return n;
}

/* ---- listed ---------------------------------------------------------------------------------- */

struct lister {
  struct copse_schedule *s; /* its arena owns what is listed */
  struct copse_images images;
  int *rank_of;                            /* [n_nodes] */
  const struct copse_schedule_edge **into; /* [ranks] of the tree at hand, broadcasts' edges */
  struct copse_adjacency below;
  int *up, *queue; /* [ranks] */
  struct copse_schedule_tree *out;
  int n_out;
  struct copse_arena scratch;
  struct copse_err *err;
};

/* Maps an edge of a base tree as an image has it. */
static copse_status map_edge(struct lister *l, const struct copse_image *image,
                             const struct copse_schedule_edge *from,
                             struct copse_schedule_edge *to) {
  int *path, n = from->n_path;
  COPSE_DO(COPSE_ARRAY(&l->s->arena, (size_t)n, path, l->err));
  for (int i = 0; i < n; i++) path[i] = copse_image_node(&l->images, image, from->path[i]);
  *to = (struct copse_schedule_edge){
      .src = l->rank_of[path[0]], .dst = l->rank_of[path[n - 1]], .path = path, .n_path = n};
  return COPSE_OK;
}

/* Sorts edges so that each comes behind what it hangs on, from the root; turned around for a
 * reduction. COPSE_INVALID where that does not reach all ranks. */
static copse_status sort_edges(struct lister *l, int root, bool reduce,
                               struct copse_schedule_edge *out) {
  int n = l->s->n_ranks, done = 0;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_queue queue = {.items = l->queue};
  COPSE_DO(copse_adjacency_by(&scratch, n, n, l->up, sizeof *l->up, &l->below, l->err));
  copse_queue_push(&queue, root);
  while (!copse_queue_is_empty(&queue)) {
    int v = copse_queue_pop(&queue);
    for (int i = l->below.first[v]; i < l->below.first[v + 1]; i++) {
      int u = l->below.item[i];
      out[reduce ? n - 2 - done : done] = *l->into[u];
      done++;
      copse_queue_push(&queue, u);
    }
  }
  return done == n - 1
             ? COPSE_OK
             : copse_fail(l->err, COPSE_INVALID, "a changed tree of the schedule leaves ranks out");
}

/* Lists one image of a tree, with a change or none. */
static copse_status list_one(struct lister *l, int tree, const struct copse_image *image,
                             const struct copse_schedule_change *change, struct copse_q weight) {
  const struct copse_schedule_tree *from = &l->s->trees[tree];
  bool reduce = from->phase == COPSE_PHASE_REDUCE;
  int n = l->s->n_ranks,
      root = l->rank_of[copse_image_node(&l->images, image, l->s->rank_nodes[from->root])];
  struct copse_schedule_edge *edges, *sorted;
  if (root >= n) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&l->s->arena, (size_t)from->n_edges, edges, l->err));
  for (int v = 0; v < n; v++) l->up[v] = -1;
  for (int e = 0; e < from->n_edges; e++) {
    COPSE_DO(map_edge(l, image, &from->edges[e], &edges[e]));
    int to = reduce ? edges[e].src : edges[e].dst;
    if (to >= n) continue;
    l->into[to] = &edges[e];
    l->up[to] = reduce ? edges[e].dst : edges[e].src;
  }
  for (int e = 0; change && e < change->n_edges; e++) {
    const struct copse_schedule_edge *edge = &change->edges[e];
    int to = reduce ? edge->src : edge->dst;
    l->into[to] = edge;
    l->up[to] = reduce ? edge->dst : edge->src;
  }
  for (int v = 0; v < n; v++)
    if (l->up[v] >= n) l->up[v] = -1; /* below what is absent */
  COPSE_DO(COPSE_ARRAY(&l->s->arena, (size_t)(n - 1), sorted, l->err));
  COPSE_DO(sort_edges(l, root, reduce, sorted));
  l->out[l->n_out++] = (struct copse_schedule_tree){
      .root = root, .phase = from->phase, .weight = weight, .n_edges = n - 1, .edges = sorted};
  return COPSE_OK;
}

/* Lists all images of one tree: its changes, which come by image, and what they leave. */
static copse_status list_tree(struct lister *l, int tree, int *change) {
  const struct copse_schedule *s = l->s;
  for (int64_t i = 0; i < l->images.n_images; i++) {
    struct copse_image image = copse_image_of(&l->images, i);
    struct copse_q left = s->trees[tree].weight;
    for (; *change < s->n_changes && s->changes[*change].tree == tree &&
           s->changes[*change].image == i;
         ++*change) {
      COPSE_DO(copse_q_sub(left, s->changes[*change].weight, &left, l->err));
      COPSE_DO(list_one(l, tree, &image, &s->changes[*change], s->changes[*change].weight));
    }
    if (left.num > 0) COPSE_DO(list_one(l, tree, &image, NULL, left));
  }
  return COPSE_OK;
}

static copse_status expand_changes(struct copse_schedule *s, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct lister l = {.s = s, .err = err};
  size_t n = (size_t)s->n_ranks + (size_t)s->n_absent;
  int change = 0;
  COPSE_DO(copse_images_make(s->rotations, s->n_rotations, s->n_nodes, &scratch, &l.images, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)s->n_nodes, l.rank_of, err));
  for (size_t r = 0; r < n; r++) l.rank_of[s->rank_nodes[r]] = (int)r;
  COPSE_DO(COPSE_ARRAYS(&scratch, n, int, err, &l.up, &l.queue));
  COPSE_DO(COPSE_ARRAY(&scratch, n, l.into, err));
  COPSE_DO(COPSE_ARRAY(&s->arena,
                       (size_t)l.images.n_images * (size_t)s->n_trees + (size_t)s->n_changes, l.out,
                       err));
  for (int t = 0; t < s->n_trees; t++) COPSE_DO(list_tree(&l, t, &change));
  s->trees = l.out;
  s->n_trees = l.n_out;
  s->n_rotations = s->n_absent = s->n_changes = 0;
  s->excepted = false;
  return COPSE_OK;
}

/* Counts at each node the images of trees whose root is there: [n_nodes]. */
static copse_status count_roots(const struct copse_schedule *s, struct copse_q *at) {
  for (int t = 0; t < s->n_trees; t++) {
    struct copse_q *root = &at[s->rank_nodes[s->trees[t].root]];
    COPSE_DO(copse_q_add(*root, COPSE_Q_ONE, root, NULL));
  }
  for (int i = 0; i < s->n_rotations; i++)
    COPSE_DO(copse_sum_cycles(s->rotations[i].order, s->rotations[i].image, s->n_nodes, at, NULL));
  return COPSE_OK;
}

/* Returns by how many trees changes make more of their images: one each, less the images of which
 * they leave nothing. */
static int64_t count_changes(const struct copse_schedule *s) {
  int64_t n = 0;
  for (int i = 0, end; i < s->n_changes; i = end) {
    struct copse_q left = s->trees[s->changes[i].tree].weight;
    for (end = i; end < s->n_changes && s->changes[end].tree == s->changes[i].tree &&
                  s->changes[end].image == s->changes[i].image;
         end++, n++)
      if (copse_q_sub(left, s->changes[end].weight, &left, NULL) != COPSE_OK) return n;
    n -= left.num <= 0;
  }
  return n;
}

int64_t copse_schedule_count_all(const struct copse_schedule *s) {
  COPSE_AT_END(copse_free_at) struct copse_q *at = NULL;
  int64_t n = s->n_trees + s->n_flows; /* has one of them */
  if (!s->excepted) return n * copse_schedule_images(s);
  if (copse_calloc((size_t)s->n_nodes, sizeof *at, &at, NULL) != COPSE_OK) return -1;
  for (int v = 0; v < s->n_nodes; v++) at[v] = COPSE_Q_ZERO;
  if (count_roots(s, at) != COPSE_OK) return -1;
  n = count_changes(s);
  for (int r = 0; r < s->n_ranks; r++) n += at[s->rank_nodes[r]].num;
  return n;
}

/* Expands one rotation at a time: lists what is listed so far under each of its powers. */
struct expansion {
  struct copse_schedule *schedule; /* its arena owns what is made */
  int *power;                      /* [n_nodes] of the rotation at hand */
  int *rank_of;                    /* [n_nodes] */
  struct copse_schedule_tree *trees;
  struct copse_schedule_flow *flows;
  size_t n_trees, n_flows;
  struct copse_err *err;
};

/* Images that take more are refused before they are listed: few machines have the memory. */
#define MOST_BYTES ((int64_t)8 << 30)

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

/* Maps a flow: the nodes of its paths by the image, the weights the same. */
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

/* Estimates how much all images take; what is asked of the arena is rounded up. */
static int64_t bytes_of_images(const struct copse_schedule *s) {
  int64_t bytes = 0, all;
  for (int t = 0; t < s->n_trees; t++)
    for (int e = 0; e < s->trees[t].n_edges; e++)
      bytes += (int64_t)sizeof(struct copse_schedule_edge) + 4 * s->trees[t].edges[e].n_path + 8;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      bytes += (int64_t)sizeof(struct copse_schedule_path) + 4 * s->flows[f].paths[p].n_nodes + 8;
  if (__builtin_mul_overflow(bytes, copse_schedule_images(s), &all)) return INT64_MAX;
  return s->n_trees > 0 ? all + bytes / s->n_trees * s->n_changes : all;
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

/* Lists the images of all trees and flows under all powers of one rotation. */
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

COPSE_ORDER(compare_flows, struct copse_schedule_flow, COPSE_UP(src) ?: COPSE_UP(dst))

copse_status copse_schedule_expand(struct copse_schedule *s, struct copse_err *err) {
  struct expansion x = {.schedule = s, .err = err};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t nodes = (size_t)s->n_nodes;
  if (s->n_rotations == 0 && !s->excepted) return COPSE_OK;
  COPSE_DO(check_size(s, err));
  if (s->excepted) return expand_changes(s, err);
  x.n_trees = (size_t)s->n_trees;
  x.n_flows = (size_t)s->n_flows;
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, err, &x.power, &x.rank_of));
  for (int r = 0; r < s->n_ranks; r++) x.rank_of[s->rank_nodes[r]] = r;
  COPSE_DO(turn(&x, &s->rotations[0], s->trees, s->flows));
  for (int i = 1; i < s->n_rotations; i++) COPSE_DO(turn(&x, &s->rotations[i], x.trees, x.flows));
  COPSE_SORT(x.flows, x.n_flows, compare_flows);
  s->trees = x.trees;
  s->flows = x.flows;
  s->n_trees = (int)x.n_trees;
  s->n_flows = (int)x.n_flows;
  s->n_rotations = 0;
  return COPSE_OK;
}

/* ---- heights --------------------------------------------------------------------------------- */

static copse_status changes_height(const struct copse_schedule *s, int *height, double *mean_height,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_images images;
  struct copse_base_tree tree = {.root = -1};
  int *rank_of, *move_at, at = -1;
  double sum_of_mean_height = 0, whole = 0;
  *height = 0;
  COPSE_DO(copse_images_make(s->rotations, s->n_rotations, s->n_nodes, &scratch, &images, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)s->n_nodes, int, err, &rank_of, &move_at));
  for (int r = 0; r < s->n_ranks + s->n_absent; r++) rank_of[s->rank_nodes[r]] = r;
  for (int c = 0; c < s->n_changes; c++) {
    const struct copse_schedule_change *change = &s->changes[c];
    struct copse_moved *moved;
    COPSE_DO(COPSE_ARRAY(&scratch, (size_t)(s->n_absent + change->n_edges), moved, err));
    if (at != change->tree)
      COPSE_DO(copse_base_tree_make(s, at = change->tree, &scratch, &tree, err));
    int n = change_moves(s, &images, rank_of, change, moved);
    for (int i = 0; i < n; i++) move_at[moved[i].rank] = i + 1;
    int h = copse_moved_below(&tree, move_at, tree.root);
    h = copse_moved_height(&tree, moved, move_at, n, h);
    for (int i = 0; i < n; i++) move_at[moved[i].rank] = 0;
    double mean_height_weight = copse_q_to_double(change->weight);
    if (h > *height) *height = h;
    sum_of_mean_height += mean_height_weight * h;
    whole += mean_height_weight;
  }
  for (int t = 0; t < s->n_trees; t++) {
    double mean_height_weight = (double)images.n_images; /* weight of the images without changes */
    mean_height_weight *= copse_q_to_double(s->trees[t].weight);
    for (int c = 0; c < s->n_changes; c++)
      if (s->changes[c].tree == t) mean_height_weight -= copse_q_to_double(s->changes[c].weight);
    COPSE_DO(copse_base_tree_make(s, t, &scratch, &tree, err));
    int h = copse_moved_below(&tree, move_at, tree.root);
    if (h > *height) *height = h;
    sum_of_mean_height += mean_height_weight * h;
    whole += mean_height_weight;
  }
  *mean_height = whole > 0 ? sum_of_mean_height / whole : 0;
  return COPSE_OK;
}

/* Returns a tree's height. Edges come in an order in which one end's depth is known before it is
 * needed: from the root outwards in a broadcast tree, and so backwards in a reduce tree. */
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

/* Counts the ranks that a path visits after its first. */
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

/* Returns the height of the highest tree, of stages one after the other; -1 when memory ran out. */
static int trees_height(const struct copse_schedule *schedule, double *mean_height) {
  int height = 0, stage = 0, before = 0; /* before: the stages of the piece so far */
  double weighed_mean_height = 0, whole = 0;
  if (schedule->excepted)
    return changes_height(schedule, &height, mean_height, NULL) == COPSE_OK ? height : -1;
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

int64_t copse_schedule_edges(const struct copse_schedule *schedule) {
  int64_t n = 0;
  for (int t = 0; t < schedule->n_trees; t++) n += schedule->trees[t].n_edges;
  return n;
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
