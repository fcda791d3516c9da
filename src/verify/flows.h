/*
 * The part of copse_verify_schedule that is about alltoalls: flows, the compact form, and
 * bounds by duality.
 */
#ifndef COPSE_VERIFY_FLOWS_H
#define COPSE_VERIFY_FLOWS_H

#include <gmp.h>

#include "verify/verify.h"

/*
 * Checks that the flows (with their images, in the compact form) carry the demand exactly,
 * over links that exist, and adds up the load of every link into loads [n_links]. node_of
 * [schedule->n_nodes] are the topology's nodes, -1 for unknown ones. COPSE_REFUTED.
 */
copse_status copse_verify_flows(const struct copse_schedule *schedule,
                                const struct copse_topology *topology, const int *node_of,
                                const char *label, mpq_t *loads, struct copse_err *err)
    COPSE_CHECKED;

/*
 * What the schedule's lengths (or its cut) prove about an alltoall: sum of share *
 * distance over sum of bandwidth * length, in GMP rationals over integer distances.
 */
copse_status copse_verify_flow_bound(const struct copse_schedule *schedule,
                                     const struct copse_topology *topology, const int *node_of,
                                     const char *label, mpq_t bound, struct copse_err *err)
    COPSE_CHECKED;

#endif
