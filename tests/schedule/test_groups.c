/* Groups that share a fabric: the file that lists them, schedules that reach the joint optimum,
 * and a verifier that finds what is wrong with them. */
#include "schedule/groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "verify/groups.h"
#include "support/oracle.h"
#include "support/oracle_groups.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "topology/modify.h"

static struct copse_topology *synthetic(const char *spec) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  ASSERT_OK(copse_topology_synthetic(spec, NULL, &topology, &err), &err);
  return topology;
}

/* ---- the list ------------------------------------------------------------------------------ */

static copse_status parse(const struct copse_topology *t, const char *text,
                          struct copse_group **groups, int *n, struct copse_err *err) {
  return copse_group_list_parse("groups.txt", text, strlen(text), t, COPSE_ALLGATHER, -1, groups, n,
                                err);
}

START_TEST(a_list_names_ranks_collectives_and_roots) {
  struct copse_topology *t = synthetic("hosts:2 gpus:4@300 nics:4@25 rails");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_group *g;
  int n;
  ASSERT_OK(parse(t,
                  "# tensor\n0-3\n\n 4-7 # the other box\r\nallreduce 0,4\nbroadcast:2 "
                  "7,5,1\nreduce_scatter\th1.gpu0,2",
                  &g, &n, &err),
            &err);
  ck_assert_int_eq(n, 5);
  ck_assert_int_eq(g[0].n, 4);
  ck_assert_int_eq(g[0].collective, COPSE_ALLGATHER);
  ck_assert_int_eq(g[0].root, -1);
  ck_assert_int_eq(g[1].nodes[0], t->rank_nodes[4]);
  ck_assert_int_eq(g[1].line, 4);
  ck_assert_int_eq(g[2].collective, COPSE_ALLREDUCE);
  ck_assert_int_eq(g[3].root, 2);
  ck_assert_int_eq(g[3].nodes[0], t->rank_nodes[7]);
  ck_assert_int_eq(g[4].nodes[0], t->rank_nodes[4]);
  copse_group_list_free(g, n);
  copse_topology_free(t);
}
END_TEST

static const struct {
  const char *text, *part;
} bad_lists[] = {
    {"", "groups.txt: no group"},
    {"# nothing\n\n", "no group"},
    {"0-3\n0-9\n", "groups.txt:2: 0-9"},
    {"0,1,0", "groups.txt:1: rank 0"},
    {"0", "groups.txt:1: a group of one rank"},
    {"0-3\nsum 0-3", "groups.txt:2: 'sum' is no collective"},
    {"allreduce:0 0-3", "a root (':') is for broadcast and reduce"},
    {"broadcast 0-3", "broadcast needs a root from 0 to 3"},
    {"broadcast:4 0-3", "broadcast needs a root from 0 to 3"},
    {"reduce:x 0-3", "a root must be a place"},
    {"reduce: 0-3", "a root must be a place"},
    {"reduce:99999999999 0-3", "a root must be a place"},
    {"alltoall:0 0-3", "a root (':') is for broadcast and reduce"},
    {"0-3 4-7 8", "a list has no blanks"},
    {"allreduce 0, 1", "a list has no blanks"},
    {"gpu99,1", "groups.txt:1: \"gpu99\" in the list of ranks is no node"},
    {"3-0", "runs backwards"},
};

START_TEST(bad_lists_are_refused_with_their_line) {
  struct copse_topology *t = synthetic("full:8@25");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_group *g;
  int n;
  ASSERT_FAILS(parse(t, bad_lists[_i].text, &g, &n, &err), COPSE_BAD_INPUT, &err,
               bad_lists[_i].part);
  ck_assert_ptr_null(g);
  copse_topology_free(t);
}
END_TEST

/* Whatever the bytes, an answer and nothing leaked or overrun. */
START_TEST(mutilated_lists_do_no_harm) {
  static const char good[] = "# a\n0-3\nallreduce 4-7\nbroadcast:1 0,4\nreduce:0 1-2,7\n";
  struct copse_topology *t = synthetic("full:8@25");
  uint64_t state = 7;
  int accepted = 0;
  for (int trial = 0; trial < 3000; trial++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_group *g;
    char text[sizeof good];
    int n, changes = copse_test_random_int(&state, 1, 3);
    memcpy(text, good, sizeof good);
    for (int i = 0; i < changes; i++)
      text[copse_test_random_int(&state, 0, sizeof good - 2)] =
          "0123456789-,: #\nabz\t\xff"[copse_test_random_int(&state, 0, 20)];
    copse_status status =
        copse_group_list_parse("f", text, sizeof good - 1, t, COPSE_ALLGATHER, -1, &g, &n, &err);
    ck_assert(status == COPSE_OK || status == COPSE_BAD_INPUT);
    ck_assert((status == COPSE_OK) == (g != NULL));
    accepted += status == COPSE_OK;
    copse_group_list_free(g, n);
  }
  ck_assert_int_gt(accepted, 10);
  copse_topology_free(t);
}
END_TEST

/* ---- schedules ----------------------------------------------------------------------------- */

#define MOST 3

struct trial {
  struct copse_topology *topology;
  struct copse_group groups[MOST];
  int n;
  bool exclude;
};

