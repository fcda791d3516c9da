/* Switches that copy and add: the optimum over all trees that there are, answers known by hand, the
 * file, and what can't be lowered. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/oracle_trees.h"
#include "support/plan_builder.h"
#include "support/support.h"

static struct copse_schedule *solve(const struct copse_topology *t, copse_collective collective,
                                    bool in_network, bool bound_only) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_options options = {.collective = collective,
                                        .root = -1,
                                        .in_network = in_network,
                                        .bound_only = bound_only,
                                        .label = "t.json"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

/* Trees of equal shares, as an allreduce had before unequal ones. */
static struct copse_schedule *solve_equal(const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_options options = {
      .collective = COPSE_ALLREDUCE, .root = -1, .equal_shares = true, .label = "t.json"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

static void verify(const struct copse_schedule *s, const struct copse_topology *t,
                   struct copse_verify_report *report, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  const char *defect = copse_test_schedule_defect(s, t);
  ck_assert_msg(defect == NULL, "%s: %s", what, defect);
  ck_assert_msg(copse_verify_schedule(s, t, "s.json", report, &err) == COPSE_OK, "%s: %s", what,
                err.text);
}

/* ---- fabrics ------------------------------------------------------------------------------- */

struct writer {
  char text[100000];
  size_t n;
};

static void add(struct writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct writer *w, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  w->n += (size_t)vsnprintf(w->text + w->n, sizeof w->text - w->n, fmt, ap);
  va_end(ap);
  ck_assert_uint_lt(w->n, sizeof w->text);
}

/* Ranks on switches, of which `clever` copy and add, and some links among the ranks. */
static struct copse_topology *draw(uint64_t seed, int clever, int plain) {
  struct writer w = {.n = 0};
  uint64_t state = seed;
  int ranks = copse_test_random_int(&state, 3, 4), links = 0;
  add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"r\", \"nodes\": [");
  for (int v = 0; v < ranks; v++) add(&w, "{\"id\": \"g%d\", \"type\": \"gpu\"}, ", v);
  for (int s = 0; s < clever + plain; s++) {
    bool multicast = s < clever, aggregation = s < clever;
    if (s < clever && copse_test_random_int(&state, 0, 3) == 0) multicast = false;
    add(&w, "%s{\"id\": \"s%d\", \"type\": \"switch\", \"multicast\": %s, \"aggregation\": %s}",
        s ? ", " : "", s, multicast ? "true" : "false", aggregation ? "true" : "false");
  }
  add(&w, "], \"links\": [");
  for (int s = 0; s < clever + plain; s++)
    for (int v = 0; v < ranks; v++)
      if (s == 0 || copse_test_random_int(&state, 0, 2))
        add(&w, "%s{\"src\": \"g%d\", \"dst\": \"s%d\", \"bandwidth\": %d}", links++ ? ", " : "", v,
            s, copse_test_random_int(&state, 1, 9));
  for (int v = 1; v < ranks; v++)
    if (copse_test_random_int(&state, 0, 3) == 0)
      add(&w, ", {\"src\": \"g%d\", \"dst\": \"g%d\", \"bandwidth\": %d}", v - 1, v,
          copse_test_random_int(&state, 1, 9));
  add(&w, "]}");
  return copse_test_topology(w.text);
}

/* ---- optima -------------------------------------------------------------------------------- */

/* One or two such switches: all sets are tried, so the optimum is that over all trees. */
START_TEST(with_few_switches_the_optimum_over_all_trees_is_reached) {
  int faster = 0;
  for (int i = 0; i < 12; i++) {
    int seed = 12 * _i + i;
    struct copse_topology *t = draw((uint64_t)seed, 1 + seed % 3 / 2, seed % 2);
    struct copse_schedule *with = solve(t, COPSE_ALLREDUCE, true, false);
    struct copse_schedule *without = solve(t, COPSE_ALLREDUCE, false, false);
    struct copse_schedule *equal = solve_equal(t);
    struct copse_schedule *bound = solve(t, COPSE_ALLREDUCE, true, true);
    struct copse_verify_report report;
    char what[30];
    snprintf(what, sizeof what, "seed %d", seed);
    double expected = copse_test_all_trees_time(t, COPSE_ALLREDUCE);
    double time = copse_q_to_double(with->time_per_GB);
    verify(with, t, &report, what);
    ck_assert_msg(fabs(time / expected - 1) < 1e-7, "%s: %.12g, all trees %.12g", what, time,
                  expected);
    ck_assert_msg(copse_q_eq(bound->time_per_GB, with->time_per_GB), "%s: bound only", what);
    ck_assert_msg(copse_q_to_double(with->bound.time_per_GB) < expected * (1 + 1e-9), "%s", what);
    ck_assert_msg(copse_q_to_double(without->time_per_GB) > expected * (1 - 1e-9), "%s", what);
    ck_assert(copse_q_cmp(without->time_per_GB, equal->time_per_GB) <= 0);
    faster += copse_q_cmp(with->time_per_GB, equal->time_per_GB) < 0;
    copse_schedule_free(with);
    copse_schedule_free(without);
    copse_schedule_free(equal);
    copse_schedule_free(bound);
    copse_topology_free(t);
  }
  ck_assert_int_gt(faster, 1);
}
END_TEST

START_TEST(with_three_switches_it_lies_between_both) {
  for (int i = 0; i < 3; i++) {
    int seed = 1000 + 3 * _i + i;
    struct copse_topology *t = draw((uint64_t)seed, 3, 0);
    struct copse_schedule *with = solve(t, COPSE_ALLREDUCE, true, false);
    struct copse_schedule *without = solve(t, COPSE_ALLREDUCE, false, false);
    struct copse_verify_report report;
    double expected = copse_test_all_trees_time(t, COPSE_ALLREDUCE);
    verify(with, t, &report, "three switches");
    ck_assert_int_le(copse_q_cmp(with->time_per_GB, without->time_per_GB), 0);
    ck_assert_msg(copse_q_to_double(with->time_per_GB) > expected * (1 - 1e-7), "seed %d", seed);
    copse_schedule_free(with);
    copse_schedule_free(without);
    copse_topology_free(t);
  }
}
END_TEST

/* As schedule/solve/switches.h says: the cut bound holds, and trees that nobody copies for reach it. */
START_TEST(one_phase_alone_is_no_faster) {
  for (int i = 0; i < 6; i++) {
    struct copse_topology *t = draw((uint64_t)(2000 + 6 * _i + i), 1 + i % 2, 0);
    for (int c = 0; c < 2; c++) {
      copse_collective collective = c ? COPSE_REDUCE_SCATTER : COPSE_ALLGATHER;
      struct copse_schedule *s = solve(t, collective, false, false);
      double expected = copse_test_all_trees_time(t, collective);
      double time = copse_q_to_double(s->time_per_GB);
      ck_assert_msg(fabs(time / expected - 1) < 1e-7, "%d: %.12g, all trees %.12g", i, time,
                    expected);
      copse_schedule_free(s);
    }
    copse_topology_free(t);
  }
}
END_TEST

/* Boxes of three GPUs on a switch, each with a NIC of 2, on a rail. */
static struct copse_topology *boxes(int n, int box, const char *marks, const char *nic_marks) {
  struct writer w = {.n = 0};
  add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"boxes\", \"nodes\": [");
  for (int b = 0; b < n; b++) {
    for (int g = 0; g < 3; g++)
      add(&w,
          "{\"id\": \"h%d.g%d\", \"type\": \"gpu\"}, {\"id\": \"h%d.n%d\", \"type\": \"nic\"%s}, ",
          b, g, b, g, nic_marks);
    add(&w, "{\"id\": \"h%d.s\", \"type\": \"nvswitch\"%s}, ", b, marks);
  }
  for (int g = 0; g < 3; g++)
    add(&w, "{\"id\": \"r%d\", \"type\": \"switch\"%s}%s", g, nic_marks, g < 2 ? ", " : "");
  add(&w, "], \"links\": [");
  for (int b = 0; b < n; b++)
    for (int g = 0; g < 3; g++)
      add(&w,
          "%s{\"src\": \"h%d.g%d\", \"dst\": \"h%d.s\", \"bandwidth\": %d}, {\"src\": \"h%d.g%d\", "
          "\"dst\": \"h%d.n%d\", \"bandwidth\": 2}, {\"src\": \"h%d.n%d\", \"dst\": \"r%d\", "
          "\"bandwidth\": 2}",
          b + g ? ", " : "", b, g, b, box, b, g, b, g, b, g, g);
  add(&w, "]}");
  return copse_test_topology(w.text);
}

