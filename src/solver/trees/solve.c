/*
 * From a network to its optimum (trees/optimum.h), to integer capacities that carry k trees per
 * root, and to the trees. Those come from the first maker of a table that fits the problem and
 * finds trees; the last one always does (trees/general.h).
 *
 * ForestColl (Zhao et al., arXiv 2402.06787) makes trees this way.
 */
#include "solver/trees/forest.h"

#include <string.h>

#include "base/clock.h"
#include "base/rational.h"
#include "solver/policy.h"
#include "solver/trees/general.h"
#include "solver/trees/maker.h"

/* ---- makers ------------------------------------------------------------------------------ */

static int height_of(const struct copse_forest *forest) {
  int height = 0;
  for (int t = 0; t < forest->n_trees; t++)
    if (forest->trees[t].height > height) height = forest->trees[t].height;
  return height;
}

/* Takes trees that grow side by side in place of those packed if the highest of them is lower, and
 * they are not many more. */
static copse_status prefer_lower(const struct copse_tree_problem *problem,
                                 struct copse_forest *forest, struct copse_err *err) {
  COPSE_AT_END(copse_forest_free) struct copse_forest other = {.k = forest->k};
  int64_t units = 0, more = (int64_t)forest->n_trees * COPSE_FOREST_MORE_TREES_PERCENT / 100;
  bool made;
  for (int t = 0; t < forest->n_trees; t++) units += forest->trees[t].multiplicity;
  if (units / COPSE_FOREST_UNITS_PER_TREE > forest->n_trees ||
      height_of(forest) < COPSE_FOREST_LEAST_HEIGHT)
    return COPSE_OK;
  COPSE_DO(copse_make_levels(problem, &other, &made, err));
  if (made && height_of(&other) < height_of(forest) && other.n_trees <= forest->n_trees + more)
    copse_forest_take_trees(forest, &other);
  return COPSE_OK;
}

static void show_network(const struct copse_tree_problem *problem) {
  const struct copse_network *network = problem->network;
  struct copse_arena scratch = {0};
  struct copse_net_link *links =
      copse_arena_alloc(&scratch, (size_t)network->n_links, sizeof *links);
  for (int i = 0; links && i < network->n_links; i++) {
    links[i] = network->links[i];
    links[i].capacity = problem->capacities[i];
  }
  if (links)
    problem->progress->stage(problem->progress->ctx, "network", problem->k, links,
                             network->n_links);
  copse_arena_free(&scratch);
}

/* The links between terminals that stand for paths over the relays. */
static void show_split(const struct copse_tree_problem *problem, struct copse_flow *flow) {
  const struct copse_network *network = problem->network;
  struct copse_arena scratch = {0};
  size_t most = 2 * (size_t)copse_flow_links(flow); /* both ways of each pair */
  struct copse_net_link *links = copse_arena_alloc(&scratch, most, sizeof *links);
  int n = 0;
  for (int i = 0; links && i < network->n_terminals; i++) {
    int v = network->terminals[i];
    struct copse_flow_neighbours to = copse_flow_leaving(flow, v);
    for (int j = 0; j < to.n; j++)
      if (to.capacities[j] > 0)
        links[n++] = (struct copse_net_link){v, to.nodes[j], to.capacities[j]};
  }
  if (links) problem->progress->stage(problem->progress->ctx, "split graph", problem->k, links, n);
  copse_arena_free(&scratch);
}

static bool is_watched(const struct copse_tree_problem *problem) {
  return problem->progress && problem->progress->stage;
}

/* Takes another forest in place of the one there if it has fewer trees, or as many of a smaller k,
 * and none is higher. */
static bool prefer_fewer(struct copse_forest *forest, struct copse_forest *other) {
  bool fewer = other->n_trees < forest->n_trees ||
               (other->n_trees == forest->n_trees && other->k < forest->k);
  forest->seconds_split += other->seconds_split;
  if (!fewer || other->base_only != forest->base_only || height_of(other) > height_of(forest))
    return false;
  forest->k = other->k;
  copse_forest_take_trees(forest, other);
  return true;
}

