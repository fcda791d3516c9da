/*
 * From floating point to fractions: systems of linear equations in GMP rationals, sparse, which a
 * linear programme's basis comes to, and denominators of a solution.
 */
#ifndef COPSE_SOLVER_LP_EQUATIONS_H
#define COPSE_SOLVER_LP_EQUATIONS_H

#include <gmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A coefficient, not 0; at most one for each place. */
struct copse_coefficient {
  int row, column;
  int64_t value;
};

/*
 * As many equations as unknowns. values [n]: the right hand sides, and then the unknowns. *regular
 * is false, and `values` means nothing, where the equations don't determine them. Gaussian
 * elimination in the order of H. M. Markowitz (Management Science 3, 1957), by row and then by
 * column. COPSE_NOMEM.
 */
copse_status copse_equations_solve(int n, const struct copse_coefficient *coefficients,
                                   size_t n_coefficients, mpq_t *values, bool *regular,
                                   struct copse_err *err) COPSE_CHECKED;

/* An array of zeros for the caller to free. COPSE_NOMEM. */
copse_status copse_rationals_new(size_t n, mpq_t **out, struct copse_err *err) COPSE_CHECKED;
/* Frees *rationals, unless it is NULL; for COPSE_AT_END. */
void copse_rationals_free(mpq_t **rationals);

/*
 * A common denominator, at most `limit`, under which every value (finite, >= 0) is within
 * `slack` of an integer; 0 if continued fractions find none.
 */
int64_t copse_common_denominator(const double *values, int n, int64_t limit, double slack);

#endif
