/*
 * Inside src/runtime/cuda, and for copse_comm_init_nccl: a bootstrap over the NCCL communicator
 * that a job already has.
 */
#ifndef COPSE_RUNTIME_CUDA_NCCL_BOOTSTRAP_H
#define COPSE_RUNTIME_CUDA_NCCL_BOOTSTRAP_H

#include "base/err.h"
#include "copse/comm.h"

/*
 * nccl_comm: an ncclComm_t, borrowed until the free. NCCL is the one in the process, else
 * libnccl.so.2 by dlopen. COPSE_DEVICE names the call that failed, or says that there is no NCCL.
 */
copse_status copse_nccl_bootstrap_new(void *nccl_comm, int *n_ranks, int *rank, int *device,
                                      copse_bootstrap *out, struct copse_err *err) COPSE_CHECKED;
/* Leaves *bootstrap zeroed; takes a zeroed one. */
void copse_nccl_bootstrap_free(copse_bootstrap *bootstrap);

#endif
