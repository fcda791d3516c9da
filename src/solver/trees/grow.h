/*
 * Growing trees one after the other over physical links, for one root (trees/single.c) or for base
 * roots within what is left for each orbit of links (trees/orbit.c). A family is so many equal
 * trees; it is split where no way carries all of it.
 */
#ifndef COPSE_SOLVER_TREES_GROW_H
#define COPSE_SOLVER_TREES_GROW_H

#include "solver/network/cuts.h"
#include "solver/policy.h"
#include "solver/trees/forest.h"

struct copse_grown_edge {
  int src, dst;
  size_t first; /* its path: grower.path[first] .. */
  int n_path;
};

/* `multiplicity` equal trees, grown so far. */
struct copse_grown_family {
  int64_t multiplicity;
  int n_edges;
  struct copse_grown_edge *edges; /* [n_terminals - 1] */
};

struct copse_grower {
  const struct copse_network *network;
  int n_orbits;
  int *orbit;    /* [n_links] */
  int64_t *left; /* [n_orbits] what the base trees may still use */
  int *avoid;    /* [n_orbits] 0: taken at once; others as a later resort, by number */
  struct copse_adjacency leaving; /* links by source */
  struct copse_cuts cuts;         /* slack: how much may enter again, as a later resort */
  bool *is_terminal, *in_tree;    /* [n_nodes] */
  unsigned char *touched;         /* [cuts.n] the tree is in the cut already */
  int64_t *exits; /* [cuts.n] what is left of the links out of it: cuts with more are entered
                     first. NULL: in the order in which they are found */
  int root;
  int *order; /* [n_terminals] the tree's, as they joined */
  int n_order;
  int level, top_level;         /* orbits to be avoided more than `level` are not taken now */
  int open[COPSE_ORBIT_LEVELS]; /* by level: vertices of `order` before it have no way left */
  struct copse_grown_family current;
  struct copse_grown_family *waiting; /* split off, to be finished later */
  size_t n_waiting, waiting_capacity;
  int *path; /* all edges' paths */
  size_t n_path, path_capacity;
  int *via;   /* [n_nodes] the link by which the search came to a relay */
  int *stamp; /* [n_nodes] the search that saw it last */
  int n_searches;
  int *queue;  /* [n_nodes] */
  int *chosen; /* [n_nodes] links of the path at hand, last first */
  struct copse_forest *forest;
  int *depth;               /* [n_nodes] */
  struct copse_arena arena; /* of all arrays but those that grow */
  struct copse_err *err;
};

/* Makes all arrays but those of cuts. Free with copse_grower_free, also after a failure. */
copse_status copse_grower_prepare(struct copse_grower *g) COPSE_CHECKED;
void copse_grower_free(struct copse_grower *g);
/* After g->cuts is set: the arrays of its size; with `exits` also that one. */
copse_status copse_grower_prepare_cuts(struct copse_grower *g, bool exits) COPSE_CHECKED;

/*
 * `multiplicity` trees of one root, added to the forest; breadth-first, a path for each terminal.
 * *stuck: some terminal could not be reached any more; g->current is the family that failed.
 */
copse_status copse_grower_root(struct copse_grower *g, int root, int64_t multiplicity,
                               bool *stuck) COPSE_CHECKED;
/* Forgets what waits to be finished. */
void copse_grower_drop_waiting(struct copse_grower *g);

#endif
