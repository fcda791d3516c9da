/* What the parts of copse_verify_schedule share. */
#ifndef COPSE_SCHEDULE_VERIFY_INTERNAL_H
#define COPSE_SCHEDULE_VERIFY_INTERNAL_H

#include <gmp.h>

#include "base/err.h"
#include "base/rational.h"

/* COPSE_REFUTED with "LABEL: TEXT". */
copse_status copse_verify_refute(struct copse_err *err, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a checker c, whichever: it has a label and an err. */
#define refute(c, ...) copse_verify_refute((c)->err, (c)->label, __VA_ARGS__)

/* `from` is in lowest terms, as every copse_q, and so is `to`. */
static inline void set_q(mpq_t to, struct copse_q from) {
  mpz_set_si(mpq_numref(to), from.num);
  mpz_set_si(mpq_denref(to), from.den);
}

/* n zeros, NULL when memory ran out; _free accepts NULL. */
mpq_t *copse_verify_rationals(int n);
void copse_verify_rationals_free(mpq_t *q, int n);

#endif
