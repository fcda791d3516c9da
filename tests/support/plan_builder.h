/*
 * Plans built by hand for tests of the runtime: a small builder, and the textbook
 * algorithms on it. Nothing here is shared with code generation. Out of memory or a
 * misuse aborts the test.
 */
#ifndef COPSE_TESTS_PLAN_BUILDER_H
#define COPSE_TESTS_PLAN_BUILDER_H

#include "runtime/plan/plan.h"

struct plan_builder;

struct plan_builder *pb_new(copse_collective collective, uint32_t n_ranks, int32_t root);
/* The header being built, for fifo, chunk sizes and the like. */
struct copse_plan_header *pb_header(struct plan_builder *b);

/* All return ids. Workers may come in any order of rank. */
uint32_t pb_worker(struct plan_builder *b, uint32_t rank);
uint32_t pb_piece(struct plan_builder *b, int64_t lo_num, int64_t lo_den, int64_t hi_num,
                  int64_t hi_den);
/* A piece of an alltoall's block from rank src to rank dst. */
uint32_t pb_pair_piece(struct plan_builder *b, uint32_t src, uint32_t dst, int64_t lo_num,
                       int64_t lo_den, int64_t hi_num, int64_t hi_den);
uint32_t pb_packets(struct plan_builder *b, uint32_t rank, uint32_t piece);
uint32_t pb_region(struct plan_builder *b, uint32_t rank, uint32_t piece);
uint32_t pb_channel(struct plan_builder *b, uint32_t src_worker, uint32_t dst_worker);

struct copse_plan_operand pb_input(uint32_t rank, uint32_t block);
struct copse_plan_operand pb_output(uint32_t rank, uint32_t block);
struct copse_plan_operand pb_scratch(uint32_t rank, uint32_t region);
struct copse_plan_operand pb_packet(uint32_t rank, uint32_t region);

/* A MOVE is begun, gets its operands (sources first), and ends with the next operation. */
void pb_move(struct plan_builder *b, uint32_t worker, uint32_t piece, uint8_t flags);
void pb_src(struct plan_builder *b, struct copse_plan_operand operand);
void pb_dst(struct plan_builder *b, struct copse_plan_operand operand);
void pb_signal(struct plan_builder *b, uint32_t worker, uint32_t channel,
               enum copse_plan_when when);
void pb_wait(struct plan_builder *b, uint32_t worker, uint32_t channel, enum copse_plan_when when);
/* Of packets: COPSE_SYNC_IN_DATA. */
void pb_data_signal(struct plan_builder *b, uint32_t worker, uint32_t channel);
void pb_data_wait(struct plan_builder *b, uint32_t worker, uint32_t channel);

/* Orders the tables and ends the builder; the plan is freed with pb_free. Not validated. */
struct copse_plan *pb_finish(struct plan_builder *b);
void pb_free(struct copse_plan *plan);

/* What the algorithms below leave open. */
struct pb_options {
  uint32_t n_trees; /* the message is cut into so many parts, each with its own tree */
  uint32_t arity;   /* children of a tree node; 1: chains */
  uint32_t fifo;
  uint32_t pipeline_chunks;
  uint64_t chunk_bytes, min_chunk_bytes;
};
#define PB_OPTIONS_DEFAULT ((struct pb_options){2, 2, 2, 4, 1 << 20, 1 << 10})

/*
 * A right plan for any collective: trees (reduce with scratch and credits, broadcast with
 * a handshake, straight into the outputs), all-to-all by direct puts. One worker per rank,
 * root and tree.
 */
struct copse_plan *pb_tree_plan(copse_collective collective, uint32_t n_ranks, int32_t root,
                                struct pb_options options);
/* Allgather over a ring, one worker a rank. */
struct copse_plan *pb_ring_allgather(uint32_t n_ranks, struct pb_options options);

#endif
