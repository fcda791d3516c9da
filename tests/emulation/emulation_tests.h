/* What the tests of the emulation share. */
#ifndef COPSE_EMULATION_TESTS_H
#define COPSE_EMULATION_TESTS_H

#include <atomic>
#include <cuda/atomic>
#include <cuda_runtime.h>
#include <unistd.h>
#include <vector>

#include "emulation.h"
extern "C" {
#include "support/support.h"
}

#define EXPECT(call, error)                                                        \
  do {                                                                             \
    cudaError_t expect_ = (call);                                                  \
    ck_assert_msg(expect_ == (error), "%s: %s", #call, cudaGetErrorName(expect_)); \
  } while (0)
#define OK(call) EXPECT(call, cudaSuccess)

/* Every test's last line: how often it misused the runtime, on purpose. */
static inline void finish(int misuses) {
  ck_assert_int_eq(copse_emulated_leaks(), 0);
  ck_assert_int_eq(copse_emulated_misuses(), misuses);
}

static inline void configure(int devices, int multiprocessors, int threads, size_t memory) {
  copse_emulated_config c = {devices, multiprocessors, threads, memory, 0x7fffffff, 0, 0, false, true};
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

static inline cudaStream_t new_stream(unsigned flags) {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
static inline cudaEvent_t new_event() {
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
/* data[0] = 10 * data[0] + value: what ran in which order */
static inline __global__ void append_kernel(AddArgs a) { a.data[0] = 10 * a.data[0] + a.value; }

template <class A>
static inline void launch(void (*kernel)(A), unsigned blocks, unsigned threads, A args,
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

struct PingArgs {
  uint32_t *mine, *other; /* counters */
  unsigned *data;         /* plain, the counters order it */
  int rounds, parity;
};
/* Two of these take turns; each adds to `data` when it is its turn. */
static inline __global__ void ping_kernel(PingArgs a) {
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

static inline unsigned ping_result(int rounds) {
  unsigned value = 0;
  for (int i = 0; i < 2 * rounds; i++) value = value * 3 + (unsigned)(i % 2);
  return value;
}

#endif
