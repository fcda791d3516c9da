/* Expert placement against all placements, all-to-all optima and hand-made cuts; traces. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/placement/place.h"
#include "schedule/solve/solve.h"
#include "support/support.h"

/* ---- small problems, all placements ------------------------------------------------------------
 */

#define MAX_R 4
#define MAX_E 6
#define MAX_S 3

struct small {
  struct copse_place_problem p;
  struct copse_place_group groups[2 * MAX_R];
  int members[2 * MAX_R][MAX_R];
  int64_t counts[MAX_S * MAX_R * MAX_E];
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* From the definition: the demand matrix of each step, then each group's edge, both ways. */
static int64_t time_by_definition(const struct small *s, const int *rank_of) {
  int64_t sum = 0;
  for (int step = 0; step < s->p.n_steps; step++)
    for (int combine = 0; combine < 2; combine++) {
      int64_t demand[MAX_R][MAX_R] = {{0}}, worst = 0;
      for (int r = 0; r < s->p.n_ranks; r++)
        for (int e = 0; e < s->p.n_experts; e++) {
          int64_t n = s->counts[(step * s->p.n_ranks + r) * s->p.n_experts + e];
          if (combine)
            demand[rank_of[e]][r] += n;
          else
            demand[r][rank_of[e]] += n;
        }
      for (int g = 0; g < s->p.n_groups; g++) {
        bool inside[MAX_R] = {false};
        int64_t leaving = 0, entering = 0;
        for (int i = 0; i < s->groups[g].n_members; i++) inside[s->groups[g].members[i]] = true;
        for (int a = 0; a < s->p.n_ranks; a++)
          for (int b = 0; b < s->p.n_ranks; b++) {
            if (inside[a] && !inside[b]) leaving += demand[a][b];
            if (!inside[a] && inside[b]) entering += demand[a][b];
          }
        worst =
            larger(worst, larger(leaving * s->groups[g].out_cost, entering * s->groups[g].in_cost));
      }
      sum += worst;
    }
  return sum;
}

static bool next_placement(const struct small *s, int *rank_of) {
  for (int e = 0; e < s->p.n_experts; e++) {
    if (++rank_of[e] < s->p.n_ranks) return true;
    rank_of[e] = 0;
  }
  return false;
}

static bool fits(const struct small *s, const int *rank_of) {
  int held[MAX_R] = {0};
  for (int e = 0; e < s->p.n_experts; e++)
    if (++held[rank_of[e]] > s->p.capacity) return false;
  return true;
}

static int64_t best_of_all(const struct small *s) {
  int rank_of[MAX_E] = {0};
  int64_t best = INT64_MAX;
  do {
    int64_t t = fits(s, rank_of) ? time_by_definition(s, rank_of) : INT64_MAX;
    if (t < best) best = t;
  } while (next_placement(s, rank_of));
  return best;
}

/* One group per rank, and now and then some of two or three ranks. */
static void make_small(struct small *s, uint64_t *state) {
  memset(s, 0, sizeof *s);
  s->p.n_ranks = copse_test_random_int(state, 1, MAX_R);
  s->p.n_experts = copse_test_random_int(state, 1, MAX_E);
  s->p.n_steps = copse_test_random_int(state, 1, MAX_S);
  int least = (s->p.n_experts + s->p.n_ranks - 1) / s->p.n_ranks;
  s->p.capacity = copse_test_random_int(state, least, least + 2);
  bool both_alike = copse_test_random_int(state, 0, 1) == 0;
  int large = copse_test_random_int(state, 0, 1) ? 100000 : 9;
  for (int i = 0; i < s->p.n_steps * s->p.n_ranks * s->p.n_experts; i++)
    s->counts[i] = copse_test_random_int(state, 0, 2) ? copse_test_random_int(state, 0, large) : 0;
  int extra = copse_test_random_int(state, 0, 3);
  for (int g = 0; g < s->p.n_ranks + extra && s->p.n_ranks > 1; g++) {
    struct copse_place_group *group = &s->groups[s->p.n_groups];
    int first = copse_test_random_int(state, 0, s->p.n_ranks - 1);
    int n = g < s->p.n_ranks ? 1 : copse_test_random_int(state, 1, s->p.n_ranks - 1);
    for (int i = 0; i < n; i++)
      s->members[g][i] = g < s->p.n_ranks ? g : (first + i) % s->p.n_ranks;
    group->members = s->members[g];
    group->n_members = n;
    group->out_cost = copse_test_random_int(state, 1, 7);
    group->in_cost = both_alike ? group->out_cost : copse_test_random_int(state, 1, 7);
    s->p.n_groups++;
  }
  s->p.counts = s->counts;
  s->p.groups = s->groups;
}

START_TEST(small_problems_are_solved_as_well_as_by_trying_all_placements) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_placement found;
    struct small s;
    make_small(&s, &state);
    ASSERT_OK(copse_place_solve(&s.p, &found, &err), &err);
    int64_t best = best_of_all(&s), time;
    ck_assert(fits(&s, found.rank_of));
    ck_assert_int_eq(found.time, time_by_definition(&s, found.rank_of));
    ASSERT_OK(copse_place_time(&s.p, found.rank_of, &time, &err), &err);
    ck_assert_int_eq(found.time, time);
    ck_assert_msg(found.time == best, "seed %d: %lld found, %lld is best", (int)seed,
                  (long long)found.time, (long long)best);
    ck_assert_msg(found.root_bound <= best, "seed %d: bound %lld above the best %lld", (int)seed,
                  (long long)found.root_bound, (long long)best);
    ck_assert_int_le(found.bound, best);
    ck_assert_msg(found.proof != COPSE_PLACE_GAP, "seed %d: not proved", (int)seed);
    ck_assert_int_ge(found.default_time, found.time);
    free(found.rank_of);
  }
}
END_TEST

