/*
 * Shallower trees for the same load: the edges of packed trees change places, as drawn in
 * shorten.c. Every link carries what it carried, so an optimal forest stays optimal, and both trees
 * still span if neither new parent hangs below its child.
 */
#ifndef COPSE_SOLVER_TREES_SHORTEN_H
#define COPSE_SOLVER_TREES_SHORTEN_H

#include "solver/trees/forest.h"

/*
 * Works on the highest trees first: swaps that bring one of their deepest vertices up and put
 * nothing else as deep, of single edges, then of whole branches with another tree's ways to the
 * same terminals, until no such swap is found. Every swap lowers the number of vertices at the
 * greatest depth concerned and adds none there, hence it ends; a limit on the candidates looked at
 * bounds the time (a second or two). A tree whose partner has another multiplicity is cut in two
 * for it, which adds at most COPSE_SHORTEN_GROWTH_PERCENT to the number of trees; trees that end up
 * equal become one. The height never grows. A heuristic: it does not claim the lowest forest.
 * COPSE_NOMEM leaves the forest as it was. Memory: about 40 bytes for each edge of each tree.
 */
copse_status copse_forest_shorten(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
