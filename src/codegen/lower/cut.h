/*
 * Inside src/codegen only: a schedule in whole chunks, for executors that cut every message
 * into a fixed number of them.
 */
#ifndef COPSE_CODEGEN_LOWER_CUT_H
#define COPSE_CODEGEN_LOWER_CUT_H

#include "base/text.h"
#include "codegen/lower/chain.h"
#include "codegen/lower/unit.h"

/* Consecutive chunks of one block with what carries them. */
struct copse_span {
  int block, offset, count; /* offset: within the block */
  const struct copse_unit *unit;
  const struct copse_chain *chain; /* one of the two */
};

struct copse_cut {
  const struct copse_schedule *schedule;
  int stretch; /* no span crosses a multiple of so many chunks of its block */
  int blocks;  /* of the message: one per rank, or 1 for an allreduce */
  int block;   /* chunks of a block; 0: not cut yet */
  int chunks;  /* blocks * block */
  struct copse_units units;
  struct copse_chains chains;
  struct copse_span *spans;
  size_t n_spans, spans_capacity;
};

/* Units or chains of the schedule; not yet in chunks. COPSE_UNSUPPORTED: rooted, by demand. */
copse_status copse_cut_start(struct copse_cut *cut, const struct copse_schedule *schedule,
                             int instances, int stretch, struct copse_err *err) COPSE_CHECKED;
void copse_cut_free(struct copse_cut *cut);

/* The fewest chunks of a block on which every boundary falls; more than `most` may be less
 * than that. */
copse_status copse_cut_exact(const struct copse_cut *cut, int most, int64_t *block,
                             struct copse_err *err) COPSE_CHECKED;

/* Blocks of `block` chunks; a boundary within a chunk goes to the nearest. */
copse_status copse_cut_into(struct copse_cut *cut, int block, struct copse_err *err) COPSE_CHECKED;

/* The topology's name in letters that no format reads as its own; other programs key by it. */
void copse_cut_add_name(const struct copse_cut *cut, struct copse_text *text);

#endif
