/* Solving as every command does it: checked before anybody sees it. */
#ifndef COPSE_CLI_SOLVE_CHECKED_H
#define COPSE_CLI_SOLVE_CHECKED_H

#include "schedule/solve/solve.h"

/* How near its bound an alltoall must come where nobody says: 0 is exact. */
struct copse_q copse_cli_default_tolerance(const struct copse_topology *topology);

/*
 * copse_solve_schedule, then (but for bound_only) copse_verify_schedule: a schedule that its own
 * verifier refuses is COPSE_INTERNAL. Without has_tolerance an alltoall of many ranks gets
 * 1 %. verify_seconds may be NULL. The caller releases *out.
 */
copse_status copse_cli_solve_checked(const struct copse_topology *topology,
                                     const struct copse_solve_options *options, bool has_tolerance,
                                     struct copse_schedule **out,
                                     struct copse_solve_seconds *seconds, double *verify_seconds,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * A number of trees is for equal shares of an allreduce: a note where unequal ones are faster. Solves
 * twice more, so once for a command, not for each of many schedules.
 */
copse_status copse_cli_note_equal_shares(const struct copse_topology *topology,
                                         const struct copse_solve_options *options,
                                         struct copse_err *err) COPSE_CHECKED;

#endif
