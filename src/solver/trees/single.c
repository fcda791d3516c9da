/*
 * Trees of one root, by the grower of trees/grow.c with every link for itself. Hosts, and what else
 * fast links join, are cuts that a tree enters once, those first of whose links out most is left:
 *
 *      root's host ---> h1 ---> h3        tree 1 goes on from h1, tree 2 from h2, and so on, so
 *               \-----> h2 ---> h4        that no host's links out are used up early
 *
 * Trees are grown in two ways, in few large families and in more small ones; the lower are taken.
 */
#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/grow.h"
#include "solver/trees/maker.h"
#include "solver/trees/shorten.h"

/* More than this is as good as any; sums of some stay numbers. */
#define MOST_EXITS (INT64_MAX / 256)

static int64_t add_capped(int64_t a, int64_t b, int64_t most) {
  int64_t sum;
  return copse_add_overflows(a, b, &sum) || sum > most ? most : sum;
}

/* What can leave each cut, and by how much more than the trees can enter it. */
static void measure_cuts(struct copse_grower *g, int64_t trees) {
  struct copse_cuts *cuts = &g->cuts;
  for (int c = 0; c < cuts->n; c++) cuts->slack[c] = -trees;
  for (int e = 0; e < g->network->n_links; e++) {
    const struct copse_net_link *link = &g->network->links[e];
    const struct copse_cuts_of_node *of = &cuts->of[link->src];
    for (int i = 0; i < of->n; i++)
      if (!copse_cuts_hold(cuts, of->cuts[i], link->dst))
        g->exits[of->cuts[i]] = add_capped(g->exits[of->cuts[i]], g->left[e], MOST_EXITS);
    of = &cuts->of[link->dst];
    for (int i = 0; i < of->n; i++)
      if (!copse_cuts_hold(cuts, of->cuts[i], link->src)) cuts->slack[of->cuts[i]] += g->left[e];
  }
}

/* What a set may let in at most to be entered once. */
static int64_t narrow(int64_t trees) {
  int64_t most;
  return copse_mul_overflows(trees, COPSE_SINGLE_NARROW_TIMES, &most) ? INT64_MAX : most;
}

/* The narrowest link's worth: of a larger family a part would have to wait there. */
static int64_t narrowest_link(const struct copse_network *network, const int64_t *capacities,
                              int64_t most) {
  for (int e = 0; e < network->n_links; e++)
    if (capacities[e] > 0) most = copse_smaller(most, capacities[e]);
  return most;
}

/* All trees, so many as one family at a time. */
static copse_status grow(struct copse_grower *g, int64_t trees, int64_t at_once, bool *made,
                         const struct copse_progress *progress) {
  bool stuck = false;
  for (int64_t done = 0; done < trees && !stuck; done += at_once) {
    copse_progress_report(progress, "pack", done, trees);
    COPSE_DO(copse_grower_root(g, g->network->roots[0].node, copse_smaller(at_once, trees - done),
                               &stuck));
  }
  *made = !stuck;
  return COPSE_OK;
}

/* Trees in families of at most `at_once`, as low as they get; none where they got stuck. */
static copse_status attempt(const struct copse_tree_problem *problem, int64_t trees,
                            int64_t at_once, struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(copse_grower_free)
  struct copse_grower g = {.network = network, .forest = forest, .err = err};
  bool made = false;
  COPSE_DO(copse_grower_prepare(&g));
  g.n_orbits = network->n_links; /* each link for itself */
  for (int e = 0; e < network->n_links; e++) {
    g.orbit[e] = e;
    g.left[e] = problem->capacities[e];
  }
  COPSE_DO(copse_cuts_nested(network, problem->capacities, network->roots[0].node, narrow(trees),
                             &g.cuts, err));
  COPSE_DO(copse_grower_prepare_cuts(&g, true));
  measure_cuts(&g, trees);
  g.top_level = 1; /* cuts are entered again as a later resort */
  COPSE_DO(grow(&g, trees, at_once, &made, problem->progress));
  if (made) return copse_forest_shorten(network, forest, err);
  copse_forest_clear(forest);
  return COPSE_OK;
}

static __int128 total_height(const struct copse_forest *forest) {
  __int128 sum = 0;
  for (int t = 0; t < forest->n_trees; t++)
    sum += (__int128)forest->trees[t].multiplicity * forest->trees[t].height;
  return sum;
}

copse_status copse_make_single(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *made, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(copse_forest_free) struct copse_forest coarse = {0};
  COPSE_AT_END(copse_forest_free) struct copse_forest fine = {0};
  int64_t trees;
  *made = false;
  if (copse_mul_overflows(network->roots[0].weight, problem->k, &trees)) return COPSE_OK;
  int64_t least = (trees + COPSE_SINGLE_PARTS - 1) / COPSE_SINGLE_PARTS;
  int64_t at_once = narrowest_link(network, problem->capacities, trees);
  if (at_once < least) at_once = least;
  COPSE_DO(attempt(problem, trees, at_once, &coarse, err));
  if (least < at_once) /* more ways for each tree out of a host */
    COPSE_DO(attempt(problem, trees, least, &fine, err));
  bool finer =
      coarse.n_trees == 0 || (fine.n_trees > 0 && total_height(&fine) < total_height(&coarse));
  copse_forest_take_trees(forest, finer ? &fine : &coarse);
  *made = forest->n_trees > 0;
  return COPSE_OK;
}