static copse_status pack_once(const struct copse_tree_problem *problem, struct copse_forest *forest,
                              struct copse_err *err) {
  COPSE_AT_END(copse_paths_free_at) struct copse_paths *paths = NULL;
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  COPSE_AT_END(copse_packing_free) struct copse_packing packing = {0};
  double start = copse_clock_seconds();
  COPSE_DO(copse_paths_new(problem->network, problem->capacities, &paths, err));
  COPSE_DO(copse_split_relays(problem, paths, &flow, err));
  forest->seconds_split = copse_clock_seconds() - start;
  if (is_watched(problem)) show_split(problem, flow);
  COPSE_DO(copse_pack_trees(problem, flow, &packing, err));
  COPSE_DO(copse_paths_lay(paths, &packing, forest, err));
  return copse_forest_shorten(problem->network, forest, err);
}

/* The general way: relays are split off, trees packed and laid on paths. */
static copse_status split_and_pack(const struct copse_tree_problem *problem,
                                   struct copse_forest *forest, bool *made, struct copse_err *err) {
  COPSE_DO(pack_once(problem, forest, err));
  *made = true;
  if (problem->network->n_roots < problem->trust_from) return prefer_lower(problem, forest, err);
  return COPSE_OK;
}

static bool has_symmetry(const struct copse_tree_problem *problem) {
  return problem->symmetry && problem->symmetry->n > 0;
}

static bool is_one_to_many(const struct copse_tree_problem *problem) {
  return problem->network->n_terminals >= problem->trust_from && problem->network->n_roots == 1;
}

static bool is_many_to_many(const struct copse_tree_problem *problem) {
  return problem->network->n_terminals >= problem->trust_from &&
         problem->network->n_roots >= problem->trust_from;
}

static bool is_any(const struct copse_tree_problem *problem) {
  (void)problem;
  return true;
}

/* In the order in which they are tried: a maker that fits and does not find trees leaves the
 * problem to the next one that fits, unless it is the last to be asked. Among many ranks trees over
 * physical links are quicker to find than by splitting, and lower. */
static const struct {
  bool (*fits)(const struct copse_tree_problem *problem);
  copse_tree_maker *make;
  bool last;
} makers[] = {
    {has_symmetry, copse_make_orbit_trees, true}, /* whoever asked for base roots wants no others */
    {is_one_to_many, copse_make_single, false},
    {is_many_to_many, copse_make_levels, false},
    {is_any, split_and_pack, true},
};

/* ---- the whole --------------------------------------------------------------------------- */

/* The integer problem: exact at the optimum, or for the k that was asked for. */
static copse_status choose_capacities(const struct copse_network *network,
                                      const struct copse_forest_options *options,
                                      struct copse_forest *forest, int64_t *capacities,
                                      struct copse_err *err) {
  struct copse_q u;
  struct copse_scale scale;
  if (options->as_given) {
    for (int i = 0; i < network->n_links; i++) capacities[i] = network->links[i].capacity;
    forest->k = 1;
    return COPSE_OK;
  }
  if (options->k > 0) {
    forest->k = options->k;
    return copse_optimum_fixed_k(network, forest->optimum.x, options->k, &u, capacities, err);
  }
  COPSE_DO(copse_optimum_scale(network, forest->optimum.x, &scale, err));
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = network->links[i].capacity / scale.divisor * scale.numerator;
  forest->k = scale.k;
  return COPSE_OK;
}

static copse_status run_makers(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *packed, struct copse_err *err) {
  bool made = false, last = false;
  for (int i = 0; !made && !last; i++) {
    if (!makers[i].fits(problem)) continue;
    COPSE_DO(makers[i].make(problem, forest, &made, err));
    last = makers[i].last;
    *packed = makers[i].make == split_and_pack;
  }
  return COPSE_OK;
}

/* The same at the optimum with k trees per root, for which capacities are rounded down; whether
 * they carry those. */
static copse_status round_problem(const struct copse_tree_problem *from, struct copse_q x,
                                  int64_t k, struct copse_arena *scratch,
                                  struct copse_tree_problem *to, bool *carries,
                                  struct copse_err *err) {
  const struct copse_network *network = from->network;
  int64_t *capacities;
  struct copse_q u;
  *carries = false;
  *to = *from;
  to->k = k;
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)network->n_links, capacities, err));
  to->capacities = capacities;
  if (copse_q_div((struct copse_q){k, 1}, x, &u, NULL) != COPSE_OK) return COPSE_OK;
  return copse_optimum_round(network, u, k, capacities, carries, err);
}

