/* Inside the template solver: sets of nodes that are joined by faster links than those around. */
#ifndef COPSE_SOLVER_TREES_NESTED_CUTS_H
#define COPSE_SOLVER_TREES_NESTED_CUTS_H

#include "solver/trees/orbit_cuts.h"

/*
 * For every capacity the sets of nodes that links of more than it join: hosts, boards, pods, one
 * within the other. Listed are those that are entered over less than `narrow`, of more than one
 * and fewer than all terminals; of a set that holds `root` what is around it. No flow is asked:
 * they guide, and prove nothing.
 * Complexity: O((links + nodes) * sets that hold a node).
 */
copse_status copse_nested_cuts_find(const struct copse_network *network, const int64_t *capacities,
                                    int root, int64_t narrow, struct copse_template_cuts *out,
                                    struct copse_err *err) COPSE_CHECKED;

#endif
