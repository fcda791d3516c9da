#include "solver/trees/forest.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "solver/network/cuts.h"
#include "solver/trees/levels.h"
#include "solver/trees/pack.h"
#include "solver/trees/paths.h"
#include "solver/trees/shorten.h"
#include "solver/trees/single.h"
#include "solver/trees/split.h"
#include "solver/trees/orbit_trees.h"

/* Laying packed trees on physical paths. */
struct layer {
  const struct copse_network *network;
  struct copse_paths *paths;
  struct copse_forest *forest;
  struct copse_forest_tree *trees;
  size_t n_trees, trees_capacity;
  struct copse_piece *pieces; /* of all edges of the tree at hand, edge by edge */
  size_t n_pieces, pieces_capacity;
  size_t *cursor; /* [n_terminals] piece that each edge is at */
  size_t *last;   /* [n_terminals] one past the edge's pieces */
  int *nodes;     /* [n_nodes + 1] path under expansion */
  int *depth;     /* [n_nodes] */
};

static copse_status fill_edge(struct layer *l, struct copse_packed_edge edge, int path,
                              struct copse_forest_edge *out, struct copse_err *err) {
  int n = copse_paths_expand(l->paths, path, l->nodes);
  int *copy = n > 0 ? copse_arena_alloc(&l->forest->arena, (size_t)n, sizeof *copy) : NULL;
  if (!copy) return copse_fail_nomem(err);
  memcpy(copy, l->nodes, (size_t)n * sizeof *copy);
  *out = (struct copse_forest_edge){edge.src, edge.dst, copy, n};
  return COPSE_OK;
}

/* One tree with the piece that each edge is at. */
static copse_status add_tree(struct layer *l, int root, const struct copse_packed_edge *edges,
                             int64_t multiplicity, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  struct copse_forest_tree tree = {.root = root, .multiplicity = multiplicity};
  struct copse_forest_edge *copy = copse_arena_alloc(&l->forest->arena, n ? n : 1, sizeof *copy);
  copse_status status;
  if (!copy) return copse_fail_nomem(err);
  l->depth[root] = 0;
  for (size_t i = 0; i < n; i++) {
    COPSE_TRY(fill_edge(l, edges[i], l->pieces[l->cursor[i]].path, &copy[i], err));
    int depth = l->depth[edges[i].dst] = l->depth[edges[i].src] + 1;
    if (depth > tree.height) tree.height = depth;
  }
  tree.edges = copy;
  COPSE_TRY(copse_grow(&l->trees, &l->trees_capacity, l->n_trees + 1, sizeof *l->trees, err));
  l->trees[l->n_trees++] = tree;
out:
  return status;
}

/* A family whose edges lie on several paths becomes several trees: cut where one ends. */
static copse_status lay_tree(struct layer *l, const struct copse_packed_tree *tree,
                             const struct copse_packed_edge *edges, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  copse_status status = COPSE_OK;
  l->n_pieces = 0;
  for (size_t i = 0; i < n; i++) {
    l->cursor[i] = l->n_pieces;
    COPSE_TRY(copse_paths_take(l->paths, edges[i].src, edges[i].dst, tree->multiplicity, &l->pieces,
                               &l->n_pieces, &l->pieces_capacity, err));
    l->last[i] = l->n_pieces;
  }
  for (int64_t left = tree->multiplicity; left > 0;) {
    int64_t amount = left;
    for (size_t i = 0; i < n; i++)
      if (l->pieces[l->cursor[i]].amount < amount) amount = l->pieces[l->cursor[i]].amount;
    COPSE_TRY(add_tree(l, tree->root, edges, amount, err));
    left -= amount;
    for (size_t i = 0; i < n; i++) {
      struct copse_piece *piece = &l->pieces[l->cursor[i]];
      piece->amount -= amount;
      if (piece->amount == 0 && l->cursor[i] + 1 < l->last[i]) l->cursor[i]++;
    }
  }
out:
  return status;
}