START_TEST(every_placement_takes_what_the_definition_says) {
  for (uint64_t seed = 1000; seed < 1100; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct small s;
    int rank_of[MAX_E];
    int64_t time;
    make_small(&s, &state);
    s.p.capacity = s.p.n_experts;
    for (int e = 0; e < s.p.n_experts; e++)
      rank_of[e] = copse_test_random_int(&state, 0, s.p.n_ranks - 1);
    ASSERT_OK(copse_place_time(&s.p, rank_of, &time, &err), &err);
    ck_assert_int_eq(time, time_by_definition(&s, rank_of));
  }
}
END_TEST

START_TEST(nonsense_is_refused) {
  uint64_t state = 7;
  struct small s;
  struct copse_placement found;
  int64_t time;
  int rank_of[MAX_E] = {0};
  do make_small(&s, &state);
  while (s.p.n_ranks < 3 || s.p.n_experts < 4);
#define REFUSED(change, status, part)                                        \
  do {                                                                       \
    struct small saved = s;                                                  \
    struct copse_err err = COPSE_ERR_INIT;                                   \
    change;                                                                  \
    ASSERT_FAILS(copse_place_solve(&s.p, &found, &err), status, &err, part); \
    ck_assert_ptr_null(found.rank_of);                                       \
    s = saved;                                                               \
  } while (0)
  REFUSED(s.p.capacity = 1, COPSE_INVALID, "don't fit");
  REFUSED(s.p.n_steps = 0, COPSE_INVALID, "positive");
  REFUSED(s.p.n_steps = INT32_MAX, COPSE_INVALID, "too much");
  REFUSED(s.counts[0] = -1, COPSE_INVALID, "negative");
  REFUSED(s.counts[0] = INT64_MAX, COPSE_OVERFLOW, "60 bits");
  REFUSED(s.groups[0].in_cost = -1, COPSE_INVALID, "negative");
  REFUSED(s.members[0][0] = 9, COPSE_INVALID, "group");
#undef REFUSED
  struct copse_err err = COPSE_ERR_INIT;
  rank_of[0] = 99;
  ASSERT_FAILS(copse_place_time(&s.p, rank_of, &time, &err), COPSE_INVALID, &err, "no rank");
}
END_TEST

/* ---- on topologies ------------------------------------------------------------------------------
 */

/* `hosts` hosts of `gpus` GPUs: 100 GB/s to the host's switch, a NIC of 10 GB/s per GPU to one
 * switch. One host: the switch alone. The caller frees it. */
