/* Native plans in the simulator, compared with the schedules that they were lowered from: what
 * links carry is worked out from the schedule there, from the plan's operations here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "codegen/lower/lower.h"
#include "codegen/mscclpp/lower.h"
#include "predict/simulate_programs.h"
#include "schedule/demand.h"
#include "support/fabric.h"
#include "support/mutant.h"
#include "support/support.h"

/* Chunks as plans of so many workers and instances have them, given to both. */
static const struct copse_lower_options choices[] = {
    {0}, {.max_workers = 2}, {.instances = 3, .fifo = 2}, {.instances = COPSE_LOWER_AUTO}};
#define N_CHOICES ((int)(sizeof choices / sizeof *choices))

static double time_of(const struct copse_topology *topology, const struct copse_sim_dag *dag,
                      double bytes, double alpha, double *busiest) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_options options = copse_sim_defaults;
  struct copse_sim_result result;
  options.alpha_us = alpha;
  options.pipeline_chunks = 8;
  ASSERT_OK(copse_simulate(topology, dag, &options, bytes, &result, NULL, &err), &err);
  if (busiest) *busiest = result.busiest_us;
  return result.us;
}

static struct copse_schedule *solve(const struct copse_topology *topology, copse_collective c,
                                    const int64_t *demand) {
  return copse_test_solve_as(
      topology, (struct copse_solve_options){.collective = c,
                                             .root = copse_collective_rooted(c) ? 0 : -1,
                                             .demand = demand,
                                             .equal_shares = c == COPSE_ALLREDUCE,
                                             .label = "test.json"});
}

static struct copse_plan *lower(const struct copse_schedule *schedule,
                                struct copse_lower_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  ASSERT_OK(copse_lower_schedule(schedule, &options, &plan, &err), &err);
  return plan;
}

/* The plan's transfers; what links carry for each GB is exactly factor times what the schedule
 * says, and the simulator finds the same. */
static void compare(const struct copse_topology *t, const struct copse_schedule *s,
                    const struct copse_plan *plan, int64_t factor, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0}, of_schedule = {0};
  struct copse_foreign foreign = {0};
  struct copse_q expected;
  double busiest, as_scheduled;
  ASSERT_OK(copse_sim_dag_of_plan("f.plan", plan, t, NULL, &dag, &foreign, &err), &err);
  ASSERT_OK(copse_sim_dag_of_schedule(s, t, false, &of_schedule, &err), &err);
  ck_assert_int_eq(foreign.collective, s->collective);
  ck_assert_int_eq(foreign.root, s->root);
  ASSERT_OK(copse_q_mul(s->time_per_GB, (struct copse_q){factor, 1}, &expected, &err), &err);
  ck_assert_msg(copse_q_eq(foreign.time_per_GB, expected), "%s %s: %lld/%lld, not %lld/%lld",
                copse_collective_name(s->collective), what, (long long)foreign.time_per_GB.num,
                (long long)foreign.time_per_GB.den, (long long)expected.num,
                (long long)expected.den);
  double us = time_of(t, &dag, 1e9, 0, &busiest),
         of_s = time_of(t, &of_schedule, 1e9, 0, &as_scheduled);
  ck_assert_double_le(busiest, us);
  ck_assert_double_eq_tol(busiest, (double)factor * as_scheduled, 1e-6 * busiest + 1e-9);
  ck_assert_msg(us <= 1.3 * (double)factor * of_s && us >= (double)factor * of_s / 1.3,
                "%s %s: %g us, the schedule %g", copse_collective_name(s->collective), what, us,
                of_s);
  if (factor == 1) { /* a few bytes: as many hops, one after the other */
    us = time_of(t, &dag, 1, 1000, NULL);
    of_s = time_of(t, &of_schedule, 1, 1000, NULL);
    ck_assert_double_eq_tol(us, of_s, 10);
  }
  free(foreign.demand);
  copse_sim_dag_free(&dag);
  copse_sim_dag_free(&of_schedule);
}

/* On fabrics where two ranks have one shortest route, which trees take. */
START_TEST(links_carry_what_the_schedule_says) {
  static const int fabrics[] = {0, 1, 2, 4, 5};
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[fabrics[_i]]);
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    struct copse_schedule *s = solve(t, (copse_collective)c, NULL);
    for (int k = 0; k < N_CHOICES; k++) {
      struct copse_plan *plan = lower(s, choices[k]);
      compare(t, s, plan, 1, "in chunks");
      copse_plan_free(plan);
    }
    struct copse_plan *packets = lower(s, (struct copse_lower_options){.low_latency = true});
    compare(t, s, packets, 2, "in packets");
    copse_plan_free(packets);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

