/*
 * Inside src/runtime/cuda only: memory order on a GPU, by the CUDA memory model
 * (https://nvidia.github.io/cccl/libcudacxx, "Memory model"; PTX ISA, "Memory Consistency
 * Model"). A signal releases, at the scope of the farthest reader, what all threads of its
 * block wrote before a __syncthreads; whoever acquires it and passes a __syncthreads may read
 * that. A packet carries its data itself, so it needs no order, only one store of 8 bytes.
 */
#ifndef COPSE_RUNTIME_GPU_ORDER_CUH
#define COPSE_RUNTIME_GPU_ORDER_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Neighbours, at a multiple of 16 bytes. */
struct copse_packets {
  uint64_t packet[2];
};

#if defined(__CUDACC__)

#include <cuda/atomic>

/* system: some reader is on another GPU. */
__device__ static inline void copse_signal_store(uint64_t *signal, uint64_t value, bool system) {
  if (system)
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(*signal).store(
        value, cuda::memory_order_release);
  else
    cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(*signal).store(
        value, cuda::memory_order_release);
}

__device__ static inline uint64_t copse_signal_load(uint64_t *signal, bool system) {
  if (system)
    return cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(*signal).load(
        cuda::memory_order_acquire);
  return cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(*signal).load(
      cuda::memory_order_acquire);
}

/* Two packets, each of which comes whole (PTX ISA: a vector is as many accesses as it has
 * elements); atomic_ref has no vectors. */
__device__ static inline void copse_packets_store(uint64_t *packets, struct copse_packets pair) {
  asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(packets), "l"(pair.packet[0]),
               "l"(pair.packet[1])
               : "memory");
}

__device__ static inline struct copse_packets copse_packets_load(uint64_t *packets) {
  struct copse_packets pair;
  asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.packet[0]), "=l"(pair.packet[1])
               : "l"(packets)
               : "memory");
  return pair;
}

/* Words that the host and the GPU share. */
__device__ static inline uint32_t copse_word_load(uint32_t *word) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).load(
      cuda::memory_order_relaxed);
}

/* Puts `value` where there is 0; true for the one that did. */
__device__ static inline bool copse_word_claim(uint32_t *word, uint32_t value) {
  uint32_t expected = 0;
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).compare_exchange_strong(
      expected, value, cuda::memory_order_relaxed);
}

__device__ static inline void copse_word_release(uint32_t *word, uint32_t value) {
  cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).store(value,
                                                                     cuda::memory_order_release);
}

/* Nanoseconds since some moment; coarse. */
__device__ static inline uint64_t copse_device_clock(void) {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* Between two looks: a GPU's other warps run anyway. */
__device__ static inline void copse_pause(void) {}

/* The block's dynamic shared memory. */
#define COPSE_SHARED_MEMORY(T, name)                          \
  extern __shared__ __align__(16) unsigned char copse_shared[]; \
  T *name = reinterpret_cast<T *>(copse_shared)

#else /* the same code on CPU threads, for tests */

#include <time.h>

static inline void copse_signal_store(uint64_t *signal, uint64_t value, bool) {
  __atomic_store_n(signal, value, __ATOMIC_RELEASE);
}
static inline uint64_t copse_signal_load(uint64_t *signal, bool) {
  return __atomic_load_n(signal, __ATOMIC_ACQUIRE);
}
static inline void copse_packets_store(uint64_t *packets, struct copse_packets pair) {
  for (int i = 0; i < 2; i++) __atomic_store_n(&packets[i], pair.packet[i], __ATOMIC_RELAXED);
}
static inline struct copse_packets copse_packets_load(uint64_t *packets) {
  struct copse_packets pair;
  for (int i = 0; i < 2; i++) pair.packet[i] = __atomic_load_n(&packets[i], __ATOMIC_RELAXED);
  return pair;
}
static inline uint32_t copse_word_load(uint32_t *word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
static inline bool copse_word_claim(uint32_t *word, uint32_t value) {
  uint32_t expected = 0;
  return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}
static inline void copse_word_release(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline void copse_pause(void) { __nanosleep(1000); }
static inline uint64_t copse_device_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#define COPSE_SHARED_MEMORY(T, name) T *name = static_cast<T *>(copse_emulated_shared())

#endif
#endif
