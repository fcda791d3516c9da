/*
 * Inside src/runtime/cuda only: a layer's counts of pairs on their way to the host.
 */
#ifndef COPSE_RUNTIME_MOE_COUNTS_H
#define COPSE_RUNTIME_MOE_COUNTS_H

extern "C" {
#include "runtime/moe/job.h"
}

extern const struct copse_moe_counts_ops copse_moe_counts_cuda;

#endif
