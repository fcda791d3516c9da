/* Inside solver/levels: trees as far as they have grown (levels_grow.c), and the exchanges that
 * finish those that are stuck (levels_exchange.c). */
#ifndef COPSE_SOLVER_TREES_LEVELS_INTERNAL_H
#define COPSE_SOLVER_TREES_LEVELS_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "solver/trees/levels.h"

/* How a tree comes to a terminal: over links g->path[first] .. [first + n - 1]. */
struct copse_levels_way {
  int src; /* number of the terminal it comes from; -1: the root, or not reached */
  int n;
  size_t first;
  uint64_t bits; /* copse_levels_bit of each of its links */
};

/* Links share 64 bits: a way without a link's bit does not use it. */
static inline uint64_t copse_levels_bit(int link) {
  return (uint64_t)1 << (link & 63);
}

/* Terminals go by their number here, 0 .. n - 1. */
struct copse_levels_tree {
  int root;
  struct copse_levels_way *ways; /* [n] of g->ways */
  int *depth;                    /* [n] -1: not reached */
  int *order;                    /* [n_order] as they joined */
  int n_order;
  int open;               /* vertices of `order` before it have no way left to another terminal */
  unsigned char *entered; /* [n_cuts] */
};

/* A way that uses a link, or used it once. */
struct copse_levels_user {
  int tree, vertex;
};
struct copse_levels_users {
  struct copse_levels_user *list;
  size_t n, capacity;
};

/* Terminals from which there is a way over links that all have something left. */
#define COPSE_LEVELS_SOURCES 6
struct copse_levels_sources {
  int n; /* more than there is room for: many */
  int terminals[COPSE_LEVELS_SOURCES];
};

/* A breadth-first search; a node in layer l is number node + l * n_nodes. */
#define COPSE_LEVELS_LAYERS 3
struct copse_levels_search {
  int *via;   /* [layers * n_nodes] the link and the layer it was come by */
  int *stamp; /* [layers * n_nodes] the search that saw it last */
  int *queue; /* [layers * n_nodes] */
  int n;      /* searches so far */
  int *ends;  /* [layers * n_nodes] n_ends of them */
  int n_ends;
  int *links; /* [n_nodes] of a way that was found, n_links of them */
  int n_links;
};

/* Exchanges in a row. */
#define COPSE_LEVELS_CHAIN 3

struct copse_levels {
  const struct copse_network *network;
  struct copse_forest *forest;
  int n;                   /* terminals */
  int *number;             /* [n_nodes] of a terminal; -1: a relay */
  int64_t *left;           /* [n_links] */
  int *first_out, *by_src; /* links by source: by_src[first_out[v]] .. */
  int *first_in, *by_dst;  /* and by destination */
  int n_cuts;              /* tight: every tree may enter them once */
  unsigned char *inside;   /* [n_cuts * n_nodes] */
  size_t inside_capacity;
  int *first_cut, *cuts; /* by link: the cuts that it enters, cuts[first_cut[e]] .. */
  struct copse_levels_tree *trees;
  int n_trees, n_made;
  struct copse_levels_way *ways; /* [n_trees * n] of all trees, where exchanges look for users */
  int *path; /* links of all ways */
  size_t n_path, path_capacity;
  struct copse_levels_users *users;     /* [n_links], NULL before the first exchange */
  struct copse_levels_sources *sources; /* [n_nodes], as the last repair found them */
  struct copse_levels_search search[COPSE_LEVELS_CHAIN + 1];
  int64_t patience; /* candidates for exchanges that may still be looked at */
  struct copse_err *err;
};

/* Takes the way of `search` from x to terminal y, which the tree did not have. */
copse_status copse_levels_join(struct copse_levels *g, int tree, int x, int y,
                               const struct copse_levels_search *search) COPSE_CHECKED;

/* Brings at most `most` more terminals into a tree; *taken of them. */
copse_status copse_levels_grow(struct copse_levels *g, int tree, int most,
                               int *taken) COPSE_CHECKED;

/* One more terminal for a tree that is stuck, by at most `chain` exchanges in a row. */
copse_status copse_levels_repair(struct copse_levels *g, int tree, int chain,
                                 bool *repaired) COPSE_CHECKED;

#endif
