/*
 * Inside element_move.h: tiles of elements on a GPU. A tile is a few 16-byte vectors of one
 * thread, a block's width apart, so that a warp's accesses are contiguous; they are read before
 * the first is used, so that several loads are in flight. Vectors that don't lie at 16 bytes
 * are read and written in smaller pieces, packets as four 8-byte words.
 */
#ifndef COPSE_RUNTIME_CUDA_TILE_CUH
#define COPSE_RUNTIME_CUDA_TILE_CUH

#include <cuda_runtime.h>

#include "runtime/cuda/order.cuh"
#include "runtime/cuda/patience.cuh"

#define COPSE_VECTOR_BYTES 16u
#define COPSE_VECTORS 4u      /* of a tile that is reduced: its accumulators are registers */
#define COPSE_COPY_VECTORS 8u /* of one that is copied */

#define COPSE_TILE_LANES(T) (COPSE_VECTORS * COPSE_VECTOR_BYTES / (uint32_t)sizeof(T))
#if defined(__CUDACC__)
#define COPSE_TILE_UNROLL _Pragma("unroll")
#define COPSE_NOINLINE __noinline__
#else
#define COPSE_TILE_UNROLL
#define COPSE_NOINLINE __attribute__((noinline))
#endif

/* The vectors first, first + step, ... of a move; of the one numbered `full`, which is the
 * last, only `rest` bytes. */
struct copse_tile {
  uint64_t first, full;
  uint32_t step, rest;
  uint64_t offset; /* bytes from the operands' start to vector 0 */
};
#define COPSE_TILE_SIZE(T, tile) COPSE_TILE_LANES(T)
#define COPSE_TILE_IS_FULL(T, tile) true
#define COPSE_TILE_FULL(T, tile) (tile)
#define COPSE_TILE_IN(T, place, tile, part) (part)
#define COPSE_TILE_OUT(T, place, tile, part) (part)

/* A thread's tiles: the elements before the first destination's next 16-byte address, then
 * the rest. */
struct copse_tiles {
  struct copse_tile tile;
  uint64_t bytes; /* from tile.offset on */
  uint64_t total;
  uint32_t thread, vectors;
};

__device__ static inline void copse_tiles_part(struct copse_tiles *tiles, uint64_t offset,
                                               uint64_t bytes) {
  tiles->tile.offset = offset;
  tiles->bytes = bytes;
  tiles->tile.first = tiles->thread;
  tiles->tile.full = bytes / COPSE_VECTOR_BYTES;
  tiles->tile.rest = (uint32_t)(bytes % COPSE_VECTOR_BYTES);
}

__device__ static inline struct copse_tiles copse_tiles_make(const struct copse_move *move,
                                                             uint32_t thread, uint32_t n_threads,
                                                             uint32_t element_bytes,
                                                             uint32_t vectors) {
  struct copse_tiles tiles;
  tiles.thread = thread;
  tiles.vectors = vectors;
  tiles.total = move->count * element_bytes;
  tiles.tile.step = n_threads;
  /* packets need none: they and what is cut with them start at 16 bytes of the chunk */
  bool packets = false;
  for (uint32_t k = 0; k < move->n_src; k++) packets = packets || move->src[k].epoch != 0;
  for (uint32_t k = 0; k < move->n_dst; k++) packets = packets || move->dst[k].epoch != 0;
  uint64_t head = (0 - (uint64_t)(uintptr_t)move->dst[0].at) & (COPSE_VECTOR_BYTES - 1);
  if (packets) head = 0;
  copse_tiles_part(&tiles, 0, head < tiles.total ? head : tiles.total);
  return tiles;
}

__device__ static inline struct copse_tiles copse_tiles_of(const struct copse_move *move,
                                                           uint32_t thread, uint32_t n_threads,
                                                           uint32_t element_bytes) {
  return copse_tiles_make(move, thread, n_threads, element_bytes, COPSE_VECTORS);
}

__device__ static inline bool copse_tiles_next(struct copse_tiles *tiles,
                                               struct copse_tile *tile) {
  for (;;) {
    uint64_t n = tiles->tile.full + (tiles->tile.rest != 0);
    if (tiles->tile.first < n) {
      *tile = tiles->tile;
      tiles->tile.first += (uint64_t)tiles->vectors * tiles->tile.step;
      return true;
    }
    uint64_t end = tiles->tile.offset + tiles->bytes;
    if (end == tiles->total) return false;
    copse_tiles_part(tiles, end, tiles->total - end);
  }
}

/* ---- one vector ---------------------------------------------------------------------------- */

