/* The simulator against the plain one, bit by bit, and by any number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/parallel.h"
#include "predict/baseline.h"
#include "predict/simulate.h"
#include "support/fabric.h"
#include "support/plain_simulation.h"
#include "support/random_topology.h"
#include "support/sim_fabric.h"
#include "support/support.h"

static bool same_bits(const double *a, const double *b, size_t n) {
  return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

/* What is asked up to some time is that time, or known to take longer; and steps are a part of those
 * allowed, where they make chunks as small as they need be. */
static void check_questions(const struct copse_topology *t, const struct copse_sim_dag *dag,
                            const struct copse_sim_options *options, double unit_bytes,
                            const struct copse_sim_result *alone) {
  const double most[] = {alone->us, nextafter(alone->us, 0), alone->us * 0.9, alone->us / 3,
                         alone->us * 1.01};
  struct copse_sim_options quick = options ? *options : copse_sim_defaults, all = quick;
  struct copse_sim_question questions[7];
  struct copse_err err = COPSE_ERR_INIT;
  int n = 0;
  for (int i = 0; i < 5 && alone->us > 0; i++)
    questions[n++] = (struct copse_sim_question){
        .dag = dag, .options = options, .unit_bytes = unit_bytes, .most_us = most[i]};
  all.max_steps *= 5;
  quick.max_steps = all.max_steps;
  quick.quick_part = 5;
  questions[n++] = (struct copse_sim_question){.dag = dag, .options = &all, .unit_bytes = unit_bytes};
  questions[n++] = (struct copse_sim_question){.dag = dag, .options = &quick, .unit_bytes = unit_bytes};
  ASSERT_OK(copse_simulate_all(t, questions, n, &err), &err);
  for (int i = 0; i + 2 < n; i++)
    ck_assert_msg(questions[i].result.us == (alone->us <= most[i] ? alone->us : INFINITY),
                  "%.17g us, asked up to %.17g: %.17g", alone->us, most[i], questions[i].result.us);
  ck_assert(questions[n - 1].result.us == (alone->coarse ? questions[n - 2].result.us : alone->us));
  ck_assert_int_eq(questions[n - 1].result.coarse, questions[n - 2].result.coarse);
}

/* The same where latencies keep links busy, which the plain one does not have. */
static void check_occupied(const struct copse_topology *t, const struct copse_sim_dag *dag,
                           const struct copse_sim_options *options, double unit_bytes) {
  struct copse_sim_options occupied = options ? *options : copse_sim_defaults;
  struct copse_sim_result alone;
  struct copse_err err = COPSE_ERR_INIT;
  occupied.alpha_occupies = true;
  ASSERT_OK(copse_simulate(t, dag, &occupied, unit_bytes, &alone, NULL, &err), &err);
  check_questions(t, dag, &occupied, unit_bytes, &alone);
}

/* Time, busiest link, chunks and every arrival; returns the time. */
static double compare(const struct copse_topology *t, const struct copse_sim_dag *dag,
                      const struct copse_sim_options *options, double unit_bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_result plain, fast;
  size_t n = (size_t)dag->n_transfers;
  double *plain_at = calloc(n + 1, sizeof *plain_at), *fast_at = calloc(n + 1, sizeof *fast_at);
  ck_assert(plain_at && fast_at);
  ASSERT_OK(copse_test_plain_simulate(t, dag, options, unit_bytes, &plain, plain_at, &err), &err);
  ASSERT_OK(copse_simulate(t, dag, options, unit_bytes, &fast, fast_at, &err), &err);
  ck_assert_msg(same_bits(&plain.us, &fast.us, 1), "%.17g us, plain %.17g", fast.us, plain.us);
  ck_assert(same_bits(&plain.busiest_us, &fast.busiest_us, 1));
  ck_assert_int_eq(plain.chunks, fast.chunks);
  ck_assert(same_bits(plain_at, fast_at, n));
  check_questions(t, dag, options, unit_bytes, &fast);
  check_occupied(t, dag, options, unit_bytes);
  free(plain_at);
  free(fast_at);
  return plain.us;
}

