/* Inside src/codegen only: one symbolic run of an MSCCL++ plan. */
#ifndef COPSE_CODEGEN_MSCCLPP_CHECK_RUN_H
#define COPSE_CODEGEN_MSCCLPP_CHECK_RUN_H

#include "codegen/mscclpp/file.h"

/* `rounds`: how often the shortest pipeline runs; others by their sizes. */
copse_status copse_pj_run(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                          struct copse_err *err) COPSE_CHECKED;

/* Whether the plan has a pipeline. */
bool copse_pj_has_pipeline(const struct copse_pj_file *file);

#endif
