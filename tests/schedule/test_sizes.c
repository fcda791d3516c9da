/* Schedules for one message size: on random and symmetric fabrics, beside the candidates that they
 * are chosen from, written and read, and beside a simulator that shares no code with copse
 * (OUTSIDE/peers/alphabeta.py), where that is there. */
#include "predict/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "predict/candidates.h"
#include "predict/exchange.h"
#include "predict/exchange_paths.h"
#include "schedule/loads.h"
#include "support/command.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/random.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "support/symmetric_topology.h"
#include "verify/verify.h"

#define WORK 1e6
#define PEERS COPSE_TEST_OUTSIDE "/peers/"

static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                       COPSE_BROADCAST, COPSE_REDUCE,         COPSE_ALLTOALL};
static const double sizes[] = {1000, 65536, 1048576, 100000000};

static struct copse_solve_options options_of(const struct copse_topology *t, copse_collective c,
                                             uint64_t *state) {
  bool rooted = c == COPSE_BROADCAST || c == COPSE_REDUCE;
  return (struct copse_solve_options){
      .collective = c,
      .root = rooted ? copse_test_random_int(state, 0, t->n_ranks - 1) : -1,
      .tolerance = COPSE_Q_ZERO,
      .label = "random"};
}

static struct copse_size_answer solve(const struct copse_topology *t,
                                      const struct copse_solve_options *options, double bytes,
                                      const struct copse_predict_options *predict) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_size_answer answer;
  const struct copse_size_question question = {
      .solve = options, .predict = predict, .bytes = bytes, .work = WORK};
  ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
  return answer;
}

static double predicted(const struct copse_topology *t, const struct copse_schedule *schedule,
                        double bytes, const struct copse_predict_options *predict) {
  struct copse_err err = COPSE_ERR_INIT;
  double us;
  ASSERT_OK(copse_predict(t, schedule, predict, &bytes, 1, &us, &err), &err);
  return us;
}

/* A right schedule that takes what is said of it, also once it was written and read. */
static void check_answer(const struct copse_topology *t, const struct copse_size_answer *answer,
                         double bytes, const struct copse_predict_options *predict) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_schedule *again;
  const char *defect =
      answer->schedule->n_trees == 0 ? NULL : copse_test_schedule_defect(answer->schedule, t);
  char *text;
  size_t size;
  ck_assert_msg(defect == NULL, "%s: %s", answer->name, defect);
  ASSERT_OK(copse_verify_schedule(answer->schedule, t, "s.json", &report, &err), &err);
  ck_assert_double_eq_tol(predicted(t, answer->schedule, bytes, predict), answer->us,
                          1e-9 * answer->us);
  ck_assert(answer->us >= answer->bound_us * (1 - 1e-9));
  ck_assert(answer->us <= answer->first_us * (1 + 1e-9) * (predict->sim.alpha_us > 0 ? 1.03 : 1));
  ASSERT_OK(copse_schedule_to_json(answer->schedule, &text, &size, &err), &err);
  ASSERT_OK(copse_schedule_parse("s.json", text, size, &again, &err), &err);
  ck_assert_double_eq_tol(predicted(t, again, bytes, predict), answer->us, 1e-9 * answer->us);
  ck_assert_int_eq(again->objective.fifo, answer->schedule->objective.fifo);
  ck_assert_int_eq(again->objective.alpha_occupies,
                   answer->chunks > 0 && predict->sim.alpha_occupies);
  copse_schedule_free(again);
  free(text);
}

/* Not slower than any candidate as it is cut by default, but for the model's error where hops cost
 * something, and 2 % for numbers of chunks that are not tried. */
static void check_beside_candidates(const struct copse_topology *t,
                                    const struct copse_solve_options *options, double bytes,
                                    const struct copse_predict_options *predict, double found) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_candidates c;
  double us[COPSE_MAX_CANDIDATES], most = predict->sim.alpha_us > 0 ? 1.03 * 1.02 : 1.02;
  ASSERT_OK(copse_candidates_make(t, options, predict, &c, &seconds, &err), &err);
  ASSERT_OK(copse_predictions_time(t, c.predictions, c.n, &bytes, 1, false, us, &err), &err);
  for (int i = 0; i < c.n; i++)
    ck_assert_msg(found <= most * us[i], "%s takes %g us at %g bytes, the one found %g",
                  c.list[i].name, us[i], bytes, found);
  copse_candidates_free(&c);
}

START_TEST(what_is_found_is_right_and_no_slower_than_what_there_is) {
  static const struct copse_test_random_options shape = {3, 8, 5, true, true};
  const bool mirror =
      all[_i] == COPSE_REDUCE_SCATTER || all[_i] == COPSE_REDUCE; /* of the one before */
  for (uint64_t seed = COPSE_TEST_SWEEPS ? 0 : 1; seed < (COPSE_TEST_SWEEPS ? 8u
                                                          : mirror          ? 2u
                                                                            : 3u);
       seed++) {
    uint64_t state = 7000 + 100 * (uint64_t)_i + seed;
    struct copse_topology *t = seed % 2 ? copse_test_symmetric_topology(&state, 16)
                                        : copse_test_random_topology(&state, &shape);
    struct copse_solve_options options = options_of(t, all[_i], &state);
    struct copse_predict_options predict = copse_predict_defaults;
    double bytes = sizes[copse_test_random_int(&state, 0, 3)];
    if (seed % 4 < 2) copse_predict_alpha(&predict, 0);
    predict.sim.alpha_occupies = seed % 4 == 1;
    struct copse_size_answer answer = solve(t, &options, bytes, &predict);
    check_answer(t, &answer, bytes, &predict);
    if (all[_i] != COPSE_ALLTOALL) check_beside_candidates(t, &options, bytes, &predict, answer.us);
    copse_schedule_free(answer.schedule);
    copse_topology_free(t);
  }
}
END_TEST

