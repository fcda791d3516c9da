#include "dropin/gather.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "dropin/driver.h"
#include "dropin/real.h"

#define NCCL_INT8 0u

static copse_status check(ncclResult_t result, const char *call, struct copse_err *err) {
  if (result == ncclSuccess) return COPSE_OK;
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, copse_nccl_real_GetErrorString(result));
}

/* The send buffer lies before the receive buffer. */
static copse_status launch(const struct copse_nccl_gather *items,
                           struct copse_nccl_scratch *scratch, size_t n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  COPSE_TRY(check(copse_nccl_real_GroupStart(), "ncclGroupStart", err));
  for (size_t i = 0; i < n; i++) {
    char *memory = scratch[i].memory;
    ncclResult_t result = copse_nccl_real_AllGather(memory, memory + items[i].bytes, items[i].bytes,
                                                    NCCL_INT8, items[i].comm, scratch[i].stream);
    if (status == COPSE_OK) status = check(result, "ncclAllGather", err);
  }
  ncclResult_t result = copse_nccl_real_GroupEnd(); /* also after a failure: it was started */
  if (status == COPSE_OK) status = check(result, "ncclGroupEnd", err);
out:
  return status;
}

copse_status copse_nccl_gather_all(const struct copse_nccl_gather *items, size_t n,
                                   struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_nccl_scratch *scratch = NULL;
  COPSE_TRY(copse_calloc(n, sizeof *scratch, &scratch, err));
  for (size_t i = 0; i < n; i++) {
    const struct copse_nccl_gather *it = &items[i];
    COPSE_TRY(copse_nccl_scratch_new(&scratch[i], it->device, ((size_t)it->n_ranks + 1) * it->bytes,
                                     it->mine, it->bytes, err));
  }
  COPSE_TRY(launch(items, scratch, n, err));
  for (size_t i = 0; i < n; i++)
    COPSE_TRY(copse_nccl_scratch_read(&scratch[i], items[i].bytes, items[i].all,
                                      (size_t)items[i].n_ranks * items[i].bytes, err));
out:
  for (size_t i = 0; scratch && i < n; i++) copse_nccl_scratch_free(&scratch[i]);
  free(scratch);
  return status;
}

struct apart {
  const struct copse_nccl_gather *item;
  struct copse_err *err;
  copse_status status;
};

static void *run_apart(void *context) {
  struct apart *it = context;
  it->status = copse_nccl_gather_all(it->item, 1, it->err);
  return NULL;
}

copse_status copse_nccl_gather_apart(const struct copse_nccl_gather *item, struct copse_err *err) {
  struct apart apart = {item, err, COPSE_OK};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_apart, &apart) != 0) return copse_fail_nomem(err);
  pthread_join(thread, NULL);
  return apart.status;
}
