/*
 * Synchronisation on a GPU: signals, packets, words that the host shares, and waiting with a time
 * limit. Memory order is that of the CUDA memory model (https://nvidia.github.io/cccl/libcudacxx,
 * "Memory model"; PTX ISA, "Memory Consistency Model").
 *
 *   block A                                       block B
 *   all threads write data
 *   __syncthreads
 *   thread 0: signal_store (release) ----------> thread 0: signal_load (acquire)
 *                                                __syncthreads
 *                                                all threads read the data
 *
 * A packet needs no order: its flag and its data are one store of 8 bytes. More than 8 is not
 * promised: the model has scalars of at most 64 bits, and a vector access is one access for each of
 * its elements, in no order (PTX ISA 9.2, "Memory Operations on Vector Data Types"). So no packets
 * of 16 bytes with 12 of data, although st.relaxed.sys.b128 exists (8.3) and is the same
 * instruction here as .v2.u64 (STG.E.128.STRONG.SYS): a reader could find the flag before the data.
 *
 * A packet is written again two launches later, by one that knows by a packet of the launch between
 * that the reader's rank has entered that launch (codegen/check/proof.c). Packets are relaxed: in
 * one kernel the model would let the reader find the later packet (load buffering), and wait for
 * ever. It can't happen because each launch is a kernel: CUDA orders the kernels of a stream, all
 * of one before all of the next, so that the read comes before the answer at one end, and the
 * answer's arrival before the second packet at the other. Between two calls in one kernel
 * (copse_blocks_meet) every thread has a fence.acq_rel.sys before the barrier and after it in the
 * place of that.
 *
 * A switch that adds and copies (multimem.ld_reduce, multimem.st) reads and writes slots by an
 * address of the group, which the ranks themselves read and write by their own. To the model these
 * are aliases
 * ("Proxies"): causality order passes from one to the other only through fence.proxy.alias. It is
 * MEMBAR.SC.SYS on sm_90, so one thread has it for the block, between two barriers before the sum,
 * and those that signal after one behind it. No GPU has run it yet.
 *
 * tests/memory_model has all of this as litmus tests: signals, credits, lanes, packets, launches,
 * groups.
 */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "runtime/gpu/kernel_args.h"

/* Two neighbouring packets, aligned to 16 bytes. */
struct copse_packets {
  uint64_t packet[2];
};

#if defined(__CUDACC__)

#include <cuda/atomic>

/* Stores a signal; system: some reader is on another GPU or in another process, so the scope is the
 * system. */
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

/* Looks without ordering anything, so that it leaves the multiprocessor's L1 cache alone: one
 * copse_signal_load must follow that sees the value too. */
__device__ static inline uint64_t copse_signal_look(uint64_t *signal, bool system) {
  if (system)
    return cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(*signal).load(
        cuda::memory_order_relaxed);
  return cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(*signal).load(
      cuda::memory_order_relaxed);
}

/* Stores two packets, each in one access (PTX ISA: a vector access is one access per element).
 * atomic_ref has no vectors, hence the assembler. */
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

/* Orders accesses to the same memory by a rank's own address and by a group's. */
__device__ static inline void copse_group_fence(void) {
  asm volatile("fence.proxy.alias;" ::: "memory");
}

/* Orders what this thread has read and written before with what it does after, for all
 * observers. */
__device__ static inline void copse_full_fence(void) {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* Arrives at a barrier of a GPU's blocks; the word as it was. And its latest value. */
__device__ static inline uint32_t copse_met_add(uint32_t *met, uint32_t value) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*met).fetch_add(
      value, cuda::memory_order_acq_rel);
}
__device__ static inline uint32_t copse_met_load(uint32_t *met) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*met).load(
      cuda::memory_order_acquire);
}

/* Loads a word that the host and the GPU share. */
__device__ static inline uint32_t copse_word_load(uint32_t *word) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).load(
      cuda::memory_order_relaxed);
}

/* Replaces 0 by `value`; true for the one thread that did. */
__device__ static inline bool copse_word_claim(uint32_t *word, uint32_t value) {
  uint32_t expected = 0;
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).compare_exchange_strong(
      expected, value, cuda::memory_order_relaxed);
}