/* Hosts of one rank at a network, by cables of uneven speed: exchange makes chains of the slowest
 * rank's trees, which take less together than both phases in turn; the bound must not be theirs. */
START_TEST(trees_that_were_moved_have_a_bound_that_holds_for_them) {
  static const char *const cables[][5] = {
      {"1.3", "1.7", "1.7", "0.61", "0.9"}, {"9", "5", "5", "2", "4"}, {"3", "3", "7", "1", "2"}};
  struct copse_text json = {0};
  copse_text_add(&json, "{\"format\": \"copse-topology/1\", \"nodes\": [");
  for (int r = 0; r < 5; r++)
    copse_text_add(
        &json, "{\"id\": \"g%d\", \"type\": \"gpu\"}, {\"id\": \"h%d\", \"type\": \"switch\"}, ", r,
        r);
  copse_text_add(&json, "{\"id\": \"net\", \"type\": \"switch\"}], \"links\": [");
  for (int r = 0; r < 5; r++)
    copse_text_add(&json,
                   "%s{\"src\": \"g%d\", \"dst\": \"h%d\", \"bandwidth\": 30}, "
                   "{\"src\": \"h%d\", \"dst\": \"net\", \"bandwidth\": %s}",
                   r ? ", " : "", r, r, r, cables[_i][r]);
  copse_text_add(&json, "]}");
  struct copse_topology *t = copse_test_topology(json.data);
  struct copse_solve_options options = {.collective = COPSE_ALLREDUCE,
                                        .root = -1,
                                        .tolerance = COPSE_Q_ZERO,
                                        .equal_shares = true,
                                        .label = "star.json"};
  struct copse_predict_options predict = {.sim = {.alpha_us = 2}};
  struct copse_size_answer answer = solve(t, &options, 4096, &predict);
  check_answer(t, &answer, 4096, &predict);
  copse_schedule_free(answer.schedule);
  copse_topology_free(t);
  copse_text_free(&json);
}
END_TEST

/* A cube: with a tolerance no slower than it says, in fewer trees. */
START_TEST(a_tolerance_saves_trees_and_keeps_to_its_word) {
  struct copse_err err = COPSE_ERR_INIT;
  char json[2048];
  int n = snprintf(json, sizeof json,
                   "{\"format\": \"copse-topology/1\", \"name\": \"cube\", \"nodes\": [");
  for (int i = 0; i < 8; i++)
    n += snprintf(json + n, sizeof json - (size_t)n, "%s{\"id\": \"g%d\", \"type\": \"gpu\"}",
                  i ? ", " : "", i);
  for (int i = 0; i < 12; i++) { /* along each of three directions four */
    int bit = 1 << i % 3, from = i / 3 / bit * 2 * bit + i / 3 % bit;
    n += snprintf(json + n, sizeof json - (size_t)n,
                  "%s{\"src\": \"g%d\", \"dst\": \"g%d\", \"bandwidth\": 50}",
                  i ? ", " : "], \"links\": [", from, from + bit);
  }
  ck_assert_int_lt(n + 3, (int)sizeof json);
  strcpy(json + n, "]}");
  struct copse_topology *t = copse_test_topology(json);
  const struct copse_solve_options options = {
      .collective = COPSE_BROADCAST, .root = 0, .tolerance = COPSE_Q_ZERO, .label = "cube"};
  int n_saved = 0;
  for (int bytes = 32 << 10; bytes <= COPSE_TEST_UP_TO(4 << 20, 32 << 10);
       bytes *= COPSE_TEST_SWEEPS ? 2 : 4) {
    struct copse_size_answer answers[2];
    for (int i = 0; i < 2; i++) {
      const struct copse_size_question question = {.solve = &options,
                                                   .predict = &copse_predict_defaults,
                                                   .bytes = bytes,
                                                   .tolerance = {i, 100},
                                                   .work = WORK};
      struct copse_solve_seconds seconds;
      ASSERT_OK(copse_solve_for_size(t, &question, &answers[i], &seconds, &err), &err);
      check_answer(t, &answers[i], bytes, &copse_predict_defaults);
    }
    ck_assert_int_le(answers[1].schedule->n_trees, answers[0].schedule->n_trees);
    ck_assert(answers[1].us <= answers[0].us * 1.01);
    ck_assert(answers[0].fastest_us == answers[1].fastest_us);
    n_saved += answers[1].schedule->n_trees < answers[0].schedule->n_trees;
    for (int i = 0; i < 2; i++) copse_schedule_free(answers[i].schedule);
  }
  ck_assert_int_gt(n_saved, COPSE_TEST_UP_TO(0, -1));
  copse_topology_free(t);
}
END_TEST

/* Links to and from a switch of 25 to 100 GB/s, and three between GPUs. */
static struct copse_topology *five_gpus(void) {
  static const struct {
    const char *src, *dst;
    double bandwidth, latency;
  } links[] = {{"g0", "s", 25, 0.1},    {"g1", "s", 50, 0.7},  {"g2", "s", 100, 1.3},
               {"g3", "s", 50, 1.3},    {"g4", "s", 50, 0.7},  {"g1", "g2", 12.5, 0.5},
               {"g3", "g4", 50, 0.5}, {"g4", "g0", 25, 0.5}};
  char json[2048];
  int n = snprintf(json, sizeof json, "{\"format\": \"copse-topology/1\", \"name\": \"five\", \"nodes\": [{\"id\": \"s\", \"type\": \"switch\"}");
  for (int i = 0; i < 5; i++)
    n += snprintf(json + n, sizeof json - (size_t)n, ", {\"id\": \"g%d\", \"type\": \"gpu\"}", i);
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    n += snprintf(json + n, sizeof json - (size_t)n,
                  "%s{\"src\": \"%s\", \"dst\": \"%s\", \"bandwidth\": %g, \"latency\": %g}",
                  i ? ", " : "], \"links\": [", links[i].src, links[i].dst, links[i].bandwidth,
                  links[i].latency);
  strcpy(json + n, "]}");
  return copse_test_topology(json);
}

