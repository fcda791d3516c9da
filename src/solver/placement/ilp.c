/*
 * Branch and cut by GLPK, for small problems: the rows of place_bound.c with x whole.
 *
 *   minimise sum t[kind][s]   over x[e][r] in {0, 1}, t
 *   expert e:  sum_r x[e][r] = 1            rank r:  sum_e x[e][r] <= capacity
 *   t[kind][s] >= every in row, out row, expert row
 *
 * Work is limited by nodes, so that the result doesn't depend on the clock; the time limit
 * is a second one on top.
 */
#include <glpk.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "solver/placement/internal.h"
#include "solver/placement/policy.h"

struct ilp {
  const struct copse_place_model *m;
  const int64_t *implied;
  glp_prob *lp;
  int *index;
  double *value;
  double unit;      /* a time that counts as 1 */
  double *solution; /* [columns + 1] the placement to begin with, as column values */
  bool handed;
  struct copse_arena scratch;
  double lower; /* in units: no placement is faster */
  int64_t nodes, max_nodes;
};

static int x_column(const struct ilp *i, size_t e, size_t r) {
  return 1 + (int)(e * i->m->n_ranks + r);
}
static int t_column(const struct ilp *i, int kind, size_t s) {
  return 1 + (int)(i->m->n_experts * i->m->n_ranks + (size_t)kind * i->m->n_steps + s);
}

static void add_columns(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  int n_x = (int)(m->n_experts * m->n_ranks), n_t = m->n_kinds * (int)m->n_steps;
  glp_add_cols(i->lp, n_x + n_t);
  for (int j = 1; j <= n_x; j++) glp_set_col_kind(i->lp, j, GLP_BV);
  for (int j = n_x + 1; j <= n_x + n_t; j++) {
    glp_set_col_bnds(i->lp, j, GLP_LO, 0, 0);
    glp_set_obj_coef(i->lp, j, m->multiplicity);
  }
}

static void add_row(struct ilp *i, int n, int type, double bound) {
  int r = glp_add_rows(i->lp, 1);
  glp_set_row_bnds(i->lp, r, type, bound, bound);
  glp_set_mat_row(i->lp, r, n, i->index, i->value);
}

static void put(struct ilp *i, int *n, int column, double value) {
  if (value == 0) return;
  i->index[++*n] = column;
  i->value[*n] = value;
}

static void add_assignment(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  for (size_t e = 0; e < m->n_experts; e++) {
    int n = 0;
    for (size_t r = 0; r < m->n_ranks; r++) put(i, &n, x_column(i, e, r), 1);
    add_row(i, n, GLP_FX, 1);
  }
  for (size_t r = 0; r < m->n_ranks; r++) {
    int n = 0;
    for (size_t e = 0; e < m->n_experts; e++) put(i, &n, x_column(i, e, r), 1);
    add_row(i, n, GLP_UP, m->p->capacity);
  }
}

/* t - in_cost * sum x (tokens - sent) >= 0, and t + out_cost * sum x sent >= out_cost * sum. */
static void add_group(struct ilp *i, size_t g, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  double in = (double)copse_place_in_cost(m, g, kind) / i->unit;
  double out = (double)copse_place_out_cost(m, g, kind) / i->unit;
  for (int way = 0; way < 2; way++) {
    int n = 0;
    put(i, &n, t_column(i, kind, s), 1);
    for (size_t e = 0; e < m->n_experts; e++) {
      double sent = (double)copse_place_sent(m, g, e)[s];
      double each = way ? out * sent : -in * ((double)copse_place_tokens(m, e)[s] - sent);
      for (int k = 0; k < m->p->groups[g].n_members; k++)
        put(i, &n, x_column(i, e, (size_t)m->p->groups[g].members[k]), each);
    }
    add_row(i, n, GLP_LO, way ? out * (double)m->sum[g * m->n_steps + s] : 0);
  }
}

static void add_expert(struct ilp *i, size_t e, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  const int64_t *implied = i->implied + e * m->n_ranks * (size_t)m->n_kinds * m->n_steps;
  int n = 0;
  put(i, &n, t_column(i, kind, s), 1);
  for (size_t r = 0; r < m->n_ranks; r++)
    put(i, &n, x_column(i, e, r),
        -(double)implied[(r * (size_t)m->n_kinds + (size_t)kind) * m->n_steps + s] / i->unit);
  add_row(i, n, GLP_LO, 0);
}

static void build(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  glp_set_obj_dir(i->lp, GLP_MIN);
  add_columns(i);
  add_assignment(i);
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++) {
      for (size_t g = 0; g < m->n_groups; g++) add_group(i, g, kind, s);
      for (size_t e = 0; e < m->n_experts; e++) add_expert(i, e, kind, s);
    }
}

/* The starting placement as a solution of the programme. */
static copse_status describe_start(struct ilp *i, const int *rank_of, struct copse_err *err) {
  const struct copse_place_model *m = i->m;
  int64_t *in = NULL, *out = NULL, *steps = NULL, time;
  size_t cells = m->n_groups * m->n_steps;
  COPSE_DO(copse_arena_array(&i->scratch, cells, sizeof *in, &in, err));
  COPSE_DO(copse_arena_array(&i->scratch, cells, sizeof *out, &out, err));
  COPSE_DO(
      copse_arena_array(&i->scratch, (size_t)m->n_kinds * m->n_steps, sizeof *steps, &steps, err));
  COPSE_DO(copse_arena_array(&i->scratch, (size_t)glp_get_num_cols(i->lp) + 1, sizeof(double),
                             &i->solution, err));
  copse_place_loads(m, rank_of, in, out, steps, &time);
  for (size_t e = 0; e < m->n_experts; e++) i->solution[x_column(i, e, (size_t)rank_of[e])] = 1;
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++)
      i->solution[t_column(i, kind, s)] = (double)steps[(size_t)kind * m->n_steps + s] / i->unit;
  return COPSE_OK;
}

