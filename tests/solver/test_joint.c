/* The joint optimum of groups that share a fabric: two LPs written down whole, known answers, and
 * the proof. */
#include "solver/joint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/instance.h"
#include "solver/shares.h"
#include "support/oracle_groups.h"
#include "support/random_topology.h"
#include "support/support.h"

#define MOST_GROUPS 3
#define GROUP(n, nodes, out, in) \
  { .n_members = n, .members = nodes, .broadcasts = out, .reduces = in, .root = -1 }

/* A fabric with groups on it, at random. */
struct trial {
  struct copse_topology *topology;
  struct copse_instance instance;
  struct copse_joint_group groups[MOST_GROUPS];
  int n;
};

static void draw_group(uint64_t *state, const struct copse_topology *t,
                       struct copse_joint_group *g) {
  int *members = calloc((size_t)t->n_ranks, sizeof *members);
  int kind = copse_test_random_int(state, 0, 4), n = 0;
  ck_assert_ptr_nonnull(members);
  while (n < 2) {
    n = 0;
    for (int r = 0; r < t->n_ranks; r++)
      if (copse_test_random_int(state, 0, 2)) members[n++] = t->rank_nodes[r];
  }
  *g = (struct copse_joint_group)GROUP(n, members, kind != 1 && kind != 4, kind == 1 || kind == 2);
  g->exchanges = kind == 4;
  if (kind == 3) g->root = members[copse_test_random_int(state, 0, n - 1)];
  if (copse_test_random_int(state, 0, 2) == 0) {
    bool *closed = calloc((size_t)t->n_nodes, sizeof *closed);
    ck_assert_ptr_nonnull(closed);
    for (int r = 0; r < t->n_ranks; r++) closed[t->rank_nodes[r]] = true;
    for (int i = 0; i < n; i++) closed[members[i]] = false;
    g->closed = closed;
  }
}

static void draw(uint64_t seed, struct trial *trial) {
  static const struct copse_test_random_options tiny = {2, 6, 3, true, true};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = seed;
  memset(trial, 0, sizeof *trial);
  trial->topology = copse_test_random_topology(&state, &tiny);
  ASSERT_OK(copse_instance_make(trial->topology, "test.json", -1, false, &trial->instance, &err),
            &err);
  trial->n = copse_test_random_int(&state, 1, MOST_GROUPS);
  for (int g = 0; g < trial->n; g++) draw_group(&state, trial->topology, &trial->groups[g]);
}

static void release(struct trial *trial) {
  for (int g = 0; g < trial->n; g++) {
    free((int *)trial->groups[g].members);
    free((bool *)trial->groups[g].closed);
  }
  copse_instance_free(&trial->instance);
  copse_topology_release(trial->topology);
}

static void find(const struct copse_network *network, const struct copse_joint_group *groups, int n,
                 struct copse_joint *out) {
  struct copse_joint_options options = {.max_columns = 10000};
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_joint_find(network, groups, n, &options, out, &err), &err);
}

/* Closed nodes may cut a group in parts: then nothing is possible, and there is no proof. */
static bool check(uint64_t seed) {
  struct trial trial;
  struct copse_joint joint;
  draw(seed, &trial);
  const struct copse_network *network = &trial.instance.network;
  find(network, trial.groups, trial.n, &joint);
  ck_assert_msg(joint.outcome == COPSE_JOINT_PROVED, "seed %d: outcome %d", (int)seed,
                joint.outcome);
  double expected = copse_test_lp_groups_rate(network, trial.groups, trial.n, false);
  double rate = copse_q_to_double(joint.rate);
  ck_assert_msg(fabs(rate - expected) <= 1e-7 * fmax(1, expected), "seed %d: %.12g, the LP %.12g",
                (int)seed, rate, expected);
  if (network->n_nodes <= 7) {
    expected = copse_test_lp_groups_rate(network, trial.groups, trial.n, true);
    ck_assert_msg(fabs(rate - expected) <= 1e-7 * fmax(1, expected),
                  "seed %d: %.12g, the LP over cuts %.12g", (int)seed, rate, expected);
  }
  if (rate > 0) {
    const char *defect = copse_test_joint_defect(network, trial.groups, trial.n, &joint);
    ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
  }
  bool shared = trial.n > 1 && rate > 0;
  copse_joint_free(&joint);
  release(&trial);
  return shared;
}

START_TEST(the_optimum_is_that_of_the_lps) {
  int shared = 0;
  for (int seed = 0; seed < 40; seed++) shared += check(40 * (uint64_t)_i + (uint64_t)seed);
  ck_assert_int_gt(shared, 10);
}
END_TEST

