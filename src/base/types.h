/* Collectives, element types and reductions: sizes, kinds and names, which are those of nccl-tests
 * ("float", "half", "bfloat16", "int32", ..., "sum", "prod", ...). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "copse/copse.h"
#include "copse/types.h"

/* Functions that the host and a kernel share, in the common subset of C11, C++17 and CUDA C++. */
#if defined(__CUDACC__)
#define COPSE_HD __host__ __device__
#else
#define COPSE_HD
#endif

COPSE_HD static inline size_t copse_type_bytes(enum copse_type type) {
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

#ifdef __cplusplus
extern "C" {
#endif
const char *copse_type_name(enum copse_type type);
const char *copse_redop_name(enum copse_redop redop);

/* How many there are: values from outside are checked against it. */
#define COPSE_N_COLLECTIVES (COPSE_ALLTOALL + 1)

/* Returns "allgather", "reduce_scatter", ...; "unknown" for a value that is none. */
const char *copse_collective_name(copse_collective collective);
bool copse_collective_from_name(const char *name, copse_collective *out);

/* Whether schedules of it have trees of the broadcast or the reduce phase. */
bool copse_collective_broadcasts(copse_collective collective);
bool copse_collective_reduces(copse_collective collective);

/* Whether one rank is the root of everything. */
bool copse_collective_rooted(copse_collective collective);

/* Returns busbw over algbw, as nccl-tests counts: 2(n-1)/n for allreduce, 1 for broadcast and
 * reduce, else (n-1)/n. */
double copse_collective_bus_factor(copse_collective collective, int n_ranks);

/* Counts the blocks of each rank's input and output: 1, or one per rank. */
int copse_collective_inputs(copse_collective collective, int n_ranks);
int copse_collective_outputs(copse_collective collective, int n_ranks);

#ifdef __cplusplus
}
#endif