static copse_status lay_all(const struct copse_network *network, struct copse_paths *paths,
                            const struct copse_packing *packing, struct copse_forest *forest,
                            struct copse_err *err) {
  struct layer l = {.network = network, .paths = paths, .forest = forest};
  size_t nodes = (size_t)network->n_nodes, terminals = (size_t)network->n_terminals;
  copse_status status;
  COPSE_TRY(copse_calloc(terminals, sizeof *l.cursor, &l.cursor, err));
  COPSE_TRY(copse_calloc(terminals, sizeof *l.last, &l.last, err));
  COPSE_TRY(copse_calloc(nodes + 1, sizeof *l.nodes, &l.nodes, err));
  COPSE_TRY(copse_calloc(nodes, sizeof *l.depth, &l.depth, err));
  for (size_t i = 0; i < packing->n_trees; i++)
    COPSE_TRY(lay_tree(&l, &packing->trees[i], packing->edges + packing->trees[i].first_edge, err));
  struct copse_forest_tree *trees =
      copse_arena_alloc(&forest->arena, l.n_trees ? l.n_trees : 1, sizeof *trees);
  if (!trees) {
    status = copse_fail_nomem(err);
    goto out;
  }
  memcpy(trees, l.trees, l.n_trees * sizeof *trees);
  forest->trees = trees;
  forest->n_trees = (int)l.n_trees;
out:
  free(l.trees);
  free(l.pieces);
  free(l.cursor);
  free(l.last);
  free(l.nodes);
  free(l.depth);
  return status;
}

/* The integer problem: exact at the optimum, or for the k that was asked for. */
static copse_status choose_capacities(const struct copse_network *network,
                                      const struct copse_forest_options *options,
                                      struct copse_forest *forest, int64_t *capacities,
                                      struct copse_err *err) {
  copse_status status;
  struct copse_q u;
  if (options->as_given) {
    for (int i = 0; i < network->n_links; i++) capacities[i] = network->links[i].capacity;
    forest->k = 1;
    return COPSE_OK;
  }
  if (options->k > 0) {
    forest->k = options->k;
    return copse_optimum_fixed_k(network, forest->optimum.x, options->k, &u, capacities, err);
  }
  struct copse_scale scale;
  COPSE_TRY(copse_optimum_scale(network, forest->optimum.x, &scale, err));
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = network->links[i].capacity / scale.divisor * scale.numerator;
  forest->k = scale.k;
out:
  return status;
}

/* Trees that grow together (solver/levels.h). */
static copse_status grow_side_by_side(const struct copse_network *network,
                                      const struct copse_forest_options *options,
                                      const int64_t *capacities, struct copse_forest *forest,
                                      bool *packed, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(
      copse_levels_pack(network, capacities, forest->k, options->progress, forest, packed, err));
  if (*packed) COPSE_TRY(copse_forest_shorten(network, forest, err));
out:
  return status;
}

/* Among many ranks trees over physical links, where they can be had: quicker than by splitting, and
 * lower. */
static copse_status pack_physical(const struct copse_network *network,
                                  const struct copse_forest_options *options,
                                  const int64_t *capacities, struct copse_forest *forest,
                                  bool *packed, struct copse_err *err) {
  *packed = false;
  if (network->n_terminals < copse_trust_from) return COPSE_OK;
  if (network->n_roots == 1)
    return copse_single_pack(network, capacities, forest->k, options->progress, forest, packed,
                             err);
  if (network->n_roots >= copse_trust_from)
    return grow_side_by_side(network, options, capacities, forest, packed, err);
  return COPSE_OK;
}

static int height_of(const struct copse_forest *forest) {
  int height = 0;
  for (int t = 0; t < forest->n_trees; t++)
    if (forest->trees[t].height > height) height = forest->trees[t].height;
  return height;
}

/* Trees that grow together are one for each unit: where packing needs far fewer, equal trees being
 * one, they would be too many. Below this height there is nothing to win. */
#define MOST_UNITS_PER_TREE 4
#define LEAST_HEIGHT 3

/* Takes trees that grow together in place of those packed if the highest of them is lower, and they
 * are not many more. */
