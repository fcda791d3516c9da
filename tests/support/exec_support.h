/* Running plans on test data, for tests of the executors. */
#ifndef COPSE_TESTS_EXEC_SUPPORT_H
#define COPSE_TESTS_EXEC_SUPPORT_H

#include "runtime/comm/executor.h"

struct exec_case {
  enum copse_type type;
  enum copse_redop redop;
  uint64_t count;
  bool in_place;
};

/* One launch on fresh test data; fails the test unless it runs through. The number of
 * wrong elements. */
uint64_t exec_case_run(struct copse_exec *exec, const struct copse_plan *plan, struct exec_case it);

/* The status of a launch that may fail. */
copse_status exec_case_status(struct copse_exec *exec, const struct copse_plan *plan,
                              struct exec_case it, struct copse_err *err);

/* The root of a collective in tests: some rank, or -1 where there is none. */
int32_t exec_case_root(copse_collective collective, uint32_t n_ranks);

/* Times launches of an allgather of 4 ranks, and fits the costs of predictions to them. */
void exec_check_profile(const struct copse_plan *plan, enum copse_backend backend);

/*
 * Runs the plan's collective with every type, every reduction that applies, `counts`
 * (ended by UINT64_MAX), in and out of place; fails the test on a wrong element.
 */
void exec_check_all(const struct copse_plan *plan, enum copse_backend backend,
                    const uint64_t *counts);

#endif
