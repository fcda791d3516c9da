/* Where a chunk lies: the arithmetic that every executor shares, in the common subset
 * of C11, C++17 and CUDA C++. All inputs come from a validated plan. */
#pragma once

#include "base/types.h"
#include "runtime/plan/plan_abi.h"

/* Elements from `first` on; a chunk or a piece within a block. */
struct copse_span {
  uint64_t first, count;
};

/* Returns floor(a * num / den), exact; 0 <= num <= den. */
COPSE_HD static inline uint64_t copse_fraction_of(uint64_t a, int64_t num, int64_t den) {
  /* 128-bit division takes a hundred times as long, above all on a GPU */
  if (a <= UINT32_MAX && num <= (int64_t)UINT32_MAX) return a * (uint64_t)num / (uint64_t)den;
  return (uint64_t)((unsigned __int128)a * (uint64_t)num / (uint64_t)den);
}

/* Rounds down to a unit, a power of two: no divisions, which cost more than all the rest here. */
COPSE_HD static inline uint64_t copse_round_down(uint64_t a, uint64_t unit) {
  return a & ~(unit - 1);
}
COPSE_HD static inline uint64_t copse_round_up(uint64_t a, uint64_t unit) {
  return copse_round_down(a + unit - 1, unit);
}

/* Returns the cut of a block of `count` elements at a fraction: aligned down, the end exact. */
COPSE_HD static inline uint64_t copse_cut(uint64_t count, int64_t num, int64_t den, uint32_t unit) {
  if (num >= den) return count;
  return copse_round_down(copse_fraction_of(count, num, den), unit);
}

/* Returns the span of a piece of a block that holds `there` elements. `unit`: elements of an
 * aligned part. */
COPSE_HD static inline struct copse_span copse_piece_span(const struct copse_plan_piece *piece,
                                                          uint64_t there, uint32_t unit) {
  struct copse_span span;
  span.first = copse_cut(there, piece->lo_num, piece->lo_den, unit);
  span.count = copse_cut(there, piece->hi_num, piece->hi_den, unit) - span.first;
  return span;
}

/* Returns part c of n of a span, its start aligned relative to the span's. */
COPSE_HD static inline struct copse_span copse_chunk_span(struct copse_span piece, uint32_t c,
                                                          uint32_t n, uint32_t unit) {
  struct copse_span chunk;
  if (n == 1) return piece; /* no divisions */
  uint64_t lo = copse_cut(piece.count, (int64_t)c, (int64_t)n, unit);
  uint64_t hi = copse_cut(piece.count, (int64_t)c + 1, (int64_t)n, unit);
  chunk.first = piece.first + lo;
  chunk.count = hi - lo;
  return chunk;
}

/* Returns which slot of a region chunk c uses. */
COPSE_HD static inline uint64_t copse_slot_of(uint32_t c, uint32_t fifo) { return c % fifo; }

/* Counts the elements from the start of an input or output to a chunk of its block `block`. stride:
 * from one block to the next. */
COPSE_HD static inline uint64_t copse_block_offset(uint32_t block, uint64_t stride,
                                                   struct copse_span chunk) {
  return block * stride + chunk.first;
}

/* ---- the shape of a launch ---------------------------------------------------------------
 * What follows from a message's size, in closed form: nothing is computed or uploaded per
 * region, so that a launch costs little and every rank finds the same numbers by itself. */

/* A region among those of its kind at its rank. Shares of a block in 1/2^32, rounded up. */
struct copse_region_place {
  uint64_t start;  /* bytes of all regions before it */
  uint64_t weight; /* its own */
  uint32_t ordinal;
  uint32_t zero;
};

struct copse_shape {
  uint64_t count;                       /* elements of a block */
  uint64_t input_stride, output_stride; /* elements from one block to the next: count, but for a
                                           part of a larger message */
  uint64_t chunk_base;                  /* count / n_chunks + 1 */
  uint32_t element_bytes;
  uint32_t unit;     /* elements that cuts are multiples of: copse_align_bytes */
  uint32_t n_chunks; /* that every piece is cut into */
  uint32_t fifo;
};

