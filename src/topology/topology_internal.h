/* Inside src/topology only: what stands behind the public struct copse_topology. */
#ifndef COPSE_TOPOLOGY_TOPOLOGY_INTERNAL_H
#define COPSE_TOPOLOGY_TOPOLOGY_INTERNAL_H

#include "base/memory.h"
#include "base/index_map.h"
#include "topology/topology.h"

/* `view` comes first: a pointer to it is a pointer to the whole. */
struct copse_topology_box {
  struct copse_topology view;
  struct copse_node *nodes;
  struct copse_link *links;
  int *rank_nodes;
  int *sorted_links; /* [n_links] link indices by (src, dst) */
  int *sorted_dsts;  /* [n_links] where those go */
  int *first_sorted; /* [n_nodes + 1] into both: the first one that leaves each node */
  struct copse_index_map ids;
  struct copse_arena arena; /* the strings */
};

static inline const struct copse_topology_box *copse_topology_box_of(
    const struct copse_topology *topology) {
  return (const struct copse_topology_box *)topology;
}

/* Orders link indices by (src, dst): the order of sorted_links. */
int copse_topology_compare_links(const struct copse_link *a, const struct copse_link *b);

#endif
