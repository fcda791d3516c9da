/* Symmetries of a topology: permutations of its nodes that keep ranks, links and bandwidths, for
 * schedules that list a part of their trees, for linear programmes with one column for what is
 * alike, and for failures whose schedules are images of each other. */
#pragma once

#include "base/graph.h"
#include "topology/topology.h"

/*
 * Automorphisms, each checked on every link. The first n are generators that commute, of order 2
 * and more. Their products, each power from 0 to order - 1, move no rank onto itself but for the
 * first of them, which moves nothing: every orbit of ranks has as many members as there are
 * products. The others, of any order (0), only join orbits that the products leave apart.
 */
struct copse_symmetry {
  int n, n_others;
  int n_products;                       /* 1 without generators */
  struct copse_permutation *generators; /* [n + n_others] */
  size_t capacity;
  struct copse_arena arena; /* their images */
};
void copse_symmetry_free(struct copse_symmetry *symmetry);

/* Moves the last generator to the others, so that the products leave more orbits apart. False, and
 * nothing has changed, where it is the only one, or orbits * ranks would be more than `most`. */
bool copse_symmetry_drop(struct copse_symmetry *symmetry, int n_ranks, int64_t most);

/* Whether `image` [n_nodes] is an automorphism, checked on every node and link: each node hit
 * once, ranks to ranks, switches that copy or reduce to such, links to links of equal bandwidth.
 * Latencies may differ. */
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
 *    refinement of two copies of the topology (internal.h), those before and after, tells
 *    what follows from one image for the others; where it leaves several, the nearest is taken,
 *    by way of the smaller switch, so that hosts and leaves stay together, and cycles are closed
 *    when they are as long as the first. Generators so far count as links of colours of their
 *    own: what is found commutes.
 * 3. Orbits under the products that still look alike: any automorphism that joins them.
 *
 * A choice is never taken back, only a few others are tried from the start, and all of it ends
 * after a number of steps in proportion to the links: the search may miss symmetries, and takes
 * no time of consequence where there are none. No generators where none is found. A library for
 * automorphism groups would not do: the generators that they give are many (one for each pair of
 * hosts) and neither commute nor move every rank.
 * Complexity: O(links * log nodes) for each candidate; at most some 500 rounds over all links.
 */
copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* Nodes that a symmetry has to take to a set of the same kind and size, the root to its root. */
struct copse_node_set {
  int kind; /* 0 and up */
  int root; /* place in `nodes`, or -1 */
  int n;
  const int *nodes; /* [n] */
};

/*
 * Finds symmetries that keep these sets too: all are `others`, with `groups` [n_sets] where each
 * set goes, the same one more than once in their order. The same refinement, with sets as nodes of
 * colours of their own; what it leaves open is chosen by rank number, so that ranks turn, where
 * copse_topology_symmetry goes by nearness: here any symmetry that joins orbits serves, and ways
 * back are not needed. Orbits of ranks first; then, with ranks in place, those of relays.
 * Complexity: at most 100 candidates of O((links + members) log nodes).
 */
copse_status copse_topology_set_symmetries(const struct copse_topology *topology,
                                           const struct copse_node_set *sets, int n_sets,
                                           struct copse_symmetry *out,
                                           struct copse_err *err) COPSE_CHECKED;

/* Finds the permutation of the nodes that turns host i into host i + 1 by their ids ("hI.x"),
 * proved on every link; none of the ranks stays in place. Order 1 and a NULL image where there is
 * none. The image is the arena's. One pass over nodes and links. */
copse_status copse_topology_host_rotation(const struct copse_topology *topology,
                                          struct copse_arena *arena, struct copse_permutation *out,
                                          struct copse_err *err) COPSE_CHECKED;

/* Finds the rotation that the ids name, or, where they name none, the longest generator of
 * copse_topology_symmetry. */
copse_status copse_topology_rotation(const struct copse_topology *topology,
                                     struct copse_arena *arena, struct copse_permutation *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* Copies a permutation into the arena, with an image [n_nodes] and groups [n_groups], which may be
 * NULL. */
copse_status copse_permutation_copy(struct copse_arena *arena, struct copse_permutation from,
                                    int n_nodes, int n_groups, struct copse_permutation *out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Adds a copy of one as the last of the others. */
copse_status copse_symmetry_add(struct copse_symmetry *symmetry, struct copse_permutation by,
                                int n_nodes, int n_groups, struct copse_err *err) COPSE_CHECKED;

/* Lists all products of the generators, the identity first: images [n_products * n_nodes] is the
 * caller's. NULL: the identity alone. */
void copse_symmetry_products(const struct copse_symmetry *symmetry, int n_nodes, int *images);

/* The nodes [n] that products of symmetries take members[0] to, itself first, and such
 * products: images[i] takes members[0] to members[i]. */
struct copse_orbit {
  int n;
  int *members;
  int **images; /* [n] each [n_nodes] */
  struct copse_arena arena;
};

/* Finds a node's orbit breadth first: the same symmetries give the same orbit. It may lack some
 * that are alike: what is apart here may be, too. Free with copse_orbit_free in every case. O(nodes
 * * members * symmetries) */
copse_status copse_orbit_find(const struct copse_symmetry *symmetry, int n_nodes, int node,
                              struct copse_orbit *out, struct copse_err *err) COPSE_CHECKED;
static inline void copse_orbit_free(struct copse_orbit *orbit) {
  copse_arena_free(&orbit->arena);
  *orbit = (struct copse_orbit){0};
}
