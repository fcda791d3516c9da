/*
 * Hosts by the names of ranks, and one route for each pair of ranks: fewest links, of these the
 * widest, of these those that keep the sum of squared link uses small. Pairs are routed one after
 * the other, then three times anew among all the rest. O(passes * ranks * links).
 */
#include "topology/route.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "topology/policy.h"

/* ---- hosts ----------------------------------------------------------------------------- */

/* Finds the first node known with the same prefix of n characters, -1: there is none yet; *key is
 * the prefix's. */
static int first_with_prefix(const struct copse_topology *t, const struct copse_index_map *firsts,
                             const char *id, size_t n, uint64_t *key) {
  size_t cursor = 0;
  *key = COPSE_HASH;
  for (size_t i = 0; i < n; i++) *key = copse_hash(*key, (unsigned char)id[i]);
  for (;;) {
    int first = copse_index_map_next(firsts, *key, &cursor);
    if (first < 0 || strncmp(t->nodes[first].id, id, n) == 0) return first;
  }
}

copse_status copse_hosts_label(const struct copse_topology *t, int *label, bool *all,
                               struct copse_err *err) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map firsts = {0};
  *all = t->n_ranks > 0;
  for (int v = 0; v < t->n_nodes; v++) {
    uint64_t key;
    size_t n = copse_host_prefix(t->nodes[v].id, NULL);
    *all = *all && (n > 0 || t->nodes[v].rank < 0);
    label[v] = v;
    if (n == 0) continue;
    int first = first_with_prefix(t, &firsts, t->nodes[v].id, n, &key);
    if (first < 0) COPSE_DO(copse_index_map_add(&firsts, key, v, err));
    if (first >= 0) label[v] = first;
  }
  return COPSE_OK;
}

static copse_status number_hosts(const struct copse_topology *t, struct copse_hosts *h,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *label, *number;
  bool all;
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)t->n_nodes, int, err, &label, &number));
  COPSE_DO(copse_hosts_label(t, label, &all, err));
  for (int v = 0; v < t->n_nodes; v++) number[v] = all ? -1 : 0;
  h->n_hosts = all ? 0 : 1;
  for (int r = 0; r < t->n_ranks; r++) {
    int *host = &number[label[t->rank_nodes[r]]];
    if (*host < 0) *host = h->n_hosts++;
    h->of_rank[r] = *host;
  }
  for (int v = 0; v < t->n_nodes; v++) h->of_node[v] = number[label[v]];
  return COPSE_OK;
}

static copse_status find_hosts(const struct copse_topology *t, struct copse_hosts *h,
                               struct copse_err *err) {
  struct copse_adjacency by_host;
  COPSE_DO(COPSE_ARRAYS(&h->arena, (size_t)t->n_ranks, int, err, &h->of_rank, &h->place));
  COPSE_DO(COPSE_ARRAY(&h->arena, (size_t)t->n_nodes, h->of_node, err));
  COPSE_DO(number_hosts(t, h, err));
  COPSE_DO(copse_adjacency_by(&h->arena, h->n_hosts, t->n_ranks, h->of_rank, sizeof *h->of_rank,
                              &by_host, err));
  h->first = by_host.first;
  h->members = by_host.item;
  h->even = true;
  for (int i = 0; i < h->n_hosts; i++) {
    h->even = h->even && h->first[i + 1] - h->first[i] == h->first[1];
    for (int k = h->first[i]; k < h->first[i + 1]; k++) h->place[h->members[k]] = k - h->first[i];
  }
  return COPSE_OK;
}

copse_status copse_hosts_find(const struct copse_topology *topology, struct copse_hosts *hosts,
                              struct copse_err *err) {
  *hosts = (struct copse_hosts){0};
  copse_status status = find_hosts(topology, hosts, err);
  if (status != COPSE_OK) copse_hosts_free(hosts);
  return status;
}

void copse_hosts_free(struct copse_hosts *h) {
  copse_arena_free(&h->arena);
  *h = (struct copse_hosts){0};
}

/* ---- routes ---------------------------------------------------------------------------- */

/* The way chosen to a node, for the route with this number. */
struct way {
  int64_t route;
  int link; /* that comes to the node */
  double use;
};

