/*
 * Clusters of alike hosts of which a part is broken, as large ones are solved: by trust in cuts,
 * and with trees of a single root over physical links. Compared with the careful way, which asks
 * a flow for every step, with an LP on GLPK, and by the verifier.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/oracle.h"
#include "support/support.h"
#include "topology/modify.h"

static const struct {
  const char *fabric;
  int n_faults;
  struct copse_fault faults[2];
} cases[] = {
    {"hosts:6 gpus:4@300 nics:4@25 rails", 0, {{NULL, {0, 1}}}},
    {"hosts:6 gpus:4@300 nics:4@25 rails", 1, {{"h0.nic0", {0, 1}}}},
    {"hosts:7 gpus:4@450 nics:4@50 rails", 2, {{"h0.nic0", {0, 1}}, {"h5.nic3", {0, 1}}}},
    {"hosts:5 gpus:4@450 nics:4@50 rails", 2, {{"h1.nic0", {0, 1}}, {"h1.nic1", {0, 1}}}},
    {"hosts:6 gpus:4@300 nics:4@25 rails", 1, {{"h3.gpu2", {0, 1}}}},
    {"hosts:6 gpus:4@300 nics:4@25 rails", 1, {{"h3.nic2", {1, 2}}}},
    {"hosts:5 gpus:4@300 nics:4@25 rails", 1, {{"h0.nic3", {7, 20}}}},
    {"hosts:6 gpus:4@300 nics:2@25 flat", 1, {{"h2.nic0", {0, 1}}}},
    {"hosts:9 gpus:4@300 nics:4@25 flat", 1, {{"h0.gpu0>h0.nic0", {1, 3}}}},
};
#define N_CASES ((int)(sizeof cases / sizeof *cases))

static struct copse_topology *make(int which) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *whole, *left;
  ASSERT_OK(copse_topology_synthetic(cases[which].fabric, NULL, &whole, &err), &err);
  if (cases[which].n_faults == 0) return whole;
  ASSERT_OK(copse_topology_break(whole, "t.json", cases[which].faults, cases[which].n_faults, &left,
                                 &err),
            &err);
  copse_topology_free(whole);
  return left;
}

static struct copse_schedule *solve(const struct copse_topology *t, copse_collective collective,
                                    int root, int trust_from, bool no_symmetry) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_verify_report report;
  struct copse_schedule *s;
  struct copse_solve_options options = {.collective = collective,
                                        .root = root,
                                        .no_symmetry = no_symmetry,
                                        .trust_from = trust_from,
                                        .label = "t.json"};
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  const char *defect = copse_test_schedule_defect(s, t);
  ck_assert_msg(!defect, "%s", defect);
  ASSERT_OK(copse_verify_schedule(s, t, "s.json", &report, &err), &err);
  ck_assert(copse_q_eq(report.time_per_GB, s->time_per_GB));
  if (collective != COPSE_ALLREDUCE) ck_assert(report.optimal);
  return s;
}

static void check_by_lp(const struct copse_topology *t, int root, struct copse_q time) {
  struct copse_test_graph *graph = copse_test_graph_of_topology(t, root, false);
  double expected = copse_test_lp_time(graph), found = (double)time.num / (double)time.den;
  ck_assert_double_eq_tol(found / expected, 1, 1e-6);
  copse_test_graph_free(graph);
}

/* Sanitized builds take one in so many of collectives with and without symmetries, others in each
 * case. */
static bool is_taken(int which, int collective, int plain) {
  return (6 * which + 2 * collective + plain) % COPSE_TEST_ONE_IN == 0;
}

/* Loop: cases. */
START_TEST(trust_reaches_the_careful_optimum_where_a_part_is_broken) {
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                                 COPSE_ALLREDUCE};
  struct copse_topology *t = make(_i);
  for (int c = 0; c < 3; c++) {
    if (!is_taken(_i, c, 0) && !is_taken(_i, c, 1)) continue;
    struct copse_schedule *careful = solve(t, collectives[c], -1, INT_MAX, true);
    for (int plain = 0; plain < 2; plain++) {
      if (!is_taken(_i, c, plain)) continue;
      struct copse_schedule *trusting = solve(t, collectives[c], -1, 2, plain);
      ck_assert(copse_q_eq(trusting->time_per_GB, careful->time_per_GB));
      if (collectives[c] != COPSE_ALLREDUCE) ck_assert_int_eq(trusting->k, careful->k);
      copse_schedule_free(trusting);
    }
    if (c == 0) check_by_lp(t, -1, careful->time_per_GB);
    copse_schedule_free(careful);
  }
  copse_topology_free(t);
}
END_TEST

/* Loop: cases. */
START_TEST(trees_of_one_root_over_physical_links_are_as_good) {
  struct copse_topology *t = make(_i);
  for (int root = 0; root < t->n_ranks; root += 5 * COPSE_TEST_ONE_IN) {
    for (int reduce = 0; reduce < 2; reduce++) {
      copse_collective collective = reduce ? COPSE_REDUCE : COPSE_BROADCAST;
      struct copse_schedule *careful = solve(t, collective, root, INT_MAX, true);
      struct copse_schedule *trusting = solve(t, collective, root, 2, false);
      ck_assert(copse_q_eq(trusting->time_per_GB, careful->time_per_GB));
      ck_assert_int_eq(trusting->k, careful->k);
      if (!reduce) check_by_lp(t, root, careful->time_per_GB);
      copse_schedule_free(trusting);
      copse_schedule_free(careful);
    }
  }
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/broken_clusters");
  TCase *tests = tcase_create("broken_clusters");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, trust_reaches_the_careful_optimum_where_a_part_is_broken, 0, N_CASES);
  tcase_add_loop_test(tests, trees_of_one_root_over_physical_links_are_as_good, 0, N_CASES);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
