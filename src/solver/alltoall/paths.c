/*
 * A flow from several sources to one sink within given capacities, taken apart into paths: shortest
 * augmenting paths (Edmonds and Karp, JACM 19, 1972), then one path after the other off the flow.
 *
 * And ways for all pairs that load links evenly: prices that grow exponentially with loads.
 */
#include "solver/alltoall/paths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "solver/policy.h"

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

/* Returns what a link still has from `node`, along it or against its flow. */
static int64_t residual(const struct gather *g, int link, int node, int *to) {
  const struct copse_net_link *l = &g->network->links[link];
  if (l->src == node) {
    *to = l->dst;
    return g->capacities[link] - g->flow[link];
  }
  *to = l->src;
  return l->dst == node ? g->flow[link] : 0;
}

/* Searches breadth first from all sources that have something left; whether the sink was
 * reached. */
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

/* Returns the node before `node` on the way that the search found. */
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

copse_status copse_gather_paths(const struct copse_gather_question *question,
                                struct copse_arena *arena, struct copse_gather_path **out,
                                size_t *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct gather g = {.network = question->network,
                     .capacities = question->capacities,
                     .sources = question->sources,
                     .n_sources = question->n_sources,
                     .sink = question->sink,
                     .arena = arena,
                     .paths = out,
                     .n_paths = n,
                     .err = err};
  const int n_sources = question->n_sources;
  size_t nodes = (size_t)question->network->n_nodes;
  *out = NULL;
  *n = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)question->network->n_links, g.flow, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n_sources, g.due, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, err, &g.by, &g.queue.items));
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, g.seen, err));
  for (int i = 0; i < n_sources; i++) g.due[i] = question->amount;
  COPSE_DO(find_flow(&g));
  for (int i = 0; i < n_sources; i++)
    for (g.due[i] = question->amount; g.due[i] > 0;) COPSE_DO(take_path(&g, i));
  return COPSE_OK;
}

/* ---- ways for all pairs --------------------------------------------------------------------- */

/* A part of a pair's demand, and the tree of its base source that it takes. */
struct item {
  int base, sink, tree;
  int64_t amount;
};

struct balance {
  const struct copse_balance_problem *p;
  struct copse_shortest shortest;
  int64_t *lengths; /* [n_links] */
  int64_t *load;    /* [n_orbits] the result's */
  double *rise;     /* [n_orbits] exponents of a unit of load */
  double *price;    /* [n_orbits] at the start of the round */
  double sharp;     /* the exponent of the fullest link's load */
  int **via; /* [n_bases * COPSE_BALANCE_TREES] the link into each node, -1; NULL: none yet */
  struct item *items;
  size_t n_items, items_capacity;
  size_t *first; /* [n_bases + 1] items of each base source */
  int *nodes;    /* [n_nodes] scratch */
  struct copse_arena scratch;
  struct copse_arena *arena;
  struct copse_err *err;
};

static int64_t demand_of(const struct copse_balance_problem *p, int base, int sink) {
  if (p->base[base] == sink) return 0;
  if (!p->demand) return 1;
  return p->demand[(size_t)p->base[base] * (size_t)p->network->n_terminals + (size_t)sink];
}

