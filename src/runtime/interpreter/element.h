/*
 * Arithmetic on one element, in the common subset of C11, C++17 and CUDA C++: what the
 * CPU executors compute is what a GPU computes, bit for bit. For every type NAME:
 *
 *   copse_NAME_load    stored value -> accumulator (half, bfloat16 and fp8: float)
 *   copse_NAME_sum, _prod, _min, _max
 *   copse_NAME_divide  by the number of ranks, for avg
 *   copse_NAME_store   accumulator -> stored value, rounded once
 *
 * Integers wrap around and avg truncates towards zero. Floats round to nearest even;
 * avg is a correctly rounded division of the accumulator (for half, bfloat16 and fp8 in
 * float, rounded to the type when stored). min and max prefer the number to a NaN, and
 * of equals (-0 and +0) the first. Which NaN an arithmetic operation gives is the
 * processor's choice. fp8 saturates as in CUDA's conversions (__NV_SATFINITE): what is too
 * large, also infinity, is stored as the largest finite value, every NaN as 0x7f.
 * A build that flushes subnormals or assumes finite math (-ffast-math, nvcc
 * --use_fast_math) breaks the promise.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "runtime/plan/plan_math.h"

COPSE_HD static inline uint32_t copse_float_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

COPSE_HD static inline float copse_float_from_bits(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* ---- half (IEEE 754 binary16) and bfloat16 ------------------------------------------
 * All cases are computed and one is selected, so that loops over elements vectorise. */

/* Returns a where the condition holds, else b; by a mask, which compilers don't turn into a
 * jump. */
COPSE_HD static inline uint32_t copse_select(int condition, uint32_t a, uint32_t b) {
  return b ^ ((a ^ b) & (0u - (uint32_t)condition));
}

/* Converts exactly. A NaN keeps sign and payload and becomes quiet. */
COPSE_HD static inline float copse_half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t rest = h & 0x7fffu;
  /* Normal: the exponent's bias goes from 15 to 127. */
  uint32_t normal = (rest << 13) + (112u << 23);
  /* Infinity, NaN: the largest exponent stays the largest. */
  uint32_t special = (rest << 13) + (224u << 23);
  special |= (uint32_t)(rest > 0x7c00u) << 22;
  /* Subnormal: rest * 2^-24, which float holds as a normal number. */
  uint32_t tiny = copse_float_bits((float)(int32_t)rest * 5.9604644775390625e-8f);
  uint32_t bits = copse_select(rest < 0x400u, tiny, normal);
  return copse_float_from_bits(sign | copse_select(rest >= 0x7c00u, special, bits));
}

/* Rounds to nearest even. */
COPSE_HD static inline uint16_t copse_half_from_float(float v) {
  uint32_t sign = copse_float_bits(v) >> 16 & 0x8000u;
  uint32_t rest = copse_float_bits(v) & 0x7fffffffu;
  /* Normal: a carry out of the mantissa counts the exponent up, as it should. */
  uint32_t normal = (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u)) >> 13;
  /* Subnormal, below 2^-14: next to 0.5 floats are 2^-24 apart, the distance of
   * subnormal halves, so that the addition rounds just as needed. */
  uint32_t tiny = copse_float_bits(copse_float_from_bits(rest) + 0.5f) - 0x3f000000u;
  uint32_t nan = 0x7e00u | (rest >> 13 & 0x3ffu);
  uint32_t bits = copse_select(rest < 0x38800000u, tiny, normal);
  bits = copse_select(rest >= 0x477ff000u, 0x7c00u, bits); /* 65520 and up: infinity */
  bits = copse_select(rest > 0x7f800000u, nan, bits);
  return (uint16_t)(sign | bits);
}

/* Converts exactly: bfloat16 is the upper half of a float. */
COPSE_HD static inline float copse_bfloat16_to_float(uint16_t b) {
  return copse_float_from_bits((uint32_t)b << 16);
}

