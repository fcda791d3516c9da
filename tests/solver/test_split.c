/* Edge splitting: relays gone, every terminal still served, paths within capacity. */
#include "solver/trees/general.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/instance.h"
#include "solver/trees/optimum.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

/* A network with the capacities that are to be split, and what came of it. */
struct problem {
  const struct copse_network *network;
  const int64_t *capacities;
  int64_t k;
  int trust_from;
  struct copse_flow *flow;
  struct copse_paths *paths;
};

static copse_status split(struct problem *p, struct copse_err *err) {
  struct copse_tree_problem problem = {
      .network = p->network, .capacities = p->capacities, .k = p->k, .trust_from = p->trust_from};
  copse_status status = copse_paths_new(p->network, p->capacities, &p->paths, err);
  if (status != COPSE_OK) return status;
  return copse_split_relays(&problem, p->paths, &p->flow, err);
}

static void release(struct problem *p) {
  copse_flow_free(p->flow);
  copse_paths_free(p->paths);
}

static bool is_terminal(const struct copse_network *network, int node) {
  for (int i = 0; i < network->n_terminals; i++)
    if (network->terminals[i] == node) return true;
  return false;
}

static void check_relays_are_gone(const struct problem *p) {
  for (int v = 0; v < p->network->n_nodes; v++) {
    if (is_terminal(p->network, v)) continue;
    ck_assert_int_eq(copse_flow_leaving(p->flow, v).n, 0);
    ck_assert_int_eq(copse_flow_entering(p->flow, v).n, 0);
  }
}

/* By the plain algorithm: k per unit of weight from every root to every terminal. */
static void check_service(const struct problem *p) {
  int n = p->network->n_nodes, source = n;
  int64_t *matrix = calloc((size_t)((n + 1) * (n + 1)), sizeof *matrix), demand = 0;
  ck_assert_ptr_nonnull(matrix);
  for (int i = 0; i < p->network->n_terminals; i++) {
    memset(matrix, 0, (size_t)((n + 1) * (n + 1)) * sizeof *matrix);
    for (int u = 0; u < n; u++)
      for (int v = 0; v < n; v++) matrix[u * (n + 1) + v] = copse_flow_capacity(p->flow, u, v);
    demand = 0;
    for (int r = 0; r < p->network->n_roots; r++) {
      const struct copse_net_root *root = &p->network->roots[r];
      matrix[source * (n + 1) + root->node] = root->weight * p->k;
      demand += root->weight * p->k;
    }
    int64_t got = copse_test_simple_flow(n + 1, matrix, source, p->network->terminals[i]);
    ck_assert_msg(got == demand, "terminal %d receives %ld of %ld", p->network->terminals[i],
                  (long)got, (long)demand);
  }
  free(matrix);
}

static void add_load(const struct problem *p, const int *nodes, int n, int64_t amount,
                     int64_t *loads) {
  for (int i = 0; i + 1 < n; i++) {
    int link = -1;
    for (int l = 0; l < p->network->n_links; l++)
      if (p->network->links[l].src == nodes[i] && p->network->links[l].dst == nodes[i + 1])
        link = l;
    ck_assert_int_ge(link, 0);
    if (i > 0) ck_assert(!is_terminal(p->network, nodes[i]));
    loads[link] += amount;
  }
}

/* All that a logical link offers, taken out and laid on the physical links. */
static void take_link(const struct problem *p, int u, int v, int64_t *loads) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_pieces pieces = {0};
  int64_t amount = copse_flow_capacity(p->flow, u, v), sum = 0;
  int *nodes = calloc((size_t)p->network->n_nodes + 1, sizeof *nodes);
  ck_assert_ptr_nonnull(nodes);
  ASSERT_OK(copse_paths_take(p->paths, u, v, amount, &pieces, &err), &err);
  for (size_t i = 0; i < pieces.n; i++) {
    int length = copse_paths_expand(p->paths, pieces.list[i].path, nodes);
    ck_assert_int_ge(length, 2);
    ck_assert(nodes[0] == u && nodes[length - 1] == v && pieces.list[i].amount > 0);
    add_load(p, nodes, length, pieces.list[i].amount, loads);
    sum += pieces.list[i].amount;
  }
  ck_assert_int_eq(sum, amount);
  ck_assert_int_eq(copse_paths_take(p->paths, u, v, 1, &pieces, NULL),
                   COPSE_INTERNAL); /* and nothing is left */
  free(nodes);
  free(pieces.list);
}

static void check_paths(const struct problem *p) {
  int64_t *loads = calloc((size_t)p->network->n_links + 1, sizeof *loads);
  ck_assert_ptr_nonnull(loads);
  for (int u = 0; u < p->network->n_nodes; u++)
    for (int v = 0; v < p->network->n_nodes; v++)
      if (u != v) take_link(p, u, v, loads);
  for (int i = 0; i < p->network->n_links; i++) ck_assert_int_le(loads[i], p->capacities[i]);
  free(loads);
}

