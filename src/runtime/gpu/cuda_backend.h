/*
 * The state of the CUDA backend, which runs plans on NVIDIA GPUs, and what its sources share.
 *
 *   backend.cu   life, devices, errors       share.cu       memory of other processes
 *   prepare.cu   a plan's tables and memory  launch.cu      one collective
 *   kernels.cu   the interpreter on a GPU    ../internode/  ranks on several hosts
 *
 * All workers of the local ranks on one device run in one kernel, whose blocks start together, so
 * that ranks which share a device are resident together. Kernels on different devices run at the
 * same time. Calls of a group share a kernel, one after another, where they can (launch.cu).
 *
 *      process                          a rank's memory, shared by IPC
 *   +------------------------+          +-------+---------+---------+---+  +---------+
 *   | device 0: kernel, with |  reads,  | slots | segment | segment |...|  | staging |
 *   |   workers of rank 0, 1 |  writes  +-------+---------+---------+---+  +---------+
 *   | device 1: kernel ...   | ------->  of all   of a plan: counters,      of all
 *   +------------------------+           plans    packets x 2, words        plans
 *
 * All plans use the same slots and staging. Launches of a communicator follow each other on every
 * device, and nobody writes a rank's slots or output before some worker of it has entered the
 * launch (codegen/check/proof.c), so nobody reads there any more for the launch before. Counters
 * keep their values between launches and packets are written before their reader enters: they are
 * each plan's own.
 *
 * Multicast plans (NVLink SHARP): where a plan of the folder has groups, the arena is memory that
 * the driver maps twice: each rank's part by itself, as all other memory, and all parts at one
 * address, at which a switch adds and copies. Every rank has a GPU of its own, all are on one host.
 * Where the group can't be made, these plans are left out at all ranks.
 *
 * GPUs without peer access (PCIe workstations, virtual machines). What a rank writes into memory of
 * one that it can't reach goes through page-locked host memory: every area has a mirror there, of
 * the same layout. Pair by pair: a slot, packet or counter is in the mirror where one of those who
 * name it doesn't reach its rank's GPU. A device's tables name a rank's mirror as rank n_ranks + r,
 * so that the kernel knows nothing of it. Outputs that peers write are staged, in host memory.
 */
#pragma once

#include "base/types.h"
#include "copse/comm.h"
#include "runtime/gpu/host.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/kernel_args.h"

extern "C" {
#include "runtime/backend/backend.h"
#include "runtime/gpu/peer_barrier.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
}

#define COPSE_CUDA_MAX_DEVICES 64u

/* The last launch on a device, or the last work of others that it must follow (copse_cuda_lead):
 * outside of captures or inside of one. */
struct copse_last_launch {
  cudaEvent_t done;
  bool launched;
  unsigned long long stream; /* its id, since a handle may be used again for another stream */
};

/* The last launch in a capture. Several may be open, and calls may go to them in turn. */
#define COPSE_CUDA_CAPTURES 4u
struct copse_captured_launch {
  unsigned long long capture; /* id of the capture; 0: none yet */
  struct copse_last_launch last;
};

struct copse_cuda_device {
  int ordinal; /* CUDA's number */
  uint32_t n_multiprocessors;
  uint64_t max_pitch;  /* bytes, of copies in rows */
  cudaEvent_t entered; /* orders another rank's stream before the launch */
  struct copse_last_launch eager;
  struct copse_captured_launch captured[COPSE_CUDA_CAPTURES];
  uint32_t n_captures; /* so far: the newest takes the oldest one's place */
  bool in_graphs;      /* some launch was captured, and graphs record eager.done too */
  bool untracked; /* eager.done doesn't cover all launches: graphs, a call that failed */
  cudaStream_t *own; /* [n_own] the backend's, made when first needed */
  size_t n_own, own_capacity;
  /* Staged messages of several parts: a part has moved; each half of the staging is copied out. */
  cudaEvent_t moved, copied[2];
  bool copying[2]; /* the latter is to be waited for before peers write the half again */
};

