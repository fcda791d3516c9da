/* Shortened forests: the same load on every link, still trees, lower. */
#include "solver/trees/forest.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/solve/instance.h"
#include "support/oracle.h"
#include "support/random.h"
#include "support/random_topology.h"
#include "support/support.h"

static bool is_terminal(const struct copse_network *network, int v) {
  for (int i = 0; i < network->n_terminals; i++)
    if (network->terminals[i] == v) return true;
  return false;
}

/* A shortest way from `from` over relays to terminals not in the tree; to a random one of them.
 * 0: there is none. */
static int random_way(const struct copse_network *network, uint64_t *state, int from,
                      const bool *in_tree, int *path) {
  int before[64], queue[64], found[64], n_queue = 1, n_found = 0, reversed[64], n = 0;
  ck_assert_int_le(network->n_nodes, 64);
  for (int v = 0; v < network->n_nodes; v++) before[v] = -2;
  before[from] = -1;
  queue[0] = from;
  for (int i = 0; i < n_queue; i++) {
    if (i > 0 && is_terminal(network, queue[i])) {
      if (!in_tree[queue[i]]) found[n_found++] = queue[i];
      continue;
    }
    for (int l = 0; l < network->n_links; l++) {
      int dst = network->links[l].dst;
      if (network->links[l].src != queue[i] || before[dst] != -2) continue;
      before[dst] = queue[i];
      queue[n_queue++] = dst;
    }
  }
  if (n_found == 0) return 0;
  int v = found[copse_test_random_int(state, 0, n_found - 1)];
  for (; v >= 0; v = before[v]) reversed[n++] = v;
  for (int i = 0; i < n; i++) path[i] = reversed[n - 1 - i];
  return n;
}

/* A tree that prefers to go on from where it came last: deep. */
static void random_tree(const struct copse_network *network, uint64_t *state, int root,
                        struct copse_arena *arena, struct copse_forest_tree *tree) {
  bool in_tree[64] = {false};
  int joined[64], depth[64], path[64], n_joined = 1, n = 0;
  struct copse_forest_edge *edges =
      copse_arena_alloc(arena, (size_t)network->n_terminals, sizeof *edges);
  *tree = (struct copse_forest_tree){root, copse_test_random_int(state, 1, 3), edges, 0};
  in_tree[joined[0] = root] = true;
  depth[root] = 0;
  while (n_joined < network->n_terminals) {
    int last = n_joined - 1;
    if (copse_test_random_int(state, 0, 3) == 0) last = copse_test_random_int(state, 0, last);
    int from = joined[last], length = random_way(network, state, from, in_tree, path);
    for (int i = n_joined - 1; length == 0 && i >= 0; i--)
      length = random_way(network, state, from = joined[i], in_tree, path);
    ck_assert_int_gt(length, 1);
    int dst = path[length - 1], *copy = copse_arena_alloc(arena, (size_t)length, sizeof *copy);
    memcpy(copy, path, (size_t)length * sizeof *copy);
    edges[n++] = (struct copse_forest_edge){from, dst, copy, length};
    depth[dst] = depth[from] + 1;
    if (depth[dst] > tree->height) tree->height = depth[dst];
    in_tree[joined[n_joined++] = dst] = true;
  }
}

/* `trees` trees for each root, their multiplicities made to add up to the same. */
static void random_forest(const struct copse_network *network, uint64_t *state, int trees,
                          struct copse_forest *forest) {
  struct copse_forest_tree *list;
  *forest = (struct copse_forest){.k = 3 * trees};
  list = copse_arena_alloc(&forest->arena, (size_t)(network->n_roots * trees), sizeof *list);
  for (int r = 0; r < network->n_roots; r++) {
    int64_t left = forest->k;
    for (int i = 0; i < trees; i++) {
      struct copse_forest_tree *tree = &list[forest->n_trees++];
      random_tree(network, state, network->roots[r].node, &forest->arena, tree);
      if (i == trees - 1) tree->multiplicity = left;
      left -= tree->multiplicity;
    }
  }
  forest->trees = list;
}

static void add_loads(const struct copse_network *network, const struct copse_forest *forest,
                      int64_t *loads) {
  for (int t = 0; t < forest->n_trees; t++)
    for (int e = 0; e < network->n_terminals - 1; e++) {
      const struct copse_forest_edge *edge = &forest->trees[t].edges[e];
      for (int i = 0; i + 1 < edge->n_path; i++)
        loads[edge->path[i] * network->n_nodes + edge->path[i + 1]] +=
            forest->trees[t].multiplicity;
    }
}

