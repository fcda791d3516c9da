/* GMP's numbers where 64 bits are too few: they go where their block ends, and to and from struct
 * copse_q. */
#pragma once

#include <gmp.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/rational.h"

static inline void copse_mpq_clear_at(mpq_t *q) { mpq_clear(*q); }
static inline void copse_mpz_clear_at(mpz_t *z) { mpz_clear(*z); }

/* Declares a rational, or an integer, of 0 for the rest of the block. */
#define COPSE_MPQ(q)                        \
  COPSE_AT_END(copse_mpq_clear_at) mpq_t q; \
  mpq_init(q)
#define COPSE_MPZ(z)                        \
  COPSE_AT_END(copse_mpz_clear_at) mpz_t z; \
  mpz_init(z)

/* Sets `to`, in lowest terms as every copse_q is. */
static inline void copse_mpq_set(mpq_t to, struct copse_q from) {
  mpq_set_si(to, from.num, (unsigned long)from.den);
}
/* Sets *to; returns false, and sets nothing, beyond 64 bits. */
static inline bool copse_mpq_get(const mpq_t from, struct copse_q *to) {
  if (!mpz_fits_slong_p(mpq_numref(from)) || !mpz_fits_slong_p(mpq_denref(from))) return false;
  *to = (struct copse_q){mpz_get_si(mpq_numref(from)), mpz_get_si(mpq_denref(from))};
  return true;
}
/* Sets *to to a * b / (c * d), all > 0; false beyond 64 bits. */
static inline bool copse_mpq_get_product(__int128 a, int64_t b, __int128 c, int64_t d,
                                         struct copse_q *to) {
  COPSE_MPQ(q);
  mpz_import(mpq_numref(q), 1, -1, sizeof a, 0, 0, &a);
  mpz_import(mpq_denref(q), 1, -1, sizeof c, 0, 0, &c);
  mpz_mul_si(mpq_numref(q), mpq_numref(q), b);
  mpz_mul_si(mpq_denref(q), mpq_denref(q), d);
  mpq_canonicalize(q);
  return copse_mpq_get(q, to);
}

/* Makes rationals of 0, for the caller to free. Their number is itself one, before the first.
 * COPSE_NOMEM. */
static inline copse_status copse_rationals_new(size_t n, mpq_t **out, struct copse_err *err) {
  mpq_t *all = NULL;
  COPSE_DO(copse_calloc(n + 1, sizeof *all, &all, err));
  for (size_t i = 0; i <= n; i++) mpq_init(all[i]);
  mpq_set_ui(all[0], n, 1);
  *out = all + 1;
  return COPSE_OK;
}
/* Frees *rationals, unless it is NULL; for COPSE_AT_END. */
static inline void copse_rationals_free(mpq_t **rationals) {
  if (!*rationals) return;
  mpq_t *all = *rationals - 1;
  size_t n = mpz_get_ui(mpq_numref(all[0]));
  for (size_t i = 0; i <= n; i++) mpq_clear(all[i]);
  free(all);
}