#define MARKED ", \"multicast\": true, \"aggregation\": true"

static void expect(struct copse_topology *t, struct copse_q time, bool optimal, int copying) {
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, true, false);
  struct copse_verify_report report;
  char text[COPSE_Q_TEXT];
  verify(s, t, &report, "by hand");
  ck_assert_msg(copse_q_eq(s->time_per_GB, time), "%s", copse_q_text(s->time_per_GB, text));
  ck_assert_int_eq(report.optimal, optimal);
  ck_assert_int_eq(s->n_copying > 0, copying > 0);
  copse_schedule_free(s);
  copse_topology_free(t);
}

/* M leaves a box of 6 GB/s in all: 1/6. Marks change nothing there, but in the boxes, where each
 * GPU of 8 GB/s has 5/6 M of each phase to take in and as much to send, 10/48 without them. */
START_TEST(answers_known_by_hand) {
  expect(boxes(2, 6, "", ""), (struct copse_q){5, 24}, false, 0);
  expect(boxes(2, 6, MARKED, ""), (struct copse_q){1, 6}, true, 2);
  expect(boxes(2, 6, MARKED, MARKED), (struct copse_q){1, 6}, true, 2);
  expect(boxes(3, 5, "", ""), (struct copse_q){16, 63}, false, 0);
}
END_TEST

