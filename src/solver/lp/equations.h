/*
 * From floating point to fractions: systems of linear equations in GMP rationals, sparse, which a
 * linear programme's basis comes to, and denominators of a solution.
 */
#ifndef COPSE_SOLVER_LP_EQUATIONS_H
#define COPSE_SOLVER_LP_EQUATIONS_H

#include <gmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* As many equations as unknowns. */
struct copse_equations;

/* The caller frees *out in every case. */
copse_status copse_equations_new(int n, struct copse_equations **out,
                                 struct copse_err *err) COPSE_CHECKED;
void copse_equations_free(struct copse_equations *equations);
/* For COPSE_AT_END. */
static inline void copse_equations_free_at(struct copse_equations **at) {
  copse_equations_free(*at);
}

/* Sets a coefficient; each place at most once, value not 0. */
copse_status copse_equations_set(struct copse_equations *equations, int row, int column,
                                 int64_t value, struct copse_err *err) COPSE_CHECKED;

/*
 * values [n]: the right hand sides, and then the unknowns. *regular is false, and `values` means
 * nothing, where the equations don't determine them. Uses the equations up. Gaussian elimination
 * in the order of H. M. Markowitz (Management Science 3, 1957), by row and then by column.
 */
copse_status copse_equations_solve(struct copse_equations *equations, mpq_t *values, bool *regular,
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
