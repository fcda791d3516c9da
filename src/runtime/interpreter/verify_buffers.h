/*
 * Buffers for one collective on all ranks, filled with test data and checked afterwards:
 * every promised element bit for bit, inputs that must be as they were, and guard zones
 * before and behind every buffer.
 */
#ifndef COPSE_RUNTIME_INTERPRETER_VERIFY_BUFFERS_H
#define COPSE_RUNTIME_INTERPRETER_VERIFY_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/types.h"
#include "runtime/interpreter/verify_data.h"

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
};

/* Bytes that copse_buffers_new takes, the tables included. */
uint64_t copse_buffers_bytes(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes);

/* Room for inputs and outputs of up to so many bytes each. COPSE_NOMEM. */
copse_status copse_buffers_new(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes,
                               struct copse_buffers *buffers, struct copse_err *err) COPSE_CHECKED;

/* The same for the n_here ranks from `first` on; of others there is nothing. */
copse_status copse_buffers_new_some(uint32_t n_ranks, uint32_t first, uint32_t n_here,
                                    uint64_t input_bytes, uint64_t output_bytes,
                                    struct copse_buffers *buffers,
                                    struct copse_err *err) COPSE_CHECKED;
void copse_buffers_free(struct copse_buffers *buffers);

/* Whether the collective can work in place: all but alltoall. */
bool copse_buffers_has_in_place(copse_collective collective);

/*
 * Fills the inputs with `data` (which must fit), the outputs with a pattern that no right
 * result has everywhere, the guards with another, and sets inputs and outputs. In place
 * as in NCCL: see struct copse_launch.
 */
void copse_buffers_fill(struct copse_buffers *buffers, const struct copse_data *data,
                        bool in_place);

/* After the collective: the number of wrong elements, an input element or a guard byte
 * that changed counted as one each. */
uint64_t copse_buffers_count_wrong(const struct copse_buffers *buffers);

#endif
