/* Maximum flows: values, cuts and the changing of capacities, beside a plain algorithm. */
#include "solver/network/flow.h"

#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/support.h"

#define MAX_N 14

/* A flow graph and the matrix that it should be. */
struct pair {
  int n;
  struct copse_flow *flow;
  int64_t matrix[MAX_N * MAX_N];
};

static struct pair new_pair(int n) {
  struct copse_err err = COPSE_ERR_INIT;
  struct pair p = {.n = n};
  ASSERT_OK(copse_flow_new(n, &p.flow, &err), &err);
  return p;
}

static void change(struct pair *p, int src, int dst, int64_t amount) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_flow_change(p->flow, src, dst, amount, &err), &err);
  p->matrix[src * p->n + dst] += amount;
}

/* Random arcs, antiparallel ones among them; `most` bounds a single change. */
static void fill(struct pair *p, uint64_t *state, int arcs, int64_t most) {
  for (int i = 0; i < arcs; i++) {
    int u = copse_test_random_int(state, 0, p->n - 1),
        v = copse_test_random_int(state, 0, p->n - 1);
    if (u != v) change(p, u, v, 1 + (int64_t)(copse_test_random(state) % (uint64_t)most));
  }
}

static int64_t expected(const struct pair *p, int s, int t) {
  int64_t copy[MAX_N * MAX_N];
  memcpy(copy, p->matrix, sizeof copy);
  return copse_test_simple_flow(p->n, copy, s, t);
}

/* A flow of this value exists (the plain algorithm) and no more (the reported cut). */
static void check_certificate(struct pair *p, int s, int t) {
  int64_t value = copse_flow_max(p->flow, s, t, COPSE_FLOW_MAX), leaving = 0;
  ck_assert_int_eq(value, expected(p, s, t));
  ck_assert(copse_flow_on_source_side(p->flow, s));
  ck_assert(!copse_flow_on_source_side(p->flow, t));
  for (int u = 0; u < p->n; u++)
    for (int v = 0; v < p->n; v++)
      if (copse_flow_on_source_side(p->flow, u) && !copse_flow_on_source_side(p->flow, v))
        leaving += p->matrix[u * p->n + v];
  ck_assert_int_eq(leaving, value);
}

static void check_capacities(struct pair *p) {
  for (int u = 0; u < p->n; u++)
    for (int v = 0; v < p->n; v++)
      ck_assert_int_eq(copse_flow_capacity(p->flow, u, v), p->matrix[u * p->n + v]);
}

START_TEST(maximum_flow_equals_its_cut_and_the_plain_algorithm) {
  for (uint64_t seed = 0; seed < 400; seed++) {
    uint64_t state = seed;
    struct pair p = new_pair(copse_test_random_int(&state, 2, MAX_N));
    fill(&p, &state, copse_test_random_int(&state, 0, 4 * p.n), seed % 2 ? 10 : (int64_t)1 << 50);
    check_certificate(&p, 0, p.n - 1);
    check_certificate(&p, p.n - 1, 0); /* the run before left its marks behind */
    copse_flow_free(p.flow);
  }
}
END_TEST

START_TEST(the_cut_is_the_one_nearest_to_the_sink) {
  /* a chain whose links are all equally narrow: only the last one is nearest */
  struct pair p = new_pair(4);
  for (int v = 0; v < 3; v++) change(&p, v, v + 1, 5);
  ck_assert_int_eq(copse_flow_max(p.flow, 0, 3, COPSE_FLOW_MAX), 5);
  for (int v = 0; v < 3; v++) ck_assert(copse_flow_on_source_side(p.flow, v));
  ck_assert(!copse_flow_on_source_side(p.flow, 3));
  copse_flow_free(p.flow);
}
END_TEST

START_TEST(a_limit_cuts_the_flow_off_exactly) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    uint64_t state = seed;
    struct pair p = new_pair(copse_test_random_int(&state, 2, MAX_N));
    fill(&p, &state, 4 * p.n, 10);
    int64_t value = expected(&p, 0, 1);
    for (int64_t limit = 0; limit <= value + 2; limit++)
      ck_assert_int_eq(copse_flow_max(p.flow, 0, 1, limit), limit < value ? limit : value);
    copse_flow_free(p.flow);
  }
}
END_TEST

