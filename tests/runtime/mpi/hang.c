/* Preloaded into a job: once the file COPSE_TEST_HANG is there, MPI_Improbe stops coming back at rank
 * 1, as Open MPI's TCP does now and then once a peer has died. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *file = getenv("COPSE_TEST_HANG");
  while (rank && strcmp(rank, "1") == 0 && file && access(file, F_OK) == 0) pause();
  return PMPI_Improbe(source, tag, comm, flag, message, status);
}
