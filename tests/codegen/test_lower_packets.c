/* Lowering to packets: every plan is proved, and does what it must on both executors. */
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "schedule/solve/solve.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/random_topology.h"
#include "support/support.h"

static struct copse_plan *lower(const struct copse_schedule *schedule,
                                struct copse_lower_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  struct copse_proof_report report;
  options.low_latency = true;
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  ck_assert_uint_eq(plan->header.protocol, COPSE_PROTOCOL_LOW_LATENCY);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  for (uint32_t r = 0; r < plan->header.n_ranks; r++)
    ck_assert_int_le((int)plan->ranks[r].n_workers, options.max_workers ? options.max_workers : 32);
  return plan;
}

static uint64_t blocks_of(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  return h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
}

/* Elements of a block in the largest message that the plan takes. */
static uint64_t most_of(const struct copse_plan *plan, enum copse_type type) {
  return plan->header.max_bytes / (blocks_of(plan) * copse_type_bytes(type));
}

static struct exec_case random_case(const struct copse_plan *plan, uint64_t *state) {
  struct exec_case it;
  it.type = (enum copse_type)copse_test_random_int(state, 0, COPSE_N_TYPES - 1);
  it.redop = COPSE_SUM;
  if (copse_collective_reduces((copse_collective)plan->header.collective))
    it.redop = (enum copse_redop)copse_test_random_int(state, 0, COPSE_N_REDOPS - 1);
  int most = (int)most_of(plan, it.type), small = most < 40 ? most : 40;
  bool large = copse_test_random_int(state, 0, 1);
  it.count = (uint64_t)copse_test_random_int(state, 0, large ? most : small);
  it.in_place = plan->header.collective != COPSE_ALLTOALL && copse_test_random_int(state, 0, 1);
  return it;
}

/* Launches of sizes, types and reductions by chance, one after the other on one executor. */
static void run_many(const struct copse_plan *plan, enum copse_backend backend, int launches,
                     uint64_t seed) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  for (int i = 0; i < launches; i++) {
    struct exec_case it = random_case(plan, &seed);
    uint64_t wrong = exec_case_run(exec, plan, it);
    ck_assert_msg(wrong == 0, "launch %d: %s of %llu %s, %s, %s: %llu wrong", i,
                  copse_collective_name((copse_collective)plan->header.collective),
                  (unsigned long long)it.count, copse_type_name(it.type),
                  copse_redop_name(it.redop), it.in_place ? "in place" : "out of place",
                  (unsigned long long)wrong);
  }
  copse_exec_free(exec);
}

static const struct copse_lower_options choices[] = {
    {.max_bytes = 8192},
    {.max_workers = 1, .max_bytes = 4096},
    {.max_workers = 5, .instances = 3, .fifo = 7, .max_bytes = 20000, .min_bytes = 16},
};
#define N_CHOICES ((int)(sizeof choices / sizeof *choices))

START_TEST(every_collective_with_every_type_is_proved_and_right) {
  static const uint64_t counts[] = {0, 1, 3, 129, 333, UINT64_MAX};
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++)
    for (int i = 0; i < N_CHOICES; i++) {
      struct copse_schedule *schedule =
          copse_test_solve(copse_test_fabrics[_i], (copse_collective)c, 0);
      struct copse_lower_options options = choices[i];
      options.max_bytes = 333 * 8 * schedule->n_ranks;
      struct copse_plan *plan = lower(schedule, options);
      exec_check_all(plan, COPSE_BACKEND_CPU, counts);
      copse_plan_free(plan);
      copse_schedule_free(schedule);
    }
}
END_TEST

START_TEST(launches_of_changing_size_follow_each_other) {
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++)
    for (int i = 0; i < N_CHOICES; i++) {
      struct copse_schedule *schedule =
          copse_test_solve(copse_test_fabrics[_i], (copse_collective)c, 0);
      struct copse_plan *plan = lower(schedule, choices[i]);
      run_many(plan, COPSE_BACKEND_CPU, COPSE_TEST_SOME(COPSE_TEST_SWEEPS ? 200 : 60),
               (uint64_t)(31 * c + i));
      run_many(plan, COPSE_BACKEND_THREADS, COPSE_TEST_SOME(COPSE_TEST_SWEEPS ? 30 : 10),
               (uint64_t)(37 * c + i));
      copse_plan_free(plan);
      copse_schedule_free(schedule);
    }
}
END_TEST

