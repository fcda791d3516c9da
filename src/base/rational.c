/*
 * Rationals of 64 bits. Products and sums are formed in 128 bits, reduced by Euclid's algorithm and
 * checked for range; decimals are read digit by digit, since a double would round them. A fraction
 * from its residues is found by rational reconstruction (P. S. Wang, A p-adic algorithm for
 * univariate partial fractions, 1981).
 */
#include "base/rational.h"

#include <math.h>
#include <inttypes.h>
#include <stdio.h>

typedef __int128 wide;

wide copse_gcd_wide(wide a, wide b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b) {
    wide t = a % b;
    a = b;
    b = t;
  }
  return a;
}

int64_t copse_gcd(int64_t a, int64_t b) {
  /* |INT64_MIN| can only come back if both are; callers hold less */
  return (int64_t)copse_gcd_wide(a, b);
}

copse_status copse_lcm(int64_t a, int64_t b, int64_t *lcm, struct copse_err *err) {
  int64_t g = copse_gcd(a, b);
  if (g == 0) {
    *lcm = 0;
    return COPSE_OK;
  }
  if (copse_mul_overflows(a / g, b, lcm))
    return copse_fail(err, COPSE_OVERFLOW, "a common denominator needs more than 64 bits");
  return COPSE_OK;
}

/* Reduces a 128-bit fraction and range-checks it. The only way a copse_q is made. */
static copse_status reduce(wide num, wide den, struct copse_q *out, struct copse_err *err) {
  if (den == 0) return copse_fail(err, COPSE_INVALID, "division by zero");
  if (den < 0) {
    num = -num;
    den = -den;
  }
  wide g = copse_gcd_wide(num, den);
  num /= g;
  den /= g;
  if (num > INT64_MAX || num < -INT64_MAX || den > INT64_MAX)
    return copse_fail(err, COPSE_OVERFLOW, "an exact fraction needs more than 64 bits");
  out->num = (int64_t)num;
  out->den = (int64_t)den;
  return COPSE_OK;
}

copse_status copse_q_make(int64_t num, int64_t den, struct copse_q *out, struct copse_err *err) {
  return reduce(num, den, out, err);
}

/* Adds without overflow: |num| and den are below 2^63, so a product is below 2^126 and a sum of two
 * below 2^127. */
copse_status copse_q_add(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) {
  return reduce((wide)a.num * b.den + (wide)b.num * a.den, (wide)a.den * b.den, out, err);
}

copse_status copse_q_sub(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) {
  b.num = -b.num;
  return copse_q_add(a, b, out, err);
}

copse_status copse_q_mul(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) {
  return reduce((wide)a.num * b.num, (wide)a.den * b.den, out, err);
}

copse_status copse_q_div(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) {
  return reduce((wide)a.num * b.den, (wide)a.den * b.num, out, err);
}

int copse_q_cmp(struct copse_q a, struct copse_q b) {
  wide l = (wide)a.num * b.den;
  wide r = (wide)b.num * a.den;
  return (l > r) - (l < r);
}

double copse_q_to_double(struct copse_q q) { return (double)q.num / (double)q.den; }

