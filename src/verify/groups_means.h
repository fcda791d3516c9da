/*
 * Inside src/schedule only: numbers at places, most of them 0, where symmetries make some places
 * one: what is added at a place counts there and at its images alike, as the mean over all.
 */
#ifndef COPSE_VERIFY_GROUPS_MEANS_H
#define COPSE_VERIFY_GROUPS_MEANS_H

#include <gmp.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct copse_means {
  int n;
  int *parent; /* [n] towards the place that names the orbit */
  int *value;  /* [n] of such: 1 + index in `values`, 0: none */
  mpq_t *values;
  size_t n_values, capacity;
};

copse_status copse_means_new(int n, struct copse_means *out, struct copse_err *err) COPSE_CHECKED;
void copse_means_free(struct copse_means *means);

/* Before anything is added. */
void copse_means_join(struct copse_means *means, int place, int image);
copse_status copse_means_add(struct copse_means *means, int place, const mpq_t amount,
                             struct copse_err *err) COPSE_CHECKED;
/* When all is added: sums become means. */
copse_status copse_means_divide(struct copse_means *means, struct copse_err *err) COPSE_CHECKED;
/* NULL: 0. */
const mpq_t *copse_means_get(struct copse_means *means, int place);

#endif