static char *hosts_json(int hosts, int gpus) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  fprintf(f, "{\"format\": \"copse-topology/1\", \"name\": \"hosts\", \"nodes\": [");
  for (int h = 0; h < hosts; h++) {
    fprintf(f, "{\"id\": \"h%d.sw\", \"type\": \"nvswitch\"},", h);
    for (int g = 0; g < gpus; g++) fprintf(f, "{\"id\": \"h%d.gpu%d\", \"type\": \"gpu\"},", h, g);
  }
  fprintf(f, "{\"id\": \"top\", \"type\": \"switch\"}], \"links\": [");
  for (int h = 0; h < hosts; h++)
    for (int g = 0; g < gpus; g++) {
      fprintf(f, "%s{\"src\": \"h%d.gpu%d\", \"dst\": \"h%d.sw\", \"bandwidth\": 100}",
              h + g > 0 ? "," : "", h, g, h);
      if (hosts > 1)
        fprintf(f, ",{\"src\": \"h%d.gpu%d\", \"dst\": \"top\", \"bandwidth\": 10}", h, g);
    }
  fprintf(f, "]}");
  fclose(f);
  return text;
}

static struct copse_topology *parse_topology(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_parse("t.json", text, strlen(text), NULL, &t, &err), &err);
  return t;
}

static struct copse_topology *hosts_topology(int hosts, int gpus) {
  char *text = hosts_json(hosts, gpus);
  struct copse_topology *t = parse_topology(text);
  free(text);
  return t;
}

START_TEST(cuts_are_ranks_and_hosts_with_their_bandwidth) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = hosts_topology(2, 3);
  struct copse_place_cuts cuts;
  double unit;
  ASSERT_OK(copse_place_cuts_find(t, 1000, &cuts, &unit, &err), &err);
  ck_assert_int_eq(cuts.n_cuts, 8);
  for (int i = 0; i < 8; i++) {
    bool rank = i < 6;
    ck_assert_int_eq(cuts.groups[i].n_members, rank ? 1 : 3);
    ck_assert_int_eq(cuts.out[i].num, rank ? 110 : 30);
    ck_assert_int_eq(cuts.in[i].num, rank ? 110 : 30);
    /* 1 byte over 30 GB/s takes 1/30 ns */
    ck_assert_double_eq_tol((double)cuts.groups[i].out_cost * unit, 1e-3 / (rank ? 110 : 30),
                            1e-15);
  }
  copse_place_cuts_free(&cuts);
  copse_topology_free(t);
}
END_TEST

START_TEST(costs_without_a_common_denominator_are_rounded_down) {
  static const char text[] =
      "{\"format\": \"copse-topology/1\", \"name\": \"odd\", \"nodes\": [{\"id\": \"a\", \"type\": "
      "\"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"}, {\"id\": "
      "\"s\", \"type\": \"switch\"}], \"links\": [{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": "
      "100000007}, {\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": 100000037}, {\"src\": \"c\", "
      "\"dst\": \"s\", \"bandwidth\": 100000039}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = parse_topology(text);
  struct copse_place_cuts cuts;
  double unit;
  ASSERT_OK(copse_place_cuts_find(t, 1000, &cuts, &unit, &err), &err);
  for (int i = 0; i < cuts.n_cuts; i++) {
    double time = (double)cuts.groups[i].out_cost * unit;
    double right = 1e-3 / copse_q_to_double(cuts.out[i]);
    ck_assert_double_le(time, right * (1 + 1e-14));
    ck_assert_double_ge(time, right * (1 - 1e-8));
  }
  copse_place_cuts_free(&cuts);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_rank_that_cannot_be_reached_is_named) {
  static const char text[] =
      "{\"format\": \"copse-topology/1\", \"name\": \"way\", \"nodes\": [{\"id\": \"a\", \"type\": "
      "\"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}], \"links\": [{\"src\": \"a\", \"dst\": \"b\", "
      "\"bandwidth\": 1, \"duplex\": false}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = parse_topology(text);
  struct copse_place_cuts cuts;
  double unit;
  ASSERT_FAILS(copse_place_cuts_find(t, 1, &cuts, &unit, &err), COPSE_INFEASIBLE, &err, "'a'");
  copse_place_cuts_free(&cuts);
  copse_topology_free(t);
}
END_TEST

