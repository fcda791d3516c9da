/* Lowering: what plans of real schedules look like, and that all of them are proved. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "runtime/comm/executor.h"
#include "runtime/plan/plan_math.h"
#include "runtime/interpreter/expected.h"
#include "schedule/solve/solve.h"
#include "support/fabric.h"
#include "support/support.h"

static void prove(const struct copse_schedule *schedule, struct copse_lower_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_proof_report report;
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  /* regular (check/chunk_counts.h): two numbers of chunks, but for an alltoall also in place */
  ck_assert_int_eq(report.runs, schedule->collective == COPSE_ALLTOALL ? 2 : 4);
  for (uint32_t r = 0; r < plan->header.n_ranks; r++)
    ck_assert_int_le((int)plan->ranks[r].n_workers, options.max_workers ? options.max_workers : 32);
  copse_plan_free(plan);
}

START_TEST(every_collective_on_every_fabric_is_proved) {
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
      struct copse_schedule *schedule =
          copse_test_solve(copse_test_fabrics[f], (copse_collective)c, 0);
      prove(schedule, (struct copse_lower_options){0});
      prove(schedule, (struct copse_lower_options){.max_workers = 2, .fifo = 1});
      prove(schedule, (struct copse_lower_options){.max_workers = 5, .fifo = 3, .instances = 3});
      schedule->objective =
          (struct copse_schedule_objective){.bytes = 1 << 20, .chunks = 3, .far_first = true};
      prove(schedule, (struct copse_lower_options){0});
      prove(schedule, (struct copse_lower_options){.max_workers = 2, .fifo = 1});
      copse_schedule_free(schedule);
    }
  }
}
END_TEST

/* Channels of a plan: as many as parts of trees have edges between ranks. */
static uint32_t channels_with(const struct copse_schedule *schedule, int instances) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_lower_options options = {.instances = instances};
  struct copse_plan *plan;
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  uint32_t n = plan->header.n_channels;
  copse_plan_free(plan);
  return n;
}

/* The search for a size timed the trees as they are; more parts would be other chunks. */
START_TEST(a_schedule_for_one_size_is_cut_as_it_says) {
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[0], COPSE_ALLGATHER, 0);
  ck_assert_uint_gt(channels_with(schedule, COPSE_LOWER_AUTO), channels_with(schedule, 1));
  schedule->objective = (struct copse_schedule_objective){.bytes = 1 << 20, .chunks = 3};
  ck_assert_uint_eq(channels_with(schedule, COPSE_LOWER_AUTO), channels_with(schedule, 1));
  ck_assert_uint_gt(channels_with(schedule, 2), channels_with(schedule, 1));
  copse_schedule_free(schedule);
}
END_TEST

/* Random demands, rows and pairs without any among them: proved, and run bit for bit at
 * counts that the shares do not divide. */
START_TEST(alltoalls_by_demand_are_proved_and_run_right) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t seed = 3;
  for (int round = 0; round < 12; round++) {
    struct copse_topology *t = copse_test_topology(copse_test_fabrics[round % 4]);
    int n = t->n_ranks;
    int64_t demand[64] = {0};
    for (int i = 0; i < n * n; i++)
      if (copse_test_random_int(&seed, 0, 2)) demand[i] = copse_test_random_int(&seed, 0, 5000);
    for (int j = 0; j < n && round % 3 == 0; j++) demand[j] = 0; /* rank 0 sends nothing */
    demand[n + 2] = 5001;
    struct copse_solve_options options = {
        .collective = COPSE_ALLTOALL, .root = -1, .demand = demand, .label = "test"};
    struct copse_solve_seconds seconds;
    struct copse_schedule *schedule;
    struct copse_plan *plan;
    struct copse_proof_report report;
    struct copse_exec *exec;
    struct copse_buffers buffers;
    struct copse_lower_options lower = {
        .max_workers = 3, .fifo = 2, .chunk_bytes = 512, .min_chunk_bytes = 64};
    ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
    ASSERT_OK(copse_lower_schedule(schedule, &lower, &plan, &err), &err);
    ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
    ck_assert_uint_eq(plan->header.n_extents, (uint32_t)(n * n));
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
    uint64_t counts[] = {0, 1, 7, 1237, 5001};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      uint64_t bytes = counts[c] * (uint64_t)n * 4;
      ASSERT_OK(copse_buffers_new((uint32_t)n, bytes, bytes, &buffers, &err), &err);
      struct copse_data data = {.collective = COPSE_ALLTOALL,
                                .n_ranks = (uint32_t)n,
                                .root = -1,
                                .count = counts[c],
                                .type = COPSE_INT32,
                                .redop = COPSE_SUM,
                                .seed = 9,
                                .extents = plan->extents};
      copse_buffers_fill(&buffers, &data, false);
      struct copse_launch launch = {counts[c], COPSE_INT32, COPSE_SUM, buffers.inputs,
                                    buffers.outputs, NULL};
      ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
      ck_assert_uint_eq(copse_buffers_count_wrong(&buffers), 0);
      data.extents = NULL; /* a full alltoall is not what this plan does */
      if (counts[c] > 100) {
        buffers.data.extents = NULL;
        ck_assert_uint_gt(copse_buffers_count_wrong(&buffers), 0);
      }
      copse_buffers_free(&buffers);
    }
    copse_exec_free(exec);
    copse_plan_free(plan);
    copse_schedule_free(schedule);
    copse_topology_free(t);
  }
}
END_TEST

