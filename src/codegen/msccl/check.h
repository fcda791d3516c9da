/* The symbolic proof of an MSCCL algorithm (XML of any origin). It shares no code with what
 * writes such files. check.c says how. */
#pragma once

#include "base/err.h"

struct copse_check_msccl_report {
  char name[64];
  copse_collective collective;
  int n_ranks, n_tbs, n_steps, n_channels;
  int chunks;
  bool in_place, out_of_place; /* proved for */
  int64_t min_bytes, max_bytes;
  bool on_rccl;        /* only steps and sizes that RCCL has */
  const char *missing; /* an attribute that older MSCCL went without; NULL */
  uint64_t actions;    /* followed, over all runs */
};

/*
 * Proves, for every interleaving and for every message size that the file serves:
 * - result: as the collective promises, each contribution once, in each layout it is for;
 * - no deadlock: blocks, connections and flags leave no choice, so one execution decides; it
 *   has the executors' room in a connection, for the largest messages;
 * - no race: any two accesses to a chunk of which one writes are ordered by steps, waits and
 *   what is received;
 * - the executors' limits, their numbering of steps and what their parser loses.
 * COPSE_BAD_INPUT for what is no such file; COPSE_REFUTED with the step at fault ("FILE:LINE: gpu
 * 3 tb 1 step 7 ..."); COPSE_UNSUPPORTED beyond 2^25 chunks of memory; COPSE_NOMEM.
 */
copse_status copse_check_msccl(const char *label, const char *data, size_t size,
                               struct copse_check_msccl_report *report,
                               struct copse_err *err) COPSE_CHECKED;
