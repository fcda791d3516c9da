/*
 * copse's errors in NCCL's words.
 */
#ifndef COPSE_DROPIN_STATUS_H
#define COPSE_DROPIN_STATUS_H

#include "copse/copse.h"
#include "dropin/abi.h"

ncclResult_t copse_nccl_result(copse_status status);

/* The same, and keeps copse_last_error() as the text of the last failure (of any thread). */
ncclResult_t copse_nccl_failed(copse_status status);

/*
 * What ncclGetLastError returns: NCCL's own text, after copse's if there was a failure. Valid
 * until the thread's next call.
 */
const char *copse_nccl_last_error(const char *of_nccl);

#endif
