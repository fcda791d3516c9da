/*
 * GLPK's simplex method, and its last basis worked out in rationals: the tight rows on the basic
 * columns give the solution, the transposed system the multipliers. Both are then tested against
 * all rows and columns, so that nothing rests on floating point. Also the denominators that
 * floating point shows, by continued fractions. docs/theory.md, "src/solver/lp/".
 */
#include "solver/lp/linear_programme.h"

#include <glpk.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/policy.h"

/* ---- GLPK ---------------------------------------------------------------------------------- */

static glp_prob *new_problem(int direction) {
  glp_term_out(GLP_OFF);
  glp_prob *glp = glp_create_prob();
  glp_set_obj_dir(glp, direction);
  return glp;
}

/* Makes one attempt; false if GLPK gives up or runs into a limit. */
static bool run_simplex(glp_prob *glp, int method, int most_steps) {
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.meth = method;
  parameters.tol_bnd = parameters.tol_dj = COPSE_LP_TOLERANCE;
  parameters.it_lim = most_steps;
  return glp_simplex(glp, &parameters) == 0 && glp_get_status(glp) == GLP_OPT;
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct row {
  struct copse_lp_term *terms;
  size_t capacity;
  int n;
  int64_t right;
  bool exactly;
};

struct copse_lp {
  glp_prob *glp;
  int n_columns;
  int64_t *objective;    /* [n_columns], and as many as may be added: so are the others */
  struct copse_q *upper; /* [n_columns] 0/1: none */
  struct row *rows;
  size_t n_rows, rows_capacity;
  double unit;
  bool gains_changed; /* since the last solution: its basis may still be feasible, not optimal */
  bool prefers_dual;
  int *index; /* [n_columns + 1] for handing rows to GLPK */
  double *value;
  struct copse_arena arena; /* the arrays above, and the rows' terms */
};

copse_status copse_lp_new(int n_columns, int more, int64_t unit, bool prefers_dual,
                          struct copse_lp **out, struct copse_err *err) {
  size_t n = (size_t)n_columns + (size_t)more;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_lp *lp = *out;
  lp->n_columns = n_columns;
  lp->unit = unit > 0 ? (double)unit : 1;
  lp->prefers_dual = prefers_dual;
  COPSE_DO(COPSE_ARRAY(&lp->arena, n, lp->objective, err));
  COPSE_DO(COPSE_ARRAY(&lp->arena, n, lp->upper, err));
  COPSE_DO(COPSE_ARRAY(&lp->arena, n + 1, lp->index, err));
  COPSE_DO(COPSE_ARRAY(&lp->arena, n + 1, lp->value, err));
  lp->glp = new_problem(GLP_MAX);
  glp_add_cols(lp->glp, n_columns);
  for (int j = 1; j <= n_columns; j++) glp_set_col_bnds(lp->glp, j, GLP_LO, 0, 0);
  return COPSE_OK;
}

void copse_lp_free(struct copse_lp *lp) {
  if (!lp) return;
  if (lp->glp) glp_delete_prob(lp->glp);
  copse_arena_free(&lp->arena);
  free(lp);
}

void copse_lp_set_objective(struct copse_lp *lp, int column, int64_t value) {
  if (lp->objective[column] == value) return;
  lp->gains_changed = true;
  lp->objective[column] = value;
  glp_set_obj_coef(lp->glp, column + 1, (double)value);
}

void copse_lp_set_upper(struct copse_lp *lp, int column, struct copse_q upper) {
  lp->upper[column] = upper;
  glp_set_col_bnds(lp->glp, column + 1, GLP_DB, 0, copse_q_to_double(upper) / lp->unit);
}

double copse_lp_objective(const struct copse_lp *lp) { return glp_get_obj_val(lp->glp) * lp->unit; }

void copse_lp_close(struct copse_lp *lp, int column) {
  glp_set_col_bnds(lp->glp, column + 1, GLP_FX, 0, 0);
}

void copse_lp_enter(struct copse_lp *lp, int column, int row) {
  glp_set_col_stat(lp->glp, column + 1, GLP_BS);
  glp_set_row_stat(lp->glp, row + 1, GLP_NU);
}

copse_status copse_lp_add_row(struct copse_lp *lp, const struct copse_lp_term *terms, int n,
                              int64_t right, bool exactly, struct copse_err *err) {
  struct row row = {.n = n, .capacity = (size_t)n, .right = right, .exactly = exactly};
  COPSE_DO(COPSE_ARRAY(&lp->arena, (size_t)n, row.terms, err));
  COPSE_DO(COPSE_GROW_IN(&lp->arena, lp->rows, lp->rows_capacity, lp->n_rows + 1, err));
  memcpy(row.terms, terms, (size_t)n * sizeof *terms);
  lp->rows[lp->n_rows++] = row;
  for (int i = 0; i < n; i++) {
    lp->index[i + 1] = terms[i].column + 1;
    lp->value[i + 1] = (double)terms[i].value;
  }
  int index = glp_add_rows(lp->glp, 1);
  glp_set_mat_row(lp->glp, index, n, lp->index, lp->value);
  glp_set_row_bnds(lp->glp, index, exactly ? GLP_FX : GLP_UP, (double)right / lp->unit,
                   (double)right / lp->unit);
  return COPSE_OK;
}

copse_status copse_lp_add_column(struct copse_lp *lp, const struct copse_lp_entry *entries, int n,
                                 int64_t objective, struct copse_err *err) {
  for (int i = 0, column = lp->n_columns; i < n; i++) {
    struct row *row = &lp->rows[entries[i].row];
    const struct copse_lp_term term = {column, entries[i].value};
    COPSE_DO(COPSE_PUSH_IN(&lp->arena, row->terms, row->n, row->capacity, err, term));
    lp->index[i + 1] = entries[i].row + 1;
    lp->value[i + 1] = (double)entries[i].value;
  }
  int added = glp_add_cols(lp->glp, 1);
  glp_set_col_bnds(lp->glp, added, GLP_LO, 0, 0);
  glp_set_mat_col(lp->glp, added, n, lp->index, lp->value);
  lp->gains_changed = true;
  copse_lp_set_objective(lp, lp->n_columns++, objective);
  return COPSE_OK;
}

double copse_lp_price(const struct copse_lp *lp, int i) { return glp_get_row_dual(lp->glp, i + 1); }

int copse_lp_rows(const struct copse_lp *lp) { return (int)lp->n_rows; }

bool copse_lp_solve(struct copse_lp *lp) {
  /* new rows leave the basis dual feasible */
  int method = lp->gains_changed && !lp->prefers_dual ? GLP_PRIMAL : GLP_DUALP;
  lp->gains_changed = false;
  if (run_simplex(lp->glp, method, COPSE_LP_STEPS)) return true;
  glp_std_basis(lp->glp); /* a numerically bad basis: once more from a fresh one */
  return run_simplex(lp->glp, GLP_PRIMAL, COPSE_LP_STEPS);
}

int copse_lp_open_gaining(struct copse_lp *lp) {
  int n = 0;
  for (int j = 1; j <= lp->n_columns; j++) {
    if (glp_get_col_type(lp->glp, j) != GLP_FX || glp_get_col_dual(lp->glp, j) <= COPSE_LP_GAIN)
      continue;
    glp_set_col_bnds(lp->glp, j, GLP_LO, 0, 0);
    lp->gains_changed = true;
    n++;
  }
  return n;
}

int64_t copse_lp_units(const struct copse_lp *lp, int column) {
  double value = glp_get_col_prim(lp->glp, column + 1);
  return value > 0 ? llround(value * (double)COPSE_LP_UNITS) : 0;
}

/* ---- linear equations ---------------------------------------------------------------------- */

/* A coefficient, not 0; at most one for each place. */
struct coefficient {
  int row, column;
  int64_t value;
};

struct entry {
  int column;
  mpq_t value;
};

struct equation {
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
  struct equation *rows;
  struct column *columns;
  bool *row_used, *column_used;
  int *pivot_row, *pivot_column; /* [n] in their order */
  int *place;                    /* [n] 1 + where the row at hand has a column */
  struct copse_arena arena;      /* all of these */
};

static copse_status prepare_equations(struct equations *e, struct copse_err *err) {
  size_t n = (size_t)e->n;
  COPSE_DO(COPSE_ARRAY(&e->arena, n, e->rows, err));
  COPSE_DO(COPSE_ARRAY(&e->arena, n, e->columns, err));
  COPSE_DO(COPSE_ARRAYS(&e->arena, n, bool, err, &e->row_used, &e->column_used));
  return COPSE_ARRAYS(&e->arena, n, int, err, &e->pivot_row, &e->pivot_column, &e->place);
}

static void release_equations(struct equations *e) {
  for (int i = 0; e->rows && i < e->n; i++)
    for (size_t k = 0; k < e->rows[i].n; k++) mpq_clear(e->rows[i].entries[k].value);
  copse_arena_free(&e->arena);
}

/* Adds a new entry of value 0. */
static copse_status add_entry(struct equations *e, int row, int column, struct entry **out,
                              struct copse_err *err) {
  struct equation *r = &e->rows[row];
  struct column *c = &e->columns[column];
  COPSE_DO(COPSE_GROW_IN(&e->arena, r->entries, r->capacity, r->n + 1, err));
  COPSE_DO(COPSE_PUSH_IN(&e->arena, c->rows, c->n, c->capacity, err, row));
  c->n_active++;
  *out = &r->entries[r->n++];
  (*out)->column = column;
  mpq_init((*out)->value);
  return COPSE_OK;
}

static struct entry *find(const struct equations *e, int row, int column) {
  struct equation *r = &e->rows[row];
  for (size_t k = 0; k < r->n; k++)
    if (r->entries[k].column == column) return &r->entries[k];
  return NULL;
}

/* Chooses a pivot. An unknown that a single equation has needs no elimination. Else the shortest
 * equation, and in it the unknown that the fewest others have. */
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
  struct equation *r = &e->rows[row];
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

/* Computes row -= factor * pivot row, where the factor takes out the column. */
static copse_status subtract(struct equations *e, int row, int pivot, int column, mpq_t *values,
                             struct copse_err *err) {
  COPSE_MPQ(factor);
  COPSE_MPQ(t);
  mpq_div(factor, find(e, row, column)->value, find(e, pivot, column)->value);
  for (size_t k = 0; k < e->rows[row].n; k++) e->place[e->rows[row].entries[k].column] = (int)k + 1;
  for (size_t k = 0; k < e->rows[pivot].n; k++) {
    int j = e->rows[pivot].entries[k].column;
    struct entry *entry = e->place[j] ? &e->rows[row].entries[e->place[j] - 1] : NULL;
    if (!entry) COPSE_DO(add_entry(e, row, j, &entry, err));
    mpq_mul(t, factor, e->rows[pivot].entries[k].value);
    mpq_sub(entry->value, entry->value, t);
  }
  mpq_mul(t, factor, values[pivot]);
  mpq_sub(values[row], values[row], t);
  for (size_t k = 0; k < e->rows[row].n; k++) e->place[e->rows[row].entries[k].column] = 0;
  drop_zeros(e, row);
  return COPSE_OK;
}

static copse_status eliminate(struct equations *e, int pivot, int column, mpq_t *values,
                              struct copse_err *err) {
  e->row_used[pivot] = e->column_used[column] = true;
  for (size_t k = 0; k < e->rows[pivot].n; k++)
    e->columns[e->rows[pivot].entries[k].column].n_active--;
  for (size_t k = 0; k < e->columns[column].n; k++) {
    int row = e->columns[column].rows[k];
    if (!e->row_used[row] && find(e, row, column))
      COPSE_DO(subtract(e, row, pivot, column, values, err));
  }
  return COPSE_OK;
}

/* Finds the last pivot's unknown first; a row of a pivot holds only unknowns of later ones. */
static void back_substitute(const struct equations *e, mpq_t *values, mpq_t *unknowns) {
  COPSE_MPQ(t);
  for (int p = e->n - 1; p >= 0; p--) {
    const struct equation *r = &e->rows[e->pivot_row[p]];
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

/*
 * Solves as many equations as unknowns. values [n]: the right hand sides, and then the unknowns.
 * *regular is false, and `values` means nothing, where the equations don't determine them. In the
 * order of H. M. Markowitz (Management Science 3, 1957), by row and then by column, which keeps few
 * coefficients and small ones.
 */
static copse_status solve_equations(int n, const struct coefficient *coefficients,
                                    size_t n_coefficients, mpq_t *values, bool *regular,
                                    struct copse_err *err) {
  COPSE_AT_END(release_equations) struct equations e = {.n = n};
  COPSE_AT_END(copse_rationals_free) mpq_t *unknowns = NULL;
  struct entry *entry;
  COPSE_DO(prepare_equations(&e, err));
  COPSE_DO(copse_rationals_new((size_t)n, &unknowns, err));
  for (size_t i = 0; i < n_coefficients; i++) {
    COPSE_DO(add_entry(&e, coefficients[i].row, coefficients[i].column, &entry, err));
    mpq_set_si(entry->value, coefficients[i].value, 1);
  }
  *regular = true;
  for (int p = 0; p < n; p++) {
    *regular = choose_pivot(&e, &e.pivot_row[p], &e.pivot_column[p]);
    if (!*regular) return COPSE_OK;
    COPSE_DO(eliminate(&e, e.pivot_row[p], e.pivot_column[p], values, err));
  }
  back_substitute(&e, values, unknowns);
  for (int j = 0; j < n; j++) mpq_set(values[j], unknowns[j]);
  return COPSE_OK;
}

/* ---- the basis in rationals -------------------------------------------------------------- */

/* Equations of the tight rows and unknowns of the basic columns, or the other way round. */
struct basis {
  const struct copse_lp *lp;
  int n;
  int *rows;    /* [n] tight */
  int *columns; /* [n] basic */
  int *place;   /* [n_columns] in `columns`, -1: not basic */
  bool square;
};

static copse_status list_basis(const struct copse_lp *lp, struct copse_arena *scratch,
                               struct basis *b, struct copse_err *err) {
  int n_rows = 0;
  b->lp = lp;
  COPSE_DO(COPSE_ARRAY(scratch, lp->n_rows, b->rows, err));
  COPSE_DO(COPSE_ARRAYS(scratch, (size_t)lp->n_columns, int, err, &b->columns, &b->place));
  for (size_t i = 0; i < lp->n_rows; i++)
    if (glp_get_row_stat(lp->glp, (int)i + 1) != GLP_BS) b->rows[n_rows++] = (int)i;
  for (int j = 0; j < lp->n_columns; j++) {
    bool basic = glp_get_col_stat(lp->glp, j + 1) == GLP_BS;
    b->place[j] = basic ? b->n : -1;
    if (basic) b->columns[b->n++] = j;
  }
  b->square = b->n == n_rows;
  return COPSE_OK;
}

/* Solves the basis's equations, or the transposed ones: values [n]. */
static copse_status solve(const struct basis *b, bool transposed, mpq_t *values, bool *regular,
                          struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct coefficient *all;
  size_t n = 0;
  for (int i = 0; i < b->n; i++) n += (size_t)b->lp->rows[b->rows[i]].n;
  COPSE_DO(COPSE_ARRAY(&scratch, n, all, err));
  n = 0;
  for (int i = 0; i < b->n; i++) {
    const struct row *row = &b->lp->rows[b->rows[i]];
    for (int k = 0; k < row->n; k++) {
      int j = b->place[row->terms[k].column];
      if (j < 0) continue;
      all[n++] = (struct coefficient){transposed ? j : i, transposed ? i : j, row->terms[k].value};
    }
  }
  return solve_equations(b->n, all, n, values, regular, err);
}

static bool at_upper(const struct copse_lp *lp, int column) {
  return glp_get_col_stat(lp->glp, column + 1) == GLP_NU;
}

/* Computes a row's right hand side less what columns at their upper bound take of it. */
static void right_side(const struct copse_lp *lp, const struct row *row, mpq_t *solution,
                       mpq_t value) {
  COPSE_MPQ(q);
  mpq_set_si(value, row->right, 1);
  for (int k = 0; k < row->n; k++) {
    int j = row->terms[k].column;
    if (!at_upper(lp, j)) continue;
    mpq_set_si(q, row->terms[k].value, 1);
    mpq_mul(q, q, solution[j]);
    mpq_sub(value, value, q);
  }
}

/* Solves for the basic columns; those that are not stand at 0 or at their upper bound. */
static copse_status solve_primal(const struct basis *b, mpq_t *solution, bool *regular,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_rationals_free) mpq_t *values = NULL;
  COPSE_DO(copse_rationals_new((size_t)b->n, &values, err));
  for (int j = 0; j < b->lp->n_columns; j++)
    copse_mpq_set(solution[j], at_upper(b->lp, j) ? b->lp->upper[j] : COPSE_Q_ZERO);
  for (int i = 0; i < b->n; i++) right_side(b->lp, &b->lp->rows[b->rows[i]], solution, values[i]);
  COPSE_DO(solve(b, false, values, regular, err));
  for (int i = 0; i < b->n && *regular; i++) mpq_set(solution[b->columns[i]], values[i]);
  return COPSE_OK;
}

static copse_status solve_dual(const struct basis *b, mpq_t *multipliers, bool *regular,
                               struct copse_err *err) {
  COPSE_AT_END(copse_rationals_free) mpq_t *values = NULL;
  COPSE_DO(copse_rationals_new((size_t)b->n, &values, err));
  for (int i = 0; i < b->n; i++) mpq_set_si(values[i], b->lp->objective[b->columns[i]], 1);
  COPSE_DO(solve(b, true, values, regular, err));
  for (size_t i = 0; i < b->lp->n_rows; i++) mpq_set_ui(multipliers[i], 0, 1);
  for (int i = 0; i < b->n && *regular; i++) mpq_set(multipliers[b->rows[i]], values[i]);
  return COPSE_OK;
}

static bool solution_holds(const struct copse_lp *lp, mpq_t *solution) {
  COPSE_MPQ(sum);
  COPSE_MPQ(q);
  bool good = true;
  for (int j = 0; j < lp->n_columns && good; j++) {
    copse_mpq_set(q, lp->upper[j]);
    good = mpq_sgn(solution[j]) >= 0 && (mpq_sgn(q) == 0 || mpq_cmp(solution[j], q) <= 0);
  }
  for (size_t i = 0; i < lp->n_rows && good; i++) {
    const struct row *row = &lp->rows[i];
    mpq_set_si(sum, -row->right, 1);
    for (int k = 0; k < row->n; k++) {
      mpq_set_si(q, row->terms[k].value, 1);
      mpq_mul(q, q, solution[row->terms[k].column]);
      mpq_add(sum, sum, q);
    }
    good = row->exactly ? mpq_sgn(sum) == 0 : mpq_sgn(sum) <= 0;
  }
  return good;
}

/* Whether multipliers prove the solution: no column's gain is left but of those with an upper
 * bound, and right hand sides times multipliers with upper bounds times gains come to the
 * objective. gains [columns] are zeros, for use. */
static bool multipliers_hold(const struct copse_lp *lp, mpq_t *multipliers, mpq_t *solution,
                             mpq_t *gains) {
  COPSE_MPQ(bound);
  COPSE_MPQ(value);
  COPSE_MPQ(q);
  bool good = true;
  for (int j = 0; j < lp->n_columns && good; j++) mpq_set_si(gains[j], lp->objective[j], 1);
  for (size_t i = 0; i < lp->n_rows && good; i++) {
    const struct row *row = &lp->rows[i];
    good = row->exactly || mpq_sgn(multipliers[i]) >= 0;
    if (mpq_sgn(multipliers[i]) == 0) continue;
    for (int k = 0; k < row->n; k++) {
      mpq_set_si(q, row->terms[k].value, 1);
      mpq_mul(q, q, multipliers[i]);
      mpq_sub(gains[row->terms[k].column], gains[row->terms[k].column], q);
    }
    mpq_set_si(q, row->right, 1);
    mpq_mul(q, q, multipliers[i]);
    mpq_add(bound, bound, q);
  }
  for (int j = 0; j < lp->n_columns && good; j++) {
    if (mpq_sgn(gains[j]) > 0) {
      good = lp->upper[j].num > 0;
      copse_mpq_set(q, lp->upper[j]);
      mpq_mul(q, q, gains[j]);
      mpq_add(bound, bound, q);
    }
    mpq_set_si(q, lp->objective[j], 1);
    mpq_mul(q, q, solution[j]);
    mpq_add(value, value, q);
  }
  return good && mpq_equal(bound, value);
}

copse_status copse_lp_exact(const struct copse_lp *lp, int max_equations, mpq_t *solution,
                            mpq_t *multipliers, struct copse_lp_proof *proof,
                            struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_rationals_free) mpq_t *gains = NULL;
  struct basis b = {0};
  bool regular = false;
  *proof = (struct copse_lp_proof){false, false};
  COPSE_DO(copse_rationals_new((size_t)lp->n_columns, &gains, err));
  COPSE_DO(list_basis(lp, &scratch, &b, err));
  if (b.square && b.n <= max_equations) COPSE_DO(solve_primal(&b, solution, &regular, err));
  proof->feasible = regular && solution_holds(lp, solution);
  if (regular) COPSE_DO(solve_dual(&b, multipliers, &regular, err));
  proof->optimal = proof->feasible && regular && multipliers_hold(lp, multipliers, solution, gains);
  return COPSE_OK;
}

/* ---- mixtures -------------------------------------------------------------------------------- */

/* The master problem of a Dantzig-Wolfe decomposition (Operations Research 8, 1960): the first
 * column is T. GLPK has all rows, and then the kinds; of thousands of rows, of which few bind, the
 * kinds and then those rows only that have been the fullest once. */
struct mixed {
  int kind, n;
  struct copse_mixture_load *loads;
};

struct copse_mixture {
  glp_prob *glp;
  int n_rows, n_kinds, n_there;
  int first_kind; /* the row of `glp` before the first kind's */
  bool solved;    /* once */
  int64_t work;   /* left */
  int *there;     /* [n_rows] the row of `glp`, or 0 */
  double *sum;    /* [n_rows] of the solution at hand, */
  double most;    /* and the largest */
  struct mixed *columns;
  size_t n_columns, columns_capacity;
  int *index;
  double *value;
  struct copse_arena arena;
};

/* Writes that T is at least each row that there is; the first of them comes after `before`. */
static void write_most(struct copse_mixture *m, int before) {
  for (int i = 1; i <= m->n_there; i++) {
    m->index[i] = before + i;
    m->value[i] = -1;
  }
  glp_set_mat_col(m->glp, 1, m->n_there, m->index, m->value);
}

copse_status copse_mixture_new(int n_rows, int n_kinds, int64_t work, struct copse_mixture **out,
                               struct copse_err *err) {
  size_t rows = (size_t)n_rows + (size_t)n_kinds;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_mixture *m = *out;
  *m = (struct copse_mixture){.n_rows = n_rows, .n_kinds = n_kinds, .work = work};
  COPSE_DO(COPSE_ARRAY(&m->arena, rows + 2, m->index, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, rows + 2, m->value, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)n_rows, m->there, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)n_rows, m->sum, err));
  m->glp = new_problem(GLP_MIN);
  if (n_rows <= COPSE_LP_MIXTURE_WHOLE) m->n_there = m->first_kind = n_rows;
  glp_add_rows(m->glp, m->n_there + n_kinds);
  for (int o = 0; o < m->n_there; o++) {
    m->there[o] = o + 1;
    glp_set_row_bnds(m->glp, o + 1, GLP_UP, 0, 0);
  }
  for (int b = 1; b <= n_kinds; b++) glp_set_row_bnds(m->glp, m->first_kind + b, GLP_FX, 1, 1);
  glp_add_cols(m->glp, 1);
  glp_set_col_bnds(m->glp, 1, GLP_LO, 0, 0);
  glp_set_obj_coef(m->glp, 1, 1);
  write_most(m, 0);
  return COPSE_OK;
}

