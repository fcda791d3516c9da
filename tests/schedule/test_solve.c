/* Schedules from topologies: every collective at its proven optimum, and what is refused. */
#include "schedule/solve/solve.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/types.h"
#include "verify/verify.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

static bool is_rooted(copse_collective c) { return c == COPSE_BROADCAST || c == COPSE_REDUCE; }

static struct copse_solve_options options_of(copse_collective collective, int root, int64_t k) {
  return (struct copse_solve_options){.collective = collective,
                                      .root = is_rooted(collective) ? root : -1,
                                      .k = k,
                                      .label = "test.json"};
}

/* The solver refuses with this status, naming each of the parts. */
static void check_refusal(const char *json, struct copse_solve_options options,
                          copse_status expected, const char *const parts[]) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = (struct copse_schedule *)&err;
  struct copse_topology *topology = copse_test_topology(json);
  copse_status status = copse_solve_schedule(topology, &options, &schedule, &seconds, &err);
  ck_assert_msg(status == expected, "got %s (%s)", copse_status_string(status), err.text);
  ck_assert_ptr_null(schedule);
  for (; *parts; parts++)
    ck_assert_msg(strstr(err.text, *parts), "\"%s\" lacks \"%s\"", err.text, *parts);
  copse_topology_free(topology);
}

/* ---- random fabrics -------------------------------------------------------------------- */

/* What every cut says: the phases' optima, added up for an allreduce. */
static void expected_time(const struct copse_topology *topology, copse_collective collective,
                          int root, mpq_t time) {
  mpq_t phase;
  mpq_init(phase);
  mpq_set_ui(time, 0, 1);
  for (int reversed = 0; reversed < 2; reversed++) {
    bool used =
        reversed ? copse_collective_reduces(collective) : copse_collective_broadcasts(collective);
    if (!used) continue;
    struct copse_test_graph *graph =
        copse_test_graph_of_topology(topology, is_rooted(collective) ? root : -1, reversed);
    ck_assert(copse_test_cut_time(graph, phase));
    mpq_add(time, time, phase);
    copse_test_graph_free(graph);
  }
  mpq_clear(phase);
}

static void check_verified(const struct copse_topology *topology,
                           const struct copse_schedule *schedule, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  const char *defect = copse_test_schedule_defect(schedule, topology);
  ck_assert_msg(defect == NULL, "%s: %s", what, defect);
  copse_status status = copse_verify_schedule(schedule, topology, "s.json", &report, &err);
  ck_assert_msg(status == COPSE_OK, "%s: %s", what, err.text);
  ck_assert(report.same_topology);
  ck_assert((report.optimal || report.phases_optimal || report.forests_optimal) ==
            copse_q_eq(schedule->time_per_GB, schedule->bound.time_per_GB));
}

/* No fewer trees per root have the same weights. */
static void check_fewest(const struct copse_schedule *s, const char *what) {
  int64_t roots = is_rooted(s->collective) ? 1 : s->n_ranks;
  for (int64_t part = 2; part <= s->k; part++) {
    bool finer = s->k % part != 0;
    for (int t = 0; t < s->n_trees; t++)
      finer = finer || roots * (s->k / part) % s->trees[t].weight.den != 0;
    ck_assert_msg(finer, "%s: k = %d, and %d have the same trees", what, (int)s->k,
                  (int)(s->k / part));
  }
}

static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                       COPSE_BROADCAST, COPSE_REDUCE};
#define N_ALL ((int)(sizeof all / sizeof *all))

static void check_exact(const struct copse_topology *topology, copse_collective collective,
                        int root, const char *what) {
  struct copse_schedule *schedule = copse_test_solve_as(topology, options_of(collective, root, 0));
  mpq_t expected, time, bound;
  mpq_inits(expected, time, bound, NULL);
  expected_time(topology, collective, root, expected);
  copse_test_set_q(time, schedule->time_per_GB);
  copse_test_set_q(bound, schedule->bound.time_per_GB);
  check_verified(topology, schedule, what);
  if (schedule->n_trees > 0) check_fewest(schedule, what);
  if (collective != COPSE_ALLREDUCE)
    ck_assert_msg(mpq_equal(time, expected) && mpq_equal(bound, expected), "%s: not optimal", what);
  else
    ck_assert_msg(mpq_cmp(time, expected) <= 0, "%s: slower than its phases", what);
  copse_schedule_free(schedule);
  mpq_clears(expected, time, bound, NULL);
}

