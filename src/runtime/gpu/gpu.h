/* The GPU parts of this build behind one function, so that all other code is the same with and
 * without CUDA. Builds with CUDA link backend.cu, others gpu_none.c. */
#pragma once

#include "runtime/backend/backend.h"

struct copse_moe_ops;

struct copse_gpu_support {
  const struct copse_backend_ops *backend;
  const struct copse_moe_ops *moe; /* runtime/moe/job.h */
  int (*device_count)(void);       /* usable GPUs; 0 where there is none or no driver */
  void (*device_name)(int device, char *name, size_t size); /* unchanged where it isn't known */

  /* A bootstrap over an ncclComm_t, and its rank, size and device. COPSE_UNSUPPORTED where no
   * NCCL is found. */
  copse_status (*nccl_bootstrap_new)(void *nccl_comm, int *n_ranks, int *rank, int *device,
                                     copse_bootstrap *out, struct copse_err *err);
  void (*nccl_bootstrap_free)(copse_bootstrap *bootstrap);

  /* Memory of a device, for `copse run` and tests. */
  copse_status (*allocate)(int device, size_t bytes, void **out, struct copse_err *err);
  void (*release)(int device, void *memory);
  copse_status (*copy)(int device, void *to, const void *from, size_t bytes, struct copse_err *err);
};

/* Returns the GPU parts; NULL in a build without CUDA. */
const struct copse_gpu_support *copse_gpu(void);
