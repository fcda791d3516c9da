/* NCCL's collectives, send and receive. */
#include "dropin/call.h"
#include "dropin/exports.h"

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_ALL_REDUCE, send, recv, count, type, op, -1, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_ALL_GATHER, send, recv, count, type, 0, -1, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_REDUCE_SCATTER, send, recv, count, type, op, -1, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_BROADCAST, send, recv, count, type, 0, root, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_BCAST, buffer, buffer, count, type, 0, root, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_REDUCE, send, recv, count, type, op, root, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {
      COPSE_NCCL_ALL_TO_ALL, send, recv, count, type, 0, -1, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  struct copse_nccl_call call = {COPSE_NCCL_SEND, send, NULL, count, type, 0, peer, comm, stream};
  return copse_nccl_call_do(&call);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  struct copse_nccl_call call = {COPSE_NCCL_RECV, NULL, recv, count, type, 0, peer, comm, stream};
  return copse_nccl_call_do(&call);
}
