/* Tiles of elements on a CPU. A tile is a run that vectorises and
 * stays in the first cache; plain operands are used where they lie, packets are unpacked
 * into the tile's own memory. One thread does a whole move. */
#pragma once

#include <string.h>

#include "runtime/interpreter/element_move.h"

#define COPSE_TILE_ELEMENTS 128u
#define COPSE_TILE_LANES(T) COPSE_TILE_ELEMENTS
#define COPSE_TILE_UNROLL

struct copse_tile {
  uint64_t first;
  uint32_t n;
};
#define COPSE_TILE_SIZE(T, tile) ((tile).n)
#define COPSE_TILE_IS_FULL(T, tile) ((tile).n == COPSE_TILE_ELEMENTS)
#define COPSE_TILE_FULL(T, tile) ((struct copse_tile){(tile).first, COPSE_TILE_ELEMENTS})
#define COPSE_TILE_IN(T, place, tile, part) \
  ((place).epoch ? (part) : (const T *)(const void *)(place).at + (tile).first)
#define COPSE_TILE_OUT(T, place, tile, part) \
  ((place).epoch ? (part) : (T *)(void *)(place).at + (tile).first)

/* Tiles of a move, one after the other. */
struct copse_tiles {
  uint64_t at, end;
};

static inline struct copse_tiles copse_tiles_of(const struct copse_move *move, uint32_t thread,
                                                uint32_t n_threads, uint32_t element_bytes) {
  struct copse_tiles tiles = {0, thread == 0 ? move->count : 0};
  (void)n_threads;
  (void)element_bytes;
  return tiles;
}

static inline bool copse_tiles_next(struct copse_tiles *tiles, struct copse_tile *tile) {
  uint64_t left = tiles->end - tiles->at;
  tile->first = tiles->at;
  tile->n = left < COPSE_TILE_ELEMENTS ? (uint32_t)left : COPSE_TILE_ELEMENTS;
  tiles->at += tile->n;
  return tile->n > 0;
}

/* Returns the packets of a byte. Packets start at multiples of their data within a move, so tiles
 * do. */
static inline uint64_t *copse_packets_at(const struct copse_place *place, uint64_t byte) {
  return (uint64_t *)(void *)place->at + byte / COPSE_PACKET_DATA_BYTES;
}

/* Reads a tile; the executor has seen that the packets are there: copse_packets_are_there. */
static inline bool copse_tile_read(const struct copse_move *move, const struct copse_place *place,
                                   struct copse_tile tile, void *part, uint32_t element_bytes) {
  (void)move;
  if (!place->epoch) return true;
  const uint64_t *packets = copse_packets_at(place, tile.first * element_bytes);
  uint32_t bytes = tile.n * element_bytes;
  for (uint32_t b = 0; b < bytes; b += COPSE_PACKET_DATA_BYTES) {
    uint32_t data = (uint32_t)__atomic_load_n(packets++, __ATOMIC_RELAXED);
    uint32_t left = bytes - b;
    memcpy((char *)part + b, &data, left < sizeof data ? left : sizeof data);
  }
  return true;
}

static inline void copse_tile_write(const struct copse_place *place, struct copse_tile tile,
                                    const void *part, uint32_t element_bytes) {
  if (!place->epoch) return;
  uint64_t *packets = copse_packets_at(place, tile.first * element_bytes);
  uint32_t bytes = tile.n * element_bytes;
  for (uint32_t b = 0; b < bytes; b += COPSE_PACKET_DATA_BYTES) {
    uint32_t data = 0, left = bytes - b;
    memcpy(&data, (const char *)part + b, left < sizeof data ? left : sizeof data);
    __atomic_store_n(packets++, copse_packet_of(data, place->epoch), __ATOMIC_RELAXED);
  }
}

/* Whether all packets of `bytes` bytes of data have arrived. */
static inline bool copse_packets_are_there(const struct copse_place *place, uint64_t bytes) {
  const uint64_t *packets = copse_packets_at(place, 0);
  uint64_t n = (bytes + COPSE_PACKET_DATA_BYTES - 1) / COPSE_PACKET_DATA_BYTES;
  for (uint64_t i = 0; i < n; i++)
    if (__atomic_load_n(&packets[i], __ATOMIC_RELAXED) >> 32 != place->epoch) return false;
  return true;
}

static inline void copse_copy_plain(const struct copse_move *move, uint64_t bytes) {
  for (uint32_t k = 0; k < move->n_dst; k++)
    if (move->dst[k].at != move->src[0].at) memcpy(move->dst[k].at, move->src[0].at, (size_t)bytes);
}

static inline bool copse_move_copy(const struct copse_move *move, uint32_t element_bytes,
                                   uint32_t thread, uint32_t n_threads) {
  struct copse_tiles tiles = copse_tiles_of(move, thread, n_threads, element_bytes);
  struct copse_tile tile;
  unsigned char part[8 * COPSE_TILE_ELEMENTS]; /* of the widest element */
  bool packets = move->src[0].epoch != 0;
  for (uint32_t k = 0; k < move->n_dst; k++) packets = packets || move->dst[k].epoch;
  if (!packets) {
    if (thread == 0) copse_copy_plain(move, move->count * element_bytes);
    return true;
  }
  while (copse_tiles_next(&tiles, &tile)) {
    uint64_t at = tile.first * element_bytes, bytes = (uint64_t)tile.n * element_bytes;
    copse_tile_read(move, &move->src[0], tile, part, element_bytes);
    if (!move->src[0].epoch) memcpy(part, move->src[0].at + at, bytes);
    for (uint32_t k = 0; k < move->n_dst; k++) {
      if (!move->dst[k].epoch) memcpy(move->dst[k].at + at, part, bytes);
      copse_tile_write(&move->dst[k], tile, part, element_bytes);
    }
  }
  return true;
}
