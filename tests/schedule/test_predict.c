/*
 * Predictions: a schedule's are those of its plan, whatever file either comes from; a message costs
 * its sender time; what has no plan says so; and the model of pure links agrees with a simulator
 * that shares no code with copse (OUTSIDE/peers/alphabeta.py), where that is there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/lower/lower.h"
#include "predict/calibrate.h"
#include "predict/predict.h"
#include "support/command.h"
#include "support/fabric.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "topology/input/profile.h"

/* ---- plan and schedule ------------------------------------------------------------------- */

static const char *const files[] = {"tests/data/reference/a100-x1.json",
                                    "tests/data/reference/a100-x2.json",
                                    "tests/data/reference/a100-x4.json",
                                    "tests/data/reference/a100-x2-degraded.json",
                                    "tests/data/reference/dgx1-v100.json",
                                    "tests/data/reference/full-8.json",
                                    "tests/data/reference/h100-x2.json",
                                    "tests/data/reference/hypercube-4.json",
                                    "tests/data/reference/mi250-x1.json",
                                    "tests/data/reference/mixed-a100-h100.json",
                                    "tests/data/reference/random-1.json",
                                    "tests/data/reference/random-2.json",
                                    "tests/data/reference/ring-8.json",
                                    "tests/data/reference/torus-4x4.json",
                                    "topologies/dgx-h100.json",
                                    "topologies/aws-p5-x2.json",
                                    "topologies/pcie-8-2s.json",
                                    "topologies/alps-node.json",
                                    "topologies/mi100-8.json",
                                    "topologies/perlmutter-node.json"};
#define DGX1 4
#define TORUS_4X4 13
#define N_FILES ((int)(sizeof files / sizeof *files))
#define N_TOPOLOGIES (N_FILES + 10)

static struct copse_topology *topology_of(int i) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_topology_options options = {0};
  struct copse_topology *t;
  uint64_t state = (uint64_t)i;
  if (i >= N_FILES) return copse_test_random_topology(&state, &copse_test_random_small);
  ASSERT_OK(copse_topology_load(files[i], &options, &t, &err), &err);
  return t;
}

static const double sizes[] = {65536, 1048576, 16777216, 1073741824};
#define N_SIZES ((int)(sizeof sizes / sizeof *sizes))
/* 1 KiB to 1 GiB */
static const double all_sizes[] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20,
                                   1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30};
#define N_ALL_SIZES ((int)(sizeof all_sizes / sizeof *all_sizes))

/* From the bytes of a file, over routes found anew. */
static void time_plan(const struct copse_topology *t, const struct copse_schedule *s, double *us,
                      double *at_least) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan, *read;
  struct copse_prediction it;
  struct copse_foreign what;
  char *bytes;
  size_t n;
  const struct copse_lower_options options = {.instances = COPSE_LOWER_AUTO};
  ASSERT_OK(copse_lower_schedule(s, &options, &plan, &err), &err);
  ASSERT_OK(copse_plan_encode(plan, &bytes, &n, &err), &err);
  ASSERT_OK(copse_plan_decode("a.plan", bytes, n, &read, &err), &err);
  ASSERT_OK(copse_predict_plan("a.plan", t, read, NULL, &it, &what, &err), &err);
  ASSERT_OK(copse_predictions_time(t, &it, 1, all_sizes, N_ALL_SIZES, false, us, &err), &err);
  *at_least = copse_q_to_double(it.runs_per_GB);
  free(what.demand);
  copse_predictions_free(&it, 1);
  copse_plan_free(plan);
  copse_plan_free(read);
  free(bytes);
}

