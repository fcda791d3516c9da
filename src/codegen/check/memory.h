/* Inside codegen/check: the memory of a plan under proof. A place is one piece of one block at one
 * rank, or one scratch region; it has a cell per chunk, or per slot. */
#pragma once

#include "base/graph.h"
#include "base/memory.h"
#include "codegen/check/multisets.h"
#include "runtime/plan/plan.h"

/* An operation of a worker: its `time`-th, from 1; time 0 is no operation. */
struct copse_event {
  uint32_t worker, time;
};

/* What a cell holds: the sum over a multiset of ranks of their inputs at (block, piece,
 * chunk). `block` counts data blocks: in an allgather rank r's input is data block r, in an
 * alltoall what rank i sends to rank j is data block i * n_ranks + j. */
struct copse_content {
  int set; /* -1: nothing */
  uint32_t block, piece;
  uint32_t chunk : 31;
  uint32_t scaled : 1; /* the FINAL step of a reduction is done */
};

struct copse_reads; /* further readers than the first */
struct copse_late;  /* accesses by peers */

struct copse_cell {
  struct copse_content content;
  struct copse_event writer;
  struct copse_event reader; /* the first since the last write; time 0: none */
  struct copse_reads *more;
  uint32_t reads : 31; /* since then */
  uint32_t written : 1;
};

struct copse_memory_place {
  uint32_t rank;
  uint32_t buffer; /* what it is called in messages; in place, input is output */
  uint32_t block, piece;
};

struct copse_memory {
  const struct copse_plan *plan;
  uint32_t *piece_class; /* [n_pieces] equal pieces share the smallest index */
  uint32_t n_places;
  struct copse_memory_place *places;
  struct copse_index_map by_place;
  uint32_t *op_places; /* places of each MOVE's operands, in order */
  uint32_t *op_first;  /* [n_ops] into op_places */
  bool in_place;
  struct copse_cell *cells; /* [n_places] of the chunk at hand */
  struct copse_cell *slots; /* of region r: from r * fifo on */
  /* what a rank must be notified of before it leaves */
  struct copse_event *unsettled; /* [n_places] the last write, by a peer, of earlier chunks too */
  struct copse_late *late;       /* in the launch */
  struct copse_arena tables;     /* what copse_memory_map makes */
  struct copse_arena launch;     /* further reads of one launch */
};

#define COPSE_NO_PLACE UINT32_MAX

/*
 * Maps every operand to its place. COPSE_REFUTED for a plan whose pieces overlap in part within a
 * block, and for operands that the collective does not have (a broadcast's input away from
 * the root, a reduce's output away from it). Ends with copse_memory_free, also after a failure.
 * O(operands + places log places).
 */
copse_status copse_memory_map(struct copse_memory *memory, const struct copse_plan *plan,
                              bool in_place, const char *label,
                              struct copse_err *err) COPSE_CHECKED;
static inline void copse_memory_free(struct copse_memory *m) {
  copse_index_map_free(&m->by_place);
  copse_arena_free(&m->tables);
  copse_arena_free(&m->launch);
}

/* Counts the data blocks: see struct copse_content. */
static inline uint32_t copse_memory_blocks(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  if (h->collective == COPSE_ALLTOALL) return h->n_ranks * h->n_ranks;
  return h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
}

/* Sets all slots as at the start of a launch. */
void copse_memory_start(struct copse_memory *memory);
/* Sets all cells as at the start of the launch, for its chunk c. singles [n_ranks]: {rank}. */
void copse_memory_start_chunk(struct copse_memory *memory, uint32_t c, const int *singles);

/* Returns the place of (rank, output block, piece class), or COPSE_NO_PLACE. */
uint32_t copse_memory_output(const struct copse_memory *memory, uint32_t rank, uint32_t block,
                             uint32_t piece);

/* Returns the cell that operand `i` of MOVE `op` means for chunk c. */
static inline struct copse_cell *copse_memory_cell(struct copse_memory *m, uint32_t op, uint32_t i,
                                                   uint32_t c) {
  uint32_t place = m->op_places[m->op_first[op] + i];
  if (place != COPSE_NO_PLACE) return &m->cells[place];
  uint32_t region = m->plan->operands[m->plan->ops[op].operand + i].index;
  uint32_t fifo = m->plan->header.fifo;
  return &m->slots[(size_t)region * fifo + c % fifo];
}

/* ==== order =================================================================================== */

/*
 * What is before what in one launch of a plan: the least order with program order and the j-th
 * signal of a channel before its j-th wait (L. Lamport 1978). Workers count their operations; a
 * signal carries its sender's count. Most questions are answered by the last signal from one worker
 * to another, all others by a search back through what each worker has waited for. Memory is linear
 * in channels and waits, where a vector clock for each worker would take the square of the workers.
 */

struct copse_order;

/* Makes an order in the arena. */
copse_status copse_order_new(struct copse_arena *arena, const struct copse_plan *plan,
                             struct copse_order **out, struct copse_err *err) COPSE_CHECKED;
void copse_order_free(struct copse_order *o);
/* Resets to nothing done in a launch of so many chunks. O(operations + channels). */
copse_status copse_order_reset(struct copse_order *o, uint32_t chunks,
                               struct copse_err *err) COPSE_CHECKED;

/* Notes that the worker does its next operation. */
struct copse_event copse_order_tick(struct copse_order *o, uint32_t worker);

/* Notes that the channel's sender signals. */
copse_status copse_order_send(struct copse_order *o, uint32_t channel,
                              struct copse_err *err) COPSE_CHECKED;
/* Prefetches the memory that the next call on the channel will touch. */
void copse_order_expect(const struct copse_order *o, uint32_t channel);
/* Counts signals of the channel that are not waited for yet. */
uint32_t copse_order_pending(const struct copse_order *o, uint32_t channel);
/* Takes the oldest one in at the other end. `orders`: false of a signal that announces packets,
 * which orders nothing but what asks by `announced`. */
void copse_order_receive(struct copse_order *o, uint32_t channel, bool orders);

/* Whether the event came before what `worker` does now. */
bool copse_order_before(struct copse_order *o, struct copse_event event, uint32_t worker,
                        bool announced);
/* Whether the worker knows that the rank has entered this launch. */
bool copse_order_knows_entered(struct copse_order *o, uint32_t worker, uint32_t rank);
/* Whether some worker of the rank knows of the event by now. */
bool copse_order_known_at(struct copse_order *o, struct copse_event event, uint32_t rank);
