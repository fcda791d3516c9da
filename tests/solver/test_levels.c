/* Trees that grow together: they span within the capacities, and are as low as can be where that is
 * known. */
#include "solver/trees/maker.h"

#include <stdlib.h>
#include <string.h>

#include "solver/trees/optimum.h"
#include "support/support.h"

#define MAX_NODES 160
#define MAX_LINKS (MAX_NODES * 8)

struct made {
  struct copse_network network;
  struct copse_net_link links[MAX_LINKS];
  int terminals[MAX_NODES];
  struct copse_net_root roots[MAX_NODES];
  int64_t capacities[MAX_LINKS], k; /* at the optimum */
};

static void start(struct made *m, int n_terminals, int n_relays) {
  *m = (struct made){.network = {n_terminals + n_relays, 0, n_terminals, n_terminals, m->links,
                                 m->terminals, m->roots}};
  for (int i = 0; i < n_terminals; i++) {
    m->terminals[i] = i;
    m->roots[i] = (struct copse_net_root){i, 1};
  }
}

static void join(struct made *m, int u, int v, int64_t capacity) {
  for (int i = 0; i < m->network.n_links; i++)
    if (m->links[i].src == u && m->links[i].dst == v) return;
  m->links[m->network.n_links++] = (struct copse_net_link){u, v, capacity};
  m->links[m->network.n_links++] = (struct copse_net_link){v, u, capacity};
}

static void scale(struct made *m) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_optimum optimum;
  struct copse_scale at;
  ASSERT_OK(copse_optimum_find(&m->network, NULL, &optimum, &err), &err);
  ASSERT_OK(copse_optimum_scale(&m->network, optimum.x, &at, &err), &err);
  for (int i = 0; i < m->network.n_links; i++)
    m->capacities[i] = m->links[i].capacity / at.divisor * at.numerator;
  m->k = at.k;
  copse_optimum_free(&optimum);
}

/* rows x columns terminals, each joined to the next in both dimensions, around. */
static void make_torus(struct made *m, int rows, int columns) {
  start(m, rows * columns, 0);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      join(m, i * columns + j, (i + 1) % rows * columns + j, 1);
      join(m, i * columns + j, i * columns + (j + 1) % columns, 1);
    }
  scale(m);
}

/* Hosts of four terminals round a fast switch; each terminal has a way to one of some switches, and
 * those are joined at random. */
static void make_fabric(struct made *m, uint64_t *state) {
  int hosts = copse_test_random_int(state, 2, 16), switches = copse_test_random_int(state, 1, 5);
  start(m, 4 * hosts, hosts + switches);
  for (int i = 0; i < 4 * hosts; i++) {
    join(m, i, 4 * hosts + i / 4, 8);
    join(m, i, 5 * hosts + i / 4 % switches, 1);
  }
  for (int s = 0; s < switches; s++)
    for (int t = 0; t < s; t++)
      if (t == s - 1 || copse_test_random_int(state, 0, 1))
        join(m, 5 * hosts + t, 5 * hosts + s, copse_test_random_int(state, 1, 4));
  scale(m);
}

/* Uses up what an edge takes of the links. */
static void follow(const struct made *m, const struct copse_forest_edge *edge, int64_t amount,
                   int64_t *left) {
  ck_assert_int_eq(edge->path[0], edge->src);
  ck_assert_int_eq(edge->path[edge->n_path - 1], edge->dst);
  for (int i = 1; i < edge->n_path; i++) {
    int e = 0;
    while (e < m->network.n_links &&
           (m->links[e].src != edge->path[i - 1] || m->links[e].dst != edge->path[i]))
      e++;
    ck_assert_msg(e < m->network.n_links, "a way that is none");
    ck_assert_msg((left[e] -= amount) >= 0, "a link is used too often");
    if (i + 1 < edge->n_path) ck_assert_int_ge(edge->path[i], m->network.n_terminals);
  }
}

