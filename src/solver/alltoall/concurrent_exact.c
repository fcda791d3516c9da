/*
 * The weights of the master's solution as exact fractions: the simplex method says which
 * trees are used and which orbits are full; the linear system that this makes is solved in
 * GMP rationals.
 */
#include <gmp.h>
#include <math.h>
#include <stdlib.h>

#include "solver/alltoall/concurrent_internal.h"

#define FULL_SLACK 1e-8
#define MAX_EQUATIONS 400 /* elimination is cubic in rationals that grow */

/* Equations sum_j a[i][j] * weight[j] = a[i][n]. */
struct system {
  int rows, n;
  mpq_t *a;       /* [rows * (n + 1)] */
  size_t *column; /* [n] of the search */
  int *pivot_row; /* [n] -1: free */
};

static mpq_t *at(const struct system *y, int i, int j) {
  return &y->a[(size_t)i * (size_t)(y->n + 1) + (size_t)j];
}

/* Load of each orbit in the floating-point solution. */
static void float_loads(const struct copse_search *s, double *load) {
  for (size_t c = 0; c < s->n_columns; c++)
    for (int i = 0; i < s->columns[c].n_loads; i++)
      load[s->columns[c].loads[i].orbit] +=
          s->columns[c].weight * (double)s->columns[c].loads[i].load;
}

static bool is_full(const struct copse_search *s, const double *load, int o) {
  return load[o] >= s->time * (double)s->orbit_capacity[o] * (1 - FULL_SLACK);
}

/* One row per source (its weights add up to 1) and per full orbit (its load is T * capacity). */
static void fill_system(const struct copse_search *s, const double *load, struct copse_q time,
                        struct system *y) {
  int row = s->n_bases;
  for (int j = 0; j < y->n; j++) mpq_set_ui(*at(y, s->columns[y->column[j]].base, j), 1, 1);
  for (int b = 0; b < s->n_bases; b++) mpq_set_ui(*at(y, b, y->n), 1, 1);
  for (int o = 0; o < s->n_orbits; o++) {
    if (!is_full(s, load, o)) continue;
    for (int j = 0; j < y->n; j++) {
      const struct copse_column *c = &s->columns[y->column[j]];
      for (int i = 0; i < c->n_loads; i++)
        if (c->loads[i].orbit == o) mpq_set_si(*at(y, row, j), c->loads[i].load, 1);
    }
    mpq_set_si(*at(y, row, y->n), time.num, (unsigned long)time.den);
    mpq_t capacity;
    mpq_init(capacity);
    mpq_set_si(capacity, s->orbit_capacity[o], 1);
    mpq_mul(*at(y, row, y->n), *at(y, row, y->n), capacity);
    mpq_clear(capacity);
    row++;
  }
}

/* row[i] -= factor * row[pivot], from column `from` on. */
static void subtract(struct system *y, int i, int pivot, int from, mpq_t factor, mpq_t t) {
  for (int j = from; j <= y->n; j++) {
    if (mpq_sgn(*at(y, pivot, j)) == 0) continue;
    mpq_mul(t, factor, *at(y, pivot, j));
    mpq_sub(*at(y, i, j), *at(y, i, j), t);
  }
}

/* Gauss-Jordan. False if the equations contradict each other. */
static bool eliminate(struct system *y, bool *used) {
  bool consistent = true;
  mpq_t factor, t;
  mpq_inits(factor, t, NULL);
  for (int j = 0; j < y->n; j++) {
    int pivot = -1;
    for (int i = 0; i < y->rows && pivot < 0; i++)
      if (!used[i] && mpq_sgn(*at(y, i, j)) != 0) pivot = i;
    y->pivot_row[j] = pivot;
    if (pivot < 0) continue;
    used[pivot] = true;
    mpq_inv(factor, *at(y, pivot, j));
    for (int k = j; k <= y->n; k++) mpq_mul(*at(y, pivot, k), *at(y, pivot, k), factor);
    for (int i = 0; i < y->rows; i++) {
      if (i == pivot || mpq_sgn(*at(y, i, j)) == 0) continue;
      mpq_set(factor, *at(y, i, j));
      subtract(y, i, pivot, j, factor, t);
    }
  }
  for (int i = 0; i < y->rows; i++)
    if (!used[i] && mpq_sgn(*at(y, i, y->n)) != 0) consistent = false;
  mpq_clears(factor, t, NULL);
  return consistent;
}