void copse_mixture_free(struct copse_mixture *m) {
  if (!m) return;
  if (m->glp) glp_delete_prob(m->glp);
  copse_arena_free(&m->arena);
  free(m);
}

static void write_mixed(struct copse_mixture *m, size_t c) {
  const struct mixed *column = &m->columns[c];
  int n = 0;
  for (int i = 0; i < column->n; i++) {
    if (!m->there[column->loads[i].row]) continue;
    m->index[++n] = m->there[column->loads[i].row];
    m->value[n] = column->loads[i].load;
  }
  m->index[++n] = m->first_kind + column->kind + 1;
  m->value[n] = 1;
  glp_set_mat_col(m->glp, (int)c + 2, n, m->index, m->value);
}

copse_status copse_mixture_add(struct copse_mixture *m, int kind,
                               const struct copse_mixture_load *loads, int n,
                               struct copse_err *err) {
  struct mixed column = {.kind = kind, .n = n};
  COPSE_DO(COPSE_GROW_IN(&m->arena, m->columns, m->columns_capacity, m->n_columns + 1, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)n, column.loads, err));
  memcpy(column.loads, loads, (size_t)n * sizeof *loads);
  m->columns[m->n_columns++] = column;
  glp_set_col_bnds(m->glp, glp_add_cols(m->glp, 1), GLP_LO, 0, 0);
  write_mixed(m, m->n_columns - 1);
  return COPSE_OK;
}

