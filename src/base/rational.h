/* Checked integers and exact rationals of 64 bits. All intermediate products are taken
 * in 128 bits, reduced, and range-checked: a result either is exact or is
 * COPSE_OVERFLOW, never silently wrong. */
#pragma once

#include "base/err.h"

/* Always in lowest terms with den > 0; zero is 0/1. */
struct copse_q {
  int64_t num;
  int64_t den;
};

#define COPSE_Q_ZERO ((struct copse_q){0, 1})
#define COPSE_Q_ONE ((struct copse_q){1, 1})

/* Returns true on overflow, like the compiler's builtins that these wrap. */
static inline bool copse_add_overflows(int64_t a, int64_t b, int64_t *sum) {
  return __builtin_add_overflow(a, b, sum);
}
static inline bool copse_mul_overflows(int64_t a, int64_t b, int64_t *product) {
  return __builtin_mul_overflow(a, b, product);
}

int64_t copse_gcd(int64_t a, int64_t b); /* of absolute values; gcd(0, 0) = 0 */
__int128 copse_gcd_wide(__int128 a, __int128 b);

static inline int64_t copse_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t copse_larger(int64_t a, int64_t b) { return a > b ? a : b; }
copse_status copse_lcm(int64_t a, int64_t b, int64_t *lcm, struct copse_err *err) COPSE_CHECKED;

/* Makes num/den in lowest terms; den != 0. */
copse_status copse_q_make(int64_t num, int64_t den, struct copse_q *out,
                          struct copse_err *err) COPSE_CHECKED;
copse_status copse_q_add(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) COPSE_CHECKED;
copse_status copse_q_sub(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) COPSE_CHECKED;
copse_status copse_q_mul(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) COPSE_CHECKED;
/* Divides; b != 0, else COPSE_INVALID. */
copse_status copse_q_div(struct copse_q a, struct copse_q b, struct copse_q *out,
                         struct copse_err *err) COPSE_CHECKED;

/* Compares: negative, zero or positive like memcmp; exact, never fails. */
int copse_q_cmp(struct copse_q a, struct copse_q b);
static inline bool copse_q_eq(struct copse_q a, struct copse_q b) {
  return a.num == b.num && a.den == b.den;
}

/* Returns the nearest double, for reports only. */
double copse_q_to_double(struct copse_q q);

/* Makes the decimal that a program was given and keeps as a double: to 9 digits. COPSE_BAD_INPUT
 * for NaN and infinities, COPSE_OVERFLOW. */
copse_status copse_q_from_double(double value, struct copse_q *out,
                                 struct copse_err *err) COPSE_CHECKED;

/* "3/65", or "7" when the denominator is 1. Needs 44 bytes. */
#define COPSE_Q_TEXT 44
const char *copse_q_text(struct copse_q q, char buffer[COPSE_Q_TEXT]);
/* The same for printf; lasts as long as the block it stands in. */
#define COPSE_Q_STRING(q) copse_q_text((q), (char[COPSE_Q_TEXT]){0})

/* Parses a JSON-style decimal ("25", "0.5", "-1.25e3"): its digits are exact. Whole
 * text only. COPSE_BAD_INPUT for anything else (NaN, hex, "1."), COPSE_OVERFLOW where
 * the exact value doesn't fit 64/64 bits (1e400). err's text has no place; callers add it. */
copse_status copse_q_parse_decimal(const char *text, struct copse_q *out,
                                   struct copse_err *err) COPSE_CHECKED;

/* Parses "p/q" or "p", integers with an optional leading minus, q > 0. */
copse_status copse_q_parse_fraction(const char *text, struct copse_q *out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Finds a common denominator, at most `limit`, under which every value (finite, >= 0) is within
 * `slack` of an integer; 0 if continued fractions find none. */
int64_t copse_common_denominator(const double *values, int n, int64_t limit, double slack);

/* ---- fractions by their residues ---- */

/* 2^bits - gap. What is computed modulo both of these determines fractions of up to 59 bits. */
struct copse_prime {
  int bits;
  uint64_t gap;
};
extern const struct copse_prime copse_primes[2];

static inline uint64_t copse_prime_value(const struct copse_prime *p) {
  return (UINT64_C(1) << p->bits) - p->gap;
}

/* Returns the residue of x < 2^(2 bits + 1): folds what is above 2^bits back, which is the gap. */
static inline uint64_t copse_prime_reduce(const struct copse_prime *p, unsigned __int128 x) {
  const uint64_t mask = (UINT64_C(1) << p->bits) - 1, prime = copse_prime_value(p);
  for (int i = 0; i < 2; i++) x = (x >> p->bits) * p->gap + ((uint64_t)x & mask);
  return (uint64_t)x >= prime ? (uint64_t)x - prime : (uint64_t)x;
}

static inline uint64_t copse_prime_times(const struct copse_prime *p, uint64_t a, uint64_t b) {
  return copse_prime_reduce(p, (unsigned __int128)a * b);
}

/* Returns the inverse of a residue that is not 0; of 0: 0. */
uint64_t copse_prime_inverse(const struct copse_prime *p, uint64_t a);

/* Finds the fraction, not negative, its terms below 2^bits, bits < 60, that has these residues
 * under copse_primes; false: there is none. */
bool copse_prime_fraction(uint64_t first, uint64_t second, int bits, int64_t *num, int64_t *den);
