/*
 * Tiles of elements on a GPU, and with them one MOVE on elements of every type
 * (runtime/interpreter/element_move.h).
 *
 * A tile is a few 16-byte vectors of one thread, a block's width apart, so that a warp's accesses
 * are contiguous:
 *
 *   thread     0    1    2  ...  n-1    0    1    2  ...  n-1
 *   vector   | v0 | v0 | v0 |  | v0 | | v1 | v1 | v1 |  | v1 | ...
 *
 * All of a tile is read before the first vector is used, so that several loads are in flight.
 * Vectors that are not aligned to 16 bytes are read and written in smaller pieces, packets as four
 * words of 8 bytes.
 */
#pragma once

#include <cuda_runtime.h>

#include "runtime/gpu/sync.cuh"
#include "runtime/interpreter/element_move.h"

#define COPSE_VECTOR_BYTES 16u
#define COPSE_VECTORS 4u      /* of a tile that is reduced: its accumulators are registers */
#define COPSE_COPY_VECTORS 8u /* of a tile that is copied */

/* Small elements widen when they are summed: tiles have fewer vectors, so that registers hold them.
 */
#define COPSE_TILE_VECTORS(T) (sizeof(T) == 1 ? 2 : sizeof(T) == 2 ? 3 : COPSE_VECTORS)
#define COPSE_VECTOR_LANES(T) (COPSE_VECTOR_BYTES / (uint32_t)sizeof(T))
#define COPSE_TILE_LANES(T) (COPSE_TILE_VECTORS(T) * COPSE_VECTOR_LANES(T))
#if defined(__CUDACC__)
#define COPSE_TILE_UNROLL _Pragma("unroll")
#define COPSE_NOINLINE __noinline__ __attribute__((unused)) /* not every source uses all */
#else
#define COPSE_TILE_UNROLL
#define COPSE_NOINLINE __attribute__((noinline, unused))
#endif

/* The vectors first, first + step, ... of a move. The one numbered `full` is the last and has only
 * `rest` bytes. */
struct copse_tile {
  uint64_t first, full;
  uint32_t step, rest;
  uint64_t offset; /* bytes from the operands' start to vector 0 */
  bool packets;    /* some operand is packets; then the tile is one vector */
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
  /* packets need no head: all operands beside them are aligned to 16 bytes of the chunk */
  bool packets = false;
  for (uint32_t k = 0; k < move->n_src; k++) packets = packets || move->src[k].epoch != 0;
  for (uint32_t k = 0; k < move->n_dst; k++) packets = packets || move->dst[k].epoch != 0;
  tiles.thread = thread;
  tiles.vectors = packets ? 1 : vectors;
  tiles.total = move->count * element_bytes;
  tiles.tile.step = n_threads;
  tiles.tile.packets = packets;
  uint64_t head = (0 - (uint64_t)(uintptr_t)move->dst[0].at) & (COPSE_VECTOR_BYTES - 1);
  if (packets) head = 0;
  copse_tiles_part(&tiles, 0, head < tiles.total ? head : tiles.total);
  return tiles;
}

__device__ static inline struct copse_tiles copse_tiles_of(const struct copse_move *move,
                                                           uint32_t thread, uint32_t n_threads,
                                                           uint32_t element_bytes) {
  uint32_t vectors = element_bytes == 1   ? COPSE_TILE_VECTORS(uint8_t)
                     : element_bytes == 2 ? COPSE_TILE_VECTORS(uint16_t)
                                          : COPSE_TILE_VECTORS(uint32_t);
  return copse_tiles_make(move, thread, n_threads, element_bytes, vectors);
}

