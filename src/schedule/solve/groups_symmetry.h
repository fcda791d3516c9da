/* Inside src/schedule only: symmetries of a fabric that groups at work on it keep. */
#ifndef COPSE_SCHEDULE_SOLVE_GROUPS_SYMMETRY_H
#define COPSE_SCHEDULE_SOLVE_GROUPS_SYMMETRY_H

#include "schedule/groups.h"

/* An automorphism of the topology, and to which group it takes each: of the same collective, ranks
 * to its ranks, root to root. */
struct copse_groups_symmetry {
  int *nodes;  /* [n_nodes] images */
  int *groups; /* [n] */
};

/*
 * Generators of such symmetries, each checked; as many orbits of ranks become one as a search
 * without backtracking finds, so there may be more. Colour refinement on nodes and groups, then one
 * node after the other told apart on both sides until all are. The caller frees *out with
 * copse_groups_symmetries_free. Complexity: at most 100 candidates of O(ranks * (links + group
 * members)) each.
 */
copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_groups_symmetry **out, int *n_out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_groups_symmetries_free(struct copse_groups_symmetry *symmetries, int n);

#endif
