/*
 * The master problem on GLPK: mix the trees of each source so that the most loaded orbit of
 * links takes the least time.
 *
 *   minimise T   over T, weight[c] >= 0
 *   orbit o:     sum_c load[c][o] / capacity[o] * weight[c] - T <= 0     (price: -dual)
 *   source b:    sum_{c of b} weight[c] = 1                              (share price: dual)
 */
#include <glpk.h>
#include <limits.h>
#include <stdlib.h>

#include "solver/alltoall/concurrent_internal.h"

struct copse_master {
  glp_prob *lp;
  int *index;
  double *value;
};

/* Each row in its own capacity, and T near 1, whatever the units and however they differ. */
static double scaled_load(const struct copse_search *s, const struct copse_column_load *load) {
  return (double)load->load / (double)s->orbit_capacity[load->orbit] / s->unit;
}

copse_status copse_master_new(const struct copse_search *s, struct copse_master **out,
                              struct copse_err *err) {
  struct copse_master *m = NULL;
  size_t rows = (size_t)s->n_orbits + (size_t)s->n_bases;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *m, &m, err));
  COPSE_TRY(copse_calloc(rows + 2, sizeof *m->index, &m->index, err));
  COPSE_TRY(copse_calloc(rows + 2, sizeof *m->value, &m->value, err));
  glp_term_out(GLP_OFF);
  m->lp = glp_create_prob();
  glp_set_obj_dir(m->lp, GLP_MIN);
  glp_add_rows(m->lp, (int)rows);
  for (int o = 0; o < s->n_orbits; o++) glp_set_row_bnds(m->lp, o + 1, GLP_UP, 0, 0);
  for (int b = 0; b < s->n_bases; b++) glp_set_row_bnds(m->lp, s->n_orbits + b + 1, GLP_FX, 1, 1);
  glp_add_cols(m->lp, 1);
  glp_set_col_bnds(m->lp, 1, GLP_LO, 0, 0);
  glp_set_obj_coef(m->lp, 1, 1);
  for (int o = 0; o < s->n_orbits; o++) {
    m->index[o + 1] = o + 1;
    m->value[o + 1] = -1;
  }
  glp_set_mat_col(m->lp, 1, s->n_orbits, m->index, m->value);
  *out = m;
  return COPSE_OK;
out:
  copse_master_free(m);
  return status;
}

void copse_master_free(struct copse_master *m) {
  if (!m) return;
  if (m->lp) glp_delete_prob(m->lp);
  free(m->index);
  free(m->value);
  free(m);
}

void copse_master_add(struct copse_master *m, const struct copse_search *s,
                      const struct copse_column *column) {
  int j = glp_add_cols(m->lp, 1), n = 0;
  glp_set_col_bnds(m->lp, j, GLP_LO, 0, 0);
  for (int i = 0; i < column->n_loads; i++) {
    m->index[++n] = column->loads[i].orbit + 1;
    m->value[n] = scaled_load(s, &column->loads[i]);
  }
  m->index[++n] = s->n_orbits + column->base + 1;
  m->value[n] = 1;
  glp_set_mat_col(m->lp, j, n, m->index, m->value);
}

/* Far more steps than a master of this size takes, unless it cycles in rounding noise. */
static int step_limit(const struct copse_search *s) {
  return 20000 + 50 * (s->n_orbits + s->n_bases);
}

/* One attempt; false if GLPK gives up or runs into the limit. */
static bool run_simplex(struct copse_master *m, const struct copse_search *s, int method) {
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.meth = method;
  parameters.tol_bnd = parameters.tol_dj = 1e-10;
  int taken = glp_get_it_cnt(m->lp);
  parameters.it_lim = taken < INT_MAX - step_limit(s) ? step_limit(s) : INT_MAX;
  parameters.tm_lim = 30000;
  return glp_simplex(m->lp, &parameters) == 0 && glp_get_status(m->lp) == GLP_OPT;
}

void copse_master_solve(struct copse_master *m, struct copse_search *s) {
  if (s->n_rounds == 1) glp_adv_basis(m->lp, 0);
  s->stuck = false;
  if (!run_simplex(m, s, GLP_PRIMAL)) { /* new columns leave the basis primal feasible */
    /* a numerically bad basis: once more from a fresh one, scaled, by the dual simplex */
    glp_scale_prob(m->lp, GLP_SF_AUTO);
    glp_std_basis(m->lp);
    if (!run_simplex(m, s, GLP_DUALP)) {
      s->stuck = true; /* what was found so far stands, and its gap is stated */
      return;
    }
  }
  s->time = glp_get_col_prim(m->lp, 1) * s->unit;
  for (int o = 0; o < s->n_orbits; o++) {
    double dual = -glp_get_row_dual(m->lp, o + 1);
    s->price[o] = (dual > 0 ? dual : 0) / (double)s->orbit_capacity[o];
  }
  for (int b = 0; b < s->n_bases; b++)
    s->share_price[b] = glp_get_row_dual(m->lp, s->n_orbits + b + 1) * s->unit;
  for (size_t c = 0; c < s->n_columns; c++)
    s->columns[c].weight = glp_get_col_prim(m->lp, (int)c + 2);
}