/* Three boxes whose rails don't copy: each box takes in 2/3 M in either phase, at 6 GB/s. No cut
 * says so for any allreduce, the proof over all trees does. */
START_TEST(the_bound_over_all_trees_knows_switches) {
  struct copse_topology *t = boxes(3, 5, MARKED, "");
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, true, false);
  struct copse_verify_report report;
  struct copse_err err = COPSE_ERR_INIT;
  verify(s, t, &report, "three boxes");
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){2, 9}));
  ck_assert_int_eq(s->bound.kind, COPSE_BOUND_FORESTS);
  ck_assert(report.forests_optimal && s->bound.n_potentials > 0);
  ((struct copse_schedule_potential *)s->bound.potentials)[0].node = copse_topology_find(t, "h0.s");
  ASSERT_FAILS(copse_verify_schedule(s, t, "s.json", &report, &err), COPSE_REFUTED, &err,
               "proves nothing at or beside");
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Marks that no tree can use (between boxes, behind NICs that copy nothing), and a box slower than
 * the others: what is found without the option is found with it. */
START_TEST(where_switches_are_of_no_use_it_is_as_without) {
  int unequal = 0;
  for (int slow = 1; slow <= 2; slow++) {
    struct writer w = {.n = 0};
    add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"boxes\", \"nodes\": [");
    for (int v = 0; v < 6; v++)
      add(&w, "{\"id\": \"g%d\", \"type\": \"gpu\"}, {\"id\": \"n%d\", \"type\": \"nic\"}, ", v, v);
    add(&w,
        "{\"id\": \"h0\", \"type\": \"nvswitch\"}, {\"id\": \"h1\", \"type\": \"nvswitch\"}, "
        "{\"id\": \"h2\", \"type\": \"nvswitch\"}, "
        "{\"id\": \"r\", \"type\": \"switch\"" MARKED "}], \"links\": [");
    for (int v = 0; v < 6; v++)
      add(&w,
          "%s{\"src\": \"g%d\", \"dst\": \"h%d\", \"bandwidth\": 12}, {\"src\": \"g%d\", \"dst\": "
          "\"n%d\", \"bandwidth\": 4}, {\"src\": \"n%d\", \"dst\": \"r\", \"bandwidth\": %d}",
          v ? ", " : "", v, v / 2, v, v, v, v < 2 ? slow : 4);
    add(&w, "]}");
    struct copse_topology *t = copse_test_topology(w.text);
    struct copse_schedule *with = solve(t, COPSE_ALLREDUCE, true, false);
    struct copse_schedule *without = solve(t, COPSE_ALLREDUCE, false, false);
    struct copse_schedule *equal = solve_equal(t);
    struct copse_verify_report report;
    verify(with, t, &report, "of no use");
    ck_assert_int_le(copse_q_cmp(with->time_per_GB, without->time_per_GB), 0);
    unequal += copse_q_cmp(with->time_per_GB, equal->time_per_GB) < 0;
    copse_schedule_free(with);
    copse_schedule_free(without);
    copse_schedule_free(equal);
    copse_topology_free(t);
  }
  ck_assert_int_gt(unequal, 0);
}
END_TEST

