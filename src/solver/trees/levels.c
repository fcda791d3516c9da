#include "solver/trees/levels.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/levels_internal.h"
#include "solver/network/sinks.h"

/* ---- the network ------------------------------------------------------------------------- */

static copse_status index_links(struct copse_levels *g) {
  const struct copse_network *network = g->network;
  size_t n = (size_t)network->n_nodes, m = (size_t)network->n_links;
  copse_status status;
  COPSE_TRY(copse_calloc(n + 2, sizeof(int), &g->first_out, g->err));
  COPSE_TRY(copse_calloc(n + 2, sizeof(int), &g->first_in, g->err));
  COPSE_TRY(copse_calloc(m, sizeof(int), &g->by_src, g->err));
  COPSE_TRY(copse_calloc(m, sizeof(int), &g->by_dst, g->err));
  for (int e = 0; e < network->n_links; e++) {
    g->first_out[network->links[e].src + 2]++;
    g->first_in[network->links[e].dst + 2]++;
  }
  for (int v = 0; v < network->n_nodes; v++) {
    g->first_out[v + 2] += g->first_out[v + 1];
    g->first_in[v + 2] += g->first_in[v + 1];
  }
  for (int e = 0; e < network->n_links; e++) {
    g->by_src[g->first_out[network->links[e].src + 1]++] = e;
    g->by_dst[g->first_in[network->links[e].dst + 1]++] = e;
  }
out:
  return status;
}

static bool enters(const struct copse_levels *g, int cut, const struct copse_net_link *link) {
  const unsigned char *inside = g->inside + (size_t)cut * (size_t)g->network->n_nodes;
  return inside[link->dst] && !inside[link->src];
}

static copse_status list_cuts_by_link(struct copse_levels *g) {
  const struct copse_network *network = g->network;
  size_t n = 0, capacity = 0;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_links + 1, sizeof(int), &g->first_cut, g->err));
  for (int e = 0; e < network->n_links; e++) {
    g->first_cut[e] = (int)n;
    for (int c = 0; c < g->n_cuts; c++) {
      if (!enters(g, c, &network->links[e])) continue;
      COPSE_TRY(copse_grow(&g->cuts, &capacity, n + 1, sizeof *g->cuts, g->err));
      g->cuts[n++] = c;
    }
  }
  g->first_cut[network->n_links] = (int)n;
out:
  return status;
}

/* A cut of several terminals, unless it is known. */
static copse_status add_cut(struct copse_levels *g, const unsigned char *inside) {
  size_t nodes = (size_t)g->network->n_nodes;
  int n_terminals = 0;
  copse_status status;
  for (int i = 0; i < g->n; i++) n_terminals += inside[g->network->terminals[i]];
  if (n_terminals < 2 || n_terminals == g->n) return COPSE_OK;
  for (int c = 0; c < g->n_cuts; c++)
    if (memcmp(g->inside + (size_t)c * nodes, inside, nodes) == 0) return COPSE_OK;
  COPSE_TRY(
      copse_grow(&g->inside, &g->inside_capacity, ((size_t)g->n_cuts + 1) * nodes, 1, g->err));
  memcpy(g->inside + (size_t)g->n_cuts++ * nodes, inside, nodes);
out:
  return status;
}

/* The tight cuts nearest to the terminals: hosts, as a rule. */
static copse_status find_cuts(struct copse_levels *g, const int64_t *capacities, int64_t k) {
  const struct copse_network *network = g->network;
  struct copse_flow *flow = NULL;
  struct copse_sinks sinks = {0};
  int64_t demand;
  copse_status status;
  COPSE_TRY(copse_sinks_graph(network, capacities, 1, k, &flow, &demand, g->err));
  struct copse_sink_question question = {.source = network->n_nodes,
                                         .demand = demand,
                                         .sinks = network->terminals,
                                         .n_sinks = g->n,
                                         .most = g->n,
                                         .tight = true};
  COPSE_TRY(copse_sinks_ask(&sinks, flow, &question, g->err));
  for (int c = 0; c < sinks.n_cuts; c++) COPSE_TRY(add_cut(g, sinks.cuts[c].inside));
  COPSE_TRY(list_cuts_by_link(g));
out:
  copse_sinks_free(&sinks);
  copse_flow_free(flow);
  return status;
}

static copse_status make_searches(struct copse_levels *g) {
  size_t n = (size_t)g->network->n_nodes;
  copse_status status = COPSE_OK;
  for (int i = 0; i <= COPSE_LEVELS_CHAIN; i++) {
    struct copse_levels_search *s = &g->search[i];
    COPSE_TRY(copse_calloc(COPSE_LEVELS_LAYERS * n, sizeof(int), &s->via, g->err));
    COPSE_TRY(copse_calloc(COPSE_LEVELS_LAYERS * n, sizeof(int), &s->stamp, g->err));
    COPSE_TRY(copse_calloc(COPSE_LEVELS_LAYERS * n, sizeof(int), &s->queue, g->err));
    COPSE_TRY(copse_calloc(COPSE_LEVELS_LAYERS * n, sizeof(int), &s->ends, g->err));
    COPSE_TRY(copse_calloc(n, sizeof(int), &s->links, g->err));
  }
out:
  return status;
}

