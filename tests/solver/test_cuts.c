/* The store of known cuts: membership by node and by list stays in step, also when it is full, and
 * with and without flags. Nested sets: compared with a look at every set of nodes. */
#include "solver/network/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "solver/policy.h"
#include "support/support.h"

#define N 24

static void check_lists(const struct copse_cuts *cuts) {
  for (int v = 0; v < N; v++) {
    bool listed[2048] = {false};
    const int *list = cuts->of[v].cuts;
    for (int i = 0; i < cuts->of[v].n; i++) {
      ck_assert_int_lt(list[i], cuts->n);
      ck_assert(!listed[list[i]]);
      listed[list[i]] = true;
    }
    for (int c = 0; c < cuts->n; c++) ck_assert_int_eq(listed[c], copse_cuts_hold(cuts, c, v));
  }
}

/* The set whose members are the bits of `number`. */
static void set_of(unsigned number, unsigned char *inside) {
  for (int v = 0; v < N; v++) inside[v] = number >> v & 1;
}

static int add(struct copse_cuts *cuts, const unsigned char *inside, int64_t slack) {
  struct copse_err err = COPSE_ERR_INIT;
  int place;
  ASSERT_OK(copse_cuts_add_flags(cuts, inside, slack, &place, &err), &err);
  return place;
}

/* Loop: with and without flags. */
START_TEST(a_known_cut_is_not_added_again) {
  struct copse_cuts cuts;
  struct copse_err err = COPSE_ERR_INIT;
  unsigned char inside[N];
  ASSERT_OK(copse_cuts_new(N, _i ? COPSE_CUTS_MOST : 0, &cuts, &err), &err);
  set_of(5, inside);
  ck_assert_int_eq(add(&cuts, inside, 7), 0);
  ck_assert_int_eq(add(&cuts, inside, 3), -1);
  ck_assert_int_eq(cuts.slack[0], 7);
  set_of(6, inside);
  ck_assert_int_eq(add(&cuts, inside, 3), 1);
  ck_assert_int_eq(cuts.n, 2);
  check_lists(&cuts);
  copse_cuts_free(&cuts);
}
END_TEST

START_TEST(a_full_pool_gives_up_the_cut_that_spares_most) {
  struct copse_cuts cuts;
  struct copse_err err = COPSE_ERR_INIT;
  unsigned char inside[N];
  ASSERT_OK(copse_cuts_new(N, COPSE_CUTS_MOST, &cuts, &err), &err);
  for (int c = 0; c < cuts.most; c++) {
    set_of((unsigned)c * 2654435761u | 1u, inside);
    ck_assert_int_eq(add(&cuts, inside, c == 17 ? 1000 : c % 5), c);
  }
  check_lists(&cuts);
  for (int c = 0; c < 50; c++) {
    set_of(2u * (unsigned)(c + 1), inside); /* not one that is there: bit 0 */
    int place = add(&cuts, inside, 0);
    if (c == 0) ck_assert_int_eq(place, 17);
    ck_assert_int_ge(place, 0);
    ck_assert_int_eq(cuts.slack[place], 0);
    ck_assert_int_eq(cuts.n, cuts.most);
  }
  check_lists(&cuts);
  copse_cuts_free(&cuts);
}
END_TEST

/* ---- nested sets -------------------------------------------------------------------------- */

#define MOST_NODES 8

struct made {
  struct copse_network network;
  struct copse_net_link links[MOST_NODES * MOST_NODES];
  int64_t capacities[MOST_NODES * MOST_NODES];
  int terminals[MOST_NODES];
  struct copse_net_root root;
};

static void make(struct made *m, uint64_t *state) {
  int n = copse_test_random_int(state, 3, MOST_NODES);
  *m = (struct made){.network = {n, 0, 0, 1, m->links, m->terminals, &m->root, 0, NULL}};
  for (int v = 0; v < n; v++)
    if (v < 2 || copse_test_random_int(state, 0, 2)) m->terminals[m->network.n_terminals++] = v;
  m->root = (struct copse_net_root){copse_test_random_int(state, 0, 1), 1};
  for (int u = 0; u < n; u++)
    for (int v = 0; v < n; v++) {
      if (u == v || (v != (u + 1) % n && copse_test_random_int(state, 0, 2))) continue;
      m->capacities[m->network.n_links] = copse_test_random_int(state, 1, 4);
      m->links[m->network.n_links++] = (struct copse_net_link){u, v, 9};
    }
}

