/*
 * Compact schedules of broken clusters: base trees, symmetries that may lead to nodes that are
 * gone, and changes of single images. Nothing is listed: loads of all images are sums over orbits
 * of hops, changes take from them and add to them. What crosses a hop that is no link must be
 * nothing in the end, and all weights are positive, so no tree crosses one.
 * docs/theory.md, "src/verify/".
 */
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "verify/internal.h"

/* Where a permutation takes nodes after any number of times: list[] by cycles. */
struct turns {
  int order;
  int *list, *place, *first, *length; /* [n_nodes] */
};

struct checking {
  struct copse_verify_checker *c;
  const struct copse_schedule *s;
  int n;        /* ranks, absent ones included */
  int *rank_of; /* [s->n_nodes] -1: a relay */
  struct turns turns[COPSE_SCHEDULE_MAX_ROTATIONS];
  int64_t n_images;
  int powers[COPSE_SCHEDULE_MAX_ROTATIONS]; /* of the image at hand */
  struct copse_index_map by_hop;
  int (*hops)[2]; /* [n_hops] nodes */
  size_t n_hops, hops_capacity;
  mpq_t *loads;        /* [n_hops] */
  int *up, *edge_to;   /* [n] of the base tree at hand */
  int *moved, *new_up; /* [n] base ranks: the change that moved each last, and to where */
  int *n_below;        /* [n] ranks that hang on each directly */
  int n_moves;         /* changes so far */
};

/* ---- symmetries ---------------------------------------------------------------------------- */

static copse_status make_turns(struct checking *k, int g) {
  const struct copse_permutation *rotation = &k->s->rotations[g];
  struct turns *t = &k->turns[g];
  int n = k->s->n_nodes, place = 0;
  char *hit;
  COPSE_DO(COPSE_ARRAYS(&k->c->scratch.arena, (size_t)n, int, k->c->err, &t->list, &t->place,
                        &t->first, &t->length));
  COPSE_DO(COPSE_ARRAY(&k->c->scratch.arena, (size_t)n, hit, k->c->err));
  t->order = rotation->order;
  for (int v = 0; v < n; v++) {
    int to = rotation->image[v];
    if (to < 0 || to >= n || hit[to]++)
      return refute(k->c, "a rotation does not map the nodes one to one: see '%s'", k->s->nodes[v]);
    if ((k->rank_of[v] >= 0) != (k->rank_of[to] >= 0))
      return refute(k->c, "a rotation maps '%s' to '%s'", k->s->nodes[v], k->s->nodes[to]);
  }
  for (int v = 0; v < n; v++) {
    int first = place, u = v;
    if (t->length[v] > 0) continue;
    do {
      t->list[place] = u;
      t->place[u] = place++;
      u = rotation->image[u];
    } while (u != v);
    for (int i = first; i < place; i++) t->first[t->list[i]] = first;
    for (int i = first; i < place; i++) t->length[t->list[i]] = place - first;
    if (t->order % (place - first) != 0)
      return refute(k->c, "the order of a rotation is not %d", t->order);
  }
  return COPSE_OK;
}

/* Returns where the image at hand has what the base tree has at v; `back`: the other way. */
static int image_of(const struct checking *k, int v, bool back) {
  for (int i = 0; i < k->s->n_rotations; i++) {
    int g = back ? k->s->n_rotations - 1 - i : i;
    const struct turns *t = &k->turns[g];
    int64_t by = back ? t->order - k->powers[g] : k->powers[g];
    v = t->list[t->first[v] + (t->place[v] - t->first[v] + by) % t->length[v]];
  }
  return v;
}

static void set_image(struct checking *k, int64_t number) {
  for (int g = 0; g < k->s->n_rotations; g++) {
    k->powers[g] = (int)(number % k->turns[g].order);
    number /= k->turns[g].order;
  }
}

/* Returns the base tree's rank that the image at hand has at `rank`; `back` false: the other
 * way. */
static int rank_image(const struct checking *k, int rank, bool back) {
  return k->rank_of[image_of(k, k->s->rank_nodes[rank], back)];
}

/* ---- hops ---------------------------------------------------------------------------------- */

static int find_hop(const struct checking *k, int a, int b) {
  size_t cursor = 0;
  return copse_index_map_next(&k->by_hop, copse_key_pair(a, b), &cursor);
}

static copse_status add_hop(struct checking *k, int a, int b) {
  if (find_hop(k, a, b) >= 0) return COPSE_OK;
  COPSE_DO(COPSE_GROW(k->hops, k->hops_capacity, k->n_hops + 1, k->c->err));
  k->hops[k->n_hops][0] = a;
  k->hops[k->n_hops][1] = b;
  return copse_index_map_add(&k->by_hop, copse_key_pair(a, b), (int)k->n_hops++, k->c->err);
}

