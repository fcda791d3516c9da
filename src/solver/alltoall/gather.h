/* What several sources send to one sink, as paths within given capacities. */
#pragma once

#include "base/memory.h"
#include "solver/network/network.h"

struct copse_gather_path {
  int source; /* index into the sources */
  int64_t amount;
  const int *nodes; /* [n_nodes] from the source to the sink, none twice */
  int n_nodes;
};

/*
 * `amount` from every source to the sink, where capacities [n_links] carry it: a maximum flow by
 * shortest augmenting paths (Edmonds and Karp, 1972), taken apart. Paths come by source, in the
 * arena; the caller frees *out [*n] in every case. COPSE_INTERNAL where the capacities don't carry
 * it.
 */
copse_status copse_gather_paths(const struct copse_network *network, const int64_t *capacities,
                                const int *sources, int n_sources, int64_t amount, int sink,
                                struct copse_arena *arena, struct copse_gather_path **out,
                                size_t *n, struct copse_err *err) COPSE_CHECKED;
