/* The exact optimum beside every cut and an LP; fixed k beside every candidate. */
#include "solver/trees/optimum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/instance.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

/* x = 1 / (W time), as the solver states it. */
static void rate_of_time(const struct copse_network *network, const mpq_t time, mpq_t x) {
  mpq_set_ui(x, 0, 1);
  for (int i = 0; i < network->n_roots; i++)
    mpz_add_ui(mpq_numref(x), mpq_numref(x), (unsigned long)network->roots[i].weight);
  mpq_mul(x, x, time);
  mpq_inv(x, x);
}

/* The certificate: its cut holds a root, misses a terminal and allows just this rate. */
static void check_cut(const struct copse_test_graph *graph, const struct copse_optimum *optimum) {
  long weight;
  int missed = 0;
  mpq_t leaving, q;
  mpq_inits(leaving, q, NULL);
  copse_test_cut_leaving(graph, optimum->in_cut, leaving, &weight);
  for (int v = 0; v < graph->n_nodes; v++) missed += graph->terminal[v] && !optimum->in_cut[v];
  ck_assert_int_gt(weight, 0);
  ck_assert_int_gt(missed, 0);
  mpq_set_si(q, weight, 1);
  mpq_div(q, leaving, q);
  ck_assert_msg(copse_test_equals_q(q, optimum->x), "the cut does not allow just x");
  mpq_clears(leaving, q, NULL);
}

static void check_optimum(const struct copse_network *network, bool with_lp, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_optimum optimum;
  struct copse_test_graph *graph = copse_test_graph_of_network(network);
  mpq_t time, x;
  mpq_inits(time, x, NULL);
  ASSERT_OK(copse_optimum_find(network, NULL, &optimum, &err), &err);
  bool reachable = copse_test_cut_time(graph, time);
  if (network->n_terminals == 1) {
    ck_assert(optimum.x.num == 0 && optimum.x.den == 1 && optimum.unreached == -1);
  } else if (!reachable) {
    ck_assert_int_eq(optimum.x.num, 0);
    check_cut(graph, &optimum);
    ck_assert(graph->terminal[optimum.unreached] && !optimum.in_cut[optimum.unreached]);
  } else {
    rate_of_time(network, time, x);
    ck_assert_msg(copse_test_equals_q(x, optimum.x), "%s: x is not the best cut's", what);
    check_cut(graph, &optimum);
    double lp = with_lp ? copse_test_lp_time(graph) : mpq_get_d(time);
    ck_assert_msg(fabs(lp - mpq_get_d(time)) <= 1e-9 * lp, "%s: LP %.12g, cuts %.12g", what, lp,
                  mpq_get_d(time));
  }
  copse_optimum_free(&optimum);
  copse_test_graph_free(graph);
  mpq_clears(time, x, NULL);
}

/* All roots, one root, and the reversed graph of a random fabric. */
static void check_fabric(uint64_t seed) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = seed;
  struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
  char what[40];
  for (int variant = 0; variant < 4; variant++) {
    struct copse_instance instance;
    int root = variant < 2 ? -1 : (int)(copse_test_random(&state) % (uint64_t)topology->n_ranks);
    snprintf(what, sizeof what, "seed %d, variant %d", (int)seed, variant);
    ASSERT_OK(copse_instance_make(topology, NULL, root, variant % 2, &instance, &err), &err);
    check_optimum(&instance.network, seed % 4 == 0, what);
    copse_instance_free(&instance);
  }
  copse_topology_free(topology);
}

START_TEST(the_optimum_is_the_worst_cut_of_all_and_the_lp_agrees) {
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 100u : 40u); seed++) check_fabric(100 * (uint64_t)_i + seed);
}
END_TEST

/* A network made directly: any digraph, so often not connected, and roots of any weight. */
struct made {
  struct copse_network network;
  struct copse_net_link links[100];
  int terminals[10];
  struct copse_net_root roots[10];
};

static void make_digraph(struct made *m, uint64_t *state) {
  int n = copse_test_random_int(state, 2, 9), terminals = copse_test_random_int(state, 1, n);
  *m = (struct made){.network = {n, 0, terminals, 0, m->links, m->terminals, m->roots}};
  int density = copse_test_random_int(state, 2, 9);
  for (int u = 0; u < n; u++)
    for (int v = 0; v < n; v++)
      if (u != v && copse_test_random_int(state, 0, 9) < density)
        m->links[m->network.n_links++] =
            (struct copse_net_link){u, v, copse_test_random_int(state, 1, 20)};
  for (int i = 0; i < terminals; i++) m->terminals[i] = n - 1 - i;
  for (int i = 0; i < terminals; i++)
    if (m->network.n_roots == 0 || copse_test_random_int(state, 0, 1))
      m->roots[m->network.n_roots++] =
          (struct copse_net_root){n - 1 - i, copse_test_random_int(state, 1, 5)};
}