/* Lists all hops of base trees and of changes, and their images. */
static copse_status list_hops(struct checking *k) {
  const struct copse_schedule *s = k->s;
  for (int i = 0; i < s->n_trees + s->n_changes; i++) {
    bool change = i >= s->n_trees;
    int n = change ? s->changes[i - s->n_trees].n_edges : s->trees[i].n_edges;
    const struct copse_schedule_edge *edges =
        change ? s->changes[i - s->n_trees].edges : s->trees[i].edges;
    for (int e = 0; e < n; e++)
      for (int p = 0; p + 1 < edges[e].n_path; p++)
        COPSE_DO(add_hop(k, edges[e].path[p], edges[e].path[p + 1]));
  }
  for (size_t h = 0; h < k->n_hops; h++)
    for (int g = 0; g < s->n_rotations; g++)
      COPSE_DO(
          add_hop(k, s->rotations[g].image[k->hops[h][0]], s->rotations[g].image[k->hops[h][1]]));
  return copse_verify_rationals(&k->c->scratch, (int)k->n_hops, &k->loads, k->c->err);
}

/* Spreads loads of base trees to those of all images. */
static copse_status spread_loads(struct checking *k) {
  int *image;
  char *done;
  COPSE_MPQ(sum);
  COPSE_MPQ(times);
  COPSE_DO(COPSE_ARRAY(&k->c->scratch.arena, k->n_hops, image, k->c->err));
  COPSE_DO(COPSE_ARRAY(&k->c->scratch.arena, k->n_hops, done, k->c->err));
  for (int g = 0; g < k->s->n_rotations; g++) {
    const int *to = k->s->rotations[g].image;
    for (size_t h = 0; h < k->n_hops; h++)
      image[h] = find_hop(k, to[k->hops[h][0]], to[k->hops[h][1]]);
    memset(done, 0, k->n_hops);
    for (size_t h = 0; h < k->n_hops; h++) {
      unsigned long length = 0;
      int i = (int)h;
      if (done[h]) continue;
      mpq_set_ui(sum, 0, 1);
      do {
        mpq_add(sum, sum, k->loads[i]);
        i = image[i];
        length++;
      } while (i != (int)h);
      if ((unsigned long)k->turns[g].order % length != 0)
        return refute(k->c, "the order of a rotation is not %d", k->turns[g].order);
      mpq_set_ui(times, (unsigned long)k->turns[g].order / length, 1);
      mpq_mul(sum, sum, times);
      do {
        mpq_set(k->loads[i], sum);
        done[i] = 1;
        i = image[i];
      } while (i != (int)h);
    }
  }
  return COPSE_OK;
}

/* Takes a base tree's way from the loads, as the image at hand has it. */
static void take_way(struct checking *k, const struct copse_schedule_edge *edge,
                     const mpq_t weight) {
  for (int p = 0; p + 1 < edge->n_path; p++) {
    int h = find_hop(k, image_of(k, edge->path[p], false), image_of(k, edge->path[p + 1], false));
    mpq_sub(k->loads[h], k->loads[h], weight);
  }
}

/* ---- base trees ---------------------------------------------------------------------------- */

static copse_status check_path(struct checking *k, const char *what, int at,
                               const struct copse_schedule_edge *edge) {
  const struct copse_schedule *s = k->s;
  if (edge->n_path < 2 || edge->path[0] != s->rank_nodes[edge->src] ||
      edge->path[edge->n_path - 1] != s->rank_nodes[edge->dst])
    return refute(k->c, "%s %d: a path doesn't lead from rank %d to rank %d", what, at, edge->src,
                  edge->dst);
  for (int p = 1; p + 1 < edge->n_path; p++)
    if (k->rank_of[edge->path[p]] >= 0)
      return refute(k->c, "%s %d: a path passes through '%s', not a relay", what, at,
                    s->nodes[edge->path[p]]);
  return COPSE_OK;
}

/* Reads a tree of all ranks, absent ones too, each edge behind what it hangs on (reduce:
 * before). */
static copse_status read_base(struct checking *k, int t) {
  const struct copse_schedule_tree *tree = &k->s->trees[t];
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  COPSE_MPQ(weight);
  copse_mpq_set(weight, tree->weight);
  if (tree->weight.num <= 0) return refute(k->c, "tree %d: its weight is not positive", t);
  if (tree->n_edges != k->n - 1) return refute(k->c, "tree %d: it must span all ranks", t);
  for (int v = 0; v < k->n; v++) k->up[v] = -1;
  memset(k->n_below, 0, (size_t)k->n * sizeof *k->n_below);
  for (int i = 0; i < tree->n_edges; i++) {
    int e = reduce ? tree->n_edges - 1 - i : i;
    const struct copse_schedule_edge *edge = &tree->edges[e];
    int from = reduce ? edge->dst : edge->src, to = reduce ? edge->src : edge->dst;
    if (to == tree->root || k->up[to] >= 0 || (from != tree->root && k->up[from] < 0))
      return refute(k->c, "tree %d, edge %d: out of order or not a tree", t, e);
    k->up[to] = from;
    k->edge_to[to] = e;
    k->n_below[from]++;
    COPSE_DO(check_path(k, "tree", t, edge));
  }
  return COPSE_OK;
}