/* By trust, as large networks are split, and carefully. */
static void check_split(const struct copse_network *network, const int64_t *capacities, int64_t k) {
  struct copse_err err = COPSE_ERR_INIT;
  for (int careful = 0; careful < 2; careful++) {
    struct problem p = {network, capacities, k, careful ? INT_MAX : 1, NULL, NULL};
    ASSERT_OK(split(&p, &err), &err);
    check_relays_are_gone(&p);
    check_service(&p);
    check_paths(&p);
    release(&p);
  }
}

/* At the optimum no capacity is spare, with fewer trees some is: both must hold. */
static void check_instance(const struct copse_network *network) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_optimum optimum;
  struct copse_scale scale;
  int64_t *capacities = calloc((size_t)network->n_links + 1, sizeof *capacities);
  ck_assert_ptr_nonnull(capacities);
  ASSERT_OK(copse_optimum_find(network, NULL, &optimum, &err), &err);
  ASSERT_OK(copse_optimum_scale(network, optimum.x, &scale, &err), &err);
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = network->links[i].capacity / scale.divisor * scale.numerator;
  check_split(network, capacities, scale.k);
  if (scale.k > 1) check_split(network, capacities, scale.k - 1);
  if (scale.k > 2) check_split(network, capacities, 1);
  copse_optimum_free(&optimum);
  free(capacities);
}

static const struct copse_test_random_options shapes[] = {
    {2, 8, 8, false, true}, {2, 8, 8, true, true}, {2, 4, 12, true, false}};

