/* What a build with CUDA offers to the rest of the runtime. */
#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "runtime/gpu/gpu.h"

extern const struct copse_moe_ops copse_moe_cuda; /* runtime/moe/moe.cu */
}

static int device_count(void) {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  (void)cudaGetLastError();
  return 0;
}

static copse_status allocate(int device, size_t bytes, void **out, struct copse_err *err) {
  copse_on_device here(device);
  COPSE_CUDA(cudaMalloc(out, bytes ? bytes : 1));
  return COPSE_OK;
}

static void release(int device, void *memory) {
  copse_on_device here(device);
  (void)cudaFree(memory);
}

static copse_status copy(int device, void *to, const void *from, size_t bytes,
                         struct copse_err *err) {
  copse_on_device here(device);
  COPSE_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  return COPSE_OK;
}

static const struct copse_gpu_support support = {
    &copse_cuda_backend,       &copse_moe_cuda, device_count, copse_nccl_bootstrap_new,
    copse_nccl_bootstrap_free, allocate,        release,      copy};

extern "C" const struct copse_gpu_support *copse_gpu(void) { return &support; }
