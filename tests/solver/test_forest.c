/* The solver end to end: forests on physical paths that reach the proven optimum exactly. */
#include "solver/trees/forest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/instance.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

/* 1 / (W x). */
static void time_of_rate(const struct copse_network *network, struct copse_q x, mpq_t time) {
  mpq_t whole;
  mpq_init(whole);
  for (int i = 0; i < network->n_roots; i++)
    mpz_add_ui(mpq_numref(whole), mpq_numref(whole), (unsigned long)network->roots[i].weight);
  copse_test_set_q(time, x);
  mpq_mul(time, time, whole);
  mpq_inv(time, time);
  mpq_clear(whole);
}

/* docs/theory.md, "The optimum": 1/x = n/d, g = gcd(d, all b), k = d/g. */
static void check_least_k(const struct copse_network *network, const struct copse_forest *forest) {
  mpz_t g;
  mpz_init_set_si(g, forest->optimum.x.num);
  for (int i = 0; i < network->n_links; i++)
    mpz_gcd_ui(g, g, (unsigned long)network->links[i].capacity);
  mpz_mul_si(g, g, forest->k);
  ck_assert_int_eq(mpz_cmp_si(g, forest->optimum.x.num), 0);
  mpz_clear(g);
}

static void check_forest(const struct copse_network *network, bool by_cuts, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0, .bound_only = false};
  struct copse_forest forest;
  mpq_t time, bound;
  mpq_inits(time, bound, NULL);
  ASSERT_OK(copse_forest_solve(network, &options, &forest, &err), &err);
  const char *defect = copse_test_forest_defect(network, &forest, time);
  ck_assert_msg(defect == NULL, "%s: %s", what, defect);
  time_of_rate(network, forest.optimum.x, bound);
  ck_assert_msg(mpq_equal(time, bound), "%s: the trees do not reach the optimum", what);
  if (by_cuts) {
    struct copse_test_graph *graph = copse_test_graph_of_network(network);
    ck_assert(copse_test_cut_time(graph, bound));
    ck_assert_msg(mpq_equal(time, bound), "%s: the worst cut says otherwise", what);
    copse_test_graph_free(graph);
  }
  check_least_k(network, &forest);
  copse_forest_free(&forest);
  mpq_clears(time, bound, NULL);
}

static int height_of(const struct copse_forest *forest) {
  int height = 0;
  for (int t = 0; t < forest->n_trees; t++)
    if (forest->trees[t].height > height) height = forest->trees[t].height;
  return height;
}

/* Asked for few trees: still a forest at the optimum, no more and no higher trees, no larger k.
 * How many trees were saved. */
static int check_fewest(const struct copse_network *network) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0};
  struct copse_forest any, fewest;
  mpq_t time, bound;
  mpq_inits(time, bound, NULL);
  ASSERT_OK(copse_forest_solve(network, &options, &any, &err), &err);
  options.fewest = true;
  ASSERT_OK(copse_forest_solve(network, &options, &fewest, &err), &err);
  const char *defect = copse_test_forest_defect(network, &fewest, time);
  ck_assert_msg(defect == NULL, "%s", defect);
  time_of_rate(network, any.optimum.x, bound);
  ck_assert_int_eq(mpq_cmp(time, bound), 0);
  int saved = any.n_trees - fewest.n_trees;
  ck_assert_int_ge(saved, 0);
  ck_assert_int_le(fewest.k, any.k);
  ck_assert_int_le(height_of(&fewest), height_of(&any));
  copse_forest_free(&any);
  copse_forest_free(&fewest);
  mpq_clears(time, bound, NULL);
  return saved;
}

static const struct copse_test_random_options shapes[] = {
    {2, 9, 6, true, true}, {2, 12, 10, false, true}, {2, 12, 4, true, false}};

START_TEST(forests_reach_the_bound_on_random_fabrics) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    uint64_t state = 150 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[_i]);
    int root = seed % 3 == 0 ? copse_test_random_int(&state, 0, topology->n_ranks - 1) : -1;
    char what[40];
    snprintf(what, sizeof what, "shape %d, seed %d", _i, (int)seed);
    ASSERT_OK(copse_instance_make(topology, NULL, root, seed % 2, &instance, &err), &err);
    check_forest(&instance.network, topology->n_nodes <= 12, what);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

