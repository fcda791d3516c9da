/*
 * From a network to its optimum (trees/optimum.h), to integer capacities that carry k trees per
 * root, and to the trees. Those come from the first maker of a table that fits the problem and
 * finds trees; the last one always does (trees/general.h).
 *
 * ForestColl (Zhao et al., arXiv 2402.06787) makes trees this way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/policy.h"
#include "solver/trees/forest.h"
#include "solver/trees/general.h"
#include "solver/trees/maker.h"

/* ==== paths =================================================================================== */

/*
 * Bundles of pieces by pair of nodes; the paths of all pieces share what they have
 * in common. Splitting w off by the pair u -> w, w -> t:
 *
 *      before    u --- 5:p ---> w --- 3:q, 2:r ---> t       amount:path
 *      after     u ------- 3:(p q), 2:(p r) ------> t       (p q) is p, then q
 *
 * At the end packed trees are laid on physical links: a tree whose edge needs several pieces
 * becomes several trees.
 */

/* A physical link (left < 0: `right` is its index) or the concatenation of two paths. */
struct path {
  int left, right;
};

struct copse_paths {
  const struct copse_network *network;
  struct path *paths;
  size_t n_paths, paths_capacity;
  struct copse_index_map by_ends; /* bundles */
  struct copse_pieces *bundles;
  size_t n_bundles, bundles_capacity;
  int *stack; /* expansion of paths */
  size_t stack_capacity;
  int *seen_at; /* [n_nodes] position in the path being expanded, -1 elsewhere */
};

/* Gets the number of the bundle of src -> dst, made empty if it isn't there. */
static copse_status get_bundle(struct copse_paths *paths, int src, int dst, int *bundle,
                               struct copse_err *err) {
  size_t cursor = 0;
  *bundle = copse_index_map_next(&paths->by_ends, copse_key_pair(src, dst), &cursor);
  if (*bundle >= 0) return COPSE_OK;
  *bundle = (int)paths->n_bundles;
  COPSE_DO(COPSE_GROW(paths->bundles, paths->bundles_capacity, paths->n_bundles + 1, err));
  COPSE_DO(copse_index_map_add(&paths->by_ends, copse_key_pair(src, dst), *bundle, err));
  paths->bundles[paths->n_bundles++] = (struct copse_pieces){0};
  return COPSE_OK;
}

static copse_status add_path(struct copse_paths *paths, int left, int right, int *index,
                             struct copse_err *err) {
  COPSE_DO(COPSE_GROW(paths->paths, paths->paths_capacity, paths->n_paths + 1, err));
  *index = (int)paths->n_paths;
  paths->paths[paths->n_paths++] = (struct path){left, right};
  return COPSE_OK;
}

static copse_status add_piece(struct copse_pieces *pieces, struct copse_piece piece,
                              struct copse_err *err) {
  return COPSE_PUSH(pieces->list, pieces->n, pieces->capacity, err, piece);
}

copse_status copse_paths_new(const struct copse_network *network, const int64_t *capacities,
                             struct copse_paths **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_paths *paths = *out;
  paths->network = network;
  COPSE_DO(copse_calloc((size_t)network->n_nodes, sizeof(int), &paths->seen_at, err));
  for (int i = 0; i < network->n_nodes; i++) paths->seen_at[i] = -1;
  for (int i = 0; i < network->n_links; i++) {
    int bundle;
    struct copse_piece piece = {.amount = capacities[i]};
    if (capacities[i] == 0) continue;
    COPSE_DO(add_path(paths, -1, i, &piece.path, err));
    COPSE_DO(get_bundle(paths, network->links[i].src, network->links[i].dst, &bundle, err));
    COPSE_DO(add_piece(&paths->bundles[bundle], piece, err));
  }
  return COPSE_OK;
}

void copse_paths_free(struct copse_paths *paths) {
  if (!paths) return;
  for (size_t i = 0; i < paths->n_bundles; i++) free(paths->bundles[i].list);
  free(paths->bundles);
  copse_index_map_free(&paths->by_ends);
  free(paths->paths);
  free(paths->stack);
  free(paths->seen_at);
  free(paths);
}

/* Takes up to `most` off the last piece. */
static struct copse_piece take_last(struct copse_pieces *bundle, int64_t most) {
  struct copse_piece *last = &bundle->list[bundle->n - 1];
  struct copse_piece taken = {last->amount < most ? last->amount : most, last->path};
  last->amount -= taken.amount;
  if (last->amount == 0) bundle->n--;
  return taken;
}

