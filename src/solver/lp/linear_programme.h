/* Linear programmes by GLPK, in floating point: such that grow by rows, for cutting planes,
 * with their last basis worked out in GMP rationals; such that grow by columns; such with columns
 * of 0 or 1. */
#pragma once

#include "base/exact.h"

/* Maximise c x over x >= 0 where every row a x is at most, or exactly, its right hand side. */
struct copse_lp;

/* Makes a programme. more: how many columns may be added later. `unit`: the size of a typical right
 * hand side, by which all are divided for GLPK. prefers_dual: takes the dual simplex method also
 * where the objective has changed. The caller frees *out in every case. */
copse_status copse_lp_new(int n_columns, int more, int64_t unit, bool prefers_dual,
                          struct copse_lp **out, struct copse_err *err) COPSE_CHECKED;
void copse_lp_free(struct copse_lp *lp);

void copse_lp_set_objective(struct copse_lp *lp, int column, int64_t value);
/* Limits x of the column to that, which is > 0. */
void copse_lp_set_upper(struct copse_lp *lp, int column, struct copse_q upper);
struct copse_lp_term {
  int column;
  int64_t value; /* not 0; one term per column */
};
copse_status copse_lp_add_row(struct copse_lp *lp, const struct copse_lp_term *terms, int n,
                              int64_t right, bool exactly, struct copse_err *err) COPSE_CHECKED;
int copse_lp_rows(const struct copse_lp *lp);
/* Lets the first solution begin with the column in the basis, in place of the row's slack. */
void copse_lp_enter(struct copse_lp *lp, int column, int row);
struct copse_lp_entry {
  int row;
  int64_t value; /* not 0 */
};
/* Adds a column, the last: one entry for a row, no more than there may be columns. */
copse_status copse_lp_add_column(struct copse_lp *lp, const struct copse_lp_entry *entries, int n,
                                 int64_t objective, struct copse_err *err) COPSE_CHECKED;

/* Solves; false where GLPK gives up. */
bool copse_lp_solve(struct copse_lp *lp);
/* Returns the objective of the last solution, in its units times `unit`. */
double copse_lp_objective(const struct copse_lp *lp);
/* Returns the multiplier of a row of the last solution. */
double copse_lp_price(const struct copse_lp *lp, int i);
/* Closes a column, for column generation: it stays at 0 until, after a solution, its multipliers
 * say that the objective would gain by it. copse_lp_open_gaining returns how many were opened: with
 * 0, the solution is one for all. */
void copse_lp_close(struct copse_lp *lp, int column);
int copse_lp_open_gaining(struct copse_lp *lp);
/* After that: the value of a column in units of unit / 2^40, rounded. */
#define COPSE_LP_UNITS ((int64_t)1 << 40)
int64_t copse_lp_units(const struct copse_lp *lp, int column);

/*
 * The solution [columns] and the multipliers [rows] of the basis, in rationals. *feasible: the
 * solution satisfies all rows and upper bounds, with nothing below 0. *optimal: so do the
 * multipliers (>= 0 for rows that say "at most", and no column without an upper bound could still
 * gain), and both objectives are the same number. Neither of a basis of more equations than that.
 */
struct copse_lp_proof {
  bool feasible, optimal;
};
copse_status copse_lp_exact(const struct copse_lp *lp, int max_equations, mpq_t *solution,
                            mpq_t *multipliers, struct copse_lp_proof *proof,
                            struct copse_err *err) COPSE_CHECKED;

/* ---- mixtures -------------------------------------------------------------------------------- */

/* Linear programmes that grow by columns, for column generation: mix what there is of each
 * kind so that the fullest row is as low as possible. In floating point. */
/*
 *   minimise T   over T, weight[c] >= 0
 *   row o:       sum_c load[c][o] * weight[c] - T <= 0     (its price: - dual)
 *   kind b:      sum_{c of b} weight[c] = 1                (its share price: dual)
 *
 * Loads near 1 keep GLPK's rounding small.
 */
struct copse_mixture;

/* Makes a master problem. work: steps of the simplex method, each times what it looks at, in all
 * solutions together; after that none is found. The caller frees *out in every case. */
copse_status copse_mixture_new(int n_rows, int n_kinds, int64_t work, struct copse_mixture **out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_mixture_free(struct copse_mixture *mixture);

struct copse_mixture_load {
  int row;
  double load;
};
/* Adds a column; they are numbered from 0 on. `loads` has each row at most once. */
copse_status copse_mixture_add(struct copse_mixture *mixture, int kind,
                               const struct copse_mixture_load *loads, int n,
                               struct copse_err *err) COPSE_CHECKED;

/* Solves; false where GLPK gives up, also from a fresh basis. slack: T may be above the least there
 * is by that part of it; at least COPSE_LP_MIXTURE_SLACK. */
bool copse_mixture_solve(struct copse_mixture *mixture, double slack);

/* Returns a result of the last solution, as the two below. */
double copse_mixture_most(const struct copse_mixture *mixture); /* T */
double copse_mixture_price(const struct copse_mixture *mixture, int row);
double copse_mixture_share_price(const struct copse_mixture *mixture, int kind);
double copse_mixture_weight(const struct copse_mixture *mixture, size_t column);

/* ---- columns of 0 or 1 ---------------------------------------------------------------- */

/* Linear programmes of which some columns are 0 or 1: GLPK's branch and cut. In floating point: the
 * caller recomputes solutions exactly, and takes bounds to be a little weaker than they are. */
/* Minimise cost * (sum of the columns that are not binary, which are >= 0). */
struct copse_integer;

/* Makes an integer programme; the caller frees *out in every case. */
copse_status copse_integer_new(int n_binaries, int n_others, double cost,
                               struct copse_integer **out, struct copse_err *err) COPSE_CHECKED;
void copse_integer_free(struct copse_integer *integer);

/* A row is written term by term, each column once, then closed. */
enum copse_integer_sense { COPSE_AT_MOST, COPSE_EXACTLY, COPSE_AT_LEAST };
void copse_integer_put(struct copse_integer *integer, int column, double value);
void copse_integer_add_row(struct copse_integer *integer, enum copse_integer_sense sense,
                           double bound);

struct copse_integer_result {
  bool relaxed;  /* else GLPK gave up before the search, and nothing is known */
  bool found;    /* a solution: copse_integer_is_one */
  bool optimal;  /* which is the best */
  double lower;  /* the objective is no less */
  int64_t nodes; /* searched */
};
/* Solves. start [columns]: a solution to begin with. work: steps of the simplex method, and for
 * each node a fourth of the rows, times entries, after which the search ends; looked at between
 * nodes of it, where look(ctx, nodes) is called. */
void copse_integer_solve(struct copse_integer *integer, const double *start, int64_t work,
                         void (*look)(void *ctx, int64_t nodes), void *ctx,
                         struct copse_integer_result *result);
bool copse_integer_is_one(const struct copse_integer *integer, int column);
