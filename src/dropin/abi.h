/* NCCL's binary interface, as far as the drop-in touches it: the types of nccl.h, of every version
 * since 2.4 and of those to come that keep its promises. The drop-in builds without CUDA and
 * without NCCL; tests/nccl/test_abi.c compares all this with the nccl.h at hand. */
#pragma once

#include <stddef.h>

#ifndef NCCL_MAJOR /* nccl.h itself is there (the test) */

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;

/* Enumerations in nccl.h. Callers may pass numbers that this version doesn't know. */
typedef unsigned int ncclDataType_t;
typedef unsigned int ncclRedOp_t;
typedef unsigned int ncclScalarResidence_t;

/* The part that all versions have; `size` says how much there is. */
typedef struct {
  size_t size;
  unsigned int magic, version;
  int blocking;
} ncclConfig_t;

typedef struct ncclSimInfo ncclSimInfo_t;
typedef struct ncclCollConfig ncclCollConfig_t; /* NCCL 2.31 */

/* NCCL's device API (nccl_device.h), which the drop-in only hands on. */
typedef struct {
  int nRanks, rank, stride;
} ncclTeam_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;

#endif

#define COPSE_NCCL_SHRINK_ABORT 1 /* ncclCommShrink: end what runs on the parent first */
#define COPSE_NCCL_WINDOW_SYMMETRIC 1 /* ncclCommWindowRegister: NCCL_WIN_COLL_SYMMETRIC */
