/* The joint optimum of groups that share a fabric: two LPs written down whole, known answers, and
 * the proof. */
#include "solver/joint/joint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/instance.h"
#include "solver/joint/internal.h"
#include "solver/policy.h"
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

/* both_ways: links are, and so are the groups, which broadcast and reduce. */
static void draw(uint64_t seed, bool both_ways, struct trial *trial) {
  const struct copse_test_random_options tiny = {2, 6, 3, !both_ways, true};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = seed;
  memset(trial, 0, sizeof *trial);
  trial->topology = copse_test_random_topology(&state, &tiny);
  ASSERT_OK(copse_instance_make(trial->topology, "test.json", -1, false, &trial->instance, &err),
            &err);
  trial->n = copse_test_random_int(&state, 1, MOST_GROUPS);
  for (int g = 0; g < trial->n; g++) draw_group(&state, trial->topology, &trial->groups[g]);
  for (int g = 0; g < trial->n && both_ways; g++) {
    trial->groups[g].broadcasts = trial->groups[g].reduces = true;
    trial->groups[g].exchanges = false;
    trial->groups[g].root = -1;
  }
}

static void release(struct trial *trial) {
  for (int g = 0; g < trial->n; g++) {
    free((int *)trial->groups[g].members);
    free((bool *)trial->groups[g].closed);
  }
  copse_instance_free(&trial->instance);
  copse_topology_free(trial->topology);
}

static void find(const struct copse_network *network, const struct copse_joint_group *groups, int n,
                 struct copse_joint *out) {
  struct copse_joint_options options = {.max_columns = 10000};
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_joint_find(network, groups, n, &options, out, &err), &err);
}

/* Closed nodes may cut a group in parts: then nothing is possible, and there is no proof. */
static bool check(uint64_t seed, bool both_ways) {
  struct trial trial;
  struct copse_joint joint;
  draw(seed, both_ways, &trial);
  const struct copse_network *network = &trial.instance.network;
  find(network, trial.groups, trial.n, &joint);
  ck_assert_msg(joint.outcome == COPSE_JOINT_PROVED, "seed %d: outcome %d", (int)seed,
                joint.outcome);
  double expected = copse_test_lp_groups_rate(network, trial.groups, trial.n, 1, false);
  double rate = copse_q_to_double(joint.rate);
  ck_assert_msg(fabs(rate - expected) <= 1e-7 * fmax(1, expected), "seed %d: %.12g, the LP %.12g",
                (int)seed, rate, expected);
  if (network->n_nodes <= 7) {
    expected = copse_test_lp_groups_rate(network, trial.groups, trial.n, 1, true);
    ck_assert_msg(fabs(rate - expected) <= 1e-7 * fmax(1, expected),
                  "seed %d: %.12g, the LP over cuts %.12g", (int)seed, rate, expected);
  }
  if (rate > 0) {
    const char *defect = copse_test_joint_defect(network, trial.groups, trial.n, &joint, 0);
    ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
  }
  int all = 1; /* columns without a saving */
  for (int g = 0; g < trial.n; g++) all += trial.groups[g].n_members + 2 * network->n_links;
  ck_assert(!both_ways || trial.n == 1 || joint.columns < all - network->n_links * trial.n + 1);
  bool shared = trial.n > 1 && rate > 0;
  copse_joint_free(&joint);
  release(&trial);
  return shared;
}

START_TEST(the_optimum_is_that_of_the_lps) {
  int shared = 0;
  for (int seed = 0; seed < 40; seed++) shared += check(40 * (uint64_t)_i + (uint64_t)seed, false);
  ck_assert_int_gt(shared, 10);
}
END_TEST

START_TEST(a_broadcast_turned_round_is_the_reduction) {
  int shared = 0;
  for (int seed = 0; seed < 40; seed++) shared += check(40 * (uint64_t)_i + (uint64_t)seed, true);
  ck_assert_int_gt(shared, 10);
}
END_TEST

/* A torus of 4x4 with links of drawn capacities, the same both ways or not. */
static int draw_torus(uint64_t *state, bool both_ways, struct copse_net_link *links) {
  int n = 0;
  for (int v = 0; v < 16; v++)
    for (int k = 0; k < 2; k++) {
      int w = k ? (v + 4) % 16 : v / 4 * 4 + (v + 1) % 4;
      int64_t there = copse_test_random_int(state, 1, 9);
      links[n++] = (struct copse_net_link){v, w, there};
      links[n++] =
          (struct copse_net_link){w, v, both_ways ? there : copse_test_random_int(state, 1, 9)};
    }
  return n;
}