static int64_t rounding_work(const struct copse_network *network) {
  return (int64_t)network->n_terminals * network->n_links;
}

/* Whether the trees among many ranks are so many that rounded capacities come first. */
static bool is_too_fine(const struct copse_tree_problem *problem) {
  int64_t n = 0, more;
  if (has_symmetry(problem) || !is_many_to_many(problem)) return false;
  for (int i = 0; i < problem->network->n_roots; i++)
    if (copse_mul_overflows(problem->network->roots[i].weight, problem->k, &more) ||
        copse_add_overflows(n, more, &n) || n > COPSE_FOREST_FINE / problem->network->n_terminals)
      return true;
  return false;
}

/* Where exact capacities have many trees, the fewest per root for which rounded ones carry them
 * at the optimum: such a problem in place of the exact one. */
static copse_status coarsen(struct copse_tree_problem *problem, struct copse_arena *scratch,
                            struct copse_forest *forest, struct copse_err *err) {
  int64_t work = 0, most = problem->k;
  bool carries = false;
  if (!is_too_fine(problem)) return COPSE_OK;
  for (int64_t k = copse_optimum_step(problem->network, &forest->optimum);
       k < most && !carries && work < COPSE_FOREST_FEWER_WORK;
       k *= 2, work += rounding_work(problem->network)) {
    struct copse_tree_problem fewer;
    COPSE_DO(round_problem(problem, forest->optimum.x, k, scratch, &fewer, &carries, err));
    if (!carries) continue;
    forest->k = k;
    *problem = fewer;
  }
  return COPSE_OK;
}

/* At the optimum, with fewer trees per root, where bandwidths that don't bind have made k large.
 * `problem` is the one that the forest is of, and becomes the one of the forest that is taken. */
static copse_status try_fewer(struct copse_tree_problem *problem, struct copse_arena *scratch,
                              struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  int64_t k = copse_optimum_step(network, &forest->optimum), work = 0;
  int made = 0;
  for (; k < problem->k && forest->n_trees > network->n_roots && made < COPSE_FOREST_FEWER_MADE &&
         work < COPSE_FOREST_FEWER_WORK;
       k *= 2, work += rounding_work(network)) {
    COPSE_AT_END(copse_forest_free) struct copse_forest other = {.k = k};
    struct copse_tree_problem fewer;
    bool carries, packed;
    COPSE_DO(round_problem(problem, forest->optimum.x, k, scratch, &fewer, &carries, err));
    if (!carries) continue;
    fewer.progress = NULL;
    COPSE_DO(run_makers(&fewer, &other, &packed, err));
    made++;
    if (prefer_fewer(forest, &other)) *problem = fewer;
  }
  return COPSE_OK;
}

/* Another order of the roots for each number from 1 on (Fisher and Yates). */
static void shuffle(struct copse_net_root *roots, int n, int number) {
  uint64_t random = (uint64_t)number;
  for (int i = n - 1; i > 0 && number > 0; i--) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int j = (int)((random >> 33) % (uint64_t)(i + 1));
    struct copse_net_root root = roots[i];
    roots[i] = roots[j];
    roots[j] = root;
  }
}

/* Packs in several ways, in several orders of the roots, and takes the fewest trees. */
static copse_status pack_variants(struct copse_tree_problem problem, struct copse_arena *scratch,
                                  struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *from = problem.network;
  struct copse_network network = *from;
  struct copse_net_root *roots;
  int most = network.n_roots == 1 ? 2 : COPSE_FOREST_VARIANTS;
  int64_t work = 0;
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)network.n_roots, roots, err));
  network.roots = roots;
  problem.network = &network;
  problem.progress = NULL;
  for (int i = 0; i < most && forest->n_trees > network.n_roots; i++) {
    COPSE_AT_END(copse_forest_free) struct copse_forest other = {.k = problem.k};
    bool made;
    work += (int64_t)forest->n_trees * network.n_terminals;
    if (work > COPSE_FOREST_VARIANTS_WORK) break;
    memcpy(roots, from->roots, (size_t)network.n_roots * sizeof *roots);
    shuffle(roots, network.n_roots, i / 2);
    problem.packing = i % 2 == 0 ? COPSE_PACK_WHOLE : COPSE_PACK_BEST_FIT;
    COPSE_DO(split_and_pack(&problem, &other, &made, err));
    (void)prefer_fewer(forest, &other);
  }
  return COPSE_OK;
}

