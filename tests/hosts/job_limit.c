/* In C, for the drop-in's own headers. Allocations of copse, by --wrap, can fail. */
#include <limits.h>

#include "base/memory.h"
#include "copse/comm.h"
#include "dropin/comms.h"

int job_set_timeout(ncclComm_t nccl, double seconds);

int job_set_timeout(ncclComm_t nccl, double seconds) {
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  int set = comm && comm->copse && copse_comm_set_timeout(comm->copse, seconds) == COPSE_OK;
  (void)copse_nccl_release(comm);
  return set;
}

/* ---- allocations: of this thread's ------------------------------------------------------------- */

static _Thread_local int n_allocations, failing_from = INT_MAX, failing_to = INT_MAX;

int job_allocations(void);
int job_allocations(void) { return n_allocations; }

void job_fail_allocations(int nth, int n);
void job_fail_allocations(int nth, int n) {
  failing_from = nth > 0 ? n_allocations + nth : INT_MAX;
  failing_to = nth > 0 && n > 0 ? failing_from + n : INT_MAX;
}

static int fails(void) {
  n_allocations++;
  return n_allocations >= failing_from && n_allocations < failing_to;
}

#define WRAP(name, params, args)                                        \
  copse_status __real_##name params COPSE_CHECKED;                      \
  copse_status __wrap_##name params COPSE_CHECKED;                      \
  copse_status __wrap_##name params {                                   \
    return fails() ? copse_fail_nomem(err) : __real_##name args;        \
  }
WRAP(copse_calloc, (size_t n, size_t size, void *out, struct copse_err *err), (n, size, out, err))
WRAP(copse_grow, (void *array, size_t *capacity, size_t need, size_t size, struct copse_err *err),
     (array, capacity, need, size, err))
WRAP(copse_arena_array,
     (struct copse_arena * arena, size_t n, size_t size, void *out, struct copse_err *err),
     (arena, n, size, out, err))
