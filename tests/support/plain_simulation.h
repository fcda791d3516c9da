/*
 * The simulator as it was first written, on one binary heap, event by event and transfer by
 * transfer: what the faster one is compared with, bit by bit.
 */
#ifndef COPSE_TESTS_PLAIN_SIMULATION_H
#define COPSE_TESTS_PLAIN_SIMULATION_H

#include "predict/simulate.h"

/* As copse_simulate. */
copse_status copse_test_plain_simulate(const struct copse_topology *topology,
                                       const struct copse_sim_dag *dag,
                                       const struct copse_sim_options *options, double unit_bytes,
                                       struct copse_sim_result *result, double *arrival_us,
                                       struct copse_err *err);

#endif