/* Eight GPUs on one switch: M / b with it, 7/4 M / b without. */
START_TEST(one_switch_halves_an_allreduce) {
  for (int marked = 0; marked < 2; marked++) {
    struct writer w = {.n = 0};
    add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"nvls\", \"nodes\": [");
    for (int g = 0; g < 8; g++) add(&w, "{\"id\": \"g%d\", \"type\": \"gpu\"}, ", g);
    add(&w, "{\"id\": \"s\", \"type\": \"nvswitch\"%s}], \"links\": [", marked ? MARKED : "");
    for (int g = 0; g < 8; g++)
      add(&w, "%s{\"src\": \"g%d\", \"dst\": \"s\", \"bandwidth\": 450}", g ? ", " : "", g);
    add(&w, "]}");
    expect(copse_test_topology(w.text),
           marked ? (struct copse_q){1, 450} : (struct copse_q){7, 1800}, marked, marked);
  }
}
END_TEST

/* ---- symmetries ---------------------------------------------------------------------------- */

static struct copse_schedule *solve_without_symmetry(const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_options options = {.collective = COPSE_ALLREDUCE,
                                        .root = -1,
                                        .in_network = true,
                                        .no_symmetry = true,
                                        .label = "t.json"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

START_TEST(symmetries_leave_times_and_bounds_as_they_are) {
  int counted = 0;
  for (int i = 0; i < 8; i += COPSE_TEST_SWEEPS ? 1 : 3) {
    const char *marks = i % 4 ? MARKED : "", *nic_marks = i % 4 > 1 ? MARKED : "";
    struct copse_topology *t = boxes(2 + _i, i < 4 ? 4 : 7, marks, nic_marks);
    struct copse_schedule *with = solve(t, COPSE_ALLREDUCE, true, false);
    struct copse_schedule *without = solve_without_symmetry(t);
    struct copse_verify_report report;
    verify(with, t, &report, "with symmetries");
    ck_assert(copse_q_eq(with->time_per_GB, without->time_per_GB));
    ck_assert(copse_q_eq(with->bound.time_per_GB, without->bound.time_per_GB));
    counted += with->n_copying > 0;
    copse_schedule_free(with);
    copse_schedule_free(without);
    copse_topology_free(t);
  }
  ck_assert_int_gt(counted, 0);
}
END_TEST

/* Two boxes of two GPUs, whose switches copy and add, and a switch between that does not. */
START_TEST(with_symmetries_too_the_optimum_is_that_over_all_trees) {
  for (int i = 0; i < 6; i++) {
    struct writer w = {.n = 0};
    uint64_t state = (uint64_t)(3000 + 6 * _i + i);
    int box = copse_test_random_int(&state, 1, 9), between = copse_test_random_int(&state, 1, 9);
    add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"r\", \"nodes\": [");
    for (int g = 0; g < 4; g++) add(&w, "{\"id\": \"g%d\", \"type\": \"gpu\"}, ", g);
    for (int s = 0; s < 2; s++) add(&w, "{\"id\": \"s%d\", \"type\": \"switch\"" MARKED "}, ", s);
    add(&w, "{\"id\": \"t\", \"type\": \"switch\"}], \"links\": [");
    for (int g = 0; g < 4; g++)
      add(&w,
          "%s{\"src\": \"g%d\", \"dst\": \"s%d\", \"bandwidth\": %d}, {\"src\": \"g%d\", "
          "\"dst\": \"t\", \"bandwidth\": %d}",
          g ? ", " : "", g, g / 2, box, g, between);
    add(&w, "]}");
    struct copse_topology *t = copse_test_topology(w.text);
    struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, true, false);
    struct copse_verify_report report;
    double expected = copse_test_all_trees_time(t, COPSE_ALLREDUCE);
    double time = copse_q_to_double(s->time_per_GB);
    verify(s, t, &report, "two boxes of two");
    ck_assert_msg(fabs(time / expected - 1) < 1e-7, "%d, %d: %.12g, all trees %.12g", box, between,
                  time, expected);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* 180 GPUs; each link of each way for itself would be too many columns. */
START_TEST(many_boxes_reach_what_leaves_each) {
  expect(boxes(60, 6, MARKED, MARKED), (struct copse_q){1, 6}, true, 1);
}
END_TEST

/* ---- the file, and what is made of it ------------------------------------------------------ */

START_TEST(a_schedule_says_what_it_counts_on) {
  struct copse_topology *t = boxes(2, 6, MARKED, ""), *plain = boxes(2, 6, "", "");
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, true, false), *back;
  struct copse_err err = COPSE_ERR_INIT, wrong = COPSE_ERR_INIT, lowered = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_lower_options options = {0};
  struct copse_plan *plan = NULL;
  char *text, *again;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  ck_assert_ptr_nonnull(strstr(text, "\"in_network\": {\"multicast\": [\"h0.s\",\"h1.s\"]"));
  ASSERT_OK(copse_schedule_parse("s.json", text, size, &back, &err), &err);
  ASSERT_OK(copse_schedule_to_json(back, &again, &size, &err), &err);
  ck_assert_str_eq(text, again);
  ASSERT_OK(copse_verify_schedule(back, t, "s.json", &report, &err), &err);
  ASSERT_FAILS(copse_verify_schedule(back, plain, "s.json", &report, &wrong), COPSE_REFUTED, &wrong,
               "\"in_network\" names 'h0.s'");
  ASSERT_FAILS(copse_lower_schedule(back, &options, &plan, &lowered), COPSE_UNSUPPORTED, &lowered,
               "counts on 'h0.s' to copy");
  free(text);
  free(again);
  copse_schedule_free(s);
  copse_schedule_free(back);
  copse_topology_free(t);
  copse_topology_free(plain);
}
END_TEST

/* ---- multicast plans ------------------------------------------------------------------------- */

/* n ranks at two switches that copy and add, of links that differ. */
static struct copse_plan *multicast(int n, const struct copse_lower_options *options) {
  struct writer w = {.n = 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  add(&w, "{\"format\": \"copse-topology/1\", \"name\": \"r\", \"nodes\": [");
  for (int v = 0; v < n; v++) add(&w, "{\"id\": \"g%d\", \"type\": \"gpu\"}, ", v);
  add(&w, "{\"id\": \"s\", \"type\": \"switch\"" MARKED "}, {\"id\": \"t\", \"type\": \"switch\"" MARKED
          "}], \"links\": [");
  for (int v = 0; v < n; v++)
    add(&w,
        "%s{\"src\": \"g%d\", \"dst\": \"s\", \"bandwidth\": %d}, {\"src\": \"g%d\", \"dst\": "
        "\"t\", \"bandwidth\": 3}",
        v ? ", " : "", v, v % 3 ? 5 : 7, v);
  add(&w, "]}");
  struct copse_topology *t = copse_test_topology(w.text);
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, true, false);
  ck_assert_int_gt(s->n_copying, 0);
  ASSERT_OK(copse_lower_schedule(s, options, &plan, &err), &err);
  copse_schedule_free(s);
  copse_topology_free(t);
  return plan;
}

static copse_status prove(const struct copse_plan *plan, struct copse_err *err) {
  struct copse_proof_report report;
  return copse_prove_plan(plan, "p", &report, err);
}

START_TEST(one_group_of_ranks_is_a_multicast_plan) {
  static const uint64_t counts[] = {0, 1, 130, 5001, UINT64_MAX};
  static const struct copse_lower_options choices[] = {
      {.instances = COPSE_LOWER_AUTO, .chunk_bytes = 1024, .min_chunk_bytes = 16},
      {.max_workers = 1, .fifo = 1, .chunk_bytes = 512},
      {.max_workers = 5, .instances = 3, .fifo = 2, .chunk_bytes = 4096}};
  for (int i = 0; i < 3; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *plan = multicast(_i, &choices[i]);
    char *text;
    size_t size;
    ck_assert(copse_plan_has_groups(plan));
    ASSERT_OK(prove(plan, &err), &err);
    exec_check_all(plan, COPSE_BACKEND_CPU, counts);
    if (i == 2) exec_check_all(plan, COPSE_BACKEND_THREADS, counts + 2);
    ASSERT_OK(copse_plan_to_text(plan, &text, &size, &err), &err);
    ck_assert_ptr_nonnull(strstr(text, "{\"op\": \"reduce_load_group_store\""));
    free(text);
    copse_plan_free(plan);
  }
}
END_TEST

/* In the order of the ranks, whoever the root is: floats that round at every step. */
START_TEST(a_group_adds_in_the_order_of_the_ranks) {
  enum { RANKS = 5, COUNT = 1003 };
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_lower_options options = {0};
  struct copse_plan *plan = multicast(RANKS, &options);
  static float in[RANKS][COUNT], out[RANKS][COUNT];
  void *inputs[RANKS], *outputs[RANKS];
  uint64_t state = 5;
  struct copse_exec *exec;
  for (int r = 0; r < RANKS; r++) {
    inputs[r] = in[r];
    outputs[r] = out[r];
    for (int i = 0; i < COUNT; i++)
      in[r][i] = (float)copse_test_random_int(&state, -1000000, 1000000) / 3.0f;
  }
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  const struct copse_launch launch = {COUNT, COPSE_FLOAT, COPSE_SUM, inputs, outputs, NULL};
  ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
  for (int i = 0; i < COUNT; i++) {
    float sum = in[0][i];
    for (int r = 1; r < RANKS; r++) sum += in[r][i];
    for (int r = 0; r < RANKS; r++) ck_assert_msg(out[r][i] == sum, "rank %d, element %d", r, i);
  }
  copse_exec_free(exec);
  copse_plan_free(plan);
}
END_TEST

/* A plan whose rank 0 is a root, and the operation by which it adds, for a test to break. */
static struct copse_plan *rooted_at_0(const struct copse_lower_options *options,
                                      struct copse_plan_op **sum) {
  for (int n = 3; n < 9; n++) {
    struct copse_plan *plan = multicast(n, options);
    const struct copse_plan_worker *w = &plan->workers[0];
    for (uint32_t i = 0; i < w->n_ops; i++) {
      *sum = (struct copse_plan_op *)&plan->ops[i];
      if ((*sum)->flags & COPSE_MOVE_REDUCE_LOAD) return plan;
    }
    copse_plan_free(plan);
  }
  ck_abort_msg("no root at rank 0");
}

/* A reduce of two ranks; `notified`: rank 1 waits until rank 0 has read its slot, else only before it
 * writes the slot again. */
static struct copse_plan *reduce_load(bool notified) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++) pb_worker(b, r);
  uint32_t slots[] = {pb_region(b, 0, piece), pb_region(b, 1, piece)};
  uint32_t data = pb_channel(b, 1, 0), back = pb_channel(b, 0, 1);
  for (uint32_t r = 0; r < 2; r++) {
    if (r == 1 && !notified) pb_wait(b, 1, back, COPSE_WHEN_AFTER_FIFO);
    pb_move(b, r, piece, 0);
    pb_src(b, pb_input(r, 0));
    pb_dst(b, pb_scratch(r, slots[r]));
  }
  pb_signal(b, 1, data, COPSE_WHEN_ALWAYS);
  if (notified) pb_wait(b, 1, back, COPSE_WHEN_ALWAYS);
  pb_wait(b, 0, data, COPSE_WHEN_ALWAYS);
  pb_move(b, 0, piece, COPSE_MOVE_FINAL | COPSE_MOVE_REDUCE_LOAD);
  for (uint32_t r = 0; r < 2; r++) pb_src(b, pb_scratch(r, slots[r]));
  pb_dst(b, pb_output(0, 0));
  pb_signal(b, 0, back, notified ? COPSE_WHEN_ALWAYS : COPSE_WHEN_BEFORE_FIFO);
  return pb_finish(b);
}

