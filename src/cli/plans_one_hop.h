/* Up to which size an allreduce of one hop is worth a plan of its own. */
#ifndef COPSE_CLI_PLANS_ONE_HOP_H
#define COPSE_CLI_PLANS_ONE_HOP_H

#include "codegen/lower/lower.h"
#include "topology/topology.h"

/*
 * *reach: the largest power of two, from `smallest` (a power of two) to packets->max_bytes, up to
 * which one hop is predicted to be faster than `packets`, the options of a low-latency plan of the
 * same schedule; packets->max_bytes itself where that goes for all sizes. 0: there is none, or the
 * schedule can't have such a plan. Predictions are the simulator's, of both plans as they are.
 */
copse_status copse_cli_one_hop_reach(const struct copse_topology *topology,
                                     const struct copse_schedule *schedule,
                                     const struct copse_lower_options *packets, uint64_t smallest,
                                     uint64_t *reach, struct copse_err *err) COPSE_CHECKED;

#endif
