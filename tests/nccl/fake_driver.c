/* A libcuda.so.1 for tests without a GPU: device memory is the host's. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/fake_nccl.h"

static atomic_bool out_of_memory;
void fake_driver_run_out_of_memory(bool yes) { out_of_memory = yes; }

static atomic_int n_allocated;
int fake_driver_allocated(void) { return n_allocated; }

static char context;

#define DRIVER(name, params) \
  FAKE int name params;      \
  int name params

DRIVER(cuInit, (unsigned flags)) { return (int)flags; }
DRIVER(cuDeviceGet, (int *device, int ordinal)) {
  *device = ordinal;
  return 0;
}
DRIVER(cuDevicePrimaryCtxRetain, (void **made, int device)) {
  (void)device;
  *made = &context;
  return 0;
}
DRIVER(cuDevicePrimaryCtxRelease_v2, (int device)) { return device * 0; }

/* As the real one, a stack of the thread. */
static _Thread_local int depth;
DRIVER(cuCtxPushCurrent_v2, (void *pushed)) {
  depth++;
  return pushed == &context ? 0 : 201;
}
DRIVER(cuCtxPopCurrent_v2, (void **popped)) {
  if (depth == 0) return 201;
  depth--;
  *popped = &context;
  return 0;
}
DRIVER(cuStreamCreate, (void **stream, unsigned flags)) {
  (void)flags;
  if (depth == 0) return 201;
  *stream = malloc(1);
  return 0;
}
DRIVER(cuStreamSynchronize, (void *stream)) { return stream ? 0 : 400; }
DRIVER(cuStreamDestroy_v2, (void *stream)) {
  free(stream);
  return 0;
}
DRIVER(cuMemAlloc_v2, (uint64_t * memory, size_t bytes)) {
  if (depth == 0) return 201;
  if (out_of_memory) return 2;
  n_allocated++;
  *memory = (uint64_t)(uintptr_t)malloc(bytes);
  return 0;
}
DRIVER(cuMemFree_v2, (uint64_t memory)) {
  n_allocated--;
  free((void *)(uintptr_t)memory);
  return 0;
}
static atomic_bool host_is_full;
void fake_driver_fill_host(bool yes) { host_is_full = yes; }

DRIVER(cuMemAllocHost_v2, (void **memory, size_t bytes)) {
  if (depth == 0) return 201;
  if (host_is_full) return 2;
  n_allocated++;
  *memory = malloc(bytes);
  return 0;
}
DRIVER(cuMemFreeHost, (void *memory)) {
  n_allocated--;
  free(memory);
  return 0;
}
DRIVER(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream)) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return stream ? 0 : 400;
}
DRIVER(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream)) {
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return stream ? 0 : 400;
}
DRIVER(cuThreadExchangeStreamCaptureMode, (int *mode)) {
  static _Thread_local int now;
  int old = now;
  now = *mode;
  *mode = old;
  return 0;
}
DRIVER(cuGetErrorString, (int result, const char **text)) {
  *text = result == 2 ? "out of memory" : "some error";
  return 0;
}
