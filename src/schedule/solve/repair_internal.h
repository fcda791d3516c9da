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

/* Sets r->move_at. */
static inline void mark(struct repairing *r, int index) {
  const struct variant *v = &r->variants[index];
  const struct variant *old = r->marked < 0 ? NULL : &r->variants[r->marked];
  if (old == v) return;
  for (int i = 0; old && i < old->n; i++) r->move_at[old->moves[i].rank] = 0;
  for (int i = 0; i < v->n; i++) r->move_at[v->moves[i].rank] = i + 1;
  r->marked = index;
}

/* Finds where a rank of the base tree is among those that have moved; -1: nowhere. */
static inline int find_move(struct repairing *r, int index, int rank) {
  mark(r, index);
  return r->move_at[rank] - 1;
}

/* Finds the variants of an image, the first of which is made where there is none. */
copse_status copse_repair_variants(struct repairing *r, int tree, int64_t image,
                                   int *first) COPSE_CHECKED;
/* Splits off the rest of a variant's trees: `trees` go on alone; *rest hangs on behind. */
copse_status copse_repair_split(struct repairing *r, int index, int64_t trees,
                                int *rest) COPSE_CHECKED;
/* Detaches a rank of the base tree, which then hangs nowhere; *at: its place among those moved. */
copse_status copse_repair_detach(struct repairing *r, int index, int rank, int *at) COPSE_CHECKED;

/* Lists what crosses a link in all images, once for a try: r->left of the link. */
static inline copse_status list_users(struct repairing *r, int link) {
  const struct copse_link *of = &r->t->links[link];
  if (r->left[link].item) return COPSE_OK;
  return copse_numbering_image_users(&r->numbers, &r->images, &r->crossing, of->src, of->dst,
                                     r->arena, &r->left[link], r->err);
}

/* Copies what a try changes: room and variants, which copse_repair_release frees. */
copse_status copse_repair_copy(const struct repairing *detached, struct copse_arena *arena,
                               struct repairing *r) COPSE_CHECKED;
void copse_repair_release(struct repairing *r);
/* Writes the variants as changes of the schedule's trees. */
copse_status copse_repair_keep(struct repairing *r, struct copse_schedule *s) COPSE_CHECKED;

/* Places all that has lost its way, where phases run together (trees.c). */
copse_status copse_repair_by_prices(struct repairing *detached, struct copse_schedule *schedule,
                                    bool *made) COPSE_CHECKED;
