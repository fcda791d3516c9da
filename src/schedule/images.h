/*
 * The trees of a compact schedule without listing them: where its symmetries take nodes, how deep a
 * vertex of an image lies, what changes do to it. Working on an image means working on its base
 * tree, with nodes taken back by the inverse of the product that makes the image.
 */
#pragma once

#include "schedule/schedule.h"

/* The cycles of each generator. Node v is at place `at[g][v]` of list[g], in a cycle that begins
 * at first[g][v] and is length[g][v] long. */
struct copse_images {
  int n; /* generators */
  int64_t n_images;
  int order[COPSE_SCHEDULE_MAX_ROTATIONS];
  int *list[COPSE_SCHEDULE_MAX_ROTATIONS], *at[COPSE_SCHEDULE_MAX_ROTATIONS];
  int *first[COPSE_SCHEDULE_MAX_ROTATIONS], *length[COPSE_SCHEDULE_MAX_ROTATIONS];
};

/* An image: the power of each generator. The number of an image has them as digits, the first
 * generator's the lowest; copse_schedule_expand lists images by their numbers. */
struct copse_image {
  int powers[COPSE_SCHEDULE_MAX_ROTATIONS];
};

/* Prepares the images of n permutations of n_nodes nodes. The arena owns the arrays. COPSE_NOMEM;
 * COPSE_INVALID where a cycle does not divide the order of its permutation. */
copse_status copse_images_make(const struct copse_permutation *rotations, int n, int n_nodes,
                               struct copse_arena *arena, struct copse_images *out,
                               struct copse_err *err) COPSE_CHECKED;
struct copse_image copse_image_of(const struct copse_images *images, int64_t number);
/* Returns where an image has what the base tree has at `node`; copse_image_back the other way
 * around. */
int copse_image_node(const struct copse_images *images, const struct copse_image *image, int node);
int copse_image_back(const struct copse_images *images, const struct copse_image *image, int node);

/* Ranks of base trees at nodes of one image, found when asked for. The arena owns the arrays. */
struct copse_image_ranks {
  const int *rank_of; /* [n_nodes] of the base tree */
  int64_t image;      /* the last one, -1: none yet */
  int n_images;       /* how many there were, */
  int *known, *rank;  /* [n_nodes] for which of them the rank is known */
};
copse_status copse_image_ranks_make(const int *rank_of, int n_nodes, struct copse_arena *arena,
                                    struct copse_image_ranks **out,
                                    struct copse_err *err) COPSE_CHECKED;
int copse_image_rank(const struct copse_images *images, int64_t image, int node,
                     struct copse_image_ranks *ranks);

/* A base tree by ranks, a reduce tree turned around: from its root outwards. */
struct copse_base_tree {
  int n; /* ranks, absent ones included */
  int root;
  int *edge;        /* [n] the edge to each rank, -1: the root */
  int *up;          /* [n] where it comes from, -1: the root */
  int *depth;       /* [n] */
  int *begin, *end; /* [n] what hangs below a rank, itself first: places begin .. end - 1 */
  int *rank;        /* [n] by place */
};
copse_status copse_base_tree_make(const struct copse_schedule *schedule, int tree,
                                  struct copse_arena *arena, struct copse_base_tree *out,
                                  struct copse_err *err) COPSE_CHECKED;

/* Ranks of a base tree that hang elsewhere, or nowhere. */
#define COPSE_HANGS_NOWHERE (-1)
#define COPSE_IS_ABSENT (-2) /* and nothing may hang below it */
struct copse_moved {
  int rank, up;
};

/* Returns the depth of rank v after ranks have moved; -1 where v or a rank above it hangs nowhere,
 * is absent, or is in a circle. move_at [ranks]: where moved has a rank, from 1; 0: it has not
 * moved. O(height) */
int copse_moved_depth(const struct copse_base_tree *tree, const struct copse_moved *moved,
                      const int *move_at, int v);
/* Computes the depths of all ranks, which moved in no circle, and where each hangs, and returns the
 * deepest rank where one is deeper than *deepest, which becomes its depth; -1: none is.
 * O(ranks + n) */
int copse_moved_deepest(const struct copse_base_tree *tree, const struct copse_moved *moved, int n,
                        int *up, int *depth, int *deepest);
/* Returns how far down it goes from a rank over ranks that have not moved. O(what hangs below
 * it) */
int copse_moved_below(const struct copse_base_tree *tree, const int *move_at, int rank);
/* Returns the larger of `height` and of how deep n ranks that moved, and what hangs below them,
 * lie; -1 where something hangs nowhere. O(n height + what hangs below them) */
int copse_moved_height(const struct copse_base_tree *tree, const struct copse_moved *moved,
                       const int *move_at, int n, int height);