START_TEST(weighted_roots_and_unreachable_terminals_are_found_out) {
  for (uint64_t seed = 0; seed < 1500; seed++) {
    uint64_t state = seed;
    struct made m;
    char what[24];
    make_digraph(&m, &state);
    snprintf(what, sizeof what, "seed %d", (int)seed);
    check_optimum(&m.network, seed % 8 == 0, what);
  }
}
END_TEST

START_TEST(a_single_terminal_has_no_bound) {
  struct copse_net_link links[] = {{0, 1, 3}, {1, 0, 3}};
  int terminal = 0;
  struct copse_net_root root = {0, 1};
  struct copse_network network = {2, 2, 1, 1, links, &terminal, &root, 0, NULL, 0};
  check_optimum(&network, false, "single");
}
END_TEST

/* An optimum whose integers do not fit must be said, and never be a wrong answer. */
START_TEST(huge_coprime_capacities_overflow_or_are_exact) {
  int overflows = 0, exact = 0;
  for (uint64_t seed = 0; seed < 600; seed++) {
    uint64_t state = seed;
    struct made m;
    struct copse_optimum optimum;
    struct copse_scale scale;
    struct copse_err err = COPSE_ERR_INIT;
    int bits = copse_test_random_int(&state, 40, 63);
    make_digraph(&m, &state);
    for (int i = 0; i < m.network.n_links; i++)
      m.links[i].capacity = 1 + (int64_t)(copse_test_random(&state) >> (64 - bits));
    copse_status status = copse_optimum_find(&m.network, NULL, &optimum, &err);
    if (status == COPSE_OK) {
      copse_status scaled =
          optimum.x.num > 0 ? copse_optimum_scale(&m.network, optimum.x, &scale, &err) : COPSE_OK;
      ck_assert(scaled == COPSE_OK || scaled == COPSE_OVERFLOW);
      copse_optimum_free(&optimum);
      check_optimum(&m.network, false, "huge");
    }
    ck_assert_msg(status == COPSE_OK || status == COPSE_OVERFLOW, "%s", err.text);
    overflows += status == COPSE_OVERFLOW;
    exact += status == COPSE_OK;
  }
  ck_assert_int_gt(overflows, 50);
  ck_assert_int_gt(exact, 50);
}
END_TEST

START_TEST(an_overflow_is_named) {
  /* at x = 2^60 + 1 the demand is 2^61 + 2, and flows end at 2^61 */
  struct copse_net_link links[] = {{0, 1, ((int64_t)1 << 60) + 1}, {1, 0, ((int64_t)1 << 60) + 1}};
  int terminals[] = {0, 1};
  struct copse_net_root roots[] = {{0, 1}, {1, 1}};
  struct copse_network network = {2, 2, 2, 2, links, terminals, roots, 0, NULL, 0};
  struct copse_optimum optimum;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_FAILS(copse_optimum_find(&network, NULL, &optimum, &err), COPSE_OVERFLOW, &err, "61 bits");
  ck_assert_ptr_null(optimum.in_cut);
}
END_TEST

/* ---- scaling to integers --------------------------------------------------------------- */

/* k is the least for which every k b / x is whole: the LCM of the denominators of b / x. */
START_TEST(the_scale_is_exact_and_its_k_the_least) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct made m;
    struct copse_optimum optimum;
    struct copse_scale scale;
    make_digraph(&m, &state);
    ASSERT_OK(copse_optimum_find(&m.network, NULL, &optimum, &err), &err);
    if (optimum.x.num > 0) {
      mpz_t k;
      mpq_t q, x;
      mpz_init_set_ui(k, 1);
      mpq_inits(q, x, NULL);
      copse_test_set_q(x, optimum.x);
      ASSERT_OK(copse_optimum_scale(&m.network, optimum.x, &scale, &err), &err);
      for (int i = 0; i < m.network.n_links; i++) {
        int64_t capacity = m.links[i].capacity;
        ck_assert_int_eq(capacity % scale.divisor, 0);
        mpq_set_si(q, capacity, 1);
        mpq_div(q, q, x);
        mpz_lcm(k, k, mpq_denref(q));
        mpz_mul_si(mpq_numref(q), mpq_numref(q), scale.k);
        mpq_canonicalize(q);
        ck_assert_int_eq(mpq_cmp_si(q, capacity / scale.divisor * scale.numerator, 1), 0);
      }
      ck_assert_int_eq(mpz_cmp_si(k, scale.k), 0);
      mpz_clear(k);
      mpq_clears(q, x, NULL);
    }
    copse_optimum_free(&optimum);
  }
}
END_TEST

/* ---- fixed k --------------------------------------------------------------------------- */