START_TEST(every_collective_is_optimal_on_random_fabrics) {
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 100u : 25u); seed++) {
    uint64_t state = seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
    int root = copse_test_random_int(&state, 0, topology->n_ranks - 1);
    char what[60];
    snprintf(what, sizeof what, "%s, seed %d", copse_collective_name(all[_i]), (int)seed);
    check_exact(topology, all[_i], root, what);
    copse_topology_free(topology);
  }
}
END_TEST

START_TEST(with_k_given_schedules_are_right_and_never_below_the_bound) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    uint64_t state = 500 + seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
    int root = copse_test_random_int(&state, 0, topology->n_ranks - 1);
    for (int64_t k = 1; k <= 4; k++) {
      struct copse_schedule *schedule = copse_test_solve_as(topology, options_of(all[_i], root, k));
      char what[60];
      snprintf(what, sizeof what, "%s, k = %d, seed %d", copse_collective_name(all[_i]), (int)k,
               (int)seed);
      check_verified(topology, schedule, what);
      ck_assert_int_eq(schedule->k, topology->n_ranks == 1 ? schedule->k : k);
      copse_schedule_free(schedule);
    }
    copse_topology_free(topology);
  }
}
END_TEST

START_TEST(bound_only_gives_the_same_bound_without_trees) {
  for (uint64_t seed = 0; seed < 30; seed++) {
    uint64_t state = seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_solve_options options = options_of(all[_i], 0, 0);
    options.bound_only = options.equal_shares = true;
    struct copse_schedule *schedule = copse_test_solve_as(topology, options);
    mpq_t expected;
    mpq_init(expected);
    expected_time(topology, all[_i], 0, expected);
    ck_assert(copse_test_equals_q(expected, schedule->bound.time_per_GB));
    ck_assert(copse_test_equals_q(expected, schedule->time_per_GB));
    ck_assert_int_eq(schedule->n_trees, 0);
    mpq_clear(expected);
    copse_schedule_free(schedule);
    copse_topology_free(topology);
  }
}
END_TEST

static char *bytes_of(const struct copse_topology *topology, struct copse_solve_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = copse_test_solve_as(topology, options);
  char *text = NULL;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(schedule, &text, &size, &err), &err);
  copse_schedule_free(schedule);
  return text;
}

START_TEST(the_same_topology_gives_the_same_bytes) {
  for (uint64_t seed = 0; seed < 25; seed++) {
    uint64_t first = seed, second = seed;
    struct copse_topology *a = copse_test_random_topology(&first, &copse_test_random_small);
    struct copse_topology *b = copse_test_random_topology(&second, &copse_test_random_small);
    char *one = bytes_of(a, options_of(all[_i], 0, 0));
    void *elsewhere = malloc(12345); /* other addresses for the second run */
    char *two = bytes_of(b, options_of(all[_i], 0, 0));
    ck_assert_str_eq(one, two);
    free(elsewhere);
    free(one);
    free(two);
    copse_topology_free(a);
    copse_topology_free(b);
  }
}
END_TEST

/* ---- the reference results ------------------------------------------------------------- */

static const char *const references[] = {
    "ring-8",    "full-8",   "torus-4x4",       "torus-4x4x2",     "hypercube-4",
    "dgx1-v100", "a100-x1",  "a100-x2",         "a100-x4",         "a100-x8",
    "h100-x2",   "h100-x4",  "mi250-x1",        "mi250-x2",        "dgx2-x2",
    "random-1",  "random-2", "mixed-a100-h100", "a100-x2-degraded"};
#define N_REFERENCES ((int)(sizeof references / sizeof *references))

