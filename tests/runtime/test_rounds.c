/* Plans over several hosts: cut into rounds and run in the worst order there is. */
#include "runtime/internode/rounds.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "runtime/interpreter/expected.h"
#include "schedule/solve/solve.h"
#include "support/fabric.h"
#include "support/plan_builder.h"
#include "support/rounds_backend.h"
#include "support/support.h"

enum { MAX_RANKS = 16 };

/* Ranks on 1 to 4 hosts, uneven and not in order. */
static void draw_hosts(uint64_t *random, uint32_t n_ranks, uint32_t *host_of) {
  int hosts = copse_test_random_int(random, 1, 4);
  ck_assert_uint_le(n_ranks, MAX_RANKS);
  for (uint32_t r = 0; r < n_ranks; r++)
    host_of[r] = (uint32_t)copse_test_random_int(random, 0, hosts - 1);
}

static void check(const struct copse_plan *plan, const struct rounds_case *it) {
  uint64_t wrong = rounds_backend_run(plan, it);
  ck_assert_msg(wrong == 0, "%s of %u ranks, %s %s, count %llu, %s, seed %llu: %llu wrong",
                copse_collective_name((copse_collective)plan->header.collective),
                plan->header.n_ranks, copse_type_name(it->it.type), copse_redop_name(it->it.redop),
                (unsigned long long)it->it.count, it->it.in_place ? "in place" : "out of place",
                (unsigned long long)it->seed, (unsigned long long)wrong);
}

static struct exec_case draw_case(uint64_t *random, copse_collective collective, int most) {
  return (struct exec_case){
      (enum copse_type)copse_test_random_int(random, 0, COPSE_N_TYPES - 1),
      (enum copse_redop)copse_test_random_int(random, 0, COPSE_N_REDOPS - 1),
      (uint64_t)copse_test_random_int(random, 1, most),
      copse_buffers_has_in_place(collective) && copse_test_random_int(random, 0, 1)};
}

START_TEST(textbook_plans_are_right_over_any_hosts) {
  copse_collective collective = (copse_collective)_i;
  uint64_t random = 17 + (uint64_t)_i;
  for (int i = 0; i < COPSE_TEST_SOME(150); i++) {
    uint32_t n = (uint32_t)copse_test_random_int(&random, 1, 7), host_of[MAX_RANKS];
    const struct pb_options options = {(uint32_t)copse_test_random_int(&random, 1, 3),
                                       (uint32_t)copse_test_random_int(&random, 1, 3),
                                       (uint32_t)copse_test_random_int(&random, 1, 4),
                                       (uint32_t)copse_test_random_int(&random, 1, 24),
                                       512,
                                       16};
    struct copse_plan *plan = pb_tree_plan(collective, n, exec_case_root(collective, n), options);
    draw_hosts(&random, n, host_of);
    check(plan, &(struct rounds_case){host_of, draw_case(&random, collective, 3000), 3, random,
                                      NULL, true});
    pb_free(plan);
  }
}
END_TEST

START_TEST(every_type_and_operation_is_right) {
  static const uint32_t host_of[] = {0, 0, 1, 1, 1};
  copse_collective collective = (copse_collective)_i;
  struct copse_plan *plan = pb_tree_plan(collective, 5, exec_case_root(collective, 5),
                                         (struct pb_options){2, 2, 2, 8, 512, 32});
  int n_redops = copse_collective_reduces(collective) ? COPSE_N_REDOPS : 1;
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < n_redops; redop++) {
      const struct exec_case it = {(enum copse_type)type, (enum copse_redop)redop, 777, false};
      check(plan, &(struct rounds_case){host_of, it, 2, (uint64_t)type, NULL, true});
    }
  pb_free(plan);
}
END_TEST

START_TEST(lowered_plans_are_right_over_any_hosts) {
  copse_collective collective = (copse_collective)_i;
  uint64_t random = 5 + (uint64_t)_i;
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[f], collective, 0);
    for (int i = 0; i < (COPSE_TEST_SWEEPS ? 6 : 2); i++) {
      const struct copse_lower_options options = {.max_workers = 2 + 3 * (i % 3),
                                                  .fifo = 1 + i % 3,
                                                  .chunk_bytes = 512,
                                                  .min_chunk_bytes = 64};
      struct copse_plan *plan;
      uint32_t host_of[MAX_RANKS];
      if (i % 3 == 2) /* signals within a rank: its workers share the puts of its input */
        schedule->objective =
            (struct copse_schedule_objective){.bytes = 1024, .chunks = 1, .alpha_us = {2, 1}};
      ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
      draw_hosts(&random, plan->header.n_ranks, host_of);
      check(plan, &(struct rounds_case){host_of, draw_case(&random, collective, 9000), 2, random,
                                        NULL, true});
      copse_plan_free(plan);
    }
    copse_schedule_free(schedule);
  }
}
END_TEST