/* Two boxes: members 0-2 and 3-5 on switches 6 and 7, which a link of `between` joins. */
static void two_boxes(int64_t box, int64_t between, struct copse_net_link links[14]) {
  int n = 0;
  for (int v = 0; v < 6; v++) {
    links[n++] = (struct copse_net_link){v, 6 + v / 3, box};
    links[n++] = (struct copse_net_link){6 + v / 3, v, box};
  }
  links[n++] = (struct copse_net_link){6, 7, between};
  links[n++] = (struct copse_net_link){7, 6, between};
}

static void expect_rate(const struct copse_net_link *links, const struct copse_joint_group *groups,
                        int n, struct copse_q rate) {
  struct copse_network network = {.n_nodes = 8, .n_links = 14, .links = links};
  struct copse_joint joint;
  char text[COPSE_Q_TEXT];
  find(&network, groups, n, &joint);
  ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
  ck_assert_msg(copse_q_eq(joint.rate, rate), "rate %s", copse_q_text(joint.rate, text));
  ck_assert_ptr_null(copse_test_joint_defect(&network, groups, n, &joint));
  copse_joint_free(&joint);
}

static const int left[] = {0, 1, 2}, right[] = {3, 4, 5}, pairs[3][2] = {{0, 3}, {1, 4}, {2, 5}};

/* Groups that meet nowhere have what each has alone: an allgather of 3 takes in 2/3 of its data. */
START_TEST(groups_apart_do_not_slow_each_other) {
  struct copse_net_link links[14];
  struct copse_joint_group groups[] = {GROUP(3, left, true, false), GROUP(3, right, true, false)};
  two_boxes(12, 1, links);
  expect_rate(links, groups, 1, (struct copse_q){18, 1});
  expect_rate(links, groups, 2, (struct copse_q){18, 1});
}
END_TEST

START_TEST(alike_groups_get_half_each) {
  struct copse_net_link links[14];
  struct copse_joint_group groups[] = {GROUP(3, left, true, false), GROUP(3, left, true, false)};
  two_boxes(12, 1, links);
  expect_rate(links, groups, 2, (struct copse_q){9, 1});
}
END_TEST

/* Worked out by hand. Three pairs across: each sends half of its data over the link between,
 * 3 * R/2 <= 6. With the allgathers in the boxes each GPU takes in R/2 + 2/3 R <= 12 at R <= 72/7,
 * so the link between decides, or, where it is wide, the GPUs. */
START_TEST(tensor_groups_in_boxes_and_data_groups_across) {
  struct copse_net_link links[14];
  struct copse_joint_group groups[] = {
      GROUP(3, left, true, false), GROUP(3, right, true, false), GROUP(2, pairs[0], true, false),
      GROUP(2, pairs[1], true, false), GROUP(2, pairs[2], true, false)};
  two_boxes(12, 6, links);
  expect_rate(links, groups, 5, (struct copse_q){4, 1});
  two_boxes(12, 600, links);
  expect_rate(links, groups, 5, (struct copse_q){72, 7});
}
END_TEST

/* One group that reduces and broadcasts is the problem of solver/shares.h. */
START_TEST(one_group_with_free_shares_is_an_allreduce) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    struct trial trial;
    struct copse_joint joint;
    struct copse_shares shares;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_shares_options options = {.at_least = COPSE_Q_ZERO, .max_columns = 10000};
    draw(1000 + seed, &trial);
    const struct copse_network *network = &trial.instance.network;
    struct copse_joint_group all = GROUP(network->n_terminals, network->terminals, true, true);
    find(network, &all, 1, &joint);
    ASSERT_OK(copse_shares_find(network, &options, &shares, &err), &err);
    ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
    ck_assert_int_eq(shares.outcome, COPSE_SHARES_PROVED);
    ck_assert_msg(copse_q_eq(joint.rate, shares.rate), "seed %d", (int)seed);
    copse_shares_free(&shares);
    copse_joint_free(&joint);
    release(&trial);
  }
}
END_TEST

START_TEST(too_many_columns_are_not_tried) {
  struct copse_net_link links[14];
  struct copse_joint_group group = GROUP(3, left, true, false);
  struct copse_network network = {.n_nodes = 8, .n_links = 14, .links = links};
  struct copse_joint_options options = {.max_columns = 5};
  struct copse_joint joint;
  struct copse_err err = COPSE_ERR_INIT;
  two_boxes(12, 1, links);
  ASSERT_OK(copse_joint_find(&network, &group, 1, &options, &joint, &err), &err);
  ck_assert_int_eq(joint.outcome, COPSE_JOINT_TOO_LARGE);
  copse_joint_free(&joint);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("joint");
  TCase *tc = tcase_create("joint");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, the_optimum_is_that_of_the_lps, 0, 10);
  tcase_add_test(tc, groups_apart_do_not_slow_each_other);
  tcase_add_test(tc, alike_groups_get_half_each);
  tcase_add_test(tc, tensor_groups_in_boxes_and_data_groups_across);
  tcase_add_test(tc, one_group_with_free_shares_is_an_allreduce);
  tcase_add_test(tc, too_many_columns_are_not_tried);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
