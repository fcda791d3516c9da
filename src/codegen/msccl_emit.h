/*
 * Inside src/codegen only: what a schedule asks an MSCCL program to do, in whole chunks.
 */
#ifndef COPSE_CODEGEN_MSCCL_EMIT_H
#define COPSE_CODEGEN_MSCCL_EMIT_H

#include "base/collective.h"
#include "base/text.h"
#include "codegen/chain.h"
#include "codegen/msccl.h"
#include "codegen/msccl_program.h"
#include "codegen/unit.h"

/* Consecutive chunks of one block with what carries them. No span crosses a multiple of
 * COPSE_MSCCL_MAX_COUNT chunks of its block, so that one step can move it. */
struct copse_msccl_span {
  int block, offset, count; /* offset: within the block */
  const struct copse_unit *unit;
  const struct copse_chain *chain; /* one of the two */
};

struct copse_msccl_job {
  const struct copse_schedule *schedule;
  struct copse_msccl_options options;
  int chunks;     /* C: of the whole message */
  int block;      /* chunks of a rank's block; of an allreduce, C */
  bool fused;     /* may use rcs, rrs, rrc */
  bool skip_copy; /* in place only: what is its own lies in the output already */
  struct copse_units units;
  struct copse_chains chains;
  struct copse_msccl_span *spans;
  size_t n_spans, spans_capacity;
};

/* Adds the steps of all spans. COPSE_UNSUPPORTED where connections run out. */
copse_status copse_msccl_emit_trees(const struct copse_msccl_job *job,
                                    struct copse_msccl_program *p) COPSE_CHECKED;
copse_status copse_msccl_emit_chains(const struct copse_msccl_job *job,
                                     struct copse_msccl_program *p) COPSE_CHECKED;

/* The program as XML. */
copse_status copse_msccl_write(const struct copse_msccl_job *job,
                               const struct copse_msccl_program *p, struct copse_text *text,
                               struct copse_err *err) COPSE_CHECKED;

#endif
