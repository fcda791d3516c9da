/* Pipelining of dispatch, compute and combine: by hand, by trying all orders, by small ticks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/overlap.h"
#include "schedule/solve/solve.h"
#include "support/support.h"

#define NEAR(a, b) ck_assert_double_eq_tol(a, b, 1e-9 * (1 + fabs((double)(b))))

START_TEST(pipelines_worked_out_by_hand) {
  static const struct {
    int d;
    double dispatch, compute, combine, one, shared;
  } cases[] = {
      {1, 2, 3, 4, 9, 9},    /* nothing overlaps */
      {2, 2, 3, 2, 10, 10},  /* computed at 5 and 8; combined 5..7 and 8..10 */
      {2, 4, 1, 4, 16, 16},  /* the network never rests */
      {3, 1, 10, 1, 32, 32}, /* the experts never rest: 1 + 30 + 1 */
      /* one: dispatches end at 6, parts computed at 4, 6, 8, combined at 7, 8, 9.
       * shared: part 1 is computed at 4, and its combine (1) and dispatch 3 (2) go at half
       * speed; at 6 the combine is done, dispatch 3 has 1 left, part 2 is computed; combine 2
       * and dispatch 3 end together at 8; part 3 is computed at 10, combined at 11 */
      {3, 2, 2, 1, 9, 11},
      {4, 0, 5, 0, 20, 20}, /* a network that takes no time */
      {4, 3, 0, 2, 20, 20}, /* experts that take none */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    NEAR(copse_overlap_pipeline(cases[i].d, cases[i].dispatch, cases[i].compute, cases[i].combine,
                                COPSE_OVERLAP_ONE),
         cases[i].one);
    NEAR(copse_overlap_pipeline(cases[i].d, cases[i].dispatch, cases[i].compute, cases[i].combine,
                                COPSE_OVERLAP_SHARED),
         cases[i].shared);
  }
}
END_TEST

/* The shortest time over all orders of the 2 d all-to-alls on one network. */
static double best_order(int d, const double *t, int dispatched, int combined, double network,
                         double *computed) {
  double best = INFINITY;
  if (combined == d) return network;
  if (dispatched < d) {
    double there = network + t[0], before = dispatched > 0 ? computed[dispatched - 1] : 0;
    computed[dispatched] = (there > before ? there : before) + t[1];
    best = best_order(d, t, dispatched + 1, combined, there, computed);
  }
  if (combined < dispatched) {
    double start = network > computed[combined] ? network : computed[combined];
    double other = best_order(d, t, dispatched, combined + 1, start + t[2], computed);
    if (other < best) best = other;
  }
  return best;
}

START_TEST(no_order_of_the_all_to_alls_is_shorter_than_dispatches_first) {
  uint64_t state = 1;
  for (int i = 0; i < 2000; i++) {
    int d = copse_test_random_int(&state, 1, 6);
    double t[3], computed[6];
    for (int k = 0; k < 3; k++) t[k] = copse_test_random_int(&state, 0, 12);
    NEAR(copse_overlap_pipeline(d, t[0], t[1], t[2], COPSE_OVERLAP_ONE),
         best_order(d, t, 0, 0, 0, computed));
  }
}
END_TEST

/* The shared network in ticks: each all-to-all under way gets its part of every tick. */
static double tick_through(int d, const double *t, double tick) {
  double work[3][8], now = 0;
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < d; i++) work[k][i] = t[k];
  for (;;) {
    int at[3], running[3];
    for (int k = 0; k < 3; k++)
      for (at[k] = 0; at[k] < d && work[k][at[k]] <= 1e-9;) at[k]++;
    if (at[2] == d) return now;
    running[0] = at[0] < d;
    running[1] = at[1] < at[0];
    running[2] = at[2] < at[1];
    for (int k = 0; k < 3; k++)
      if (running[k]) work[k][at[k]] -= k != 1 && running[0] && running[2] ? tick / 2 : tick;
    now += tick;
  }
}

