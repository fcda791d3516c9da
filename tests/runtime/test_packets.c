/* Packets: what a plan must keep to, how elements go in and come out, and when they are cleared. */
#include <stdlib.h>
#include <string.h>

#include "runtime/interpreter/element_tile_cpu.h"
#include "runtime/interpreter/interpreter.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

/* ---- the rules of a plan ------------------------------------------------------------------- */

/* Rank 0 sends to rank 1: rank 0's operations are WAIT, MOVE, SIGNAL, rank 1's SIGNAL, WAIT, MOVE.
 * Two regions of packets and one of slots at rank 1, the second and third for half a block. */
enum { SEND = 1, TELL = 2, GREET = 3, LISTEN = 4, TAKE = 5 };
static struct copse_plan *sample(void) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), half = pb_piece(b, 0, 1, 1, 2);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t data = pb_channel(b, w0, w1), hello = pb_channel(b, w1, w0);
  uint32_t packets = pb_packets(b, 1, piece);
  pb_packets(b, 1, half);
  pb_region(b, 1, piece);
  pb_signal(b, w1, hello, COPSE_WHEN_FIRST);
  pb_wait(b, w0, hello, COPSE_WHEN_FIRST);
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_packet(1, packets));
  pb_data_signal(b, w0, data);
  pb_data_wait(b, w1, data);
  pb_move(b, w1, piece, 0);
  pb_src(b, pb_packet(1, packets));
  pb_dst(b, pb_output(1, 0));
  return pb_finish(b);
}

/* A plan built by hand may be changed. */
static struct copse_plan_op *op_of(struct copse_plan *plan, uint32_t op) {
  return (struct copse_plan_op *)&plan->ops[op];
}
static struct copse_plan_operand *operand_of(struct copse_plan *plan, uint32_t op, uint32_t i) {
  return (struct copse_plan_operand *)&plan->operands[plan->ops[op].operand + i];
}

static void expect(struct copse_plan *plan, const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  if (text)
    ASSERT_FAILS(copse_plan_validate(plan, "plan", &err), COPSE_BAD_INPUT, &err, text);
  else
    ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  pb_free(plan);
}

START_TEST(each_rule_is_kept) {
  struct copse_plan *plan = sample();
  expect(plan, NULL);
  plan = sample();
  plan->header.protocol = COPSE_PROTOCOL_BANDWIDTH;
  expect(plan, "region 0: packets, in a plan of another protocol");
  plan = sample();
  ((struct copse_plan_region *)plan->regions)[0].kind = 2;
  expect(plan, "region 0: unknown kind 2");
  plan = sample();
  operand_of(plan, SEND, 2)->buffer = COPSE_BUFFER_SCRATCH;
  expect(plan, "op 1: operand 2: region 0 is of the other kind");
  plan = sample();
  operand_of(plan, SEND, 2)->index = 2; /* slots */
  expect(plan, "op 1: operand 2: region 2 is of the other kind");
  plan = sample();
  operand_of(plan, SEND, 2)->index = 1;
  expect(plan, "op 1: operand 2: region 1 is for piece 1, the operation's is 0");
  plan = sample();
  operand_of(plan, SEND, 2)->index = 3;
  expect(plan, "op 1: operand 2: index 3, must be below 3");
  plan = sample();
  operand_of(plan, SEND, 2)->rank = 0;
  expect(plan, "op 1: operand 2: region 0 is at rank 1, not 0");
  plan = sample();
  operand_of(plan, SEND, 0)->buffer = COPSE_BUFFER_PACKETS; /* of rank 1: no source for rank 0 */
  expect(plan, "op 1: operand 0: region 0 is at rank 1, not 0");
  plan = sample();
  op_of(plan, TELL)->flags = 2;
  expect(plan, "op 2: unknown flags 0x2");
  plan = sample();
  op_of(plan, SEND)->flags = COPSE_MOVE_REDUCE_LOAD;
  expect(plan, "header: multicast is not for a low-latency plan");
  plan = sample();
  op_of(plan, SEND)->flags = 8;
  expect(plan, "op 1: unknown flags 0x8");
}
END_TEST

