/*
 * Inside src/runtime/cuda only: waiting with a limit. Whoever waits looks now and then
 * whether somebody has told the kernel to leave, and how long it has waited.
 */
#ifndef COPSE_RUNTIME_CUDA_PATIENCE_CUH
#define COPSE_RUNTIME_CUDA_PATIENCE_CUH

#include "runtime/cuda/launch.h"
#include "runtime/cuda/order.cuh"

/* What a worker was doing when it lost patience; one of a block's threads at a time. */
struct copse_patience {
  struct copse_control *control;
  uint64_t limit_ns;
  uint32_t worker, op, chunk;
  uint64_t since; /* 0: not waiting yet */
};

/* Between two looks at the control block, which lies across the bus. */
#define COPSE_LOOKS 1024u

/* After a look in vain; false when it is time to leave. `looks` is the caller's count. */
__device__ static inline bool copse_keep_waiting(struct copse_patience *patience,
                                                 uint32_t *looks) {
  if (++*looks % COPSE_LOOKS != 0) return true;
  if (copse_word_load(&patience->control->leave)) return false;
  uint64_t now = copse_device_clock();
  if (patience->since == 0) patience->since = now;
  if (now - patience->since < patience->limit_ns) return true;
  if (copse_word_claim(&patience->control->claimed, 1)) {
    patience->control->worker = patience->worker;
    patience->control->op = patience->op;
    patience->control->chunk = patience->chunk;
    copse_word_release(&patience->control->leave, COPSE_LEAVE_TIMEOUT);
  }
  return false;
}

#endif
