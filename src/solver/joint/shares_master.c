/*
 * The programme on GLPK. Shares and capacities are divided by the largest capacity, so that all
 * numbers are near 1.
 */
#include <glpk.h>
#include <math.h>
#include <stdlib.h>

#include "solver/joint/shares_internal.h"

/* Units of the rounded solution per largest capacity: fine, and far from 61 bits in sums. */
#define UNITS 1099511627776.0 /* 2^40 */
#define ROUNDING 1e-9

struct copse_shares_master {
  glp_prob *lp;
  int *index;
  double *value;
  double largest; /* capacity */
};

static int n_columns(const struct copse_shares_search *s) {
  return s->network->n_terminals + s->network->n_links;
}

copse_status copse_shares_master_new(const struct copse_shares_search *s,
                                     struct copse_shares_master **out, struct copse_err *err) {
  struct copse_shares_master *m = NULL;
  const struct copse_network *network = s->network;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *m, &m, err));
  COPSE_TRY(copse_calloc((size_t)n_columns(s) + 1, sizeof *m->index, &m->index, err));
  COPSE_TRY(copse_calloc((size_t)n_columns(s) + 1, sizeof *m->value, &m->value, err));
  glp_term_out(GLP_OFF);
  m->lp = glp_create_prob();
  glp_set_obj_dir(m->lp, GLP_MAX);
  glp_add_cols(m->lp, n_columns(s));
  m->largest = 1;
  for (int e = 0; e < network->n_links; e++)
    m->largest = fmax(m->largest, (double)network->links[e].capacity);
  for (int i = 0; i < network->n_terminals; i++) {
    glp_set_col_bnds(m->lp, i + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(m->lp, i + 1, 1);
  }
  for (int e = 0; e < network->n_links; e++)
    glp_set_col_bnds(m->lp, network->n_terminals + e + 1, GLP_DB, 0,
                     (double)network->links[e].capacity / m->largest);
  *out = m;
  return COPSE_OK;
out:
  copse_shares_master_free(m);
  return status;
}

void copse_shares_master_free(struct copse_shares_master *m) {
  if (!m) return;
  if (m->lp) glp_delete_prob(m->lp);
  free(m->index);
  free(m->value);
  free(m);
}

static copse_status add_row(struct copse_shares_master *m, const struct copse_shares_search *s,
                            int row, struct copse_err *err) {
  int n = 0, index;
  int64_t right;
  copse_status status = copse_shares_right_side(s, row, &right, err);
  if (status != COPSE_OK) return status;
  for (int j = 0; j < n_columns(s); j++) {
    int coefficient = copse_shares_coefficient(s, row, j);
    if (coefficient == 0) continue;
    m->index[++n] = j + 1;
    m->value[n] = coefficient;
  }
  index = glp_add_rows(m->lp, 1);
  glp_set_mat_row(m->lp, index, n, m->index, m->value);
  glp_set_row_bnds(m->lp, index, row < s->n_relays ? GLP_FX : GLP_UP, (double)right / m->largest,
                   (double)right / m->largest);
  return COPSE_OK;
}

copse_status copse_shares_master_add(struct copse_shares_master *m,
                                     const struct copse_shares_search *s, size_t first,
                                     struct copse_err *err) {
  copse_status status = COPSE_OK;
  int rows = s->n_relays + (int)s->n_rows;
  for (int row = glp_get_num_rows(m->lp); row < s->n_relays; row++)
    COPSE_TRY(add_row(m, s, row, err));
  for (int row = s->n_relays + (int)first; row < rows; row++) COPSE_TRY(add_row(m, s, row, err));
out:
  return status;
}

static bool run_simplex(struct copse_shares_master *m, int method) {
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.meth = method;
  parameters.tol_bnd = parameters.tol_dj = 1e-10;
  parameters.it_lim = glp_get_it_cnt(m->lp) + 20000;
  return glp_simplex(m->lp, &parameters) == 0 && glp_get_status(m->lp) == GLP_OPT;
}

bool copse_shares_master_solve(struct copse_shares_master *m, struct copse_shares_search *s) {
  const struct copse_network *network = s->network;
  if (!run_simplex(m, GLP_DUALP)) { /* new rows leave the basis dual feasible */
    glp_std_basis(m->lp);           /* a numerically bad basis: once more from a fresh one */
    if (!run_simplex(m, GLP_PRIMAL)) return false;
  }
  for (int i = 0; i < network->n_terminals; i++)
    s->x[i] = llround(fmax(0, glp_get_col_prim(m->lp, i + 1)) * UNITS);
  for (int e = 0; e < network->n_links; e++) {
    double a = glp_get_col_prim(m->lp, network->n_terminals + e + 1);
    s->b[e] = llround((double)network->links[e].capacity / m->largest * UNITS);
    s->a[e] = llround(fmax(0, a) * UNITS);
    if (s->a[e] > s->b[e]) s->a[e] = s->b[e];
  }
  return true;
}

bool copse_shares_master_above(const struct copse_shares_master *m, struct copse_q rate) {
  return glp_get_obj_val(m->lp) * m->largest > copse_q_to_double(rate) * (1 + ROUNDING);
}

bool copse_shares_master_reaches(const struct copse_shares_master *m, struct copse_q rate) {
  return glp_get_obj_val(m->lp) * m->largest >= copse_q_to_double(rate) * (1 - ROUNDING);
}

void copse_shares_master_cap(struct copse_shares_master *m, const struct copse_shares_search *s) {
  for (int i = 0; i < s->network->n_terminals; i++)
    glp_set_col_bnds(m->lp, i + 1, GLP_DB, 0, copse_q_to_double(s->cap) / m->largest);
}

enum copse_shares_state copse_shares_master_column(const struct copse_shares_master *m,
                                                   int column) {
  switch (glp_get_col_stat(m->lp, column + 1)) {
    case GLP_BS: return COPSE_SHARES_BASIC;
    case GLP_NU: return COPSE_SHARES_AT_UPPER;
    default: return COPSE_SHARES_AT_LOWER;
  }
}

bool copse_shares_master_row_tight(const struct copse_shares_master *m, int row) {
  return glp_get_row_stat(m->lp, row + 1) != GLP_BS;
}
