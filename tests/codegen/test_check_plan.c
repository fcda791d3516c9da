/*
 * The symbolic proof must refuse broken plans. Every plan here is a real one with a single
 * fault: an operation dropped, doubled, swapped with the next, or redirected. A mutant that
 * the proof accepts must be one of the few that change nothing, and must really run right.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "support/fabric.h"
#include "support/mutant.h"
#include "support/plan_builder.h"
#include "support/support.h"

/* Small chunks, so that the runs wrap around the FIFO many times. */
static struct copse_plan *make_plan(const char *fabric, copse_collective collective) {
  struct copse_lower_options options = {
      .max_workers = 3, .fifo = 2, .chunk_bytes = 64, .min_chunk_bytes = 16};
  static uint64_t seed = 19;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_solve(fabric, collective, 0);
  if (collective != COPSE_ALLREDUCE) options.max_workers = 2;
  if (copse_test_random_int(&seed, 0, 1)) /* workers go by what has the most hops to go */
    schedule->objective =
        (struct copse_schedule_objective){.bytes = 1 << 16, .chunks = 3, .far_first = true};
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  copse_schedule_free(schedule);
  return plan;
}

static void for_every_plan(void (*test)(const struct copse_plan *plan)) {
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
      if ((6 * f + c) % COPSE_TEST_UP_TO(1, 7)) continue;
      struct copse_plan *plan = make_plan(copse_test_fabrics[f], (copse_collective)c);
      ck_assert_msg(mutant_accepted(plan), "fabric %d, %s: the plan itself is refused", f,
                    copse_collective_name((copse_collective)c));
      test(plan);
      copse_plan_free(plan);
    }
  }
}

static void run_right(const struct copse_plan *plan) {
  ck_assert_uint_eq(mutant_wrong(plan, COPSE_BACKEND_CPU, 1237), 0);
}

START_TEST(proved_plans_run_right) { for_every_plan(run_right); }
END_TEST

START_TEST(a_dropped_operation_is_refused) { for_every_plan(mutant_refuse_dropped); }
END_TEST

START_TEST(a_doubled_operation_is_refused) { for_every_plan(mutant_refuse_doubled); }
END_TEST

/* A MOVE before the wait that guards it, or after the signal that announces it, is an
 * error; other neighbours may commute, and then the plan must still be right. */
static int swaps_refused, swaps_accepted;
static void swap_each(const struct copse_plan *plan) {
  for (uint32_t op = 0; op + 1 < plan->header.n_ops; op++) {
    if (mutant_worker(plan, op) != mutant_worker(plan, op + 1)) continue;
    struct mutant m = mutant_of(plan);
    m.ops[op] = plan->ops[op + 1];
    m.ops[op + 1] = plan->ops[op];
    if (mutant_accepted(&m.plan)) {
      swaps_accepted++;
      ck_assert_msg(mutant_wrong(&m.plan, COPSE_BACKEND_CPU, 1237) == 0,
                    "ops %u and %u swapped, accepted and wrong", op, op + 1);
    } else {
      swaps_refused++;
    }
    mutant_free(&m);
  }
}
START_TEST(a_swap_is_refused_or_harmless) {
  for_every_plan(swap_each);
  ck_assert_int_gt(swaps_refused, 500 / COPSE_TEST_ONE_IN);
}
END_TEST

/* For each MOVE's guard: the wait just before it, swapped, is a race, but for the few cases where
 * an earlier wait for a later signal of the same worker has shown as much, or one for the same sum,
 * which a root deals to this worker for several children. */
static int guards_refused, guards_accepted;
static void swap_guards(const struct copse_plan *plan) {
  for (uint32_t op = 0; op + 1 < plan->header.n_ops; op++) {
    bool data_wait = plan->ops[op].kind == COPSE_OP_WAIT && plan->ops[op].when == COPSE_WHEN_ALWAYS;
    if (!data_wait || plan->ops[op + 1].kind != COPSE_OP_MOVE) continue;
    if (mutant_worker(plan, op) != mutant_worker(plan, op + 1)) continue;
    struct mutant m = mutant_of(plan);
    m.ops[op] = plan->ops[op + 1];
    m.ops[op + 1] = plan->ops[op];
    bool accepted = mutant_accepted(&m.plan);
    *(accepted ? &guards_accepted : &guards_refused) += 1;
    if (accepted)
      ck_assert_msg(mutant_wrong(&m.plan, COPSE_BACKEND_CPU, 1237) == 0,
                    "op %u moved before its wait, accepted and wrong", op + 1);
    mutant_free(&m);
  }
}
START_TEST(a_move_before_its_wait_is_refused) {
  for_every_plan(swap_guards);
  ck_assert_int_gt(guards_refused, 5 * guards_accepted);
  ck_assert_int_gt(guards_refused, COPSE_TEST_UP_TO(50, 20));
}
END_TEST

/* That a rank has entered may be known already by what came from it; then the word may be waited
 * for later. And that all is there may be said by a later signal of the same worker to the same
 * rank; then an earlier one needn't. */