static struct copse_sim_options random_options(uint64_t *state) {
  struct copse_sim_options o = copse_sim_defaults;
  o.alpha_us = copse_test_random_int(state, 0, 3);
  o.message_us = copse_test_random_int(state, 0, 2) * 0.7;
  o.duplex = copse_test_random_int(state, 0, 2) == 0 ? 1.5 : 1;
  o.reduce_us_per_byte = copse_test_random_int(state, 0, 2) == 0 ? 1e-4 : 0;
  o.min_chunk_bytes = 1 << copse_test_random_int(state, 0, 16);
  o.max_chunk_bytes = 1 << copse_test_random_int(state, 10, 20);
  o.fifo = copse_test_random_int(state, 0, 5);
  o.pipeline_chunks = copse_test_random_int(state, 0, 20);
  o.max_steps = copse_test_random_int(state, 0, 3) == 0 ? 100 : 20000;
  return o;
}

/* ---- transfers made at random ------------------------------------------------------------ */

#define MOST_LINKS 6
#define MOST_WAITS 3

/* Some links, each from where the last one ended; how many. */
static int random_way(uint64_t *state, const struct copse_topology *t, int *links) {
  int n = 0, most = copse_test_random_int(state, 0, MOST_LINKS);
  int at = copse_test_random_int(state, 0, t->n_nodes - 1);
  for (int tries = 0; n < most && tries < 200; tries++) {
    int l = copse_test_random_int(state, 0, t->n_links - 1);
    if (t->links[l].src != at) continue;
    links[n++] = l;
    at = t->links[l].dst;
  }
  return n;
}

static int random_list(uint64_t *state, int most, int below, int *list) {
  int n = below > 0 ? copse_test_random_int(state, 0, most) : 0;
  for (int i = 0; i < n; i++) list[i] = copse_test_random_int(state, 0, below - 1);
  return n;
}

/* Few different amounts and delays, so that many things happen at once. */
static void add_random(uint64_t *state, const struct copse_topology *t, struct copse_sim_dag *dag) {
  struct copse_err err = COPSE_ERR_INIT;
  int links[MOST_LINKS], copies[MOST_LINKS], after[MOST_WAITS], streams[MOST_WAITS];
  struct copse_sim_transfer x = {.links = links,
                                 .after = after,
                                 .streams = streams,
                                 .amount = copse_test_random_int(state, 0, 4) / 4.0,
                                 .reduces = copse_test_random_int(state, 0, 1) == 1};
  x.n_links = random_way(state, t, links);
  x.adder = copse_test_random_int(state, 0, t->n_ranks - 1);
  x.n_after = random_list(state, MOST_WAITS, dag->n_transfers, after);
  x.n_streams = random_list(state, MOST_WAITS, dag->n_transfers, streams);
  if (copse_test_random_int(state, 0, 3) == 0) x.delay_us = copse_test_random_int(state, 0, 5);
  if (copse_test_random_int(state, 0, 3) == 0) x.order = copse_test_random_int(state, -2, 2);
  if (copse_test_random_int(state, 0, 3) == 0) x.order *= copse_test_random_int(state, 1, 1000000000);
  x.worker = copse_test_random_int(state, 0, 2);
  if (copse_test_random_int(state, 0, 3) == 0) {
    for (int i = 0; i < x.n_links; i++) copies[i] = copse_test_random_int(state, -3, 6);
    x.copies = copies;
  }
  ASSERT_OK(copse_sim_dag_add(dag, &x, NULL, &err), &err);
}

