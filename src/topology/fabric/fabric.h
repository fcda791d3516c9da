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

#include "topology/fabric/map.h"
#include "topology/builder.h"

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

/* ---- between compose.c and the kinds of fabrics --------------------------------------- */

/* The fabric's end of a host. */
struct copse_port {
  int node, host;
  int place; /* the how manyth NIC of its host */
  struct copse_q bandwidth;
  const char *id; /* in its host */
};

struct copse_composer {
  struct copse_topology_builder *builder;
  const char *file;
  const struct copse_fabric *fabric;
  const struct copse_host_group *groups;
  struct copse_err *err;
  int n_groups, n_hosts;
  struct copse_port *ports; /* [n_ports] by host, then place */
  int n_ports, n_places;    /* places: the most NICs of a host */
};

copse_status copse_fabric_add_switch(const struct copse_composer *c, int *index, const char *fmt,
                                     ...) COPSE_CHECKED __attribute__((format(printf, 3, 4)));
copse_status copse_fabric_join(const struct copse_composer *c, int a, int b,
                               struct copse_q bandwidth) COPSE_CHECKED;
/* The cable of a port. */
copse_status copse_fabric_plug(const struct copse_composer *c, const struct copse_port *port,
                               int to) COPSE_CHECKED;
/* Refuses more than the limits of a topology, before anything of that size is made. */
copse_status copse_fabric_check_size(const struct copse_composer *c, int64_t nodes,
                                     int64_t links) COPSE_CHECKED;

copse_status copse_fabric_add_flat(const struct copse_composer *c) COPSE_CHECKED;
copse_status copse_fabric_add_rails(const struct copse_composer *c) COPSE_CHECKED;
copse_status copse_fabric_add_clos(const struct copse_composer *c) COPSE_CHECKED;
copse_status copse_fabric_add_dragonfly(const struct copse_composer *c) COPSE_CHECKED;
copse_status copse_fabric_add_torus(const struct copse_composer *c) COPSE_CHECKED;
copse_status copse_fabric_add_map(const struct copse_composer *c) COPSE_CHECKED;

#endif
