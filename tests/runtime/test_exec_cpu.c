/* The cooperative executor on hand-built plans. */
#include <string.h>
#include <time.h>

#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

static const uint64_t odd_counts[] = {0, 1, 3, 17, 1000, 4097, UINT64_MAX};

/* Chunks so small that every slot of the fifo is used many times. */
static const struct pb_options small_chunks = {3, 2, 2, 16, 256, 64};
static const struct pb_options one_chunk = {1, 1, 1, 1, 1 << 30, 1 << 30};
static const struct pb_options deep_fifo = {2, 3, 5, 64, 4096, 16};

static void check_collective(copse_collective collective, uint32_t n_ranks,
                             struct pb_options options) {
  int32_t root = exec_case_root(collective, n_ranks);
  struct copse_plan *plan = pb_tree_plan(collective, n_ranks, root, options);
  exec_check_all(plan, COPSE_BACKEND_CPU, odd_counts);
  pb_free(plan);
}

static void check_all_shapes(copse_collective collective) {
  for (uint32_t n = 1; n <= 7; n += 2) check_collective(collective, n, small_chunks);
  check_collective(collective, 2, one_chunk);
  check_collective(collective, 4, one_chunk);
  check_collective(collective, 8, deep_fifo);
}

START_TEST(allgather_is_right_for_every_type_and_count) { check_all_shapes(COPSE_ALLGATHER); }
END_TEST
START_TEST(reduce_scatter_is_right_for_every_type_op_and_count) {
  check_all_shapes(COPSE_REDUCE_SCATTER);
}
END_TEST
START_TEST(allreduce_is_right_for_every_type_op_and_count) { check_all_shapes(COPSE_ALLREDUCE); }
END_TEST
START_TEST(broadcast_is_right_for_every_type_and_count) { check_all_shapes(COPSE_BROADCAST); }
END_TEST
START_TEST(reduce_is_right_for_every_type_op_and_count) { check_all_shapes(COPSE_REDUCE); }
END_TEST
START_TEST(alltoall_is_right_for_every_type_and_count) { check_all_shapes(COPSE_ALLTOALL); }
END_TEST

START_TEST(ring_allgather_is_right) {
  for (uint32_t n = 1; n <= 6; n++) {
    struct copse_plan *plan = pb_ring_allgather(n, small_chunks);
    exec_check_all(plan, COPSE_BACKEND_CPU, odd_counts);
    pb_free(plan);
  }
}
END_TEST

START_TEST(launches_of_changing_size_and_type_follow_each_other) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 5, -1, small_chunks);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  uint64_t state = 1;
  for (int i = 0; i < 2000; i++) {
    struct exec_case it = {(enum copse_type)copse_test_random_int(&state, 0, COPSE_N_TYPES - 1),
                           (enum copse_redop)copse_test_random_int(&state, 0, COPSE_N_REDOPS - 1),
                           (uint64_t)copse_test_random_int(&state, 0, 700),
                           copse_test_random_int(&state, 0, 1)};
    ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
  }
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

/* A plan may call its copies final; an operation is given to every launch. */
START_TEST(the_operation_means_nothing_where_nothing_is_combined) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w = pb_worker(b, 0), whole = pb_piece(b, 0, 1, 1, 1);
  pb_move(b, w, whole, COPSE_MOVE_FINAL);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_output(1, 0));
  struct copse_plan *plan = pb_finish(b);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  ck_assert_uint_eq(
      exec_case_run(exec, plan, (struct exec_case){COPSE_FLOAT, COPSE_AVG, 100, false}), 0);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