START_TEST(random_transfers_take_as_long_to_the_last_bit) {
  static const struct copse_test_random_options shape = {2, 8, 5, true, false};
  uint64_t state = (uint64_t)_i + 900;
  double most = 0;
  for (int i = 0; i < COPSE_TEST_SOME(30); i++) {
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    struct copse_sim_dag dag = {0};
    int n = copse_test_random_int(&state, 0, 60);
    for (int k = 0; k < n; k++) add_random(&state, t, &dag);
    for (int k = 0; k < 4; k++) {
      struct copse_sim_options options = random_options(&state);
      double us = compare(t, &dag, &options, copse_test_random_int(&state, 0, 1 << 24));
      if (us > most) most = us;
    }
    copse_sim_dag_free(&dag);
    copse_topology_free(t);
  }
  ck_assert_double_gt(most, 0);
}
END_TEST

/* ---- schedules and baselines ------------------------------------------------------------- */

static struct copse_topology *random_fabric(uint64_t *state) {
  static const struct copse_test_random_options shape = {2, 10, 5, true, true};
  if (copse_test_random_int(state, 0, 1) == 0) return copse_test_random_topology(state, &shape);
  return copse_test_sim_hosts(copse_test_random_int(state, 2, 4),
                              copse_test_random_int(state, 1, 4),
                              copse_test_random_int(state, 0, 1) == 1);
}

static void compare_sizes(uint64_t *state, const struct copse_topology *t,
                          const struct copse_sim_dag *dag) {
  struct copse_sim_options options = random_options(state);
  (void)compare(t, dag, NULL, 65536);
  (void)compare(t, dag, NULL, 1e6 * copse_test_random_int(state, 1, 1000));
  (void)compare(t, dag, &options, copse_test_random_int(state, 1, 1 << 30));
}

START_TEST(schedules_and_baselines_take_as_long_to_the_last_bit) {
  static const struct copse_baseline_options none = {.collective = COPSE_ALLGATHER};
  copse_collective collective = (copse_collective)_i;
  uint64_t state = (uint64_t)_i + 77;
  for (int i = 0; i < COPSE_TEST_SOME(7); i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = random_fabric(&state);
    struct copse_baseline_options like = none;
    struct copse_sim_dag dag = {0};
    like.collective = collective;
    like.root = copse_collective_rooted(collective) ? 0 : -1;
    struct copse_schedule *s = copse_test_solve_as(
        t, (struct copse_solve_options){.collective = collective, .root = like.root});
    ASSERT_OK(copse_sim_dag_of_schedule(s, t, false, &dag, &err), &err);
    compare_sizes(&state, t, &dag);
    copse_sim_dag_free(&dag);
    copse_schedule_free(s);
    for (int kind = 0; kind < COPSE_N_BASELINES; kind++) {
      if (!copse_baseline_exists((enum copse_baseline)kind, collective) ||
          copse_baseline_make(t, (enum copse_baseline)kind, &like, NULL, &dag, NULL) != COPSE_OK)
        continue;
      compare_sizes(&state, t, &dag);
      copse_sim_dag_free(&dag);
    }
    copse_topology_free(t);
  }
}
END_TEST

/* ---- many at once ------------------------------------------------------------------------ */

#define DAGS 4
#define SIZES 3

START_TEST(many_at_once_are_what_they_are_alone) {
  uint64_t state = 5;
  struct copse_topology *t = copse_test_sim_hosts(3, 4, true);
  struct copse_sim_dag dags[DAGS] = {{0}};
  struct copse_sim_options options[DAGS];
  for (int d = 0; d < DAGS; d++) {
    options[d] = random_options(&state);
    for (int k = 0; k < 50; k++) add_random(&state, t, &dags[d]);
  }
  for (copse_simulate_threads = 0; copse_simulate_threads <= 5; copse_simulate_threads++) {
    struct copse_sim_question questions[DAGS * SIZES];
    struct copse_err err = COPSE_ERR_INIT;
    for (int i = 0; i < DAGS * SIZES; i++)
      questions[i] = (struct copse_sim_question){
          .dag = &dags[i / SIZES], .options = &options[i / SIZES], .unit_bytes = 1e5 * (i + 1)};
    ASSERT_OK(copse_simulate_all(t, questions, DAGS * SIZES, &err), &err);
    for (int i = 0; i < DAGS * SIZES; i++) {
      const struct copse_sim_question *q = &questions[i];
      struct copse_sim_result plain;
      ASSERT_OK(copse_test_plain_simulate(t, q->dag, q->options, q->unit_bytes, &plain, NULL, &err),
                &err);
      ck_assert(same_bits(&plain.us, &q->result.us, 1));
      ck_assert(same_bits(&plain.busiest_us, &q->result.busiest_us, 1));
    }
  }
  copse_simulate_threads = 0;
  for (int d = 0; d < DAGS; d++) copse_sim_dag_free(&dags[d]);
  copse_topology_free(t);
}
END_TEST

