/*
 * The check of all sinks: the same answer from any number of threads and from any start, which is
 * that of a plain maximum flow to each. Runs under the thread sanitizer.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/instance.h"
#include "solver/sinks.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

/* Whether the demand reaches v, by augmenting paths on a matrix. */
static bool reaches(const struct copse_sink_check *check, int v) {
  int n = check->network->n_nodes + 1;
  int64_t *matrix = calloc((size_t)n * (size_t)n, sizeof *matrix);
  ck_assert_ptr_nonnull(matrix);
  for (int e = 0; e < check->network->n_links; e++) {
    const struct copse_net_link *link = &check->network->links[e];
    matrix[link->src * n + link->dst] += link->capacity * check->scale;
  }
  for (int r = 0; r < check->network->n_roots; r++)
    matrix[(n - 1) * n + check->network->roots[r].node] +=
        check->network->roots[r].weight * check->rate;
  int64_t value = copse_test_simple_flow(n, matrix, n - 1, v);
  free(matrix);
  return value >= check->demand;
}

static void check_all(const struct copse_sink_check *check) {
  struct copse_err err = COPSE_ERR_INIT;
  bool *good = calloc((size_t)check->n_sinks, 1);
  ck_assert_ptr_nonnull(good);
  for (int i = 0; i < check->n_sinks; i++) good[i] = reaches(check, check->sinks[i]);
  for (int start = 0; start < check->n_sinks; start++) {
    int expected = -1;
    for (int i = check->n_sinks - 1; i >= 0; i--)
      if (!good[(start + i) % check->n_sinks]) expected = (start + i) % check->n_sinks;
    for (copse_solver_threads = 1; copse_solver_threads <= 5; copse_solver_threads += 2) {
      struct copse_flow *flow;
      ASSERT_OK(copse_sinks_graph(check, &flow, &err), &err);
      ck_assert_int_eq(copse_sinks_check(check, flow, start), expected);
      if (expected >= 0) /* the sink is cut off from the source, and the cut is there to be read */
        ck_assert(!copse_flow_on_source_side(flow, check->sinks[expected]));
      copse_flow_free(flow);
    }
  }
  copse_solver_threads = 0;
  free(good);
}

/* Rates around the optimum, so that some sinks pass and some fail. */
START_TEST(any_number_of_threads_gives_the_same_answer) {
  static const struct copse_test_random_options shape = {3, 14, 6, true, false};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = (uint64_t)_i + 11;
  for (int i = 0; i < 6; i++) {
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    struct copse_instance instance;
    ASSERT_OK(copse_instance_make(t, "test", -1, false, &instance, &err), &err);
    struct copse_sink_check check = {.network = &instance.network,
                                     .scale = 4,
                                     .sinks = instance.network.terminals,
                                     .n_sinks = instance.network.n_terminals};
    for (check.rate = 1; check.rate < 1 << 12; check.rate = check.rate * 3 / 2 + 1) {
      check.demand = check.rate * instance.network.n_roots;
      check_all(&check);
    }
    copse_instance_free(&instance);
    copse_topology_release(t);
  }
}
END_TEST

/* Hosts of eight: what neighbours pass on is right also where the first of them fails. */
START_TEST(neighbours_pass_on_only_what_holds) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  struct copse_instance instance;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:4@300 nics:4@25 rails", NULL, &t, &err), &err);
  ASSERT_OK(copse_instance_make(t, "test", -1, false, &instance, &err), &err);
  struct copse_sink_check check = {.network = &instance.network,
                                   .scale = 2,
                                   .sinks = instance.network.terminals,
                                   .n_sinks = instance.network.n_terminals};
  for (check.rate = 20; check.rate < 60; check.rate++) { /* 25 is the optimum's: 8 shares in 100 */
    check.demand = check.rate * instance.network.n_roots;
    check_all(&check);
  }
  copse_instance_free(&instance);
  copse_topology_release(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/sinks");
  TCase *tc = tcase_create("sinks");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, any_number_of_threads_gives_the_same_answer, 0, 4);
  tcase_add_test(tc, neighbours_pass_on_only_what_holds);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
