#include "topology/symmetry/symmetry.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_topology_is_automorphism(const struct copse_topology *topology, const int *image,
                                            bool *is, struct copse_err *err) {
  char *hit = NULL;
  copse_status status;
  *is = false;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, 1, &hit, err));
  for (int v = 0; v < topology->n_nodes; v++) {
    if (image[v] < 0 || image[v] >= topology->n_nodes || hit[image[v]]++) goto out;
    const struct copse_node *a = &topology->nodes[v], *b = &topology->nodes[image[v]];
    if ((a->rank >= 0) != (b->rank >= 0) || a->multicast != b->multicast ||
        a->aggregation != b->aggregation)
      goto out;
  }
  for (int e = 0; e < topology->n_links; e++) {
    const struct copse_link *link = &topology->links[e];
    int f = copse_topology_find_link(topology, image[link->src], image[link->dst]);
    if (f < 0 || !copse_q_eq(topology->links[f].bandwidth, link->bandwidth)) goto out;
  }
  *is = true; /* an injection of links into links of a finite graph is a bijection */
out:
  free(hit);
  return status;
}

void copse_symmetry_free(struct copse_symmetry *symmetry) {
  for (int g = 0; g < symmetry->n; g++) free(symmetry->generators[g].image);
  for (int g = 0; g < symmetry->n_others; g++) free(symmetry->others[g].image);
  free(symmetry->generators);
  free(symmetry->others);
  *symmetry = (struct copse_symmetry){.n_products = 1};
}
