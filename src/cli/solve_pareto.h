/* copse solve --pareto: how good schedules of few trees are. */
#ifndef COPSE_CLI_SOLVE_PARETO_H
#define COPSE_CLI_SOLVE_PARETO_H

#include <stdbool.h>

#include "cli/solve_args.h"

#define COPSE_CLI_PARETO_MOST 64

/*
 * Solves and verifies for every k from 1 to what the exact optimum needs, or to the k of the
 * arguments (0: COPSE_CLI_PARETO_MOST) and for the exact one; prints a table, or one JSON object.
 * Returns the exit status.
 */
int copse_cli_solve_pareto(struct copse_cli_solve *args, bool json, bool show_progress);

#endif
