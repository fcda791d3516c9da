/*
 * A flow from several sources to one sink within given capacities, taken apart into paths: shortest
 * augmenting paths (Edmonds and Karp, JACM 19, 1972), then one path after the other off the flow.
 */
#include "solver/alltoall/gather.h"

#include <string.h>

#include "base/graph.h"

struct gather {
  const struct copse_network *network;
  const int64_t *capacities;
  const int *sources;
  int n_sources, sink;
  int64_t *flow; /* [n_links] */
  int64_t *due;  /* [n_sources] not yet on its way, or not yet in a path */
  int *by;       /* [n_nodes] the link that a search, or a path, took to a node or from it; -1 */
  struct copse_queue queue;
  bool *seen; /* [n_nodes] */
  struct copse_arena *arena;
  struct copse_gather_path **paths;
  size_t *n_paths, paths_capacity;
  struct copse_err *err;
};

/* ---- a flow ------------------------------------------------------------------------------ */

/* What a link still has from `node`, along it or against its flow. */
static int64_t residual(const struct gather *g, int link, int node, int *to) {
  const struct copse_net_link *l = &g->network->links[link];
  if (l->src == node) {
    *to = l->dst;
    return g->capacities[link] - g->flow[link];
  }
  *to = l->src;
  return l->dst == node ? g->flow[link] : 0;
}

/* Breadth first from all sources that have something left; whether the sink was reached. */
static bool search(struct gather *g) {
  copse_queue_reset(&g->queue);
  memset(g->seen, 0, (size_t)g->network->n_nodes * sizeof *g->seen);
  for (int i = 0; i < g->n_sources; i++) {
    if (g->due[i] == 0) continue;
    g->seen[g->sources[i]] = true;
    g->by[g->sources[i]] = -1;
    copse_queue_push(&g->queue, g->sources[i]);
  }
  while (!copse_queue_is_empty(&g->queue) && !g->seen[g->sink]) {
    int node = copse_queue_pop(&g->queue), to;
    for (int e = 0; e < g->network->n_links; e++) {
      if (residual(g, e, node, &to) == 0 || g->seen[to]) continue;
      g->seen[to] = true;
      g->by[to] = e;
      copse_queue_push(&g->queue, to);
    }
  }
  return g->seen[g->sink];
}

/* The node before `node` on the way that the search found. */
static int before(const struct gather *g, int node) {
  const struct copse_net_link *l = &g->network->links[g->by[node]];
  return l->dst == node ? l->src : l->dst;
}

static void augment(struct gather *g) {
  int at = g->sink, to, source = 0;
  int64_t most = INT64_MAX;
  for (; g->by[at] >= 0; at = before(g, at)) {
    int64_t left = residual(g, g->by[at], before(g, at), &to);
    if (left < most) most = left;
  }
  while (g->sources[source] != at) source++;
  if (g->due[source] < most) most = g->due[source];
  g->due[source] -= most;
  for (at = g->sink; g->by[at] >= 0; at = before(g, at))
    g->flow[g->by[at]] += g->network->links[g->by[at]].dst == at ? most : -most;
}

static copse_status find_flow(struct gather *g) {
  while (search(g)) augment(g);
  for (int i = 0; i < g->n_sources; i++)
    if (g->due[i] > 0)
      return copse_fail(g->err, COPSE_INTERNAL, "a reservation does not carry its flow");
  return COPSE_OK;
}

/* ---- its paths --------------------------------------------------------------------------- */

static int next_link(const struct gather *g, int node) {
  for (int e = 0; e < g->network->n_links; e++)
    if (g->network->links[e].src == node && g->flow[e] > 0) return e;
  return -1;
}

/* Takes the least flow on the way from `from` to `to`, at most `most`, off all of it. */
static int64_t take_way(struct gather *g, int from, int to, int64_t most) {
  for (int at = from;;) {
    int e = g->by[at];
    if (g->flow[e] < most) most = g->flow[e];
    at = g->network->links[e].dst;
    if (at == to) break;
  }
  for (int at = from;;) {
    int e = g->by[at];
    g->flow[e] -= most;
    at = g->network->links[e].dst;
    if (at == to) break;
  }
  return most;
}

static copse_status keep_path(struct gather *g, int source, int64_t amount, int n_nodes) {
  int *nodes;
  COPSE_DO(COPSE_ARRAY(g->arena, (size_t)n_nodes, nodes, g->err));
  nodes[0] = g->sources[source];
  for (int i = 1; i < n_nodes; i++) nodes[i] = g->network->links[g->by[nodes[i - 1]]].dst;
  COPSE_DO(copse_grow(g->paths, &g->paths_capacity, *g->n_paths + 1, sizeof **g->paths, g->err));
  (*g->paths)[(*g->n_paths)++] = (struct copse_gather_path){source, amount, nodes, n_nodes};
  return COPSE_OK;
}

/* Follows the flow from a source; a way that comes back to itself is no use, and taken off. */
static copse_status take_path(struct gather *g, int source) {
  int at = g->sources[source], n = 1;
  memset(g->seen, 0, (size_t)g->network->n_nodes * sizeof *g->seen);
  while (at != g->sink) {
    g->seen[at] = true;
    g->by[at] = next_link(g, at);
    if (g->by[at] < 0) return copse_fail(g->err, COPSE_INTERNAL, "a flow ends on its way");
    at = g->network->links[g->by[at]].dst;
    n++;
    if (!g->seen[at]) continue;
    (void)take_way(g, at, at, INT64_MAX);
    return COPSE_OK;
  }
  int64_t amount = take_way(g, g->sources[source], g->sink, g->due[source]);
  g->due[source] -= amount;
  return keep_path(g, source, amount, n);
}

copse_status copse_gather_paths(const struct copse_network *network, const int64_t *capacities,
                                const int *sources, int n_sources, int64_t amount, int sink,
                                struct copse_arena *arena, struct copse_gather_path **out,
                                size_t *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct gather g = {.network = network,
                     .capacities = capacities,
                     .sources = sources,
                     .n_sources = n_sources,
                     .sink = sink,
                     .arena = arena,
                     .paths = out,
                     .n_paths = n,
                     .err = err};
  size_t nodes = (size_t)network->n_nodes;
  *out = NULL;
  *n = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_links, g.flow, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n_sources, g.due, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, err, &g.by, &g.queue.items));
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, g.seen, err));
  for (int i = 0; i < n_sources; i++) g.due[i] = amount;
  COPSE_DO(find_flow(&g));
  for (int i = 0; i < n_sources; i++)
    for (g.due[i] = amount; g.due[i] > 0;) COPSE_DO(take_path(&g, i));
  return COPSE_OK;
}