/* Counts that only the backend knows when it runs. */
START_TEST(uneven_blocks_are_right_over_any_hosts) {
  uint64_t random = 29;
  for (int i = 0; i < COPSE_TEST_SOME(120); i++) {
    const char *json =
        copse_test_fabrics[copse_test_random_int(&random, 0, copse_test_n_fabrics - 1)];
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *schedule = copse_test_solve(json, COPSE_ALLTOALL, 0);
    const struct copse_lower_options options = {
        .max_workers = 5, .fifo = 1 + i % 3, .chunk_bytes = 512, .min_chunk_bytes = 64};
    struct copse_plan *plan;
    uint32_t host_of[MAX_RANKS];
    uint64_t counts[MAX_RANKS * MAX_RANKS];
    const struct exec_case it = draw_case(&random, COPSE_ALLTOALL, i % 2 ? 3000 : 12);
    ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
    draw_hosts(&random, plan->header.n_ranks, host_of);
    for (uint32_t k = 0; k < plan->header.n_ranks * plan->header.n_ranks; k++)
      counts[k] = copse_test_random_int(&random, 0, 2)
                      ? (uint64_t)copse_test_random_int(&random, 0, (int)it.count)
                      : 0;
    check(plan, &(struct rounds_case){host_of, it, 3, random, counts, true});
    copse_plan_free(plan);
    copse_schedule_free(schedule);
  }
}
END_TEST

/* Packets within hosts, messages between them; every launch uses the other copy. */
START_TEST(low_latency_plans_are_right_over_any_hosts) {
  static const bool joins_all[] = {true, false, false, false, true, true}; /* as in fabric.c */
  copse_collective collective = (copse_collective)_i;
  uint64_t random = 11 + (uint64_t)_i;
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[f], collective, 0);
    for (int i = 0; i < (COPSE_TEST_SWEEPS ? 8 : 2); i++) {
      struct copse_err err = COPSE_ERR_INIT;
      const struct copse_lower_options options = {
          .max_workers = 1 + 3 * (i % 3),
          .low_latency = true,
          .one_hop = i > 5 && collective == COPSE_ALLREDUCE && joins_all[f],
          .max_bytes = 1 << 20,
          .chunk_bytes = 64 /* of no meaning here, for slots neither */};
      struct copse_plan *plan;
      uint32_t host_of[MAX_RANKS];
      ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
      draw_hosts(&random, plan->header.n_ranks, host_of);
      const int most = i % 2 ? 9000 : 40;
      check(plan, &(struct rounds_case){host_of, draw_case(&random, collective, most), 5, random,
                                        NULL, true});
      copse_plan_free(plan);
    }
    copse_schedule_free(schedule);
  }
}
END_TEST