static void check_reference(const struct copse_topology *topology, copse_collective collective,
                            mpq_t expected) {
  struct copse_solve_options options = options_of(collective, -1, 0);
  /* only an allreduce may give ranks other shares than the reference's */
  bool free_too = collective == COPSE_ALLREDUCE || COPSE_TEST_SWEEPS;
  struct copse_schedule *free_shares = free_too ? copse_test_solve_as(topology, options) : NULL;
  options.equal_shares = true;
  struct copse_schedule *schedule = copse_test_solve_as(topology, options);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  char text[COPSE_Q_TEXT];
  ASSERT_OK(copse_verify_schedule(schedule, topology, "s.json", &report, &err), &err);
  /* phases that load different links are faster together than the reference, which adds them up */
  bool together = collective == COPSE_ALLREDUCE && schedule->bound.kind == COPSE_BOUND_CUT;
  bool equal = copse_test_equals_q(expected, schedule->time_per_GB);
  ck_assert_msg(
      equal || (together && copse_q_to_double(schedule->time_per_GB) < mpq_get_d(expected)),
      "%s %s: time %s", topology->name, copse_collective_name(collective),
      copse_q_text(schedule->time_per_GB, text));
  ck_assert(copse_q_eq(schedule->time_per_GB, report.time_per_GB));
  ck_assert(together || copse_test_equals_q(expected, schedule->bound.time_per_GB));
  ck_assert(together || report.optimal || report.phases_optimal);
  const char *defect = copse_test_schedule_defect(schedule, topology);
  ck_assert_msg(defect == NULL, "%s: %s", topology->name, defect);
  const struct copse_schedule *best = free_too ? free_shares : schedule;
  if (free_too) check_verified(topology, best, topology->name);
  ck_assert_int_le(copse_q_cmp(best->time_per_GB, schedule->time_per_GB), 0);
  ck_assert_int_eq(best->bound.n_cut > 0, topology->n_ranks > 1);
  copse_schedule_free(free_shares);
  copse_schedule_free(schedule);
}

static cJSON *load_optima(void) {
  struct copse_err err = COPSE_ERR_INIT;
  const char *path = copse_test_data("reference/optima.json");
  char *data = NULL;
  size_t size;
  ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
  cJSON *optima = cJSON_Parse(data);
  ck_assert_ptr_nonnull(optima);
  free(data);
  return optima;
}

static void optimum_of(const cJSON *optima, const char *name, const char *key, mpq_t q) {
  const cJSON *entry = cJSON_GetObjectItem(cJSON_GetObjectItem(optima, name), key);
  ck_assert_msg(cJSON_IsString(entry), "optima.json has no %s of %s", key, name);
  ck_assert_int_eq(mpq_set_str(q, entry->valuestring, 10), 0);
  mpq_canonicalize(q);
}

START_TEST(reference_topologies_reach_the_reference_optima) {
  if (!COPSE_TEST_RESULTS && _i % 4 != 0) return;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  cJSON *optima = load_optima();
  char name[80];
  snprintf(name, sizeof name, "reference/%s.json", references[_i]);
  ASSERT_OK(copse_topology_load(copse_test_data(name), NULL, &topology, &err), &err);
  mpq_t gather, scatter, sum;
  mpq_inits(gather, scatter, sum, NULL);
  optimum_of(optima, references[_i], "allgather_time_per_GB", gather);
  optimum_of(optima, references[_i], "reduce_scatter_time_per_GB", scatter);
  mpq_add(sum, gather, scatter);
  check_reference(topology, COPSE_ALLGATHER, gather);
  check_reference(topology, COPSE_REDUCE_SCATTER, scatter);
  check_reference(topology, COPSE_ALLREDUCE, sum);
  mpq_clears(gather, scatter, sum, NULL);
  copse_topology_free(topology);
  cJSON_Delete(optima);
}
END_TEST

START_TEST(every_reference_optimum_has_its_test) {
  cJSON *optima = load_optima();
  for (const cJSON *entry = optima->child; entry; entry = entry->next) {
    bool listed = false;
    for (int i = 0; i < N_REFERENCES; i++) listed |= strcmp(references[i], entry->string) == 0;
    ck_assert_msg(listed, "%s is not tested", entry->string);
  }
  cJSON_Delete(optima);
}
END_TEST

/*
 * Dumps of real machines. The figures are those of the README beside them, by an
 * independent checker; NULL: the GPU links alone do not connect all GPUs.
 */