/* A plan on one device. */
struct copse_plan_on_device {
  unsigned char *tables; /* device memory behind all pointers in `plan`, but for the segments */
  struct copse_device_plan plan;
  uint32_t n_blocks, n_threads; /* of each launch */
  bool fits_beside; /* so many blocks also of every kernel that reduces */
};

/* Sizes within a rank's memory segment for a plan: signals, two copies of packets, status words, in
 * this order; and of the slots that it needs. */
struct copse_segment_layout {
  uint64_t signals_bytes, packets_copy;
  uint64_t words_bytes; /* 0 where all ranks share a host */
  uint64_t slots_bytes;
};

/* Memory of the same size at every rank, as this process addresses it; by ranks, NULL for those of
 * other hosts. */
struct copse_cuda_area {
  struct copse_cuda_area *next;
  uint64_t bytes;
  bool on_host;                         /* page-locked, not on a device */
  bool grouped; /* all ranks' parts also have one address together: */
  unsigned char *group;
  uint64_t parts[COPSE_CUDA_MAX_RANKS], whole; /* the driver's handles behind both; 0: none */
  uint32_t n_bound;                            /* of the local ranks' parts to the whole */
  const struct copse_cuda_area *mirror; /* on the host, of the same layout; or NULL */
  unsigned char *at[COPSE_CUDA_MAX_RANKS];
  /* IPC mappings of others' memory; on the host, where there are processes: of all, own as well */
  void *opened[COPSE_CUDA_MAX_RANKS];
  char name[COPSE_PEER_BARRIER_NAME]; /* of shared memory that others may still open, or "" */
};

struct copse_split;       /* ../internode/rounds.h */
struct copse_cuda_rounds; /* ../internode/internode.h */
struct copse_internode;   /* ../internode/internode.h */

struct copse_cuda_plan {
  const struct copse_plan *plan;    /* as given; over several hosts split->local */
  struct copse_split *split;        /* NULL where all ranks share a host */
  const bool *crosses;              /* [n_channels] to another host; NULL without split */
  struct copse_cuda_rounds *rounds; /* cut so far; kept until the free, since graphs may use them */
  struct copse_cuda_plan *next;
  uint32_t number;
  struct copse_layout layout;
  struct copse_segment_layout segment; /* the maximum over all ranks, equal at all ranks */
  /* By ranks, as this process addresses them. */
  unsigned char *segments[COPSE_CUDA_MAX_RANKS], *slots[COPSE_CUDA_MAX_RANKS];
  unsigned char *mirror_segments[COPSE_CUDA_MAX_RANKS], *mirror_slots[COPSE_CUDA_MAX_RANKS];
  bool puts; /* peers write a rank's output */
  bool grouped; /* multicast */
  bool logged;  /* then: that ranks do some reductions that the switch doesn't have */
  unsigned char *group; /* then: all ranks' slots together */
  struct copse_plan_on_device devices[COPSE_CUDA_MAX_DEVICES];
};

/* A buffer that its owner registered, and how this process addresses every rank's: area.at. */
struct copse_cuda_buffer {
  struct copse_cuda_buffer *next;
  unsigned char *start; /* of this process's rank */
  size_t bytes;
  struct copse_cuda_area area;
};

