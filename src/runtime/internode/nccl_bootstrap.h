/*
 * Inside src/runtime/cuda only: a job's NCCL communicator as the bootstrap of ours.
 */
#ifndef COPSE_RUNTIME_INTERNODE_NCCL_BOOTSTRAP_H
#define COPSE_RUNTIME_INTERNODE_NCCL_BOOTSTRAP_H

#include "runtime/gpu/host.h"

/*
 * nccl_comm: an ncclComm_t, which must outlive the bootstrap. NCCL's functions are those that the
 * process has (whoever made the communicator loaded them), else libnccl.so.2's; COPSE_UNSUPPORTED
 * where there are none. COPSE_DEVICE for what NCCL or CUDA say, COPSE_NOMEM.
 */
copse_status copse_nccl_bootstrap_new(void *nccl_comm, int *n_ranks, int *rank, int *device,
                                      copse_bootstrap *out, struct copse_err *err);
void copse_nccl_bootstrap_free(copse_bootstrap *bootstrap);

struct copse_nccl_id { /* ncclUniqueId */
  char bytes[128];
};

/* ncclConfig_t as NCCL 2.14 had it; later ones go by its version and leave the rest as it is. */
struct copse_nccl_config {
  size_t size;
  unsigned int magic, version;
  int blocking;
};

/* Point-to-point messages between ranks, bytes on a stream. What stands between start and end of a
 * group moves at the same time; messages between two ranks match in order. */
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

/* The functions of a bootstrap's NCCL, not joined. COPSE_UNSUPPORTED where the bootstrap is another
 * one, or NCCL is older than 2.7. */
copse_status copse_nccl_links_of(const copse_bootstrap *bootstrap, struct copse_nccl_links *out,
                                 struct copse_err *err);
/*
 * A communicator of our own, of the bootstrap's ranks on the device that is current. Collective. It
 * is not split off the job's: what such a one shares with its parent, the parent's configuration
 * decides (splitShare, NCCL_COMM_SPLIT_SHARE_RESOURCES), and with a shared one the job's would be
 * aborted too. It doesn't block from NCCL 2.27.3 on (NCCL_COMM_BLOCKING=1 forbids it): group_end may leave
 * COPSE_NCCL_IN_PROGRESS, after which only async_error and abort may be called until the former has
 * another answer. Aborted, and COPSE_TIMEOUT or COPSE_ABORTED, where it isn't ready within the limit or
 * before *leave is set (atomically, by another thread).
 */
copse_status copse_nccl_links_join(struct copse_nccl_links *links, const copse_bootstrap *bootstrap,
                                   uint32_t n_ranks, uint32_t rank, double limit_seconds,
                                   const uint32_t *leave, struct copse_err *err);
/*
 * The last call on a communicator of the device, abort or destroy. It may wait for the other ranks of the
 * host to end theirs, and for graphs that others are to destroy; it is waited for so long at most
 * (tests change it), and goes on by itself.
 */
extern double copse_nccl_end_seconds;
void copse_nccl_end(int (*call)(void *comm), void *comm, int device);
/* Between looks at something that most often takes microseconds, and sometimes for ever; look: 0, 1, ... */
void copse_nccl_nap(uint32_t look);
copse_status copse_nccl_check(const struct copse_nccl_links *links, int result, const char *call,
                              struct copse_err *err);

#endif