/* Returns how many rows that GLPK has not are fuller than that. */
static int fuller_than(const struct copse_mixture *m, double load) {
  int n = 0;
  for (int o = 0; o < m->n_rows; o++) n += !m->there[o] && m->sum[o] > load;
  return n;
}

/* Adds the fullest rows of the solution, if they are too full; false if none is. */
static bool add_full_rows(struct copse_mixture *m, double slack) {
  double cut = glp_get_col_prim(m->glp, 1) * (1 + slack), full = 0;
  m->most = glp_get_col_prim(m->glp, 1);
  if (m->n_there == m->n_rows) return false;
  memset(m->sum, 0, (size_t)m->n_rows * sizeof *m->sum);
  for (size_t c = 0; c < m->n_columns; c++) {
    double weight = copse_mixture_weight(m, c);
    for (int i = 0; weight > 0 && i < m->columns[c].n; i++)
      m->sum[m->columns[c].loads[i].row] += weight * m->columns[c].loads[i].load;
  }
  for (int o = 0; o < m->n_rows; o++)
    if (!m->there[o] && m->sum[o] > full) full = m->sum[o];
  m->most = fmax(m->most, full);
  if (full <= cut) return false;
  const int few = COPSE_LP_MIXTURE_ROWS + m->n_there / 4;
  for (int i = 0; i < COPSE_LP_MIXTURE_HALVINGS && fuller_than(m, cut) > few; i++)
    cut = (cut + full) / 2;
  for (int o = 0; o < m->n_rows; o++) {
    if (m->there[o] || m->sum[o] <= cut) continue;
    m->there[o] = glp_add_rows(m->glp, 1);
    glp_set_row_bnds(m->glp, m->there[o], GLP_UP, 0, 0);
    m->n_there++;
  }
  write_most(m, m->n_kinds);
  for (size_t c = 0; c < m->n_columns; c++) write_mixed(m, c);
  return true;
}

