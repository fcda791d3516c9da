/*
 * The emulation keeps CUDA's promises: what is asynchronous is so, what is ordered is ordered,
 * what must not be done is refused. Each test ends with nothing alive.
 */
#include <atomic>
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "emulation.h"
extern "C" {
#include "support/support.h"
}
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define EXPECT(call, error)                                                        \
  do {                                                                             \
    cudaError_t expect_ = (call);                                                  \
    ck_assert_msg(expect_ == (error), "%s: %s", #call, cudaGetErrorName(expect_)); \
  } while (0)
#define OK(call) EXPECT(call, cudaSuccess)

/* Every test's last line: how often it misused the runtime, on purpose. */
static void finish(int misuses) {
  ck_assert_int_eq(copse_emulated_leaks(), 0);
  ck_assert_int_eq(copse_emulated_misuses(), misuses);
}

static void configure(int devices, int multiprocessors, int threads, size_t memory) {
  copse_emulated_config c = {devices, multiprocessors, threads, memory};
  copse_emulated_configure(&c);
}

/* Holds a stream up until it is opened. */
struct Gate {
  std::atomic<bool> is_open{false}, is_reached{false};
  static void pass(void *gate) {
    Gate *self = static_cast<Gate *>(gate);
    self->is_reached = true;
    while (!self->is_open) usleep(100);
  }
  void close(cudaStream_t stream) { OK(cudaLaunchHostFunc(stream, pass, this)); }
  void open() { is_open = true; }
};

static cudaStream_t new_stream(unsigned flags) {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
static cudaEvent_t new_event() {
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
template <class T>
static T *new_device(size_t n) {
  T *p;
  OK(cudaMalloc(&p, n * sizeof(T)));
  OK(cudaMemset(p, 0, n * sizeof(T)));
  OK(cudaDeviceSynchronize());
  return p;
}
template <class T>
static std::vector<T> read_back(const T *p, size_t n) {
  std::vector<T> values(n);
  OK(cudaMemcpy(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

/* ---- kernels ------------------------------------------------------------------------------ */

struct AddArgs {
  int *data;
  int value;
};
static __global__ void add_kernel(AddArgs a) {
  a.data[blockIdx.x * blockDim.x + threadIdx.x] += a.value;
}
/* data[0] = 10 * data[0] + value: what ran in which order */
static __global__ void append_kernel(AddArgs a) { a.data[0] = 10 * a.data[0] + a.value; }

template <class A>
static void launch(void (*kernel)(A), unsigned blocks, unsigned threads, A args,
                   cudaStream_t stream, size_t shared = 0) {
  void *list[] = {&args};
  OK(cudaLaunchKernel(kernel, blocks, threads, list, shared, stream));
}
template <class A>
static cudaError_t launch_cooperative(void (*kernel)(A), unsigned blocks, unsigned threads, A args,
                                      cudaStream_t stream) {
  void *list[] = {&args};
  return cudaLaunchCooperativeKernel(kernel, blocks, threads, list, 0, stream);
}

/* ---- devices and errors ------------------------------------------------------------------- */

START_TEST(devices_are_as_configured) {
  configure(3, 5, 512, 4 << 20);
  int value;
  OK(cudaGetDeviceCount(&value));
  ck_assert_int_eq(value, 3);
  OK(cudaSetDevice(2));
  OK(cudaGetDevice(&value));
  ck_assert_int_eq(value, 2);
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 2));
  ck_assert_int_eq(p.multiProcessorCount, 5);
  ck_assert_uint_eq(p.totalGlobalMem, 4 << 20);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerMultiProcessor, 1));
  ck_assert_int_eq(value, 512);
  EXPECT(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT(cudaGetDeviceProperties(&p, -1), cudaErrorInvalidDevice);
  int can;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  ck_assert_int_eq(can, 1);
  OK(cudaDeviceEnablePeerAccess(0, 0));
  EXPECT(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
  OK(cudaDeviceDisablePeerAccess(0));
  EXPECT(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
  configure(0, 1, 32, 0);
  EXPECT(cudaGetDeviceCount(&value), cudaErrorNoDevice);
  ck_assert_int_eq(value, 0);
  finish(0);
}
END_TEST

START_TEST(the_last_error_is_kept_until_read) {
  EXPECT(cudaSetDevice(7), cudaErrorInvalidDevice);
  int device;
  OK(cudaGetDevice(&device));
  std::thread([] { EXPECT(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaSuccess);
  ck_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  ck_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  finish(0);
}
END_TEST

START_TEST(ordered_failures_strike_once) {
  void *p;
  copse_emulated_fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));
  EXPECT(cudaMalloc(&p, 16), cudaErrorMemoryAllocation);
  int calls = copse_emulated_calls();
  OK(cudaMalloc(&p, 16));
  copse_emulated_fail(NULL, 1, cudaErrorUnknown);
  EXPECT(cudaFree(p), cudaErrorUnknown);
  OK(cudaFree(p));
  ck_assert_int_eq(copse_emulated_calls() - calls, 3);
  finish(0);
}
END_TEST

START_TEST(leaks_are_counted) {
  void *p, *host;
  cudaEvent_t event = new_event();
  cudaStream_t stream = new_stream(cudaStreamDefault);
  OK(cudaMalloc(&p, 16));
  OK(cudaMallocHost(&host, 16));
  ck_assert_int_eq(copse_emulated_leaks(), 4);
  OK(cudaFree(p));
  OK(cudaFreeHost(host));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

START_TEST(a_forked_child_is_refused) {
  int device;
  OK(cudaGetDevice(&device));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) _exit(cudaGetDevice(&device) == cudaErrorInitializationError ? 0 : 1);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  finish(0);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------- */

START_TEST(memory_ends_and_comes_back) {
  configure(2, 8, 2048, 1 << 20);
  void *a, *b, *c;
  size_t left, total;
  OK(cudaMalloc(&a, 600 << 10));
  EXPECT(cudaMalloc(&b, 600 << 10), cudaErrorMemoryAllocation);
  ck_assert_ptr_null(b);
  EXPECT(cudaMalloc(&b, SIZE_MAX), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&b, 424 << 10)); /* to the last byte */
  EXPECT(cudaMalloc(&c, 1), cudaErrorMemoryAllocation);
  OK(cudaMemGetInfo(&left, &total));
  ck_assert_uint_eq(left, 0);
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&c, 1 << 20)); /* the other device has its own */
  OK(cudaFree(a));
  OK(cudaSetDevice(0));
  for (int i = 0; i < 100; i++) { /* in pieces that are not freed in order */
    void *p[3];
    for (void *&one : p) OK(cudaMalloc(&one, 150 << 10));
    for (int k : {1, 0, 2}) OK(cudaFree(p[k]));
  }
  OK(cudaMalloc(&a, 600 << 10));
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
  OK(cudaMalloc(&a, 0));
  ck_assert_ptr_null(a);
  OK(cudaFree(NULL));
  finish(0);
}
END_TEST

START_TEST(pointers_are_told_apart) {
  configure(2, 8, 2048, 1 << 20);
  cudaPointerAttributes a;
  char *device, *host, plain[64];
  void *mapped;
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&device, 64));
  OK(cudaHostAlloc(&host, 64, cudaHostAllocMapped));
  OK(cudaPointerGetAttributes(&a, device + 63));
  ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
  ck_assert_int_eq(a.device, 1);
  OK(cudaPointerGetAttributes(&a, device + 64));
  ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
  OK(cudaPointerGetAttributes(&a, host + 1));
  ck_assert_int_eq(a.type, cudaMemoryTypeHost);
  OK(cudaHostGetDevicePointer(&mapped, host, 0));
  ck_assert_ptr_eq(mapped, host);
  OK(cudaPointerGetAttributes(&a, plain));
  ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
  EXPECT(cudaHostGetDevicePointer(&mapped, plain, 0), cudaErrorInvalidValue);
  OK(cudaHostRegister(plain, sizeof plain, cudaHostRegisterMapped));
  EXPECT(cudaHostRegister(plain + 8, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostGetDevicePointer(&mapped, plain, 0));
  OK(cudaHostUnregister(plain));
  EXPECT(cudaHostUnregister(plain), cudaErrorHostMemoryNotRegistered);
  OK(cudaFree(device));
  OK(cudaFreeHost(host));
  finish(1);
}
END_TEST

START_TEST(wrong_pointers_are_refused) {
  char *device, *host, plain[64] = {0};
  OK(cudaMalloc(&device, 64));
  OK(cudaMallocHost(&host, 64));
  EXPECT(cudaFree(plain), cudaErrorInvalidValue);
  EXPECT(cudaFree(device + 1), cudaErrorInvalidValue);
  EXPECT(cudaFree(host), cudaErrorInvalidValue);
  EXPECT(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device + 1, plain, 64, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(plain, device + 32, 33, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 8, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT(cudaMemset(plain, 0, 8), cudaErrorInvalidValue);
  EXPECT(cudaMemset(device, 0, 65), cudaErrorInvalidValue);
  EXPECT(cudaFreeAsync(device, 0), cudaErrorInvalidValue);
  OK(cudaMemcpy(device, plain, 64, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(plain, NULL, 0, cudaMemcpyDeviceToHost));
  OK(cudaFree(device));
  EXPECT(cudaFree(device), cudaErrorInvalidValue);
  EXPECT(cudaMemset(device, 0, 8), cudaErrorInvalidValue);
  OK(cudaFreeHost(host));
  finish(14);
}
END_TEST

START_TEST(memory_that_is_freed_too_early_is_a_fault) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  char *p, plain[8] = {0};
  OK(cudaMallocAsync(&p, 8, stream));
  OK(cudaFreeAsync(p, stream));
  gate.close(stream);
  EXPECT(cudaFreeAsync(p, stream), cudaErrorInvalidValue);
  gate.open();
  OK(cudaStreamSynchronize(stream));

  Gate second;
  OK(cudaMallocAsync(&p, 8, stream));
  second.close(stream);
  OK(cudaFreeAsync(p, stream));
  OK(cudaMemcpyAsync(p, plain, 8, cudaMemcpyHostToDevice, stream));
  second.open();
  EXPECT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT(cudaStreamDestroy(stream), cudaErrorIllegalAddress); /* for good, as in CUDA */
  EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
  ck_assert_int_eq(copse_emulated_misuses(), 2);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__)
START_TEST(sanitizer_knows_the_bounds) {
  char *p, *q;
  OK(cudaMalloc(&p, 100));
  OK(cudaMalloc(&q, 512));
  ck_assert(!__asan_address_is_poisoned(p) && !__asan_address_is_poisoned(p + 99));
  ck_assert(__asan_address_is_poisoned(p + 100) && __asan_address_is_poisoned(q + 512));
  OK(cudaFree(p));
  ck_assert(__asan_address_is_poisoned(p));
  OK(cudaFree(q));
  finish(0);
}
END_TEST
#endif

/* ---- streams and events ------------------------------------------------------------------- */

START_TEST(streams_run_on_their_own_and_in_order) {
  cudaStream_t one = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(2), *host;
  OK(cudaMallocHost(&host, sizeof *host));
  *host = 1;
  Gate gate;
  gate.close(one);
  OK(cudaMemcpyAsync(data, host, sizeof *host, cudaMemcpyHostToDevice, one));
  for (int i = 2; i <= 5; i++) launch(append_kernel, 1, 1, AddArgs{data, i}, one);
  EXPECT(cudaStreamQuery(one), cudaErrorNotReady);
  launch(append_kernel, 1, 1, AddArgs{data + 1, 7}, other); /* doesn't wait for the first */
  OK(cudaStreamSynchronize(other));
  OK(cudaStreamQuery(other));
  EXPECT(cudaStreamQuery(one), cudaErrorNotReady);
  *host = 9; /* read when the copy runs */
  gate.open();
  OK(cudaStreamSynchronize(one));
  std::vector<int> values = read_back(data, 2);
  ck_assert_int_eq(values[0], 92345);
  ck_assert_int_eq(values[1], 7);
  OK(cudaFree(data));
  OK(cudaFreeHost(host));
  OK(cudaStreamDestroy(one));
  OK(cudaStreamDestroy(other));
  EXPECT(cudaStreamQuery(one), cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamDestroy(one), cudaErrorInvalidResourceHandle);
  finish(2);
}
END_TEST

START_TEST(a_destroyed_stream_finishes_its_work) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(1);
  Gate gate;
  gate.close(stream);
  launch(append_kernel, 1, 1, AddArgs{data, 3}, stream);
  OK(cudaStreamDestroy(stream));
  gate.open();
  OK(cudaDeviceSynchronize());
  ck_assert_int_eq(read_back(data, 1)[0], 3);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

START_TEST(the_null_stream_and_blocking_streams_wait_for_each_other) {
  cudaStream_t blocking = new_stream(cudaStreamDefault), free = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(2);
  Gate gate;
  gate.close(blocking);
  launch(append_kernel, 1, 1, AddArgs{data, 1}, blocking);
  launch(append_kernel, 1, 1, AddArgs{data, 2}, cudaStream_t(0));
  launch(append_kernel, 1, 1, AddArgs{data, 3}, blocking);
  launch(append_kernel, 1, 1, AddArgs{data + 1, 4}, free);
  OK(cudaStreamSynchronize(free));
  EXPECT(cudaStreamQuery(0), cudaErrorNotReady);
  gate.open();
  OK(cudaStreamSynchronize(0));
  OK(cudaStreamQuery(cudaStreamLegacy));
  std::vector<int> values = read_back(data, 2);
  ck_assert_int_eq(values[0], 123);
  ck_assert_int_eq(values[1], 4);
  OK(cudaFree(data));
  OK(cudaStreamDestroy(blocking));
  OK(cudaStreamDestroy(free));
  finish(0);
}
END_TEST

START_TEST(events_order_streams_of_all_devices) {
  configure(2, 2, 256, 1 << 20);
  cudaStream_t one = new_stream(cudaStreamNonBlocking);
  cudaEvent_t event = new_event(), foreign;
  int *data = new_device<int>(1);
  OK(cudaSetDevice(1));
  foreign = new_event();
  cudaStream_t other = new_stream(cudaStreamNonBlocking);
  Gate gate;
  OK(cudaStreamWaitEvent(other, event)); /* never recorded: nothing to wait for */
  gate.close(one);
  EXPECT(cudaEventRecord(foreign, one), cudaErrorInvalidResourceHandle);
  int value = 5;
  OK(cudaMemcpyAsync(data, &value, sizeof value, cudaMemcpyHostToDevice, one));
  OK(cudaEventRecord(event, one));
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  OK(cudaStreamWaitEvent(other, event));
  launch(append_kernel, 1, 1, AddArgs{data, 6}, other);
  EXPECT(cudaStreamQuery(other), cudaErrorNotReady);
  gate.open();
  OK(cudaEventSynchronize(event));
  OK(cudaEventQuery(event));
  OK(cudaStreamSynchronize(other));
  ck_assert_int_eq(read_back(data, 1)[0], 56);
  AddArgs args = {data, 0};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, list, 0, one), cudaErrorInvalidResourceHandle);
  OK(cudaFree(data));
  OK(cudaEventDestroy(event));
  OK(cudaEventDestroy(foreign));
  EXPECT(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(one));
  OK(cudaStreamDestroy(other));
  finish(3);
}
END_TEST

START_TEST(events_measure_time) {
  cudaEvent_t start, end, untimed = new_event();
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  float ms;
  EXPECT(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(start, stream));
  gate.close(stream);
  OK(cudaEventRecord(end, stream));
  OK(cudaEventRecord(untimed, stream));
  EXPECT(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  usleep(3000);
  gate.open();
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&ms, start, end));
  ck_assert(ms > 0);
  EXPECT(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, end, untimed}) OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
  finish(2);
}
END_TEST

