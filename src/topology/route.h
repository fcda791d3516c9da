/* Hosts by name; the routes that hardware takes from rank to rank, which plans and baselines have.
 */
#pragma once

#include "base/memory.h"
#include "topology/topology.h"

/* Ranks by host: host h has the ranks members[first[h]] ... members[first[h + 1] - 1]. */
struct copse_hosts {
  int n_hosts;
  int *of_rank; /* [n_ranks] */
  int *place;   /* [n_ranks] position in its host */
  int *of_node; /* [n_nodes] host of a node with its prefix, -1: the fabric's */
  int *first;   /* [n_hosts + 1] */
  int *members; /* [n_ranks] */
  bool even;    /* all hosts have equally many ranks */
  struct copse_arena arena;
};

/* Labels each node by the first one of its prefix "hN." (copse_host_prefix), itself without one;
 * *all: every rank has one, and there are ranks. label [n_nodes]. Complexity O(nodes). COPSE_NOMEM.
 */
copse_status copse_hosts_label(const struct copse_topology *topology, int *label, bool *all,
                               struct copse_err *err) COPSE_CHECKED;
/* Numbers hosts by their first ranks; where not every rank has a prefix, all is one host. */
copse_status copse_hosts_find(const struct copse_topology *topology, struct copse_hosts *hosts,
                              struct copse_err *err) COPSE_CHECKED;
void copse_hosts_free(struct copse_hosts *hosts);

/*
 * Routes of ordered pairs of ranks, as topology nodes: that which the topology states, else see
 * baseline.h for which. `ways` of each pair, each for an equal part of its data: equal ones where
 * there is one route that is shortest and widest, else spread over such.
 */
struct copse_routes {
  int n_ranks, ways;
  size_t *first; /* [n_ranks * n_ranks * ways] into nodes */
  int *length; /* [n_ranks * n_ranks * ways] nodes of the route; 0: src is dst, or can't reach it */
  int *nodes;
  size_t n_nodes, nodes_capacity;
};

/* Finds the routes, with `relays` over relays alone where that is possible, as hardware goes; else
 * ranks on a route forward. A rank that another can't reach has no route from it. COPSE_NOMEM. */
copse_status copse_routes_find(const struct copse_topology *topology,
                               const struct copse_hosts *hosts, int ways, bool relays,
                               struct copse_routes *routes, struct copse_err *err) COPSE_CHECKED;
/* Finds those that a plan's messages take: in several ways, over relays. */
copse_status copse_plan_routes_find(const struct copse_topology *topology,
                                    struct copse_routes *routes,
                                    struct copse_err *err) COPSE_CHECKED;
/* Counts the different routes of all pairs. */
int copse_routes_count(const struct copse_routes *routes);
void copse_routes_free(struct copse_routes *routes);

/* One of the equally good routes of a pair: over relays alone, inside the host of both where there
 * is such a one, of the fewest links, of these the widest; where the topology states one, that. */
struct copse_way {
  int src, dst; /* ranks */
  int n_nodes;
  const int *nodes; /* [n_nodes] topology nodes, both ends included */
};
/* Asks for them one by one; fastest where all destinations of a source come in a row. */
struct copse_way_finder;
/* Makes a finder of ways; the caller frees *out in every case. COPSE_NOMEM. */
copse_status copse_way_finder_new(const struct copse_topology *topology,
                                  struct copse_way_finder **out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_way_finder_free(struct copse_way_finder *finder);
/* Finds the shortest way of a pair by lengths [n_links] >= 0, whose sums fit. Returns its length,
 * -1 where all routes have ranks on them. way may be NULL; its nodes last until the next call. */
int64_t copse_way_shortest(struct copse_way_finder *finder, int src, int dst,
                           const int64_t *lengths, struct copse_way *way);
bool copse_way_is_one(struct copse_way_finder *finder, const struct copse_way *way);

/* Returns a route's nodes, both ends included; *n of them. */
static inline const int *copse_route_way(const struct copse_routes *routes, int src, int dst,
                                         int way, int *n) {
  size_t pair =
      ((size_t)src * (size_t)routes->n_ranks + (size_t)dst) * (size_t)routes->ways + (size_t)way;
  *n = routes->length[pair];
  return routes->nodes + routes->first[pair];
}
/* Fails with COPSE_INFEASIBLE, naming both, where the route of two ranks has n = 0 nodes. */
copse_status copse_route_require(const struct copse_topology *topology, int src, int dst, int n,
                                 struct copse_err *err) COPSE_CHECKED;
/* Whether a route goes over relays alone. */
bool copse_route_is_hop(const struct copse_topology *topology, const int *nodes, int n);
/* Takes the one of a pair's ways whose busiest link has the least load after `amount` is added to
 * load [n_links]; of equal ones the way with the least load on all its links. Adds the amount. */
const int *copse_route_take(const struct copse_topology *topology,
                            const struct copse_routes *routes, int src, int dst, int64_t amount,
                            int64_t *load, int *n);
static inline const int *copse_route(const struct copse_routes *routes, int src, int dst, int *n) {
  return copse_route_way(routes, src, dst, 0, n);
}