static void free_all(struct copse_foreign *foreign, struct copse_sim_dag *dag,
                     struct copse_plan *plan, struct copse_schedule *s, struct copse_topology *t) {
  free(foreign->demand);
  copse_sim_dag_free(dag);
  copse_plan_free(plan);
  copse_schedule_free(s);
  copse_topology_free(t);
}

/* The demand comes back in its proportions, and M is the largest row again. */
START_TEST(an_alltoall_by_demand_has_its_demand) {
  static const int64_t demand[16] = {7, 1000, 0, 30, 40, 0, 5, 6, 0, 0, 0, 0, 900, 800, 700, 600};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[0]);
  struct copse_schedule *s = solve(t, COPSE_ALLTOALL, demand);
  struct copse_plan *plan = lower(s, choices[0]);
  struct copse_foreign foreign = {0};
  struct copse_sim_dag dag = {0};
  int64_t m;
  compare(t, s, plan, 1, "by demand");
  ASSERT_OK(copse_sim_dag_of_plan("f.plan", plan, t, NULL, &dag, &foreign, &err), &err);
  ASSERT_OK(copse_demand_total(foreign.demand, 4, &m, &err), &err);
  for (int i = 0; i < 16; i++) /* of 3,000 */
    ck_assert_int_eq(foreign.demand[i] * 3000, demand[i] * m);
  free_all(&foreign, &dag, plan, s, t);
}
END_TEST

/* Odd bytes for each pair, as a job counts them: the pieces have no denominator in common of 64
 * bits. */
START_TEST(demands_in_odd_bytes_have_predictions) {
  uint64_t seed = 11 + (uint64_t)_i;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[2]);
  struct copse_foreign foreign = {0};
  struct copse_sim_dag dag = {0};
  int64_t demand[36] = {0};
  for (int i = 0; i < 36; i++)
    if (i % 7 != 0) demand[i] = 2 * copse_test_random_int(&seed, 1, 1000000) + 1;
  struct copse_schedule *s = solve(t, COPSE_ALLTOALL, demand);
  struct copse_plan *plan = lower(s, choices[0]);
  ASSERT_OK(copse_sim_dag_of_plan("f.plan", plan, t, NULL, &dag, &foreign, &err), &err);
  double of_plan = copse_q_to_double(foreign.time_per_GB), of_s = copse_q_to_double(s->time_per_GB);
  ck_assert_double_eq_tol(of_plan, of_s, 1e-9 * of_s);
  free_all(&foreign, &dag, plan, s, t);
}
END_TEST

/* One switch of links of 100 GB/s, which copies and adds: each rank sends M and its own n-th once
 * more, and gets as much. */
START_TEST(a_switch_copies_and_adds) {
  static const char format[] =
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},"
      "{\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"},"
      "{\"id\": \"s\", \"type\": \"switch\"%s}], \"links\": ["
      "{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 100}, {\"src\": \"b\", \"dst\": \"s\", "
      "\"bandwidth\": 100},"
      "{\"src\": \"c\", \"dst\": \"s\", \"bandwidth\": 100}]}";
  char json[2][600];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0}, none = {0};
  struct copse_foreign foreign = {0};
  double busiest;
  snprintf(json[0], sizeof json[0], format, ", \"multicast\": true, \"aggregation\": true");
  snprintf(json[1], sizeof json[1], format, "");
  struct copse_topology *t = copse_test_topology(json[0]), *plain = copse_test_topology(json[1]);
  struct copse_schedule *s = copse_test_solve_as(
      t, (struct copse_solve_options){
             .collective = COPSE_ALLREDUCE, .root = -1, .in_network = true, .label = "t.json"});
  struct copse_plan *plan = lower(s, (struct copse_lower_options){.instances = COPSE_LOWER_AUTO});
  ASSERT_OK(copse_sim_dag_of_plan("f.plan", plan, t, NULL, &dag, &foreign, &err), &err);
  ck_assert_int_eq(foreign.time_per_GB.num * 300, foreign.time_per_GB.den * 4);
  const double us = time_of(t, &dag, 1e9, 0, &busiest);
  ck_assert_double_eq_tol(busiest, 1e6 * 4 / 300, 1);
  ck_assert_msg(us >= busiest && us < 1.05 * busiest, "%g us, links %g", us, busiest);
  ck_assert_double_eq_tol(time_of(t, &dag, 1, 1000, NULL), 2000, 10); /* there and back */
  ASSERT_FAILS(copse_sim_dag_of_plan("f.plan", plan, plain, NULL, &none, &foreign, &err),
               COPSE_INFEASIBLE, &err, "no switch of the topology that copies and adds");
  const struct copse_mscclpp_options options = {.max_blocks = 3};
  struct copse_mscclpp_summary summary;
  struct copse_sim_dag of_mscclpp = {0};
  char *text;
  size_t size;
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_OK(copse_lower_mscclpp(s, &options, &text, &size, &summary, &err), &err);
  ASSERT_OK(copse_sim_dag_of_mscclpp("f.json", text, size, t, &of_mscclpp, &foreign, &err), &err);
  ck_assert_int_eq(foreign.time_per_GB.num * 300, foreign.time_per_GB.den * 4);
  const double theirs = time_of(t, &of_mscclpp, 1e9, 0, &busiest);
  ck_assert_double_eq_tol(busiest, 1e6 * 4 / 300, 1);
  ck_assert_msg(theirs >= busiest && theirs < 1.3 * busiest, "%g us, links %g", theirs, busiest);
  free(text);
  copse_sim_dag_free(&of_mscclpp);
  copse_sim_dag_free(&none);
  copse_sim_dag_free(&dag);
  copse_plan_free(plan);
  copse_schedule_free(s);
  copse_topology_free(plain);
  copse_topology_free(t);
}
END_TEST

