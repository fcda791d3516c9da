/*
 * Inside src/codegen: a schedule in whole chunks, for executors that cut every message into a
 * fixed number of them.
 */
#ifndef COPSE_CODEGEN_LOWER_WHOLE_CHUNKS_H
#define COPSE_CODEGEN_LOWER_WHOLE_CHUNKS_H

#include "base/text.h"
#include "codegen/lower/work.h"

/* Consecutive chunks of one block with what moves them. */
struct copse_chunk_run {
  const struct copse_unit *unit;
  int offset, count; /* offset: within the block */
};

struct copse_whole_chunks {
  const struct copse_schedule *schedule;
  int stretch; /* no run crosses a multiple of so many chunks of its block */
  int blocks;  /* of the message: one per rank, or 1 for an allreduce */
  int block;   /* chunks of a block; 0: not cut yet */
  int chunks;  /* blocks * block */
  struct copse_units units;
  struct copse_chunk_run *runs;
  size_t n_runs, runs_capacity;
  struct copse_arena arena; /* of the units */
};

/* Units of the schedule; not yet in chunks. COPSE_UNSUPPORTED: rooted, by demand. */
copse_status copse_chunks_start(struct copse_whole_chunks *w, const struct copse_schedule *schedule,
                                int instances, int stretch, struct copse_err *err) COPSE_CHECKED;
void copse_chunks_free(struct copse_whole_chunks *w);

/* The fewest chunks of a block on which every boundary falls; more than `most` may be less
 * than that. */
copse_status copse_chunks_exact(const struct copse_whole_chunks *w, int most, int64_t *block,
                                struct copse_err *err) COPSE_CHECKED;

/* Blocks of `block` chunks; a boundary within a chunk goes to the nearest. */
copse_status copse_chunks_cut(struct copse_whole_chunks *w, int block,
                              struct copse_err *err) COPSE_CHECKED;

/* The topology's name in letters that no format reads as its own; other programs key by it. */
void copse_chunks_add_name(const struct copse_whole_chunks *w, struct copse_text *text);

#endif