START_TEST(a_rank_stays_until_its_slot_was_read) {
  struct copse_err err = COPSE_ERR_INIT, gone = COPSE_ERR_INIT;
  static const uint64_t counts[] = {1, 5001, UINT64_MAX};
  struct copse_plan *plan = reduce_load(true);
  ASSERT_OK(copse_plan_validate(plan, "p", &err), &err);
  ASSERT_OK(prove(plan, &err), &err);
  exec_check_all(plan, COPSE_BACKEND_CPU, counts);
  pb_free(plan);
  plan = reduce_load(false);
  ASSERT_OK(copse_plan_validate(plan, "p", &err), &err);
  ASSERT_FAILS(prove(plan, &gone), COPSE_REFUTED, &gone,
               "rank 1 may leave the call while rank 0 still reads from it");
  pb_free(plan);
}
END_TEST

/* One worker a rank: whoever sums before all have written, or tells before it has summed. */
START_TEST(the_proof_knows_who_reads_a_slot) {
  struct copse_lower_options options = {.max_workers = 1, .instances = 1};
  struct copse_err late = COPSE_ERR_INIT, early = COPSE_ERR_INIT;
  struct copse_plan_op *sum, kept;
  struct copse_plan *plan = rooted_at_0(&options, &sum);
  ck_assert_int_eq(sum[-1].kind, COPSE_OP_WAIT); /* for the last rank's slot; now it comes afterwards */
  kept = sum[-1];
  sum[-1] = sum[0];
  sum[0] = kept;
  ASSERT_FAILS(prove(plan, &early), COPSE_REFUTED, &early, "scratch[");
  copse_plan_free(plan);
  plan = rooted_at_0(&options, &sum);
  ck_assert_int_eq(sum[1].kind, COPSE_OP_SIGNAL); /* to the first rank, now before the sum */
  kept = sum[1];
  sum[1] = sum[0];
  sum[0] = kept;
  ASSERT_FAILS(prove(plan, &late), COPSE_REFUTED, &late, "scratch[");
  copse_plan_free(plan);
}
END_TEST