/* Fewer hops may cost 3 %, fewer trees the tolerance, both no more than the larger one; hops are
 * those of the trees as they were exchanged. */
START_TEST(what_is_saved_costs_no_more_than_is_said) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = five_gpus();
  const struct copse_solve_options options = {
      .collective = COPSE_BROADCAST, .root = 0, .tolerance = COPSE_Q_ZERO, .label = "five"};
  static const struct {
    int bytes, percent, work;
  } cases[] = {{1 << 18, 1, 2}, {1 << 19, 2, 4}, {1 << 19, 1, 75}}; /* the last: 3.7 % in sum */
  int n_fewer = 0;
  for (int i = 0; i < (COPSE_TEST_SWEEPS ? 3 : 2); i++) {
    const int bytes = cases[i].bytes, percent = cases[i].percent;
    const struct copse_size_question question = {.solve = &options,
                                                 .predict = &copse_predict_defaults,
                                                 .bytes = bytes,
                                                 .tolerance = {percent, 100},
                                                 .work = cases[i].work * WORK};
    struct copse_size_answer answer;
    struct copse_solve_seconds seconds;
    ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
    check_answer(t, &answer, bytes, &copse_predict_defaults);
    ck_assert_int_eq(answer.hops, copse_schedule_height(answer.schedule));
    ck_assert_int_le(answer.hops, answer.fastest_hops);
    n_fewer += answer.hops < answer.fastest_hops;
    double most = answer.hops < answer.fastest_hops ? 3 : percent;
    ck_assert_double_le(answer.us, answer.fastest_us * (1 + most / 100) * (1 + 1e-8));
    ck_assert_double_le(answer.us, answer.least_us * (1 + percent / 100.) * (1 + 1e-8));
    copse_schedule_free(answer.schedule);
  }
  ck_assert_int_ge(n_fewer, 2);
  copse_topology_free(t);
}
END_TEST

/* One pair's bytes alone take longer than the bound of an even exchange says. */
START_TEST(the_bound_of_an_alltoall_is_its_demands) {
  const int64_t demand[9] = {0, 5, 1, 1, 0, 1, 1, 1, 0};
  struct copse_topology *t = copse_test_topology(
      "{\"format\": \"copse-topology/1\", \"name\": \"three\", \"nodes\": [{\"id\": \"a\", "
      "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"}, "
      "{\"id\": \"s\", \"type\": \"switch\"}], \"links\": [{\"src\": \"a\", \"dst\": \"s\", "
      "\"bandwidth\": 100}, {\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": 100}, {\"src\": \"c\", "
      "\"dst\": \"s\", \"bandwidth\": 100}]}");
  const struct copse_solve_options options = {.collective = COPSE_ALLTOALL,
                                              .root = -1,
                                              .demand = demand,
                                              .tolerance = COPSE_Q_ZERO,
                                              .label = "demand"};
  struct copse_predict_options predict = copse_predict_defaults;
  copse_predict_alpha(&predict, 0);
  struct copse_size_answer answer = solve(t, &options, 6e6, &predict);
  ck_assert_double_eq_tol(answer.bound_us, 60, 1e-6); /* six in, at most, of a row of six */
  ck_assert_double_eq_tol(answer.us, 60, 1e-6);
  copse_schedule_free(answer.schedule);
  copse_topology_free(t);
}
END_TEST

/* Fastest for long messages are two hops, in the host and on the rail, since the spine is slow. At
 * 1 KiB a hop is all that counts. */
START_TEST(an_alltoall_of_few_bytes_takes_one_hop) {
  struct copse_topology *t;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_size_answer answer;
  const struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .tolerance = COPSE_Q_ZERO, .label = "spine"};
  struct copse_size_question question = {.solve = &options,
                                         .predict = &copse_predict_defaults,
                                         .work = WORK / 20}; /* too little to exchange paths */
  ASSERT_OK(copse_topology_synthetic("hosts:4 gpus:8@300 nics:8@25 rails spine@50", NULL, &t, &err),
            &err);
  for (int hops = 1; hops <= 2; hops++) {
    question.bytes = hops == 1 ? 1024 : 1 << 30;
    ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
    ck_assert_int_eq(copse_proposal_hops(answer.schedule), hops);
    ck_assert_double_lt(answer.us, 1.1 * answer.bound_us);
    if (hops == 1) ck_assert_double_gt(answer.first_us, 1.9 * answer.bound_us);
    copse_schedule_free(answer.schedule);
  }
  copse_topology_free(t);
}
END_TEST

/* The bytes of the file, not only its time. */
START_TEST(the_same_question_has_the_same_answer) {
  uint64_t state = 31;
  struct copse_topology *t = copse_test_symmetric_topology(&state, 16);
  struct copse_solve_options options = options_of(t, COPSE_ALLGATHER, &state);
  struct copse_predict_options predict = copse_predict_defaults;
  struct copse_err err = COPSE_ERR_INIT;
  char *texts[2];
  size_t size[2];
  copse_predict_alpha(&predict, 0);
  for (int i = 0; i < 2; i++) {
    struct copse_size_answer answer = solve(t, &options, 262144, &predict);
    ASSERT_OK(copse_schedule_to_json(answer.schedule, &texts[i], &size[i], &err), &err);
    copse_schedule_free(answer.schedule);
  }
  ck_assert_str_eq(texts[0], texts[1]);
  free(texts[0]);
  free(texts[1]);
  copse_topology_free(t);
}
END_TEST