START_TEST(a_schedule_takes_as_long_as_its_plan) {
  struct copse_topology *t;
  if (_i % (COPSE_TEST_SWEEPS ? 1 : 5) != 0) return;
  t = topology_of(_i);
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    if (c == COPSE_REDUCE_SCATTER || c == COPSE_REDUCE) {
      if (!COPSE_TEST_SWEEPS && _i % 2 == 0)
        continue; /* trees turned round, in half of the cases */
    }
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *s, *read;
    char *text;
    size_t n;
    double of_plan[N_ALL_SIZES], of_schedule[N_ALL_SIZES], at_least;
    if (t->n_ranks < 2) break;
    s = copse_test_solve_as(t, (struct copse_solve_options){
                                   .collective = (copse_collective)c,
                                   .root = copse_collective_rooted((copse_collective)c) ? 0 : -1,
                                   .label = "t.json"});
    ASSERT_OK(copse_schedule_to_json(s, &text, &n, &err), &err);
    ASSERT_OK(copse_schedule_parse("s.json", text, n, &read, &err), &err);
    time_plan(t, s, of_plan, &at_least);
    ASSERT_OK(copse_predict(t, read, NULL, all_sizes, N_ALL_SIZES, of_schedule, &err), &err);
    for (int i = 0; i < N_ALL_SIZES; i++) {
      const char *name = copse_collective_name((copse_collective)c);
      ck_assert_msg(of_plan[i] <= 1.02 * of_schedule[i] && of_schedule[i] <= 1.02 * of_plan[i],
                    "%s %s, %g bytes: %g us as a schedule, %g as a plan", t->name, name, all_sizes[i],
                    of_schedule[i], of_plan[i]);
      ck_assert_msg(of_plan[i] >= at_least * all_sizes[i] * 1e-3 * (1 - 1e-9),
                    "%s %s: below its busiest link", t->name, name);
      ck_assert_msg(
          of_plan[i] >= copse_q_to_double(s->bound.time_per_GB) * all_sizes[i] * 1e-3 * (1 - 1e-9),
          "%s %s: below the bound", t->name, name);
    }
    free(text);
    copse_schedule_free(read);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* ---- messages ------------------------------------------------------------------------------ */

static double time_of(const struct copse_topology *t, const struct copse_schedule *s, double alpha,
                      double bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_predict_options options = copse_predict_defaults;
  double us;
  copse_predict_alpha(&options, alpha);
  ASSERT_OK(copse_predict(t, s, &options, &bytes, 1, &us, &err), &err);
  return us;
}

/* A rank that sends to n others does so one after the other; pure links know nothing of that. */
START_TEST(fan_out_costs_the_sender) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  char line[32];
  int n = 1 << (_i + 1);
  snprintf(line, sizeof line, "switch:%d@100", n);
  ASSERT_OK(copse_topology_synthetic(line, &(struct copse_topology_options){0}, &t, &err), &err);
  struct copse_schedule *s = copse_test_solve_as(
      t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .root = -1, .label = line});
  double message = copse_predict_defaults.sim.message_us, us = time_of(t, s, 2, n);
  ck_assert_int_eq(copse_schedule_height(s), 1);
  ck_assert_double_ge(us, 2 + message * (n - 2));
  ck_assert_double_le(us, 2.1 + message * (n - 1));
  ck_assert_double_le(time_of(t, s, 0, n), 0.1);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

static double simulated(const char *options) {
  static const char key[] = "{\"copse\": {\"time\": ";
  ck_assert_int_eq(copse_test_command("@ simulate %%/s.json -t %%/t.json -b 4 -e 4 --no-baselines "
                                      "--json %s",
                                      options),
                   0);
  const char *at = strstr(copse_test_result.out, key);
  ck_assert_ptr_nonnull(at);
  return atof(at + strlen(key));
}