/* Returns the part of a piece that is chunk c of the launch. */
COPSE_HD static inline struct copse_span copse_shape_chunk(const struct copse_shape *shape,
                                                           struct copse_span piece, uint32_t c) {
  return copse_chunk_span(piece, c, shape->n_chunks, shape->unit);
}

/* Returns floor(a * share), for a share in 1/2^32. */
COPSE_HD static inline uint64_t copse_share_of(uint64_t a, uint64_t share) {
  return (uint64_t)((unsigned __int128)a * share >> 32);
}

/* Units that a region may have beyond its exact share: chunks are cut at units, and shares are
 * rounded. See copse_slot_elements and copse_region_start. */
#define COPSE_SLOT_SLACK 4u
#define COPSE_REGION_SLACK 8u

/* Counts the elements that one slot of a region holds. No chunk is larger: with P <= weight * count
 * + unit elements in the piece one of n chunks has at most P / n + 1 + unit, and
 * share_of(chunk_base, weight) is at least weight * count / n - 1. */
COPSE_HD static inline uint64_t copse_slot_elements(const struct copse_shape *shape,
                                                    const struct copse_region_place *place) {
  return copse_round_up(copse_share_of(shape->chunk_base, place->weight), shape->unit) +
         COPSE_SLOT_SLACK * shape->unit;
}

/* Returns where the slots of a region start, in elements of one slot's row: `start` and `ordinal`
 * as in struct copse_region_place, or the totals of a rank for the end of its last region. Regions
 * don't overlap: from one to the next it is at least share_of(base, weight) + 7 units. */
COPSE_HD static inline uint64_t copse_region_start(const struct copse_shape *shape, uint64_t start,
                                                   uint32_t ordinal) {
  return copse_round_up(copse_share_of(shape->chunk_base, start), shape->unit) +
         (uint64_t)ordinal * COPSE_REGION_SLACK * shape->unit;
}

/* Counts the chunks of a launch whose largest piece has `bytes` bytes; at least 1. */
COPSE_HD static inline uint32_t copse_chunk_count(const struct copse_plan_header *header,
                                                  uint64_t bytes) {
  if (header->protocol == COPSE_PROTOCOL_LOW_LATENCY) return 1;
  uint64_t fewest = (bytes + header->chunk_bytes - 1) / header->chunk_bytes;
  uint64_t wanted = (bytes + header->min_chunk_bytes - 1) / header->min_chunk_bytes;
  if (wanted > header->pipeline_chunks) wanted = header->pipeline_chunks;
  if (wanted > fewest) fewest = wanted;
  if (fewest < 1) fewest = 1;
  return fewest > (1u << 30) ? 1u << 30 : (uint32_t)fewest;
}

/* Returns what cuts are multiples of in a launch whose largest piece has `bytes` bytes. */
COPSE_HD static inline uint32_t copse_align_bytes(const struct copse_plan_header *header,
                                                  uint64_t bytes) {
  return header->protocol == COPSE_PROTOCOL_BANDWIDTH && bytes >= COPSE_PLAN_WIDE_PIECE_BYTES
             ? COPSE_PLAN_WIDE_ALIGN_BYTES
             : COPSE_PLAN_ALIGN_BYTES;
}

/* Where a worker stands: before this operation of its list, for this chunk. */
struct copse_cursor {
  uint32_t chunk, op;
};

/* Whether an operation runs for chunk c of n. */
COPSE_HD static inline int copse_op_runs(uint8_t when, uint32_t c, uint32_t n, uint32_t fifo) {
  switch (when) {
    case COPSE_WHEN_FIRST: return c == 0;
    case COPSE_WHEN_AFTER_FIFO: return c >= fifo;
    case COPSE_WHEN_BEFORE_FIFO: return (uint64_t)c + fifo < n;
    case COPSE_WHEN_LAST: return c + 1 == n;
    default: return 1;
  }
}
