/* Choosing among schedules by message size, on random fabrics. */
#include "predict/candidates.h"

#include <math.h>
#include <stdio.h>

#include "verify/verify.h"
#include "support/oracle.h"
#include "support/random.h"
#include "support/random_topology.h"
#include "support/support.h"

#define SMALLEST ((uint64_t)1 << 10)
#define LARGEST ((uint64_t)1 << 30)
#define PACKETS ((uint64_t)1 << 18)

/* Every candidate is a right schedule, none faster than the bound of the first allows. */
static void check_candidates(const struct copse_candidates *c, copse_collective collective) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q least = c->list[0].schedule->time_per_GB;
  ck_assert_str_eq(c->list[0].name, "optimal");
  for (int i = 0; i < c->n; i++) {
    const struct copse_schedule *s = c->list[i].schedule;
    const char *defect = s->objective.bytes > 0 || !c->list[i].owned
                             ? NULL
                             : copse_test_schedule_defect(s, c->topology);
    struct copse_verify_report report;
    ck_assert_msg(defect == NULL, "%s: %s", c->list[i].name, defect);
    ASSERT_OK(copse_verify_schedule(s, c->topology, "s.json", &report, &err), &err);
    if (collective != COPSE_ALLREDUCE &&
        s->objective.bytes == 0) /* whose optimum is among schedules of its kind */
      ck_assert_msg(copse_q_cmp(s->time_per_GB, least) >= 0, "%s beats the optimum",
                    c->list[i].name);
  }
}

/* Whether it is no more than 1 % slower than another, or 3 % more than one with more hops. */
static bool is_near(const struct copse_candidates *c, const double *us, int chosen, int other) {
  bool higher = copse_proposal_hops(c->list[other].schedule) >
                copse_proposal_hops(c->list[chosen].schedule);
  return us[chosen] <= (higher ? 1.0403001 : 1.0100001) * us[other];
}

/* The times are those of single simulations, and none is much shorter than the chosen one; where
 * there is none, the first is faster than the busiest link alone, or the message is too long. */
static void check_best(const struct copse_candidates *c, uint64_t size, int chosen) {
  struct copse_err err = COPSE_ERR_INIT;
  double us[2][COPSE_MAX_CANDIDATES], bytes[] = {1, (double)size};
  ASSERT_OK(copse_candidates_time(c, bytes, 2, true, us, &err), &err);
  for (int i = 0; i < c->n; i++) {
    struct copse_sim_result alone;
    struct copse_sim_options quick = c->predictions[i].sim;
    quick.max_steps /= 8;
    ASSERT_OK(
        copse_simulate(c->topology, &c->predictions[i].dag, &quick, bytes[1], &alone, NULL, &err),
        &err);
    if (isinf(us[1][i])) {
      uint64_t most = c->list[i].most_bytes;
      ck_assert(alone.us > us[1][0] || (most > 0 && size > most));
      continue;
    }
    ck_assert(alone.us == us[1][i]);
    ck_assert_msg(is_near(c, us[1], chosen, i), "at %g bytes %s takes %g us, %s %g", bytes[1],
                  c->list[chosen].name, us[1][chosen], c->list[i].name, us[1][i]);
  }
}

/* Beside a border the chosen one is near all others, or a little further inside its range, since a
 * plan is not for few bytes; then the range says what is lost. */
static void check_near(const struct copse_candidates *c, uint64_t end, uint64_t inside,
                       const struct copse_candidate_range *range) {
  struct copse_err err = COPSE_ERR_INIT;
  double us[1][COPSE_MAX_CANDIDATES], bytes = (double)end;
  int chosen = range->candidate;
  bool near = true;
  ASSERT_OK(copse_candidates_time(c, &bytes, 1, true, us, &err), &err);
  if (isinf(us[0][chosen])) { /* not asked, since the first is faster, though not by enough */
    double own[1][COPSE_MAX_CANDIDATES];
    ASSERT_OK(copse_candidates_time_of(c, chosen, &bytes, 1, own, &err), &err);
    us[0][chosen] = own[0][chosen];
  }
  for (int i = 0; i < c->n; i++) {
    near = near && is_near(c, us[0], chosen, i);
    ck_assert_msg(us[0][chosen] <= us[0][i] * (1 + range->loss) * (1 + 1e-9),
                  "at %g bytes %s takes %.12g us, %s %.12g, and a loss of %g at %llu bytes is stated", bytes,
                  c->list[chosen].name, us[0][chosen], c->list[i].name, us[0][i], range->loss,
                  (unsigned long long)range->loss_bytes);
  }
  if (!near) check_best(c, inside, chosen);
}

