/* copse simulate --overlap: how many parts should a Mixture-of-Experts layer be cut into? */
#ifndef COPSE_CLI_SIMULATE_OVERLAP_H
#define COPSE_CLI_SIMULATE_OVERLAP_H

#include <stdbool.h>

#include "schedule/schedule.h"
#include "predict/simulate.h"
#include "topology/topology.h"

/* For the help text of simulate. */
extern const char copse_cli_overlap_help[];

/*
 * Prints the table (or, with json, one object) for an alltoall schedule that has been loaded for
 * this topology; a compact one is expanded in place. spec is the value of --overlap:
 * "tokens=N,token-bytes=B,compute=FILE|ALPHA:BETA[,degrees=1:2:4][,network=one|shared]".
 * Returns an exit status; what was wrong has been said.
 */
int copse_cli_overlap(const char *spec, struct copse_schedule *schedule,
                      const struct copse_topology *topology, const struct copse_sim_options *sim,
                      bool json);

#endif
