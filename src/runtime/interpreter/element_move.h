/*
 * One MOVE on elements: folds the sources in the order given and stores the result in
 * every destination. In the common subset of C11, C++17 and CUDA C++; element_move_type.h
 * generates the loops of element_move_op.h once per type and operation: for a CPU in interpreter.c
 * alone, since they take long to compile, for a GPU into every kernel. How a tile of elements
 * comes from memory and goes there is defined by whoever includes element_move_types.h:
 * interpreter.c by element_tile_cpu.h, GPU kernels by runtime/gpu/tile.cuh.
 *
 * Calling threads: `n_threads` threads (a thread block; 1 on a CPU) call with the same
 * move, each with its own `thread` in [0, n_threads). They write disjoint elements and
 * are not synchronised. Sources and destinations may be identical addresses, never
 * overlap otherwise. Pointers are aligned to the element, those of packets to 16 bytes.
 */
#pragma once

#include <stdbool.h>

#include "runtime/interpreter/element.h"

/* Memory of one operand. epoch 0: elements as they are; else packets with this flag. */
struct copse_place {
  unsigned char *at;
  uint32_t epoch;
};

/* 4 bytes of data below, the flag above: one 8-byte store. */
#define COPSE_PACKET_DATA_BYTES 4u
COPSE_HD static inline uint64_t copse_packet_of(uint32_t data, uint32_t epoch) {
  return (uint64_t)epoch << 32 | data;
}

struct copse_timeout;

struct copse_move {
  enum copse_type type;
  enum copse_redop redop;
  uint32_t n_src, n_dst; /* both >= 1 */
  uint32_t divisor;      /* avg, final: the number of ranks; else 1 */
  uint64_t count;        /* elements */
  const struct copse_place *src, *dst;
  const struct copse_timeout *timeout; /* on a GPU: how long to wait for packets */
};

/* A .cu file moves elements on the GPU only (or, for tests, as the GPU would). */
#if defined(__CUDACC__)
#undef COPSE_DEVICE_CODE
#define COPSE_DEVICE_CODE 1
#define COPSE_MOVE_FUNCTION __device__ static inline
#define COPSE_MOVE_INLINE __device__ static __forceinline__
#else
#define COPSE_MOVE_FUNCTION static inline
#define COPSE_MOVE_INLINE static inline __attribute__((always_inline))
#endif

/* Moves on a CPU. A kernel calls its type's copse_NAME_move(), which is false where a packet didn't
 * come within the time limit; then a part of the move was done. */
bool copse_move_run(const struct copse_move *move, uint32_t thread, uint32_t n_threads);
