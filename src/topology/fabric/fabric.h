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
#pragma once

#include "topology/topology.h"
#include "base/memory.h"

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
  long line;                        /* for messages */
  const struct copse_notes *notes; /* may be NULL */
};

/* `count` equal hosts. */
struct copse_host_group {
  struct copse_topology *host; /* borrowed */
  int count;
  struct copse_q bandwidth; /* of its NICs' cables; zero: the fabric's */
  const char *nics;         /* a pattern (fnmatch) of the ids that are on the fabric; NULL: all */
  const char **names;       /* [count] as a map has them, or NULL */
  long line;
};

/* What is left out of a fabric's description: no spine, no latency, one of everything. */
#define COPSE_FABRIC_DEFAULTS                                                          \
  .bandwidth = COPSE_Q_ZERO, .latency = COPSE_Q_ZERO, .spine_bandwidth = COPSE_Q_ZERO, \
  .oversubscription = COPSE_Q_ONE, .spines = 1, .router_hosts = 1, .global_links = 1

/* Adds the hosts "h0." ... and the fabric to the builder. The cables are in the host's nodes
 * of type "net", or where it has none, "nic".
 * Complexity O(nodes + links). */
copse_status copse_compose(struct copse_topology_builder *builder, const char *file,
                           const struct copse_fabric *fabric, const struct copse_host_group *groups,
                           int n_groups, struct copse_err *err) COPSE_CHECKED;

/* ---- a torus: the last dimension runs fastest -------------------------------------------- */

/*
 * Returns the neighbour one step up in dimension d, so that every link is named by one of its
 * ends; -1 in a dimension of one. In a dimension of two the steps up and down are two links beside
 * each other.
 */
int copse_torus_next(const int *dims, int n_dims, int at, int d);

/* Prints a node's coordinates, such as "0_3_1". */
void copse_torus_coordinates(const int *dims, int n_dims, int at, char *text, size_t size);

/* ---- a fabric as a file of another tool has it: ibnetdiscover, Slurm ------------------------ */

/* A host's end of a cable. */
struct copse_map_port {
  const char *host;   /* "node001" */
  const char *device; /* "mlx5_0"; "" where the file doesn't say: stands for all of the host */
  int sw;
  struct copse_q bandwidth; /* zero: the file doesn't say */
  long line;
};

/* A cable between two switches, once for both directions. */
struct copse_map_cable {
  int a, b;
  struct copse_q bandwidth; /* zero: the file doesn't say; then a is the lower of a tree */
};

struct copse_map_switch {
  const char *id; /* unique */
  long line;
  bool defined, child; /* of Slurm's: has a line of its own; is below another */
};

struct copse_fabric_map {
  struct copse_map_switch *switches;
  struct copse_map_port *ports; /* once sorted by host, its devices in natural order */
  struct copse_map_cable *cables;
  size_t switch_capacity, port_capacity, cable_capacity;
  int n_switches, n_ports, n_cables;
  struct copse_arena arena;
};

copse_status copse_fabric_map_add_port(struct copse_fabric_map *map, struct copse_map_port port,
                                       struct copse_err *err) COPSE_CHECKED;
copse_status copse_fabric_map_add_cable(struct copse_fabric_map *map, struct copse_map_cable cable,
                                        struct copse_err *err) COPSE_CHECKED;
static inline void copse_fabric_map_free(struct copse_fabric_map *map) {
  copse_arena_free(&map->arena);
  *map = (struct copse_fabric_map){0};
}

void copse_fabric_map_sort(struct copse_fabric_map *map);

/* Reads the output of `ibnetdiscover`. Speeds are per cable, data rates: 4xHDR is 25 GB/s. */
copse_status copse_read_ibnetdiscover(const char *file, const char *data, size_t size,
                                      struct copse_fabric_map *map,
                                      struct copse_err *err) COPSE_CHECKED;

/* Reads Slurm's topology.conf of the tree plugin; it has no speeds to go by. */
copse_status copse_read_slurm(const char *file, const char *data, size_t size,
                              const struct copse_notes *notes, struct copse_fabric_map *map,
                              struct copse_err *err) COPSE_CHECKED;

/* Calls `each` for every name of a Slurm host list: "a1,b[01-03,7]c[0-1]". At most `limit`
 * names. `where` of COPSE_BAD_INPUT is file and line. */
copse_status copse_hostlist(const char *file, long line, const char *text, int limit,
                            copse_status (*each)(void *ctx, const char *name), void *ctx,
                            struct copse_err *err) COPSE_CHECKED;