/* Breadth-first search from one rank; links into each node are in the order of their numbers. */
struct search {
  const struct copse_topology *topology;
  const struct copse_hosts *hosts;
  int *width_of;                  /* [n_links] how many bandwidths are less, exactly */
  double *more;                   /* [n_links] 1 / bandwidth, by which a route raises `used` */
  struct copse_adjacency out, in; /* links by source, by destination */
  bool relays;                    /* no rank forwards */
  int *distance;                  /* [n_nodes] from the source: links */
  int *width;                     /* and the narrowest of them */
  int *best, *n_best; /* those of `in` that a widest shortest way to v may come over: best from
                         in.first[v] on, n_best[v] of them; of nodes that the search reached */
  struct copse_queue queue; /* [n_nodes] */
  double *used;       /* [n_links] routes over the link / its bandwidth */
  struct way *ways;   /* [n_nodes] */
  int64_t n_routes;
  char *done; /* [n_ranks] */
  struct copse_arena scratch;
};

static int by_bandwidth(const void *a, const void *b) {
  const struct copse_link *const *x = a, *const *y = b;
  return copse_q_cmp((*x)->bandwidth, (*y)->bandwidth);
}

static copse_status rank_widths(struct search *s, struct copse_err *err) {
  const struct copse_topology *t = s->topology;
  COPSE_AT_END(copse_free_at) const struct copse_link **sorted = NULL;
  COPSE_DO(copse_calloc((size_t)t->n_links, sizeof *sorted, &sorted, err));
  for (int i = 0; i < t->n_links; i++) sorted[i] = &t->links[i];
  COPSE_SORT(sorted, t->n_links, by_bandwidth);
  for (int i = 0, less = 0; i < t->n_links; i++) {
    less += i > 0 && by_bandwidth(&sorted[i - 1], &sorted[i]) < 0;
    s->width_of[sorted[i] - t->links] = less;
  }
  return COPSE_OK;
}

static copse_status search_start(struct search *s, struct copse_err *err) {
  const struct copse_topology *t = s->topology;
  size_t nodes = (size_t)t->n_nodes, links = (size_t)t->n_links;
  COPSE_DO(COPSE_ARRAYS(&s->scratch, links, int, err, &s->width_of, &s->best));
  COPSE_DO(copse_arena_array(&s->scratch, links, sizeof(double), &s->more, err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, nodes, int, err, &s->n_best, &s->distance, &s->width,
                        &s->queue.items));
  COPSE_DO(copse_arena_array(&s->scratch, links, sizeof(double), &s->used, err));
  COPSE_DO(copse_arena_array(&s->scratch, nodes, sizeof *s->ways, &s->ways, err));
  COPSE_DO(copse_adjacency_by(&s->scratch, t->n_nodes, t->n_links, COPSE_KEYS(t->links, src),
                              sizeof *t->links, &s->out, err));
  COPSE_DO(copse_adjacency_by(&s->scratch, t->n_nodes, t->n_links, COPSE_KEYS(t->links, dst),
                              sizeof *t->links, &s->in, err));
  COPSE_DO(copse_arena_array(&s->scratch, (size_t)t->n_ranks, 1, &s->done, err));
  for (size_t i = 0; i < links; i++) s->more[i] = 1 / copse_q_to_double(t->links[i].bandwidth);
  return rank_widths(s, err);
}

/* Returns the width of the way to v over this link, or -1 if that isn't a shortest way. */
static int width_over(const struct search *s, int v, int link) {
  int u = s->topology->links[link].src;
  if (s->distance[u] < 0 || s->distance[u] + 1 != s->distance[v]) return -1;
  if (s->relays && s->distance[u] > 0 && s->topology->nodes[u].rank >= 0) return -1;
  return s->width[u] < s->width_of[link] ? s->width[u] : s->width_of[link];
}

/* Finds the widest shortest ways to v. A prefix of such a way may be replaced by a wider shortest
 * one: so one pass over the nodes by distance finds the widths of all, and the links that such ways
 * come over. */