/* Five groups of two to five, which share members and links. */
START_TEST(many_groups_of_few_members_have_the_optimum_of_the_lp) {
  bool both_ways = _i % 2;
  uint64_t state = 700 + (uint64_t)_i;
  struct copse_net_link links[64];
  struct copse_network network = {.n_nodes = 16, .links = links};
  struct copse_joint_group groups[5];
  struct copse_joint joint;
  bool closed[16] = {false};
  int nodes[5][16];
  network.n_links = draw_torus(&state, both_ways, links);
  for (int g = 0; g < 5; g++) {
    int n = copse_test_random_int(&state, 2, 5), kind = copse_test_random_int(&state, 0, 4);
    for (int v = 0; v < 16; v++) nodes[g][v] = v;
    for (int i = 0; i < n; i++) {
      int k = copse_test_random_int(&state, i, 15), t = nodes[g][i];
      nodes[g][i] = nodes[g][k];
      nodes[g][k] = t;
    }
    groups[g] = (struct copse_joint_group)GROUP(n, nodes[g], both_ways || kind % 2 == 0,
                                                both_ways || kind % 2 == 1 || kind == 4);
    if (!both_ways && kind >= 2 && kind < 4) groups[g].root = nodes[g][n - 1];
  }
  closed[nodes[0][15]] = true; /* to a group that it is not of */
  groups[0].closed = closed;
  find(&network, groups, 5, &joint);
  ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
  double expected = copse_test_lp_groups_rate(&network, groups, 5, 1, false);
  ck_assert_msg(fabs(copse_q_to_double(joint.rate) - expected) <= 1e-7 * fmax(1, expected),
                "%.12g, the LP %.12g", copse_q_to_double(joint.rate), expected);
  const char *defect = copse_test_joint_defect(&network, groups, 5, &joint, 0);
  ck_assert_msg(defect == NULL, "%s", defect);
  copse_joint_free(&joint);
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
  ck_assert_ptr_null(copse_test_joint_defect(&network, groups, n, &joint, 0));
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

/* With one column for both phases of a link, and with one for each. */
START_TEST(whole_links_have_the_same_optimum) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    struct trial trial;
    struct copse_joint joint, whole;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_joint_options options = {.max_columns = 10000, .whole_links = true};
    draw(1000 + seed, false, &trial);
    const struct copse_network *network = &trial.instance.network;
    struct copse_joint_group all = GROUP(network->n_terminals, network->terminals, true, true);
    find(network, &all, 1, &joint);
    ASSERT_OK(copse_joint_find(network, &all, 1, &options, &whole, &err), &err);
    ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
    ck_assert_int_eq(whole.outcome, COPSE_JOINT_PROVED);
    ck_assert_msg(copse_q_eq(joint.rate, whole.rate), "seed %d", (int)seed);
    ck_assert_int_lt(whole.columns, joint.columns);
    const char *defect = copse_test_joint_defect(network, &all, 1, &whole, 0);
    ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
    options.at_least = joint.rate;
    copse_joint_free(&whole);
    ASSERT_OK(copse_joint_find(network, &all, 1, &options, &whole, &err), &err);
    ck_assert_int_eq(whole.outcome, COPSE_JOINT_NOT_BETTER);
    copse_joint_free(&whole);
    copse_joint_free(&joint);
    release(&trial);
  }
}
END_TEST

/* What the cuts of a joint optimum prove, of one group of all nodes with free shares. */
static double proved_bound(const struct copse_network *network, const struct copse_joint *joint) {
  double sum = 0, least = INFINITY;
  for (int v = 0; v < network->n_nodes; v++) {
    double around = 0;
    for (int c = 0; c < joint->n_cuts; c++)
      if (joint->cuts[c].inside[v]) around += copse_q_to_double(joint->cuts[c].weight);
    least = fmin(least, around);
  }
  for (int e = 0; e < network->n_links; e++) {
    double weight[2] = {0, 0};
    for (int c = 0; c < joint->n_cuts; c++) {
      const struct copse_joint_cut *cut = &joint->cuts[c];
      int from = cut->reduce ? network->links[e].dst : network->links[e].src;
      int to = cut->reduce ? network->links[e].src : network->links[e].dst;
      if (cut->inside[from] && !cut->inside[to])
        weight[cut->reduce] += copse_q_to_double(cut->weight);
    }
    sum += (double)network->links[e].capacity * fmax(weight[0], weight[1]);
  }
  return sum / least;
}