START_TEST(splitting_random_fabrics_keeps_every_terminal_served) {
  for (uint64_t seed = 0; seed < 160; seed++) {
    uint64_t state = 160 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[_i]);
    int root = seed % 3 == 0 ? copse_test_random_int(&state, 0, topology->n_ranks - 1) : -1;
    ASSERT_OK(copse_instance_make(topology, NULL, root, seed % 2, &instance, &err), &err);
    check_instance(&instance.network);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

/* ---- networks of directed closed walks: balanced, and nothing is duplex --------------- */

struct made {
  struct copse_network network;
  struct copse_net_link links[200];
  int terminals[16];
  struct copse_net_root roots[16];
};

static void add_capacity(struct made *m, int src, int dst, int64_t capacity) {
  if (src == dst) return;
  for (int i = 0; i < m->network.n_links; i++) {
    if (m->links[i].src != src || m->links[i].dst != dst) continue;
    m->links[i].capacity += capacity;
    return;
  }
  m->links[m->network.n_links++] = (struct copse_net_link){src, dst, capacity};
}

/* Closed walks keep every node balanced; the first one visits all nodes. */
static void make_eulerian(struct made *m, uint64_t *state) {
  int n = copse_test_random_int(state, 4, 12), terminals = copse_test_random_int(state, 2, n - 1);
  *m = (struct made){.network = {n, 0, terminals, 0, m->links, m->terminals, m->roots}};
  int order[12];
  for (int v = 0; v < n; v++) order[v] = v;
  for (int walk = 0; walk < 5; walk++) {
    for (int i = n - 1; i > 0; i--) {
      int j = copse_test_random_int(state, 0, i), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    int length = walk == 0 ? n : copse_test_random_int(state, 2, n);
    int64_t capacity = copse_test_random_int(state, 1, 9);
    for (int i = 0; i < length; i++) add_capacity(m, order[i], order[(i + 1) % length], capacity);
  }
  for (int i = 0; i < terminals; i++) m->terminals[i] = n - 1 - i;
  for (int i = 0; i < terminals; i++)
    if (m->network.n_roots == 0 || copse_test_random_int(state, 0, 2))
      m->roots[m->network.n_roots++] =
          (struct copse_net_root){n - 1 - i, copse_test_random_int(state, 1, 3)};
}

START_TEST(splitting_one_way_balanced_networks_with_weighted_roots) {
  for (uint64_t seed = 0; seed < 250; seed++) {
    uint64_t state = seed;
    struct made m;
    make_eulerian(&m, &state);
    check_instance(&m.network);
  }
}
END_TEST

/* ---- shapes that contraction alone must settle ------------------------------------------ */

static void duplex(struct made *m, int a, int b, int64_t capacity) {
  add_capacity(m, a, b, capacity);
  add_capacity(m, b, a, capacity);
}

/* n nodes of which the first two are terminals and roots */
static void start_pair(struct made *m, int n) {
  *m = (struct made){.network = {n, 0, 2, 2, m->links, m->terminals, m->roots}};
  for (int i = 0; i < 2; i++) {
    m->terminals[i] = i;
    m->roots[i] = (struct copse_net_root){i, 1};
  }
}

static void check_pair(struct made *m, int64_t direct) {
  struct copse_err err = COPSE_ERR_INIT;
  int64_t capacities[200];
  struct problem p = {&m->network, capacities, 1, INT_MAX, NULL, NULL};
  for (int i = 0; i < m->network.n_links; i++) capacities[i] = m->links[i].capacity;
  ASSERT_OK(split(&p, &err), &err);
  check_relays_are_gone(&p);
  ck_assert_int_eq(copse_flow_capacity(p.flow, 0, 1), direct);
  ck_assert_int_eq(copse_flow_capacity(p.flow, 1, 0), direct);
  check_paths(&p);
  release(&p);
}

START_TEST(a_chain_of_relays_becomes_its_narrowest_link) {
  struct made m;
  start_pair(&m, 6);
  duplex(&m, 0, 2, 7);
  duplex(&m, 2, 3, 5);
  duplex(&m, 3, 4, 3);
  duplex(&m, 4, 5, 8);
  duplex(&m, 5, 1, 9);
  check_pair(&m, 3);
}
END_TEST

START_TEST(leaves_and_islands_of_relays_vanish) {
  struct made m;
  start_pair(&m, 8);
  duplex(&m, 0, 1, 4);
  duplex(&m, 0, 2, 9); /* a leaf on a terminal, and one on that leaf */
  duplex(&m, 2, 3, 9);
  duplex(&m, 4, 5, 2); /* an island: a triangle with a leaf */
  duplex(&m, 5, 6, 3);
  duplex(&m, 6, 4, 4);
  duplex(&m, 6, 7, 1);
  check_pair(&m, 4);
}
END_TEST

START_TEST(parallel_ways_through_relays_add_up) {
  struct made m;
  start_pair(&m, 4);
  duplex(&m, 0, 1, 1);
  duplex(&m, 0, 2, 6);
  duplex(&m, 2, 1, 4);
  duplex(&m, 0, 3, 2);
  duplex(&m, 3, 1, 5);
  check_pair(&m, 1 + 4 + 2);
}
END_TEST

/* A switch of three GPUs, 4 up and 4 down each: 2 from each to each. */
START_TEST(a_switch_is_spread_evenly_where_nothing_is_spare) {
  struct made m = {.network = {4, 0, 3, 3, m.links, m.terminals, m.roots}};
  int64_t capacities[6];
  struct problem p = {&m.network, capacities, 2, INT_MAX, NULL, NULL};
  struct copse_err err = COPSE_ERR_INIT;
  for (int i = 0; i < 3; i++) {
    m.terminals[i] = i;
    m.roots[i] = (struct copse_net_root){i, 1};
    duplex(&m, i, 3, 4);
  }
  for (int i = 0; i < 6; i++) capacities[i] = 4;
  ASSERT_OK(split(&p, &err), &err);
  check_relays_are_gone(&p);
  check_service(&p);
  for (int u = 0; u < 3; u++)
    for (int v = 0; v < 3; v++)
      if (u != v) ck_assert_int_eq(copse_flow_capacity(p.flow, u, v), 2);
  release(&p);
}
END_TEST

/* ---- what must not go by in silence ----------------------------------------------------- */

START_TEST(an_unbalanced_relay_is_an_internal_error_not_a_wrong_answer) {
  /* relay 3 takes in 6 and lets out 9 */
  struct copse_net_link links[] = {{0, 3, 2}, {1, 3, 2}, {2, 3, 2},
                                   {3, 0, 3}, {3, 1, 3}, {3, 2, 3}};
  int64_t capacities[] = {2, 2, 2, 3, 3, 3};
  int terminals[] = {0, 1, 2};
  struct copse_net_root roots[] = {{0, 1}, {1, 1}, {2, 1}};
  struct copse_network network = {4, 6, 3, 3, links, terminals, roots, 0, NULL, 0};
  struct problem p = {&network, capacities, 1, INT_MAX, NULL, NULL};
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_FAILS(split(&p, &err), COPSE_INTERNAL, &err, "edge splitting");
  ck_assert_ptr_null(p.flow);
  release(&p);
}
END_TEST

START_TEST(trees_that_the_network_does_not_carry_are_an_internal_error) {
  struct made m = {.network = {4, 0, 3, 3, m.links, m.terminals, m.roots}};
  int64_t capacities[6] = {4, 4, 4, 4, 4, 4};
  struct problem p = {&m.network, capacities, 3, INT_MAX, NULL, NULL}; /* 2 are the most */
  struct copse_err err = COPSE_ERR_INIT;
  for (int i = 0; i < 3; i++) {
    m.terminals[i] = i;
    m.roots[i] = (struct copse_net_root){i, 1};
    duplex(&m, i, 3, 4);
  }
  ASSERT_FAILS(split(&p, &err), COPSE_INTERNAL, &err, "edge splitting");
  release(&p);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/split");
  TCase *tests = tcase_create("split");
  tcase_add_loop_test(tests, splitting_random_fabrics_keeps_every_terminal_served, 0,
                      (int)(sizeof shapes / sizeof *shapes));
  tcase_add_test(tests, splitting_one_way_balanced_networks_with_weighted_roots);
  tcase_add_test(tests, a_chain_of_relays_becomes_its_narrowest_link);
  tcase_add_test(tests, leaves_and_islands_of_relays_vanish);
  tcase_add_test(tests, parallel_ways_through_relays_add_up);
  tcase_add_test(tests, a_switch_is_spread_evenly_where_nothing_is_spare);
  tcase_add_test(tests, an_unbalanced_relay_is_an_internal_error_not_a_wrong_answer);
  tcase_add_test(tests, trees_that_the_network_does_not_carry_are_an_internal_error);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
