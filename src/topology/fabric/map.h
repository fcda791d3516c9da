/*
 * Inside src/topology only: a fabric as a file of another tool describes it: the output of
 * ibnetdiscover, or Slurm's topology.conf.
 */
#ifndef COPSE_TOPOLOGY_FABRIC_MAP_H
#define COPSE_TOPOLOGY_FABRIC_MAP_H

#include "base/memory.h"
#include "base/rational.h"

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
};

struct copse_fabric_map {
  struct copse_map_switch *switches;
  struct copse_map_port *ports; /* once sorted by host, its devices in natural order */
  struct copse_map_cable *cables;
  size_t switch_capacity, port_capacity, cable_capacity;
  int n_switches, n_ports, n_cables;
  struct copse_arena arena;
};

void copse_fabric_map_free(struct copse_fabric_map *map);
void copse_fabric_map_sort(struct copse_fabric_map *map);

/* The output of `ibnetdiscover`. Speeds are per cable, data rates: 4xHDR is 25 GB/s. */
copse_status copse_read_ibnetdiscover(const char *file, const char *data, size_t size,
                                      struct copse_fabric_map *map,
                                      struct copse_err *err) COPSE_CHECKED;

/* Slurm's topology.conf of the tree plugin; it has no speeds to go by. */
copse_status copse_read_slurm(const char *file, const char *data, size_t size,
                              const struct copse_notes *notes, struct copse_fabric_map *map,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * Calls `each` for every name of a Slurm host list: "a1,b[01-03,7]c[0-1]". At most `limit`
 * names. `where` of COPSE_BAD_INPUT is file and line.
 */
copse_status copse_hostlist(const char *file, long line, const char *text, int limit,
                            copse_status (*each)(void *ctx, const char *name), void *ctx,
                            struct copse_err *err) COPSE_CHECKED;

#endif
