/* From a schedule to a program for MSCCL, its NCCL executor and RCCL: algorithm XML, which
 * check.h proves. */
#pragma once

#include "base/err.h"
#include "schedule/schedule.h"

/* COPSE_MSCCL_ANY: only the steps that RCCL has kernels for (s, r, cpy, re, nop) and at most
 * 64 blocks: runs on all. COPSE_MSCCL_NCCL: receive and send in one step (rcs, rrs, rrc)
 * where a connection allows it, at most 108 blocks: MSCCL and its NCCL executor. */
enum copse_msccl_executor { COPSE_MSCCL_ANY, COPSE_MSCCL_NCCL };

enum copse_msccl_protocol { COPSE_MSCCL_SIMPLE, COPSE_MSCCL_LL, COPSE_MSCCL_LL128 };

/* Which calls the file serves; each flag set is a promise that its layout is right. */
enum copse_msccl_layout { COPSE_MSCCL_BOTH, COPSE_MSCCL_IN_PLACE, COPSE_MSCCL_OUT_OF_PLACE };

struct copse_msccl_options {
  enum copse_msccl_executor executor;
  enum copse_msccl_protocol protocol;
  enum copse_msccl_layout layout; /* an alltoall is out of place in any case */
  int max_blocks;                 /* of a rank; 0: 64, or 108 for COPSE_MSCCL_NCCL */
  int channels;                   /* at most so many, 1..32; 0: 32 */
  int instances;                  /* parts that each tree is cut into; 0: 1 */
  int chunks; /* of a rank's block: shares are rounded to it; 0: exact, or rounded where that
                 does not fit */
  int64_t min_bytes, max_bytes; /* of the message; 0: no bound but the executors' */
};

struct copse_msccl_summary {
  int channels, blocks, steps; /* blocks and steps: the most of a rank and of a block */
  int chunks;                  /* the counts served are multiples of it */
  int multiple;                /* ... of this many elements per rank's count */
  int scratch;                 /* chunks, the most of a rank */
  bool rounded;                /* shares, for want of room: options.chunks was 0 */
  double more;                 /* at most this part is added by rounding to what any link carries
                                  (an alltoall: what one rank sends another directly); 0: exact */
};

/* Whether the program serves element counts that are powers of two. */
static inline bool copse_msccl_serves_usual(const struct copse_msccl_summary *summary) {
  return (summary->multiple & (summary->multiple - 1)) == 0;
}

/* Returns the thread blocks of a rank where options.max_blocks is 0. */
static inline int copse_msccl_default_blocks(const struct copse_msccl_options *o) {
  return o->executor == COPSE_MSCCL_NCCL ? 108 : 64;
}

/* Writes the XML of a schedule; the caller frees *text. Where exact shares do not fit the
 * executors, they are rounded to the number of chunks that fits and adds least. COPSE_UNSUPPORTED
 * for broadcast, reduce, a demand matrix and a schedule that does not fit even so; COPSE_INVALID
 * for options out of range. Deterministic. O(32 * trees * ranks * channels) at most, for each
 * number of chunks. */
copse_status copse_lower_msccl(const struct copse_schedule *schedule,
                               const struct copse_msccl_options *options, char **text, size_t *size,
                               struct copse_msccl_summary *summary,
                               struct copse_err *err) COPSE_CHECKED;

/* Finds the least max_blocks up to `most` with which copse_lower_msccl writes the schedule, with
 * the other options as they are; 0: none. */
copse_status copse_msccl_least_blocks(const struct copse_schedule *schedule,
                                      const struct copse_msccl_options *options, int most,
                                      int *least_blocks, struct copse_err *err) COPSE_CHECKED;

/* Advises where copse_lower_msccl does not write the schedule: an option of `copse lower` with
 * which it does, tried, in words; else what has no such limits. */
copse_status copse_msccl_advise(const struct copse_schedule *schedule,
                                const struct copse_msccl_options *options, char *advice,
                                size_t size, struct copse_err *err) COPSE_CHECKED;