/* A first schedule that is there is not made again: the answer begins with it, whatever it is; with
 * what would be made it is the same. */
START_TEST(what_is_solved_is_not_solved_again) {
  uint64_t state = 31;
  struct copse_topology *t = copse_test_symmetric_topology(&state, 16);
  const copse_collective c = _i ? COPSE_ALLTOALL : COPSE_ALLGATHER;
  struct copse_solve_options options = options_of(t, c, &state);
  struct copse_predict_options predict = copse_predict_defaults;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_size_question question = {
      .solve = &options, .predict = &predict, .bytes = 262144, .work = WORK};
  struct copse_size_answer made = solve(t, &options, 262144, &predict), answer;
  for (int other = 0; other < 2; other++) {
    struct copse_schedule *solved;
    ASSERT_OK(copse_solve_schedule(t, &options, &solved, &seconds, &err), &err);
    if (other) {
      const struct copse_baseline_options like = {.collective = c, .root = -1, .like = solved};
      struct copse_schedule *direct;
      ASSERT_OK(copse_baseline_make(t, _i ? COPSE_BASELINE_PAIRWISE : COPSE_BASELINE_DIRECT, &like,
                                    &direct, NULL, &err),
                &err);
      copse_schedule_free(solved);
      solved = direct;
    }
    ASSERT_OK(copse_schedule_expand(solved, &err), &err);
    question.solved = solved;
    ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
    ck_assert_double_eq_tol(answer.first_us, predicted(t, solved, 262144, &predict),
                            1e-9 * answer.first_us);
    if (!other) ck_assert_double_eq(answer.us, made.us);
    if (other && !_i) ck_assert_double_ne(answer.first_us, made.first_us);
    check_answer(t, &answer, 262144, &predict);
    copse_schedule_free(answer.schedule);
    copse_schedule_free(solved);
  }
  copse_schedule_free(made.schedule);
  copse_topology_free(t);
}
END_TEST

/* A broadcast of 1 GiB to 32 GPUs: a plan of few operations is simulated fast, so that little work
 * is enough for many chunks. The bound is proved by the verifier's own sum (test_bound_at). */
START_TEST(a_plan_of_few_operations_is_cut_finely_in_little_work) {
  struct copse_topology *t;
  struct copse_solve_options options = {
      .collective = COPSE_BROADCAST, .root = 0, .tolerance = COPSE_Q_ZERO, .label = "a100-x4"};
  const struct copse_predict_options predict = copse_predict_defaults;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_size_answer answer;
  const struct copse_size_question question = {
      .solve = &options, .predict = &predict, .bytes = 1 << 30, .work = 5 * WORK};
  ASSERT_OK(copse_topology_load("topologies/a100-x4.json", NULL, &t, &err), &err);
  ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
  ck_assert_msg(answer.us <= answer.bound_us * 1.02, "%g us in %d chunks, the bound %g", answer.us,
                answer.chunks, answer.bound_us);
  copse_schedule_free(answer.schedule);
  copse_topology_free(t);
}
END_TEST

/* Exchanged trees are a forest; the time that the schedule had before is no longer theirs. */
static void check_forest_and_free(struct copse_topology *t, struct copse_schedule *s,
                                  struct copse_routes *routes, struct copse_symmetry *symmetry) {
  const char *defect = copse_test_schedule_defect(s, t);
  ck_assert_msg(defect == NULL || strstr(defect, "time"), "%s", defect);
  copse_symmetry_free(symmetry);
  copse_routes_free(routes);
  copse_schedule_free(s);
  copse_topology_free(t);
}

/* What exchange says of its trees is what the simulator says of them in one chunk, over their own
 * paths; and they are a forest. */
START_TEST(exchange_simulates_as_the_simulator_does) {
  static const copse_collective of[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                        COPSE_BROADCAST};
  for (uint64_t seed = 0; seed < COPSE_TEST_UP_TO(10u, 3u); seed++) {
    uint64_t state = 400 * (uint64_t)(_i + 1) + seed;
    struct copse_topology *t = copse_test_symmetric_topology(&state, 20);
    struct copse_solve_options options = options_of(t, of[_i], &state);
    struct copse_solve_seconds seconds;
    struct copse_symmetry symmetry = {0};
    struct copse_routes routes;
    struct copse_schedule *s;
    struct copse_err err = COPSE_ERR_INIT;
    double us, work = 0, bytes = 100000;
    options.equal_shares = of[_i] == COPSE_ALLREDUCE;
    ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
    ASSERT_OK(copse_schedule_expand(s, &err), &err);
    if (options.root < 0) ASSERT_OK(copse_topology_symmetry(t, &symmetry, &err), &err);
    ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
    const struct copse_exchange x = {.topology = t,
                                     .routes = &routes,
                                     .symmetry = options.root < 0 ? &symmetry : NULL,
                                     .trees = s->trees,
                                     .n_trees = s->n_trees,
                                     .root = options.root,
                                     .bytes = bytes,
                                     .alpha_us = 0.5,
                                     .alpha_occupies = seed % 2 == 1,
                                     .far_first = seed % 4 < 2,
                                     .grow = seed % 5 < 2,
                                     .pieces = 2,
                                     .fold = seed % 3 == 2,
                                     .most_transfers = 5000,
                                     .beat_us = INFINITY,
                                     .work = 2e5};
    ASSERT_OK(copse_exchange_edges(&x, &s->arena, &s->trees, &s->n_trees, &us, &work, &err), &err);
    ck_assert(work > 0);
    s->objective = (struct copse_schedule_objective){
        .bytes = (int64_t)bytes, .chunks = 1, .far_first = x.far_first};
    struct copse_predict_options predict = copse_predict_defaults;
    predict.links = true;
    predict.chunk_bytes = 1e12;
    predict.sim = copse_sim_defaults;
    predict.sim.alpha_us = 0.5;
    predict.sim.alpha_occupies = x.alpha_occupies;
    /* folded, images of one tree that ask at one moment have no turns */
    ck_assert_double_eq_tol(predicted(t, s, bytes, &predict), us, (x.fold ? 0.1 : 1e-9) * us);
    check_forest_and_free(t, s, &routes, &symmetry);
  }
}
END_TEST

