/* Allreduce with unequal shares: two unrelated LPs, the certificate, and what uses the result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/types.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "topology/modify.h"

static struct copse_solve_options allreduce(void) {
  return (struct copse_solve_options){
      .collective = COPSE_ALLREDUCE, .root = -1, .label = "test.json"};
}

static copse_status verify(const struct copse_schedule *schedule,
                           const struct copse_topology *topology,
                           struct copse_verify_report *report, struct copse_err *err) {
  return copse_verify_schedule(schedule, topology, "s.json", report, err);
}

static const struct copse_test_random_options tiny = {2, 5, 3, true, true};

#define THREE(rest)                                                                         \
  "{\"format\": \"copse-topology/1\", \"name\": \"three\", \"nodes\": [{\"id\": \"g0\", "   \
  "\"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"}, {\"id\": \"g2\", \"type\": "    \
  "\"gpu\"}], \"links\": [{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 5}, {\"src\": " \
  "\"g0\", \"dst\": \"g2\", \"bandwidth\": 5}, {\"src\": \"g1\", \"dst\": \"g2\", "         \
  "\"bandwidth\": " rest "}]}"

/* Worked out by hand: of 31 parts g0 takes 29, each other 1, all of the slow link is used. */
START_TEST(the_well_connected_rank_takes_the_larger_share) {
  struct copse_topology *t = copse_test_topology(THREE("\"1/3\""));
  struct copse_solve_options options = allreduce();
  struct copse_schedule *s = copse_test_solve_as(t, options);
  struct copse_verify_report report;
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){6, 31}));
  ASSERT_OK(verify(s, t, &report, &err), &err);
  ck_assert(report.forests_optimal && !report.optimal && !report.phases_optimal);
  copse_schedule_free(s);
  options.equal_shares = true;
  s = copse_test_solve_as(t, options);
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 4}));
  ck_assert_int_eq(s->bound.kind, COPSE_BOUND_PHASES);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

#define WIDE_GPU(id) "{\"id\": \"" id "\", \"type\": \"gpu\"},"
#define WIDE_SWITCH(id) "{\"id\": \"" id "\", \"type\": \"switch\"}"
#define WIDE_LINK(a, b, bandwidth) \
  "{\"src\": \"" a "\", \"dst\": \"" b "\", \"bandwidth\": \"" bandwidth "\"}"
#define WIDE_FABRIC(nodes, links)                                             \
  "{\"format\": \"copse-topology/1\", \"name\": \"wide\", \"nodes\": [" nodes \
  "], \"links\": [" links "]}"

/* Rings of switches whose bandwidths are from 0.09 to 1000. */
/* clang-format off */
static const char *const wide_fabrics[] = {
  WIDE_FABRIC(
    WIDE_GPU("g0") WIDE_GPU("g1") WIDE_GPU("g2") WIDE_GPU("g3")
    WIDE_SWITCH("s0") "," WIDE_SWITCH("s1") "," WIDE_SWITCH("s2") ","
    WIDE_SWITCH("s3") "," WIDE_SWITCH("s4") "," WIDE_SWITCH("s5"),
    WIDE_LINK("s0", "s1", "1000/3") "," WIDE_LINK("s1", "s2", "3") "," WIDE_LINK("s2", "s3", "100/3") ","
    WIDE_LINK("s3", "s4", "9/100") "," WIDE_LINK("s4", "s5", "90") "," WIDE_LINK("g0", "s5", "900") ","
    WIDE_LINK("g1", "s1", "1/6") "," WIDE_LINK("g2", "s4", "9117/10") "," WIDE_LINK("g3", "s4", "1000") ","
    WIDE_LINK("s0", "s5", "3/10")),
  WIDE_FABRIC(
    WIDE_GPU("g0") WIDE_GPU("g1") WIDE_GPU("g2") WIDE_GPU("g3")
    WIDE_GPU("g4") WIDE_GPU("g5") WIDE_GPU("g6") WIDE_GPU("g7")
    WIDE_SWITCH("s0") "," WIDE_SWITCH("s1") "," WIDE_SWITCH("s2") ","
    WIDE_SWITCH("s3") "," WIDE_SWITCH("s4") "," WIDE_SWITCH("s5"),
    WIDE_LINK("s0", "s1", "3") "," WIDE_LINK("s1", "s2", "100") "," WIDE_LINK("s2", "s3", "100") ","
    WIDE_LINK("s3", "s4", "1/10") "," WIDE_LINK("s4", "s5", "1/10") "," WIDE_LINK("g0", "s3", "1/2") ","
    WIDE_LINK("g1", "s4", "1/2") "," WIDE_LINK("g2", "s2", "900") "," WIDE_LINK("g3", "s0", "1000") ","
    WIDE_LINK("g4", "s5", "1/2") "," WIDE_LINK("g5", "s2", "1000") "," WIDE_LINK("g6", "s4", "1/2") ","
    WIDE_LINK("g7", "s3", "900") "," WIDE_LINK("s0", "s5", "3/10"))};
