/* Inside codegen/lower: a plan's tables while they grow, and the lowerings that fill them.
 * Regions must come grouped by rank, operations by worker, workers by rank. The first failure is
 * kept in `status`: what is added after it is lost, and copse_lower_schedule reports it. */
#pragma once

#include "base/memory.h"
#include "codegen/lower/options.h"
#include "runtime/plan/plan.h"
#include "schedule/schedule.h"

struct copse_plan_build {
  const struct copse_schedule *schedule;
  struct copse_lower_options options; /* filled in, in range */
  struct copse_plan_header header;
  struct copse_plan_rank *ranks; /* [n_ranks] */
  struct copse_plan_worker *workers;
  size_t workers_capacity;
  struct copse_plan_op *ops;
  size_t ops_capacity;
  struct copse_plan_operand *operands;
  size_t operands_capacity;
  struct copse_plan_piece *pieces;
  size_t pieces_capacity;
  struct copse_plan_region *regions;
  size_t regions_capacity;
  struct copse_plan_channel *channels;
  size_t channels_capacity;
  struct copse_plan_extent *extents; /* [n_extents] alltoall by demand */
  copse_status status;               /* of the first addition that failed */
  struct copse_err *err;
};

/* Sets how many ranks the data goes through, one after the other: chunks to aim for, unless the
 * options say. */
void copse_build_levels(struct copse_plan_build *b, int levels);

/* Adds a channel; this and the next ones return the number of what they add. */
uint32_t copse_build_channel(struct copse_plan_build *b, uint32_t src_worker, uint32_t dst_worker);
/* Adds a region of slots, or in a low-latency plan of packets. */
uint32_t copse_build_region(struct copse_plan_build *b, int rank, int piece);
/* Adds a region of slots in any case: for what a rank keeps for itself. */
uint32_t copse_build_slots(struct copse_plan_build *b, int rank, int piece);
/* Adds a piece; pair: 0, or of an alltoall's block. */
uint32_t copse_build_piece(struct copse_plan_build *b, struct copse_q lo, struct copse_q hi,
                           uint32_t pair);

void copse_build_signal(struct copse_plan_build *b, enum copse_plan_when when, uint32_t channel);
void copse_build_wait(struct copse_plan_build *b, enum copse_plan_when when, uint32_t channel);
/* Adds a signal for every chunk of data; in a low-latency plan the packets themselves show that
 * they came. */
void copse_build_data_signal(struct copse_plan_build *b, uint32_t channel);
void copse_build_data_wait(struct copse_plan_build *b, uint32_t channel);

void copse_build_operand(struct copse_plan_build *b, int rank, uint32_t buffer, uint32_t index);
/* Adds a block of an input or output; the one block where the buffer has but one. */
void copse_build_block(struct copse_plan_build *b, int rank, uint32_t buffer, int block);
/* Adds a MOVE of the operands added since `first`; the last n_dst are stored to. */
void copse_build_move(struct copse_plan_build *b, int piece, uint32_t first, int n_dst,
                      uint8_t flags);
/* Ends a worker whose operations are those since `first_op`. */
void copse_build_worker(struct copse_plan_build *b, int rank, uint32_t first_op);

/* Fills in the tables for trees; each lowering below is in its file. COPSE_UNSUPPORTED where the
 * schedule doesn't fit, COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_lower_trees(struct copse_plan_build *b) COPSE_CHECKED;
copse_status copse_lower_multicast(struct copse_plan_build *b) COPSE_CHECKED;
copse_status copse_lower_packets(struct copse_plan_build *b) COPSE_CHECKED;
copse_status copse_lower_doubling(struct copse_plan_build *b) COPSE_CHECKED;
copse_status copse_lower_one_hop(struct copse_plan_build *b) COPSE_CHECKED;
copse_status copse_lower_flows(struct copse_plan_build *b) COPSE_CHECKED;
