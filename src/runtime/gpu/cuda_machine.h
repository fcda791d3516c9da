/*
 * Inside src/runtime/cuda only: the machine that runs plans on NVIDIA GPUs.
 *
 * A site is a device with one or more ranks of the clique. All workers of a site's ranks run in
 * one cooperative kernel, so that ranks which share a device are resident together; sites run at
 * the same time because they are different devices.
 *
 *   machine.cu   sites, life, errors        share.cu    memory of other processes
 *   prepare.cu   a plan's tables and memory launch.cu   one collective
 *   hosts.cu     which ranks share a host   rounds.cu   data between hosts
 *   lanes.cu     rounds beside each other   watch.cu    messages that never come
 *   nccl_bootstrap.cu                       what comes from the job's NCCL
 */
#ifndef COPSE_RUNTIME_GPU_CUDA_MACHINE_H
#define COPSE_RUNTIME_GPU_CUDA_MACHINE_H

#include "runtime/gpu/host.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/launch.h"
#include "runtime/internode/nccl_bootstrap.h"

extern "C" {
#include "runtime/internode/rounds.h"
}

#define COPSE_CUDA_MAX_SITES 64u

/* The last launch of a site, outside of captures or inside of one. */
struct copse_last_launch {
  cudaEvent_t done;
  bool launched;
  unsigned long long stream; /* its id: a handle may be used again for another stream */
};

struct copse_site {
  int device;
  uint32_t n_multiprocessors;
  uint64_t max_pitch;  /* of copies in rows */
  cudaEvent_t entered; /* a rank's stream, up to the launch */
  struct copse_last_launch eager, captured;
  unsigned long long capture; /* that the captured one is in */
  bool untracked; /* eager.done doesn't tell of all that was launched: graphs, a call that failed */
};

/* Over several hosts a message may move in two parts, so that one is between hosts while the
 * kernel works on the other. Each has a lane: counters, slots and words of its own. */
#define COPSE_CUDA_LANES 2u

/* A plan at one site. */
struct copse_site_plan {
  unsigned char *tables; /* device memory: everything that device.* points to, but for arenas */
  struct copse_device_plan device[COPSE_CUDA_LANES];
  uint32_t n_blocks, n_threads; /* of each launch */
};

/* A rank's memory for a plan, and lane after lane of it: signals, slots, two copies of packets,
 * words, in this order. */
struct copse_arena_shape {
  uint64_t signals_bytes, slots_bytes, packets_copy;
  uint64_t words_bytes; /* 0 where all ranks share a host */
};

/* From the start of an arena to a lane. */
static inline uint64_t copse_lane_offset(const struct copse_arena_shape *shape, uint32_t lane) {
  return lane * (shape->signals_bytes + shape->slots_bytes + 2 * shape->packets_copy +
                 shape->words_bytes);
}

/* The rounds of a plan for one number of chunks; on the device their cursors, and what of an
 * alltoall comes to an inbox of this rank: in round r items [first_item[r], first_item[r + 1]). */
struct copse_cuda_rounds {
  struct copse_cuda_rounds *next;
  struct copse_rounds *rounds;
  unsigned char *memory; /* of both */
  struct copse_cursor *cursors;
  struct copse_unpack_item *items;
  uint32_t *first_item; /* [n_rounds + 1] on the host; NULL where there are no inboxes */
};

struct copse_cuda_plan {
  const struct copse_plan *plan;    /* as it was given, or over several hosts split->local */
  struct copse_split *split;        /* NULL where all ranks share a host */
  struct copse_cuda_rounds *rounds; /* so far: graphs may hold them until the plan is freed */
  struct copse_cuda_plan *next;
  uint32_t number;
  uint32_t n_lanes; /* the same at all ranks */
  struct copse_layout layout;
  struct copse_arena_shape shape;      /* the largest of all ranks, the same for each */
  unsigned char **arenas;              /* [n_ranks] as this process addresses them */
  unsigned char **staging;             /* [n_ranks] outputs that peers write, likewise */
  void **opened; /* [2 * n_ranks] what was opened for arenas and staging, or NULL */
  bool is_shared;                      /* other processes may have opened this one's memory */
  bool puts;                           /* peers write a rank's output */
  struct copse_site_plan *sites;       /* [machine->n_sites] */
};

/* A stream of the machine's own, beside the caller's, for messages between hosts. */
struct copse_side_stream {
  struct copse_side_stream *next;
  cudaStream_t stream;
};