START_TEST(host_functions_must_not_call_the_runtime) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  std::atomic<int> result{-1};
  OK(cudaLaunchHostFunc(
      stream,
      [](void *where) {
        int device;
        *static_cast<std::atomic<int> *>(where) = cudaGetDevice(&device);
      },
      &result));
  OK(cudaStreamSynchronize(stream));
  ck_assert_int_eq(result, cudaErrorNotPermitted);
  OK(cudaStreamDestroy(stream));
  finish(1);
}
END_TEST

START_TEST(streams_tell_what_they_are) {
  configure(2, 1, 32, 1 << 20);
  OK(cudaSetDevice(1));
  cudaStream_t stream;
  int least, greatest, priority, device;
  unsigned flags;
  unsigned long long id, null_id;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  ck_assert_int_lt(greatest, least);
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
  OK(cudaStreamGetPriority(stream, &priority));
  OK(cudaStreamGetFlags(stream, &flags));
  OK(cudaStreamGetDevice(stream, &device));
  OK(cudaStreamGetId(stream, &id));
  OK(cudaStreamGetId(0, &null_id));
  ck_assert_int_eq(priority, greatest);
  ck_assert_uint_eq(flags, cudaStreamNonBlocking);
  ck_assert_int_eq(device, 1);
  ck_assert_uint_ne(id, null_id);
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

/* ---- kernels ------------------------------------------------------------------------------ */

struct ShiftArgs {
  int *out;
  int rounds;
};
/* Each round a thread takes its neighbour's value of the round before. Plain memory: the
 * barriers alone order it. */
static __global__ void shift_kernel(ShiftArgs a) {
  int *shared = static_cast<int *>(copse_emulated_shared());
  unsigned n = blockDim.x, me = threadIdx.x;
  shared[me] = (int)me;
  for (int round = 0; round < a.rounds; round++) {
    __syncthreads();
    int value = shared[(me + 1) % n];
    __syncthreads();
    shared[me] = value;
  }
  a.out[blockIdx.x * n + me] = shared[me];
}

START_TEST(barriers_order_the_threads_of_a_block) {
  for (unsigned threads : {1u, 4u, 33u, 64u}) {
    const unsigned blocks = 3;
    const int rounds = 40;
    int *out = new_device<int>(blocks * threads);
    launch(shift_kernel, blocks, threads, ShiftArgs{out, rounds}, cudaStream_t(0),
           threads * sizeof(int));
    std::vector<int> values = read_back(out, blocks * threads);
    for (unsigned i = 0; i < blocks * threads; i++)
      ck_assert_int_eq(values[i], (int)((i % threads + rounds) % threads));
    OK(cudaFree(out));
  }
  finish(0);
}
END_TEST

struct VoteArgs {
  int *out; /* [thread][4] */
};
static __global__ void vote_kernel(VoteArgs a) {
  int me = (int)threadIdx.x;
  if (me >= 6) return; /* who has left isn't waited for */
  int *mine = a.out + 4 * me;
  mine[0] = __syncthreads_or(me == 3);
  mine[1] = __syncthreads_or(0);
  mine[2] = __syncthreads_and(me >= 0) + 2 * __syncthreads_and(me > 0);
  mine[3] = __syncthreads_count(me % 2);
}

START_TEST(votes_count_the_threads_that_are_left) {
  int *out = new_device<int>(4 * 8);
  launch(vote_kernel, 1, 8, VoteArgs{out}, cudaStream_t(0));
  std::vector<int> values = read_back(out, 4 * 8);
  for (int i = 0; i < 8; i++) {
    const int expected[4] = {1, 0, 1, 3};
    for (int k = 0; k < 4; k++) ck_assert_int_eq(values[4 * i + k], i < 6 ? expected[k] : 0);
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

static __global__ void warp_kernel(VoteArgs a) {
  int me = (int)threadIdx.x, lane = me % warpSize, *mine = a.out + 4 * me;
  int sum = lane;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  mine[0] = sum;
  mine[1] = (int)__ballot_sync(~0u, lane == 1 || lane == 31);
  mine[2] = __shfl_down_sync(~0u, me, 1);
  mine[3] =
      __shfl_sync(~0u, me, 5) + 1000 * __all_sync(~0u, me < 32) + 2000 * __any_sync(~0u, me == 40);
  __syncwarp();
}

START_TEST(warps_exchange_values) {
  int *out = new_device<int>(4 * 64);
  launch(warp_kernel, 1, 64, VoteArgs{out}, cudaStream_t(0));
  std::vector<int> values = read_back(out, 4 * 64);
  for (int me = 0; me < 64; me++) {
    int warp = me / 32;
    ck_assert_int_eq(values[4 * me], 31 * 32 / 2);
    ck_assert_uint_eq((unsigned)values[4 * me + 1], 0x80000002u);
    ck_assert_int_eq(values[4 * me + 2], me % 32 == 31 ? me : me + 1);
    ck_assert_int_eq(values[4 * me + 3], 32 * warp + 5 + 1000 * (1 + warp));
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

struct IndexArgs {
  uint4 *out;
};
static __global__ void index_kernel(IndexArgs a) {
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  a.out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      make_uint4(threadIdx.y, threadIdx.z, blockIdx.y, blockIdx.z);
}

START_TEST(indices_cover_the_grid) {
  const unsigned n = 2 * 3 * 2 * 3 * 2 * 2;
  uint4 *out = new_device<uint4>(n);
  IndexArgs args = {out};
  void *list[] = {&args};
  OK(cudaLaunchKernel(index_kernel, dim3(2, 3, 2), dim3(3, 2, 2), list));
  std::vector<uint4> values = read_back(out, n);
  for (unsigned i = 0; i < n; i++) {
    ck_assert_uint_eq(values[i].x, i / 3 % 2);
    ck_assert_uint_eq(values[i].y, i / 6 % 2);
    ck_assert_uint_eq(values[i].z, i / 12 / 2 % 3);
    ck_assert_uint_eq(values[i].w, i / 12 / 6);
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

static __global__ void two_parameters(int *out, AddArgs a) { *out = a.value; }
static __global__ void no_parameters() {}
static __global__ void never_named(AddArgs a) { a.data[0] = -1; }
template <class T>
static __global__ void by_type(AddArgs a) {
  a.data[0] = (int)sizeof(T);
}

START_TEST(kernels_are_launched_in_every_form) {
  int *data = new_device<int>(1);
  AddArgs args = {data, 4};
  void *list[] = {&args};
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 1;
  OK(cudaLaunchKernel(append_kernel, 1, 1, list, 0, 0));
  args.value = 5; /* the launch has its own copy */
  OK(cudaLaunchKernelEx(&config, append_kernel, args));
  args.value = 6;
  OK(cudaLaunchKernelExC(&config, append_kernel, list));
  args.value = 7;
  OK(cudaLaunchKernelExC(&config, (const void *)append_kernel, list));
  ck_assert_int_eq(read_back(data, 1)[0], 4567);

  EXPECT(cudaLaunchKernelExC(&config, (const void *)never_named, list),
         cudaErrorInvalidDeviceFunction);
  const void *table[] = {copse_emulated_kernel(by_type<char>),
                         copse_emulated_kernel(by_type<double>)};
  OK(cudaLaunchKernelExC(&config, table[1], list));
  ck_assert_int_eq(read_back(data, 1)[0], 8);
  OK(cudaLaunchKernelEx(&config, two_parameters, data, AddArgs{NULL, 21}));
  OK(cudaLaunchKernelEx(&config, no_parameters));
  ck_assert_int_eq(read_back(data, 1)[0], 21);
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, NULL, 0, 0), cudaErrorInvalidValue);
  OK(cudaFree(data));
  finish(1);
}
END_TEST

static __global__ void fill_shared(AddArgs a) {
  unsigned char *shared = static_cast<unsigned char *>(copse_emulated_shared());
  for (int i = 0; i < a.value; i++) shared[i] = (unsigned char)i;
  a.data[0] = shared[a.value - 1];
}

START_TEST(limits_of_a_launch_are_checked) {
  configure(1, 2, 256, 1 << 20);
  int *data = new_device<int>(1), blocks;
  AddArgs args = {data, 100 << 10};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(fill_shared, 0, 1, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 1025, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, dim3(1, 65536), 1, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 512, list), cudaErrorLaunchOutOfResources);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 1, list, 100 << 10), cudaErrorInvalidValue);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 32, 100 << 10));
  ck_assert_int_eq(blocks, 0);
  EXPECT(cudaFuncSetAttribute(fill_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
         cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(fill_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  OK(cudaLaunchKernel(fill_shared, 1, 1, list, 100 << 10));
  ck_assert_int_eq(read_back(data, 1)[0], 255);
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, fill_shared));
  ck_assert_int_eq(attributes.maxDynamicSharedSizeBytes, 100 << 10);
  /* by shared memory 2, by threads 256 / 64 (33 take two warps), by the limit of blocks 8 */
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 32, 100 << 10));
  ck_assert_int_eq(blocks, 2);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 33, 0));
  ck_assert_int_eq(blocks, 4);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

