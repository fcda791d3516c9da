/* What graph algorithms share: disjoint sets, queues of nodes, an index from nodes to links,
 * permutations, and a map from keys to indices. Nodes, links and members are ints from 0 on. Arrays
 * come from the caller's arena, so that a function that returns frees all of its scratch memory at
 * once. */
#pragma once

#include "base/memory.h"

/* Makes n sets of one member over parent [n] (disjoint sets, Tarjan and van Leeuwen 1984, path
 * halving). The least member of a set represents it, so results do not depend on the order of
 * unions. Complexity O(log n) amortised for each find and unite. */
void copse_sets_init(int *parent, int n);
int copse_sets_find(int *parent, int i);
/* Returns whether a and b were in different sets. */
bool copse_sets_unite(int *parent, int a, int b);

/* First in, first out. `items` has room for every push between two resets. */
struct copse_queue {
  int *items;
  int head, tail;
};
static inline void copse_queue_reset(struct copse_queue *queue) { queue->head = queue->tail = 0; }
static inline void copse_queue_push(struct copse_queue *queue, int item) {
  queue->items[queue->tail++] = item;
}
static inline bool copse_queue_is_empty(const struct copse_queue *queue) {
  return queue->head == queue->tail;
}
static inline int copse_queue_pop(struct copse_queue *queue) { return queue->items[queue->head++]; }
/* The same round an array of `size`, which holds one item less. */
static inline void copse_queue_push_around(struct copse_queue *queue, int size, int item) {
  queue->items[queue->tail] = item;
  queue->tail = queue->tail + 1 == size ? 0 : queue->tail + 1;
}
static inline int copse_queue_pop_around(struct copse_queue *queue, int size) {
  int item = queue->items[queue->head];
  queue->head = queue->head + 1 == size ? 0 : queue->head + 1;
  return item;
}

/* Items by key: those of key v are item[first[v]] to item[first[v + 1] - 1], in ascending order. */
struct copse_adjacency {
  int *first; /* [n_keys + 1] */
  int *item;  /* [first[n_keys]] */
};

/* Nodes by distance, of equals the smaller one first: the binary heap of E. W. Dijkstra's algorithm
 * (Numerische Mathematik 1, 1959). */
struct copse_nearest {
  int64_t *distance;    /* [n_nodes] INT64_MAX: not reached */
  int *heap, *position; /* [n_nodes]; position -1: not in the heap */
  int n_nodes, n;       /* n: in the heap; the nearest is heap[0] */
};
/* Takes the arrays from the arena, which owns them. COPSE_NOMEM. */
copse_status copse_nearest_prepare(struct copse_arena *arena, int n_nodes,
                                   struct copse_nearest *out, struct copse_err *err) COPSE_CHECKED;
/* Forgets all distances: no node is reached any more. */
void copse_nearest_reset(struct copse_nearest *nearest);
/* Whether the node is nearer than before; it then is in the heap. O(log n). */
bool copse_nearest_offer(struct copse_nearest *nearest, int node, int64_t distance);
/* Takes the nearest node out of a heap that is not empty. O(log n). */
int copse_nearest_take(struct copse_nearest *nearest);

/* The first key of an array of structs, which may be NULL where it is empty. */
#define COPSE_KEYS(items, member) ((items) ? &(items)->member : NULL)

/*
 * Indexes items 0 to n_items - 1 by their keys: item i's key is the int at `key` + i * `stride`
 * bytes, from 0 to n_keys - 1; items with a negative key are left out. For links by their source:
 *
 *   copse_adjacency_by(&scratch, n_nodes, n_links, COPSE_KEYS(links, src), sizeof *links, &out,
 *                      err)
 *
 * The arena owns the arrays. COPSE_NOMEM. Complexity O(n_keys + n_items).
 */
copse_status copse_adjacency_by(struct copse_arena *arena, int n_keys, int n_items, const int *key,
                                size_t stride, struct copse_adjacency *out,
                                struct copse_err *err) COPSE_CHECKED;

/* A permutation of a graph's nodes 0 to n - 1, and of groups of them that are listed beside it: a
 * symmetry, or the turn of hosts that a schedule is compact by. */
struct copse_permutation {
  int order;         /* applied so often it changes nothing; 1: the identity; 0: not known */
  const int *image;  /* [n] where each node goes; may be NULL for the identity */
  const int *groups; /* where each group goes; NULL where no groups are asked for */
};

static inline void copse_permutation_invert(const int *image, int n, int *inverse) {
  for (int i = 0; i < n; i++) inverse[image[i]] = i;
}

/* Sets out[i] = second[first[i]]; out may be first. */
static inline void copse_permutation_compose(const int *first, const int *second, int n, int *out) {
  for (int i = 0; i < n; i++) out[i] = second[first[i]];
}

/* A hash map from 64-bit keys to indices. Text keys are
 * hashed by the caller, who compares the candidates; pairs of indices are keys as they are. */

/* Zero-initialise; release with copse_index_map_free. */
struct copse_index_map {
  struct copse_index_slot *slots;
  size_t capacity, used; /* capacity is zero or a power of two */
};

/* Adds an entry; the same key may be added again. */
copse_status copse_index_map_add(struct copse_index_map *map, uint64_t key, int index,
                                 struct copse_err *err) COPSE_CHECKED;

/* Returns the next index stored under `key`, or -1. *cursor starts at 0 and is moved on; the order
 * is that of addition. */
int copse_index_map_next(const struct copse_index_map *map, uint64_t key, size_t *cursor);

/* Finds the item whose name is `text`, or -1, in a map with the key of each item's name: items of
 * `size` bytes, the name (a char *) at `offset` in each. */
int copse_index_map_find(const struct copse_index_map *map, const char *text, const void *items,
                         size_t size, size_t offset);

void copse_index_map_free(struct copse_index_map *map);

/* Texts, each once: equal ones have one address. Zero-initialise; release with copse_names_free. */
struct copse_names {
  struct copse_index_map by_text;
  const char **list;
  size_t n, capacity;
};
/* Sets *out to the text's copy in the arena, which owns the list too; equal texts share one copy.
 * COPSE_NOMEM. */
copse_status copse_names_keep(struct copse_names *names, struct copse_arena *arena,
                              const char *text, const char **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_names_free(struct copse_names *names);

/* Draws 32 bits: the upper half of the linear congruential generator of D. E. Knuth's MMIX. The
 * same numbers on every machine; any state starts it. */
static inline uint32_t copse_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 32);
}
/* Draws one of 0 to below - 1; below > 0. */
static inline int copse_random_below(uint64_t *state, int below) {
  return (int)((copse_random(state) >> 1) % (uint32_t)below);
}

/* Scatters neighbouring numbers to unrelated ones: the finaliser of splitmix64 (S. Vigna). */
static inline uint64_t copse_scatter(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Does the same one step further. */
static inline uint64_t copse_mix(uint64_t z) { return copse_scatter(z + 0x9e3779b97f4a7c15u); }

/* Hashes values one after the other, from COPSE_HASH on: FNV-1a of 64 bits (Fowler, Noll, Vo). */
#define COPSE_HASH 0xcbf29ce484222325u
static inline uint64_t copse_hash(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x100000001b3u;
}

/* Makes the key of a text. Equal texts have equal keys, different ones almost never; keys of pairs
 * never collide. */
uint64_t copse_key_text(const char *text);
static inline uint64_t copse_key_pair(int a, int b) {
  return ((uint64_t)(uint32_t)a << 32) | (uint32_t)b;
}
