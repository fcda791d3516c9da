/* Allreduces in one hop: proved, right, the same bits at all ranks, and refused where the ranks
 * don't all reach each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/random_topology.h"
#include "support/support.h"

#define MOST_RANKS 9

/* n ranks, each joined to every other. */
static struct copse_schedule *full_mesh(int n) {
  static const char head[] = "{\"format\":\"copse-topology/1\",\"name\":\"full\",\"nodes\":[";
  char json[8192], *end = json + sprintf(json, "%s", head);
  for (int i = 0; i < n; i++)
    end += sprintf(end, "%s{\"id\":\"g%d\",\"type\":\"gpu\"}", i ? "," : "", i);
  end += sprintf(end, "],\"links\":[");
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      end += sprintf(end, "%s{\"src\":\"g%d\",\"dst\":\"g%d\",\"bandwidth\":25}",
                     i > 1 || k ? "," : "", i, k);
  sprintf(end, "]}");
  return copse_test_solve(json, COPSE_ALLREDUCE, 0);
}

static struct copse_plan *lower(const struct copse_schedule *schedule,
                                struct copse_lower_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  options.low_latency = options.one_hop = true;
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  return plan;
}

START_TEST(any_number_of_ranks_is_proved_and_right) {
  static const uint64_t counts[] = {0, 1, 3, 129, 333, UINT64_MAX};
  static const struct copse_lower_options choices[] = {
      {.max_bytes = 333 * 8},
      {.max_bytes = 333 * 8, .max_workers = 1},
      {.max_bytes = 333 * 8, .max_workers = 7, .instances = 5}};
  struct copse_schedule *schedule = full_mesh(_i);
  for (int i = 0; i < 3; i++) {
    struct copse_plan *plan = lower(schedule, choices[i]);
    static const uint32_t parts[] = {5, 1, 5}; /* 2664 bytes are five times 512 */
    uint32_t peers = _i > 2 ? (uint32_t)_i - 1 : 1, ways = peers < 6 ? peers : 6; /* 32 / 5 */
    ck_assert_uint_eq(plan->header.n_pieces, parts[i]);
    ck_assert_uint_eq(plan->ranks[0].n_workers, parts[i] * (i == 0 ? ways : 1));
    exec_check_all(plan, COPSE_BACKEND_CPU, counts);
    if (i == 2) exec_check_all(plan, COPSE_BACKEND_THREADS, counts + 3);
    copse_plan_free(plan);
  }
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(there_are_no_more_parts_than_may_be_asked_for) {
  struct copse_schedule *schedule = full_mesh(2);
  struct copse_plan *plan = lower(
      schedule, (struct copse_lower_options){.max_workers = 1024, .max_bytes = 1 << 20});
  ck_assert_uint_eq(plan->ranks[0].n_workers, COPSE_LOWER_MOST_INSTANCES);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* One after the other on one executor: a launch must not read the last but one's packets. */
START_TEST(launches_of_changing_size_follow_each_other) {
  static const enum copse_backend backends[] = {COPSE_BACKEND_CPU, COPSE_BACKEND_THREADS};
  struct copse_schedule *schedule = full_mesh(5);
  struct copse_plan *plan = lower(schedule, (struct copse_lower_options){.max_workers = 3});
  uint64_t seed = 3;
  for (int b = 0; b < 2; b++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_exec *exec;
    ASSERT_OK(copse_exec_new(plan, backends[b], &exec, &err), &err);
    for (int i = 0; i < COPSE_TEST_SOME(60); i++) {
      int most = i % 2 ? 4096 : 9;
      struct exec_case it = {COPSE_FLOAT, COPSE_SUM,
                             (uint64_t)copse_test_random_int(&seed, 0, most), i % 3 == 0};
      ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
    }
    copse_exec_free(exec);
  }
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* Floats whose sum depends on the order: it is the ranks', at every rank. */
START_TEST(sums_are_in_the_order_of_ranks_everywhere) {
  enum { N = 6, COUNT = 1000 };
  static float in[N][COUNT], out[N][COUNT];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = full_mesh(N);
  struct copse_plan *plan = lower(schedule, (struct copse_lower_options){0});
  struct copse_exec *exec;
  void *inputs[N], *outputs[N];
  uint64_t seed = 11;
  int differ = 0;
  for (int r = 0; r < N; r++) {
    inputs[r] = in[r];
    outputs[r] = out[r];
    for (int i = 0; i < COUNT; i++)
      in[r][i] = (float)copse_test_random_int(&seed, -1000000, 1000000) * (r % 2 ? 1e-5f : 1.0f);
  }
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  const struct copse_launch launch = {COUNT, COPSE_FLOAT, COPSE_SUM, inputs, outputs, NULL};
  ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
  for (int i = 0; i < COUNT; i++) {
    volatile float sum = in[0][i], other = in[N - 1][i];
    for (int r = 1; r < N; r++) sum = sum + in[r][i];
    for (int r = N - 2; r >= 0; r--) other = other + in[r][i];
    differ += sum != other;
    for (int r = 0; r < N; r++)
      ck_assert_msg(out[r][i] == sum, "element %d at rank %d: %.9g, not %.9g", i, r,
                    (double)out[r][i], (double)sum);
  }
  ck_assert_int_gt(differ, COUNT / 10); /* or the test says nothing */
  copse_exec_free(exec);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* Nothing that came from another rank is sent on. */
START_TEST(there_is_one_hop) {
  struct copse_schedule *schedule = full_mesh(4);
  struct copse_plan *plan = lower(schedule, (struct copse_lower_options){.max_workers = 2});
  int sends = 0, sums = 0;
  ck_assert_uint_eq(plan->header.max_bytes, 16384);
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      const struct copse_plan_operand *at = &plan->operands[op->operand];
      if (op->kind != COPSE_OP_MOVE) continue;
      bool sends_on = at[op->n_src].buffer == COPSE_BUFFER_PACKETS;
      sends += sends_on;
      sums += !sends_on;
      ck_assert_uint_eq(op->n_src, sends_on ? 1 : 4);
      ck_assert_uint_eq(op->n_dst, sends_on ? 3 : 1);
      ck_assert(!sends_on || at[0].buffer == COPSE_BUFFER_INPUT);
    }
  ck_assert_int_eq(sends, 8);
  ck_assert_int_eq(sums, 8);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(a_switch_joins_all_ranks_and_a_ring_does_not) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_lower_options options = {.low_latency = true, .one_hop = true};
  struct copse_schedule *on_switch = copse_test_solve(copse_test_fabrics[0], COPSE_ALLREDUCE, 0);
  struct copse_schedule *ring = copse_test_solve(copse_test_fabrics[1], COPSE_ALLREDUCE, 0);
  struct copse_plan *plan = lower(on_switch, options);
  copse_plan_free(plan);
  ASSERT_FAILS(copse_lower_schedule(ring, &options, &plan, &err), COPSE_UNSUPPORTED, &err,
               "one hop needs each rank to send to every other, and in this schedule rank 0 never "
               "sends to rank 2: lower without it");
  copse_schedule_free(on_switch);
  copse_schedule_free(ring);
}
END_TEST

/* On any fabric: a plan that is proved and right, or the refusal. */
START_TEST(random_fabrics) {
  const struct copse_lower_options options = {
      .low_latency = true, .one_hop = true, .max_bytes = 4000};
  uint64_t seed = 77 + (uint64_t)_i;
  int made = 0;
  for (int round = 0; round < 4 + COPSE_TEST_SOME(20); round++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = copse_test_random_topology(&seed, &copse_test_random_small);
    struct copse_schedule *schedule = copse_test_solve_as(
        t,
        (struct copse_solve_options){.collective = COPSE_ALLREDUCE, .root = -1, .label = "random"});
    struct copse_plan *plan = NULL;
    copse_status status = copse_lower_schedule(schedule, &options, &plan, &err);
    ck_assert_msg(status == COPSE_OK || (status == COPSE_UNSUPPORTED && !plan), "%s", err.text);
    if (status == COPSE_OK) {
      copse_plan_free(plan);
      plan = lower(schedule, options);
      exec_check_all(plan, COPSE_BACKEND_CPU, (const uint64_t[]){17, UINT64_MAX});
      made++;
    }
    copse_plan_free(plan);
    copse_schedule_free(schedule);
    copse_topology_free(t);
  }
  ck_assert_int_gt(made, 0);
}
END_TEST

START_TEST(what_it_is_not_for_is_refused) {
  static const struct {
    copse_collective collective;
    int n_ranks;
    struct copse_lower_options options;
    copse_status status;
    const char *text;
  } cases[] = {
      {COPSE_BROADCAST,
       3,
       {.low_latency = true, .one_hop = true},
       COPSE_UNSUPPORTED,
       "one hop is for an allreduce"},
      {COPSE_REDUCE,
       256,
       {.low_latency = true, .one_hop = true},
       COPSE_UNSUPPORTED,
       "one hop is for an allreduce"},
      {COPSE_BROADCAST, 3, {.one_hop = true}, COPSE_INVALID, "one hop is for a low-latency plan"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *schedule = copse_test_star(cases[i].n_ranks, cases[i].collective);
    struct copse_plan *plan;
    ASSERT_FAILS(copse_lower_schedule(schedule, &cases[i].options, &plan, &err), cases[i].status,
                 &err, cases[i].text);
    copse_schedule_free(schedule);
  }
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = full_mesh(3);
  struct copse_plan *plan;
  schedule->n_ranks = 256; /* refused before anything is looked at */
  ASSERT_FAILS(copse_lower_schedule(schedule, &cases[0].options, &plan, &err), COPSE_UNSUPPORTED,
               &err, "256 ranks' inputs are more than one operation adds, which is 255");
  schedule->n_ranks = 3;
  schedule->n_rotations = 1; /* then some of its trees are not listed */
  for (int i = 0; i < 3; i++) {
    const struct copse_lower_options options = {.low_latency = i > 0, .one_hop = i > 1};
    err = (struct copse_err)COPSE_ERR_INIT;
    ASSERT_FAILS(copse_lower_schedule(schedule, &options, &plan, &err), COPSE_UNSUPPORTED, &err,
                 "a compact schedule must be expanded before it is lowered");
  }
  schedule->n_rotations = 0;
  copse_schedule_free(schedule);
}
END_TEST

/* By what ranks do, not by the header: a byte of one rank's digest changed, and it is none. */
START_TEST(how_a_plan_was_lowered_is_found_by_what_its_ranks_do) {
  static const struct copse_lower_options made[] = {
      {.max_bytes = 333 * 8, .low_latency = true, .one_hop = true},
      {.max_bytes = 64 << 10, .low_latency = true},
      {.instances = COPSE_LOWER_AUTO}};
  struct copse_schedule *schedule = full_mesh(4);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_arena arena = {0};
  for (int i = 0; i < 3; i++) {
    struct copse_lower_options found = {.instances = made[i].instances};
    struct copse_plan_header header;
    uint8_t(*parts)[COPSE_SHA256_BYTES];
    bool is_found;
    ASSERT_OK(copse_lower_digest(schedule, &made[i], &arena, &header, &parts, &err), &err);
    ASSERT_OK(copse_lower_find(schedule, &header, parts, &arena, &found, &is_found, &err), &err);
    ck_assert(is_found);
    ck_assert_int_eq(found.low_latency, made[i].low_latency);
    ck_assert_int_eq(found.one_hop, made[i].one_hop);
    ck_assert_uint_eq((uint64_t)found.max_bytes, header.max_bytes);
    parts[2][5] ^= 1;
    ASSERT_OK(copse_lower_find(schedule, &header, parts, &arena, &found, &is_found, &err), &err);
    ck_assert(!is_found);
  }
  copse_arena_free(&arena);
  copse_schedule_free(schedule);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/lower_one_hop");
  TCase *tests = tcase_create("one hop");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, any_number_of_ranks_is_proved_and_right, 1, MOST_RANKS + 1);
  tcase_add_test(tests, there_are_no_more_parts_than_may_be_asked_for);
  tcase_add_test(tests, launches_of_changing_size_follow_each_other);
  tcase_add_test(tests, sums_are_in_the_order_of_ranks_everywhere);
  tcase_add_test(tests, there_is_one_hop);
  tcase_add_test(tests, a_switch_joins_all_ranks_and_a_ring_does_not);
  tcase_add_loop_test(tests, random_fabrics, 0, 3);
  tcase_add_test(tests, what_it_is_not_for_is_refused);
  tcase_add_test(tests, how_a_plan_was_lowered_is_found_by_what_its_ranks_do);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
