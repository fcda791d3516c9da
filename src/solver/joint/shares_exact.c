/*
 * The optimal basis in rationals. The tight rows on the basic columns give the solution, the
 * transposed system the multipliers; both are then tested, so that nothing rests on GLPK.
 */
#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "solver/lp/equations.h"
#include "solver/network/flow.h"
#include "solver/joint/shares_internal.h"

#define MAX_EQUATIONS 1000

/* ---- the basis ------------------------------------------------------------------------- */

struct basis {
  const struct copse_shares_search *s;
  struct copse_shares *out;
  int n;
  int *rows, *columns; /* [n] tight rows, basic columns */
  int n_columns;       /* all */
  mpq_t *solution;     /* [n_columns] */
  mpq_t *multipliers;  /* [all rows] */
  mpq_t rate;
  bool good;
};

static copse_status list_basis(struct basis *b, struct copse_err *err) {
  const struct copse_shares_search *s = b->s;
  int rows = s->n_relays + (int)s->n_rows, n_rows = 0;
  copse_status status;
  b->n_columns = s->network->n_terminals + s->network->n_links;
  b->solution = copse_rationals_new((size_t)b->n_columns);
  b->multipliers = copse_rationals_new((size_t)rows);
  if (!b->solution || !b->multipliers) return copse_fail_nomem(err);
  COPSE_TRY(copse_calloc((size_t)rows, sizeof(int), &b->rows, err));
  COPSE_TRY(copse_calloc((size_t)b->n_columns, sizeof(int), &b->columns, err));
  for (int i = 0; i < rows; i++)
    if (copse_shares_master_row_tight(s->master, i)) b->rows[n_rows++] = i;
  for (int j = 0; j < b->n_columns; j++)
    if (copse_shares_master_column(s->master, j) == COPSE_SHARES_BASIC) b->columns[b->n++] = j;
  b->good = b->n == n_rows && b->n <= MAX_EQUATIONS;
out:
  return status;
}

static int64_t upper(const struct basis *b, int column) {
  return b->s->network->links[column - b->s->network->n_terminals].capacity;
}

/* The tight rows on the basic columns; transposed for the multipliers. */
static copse_status basis_equations(const struct basis *b, bool transposed,
                                    struct copse_equations **out, struct copse_err *err) {
  struct copse_equations *e = NULL;
  copse_status status;
  COPSE_TRY(copse_equations_new(b->n, &e, err));
  for (int i = 0; i < b->n; i++)
    for (int j = 0; j < b->n; j++) {
      int c = copse_shares_coefficient(b->s, b->rows[i], b->columns[j]);
      if (c == 0) continue;
      COPSE_TRY(copse_equations_set(e, transposed ? j : i, transposed ? i : j, c, err));
    }
  *out = e;
  return COPSE_OK;
out:
  copse_equations_free(e);
  return status;
}

/* The row's right hand side less what the columns that are not basic take of it. */
static copse_status right_side(const struct basis *b, int row, mpq_t value, mpq_t t,
                               struct copse_err *err) {
  int64_t right;
  copse_status status = copse_shares_right_side(b->s, row, &right, err);
  if (status != COPSE_OK) return status;
  mpq_set_si(value, right, 1);
  for (int j = 0; j < b->n_columns; j++) {
    int c = mpq_sgn(b->solution[j]) ? copse_shares_coefficient(b->s, row, j) : 0;
    if (c == 0) continue;
    mpq_set_si(t, c, 1);
    mpq_mul(t, t, b->solution[j]);
    mpq_sub(value, value, t);
  }
  return COPSE_OK;
}

/* Columns that are not basic stand at 0 or at the links' capacity, the terminals' cap. */
static copse_status solve_primal(struct basis *b, struct copse_err *err) {
  struct copse_equations *e = NULL;
  mpq_t *values = copse_rationals_new((size_t)b->n), t;
  copse_status status;
  if (!values) return copse_fail_nomem(err);
  mpq_init(t);
  COPSE_TRY(basis_equations(b, false, &e, err));
  for (int j = 0; j < b->n_columns; j++)
    if (copse_shares_master_column(b->s->master, j) == COPSE_SHARES_AT_UPPER) {
      if (j < b->s->network->n_terminals)
        mpq_set_si(b->solution[j], b->s->cap.num, (unsigned long)b->s->cap.den);
      else
        mpq_set_si(b->solution[j], upper(b, j), 1);
    }
  for (int i = 0; i < b->n; i++) COPSE_TRY(right_side(b, b->rows[i], values[i], t, err));
  COPSE_TRY(copse_equations_solve(e, values, &b->good, err));
  for (int j = 0; j < b->n && b->good; j++) mpq_set(b->solution[b->columns[j]], values[j]);
out:
  mpq_clear(t);
  copse_equations_free(e);
  copse_rationals_free(values, (size_t)b->n);
  return status;
}

