/*
 * Inside codegen/msccl: what a schedule asks an MSCCL program to do, in whole chunks.
 */
#ifndef COPSE_CODEGEN_MSCCL_EMIT_H
#define COPSE_CODEGEN_MSCCL_EMIT_H

#include "base/collective.h"
#include "base/text.h"
#include "codegen/lower/whole_chunks.h"
#include "codegen/msccl/lower.h"
#include "codegen/msccl/program.h"

struct copse_msccl_job {
  const struct copse_schedule *schedule;
  struct copse_msccl_options options;
  struct copse_whole_chunks cut; /* runs of at most COPSE_MSCCL_MAX_COUNT chunks */
  bool fused;                    /* may use rcs, rrs, rrc */
  bool skip_copy;                /* in place only: what is its own lies in the output already */
};

/* Adds the steps of all runs of chunks, in one global order (program.h); p->status says whether it
 * could. O(runs * ranks * blocks of a rank). */
void copse_msccl_emit(const struct copse_msccl_job *job, struct copse_msccl_program *p);

#endif