/* Runs with far more steps than a master of this size takes, unless it cycles in rounding noise. */
static bool run_master(struct copse_mixture *m, int method) {
  int rows = m->n_there + m->n_kinds, before = glp_get_it_cnt(m->glp);
  int64_t each = glp_get_num_nz(m->glp) + (int64_t)COPSE_LP_MIXTURE_ROW_WORK * rows;
  int64_t most = copse_smaller(
      m->work / each, COPSE_LP_MIXTURE_STEPS + COPSE_LP_MIXTURE_STEPS_PER_ROW * (int64_t)rows);
  bool good = most > 0 && run_simplex(m->glp, method, (int)copse_smaller(most, INT_MAX));
  m->work -= each * (glp_get_it_cnt(m->glp) - before);
  return good;
}

static bool optimize(struct copse_mixture *m, int method) {
  if (run_master(m, method)) return true;
  /* a numerically bad basis: once more from a fresh one, scaled, by the dual simplex */
  glp_scale_prob(m->glp, GLP_SF_AUTO);
  glp_std_basis(m->glp);
  return run_master(m, GLP_DUALP);
}

bool copse_mixture_solve(struct copse_mixture *m, double slack) {
  if (!m->solved) glp_adv_basis(m->glp, 0);
  m->solved = true;
  bool good = optimize(m, GLP_PRIMAL); /* new columns leave the basis primal feasible, */
  while (good && add_full_rows(m, slack)) good = optimize(m, GLP_DUALP); /* new rows dual */
  return good;
}

