/* A hash map from 64-bit keys to indices. Text keys are
 * hashed by the caller, who compares the candidates; pairs of indices are keys as they are. */
#pragma once

#include "base/err.h"

/* Zero-initialise; release with copse_index_map_free. */
struct copse_index_map {
  struct copse_index_slot *slots;
  size_t capacity, used; /* capacity is zero or a power of two */
};

/* Adds an entry; the same key may be added again. */
copse_status copse_index_map_add(struct copse_index_map *map, uint64_t key, int index,
                                 struct copse_err *err) COPSE_CHECKED;

/* The next index stored under `key`, or -1. *cursor starts at 0 and is moved on; the
 * order is that of addition. */
int copse_index_map_next(const struct copse_index_map *map, uint64_t key, size_t *cursor);

/* The item whose name is `text`, or -1, of a map with the key of each item's name: items of `size`
 * bytes, the name (a char *) at `offset` in each. */
int copse_index_map_find(const struct copse_index_map *map, const char *text, const void *items,
                         size_t size, size_t offset);

void copse_index_map_free(struct copse_index_map *map);

/* The finaliser of splitmix64 (S. Vigna): neighbouring numbers go to unrelated ones. */
static inline uint64_t copse_scatter(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* The same of one more step. */
static inline uint64_t copse_mix(uint64_t z) { return copse_scatter(z + 0x9e3779b97f4a7c15u); }

/* Keys. Equal texts have equal keys, different ones almost never; pairs never collide. */
uint64_t copse_key_text(const char *text);
static inline uint64_t copse_key_pair(int a, int b) {
  return ((uint64_t)(uint32_t)a << 32) | (uint32_t)b;
}
