/*
 * Rows of a Mixture-of-Experts layer: copied, scaled, and added with weights. In the common
 * subset of C11, C++17 and CUDA C++, so that the bits are the same on every backend.
 *
 * Calling threads: a row is moved by n_lanes threads (1 on a CPU), each with its own lane; they
 * touch disjoint units of it and are not synchronised.
 */
#pragma once

#include <string.h>

#include "runtime/interpreter/element.h"
#include "runtime/moe/job.h"

#define COPSE_MOE_UNIT_BYTES 16u /* the largest */

#if defined(__CUDA_ARCH__)
#define COPSE_MOE_UNROLL _Pragma("unroll")
#else
#define COPSE_MOE_UNROLL
#endif

/* The rows that a thread takes, first, first + step, ..., and which units of each. */
struct copse_moe_lane {
  uint32_t first, step;
  uint32_t lane, n_lanes;
};

/* A product and a sum that no compiler contracts into a fused multiply-add. */
#if defined(__CUDA_ARCH__)
#define COPSE_MOE_ROUNDED(A, fn_product, fn_sum)                                          \
  COPSE_HD static inline A copse_moe_##A##_product(A a, A b) { return fn_product(a, b); } \
  COPSE_HD static inline A copse_moe_##A##_sum(A a, A b) { return fn_sum(a, b); }
COPSE_MOE_ROUNDED(float, __fmul_rn, __fadd_rn)
COPSE_MOE_ROUNDED(double, __dmul_rn, __dadd_rn)
#else
#if defined(__FAST_MATH__)
#error "-ffast-math changes the bits of results"
#endif
/* Neither gcc in ISO mode nor clang contracts across functions. */
#define COPSE_MOE_ROUNDED(A)                                                   \
  COPSE_HD static inline A copse_moe_##A##_product(A a, A b) { return a * b; } \
  COPSE_HD static inline A copse_moe_##A##_sum(A a, A b) { return a + b; }
COPSE_MOE_ROUNDED(float)
COPSE_MOE_ROUNDED(double)
#endif

/* ---- a unit: 16 bytes in registers, of which the first `unit` count ---------------------- */

struct copse_moe_unit {
  uint32_t word[4];
} __attribute__((aligned(16)));

/* A GPU needs accesses of a known width. Elsewhere memcpy is as fast, and allowed on any type. */
#if defined(__CUDA_ARCH__)
#define COPSE_MOE_READ(T, w, at) (w) = *reinterpret_cast<const T *>(at)
#define COPSE_MOE_WRITE(T, at, w) *reinterpret_cast<T *>(at) = (w)
#else
#define COPSE_MOE_READ(T, w, at) memcpy(&(w), (at), sizeof(T))
#define COPSE_MOE_WRITE(T, at, w) memcpy((at), &(w), sizeof(T))
#endif

#define COPSE_MOE_LOAD_AS(T)  \
  do {                        \
    T w;                      \
    COPSE_MOE_READ(T, w, at); \
    memcpy(&v, &w, sizeof w); \
  } while (0)
#define COPSE_MOE_STORE_AS(T)  \
  do {                         \
    T w;                       \
    memcpy(&w, &v, sizeof w);  \
    COPSE_MOE_WRITE(T, at, w); \
  } while (0)

/* Loads a unit; bytes beyond `unit` are zero. */
COPSE_HD static inline struct copse_moe_unit copse_moe_load(const unsigned char *at,
                                                            uint32_t unit) {
  struct copse_moe_unit v = {{0, 0, 0, 0}};
  switch (unit) {
    case 16: COPSE_MOE_LOAD_AS(struct copse_moe_unit); break;
    case 8: COPSE_MOE_LOAD_AS(uint64_t); break;
    case 4: COPSE_MOE_LOAD_AS(uint32_t); break;
    case 2: COPSE_MOE_LOAD_AS(uint16_t); break;
    default: COPSE_MOE_LOAD_AS(uint8_t); break;
  }
  return v;
}