START_TEST(a_group_s_slots_lie_alike) {
  struct copse_lower_options options = {.max_workers = 1, .instances = 2};
  struct copse_err errs[6] = {COPSE_ERR_INIT, COPSE_ERR_INIT, COPSE_ERR_INIT,
                              COPSE_ERR_INIT, COPSE_ERR_INIT, COPSE_ERR_INIT};
  struct copse_plan_op *sum, was;
  struct copse_plan *plan = rooted_at_0(&options, &sum);
  was = *sum;
  struct copse_plan_operand *operands = (struct copse_plan_operand *)&plan->operands[sum->operand];
  struct copse_plan_operand first = operands[0], second = operands[1];
  operands[0] = second;
  operands[1] = first;
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[0]), COPSE_BAD_INPUT, &errs[0], "must ascend");
  operands[0] = first;
  operands[1] = second;
  operands[1].index++; /* the same piece's other slot */
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[1]), COPSE_BAD_INPUT, &errs[1],
               "lies elsewhere than the group's first");
  operands[1] = second;
  sum->flags &= (uint8_t)~COPSE_MOVE_REDUCE_LOAD;
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[2]), COPSE_BAD_INPUT, &errs[2],
               "a source at rank 1");
  *sum = was;
  sum->operand++; /* without rank 0, whose worker it is */
  sum->n_src--;
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[3]), COPSE_BAD_INPUT, &errs[3],
               "a group without the worker's rank 0");
  *sum = was;
  struct copse_plan_region *regions = (struct copse_plan_region *)plan->regions;
  uint32_t piece = regions[plan->header.n_regions - 1].piece;
  regions[plan->header.n_regions - 1].piece = 0;
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[4]), COPSE_BAD_INPUT, &errs[4],
               "all ranks must have the same ones");
  regions[plan->header.n_regions - 1].piece = piece;
  plan->header.protocol = COPSE_PROTOCOL_LOW_LATENCY;
  ASSERT_FAILS(copse_plan_validate(plan, "p", &errs[5]), COPSE_BAD_INPUT, &errs[5],
               "multicast is not for a low-latency plan");
  copse_plan_free(plan);
}
END_TEST

