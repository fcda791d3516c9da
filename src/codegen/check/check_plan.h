/*
 * The symbolic proof of a native plan. It executes the plan on names instead of numbers
 * and shares no code with code generation.
 */
#ifndef COPSE_CODEGEN_CHECK_CHECK_PLAN_H
#define COPSE_CODEGEN_CHECK_CHECK_PLAN_H

#include "base/err.h"
#include "runtime/plan/plan.h"

struct copse_check_report {
  uint64_t operations; /* executed symbolically, over all runs */
  int runs;            /* chunk counts times in place and out of place */
};

/*
 * Proves, for any message size and interleaving, in place and out of place:
 * - result: every rank ends with exactly what the collective promises, each contribution
 *   once, averages divided once;
 * - no deadlock: each channel has one signaller and one waiter, so whether a wait can pass
 *   does not depend on the interleaving, and one greedy execution decides;
 * - balance: every signal is waited for, so that the next launch starts clean;
 * - no race: any two accesses to the same bytes of which one writes are ordered by program
 *   order and signals (vector clocks), no peer writes before a rank has entered or after
 *   it has left the launch, nothing is written twice or overwritten unread.
 * - packets: each region is written once a launch and carries its data with it; who writes it
 *   hears of its reader in the same launch, so that two launches later it is free again.
 * Message sizes: operations depend on the number of chunks n only through c = 0, c >= f
 * and c + f < n, and chunk c touches chunk c of pieces and slot c mod f; n = 1, 2, f + 1 and
 * 2 f + 1 contain every such neighbourhood, longer runs repeat them. A low-latency plan always
 * has one chunk.
 *
 * Returns COPSE_REFUTED with the first defect and its place ("rank 3, worker 1, op 7,
 * chunk 0: ..."), COPSE_NOMEM.
 */
copse_status copse_check_plan(const struct copse_plan *plan, const char *label,
                              struct copse_check_report *report,
                              struct copse_err *err) COPSE_CHECKED;

#endif
