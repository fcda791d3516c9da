/* Branch and cut by GLPK: the relaxation by the dual simplex method, Gomory and rounding cuts. */
#include "solver/lp/integer.h"

#include <glpk.h>
#include <limits.h>
#include <stdlib.h>

#include "base/memory.h"
#include "solver/policy.h"

struct copse_integer {
  glp_prob *glp;
  int n; /* terms of the row being written */
  int *index;
  double *value;
  double *start; /* [columns + 1] */
  bool handed;   /* the start, to GLPK */
  struct copse_arena arena;
  bool (*stop)(void *ctx, int64_t nodes);
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
  glp_term_out(GLP_OFF);
  i->glp = glp_create_prob();
  glp_set_obj_dir(i->glp, GLP_MIN);
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

/* Called between nodes: hands over the start, notes the bound, stops where the caller says so. */
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
  if (best > 0) {
    double lower = glp_ios_node_bound(tree, best);
    if (lower > i->result->lower) i->result->lower = lower;
  }
  if (i->stop(i->ctx, total)) glp_ios_terminate(tree);
}

void copse_integer_solve(struct copse_integer *i, const double *start, double seconds,
                         bool (*stop)(void *ctx, int64_t nodes), void *ctx,
                         struct copse_integer_result *result) {
  glp_smcp simplex;
  glp_iocp cut;
  *result = (struct copse_integer_result){0};
  i->stop = stop;
  i->ctx = ctx;
  i->result = result;
  for (int j = 0; j < glp_get_num_cols(i->glp); j++) i->start[j + 1] = start[j];
  glp_init_smcp(&simplex);
  simplex.msg_lev = GLP_MSG_OFF;
  simplex.meth = GLP_DUALP;
  simplex.it_lim = COPSE_LP_INTEGER_STEPS;
  if (seconds != 0) {
    double left = 1000 * seconds;
    simplex.tm_lim = left < 1 ? 1 : left < INT_MAX ? (int)left : INT_MAX;
  }
  glp_adv_basis(i->glp, 0);
  if (glp_simplex(i->glp, &simplex) != 0 || glp_get_status(i->glp) != GLP_OPT) return;
  result->relaxed = true;
  glp_init_iocp(&cut);
  cut.msg_lev = GLP_MSG_OFF;
  cut.tm_lim = simplex.tm_lim;
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
