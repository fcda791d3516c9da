/*
 * Element types and reductions. A leaf in the common subset of C11, C++17 and CUDA C++.
 *
 * The numbers are those of NCCL's ncclDataType_t and ncclRedOp_t, so that a port may cast
 * one into the other. Values are stable: new ones are added at the end.
 */
#ifndef COPSE_TYPES_H
#define COPSE_TYPES_H

/* The half, bfloat16 and fp8 types are summed, multiplied and compared in float. */
typedef enum copse_type {
  COPSE_INT8 = 0,
  COPSE_UINT8 = 1,
  COPSE_INT32 = 2,
  COPSE_UINT32 = 3,
  COPSE_INT64 = 4,
  COPSE_UINT64 = 5,
  COPSE_HALF = 6, /* IEEE 754 binary16 */
  COPSE_FLOAT = 7,
  COPSE_DOUBLE = 8,
  COPSE_BFLOAT16 = 9,
  COPSE_FLOAT8_E4M3 = 10, /* OCP E4M3: no infinity, up to 448; results saturate */
  COPSE_FLOAT8_E5M2 = 11, /* OCP E5M2: up to 57344; results saturate */
  COPSE_N_TYPES,
  COPSE_CHAR = COPSE_INT8, /* NCCL's other names */
  COPSE_INT = COPSE_INT32,
  COPSE_FLOAT16 = COPSE_HALF,
  COPSE_FLOAT32 = COPSE_FLOAT,
  COPSE_FLOAT64 = COPSE_DOUBLE
} copse_type;

typedef enum copse_redop {
  COPSE_SUM = 0,
  COPSE_PROD = 1,
  COPSE_MAX = 2,
  COPSE_MIN = 3,
  COPSE_AVG = 4, /* the sum, divided once by the number of ranks */
  COPSE_N_REDOPS
} copse_redop;

#endif