static void find_width(struct search *s, int v) {
  int first = s->in.first[v], n = 0;
  int widest = -1;
  for (int i = first; i < s->in.first[v + 1]; i++) {
    int width = width_over(s, v, s->in.item[i]);
    if (width < 0 || width < widest) continue;
    if (width > widest) n = 0;
    widest = width;
    s->best[first + n++] = s->in.item[i];
  }
  s->width[v] = widest;
  s->n_best[v] = n;
}

/* Returns by how much this route would raise the sum of all squared uses: the least over the
 * widest shortest ways to v, found backwards from v over what can lie on them. */
static double least_use(struct search *s, int v) {
  struct way *way = &s->ways[v];
  const int *best = s->best + s->in.first[v];
  if (s->distance[v] == 0) return 0;
  if (way->route == s->n_routes) return way->use;
  way->route = s->n_routes;
  way->link = -1;
  for (int i = 0; i < s->n_best[v]; i++) {
    int link = best[i];
    double more = s->more[link];
    double use = (2 * s->used[link] + more) * more + least_use(s, s->topology->links[link].src);
    if (way->link >= 0 && use >= way->use) continue;
    way->link = link;
    way->use = use;
  }
  return way->use;
}

/* Searches ways from a rank to all nodes, or with host >= 0 to those of that host alone; with
 * `relays` over relays alone. */
static void search_from(struct search *s, int rank, int host, bool relays) {
  const struct copse_topology *t = s->topology;
  int source = t->rank_nodes[rank];
  for (int v = 0; v < t->n_nodes; v++) s->distance[v] = -1;
  s->distance[source] = 0;
  s->relays = relays;
  s->width[source] = INT_MAX;
  copse_queue_reset(&s->queue);
  copse_queue_push(&s->queue, source);
  while (!copse_queue_is_empty(&s->queue)) {
    int u = copse_queue_pop(&s->queue);
    if (u != source) find_width(s, u);
    if (u != source && relays && t->nodes[u].rank >= 0) continue;
    for (int i = s->out.first[u]; i < s->out.first[u + 1]; i++) {
      int v = t->links[s->out.item[i]].dst;
      if (s->distance[v] >= 0 || (host >= 0 && s->hosts->of_node[v] != host)) continue;
      s->distance[v] = s->distance[u] + 1;
      copse_queue_push(&s->queue, v);
    }
  }
}

/* Counts the route's links as used once more (sign 1) or less (-1). */
static void count_route(struct search *s, const int *nodes, int n, int sign) {
  for (int i = 0; i + 1 < n; i++) {
    int link = copse_topology_find_link(s->topology, nodes[i], nodes[i + 1]);
    s->used[link] += sign * s->more[link];
  }
}

/* Sets the best route as things are; in a later pass instead of the one that the pair had. *only:
 * there is no other. */
static copse_status set_route(struct search *s, int src, int dst, int way, struct copse_routes *r,
                              bool *only, struct copse_err *err) {
  const struct copse_topology *t = s->topology;
  int v = t->rank_nodes[dst];
  size_t pair = ((size_t)src * (size_t)r->n_ranks + (size_t)dst) * (size_t)r->ways + (size_t)way;
  int n = s->distance[v] + 1;
  if (r->length[pair] == 0) {
    COPSE_DO(
        copse_grow(&r->nodes, &r->nodes_capacity, r->n_nodes + (size_t)n, sizeof *r->nodes, err));
    r->first[pair] = r->n_nodes;
    r->length[pair] = n;
    r->n_nodes += (size_t)n;
  } else {
    count_route(s, r->nodes + r->first[pair], n, -1);
  }
  int *nodes = r->nodes + r->first[pair];
  s->n_routes++;
  (void)least_use(s, v);
  for (int i = n - 1; i > 0; i--) {
    nodes[i] = v;
    v = t->links[s->ways[v].link].src;
  }
  nodes[0] = v;
  count_route(s, nodes, n, 1);
  *only = true;
  for (int i = 1; i < n; i++) *only = *only && s->n_best[nodes[i]] == 1;
  return COPSE_OK;
}

