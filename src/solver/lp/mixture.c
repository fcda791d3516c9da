/*
 * The master problem of a Dantzig-Wolfe decomposition (Operations Research 8, 1960) on GLPK: the
 * first column is T, rows come first, then kinds.
 */
#include "solver/lp/mixture.h"

#include <glpk.h>
#include <limits.h>
#include <stdlib.h>

#include "base/memory.h"
#include "solver/policy.h"

struct copse_mixture {
  glp_prob *glp;
  int n_rows, n_kinds;
  bool solved; /* once */
  int *index;
  double *value;
  struct copse_arena arena;
};

copse_status copse_mixture_new(int n_rows, int n_kinds, struct copse_mixture **out,
                               struct copse_err *err) {
  size_t rows = (size_t)n_rows + (size_t)n_kinds;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_mixture *m = *out;
  m->n_rows = n_rows;
  m->n_kinds = n_kinds;
  COPSE_DO(COPSE_ARRAY(&m->arena, rows + 2, m->index, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, rows + 2, m->value, err));
  glp_term_out(GLP_OFF);
  m->glp = glp_create_prob();
  glp_set_obj_dir(m->glp, GLP_MIN);
  glp_add_rows(m->glp, (int)rows);
  for (int o = 0; o < n_rows; o++) glp_set_row_bnds(m->glp, o + 1, GLP_UP, 0, 0);
  for (int b = 0; b < n_kinds; b++) glp_set_row_bnds(m->glp, n_rows + b + 1, GLP_FX, 1, 1);
  glp_add_cols(m->glp, 1);
  glp_set_col_bnds(m->glp, 1, GLP_LO, 0, 0);
  glp_set_obj_coef(m->glp, 1, 1);
  for (int o = 0; o < n_rows; o++) {
    m->index[o + 1] = o + 1;
    m->value[o + 1] = -1;
  }
  glp_set_mat_col(m->glp, 1, n_rows, m->index, m->value);
  return COPSE_OK;
}

void copse_mixture_free(struct copse_mixture *m) {
  if (!m) return;
  if (m->glp) glp_delete_prob(m->glp);
  copse_arena_free(&m->arena);
  free(m);
}

void copse_mixture_add(struct copse_mixture *m, int kind, const struct copse_mixture_load *loads,
                       int n) {
  int j = glp_add_cols(m->glp, 1);
  glp_set_col_bnds(m->glp, j, GLP_LO, 0, 0);
  for (int i = 0; i < n; i++) {
    m->index[i + 1] = loads[i].row + 1;
    m->value[i + 1] = loads[i].load;
  }
  m->index[n + 1] = m->n_rows + kind + 1;
  m->value[n + 1] = 1;
  glp_set_mat_col(m->glp, j, n + 1, m->index, m->value);
}

/* Far more steps than a master of this size takes, unless it cycles in rounding noise. */
static int step_limit(const struct copse_mixture *m) {
  return COPSE_LP_MIXTURE_STEPS + COPSE_LP_MIXTURE_STEPS_PER_ROW * (m->n_rows + m->n_kinds);
}

/* One attempt; false if GLPK gives up or runs into the limit. */
static bool run_simplex(struct copse_mixture *m, int method) {
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.meth = method;
  parameters.tol_bnd = parameters.tol_dj = COPSE_LP_TOLERANCE;
  int taken = glp_get_it_cnt(m->glp);
  parameters.it_lim = taken < INT_MAX - step_limit(m) ? step_limit(m) : INT_MAX;
  parameters.tm_lim = COPSE_LP_MIXTURE_MILLISECONDS;
  return glp_simplex(m->glp, &parameters) == 0 && glp_get_status(m->glp) == GLP_OPT;
}

bool copse_mixture_solve(struct copse_mixture *m) {
  if (!m->solved) glp_adv_basis(m->glp, 0);
  m->solved = true;
  if (run_simplex(m, GLP_PRIMAL)) return true; /* new columns leave the basis primal feasible */
  /* a numerically bad basis: once more from a fresh one, scaled, by the dual simplex */
  glp_scale_prob(m->glp, GLP_SF_AUTO);
  glp_std_basis(m->glp);
  return run_simplex(m, GLP_DUALP);
}

double copse_mixture_most(const struct copse_mixture *m) { return glp_get_col_prim(m->glp, 1); }

double copse_mixture_price(const struct copse_mixture *m, int row) {
  return -glp_get_row_dual(m->glp, row + 1);
}

double copse_mixture_share_price(const struct copse_mixture *m, int kind) {
  return glp_get_row_dual(m->glp, m->n_rows + kind + 1);
}

double copse_mixture_weight(const struct copse_mixture *m, size_t column) {
  return glp_get_col_prim(m->glp, (int)column + 2);
}
