#include "solver/lp/approximate.h"

#include <math.h>

/* The smallest denominator of a convergent of x in [0, 1) that is within slack / scale. */
static int64_t denominator_of(double x, int64_t limit, double tolerance) {
  int64_t q0 = 0, q1 = 1; /* denominators of successive convergents */
  double rest = x;
  for (int i = 0; i < 40; i++) {
    if (fabs(x * (double)q1 - round(x * (double)q1)) <= tolerance * (double)q1 * 8) return q1;
    if (rest < 1e-13) return 0;
    rest = 1 / rest;
    double whole = floor(rest);
    if (whole > (double)limit) return 0;
    int64_t q2 = (int64_t)whole * q1 + q0;
    if (q2 > limit || q2 <= 0) return 0;
    q0 = q1;
    q1 = q2;
    rest -= whole;
  }
  return 0;
}

int64_t copse_common_denominator(const double *values, int n, int64_t limit, double slack) {
  int64_t common = 1;
  for (int i = 0; i < n; i++) {
    double scaled = values[i] * (double)common;
    double fraction = scaled - floor(scaled);
    if (fraction < slack || fraction > 1 - slack) continue;
    int64_t q = denominator_of(fraction, limit / common, slack / 1e3);
    if (q == 0 || q > limit / common) return 0;
    common *= q;
  }
  return common;
}
