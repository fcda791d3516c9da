/*
 * The catalogue: every entry reads, says what it is and where it is from, comes back from
 * what is written of it, and has the optimum that independent means find. Runs in the root
 * of the source, where topologies/ is.
 */
#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/solve.h"
#include "support/oracle.h"
#include "support/support.h"
#include "topology/topology.h"

static const char *const folders[] = {"topologies", NULL};
static struct copse_catalogue catalogue;

static void set_up(void) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_catalogue_list(folders, &catalogue, &err), &err);
}
static void tear_down(void) { copse_catalogue_free(&catalogue); }

static struct copse_topology *load(const char *name) {
  const struct copse_topology_options options = {.catalogue = folders};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_load(name, &options, &t, &err), &err);
  return t;
}

START_TEST(holds_the_machines_it_should) {
  static const char *const names[] = {
      "dgx1-p100",    "dgx1-v100",        "dgx2",          "dgx-a100",    "dgx-h100",
      "dgx-h200",     "dgx-b200",         "gb200-nvl72",   "mi100-8",     "mi250-16",
      "mi300x-8",     "pcie-8-2s",        "azure-ndv2",    "azure-ndv4",  "azure-ndv5",
      "aws-p4d",      "aws-p5",           "frontier-node", "hypercube-6", "perlmutter-node",
      "tpu-v4-4x4x4", "h100-superpod-su", "h100-x8-clos2", "frontier-x8"};
  ck_assert_int_ge(catalogue.n, 30);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) copse_topology_free(load(names[i]));
}
END_TEST

START_TEST(every_entry_says_what_it_is_and_reads_back_the_same) {
  for (int i = 0; i < catalogue.n; i++) {
    const char *name = catalogue.entries[i].name;
    struct copse_topology *t = load(name), *again = NULL;
    struct copse_err err = COPSE_ERR_INIT;
    char *text = NULL, *second = NULL;
    size_t size = 0, second_size = 0;
    int unbalanced = 0;
    ck_assert_msg(t->description && t->description[0], "%s has no description", name);
    ck_assert_msg(t->source && t->source[0], "%s has no source", name);
    ck_assert_str_eq(t->name, name);
    ASSERT_OK(copse_topology_find_unbalanced(t, &unbalanced, NULL, NULL, &err), &err);
    ck_assert_int_eq(unbalanced, -1);
    ASSERT_OK(copse_topology_to_json(t, &text, &size, &err), &err);
    ASSERT_OK(copse_topology_parse(name, text, size, NULL, &again, &err), &err);
    ASSERT_OK(copse_topology_to_json(again, &second, &second_size, &err), &err);
    ck_assert_msg(size == second_size && memcmp(text, second, size) == 0, "%s", name);
    free(text);
    free(second);
    copse_topology_free(again);
    copse_topology_free(t);
  }
}
END_TEST

/* ---- optima ------------------------------------------------------------------------------- */

/* Every capacity times `scale` is a whole number. */
static void find_scale(const struct copse_test_graph *g, const mpq_t x, mpz_t scale) {
  mpz_set(scale, mpq_denref(x));
  for (int i = 0; i < g->n_links; i++) mpz_lcm(scale, scale, mpq_denref(g->bandwidth[i]));
}

static int64_t scaled(const mpq_t q, const mpz_t scale) {
  mpz_t v;
  mpz_init(v);
  mpz_mul(v, scale, mpq_numref(q));
  mpz_divexact(v, v, mpq_denref(q));
  ck_assert(mpz_fits_slong_p(v));
  int64_t result = mpz_get_si(v);
  mpz_clear(v);
  return result;
}

/* That x out of every rank at once reaches every rank, by plain augmenting. */
static void check_reached(const char *name, const struct copse_test_graph *g, const mpq_t x) {
  size_t n = (size_t)g->n_nodes + 1;
  int64_t *fresh = calloc(n * n, sizeof *fresh), *used = malloc(n * n * sizeof *used);
  int64_t ranks = 0;
  mpz_t scale;
  ck_assert(fresh && used);
  mpz_init(scale);
  find_scale(g, x, scale);
  for (int i = 0; i < g->n_links; i++)
    fresh[(size_t)g->src[i] * n + (size_t)g->dst[i]] += scaled(g->bandwidth[i], scale);
  for (int v = 0; v < g->n_nodes; v++)
    if (g->terminal[v]) fresh[(n - 1) * n + (size_t)v] = scaled(x, scale), ranks++;
  for (int v = 0; v < g->n_nodes; v++) {
    if (!g->terminal[v]) continue;
    memcpy(used, fresh, n * n * sizeof *used);
    int64_t flow = copse_test_simple_flow((int)n, used, (int)n - 1, v);
    ck_assert_msg(flow == ranks * scaled(x, scale), "%s: node %d is not reached", name, v);
  }
  mpz_clear(scale);
  free(fresh);
  free(used);
}