struct copse_cuda {
  uint32_t n_ranks, first_local, n_local;
  copse_bootstrap bootstrap; /* all_gather is NULL where all ranks are local */
  bool many_processes;
  bool mixes_graphs; /* launches of graphs are ordered with others (NCCL_GRAPH_MIXING_SUPPORT) */
  uint32_t n_hosts;  /* 0: not yet known. Ranks of a host reach each other's memory */
  uint32_t host_of[COPSE_CUDA_MAX_RANKS];
  /* Bit b % 64 of word b / 64: rank a has no access to the memory of b's GPU, on its host. */
  uint64_t beyond[COPSE_CUDA_MAX_RANKS][2];
  bool has_mirrors; /* some bit is set */
  bool shares_gpus; /* two ranks, in processes of a host, have one GPU */
  void *probe;      /* the few bytes that other processes try to open, until the next vote */
  struct copse_err probed;
  struct copse_peer_barrier
      *peer_barrier; /* NULL: this host's processes leave over the bootstrap */
  char barrier_name[COPSE_PEER_BARRIER_NAME]; /* of this process's own while others may open it */
  struct copse_internode *internode;          /* NULL where all ranks share a host */
  uint32_t n_devices;
  uint64_t group_granularity; /* bytes; 0: whether there are groups wasn't asked yet */
  struct copse_cuda_device devices[COPSE_CUDA_MAX_DEVICES];
  uint32_t device_of[COPSE_CUDA_MAX_RANKS]; /* of local ranks: index into devices */
  void *get_attribute; /* the driver's cuPointerGetAttribute, or NULL before its first use */
  /* Of local ranks: the id of the last output that all devices were found to reach. */
  unsigned long long reached[COPSE_CUDA_MAX_RANKS];
  struct copse_control *control;
  double timeout_seconds;
  uint64_t limit_ns; /* the same; atomic, for the thread that watches messages */
  struct copse_cuda_plan *plans;
  struct copse_cuda_area *areas;                 /* all; of them: */
  const struct copse_cuda_area *slots, *staging; /* NULL: none so far; at the start of the first */
  uint64_t slots_bytes;
  uint64_t
      staged_to; /* bytes of staging, up to the last message that was staged whole: the next one's
                    place, which so is the same at all ranks however their calls are grouped */
  struct copse_cuda_buffer *buffers;
  uint32_t n_plans;
};

/* ---- backend.cu ------------------------------------------------------------------------- */

/* Whether kernels are to leave before their end. check_left says why, or COPSE_OK. */
bool copse_cuda_is_broken(const struct copse_cuda *cuda);
copse_status copse_cuda_check_left(const struct copse_cuda *cuda, struct copse_err *err);
const struct copse_cuda_plan *copse_cuda_plan_number(const struct copse_cuda *cuda,
                                                     uint32_t number);

/* Whether all GPUs of this process may write a local rank's output; COPSE_INVALID names one that
 * may not. Remembers the last output's memory and doesn't look at it again. */
copse_status copse_cuda_check_reach(struct copse_cuda *cuda, uint32_t local_rank,
                                    const void *output, struct copse_err *err);
/* Finds a function of the CUDA driver. COPSE_UNSUPPORTED where it has none of this name. */
copse_status copse_cuda_find_driver(const char *name, void **function, struct copse_err *err);

/* ---- prepare.cu ------------------------------------------------------------------------- */

copse_status copse_cuda_prepare(void *backend, const struct copse_plan *const *plans, size_t n,
                                void **prepared, struct copse_err *err);
/* Returns the bytes that all plans' slots of a rank may take. More ranks have more regions each. */
uint64_t copse_cuda_slots_limit(uint32_t n_ranks);
/* Counts how many blocks of n_threads threads fit on a device at once, for the kernel that takes
 * most of those that reduce, or don't. */
copse_status copse_cuda_room(bool reduces, const struct copse_cuda_device *device,
                             uint32_t n_threads, uint32_t *room, struct copse_err *err);
void copse_cuda_plan_free(struct copse_cuda *cuda, struct copse_cuda_plan *plan);
void copse_cuda_areas_free(struct copse_cuda *cuda);

/* ---- launch.cu -------------------------------------------------------------------------- */

/* Signals have the scope of the system also where one would do. For tests. */
extern bool copse_cuda_system;
/* Threads of a block. Tests make it small. */
extern uint32_t copse_cuda_threads;
/* Bytes of staging for outputs which aren't registered. Messages of over a third of it move in
 * parts, each half of it in turn. Tests make it small. */
extern uint64_t copse_cuda_staging_bytes;

