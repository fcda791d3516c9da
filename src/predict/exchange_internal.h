/* What the search of exchange.c shares with the growing of its first trees. */
#pragma once

#include "base/graph.h"
#include "base/memory.h"
#include "predict/event_queue.h"
#include "predict/exchange.h"

/* A way from rank to rank. */
struct copse_hop {
  int from, to;      /* ranks */
  int first, n;      /* into hop_links */
  double latency_us; /* alpha included */
};

/* A tree by places; place 0 is the root. */
struct copse_grown_tree {
  int root;
  bool reduce;
  struct copse_q weight;
  double bytes;
  int *parent; /* [n_ranks] hop into a rank (of a reduction out of it), -1 at the root */
  /* by place, made from the above: */
  int *rank, *up, *first_child, *n_children, *place_of;
  int *to_go; /* hops from here to the tree's end */
};

/* What came of a run: when the last transfer arrived, and f, which is to be least. */
struct copse_exchange_run {
  double f, us;
  double *arrival, *asked; /* [n_transfers] */
  int *blocker;            /* [n_transfers] the transfer that it waited for last; -1: none */
  int *late, n_late;       /* transfers that arrived after `soft` */
};

struct copse_exchange_search {
  /* ---- the question ---- */
  const struct copse_exchange *x;
  const struct copse_topology *topology;
  int n, all_images, n_trees; /* ranks, images, base trees */
  int n_images;               /* simulated images: all; one where links are folded */
  int n_pieces; /* allreduce: tree b < n_pieces reduces what b + n_pieces broadcasts */

  /* ---- trees, and their numbers among all images ---- */
  struct copse_grown_tree *trees;
  int *number;  /* [n_trees * n_images] of each tree among all, in the order of their transfers */
  int *tree_at; /* the other way round */
  int *base_at, *image_at; /* [n_trees * n_images] of which base tree, under which image */

  /* ---- hops: ways from rank to rank, and their images ---- */
  struct copse_hop *hops;
  size_t n_hops, hops_capacity;
  int *hop_links, *hop_nodes;
  size_t n_hop_links, hop_links_capacity, hop_nodes_capacity;
  struct copse_index_map hop_index;
  int *between;   /* [n * n] a hop from rank to rank, -1 */
  int *image;     /* [n_images * n_nodes] */
  int *hop_image; /* [n_images * n_hops] */

  /* ---- links [n_links] ---- */
  double *us_per_byte, *latency_us;
  double *held_us; /* by a chunk, beside its bytes */

  /* ---- a run ---- */
  double *free_us; /* [n_links] */
  int *last_user;  /* [n_links] */
  int *missing;    /* [n_transfers] reductions: children that haven't come */
  struct copse_sim_queue queue;

  /* ---- the search ---- */
  double soft, least;                  /* lateness counts from here; the time of `best` */
  struct copse_exchange_run now, next; /* of the trees as they are, and of a trial */
  struct copse_grown_tree *best;       /* [n_trees] the fastest so far */
  double work;                         /* done so far, in steps of the simulator */
  uint64_t random;

  struct copse_arena arena;
  struct copse_err *err;
};

/*
 * Grows the trees [first, first + n), of one phase, from their roots, without places. What is equal
 * is chosen by `random`. COPSE_UNSUPPORTED where a rank is not reached, or for too many ways.
 * O(n n_ranks ways log).
 */
copse_status copse_exchange_grow(struct copse_exchange_search *s, int first, int n, uint64_t random,
                                 struct copse_err *err) COPSE_CHECKED;
