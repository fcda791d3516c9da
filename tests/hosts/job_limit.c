/* In C, for the drop-in's own headers. */
#include "copse/comm.h"
#include "dropin/comms.h"

int job_set_timeout(ncclComm_t nccl, double seconds);

int job_set_timeout(ncclComm_t nccl, double seconds) {
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  int set = comm && comm->copse && copse_comm_set_timeout(comm->copse, seconds) == COPSE_OK;
  (void)copse_nccl_release(comm);
  return set;
}