static int trees_of(const struct copse_schedule_tree *trees, int n, int root,
                    enum copse_phase phase) {
  int found = 0;
  for (int i = 0; i < n; i++) found += trees[i].root == root && trees[i].phase == phase;
  return found;
}

/* Into how many pieces a root's trees of both phases, each phase from 0 to all, cut its data. */
static int cuts_of(const struct copse_schedule *s, int root) {
  double ends[64];
  int n = 0;
  for (int phase = 0; phase < 2; phase++) {
    double end = 0;
    for (int i = 0; i < s->n_trees; i++) {
      if (s->trees[i].root != root || (int)s->trees[i].phase != phase) continue;
      end += copse_q_to_double(s->trees[i].weight);
      int at = 0;
      while (at < n && fabs(ends[at] - end) > 1e-9) at++;
      if (at == n) ends[n++] = end;
    }
  }
  return n;
}

/* Trees are cut until there are as many for a root as are asked for, all alike often; where nothing
 * may be tried, no oftener. */
static bool check_first_pieces(const struct copse_topology *t, const struct copse_routes *routes,
                               int k, bool both, int pieces) {
  const struct copse_solve_options options = {
      .collective = both ? COPSE_ALLREDUCE : COPSE_ALLGATHER,
      .root = -1,
      .k = k,
      .equal_shares = both,
      .label = "ring"};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s;
  double us, work = 0;
  int had[4], pieces_had = 0, times = 1;
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  for (int r = 0; r < 4; r++) pieces_had += had[r] = cuts_of(s, r);
  while (times * pieces_had < 4 * pieces) times++;
  const struct copse_exchange x = {.topology = t,
                                   .routes = routes,
                                   .trees = s->trees,
                                   .n_trees = s->n_trees,
                                   .root = -1,
                                   .bytes = 1e6,
                                   .alpha_us = 0.5,
                                   .pieces = pieces,
                                   .beat_us = INFINITY,
                                   .work = 1};
  ASSERT_OK(copse_exchange_edges(&x, &s->arena, &s->trees, &s->n_trees, &us, &work, &err), &err);
  for (int r = 0; r < 4; r++) {
    int sent = trees_of(s->trees, s->n_trees, r, COPSE_PHASE_BROADCAST);
    int summed = trees_of(s->trees, s->n_trees, r, COPSE_PHASE_REDUCE);
    ck_assert_msg(sent == times * had[r] && summed == (both ? sent : 0),
                  "k %d, %d pieces, root %d: %d and %d trees, not %d times %d", k, pieces, r, sent,
                  summed, times, had[r]);
  }
  copse_schedule_free(s);
  return pieces_had > 4 && times > 1;
}

START_TEST(exchange_begins_with_as_many_trees_as_are_asked_for) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  struct copse_routes routes;
  int several = 0;
  ASSERT_OK(copse_topology_synthetic("ring:4@50", NULL, &t, &err), &err);
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  for (int k = 1; k <= 2; k++)
    for (int both = 0; both < 2; both++)
      for (int pieces = 1; pieces <= 5; pieces++)
        several += check_first_pieces(t, &routes, k, both, pieces);
  ck_assert_int_gt(several, 0);
  copse_routes_free(&routes);
  copse_topology_free(t);
}
END_TEST

/* A ring of four: three shares come in over two links, in 2 turns as wholes, in 3 of half the length as
 * halves; each turn takes 1 us more. Of little by little the fewest turns are best. */
START_TEST(pieces_begin_with_the_number_that_fills_all_links) {
  struct copse_topology *t = copse_test_topology(
      "{\"format\": \"copse-topology/1\", \"name\": \"ring\", \"nodes\": [{\"id\": \"a\", "
      "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"}, "
      "{\"id\": \"d\", \"type\": \"gpu\"}], \"links\": ["
      "{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 50, \"latency\": 0.5}, "
      "{\"src\": \"b\", \"dst\": \"c\", \"bandwidth\": 50, \"latency\": 0.5}, "
      "{\"src\": \"c\", \"dst\": \"d\", \"bandwidth\": 50, \"latency\": 0.5}, "
      "{\"src\": \"d\", \"dst\": \"a\", \"bandwidth\": 50, \"latency\": 0.5}]}");
  static const int large[] = {2, 4, 6, 8}, small[] = {1, 2, 3, 4};
  for (int turn = 0; turn < 4; turn++) {
    ck_assert_int_eq(copse_pieces_at_turn(t, -1, 4e9, 0.5, INFINITY, turn), large[turn]);
    ck_assert_int_eq(copse_pieces_at_turn(t, -1, 4, 0.5, INFINITY, turn), small[turn]);
    /* Halves take 30,003 us, quarters 30,006; with none that may be faster all have their turn. */
    ck_assert_int_eq(copse_pieces_at_turn(t, -1, 4e9, 0.5, 30004, turn), 2);
    ck_assert_int_eq(copse_pieces_at_turn(t, -1, 4e9, 0.5, 30007, turn), turn % 2 ? 4 : 2);
    ck_assert_int_eq(copse_pieces_at_turn(t, -1, 4e9, 0.5, 30000, turn), large[turn]);
  }
  copse_topology_free(t);
}
END_TEST