/* The height that the edges make. */
static int check_tree(const struct made *m, const struct copse_forest_tree *tree, int64_t *left) {
  int depth[MAX_NODES], height = 0;
  memset(depth, -1, sizeof depth);
  depth[tree->root] = 0;
  for (int i = 0; i + 1 < m->network.n_terminals; i++) {
    const struct copse_forest_edge *edge = &tree->edges[i];
    ck_assert_msg(depth[edge->src] >= 0 && depth[edge->dst] < 0, "an edge is out of order");
    depth[edge->dst] = depth[edge->src] + 1;
    if (depth[edge->dst] > height) height = depth[edge->dst];
    follow(m, edge, tree->multiplicity, left);
  }
  return height;
}

static void check_forest(const struct made *m, int64_t k, const struct copse_forest *forest) {
  int64_t left[MAX_LINKS], due[MAX_NODES] = {0};
  memcpy(left, m->capacities, sizeof left);
  for (int t = 0; t < forest->n_trees; t++) {
    ck_assert_int_ge(forest->trees[t].multiplicity, 1);
    ck_assert_int_eq(forest->trees[t].height, check_tree(m, &forest->trees[t], left));
    due[forest->trees[t].root] += forest->trees[t].multiplicity;
  }
  for (int i = 0; i < m->network.n_roots; i++)
    ck_assert_int_eq(due[m->roots[i].node], k * m->roots[i].weight);
}

static bool pack(const struct made *m, int64_t k, struct copse_forest *forest) {
  struct copse_err err = COPSE_ERR_INIT;
  bool packed;
  *forest = (struct copse_forest){.k = k};
  struct copse_tree_problem problem = {.network = &m->network, .capacities = m->capacities, .k = k};
  ASSERT_OK(copse_make_levels(&problem, forest, &packed, &err), &err);
  if (packed)
    check_forest(m, k, forest);
  else
    ck_assert_ptr_null(forest->trees);
  return packed;
}

/* Every link of a torus is used to the full at the optimum, so the last vertices of many trees find
 * no way left: without exchanges none of these would be packed. */
START_TEST(tori_are_packed_at_their_optimum) {
  for (int rows = 3; rows <= 8; rows++)
    for (int columns = rows; columns <= 9; columns++) {
      struct made m;
      struct copse_forest forest;
      make_torus(&m, rows, columns);
      ck_assert_msg(pack(&m, m.k, &forest), "%d x %d", rows, columns);
      for (int t = 0; t < forest.n_trees; t++) /* the way to the vertex farthest off */
        ck_assert_int_ge(forest.trees[t].height, rows / 2 + columns / 2);
      copse_forest_free(&forest);
    }
}
END_TEST

START_TEST(what_is_packed_spans_within_the_capacities) {
  int n_packed = 0;
  for (uint64_t seed = 0; seed < 100; seed++) {
    uint64_t state = seed;
    struct made m;
    struct copse_forest forest;
    make_fabric(&m, &state);
    n_packed += pack(&m, m.k, &forest);
    copse_forest_free(&forest);
    if (m.k > 1) pack(&m, m.k / 2, &forest); /* room to spare */
    copse_forest_free(&forest);
  }
  ck_assert_int_ge(n_packed, 50);
}
END_TEST

/* Six hosts of four terminals, on routers that are all joined. Each tree looks at each link once: a
 * search from a host that the tree is in would else go over the fabric for each of its terminals. */