/* Four ranks send to three each: a hop, and two messages before the last one. */
START_TEST(costs_come_from_defaults_profile_and_options) {
  copse_test_write("p.json",
                   "{\"format\": \"copse-profile/1\", \"costs\": {\"hop_us\": 10, "
                   "\"message_us\": 3}}");
  ck_assert_int_eq(copse_test_command("@ topo --synthetic switch:4@100 -o %%/t.json && "
                                      "@ solve %%/t.json -c allgather -o %%/s.json"),
                   0);
  ck_assert_double_eq_tol(simulated(""), 2 + 2 * 0.18, 0.01);
  ck_assert_double_eq_tol(simulated("-a 7"), 7 + 2 * 0.18, 0.01);
  ck_assert_double_eq_tol(simulated("--message 1"), 2 + 2 * 1, 0.01);
  ck_assert_str_eq(copse_test_result.err, "");
  ck_assert_double_eq_tol(simulated("--message 5"), 2 + 2 * 2, 0.01); /* at most the hop's */
  ck_assert_ptr_nonnull(strstr(copse_test_result.err, "sender the 2 us of a hop, not 5"));
  ck_assert_double_eq_tol(simulated("--profile %/p.json -a 1"), 1 + 2 * 1, 0.01);
  ck_assert_ptr_nonnull(strstr(copse_test_result.err, "sender the 1 us of a hop, not 3"));
  ck_assert_double_eq_tol(simulated("--profile %/p.json"), 10 + 2 * 3, 0.01);
  ck_assert_double_eq_tol(simulated("--profile %/p.json -a 4"), 4 + 2 * 3, 0.01);
  ck_assert_double_eq_tol(simulated("-a 0"), 0, 0.01); /* less than the default's message */
  ck_assert_str_eq(copse_test_result.err, "");
  ck_assert_double_eq_tol(simulated("--model links"), 2, 0.01);
}
END_TEST

/* ---- profiles from measured times ------------------------------------------------------------ */

/* Sizes of a run: 1 KiB to 64 MiB. */
static const double measured[] = {1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 26};
#define N_MEASURED ((int)(sizeof measured / sizeof *measured))

/* Reads a profile, puts its scale over topology_of(i) and predicts the plan with its costs, as
 * 'copse simulate --profile' does. */
static void time_sizes_with(int i, const struct copse_plan *plan, const char *profile,
                            const double *bytes, int n, double *us) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_predict_options options = copse_predict_defaults;
  struct copse_profile *read;
  struct copse_topology *other = topology_of(i);
  struct copse_prediction it;
  struct copse_foreign what;
  ASSERT_OK(copse_profile_parse("p.json", profile, strlen(profile), &read, &err), &err);
  ASSERT_OK(copse_profile_apply(read, NULL, &other, &err), &err);
  struct copse_q hop = copse_profile_cost(read, COPSE_COST_HOP);
  if (hop.num >= 0) copse_predict_alpha(&options, copse_q_to_double(hop));
  ASSERT_OK(copse_predict_plan("a.plan", other, plan, &options, &it, &what, &err), &err);
  ASSERT_OK(copse_predictions_time(other, &it, 1, bytes, n, false, us, &err), &err);
  free(what.demand);
  copse_predictions_free(&it, 1);
  copse_profile_free(read);
  copse_topology_free(other);
}

static void time_with(int i, const struct copse_plan *plan, const char *profile, double *us) {
  time_sizes_with(i, plan, profile, measured, N_MEASURED, us);
}

static struct copse_plan *plan_for(const struct copse_topology *t, copse_collective collective,
                                   bool packets) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_lower_options lower = {.instances = packets ? 0 : COPSE_LOWER_AUTO,
                                      .low_latency = packets};
  struct copse_plan *plan;
  struct copse_schedule *s = copse_test_solve_as(
      t, (struct copse_solve_options){.collective = collective, .root = -1, .label = "t.json"});
  ASSERT_OK(copse_lower_schedule(s, &lower, &plan, &err), &err);
  copse_schedule_free(s);
  return plan;
}

/* A number of low to high, as likely in each part of its logarithm. */
static double drawn(uint64_t *state, double low, double high) {
  return low * pow(high / low, copse_test_random_int(state, 0, 1000) / 1000.0);
}

