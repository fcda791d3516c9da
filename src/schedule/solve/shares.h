/*
 * Inside src/schedule only: an allreduce whose roots have unequal shares, or whose phases share out
 * the links unequally.
 */
#ifndef COPSE_SCHEDULE_SOLVE_SHARES_H
#define COPSE_SCHEDULE_SOLVE_SHARES_H

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/joint/joint.h"

/* A node set of the proof, each of its images one by one. */
struct copse_shares_cut {
  bool reduce; /* counts what enters S in the reduction; else what leaves S in the broadcast */
  struct copse_q weight; /* > 0; around each rank they add up to 1 or more */
  const bool *inside;    /* [n_nodes] */
};

/*
 * rate: the largest sum of shares per unit of time. The integers are the solution in whole units:
 * the share of rank i is weights[i] / whole, and on link e the broadcast may take broadcast[e], the
 * reduction reduce[e] units while `whole` units go round. Both are balanced at every relay. With p
 * for the potentials and Y_e (Z_e) for the weight of the broadcast (reduce) cuts that e leaves
 * (enters), rate = sum_e capacity[e] * max(Z_e, Y_e - (p[dst] - p[src])), and none is larger.
 */
struct copse_shares {
  enum copse_joint_outcome outcome; /* PROVED, NOT_BETTER, TOO_LARGE or UNPROVED */
  struct copse_q rate;
  int64_t whole;
  const int64_t *weights;            /* [n_terminals] */
  const int64_t *broadcast, *reduce; /* [n_links] */
  int n_cuts;
  const struct copse_shares_cut *cuts;
  const struct copse_q *potentials; /* [n_nodes], 0 for terminals */
  struct copse_arena arena;
};

struct copse_shares_options {
  struct copse_q at_least; /* a rate that is known to be possible; 0/1: none */
  int max_columns;        /* kinds of ranks and links, or where all count one by one their number */
  bool symmetric;         /* makes one of ranks and links that symmetries map to each other; their
                             shares are the same then */
  const bool *unbalanced; /* NULL, or [n_nodes] relays that need not be balanced, as
                             copse_mark_unbalanced has them; then the rate and its proof are all
                             there is of the result */
  const struct copse_progress *progress;
};

/*
 * The best shares by a linear programme (solver/joint/joint.h). Of all optimal ones it takes those
 * of which the largest is within a factor of two of the least possible, where the simplex method
 * finds them: they make more, but lower trees. `instance` is the topology's, all ranks roots.
 *
 * COPSE_JOINT_TOO_LARGE also where `symmetric` finds no symmetries, or too many images of cuts. The
 * caller frees *out in every case. COPSE_NOMEM; COPSE_OVERFLOW where capacities leave 61 bits.
 */
copse_status copse_shares_find(const struct copse_topology *topology,
                               const struct copse_instance *instance,
                               const struct copse_shares_options *options, struct copse_shares *out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_shares_free(struct copse_shares *shares);

/* Symmetries of the topology with all ranks alike; copse_groups_symmetries says more. */
copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_permutation **out, int *n_out,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * The best shares and the time T/M that they reach, by symmetries if there are any. at_most: a time
 * that equal shares reach; with `only_faster` the search ends as soon as nothing faster is
 * possible. *shares is freed by the caller in every case; unless its outcome is COPSE_JOINT_PROVED,
 * *time means nothing. options->notes hears where they were not looked for or can't be stated.
 */
copse_status copse_free_shares_find(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/* Says to options->notes that shares of this time are left alone, with more ranks than that. */
void copse_free_shares_note(const struct copse_solve_options *options, struct copse_q time);

/* What one phase has to pack: its roots with their shares, weights [n_terminals], and its part of
 * the links, capacities [n_links]. The same terminals as `instance`, whose topology is borrowed. */
copse_status copse_free_shares_instance(const struct copse_instance *instance,
                                        const int64_t *weights, const int64_t *capacities,
                                        bool reduce, struct copse_instance *out,
                                        struct copse_err *err) COPSE_CHECKED;

/* COPSE_BOUND_FORESTS, from the solver's proof. */
copse_status copse_free_shares_bound(const struct copse_topology *topology,
                                     const struct copse_shares *shares, struct copse_q time,
                                     struct copse_schedule *schedule,
                                     struct copse_err *err) COPSE_CHECKED;

#endif
