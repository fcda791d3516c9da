/*
 * Transfers of foreign plans, for the simulator: what a plan's steps move over which links, and
 * after what. Plans name ranks, not links: every pair takes its shortest route, as baselines do.
 */
#ifndef COPSE_CODEGEN_SIMULATE_MSCCL_H
#define COPSE_CODEGEN_SIMULATE_MSCCL_H

#include "schedule/simulate.h"

struct copse_foreign {
  copse_collective collective;
  int root;                   /* broadcast and reduce: unknown, 0; else -1 */
  struct copse_q time_per_GB; /* of the busiest link: at best */
};

/*
 * The transfers of an MSCCL algorithm in amounts of M. Every step streams: part of a message
 * goes on as soon as it has come, as the executors do with their slots; a block takes its
 * steps in turn for each part, and waits as the file says. The file is read and paired, not
 * proved. COPSE_REFUTED for a file that can't be run (a deadlock among others), COPSE_BAD_INPUT
 * where ranks and topology differ, COPSE_INFEASIBLE for ranks that nothing joins.
 */
copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) COPSE_CHECKED;

#endif