static void draw(uint64_t seed, struct trial *trial) {
  static const struct copse_test_random_options tiny = {2, 6, 3, true, true};
  static const copse_collective kinds[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                           COPSE_BROADCAST, COPSE_REDUCE,         COPSE_ALLTOALL};
  uint64_t state = seed;
  memset(trial, 0, sizeof *trial);
  trial->topology = copse_test_random_topology(&state, &tiny);
  const struct copse_topology *t = trial->topology;
  trial->n = copse_test_random_int(&state, 1, MOST);
  for (int g = 0; g < trial->n; g++) {
    struct copse_group *group = &trial->groups[g];
    group->nodes = calloc((size_t)t->n_ranks, sizeof *group->nodes);
    ck_assert_ptr_nonnull(group->nodes);
    while (group->n < 2) {
      group->n = 0;
      for (int r = 0; r < t->n_ranks; r++)
        if (copse_test_random_int(&state, 0, 2)) group->nodes[group->n++] = t->rank_nodes[r];
    }
    group->collective = kinds[copse_test_random_int(&state, 0, 5)];
    group->root = copse_collective_rooted(group->collective)
                      ? copse_test_random_int(&state, 0, group->n - 1)
                      : -1;
    group->line = g + 1;
  }
  trial->exclude = copse_test_random_int(&state, 0, 2) == 0;
}

static void release(struct trial *trial) {
  for (int g = 0; g < trial->n; g++) free(trial->groups[g].nodes);
  copse_topology_free(trial->topology);
}

static copse_status solve(const struct trial *trial, bool bound_only, struct copse_groups **out,
                          struct copse_err *err) {
  struct copse_solve_groups_options options = {.exclude = trial->exclude,
                                               .bound_only = bound_only,
                                               .label = "t.json",
                                               .groups_label = "groups.txt"};
  struct copse_solve_seconds seconds;
  copse_status status =
      copse_solve_groups(trial->topology, trial->groups, trial->n, &options, out, &seconds, err);
  for (int g = 0; status == COPSE_OK && g < trial->n; g++) {
    char name[30];
    snprintf(name, sizeof name, "group-%d.json", g);
    (*out)->members[g].file = copse_arena_strdup(&(*out)->arena, name);
  }
  return status;
}

/* The joint time by an LP that is written down whole. */
static double expected_time(const struct trial *trial) {
  const struct copse_topology *t = trial->topology;
  struct copse_joint_group groups[MOST];
  struct copse_instance instance;
  struct copse_err err = COPSE_ERR_INIT;
  bool *closed[MOST] = {NULL};
  ASSERT_OK(copse_instance_make(t, "t.json", -1, false, &instance, &err), &err);
  for (int g = 0; g < trial->n; g++) {
    const struct copse_group *from = &trial->groups[g];
    closed[g] = calloc((size_t)t->n_nodes, sizeof(bool));
    ck_assert_ptr_nonnull(closed[g]);
    for (int v = 0; v < t->n_nodes; v++) closed[g][v] = t->nodes[v].rank >= 0;
    for (int r = 0; r < from->n; r++) closed[g][from->nodes[r]] = false;
    groups[g] =
        (struct copse_joint_group){.n_members = from->n,
                                   .members = from->nodes,
                                   .broadcasts = copse_collective_broadcasts(from->collective),
                                   .reduces = copse_collective_reduces(from->collective),
                                   .exchanges = from->collective == COPSE_ALLTOALL,
                                   .root = from->root >= 0 ? from->nodes[from->root] : -1,
                                   .closed = trial->exclude ? closed[g] : NULL};
  }
  double rate = copse_test_lp_groups_rate(&instance.network, groups, trial->n, 1, false);
  double time = (double)instance.scale / rate;
  for (int g = 0; g < trial->n; g++) free(closed[g]);
  copse_instance_free(&instance);
  return time;
}

/* Every pair's paths add up to 1/N, over links, and load the busiest one for the time. */
static const char *exchange_defect(const struct copse_schedule *s, const struct copse_topology *t) {
  const char *defect = NULL;
  mpq_t *loads = calloc((size_t)t->n_links, sizeof *loads), most, sum, q;
  ck_assert_ptr_nonnull(loads);
  mpq_inits(most, sum, q, NULL);
  for (int e = 0; e < t->n_links; e++) mpq_init(loads[e]);
  if (s->n_flows != s->n_ranks * (s->n_ranks - 1)) defect = "not a flow for every pair";
  for (int f = 0; f < s->n_flows && !defect; f++) {
    mpq_set_si(sum, -1, (unsigned long)s->n_ranks);
    for (int p = 0; p < s->flows[f].n_paths; p++) {
      const struct copse_schedule_path *path = &s->flows[f].paths[p];
      copse_test_set_q(q, path->weight);
      mpq_add(sum, sum, q);
      for (int i = 0; i + 1 < path->n_nodes; i++) {
        int link = copse_topology_find_link(t, copse_topology_find(t, s->nodes[path->nodes[i]]),
                                            copse_topology_find(t, s->nodes[path->nodes[i + 1]]));
        if (link >= 0)
          mpq_add(loads[link], loads[link], q);
        else
          defect = "a path without a link";
      }
      if (path->nodes[0] != s->rank_nodes[s->flows[f].src] ||
          path->nodes[path->n_nodes - 1] != s->rank_nodes[s->flows[f].dst])
        defect = "a path of another pair";
    }
    if (mpq_sgn(sum) != 0) defect = "a pair's weights don't add up";
  }
  for (int e = 0; e < t->n_links; e++) {
    copse_test_set_q(q, t->links[e].bandwidth);
    mpq_div(q, loads[e], q);
    if (mpq_cmp(q, most) > 0) mpq_set(most, q);
    mpq_clear(loads[e]);
  }
  if (!defect && !copse_test_equals_q(most, s->time_per_GB)) defect = "the time is not the loads'";
  mpq_clears(most, sum, q, NULL);
  free(loads);
  return defect;
}

