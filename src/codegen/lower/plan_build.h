/*
 * Inside src/codegen only: a plan's tables while they grow. Regions must come grouped by
 * rank, operations by worker, workers by rank.
 */
#ifndef COPSE_CODEGEN_LOWER_PLAN_BUILD_H
#define COPSE_CODEGEN_LOWER_PLAN_BUILD_H

#include "codegen/lower/lower.h"

struct copse_plan_build {
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
  const char *name;                  /* borrowed */
  struct copse_err *err;
};

/* Checks the options and fills in defaults and the header. least_workers: per rank. */
copse_status copse_build_start(struct copse_plan_build *b, const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, int least_workers,
                               struct copse_err *err) COPSE_CHECKED;
void copse_build_free(struct copse_plan_build *b);

/* How many ranks the data goes through, one after the other: chunks to aim for, unless the options
 * say. */
void copse_build_levels(struct copse_plan_build *b, int levels);

copse_status copse_build_channel(struct copse_plan_build *b, uint32_t src_worker,
                                 uint32_t dst_worker) COPSE_CHECKED;
/* Of slots, or in a low-latency plan of packets. */
copse_status copse_build_region(struct copse_plan_build *b, int rank, int piece,
                                uint32_t *index) COPSE_CHECKED;
/* pair: 0, or of an alltoall's block. */
copse_status copse_build_piece(struct copse_plan_build *b, struct copse_q lo, struct copse_q hi,
                               uint32_t pair) COPSE_CHECKED;
/* SIGNAL or WAIT. */
copse_status copse_build_sync(struct copse_plan_build *b, uint8_t kind, uint8_t when,
                              uint32_t channel) COPSE_CHECKED;
/* SIGNAL or WAIT for every chunk of data: in a low-latency plan the packets tell. */
copse_status copse_build_data_sync(struct copse_plan_build *b, uint8_t kind,
                                   uint32_t channel) COPSE_CHECKED;
/* The buffer that regions are: slots or packets. */
uint32_t copse_build_region_buffer(const struct copse_plan_build *b);
copse_status copse_build_operand(struct copse_plan_build *b, int rank, uint32_t buffer,
                                 uint32_t index) COPSE_CHECKED;
/* A MOVE of the operands added since `first`; the last n_dst are stored to. */
copse_status copse_build_move(struct copse_plan_build *b, int piece, uint32_t first, int n_dst,
                              uint8_t flags) COPSE_CHECKED;
/* Ends a worker whose operations are those since `first_op`. */
copse_status copse_build_worker(struct copse_plan_build *b, int rank,
                                uint32_t first_op) COPSE_CHECKED;

/* Through the file format, so that what runs is what a file would hold. */
copse_status copse_build_finish(struct copse_plan_build *b, struct copse_plan **out) COPSE_CHECKED;

/* The code generators behind copse_lower_schedule. */
copse_status copse_lower_trees(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) COPSE_CHECKED;
copse_status copse_lower_packets(const struct copse_schedule *schedule,
                                 const struct copse_lower_options *options,
                                 struct copse_plan **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_lower_one_hop(const struct copse_schedule *schedule,
                                 const struct copse_lower_options *options,
                                 struct copse_plan **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_lower_flows(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) COPSE_CHECKED;

#endif