/* Sets all ways of a pair. Those that are one route are in the list once, and count as often. */
static copse_status set_ways(struct search *s, int src, int dst, struct copse_routes *r,
                             struct copse_err *err) {
  size_t pair = ((size_t)src * (size_t)r->n_ranks + (size_t)dst) * (size_t)r->ways;
  bool had = r->length[pair] > 0, only;
  if (had && r->ways > 1 && r->first[pair] == r->first[pair + 1]) return COPSE_OK;
  COPSE_DO(set_route(s, src, dst, 0, r, &only, err));
  for (int way = 1; way < r->ways && !only; way++) {
    bool ignored;
    COPSE_DO(set_route(s, src, dst, way, r, &ignored, err));
  }
  for (int way = 1; way < r->ways && only && !had; way++) {
    r->first[pair + (size_t)way] = r->first[pair];
    r->length[pair + (size_t)way] = r->length[pair];
    count_route(s, r->nodes + r->first[pair], r->length[pair], 1);
  }
  return COPSE_OK;
}

/* Sets the route that the topology states as all ways of a pair. */
static copse_status set_stated(struct search *s, const struct copse_stated_route *route,
                               struct copse_routes *r, struct copse_err *err) {
  size_t n = (size_t)route->n_nodes, ways = (size_t)r->ways;
  size_t pair = ((size_t)route->src * (size_t)r->n_ranks + (size_t)route->dst) * ways;
  if (r->length[pair] > 0) return COPSE_OK;
  COPSE_DO(copse_grow(&r->nodes, &r->nodes_capacity, r->n_nodes + n, sizeof *r->nodes, err));
  memcpy(r->nodes + r->n_nodes, route->nodes, n * sizeof *r->nodes);
  for (size_t way = 0; way < ways; way++) {
    r->first[pair + way] = r->n_nodes;
    r->length[pair + way] = route->n_nodes;
    count_route(s, route->nodes, route->n_nodes, 1);
  }
  r->n_nodes += n;
  return COPSE_OK;
}

/* Finds the routes of one source. First the routes that the topology states; then, where that makes
 * a difference (`relays`), routes over relays alone; then routes over ranks too. Of either kind
 * routes inside the source's host come first. */
static copse_status route_from(struct search *s, int src, bool relays, struct copse_routes *r,
                               struct copse_err *err) {
  const struct copse_topology *t = s->topology;
  int host = s->hosts->of_rank[src], left = t->n_ranks - 1;
  memset(s->done, 0, (size_t)t->n_ranks);
  for (int dst = 0; dst < t->n_ranks && t->n_routes > 0; dst++) {
    const struct copse_stated_route *route = copse_topology_route(t, src, dst);
    if (!route) continue;
    s->done[dst] = 1;
    left--;
    COPSE_DO(set_stated(s, route, r, err));
  }
  for (int pass = relays ? 0 : 2; pass < 4 && left > 0; pass++) {
    bool outside = pass % 2 != 0;
    search_from(s, src, outside ? -1 : host, pass < 2);
    for (int k = 1; k < t->n_ranks; k++) {
      int dst = (src + k) % t->n_ranks;
      if (s->done[dst] || s->distance[t->rank_nodes[dst]] < 0) continue;
      s->done[dst] = 1;
      left--;
      COPSE_DO(set_ways(s, src, dst, r, err));
    }
  }
  return COPSE_OK;
}

copse_status copse_routes_find(const struct copse_topology *topology,
                               const struct copse_hosts *hosts, int ways, bool relays,
                               struct copse_routes *routes, struct copse_err *err) {
  struct search s = {.topology = topology, .hosts = hosts};
  size_t pairs = (size_t)topology->n_ranks * (size_t)topology->n_ranks * (size_t)ways;
  copse_status status;
  *routes = (struct copse_routes){.n_ranks = topology->n_ranks, .ways = ways};
  COPSE_TRY(search_start(&s, err));
  COPSE_TRY(copse_calloc(pairs, sizeof *routes->first, &routes->first, err));
  COPSE_TRY(copse_calloc(pairs, sizeof *routes->length, &routes->length, err));
  for (int pass = 0; pass < (ways > 1 ? SPREAD_PASSES : ROUTE_PASSES); pass++)
    for (int src = 0; src < topology->n_ranks; src++)
      COPSE_TRY(route_from(&s, src, relays, routes, err));
out:
  copse_arena_free(&s.scratch);
  if (status != COPSE_OK) copse_routes_free(routes);
  return status;
}