__device__ static inline bool copse_tiles_next(struct copse_tiles *tiles, struct copse_tile *tile) {
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

/* Whether an operand's vectors are aligned. All of one operand's are, or none. */
__device__ static inline bool copse_is_aligned(const unsigned char *at) {
  return (uint32_t)(uintptr_t)at % COPSE_VECTOR_BYTES == 0;
}

/* Loads a vector that is not 16 plain bytes: misaligned, cut off, or packets. Such functions are
 * never inlined, since in every loop they would make the kernels several times as large. */
__device__ static COPSE_NOINLINE copse_vector copse_vector_load_uneven(const unsigned char *at) {
  uint32_t low = (uint32_t)(uintptr_t)at;
  if (low % 8 == 0) return copse_vector_gather<uint64_t>(at);
  if (low % 4 == 0) return copse_vector_gather<uint32_t>(at);
  if (low % 2 == 0) return copse_vector_gather<uint16_t>(at);
  return copse_vector_gather<uint8_t>(at);
}

__device__ static COPSE_NOINLINE void copse_vector_store_uneven(unsigned char *at, copse_vector v) {
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

/* Loads the first `bytes` bytes of a vector element by element. width: bytes of an element, 4 at
 * most. */
__device__ static COPSE_NOINLINE copse_vector copse_vector_load_rest(const unsigned char *at,
                                                                     uint32_t bytes,
                                                                     uint32_t width) {
  union copse_vector_parts u;
  u.v = copse_vector{{0, 0, 0, 0}};
  if (width == 1)
    for (uint32_t i = 0; i < bytes; i++) u.byte[i] = at[i];
  else if (width == 2)
    for (uint32_t i = 0; i < bytes / 2; i++) u.half[i] = reinterpret_cast<const uint16_t *>(at)[i];
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
    for (uint32_t i = 0; i < bytes / 4; i++) reinterpret_cast<uint32_t *>(at)[i] = u.v.word[i];
}

/* ---- tiles of plain operands -------------------------------------------------------------- */

/* Reads one operand's vectors. Full, aligned vectors come first: loads that don't depend on each
 * other give the bandwidth. */
template <uint32_t N>
__device__ static inline void copse_vectors_read(const struct copse_place *place,
                                                 const struct copse_tile &tile,
                                                 uint32_t element_bytes, copse_vector (&v)[N]) {
  const unsigned char *base = place->at + tile.offset;
  const bool aligned = copse_is_aligned(base);
  if (aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) { /* most of them */
    const unsigned char *at = base + tile.first * COPSE_VECTOR_BYTES;
    const uint64_t step = (uint64_t)tile.step * COPSE_VECTOR_BYTES;
    COPSE_TILE_UNROLL
    for (uint32_t u = 0; u < N; u++) v[u] = *reinterpret_cast<const copse_vector *>(at + u * step);
    return;
  }
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    const unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    v[u] = copse_vector{{0, 0, 0, 0}};
    if (aligned && index < tile.full) v[u] = *reinterpret_cast<const copse_vector *>(at);
  }
  if (aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) return;
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    const unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (index == tile.full && tile.rest != 0)
      v[u] = copse_vector_load_rest(at, tile.rest, element_bytes);
    else if (index < tile.full && !aligned)
      v[u] = copse_vector_load_uneven(at);
  }
}

template <uint32_t N>
__device__ static inline void copse_vectors_write(const struct copse_place *place,
                                                  const struct copse_tile &tile,
                                                  uint32_t element_bytes,
                                                  const copse_vector (&v)[N]) {
  unsigned char *base = place->at + tile.offset;
  const bool aligned = copse_is_aligned(base);
  if (aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) {
    unsigned char *at = base + tile.first * COPSE_VECTOR_BYTES;
    const uint64_t step = (uint64_t)tile.step * COPSE_VECTOR_BYTES;
    COPSE_TILE_UNROLL
    for (uint32_t u = 0; u < N; u++) *reinterpret_cast<copse_vector *>(at + u * step) = v[u];
    return;
  }
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (aligned && index < tile.full) *reinterpret_cast<copse_vector *>(at) = v[u];
  }
  if (aligned && tile.first + (uint64_t)(N - 1) * tile.step < tile.full) return;
  COPSE_TILE_UNROLL
  for (uint32_t u = 0; u < N; u++) {
    uint64_t index = tile.first + (uint64_t)u * tile.step;
    unsigned char *at = base + index * COPSE_VECTOR_BYTES;
    if (index == tile.full && tile.rest != 0)
      copse_vector_store_rest(at, v[u], tile.rest, element_bytes);
    else if (index < tile.full && !aligned)
      copse_vector_store_uneven(at, v[u]);
  }
}

