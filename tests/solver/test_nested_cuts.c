/* Sets joined by faster links than those around: compared with a look at every set of nodes. */
#include "solver/trees/nested_cuts.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

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
    struct copse_template_cuts cuts;
    struct made m;
    make(&m, &state);
    int64_t narrow = copse_test_random_int(&state, 2, 20);
    unsigned listed[MOST_NODES * MOST_NODES] = {0}, all = (1u << m.network.n_nodes) - 1;
    ASSERT_OK(copse_nested_cuts_find(&m.network, m.capacities, m.root.node, narrow, &cuts, &err),
              &err);
    for (int v = 0; v < m.network.n_nodes; v++)
      for (int i = cuts.first[v]; i < cuts.first[v + 1]; i++) listed[cuts.cuts[i]] |= 1u << v;
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
    copse_template_cuts_free(&cuts);
  }
  ck_assert_int_gt(n_found - n_around_root, 20);
  ck_assert_int_gt(n_around_root, 20);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/nested_cuts");
  TCase *tests = tcase_create("nested_cuts");
  tcase_add_test(tests, sets_are_those_joined_by_faster_links);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
