/*
 * The store of known cuts: by node the list of the cuts that hold it, by hash to find a set that is
 * known, and as flags where searches look at many cuts of a node at once. At the end, cuts that
 * need no flow to be found: nested sets of nodes that fast links join, by Kruskal's order (J. B.
 * Kruskal, "On the shortest spanning subtree of a graph", Proc. AMS 7, 1956).
 */
#include "solver/network/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/flow.h"
#include "solver/policy.h"

/* ---- the store --------------------------------------------------------------------------- */

copse_status copse_cuts_new(int n_nodes, int most, struct copse_cuts *out, struct copse_err *err) {
  size_t n = (size_t)n_nodes;
  *out = (struct copse_cuts){.n_nodes = n_nodes, .most = most};
  COPSE_DO(copse_calloc(n, sizeof *out->of, &out->of, err));
  COPSE_DO(copse_calloc(n, sizeof *out->scratch, &out->scratch, err));
  if (most > 0) COPSE_DO(copse_calloc(n, (size_t)most, &out->flags, err));
  return COPSE_OK;
}

void copse_cuts_free(struct copse_cuts *cuts) {
  for (int v = 0; cuts->of && !cuts->block && v < cuts->n_nodes; v++) free(cuts->of[v].cuts);
  free(cuts->block);
  free(cuts->of);
  free(cuts->scratch);
  free(cuts->flags);
  free(cuts->slack);
  free(cuts->hash);
  copse_index_map_free(&cuts->by_hash);
  *cuts = (struct copse_cuts){0};
}

/* Whether the cut is known; those that were replaced are still in the map, with another hash. */
static bool is_known(const struct copse_cuts *cuts, uint64_t hash) {
  size_t cursor = 0;
  for (int c; (c = copse_index_map_next(&cuts->by_hash, hash, &cursor)) >= 0;)
    if (cuts->hash[c] == hash) return true;
  return false;
}

static copse_status put(struct copse_cuts *cuts, int cut, int node, struct copse_err *err) {
  struct copse_cuts_of_node *of = &cuts->of[node];
  size_t capacity = (size_t)of->capacity;
  COPSE_DO(COPSE_GROW(of->cuts, capacity, (size_t)of->n + 1, err));
  of->capacity = (int)capacity;
  of->cuts[of->n++] = cut;
  if (cuts->flags) cuts->flags[(size_t)node * (size_t)cuts->most + (size_t)cut] = 1;
  return COPSE_OK;
}

/* Takes all nodes out of a cut. */
static void clear_cut(struct copse_cuts *cuts, int cut) {
  for (int v = 0; v < cuts->n_nodes; v++) {
    struct copse_cuts_of_node *of = &cuts->of[v];
    unsigned char *flag = &cuts->flags[(size_t)v * (size_t)cuts->most + (size_t)cut];
    if (!*flag) continue;
    *flag = 0;
    int i = 0;
    while (of->cuts[i] != cut) i++;
    of->cuts[i] = of->cuts[--of->n];
  }
}

/* Makes a place for one more cut, still empty. */
static copse_status make_place(struct copse_cuts *cuts, int64_t slack, uint64_t hash, int *place,
                               struct copse_err *err) {
  size_t need = (size_t)cuts->n + 1;
  *place = cuts->n;
  if (cuts->most > 0 && cuts->n == cuts->most) {
    *place = 0;
    for (int c = 1; c < cuts->n; c++)
      if (cuts->slack[c] > cuts->slack[*place]) *place = c;
    clear_cut(cuts, *place);
  } else {
    COPSE_DO(COPSE_GROW(cuts->slack, cuts->slack_capacity, need, err));
    COPSE_DO(COPSE_GROW(cuts->hash, cuts->hash_capacity, need, err));
    cuts->n++;
  }
  cuts->slack[*place] = slack;
  cuts->hash[*place] = hash;
  return COPSE_OK;
}