/* clang-format on */

/* No more than what goes into g1 (1/6) is possible in the first, nor than what goes into {g1, g6} (1/5)
 * in the second. */
START_TEST(bandwidths_of_any_ratio_are_solved_exactly) {
  static const int seconds[] = {6, 5};
  for (int i = 0; i < 2; i++) {
    struct copse_verify_report report;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = copse_test_topology(wide_fabrics[i]);
    struct copse_schedule *s = copse_test_solve_as(t, allreduce());
    ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){seconds[i], 1}));
    ASSERT_OK(verify(s, t, &report, &err), &err);
    ck_assert(report.optimal || report.forests_optimal);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(where_equal_shares_are_as_good_they_stay) {
  struct copse_topology *t = copse_test_topology(THREE("5"));
  struct copse_solve_options options = allreduce();
  char *text[2];
  size_t size;
  for (int equal = 0; equal < 2; equal++) {
    struct copse_err err = COPSE_ERR_INIT;
    options.equal_shares = equal;
    struct copse_schedule *s = copse_test_solve_as(t, options);
    ASSERT_OK(copse_schedule_to_json(s, &text[equal], &size, &err), &err);
    copse_schedule_free(s);
  }
  ck_assert_str_eq(text[0], text[1]);
  free(text[0]);
  free(text[1]);
  copse_topology_free(t);
}
END_TEST

/* Unequal parts of the links for the two phases are what it takes here, not unequal shares. */
START_TEST(shares_are_as_even_as_the_optimum_allows) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_load("topologies/mixed-a100-h100.json", NULL, &t, &err), &err);
  struct copse_schedule *s = copse_test_solve_as(t, allreduce());
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 175}));
  ASSERT_OK(verify(s, t, &report, &err), &err);
  ck_assert(report.forests_optimal);
  for (int r = 0; r < s->n_ranks; r++) {
    struct copse_q share = COPSE_Q_ZERO;
    for (int i = 0; i < s->n_trees; i++)
      if (s->trees[i].root == r && s->trees[i].phase == COPSE_PHASE_REDUCE)
        ASSERT_OK(copse_q_add(share, s->trees[i].weight, &share, &err), &err);
    ck_assert(copse_q_eq(share, (struct copse_q){1, 32}));
  }
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Whether unequal shares were used, too: a test that never sees them tests nothing. */
static bool check_fabric(const struct copse_topology *t, bool all_cuts, const char *what) {
  struct copse_verify_report report;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = copse_test_solve_as(t, allreduce());
  double expected = copse_test_lp_allreduce_time(t, all_cuts);
  double time = copse_q_to_double(s->time_per_GB);
  ck_assert_msg(fabs(time / expected - 1) < 1e-7, "%s: %.12g, the LP says %.12g", what, time,
                expected);
  const char *defect = copse_test_schedule_defect(s, t);
  ck_assert_msg(defect == NULL, "%s: %s", what, defect);
  ck_assert_msg(verify(s, t, &report, &err) == COPSE_OK, "%s: %s", what, err.text);
  ck_assert_msg(report.optimal || report.phases_optimal || report.forests_optimal,
                "%s: not said to be optimal", what);
  bool forests = s->bound.kind == COPSE_BOUND_FORESTS;
  copse_schedule_free(s);
  return forests;
}

