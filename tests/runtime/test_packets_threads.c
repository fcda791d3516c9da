/*
 * Packets between ranks that don't wait for each other between launches, with workers that dawdle
 * by chance, and launches whose sizes change so that one's packets lie where others lay. Under
 * TSan too. And what the executor says when packets never come.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/free_run.h"
#include "support/plan_builder.h"
#include "support/support.h"

static struct copse_plan *make_plan(int fabric, copse_collective collective, int workers) {
  struct copse_lower_options options = {
      .max_workers = workers, .instances = 2, .low_latency = true, .max_bytes = 3000};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[fabric], collective, 0);
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  copse_schedule_free(schedule);
  return plan;
}

START_TEST(free_ranks_are_right) {
  for (int fabric = 0; fabric < 5; fabric++) {
    struct copse_plan *plan = make_plan(fabric, (copse_collective)_i, 1 + fabric % 2);
    for (uint64_t seed = 1; seed <= (copse_test_all() ? 4 : 2); seed++) {
      struct free_run_options options = {.launches = copse_test_all() ? 80 : 24,
                                         .most_delay = seed % 2 ? 200 : 0,
                                         .seconds = 120,
                                         .seed = seed};
      ck_assert_uint_eq(free_run(plan, &options), 0);
    }
    copse_plan_free(plan);
  }
}
END_TEST

/* The launches' numbers start again a few launches after the first, whose packets are still there
 * where only smaller ones came after them. */
START_TEST(numbers_that_start_again_are_right) {
  struct copse_plan *plan = make_plan(0, (copse_collective)_i, 2);
  for (uint64_t seed = 1; seed <= COPSE_TEST_UP_TO(40u, 9u); seed++) {
    struct free_run_options options = {.launches = 14,
                                       .jump = 2 + (int)(seed % 3),
                                       .epoch = UINT32_MAX - 5 + (uint32_t)(seed % 3),
                                       .most_delay = 50,
                                       .seconds = 120,
                                       .seed = seed};
    ck_assert_uint_eq(free_run(plan, &options), 0);
  }
  copse_plan_free(plan);
}
END_TEST

/* Why receivers of a broadcast greet: without, this machine does what the proof warns of. */
START_TEST(free_ranks_find_what_the_proof_refuses) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1), packets = pb_packets(b, 1, piece);
  pb_header(b)->max_bytes = 3000;
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_packet(1, packets));
  pb_data_signal(b, w0, data);
  pb_data_wait(b, w1, data);
  pb_move(b, w1, piece, 0);
  pb_src(b, pb_packet(1, packets));
  pb_dst(b, pb_output(1, 0));
  struct copse_plan *plan = pb_finish(b);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED, &err, "unread");
  bool went_wrong = false;
  for (uint64_t seed = 1; seed <= 20 && !went_wrong; seed++) {
    struct free_run_options options = {
        .launches = 80, .most_delay = 300, .seconds = 0.5, .seed = seed};
    went_wrong = free_run(plan, &options) != 0;
  }
  ck_assert(went_wrong);
  pb_free(plan);
}
END_TEST

/* ---- the executor's reports -------------------------------------------------------------- */

/* Rank 0 says that it sends to all the others, and does not. */
static struct copse_plan *silent(uint32_t n_ranks) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, n_ranks, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), root = pb_worker(b, 0);
  for (uint32_t r = 1; r < n_ranks; r++) {
    uint32_t w = pb_worker(b, r), channel = pb_channel(b, root, w);
    uint32_t packets = pb_packets(b, r, piece);
    pb_data_signal(b, root, channel);
    pb_data_wait(b, w, channel);
    pb_move(b, w, piece, 0);
    pb_src(b, pb_packet(r, packets));
    pb_dst(b, pb_output(r, 0));
  }
  return pb_finish(b);
}

/* Also where so many look that one or another is always awake. */
START_TEST(packets_that_never_come_are_reported) {
  static const uint32_t sizes[] = {2, 200};
  for (int i = 0; i < 2; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *plan = silent(sizes[i]);
    struct copse_exec *exec;
    struct exec_case it = {COPSE_FLOAT, COPSE_SUM, 100, false};
    ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
    copse_exec_set_stall_seconds(exec, 1);
    time_t start = time(NULL);
    ck_assert_int_eq(exec_case_status(exec, plan, it, &err), COPSE_REFUTED);
    ck_assert_int_lt(time(NULL) - start, 60);
    ck_assert_str_eq(err.text,
                     "nothing moved for 1 s: rank 1 worker 0 waits for rank 0 worker 0 (channel "
                     "0, chunk 0), which has finished");
    copse_exec_free(exec);
    pb_free(plan);
  }
}
END_TEST

START_TEST(the_executor_that_goes_by_signals_names_the_reader) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = silent(2);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  ASSERT_FAILS(exec_case_status(exec, plan, (struct exec_case){.count = 5}, &err), COPSE_REFUTED,
               &err, "rank 1 worker 0, op 1: reads packets that nobody has sent before");
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

/* Rank 0 adds up; rank 2 waits for rank 0's word first and so never sends. The report names rank
 * 2, and not rank 1, whose packets have come although its wait is the nearer one. */
START_TEST(of_many_senders_the_missing_one_is_named) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 3, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), root = pb_worker(b, 0), packets[3], up[3];
  uint32_t w[3] = {root, pb_worker(b, 1), pb_worker(b, 2)};
  uint32_t word = pb_channel(b, root, w[2]);
  pb_wait(b, w[2], word, COPSE_WHEN_ALWAYS);
  for (uint32_t r = 2; r >= 1; r--) {
    packets[r] = pb_packets(b, 0, piece);
    up[r] = pb_channel(b, w[r], root);
    pb_move(b, w[r], piece, 0);
    pb_src(b, pb_input(r, 0));
    pb_dst(b, pb_packet(0, packets[r]));
    pb_data_signal(b, w[r], up[r]);
    pb_data_wait(b, root, up[r]);
  }
  pb_move(b, root, piece, COPSE_MOVE_FINAL);
  pb_src(b, pb_input(0, 0));
  pb_src(b, pb_packet(0, packets[1]));
  pb_src(b, pb_packet(0, packets[2]));
  pb_dst(b, pb_output(0, 0));
  pb_signal(b, root, word, COPSE_WHEN_ALWAYS);
  struct copse_plan *plan = pb_finish(b);
  struct copse_exec *exec;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
  copse_exec_set_stall_seconds(exec, 0.3);
  ASSERT_FAILS(exec_case_status(exec, plan, (struct exec_case){.count = 5}, &err), COPSE_REFUTED,
               &err,
               "rank 0 worker 0 waits for rank 2 worker 0 (channel 1, chunk 0), which waits for "
               "rank 0 worker 0 (channel 0, chunk 0)");
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/packets_threads");
  TCase *tc = tcase_create("packets_threads");
  /* Threads are the same in all collectives. */
  const int first = COPSE_TEST_UP_TO(0, COPSE_ALLTOALL - 1);
  tcase_add_loop_test(tc, free_ranks_are_right, first, COPSE_ALLTOALL + 1);
  tcase_add_loop_test(tc, numbers_that_start_again_are_right, first, COPSE_ALLTOALL + 1);
  tcase_add_test(tc, free_ranks_find_what_the_proof_refuses);
  tcase_add_test(tc, packets_that_never_come_are_reported);
  tcase_add_test(tc, the_executor_that_goes_by_signals_names_the_reader);
  tcase_add_test(tc, of_many_senders_the_missing_one_is_named);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
