/* What the parts of copse_verify_schedule share. */
#ifndef COPSE_VERIFY_INTERNAL_H
#define COPSE_VERIFY_INTERNAL_H

#include <gmp.h>

#include "base/err.h"
#include "base/rational.h"
#include "verify/verify.h"

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

/* A switch that copies or adds, the relay itself or one beside it; NULL if there is none. Only then
 * do a relay's loads balance: no link of it counts once for several copies. */
const struct copse_node *copse_verify_switch_at(const struct copse_topology *topology, int relay);

/* copse_verify_schedule, which adds each link's load to loads [n_links of the topology]: zeros. */
copse_status copse_verify_schedule_loads(const struct copse_schedule *schedule,
                                         const struct copse_topology *topology, const char *label,
                                         struct copse_verify_report *report, mpq_t *loads,
                                         struct copse_err *err) COPSE_CHECKED;

/* A number that a report can carry; COPSE_OVERFLOW beyond. */
copse_status copse_verify_get_q(const mpq_t from, const char *label, struct copse_q *to,
                                struct copse_err *err) COPSE_CHECKED;

#endif