/* Whether floor(u b) carries k trees per root, by every cut. */
static bool carries(const struct copse_test_graph *graph, const mpq_t u, long k) {
  struct copse_test_graph floors = *graph;
  bool reachable, enough = false;
  mpq_t *floored = calloc((size_t)graph->n_links, sizeof *floored), time, whole;
  ck_assert_ptr_nonnull(floored);
  mpq_inits(time, whole, NULL);
  for (int i = 0; i < graph->n_links; i++) {
    mpq_init(floored[i]);
    mpq_mul(floored[i], graph->bandwidth[i], u);
    mpz_fdiv_q(mpq_numref(floored[i]), mpq_numref(floored[i]), mpq_denref(floored[i]));
    mpz_set_ui(mpq_denref(floored[i]), 1);
  }
  floors.bandwidth = floored;
  reachable = copse_test_cut_time(&floors, time);
  for (int v = 0; v < graph->n_nodes; v++)
    mpz_add_ui(mpq_numref(whole), mpq_numref(whole), (unsigned long)(graph->weight[v] * k));
  mpq_mul(time, time, whole); /* k / x of the floors: 1 or less where they suffice */
  if (reachable) enough = mpq_cmp_ui(time, 1, 1) <= 0;
  for (int i = 0; i < graph->n_links; i++) mpq_clear(floored[i]);
  free(floored);
  mpq_clears(time, whole, NULL);
  return enough;
}

/* The smallest u = m / b that carries k trees, among all of them from k / x upwards. */
static void scan(const struct copse_test_graph *graph, struct copse_q x, long k, mpq_t best) {
  mpq_t candidate, lower, capacity;
  mpq_inits(candidate, lower, capacity, NULL);
  copse_test_set_q(lower, x);
  mpq_inv(lower, lower);
  mpz_mul_si(mpq_numref(lower), mpq_numref(lower), k);
  mpq_canonicalize(lower);
  mpq_set(best, lower);
  if (!carries(graph, lower, k)) {
    mpq_set_ui(best, 1000000, 1);
    for (int i = 0; i < graph->n_links; i++) {
      mpq_mul(capacity, lower, graph->bandwidth[i]);
      mpz_fdiv_q(mpq_numref(candidate), mpq_numref(capacity), mpq_denref(capacity));
      unsigned long m = mpz_get_ui(mpq_numref(candidate));
      for (bool found = false; !found;) {
        mpq_set_ui(candidate, ++m, 1);
        mpq_div(candidate, candidate, graph->bandwidth[i]);
        if (mpq_cmp(candidate, best) >= 0) break;
        found = carries(graph, candidate, k);
        if (found) mpq_set(best, candidate);
      }
    }
  }
  mpq_clears(candidate, lower, capacity, NULL);
}

/* Duplex fabrics: the floors leave every relay balanced, so nothing is trimmed. */
static const struct copse_test_random_options duplex_small = {2, 5, 3, false, true};

struct fixed {
  struct copse_q u;
  int64_t capacities[200];
};

static struct fixed solve_fixed(const struct copse_network *network, struct copse_q x, int64_t k) {
  struct copse_err err = COPSE_ERR_INIT;
  struct fixed f;
  ck_assert_int_le(network->n_links, 200);
  ASSERT_OK(copse_optimum_fixed_k(network, x, k, &f.u, f.capacities, &err), &err);
  return f;
}

START_TEST(fixed_k_finds_the_smallest_u_of_all_candidates) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    uint64_t state = 60 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *topology = copse_test_random_topology(&state, &duplex_small);
    struct copse_instance instance;
    struct copse_optimum optimum;
    int root = seed % 4 == 0 ? 0 : -1;
    ASSERT_OK(copse_instance_make(topology, NULL, root, false, &instance, &err), &err);
    struct copse_test_graph *graph = copse_test_graph_of_network(&instance.network);
    ASSERT_OK(copse_optimum_find(&instance.network, NULL, &optimum, &err), &err);
    mpq_t best;
    mpq_init(best);
    for (int k = 1; k <= 3; k++) {
      struct fixed f = solve_fixed(&instance.network, optimum.x, k);
      scan(graph, optimum.x, k, best);
      ck_assert_msg(copse_test_equals_q(best, f.u), "seed %d, k = %d: not the smallest U",
                    60 * _i + (int)seed, k);
      for (int i = 0; i < instance.network.n_links; i++)
        ck_assert_int_eq(f.capacities[i],
                         (int64_t)((__int128)instance.links[i].capacity * f.u.num / f.u.den));
    }
    mpq_clear(best);
    copse_optimum_free(&optimum);
    copse_test_graph_free(graph);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

static int compare(struct copse_q a, struct copse_q b) {
  mpq_t p, q;
  mpq_inits(p, q, NULL);
  copse_test_set_q(p, a);
  copse_test_set_q(q, b);
  int order = mpq_cmp(p, q);
  mpq_clears(p, q, NULL);
  return order;
}

