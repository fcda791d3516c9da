#include "solver/trees/orbit_trees.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/orbit_grow.h"

/* ---- orbits --------------------------------------------------------------------------------- */

static int find_set(int *parent, int i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

static void join_sets(int *parent, int a, int b) {
  a = find_set(parent, a);
  b = find_set(parent, b);
  if (a < b) parent[b] = a;
  if (b < a) parent[a] = b;
}

/* Parents of a union-find over links: links that some product exchanges are in one set. */
static copse_status join_links(const struct copse_grower *g,
                               const struct copse_network_symmetry *symmetry, int *parent) {
  copse_status status = COPSE_OK;
  int *image = NULL;
  for (int e = 0; e < g->network->n_links; e++) parent[e] = e;
  for (int i = 0; i < symmetry->n; i++) {
    COPSE_TRY(copse_links_image(g->network, &symmetry->generators[i], &image, g->err));
    for (int e = 0; e < g->network->n_links; e++) join_sets(parent, e, image[e]);
    free(image);
    image = NULL;
  }
out:
  free(image);
  return status;
}

/*
 * Orbits, and what their links may carry of base trees: c * |O| / |H| (see the header), rounded
 * down. *times is the least multiple of everything without rounding.
 */
static copse_status make_orbits(struct copse_grower *g, const int64_t *capacities,
                                const struct copse_network_symmetry *symmetry, int64_t times_now,
                                int64_t *times) {
  int n = g->network->n_links, n_products = 1;
  int *parent = NULL, *size = NULL;
  copse_status status;
  *times = 1;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parent, &parent, g->err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *size, &size, g->err));
  for (int i = 0; i < symmetry->n; i++) n_products *= symmetry->generators[i].order;
  COPSE_TRY(join_links(g, symmetry, parent));
  for (int e = 0; e < n; e++) size[find_set(parent, e)]++;
  g->n_orbits = 0;
  for (int e = 0; e < n; e++) { /* a set's first link is its parent */
    int set = find_set(parent, e);
    int64_t capacity, staying = n_products / size[set];
    if (copse_mul_overflows(capacities[e], times_now, &capacity)) capacity = INT64_MAX;
    if (set == e) g->left[g->n_orbits++] = INT64_MAX;
    g->orbit[e] = set == e ? g->n_orbits - 1 : g->orbit[set];
    /* capacities for a fixed k may differ within an orbit: the least holds */
    int64_t *left = &g->left[g->orbit[e]];
    if (capacity / staying < *left) *left = capacity / staying;
    COPSE_TRY(copse_lcm(*times, staying / copse_gcd(staying, capacities[e]), times, g->err));
  }
out:
  free(parent);
  free(size);
  return status;
}

/* The first root of every orbit. */
static copse_status find_bases(const struct copse_grower *g,
                               const struct copse_network_symmetry *symmetry, int *bases,
                               int *n_bases) {
  int n = g->network->n_nodes;
  int *parent = NULL;
  bool *taken = NULL;
  copse_status status;
  *n_bases = 0;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parent, &parent, g->err));
  COPSE_TRY(copse_calloc((size_t)n, 1, &taken, g->err));
  for (int v = 0; v < n; v++) parent[v] = v;
  for (int i = 0; i < symmetry->n; i++)
    for (int v = 0; v < n; v++) join_sets(parent, v, symmetry->generators[i].image[v]);
  for (int i = 0; i < g->network->n_roots; i++) {
    int set = find_set(parent, g->network->roots[i].node);
    if (!taken[set]) bases[(*n_bases)++] = i;
    taken[set] = true;
  }
out:
  free(parent);
  free(taken);
  return status;
}

