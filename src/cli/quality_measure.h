/* Measures the quality of schedules, each in a process and a time of its own. */
#ifndef COPSE_CLI_QUALITY_MEASURE_H
#define COPSE_CLI_QUALITY_MEASURE_H

#include <stdbool.h>

#include "base/types.h"
#include "cli/quality_table.h"
#include "cli/topology_args.h"

struct copse_quality_limits {
  bool collectives[COPSE_N_COLLECTIVES]; /* which to solve */
  int max_ranks;                         /* larger topologies are skipped */
  int seconds;                           /* of a processor, for each topology and collective */
  int jobs;                              /* at the same time */
};

struct copse_quality_pool;

copse_status copse_quality_pool_new(const struct copse_quality_limits *limits,
                                    struct copse_quality_pool **out,
                                    struct copse_err *err) COPSE_CHECKED;
void copse_quality_pool_free(struct copse_quality_pool *pool); /* ends what still runs */

/*
 * Reads the file (as `read` says, whose path doesn't matter) and starts to solve each collective,
 * waiting for a free place. Rows are added to `table` under `name` as results come in; a file that
 * can't be read is a row too. Whatever happens in the solving process (out of memory, a crash, too
 * long) is a row. Errors are COPSE_NOMEM and COPSE_IO of this process.
 */
copse_status copse_quality_pool_add(struct copse_quality_pool *pool, const char *path,
                                    const char *name, const struct copse_cli_topology *read,
                                    struct copse_quality_table *table,
                                    struct copse_err *err) COPSE_CHECKED;

/* Waits for the rest. */
copse_status copse_quality_pool_finish(struct copse_quality_pool *pool,
                                       struct copse_quality_table *table,
                                       struct copse_err *err) COPSE_CHECKED;

#endif
