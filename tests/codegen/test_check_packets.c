/*
 * The proof and plans of packets: faults in real ones, and small ones by hand for each thing
 * that can be wrong. What the proof accepts must run right on both executors, of which one goes
 * by signals and the other by the packets themselves.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/mutant.h"
#include "support/plan_builder.h"
#include "support/support.h"

/* ---- faults in plans of schedules ---------------------------------------------------------- */

static struct copse_plan *make_plan(const char *fabric, copse_collective collective) {
  struct copse_lower_options options = {.max_workers = 2, .low_latency = true};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_schedule *schedule = copse_test_solve(fabric, collective, 0);
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  copse_schedule_free(schedule);
  return plan;
}

static void for_every_plan(void (*test)(const struct copse_plan *plan)) {
  for (int f = 0; f < copse_test_n_fabrics; f++)
    for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
      if ((6 * f + c) % COPSE_TEST_UP_TO(1, 7)) continue;
      struct copse_plan *plan = make_plan(copse_test_fabrics[f], (copse_collective)c);
      ck_assert_msg(mutant_accepted(plan), "fabric %d, %s: the plan itself is refused", f,
                    copse_collective_name((copse_collective)c));
      test(plan);
      copse_plan_free(plan);
    }
}

/* Refused, or right all the same. */
static bool refused_or_right(const struct mutant *m, const char *what, uint32_t op) {
  if (!mutant_accepted(&m->plan)) return true;
  ck_assert_msg(mutant_wrong(&m->plan, COPSE_BACKEND_CPU, 1) == 0 &&
                    mutant_wrong(&m->plan, COPSE_BACKEND_CPU, 332) == 0,
                "op %u %s, accepted and wrong", op, what);
  ck_assert_msg(mutant_wrong(&m->plan, COPSE_BACKEND_THREADS, 332) == 0,
                "op %u %s, accepted and wrong on threads", op, what);
  return false;
}

static int refused, accepted; /* of a test, each of which has a process of its own */
static void count(bool was_refused) {
  if (was_refused)
    refused++;
  else
    accepted++;
}

START_TEST(a_dropped_operation_is_refused) { for_every_plan(mutant_refuse_dropped); }
END_TEST

START_TEST(a_doubled_operation_is_refused) { for_every_plan(mutant_refuse_doubled); }
END_TEST

static void swap_each(const struct copse_plan *plan) {
  for (uint32_t op = 0; op + 1 < plan->header.n_ops; op++) {
    if (mutant_worker(plan, op) != mutant_worker(plan, op + 1)) continue;
    struct mutant m = mutant_of(plan);
    m.ops[op] = plan->ops[op + 1];
    m.ops[op + 1] = plan->ops[op];
    count(refused_or_right(&m, "swapped with the next", op));
    mutant_free(&m);
  }
}
START_TEST(a_swap_is_refused_or_harmless) {
  for_every_plan(swap_each);
  ck_assert_int_gt(refused, 300 / COPSE_TEST_ONE_IN);
  ck_assert_int_gt(accepted, 0);
}
END_TEST

/* Another piece, rank, block, region, channel, moment or finality: one field changed. */
static void redirect_each(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  uint64_t seed = h->n_ops;
  for (uint32_t op = 0; op < h->n_ops; op++)
    for (int field = 0; field < 6; field++) {
      struct mutant m = mutant_of(plan);
      struct copse_plan_op *o = &m.ops[op];
      bool is_move = o->kind == COPSE_OP_MOVE;
      uint32_t n = is_move ? (uint32_t)o->n_src + o->n_dst : 1;
      struct copse_plan_operand *operand = &m.operands[o->operand + copse_test_random(&seed) % n];
      uint32_t step = 1 + (uint32_t)(copse_test_random(&seed) % 5);
      if (field == 0 && is_move) o->piece = (o->piece + step) % h->n_pieces;
      if (field == 1 && is_move) operand->rank = (operand->rank + step) % h->n_ranks;
      if (field == 2 && is_move) {
        uint32_t range = operand->buffer == COPSE_BUFFER_PACKETS ? h->n_regions
                         : operand->buffer == COPSE_BUFFER_INPUT ? h->input_blocks
                                                                 : h->output_blocks;
        operand->index = (operand->index + step) % range;
      }
      if (field == 3 && is_move) o->flags ^= COPSE_MOVE_FINAL;
      if (field == 4 && !is_move) o->channel = (o->channel + step) % h->n_channels;
      if (field == 5) o->when = (uint8_t)((o->when + step) % 5);
      /* in a single chunk the first is every one */
      if (o->when == COPSE_WHEN_FIRST && plan->ops[op].when == COPSE_WHEN_ALWAYS)
        o->when = COPSE_WHEN_ALWAYS;
      bool same = memcmp(o, &plan->ops[op], sizeof *o) == 0 &&
                  memcmp(m.operands, plan->operands, h->n_operands * sizeof *m.operands) == 0;
      if (!same) refused_or_right(&m, "redirected", op);
      mutant_free(&m);
    }
}
START_TEST(a_redirected_operation_is_refused_or_harmless) { for_every_plan(redirect_each); }
END_TEST