double copse_mixture_most(const struct copse_mixture *m) { return m->most; }

double copse_mixture_price(const struct copse_mixture *m, int row) {
  return m->there[row] ? -glp_get_row_dual(m->glp, m->there[row]) : 0;
}

double copse_mixture_share_price(const struct copse_mixture *m, int kind) {
  return glp_get_row_dual(m->glp, m->first_kind + kind + 1);
}

double copse_mixture_weight(const struct copse_mixture *m, size_t column) {
  return glp_get_col_prim(m->glp, (int)column + 2);
}

/* ---- columns of 0 or 1 ---------------------------------------------------------------- */

/* Branch and cut: the relaxation by the dual simplex method, Gomory and rounding cuts. */
struct copse_integer {
  glp_prob *glp;
  int n; /* terms of the row being written */
  int *index;
  double *value;
  double *start; /* [columns + 1] */
  bool handed;   /* the start, to GLPK */
  struct copse_arena arena;
  int64_t most_steps;
  void (*look)(void *ctx, int64_t nodes);
  void *ctx;
  struct copse_integer_result *result;
};

copse_status copse_integer_new(int n_binaries, int n_others, double cost,
                               struct copse_integer **out, struct copse_err *err) {
  size_t columns = (size_t)n_binaries + (size_t)n_others;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_integer *i = *out;
  COPSE_DO(COPSE_ARRAY(&i->arena, columns + 1, i->index, err));
  COPSE_DO(COPSE_ARRAYS(&i->arena, columns + 1, double, err, &i->value, &i->start));
  i->glp = new_problem(GLP_MIN);
  glp_add_cols(i->glp, (int)columns);
  for (int j = 1; j <= n_binaries; j++) glp_set_col_kind(i->glp, j, GLP_BV);
  for (int j = n_binaries + 1; j <= (int)columns; j++) {
    glp_set_col_bnds(i->glp, j, GLP_LO, 0, 0);
    glp_set_obj_coef(i->glp, j, cost);
  }
  return COPSE_OK;
}

