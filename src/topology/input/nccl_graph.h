/*
 * Inside src/topology only: all that an NCCL dump holds, as a graph of typed nodes and
 * links, before a link mode picks what the topology keeps of it.
 */
#pragma once

#include <stdint.h>

#include "base/graph.h"
#include "base/memory.h"
#include "topology/topology.h"

enum copse_nccl_node_kind {
  COPSE_NCCL_GPU,
  COPSE_NCCL_NVSWITCH,
  COPSE_NCCL_BRIDGE,
  COPSE_NCCL_CPU,
  COPSE_NCCL_NIC,
  COPSE_NCCL_NET_PORT
};

enum copse_nccl_link_kind {
  COPSE_NCCL_NVLINK, /* NVLink or xGMI */
  COPSE_NCCL_PCI,
  COPSE_NCCL_SYS, /* between CPUs */
  COPSE_NCCL_NET,
  COPSE_NCCL_LINK_KINDS
};

#define COPSE_NCCL_ALL_HOSTS (-1)

struct copse_nccl_node {
  enum copse_nccl_node_kind kind;
  const char *id; /* unique */
  int host;       /* or COPSE_NCCL_ALL_HOSTS: the NVSwitch of a domain */
  int rank;       /* as the file says, -1 if it doesn't */
  int repeats;    /* how many more nodes wanted this id */
  bool has_dev;
  uint64_t dev; /* as a topology's nodes have it, like sm */
  int sm;
  bool no_gdr;
  long line;
  bool keep;
};

struct copse_nccl_link {
  enum copse_nccl_link_kind kind;
  int src, dst;
  struct copse_q bandwidth;
  long line;
  bool keep;
  enum copse_guess guess;
};

struct copse_nccl_graph {
  const char *file;
  const char *description, *source; /* as the topology has them; may be NULL */
  const struct copse_notes *notes;
  int n_notes;
  struct copse_nccl_node *nodes;
  struct copse_nccl_link *links;
  size_t node_capacity, link_capacity;
  int n_nodes, n_links, n_hosts;
  struct copse_index_map ids;
  struct copse_arena arena;
};

void copse_nccl_graph_free(struct copse_nccl_graph *graph);

/* Adds a node without a rank; its id is `id`, with ".1", ".2".. behind it where that is taken.
 * *index gets its number. */
copse_status copse_nccl_add_node(struct copse_nccl_graph *graph, enum copse_nccl_node_kind kind,
                                 int host, const char *id, long line, int *index,
                                 struct copse_err *err) COPSE_CHECKED;
/* Returns the type of such a node in a topology: "gpu", "pcie". */
const char *copse_nccl_type_name(enum copse_nccl_node_kind kind);

copse_status copse_nccl_add_link(struct copse_nccl_graph *graph, enum copse_nccl_link_kind kind,
                                 int src, int dst, struct copse_q bandwidth, long line,
                                 struct copse_err *err) COPSE_CHECKED;
/* Adds the same in both directions. */
copse_status copse_nccl_add_duplex(struct copse_nccl_graph *graph, enum copse_nccl_link_kind kind,
                                   int a, int b, struct copse_q bandwidth, long line,
                                   struct copse_err *err) COPSE_CHECKED;

/* Says of the last n links that were added what their bandwidth rests on. */
void copse_nccl_guess(struct copse_nccl_graph *graph, int n, enum copse_guess guess);

/* Notes a remark about a line; of very many, the first ones and their number. */
void copse_nccl_note(struct copse_nccl_graph *graph, long line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes the topology of what `mode` keeps, its ranks numbered. Complexity O(nodes + links). */
copse_status copse_nccl_build(struct copse_nccl_graph *graph, enum copse_link_mode mode,
                              struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