START_TEST(a_shared_network_agrees_with_a_simulation_in_ticks) {
  uint64_t state = 2;
  for (int i = 0; i < 200; i++) {
    int d = copse_test_random_int(&state, 1, 6);
    double t[3], tick = 1.0 / 512;
    for (int k = 0; k < 3; k++) t[k] = copse_test_random_int(&state, 1, 9);
    double got = copse_overlap_pipeline(d, t[0], t[1], t[2], COPSE_OVERLAP_SHARED);
    /* each of 3 d stages may end up to a tick late */
    ck_assert_double_eq_tol(got, tick_through(d, t, tick), 3 * d * tick + 1e-9);
  }
}
END_TEST

START_TEST(a_pipeline_is_never_shorter_than_its_network_or_its_experts) {
  uint64_t state = 3;
  for (int i = 0; i < 2000; i++) {
    int d = copse_test_random_int(&state, 1, 40);
    double a = copse_test_random_int(&state, 0, 1000) / 7.0,
           c = copse_test_random_int(&state, 0, 1000) / 7.0,
           b = copse_test_random_int(&state, 0, 1000) / 7.0;
    for (int network = 0; network < 2; network++) {
      double total = copse_overlap_pipeline(d, a, c, b, (enum copse_overlap_network)network);
      ck_assert_double_ge(total * (1 + 1e-9), d * (a + b));
      ck_assert_double_ge(total * (1 + 1e-9), a + d * c + b);
      ck_assert_double_le(total * (1 - 1e-9), d * (a + b + c));
    }
  }
}
END_TEST

/* ---- compute time --------------------------------------------------------------------------- */

START_TEST(compute_times_follow_the_line_or_the_table) {
  static const struct copse_compute_point points[] = {{100, 10}, {200, 10}, {400, 30}};
  struct copse_compute line = {.alpha_us = 5, .us_per_token = 0.25};
  struct copse_compute table = {.points = points, .n_points = 3};
  struct copse_compute single = {.points = points, .n_points = 1};
  NEAR(copse_compute_us(&line, 0), 5);
  NEAR(copse_compute_us(&line, 100), 30);
  NEAR(copse_compute_us(&table, 1), 10);
  NEAR(copse_compute_us(&table, 150), 10);
  NEAR(copse_compute_us(&table, 200), 10);
  NEAR(copse_compute_us(&table, 250), 15);
  NEAR(copse_compute_us(&table, 400), 30);
  NEAR(copse_compute_us(&table, 500), 40);
  NEAR(copse_compute_us(&single, 50), 10);
  NEAR(copse_compute_us(&single, 300), 30);
}
END_TEST

#define HEAD "{\"format\": \"copse-compute/1\",\n"
static const struct {
  const char *text;
  int line; /* 0: none named */
  const char *part;
} bad_tables[] = {
    {"", 0, ""},
    {"[]", 0, "must be an object"},
    {"{\"format\": \"copse-compute/2\"}", 1, "copse-compute/1"},
    {HEAD " \"points\": []}", 1, "empty"},
    {HEAD " \"points\": [1]}", 2, "must be an object"},
    {HEAD " \"points\": [\n{\"tokens\": 1, \"us\": 1},\n{\"tokens\": 1, \"us\": 2}]}", 4,
     "more tokens"},
    {HEAD " \"points\": [\n{\"tokens\": 1, \"us\": 2},\n{\"tokens\": 2, \"us\": 1}]}", 4,
     "no less time"},
    {HEAD " \"points\": [\n{\"tokens\": -1, \"us\": 2}]}", 3, "negative"},
    {HEAD " \"points\": [\n{\"tokens\": 1}]}", 3, "needs \"us\": "},
    {HEAD " \"points\": [\n{\"tokens\": 1, \"us\": NaN}]}", 3, ""},
    {HEAD " \"points\": [\n{\"tokens\": 1, \"us\": 1e999}]}", 3, ""},
    {HEAD " \"alpha_us\": 1}", 1, "us_per_token"},
    {HEAD " \"alpha_us\": 1, \"us_per_token\": 1, \"points\": [{\"tokens\": 1, \"us\": 1}]}", 1,
     "either"},
    {HEAD " \"alpha_us\": 1, \"us_per_token\": 1, \"beta\": 1}", 1, "unknown key"},
};

