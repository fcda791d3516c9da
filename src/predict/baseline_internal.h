/* What the makers of baselines share: for baseline*.c alone. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "predict/baseline.h"
#include "topology/route.h"

/* Some of what src sends to dst, by way of up to two other ranks. */
struct copse_shipment {
  int src, dst;
  int stops[4]; /* [n_stops] ranks: src, those on the way, dst */
  int n_stops;
  int64_t units; /* > 0 */
};

struct copse_baseline_work {
  const struct copse_topology *topology;
  const struct copse_baseline_options *options;
  struct copse_baseline_shared *shared;
  struct copse_hosts hosts; /* borrowed, as the routes */
  struct copse_routes routes;
  struct copse_schedule *schedule;
  struct copse_sim_dag *dag; /* NULL: not wanted */
  /* alltoall */
  int64_t *units; /* [n_ranks * n_ranks] demand over its greatest common divisor */
  int64_t m;      /* largest row sum, in units */
  int64_t whole;  /* M in the shipments' units: m, or a multiple of it */
  struct copse_shipment *shipments;
  size_t n_shipments, shipments_capacity;
  /* trees, their edges in `arena` */
  struct copse_arena *arena;
  struct copse_schedule_tree *trees;
  size_t n_trees, trees_capacity;
  struct copse_arena scratch; /* ends with the call */
  struct copse_err *err;
};

static inline int64_t copse_baseline_units(const struct copse_baseline_work *w, int src, int dst) {
  return w->units[(size_t)src * (size_t)w->topology->n_ranks + (size_t)dst];
}

/* Makes shipments and, if wanted, transfers of a baseline of the alltoall, as those below do. */
copse_status copse_baseline_pairwise(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_spread_out(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_2dh(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_birkhoff(struct copse_baseline_work *w) COPSE_CHECKED;

/* Makes trees of the other ones, with weights, and edges in w->arena. */
copse_status copse_baseline_tree(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_direct(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_scatter(struct copse_baseline_work *w) COPSE_CHECKED;
copse_status copse_baseline_hosts(struct copse_baseline_work *w) COPSE_CHECKED;

/* Nodes from one rank to another, ranks between them too; n 0: as the fabric routes. */
struct copse_baseline_way {
  int *nodes, n;
};

struct copse_baseline_ring {
  int *order;                      /* [n_ranks] */
  struct copse_baseline_way *ways; /* [n_ranks] from order[i] to the next; NULL: none */
};

/* Appends chains once around a ring, one from each root (or to it), with equal parts of
 * `weight`. */
copse_status copse_baseline_chains(struct copse_baseline_work *w,
                                   const struct copse_baseline_ring *ring,
                                   struct copse_q weight) COPSE_CHECKED;

/* n_steps permutations: in step s, row i sends sent[s n + i] to column to[s n + i]. */
struct copse_birkhoff {
  int n, n_steps;
  int64_t *amounts; /* [n_steps] > 0: the longest that a row may send in the step */
  int *to;          /* [n_steps * n] */
  int64_t *sent;    /* [n_steps * n] 0 ... the step's amount */
};

/*
 * Decomposes the n x n matrix (entries >= 0): the bytes that the steps send add up to the matrix.
 * The steps' amounts add up to its largest row or column sum, so no order of one-to-one steps is
 * shorter. Where sums are smaller the row pauses. Large steps come first, so that there are few: at
 * most n^2 - 2 n + 2. A matrix of equal entries off its diagonal gives n - 1 rotations.
 * COPSE_INVALID for a negative entry, COPSE_OVERFLOW, COPSE_NOMEM. O(n^3) per step. Source: G.
 * Birkhoff, Tres observaciones sobre el algebra lineal (1946).
 */
copse_status copse_birkhoff_decompose(const int64_t *matrix, int n, struct copse_birkhoff *out,
                                      struct copse_err *err) COPSE_CHECKED;
void copse_birkhoff_free(struct copse_birkhoff *b);