START_TEST(the_optimum_is_that_of_the_lp_over_flows) {
  int forests = 0;
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 60u : 25u); seed++) {
    uint64_t state = 100 * (uint64_t)_i + seed;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    char what[40];
    snprintf(what, sizeof what, "seed %d", (int)(100 * _i) + (int)seed);
    if (t->n_ranks > 1) forests += check_fabric(t, false, what);
    copse_topology_free(t);
  }
  if (_i == 0 || COPSE_TEST_SWEEPS) ck_assert_int_gt(forests, 2);
}
END_TEST

/* Rounded shares and fewer trees, within what is allowed of the programme's optimum. */
START_TEST(a_tolerance_is_kept_where_shares_are_unequal) {
  static const struct copse_q within[] = {{1, 1000}, {1, 100}, {1, 20}};
  int rounded = 0;
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 60u : 15u); seed++) {
    uint64_t state = 5000 + seed;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_solve_options options = allreduce();
    struct copse_verify_report report;
    struct copse_err err = COPSE_ERR_INIT;
    options.tolerance = within[_i];
    struct copse_schedule *s = t->n_ranks > 1 ? copse_test_solve_as(t, options) : NULL;
    if (s) {
      double most = copse_test_lp_allreduce_time(t, false) * (1 + copse_q_to_double(within[_i]));
      ck_assert(copse_q_to_double(s->time_per_GB) <= most * (1 + 1e-9));
      const char *defect = copse_test_schedule_defect(s, t);
      ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
      ASSERT_OK(verify(s, t, &report, &err), &err);
      rounded += s->bound.kind == COPSE_BOUND_FORESTS && !report.forests_optimal;
    }
    copse_schedule_free(s);
    copse_topology_free(t);
  }
  ck_assert_int_eq(rounded > 0, _i > 0); /* 64 units for a rank are too few for the first one */
}
END_TEST

/* Boxes of 8 GPUs, 300 GB/s to a switch and 25 to a NIC, every cable up to 3 % slower than that. */
static struct copse_topology *measured_boxes(int hosts) {
  struct copse_text text = {0};
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = 1;
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"measured\", \"nodes\": [");
  for (int g = 0; g < 8 * hosts; g++)
    copse_text_add(&text, "{\"id\": \"g%d\", \"type\": \"gpu\"}, ", g);
  for (int h = 0; h < hosts; h++)
    copse_text_add(&text, "{\"id\": \"s%d\", \"type\": \"switch\"}, ", h);
  copse_text_add(&text, "{\"id\": \"ib\", \"type\": \"switch\"}], \"links\": [");
  for (int g = 0; g < 8 * hosts; g++)
    copse_text_add(&text,
                   "%s{\"src\": \"g%d\", \"dst\": \"s%d\", \"bandwidth\": %d.%02d}, {\"src\": "
                   "\"g%d\", \"dst\": \"ib\", \"bandwidth\": 24.%02d}",
                   g > 0 ? ", " : "", g, g / 8, copse_test_random_int(&state, 291, 299),
                   copse_test_random_int(&state, 0, 99), g, copse_test_random_int(&state, 25, 99));
  copse_text_add(&text, "]}");
  ASSERT_OK(copse_topology_parse("measured", text.data, text.size, NULL, &t, &err), &err);
  copse_text_free(&text);
  return t;
}

