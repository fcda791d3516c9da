/*
 * What all sinks get: the same answer from any number of threads and from any start, which is that
 * of a plain maximum flow to each. Runs under the thread sanitizer.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/instance.h"
#include "solver/network/flow.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

#define SCALE 4

/* The graph as a matrix: links times the scale, and a source of `rate` for each root. */
static int64_t *make_matrix(const struct copse_network *network, int64_t rate) {
  int n = network->n_nodes + 1;
  int64_t *matrix = calloc((size_t)n * (size_t)n, sizeof *matrix);
  ck_assert_ptr_nonnull(matrix);
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    matrix[link->src * n + link->dst] += link->capacity * SCALE;
  }
  for (int r = 0; r < network->n_roots; r++)
    matrix[(n - 1) * n + network->roots[r].node] += network->roots[r].weight * rate;
  return matrix;
}

/* What a sink gets, and the one minimum cut nearest to it, by augmenting paths on a matrix. */
struct expected {
  int64_t flows;
  unsigned char *inside; /* [n] */
};

static void find_side(int n, const int64_t *left, int sink, unsigned char *inside) {
  memset(inside, 0, (size_t)n);
  inside[sink] = 1;
  for (bool grows = true; grows;) {
    grows = false;
    for (int u = 0; u < n; u++)
      for (int v = 0; v < n && !inside[u]; v++)
        if (inside[v] && left[u * n + v] > 0) inside[u] = grows = true;
  }
}

static struct expected *expect(const struct copse_network *network, int64_t rate) {
  int n = network->n_nodes + 1;
  struct expected *all = calloc((size_t)network->n_terminals, sizeof *all);
  ck_assert_ptr_nonnull(all);
  for (int i = 0; i < network->n_terminals; i++) {
    int64_t *matrix = make_matrix(network, rate);
    all[i].inside = calloc((size_t)n, 1);
    ck_assert_ptr_nonnull(all[i].inside);
    all[i].flows = copse_test_simple_flow(n, matrix, n - 1, network->terminals[i]);
    find_side(n, matrix, network->terminals[i], all[i].inside); /* the matrix is what is left */
    free(matrix);
  }
  return all;
}

static bool same_cut(const struct expected *a, const struct expected *b, int n) {
  return a->flows == b->flows && memcmp(a->inside, b->inside, (size_t)n) == 0;
}

/* Every sink whose cut counts is reported, by the right cut, or one with the same cut was before it;
 * none after the last that may be reported. */
static void check_answer(const struct copse_network *network, const struct expected *all,
                         const struct copse_sink_question *q, const struct copse_sinks *sinks) {
  int reported = 0, short_reported = 0, n = network->n_nodes + 1, last = -1;
  for (int i = 0; i < q->n_sinks; i++) {
    int place = (q->start + i) % q->n_sinks;
    const struct expected *cut = &all[place];
    if (reported < sinks->n_cuts && sinks->cuts[reported].place == place) {
      ck_assert_int_eq(sinks->cuts[reported].flows, cut->flows);
      ck_assert_mem_eq(sinks->cuts[reported].inside, cut->inside, (size_t)n);
      ck_assert(q->tight || cut->flows < q->demand);
      ck_assert_int_lt(short_reported, q->most);
      reported++;
      short_reported += cut->flows < q->demand;
      last = place;
    } else if ((q->tight || cut->flows < q->demand) && short_reported < q->most) {
      ck_assert_msg(last >= 0 && same_cut(&all[last], cut, n), "sink %d is not reported", place);
    }
  }
  ck_assert_int_eq(reported, sinks->n_cuts);
}

static void check_all(const struct copse_network *network, int64_t rate) {
  struct copse_err err = COPSE_ERR_INIT;
  struct expected *all = expect(network, rate);
  struct copse_sinks sinks = {0};
  struct copse_flow *flow;
  struct copse_sink_question q = {
      .source = network->n_nodes, .sinks = network->terminals, .n_sinks = network->n_terminals};
  ASSERT_OK(copse_sinks_graph(network, NULL, SCALE, rate, &flow, &q.demand, &err), &err);
  ck_assert_int_eq(q.demand, rate * network->n_roots);
  for (q.threads = 1; q.threads <= 5; q.threads += 2) {
    for (q.start = 0; q.start < q.n_sinks; q.start += 3) {
      for (int i = 0; i < 2 * q.n_sinks; i += 3) {
        q.most = i / 2 + 1;
        q.tight = i % 2;
        ASSERT_OK(copse_sinks_ask(&sinks, flow, &q, &err), &err);
        check_answer(network, all, &q, &sinks);
      }
    }
  }
  copse_flow_free(flow);
  copse_sinks_free(&sinks);
  for (int i = 0; i < network->n_terminals; i++) free(all[i].inside);
  free(all);
}

/* Rates around the optimum, so that some sinks pass and some fail. */
START_TEST(any_number_of_threads_gives_the_same_answer) {
  static const struct copse_test_random_options shape = {3, 14, 6, true, false};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = (uint64_t)_i + 11;
  for (int i = 0; i < COPSE_TEST_SOME(6); i++) {
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    struct copse_instance instance;
    ASSERT_OK(copse_instance_make(t, "test", -1, false, &instance, &err), &err);
    for (int64_t rate = 1; rate < 1 << 12; rate = rate * COPSE_TEST_UP_TO(3, 8) / 2 + 1)
      check_all(&instance.network, rate);
    copse_instance_free(&instance);
    copse_topology_free(t);
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
  for (int64_t rate = 40; rate < 120;
       rate += COPSE_TEST_UP_TO(2, 10)) /* 50 is the optimum's: 8 shares in 400 */
    check_all(&instance.network, rate);
  copse_instance_free(&instance);
  copse_topology_free(t);
}
END_TEST

static char *solve_to_text(const struct copse_topology *t, int threads, int trust_from) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  struct copse_schedule *schedule =
      copse_test_solve_as(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER,
                                                          .root = -1,
                                                          .no_symmetry = true,
                                                          .threads = threads,
                                                          .trust_from = trust_from});
  ASSERT_OK(copse_schedule_to_json(schedule, &text, &size, &err), &err);
  copse_schedule_free(schedule);
  return text;
}

/* Optimum, splitting and packing, with and without trust in known cuts. */
START_TEST(schedules_are_the_same_byte_for_byte) {
  static const struct copse_test_random_options shape = {8, 24, 6, false, false};
  uint64_t state = (uint64_t)_i + 5;
  for (int i = 0; i < 6; i++) {
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    int trust_from = i % 2 ? INT_MAX : 1;
    char *expected = solve_to_text(t, 1, trust_from);
    for (int threads = 2; threads <= 5; threads += 3) {
      char *text = solve_to_text(t, threads, trust_from);
      ck_assert_str_eq(text, expected);
      free(text);
    }
    free(expected);
    copse_topology_free(t);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/sinks");
  TCase *tc = tcase_create("sinks");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, any_number_of_threads_gives_the_same_answer, 0, 4);
  tcase_add_loop_test(tc, schedules_are_the_same_byte_for_byte, 0, COPSE_TEST_UP_TO(4, 1));
  tcase_add_test(tc, neighbours_pass_on_only_what_holds);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
