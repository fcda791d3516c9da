/*
 * The whole solver in one call: from a network to the optimum, and to trees over
 * physical paths that reach it.
 */
#pragma once

#include <stddef.h>

#include "base/memory.h"
#include "solver/network/network.h"
#include "solver/trees/optimum.h"

struct copse_forest_edge {
  int src, dst;    /* terminals */
  const int *path; /* [n_path] nodes from src to dst through relays */
  int n_path;
};

/* Carries multiplicity / (total root weight * k) of the data. */
struct copse_forest_tree {
  int root; /* node */
  int64_t multiplicity;
  const struct copse_forest_edge *edges; /* [n_terminals - 1], every src reached before */
  int height;                            /* hops between terminals */
};

struct copse_forest {
  int64_t k; /* trees per unit of root weight; 0 when only the bound was asked for */
  struct copse_optimum optimum;
  bool base_only; /* the trees are those of base roots; the others are their images */
  int n_trees, trees_capacity;
  struct copse_forest_tree *trees;
  int64_t n_looks; /* links looked at while trees grew one after the other */
  double seconds_optimum, seconds_split, seconds_pack;
  struct copse_arena arena;
};

struct copse_forest_options {
  int64_t k;       /* 0: exact, as many trees as the optimum needs; else exactly this many */
  bool bound_only; /* optimum and cut, no trees */
  bool as_given;   /* the capacities carry `weight` trees of every root, which is known: k = 1,
                      no optimum is looked for (optimum.x is 1) */
  /* Known symmetries, or NULL. With them trees of base roots are made (trees/grow.c), or none
   * where those are not found: forest.base_only says which. */
  const struct copse_network_symmetry *symmetry;
  bool fewest;    /* time is taken to find fewer trees, none of them higher */
  bool multiple;  /* such trees may be a multiple of k, where the k asked for is 0 */
  int trust_from; /* from so many terminals on known cuts are trusted; 0: COPSE_TRUST_FROM */
  const struct copse_progress *progress;
};

/*
 * Returns COPSE_OK with optimum.x = 0 and no trees where a terminal can't be reached
 * (the caller names it), COPSE_OVERFLOW, COPSE_NOMEM, COPSE_INTERNAL. Relays must be
 * balanced. Which of the makers of trees (trees/maker.h) is tried when: the table in solve.c.
 * Free with copse_forest_free in every case.
 */
copse_status copse_forest_solve(const struct copse_network *network,
                                const struct copse_forest_options *options,
                                struct copse_forest *out, struct copse_err *err) COPSE_CHECKED;
void copse_forest_free(struct copse_forest *forest);

/* Adds a tree, for makers; its height is worked out; depth [n_nodes] is scratch. COPSE_NOMEM. */
copse_status copse_forest_add(struct copse_forest *forest, struct copse_forest_tree tree,
                              int n_edges, int *depth, struct copse_err *err) COPSE_CHECKED;
/* Drops all trees, and their memory. */
static inline void copse_forest_clear(struct copse_forest *forest) {
  copse_arena_free(&forest->arena);
  forest->trees = NULL;
  forest->n_trees = forest->trees_capacity = 0;
}

/* Gives `to` the trees of `from`, and their memory, in place of its own. */
void copse_forest_take_trees(struct copse_forest *to, struct copse_forest *from);

/*
 * Makes shallower trees for the same load: the edges of packed trees change places, as drawn in
 * shorten.c. Every link carries what it carried, so an optimal forest stays optimal, and both
 * trees still span if neither new parent hangs below its child.
 *
 * Works on the highest trees first: swaps that bring one of their deepest vertices up and put
 * nothing else as deep, of single edges, then of whole branches with another tree's ways to the
 * same terminals, until no such swap is found. Every swap lowers the number of vertices at the
 * greatest depth concerned and adds none there, hence it ends; a limit on the candidates looked at
 * bounds the time (a second or two). A tree whose partner has another multiplicity is cut in two
 * for it, which adds at most COPSE_SHORTEN_GROWTH_PERCENT to the number of trees; trees that end
 * up equal become one. The height never grows. A heuristic: it does not claim the lowest forest.
 * COPSE_NOMEM leaves the forest as it was. Memory: about 40 bytes for each edge of each tree.
 */
copse_status copse_forest_shorten(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) COPSE_CHECKED;