/* ---- the trees --------------------------------------------------------------------------- */

static copse_status make_tree(struct copse_levels *g, int root) {
  const struct copse_network *network = g->network;
  size_t n = (size_t)g->n;
  struct copse_levels_tree *tree = &g->trees[g->n_made];
  copse_status status;
  tree->ways = g->ways + (size_t)g->n_made++ * n;
  COPSE_TRY(copse_calloc(n, sizeof *tree->depth, &tree->depth, g->err));
  COPSE_TRY(copse_calloc(n, sizeof *tree->order, &tree->order, g->err));
  COPSE_TRY(copse_calloc((size_t)g->n_cuts, 1, &tree->entered, g->err));
  for (int v = 0; v < g->n; v++) {
    tree->ways[v].src = -1;
    tree->depth[v] = -1;
  }
  tree->root = root;
  tree->depth[root] = 0;
  tree->order[tree->n_order++] = root;
  for (int c = 0; c < g->n_cuts; c++)
    tree->entered[c] =
        g->inside[(size_t)c * (size_t)network->n_nodes + (size_t)network->terminals[root]];
out:
  return status;
}

/* How many trees there are; false where they are too many. */
static bool count_trees(struct copse_levels *g, int64_t k) {
  int64_t n = 0, more;
  for (int i = 0; i < g->network->n_roots; i++)
    if (copse_mul_overflows(g->network->roots[i].weight, k, &more) ||
        copse_add_overflows(n, more, &n) || n > COPSE_LEVELS_MOST / g->n)
      return false;
  g->n_trees = (int)n;
  return true;
}

static copse_status prepare(struct copse_levels *g, const int64_t *capacities, int64_t k) {
  const struct copse_network *network = g->network;
  size_t nodes = (size_t)network->n_nodes, links = (size_t)network->n_links;
  copse_status status;
  COPSE_TRY(copse_calloc(nodes, sizeof *g->number, &g->number, g->err));
  COPSE_TRY(copse_calloc(nodes, sizeof *g->sources, &g->sources, g->err));
  COPSE_TRY(copse_calloc(links, sizeof *g->left, &g->left, g->err));
  for (int v = 0; v < network->n_nodes; v++) g->number[v] = -1;
  for (int i = 0; i < g->n; i++) g->number[network->terminals[i]] = i;
  memcpy(g->left, capacities, links * sizeof *g->left);
  COPSE_TRY(index_links(g));
  COPSE_TRY(find_cuts(g, capacities, k));
  COPSE_TRY(make_searches(g));
  COPSE_TRY(copse_calloc((size_t)g->n_trees, sizeof *g->trees, &g->trees, g->err));
  COPSE_TRY(copse_calloc((size_t)g->n_trees * (size_t)g->n, sizeof *g->ways, &g->ways, g->err));
  for (int i = 0; i < network->n_roots; i++)
    for (int64_t j = 0; j < network->roots[i].weight * k; j++)
      COPSE_TRY(make_tree(g, g->number[network->roots[i].node]));
out:
  return status;
}