/* One end of a channel only: whoever goes by packets would skip the one and not the other. */
static void flip_each(const struct copse_plan *plan) {
  for (uint32_t op = 0; op < plan->header.n_ops; op++) {
    if (plan->ops[op].kind == COPSE_OP_MOVE) continue;
    struct mutant m = mutant_of(plan);
    m.ops[op].flags ^= COPSE_SYNC_IN_DATA;
    ck_assert_msg(!mutant_accepted(&m.plan), "op %u: another flag and accepted", op);
    mutant_free(&m);
  }
}
START_TEST(half_a_channel_in_the_data_is_refused) { for_every_plan(flip_each); }
END_TEST

static void flip_channel(struct mutant *m, uint32_t channel) {
  for (uint32_t op = 0; op < m->plan.header.n_ops; op++)
    if (m->ops[op].kind != COPSE_OP_MOVE && m->ops[op].channel == channel)
      m->ops[op].flags ^= COPSE_SYNC_IN_DATA;
}

/* A signal that packets make superfluous may as well be a real one. A greeting that nobody looks
 * at greets nobody, and may be left out only where another has. */
static void flip_channels(const struct copse_plan *plan) {
  for (uint32_t op = 0; op < plan->header.n_ops; op++) {
    if (plan->ops[op].kind != COPSE_OP_SIGNAL) continue;
    struct mutant m = mutant_of(plan);
    bool greeting = !(plan->ops[op].flags & COPSE_SYNC_IN_DATA);
    flip_channel(&m, plan->ops[op].channel);
    bool was_refused = refused_or_right(&m, "of the other kind", op);
    ck_assert_msg(greeting || !was_refused, "op %u: a real signal is refused", op);
    if (greeting) count(was_refused);
    mutant_free(&m);
  }
}
START_TEST(a_channel_of_the_other_kind_is_refused_where_it_greets) {
  for_every_plan(flip_channels);
  ck_assert_int_gt(refused, COPSE_TEST_UP_TO(20, 5));
}
END_TEST

/* ---- plans by hand --------------------------------------------------------------------------- */

static void expect_refused(struct copse_plan *plan, const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED, &err, text);
  pb_free(plan);
}

static void expect_right(struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  static const uint64_t counts[] = {0, 1, 15, 500, UINT64_MAX};
  exec_check_all(plan, COPSE_BACKEND_CPU, counts);
  exec_check_all(plan, COPSE_BACKEND_THREADS, counts);
  pb_free(plan);
}

/* copy from `from` to `to`, and to `also` if its rank isn't NOBODY */
#define NOBODY UINT32_MAX
static void copy(struct plan_builder *b, uint32_t worker, uint32_t piece,
                 struct copse_plan_operand from, struct copse_plan_operand to,
                 struct copse_plan_operand also) {
  pb_move(b, worker, piece, 0);
  pb_src(b, from);
  pb_dst(b, to);
  if (also.rank != NOBODY) pb_dst(b, also);
}
static const struct copse_plan_operand nothing = {NOBODY, 0, 0};

enum greeting { NO_GREETING, GREETING, GREETING_IN_DATA };

/* Rank 0 sends to rank 1. */
static struct copse_plan *broadcast(enum greeting greeting) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1), hello = pb_channel(b, w1, w0);
  uint32_t packets = pb_packets(b, 1, piece);
  if (greeting == GREETING) {
    pb_signal(b, w1, hello, COPSE_WHEN_FIRST);
    pb_wait(b, w0, hello, COPSE_WHEN_FIRST);
  } else if (greeting == GREETING_IN_DATA) {
    pb_data_signal(b, w1, hello);
    pb_data_wait(b, w0, hello);
  }
  copy(b, w0, piece, pb_input(0, 0), pb_output(0, 0), pb_packet(1, packets));
  pb_data_signal(b, w0, data);
  pb_data_wait(b, w1, data);
  copy(b, w1, piece, pb_packet(1, packets), pb_output(1, 0), nothing);
  return pb_finish(b);
}

