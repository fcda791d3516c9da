/*
 * Inside src/topology only: hosts on a fabric. What cluster JSON, synthetic one-liners and
 * fabric files describe, and how it becomes a topology.
 *
 *   flat       every NIC on one non-blocking switch
 *   rails      NIC i of every host on rail switch i; with a spine bandwidth, rails on a spine
 *   clos       so many hosts on a leaf (with `rails`: a leaf for each NIC's place); what a leaf
 *              takes in, divided by the oversubscription, goes to the spines in equal parts
 *   dragonfly  hosts on routers; a group's routers all joined, and every two groups by the
 *              same number of links, spread over their routers
 *   torus      hosts on routers, those in a grid that closes in every direction
 *   map        switches and cables as a fabric file has them
 */
#ifndef COPSE_TOPOLOGY_FABRIC_FABRIC_H
#define COPSE_TOPOLOGY_FABRIC_FABRIC_H

#include <stddef.h>

#include "topology/builder.h"
#include "topology/fabric/map.h"

#define COPSE_MAX_DIMENSIONS 8

enum copse_fabric_type {
  COPSE_FABRIC_FLAT,
  COPSE_FABRIC_RAILS,
  COPSE_FABRIC_CLOS,
  COPSE_FABRIC_DRAGONFLY,
  COPSE_FABRIC_TORUS,
  COPSE_FABRIC_MAP
};

/* Bandwidths are per direction, of one cable; zero: none. */
struct copse_fabric {
  enum copse_fabric_type type;
  struct copse_q bandwidth, latency; /* a NIC's cable; the latency is every cable's */
  struct copse_q spine_bandwidth;    /* rails */
  int leaf_hosts, spines;            /* clos */
  bool leaf_rails;
  struct copse_q oversubscription; /* clos, and a map without speeds: to 1 */
  int router_hosts;                /* dragonfly, torus */
  int group_routers, global_links; /* dragonfly; links between every two groups */
  struct copse_q local_bandwidth, global_bandwidth;
  int dims[COPSE_MAX_DIMENSIONS], n_dims; /* torus */
  struct copse_q link_bandwidth;
  const struct copse_fabric_map *map;
  long line; /* for messages */
};

/* `count` equal hosts. */
struct copse_host_group {
  struct copse_topology *host; /* borrowed */
  int count;
  struct copse_q bandwidth; /* of its NICs' cables; zero: the fabric's */
  const char *nics;         /* a pattern (fnmatch) of the ids that are on the fabric; NULL: all */
  const char **names;       /* [count] as a map knows them, or NULL */
  long line;
};

/* The "fabric" of a cluster's root; *map gets the file's where it names one. */
copse_status copse_read_fabric(const struct copse_json *json, const cJSON *root,
                               const struct copse_notes *notes, struct copse_fabric *fabric,
                               struct copse_fabric_map *map, struct copse_err *err) COPSE_CHECKED;

/*
 * Adds the hosts "h0." ... and the fabric to the builder. The cables are in the host's nodes
 * of type "net", or where it has none, "nic".
 * Complexity O(nodes + links).
 */
copse_status copse_compose(struct copse_topology_builder *builder, const char *file,
                           const struct copse_fabric *fabric, const struct copse_host_group *groups,
                           int n_groups, struct copse_err *err) COPSE_CHECKED;

/* ---- a torus: the last dimension runs fastest -------------------------------------------- */

/*
 * The neighbour one step up in dimension d, so that every link is named by one of its ends; -1 in
 * a dimension of one. In a dimension of two the steps up and down are two links beside each other.
 */
int copse_torus_next(const int *dims, int n_dims, int at, int d);

/* "0_3_1". */
void copse_torus_coordinates(const int *dims, int n_dims, int at, char *text, size_t size);

#endif
