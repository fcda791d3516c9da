/* Paths for all-to-alls without a linear programme: what several sources send to one sink within
 * given capacities; and a few ways for each pair of ranks that load all links evenly. */
#pragma once

#include "base/memory.h"
#include "solver/network/network.h"

struct copse_gather_path {
  int source; /* index into the sources */
  int64_t amount;
  const int *nodes; /* [n_nodes] from the source to the sink, none twice */
  int n_nodes;
};

/* `amount` is to go from every source to the sink. */
struct copse_gather_question {
  const struct copse_network *network;
  const int64_t *capacities; /* [n_links] */
  const int *sources;        /* [n_sources] nodes */
  int n_sources, sink;
  int64_t amount;
};

/*
 * Finds paths, where the capacities carry it: a maximum flow by shortest augmenting paths (Edmonds
 * and Karp, 1972), taken apart. Paths come by source, in the arena; the caller frees *out [*n] in
 * every case. COPSE_INTERNAL where the capacities don't carry it.
 */
copse_status copse_gather_paths(const struct copse_gather_question *question,
                                struct copse_arena *arena, struct copse_gather_path **out,
                                size_t *n, struct copse_err *err) COPSE_CHECKED;

/* A way from a source to a sink (terminal indices): amount / whole units of demand take it. */
struct copse_concurrent_path {
  int source, sink;
  int64_t amount;
  const int *nodes; /* [n_nodes] */
  int n_nodes;
};

/* Links are in orbits, which share what they carry: `factor` units of an orbit's load for each unit
 * that passes one of its links, of `capacity` units. */
struct copse_balance_problem {
  const struct copse_network *network;
  const bool *blocked;     /* [n_nodes] nodes that may not be passed */
  const int64_t *demand;   /* [n_terminals * n_terminals], row = source; NULL: all 1 */
  const int *base;         /* [n_bases] the sources that are routed, ascending */
  const int *orbit;        /* [n_links] */
  const int64_t *capacity; /* [n_orbits] */
  const int64_t *factor;   /* [n_orbits] */
  int n_bases, n_orbits;
  double enough; /* stop where the time is at most so many times the bound */
};

/* Amounts are in units of demand / whole. `price` [n_orbits] is of the best bound: no routing takes
 * less than sum demand * distance / sum capacity * price, which `bound` is in floating point. */
struct copse_balance {
  int64_t whole;
  struct copse_concurrent_path *paths; /* [n_paths] by source, then sink; none if 64 bits are few */
  size_t n_paths;
  int64_t *load; /* [n_orbits] load by the paths */
  double *price;
  double time, bound;
};

/*
 * Lets every pair take the shortest of a few ways of its source under prices that grow
 * exponentially with a link's load, one pair after the other, with new ways and a steeper price in
 * each round (Awerbuch and Leighton, STOC 1994; Garg and Koenemann, SIAM J. Comput. 37, 2007). A
 * pair of much demand is cut into parts. Work is counted: the result depends on the problem alone.
 * All terminals with a demand can be reached. The arena owns the arrays. COPSE_NOMEM. Complexity:
 * rounds times (sources times Dijkstra, and pairs times trees times hops).
 */
copse_status copse_balance_paths(const struct copse_balance_problem *problem,
                                 struct copse_arena *arena, struct copse_balance *out,
                                 struct copse_err *err) COPSE_CHECKED;
