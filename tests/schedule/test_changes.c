/*
 * Chosen ranks and broken parts: the optimum on what is left, compared with every cut of a graph
 * that is changed here by hand, not by topology/modify.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/adapt.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "topology/symmetry/symmetry.h"
#include "topology/modify.h"

static copse_status solve(const struct copse_topology *topology, copse_collective collective,
                          struct copse_schedule **out, struct copse_err *err) {
  struct copse_solve_options options = {.collective = collective, .root = -1, .label = "test.json"};
  struct copse_solve_seconds seconds;
  return copse_solve_schedule(topology, &options, out, &seconds, err);
}

/* A relay of the graph whose sums differ, as the contract refuses it; -1: none. */
static int unbalanced(const struct copse_test_graph *g, const bool *gone) {
  int found = -1;
  mpq_t sum;
  mpq_init(sum);
  for (int v = g->n_nodes - 1; v >= 0; v--) {
    if (g->terminal[v] || gone[v]) continue;
    mpq_set_ui(sum, 0, 1);
    for (int i = 0; i < g->n_links; i++) {
      if (g->src[i] == v) mpq_add(sum, sum, g->bandwidth[i]);
      if (g->dst[i] == v) mpq_sub(sum, sum, g->bandwidth[i]);
    }
    if (mpq_sgn(sum) != 0) found = v;
  }
  mpq_clear(sum);
  return found;
}

static void remove_node(struct copse_test_graph *g, int node) {
  for (int i = 0; i < g->n_links; i++)
    if (g->src[i] == node || g->dst[i] == node) mpq_set_ui(g->bandwidth[i], 0, 1);
  g->terminal[node] = false;
  g->weight[node] = 0;
}

/* What came of the cases, so that a test sees that it tested something. */
struct tally {
  int solved, unreachable, unbalanced, balanced;
};

/* The schedule, read back from its file, against the whole: verified with the ranks that it has. */
static void check_against_whole(struct copse_topology **whole, const struct copse_schedule *s) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *back = NULL;
  struct copse_verify_report report;
  char *text;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  ASSERT_OK(copse_schedule_parse("s.json", text, size, &back, &err), &err);
  ASSERT_OK(copse_schedule_choose_ranks(back, whole, &err), &err);
  ck_assert_int_eq((*whole)->n_ranks, back->n_ranks);
  ASSERT_OK(copse_verify_schedule(back, *whole, "s.json", &report, &err), &err);
  ck_assert(report.same_topology);
  ck_assert(copse_q_eq(report.time_per_GB, s->time_per_GB));
  copse_schedule_free(back);
  free(text);
}

/* With its relays balanced: each link as wide or narrower, open still, and its trees are trees of
 * the whole. */
static bool balances(const struct copse_topology *t, copse_collective collective) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *balanced;
  struct copse_schedule *s = NULL;
  int relay;
  if (copse_topology_balance(t, &balanced, &err) != COPSE_OK) return false;
  ASSERT_OK(copse_topology_find_unbalanced(balanced, &relay, NULL, NULL, &err), &err);
  ck_assert_int_eq(relay, -1);
  ck_assert_int_eq(balanced->n_links, t->n_links);
  for (int i = 0; i < t->n_links; i++) {
    ck_assert_int_le(copse_q_cmp(balanced->links[i].bandwidth, t->links[i].bandwidth), 0);
    ck_assert_int_gt(balanced->links[i].bandwidth.num, 0);
  }
  const copse_status status = solve(balanced, collective, &s, &err);
  ck_assert_msg(status == COPSE_OK || status == COPSE_INFEASIBLE, "%s", err.text);
  const char *defect = s ? copse_test_schedule_defect(s, balanced) : NULL;
  ck_assert_msg(!defect, "%s", defect);
  copse_schedule_free(s);
  copse_topology_free(balanced);
  return true;
}