static bool may_be_told_otherwise(const struct copse_plan_op *was,
                                  const struct copse_plan_op *now) {
  if (was->kind == COPSE_OP_WAIT)
    return was->when == COPSE_WHEN_FIRST && now->when == COPSE_WHEN_LAST;
  return was->kind == COPSE_OP_SIGNAL && was->when == COPSE_WHEN_LAST &&
         now->when == COPSE_WHEN_FIRST;
}

/* Another piece, rank, block, region, channel, moment or finality: one field changed. */
static int moments_refused, moments_accepted;
static void redirect_each(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  uint64_t seed = h->n_ops;
  for (uint32_t op = 0; op < h->n_ops; op++) {
    for (int field = 0; field < 6; field++) {
      struct mutant m = mutant_of(plan);
      struct copse_plan_op *o = &m.ops[op];
      bool is_move = o->kind == COPSE_OP_MOVE;
      uint32_t operands = is_move ? (uint32_t)o->n_src + o->n_dst : 1;
      struct copse_plan_operand *operand =
          &m.operands[o->operand + copse_test_random(&seed) % operands];
      uint32_t step = 1 + (uint32_t)(copse_test_random(&seed) % 5);
      if (field == 0 && is_move) o->piece = (o->piece + step) % h->n_pieces;
      if (field == 1 && is_move) operand->rank = (operand->rank + step) % h->n_ranks;
      if (field == 2 && is_move) {
        uint32_t range = operand->buffer == COPSE_BUFFER_SCRATCH ? h->n_regions
                         : operand->buffer == COPSE_BUFFER_INPUT ? h->input_blocks
                                                                 : h->output_blocks;
        operand->index = (operand->index + step) % range;
      }
      if (field == 3 && is_move) o->flags ^= COPSE_MOVE_FINAL;
      if (field == 4 && !is_move) o->channel = (o->channel + step) % h->n_channels;
      if (field == 5) o->when = (uint8_t)((o->when + step) % 5);
      bool same = memcmp(o, &plan->ops[op], sizeof *o) == 0 &&
                  (h->n_operands == 0 ||
                   memcmp(m.operands, plan->operands, h->n_operands * sizeof *m.operands) == 0);
      /* pieces of other blocks may be the same fractions: then nothing has changed */
      if (is_move &&
          memcmp(&plan->pieces[o->piece], &plan->pieces[plan->ops[op].piece],
                 sizeof *plan->pieces) == 0 &&
          field == 0)
        same = true;
      bool accepted = !same && mutant_accepted(&m.plan);
      if (field == 5 && !same) *(accepted ? &moments_accepted : &moments_refused) += 1;
      if (accepted)
        ck_assert_msg(may_be_told_otherwise(&plan->ops[op], o) &&
                          mutant_wrong(&m.plan, COPSE_BACKEND_CPU, 1237) == 0,
                      "op %u: field %d changed by %u and accepted", op, field, step);
      mutant_free(&m);
    }
  }
}
START_TEST(a_redirected_operation_is_refused) {
  for_every_plan(redirect_each);
  ck_assert_int_gt(moments_refused, 20 * moments_accepted);
}
END_TEST

/* The order of addition may be any: two children's slots swapped give other bits, and the
 * same sum. The proof is about contributions, so it accepts; the executor agrees. */
START_TEST(sources_in_another_order_are_accepted_and_right) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_star(5, COPSE_REDUCE);
  ASSERT_OK(copse_lower_schedule(schedule, NULL, &plan, &err), &err);
  copse_schedule_free(schedule);
  int swapped = 0;
  for (uint32_t op = 0; op < plan->header.n_ops; op++) {
    const struct copse_plan_op *o = &plan->ops[op];
    if (o->kind != COPSE_OP_MOVE || o->n_src < 3) continue;
    struct mutant m = mutant_of(plan);
    struct copse_plan_operand t = m.operands[o->operand + 1];
    m.operands[o->operand + 1] = m.operands[o->operand + 2];
    m.operands[o->operand + 2] = t;
    ck_assert(mutant_accepted(&m.plan));
    ck_assert_uint_eq(mutant_wrong(&m.plan, COPSE_BACKEND_CPU, 1237), 0);
    swapped++;
    mutant_free(&m);
  }
  ck_assert_int_gt(swapped, 0);
  copse_plan_free(plan);
}
END_TEST

/*
 * Seven workers in a ring: four wait at chunk c for what is signalled at chunk c + f, three give f
 * chunks back. With f = 1 it runs for 1, 2 and 3 chunks and stands still with 4: the rule that no
 * wait is for a later chunk refuses it.
 */
