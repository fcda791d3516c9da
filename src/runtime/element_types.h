/*
 * Element types and reductions, by nccl-tests' names. A leaf in the common subset of
 * C11, C++17 and CUDA C++.
 */
#ifndef COPSE_RUNTIME_ELEMENT_TYPES_H
#define COPSE_RUNTIME_ELEMENT_TYPES_H

enum copse_type {
  COPSE_INT8,
  COPSE_UINT8,
  COPSE_INT32,
  COPSE_UINT32,
  COPSE_INT64,
  COPSE_UINT64,
  COPSE_HALF,
  COPSE_FLOAT,
  COPSE_DOUBLE,
  COPSE_BFLOAT16,
  COPSE_N_TYPES
};

/* avg is sum, divided by the number of ranks in the MOVE that completes the value. */
enum copse_redop { COPSE_SUM, COPSE_PROD, COPSE_MIN, COPSE_MAX, COPSE_AVG, COPSE_N_REDOPS };

#endif
