/*
 * A hash map with open addressing and linear probing: entries of a key stand in the order of their
 * addition, so that all of them can be walked.
 *
 *   slots:  .  k1:0  k2:3  k1:5  .      next(k1): 0, then 5; the first empty slot ends a walk
 */
#include "base/index_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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

/* Entries of one key must keep their order of addition, so a table that wrapped around
 * is read from just behind an empty slot. */
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

/* FNV-1a of 64 bits. */
uint64_t copse_key_text(const char *text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
  return h;
}