/* A ring of 64 with links of 0.09 to 1000: most have far more than the rate needs, and even shares may
 * not be found, but the optimum is, with its proof. */
START_TEST(slow_links_among_fast_ones_have_an_optimum_of_whole_links) {
  static const int64_t widths[] = {9, 50, 250, 700, 1250, 3700, 10000, 45000, 100000};
  struct copse_net_link links[128];
  int nodes[64];
  uint64_t state = 11 + (uint64_t)_i;
  for (int v = 0; v < 64; v++) {
    int64_t width = widths[copse_test_random_int(&state, 0, 8)];
    nodes[v] = v;
    links[2 * v] = (struct copse_net_link){v, (v + 1) % 64, width};
    links[2 * v + 1] = (struct copse_net_link){(v + 1) % 64, v, width};
  }
  struct copse_network network = {.n_nodes = 64, .n_links = 128, .links = links};
  struct copse_joint_group all = GROUP(64, nodes, true, true);
  struct copse_joint_options options = {.max_columns = 10000, .whole_links = true};
  struct copse_joint whole;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_joint_find(&network, &all, 1, &options, &whole, &err), &err);
  ck_assert_int_eq(whole.outcome, COPSE_JOINT_PROVED);
  double bound = proved_bound(&network, &whole);
  ck_assert_msg(fabs(copse_q_to_double(whole.rate) - bound) <= 1e-9 * bound, "%.12g", bound);
  copse_joint_free(&whole);
}
END_TEST

/* ---- symmetries ---------------------------------------------------------------------------- */

#define MOST_COPIES 4

/* Copies of random nodes and links, moved on by a rotation: node v of copy i is i * n + v. Links
 * lead a drawn number of copies on; groups come with all their images. */
struct ring {
  struct copse_network network;
  struct copse_net_link links[80];
  struct copse_joint_group groups[2 * MOST_COPIES];
  int n_groups, copies;
  int members[2 * MOST_COPIES][3 * MOST_COPIES];
  int image[3 * MOST_COPIES], group_image[2 * MOST_COPIES];
};

static void add_ring_links(struct ring *r, int n, int v, int w, int shift, int64_t capacity) {
  for (int i = 0; i < r->copies; i++)
    for (int back = 0; back < 2; back++) {
      int from = i * n + v, to = (i + shift) % r->copies * n + w;
      bool is_there = from == to;
      for (int e = 0; e < r->network.n_links; e++)
        is_there = is_there ||
                   (r->links[e].src == (back ? to : from) && r->links[e].dst == (back ? from : to));
      if (!is_there)
        r->links[r->network.n_links++] =
            (struct copse_net_link){back ? to : from, back ? from : to, capacity};
    }
}

/* A group of the first n - 1 nodes of the copies, the last ones are relays; by turns `turns` times
 * it comes back to itself. */
static void add_ring_groups(struct ring *r, uint64_t *state, int n) {
  int kind = copse_test_random_int(state, 0, 3), first = r->n_groups, n_members = 0;
  bool whole = copse_test_random_int(state, 0, 2) == 0;
  int base[3 * MOST_COPIES];
  while (n_members < 2) {
    n_members = 0;
    int chosen = copse_test_random_int(state, 1, (1 << (n - 1)) - 1);
    for (int i = 0; i < r->copies; i++)
      for (int v = 0; v < n - 1; v++)
        if (whole ? chosen >> v & 1 : copse_test_random_int(state, 0, 2) == 0)
          base[n_members++] = i * n + v;
  }
  for (int turn = 0; turn < (whole ? 1 : r->copies); turn++) {
    int *members = r->members[r->n_groups];
    for (int k = 0; k < n_members; k++) members[k] = (base[k] + turn * n) % (r->copies * n);
    r->group_image[r->n_groups] = whole || turn + 1 == r->copies ? first : r->n_groups + 1;
    r->groups[r->n_groups++] = (struct copse_joint_group){.n_members = n_members,
                                                          .members = members,
                                                          .broadcasts = kind == 0 || kind == 2,
                                                          .reduces = kind == 1 || kind == 2,
                                                          .exchanges = kind == 3,
                                                          .root = -1};
  }
}

