/*
 * Inside src/schedule/solve only: an allreduce whose roots have unequal shares, or whose phases
 * share out the links unequally.
 */
#pragma once

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/joint/joint.h"

/*
 * The joint optimum of one group of all ranks, `rate` the largest sum of shares per unit of time,
 * and what proves it: cuts, each of their images one by one, of which the weights around each rank
 * add up to 1 or more. With p for the potentials and Y_e (Z_e) for the weight of the broadcast
 * (reduce) cuts that e leaves (enters), rate = sum_e capacity[e] * max(Z_e, Y_e - (p[dst] -
 * p[src])), and none is larger.
 */
struct copse_shares {
  enum copse_joint_outcome outcome; /* PROVED, NOT_BETTER, TOO_LARGE or UNPROVED */
  struct copse_q rate;
  const struct copse_joint_part *part; /* of the links; NULL where relays need no balance */
  int n_cuts;
  struct copse_joint_cut *cuts;
  struct copse_q *potentials;     /* [n_nodes], 0 for terminals */
  struct copse_joint joint, even; /* as first found; with smaller largest shares */
  struct copse_arena arena;
};

/*
 * The best shares by a linear programme (solver/joint/joint.h): by symmetries if there are any,
 * which make one of ranks and links that they map to each other (their shares are the same then),
 * else one by one. Of all optimal ones it takes those of which the largest is within a factor of
 * two of the least possible, where the simplex method finds them: they make more, but lower trees.
 * `instance` is the topology's, all ranks roots. at_least: a rate that is known to be possible;
 * 0/1: none. unbalanced: NULL, or [n_nodes] relays that need not be balanced, as
 * copse_mark_unbalanced has them; then the rate and its proof are all there is of the result.
 *
 * COPSE_JOINT_TOO_LARGE beyond the columns of policy.h, and of images of cuts. The caller frees
 * *out in every case. COPSE_NOMEM; COPSE_OVERFLOW where capacities leave 61 bits.
 */
copse_status copse_shares_find(const struct copse_topology *topology,
                               const struct copse_solve_options *options,
                               const struct copse_instance *instance, struct copse_q at_least,
                               const bool *unbalanced, struct copse_shares *out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_shares_free(struct copse_shares *shares);

/*
 * The best shares and the time T/M that they reach. at_most: a time that equal shares reach; with
 * `only_faster` the search ends as soon as nothing faster is possible. *shares is freed by the
 * caller in every case; unless its outcome is COPSE_JOINT_PROVED, *time means nothing.
 * options->notes hears where they were not looked for or can't be stated.
 */
copse_status copse_shares_find_time(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/* COPSE_BOUND_FORESTS, from the solver's proof. */
copse_status copse_shares_bound(const struct copse_topology *topology,
                                const struct copse_shares *shares, struct copse_q time,
                                struct copse_schedule *schedule,
                                struct copse_err *err) COPSE_CHECKED;
