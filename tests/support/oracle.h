/*
 * What the solver's answers are compared with: the same quantities worked out in other
 * ways, in GMP rationals or by an LP. Shares no code with src/solver or the verifier.
 */
#ifndef COPSE_TESTS_ORACLE_H
#define COPSE_TESTS_ORACLE_H

#include <gmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "schedule/schedule.h"
#include "solver/trees/forest.h"
#include "solver/network/network.h"
#include "topology/topology.h"

/* A problem: send every root's data to every terminal. */
struct copse_test_graph {
  int n_nodes, n_links;
  int *src, *dst;   /* [n_links] */
  mpq_t *bandwidth; /* [n_links] */
  bool *terminal;   /* [n_nodes] */
  long *weight;     /* [n_nodes] of a root, 0 elsewhere */
};

/* root < 0: all ranks are roots. reversed: every link turned around. */
struct copse_test_graph *copse_test_graph_of_topology(const struct copse_topology *topology,
                                                      int root, bool reversed);
struct copse_test_graph *copse_test_graph_of_network(const struct copse_network *network);
void copse_test_graph_free(struct copse_test_graph *graph);

/*
 * T/M by looking at every cut S: the largest (weight(S)/W) / B+(S)
 * over S that holds a root and misses a terminal. False: a terminal can't be reached. At
 * most 16 nodes.
 */
bool copse_test_cut_time(const struct copse_test_graph *graph, mpq_t time);

/* The same as 1/x of the LP "maximise x: a flow for every sink that takes x out of every
 * root", solved by GLPK; to about 1e-9 relative. 0 where x is unbounded. */
double copse_test_lp_time(const struct copse_test_graph *graph);

/*
 * The best T/M of an allreduce by a reduce and a broadcast forest with common shares that run
 * together, by an LP on GLPK, to about 1e-8 relative. `all_cuts`: a row for every cut of each
 * phase (at most 10 nodes); else a flow variable per link, phase and rank that must be served,
 * without any cut.
 */
double copse_test_lp_allreduce_time(const struct copse_topology *topology, bool all_cuts);

/* The bandwidth that leaves S, and the weight of its roots. */
void copse_test_cut_leaving(const struct copse_test_graph *graph, const bool *in_cut, mpq_t leaving,
                            long *weight);

/*
 * The value of a maximum flow by plain breadth-first augmenting; capacities is an
 * [n * n] matrix, which is used up.
 */
int64_t copse_test_simple_flow(int n, int64_t *capacities, int s, int t);

/*
 * What is wrong with a forest, or NULL: trees that span the terminals with every src
 * reached before, paths over links through relays without coming back, multiplicities
 * that add up to k per unit of weight, heights. `time` is the largest load / capacity,
 * a tree carrying multiplicity / (W k).
 */
const char *copse_test_forest_defect(const struct copse_network *network,
                                     const struct copse_forest *forest, mpq_t time);

/*
 * What is wrong with a schedule for a topology, or NULL: all that the format asks
 * of it, and a bound that follows from its cut.
 */
const char *copse_test_schedule_defect(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology);

/* Exact copies and comparisons with the product's rationals. */
void copse_test_set_q(mpq_t to, struct copse_q from);
bool copse_test_equals_q(const mpq_t a, struct copse_q b);

#endif
