/*
 * Every function that NCCL exports, up to 2.28, with its prototype, and the collectives with a
 * configuration of 2.31. Other new ones are the real library's, since the drop-in doesn't have
 * their names (scripts/check_nccl).
 *
 *   X(type of the result, result where the real NCCL lacks it, name, parameters, arguments)
 *   RESULT(X, name, parameters, arguments): the same for an ncclResult_t
 *
 * COPSE_NCCL_SERVED: those that the drop-in looks at (calls.c). COPSE_NCCL_CONFIGURED: likewise,
 * from NCCL 2.31 on; a NULL configuration means the function without it. COPSE_NCCL_FORWARDED,
 * COPSE_NCCL_DEVICE_API: those that it hands on as they are.
 *
 * Each has a twin named pncclXxx, NCCL's profiling interface, which always means the real NCCL.
 */
#pragma once

#include "dropin/abi.h"

/* clang-format off */
#define RESULT(X, ...) X(ncclResult_t, ncclInvalidUsage, __VA_ARGS__)

#define COPSE_NCCL_SERVED(X) \
  RESULT(X, CommInitRank, (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank), \
    (comm, n_ranks, id, rank)) \
  RESULT(X, CommInitRankConfig, (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank, \
    ncclConfig_t *config), (comm, n_ranks, id, rank, config)) \
  RESULT(X, CommInitRankScalable, (ncclComm_t *comm, int n_ranks, int rank, int n_ids, \
    ncclUniqueId *ids, ncclConfig_t *config), (comm, n_ranks, rank, n_ids, ids, config)) \
  RESULT(X, CommInitAll, (ncclComm_t *comms, int n_devices, const int *devices), \
    (comms, n_devices, devices)) \
  RESULT(X, CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, \
    ncclConfig_t *config), (comm, color, key, made, config)) \
  RESULT(X, CommShrink, (ncclComm_t comm, int *without, int n_without, ncclComm_t *made, \
    ncclConfig_t *config, int flags), (comm, without, n_without, made, config, flags)) \
  RESULT(X, CommFinalize, (ncclComm_t comm), (comm)) \
  RESULT(X, CommDestroy, (ncclComm_t comm), (comm)) \
  RESULT(X, CommAbort, (ncclComm_t comm), (comm)) \
  RESULT(X, CommRevoke, (ncclComm_t comm, int flags), (comm, flags)) \
  RESULT(X, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *async), (comm, async)) \
  X(const char *, "no NCCL", GetLastError, (ncclComm_t comm), (comm)) \
  RESULT(X, AllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, op, comm, stream)) \
  RESULT(X, AllGather, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, comm, stream)) \
  RESULT(X, ReduceScatter, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, op, comm, stream)) \
  RESULT(X, Broadcast, (const void *send, void *recv, size_t count, ncclDataType_t type, int root, \
    ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, root, comm, stream)) \
  RESULT(X, Bcast, (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
    cudaStream_t stream), (buffer, count, type, root, comm, stream)) \
  RESULT(X, Reduce, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, op, root, comm, stream)) \
  RESULT(X, AlltoAll, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, comm, stream)) \
  RESULT(X, Gather, (const void *send, void *recv, size_t count, ncclDataType_t type, int root, \
    ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, root, comm, stream)) \
  RESULT(X, Scatter, (const void *send, void *recv, size_t count, ncclDataType_t type, int root, \
    ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, root, comm, stream)) \
  RESULT(X, Send, (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
    cudaStream_t stream), (send, count, type, peer, comm, stream)) \
  RESULT(X, Recv, (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
    cudaStream_t stream), (recv, count, type, peer, comm, stream)) \
  RESULT(X, CommWindowRegister, (ncclComm_t comm, void *buffer, size_t bytes, \
    ncclWindow_t *window, int flags), (comm, buffer, bytes, window, flags)) \
  RESULT(X, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window)) \
  RESULT(X, GroupStart, (void), ()) \
  RESULT(X, GroupEnd, (void), ()) \
  RESULT(X, GroupSimulateEnd, (ncclSimInfo_t *info), (info))

#define COPSE_NCCL_CONFIGURED(X) \
  RESULT(X, AllReduceConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, op, comm, stream, config)) \
  RESULT(X, AllGatherConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, comm, stream, config)) \
  RESULT(X, ReduceScatterConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, op, comm, stream, config)) \
  RESULT(X, BroadcastConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, root, comm, stream, config)) \
  RESULT(X, ReduceConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, \
    const ncclCollConfig_t *config), (send, recv, count, type, op, root, comm, stream, config)) \
  RESULT(X, AlltoAllConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, comm, stream, config)) \
  RESULT(X, GatherConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, root, comm, stream, config)) \
  RESULT(X, ScatterConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, \
    int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), \
    (send, recv, count, type, root, comm, stream, config))

#define COPSE_NCCL_FORWARDED(X) \
  RESULT(X, MemAlloc, (void **memory, size_t bytes), (memory, bytes)) \
  RESULT(X, MemFree, (void *memory), (memory)) \
  RESULT(X, GetVersion, (int *version), (version)) \
  RESULT(X, GetUniqueId, (ncclUniqueId *id), (id)) \
  X(const char *, "no NCCL", GetErrorString, (ncclResult_t result), (result)) \
  X(void, (void)0, ResetDebugInit, (void), ()) \
  RESULT(X, CommCount, (const ncclComm_t comm, int *count), (comm, count)) \
  RESULT(X, CommCuDevice, (const ncclComm_t comm, int *device), (comm, device)) \
  RESULT(X, CommUserRank, (const ncclComm_t comm, int *rank), (comm, rank)) \
  RESULT(X, CommRegister, (const ncclComm_t comm, void *buffer, size_t bytes, void **handle), \
    (comm, buffer, bytes, handle)) \
  RESULT(X, CommDeregister, (const ncclComm_t comm, void *handle), (comm, handle)) \
  RESULT(X, RedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t type, \
    ncclScalarResidence_t residence, ncclComm_t comm), (op, scalar, type, residence, comm)) \
  RESULT(X, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

/* The host side of its device API (nccl_device.h), handed on too. */
#define COPSE_NCCL_DEVICE_API(X) \
  RESULT(X, DevCommCreate, (ncclComm_t comm, const ncclDevCommRequirements_t *needs, \
    ncclDevComm_t *made), (comm, needs, made)) \
  RESULT(X, DevCommDestroy, (ncclComm_t comm, const ncclDevComm_t *made), (comm, made)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamWorld, (ncclComm_t comm), (comm)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamLsa, (ncclComm_t comm), (comm)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamRail, (ncclComm_t comm), (comm)) \
  X(int, -1, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  X(int, -1, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  RESULT(X, LsaBarrierCreateRequirement, (ncclTeam_t team, int n_barriers, \
    ncclLsaBarrierHandle_t *handle, ncclDevResourceRequirements_t *needs), \
    (team, n_barriers, handle, needs)) \
  RESULT(X, GinBarrierCreateRequirement, (ncclComm_t comm, ncclTeam_t team, int n_barriers, \
    ncclGinBarrierHandle_t *handle, ncclDevResourceRequirements_t *needs), \
    (comm, team, n_barriers, handle, needs)) \
  X(int, -1, LLA2ACalcSlots, (int max_elements, int max_bytes), (max_elements, max_bytes)) \
  RESULT(X, LLA2ACreateRequirement, (int n_blocks, int n_slots, ncclLLA2AHandle_t *handle, \
    ncclDevResourceRequirements_t *needs), (n_blocks, n_slots, handle, needs))
/* clang-format on */
