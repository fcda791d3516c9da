/*
 * GLPK's simplex method, and its last basis worked out in rationals: the tight rows on the basic
 * columns give the solution, the transposed system the multipliers. Both are then tested against
 * all rows and columns, so that nothing rests on floating point.
 */
#include "solver/lp/linear_programme.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/lp/equations.h"
#include "solver/lp/policy.h"

struct row {
  struct copse_lp_term *terms;
  int n;
  int64_t right;
  bool exactly;
};

struct copse_lp {
  glp_prob *glp;
  int n_columns;
  int64_t *objective;    /* [n_columns] */
  struct copse_q *upper; /* [n_columns] 0/1: none */
  struct row *rows;
  size_t n_rows, rows_capacity;
  double unit;
  bool gains_changed; /* since the last solution: its basis may still be feasible, not optimal */
  bool prefers_dual;
  int *index; /* [n_columns + 1] for handing rows to GLPK */
  double *value;
  struct copse_arena arena; /* the arrays above but `rows`, and the rows' terms */
};

copse_status copse_lp_new(int n_columns, int64_t unit, bool prefers_dual, struct copse_lp **out,
                          struct copse_err *err) {
  size_t n = (size_t)n_columns;
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
  glp_term_out(GLP_OFF);
  lp->glp = glp_create_prob();
  glp_set_obj_dir(lp->glp, GLP_MAX);
  glp_add_cols(lp->glp, n_columns);
  for (int j = 1; j <= n_columns; j++) glp_set_col_bnds(lp->glp, j, GLP_LO, 0, 0);
  return COPSE_OK;
}

void copse_lp_free(struct copse_lp *lp) {
  if (!lp) return;
  if (lp->glp) glp_delete_prob(lp->glp);
  free(lp->rows);
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

copse_status copse_lp_add_row(struct copse_lp *lp, const struct copse_lp_term *terms, int n,
                              int64_t right, bool exactly, struct copse_err *err) {
  struct row row = {.n = n, .right = right, .exactly = exactly};
  COPSE_DO(COPSE_ARRAY(&lp->arena, (size_t)n, row.terms, err));
  COPSE_DO(copse_grow(&lp->rows, &lp->rows_capacity, lp->n_rows + 1, sizeof *lp->rows, err));
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

int copse_lp_rows(const struct copse_lp *lp) { return (int)lp->n_rows; }

static bool run_simplex(struct copse_lp *lp, int method) {
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.meth = method;
  parameters.tol_bnd = parameters.tol_dj = COPSE_LP_TOLERANCE;
  parameters.it_lim = glp_get_it_cnt(lp->glp) + COPSE_LP_STEPS;
  return glp_simplex(lp->glp, &parameters) == 0 && glp_get_status(lp->glp) == GLP_OPT;
}

bool copse_lp_solve(struct copse_lp *lp) {
  /* new rows leave the basis dual feasible */
  int method = lp->gains_changed && !lp->prefers_dual ? GLP_PRIMAL : GLP_DUALP;
  lp->gains_changed = false;
  if (run_simplex(lp, method)) return true;
  glp_std_basis(lp->glp); /* a numerically bad basis: once more from a fresh one */
  return run_simplex(lp, GLP_PRIMAL);
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
  struct copse_coefficient *all;
  size_t n = 0;
  for (int i = 0; i < b->n; i++) n += (size_t)b->lp->rows[b->rows[i]].n;
  COPSE_DO(COPSE_ARRAY(&scratch, n, all, err));
  n = 0;
  for (int i = 0; i < b->n; i++) {
    const struct row *row = &b->lp->rows[b->rows[i]];
    for (int k = 0; k < row->n; k++) {
      int j = b->place[row->terms[k].column];
      if (j < 0) continue;
      all[n++] =
          (struct copse_coefficient){transposed ? j : i, transposed ? i : j, row->terms[k].value};
    }
  }
  return copse_equations_solve(b->n, all, n, values, regular, err);
}

static bool at_upper(const struct copse_lp *lp, int column) {
  return glp_get_col_stat(lp->glp, column + 1) == GLP_NU;
}

/* A row's right hand side less what columns at their upper bound take of it. */
static void right_side(const struct copse_lp *lp, const struct row *row, mpq_t *solution,
                       mpq_t value) {
  mpq_t q;
  mpq_init(q);
  mpq_set_si(value, row->right, 1);
  for (int k = 0; k < row->n; k++) {
    int j = row->terms[k].column;
    if (!at_upper(lp, j)) continue;
    mpq_set_si(q, row->terms[k].value, 1);
    mpq_mul(q, q, solution[j]);
    mpq_sub(value, value, q);
  }
  mpq_clear(q);
}

static void set_rational(mpq_t to, struct copse_q from) {
  mpq_set_si(to, from.num, (unsigned long)from.den);
}

/* Columns that are not basic stand at 0 or at their upper bound. */
static copse_status solve_primal(const struct basis *b, mpq_t *solution, bool *regular,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_rationals_free) mpq_t *values = NULL;
  COPSE_DO(copse_rationals_new((size_t)b->n, &values, err));
  for (int j = 0; j < b->lp->n_columns; j++)
    set_rational(solution[j], at_upper(b->lp, j) ? b->lp->upper[j] : COPSE_Q_ZERO);
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
  mpq_t sum, q;
  bool good = true;
  mpq_inits(sum, q, NULL);
  for (int j = 0; j < lp->n_columns && good; j++) {
    set_rational(q, lp->upper[j]);
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
  mpq_clears(sum, q, NULL);
  return good;
}

/* gains [columns] are zeros, for use. No column's gain is left but of those with an upper bound,
 * and right hand sides times multipliers with upper bounds times gains come to the objective. */
static bool multipliers_hold(const struct copse_lp *lp, mpq_t *multipliers, mpq_t *solution,
                             mpq_t *gains) {
  mpq_t bound, value, q;
  bool good = true;
  mpq_inits(bound, value, q, NULL);
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
      set_rational(q, lp->upper[j]);
      mpq_mul(q, q, gains[j]);
      mpq_add(bound, bound, q);
    }
    mpq_set_si(q, lp->objective[j], 1);
    mpq_mul(q, q, solution[j]);
    mpq_add(value, value, q);
  }
  good = good && mpq_equal(bound, value);
  mpq_clears(bound, value, q, NULL);
  return good;
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