/* ---- tiles with packets ------------------------------------------------------------------- */

/* Returns the four packets that hold a vector's four words. */
__device__ static inline uint64_t *copse_packets_of(const struct copse_place *place,
                                                    uint64_t vector) {
  return reinterpret_cast<uint64_t *>(place->at) + 4 * vector;
}

__device__ static inline bool copse_vector_open(const struct copse_packets (&pair)[2],
                                                uint32_t epoch, copse_vector *v) {
  bool ok = true;
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    uint64_t packet = pair[i / 2].packet[i % 2];
    ok = ok && (uint32_t)(packet >> 32) == epoch;
    v->word[i] = (uint32_t)packet;
  }
  return ok;
}

/* Reads the same vector of up to COPSE_VECTORS sources. Polls all sources that are packets at once,
 * since every poll takes long. False where a packet didn't come within the time limit. */
__device__ static COPSE_NOINLINE bool copse_sources_receive(const struct copse_move *move,
                                                            uint32_t first, uint32_t n,
                                                            const struct copse_tile *tile,
                                                            uint32_t element_bytes,
                                                            copse_vector *v) {
  const struct copse_place *src = move->src + first;
  struct copse_tile one = *tile;
  struct copse_wait wait = {0, 0};
  uint32_t missing = 0;
  for (uint32_t s = 0; s < n; s++) missing |= (uint32_t)(src[s].epoch != 0) << s;
  for (bool plain = true; plain || missing; plain = false) {
    struct copse_packets pairs[COPSE_VECTORS][2];
    COPSE_TILE_UNROLL
    for (uint32_t s = 0; s < COPSE_VECTORS; s++)
      for (uint32_t i = 0; i < 2 && (missing >> s & 1); i++)
        pairs[s][i] = copse_packets_load(copse_packets_of(&src[s], tile->first) + 2 * i);
    for (uint32_t s = 0; s < n && plain; s++) {
      copse_vector own[1];
      if (src[s].epoch != 0) continue;
      copse_vectors_read<1>(&src[s], one, element_bytes, own);
      v[s] = own[0];
    }
    COPSE_TILE_UNROLL
    for (uint32_t s = 0; s < COPSE_VECTORS; s++)
      if ((missing >> s & 1) && copse_vector_open(pairs[s], src[s].epoch, &v[s]))
        missing &= ~(1u << s);
    if (missing && !copse_keep_waiting(move->timeout, &wait)) return false;
  }
  return true;
}

__device__ static COPSE_NOINLINE void copse_vector_send(const struct copse_move *move,
                                                        const struct copse_tile *tile,
                                                        uint32_t element_bytes, copse_vector v) {
  const copse_vector vectors[1] = {v};
  for (uint32_t k = 0; k < move->n_dst; k++) {
    const struct copse_place *dst = &move->dst[k];
    uint64_t *packets = copse_packets_of(dst, tile->first);
    if (dst->epoch == 0) {
      copse_vectors_write<1>(dst, *tile, element_bytes, vectors);
      continue;
    }
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
      const struct copse_packets pair = {{copse_packet_of(v.word[2 * i], dst->epoch),
                                          copse_packet_of(v.word[2 * i + 1], dst->epoch)}};
      copse_packets_store(packets + 2 * i, pair);
    }
  }
}

/* ---- what element_move_op.h needs ------------------------------------------------------------ */

template <typename T, uint32_t LANES>
__device__ static __forceinline__ bool copse_tile_read(const struct copse_move *,
                                                       const struct copse_place *place,
                                                       const struct copse_tile &tile,
                                                       T (&part)[LANES], uint32_t element_bytes) {
  copse_vector v[COPSE_TILE_VECTORS(T)];
  static_assert(sizeof v == sizeof part, "a tile is its vectors");
  copse_vectors_read<COPSE_TILE_VECTORS(T)>(place, tile, element_bytes, v);
  memcpy(part, v, sizeof v);
  return true;
}

