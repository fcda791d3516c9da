/*
 * Test data whose right result is known exactly, and that result: an independent
 * reference for executors, in the spirit of nccl-tests' "verifiable". It shares no code
 * with the executors' arithmetic.
 *
 * How it is exact in any order of reduction (every partial result is, so no rounding
 * happens anywhere):
 *   sum, avg  floats: integers, bounded so that the sum of all magnitudes is exact in
 *             the type (half 2^11, bfloat16 2^8, e4m3 2^4, e5m2 2^3); with more ranks than
 *             that, few of them (for fp8 four and two) contribute something, which ones
 *             differs from element to element. Nothing changes if partial sums are stored
 *             in the type after every step.
 *             avg divides that exact sum once (16 and 8 bits: in float, then rounded).
 *             integers: all bits random, they wrap around.
 *   prod      floats: signs, and powers of two from few ranks. integers: odd, random.
 *   min, max  floats: small integers (8 bits; fp8: as many as it holds) times powers of
 *             two. integers: random.
 *   no reduction: random bits, NaNs among them.
 */
#ifndef COPSE_RUNTIME_INTERPRETER_VERIFY_DATA_H
#define COPSE_RUNTIME_INTERPRETER_VERIFY_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "copse/copse.h"
#include "runtime/plan/plan_abi.h"

struct copse_data {
  copse_collective collective;
  uint32_t n_ranks;
  int32_t root;   /* broadcast, reduce */
  uint64_t count; /* elements of a block */
  enum copse_type type;
  enum copse_redop redop;
  uint64_t seed;                           /* other seeds, other data */
  const struct copse_plan_extent *extents; /* alltoall: [n_ranks * n_ranks] of struct copse_plan,
                                              how much of each block there is; NULL: all */
  const uint64_t *pair_counts;             /* the same in elements, <= count; or NULL */
};

/* Elements [first, first + n) of a rank's input. */
void copse_data_input(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                      void *out);

/* Whether the collective promises anything about the rank's output: reduce only at root. */
bool copse_data_is_promised(const struct copse_data *data, uint32_t rank);
/* Whether all ranks (that are promised anything) get the same output. */
bool copse_data_is_common(const struct copse_data *data);

/* Elements [first, first + n) of what a rank's output must be after the collective. */
void copse_data_output(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                       void *out);

#endif
