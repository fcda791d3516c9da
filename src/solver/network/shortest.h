/* Shortest ways from one node, exact in integers, fewest hops among equals. */
#pragma once

#include "solver/network/network.h"

/* Lengths may be up to this; a path has less than 4096 links. */
#define COPSE_LENGTH_MAX ((int64_t)1 << 36)

struct copse_shortest {
  const struct copse_network *network;
  struct copse_adjacency leaving; /* links by source */
  struct copse_nearest nearest;   /* hops in the low bits of distances */
  /* of the last run: */
  int *via;   /* [n_nodes] the link by which a node is reached, -1 at the source and unreached */
  int *order; /* [n_order] the nodes that were reached, nearest first */
  int n_order;
};

/* The arena owns the arrays. COPSE_NOMEM. */
copse_status copse_shortest_prepare(const struct copse_network *network, struct copse_arena *arena,
                                    struct copse_shortest *out,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * Dijkstra from `source` with lengths [n_links], 0..COPSE_LENGTH_MAX. blocked (may be NULL,
 * [n_nodes]): nodes that can be reached and not passed. Ties go to fewer hops, then to the
 * link that comes first, so the tree is deterministic.
 * Complexity: (links + nodes) log nodes.
 */
void copse_shortest_run(struct copse_shortest *shortest, int source, const int64_t *lengths,
                        const bool *blocked);

/* Of the last run: the length of the way to a node, -1 where there is none. */
int64_t copse_shortest_length(const struct copse_shortest *shortest, int node);