static void add_base_loads(struct checking *k) {
  COPSE_MPQ(weight);
  for (int t = 0; t < k->s->n_trees; t++) {
    const struct copse_schedule_tree *tree = &k->s->trees[t];
    copse_mpq_set(weight, tree->weight);
    for (int e = 0; e < tree->n_edges; e++)
      for (int p = 0; p + 1 < tree->edges[e].n_path; p++) {
        int h = find_hop(k, tree->edges[e].path[p], tree->edges[e].path[p + 1]);
        mpq_add(k->loads[h], k->loads[h], weight);
      }
  }
}

/* ---- changes ------------------------------------------------------------------------------- */

/* Checks the way from each rank that moved up to the root, by new ways where there are such. */
static copse_status check_climb(struct checking *k, int t, const int *ranks, int n) {
  int root = k->s->trees[t].root;
  for (int i = 0; i < n; i++) {
    int steps = 0;
    for (int v = ranks[i]; v != root; steps++) {
      if (steps > k->n || rank_image(k, v, false) >= k->s->n_ranks)
        return refute(k->c, "change %d: rank %d doesn't hang on the root any more", k->n_moves - 1,
                      rank_image(k, ranks[i], false));
      v = k->moved[v] == k->n_moves ? k->new_up[v] : k->up[v];
    }
  }
  return COPSE_OK;
}

/* Checks a change: its ranks, which end with a tree, and its loads. */
static copse_status check_change(struct checking *k, const struct copse_schedule_change *change) {
  const struct copse_schedule_tree *tree = &k->s->trees[change->tree];
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  int *ranks, index = k->n_moves++;
  COPSE_MPQ(weight);
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  copse_mpq_set(weight, change->weight);
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)change->n_edges, ranks, k->c->err));
  for (int e = 0; e < change->n_edges; e++) {
    const struct copse_schedule_edge *edge = &change->edges[e];
    int to = reduce ? edge->src : edge->dst, from = reduce ? edge->dst : edge->src;
    if (edge->src < 0 || edge->dst < 0 || edge->src >= k->s->n_ranks || edge->dst >= k->s->n_ranks)
      return refute(k->c, "change %d: an edge of a rank that is not there", index);
    COPSE_DO(check_path(k, "change", index, edge));
    int rank = ranks[e] = rank_image(k, to, true);
    if (rank == tree->root || k->moved[rank] == k->n_moves)
      return refute(k->c, "change %d: it moves rank %d twice, or the root", index, to);
    k->moved[rank] = k->n_moves;
    k->new_up[rank] = rank_image(k, from, true);
    take_way(k, &tree->edges[k->edge_to[rank]], weight);
    for (int p = 0; p + 1 < edge->n_path; p++) {
      int h = find_hop(k, edge->path[p], edge->path[p + 1]);
      mpq_add(k->loads[h], k->loads[h], weight);
    }
  }
  return check_climb(k, change->tree, ranks, change->n_edges);
}

/* Checks that nothing hangs on an absent rank of the image at hand but what the last change has
 * moved; `changed` false: nothing at all. */
static copse_status check_absent(struct checking *k, int t, bool changed) {
  for (int a = k->s->n_ranks; a < k->n; a++) {
    int gone = rank_image(k, a, true);
    if (k->n_below[gone] == 0) continue;
    for (int v = 0; v < k->n; v++)
      if (k->up[v] == gone && !(changed && k->moved[v] == k->n_moves) &&
          rank_image(k, v, false) < k->s->n_ranks)
        return refute(k->c, "tree %d: an image leaves rank %d on one that is absent", t,
                      rank_image(k, v, false));
  }
  return COPSE_OK;
}

