/*
 * Inside src/schedule only: the verifier's part for the bound of an allreduce with free shares.
 */
#ifndef COPSE_VERIFY_FORESTS_H
#define COPSE_VERIFY_FORESTS_H

#include <gmp.h>

#include "schedule/schedule.h"
#include "topology/topology.h"

/*
 * The time that a COPSE_BOUND_FORESTS proves in this topology, by the formula of schedule.h,
 * worked out from the certificate's cuts and potentials alone. COPSE_REFUTED where a cut names
 * a node twice or one that is not there, holds no rank or misses none, where the weights around
 * a rank add up to less than 1, or a potential is not a relay's, stands twice, or is there at or
 * beside a switch that copies or adds.
 */
copse_status copse_verify_forest_bound(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology, const int *node_of,
                                       const char *label, mpq_t time,
                                       struct copse_err *err) COPSE_CHECKED;

#endif
