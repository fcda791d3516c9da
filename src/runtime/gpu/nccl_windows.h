/*
 * Inside src/runtime/cuda only: memory that all ranks of an NCCL communicator address, as one of
 * NCCL's symmetric windows (2.28 and later). It reaches as far as NCCL's load and store do,
 * across the hosts of an NVLink domain too, where CUDA IPC ends at the host.
 */
#ifndef COPSE_RUNTIME_GPU_NCCL_WINDOWS_H
#define COPSE_RUNTIME_GPU_NCCL_WINDOWS_H

#include "runtime/gpu/cuda_machine.h"

/*
 * Zeroed memory of `bytes` bytes at every rank; mapped[r] gets rank r's address. Collective.
 * COPSE_UNSUPPORTED where the bootstrap isn't NCCL, its version isn't the one that copse was
 * built for, or some rank is out of reach; every mapping is tried before it is trusted. All
 * ranks succeed or none.
 */
copse_status copse_nccl_window_new(struct copse_cuda_machine *machine, uint64_t bytes,
                                   unsigned char **mapped, struct copse_nccl_window *window,
                                   struct copse_err *err);
void copse_nccl_window_free(struct copse_cuda_machine *machine, struct copse_nccl_window *window);

#endif