/* Each schedule by the tests' own checker. */
static void check_members(const struct trial *trial, const struct copse_groups *groups, int seed) {
  for (int g = 0; g < trial->n; g++) {
    struct copse_topology *chosen;
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_topology_choose_ranks(trial->topology, trial->groups[g].nodes,
                                          trial->groups[g].n, trial->exclude, &chosen, &err),
              &err);
    const struct copse_schedule *s = groups->members[g].schedule;
    const char *defect = s->collective == COPSE_ALLTOALL ? exchange_defect(s, chosen)
                                                         : copse_test_schedule_defect(s, chosen);
    ck_assert_msg(defect == NULL, "seed %d, group %d: %s", seed, g, defect);
    copse_topology_free(chosen);
  }
}

/* Whether all ranks reached each other, so that there was something to check. */
static bool check(int seed) {
  struct trial trial;
  struct copse_groups *groups;
  struct copse_verify_groups_report report;
  struct copse_err err = COPSE_ERR_INIT;
  draw((uint64_t)seed, &trial);
  copse_status status = solve(&trial, false, &groups, &err);
  if (status !=
      COPSE_OK) { /* GPUs may make unbalanced relays; without them a group may fall apart */
    ck_assert_msg((trial.exclude && status == COPSE_INFEASIBLE) ||
                      (status == COPSE_BAD_INPUT && strstr(err.text, "trees need them equal")),
                  "seed %d: %s", seed, err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "groups.txt:"));
    release(&trial);
    return false;
  }
  double expected = expected_time(&trial), time = copse_q_to_double(groups->time_per_GB);
  ck_assert_msg(fabs(time / expected - 1) < 1e-7, "seed %d: %.12g, the LP %.12g", seed, time,
                expected);
  check_members(&trial, groups, seed);
  ASSERT_OK(copse_verify_groups(groups, trial.topology, "index.json", &report, &err), &err);
  ck_assert_msg(report.optimal && report.same_topology, "seed %d", seed);
  copse_groups_release(groups);
  ASSERT_OK(solve(&trial, true, &groups, &err), &err);
  ck_assert(copse_q_eq(groups->time_per_GB, report.time_per_GB));
  copse_groups_release(groups);
  release(&trial);
  return true;
}

START_TEST(schedules_reach_the_joint_optimum) {
  int solved = 0;
  for (int seed = 0; seed < 25; seed++) solved += check(25 * _i + seed);
  ck_assert_int_gt(solved, 8);
}
END_TEST

/* Draws equal groups of all ranks. */
static void draw_equal(const struct copse_topology *t, copse_collective kind, int n,
                       struct copse_group *list, int *order) {
  uint64_t state = 31;
  for (int i = 0; i < t->n_ranks; i++) order[i] = t->rank_nodes[i];
  for (int i = t->n_ranks - 1; i > 0; i--) {
    int k = copse_test_random_int(&state, 0, i), node = order[i];
    order[i] = order[k];
    order[k] = node;
  }
  for (int g = 0; g < n; g++)
    list[g] = (struct copse_group){.nodes = order + t->n_ranks / n * g,
                                   .n = t->n_ranks / n,
                                   .collective = kind,
                                   .root = -1,
                                   .line = g + 1};
}

/* 16 groups of four of 64 ranks: the whole of it in seconds, where cuts of nodes in place of
 * paths take over ten. Two all-to-alls of 32: where the simplex method begins with nothing, and
 * each bound alone is by mixing trees, it takes as long. */
START_TEST(many_groups_on_a_torus_take_seconds) {
  static const struct {
    copse_collective kind;
    int n;
    const char *fabric;
  } rows[] = {{COPSE_ALLGATHER, 16, "torus:8x8@100"},
              {COPSE_ALLREDUCE, 16, "torus:8x8@100"},
              {COPSE_ALLTOALL, 2, "torus:4x4x4@100"}};
  if (_i == 2 && !COPSE_TEST_SWEEPS) return;
  struct copse_topology *t = synthetic(rows[_i].fabric);
  struct copse_group list[16];
  struct copse_solve_groups_options options = {.label = "t.json", .groups_label = "groups.txt"};
  struct copse_verify_groups_report report;
  struct copse_solve_seconds seconds;
  struct copse_groups *groups;
  struct copse_err err = COPSE_ERR_INIT;
  int order[64];
  draw_equal(t, rows[_i].kind, rows[_i].n, list, order);
  clock_t start = clock();
  ASSERT_OK(copse_solve_groups(t, list, rows[_i].n, &options, &groups, &seconds, &err), &err);
  double taken = (double)(clock() - start) / CLOCKS_PER_SEC;
  ASSERT_OK(copse_verify_groups(groups, t, "groups.json", &report, &err), &err);
  ck_assert(report.optimal || _i == 2);
  ck_assert_double_lt(copse_q_to_double(groups->time_per_GB),
                      copse_q_to_double(groups->bound_time_per_GB) * (1 + 1e-8));
  ck_assert_msg(taken < 5, "%.1f s of processor time", taken);
  copse_groups_release(groups);
  copse_topology_free(t);
}
END_TEST

/* Where mixing trees would take long the joint programme finds the bound of an all-to-all alone.
 * The time is what mixing trees ends with, which the sweep compares. */
START_TEST(the_bound_of_a_large_alltoall_alone_is_the_optimum) {
  struct copse_topology *t = synthetic("torus:4x4x4@100"), *part;
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .label = "t.json", .bound_only = true};
  struct copse_solve_seconds seconds;
  struct copse_schedule *bound, *whole;
  struct copse_group list[2];
  struct copse_err err = COPSE_ERR_INIT;
  int order[64];
  draw_equal(t, COPSE_ALLTOALL, 2, list, order);
  ASSERT_OK(copse_topology_choose_ranks(t, order, 24, false, &part, &err), &err);
  clock_t start = clock();
  ASSERT_OK(copse_solve_schedule(part, &options, &bound, &seconds, &err), &err);
  double taken = (double)(clock() - start) / CLOCKS_PER_SEC;
  ck_assert_int_eq(bound->bound.time_per_GB.num, 271);
  ck_assert_int_eq(bound->bound.time_per_GB.den, 139200);
  if (COPSE_TEST_SWEEPS) {
    options.bound_only = false;
    start = clock();
    ASSERT_OK(copse_solve_schedule(part, &options, &whole, &seconds, &err), &err);
    ck_assert(copse_q_eq(whole->bound.time_per_GB, bound->bound.time_per_GB));
    ck_assert_double_lt(taken, (double)(clock() - start) / CLOCKS_PER_SEC / 2);
    copse_schedule_free(whole);
  }
  copse_schedule_free(bound);
  copse_topology_free(part);
  copse_topology_free(t);
}
END_TEST

