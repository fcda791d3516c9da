/* All-gathers over NCCL for ranks that agree, before the caller can use the communicator. A handful
 * of calls of the CUDA driver provide the memory and a stream (libcuda.so.1 is loaded when first
 * needed, so that the drop-in links without CUDA). */
#include "dropin/gather.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "dropin/real.h"

/* ---- trying again ---------------------------------------------------------------------------
 */

#define TRIES 4
#define PAUSE_US 20000u

bool copse_nccl_tries_again(copse_status status, int try) {
  if (status == COPSE_OK || try + 1 >= TRIES) return false;
  (void)usleep(PAUSE_US << try);
  return true;
}

/* ---- the driver -------------------------------------------------------------------------------
 */

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
  X(cuMemAllocHost_v2, (void **memory, size_t bytes))                                    \
  X(cuMemFreeHost, (void *memory))                                                       \
  X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, cudaStream_t s)) \
  X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, cudaStream_t s))       \
  X(cuThreadExchangeStreamCaptureMode, (int *mode))                                      \
  X(cuGetErrorString, (int result, const char **text))

#define STREAM_NON_BLOCKING 1u

#define DECLARE(name, params) int(*name) params;
static struct { DRIVER_FUNCTIONS(DECLARE) } cu;
#undef DECLARE

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
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
  (void)pthread_once(&driver_once, load);
  return *missing ? copse_fail(err, COPSE_DEVICE, "the CUDA driver: %s", missing) : COPSE_OK;
}

static copse_status check_cuda(int result, const char *call, struct copse_err *err) {
  if (result == 0) return COPSE_OK;
  const char *text = NULL;
  (void)cu.cuGetErrorString(result, &text);
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, text ? text : "an unknown error");
}
#define CU_DO(name, args) COPSE_DO(check_cuda(cu.name args, #name, err))

/* Ends at the end of a scope (COPSE_AT_END) what cuCtxPushCurrent has begun, if *pushed. */
static void pop_at(const bool *pushed) {
  if (*pushed) (void)cu.cuCtxPopCurrent_v2(&(void *){NULL});
}

static void scratch_free(struct copse_nccl_scratch *scratch) {
  if (!scratch->context) return;
  if (cu.cuCtxPushCurrent_v2(scratch->context) == 0) {
    if (scratch->stream) (void)cu.cuStreamSynchronize(scratch->stream); /* after a failure */
    if (scratch->memory && scratch->on_host)
      (void)cu.cuMemFreeHost(scratch->memory);
    else if (scratch->memory)
      (void)cu.cuMemFree_v2((uint64_t)(uintptr_t)scratch->memory);
    if (scratch->stream) (void)cu.cuStreamDestroy_v2(scratch->stream);
    (void)cu.cuCtxPopCurrent_v2(&(void *){NULL});
  }
  (void)cu.cuDevicePrimaryCtxRelease_v2(scratch->device);
  *scratch = (struct copse_nccl_scratch){0};
}

/* Allocates `bytes` of memory of the device, its first n_mine filled with `mine`. on_host:
 * page-locked memory of the host, which the device addresses too. COPSE_DEVICE; then too the
 * scratch is to be freed. */
static copse_status scratch_new(struct copse_nccl_scratch *scratch, int device, size_t bytes,
                                bool on_host, const void *mine, size_t n_mine,
                                struct copse_err *err) {
  COPSE_AT_END(pop_at) bool pushed = false;
  uint64_t memory = 0;
  COPSE_DO(need_driver(err));
  CU_DO(cuDeviceGet, (&scratch->device, device));
  CU_DO(cuDevicePrimaryCtxRetain, (&scratch->context, scratch->device));
  CU_DO(cuCtxPushCurrent_v2, (scratch->context));
  pushed = true;
  CU_DO(cuStreamCreate, (&scratch->stream, STREAM_NON_BLOCKING));
  scratch->on_host = on_host;
  if (on_host) {
    CU_DO(cuMemAllocHost_v2, (&scratch->memory, bytes));
    memcpy(scratch->memory, mine, n_mine);
    return COPSE_OK;
  }
  CU_DO(cuMemAlloc_v2, (&memory, bytes));
  scratch->memory = (void *)(uintptr_t)memory;
  CU_DO(cuMemcpyHtoDAsync_v2, (memory, mine, n_mine, scratch->stream));
  CU_DO(cuStreamSynchronize, (scratch->stream)); /* `mine` is the caller's again */
  return COPSE_OK;
}

/* Waits for what is on the stream and copies [offset, offset + bytes). */
static copse_status scratch_read(struct copse_nccl_scratch *scratch, size_t offset, void *out,
                                 size_t bytes, struct copse_err *err) {
  COPSE_AT_END(pop_at) bool pushed = false;
  CU_DO(cuCtxPushCurrent_v2, (scratch->context));
  pushed = true;
  if (!scratch->on_host)
    CU_DO(cuMemcpyDtoHAsync_v2,
          (out, (uint64_t)(uintptr_t)scratch->memory + offset, bytes, scratch->stream));
  CU_DO(cuStreamSynchronize, (scratch->stream));
  if (scratch->on_host) memcpy(out, (const char *)scratch->memory + offset, bytes);
  return COPSE_OK;
}

int copse_nccl_capture_mode(int mode) {
  (void)pthread_once(&driver_once, load);
  if (!*missing) (void)cu.cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

#define NCCL_INT8 0u

static copse_status check(ncclResult_t result, const char *call, struct copse_err *err) {
  if (result == ncclSuccess) return COPSE_OK;
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, copse_nccl_real_GetErrorString(result));
}