copse_status copse_cuts_add(struct copse_cuts *cuts, const int *nodes, int n, int64_t slack,
                            int *place, struct copse_err *err) {
  uint64_t hash = 0;
  int at = -1;
  for (int i = 0; i < n; i++) /* in any order */
    hash += copse_mix((uint64_t)nodes[i]);
  if (!is_known(cuts, hash)) {
    COPSE_DO(make_place(cuts, slack, hash, &at, err));
    COPSE_DO(copse_index_map_add(&cuts->by_hash, hash, at, err));
    for (int i = 0; i < n; i++) COPSE_DO(put(cuts, at, nodes[i], err));
  }
  if (place) *place = at;
  return COPSE_OK;
}

copse_status copse_cuts_add_flags(struct copse_cuts *cuts, const unsigned char *inside,
                                  int64_t slack, int *place, struct copse_err *err) {
  int n = 0;
  for (int v = 0; v < cuts->n_nodes; v++)
    if (inside[v]) cuts->scratch[n++] = v;
  return copse_cuts_add(cuts, cuts->scratch, n, slack, place, err);
}

copse_status copse_cuts_join_lists(struct copse_cuts *cuts, struct copse_err *err) {
  size_t total = 0;
  int *block;
  for (int v = 0; v < cuts->n_nodes; v++) total += (size_t)cuts->of[v].n;
  COPSE_DO(copse_calloc(total, sizeof *block, &block, err));
  cuts->block = block;
  for (int v = 0; v < cuts->n_nodes; v++) {
    struct copse_cuts_of_node *of = &cuts->of[v];
    if (of->n > 0) memcpy(block, of->cuts, (size_t)of->n * sizeof *block);
    free(of->cuts);
    of->cuts = block;
    block += of->n;
  }
  return COPSE_OK;
}

/* ---- tight cuts ---------------------------------------------------------------------------- */

static copse_status add_tight(const struct copse_network *network, const struct copse_sink_cut *cut,
                              struct copse_cuts *out, struct copse_err *err) {
  int n_terminals = 0;
  for (int i = 0; i < network->n_terminals; i++) n_terminals += cut->inside[network->terminals[i]];
  if (n_terminals < 2 || n_terminals == network->n_terminals) return COPSE_OK;
  return copse_cuts_add_flags(out, cut->inside, 0, NULL, err);
}

copse_status copse_cuts_tight(const struct copse_network *network, const int64_t *capacities,
                              int64_t k, const int *sinks, int n_sinks, struct copse_cuts *out,
                              struct copse_err *err) {
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  COPSE_AT_END(copse_sinks_free) struct copse_sinks answer = {0};
  struct copse_sink_question question = {.source = network->n_nodes,
                                         .sinks = sinks,
                                         .n_sinks = n_sinks,
                                         .most = n_sinks,
                                         .tight = true,
                                         .threads = network->threads};
  COPSE_DO(copse_cuts_new(network->n_nodes, n_sinks, out, err));
  COPSE_DO(copse_sinks_graph(network, capacities, 1, k, &flow, &question.demand, err));
  COPSE_DO(copse_sinks_ask(&answer, flow, &question, err));
  for (int c = 0; c < answer.n_cuts; c++) COPSE_DO(add_tight(network, &answer.cuts[c], out, err));
  return COPSE_OK;
}

/* ---- nested sets ------------------------------------------------------------------------- */

struct finder {
  const struct copse_network *network;
  const int64_t *capacities;
  int root;
  int64_t narrow;
  int *by_capacity; /* [n_links] links, the fastest first */
  int *set;         /* [n_nodes] disjoint sets: the least node of each is its name */
  int *terminals;   /* [n_nodes] by name: how many the set has */
  int *listed;      /* [n_nodes] by name: how many it had when it was listed; 0: never */
  int64_t *across;  /* [n_nodes] by name: capacity of the links into the set, or out of root's */
  int *place;       /* [n_nodes] by name: which cut it becomes now, or -1 */
  struct copse_cuts *out;
  struct copse_err *err;
};

static int by_capacity(const void *a, const void *b, void *capacities) {
  const int64_t *c = capacities;
  int e = *(const int *)a, f = *(const int *)b;
  return c[e] != c[f] ? (c[e] < c[f]) - (c[e] > c[f]) : e - f;
}

