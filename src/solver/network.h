/*
 * What the solver works on: a directed graph with integer capacities, nothing of GPUs.
 * Terminals must all receive every root's data; other nodes are relays that only forward.
 */
#ifndef COPSE_SOLVER_NETWORK_H
#define COPSE_SOLVER_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct copse_net_link {
  int src, dst;
  int64_t capacity; /* > 0 */
};

/* A root and its share of the data, relative to the sum over roots. */
struct copse_net_root {
  int node;
  int64_t weight; /* > 0 */
};

struct copse_network {
  int n_nodes, n_links, n_terminals, n_roots;
  const struct copse_net_link *links; /* [n_links], at most one per ordered pair */
  const int *terminals;               /* [n_terminals] node indices */
  const struct copse_net_root *roots; /* [n_roots] terminals, each at most once */
};

/* Told now and then during long work; NULL function: nobody listens. */
struct copse_progress {
  void (*report)(void *ctx, const char *phase, int64_t done, int64_t total);
  void *ctx;
};
static inline void copse_progress_report(const struct copse_progress *progress, const char *phase,
                                         int64_t done, int64_t total) {
  if (progress && progress->report) progress->report(progress->ctx, phase, done, total);
}

#endif