struct CrowdArgs {
  int *now, *most, *total;
};
/* Counts the blocks that are there at once. */
static __global__ void crowd_kernel(CrowdArgs a) {
  if (threadIdx.x == 0) {
    int now = atomicAdd(a.now, 1) + 1;
    for (int most = 0, seen; most < now; most = seen) {
      seen = atomicCAS(a.most, most, now);
      if (seen == most) break;
    }
    atomicAdd(a.total, 1);
    __nanosleep(200000);
    atomicAdd(a.now, -1);
  }
}

START_TEST(only_blocks_with_room_are_resident) {
  configure(1, 2, 96, 1 << 20); /* room for 2 * 3 blocks of a warp */
  int *counts = new_device<int>(3);
  CrowdArgs args = {counts, counts + 1, counts + 2};
  cudaStream_t streams[2] = {new_stream(cudaStreamNonBlocking), new_stream(cudaStreamNonBlocking)};
  EXPECT(launch_cooperative(crowd_kernel, 7, 2, args, streams[0]),
         cudaErrorCooperativeLaunchTooLarge);
  OK(launch_cooperative(crowd_kernel, 6, 2, args, streams[0]));
  OK(launch_cooperative(crowd_kernel, 5, 2, args, streams[1])); /* when the first is done */
  launch(crowd_kernel, 40, 2, args, streams[0]);                /* as blocks leave */
  OK(cudaDeviceSynchronize());
  std::vector<int> values = read_back(counts, 3);
  ck_assert_int_eq(values[0], 0);
  ck_assert_int_le(values[1], 6);
  ck_assert_int_ge(values[1], 2);
  ck_assert_int_eq(values[2], 6 + 5 + 40);
  OK(cudaFree(counts));
  for (cudaStream_t stream : streams) OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

struct GridArgs {
  int *values, *sums;
};
static __global__ void grid_kernel(GridArgs a) {
  auto grid = cooperative_groups::this_grid();
  unsigned me = (unsigned)grid.thread_rank(), n = (unsigned)grid.size();
  a.values[me] = (int)me;
  grid.sync();
  for (unsigned i = 0; i < n; i++) a.sums[me] += a.values[i];
}

START_TEST(a_cooperative_grid_is_synchronised) {
  const int blocks = 6, threads = 4, n = blocks * threads;
  int *data = new_device<int>(2 * n);
  OK(launch_cooperative(grid_kernel, blocks, threads, GridArgs{data, data + n}, 0));
  for (int sum : read_back(data + n, n)) ck_assert_int_eq(sum, n * (n - 1) / 2);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

struct PingArgs {
  uint32_t *mine, *other; /* counters */
  unsigned *data;         /* plain, the counters order it */
  int rounds, parity;
};
/* Two of these take turns; each adds to `data` when it is its turn. */
static __global__ void ping_kernel(PingArgs a) {
  if (threadIdx.x == 0) {
    cuda::atomic_ref<uint32_t> mine(*a.mine), other(*a.other);
    for (int round = 0; round < a.rounds; round++) {
      uint32_t turn = (uint32_t)(a.parity ? round + 1 : round);
      while (other.load(cuda::memory_order_acquire) < turn) __nanosleep(100);
      *a.data = *a.data * 3 + (unsigned)a.parity;
      mine.store((uint32_t)round + 1, cuda::memory_order_release);
    }
  }
  __syncthreads();
}

static unsigned ping_result(int rounds) {
  unsigned value = 0;
  for (int i = 0; i < 2 * rounds; i++) value = value * 3 + (unsigned)(i % 2);
  return value;
}

START_TEST(kernels_of_two_streams_or_devices_wait_for_each_other) {
  configure(2, 2, 256, 1 << 20);
  const int rounds = 9;
  for (int second = 0; second < 2; second++) {
    OK(cudaSetDevice(0));
    uint32_t *flags = new_device<uint32_t>(2);
    unsigned *data = new_device<unsigned>(1);
    cudaStream_t streams[2];
    for (int k = 0; k < 2; k++) {
      OK(cudaSetDevice(k * second));
      streams[k] = new_stream(cudaStreamNonBlocking);
      launch(ping_kernel, 1, 4, PingArgs{flags + k, flags + 1 - k, data, rounds, k}, streams[k]);
    }
    for (cudaStream_t stream : streams) OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(read_back(data, 1)[0], ping_result(rounds));
    OK(cudaFree(flags));
    OK(cudaFree(data));
    for (cudaStream_t stream : streams) OK(cudaStreamDestroy(stream));
  }
  finish(0);
}
END_TEST

struct FenceArgs {
  int *data, *flag, *out;
};
static __global__ void fence_kernel(FenceArgs a) {
  if (blockIdx.x == 0) {
    a.data[0] = 42;
    __threadfence();
    atomicExch(a.flag, 1);
  } else {
    while (!atomicAdd(a.flag, 0)) __nanosleep(100);
    __threadfence();
    a.out[0] = a.data[0];
  }
}

START_TEST(fences_order_plain_memory) {
  int *data = new_device<int>(3);
  OK(launch_cooperative(fence_kernel, 2, 1, FenceArgs{data, data + 1, data + 2}, 0));
  ck_assert_int_eq(read_back(data, 3)[2], 42);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

START_TEST(thousands_of_small_kernels) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(8);
  for (int i = 0; i < 1500; i++) launch(add_kernel, 2, 4, AddArgs{data, i % 7}, stream);
  OK(cudaStreamSynchronize(stream));
  int expected = 0;
  for (int i = 0; i < 1500; i++) expected += i % 7;
  for (int value : read_back(data, 8)) ck_assert_int_eq(value, expected);
  OK(cudaFree(data));
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

/* ---- capture and graphs ------------------------------------------------------------------- */

struct Capturing {
  cudaStream_t origin = new_stream(cudaStreamNonBlocking);
  cudaStream_t side = new_stream(cudaStreamNonBlocking);
  cudaEvent_t fork = new_event(), join = new_event();
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    OK(cudaStreamBeginCapture(origin, mode));
  }
  void fork_out() {
    OK(cudaEventRecord(fork, origin));
    OK(cudaStreamWaitEvent(side, fork));
  }
  void join_in() {
    OK(cudaEventRecord(join, side));
    OK(cudaStreamWaitEvent(origin, join));
  }
  cudaGraphExec_t end() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(origin, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
  }
  void end_with(cudaError_t error) {
    cudaGraph_t graph;
    EXPECT(cudaStreamEndCapture(origin, &graph), error);
    ck_assert_ptr_null(graph);
    cudaStreamCaptureStatus status;
    for (cudaStream_t stream : {origin, side}) {
      OK(cudaStreamIsCapturing(stream, &status));
      ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
    }
  }
  void close() {
    OK(cudaStreamDestroy(origin));
    OK(cudaStreamDestroy(side));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
  }
};

START_TEST(a_graph_replays_what_was_captured) {
  Capturing c;
  int *data = new_device<int>(3), host = 1, result[3];
  c.begin();
  OK(cudaMemcpyAsync(data, &host, sizeof host, cudaMemcpyHostToDevice, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data, 2}, c.origin);
  c.fork_out();
  OK(cudaMemcpyAsync(data + 1, data, sizeof *data, cudaMemcpyDeviceToDevice, c.side));
  launch(append_kernel, 1, 1, AddArgs{data + 1, 3}, c.side);
  OK(cudaMemsetAsync(data + 2, 0, sizeof *data, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data + 2, 4}, c.origin);
  cudaStreamCaptureStatus status;
  unsigned long long id;
  cudaGraph_t graph;
  const cudaGraphNode_t *nodes;
  size_t n_nodes;
  OK(cudaStreamGetCaptureInfo(c.side, &status, &id, &graph, &nodes, &n_nodes));
  ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
  ck_assert_uint_eq(n_nodes, 1);
  c.join_in();
  OK(cudaStreamGetCaptureInfo(c.origin, &status, &id, &graph, &nodes, nullptr, &n_nodes));
  ck_assert_uint_eq(n_nodes, 2);
  OK(cudaMemcpyAsync(result, data, sizeof result, cudaMemcpyDeviceToHost, c.origin));
  OK(cudaStreamEndCapture(c.origin, &graph));
  ck_assert_int_eq(read_back(data, 1)[0], 0); /* nothing ran */
  OK(cudaGraphGetNodes(graph, NULL, &n_nodes));
  ck_assert_uint_eq(n_nodes, 7);
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 50; i++) {
    host = i + 5; /* as it is at the replay */
    OK(cudaGraphLaunch(exec, c.origin));
    OK(cudaStreamSynchronize(c.origin));
    ck_assert_int_eq(result[0], 10 * (i + 5) + 2);
    ck_assert_int_eq(result[1], 100 * (i + 5) + 23);
    ck_assert_int_eq(result[2], 4);
  }
  OK(cudaGraphExecDestroy(exec));
  EXPECT(cudaGraphLaunch(exec, c.origin), cudaErrorInvalidValue);
  OK(cudaFree(data));
  c.close();
  finish(1);
}
END_TEST

START_TEST(branches_of_a_graph_run_at_the_same_time) {
  Capturing c;
  const int rounds = 9;
  uint32_t *flags = new_device<uint32_t>(2);
  unsigned *data = new_device<unsigned>(1);
  c.begin();
  OK(cudaMemsetAsync(flags, 0, 2 * sizeof *flags, c.origin));
  OK(cudaMemsetAsync(data, 0, sizeof *data, c.origin));
  c.fork_out();
  launch(ping_kernel, 1, 4, PingArgs{flags, flags + 1, data, rounds, 0}, c.origin);
  launch(ping_kernel, 1, 4, PingArgs{flags + 1, flags, data, rounds, 1}, c.side);
  c.join_in();
  cudaGraphExec_t exec = c.end();
  for (int i = 0; i < 5; i++) OK(cudaGraphLaunch(exec, c.side));
  OK(cudaGraphLaunch(exec, c.origin)); /* one executable graph never overlaps itself */
  OK(cudaDeviceSynchronize());
  ck_assert_uint_eq(read_back(data, 1)[0], ping_result(rounds));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(flags));
  OK(cudaFree(data));
  c.close();
  finish(0);
}
END_TEST