/* Which regions are packets still: those that their own host writes. */
START_TEST(packets_stay_within_a_host_and_become_slots_between) {
  struct copse_err err = COPSE_ERR_INIT;
  static const uint32_t host_of[] = {0, 0, 1, 1};
  const struct copse_lower_options options = {.low_latency = true};
  struct copse_schedule *schedule = copse_test_star(4, COPSE_BROADCAST);
  struct copse_plan *plan;
  struct copse_split *split;
  uint32_t n[2] = {0, 0};
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  ASSERT_OK(copse_split_new(plan, host_of, &split, &err), &err);
  const struct copse_plan *local = &split->local;
  for (uint32_t r = 0; r < plan->header.n_regions; r++) n[local->regions[r].kind]++;
  /* rank 1 gets rank 0's data in packets, 2 and 3 get it in messages from outboxes */
  ck_assert_uint_eq(n[COPSE_REGION_PACKETS], 1);
  ck_assert_uint_eq(n[COPSE_REGION_SLOTS], 2);
  ck_assert_uint_eq(local->header.n_regions, plan->header.n_regions + 2);
  for (uint32_t w = 0; w < local->header.n_workers; w++)
    for (uint32_t i = 0; i < local->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &local->ops[local->workers[w].first_op + i];
      for (uint32_t k = op->operand; k < op->operand + op->n_src + op->n_dst; k++) {
        const struct copse_plan_operand *it = &local->operands[k];
        ck_assert_uint_eq(host_of[it->rank], host_of[local->workers[w].rank]);
        if (it->buffer == COPSE_BUFFER_PACKETS)
          ck_assert_uint_eq(local->regions[it->index].kind, COPSE_REGION_PACKETS);
        if (it->buffer == COPSE_BUFFER_SCRATCH)
          ck_assert_uint_eq(local->regions[it->index].kind, COPSE_REGION_SLOTS);
        ck_assert_uint_ne(split->lands[k].buffer == COPSE_BUFFER_PACKETS,
                          copse_split_crosses(split, k) || it->buffer != COPSE_BUFFER_PACKETS);
      }
    }
  copse_split_free(split);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* Same sources, same order, same places in the end: so the same bits. */
START_TEST(the_operations_are_those_of_the_plan) {
  struct copse_err err = COPSE_ERR_INIT;
  static const uint32_t host_of[] = {0, 1, 0, 2, 1};
  struct copse_plan *plan =
      pb_tree_plan(COPSE_ALLREDUCE, 5, -1, (struct pb_options){2, 2, 2, 8, 512, 32});
  struct copse_split *split;
  ASSERT_OK(copse_split_new(plan, host_of, &split, &err), &err);
  /* the same sources in the same order, and the same destinations but for outboxes */
  ck_assert_uint_eq(split->local.header.n_ops, plan->header.n_ops);
  for (uint32_t o = 0; o < plan->header.n_ops; o++) {
    const struct copse_plan_op *a = &plan->ops[o], *b = &split->local.ops[o];
    ck_assert(a->kind == b->kind && a->when == b->when && a->piece == b->piece);
    if (a->kind != COPSE_OP_MOVE) continue;
    ck_assert(a->flags == b->flags && a->n_src == b->n_src && a->n_dst == b->n_dst);
    ck_assert_mem_eq(&plan->operands[a->operand], &split->local.operands[b->operand],
                     a->n_src * sizeof *plan->operands);
    ck_assert_mem_eq(&plan->operands[a->operand], &split->lands[b->operand],
                     ((size_t)a->n_src + a->n_dst) * sizeof *plan->operands);
  }
  copse_split_free(split);
  pb_free(plan);
}
END_TEST

START_TEST(one_host_takes_one_round_without_messages) {
  struct copse_err err = COPSE_ERR_INIT;
  static const uint32_t host_of[4] = {3, 3, 3, 3};
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 4, -1, PB_OPTIONS_DEFAULT);
  struct copse_split *split;
  struct copse_rounds *rounds;
  ASSERT_OK(copse_split_new(plan, host_of, &split, &err), &err);
  ASSERT_OK(copse_rounds_new(split, 9, COPSE_ALL_RANKS, &rounds, &err), &err);
  ck_assert_uint_eq(rounds->n_rounds, 1);
  ck_assert_uint_eq(rounds->first_message[1], 0);
  copse_rounds_free(rounds);
  copse_split_free(split);
  pb_free(plan);
}
END_TEST

/* What one process keeps is its part of what everybody sees. */
START_TEST(a_ranks_rounds_are_its_part_of_all) {
  struct copse_err err = COPSE_ERR_INIT;
  static const uint32_t host_of[6] = {0, 0, 1, 1, 2, 0};
  struct copse_plan *plan =
      pb_tree_plan(COPSE_ALLREDUCE, 6, -1, (struct pb_options){3, 2, 2, 8, 512, 32});
  struct copse_split *split;
  struct copse_rounds *all, *own;
  ASSERT_OK(copse_split_new(plan, host_of, &split, &err), &err);
  ASSERT_OK(copse_rounds_new(split, 12, COPSE_ALL_RANKS, &all, &err), &err);
  ck_assert_uint_gt(all->n_rounds, 12);
  for (uint32_t rank = 0; rank < 6; rank++) {
    ASSERT_OK(copse_rounds_new(split, 12, rank, &own, &err), &err);
    ck_assert_uint_eq(own->n_rounds, all->n_rounds);
    for (uint32_t r = 0; r <= all->n_rounds; r++)
      ck_assert_mem_eq(&own->cursors[r * own->n_workers],
                       &all->cursors[r * all->n_workers + own->first_worker],
                       own->n_workers * sizeof *own->cursors);
    for (uint32_t r = 0; r < all->n_rounds; r++) {
      size_t k = own->first_message[r];
      for (size_t i = all->first_message[r]; i < all->first_message[r + 1]; i++)
        if (all->messages[i].src == rank || all->messages[i].dst == rank)
          ck_assert_mem_eq(&own->messages[k++], &all->messages[i], sizeof *own->messages);
      ck_assert_uint_eq(k, own->first_message[r + 1]);
    }
    copse_rounds_free(own);
  }
  copse_rounds_free(all);
  copse_split_free(split);
  pb_free(plan);
}
END_TEST