/* All ranks in one group, with a solver that knows nothing of groups. */
START_TEST(one_alltoall_is_that_of_the_other_solver) {
  for (int seed = 0; seed < 30; seed++) {
    struct trial trial;
    struct copse_groups *groups;
    struct copse_schedule *alone;
    struct copse_solve_seconds seconds;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_solve_options options = {
        .collective = COPSE_ALLTOALL, .root = -1, .label = "t.json"};
    draw(500 + (uint64_t)seed, &trial);
    const struct copse_topology *t = trial.topology;
    memcpy(trial.groups[0].nodes, t->rank_nodes, (size_t)t->n_ranks * sizeof(int));
    trial.groups[0].n = t->n_ranks;
    trial.groups[0].collective = COPSE_ALLTOALL;
    trial.groups[0].root = -1;
    struct trial one = trial;
    one.n = 1;
    ASSERT_OK(solve(&one, false, &groups, &err), &err);
    ASSERT_OK(copse_solve_schedule(t, &options, &alone, &seconds, &err), &err);
    ck_assert_msg(copse_q_eq(groups->time_per_GB, alone->time_per_GB) ||
                      copse_q_cmp(alone->bound.time_per_GB, alone->time_per_GB) < 0,
                  "seed %d", seed);
    copse_schedule_free(alone);
    copse_groups_release(groups);
    release(&trial);
  }
}
END_TEST

START_TEST(what_a_group_cannot_do_is_said_with_its_line) {
  struct trial trial = {.exclude = true, .n = 1};
  struct copse_groups *groups;
  struct copse_err err = COPSE_ERR_INIT;
  int ends[] = {0, 2};
  trial.topology = synthetic("ring:4@50");
  trial.groups[0] = (struct copse_group){COPSE_ALLGATHER, -1, ends, 2, 17};
  ASSERT_FAILS(solve(&trial, false, &groups, &err), COPSE_INFEASIBLE, &err, "groups.txt:17: ");
  copse_topology_free(trial.topology);
}
END_TEST

/* Hosts of four GPUs at a switch that is marked or not, and NICs on two rails. */
static struct copse_topology *two_hosts(const char *marks) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology;
  char text[4000];
  int n = snprintf(text, sizeof text,
                   "{\"format\": \"copse-topology/1\", \"name\": \"m\", \"nodes\": [");
  for (int h = 0; h < 2; h++) {
    for (int i = 0; i < 4; i++)
      n += snprintf(text + n, sizeof text - (size_t)n, "{\"id\": \"g%d%d\", \"type\": \"gpu\"}, ",
                    h, i);
    n += snprintf(text + n, sizeof text - (size_t)n, "{\"id\": \"s%d\", \"type\": \"switch\"%s}, ",
                  h, marks);
  }
  n += snprintf(text + n, sizeof text - (size_t)n,
                "{\"id\": \"r\", \"type\": \"switch\"}], \"links\": [");
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < 4; i++)
      n += snprintf(
          text + n, sizeof text - (size_t)n,
          "{\"src\": \"g%d%d\", \"dst\": \"s%d\", \"bandwidth\": 12}, {\"src\": \"g%d%d\", "
          "\"dst\": \"r\", \"bandwidth\": %d}%s",
          h, i, h, h, i, 2 + i, h == 1 && i == 3 ? "]}" : ", ");
  ASSERT_OK(copse_topology_parse("t.json", text, strlen(text), NULL, &topology, &err), &err);
  return topology;
}

static struct copse_groups *solve_list(const struct copse_topology *t, const char *list,
                                       bool bound_only) {
  struct copse_solve_groups_options options = {
      .label = "t.json", .groups_label = "groups.txt", .bound_only = bound_only};
  struct copse_solve_seconds seconds;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_groups *out;
  struct copse_group *groups;
  int n;
  ASSERT_OK(parse(t, list, &groups, &n, &err), &err);
  ASSERT_OK(copse_solve_groups(t, groups, n, &options, &out, &seconds, &err), &err);
  copse_group_list_free(groups, n);
  for (int g = 0; g < n; g++) out->members[g].file = "group.json";
  return out;
}

