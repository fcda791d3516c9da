#include "solver/trees/shorten.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "solver/trees/shorten_internal.h"

/* Candidates looked at in all, and by how much trees that are cut in two may add to their number.
 */
#define MOST_CANDIDATES 100000000
#define MOST_GROWTH_PERCENT 25
/* Of 64 bits, for who passes whom. */
#define MOST_WORDS ((size_t)1 << 22)

/* Brings up one deepest vertex of a tree: for no more trees, if that is possible. */
static copse_status lift_one(struct copse_shortener *s, int tree, bool *lifted,
                             struct copse_err *err) {
  copse_status status = COPSE_OK;
  *lifted = false;
  copse_shorten_sort(s, &s->trees[tree]);
  int deepest = s->order[s->n - 1];
  for (int uneven = 0; uneven < 2 && !*lifted; uneven++) {
    if (uneven && s->n_trees >= s->most_trees) break;
    COPSE_TRY(copse_shorten_by_edge(s, tree, deepest, uneven, lifted, err));
    if (!*lifted) COPSE_TRY(copse_shorten_by_branch(s, tree, deepest, uneven, lifted, err));
  }
out:
  return status;
}

/* All trees of one height; whether one of them has become lower. */
static copse_status lower_trees(struct copse_shortener *s, int height, bool *lowered,
                                struct copse_err *err) {
  copse_status status = COPSE_OK;
  *lowered = false;
  for (size_t t = 0; t < s->n_trees && s->left > 0; t++) {
    if (s->trees[t].height != height || s->trees[t].failed_at == s->n_changes) continue;
    for (bool lifted = true; lifted && s->trees[t].height == height; s->n_changes += lifted)
      COPSE_TRY(lift_one(s, (int)t, &lifted, err));
    if (s->trees[t].height == height) s->trees[t].failed_at = s->n_changes;
    if (s->trees[t].height < height) *lowered = true;
  }
out:
  return status;
}

static copse_status lower_all(struct copse_shortener *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int height = 0;
  int64_t sum = 0;
  for (size_t t = 0; t < s->n_trees; t++) {
    if (s->trees[t].height > height) height = s->trees[t].height;
    sum += s->trees[t].height;
  }
  s->mean_height = (int)(sum / (int64_t)s->n_trees);
  for (; height > 1 && s->left > 0; height--)
    for (bool lowered = true; lowered && s->left > 0;)
      COPSE_TRY(lower_trees(s, height, &lowered, err));
out:
  return status;
}

static copse_status load_tree(struct copse_shortener *s, const struct copse_forest_tree *from,
                              struct copse_err *err) {
  struct copse_shorten_tree *tree;
  copse_status status;
  COPSE_TRY(copse_shorten_new_tree(s, &tree, err));
  tree->root = s->terminal[from->root];
  tree->multiplicity = from->multiplicity;
  tree->edges = from->edges;
  tree->ways[tree->root].src = -1;
  for (int i = 0; i < s->n - 1; i++) {
    const struct copse_forest_edge *edge = &from->edges[i];
    int v = s->terminal[edge->dst];
    tree->ways[v] = (struct copse_shorten_way){edge->path, edge->n_path, s->terminal[edge->src], 0};
    COPSE_TRY(copse_shorten_enlist(s, (int)s->n_trees - 1, v, err));
  }
  copse_shorten_measure(s, tree);
out:
  return status;
}

static copse_status load(struct copse_shortener *s, struct copse_err *err) {
  size_t n = (size_t)s->n, nodes = (size_t)s->network->n_nodes;
  copse_status status;
  COPSE_TRY(copse_calloc(nodes, sizeof *s->terminal, &s->terminal, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->lists, &s->lists, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->order, &s->order, err));
  COPSE_TRY(copse_calloc(n + 2, sizeof *s->count, &s->count, err));
  COPSE_TRY(copse_calloc(nodes, sizeof *s->place, &s->place, err));
  COPSE_TRY(copse_calloc(nodes, sizeof *s->joined, &s->joined, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->chain, &s->chain, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->branch, &s->branch, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->in_branch, &s->in_branch, err));
  s->n_words = (nodes + 63) / 64;
  if (n <= MOST_WORDS / s->n_words)
    COPSE_TRY(copse_calloc(n * s->n_words, sizeof *s->passed, &s->passed, err));
  for (int i = 0; i < s->n; i++) s->terminal[s->network->terminals[i]] = i;
  for (int t = 0; t < s->forest->n_trees; t++) COPSE_TRY(load_tree(s, &s->forest->trees[t], err));
out:
  return status;
}

