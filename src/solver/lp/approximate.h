/*
 * From floating point to fractions: what makes a simplex solution exact.
 */
#ifndef COPSE_SOLVER_LP_APPROXIMATE_H
#define COPSE_SOLVER_LP_APPROXIMATE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A common denominator, at most `limit`, under which every value (finite, >= 0) is within
 * `slack` of an integer; 0 if continued fractions find none.
 */
int64_t copse_common_denominator(const double *values, int n, int64_t limit, double slack);

#endif