/* Seconds per byte of M times M: the exact optimum of a demand, in microseconds. */
static double optimum_us(const struct copse_topology *t, const int64_t *demand) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s = NULL;
  int64_t m = 0, any = 0;
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .demand = demand, .bound_only = true, .label = "t"};
  for (int i = 0; i < t->n_ranks; i++) {
    int64_t row = 0;
    for (int j = 0; j < t->n_ranks; j++) {
      row += demand[i * t->n_ranks + j];
      if (i != j) any += demand[i * t->n_ranks + j];
    }
    if (row > m) m = row;
  }
  if (any == 0) return 0;
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  double us = copse_q_to_double(s->time_per_GB) * (double)m * 1e-3;
  copse_schedule_free(s);
  return us;
}

/* Dispatch and combine of a one-step trace under a placement, each at its exact optimum. */
static double both_optima(const struct copse_topology *t, const struct copse_trace *trace,
                          const int *rank_of) {
  int n = t->n_ranks;
  int64_t *there = calloc((size_t)(n * n), sizeof *there), *back = calloc((size_t)(n * n), 8);
  for (int r = 0; r < n; r++)
    for (int e = 0; e < trace->n_experts; e++) {
      int64_t bytes = trace->counts[r * trace->n_experts + e] * trace->token_bytes;
      there[r * n + rank_of[e]] += bytes;
      back[rank_of[e] * n + r] += bytes;
    }
  double sum = optimum_us(t, there) + optimum_us(t, back);
  free(there);
  free(back);
  return sum;
}

static void compare_with_optima(int hosts, int gpus, bool equal) {
  struct copse_topology *t = hosts_topology(hosts, gpus);
  for (uint64_t seed = 0; seed < 10; seed++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_trace trace;
    struct copse_place_report report;
    struct copse_trace_spec spec = {.n_ranks = t->n_ranks,
                                    .n_experts = 5,
                                    .n_steps = 1,
                                    .tokens = 50,
                                    .top_k = 1,
                                    .zipf = 1,
                                    .token_bytes = 1000,
                                    .seed = seed};
    struct copse_place_options options = {0};
    ASSERT_OK(copse_trace_generate(&spec, &trace, &err), &err);
    ASSERT_OK(copse_place_experts(t, &trace, &options, &report, &err), &err);
    double exact = both_optima(t, &trace, report.placement.rank_of);
    ck_assert_double_le(report.time_us, exact * (1 + 1e-9));
    if (equal) ck_assert_double_eq_tol(report.time_us, exact, 1e-9 * exact);
    copse_place_report_free(&report);
    copse_trace_free(&trace);
  }
  copse_topology_free(t);
}

START_TEST(predicted_times_are_exact_behind_one_switch) { compare_with_optima(1, 5, true); }
END_TEST
START_TEST(predicted_times_are_never_above_the_optimum) { compare_with_optima(2, 3, false); }
END_TEST

START_TEST(a_skewed_trace_gains_and_its_gap_is_small_and_results_repeat) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = hosts_topology(4, 4);
  struct copse_trace trace;
  struct copse_place_options options = {0};
  struct copse_trace_spec spec = {.n_ranks = 16,
                                  .n_experts = 32,
                                  .n_steps = 4,
                                  .tokens = 200,
                                  .top_k = 2,
                                  .zipf = 1,
                                  .token_bytes = 8192,
                                  .drift = 5,
                                  .seed = 3};
  struct copse_place_report first, second;
  char *text;
  size_t size;
  ASSERT_OK(copse_trace_generate(&spec, &trace, &err), &err);
  ASSERT_OK(copse_place_experts(t, &trace, &options, &first, &err), &err);
  ASSERT_OK(copse_place_experts(t, &trace, &options, &second, &err), &err);
  ck_assert_double_gt(first.default_us, 1.1 * first.time_us);
  ck_assert_double_le(first.bound_us, first.time_us);
  ck_assert_double_lt(first.time_us, 1.1 * first.bound_us);
  ck_assert_int_eq(first.placement.time, second.placement.time);
  ck_assert_int_eq(first.placement.bound, second.placement.bound);
  for (int e = 0; e < 32; e++)
    ck_assert_int_eq(first.placement.rank_of[e], second.placement.rank_of[e]);
  ASSERT_OK(copse_place_report_to_json(&first, t, &text, &size, &err), &err);
  ck_assert_ptr_nonnull(strstr(text, "\"h3.gpu3\": ["));
  free(text);
  copse_place_report_free(&first);
  copse_place_report_free(&second);
  copse_trace_free(&trace);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_wrong_capacity_or_trace_is_refused) {
  struct copse_topology *t = hosts_topology(1, 3);
  struct copse_trace trace;
  struct copse_place_report report;
  struct copse_place_options options = {.capacity = 1};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_trace_spec spec = {
      .n_ranks = 3, .n_experts = 4, .n_steps = 1, .tokens = 5, .top_k = 1, .token_bytes = 1};
  ASSERT_OK(copse_trace_generate(&spec, &trace, &err), &err);
  ASSERT_FAILS(copse_place_experts(t, &trace, &options, &report, &err), COPSE_INVALID, &err,
               "at least 2");
  copse_topology_free(t);
  t = hosts_topology(1, 4);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_place_experts(t, &trace, &options, &report, &err), COPSE_INVALID, &err,
               "3 ranks");
  copse_trace_free(&trace);
  copse_topology_free(t);
}
END_TEST