START_TEST(a_disconnected_pair_has_no_flow) {
  struct pair p = new_pair(4);
  change(&p, 0, 1, 7);
  change(&p, 2, 3, 7);
  change(&p, 3, 1, 7); /* 1 is reachable from 3, 3 is not from 1 */
  ck_assert_int_eq(copse_flow_max(p.flow, 0, 3, 100), 0);
  ck_assert(copse_flow_on_source_side(p.flow, 1));
  ck_assert(!copse_flow_on_source_side(p.flow, 2));
  copse_flow_free(p.flow);
}
END_TEST

START_TEST(capacities_changed_back_and_forth_are_remembered) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    uint64_t state = seed;
    struct pair p = new_pair(copse_test_random_int(&state, 3, MAX_N));
    fill(&p, &state, 3 * p.n, 20);
    for (int round = 0; round < 30; round++) {
      int u = copse_test_random_int(&state, 0, p.n - 1);
      int v = copse_test_random_int(&state, 0, p.n - 1);
      if (u == v) continue;
      int64_t had = p.matrix[u * p.n + v];
      change(&p, u, v, copse_test_random_int(&state, 0, 1) ? -had : 9); /* often down to zero */
      if (round % 5 == 0) copse_flow_compact(p.flow);
      check_certificate(&p, 0, p.n - 1);
      if (round % 3 == 0) change(&p, u, v, had - p.matrix[u * p.n + v]);
    }
    check_capacities(&p);
    copse_flow_free(p.flow);
  }
}
END_TEST

static void check_neighbours(struct pair *p, int node, bool leaving) {
  struct copse_flow_neighbours list =
      leaving ? copse_flow_leaving(p->flow, node) : copse_flow_entering(p->flow, node);
  bool seen[MAX_N] = {false};
  int n = 0;
  for (int v = 0; v < p->n; v++) n += p->matrix[leaving ? node * p->n + v : v * p->n + node] > 0;
  ck_assert_int_eq(list.n, n);
  for (int i = 0; i < list.n; i++) {
    int v = list.nodes[i];
    ck_assert(!seen[v]);
    seen[v] = true;
    ck_assert_int_eq(list.capacities[i], p->matrix[leaving ? node * p->n + v : v * p->n + node]);
  }
}

START_TEST(neighbours_are_the_links_with_capacity_also_after_compaction) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    uint64_t state = seed;
    struct pair p = new_pair(copse_test_random_int(&state, 2, MAX_N));
    fill(&p, &state, 3 * p.n, 20);
    for (int u = 0; u < p.n; u++)
      for (int v = 0; v < p.n; v++)
        if (u != v && copse_test_random_int(&state, 0, 2) == 0)
          change(&p, u, v, -p.matrix[u * p.n + v]);
    for (int pass = 0; pass < 2; pass++) {
      for (int v = 0; v < p.n; v++) check_neighbours(&p, v, true);
      for (int v = 0; v < p.n; v++) check_neighbours(&p, v, false);
      check_capacities(&p);
      check_certificate(&p, 0, p.n - 1);
      copse_flow_compact(p.flow);
    }
    copse_flow_free(p.flow);
  }
}
END_TEST

/* Tight: everything that leaves the source arrives. The sides then are those of a cut of the
 * same value, and no other such cut holds fewer nodes on the sink's side. */
