/* What a caller chooses of a native plan. policy.h has the defaults and their reasons. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Instances: the fewest with which all workers of a rank have about as much to move; of a schedule
 * for one size, whose trees are cut already, 1. */
#define COPSE_LOWER_AUTO (-1)
#define COPSE_LOWER_MOST_INSTANCES 256

struct copse_lower_options {
  int max_workers;         /* workers per rank, >= 1 (allreduce: >= 2); 0: 32 */
  int instances;           /* parts that each tree, or an alltoall's path, is cut into, for more
                              workers; 0: 1; COPSE_LOWER_AUTO (low_latency: 1) */
  int fifo;                /* slots of a staged edge, 1..64; 0: 4 */
  int pipeline_chunks;     /* chunks to aim for on shorter messages; 0: as schedule/chunks.h
                              says */
  int64_t chunk_bytes;     /* largest chunk of a piece; 0: COPSE_CHUNK_BYTES */
  int64_t min_chunk_bytes; /* smallest chunk for the sake of pipelining; 0:
                              COPSE_MIN_CHUNK_BYTES */
  bool low_latency;        /* packets instead of chunks and signals, for small messages */
  bool one_hop;            /* of a low-latency allreduce: every rank sends its input to all and sums
                              all of them, for the smallest messages; `instances` are then parts of
                              the message; 0, COPSE_LOWER_AUTO: a worker each, of 512 bytes or
                              more */
  int64_t min_bytes;       /* the message sizes that the plan is meant for, from */
  int64_t max_bytes;       /* to; 0: no limit, low_latency 256 KiB (at most 16 MiB), one_hop 16
                              KiB */
};