/* A plan by demand that leaves out a block with elements is refused, one without is not. */
START_TEST(a_missing_block_is_missed_only_if_it_has_elements) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[4]); /* two ranks */
  int64_t demand[] = {0, 10, 0, 0};
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .demand = demand, .label = "test"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule;
  struct copse_plan *plan;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  ASSERT_OK(copse_lower_schedule(schedule, NULL, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  for (int pair = 0; pair < 4; pair++) {
    struct copse_plan_extent extents[4];
    struct copse_plan changed = *plan;
    memcpy(extents, plan->extents, sizeof extents);
    if (extents[pair].num > 0) continue;
    extents[pair] = (struct copse_plan_extent){1, 2};
    changed.extents = extents;
    struct copse_err e = COPSE_ERR_INIT;
    ASSERT_FAILS(copse_prove_plan(&changed, "plan", &report, &e), COPSE_REFUTED, &e,
                 "is never moved");
  }
  copse_plan_free(plan);
  copse_schedule_free(schedule);
  copse_topology_free(t);
}
END_TEST

/* A star of 600 ranks: the root has more children than one MOVE takes operands. */
START_TEST(more_children_than_a_move_has_operands_take_several) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_proof_report report;
  for (int c = COPSE_BROADCAST; c <= COPSE_REDUCE; c++) {
    struct copse_schedule *schedule = copse_test_star(600, (copse_collective)c);
    ASSERT_OK(copse_lower_schedule(schedule, NULL, &plan, &err), &err);
    ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
    int moves = 0;
    const struct copse_plan_worker *root = &plan->workers[plan->ranks[0].first_worker];
    for (uint32_t i = 0; i < root->n_ops; i++)
      moves += plan->ops[root->first_op + i].kind == COPSE_OP_MOVE;
    ck_assert_int_eq(moves, 3); /* 599 children, 254 at a time */
    copse_plan_free(plan);
    copse_schedule_free(schedule);
  }
}
END_TEST

/* Puts of a worker into other ranks' memory. */
static int count_puts(const struct copse_plan *plan, uint32_t rank,
                      const struct copse_plan_worker *w) {
  int puts = 0;
  for (uint32_t i = w->first_op; i < w->first_op + w->n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    for (uint32_t k = op->n_src; op->kind == COPSE_OP_MOVE && k < (uint32_t)op->n_src + op->n_dst;
         k++)
      puts += plan->operands[op->operand + k].rank != rank;
  }
  return puts;
}

static void run_in_place(const struct copse_plan *plan, copse_collective c,
                         enum copse_backend backend) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  struct copse_buffers buffers;
  const struct copse_data data = {.collective = c,
                                  .n_ranks = plan->header.n_ranks,
                                  .root = c == COPSE_BROADCAST ? 0 : -1,
                                  .count = 1001,
                                  .type = COPSE_INT32,
                                  .redop = COPSE_SUM,
                                  .seed = 9};
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  ASSERT_OK(copse_buffers_new(plan->header.n_ranks, 4004, 4004, &buffers, &err), &err);
  copse_buffers_fill(&buffers, &data, true);
  struct copse_launch launch = {data.count,     COPSE_INT32,     COPSE_SUM,
                                buffers.inputs, buffers.outputs, NULL};
  ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
  ck_assert_uint_eq(copse_buffers_count_wrong(&buffers), 0);
  copse_buffers_free(&buffers);
  copse_exec_free(exec);
}

/* Each message keeps a worker busy: a root that has its own input deals the puts of a schedule for
 * one size evenly. Its own copy, in place where they read, must wait for them. */