/* Whether links of more than any across its border join the set. */
static bool is_joined(const struct made *m, unsigned set) {
  int64_t across = 0;
  unsigned reached = set & (~set + 1);
  for (int e = 0; e < m->network.n_links; e++) {
    bool src = set >> m->links[e].src & 1, dst = set >> m->links[e].dst & 1;
    if (src != dst && m->capacities[e] > across) across = m->capacities[e];
  }
  for (int round = 0; round < MOST_NODES; round++)
    for (int e = 0; e < m->network.n_links; e++) {
      unsigned ends = 1u << m->links[e].src | 1u << m->links[e].dst;
      if (m->capacities[e] > across && (ends & ~set) == 0 && (ends & reached)) reached |= ends;
    }
  return reached == set && across > 0;
}

static int64_t entering(const struct made *m, unsigned set) {
  int64_t sum = 0;
  for (int e = 0; e < m->network.n_links; e++)
    if (!(set >> m->links[e].src & 1) && set >> m->links[e].dst & 1) sum += m->capacities[e];
  return sum;
}

static unsigned terminals_of(const struct made *m, unsigned set) {
  unsigned all = 0;
  for (int i = 0; i < m->network.n_terminals; i++) all |= 1u << m->terminals[i];
  return set & all;
}

/* Of a joined set, what is to be entered: itself, or what is around it if it holds the root. */
static unsigned to_enter(const struct made *m, unsigned set) {
  unsigned all = (1u << m->network.n_nodes) - 1;
  return set >> m->root.node & 1 ? all & ~set : set;
}

static bool is_due(const struct made *m, unsigned joined, int64_t narrow) {
  unsigned set = to_enter(m, joined), terminals = terminals_of(m, set);
  bool of_root = set != joined;
  if (!is_joined(m, joined) || entering(m, set) >= narrow || !terminals) return false;
  if (terminals == terminals_of(m, ~0u)) return false;
  return of_root || (terminals & (terminals - 1)) != 0;
}

START_TEST(sets_are_those_joined_by_faster_links) {
  int n_found = 0, n_around_root = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_cuts cuts;
    struct made m;
    make(&m, &state);
    int64_t narrow = copse_test_random_int(&state, 2, 20);
    unsigned listed[MOST_NODES * MOST_NODES] = {0}, all = (1u << m.network.n_nodes) - 1;
    ASSERT_OK(copse_cuts_nested(&m.network, m.capacities, m.root.node, narrow, &cuts, &err), &err);
    for (int v = 0; v < m.network.n_nodes; v++)
      for (int i = 0; i < cuts.of[v].n; i++) listed[cuts.of[v].cuts[i]] |= 1u << v;
    for (int c = 0; c < cuts.n; c++) {
      ck_assert_int_eq(listed[c] >> m.root.node & 1, 0);
      ck_assert(is_due(&m, listed[c], narrow) || is_due(&m, all & ~listed[c], narrow));
    }
    for (unsigned set = 1; set < all; set++) { /* or one with the same terminals */
      if (!is_due(&m, set, narrow)) continue;
      bool found = false;
      for (int c = 0; c < cuts.n; c++)
        found = found || terminals_of(&m, listed[c]) == terminals_of(&m, to_enter(&m, set));
      ck_assert_msg(found, "seed %d: a set is missing", (int)seed);
      n_found++;
      n_around_root += to_enter(&m, set) != set;
    }
    copse_cuts_free(&cuts);
  }
  ck_assert_int_gt(n_found - n_around_root, 20);
  ck_assert_int_gt(n_around_root, 20);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/cuts");
  TCase *tests = tcase_create("cuts");
  tcase_add_loop_test(tests, a_known_cut_is_not_added_again, 0, 2);
  tcase_add_test(tests, a_full_pool_gives_up_the_cut_that_spares_most);
  tcase_add_test(tests, sets_are_those_joined_by_faster_links);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
