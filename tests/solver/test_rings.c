/*
 * Rings of small random instances against all orders there are: the shortest by trying all, the
 * fractional optimum by GLPK over all orders as columns, packings counted again.
 */
#include "solver/rings/rings.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

#define MOST 20 /* GPUs */
#define ROWS 12
#define PORTS 3
#define STEPS (MOST * MOST)

/* An instance and its memory. */
struct random_instance {
  struct copse_ring_instance instance;
  struct copse_q bandwidth[ROWS];
  struct copse_ring_step move[STEPS], enter[PORTS * MOST], leave[PORTS * MOST],
      second[PORTS * MOST];
  struct copse_ring_load loads[3 * STEPS + 9 * PORTS * MOST];
  int n_loads;
};

enum kind { CLOSED, CHAIN, ANY_PORT, SAME_PORT, SECOND, KINDS };

/* Up to three rows, each once; now and then no step at all. */
static void make_step(struct random_instance *r, uint64_t *state, struct copse_ring_step *step,
                      bool may_lack) {
  *step = (struct copse_ring_step){true, 0, r->loads + r->n_loads};
  if (may_lack && copse_test_random_int(state, 0, 9) == 0) step->exists = false;
  int row = copse_test_random_int(state, 0, 3);
  for (int k = 0; k < 3 && row < r->instance.n_rows; k++) {
    r->loads[r->n_loads++] = (struct copse_ring_load){row, copse_test_random_int(state, 1, 3)};
    row += copse_test_random_int(state, 1, 4);
    step->n++;
  }
}

static void make_instance(struct random_instance *r, uint64_t seed, int n, enum kind kind) {
  uint64_t state = seed;
  struct copse_ring_instance *i = &r->instance;
  memset(r, 0, sizeof *r);
  *i = (struct copse_ring_instance){.n_gpus = n,
                                    .n_rows = copse_test_random_int(&state, 4, ROWS),
                                    .bandwidth = r->bandwidth,
                                    .move = r->move,
                                    .closed = kind == CLOSED,
                                    .n_ports = kind >= ANY_PORT ? PORTS : 0,
                                    .same_port = kind == CHAIN || kind >= SAME_PORT};
  for (int k = 0; k < i->n_rows; k++)
    r->bandwidth[k] = (struct copse_q){copse_test_random_int(&state, 1, 40), 1};
  for (int k = 0; k < n * n; k++)
    if (k / n != k % n) make_step(r, &state, &r->move[k], true);
  for (int k = 0; k < i->n_ports * n; k++) {
    make_step(r, &state, &r->enter[k], false);
    make_step(r, &state, &r->leave[k], false);
    make_step(r, &state, &r->second[k], false);
  }
  if (i->n_ports > 0) i->enter = r->enter;
  if (i->n_ports > 0 && kind != SECOND) i->leave = r->leave;
  if (kind == SECOND) i->second = r->second;
}

/* ---- all orders ------------------------------------------------------------------------------ */

struct all {
  const struct copse_ring_instance *instance;
  void (*each)(struct all *all, const struct copse_ring *ring);
  int order[MOST];
  const int64_t *lengths;
  int64_t least;
  glp_prob *lp;
  int count;
};

static bool exists(const struct copse_ring_instance *i, const struct copse_ring *ring) {
  for (int k = 0; k + !i->closed < i->n_gpus; k++)
    if (!i->move[ring->gpus[k] * i->n_gpus + ring->gpus[(k + 1) % i->n_gpus]].exists) return false;
  return true;
}

static void try_ports(struct all *a) {
  const struct copse_ring_instance *i = a->instance;
  struct copse_ring ring = {a->order, {-1, -1}};
  if (!exists(i, &ring)) return;
  for (int in = 0; in < (i->n_ports ? i->n_ports : 1); in++) {
    for (int out = 0; out < (i->n_ports ? i->n_ports : 1); out++) {
      if (i->same_port && in != out) continue;
      if (i->n_ports) ring = (struct copse_ring){a->order, {in, out}};
      a->each(a, &ring);
    }
  }
}

static void permute(struct all *a, int at) {
  if (at == a->instance->n_gpus) {
    try_ports(a);
    return;
  }
  for (int k = at; k < a->instance->n_gpus; k++) {
    int swap = a->order[at];
    a->order[at] = a->order[k];
    a->order[k] = swap;
    permute(a, at + 1);
    a->order[k] = a->order[at];
    a->order[at] = swap;
  }
}