/* Roots of unequal weight, on the same fabrics. */
START_TEST(weighted_roots_get_trees_in_proportion) {
  for (uint64_t seed = 0; seed < 80; seed++) {
    uint64_t state = 7000 + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[0]);
    ASSERT_OK(copse_instance_make(topology, NULL, -1, false, &instance, &err), &err);
    int kept = copse_test_random_int(&state, 1, instance.network.n_roots);
    instance.network.n_roots = kept;
    for (int i = 0; i < kept; i++) instance.roots[i].weight = copse_test_random_int(&state, 1, 5);
    check_forest(&instance.network, topology->n_nodes <= 12, "weighted");
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

START_TEST(fewer_trees_reach_the_same_optimum) {
  int saved = 0;
  for (uint64_t seed = 0; seed < 60; seed++) {
    uint64_t state = 150 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[_i]);
    int root = seed % 3 == 0 ? copse_test_random_int(&state, 0, topology->n_ranks - 1) : -1;
    ASSERT_OK(copse_instance_make(topology, NULL, root, seed % 2, &instance, &err), &err);
    if (seed % 5 == 0 && root < 0)
      for (int i = 0; i < instance.network.n_roots; i++)
        instance.roots[i].weight = copse_test_random_int(&state, 1, 5);
    saved += check_fewest(&instance.network);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
  ck_assert_int_gt(saved, 0);
}
END_TEST

/* Rank a sends to b over 3 and to c over 6, which has 100 to b: the links out of a, 9, are the
 * bound. Trees of 3 reach it, k = 3; with nothing of the 100 rounded k would be 9. */
START_TEST(links_that_do_not_bind_make_no_trees) {
  struct copse_net_link links[] = {{0, 1, 3}, {0, 2, 6}, {2, 1, 100}, {1, 2, 100}};
  int terminals[] = {0, 1, 2};
  struct copse_net_root roots[] = {{0, 1}};
  struct copse_network network = {3, 4, 3, 1, links, terminals, roots, 0, NULL, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0, .fewest = true};
  struct copse_forest forest;
  mpq_t time;
  mpq_init(time);
  ASSERT_OK(copse_forest_solve(&network, &options, &forest, &err), &err);
  const char *defect = copse_test_forest_defect(&network, &forest, time);
  ck_assert_msg(defect == NULL, "%s", defect);
  ck_assert(mpq_cmp_ui(time, 1, 9) == 0);
  ck_assert_int_eq(forest.k, 3);
  ck_assert_int_eq(forest.n_trees, 2);
  copse_forest_free(&forest);
  mpq_clear(time);
}
END_TEST

/* All joined to all, over a million to and from one of them, over odd numbers of millions among the
 * others: exact capacities have a million trees per root, rounded ones a few at the same optimum.
 */
START_TEST(many_trees_are_rounded_away_at_the_optimum) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    uint64_t state = 12000 + seed;
    struct copse_net_link links[72];
    struct copse_net_root roots[9];
    int terminals[9], n = 4 + (int)seed % 6, n_links = 0;
    for (int v = 0; v < n; v++) {
      terminals[v] = v;
      roots[v] = (struct copse_net_root){v, 1};
      for (int u = 0; u < n; u++)
        if (u != v)
          links[n_links++] = (struct copse_net_link){
              u, v, u && v ? 2 * copse_test_random_int(&state, 1000000, 3000000) + 1 : 1000000};
    }
    struct copse_network network = {n, n_links, n, n, links, terminals, roots, 0, NULL, 0};
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_forest_options options = {.fewest = true, .trust_from = 1};
    struct copse_forest forest;
    struct copse_scale scale;
    mpq_t time, bound;
    mpq_inits(time, bound, NULL);
    ASSERT_OK(copse_forest_solve(&network, &options, &forest, &err), &err);
    ASSERT_OK(copse_optimum_scale(&network, forest.optimum.x, &scale, &err), &err);
    ck_assert_int_eq(scale.k, 1000000);
    const char *defect = copse_test_forest_defect(&network, &forest, time);
    ck_assert_msg(defect == NULL, "%s", defect);
    time_of_rate(&network, forest.optimum.x, bound);
    ck_assert_int_eq(mpq_cmp(time, bound), 0);
    ck_assert_int_le(forest.k, 8);
    copse_forest_free(&forest);
    mpq_clears(time, bound, NULL);
  }
}
END_TEST

/* With k given: trees that span and add up, not faster than the bound, near it. */
static void check_fixed(const struct copse_network *network, int64_t k, bool balanced_floors) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = k, .bound_only = false};
  struct copse_forest forest;
  mpq_t time, bound, slack;
  mpq_inits(time, bound, slack, NULL);
  ASSERT_OK(copse_forest_solve(network, &options, &forest, &err), &err);
  ck_assert_int_eq(forest.k, k);
  const char *defect = copse_test_forest_defect(network, &forest, time);
  ck_assert_msg(defect == NULL, "k = %d: %s", (int)k, defect);
  time_of_rate(network, forest.optimum.x, bound);
  ck_assert_int_ge(mpq_cmp(time, bound), 0);
  int64_t least = INT64_MAX;
  for (int i = 0; i < network->n_links; i++)
    if (network->links[i].capacity < least) least = network->links[i].capacity;
  mpq_set_si(slack, 1, (unsigned long)(k * least * network->n_roots)); /* all weights are 1 */
  mpq_add(bound, bound, slack);
  if (balanced_floors) ck_assert_int_le(mpq_cmp(time, bound), 0);
  copse_forest_free(&forest);
  mpq_clears(time, bound, slack, NULL);
}

