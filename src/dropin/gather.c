/*
 * The all-gather by which ranks agree on a new communicator: ncclAllGather over a few bytes of
 * device memory, which a handful of calls of the CUDA driver provide (libcuda.so.1 is loaded when
 * first needed, so that the drop-in links without CUDA).
 */
#include "dropin/gather.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "dropin/real.h"

/* Zero-initialise; free with scratch_free. */
struct scratch {
  int device;
  void *context;
  cudaStream_t stream; /* own, not ordered with the default stream */
  void *memory;
};

/* As in cuda.h: CUresult and the capture mode are int-sized enums, CUdevice an int,
 * CUdeviceptr 64 bits, handles are pointers. */
#define DRIVER_FUNCTIONS(X)                                                              \
  X(cuInit, (unsigned flags))                                                            \
  X(cuDeviceGet, (int *device, int ordinal))                                             \
  X(cuDevicePrimaryCtxRetain, (void **context, int device))                              \
  X(cuDevicePrimaryCtxRelease_v2, (int device))                                          \
  X(cuCtxPushCurrent_v2, (void *context))                                                \
  X(cuCtxPopCurrent_v2, (void **context))                                                \
  X(cuStreamCreate, (cudaStream_t * stream, unsigned flags))                             \
  X(cuStreamSynchronize, (cudaStream_t stream))                                          \
  X(cuStreamDestroy_v2, (cudaStream_t stream))                                           \
  X(cuMemAlloc_v2, (uint64_t * memory, size_t bytes))                                    \
  X(cuMemFree_v2, (uint64_t memory))                                                     \
  X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, cudaStream_t s)) \
  X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, cudaStream_t s))       \
  X(cuThreadExchangeStreamCaptureMode, (int *mode))                                      \
  X(cuGetErrorString, (int result, const char **text))

#define STREAM_NON_BLOCKING 1u

#define DECLARE(name, params) int(*name) params;
static struct { DRIVER_FUNCTIONS(DECLARE) } cu;
#undef DECLARE

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why `cu` is not complete, or "" */

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    snprintf(missing, sizeof missing, "%s", dlerror());
    return;
  }
#define LOOK_UP(name, params)                     \
  cu.name = (int(*) params)dlsym(library, #name); \
  if (!cu.name) snprintf(missing, sizeof missing, "libcuda.so.1 has no %s", #name);
  DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  if (!*missing && cu.cuInit(0) != 0) strcpy(missing, "cuInit failed");
}

static copse_status need_driver(struct copse_err *err) {
  (void)pthread_once(&once, load);
  return *missing ? copse_fail(err, COPSE_DEVICE, "the CUDA driver: %s", missing) : COPSE_OK;
}

static copse_status check_cuda(int result, const char *call, struct copse_err *err) {
  if (result == 0) return COPSE_OK;
  const char *text = NULL;
  (void)cu.cuGetErrorString(result, &text);
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, text ? text : "an unknown error");
}
#define CU_TRY(name, args) COPSE_TRY(check_cuda(cu.name args, #name, err))

static void scratch_free(struct scratch *scratch) {
  if (!scratch->context) return;
  if (cu.cuCtxPushCurrent_v2(scratch->context) == 0) {
    if (scratch->memory) (void)cu.cuMemFree_v2((uint64_t)(uintptr_t)scratch->memory);
    if (scratch->stream) (void)cu.cuStreamDestroy_v2(scratch->stream);
    (void)cu.cuCtxPopCurrent_v2(&(void *){NULL});
  }
  (void)cu.cuDevicePrimaryCtxRelease_v2(scratch->device);
  *scratch = (struct scratch){0};
}

