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
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "solver/lp/integer.h"
#include "solver/placement/internal.h"
#include "solver/placement/policy.h"

struct ilp {
  const struct copse_place_model *m;
  const int64_t *implied;
  struct copse_integer *lp;
  double unit;      /* a time that counts as 1 */
  double *solution; /* [columns] the placement to begin with, as column values */
  int64_t max_nodes;
  struct copse_arena scratch;
};

static int x_column(const struct ilp *i, size_t e, size_t r) {
  return (int)(e * i->m->n_ranks + r);
}
static int t_column(const struct ilp *i, int kind, size_t s) {
  return (int)(i->m->n_experts * i->m->n_ranks + (size_t)kind * i->m->n_steps + s);
}

static void add_assignment(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  for (size_t e = 0; e < m->n_experts; e++) {
    for (size_t r = 0; r < m->n_ranks; r++) copse_integer_put(i->lp, x_column(i, e, r), 1);
    copse_integer_add_row(i->lp, COPSE_EXACTLY, 1);
  }
  for (size_t r = 0; r < m->n_ranks; r++) {
    for (size_t e = 0; e < m->n_experts; e++) copse_integer_put(i->lp, x_column(i, e, r), 1);
    copse_integer_add_row(i->lp, COPSE_AT_MOST, m->p->capacity);
  }
}

/* t - in_cost * sum x (tokens - sent) >= 0, and t + out_cost * sum x sent >= out_cost * sum. */
static void add_group(struct ilp *i, size_t g, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  double in = (double)copse_place_in_cost(m, g, kind) / i->unit;
  double out = (double)copse_place_out_cost(m, g, kind) / i->unit;
  for (int way = 0; way < 2; way++) {
    copse_integer_put(i->lp, t_column(i, kind, s), 1);
    for (size_t e = 0; e < m->n_experts; e++) {
      double sent = (double)copse_place_sent(m, g, e)[s];
      double each = way ? out * sent : -in * ((double)copse_place_tokens(m, e)[s] - sent);
      for (int k = 0; k < m->p->groups[g].n_members; k++)
        copse_integer_put(i->lp, x_column(i, e, (size_t)m->p->groups[g].members[k]), each);
    }
    copse_integer_add_row(i->lp, COPSE_AT_LEAST,
                          way ? out * (double)m->sum[g * m->n_steps + s] : 0);
  }
}

static void add_expert(struct ilp *i, size_t e, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  const int64_t *implied = i->implied + e * m->n_ranks * (size_t)m->n_kinds * m->n_steps;
  copse_integer_put(i->lp, t_column(i, kind, s), 1);
  for (size_t r = 0; r < m->n_ranks; r++)
    copse_integer_put(
        i->lp, x_column(i, e, r),
        -(double)implied[(r * (size_t)m->n_kinds + (size_t)kind) * m->n_steps + s] / i->unit);
  copse_integer_add_row(i->lp, COPSE_AT_LEAST, 0);
}

static void build(struct ilp *i) {
  const struct copse_place_model *m = i->m;
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
  COPSE_DO(COPSE_ARRAYS(&i->scratch, cells, int64_t, err, &in, &out));
  COPSE_DO(COPSE_ARRAY(&i->scratch, (size_t)m->n_kinds * m->n_steps, steps, err));
  COPSE_DO(COPSE_ARRAY(&i->scratch, m->n_experts * m->n_ranks + (size_t)m->n_kinds * m->n_steps,
                       i->solution, err));
  copse_place_loads(m, rank_of, in, out, steps, &time);
  for (size_t e = 0; e < m->n_experts; e++) i->solution[x_column(i, e, (size_t)rank_of[e])] = 1;
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++)
      i->solution[t_column(i, kind, s)] = (double)steps[(size_t)kind * m->n_steps + s] / i->unit;
  return COPSE_OK;
}

static bool stop(void *ctx, int64_t nodes) {
  const struct ilp *i = ctx;
  copse_progress_report(i->m->p->progress, "ilp", nodes, i->max_nodes);
  return nodes > i->max_nodes || copse_place_late(i->m);
}

/* Takes over GLPK's placement where, counted exactly, it is better. */
static copse_status take(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  const struct copse_place_model *m = i->m;
  int *rank_of = NULL;
  int64_t time = 0;
  COPSE_DO(COPSE_ARRAY(&i->scratch, m->n_experts, rank_of, err));
  for (size_t e = 0; e < m->n_experts; e++) {
    rank_of[e] = -1;
    for (size_t r = 0; r < m->n_ranks; r++)
      if (copse_integer_is_one(i->lp, x_column(i, e, r))) rank_of[e] = (int)r;
  }
  /* refuses what isn't a placement, which rounding could only make of a broken solution */
  COPSE_DO(copse_place_time(m->p, rank_of, &time, NULL, err));
  if (time < best->time) {
    best->time = time;
    memcpy(best->rank_of, rank_of, m->n_experts * sizeof *rank_of);
  }
  return COPSE_OK;
}

/* A GLPK that gives up leaves things as they are. */
static copse_status run(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  struct copse_integer_options options = {.start = i->solution, .stop = stop, .ctx = i};
  struct copse_integer_result result;
  if (i->m->deadline > 0) {
    double left = i->m->deadline - copse_clock_seconds();
    options.seconds = left > 1e-3 ? left : 1e-3;
  }
  copse_integer_solve(i->lp, &options, &result);
  if (!result.relaxed) return COPSE_OK;
  best->nodes = result.nodes > 0 ? result.nodes : 1;
  if (result.found) COPSE_DO(take(i, best, err));
  if (result.optimal) {
    best->proof = COPSE_PLACE_ILP;
    best->bound = best->time;
  } else if (result.lower > 0) {
    int64_t bound = (int64_t)(result.lower * (1 - TRUST) * i->unit);
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

static void release(struct ilp *i) {
  copse_integer_free(i->lp);
  copse_arena_free(&i->scratch);
}

copse_status copse_place_ilp(const struct copse_place_model *m, const int64_t *implied,
                             struct copse_placement *best, struct copse_err *err) {
  COPSE_AT_END(release) struct ilp i = {.m = m, .implied = implied};
  int64_t entries = count_entries(m);
  if (m->n_experts * m->n_ranks > MAX_BINARIES || entries > MAX_NONZEROS) return COPSE_OK;
  i.max_nodes = (int64_t)(ILP_WORK / (double)(entries * 20));
  if (i.max_nodes > MAX_NODES) i.max_nodes = MAX_NODES;
  /* one step's share of the time found is 1: coefficients near 1 whatever the units */
  i.unit = best->time > 0 ? (double)best->time / (double)m->n_steps : 1;
  COPSE_DO(copse_integer_new((int)(m->n_experts * m->n_ranks), m->n_kinds * (int)m->n_steps,
                             m->multiplicity, &i.lp, err));
  build(&i);
  COPSE_DO(describe_start(&i, best->rank_of, err));
  return run(&i, best, err);
}