START_TEST(a_broadcast_without_greetings_is_refused) {
  expect_refused(
      broadcast(NO_GREETING),
      "plan: rank 0 sends packets[0] to rank 1 and need not be notified of it in return: "
      "two launches later it may overwrite them unread");
  expect_refused(broadcast(GREETING_IN_DATA), "need not be notified of it in return");
  expect_right(broadcast(GREETING));
}
END_TEST

/* Rank 1 gets two halves and sends some of them back, which is answer enough if there is always
 * something to send. */
static struct copse_plan *echo(bool first_half, bool second_half) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  bool back[] = {first_half, second_half};
  uint32_t forth_channel[2], back_channel[2], piece[2], there[2], here[2];
  for (int i = 0; i < 2; i++) {
    piece[i] = pb_piece(b, i, 2, i + 1, 2);
    there[i] = pb_packets(b, 1, piece[i]);
    forth_channel[i] = pb_channel(b, w0, w1);
    back_channel[i] = pb_channel(b, w1, w0);
    if (back[i]) here[i] = pb_packets(b, 0, piece[i]);
    copy(b, w0, piece[i], pb_input(0, 0), pb_packet(1, there[i]),
         back[i] ? nothing : pb_output(0, 0));
    pb_data_signal(b, w0, forth_channel[i]);
  }
  for (int i = 0; i < 2; i++) {
    pb_data_wait(b, w1, forth_channel[i]);
    copy(b, w1, piece[i], pb_packet(1, there[i]), pb_output(1, 0),
         back[i] ? pb_packet(0, here[i]) : nothing);
    if (!back[i]) continue;
    pb_data_signal(b, w1, back_channel[i]);
    pb_data_wait(b, w0, back_channel[i]);
    copy(b, w0, piece[i], pb_packet(0, here[i]), pb_output(0, 0), nothing);
  }
  return pb_finish(b);
}

START_TEST(an_answer_that_may_be_empty_is_none) {
  expect_refused(echo(false, false), "need not be notified of it in return");
  expect_refused(echo(true, false), "rank 0 sends packets[");
  expect_right(echo(false, true));
  expect_right(echo(true, true));
}
END_TEST

/* Around a ring each rank is notified of the next one in the end: over all the others. */
static struct copse_plan *ring(uint32_t n) {
  struct plan_builder *b = pb_new(COPSE_ALLGATHER, n, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t channel[8], packets[8][8]; /* [at][block] */
  for (uint32_t r = 0; r < n; r++) pb_worker(b, r);
  for (uint32_t r = 0; r < n; r++) {
    channel[r] = pb_channel(b, r, (r + 1) % n);
    for (uint32_t block = 0; block < n; block++)
      if (block != r) packets[r][block] = pb_packets(b, r, piece);
  }
  for (uint32_t r = 0; r < n; r++) {
    uint32_t next = (r + 1) % n;
    copy(b, r, piece, pb_input(r, 0), pb_output(r, r), pb_packet(next, packets[next][r]));
    pb_data_signal(b, r, channel[r]);
    for (uint32_t hop = 1; hop < n; hop++) {
      uint32_t block = (r + n - hop) % n;
      bool last = block == next;
      pb_data_wait(b, r, channel[(r + n - 1) % n]);
      copy(b, r, piece, pb_packet(r, packets[r][block]), pb_output(r, block),
           last ? nothing : pb_packet(next, packets[next][block]));
      if (!last) pb_data_signal(b, r, channel[r]);
    }
  }
  return pb_finish(b);
}
START_TEST(a_ring_hears_of_everybody) {
  for (uint32_t n = 2; n <= 6; n++) expect_right(ring(n));
}
END_TEST

/* Rank 0 knows of rank 1 by signals only: no packet of this launch has notified it. */
START_TEST(hearing_of_a_rank_after_sending_by_another_way_is_refused) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1), done = pb_channel(b, w1, w0);
  uint32_t packets = pb_packets(b, 1, piece);
  copy(b, w0, piece, pb_input(0, 0), pb_output(0, 0), pb_packet(1, packets));
  pb_data_signal(b, w0, data);
  pb_data_wait(b, w1, data);
  copy(b, w1, piece, pb_packet(1, packets), pb_output(1, 0), nothing);
  pb_data_signal(b, w1, done);
  pb_data_wait(b, w0, done);
  expect_refused(pb_finish(b), "need not be notified of it in return");
}
END_TEST

enum reduce_fault { RIGHT, SHARED_REGION, UNSIGNALLED, SIGNALLED_EARLY, UNREAD };

