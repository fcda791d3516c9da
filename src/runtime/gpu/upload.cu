/*
 * Copies that are over when they return. Not by the default stream, which may not be used while a
 * stream that waits for it is captured, nor by waiting for the whole device, which is never permitted while
 * a stream of it is captured and else waits for what others do (CUDA C++ Programming Guide, "Prohibited and
 * Unhandled Operations" of stream captures).
 */
#include "runtime/gpu/host.h"

static copse_status set(void *to, const void *from, size_t bytes, cudaStream_t stream,
                        struct copse_err *err) {
  if (from)
    COPSE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  else
    COPSE_CUDA(cudaMemsetAsync(to, 0, bytes, stream));
  COPSE_CUDA(cudaStreamSynchronize(stream));
  return COPSE_OK;
}

copse_status copse_cuda_upload(void *to, const void *from, size_t bytes, struct copse_err *err) {
  copse_beside_captures permitted;
  cudaStream_t stream = NULL;
  COPSE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  copse_status status = set(to, from, bytes, stream, err);
  (void)cudaStreamDestroy(stream);
  return status;
}
