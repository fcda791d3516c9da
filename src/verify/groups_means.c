#include "verify/groups_means.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_means_new(int n, struct copse_means *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_means){.n = n};
  COPSE_TRY(copse_calloc((size_t)n, sizeof *out->parent, &out->parent, err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *out->value, &out->value, err));
  for (int i = 0; i < n; i++) out->parent[i] = i;
out:
  return status;
}

void copse_means_free(struct copse_means *means) {
  for (size_t i = 0; i < means->n_values; i++) mpq_clear(means->values[i]);
  free(means->values);
  free(means->parent);
  free(means->value);
}

static int find(struct copse_means *means, int i) {
  int *parent = means->parent;
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

void copse_means_join(struct copse_means *means, int place, int image) {
  means->parent[find(means, place)] = find(means, image);
}

copse_status copse_means_add(struct copse_means *means, int place, const mpq_t amount,
                             struct copse_err *err) {
  int *value = &means->value[find(means, place)];
  if (*value == 0) {
    copse_status status = copse_grow(&means->values, &means->capacity, means->n_values + 1,
                                     sizeof *means->values, err);
    if (status != COPSE_OK) return status;
    mpq_init(means->values[means->n_values]);
    *value = (int)++means->n_values;
  }
  mpq_add(means->values[*value - 1], means->values[*value - 1], amount);
  return COPSE_OK;
}

copse_status copse_means_divide(struct copse_means *means, struct copse_err *err) {
  unsigned long *size = NULL;
  mpq_t q;
  copse_status status = copse_calloc(means->n_values, sizeof *size, &size, err);
  if (status != COPSE_OK) return status;
  mpq_init(q);
  for (int i = 0; i < means->n; i++) {
    int value = means->value[find(means, i)];
    if (value > 0) size[value - 1]++;
  }
  for (size_t i = 0; i < means->n_values; i++) {
    mpq_set_ui(q, size[i], 1);
    mpq_div(means->values[i], means->values[i], q);
  }
  mpq_clear(q);
  free(size);
  return COPSE_OK;
}

const mpq_t *copse_means_get(struct copse_means *means, int place) {
  int value = means->value[find(means, place)];
  return value > 0 ? (const mpq_t *)&means->values[value - 1] : NULL;
}