const char *copse_q_text(struct copse_q q, char buffer[COPSE_Q_TEXT]) {
  if (q.den == 1)
    snprintf(buffer, COPSE_Q_TEXT, "%" PRId64, q.num);
  else
    snprintf(buffer, COPSE_Q_TEXT, "%" PRId64 "/%" PRId64, q.num, q.den);
  return buffer;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static copse_status not_a_number(const char *text, struct copse_err *err) {
  return copse_fail(err, COPSE_BAD_INPUT, "'%.40s' is not a number", text);
}

static copse_status too_precise(const char *text, struct copse_err *err) {
  return copse_fail(err, COPSE_OVERFLOW, "%.40s is out of the range that is held exactly", text);
}

/* mantissa * 10^exponent; zeros that end the digits are counted, not multiplied in. */
struct decimal {
  wide mantissa;
  int64_t exponent;
  int64_t trailing_zeros;
};

#define MANTISSA_MAX ((wide)1 << 120)

/* Appends a digit; false when the value outgrows what is held exactly. */
static bool push_digit(struct decimal *d, char c) {
  if (c == '0') {
    d->trailing_zeros++;
    return true;
  }
  for (; d->trailing_zeros > 0 && d->mantissa != 0; d->trailing_zeros--) {
    d->mantissa *= 10;
    if (d->mantissa > MANTISSA_MAX) return false;
  }
  d->trailing_zeros = 0; /* leading zeros */
  d->mantissa = d->mantissa * 10 + (c - '0');
  return d->mantissa <= MANTISSA_MAX;
}

static copse_status parse_exponent(const char *p, const char *text, int64_t *exponent,
                                   struct copse_err *err) {
  int sign = 1;
  if (*p == '+' || *p == '-') sign = *p++ == '-' ? -1 : 1;
  if (!is_digit(*p)) return not_a_number(text, err);
  int64_t e = 0;
  for (; is_digit(*p); p++)
    if (e < 100000) e = e * 10 + (*p - '0');
  if (*p) return not_a_number(text, err);
  *exponent += sign * e;
  return COPSE_OK;
}

static copse_status scale_decimal(struct decimal d, bool negative, const char *text,
                                  struct copse_q *out, struct copse_err *err) {
  if (d.mantissa == 0) {
    *out = COPSE_Q_ZERO;
    return COPSE_OK;
  }
  wide den = 1;
  for (; d.exponent > 0; d.exponent--) {
    d.mantissa *= 10;
    if (d.mantissa > MANTISSA_MAX) return too_precise(text, err);
  }
  for (; d.exponent < 0; d.exponent++) {
    den *= 10;
    if (den > MANTISSA_MAX) return too_precise(text, err);
  }
  struct copse_err local = COPSE_ERR_INIT;
  if (reduce(negative ? -d.mantissa : d.mantissa, den, out, &local) != COPSE_OK)
    return too_precise(text, err);
  return COPSE_OK;
}

copse_status copse_q_parse_decimal(const char *text, struct copse_q *out, struct copse_err *err) {
  struct decimal d = {0, 0, 0};
  const char *p = text;
  bool negative = *p == '-';
  if (negative) p++;
  if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return not_a_number(text, err);
  for (; is_digit(*p); p++)
    if (!push_digit(&d, *p)) return too_precise(text, err);
  if (*p == '.') {
    p++;
    if (!is_digit(*p)) return not_a_number(text, err);
    for (; is_digit(*p); p++, d.exponent--)
      if (!push_digit(&d, *p)) return too_precise(text, err);
  }
  d.exponent += d.trailing_zeros;
  if (*p == 'e' || *p == 'E')
    COPSE_DO(parse_exponent(p + 1, text, &d.exponent, err));
  else if (*p)
    return not_a_number(text, err);
  return scale_decimal(d, negative, text, out, err);
}

static copse_status parse_integer(const char **p, int64_t *out, const char *text,
                                  struct copse_err *err) {
  bool negative = **p == '-';
  if (negative) (*p)++;
  if (!is_digit(**p)) return not_a_number(text, err);
  int64_t v = 0;
  for (; is_digit(**p); (*p)++)
    if (copse_mul_overflows(v, 10, &v) || copse_add_overflows(v, **p - '0', &v))
      return too_precise(text, err);
  *out = negative ? -v : v;
  return COPSE_OK;
}

copse_status copse_q_parse_fraction(const char *text, struct copse_q *out, struct copse_err *err) {
  const char *p = text;
  int64_t num, den = 1;
  COPSE_DO(parse_integer(&p, &num, text, err));
  if (*p == '/') {
    p++;
    if (!is_digit(*p)) return not_a_number(text, err);
    COPSE_DO(parse_integer(&p, &den, text, err));
  }
  if (*p) return not_a_number(text, err);
  if (den == 0) return copse_fail(err, COPSE_BAD_INPUT, "'%.40s' divides by zero", text);
  return reduce(num, den, out, err);
}

copse_status copse_q_from_double(double value, struct copse_q *out, struct copse_err *err) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", value);
  return copse_q_parse_decimal(text, out, err);
}

/* ---- from floating point ---- */

/* Returns the smallest denominator of a convergent of x in [0, 1) that is within slack / scale. */
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

/* ---- fractions by their residues --------------------------------------------------------------
 */

const struct copse_prime copse_primes[2] = {{61, 1}, {60, 93}};

/* Inverts by Fermat: a^(p - 2). */
uint64_t copse_prime_inverse(const struct copse_prime *p, uint64_t a) {
  uint64_t result = 1;
  for (uint64_t power = copse_prime_value(p) - 2; power > 0;
       power /= 2, a = copse_prime_times(p, a, a))
    if (power % 2 == 1) result = copse_prime_times(p, result, a);
  return result;
}

/* Reconstructs the fraction by Euclid's algorithm half way (P. Wang, A p-adic algorithm for
 * univariate partial fractions, 1981), from the residue modulo the product of both. */
bool copse_prime_fraction(uint64_t first, uint64_t second, int bits, int64_t *num, int64_t *den) {
  const struct copse_prime *p = &copse_primes[0], *q = &copse_primes[1];
  const wide most = (wide)1 << bits, prime = copse_prime_value(p);
  uint64_t behind = copse_prime_value(q) - copse_prime_reduce(q, first);
  uint64_t turns = copse_prime_times(q, copse_prime_reduce(q, (wide)second + behind),
                                     copse_prime_inverse(q, copse_prime_reduce(q, prime)));
  wide r = prime * copse_prime_value(q), next = prime * turns + first, t = 0, t_next = 1;
  while (next >= most) {
    wide times = r / next, rest = r % next, t_rest = t - times * t_next;
    r = next, next = rest, t = t_next, t_next = t_rest;
  }
  *num = (int64_t)next;
  *den = t_next > 0 && t_next < most ? (int64_t)t_next : 0;
  return *den > 0;
}