static copse_status solve_dual(struct basis *b, struct copse_err *err) {
  struct copse_equations *e = NULL;
  mpq_t *values = copse_rationals_new((size_t)b->n);
  copse_status status;
  if (!values) return copse_fail_nomem(err);
  COPSE_TRY(basis_equations(b, true, &e, err));
  for (int j = 0; j < b->n; j++)
    mpq_set_ui(values[j], b->columns[j] < b->s->network->n_terminals, 1);
  COPSE_TRY(copse_equations_solve(e, values, &b->good, err));
  for (int i = 0; i < b->n && b->good; i++) mpq_set(b->multipliers[b->rows[i]], values[i]);
out:
  copse_equations_free(e);
  copse_rationals_free(values, (size_t)b->n);
  return status;
}

/* ---- tests ----------------------------------------------------------------------------- */

/* 0 <= x; 0 <= a <= capacity; relays balanced. The cuts are tested by flows, in shares.c. */
static void test_solution(struct basis *b) {
  const struct copse_network *network = b->s->network;
  mpq_t q;
  mpq_init(q);
  for (int j = 0; j < b->n_columns && b->good; j++) {
    b->good = mpq_sgn(b->solution[j]) >= 0;
    if (j < network->n_terminals)
      mpq_add(b->rate, b->rate, b->solution[j]);
    else
      b->good = b->good && mpq_cmp_si(b->solution[j], upper(b, j), 1) <= 0;
  }
  for (int i = 0; i < b->s->n_relays && b->good; i++) {
    mpq_set_ui(q, 0, 1);
    for (int j = network->n_terminals; j < b->n_columns; j++) {
      int c = copse_shares_coefficient(b->s, i, j);
      if (c > 0) mpq_add(q, q, b->solution[j]);
      if (c < 0) mpq_sub(q, q, b->solution[j]);
    }
    b->good = mpq_sgn(q) == 0;
  }
  mpq_clear(q);
}

/* What the multipliers prove of one link: capacity * max(Z, Y - (p[dst] - p[src])). */
static void add_link(const struct basis *b, int e, mpq_t total, mpq_t y, mpq_t z) {
  const struct copse_shares_search *s = b->s;
  mpq_set_ui(y, 0, 1);
  mpq_set_ui(z, 0, 1);
  for (int i = 0; i < s->n_relays + (int)s->n_rows; i++) {
    int c = copse_shares_coefficient(s, i, s->network->n_terminals + e);
    bool reduces = i >= s->n_relays && s->rows[i - s->n_relays].reduce;
    if (c == 0) continue;
    if (reduces)
      mpq_add(z, z, b->multipliers[i]);
    else if (c < 0)
      mpq_add(y, y, b->multipliers[i]);
    else
      mpq_sub(y, y, b->multipliers[i]);
  }
  if (mpq_cmp(y, z) < 0) mpq_set(y, z);
  mpq_set_si(z, s->network->links[e].capacity, 1);
  mpq_mul(y, y, z);
  mpq_add(total, total, y);
}

/* Weights of cuts >= 0, 1 or more around each terminal, and the bound is the rate. */
static void test_multipliers(struct basis *b) {
  const struct copse_shares_search *s = b->s;
  int rows = s->n_relays + (int)s->n_rows;
  mpq_t total, y, z;
  mpq_inits(total, y, z, NULL);
  for (int i = s->n_relays; i < rows && b->good; i++) b->good = mpq_sgn(b->multipliers[i]) >= 0;
  for (int v = 0; v < s->network->n_terminals && b->good; v++) {
    mpq_set_ui(total, 0, 1);
    for (int i = s->n_relays; i < rows; i++)
      if (copse_shares_coefficient(s, i, v)) mpq_add(total, total, b->multipliers[i]);
    b->good = mpq_cmp_ui(total, 1, 1) >= 0;
  }
  mpq_set_ui(total, 0, 1);
  for (int e = 0; e < s->network->n_links && b->good; e++) add_link(b, e, total, y, z);
  b->good = b->good && mpq_equal(total, b->rate);
  mpq_clears(total, y, z, NULL);
}

/* ---- handing out ----------------------------------------------------------------------- */

static bool to_q(const mpq_t from, struct copse_q *to) {
  if (!mpz_fits_slong_p(mpq_numref(from)) || !mpz_fits_slong_p(mpq_denref(from))) return false;
  *to = (struct copse_q){mpz_get_si(mpq_numref(from)), mpz_get_si(mpq_denref(from))};
  return true;
}

static int64_t common_divisor(const struct copse_shares *out, const struct copse_network *network,
                              int64_t whole) {
  int64_t g = whole;
  for (int i = 0; i < network->n_terminals; i++) g = copse_gcd(g, out->weights[i]);
  for (int e = 0; e < network->n_links; e++)
    g = copse_gcd(copse_gcd(g, out->broadcast[e]), out->reduce[e]);
  return g;
}

/* value * factor, an integer by the choice of the factor; false beyond the flows' range. */
static bool scale(const mpq_t value, const mpz_t factor, mpz_t t, int64_t *out) {
  mpz_divexact(t, factor, mpq_denref(value));
  mpz_mul(t, t, mpq_numref(value));
  if (mpz_sizeinbase(t, 2) > 58) return false; /* sums at a node stay below 61 bits */
  *out = mpz_get_si(t);
  return true;
}