__device__ static inline void copse_word_release(uint32_t *word, uint32_t value) {
  cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).store(value,
                                                                     cuda::memory_order_release);
}

/* Returns nanoseconds since a fixed moment; coarse. */
__device__ static inline uint64_t copse_device_clock(void) {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* Pauses between two polls. Nothing: a GPU runs its other warps meanwhile. */
__device__ static inline void copse_pause(void) {}

/* Declares a pointer to the block's dynamic shared memory. */
#define COPSE_SHARED_MEMORY(T, name)                            \
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
static inline uint64_t copse_signal_look(uint64_t *signal, bool) {
  return __atomic_load_n(signal, __ATOMIC_RELAXED);
}
static inline void copse_packets_store(uint64_t *packets, struct copse_packets pair) {
  for (int i = 0; i < 2; i++) __atomic_store_n(&packets[i], pair.packet[i], __ATOMIC_RELAXED);
}
static inline struct copse_packets copse_packets_load(uint64_t *packets) {
  struct copse_packets pair;
  for (int i = 0; i < 2; i++) pair.packet[i] = __atomic_load_n(&packets[i], __ATOMIC_RELAXED);
  return pair;
}
static inline void copse_group_fence(void) {}
static inline void copse_full_fence(void) {}
static inline uint32_t copse_met_add(uint32_t *met, uint32_t value) {
  return __atomic_fetch_add(met, value, __ATOMIC_ACQ_REL);
}
static inline uint32_t copse_met_load(uint32_t *met) {
  return __atomic_load_n(met, __ATOMIC_ACQUIRE);
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

/* ---- blocks of a launch meet ------------------------------------------------------------------
 */

/* Meets: the first n blocks of the grid, all threads of each, wait for each other: what each has
 * done for a call is over, for all observers, before any of them goes on. n may differ from time to
 * time: a meeting adds 2^31 in all, so the highest bit turns when the last block has come. Each of
 * these blocks must come, and does, since whatever it waits for ends with the time limit; and all
 * must be resident. */
__device__ static inline void copse_blocks_meet(uint32_t *met, uint32_t n) {
  const uint32_t last = 1u << 31;
  copse_full_fence();
  __syncthreads();
  if (threadIdx.x == 0 && n > 1) {
    const uint32_t before = copse_met_add(met, blockIdx.x == 0 ? last - (n - 1) : 1);
    while (((copse_met_load(met) ^ before) & last) == 0) copse_pause();
  }
  __syncthreads();
  copse_full_fence();
}

/* ---- waiting with a time limit -------------------------------------------------------------- */

/* A worker's time limit. */
struct copse_limit {
  struct copse_control *control;
  uint64_t ns;
  uint32_t plan, worker;
};

/* The same, and where it waits, for the report when the limit passes. */
struct copse_timeout {
  const struct copse_limit *limit;
  uint32_t op, chunk;
};

/* The state of one wait. */
struct copse_wait {
  uint64_t since; /* the clock at its first reading; 0: not read yet */
  uint32_t polls; /* may wrap around */
};

/* Polls between two readings of the control block, which lies across the bus. */
#if defined(__CUDACC__)
#define COPSE_CONTROL_POLLS 1024u
#else
#define COPSE_CONTROL_POLLS 64u
#endif

/* Whether to go on waiting after a poll in vain. False where the kernel must leave: the host has
 * set `leave`, or this wait has passed the limit. The first thread that passes it writes the
 * report. */
__device__ static inline bool copse_keep_waiting(const struct copse_timeout *timeout,
                                                 struct copse_wait *wait) {
  copse_pause();
  if (++wait->polls % COPSE_CONTROL_POLLS != 0) return true;
  const struct copse_limit *limit = timeout->limit;
  if (copse_word_load(&limit->control->leave)) return false;
  uint64_t now = copse_device_clock();
  if (wait->since == 0) wait->since = now;
  if (now - wait->since < limit->ns) return true;
  if (copse_word_claim(&limit->control->claimed, 1)) {
    limit->control->plan = limit->plan;
    limit->control->worker = limit->worker;
    limit->control->op = timeout->op;
    limit->control->chunk = timeout->chunk;
    copse_word_release(&limit->control->leave, COPSE_LEAVE_TIMEOUT);
  }
  return false;
}