START_TEST(a_graph_launched_in_a_capture_becomes_part_of_it) {
  Capturing c;
  int *data = new_device<int>(1);
  c.begin();
  launch(append_kernel, 1, 1, AddArgs{data, 1}, c.origin);
  launch(append_kernel, 1, 1, AddArgs{data, 2}, c.origin);
  cudaGraphExec_t inner = c.end();
  c.begin();
  OK(cudaGraphLaunch(inner, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data, 3}, c.origin);
  cudaGraphExec_t outer = c.end();
  OK(cudaGraphLaunch(outer, c.origin));
  OK(cudaGraphLaunch(outer, c.origin));
  OK(cudaStreamSynchronize(c.origin));
  ck_assert_int_eq(read_back(data, 1)[0], 123123);
  OK(cudaGraphExecDestroy(inner));
  OK(cudaGraphExecDestroy(outer));
  OK(cudaFree(data));
  c.close();
  finish(0);
}
END_TEST

START_TEST(what_a_capture_forbids_ends_it) {
  Capturing c;
  void *p;
  int plain;
  c.begin();
  EXPECT(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaLaunchHostFunc(c.origin, Gate::pass, NULL), cudaErrorStreamCaptureInvalidated);
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* other threads are bound by a global capture */
  std::thread([&] { EXPECT(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported); }).join();
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(cudaStreamCaptureModeThreadLocal); /* but not by this one */
  std::thread([&] { OK(cudaMalloc(&p, 16)); }).join();
  OK(cudaGraphExecDestroy(c.end()));
  OK(cudaFree(p));

  c.begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  ck_assert_int_eq(mode, cudaStreamCaptureModeRelaxed);
  OK(cudaGraphExecDestroy(c.end()));

  c.begin(cudaStreamCaptureModeRelaxed);
  EXPECT(cudaStreamSynchronize(c.origin), cudaErrorStreamCaptureUnsupported);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  OK(cudaMalloc(&p, 16));
  c.begin(cudaStreamCaptureModeRelaxed);
  OK(cudaMemcpy(&plain, p, 4, cudaMemcpyDeviceToHost)); /* non-blocking streams only */
  OK(cudaGraphExecDestroy(c.end()));
  OK(cudaFree(p));
  c.close();
  finish(3);
}
END_TEST