/*
 * Edges by depth, and at each depth turned on by the root: roots that send to all others begin with
 * their neighbour, not all with the same terminal.
 */
static copse_status list_edges(struct copse_shortener *s, const struct copse_shorten_tree *from,
                               const struct copse_forest_edge **out, struct copse_err *err) {
  const int *terminals = s->network->terminals;
  int n = 0;
  struct copse_forest_edge *edges =
      copse_arena_alloc(&s->forest->arena, (size_t)s->n, sizeof *edges);
  if (!edges) return copse_fail_nomem(err);
  copse_shorten_sort(s, from);
  for (int i = 1, end; i < s->n; i = end) {
    int depth = from->depth[s->order[i]], turned = i;
    for (end = i; end < s->n && from->depth[s->order[end]] == depth; end++)
      if (s->order[end] < from->root) turned = end + 1;
    for (int j = i; j < end; j++) {
      int at = j + turned - i, v = s->order[at < end ? at : at - end + i];
      const struct copse_shorten_way *way = &from->ways[v];
      edges[n++] =
          (struct copse_forest_edge){terminals[way->src], terminals[v], way->path, way->n_path};
    }
  }
  *out = edges;
  return COPSE_OK;
}

static copse_status store_tree(struct copse_shortener *s, const struct copse_shorten_tree *from,
                               struct copse_forest_tree *to, struct copse_err *err) {
  *to = (struct copse_forest_tree){s->network->terminals[from->root], from->multiplicity,
                                   from->edges, from->height};
  return from->edges ? COPSE_OK : list_edges(s, from, &to->edges, err);
}

static bool same_trees(const struct copse_shortener *s, const struct copse_shorten_tree *a,
                       const struct copse_shorten_tree *b) {
  if (a->root != b->root || a->height != b->height) return false;
  for (int v = 0; v < s->n; v++) {
    const struct copse_shorten_way *x = &a->ways[v], *y = &b->ways[v];
    if (v == a->root) continue;
    if (x->src != y->src || x->n_path != y->n_path) return false;
    if (memcmp(x->path, y->path, (size_t)x->n_path * sizeof *x->path) != 0) return false;
  }
  return true;
}

/* Adds a tree to an earlier one that is equal, so that it needs none of its own. */
static bool merge(struct copse_shortener *s, size_t t) {
  for (size_t i = 0; i < t; i++) {
    if (s->trees[i].multiplicity == 0 || !same_trees(s, &s->trees[i], &s->trees[t])) continue;
    s->trees[i].multiplicity += s->trees[t].multiplicity;
    s->trees[t].multiplicity = 0;
    return true;
  }
  return false;
}

static copse_status store(struct copse_shortener *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int kept = 0;
  struct copse_forest_tree *trees = copse_arena_alloc(&s->forest->arena, s->n_trees, sizeof *trees);
  if (!trees) return copse_fail_nomem(err);
  for (size_t t = 0; t < s->n_trees; t++)
    if (!merge(s, t)) kept++;
  kept = 0;
  for (size_t t = 0; t < s->n_trees; t++)
    if (s->trees[t].multiplicity > 0) COPSE_TRY(store_tree(s, &s->trees[t], &trees[kept++], err));
  s->forest->trees = trees;
  s->forest->n_trees = kept;
out:
  return status;
}

copse_status copse_forest_shorten(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) {
  struct copse_shortener s = {.network = network,
                              .forest = forest,
                              .n = network->n_terminals,
                              .left = MOST_CANDIDATES,
                              .n_changes = 1};
  copse_status status = COPSE_OK;
  s.most_trees = (size_t)forest->n_trees + (size_t)forest->n_trees * MOST_GROWTH_PERCENT / 100;
  if (s.most_trees > (size_t)(INT_MAX / s.n)) return COPSE_OK; /* ways are numbered by int */
  COPSE_TRY(load(&s, err));
  COPSE_TRY(lower_all(&s, err));
  COPSE_TRY(store(&s, err));
out:
  for (size_t t = 0; t < s.n_trees; t++) {
    free(s.trees[t].ways);
    free(s.trees[t].depth);
    free(s.trees[t].below);
  }
  for (int i = 0; s.lists && i < s.n; i++) free(s.lists[i].ways);
  free(s.trees);
  free(s.lists);
  free(s.passed);
  free(s.terminal);
  free(s.order);
  free(s.count);
  free(s.place);
  free(s.joined);
  free(s.chain);
  free(s.branch);
  free(s.in_branch);
  return status;
}