/* Speeds that differ by 3 % make many and high trees of an exact optimum; 1 % is enough for few. */
START_TEST(measured_bandwidths_make_few_trees_within_a_tolerance) {
  struct copse_topology *t = measured_boxes(_i);
  struct copse_solve_options near = allreduce();
  near.tolerance = COPSE_NEAR_OPTIMUM;
  struct copse_schedule *exact = copse_test_solve_as(t, allreduce()),
                        *few = copse_test_solve_as(t, near);
  double loss = copse_q_to_double(few->time_per_GB) / copse_q_to_double(exact->time_per_GB) - 1;
  ck_assert(loss >= 0 && loss <= 0.01);
  ck_assert_int_le(4 * few->n_trees, 3 * exact->n_trees);
  ck_assert_int_le(copse_schedule_height(few), 4);
  ck_assert_int_lt(copse_schedule_height(few), copse_schedule_height(exact));
  const char *defect = copse_test_schedule_defect(few, t);
  ck_assert_msg(defect == NULL, "%s", defect);
  copse_schedule_free(exact);
  copse_schedule_free(few);
  copse_topology_free(t);
}
END_TEST

START_TEST(the_optimum_is_that_of_the_lp_over_all_cuts) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    uint64_t state = 9000 + seed;
    struct copse_topology *t = copse_test_random_topology(&state, &tiny);
    char what[40];
    snprintf(what, sizeof what, "seed %d", 9000 + (int)seed);
    if (t->n_ranks > 1 && t->n_nodes <= 9) check_fabric(t, true, what);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(bound_only_finds_the_same_time) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    uint64_t state = 300 + seed;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_solve_options options = allreduce();
    struct copse_schedule *full = copse_test_solve_as(t, options);
    options.bound_only = true;
    struct copse_schedule *bound = copse_test_solve_as(t, options);
    /* equal shares run together may be faster than in turn, which only trees show */
    ck_assert_int_ge(copse_q_cmp(bound->time_per_GB, full->time_per_GB), 0);
    ck_assert(copse_q_eq(bound->time_per_GB, bound->bound.time_per_GB));
    if (full->bound.kind == COPSE_BOUND_FORESTS)
      ck_assert(copse_q_eq(bound->time_per_GB, full->time_per_GB));
    ck_assert_int_eq(bound->n_trees, 0);
    copse_schedule_free(full);
    copse_schedule_free(bound);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(the_certificate_survives_its_file) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    uint64_t state = 700 + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_schedule *s = copse_test_solve_as(t, allreduce()), *again = NULL;
    struct copse_verify_report report;
    char *one, *two;
    size_t size;
    ASSERT_OK(copse_schedule_to_json(s, &one, &size, &err), &err);
    ASSERT_OK(copse_schedule_parse("s.json", one, size, &again, &err), &err);
    ASSERT_OK(copse_schedule_to_json(again, &two, &size, &err), &err);
    ck_assert_str_eq(one, two);
    ASSERT_OK(verify(again, t, &report, &err), &err);
    free(one);
    free(two);
    copse_schedule_free(s);
    copse_schedule_free(again);
    copse_topology_free(t);
  }
}
END_TEST

/* ---- symmetries ------------------------------------------------------------------------ */

static struct copse_topology *broken(struct copse_topology *whole, struct copse_fault fault) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_break(whole, "test.json", &fault, 1, &t, &err), &err);
  copse_topology_free(whole);
  return t;
}

static void name_nic(char *name, size_t size, uint64_t *state, int hosts, int gpus) {
  snprintf(name, size, "h%d.nic%d", copse_test_random_int(state, 0, hosts - 1),
           copse_test_random_int(state, 0, gpus - 1));
}

