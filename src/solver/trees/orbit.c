/*
 * Orbit trees: those of one root of each orbit, of which all other roots' trees are images.
 *
 * Let H be the products of the generators: a commutative group, under which an orbit of links O
 * has |O| members, all of one capacity c, and each of them stays where it is under |H| / |O|
 * products. Base trees that use the links of O together L times put, moved by all of H, a load
 * of L * |H| / |O| on every one of them. So the whole forest respects the capacities if and only if
 *
 *   L <= c * |O| / |H|   for every orbit of links,
 *
 * and that is all that the base trees must respect. They span all terminals, and so do their
 * images. The products move no root onto itself, but for the one that moves nothing: so k trees of
 * every base root are k trees of every root. That the rate is the optimum's follows from k and
 * the capacities, as it does for the trees of trees/pack.h.
 *
 *      ring of 4, turned by one:  a > b > c > d      base tree of root a
 *                                 b > c > d > a      its images are those of b, c and d: every
 *                                 ...                link is loaded 3 times, |H| / |O| = 1
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/grow.h"
#include "solver/trees/maker.h"

/* ---- cuts and their images ----------------------------------------------------------------- */

struct finder {
  const struct copse_network *network;
  const struct copse_network_symmetry *symmetry;
  int *levels; /* [(n generators + 1) * n_nodes] the set at hand under the powers chosen so far */
  int n_inside;
  struct copse_cuts *out;
  struct copse_err *err;
};

/* All images of the set at level g under the generators from g on. */
static copse_status add_images(struct finder *f, int g) {
  int *nodes = f->levels + (size_t)g * (size_t)f->network->n_nodes;
  int *next = nodes + f->network->n_nodes;
  if (g == f->symmetry->n) return copse_cuts_add(f->out, nodes, f->n_inside, 0, NULL, f->err);
  memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  const struct copse_permutation *generator = &f->symmetry->generators[g];
  for (int power = 0; power < generator->order; power++) {
    COPSE_DO(add_images(f, g + 1));
    for (int i = 0; i < f->n_inside; i++) nodes[i] = generator->image[nodes[i]];
    memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  }
  return COPSE_OK;
}

/* The tight cuts nearest to `sinks` with their images. Those with too many nodes for all images to
 * be listed are left out: the cuts guide, they prove nothing. */
static copse_status find_cuts(const struct copse_tree_problem *problem, const int *sinks,
                              int n_sinks, struct copse_cuts *out, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  const struct copse_network_symmetry *symmetry = problem->symmetry;
  struct finder f = {.network = network, .symmetry = symmetry, .out = out, .err = err};
  COPSE_AT_END(copse_cuts_free) struct copse_cuts tight = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n = (size_t)network->n_nodes;
  int64_t n_products = 1;
  for (int g = 0; g < symmetry->n; g++) n_products *= symmetry->generators[g].order;
  COPSE_DO(copse_cuts_new(network->n_nodes, 0, out, err));
  COPSE_DO(copse_cuts_tight(network, problem->capacities, problem->k, sinks, n_sinks, &tight, err));
  COPSE_DO(COPSE_ARRAY(&scratch, ((size_t)symmetry->n + 1) * n, f.levels, err));
  for (int c = 0; c < tight.n; c++) {
    f.n_inside = 0;
    for (int v = 0; v < network->n_nodes; v++)
      if (copse_cuts_hold(&tight, c, v)) f.levels[f.n_inside++] = v;
    if (f.n_inside <= COPSE_ORBIT_MOST_MEMBERS / n_products) COPSE_DO(add_images(&f, 0));
  }
  return COPSE_OK;
}

/* ---- orbits --------------------------------------------------------------------------------- */

/*
 * Orbits, and what their links may carry of base trees: c * |O| / |H| (see above), rounded
 * down. *times is the least multiple of everything without rounding.
 */
static copse_status make_orbits(struct copse_grower *g, const int64_t *capacities,
                                const struct copse_network_symmetry *symmetry, int64_t times_now,
                                int64_t *times) {
  int n = g->network->n_links, n_products = 1;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first, *size;
  *times = 1;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, size, g->err));
  for (int i = 0; i < symmetry->n; i++) n_products *= symmetry->generators[i].order;
  COPSE_DO(
      copse_links_orbits(g->network, symmetry->generators, symmetry->n, &scratch, &first, g->err));
  for (int e = 0; e < n; e++) size[first[e]]++;
  g->n_orbits = 0;
  for (int e = 0; e < n; e++) {
    int64_t capacity, staying = n_products / size[first[e]];
    if (copse_mul_overflows(capacities[e], times_now, &capacity)) capacity = INT64_MAX;
    if (first[e] == e) g->left[g->n_orbits++] = INT64_MAX;
    g->orbit[e] = first[e] == e ? g->n_orbits - 1 : g->orbit[first[e]];
    /* capacities for a fixed k may differ within an orbit: the least holds */
    int64_t *left = &g->left[g->orbit[e]];
    if (capacity / staying < *left) *left = capacity / staying;
    COPSE_DO(copse_lcm(*times, staying / copse_gcd(staying, capacities[e]), times, g->err));
  }
  return COPSE_OK;
}

