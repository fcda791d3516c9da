/* Tree packing on graphs without relays: spanning trees, counts and loads. */
#include "solver/trees/general.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "solver/policy.h"
#include "solver/trees/optimum.h"
#include "support/oracle.h"
#include "support/support.h"

#define MAX_N 10

struct made {
  struct copse_network network;
  struct copse_net_link links[MAX_N * MAX_N];
  int terminals[MAX_N];
  struct copse_net_root roots[MAX_N];
};

/* Any digraph on terminals only, with a ring so that all are reached. */
static void make(struct made *m, uint64_t *state) {
  int n = copse_test_random_int(state, 2, MAX_N), density = copse_test_random_int(state, 1, 9);
  int most = copse_test_random_int(state, 0, 1) ? 3 : 30;
  *m = (struct made){.network = {n, 0, n, 0, m->links, m->terminals, m->roots}};
  for (int u = 0; u < n; u++)
    for (int v = 0; v < n; v++)
      if (u != v && (v == (u + 1) % n || copse_test_random_int(state, 0, 9) < density))
        m->links[m->network.n_links++] =
            (struct copse_net_link){u, v, copse_test_random_int(state, 1, most)};
  for (int i = 0; i < n; i++) m->terminals[i] = i;
  bool one = copse_test_random_int(state, 0, 3) == 0;
  for (int i = 0; i < n; i++)
    if (m->network.n_roots == 0 || (!one && copse_test_random_int(state, 0, 4)))
      m->roots[m->network.n_roots++] =
          (struct copse_net_root){i, copse_test_random_int(state, 0, 2) ? 1 : 3};
}

static struct copse_flow *flow_of(const struct copse_network *network, const int64_t *capacities) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_flow *flow;
  ASSERT_OK(copse_flow_new(network->n_nodes + 1, &flow, &err), &err);
  for (int i = 0; i < network->n_links; i++)
    ASSERT_OK(
        copse_flow_change(flow, network->links[i].src, network->links[i].dst, capacities[i], &err),
        &err);
  return flow;
}

static void check_tree(const struct copse_network *network, const struct copse_packing *packing,
                       const struct copse_packed_tree *tree, int64_t *used) {
  bool has[MAX_N] = {false};
  has[tree->root] = true;
  ck_assert_int_gt(tree->multiplicity, 0);
  for (int e = 0; e + 1 < network->n_terminals; e++) {
    const struct copse_packed_edge *edge = &packing->edges[tree->first_edge + (size_t)e];
    ck_assert_msg(has[edge->src] && !has[edge->dst], "an edge is out of order");
    has[edge->dst] = true;
    used[edge->src * MAX_N + edge->dst] += tree->multiplicity;
  }
}

static void check_packing(const struct copse_network *network, const int64_t *capacities, int64_t k,
                          const struct copse_packing *packing) {
  int64_t used[MAX_N * MAX_N] = {0}, due[MAX_N] = {0};
  ck_assert_uint_eq(packing->n_edges, packing->n_trees * (size_t)(network->n_terminals - 1));
  for (size_t i = 0; i < packing->n_trees; i++) {
    check_tree(network, packing, &packing->trees[i], used);
    due[packing->trees[i].root] += packing->trees[i].multiplicity;
  }
  for (int i = 0; i < network->n_roots; i++)
    due[network->roots[i].node] -= network->roots[i].weight * k;
  for (int v = 0; v < network->n_nodes; v++) ck_assert_int_eq(due[v], 0);
  for (int i = 0; i < network->n_links; i++) {
    int64_t *load = &used[network->links[i].src * MAX_N + network->links[i].dst];
    ck_assert_int_le(*load, capacities[i]);
    *load = 0;
  }
  for (int i = 0; i < MAX_N * MAX_N; i++) ck_assert_int_eq(used[i], 0); /* only real links */
}

static void scale_to_optimum(const struct copse_network *network, int64_t *capacities, int64_t *k) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_optimum optimum;
  struct copse_scale scale;
  ASSERT_OK(copse_optimum_find(network, NULL, &optimum, &err), &err);
  ASSERT_OK(copse_optimum_scale(network, optimum.x, &scale, &err), &err);
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = network->links[i].capacity / scale.divisor * scale.numerator;
  *k = scale.k;
  copse_optimum_free(&optimum);
}