START_TEST(the_sides_of_a_tight_flow_are_the_nearest_tight_cut) {
  int tight = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    uint64_t state = seed;
    struct pair p = new_pair(copse_test_random_int(&state, 3, 8));
    int n = p.n, t = n - 1;
    fill(&p, &state, 3 * n, 4);
    int64_t demand = 0;
    for (int v = 0; v < n; v++) demand += p.matrix[v];
    if (demand > 0 && copse_flow_max(p.flow, 0, t, demand) == demand) {
      tight++;
      copse_flow_find_sides(p.flow, t);
      int smallest = n, found = 0;
      for (unsigned set = 0; set < 1u << n; set++) { /* the sink's side */
        int64_t into = 0;
        if (!(set >> t & 1) || set & 1) continue;
        for (int u = 0; u < n; u++)
          for (int v = 0; v < n; v++)
            if (!(set >> u & 1) && set >> v & 1) into += p.matrix[u * n + v];
        if (into == demand && __builtin_popcount(set) < smallest)
          smallest = __builtin_popcount(set);
      }
      int64_t into = 0;
      for (int v = 0; v < n; v++) {
        if (copse_flow_on_source_side(p.flow, v)) continue;
        found++;
        for (int u = 0; u < n; u++)
          if (copse_flow_on_source_side(p.flow, u)) into += p.matrix[u * n + v];
      }
      ck_assert_int_eq(found, smallest);
      ck_assert_int_eq(into, demand);
    }
    copse_flow_free(p.flow);
  }
  ck_assert_int_gt(tight, 50);
}
END_TEST

/* More paths of unit width over one long chain than a flow keeps track of: what it leaves
 * behind must not show in the next. */
START_TEST(a_flow_over_very_many_arcs_leaves_nothing_behind) {
  enum { WIDTH = 40, LENGTH = 30, SIZE = WIDTH + LENGTH + 2 };
  struct copse_flow *flow;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_flow_new(SIZE, &flow, &err), &err);
  for (int i = 0; i < WIDTH; i++) {
    ASSERT_OK(copse_flow_change(flow, 0, 1 + i, 1, &err), &err);
    ASSERT_OK(copse_flow_change(flow, 1 + i, WIDTH + 1, 1, &err), &err);
  }
  for (int i = WIDTH + 1; i + 1 < SIZE; i++)
    ASSERT_OK(copse_flow_change(flow, i, i + 1, WIDTH, &err), &err);
  for (int again = 0; again < 3; again++)
    for (int t = SIZE - 1; t > WIDTH; t -= 7)
      ck_assert_int_eq(copse_flow_max(flow, 0, t, COPSE_FLOW_MAX), WIDTH);
  ASSERT_OK(copse_flow_change(flow, SIZE - 2, SIZE - 1, -1, &err), &err);
  ck_assert_int_eq(copse_flow_max(flow, 0, SIZE - 1, COPSE_FLOW_MAX), WIDTH - 1);
  copse_flow_free(flow);
}
END_TEST

START_TEST(capacities_out_of_range_are_refused_and_change_nothing) {
  struct copse_err err = COPSE_ERR_INIT;
  struct pair p = new_pair(2);
  change(&p, 0, 1, COPSE_FLOW_MAX - 1);
  change(&p, 0, 1, 1);
  ck_assert_int_eq(copse_flow_change(p.flow, 0, 1, 1, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_flow_change(p.flow, 0, 1, INT64_MAX, &err), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_flow_change(p.flow, 1, 0, -1, NULL), COPSE_INTERNAL);
  check_capacities(&p);
  ck_assert_int_eq(copse_flow_max(p.flow, 0, 1, COPSE_FLOW_MAX), COPSE_FLOW_MAX);
  copse_flow_free(p.flow);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/flow");
  TCase *tests = tcase_create("flow");
  tcase_add_test(tests, maximum_flow_equals_its_cut_and_the_plain_algorithm);
  tcase_add_test(tests, the_cut_is_the_one_nearest_to_the_sink);
  tcase_add_test(tests, a_limit_cuts_the_flow_off_exactly);
  tcase_add_test(tests, a_disconnected_pair_has_no_flow);
  tcase_add_test(tests, capacities_changed_back_and_forth_are_remembered);
  tcase_add_test(tests, neighbours_are_the_links_with_capacity_also_after_compaction);
  tcase_add_test(tests, the_sides_of_a_tight_flow_are_the_nearest_tight_cut);
  tcase_add_test(tests, a_flow_over_very_many_arcs_leaves_nothing_behind);
  tcase_add_test(tests, capacities_out_of_range_are_refused_and_change_nothing);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
