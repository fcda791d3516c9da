/* Inside src/schedule/solve only: the best forests whose edges take the fabric's own routes. */
#pragma once

#include "schedule/solve/solve.h"

/*
 * Gives a schedule, which is named and has its bound, the best trees of such edges in the place of
 * any others, with their time, k, and `routes`. A tolerance: the fewest trees within it that are
 * found. options->notes says where the optimum's fractions are rounded. COPSE_UNSUPPORTED where
 * routes are not listed or the programme is too large or not solved,
 * COPSE_INFEASIBLE where relays alone join no tree.
 */
copse_status copse_solve_on_routes(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule *schedule,
                                   struct copse_solve_seconds *seconds,
                                   struct copse_err *err) COPSE_CHECKED;

/* Converts n prices, not negative, not all 0, to whole numbers without a common divisor: in their
 * ratio where none is above COPSE_ROUTES_LONGEST, else rounded down with the largest price as that.
 */
void copse_routes_whole_prices(const struct copse_q *prices, int n, int64_t *whole);
