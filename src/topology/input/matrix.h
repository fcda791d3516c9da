/*
 * Inside src/topology only: from what devices say of each other in a connection matrix to the
 * graph of a host, which then goes the way of NCCL's dumps (nccl_graph.h).
 */
#ifndef COPSE_TOPOLOGY_INPUT_MATRIX_H
#define COPSE_TOPOLOGY_INPUT_MATRIX_H

#include "topology/input/nccl_bandwidth.h"
#include "topology/input/nccl_graph.h"

#define COPSE_MATRIX_MAX 1024

/* How near two devices are, by what lies between them. */
enum copse_near {
  COPSE_NEAR_UNKNOWN,
  COPSE_NEAR_PIX,  /* at most one PCIe bridge */
  COPSE_NEAR_PXB,  /* several bridges */
  COPSE_NEAR_NODE, /* the CPU of one NUMA node */
  COPSE_NEAR_SYS   /* different CPUs */
};

struct copse_matrix_device {
  const char *id;
  bool gpu;
  const char *affinity; /* equal texts: at the same CPU; NULL: unknown */
  long line;
};

/* One pair's links, if any: `links` between them, or (a row's largest) to a switch. */
struct copse_matrix_cell {
  enum copse_near near;
  int links;
  struct copse_q bandwidth; /* of all of them; zero: links times the rate */
};

struct copse_matrix {
  const char *file;
  struct copse_matrix_device *devices; /* [n] */
  struct copse_matrix_cell *cells;     /* [n * n], both halves */
  int n;
};

/*
 * The topology of the matrix at these rates. GPUs with more links in sum than one of them has
 * are on an NVSwitch. Complexity O(n^2).
 */
copse_status copse_matrix_build(const struct copse_matrix *matrix,
                                const struct copse_matrix_rates *rates,
                                const struct copse_topology_options *options,
                                struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* The most links of a GPU in sum, and the most of a pair. */
void copse_matrix_count_links(const struct copse_matrix *matrix, int *sum, int *pair);

#endif
