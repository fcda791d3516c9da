/*
 * CPUs as a backend: all ranks in this process, run by one thread or by a thread each. What the
 * backend of a transport has in common with it: interpreters, and a launch's buffers.
 */
#ifndef COPSE_RUNTIME_CPU_CPU_H
#define COPSE_RUNTIME_CPU_CPU_H

#include "runtime/backend/backend.h"
#include "runtime/interpreter/interpreter.h"

extern const struct copse_engine copse_cooperative_engine; /* one thread steps all workers */
extern const struct copse_engine copse_threads_engine;     /* a thread for each worker */

extern const struct copse_backend_ops copse_cpu_backend;     /* on the cooperative engine */
extern const struct copse_backend_ops copse_threads_backend; /* on the threads engine */

/* A prepared plan. */
struct copse_host_plan {
  struct copse_interpreter *exec;
  struct copse_host_plan *next;
};

struct copse_host {
  uint32_t n_ranks, first_local, n_local;
  void **inputs, **outputs; /* [n_ranks] of a launch; only the local ranks' are set */
  struct copse_host_plan *plans;
  const struct copse_engine *engine;
  double stall_seconds; /* 0: the interpreter's default */
};

/* COPSE_NOMEM; copse_host_free then too. */
copse_status copse_host_init(struct copse_host *host, const struct copse_comm_shape *shape,
                             const struct copse_engine *engine,
                             struct copse_err *err) COPSE_CHECKED;

/* Without the interpreters, which stay for good, if messages may still come into their memory. */
void copse_host_free(struct copse_host *host, bool with_interpreters);

/* A plan with its interpreter, not yet the host's; `context` is for the engine. */
copse_status copse_host_new_plan(const struct copse_host *host, const struct copse_plan *plan,
                                 void *context, struct copse_host_plan **out,
                                 struct copse_err *err) COPSE_CHECKED;
void copse_host_free_plan(struct copse_host_plan *plan);
void copse_host_keep(struct copse_host *host, struct copse_host_plan *plan);

/* Runs the plan on the local ranks' buffers, calls [n_local]. The interpreter's errors. */
copse_status copse_host_launch(struct copse_host *host, struct copse_host_plan *plan,
                               const struct copse_call *calls, struct copse_err *err) COPSE_CHECKED;

/* COPSE_INVALID for a count beyond the block's in the matrix of a rank's call, if it has one. */
copse_status copse_host_check_pair_counts(const struct copse_host *host, uint32_t rank,
                                          const struct copse_call *call,
                                          struct copse_err *err) COPSE_CHECKED;

#endif
