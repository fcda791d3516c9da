/*
 * Inside the template solver: growing the trees of one base root after the other, over physical
 * links, within what is left for each orbit of links.
 */
#ifndef COPSE_SOLVER_TREES_ORBIT_GROW_H
#define COPSE_SOLVER_TREES_ORBIT_GROW_H

#include <stddef.h>

#include "solver/trees/orbit_trees.h"
#include "solver/trees/orbit_cuts.h"

/* So often orbits that ran out are avoided a little more, and all is tried again. */
#define COPSE_TEMPLATE_LEVELS 8

struct copse_template_edge {
  int src, dst;
  size_t first; /* its path: grower.path[first] .. */
  int n_path;
};

/* `multiplicity` equal trees, grown so far. */
struct copse_template_family {
  int64_t multiplicity;
  int n_edges;
  struct copse_template_edge *edges; /* [n_terminals - 1] */
};

struct copse_grower {
  const struct copse_network *network;
  int n_orbits;
  int *orbit;               /* [n_links] */
  int64_t *left;            /* [n_orbits] what the base trees may still use */
  int *avoid;               /* [n_orbits] 0: taken at once; others as a later resort, by number */
  int *first_link, *by_src; /* links by source: by_src[first_link[v]] .. */
  struct copse_template_cuts cuts;
  bool *is_terminal, *in_tree; /* [n_nodes] */
  unsigned char *touched;      /* [cuts.n] the tree is in the cut already */
  int64_t *exits; /* [cuts.n] what is left of the links out of it: cuts with more are entered
                     first. NULL: in the order in which they are found */
  int64_t *slack; /* [cuts.n] how much may enter again. NULL: nothing */
  int root;
  int *order; /* [n_terminals] the tree's, as they joined */
  int n_order;
  int level, top_level;            /* orbits to be avoided more than `level` are not taken now */
  int open[COPSE_TEMPLATE_LEVELS]; /* by level: vertices of `order` before it have no way left */
  struct copse_template_family current;
  struct copse_template_family *waiting; /* split off, to be finished later */
  size_t n_waiting, waiting_capacity;
  int *path; /* all edges' paths */
  size_t n_path, path_capacity;
  int *via;   /* [n_nodes] the link by which the search came to a relay */
  int *stamp; /* [n_nodes] the search that saw it last */
  int n_searches;
  int *queue;  /* [n_nodes] */
  int *chosen; /* [n_nodes] links of the path at hand, last first */
  struct copse_forest *forest;
  struct copse_forest_tree *trees;
  size_t n_trees, trees_capacity;
  int *depth; /* [n_nodes] */
  struct copse_err *err;
};

/* Makes all lists but `cuts` and `touched`, whose size they tell. Freed with copse_grower_free,
 * also after a failure. */
copse_status copse_grower_prepare(struct copse_grower *g) COPSE_CHECKED;
void copse_grower_free(struct copse_grower *g);

/*
 * `multiplicity` trees of one root, appended to g->trees, their edges in the forest's arena;
 * breadth-first, a path for each terminal. *stuck: some terminal could not be reached any more;
 * g->current is the family that failed.
 */
copse_status copse_grower_root(struct copse_grower *g, int root, int64_t multiplicity,
                               bool *stuck) COPSE_CHECKED;
/* The trees become the forest's. */
copse_status copse_grower_keep(struct copse_grower *g) COPSE_CHECKED;
/* Forgets what waits to be finished. */
void copse_grower_drop_waiting(struct copse_grower *g);

#endif