static const struct {
  const char *file, *nvlink, *all;
} dumps[] = {
    {"ibm_h100_gx3d.xml", "35/14832", "70/29679"}, {"rccl_topo_8p_940.xml", "1/384", "7/3072"},
    {"rccl_topo_16p1h.xml", "7/1728", "7/1920"},   {"rccl_topo_8p6l_6nic.xml", "7/1152", "1/192"},
    {"rccl_topo_4p2h.xml", NULL, "1/24"},          {"rccl_topo_8p_pcie.xml", NULL, "7/96"},
    {"mixed_nvlink_5gpu.xml", NULL, "1/15"},
};
#define N_DUMPS ((int)(sizeof dumps / sizeof *dumps))

START_TEST(real_dumps_have_the_known_optima) {
  if (!COPSE_TEST_RESULTS && _i % 3 != 0) return;
  for (int mode = 0; mode < 2; mode++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology_options links = {.links = mode ? COPSE_LINKS_ALL : COPSE_LINKS_NVLINK};
    struct copse_topology *topology = NULL;
    char name[80];
    snprintf(name, sizeof name, "dumps/%s", dumps[_i].file);
    const char *path = copse_test_data(name);
    const char *expected = mode ? dumps[_i].all : dumps[_i].nvlink;
    ASSERT_OK(copse_topology_load(path, &links, &topology, &err), &err);
    if (expected) {
      mpq_t q;
      mpq_init(q);
      ck_assert_int_eq(mpq_set_str(q, expected, 10), 0);
      check_reference(topology, COPSE_ALLGATHER, q);
      mpq_clear(q);
    } else {
      struct copse_schedule *schedule = NULL;
      struct copse_solve_seconds seconds;
      struct copse_solve_options options = options_of(COPSE_ALLGATHER, -1, 0);
      ASSERT_FAILS(copse_solve_schedule(topology, &options, &schedule, &seconds, &err),
                   COPSE_INFEASIBLE, &err, "can't be reached");
    }
    copse_topology_free(topology);
  }
}
END_TEST

/* ---- small cases worked out by hand ----------------------------------------------------- */

#define HEAD "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
#define GPU(id) "{\"id\":\"" id "\",\"type\":\"gpu\"}"
#define SWITCH(id) "{\"id\":\"" id "\",\"type\":\"switch\"}"
#define ONE_WAY(a, b, bw) \
  "{\"src\":\"" a "\",\"dst\":\"" b "\",\"bandwidth\":" bw ",\"duplex\":false}"
#define LINK(a, b, bw) "{\"src\":\"" a "\",\"dst\":\"" b "\",\"bandwidth\":" bw "}"

START_TEST(a_single_rank_has_nothing_to_move) {
  static const char *const jsons[] = {
      HEAD GPU("a") "],\"links\":[]}",
      HEAD GPU("a") "," SWITCH("s") "],\"links\":[" LINK("a", "s", "5") "]}"};
  for (int j = 0; j < 2; j++) {
    struct copse_topology *topology = copse_test_topology(jsons[j]);
    for (int i = 0; i < N_ALL; i++) {
      struct copse_schedule *schedule = copse_test_solve_as(topology, options_of(all[i], 0, 0));
      ck_assert(copse_q_eq(schedule->time_per_GB, COPSE_Q_ZERO));
      ck_assert_int_eq(schedule->n_trees, all[i] == COPSE_ALLREDUCE ? 2 : 1);
      ck_assert(copse_q_eq(schedule->trees[0].weight, COPSE_Q_ONE));
      check_verified(topology, schedule, "one rank");
      copse_schedule_free(schedule);
    }
    copse_topology_free(topology);
  }
}
END_TEST

/*
 * a -> b at 10, b -> a at 4. An allgather sends M/2 each way: max(1/20, 1/8) = 1/8; so
 * does a reduce_scatter, each half the other way round. A broadcast from a sends M over the
 * 10, a reduce to a sends M over the 4.
 */