copse_status copse_plan_routes_find(const struct copse_topology *topology,
                                    struct copse_routes *routes, struct copse_err *err) {
  struct copse_hosts hosts = {0};
  copse_status status = copse_hosts_find(topology, &hosts, err);
  if (status == COPSE_OK)
    status = copse_routes_find(topology, &hosts, ROUTE_WAYS, true, routes, err);
  copse_hosts_free(&hosts);
  return status;
}

/* ---- ways of a pair ----------------------------------------------------------------------- */

struct copse_way_finder {
  struct copse_hosts hosts;
  struct search inside, outside; /* within the source's host; everywhere */
  int sources[2];                /* the sources that these searches are of; -1: none yet */
  const int64_t *lengths;        /* at hand */
  int64_t *length;               /* [n_nodes] of the shortest way there */
  int *nodes;                    /* [n_nodes] a way */
  struct copse_arena arena;
};

copse_status copse_way_finder_new(const struct copse_topology *topology,
                                  struct copse_way_finder **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_way_finder *f = *out;
  f->inside = f->outside = (struct search){.topology = topology, .hosts = &f->hosts};
  f->sources[0] = f->sources[1] = -1;
  COPSE_DO(copse_hosts_find(topology, &f->hosts, err));
  COPSE_DO(search_start(&f->inside, err));
  COPSE_DO(search_start(&f->outside, err));
  COPSE_DO(COPSE_ARRAY(&f->arena, (size_t)topology->n_nodes, f->length, err));
  return COPSE_ARRAY(&f->arena, (size_t)topology->n_nodes, f->nodes, err);
}

void copse_way_finder_free(struct copse_way_finder *f) {
  if (!f) return;
  copse_hosts_free(&f->hosts);
  copse_arena_free(&f->inside.scratch);
  copse_arena_free(&f->outside.scratch);
  copse_arena_free(&f->arena);
  free(f);
}

/* Returns the search that has the pair's ways; NULL: there is none. */
static struct search *search_of(struct copse_way_finder *f, int src, int dst) {
  for (int outside = 0; outside < 2; outside++) {
    struct search *s = outside ? &f->outside : &f->inside;
    if (f->sources[outside] != src) search_from(s, src, outside ? -1 : f->hosts.of_rank[src], true);
    f->sources[outside] = src;
    if (s->distance[s->topology->rank_nodes[dst]] > 0) return s;
  }
  return NULL;
}

/* Walks backwards from v, each node once: s->ways has the link that it comes by. */
static int64_t least_length(struct copse_way_finder *f, struct search *s, int v) {
  struct way *way = &s->ways[v];
  if (s->distance[v] == 0) return 0;
  if (way->route == s->n_routes) return f->length[v];
  way->route = s->n_routes;
  for (int i = 0; i < s->n_best[v]; i++) {
    int link = s->best[s->in.first[v] + i];
    int64_t length = f->lengths[link] + least_length(f, s, s->topology->links[link].src);
    if (i > 0 && length >= f->length[v]) continue;
    f->length[v] = length;
    way->link = link;
  }
  return f->length[v];
}

static int64_t take_stated(struct copse_way_finder *f, const struct copse_stated_route *stated,
                           const int64_t *lengths, struct copse_way *way) {
  const int *nodes = stated->nodes;
  int64_t length = 0;
  for (int i = 0; i + 1 < stated->n_nodes; i++)
    length += lengths[copse_topology_find_link(f->inside.topology, nodes[i], nodes[i + 1])];
  if (way) *way = (struct copse_way){stated->src, stated->dst, stated->n_nodes, nodes};
  return length;
}

int64_t copse_way_shortest(struct copse_way_finder *f, int src, int dst, const int64_t *lengths,
                           struct copse_way *way) {
  const struct copse_stated_route *stated = copse_topology_route(f->inside.topology, src, dst);
  if (stated) return take_stated(f, stated, lengths, way);
  struct search *s = search_of(f, src, dst);
  if (!s) return -1;
  int v = s->topology->rank_nodes[dst];
  f->lengths = lengths;
  s->n_routes++;
  int64_t length = least_length(f, s, v);
  if (!way) return length;
  *way = (struct copse_way){src, dst, s->distance[v] + 1, f->nodes};
  for (int i = s->distance[v]; i > 0; i--) {
    f->nodes[i] = v;
    v = s->topology->links[s->ways[v].link].src;
  }
  f->nodes[0] = v;
  return length;
}

