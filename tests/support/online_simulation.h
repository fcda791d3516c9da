/* A plan of alltoallv on two tiers, simulated. */
#ifndef COPSE_TESTS_ONLINE_SIMULATION_H
#define COPSE_TESTS_ONLINE_SIMULATION_H

#include "predict/simulate.h"
#include "schedule/online/online.h"

/*
 * Appends a plan of two tiers (copse_planner_two_tier) to a simulation, in bytes (unit_bytes 1).
 * The pieces of a step between two ranks are one transfer, those inside a host on their own.
 * Nothing waits for a whole step. A NIC has 384 KiB under way before its next message, at the
 * sender and at the receiver; BALANCE runs as far ahead again of the NIC it is for; LOCAL keeps
 * step with the sender's NIC. INTER waits for all BALANCE of its step to its sender, SCATTER for
 * all INTER.
 */
copse_status copse_test_online_simulation(const struct copse_topology *topology,
                                          struct copse_online *online, struct copse_sim_dag *dag,
                                          struct copse_err *err) COPSE_CHECKED;

#endif