/* Joins two paths; splitting often makes the same one again at once. */
static copse_status join(struct copse_paths *paths, int left, int right, int *index,
                         struct copse_err *err) {
  const struct path *last = &paths->paths[paths->n_paths - 1];
  if (last->left == left && last->right == right) {
    *index = (int)paths->n_paths - 1;
    return COPSE_OK;
  }
  return add_path(paths, left, right, index, err);
}

copse_status copse_paths_split(struct copse_paths *paths, int u, int w, int t, int64_t amount,
                               struct copse_err *err) {
  int of_in, of_out, of_direct = -1;
  COPSE_DO(get_bundle(paths, u, w, &of_in, err));
  COPSE_DO(get_bundle(paths, w, t, &of_out, err));
  if (u != t) COPSE_DO(get_bundle(paths, u, t, &of_direct, err));
  struct copse_pieces *in = &paths->bundles[of_in], *out_of = &paths->bundles[of_out];
  struct copse_pieces *direct = of_direct >= 0 ? &paths->bundles[of_direct] : NULL;
  while (amount > 0) {
    if (in->n == 0 || out_of->n == 0)
      return copse_fail(err, COPSE_INTERNAL, "edge splitting lost track of a path");
    int64_t most = amount < in->list[in->n - 1].amount ? amount : in->list[in->n - 1].amount;
    struct copse_piece second = take_last(out_of, most);
    struct copse_piece first = take_last(in, second.amount);
    amount -= first.amount;
    if (!direct) continue;
    struct copse_piece piece = {first.amount, 0};
    COPSE_DO(join(paths, first.path, second.path, &piece.path, err));
    COPSE_DO(add_piece(direct, piece, err));
  }
  return COPSE_OK;
}

/* Returns the smallest piece that is large enough, else the largest. */
static size_t best_piece(const struct copse_pieces *bundle, int64_t amount) {
  size_t best = 0;
  for (size_t i = 1; i < bundle->n; i++) {
    int64_t a = bundle->list[i].amount, b = bundle->list[best].amount;
    if (b < amount ? a > b : (a >= amount && a < b)) best = i;
  }
  return best;
}

copse_status copse_paths_take(struct copse_paths *paths, int src, int dst, int64_t amount,
                              struct copse_pieces *out, struct copse_err *err) {
  int number;
  copse_status status = get_bundle(paths, src, dst, &number, err);
  while (status == COPSE_OK && amount > 0) {
    struct copse_pieces *bundle = &paths->bundles[number];
    if (bundle->n == 0) return copse_fail(err, COPSE_INTERNAL, "a tree uses more than a link has");
    struct copse_piece *best = &bundle->list[best_piece(bundle, amount)], taken = *best;
    if (taken.amount > amount) taken.amount = amount;
    best->amount -= taken.amount;
    if (best->amount == 0) *best = bundle->list[--bundle->n];
    amount -= taken.amount;
    status = add_piece(out, taken, err);
  }
  return status;
}

/* Appends a node; coming back to one cuts out the loop in between. */
static int append_node(struct copse_paths *paths, int *nodes, int n, int node) {
  if (paths->seen_at[node] >= 0) {
    for (int i = paths->seen_at[node] + 1; i < n; i++) paths->seen_at[nodes[i]] = -1;
    return paths->seen_at[node] + 1;
  }
  paths->seen_at[node] = n;
  nodes[n] = node;
  return n + 1;
}

int copse_paths_expand(struct copse_paths *paths, int path, int *nodes) {
  int n = 0;
  size_t depth = 0;
  for (;;) {
    if (copse_grow(&paths->stack, &paths->stack_capacity, depth + 2, sizeof(int), NULL) != COPSE_OK)
      return 0;
    const struct path *p = &paths->paths[path];
    if (p->left >= 0) { /* left part first, the right part waits */
      paths->stack[depth++] = p->right;
      path = p->left;
      continue;
    }
    const struct copse_net_link *link = &paths->network->links[p->right];
    if (n == 0) n = append_node(paths, nodes, n, link->src);
    n = append_node(paths, nodes, n, link->dst);
    if (depth == 0) break;
    path = paths->stack[--depth];
  }
  for (int i = 0; i < n; i++) paths->seen_at[nodes[i]] = -1;
  return n;
}

