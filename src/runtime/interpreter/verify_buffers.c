#include "runtime/interpreter/verify_buffers.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/plan/plan_math.h"

#define GUARD_BYTE 0xa7
#define STALE_BYTE 0xff      /* as a float a NaN, which no reduction here gives */
#define SLICE_ELEMENTS 2048u /* the reference is computed slice by slice */

uint64_t copse_buffers_bytes(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes) {
  return n_ranks *
         (input_bytes + output_bytes + 4 * (uint64_t)COPSE_GUARD_BYTES + 4 * sizeof(void *));
}

copse_status copse_buffers_new(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes,
                               struct copse_buffers *buffers, struct copse_err *err) {
  return copse_buffers_new_some(n_ranks, 0, n_ranks, input_bytes, output_bytes, buffers, err);
}

copse_status copse_buffers_new_some(uint32_t n_ranks, uint32_t first, uint32_t n_here,
                                    uint64_t input_bytes, uint64_t output_bytes,
                                    struct copse_buffers *buffers, struct copse_err *err) {
  copse_status status;
  const uint64_t guards = 2 * (uint64_t)COPSE_GUARD_BYTES;
  memset(buffers, 0, sizeof *buffers);
  buffers->n_ranks = n_ranks;
  buffers->first = first;
  buffers->end = first + n_here;
  buffers->input_capacity = input_bytes;
  buffers->output_capacity = output_bytes;
  COPSE_TRY(copse_calloc(n_ranks, sizeof(void *), &buffers->input_memory, err));
  COPSE_TRY(copse_calloc(n_ranks, sizeof(void *), &buffers->output_memory, err));
  COPSE_TRY(copse_calloc(n_ranks, sizeof(void *), &buffers->inputs, err));
  COPSE_TRY(copse_calloc(n_ranks, sizeof(void *), &buffers->outputs, err));
  for (uint32_t r = first; r < buffers->end; r++) {
    COPSE_TRY(copse_calloc(input_bytes + guards, 1, &buffers->input_memory[r], err));
    COPSE_TRY(copse_calloc(output_bytes + guards, 1, &buffers->output_memory[r], err));
  }
  return COPSE_OK;
out:
  copse_buffers_free(buffers);
  return status;
}

static void free_all(unsigned char **memory, uint32_t n) {
  if (memory)
    for (uint32_t r = 0; r < n; r++) free(memory[r]);
  free(memory);
}

void copse_buffers_free(struct copse_buffers *buffers) {
  free_all(buffers->input_memory, buffers->n_ranks);
  free_all(buffers->output_memory, buffers->n_ranks);
  free(buffers->inputs);
  free(buffers->outputs);
  memset(buffers, 0, sizeof *buffers);
}

bool copse_buffers_has_in_place(copse_collective collective) {
  return collective != COPSE_ALLTOALL;
}

static uint64_t element_bytes(const struct copse_buffers *buffers) {
  return copse_type_bytes(buffers->data.type);
}

/* Elements of a whole input and a whole output. */
static uint64_t input_elements(const struct copse_data *data) {
  bool many = data->collective == COPSE_REDUCE_SCATTER || data->collective == COPSE_ALLTOALL;
  return many ? data->n_ranks * data->count : data->count;
}

static uint64_t output_elements(const struct copse_data *data) {
  bool many = data->collective == COPSE_ALLGATHER || data->collective == COPSE_ALLTOALL;
  return many ? data->n_ranks * data->count : data->count;
}

/* In place both are in the larger of the two memories. */
static void place(struct copse_buffers *buffers, uint32_t r) {
  unsigned char *input = buffers->input_memory[r] + COPSE_GUARD_BYTES;
  unsigned char *output = buffers->output_memory[r] + COPSE_GUARD_BYTES;
  uint64_t own = r * buffers->data.count * element_bytes(buffers);
  if (buffers->in_place && buffers->data.collective == COPSE_REDUCE_SCATTER)
    output = input + own;
  else if (buffers->in_place && buffers->data.collective == COPSE_ALLGATHER)
    input = output + own;
  else if (buffers->in_place)
    input = output;
  buffers->inputs[r] = input;
  buffers->outputs[r] = output;
}

static void fill_guarded(unsigned char *memory, uint64_t bytes) {
  memset(memory, GUARD_BYTE, COPSE_GUARD_BYTES);
  memset(memory + COPSE_GUARD_BYTES, STALE_BYTE, bytes);
  memset(memory + COPSE_GUARD_BYTES + bytes, GUARD_BYTE, COPSE_GUARD_BYTES);
}

