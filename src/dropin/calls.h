/*
 * A call of an NCCL collective, send or receive as data, and the calling thread's group.
 *
 * Between ncclGroupStart and ncclGroupEnd the calls that copse serves are held; NCCL's own enter
 * NCCL's group at once. At the outermost end NCCL's group is launched first, on all ranks alike,
 * then copse's calls run in their order. NCCL runs a group as one operation and promises no order
 * inside it.
 *
 * Calls of one communicator are in order, whatever their streams, as with NCCL alone. NCCL's follow
 * copse's last launch, and copse's next launch follows them (copse_comm_follow, copse_comm_lead).
 * Their kernels wait for other ranks: at once on two GPUs in different order they may hang.
 */
#pragma once

#include "base/err.h"
#include "copse/comm.h"
#include "dropin/comms.h"

/* The collectives have copse's numbers. */
enum copse_nccl_function {
  COPSE_NCCL_ALL_REDUCE = COPSE_ALLREDUCE,
  COPSE_NCCL_ALL_GATHER = COPSE_ALLGATHER,
  COPSE_NCCL_REDUCE_SCATTER = COPSE_REDUCE_SCATTER,
  COPSE_NCCL_BROADCAST = COPSE_BROADCAST,
  COPSE_NCCL_REDUCE = COPSE_REDUCE,
  COPSE_NCCL_ALL_TO_ALL = COPSE_ALLTOALL,
  COPSE_NCCL_BCAST,
  COPSE_NCCL_SEND,
  COPSE_NCCL_RECV,
  COPSE_NCCL_GATHER,
  COPSE_NCCL_SCATTER
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
  const ncclCollConfig_t *config; /* NULL: NCCL's function without */
};

/* Whether the calling thread has a group open. */
bool copse_nccl_in_group(void);

/*
 * Whether calls[0 .. n-1], sends and receives of one rank on one communicator of n_ranks, are a
 * number of all-to-alls: to and from every rank, itself included, equally often; the i-th send
 * to each and the i-th receive from each all on one stream, of one type and count, and from and
 * to blocks that lie `count` elements apart in order of rank, not in place. NCCL pairs sends and
 * receives of two ranks in their order, so that is what they mean; their order in the group is any.
 * all_to_alls (room for n / (2 * n_ranks)) gets them; *n_found is 0 where it is anything else.
 * COPSE_NOMEM. Complexity: linear.
 */
copse_status copse_nccl_find_exchanges(const struct copse_nccl_call *calls, size_t n, int n_ranks,
                                       struct copse_nccl_call *all_to_alls, size_t *n_found,
                                       struct copse_err *err) COPSE_CHECKED;