bool copse_way_is_one(struct copse_way_finder *f, const struct copse_way *way) {
  const struct copse_stated_route *stated =
      copse_topology_route(f->inside.topology, way->src, way->dst);
  if (stated)
    return stated->n_nodes == way->n_nodes &&
           memcmp(stated->nodes, way->nodes, (size_t)way->n_nodes * sizeof *way->nodes) == 0;
  const struct search *s = search_of(f, way->src, way->dst);
  if (!s || way->n_nodes != s->distance[s->topology->rank_nodes[way->dst]] + 1) return false;
  if (way->nodes[0] != s->topology->rank_nodes[way->src] ||
      way->nodes[way->n_nodes - 1] != s->topology->rank_nodes[way->dst])
    return false;
  for (int i = 1; i < way->n_nodes; i++) {
    int v = way->nodes[i], k = 0;
    const int *best = s->best + s->in.first[v];
    if (s->distance[v] != i) return false;
    while (k < s->n_best[v] && s->topology->links[best[k]].src != way->nodes[i - 1]) k++;
    if (k == s->n_best[v]) return false;
  }
  return true;
}

/* ---- routes taken one by one --------------------------------------------------------------- */

/* The load over bandwidth of a way's busiest link, and the sum over its links. */
struct way_load {
  double most, sum;
};

static struct way_load load_with(const struct copse_topology *t, const int64_t *load,
                                 const int *nodes, int n, int64_t amount) {
  struct way_load with = {0, 0};
  for (int i = 0; i + 1 < n; i++) {
    int link = copse_topology_find_link(t, nodes[i], nodes[i + 1]);
    double it = (double)(load[link] + amount) / copse_q_to_double(t->links[link].bandwidth);
    if (it > with.most) with.most = it;
    with.sum += it;
  }
  return with;
}

copse_status copse_route_require(const struct copse_topology *topology, int src, int dst, int n,
                                 struct copse_err *err) {
  if (n > 0 || src == dst) return COPSE_OK;
  return copse_topology_refuse_unreached(topology, NULL, topology->rank_nodes[src],
                                         topology->rank_nodes[dst], "", err);
}

bool copse_route_is_hop(const struct copse_topology *topology, const int *nodes, int n) {
  for (int i = 1; i + 1 < n; i++)
    if (topology->nodes[nodes[i]].rank >= 0) return false;
  return n >= 2;
}

const int *copse_route_take(const struct copse_topology *topology,
                            const struct copse_routes *routes, int src, int dst, int64_t amount,
                            int64_t *load, int *n) {
  struct way_load least = {0, 0};
  const int *nodes = copse_route(routes, src, dst, n), *first = nodes;
  for (int way = 1; way < routes->ways; way++) {
    const int *other = copse_route_way(routes, src, dst, way, n);
    if (other == first) break; /* there is no other */
    if (way == 1) least = load_with(topology, load, first, *n, amount);
    struct way_load with = load_with(topology, load, other, *n, amount);
    if (with.most > least.most || (with.most == least.most && with.sum >= least.sum)) continue;
    least = with;
    nodes = other;
  }
  for (int i = 0; i + 1 < *n; i++)
    load[copse_topology_find_link(topology, nodes[i], nodes[i + 1])] += amount;
  return nodes;
}

int copse_routes_count(const struct copse_routes *routes) {
  int n = 0;
  for (int pair = 0; pair < routes->n_ranks * routes->n_ranks; pair++)
    for (int way = 0; way < routes->ways; way++)
      n += way == 0 ||
           routes->first[pair * routes->ways + way] != routes->first[pair * routes->ways];
  return n;
}

void copse_routes_free(struct copse_routes *routes) {
  free(routes->first);
  free(routes->length);
  free(routes->nodes);
  *routes = (struct copse_routes){0};
}
