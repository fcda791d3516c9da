/*
 * The layout of a launch: how many chunks, where each piece lies in a block, and where
 * each region lies in its rank's scratch. Depends on the plan, the count and the element
 * size; the executors compute it once per launch.
 */
#ifndef COPSE_RUNTIME_LAYOUT_H
#define COPSE_RUNTIME_LAYOUT_H

#include <stdint.h>

#include "base/err.h"
#include "runtime/plan.h"
#include "runtime/plan_math.h"

/* A buffer may have this many bytes; keeps all arithmetic on sizes from overflowing. */
#define COPSE_BUFFER_MAX_BYTES ((uint64_t)1 << 48)

struct copse_layout {
  const struct copse_plan *plan;
  uint64_t count; /* elements of a block */
  uint32_t element_bytes;
  uint32_t unit; /* elements in COPSE_PLAN_ALIGN_BYTES */
  uint32_t n_chunks;
  struct copse_span *pieces; /* [n_pieces] within a block, in elements */
  uint64_t *region_offsets;  /* [n_regions] bytes from the start of the rank's scratch */
  uint64_t *slot_bytes;      /* [n_regions] */
  uint64_t *scratch_bytes;   /* [n_ranks] */
  uint64_t total_scratch;    /* over all ranks */
};

/* Allocates for `plan`, which is borrowed; copse_layout_set must follow. */
copse_status copse_layout_new(const struct copse_plan *plan, struct copse_layout *layout,
                              struct copse_err *err) COPSE_CHECKED;
/* COPSE_INVALID where buffers or scratch would exceed COPSE_BUFFER_MAX_BYTES. */
copse_status copse_layout_set(struct copse_layout *layout, uint64_t count, uint32_t element_bytes,
                              struct copse_err *err) COPSE_CHECKED;
void copse_layout_free(struct copse_layout *layout);

/* The part of piece `piece` that is chunk c. */
static inline struct copse_span copse_layout_chunk(const struct copse_layout *layout,
                                                   uint32_t piece, uint32_t c) {
  return copse_chunk_span(layout->pieces[piece], c, layout->n_chunks, layout->unit);
}

/* Bytes from the start of the operand's buffer to its part for `chunk`, the c-th. */
static inline uint64_t copse_layout_offset(const struct copse_layout *layout,
                                           const struct copse_plan_operand *operand,
                                           struct copse_span chunk, uint32_t c) {
  if (operand->buffer == COPSE_BUFFER_SCRATCH)
    return layout->region_offsets[operand->index] +
           copse_slot_of(c, layout->plan->header.fifo) * layout->slot_bytes[operand->index];
  return copse_block_offset(operand->index, layout->count, chunk) * layout->element_bytes;
}

#endif
