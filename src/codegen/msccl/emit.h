/*
 * Inside src/codegen only: what a schedule asks an MSCCL program to do, in whole chunks.
 */
#ifndef COPSE_CODEGEN_MSCCL_EMIT_H
#define COPSE_CODEGEN_MSCCL_EMIT_H

#include "base/collective.h"
#include "base/text.h"
#include "codegen/lower/whole_chunks.h"
#include "codegen/msccl/msccl.h"
#include "codegen/msccl/program.h"

struct copse_msccl_job {
  const struct copse_schedule *schedule;
  struct copse_msccl_options options;
  struct copse_whole_chunks cut; /* spans of at most COPSE_MSCCL_MAX_COUNT chunks */
  bool fused;           /* may use rcs, rrs, rrc */
  bool skip_copy;       /* in place only: what is its own lies in the output already */
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
