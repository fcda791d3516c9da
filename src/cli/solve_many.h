/* copse solve --pareto, --each-failure and --groups: many schedules of one topology. */
#pragma once

#include "cli/solve_args.h"

struct copse_cli_many {
  struct copse_cli_solve *args;
  const char *each_failure; /* a type of nodes, or NULL */
  const char *groups;       /* a list of groups (schedule/groups.h), or NULL */
  const char *folder;       /* where schedules and index.json go; NULL: only the report */
  bool json;
  const struct copse_cli_costs *costs; /* of predictions, for --pareto */
};

/*
 * Solves, verifies, and prints a table or one JSON object; index.json is written last. The exit
 * status.
 *
 * each_failure: the healthy topology (the arguments' faults applied) and what is left after the
 * failure of each node of the type. Where a symmetry of the fabric, which is proved, takes one
 * failure to another, the second schedule is the image of the first, verified like every other; not
 * where there is a root or a demand, which it would move, nor with --no-symmetry. A failure that
 * leaves a rank out of reach is an answer, and stands in the table.
 *
 * groups: the index carries the joint time and its proof. Ranks are those of the topology before
 * anything broke.
 */
int copse_cli_solve_many(struct copse_cli_many *how);

/*
 * Does what --pareto asks for: makes the proposals of propose.h, and every k from 1 to what the
 * exact optimum needs, or to the k of the arguments (0: 64); prints of these what nothing else
 * equals in both hops and time, and what is predicted to be the fastest at some size, lowered as it
 * is or for that size. A k over 16 that is not on the frontier when it is made is not timed.
 * Returns the exit status.
 */
int copse_cli_solve_pareto(struct copse_cli_many *how);