/* No use is made of the marks, as by solve without --in-network; what they save counts. */
START_TEST(switches_that_copy_are_no_obstacle) {
  static const char *const lists[] = {"allreduce 0-3\nallreduce 4-7\n0,4\n1,5\n2,6\n3,7\n",
                                      "allreduce 0-7\nbroadcast:1 2-5\n", "reduce:0 0-6\n1-7\n",
                                      "alltoall 0-7\n0-3\n"};
  struct copse_topology *plain = two_hosts(""),
                        *marked = two_hosts(", \"multicast\": true, \"aggregation\": true");
  struct copse_verify_groups_report report;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_groups *without = solve_list(plain, lists[_i], false),
                      *with = solve_list(marked, lists[_i], false),
                      *bound = solve_list(marked, lists[_i], true);
  ck_assert(copse_q_cmp(with->time_per_GB, without->time_per_GB) <= 0);
  ck_assert(copse_q_cmp(with->bound_time_per_GB, without->bound_time_per_GB) <= 0);
  ck_assert(copse_q_eq(with->bound_time_per_GB, bound->bound_time_per_GB));
  ASSERT_OK(copse_verify_groups(with, marked, "index.json", &report, &err), &err);
  ck_assert(copse_q_eq(report.bound, with->bound_time_per_GB));
  struct copse_groups_potential beside = {
      with->members[0].collective == COPSE_ALLTOALL, 0, "s0", {1, 7}};
  if (with->members[beside.group].collective == COPSE_REDUCE) beside.phase = COPSE_PHASE_REDUCE;
  with->potentials = &beside;
  with->n_potentials = 1;
  ASSERT_FAILS(copse_verify_groups(with, marked, "index.json", &report, &err), COPSE_REFUTED, &err,
               "proves nothing at or beside");
  copse_groups_release(without);
  copse_groups_release(with);
  copse_groups_release(bound);
  copse_topology_free(plain);
  copse_topology_free(marked);
}
END_TEST

/* Bandwidths of so many digits that loads of the exact parts leave 64 bits. */
START_TEST(what_64_bits_cannot_hold_gets_a_stated_gap) {
  int above = 0;
  for (uint64_t seed = 0; seed < 12; seed++) {
    uint64_t state = 900 + seed;
    struct copse_topology *t;
    struct copse_verify_groups_report report;
    struct copse_err err = COPSE_ERR_INIT;
    char text[4000];
    int n =
        snprintf(text, sizeof text,
                 "{\"format\": \"copse-topology/1\", \"name\": \"d\", \"nodes\": [{\"id\": \"s\", "
                 "\"type\": \"switch\"%s}",
                 seed % 3 == 2 ? ", \"multicast\": true" : "");
    for (int i = 0; i < 7; i++)
      n += snprintf(text + n, sizeof text - (size_t)n, ", {\"id\": \"g%d\", \"type\": \"gpu\"}", i);
    n += snprintf(text + n, sizeof text - (size_t)n, "], \"links\": [");
    for (int i = 0; i < 7; i++)
      n += snprintf(
          text + n, sizeof text - (size_t)n,
          "{\"src\": \"g%d\", \"dst\": \"g%d\", \"bandwidth\": %d.%07d}, {\"src\": \"g%d\", "
          "\"dst\": \"s\", \"bandwidth\": %d.%07d}%s",
          i, (i + 1) % 7, copse_test_random_int(&state, 10, 400),
          copse_test_random_int(&state, 0, 9999999), i, copse_test_random_int(&state, 10, 400),
          copse_test_random_int(&state, 0, 9999999), i == 6 ? "]}" : ", ");
    ASSERT_OK(copse_topology_parse("t.json", text, strlen(text), NULL, &t, &err), &err);
    struct copse_groups *groups = solve_list(
        t, "allreduce 0-4\nallgather 1,3,5,6\nreduce_scatter 0,2,5\nalltoall 2-6\n", false);
    ASSERT_OK(copse_verify_groups(groups, t, "index.json", &report, &err), &err);
    double time = copse_q_to_double(report.time_per_GB), bound = copse_q_to_double(report.bound);
    ck_assert_msg(time >= bound * (1 - 1e-15) && (seed % 3 == 2 || time <= bound * (1 + 1e-6)),
                  "seed %d: %.17g, %.17g", (int)seed, time, bound);
    above += seed % 3 < 2 && !report.optimal;
    copse_groups_release(groups);
    copse_topology_free(t);
  }
  ck_assert_int_gt(above, 2);
}
END_TEST

/* ---- symmetries ---------------------------------------------------------------------------- */

static bool maps_group(const struct copse_group *from, const struct copse_group *to,
                       const int *image) {
  bool same = from->collective == to->collective && from->n == to->n;
  for (int i = 0; i < from->n && same; i++) {
    int at = -1;
    for (int k = 0; k < to->n; k++)
      if (to->nodes[k] == image[from->nodes[i]]) at = k;
    same = at >= 0 && (from->root < 0 || (i == from->root) == (at == to->root));
  }
  return same;
}

/* Looks at every node, link and group itself; returns how many orbits of ranks are left. */
static int check_symmetries(const struct copse_topology *t, const struct copse_group *groups, int n,
                            const struct copse_permutation *found, int n_found) {
  int *orbit = calloc((size_t)t->n_nodes, sizeof *orbit), left = 0;
  ck_assert_ptr_nonnull(orbit);
  for (int v = 0; v < t->n_nodes; v++) orbit[v] = v;
  for (int i = 0; i < n_found; i++) {
    const int *image = found[i].image;
    int sum = 0;
    for (int v = 0; v < t->n_nodes; v++) {
      ck_assert_int_eq(t->nodes[v].rank >= 0, t->nodes[image[v]].rank >= 0);
      int a = orbit[v], b = orbit[image[v]];
      for (int u = 0; u < t->n_nodes; u++)
        if (orbit[u] == a) orbit[u] = b;
      sum += image[v];
    }
    ck_assert_int_eq(sum, t->n_nodes * (t->n_nodes - 1) / 2);
    for (int e = 0; e < t->n_links; e++) {
      int f = copse_topology_find_link(t, image[t->links[e].src], image[t->links[e].dst]);
      ck_assert(f >= 0 && copse_q_eq(t->links[e].bandwidth, t->links[f].bandwidth));
    }
    for (int g = 0; g < n; g++)
      ck_assert(maps_group(&groups[g], &groups[found[i].groups[g]], image));
  }
  for (int r = 0; r < t->n_ranks; r++) {
    int first = 0;
    while (orbit[t->rank_nodes[first]] != orbit[t->rank_nodes[r]]) first++;
    left += first == r;
  }
  free(orbit);
  return left;
}

