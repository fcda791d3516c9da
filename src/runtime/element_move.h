/*
 * One MOVE on elements: folds the sources in the order given and stores the result in
 * every destination. In the common subset of C11, C++17 and CUDA C++; the loops are
 * generated once per type and operation from element_move_type.h.
 *
 * Calling threads: `n_threads` threads (a thread block; 1 on a CPU) call with the same
 * move, each with its own `thread` in [0, n_threads). They write disjoint elements and
 * are not synchronised. Sources and destinations may be identical addresses, never
 * overlap otherwise. Pointers are aligned to the element.
 */
#ifndef COPSE_RUNTIME_ELEMENT_MOVE_H
#define COPSE_RUNTIME_ELEMENT_MOVE_H

#include "copse/types.h"
#include "runtime/element.h"

struct copse_move {
  enum copse_type type;
  enum copse_redop redop;
  uint32_t n_src, n_dst; /* both >= 1 */
  uint32_t divisor;      /* avg, final: the number of ranks; else 1 */
  uint64_t count;        /* elements */
  const void *const *src;
  void *const *dst;
};

/* Elements that a thread takes at once: 16 bytes on a GPU, where they are registers; on a
 * CPU a run that vectorises and stays in the first cache. */
#if defined(__CUDA_ARCH__)
#define COPSE_MOVE_LANES(T) (16u / (uint32_t)sizeof(T))
#else
#define COPSE_MOVE_LANES(T) 128u
#endif

#if defined(__CUDACC__)
#define COPSE_MOVE_INLINE COPSE_HD static __forceinline__
#else
#define COPSE_MOVE_INLINE static inline __attribute__((always_inline))
#endif

#define COPSE_JOIN3_NOW(a, b, c) a##b##c
#define COPSE_JOIN3(a, b, c) COPSE_JOIN3_NOW(a, b, c)
#define COPSE_JOIN4_NOW(a, b, c, d) a##b##c##d
#define COPSE_JOIN4(a, b, c, d) COPSE_JOIN4_NOW(a, b, c, d)

#define COPSE_MOVE_NAME int8
#define COPSE_MOVE_T int8_t
#define COPSE_MOVE_A int8_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME uint8
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A uint8_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME int32
#define COPSE_MOVE_T int32_t
#define COPSE_MOVE_A int32_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME uint32
#define COPSE_MOVE_T uint32_t
#define COPSE_MOVE_A uint32_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME int64
#define COPSE_MOVE_T int64_t
#define COPSE_MOVE_A int64_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME uint64
#define COPSE_MOVE_T uint64_t
#define COPSE_MOVE_A uint64_t
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME half
#define COPSE_MOVE_T uint16_t
#define COPSE_MOVE_A float
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME float
#define COPSE_MOVE_T float
#define COPSE_MOVE_A float
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME double
#define COPSE_MOVE_T double
#define COPSE_MOVE_A double
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME bfloat16
#define COPSE_MOVE_T uint16_t
#define COPSE_MOVE_A float
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME float8_e4m3
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A float
#include "runtime/element_move_type.h"

#define COPSE_MOVE_NAME float8_e5m2
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A float
#include "runtime/element_move_type.h"

/* For one source and no division: the bits as they are, also those of a NaN. */
COPSE_HD static inline void copse_move_copy(const struct copse_move *move, uint64_t element_bytes,
                                            uint32_t thread, uint32_t n_threads) {
#if defined(__CUDA_ARCH__)
  for (uint32_t k = 0; k < move->n_dst; k++) {
    const unsigned char *src = (const unsigned char *)move->src[0];
    unsigned char *dst = (unsigned char *)move->dst[k];
    for (uint64_t i = thread; i < move->count; i += n_threads)
      memcpy(dst + i * element_bytes, src + i * element_bytes, element_bytes);
  }
#else
  if (thread != 0) return;
  (void)n_threads;
  for (uint32_t k = 0; k < move->n_dst; k++)
    if (move->dst[k] != move->src[0])
      memcpy(move->dst[k], move->src[0], (size_t)(move->count * element_bytes));
#endif
}

COPSE_HD static inline uint32_t copse_element_bytes(enum copse_type type) {
  switch (type) {
    case COPSE_INT8:
    case COPSE_UINT8:
    case COPSE_FLOAT8_E4M3:
    case COPSE_FLOAT8_E5M2: return 1;
    case COPSE_HALF:
    case COPSE_BFLOAT16: return 2;
    case COPSE_INT64:
    case COPSE_UINT64:
    case COPSE_DOUBLE: return 8;
    default: return 4;
  }
}

COPSE_HD static inline void copse_move_run(const struct copse_move *move, uint32_t thread,
                                           uint32_t n_threads) {
  if (move->n_src == 1 && move->divisor == 1) {
    copse_move_copy(move, copse_element_bytes(move->type), thread, n_threads);
    return;
  }
  switch (move->type) {
    case COPSE_INT8: copse_int8_move(move, thread, n_threads); break;
    case COPSE_UINT8: copse_uint8_move(move, thread, n_threads); break;
    case COPSE_INT32: copse_int32_move(move, thread, n_threads); break;
    case COPSE_UINT32: copse_uint32_move(move, thread, n_threads); break;
    case COPSE_INT64: copse_int64_move(move, thread, n_threads); break;
    case COPSE_UINT64: copse_uint64_move(move, thread, n_threads); break;
    case COPSE_HALF: copse_half_move(move, thread, n_threads); break;
    case COPSE_FLOAT: copse_float_move(move, thread, n_threads); break;
    case COPSE_DOUBLE: copse_double_move(move, thread, n_threads); break;
    case COPSE_BFLOAT16: copse_bfloat16_move(move, thread, n_threads); break;
    case COPSE_FLOAT8_E4M3: copse_float8_e4m3_move(move, thread, n_threads); break;
    case COPSE_FLOAT8_E5M2: copse_float8_e5m2_move(move, thread, n_threads); break;
    default: break;
  }
}

#endif