template <typename T, uint32_t LANES>
__device__ static __forceinline__ void copse_tile_write(const struct copse_place *place,
                                                        const struct copse_tile &tile,
                                                        const T (&part)[LANES],
                                                        uint32_t element_bytes) {
  copse_vector v[COPSE_TILE_VECTORS(T)];
  memcpy(v, part, sizeof v);
  copse_vectors_write<COPSE_TILE_VECTORS(T)>(place, tile, element_bytes, v);
}

/* With packets a tile is one vector, and several sources are read at once. */
#define COPSE_TILE_SOURCES COPSE_VECTORS
template <typename T, uint32_t LANES>
__device__ static __forceinline__ bool copse_sources_read(const struct copse_move *move,
                                                          uint32_t first, uint32_t n,
                                                          const struct copse_tile &tile,
                                                          T (&parts)[LANES]) {
  copse_vector v[COPSE_VECTORS];
  static_assert(sizeof v == sizeof parts, "a vector of each source");
  bool ok = copse_sources_receive(move, first, n, &tile, sizeof(T), v);
  memcpy(parts, v, sizeof v);
  return ok;
}

template <typename T, uint32_t LANES>
__device__ static __forceinline__ void copse_destinations_write(const struct copse_move *move,
                                                                const struct copse_tile &tile,
                                                                const T (&part)[LANES]) {
  copse_vector v;
  static_assert(sizeof v == sizeof part, "one vector");
  memcpy(&v, part, sizeof v);
  copse_vector_send(move, &tile, sizeof(T), v);
}

__device__ static COPSE_NOINLINE bool copse_move_copy_packets(const struct copse_move *move,
                                                              uint32_t element_bytes,
                                                              struct copse_tiles tiles) {
  struct copse_tile tile;
  while (copse_tiles_next(&tiles, &tile)) {
    copse_vector v[COPSE_VECTORS];
    if (!copse_sources_receive(move, 0, 1, &tile, element_bytes, v)) return false;
    copse_vector_send(move, &tile, element_bytes, v[0]);
  }
  return true;
}

__device__ static COPSE_NOINLINE bool copse_move_copy(const struct copse_move *move,
                                                      uint32_t element_bytes, uint32_t thread,
                                                      uint32_t n_threads) {
  struct copse_tiles tiles =
      copse_tiles_make(move, thread, n_threads, element_bytes, COPSE_COPY_VECTORS);
  struct copse_tile tile;
  if (tiles.tile.packets) return copse_move_copy_packets(move, element_bytes, tiles);
  while (copse_tiles_next(&tiles, &tile)) {
    copse_vector v[COPSE_COPY_VECTORS];
    copse_vectors_read<COPSE_COPY_VECTORS>(&move->src[0], tile, element_bytes, v);
    for (uint32_t k = 0; k < move->n_dst; k++)
      copse_vectors_write<COPSE_COPY_VECTORS>(&move->dst[k], tile, element_bytes, v);
  }
  return true;
}

#include "runtime/interpreter/element_move_types.h"

/* ---- by a switch that adds and copies -------------------------------------------------------
 * A vector of 16 bytes at an address of a group: the switch adds up all members' and gives the sum,
 * or stores to all. Slots have room behind a chunk (COPSE_SLOT_SLACK), so the last vector is whole
 * too.
 *
 * Switches have no products and no 8-bit integers, and fp8 only in code for one architecture
 * (sm_100a; PTX ISA, multimem.ld_reduce), of which there is none here. Minima and maxima of floats
 * treat NaN in another way than here, and an average would be rounded twice: not by the switch. */