/* Two GPUs on 100 GB/s each way exchange in one hop; packets take twice their bytes. A barrier and
 * a semaphore cost nothing of the links. */
START_TEST(packets_of_others_take_twice_their_bytes) {
  static const struct {
    const char *file;
    double share; /* of the message that a rank sends */
  } plans[] = {{"mscclpp/allgather-packets.json", 0.5},
               {"mscclpp/allreduce-barrier.json", 1},
               {"mscclpp/allreduce-semaphore.json", 1}};
  struct copse_topology *t = copse_test_topology(
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},"
      "{\"id\": \"b\", \"type\": \"gpu\"}], \"links\": [{\"src\": \"a\", \"dst\": \"b\", "
      "\"bandwidth\": 100}]}");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0};
  struct copse_foreign foreign = {0};
  size_t size;
  char *text = copse_test_load(copse_test_data(plans[_i].file), &size);
  double busiest;
  ASSERT_OK(copse_sim_dag_of_mscclpp("f.json", text, size, t, &dag, &foreign, &err), &err);
  const double us = time_of(t, &dag, 1e9, 0, &busiest), least = 2 * plans[_i].share * 1e9 / 100e3;
  ck_assert_double_eq_tol(busiest, least, 1);
  ck_assert_msg(us >= busiest && us < 1.05 * busiest, "%g us, links %g", us, busiest);
  ck_assert_double_eq_tol(time_of(t, &dag, 1, 1000, NULL), 1000, 10);
  free(text);
  free_all(&foreign, &dag, NULL, NULL, t);
}
END_TEST

/* A signal that nobody gives, data that nobody brings, a fabric of other ranks. */
START_TEST(what_cannot_run_is_refused) {
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[0]),
                        *other = copse_test_topology(copse_test_fabrics[1]);
  struct copse_schedule *s = solve(t, COPSE_ALLREDUCE, NULL);
  struct copse_plan *plan = lower(s, choices[0]);
  int signals = 0, unwritten = 0;
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_sim_dag dag = {0};
    struct copse_foreign foreign = {0};
    if (plan->ops[i].kind == COPSE_OP_WAIT) continue;
    struct mutant m = mutant_of(plan);
    mutant_drop(&m, i);
    copse_status status = copse_sim_dag_of_plan("f.plan", &m.plan, t, NULL, &dag, &foreign, &err);
    if (status != COPSE_OK) {
      ck_assert_int_eq(status, COPSE_REFUTED);
      ck_assert_ptr_nonnull(strstr(err.text, "f.plan: operation "));
      signals += strstr(err.text, "waits forever") != NULL;
      unwritten += strstr(err.text, "none has written") != NULL;
    }
    copse_sim_dag_free(&dag);
    mutant_free(&m);
  }
  ck_assert_int_gt(signals, 0);
  ck_assert_int_gt(unwritten, 0);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0};
  struct copse_foreign foreign = {0};
  ck_assert_int_eq(copse_sim_dag_of_plan("f.plan", plan, other, NULL, &dag, &foreign, &err),
                   COPSE_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(err.text, "for 4 ranks, the topology has 5"));
  copse_sim_dag_free(&dag);
  copse_plan_free(plan);
  copse_schedule_free(s);
  copse_topology_free(t);
  copse_topology_free(other);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/simulate_plan");
  TCase *tc = tcase_create("all");
  tcase_add_loop_test(tc, links_carry_what_the_schedule_says, 0, 5);
  tcase_add_test(tc, an_alltoall_by_demand_has_its_demand);
  tcase_add_loop_test(tc, demands_in_odd_bytes_have_predictions, 0, 4);
  tcase_add_test(tc, a_switch_copies_and_adds);
  tcase_add_loop_test(tc, packets_of_others_take_twice_their_bytes, 0, 3);
  tcase_add_test(tc, what_cannot_run_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
