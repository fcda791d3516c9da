/* A libcuda.so.1 over the emulated runtime: the few calls by which the drop-in's ranks agree. */
#include <vector>

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#define DRIVER extern "C" __attribute__((visibility("default"), used)) int

/* A primary context is its device's; current ones are a stack of the thread. */
static char contexts[64];
static thread_local std::vector<int> before;

DRIVER cuInit(unsigned flags) { return (int)flags; }
DRIVER cuDeviceGet(int *device, int ordinal) {
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess || ordinal < 0 || ordinal >= n) return 101;
  *device = ordinal;
  return 0;
}
DRIVER cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &contexts[device];
  return 0;
}
DRIVER cuDevicePrimaryCtxRelease_v2(int) { return 0; }
DRIVER cuCtxPushCurrent_v2(void *context) {
  int now = 0;
  if (cudaGetDevice(&now) != cudaSuccess) return 201;
  before.push_back(now);
  return cudaSetDevice((int)((char *)context - contexts)) == cudaSuccess ? 0 : 201;
}
DRIVER cuCtxPopCurrent_v2(void **context) {
  int now = 0;
  if (before.empty() || cudaGetDevice(&now) != cudaSuccess) return 201;
  *context = &contexts[now];
  (void)cudaSetDevice(before.back());
  before.pop_back();
  return 0;
}
DRIVER cuStreamCreate(cudaStream_t *stream, unsigned flags) {
  return before.empty() ? 201 : (int)cudaStreamCreateWithFlags(stream, flags);
}
DRIVER cuStreamSynchronize(cudaStream_t stream) { return (int)cudaStreamSynchronize(stream); }
DRIVER cuStreamDestroy_v2(cudaStream_t stream) { return (int)cudaStreamDestroy(stream); }
DRIVER cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
  void *p = NULL;
  if (before.empty()) return 201;
  const int result = (int)cudaMalloc(&p, bytes);
  *memory = (uint64_t)(uintptr_t)p;
  return result;
}
DRIVER cuMemFree_v2(uint64_t memory) { return (int)cudaFree((void *)(uintptr_t)memory); }
DRIVER cuMemAllocHost_v2(void **memory, size_t bytes) {
  return before.empty() ? 201 : (int)cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}
DRIVER cuMemFreeHost(void *memory) { return (int)cudaFreeHost(memory); }
DRIVER cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, cudaStream_t stream) {
  return (int)cudaMemcpyAsync((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice, stream);
}
DRIVER cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, cudaStream_t stream) {
  return (int)cudaMemcpyAsync(to, (const void *)(uintptr_t)from, bytes, cudaMemcpyDeviceToHost,
                              stream);
}
DRIVER cuThreadExchangeStreamCaptureMode(int *mode) {
  cudaStreamCaptureMode it = (cudaStreamCaptureMode)*mode;
  const int result = (int)cudaThreadExchangeStreamCaptureMode(&it);
  *mode = (int)it;
  return result;
}
DRIVER cuGetErrorString(int result, const char **text) {
  *text = cudaGetErrorString((cudaError_t)result);
  return 0;
}
