/*
 * Transfers of plans, native and foreign, for the simulator: what a plan's steps move over which
 * links, and after what. Plans name ranks, not links: every pair takes its route of fewest links,
 * of these the widest, over relays alone where it can. Where several are equally short and wide,
 * each message takes the one whose busiest link has least to carry: as channels take different
 * NICs.
 */
#pragma once

#include "runtime/plan/plan.h"
#include "topology/route.h"
#include "predict/simulate.h"

struct copse_foreign {
  copse_collective collective;
  int root;                   /* broadcast and reduce: unknown, 0; else -1 */
  struct copse_q time_per_GB; /* of the busiest link: at best */
  int worst_link;             /* that link; 0 where nothing moves */
  int n_passed, passed_by;    /* messages whose route leads through a rank; its node, of the last */
  int64_t *demand; /* native plans of an alltoall by demand: [n_ranks * n_ranks] in some unit, for
                      the caller to free; else NULL */
};

/*
 * Makes the transfers of a native plan over `routes` (NULL: found for the call) in amounts of M,
 * which the simulator cuts into chunks (give it the header's chunk_bytes, min_chunk_bytes and
 * pipeline_chunks; one chunk for the low-latency protocol). A MOVE streams from those that brought
 * its sources; packets take twice their bytes. A multicast operation goes through a switch that
 * copies and adds and joins all its ranks, and loads the worker's own link once for all (a rank's
 * own slot crosses its link too). Handshakes and credits cost nothing, nor is there an end to
 * workers: with routes as in the schedule that it was lowered from, it moves what that moves. The
 * plan is not proved. COPSE_REFUTED for one that can't be run, COPSE_BAD_INPUT where ranks and
 * topology differ, COPSE_INFEASIBLE for ranks that nothing joins, or no such switch,
 * COPSE_OVERFLOW for shares beyond 64 bits.
 */
copse_status copse_sim_dag_of_plan(const char *label, const struct copse_plan *plan,
                                   const struct copse_topology *topology,
                                   const struct copse_routes *routes, struct copse_sim_dag *dag,
                                   struct copse_foreign *foreign,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the transfers of an MSCCL algorithm (XML) in amounts of M. Every step streams: part of a
 * message goes on as soon as it has come, as the executors do with their slots; a block takes its
 * steps in turn for each part, and waits as the file says. The file is read and paired, not
 * proved. COPSE_REFUTED for a file that can't be run (a deadlock among others), COPSE_BAD_INPUT
 * where ranks and topology differ, COPSE_INFEASIBLE for ranks that nothing joins.
 */
copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the same of an MSCCL++ plan (JSON). An op starts when the one before it has ended, and a
 * wait ends when all that was put before the signal has come; in a pipeline, part by part. Local
 * ops cost nothing. What goes through a switch channel is as in a native plan that is multicast,
 * the sum of a glres included.
 */
copse_status copse_sim_dag_of_mscclpp(const char *label, const char *data, size_t size,
                                      const struct copse_topology *topology,
                                      struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                      struct copse_err *err) COPSE_CHECKED;