COPSE_HD static inline void copse_moe_store(unsigned char *at, struct copse_moe_unit v,
                                            uint32_t unit) {
  switch (unit) {
    case 16: COPSE_MOE_STORE_AS(struct copse_moe_unit); break;
    case 8: COPSE_MOE_STORE_AS(uint64_t); break;
    case 4: COPSE_MOE_STORE_AS(uint32_t); break;
    case 2: COPSE_MOE_STORE_AS(uint16_t); break;
    default: COPSE_MOE_STORE_AS(uint8_t); break;
  }
}

/* ---- rows as they are -------------------------------------------------------------------- */

#define COPSE_MOE_IN_FLIGHT 4u /* units that a thread reads before it writes the first */

COPSE_HD static inline void copse_moe_copy_row(const struct copse_moe_job *job, unsigned char *to,
                                               const unsigned char *from,
                                               struct copse_moe_lane at) {
#if !defined(__CUDA_ARCH__)
  if (at.n_lanes == 1) {
    memcpy(to, from, job->row_bytes);
    return;
  }
#endif
  const uint32_t units = (uint32_t)(job->row_bytes / job->unit);
  for (uint32_t base = at.lane; base < units; base += COPSE_MOE_IN_FLIGHT * at.n_lanes) {
    struct copse_moe_unit v[COPSE_MOE_IN_FLIGHT];
    COPSE_MOE_UNROLL
    for (uint32_t i = 0; i < COPSE_MOE_IN_FLIGHT; i++) {
      uint32_t u = base + i * at.n_lanes;
      if (u < units) v[i] = copse_moe_load(from + (uint64_t)u * job->unit, job->unit);
    }
    COPSE_MOE_UNROLL
    for (uint32_t i = 0; i < COPSE_MOE_IN_FLIGHT; i++) {
      uint32_t u = base + i * at.n_lanes;
      if (u < units) copse_moe_store(to + (uint64_t)u * job->unit, v[i], job->unit);
    }
  }
}

COPSE_HD static inline void copse_moe_clear_row(const struct copse_moe_job *job, unsigned char *to,
                                                struct copse_moe_lane at) {
  const struct copse_moe_unit zero = {{0, 0, 0, 0}};
  const uint32_t units = (uint32_t)(job->row_bytes / job->unit);
  for (uint32_t u = at.lane; u < units; u += at.n_lanes)
    copse_moe_store(to + (uint64_t)u * job->unit, zero, job->unit);
}

/* ---- rows as numbers: NAME is the type's in element.h, T stored, A its accumulator ------- */

