/* The entry of libcopse-mpi.so that `copse run` looks up by name: MPI for a process that does
 * nothing else with it. */
#pragma once

#include "copse/wire.h"

/* MPI_Init, and a wire over all processes, whose orderly end is MPI_Finalize. Both end the process
 * (exit status 4, one line) where they take longer than timeout_seconds. COPSE_UNSUPPORTED for
 * another version of copse. `text` gets the reason. */
COPSE_API copse_status copse_mpi_start(const char *version, double timeout_seconds,
                                       copse_wire *wire, char *text, size_t size) COPSE_CHECKED;