START_TEST(two_ranks_take_what_the_slower_way_takes) {
  static const struct {
    copse_collective collective;
    int64_t num, den;
  } cases[] = {{COPSE_ALLGATHER, 1, 8},
               {COPSE_REDUCE_SCATTER, 1, 8},
               {COPSE_ALLREDUCE, 1, 4},
               {COPSE_BROADCAST, 1, 10},
               {COPSE_REDUCE, 1, 4}};
  struct copse_topology *topology = copse_test_topology(HEAD GPU("a") "," GPU(
      "b") "],\"links\":[" ONE_WAY("a", "b", "10") "," ONE_WAY("b", "a", "4") "]}");
  for (int i = 0; i < N_ALL; i++) {
    struct copse_schedule *schedule =
        copse_test_solve_as(topology, options_of(cases[i].collective, 0, 0));
    ck_assert_int_eq(schedule->time_per_GB.num, cases[i].num);
    ck_assert_int_eq(schedule->time_per_GB.den, cases[i].den);
    check_verified(topology, schedule, "two ranks");
    copse_schedule_free(schedule);
  }
  copse_topology_free(topology);
}
END_TEST

/*
 * A one-way triangle: a reduce_scatter and an allgather load all links alike, so nothing is
 * gained by doing both at once: 2/3 M per link each, at 1 GB/s: 4/3.
 */
START_TEST(an_allreduce_on_a_one_way_ring_is_both_phases) {
  struct copse_topology *topology =
      copse_test_topology(HEAD GPU("a") "," GPU("b") "," GPU("c") "],\"links\":[" ONE_WAY(
          "a", "b", "1") "," ONE_WAY("b", "c", "1") "," ONE_WAY("c", "a", "1") "]}");
  struct copse_schedule *schedule =
      copse_test_solve_as(topology, options_of(COPSE_ALLREDUCE, -1, 0));
  ck_assert(schedule->time_per_GB.num == 4 && schedule->time_per_GB.den == 3);
  check_verified(topology, schedule, "ring");
  copse_schedule_free(schedule);
  copse_topology_free(topology);
}
END_TEST

START_TEST(an_unbalanced_relay_is_refused_with_both_sums) {
  static const char *const parts[] = {"test.json", "'sw'", "25/2 GB/s", "15 GB/s", NULL};
  const char *json = HEAD GPU("a") "," GPU("b") "," SWITCH("sw") "],\"links\":[" LINK(
      "a", "sw", "7.5") "," ONE_WAY("b", "sw", "5") "," ONE_WAY("sw", "b", "\"15/2\"") "]}";
  for (int i = 0; i < N_ALL; i++)
    check_refusal(json, options_of(all[i], 0, 0), COPSE_BAD_INPUT, parts);
}
END_TEST

START_TEST(an_unreachable_rank_is_infeasible_and_named) {
  /* c sends to a and receives nothing */
  static const char *const from_all[] = {"rank 2 (c) can't be reached", NULL};
  static const char *const to_c[] = {"rank 2 (c) can't be reached from rank", NULL};
  static const char *const no_way_back[] = {"can't be reached from rank 0 (a)", NULL};
  const char *json = HEAD GPU("a") "," GPU("b") "," GPU("c") "],\"links\":[" LINK(
      "a", "b", "7") "," ONE_WAY("c", "a", "5") "]}";
  check_refusal(json, options_of(COPSE_ALLGATHER, -1, 0), COPSE_INFEASIBLE, from_all);
  check_refusal(json, options_of(COPSE_ALLREDUCE, -1, 0), COPSE_INFEASIBLE, from_all);
  check_refusal(json, options_of(COPSE_REDUCE_SCATTER, -1, 0), COPSE_INFEASIBLE, to_c);
  check_refusal(json, options_of(COPSE_BROADCAST, 0, 0), COPSE_INFEASIBLE, no_way_back);
  check_refusal(json, options_of(COPSE_REDUCE, 2, 0), COPSE_INFEASIBLE, to_c);
  /* towards a all is well: c's data gets there */
  struct copse_topology *topology = copse_test_topology(json);
  copse_schedule_free(copse_test_solve_as(topology, options_of(COPSE_REDUCE, 0, 0)));
  copse_schedule_free(copse_test_solve_as(topology, options_of(COPSE_BROADCAST, 2, 0)));
  copse_topology_free(topology);
}
END_TEST

