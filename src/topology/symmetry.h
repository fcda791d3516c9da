/*
 * Symmetries of a topology: permutations of its nodes that keep ranks, links and bandwidths.
 */
#ifndef COPSE_TOPOLOGY_SYMMETRY_H
#define COPSE_TOPOLOGY_SYMMETRY_H

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
 * The symmetries of ranks that are numbered regularly, as those of clusters of alike parts are,
 * host by host or otherwise. Candidates turn blocks of ranks: rank r of a block of B goes to
 * (r + s) mod B of the same block, where s divides B and B the number of ranks: hosts move on by
 * one, or all GPUs of every host by one place. What happens to the relays follows by colour
 * refinement from the ranks that they are joined to. A candidate counts once it has been checked
 * as above, and commutes with those before. No generators where none is found.
 * Complexity: at most 128 candidates that are not refused by their colours alone, each of
 * O(links * log links).
 */
copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_symmetry_free(struct copse_symmetry *symmetry);

#endif
