/* copse solve --groups: schedules for groups of ranks that share the fabric at the same time. */
#ifndef COPSE_CLI_SOLVE_GROUPS_H
#define COPSE_CLI_SOLVE_GROUPS_H

#include "cli/solve_many.h"

/*
 * Solves and verifies for the groups that `file` lists (schedule/groups.h); index.json, which
 * carries the joint time and its proof, is written last. Ranks are those of the topology before
 * anything broke. Returns the exit status.
 */
int copse_cli_solve_groups(struct copse_cli_solve *args, const char *file,
                           const struct copse_cli_many *how);

#endif