static struct copse_schedule *solve(const struct copse_topology *t, copse_collective c, int root) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_options options = {
      .collective = c, .root = copse_collective_rooted(c) ? root : -1, .label = "test"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

START_TEST(random_fabrics_are_proved_and_right) {
  uint64_t seed = (uint64_t)_i + 1;
  for (int round = 0; round < (COPSE_TEST_SWEEPS ? 4 : 2); round++) {
    struct copse_topology *t = copse_test_random_topology(&seed, &copse_test_random_small);
    for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
      int root = copse_test_random_int(&seed, 0, t->n_ranks - 1);
      struct copse_schedule *schedule = solve(t, (copse_collective)c, root);
      struct copse_lower_options options = {.max_workers = copse_test_random_int(&seed, 1, 6),
                                            .instances = copse_test_random_int(&seed, 1, 4),
                                            .max_bytes = copse_test_random_int(&seed, 100, 9000)};
      struct copse_plan *plan = lower(schedule, options);
      run_many(plan, COPSE_BACKEND_CPU, 30, seed);
      run_many(plan, COPSE_BACKEND_THREADS, 6, seed);
      copse_plan_free(plan);
      copse_schedule_free(schedule);
    }
    copse_topology_free(t);
  }
}
END_TEST

/* What people have: hosts of eight GPUs, and two of them. */
START_TEST(shipped_fabrics_are_proved_and_right) {
  static const char *const files[] = {"topologies/a100-host.json", "topologies/h100-host.json",
                                      "topologies/a100-x2.json"};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_load(files[_i], NULL, &t, &err), &err);
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    struct copse_schedule *schedule = solve(t, (copse_collective)c, 3);
    struct copse_plan *plan = lower(schedule, (struct copse_lower_options){.instances = 2});
    ck_assert_uint_eq(plan->header.max_bytes, 262144);
    run_many(plan, COPSE_BACKEND_CPU, 10, (uint64_t)c);
    run_many(plan, COPSE_BACKEND_THREADS, 2, (uint64_t)c);
    copse_plan_free(plan);
    copse_schedule_free(schedule);
  }
  copse_topology_free(t);
}
END_TEST

START_TEST(the_largest_message_is_right_and_a_larger_one_refused) {
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    struct copse_schedule *schedule =
        copse_test_solve(copse_test_fabrics[2], (copse_collective)c, 0);
    struct copse_plan *plan = lower(schedule, (struct copse_lower_options){.max_bytes = 5000});
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_exec *exec;
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
    for (int type = 0; type < COPSE_N_TYPES; type++) {
      struct exec_case it = {(enum copse_type)type, COPSE_SUM, most_of(plan, type), false};
      ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
      it.count++;
      struct copse_err e = COPSE_ERR_INIT;
      ASSERT_FAILS(exec_case_status(exec, plan, it, &e), COPSE_INVALID, &e,
                   "this low-latency plan takes at most 5000");
      it.count = 1; /* the executor is as good as before */
      ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
    }
    copse_exec_free(exec);
    copse_plan_free(plan);
    copse_schedule_free(schedule);
  }
}
END_TEST

static int rank_of(const struct copse_plan *plan, uint32_t worker) {
  return (int)plan->workers[worker].rank;
}

/* Only where nobody answers do receivers say that they have entered. And within a rank whose puts
 * are dealt: that the input was read. */
START_TEST(signals_are_in_the_data_but_for_greetings) {
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    struct copse_schedule *schedule =
        copse_test_solve(copse_test_fabrics[1], (copse_collective)c, 0);
    struct copse_plan *plan = lower(schedule, (struct copse_lower_options){0});
    int plain = 0, in_data = 0;
    for (uint32_t i = 0; i < plan->header.n_ops; i++) {
      const struct copse_plan_channel *channel = &plan->channels[plan->ops[i].channel];
      bool is_sync = plan->ops[i].kind != COPSE_OP_MOVE &&
                     rank_of(plan, channel->src_worker) != rank_of(plan, channel->dst_worker);
      in_data += is_sync && plan->ops[i].flags & COPSE_SYNC_IN_DATA;
      plain += is_sync && !(plan->ops[i].flags & COPSE_SYNC_IN_DATA);
    }
    bool rooted = copse_collective_rooted((copse_collective)c);
    ck_assert_int_eq(plain, rooted ? in_data : 0);
    ck_assert_int_gt(in_data, 0);
    copse_plan_free(plan);
    copse_schedule_free(schedule);
  }
}
END_TEST

/* Messages of a worker to other ranks. */
static int count_puts(const struct copse_plan *plan, const struct copse_plan_worker *list) {
  int puts = 0;
  for (uint32_t i = list->first_op; i < list->first_op + list->n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    for (int k = 0; op->kind == COPSE_OP_MOVE && k < op->n_dst; k++)
      puts += plan->operands[op->operand + op->n_src + (uint32_t)k].rank != list->rank;
  }
  return puts;
}

