#include "support/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/solve.h"
#include "support/support.h"

#define HEAD "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
#define GPU(id) "{\"id\":\"" id "\",\"type\":\"gpu\"}"
#define SWITCH(id) "{\"id\":\"" id "\",\"type\":\"switch\"}"
#define LINK(a, b, bw) "{\"src\":\"" a "\",\"dst\":\"" b "\",\"bandwidth\":" bw "}"
#define ONE_WAY(a, b, bw) \
  "{\"src\":\"" a "\",\"dst\":\"" b "\",\"bandwidth\":" bw ",\"duplex\":false}"

const char *const copse_test_fabrics[] = {
    /* four GPUs on a switch */
    HEAD GPU("a") "," GPU("b") "," GPU("c") "," GPU("d") "," SWITCH("s") "],\"links\":["
    LINK("a", "s", "300") "," LINK("b", "s", "300") "," LINK("c", "s", "300") ","
    LINK("d", "s", "300") "]}",
    /* a ring of five */
    HEAD GPU("a") "," GPU("b") "," GPU("c") "," GPU("d") "," GPU("e") "],\"links\":["
    LINK("a", "b", "50") "," LINK("b", "c", "50") "," LINK("c", "d", "50") ","
    LINK("d", "e", "50") "," LINK("e", "a", "50") "]}",
    /* two hosts of three: a fast switch each, a slow one between; k = 13-like weights */
    HEAD GPU("a") "," GPU("b") "," GPU("c") "," GPU("x") "," GPU("y") "," GPU("z") ","
    SWITCH("s") "," SWITCH("t") "," SWITCH("n") "],\"links\":["
    LINK("a", "s", "300") "," LINK("b", "s", "300") "," LINK("c", "s", "300") ","
    LINK("x", "t", "300") "," LINK("y", "t", "300") "," LINK("z", "t", "300") ","
    LINK("a", "n", "25") "," LINK("b", "n", "25") "," LINK("c", "n", "12.5") ","
    LINK("x", "n", "25") "," LINK("y", "n", "25") "," LINK("z", "n", "12.5") "]}",
    /* uneven, and not the same in both directions: reduce and broadcast trees differ */
    HEAD GPU("a") "," GPU("b") "," GPU("c") "," GPU("d") "],\"links\":["
    LINK("a", "b", "7") "," ONE_WAY("b", "c", "5") "," ONE_WAY("c", "b", "2") ","
    LINK("c", "d", "3.5") "," ONE_WAY("d", "a", "4") "," ONE_WAY("a", "d", "1") ","
    LINK("a", "c", "\"4/3\"") "]}",
    /* two ranks */
    HEAD GPU("a") "," GPU("b") "],\"links\":[" LINK("a", "b", "10") "]}",
    /* one rank */
    HEAD GPU("a") "],\"links\":[]}",
};
const int copse_test_n_fabrics = (int)(sizeof copse_test_fabrics / sizeof *copse_test_fabrics);

struct copse_topology *copse_test_topology(const char *json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  ASSERT_OK(copse_topology_parse("test.json", json, strlen(json), NULL, &topology, &err), &err);
  return topology;
}

struct copse_schedule *copse_test_solve_as(const struct copse_topology *topology,
                                           struct copse_solve_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_solve_schedule(topology, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

struct copse_schedule *copse_test_solve(const char *json, copse_collective collective, int64_t k) {
  struct copse_topology *topology = copse_test_topology(json);
  struct copse_schedule *schedule = copse_test_solve_as(
      topology, (struct copse_solve_options){
                    .collective = collective,
                    .root = collective == COPSE_BROADCAST || collective == COPSE_REDUCE ? 0 : -1,
                    .k = k,
                    .label = "test.json"});
  copse_topology_free(topology);
  return schedule;
}

static void *take(struct copse_schedule *s, int n, size_t size) {
  void *p = copse_arena_alloc(&s->arena, (size_t)n, size);
  ck_assert_ptr_nonnull(p);
  return p;
}

struct copse_schedule *copse_test_star(int n, copse_collective collective) {
  bool reduce = collective == COPSE_REDUCE;
  struct copse_schedule *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  const char **ids = take(s, n, sizeof *ids);
  int *ranks = take(s, n, sizeof *ranks);
  struct copse_schedule_tree *tree = take(s, 1, sizeof *tree);
  struct copse_schedule_edge *edges = take(s, n, sizeof *edges);
  for (int r = 0; r < n; r++) {
    char id[16];
    snprintf(id, sizeof id, "g%d", r);
    ids[r] = copse_arena_strdup(&s->arena, id);
    ranks[r] = r;
    if (r == 0) continue;
    int *path = take(s, 2, sizeof *path);
    path[0] = reduce ? r : 0;
    path[1] = reduce ? 0 : r;
    edges[r - 1] = (struct copse_schedule_edge){path[0], path[1], path, 2};
  }
  *tree = (struct copse_schedule_tree){.phase = reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST,
                                       .weight = COPSE_Q_ONE,
                                       .n_edges = n - 1,
                                       .edges = edges};
  s->collective = collective;
  s->topology_name = "star";
  s->topology_sha256 = "";
  s->n_ranks = s->n_nodes = n;
  s->nodes = ids;
  s->rank_nodes = ranks;
  s->n_trees = 1;
  s->trees = tree;
  return s;
}

struct copse_schedule *copse_test_relayed_star(int n, int n_trees) {
  struct copse_schedule *s = copse_test_star(n, COPSE_BROADCAST);
  struct copse_schedule_tree *trees = take(s, n_trees, sizeof *trees);
  struct copse_schedule_edge *edges = take(s, n - 1, sizeof *edges);
  for (int e = 0; e < n - 1; e++) {
    int *path = take(s, 2, sizeof *path);
    path[0] = e > 0;
    path[1] = e + 1;
    edges[e] = (struct copse_schedule_edge){path[0], path[1], path, 2};
  }
  for (int i = 0; i < n_trees; i++) {
    trees[i] = s->trees[0];
    trees[i].weight = (struct copse_q){1, n_trees};
    trees[i].edges = edges;
  }
  s->trees = trees;
  s->n_trees = n_trees;
  return s;
}
