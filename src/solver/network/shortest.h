/*
 * Shortest ways from one node, exact in integers, fewest hops among equals.
 */
#ifndef COPSE_SOLVER_NETWORK_SHORTEST_H
#define COPSE_SOLVER_NETWORK_SHORTEST_H

#include "solver/network/network.h"

struct copse_shortest;

/* Lengths may be up to this; a path has less than 4096 links. */
#define COPSE_LENGTH_MAX ((int64_t)1 << 36)

copse_status copse_shortest_new(const struct copse_network *network, struct copse_shortest **out,
                                struct copse_err *err) COPSE_CHECKED;
void copse_shortest_free(struct copse_shortest *shortest);

/*
 * Dijkstra from `source` with lengths [n_links], 0..COPSE_LENGTH_MAX. blocked (may be NULL,
 * [n_nodes]): nodes that can be reached and not passed. Ties go to fewer hops, then to the
 * link that comes first, so the tree is deterministic.
 * Complexity: (links + nodes) log nodes.
 */
void copse_shortest_run(struct copse_shortest *shortest, int source, const int64_t *lengths,
                        const bool *blocked);

/* Of the last run: the link by which a node is reached, -1 at the source and unreached. */
int copse_shortest_link(const struct copse_shortest *shortest, int node);
/* The length of the way to a node, -1 where there is none. */
int64_t copse_shortest_length(const struct copse_shortest *shortest, int node);
/* The nodes that were reached, nearest first; n of them. */
const int *copse_shortest_order(const struct copse_shortest *shortest, int *n);

#endif