static void visit_all(struct all *a) {
  for (int k = 0; k < a->instance->n_gpus; k++) a->order[k] = k;
  permute(a, a->instance->closed ? 1 : 0);
}

static int64_t length_of(const struct copse_ring_instance *i, const struct copse_ring *ring,
                         const int64_t *lengths) {
  int64_t load[ROWS] = {0}, sum = 0;
  copse_ring_add_load(i, ring, load);
  for (int r = 0; r < i->n_rows; r++) sum += load[r] * lengths[r];
  return sum;
}

static void note_length(struct all *a, const struct copse_ring *ring) {
  int64_t length = length_of(a->instance, ring, a->lengths);
  if (a->count++ == 0 || length < a->least) a->least = length;
}

static void add_column(struct all *a, const struct copse_ring *ring) {
  int64_t load[ROWS] = {0};
  int index[ROWS + 1], n = 0, column = glp_add_cols(a->lp, 1);
  double value[ROWS + 1];
  copse_ring_add_load(a->instance, ring, load);
  for (int r = 0; r < a->instance->n_rows; r++) {
    if (load[r] == 0) continue;
    index[++n] = r + 1;
    value[n] = (double)load[r];
  }
  glp_set_col_bnds(a->lp, column, GLP_LO, 0, 0);
  glp_set_obj_coef(a->lp, column, 1);
  glp_set_mat_col(a->lp, column, n, index, value);
  a->count++;
}

/* The most that all orders together have: the packing programme itself, every order a column. */
static double most_of_all(const struct copse_ring_instance *i) {
  struct all a = {.instance = i, .each = add_column, .lp = glp_create_prob()};
  glp_smcp parameters;
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(a.lp, GLP_MAX);
  glp_add_rows(a.lp, i->n_rows);
  for (int r = 0; r < i->n_rows; r++)
    glp_set_row_bnds(a.lp, r + 1, GLP_UP, 0, copse_q_to_double(i->bandwidth[r]));
  visit_all(&a);
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  parameters.presolve = GLP_ON;
  double most = -1;
  if (a.count > 0 && glp_simplex(a.lp, &parameters) == 0) most = glp_get_obj_val(a.lp);
  glp_delete_prob(a.lp);
  return most;
}

/* ---- claims ---------------------------------------------------------------------------------- */

#define CASES 60

static int gpus_of(int i) { return 2 + i % 5; }

START_TEST(the_shortest_of_all_orders_is_found) {
  enum kind kind = (enum kind)(_i % KINDS);
  struct random_instance r;
  struct copse_arena arena = {0};
  struct copse_ring found[MOST];
  struct copse_err err = COPSE_ERR_INIT;
  int64_t lengths[ROWS], least, steps = 0;
  uint64_t state = (uint64_t)_i;
  int n;
  bool exact;
  make_instance(&r, 1000 + (uint64_t)_i, gpus_of(_i), kind);
  for (int k = 0; k < ROWS; k++) lengths[k] = copse_test_random_int(&state, 0, 100);
  struct all all = {.instance = &r.instance, .each = note_length, .lengths = lengths};
  visit_all(&all);
  ASSERT_OK(
      copse_rings_shortest(&r.instance, lengths, &arena, found, &n, &least, &exact, &steps, &err),
      &err);
  ck_assert(exact);
  ck_assert_int_eq(n > 0, all.count > 0);
  if (n > 0) ck_assert_int_eq(least, all.least);
  if (n > 0) ck_assert_int_eq(length_of(&r.instance, &found[0], lengths), all.least);
  for (int k = 1; k < n; k++)
    ck_assert(length_of(&r.instance, &found[k], lengths) >=
              length_of(&r.instance, &found[k - 1], lengths));
  copse_arena_free(&arena);
}
END_TEST

