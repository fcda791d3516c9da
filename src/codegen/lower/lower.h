/*
 * From a schedule to a native plan. src/codegen/README.md tells the design.
 */
#ifndef COPSE_CODEGEN_LOWER_LOWER_H
#define COPSE_CODEGEN_LOWER_LOWER_H

#include "runtime/plan/plan.h"
#include "schedule/schedule.h"

/* Instances: the fewest with which all workers of a rank have about as much to move. */
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
                              the message; 0, COPSE_LOWER_AUTO: a worker each, of 512 bytes or more */
  int64_t min_bytes;       /* the message sizes that the plan is meant for, from */
  int64_t max_bytes;       /* to; 0: no limit, low_latency 256 KiB (at most 16 MiB), one_hop 16
                              KiB */
};

/*
 * Makes the plan of a schedule: each tree moves one piece of the buffer, chunk by chunk;
 * broadcasts put straight into the peers' output, reductions go through FIFO slots with
 * credits. What a rank does is dealt to its workers by the bytes to move, and every worker goes
 * from the sources on to the ends, so that no two wait for each other.
 * The plan owns its memory (copse_plan_release). COPSE_INVALID for options out of range,
 * COPSE_UNSUPPORTED where a protocol doesn't fit the schedule (one hop: where not all pairs of ranks
 * send to each other in its trees) and for a compact schedule,
 * COPSE_OVERFLOW where cuts need more than 64 bits, COPSE_NOMEM. Deterministic.
 * Complexity: linear in trees * ranks.
 */
copse_status copse_lower_schedule(const struct copse_schedule *schedule,
                                  const struct copse_lower_options *options,
                                  struct copse_plan **out, struct copse_err *err) COPSE_CHECKED;

/* The plan as JSON for people: every worker's operations in words. The caller frees it. */
copse_status copse_plan_to_text(const struct copse_plan *plan, char **text, size_t *size,
                                struct copse_err *err) COPSE_CHECKED;

#endif
