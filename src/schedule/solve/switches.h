/*
 * Inside src/schedule only: the part of copse_solve_schedule that uses switches which copy
 * (multicast, as NVLink SHARP does) or add (aggregation, InfiniBand SHARP).
 */
#pragma once

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/joint/joint.h"

/* Whether any switch is marked. */
bool copse_has_clever_switch(const struct copse_topology *topology);

/* Sets unbalanced [n_nodes]: relays where loads that count once need not balance: marked switches
 * and their neighbours. */
void copse_mark_unbalanced(const struct copse_topology *topology, bool *unbalanced);

/*
 * Solves by the model of docs/theory.md: a broadcast tree loads a link into a multicast switch
 * once, whatever goes out of the switch; a reduce tree loads a link out of an aggregation switch
 * once.
 *
 * What that changes. A tree still loads at least one link out of every node set that holds its
 * root and misses a rank, so the cut bounds hold as they are, and trees that no switch copies for
 * reach them (Edmonds): no collective of one phase gets faster. An allreduce does. Its reduce
 * trees load links towards switches that add, its broadcast trees links away from switches that
 * copy, and the other direction only once: N GPUs of bandwidth b at one switch need M / b, where
 * without it each direction carries (N-1)/N M twice. That is optimal: M must leave every GPU in
 * any allreduce.
 *
 * How. A switch that copies is a node that a tree may branch at. Trees that span the ranks and a
 * given set Q of such switches are what packing makes when Q are terminals without data of their
 * own; then each of Q is entered by one link. Several sets are tried, together, each with a rate
 * of its own, and the linear programme of solver/joint/joint.h divides the links and shares
 * between them. Of one or two switches all sets, for each phase: optimal among all trees, if no
 * others are marked. Of more, where that would be the Steiner tree problem: none; those next to
 * ranks (an NVSwitch in each host); these and one of the others (a SHARP switch per rail); all.
 * The model holds exactly for the result in any case, and where its time is that of the bound, it
 * is optimal.
 *
 * Counting once ends where a link's far end does not copy: a switch is used only if all that it is
 * entered from are ranks or such switches too (left to, where it adds). A NIC on the way must be
 * marked as well, if it passes one copy on.
 *
 * `instance` is the topology's, all ranks roots. Where this is faster than at_most, *faster is set
 * and the schedule gets trees, time and k; with options.bound_only the time alone. The search ends
 * where schedule->bound is reached. Where the programme is too large, options.notes says so.
 */
copse_status copse_solve_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_q at_most, struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, bool *faster,
                                       struct copse_err *err) COPSE_CHECKED;

/* Sets which switches the trees' time counts on, if any. */
copse_status copse_list_switches(const struct copse_topology *topology,
                                 struct copse_schedule *schedule,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * Sets COPSE_BOUND_FORESTS where that says more than the bound that the schedule has: the programme
 * of solver/joint/joint.h, but without balance at marked switches and at relays next to them, where
 * loads that count once do not balance. Trees of any kind, with one copy or many, obey the rows
 * that are left.
 */
copse_status copse_bound_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds,
                                       struct copse_err *err) COPSE_CHECKED;

/* ==== unequal shares ========================================================================== */

/*
 * Inside src/schedule/solve only: an allreduce whose roots have unequal shares, or whose phases
 * share out the links unequally.
 */

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

/* Frees shares, also after a failure. */
static inline void copse_shares_free(struct copse_shares *shares) {
  copse_joint_free(&shares->joint);
  copse_joint_free(&shares->even);
  copse_arena_free(&shares->arena);
}

/* Whether all ranks have the same share of what was found. */
static inline bool copse_shares_are_equal(const struct copse_shares *shares, int n_ranks) {
  bool equal = true;
  for (int i = 0; i < n_ranks; i++)
    equal = equal && shares->part->weights[i] == shares->part->weights[0];
  return equal;
}

/*
 * Finds the best shares and the time T/M that they reach. at_most: a time that equal shares reach;
 * with `only_faster` the search ends as soon as nothing faster is possible. *shares is freed by the
 * caller in every case; unless its outcome is COPSE_JOINT_PROVED, *time means nothing.
 * options->notes says where they were not looked for or can't be stated.
 */
copse_status copse_shares_find_time(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/* Sets the bound of an allreduce that the narrowest cut gives; it holds for any. */
copse_status copse_narrowest_bound(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule *schedule,
                                   struct copse_err *err) COPSE_CHECKED;

/* Sets COPSE_BOUND_FORESTS, from the solver's proof, with that cut; that alone where it says as
 * much. */
copse_status copse_shares_bound(const struct copse_topology *topology,
                                const struct copse_solve_options *options,
                                const struct copse_shares *shares, struct copse_q time,
                                struct copse_schedule *schedule,
                                struct copse_err *err) COPSE_CHECKED;