/* Launches the all-gathers; the send buffer lies before the receive buffer. */
static copse_status launch(const struct copse_nccl_gather *items,
                           struct copse_nccl_scratch *scratch, size_t n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  COPSE_DO(check(copse_nccl_real_GroupStart(), "ncclGroupStart", err));
  for (size_t i = 0; i < n; i++) {
    char *memory = scratch[i].memory;
    ncclResult_t result = copse_nccl_real_AllGather(memory, memory + items[i].bytes, items[i].bytes,
                                                    NCCL_INT8, items[i].comm, scratch[i].stream);
    if (status == COPSE_OK) status = check(result, "ncclAllGather", err);
  }
  ncclResult_t result = copse_nccl_real_GroupEnd(); /* also after a failure: it was started */
  return status == COPSE_OK ? check(result, "ncclGroupEnd", err) : status;
}

/* Begins an all-gather in memory of the host where the GPU has not a few KiB left: that is no
 * reason to stay away. */
static copse_status begin(const struct copse_nccl_gather *it, struct copse_nccl_scratch *scratch,
                          struct copse_err *err) {
  const size_t bytes = ((size_t)it->n_ranks + 1) * it->bytes;
  copse_status status;
  for (int try = 0;; try++) {
    status = scratch_new(scratch, it->device, bytes, try == TRIES - 1, it->mine, it->bytes, err);
    if (!copse_nccl_tries_again(status, try)) return status;
    scratch_free(scratch);
  }
}

static copse_status finish(const struct copse_nccl_gather *it, struct copse_nccl_scratch *scratch,
                           struct copse_err *err) {
  copse_status status;
  for (int try = 0;; try++) {
    status = scratch_read(scratch, it->bytes, it->all, (size_t)it->n_ranks * it->bytes, err);
    if (!copse_nccl_tries_again(status, try)) return status;
  }
}

/* ---- its time limit ---------------------------------------------------------------------------
 * A thread of its own, since NCCL may wait for its peers on the GPU, and on the host where it
 * connects them. Only the end of the communicator ends both. */

struct watch {
  const struct copse_nccl_gather *items;
  size_t n;
  double seconds;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool runs, done, expired; /* the latter two under `lock` */
};

static void *run_watch(void *context) {
  struct watch *it = context;
  const struct timespec until = copse_clock_at(copse_clock_seconds() + it->seconds);
  int error = 0;
  pthread_mutex_lock(&it->lock);
  while (!it->done && error == 0) error = pthread_cond_timedwait(&it->changed, &it->lock, &until);
  const bool expired = it->expired = !it->done;
  pthread_mutex_unlock(&it->lock);
  copse_nccl_enter();
  for (size_t i = 0; i < it->n && expired; i++) (void)copse_nccl_real_CommAbort(it->items[i].comm);
  copse_nccl_leave();
  return NULL;
}

static void watch_begin(struct watch *it) {
  if (it->seconds <= 0) return;
  pthread_mutex_init(&it->lock, NULL);
  copse_clock_condition(&it->changed);
  for (int try = 0; !it->runs; try++) { /* without a thread there is no limit */
    it->runs = pthread_create(&it->thread, NULL, run_watch, it) == 0;
    if (!copse_nccl_tries_again(it->runs ? COPSE_OK : COPSE_NOMEM, try)) break;
  }
}

static bool has_expired(struct watch *it) {
  if (!it->runs) return false;
  COPSE_HOLD(&it->lock);
  return it->expired;
}

/* Whether the communicators were aborted. */
static bool watch_end(struct watch *it) {
  if (it->seconds <= 0) return false;
  pthread_mutex_lock(&it->lock);
  it->done = true;
  pthread_cond_signal(&it->changed);
  pthread_mutex_unlock(&it->lock);
  if (it->runs) pthread_join(it->thread, NULL);
  pthread_cond_destroy(&it->changed);
  pthread_mutex_destroy(&it->lock);
  return it->expired;
}

copse_status copse_nccl_gather_all(const struct copse_nccl_gather *items,
                                   struct copse_nccl_scratch *scratch, size_t n, double seconds,
                                   struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct watch watch = {.items = items, .n = n, .seconds = seconds};
  for (size_t i = 0; i < n; i++) COPSE_TRY(begin(&items[i], &scratch[i], err));
  watch_begin(&watch);
  for (int try = 0; try == 0 || (!has_expired(&watch) && copse_nccl_tries_again(status, try - 1));
       try++)
    status = launch(items, scratch, n, err);
  for (size_t i = 0; i < n && status == COPSE_OK; i++) status = finish(&items[i], &scratch[i], err);
  if (watch_end(&watch)) {
    *err = (struct copse_err)COPSE_ERR_INIT;
    status = copse_fail(err, COPSE_TIMEOUT, "some rank didn't come within %g s, or couldn't",
                        seconds);
  }
out:
  for (size_t i = 0; i < n; i++) scratch_free(&scratch[i]);
  return status;
}

struct apart {
  const struct copse_nccl_gather *item;
  double seconds;
  struct copse_err *err;
  copse_status status;
};

static void *run_apart(void *context) {
  struct apart *it = context;
  it->status = copse_nccl_gather_one(it->item, it->seconds, it->err);
  return NULL;
}

copse_status copse_nccl_gather_apart(const struct copse_nccl_gather *item, double seconds,
                                     struct copse_err *err) {
  struct apart apart = {item, seconds, err, COPSE_OK};
  pthread_t thread;
  copse_status status;
  for (int try = 0;; try++) {
    status = pthread_create(&thread, NULL, run_apart, &apart) == 0 ? COPSE_OK : COPSE_NOMEM;
    if (!copse_nccl_tries_again(status, try)) break;
  }
  if (status != COPSE_OK) return copse_fail_nomem(err);
  pthread_join(thread, NULL);
  return apart.status;
}
