/* Trees on the fabric's own routes: beside an LP over all such trees, on machines where plans would
 * make detours, and what the verifier refuses. */
#include "topology/route.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/predict.h"
#include "predict/propose.h"
#include "predict/sizes.h"
#include "schedule/images.h"
#include "schedule/solve/routes.h"
#include "support/fabric.h"
#include "support/oracle_trees.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "topology/modify.h"
#include "verify/verify.h"

static struct copse_schedule *solve(const struct copse_topology *t, copse_collective collective,
                                    struct copse_q tolerance) {
  bool rooted = collective == COPSE_BROADCAST || collective == COPSE_REDUCE;
  struct copse_solve_options options = {.collective = collective,
                                        .root = rooted ? 0 : -1,
                                        .on_routes = true,
                                        .tolerance = tolerance,
                                        .label = "test.json"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_solve_schedule(t, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

/* As a user gets it: from the file's text. */
static struct copse_schedule *read_back(const struct copse_schedule *schedule) {
  struct copse_schedule *back = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(schedule, &text, &size, &err), &err);
  ASSERT_OK(copse_schedule_parse("s.json", text, size, &back, &err), &err);
  free(text);
  return back;
}

static struct copse_verify_report verify(const struct copse_schedule *schedule,
                                         const struct copse_topology *t) {
  struct copse_schedule *back = read_back(schedule);
  struct copse_verify_report report;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_verify_schedule(back, t, "s.json", &report, &err), &err);
  ck_assert(report.on_routes);
  copse_schedule_free(back);
  return report;
}

static struct copse_topology *load(const char *path) {
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
  return t;
}

/* ---- the optimum ---------------------------------------------------------------------------- */

START_TEST(the_optimum_over_all_trees_of_such_edges_is_reached) {
  static const struct copse_test_random_options small = {3, 4, 3, true, true};
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                                 COPSE_ALLREDUCE};
  int slower = 0;
  for (int i = 0; i < COPSE_TEST_UP_TO(60, 6); i++) {
    uint64_t state = (uint64_t)i;
    struct copse_topology *t = copse_test_random_topology(&state, &small);
    copse_collective collective = collectives[i % 3];
    struct copse_schedule *s = solve(t, collective, COPSE_Q_ZERO);
    struct copse_verify_report report = verify(s, t);
    double expected = copse_test_routed_trees_time(t, collective);
    double time = copse_q_to_double(s->time_per_GB);
    ck_assert_msg(fabs(time / expected - 1) < 1e-7, "seed %d: %.12g, all trees %.12g", i, time,
                  expected);
    ck_assert_msg(report.routes_optimal, "seed %d: %s above %s", i, COPSE_Q_STRING(s->time_per_GB),
                  COPSE_Q_STRING(report.routes_bound));
    slower += copse_q_cmp(s->bound.time_per_GB, s->time_per_GB) < 0;
    copse_schedule_free(s);
    copse_topology_free(t);
  }
  ck_assert_int_gt(slower, COPSE_TEST_UP_TO(9, 0)); /* routes matter */
}
END_TEST

