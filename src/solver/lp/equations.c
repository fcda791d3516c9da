/*
 * Linear equations solved exactly: elimination in Markowitz's order, which keeps few coefficients
 * and small ones; and the denominators that floating point shows, by continued fractions.
 */
#include "solver/lp/equations.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

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

struct entry {
  int column;
  mpq_t value;
};

struct row {
  struct entry *entries;
  size_t n, capacity;
};

/* The rows that have, or had, an entry in a column. */
struct column {
  int *rows;
  size_t n, capacity;
  int n_active; /* of them with an entry now, and without a pivot */
};

struct equations {
  int n;
  struct row *rows;
  struct column *columns;
  bool *row_used, *column_used;
  int *pivot_row, *pivot_column; /* [n] in their order */
  int *place;                    /* [n] 1 + where the row at hand has a column */
  struct copse_arena arena;      /* all of these */
};

/* The number of rationals is itself one, before the first. */
copse_status copse_rationals_new(size_t n, mpq_t **out, struct copse_err *err) {
  mpq_t *all = NULL;
  COPSE_DO(copse_calloc(n + 1, sizeof *all, &all, err));
  for (size_t i = 0; i <= n; i++) mpq_init(all[i]);
  mpq_set_ui(all[0], n, 1);
  *out = all + 1;
  return COPSE_OK;
}

void copse_rationals_free(mpq_t **rationals) {
  if (!*rationals) return;
  mpq_t *all = *rationals - 1;
  size_t n = mpz_get_ui(mpq_numref(all[0]));
  for (size_t i = 0; i <= n; i++) mpq_clear(all[i]);
  free(all);
}

static copse_status prepare(struct equations *e, struct copse_err *err) {
  size_t n = (size_t)e->n;
  COPSE_DO(COPSE_ARRAY(&e->arena, n, e->rows, err));
  COPSE_DO(COPSE_ARRAY(&e->arena, n, e->columns, err));
  COPSE_DO(COPSE_ARRAYS(&e->arena, n, bool, err, &e->row_used, &e->column_used));
  return COPSE_ARRAYS(&e->arena, n, int, err, &e->pivot_row, &e->pivot_column, &e->place);
}

static void release(struct equations *e) {
  for (int i = 0; e->rows && i < e->n; i++) {
    for (size_t k = 0; k < e->rows[i].n; k++) mpq_clear(e->rows[i].entries[k].value);
    free(e->rows[i].entries);
  }
  for (int j = 0; e->columns && j < e->n; j++) free(e->columns[j].rows);
  copse_arena_free(&e->arena);
}

/* A new entry of value 0. */
static copse_status add_entry(struct equations *e, int row, int column, struct entry **out,
                              struct copse_err *err) {
  struct row *r = &e->rows[row];
  struct column *c = &e->columns[column];
  COPSE_DO(copse_grow(&r->entries, &r->capacity, r->n + 1, sizeof *r->entries, err));
  COPSE_DO(copse_grow(&c->rows, &c->capacity, c->n + 1, sizeof *c->rows, err));
  c->rows[c->n++] = row;
  c->n_active++;
  *out = &r->entries[r->n++];
  (*out)->column = column;
  mpq_init((*out)->value);
  return COPSE_OK;
}

static struct entry *find(const struct equations *e, int row, int column) {
  struct row *r = &e->rows[row];
  for (size_t k = 0; k < r->n; k++)
    if (r->entries[k].column == column) return &r->entries[k];
  return NULL;
}

/* An unknown that a single equation has needs no elimination. Else the shortest equation, and in
 * it the unknown that the fewest others have. */
static bool choose_pivot(const struct equations *e, int *row, int *column) {
  *row = *column = -1;
  for (int j = 0; j < e->n; j++) {
    const struct column *c = &e->columns[j];
    if (e->column_used[j] || c->n_active != 1) continue;
    for (size_t k = 0; k < c->n; k++)
      if (!e->row_used[c->rows[k]] && find(e, c->rows[k], j)) *row = c->rows[k];
    *column = j;
    return true;
  }
  for (int i = 0; i < e->n; i++)
    if (!e->row_used[i] && e->rows[i].n > 0 && (*row < 0 || e->rows[i].n < e->rows[*row].n))
      *row = i;
  for (size_t k = 0; *row >= 0 && k < e->rows[*row].n; k++) {
    int j = e->rows[*row].entries[k].column;
    if (*column < 0 || e->columns[j].n_active < e->columns[*column].n_active) *column = j;
  }
  return *row >= 0;
}