START_TEST(bad_tables_are_refused_with_their_line) {
  for (size_t i = 0; i < sizeof bad_tables / sizeof *bad_tables; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_compute compute;
    struct copse_compute_point *points = NULL;
    char place[40];
    ASSERT_FAILS(copse_compute_parse("c.json", bad_tables[i].text, strlen(bad_tables[i].text),
                                     &compute, &points, &err),
                 COPSE_BAD_INPUT, &err, bad_tables[i].part);
    ck_assert_ptr_null(points);
    if (bad_tables[i].line == 0) continue;
    snprintf(place, sizeof place, "c.json:%d:", bad_tables[i].line);
    ck_assert_msg(strstr(err.text, place) != NULL, "case %zu: '%s' lacks '%s'", i, err.text, place);
  }
}
END_TEST

START_TEST(a_good_table_is_read) {
  static const char text[] =
      HEAD " \"points\": [{\"tokens\": 0, \"us\": 2.5}, {\"tokens\": 10, \"us\": \"15/2\"}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_compute compute;
  struct copse_compute_point *points = NULL;
  ASSERT_OK(copse_compute_parse("c.json", text, strlen(text), &compute, &points, &err), &err);
  ck_assert_int_eq(compute.n_points, 2);
  NEAR(copse_compute_us(&compute, 5), 5);
  free(points);
}
END_TEST

/* ---- on a topology ----------------------------------------------------------------------------
 */

/* Two ranks, 10 GB/s there and 5 GB/s back. */
static const char uneven[] =
    "{\"format\": \"copse-topology/1\", \"name\": \"uneven\", \"nodes\": [{\"id\": \"a\", "
    "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}], \"links\": [{\"src\": \"a\", "
    "\"dst\": \"b\", \"bandwidth\": 10, \"duplex\": false}, {\"src\": \"b\", \"dst\": \"a\", "
    "\"bandwidth\": 5, \"duplex\": false}]}";

/* Three ranks on a switch, 10 GB/s each way. */
static const char star[] =
    "{\"format\": \"copse-topology/1\", \"name\": \"star\", \"nodes\": [{\"id\": \"a\", "
    "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": "
    "\"gpu\"}, {\"id\": \"s\", \"type\": \"switch\"}], \"links\": [{\"src\": \"a\", \"dst\": "
    "\"s\", \"bandwidth\": 10}, {\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": 10}, {\"src\": "
    "\"c\", \"dst\": \"s\", \"bandwidth\": 10}]}";

static struct copse_topology *read_topology(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_parse("t.json", text, strlen(text), NULL, &t, &err), &err);
  return t;
}

static struct copse_schedule *solve(const struct copse_topology *t, const int64_t *demand) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s = NULL;
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .demand = demand, .label = "t.json"};
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  return s;
}