START_TEST(scratch_bytes_cover_all_regions) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_REDUCE, 3, 0, one_chunk);
  uint64_t bytes;
  ASSERT_OK(copse_exec_scratch_bytes(plan, 1000, COPSE_FLOAT, &bytes, &err), &err);
  /* two regions of one slot, each a chunk of 4000 bytes and at most 160 of rounding */
  ck_assert_uint_ge(bytes, 8000);
  ck_assert_uint_le(bytes, 8320);
  ASSERT_FAILS(copse_exec_scratch_bytes(plan, UINT64_MAX / 2, COPSE_FLOAT, &bytes, &err),
               COPSE_INVALID, &err, "elements a block");
  pb_free(plan);
}
END_TEST

START_TEST(an_unknown_type_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_REDUCE, 1, 0, one_chunk);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  const struct copse_launch launch = {0, COPSE_N_TYPES, COPSE_SUM, NULL, NULL, NULL};
  ASSERT_FAILS(copse_exec_run(exec, &launch, &err), COPSE_INVALID, &err, "unknown element type");
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

/* ---- deadlock and balance ----------------------------------------------------------------- */

static void expect_refuted(struct copse_plan *plan, const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  struct exec_case it = {COPSE_FLOAT, COPSE_SUM, 100, false};
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  copse_status status = exec_case_status(exec, plan, it, &err);
  ck_assert_int_eq(status, COPSE_REFUTED);
  ck_assert_str_eq(err.text, text);
  /* counters are in no defined state: nothing more is run */
  struct copse_err again = COPSE_ERR_INIT;
  ck_assert_int_eq(exec_case_status(exec, plan, it, &again), COPSE_INVALID);
  copse_exec_free(exec);
  pb_free(plan);
}

/* Rank r's second worker waits for the next rank's before it signals the one before. */
static struct copse_plan *circle(uint32_t n, bool whole) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, n, 0);
  uint32_t first = 0;
  for (uint32_t r = 0; r < n; r++) {
    pb_worker(b, r); /* has nothing to do */
    uint32_t w = pb_worker(b, r);
    if (r == 0) first = w;
  }
  for (uint32_t r = 0; r < n; r++) pb_channel(b, first + 2 * ((r + 1) % n), first + 2 * r);
  for (uint32_t r = 0; r < n; r++) {
    if (whole || r + 1 < n) pb_wait(b, first + 2 * r, r, COPSE_WHEN_ALWAYS);
    if (whole || r > 0) pb_signal(b, first + 2 * r, (r + n - 1) % n, COPSE_WHEN_ALWAYS);
  }
  return pb_finish(b);
}

START_TEST(a_deadlock_names_its_cycle) {
  expect_refuted(circle(3, true),
                 "deadlock: rank 0 worker 1 waits for rank 1 worker 1 (channel 0, chunk 0), which "
                 "waits for rank 2 worker 1 (channel 1, chunk 0), which waits for rank 0 worker 1 "
                 "(channel 2, chunk 0)");
}
END_TEST

START_TEST(a_long_cycle_is_told_in_one_line) {
  expect_refuted(
      circle(1000, true),
      "deadlock: rank 0 worker 1 waits for rank 1 worker 1 (channel 0, chunk 0), which "
      "waits for rank 2 worker 1 (channel 1, chunk 0), which waits for rank 3 worker 1 "
      "(channel 2, chunk 0), which waits for rank 4 worker 1 (channel 3, chunk 0), which "
      "waits for rank 5 worker 1 (channel 4, chunk 0), and so on over 994 more, which "
      "waits for rank 0 worker 1 (channel 999, chunk 0)");
}
END_TEST

START_TEST(a_chain_without_a_cycle_runs) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = circle(50, false);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  ASSERT_OK(exec_case_status(exec, plan, (struct exec_case){.count = 10}, &err), &err);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

START_TEST(waiting_for_a_finished_worker_is_told) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  pb_header(b)->chunk_bytes = pb_header(b)->min_chunk_bytes = 100; /* 4 chunks of 400 bytes */
  pb_piece(b, 0, 1, 1, 1);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t channel = pb_channel(b, w0, w1);
  pb_signal(b, w0, channel, COPSE_WHEN_BEFORE_FIFO); /* 2 of 4 chunks */
  pb_wait(b, w1, channel, COPSE_WHEN_ALWAYS);
  expect_refuted(pb_finish(b),
                 "deadlock: rank 1 worker 0 waits for rank 0 worker 0 (channel 0, chunk 2), which "
                 "has finished");
}
END_TEST