/* Hosts that are alike, but for one or two NICs. */
static struct copse_topology *uneven_hosts(uint64_t seed) {
  uint64_t state = seed;
  int hosts = copse_test_random_int(&state, 2, 4), gpus = copse_test_random_int(&state, 1, 2);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  char line[80], name[24];
  snprintf(line, sizeof line, "hosts:%d gpus:%d@%d nics:%d@%d%s", hosts, gpus,
           copse_test_random_int(&state, 1, 30), gpus, copse_test_random_int(&state, 1, 10),
           copse_test_random_int(&state, 0, 1) ? " rails" : "");
  ASSERT_OK(copse_topology_synthetic(line, NULL, &t, &err), &err);
  for (int i = copse_test_random_int(&state, 1, 2); i > 0; i--) {
    name_nic(name, sizeof name, &state, hosts, gpus);
    t = broken(t, (struct copse_fault){name, {copse_test_random_int(&state, 1, 3), 4}});
  }
  return t;
}

/* One programme has a column for each link, the other one for all that are alike. */
START_TEST(symmetries_leave_the_optimum_as_it_is) {
  int forests = 0;
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 40u : 15u); seed++) {
    struct copse_topology *t = uneven_hosts(40 * (uint64_t)_i + seed);
    struct copse_solve_options options = allreduce();
    char what[40];
    snprintf(what, sizeof what, "seed %d", 40 * _i + (int)seed);
    forests += check_fabric(t, false, what);
    options.bound_only = true;
    struct copse_schedule *one = copse_test_solve_as(t, options);
    options.no_symmetry = true;
    struct copse_schedule *other = copse_test_solve_as(t, options);
    ck_assert_msg(copse_q_eq(one->time_per_GB, other->time_per_GB), "%s", what);
    copse_schedule_free(one);
    copse_schedule_free(other);
    copse_topology_free(t);
  }
  ck_assert_int_gt(forests, COPSE_TEST_SWEEPS ? 5 : 3);
}
END_TEST

/* Hosts with a NIC per GPU, one NIC at half: cuts around every host, images of a few. Each phase
 * takes (hosts - 1) / (bandwidth of all NICs): the parts that leave hosts, at no host in more time
 * than at others. Of 16 hosts the programme with all links as columns has the same optimum. */
START_TEST(images_of_cuts_are_a_proof_of_a_large_fabric) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t = NULL;
  const struct copse_q time =
      COPSE_TEST_SWEEPS ? (struct copse_q){4, 425} : (struct copse_q){4, 225};
  const char *fabric = COPSE_TEST_SWEEPS ? "hosts:16 gpus:8@300 nics:8@25 rails"
                                         : "hosts:8 gpus:4@300 nics:4@25 rails";
  ASSERT_OK(copse_topology_synthetic(fabric, NULL, &t, &err), &err);
  t = broken(t, (struct copse_fault){"h0.nic3", {1, 2}});
  struct copse_solve_options options = allreduce();
  options.bound_only = true;
  struct copse_schedule *s = copse_test_solve_as(t, options);
  ck_assert(copse_q_eq(s->time_per_GB, time));
  ck_assert_int_eq(s->bound.kind, COPSE_BOUND_FORESTS);
  ck_assert_int_gt(s->bound.n_cuts, COPSE_TEST_SWEEPS ? 20 : 10);
  copse_schedule_free(s);
  options.bound_only = false;
  s = copse_test_solve_as(t, options);
  ASSERT_OK(verify(s, t, &report, &err), &err);
  ck_assert(report.forests_optimal);
  ck_assert(copse_q_eq(s->time_per_GB, time));
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* ---- what is not tried ----------------------------------------------------------------- */

static void keep_note(void *ctx, const char *text) {
  ck_assert_str_eq(ctx, "");
  snprintf(ctx, 300, "%s", text);
}