/* Paths are exchanged, amounts are not: each pair has what it had, in as many pieces as were asked
 * for, over paths that verify accepts. */
START_TEST(exchange_of_paths_keeps_the_demand) {
  for (uint64_t seed = 0; seed < COPSE_TEST_UP_TO(8u, 2u); seed++) {
    uint64_t state = 6100 + seed;
    struct copse_topology *t = copse_test_symmetric_topology(&state, 16);
    struct copse_solve_options options = options_of(t, COPSE_ALLTOALL, &state);
    struct copse_solve_seconds seconds;
    struct copse_verify_report report;
    struct copse_routes routes;
    struct copse_schedule *s;
    struct copse_err err = COPSE_ERR_INIT;
    double work = 0;
    options.tolerance = (struct copse_q){1, 20};
    ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
    ASSERT_OK(copse_schedule_expand(s, &err), &err);
    ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
    const struct copse_schedule_flow *before = s->flows;
    const struct copse_exchange_paths x = {.topology = t,
                                           .routes = &routes,
                                           .flows = before,
                                           .n_flows = s->n_flows,
                                           .bytes = 100000,
                                           .alpha_us = 0.5,
                                           .pieces = 1 + (int)seed % 4,
                                           .seed = seed,
                                           .work = 1e5};
    ASSERT_OK(copse_exchange_flows(&x, &s->arena, &s->flows, &work, &err), &err);
    ck_assert(work > 0);
    for (int f = 0; f < s->n_flows; f++) {
      int same = 0;
      double weights[2] = {0, 0};
      while (before[same].src != s->flows[f].src || before[same].dst != s->flows[f].dst) same++;
      ck_assert_int_eq(s->flows[f].n_paths, x.pieces);
      for (int p = 0; p < x.pieces; p++)
        weights[0] += copse_q_to_double(s->flows[f].paths[p].weight);
      for (int p = 0; p < before[same].n_paths; p++)
        weights[1] += copse_q_to_double(before[same].paths[p].weight);
      ck_assert_double_eq_tol(weights[0], weights[1], 1e-12);
    }
    ASSERT_OK(copse_flow_time(t, s->flows, s->n_flows, &s->time_per_GB, &err), &err);
    ASSERT_OK(copse_verify_schedule(s, t, "s.json", &report, &err), &err);
    copse_schedule_free(s);
    copse_routes_free(&routes);
    copse_topology_free(t);
  }
}
END_TEST

/* Of whole shares 59 come over six links into each GPU of a 3x4x5 torus, in no fewer than ten
 * rounds of latency and bytes over bandwidth, and 24 over two into a corner of a 5x5 mesh, in
 * twelve. Trees that grow come in as few before anything is exchanged; a reduction, which grows
 * backwards and waits in another order, in eleven. */
START_TEST(trees_that_grow_leave_no_link_idle) {
  static const struct {
    const char *fabric;
    copse_collective collective;
    int rounds, most;
  } cases[] = {{"torus:3x4x5@50", COPSE_ALLGATHER, 10, 10},
               {"torus:3x4x5@50", COPSE_REDUCE_SCATTER, 10, 11},
               {"mesh:5x5@50", COPSE_ALLGATHER, 12, 13}};
  struct copse_topology *t;
  struct copse_solve_seconds seconds;
  struct copse_symmetry symmetry = {0};
  struct copse_routes routes;
  struct copse_schedule *s;
  struct copse_err err = COPSE_ERR_INIT;
  double us, work = 0, once_us, once = 0;
  ASSERT_OK(copse_topology_synthetic(cases[_i].fabric, NULL, &t, &err), &err);
  const struct copse_solve_options options = {
      .collective = cases[_i].collective, .root = -1, .label = "torus", .k = 1};
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  ASSERT_OK(copse_schedule_expand(s, &err), &err);
  ASSERT_OK(copse_topology_symmetry(t, &symmetry, &err), &err);
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  struct copse_exchange x = {.topology = t,
                             .routes = &routes,
                             .symmetry = &symmetry,
                             .trees = s->trees,
                             .n_trees = s->n_trees,
                             .root = -1,
                             .bytes = 50e3 * t->n_ranks, /* a share takes 1 us */
                             .alpha_us = 0.5,
                             .alpha_occupies = true,
                             .grow = 1, /* once */
                             .fold = true,
                             .pieces = 1,
                             .most_transfers = 5000,
                             .beat_us = INFINITY,
                             .work = 0}; /* no exchange after */
  const struct copse_schedule_tree *trees;
  int n_trees;
  ASSERT_OK(copse_exchange_edges(&x, &s->arena, &trees, &n_trees, &once_us, &once, &err), &err);
  x.grow = 1e9;
  ASSERT_OK(copse_exchange_edges(&x, &s->arena, &s->trees, &s->n_trees, &us, &work, &err), &err);
  double latency = copse_q_to_double(t->links[0].latency);
  ck_assert_double_ge(once_us, us);
  ck_assert_double_le(4 * once, work); /* it kept to its work, of eight times */
  ck_assert_double_ge(us, cases[_i].rounds * (1.5 + latency) * (1 - 1e-9));
  ck_assert_double_le(us, cases[_i].most * (1.5 + latency) * (1 + 1e-9));
  check_forest_and_free(t, s, &routes, &symmetry);
}
END_TEST