static void drop_zeros(struct equations *e, int row) {
  struct row *r = &e->rows[row];
  size_t kept = 0;
  for (size_t k = 0; k < r->n; k++) {
    if (mpq_sgn(r->entries[k].value) == 0) {
      e->columns[r->entries[k].column].n_active--;
      mpq_clear(r->entries[k].value);
    } else {
      r->entries[kept++] = r->entries[k];
    }
  }
  r->n = kept;
}

/* row -= factor * pivot row, where the factor takes out the column. */
static copse_status subtract(struct equations *e, int row, int pivot, int column, mpq_t *values,
                             mpq_t factor, mpq_t t, struct copse_err *err) {
  copse_status status = COPSE_OK;
  mpq_div(factor, find(e, row, column)->value, find(e, pivot, column)->value);
  for (size_t k = 0; k < e->rows[row].n; k++) e->place[e->rows[row].entries[k].column] = (int)k + 1;
  for (size_t k = 0; k < e->rows[pivot].n; k++) {
    int j = e->rows[pivot].entries[k].column;
    struct entry *entry = e->place[j] ? &e->rows[row].entries[e->place[j] - 1] : NULL;
    if (!entry) COPSE_TRY(add_entry(e, row, j, &entry, err));
    mpq_mul(t, factor, e->rows[pivot].entries[k].value);
    mpq_sub(entry->value, entry->value, t);
  }
  mpq_mul(t, factor, values[pivot]);
  mpq_sub(values[row], values[row], t);
out:
  for (size_t k = 0; k < e->rows[row].n; k++) e->place[e->rows[row].entries[k].column] = 0;
  if (status == COPSE_OK) drop_zeros(e, row);
  return status;
}

static copse_status eliminate(struct equations *e, int pivot, int column, mpq_t *values,
                              mpq_t *scratch, struct copse_err *err) {
  e->row_used[pivot] = e->column_used[column] = true;
  for (size_t k = 0; k < e->rows[pivot].n; k++)
    e->columns[e->rows[pivot].entries[k].column].n_active--;
  for (size_t k = 0; k < e->columns[column].n; k++) {
    int row = e->columns[column].rows[k];
    if (e->row_used[row] || !find(e, row, column)) continue;
    COPSE_DO(subtract(e, row, pivot, column, values, scratch[0], scratch[1], err));
  }
  return COPSE_OK;
}

/* The last pivot's unknown first; a row of a pivot holds only unknowns of later ones. */
static void back_substitute(const struct equations *e, mpq_t *values, mpq_t *unknowns, mpq_t t) {
  for (int p = e->n - 1; p >= 0; p--) {
    const struct row *r = &e->rows[e->pivot_row[p]];
    mpq_t *z = &unknowns[e->pivot_column[p]];
    mpq_set(*z, values[e->pivot_row[p]]);
    for (size_t k = 0; k < r->n; k++) {
      if (r->entries[k].column == e->pivot_column[p]) continue;
      mpq_mul(t, r->entries[k].value, unknowns[r->entries[k].column]);
      mpq_sub(*z, *z, t);
    }
    mpq_div(*z, *z, find(e, e->pivot_row[p], e->pivot_column[p])->value);
  }
}

copse_status copse_equations_solve(int n, const struct copse_coefficient *coefficients,
                                   size_t n_coefficients, mpq_t *values, bool *regular,
                                   struct copse_err *err) {
  COPSE_AT_END(release) struct equations e = {.n = n};
  COPSE_AT_END(copse_rationals_free) mpq_t *unknowns = NULL;
  COPSE_AT_END(copse_rationals_free) mpq_t *scratch = NULL; /* a factor, a product */
  struct entry *entry;
  COPSE_DO(prepare(&e, err));
  COPSE_DO(copse_rationals_new((size_t)n, &unknowns, err));
  COPSE_DO(copse_rationals_new(2, &scratch, err));
  for (size_t i = 0; i < n_coefficients; i++) {
    COPSE_DO(add_entry(&e, coefficients[i].row, coefficients[i].column, &entry, err));
    mpq_set_si(entry->value, coefficients[i].value, 1);
  }
  *regular = true;
  for (int p = 0; p < n; p++) {
    *regular = choose_pivot(&e, &e.pivot_row[p], &e.pivot_column[p]);
    if (!*regular) return COPSE_OK;
    COPSE_DO(eliminate(&e, e.pivot_row[p], e.pivot_column[p], values, scratch, err));
  }
  back_substitute(&e, values, unknowns, scratch[0]);
  for (int j = 0; j < n; j++) mpq_set(values[j], unknowns[j]);
  return COPSE_OK;
}