/* The weights; free ones are put at a near fraction and the others follow. */
static void back_substitute(const struct copse_search *s, struct system *y, mpq_t *weight) {
  mpq_t t;
  mpq_init(t);
  for (int j = 0; j < y->n; j++)
    if (y->pivot_row[j] < 0) {
      mpq_set_si(weight[j], lround(s->columns[y->column[j]].weight * 64), 64);
      mpq_canonicalize(weight[j]);
    }
  for (int j = 0; j < y->n; j++) {
    int row = y->pivot_row[j];
    if (row < 0) continue;
    mpq_set(weight[j], *at(y, row, y->n));
    for (int k = 0; k < y->n; k++) {
      if (y->pivot_row[k] >= 0 || mpq_sgn(*at(y, row, k)) == 0) continue;
      mpq_mul(t, *at(y, row, k), weight[k]);
      mpq_sub(weight[j], weight[j], t);
    }
  }
  mpq_clear(t);
}

/* Common denominator and integer weights, if they fit and none is negative. */
static int64_t to_integers(const struct copse_search *s, const struct system *y, mpq_t *weight,
                           int64_t *weights) {
  mpz_t common, value;
  int64_t whole = 0;
  bool good = true;
  mpz_init_set_ui(common, 1);
  mpz_init(value);
  for (int j = 0; j < y->n && good; j++) {
    mpz_lcm(common, common, mpq_denref(weight[j]));
    good = mpq_sgn(weight[j]) >= 0 && mpz_sizeinbase(common, 2) < 48;
  }
  if (good) {
    for (size_t c = 0; c < s->n_columns; c++) weights[c] = 0;
    for (int j = 0; j < y->n; j++) {
      mpz_divexact(value, common, mpq_denref(weight[j]));
      mpz_mul(value, value, mpq_numref(weight[j]));
      weights[y->column[j]] = mpz_get_si(value);
    }
    whole = mpz_get_si(common);
  }
  mpz_clears(common, value, NULL);
  return whole;
}

static int64_t solve(const struct copse_search *s, struct system *y, int64_t *weights) {
  int64_t whole = 0;
  bool *used = calloc((size_t)y->rows, sizeof *used);
  mpq_t *weight = calloc((size_t)y->n, sizeof *weight);
  for (int j = 0; weight && j < y->n; j++) mpq_init(weight[j]);
  if (used && weight && eliminate(y, used)) {
    back_substitute(s, y, weight);
    whole = to_integers(s, y, weight, weights);
  }
  for (int j = 0; weight && j < y->n; j++) mpq_clear(weight[j]);
  free(weight);
  free(used);
  return whole;
}

int64_t copse_concurrent_exact_weights(const struct copse_search *s, struct copse_q time,
                                       int64_t *weights) {
  struct system y = {.rows = s->n_bases};
  int64_t whole = 0;
  double *load = calloc((size_t)s->n_orbits, sizeof *load);
  y.column = calloc(s->n_columns, sizeof *y.column);
  y.pivot_row = calloc(s->n_columns, sizeof *y.pivot_row);
  if (!load || !y.column || !y.pivot_row || time.num == 0) goto out;
  float_loads(s, load);
  for (size_t c = 0; c < s->n_columns; c++)
    if (s->columns[c].weight >= COPSE_LEAST_WEIGHT) y.column[y.n++] = c;
  for (int o = 0; o < s->n_orbits; o++) y.rows += is_full(s, load, o);
  if (y.rows > MAX_EQUATIONS || y.n > MAX_EQUATIONS) goto out;
  size_t cells = (size_t)y.rows * (size_t)(y.n + 1);
  y.a = calloc(cells, sizeof *y.a);
  if (!y.a) goto out;
  for (size_t i = 0; i < cells; i++) mpq_init(y.a[i]);
  fill_system(s, load, time, &y);
  whole = solve(s, &y, weights);
  for (size_t i = 0; i < cells; i++) mpq_clear(y.a[i]);
out:
  free(y.a);
  free(y.column);
  free(y.pivot_row);
  free(load);
  return whole;
}