void copse_integer_free(struct copse_integer *i) {
  if (!i) return;
  if (i->glp) glp_delete_prob(i->glp);
  copse_arena_free(&i->arena);
  free(i);
}

void copse_integer_put(struct copse_integer *i, int column, double value) {
  if (value == 0) return;
  i->index[++i->n] = column + 1;
  i->value[i->n] = value;
}

void copse_integer_add_row(struct copse_integer *i, enum copse_integer_sense sense, double bound) {
  static const int types[] = {GLP_UP, GLP_FX, GLP_LO};
  int r = glp_add_rows(i->glp, 1);
  glp_set_row_bnds(i->glp, r, types[sense], bound, bound);
  glp_set_mat_row(i->glp, r, i->n, i->index, i->value);
  i->n = 0;
}

/* Hands over the start, notes the bound, ends the search after its work; called between nodes. */
static void follow(glp_tree *tree, void *info) {
  struct copse_integer *i = info;
  int active, all, total;
  if (glp_ios_reason(tree) == GLP_IHEUR && !i->handed) {
    i->handed = true;
    glp_ios_heur_sol(tree, i->start);
  }
  glp_ios_tree_size(tree, &active, &all, &total);
  i->result->nodes = total;
  int best = glp_ios_best_node(tree);
  if (best > 0) i->result->lower = fmax(i->result->lower, glp_ios_node_bound(tree, best));
  i->look(i->ctx, total);
  int64_t steps = glp_get_it_cnt(i->glp) + (int64_t)total * (glp_get_num_rows(i->glp) / 4);
  if (steps > i->most_steps) glp_ios_terminate(tree);
}