copse_status copse_cuda_launch(void *backend, const struct copse_batch *batches, uint32_t n,
                               uint32_t *n_taken, struct copse_err *err);
/* Orders a stream with the communicator's launches, for work of others on the same ranks
 * (backend.h). */
copse_status copse_cuda_follow(void *backend, uint32_t local_rank, copse_stream stream,
                               struct copse_err *err);
copse_status copse_cuda_lead(void *backend, uint32_t local_rank, copse_stream stream,
                             struct copse_err *err);
/* Returns a stream of the backend's that is not `beside` and can follow it, also into a capture. */
copse_status copse_cuda_own_stream(struct copse_cuda_device *device, cudaStream_t beside,
                                   cudaStream_t *stream, struct copse_err *err);
/* Enqueues the kernel of a device for one call. */
copse_status copse_cuda_launch_kernel(const struct copse_cuda *cuda,
                                      const struct copse_cuda_plan *plan, uint32_t device,
                                      cudaStream_t stream, const struct copse_launch_args *args,
                                      struct copse_err *err);

/* ---- share.cu --------------------------------------------------------------------------- */

/* Calls all_gather of the bootstrap, with its error as text. */
copse_status copse_cuda_gather(const struct copse_cuda *cuda, const void *mine, void *all,
                               size_t bytes, struct copse_err *err);
/* What a process sends the others before they go on together. */
struct copse_cuda_ballot {
  int32_t status;
  uint32_t lacks_barrier;
  uint64_t beyond[2];
  uint64_t left_out[16]; /* plans that don't fit here: bit i % 64 of word i / 64 */
};
enum { COPSE_CUDA_MOST_VOTES = 16 * 64 };
/* Returns the vote's status, or the first other process's that isn't COPSE_OK, so that all go on or
 * none does; left_out gets everybody's. Collective across processes. Without others: its own. */
copse_status copse_cuda_vote(struct copse_cuda *cuda, struct copse_cuda_ballot *mine,
                             struct copse_err *err);
/* Does the same for a status alone. */
copse_status copse_cuda_agree(struct copse_cuda *cuda, copse_status mine, struct copse_err *err);
/* Maps every rank's part of n areas, at most three, into this process; at[] of its own rank is
 * there. `mine`: whether they are; what fails at one rank fails at all. Collective across
 * processes. */
copse_status copse_cuda_share(struct copse_cuda *cuda, struct copse_cuda_area *const *areas,
                              uint32_t n, copse_status mine, struct copse_err *err);
/* Closes and clears all ranks' mappings. */
void copse_cuda_unshare(struct copse_cuda *cuda, struct copse_cuda_area *area);
/* Makes memory of the local ranks on the host, zeroed, that all devices reach: shared memory of a
 * name where there are several processes. */
copse_status copse_cuda_host_area(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                  struct copse_err *err);
/* Removes the name when all have opened it, or nobody will. */
void copse_cuda_host_settle(struct copse_cuda_area *area);
void copse_cuda_host_free(struct copse_cuda *cuda, struct copse_cuda_area *area);
/* Whether the local ranks' GPUs are at a switch that adds and copies; COPSE_UNSUPPORTED says why
 * not. Sets group_granularity. Then memory of a group: area->bytes is a multiple of it. Zeroed; to
 * be shared where there are several processes, and bound when all of them have shared it. */
copse_status copse_cuda_group_check(struct copse_cuda *cuda, struct copse_err *err);
copse_status copse_cuda_group_area(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                   struct copse_err *err);
copse_status copse_cuda_group_bind(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                   struct copse_err *err);
void copse_cuda_group_free(struct copse_cuda *cuda, struct copse_cuda_area *area);
/* Which ranks reach which GPUs' memory (NCCL_P2P_DISABLE=1: no other GPU's): each rank offers a few
 * bytes, the others try to open them, and the next vote tells all. What failed: probe_status. */