/* n channels on each row, counted here, fill no row and touch one. */
static void expect_packing(const struct copse_ring_instance *i, const struct copse_ring_set *set,
                           const struct copse_ring_packing *packing, int n) {
  int64_t load[ROWS] = {0};
  bool touches = false;
  struct copse_q all;
  ck_assert_int_eq(packing->n, n);
  for (int c = 0; c < n; c++) copse_ring_add_load(i, &set->rings[packing->channels[c]], load);
  for (int r = 0; r < i->n_rows; r++) {
    struct copse_q used;
    ck_assert(copse_q_mul(packing->speed, (struct copse_q){load[r], 1}, &used, NULL) == COPSE_OK);
    ck_assert(copse_q_cmp(used, i->bandwidth[r]) <= 0);
    touches = touches || copse_q_eq(used, i->bandwidth[r]);
  }
  ck_assert(touches);
  ck_assert(copse_q_mul(packing->speed, (struct copse_q){n, 1}, &all, NULL) == COPSE_OK);
  ck_assert(copse_q_cmp(all, set->bound.GBps) <= 0);
}

START_TEST(the_optimum_is_that_of_all_orders) {
  enum kind kind = (enum kind)(_i % KINDS);
  struct random_instance r;
  struct copse_ring_set set;
  struct copse_ring_packing packings[8];
  struct copse_err err = COPSE_ERR_INIT;
  make_instance(&r, 5000 + (uint64_t)_i, gpus_of(_i), kind);
  double most = most_of_all(&r.instance);
  copse_status status = copse_rings_solve(&r.instance, &set, &err);
  ck_assert_int_eq(status, most < 0 ? COPSE_INFEASIBLE : COPSE_OK);
  if (status == COPSE_OK) {
    double bound = copse_q_to_double(set.bound.GBps);
    ck_assert_msg(fabs(set.GBps - most) <= 1e-6 * most, "%g, not %g", set.GBps, most);
    ck_assert_msg(bound >= most * (1 - 1e-9) && bound <= most * (1 + 1e-5), "bound %g of %g", bound,
                  most);
    ck_assert(set.bound.exact);
    struct all all = {.instance = &r.instance, .each = note_length, .lengths = set.bound.lengths};
    visit_all(&all);
    ck_assert_int_eq(all.least, set.bound.least);
    ASSERT_OK(copse_rings_pack(&r.instance, &set, 8, packings, &err), &err);
    for (int n = 1; n <= 8; n++) {
      struct copse_q before = packings[n - 1].speed;
      expect_packing(&r.instance, &set, &packings[n - 1], n);
      ASSERT_OK(copse_rings_improve(&r.instance, &set, n, true, packings, &err), &err);
      expect_packing(&r.instance, &set, &packings[n - 1], n);
      ck_assert(copse_q_cmp(packings[n - 1].speed, before) >= 0);
    }
  }
  copse_ring_set_free(&set);
}
END_TEST

/* Where a search takes one port at a time (COPSE_RINGS_PORT_GPUS), if there are ports. */
START_TEST(packings_of_more_gpus_fit_too) {
  struct random_instance r;
  struct copse_ring_set set;
  struct copse_ring_packing packings[4];
  struct copse_err err = COPSE_ERR_INIT;
  make_instance(&r, 7000 + (uint64_t)_i, COPSE_TEST_UP_TO(11, 8), (enum kind)_i);
  ASSERT_OK(copse_rings_solve(&r.instance, &set, &err), &err);
  ASSERT_OK(copse_rings_pack(&r.instance, &set, 4, packings, &err), &err);
  for (int n = 2; n <= 4; n += 2) {
    ASSERT_OK(copse_rings_improve(&r.instance, &set, n, true, packings, &err), &err);
    expect_packing(&r.instance, &set, &packings[n - 1], n);
  }
  copse_ring_set_free(&set);
}
END_TEST

/* Beyond the dynamic programme: no order drawn is shorter than the bound, and those found are real
 * orders of the lengths that they are sorted by. */
