#include "solver/trees/single.h"

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/nested_cuts.h"
#include "solver/trees/shorten.h"
#include "solver/trees/orbit_grow.h"

#define MOST_PARTS 64
/* More than this is as good as any; sums of some stay numbers. */
#define MOST_EXITS (INT64_MAX / 256)

static int64_t add_capped(int64_t a, int64_t b, int64_t most) {
  int64_t sum;
  return copse_add_overflows(a, b, &sum) || sum > most ? most : sum;
}

/* What can leave each cut, and by how much more than the trees can enter it. */
static copse_status measure_cuts(struct copse_grower *g, int64_t trees) {
  const struct copse_template_cuts *cuts = &g->cuts;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)cuts->n, sizeof *g->exits, &g->exits, g->err));
  COPSE_TRY(copse_calloc((size_t)cuts->n, sizeof *g->slack, &g->slack, g->err));
  for (int c = 0; c < cuts->n; c++) g->slack[c] = -trees;
  for (int e = 0; e < g->network->n_links; e++) {
    const struct copse_net_link *link = &g->network->links[e];
    for (int i = cuts->first[link->src]; i < cuts->first[link->src + 1]; i++)
      if (!copse_template_cuts_hold(cuts, cuts->cuts[i], link->dst))
        g->exits[cuts->cuts[i]] = add_capped(g->exits[cuts->cuts[i]], g->left[e], MOST_EXITS);
    for (int i = cuts->first[link->dst]; i < cuts->first[link->dst + 1]; i++)
      if (!copse_template_cuts_hold(cuts, cuts->cuts[i], link->src))
        g->slack[cuts->cuts[i]] += g->left[e];
  }
out:
  return status;
}

/* What a set may let in at most to be entered once: twice the trees, as long as that is a number.
 */
static int64_t narrow(int64_t trees) {
  int64_t twice;
  return copse_mul_overflows(trees, 2, &twice) ? INT64_MAX : twice;
}

/* The narrowest link's worth: of a larger family a part would have to wait there. */
static int64_t narrowest_link(const struct copse_network *network, const int64_t *capacities,
                              int64_t most) {
  for (int e = 0; e < network->n_links; e++)
    if (capacities[e] > 0) most = copse_smaller(most, capacities[e]);
  return most;
}

/* All trees, so many as one family at a time. */
static copse_status grow(struct copse_grower *g, int64_t trees, int64_t at_once, bool *packed,
                         const struct copse_progress *progress) {
  copse_status status = COPSE_OK;
  bool stuck = false;
  for (int64_t done = 0; done < trees && !stuck; done += at_once) {
    copse_progress_report(progress, "pack", done, trees);
    COPSE_TRY(copse_grower_root(g, g->network->roots[0].node, copse_smaller(at_once, trees - done),
                                &stuck));
  }
  *packed = !stuck;
out:
  return status;
}

/* Trees in families of at most `at_once`, as low as they get; none where they got stuck. */
static copse_status attempt(const struct copse_network *network, const int64_t *capacities,
                            int64_t trees, int64_t at_once, const struct copse_progress *progress,
                            struct copse_forest *forest, struct copse_err *err) {
  struct copse_grower g = {.network = network, .forest = forest, .err = err};
  bool packed = false;
  copse_status status;
  COPSE_TRY(copse_grower_prepare(&g));
  g.n_orbits = network->n_links; /* each link for itself */
  for (int e = 0; e < network->n_links; e++) {
    g.orbit[e] = e;
    g.left[e] = capacities[e];
  }
  COPSE_TRY(copse_nested_cuts_find(network, capacities, network->roots[0].node, narrow(trees),
                                   &g.cuts, err));
  COPSE_TRY(copse_calloc((size_t)g.cuts.n, 1, &g.touched, err));
  COPSE_TRY(measure_cuts(&g, trees));
  g.top_level = 1; /* cuts are entered again as a later resort */
  COPSE_TRY(grow(&g, trees, at_once, &packed, progress));
  if (!packed) goto out;
  COPSE_TRY(copse_grower_keep(&g));
  status = copse_forest_shorten(network, forest, err);
out:
  copse_grower_free(&g);
  return status;
}

static __int128 total_height(const struct copse_forest *forest) {
  __int128 sum = 0;
  for (int t = 0; t < forest->n_trees; t++)
    sum += (__int128)forest->trees[t].multiplicity * forest->trees[t].height;
  return sum;
}

copse_status copse_single_pack(const struct copse_network *network, const int64_t *capacities,
                               int64_t k, const struct copse_progress *progress,
                               struct copse_forest *forest, bool *packed, struct copse_err *err) {
  struct copse_forest coarse = {0}, fine = {0}, *better = &coarse;
  int64_t trees;
  copse_status status = COPSE_OK;
  *packed = false;
  if (copse_mul_overflows(network->roots[0].weight, k, &trees)) return COPSE_OK;
  int64_t least = (trees + MOST_PARTS - 1) / MOST_PARTS;
  int64_t at_once = narrowest_link(network, capacities, trees);
  if (at_once < least) at_once = least;
  COPSE_TRY(attempt(network, capacities, trees, at_once, progress, &coarse, err));
  if (least < at_once) /* more ways for each tree out of a host */
    COPSE_TRY(attempt(network, capacities, trees, least, progress, &fine, err));
  if (coarse.n_trees == 0 || (fine.n_trees > 0 && total_height(&fine) < total_height(&coarse)))
    better = &fine;
  *packed = better->n_trees > 0;
  if (!*packed) goto out;
  forest->trees = better->trees;
  forest->n_trees = better->n_trees;
  forest->arena = better->arena; /* nothing else is in it yet */
  better->arena = (struct copse_arena){0};
out:
  copse_arena_free(&coarse.arena);
  copse_arena_free(&fine.arena);
  return status;
}
