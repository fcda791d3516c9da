/*
 * Inside src/topology/symmetry only: colour refinement of two copies of a topology at once, by
 * which a search for automorphisms sees what its choices imply.
 *
 * Vertices are the nodes, and behind them sets of nodes that are to be kept (an arc to every
 * member): left copies 0 .. n-1 and right copies n .. 2n-1. The partition is equitable after every
 * step: two vertices of a cell have as many links of each bandwidth and direction to every other
 * cell. An automorphism that respects the pairs chosen so far takes each left node to a right one
 * of the same cell, so a cell with more of one side ends a branch.
 *
 * Cells are split by Hopcroft's rule, every part of a cell but the largest a splitter itself:
 * O(m log n) from the first partition to the last, whatever number of steps it takes (Paige &
 * Tarjan 1987; the search after McKay & Piperno 2014). How cells are split goes by hashed sums: a
 * collision leaves a cell too large, which costs a search its way and never proves anything.
 */
#pragma once

#include "topology/symmetry/symmetry.h"

/* A link seen from one end. */
struct copse_refinement_arc {
  int node;        /* at the other end, */
  int degree;      /* and how many arcs it has */
  uint64_t colour; /* that the other end sees */
};

/* The partition. A cell goes by the place of its first element. */
struct copse_partition {
  int *elements, *place; /* [2n] vertices by cell, and where each is */
  int *cell;             /* [2n] of each vertex */
  int *length, *lefts;   /* [2n] by cell: elements, and those of the left copy */
};

/* Each at least doubles the orbits of ranks. */
#define COPSE_REFINEMENT_PERMUTATIONS 32

struct copse_refinement {
  const struct copse_topology *topology;
  const struct copse_node_set *sets;
  int n_sets;
  int n;                             /* n_nodes + n_sets */
  int *first_arc;                    /* [n + 1] */
  struct copse_refinement_arc *arcs; /* of a node: those to nodes of the fewest arcs first */
  /* v and its image count as joined by an arc of a colour of its own: what commutes remains */
  int n_permutations;
  const int *images[COPSE_REFINEMENT_PERMUTATIONS];
  int *inverses[COPSE_REFINEMENT_PERMUTATIONS];
  struct copse_partition cells, base; /* now, and to return to */
  struct copse_queue queue;           /* [2n + 1] splitters, round */
  char *queued;                               /* [2n] by cell */
  struct copse_refinement_hit *hits, *sorted; /* [2n] vertices next to the splitter; by cell */
  int *hit_of;                                /* [2n] place in hits, -1: none */
  int *hit_cells;                             /* [2n] their cells, */
  int *cell_hits, *cell_start;                /* [2n] by cell: how many, and where in sorted */
  int64_t work;                               /* arcs seen so far */
  struct copse_arena arena;                   /* all of the arrays, and a search's own */
};

/* Prepares a refinement of the topology and sets [n_sets], borrowed; it has no partition yet. Freed
 * with copse_refinement_free, also after a failure. */
copse_status copse_refinement_make(struct copse_refinement *r,
                                   const struct copse_topology *topology,
                                   const struct copse_node_set *sets, int n_sets,
                                   struct copse_err *err) COPSE_CHECKED;
static inline void copse_refinement_free(struct copse_refinement *r) {
  copse_arena_free(&r->arena);
}

/* Keeps from now on only what commutes with `image` [n], a permutation that the caller keeps. */
copse_status copse_refinement_commute(struct copse_refinement *r, const int *image,
                                      struct copse_err *err) COPSE_CHECKED;

/* Drops all permutations that copse_refinement_commute added. */
static inline void copse_refinement_commute_with_none(struct copse_refinement *r) {
  r->n_permutations = 0;
}

/* Makes the coarsest equitable partition in which ranks, switches that copy or reduce, and kinds of
 * sets are apart. */
void copse_refinement_start(struct copse_refinement *r);

/* Sends the left node to the right one: false if nothing does so that respects what was chosen
 * before; the partition is then of no use any more. */
bool copse_refinement_pair(struct copse_refinement *r, int left, int right);

/* Returns the only node that `left` may go to, or -1: there are several. */
static inline int copse_refinement_image(const struct copse_refinement *r, int left) {
  const struct copse_partition *c = &r->cells;
  int cell = c->cell[left];
  if (c->length[cell] != 2) return -1;
  int other = c->elements[cell] == left ? c->elements[cell + 1] : c->elements[cell];
  return other - r->n;
}

static inline bool copse_refinement_may_go(const struct copse_refinement *r, int left, int right) {
  return r->cells.cell[left] == r->cells.cell[r->n + right];
}

/* Makes the partition the one to return to; returns to it. */
void copse_refinement_keep(struct copse_refinement *r);
void copse_refinement_restore(struct copse_refinement *r);
