/*
 * Roots and shares chosen together: a broadcast and a reduction that share one set of links at
 * the same time, each root with the same share in both. An allreduce is made of such a pair.
 */
#ifndef COPSE_SOLVER_JOINT_SHARES_H
#define COPSE_SOLVER_JOINT_SHARES_H

#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/network.h"

/* A node set S with its multiplier in the proof; it holds a root's worth of data or two. */
struct copse_shares_cut {
  bool reduce; /* counts what enters S in the reduction; else what leaves S in the broadcast */
  struct copse_q weight; /* > 0 */
  const bool *inside;    /* [n_nodes] */
};

enum copse_shares_outcome {
  COPSE_SHARES_PROVED,     /* all of the result is there, exact */
  COPSE_SHARES_NOT_BETTER, /* than options.at_least: found before the optimum was */
  COPSE_SHARES_TOO_LARGE,  /* beyond options.max_columns, or the rounds ran out */
  COPSE_SHARES_UNPROVED    /* the optimum's fractions leave 64 bits, or don't hold exactly */
};

struct copse_shares_options {
  struct copse_q at_least; /* a rate that is known to be possible; 0/1: none */
  int max_columns;         /* terminals + links that may bind (solver/contract.h) */
  const struct copse_progress *progress;
};

/*
 * rate: the largest sum of shares per unit of time. The integers are the solution in whole
 * units: the share of terminal i is weights[i] / whole, and on link e the broadcast may take
 * broadcast[e], the reduction reduce[e] units while `whole` units go round; their sum is at most
 * rate's part of the capacity. Both are balanced at every relay.
 */
struct copse_shares {
  enum copse_shares_outcome outcome;
  struct copse_q rate;
  int64_t whole;
  const int64_t *weights;            /* [n_terminals] */
  const int64_t *broadcast, *reduce; /* [n_links] */
  int n_cuts;
  const struct copse_shares_cut *cuts;
  const struct copse_q *potentials; /* [n_nodes], 0 for terminals */
  int rounds;
  struct copse_arena arena;
};

/*
 * The linear programme (BACKGROUND section 6; with edge flows in place of cuts it is that of
 * Basu et al., arXiv 2309.13541)
 *
 *   maximise sum x   over x[v] >= 0 of terminals v, 0 <= a[e] <= capacity[e]
 *   for S that misses a terminal:   x(S) <= a(leaving S)
 *                                   x(S) <= (capacity - a)(entering S)
 *   for relays w:                   a(entering w) = a(leaving w)
 *
 * by cutting planes: GLPK's simplex on the cuts found so far, a maximum flow per terminal and
 * phase for those that its solution violates. Edmonds' theorem, with edge splitting at the
 * balanced relays, makes its optimum that of all pairs of forests with common shares that run
 * together.
 *
 * Floating point only chooses the basis. Its solution and multipliers are worked out again in
 * GMP rationals; maximum flows over integers show that the solution holds, and
 *
 *   rate <= sum_e capacity[e] * max(Z_e, Y_e - (p[dst] - p[src]))
 *
 * that none is better, where Y_e (Z_e) is the weight of the broadcast (reduce) cuts that e
 * leaves (enters), p the potentials, and the weights of the cuts around each terminal add up
 * to 1 or more: along a tree of root v the Y_e add up to at least the weight of the cuts
 * around v, and the potentials' differences to nothing. PROVED means that both are the same
 * number.
 *
 * Of all optimal shares it then takes those of which the largest is within a factor of two of the
 * least possible, where the simplex method finds them: they make more, but lower trees.
 *
 * network->roots are not used; relays must be balanced. COPSE_OK with the outcome in *out, which
 * the caller frees in every case; COPSE_NOMEM; COPSE_OVERFLOW where capacities leave 61 bits.
 * Deterministic. Complexity: rounds (some tens) * (2 terminals * max flow + simplex).
 */
copse_status copse_shares_find(const struct copse_network *network,
                               const struct copse_shares_options *options, struct copse_shares *out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_shares_free(struct copse_shares *shares);

#endif