/* That the cut lets no more out. */
static void check_cut(const char *name, const struct copse_topology *t,
                      const struct copse_schedule *s, const struct copse_test_graph *g,
                      const mpq_t x) {
  bool *inside = calloc((size_t)t->n_nodes, sizeof *inside);
  long weight = 0;
  int missed = 0;
  mpq_t leaving, needed;
  mpq_inits(leaving, needed, NULL);
  for (int i = 0; i < s->bound.n_cut; i++)
    inside[copse_topology_find(t, s->nodes[s->bound.cut[i]])] = true;
  for (int v = 0; v < t->n_nodes; v++) missed += g->terminal[v] && !inside[v];
  copse_test_cut_leaving(g, inside, leaving, &weight);
  mpq_set_si(needed, weight, 1);
  mpq_mul(needed, needed, x);
  ck_assert_msg(missed > 0 && mpq_equal(needed, leaving), "%s: the cut is no proof", name);
  mpq_clears(leaving, needed, NULL);
  free(inside);
}

/* The sizes up to which each means is quick: an exact flow and cut, an LP, all cuts. */
#define MAX_FLOW_NODES 400
#define MAX_LP_NODES 32
#define MAX_CUT_NODES 15

static void check_optimum(const char *name, const struct copse_topology *t,
                          const struct copse_schedule *s) {
  struct copse_test_graph *g = copse_test_graph_of_topology(t, -1, false);
  mpq_t x, time;
  mpq_inits(x, time, NULL);
  copse_test_set_q(x, s->time_per_GB);
  mpq_set_si(time, t->n_ranks, 1);
  mpq_mul(x, x, time);
  mpq_inv(x, x);
  check_cut(name, t, s, g, x);
  check_reached(name, g, x);
  if (t->n_nodes <= MAX_LP_NODES) {
    double lp = copse_test_lp_time(g), own = copse_q_to_double(s->time_per_GB);
    ck_assert_msg(lp > own * (1 - 1e-7) && lp < own * (1 + 1e-7), "%s: LP %g, own %g", name, lp,
                  own);
  }
  if (t->n_nodes <= MAX_CUT_NODES) {
    ck_assert(copse_test_cut_time(g, time));
    ck_assert_msg(copse_test_equals_q(time, s->time_per_GB), "%s: all cuts differ", name);
  }
  mpq_clears(x, time, NULL);
  copse_test_graph_free(g);
}

START_TEST(optima_are_those_of_independent_means) {
  int checked = 0, too_big = 0;
  for (int i = 0; i < catalogue.n; i += COPSE_TEST_UP_TO(1, 5)) {
    const char *name = catalogue.entries[i].name;
    struct copse_topology *t = load(name);
    const struct copse_solve_options options = {
        .collective = COPSE_ALLGATHER, .root = -1, .bound_only = true, .label = name};
    struct copse_solve_seconds seconds;
    struct copse_schedule *s = NULL;
    struct copse_err err = COPSE_ERR_INIT;
    if (t->n_nodes > MAX_FLOW_NODES) {
      too_big++;
    } else {
      ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
      check_optimum(name, t, s);
      copse_schedule_free(s);
      checked++;
    }
    copse_topology_free(t);
  }
  ck_assert_int_ge(checked, COPSE_TEST_UP_TO(45, 8));
  /* a100-superpod-su, h100-superpod-su and -2su, a100-x128, h100-x128, mi250-ring-64 */
  ck_assert_int_le(too_big, 6);
}
END_TEST

START_TEST(a_file_wins_over_a_name) {
  struct copse_err err = COPSE_ERR_INIT;
  char *path = NULL;
  ASSERT_OK(copse_catalogue_find("dgx2", folders, &path, &err), &err);
  ck_assert_str_eq(path, "topologies/dgx2.json");
  free(path);
  static const char *const untouched[] = {
      "Makefile", "-", "topologies", "no-such-machine", "", "elsewhere/dgx-a100", "./dgx-a100"};
  for (size_t i = 0; i < sizeof untouched / sizeof *untouched; i++) {
    ASSERT_OK(copse_catalogue_find(untouched[i], folders, &path, &err), &err);
    ck_assert_str_eq(path, untouched[i]);
    free(path);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/catalogue");
  TCase *all = tcase_create("catalogue");
  tcase_set_timeout(all, 300);
  tcase_add_checked_fixture(all, set_up, tear_down);
  tcase_add_test(all, holds_the_machines_it_should);
  tcase_add_test(all, every_entry_says_what_it_is_and_reads_back_the_same);
  tcase_add_test(all, optima_are_those_of_independent_means);
  tcase_add_test(all, a_file_wins_over_a_name);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