/* Rank 1 learns only from rank 2, on another host, that rank 0 beside it has entered. */
static struct copse_plan *indirect_entry(void) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 3, 1);
  uint32_t w[3], whole = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 3; r++) w[r] = pb_worker(b, r);
  uint32_t entered = pb_channel(b, w[0], w[2]), notified = pb_channel(b, w[2], w[1]);
  pb_signal(b, w[0], entered, COPSE_WHEN_FIRST);
  pb_wait(b, w[2], entered, COPSE_WHEN_FIRST);
  pb_signal(b, w[2], notified, COPSE_WHEN_FIRST);
  pb_wait(b, w[1], notified, COPSE_WHEN_FIRST);
  pb_move(b, w[1], whole, 0);
  pb_src(b, pb_input(1, 0));
  for (uint32_t r = 0; r < 3; r++) pb_dst(b, pb_output(r, 0));
  for (uint32_t r = 0; r < 3; r += 2) {
    uint32_t done = pb_channel(b, w[1], w[r]);
    pb_signal(b, w[1], done, COPSE_WHEN_ALWAYS);
    pb_wait(b, w[r], done, COPSE_WHEN_ALWAYS);
  }
  return pb_finish(b);
}

START_TEST(signals_without_data_have_words_of_their_own) {
  static const uint32_t host_of[] = {0, 0, 1};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan = indirect_entry();
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const struct exec_case it = {COPSE_FLOAT, COPSE_SUM, 100, false};
    struct rounds_case rounds = {host_of, it, 3, seed, NULL, true};
    check(plan, &rounds);
    rounds.words = false;
    wrong += rounds_backend_run(plan, &rounds);
  }
  ck_assert_uint_gt(wrong, 0); /* or the simulation above shows nothing */
  pb_free(plan);
}
END_TEST

START_TEST(what_cannot_be_cut_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  static const uint32_t host_of[] = {0, 1};
  struct copse_split *split;
  struct copse_rounds *rounds;
  /* each waits for the other first */
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t there = pb_channel(b, w0, w1), back = pb_channel(b, w1, w0);
  pb_wait(b, w0, back, COPSE_WHEN_ALWAYS);
  pb_signal(b, w0, there, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, there, COPSE_WHEN_ALWAYS);
  pb_signal(b, w1, back, COPSE_WHEN_ALWAYS);
  struct copse_plan *plan = pb_finish(b);
  ASSERT_OK(copse_split_new(plan, host_of, &split, &err), &err);
  ASSERT_FAILS(copse_rounds_new(split, 1, COPSE_ALL_RANKS, &rounds, &err), COPSE_UNSUPPORTED, &err,
               "stands still over several hosts after 0 rounds");
  ck_assert_ptr_null(rounds);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_rounds_new(split, 1u << 30, 0, &rounds, &err), COPSE_UNSUPPORTED, &err,
               "too many to cut");
  copse_split_free(split);
  pb_free(plan);
  /* a region of packets that is written here and from elsewhere */
  b = pb_new(COPSE_BROADCAST, 2, 0);
  pb_header(b)->protocol = COPSE_PROTOCOL_LOW_LATENCY;
  w0 = pb_worker(b, 0);
  w1 = pb_worker(b, 1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), packets = pb_packets(b, 1, piece);
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_packet(1, packets));
  pb_move(b, w1, piece, 0);
  pb_src(b, pb_input(1, 0));
  pb_dst(b, pb_packet(1, packets));
  plan = pb_finish(b);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_split_new(plan, host_of, &split, &err), COPSE_UNSUPPORTED, &err,
               "packets[0] of rank 1 come from its own host and from another");
  ck_assert_ptr_null(split);
  static const uint32_t together[] = {0, 0};
  ASSERT_OK(copse_split_new(plan, together, &split, &err), &err);
  copse_split_free(split);
  pb_free(plan);
}
END_TEST

START_TEST(few_numbers_of_chunks_are_cut) {
  uint32_t last = 0, different = 0;
  for (uint32_t n = 1; n <= 4096; n++) {
    struct copse_shape shape = {.count = 1 << 20, .n_chunks = n};
    copse_rounds_shape(&shape);
    ck_assert(shape.n_chunks >= n && shape.n_chunks <= n + n / 4 && shape.n_chunks >= last);
    ck_assert_uint_eq(shape.chunk_base, shape.count / shape.n_chunks + 1);
    different += shape.n_chunks != last;
    last = shape.n_chunks;
  }
  ck_assert_uint_le(different, 48);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/rounds");
  TCase *tc = tcase_create("rounds");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, textbook_plans_are_right_over_any_hosts, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, every_type_and_operation_is_right, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, lowered_plans_are_right_over_any_hosts, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, uneven_blocks_are_right_over_any_hosts);
  tcase_add_loop_test(tc, low_latency_plans_are_right_over_any_hosts, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, packets_stay_within_a_host_and_become_slots_between);
  tcase_add_test(tc, the_operations_are_those_of_the_plan);
  tcase_add_test(tc, one_host_takes_one_round_without_messages);
  tcase_add_test(tc, a_ranks_rounds_are_its_part_of_all);
  tcase_add_test(tc, signals_without_data_have_words_of_their_own);
  tcase_add_test(tc, what_cannot_be_cut_is_refused);
  tcase_add_test(tc, few_numbers_of_chunks_are_cut);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
