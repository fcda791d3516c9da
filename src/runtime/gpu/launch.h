/*
 * Inside src/runtime/cuda only: what host and kernel hand each other. Plain data; C++ and
 * CUDA C++.
 */
#ifndef COPSE_RUNTIME_GPU_LAUNCH_H
#define COPSE_RUNTIME_GPU_LAUNCH_H

#include <stdint.h>

#include "runtime/plan/plan_abi.h"
#include "runtime/plan/plan_math.h"

/* Ranks of a plan; their addresses travel as a kernel's argument, which has 4 KB. */
#define COPSE_CUDA_MAX_RANKS 128u

/* Why a kernel leaves before its end. */
enum copse_leave {
  COPSE_LEAVE_NOT = 0,
  COPSE_LEAVE_ABORT = 1,
  COPSE_LEAVE_TIMEOUT = 2,
  COPSE_LEAVE_MESSAGES = 3, /* messages between hosts don't move, or NCCL has failed */
  COPSE_LEAVE_PEER = 4 /* and more: rank `leave - COPSE_LEAVE_PEER`, of another host, has left */
};

/*
 * In pinned host memory that the GPUs see: one per clique and process. The host sets `leave` to
 * end all kernels; a worker that has waited too long claims the report, fills it in and then sets
 * it too.
 */
struct copse_control {
  uint32_t leave; /* enum copse_leave */
  uint32_t claimed;
  uint32_t plan, worker, op, chunk; /* where it waited: the plan's number, the plan's worker */
  /* Over several hosts, for watch.cu: 1 + the plan's number from a call's begin to its end on the
   * stream, else 0; and the time at which the last kernel began. */
  uint64_t underway, moved;
};

/* A channel: its counter lies where it is waited on. */
struct copse_channel_place {
  uint32_t rank;    /* of the waiting worker */
  uint32_t ordinal; /* of the counter among the rank's */
};

/* A rank's memory for one plan, at the device that holds this. */
struct copse_rank_arena {
  unsigned char *scratch, *packets;
  uint64_t *signals; /* counters of the channels waited on there */
};

/* What a block does: one of the plan's workers. Its operands are among those from the first on,
 * as the operations name them. */
struct copse_block_work {
  uint32_t worker, rank;
  uint32_t first_op, n_ops;
  uint32_t first_operand, n_operands;
};

/* A plan on one device; all pointers are this device's. */
struct copse_device_plan {
  const struct copse_plan_op *ops;
  const struct copse_plan_operand *operands;
  const struct copse_plan_piece *pieces;
  const struct copse_plan_extent *extents; /* NULL: blocks are full */
  const struct copse_region_place *places;
  const struct copse_channel_place *channels;
  const struct copse_block_work *works; /* [gridDim.x] the plan's workers that run here */
  const struct copse_rank_arena *arenas; /* [n_ranks] */
  uint64_t *sent;   /* [n_channels] how often each was raised, by workers that run here */
  uint64_t *taken;  /* [n_channels] how often each was waited for */
  uint32_t *epochs; /* [n_workers] launches so far */
  /* With ranks of other hosts, NULL without: [n_ranks] the words that came from each at the end
   * of the last round, and at its own place what this rank sends: 0, or 1 when it has left. */
  uint32_t *words;
  uint32_t own_word;
  struct copse_control *control;
  uint64_t packets_copy;
  uint32_t n_ranks, fifo;
  uint32_t low_latency;
  uint32_t system; /* some rank is on another device or in another process */
  uint32_t number; /* of the plan, for reports */
};

/* A launch, passed by value. */
struct copse_launch_args {
  struct copse_device_plan plan;
  /* [gridDim.x] a round: from where to where each block runs. NULL: the whole plan. */
  const struct copse_cursor *from, *to;
  struct copse_shape shape;
  const uint64_t *pair_counts;
  const uint64_t *host_counts; /* the same where the host can read them, else NULL; for rounds */
  uint64_t pair_first;
  uint64_t limit_ns; /* patience */
  uint32_t type, redop;
  uint32_t ends; /* no round of these ranks' follows */
  struct copse_rank_buffers {
    unsigned char *input, *output;
  } buffers[COPSE_CUDA_MAX_RANKS]; /* of ranks in other processes only the output */
};

/* Of a block of an alltoall that came in a message: from a slot of an inbox to its place. */
struct copse_unpack_item {
  uint32_t region, piece, chunk;
  uint32_t block; /* of the output */
};
struct copse_unpack_args {
  const struct copse_unpack_item *items; /* [gridDim.x] */
  const struct copse_plan_piece *pieces;
  const struct copse_region_place *places;
  const uint64_t *pair_counts;
  uint64_t pair_first;
  unsigned char *scratch, *output; /* of the rank */
  struct copse_shape shape;
  uint32_t n_ranks;
};

/* From a staging buffer to where the caller wants it: of the block from each rank, elements
 * [first, first + count), as many as there are. Blocks lie `count` apart in from, `whole` in to. */
struct copse_unstage_args {
  unsigned char *from, *to;
  const uint64_t *pair_counts;
  uint64_t first, count, whole;
  uint32_t n_ranks, rank, element_bytes;
};

#endif
