/*
 * Inside src/verify only: a topology read as NCCL reads it, for certificates of rings: hosts, GPUs,
 * NICs, and the one way between two of them (docs/nccl-rings.md). Written apart from src/nccl,
 * which the search goes by.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/graph.h"
#include "base/memory.h"
#include "topology/topology.h"

struct copse_verify_way {
  int type;             /* smaller is nearer, by NCCL's order of path types */
  struct copse_q width; /* GB/s of its narrowest link */
  int n;                /* links */
  int *links;
  struct copse_q *parts; /* of the data, on each: 1, but where equal ways share */
};

struct copse_verify_ways {
  const struct copse_topology *topology; /* borrowed */
  int n_hosts;
  int *host;             /* [n_nodes] -1: of the network */
  int *first_gpu, *gpus; /* nodes of host h's GPUs: gpus[first_gpu[h]], .. in order of ranks */
  int *first_nic, *nics; /* of its NICs with a cable */
  int *rail;             /* [NICs] those of one number reach each other over the network alone */
  bool *shared;          /* [NICs] every host has a NIC of this rail */
  int *local, *n_local;  /* [n_nodes] a node's place in its host; [n_hosts] nodes of a host */
  struct copse_adjacency inside;        /* links inside each host */
  struct copse_verify_source **sources; /* [n_nodes] */
  int **relays; /* [n_hosts] of each GPU to each NIC of its host: the GPU between, or -1 */
  struct copse_arena arena;
};

/* Prepares the search of ways. Free with copse_verify_ways_free, whatever the outcome.
 * COPSE_NOMEM. */
copse_status copse_verify_ways_open(const struct copse_topology *topology,
                                    struct copse_verify_ways *out,
                                    struct copse_err *err) COPSE_CHECKED;
static inline void copse_verify_ways_free(struct copse_verify_ways *ways) {
  copse_arena_free(&ways->arena);
  *ways = (struct copse_verify_ways){0};
}

/* Finds the way between two nodes of one host. `ways` owns *out. COPSE_REFUTED naming both without
 * one. */
copse_status copse_verify_find_way(struct copse_verify_ways *ways, int from, int to,
                                   const struct copse_verify_way **out,
                                   struct copse_err *err) COPSE_CHECKED;

/* Returns NCCL's number of the tray of an NVLink domain that a GPU or NIC of a host is in: between
 * a NIC and the GPUs of another tray NCCL has no way, not over a GPU either. */
static inline uint64_t copse_verify_tray(const struct copse_verify_ways *w, int node) {
  int host = w->host[node];
  for (int i = w->first_gpu[host]; i < w->first_gpu[host + 1]; i++)
    if (!w->topology->nodes[w->gpus[i]].has_dev) return 0;
  return w->topology->nodes[node].has_dev ? w->topology->nodes[node].dev >> 56 : 0;
}

/* Finds the way from a GPU out at a NIC, both nodes of one host: straight (*first is NULL), or over
 * the GPU that the NIC belongs to where that spares a CPU or is wider (PXN of NCCL 2.12). */
copse_status copse_verify_find_way_out(struct copse_verify_ways *ways, int gpu, int nic,
                                       const struct copse_verify_way **first,
                                       const struct copse_verify_way **last,
                                       struct copse_err *err) COPSE_CHECKED;

/* ---- the least length of an order of GPUs, for bounds of rings and chains (routes.c) ---- */

/* What is no step. */
#define COPSE_VERIFY_NO_STEP INT64_MAX
/* Lengths of steps at most, so that no sum overflows. */
#define COPSE_VERIFY_LONGEST_STEP ((int64_t)1 << 44)
/* GPUs for which all orders are searched, and at most. */
#define COPSE_VERIFY_ALL_ORDERS 16
#define COPSE_VERIFY_MOST_GPUS 256

struct copse_verify_orders {
  int n, n_ports;       /* ports: 0 for cycles and chains of one host */
  bool closed;          /* the last GPU goes to the first */
  bool same_port;       /* in and out (or at the second GPU) by one */
  const int64_t *move;  /* [n * n] */
  const int64_t *first; /* [n_ports * n] and what follows: added there; NULL: 0 */
  const int64_t *second, *last;
};

/*
 * Finds *least, than which no order is shorter. *all: it is the shortest of all orders; else of
 * all assignments of next GPUs (cycles that leave some out among them). COPSE_REFUTED where there
 * is no order; COPSE_NOMEM. O(2^n n^2) or O(n^4).
 */
copse_status copse_verify_least_order(const struct copse_verify_orders *orders, int64_t *least,
                                      bool *all, struct copse_err *err) COPSE_CHECKED;