/* The first root of every orbit. */
static copse_status find_bases(const struct copse_grower *g,
                               const struct copse_network_symmetry *symmetry, int *bases,
                               int *n_bases) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first;
  bool *taken;
  *n_bases = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)g->network->n_nodes, taken, g->err));
  COPSE_DO(
      copse_nodes_orbits(g->network, symmetry->generators, symmetry->n, &scratch, &first, g->err));
  for (int i = 0; i < g->network->n_roots; i++) {
    bool *known = &taken[first[g->network->roots[i].node]];
    if (!*known) bases[(*n_bases)++] = i;
    *known = true;
  }
  return COPSE_OK;
}

/* k trees of every base root, within what is left. */
static copse_status grow_once(struct copse_grower *g, int64_t k, const int *bases, int n_bases,
                              const struct copse_progress *progress, bool *packed) {
  bool stuck = false;
  int64_t multiplicity;
  for (int i = 0; i < n_bases && !stuck; i++) {
    const struct copse_net_root *root = &g->network->roots[bases[i]];
    if (copse_mul_overflows(root->weight, k, &multiplicity))
      return copse_fail(g->err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_DO(copse_grower_root(g, root->node, multiplicity, &stuck));
    copse_progress_report(progress, "pack", i + 1, n_bases);
  }
  copse_grower_drop_waiting(g);
  *packed = !stuck;
  return COPSE_OK;
}

/*
 * The trees; again where they got stuck, with more care for the orbits that ran out first: what
 * else there is is used before them.
 */
static copse_status grow_all(struct copse_grower *g, int64_t k, const int *bases, int n_bases,
                             const struct copse_progress *progress, bool *packed) {
  size_t bytes = (size_t)g->n_orbits * sizeof *g->left;
  int64_t *all;
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->n_orbits, all, g->err));
  memcpy(all, g->left, bytes);
  memset(g->avoid, 0, (size_t)g->n_orbits * sizeof *g->avoid);
  for (g->top_level = 0;; g->top_level++) {
    COPSE_DO(grow_once(g, k, bases, n_bases, progress, packed));
    if (*packed) break;
    copse_forest_clear(g->forest);
    if (g->top_level + 1 == COPSE_ORBIT_LEVELS) break;
    for (int o = 0; o < g->n_orbits; o++) g->avoid[o] += g->left[o] < g->current.multiplicity;
    memcpy(g->left, all, bytes);
  }
  return COPSE_OK;
}

copse_status copse_make_orbit_trees(const struct copse_tree_problem *problem,
                                    struct copse_forest *forest, bool *made,
                                    struct copse_err *err) {
  const struct copse_network *network = problem->network;
  const struct copse_network_symmetry *symmetry = problem->symmetry;
  COPSE_AT_END(copse_grower_free)
  struct copse_grower g = {.network = network, .forest = forest, .err = err};
  size_t n_roots = (size_t)network->n_roots;
  int *bases, *sinks, n_bases;
  int64_t whole, k = problem->k;
  *made = false;
  COPSE_DO(copse_grower_prepare(&g));
  COPSE_DO(COPSE_ARRAYS(&g.arena, n_roots, int, err, &bases, &sinks));
  COPSE_DO(find_bases(&g, symmetry, bases, &n_bases));
  if ((int64_t)n_bases * network->n_terminals > COPSE_ORBIT_MOST_TO_GROW) return COPSE_OK;
  if (!copse_network_equal_weights(network))
    return COPSE_OK; /* no tree's image is of another weight */
  for (int i = 0; i < n_bases; i++) sinks[i] = network->roots[bases[i]].node;
  COPSE_DO(find_cuts(problem, sinks, n_bases, &g.cuts, err));
  COPSE_DO(copse_grower_prepare_cuts(&g, false));
  COPSE_DO(make_orbits(&g, problem->capacities, symmetry, 1, &whole));
  COPSE_DO(grow_all(&g, k, bases, n_bases, problem->progress, made));
  if (!*made && problem->multiple && whole > 1 && whole <= COPSE_ORBIT_MOST_TIMES &&
      !copse_mul_overflows(k, whole, &k)) {
    COPSE_DO(make_orbits(&g, problem->capacities, symmetry, whole, &whole));
    COPSE_DO(grow_all(&g, k, bases, n_bases, problem->progress, made));
  }
  if (!*made) return COPSE_OK;
  forest->k = k;
  forest->base_only = true;
  return COPSE_OK;
}