struct alignas(COPSE_VECTOR_BYTES) copse_vector {
  uint32_t word[4];
};

template <typename T>
__device__ static inline copse_vector copse_vector_gather(const unsigned char *at) {
  copse_vector v;
  T lane[COPSE_VECTOR_BYTES / sizeof(T)];
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < COPSE_VECTOR_BYTES / sizeof(T); i++)
    lane[i] = reinterpret_cast<const T *>(at)[i];
  memcpy(&v, lane, sizeof v);
  return v;
}

template <typename T>
__device__ static inline void copse_vector_scatter(unsigned char *at, copse_vector v) {
  T lane[COPSE_VECTOR_BYTES / sizeof(T)];
  memcpy(lane, &v, sizeof v);
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < COPSE_VECTOR_BYTES / sizeof(T); i++)
    reinterpret_cast<T *>(at)[i] = lane[i];
}

/* Whether an operand's vectors lie at 16 bytes; all of one do, or none. */
__device__ static inline bool copse_is_aligned(const unsigned char *at) {
  return (uint32_t)(uintptr_t)at % COPSE_VECTOR_BYTES == 0;
}

/*
 * The vectors that are no plain 16 bytes: misaligned, cut off, or packets. Functions of their
 * own, since inlined into every loop they would make the kernels several times as large.
 */
__device__ static COPSE_NOINLINE copse_vector copse_vector_load_uneven(const unsigned char *at) {
  uint32_t low = (uint32_t)(uintptr_t)at;
  if (low % 8 == 0) return copse_vector_gather<uint64_t>(at);
  if (low % 4 == 0) return copse_vector_gather<uint32_t>(at);
  if (low % 2 == 0) return copse_vector_gather<uint16_t>(at);
  return copse_vector_gather<uint8_t>(at);
}

__device__ static COPSE_NOINLINE void copse_vector_store_uneven(unsigned char *at,
                                                                copse_vector v) {
  uint32_t low = (uint32_t)(uintptr_t)at;
  if (low % 8 == 0)
    copse_vector_scatter<uint64_t>(at, v);
  else if (low % 4 == 0)
    copse_vector_scatter<uint32_t>(at, v);
  else if (low % 2 == 0)
    copse_vector_scatter<uint16_t>(at, v);
  else
    copse_vector_scatter<uint8_t>(at, v);
}

union copse_vector_parts {
  copse_vector v;
  uint8_t byte[COPSE_VECTOR_BYTES];
  uint16_t half[COPSE_VECTOR_BYTES / 2];
};

/* The first `bytes` bytes of a vector, element by element; width: of an element, or a part. */
__device__ static COPSE_NOINLINE copse_vector copse_vector_load_rest(const unsigned char *at,
                                                                     uint32_t bytes,
                                                                     uint32_t width) {
  union copse_vector_parts u;
  u.v = copse_vector{{0, 0, 0, 0}};
  if (width == 1)
    for (uint32_t i = 0; i < bytes; i++) u.byte[i] = at[i];
  else if (width == 2)
    for (uint32_t i = 0; i < bytes / 2; i++)
      u.half[i] = reinterpret_cast<const uint16_t *>(at)[i];
  else
    for (uint32_t i = 0; i < bytes / 4; i++)
      u.v.word[i] = reinterpret_cast<const uint32_t *>(at)[i];
  return u.v;
}

__device__ static COPSE_NOINLINE void copse_vector_store_rest(unsigned char *at, copse_vector v,
                                                              uint32_t bytes, uint32_t width) {
  union copse_vector_parts u;
  u.v = v;
  if (width == 1)
    for (uint32_t i = 0; i < bytes; i++) at[i] = u.byte[i];
  else if (width == 2)
    for (uint32_t i = 0; i < bytes / 2; i++) reinterpret_cast<uint16_t *>(at)[i] = u.half[i];
  else
    for (uint32_t i = 0; i < bytes / 4; i++)
      reinterpret_cast<uint32_t *>(at)[i] = u.v.word[i];
}

/* ---- packets: a vector's four words lie in four packets ------------------------------------ */

struct copse_received {
  copse_vector v;
  bool ok; /* false: lost patience */
};

__device__ static COPSE_NOINLINE copse_received
copse_vector_receive(const struct copse_patience *patience, const struct copse_place *place,
                     uint64_t index) {
  uint64_t *packets = reinterpret_cast<uint64_t *>(place->at) + 4 * index;
  struct copse_wait wait = {0, 0};
  struct copse_received got;
  for (;;) {
    uint64_t packet[4];
    got.ok = true;
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < 4; i++) packet[i] = copse_packet_load(&packets[i]);
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
      got.ok = got.ok && (uint32_t)(packet[i] >> 32) == place->epoch;
      got.v.word[i] = (uint32_t)packet[i];
    }
    if (got.ok || !copse_keep_waiting(patience, &wait)) return got;
  }
}