struct copse_cuda_probe {
  cudaIpcMemHandle_t handle;
  int32_t status;
};
void copse_cuda_probe_offer(struct copse_cuda *cuda, struct copse_cuda_probe *mine);
void copse_cuda_probe_try(struct copse_cuda *cuda, const struct copse_cuda_probe *all);
copse_status copse_cuda_probe_status(const struct copse_cuda *cuda, struct copse_err *err);
bool copse_cuda_denies_peers(void);
static inline bool copse_cuda_reaches(const struct copse_cuda *cuda, uint32_t a, uint32_t b) {
  return !(cuda->beyond[a][b / 64] >> b % 64 & 1);
}
copse_status copse_cuda_add_buffer(void *backend, uint32_t local_rank, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err);
copse_status copse_cuda_remove_buffer(void *backend, uint32_t local_rank, void *handle,
                                      struct copse_err *err);

/* How long a process waits for its peers when it leaves, and how long processes that come from one
 * all_gather may take to send each other descriptors. Tests change it. */
extern double copse_cuda_leave_seconds, copse_cuda_swap_seconds;
/* Offers the name of a barrier at which the processes of a host will leave each other, "" where
 * this rank has none; the host's first is used, if all ranks of all hosts have theirs: the next
 * vote decides. */
void copse_cuda_leave_offer(struct copse_cuda *cuda, char name[COPSE_PEER_BARRIER_NAME]);
void copse_cuda_leave_choose(struct copse_cuda *cuda, const char *name);
/* Leaves the other processes, each by itself. No memory that is shared by IPC may be used
 * afterwards. */
void copse_cuda_leave(struct copse_cuda *cuda);
/* Frees memory that was kept for peers which have left since. */
void copse_cuda_leave_sweep(void);

/* ---- what ../internode adds where ranks are on several hosts ---------------------------- */

/* The host that tests let this process be on; 0: its real host. */
extern uint64_t copse_cuda_host;

/* Finds which rank is on which host and, where there are several, joins them by NCCL. Collective
 * across processes at its first call. */
copse_status copse_internode_find_hosts(struct copse_cuda *cuda, struct copse_err *err);
void copse_internode_close(struct copse_cuda *cuda); /* after copse_internode_find_hosts or not */

/* Splits a plan where there are several hosts (rounds.h): sets plan->split, crosses and plan. */
copse_status copse_internode_split(const struct copse_cuda *cuda, struct copse_cuda_plan *plan,
                                   struct copse_err *err);
/* Cuts a split plan for numbers of chunks that show whether it can run at all. */
copse_status copse_internode_try_rounds(struct copse_cuda *cuda, struct copse_cuda_plan *plan,
                                        struct copse_err *err);
void copse_internode_plan_free(struct copse_cuda_plan *plan);
/* Replaces the thread's own stream, whose handle means another one to a thread of NCCL's, by one
 * of the backend's that can follow it. */
copse_status copse_internode_find_stream(struct copse_cuda *cuda, cudaStream_t *stream,
                                         struct copse_err *err);
/* Enqueues the rounds of a split plan. */
copse_status copse_internode_launch(struct copse_cuda *cuda, struct copse_cuda_plan *plan,
                                    cudaStream_t stream, struct copse_launch_args *args,
                                    struct copse_err *err);
/* Returns the error behind COPSE_LEAVE_MESSAGES. */
copse_status copse_internode_report(const struct copse_cuda *cuda, struct copse_err *err);

/* Makes a bootstrap over a job's ncclComm_t, which must outlive it. Uses the NCCL that the process
 * has loaded (whoever made the communicator did), else libnccl.so.2; COPSE_UNSUPPORTED where there
 * is none. COPSE_DEVICE for errors of NCCL and CUDA, COPSE_NOMEM. */
copse_status copse_nccl_bootstrap_new(void *nccl_comm, int *n_ranks, int *rank, int *device,
                                      copse_bootstrap *out, struct copse_err *err);
void copse_nccl_bootstrap_free(copse_bootstrap *bootstrap);