START_TEST(captures_are_closed_in_themselves) {
  Capturing c, d;
  int *data = new_device<int>(1);
  cudaGraph_t graph;
  c.begin(); /* a branch that never comes back */
  c.fork_out();
  launch(append_kernel, 1, 1, AddArgs{data, 1}, c.side);
  c.end_with(cudaErrorStreamCaptureUnjoined);

  OK(cudaEventRecord(c.fork, c.side)); /* work outside */
  c.begin();
  EXPECT(cudaStreamWaitEvent(c.origin, c.fork), cudaErrorStreamCaptureIsolation);
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* two captures */
  d.begin();
  OK(cudaEventRecord(c.fork, c.origin));
  EXPECT(cudaStreamWaitEvent(d.origin, c.fork), cudaErrorStreamCaptureMerge);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  d.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* from a stream that joined, or from another thread */
  std::thread([&] {
    EXPECT(cudaStreamEndCapture(c.origin, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  c.fork_out();
  EXPECT(cudaEventQuery(c.join), cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(c.side, &graph), cudaErrorStreamCaptureUnmatched);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaStreamEndCapture(c.origin, &graph), cudaErrorIllegalState);
  EXPECT(cudaEventSynchronize(c.fork), cudaErrorCapturedEvent);
  EXPECT(cudaStreamWaitEvent(c.side, c.fork), cudaErrorCapturedEvent);
  EXPECT(cudaStreamBeginCapture(0, cudaStreamCaptureModeRelaxed),
         cudaErrorStreamCaptureUnsupported);
  OK(cudaFree(data));
  c.close();
  d.close();
  finish(10);
}
END_TEST

START_TEST(the_null_stream_must_not_meet_a_capture) {
  cudaStream_t blocking = new_stream(cudaStreamDefault);
  int *data = new_device<int>(1);
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  AddArgs args = {data, 1};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, list, 0, 0), cudaErrorStreamCaptureImplicit);
  EXPECT(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamDestroy(blocking));
  OK(cudaFree(data));
  finish(1);
}
END_TEST

/* ---- between processes -------------------------------------------------------------------- */

struct Shared {
  uint32_t flags[2];
  unsigned data;
};
static const int ipc_rounds = 20;

/* Without Check's macros, which work in its own processes only. */
static bool play(Shared *shared, int parity) {
  PingArgs args = {&shared->flags[parity], &shared->flags[1 - parity], &shared->data, ipc_rounds,
                   parity};
  void *list[] = {&args};
  return cudaLaunchKernel(ping_kernel, 1, 4, list) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
}

static std::string hex_of(const cudaIpcMemHandle_t &handle) {
  std::string text;
  char digits[3];
  for (char c : handle.reserved) {
    snprintf(digits, sizeof digits, "%02x", (unsigned char)c);
    text += digits;
  }
  return text;
}

/* The other process: opens the memory twice, plays, and writes past the first page too. */
static int ipc_child(const char *hex) {
  cudaIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof handle.reserved; i++)
    handle.reserved[i] = (char)strtol(std::string(hex + 2 * i, 2).c_str(), NULL, 16);
  void *p, *again;
  bool ok = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
            cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
            p == again;
  if (!ok || !play(static_cast<Shared *>(p), 1)) return 1;
  ok = cudaMemset(static_cast<char *>(p) + 9000, 0x77, 1000) == cudaSuccess &&
       cudaMemset(static_cast<char *>(p) + 9001, 0x77, 1000) == cudaErrorInvalidValue &&
       cudaFree(p) == cudaErrorInvalidValue && cudaDeviceSynchronize() == cudaSuccess &&
       cudaIpcCloseMemHandle(p) == cudaSuccess && copse_emulated_leaks() == 1 &&
       cudaIpcCloseMemHandle(p) == cudaSuccess && copse_emulated_leaks() == 0 &&
       cudaIpcCloseMemHandle(p) == cudaErrorInvalidValue;
  return ok ? 0 : 2;
}