/* ---- traces
 * -------------------------------------------------------------------------------------- */

START_TEST(made_up_traces_repeat_read_back_and_are_skewed) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_trace_spec spec = {.n_ranks = 4,
                                  .n_experts = 16,
                                  .n_steps = 3,
                                  .tokens = 2000,
                                  .top_k = 2,
                                  .zipf = 1,
                                  .token_bytes = 64,
                                  .seed = 5,
                                  .locality = 20,
                                  .drift = 20};
  struct copse_trace a, b;
  char *text, *again;
  size_t size, again_size;
  ASSERT_OK(copse_trace_generate(&spec, &a, &err), &err);
  ASSERT_OK(copse_trace_to_json(&a, &text, &size, &err), &err);
  ASSERT_OK(copse_trace_parse("t.json", text, size, 4, 16, &b, &err), &err);
  ASSERT_OK(copse_trace_to_json(&b, &again, &again_size, &err), &err);
  ck_assert_str_eq(text, again);
  copse_trace_free(&b);
  ASSERT_OK(copse_trace_generate(&spec, &b, &err), &err);
  ck_assert_int_eq(memcmp(a.counts, b.counts, 3 * 4 * 16 * sizeof *a.counts), 0);
  for (int row = 0; row < 12; row++) {
    int64_t sum = 0;
    for (int e = 0; e < 16; e++) {
      sum += a.counts[row * 16 + e];
      ck_assert_int_le(a.counts[row * 16 + e], 2000); /* different experts for each token */
    }
    ck_assert_int_eq(sum, 2 * 2000);
  }
  copse_trace_free(&a);
  copse_trace_free(&b);
  free(text);
  free(again);
}
END_TEST

START_TEST(popularity_follows_the_exponent) {
  struct copse_err err = COPSE_ERR_INIT;
  for (int z = 0; z <= 2; z++) {
    struct copse_trace_spec spec = {.n_ranks = 1,
                                    .n_experts = 10,
                                    .n_steps = 1,
                                    .tokens = 100000,
                                    .top_k = 1,
                                    .zipf = z,
                                    .token_bytes = 1,
                                    .seed = 9};
    struct copse_trace t;
    double sum = 0, most = 0;
    ASSERT_OK(copse_trace_generate(&spec, &t, &err), &err);
    for (int e = 0; e < 10; e++) {
      sum += pow(e + 1, -z);
      if ((double)t.counts[e] > most) most = (double)t.counts[e];
    }
    ck_assert_double_eq_tol(most / 100000, 1 / sum, 0.01);
    copse_trace_free(&t);
  }
}
END_TEST