/* `changed` against the graph that it should be. */
static struct copse_schedule *check(const struct copse_topology *changed,
                                    const struct copse_test_graph *g, const bool *gone,
                                    copse_collective collective, struct tally *tally, int seed) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  mpq_t expected, time;
  int relay = unbalanced(g, gone), ranks = 0;
  copse_status status = solve(changed, collective, &s, &err);
  for (int v = 0; v < g->n_nodes; v++) ranks += g->terminal[v];
  ck_assert_int_eq(changed->n_ranks, ranks);
  if (relay >= 0) {
    ck_assert_msg(status == COPSE_BAD_INPUT, "seed %d: %s", seed, err.text);
    ck_assert_msg(strstr(err.text, "trees need them equal"), "%s", err.text);
    tally->unbalanced++;
    tally->balanced += balances(changed, collective);
    return NULL;
  }
  mpq_inits(expected, time, NULL);
  if (ranks > 1 && !copse_test_cut_time(g, expected)) {
    ck_assert_msg(status == COPSE_INFEASIBLE, "seed %d: %s", seed, err.text);
    tally->unreachable++;
  } else {
    ck_assert_msg(status == COPSE_OK, "seed %d: %s", seed, err.text);
    copse_test_set_q(time, s->time_per_GB);
    if (ranks > 1) ck_assert_msg(mpq_equal(time, expected), "seed %d: not optimal", seed);
    const char *defect = copse_test_schedule_defect(s, changed);
    ck_assert_msg(!defect, "seed %d: %s", seed, defect);
    tally->solved++;
  }
  mpq_clears(expected, time, NULL);
  return s;
}

/* ---- chosen ranks ------------------------------------------------------------------------ */

/* Some of the ranks in a random order; at least one. */
static int draw_ranks(uint64_t *state, const struct copse_topology *t, int *nodes) {
  int n = 0;
  for (int r = 0; r < t->n_ranks; r++)
    if (copse_test_random_int(state, 0, 2) > 0) nodes[n++] = t->rank_nodes[r];
  if (n == 0) nodes[n++] = t->rank_nodes[0];
  for (int i = n - 1; i > 0; i--) {
    int j = copse_test_random_int(state, 0, i), node = nodes[i];
    nodes[i] = nodes[j];
    nodes[j] = node;
  }
  return n;
}

/* Loop: relays and exclusion, for both kinds of phase. */
START_TEST(chosen_ranks_are_optimal_on_random_fabrics) {
  bool exclude = _i & 1, reversed = _i & 2;
  copse_collective collective = reversed ? COPSE_REDUCE_SCATTER : COPSE_ALLGATHER;
  struct copse_err err = COPSE_ERR_INIT;
  struct tally tally = {0};
  for (int seed = 0; seed < (COPSE_TEST_SWEEPS ? 150 : 60); seed++) {
    uint64_t state = (uint64_t)seed;
    struct copse_test_random_options options = copse_test_random_small;
    options.asymmetric = seed % 3 == 0;
    struct copse_topology *whole = copse_test_random_topology(&state, &options), *chosen;
    struct copse_test_graph *g = copse_test_graph_of_topology(whole, -1, reversed);
    int *nodes = calloc((size_t)whole->n_ranks, sizeof *nodes);
    int n = draw_ranks(&state, whole, nodes);
    bool gone[16] = {false};
    for (int r = 0; r < whole->n_ranks; r++) {
      int v = whole->rank_nodes[r];
      bool in = false;
      for (int i = 0; i < n; i++) in = in || nodes[i] == v;
      if (in) continue;
      g->terminal[v] = false;
      g->weight[v] = 0;
      gone[v] = exclude;
      if (exclude) remove_node(g, v);
    }
    ASSERT_OK(copse_topology_choose_ranks(whole, nodes, n, exclude, &chosen, &err), &err);
    for (int r = 0; r < n; r++)
      ck_assert_str_eq(chosen->nodes[chosen->rank_nodes[r]].id, whole->nodes[nodes[r]].id);
    struct copse_schedule *s = check(chosen, g, gone, collective, &tally, seed);
    if (s) check_against_whole(&whole, s);
    copse_schedule_free(s);
    copse_topology_free(chosen);
    copse_topology_free(whole);
    copse_test_graph_free(g);
    free(nodes);
  }
  ck_assert_int_gt(tally.solved, COPSE_TEST_SWEEPS ? 60 : 24);
  ck_assert_int_gt(tally.unbalanced, 0); /* of GPUs with other bandwidth in than out */
  ck_assert_int_gt(tally.balanced, 0);
  if (exclude) ck_assert_int_gt(tally.unreachable, 0);
}
END_TEST

