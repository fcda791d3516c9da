/* NCCL: a job's communicator as the bootstrap of a copse communicator (declared in
 * runtime/gpu/cuda_backend.h), and a communicator of copse's own for messages between hosts. */
#pragma once

#include "copse/comm.h"
#include "runtime/gpu/host.h"

struct copse_nccl_id { /* ncclUniqueId */
  char bytes[128];
};

/* ncclConfig_t as of NCCL 2.14. Later NCCLs read its version, and take their defaults for the rest.
 */
struct copse_nccl_config {
  size_t size;
  unsigned int magic, version;
  int blocking;
};

/* NCCL's functions for messages between ranks, of bytes, on a stream. Those between start and end
 * of a group move at the same time. Messages between two ranks match in order. */
struct copse_nccl_links {
  void *comm; /* NULL: not joined */
  int (*group_start)(void);
  int (*group_end)(void);
  int (*send)(const void *from, size_t count, int type, int peer, void *comm, cudaStream_t stream);
  int (*recv)(void *to, size_t count, int type, int peer, void *comm, cudaStream_t stream);
  const char *(*error_string)(int result);
  int (*get_unique_id)(struct copse_nccl_id *id);
  int (*init_rank)(void **comm, int n_ranks, struct copse_nccl_id id, int rank);
  int (*init_rank_config)(void **comm, int n_ranks, struct copse_nccl_id id, int rank,
                          struct copse_nccl_config *config); /* NULL before 2.27.3 */
  int (*abort)(void *comm);
  int (*destroy)(void *comm);
  int (*async_error)(void *comm, int *error);
};
#define COPSE_NCCL_UINT8 1       /* ncclDataType_t */
#define COPSE_NCCL_IN_PROGRESS 7 /* ncclResult_t */

/* Finds the functions of a bootstrap's NCCL; joins nothing. COPSE_UNSUPPORTED where the bootstrap
 * isn't over NCCL, or NCCL is older than 2.7. */
copse_status copse_nccl_links_of(const copse_bootstrap *bootstrap, struct copse_nccl_links *out,
                                 struct copse_err *err);
/*
 * Creates a communicator of copse's own, of the backend's ranks, on the current device. Collective.
 * It is not split off the job's: the job's configuration decides what such a communicator shares
 * with its parent (splitShare, NCCL_COMM_SPLIT_SHARE_RESOURCES), and where it shares resources an
 * abort would end the job's too. From NCCL 2.27.3 on it doesn't block (NCCL_COMM_BLOCKING=1 forbids
 * that): group_end may return COPSE_NCCL_IN_PROGRESS. Then only async_error and abort may be called
 * until async_error returns something else. Where the communicator isn't ready within the backend's
 * time limit, or kernels are to leave before, it is aborted: COPSE_TIMEOUT or COPSE_ABORTED.
 * `before`: how all before it went here; what failed at one rank fails at all.
 */
struct copse_cuda;
copse_status copse_nccl_links_join(struct copse_nccl_links *links, const struct copse_cuda *cuda,
                                   copse_status before, struct copse_err *err);

/*
 * Makes the last call on a communicator of the device, abort or destroy, in a thread of its own.
 * The call may wait for the host's other ranks to end theirs, and for graphs that others must
 * destroy. So it is waited for copse_nccl_end_seconds at most (tests change them), and then goes on
 * by itself.
 */
extern double copse_nccl_end_seconds;
void copse_nccl_end(int (*call)(void *comm), void *comm, int device);
copse_status copse_nccl_check(const struct copse_nccl_links *links, int result, const char *call,
                              struct copse_err *err);