/* k trees of every base root, within what is left. */
static copse_status grow_once(struct copse_grower *g, int64_t k, const int *bases, int n_bases,
                              const struct copse_progress *progress, bool *packed) {
  copse_status status = COPSE_OK;
  bool stuck = false;
  int64_t multiplicity;
  g->n_trees = 0;
  for (int i = 0; i < n_bases && !stuck; i++) {
    const struct copse_net_root *root = &g->network->roots[bases[i]];
    if (copse_mul_overflows(root->weight, k, &multiplicity))
      return copse_fail(g->err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_TRY(copse_grower_root(g, root->node, multiplicity, &stuck));
    copse_progress_report(progress, "pack", i + 1, n_bases);
  }
  copse_grower_drop_waiting(g);
  *packed = !stuck;
out:
  return status;
}

/*
 * The trees; again where they got stuck, with more care for the orbits that ran out first: what
 * else there is is used before them.
 */
static copse_status grow_all(struct copse_grower *g, int64_t k, const int *bases, int n_bases,
                             const struct copse_progress *progress, bool *packed) {
  size_t bytes = (size_t)g->n_orbits * sizeof *g->left;
  int64_t *all = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)g->n_orbits, sizeof *all, &all, g->err));
  memcpy(all, g->left, bytes);
  memset(g->avoid, 0, (size_t)g->n_orbits * sizeof *g->avoid);
  for (g->top_level = 0;; g->top_level++) {
    COPSE_TRY(grow_once(g, k, bases, n_bases, progress, packed));
    if (*packed) break;
    copse_arena_free(&g->forest->arena); /* nothing else is in it yet */
    if (g->top_level + 1 == COPSE_TEMPLATE_LEVELS) break;
    for (int o = 0; o < g->n_orbits; o++) g->avoid[o] += g->left[o] < g->current.multiplicity;
    memcpy(g->left, all, bytes);
  }
out:
  free(all);
  return status;
}

/* Beyond, the numbers of trees are no use to anybody. */
#define MOST_TIMES 4096
/* Base roots times terminals: symmetry that leaves more is not worth much, and takes memory. */
#define MOST_TO_GROW (1 << 24)

/* A root's trees are the image of another's only where both have the same weight. */
static bool same_weights(const struct copse_network *network) {
  for (int i = 1; i < network->n_roots; i++)
    if (network->roots[i].weight != network->roots[0].weight) return false;
  return true;
}

copse_status copse_template_pack(const struct copse_network *network, const int64_t *capacities,
                                 int64_t k, const struct copse_network_symmetry *symmetry,
                                 bool multiple, const struct copse_progress *progress,
                                 struct copse_forest *forest, bool *packed, struct copse_err *err) {
  struct copse_grower g = {.network = network, .forest = forest, .err = err};
  int *bases = NULL, *sinks = NULL, n_bases;
  int64_t whole;
  copse_status status;
  *packed = false;
  COPSE_TRY(copse_calloc((size_t)network->n_roots, sizeof(int), &bases, err));
  COPSE_TRY(copse_calloc((size_t)network->n_roots, sizeof(int), &sinks, err));
  COPSE_TRY(copse_grower_prepare(&g));
  COPSE_TRY(find_bases(&g, symmetry, bases, &n_bases));
  if ((int64_t)n_bases * network->n_terminals > MOST_TO_GROW || !same_weights(network)) goto out;
  for (int i = 0; i < n_bases; i++) sinks[i] = network->roots[bases[i]].node;
  COPSE_TRY(
      copse_template_cuts_find(network, capacities, k, symmetry, sinks, n_bases, &g.cuts, err));
  COPSE_TRY(copse_calloc((size_t)g.cuts.n, 1, &g.touched, err));
  COPSE_TRY(make_orbits(&g, capacities, symmetry, 1, &whole));
  COPSE_TRY(grow_all(&g, k, bases, n_bases, progress, packed));
  if (!*packed && multiple && whole > 1 && whole <= MOST_TIMES &&
      !copse_mul_overflows(k, whole, &k)) {
    COPSE_TRY(make_orbits(&g, capacities, symmetry, whole, &whole));
    COPSE_TRY(grow_all(&g, k, bases, n_bases, progress, packed));
  }
  if (!*packed) goto out;
  forest->k = k;
  status = copse_grower_keep(&g);
out:
  copse_grower_free(&g);
  free(bases);
  free(sinks);
  return status;
}