/* The loss that a range states is none where it is 0, and found at its size; no size has more. */
static void check_loss(const struct copse_candidates *c, uint64_t size,
                       const struct copse_candidate_range *range) {
  double us[1][COPSE_MAX_CANDIDATES], bytes = (double)size;
  struct copse_err err = COPSE_ERR_INIT;
  int taken = range->candidate;
  ASSERT_OK(copse_candidates_time(c, &bytes, 1, true, us, &err), &err);
  for (int i = 0; i < c->n; i++) ck_assert(us[0][taken] <= us[0][i] * (1 + range->loss + 2e-9));
  if (range->loss == 0) ck_assert_int_eq(range->fastest, taken);
  if (range->loss == 0 || size != range->loss_bytes) return;
  ck_assert_double_eq_tol(us[0][taken], us[0][range->fastest] * (1 + range->loss), 1e-9 * us[0][0]);
  ck_assert_int_eq(range->fewer_hops, copse_proposal_hops(c->list[range->fastest].schedule) -
                                          copse_proposal_hops(c->list[taken].schedule));
}

/* Where a candidate's range begins it is no slower than the one before it, but for fewer hops. Beside
 * the border none is much faster than what is taken. */
static void check_border(const struct copse_candidates *c,
                         const struct copse_candidate_range *before,
                         const struct copse_candidate_range *range) {
  double us[2][COPSE_MAX_CANDIDATES],
      bytes[] = {(double)range->min_bytes, exp2(ceil(log2((double)range->min_bytes)))};
  struct copse_err err = COPSE_ERR_INIT;
  bool lower = copse_proposal_hops(c->list[range->candidate].schedule) <
               copse_proposal_hops(c->list[before->candidate].schedule);
  ASSERT_OK(copse_candidates_time(c, bytes, 2, true, us, &err), &err);
  if (bytes[0] < bytes[1])
    ck_assert(us[0][range->candidate] <= us[0][before->candidate] * (lower ? 1.03 : 1) * (1 + 1e-9));
  ck_assert(isfinite(us[0][range->candidate]) && isfinite(us[1][range->candidate]));
  ck_assert(range->max_bytes - range->min_bytes >= range->min_bytes / 16);
  check_near(c, before->max_bytes, before->max_bytes - before->max_bytes / 16, before);
  check_near(c, range->min_bytes, range->min_bytes + range->min_bytes / 16, range);
}

static int check_ranges(const struct copse_candidates *c) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_candidate_range ranges[COPSE_MAX_RANGES];
  int n = -1, at = 0; /* n is set, whatever it was */
  ASSERT_OK(copse_candidates_ranges(c, SMALLEST, LARGEST, ranges, &n, &err), &err);
  ck_assert(n >= 1 && ranges[0].min_bytes == 0 && ranges[n - 1].max_bytes == INT64_MAX);
  for (int i = 0; i < n; i++) ck_assert(isfinite(ranges[i].loss));
  for (int i = 1; i < n; i++) {
    ck_assert(ranges[i].min_bytes == ranges[i - 1].max_bytes + 1);
    ck_assert_int_ne(ranges[i].candidate, ranges[i - 1].candidate);
    check_border(c, &ranges[i - 1], &ranges[i]);
  }
  for (uint64_t size = SMALLEST; size <= LARGEST; size *= 2) {
    while (size > ranges[at].max_bytes) at++;
    ck_assert(size >= ranges[at].min_bytes);
    check_best(c, size, ranges[at].candidate);
    check_loss(c, size, &ranges[at]);
    if (size == PACKETS && ranges[at].max_bytes == size) /* where packets end */
      check_best(c, size + 1, ranges[at + 1].candidate);
  }
  return n;
}

/* The searches of all sizes are one line of progress, which neither falls nor passes its end. */
struct watch {
  int64_t done, total;
  int n;
};

static void watch_search(void *ctx, const char *phase, int64_t done, int64_t total) {
  struct watch *w = ctx;
  if (!strstr(phase, "search")) return;
  ck_assert_int_le(done, total);
  ck_assert_int_ge(done, w->done);
  ck_assert(w->n++ == 0 || total == w->total);
  w->done = done;
  w->total = total;
}