/* k / x <= U <= k / x + 1 / min b. */
static void check_window(const struct copse_network *network, struct copse_q x, int64_t k,
                         struct copse_q u) {
  mpq_t lower, slack, q;
  int64_t least = INT64_MAX;
  mpq_inits(lower, slack, q, NULL);
  for (int i = 0; i < network->n_links; i++)
    if (network->links[i].capacity < least) least = network->links[i].capacity;
  copse_test_set_q(q, x);
  mpq_set_si(lower, k, 1);
  mpq_div(lower, lower, q);
  copse_test_set_q(q, u);
  ck_assert_int_ge(mpq_cmp(q, lower), 0);
  mpq_set_si(slack, 1, (unsigned long)least);
  mpq_add(lower, lower, slack);
  ck_assert_int_le(mpq_cmp(q, lower), 0);
  mpq_clears(lower, slack, q, NULL);
}

START_TEST(u_grows_with_k_stays_near_the_bound_and_is_exact_at_the_exact_k) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *topology = copse_test_random_topology(&state, &duplex_small);
    struct copse_instance instance;
    struct copse_optimum optimum;
    struct copse_scale scale;
    ASSERT_OK(copse_instance_make(topology, NULL, -1, false, &instance, &err), &err);
    const struct copse_network *network = &instance.network;
    ASSERT_OK(copse_optimum_find(network, NULL, &optimum, &err), &err);
    ASSERT_OK(copse_optimum_scale(network, optimum.x, &scale, &err), &err);
    struct copse_q u[13], twice;
    for (int k = 1; k <= 12; k++) {
      u[k] = solve_fixed(network, optimum.x, k).u;
      check_window(network, optimum.x, k, u[k]);
      if (k > 1) ck_assert_int_ge(compare(u[k], u[k - 1]), 0);
      if (k % 2) continue; /* two copies of the trees for k / 2 always fit */
      ASSERT_OK(copse_q_make(2 * u[k / 2].num, u[k / 2].den, &twice, &err), &err);
      ck_assert_int_le(compare(u[k], twice), 0);
    }
    if (scale.k <= 1000) { /* U x = k: no loss */
      struct fixed f = solve_fixed(network, optimum.x, scale.k);
      ASSERT_OK(copse_q_mul(f.u, optimum.x, &f.u, &err), &err);
      ck_assert(f.u.num == scale.k && f.u.den == 1);
    }
    copse_optimum_free(&optimum);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

/* Links of different bandwidth in and out of a relay: floors differ, some are trimmed. */
START_TEST(trimmed_floors_are_balanced_within_u_and_carry_the_trees) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_instance instance;
    struct copse_optimum optimum;
    ASSERT_OK(copse_instance_make(topology, NULL, -1, false, &instance, &err), &err);
    const struct copse_network *network = &instance.network;
    ASSERT_OK(copse_optimum_find(network, NULL, &optimum, &err), &err);
    for (int64_t k = 1; k <= 7 && topology->n_ranks > 1; k += 3) {
      struct fixed f = solve_fixed(network, optimum.x, k);
      int64_t surplus[32] = {0};
      bool feasible;
      for (int i = 0; i < network->n_links; i++) {
        ck_assert_int_ge(f.capacities[i], 0);
        ck_assert(f.capacities[i] <= (__int128)network->links[i].capacity * f.u.num / f.u.den);
        surplus[network->links[i].dst] += f.capacities[i];
        surplus[network->links[i].src] -= f.capacities[i];
      }
      for (int v = 0; v < network->n_nodes; v++)
        ck_assert(topology->nodes[v].rank >= 0 || surplus[v] == 0);
      ASSERT_OK(copse_optimum_feasible(network, f.capacities, k, &feasible, &err), &err);
      ck_assert(feasible);
    }
    copse_optimum_free(&optimum);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/optimum");
  TCase *tests = tcase_create("optimum");
  tcase_add_loop_test(tests, the_optimum_is_the_worst_cut_of_all_and_the_lp_agrees, 0, 3);
  tcase_add_test(tests, weighted_roots_and_unreachable_terminals_are_found_out);
  tcase_add_test(tests, a_single_terminal_has_no_bound);
  tcase_add_test(tests, huge_coprime_capacities_overflow_or_are_exact);
  tcase_add_test(tests, an_overflow_is_named);
  tcase_add_test(tests, the_scale_is_exact_and_its_k_the_least);
  tcase_add_loop_test(tests, fixed_k_finds_the_smallest_u_of_all_candidates, 0, 2);
  tcase_add_test(tests, u_grows_with_k_stays_near_the_bound_and_is_exact_at_the_exact_k);
  tcase_add_test(tests, trimmed_floors_are_balanced_within_u_and_carry_the_trees);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