/* Trees of many transfers that grow once on a switch, where each rank that one comes to offers a
 * way to each other: of two ways at least one is offered, for three steps. */
START_TEST(offers_of_trees_that_grow_are_work) {
  struct copse_topology *t;
  struct copse_solve_seconds seconds;
  struct copse_routes routes;
  struct copse_schedule *s;
  struct copse_symmetry none = {0};
  struct copse_err err = COPSE_ERR_INIT;
  double us, work = 0;
  const int n = 64, pieces = 2;
  ASSERT_OK(copse_topology_synthetic("torus:4x4x4@50", NULL, &t, &err), &err);
  const struct copse_solve_options options = {
      .collective = COPSE_ALLGATHER, .root = -1, .label = "torus", .k = 1};
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  ASSERT_OK(copse_schedule_expand(s, &err), &err);
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  struct copse_exchange x = {.topology = t,
                             .routes = &routes,
                             .trees = s->trees,
                             .n_trees = s->n_trees,
                             .root = -1,
                             .bytes = 1e6,
                             .alpha_us = 0.5,
                             .grow = 1,
                             .pieces = pieces,
                             .most_transfers = 5000,
                             .beat_us = INFINITY};
  ASSERT_OK(copse_exchange_edges(&x, &s->arena, &s->trees, &s->n_trees, &us, &work, &err), &err);
  ck_assert_double_ge(work, 4.0 * n * pieces * t->n_links / 2);
  check_forest_and_free(t, s, &routes, &none);
}
END_TEST

/* On rails a rank comes to others' places in two hops of 2 us. In trees that grow each worker has
 * few messages to send, 0.18 us each, so that an allgather of 1 KiB takes hardly longer: by others
 * 9 %. */
START_TEST(trees_that_grow_take_small_messages_over_hosts) {
  struct copse_topology *t;
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_solve_options options = {
      .collective = COPSE_ALLGATHER, .root = -1, .tolerance = COPSE_Q_ZERO, .label = "rails"};
  ASSERT_OK(copse_topology_synthetic("hosts:4 gpus:4@300 nics:4@25 rails", NULL, &t, &err), &err);
  struct copse_size_answer answer = solve(t, &options, 1024, &copse_predict_defaults);
  ck_assert_double_ge(answer.us, 2 * copse_predict_defaults.sim.alpha_us);
  ck_assert_double_le(answer.us, 2 * copse_predict_defaults.sim.alpha_us * 1.02);
  copse_schedule_free(answer.schedule);
  copse_topology_free(t);
}
END_TEST

/* An allreduce of 1 MiB of eight GPUs on a switch grows in five pieces of each share too: 9.19 us;
 * it took 9.38 with one, two and four. */
START_TEST(an_allreduce_grows_in_odd_numbers_of_pieces) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_size_answer answer;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic("switch:8@300", NULL, &t, &err), &err);
  const struct copse_solve_options options = {
      .collective = COPSE_ALLREDUCE, .root = -1, .tolerance = COPSE_Q_ZERO, .label = "switch"};
  const struct copse_size_question question = {
      .solve = &options, .predict = &copse_predict_defaults, .bytes = 1 << 20, .work = 5 * WORK};
  ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
  ck_assert_msg(answer.fastest_us < 9.2, "%g us: %s", answer.fastest_us, answer.name);
  copse_schedule_free(answer.schedule);
  copse_topology_free(t);
}
END_TEST

/* A ring of eight whose flows between opposite ranks all go one way round. Dealt by loads, half of
 * each goes the other way, over three ranks: every link has as much to carry, which is the bound.
 */
START_TEST(paths_dealt_by_loads_even_them_out) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"ring\", \"nodes\": [");
  for (int r = 0; r < 8; r++)
    copse_text_add(&text, "%s{\"id\": \"r%d\", \"type\": \"gpu\"}", r ? ", " : "", r);
  copse_text_add(&text, "], \"links\": [");
  for (int r = 0; r < 8; r++)
    copse_text_add(&text,
                   "%s{\"src\": \"r%d\", \"dst\": \"r%d\", \"bandwidth\": 25, \"latency\": 0.7}",
                   r ? ", " : "", r, (r + 1) % 8);
  copse_text_add(&text, "]}");
  struct copse_topology *t = copse_test_topology(text.data);
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .label = "ring", .tolerance = {1, 20}};
  struct copse_solve_seconds seconds;
  struct copse_schedule *s;
  struct copse_routes routes;
  struct copse_err err = COPSE_ERR_INIT;
  double work = 0;
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  ASSERT_OK(copse_schedule_expand(s, &err), &err);
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  struct copse_schedule_flow flows[56];
  struct copse_schedule_path round[56];
  int nodes[56][5];
  ck_assert_int_eq(s->n_flows, 56);
  for (int f = 0; f < 56; f++) {
    flows[f] = s->flows[f];
    if ((flows[f].dst - flows[f].src + 8) % 8 != 4) continue;
    for (int i = 0; i < 5; i++) nodes[f][i] = t->rank_nodes[(flows[f].src + i) % 8];
    round[f] = (struct copse_schedule_path){.nodes = nodes[f], .n_nodes = 5, .weight = {1, 8}};
    flows[f].paths = &round[f];
    flows[f].n_paths = 1;
  }
  struct copse_q before, after;
  ASSERT_OK(copse_flow_time(t, flows, 56, &before, &err), &err);
  ck_assert(copse_q_to_double(before) > 1.2 * copse_q_to_double(s->bound.time_per_GB));
  const struct copse_exchange_paths x = {.topology = t,
                                         .routes = &routes,
                                         .flows = flows,
                                         .n_flows = 56,
                                         .bytes = 65536,
                                         .by_loads = true,
                                         .pieces = 2,
                                         .work = 1}; /* no exchange after */
  ASSERT_OK(copse_exchange_flows(&x, &s->arena, &s->flows, &work, &err), &err);
  ASSERT_OK(copse_flow_time(t, s->flows, 56, &after, &err), &err);
  ck_assert_msg(copse_q_to_double(after) <= 1.1 * copse_q_to_double(s->bound.time_per_GB),
                "%g s/GB, bound %g", copse_q_to_double(after),
                copse_q_to_double(s->bound.time_per_GB));
  copse_schedule_free(s);
  copse_routes_free(&routes);
  copse_topology_free(t);
  copse_text_free(&text);
}
END_TEST