#define HEAD "{\"format\": \"copse-trace/1\",\n \"token_bytes\": 8,\n \"steps\": [\n"
static const struct {
  const char *text;
  int line;
  const char *part;
} bad_traces[] = {
    {"", 0, ""},
    {"{", 1, ""},
    {"7", 1, "must be an object"},
    {"{\"format\": \"copse-trace/2\"}", 1, "copse-trace/1"},
    {"{\"format\": \"copse-trace/1\", \"steps\": []}", 1, "token_bytes"},
    {"{\"format\": \"copse-trace/1\", \"token_bytes\": 0, \"steps\": []}", 1, "token_bytes"},
    {HEAD "]}", 1, "at least one step"},
    {HEAD "{\"counts\": []}]}", 4, "2 rows"},
    {HEAD "{\"counts\": 1}]}", 4, "must be an array"},
    {HEAD "{\"count\": []}]}", 4, "unknown key"},
    {HEAD "7]}", 4, "must be an object"},
    {HEAD "{\"counts\": [[], []]}]}", 4, "rows of numbers"},
    {HEAD "{\"counts\": [1, 2]}]}", 4, "rows of numbers"},
    {HEAD "{\"counts\": [[1, 2, 3]]}]}", 4, "2 rows"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2]]}]}", 5, "3 numbers"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2, -1]]}]}", 5, "integer"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2, 0.5]]}]}", 5, "integer"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2, 1e300]]}]}", 5, "integer"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2, \"3\"]]}]}", 4, "integer"},
    {HEAD "{\"counts\": [[1, 2, 3],\n[1, 2, NaN]]}]}", 5, ""},
    {HEAD "{\"counts\": [[1, 2, 3], [1, 2, 3]]},\n{\"counts\": [[1, 2, 3]]}]}", 5, "2 rows"},
    {HEAD "{\"counts\": [[0, 0, 0], [0, 0, 0]]}]}", 1, "zero"},
    {HEAD "{\"counts\": [[1, 2, 3], [1, 2, 3]]}], \"experts\": 4}", 4, "4 numbers"},
    {HEAD "{\"counts\": [[1, 2, 3], [1, 2, 3]]}], \"experts\": 2147483647}", 4, "too many"},
    {HEAD "{\"counts\": [[1, 2, 3], [1, 2, 3]]}], \"experts\": -1}", 4, "experts"},
};

START_TEST(bad_traces_are_refused_with_their_line) {
  for (size_t i = 0; i < sizeof bad_traces / sizeof *bad_traces; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_trace t;
    char place[40];
    ASSERT_FAILS(
        copse_trace_parse("t.json", bad_traces[i].text, strlen(bad_traces[i].text), 2, 0, &t, &err),
        COPSE_BAD_INPUT, &err, bad_traces[i].part);
    ck_assert_ptr_null(t.counts);
    snprintf(place, sizeof place, "t.json:%d:", bad_traces[i].line);
    if (bad_traces[i].line > 1)
      ck_assert_msg(strstr(err.text, place) != NULL, "case %zu: '%s' lacks '%s'", i, err.text,
                    place);
  }
}
END_TEST

START_TEST(a_trace_of_other_sizes_than_asked_is_refused) {
  static const char text[] = HEAD "{\"counts\": [[1, 2, 3], [1, 2, 3]]}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_trace t;
  ASSERT_OK(copse_trace_parse("t.json", text, strlen(text), 0, 0, &t, &err), &err);
  ck_assert(t.n_ranks == 2 && t.n_experts == 3 && t.n_steps == 1 && t.token_bytes == 8);
  copse_trace_free(&t);
  ASSERT_FAILS(copse_trace_parse("t.json", text, strlen(text), 2, 4, &t, &err), COPSE_BAD_INPUT,
               &err, "3 experts, not 4");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_trace_parse("t.json", text, strlen(text), 3, 0, &t, &err), COPSE_BAD_INPUT,
               &err, "3 rows");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/place");
  TCase *tc = tcase_create("place");
  tcase_add_test(tc, small_problems_are_solved_as_well_as_by_trying_all_placements);
  tcase_add_test(tc, every_placement_takes_what_the_definition_says);
  tcase_add_test(tc, nonsense_is_refused);
  tcase_add_test(tc, cuts_are_ranks_and_hosts_with_their_bandwidth);
  tcase_add_test(tc, costs_without_a_common_denominator_are_rounded_down);
  tcase_add_test(tc, a_rank_that_cannot_be_reached_is_named);
  tcase_add_test(tc, predicted_times_are_exact_behind_one_switch);
  tcase_add_test(tc, predicted_times_are_never_above_the_optimum);
  tcase_add_test(tc, a_skewed_trace_gains_and_its_gap_is_small_and_results_repeat);
  tcase_add_test(tc, a_wrong_capacity_or_trace_is_refused);
  tcase_add_test(tc, made_up_traces_repeat_read_back_and_are_skewed);
  tcase_add_test(tc, popularity_follows_the_exponent);
  tcase_add_test(tc, bad_traces_are_refused_with_their_line);
  tcase_add_test(tc, a_trace_of_other_sizes_than_asked_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