static void expect_note(const struct copse_topology *t, bool bound_only, const char *text) {
  char note[300] = "";
  const struct copse_notes notes = {keep_note, note};
  struct copse_solve_options options = allreduce();
  options.notes = &notes;
  options.bound_only = bound_only;
  struct copse_schedule *s = copse_test_solve_as(t, options);
  ck_assert_msg(text[0] ? strstr(note, text) != NULL : note[0] == 0, "'%s'", note);
  /* a time that is known to be possible is not left out of what is claimed */
  if (text[0] && strstr(note, "would take"))
    ck_assert(s->bound.kind == COPSE_BOUND_FORESTS &&
              copse_q_cmp(s->bound.time_per_GB, s->time_per_GB) < 0);
  copse_schedule_free(s);
}

START_TEST(trees_of_more_ranks_keep_equal_shares_and_say_so) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_synthetic("hosts:129 gpus:2@90 nics:2@25 rails", NULL, &t, &err), &err);
  expect_note(t, !COPSE_TEST_SWEEPS, "");
  t = broken(t, (struct copse_fault){"h0.nic1", {1, 2}});
  expect_note(t, true, "");
  expect_note(t, false, "s/GB, but trees of them are not listed for so many ranks");
  copse_topology_free(t);
}
END_TEST

/* A mesh of 56 ranks without any symmetry: 3,080 links. */
START_TEST(what_is_too_large_without_symmetries_is_said) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  uint64_t state = 5;
  size_t size = 300000, at;
  char *json = calloc(size, 1);
  ck_assert_ptr_nonnull(json);
  at = (size_t)snprintf(json, size,
                        "{\"format\": \"copse-topology/1\", \"name\": \"mesh\", "
                        "\"nodes\": [");
  for (int v = 0; v < 56; v++)
    at += (size_t)snprintf(json + at, size - at, "%s{\"id\": \"g%d\", \"type\": \"gpu\"}",
                           v ? ", " : "", v);
  at += (size_t)snprintf(json + at, size - at, "], \"links\": [");
  for (int v = 0; v < 56; v++)
    for (int w = 0; w < v; w++)
      at += (size_t)snprintf(json + at, size - at,
                             "%s{\"src\": \"g%d\", \"dst\": \"g%d\", \"bandwidth\": %d}",
                             v > 1 || w ? ", " : "", v, w, copse_test_random_int(&state, 5, 9));
  snprintf(json + at, size - at, "]}");
  ASSERT_OK(copse_topology_parse("mesh.json", json, strlen(json), NULL, &t, &err), &err);
  expect_note(t, true, "too many ranks and links are of different kinds");
  copse_topology_free(t);
  free(json);
}
END_TEST

/* ---- damaged certificates -------------------------------------------------------------- */

/* A copy of the bound that may be written to. */
struct damaged {
  struct copse_schedule_cut cuts[64];
  struct copse_schedule_potential potentials[64];
  int nodes[64];
};

static bool damage(struct copse_bound *b, struct damaged *d, int kind,
                   const struct copse_topology *t, uint64_t *state) {
  int i = copse_test_random_int(state, 0, b->n_cuts - 1);
  struct copse_schedule_cut *cut = &d->cuts[i];
  switch (kind) {
    case 0: cut->weight.den *= 2; return cut->weight.num % 2 != 0; /* stays in lowest terms */
    case 1: cut->weight.num *= -1; return true;
    case 2:
      cut->phase = cut->phase == COPSE_PHASE_REDUCE ? COPSE_PHASE_BROADCAST : COPSE_PHASE_REDUCE;
      return true;
    case 3: d->cuts[i] = d->cuts[--b->n_cuts]; return true;
    case 4: cut->n_nodes--; return true;
    case 5:
      memcpy(d->nodes, cut->nodes, (size_t)cut->n_nodes * sizeof(int));
      d->nodes[cut->n_nodes] = d->nodes[0];
      cut->nodes = d->nodes;
      cut->n_nodes++;
      return true;
    case 6:
      d->potentials[b->n_potentials++] =
          (struct copse_schedule_potential){t->rank_nodes[0], {1, 7}};
      return true;
    default:
      if (b->n_potentials == 0) return false;
      d->potentials[copse_test_random_int(state, 0, b->n_potentials - 1)].value.num += 1;
      return false; /* may not be in lowest terms: the judge decides */
  }
}