START_TEST(hosts_that_a_tree_is_in_are_searched_without_the_fabric) {
  const struct copse_network_symmetry none = {0};
  for (int routers = 8; routers <= 24; routers += 8) {
    struct copse_err err = COPSE_ERR_INIT;
    struct made m;
    bool made;
    start(&m, 24, 6 + routers);
    for (int i = 0; i < 24; i++) {
      join(&m, i, 24 + i / 4, 16);
      join(&m, i, 30 + i % routers, 1);
    }
    for (int s = 0; s < routers; s++)
      for (int t = 0; t < s; t++) join(&m, 30 + t, 30 + s, 64);
    scale(&m);
    struct copse_forest forest = {.k = m.k};
    struct copse_tree_problem problem = {
        .network = &m.network, .capacities = m.capacities, .k = m.k, .symmetry = &none};
    ASSERT_OK(copse_make_orbit_trees(&problem, &forest, &made, &err), &err);
    ck_assert(made);
    check_forest(&m, m.k, &forest);
    ck_assert_int_le(forest.n_looks, (int64_t)forest.n_trees * m.network.n_links);
    copse_forest_free(&forest);
  }
}
END_TEST

/* A host of two terminals with a NIC each, of which one, `first`, cannot send to the other: a tree that
 * came to that one first comes in again, over the switch outside, as there is room. */
START_TEST(a_host_with_room_is_entered_again_from_outside) {
  enum { ROOT, A, B, SWITCH, NIC };
  for (int first = A; first <= B; first++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct made m;
    bool made;
    start(&m, 3, 3);
    m.network.n_roots = 1;
    m.k = 3;
    join(&m, ROOT, SWITCH, 16);
    for (int i = 0; i < 2; i++) {
      join(&m, SWITCH, NIC + i, A + i == first ? 2 : 3);
      join(&m, NIC + i, A + i, 8);
    }
    m.links[m.network.n_links++] = (struct copse_net_link){A + B - first, first, 4};
    for (int e = 0; e < m.network.n_links; e++) m.capacities[e] = m.links[e].capacity;
    struct copse_forest forest = {.k = m.k};
    struct copse_tree_problem problem = {
        .network = &m.network, .capacities = m.capacities, .k = m.k};
    ASSERT_OK(copse_make_single(&problem, &forest, &made, &err), &err);
    ck_assert(made);
    check_forest(&m, m.k, &forest);
    copse_forest_free(&forest);
  }
}
END_TEST

/* One switch with room for all: each root reaches every other in one hop. */
START_TEST(a_single_switch_is_packed_by_stars) {
  struct made m;
  struct copse_forest forest;
  start(&m, 24, 1);
  for (int i = 0; i < 24; i++) join(&m, i, 24, 1);
  scale(&m);
  ck_assert(pack(&m, m.k, &forest));
  for (int t = 0; t < forest.n_trees; t++) ck_assert_int_eq(forest.trees[t].height, 1);
  copse_forest_free(&forest);
}
END_TEST

START_TEST(weights_count_as_trees) {
  struct made m;
  struct copse_forest forest;
  start(&m, 8, 1);
  for (int i = 0; i < 8; i++) join(&m, i, 8, 1);
  for (int i = 0; i < 8; i++) m.roots[i].weight = 1 + i % 3;
  scale(&m);
  ck_assert(pack(&m, m.k, &forest));
  copse_forest_free(&forest);
}
END_TEST

START_TEST(more_trees_than_the_links_carry_are_not_packed) {
  struct made m;
  struct copse_forest forest;
  make_torus(&m, 3, 3);
  ck_assert(!pack(&m, m.k + 1, &forest));
  ck_assert(!pack(&m, (int64_t)1 << 40, &forest)); /* not even begun */
  copse_forest_free(&forest);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/levels");
  TCase *tests = tcase_create("levels");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, tori_are_packed_at_their_optimum);
  tcase_add_test(tests, what_is_packed_spans_within_the_capacities);
  tcase_add_test(tests, hosts_that_a_tree_is_in_are_searched_without_the_fabric);
  tcase_add_test(tests, a_host_with_room_is_entered_again_from_outside);
  tcase_add_test(tests, a_single_switch_is_packed_by_stars);
  tcase_add_test(tests, weights_count_as_trees);
  tcase_add_test(tests, more_trees_than_the_links_carry_are_not_packed);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