START_TEST(an_alltoall_among_chosen_ranks_verifies) {
  struct copse_err err = COPSE_ERR_INIT;
  int solved = 0;
  for (int seed = 0; seed < 40; seed++) {
    uint64_t state = (uint64_t)seed;
    struct copse_topology *whole = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_topology *chosen;
    struct copse_schedule *s = NULL;
    int *nodes = calloc((size_t)whole->n_ranks, sizeof *nodes);
    int n = draw_ranks(&state, whole, nodes);
    ASSERT_OK(copse_topology_choose_ranks(whole, nodes, n, _i, &chosen, &err), &err);
    struct copse_err local = COPSE_ERR_INIT;
    copse_status status = solve(chosen, COPSE_ALLTOALL, &s, &local);
    ck_assert_msg(status == COPSE_OK || (_i && status == COPSE_INFEASIBLE), "seed %d: %s", seed,
                  local.text);
    if (s) check_against_whole(&whole, s);
    solved += s && n > 1;
    copse_schedule_free(s);
    copse_topology_free(chosen);
    copse_topology_free(whole);
    free(nodes);
  }
  ck_assert_int_gt(solved, 15);
}
END_TEST

/* Relays may only help: excluding is never faster. A schedule that excludes claims a bound that
 * does not hold with relays, and so is refuted as one for them. */
START_TEST(a_schedule_without_the_others_is_not_one_with_relays) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *whole, *chosen, *relays;
  struct copse_schedule *s;
  struct copse_verify_report report;
  int *nodes, n;
  ASSERT_OK(copse_topology_synthetic("ring:6@50", NULL, &whole, &err), &err);
  ASSERT_OK(copse_topology_parse_ranks(whole, "ring", "0-2", &nodes, &n, &err), &err);
  ASSERT_OK(copse_topology_choose_ranks(whole, nodes, n, true, &chosen, &err), &err);
  ASSERT_OK(copse_topology_choose_ranks(whole, nodes, n, false, &relays, &err), &err);
  ck_assert_int_eq(chosen->n_nodes, 3);
  ck_assert_int_eq(chosen->n_links, 4);
  ASSERT_OK(solve(chosen, COPSE_ALLGATHER, &s, &err), &err);
  ck_assert(s->others_excluded);
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 75})); /* 2/3 into the end of a line */
  ASSERT_FAILS(copse_verify_schedule(s, relays, "s.json", &report, &err), COPSE_REFUTED, &err,
               "the bound is 1/75");
  copse_schedule_free(s);
  ASSERT_OK(solve(relays, COPSE_ALLGATHER, &s, &err), &err);
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 150})); /* both ways round */
  copse_schedule_free(s);
  copse_topology_free(relays);
  copse_topology_free(chosen);
  copse_topology_free(whole);
  free(nodes);
}
END_TEST

/* ---- broken parts ------------------------------------------------------------------------ */

static void scale(struct copse_test_graph *g, int link, struct copse_q by) {
  mpq_t q;
  mpq_init(q);
  copse_test_set_q(q, by);
  mpq_mul(g->bandwidth[link], g->bandwidth[link], q);
  mpq_clear(q);
}

