/* The symbolic proof of a native plan. It executes the plan on names instead of numbers
 * and shares no code with code generation. */
#pragma once

#include "base/err.h"
#include "runtime/plan/plan.h"

struct copse_proof_report {
  uint64_t operations; /* followed, over all chunk counts, in place and out of place at once */
  int runs;            /* chunk counts times in place and out of place */
};

/*
 * Proves a validated plan right for every message size and interleaving, in place and out of place:
 * the promised result, no deadlock, balanced channels, no race; proof.c says how.
 * COPSE_REFUTED with the first defect and its place ("rank 3, worker 1, op 7, chunk 0: ..."),
 * COPSE_NOMEM, before it starts where it would take more memory than there is, with the bytes.
 * Time: executed operations times the workers of a connected component.
 */
copse_status copse_prove_plan(const struct copse_plan *plan, const char *label,
                              struct copse_proof_report *report,
                              struct copse_err *err) COPSE_CHECKED;