/* GLPK tells where it is: hand it the start, note the bound, stop when it has had enough. */
static void follow(glp_tree *tree, void *info) {
  struct ilp *i = info;
  int active, all, total;
  if (glp_ios_reason(tree) == GLP_IHEUR && !i->handed) {
    i->handed = true;
    glp_ios_heur_sol(tree, i->solution);
  }
  glp_ios_tree_size(tree, &active, &all, &total);
  i->nodes = total;
  int best = glp_ios_best_node(tree);
  if (best > 0) {
    double lower = glp_ios_node_bound(tree, best);
    if (lower > i->lower) i->lower = lower;
  }
  copse_progress_report(i->m->p->progress, "ilp", total, i->max_nodes);
  if (total > i->max_nodes || copse_place_late(i->m)) glp_ios_terminate(tree);
}

/* Takes over GLPK's placement where, counted exactly, it is better. */
static copse_status take(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  const struct copse_place_model *m = i->m;
  int *rank_of = NULL;
  int64_t time = 0;
  COPSE_DO(copse_arena_array(&i->scratch, m->n_experts, sizeof *rank_of, &rank_of, err));
  for (size_t e = 0; e < m->n_experts; e++) {
    rank_of[e] = -1;
    for (size_t r = 0; r < m->n_ranks; r++)
      if (glp_mip_col_val(i->lp, x_column(i, e, r)) > 0.5) rank_of[e] = (int)r;
  }
  /* refuses what isn't a placement, which rounding could only make of a broken solution */
  COPSE_DO(copse_place_time(m->p, rank_of, &time, NULL, err));
  if (time < best->time) {
    best->time = time;
    memcpy(best->rank_of, rank_of, m->n_experts * sizeof *rank_of);
  }
  return COPSE_OK;
}

/* The relaxation, then branch and cut; a GLPK that gives up leaves things as they are. */
static copse_status run(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  glp_smcp simplex;
  glp_iocp cut;
  glp_init_smcp(&simplex);
  simplex.msg_lev = GLP_MSG_OFF;
  simplex.meth = GLP_DUALP;
  simplex.it_lim = MAX_SIMPLEX_STEPS;
  if (i->m->deadline > 0) {
    double left = 1000 * (i->m->deadline - copse_clock_seconds());
    simplex.tm_lim = left < 1 ? 1 : left < INT_MAX ? (int)left : INT_MAX;
  }
  glp_adv_basis(i->lp, 0);
  if (glp_simplex(i->lp, &simplex) != 0 || glp_get_status(i->lp) != GLP_OPT) return COPSE_OK;
  glp_init_iocp(&cut);
  cut.msg_lev = GLP_MSG_OFF;
  cut.tm_lim = simplex.tm_lim;
  cut.cb_func = follow;
  cut.cb_info = i;
  cut.gmi_cuts = cut.mir_cuts = GLP_ON;
  i->lower = glp_get_obj_val(i->lp);
  int code = glp_intopt(i->lp, &cut);
  int status = glp_mip_status(i->lp);
  best->nodes = i->nodes > 0 ? i->nodes : 1;
  if (status == GLP_OPT || status == GLP_FEAS) {
    copse_status taken = take(i, best, err);
    if (taken != COPSE_OK) return taken;
  }
  if (code == 0 && status == GLP_OPT) {
    best->proof = COPSE_PLACE_ILP;
    best->bound = best->time;
  } else if (i->lower > 0) {
    int64_t bound = (int64_t)(i->lower * (1 - TRUST) * i->unit);
    if (bound > best->bound) best->bound = bound < best->time ? bound : best->time;
  }
  return COPSE_OK;
}

/* How many entries the programme has at most; above MAX_NONZEROS it isn't built. */
static int64_t count_entries(const struct copse_place_model *m) {
  int64_t members = 0, pairs = (int64_t)(m->n_experts * m->n_ranks);
  for (size_t g = 0; g < m->n_groups; g++) members += m->p->groups[g].n_members;
  return 2 * pairs +
         (int64_t)m->n_steps * m->n_kinds * (2 * members * (int64_t)m->n_experts + pairs);
}

copse_status copse_place_ilp(const struct copse_place_model *m, const int64_t *implied,
                             struct copse_placement *best, struct copse_err *err) {
  struct ilp i = {.m = m, .implied = implied};
  int64_t entries = count_entries(m);
  size_t columns = m->n_experts * m->n_ranks + (size_t)m->n_kinds * m->n_steps;
  copse_status status;
  if (m->n_experts * m->n_ranks > MAX_BINARIES || entries > MAX_NONZEROS) return COPSE_OK;
  i.max_nodes = (int64_t)(ILP_WORK / (double)(entries * 20));
  if (i.max_nodes > MAX_NODES) i.max_nodes = MAX_NODES;
  COPSE_TRY(copse_arena_array(&i.scratch, columns + 2, sizeof(int), &i.index, err));
  COPSE_TRY(copse_arena_array(&i.scratch, columns + 2, sizeof(double), &i.value, err));
  /* one step's share of the time found is 1: coefficients near 1 whatever the units */
  i.unit = best->time > 0 ? (double)best->time / (double)m->n_steps : 1;
  glp_term_out(GLP_OFF);
  i.lp = glp_create_prob();
  build(&i);
  COPSE_TRY(describe_start(&i, best->rank_of, err));
  status = run(&i, best, err);
out:
  if (i.lp) glp_delete_prob(i.lp);
  copse_arena_free(&i.scratch);
  return status;
}
