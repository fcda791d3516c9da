/*
 * What the executors of this folder share: the state of a plan's execution and the
 * interpreter of one worker. The backends differ in who runs the workers and in what
 * waiting means.
 */
#ifndef COPSE_RUNTIME_INTERPRETER_EXEC_INTERNAL_H
#define COPSE_RUNTIME_INTERPRETER_EXEC_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/interpreter/executor.h"
#include "runtime/plan/layout.h"
#include "runtime/interpreter/view.h"

/* A line each, so that workers don't disturb their neighbours. */
#define COPSE_CACHE_LINE 64

struct copse_exec_worker {
  alignas(COPSE_CACHE_LINE) uint32_t chunk; /* n_chunks when finished */
  uint32_t op;                              /* within the worker */
  bool finished;
};

struct copse_exec_channel {
  alignas(COPSE_CACHE_LINE) _Atomic uint64_t signals; /* written by the signalling worker */
  uint64_t waits;                                     /* the waiting worker's own */
};

struct copse_exec {
  const struct copse_plan *plan;
  enum copse_backend backend;
  double stall_seconds;
  bool broken; /* a launch failed: counters and scratch are in no defined state */
  struct copse_layout layout;
  struct copse_view view;              /* the current launch */
  uint32_t epoch;                      /* its number, from 1: what packets are flagged with */
  struct copse_rank_memory *memory;    /* [n_ranks] the view's */
  uint64_t *scratch_capacity;          /* [n_ranks] bytes */
  uint64_t packets_capacity;           /* bytes of one of a rank's two copies */
  struct copse_exec_worker *workers;   /* [n_workers] */
  struct copse_exec_channel *channels; /* [n_channels] persist from launch to launch */
  struct copse_exec_cpu *cpu;          /* the backend's own, NULL for others */
  struct copse_exec_threads *threads;
  struct copse_exec_gpu *gpu;
  struct copse_exec_mesh *mesh;
};

/* Whether the rank's memory and workers are in this process. */
bool copse_exec_is_here(const struct copse_exec *exec, uint32_t rank);

enum copse_exec_step {
  COPSE_STEP_FINISHED,
  COPSE_STEP_WAITS,
  COPSE_STEP_SIGNALLED,
  COPSE_STEP_LOOKS /* packets are missing; nobody tells when they come */
};

/*
 * Runs worker w until it is finished, stands at a WAIT that isn't satisfied, or has just
 * signalled (*channel tells which; the backend decides whether that matters and goes on).
 * Signals release what was written before, satisfied waits acquire it. Whether packets are
 * waited for by their channels or by looking at them is the backend's choice.
 */
enum copse_exec_step copse_exec_advance(struct copse_exec *exec, uint32_t w, uint32_t *channel);

/* Whether the next WAIT on the channel would be satisfied. Acquires. */
static inline bool copse_exec_is_signalled(const struct copse_exec_channel *channel) {
  return atomic_load_explicit(&channel->signals, memory_order_acquire) > channel->waits;
}

/*
 * COPSE_REFUTED for workers that stand still, with a line that follows who waits for
 * whom: "deadlock: rank 3 worker 1 waits for rank 5 worker 0 (channel 17, chunk 2), which
 * waits for ...". `what` is its first word or words.
 */
copse_status copse_exec_report_standstill(const struct copse_exec *exec, const char *what,
                                          struct copse_err *err) COPSE_CHECKED;

/* The channel that an unfinished worker stands at, which waits at a WAIT or for packets. */
uint32_t copse_exec_waited_channel(const struct copse_exec *exec, uint32_t w);

/* COPSE_REFUTED where a finished launch left a channel with signals that nobody took. */
copse_status copse_exec_check_balance(const struct copse_exec *exec,
                                      struct copse_err *err) COPSE_CHECKED;

/* The backends. run: workers are at their start, layout and scratch are set. */
copse_status copse_exec_cpu_new(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_cpu_run(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
void copse_exec_cpu_free(struct copse_exec *exec);
copse_status copse_exec_threads_new(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_threads_run(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
void copse_exec_threads_free(struct copse_exec *exec);

/* Over a mesh, exec_mesh.c. What a MOVE stores at other ranks it stores once in memory that is then
 * sent. stage: room for so many bytes, or NULL when they must wait. */
copse_status copse_exec_mesh_new(struct copse_exec *exec, struct copse_mesh *mesh,
                                 struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_mesh_run(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
void copse_exec_mesh_free(struct copse_exec *exec);
unsigned char *copse_exec_mesh_stage(const struct copse_exec *exec, size_t bytes);
void copse_exec_mesh_send(const struct copse_exec *exec, const struct copse_plan_op *op);

/* The GPUs' backend shares nothing with the others but the plan: the interpreter is the one
 * of view.h and element_move.h, run by the kernel. See executor.h for what the parts do. */
copse_status copse_exec_gpu_new(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;
void copse_exec_gpu_free(struct copse_exec *exec);
void copse_exec_gpu_set_stall_seconds(struct copse_exec *exec);
copse_status copse_exec_gpu_load(struct copse_exec *exec, const struct copse_launch *launch,
                                 struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_gpu_store(struct copse_exec *exec, const struct copse_launch *launch,
                                  struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_gpu_start(struct copse_exec *exec, const struct copse_launch *launch,
                                  struct copse_err *err) COPSE_CHECKED;
copse_status copse_exec_gpu_finish(struct copse_exec *exec, struct copse_err *err) COPSE_CHECKED;

#endif
