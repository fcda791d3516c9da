/* What the host passes to kernels, and the control block that they share. Plain data; C++ and CUDA
 * C++. All counts are of elements unless they say bytes. */
#pragma once

#include <stdint.h>

#include <stddef.h>

#include "runtime/plan/plan_abi.h"
#include "runtime/plan/plan_math.h"

/* Ranks of a plan. Their addresses are a kernel's argument, of which there are 4 KB. */
#define COPSE_CUDA_MAX_RANKS 128u

/* Why a kernel leaves before its end. */
enum copse_leave {
  COPSE_LEAVE_NOT = 0,
  COPSE_LEAVE_ABORT = 1,
  COPSE_LEAVE_TIMEOUT = 2,
  COPSE_LEAVE_MESSAGES = 3, /* messages between hosts don't move, or NCCL has failed */
  COPSE_LEAVE_PEER = 4 /* and more: rank `leave - COPSE_LEAVE_PEER`, of another host, has left */
};

/* In pinned host memory that the GPUs can address, one per communicator and process. The host sets
 * `leave` to end all kernels. A worker that has waited for too long claims the report, fills it in
 * and then sets `leave` too. */
struct copse_control {
  uint32_t leave; /* enum copse_leave */
  uint32_t claimed;
  uint32_t plan, worker, op, chunk; /* where it waited: the plan's number, the plan's worker */
  /* Over several hosts, for internode/messages.cu. underway: 1 + the number of the plan whose call
   * the stream is in, else 0. moved: when the last kernel began, in ns of the device's clock. */
  uint64_t underway, moved;
};

/* Where a channel's counter is: at the rank that waits on it. */
struct copse_channel_place {
  uint32_t rank;    /* of the waiting worker */
  uint32_t ordinal; /* of the counter among the rank's */
};

/* A rank's memory for one plan, as the device that holds this addresses it. */
struct copse_rank_segment {
  unsigned char *scratch, *packets;
  uint64_t *signals; /* counters of the channels waited on there */
};

/* The worker that a block runs. Its operations name operands within [first_operand, first_operand +
 * n_operands). */
struct copse_block_work {
  uint32_t worker, rank;
  uint32_t first_op, n_ops;
  uint32_t first_operand, n_operands;
  uint32_t shared; /* whether two of its operations may name the same operand */
};

/* A plan on one device, as the device addresses it. n_blocks: the workers that run here. */
struct copse_device_plan {
  const struct copse_plan_op *ops;
  const struct copse_plan_operand *operands;
  const struct copse_plan_piece *pieces;
  const struct copse_plan_extent *extents; /* NULL: blocks are full */
  const struct copse_region_place *places;
  const struct copse_channel_place *channels;
  const struct copse_block_work *works;      /* [n_blocks] */
  const struct copse_rank_segment *segments; /* [n_segments] */
  unsigned char *group; /* all ranks' scratch, by the address at which a switch adds and copies;
                           NULL where the plan isn't multicast */
  uint64_t *sent;   /* [n_channels] signals so far, by workers that run here */
  uint64_t *taken;  /* [n_channels] waits so far, by workers that run here */
  uint32_t *epochs; /* [n_workers] launches so far */
  uint32_t *met;    /* [2] of copse_blocks_meet: the plan's own blocks; all of a launch */
  /* Status words, NULL where all ranks share a host: [n_ranks] those received from each rank at the
   * end of the last round, and at own_word what this rank sends: 0, or 1 when it has left. */
  uint32_t *words;
  uint32_t own_word;
  struct copse_control *control;
  uint64_t packets_copy;
  uint32_t n_ranks, fifo, n_blocks;
  uint32_t n_segments; /* n_ranks; or with their mirrors in host memory behind them, which operands
                          and channels name as ranks n_ranks and more (cuda_backend.h) */
  uint32_t low_latency;
  uint32_t system; /* some rank is on another device or in another process */
  uint32_t number; /* of the plan, for reports */
};

struct copse_rank_buffers {
  unsigned char *input, *output;
};

/* One call of a launch, but for its buffers. */
struct copse_call_args {
  struct copse_device_plan plan;
  /* [n_blocks] where each block begins and ends this round. NULL: the whole plan. */
  const struct copse_cursor *from, *to;
  struct copse_shape shape;
  const uint64_t *pair_counts;
  const uint64_t *host_counts; /* the same where the host can read them, else NULL; sizes messages
                                  between hosts */
  uint64_t pair_first;
  uint64_t limit_ns; /* of each wait */
  uint32_t type, redop;
  uint32_t ends; /* no later round of this launch runs these workers */
};

/* With them, by ranks; of those in other processes the output only. */
struct copse_launch_args : copse_call_args {
  struct copse_rank_buffers buffers[COPSE_CUDA_MAX_RANKS];
};

/* A kernel's argument, passed by value: the calls that it runs one after another, each with the
 * buffers of as many ranks as its plan has behind it. */
#define COPSE_CALLS_BYTES 4088u
struct copse_kernel_args {
  uint32_t n_calls, call_bytes; /* from one call to the next */
  uint64_t calls[COPSE_CALLS_BYTES / sizeof(uint64_t)];
};
static inline uint32_t copse_call_bytes(uint32_t n_ranks) {
  return (uint32_t)(sizeof(struct copse_call_args) + n_ranks * sizeof(struct copse_rank_buffers));
}

/* A chunk of an alltoall's block that a message brought: copied from an inbox's slot to its place.
 */
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

/* Copies elements [first, first + count) of each rank's block, as far as the block reaches, from a
 * staging buffer to the caller's. Blocks are `count` elements apart in from, `whole` in to. */
struct copse_unstage_args {
  unsigned char *from, *to;
  const uint64_t *pair_counts;
  uint64_t first, count, whole;
  uint32_t n_ranks, rank, element_bytes;
};
