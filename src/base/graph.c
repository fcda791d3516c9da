/*
 * Disjoint sets, adjacency index and permutations.
 *
 *   key of item:  0 -> 2, 1 -> 0, 2 -> 2          first: 0 1 1 3
 *                                                 item:  1 0 2
 *   so key 0 has item 1, key 1 none, key 2 items 0 and 2: a counting sort, stable.
 */
#include "base/graph.h"

void copse_sets_init(int *parent, int n) {
  for (int i = 0; i < n; i++) parent[i] = i;
}

int copse_sets_find(int *parent, int i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

bool copse_sets_unite(int *parent, int a, int b) {
  a = copse_sets_find(parent, a);
  b = copse_sets_find(parent, b);
  if (a < b) parent[b] = a;
  if (b < a) parent[a] = b;
  return a != b;
}

static int key_of(const int *key, size_t stride, int i) {
  return *(const int *)((const char *)key + (size_t)i * stride);
}

copse_status copse_adjacency_by(struct copse_arena *arena, int n_keys, int n_items, const int *key,
                                size_t stride, struct copse_adjacency *out, struct copse_err *err) {
  *out = (struct copse_adjacency){0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_keys + 2, out->first, err));
  int *end = out->first + 1; /* of the items placed so far; one further on while they are counted */
  for (int i = 0; i < n_items; i++)
    if (key_of(key, stride, i) >= 0) end[key_of(key, stride, i) + 1]++;
  for (int v = 0; v < n_keys; v++) end[v + 1] += end[v];
  COPSE_DO(COPSE_ARRAY(arena, (size_t)end[n_keys], out->item, err));
  for (int i = 0; i < n_items; i++)
    if (key_of(key, stride, i) >= 0) out->item[end[key_of(key, stride, i)]++] = i;
  return COPSE_OK;
}

void copse_permutation_invert(const int *image, int n, int *inverse) {
  for (int i = 0; i < n; i++) inverse[image[i]] = i;
}

void copse_permutation_compose(const int *first, const int *second, int n, int *out) {
  for (int i = 0; i < n; i++) out[i] = second[first[i]];
}