START_TEST(machines_have_known_optima) {
  static const struct {
    const char *topology;
    copse_collective collective;
    struct copse_q time;
  } cases[] = {{"dgx1-v100", COPSE_ALLGATHER, {7, 1200}}, {"dgx1-v100", COPSE_ALLREDUCE, {7, 600}},
               {"dgx1-v100", COPSE_BROADCAST, {1, 150}},  {"dgx1-v100", COPSE_REDUCE, {1, 150}},
               {"mi100-8", COPSE_BROADCAST, {1, 63}},     {"dgx2-x2", COPSE_ALLGATHER, {31, 5000}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[64];
    snprintf(path, sizeof path, "topologies/%s.json", cases[i].topology);
    struct copse_topology *t = load(path);
    struct copse_schedule *s = solve(t, cases[i].collective, COPSE_Q_ZERO);
    struct copse_verify_report report = verify(s, t);
    ck_assert_msg(copse_q_eq(s->time_per_GB, cases[i].time), "%s: %s", path,
                  COPSE_Q_STRING(s->time_per_GB));
    ck_assert(report.routes_optimal);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* The ratio of prices where it fits; else each beside the largest, 2^36, rounded down, by 128 bits
 * here. */
START_TEST(prices_become_whole_numbers) {
  static const struct copse_q fit[] = {{1, 3}, {0, 1}, {2, 5}, {4, 15}};
  /* of denominators that have no common multiple in 64 bits, and of too large a ratio */
  static const struct copse_q coarse[][3] = {
      {{7, 2147483629}, {1000003, 2147483647}, {999983, 2147483587}},
      {{1, INT64_C(1) << 40}, {1, 1}, {3, 4}}};
  int64_t whole[4], expected[3];
  copse_routes_whole_prices(fit, 4, whole);
  ck_assert(whole[0] == 5 && whole[1] == 0 && whole[2] == 6 && whole[3] == 4);
  for (int i = 0; i < 2; i++) {
    const struct copse_q *p = coarse[i], most = p[1];
    int64_t divisor = 0;
    for (int e = 0; e < 3; e++) {
      expected[e] = (int64_t)((__int128)p[e].num * most.den * (INT64_C(1) << 36) /
                              ((__int128)p[e].den * most.num));
      divisor = copse_gcd(divisor, expected[e]);
    }
    copse_routes_whole_prices(p, 3, whole);
    for (int e = 0; e < 3; e++) ck_assert_int_eq(whole[e], expected[e] / divisor);
  }
}
END_TEST

START_TEST(a_tolerance_makes_fewer_trees) {
  struct copse_topology *t = load("topologies/pcie-8-x2.json");
  struct copse_schedule *exact = solve(t, COPSE_ALLGATHER, COPSE_Q_ZERO);
  struct copse_schedule *near = solve(t, COPSE_ALLGATHER, (struct copse_q){1, 20});
  struct copse_verify_report report = verify(near, t);
  ck_assert(!report.routes_optimal);
  ck_assert_double_le(copse_q_to_double(near->time_per_GB),
                      1.05 * copse_q_to_double(exact->time_per_GB));
  ck_assert_int_lt(near->k, exact->k);
  copse_schedule_free(exact);
  copse_schedule_free(near);
  copse_topology_free(t);
}
END_TEST

START_TEST(many_ranks_are_refused_plainly) {
  struct copse_topology *t = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_options options = {
      .collective = COPSE_ALLGATHER, .root = -1, .on_routes = true, .label = "ring"};
  struct copse_solve_seconds seconds;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_synthetic("ring:65@50", NULL, &t, &err), &err);
  ASSERT_FAILS(copse_solve_schedule(t, &options, &schedule, &seconds, &err), COPSE_UNSUPPORTED,
               &err, "at most 64 ranks");
  copse_topology_free(t);
}
END_TEST

/* ---- plans ---------------------------------------------------------------------------------- */

static bool makes_detours(const struct copse_topology *t, const struct copse_schedule *schedule) {
  struct copse_prediction prediction;
  struct copse_err err = COPSE_ERR_INIT;
  char text[COPSE_DETOUR_TEXT];
  ASSERT_OK(copse_predict_schedule(t, schedule, NULL, &prediction, &err), &err);
  bool detours = copse_prediction_detour(&prediction, t, text);
  copse_prediction_free(&prediction);
  return detours;
}

static void check_plan(const char *path) {
  struct copse_topology *t = load(path);
  struct copse_schedule *routed = solve(t, COPSE_ALLREDUCE, COPSE_Q_ZERO);
  struct copse_solve_options options = {.collective = COPSE_ALLREDUCE, .root = -1};
  struct copse_schedule *any = copse_test_solve_as(t, options);
  const double bytes = 1 << 30;
  double us[2];
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert(makes_detours(t, any));
  ck_assert(!makes_detours(t, routed));
  ASSERT_OK(copse_predict(t, any, NULL, &bytes, 1, &us[0], &err), &err);
  ASSERT_OK(copse_predict(t, routed, NULL, &bytes, 1, &us[1], &err), &err);
  ck_assert_double_lt(us[1], us[0] / 1.3);
  ck_assert(verify(routed, t).routes_optimal);
  copse_schedule_free(routed);
  copse_schedule_free(any);
  copse_topology_free(t);
}

/* What is said beside a schedule of any paths is the optimum that trees on the routes have, and no plan
 * of either is faster. */
START_TEST(their_bound_is_said_where_it_is_more) {
  static const struct {
    const char *path;
    struct copse_q bound;
  } cases[] = {{"topologies/dgx1-v100.json", {7, 1200}}, {"topologies/a100-x2.json", {0, 1}}};
  const double bytes = 1 << 30;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_topology *t = load(cases[i].path);
    struct copse_solve_options options = {.collective = COPSE_ALLGATHER, .root = -1};
    struct copse_schedule *of[] = {solve(t, COPSE_ALLGATHER, COPSE_Q_ZERO),
                                   copse_test_solve_as(t, options)};
    for (int k = 0; k < 2; k++) {
      struct copse_prediction prediction;
      struct copse_q bound;
      struct copse_err err = COPSE_ERR_INIT;
      double us;
      ASSERT_OK(copse_predict_schedule(t, of[k], NULL, &prediction, &err), &err);
      ASSERT_OK(copse_bound_on_routes(t, of[k], prediction.runs_per_GB, &bound, &err), &err);
      ck_assert(copse_q_eq(bound, cases[i].bound));
      ASSERT_OK(copse_predict(t, of[k], NULL, &bytes, 1, &us, &err), &err);
      ck_assert_double_ge(us, 1e-3 * copse_q_to_double(bound) * bytes);
      copse_prediction_free(&prediction);
      copse_schedule_free(of[k]);
    }
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(their_plans_make_no_detours) { check_plan("topologies/dgx1-v100.json"); }
END_TEST

START_TEST(a_plan_that_lost_its_paths_is_mended) {
  static const char path[] = COPSE_TEST_OUTSIDE "/peers/cases/asymsw5043.json";
  FILE *file = fopen(path, "r");
  if (!file) COPSE_SKIP("%s is not here", path);
  fclose(file);
  check_plan(path);
}
END_TEST

static bool wants_routes(void *context, enum copse_proposal_kind kind, const char *name) {
  (void)context;
  (void)kind;
  return strncmp(name, "routes", strlen("routes")) == 0;
}

static bool wants_balanced(void *context, enum copse_proposal_kind kind, const char *name) {
  (void)context;
  (void)kind;
  return strncmp(name, "scatter, balanced", strlen("scatter, balanced")) == 0;
}

/* The first lasts until all are made: kept until then. */
struct offered {
  struct copse_schedule *list[4];
  int n;
};

static copse_status take(void *context, struct copse_schedule *schedule, const char *name,
                         struct copse_err *err) {
  struct offered *offered = context;
  (void)name;
  (void)err;
  ck_assert_int_lt(offered->n, 4);
  offered->list[offered->n++] = schedule;
  return COPSE_OK;
}

/* Has "optimal" and those on routes proposed, of a broadcast or reduction the scattered trees. */
static void propose(const struct copse_topology *t, copse_collective collective,
                    struct offered *offered) {
  const bool rooted = copse_collective_rooted(collective);
  struct copse_solve_options options = {.collective = collective, .root = rooted ? 0 : -1};
  struct copse_routes routes;
  struct copse_proposer proposer = {.topology = t,
                                    .solve = &options,
                                    .routes = &routes,
                                    .context = offered,
                                    .wants = rooted ? wants_balanced : wants_routes,
                                    .take = take};
  struct copse_solve_seconds seconds;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
  ASSERT_OK(copse_propose(&proposer, &seconds, &err), &err);
  copse_routes_free(&routes);
}

START_TEST(they_are_proposed_where_paths_differ) {
  static const char *const paths[] = {"topologies/dgx1-v100.json", "topologies/a100-x2.json"};
  for (int i = 0; i < 2; i++) {
    struct copse_topology *t = load(paths[i]);
    struct offered offered = {.n = 0};
    propose(t, COPSE_ALLGATHER, &offered);
    if (i == 0) ck_assert_int_ge(offered.n, 2);
    if (i == 0) ck_assert_ptr_nonnull(offered.list[1]->routes);
    if (i == 1) ck_assert_int_eq(offered.n, 1);
    for (int k = 0; k < offered.n; k++) copse_schedule_free(offered.list[k]);
    copse_topology_free(t);
  }
}
END_TEST

static void note_routes(void *tried, const char *text) {
  *(bool *)tried = *(bool *)tried || strncmp(text, "routes", 6) == 0;
}

static void ignore(void *tried, const char *phase, int64_t done, int64_t total) {
  (void)tried, (void)phase, (void)done, (void)total;
}

/* A search for a size tries them where what paths save there is more than a hop: not of a message
 * that all links carry in less. */
START_TEST(a_search_tries_them_where_they_may_save_a_hop) {
  for (int large = 0; large < 2; large++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = load("topologies/dgx1-v100.json");
    bool tried = false;
    const struct copse_progress progress = {.report = ignore, .ctx = &tried, .tried = note_routes};
    const struct copse_solve_options options = {
        .collective = COPSE_ALLGATHER, .root = -1, .progress = &progress};
    const struct copse_size_question question = {.solve = &options,
                                                 .predict = &copse_predict_defaults,
                                                 .bytes = large ? 64 << 20 : 16 << 10,
                                                 .work = 4e6};
    struct copse_size_answer answer;
    struct copse_solve_seconds seconds;
    ASSERT_OK(copse_solve_for_size(t, &question, &answer, &seconds, &err), &err);
    ck_assert_int_eq(tried, large);
    copse_schedule_free(answer.schedule);
    copse_topology_free(t);
  }
}
END_TEST

/* 16,384 routes, too many for the programme: the first one's trees are hung on them, and what their
 * plans' messages load is near the bound. */
START_TEST(trees_hung_on_routes_are_proposed_where_there_are_many) {
  struct copse_topology *t = load("topologies/perlmutter-x16.json");
  struct offered offered = {.n = 0};
  propose(t, COPSE_ALLGATHER, &offered);
  ck_assert_int_eq(offered.n, 3); /* the first one's, one copy, four */
  double bound = copse_q_to_double(offered.list[0]->bound.time_per_GB);
  for (int i = 0; i < offered.n; i++) {
    COPSE_AT_END(copse_prediction_free) struct copse_prediction it = {0};
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_predict_schedule(t, offered.list[i], NULL, &it, &err), &err);
    double runs = copse_q_to_double(it.runs_per_GB);
    ck_assert_msg(i == 0 ? runs > 1.3 * bound : runs < 1.1 * bound, "%d: %g of %g", i, runs, bound);
  }
  for (int i = 0; i < offered.n; i++) copse_schedule_free(offered.list[offered.n - 1 - i]);
  copse_topology_free(t);
}
END_TEST

/* Scattered trees load some links twice as much as others. Hung elsewhere no link takes longer than
 * the bound, at the same height; behind pods with less to the spine a hop or two more are needed.
 */
START_TEST(scattered_trees_are_proposed_balanced) {
  static const struct {
    const char *path;
    copse_collective collective;
    int n;
    double within;
  } cases[] = {{"topologies/azure-ndv5-x8.json", COPSE_BROADCAST, 2, 1},
               {"topologies/h100-x8-clos2.json", COPSE_REDUCE, 4, 1.1},
               {"topologies/h100-x8-clos2.json", COPSE_BROADCAST, 4, 1.1},
               {"topologies/h100-x8-clos7.json", COPSE_BROADCAST, 4, 1.1},
               {"topologies/h100-x8-clos7.json", COPSE_REDUCE, 4, 1.1}};
  for (int i = 0; i < COPSE_TEST_UP_TO(5, 1); i++) {
    struct copse_topology *t = load(cases[i].path);
    struct offered offered = {.n = 0};
    propose(t, cases[i].collective, &offered);
    double bound = copse_q_to_double(offered.list[0]->bound.time_per_GB);
    ck_assert_int_eq(offered.n, cases[i].n);
    for (int k = 1; k < offered.n; k++)
      ck_assert_int_le(copse_schedule_height(offered.list[k]), 3 + k);
    double time = copse_q_to_double(offered.list[offered.n - 1]->time_per_GB);
    ck_assert_msg(time <= cases[i].within * bound * (1 + 1e-9), "%d: %g, bound %g", i, time, bound);
    for (int k = 0; k < offered.n; k++) copse_schedule_free(offered.list[offered.n - 1 - k]);
    copse_topology_free(t);
  }
}
END_TEST

/* ---- trees hung on routes ------------------------------------------------------------------- */

/* Whether a path is one of those that are listed for its pair. */
static bool is_listed(const struct copse_routes *routes, const struct copse_schedule_edge *edge) {
  for (int way = 0; way < routes->ways; way++) {
    int n;
    const int *nodes = copse_route_way(routes, edge->src, edge->dst, way, &n);
    if (n == edge->n_path && memcmp(nodes, edge->path, (size_t)n * sizeof *nodes) == 0) return true;
  }
  return false;
}

/* Adds up, link by link, what trees take, in s per GB; each edge by its own path, or `first`: by
 * the first route of its pair. */
static double longest(const struct copse_topology *t, const struct copse_routes *routes,
                      const struct copse_schedule *s, bool first) {
  double *load = calloc((size_t)t->n_links, sizeof *load), most = 0;
  ck_assert_ptr_nonnull(load);
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++) {
      const struct copse_schedule_edge *edge = &s->trees[i].edges[e];
      int n = edge->n_path;
      const int *nodes = first ? copse_route(routes, edge->src, edge->dst, &n) : edge->path;
      for (int k = 0; k + 1 < n; k++)
        load[copse_topology_find_link(t, nodes[k], nodes[k + 1])] +=
            copse_q_to_double(s->trees[i].weight);
    }
  for (int e = 0; e < t->n_links; e++)
    most = fmax(most, load[e] / copse_q_to_double(t->links[e].bandwidth));
  free(load);
  return most;
}

START_TEST(hung_trees_keep_to_routes_and_load_links_less) {
  static const struct copse_test_random_options some = {5, 12, 5, true, true};
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                                 COPSE_ALLREDUCE, COPSE_BROADCAST};
  int less = 0, n = COPSE_TEST_UP_TO(80, 12);
  for (int i = 0; i < n; i++) {
    uint64_t state = (uint64_t)i + 100;
    struct copse_topology *t = copse_test_random_topology(&state, &some);
    struct copse_solve_options options = {
        .collective = collectives[i % 4], .root = i % 4 == 3 ? 0 : -1, .label = "test.json"};
    struct copse_solve_seconds seconds;
    struct copse_schedule *from = NULL, *hung = NULL;
    struct copse_routes routes;
    struct copse_err err = COPSE_ERR_INIT;
    bool made;
    ASSERT_OK(copse_solve_schedule(t, &options, &from, &seconds, &err), &err);
    ASSERT_OK(copse_plan_routes_find(t, &routes, &err), &err);
    ASSERT_OK(copse_schedule_borrow(from, &hung, &err), &err);
    ASSERT_OK(copse_hang_on_routes(t, &routes, from->bound.time_per_GB, 1 + i % 3, i % 2, from,
                                   hung, &made, &err),
              &err);
    if (made) {
      struct copse_verify_report report;
      double before = longest(t, &routes, from, true), after = longest(t, &routes, hung, false);
      for (int k = 0; k < hung->n_trees; k++)
        for (int e = 0; e < hung->trees[k].n_edges; e++)
          ck_assert(is_listed(&routes, &hung->trees[k].edges[e]));
      ck_assert_int_eq(hung->n_trees, from->n_trees * (1 + i % 3));
      ck_assert_int_le(copse_schedule_height(hung), copse_schedule_height(from) + i % 2);
      ASSERT_OK(copse_verify_schedule(hung, t, "test.json", &report, &err), &err);
      ck_assert_double_eq_tol(copse_q_to_double(hung->time_per_GB), after, 1e-9 * after);
      ck_assert_msg(after <= before * 1.0001, "%d: %g, before %g", i, after, before);
      less += after < before * 0.99;
    }
    copse_schedule_free(hung);
    copse_schedule_free(from);
    copse_routes_free(&routes);
    copse_topology_free(t);
  }
  ck_assert_int_ge(less, n / 8);
}
END_TEST