/* ---- packed trees on physical paths ------------------------------------------------------- */

struct layer {
  const struct copse_network *network;
  struct copse_paths *paths;
  struct copse_forest *forest;
  struct copse_pieces pieces; /* of all edges of the tree at hand, edge by edge */
  size_t *cursor;             /* [n_terminals] piece that each edge is at */
  size_t *last;               /* [n_terminals] one past the edge's pieces */
  int *nodes;                 /* [n_nodes + 1] path under expansion */
  int *depth;                 /* [n_nodes + 1] */
  struct copse_arena scratch; /* the four arrays above */
};

static void release(struct layer *l) {
  free(l->pieces.list);
  copse_arena_free(&l->scratch);
}

static copse_status fill_edge(struct layer *l, struct copse_packed_edge edge, int path,
                              struct copse_forest_edge *out, struct copse_err *err) {
  int n = copse_paths_expand(l->paths, path, l->nodes);
  int *copy = n > 0 ? copse_arena_alloc(&l->forest->arena, (size_t)n, sizeof *copy) : NULL;
  if (!copy) return copse_fail_nomem(err);
  memcpy(copy, l->nodes, (size_t)n * sizeof *copy);
  *out = (struct copse_forest_edge){edge.src, edge.dst, copy, n};
  return COPSE_OK;
}

/* Adds one tree with the piece that each edge is at. */
static copse_status add_tree(struct layer *l, int root, const struct copse_packed_edge *edges,
                             int64_t multiplicity, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  struct copse_forest_tree tree = {.root = root, .multiplicity = multiplicity};
  struct copse_forest_edge *copy;
  COPSE_DO(COPSE_ARRAY(&l->forest->arena, n, copy, err));
  for (size_t i = 0; i < n; i++)
    COPSE_DO(fill_edge(l, edges[i], l->pieces.list[l->cursor[i]].path, &copy[i], err));
  tree.edges = copy;
  return copse_forest_add(l->forest, tree, (int)n, l->depth, err);
}

/* Lays a family's trees: one whose edges lie on several paths becomes several, cut where one
 * ends. */
static copse_status lay_tree(struct layer *l, const struct copse_packed_tree *tree,
                             const struct copse_packed_edge *edges, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  l->pieces.n = 0;
  for (size_t i = 0; i < n; i++) {
    l->cursor[i] = l->pieces.n;
    COPSE_DO(copse_paths_take(l->paths, edges[i].src, edges[i].dst, tree->multiplicity, &l->pieces,
                              err));
    l->last[i] = l->pieces.n;
  }
  for (int64_t left = tree->multiplicity; left > 0;) {
    int64_t amount = left;
    for (size_t i = 0; i < n; i++)
      if (l->pieces.list[l->cursor[i]].amount < amount)
        amount = l->pieces.list[l->cursor[i]].amount;
    COPSE_DO(add_tree(l, tree->root, edges, amount, err));
    left -= amount;
    for (size_t i = 0; i < n; i++) {
      struct copse_piece *piece = &l->pieces.list[l->cursor[i]];
      piece->amount -= amount;
      if (piece->amount == 0 && l->cursor[i] + 1 < l->last[i]) l->cursor[i]++;
    }
  }
  return COPSE_OK;
}

/*
 * Lays the trees of a packing on physical paths: forest->trees and n_trees. A family whose edges
 * lie on several paths becomes several trees, cut where one ends. COPSE_NOMEM, COPSE_INTERNAL.
 */
static copse_status paths_lay(struct copse_paths *paths, const struct copse_packing *packing,
                              struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *network = paths->network;
  COPSE_AT_END(release)
  struct layer l = {.network = network, .paths = paths, .forest = forest};
  size_t nodes = (size_t)network->n_nodes, terminals = (size_t)network->n_terminals;
  COPSE_DO(COPSE_ARRAYS(&l.scratch, terminals, size_t, err, &l.cursor, &l.last));
  COPSE_DO(COPSE_ARRAYS(&l.scratch, nodes + 1, int, err, &l.nodes, &l.depth));
  for (size_t i = 0; i < packing->n_trees; i++)
    COPSE_DO(lay_tree(&l, &packing->trees[i], packing->edges + packing->trees[i].first_edge, err));
  return COPSE_OK;
}

/* ==== makers ================================================================================== */

static int height_of(const struct copse_forest *forest) {
  int height = 0;
  for (int t = 0; t < forest->n_trees; t++)
    if (forest->trees[t].height > height) height = forest->trees[t].height;
  return height;
}