/* X(type's name, type, T, fold, reduction, form of the access, instruction) */
#define COPSE_GROUP_FOLDS(X)                                                            \
  X(half, COPSE_HALF, uint16_t, sum, COPSE_SUM, FOUR, "add.acc::f32.v4.f16x2")          \
  X(bfloat16, COPSE_BFLOAT16, uint16_t, sum, COPSE_SUM, FOUR, "add.acc::f32.v4.bf16x2") \
  X(float, COPSE_FLOAT, float, sum, COPSE_SUM, FOUR, "add.v4.f32")                      \
  X(double, COPSE_DOUBLE, double, sum, COPSE_SUM, WIDE, "add.f64")                      \
  X(int32, COPSE_INT32, int32_t, sum, COPSE_SUM, WORDS, "add.s32")                      \
  X(int32, COPSE_INT32, int32_t, min, COPSE_MIN, WORDS, "min.s32")                      \
  X(int32, COPSE_INT32, int32_t, max, COPSE_MAX, WORDS, "max.s32")                      \
  X(uint32, COPSE_UINT32, uint32_t, sum, COPSE_SUM, WORDS, "add.u32")                   \
  X(uint32, COPSE_UINT32, uint32_t, min, COPSE_MIN, WORDS, "min.u32")                   \
  X(uint32, COPSE_UINT32, uint32_t, max, COPSE_MAX, WORDS, "max.u32")                   \
  X(int64, COPSE_INT64, int64_t, sum, COPSE_SUM, WIDE, "add.u64")                       \
  X(int64, COPSE_INT64, int64_t, min, COPSE_MIN, WIDE, "min.s64")                       \
  X(int64, COPSE_INT64, int64_t, max, COPSE_MAX, WIDE, "max.s64")                       \
  X(uint64, COPSE_UINT64, uint64_t, sum, COPSE_SUM, WIDE, "add.u64")                    \
  X(uint64, COPSE_UINT64, uint64_t, min, COPSE_MIN, WIDE, "min.u64")                    \
  X(uint64, COPSE_UINT64, uint64_t, max, COPSE_MAX, WIDE, "max.u64")

#if !defined(__CUDACC__) /* the same on CPU threads: members in their order */
#define COPSE_GROUP_LOADER(NAME, TYPE, T, FOLD, REDOP, FORM, INSTRUCTION)                        \
  static inline copse_vector copse_group_load_##NAME##_##FOLD(const unsigned char *at) {         \
    T part[COPSE_VECTOR_LANES(T)];                                                               \
    decltype(copse_##NAME##_load(T())) all[COPSE_VECTOR_LANES(T)] = {};                          \
    copse_vector v;                                                                              \
    for (unsigned k = 0; k < copse_emulated_members(at); k++) {                                  \
      memcpy(part, copse_emulated_member(at, k, sizeof part), sizeof part);                      \
      for (unsigned i = 0; i < COPSE_VECTOR_LANES(T); i++)                                       \
        all[i] = k == 0 ? copse_##NAME##_load(part[i])                                           \
                        : copse_##NAME##_##FOLD(all[i], copse_##NAME##_load(part[i]));           \
    }                                                                                            \
    for (unsigned i = 0; i < COPSE_VECTOR_LANES(T); i++) part[i] = copse_##NAME##_store(all[i]); \
    memcpy(&v, part, sizeof v);                                                                  \
    return v;                                                                                    \
  }
static inline void copse_group_store(unsigned char *at, copse_vector v) {
  for (unsigned k = 0; k < copse_emulated_members(at); k++)
    memcpy(copse_emulated_member(at, k, sizeof v), &v, sizeof v);
}
#elif __CUDA_ARCH__ >= 900
#define COPSE_MULTIMEM(INSTRUCTION) "multimem.ld_reduce.relaxed.sys.global." INSTRUCTION
#define COPSE_GROUP_FOUR(INSTRUCTION)                                               \
  asm volatile(COPSE_MULTIMEM(INSTRUCTION) " {%0, %1, %2, %3}, [%4];"               \
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) \
               : "l"(at)                                                            \
               : "memory")