START_TEST(many_gpus_have_a_bound_below_every_order) {
  struct random_instance r;
  struct copse_arena arena = {0};
  struct copse_ring found[MOST];
  struct copse_err err = COPSE_ERR_INIT;
  int64_t lengths[ROWS], least, steps = 0;
  uint64_t state = (uint64_t)_i;
  int n, order[MOST], gpus = 17 + _i % 4;
  bool exact;
  make_instance(&r, 9000 + (uint64_t)_i, gpus, (enum kind)(_i % SECOND));
  for (int k = 0; k < gpus * gpus; k++) r.move[k].exists = k / gpus != k % gpus;
  for (int k = 0; k < ROWS; k++) lengths[k] = copse_test_random_int(&state, 0, 100);
  ASSERT_OK(
      copse_rings_shortest(&r.instance, lengths, &arena, found, &n, &least, &exact, &steps, &err),
      &err);
  ck_assert(n > 0 && length_of(&r.instance, &found[0], lengths) >= least);
  if (exact) ck_assert_int_eq(length_of(&r.instance, &found[0], lengths), least);
  for (int k = 0; k < n; k++) {
    bool seen[MOST] = {false};
    for (int g = 0; g < gpus; g++) seen[found[k].gpus[g]] = true;
    for (int g = 0; g < gpus; g++) ck_assert(seen[g]);
  }
  for (int g = 0; g < gpus; g++) order[g] = g;
  for (int trial = 0; trial < 200; trial++) {
    struct copse_ring ring = {order, {-1, -1}};
    int a = copse_test_random_int(&state, 0, gpus - 1),
        b = copse_test_random_int(&state, 0, gpus - 1);
    int swap = order[a];
    order[a] = order[b];
    order[b] = swap;
    if (r.instance.n_ports) ring.ports[0] = ring.ports[1] = trial % PORTS;
    ck_assert(length_of(&r.instance, &ring, lengths) >= least);
  }
  copse_arena_free(&arena);
}
END_TEST

/* Of a grid, where other steps load two links, chains are improved by comparisons: quick packings
 * count them. */
START_TEST(quick_packings_count_comparisons) {
  enum { WIDE = 5, GPUS = 4 * WIDE };
  static const int to[] = {1, -1, WIDE, -WIDE};
  struct copse_ring_step move[GPUS * GPUS] = {0};
  struct copse_ring_load loads[4 * GPUS], far[GPUS * GPUS][2]; /* a row for each link */
  struct copse_q bandwidth[4 * GPUS];
  struct copse_ring_instance grid = {
      .n_gpus = GPUS, .n_rows = 4 * GPUS, .bandwidth = bandwidth, .move = move, .same_port = true};
  struct copse_ring_packing packings[4];
  struct copse_err err = COPSE_ERR_INIT;
  int64_t steps[2];
  for (int m = 0; m < GPUS * GPUS; m++) {
    far[m][0] = (struct copse_ring_load){4 * (m / GPUS), 1};
    far[m][1] = (struct copse_ring_load){4 * (m % GPUS) + 1, 1};
    move[m] = (struct copse_ring_step){m / GPUS != m % GPUS, 2, far[m]};
  }
  for (int l = 0; l < 4 * GPUS; l++) {
    int from = l / 4, next = from + to[l % 4];
    loads[l] = (struct copse_ring_load){l, 1};
    bandwidth[l] = (struct copse_q){25 + l % 3, 1};
    if (next >= 0 && next < GPUS && (l % 4 >= 2 || next / WIDE == from / WIDE))
      move[from * GPUS + next] = (struct copse_ring_step){true, 1, &loads[l]};
  }
  for (int quick = 0; quick < 2; quick++) {
    struct copse_ring_set set;
    grid.quick = quick;
    ASSERT_OK(copse_rings_solve(&grid, &set, &err), &err);
    ASSERT_OK(copse_rings_pack(&grid, &set, 2, packings, &err), &err);
    ASSERT_OK(copse_rings_improve(&grid, &set, 2, true, packings, &err), &err);
    steps[quick] = set.steps;
    copse_ring_set_free(&set);
  }
  ck_assert_int_gt(steps[0], 0);
  ck_assert_int_gt(steps[1], 2 * steps[0]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rings");
  TCase *cases = tcase_create("orders");
  tcase_add_loop_test(cases, the_shortest_of_all_orders_is_found, 0, CASES);
  tcase_add_loop_test(cases, the_optimum_is_that_of_all_orders, 0,
                      COPSE_TEST_SWEEPS ? CASES : COPSE_TEST_UP_TO(20, 10));
  tcase_add_loop_test(cases, packings_of_more_gpus_fit_too, 0, KINDS);
  tcase_add_loop_test(cases, many_gpus_have_a_bound_below_every_order, 0, 8);
  tcase_add_test(cases, quick_packings_count_comparisons);
  suite_add_tcase(suite, cases);
  return copse_test_run(suite);
}