START_TEST(processes_share_device_memory) {
  char *before, *p, *pool;
  OK(cudaMalloc(&before, 700)); /* so that it doesn't start on a page */
  OK(cudaMalloc(&p, 10000));
  OK(cudaMemset(p, 0, 10000));
  OK(cudaDeviceSynchronize());
  cudaIpcMemHandle_t handle, broken;
  OK(cudaIpcGetMemHandle(&handle, p));
  EXPECT(cudaIpcGetMemHandle(&broken, p + 8), cudaErrorInvalidValue);
  OK(cudaMallocAsync(&pool, 8, 0));
  EXPECT(cudaIpcGetMemHandle(&broken, pool), cudaErrorInvalidValue);
  OK(cudaFreeAsync(pool, 0));
  void *opened;
  EXPECT(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
         cudaErrorDeviceUninitialized);
  memset(&broken, 1, sizeof broken);
  EXPECT(cudaIpcOpenMemHandle(&opened, broken, cudaIpcMemLazyEnablePeerAccess),
         cudaErrorInvalidResourceHandle);

  std::string hex = hex_of(handle);
  char self[] = "test_emulation", option[] = "--ipc-child";
  char *arguments[] = {self, option, &hex[0], NULL};
  pid_t child;
  fflush(NULL);
  ck_assert_int_eq(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
  ck_assert(play(reinterpret_cast<Shared *>(p), 0));
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  Shared shared;
  OK(cudaMemcpy(&shared, p, sizeof shared, cudaMemcpyDeviceToHost));
  ck_assert_uint_eq(shared.data, ping_result(ipc_rounds));
  std::vector<char> tail = read_back(p + 8999, 1001);
  ck_assert_int_eq(tail[0], 0);
  ck_assert_int_eq(tail[1], 0x77);
  ck_assert_int_eq(tail[1000], 0x77);
  OK(cudaFree(p));
  OK(cudaFree(before));
  finish(4);
}
END_TEST

static Suite *suite() {
  Suite *s = suite_create("emulation/emulation");
  TCase *t = tcase_create("host");
  tcase_add_test(t, devices_are_as_configured);
  tcase_add_test(t, the_last_error_is_kept_until_read);
  tcase_add_test(t, ordered_failures_strike_once);
  tcase_add_test(t, leaks_are_counted);
  tcase_add_test(t, a_forked_child_is_refused);
  tcase_add_test(t, memory_ends_and_comes_back);
  tcase_add_test(t, pointers_are_told_apart);
  tcase_add_test(t, wrong_pointers_are_refused);
  tcase_add_test(t, memory_that_is_freed_too_early_is_a_fault);
#if defined(__SANITIZE_ADDRESS__)
  tcase_add_test(t, sanitizer_knows_the_bounds);
#endif
  tcase_add_test(t, streams_run_on_their_own_and_in_order);
  tcase_add_test(t, a_destroyed_stream_finishes_its_work);
  tcase_add_test(t, the_null_stream_and_blocking_streams_wait_for_each_other);
  tcase_add_test(t, events_order_streams_of_all_devices);
  tcase_add_test(t, events_measure_time);
  tcase_add_test(t, host_functions_must_not_call_the_runtime);
  tcase_add_test(t, streams_tell_what_they_are);
  suite_add_tcase(s, t);

  t = tcase_create("kernels");
  tcase_add_test(t, barriers_order_the_threads_of_a_block);
  tcase_add_test(t, votes_count_the_threads_that_are_left);
  tcase_add_test(t, warps_exchange_values);
  tcase_add_test(t, indices_cover_the_grid);
  tcase_add_test(t, kernels_are_launched_in_every_form);
  tcase_add_test(t, limits_of_a_launch_are_checked);
  tcase_add_test(t, only_blocks_with_room_are_resident);
  tcase_add_test(t, a_cooperative_grid_is_synchronised);
  tcase_add_test(t, kernels_of_two_streams_or_devices_wait_for_each_other);
  tcase_add_test(t, fences_order_plain_memory);
  tcase_add_test(t, thousands_of_small_kernels);
  suite_add_tcase(s, t);

  t = tcase_create("graphs and processes");
  tcase_add_test(t, a_graph_replays_what_was_captured);
  tcase_add_test(t, branches_of_a_graph_run_at_the_same_time);
  tcase_add_test(t, a_graph_launched_in_a_capture_becomes_part_of_it);
  tcase_add_test(t, what_a_capture_forbids_ends_it);
  tcase_add_test(t, captures_are_closed_in_themselves);
  tcase_add_test(t, the_null_stream_must_not_meet_a_capture);
  tcase_add_test(t, processes_share_device_memory);
  suite_add_tcase(s, t);
  return s;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--ipc-child") == 0) return ipc_child(argv[2]);
  return copse_test_run(suite());
}