static void draw_ring(uint64_t seed, struct ring *r) {
  uint64_t state = seed;
  int n = copse_test_random_int(&state, 2, 3);
  memset(r, 0, sizeof *r);
  r->copies = copse_test_random_int(&state, 2, n == 3 ? 3 : MOST_COPIES);
  for (int v = 0; v < n; v++)
    for (int w = 0; w <= v; w++)
      for (int shift = 0; shift < 2; shift++)
        if (shift != (v == w) || copse_test_random_int(&state, 0, 1))
          add_ring_links(r, n, v, w, shift, copse_test_random_int(&state, 1, 9));
  for (int v = 0; v < r->copies * n; v++) r->image[v] = (v + n) % (r->copies * n);
  r->network.n_nodes = r->copies * n;
  r->network.links = r->links;
  add_ring_groups(r, &state, n);
  if (copse_test_random_int(&state, 0, 1)) add_ring_groups(r, &state, n);
}

static void move_cut(const struct ring *r, const struct copse_joint_cut *from, bool *inside,
                     struct copse_joint_cut *to) {
  const struct copse_joint_group *group = &r->groups[r->group_image[from->group]];
  *to = *from;
  to->group = r->group_image[from->group];
  for (int v = 0; v < r->network.n_nodes; v++) inside[r->image[v]] = from->inside[v];
  to->inside = inside;
  for (int i = 0; from->sink >= 0 && i < group->n_members; i++)
    if (group->members[i] == r->image[r->groups[from->group].members[from->sink]]) to->sink = i;
}

static struct copse_q divided(struct copse_q q, int by) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  ASSERT_OK(copse_q_div(q, (struct copse_q){by, 1}, &out, &err), &err);
  return out;
}

/* The mean over all turns of a phase's potentials: what each becomes. */
static struct copse_q *mean_potentials(const struct ring *r, const struct copse_joint *joint, int g,
                                       bool reduce) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q *out = calloc((size_t)r->network.n_nodes, sizeof *out);
  ck_assert_ptr_nonnull(out);
  for (int v = 0; v < r->network.n_nodes; v++) {
    int group = g, node = v;
    out[v] = COPSE_Q_ZERO;
    for (int turn = 0; turn < r->copies; turn++) {
      const struct copse_joint_part *part = &joint->parts[group];
      const struct copse_q *p = reduce ? part->reduce_potentials : part->broadcast_potentials;
      ASSERT_OK(copse_q_add(out[v], divided(p[node], r->copies), &out[v], &err), &err);
      group = r->group_image[group];
      node = r->image[node];
    }
  }
  return out;
}

/* The same result with a proof in which every cut and potential stands for itself. */
static const char *defect_in_full(const struct ring *r, const struct copse_joint *joint) {
  struct copse_joint full = *joint;
  struct copse_joint_part parts[2 * MOST_COPIES];
  struct copse_joint_cut *cuts = calloc((size_t)(joint->n_cuts * r->copies) + 1, sizeof *cuts);
  bool *inside = calloc((size_t)(joint->n_cuts * r->copies * r->network.n_nodes) + 1, 1);
  int n = 0;
  ck_assert(cuts && inside);
  for (int c = 0; c < joint->n_cuts; c++)
    for (int turn = 0; turn < r->copies; turn++, n++) {
      bool *here = inside + (ptrdiff_t)n * r->network.n_nodes;
      if (turn > 0) {
        move_cut(r, &cuts[n - 1], here, &cuts[n]);
        continue;
      }
      cuts[n] = joint->cuts[c];
      cuts[n].weight = divided(joint->cuts[c].weight, r->copies);
    }
  for (int g = 0; g < r->n_groups; g++) {
    parts[g] = joint->parts[g];
    if (r->groups[g].broadcasts)
      parts[g].broadcast_potentials = mean_potentials(r, joint, g, false);
    if (r->groups[g].reduces) parts[g].reduce_potentials = mean_potentials(r, joint, g, true);
  }
  full.cuts = cuts;
  full.n_cuts = n;
  full.parts = parts;
  const char *defect = copse_test_joint_defect(&r->network, r->groups, r->n_groups, &full, 0);
  for (int g = 0; g < r->n_groups; g++) {
    if (r->groups[g].broadcasts) free((struct copse_q *)parts[g].broadcast_potentials);
    if (r->groups[g].reduces) free((struct copse_q *)parts[g].reduce_potentials);
  }
  free(cuts);
  free(inside);
  return defect;
}