START_TEST(a_root_deals_its_puts_to_all_its_workers) {
  static const int workers[] = {1, 3, 32}, most[] = {8, 3, 1};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_star(9, COPSE_BROADCAST);
  struct copse_lower_options lower = {.max_workers = workers[_i]};
  schedule->objective =
      (struct copse_schedule_objective){.bytes = 1 << 10, .chunks = 1, .alpha_us = {2, 1}};
  schedule->bound.time_per_GB = (struct copse_q){1, 100}; /* 0.01 us */
  ASSERT_OK(copse_lower_schedule(schedule, &lower, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  const struct copse_plan_rank *root = &plan->ranks[0];
  int puts = 0;
  for (uint32_t w = root->first_worker; w < root->first_worker + root->n_workers; w++) {
    int own = count_puts(plan, 0, &plan->workers[w]);
    ck_assert_int_le(own, most[_i]);
    puts += own;
  }
  ck_assert_int_eq(puts, 8);
  run_in_place(plan, COPSE_BROADCAST, COPSE_BACKEND_CPU);
  run_in_place(plan, COPSE_BROADCAST, COPSE_BACKEND_THREADS);
  for (uint32_t i = 1; i < plan->header.n_ops; i++) { /* the copy before the wait for who reads */
    struct copse_plan_op *op = (struct copse_plan_op *)&plan->ops[i], wait = op[-1];
    if (wait.kind != COPSE_OP_WAIT || wait.when != COPSE_WHEN_ALWAYS || op->kind != COPSE_OP_MOVE)
      continue;
    op[-1] = *op;
    *op = wait;
    ck_assert_int_eq(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED);
    ck_assert_ptr_nonnull(strstr(err.text, "in place"));
    puts = 0;
    break;
  }
  ck_assert_int_eq(puts, workers[_i] > 1 ? 0 : 8);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* The same of a sum, which must be there before it is put. */
START_TEST(a_root_deals_the_puts_of_its_sum) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_star(9, COPSE_BROADCAST);
  struct copse_schedule *up = copse_test_star(9, COPSE_REDUCE);
  const struct copse_schedule_tree both[] = {up->trees[0], schedule->trees[0]};
  schedule->collective = COPSE_ALLREDUCE;
  schedule->root = -1;
  schedule->trees = both;
  schedule->n_trees = 2;
  struct copse_lower_options lower = {.max_workers = 10};
  schedule->objective = (struct copse_schedule_objective){
      .bytes = 1 << 10, .chunks = 1, .far_first = _i, .alpha_us = {2, 1}};
  ASSERT_OK(copse_lower_schedule(schedule, &lower, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  const struct copse_plan_rank *root = &plan->ranks[0];
  int puts = 0, others = 0;
  for (uint32_t w = root->first_worker; w < root->first_worker + root->n_workers; w++) {
    int own = count_puts(plan, 0, &plan->workers[w]);
    ck_assert_int_le(own, 2);
    puts += own;
    others += own > 0;
  }
  ck_assert_int_eq(puts, 8);
  ck_assert_int_gt(others, 3);
  run_in_place(plan, COPSE_ALLREDUCE, COPSE_BACKEND_CPU);
  run_in_place(plan, COPSE_ALLREDUCE, COPSE_BACKEND_THREADS);
  for (uint32_t i = 0; i + 1 < plan->header.n_ops && puts > 0; i++) { /* a put before its wait */
    struct copse_plan_op *op = (struct copse_plan_op *)&plan->ops[i], wait = *op;
    if (op->kind != COPSE_OP_WAIT || op[1].kind != COPSE_OP_MOVE) continue;
    const struct copse_plan_channel *channel = &plan->channels[op->channel];
    if (plan->workers[channel->src_worker].rank != 0 ||
        plan->workers[channel->dst_worker].rank != 0)
      continue;
    *op = op[1];
    op[1] = wait;
    ck_assert_int_eq(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED);
    puts = 0;
  }
  ck_assert_int_eq(puts, 0);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
  copse_schedule_free(up);
}
END_TEST

/* A rank that passes on what came, 1 in 0 > 1 > 2 .. 9, deals its puts as well: no worker of it
 * puts before the one that takes in has said so. Over two trees each has half of the workers. Eight
 * messages take 1.44 us: where links need 4 us they are dealt, where 20 us they are not. */
START_TEST(a_rank_deals_what_it_passes_on) {
  static const struct copse_q times[] = {{1, 100}, {1, 100}, {1, 100}, {1, 100}, {4, 1}, {20, 1}};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  int n_trees = 1 + (_i / 2) % 2, puts = 0, putting = 0, waits = 0;
  struct copse_schedule *schedule = copse_test_relayed_star(10, n_trees);
  struct copse_lower_options lower = {.max_workers = 8};
  schedule->objective = (struct copse_schedule_objective){
      .bytes = 1 << 10, .chunks = 2, .far_first = _i % 2, .alpha_us = {2, 1}};
  schedule->bound.time_per_GB = times[_i];
  ASSERT_OK(copse_lower_schedule(schedule, &lower, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  const struct copse_plan_rank *rank = &plan->ranks[1];
  for (uint32_t w = rank->first_worker; w < rank->first_worker + rank->n_workers; w++) {
    int own = count_puts(plan, 1, &plan->workers[w]);
    ck_assert_int_le(own, _i == 5 ? 8 : 2 * n_trees);
    puts += own;
    putting += own > 0;
  }
  ck_assert_int_eq(puts, 8 * n_trees);
  ck_assert_int_ge(putting, _i == 5 ? 1 : 4);
  run_in_place(plan, COPSE_BROADCAST, COPSE_BACKEND_CPU);
  run_in_place(plan, COPSE_BROADCAST, COPSE_BACKEND_THREADS);
  for (uint32_t i = 0; i < plan->header.n_ops; i++) { /* a put that waits for nobody */
    struct copse_plan_op *op = (struct copse_plan_op *)&plan->ops[i], wait = *op;
    const struct copse_plan_channel *channel = &plan->channels[op->channel];
    if (op->kind != COPSE_OP_WAIT || op[1].kind != COPSE_OP_MOVE ||
        plan->workers[channel->src_worker].rank != 1 ||
        plan->workers[channel->dst_worker].rank != 1)
      continue;
    *op = op[1];
    op[1] = wait;
    ck_assert_int_eq(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED);
    op[1] = *op;
    *op = wait;
    waits++;
  }
  ck_assert_int_ge(waits, _i == 5 ? 0 : 3 * n_trees);
  ck_assert_int_eq(putting == 1, _i == 5);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* Pieces of a block meet end to end for every count: nothing is lost, nothing is twice. */
START_TEST(pieces_tile_every_block_for_any_count) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[0], COPSE_ALLREDUCE, 0);
  ASSERT_OK(copse_lower_schedule(schedule, NULL, &plan, &err), &err);
  uint64_t counts[] = {0, 1, 2, 3, 5, 7, 16, 31, 1000, 4097, 1u << 20, (1ull << 40) + 3};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    for (uint32_t unit = 1; unit <= 16; unit *= 2) {
      uint64_t at = 0;
      for (uint32_t p = 0; p < plan->header.n_pieces; p++) {
        struct copse_span span = copse_piece_span(&plan->pieces[p], counts[i], unit);
        ck_assert_uint_eq(span.first, at);
        at = span.first + span.count;
        const struct copse_plan_piece *piece = &plan->pieces[p];
        double share = (double)counts[i] * ((double)piece->hi_num / (double)piece->hi_den -
                                            (double)piece->lo_num / (double)piece->lo_den);
        /* within one alignment unit of its share, the last one up to the end */
        ck_assert(fabs((double)span.count - share) <= unit + 1e-3 * share);
      }
      ck_assert_uint_eq(at, counts[i]);
    }
  }
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(options_out_of_range_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[0], COPSE_ALLREDUCE, 0);
  ASSERT_FAILS(
      copse_lower_schedule(schedule, &(struct copse_lower_options){.max_workers = 1}, &plan, &err),
      COPSE_INVALID, &err, "workers must be from 2");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(
      copse_lower_schedule(schedule, &(struct copse_lower_options){.fifo = 65}, &plan, &err),
      COPSE_INVALID, &err, "FIFO depth");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(
      copse_lower_schedule(schedule, &(struct copse_lower_options){.chunk_bytes = 8}, &plan, &err),
      COPSE_INVALID, &err, "chunk size");
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(the_same_schedule_gives_the_same_bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[2], COPSE_ALLREDUCE, 0);
  char *bytes[2];
  size_t size[2];
  for (int i = 0; i < 2; i++) {
    struct copse_plan *plan;
    ASSERT_OK(copse_lower_schedule(schedule, NULL, &plan, &err), &err);
    ASSERT_OK(copse_plan_encode(plan, &bytes[i], &size[i], &err), &err);
    copse_plan_free(plan);
  }
  ck_assert_uint_eq(size[0], size[1]);
  ck_assert_mem_eq(bytes[0], bytes[1], size[0]);
  free(bytes[0]);
  free(bytes[1]);
  copse_schedule_free(schedule);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/lower");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, every_collective_on_every_fabric_is_proved);
  tcase_add_test(tc, a_schedule_for_one_size_is_cut_as_it_says);
  tcase_add_test(tc, alltoalls_by_demand_are_proved_and_run_right);
  tcase_add_test(tc, a_missing_block_is_missed_only_if_it_has_elements);
  tcase_add_test(tc, more_children_than_a_move_has_operands_take_several);
  tcase_add_loop_test(tc, a_root_deals_its_puts_to_all_its_workers, 0, 3);
  tcase_add_loop_test(tc, a_root_deals_the_puts_of_its_sum, 0, 2);
  tcase_add_loop_test(tc, a_rank_deals_what_it_passes_on, 0, 6);
  tcase_add_test(tc, pieces_tile_every_block_for_any_count);
  tcase_add_test(tc, options_out_of_range_are_refused);
  tcase_add_test(tc, the_same_schedule_gives_the_same_bytes);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
