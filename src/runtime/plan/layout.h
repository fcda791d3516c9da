/* What an executor computes of a plan: once, where each region lies among those of its rank;
 * for each size, the shape of a launch and the memory it takes. */
#pragma once

#include "base/memory.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_math.h"

/* A buffer may have this many bytes; keeps all arithmetic on sizes from overflowing. */
#define COPSE_BUFFER_MAX_BYTES ((uint64_t)1 << 48)

/* Of the regions of one kind at one rank: as in struct copse_region_place, the end of all. */
struct copse_region_end {
  uint64_t total;
  uint32_t n;
};

struct copse_layout {
  const struct copse_plan *plan;
  uint64_t largest;         /* of all pieces' shares of a block, in 1/2^32 */
  uint64_t chunk_bytes;     /* the plan's, or less (copse_layout_limit) */
  uint64_t min_chunk_bytes; /* the plan's, or more */
  bool flat; /* nothing is passed on, so that chunks would serve nothing: a launch is one */
  struct copse_region_place *places; /* [n_regions] */
  struct copse_region_end *slots;    /* [n_ranks] */
  struct copse_region_end *packets;  /* [n_ranks] */
  struct copse_arena arena;
};

/* Makes the layout for `plan`, which is borrowed. Free it also after a failure. */
copse_status copse_layout_new(const struct copse_plan *plan, struct copse_layout *layout,
                              struct copse_err *err) COPSE_CHECKED;
void copse_layout_free(struct copse_layout *layout);

/* Computes the shape of a launch of `count` elements a block. COPSE_INVALID where buffers or all
 * ranks' scratch would exceed COPSE_BUFFER_MAX_BYTES, or a plan of packets isn't meant for so
 * much. */
copse_status copse_layout_shape(const struct copse_layout *layout, uint64_t count,
                                uint32_t element_bytes, struct copse_shape *shape,
                                struct copse_err *err) COPSE_CHECKED;

/* Returns the bytes of all slots at a rank; copse_layout_packet_bytes those of one of the two
 * copies of its packets. */
uint64_t copse_layout_slot_bytes(const struct copse_layout *layout, const struct copse_shape *shape,
                                 uint32_t rank);
uint64_t copse_layout_packet_bytes(const struct copse_layout *layout,
                                   const struct copse_shape *shape, uint32_t rank);
/* Returns the bytes that are enough for any launch: chunks have a largest size, and packets a
 * largest message. */
uint64_t copse_layout_most_slot_bytes(const struct copse_layout *layout, uint32_t rank);
uint64_t copse_layout_most_packet_bytes(const struct copse_layout *layout, uint32_t rank);

/* Lowers chunk_bytes until all slots of each rank take no more than `bytes`: a launch has more
 * chunks then, for which the plan is proved too. COPSE_UNSUPPORTED where chunks would be too small.
 * The same at all ranks that give the same plan and limit. */
copse_status copse_layout_limit(struct copse_layout *layout, uint64_t bytes,
                                struct copse_err *err) COPSE_CHECKED;

/* Returns the bytes of the whole message as nccl-tests counts them; copse_plan_block_bytes those of
 * a block of such a message. */
uint64_t copse_plan_message_bytes(const struct copse_plan *plan, uint64_t block_bytes);
uint64_t copse_plan_block_bytes(const struct copse_plan *plan, uint64_t message_bytes);
