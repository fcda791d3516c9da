/* Inside src/runtime: one rank's call of a collective, as arguments and in words. */
#pragma once

#include "runtime/backend/backend.h"

#define COPSE_CALL_TEXT 96

/* "all_reduce of 100 float sum", "broadcast of 7 int32, root 2". */
void copse_call_describe(const struct copse_call *call, char text[COPSE_CALL_TEXT]);

/*
 * Everything about a call that its rank can see by itself; COPSE_INVALID names the argument.
 * Types and reductions must exist, the root be a rank, sizes fit, buffers be there (but those
 * that NCCL ignores: a broadcast's input and a reduce's output but at the root), aligned to
 * their elements, and either apart or in place exactly as NCCL has it: output == input, for
 * all_gather input == output + rank * count, for reduce_scatter output == input + rank * count,
 * all_to_all never.
 */
copse_status copse_call_check(const struct copse_call *call, uint32_t n_ranks, uint32_t rank,
                              struct copse_err *err) COPSE_CHECKED;

/* Whether calls[0 .. n-1] of the ranks from first_rank on are the same call: all but buffers and
 * stream. COPSE_INVALID names two ranks that differ and what they call. */
copse_status copse_calls_match(const struct copse_call *calls, uint32_t n, uint32_t first_rank,
                               struct copse_err *err) COPSE_CHECKED;

/* "rank 3, 5 and 9 more": those of first_rank .. first_rank + n - 1 whose offset `holds`. */
#define COPSE_RANKS_TEXT 160
void copse_ranks_describe(bool (*holds)(const void *context, uint32_t i), const void *context,
                          uint32_t first_rank, uint32_t n, char text[COPSE_RANKS_TEXT]);