/* A rank puts 8 times for each of `trees`, no worker of it more than `most` times. */
static void check_dealt(const struct copse_plan *plan, uint32_t rank, int trees, int most) {
  const struct copse_plan_rank *of = &plan->ranks[rank];
  int puts = 0;
  for (uint32_t w = of->first_worker; w < of->first_worker + of->n_workers; w++) {
    int own = count_puts(plan, &plan->workers[w]);
    ck_assert_int_le(own, most);
    puts += own;
  }
  ck_assert_int_eq(puts, 8 * trees);
  run_many(plan, COPSE_BACKEND_CPU, 20, 7);
  run_many(plan, COPSE_BACKEND_THREADS, 10, 9);
}

/* Puts the first WAIT of a rank for another, or itself, behind the MOVE that needs it: refuted. */
static void check_needed(const struct copse_plan *plan, int from, int to, const char *why) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan_op *ops = (struct copse_plan_op *)plan->ops;
  uint32_t at = 0, n = plan->header.n_ops;
  while (at < n && (ops[at].kind != COPSE_OP_WAIT || ops[at].when != COPSE_WHEN_ALWAYS ||
                    rank_of(plan, plan->channels[ops[at].channel].src_worker) != from ||
                    rank_of(plan, plan->channels[ops[at].channel].dst_worker) != to))
    at++;
  ck_assert_uint_lt(at, n);
  for (; ops[at].kind != COPSE_OP_MOVE; at++) {
    struct copse_plan_op wait = ops[at];
    ops[at] = ops[at + 1];
    ops[at + 1] = wait;
    if (ops[at].kind == COPSE_OP_MOVE) break;
  }
  ck_assert_int_eq(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED);
  ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

/* Each message keeps a worker busy: a root deals its puts evenly, without a size that the schedule
 * is for too. Its own copy, in place where they read, waits for them. */
START_TEST(a_root_deals_its_puts_to_all_its_workers) {
  static const int workers[] = {1, 3, 32}, most[] = {8, 3, 1};
  struct copse_schedule *schedule = copse_test_star(9, COPSE_BROADCAST);
  struct copse_plan *plan =
      lower(schedule, (struct copse_lower_options){.max_workers = workers[_i], .max_bytes = 4096});
  check_dealt(plan, 0, 1, most[_i]);
  if (workers[_i] > 1) check_needed(plan, 0, 0, "in place");
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

/* A rank that passes on what came, 1 in 0 > 1 > 2 .. 9, as well: of one tree to 8 workers, of two
 * trees to 4 each. Every one of them looks at the packets for itself. */
START_TEST(a_rank_deals_what_it_passes_on) {
  int n_trees = 1 + _i;
  struct copse_schedule *schedule = copse_test_relayed_star(10, n_trees);
  struct copse_plan *plan =
      lower(schedule, (struct copse_lower_options){.max_workers = 8, .max_bytes = 4096});
  check_dealt(plan, 1, n_trees, 2 * n_trees);
  const struct copse_plan_rank *rank = &plan->ranks[1];
  for (uint32_t w = rank->first_worker; w < rank->first_worker + rank->n_workers; w++) {
    int looks = 0;
    for (uint32_t i = plan->workers[w].first_op, end = i + plan->workers[w].n_ops; i < end; i++) {
      const struct copse_plan_op *op = &plan->ops[i];
      if (op->kind != COPSE_OP_MOVE) continue;
      ck_assert_uint_eq(plan->operands[op->operand].buffer, COPSE_BUFFER_PACKETS);
      looks++;
    }
    ck_assert_int_ge(looks, 1);
  }
  check_needed(plan, 0, 1, "is read before");
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(more_children_than_a_move_takes_are_refused) {
  static const copse_collective collectives[] = {COPSE_BROADCAST, COPSE_REDUCE};
  struct copse_lower_options options = {.low_latency = true, .max_bytes = 64};
  for (int i = 0; i < 2; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *schedule = copse_test_star(255, collectives[i]);
    struct copse_plan *plan = lower(schedule, options);
    run_many(plan, COPSE_BACKEND_CPU, 3, 5);
    copse_plan_free(plan);
    copse_schedule_free(schedule);
    schedule = copse_test_star(256, collectives[i]);
    if (i == 0) { /* several workers put to so many */
      plan = lower(schedule, options);
      run_many(plan, COPSE_BACKEND_CPU, 3, 5);
      copse_plan_free(plan);
    }
    struct copse_lower_options one = options;
    one.max_workers = i == 0;
    ASSERT_FAILS(copse_lower_schedule(schedule, &one, &plan, &err), COPSE_UNSUPPORTED, &err,
                 "rank 0 has 255 children in a tree, a low-latency plan takes 254 of a worker");
    copse_schedule_free(schedule);
  }
}
END_TEST

START_TEST(an_alltoall_by_demand_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[4]); /* two ranks */
  int64_t demand[] = {0, 10, 3, 0};
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .demand = demand, .label = "test"};
  struct copse_lower_options lower_options = {.low_latency = true};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule;
  struct copse_plan *plan;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  ASSERT_FAILS(copse_lower_schedule(schedule, &lower_options, &plan, &err), COPSE_UNSUPPORTED, &err,
               "has no low-latency plan: its blocks may be empty");
  copse_schedule_free(schedule);
  copse_topology_free(t);
}
END_TEST

