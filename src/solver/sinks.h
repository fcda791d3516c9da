/*
 * The proof that everything else leans on: from a source of all roots enough flows to every sink.
 */
#ifndef COPSE_SOLVER_SINKS_H
#define COPSE_SOLVER_SINKS_H

#include "solver/flow.h"
#include "solver/network.h"

/*
 * What is to be proved: with links of capacities [n_links] (NULL: the network's) times `scale`,
 * and a source, node n_nodes, joined to each root by its weight times `rate`, `demand` flows to
 * each of `sinks`. A product beyond 63 bits counts as without limit.
 */
struct copse_sink_check {
  const struct copse_network *network;
  const int64_t *capacities;
  int64_t scale, rate, demand;
  const int *sinks; /* [n_sinks] */
  int n_sinks;
};

copse_status copse_sinks_graph(const struct copse_sink_check *check, struct copse_flow **out,
                               struct copse_err *err) COPSE_CHECKED;

/*
 * The first sink short of the demand, by its place in `sinks` counted on from `start` and around;
 * -1: none. `flow` is the check's graph, and after a failure has run to that sink.
 *
 * Every cut that keeps v from the source keeps u from it, or v from u. So where the demand flows
 * to u, and as much from u to v, it flows to v: for neighbours on one switch that is seen from a
 * few capacities, and the flow is saved. The others are asked by as many threads as there are
 * processors, each on a graph of its own; the answer does not depend on how many.
 */
int copse_sinks_check(const struct copse_sink_check *check, struct copse_flow *flow, int start);

/* How many threads at most; 0, the default: one per processor. Tests set it. */
extern int copse_solver_threads;

#endif
