/*
 * Disjoint sets, nodes by distance, adjacency index and permutations.
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

copse_status copse_nearest_prepare(struct copse_arena *arena, int n_nodes,
                                   struct copse_nearest *out, struct copse_err *err) {
  size_t n = (size_t)n_nodes;
  *out = (struct copse_nearest){.n_nodes = n_nodes};
  COPSE_DO(COPSE_ARRAY(arena, n, out->distance, err));
  return COPSE_ARRAYS(arena, n, int, err, &out->heap, &out->position);
}

void copse_nearest_reset(struct copse_nearest *nearest) {
  nearest->n = 0;
  for (int v = 0; v < nearest->n_nodes; v++) {
    nearest->distance[v] = INT64_MAX;
    nearest->position[v] = -1;
  }
}

static bool is_before(const struct copse_nearest *nearest, int a, int b) {
  const int64_t *distance = nearest->distance;
  return distance[a] != distance[b] ? distance[a] < distance[b] : a < b;
}

static void place(struct copse_nearest *nearest, int at, int node) {
  nearest->heap[at] = node;
  nearest->position[node] = at;
}

bool copse_nearest_offer(struct copse_nearest *nearest, int node, int64_t distance) {
  if (distance >= nearest->distance[node]) return false;
  nearest->distance[node] = distance;
  int at = nearest->position[node] >= 0 ? nearest->position[node] : nearest->n++;
  for (; at > 0 && is_before(nearest, node, nearest->heap[(at - 1) / 2]); at = (at - 1) / 2)
    place(nearest, at, nearest->heap[(at - 1) / 2]);
  place(nearest, at, node);
  return true;
}

int copse_nearest_take(struct copse_nearest *nearest) {
  const int *heap = nearest->heap;
  int taken = heap[0], last = heap[--nearest->n], at = 0;
  nearest->position[taken] = -1;
  for (int child; (child = 2 * at + 1) < nearest->n; at = child) {
    if (child + 1 < nearest->n && is_before(nearest, heap[child + 1], heap[child])) child++;
    if (!is_before(nearest, heap[child], last)) break;
    place(nearest, at, heap[child]);
  }
  if (nearest->n > 0) place(nearest, at, last);
  return taken;
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
