/* copse solve --pareto and --each-failure: many schedules of one topology. */
#ifndef COPSE_CLI_SOLVE_MANY_H
#define COPSE_CLI_SOLVE_MANY_H

#include "cli/solve_args.h"

struct copse_cli_many {
  const char *folder; /* where the schedules and index.json go; NULL: only the report */
  bool json, progress;
};

/*
 * Solves and verifies for every k from 1 to what the exact optimum needs, or to the k of the
 * arguments (0: 64) and for the exact one; prints a table, or one JSON object.
 * Returns the exit status.
 */
int copse_cli_solve_pareto(struct copse_cli_solve *args, const struct copse_cli_many *how);

/*
 * Solves and verifies the healthy topology (the arguments' faults applied) and what is left after
 * the failure of each node of a type. Where a symmetry of the fabric, which is proved, takes one
 * failure to another, the second schedule is the image of the first, verified like every other; not
 * where there is a root or a demand, which it would move, nor with --no-symmetry. A failure that
 * leaves a rank out of reach is an answer, and stands in the table. index.json is written last.
 * Returns the exit status.
 */
int copse_cli_solve_failures(struct copse_cli_solve *args, const char *type,
                             const struct copse_cli_many *how);

#endif