/* The second of three sets names a link that isn't there. */
START_TEST(the_first_question_that_fails_is_told) {
  struct copse_topology *t = copse_test_sim_hosts(2, 2, true);
  int good = 0, bad = 1000, worse = 2000;
  struct copse_sim_transfer x = {.links = &good, .n_links = 1, .amount = 1};
  struct copse_sim_dag dags[3] = {{0}};
  struct copse_err made = COPSE_ERR_INIT;
  ASSERT_OK(copse_sim_dag_add(&dags[0], &x, NULL, &made), &made);
  x.links = &bad;
  ASSERT_OK(copse_sim_dag_add(&dags[1], &x, NULL, &made), &made);
  x.links = &worse;
  ASSERT_OK(copse_sim_dag_add(&dags[2], &x, NULL, &made), &made);
  for (copse_simulate_threads = 1; copse_simulate_threads <= 5; copse_simulate_threads++) {
    struct copse_sim_question questions[6];
    struct copse_err err = COPSE_ERR_INIT;
    for (int i = 0; i < 6; i++)
      questions[i] = (struct copse_sim_question){.dag = &dags[i / 2], .unit_bytes = 1};
    ASSERT_FAILS(copse_simulate_all(t, questions, 6, &err), COPSE_INVALID, &err, "link 1000");
  }
  copse_simulate_threads = 0;
  for (int d = 0; d < 3; d++) copse_sim_dag_free(&dags[d]);
  copse_topology_free(t);
}
END_TEST

/* ---- tasks ------------------------------------------------------------------------------- */

struct tally {
  int done[100];
  int fails_from;
};

static copse_status tick(void *arg, int i, struct copse_err *err) {
  struct tally *tally = arg;
  tally->done[i]++;
  return i >= tally->fails_from ? copse_fail(err, COPSE_IO, "task %d", i) : COPSE_OK;
}

START_TEST(every_task_is_done_once_and_the_lowest_failure_told) {
  for (int threads = 0; threads <= 20; threads += 4) {
    struct copse_err err = COPSE_ERR_INIT;
    struct tally all = {.fails_from = 100}, some = {.fails_from = 37};
    ASSERT_OK(copse_parallel(100, threads, tick, &all, &err), &err);
    for (int i = 0; i < 100; i++) ck_assert_int_eq(all.done[i], 1);
    ASSERT_FAILS(copse_parallel(100, threads, tick, &some, &err), COPSE_IO, &err, "task 37");
    for (int i = 0; i <= 37; i++) ck_assert_int_eq(some.done[i], 1);
    ASSERT_OK(copse_parallel(0, threads, tick, &some, &err), &err);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/simulate_threads");
  TCase *tests = tcase_create("all");
  tcase_set_timeout(tests, 300);
  if (COPSE_TEST_RESULTS) { /* one thread each */
    tcase_add_loop_test(tests, random_transfers_take_as_long_to_the_last_bit, 0,
                        COPSE_TEST_SWEEPS ? 10 : 6);
    tcase_add_loop_test(tests, schedules_and_baselines_take_as_long_to_the_last_bit, 0,
                        COPSE_ALLTOALL + 1);
  }
  tcase_add_test(tests, many_at_once_are_what_they_are_alone);
  tcase_add_test(tests, the_first_question_that_fails_is_told);
  tcase_add_test(tests, every_task_is_done_once_and_the_lowest_failure_told);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