static bool is_within(double a, double b, double part) { return fabs(a / b - 1) <= part; }

/* The constants with which times were made come back from them, from those that are 2 % off too,
 * and the profile that is written gives the times that the fit says. */
static void check_fit(int which, const struct copse_topology *t, const struct copse_plan *plan,
                      uint64_t *state) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_calibration fit;
  struct copse_text text = {0};
  char profile[256];
  double us[N_MEASURED], fitted_us[N_MEASURED], again_us[N_MEASURED];
  double hop = drawn(state, 1, 30), scale = drawn(state, 0.1, 2);
  snprintf(profile, sizeof profile,
           "{\"format\": \"copse-profile/1\", \"links\": [{\"scale\": %.6f}], \"costs\": "
           "{\"hop_us\": %.6f}}",
           scale, hop);
  time_with(which, plan, profile, us);
  for (int noise = 0; noise < 2; noise++) {
    for (int i = 0; i < N_MEASURED && noise; i++) us[i] *= drawn(state, 0.98, 1.02);
    ASSERT_OK(copse_calibrate("a.plan", t, plan, measured, us, N_MEASURED, &fit, fitted_us, &err),
              &err);
    double part = noise ? 0.1 : 0.02;
    ck_assert_msg(fit.has_hop && is_within(fit.hop_us, hop, part), "%s: hop %g us, not %g", t->name,
                  fit.hop_us, hop);
    ck_assert_msg(fit.has_scale && is_within(copse_q_to_double(fit.scale), scale, part),
                  "%s: scale %g, not %g", t->name, copse_q_to_double(fit.scale), scale);
    copse_calibration_add_profile(&fit, "a \"test\"", &text);
    time_with(which, plan, text.data, again_us);
    for (int i = 0; i < N_MEASURED; i++) {
      ck_assert(is_within(again_us[i], fitted_us[i], 1e-9));
      ck_assert_double_le(fabs(fitted_us[i] / us[i] - 1), fit.off + 1e-9);
    }
    ck_assert_double_le(fit.off, 0.12);
    copse_text_free(&text);
  }
}

START_TEST(costs_come_back_from_simulated_times) {
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_ALLGATHER,
                                                 COPSE_REDUCE_SCATTER, COPSE_ALLTOALL};
  static const int quick[] = {1, 4, 7, 9};
  int i = COPSE_TEST_SWEEPS ? _i : quick[_i], which = i % 2 ? N_FILES + i : i;
  uint64_t state = (uint64_t)i;
  struct copse_topology *t = topology_of(which);
  if (t->n_ranks >= 2) {
    struct copse_plan *plan = plan_for(t, collectives[i % 4], i % 5 == 4);
    check_fit(which, t, plan, &state);
    copse_plan_free(plan);
  }
  copse_topology_free(t);
}
END_TEST

/* Costs far from the defaults, with few sizes: on the torus a descent from there ends where hops
 * alone take all the time, 93 % off. Times as threads of a DGX-1's plan took them. */
