/*
 * Inside src/topology only: the search for symmetries, one candidate at a time.
 */
#ifndef COPSE_TOPOLOGY_SYMMETRY_INTERNAL_H
#define COPSE_TOPOLOGY_SYMMETRY_INTERNAL_H

#include "topology/symmetry/refinement.h"
#include "topology/symmetry/symmetry.h"

/* How a cycle of ranks is closed while its length is free. */
enum copse_closing { COPSE_CLOSE_LATE, COPSE_CLOSE_EARLY };

struct copse_searcher {
  const struct copse_topology *topology;
  struct copse_symmetry *out;
  struct copse_refinement refinement;
  struct copse_partition base; /* of what commutes with the generators so far */
  int *orbit;                  /* [n_nodes] under what was found so far: the first member */
  int *joined;                 /* [n_nodes] the same with the candidate */
  int *image;                  /* [n_nodes] the candidate; -1: open */
  int *visited, n_cycles;      /* [n_nodes] the last cycle through the node, or a rank's orbit */
  int *seen, *queue, *distance, n_walks; /* [n_nodes] breadth-first */
  enum copse_closing closing;
  bool free_cycles; /* of any lengths, and through an orbit more than once */
  int skip;         /* of the nearest, so many are left out by the first free choice, */
  bool chose;       /* which has been made; */
  bool skipped;     /* and had one left */
  bool evenly;      /* only what moves alike ranks as far counts */
  int first;        /* a rank of the fewest that are alike */
  size_t capacity, others_capacity;
  int64_t looks, most_work; /* links walked over; all that a search may take */
  struct copse_err *err;
};

/*
 * A permutation in which `from` goes to `to`, and every rank's cycle is as long as its, but for
 * free cycles: node by node, each to the nearest that refinement leaves it, and around to the
 * start of its cycle. False where a choice led nowhere, or the work is used up; no choice is taken
 * back.
 */
bool copse_candidate_from(struct copse_searcher *s, int from, int to, int *order);

/* One in which s->image, given for all ranks, holds for them; the first of them returns after
 * `order` steps. */
bool copse_candidate_of_ranks(struct copse_searcher *s, int order);

/* What was done so far, in links seen by refinement; whether that is too much. */
int64_t copse_candidate_work(const struct copse_searcher *s);
bool copse_candidate_over(const struct copse_searcher *s);

/* All nodes that can be reached, nearest first, in s->queue; returns how many. */
int copse_candidate_walk(struct copse_searcher *s, int from);

/* Links from one to the other, in any direction; -1: none lead there. */
int copse_candidate_distance(struct copse_searcher *s, int from, int to);

#endif
