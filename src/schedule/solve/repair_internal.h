/* What a repair (repair.c) has at hand. Nodes are those of the broken topology, then those that are
 * gone; ranks likewise. */
#pragma once

#include "base/graph.h"
#include "schedule/adapt.h"
#include "schedule/images.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/repair.h"

/* One rank's place, on the image's numbers, beside `moves`, which has the base tree's. */
struct place {
  int rank, n_path; /* n_path 0: it hangs nowhere */
  const int *path;  /* [n_path] of links' nodes */
};

struct variant {
  int tree;
  int64_t image, trees; /* how many equal trees */
  int next;             /* of the same image, or -1 */
  int n, capacity;      /* ranks that have moved, absent ones first; of these, where places are */
  int first;            /* sought first */
  struct copse_moved *moves;
  struct place *places;
};

/* Where places are looked for: around, from there over links with room, or also over full ones,
 * which something else then leaves. */
enum reach { NEAR, FAR, FULL };

/* WHOLE: trees as they are. IN_PIECES: trees that lost many ways are in pieces. STRICT: none is too
 * high; where phases run together in pieces too. SPARING: ways cross one full link at most. Where
 * the links into each host are full, as on a torus, a way through another host's switch takes room
 * without which some tree can't enter that host. */
enum way { WHOLE, IN_PIECES, STRICT, SPARING };

/* A rank that another can hang on: its node in the image, its number and depth in the tree, and how
 * many links away it is. */
struct end {
  int node, rank, depth, away;
};

struct repairing {
  /* ---- the question ---- */
  const struct copse_repair *from;
  const struct copse_topology *t; /* where parts are gone */
  struct copse_numbering numbers; /* of its nodes and of those that are gone */

  /* ---- the healthy schedule ---- */
  struct copse_schedule base;      /* of the numbers: trees and ranks of all; no changes */
  struct copse_images images;      /* of its base trees */
  struct copse_image_ranks *seen;  /* ranks of base trees at nodes of the image at hand */
  struct copse_base_tree *trees;   /* [base.n_trees] */
  int64_t *each;                   /* [base.n_trees] equal trees of an image */
  int64_t k;                       /* such in all, for a root */
  int height;                      /* of the trees */
  struct copse_tree_user *users;   /* ranks whose way crosses a link */
  struct copse_adjacency crossing; /* users by link */

  /* ---- links of t, in trees ---- */
  int64_t *capacity; /* [n_links] room for all */
  int64_t *load;     /* [n_links] what is there */
  int64_t *aim;      /* [n_links] what the optimum of both phases together has there */
  int *back;         /* [n_links] the way back, whose load counts too; or -1 */
  bool *held;        /* [n_links] full of what has come there */
  bool *was_full;    /* [n_links] before anything was detached */
  struct copse_adjacency entering; /* links by destination */

  /* ---- variants ---- */
  struct variant *variants;
  size_t n_variants;
  size_t variants_capacity;
  struct copse_index_map of_image; /* variants by tree and image, the first */
  int64_t last_image;              /* that lost a way over a link with too much */
  struct copse_image_users *left;  /* [n_links] users of images, once asked for; user -1: moved */
  int marked;                      /* the variant of which `move_at` tells, -1: none */
  int *move_at; /* [n_ranks + n_absent] where its moves have a rank, from 1; 0: nowhere */

  /* ---- what is allowed, and counted ---- */
  int higher;      /* by how much trees should not exceed the healthy height, */
  bool strict;     /* or must not */
  bool sparing;    /* ways cross one link that was full, at most */
  int n_turns;     /* how often something took a full link */
  int64_t n_looks; /* at ranks, together */

  /* ---- a search [t->n_nodes] ---- */
  int *via;   /* the link that it came by */
  int *stamp; /* the search that was there last */
  int *away;  /* links from the start */
  int *crossed; /* of these, links that were full */
  int *queue;
  int n_searches;
  struct end *ends; /* [COPSE_REPAIR_ENDS] that the last search met, nearest first */
  int n_ends;       /* of these */

  /* ---- a tree at hand [n_ranks + n_absent] ---- */
  int round;   /* in which places for all that is near were sought, from 1 */
  int *hung;   /* since which round it is known to hang somewhere; below 0: it did not then */
  bool *awake; /* something near it does that did not when a place was last sought for it */
  int last_at; /* among those moved, what found a place from afar last */
  int *up;    /* the rank above */
  int *depth; /* hops from the root */

  struct copse_arena *arena;
  struct copse_err *err;
};

/* Returns the link between two nodes, or -1 where one of them or it is gone. */
static inline int broken_link(const struct repairing *r, int src, int dst) {
  if (src >= r->t->n_nodes || dst >= r->t->n_nodes) return -1;
  return copse_topology_find_link(r->t, src, dst);
}

/* Returns how many more trees a link has room for, its way back included. */
static inline int64_t room(const struct repairing *r, int link) {
  int64_t rest = r->capacity[link] - r->load[link];
  return r->back[link] < 0 ? rest : rest - r->load[r->back[link]];
}

/* Returns the room of a link that is kept free so that the link back can reach its aim. */
static inline int64_t kept(const struct repairing *r, int link) {
  int back = r->back[link];
  return back >= 0 && r->aim[back] > r->load[back] ? r->aim[back] - r->load[back] : 0;
}

/* Whether an image has a rank of the base tree at a node that is gone. */
static inline bool is_gone(const struct repairing *r, const struct copse_image *image, int rank) {
  return copse_image_node(&r->images, image, r->base.rank_nodes[rank]) >= r->t->n_nodes;
}

/* Returns the key of an image of a tree in r->of_image. */
static inline uint64_t key_of(const struct repairing *r, int tree, int64_t image) {
  return (uint64_t)image * (uint64_t)r->base.n_trees + (uint64_t)tree;
}

/* Whether so many ways were cut off that a tree may be in pieces. */
static inline bool lost_many(const struct repairing *r, const struct variant *v) {
  return v->n >= r->base.n_absent + COPSE_REPAIR_MANY;
}

/* Returns u times an amount, rounded down. */
static inline int64_t in_trees(int64_t amount, struct copse_q u) {
  __int128 trees = (__int128)amount * u.num / u.den;
  return trees > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)trees;
}
