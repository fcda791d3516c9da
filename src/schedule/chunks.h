/* How messages are cut where nothing else is asked for: by plans, and by the simulator that
 * predicts them. */
#ifndef COPSE_SCHEDULE_CHUNKS_H
#define COPSE_SCHEDULE_CHUNKS_H

#include <stdint.h>

/* The largest chunk, and the smallest for the sake of pipelining: a GPU's thread block takes about
 * as long for that as a signal takes to be seen. */
#define COPSE_CHUNK_BYTES (INT64_C(512) << 10)
#define COPSE_MIN_CHUNK_BYTES (INT64_C(128) << 10)

/* Slots of a plan's buffer between two ranks: chunks of a transfer that may be on their way. */
#define COPSE_FIFO 4

/* Chunks to aim for where data goes through so many levels, from rank to rank, one after the other:
 * 4 for each but one, so that 4/5 of the time all are busy. */
static inline int copse_pipeline_chunks(int levels) { return levels > 1 ? 4 * (levels - 1) : 1; }

#endif