START_TEST(a_signal_that_nobody_takes_is_refused) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  pb_header(b)->chunk_bytes = pb_header(b)->min_chunk_bytes = 100;
  pb_piece(b, 0, 1, 1, 1);
  uint32_t w1 = pb_worker(b, 1), w0 = pb_worker(b, 0);
  pb_channel(b, w0, w1);
  uint32_t channel = pb_channel(b, w0, w1);
  pb_signal(b, w0, channel, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, channel, COPSE_WHEN_FIRST);
  expect_refuted(pb_finish(b),
                 "channel 1 from rank 0 worker 0 to rank 1 worker 0 is unbalanced: 3 more signals "
                 "than waits");
}
END_TEST

/* ---- size ---------------------------------------------------------------------------------- */

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

START_TEST(five_hundred_ranks_run_in_seconds) {
  double start = cpu_seconds();
  struct pb_options options = {16, 2, 2, 8, 1 << 16, 64};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_BROADCAST, COPSE_REDUCE};
  for (int i = 0; i < 3; i++) {
    int32_t root = exec_case_root(collectives[i], 512);
    struct copse_plan *plan = pb_tree_plan(collectives[i], 512, root, options);
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_exec *exec;
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
    ck_assert_uint_eq(
        exec_case_run(exec, plan, (struct exec_case){COPSE_FLOAT, COPSE_SUM, 5000, false}), 0);
    ck_assert_uint_eq(
        exec_case_run(exec, plan, (struct exec_case){COPSE_BFLOAT16, COPSE_AVG, 333, true}), 0);
    copse_exec_free(exec);
    pb_free(plan);
  }
  struct copse_plan *ring = pb_ring_allgather(512, options);
  struct copse_exec *exec;
  ck_assert_int_eq(copse_exec_new(ring, COPSE_BACKEND_CPU, &exec, NULL), COPSE_OK);
  ck_assert_uint_eq(exec_case_run(exec, ring, (struct exec_case){COPSE_INT32, COPSE_SUM, 64, true}),
                    0);
  copse_exec_free(exec);
  pb_free(ring);
  ck_assert_double_lt(cpu_seconds() - start, 60);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/exec_cpu");
  TCase *tc = tcase_create("exec_cpu");
  tcase_add_test(tc, allgather_is_right_for_every_type_and_count);
  tcase_add_test(tc, reduce_scatter_is_right_for_every_type_op_and_count);
  tcase_add_test(tc, allreduce_is_right_for_every_type_op_and_count);
  tcase_add_test(tc, broadcast_is_right_for_every_type_and_count);
  tcase_add_test(tc, reduce_is_right_for_every_type_op_and_count);
  tcase_add_test(tc, alltoall_is_right_for_every_type_and_count);
  tcase_add_test(tc, ring_allgather_is_right);
  tcase_add_test(tc, launches_of_changing_size_and_type_follow_each_other);
  tcase_add_test(tc, the_operation_means_nothing_where_nothing_is_combined);
  tcase_add_test(tc, scratch_bytes_cover_all_regions);
  tcase_add_test(tc, an_unknown_type_is_refused);
  tcase_add_test(tc, a_deadlock_names_its_cycle);
  tcase_add_test(tc, a_long_cycle_is_told_in_one_line);
  tcase_add_test(tc, a_chain_without_a_cycle_runs);
  tcase_add_test(tc, waiting_for_a_finished_worker_is_told);
  tcase_add_test(tc, a_signal_that_nobody_takes_is_refused);
  tcase_add_test(tc, five_hundred_ranks_run_in_seconds);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
