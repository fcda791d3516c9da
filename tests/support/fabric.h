/* Small fabrics of different kinds, as topology JSON, and schedules of them. */
#ifndef COPSE_TESTS_FABRIC_H
#define COPSE_TESTS_FABRIC_H

#include "schedule/schedule.h"
#include "schedule/solve/solve.h"
#include "topology/topology.h"

/* A switch, a ring, two hosts with NICs, uneven links both ways, two ranks, one rank. */
extern const char *const copse_test_fabrics[];
extern const int copse_test_n_fabrics;

/* All fail the running test on an error; root 0 where the collective has one. */
struct copse_topology *copse_test_topology(const char *json);
struct copse_schedule *copse_test_solve_as(const struct copse_topology *topology,
                                           struct copse_solve_options options);
struct copse_schedule *copse_test_solve(const char *json, copse_collective collective, int64_t k);

/* One tree, rank 0 next to all others; made by hand, without a solver. */
struct copse_schedule *copse_test_star(int n_ranks, copse_collective collective);

/* A broadcast by so many equal trees, in which rank 1 passes what comes from rank 0 on to all
 * others. */
struct copse_schedule *copse_test_relayed_star(int n_ranks, int n_trees);

#endif
