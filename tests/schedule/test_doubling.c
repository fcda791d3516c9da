/* Allreduces in stages: right beside an independent judge, also when damaged; as plans proved and
 * run, in chunks and in packets, with the same bits at every rank; chosen where they are faster. */
#include "predict/doubling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "codegen/msccl/check.h"
#include "codegen/msccl/lower.h"
#include "predict/predict.h"
#include "predict/sizes.h"
#include "support/exec_support.h"
#include "support/fabric.h"
#include "support/msccl_model.h"
#include "support/oracle.h"
#include "support/random.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "support/symmetric_topology.h"
#include "verify/verify.h"

struct found {
  struct copse_routes routes;
  struct copse_doubling list[COPSE_MOST_DOUBLINGS];
  int n;
};

static void find(const struct copse_topology *t, struct found *out) {
  struct copse_err err = COPSE_ERR_INIT;
  *out = (struct found){.n = 0};
  ASSERT_OK(copse_plan_routes_find(t, &out->routes, &err), &err);
  ASSERT_OK(copse_doublings_find(t, &out->routes, out->list, &out->n, &err), &err);
}

static struct copse_schedule *make(const struct copse_topology *t, const struct found *f, int i) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s;
  ASSERT_OK(copse_doubling_make(t, &f->routes, &f->list[i], NULL, &s, &err), &err);
  return s;
}

static struct copse_topology *synthetic(const char *line) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic(line, NULL, &t, &err), &err);
  return t;
}

/* Makes hosts alike: GPUs in a row, some with another link beside, of which only some have a NIC to
 * a common switch; in their numbers' order within a host, or, `dealt`, by turns. */
static struct copse_topology *few_nics(uint64_t *state, int hosts, int gpus, bool dealt) {
  char json[8192];
  int more = (int)copse_test_random_int(state, 0, gpus - 1), n = 0;
  int nic = (int)copse_test_random_int(state, 0, gpus - 1);
  bool second = gpus > 2 && copse_test_random_int(state, 0, 1);
  n += snprintf(json + n, sizeof json - (size_t)n,
                "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[");
  for (int i = 0; i < hosts * gpus; i++)
    n += snprintf(json + n, sizeof json - (size_t)n, "{\"id\":\"h%d.g%d\",\"type\":\"gpu\"},",
                  dealt ? i % hosts : i / gpus, dealt ? i / hosts : i % gpus);
  n += snprintf(json + n, sizeof json - (size_t)n,
                "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[");
  for (int h = 0; h < hosts; h++) {
    for (int g = 0; g + 1 < gpus; g++)
      n += snprintf(json + n, sizeof json - (size_t)n,
                    "{\"src\":\"h%d.g%d\",\"dst\":\"h%d.g%d\",\"bandwidth\":100},", h, g, h, g + 1);
    if (more > 1)
      n += snprintf(json + n, sizeof json - (size_t)n,
                    "{\"src\":\"h%d.g0\",\"dst\":\"h%d.g%d\",\"bandwidth\":100},", h, h, more);
    for (int g = 0; g < gpus; g++)
      if (g == nic || (second && g == (nic + 1) % gpus))
        n += snprintf(json + n, sizeof json - (size_t)n,
                      "{\"src\":\"h%d.g%d\",\"dst\":\"s\",\"bandwidth\":25},", h, g);
  }
  snprintf(json + n - 1, sizeof json - (size_t)n, "]}");
  return copse_test_topology(json);
}

/* Through a file, as a user has it. */
static copse_status verdict(const struct copse_schedule *s, const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_schedule *back;
  char *text;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  copse_status status = copse_schedule_parse("s.json", text, size, &back, &err);
  if (status == COPSE_OK) {
    char *again;
    status = copse_verify_schedule(back, t, "s.json", &report, &err);
    ASSERT_OK(copse_schedule_to_json(back, &again, &size, &err), &err);
    ck_assert_str_eq(text, again);
    free(again);
    copse_schedule_free(back);
  }
  free(text);
  return status;
}

