/* What machines whose ranks are CPUs have in common: executors, and a launch's buffers. */
#ifndef COPSE_RUNTIME_CPU_COMM_HOST_H
#define COPSE_RUNTIME_CPU_COMM_HOST_H

#include "runtime/interpreter/executor.h"
#include "runtime/comm/machine.h"

/* A prepared plan. */
struct copse_host_plan {
  struct copse_exec *exec;
  struct copse_host_plan *next;
};

struct copse_host {
  uint32_t n_ranks, first_local, n_local;
  void **inputs, **outputs; /* [n_ranks] of a launch; only the local ranks' are set */
  struct copse_host_plan *plans;
};

/* COPSE_NOMEM; copse_host_free then too. */
copse_status copse_host_init(struct copse_host *host, const struct copse_clique_shape *shape,
                             struct copse_err *err) COPSE_CHECKED;

/* Without the executors, which stay for good, if messages may still come into their memory. */
void copse_host_free(struct copse_host *host, bool with_executors);

/* An empty plan for the caller to make an executor in; copse_host_keep then gives it to the
 * host. */
copse_status copse_host_new_plan(struct copse_host_plan **out, struct copse_err *err) COPSE_CHECKED;
void copse_host_keep(struct copse_host *host, struct copse_host_plan *plan);

/* Runs the plan on the local ranks' buffers, calls [n_local]. The executor's errors. */
copse_status copse_host_launch(struct copse_host *host, struct copse_host_plan *plan,
                               const struct copse_call *calls, struct copse_err *err) COPSE_CHECKED;

/* COPSE_INVALID for a count beyond the block's in the matrix of a rank's call, if it has one. */
copse_status copse_host_check_pair_counts(const struct copse_host *host, uint32_t rank,
                                          const struct copse_call *call,
                                          struct copse_err *err) COPSE_CHECKED;

#endif