/* Counts of pairs could leave a rank unheard of. */
START_TEST(counts_of_pairs_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[4], COPSE_ALLTOALL, 0);
  struct copse_plan *plan = lower(schedule, (struct copse_lower_options){0});
  const uint64_t counts[4] = {0};
  int32_t memory[4] = {0};
  void *inputs[] = {memory, memory}, *outputs[] = {memory + 2, memory + 2};
  struct copse_launch launch = {1, COPSE_INT32, COPSE_SUM, inputs, outputs, counts};
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  ASSERT_FAILS(copse_exec_run(exec, &launch, &err), COPSE_INVALID, &err, "counts of pairs");
  copse_exec_free(exec);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(sizes_out_of_range_are_refused) {
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[0], COPSE_ALLREDUCE, 0);
  static const struct {
    struct copse_lower_options options;
    const char *text;
  } cases[] = {
      {{.low_latency = true, .max_bytes = (16 << 20) + 1}, "messages of at most 16777216 bytes"},
      {{.low_latency = true, .max_bytes = 100, .min_bytes = 101}, "the smallest message must be"},
      {{.max_bytes = -1}, "the largest message must be"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *plan;
    ASSERT_FAILS(copse_lower_schedule(schedule, &cases[i].options, &plan, &err), COPSE_INVALID,
                 &err, cases[i].text);
  }
  copse_schedule_free(schedule);
}
END_TEST

START_TEST(text_shows_protocol_range_and_packets) {
  static const char *const parts[] = {
      "\"protocol\": \"low-latency\", \"min_bytes\": 8, \"max_bytes\": 4096",
      "\"packets\": true}",
      "\"op\": \"signal\"",
      "\"in_data\": true",
      ".packets[",
  };
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = copse_test_solve(copse_test_fabrics[0], COPSE_ALLREDUCE, 0);
  struct copse_plan *plan =
      lower(schedule, (struct copse_lower_options){.min_bytes = 8, .max_bytes = 4096});
  char *text;
  size_t size;
  ASSERT_OK(copse_plan_to_text(plan, &text, &size, &err), &err);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    ck_assert_msg(strstr(text, parts[i]) != NULL, "the text lacks %s", parts[i]);
  free(text);
  copse_plan_free(plan);
  copse_schedule_free(schedule);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/lower_packets");
  TCase *tc = tcase_create("all");
  tcase_add_loop_test(tc, every_collective_with_every_type_is_proved_and_right, 0,
                      copse_test_n_fabrics);
  tcase_add_loop_test(tc, launches_of_changing_size_follow_each_other, 0, copse_test_n_fabrics);
  tcase_add_loop_test(tc, random_fabrics_are_proved_and_right, 0, 6);
  tcase_add_loop_test(tc, shipped_fabrics_are_proved_and_right, 0,
                      COPSE_TEST_UP_TO(COPSE_TEST_SWEEPS ? 3 : 2, 1));
  tcase_add_test(tc, the_largest_message_is_right_and_a_larger_one_refused);
  tcase_add_test(tc, signals_are_in_the_data_but_for_greetings);
  tcase_add_loop_test(tc, a_root_deals_its_puts_to_all_its_workers, 0, 3);
  tcase_add_loop_test(tc, a_rank_deals_what_it_passes_on, 0, 2);
  tcase_add_test(tc, more_children_than_a_move_takes_are_refused);
  tcase_add_test(tc, an_alltoall_by_demand_is_refused);
  tcase_add_test(tc, counts_of_pairs_are_refused);
  tcase_add_test(tc, sizes_out_of_range_are_refused);
  tcase_add_test(tc, text_shows_protocol_range_and_packets);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