/* `bytes` of memory of the device, its first n_mine filled with `mine`. COPSE_DEVICE. */
static copse_status scratch_new(struct scratch *scratch, int device, size_t bytes, const void *mine,
                                size_t n_mine, struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool pushed = false;
  uint64_t memory = 0;
  *scratch = (struct scratch){0};
  COPSE_TRY(need_driver(err));
  CU_TRY(cuDeviceGet, (&scratch->device, device));
  CU_TRY(cuDevicePrimaryCtxRetain, (&scratch->context, scratch->device));
  CU_TRY(cuCtxPushCurrent_v2, (scratch->context));
  pushed = true;
  CU_TRY(cuStreamCreate, (&scratch->stream, STREAM_NON_BLOCKING));
  CU_TRY(cuMemAlloc_v2, (&memory, bytes));
  scratch->memory = (void *)(uintptr_t)memory;
  CU_TRY(cuMemcpyHtoDAsync_v2, (memory, mine, n_mine, scratch->stream));
  CU_TRY(cuStreamSynchronize, (scratch->stream)); /* `mine` is the caller's again */
out:
  if (pushed) (void)cu.cuCtxPopCurrent_v2(&(void *){NULL});
  if (status != COPSE_OK) scratch_free(scratch);
  return status;
}

/* Waits for what is on the stream and copies [offset, offset + bytes). */
static copse_status scratch_read(struct scratch *scratch, size_t offset, void *out, size_t bytes,
                                 struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool pushed = false;
  CU_TRY(cuCtxPushCurrent_v2, (scratch->context));
  pushed = true;
  CU_TRY(cuMemcpyDtoHAsync_v2,
         (out, (uint64_t)(uintptr_t)scratch->memory + offset, bytes, scratch->stream));
  CU_TRY(cuStreamSynchronize, (scratch->stream));
out:
  if (pushed) (void)cu.cuCtxPopCurrent_v2(&(void *){NULL});
  return status;
}

int copse_nccl_capture_mode(int mode) {
  (void)pthread_once(&once, load);
  if (!*missing) (void)cu.cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

#define NCCL_INT8 0u

static copse_status check(ncclResult_t result, const char *call, struct copse_err *err) {
  if (result == ncclSuccess) return COPSE_OK;
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, copse_nccl_real_GetErrorString(result));
}

/* The send buffer lies before the receive buffer. */
static copse_status launch(const struct copse_nccl_gather *items, struct scratch *scratch, size_t n,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  COPSE_TRY(check(copse_nccl_real_GroupStart(), "ncclGroupStart", err));
  for (size_t i = 0; i < n; i++) {
    char *memory = scratch[i].memory;
    ncclResult_t result = copse_nccl_real_AllGather(memory, memory + items[i].bytes, items[i].bytes,
                                                    NCCL_INT8, items[i].comm, scratch[i].stream);
    if (status == COPSE_OK) status = check(result, "ncclAllGather", err);
  }
  ncclResult_t result = copse_nccl_real_GroupEnd(); /* also after a failure: it was started */
  if (status == COPSE_OK) status = check(result, "ncclGroupEnd", err);
out:
  return status;
}

copse_status copse_nccl_gather_all(const struct copse_nccl_gather *items, size_t n,
                                   struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct scratch *scratch = NULL;
  COPSE_TRY(copse_calloc(n, sizeof *scratch, &scratch, err));
  for (size_t i = 0; i < n; i++) {
    const struct copse_nccl_gather *it = &items[i];
    COPSE_TRY(scratch_new(&scratch[i], it->device, ((size_t)it->n_ranks + 1) * it->bytes, it->mine,
                          it->bytes, err));
  }
  COPSE_TRY(launch(items, scratch, n, err));
  for (size_t i = 0; i < n; i++)
    COPSE_TRY(scratch_read(&scratch[i], items[i].bytes, items[i].all,
                           (size_t)items[i].n_ranks * items[i].bytes, err));
out:
  for (size_t i = 0; scratch && i < n; i++) scratch_free(&scratch[i]);
  free(scratch);
  return status;
}

struct apart {
  const struct copse_nccl_gather *item;
  struct copse_err *err;
  copse_status status;
};

static void *run_apart(void *context) {
  struct apart *it = context;
  it->status = copse_nccl_gather_all(it->item, 1, it->err);
  return NULL;
}

copse_status copse_nccl_gather_apart(const struct copse_nccl_gather *item, struct copse_err *err) {
  struct apart apart = {item, err, COPSE_OK};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_apart, &apart) != 0) return copse_fail_nomem(err);
  pthread_join(thread, NULL);
  return apart.status;
}