START_TEST(costs_far_from_the_defaults_are_found) {
  static const struct {
    double bytes[3], took[3], off, hop, scale;
  } cases[] = {{{1 << 10, 1 << 16, 1 << 22}, {48003, 47994, 345954}, 0.15, 5600, 0.00025},
               {{1 << 10, 1 << 15, 1 << 20}, {2916, 2952, 133940}, 0.8, 200, 0.0006}};
  struct copse_err err = COPSE_ERR_INIT;
  int which = _i < 2 ? DGX1 : TORUS_4X4;
  double us[3], fitted_us[3];
  char profile[256];
  struct copse_topology *t = topology_of(which);
  struct copse_plan *plan = plan_for(t, _i < 2 ? COPSE_ALLREDUCE : COPSE_ALLGATHER, false);
  struct copse_calibration fit;
  const double *bytes = cases[_i % 2].bytes, hop = cases[_i % 2].hop, scale = cases[_i % 2].scale;
#define FIT(us) copse_calibrate("a.plan", t, plan, bytes, us, 3, &fit, fitted_us, &err)
  ASSERT_OK(FIT(cases[_i % 2].took), &err);
  ck_assert_msg(fit.has_hop && fit.has_scale && fit.off <= cases[_i % 2].off,
                "%g off: hop %g, scale %g", fit.off, fit.hop_us, copse_q_to_double(fit.scale));
  ck_assert(fit.is_far == (_i % 2 == 1));
  snprintf(profile, sizeof profile,
           "{\"format\": \"copse-profile/1\", \"links\": [{\"scale\": %.6f}], \"costs\": "
           "{\"hop_us\": %.6f}}",
           scale, hop);
  time_sizes_with(which, plan, profile, bytes, 3, us);
  ASSERT_OK(FIT(us), &err);
  ck_assert_msg(fit.has_hop && is_within(fit.hop_us, hop, 0.02), "hop %g us", fit.hop_us);
  ck_assert_msg(fit.has_scale && is_within(copse_q_to_double(fit.scale), scale, 0.02), "scale %g",
                copse_q_to_double(fit.scale));
  ck_assert(!fit.is_far);
#undef FIT
  copse_plan_free(plan);
  copse_topology_free(t);
}
END_TEST

/* What times do not tell is refused, or left at its default and said. */
START_TEST(what_times_do_not_tell_is_no_cost) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = topology_of(0);
  struct copse_plan *plan = plan_for(t, COPSE_ALLGATHER, false);
  struct copse_calibration fit;
  struct copse_text text = {0};
  double us[N_MEASURED], fitted_us[N_MEASURED];
#define FIT(first, n)                      \
  (err = (struct copse_err)COPSE_ERR_INIT, \
   copse_calibrate("a.plan", t, plan, measured + (first), us + (first), n, &fit, fitted_us, &err))
  time_with(0, plan, "{\"format\": \"copse-profile/1\", \"costs\": {\"hop_us\": 9}}", us);
  ASSERT_FAILS(FIT(3, 1), COPSE_INVALID, &err, "one size does not tell");
  ASSERT_OK(FIT(0, 2), &err); /* 1 and 8 KiB: hops alone */
  ck_assert(fit.has_hop && !fit.has_scale && is_within(fit.hop_us, 9, 0.02));
  copse_calibration_add_profile(&fit, "", &text);
  ck_assert_ptr_null(strstr(text.data, "scale"));
  time_with(0, plan, "{\"format\": \"copse-profile/1\", \"links\": [{\"scale\": 0.25}]}", us);
  ASSERT_OK(FIT(5, 2), &err); /* 8 and 64 MiB: links alone */
  ck_assert(!fit.has_hop && fit.has_scale && fit.hop_us == 2);
  ck_assert(is_within(copse_q_to_double(fit.scale), 0.25, 0.02));
  us[3] = us[0] / 3;
  ASSERT_FAILS(FIT(0, N_MEASURED), COPSE_INVALID, &err, "times that fall with the size");
  us[3] = us[4] = us[0] * 0.99;
  ASSERT_FAILS(FIT(0, 5), COPSE_INVALID, &err, "times that fall with the size");
  us[2] = 0;
  ASSERT_FAILS(FIT(1, 3), COPSE_INVALID, &err, "no measurable time");
#undef FIT
  copse_text_free(&text);
  copse_plan_free(plan);
  copse_topology_free(t);
}
END_TEST

/* ---- without a plan -------------------------------------------------------------------------- */

