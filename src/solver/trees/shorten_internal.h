/*
 * Inside solver/shorten: the forest at hand with its depths, and the lists that find swaps.
 */
#ifndef COPSE_SOLVER_TREES_SHORTEN_INTERNAL_H
#define COPSE_SOLVER_TREES_SHORTEN_INTERNAL_H

#include "base/memory.h"
#include "solver/trees/forest.h"

/* An edge into a vertex of a tree. `src` is a terminal's number, or -1 at the root. */
struct copse_shorten_way {
  const int *path; /* nodes */
  int n_path, src;
  int slot; /* where the list of the ways out of src has it */
};

/* All arrays [n] by the terminal's number. */
struct copse_shorten_tree {
  int root;
  int64_t multiplicity;
  struct copse_shorten_way *ways; /* to the vertex */
  int *depth;
  int *below; /* height of what hangs below the vertex */
  int height;
  int64_t failed_at;                     /* s->n_changes when no swap was found for it */
  const struct copse_forest_edge *edges; /* as they came, NULL once one of them has changed */
};

/* A way out of a terminal as its list knows it, so that most need not be looked up. */
struct copse_shorten_entry {
  uint64_t nodes; /* a bit, not of its own, for each node of the path but the first */
  int tree, vertex;
};
struct copse_shorten_list {
  struct copse_shorten_entry *ways;
  size_t n, capacity;
};

struct copse_shortener {
  const struct copse_network *network;
  struct copse_forest *forest;
  int n;         /* terminals */
  int *terminal; /* [n_nodes] its number */
  struct copse_shorten_tree *trees;
  size_t n_trees, trees_capacity, most_trees;
  struct copse_shorten_list *lists; /* [n] */
  uint64_t *passed; /* [n * n_words] by terminal, a bit for each node that some way out of it passes
                       or has passed; NULL: not kept, there are too many */
  size_t n_words;
  int *order;      /* [n] vertices of the tree at hand by depth */
  int *count;      /* [n + 2] scratch */
  int *place;      /* [n_nodes] 1 + where the way at hand is at this node; 0: isn't */
  bool *joined;    /* [n_nodes] scratch: a way that is tried */
  int *chain;      /* [n] from a deepest vertex up */
  int *branch;     /* [n] what hangs below a vertex of the tree at hand */
  bool *in_branch; /* [n] */
  int n_branch;
  int mean_height;   /* of the trees as they came */
  int64_t left;      /* candidates that may still be looked at */
  int64_t n_changes; /* 1 + swaps so far: until the next a tree that failed will fail again */
};

/* Depths and heights of a tree whose ways have changed; its vertices by depth in s->order. */
void copse_shorten_measure(struct copse_shortener *s, struct copse_shorten_tree *tree);
void copse_shorten_sort(struct copse_shortener *s, const struct copse_shorten_tree *tree);

/* One more tree, empty; may move s->trees. */
copse_status copse_shorten_new_tree(struct copse_shortener *s, struct copse_shorten_tree **out,
                                    struct copse_err *err) COPSE_CHECKED;
/* The bits of a way's nodes: two ways without a common one don't meet. */
uint64_t copse_shorten_nodes(const struct copse_shorten_way *way);
/* Puts a tree's way to a vertex in its source's list. */
copse_status copse_shorten_enlist(struct copse_shortener *s, int tree, int vertex,
                                  struct copse_err *err) COPSE_CHECKED;
/* The same where the list has another's way: in its slot. */
void copse_shorten_relist(struct copse_shortener *s, int tree, int vertex);
/* Cuts the larger of two trees that are about to swap; may move s->trees. */
copse_status copse_shorten_even_out(struct copse_shortener *s, int tree, int other,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * The two ways to bring up `vertex` of a tree: itself or a vertex that it hangs below (the tree
 * is sorted). `uneven`: also with trees of another multiplicity. *lifted says whether it was done;
 * after that the number of vertices as deep as the tree was high is lower, over both trees.
 */
copse_status copse_shorten_by_edge(struct copse_shortener *s, int tree, int vertex, bool uneven,
                                   bool *lifted, struct copse_err *err) COPSE_CHECKED;
copse_status copse_shorten_by_branch(struct copse_shortener *s, int tree, int vertex, bool uneven,
                                     bool *lifted, struct copse_err *err) COPSE_CHECKED;

#endif