START_TEST(every_size_has_its_best_candidate) {
  static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                         COPSE_BROADCAST, COPSE_REDUCE};
  static const struct copse_test_random_options shape = {3, 8, 5, true, true};
  int several = 0;
  for (uint64_t seed = COPSE_TEST_UP_TO(0u, 2u); seed < (copse_test_all() ? 12u : 3u); seed++) {
    uint64_t state = 900 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_candidates candidates;
    struct copse_solve_seconds seconds;
    struct copse_topology *topology = copse_test_random_topology(&state, &shape);
    bool rooted = all[_i] == COPSE_BROADCAST || all[_i] == COPSE_REDUCE;
    struct copse_solve_options options = {
        .collective = all[_i],
        .root = rooted ? copse_test_random_int(&state, 0, topology->n_ranks - 1) : -1,
        .tolerance = COPSE_Q_ZERO,
        .label = "random"};
    ASSERT_OK(copse_candidates_make(topology, &options, NULL, &candidates, &seconds, &err), &err);
    ck_assert_int_ge(candidates.n, 2);
    if (seed == 2 && (COPSE_TEST_RESULTS || _i == 2)) {
      struct watch watch = {0, 0, 0};
      const struct copse_progress progress = {.report = watch_search, .ctx = &watch};
      options.progress = &progress;
      ASSERT_OK(copse_candidates_search(&candidates, &options, PACKETS, &err), &err);
      ck_assert_int_ge(watch.n, 6); /* there are six sizes */
      ck_assert_int_gt(2 * watch.done, watch.total);
    }
    if (seed % 2 == 0) ASSERT_OK(copse_candidates_packets(&candidates, PACKETS, &err), &err);
    check_candidates(&candidates, all[_i]);
    several += check_ranges(&candidates) > 1;
    copse_candidates_free(&candidates);
    copse_topology_free(topology);
  }
  ck_assert_int_gt(several, COPSE_TEST_UP_TO(0, -1));
}
END_TEST

/* What one simulation with 1 / part of the steps says of a candidate. */
static struct copse_sim_result alone(const struct copse_candidates *c, int i, double bytes,
                                     int part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_options options = c->predictions[i].sim;
  struct copse_sim_result result;
  options.max_steps /= part;
  ASSERT_OK(
      copse_simulate(c->topology, &c->predictions[i].dag, &options, bytes, &result, NULL, &err),
      &err);
  return result;
}

/* A message so long that an eighth of the steps makes chunks larger than a plan's. */
START_TEST(those_near_the_fastest_are_simulated_whole) {
  static const struct copse_test_random_options shape = {6, 8, 5, true, true};
  const double bytes = exp2(36);
  uint64_t state = 77;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_candidates c;
  struct copse_solve_seconds seconds;
  struct copse_topology *topology = copse_test_random_topology(&state, &shape);
  struct copse_solve_options options = {
      .collective = COPSE_ALLREDUCE, .root = -1, .tolerance = COPSE_Q_ZERO, .label = "random"};
  double us[1][COPSE_MAX_CANDIDATES], least = INFINITY;
  int again = 0;
  ASSERT_OK(copse_candidates_make(topology, &options, NULL, &c, &seconds, &err), &err);
  ASSERT_OK(copse_candidates_time(&c, &bytes, 1, true, us, &err), &err);
  for (int i = 0; i < c.n; i++)
    if (isfinite(us[0][i])) least = fmin(least, alone(&c, i, bytes, 8).us);
  for (int i = 0; i < c.n; i++) {
    struct copse_sim_result quick = alone(&c, i, bytes, 8);
    bool whole = quick.coarse && quick.us <= 1.08 * least;
    if (isinf(us[0][i])) continue;
    ck_assert(us[0][i] == (whole ? alone(&c, i, bytes, 1).us : quick.us));
    again += whole;
  }
  ck_assert_int_gt(again, 0);
  copse_candidates_free(&c);
  copse_topology_free(topology);
}
END_TEST

START_TEST(only_equal_times_go_to_the_simpler_candidate) {
  const struct copse_candidates three = {.n = 3}, four = {.n = 4};
  const double close[] = {100.9, 100.5, 100, 100}, equal[] = {100 + 1e-8, 100, 100, 99};
  ck_assert_int_eq(copse_candidates_best(&four, close), 2);
  ck_assert_int_eq(copse_candidates_best(&four, equal), 3);
  ck_assert_int_eq(copse_candidates_best(&three, equal), 0);
}
END_TEST

/* Not the fastest at the first size, nor the first that is close there, but what lasts. */
START_TEST(a_plan_is_for_as_many_sizes_as_it_is_close_at) {
  const struct copse_candidates three = {.n = 3};
  double us[4][COPSE_MAX_CANDIDATES] = {
      {100.5, 100, 100.9}, {205, 200, 201}, {300, 304, 302}, {400, 500, 500}};
  int n;
  ck_assert_int_eq(copse_candidates_lasting(&three, us, 4, &n), 2);
  ck_assert_int_eq(n, 3);
  ck_assert_int_eq(copse_candidates_lasting(&three, us + 3, 1, &n), 0);
  ck_assert_int_eq(n, 1);
  ck_assert_int_eq(copse_candidates_lasting(&three, us, 2, &n), 1);
  ck_assert_int_eq(n, 2);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/candidates");
  TCase *tests = tcase_create("candidates");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, only_equal_times_go_to_the_simpler_candidate);
  tcase_add_test(tests, those_near_the_fastest_are_simulated_whole);
  tcase_add_test(tests, a_plan_is_for_as_many_sizes_as_it_is_close_at);
  tcase_add_loop_test(tests, every_size_has_its_best_candidate, 0, 5);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
