/*
 * Trees for a network with known symmetries: those of one root of each orbit, of which all other
 * roots' trees are images (BACKGROUND section 5).
 *
 * Let H be the products of the generators: a commutative group, under which an orbit of links O
 * has |O| members, all of one capacity c, and each of them stays where it is under |H| / |O|
 * products. Base trees that use the links of O together L times put, moved by all of H, a load
 * of L * |H| / |O| on every one of them. So the whole forest respects the capacities if and only if
 *
 *   L <= c * |O| / |H|   for every orbit of links,
 *
 * and that is all that the base trees must respect. They span all terminals, and so do their
 * images. The products move no root onto itself, but for the one that moves nothing: so k trees of
 * every base root are k trees of every root. That the rate is the optimum's follows from k and
 * the capacities, as it does for the trees of solver/pack.h.
 */
#ifndef COPSE_SOLVER_TREES_ORBIT_TREES_H
#define COPSE_SOLVER_TREES_ORBIT_TREES_H

#include "solver/trees/forest.h"
#include "solver/network/network.h"

/*
 * Grows `k` trees for the first root of each orbit, over physical links, breadth-first. Sets of
 * nodes that can be entered only as often as trees must come in (the tight cuts nearest to base
 * roots, and their images) are entered once by a tree. Nothing else is asked of a link but what is
 * left for its orbit: the trees are their own proof. A heuristic, which finds trees on
 * clusters of alike hosts; *packed says whether it did. Roots of different weights are not
 * tried. Sets forest->trees, n_trees and k: with
 * `multiple` a multiple of `k` where the shares of links that stay in place are no integers.
 * Complexity: (trees) * (links) where no tree has to be split.
 */
copse_status copse_template_pack(const struct copse_network *network, const int64_t *capacities,
                                 int64_t k, const struct copse_network_symmetry *symmetry,
                                 bool multiple, const struct copse_progress *progress,
                                 struct copse_forest *forest, bool *packed,
                                 struct copse_err *err) COPSE_CHECKED;

#endif
