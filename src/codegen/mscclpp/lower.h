/* From a schedule to an MSCCL++ execution plan (JSON), which check.h proves. */
#pragma once

#include "base/err.h"
#include "schedule/schedule.h"

struct copse_mscclpp_options {
  bool out_of_place;            /* a plan serves one kind of call; an alltoall this one */
  int max_blocks;               /* of a rank, 1..1024; 0: 32 */
  int instances;                /* parts that each tree is cut into; 0: 1 */
  int chunks;                   /* of a rank's block: shares are rounded to it; 0: exact */
  int ranks_per_host;           /* 0: by the ids, "h3.gpu0" being on host h3 */
  int64_t pipeline_bytes;       /* pieces in which ranks pass on, a multiple of 16; 0: whole */
  int64_t min_bytes, max_bytes; /* of the message; 0: what the format allows */
};

struct copse_mscclpp_summary {
  int blocks, ops; /* the most of a rank and of a block */
  int chunks, scratch;
  int hosts;
  int64_t multiple; /* message bytes must be a multiple of this */
};

/* Writes the plan of a schedule; the caller frees *text. Ranks of one host write to each other's
 * memory, others go through port channels. COPSE_UNSUPPORTED for broadcast, reduce, a demand matrix
 * and what does not fit the executor, with what would; COPSE_INVALID. Deterministic. */
copse_status copse_lower_mscclpp(const struct copse_schedule *schedule,
                                 const struct copse_mscclpp_options *options, char **text,
                                 size_t *size, struct copse_mscclpp_summary *summary,
                                 struct copse_err *err) COPSE_CHECKED;
