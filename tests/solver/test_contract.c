/* Networks without relays that never bind: cuts, amounts and joint optima are those of the whole.
 */
#include "solver/network/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/network/flow.h"
#include "solver/joint/joint.h"
#include "support/oracle_groups.h"
#include "support/random.h"
#include "support/support.h"

#define MOST_NODES 14
#define MOST_LINKS 60

/* Terminals 0 .. n_terminals - 1; some hang on two switches by chains of relays of any width, some
 * are joined with each other, and the switches hang on a spine. */
struct fabric {
  struct copse_network network;
  struct copse_net_link links[MOST_LINKS];
  int n_terminals;
  bool fixed[MOST_NODES], apart[MOST_NODES];
};

static void join_unevenly(struct fabric *f, int v, int w, int64_t to, int64_t back) {
  f->links[f->network.n_links++] = (struct copse_net_link){v, w, to};
  f->links[f->network.n_links++] = (struct copse_net_link){w, v, back};
}

static void join(struct fabric *f, int v, int w, int64_t capacity) {
  join_unevenly(f, v, w, capacity, capacity);
}

/* One in three links has another capacity back. */
static void draw_link(uint64_t *state, struct fabric *f, int v, int w, int low, int high) {
  int to = copse_test_random_int(state, low, high), back = to;
  if (copse_test_random_int(state, 0, 2) == 0) back = copse_test_random_int(state, low, high);
  join_unevenly(f, v, w, to, back);
}

static void draw(uint64_t *state, struct fabric *f) {
  memset(f, 0, sizeof *f);
  f->n_terminals = copse_test_random_int(state, 2, 4);
  int spine = f->n_terminals, n = spine + 3;
  for (int v = 0; v < f->n_terminals; v++) {
    int last = v;
    f->fixed[v] = true;
    for (int length = copse_test_random_int(state, 0, 2); length > 0 && n < MOST_NODES; length--) {
      draw_link(state, f, last, n, 1, 6);
      last = n++;
    }
    draw_link(state, f, last, spine + copse_test_random_int(state, 1, 2), 1, 6);
  }
  for (int i = 1; i <= 2; i++) draw_link(state, f, spine, spine + i, 2, 12);
  for (int v = 1; v < f->n_terminals; v++)
    if (copse_test_random_int(state, 0, 2) == 0) draw_link(state, f, v - 1, v, 1, 6);
  f->network.n_nodes = n;
  f->network.links = f->links;
}

static struct copse_contraction contract(const struct fabric *f) {
  struct copse_contraction c;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_contract(&f->network, f->fixed, f->apart, &c, &err), &err);
  return c;
}

/* The largest flow between two nodes; capacities NULL: the links' own. */
static int64_t max_flow(const struct copse_network *network, const int64_t *capacities, int from,
                        int to) {
  struct copse_flow *flow;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_flow_new(network->n_nodes, &flow, &err), &err);
  for (int e = 0; e < network->n_links; e++)
    ASSERT_OK(copse_flow_change(flow, network->links[e].src, network->links[e].dst,
                                capacities ? capacities[e] : network->links[e].capacity, &err),
              &err);
  int64_t value = copse_flow_max(flow, from, to, COPSE_FLOW_MAX - 1);
  copse_flow_free(flow);
  return value;
}

/* ---- cuts and amounts ---------------------------------------------------------------------- */

static void expect_single_links(const struct copse_network *network) {
  for (int e = 0; e < network->n_links; e++) {
    ck_assert_int_ne(network->links[e].src, network->links[e].dst);
    for (int f = 0; f < e; f++)
      ck_assert(network->links[e].src != network->links[f].src ||
                network->links[e].dst != network->links[f].dst);
  }
}