START_TEST(waits_for_later_chunks_are_refuted) {
  enum { F = 1, RING = 7, W = RING + 1 };
  struct copse_plan_op ops[2 * RING + 1] = {{0}};
  struct copse_plan_worker workers[W];
  struct copse_plan_channel channels[RING];
  uint32_t n = 0;
  for (uint32_t i = 0; i < RING; i++) {
    uint32_t before = (i + RING - 1) % RING;
    channels[i] = (struct copse_plan_channel){(i + 1) % RING, i};
    workers[i] = (struct copse_plan_worker){0, n, 2};
    ops[n++] =
        (struct copse_plan_op){.kind = COPSE_OP_WAIT,
                               .when = i < 4 ? COPSE_WHEN_BEFORE_FIFO : COPSE_WHEN_AFTER_FIFO,
                               .channel = i};
    ops[n++] =
        (struct copse_plan_op){.kind = COPSE_OP_SIGNAL,
                               .when = before < 4 ? COPSE_WHEN_AFTER_FIFO : COPSE_WHEN_BEFORE_FIFO,
                               .channel = before};
  }
  workers[RING] = (struct copse_plan_worker){0, n, 1};
  ops[n++] = (struct copse_plan_op){
      .kind = COPSE_OP_MOVE, .flags = COPSE_MOVE_FINAL, .n_src = 1, .n_dst = 1};
  struct copse_plan_operand operands[] = {{0, COPSE_BUFFER_INPUT, 0}, {0, COPSE_BUFFER_OUTPUT, 0}};
  struct copse_plan_piece piece = {0, 1, 1, 1, 0, 0};
  struct copse_plan_rank rank = {0, W};
  char name[] = "x";
  const struct copse_plan plan = {.header = {.version = COPSE_PLAN_VERSION,
                                             .header_bytes = sizeof plan.header,
                                             .collective = COPSE_ALLREDUCE,
                                             .root = -1,
                                             .input_blocks = 1,
                                             .output_blocks = 1,
                                             .fifo = F,
                                             .pipeline_chunks = 1,
                                             .chunk_bytes = 64,
                                             .min_chunk_bytes = 16,
                                             .max_bytes = INT64_MAX,
                                             .n_ranks = 1,
                                             .n_workers = W,
                                             .n_ops = n,
                                             .n_operands = 2,
                                             .n_pieces = 1,
                                             .n_channels = RING,
                                             .name_bytes = 1},
                                  .ranks = &rank,
                                  .workers = workers,
                                  .ops = ops,
                                  .operands = operands,
                                  .pieces = &piece,
                                  .channels = channels,
                                  .name = name};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  ASSERT_OK(copse_plan_validate(&plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(&plan, "plan", &report, &err), COPSE_REFUTED, &err,
               "with 2 chunks it is waited for at chunk 0 and signalled at a later one");
}
END_TEST

/* ---- plans by hand that end, and end wrong -------------------------------------------- */

static void copy(struct plan_builder *b, uint32_t worker, uint32_t piece,
                 struct copse_plan_operand from, struct copse_plan_operand to, uint8_t flags) {
  pb_move(b, worker, piece, flags);
  pb_src(b, from);
  pb_dst(b, to);
}

static void expect_refuted(struct plan_builder *b, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan = pb_finish(b);
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED, &err, part);
  pb_free(plan);
}

START_TEST(a_part_of_a_sum_is_refused) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, 2, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++)
    copy(b, pb_worker(b, r), piece, pb_input(r, 0), pb_output(r, 0), COPSE_MOVE_FINAL);
  expect_refuted(b, "ends with the data of");
}
END_TEST

START_TEST(anothers_block_is_refused) {
  struct plan_builder *b = pb_new(COPSE_ALLGATHER, 2, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t worker = pb_worker(b, r);
    for (uint32_t block = 0; block < 2; block++)
      copy(b, worker, piece, pb_input(r, 0), pb_output(r, block), 0);
  }
  expect_refuted(b, "rank 0, block 1, piece 0, chunk 0 of 5: ends with block 0, piece 0");
}
END_TEST

/* The reader is notified when the data are there; the writer was not notified that it may write. */
START_TEST(a_write_to_who_has_not_entered_is_refused) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1);
  copy(b, w0, piece, pb_input(0, 0), pb_output(0, 0), 0);
  copy(b, w0, piece, pb_input(0, 0), pb_output(1, 0), 0);
  pb_signal(b, w0, data, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, data, COPSE_WHEN_ALWAYS);
  expect_refuted(b, "before its rank has entered");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/check_plan");
  TCase *tc = tcase_create("all");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, proved_plans_run_right);
  tcase_add_test(tc, waits_for_later_chunks_are_refuted);
  tcase_add_test(tc, a_dropped_operation_is_refused);
  tcase_add_test(tc, a_doubled_operation_is_refused);
  tcase_add_test(tc, a_swap_is_refused_or_harmless);
  tcase_add_test(tc, a_move_before_its_wait_is_refused);
  tcase_add_test(tc, a_redirected_operation_is_refused);
  tcase_add_test(tc, sources_in_another_order_are_accepted_and_right);
  tcase_add_test(tc, a_part_of_a_sum_is_refused);
  tcase_add_test(tc, anothers_block_is_refused);
  tcase_add_test(tc, a_write_to_who_has_not_entered_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
