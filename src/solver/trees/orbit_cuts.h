/* Inside the template solver: tight cuts and all of their images. */
#ifndef COPSE_SOLVER_TREES_ORBIT_CUTS_H
#define COPSE_SOLVER_TREES_ORBIT_CUTS_H

#include <stddef.h>

#include "solver/trees/orbit_trees.h"

/* By node: the cuts that hold it, cuts[first[v]] .. cuts[first[v + 1] - 1]. */
struct copse_template_cuts {
  int n;
  int *first; /* [n_nodes + 1] */
  int *cuts;
};

/*
 * The cuts nearest to `sinks` that are as wide as what must enter them, of more than one and
 * fewer than all terminals, with their images. Those with too many nodes for all images to be
 * listed are left out: the cuts guide, they prove nothing.
 */
copse_status copse_template_cuts_find(const struct copse_network *network,
                                      const int64_t *capacities, int64_t k,
                                      const struct copse_network_symmetry *symmetry,
                                      const int *sinks, int n_sinks,
                                      struct copse_template_cuts *out,
                                      struct copse_err *err) COPSE_CHECKED;
struct copse_template_member {
  int node, cut;
};
/* From a list of who is in which cut, node by node or cut by cut. */
copse_status copse_template_cuts_list(int n_nodes, const struct copse_template_member *members,
                                      size_t n_members, int n_cuts, struct copse_template_cuts *out,
                                      struct copse_err *err) COPSE_CHECKED;
void copse_template_cuts_free(struct copse_template_cuts *cuts);

bool copse_template_cuts_hold(const struct copse_template_cuts *cuts, int cut, int node);

#endif