START_TEST(forests_of_a_given_k_are_right_and_near_the_bound) {
  for (uint64_t seed = 0; seed < 120; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[_i]);
    ASSERT_OK(copse_instance_make(topology, NULL, seed % 3 ? -1 : 0, false, &instance, &err), &err);
    for (int64_t k = 1; k <= 7; k += 2) check_fixed(&instance.network, k, !shapes[_i].asymmetric);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

START_TEST(an_unreachable_terminal_gives_rate_zero_and_no_trees) {
  struct copse_net_link links[] = {{0, 1, 3}, {1, 0, 3}, {1, 2, 3}};
  int terminals[] = {0, 1, 2};
  struct copse_net_root roots[] = {{0, 1}, {1, 1}, {2, 1}};
  struct copse_network network = {3, 3, 3, 3, links, terminals, roots, 0, NULL, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0, .bound_only = false};
  struct copse_forest forest;
  ASSERT_OK(copse_forest_solve(&network, &options, &forest, &err), &err); /* 2 sends nothing */
  ck_assert_int_eq(forest.optimum.x.num, 0);
  ck_assert_int_eq(forest.n_trees, 0);
  ck_assert(forest.optimum.in_cut[2] && !forest.optimum.in_cut[forest.optimum.unreached]);
  copse_forest_free(&forest);
}
END_TEST

START_TEST(one_terminal_is_one_tree_without_edges) {
  int terminal = 0;
  struct copse_net_root root = {0, 1};
  struct copse_network network = {1, 0, 1, 1, NULL, &terminal, &root, 0, NULL, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0, .bound_only = false};
  struct copse_forest forest;
  ASSERT_OK(copse_forest_solve(&network, &options, &forest, &err), &err);
  ck_assert(forest.n_trees == 1 && forest.k == 1 && forest.trees[0].multiplicity == 1);
  ck_assert(forest.trees[0].root == 0 && forest.trees[0].height == 0);
  copse_forest_free(&forest);
}
END_TEST

START_TEST(bound_only_makes_no_trees) {
  struct copse_net_link links[] = {{0, 1, 3}, {1, 0, 3}};
  int terminals[] = {0, 1};
  struct copse_net_root roots[] = {{0, 1}, {1, 1}};
  struct copse_network network = {2, 2, 2, 2, links, terminals, roots, 0, NULL, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest_options options = {.k = 0, .bound_only = true};
  struct copse_forest forest;
  ASSERT_OK(copse_forest_solve(&network, &options, &forest, &err), &err);
  ck_assert(forest.n_trees == 0 && forest.optimum.x.num == 3 && forest.optimum.x.den == 1);
  copse_forest_free(&forest);
}
END_TEST

/*
 * Bandwidths of many digits: right, or refused as too much. An internal error would blame
 * the program for the user's digits.
 */
START_TEST(forests_of_huge_coprime_capacities_are_exact_or_overflow) {
  int exact = 0, overflows = 0;
  for (uint64_t seed = 0; seed < 1000; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    int n = copse_test_random_int(&state, 2, 5), bits = copse_test_random_int(&state, 40, 62);
    struct copse_net_link links[20];
    int terminals[5];
    struct copse_net_root roots[5];
    struct copse_network network = {n, 0, n, n, links, terminals, roots, 0, NULL, 0};
    for (int u = 0; u < n; u++) {
      terminals[u] = u;
      roots[u] = (struct copse_net_root){u, 1};
      for (int v = 0; v < n; v++)
        if (u != v)
          links[network.n_links++] = (struct copse_net_link){
              u, v, 1 + (int64_t)(copse_test_random(&state) >> (64 - bits))};
    }
    struct copse_forest_options options = {.k = 0, .bound_only = false};
    struct copse_forest forest;
    copse_status status = copse_forest_solve(&network, &options, &forest, &err);
    copse_forest_free(&forest);
    ck_assert_msg(status == COPSE_OK || status == COPSE_OVERFLOW, "seed %d, %d bits: %s", (int)seed,
                  bits, err.text);
    if (status == COPSE_OK) check_forest(&network, true, "huge");
    exact += status == COPSE_OK;
    overflows += status == COPSE_OVERFLOW;
  }
  ck_assert_int_gt(exact, 20);
  ck_assert_int_gt(overflows, 20);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/forest");
  TCase *tests = tcase_create("forest");
  int n_shapes = (int)(sizeof shapes / sizeof *shapes);
  tcase_add_loop_test(tests, forests_reach_the_bound_on_random_fabrics, 0, n_shapes);
  tcase_add_loop_test(tests, fewer_trees_reach_the_same_optimum, 0, n_shapes);
  tcase_add_test(tests, links_that_do_not_bind_make_no_trees);
  tcase_add_test(tests, many_trees_are_rounded_away_at_the_optimum);
  tcase_add_test(tests, weighted_roots_get_trees_in_proportion);
  tcase_add_loop_test(tests, forests_of_a_given_k_are_right_and_near_the_bound, 0, n_shapes);
  tcase_add_test(tests, an_unreachable_terminal_gives_rate_zero_and_no_trees);
  tcase_add_test(tests, one_terminal_is_one_tree_without_edges);
  tcase_add_test(tests, bound_only_makes_no_trees);
  tcase_add_test(tests, forests_of_huge_coprime_capacities_are_exact_or_overflow);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