START_TEST(what_has_no_plan_says_why) {
  static const char json[] =
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},"
      "{\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"},"
      "{\"id\": \"s\", \"type\": \"switch\", \"multicast\": true, \"aggregation\": true}],"
      "\"links\": [{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 100},"
      "{\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": 100},"
      "{\"src\": \"c\", \"dst\": \"s\", \"bandwidth\": 100}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(json);
  struct copse_predict_options links = {.sim = copse_sim_defaults, .fifo = -1, .links = true};
  struct copse_prediction it;
  double us[2], bytes = 3e6;
  for (int in_network = 0; in_network < 2; in_network++) {
    struct copse_schedule *s =
        copse_test_solve_as(t, (struct copse_solve_options){.collective = COPSE_ALLREDUCE,
                                                            .root = -1,
                                                            .in_network = in_network != 0,
                                                            .label = "t.json"});
    ASSERT_OK(copse_predict_schedule(t, s, NULL, &it, &err), &err);
    ASSERT_OK(copse_predictions_time(t, &it, 1, &bytes, 1, false, &us[in_network], &err), &err);
    ck_assert_str_eq(it.instead, "");
    ck_assert_int_eq(it.multicast, in_network);
    copse_predictions_free(&it, 1);
    ASSERT_OK(copse_predict_schedule(t, s, &links, &it, &err), &err);
    ck_assert_str_ne(it.instead, "");
    ck_assert(copse_q_eq(it.runs_per_GB, s->time_per_GB));
    copse_predictions_free(&it, 1);
    copse_schedule_free(s);
  }
  /* of three ranks the switch also carries each one's own third: as much as trees would */
  ck_assert_double_lt(us[1], 1.3 * us[0]);
  copse_topology_free(t);
}
END_TEST

/* ---- pure links ---------------------------------------------------------------------------- */

#define PEERS COPSE_TEST_OUTSIDE "/peers/"

static const struct {
  const char *topology, *collective;
  int bytes, chunk, fifo;
  double alpha;
  bool occupies; /* theirs: links' latencies alone, so without alpha */
} checked[] = {{"ndv2x2-16", "allgather", 1000000, 8192, 0, 0, false},
               {"dgx2x2", "allgather", 1000000, 1000, 4, 0.5, false},
               {"sccl-dgx1", "broadcast", 262144, 2048, 0, 0, false},
               {"sccl-dgx1", "allreduce", 1048576, 1000, 0, 0.7, false},
               {"sccl-z52", "reduce", 1048576, 4096, 4, 0, false},
               {"bfb-hamming3-4", "alltoall", 1048576, 2048, 0, 0, false},
               {"tacos-mesh5x5", "reduce_scatter", 1048575, 4000, 0, 2, false},
               {"tacos-mesh5x5", "allgather", 1048575, 4000, 0, 0, true},
               {"ndv2x2-16", "allreduce", 1000000, 8192, 4, 0, true},
               {"bfb-hamming3-4", "alltoall", 1048576, 2048, 0, 0, true}};

START_TEST(pure_links_agree_with_an_independent_simulator) {
  char topology[128];
  const char *at;
  if (access(PEERS "alphabeta.py", R_OK) != 0) COPSE_SKIP(PEERS "alphabeta.py is not there");
  snprintf(topology, sizeof topology, PEERS "%s.json", checked[_i].topology);
  bool rooted = checked[_i].collective[0] == 'b' || strcmp(checked[_i].collective, "reduce") == 0;
  ck_assert_int_eq(copse_test_command("@ solve %s -c %s %s -o %%/s.json", topology,
                                      checked[_i].collective, rooted ? "--root 0" : ""),
                   0);
  ck_assert_int_eq(
      copse_test_command("python3 " PEERS "alphabeta.py %%/s.json %s %d --chunk %d --fifo %d "
                         "--alpha %g %s",
                         topology, checked[_i].bytes, checked[_i].chunk, checked[_i].fifo,
                         checked[_i].alpha, checked[_i].occupies ? "--blocking" : ""),
      0);
  double theirs = atof(copse_test_result.out);
  ck_assert_int_eq(
      copse_test_command(
          "@ simulate %%/s.json -t %s --model links -b %d -e %d --chunk %d --fifo %d "
          "-a %g %s --no-baselines --json",
          topology, checked[_i].bytes, checked[_i].bytes, checked[_i].chunk, checked[_i].fifo,
          checked[_i].alpha, checked[_i].occupies ? "--alpha-occupies" : ""),
      0);
  at = strstr(copse_test_result.out, "{\"copse\": {\"time\": ");
  ck_assert_ptr_nonnull(at);
  ck_assert_double_eq_tol(atof(at + strlen("{\"copse\": {\"time\": ")), theirs,
                          1e-8 * theirs + 1e-6);
}
END_TEST

