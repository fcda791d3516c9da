/*
 * The device side of CUDA C++ for g++: a kernel's block is a thread of the CPU, its threads take turns
 * on it. Called from kernels only, except where said.
 */
#ifndef COPSE_EMULATED_DEVICE_LANGUAGE_H
#define COPSE_EMULATED_DEVICE_LANGUAGE_H

#include <string.h>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
/* A variable can't be shared by the threads of one block and differ between blocks. */
#define __shared__                                                                            \
  static_assert(false,                                                                        \
                "emulated kernels have dynamic shared memory only: copse_emulated_shared()"); \
  extern

constexpr int warpSize = 32;
extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;

/* The block's dynamic shared memory, as large as the launch asked for, not initialised. */
void *copse_emulated_shared(void);

/* ---- barriers: threads that have left the kernel aren't waited for -------------------------- */
void __syncthreads(void);
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);
/* The whole warp takes part: masks that leave a thread out end the program. */
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, int predicate);
static inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
int __all_sync(unsigned mask, int predicate);
void copse_emulated_grid_sync(void);

/* The memory behind an address of a multicast object: how many devices' it is, and each one's at least so
 * many bytes. Ends the program at other addresses: on a GPU only multimem instructions may use them. */
unsigned copse_emulated_members(const void *address);
unsigned char *copse_emulated_member(const void *address, unsigned i, size_t bytes);

/* Another lane's value, and whether there is such a lane. */
bool copse_emulated_shuffle(unsigned mask, unsigned lane, unsigned long long *value);
unsigned copse_emulated_lane(void);

template <class T>
T copse_emulated_shuffle_typed(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "at most 8 bytes");
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  if (copse_emulated_shuffle(mask, source, &bits)) memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return copse_emulated_shuffle_typed(mask, value, (unsigned)lane & 31);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  return copse_emulated_shuffle_typed(mask, value, copse_emulated_lane() + delta);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return copse_emulated_shuffle_typed(mask, value, copse_emulated_lane() ^ (unsigned)lanes);
}

/* ---- memory order ------------------------------------------------------------------------- */
void copse_emulated_fence(void);
static inline void __threadfence_block(void) { copse_emulated_fence(); }
static inline void __threadfence(void) { copse_emulated_fence(); }
static inline void __threadfence_system(void) { copse_emulated_fence(); }

template <class T>
T __ldg(const T *p) {
  return *p;
}
template <class T>
T atomicAdd(T *p, typename std::common_type<T>::type value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T *p, typename std::common_type<T>::type value) {
  return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T *p, typename std::common_type<T>::type value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T *p, typename std::common_type<T>::type expected,
            typename std::common_type<T>::type value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
#define atomicAdd_system atomicAdd
#define atomicOr_system atomicOr
#define atomicExch_system atomicExch
#define atomicCAS_system atomicCAS

/* ---- time --------------------------------------------------------------------------------- */
/* Lets other threads run. Every loop that waits for another thread must call it: threads of a block
 * take turns. */
void __nanosleep(unsigned nanoseconds);
/* Nanoseconds, what the register %globaltimer counts. */
unsigned long long copse_emulated_globaltimer(void);
static inline long long clock64(void) { return (long long)copse_emulated_globaltimer(); }
/* Ends the program: an emulated kernel can't be killed alone. */
[[noreturn]] void __trap(void);

#endif
