/*
 * A call of an NCCL collective, send or receive as data: to decide on it, to hold it until the
 * end of its group, to run it by copse or by the real NCCL.
 */
#ifndef COPSE_DROPIN_CALL_H
#define COPSE_DROPIN_CALL_H

#include "copse/comm.h"
#include "dropin/comm.h"

enum copse_nccl_function {
  COPSE_NCCL_ALL_REDUCE,
  COPSE_NCCL_ALL_GATHER,
  COPSE_NCCL_REDUCE_SCATTER,
  COPSE_NCCL_BROADCAST,
  COPSE_NCCL_BCAST,
  COPSE_NCCL_REDUCE,
  COPSE_NCCL_ALL_TO_ALL,
  COPSE_NCCL_SEND,
  COPSE_NCCL_RECV
};

struct copse_nccl_call {
  enum copse_nccl_function function;
  const void *send;
  void *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root; /* or the peer */
  ncclComm_t nccl;
  cudaStream_t stream;
};

/* One of the six collectives, or COPSE_NCCL_SEND_RECV. */
int copse_nccl_call_kind(const struct copse_nccl_call *call);

/* The real NCCL's function. */
ncclResult_t copse_nccl_call_real(const struct copse_nccl_call *call);

/* copse's; not for sends and receives. The text of a failure is kept for ncclGetLastError. */
ncclResult_t copse_nccl_call_copse(const struct copse_nccl_call *call, copse_comm *comm);

/* What every entry point does: decides, counts and logs, then serves, holds or passes it. */
ncclResult_t copse_nccl_call_do(const struct copse_nccl_call *call);

#endif