START_TEST(stages_are_right_on_any_fabric) {
  static const struct copse_test_random_options shape = {3, 8, 5, true, true};
  int several = 0;
  for (uint64_t seed = 0; seed < COPSE_TEST_UP_TO(30u, 6u); seed++) {
    uint64_t state = 60 + seed;
    struct copse_topology *t = seed % 3 ? copse_test_symmetric_topology(&state, 24)
                                        : copse_test_random_topology(&state, &shape);
    struct found f;
    find(t, &f);
    for (int i = 0; i < f.n; i++) {
      struct copse_schedule *s = make(t, &f, i);
      const char *defect = copse_test_schedule_defect(s, t);
      ck_assert_msg(defect == NULL, "%s", defect);
      ck_assert_int_eq(verdict(s, t), COPSE_OK);
      several += s->trees[s->n_trees - 1].stage > 1;
      copse_schedule_free(s);
    }
    copse_routes_free(&f.routes);
    copse_topology_free(t);
  }
  ck_assert_int_gt(several, 3);
}
END_TEST

static const char *const fabrics[] = {"torus:3x4@50", "switch:6@100", "ring:5@25",
                                      "hosts:2 gpus:4@300 nics:4@25 rails"};

static struct copse_plan *lower(const struct copse_schedule *s, struct copse_lower_options o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan;
  ASSERT_OK(copse_lower_schedule(s, &o, &plan, &err), &err);
  ASSERT_OK(copse_prove_plan(plan, "plan", &report, &err), &err);
  return plan;
}

/* Of floats whose sum depends on the order, and of halves, which every stage rounds. */
static void check_same_bits(const struct copse_plan *plan) {
  enum { MOST = 12, COUNT = 600 };
  static float in[MOST][COUNT], out[MOST][COUNT];
  struct copse_err err = COPSE_ERR_INIT;
  void *inputs[MOST], *outputs[MOST];
  int n = (int)plan->header.n_ranks;
  uint64_t state = 5;
  ck_assert_int_le(n, MOST);
  for (int r = 0; r < n; r++) {
    inputs[r] = in[r];
    outputs[r] = out[r];
    for (int i = 0; i < COUNT; i++)
      in[r][i] = (float)copse_test_random_int(&state, -1000000, 1000000) * (r % 2 ? 1e-3f : 1.0f);
  }
  for (int type = 0; type < 2; type++) {
    struct copse_exec *exec;
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err), &err);
    const struct copse_launch launch = {
        COUNT, type ? COPSE_BFLOAT16 : COPSE_FLOAT, COPSE_SUM, inputs, outputs, NULL};
    ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
    for (int r = 1; r < n; r++)
      ck_assert_mem_eq(out[r], out[0], type ? COUNT * 2 : COUNT * sizeof(float));
    copse_exec_free(exec);
  }
}

/* Where some GPUs of a host have no NIC: right as schedules and as plans, with the same bits at
 * every rank, in chunks and in packets. */
START_TEST(gateways_are_right) {
  static const uint64_t counts[] = {0, 1, 300, UINT64_MAX};
  int n_gateways = 0, scattered = 0, turned = 0, high = 0;
  for (uint64_t seed = 0; seed < COPSE_TEST_UP_TO(16u, 4u); seed++) {
    uint64_t state = 700 + seed;
    int hosts = (int)copse_test_random_int(&state, 2, 4);
    struct copse_topology *t =
        few_nics(&state, hosts, (int)copse_test_random_int(&state, 2, 12 / hosts), seed % 3 == 2);
    struct found f;
    find(t, &f);
    for (int i = 0; i < f.n; i++) {
      struct copse_schedule *s = make(t, &f, i);
      const char *defect = copse_test_schedule_defect(s, t);
      bool packets = copse_test_random_int(&state, 0, 1);
      if (!f.list[i].gateways && seed > 0) {
        copse_schedule_free(s);
        continue;
      }
      ck_assert_msg(defect == NULL, "%s", defect);
      ck_assert_int_eq(verdict(s, t), COPSE_OK);
      struct copse_plan *plan =
          lower(s, (struct copse_lower_options){.max_workers = (int)(1 + seed % 8),
                                                .min_chunk_bytes = packets ? 0 : 16,
                                                .pipeline_chunks = packets ? 0 : 3,
                                                .low_latency = packets});
      exec_check_all(plan, i % 2 ? COPSE_BACKEND_THREADS : COPSE_BACKEND_CPU, counts);
      check_same_bits(plan);
      n_gateways += f.list[i].gateways;
      scattered += f.list[i].gateways && f.list[i].n_scattered > 0;
      turned += f.list[i].gateways && f.list[i].turned;
      high += f.list[i].gateways && s->trees[0].n_edges > 0 &&
              s->trees[0].edges[s->trees[0].n_edges - 1].dst != s->trees[0].edges[0].dst;
      copse_plan_free(plan);
      copse_schedule_free(s);
    }
    copse_routes_free(&f.routes);
    copse_topology_free(t);
  }
  ck_assert_int_gt(n_gateways, 3);
  ck_assert_int_gt(turned, 0);
  ck_assert_int_gt(scattered, 0);
  ck_assert_int_gt(high, 0);
}
END_TEST