void copse_buffers_fill(struct copse_buffers *buffers, const struct copse_data *data,
                        bool in_place) {
  buffers->data = *data;
  buffers->in_place = in_place;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    place(buffers, r);
    fill_guarded(buffers->input_memory[r], input_elements(data) * element_bytes(buffers));
    fill_guarded(buffers->output_memory[r], output_elements(data) * element_bytes(buffers));
    copse_data_input(data, r, 0, input_elements(data), buffers->inputs[r]);
  }
}

/* ---- checking ---------------------------------------------------------------------------- */

static uint64_t count_different(const void *a, const void *b, uint64_t n, uint64_t bytes) {
  if (memcmp(a, b, n * bytes) == 0) return 0;
  uint64_t different = 0;
  for (uint64_t i = 0; i < n; i++)
    if (memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, bytes) != 0) different++;
  return different;
}

static uint64_t count_not(const unsigned char *bytes, uint64_t n, unsigned char value) {
  uint64_t different = 0;
  for (uint64_t i = 0; i < n; i++)
    if (bytes[i] != value) different++;
  return different;
}

/* Of elements [first, first + n) of rank r's output, within one block, those that there are. */
static uint64_t valid_part(const struct copse_data *data, uint32_t r, uint64_t first, uint64_t n) {
  if (!data->extents && !data->pair_counts) return n;
  uint64_t pair = first / data->count * data->n_ranks + r, at = first % data->count;
  uint64_t there = data->pair_counts ? data->pair_counts[pair]
                                     : copse_fraction_of(data->count, data->extents[pair].num,
                                                         data->extents[pair].den);
  return there <= at ? 0 : there - at < n ? there - at : n;
}

/* Elements [first, first + n) of all outputs; beyond a block's extent nothing may be written.
 * Where all ranks' are the same the reference
 * is computed once. */
static uint64_t check_outputs(const struct copse_buffers *buffers, uint64_t first, uint64_t n,
                              void *reference) {
  const struct copse_data *data = &buffers->data;
  uint64_t bytes = element_bytes(buffers), wrong = 0;
  bool have = false;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    if (!copse_data_is_promised(data, r)) continue;
    if (!have) copse_data_output(data, r, first, n, reference);
    have = copse_data_is_common(data);
    uint64_t valid = valid_part(data, r, first, n);
    unsigned char *output = (unsigned char *)buffers->outputs[r] + first * bytes;
    wrong += count_different(output, reference, valid, bytes);
    wrong += count_not(output + valid * bytes, (n - valid) * bytes, STALE_BYTE);
  }
  return wrong;
}

/* Whether elements [first, ...) of the input, a whole number of blocks or a part of one,
 * share their memory with the output. */
static bool is_overwritten(const struct copse_buffers *buffers, uint32_t r, uint64_t element) {
  if (!buffers->in_place) return false;
  if (buffers->data.collective != COPSE_REDUCE_SCATTER) return true;
  return element / buffers->data.count == r;
}

/* Elements [first, first + n) of all inputs, which lie within one block. */
static uint64_t check_inputs(const struct copse_buffers *buffers, uint64_t first, uint64_t n,
                             void *reference) {
  uint64_t bytes = element_bytes(buffers), wrong = 0;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    if (is_overwritten(buffers, r, first)) continue;
    copse_data_input(&buffers->data, r, first, n, reference);
    wrong += count_different((char *)buffers->inputs[r] + first * bytes, reference, n, bytes);
  }
  return wrong;
}

static uint64_t check_guards(const struct copse_buffers *buffers, unsigned char *const *memory,
                             uint64_t bytes) {
  uint64_t wrong = 0;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    wrong += count_not(memory[r], COPSE_GUARD_BYTES, GUARD_BYTE);
    wrong += count_not(memory[r] + COPSE_GUARD_BYTES + bytes, COPSE_GUARD_BYTES, GUARD_BYTE);
  }
  return wrong;
}

/* The length of the slice at `first`, which doesn't reach into the next block. */
static uint64_t slice(uint64_t first, uint64_t count) {
  uint64_t left = count - first % count;
  return left < SLICE_ELEMENTS ? left : SLICE_ELEMENTS;
}

uint64_t copse_buffers_count_wrong(const struct copse_buffers *buffers) {
  const struct copse_data *data = &buffers->data;
  uint64_t reference[SLICE_ELEMENTS], wrong = 0, n;
  for (uint64_t at = 0; at < output_elements(data); at += n) {
    n = slice(at, data->count);
    wrong += check_outputs(buffers, at, n, reference);
  }
  for (uint64_t at = 0; at < input_elements(data); at += n) {
    n = slice(at, data->count);
    wrong += check_inputs(buffers, at, n, reference);
  }
  wrong +=
      check_guards(buffers, buffers->input_memory, input_elements(data) * element_bytes(buffers));
  wrong +=
      check_guards(buffers, buffers->output_memory, output_elements(data) * element_bytes(buffers));
  return wrong;
}
