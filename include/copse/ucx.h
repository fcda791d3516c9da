/*
 * copse over UCX, for jobs on CPUs that have no MPI: shared memory within a host, TCP or RDMA
 * between hosts. Link with -lcopse-ucx -lcopse. (The plain libcopse needs no UCX.)
 */
#ifndef COPSE_UCX_H
#define COPSE_UCX_H

#include "copse/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a wire over a UCX worker of its own. Collective: `bootstrap` gathers the workers'
 * addresses, and is not used afterwards. On an error wire->n_ranks is 0, wire->why tells, and
 * copse_comm_init_wire would say the same. UCX reads its environment (UCX_TLS, UCX_NET_DEVICES)
 * and prints warnings of its own, unless UCX_LOG_LEVEL says otherwise. COPSE_DEVICE for what UCX
 * says, COPSE_NOMEM, and what the bootstrap returns.
 */
COPSE_API copse_status copse_wire_new_ucx(int n_ranks, int rank, const copse_bootstrap *bootstrap,
                                          copse_wire *wire) COPSE_CHECKED;

/*
 * Makes the communicator of n_ranks processes, each on the CPU of its own: see
 * copse_comm_init_wire. A job that is to outlive one of its processes ignores SIGPIPE.
 */
COPSE_CHECKED static inline copse_status copse_comm_init_ucx(copse_comm **comm, int n_ranks,
                                                             int rank,
                                                             const copse_bootstrap *bootstrap) {
  copse_wire wire;
  (void)!copse_wire_new_ucx(n_ranks, rank, bootstrap,
                            &wire); /* the next call reports what failed */
  return copse_comm_init_wire(comm, &wire, 0);
}

#ifdef __cplusplus
}
#endif
#endif
