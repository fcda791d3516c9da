/* Executors: a plan run on the host's buffers by any backend, for `copse run` and for tests.
 * Scratch and counters persist from launch to launch in a copse_exec, as in a communicator. */
#pragma once

#include "base/err.h"
#include "base/types.h"
#include "runtime/plan/plan.h"

/* A collective call, made on all ranks. */
struct copse_launch {
  uint64_t count; /* elements of a block: NCCL's sendcount (allgather), recvcount
                     (reduce_scatter), count (allreduce, broadcast, reduce) */
  enum copse_type type;
  enum copse_redop redop;
  void *const *inputs;         /* [n_ranks] header.input_blocks * count elements each */
  void *const *outputs;        /* [n_ranks] header.output_blocks * count elements each. In place
                                  as in NCCL: output == input, for allgather input == output +
                                  rank * count, for reduce_scatter output == input + rank * count */
  const uint64_t *pair_counts; /* alltoall: NULL, or [n_ranks * n_ranks]: of the block from rank i
                                  to rank j only the first pair_counts[i * n_ranks + j] <= count
                                  elements are sent. Not for plans with extents or packets */
};

enum copse_backend {
  COPSE_BACKEND_CPU,     /* one thread steps all workers in turn; reports a deadlock */
  COPSE_BACKEND_THREADS, /* a thread per worker, C11 atomics */
  COPSE_BACKEND_CUDA,    /* all ranks on this process's GPUs; several may share one */
  COPSE_BACKEND_MPI,     /* this process's rank alone: copse_exec_new_transport */
  COPSE_BACKEND_UCX      /* likewise */
};

struct copse_exec;

/* Makes an executor; the plan is borrowed until the free. COPSE_NOMEM, also for more threads than
 * the machine gives. */
copse_status copse_exec_new(const struct copse_plan *plan, enum copse_backend backend,
                            struct copse_exec **out, struct copse_err *err) COPSE_CHECKED;

/* This process's part of a plan, the rank being the transport's, which outlives the executor; of
 * a launch only that rank's input and output are looked at. Collective, as launches are: what fails
 * in a launch breaks the transport. COPSE_UNSUPPORTED where the wire has too few tags. */
struct copse_transport;
copse_status copse_exec_new_transport(const struct copse_plan *plan,
                                      struct copse_transport *transport, struct copse_exec **out,
                                      struct copse_err *err) COPSE_CHECKED;

/*
 * Runs one launch to its end. The order of reduction is the plan's and so are the bits,
 * on every backend. COPSE_REFUTED on a deadlock (the text says who waits for whom), on a
 * channel left unbalanced, and in the threads backend when nothing moves for
 * stall_seconds; after that the executor can only be freed.
 */
copse_status copse_exec_run(struct copse_exec *exec, const struct copse_launch *launch,
                            struct copse_err *err) COPSE_CHECKED;

/* Does its first step; the steps are for timing. load copies inputs and outputs to where the
 * executor works (to a GPU; nothing on CPUs); start begins a launch on what is there, and may
 * return before its end, finish waits for all that were started. */
copse_status copse_exec_load(struct copse_exec *exec, const struct copse_launch *launch,
                             struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_start(struct copse_exec *exec, const struct copse_launch *launch,
                              struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_finish(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
void copse_exec_set_stall_seconds(struct copse_exec *exec, double seconds); /* default 20 */
/* Computes the bytes of scratch over all ranks that a launch of this size takes. */
copse_status copse_exec_scratch_bytes(const struct copse_plan *plan, uint64_t count,
                                      enum copse_type type, uint64_t *bytes,
                                      struct copse_err *err) COPSE_CHECKED;
/* Says which GPUs a backend's ranks have, such as "8 NVIDIA H200"; "" for those on CPUs. */
#define COPSE_EXEC_DEVICE_TEXT 80
void copse_exec_device(enum copse_backend backend, char text[COPSE_EXEC_DEVICE_TEXT]);
/* Returns what runs the plan on CPUs, for tests that look at its state; NULL on GPUs. */
struct copse_interpreter *copse_exec_interpreter(struct copse_exec *exec);
void copse_exec_free(struct copse_exec *exec);