START_TEST(flows_between_terminals_are_as_large) {
  int merges = 0, left = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    struct fabric f;
    uint64_t state = seed;
    draw(&state, &f);
    struct copse_contraction c = contract(&f);
    expect_single_links(&c.network);
    ck_assert_int_eq(c.network.n_nodes + c.n_merges, f.network.n_nodes);
    merges += c.n_merges;
    left += c.network.n_nodes - f.n_terminals;
    for (int v = 0; v < f.n_terminals; v++)
      for (int w = 0; w < f.n_terminals; w++)
        if (v != w)
          ck_assert_int_eq(max_flow(&c.network, NULL, c.node[v], c.node[w]),
                           max_flow(&f.network, NULL, v, w));
    copse_contraction_free(&c);
  }
  ck_assert_int_gt(merges, 300);
  ck_assert_int_gt(left, 100);
}
END_TEST

/* Ways at random between terminals, as long as there is room. */
static void fill(uint64_t *state, const struct fabric *f, const struct copse_contraction *c,
                 int64_t *amounts) {
  for (int tries = 0; tries < 40; tries++) {
    int way[200], n = 0, at = c->node[copse_test_random_int(state, 0, f->n_terminals - 1)];
    bool ends = false;
    while (!ends && n < 200) {
      int e = copse_test_random_int(state, 0, c->network.n_links - 1);
      if (c->network.links[e].src != at) continue;
      way[n++] = e;
      at = c->network.links[e].dst;
      for (int v = 0; v < f->n_terminals; v++) ends = ends || c->node[v] == at;
    }
    for (int i = 0; i < n; i++) amounts[way[i]]++;
    bool good = ends;
    for (int i = 0; i < n; i++) good = good && amounts[way[i]] <= c->network.links[way[i]].capacity;
    for (int i = 0; i < n && !good; i++) amounts[way[i]]--;
  }
}

START_TEST(amounts_go_round_in_the_whole_network) {
  int64_t all = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    struct fabric f;
    uint64_t state = 1000 + seed;
    int64_t small[MOST_LINKS] = {0}, whole[MOST_LINKS];
    draw(&state, &f);
    struct copse_contraction c = contract(&f);
    fill(&state, &f, &c, small);
    copse_contraction_lift(&c, small, whole, f.network.n_links);
    for (int e = 0; e < f.network.n_links; e++) {
      all += whole[e];
      ck_assert(whole[e] >= 0 && whole[e] <= f.links[e].capacity);
      if (c.link[e] >= 0) ck_assert_int_eq(whole[e], small[c.link[e]]);
    }
    for (int v = f.n_terminals; v < f.network.n_nodes; v++) {
      int64_t gain = 0;
      for (int e = 0; e < f.network.n_links; e++)
        gain += (f.links[e].dst == v ? whole[e] : 0) - (f.links[e].src == v ? whole[e] : 0);
      ck_assert_int_eq(gain, 0);
    }
    for (int v = 0; v < f.n_terminals; v++)
      for (int w = 0; w < f.n_terminals; w++)
        if (v != w)
          ck_assert_int_eq(max_flow(&c.network, small, c.node[v], c.node[w]),
                           max_flow(&f.network, whole, v, w));
    copse_contraction_free(&c);
  }
  ck_assert_int_gt(all, 10000);
}
END_TEST

/* 0 - 2 - 1, and 2 is apart: nothing becomes part of it, nor it of others. */
START_TEST(nodes_apart_stay_as_they_are) {
  struct fabric f = {.n_terminals = 2, .fixed = {true, true}};
  f.network.n_nodes = 3;
  f.network.links = f.links;
  join(&f, 0, 2, 5);
  join(&f, 2, 1, 4);
  struct copse_contraction c = contract(&f);
  ck_assert_int_eq(c.network.n_nodes, 2);
  ck_assert_int_eq(c.network.n_links, 2);
  ck_assert_int_eq(c.network.links[0].capacity, 4);
  copse_contraction_free(&c);
  f.apart[2] = true;
  c = contract(&f);
  ck_assert_int_eq(c.network.n_nodes, 3);
  copse_contraction_free(&c);
  f.apart[2] = false;
  f.apart[0] = true; /* where it would go */
  c = contract(&f);
  ck_assert_int_eq(c.network.n_nodes, 3);
  copse_contraction_free(&c);
}
END_TEST

