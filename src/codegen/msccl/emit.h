/*
 * Inside codegen/msccl: what a schedule asks an MSCCL program to do, in whole chunks.
 */
#ifndef COPSE_CODEGEN_MSCCL_EMIT_H
#define COPSE_CODEGEN_MSCCL_EMIT_H

#include "codegen/lower/whole_chunks.h"
#include "codegen/msccl/program.h"

struct copse_msccl_style {
  bool fused;     /* may use rcs, rrs, rrc */
  bool skip_copy; /* in place only: what is its own lies in the output already */
};

/* Adds the steps of all runs of chunks, of at most COPSE_MSCCL_MAX_COUNT each, in one global order
 * (program.h); p->status says whether it could. O(runs * ranks * blocks of a rank). */
void copse_msccl_emit(const struct copse_whole_chunks *cut, struct copse_msccl_style style,
                      struct copse_msccl_program *p);

#endif