/* As pure links (_i) and as plans. */
START_TEST(the_combine_is_the_dispatch_the_other_way_round) {
  bool links = _i == 1;
  const int64_t demand[4] = {0, 1000000, 0, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = read_topology(uneven);
  struct copse_schedule *s = solve(t, demand);
  struct copse_prediction both[2];
  struct copse_predict_options options = copse_predict_defaults;
  struct copse_overlap_row rows[1];
  int n, best, degrees[] = {1};
  double share;
  options.links = links;
  copse_predict_alpha(&options, 0);
  ASSERT_OK(copse_overlap_predict(s, t, &options, both, &n, &err), &err);
  ck_assert_int_eq(n, 2);
  ASSERT_OK(copse_overlap_busiest_share(s, &share, &err), &err);
  NEAR(share, 1);
  struct copse_overlap_problem problem = {.topology = t,
                                          .dispatch = &both[0],
                                          .combine = &both[1],
                                          .bytes = 1e6,
                                          .combine_bytes = 1e6 * share,
                                          .tokens = 1000,
                                          .compute = {.alpha_us = 7, .us_per_token = 0.1},
                                          .degrees = degrees,
                                          .n_degrees = 1};
  ASSERT_OK(copse_overlap_choose(&problem, rows, &best, &err), &err);
  NEAR(rows[0].dispatch_us, 100);
  NEAR(rows[0].compute_us, 107);
  NEAR(rows[0].combine_us, 200);
  NEAR(rows[0].total_us, 407);
  copse_predictions_free(both, 2);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Two of three ranks send 1 MB to the third: its port takes 2 MB there, and back. */
START_TEST(the_combine_of_a_hot_expert_has_more_to_send) {
  const int64_t demand[9] = {0, 0, 1000000, 0, 0, 1000000, 0, 0, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = read_topology(star);
  struct copse_schedule *s = solve(t, demand);
  struct copse_prediction both[2];
  struct copse_predict_options options = copse_predict_defaults;
  int n;
  double share, us, bytes = 1e6;
  options.links = _i == 1;
  copse_predict_alpha(&options, 0);
  ASSERT_OK(copse_overlap_predict(s, t, &options, both, &n, &err), &err);
  ASSERT_OK(copse_overlap_busiest_share(s, &share, &err), &err);
  NEAR(share, 2);
  ASSERT_OK(copse_predictions_time(t, &both[0], 1, &bytes, 1, false, &us, &err), &err);
  NEAR(us, 200);
  bytes *= share;
  ASSERT_OK(copse_predictions_time(t, &both[1], 1, &bytes, 1, false, &us, &err), &err);
  NEAR(us, 200);
  copse_predictions_free(both, 2);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* The row that wins must be the least of what the parts give, whatever the order of degrees. */
static int winner(const struct copse_overlap_problem *p, struct copse_overlap_row *rows) {
  struct copse_err err = COPSE_ERR_INIT;
  int best;
  ASSERT_OK(copse_overlap_choose(p, rows, &best, &err), &err);
  for (int i = 0; i < p->n_degrees; i++) {
    struct copse_sim_result alone;
    ASSERT_OK(copse_simulate(p->topology, &p->dispatch->dag, &p->dispatch->sim,
                             p->bytes / p->degrees[i], &alone, NULL, &err),
              &err);
    NEAR(rows[i].dispatch_us, alone.us);
    NEAR(rows[i].compute_us, copse_compute_us(&p->compute, p->tokens / p->degrees[i]));
    ck_assert_double_ge(rows[i].total_us, rows[best].total_us);
  }
  return rows[best].degree;
}

START_TEST(degrees_pay_where_experts_compute_and_not_where_latency_rules) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = read_topology(uneven);
  struct copse_schedule *s = solve(t, NULL);
  struct copse_prediction both[2];
  struct copse_overlap_row rows[5];
  int n;
  int degrees[] = {8, 1, 4, 2, 16};
  ASSERT_OK(copse_overlap_predict(s, t, NULL, both, &n, &err), &err);
  ck_assert_int_eq(n, 1);
  struct copse_overlap_problem p = {.topology = t,
                                    .dispatch = &both[0],
                                    .bytes = 100e6,
                                    .tokens = 10000,
                                    .compute = {.alpha_us = 1, .us_per_token = 1},
                                    .degrees = degrees,
                                    .n_degrees = 5};
  ck_assert_int_gt(winner(&p, rows), 1);
  p.compute.us_per_token = 0; /* nothing to hide behind: every part costs 1 us and latency */
  p.bytes = 1000;
  p.compute.alpha_us = 50;
  ck_assert_int_eq(winner(&p, rows), 1);
  p.network = COPSE_OVERLAP_SHARED;
  ck_assert_int_eq(winner(&p, rows), 1);
  degrees[0] = 0;
  int best;
  ASSERT_FAILS(copse_overlap_choose(&p, rows, &best, &err), COPSE_INVALID, &err, "degree");
  copse_predictions_free(both, 2);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/overlap");
  TCase *tc = tcase_create("overlap");
  tcase_add_test(tc, pipelines_worked_out_by_hand);
  tcase_add_test(tc, no_order_of_the_all_to_alls_is_shorter_than_dispatches_first);
  tcase_add_test(tc, a_shared_network_agrees_with_a_simulation_in_ticks);
  tcase_add_test(tc, a_pipeline_is_never_shorter_than_its_network_or_its_experts);
  tcase_add_test(tc, compute_times_follow_the_line_or_the_table);
  tcase_add_test(tc, bad_tables_are_refused_with_their_line);
  tcase_add_test(tc, a_good_table_is_read);
  tcase_add_loop_test(tc, the_combine_is_the_dispatch_the_other_way_round, 0, 2);
  tcase_add_loop_test(tc, the_combine_of_a_hot_expert_has_more_to_send, 0, 2);
  tcase_add_test(tc, degrees_pay_where_experts_compute_and_not_where_latency_rules);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
