/* Inside libcopse-mpi.so: the wire, for whoever starts one. */
#ifndef COPSE_RUNTIME_MPI_WIRE_MPI_H
#define COPSE_RUNTIME_MPI_WIRE_MPI_H

#include "copse/mpi.h"

struct copse_mpi_wire {
  MPI_Comm comm; /* copse's own */
  char text[MPI_MAX_ERROR_STRING + 64];
};

extern const copse_wire copse_mpi_functions;

/* Keeps what MPI says about its error `code` for why(). */
copse_status copse_mpi_failed(struct copse_mpi_wire *wire, const char *call, int code);
copse_status copse_mpi_no_memory(struct copse_mpi_wire *wire);
/* Ranks and tags of wire->comm, which from here on returns its errors. */
copse_status copse_mpi_describe(struct copse_mpi_wire *wire, copse_wire *out);

#endif
