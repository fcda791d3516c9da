/* How high the trees of optimal schedules are, on clusters of the catalogue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/support.h"

static bool same_host(const char *a, const char *b) {
  size_t n = strcspn(a, ".");
  return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

/* Hops from host to host on the longest way of a tree, by the names of the nodes. */
static int host_height(const struct copse_schedule *s, const struct copse_schedule_tree *tree) {
  int *hops = calloc((size_t)s->n_ranks, sizeof *hops), height = 0;
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    int from = reduce ? edge->dst : edge->src, to = reduce ? edge->src : edge->dst;
    hops[to] = hops[from] + !same_host(s->nodes[s->rank_nodes[from]], s->nodes[s->rank_nodes[to]]);
    if (hops[to] > height) height = hops[to];
  }
  free(hops);
  return height;
}

/* Heights that a change may improve, not lose; the throughput is the proven optimum throughout. */
static const struct {
  const char *topology;
  copse_collective collective;
  int hops, host_hops;
  double mean;
} cases[] = {
    /* 2 + ceil(log2 128) hops of hosts are asked for; a rail reaches every host in one */
    {"h100-x128", COPSE_ALLGATHER, 2, 1, 2},
    {"h100-x128", COPSE_BROADCAST, 9, 9, 9},
    {"a100-x128", COPSE_REDUCE, 10, 9, 9.5},
    {"h100-superpod-2su", COPSE_BROADCAST, 7, 5, 6.6}, /* in 16 trees; 80 come to 5.4 */
    {"mi250-ring-64", COPSE_ALLGATHER, 65, 32, 64.5},
    {"gb200-nvl72-x2", COPSE_ALLGATHER, 4, 2, 2.5},
    {"a100-x2", COPSE_ALLREDUCE, 3, 1, 2.3},
    {"h100-x8-clos7", COPSE_ALLGATHER, 5, 4, 4},
    {"ring-8", COPSE_ALLGATHER, 4, 4, 4},           /* half around each way: no lower ones exist */
    {"hypercube-4", COPSE_REDUCE_SCATTER, 4, 4, 4}, /* its diameter */
};
#define N_CASES ((int)(sizeof cases / sizeof *cases))

START_TEST(optimal_trees_are_low) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds seconds;
  struct copse_verify_report report;
  bool rooted = cases[_i].collective == COPSE_BROADCAST || cases[_i].collective == COPSE_REDUCE;
  struct copse_solve_options options = {.collective = cases[_i].collective,
                                        .root = rooted ? 0 : -1,
                                        .tolerance = COPSE_Q_ZERO,
                                        .label = cases[_i].topology};
  char path[80];
  snprintf(path, sizeof path, "topologies/%s.json", cases[_i].topology);
  ASSERT_OK(copse_topology_load(path, NULL, &topology, &err), &err);
  ASSERT_OK(copse_solve_schedule(topology, &options, &schedule, &seconds, &err), &err);
  ASSERT_OK(copse_verify_schedule(schedule, topology, "schedule", &report, &err), &err);
  ck_assert(report.optimal || report.phases_optimal);
  ck_assert_int_le(copse_schedule_height(schedule), cases[_i].hops);
  ck_assert(copse_schedule_mean_height(schedule) <= cases[_i].mean);
  ck_assert(copse_schedule_mean_height(schedule) >= 1);
  for (int t = 0; t < schedule->n_trees; t++)
    ck_assert_int_le(host_height(schedule, &schedule->trees[t]), cases[_i].host_hops);
  copse_schedule_free(schedule);
  copse_topology_free(topology);
}
END_TEST

/* 32 hosts of 8 GPUs on fabrics with less room between switches than below them, solved
 * without symmetry: at most 2 + ceil(log2 32) hops of hosts. */
static const char *const fabrics[] = {
    "{\"type\": \"dragonfly\", \"bandwidth\": 25, \"router_hosts\": 2, \"group_routers\": 4,"
    " \"local_bandwidth\": 50, \"global_bandwidth\": 25, \"global_links\": 4}",
    "{\"type\": \"dragonfly\", \"bandwidth\": 25, \"group_routers\": 4, \"local_bandwidth\": 100,"
    " \"global_bandwidth\": 200}",
    "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 4, \"oversubscription\": 2}",
};
#define N_FABRICS ((int)(sizeof fabrics / sizeof *fabrics))

START_TEST(without_symmetry_few_hops_of_hosts) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds seconds;
  struct copse_verify_report report;
  struct copse_solve_options options = {.collective = COPSE_ALLGATHER,
                                        .root = -1,
                                        .tolerance = COPSE_Q_ZERO,
                                        .no_symmetry = true,
                                        .label = "fabric"};
  char path[] = "/tmp/copse-heights-XXXXXX", folder[1024];
  FILE *file = fdopen(mkstemp(path), "w");
  ck_assert_ptr_nonnull(getcwd(folder, sizeof folder));
  fprintf(file,
          "{\"format\": \"copse-cluster/1\", \"name\": \"fabric\", \"hosts\": 32,\n"
          " \"host\": \"%s/topologies/%s.json\", \"fabric\": %s}\n",
          folder, _i == 0 ? "frontier-node" : "a100-host", fabrics[_i]);
  fclose(file);
  ASSERT_OK(copse_topology_load(path, NULL, &topology, &err), &err);
  unlink(path);
  ASSERT_OK(copse_solve_schedule(topology, &options, &schedule, &seconds, &err), &err);
  ASSERT_OK(copse_verify_schedule(schedule, topology, "schedule", &report, &err), &err);
  ck_assert(report.optimal);
  for (int t = 0; t < schedule->n_trees; t++)
    ck_assert_int_le(host_height(schedule, &schedule->trees[t]), 2 + 5);
  copse_schedule_free(schedule);
  copse_topology_free(topology);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/heights");
  TCase *tests = tcase_create("heights");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, optimal_trees_are_low, 0, N_CASES);
  tcase_add_loop_test(tests, without_symmetry_few_hops_of_hosts, 0, N_FABRICS);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
