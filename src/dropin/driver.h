/*
 * The few calls of the CUDA driver (libcuda.so.1, loaded when first needed) by which ranks
 * exchange records over NCCL: a stream and some device memory.
 */
#ifndef COPSE_DROPIN_DRIVER_H
#define COPSE_DROPIN_DRIVER_H

#include <stddef.h>

#include "base/err.h"
#include "dropin/abi.h"

/* Zero-initialise; free with copse_nccl_scratch_free. */
struct copse_nccl_scratch {
  int device;
  void *context;
  cudaStream_t stream; /* own, not ordered with the default stream */
  void *memory;
};

/* `bytes` of memory of the device, its first n_mine filled with `mine`. COPSE_DEVICE. */
copse_status copse_nccl_scratch_new(struct copse_nccl_scratch *scratch, int device, size_t bytes,
                                    const void *mine, size_t n_mine,
                                    struct copse_err *err) COPSE_CHECKED;
/* Waits for what is on the stream and copies [offset, offset + bytes). */
copse_status copse_nccl_scratch_read(struct copse_nccl_scratch *scratch, size_t offset, void *out,
                                     size_t bytes, struct copse_err *err) COPSE_CHECKED;
void copse_nccl_scratch_free(struct copse_nccl_scratch *scratch);

/* Some other thread may be capturing a graph; what this thread calls shall not end that.
 * Returns what to give to the next call, which undoes it. */
int copse_nccl_capture_mode(int mode);
#define COPSE_NCCL_CAPTURE_RELAXED 2

#endif