START_TEST(packets_are_announced) {
  struct copse_plan *plan = sample();
  struct copse_plan_op wait = plan->ops[LISTEN];
  *op_of(plan, LISTEN) = plan->ops[TAKE];
  *op_of(plan, TAKE) = wait;
  expect(plan, "op 4: reads packets, and its worker has not waited for any");
}
END_TEST

START_TEST(blocks_with_extents_have_no_packets) {
  struct plan_builder *b = pb_new(COPSE_ALLTOALL, 2, -1);
  struct copse_plan_extent extents[4] = {{0, 1}, {1, 2}, {1, 1}, {0, 1}};
  pb_header(b)->protocol = COPSE_PROTOCOL_LOW_LATENCY;
  struct copse_plan *plan = pb_finish(b);
  plan->header.n_extents = 4;
  plan->extents = extents;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_FAILS(copse_plan_validate(plan, "plan", &err), COPSE_BAD_INPUT, &err,
               "an alltoall by demand, whose blocks may be empty, has no packets");
  pb_free(plan);
}
END_TEST

/* A worker of n operations in linear time, whatever reads packets when. */
START_TEST(many_operations_are_checked_in_time) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 1, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w = pb_worker(b, 0), channel = pb_channel(b, w, w);
  uint32_t packets = pb_packets(b, 0, piece);
  int n = 300000;
  for (int i = 0; i < n; i++) pb_data_signal(b, w, channel);
  pb_data_wait(b, w, channel);
  pb_move(b, w, piece, 0);
  pb_src(b, pb_packet(0, packets));
  pb_dst(b, pb_output(0, 0));
  for (int i = 0; i < n; i++) {
    pb_move(b, w, piece, 0);
    pb_src(b, pb_packet(0, packets));
    pb_dst(b, pb_output(0, 0));
  }
  expect(pb_finish(b), NULL);
}
END_TEST

/* ---- elements in packets --------------------------------------------------------------------- */

#define MOST_ELEMENTS 300u
#define MOST_BYTES (8 * MOST_ELEMENTS)
#define MOST_PACKETS (MOST_BYTES / 4 + 8)

