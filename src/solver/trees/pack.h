/*
 * Packing spanning trees: on a graph without relays, k out-trees for every unit of root
 * weight, each link used at most as often as its capacity says.
 */
#ifndef COPSE_SOLVER_TREES_PACK_H
#define COPSE_SOLVER_TREES_PACK_H

#include <stddef.h>

#include "solver/network/flow.h"
#include "solver/trees/maker.h"

/* `multiplicity` equal trees; edges in an order in which every src has the data. */
struct copse_packed_tree {
  int root;
  int64_t multiplicity;
  size_t first_edge; /* into copse_packing.edges; n_terminals - 1 of them */
};
struct copse_packed_edge {
  int src, dst;
};
struct copse_packing {
  struct copse_packed_tree *trees;
  size_t n_trees, trees_capacity;
  struct copse_packed_edge *edges;
  size_t n_edges, edges_capacity;
};

/*
 * Grows the trees of one root after the other, link by link, each by the largest safe
 * multiplicity: Berczi and Frank, "Packing arborescences", RIMS Kokyuroku Bessatsu B23
 * (2010); Tarjan, "A good algorithm for edge-disjoint branching", IPL 3 (1974).
 * Breadth-first, so that trees stay shallow. Runs ahead of the proof: the trees of many roots
 * are grown within the cuts known to be narrow (network/cuts.h), asking no flow; one flow per
 * terminal then proves that the rest can still be packed (Edmonds 1973), and after the last
 * root the trees are their own proof. Where trust fails the cuts found broken join, the batch
 * is halved, and at last a root is packed link by link as above. Cuts that would be tight with up
 * to twice the trees are known from the start, and a tree enters a known cut again only where it
 * can't go on otherwise: what they can spare is left for those that need it. `flow` holds the
 * capacities (those of relays are zero) and is used up.
 * Networks of fewer roots than problem->trust_from begin with a few roots at once and enter cuts
 * as they come: what a batch that holds makes is what the careful way makes.
 * COPSE_INTERNAL if the graph doesn't carry the trees.
 * Complexity: at worst about trees * terminals maximum flows; where trust holds, two per
 * terminal.
 */
copse_status copse_pack_trees(const struct copse_tree_problem *problem, struct copse_flow *flow,
                              struct copse_packing *out, struct copse_err *err) COPSE_CHECKED;
void copse_packing_free(struct copse_packing *packing);

#endif