static copse_status prefer_lower(const struct copse_network *network,
                                 const struct copse_forest_options *options,
                                 const int64_t *capacities, struct copse_forest *forest,
                                 struct copse_err *err) {
  struct copse_forest other = {.k = forest->k};
  int64_t units = 0;
  bool packed;
  copse_status status = COPSE_OK;
  for (int t = 0; t < forest->n_trees; t++) units += forest->trees[t].multiplicity;
  if (units / MOST_UNITS_PER_TREE > forest->n_trees || height_of(forest) < LEAST_HEIGHT)
    return COPSE_OK;
  COPSE_TRY(grow_side_by_side(network, options, capacities, &other, &packed, err));
  if (packed && height_of(&other) < height_of(forest) &&
      other.n_trees <= forest->n_trees + forest->n_trees / 4) {
    struct copse_arena packed_trees = forest->arena;
    forest->arena = other.arena;
    forest->trees = other.trees;
    forest->n_trees = other.n_trees;
    other.arena = packed_trees;
  }
out:
  copse_arena_free(&other.arena);
  return status;
}

static copse_status make_trees(const struct copse_network *network,
                               const struct copse_forest_options *options,
                               struct copse_forest *forest, struct copse_err *err) {
  copse_status status;
  int64_t *capacities = NULL;
  struct copse_paths *paths = NULL;
  struct copse_flow *flow = NULL;
  struct copse_packing packing = {0};
  double start = copse_clock_seconds();
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *capacities, &capacities, err));
  COPSE_TRY(choose_capacities(network, options, forest, capacities, err));
  if (options->symmetry && options->symmetry->n > 0) {
    COPSE_TRY(copse_template_pack(network, capacities, forest->k, options->symmetry,
                                  options->multiple && options->k == 0, options->progress, forest,
                                  &forest->is_template, err));
    forest->seconds_pack = copse_clock_seconds() - start;
    goto out;
  }
  bool packed;
  COPSE_TRY(pack_physical(network, options, capacities, forest, &packed, err));
  forest->seconds_pack = copse_clock_seconds() - start;
  if (packed) goto out;
  start = copse_clock_seconds();
  COPSE_TRY(copse_paths_new(network, capacities, &paths, err));
  COPSE_TRY(
      copse_split_relays(network, capacities, forest->k, paths, options->progress, &flow, err));
  forest->seconds_split = copse_clock_seconds() - start;
  start = copse_clock_seconds();
  COPSE_TRY(copse_pack_trees(network, flow, forest->k, options->progress, &packing, err));
  COPSE_TRY(lay_all(network, paths, &packing, forest, err));
  COPSE_TRY(copse_forest_shorten(network, forest, err));
  if (network->n_roots < copse_trust_from)
    COPSE_TRY(prefer_lower(network, options, capacities, forest, err));
  forest->seconds_pack += copse_clock_seconds() - start;
out:
  copse_packing_free(&packing);
  copse_flow_free(flow);
  copse_paths_free(paths);
  free(capacities);
  return status;
}

/* One rank alone: nothing to move, one tree without edges per root. */
static copse_status lone_terminal(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) {
  struct copse_forest_tree *tree = copse_arena_alloc(&forest->arena, 1, sizeof *tree);
  if (!tree) return copse_fail_nomem(err);
  *tree = (struct copse_forest_tree){.root = network->roots[0].node, .multiplicity = 1};
  forest->k = 1;
  forest->trees = tree;
  forest->n_trees = 1;
  return COPSE_OK;
}

copse_status copse_forest_solve(const struct copse_network *network,
                                const struct copse_forest_options *options,
                                struct copse_forest *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_forest){0};
  double start = copse_clock_seconds();
  if (options->as_given)
    out->optimum = (struct copse_optimum){.x = COPSE_Q_ONE, .unreached = -1};
  else
    COPSE_TRY(copse_optimum_find(network, options->progress, &out->optimum, err));
  out->seconds_optimum = copse_clock_seconds() - start;
  if (options->bound_only) goto out;
  if (network->n_terminals == 1)
    COPSE_TRY(lone_terminal(network, out, err));
  else if (out->optimum.x.num > 0)
    COPSE_TRY(make_trees(network, options, out, err));
out:
  return status;
}

void copse_forest_free(struct copse_forest *forest) {
  copse_optimum_free(&forest->optimum);
  copse_arena_free(&forest->arena);
}
