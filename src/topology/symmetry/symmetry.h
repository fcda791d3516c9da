/*
 * Symmetries of a topology: permutations of its nodes that keep ranks, links and bandwidths.
 */
#ifndef COPSE_TOPOLOGY_SYMMETRY_SYMMETRY_H
#define COPSE_TOPOLOGY_SYMMETRY_SYMMETRY_H

#include "topology/topology.h"

struct copse_symmetry_generator {
  int order;  /* applied so often it changes nothing; >= 2 */
  int *image; /* [n_nodes] */
};

/*
 * Generators that commute. Their products, each power from 0 to order - 1, move no rank onto
 * itself but for the first of them, which moves nothing: every orbit of ranks has as many members
 * as there are products.
 */
struct copse_symmetry {
  int n;
  struct copse_symmetry_generator *generators; /* [n] */
  int n_products;                              /* 1 without generators */
  /* more automorphisms, of any order (0: not told), which join orbits that the products leave
   * apart */
  int n_others;
  struct copse_symmetry_generator *others; /* [n_others] */
};

/*
 * Whether `image` [n_nodes] is an automorphism, checked on every node and link: each node hit
 * once, ranks to ranks, switches that copy or reduce to such, links to links of equal bandwidth.
 * Latencies may differ.
 */
copse_status copse_topology_is_automorphism(const struct copse_topology *topology, const int *image,
                                            bool *is, struct copse_err *err) COPSE_CHECKED;

/*
 * Looks for symmetries, whatever the nodes are called and however they are numbered, in three
 * steps; each candidate counts once it has been checked on every link, and a generator once it
 * has the order it is said to have, commutes with those before and moves every rank freely.
 *
 * 1. Turns of blocks by number, as hosts and their GPUs are mostly numbered: rank r of a block of
 *    B goes to (r + s) mod B of the same block, where s divides B and B the number of ranks.
 * 2. Turns from one rank to another of each kind that it may go to, the nearest first: colour
 *    refinement of two copies of the topology (colour_refinement.h), those before and after, tells
 *    what follows from one image for the others; where it leaves several, the nearest is taken,
 *    by way of the smaller switch, so that hosts and leaves stay together, and cycles are closed
 *    when they are as long as the first. Generators so far count as links of colours of their
 *    own: what is found commutes.
 * 3. Orbits under the products that still look alike: any automorphism that joins them.
 *
 * A choice is never taken back, only a few others are tried from the start, and all of it ends
 * after a number of steps in proportion to the links: the search may miss symmetries, and takes
 * no time of consequence where there are none. No generators where none is found.
 * Complexity: O(links * log nodes) for each candidate; at most some 500 rounds over all links.
 */
copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_symmetry_free(struct copse_symmetry *symmetry);

#endif
