/*
 * Where a chunk lies: the arithmetic that every executor shares, in the common subset
 * of C11, C++17 and CUDA C++. All inputs come from a validated plan.
 */
#ifndef COPSE_RUNTIME_PLAN_MATH_H
#define COPSE_RUNTIME_PLAN_MATH_H

#include "runtime/plan_abi.h"

#if defined(__CUDACC__)
#define COPSE_HD __host__ __device__
#else
#define COPSE_HD
#endif

/* Elements from `first` on; a chunk or a piece within a block. */
struct copse_span {
  uint64_t first, count;
};

/* floor(a * num / den), exact in 128 bits; 0 <= num <= den. */
COPSE_HD static inline uint64_t copse_fraction_of(uint64_t a, int64_t num, int64_t den) {
  return (uint64_t)((unsigned __int128)a * (uint64_t)num / (uint64_t)den);
}

/* The cut of a block of `count` elements at a fraction: aligned down, the end exact. */
COPSE_HD static inline uint64_t copse_cut(uint64_t count, int64_t num, int64_t den, uint32_t unit) {
  if (num >= den) return count;
  return copse_fraction_of(count, num, den) / unit * unit;
}

/* Elements that a block of `count` really has, for pieces of this extent. */
COPSE_HD static inline uint64_t copse_extent_count(const struct copse_plan_extent *extents,
                                                   uint32_t extent, uint64_t count) {
  if (extent == 0) return count;
  return copse_fraction_of(count, extents[extent - 1].num, extents[extent - 1].den);
}

/* `unit`: elements in COPSE_PLAN_ALIGN_BYTES; `extents` the plan's. */
COPSE_HD static inline struct copse_span copse_piece_span(const struct copse_plan_piece *piece,
                                                          const struct copse_plan_extent *extents,
                                                          uint64_t count, uint32_t unit) {
  struct copse_span span;
  uint64_t there = copse_extent_count(extents, piece->extent, count);
  span.first = copse_cut(there, piece->lo_num, piece->lo_den, unit);
  span.count = copse_cut(there, piece->hi_num, piece->hi_den, unit) - span.first;
  return span;
}

/* Part c of n of a span, its start aligned relative to the span's. */
COPSE_HD static inline struct copse_span copse_chunk_span(struct copse_span piece, uint32_t c,
                                                          uint32_t n, uint32_t unit) {
  struct copse_span chunk;
  uint64_t lo = copse_cut(piece.count, (int64_t)c, (int64_t)n, unit);
  uint64_t hi = copse_cut(piece.count, (int64_t)c + 1, (int64_t)n, unit);
  chunk.first = piece.first + lo;
  chunk.count = hi - lo;
  return chunk;
}

/* Elements that one slot of a region for this piece must hold: no chunk is larger. */
COPSE_HD static inline uint64_t copse_slot_elements(struct copse_span piece, uint32_t n,
                                                    uint32_t unit) {
  uint64_t even = piece.count / n + 1;
  return (even + 2 * (uint64_t)unit - 1) / unit * unit;
}

/* Which slot of a region chunk c uses. */
COPSE_HD static inline uint64_t copse_slot_of(uint32_t c, uint32_t fifo) { return c % fifo; }

/* Elements from the start of an input or output to a chunk of its block `block`. */
COPSE_HD static inline uint64_t copse_block_offset(uint32_t block, uint64_t count,
                                                   struct copse_span chunk) {
  return block * count + chunk.first;
}

/* Chunks of a launch whose largest piece has `bytes` bytes; at least 1. */
COPSE_HD static inline uint32_t copse_chunk_count(const struct copse_plan_header *header,
                                                  uint64_t bytes) {
  uint64_t fewest = (bytes + header->chunk_bytes - 1) / header->chunk_bytes;
  uint64_t wanted = (bytes + header->min_chunk_bytes - 1) / header->min_chunk_bytes;
  if (wanted > header->pipeline_chunks) wanted = header->pipeline_chunks;
  if (wanted > fewest) fewest = wanted;
  if (fewest < 1) fewest = 1;
  return fewest > (1u << 30) ? 1u << 30 : (uint32_t)fewest;
}

/* Whether an operation runs for chunk c of n. */
COPSE_HD static inline int copse_op_runs(uint8_t when, uint32_t c, uint32_t n, uint32_t fifo) {
  switch (when) {
    case COPSE_WHEN_FIRST: return c == 0;
    case COPSE_WHEN_AFTER_FIFO: return c >= fifo;
    case COPSE_WHEN_BEFORE_FIFO: return (uint64_t)c + fifo < n;
    default: return 1;
  }
}

#endif
