/*
 * Every function that NCCL exports, up to 2.28, with its prototype.
 *
 *   X(type of the result, result where the real NCCL lacks it, name, parameters, arguments)
 *
 * COPSE_NCCL_SERVED: those that the drop-in looks at (calls.c).
 * COPSE_NCCL_FORWARDED, COPSE_NCCL_DEVICE_API: those that it hands on as they are.
 *
 * Each has a twin named pncclXxx, NCCL's profiling interface, which always means the real NCCL.
 */
#pragma once

#include "dropin/abi.h"

/* clang-format off */
#define COPSE_NCCL_SERVED(X) \
  X(ncclResult_t, ncclInvalidUsage, CommInitRank, \
    (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank), (comm, n_ranks, id, rank)) \
  X(ncclResult_t, ncclInvalidUsage, CommInitRankConfig, \
    (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config), \
    (comm, n_ranks, id, rank, config)) \
  X(ncclResult_t, ncclInvalidUsage, CommInitRankScalable, \
    (ncclComm_t *comm, int n_ranks, int rank, int n_ids, ncclUniqueId *ids, ncclConfig_t *config), \
    (comm, n_ranks, rank, n_ids, ids, config)) \
  X(ncclResult_t, ncclInvalidUsage, CommInitAll, \
    (ncclComm_t *comms, int n_devices, const int *devices), (comms, n_devices, devices)) \
  X(ncclResult_t, ncclInvalidUsage, CommSplit, \
    (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config), \
    (comm, color, key, made, config)) \
  X(ncclResult_t, ncclInvalidUsage, CommShrink, \
    (ncclComm_t comm, int *without, int n_without, ncclComm_t *made, ncclConfig_t *config, \
     int flags), (comm, without, n_without, made, config, flags)) \
  X(ncclResult_t, ncclInvalidUsage, CommFinalize, (ncclComm_t comm), (comm)) \
  X(ncclResult_t, ncclInvalidUsage, CommDestroy, (ncclComm_t comm), (comm)) \
  X(ncclResult_t, ncclInvalidUsage, CommAbort, (ncclComm_t comm), (comm)) \
  X(ncclResult_t, ncclInvalidUsage, CommRevoke, (ncclComm_t comm, int flags), (comm, flags)) \
  X(ncclResult_t, ncclInvalidUsage, CommGetAsyncError, \
    (ncclComm_t comm, ncclResult_t *async), (comm, async)) \
  X(const char *, "no NCCL", GetLastError, (ncclComm_t comm), (comm)) \
  X(ncclResult_t, ncclInvalidUsage, AllReduce, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, \
     ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, op, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, AllGather, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, \
     cudaStream_t stream), (send, recv, count, type, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, ReduceScatter, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, \
     ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, op, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Broadcast, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream), (send, recv, count, type, root, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Bcast, \
    (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream), (buffer, count, type, root, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Reduce, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, \
     ncclComm_t comm, cudaStream_t stream), (send, recv, count, type, op, root, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, AlltoAll, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, \
     cudaStream_t stream), (send, recv, count, type, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Send, \
    (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
     cudaStream_t stream), (send, count, type, peer, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Recv, \
    (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, \
     cudaStream_t stream), (recv, count, type, peer, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, GroupStart, (void), ()) \
  X(ncclResult_t, ncclInvalidUsage, GroupEnd, (void), ()) \
  X(ncclResult_t, ncclInvalidUsage, GroupSimulateEnd, (ncclSimInfo_t *info), (info))

#define COPSE_NCCL_FORWARDED(X) \
  X(ncclResult_t, ncclInvalidUsage, MemAlloc, (void **memory, size_t bytes), (memory, bytes)) \
  X(ncclResult_t, ncclInvalidUsage, MemFree, (void *memory), (memory)) \
  X(ncclResult_t, ncclInvalidUsage, GetVersion, (int *version), (version)) \
  X(ncclResult_t, ncclInvalidUsage, GetUniqueId, (ncclUniqueId *id), (id)) \
  X(const char *, "no NCCL", GetErrorString, (ncclResult_t result), (result)) \
  X(void, (void)0, ResetDebugInit, (void), ()) \
  X(ncclResult_t, ncclInvalidUsage, CommCount, (const ncclComm_t comm, int *count), (comm, count)) \
  X(ncclResult_t, ncclInvalidUsage, CommCuDevice, \
    (const ncclComm_t comm, int *device), (comm, device)) \
  X(ncclResult_t, ncclInvalidUsage, CommUserRank, (const ncclComm_t comm, int *rank), (comm, rank)) \
  X(ncclResult_t, ncclInvalidUsage, CommRegister, \
    (const ncclComm_t comm, void *buffer, size_t bytes, void **handle), \
    (comm, buffer, bytes, handle)) \
  X(ncclResult_t, ncclInvalidUsage, CommDeregister, \
    (const ncclComm_t comm, void *handle), (comm, handle)) \
  X(ncclResult_t, ncclInvalidUsage, CommWindowRegister, \
    (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags), \
    (comm, buffer, bytes, window, flags)) \
  X(ncclResult_t, ncclInvalidUsage, CommWindowDeregister, \
    (ncclComm_t comm, ncclWindow_t window), (comm, window)) \
  X(ncclResult_t, ncclInvalidUsage, RedOpCreatePreMulSum, \
    (ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, \
     ncclComm_t comm), (op, scalar, type, residence, comm)) \
  X(ncclResult_t, ncclInvalidUsage, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm)) \
  X(ncclResult_t, ncclInvalidUsage, Gather, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream), (send, recv, count, type, root, comm, stream)) \
  X(ncclResult_t, ncclInvalidUsage, Scatter, \
    (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream), (send, recv, count, type, root, comm, stream))

/* The host side of its device API (nccl_device.h), handed on too. */
#define COPSE_NCCL_DEVICE_API(X) \
  X(ncclResult_t, ncclInvalidUsage, DevCommCreate, \
    (ncclComm_t comm, const ncclDevCommRequirements_t *needs, ncclDevComm_t *made), \
    (comm, needs, made)) \
  X(ncclResult_t, ncclInvalidUsage, DevCommDestroy, \
    (ncclComm_t comm, const ncclDevComm_t *made), (comm, made)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamWorld, (ncclComm_t comm), (comm)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamLsa, (ncclComm_t comm), (comm)) \
  X(ncclTeam_t, (ncclTeam_t){0}, TeamRail, (ncclComm_t comm), (comm)) \
  X(int, -1, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  X(int, -1, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  X(ncclResult_t, ncclInvalidUsage, LsaBarrierCreateRequirement, \
    (ncclTeam_t team, int n_barriers, ncclLsaBarrierHandle_t *handle, \
     ncclDevResourceRequirements_t *needs), (team, n_barriers, handle, needs)) \
  X(ncclResult_t, ncclInvalidUsage, GinBarrierCreateRequirement, \
    (ncclComm_t comm, ncclTeam_t team, int n_barriers, ncclGinBarrierHandle_t *handle, \
     ncclDevResourceRequirements_t *needs), (comm, team, n_barriers, handle, needs)) \
  X(int, -1, LLA2ACalcSlots, (int max_elements, int max_bytes), (max_elements, max_bytes)) \
  X(ncclResult_t, ncclInvalidUsage, LLA2ACreateRequirement, \
    (int n_blocks, int n_slots, ncclLLA2AHandle_t *handle, ncclDevResourceRequirements_t *needs), \
    (n_blocks, n_slots, handle, needs))
/* clang-format on */
