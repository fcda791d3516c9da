/* Memory that `copse run` may take. */
#ifndef COPSE_CLI_RUN_MEMORY_H
#define COPSE_CLI_RUN_MEMORY_H

#include "cli/run_options.h"
#include "runtime/plan/plan.h"

/* COPSE_NOMEM, naming a size that fits, where the largest size would need more memory
 * than --max-memory or than the machine has available. Before anything is allocated. */
copse_status copse_run_check_memory(const struct copse_run_options *options,
                                    const struct copse_plan *plan, uint32_t ranks_here,
                                    struct copse_err *err) COPSE_CHECKED;

#endif
