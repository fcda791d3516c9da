/*
 * What joint optima of groups are compared with: LPs on GLPK that are written down whole. Shares no
 * code with src/solver.
 */
#ifndef COPSE_TESTS_ORACLE_GROUPS_H
#define COPSE_TESTS_ORACLE_GROUPS_H

#include "solver/joint/joint.h"

/*
 * The largest common rate of the groups, to about 1e-8 relative, where a phase has at most the part
 * `most` of each link, 0 < most <= 1. `all_cuts`: a row for every node
 * set and phase (at most 10 nodes); else a flow variable per link, phase and member that must be
 * served, without any cut.
 */
double copse_test_lp_groups_rate(const struct copse_network *network,
                                 const struct copse_joint_group *groups, int n_groups, double most,
                                 bool all_cuts);

/*
 * What is wrong with a proved result, or NULL: links that take more than they have, relays out of
 * balance, a cut of a phase that its part breaks (every cut is looked at: at most 16 nodes), and a
 * proof that does not come to the rate. What links take and what is proved may be off by one part in
 * `within`; 0: not at all.
 */
const char *copse_test_joint_defect(const struct copse_network *network,
                                    const struct copse_joint_group *groups, int n_groups,
                                    const struct copse_joint *joint, long within);

#endif
