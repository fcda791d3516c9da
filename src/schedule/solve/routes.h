/* Forests whose edges take the fabric's own routes: the best, and others' trees moved there. */
#pragma once

#include "schedule/solve/solve.h"
#include "topology/route.h"

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

/*
 * Hangs the trees of an expanded schedule, `copies` of each with as much less weight, on listed
 * routes, so that links take no more than `target` s per GB where that is found: a rank on whose
 * way a link takes longer is hung, with all below it, where prices of links, which grow steeply
 * with what they carry, are least; after that as high as links have room. No tree becomes more
 * than `higher` hops higher than the highest was. A heuristic. `to` gets the trees, their k and
 * time, and keeps all else; nodes are the topology's in both. *made: each pair of a tree has a
 * route over relays alone, and trees are not too many (policy.h). COPSE_NOMEM, COPSE_OVERFLOW.
 * Deterministic.
 */
copse_status copse_hang_on_routes(const struct copse_topology *topology,
                                  const struct copse_routes *routes, struct copse_q target,
                                  int copies, int higher, const struct copse_schedule *from,
                                  struct copse_schedule *to, bool *made,
                                  struct copse_err *err) COPSE_CHECKED;
