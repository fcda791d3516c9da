/*
 * Inside src/solver/alltoall only: the state of one concurrent-flow search, its columns
 * (concurrent.c), and the rounding of the result to fractions (round.c).
 */
#ifndef COPSE_SOLVER_ALLTOALL_INTERNAL_H
#define COPSE_SOLVER_ALLTOALL_INTERNAL_H

#include "solver/alltoall/concurrent.h"
#include "solver/lp/mixture.h"
#include "solver/network/shortest.h"

struct copse_column_load {
  int orbit;
  int64_t load; /* on each link of the orbit, by the source and all of its images */
};

/* A tree that carries all demand of one base source. */
struct copse_column {
  int base;
  int *via; /* [n_nodes] the link into each node, -1 */
  struct copse_column_load *loads;
  int n_loads;
  double weight; /* in the master's solution */
};

struct copse_search {
  const struct copse_concurrent_problem *problem;
  int *orbit; /* [n_links] */
  int n_orbits;
  int *orbit_size;
  int64_t *orbit_capacity;
  int *base; /* [n_bases] terminals that are routed */
  int n_bases;
  int64_t most_demand; /* of a base source */
  double unit;         /* time that is about 1 in the master: of the first tree with a load */
  bool *blocked;       /* [n_nodes] may not be passed */
  struct copse_shortest shortest;
  int64_t *below;                 /* [n_nodes] scratch */
  int64_t *lengths;               /* [n_links] scratch */
  int64_t *loads;                 /* [n_orbits] of the tree at hand */
  struct copse_mixture_load *row; /* [n_orbits] scratch */
  struct copse_column *columns;
  size_t n_columns, columns_capacity;
  struct copse_mixture *master;
  int n_rounds;
  bool stuck;          /* GLPK gave up on the last master: its values are of the one before */
  double time;         /* the master's: demand units over capacity units */
  double *price;       /* [n_orbits] the master's duals, >= 0 */
  double *share_price; /* [n_bases] */
  double *best_price;  /* [n_orbits] that gave best_bound */
  double best_bound;
  struct copse_arena arena; /* of all arrays but that of the columns */
};

int64_t copse_column_demand(const struct copse_search *s, int base, int sink);
/* Images of a base source that put their load on one link of the orbit, per link of it. */
int copse_orbit_factor(const struct copse_search *s, int orbit);

copse_status copse_concurrent_round_bound(struct copse_search *s, struct copse_concurrent *out,
                                          struct copse_err *err) COPSE_CHECKED;
copse_status copse_concurrent_round_paths(struct copse_search *s, struct copse_concurrent *out,
                                          struct copse_err *err) COPSE_CHECKED;

#endif
