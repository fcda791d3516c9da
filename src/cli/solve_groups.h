/* copse solve --groups: schedules for groups of ranks that share the fabric at the same time. */
#ifndef COPSE_CLI_SOLVE_GROUPS_H
#define COPSE_CLI_SOLVE_GROUPS_H

#include <stdbool.h>

#include "cli/solve_args.h"

struct copse_cli_groups {
  const char *file;   /* schedule/groups.h */
  const char *folder; /* where the schedules and index.json go; NULL: only the report */
  bool json, progress;
};

/*
 * Solves and verifies; index.json, which carries the joint time and its proof, is written last.
 * Ranks are those of the topology before anything broke. Returns the exit status.
 */
int copse_cli_solve_groups(struct copse_cli_solve *args, const struct copse_cli_groups *groups);

#endif
