/* The symbolic proof of an MSCCL++ execution plan (JSON of any origin). It shares no code with
 * what writes such files. check.c says how. */
#pragma once

#include "base/err.h"

struct copse_check_mscclpp_report {
  char name[64];
  copse_collective collective;
  int n_ranks, n_blocks, n_ops, chunks;
  bool in_place;
  uint64_t actions; /* followed, over all runs */
};

/*
 * Proves, for every interleaving:
 * - result: as the collective promises, each contribution once;
 * - no deadlock, and every signal and semaphore used up, so that a next launch starts
 *   like this one;
 * - no race: within a block too, whose threads meet only at a nop or barrier; nothing is written
 *   to a rank before it has entered or after it may have left;
 * - the executor's limits. Pipelines run 1, 2 and 3 times.
 * COPSE_BAD_INPUT for what is no such plan; COPSE_REFUTED with the op at fault ("FILE:LINE: gpu 3
 * tb 1 op 7 ..."); COPSE_UNSUPPORTED for what this checker does not follow; COPSE_NOMEM.
 */
copse_status copse_check_mscclpp(const char *label, const char *data, size_t size,
                                 struct copse_check_mscclpp_report *report,
                                 struct copse_err *err) COPSE_CHECKED;