#define COPSE_GROUP_WORDS(INSTRUCTION)                    \
  COPSE_TILE_UNROLL                                       \
  for (uint32_t i = 0; i < 4; i++)                        \
    asm volatile(COPSE_MULTIMEM(INSTRUCTION) " %0, [%1];" \
                 : "=r"(v.word[i])                        \
                 : "l"(at + 4 * i)                        \
                 : "memory")
#define COPSE_GROUP_WIDE(INSTRUCTION)                     \
  uint64_t wide[2];                                       \
  COPSE_TILE_UNROLL                                       \
  for (uint32_t i = 0; i < 2; i++)                        \
    asm volatile(COPSE_MULTIMEM(INSTRUCTION) " %0, [%1];" \
                 : "=l"(wide[i])                          \
                 : "l"(at + 8 * i)                        \
                 : "memory");                             \
  memcpy(&v, wide, sizeof v)
#define COPSE_GROUP_LOADER(NAME, TYPE, T, FOLD, REDOP, FORM, INSTRUCTION)          \
  __device__ static __forceinline__ copse_vector copse_group_load_##NAME##_##FOLD( \
      const unsigned char *at) {                                                   \
    copse_vector v;                                                                \
    COPSE_GROUP_##FORM(INSTRUCTION);                                               \
    return v;                                                                      \
  }
__device__ static __forceinline__ void copse_group_store(unsigned char *at, copse_vector v) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at),
               "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}
#endif

/* One MOVE from the slots of all ranks to slots of all, both by the group's addresses, aligned to
 * vectors, of elements of TYPE. False, and nothing was done, where the switch doesn't have the
 * reduction. A function of its own, as copse_move_copy is. Called by all threads of the block after
 * a barrier; a fence must follow (thread_state.aliased). */
#if defined(COPSE_GROUP_LOADER)
COPSE_GROUP_FOLDS(COPSE_GROUP_LOADER)

template <typename LOAD>
__device__ static __forceinline__ void copse_group_run(const unsigned char *src, unsigned char *dst,
                                                       uint64_t bytes, uint32_t thread,
                                                       uint32_t step, LOAD load) {
  const uint64_t n = (bytes + COPSE_VECTOR_BYTES - 1) / COPSE_VECTOR_BYTES;
  if (thread == 0) copse_group_fence(); /* for all, behind the barrier that the MOVE began with */
  __syncthreads();
  for (uint64_t first = thread; first < n; first += (uint64_t)COPSE_VECTORS * step) {
    copse_vector v[COPSE_VECTORS]; /* loads that are under way together */
    COPSE_TILE_UNROLL
    for (uint32_t u = 0; u < COPSE_VECTORS; u++) {
      uint64_t index = first + (uint64_t)u * step;
      v[u] = load(src + (index < n ? index : first) * COPSE_VECTOR_BYTES);
    }
    COPSE_TILE_UNROLL
    for (uint32_t u = 0; u < COPSE_VECTORS; u++) {
      uint64_t index = first + (uint64_t)u * step;
      if (index < n) copse_group_store(dst + index * COPSE_VECTOR_BYTES, v[u]);
    }
  }
}

template <copse_type OF>
__device__ static COPSE_NOINLINE bool copse_move_group(const struct copse_move *move,
                                                       const unsigned char *src, unsigned char *dst,
                                                       uint32_t thread, uint32_t n_threads) {
#define COPSE_GROUP_CASE(NAME, TYPE, T, FOLD, REDOP, FORM, INSTRUCTION)                  \
  if (OF == TYPE && move->redop == REDOP) {                                              \
    copse_group_run(src, dst, move->count * sizeof(T), thread, n_threads,                \
                    [](const unsigned char *at) {                                        \
                      return copse_group_load_##NAME##_##FOLD(at);                       \
                    });                                                                  \
    return true;                                                                         \
  }
  COPSE_GROUP_FOLDS(COPSE_GROUP_CASE)
  return false;
}
#else
template <copse_type OF>
__device__ static inline bool copse_move_group(const struct copse_move *, const unsigned char *,
                                               unsigned char *, uint32_t, uint32_t) {
  return false;
}
#endif