START_TEST(a_permutation_that_parts_nodes_has_no_image) {
  static const int swap[] = {1, 0, 2}, turn[] = {2, 0, 1};
  struct fabric f = {.n_terminals = 2, .fixed = {true, true}};
  int image[3];
  f.network.n_nodes = 3;
  f.network.links = f.links;
  join(&f, 0, 2, 5);
  join(&f, 2, 1, 4);
  struct copse_contraction c = contract(&f);
  ck_assert_int_eq(c.node[2], c.node[0]);
  ck_assert(!copse_contraction_map(&c, swap, image, 3));
  ck_assert(!copse_contraction_map(&c, turn, image, 3));
  static const int stay[] = {0, 1, 2};
  ck_assert(copse_contraction_map(&c, stay, image, 3));
  ck_assert_int_eq(image[0], 0);
  copse_contraction_free(&c);
}
END_TEST

/* ---- joint optima -------------------------------------------------------------------------- */

static void draw_group(uint64_t *state, const struct fabric *f, int *members,
                       struct copse_joint_group *g) {
  int kind = copse_test_random_int(state, 0, 3), n = 0;
  while (n < 2) {
    n = 0;
    for (int v = 0; v < f->n_terminals; v++)
      if (copse_test_random_int(state, 0, 2)) members[n++] = v;
  }
  *g = (struct copse_joint_group){.n_members = n,
                                  .members = members,
                                  .broadcasts = kind == 0 || kind == 2,
                                  .reduces = kind == 1 || kind == 2,
                                  .exchanges = kind == 3,
                                  .root = -1};
}

/* GPUs that are closed to a group make fewer merges; one that relays for all others none less. */
START_TEST(joint_optima_are_those_of_the_lp_over_the_whole) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    struct fabric f;
    struct copse_joint joint;
    struct copse_joint_group groups[2];
    struct copse_joint_options options = {.max_columns = 10000};
    struct copse_err err = COPSE_ERR_INIT;
    uint64_t state = 5000 + 40 * (uint64_t)_i + seed;
    int members[2][MOST_NODES];
    bool closed[MOST_NODES] = {false};
    draw(&state, &f);
    for (int g = 0; g < 2; g++) draw_group(&state, &f, members[g], &groups[g]);
    if (seed % 3 == 0) {
      for (int v = 0; v < f.n_terminals; v++) closed[v] = true;
      for (int i = 0; i < groups[0].n_members; i++) closed[members[0][i]] = false;
      groups[0].closed = closed;
    }
    ASSERT_OK(copse_joint_find(&f.network, groups, 2, &options, &joint, &err), &err);
    ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
    double expected = copse_test_lp_groups_rate(&f.network, groups, 2, 1, false);
    double rate = copse_q_to_double(joint.rate);
    ck_assert_msg(fabs(rate - expected) <= 1e-7 * fmax(1, expected), "seed %d: %.12g, the LP %.12g",
                  (int)seed, rate, expected);
    const char *defect =
        rate > 0 ? copse_test_joint_defect(&f.network, groups, 2, &joint, 0) : NULL;
    ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
    copse_joint_free(&joint);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("contract");
  TCase *tc = tcase_create("contract");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, flows_between_terminals_are_as_large);
  tcase_add_test(tc, amounts_go_round_in_the_whole_network);
  tcase_add_test(tc, nodes_apart_stay_as_they_are);
  tcase_add_test(tc, a_permutation_that_parts_nodes_has_no_image);
  tcase_add_loop_test(tc, joint_optima_are_those_of_the_lp_over_the_whole, 0, 4);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