/* By hand, three hosts of two GPUs of which one has a NIC: the sum of a host goes to two others
 * over the NIC, 2 / 25 GB/s, in three hops, than which there are no fewer. With all ranks' own sums
 * there four would go over each NIC. */
START_TEST(a_host_sends_one_sum) {
  uint64_t state = 3;
  struct copse_topology *t = few_nics(&state, 3, 2, false);
  struct found f;
  bool is_found = false;
  find(t, &f);
  for (int i = 0; i < f.n; i++) {
    struct copse_schedule *s = make(t, &f, i);
    is_found = is_found || (copse_schedule_height(s) == 3 &&
                            copse_q_eq(s->time_per_GB, (struct copse_q){2, 25}));
    copse_schedule_free(s);
  }
  ck_assert(is_found);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* A rank that is as near as the switch forwards nothing, though it is wider. */
START_TEST(routes_over_relays_avoid_ranks) {
  static const char json[] =
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
      "{\"id\":\"a\",\"type\":\"gpu\"},{\"id\":\"b\",\"type\":\"gpu\"},"
      "{\"id\":\"c\",\"type\":\"gpu\"},{\"id\":\"s\",\"type\":\"switch\"}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":10},{\"src\":\"b\",\"dst\":\"s\",\"bandwidth\":"
      "10},"
      "{\"src\":\"c\",\"dst\":\"s\",\"bandwidth\":10},"
      "{\"src\":\"a\",\"dst\":\"c\",\"bandwidth\":50},{\"src\":\"c\",\"dst\":\"b\",\"bandwidth\":"
      "50}]}";
  struct copse_topology *t = copse_test_topology(json);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_routes routes;
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  for (int way = 0; way < routes.ways; way++) {
    int n;
    const int *nodes = copse_route_way(&routes, 0, 1, way, &n);
    ck_assert_int_eq(n, 3);
    ck_assert_str_eq(t->nodes[nodes[1]].id, "s");
  }
  copse_routes_free(&routes);
  copse_topology_free(t);
}
END_TEST

/* One thing changed, in memory of the schedule's own. */
static void damage(struct copse_schedule *s, uint64_t *state) {
  struct copse_schedule_tree *trees = (struct copse_schedule_tree *)s->trees;
  struct copse_schedule_tree *t = &trees[copse_test_random_int(state, 0, s->n_trees - 1)];
  struct copse_schedule_edge *edges = (struct copse_schedule_edge *)t->edges;
  int e = t->n_edges > 0 ? (int)copse_test_random_int(state, 0, t->n_edges - 1) : 0;
  switch (copse_test_random_int(state, 0, 6)) {
    case 0: t->n_edges -= t->n_edges > 0; break;
    case 1: t->stage += 1; break;
    case 2: t->piece += 1; break;
    case 3: t->weight.num += 1; break;
    case 4: t->root = (t->root + 1) % s->n_ranks; break;
    case 5:
      if (t->n_edges > 0) edges[e] = edges[0];
      break;
    default: *t = trees[copse_test_random_int(state, 0, s->n_trees - 1)];
  }
}

START_TEST(what_is_damaged_is_refused_unless_it_is_still_right) {
  struct copse_topology *t = synthetic("torus:2x4@50");
  struct found f;
  int refused = 0, rounds = COPSE_TEST_UP_TO(600, 100);
  find(t, &f);
  for (int i = 0; i < rounds; i++) {
    uint64_t state = 9000 + (uint64_t)i;
    struct copse_schedule *s = make(t, &f, i % f.n);
    damage(s, &state);
    bool right = copse_test_schedule_defect(s, t) == NULL;
    copse_status status = verdict(s, t);
    ck_assert_msg((status == COPSE_OK) == right, "round %d: %s, verify says %d", i,
                  right ? "right" : "wrong", (int)status);
    ck_assert(right || status == COPSE_REFUTED || status == COPSE_BAD_INPUT);
    refused += !right;
    copse_schedule_free(s);
  }
  ck_assert_int_gt(refused, rounds / 2);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

START_TEST(plans_are_proved_and_right) {
  static const uint64_t counts[] = {0, 1, 7, 1000, UINT64_MAX};
  static const struct copse_lower_options choices[] = {
      {.chunk_bytes = 256, .min_chunk_bytes = 16, .fifo = 2},
      {.max_workers = 1, .instances = 3, .pipeline_chunks = 7, .min_chunk_bytes = 16},
      {.low_latency = true, .max_bytes = 8000},
      {.low_latency = true, .max_bytes = 8000, .instances = 3, .max_workers = 2}};
  struct copse_topology *t = synthetic(fabrics[_i / 4]);
  struct found f;
  find(t, &f);
  ck_assert_int_gt(f.n, 0);
  for (int i = 0; i < (COPSE_TEST_RESULTS ? f.n : 1); i++) {
    struct copse_schedule *s = make(t, &f, f.n - 1 - i);
    struct copse_plan *plan = lower(s, choices[_i % 4]);
    exec_check_all(plan, _i % 2 ? COPSE_BACKEND_THREADS : COPSE_BACKEND_CPU, counts);
    copse_plan_free(plan);
    copse_schedule_free(s);
  }
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* Channels within a rank: what another worker than the one that has it puts. */
static int locals(const struct copse_plan *plan) {
  int n = 0;
  for (uint32_t c = 0; c < plan->header.n_channels; c++)
    n += plan->workers[plan->channels[c].src_worker].rank ==
         plan->workers[plan->channels[c].dst_worker].rank;
  return n;
}

START_TEST(plans_of_any_fabric_deal_and_are_right) {
  static const uint64_t counts[] = {0, 1, 300, UINT64_MAX};
  static const struct copse_test_random_options shape = {3, 8, 5, true, true};
  int dealt[2] = {0, 0}, fabrics_tried = COPSE_TEST_UP_TO(24, 8);
  for (uint64_t seed = 0; seed < (uint64_t)fabrics_tried; seed++) {
    uint64_t state = 300 + seed;
    struct copse_topology *t = seed % 2 ? copse_test_symmetric_topology(&state, 16)
                                        : copse_test_random_topology(&state, &shape);
    struct found f;
    find(t, &f);
    for (int i = 0; i < f.n; i++) {
      bool packets = copse_test_random_int(&state, 0, 1);
      struct copse_schedule *s = make(t, &f, i);
      struct copse_plan *plan =
          lower(s, (struct copse_lower_options){
                       .max_workers = (int)copse_test_random_int(&state, 1, 12),
                       .instances = (int)copse_test_random_int(&state, 1, 2),
                       .fifo = packets ? 0 : (int)copse_test_random_int(&state, 1, 3),
                       .pipeline_chunks = packets ? 0 : (int)copse_test_random_int(&state, 1, 5),
                       .min_chunk_bytes = packets ? 0 : 16,
                       .low_latency = packets});
      dealt[packets] += locals(plan) > 0;
      exec_check_all(plan, seed % 2 ? COPSE_BACKEND_THREADS : COPSE_BACKEND_CPU, counts);
      copse_plan_free(plan);
      copse_schedule_free(s);
    }
    copse_routes_free(&f.routes);
    copse_topology_free(t);
  }
  ck_assert_int_gt(dealt[0], fabrics_tried / 8);
  ck_assert_int_gt(dealt[1], fabrics_tried / 8);
}
END_TEST

/* By hand: a message keeps a worker for 0.18 us and takes a hop of 2 us; of the 7 (in two stages
 * 3 and 3) that a rank sends the last waits for those before it of its worker. What they are long
 * adds less than 0.02 us. */
START_TEST(workers_share_what_a_rank_sends) {
  static const struct {
    struct copse_doubling stages;
    int ranks, workers, waits; /* messages that the last ones of all stages wait for */
  } cases[] = {
      {{1, {8}, 0, false, false, 1}, 8, 1, 6},      {{1, {8}, 0, false, false, 1}, 8, 2, 3},
      {{1, {8}, 0, false, false, 1}, 8, 3, 2},      {{1, {8}, 0, false, false, 1}, 8, 7, 0},
      {{1, {8}, 0, false, false, 1}, 8, 0, 0},      {{2, {4, 4}, 0, false, false, 1}, 16, 1, 4},
      {{2, {4, 4}, 0, false, false, 1}, 16, 2, 2},  {{2, {4, 4}, 0, false, false, 1}, 16, 0, 0},
      {{2, {4, 4}, 1, false, false, 1}, 16, 32, 0}, {{2, {4, 4}, 0, true, false, 1}, 16, 4, 2}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_predict_options options = copse_predict_defaults;
    char line[32];
    snprintf(line, sizeof line, "full:%d@50", cases[c].ranks);
    struct copse_topology *t = synthetic(line);
    struct found f = {.n = 1, .list = {cases[c].stages}};
    ASSERT_OK(copse_plan_routes_find(t, &f.routes, &err), &err);
    struct copse_schedule *s = make(t, &f, 0);
    double bytes = 64, us, hops = copse_schedule_height(s);
    options.lower.max_workers = cases[c].workers;
    ASSERT_OK(copse_predict(t, s, &options, &bytes, 1, &us, &err), &err);
    double least = 2 * hops + 0.18 * cases[c].waits;
    ck_assert_msg(us >= least - 1e-9 && us < least + 0.02, "case %zu: %g us, not %g", c, us, least);
    copse_schedule_free(s);
    copse_routes_free(&f.routes);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(every_rank_has_the_same_bits) {
  struct copse_topology *t = synthetic("torus:3x4@50");
  struct found f;
  find(t, &f);
  for (int i = 0; i < f.n; i++) {
    struct copse_schedule *s = make(t, &f, i);
    struct copse_plan *plan = lower(s, (struct copse_lower_options){.low_latency = i % 2});
    check_same_bits(plan);
    copse_plan_free(plan);
    copse_schedule_free(s);
  }
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* Rounds of a hypercube, and of a ring in one stage: the diameter, no more. */
START_TEST(there_are_no_more_hops_than_the_fabric_is_wide) {
  static const struct {
    const char *fabric;
    int hops;
  } cases[] = {{"hypercube:4@50", 4},
               {"torus:4x4@50", 4},
               {"ring:9@50", 4},
               {"full:7@50", 1},
               {"switch:8@100", 1}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct copse_topology *t = synthetic(cases[c].fabric);
    struct found f;
    int least = 1000;
    find(t, &f);
    for (int i = 0; i < f.n; i++) {
      struct copse_schedule *s = make(t, &f, i);
      if (copse_schedule_height(s) < least) least = copse_schedule_height(s);
      copse_schedule_free(s);
    }
    ck_assert_msg(least == cases[c].hops, "%s: %d hops", cases[c].fabric, least);
    copse_routes_free(&f.routes);
    copse_topology_free(t);
  }
}
END_TEST

/* By hand, two hosts of four GPUs with a NIC each: a GPU adds up a quarter, which crosses its NIC
 * once, 1/4 / 25 GB/s, and goes to three others over NVLink, as three quarters came before: 3/2 /
 * 300 GB/s.
 */
START_TEST(scattered_digits_cross_the_fabric_once) {
  struct copse_topology *t = synthetic("hosts:2 gpus:4@300 nics:4@25 rails");
  struct found f;
  int seen = 0;
  find(t, &f);
  for (int i = 0; i < f.n; i++) {
    if (f.list[i].n_scattered != 1 || f.list[i].bases[0] != 4 || f.list[i].turned) continue;
    struct copse_schedule *s = make(t, &f, i);
    ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 100}));
    ck_assert_int_eq(copse_schedule_height(s), 3);
    ck_assert_int_eq(s->trees[0].phase, COPSE_PHASE_REDUCE);
    copse_schedule_free(s);
    seen++;
  }
  ck_assert_int_eq(seen, 1);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* Small messages are dealt to workers, so that one stage of all ranks is found; of long ones in
 * pieces each worker sends its own, one message after the other, so that groups that are small and
 * scattered are found too. */
START_TEST(large_groups_and_small_ones_are_found) {
  struct copse_topology *t = synthetic("switch:72@900");
  struct found f;
  bool one = false, small = false;
  find(t, &f);
  for (int i = 0; i < f.n; i++) {
    const struct copse_doubling *d = &f.list[i];
    int most = 0;
    for (int k = 0; k < d->n_digits; k++) most = d->bases[k] > most ? d->bases[k] : most;
    one = one || most == 72;
    small = small || (most <= 12 && d->n_digits == 2 && d->n_scattered == 1 && !d->turned);
  }
  ck_assert(one && small);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* By hand: 1 KB over a hypercube of 50 GB/s takes four rounds of 2 us and 20 ns each; half of it,
 * in pieces that begin elsewhere, less. Long messages go by trees. */
START_TEST(the_search_takes_stages_for_short_messages_alone) {
  struct copse_topology *t = synthetic("hypercube:4@50");
  struct copse_solve_options options = {.collective = COPSE_ALLREDUCE, .root = -1, .label = "x"};
  for (int i = 0; i < 2; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_solve_seconds seconds;
    struct copse_size_answer answer;
    const struct copse_size_question question = {.solve = &options,
                                                 .predict = &copse_predict_defaults,
                                                 .bytes = i == 0 ? 1000 : 1e8,
                                                 .work = 1e6};
    ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
    ck_assert_int_eq(copse_schedule_doubles(answer.schedule), i == 0);
    if (i == 0) ck_assert_msg(answer.us >= 8 && answer.us <= 8.0801, "%g us", answer.us);
    copse_schedule_free(answer.schedule);
  }
  copse_topology_free(t);
}
END_TEST

/* What is no plan of trees, and simulations of schedules without their plans, say so. */
START_TEST(what_stages_are_not_for_is_refused) {
  struct copse_topology *t = synthetic("full:4@50");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_predict_options links = copse_predict_defaults;
  struct found f;
  double bytes = 1000, us;
  find(t, &f);
  struct copse_schedule *s = make(t, &f, 0);
  links.links = true;
  ASSERT_FAILS(copse_predict(t, s, &links, &bytes, 1, &us, &err), COPSE_UNSUPPORTED, &err,
               "an allreduce in stages is simulated as its plan");
  copse_schedule_free(s);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* Whether they fit in what the executors take; what does is proved, and right in a second model. */
static bool runs_as_msccl(const struct copse_schedule *s,
                          const struct copse_msccl_options *options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_msccl_summary summary;
  struct copse_check_msccl_report report;
  char *xml;
  size_t size;
  uint64_t seed = 7;
  copse_status status = copse_lower_msccl(s, options, &xml, &size, &summary, &err);
  if (status == COPSE_UNSUPPORTED) return false;
  ASSERT_OK(status, &err);
  ASSERT_OK(copse_check_msccl("test.xml", xml, size, &report, &err), &err);
  if (options->executor == COPSE_MSCCL_ANY) ck_assert(report.on_rccl);
  ck_assert_int_eq(report.in_place, options->layout != COPSE_MSCCL_OUT_OF_PLACE);
  ck_assert_int_eq(report.out_of_place, options->layout != COPSE_MSCCL_IN_PLACE);
  struct copse_test_mx *m = copse_test_mx_read(xml);
  ck_assert(copse_test_mx_runs(m, 3, &seed));
  copse_test_mx_free(m);
  free(xml);
  return true;
}

START_TEST(msccl_programs_are_proved_and_run_right) {
  static const char *const lines[] = {"hypercube:3@25", "torus:3x3@25",
                                      "hosts:2 gpus:3@50 nics:3@10 flat", "ring:6@25", "full:5@10"};
  struct copse_topology *t = synthetic(lines[_i % 5]);
  int tried = 0, fit = 0;
  struct found f;
  find(t, &f);
  for (int i = 0; i < f.n; i++) {
    struct copse_schedule *s = make(t, &f, i);
    for (int e = COPSE_MSCCL_ANY; e <= COPSE_MSCCL_NCCL; e++)
      for (int layout = 0; layout < 3; layout++) {
        struct copse_msccl_options o = {.executor = (enum copse_msccl_executor)e,
                                        .layout = (enum copse_msccl_layout)layout,
                                        .instances = 1 + (layout == 1),
                                        .channels = layout == 2 ? 1 : 0};
        tried++;
        fit += runs_as_msccl(s, &o);
      }
    copse_schedule_free(s);
  }
  ck_assert_msg(fit > 0 && 2 * fit >= tried, "%s: %d of %d", lines[_i], fit, tried);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

/* Makes two hosts of four GPUs with two NICs each, over a relay. */
static struct copse_topology *two_nics_each(void) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[");
  for (int i = 0; i < 8; i++)
    copse_text_add(&text, "{\"id\":\"g%d\",\"type\":\"gpu\"},{\"id\":\"p%d\",\"type\":\"pcie\"},",
                   i, i);
  for (int i = 0; i < 16; i++) copse_text_add(&text, "{\"id\":\"n%d\",\"type\":\"nic\"},", i);
  copse_text_add(&text,
                 "{\"id\":\"h0\",\"type\":\"nvswitch\"},{\"id\":\"h1\",\"type\":\"nvswitch\"},"
                 "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[");
  for (int i = 0; i < 8; i++)
    copse_text_add(&text,
                   "{\"src\":\"g%d\",\"dst\":\"h%d\",\"bandwidth\":600},"
                   "{\"src\":\"g%d\",\"dst\":\"p%d\",\"bandwidth\":100},",
                   i, i / 4, i, i);
  for (int i = 0; i < 16; i++)
    copse_text_add(&text,
                   "%s{\"src\":\"p%d\",\"dst\":\"n%d\",\"bandwidth\":25},"
                   "{\"src\":\"n%d\",\"dst\":\"s\",\"bandwidth\":25}",
                   i ? "," : "", i / 2, i, i);
  copse_text_add(&text, "]}");
  struct copse_topology *t = copse_test_topology(text.data);
  copse_text_free(&text);
  return t;
}

/* A piece takes one of a GPU's two NICs, two copies both, four no more. */
START_TEST(copies_of_pieces_take_other_ways) {
  static const struct copse_q times[] = {{1, 100}, {1, 200}, {1, 200}};
  struct copse_topology *t = two_nics_each();
  struct copse_err err = COPSE_ERR_INIT;
  struct found f;
  int at = 0;
  find(t, &f);
  while (at < f.n && (f.list[at].bases[0] != 4 || f.list[at].n_scattered != 1 || f.list[at].turned))
    at++;
  ck_assert_int_lt(at, f.n);
  for (int i = 0; i < 3; i++) {
    f.list[at].copies = 1 << i;
    struct copse_schedule *s = make(t, &f, at);
    const char *defect = copse_test_schedule_defect(s, t);
    ck_assert_msg(defect == NULL, "%s", defect);
    ck_assert_int_eq(verdict(s, t), COPSE_OK);
    ck_assert(copse_q_eq(s->time_per_GB, times[i]));
    struct copse_plan *plan = lower(s, (struct copse_lower_options){.low_latency = false});
    check_same_bits(plan);
    copse_plan_free(plan);
    copse_schedule_free(s);
  }
  f.list[at].copies = 16;
  struct copse_schedule *none;
  ck_assert_int_eq(copse_doubling_make(t, &f.routes, &f.list[at], NULL, &none, &err),
                   COPSE_UNSUPPORTED);
  copse_routes_free(&f.routes);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/doubling");
  TCase *tests = tcase_create("doubling");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, stages_are_right_on_any_fabric);
  tcase_add_test(tests, routes_over_relays_avoid_ranks);
  tcase_add_test(tests, what_is_damaged_is_refused_unless_it_is_still_right);
  tcase_add_loop_test(tests, msccl_programs_are_proved_and_run_right, 0, 5);
  tcase_add_test(tests, plans_of_any_fabric_deal_and_are_right);
  tcase_add_test(tests, gateways_are_right);
  tcase_add_test(tests, a_host_sends_one_sum);
  tcase_add_test(tests, workers_share_what_a_rank_sends);
  tcase_add_test(tests, every_rank_has_the_same_bits);
  tcase_add_test(tests, there_are_no_more_hops_than_the_fabric_is_wide);
  tcase_add_test(tests, what_stages_are_not_for_is_refused);
  tcase_add_test(tests, large_groups_and_small_ones_are_found);
  tcase_add_test(tests, scattered_digits_cross_the_fabric_once);
  tcase_add_test(tests, copies_of_pieces_take_other_ways);
  suite_add_tcase(suite, tests);
  TCase *plain = copse_test_plain(suite, 120);
  tcase_add_loop_test(plain, plans_are_proved_and_right, 0, 16);
  if (COPSE_TEST_RESULTS) tcase_add_test(plain, the_search_takes_stages_for_short_messages_alone);
  return copse_test_run(suite);
}
