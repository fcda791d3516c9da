#include "dropin/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

ncclResult_t copse_nccl_result(copse_status status) {
  switch (status) {
    case COPSE_OK: return ncclSuccess;
    case COPSE_INVALID: return ncclInvalidArgument;
    case COPSE_REFUTED: /* ranks differ */
    case COPSE_UNSUPPORTED: return ncclInvalidUsage;
    case COPSE_BAD_INPUT:
    case COPSE_IO:
    case COPSE_NOMEM: return ncclSystemError;
    case COPSE_DEVICE: return ncclUnhandledCudaError;
    case COPSE_TIMEOUT: /* a peer is gone, or has given up */
    case COPSE_ABORTED: return ncclRemoteError;
    case COPSE_INFEASIBLE:
    case COPSE_OVERFLOW:
    case COPSE_INTERNAL: return ncclInternalError;
  }
  return ncclInternalError;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[512]; /* "" before any */

ncclResult_t copse_nccl_failed(copse_status status) {
  if (status == COPSE_OK) return ncclSuccess;
  pthread_mutex_lock(&lock);
  snprintf(last, sizeof last, "%s", copse_last_error());
  pthread_mutex_unlock(&lock);
  return copse_nccl_result(status);
}

const char *copse_nccl_last_error(const char *of_nccl) {
  static _Thread_local char both[2048];
  pthread_mutex_lock(&lock);
  bool any = *last != '\0';
  if (any) snprintf(both, sizeof both, "copse: %s\n%s", last, of_nccl ? of_nccl : "");
  pthread_mutex_unlock(&lock);
  return any ? both : of_nccl;
}