__device__ static COPSE_NOINLINE void copse_vector_send(const struct copse_place *place,
                                                        uint64_t index, copse_vector v) {
  uint64_t *packets = reinterpret_cast<uint64_t *>(place->at) + 4 * index;
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < 4; i++)
    copse_packet_store(&packets[i], copse_packet_of(v.word[i], place->epoch));
}

/* ---- tiles ------------------------------------------------------------------------------------ */

/* Vectors of one operand. The first case is the one that bandwidth comes from: loads that
 * don't depend on each other. */
template <uint32_t N>
__device__ static inline bool copse_vectors_read(const struct copse_move *move,
                                                 const struct copse_place *place,
                                                 const struct copse_tile &tile,
                                                 uint32_t element_bytes, copse_vector (&v)[N]) {
  const unsigned char *base = place->at + tile.offset;
  const bool plain = place->epoch == 0, aligned = copse_is_aligned(base);
  bool ok = true;
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    const unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    v[u] = copse_vector{{0, 0, 0, 0}};
    if (plain && aligned && index < tile.full)
      v[u] = *reinterpret_cast<const copse_vector *>(at);
  }
  if (plain && aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) return true;
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    const unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (index > tile.full || (index == tile.full && tile.rest == 0)) continue;
    if (!plain) {
      struct copse_received got = copse_vector_receive(move->patience, place, index);
      v[u] = got.v;
      ok = ok && got.ok;
    } else if (index == tile.full) {
      v[u] = copse_vector_load_rest(at, tile.rest, element_bytes);
    } else if (!aligned) {
      v[u] = copse_vector_load_uneven(at);
    }
  }
  return ok;
}

template <uint32_t N>
__device__ static inline void copse_vectors_write(const struct copse_place *place,
                                                  const struct copse_tile &tile,
                                                  uint32_t element_bytes,
                                                  const copse_vector (&v)[N]) {
  unsigned char *base = place->at + tile.offset;
  const bool plain = place->epoch == 0, aligned = copse_is_aligned(base);
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (plain && aligned && index < tile.full) *reinterpret_cast<copse_vector *>(at) = v[u];
  }
  if (plain && aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) return;
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (index > tile.full || (index == tile.full && tile.rest == 0)) continue;
    if (!plain)
      copse_vector_send(place, index, v[u]);
    else if (index == tile.full)
      copse_vector_store_rest(at, v[u], tile.rest, element_bytes);
    else if (!aligned)
      copse_vector_store_uneven(at, v[u]);
  }
}

template <typename T, uint32_t LANES>
__device__ static __forceinline__ bool copse_tile_read(const struct copse_move *move,
                                                       const struct copse_place *place,
                                                       const struct copse_tile &tile,
                                                       T (&part)[LANES], uint32_t element_bytes) {
  copse_vector v[COPSE_VECTORS];
  static_assert(sizeof v == sizeof part, "a tile is its vectors");
  bool ok = copse_vectors_read<COPSE_VECTORS>(move, place, tile, element_bytes, v);
  memcpy(part, v, sizeof v);
  return ok;
}

template <typename T, uint32_t LANES>
__device__ static __forceinline__ void copse_tile_write(const struct copse_place *place,
                                                        const struct copse_tile &tile,
                                                        const T (&part)[LANES],
                                                        uint32_t element_bytes) {
  copse_vector v[COPSE_VECTORS];
  memcpy(v, part, sizeof v);
  copse_vectors_write<COPSE_VECTORS>(place, tile, element_bytes, v);
}

__device__ static COPSE_NOINLINE bool copse_move_copy(const struct copse_move *move,
                                              uint32_t element_bytes, uint32_t thread,
                                              uint32_t n_threads) {
  struct copse_tiles tiles =
      copse_tiles_make(move, thread, n_threads, element_bytes, COPSE_COPY_VECTORS);
  struct copse_tile tile;
  while (copse_tiles_next(&tiles, &tile)) {
    copse_vector v[COPSE_COPY_VECTORS];
    if (!copse_vectors_read<COPSE_COPY_VECTORS>(move, &move->src[0], tile, element_bytes, v))
      return false;
    for (uint32_t k = 0; k < move->n_dst; k++)
      copse_vectors_write<COPSE_COPY_VECTORS>(&move->dst[k], tile, element_bytes, v);
  }
  return true;
}

#endif
