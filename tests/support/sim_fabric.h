/* Topologies for the simulator's tests. */
#ifndef COPSE_TESTS_SIM_FABRIC_H
#define COPSE_TESTS_SIM_FABRIC_H

#include "topology/topology.h"

/* Reads topology JSON; fails the running test on an error. */
struct copse_topology *copse_test_sim_parse(const char *json);

/* Every rank linked to every other, 10 GB/s, no latency. */
struct copse_topology *copse_test_sim_mesh(int n_ranks);

/*
 * Hosts "h0", "h1", ... of GPUs on a switch of 300 GB/s each; between the hosts one switch for
 * each place (rails), or a single one, at 25 GB/s a GPU.
 */
struct copse_topology *copse_test_sim_hosts(int hosts, int gpus, bool rails);

#endif