/* Returns 2^x, between powers on a straight line: by a double's bits, the same on every machine. */
static double power_of_2(double x) {
  double value;
  int64_t bits = (int64_t)((fmin(fmax(x, -1000), 1000) + 1023) * (double)((int64_t)1 << 52));
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Returns what one more unit costs on a link of the orbit that carries `load`. */
static double price_at(const struct balance *b, int orbit, int64_t load) {
  return power_of_2((double)load * b->rise[orbit] - b->sharp) / (double)b->p->capacity[orbit] *
         (double)b->p->factor[orbit];
}

static double fullest(const struct balance *b) {
  double most = 0;
  for (int o = 0; o < b->p->n_orbits; o++)
    most = fmax(most, (double)b->load[o] / (double)b->p->capacity[o]);
  return most;
}

/* Sets the round's prices. Links that are nearly the fullest have the same price: else uneven loads
 * that the search leaves among the links of a cut would spoil the bound. */
static void set_prices(struct balance *b, double sharp) {
  double full = fullest(b), most = 0;
  b->sharp = sharp;
  for (int o = 0; o < b->p->n_orbits; o++) {
    b->rise[o] = sharp / ((double)b->p->capacity[o] * full);
    double exponent = (double)b->load[o] * b->rise[o] - sharp;
    b->price[o] = power_of_2(fmin(exponent, -COPSE_BALANCE_ALIKE)) / (double)b->p->capacity[o] *
                  (double)b->p->factor[o];
    most = fmax(most, b->price[o]);
  }
  for (int e = 0; e < b->p->network->n_links; e++) {
    double part = b->price[b->p->orbit[e]] / most;
    b->lengths[e] = (int64_t)llround(part * (double)(COPSE_LENGTH_MAX >> 2));
  }
}

/* Puts an item on its tree's way, or with -1 takes it off. */
static void put(struct balance *b, const struct item *item, int sign) {
  const struct copse_net_link *links = b->p->network->links;
  const int *via = b->via[(size_t)item->base * COPSE_BALANCE_TREES + (size_t)item->tree];
  int node = b->p->network->terminals[item->sink];
  for (int e; (e = via[node]) >= 0; node = links[e].src)
    b->load[b->p->orbit[e]] += sign * item->amount * b->p->factor[b->p->orbit[e]];
}

/* Returns the cost of one more unit on a tree's way, the item's own load included. */
static double cost_of(const struct balance *b, const struct item *item, int tree) {
  const struct copse_net_link *links = b->p->network->links;
  const int *via = b->via[(size_t)item->base * COPSE_BALANCE_TREES + (size_t)tree];
  int node = b->p->network->terminals[item->sink];
  double cost = 0;
  for (int e; (e = via[node]) >= 0; node = links[e].src) {
    int o = b->p->orbit[e];
    cost += price_at(b, o, b->load[o] + item->amount * b->p->factor[o]);
  }
  return cost;
}

/* Moves each item of a base source onto its cheapest way, those before it being where they are. */
static void improve(struct balance *b, int base) {
  int **via = b->via + (size_t)base * COPSE_BALANCE_TREES;
  for (size_t i = b->first[base]; i < b->first[base + 1]; i++) {
    struct item *item = &b->items[i];
    put(b, item, -1);
    double least = cost_of(b, item, item->tree);
    for (int t = 0; t < COPSE_BALANCE_TREES && via[t]; t++) {
      double cost = cost_of(b, item, t);
      if (cost >= least) continue;
      least = cost;
      item->tree = t;
    }
    put(b, item, 1);
  }
}

/* Returns the demand-weighted length of the tree at hand, under the round's prices. */
static double tree_length(const struct balance *b, int base) {
  const struct copse_network *network = b->p->network;
  double length = 0;
  for (int j = 0; j < network->n_terminals; j++) {
    double due = (double)demand_of(b->p, base, j);
    if (due == 0) continue;
    int node = network->terminals[j];
    for (int e; (e = b->shortest.via[node]) >= 0; node = network->links[e].src)
      length += due * b->price[b->p->orbit[e]];
  }
  return length;
}

/* Keeps the tree at hand in a free place, or that of the first that no item takes; else it goes. */
static copse_status keep_tree(struct balance *b, int base) {
  size_t nodes = (size_t)b->p->network->n_nodes;
  int **via = b->via + (size_t)base * COPSE_BALANCE_TREES;
  int users[COPSE_BALANCE_TREES] = {0}, t = 0;
  for (size_t i = b->first[base]; i < b->first[base + 1]; i++) users[b->items[i].tree]++;
  while (t < COPSE_BALANCE_TREES && via[t] && users[t] > 0) t++;
  if (t == COPSE_BALANCE_TREES) return COPSE_OK;
  if (!via[t]) COPSE_DO(COPSE_ARRAY(&b->scratch, nodes, via[t], b->err));
  memcpy(via[t], b->shortest.via, nodes * sizeof *via[t]);
  return COPSE_OK;
}

/* Finds new ways under prices so steep, and moves all items onto their cheapest; what the prices
 * prove. */
static copse_status run_round(struct balance *b, double sharp, struct copse_balance *out) {
  const struct copse_network *network = b->p->network;
  double length = 0, room = 0;
  set_prices(b, sharp);
  for (int base = 0; base < b->p->n_bases; base++) {
    copse_shortest_run(&b->shortest, network->terminals[b->p->base[base]], b->lengths,
                       b->p->blocked);
    length += tree_length(b, base);
    COPSE_DO(keep_tree(b, base));
    improve(b, base);
  }
  for (int o = 0; o < b->p->n_orbits; o++)
    room += b->price[o] * (double)b->p->capacity[o] / (double)b->p->factor[o];
  out->time = fullest(b) / (double)out->whole;
  if (length <= out->bound * room) return COPSE_OK;
  out->bound = length / room;
  for (int o = 0; o < b->p->n_orbits; o++) out->price[o] = b->price[o] / (double)b->p->factor[o];
  return COPSE_OK;
}

/* Finds the shortest trees in hops. `grain`: what is sent in one piece at most. */
static copse_status find_first_trees(struct balance *b, double *grain) {
  const struct copse_network *network = b->p->network;
  for (int e = 0; e < network->n_links; e++) b->lengths[e] = 1;
  for (int base = 0; base < b->p->n_bases; base++) {
    double sum = 0;
    copse_shortest_run(&b->shortest, network->terminals[b->p->base[base]], b->lengths,
                       b->p->blocked);
    COPSE_DO(keep_tree(b, base));
    for (int j = 0; j < network->n_terminals; j++) sum += (double)demand_of(b->p, base, j);
    *grain = fmax(*grain, sum / COPSE_BALANCE_GRAIN);
  }
  return COPSE_OK;
}

/* Adds all demand, on the first trees. */
static copse_status add_items(struct balance *b, double grain) {
  const struct copse_network *network = b->p->network;
  for (int base = 0; base < b->p->n_bases; base++) {
    b->first[base] = b->n_items;
    for (int j = 0; j < network->n_terminals; j++) {
      int64_t due = demand_of(b->p, base, j), parts = due > 0 ? 1 : 0;
      while (parts < COPSE_BALANCE_PARTS && (double)due > grain * (double)parts) parts *= 2;
      COPSE_DO(COPSE_GROW(b->items, b->items_capacity, b->n_items + (size_t)parts, b->err));
      for (int64_t k = 0; k < parts; k++) {
        b->items[b->n_items] = (struct item){base, j, 0, due * (COPSE_BALANCE_PARTS / parts)};
        put(b, &b->items[b->n_items++], 1);
      }
    }
  }
  b->first[b->p->n_bases] = b->n_items;
  return COPSE_OK;
}

/* Writes the items as paths; parts of a pair that go the same way are one. */
static copse_status write_paths(const struct balance *b, struct copse_balance *out) {
  const struct copse_network *network = b->p->network;
  COPSE_DO(COPSE_ARRAY(b->arena, b->n_items, out->paths, b->err));
  for (size_t i = 0, first = 0; i < b->n_items; i++) {
    const struct item *item = &b->items[i];
    const int *via = b->via[(size_t)item->base * COPSE_BALANCE_TREES + (size_t)item->tree];
    int at = network->n_nodes, node = network->terminals[item->sink], *copy;
    if (i == 0 || item->sink != item[-1].sink || item->base != item[-1].base) first = out->n_paths;
    b->nodes[--at] = node;
    for (int e; (e = via[node]) >= 0;) b->nodes[--at] = node = network->links[e].src;
    size_t n = (size_t)(network->n_nodes - at), same = first;
    while (same < out->n_paths &&
           ((size_t)out->paths[same].n_nodes != n ||
            memcmp(out->paths[same].nodes, b->nodes + at, n * sizeof *copy) != 0))
      same++;
    if (same < out->n_paths) {
      out->paths[same].amount += item->amount;
      continue;
    }
    COPSE_DO(COPSE_ARRAY(b->arena, n, copy, b->err));
    memcpy(copy, b->nodes + at, n * sizeof *copy);
    out->paths[out->n_paths++] = (struct copse_concurrent_path){b->p->base[item->base], item->sink,
                                                                item->amount, copy, (int)n};
  }
  return COPSE_OK;
}

/* Whether no load can be beyond 64 bits. */
static bool fits(const struct copse_balance_problem *p) {
  double sum = 0, factor = 0;
  for (int base = 0; base < p->n_bases; base++)
    for (int j = 0; j < p->network->n_terminals; j++) sum += (double)demand_of(p, base, j);
  for (int o = 0; o < p->n_orbits; o++) factor = fmax(factor, (double)p->factor[o]);
  return sum * factor * COPSE_BALANCE_PARTS < 0x1p62;
}

static copse_status prepare(struct balance *b, struct copse_balance *out) {
  size_t links = (size_t)b->p->network->n_links, orbits = (size_t)b->p->n_orbits;
  size_t bases = (size_t)b->p->n_bases;
  COPSE_DO(copse_shortest_prepare(b->p->network, &b->scratch, &b->shortest, b->err));
  COPSE_DO(COPSE_ARRAY(&b->scratch, links, b->lengths, b->err));
  COPSE_DO(COPSE_ARRAYS(&b->scratch, orbits, double, b->err, &b->rise, &b->price));
  COPSE_DO(COPSE_ARRAY(&b->scratch, bases * COPSE_BALANCE_TREES, b->via, b->err));
  COPSE_DO(COPSE_ARRAY(&b->scratch, bases + 1, b->first, b->err));
  COPSE_DO(COPSE_ARRAY(&b->scratch, (size_t)b->p->network->n_nodes, b->nodes, b->err));
  COPSE_DO(COPSE_ARRAY(b->arena, orbits, b->load, b->err));
  out->load = b->load;
  return COPSE_ARRAY(b->arena, orbits, out->price, b->err);
}

static void release(struct balance *b) {
  free(b->items);
  copse_arena_free(&b->scratch);
}

copse_status copse_balance_paths(const struct copse_balance_problem *problem,
                                 struct copse_arena *arena, struct copse_balance *out,
                                 struct copse_err *err) {
  COPSE_AT_END(release) struct balance b = {.p = problem, .arena = arena, .err = err};
  double grain = 0, sharp = COPSE_BALANCE_SHARP;
  *out = (struct copse_balance){.whole = COPSE_BALANCE_PARTS};
  COPSE_DO(prepare(&b, out));
  if (!fits(problem)) return COPSE_OK;
  COPSE_DO(find_first_trees(&b, &grain));
  COPSE_DO(add_items(&b, grain));
  for (int round = 0; round < COPSE_BALANCE_ROUNDS; round++) {
    COPSE_DO(run_round(&b, sharp, out));
    if (out->time <= out->bound * problem->enough) break;
    sharp *= COPSE_BALANCE_STEEPER;
  }
  return write_paths(&b, out);
}
