/* copse verify of the index of groups that share a fabric. */
#ifndef COPSE_CLI_VERIFY_GROUPS_H
#define COPSE_CLI_VERIFY_GROUPS_H

#include "cli/topology_args.h"

/* Whether a file can be read and is such an index; standard input and pipes are not looked at. */
bool copse_cli_is_groups(const char *path);

/* Checks it and the schedules beside it. Returns the exit status. */
int copse_cli_verify_groups(const char *path, struct copse_cli_topology *topology, bool json);

#endif
