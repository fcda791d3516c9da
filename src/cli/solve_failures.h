/* copse solve --each-failure: schedules for every single failure, before it happens. */
#ifndef COPSE_CLI_SOLVE_FAILURES_H
#define COPSE_CLI_SOLVE_FAILURES_H

#include <stdbool.h>

#include "cli/solve_args.h"

struct copse_cli_failures {
  const char *type;   /* of the nodes that fail, one at a time: "nic" */
  const char *folder; /* where the schedules and index.json go; NULL: only the table */
  bool json, progress;
};

/*
 * Solves and verifies the healthy topology (the arguments' faults applied) and what is left after
 * each failure. Where a symmetry of the fabric, which is proved, takes one failure to another, the
 * second schedule is the image of the first, verified like every other; not where there is a root or
 * a demand, which it would move, nor with --no-symmetry. A failure
 * that leaves a rank out of reach is an answer, and stands in the table. index.json is written
 * last. Returns the exit status.
 */
int copse_cli_solve_failures(struct copse_cli_solve *args,
                             const struct copse_cli_failures *failures);

#endif