static int highest(const struct copse_forest *forest) {
  int height = 0;
  for (int t = 0; t < forest->n_trees; t++)
    if (forest->trees[t].height > height) height = forest->trees[t].height;
  return height;
}

/* Heights before and after in *before and *after, added up. */
static void check_shortened(const struct copse_network *network, uint64_t *state, int *before,
                            int *after) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_forest forest;
  static int64_t was[64 * 64], is[64 * 64];
  mpq_t time;
  mpq_init(time);
  random_forest(network, state, copse_test_random_int(state, 1, 4), &forest);
  memset(was, 0, sizeof was);
  memset(is, 0, sizeof is);
  add_loads(network, &forest, was);
  int height = highest(&forest), n_trees = forest.n_trees;
  const char *defect = copse_test_forest_defect(network, &forest, time);
  ck_assert_msg(defect == NULL, "the test's own forest: %s", defect);
  ASSERT_OK(copse_forest_shorten(network, &forest, &err), &err);
  defect = copse_test_forest_defect(network, &forest, time);
  ck_assert_msg(defect == NULL, "%s", defect);
  add_loads(network, &forest, is);
  ck_assert_mem_eq(was, is, sizeof was);
  ck_assert_int_le(highest(&forest), height);
  ck_assert_int_le(forest.n_trees, n_trees + n_trees / 4);
  *before += height;
  *after += highest(&forest);
  copse_forest_free(&forest);
  mpq_clear(time);
}

static const struct copse_test_random_options shapes[] = {
    {3, 9, 6, true, true}, {6, 16, 10, false, true}, {8, 16, 4, true, false}};

START_TEST(random_forests_become_lower_at_the_same_load) {
  int before = 0, after = 0;
  for (uint64_t seed = 0; seed < 120; seed++) {
    uint64_t state = 5000 * (uint64_t)_i + seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_instance instance;
    struct copse_topology *topology = copse_test_random_topology(&state, &shapes[_i]);
    ASSERT_OK(copse_instance_make(topology, NULL, -1, seed % 2, &instance, &err), &err);
    check_shortened(&instance.network, &state, &before, &after);
    copse_instance_free(&instance);
    copse_topology_free(topology);
  }
  ck_assert_msg(10 * after < 8 * before, "heights %d -> %d", before, after);
}
END_TEST

/* n terminals in a ring, all chains the same way around: the best is half around each way. */
START_TEST(chains_around_a_ring_of_two_ways_are_halved) {
  enum { N = 8 };
  struct copse_net_link links[2 * N];
  struct copse_net_root roots[N];
  struct copse_forest_tree trees[2 * N];
  struct copse_forest_edge edges[2 * N][N - 1];
  int terminals[N], paths[2 * N][2];
  struct copse_network network = {N, 2 * N, N, N, links, terminals, roots, 0, NULL, 0};
  struct copse_forest forest = {.k = 2, .n_trees = 2 * N, .trees = trees};
  struct copse_err err = COPSE_ERR_INIT;
  mpq_t time;
  mpq_init(time);
  for (int v = 0; v < N; v++) {
    terminals[v] = v;
    roots[v] = (struct copse_net_root){v, 1};
    for (int way = 0; way < 2; way++) {
      int step = way ? N - 1 : 1, t = 2 * v + way;
      links[t] = (struct copse_net_link){v, (v + step) % N, 1};
      paths[t][0] = v;
      paths[t][1] = (v + step) % N;
      trees[t] = (struct copse_forest_tree){v, 1, edges[t], N - 1};
      for (int i = 0; i < N - 1; i++) {
        int src = (v + i * step) % N;
        edges[t][i] = (struct copse_forest_edge){src, (src + step) % N, paths[2 * src + way], 2};
      }
    }
  }
  ASSERT_OK(copse_forest_shorten(&network, &forest, &err), &err);
  ck_assert_ptr_null(copse_test_forest_defect(&network, &forest, time));
  ck_assert_int_eq(highest(&forest), N / 2);
  copse_forest_free(&forest);
  mpq_clear(time);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/shorten");
  TCase *tests = tcase_create("shorten");
  int n_shapes = (int)(sizeof shapes / sizeof *shapes);
  tcase_add_loop_test(tests, random_forests_become_lower_at_the_same_load, 0, n_shapes);
  tcase_add_test(tests, chains_around_a_ring_of_two_ways_are_halved);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