/* Replaces the forest by trees that grow side by side if the highest of these is lower; by a
 * quarter at least where their number is not limited. */
static copse_status prefer_levels(const struct copse_tree_problem *problem, bool any_number,
                                  struct copse_forest *forest, struct copse_err *err) {
  COPSE_AT_END(copse_forest_free) struct copse_forest other = {.k = forest->k};
  int more = (int)((int64_t)forest->n_trees * COPSE_FOREST_MORE_TREES_PERCENT / 100);
  int height = height_of(forest), part = COPSE_FOREST_LOWER_PART;
  int most = any_number ? height - (height + part - 1) / part : height - 1;
  bool made;
  COPSE_DO(copse_make_levels(problem, &other, &made, err));
  if (!made || height_of(&other) > most) return COPSE_OK;
  if (!any_number && other.n_trees > forest->n_trees + more) return COPSE_OK;
  copse_forest_take_trees(forest, &other);
  forest->k = other.k;
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

/* Shows the links between terminals that stand for paths over the relays. */
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
  COPSE_DO(paths_lay(paths, &packing, forest, err));
  return copse_forest_shorten(problem->network, forest, err);
}

/* Goes the general way: relays are split off, trees packed and laid on paths. */
static copse_status split_and_pack(const struct copse_tree_problem *problem,
                                   struct copse_forest *forest, bool *made, struct copse_err *err) {
  int64_t units = 0;
  COPSE_DO(pack_once(problem, forest, err));
  *made = true;
  for (int t = 0; t < forest->n_trees; t++) units += forest->trees[t].multiplicity;
  if (problem->network->n_roots >= problem->trust_from ||
      units / COPSE_FOREST_UNITS_PER_TREE > forest->n_trees ||
      height_of(forest) < COPSE_FOREST_LEAST_HEIGHT)
    return COPSE_OK;
  return prefer_levels(problem, false, forest, err);
}

/* Makes trees of base roots. Trees that grow one after the other are few, but may become high; then
 * trees that grow side by side are tried. */
static copse_status make_of_bases(const struct copse_tree_problem *problem,
                                  struct copse_forest *forest, bool *made, struct copse_err *err) {
  COPSE_DO(copse_make_orbit_trees(problem, forest, made, err));
  if (!*made) return copse_make_levels(problem, forest, made, err);
  if (height_of(forest) < COPSE_ORBIT_HIGH) return COPSE_OK;
  return prefer_levels(problem, true, forest, err);
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
    {copse_has_symmetry, make_of_bases, true}, /* with base roots asked for no others are made */
    {is_one_to_many, copse_make_single, false},
    {is_many_to_many, copse_make_levels, false},
    {is_any, split_and_pack, true},
};

/* ---- the whole --------------------------------------------------------------------------- */

/* Chooses the integer problem: exact at the optimum, or for the k that was asked for. */
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

/* Makes the problem at the optimum with k trees per root, for which capacities are rounded down.
 * *carries: whether they carry the trees. */
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
  if (copse_has_symmetry(problem) || !is_many_to_many(problem)) return false;
  for (int i = 0; i < problem->network->n_roots; i++)
    if (copse_mul_overflows(problem->network->roots[i].weight, problem->k, &more) ||
        copse_add_overflows(n, more, &n) || n > COPSE_FOREST_FINE / problem->network->n_terminals)
      return true;
  return false;
}

/* Replaces a problem whose exact capacities have many trees by that of the fewest per root for
 * which rounded ones carry them at the optimum. */
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

/* Tries at the optimum fewer trees per root, where bandwidths that don't bind have made k large.
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

/* Puts the roots in another order for each number from 1 on (Fisher and Yates). */
static void shuffle(struct copse_net_root *roots, int n, int number) {
  uint64_t random = (uint64_t)number;
  for (int i = n - 1; i > 0 && number > 0; i--) {
    int j = copse_random_below(&random, i + 1);
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

/* Makes one tree without edges per root of one rank alone: nothing to move. */
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

void copse_forest_take_trees(struct copse_forest *to, struct copse_forest *from) {
  copse_forest_clear(to);
  to->arena = from->arena;
  to->trees = from->trees;
  to->n_trees = from->n_trees;
  to->trees_capacity = from->trees_capacity;
  from->arena = (struct copse_arena){0};
  copse_forest_clear(from);
}