/* Where the bound of any trees is reached on routes no programme is needed, and trees are low. */
START_TEST(what_is_hung_is_proved_by_the_bounds_cuts) {
  static const struct {
    copse_collective collective;
    struct copse_q time;
  } cases[] = {{COPSE_ALLREDUCE, {3, 160}},
               {COPSE_ALLGATHER, {3, 320}},
               {COPSE_REDUCE_SCATTER, {3, 320}},
               {COPSE_BROADCAST, {1, 100}}};
  struct copse_topology *t = load("topologies/perlmutter-x16.json");
  for (int i = 0; i < COPSE_TEST_UP_TO(4, 1); i++) {
    struct copse_schedule *s = solve(t, cases[i].collective, COPSE_Q_ZERO);
    struct copse_verify_report report = verify(s, t);
    ck_assert(copse_q_eq(s->time_per_GB, cases[i].time));
    ck_assert(copse_q_eq(report.routes_bound, cases[i].time));
    ck_assert(report.routes_optimal);
    ck_assert_int_le(copse_schedule_height(s), 8); /* the programme's trees: 25 */
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* ---- what the verifier refuses -------------------------------------------------------------- */

enum damage { OTHER_PATH, BETTER_BOUND, NO_LINK, TWICE, NO_LENGTHS, LESS_LENGTH, N_DAMAGES };

/* gpu0 -> gpu3 has a link and a way over two switches. */
static const char square[] =
    "{\"format\": \"copse-topology/1\", \"name\": \"square\", \"nodes\": ["
    "{\"id\": \"g0\", \"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"},"
    "{\"id\": \"g2\", \"type\": \"gpu\"}, {\"id\": \"s\", \"type\": \"switch\"}],"
    "\"links\": [{\"src\": \"g0\", \"dst\": \"s\", \"bandwidth\": 30},"
    "{\"src\": \"g1\", \"dst\": \"s\", \"bandwidth\": 30},"
    "{\"src\": \"g2\", \"dst\": \"s\", \"bandwidth\": 30},"
    "{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 5}]}";

/* Moves the first edge between ranks 0 and 1 to the way over the switch; its time is made right. */
static bool move_edge(struct copse_schedule *s, const struct copse_topology *t) {
  static int path[3];
  path[0] = copse_topology_find(t, "g0");
  path[1] = copse_topology_find(t, "s");
  path[2] = copse_topology_find(t, "g1");
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++) {
      struct copse_schedule_edge *edge = (struct copse_schedule_edge *)&s->trees[i].edges[e];
      if (edge->src != 0 || edge->dst != 1) continue;
      edge->path = path;
      edge->n_path = 3;
      return true;
    }
  return false;
}