static copse_status make_trees(const struct copse_network *network,
                               const struct copse_forest_options *options,
                               struct copse_forest *forest, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int64_t *capacities;
  bool packed = false;
  double start = copse_clock_seconds();
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_links, capacities, err));
  COPSE_DO(choose_capacities(network, options, forest, capacities, err));
  struct copse_tree_problem problem = {.network = network,
                                       .capacities = capacities,
                                       .k = forest->k,
                                       .symmetry = options->symmetry,
                                       .multiple = options->multiple && options->k == 0,
                                       .trust_from = copse_trust_from(options->trust_from),
                                       .progress = options->progress};
  bool free_k = options->fewest && options->k == 0 && !options->as_given;
  if (free_k) COPSE_DO(coarsen(&problem, &scratch, forest, err));
  if (is_watched(&problem)) show_network(&problem);
  COPSE_DO(run_makers(&problem, forest, &packed, err));
  if (free_k) COPSE_DO(try_fewer(&problem, &scratch, forest, err));
  if (options->fewest && packed) COPSE_DO(pack_variants(problem, &scratch, forest, err));
  forest->seconds_pack = copse_clock_seconds() - start - forest->seconds_split;
  return COPSE_OK;
}

/* One rank alone: nothing to move, one tree without edges per root. */
static copse_status lone_terminal(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) {
  struct copse_forest_tree tree = {.root = network->roots[0].node, .multiplicity = 1};
  forest->k = 1;
  return copse_forest_add(forest, tree, 0, NULL, err);
}

copse_status copse_forest_solve(const struct copse_network *network,
                                const struct copse_forest_options *options,
                                struct copse_forest *out, struct copse_err *err) {
  *out = (struct copse_forest){0};
  double start = copse_clock_seconds();
  if (options->as_given)
    out->optimum = (struct copse_optimum){.x = COPSE_Q_ONE, .unreached = -1};
  else
    COPSE_DO(copse_optimum_find(network, options->progress, &out->optimum, err));
  out->seconds_optimum = copse_clock_seconds() - start;
  if (options->bound_only) return COPSE_OK;
  if (network->n_terminals == 1)
    COPSE_DO(lone_terminal(network, out, err));
  else if (out->optimum.x.num > 0)
    COPSE_DO(make_trees(network, options, out, err));
  return COPSE_OK;
}

void copse_forest_free(struct copse_forest *forest) {
  copse_optimum_free(&forest->optimum);
  copse_arena_free(&forest->arena);
}

copse_status copse_forest_add(struct copse_forest *forest, struct copse_forest_tree tree,
                              int n_edges, int *depth, struct copse_err *err) {
  if (forest->n_trees == forest->trees_capacity) {
    int room = forest->n_trees < 8 ? 16 : 2 * forest->n_trees;
    struct copse_forest_tree *trees;
    COPSE_DO(COPSE_ARRAY(&forest->arena, (size_t)room, trees, err));
    if (forest->n_trees > 0) memcpy(trees, forest->trees, (size_t)forest->n_trees * sizeof *trees);
    forest->trees = trees;
    forest->trees_capacity = room;
  }
  if (n_edges > 0) depth[tree.root] = 0;
  for (int i = 0; i < n_edges; i++) {
    int hops = depth[tree.edges[i].dst] = depth[tree.edges[i].src] + 1;
    if (hops > tree.height) tree.height = hops;
  }
  forest->trees[forest->n_trees++] = tree;
  return COPSE_OK;
}

void copse_forest_clear(struct copse_forest *forest) {
  copse_arena_free(&forest->arena);
  forest->trees = NULL;
  forest->n_trees = forest->trees_capacity = 0;
}

void copse_forest_take_trees(struct copse_forest *to, struct copse_forest *from) {
  copse_forest_clear(to);
  to->arena = from->arena;
  to->trees = from->trees;
  to->n_trees = from->n_trees;
  to->trees_capacity = from->trees_capacity;
  from->arena = (struct copse_arena){0};
  copse_forest_clear(from);
}
