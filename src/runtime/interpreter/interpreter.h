/*
 * A plan's execution on CPUs: its state, and the interpreter of one worker. An engine runs the
 * workers: all in one thread or a thread each (cpu/backend.c), or those of one rank
 * with the others behind a transport (transport/engine.c). Engines differ in who runs the
 * workers and in what waiting means; what an operation does is the same for all.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>

#include "base/err.h"
#include "runtime/backend/backend.h"
#include "runtime/interpreter/view.h"
#include "runtime/plan/layout.h"

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

struct copse_interpreter;

/* How workers are run. `own` in the interpreter is the engine's. */
struct copse_engine {
  bool looks_at_packets; /* else a worker waits for their channels, as for other data */
  /* `context` is what copse_interpreter_new was given. close takes what is half open. */
  copse_status (*open)(struct copse_interpreter *exec, void *context, struct copse_err *err);
  void (*close)(struct copse_interpreter *exec);
  /* One launch: workers are at their start, layout and scratch are set. */
  copse_status (*run)(struct copse_interpreter *exec, struct copse_err *err);
  /* For ranks that are in other processes. stage: returns the memory from which the bytes are sent
   * that a MOVE stores at another rank. That is `ready`, memory here that holds the same bytes once
   * the MOVE is done, or, where `ready` is NULL, room for so many bytes; NULL when the MOVE must
   * wait. sends: whether some of these bytes are still being sent, and nothing may be stored there.
   */
  unsigned char *(*stage)(const struct copse_interpreter *exec, size_t bytes, unsigned char *ready);
  bool (*sends)(const struct copse_interpreter *exec, const unsigned char *at, size_t bytes);
  void (*send)(const struct copse_interpreter *exec, const struct copse_plan_op *op);
};

struct copse_interpreter {
  struct copse_interpreter *next; /* of the backend's */
  const struct copse_plan *plan;
  const struct copse_engine *engine;
  void *own;     /* the engine's */
  bool one_rank; /* only the memory and workers of `rank` are in this process */
  uint32_t rank;
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
  /* Called after each operation that a worker has done; or NULL. */
  void (*trace)(const void *context, uint32_t worker, const struct copse_plan_op *op,
                uint32_t chunk);
  const void *trace_context;
};

/* Makes an interpreter; the plan is borrowed until the free. COPSE_NOMEM, or what the engine's open
 * returns. */
copse_status copse_interpreter_new(const struct copse_plan *plan, const struct copse_engine *engine,
                                   void *context, struct copse_interpreter **out,
                                   struct copse_err *err) COPSE_CHECKED;
void copse_interpreter_free(struct copse_interpreter *exec);

/* Runs one launch to its end; calls[i] is that of the i-th rank here. COPSE_INVALID after a launch
 * that failed; COPSE_REFUTED on a deadlock (the text says who waits for whom), on a channel left
 * unbalanced, and where an engine that watches sees nothing move for stall_seconds. */
copse_status copse_interpreter_run(struct copse_interpreter *exec, const struct copse_call *calls,
                                   struct copse_err *err) COPSE_CHECKED;

/* Whether the rank's memory and workers are in this process. */
static inline bool copse_exec_is_here(const struct copse_interpreter *exec, uint32_t rank) {
  return !exec->one_rank || exec->rank == rank;
}

enum copse_exec_step {
  COPSE_STEP_FINISHED,
  COPSE_STEP_WAITS,
  COPSE_STEP_SIGNALLED,
  COPSE_STEP_LOOKS /* packets are missing, and no signal says when they come */
};

/*
 * Runs worker w until it is finished, stands at a WAIT that isn't satisfied, or has just
 * signalled (*channel tells which; the backend decides whether that matters and goes on).
 * Signals release what was written before, satisfied waits acquire it. Whether packets are
 * waited for by their channels or by looking at them is the backend's choice.
 */
enum copse_exec_step copse_exec_advance(struct copse_interpreter *exec, uint32_t w,
                                        uint32_t *channel);

/* Whether the next WAIT on the channel would be satisfied. Acquires. */
static inline bool copse_exec_is_signalled(const struct copse_exec_channel *channel) {
  return atomic_load_explicit(&channel->signals, memory_order_acquire) > channel->waits;
}

/* Returns COPSE_REFUTED for workers that stand still, with a line that follows who waits for whom:
 * "deadlock: rank 3 worker 1 waits for rank 5 worker 0 (channel 17, chunk 2), which waits for ...".
 * `what` is its first word or words. */
copse_status copse_exec_report_standstill(const struct copse_interpreter *exec, const char *what,
                                          struct copse_err *err) COPSE_CHECKED;

/* Returns the channel that an unfinished worker stands at, which waits at a WAIT or for packets. */
uint32_t copse_exec_waited_channel(const struct copse_interpreter *exec, uint32_t w);
