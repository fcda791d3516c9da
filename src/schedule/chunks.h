/* How messages are cut where nothing else is asked for: by plans, and by the simulator that
 * predicts them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The largest chunk, and the smallest for the sake of pipelining: a GPU's thread block takes 1 us
 * for that (docs/gpu.md), less than it takes a signal to be seen. */
#define COPSE_CHUNK_BYTES (INT64_C(512) << 10)
#define COPSE_MIN_CHUNK_BYTES (INT64_C(32) << 10)

/* Slots of a plan's buffer between two ranks: chunks of a transfer that may be on their way. */
#define COPSE_FIFO 4

/*
 * Returns the chunks to aim for where data goes through so many levels, from rank to rank, one
 * after the other: 8 for each but one, so that 8/9 of the time all are busy. Predicted times of 45
 * schedules of 9 topologies at 64 KiB to 1 GiB are 3.8 % above those with the best number of
 * chunks for each size; with 4 for each and chunks of at least 128 KiB they were 6.5 % above.
 */
static inline int copse_pipeline_chunks(int levels) { return levels > 1 ? 8 * (levels - 1) : 1; }

/* No chunk is smaller: plans cut at multiples of it. */
#define COPSE_LEAST_CHUNK_BYTES 16
/* The least of plans in which what has the most hops to go is first: they are told by it. */
#define COPSE_FAR_FIRST_CHUNK_BYTES 32
/* Whether a plan of such least chunks is one of a schedule for one size: see lower.c. */
static inline bool copse_chunks_in_order(uint64_t least) {
  return least == COPSE_LEAST_CHUNK_BYTES || least == COPSE_FAR_FIRST_CHUNK_BYTES;
}
/*
 * Of the cost of a hop from rank to rank, what the worker that sends is busy for with each message,
 * in us. From an allreduce of 1 KiB by packets on an H200 (tests/gpu/results/2026-11-20-h200.txt,
 * in graphs): 12.21 us with 2 ranks and 16.49 with 8, where each rank sends and receives 12
 * messages more: 0.18 us for each.
 */
#define COPSE_MESSAGE_US 0.18

/* The most slots of a plan. */
#define COPSE_MOST_FIFO 64

/* Returns the slots of a schedule with an objective that states none: for all of its chunks, as far
 * as there can be so many, so that none waits for a slot. */
static inline int copse_objective_fifo(int chunks, int stated) {
  if (stated > 0) return stated;
  return chunks < COPSE_FIFO ? COPSE_FIFO : chunks < COPSE_MOST_FIFO ? chunks : COPSE_MOST_FIFO;
}
