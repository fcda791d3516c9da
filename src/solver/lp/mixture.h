/*
 * Linear programmes that grow by columns, as column generation wants it: mix what there is of each
 * kind so that the fullest row is as low as possible. In floating point.
 */
#ifndef COPSE_SOLVER_LP_MIXTURE_H
#define COPSE_SOLVER_LP_MIXTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 *   minimise T   over T, weight[c] >= 0
 *   row o:       sum_c load[c][o] * weight[c] - T <= 0     (its price: - dual)
 *   kind b:      sum_{c of b} weight[c] = 1                (its share price: dual)
 *
 * Loads near 1 keep GLPK's rounding small.
 */
struct copse_mixture;

/* The caller frees *out in every case. */
copse_status copse_mixture_new(int n_rows, int n_kinds, struct copse_mixture **out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_mixture_free(struct copse_mixture *mixture);

struct copse_mixture_load {
  int row;
  double load;
};
/* Columns are numbered from 0 on. `loads` has each row at most once. */
void copse_mixture_add(struct copse_mixture *mixture, int kind,
                       const struct copse_mixture_load *loads, int n);

/* False where GLPK gives up, also from a fresh basis. */
bool copse_mixture_solve(struct copse_mixture *mixture);

/* After that. */
double copse_mixture_most(const struct copse_mixture *mixture); /* T */
double copse_mixture_price(const struct copse_mixture *mixture, int row);
double copse_mixture_share_price(const struct copse_mixture *mixture, int kind);
double copse_mixture_weight(const struct copse_mixture *mixture, size_t column);

#endif
