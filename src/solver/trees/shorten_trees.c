#include <stdlib.h>
#include <string.h>

#include "solver/trees/shorten_internal.h"

/* Depths by walking up to where one is known, then heights below from the deepest up. */
static void measure_depths(struct copse_shortener *s, struct copse_shorten_tree *tree) {
  int n = s->n;
  for (int v = 0; v < n; v++) tree->depth[v] = -1;
  tree->depth[tree->root] = tree->height = 0;
  for (int v = 0; v < n; v++) {
    int hops = 0, u = v;
    while (tree->depth[u] == -1) {
      hops++;
      u = tree->ways[u].src;
    }
    int depth = tree->depth[u] + hops;
    for (u = v; tree->depth[u] == -1; u = tree->ways[u].src) tree->depth[u] = depth--;
    if (tree->depth[v] > tree->height) tree->height = tree->depth[v];
  }
}

void copse_shorten_sort(struct copse_shortener *s, const struct copse_shorten_tree *tree) {
  memset(s->count, 0, ((size_t)tree->height + 2) * sizeof *s->count);
  for (int v = 0; v < s->n; v++) s->count[tree->depth[v] + 1]++;
  for (int d = 0; d < tree->height; d++) s->count[d + 1] += s->count[d];
  for (int v = 0; v < s->n; v++) s->order[s->count[tree->depth[v]]++] = v;
}

void copse_shorten_measure(struct copse_shortener *s, struct copse_shorten_tree *tree) {
  measure_depths(s, tree);
  copse_shorten_sort(s, tree);
  memset(tree->below, 0, (size_t)s->n * sizeof *tree->below);
  for (int i = s->n - 1; i > 0; i--) {
    int v = s->order[i], u = tree->ways[v].src;
    if (tree->below[u] < tree->below[v] + 1) tree->below[u] = tree->below[v] + 1;
  }
}

uint64_t copse_shorten_nodes(const struct copse_shorten_way *way) {
  uint64_t nodes = 0;
  for (int i = 1; i < way->n_path; i++) nodes |= UINT64_C(1) << (way->path[i] & 63);
  return nodes;
}

void copse_shorten_relist(struct copse_shortener *s, int tree, int vertex) {
  const struct copse_shorten_way *way = &s->trees[tree].ways[vertex];
  s->lists[way->src].ways[way->slot] =
      (struct copse_shorten_entry){copse_shorten_nodes(way), tree, vertex};
  for (int i = 1; s->passed && i < way->n_path; i++)
    s->passed[(size_t)way->src * s->n_words + (size_t)way->path[i] / 64] |= UINT64_C(1)
                                                                            << (way->path[i] & 63);
}

copse_status copse_shorten_enlist(struct copse_shortener *s, int tree, int vertex,
                                  struct copse_err *err) {
  struct copse_shorten_way *way = &s->trees[tree].ways[vertex];
  struct copse_shorten_list *list = &s->lists[way->src];
  copse_status status;
  COPSE_TRY(copse_grow(&list->ways, &list->capacity, list->n + 1, sizeof *list->ways, err));
  way->slot = (int)list->n++;
  copse_shorten_relist(s, tree, vertex);
out:
  return status;
}

copse_status copse_shorten_new_tree(struct copse_shortener *s, struct copse_shorten_tree **out,
                                    struct copse_err *err) {
  copse_status status;
  size_t n = (size_t)s->n;
  COPSE_TRY(copse_grow(&s->trees, &s->trees_capacity, s->n_trees + 1, sizeof *s->trees, err));
  struct copse_shorten_tree *tree = &s->trees[s->n_trees];
  *tree = (struct copse_shorten_tree){0};
  s->n_trees++; /* so that it is freed */
  COPSE_TRY(copse_calloc(n, sizeof *tree->ways, &tree->ways, err));
  COPSE_TRY(copse_calloc(n, sizeof *tree->depth, &tree->depth, err));
  COPSE_TRY(copse_calloc(n, sizeof *tree->below, &tree->below, err));
  *out = tree;
out:
  return status;
}

/* Leaves `amount` of a tree where it is; the rest becomes a tree like it. */
static copse_status cut(struct copse_shortener *s, int from, int64_t amount,
                        struct copse_err *err) {
  struct copse_shorten_tree *copy;
  copse_status status;
  COPSE_TRY(copse_shorten_new_tree(s, &copy, err));
  struct copse_shorten_tree *tree = &s->trees[from];
  size_t n = (size_t)s->n;
  copy->root = tree->root;
  copy->height = tree->height;
  copy->edges = tree->edges;
  copy->multiplicity = tree->multiplicity - amount;
  tree->multiplicity = amount;
  memcpy(copy->ways, tree->ways, n * sizeof *copy->ways);
  memcpy(copy->depth, tree->depth, n * sizeof *copy->depth);
  memcpy(copy->below, tree->below, n * sizeof *copy->below);
  for (int v = 0; v < s->n; v++)
    if (v != copy->root) COPSE_TRY(copse_shorten_enlist(s, (int)s->n_trees - 1, v, err));
out:
  return status;
}

copse_status copse_shorten_even_out(struct copse_shortener *s, int tree, int other,
                                    struct copse_err *err) {
  int64_t a = s->trees[tree].multiplicity, b = s->trees[other].multiplicity;
  if (a > b) return cut(s, tree, b, err);
  if (a < b) return cut(s, other, a, err);
  return COPSE_OK;
}
