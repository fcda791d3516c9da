/*
 * NCCL's functions that the drop-in looks at: collectives, send and receive; how communicators
 * begin and end, and what they report when they break. Groups are in calls.c, functions that are
 * only passed on in real.c.
 */
#include <stdlib.h>

#include "dropin/calls.h"
#include "dropin/comms.h"
#include "dropin/real.h"

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_ALL_REDUCE, send, recv, count,
                                                      type, op, -1, comm, stream});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_ALL_GATHER, send, recv, count,
                                                      type, 0, -1, comm, stream});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_REDUCE_SCATTER, send, recv, count,
                                                      type, op, -1, comm, stream});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_BROADCAST, send, recv, count, type,
                                                      0, root, comm, stream});
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_BCAST, buffer, buffer, count, type,
                                                      0, root, comm, stream});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_REDUCE, send, recv, count, type,
                                                      op, root, comm, stream});
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(&(struct copse_nccl_call){COPSE_NCCL_ALL_TO_ALL, send, recv, count,
                                                      type, 0, -1, comm, stream});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return copse_nccl_call_do(
      &(struct copse_nccl_call){COPSE_NCCL_SEND, send, NULL, count, type, 0, peer, comm, stream});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return copse_nccl_call_do(
      &(struct copse_nccl_call){COPSE_NCCL_RECV, NULL, recv, count, type, 0, peer, comm, stream});
}

/* ---- beginning --------------------------------------------------------------------------- */

/* NCCL's default is to block; a split without a config does as its parent. NCCL_COMM_BLOCKING, 0 or
 * 1, overrules all of that. */
static bool blocks(bool by_call) {
  const char *text = getenv("NCCL_COMM_BLOCKING");
  if (!text || !*text) return by_call;
  char *end;
  long value = strtol(text, &end, 0);
  return *end || value < 0 || value > 1 ? by_call : value == 1;
}

static bool wants_blocking(const ncclConfig_t *config) {
  return blocks(!config || config->blocking != 0);
}

/* result: the real function's. */
static ncclResult_t made(ncclResult_t result, ncclComm_t *where, bool blocking) {
  if (result == ncclSuccess || result == ncclInProgress)
    copse_nccl_group_made(where, blocking && result == ncclSuccess);
  return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank) {
  return made(copse_nccl_real_CommInitRank(comm, n_ranks, id, rank), comm, blocks(true));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  return made(copse_nccl_real_CommInitRankConfig(comm, n_ranks, id, rank, config), comm,
              wants_blocking(config));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n_ranks, int rank, int n_ids,
                                      ncclUniqueId *ids, ncclConfig_t *config) {
  return made(copse_nccl_real_CommInitRankScalable(comm, n_ranks, rank, n_ids, ids, config), comm,
              wants_blocking(config));
}

/* Grouped, so that all ranks of this thread are made known at once. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n_devices, const int *devices) {
  ncclResult_t result = copse_nccl_real_CommInitAll(comms, n_devices, devices);
  if (result != ncclSuccess) return result;
  result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (int i = 0; i < n_devices; i++) copse_nccl_group_made(&comms[i], blocks(true));
  return ncclGroupEnd();
}

static bool child_blocks(ncclComm_t parent, const ncclConfig_t *config) {
  if (config) return wants_blocking(config);
  struct copse_nccl_comm *comm = copse_nccl_acquire(parent);
  bool parent_blocks = !comm || comm->blocking;
  (void)copse_nccl_release(comm);
  return blocks(parent_blocks);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child,
                           ncclConfig_t *config) {
  return made(copse_nccl_real_CommSplit(comm, color, key, child, config), child,
              child_blocks(comm, config));
}

static void abort_copse(ncclComm_t nccl) {
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  if (comm && comm->copse) (void)copse_comm_abort(comm->copse);
  (void)copse_nccl_release(comm);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *without, int n_without, ncclComm_t *child,
                            ncclConfig_t *config, int flags) {
  if (flags & COPSE_NCCL_SHRINK_ABORT) abort_copse(comm);
  return made(copse_nccl_real_CommShrink(comm, without, n_without, child, config, flags), child,
              child_blocks(comm, config));
}

/* ---- end ---------------------------------------------------------------------------------- */

/* copse's communicator ends first: NCCL's is its bootstrap. */
static ncclResult_t end(ncclComm_t nccl, ncclResult_t (*real)(ncclComm_t)) {
  ncclResult_t ours = copse_nccl_failed(copse_nccl_release(copse_nccl_forget(nccl)));
  ncclResult_t result = real(nccl);
  return result == ncclSuccess ? ours : result;
}

/* No collectives may follow. */
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return end(comm, copse_nccl_real_CommFinalize); }

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, copse_nccl_real_CommDestroy); }

/*
 * copse's kernels may wait behind NCCL's on a stream: both get the request to end before either is
 * waited for. Once aborted, copse's communicator needs NCCL's no more.
 */
ncclResult_t ncclCommAbort(ncclComm_t nccl) {
  struct copse_nccl_comm *comm = copse_nccl_forget(nccl);
  if (comm && comm->copse) (void)copse_comm_abort(comm->copse);
  ncclResult_t result = copse_nccl_real_CommAbort(nccl);
  copse_nccl_release_aside(comm);
  return result;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  abort_copse(comm);
  return copse_nccl_real_CommRevoke(comm, flags);
}

/* ---- errors -------------------------------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t nccl, ncclResult_t *async) {
  ncclResult_t result = copse_nccl_real_CommGetAsyncError(nccl, async);
  if (result != ncclSuccess || *async != ncclSuccess || copse_nccl_is_inside()) return result;
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  copse_status broken = COPSE_OK;
  if (comm && comm->copse && copse_comm_get_async_error(comm->copse, &broken) == COPSE_OK)
    *async = copse_nccl_failed(broken);
  (void)copse_nccl_release(comm);
  return result;
}

const char *ncclGetLastError(ncclComm_t comm) {
  return copse_nccl_last_error(copse_nccl_real_GetLastError(comm));
}