void copse_integer_solve(struct copse_integer *i, const double *start, int64_t work,
                         void (*look)(void *ctx, int64_t nodes), void *ctx,
                         struct copse_integer_result *result) {
  glp_iocp cut;
  *result = (struct copse_integer_result){0};
  i->most_steps = work / (glp_get_num_nz(i->glp) + 1);
  i->look = look;
  i->ctx = ctx;
  i->result = result;
  for (int j = 0; j < glp_get_num_cols(i->glp); j++) i->start[j + 1] = start[j];
  glp_adv_basis(i->glp, 0);
  if (!run_simplex(i->glp, GLP_DUALP, (int)copse_smaller(i->most_steps, COPSE_LP_INTEGER_STEPS)))
    return;
  result->relaxed = true;
  glp_init_iocp(&cut);
  cut.msg_lev = GLP_MSG_OFF;
  cut.cb_func = follow;
  cut.cb_info = i;
  cut.gmi_cuts = cut.mir_cuts = GLP_ON;
  result->lower = glp_get_obj_val(i->glp);
  int code = glp_intopt(i->glp, &cut), status = glp_mip_status(i->glp);
  result->found = status == GLP_OPT || status == GLP_FEAS;
  result->optimal = code == 0 && status == GLP_OPT;
}

bool copse_integer_is_one(const struct copse_integer *i, int column) {
  return glp_mip_col_val(i->glp, column + 1) > 0.5;
}