/* A buffer that its owner registered, and how this process addresses everybody's. */
struct copse_cuda_buffer {
  struct copse_cuda_buffer *next;
  unsigned char *start; /* of this process's rank */
  size_t bytes;
  unsigned char **mapped; /* [n_ranks] */
  void **opened;          /* [n_ranks] what to close, or NULL */
};

struct copse_cuda_watch; /* watch.cu */
struct copse_farewell;   /* farewell.h */

struct copse_cuda_machine {
  uint32_t n_ranks, first_local, n_local;
  copse_bootstrap bootstrap; /* all_gather NULL: all ranks are local */
  bool many_processes;
  uint32_t n_hosts; /* 0: not yet known. Ranks of a host reach each other's memory */
  uint32_t host_of[COPSE_CUDA_MAX_RANKS];
  struct copse_farewell *farewell; /* of this host's processes; NULL: they leave over the bootstrap */
  struct copse_nccl_links links; /* where there are several hosts */
  struct copse_cuda_watch *watch; /* likewise */
  cudaStream_t upload;           /* likewise: of nobody else's, for cursors */
  struct copse_side_stream *sides; /* likewise: one, and more where graphs are captured */
  cudaEvent_t computed, arrived[COPSE_CUDA_LANES]; /* likewise: between those and the caller's */
  uint32_t n_sites;
  struct copse_site sites[COPSE_CUDA_MAX_SITES];
  uint32_t site_of[COPSE_CUDA_MAX_RANKS]; /* of local ranks */
  void *get_attribute; /* of pointers: the driver's function, or NULL before it is needed */
  unsigned long long reached[COPSE_CUDA_MAX_RANKS]; /* of local ranks: memory that peers may write */
  struct copse_control *control;
  double timeout_seconds;
  uint64_t limit_ns; /* the same, atomically, for the thread that watches */
  struct copse_cuda_plan *plans;
  struct copse_cuda_buffer *buffers;
  uint32_t n_plans;
};

/* launch.cu. Threads of a block; and what outputs that aren't registered are written in: parts of
 * so many bytes of each block at most. Tests make them small. */
extern uint32_t copse_cuda_threads;
extern uint64_t copse_cuda_staging_bytes;
/* lanes.cu. Messages between hosts from this size on move in parts. Tests make it small. */
extern uint64_t copse_cuda_lanes_bytes;

/* Tests: this process's host; 0: the one it runs on. */
extern uint64_t copse_cuda_host;

/* hosts.cu. Collective across processes at its first call: which rank is on which host. */
copse_status copse_cuda_find_hosts(struct copse_cuda_machine *machine, struct copse_err *err);

/* leave.cu. Collective: how the processes of a host will leave each other. Then each leaves by itself,
 * and waits for the others so long at most (tests change it); nothing shared by IPC may be used any
 * more. sweep frees what was kept for others that have left since. */
extern double copse_cuda_leave_seconds;
copse_status copse_cuda_leave_open(struct copse_cuda_machine *machine, struct copse_err *err);
void copse_cuda_leave(struct copse_cuda_machine *machine);
void copse_cuda_leave_sweep(void);

/* rounds.cu. Cuts a split plan for so many chunks, unless it was before; may be called while some
 * stream is captured. */
copse_status copse_cuda_find_rounds(struct copse_cuda_machine *machine,
                                    struct copse_cuda_plan *plan, uint32_t n_chunks,
                                    const struct copse_cuda_rounds **out, struct copse_err *err);
void copse_cuda_free_rounds(struct copse_cuda_plan *plan);
static inline bool copse_cuda_has_messages(const struct copse_cuda_rounds *it, uint32_t round) {
  return it->rounds->first_message[round] < it->rounds->first_message[round + 1];
}
/* A round of the part of a message that is in a lane. */
struct copse_cuda_stage {
  const struct copse_cuda_rounds *it;
  uint32_t round, lane;
};
/* Its messages, from and to this process's rank, and out of the inboxes where counts of pairs are
 * given; its launch has these arguments. */
copse_status copse_cuda_exchange(struct copse_cuda_machine *machine,
                                 const struct copse_cuda_plan *plan,
                                 const struct copse_cuda_stage *stage,
                                 const struct copse_launch_args *args, cudaStream_t stream,
                                 struct copse_err *err);

/* lanes.cu */
copse_status copse_cuda_lanes_open(struct copse_cuda_machine *machine, struct copse_err *err);
void copse_cuda_lanes_close(struct copse_cuda_machine *machine);
/* How many lanes a plan may have at this rank; n_blocks and n_threads of its site are known. */
copse_status copse_cuda_count_lanes(const struct copse_cuda_machine *machine,
                                    const struct copse_cuda_plan *plan, uint32_t *n_lanes,
                                    struct copse_err *err);