START_TEST(symmetries_leave_the_optimum_and_make_a_smaller_programme) {
  int solved = 0;
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 60u : 20u); seed++) {
    struct ring r;
    struct copse_joint joint, plain;
    struct copse_err err = COPSE_ERR_INIT;
    draw_ring(60 * (uint64_t)_i + seed, &r);
    struct copse_permutation symmetry = {.image = r.image, .groups = r.group_image};
    struct copse_joint_options options = {
        .max_columns = 10000, .n_symmetries = 1, .symmetries = &symmetry};
    ASSERT_OK(copse_joint_find(&r.network, r.groups, r.n_groups, &options, &joint, &err), &err);
    find(&r.network, r.groups, r.n_groups, &plain);
    ck_assert_int_eq(joint.outcome, COPSE_JOINT_PROVED);
    ck_assert_msg(copse_q_eq(joint.rate, plain.rate), "seed %d", (int)seed);
    double expected = copse_test_lp_groups_rate(&r.network, r.groups, r.n_groups, 1, false);
    ck_assert_msg(fabs(copse_q_to_double(joint.rate) - expected) <= 1e-7 * fmax(1, expected),
                  "seed %d", (int)seed);
    ck_assert(joint.rate.num == 0 || joint.columns < plain.columns);
    const char *defect = joint.rate.num > 0 ? defect_in_full(&r, &joint) : NULL;
    ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
    solved += joint.rate.num > 0;
    copse_joint_free(&joint);
    copse_joint_free(&plain);
  }
  ck_assert_int_gt(solved, COPSE_TEST_SWEEPS ? 20 : 6);
}
END_TEST

/* The boxes change places, but one pair's link is another's, or the group does not move along. */
START_TEST(a_symmetry_that_is_none_is_refused) {
  static const int swap[] = {3, 4, 5, 0, 1, 2, 7, 6}, both[] = {1, 0}, none[] = {0, 1};
  struct copse_net_link links[14];
  struct copse_joint_group groups[] = {GROUP(3, left, true, false), GROUP(3, right, true, false)};
  struct copse_network network = {.n_nodes = 8, .n_links = 14, .links = links};
  struct copse_permutation symmetry = {.image = swap, .groups = both};
  struct copse_joint_options options = {
      .max_columns = 1000, .n_symmetries = 1, .symmetries = &symmetry};
  struct copse_joint joint;
  struct copse_err err = COPSE_ERR_INIT;
  two_boxes(12, 1, links);
  ASSERT_OK(copse_joint_find(&network, groups, 2, &options, &joint, &err), &err);
  ck_assert(copse_q_eq(joint.rate, (struct copse_q){18, 1}));
  copse_joint_free(&joint);
  symmetry.groups = none;
  ASSERT_FAILS(copse_joint_find(&network, groups, 2, &options, &joint, &err), COPSE_INTERNAL, &err,
               "symmetry");
  copse_joint_free(&joint);
  err = (struct copse_err)COPSE_ERR_INIT;
  symmetry.groups = both;
  links[0].capacity++;
  ASSERT_FAILS(copse_joint_find(&network, groups, 2, &options, &joint, &err), COPSE_INTERNAL, &err,
               "symmetry");
  copse_joint_free(&joint);
}
END_TEST

/* ---- fractions that are too fine ----------------------------------------------------------- */

