/*
 * The physical ways behind the links that edge splitting makes. Every logical link
 * (u, t) has a bundle of pieces; a piece is an amount of capacity and the path it
 * stands for, kept as a binary tree of concatenations over physical links.
 */
#ifndef COPSE_SOLVER_TREES_PATHS_H
#define COPSE_SOLVER_TREES_PATHS_H

#include <stddef.h>

#include "solver/network/network.h"
#include "solver/trees/forest.h"
#include "solver/trees/pack.h"

struct copse_piece {
  int64_t amount;
  int path; /* index for copse_paths_expand */
};

struct copse_pieces {
  struct copse_piece *list; /* [n] malloc's */
  size_t n, capacity;
};

struct copse_paths;

/* One bundle of one piece per link of the network, with the given capacities. The caller frees *out
 * in every case. */
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
 * The nodes of a path, ends included, loops through relays cut out. Writes at most
 * n_nodes + 1 entries to `nodes`; returns how many.
 */
int copse_paths_expand(struct copse_paths *paths, int path, int *nodes);

/*
 * Lays the trees of a packing on physical paths: forest->trees and n_trees. A family whose edges
 * lie on several paths becomes several trees, cut where one ends. COPSE_NOMEM, COPSE_INTERNAL.
 */
copse_status copse_paths_lay(struct copse_paths *paths, const struct copse_packing *packing,
                             struct copse_forest *forest, struct copse_err *err) COPSE_CHECKED;

#endif
