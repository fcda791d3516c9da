/*
 * Disjoint sets, nodes by distance, adjacency index, permutations and a hash map to indices.
 *
 *   key of item:  0 -> 2, 1 -> 0, 2 -> 2          first: 0 1 1 3
 *                                                 item:  1 0 2
 *   so key 0 has item 1, key 1 none, key 2 items 0 and 2: a counting sort, stable.
 *
 * Sources: disjoint sets with path halving, Tarjan and van Leeuwen 1984; distances, Dijkstra 1959;
 * the map's hashes, FNV-1a (Fowler, Noll, Vo) and the finaliser of splitmix64 (Vigna).
 */
#include "base/graph.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- index map ------------------------------------------------------------------------------ */

/*
 * A hash map with open addressing and linear probing: entries of a key stand in the order of their
 * addition, so that all of them can be walked.
 *
 *   slots:  .  k1:0  k2:3  k1:5  .      next(k1): 0, then 5; the first empty slot ends a walk
 */

struct copse_index_slot {
  uint64_t key;
  int index_plus_1; /* 0: empty */
};

static void insert(struct copse_index_map *map, struct copse_index_slot entry) {
  size_t mask = map->capacity - 1;
  size_t at = copse_scatter(entry.key) & mask;
  while (map->slots[at].index_plus_1) at = (at + 1) & mask;
  map->slots[at] = entry;
}

/* Doubles the table. Entries of one key must keep their order of addition, so a table that wrapped
 * around is read from just behind an empty slot. */
static copse_status rehash(struct copse_index_map *map, struct copse_err *err) {
  struct copse_index_map grown = {NULL, map->capacity ? 2 * map->capacity : 16, map->used};
  COPSE_DO(copse_calloc(grown.capacity, sizeof *grown.slots, &grown.slots, err));
  size_t start = 0;
  while (start < map->capacity && map->slots[start].index_plus_1) start++;
  for (size_t i = 0; i < map->capacity; i++) {
    struct copse_index_slot entry = map->slots[(start + i) & (map->capacity - 1)];
    if (entry.index_plus_1) insert(&grown, entry);
  }
  free(map->slots);
  *map = grown;
  return COPSE_OK;
}

copse_status copse_index_map_add(struct copse_index_map *map, uint64_t key, int index,
                                 struct copse_err *err) {
  if (map->used >= map->capacity / 2) COPSE_DO(rehash(map, err));
  insert(map, (struct copse_index_slot){key, index + 1});
  map->used++;
  return COPSE_OK;
}

int copse_index_map_next(const struct copse_index_map *map, uint64_t key, size_t *cursor) {
  size_t start = copse_scatter(key);
  for (; *cursor < map->capacity; (*cursor)++) {
    const struct copse_index_slot *slot = &map->slots[(start + *cursor) & (map->capacity - 1)];
    if (!slot->index_plus_1) return -1;
    if (slot->key != key) continue;
    (*cursor)++;
    return slot->index_plus_1 - 1;
  }
  return -1;
}

int copse_index_map_find(const struct copse_index_map *map, const char *text, const void *items,
                         size_t size, size_t offset) {
  size_t cursor = 0;
  uint64_t key = copse_key_text(text);
  for (;;) {
    int i = copse_index_map_next(map, key, &cursor);
    if (i < 0) return -1;
    const void *name = (const char *)items + (size_t)i * size + offset;
    if (strcmp(*(const char *const *)name, text) == 0) return i;
  }
}

void copse_index_map_free(struct copse_index_map *map) {
  free(map->slots);
  *map = (struct copse_index_map){NULL, 0, 0};
}

copse_status copse_names_keep(struct copse_names *names, struct copse_arena *arena,
                              const char *text, const char **out, struct copse_err *err) {
  int i = copse_index_map_find(&names->by_text, text, names->list, sizeof *names->list, 0);
  if (i < 0) {
    COPSE_DO(copse_arena_text(arena, text, out, err));
    i = (int)names->n;
    COPSE_DO(COPSE_PUSH_IN(arena, names->list, names->n, names->capacity, err, *out));
    COPSE_DO(copse_index_map_add(&names->by_text, copse_key_text(text), i, err));
  }
  *out = names->list[i];
  return COPSE_OK;
}

void copse_names_free(struct copse_names *names) { copse_index_map_free(&names->by_text); }

uint64_t copse_key_text(const char *text) {
  uint64_t key = COPSE_HASH;
  for (; *text; text++) key = copse_hash(key, (unsigned char)*text);
  return key;
}