START_TEST(options_that_make_no_sense_are_refused) {
  static const char *const root[] = {"root", NULL}, *const k[] = {"k must be", NULL};
  const char *json = HEAD GPU("a") "," GPU("b") "],\"links\":[" LINK("a", "b", "7") "]}";
  struct copse_solve_options options = options_of(COPSE_ALLGATHER, -1, 0);
  options.root = 0;
  check_refusal(json, options, COPSE_INVALID, root);
  check_refusal(json, options_of(COPSE_BROADCAST, -1, 0), COPSE_INVALID, root);
  check_refusal(json, options_of(COPSE_BROADCAST, 2, 0), COPSE_INVALID, root);
  check_refusal(json, options_of(COPSE_ALLGATHER, -1, -1), COPSE_INVALID, k);
  check_refusal(json, options_of(COPSE_ALLGATHER, -1, INT64_MAX), COPSE_INVALID, k);
}
END_TEST

/* Bandwidths from 1e-9 to 1e9 side by side: an answer that verifies, or an overflow. */
START_TEST(extreme_bandwidths_are_exact_or_overflow) {
  static const char *const rates[] = {"1e-9", "1e9",  "3.1415926535", "\"1/999983\"",
                                      "7",    "1e18", "0.1",          "\"9223372036854775783/2\""};
  int exact = 0, overflows = 0;
  for (uint64_t seed = 0; seed < 200; seed++) {
    uint64_t state = seed;
    char json[600];
    const char *r[4];
    for (int i = 0; i < 4; i++) r[i] = rates[copse_test_random_int(&state, 0, 7)];
    snprintf(
        json, sizeof json,
        HEAD GPU("a") "," GPU("b") "," GPU("c") "," SWITCH("s") "],\"links\":[" LINK(
            "a", "b", "%s") "," LINK("b", "c", "%s") "," LINK("a", "s", "%s") "," LINK("s", "c",
                                                                                       "%s") "]}",
        r[0], r[1], r[2], r[3]);
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *topology = copse_test_topology(json);
    struct copse_solve_seconds seconds;
    struct copse_schedule *schedule = NULL;
    int64_t ks[] = {0, 1, 1 << 20};
    struct copse_solve_options options =
        options_of(all[seed % N_ALL], 0, ks[copse_test_random_int(&state, 0, 2)]);
    copse_status status = copse_solve_schedule(topology, &options, &schedule, &seconds, &err);
    ck_assert_msg(status == COPSE_OK || status == COPSE_OVERFLOW || status == COPSE_BAD_INPUT,
                  "seed %d: %s", (int)seed, err.text);
    if (status == COPSE_OK) check_verified(topology, schedule, "extreme");
    exact += status == COPSE_OK;
    overflows += status == COPSE_OVERFLOW;
    copse_schedule_free(schedule);
    copse_topology_free(topology);
  }
  ck_assert_int_gt(exact, 10);
  ck_assert_int_gt(overflows, 10);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/solve");
  TCase *tests = tcase_create("solve");
  tcase_add_loop_test(tests, every_collective_is_optimal_on_random_fabrics, 0, N_ALL);
  tcase_add_loop_test(tests, with_k_given_schedules_are_right_and_never_below_the_bound, 0, N_ALL);
  tcase_add_loop_test(tests, bound_only_gives_the_same_bound_without_trees, 0, N_ALL);
  tcase_add_loop_test(tests, the_same_topology_gives_the_same_bytes, 0, N_ALL);
  tcase_add_loop_test(tests, reference_topologies_reach_the_reference_optima, 0, N_REFERENCES);
  tcase_add_test(tests, every_reference_optimum_has_its_test);
  tcase_add_loop_test(tests, real_dumps_have_the_known_optima, 0, N_DUMPS);
  tcase_add_test(tests, a_single_rank_has_nothing_to_move);
  tcase_add_test(tests, two_ranks_take_what_the_slower_way_takes);
  tcase_add_test(tests, an_allreduce_on_a_one_way_ring_is_both_phases);
  tcase_add_test(tests, an_unbalanced_relay_is_refused_with_both_sums);
  tcase_add_test(tests, an_unreachable_rank_is_infeasible_and_named);
  tcase_add_test(tests, options_that_make_no_sense_are_refused);
  tcase_add_test(tests, extreme_bandwidths_are_exact_or_overflow);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
