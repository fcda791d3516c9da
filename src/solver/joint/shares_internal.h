/*
 * Inside src/solver only: one search for free shares. shares_contract.c makes the network smaller,
 * shares.c finds the cuts, shares_master.c
 * keeps the linear programme on GLPK, shares_exact.c works out its basis in rationals.
 */
#ifndef COPSE_SOLVER_JOINT_SHARES_INTERNAL_H
#define COPSE_SOLVER_JOINT_SHARES_INTERNAL_H

#include "solver/joint/shares.h"

struct copse_shares_row {
  bool reduce;
  bool *inside; /* [n_nodes] */
};

/*
 * Rows: one per relay, then the cuts. Columns: x of the terminals, then a of the links; the
 * solution stands in whole units of an arbitrary small size.
 */
struct copse_shares_search {
  const struct copse_network *network;
  int n_relays, *relays; /* nodes */
  struct copse_shares_row *rows;
  size_t n_rows, rows_capacity;
  int64_t *x;                   /* [n_terminals] */
  int64_t *a;                   /* [n_links] */
  int64_t *b;                   /* [n_links] the capacities in the same units */
  int64_t *inner_x, *inner_a;   /* a point that no cut forbids */
  int64_t *middle_x, *middle_a; /* half way from it to the solution */
  struct copse_shares_master *master;
  struct copse_q cap; /* no share is larger; 0/1: any may be */
};

/* copse_shares_find on the network as it is. */
copse_status copse_shares_search(const struct copse_network *network,
                                 const struct copse_shares_options *options,
                                 struct copse_shares *out, struct copse_err *err) COPSE_CHECKED;

/* The matrix of the programme: -1, 0 or 1. */
int copse_shares_coefficient(const struct copse_shares_search *s, int row, int column);
/* A row's right hand side. */
copse_status copse_shares_right_side(const struct copse_shares_search *s, int row, int64_t *value,
                                     struct copse_err *err) COPSE_CHECKED;

copse_status copse_shares_master_new(const struct copse_shares_search *s,
                                     struct copse_shares_master **out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_shares_master_free(struct copse_shares_master *master);
/* Takes in the rows from `first` on. */
copse_status copse_shares_master_add(struct copse_shares_master *master,
                                     const struct copse_shares_search *s, size_t first,
                                     struct copse_err *err) COPSE_CHECKED;
/* Sets s->x, a and b; false where GLPK gives up. */
bool copse_shares_master_solve(struct copse_shares_master *master, struct copse_shares_search *s);
/* Whether the optimum of the cuts so far is above the rate by more than rounding. */
bool copse_shares_master_above(const struct copse_shares_master *master, struct copse_q rate);
/* Whether it is the rate or above, but for rounding. */
bool copse_shares_master_reaches(const struct copse_shares_master *master, struct copse_q rate);
/* Sets the terminals' upper bounds to s->cap. */
void copse_shares_master_cap(struct copse_shares_master *master,
                             const struct copse_shares_search *s);

enum copse_shares_state { COPSE_SHARES_BASIC, COPSE_SHARES_AT_LOWER, COPSE_SHARES_AT_UPPER };
enum copse_shares_state copse_shares_master_column(const struct copse_shares_master *master,
                                                   int column);
bool copse_shares_master_row_tight(const struct copse_shares_master *master, int row);

/*
 * The basis in rationals: fills *out but for the outcome; *found false where the fractions do
 * not fit or the multipliers are no proof. With a cap it fills in the solution alone, and only if
 * that has the rate that *out has. The solution still has to be tested with flows.
 */
copse_status copse_shares_exact(const struct copse_shares_search *s, struct copse_shares *out,
                                bool *found, struct copse_err *err) COPSE_CHECKED;

#endif
