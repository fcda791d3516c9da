/*
 * Trees of a single root: a broadcast or a reduce among many.
 */
#ifndef COPSE_SOLVER_TREES_SINGLE_H
#define COPSE_SOLVER_TREES_SINGLE_H

#include "solver/trees/forest.h"
#include "solver/network/network.h"

/*
 * Grows `k` trees of the network's only root over physical links, one after the other,
 * breadth-first. Hosts, and whatever else is joined by faster links than lead there
 * (solver/nested_cuts.h), are entered once by a tree, first those of whose own links most is left:
 * each tree then goes on from hosts that the others have left alone, and uses few of them up.
 * Trees as alike as the narrowest link allows are grown as one, or in smaller families where that
 * makes them lower. Nothing is asked of a link but what is left of it: the trees are their own
 * proof. In the end edges change places (solver/shorten.h). A heuristic,
 * which finds trees on clusters of hosts; *packed says whether it did. Sets forest->trees and
 * n_trees; forest->k is the caller's.
 * Complexity: (trees) * (terminals) * (links within the reach of a terminal over relays).
 */
copse_status copse_single_pack(const struct copse_network *network, const int64_t *capacities,
                               int64_t k, const struct copse_progress *progress,
                               struct copse_forest *forest, bool *packed,
                               struct copse_err *err) COPSE_CHECKED;

#endif