/* The solution times the least common denominator. */
static copse_status set_integers(struct basis *b, struct copse_err *err) {
  const struct copse_network *network = b->s->network;
  struct copse_shares *out = b->out;
  int n = network->n_terminals;
  int64_t *weights = copse_arena_alloc(&out->arena, (size_t)n, sizeof *weights);
  int64_t *links = copse_arena_alloc(&out->arena, 2 * (size_t)network->n_links, sizeof *links);
  int64_t *others = links ? links + network->n_links : NULL;
  mpz_t factor, t;
  if (!weights || !links) return copse_fail_nomem(err);
  mpz_init_set_ui(factor, 1);
  mpz_init(t);
  for (int j = 0; j < b->n_columns; j++) mpz_lcm(factor, factor, mpq_denref(b->solution[j]));
  out->whole = 0;
  for (int i = 0; i < n && b->good; i++) {
    b->good = scale(b->solution[i], factor, t, &weights[i]);
    if (b->good) out->whole += weights[i];
  }
  for (int e = 0; e < network->n_links && b->good; e++) {
    mpz_mul_si(t, factor, network->links[e].capacity);
    b->good = mpz_sizeinbase(t, 2) <= 58;
    others[e] = b->good ? mpz_get_si(t) : 0;
    b->good = b->good && scale(b->solution[n + e], factor, t, &links[e]);
    others[e] -= links[e];
  }
  out->weights = weights;
  out->broadcast = links;
  out->reduce = others;
  int64_t g = b->good ? common_divisor(out, network, out->whole) : 1;
  for (int i = 0; i < n; i++) weights[i] /= g;
  for (int e = 0; e < 2 * network->n_links; e++) links[e] /= g;
  out->whole /= g;
  mpz_clears(factor, t, NULL);
  return COPSE_OK;
}

static copse_status set_proof(struct basis *b, struct copse_err *err) {
  const struct copse_shares_search *s = b->s;
  struct copse_shares *out = b->out;
  size_t nodes = (size_t)s->network->n_nodes;
  struct copse_shares_cut *cuts = copse_arena_alloc(&out->arena, s->n_rows, sizeof *cuts);
  struct copse_q *potentials = copse_arena_alloc(&out->arena, nodes, sizeof *potentials);
  if (!cuts || !potentials) return copse_fail_nomem(err);
  b->good = b->good && to_q(b->rate, &out->rate);
  for (size_t v = 0; v < nodes; v++) potentials[v] = COPSE_Q_ZERO;
  for (int i = 0; i < s->n_relays && b->good; i++)
    b->good = to_q(b->multipliers[i], &potentials[s->relays[i]]);
  out->n_cuts = 0;
  for (size_t i = 0; i < s->n_rows && b->good; i++) {
    mpq_t *weight = &b->multipliers[(size_t)s->n_relays + i];
    struct copse_shares_cut *cut = &cuts[out->n_cuts];
    if (mpq_sgn(*weight) == 0) continue;
    bool *inside = copse_arena_alloc(&out->arena, nodes, sizeof *inside);
    if (!inside) return copse_fail_nomem(err);
    memcpy(inside, s->rows[i].inside, nodes * sizeof *inside);
    cut->reduce = s->rows[i].reduce;
    cut->inside = inside;
    b->good = to_q(*weight, &cut->weight);
    out->n_cuts++;
  }
  out->cuts = cuts;
  out->potentials = potentials;
  return COPSE_OK;
}

/* Whether the rate is the one that is there already. */
static void test_rate(struct basis *b) {
  mpq_t known;
  mpq_init(known);
  mpq_set_si(known, b->out->rate.num, (unsigned long)b->out->rate.den);
  b->good = mpq_equal(known, b->rate);
  mpq_clear(known);
}

copse_status copse_shares_exact(const struct copse_shares_search *s, struct copse_shares *out,
                                bool *found, struct copse_err *err) {
  struct basis b = {.s = s, .out = out};
  copse_status status;
  mpq_init(b.rate);
  COPSE_TRY(list_basis(&b, err));
  if (b.good) COPSE_TRY(solve_primal(&b, err));
  bool capped = s->cap.num > 0;
  if (b.good && !capped) COPSE_TRY(solve_dual(&b, err));
  if (b.good) test_solution(&b);
  if (b.good && !capped) test_multipliers(&b);
  if (b.good && capped) test_rate(&b);
  if (b.good) COPSE_TRY(set_integers(&b, err));
  if (b.good && !capped) COPSE_TRY(set_proof(&b, err));
out:
  *found = status == COPSE_OK && b.good;
  copse_rationals_free(b.solution, (size_t)b.n_columns);
  copse_rationals_free(b.multipliers, (size_t)s->n_relays + s->n_rows);
  mpq_clear(b.rate);
  free(b.rows);
  free(b.columns);
  return status;
}