static int orbits_left(const char *spec, const char *list) {
  struct copse_topology *t = synthetic(spec);
  struct copse_symmetry found;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_group *groups;
  int n;
  ASSERT_OK(parse(t, list, &groups, &n, &err), &err);
  ASSERT_OK(copse_groups_symmetries(t, groups, n, &found, &err), &err);
  int left = check_symmetries(t, groups, n, found.generators, found.n_others);
  copse_symmetry_free(&found);
  copse_group_list_free(groups, n);
  copse_topology_free(t);
  return left;
}

#define FOUR "hosts:4 gpus:4@300 nics:4@25 rails"
#define FOUR_TENSOR "0-3\n4-7\n8-11\n12-15\n"
#define FOUR_DATA "0,4,8,12\n1,5,9,13\n2,6,10,14\n3,7,11,15\n"

START_TEST(groups_that_are_alike_are_found_to_be) {
  ck_assert_int_eq(orbits_left(FOUR, FOUR_TENSOR), 1);
  ck_assert_int_eq(orbits_left(FOUR, FOUR_TENSOR FOUR_DATA), 1);
  ck_assert_int_eq(orbits_left(FOUR, FOUR_TENSOR FOUR_DATA "alltoall 0-7\nalltoall 8-15\n"), 1);
  ck_assert_int_eq(orbits_left("torus:4x4@25", FOUR_TENSOR FOUR_DATA), 1);
  /* a host of its own; one GPU of each; a root and the rest of its host, and of the others */
  ck_assert_int_eq(orbits_left(FOUR, "0-3\n"), 2);
  ck_assert_int_eq(orbits_left(FOUR, "0,4,8,12\n"), 2);
  ck_assert_int_eq(orbits_left(FOUR, "broadcast:1 0-3\n"), 4);
  ck_assert_int_eq(orbits_left(FOUR, "0-3\nreduce_scatter 4-7\n"), 3);
  /* twice the same: any two of them may change places */
  ck_assert_int_eq(orbits_left("full:4@30", "0,1\n0,1\n2,3\n2,3\n"), 1);
}
END_TEST

/* The optimum without symmetries, and schedules that the verifier accepts. */
START_TEST(symmetries_leave_the_joint_optimum) {
  static const char *const lists[] = {FOUR_TENSOR,
                                      FOUR_DATA,
                                      FOUR_TENSOR FOUR_DATA,
                                      "alltoall 0-7\nalltoall 8-15\n" FOUR_DATA,
                                      "allreduce 0-3\nallreduce 4-7\nallreduce 0,4,8,12\n",
                                      "broadcast:0 0,4\nbroadcast:0 1,5\n"};
  struct trial trial = {.topology = synthetic(FOUR)};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_group *groups;
  ASSERT_OK(parse(trial.topology, lists[_i], &groups, &trial.n, &err), &err);
  for (int exclude = 0; exclude < 2; exclude++) {
    struct copse_solve_groups_options options = {
        .exclude = exclude, .label = "t.json", .groups_label = "groups.txt"};
    struct copse_solve_seconds seconds;
    struct copse_groups *with, *without;
    struct copse_verify_groups_report report;
    ASSERT_OK(copse_solve_groups(trial.topology, groups, trial.n, &options, &with, &seconds, &err),
              &err);
    options.no_symmetry = true;
    ASSERT_OK(
        copse_solve_groups(trial.topology, groups, trial.n, &options, &without, &seconds, &err),
        &err);
    ck_assert_int_gt(with->n_generators, 0);
    ck_assert_int_eq(without->n_generators, 0);
    ck_assert(copse_q_eq(with->time_per_GB, without->time_per_GB));
    ASSERT_OK(copse_verify_groups(with, trial.topology, "index.json", &report, &err), &err);
    ck_assert(report.optimal);
    ASSERT_OK(copse_verify_groups(without, trial.topology, "index.json", &report, &err), &err);
    ck_assert(report.optimal);
    copse_groups_release(with);
    copse_groups_release(without);
  }
  copse_group_list_free(groups, trial.n);
  copse_topology_free(trial.topology);
}
END_TEST

/* ---- what is wrong is found ---------------------------------------------------------------- */

static void two_groups(struct trial *trial, struct copse_groups **groups) {
  static int all[] = {0, 1, 2, 3}, some[] = {2, 3};
  struct copse_err err = COPSE_ERR_INIT;
  memset(trial, 0, sizeof *trial);
  trial->topology = synthetic("full:4@30");
  trial->n = 2;
  trial->groups[0] = (struct copse_group){COPSE_ALLREDUCE, -1, all, 4, 1};
  trial->groups[1] = (struct copse_group){COPSE_ALLTOALL, -1, some, 2, 2};
  ASSERT_OK(solve(trial, false, groups, &err), &err);
}

enum fault {
  TIME,
  BOUND,
  WEIGHT,
  NEGATIVE,
  STRANGE_NODE,
  ALL_NODES,
  TWICE,
  WRONG_GROUP,
  RANK_POTENTIAL,
  STRANGE_POTENTIAL,
  OTHER_RANKS,
  OTHER_COLLECTIVE,
  TREE_WEIGHT,
  SINK_INSIDE,
  EXCHANGE_POTENTIAL,
  STRANGE_IMAGE,
  NOT_ONE_TO_ONE,
  OTHER_IMAGE,
  TWO_GROUPS_TO_ONE,
  FEW_NODES,
  N_FAULTS
};