static void do_damage(struct copse_schedule *s, const struct copse_topology *t,
                      enum damage damage) {
  struct copse_schedule_routes *routes = (struct copse_schedule_routes *)s->routes;
  struct copse_schedule_length *lengths = (struct copse_schedule_length *)routes->lengths;
  ck_assert_int_gt(routes->n_lengths, 1);
  switch (damage) {
    case OTHER_PATH: ck_assert(move_edge(s, t)); break;
    case BETTER_BOUND: routes->time_per_GB = s->bound.time_per_GB; break;
    case NO_LINK: lengths[0].dst = lengths[0].src; break;
    case TWICE: lengths[1] = lengths[0]; break;
    case NO_LENGTHS: routes->n_lengths = 0; break;
    case LESS_LENGTH: lengths[0].length = (struct copse_q){lengths[0].length.num * 7, 3}; break;
    default: ck_abort();
  }
}

START_TEST(damage_is_refused) {
  static const char *const why[] = {"is not the fabric's route",
                                    "its certificate proves",
                                    "which is no link",
                                    "two lengths",
                                    "all lengths",
                                    "its certificate proves"};
  struct copse_topology *t = copse_test_topology(square);
  for (int damage = 0; damage < N_DAMAGES; damage++) {
    struct copse_schedule *s = solve(t, COPSE_ALLGATHER, COPSE_Q_ZERO);
    struct copse_verify_report report;
    struct copse_err err = COPSE_ERR_INIT;
    ck_assert(verify(s, t).routes_optimal);
    do_damage(s, t, (enum damage)damage);
    copse_status status = copse_verify_schedule(s, t, "s.json", &report, &err);
    if (damage == OTHER_PATH && strstr(err.text, "time_per_GB is")) { /* the load has moved too */
      struct copse_verify_report moved;
      s->time_per_GB = report.time_per_GB;
      err = (struct copse_err)COPSE_ERR_INIT;
      status = copse_verify_schedule(s, t, "s.json", &moved, &err);
    }
    ck_assert_msg(status == COPSE_REFUTED && strstr(err.text, why[damage]), "damage %d: %s", damage,
                  err.text);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* What the topology states is the route, whatever is shorter: as if the shorter link were not
 * there.
 */
START_TEST(a_stated_route_is_taken_for_the_shortest) {
  static const struct copse_fault link = {"g0>g1", {0, 1}};
  static const double bytes = 1 << 26;
  char text[sizeof square + 64];
  snprintf(text, sizeof text, "%.*s, \"routes\": [{\"path\": [\"g0\", \"s\", \"g1\"]}]}",
           (int)sizeof square - 2, square);
  struct copse_topology *t[] = {copse_test_topology(square), copse_test_topology(text), NULL};
  struct copse_schedule *s[3];
  struct copse_err err = COPSE_ERR_INIT;
  double us[3];
  ASSERT_OK(copse_topology_break(t[0], "t", &link, 1, &t[2], &err), &err);
  for (int i = 0; i < 3; i++) {
    s[i] = solve(t[i], COPSE_ALLGATHER, COPSE_Q_ZERO);
    ck_assert(verify(s[i], t[i]).routes_optimal);
  }
  ck_assert(copse_q_eq(s[1]->time_per_GB, s[2]->time_per_GB));
  ck_assert(!copse_q_eq(s[1]->time_per_GB, s[0]->time_per_GB));
  for (int i = 0; i < 3; i++) /* one schedule, as a plan on each */
    ASSERT_OK(copse_predict(t[i], s[2], NULL, &bytes, 1, &us[i], &err), &err);
  ck_assert_double_eq_tol(us[1], us[2], 1e-6);
  ck_assert_double_gt(us[0], 1.5 * us[1]);
  struct copse_verify_report report; /* the former one's path is none any more */
  ck_assert_int_eq(copse_verify_schedule(s[0], t[1], "s.json", &report, &err), COPSE_REFUTED);
  for (int i = 0; i < 3; i++) {
    copse_schedule_free(s[i]);
    copse_topology_free(t[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("routes");
  TCase *tc = tcase_create("routes");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, the_optimum_over_all_trees_of_such_edges_is_reached);
  tcase_add_test(tc, machines_have_known_optima);
  tcase_add_test(tc, prices_become_whole_numbers);
  tcase_add_test(tc, a_tolerance_makes_fewer_trees);
  tcase_add_test(tc, many_ranks_are_refused_plainly);
  tcase_add_test(tc, their_bound_is_said_where_it_is_more);
  tcase_add_test(tc, their_plans_make_no_detours);
  tcase_add_test(tc, a_plan_that_lost_its_paths_is_mended);
  tcase_add_test(tc, they_are_proposed_where_paths_differ);
  tcase_add_test(tc, a_search_tries_them_where_they_may_save_a_hop);
  tcase_add_test(tc, scattered_trees_are_proposed_balanced);
  tcase_add_test(tc, trees_hung_on_routes_are_proposed_where_there_are_many);
  tcase_add_test(tc, hung_trees_keep_to_routes_and_load_links_less);
  tcase_add_test(tc, what_is_hung_is_proved_by_the_bounds_cuts);
  tcase_add_test(tc, damage_is_refused);
  tcase_add_test(tc, a_stated_route_is_taken_for_the_shortest);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