START_TEST(without_the_option_nothing_changes) {
  struct copse_topology *t = boxes(2, 6, MARKED, "");
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, false, false);
  ck_assert_int_eq(s->n_copying + s->n_adding, 0);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("in_network");
  TCase *tc = tcase_create("in_network");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, with_few_switches_the_optimum_over_all_trees_is_reached, 0, 6);
  tcase_add_loop_test(tc, with_three_switches_it_lies_between_both, 0, 4);
  tcase_add_loop_test(tc, one_phase_alone_is_no_faster, 0, 4);
  tcase_add_test(tc, answers_known_by_hand);
  tcase_add_test(tc, the_bound_over_all_trees_knows_switches);
  tcase_add_test(tc, where_switches_are_of_no_use_it_is_as_without);
  tcase_add_test(tc, one_switch_halves_an_allreduce);
  tcase_add_loop_test(tc, symmetries_leave_times_and_bounds_as_they_are, 0, 3);
  tcase_add_loop_test(tc, with_symmetries_too_the_optimum_is_that_over_all_trees, 0, 3);
  tcase_add_test(tc, many_boxes_reach_what_leaves_each);
  tcase_add_test(tc, a_schedule_says_what_it_counts_on);
  tcase_add_loop_test(tc, one_group_of_ranks_is_a_multicast_plan, 3, 9);
  tcase_add_test(tc, a_group_adds_in_the_order_of_the_ranks);
  tcase_add_test(tc, a_rank_stays_until_its_slot_was_read);
  tcase_add_test(tc, the_proof_knows_who_reads_a_slot);
  tcase_add_test(tc, a_group_s_slots_lie_alike);
  tcase_add_test(tc, without_the_option_nothing_changes);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
