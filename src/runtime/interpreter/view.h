/* What an operation of a plan means for one launch: which elements, where they lie. Every
 * executor, on the CPU and on the GPU, asks here. In the common subset of C11, C++17 and CUDA
 * C++; all inputs come from a validated plan. */
#pragma once

#include "copse/types.h"
#include "runtime/interpreter/element_move.h"
#include "runtime/plan/plan_abi.h"
#include "runtime/plan/plan_math.h"

/* A rank's memory as the backend that holds this view addresses it. */
struct copse_rank_memory {
  unsigned char *input, *output;
  unsigned char *scratch; /* regions of slots */
  unsigned char *packets; /* regions of packets, two copies */
};

/* One launch of a plan; plain data that is copied to a GPU. */
struct copse_view {
  const struct copse_plan_op *ops;
  const struct copse_plan_operand *operands;
  const struct copse_plan_piece *pieces;
  const struct copse_plan_extent *extents; /* NULL: blocks are full */
  const struct copse_region_place *places; /* [n_regions] */
  const struct copse_rank_memory *ranks;   /* [n_ranks] */
  const uint64_t *pair_counts;             /* [n_ranks * n_ranks] alltoall; NULL: full */
  uint64_t pair_first;                     /* elements of each block that came in earlier parts */
  uint64_t packets_copy;                   /* bytes from the even launches' copy to the odd ones' */
  struct copse_shape shape;
  uint32_t n_ranks;
  copse_type type;
  copse_redop redop;
};

/* Counts, of the first `there` elements of something, those in [first, first + count). */
COPSE_HD static inline uint64_t copse_part_of(uint64_t there, uint64_t first, uint64_t count) {
  uint64_t left = there > first ? there - first : 0;
  return left < count ? left : count;
}

/* Counts the elements that the block which a piece belongs to holds. */
COPSE_HD static inline uint64_t copse_view_there(const struct copse_view *view, uint32_t pair) {
  uint64_t count = view->shape.count;
  if (pair == 0) return count;
  if (view->pair_counts) return copse_part_of(view->pair_counts[pair - 1], view->pair_first, count);
  if (!view->extents) return count;
  return copse_fraction_of(count, view->extents[pair - 1].num, view->extents[pair - 1].den);
}

COPSE_HD static inline struct copse_span copse_view_piece(const struct copse_view *view,
                                                          uint32_t piece) {
  const struct copse_plan_piece *it = &view->pieces[piece];
  return copse_piece_span(it, copse_view_there(view, it->pair), view->shape.unit);
}

/* Returns the part of a piece that is chunk c. */
COPSE_HD static inline struct copse_span copse_view_chunk(const struct copse_view *view,
                                                          uint32_t piece, uint32_t c) {
  return copse_shape_chunk(&view->shape, copse_view_piece(view, piece), c);
}

/* Returns the bytes from the start of a rank's scratch to a region's slot for chunk c. */
COPSE_HD static inline uint64_t copse_view_slot(const struct copse_shape *shape,
                                                const struct copse_region_place *place,
                                                uint32_t c) {
  uint64_t row = copse_region_start(shape, place->start, place->ordinal) * shape->fifo;
  uint64_t slot = copse_slot_of(c, shape->fifo) * copse_slot_elements(shape, place);
  return (row + slot) * shape->element_bytes;
}

/* Returns the bytes from the start of a copy of a rank's packets to a region: a packet holds half
 * its size. */
COPSE_HD static inline uint64_t copse_view_packets(const struct copse_shape *shape,
                                                   const struct copse_region_place *place) {
  return 2 * copse_region_start(shape, place->start, place->ordinal) * shape->element_bytes;
}

/* What of an operand's place no chunk changes. */
struct copse_base {
  unsigned char *at;      /* of chunk 0's slot, of the packets, or of the block */
  uint64_t slot;          /* bytes from one slot to the next */
  uint32_t epoch, buffer; /* as in struct copse_place; enum copse_plan_buffer */
};

COPSE_HD static inline struct copse_base copse_view_base(const struct copse_view *view,
                                                         const struct copse_plan_operand *operand,
                                                         uint32_t epoch) {
  const struct copse_rank_memory *memory = &view->ranks[operand->rank];
  struct copse_base base = {0, 0, 0, operand->buffer};
  if (operand->buffer == COPSE_BUFFER_SCRATCH) {
    const struct copse_region_place *region = &view->places[operand->index];
    base.at = memory->scratch + copse_view_slot(&view->shape, region, 0);
    base.slot = copse_slot_elements(&view->shape, region) * view->shape.element_bytes;
  } else if (operand->buffer == COPSE_BUFFER_PACKETS) {
    base.at = memory->packets + (epoch & 1) * view->packets_copy +
              copse_view_packets(&view->shape, &view->places[operand->index]);
    base.epoch = epoch;
  } else {
    const struct copse_span none = {0, 0};
    bool input = operand->buffer == COPSE_BUFFER_INPUT;
    uint64_t stride = input ? view->shape.input_stride : view->shape.output_stride;
    base.at = (input ? memory->input : memory->output) +
              copse_block_offset(operand->index, stride, none) * view->shape.element_bytes;
  }
  return base;
}

/* Returns the place of its part for `chunk`, the c-th. */
COPSE_HD static inline struct copse_place copse_base_place(const struct copse_view *view,
                                                           const struct copse_base *base,
                                                           struct copse_span chunk, uint32_t c) {
  struct copse_place place = {base->at, base->epoch};
  if (base->buffer == COPSE_BUFFER_SCRATCH)
    place.at += copse_slot_of(c, view->shape.fifo) * base->slot;
  else if (base->buffer != COPSE_BUFFER_PACKETS)
    place.at += chunk.first * view->shape.element_bytes;
  return place;
}

/* Returns where an operand's part for `chunk`, the c-th of the launch number `epoch`, lies. */
COPSE_HD static inline struct copse_place copse_view_operand(
    const struct copse_view *view, const struct copse_plan_operand *operand,
    struct copse_span chunk, uint32_t c, uint32_t epoch) {
  const struct copse_base base = copse_view_base(view, operand, epoch);
  return copse_base_place(view, &base, chunk, c);
}

/* Launches are numbered from 1; 0 flags no packet. Even and odd ones take turns. A launch of no
 * elements sends no packets and has no number: in the launch between two that use the same copy
 * a chain of packets must lead from every rank to every other one. */
COPSE_HD static inline uint32_t copse_next_epoch(uint32_t epoch) {
  return epoch == UINT32_MAX ? 2 : epoch + 1;
}

/*
 * Whether numbers start again: flags of long ago would pass for new ones, since a small message
 * leaves the packets of a larger one before it as they are. So a rank clears its copy that a last
 * launch used, when it has left that launch and before it enters the next. Nobody writes there
 * then, for the same reason that nobody overwrites packets unread.
 */
COPSE_HD static inline bool copse_epoch_is_last(uint32_t epoch) { return epoch >= UINT32_MAX - 1; }

/* Returns what the result of a MOVE is divided by. */
COPSE_HD static inline uint32_t copse_view_divisor(const struct copse_view *view,
                                                   const struct copse_plan_op *op) {
  return view->redop == COPSE_AVG && (op->flags & COPSE_MOVE_FINAL) ? view->n_ranks : 1;
}