/* Ranks 1 and 2 send up to rank 0. */
static struct copse_plan *reduce(enum reduce_fault fault) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 3, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), root = pb_worker(b, 0), packets[3], up[3];
  for (uint32_t r = 1; r < 3; r++) {
    uint32_t w = pb_worker(b, r), hello = pb_channel(b, root, w);
    up[r] = pb_channel(b, w, root);
    packets[r] = pb_packets(b, 0, piece);
    if (fault == SHARED_REGION && r == 2) packets[2] = packets[1];
    pb_signal(b, root, hello, COPSE_WHEN_FIRST);
    pb_wait(b, w, hello, COPSE_WHEN_FIRST);
    if (fault == SIGNALLED_EARLY) pb_data_signal(b, w, up[r]);
    copy(b, w, piece, pb_input(r, 0), pb_packet(0, packets[r]),
         fault == UNREAD ? pb_packet(0, pb_packets(b, 0, piece)) : nothing);
    if (fault != SIGNALLED_EARLY && !(fault == UNSIGNALLED && r == 2)) pb_data_signal(b, w, up[r]);
  }
  for (uint32_t r = 1; r < 3; r++)
    if (!(fault == UNSIGNALLED && r == 2)) pb_data_wait(b, root, up[r]);
  pb_move(b, root, piece, COPSE_MOVE_FINAL);
  pb_src(b, pb_input(0, 0));
  pb_src(b, pb_packet(0, packets[1]));
  pb_src(b, pb_packet(0, packets[2]));
  pb_dst(b, pb_output(0, 0));
  return pb_finish(b);
}

START_TEST(faults_of_a_reduction_are_refused) {
  expect_right(reduce(RIGHT));
  expect_refused(reduce(SHARED_REGION), "packets[0] of rank 0 is sent twice in a launch");
  expect_refused(reduce(UNSIGNALLED), "packets[1] of rank 0 is read before");
  expect_refused(reduce(SIGNALLED_EARLY), "is read before a signal tells that it was sent");
  expect_refused(reduce(UNREAD), "packets[1] of rank 0 is written and never read");
}
END_TEST

/* Packets order nothing but themselves: a slot behind a signal in the data is a race. */
START_TEST(a_slot_behind_a_signal_in_the_data_is_refused) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1), hello = pb_channel(b, w1, w0);
  uint32_t slot = pb_region(b, 1, piece);
  pb_header(b)->protocol = COPSE_PROTOCOL_LOW_LATENCY;
  pb_signal(b, w1, hello, COPSE_WHEN_FIRST);
  pb_wait(b, w0, hello, COPSE_WHEN_FIRST);
  copy(b, w0, piece, pb_input(0, 0), pb_output(0, 0), pb_scratch(1, slot));
  pb_data_signal(b, w0, data);
  pb_data_wait(b, w1, data);
  copy(b, w1, piece, pb_scratch(1, slot), pb_output(1, 0), nothing);
  expect_refused(pb_finish(b),
                 "scratch[0] of rank 1 is read while it may still be written: a race");
}
END_TEST

START_TEST(a_channel_of_two_kinds_is_refused) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 1, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w = pb_worker(b, 0), channel = pb_channel(b, w, w);
  pb_header(b)->protocol = COPSE_PROTOCOL_LOW_LATENCY;
  copy(b, w, piece, pb_input(0, 0), pb_output(0, 0), nothing);
  pb_signal(b, w, channel, COPSE_WHEN_ALWAYS);
  pb_data_wait(b, w, channel);
  expect_refused(pb_finish(b), "op 2: channel 0 belongs to packets in one operation and not in");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/check_packets");
  TCase *tc = tcase_create("all");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, a_dropped_operation_is_refused);
  tcase_add_test(tc, a_doubled_operation_is_refused);
  tcase_add_test(tc, a_swap_is_refused_or_harmless);
  tcase_add_test(tc, a_redirected_operation_is_refused_or_harmless);
  tcase_add_test(tc, half_a_channel_in_the_data_is_refused);
  tcase_add_test(tc, a_channel_of_the_other_kind_is_refused_where_it_greets);
  tcase_add_test(tc, a_broadcast_without_greetings_is_refused);
  tcase_add_test(tc, an_answer_that_may_be_empty_is_none);
  tcase_add_test(tc, a_ring_hears_of_everybody);
  tcase_add_test(tc, hearing_of_a_rank_after_sending_by_another_way_is_refused);
  tcase_add_test(tc, faults_of_a_reduction_are_refused);
  tcase_add_test(tc, a_slot_behind_a_signal_in_the_data_is_refused);
  tcase_add_test(tc, a_channel_of_two_kinds_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