static copse_status prepare(struct finder *f, struct copse_arena *scratch) {
  size_t n = (size_t)f->network->n_nodes, m = (size_t)f->network->n_links;
  COPSE_DO(COPSE_ARRAY(scratch, m, f->by_capacity, f->err));
  COPSE_DO(COPSE_ARRAYS(scratch, n, int, f->err, &f->set, &f->terminals, &f->listed, &f->place));
  COPSE_DO(COPSE_ARRAY(scratch, n, f->across, f->err));
  for (size_t e = 0; e < m; e++) f->by_capacity[e] = (int)e;
  int64_t *keys = (int64_t *)f->capacities; /* qsort_r hands them on as they are */
  qsort_r(f->by_capacity, m, sizeof *f->by_capacity, by_capacity, keys);
  copse_sets_init(f->set, f->network->n_nodes);
  for (int i = 0; i < f->network->n_terminals; i++) f->terminals[f->network->terminals[i]] = 1;
  return COPSE_OK;
}

static void join(struct finder *f, int u, int v) {
  int of_u = copse_sets_find(f->set, u), of_v = copse_sets_find(f->set, v);
  if (!copse_sets_unite(f->set, of_u, of_v)) return;
  f->terminals[of_u < of_v ? of_u : of_v] += f->terminals[of_u < of_v ? of_v : of_u];
}

/* Measures what must be crossed to get into each set; where it holds the root, out of it. */
static void measure(struct finder *f) {
  int of_root = copse_sets_find(f->set, f->root);
  memset(f->across, 0, (size_t)f->network->n_nodes * sizeof *f->across);
  for (int e = 0; e < f->network->n_links; e++) {
    int u = copse_sets_find(f->set, f->network->links[e].src),
        v = copse_sets_find(f->set, f->network->links[e].dst);
    if (u == v) continue;
    if (v != of_root && copse_add_overflows(f->across[v], f->capacities[e], &f->across[v]))
      f->across[v] = INT64_MAX;
    if (u == of_root && copse_add_overflows(f->across[u], f->capacities[e], &f->across[u]))
      f->across[u] = INT64_MAX;
  }
}

/* Lists the sets that are new since the last time and narrow. */
static copse_status list_sets(struct finder *f) {
  int n = f->network->n_nodes, of_root = copse_sets_find(f->set, f->root);
  measure(f);
  for (int v = 0; v < n; v++) {
    f->place[v] = -1;
    if (f->set[v] != v || f->across[v] >= f->narrow || f->terminals[v] == f->listed[v] ||
        f->terminals[v] == f->network->n_terminals || (v != of_root && f->terminals[v] < 2))
      continue;
    f->listed[v] = f->terminals[v];
    COPSE_DO(make_place(f->out, 0, 0, &f->place[v], f->err));
  }
  for (int v = 0; v < n; v++) {
    int set = copse_sets_find(f->set, v);
    if (set == of_root) continue;
    if (f->place[set] >= 0) COPSE_DO(put(f->out, f->place[set], v, f->err));
    if (f->place[of_root] >= 0) COPSE_DO(put(f->out, f->place[of_root], v, f->err));
  }
  return COPSE_OK;
}

copse_status copse_cuts_nested(const struct copse_network *network, const int64_t *capacities,
                               int root, int64_t narrow, struct copse_cuts *out,
                               struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct finder f = {.network = network,
                     .capacities = capacities,
                     .root = root,
                     .narrow = narrow,
                     .out = out,
                     .err = err};
  COPSE_DO(copse_cuts_new(network->n_nodes, 0, out, err));
  COPSE_DO(prepare(&f, &scratch));
  for (int i = 0, n_capacities = 0; i < network->n_links && n_capacities < COPSE_NESTED_CAPACITIES;
       n_capacities++) {
    int64_t capacity = capacities[f.by_capacity[i]];
    if (capacity == 0) break;
    COPSE_DO(list_sets(&f));
    for (; i < network->n_links && capacities[f.by_capacity[i]] == capacity; i++) {
      const struct copse_net_link *link = &network->links[f.by_capacity[i]];
      join(&f, link->src, link->dst);
    }
  }
  return COPSE_OK;
}