static const char *const said[N_FAULTS] = {
    [TIME] = "time_per_GB is",
    [BOUND] = "the bound is",
    [WEIGHT] = "the bound is",
    [NEGATIVE] = "weight is not positive",
    [STRANGE_NODE] = "which the topology lacks",
    [ALL_NODES] = "separates nothing",
    [TWICE] = "twice",
    [WRONG_GROUP] = "", /* several may be found first */
    [RANK_POTENTIAL] = "one of its ranks",
    [STRANGE_POTENTIAL] = "which the topology lacks",
    [OTHER_RANKS] = "rank 0 is",
    [OTHER_COLLECTIVE] = "another collective",
    [TREE_WEIGHT] = "group-0.json",
    [SINK_INSIDE] = "holds its sink",
    [EXCHANGE_POTENTIAL] = "has potentials",
    [STRANGE_IMAGE] = "no symmetry of the topology",
    [NOT_ONE_TO_ONE] = "no symmetry of the topology",
    [OTHER_IMAGE] = "does not take group 1 to group 1",
    [TWO_GROUPS_TO_ONE] = "two groups to group 0",
    [FEW_NODES] = "no symmetry of the topology",
};

static void spoil(struct copse_groups *g, enum fault fault) {
  static const char *strange[] = {"nobody"}, *twice[] = {"gpu0", "gpu0"},
                    *all[] = {"gpu0", "gpu1", "gpu2", "gpu3"}, *others[] = {"gpu1", "gpu3"};
  static struct copse_groups_potential rank = {0, COPSE_PHASE_BROADCAST, "gpu1", {1, 7}},
                                       nobody = {0, COPSE_PHASE_BROADCAST, "nobody", {1, 7}},
                                       exchange = {1, COPSE_PHASE_BROADCAST, "gpu0", {1, 7}};
  static const char *both[] = {"gpu2", "gpu3"};
  static const char *unknown[] = {"gpu1", "gpu0", "gpu2", "nobody"},
                    *same[] = {"gpu1", "gpu1", "gpu2", "gpu3"},
                    *turned[] = {"gpu1", "gpu2", "gpu3", "gpu0"};
  static const int first_twice[] = {0, 0};
  struct copse_groups_generator *generator = (struct copse_groups_generator *)g->generators;
  struct copse_groups_cut *cut = (struct copse_groups_cut *)&g->cuts[0];
  switch (fault) {
    case TIME: g->time_per_GB.num++; break;
    case BOUND: g->bound_time_per_GB.num++; break;
    case WEIGHT: cut->weight.num *= 3; break;
    case NEGATIVE: cut->weight.num *= -1; break;
    case STRANGE_NODE: cut->nodes = strange, cut->n_nodes = 1; break;
    case ALL_NODES: cut->nodes = all, cut->n_nodes = 4; break;
    case TWICE: cut->nodes = twice, cut->n_nodes = 2; break;
    case WRONG_GROUP: cut->group = 1 - cut->group; break;
    case RANK_POTENTIAL: g->potentials = &rank, g->n_potentials = 1; break;
    case STRANGE_POTENTIAL: g->potentials = &nobody, g->n_potentials = 1; break;
    case OTHER_RANKS: g->members[1].ranks = others; break;
    case OTHER_COLLECTIVE: g->members[1].collective = COPSE_REDUCE_SCATTER; break;
    case TREE_WEIGHT:
      ((struct copse_schedule_tree *)g->members[0].schedule->trees)[0].weight.num++;
      break;
    case SINK_INSIDE:
      cut->group = 1, cut->sink = 0, cut->nodes = both, cut->n_nodes = 2;
      cut->phase = COPSE_PHASE_BROADCAST;
      break;
    case EXCHANGE_POTENTIAL: g->potentials = &exchange, g->n_potentials = 1; break;
    case STRANGE_IMAGE: generator->images = unknown; break;
    case NOT_ONE_TO_ONE: generator->images = same; break;
    case OTHER_IMAGE: generator->images = turned; break;
    case TWO_GROUPS_TO_ONE: generator->groups = first_twice; break;
    case FEW_NODES: g->n_symmetry_nodes--; break;
    case N_FAULTS: break;
  }
}

START_TEST(every_fault_is_found) {
  struct trial trial;
  struct copse_groups *groups;
  struct copse_verify_groups_report report;
  struct copse_err err = COPSE_ERR_INIT;
  two_groups(&trial, &groups);
  ASSERT_OK(copse_verify_groups(groups, trial.topology, "index.json", &report, &err), &err);
  spoil(groups, (enum fault)_i);
  ASSERT_FAILS(copse_verify_groups(groups, trial.topology, "index.json", &report, &err),
               COPSE_REFUTED, &err, said[_i]);
  copse_groups_release(groups);
  copse_topology_free(trial.topology);
}
END_TEST

/* Two groups whose schedules are each right, but which claim to run at the pace of one. */
START_TEST(loads_add_up_over_the_groups) {
  struct trial trial;
  struct copse_groups *groups;
  struct copse_verify_groups_report report;
  struct copse_err err = COPSE_ERR_INIT;
  two_groups(&trial, &groups);
  groups->time_per_GB = groups->members[1].schedule->time_per_GB;
  ck_assert(!copse_q_eq(groups->time_per_GB, groups->bound_time_per_GB));
  ASSERT_FAILS(copse_verify_groups(groups, trial.topology, "index.json", &report, &err),
               COPSE_REFUTED, &err, "most loaded by all groups");
  copse_groups_release(groups);
  copse_topology_free(trial.topology);
}
END_TEST

/* ---- files --------------------------------------------------------------------------------- */

struct folder {
  char path[40], index[60];
};

static void write_file(const struct folder *f, const char *name, const char *text, size_t size) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[100];
  snprintf(path, sizeof path, "%s/%s", f->path, name);
  ASSERT_OK(copse_file_write(path, text, size, &err), &err);
}