/* By trust, as large networks are packed, and carefully; in one way of packing. */
static void check_way(const struct copse_network *network, bool careful, enum copse_pack_way way) {
  int64_t capacities[MAX_N * MAX_N], k;
  struct copse_err err = COPSE_ERR_INIT;
  scale_to_optimum(network, capacities, &k);
  for (int64_t trees = k; trees > 0; trees = trees > 1 ? trees / 2 : 0) { /* tight, then slack */
    struct copse_packing packing;
    struct copse_flow *flow = flow_of(network, capacities);
    struct copse_tree_problem problem = {
        .network = network, .k = trees, .trust_from = careful ? INT_MAX : 1, .packing = way};
    ASSERT_OK(copse_pack_trees(&problem, flow, &packing, &err), &err);
    check_packing(network, capacities, trees, &packing);
    copse_packing_free(&packing);
    copse_flow_free(flow);
  }
}

static void check_both(const struct copse_network *network, bool careful) {
  check_way(network, careful, COPSE_PACK_FIRST_FIT);
  check_way(network, careful, COPSE_PACK_BEST_FIT);
  check_way(network, careful, COPSE_PACK_WHOLE);
}

START_TEST(packed_trees_span_add_up_and_stay_within_capacity) {
  for (uint64_t seed = 0; seed < 500; seed++) {
    uint64_t state = seed;
    struct made m;
    make(&m, &state);
    check_both(&m.network, false);
    check_both(&m.network, true);
  }
}
END_TEST

START_TEST(one_tree_more_than_the_optimum_is_an_internal_error) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    uint64_t state = seed;
    int64_t capacities[MAX_N * MAX_N], k;
    struct copse_err err = COPSE_ERR_INIT;
    struct made m;
    struct copse_packing packing;
    make(&m, &state);
    scale_to_optimum(&m.network, capacities, &k);
    struct copse_flow *flow = flow_of(&m.network, capacities);
    struct copse_tree_problem problem = {
        .network = &m.network, .k = k + 1, .trust_from = COPSE_TRUST_FROM};
    ASSERT_FAILS(copse_pack_trees(&problem, flow, &packing, &err), COPSE_INTERNAL, &err,
                 "tree packing");
    ck_assert_ptr_null(packing.trees);
    copse_flow_free(flow);
  }
}
END_TEST

START_TEST(a_full_mesh_is_packed_by_stars_of_height_one) {
  struct made m;
  int n = 6;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_packing packing;
  m = (struct made){.network = {n, 0, n, n, m.links, m.terminals, m.roots}};
  for (int u = 0; u < n; u++) {
    m.terminals[u] = u;
    m.roots[u] = (struct copse_net_root){u, 1};
    for (int v = 0; v < n; v++)
      if (u != v) m.links[m.network.n_links++] = (struct copse_net_link){u, v, 1};
  }
  int64_t capacities[MAX_N * MAX_N];
  for (int i = 0; i < m.network.n_links; i++) capacities[i] = 1;
  struct copse_flow *flow = flow_of(&m.network, capacities);
  struct copse_tree_problem problem = {
      .network = &m.network, .k = 1, .trust_from = COPSE_TRUST_FROM};
  ASSERT_OK(copse_pack_trees(&problem, flow, &packing, &err), &err);
  check_packing(&m.network, capacities, 1, &packing);
  for (size_t i = 0; i < packing.n_edges; i++)
    ck_assert_int_eq(packing.edges[i].src, packing.trees[i / (size_t)(n - 1)].root);
  copse_packing_free(&packing);
  copse_flow_free(flow);
}
END_TEST

/* Huge families: k around 2^20 takes as few steps as k = 1. */
START_TEST(multiplicities_are_numbers_not_copies) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    uint64_t state = seed;
    struct made m;
    make(&m, &state);
    for (int i = 0; i < m.network.n_links; i++)
      m.links[i].capacity = 1 + (int64_t)(copse_test_random(&state) >> 44);
    check_both(&m.network, false);
    check_both(&m.network, true);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/pack");
  TCase *tests = tcase_create("pack");
  tcase_add_test(tests, packed_trees_span_add_up_and_stay_within_capacity);
  tcase_add_test(tests, one_tree_more_than_the_optimum_is_an_internal_error);
  tcase_add_test(tests, a_full_mesh_is_packed_by_stars_of_height_one);
  tcase_add_test(tests, multiplicities_are_numbers_not_copies);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