/* Into how many parts a message of args->shape, in as few chunks as the plan wants, is cut, and
 * its rounds in the caller's stream. */
copse_status copse_cuda_launch_rounds(struct copse_cuda_machine *machine,
                                      struct copse_cuda_plan *plan, cudaStream_t stream,
                                      struct copse_launch_args *args, struct copse_err *err);

/* watch.cu. Collective: a communicator of the machine's own for m->links, and a thread that watches
 * it. */
copse_status copse_cuda_watch_open(struct copse_cuda_machine *machine, struct copse_err *err);
void copse_cuda_watch_close(struct copse_cuda_machine *machine);
/* Around calls of NCCL with m->links; begin fails, and no end follows, where it was aborted. */
copse_status copse_cuda_watch_begin(struct copse_cuda_machine *machine, struct copse_err *err);
void copse_cuda_watch_end(struct copse_cuda_machine *machine);
/* The end of what NCCL began for the plan in the stream, after watch_end, and left in progress. */
copse_status copse_cuda_watch_await(struct copse_cuda_machine *machine,
                                    const struct copse_cuda_plan *plan, cudaStream_t stream,
                                    struct copse_err *err);
/* In the stream: a call of the plan begins here; NULL: ends. */
copse_status copse_cuda_watch_mark(struct copse_cuda_machine *machine,
                                   const struct copse_cuda_plan *plan, cudaStream_t stream,
                                   struct copse_err *err);
copse_status copse_cuda_watch_report(const struct copse_cuda_machine *machine,
                                     struct copse_err *err);

/* prepare.cu */
copse_status copse_cuda_prepare(void *machine, const struct copse_plan *plan, void **prepared,
                                struct copse_err *err);
/* Blocks of so many threads that `n_multiprocessors` hold at once, of the plan's kernel that takes
 * most. */
copse_status copse_cuda_room(const struct copse_plan *plan, int device,
                             uint32_t n_multiprocessors, uint32_t n_threads, uint32_t *room,
                             struct copse_err *err);
void copse_cuda_plan_free(struct copse_cuda_machine *machine, struct copse_cuda_plan *plan);

/* launch.cu */
copse_status copse_cuda_launch(void *machine, void *prepared, const struct copse_call *calls,
                               struct copse_err *err);
/* The kernel of a site; args->plan is one of the site's. */
copse_status copse_cuda_launch_site(const struct copse_cuda_machine *machine,
                                    const struct copse_cuda_plan *plan, uint32_t site,
                                    cudaStream_t stream, struct copse_launch_args *args,
                                    struct copse_err *err);

/*
 * share.cu. A process's status, or the first other one's that isn't COPSE_OK, so that all go on or
 * none does. Without other processes: its own.
 */
copse_status copse_cuda_agree(struct copse_cuda_machine *machine, copse_status mine,
                              struct copse_err *err);
/* The least of all processes' numbers. */
copse_status copse_cuda_least(struct copse_cuda_machine *machine, uint32_t mine, uint32_t *least,
                              struct copse_err *err);
/*
 * mapped[r] gets the address of rank r's memory in this process: what it gave itself (`mine`)
 * for the local rank. Collective across processes.
 */
copse_status copse_cuda_share(struct copse_cuda_machine *machine, unsigned char *mine,
                              unsigned char **mapped, void **opened, struct copse_err *err);
void copse_cuda_unshare(struct copse_cuda_machine *machine, void **opened);
copse_status copse_cuda_add_buffer(void *machine, uint32_t local_rank, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err);
copse_status copse_cuda_remove_buffer(void *machine, uint32_t local_rank, void *handle,
                                      struct copse_err *err);

/* reach.cu. Whether all GPUs of this process may write a local rank's output; COPSE_INVALID names one
 * that may not. The last output's memory isn't looked at again. */
copse_status copse_cuda_check_reach(struct copse_cuda_machine *machine, uint32_t local_rank,
                                    const void *output, struct copse_err *err);
copse_status copse_cuda_find_driver(const char *name, void **function, struct copse_err *err);

/* machine.cu. Whether kernels were told to leave before their end, and why, or COPSE_OK; poll also asks
 * CUDA. */
bool copse_cuda_is_broken(const struct copse_cuda_machine *machine);
copse_status copse_cuda_check_left(const struct copse_cuda_machine *machine,
                                   struct copse_err *err);
const struct copse_cuda_plan *copse_cuda_plan_number(const struct copse_cuda_machine *machine,
                                                     uint32_t number);
copse_status copse_cuda_poll(void *machine, struct copse_err *err);

#endif