static void write_all(const struct copse_groups *groups, struct folder *f) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  strcpy(f->path, "/tmp/copse-groups-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(f->path));
  snprintf(f->index, sizeof f->index, "%s/index.json", f->path);
  for (int g = 0; g < groups->n; g++) {
    ASSERT_OK(copse_schedule_to_json(groups->members[g].schedule, &text, &size, &err), &err);
    write_file(f, groups->members[g].file, text, size);
    free(text);
  }
  ASSERT_OK(copse_groups_to_json(groups, &text, &size, &err), &err);
  write_file(f, "index.json", text, size);
  free(text);
}

static void remove_all(const struct folder *f) {
  static const char *const names[] = {"group-0.json", "group-1.json", "index.json"};
  char path[100];
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
    unlink(path);
  }
  rmdir(f->path);
}

START_TEST(files_come_back_as_they_were) {
  struct trial trial;
  struct copse_groups *groups, *back;
  struct copse_verify_groups_report report;
  struct copse_err err = COPSE_ERR_INIT;
  struct folder folder;
  char *text, *again;
  size_t size;
  two_groups(&trial, &groups);
  write_all(groups, &folder);
  ASSERT_OK(copse_groups_load(folder.index, &back, &err), &err);
  ASSERT_OK(copse_verify_groups(back, trial.topology, "index.json", &report, &err), &err);
  ck_assert(report.optimal);
  ASSERT_OK(copse_groups_to_json(groups, &text, &size, &err), &err);
  ASSERT_OK(copse_groups_to_json(back, &again, &size, &err), &err);
  ck_assert_str_eq(text, again);
  free(text);
  free(again);
  remove_all(&folder);
  copse_groups_release(groups);
  copse_groups_release(back);
  copse_topology_free(trial.topology);
}
END_TEST

/* Cut off and changed bytes: an answer, nothing leaked or overrun. */
START_TEST(mutilated_indexes_do_no_harm) {
  struct trial trial;
  struct copse_groups *groups, *back;
  struct copse_verify_groups_report report;
  struct folder folder;
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  uint64_t state = 3;
  int loaded = 0;
  two_groups(&trial, &groups);
  write_all(groups, &folder);
  ASSERT_OK(copse_groups_to_json(groups, &text, &size, &err), &err);
  for (int i = 0; i < 1500; i++) {
    struct copse_err ignored = COPSE_ERR_INIT;
    size_t at = copse_test_random(&state) % size, length = i % 5 ? size : at;
    char kept = text[at];
    if (i % 5) text[at] = "0129{}[]\",:-/x"[copse_test_random_int(&state, 0, 13)];
    write_file(&folder, "index.json", text, length);
    if (copse_groups_load(folder.index, &back, &ignored) == COPSE_OK) {
      loaded++;
      copse_status status =
          copse_verify_groups(back, trial.topology, "index.json", &report, &ignored);
      ck_assert(status == COPSE_OK || status == COPSE_REFUTED || status == COPSE_OVERFLOW);
      copse_groups_release(back);
    }
    text[at] = kept;
  }
  ck_assert_int_gt(loaded, 20);
  free(text);
  remove_all(&folder);
  copse_groups_release(groups);
  copse_topology_free(trial.topology);
}
END_TEST

START_TEST(an_index_reads_only_what_is_beside_it) {
  static const char text[] =
      "{\"format\": \"copse-groups/1\", \"topology\": {\"name\": \"x\", \"sha256\": \"\"}, "
      "\"time_per_GB\": \"1\", \"bound\": {\"time_per_GB\": \"1\", \"cuts\": [], \"potentials\": "
      "[]},\n \"groups\": [{\"file\": \"../other.json\", \"collective\": \"allgather\", "
      "\"ranks\": []}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct folder folder;
  struct copse_groups *groups;
  strcpy(folder.path, "/tmp/copse-groups-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder.path));
  snprintf(folder.index, sizeof folder.index, "%s/index.json", folder.path);
  write_file(&folder, "index.json", text, strlen(text));
  ASSERT_FAILS(copse_groups_load(folder.index, &groups, &err), COPSE_BAD_INPUT, &err,
               "index.json:2: \"file\" must be");
  remove_all(&folder);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("groups");
  TCase *tc = tcase_create("groups");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, a_list_names_ranks_collectives_and_roots);
  tcase_add_loop_test(tc, bad_lists_are_refused_with_their_line, 0,
                      (int)(sizeof bad_lists / sizeof *bad_lists));
  tcase_add_test(tc, mutilated_lists_do_no_harm);
  tcase_add_loop_test(tc, schedules_reach_the_joint_optimum, 0, 8);
  tcase_add_loop_test(tc, many_groups_on_a_torus_take_seconds, 0, 3);
  tcase_add_test(tc, the_bound_of_a_large_alltoall_alone_is_the_optimum);
  tcase_add_test(tc, one_alltoall_is_that_of_the_other_solver);
  tcase_add_test(tc, what_a_group_cannot_do_is_said_with_its_line);
  tcase_add_loop_test(tc, switches_that_copy_are_no_obstacle, 0, 4);
  tcase_add_test(tc, what_64_bits_cannot_hold_gets_a_stated_gap);
  tcase_add_test(tc, groups_that_are_alike_are_found_to_be);
  tcase_add_loop_test(tc, symmetries_leave_the_joint_optimum, 0, 6);
  tcase_add_loop_test(tc, every_fault_is_found, 0, N_FAULTS);
  tcase_add_test(tc, loads_add_up_over_the_groups);
  tcase_add_test(tc, files_come_back_as_they_were);
  tcase_add_test(tc, mutilated_indexes_do_no_harm);
  tcase_add_test(tc, an_index_reads_only_what_is_beside_it);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