/* ---- baselines --------------------------------------------------------------------------- */

/* A baseline is not made slow by chunks that nobody who runs it would take: none of all chunks that
 * --chunk can ask for is faster than what it is said to take by more than 1 %. */
START_TEST(baselines_have_their_best_chunks) {
  static const char *const names[] = {"tests/data/reference/dgx1-v100.json",
                                      "topologies/dgx-h100.json",
                                      "tests/data/reference/a100-x2.json"};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_ALLGATHER, COPSE_ALLTOALL};
  const struct copse_topology_options reading = {0};
  const struct copse_baseline_options like = {.collective = collectives[_i % 3], .root = -1};
  struct copse_prediction own[COPSE_MAX_PREDICTIONS], cut[COPSE_MAX_PREDICTIONS];
  double us[COPSE_MAX_PREDICTIONS * N_SIZES], other[COPSE_MAX_PREDICTIONS * N_SIZES];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  int n = 0;
  ASSERT_OK(copse_topology_load(names[_i / 3], &reading, &t, &err), &err);
  ASSERT_OK(copse_predict_baselines(&like, t, NULL, own, &n, &err), &err);
  ASSERT_OK(copse_predictions_time(t, own, n, sizes, N_SIZES, false, us, &err), &err);
  for (double chunk = 16 << 10; chunk <= 4 << 20; chunk *= 4) {
    struct copse_predict_options options = copse_predict_defaults;
    int same = 0;
    options.chunk_bytes = chunk;
    ASSERT_OK(copse_predict_baselines(&like, t, &options, cut, &same, &err), &err);
    ck_assert_int_eq(same, n);
    ASSERT_OK(copse_predictions_time(t, cut, n, sizes, N_SIZES, false, other, &err), &err);
    for (int i = 0; i < n * N_SIZES; i++)
      ck_assert_msg(us[i] <= 1.01 * other[i], "%s by %s, %g bytes: %g us, in chunks of %g %g us",
                    t->name, own[i / N_SIZES].name, sizes[i % N_SIZES], us[i], chunk, other[i]);
    copse_predictions_free(cut, n);
  }
  copse_predictions_free(own, n);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/predict");
  copse_test_folder();
  TCase *tc = tcase_create("predict");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, a_schedule_takes_as_long_as_its_plan, 0, N_TOPOLOGIES);
  tcase_add_loop_test(tc, fan_out_costs_the_sender, 0, COPSE_TEST_UP_TO(6, 4));
  tcase_add_test(tc, costs_come_from_defaults_profile_and_options);
  tcase_add_test(tc, what_has_no_plan_says_why);
  tcase_add_loop_test(tc, costs_come_back_from_simulated_times, 0, COPSE_TEST_SWEEPS ? 60 : 4);
  tcase_add_loop_test(tc, costs_far_from_the_defaults_are_found, 0, 4);
  tcase_add_test(tc, what_times_do_not_tell_is_no_cost);
  tcase_add_loop_test(tc, baselines_have_their_best_chunks, 0, COPSE_TEST_SWEEPS ? 9 : 2);
  tcase_add_loop_test(tc, pure_links_agree_with_an_independent_simulator, COPSE_TEST_SWEEPS ? 0 : 4,
                      COPSE_TEST_SWEEPS ? (int)(sizeof checked / sizeof *checked) : 8);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
