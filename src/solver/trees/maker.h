/*
 * One interface for all that make trees: (network, capacities, k) -> forest. trees/solve.c has the
 * table that says which maker is tried when.
 *
 *   maker        over              order                       ends with trees?
 *   orbit        physical links    roots of one of each orbit  where hosts are alike
 *   single       physical links    trees of one root           on clusters of hosts
 *   levels       physical links    all trees side by side      nearly always, if not too many
 *                                  (with symmetries of bases)
 *   split, pack  links made of     root after root             always
 *                paths over relays
 */
#pragma once

#include "solver/network/network.h"
#include "solver/trees/forest.h"

/* How the trees of a root are packed: the later, the fewer families are split, and the higher trees
 * become. */
enum copse_pack_way {
  COPSE_PACK_FIRST_FIT,
  COPSE_PACK_BEST_FIT, /* over the link of which least is left, of those that take a family whole */
  COPSE_PACK_WHOLE     /* and from any vertex that has one, before another splits the family */
};

/* What a maker gets. */
struct copse_tree_problem {
  const struct copse_network *network;           /* balanced at relays */
  const int64_t *capacities;                     /* [n_links] carry k trees per unit of weight */
  int64_t k;                                     /* trees per unit of root weight */
  const struct copse_network_symmetry *symmetry; /* NULL: none known */
  bool multiple;                                 /* orbit trees may be a multiple of k */
  int trust_from;                                /* solver/policy.h, COPSE_TRUST_FROM */
  enum copse_pack_way packing;
  const struct copse_progress *progress;
};

static inline bool copse_has_symmetry(const struct copse_tree_problem *problem) {
  return problem->symmetry && problem->symmetry->n > 0;
}

/*
 * A maker sets forest->trees and n_trees, in an arena that is empty before. *made: whether it found
 * trees; else forest is as it was. COPSE_NOMEM, COPSE_OVERFLOW, COPSE_INTERNAL.
 */
typedef copse_status copse_tree_maker(const struct copse_tree_problem *problem,
                                      struct copse_forest *forest, bool *made,
                                      struct copse_err *err);

/* Orbits of links under the symmetries, and what trees of base roots may use of them
 * (trees/grow.c); without symmetries each link for itself, and all roots. */
struct copse_orbits {
  int n;
  int *of;       /* [n_links] */
  int64_t *left; /* [n] what base trees may still use */
  int64_t times; /* the least multiple of all trees for which that is rounded nowhere */
  int *roots;    /* [n_roots] the first of each orbit, as numbers of the network's roots */
  int n_roots;
};

/* Makes orbits for `times` as many trees. The arena owns the arrays. COPSE_NOMEM,
 * COPSE_OVERFLOW. */
copse_status copse_orbits_make(const struct copse_tree_problem *problem, int64_t times,
                               struct copse_arena *arena, struct copse_orbits *out,
                               struct copse_err *err) COPSE_CHECKED;

/*
 * Makes orbit trees: those of the first root of each orbit, of which all other roots' trees are
 * images.
 *
 * Grows k trees for each base root, over physical links, breadth-first. Sets of nodes that can be
 * entered only as often as trees must come in (the tight cuts nearest to base roots, and their
 * images) are entered once by a tree. Nothing else is asked of a link but what is left for its
 * orbit: the trees are their own proof. A heuristic, which finds trees on clusters of alike hosts;
 * roots of different weights are not tried. Sets forest->base_only, and forest->k where `multiple`
 * and the shares of links that stay in place are no integers. Complexity: (trees) * (links) where
 * no tree has to be split.
 */
copse_status copse_make_orbit_trees(const struct copse_tree_problem *problem,
                                    struct copse_forest *forest, bool *made,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * Makes trees of the network's only root, a broadcast or a reduce among many: grown over physical
 * links, one after the other, breadth-first. Hosts, and whatever else is joined by faster links
 * than lead there (copse_cuts_nested), are entered once by a tree, first those of whose own links
 * most is left: each tree then goes on from hosts that the others have left alone, and uses few of
 * them up. Trees as alike as the narrowest link allows are grown as one, or in smaller families
 * where that makes them lower. Nothing is asked of a link but what is left of it: the trees are
 * their own proof. In the end edges change places (trees/forest.h). A heuristic, which finds trees
 * on clusters of hosts. Complexity: (trees) * (terminals) * (links within the reach of a terminal
 * over relays).
 */
copse_status copse_make_single(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *made,
                               struct copse_err *err) COPSE_CHECKED;

/*
 * Makes low trees for many roots: all of them grow side by side, over physical links, so that none
 * takes what another needs for its first hops. Edge splitting fixes early which ranks are
 * neighbours, and packing one root after the other leaves long detours to the last; neither
 * happens here.
 *
 * In turns every tree takes one more terminal, the nearest to its shallowest vertex that has a way
 * left, over links of which something is left; a set of nodes that is entered as often as trees
 * must come in is entered once by each. A tree that gets stuck is helped by exchanges: it takes
 * over links of another tree's way, if the vertex at the end of that finds another place in its
 * own tree, by free links or by such an exchange.
 *
 * The trees are their own proof: they span, and use no link more often than its capacity. A
 * heuristic; no trees where trees times terminals are more than COPSE_LEVELS_MOST. Each tree is of
 * multiplicity one; equal ones are merged in the end, when edges change places (trees/forest.h).
 * With symmetries the trees are those of base roots, held against what is left of orbits
 * (copse_orbits_make), and k becomes a multiple as with orbit trees. Deterministic. Memory: about
 * 40 bytes for each edge of each tree. Complexity: trees * terminals searches, each of the links
 * around a terminal; exchanges are limited.
 */
copse_status copse_make_levels(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *made,
                               struct copse_err *err) COPSE_CHECKED;
