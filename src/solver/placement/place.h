/*
 * Placement of experts on ranks, for Mixture-of-Experts: which expert on which rank makes
 * the all-to-alls of a routing trace shortest?
 *
 *   question                                          function
 *   -----------------------------------------------   ------------------------------------
 *   how long does a given placement take?             copse_place_time
 *   the best placement, and how far from the best?    copse_place_solve
 *
 * The model. In step s rank r has counts[s][r][e] tokens for expert e. Each is sent to the
 * expert's rank (dispatch), and its result comes back (combine: the transposed demand). What a
 * group of ranks sends out takes out_cost per token, what it takes in in_cost; tokens that
 * stay inside cost nothing. An all-to-all takes as long as the worst group, a step the sum of
 * its two all-to-alls, a trace the sum of its steps. Where groups are cuts of a network this
 * is a lower bound of the time; where each rank's own ports are the only bottleneck and ranks
 * are groups, it is the time (fluid, without latency).
 *
 * Times are integers in units of one token times one cost. All comparisons are exact.
 */
#pragma once

#include "base/graph.h"
#include "solver/network/network.h"

/* Draws a number by splitmix64: the same on every machine. By base's generator a seed's trace would
 * be another, and placements up to 0.05 % slower (measured: four clusters). */
static inline uint64_t copse_place_random(uint64_t *state) {
  return copse_scatter(*state += 0x9e3779b97f4a7c15u);
}

struct copse_place_group {
  const int *members; /* [n_members] ranks, each once */
  int n_members;
  int64_t out_cost, in_cost; /* per token, >= 0 */
};

struct copse_place_problem {
  int n_ranks, n_experts, n_steps; /* > 0 */
  int capacity;                    /* experts per rank at most; n_ranks * capacity >= n_experts */
  const int64_t *counts;           /* [n_steps * n_ranks * n_experts], >= 0 */
  int n_groups;
  const struct copse_place_group *groups; /* a rank is in at most COPSE_PLACE_MAX_DEPTH */
  const struct copse_progress *progress;
};

#define COPSE_PLACE_MAX_DEPTH 10
/* steps * ranks * experts at most: keeps memory below about 1 GB. */
#define COPSE_PLACE_MAX_COUNTS ((int64_t)1 << 24)

/*
 * COPSE_PLACE_GAP: `bound` is proved in integers, time may be above the optimum.
 * COPSE_PLACE_CERTIFIED: the same bound equals the time: optimal, exactly.
 * COPSE_PLACE_ILP: branch and cut (GLPK) found nothing better: optimal within 1e-6 of the
 * time, as its relaxations are in floating point. `bound` is set to the time.
 */
enum copse_place_proof { COPSE_PLACE_GAP, COPSE_PLACE_CERTIFIED, COPSE_PLACE_ILP };

struct copse_placement {
  int *rank_of;         /* [n_experts] */
  int64_t time, bound;  /* bound <= best <= time */
  int64_t default_time; /* of expert e on rank e / ceil(n_experts / n_ranks) */
  int64_t root_bound;   /* of the relaxation alone, proved in integers; <= bound */
  enum copse_place_proof proof;
  int64_t evaluations; /* placements looked at in local search */
  int rounds;          /* of the relaxation */
  int64_t nodes;       /* of branch and cut; 0: not used */
};

/* Computes the time of a placement that keeps to the capacity (COPSE_INVALID otherwise).
 * COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_place_time(const struct copse_place_problem *problem, const int *rank_of,
                              int64_t *time, struct copse_err *err) COPSE_CHECKED;

/*
 * Finds a placement: greedy start, late acceptance hill climbing (Burke and Bykov, "The late
 * acceptance hill-climbing heuristic", EJOR 258, 2017) and descent over swaps and moves;
 * then a bound from the linear relaxation, by ascent on its Lagrangian dual; then, where the
 * two differ and the problem is small, branch and cut by GLPK, started from both.
 * The caller frees out->rank_of in every case. COPSE_INVALID, COPSE_OVERFLOW, COPSE_NOMEM,
 * COPSE_INTERNAL. Work is counted, not timed: deterministic.
 */
copse_status copse_place_solve(const struct copse_place_problem *problem,
                               struct copse_placement *out, struct copse_err *err) COPSE_CHECKED;
