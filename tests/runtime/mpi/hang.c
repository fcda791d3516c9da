/* Preloaded into a job: at rank 1 MPI_Improbe stops coming back, as Open MPI's TCP does now and
 * then once a peer has died. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_THAT_RETURN 2000

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
  static int n_calls;
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (n_calls < CALLS_THAT_RETURN) n_calls++;
  while (n_calls == CALLS_THAT_RETURN && rank && strcmp(rank, "1") == 0) pause();
  return PMPI_Improbe(source, tag, comm, flag, message, status);
}