#define COPSE_MOE_ELEMENTS(NAME, TYPE, T, A)                                                       \
  /* to = factor * from */                                                                         \
  COPSE_HD static inline void copse_moe_##NAME##_scale(                                            \
      const struct copse_moe_job *job, unsigned char *to, const unsigned char *from,               \
      uint64_t choice, struct copse_moe_lane at) {                                                 \
    const A factor = ((const A *)job->weights)[choice];                                            \
    const uint32_t units = (uint32_t)(job->row_bytes / job->unit);                                 \
    for (uint32_t u = at.lane; u < units; u += at.n_lanes) {                                       \
      struct copse_moe_unit v = copse_moe_load(from + (uint64_t)u * job->unit, job->unit);         \
      T e[COPSE_MOE_UNIT_BYTES / sizeof(T)];                                                       \
      memcpy(e, &v, sizeof v);                                                                     \
      COPSE_MOE_UNROLL                                                                             \
      for (uint32_t i = 0; i < COPSE_MOE_UNIT_BYTES / sizeof(T); i++)                              \
        e[i] = copse_##NAME##_store(copse_moe_##A##_product(factor, copse_##NAME##_load(e[i])));   \
      memcpy(&v, e, sizeof v);                                                                     \
      copse_moe_store(to + (uint64_t)u * job->unit, v, job->unit);                                 \
    }                                                                                              \
  }                                                                                                \
  /* One unit of a token: the sum of its choices' rows in near, each times its weight. */          \
  COPSE_HD static inline struct copse_moe_unit copse_moe_##NAME##_reduce_unit(                     \
      const struct copse_moe_job *job, uint64_t token, uint64_t offset) {                          \
    A total[COPSE_MOE_UNIT_BYTES / sizeof(T)];                                                     \
    T e[COPSE_MOE_UNIT_BYTES / sizeof(T)];                                                         \
    struct copse_moe_unit v;                                                                       \
    int any = 0;                                                                                   \
    COPSE_MOE_UNROLL                                                                               \
    for (uint32_t i = 0; i < COPSE_MOE_UNIT_BYTES / sizeof(T); i++) total[i] = 0;                  \
    for (uint32_t k = 0; k < job->top_k; k++) {                                                    \
      const uint64_t choice = token * job->top_k + k;                                              \
      const uint32_t slot = job->slot[choice];                                                     \
      if (slot == COPSE_MOE_NONE) continue;                                                        \
      v = copse_moe_load(job->near_rows + slot * job->row_bytes + offset, job->unit);              \
      memcpy(e, &v, sizeof v);                                                                     \
      COPSE_MOE_UNROLL                                                                             \
      for (uint32_t i = 0; i < COPSE_MOE_UNIT_BYTES / sizeof(T); i++) {                            \
        A term = copse_##NAME##_load(e[i]);                                                        \
        if (job->weights) term = copse_moe_##A##_product(((const A *)job->weights)[choice], term); \
        total[i] = any ? copse_moe_##A##_sum(total[i], term) : term; /* keeps a first -0 */        \
      }                                                                                            \
      any = 1;                                                                                     \
    }                                                                                              \
    COPSE_MOE_UNROLL                                                                               \
    for (uint32_t i = 0; i < COPSE_MOE_UNIT_BYTES / sizeof(T); i++)                                \
      e[i] = copse_##NAME##_store(total[i]);                                                       \
    memcpy(&v, e, sizeof v);                                                                       \
    return v;                                                                                      \
  }                                                                                                \
  COPSE_HD static inline void copse_moe_##NAME##_reduce(                                           \
      const struct copse_moe_job *job, uint64_t token, struct copse_moe_lane at) {                 \
    const uint32_t units = (uint32_t)(job->row_bytes / job->unit);                                 \
    unsigned char *to = job->tokens_out + token * job->row_bytes;                                  \
    for (uint32_t u = at.lane; u < units; u += at.n_lanes) {                                       \
      uint64_t offset = (uint64_t)u * job->unit;                                                   \
      copse_moe_store(to + offset, copse_moe_##NAME##_reduce_unit(job, token, offset), job->unit); \
    }                                                                                              \
  }

COPSE_FLOAT_TYPES(COPSE_MOE_ELEMENTS)

/* Multiplies a row by `choice`'s scale; the type is a float. */
COPSE_HD static inline void copse_moe_scale_row(const struct copse_moe_job *job, unsigned char *to,
                                                const unsigned char *from, uint64_t choice,
                                                struct copse_moe_lane at) {
#define COPSE_MOE_SCALE(NAME, TYPE, T, A) \
  case TYPE: copse_moe_##NAME##_scale(job, to, from, choice, at); break;
  switch (job->type) {
    COPSE_FLOAT_TYPES(COPSE_MOE_SCALE)
    default: break;
  }
}

/* Sums a token from its choices' rows; the type is a float. */
COPSE_HD static inline void copse_moe_reduce_row(const struct copse_moe_job *job, uint64_t token,
                                                 struct copse_moe_lane at) {
#define COPSE_MOE_REDUCE_ROW(NAME, TYPE, T, A) \
  case TYPE: copse_moe_##NAME##_reduce(job, token, at); break;
  switch (job->type) {
    COPSE_FLOAT_TYPES(COPSE_MOE_REDUCE_ROW)
    default: break;
  }
}