/* Capacities so large that common denominators leave 64 bits: of 57 bits, and no round numbers. */
START_TEST(what_64_bits_cannot_hold_is_rounded_and_still_proved) {
  int close = 0;
  for (uint64_t seed = 0; seed < 60; seed++) {
    struct trial trial;
    struct copse_joint joint;
    uint64_t state = 77 + seed;
    draw(2000 + 60 * (uint64_t)_i + seed, seed % 2 == 1, &trial);
    struct copse_network network = trial.instance.network;
    struct copse_net_link *links = calloc((size_t)network.n_links, sizeof *links);
    ck_assert_ptr_nonnull(links);
    for (int e = 0; e < network.n_links; e++) {
      int back = 0; /* both directions alike keep relays balanced */
      while (network.links[back].src != network.links[e].dst ||
             network.links[back].dst != network.links[e].src) {
        if (++back == network.n_links) break;
      }
      links[e] = network.links[e];
      links[e].capacity = back < e ? links[back].capacity
                                   : ((int64_t)copse_test_random_int(&state, 1, 1 << 20) << 37) +
                                         copse_test_random_int(&state, 1, 1 << 29);
    }
    network.links = links;
    find(&network, trial.groups, trial.n, &joint);
    ck_assert_msg(joint.outcome == COPSE_JOINT_PROVED || joint.outcome == COPSE_JOINT_CLOSE,
                  "seed %d: outcome %d", (int)seed, joint.outcome);
    if (joint.rate.num > 0) {
      bool exact = joint.outcome == COPSE_JOINT_PROVED;
      const char *defect =
          copse_test_joint_defect(&network, trial.groups, trial.n, &joint, exact ? 0 : 10000000);
      ck_assert_msg(defect == NULL, "seed %d: %s", (int)seed, defect);
    }
    close += joint.outcome == COPSE_JOINT_CLOSE;
    copse_joint_free(&joint);
    free(links);
    release(&trial);
  }
  ck_assert_int_gt(close, 10);
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

/* Multipliers over the largest, which is 7/2, rounded down to multiples of 2^-bits. */
START_TEST(multipliers_are_rounded_down_to_bits) {
  static const long numbers[][2] = {{1, 3}, {-7, 2}, {0, 1}, {-1, 5}, {22, 7}};
  mpq_t multipliers[5], none[1];
  for (int i = 0; i < 5; i++) {
    mpq_init(multipliers[i]);
    mpq_set_si(multipliers[i], numbers[i][0], (unsigned long)numbers[i][1]);
  }
  copse_joint_round_multipliers(multipliers, 5);
  for (int i = 0; i < 5; i++) { /* number / (7/2) * 2^bits */
    int64_t over = numbers[i][0] * 2 * ((int64_t)1 << COPSE_JOINT_MULTIPLIER_BITS);
    int64_t under = 7 * numbers[i][1], whole = over / under - (over < 0 && over % under != 0);
    ck_assert_int_eq(mpq_cmp_si(multipliers[i], whole, 1), 0);
    mpq_clear(multipliers[i]);
  }
  mpq_init(none[0]);
  copse_joint_round_multipliers(none, 1);
  ck_assert_int_eq(mpq_sgn(none[0]), 0);
  mpq_clear(none[0]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("joint");
  TCase *tc = tcase_create("joint");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, the_optimum_is_that_of_the_lps, 0, COPSE_TEST_SWEEPS ? 10 : 5);
  tcase_add_loop_test(tc, slow_links_among_fast_ones_have_an_optimum_of_whole_links, 0, 3);
  tcase_add_loop_test(tc, a_broadcast_turned_round_is_the_reduction, 0, COPSE_TEST_SWEEPS ? 5 : 2);
  tcase_add_loop_test(tc, many_groups_of_few_members_have_the_optimum_of_the_lp, 0,
                      COPSE_TEST_SWEEPS ? 40 : 4);
  tcase_add_test(tc, groups_apart_do_not_slow_each_other);
  tcase_add_test(tc, alike_groups_get_half_each);
  tcase_add_test(tc, tensor_groups_in_boxes_and_data_groups_across);
  tcase_add_test(tc, whole_links_have_the_same_optimum);
  tcase_add_loop_test(tc, symmetries_leave_the_optimum_and_make_a_smaller_programme, 0, 4);
  tcase_add_test(tc, a_symmetry_that_is_none_is_refused);
  tcase_add_loop_test(tc, what_64_bits_cannot_hold_is_rounded_and_still_proved, 0, 4);
  tcase_add_test(tc, too_many_columns_are_not_tried);
  tcase_add_test(tc, multipliers_are_rounded_down_to_bits);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