/* Check's own assertions tell the parent of every success, which is slow in loops. */
#define FAST_ASSERT(condition)                        \
  do {                                                \
    if (!(condition)) ck_abort_msg("%s", #condition); \
  } while (0)

/* What packets must be, byte by byte; behind the last one nothing is written. */
static void check_packets(const uint64_t *packets, const unsigned char *data, uint64_t bytes,
                          uint32_t epoch) {
  for (uint64_t i = 0; i < MOST_PACKETS; i++) {
    uint64_t expected = 0;
    for (uint64_t k = 4 * i; k < 4 * i + 4 && k < bytes; k++)
      expected |= (uint64_t)data[k] << (8 * (k % 4));
    if (4 * i < bytes) expected |= (uint64_t)epoch << 32;
    FAST_ASSERT(packets[i] == (4 * i < bytes ? expected : UINT64_MAX));
  }
}

static void fill(unsigned char *data, uint64_t *state) {
  for (uint32_t i = 0; i < MOST_BYTES; i++) data[i] = (unsigned char)copse_test_random(state);
}

/* Every size of element, every length: into packets and a plain copy, and out again. */
START_TEST(elements_go_into_packets_and_come_out) {
  static const copse_type types[] = {COPSE_INT8, COPSE_HALF, COPSE_FLOAT, COPSE_DOUBLE};
  static unsigned char data[MOST_BYTES], there[MOST_BYTES], back[MOST_BYTES];
  static _Alignas(16) uint64_t packets[2][MOST_PACKETS];
  uint64_t state = 3;
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (uint32_t count = 0; count <= MOST_ELEMENTS; count++) {
      uint32_t epoch = 1 + (uint32_t)copse_test_random(&state) % 0xfffffff0u;
      uint64_t bytes = (uint64_t)count * copse_type_bytes(types[t]);
      fill(data, &state);
      memset(packets, 0xff, sizeof packets);
      memset(there, 0xee, sizeof there);
      memset(back, 0xee, sizeof back);
      struct copse_place src = {data, 0};
      struct copse_place dst[] = {
          {(unsigned char *)packets[0], epoch}, {there, 0}, {(unsigned char *)packets[1], epoch}};
      struct copse_move move = {.type = types[t],
                                .redop = COPSE_SUM,
                                .n_src = 1,
                                .n_dst = 3,
                                .divisor = 1,
                                .count = count,
                                .src = &src,
                                .dst = dst};
      FAST_ASSERT(copse_move_run(&move, 0, 1));
      FAST_ASSERT(memcmp(there, data, bytes) == 0 && (bytes == MOST_BYTES || there[bytes] == 0xee));
      for (int k = 0; k < 2; k++) check_packets(packets[k], data, bytes, epoch);
      FAST_ASSERT(copse_packets_are_there(&dst[0], bytes));
      struct copse_place to = {back, 0};
      move.n_dst = 1;
      move.src = &dst[2];
      move.dst = &to;
      FAST_ASSERT(copse_move_run(&move, 0, 1));
      FAST_ASSERT(memcmp(back, data, bytes) == 0 && (bytes == MOST_BYTES || back[bytes] == 0xee));
    }
}
END_TEST

START_TEST(one_missing_packet_is_missed) {
  static _Alignas(16) uint64_t packets[MOST_PACKETS];
  for (uint64_t bytes = 1; bytes <= 300; bytes++) {
    uint64_t n = (bytes + 3) / 4;
    struct copse_place place = {(unsigned char *)packets, 7};
    for (uint64_t i = 0; i < MOST_PACKETS; i++) packets[i] = copse_packet_of(9, i < n ? 7 : 5);
    FAST_ASSERT(copse_packets_are_there(&place, bytes));
    for (uint64_t i = 0; i < n; i++) {
      packets[i] = copse_packet_of(7, 5); /* of the launch before the last but one */
      FAST_ASSERT(!copse_packets_are_there(&place, bytes));
      packets[i] = copse_packet_of(9, 7);
    }
  }
}
END_TEST

/* The same bits, whether sources come plain or in packets and wherever results go. */
START_TEST(reductions_of_packets_are_those_of_elements) {
  static unsigned char data[3][MOST_BYTES], plain[MOST_BYTES], mixed[MOST_BYTES];
  static _Alignas(16) uint64_t packets[3][MOST_PACKETS], sent[MOST_PACKETS];
  uint64_t state = 8;
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
      for (uint32_t count = 0; count <= MOST_ELEMENTS; count += count < 20 ? 1 : 93) {
        uint64_t bytes = (uint64_t)count * copse_type_bytes((copse_type)type);
        struct copse_place from[3], in[3], to = {plain, 0};
        struct copse_place out[] = {{mixed, 0}, {(unsigned char *)sent, 12}};
        for (int k = 0; k < 3; k++) {
          fill(data[k], &state);
          from[k] = in[k] = (struct copse_place){data[k], 0};
          struct copse_place there = {(unsigned char *)packets[k], 11};
          if (k != redop % 3) in[k] = there;
          const struct copse_move pack = {(copse_type)type, COPSE_SUM, 1,   1, 1, count,
                                          &from[k],         &there,    NULL};
          FAST_ASSERT(copse_move_run(&pack, 0, 1));
        }
        struct copse_move move = {.type = (copse_type)type,
                                  .redop = (copse_redop)redop,
                                  .n_src = 3,
                                  .n_dst = 1,
                                  .divisor = redop == COPSE_AVG ? 3 : 1,
                                  .count = count,
                                  .src = from,
                                  .dst = &to};
        FAST_ASSERT(copse_move_run(&move, 0, 1));
        memset(sent, 0xff, sizeof sent);
        move.src = in;
        move.dst = out;
        move.n_dst = 2;
        FAST_ASSERT(copse_move_run(&move, 0, 1));
        FAST_ASSERT(memcmp(plain, mixed, bytes) == 0);
        check_packets(sent, plain, bytes, 12);
      }
}
END_TEST

/* ---- numbers of launches -----------------------------------------------------------------------
 */

static struct copse_exec *executor(const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  return exec;
}

static struct copse_interpreter *state_of(struct copse_exec *exec) {
  return copse_exec_interpreter(exec);
}

static void launch(struct copse_exec *exec, const struct copse_plan *plan, uint64_t count) {
  struct exec_case it = {COPSE_INT32, COPSE_SUM, count, false};
  ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
}

START_TEST(a_launch_of_nothing_has_no_number) {
  struct copse_plan *plan = sample();
  struct copse_exec *exec = executor(plan);
  launch(exec, plan, 10);
  ck_assert_uint_eq(state_of(exec)->epoch, 1);
  launch(exec, plan, 0);
  launch(exec, plan, 0);
  ck_assert_uint_eq(state_of(exec)->epoch, 1);
  launch(exec, plan, 10);
  ck_assert_uint_eq(state_of(exec)->epoch, 2);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

START_TEST(numbers_start_again_at_an_even_one) {
  ck_assert_uint_eq(copse_next_epoch(0), 1);
  ck_assert_uint_eq(copse_next_epoch(UINT32_MAX), 2);
  for (uint32_t e = UINT32_MAX - 5; e != 4; e = copse_next_epoch(e)) {
    ck_assert_uint_ne(copse_next_epoch(e), 0);
    ck_assert_uint_eq((copse_next_epoch(e) ^ e) & 1, 1);
    ck_assert_int_eq(copse_epoch_is_last(e), e == UINT32_MAX || e == UINT32_MAX - 1);
  }
}
END_TEST

/* No packet of the numbers' first round is left when the second begins. */
START_TEST(packets_are_cleared_before_their_numbers_come_again) {
  struct copse_plan *plan = sample();
  struct copse_exec *exec = executor(plan);
  for (int i = 0; i < 4; i++) launch(exec, plan, 5000);
  state_of(exec)->epoch = UINT32_MAX - 4;
  while (state_of(exec)->epoch != 2) {
    if (state_of(exec)->epoch == UINT32_MAX) { /* both copies */
      const uint64_t *words = (const uint64_t *)(const void *)state_of(exec)->memory[1].packets;
      for (uint64_t i = 0; i < 2 * state_of(exec)->packets_capacity / 8; i++) FAST_ASSERT(words[i] == 0);
    }
    launch(exec, plan, 3);
  }
  launch(exec, plan, 5000);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

/* Whatever the sizes, launches of either copy never touch the other one's. */
START_TEST(copies_lie_apart_at_every_size) {
  struct copse_plan *plan = sample();
  struct copse_exec *exec = executor(plan);
  uint64_t state = 4;
  launch(exec, plan, 4000); /* from here on nothing grows */
  uint64_t copy = state_of(exec)->packets_capacity;
  unsigned char *before = malloc(copy);
  ck_assert_ptr_nonnull(before);
  for (int i = 0; i < 200; i++) {
    uint32_t other = state_of(exec)->epoch & 1; /* the next launch uses the one that this number doesn't */
    memcpy(before, state_of(exec)->memory[1].packets + other * copy, copy);
    launch(exec, plan, (uint64_t)copse_test_random_int(&state, 1, i % 2 ? 4000 : 9));
    FAST_ASSERT(memcmp(before, state_of(exec)->memory[1].packets + other * copy, copy) == 0);
  }
  ck_assert_uint_eq(copy, state_of(exec)->packets_capacity);
  free(before);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/packets");
  TCase *tc = tcase_create("packets");
  tcase_add_test(tc, each_rule_is_kept);
  tcase_add_test(tc, packets_are_announced);
  tcase_add_test(tc, blocks_with_extents_have_no_packets);
  tcase_add_test(tc, many_operations_are_checked_in_time);
  tcase_add_test(tc, elements_go_into_packets_and_come_out);
  tcase_add_test(tc, one_missing_packet_is_missed);
  tcase_add_test(tc, reductions_of_packets_are_those_of_elements);
  tcase_add_test(tc, a_launch_of_nothing_has_no_number);
  tcase_add_test(tc, numbers_start_again_at_an_even_one);
  tcase_add_test(tc, packets_are_cleared_before_their_numbers_come_again);
  tcase_add_test(tc, copies_lie_apart_at_every_size);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
