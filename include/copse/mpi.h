/*
 * copse over MPI, for jobs on CPUs. Compile with mpicc; link with -lcopse-mpi -lcopse. (The plain
 * libcopse needs no MPI.) libcopse-mpi is bound to the MPI that it was built with.
 */
#ifndef COPSE_MPI_H
#define COPSE_MPI_H

#include <mpi.h>

#include "copse/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a wire over a duplicate of `comm`, an intracommunicator, so that copse's messages meet
 * nobody else's. Collective over comm, after MPI_Init; where threads other than the first call
 * copse, with MPI_THREAD_SERIALIZED or more. timeout_seconds: how long to wait for the others to
 * come (0: 600). On an error wire->n_ranks is 0, wire->why tells (COPSE_TIMEOUT: which ranks
 * haven't come; with MPIs other than Open MPI it may name too many), and copse_comm_init_wire
 * would say the same.
 */
COPSE_API copse_status copse_wire_new_mpi(MPI_Comm comm, double timeout_seconds,
                                          copse_wire *wire) COPSE_CHECKED;

/*
 * Makes the communicator of the ranks of an MPI communicator, each on the CPU of its process: see
 * copse_comm_init_wire. Collective over mpi_comm, which may be freed afterwards; destroy the
 * copse_comm before MPI_Finalize. A job that is to outlive one of its processes ignores SIGPIPE:
 * over TCP Open MPI writes to the sockets of the dead.
 *
 * It waits for the other ranks for 600 s, and so does each collective. For less make the wire
 * yourself, copse_wire_new_mpi(mpi_comm, 60, &wire) and copse_comm_init_wire(comm, &wire, 60), or
 * call copse_comm_set_timeout, which is for the collectives only.
 */
COPSE_CHECKED static inline copse_status copse_comm_init_mpi(copse_comm **comm, MPI_Comm mpi_comm) {
  copse_wire wire;
  (void)!copse_wire_new_mpi(mpi_comm, 0, &wire); /* the next call reports what failed */
  return copse_comm_init_wire(comm, &wire, 0);
}

#ifdef __cplusplus
}
#endif
#endif
