/*
 * The exact throughput optimum of tree collectives, with the cut that proves it.
 */
#pragma once

#include "base/rational.h"
#include "solver/network/network.h"

/*
 * x: the rate of a root of weight 1. For every node set S that holds a root and misses a
 * terminal, x * weight(S) <= capacity leaving S; `x` is the largest such rate, and it
 * is reached by packing trees (Edmonds 1973). `in_cut` is an S with equality.
 */
struct copse_optimum {
  struct copse_q x; /* 0: some terminal can't be reached */
  bool *in_cut;     /* [n_nodes], owned */
  int unreached;    /* with x = 0: a terminal outside the cut */
};

/*
 * Finds the optimum by Newton (Dinkelbach) iteration in exact rationals: ForestColl (Zhao et al.,
 * arXiv 2402.06787) section on throughput optimality, with Newton's step in place of its binary
 * search. Starts from the cuts around single terminals; each round scales the capacities to
 * integers and asks one maximum flow per sink. COPSE_OVERFLOW when scaled capacities leave 61
 * bits. A network with a single terminal has no cut: x = 0/1 with unreached = -1. Complexity:
 * rounds (2 to 5 in practice) * sinks (network.h) * max flow.
 */
copse_status copse_optimum_find(const struct copse_network *network,
                                const struct copse_progress *progress, struct copse_optimum *out,
                                struct copse_err *err) COPSE_CHECKED;
void copse_optimum_free(struct copse_optimum *optimum);

/*
 * The integer problem at the optimum (docs/theory.md, "The optimum"): capacities b * n / g, k = d
 * / g trees per unit of root weight, where 1/x = n/d and g = gcd(d, all b).
 */
struct copse_scale {
  int64_t k;
  int64_t numerator, divisor; /* scaled capacity = b * numerator / divisor, exact */
};
copse_status copse_optimum_scale(const struct copse_network *network, struct copse_q x,
                                 struct copse_scale *out, struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the best rate with exactly k trees per unit of root weight: the smallest U such that
 * capacities floor(U * b) carry k trees per root (ForestColl, arXiv 2402.06787, "fixed k"). The
 * rate is k / U. capacities [n_links] receives the floors. Relays that the floors leave unbalanced
 * are trimmed back to balance (links of different bandwidth in and out); there U is feasible, and
 * the smallest only among those that bisection looks at.
 */
copse_status copse_optimum_fixed_k(const struct copse_network *network, struct copse_q x_optimum,
                                   int64_t k, struct copse_q *u, int64_t *capacities,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Returns the step of whose multiples numbers of trees per unit of root weight, fewer than
 * copse_optimum_scale has, may reach the optimum too (copse_optimum_round with k / x): with those
 * no link out of in_cut is rounded; they do if the other links can spare what they lose.
 */
int64_t copse_optimum_step(const struct copse_network *network,
                           const struct copse_optimum *optimum);
/* Computes capacities [n_links] floor(u * b), trimmed where relays lose their balance by it, and
 * whether they carry k trees per unit of root weight. */
copse_status copse_optimum_round(const struct copse_network *network, struct copse_q u, int64_t k,
                                 int64_t *capacities, bool *carries,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * Whether capacities [n_links] carry k trees per unit of root weight.
 */
copse_status copse_optimum_feasible(const struct copse_network *network, const int64_t *capacities,
                                    int64_t k, bool *feasible, struct copse_err *err) COPSE_CHECKED;