/* One random fault, given to both: the product's words, and the graph of the whole. */
static struct copse_fault draw_fault(uint64_t *state, const struct copse_topology *t,
                                     struct copse_test_graph *g, bool *gone, char *text,
                                     size_t size) {
  struct copse_q left = {copse_test_random_int(state, 0, 2), 3};
  if (t->n_links == 0 || copse_test_random_int(state, 0, 1)) {
    int v = copse_test_random_int(state, 0, t->n_nodes - 1);
    for (int i = 0; i < g->n_links; i++)
      if (g->src[i] == v || g->dst[i] == v) scale(g, i, left);
    if (left.num == 0) {
      gone[v] = true;
      g->terminal[v] = false;
      g->weight[v] = 0;
    }
    snprintf(text, size, "%s", t->nodes[v].id);
  } else {
    int link = copse_test_random_int(state, 0, t->n_links - 1);
    for (int i = 0; i < g->n_links; i++)
      if (i == link || (g->src[i] == g->dst[link] && g->dst[i] == g->src[link])) scale(g, i, left);
    snprintf(text, size, "%s>%s", t->nodes[t->links[link].src].id, t->nodes[t->links[link].dst].id);
  }
  return (struct copse_fault){text, left.num ? left : COPSE_Q_ZERO};
}

START_TEST(what_is_left_is_solved_optimally) {
  struct copse_err err = COPSE_ERR_INIT;
  struct tally tally = {0};
  for (int seed = 0; seed < (COPSE_TEST_SWEEPS ? 300 : 100); seed++) {
    uint64_t state = (uint64_t)seed;
    struct copse_test_random_options options = copse_test_random_small;
    options.asymmetric = seed % 3 == 0;
    struct copse_topology *whole = copse_test_random_topology(&state, &options), *left;
    struct copse_test_graph *g = copse_test_graph_of_topology(whole, -1, false);
    struct copse_fault faults[2];
    char text[2][100], before[COPSE_SHA256_HEX], after[COPSE_SHA256_HEX];
    bool gone[16] = {false};
    int n = copse_test_random_int(&state, 1, 2), ranks = 0;
    for (int f = 0; f < n; f++)
      faults[f] = draw_fault(&state, whole, g, gone, text[f], sizeof text[f]);
    for (int v = 0; v < g->n_nodes; v++) ranks += g->terminal[v];
    if (ranks > 0) {
      ASSERT_OK(copse_topology_break(whole, "t.json", faults, n, &left, &err), &err);
      ck_assert_ptr_nonnull(strstr(left->name, text[0]));
      ASSERT_OK(copse_topology_sha256(whole, before, &err), &err);
      ASSERT_OK(copse_topology_sha256(left, after, &err), &err);
      ck_assert_str_ne(before, after);
      copse_schedule_free(check(left, g, gone, COPSE_ALLGATHER, &tally, seed));
      copse_topology_free(left);
    }
    copse_topology_free(whole);
    copse_test_graph_free(g);
  }
  ck_assert_int_gt(tally.solved, COPSE_TEST_SWEEPS ? 150 : 50);
  ck_assert_int_gt(tally.unreachable, 0);
  ck_assert_int_gt(tally.unbalanced, 0);
}
END_TEST

START_TEST(a_fault_that_fits_nothing_is_refused) {
  static const struct {
    const char *what, *part;
  } cases[] = {{"gpu9", "no node \"gpu9\""},
               {"gpu0>gpu9", "no node \"gpu9\" that a link joins"},
               {"gpu0>gpu2", "no link from"},
               {"", "no node \"\""},
               {">", "no node \"\" that a link joins"},
               {"gpu0>gpu1>gpu2", "no node \"gpu1>gpu2\" that a link joins"},
               {"gpu2>one-way", "only the other"},
               {"gpu0>gpu0", "no link from"}};
  static const char json[] =
      "{\"format\": \"copse-topology/1\", \"name\": \"t\", \"nodes\": ["
      "{\"id\": \"gpu0\", \"type\": \"gpu\"}, {\"id\": \"gpu1\", \"type\": \"gpu\"},"
      "{\"id\": \"gpu2\", \"type\": \"gpu\"}, {\"id\": \"one-way\", \"type\": \"switch\"}],"
      "\"links\": [{\"src\": \"gpu0\", \"dst\": \"gpu1\", \"bandwidth\": 1},"
      "{\"src\": \"one-way\", \"dst\": \"gpu2\", \"bandwidth\": 1, \"duplex\": false}]}";
  struct copse_topology *t, *left = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_parse("t.json", json, sizeof json - 1, NULL, &t, &err), &err);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_fault fault = {cases[i].what, COPSE_Q_ZERO};
    struct copse_err local = COPSE_ERR_INIT;
    ASSERT_FAILS(copse_topology_break(t, "t.json", &fault, 1, &left, &local), COPSE_BAD_INPUT,
                 &local, cases[i].part);
    ck_assert_ptr_null(left);
  }
  struct copse_fault all[] = {
      {"gpu0", COPSE_Q_ZERO}, {"gpu1", COPSE_Q_ZERO}, {"gpu2", COPSE_Q_ZERO}};
  ASSERT_FAILS(copse_topology_break(t, "t.json", all, 3, &left, &err), COPSE_BAD_INPUT, &err,
               "no node of type \"gpu\"");
  copse_topology_free(t);
}
END_TEST

