/*
 * Low trees for many roots: all of them grow side by side, over physical links, so that none takes
 * what another needs for its first hops. Edge splitting fixes early which ranks are neighbours,
 * and packing one root after the other leaves long detours to the last; neither happens here.
 */
#ifndef COPSE_SOLVER_TREES_LEVELS_H
#define COPSE_SOLVER_TREES_LEVELS_H

#include "solver/trees/forest.h"

/*
 * `k` trees per unit of root weight. In turns every tree takes one more terminal, the nearest to
 * its shallowest vertex that has a way left, over links of which something is left; a set of nodes
 * that is entered as often as trees must come in (solver/cuts.h) is entered once by each. A tree
 * that gets stuck is helped by exchanges: it takes over links of another tree's way, if the vertex
 * at the end of that finds another place in its own tree, by free links or by such an exchange.
 *
 * The trees are their own proof: they span, and use no link more often than its capacity. A
 * heuristic; *packed says whether all trees were finished, and is false at once where trees times
 * terminals are more than COPSE_LEVELS_MOST. Sets forest->trees and n_trees, each of multiplicity
 * one; equal ones are not merged (solver/shorten.h does). Deterministic.
 * Memory: about 40 bytes for each edge of each tree. Complexity: trees * terminals searches, each
 * of the links around a terminal; exchanges are limited.
 */
copse_status copse_levels_pack(const struct copse_network *network, const int64_t *capacities,
                               int64_t k, const struct copse_progress *progress,
                               struct copse_forest *forest, bool *packed,
                               struct copse_err *err) COPSE_CHECKED;

#define COPSE_LEVELS_MOST (1 << 23)

#endif