/* Checks one image of a tree: its changes, from *next on, and what they leave. */
static copse_status check_image(struct checking *k, int t, int64_t number, int *next,
                                mpq_t *shares) {
  const struct copse_schedule *s = k->s;
  const struct copse_schedule_tree *tree = &s->trees[t];
  int root = rank_image(k, tree->root, false);
  struct copse_q zero = COPSE_Q_ZERO;
  COPSE_MPQ(left);
  COPSE_MPQ(part);
  copse_mpq_set(left, tree->weight);
  if (root < s->n_ranks) {
    mpq_add(shares[root], shares[root], left);
    for (int a = s->n_ranks; a < k->n; a++)
      take_way(k, &tree->edges[k->edge_to[rank_image(k, a, true)]], left);
  } else {
    for (int e = 0; e < tree->n_edges; e++) take_way(k, &tree->edges[e], left);
  }
  for (; *next < s->n_changes && s->changes[*next].tree == t && s->changes[*next].image == number;
       ++*next) {
    const struct copse_schedule_change *change = &s->changes[*next];
    if (root >= s->n_ranks || copse_q_cmp(change->weight, zero) <= 0)
      return refute(k->c, "change %d: of no weight, or of a root that is absent", *next);
    COPSE_DO(check_change(k, change));
    COPSE_DO(check_absent(k, t, true));
    copse_mpq_set(part, change->weight);
    mpq_sub(left, left, part);
  }
  if (mpq_sgn(left) < 0)
    return refute(k->c, "changes before %d: more weight than their tree has", *next);
  return mpq_sgn(left) > 0 && root < s->n_ranks ? check_absent(k, t, false) : COPSE_OK;
}

/* ---- together ------------------------------------------------------------------------------ */

static copse_status prepare(struct checking *k) {
  const struct copse_schedule *s = k->s;
  struct copse_arena *arena = &k->c->scratch.arena;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n_nodes, k->rank_of, k->c->err));
  COPSE_DO(COPSE_ARRAYS(arena, (size_t)k->n, int, k->c->err, &k->up, &k->edge_to, &k->moved,
                        &k->new_up, &k->n_below));
  for (int v = 0; v < s->n_nodes; v++) k->rank_of[v] = -1;
  for (int r = 0; r < k->n; r++) k->rank_of[s->rank_nodes[r]] = r;
  for (int r = s->n_ranks; r < k->n; r++) {
    int node = k->c->node_of[s->rank_nodes[r]];
    if (node >= 0 && k->c->topology->nodes[node].rank >= 0)
      return refute(k->c, "'%s' is absent in the schedule and a rank of the topology",
                    s->nodes[s->rank_nodes[r]]);
  }
  if (s->n_rotations > COPSE_SCHEDULE_MAX_ROTATIONS)
    return refute(k->c, "more than %d rotations", COPSE_SCHEDULE_MAX_ROTATIONS);
  k->n_images = 1;
  for (int g = 0; g < s->n_rotations; g++) {
    COPSE_DO(make_turns(k, g));
    if (__builtin_mul_overflow(k->n_images, k->turns[g].order, &k->n_images))
      return refute(k->c, "the orders of the rotations multiply to more than 63 bits");
  }
  if (k->n_images > k->n) /* then shares can't be right either */
    return refute(k->c, "more images than ranks");
  return list_hops(k);
}

/* Hands the loads of links to the checker, and refutes loads of hops that are no link. */
static copse_status hand_over(struct checking *k) {
  for (size_t h = 0; h < k->n_hops; h++) {
    int src = k->c->node_of[k->hops[h][0]], dst = k->c->node_of[k->hops[h][1]];
    int link = src >= 0 && dst >= 0 ? copse_topology_find_link(k->c->topology, src, dst) : -1;
    if (link >= 0)
      mpq_add(k->c->loads[link], k->c->loads[link], k->loads[h]);
    else if (mpq_sgn(k->loads[h]) != 0)
      return refute(k->c, "some image of a tree takes '%s' -> '%s', which the topology lacks",
                    k->s->nodes[k->hops[h][0]], k->s->nodes[k->hops[h][1]]);
  }
  return COPSE_OK;
}

static void release(struct checking *k) {
  copse_index_map_free(&k->by_hop);
  free(k->hops);
}

copse_status copse_verify_changes(struct copse_verify_checker *c, mpq_t *broadcast_shares,
                                  mpq_t *reduce_shares) {
  const struct copse_schedule *s = c->schedule;
  COPSE_AT_END(release)
  struct checking k = {.c = c, .s = s, .n = s->n_ranks + s->n_absent};
  int next = 0;
  COPSE_DO(prepare(&k));
  for (int t = 0; t < s->n_trees; t++) COPSE_DO(read_base(&k, t));
  add_base_loads(&k);
  COPSE_DO(spread_loads(&k));
  for (int t = 0; t < s->n_trees; t++) {
    mpq_t *shares = s->trees[t].phase == COPSE_PHASE_REDUCE ? reduce_shares : broadcast_shares;
    COPSE_DO(read_base(&k, t));
    for (int64_t i = 0; i < k.n_images; i++) {
      set_image(&k, i);
      COPSE_DO(check_image(&k, t, i, &next, shares));
    }
  }
  if (next < s->n_changes)
    return refute(c, "change %d: changes must come by tree and image, of those that there are",
                  next);
  return hand_over(&k);
}
