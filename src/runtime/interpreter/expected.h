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
 *
 * And buffers for one collective on all ranks, filled with test data and checked afterwards:
 * every promised element bit for bit, inputs that must be as they were, and guard zones
 * before and behind every buffer.
 */
#pragma once

#include "base/memory.h"
#include "base/types.h"
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

/* Computes elements [first, first + n) of a rank's input. */
void copse_data_input(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                      void *out);

/* Whether the collective promises anything about the rank's output: reduce only at root. */
bool copse_data_is_promised(const struct copse_data *data, uint32_t rank);

/* Computes elements [first, first + n) of what a rank's output must be after the collective. */
void copse_data_output(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                       void *out);
#define COPSE_GUARD_BYTES 64u /* before and behind each buffer */

struct copse_buffers {
  uint32_t n_ranks;
  uint32_t first, end;                      /* the ranks whose buffers are here */
  uint64_t input_capacity, output_capacity; /* bytes, without guards */
  unsigned char **input_memory;             /* [n_ranks] guard, data, guard */
  unsigned char **output_memory;
  void **inputs, **outputs; /* [n_ranks] of the present launch: for struct copse_launch */
  bool in_place;
  struct copse_data data;
  struct copse_arena arena;
};

/* Returns the bytes that copse_buffers_new takes, the tables included. */
static inline uint64_t copse_buffers_bytes(uint32_t n_ranks, uint64_t input_bytes,
                                           uint64_t output_bytes) {
  return n_ranks *
         (input_bytes + output_bytes + 4 * (uint64_t)COPSE_GUARD_BYTES + 4 * sizeof(void *));
}

/* Makes room for inputs and outputs of up to so many bytes each. COPSE_NOMEM; free it also then. */
copse_status copse_buffers_new(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes,
                               struct copse_buffers *buffers, struct copse_err *err) COPSE_CHECKED;

/* Makes buffers for the n_here ranks from `first` on only. */
copse_status copse_buffers_new_some(uint32_t n_ranks, uint32_t first, uint32_t n_here,
                                    uint64_t input_bytes, uint64_t output_bytes,
                                    struct copse_buffers *buffers,
                                    struct copse_err *err) COPSE_CHECKED;
static inline void copse_buffers_free(struct copse_buffers *buffers) {
  copse_arena_free(&buffers->arena);
  *buffers = (struct copse_buffers){0};
}

/* Whether the collective can work in place: all but alltoall. */
static inline bool copse_buffers_has_in_place(copse_collective collective) {
  return collective != COPSE_ALLTOALL;
}

/* Fills the inputs with `data` (which must fit), the outputs with a pattern that no right
 * result has everywhere, the guards with another, and sets inputs and outputs. In place
 * as in NCCL: see struct copse_launch. */
void copse_buffers_fill(struct copse_buffers *buffers, const struct copse_data *data,
                        bool in_place);

/* Counts, after the collective, wrong elements; an input element or a guard byte that changed is
 * one each. */
uint64_t copse_buffers_count_wrong(const struct copse_buffers *buffers);
