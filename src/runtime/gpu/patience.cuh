/*
 * Inside src/runtime/cuda only: waiting with a limit. Whoever waits looks now and then
 * whether somebody has told the kernel to leave, and how long it has waited.
 */
#ifndef COPSE_RUNTIME_GPU_PATIENCE_CUH
#define COPSE_RUNTIME_GPU_PATIENCE_CUH

#include "runtime/gpu/launch.h"
#include "runtime/gpu/order.cuh"

/* What a worker is at, for the report if it waits for too long. */
struct copse_patience {
  struct copse_control *control;
  uint64_t limit_ns;
  uint32_t plan, worker, op, chunk;
};

/* One wait. */
struct copse_wait {
  uint64_t since; /* of the first look at the clock; 0: not yet */
  uint32_t looks; /* may wrap around */
};

/* Between two looks at the control block, which lies across the bus. */
#if defined(__CUDACC__)
#define COPSE_LOOKS 1024u
#else
#define COPSE_LOOKS 64u
#endif

/* After a look in vain; false when it is time to leave. */
__device__ static inline bool copse_keep_waiting(const struct copse_patience *patience,
                                                 struct copse_wait *wait) {
  copse_pause();
  if (++wait->looks % COPSE_LOOKS != 0) return true;
  if (copse_word_load(&patience->control->leave)) return false;
  uint64_t now = copse_device_clock();
  if (wait->since == 0) wait->since = now;
  if (now - wait->since < patience->limit_ns) return true;
  if (copse_word_claim(&patience->control->claimed, 1)) {
    patience->control->plan = patience->plan;
    patience->control->worker = patience->worker;
    patience->control->op = patience->op;
    patience->control->chunk = patience->chunk;
    copse_word_release(&patience->control->leave, COPSE_LEAVE_TIMEOUT);
  }
  return false;
}

#endif