/* ---- images ------------------------------------------------------------------------------ */

START_TEST(the_image_of_a_schedule_is_one_for_the_turned_fabric) {
  static const copse_collective kinds[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                           COPSE_ALLTOALL};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *whole, *left[2];
  struct copse_schedule *s, *turned;
  struct copse_verify_report report;
  struct copse_permutation rotation;
  struct copse_arena arena = {0};
  const char **ids;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:4@100 nics:4@25 rails", NULL, &whole, &err),
            &err);
  ASSERT_OK(copse_topology_host_rotation(whole, &arena, &rotation, &err), &err);
  ck_assert_int_eq(rotation.order, 3);
  struct copse_fault down[] = {{"h0.nic1", COPSE_Q_ZERO}, {"h1.nic1", COPSE_Q_ZERO}};
  for (int i = 0; i < 2; i++)
    ASSERT_OK(copse_topology_break(whole, "t", &down[i], 1, &left[i], &err), &err);
  ASSERT_OK(solve(left[0], kinds[_i], &s, &err), &err);
  ASSERT_OK(copse_schedule_expand(s, &err), &err);
  ids = calloc((size_t)s->n_nodes, sizeof *ids);
  for (int v = 0; v < s->n_nodes; v++)
    ids[v] = whole->nodes[rotation.image[copse_topology_find(whole, s->nodes[v])]].id;
  ASSERT_OK(copse_schedule_image(s, ids, left[1], &turned, &err), &err);
  ASSERT_OK(copse_verify_schedule(turned, left[1], "s", &report, &err), &err);
  ck_assert(report.same_topology);
  ck_assert(copse_q_eq(report.time_per_GB, s->time_per_GB));
  ck_assert(copse_q_eq(report.bound, s->bound.time_per_GB));
  const char *defect = copse_test_schedule_defect(turned, left[1]);
  ck_assert_msg(kinds[_i] == COPSE_ALLTOALL || !defect, "%s", defect);
  struct copse_err local = COPSE_ERR_INIT;
  ids[s->rank_nodes[0]] = "h1.nvswitch";
  copse_schedule_free(turned);
  ASSERT_FAILS(copse_schedule_image(s, ids, left[1], &turned, &local), COPSE_INVALID, &local,
               "is no rank");
  copse_schedule_free(s);
  for (int i = 0; i < 2; i++) copse_topology_free(left[i]);
  copse_topology_free(whole);
  free(ids);
  copse_arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/changes");
  TCase *tests = tcase_create("changes");
  tcase_add_loop_test(tests, chosen_ranks_are_optimal_on_random_fabrics, 0, 4);
  tcase_add_loop_test(tests, an_alltoall_among_chosen_ranks_verifies, 0, 2);
  tcase_add_test(tests, a_schedule_without_the_others_is_not_one_with_relays);
  tcase_add_test(tests, what_is_left_is_solved_optimally);
  tcase_add_test(tests, a_fault_that_fits_nothing_is_refused);
  tcase_add_loop_test(tests, the_image_of_a_schedule_is_one_for_the_turned_fabric, 0, 4);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