static void release(struct copse_levels *g) {
  for (int t = 0; t < g->n_made; t++) {
    free(g->trees[t].depth);
    free(g->trees[t].order);
    free(g->trees[t].entered);
  }
  for (int e = 0; g->users && e < g->network->n_links; e++) free(g->users[e].list);
  for (int i = 0; i <= COPSE_LEVELS_CHAIN; i++) {
    free(g->search[i].via);
    free(g->search[i].stamp);
    free(g->search[i].queue);
    free(g->search[i].ends);
    free(g->search[i].links);
  }
  free(g->users);
  free(g->ways);
  free(g->trees);
  free(g->number);
  free(g->sources);
  free(g->left);
  free(g->first_out);
  free(g->first_in);
  free(g->by_src);
  free(g->by_dst);
  free(g->inside);
  free(g->first_cut);
  free(g->cuts);
  free(g->path);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* All trees in turns, one terminal each, until none finds another. */
static copse_status grow_all(struct copse_levels *g, const struct copse_progress *progress) {
  copse_status status = COPSE_OK;
  int round = 0;
  for (bool grown = true; grown; round++) {
    grown = false;
    for (int t = 0; t < g->n_trees; t++) {
      int taken;
      COPSE_TRY(copse_levels_grow(g, t, 1, &taken));
      grown = grown || taken > 0;
    }
    copse_progress_report(progress, "pack", round < g->n ? round : g->n, g->n);
  }
out:
  return status;
}

/* Repairs all trees that are stuck, as far as that goes. */
static copse_status repair_all(struct copse_levels *g, int chain, bool *any, bool *complete) {
  copse_status status = COPSE_OK;
  *any = false;
  *complete = true;
  for (int t = 0; t < g->n_trees; t++) {
    bool repaired = true;
    while (g->trees[t].n_order < g->n && repaired) {
      int taken;
      COPSE_TRY(copse_levels_repair(g, t, chain, &repaired));
      if (repaired) COPSE_TRY(copse_levels_grow(g, t, g->n, &taken));
      *any = *any || repaired;
    }
    *complete = *complete && g->trees[t].n_order == g->n;
  }
out:
  return status;
}

/* What is stuck, by ever longer chains of exchanges. */
static copse_status finish(struct copse_levels *g, bool *complete) {
  copse_status status = COPSE_OK;
  bool any;
  *complete = false;
  for (int chain = 0; chain <= COPSE_LEVELS_CHAIN && !*complete; chain++) do {
      COPSE_TRY(repair_all(g, chain, &any, complete));
    } while (any && !*complete && g->patience > 0);
out:
  return status;
}

static copse_status keep_edge(struct copse_levels *g, const struct copse_levels_tree *tree, int v,
                              struct copse_forest_edge *out) {
  const struct copse_levels_way *way = &tree->ways[v];
  const struct copse_network *network = g->network;
  int *nodes = copse_arena_alloc(&g->forest->arena, (size_t)way->n + 1, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(g->err);
  for (int i = 0; i < way->n; i++) {
    const struct copse_net_link *link = &network->links[g->path[way->first + (size_t)i]];
    nodes[i] = link->src;
    nodes[i + 1] = link->dst;
  }
  *out = (struct copse_forest_edge){network->terminals[way->src], network->terminals[v], nodes,
                                    way->n + 1};
  return COPSE_OK;
}

/* Edges by depth: every src has the data. At each depth they begin behind the root's number, so
 * that roots that send to all others do not all begin with the same. */
static copse_status keep_tree(struct copse_levels *g, const struct copse_levels_tree *tree,
                              struct copse_forest_tree *out) {
  struct copse_forest_edge *edges =
      copse_arena_alloc(&g->forest->arena, (size_t)g->n, sizeof *edges);
  copse_status status = COPSE_OK;
  if (!edges) return copse_fail_nomem(g->err);
  *out = (struct copse_forest_tree){
      .root = g->network->terminals[tree->root], .multiplicity = 1, .edges = edges};
  for (int n = 0, depth = 1; n < g->n - 1; depth++) {
    for (int i = 0, v; i < g->n; i++) {
      v = (tree->root + i) % g->n;
      if (tree->depth[v] == depth) COPSE_TRY(keep_edge(g, tree, v, &edges[n++]));
    }
    out->height = depth;
  }
out:
  return status;
}

static copse_status keep(struct copse_levels *g) {
  copse_status status = COPSE_OK;
  struct copse_forest_tree *trees =
      copse_arena_alloc(&g->forest->arena, (size_t)g->n_trees, sizeof *trees);
  if (!trees) return copse_fail_nomem(g->err);
  for (int t = 0; t < g->n_trees; t++) COPSE_TRY(keep_tree(g, &g->trees[t], &trees[t]));
  g->forest->trees = trees;
  g->forest->n_trees = g->n_trees;
out:
  return status;
}

/* How many candidates for exchanges are looked at, for each terminal that is missing in a tree:
 * where exchanges can finish the trees, that takes up to 1,900; where they can't, there is no end.
 * And where more than one in so many is missing they don't. */
#define PATIENCE_EACH 3000
#define LEAST_PATIENCE 1000000
#define MOST_PATIENCE 150000000
#define LEAST_GROWN 2

static bool is_worth_finishing(struct copse_levels *g) {
  int64_t all = (int64_t)g->n_trees * g->n, missing = all;
  for (int t = 0; t < g->n_trees; t++) missing -= g->trees[t].n_order;
  g->patience = LEAST_PATIENCE + PATIENCE_EACH * missing;
  if (g->patience > MOST_PATIENCE) g->patience = MOST_PATIENCE;
  return missing <= all / LEAST_GROWN;
}

copse_status copse_levels_pack(const struct copse_network *network, const int64_t *capacities,
                               int64_t k, const struct copse_progress *progress,
                               struct copse_forest *forest, bool *packed, struct copse_err *err) {
  struct copse_levels g = {
      .network = network, .forest = forest, .n = network->n_terminals, .err = err};
  copse_status status = COPSE_OK;
  *packed = false;
  if (!count_trees(&g, k)) return COPSE_OK;
  COPSE_TRY(prepare(&g, capacities, k));
  COPSE_TRY(grow_all(&g, progress));
  if (is_worth_finishing(&g)) COPSE_TRY(finish(&g, packed));
  if (*packed) COPSE_TRY(keep(&g));
out:
  release(&g);
  return status;
}