COPSE_HD static inline uint16_t copse_bfloat16_from_float(float v) {
  uint32_t bits = copse_float_bits(v);
  /* No overflow, even with the sign bit set; a carry reaches infinity rightly. */
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  /* A NaN whose payload lies in the lower half must not become infinity. */
  uint32_t nan = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* ---- fp8: the OCP formats E4M3 (bias 7, up to 448) and E5M2 (bias 15, up to 57344) ---- */

/* Converts exactly. E4M3 has no infinity and one NaN a sign, all bits set. */
COPSE_HD static inline float copse_float8_e4m3_to_float(uint8_t b) {
  uint32_t sign = (uint32_t)(b & 0x80u) << 24;
  uint32_t rest = b & 0x7fu;
  uint32_t normal = (rest << 20) + (120u << 23); /* the exponent's bias goes from 7 to 127 */
  uint32_t tiny = copse_float_bits((float)(int32_t)rest * 0.001953125f); /* 2^-9 */
  uint32_t bits = copse_select(rest < 8u, tiny, normal);
  return copse_float_from_bits(sign | copse_select(rest == 0x7fu, 0x7ff00000u, bits));
}

/* Converts exactly: E5M2 is the upper half of a half. */
COPSE_HD static inline float copse_float8_e5m2_to_float(uint8_t b) {
  return copse_half_to_float((uint16_t)(b << 8));
}

/* Rounds to nearest even as copse_half_from_float; beyond `largest` to that. */
COPSE_HD static inline uint8_t copse_float8_from_float(float v, uint32_t mantissa_bits,
                                                       uint32_t bias, uint32_t largest) {
  const uint32_t drop = 23u - mantissa_bits;
  /* 2^(24 - bias - mantissa_bits), next to which floats are as far apart as subnormals here */
  const uint32_t shifter = (151u - bias - mantissa_bits) << 23;
  uint32_t sign = copse_float_bits(v) >> 24 & 0x80u;
  uint32_t rest = copse_float_bits(v) & 0x7fffffffu;
  uint32_t half_down = (1u << (drop - 1u)) - 1u + (rest >> drop & 1u);
  uint32_t normal = (rest - ((127u - bias) << 23) + half_down) >> drop;
  uint32_t tiny =
      copse_float_bits(copse_float_from_bits(rest) + copse_float_from_bits(shifter)) - shifter;
  uint32_t bits = copse_select(rest < (128u - bias) << 23, tiny, normal);
  bits = sign | copse_select(bits > largest, largest, bits);
  return (uint8_t)copse_select(rest > 0x7f800000u, 0x7fu, bits);
}

COPSE_HD static inline uint8_t copse_float8_e4m3_from_float(float v) {
  return copse_float8_from_float(v, 3u, 7u, 0x7eu);
}

COPSE_HD static inline uint8_t copse_float8_e5m2_from_float(float v) {
  return copse_float8_from_float(v, 2u, 15u, 0x7bu);
}

/* ---- the operations ----------------------------------------------------------------- */

/* An average divides every element of a tile; on a GPU, where tiles are unrolled and integers are
 * divided in software, that is a call instead of a hundred copies. */
#if defined(__CUDACC__)
#define COPSE_DIVISION COPSE_HD static __noinline__ __attribute__((unused))
#else
#define COPSE_DIVISION static inline
#endif

/* T: stored and accumulated; U: unsigned of T's width, in which sums and products wrap
 * without undefined behaviour; W: 64 bits wide of T's signedness, for the division. */
#define COPSE_ELEMENT_INTEGER(NAME, T, U, W)                                             \
  COPSE_HD static inline T copse_##NAME##_load(T v) { return v; }                        \
  COPSE_HD static inline T copse_##NAME##_store(T v) { return v; }                       \
  COPSE_HD static inline T copse_##NAME##_sum(T a, T b) { return (T)(U)((U)a + (U)b); }  \
  COPSE_HD static inline T copse_##NAME##_prod(T a, T b) { return (T)(U)((U)a * (U)b); } \
  COPSE_HD static inline T copse_##NAME##_min(T a, T b) { return b < a ? b : a; }        \
  COPSE_HD static inline T copse_##NAME##_max(T a, T b) { return b > a ? b : a; }        \
  COPSE_DIVISION T copse_##NAME##_divide(T a, uint32_t n) { return (T)((W)a / (W)n); }

COPSE_ELEMENT_INTEGER(int8, int8_t, uint8_t, int64_t)
COPSE_ELEMENT_INTEGER(uint8, uint8_t, uint8_t, uint64_t)
COPSE_ELEMENT_INTEGER(int32, int32_t, uint32_t, int64_t)
COPSE_ELEMENT_INTEGER(uint32, uint32_t, uint32_t, uint64_t)
COPSE_ELEMENT_INTEGER(int64, int64_t, uint64_t, int64_t)
COPSE_ELEMENT_INTEGER(uint64, uint64_t, uint64_t, uint64_t)

/* nvcc has options that make / approximate and contract a * b + c; these don't yield. */
#if defined(__CUDA_ARCH__)
#define COPSE_FLOAT_DIVIDE(a, b) __fdiv_rn(a, b)
#define COPSE_DOUBLE_DIVIDE(a, b) __ddiv_rn(a, b)
#else
#define COPSE_FLOAT_DIVIDE(a, b) ((a) / (b))
#define COPSE_DOUBLE_DIVIDE(a, b) ((a) / (b))
#endif

/* T: stored; A: accumulator. */
#define COPSE_ELEMENT_FLOAT(NAME, T, A, LOAD, STORE, DIVIDE)                                     \
  COPSE_HD static inline A copse_##NAME##_load(T v) { return LOAD(v); }                          \
  COPSE_HD static inline T copse_##NAME##_store(A v) { return STORE(v); }                        \
  COPSE_HD static inline A copse_##NAME##_sum(A a, A b) { return a + b; }                        \
  COPSE_HD static inline A copse_##NAME##_prod(A a, A b) { return a * b; }                       \
  COPSE_HD static inline A copse_##NAME##_min(A a, A b) { return ((b < a) | (a != a)) ? b : a; } \
  COPSE_HD static inline A copse_##NAME##_max(A a, A b) { return ((b > a) | (a != a)) ? b : a; } \
  COPSE_HD static inline A copse_##NAME##_divide(A a, uint32_t n) { return DIVIDE(a, (A)n); }

#define COPSE_AS_IT_IS(v) (v)
COPSE_ELEMENT_FLOAT(half, uint16_t, float, copse_half_to_float, copse_half_from_float,
                    COPSE_FLOAT_DIVIDE)
COPSE_ELEMENT_FLOAT(bfloat16, uint16_t, float, copse_bfloat16_to_float, copse_bfloat16_from_float,
                    COPSE_FLOAT_DIVIDE)
COPSE_ELEMENT_FLOAT(float8_e4m3, uint8_t, float, copse_float8_e4m3_to_float,
                    copse_float8_e4m3_from_float, COPSE_FLOAT_DIVIDE)
COPSE_ELEMENT_FLOAT(float8_e5m2, uint8_t, float, copse_float8_e5m2_to_float,
                    copse_float8_e5m2_from_float, COPSE_FLOAT_DIVIDE)
COPSE_ELEMENT_FLOAT(float, float, float, COPSE_AS_IT_IS, COPSE_AS_IT_IS, COPSE_FLOAT_DIVIDE)
COPSE_ELEMENT_FLOAT(double, double, double, COPSE_AS_IT_IS, COPSE_AS_IT_IS, COPSE_DOUBLE_DIVIDE)

/* X(name, enum copse_type, stored type, accumulator) for every element type. */
#define COPSE_FLOAT_TYPES(X)                         \
  X(half, COPSE_HALF, uint16_t, float)               \
  X(bfloat16, COPSE_BFLOAT16, uint16_t, float)       \
  X(float8_e4m3, COPSE_FLOAT8_E4M3, uint8_t, float)  \
  X(float8_e5m2, COPSE_FLOAT8_E5M2, uint8_t, float)  \
  X(float, COPSE_FLOAT, float, float)                \
  X(double, COPSE_DOUBLE, double, double)
#define COPSE_ELEMENT_TYPES(X)                 \
  X(int8, COPSE_INT8, int8_t, int8_t)          \
  X(uint8, COPSE_UINT8, uint8_t, uint8_t)      \
  X(int32, COPSE_INT32, int32_t, int32_t)      \
  X(uint32, COPSE_UINT32, uint32_t, uint32_t)  \
  X(int64, COPSE_INT64, int64_t, int64_t)      \
  X(uint64, COPSE_UINT64, uint64_t, uint64_t)  \
  COPSE_FLOAT_TYPES(X)
