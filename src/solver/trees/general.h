/*
 * The steps of the maker that always ends with trees (trees/solve.c):
 *
 *   relays split off      trees packed          laid on physical paths
 *
 *     a --- w --- b         a ----- b            a > w > b
 *           |         =>     \     /      =>     a > w > c
 *           c                 \ c /
 */
#pragma once

#include <stddef.h>

#include "solver/network/flow.h"
#include "solver/trees/maker.h"

/* ---- physical ways (solve.c) --------------------------------------------------------------- */

/*
 * The physical ways behind the links that edge splitting makes. Every logical link
 * (u, t) has a bundle of pieces; a piece is an amount of capacity and the path it
 * stands for, kept as a binary tree of concatenations over physical links.
 */
struct copse_piece {
  int64_t amount;
  int path; /* index for copse_paths_expand */
};

struct copse_pieces {
  struct copse_piece *list; /* [n] malloc's */
  size_t n, capacity;
};

struct copse_paths;

/* Makes one bundle of one piece per link of the network, with the given capacities. The caller
 * frees *out in every case. */
copse_status copse_paths_new(const struct copse_network *network, const int64_t *capacities,
                             struct copse_paths **out, struct copse_err *err) COPSE_CHECKED;
void copse_paths_free(struct copse_paths *paths);
static inline void copse_paths_free_at(struct copse_paths **paths) { copse_paths_free(*paths); }

/* Replaces `amount` of u -> w and of w -> t by u -> t; u = t drops both. */
copse_status copse_paths_split(struct copse_paths *paths, int u, int w, int t, int64_t amount,
                               struct copse_err *err) COPSE_CHECKED;

/*
 * Takes `amount` of src -> dst for a tree: appends pieces that add up to it to *out,
 * a single piece where one is large enough. COPSE_INTERNAL if the bundle
 * holds less.
 */
copse_status copse_paths_take(struct copse_paths *paths, int src, int dst, int64_t amount,
                              struct copse_pieces *out, struct copse_err *err) COPSE_CHECKED;

/*
 * Lists the nodes of a path, ends included, loops through relays cut out. Writes at most n_nodes +
 * 1 entries to `nodes`; returns how many.
 */
int copse_paths_expand(struct copse_paths *paths, int path, int *nodes);

/* ---- relays out of the network (split.c) --------------------------------------------------- */

/*
 * Takes every relay out of a balanced network with capacities that carry k trees per unit of
 * root weight. *flow receives the relay-free graph on the
 * same node numbers (the caller frees it); `paths` follows every step.
 *
 * First exact contractions (relays with one or two neighbours). Then, slowest relay first, a
 * guess that spreads each relay's links over groups of neighbours, for all relays together,
 * proved by flows to all terminals (network/flow.h). If that fails, the same within the tight
 * cuts around the terminals (network/cuts.h), for as many relays under one proof as go, tried again
 * with the cuts that the proof found broken, then for fewer; then one relay, likewise; then parts
 * of the guess; what is left goes pair by pair, each by the largest safe amount. By Bang-Jensen,
 * Frank and Jackson some pair is always splittable at a balanced relay, and a pair that is not
 * stays so, hence one pass over the pairs suffices.
 *
 * COPSE_INTERNAL if a relay can't be emptied (the network was not balanced or did not
 * carry the trees).
 */
copse_status copse_split_relays(const struct copse_tree_problem *problem, struct copse_paths *paths,
                                struct copse_flow **flow, struct copse_err *err) COPSE_CHECKED;

/* ---- packing spanning trees (pack.c) ------------------------------------------------------- */

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
static inline void copse_packing_free(struct copse_packing *packing) {
  free(packing->trees);
  free(packing->edges);
  *packing = (struct copse_packing){0};
}