/* The files of the folder in a simulator of others. */
START_TEST(others_come_to_the_same_time) {
  static const struct {
    const char *topology, *collective, *bytes;
    bool occupies;
  } cases[] = {{"sccl-dgx1.json", "allreduce", "1048576", false}, /* the rest, COPSE_TEST_ALL */
               {"bfb-cube4.json", "allgather", "16384", true},
               {"ndv2x2-15.json", "allgather", "240000", false},
               {"bfb-cube4.json", "allgather", "16384", false},
               {"tacos-torus3x3x3.json", "allgather", "65536", true},
               {"sccl-dgx1.json", "reduce_scatter", "262144", false},
               {"sccl-z52.json", "broadcast --root 0", "262144", false}};
  /* what it does not know: of equal times first what has the most hops after it */
  const char *far_first =
      "import json, sys\n"
      "sys.path.insert(0, \"" PEERS
      "\")\n"
      "import alphabeta as a\n"
      "make = a.transfers_of_schedule\n"
      "def turns(s, *rest):\n"
      "  all = make(s, *rest)\n"
      "  after = [0] * len(all)\n"
      "  for i in reversed(range(len(all))):\n"
      "    for d in all[i].deps: after[d] = max(after[d], after[i] + bool(all[i].links))\n"
      "  for i, t in enumerate(all):\n"
      "    if s[\"objective\"].get(\"far_first\"): t.order = -after[i]\n"
      "  return all\n"
      "a.transfers_of_schedule = turns\n"
      "a.main(sys.argv[1:])\n";
  if (access(PEERS "alphabeta.py", R_OK) != 0) COPSE_SKIP("no " PEERS);
  ck_assert_int_eq(
      copse_test_command("@ solve " PEERS "%s -c %s --objective %s -a 0 %s -o %%/s.json",
                         cases[_i].topology, cases[_i].collective, cases[_i].bytes,
                         cases[_i].occupies ? "--alpha-occupies" : ""),
      0);
  const char *at = strstr(copse_test_result.out, "predicted ");
  ck_assert_ptr_nonnull(at);
  double us = strtod(at + strlen("predicted "), NULL);
  char *text = copse_test_read("s.json");
  at = strstr(text, "\"chunks\": ");
  ck_assert_ptr_nonnull(at);
  long chunks = strtol(at + strlen("\"chunks\": "), NULL, 10);
  free(text);
  ck_assert_int_eq(
      copse_test_command("python3 -B -c '%s' %%/s.json " PEERS "%s %s --chunks %ld --alpha 0 %s",
                         far_first, cases[_i].topology, cases[_i].bytes, chunks,
                         cases[_i].occupies ? "--blocking" : ""),
      0);
  ck_assert_double_eq_tol(strtod(copse_test_result.out, NULL), us, us * 1e-5);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/sizes");
  TCase *tests = tcase_create("sizes");
  copse_test_folder();
  tcase_set_timeout(tests, 240);
  tcase_add_loop_test(tests, what_is_found_is_right_and_no_slower_than_what_there_is, 0, 6);
  tcase_add_loop_test(tests, trees_that_were_moved_have_a_bound_that_holds_for_them, 0, 3);
  tcase_add_test(tests, a_tolerance_saves_trees_and_keeps_to_its_word);
  tcase_add_test(tests, what_is_saved_costs_no_more_than_is_said);
  tcase_add_test(tests, the_bound_of_an_alltoall_is_its_demands);
  tcase_add_test(tests, an_alltoall_of_few_bytes_takes_one_hop);
  tcase_add_test(tests, the_same_question_has_the_same_answer);
  tcase_add_loop_test(tests, what_is_solved_is_not_solved_again, 0, 2);
  tcase_add_test(tests, a_plan_of_few_operations_is_cut_finely_in_little_work);
  tcase_add_loop_test(tests, exchange_simulates_as_the_simulator_does, 0, 4);
  tcase_add_test(tests, exchange_begins_with_as_many_trees_as_are_asked_for);
  tcase_add_test(tests, pieces_begin_with_the_number_that_fills_all_links);
  tcase_add_test(tests, offers_of_trees_that_grow_are_work);
  tcase_add_loop_test(tests, trees_that_grow_leave_no_link_idle, 0, 3);
  tcase_add_test(tests, trees_that_grow_take_small_messages_over_hosts);
  tcase_add_test(tests, an_allreduce_grows_in_odd_numbers_of_pieces);
  tcase_add_test(tests, exchange_of_paths_keeps_the_demand);
  tcase_add_test(tests, paths_dealt_by_loads_even_them_out);
  suite_add_tcase(suite, tests);
  if (COPSE_TEST_RESULTS)
    tcase_add_loop_test(copse_test_plain(suite, 240), others_come_to_the_same_time, 0,
                        COPSE_TEST_SWEEPS ? 7 : 1);
  return copse_test_run(suite);
}