/* Adds to `tried` where the damage is certain and to `refused` where the verifier says so. */
static void damage_and_judge(struct copse_schedule *s, const struct copse_topology *t, int kind,
                             uint64_t seed, int *tried, int *refused) {
  const struct copse_bound whole = s->bound;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct damaged d;
  uint64_t state = seed;
  memcpy(d.cuts, whole.cuts, (size_t)whole.n_cuts * sizeof *d.cuts);
  memcpy(d.potentials, whole.potentials, (size_t)whole.n_potentials * sizeof *d.potentials);
  s->bound.cuts = d.cuts;
  s->bound.potentials = d.potentials;
  if (damage(&s->bound, &d, kind, t, &state)) {
    const char *defect = copse_test_schedule_defect(s, t);
    copse_status status = verify(s, t, &report, &err);
    ck_assert_msg((defect == NULL) == (status == COPSE_OK), "seed %d: judge '%s', verifier '%s'",
                  (int)seed, defect ? defect : "good", err.text);
    ++*tried;
    *refused += status == COPSE_REFUTED;
  }
  s->bound = whole;
}

/* The verifier and the judge agree on damaged bounds; most of them are wrong. Seven damages to each
 * schedule. */
START_TEST(a_damaged_certificate_is_refused) {
  int refused = 0, tried = 0;
  for (uint64_t first = 0; first < (COPSE_TEST_SWEEPS ? 400u : 140u); first += 7) {
    uint64_t state = first / 7;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_schedule *s = copse_test_solve_as(t, allreduce());
    bool fits = s->bound.n_cuts < 60 && t->n_nodes < 60;
    for (uint64_t seed = first; seed < first + 7; seed++)
      if (fits && s->bound.kind == COPSE_BOUND_FORESTS)
        damage_and_judge(s, t, _i, seed, &tried, &refused);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
  ck_assert_int_gt(tried, 5);
  ck_assert_int_gt(2 * refused, tried);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/free_shares");
  TCase *tests = tcase_create("free_shares");
  tcase_add_test(tests, the_well_connected_rank_takes_the_larger_share);
  tcase_add_test(tests, bandwidths_of_any_ratio_are_solved_exactly);
  tcase_add_test(tests, where_equal_shares_are_as_good_they_stay);
  tcase_add_loop_test(tests, a_tolerance_is_kept_where_shares_are_unequal, 0, 3);
  tcase_add_loop_test(tests, measured_bandwidths_make_few_trees_within_a_tolerance, 2, 4);
  tcase_add_test(tests, the_optimum_is_that_of_the_lp_over_all_cuts);
  tcase_add_test(tests, bound_only_finds_the_same_time);
  tcase_add_test(tests, the_certificate_survives_its_file);
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, what_is_too_large_without_symmetries_is_said);
  tcase_add_loop_test(tests, a_damaged_certificate_is_refused, 0, 7);
  suite_add_tcase(suite, tests);
  TCase *plain = copse_test_plain(suite, 300);
  tcase_add_loop_test(plain, the_optimum_is_that_of_the_lp_over_flows, 0, COPSE_TEST_UP_TO(3, 1));
  tcase_add_loop_test(plain, symmetries_leave_the_optimum_as_it_is, 0, COPSE_TEST_UP_TO(3, 1));
  if (COPSE_TEST_RESULTS) { /* large fabrics */
    tcase_add_test(plain, shares_are_as_even_as_the_optimum_allows);
    tcase_add_test(plain, images_of_cuts_are_a_proof_of_a_large_fabric);
    tcase_add_test(plain, trees_of_more_ranks_keep_equal_shares_and_say_so);
  }
  return copse_test_run(suite);
}
