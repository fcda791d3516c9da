/*
 * Symmetries that keep sets of nodes: the groups of ranks at work on one fabric. Two ranks that
 * look alike are made a pair; as long as refinement leaves a rank several images, it gets the one
 * as far on in number as the first pair's, or next to that. What comes out is checked on links and
 * sets.
 *
 *   groups {0 1} {2 3}, all alike: try 0 -> 1   =>  0 <-> 1          orbits {0 1} {2} {3}
 *                                  then 0 -> 2  =>  0 -> 2, 1 -> 3   orbits {0 1 2 3}
 */
#include <string.h>

#include "topology/symmetry/refinement.h"

#define MOST_TRIED 100
#define MOST_FAILED 24 /* ranks that look alike and are not: few more will be */

struct finder {
  const struct copse_topology *topology;
  const struct copse_node_set *sets;
  int n_sets, n_nodes;
  struct copse_refinement *refinement;
  int *orbit;          /* [n_nodes] the least that a node is an image of */
  int *mark;           /* [n_nodes] 1 + the set that was last taken here */
  bool *taken;         /* [n_sets] */
  int *image, *groups; /* [n_nodes], [n_sets] where the candidate takes them */
  int n_tried, n_failed;
  struct copse_symmetry *found;
  struct copse_err *err;
};

/* ---- candidates ---------------------------------------------------------------------------- */

/* Of several that look alike: a rank to where the turn takes it or next to that, so that what comes
 * out turns much; a relay to the first. */
static int choose(const struct finder *f, int from, int turn) {
  const struct copse_partition *cells = &f->refinement->cells;
  const struct copse_node *nodes = f->topology->nodes;
  int n_ranks = f->topology->n_ranks, cell = cells->cell[from], best = -1, least = 0;
  for (int i = cell; i < cell + cells->length[cell]; i++) {
    int to = cells->elements[i] - f->refinement->n;
    if (to < 0) continue;
    int off = nodes[from].rank < 0
                  ? to
                  : (nodes[to].rank - nodes[from].rank - turn + 2 * n_ranks) % n_ranks;
    if (best >= 0 && off >= least) continue;
    best = to;
    least = off;
  }
  return best;
}

/* If more than one node may be its image, chooses one. */
static bool settle(struct finder *f, int node, int turn) {
  return copse_refinement_image(f->refinement, node) >= 0 ||
         copse_refinement_pair(f->refinement, node, choose(f, node, turn));
}

/* An image of all nodes that takes one to the other, if refinement finds one. */
static bool match(struct finder *f, int from, int to, int *image) {
  const struct copse_topology *t = f->topology;
  int turn = t->nodes[to].rank - t->nodes[from].rank; /* 0 of relays */
  copse_refinement_restore(f->refinement);
  if (!copse_refinement_pair(f->refinement, from, to)) return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (!settle(f, t->rank_nodes[r], turn)) return false;
  for (int v = 0; v < f->n_nodes; v++)
    if (!settle(f, v, turn)) return false;
  for (int v = 0; v < f->n_nodes; v++) image[v] = copse_refinement_image(f->refinement, v);
  return true;
}

/* ---- what becomes of sets ---------------------------------------------------------------- */

static bool is_image(const struct finder *f, const int *image, int from, int to) {
  const struct copse_node_set *a = &f->sets[from], *b = &f->sets[to];
  if (a->kind != b->kind || a->n != b->n) return false;
  for (int i = 0; i < b->n; i++)
    if (f->mark[b->nodes[i]] != from + 1) return false;
  return a->root < 0 || image[a->nodes[a->root]] == b->nodes[b->root];
}

/* Sets that are the same go to such in their order. */
static bool map_sets(struct finder *f, const int *image, int *to) {
  memset(f->mark, 0, (size_t)f->n_nodes * sizeof *f->mark);
  memset(f->taken, 0, (size_t)f->n_sets * sizeof *f->taken);
  for (int g = 0; g < f->n_sets; g++) {
    int h = 0;
    for (int i = 0; i < f->sets[g].n; i++) f->mark[image[f->sets[g].nodes[i]]] = g + 1;
    while (h < f->n_sets && (f->taken[h] || !is_image(f, image, g, h))) h++;
    if (h == f->n_sets) return false;
    f->taken[h] = true;
    to[g] = h;
  }
  return true;
}

/* ---- search -------------------------------------------------------------------------------- */

static copse_status try_match(struct finder *f, int from, int to) {
  const struct copse_permutation by = {.image = f->image, .groups = f->groups};
  bool good = match(f, from, to, f->image);
  f->n_tried++;
  if (good) COPSE_DO(copse_topology_is_automorphism(f->topology, f->image, &good, f->err));
  good = good && map_sets(f, f->image, f->groups);
  f->n_failed += !good;
  if (!good) return COPSE_OK;
  for (int v = 0; v < f->n_nodes; v++) copse_sets_unite(f->orbit, v, f->image[v]);
  return copse_symmetry_add(f->found, by, f->n_nodes, f->n_sets, f->err);
}

/* Ranks, or else relays, that look alike and are no images of each other yet. */
static copse_status join_alike(struct finder *f, bool ranks) {
  const int *cell = f->refinement->base.cell;
  for (int w = 0; w < f->n_nodes; w++)
    for (int v = 0; v < w && f->orbit[w] == w; v++) {
      if (f->n_tried >= MOST_TRIED || f->n_failed >= MOST_FAILED) return COPSE_OK;
      if (cell[v] == cell[w] && (f->topology->nodes[v].rank >= 0) == ranks && f->orbit[v] == v)
        COPSE_DO(try_match(f, v, w));
    }
  return COPSE_OK;
}

static copse_status prepare(struct finder *f) {
  size_t nodes = (size_t)f->n_nodes, sets = (size_t)f->n_sets;
  COPSE_DO(copse_refinement_make(f->refinement, f->topology, f->sets, f->n_sets, f->err));
  COPSE_DO(COPSE_ARRAYS(&f->refinement->arena, nodes, int, f->err, &f->orbit, &f->mark, &f->image));
  COPSE_DO(COPSE_ARRAY(&f->refinement->arena, sets, f->groups, f->err));
  COPSE_DO(COPSE_ARRAY(&f->refinement->arena, sets, f->taken, f->err));
  copse_sets_init(f->orbit, f->n_nodes);
  return COPSE_OK;
}

static copse_status search(struct finder *f) {
  const struct copse_topology *t = f->topology;
  COPSE_DO(prepare(f));
  copse_refinement_start(f->refinement);
  copse_refinement_keep(f->refinement);
  COPSE_DO(join_alike(f, true));
  /* with all ranks in their places, parallel switches */
  copse_refinement_restore(f->refinement);
  for (int r = 0; r < t->n_ranks; r++)
    (void)copse_refinement_pair(f->refinement, t->rank_nodes[r], t->rank_nodes[r]);
  copse_refinement_keep(f->refinement);
  f->n_failed = 0;
  return join_alike(f, false);
}

copse_status copse_topology_set_symmetries(const struct copse_topology *topology,
                                           const struct copse_node_set *sets, int n_sets,
                                           struct copse_symmetry *out, struct copse_err *err) {
  COPSE_AT_END(copse_refinement_free) struct copse_refinement refinement = {0};
  struct finder f = {.refinement = &refinement,
                     .topology = topology,
                     .sets = sets,
                     .n_sets = n_sets,
                     .n_nodes = topology->n_nodes,
                     .found = out,
                     .err = err};
  *out = (struct copse_symmetry){.n_products = 1};
  copse_status status = search(&f);
  if (status != COPSE_OK) copse_symmetry_free(out);
  return status;
}
