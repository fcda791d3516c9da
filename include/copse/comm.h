/*
 * Communicators and collectives: running plans inside a job, on NVIDIA GPUs or on the CPU.
 *
 *   question                                          function
 *   -----------------------------------------------   ------------------------------------
 *   N ranks in this process (GPUs, one GPU, CPU)      copse_comm_init_all
 *   one rank per process, bootstrapped by NCCL        copse_comm_init_nccl
 *   GPUs of one host, a process each, any bootstrap   copse_comm_init_rank
 *   CPU ranks, a process each, over MPI               copse_comm_init_mpi (copse/mpi.h)
 *   the same over other messages, such as sockets     copse_comm_init_wire (copse/wire.h)
 *   which plans to run                                copse_comm_load_plans, _add_plan
 *   would this call be served?                        copse_comm_find_plan
 *   the collectives                                   copse_all_reduce, copse_all_gather, ...
 *   several calls or ranks from one thread            copse_group_start, _end
 *   zero copy into my buffers                         copse_comm_register
 *   is it still alive? stop it                        copse_comm_get_async_error, _abort
 *
 * A port from NCCL is mechanical: the same arguments in the same order, the same values of types
 * and reductions (copse/types.h), the same rules for working in place.
 *
 * Streams. On GPUs a collective is enqueued on the caller's stream and returns; it may be
 * captured into a CUDA graph. The collectives of a communicator run in the order of their calls,
 * also on different streams, and launches of graphs that hold some in the order of the launches
 * (NCCL_GRAPH_MIXING_SUPPORT=0: the caller orders graphs). cudaStreamPerThread is taken
 * for that of the thread whose call is the last: ranks of one process need streams of their own
 * there, unless one thread calls for all. On the CPU there are no streams (the argument is
 * ignored) and a call returns when the rank's result is there. Within a communicator all ranks
 * make the same calls in the same order; a call that differs is refused on every rank that can
 * see it.
 *
 * Beside NCCL. Calls of a communicator and calls of NCCL, also on the communicator that it was made
 * from, are ordered by nobody but the caller: on one stream, by events or by copse_comm_follow and
 * copse_comm_lead, alike at all ranks, as NCCL wants it for several of its own communicators.
 *
 * Ranks of one process. A collective starts when all its ranks have called: from a thread each, or
 * from one thread between copse_group_start and copse_group_end. Several ranks may name the same
 * GPU ("virtual ranks"): they run in one kernel.
 *
 * Errors. What is refused leaves a communicator as it was; what fails breaks it:
 *
 *   what                                             status             and then
 *   ----------------------------------------------   ----------------   ---------------------
 *   an argument that is wrong by itself              COPSE_INVALID      usable; the call hasn't
 *                                                                       happened for its peers
 *   calls of one process's ranks differ              COPSE_INVALID      usable
 *   calls of different processes differ: over a      COPSE_REFUTED      broken
 *     wire, or MPI; between GPUs nothing sees it       COPSE_TIMEOUT      broken
 *   no plan covers the call: refused at all          COPSE_UNSUPPORTED  usable
 *   a rank of the process has been destroyed         COPSE_INVALID      to be destroyed
 *   a wait beyond the time limit                     COPSE_TIMEOUT      broken
 *   copse_comm_abort                                 COPSE_ABORTED      broken
 *   a launch fails                                   COPSE_DEVICE, ...  broken
 *
 * When a communicator breaks, all its waiting calls end with the reason, later ones get it at
 * once, and copse_comm_get_async_error tells it; outputs are undefined, and it can only be
 * destroyed. Nothing hangs; but what a bootstrap does within its all_gather is its own affair.
 *
 * Threads. As with NCCL, one thread at a time uses a communicator; different communicators, of
 * the same process too, may be used at the same time. copse_comm_abort, _get_async_error,
 * _find_plan and _set_timeout may be called at any time from any thread.
 *
 * Environment. COPSE_PLAN_DIR: the folder of copse_comm_load_plans. COPSE_DEBUG=WARN, INFO or
 * TRACE, as NCCL_DEBUG: lines on standard error with errors (WARN), communicators and plans
 * loaded (INFO), and for each collective the plan that runs it (TRACE). Read once, off by
 * default, and the only exception to "no function prints".
 */
#ifndef COPSE_COMM_H
#define COPSE_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "copse/copse.h"
#include "copse/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's handle; opaque. */
typedef struct copse_comm copse_comm;

/* A cudaStream_t; NULL is the default stream. */
typedef void *copse_stream;

/* ---- making and ending communicators ------------------------------------------------- */

/* The device of a rank that runs on the CPU. */
#define COPSE_DEVICE_CPU (-1)

/*
 * Makes all n_ranks communicators of a job in this process: comms[r] is rank r, on devices[r]
 * (CUDA ordinals; a device may occur several times) or all on the CPU where devices is NULL or all
 * COPSE_DEVICE_CPU. Returns COPSE_INVALID for a mixture, COPSE_UNSUPPORTED where this build has no
 * CUDA, COPSE_DEVICE for what CUDA says, COPSE_NOMEM. On several GPUs peers write outputs: memory
 * of cudaMalloc, or all have access to it (cudaMemPoolSetAccess, cuMemSetAccess), or the
 * collective is COPSE_INVALID. GPUs without peer access are joined by page-locked host memory
 * (docs/running.md).
 */
COPSE_API copse_status copse_comm_init_all(copse_comm **comms, int n_ranks,
                                           const int *devices) COPSE_CHECKED;

/*
 * How the processes of a job find each other: all_gather copies `bytes` bytes from `mine` at
 * every rank into all[rank * bytes ...] at every rank, blocking; called by all ranks in the same
 * order, only from copse_comm_init_*, _load_plans, _add_plan, _register, and from _destroy where
 * processes of a host share no files.
 */
typedef struct copse_bootstrap {
  copse_status (*all_gather)(void *context, const void *mine, void *all, size_t bytes);
  void *context;
} copse_bootstrap;

/*
 * Makes the communicator of one rank per process, all on GPUs of one host: they reach each other's
 * memory by CUDA IPC, and where two have no peer access shared page-locked memory (several hosts:
 * copse_comm_init_nccl). Two ranks may share a GPU only if the driver lets their kernels run at
 * the same time. Collective. The bootstrap is copied; its context must outlive the communicator.
 */
COPSE_API copse_status copse_comm_init_rank(copse_comm **comm, int n_ranks, int rank, int device,
                                            const copse_bootstrap *bootstrap) COPSE_CHECKED;

/*
 * Makes the communicator of one rank per process, bootstrapped by the NCCL communicator (an
 * ncclComm_t) that the job already has; same ranks, same device. NCCL is found in the process, or
 * by dlopen of libnccl.so.2. Collective over the NCCL communicator, which must outlive this one.
 *
 * Ranks may be on several hosts, experimental: with COPSE_SEVERAL_HOSTS=1 at all ranks. Within a
 * host they reach each other's memory, between hosts data go by ncclSend and ncclRecv, ordered by
 * the call's stream, over an NCCL communicator of copse's own that has the same ranks. Any plan is
 * right wherever its ranks are. Low-latency plans save waits within a host only, and for
 * copse_all_to_all_v see there. A wait for a message of another host ends with COPSE_TIMEOUT after
 * twice the time limit, or a few seconds after copse_comm_abort, and with COPSE_DEVICE where NCCL
 * reports a failure. Calls over several hosts are not for between ncclGroupStart and ncclGroupEnd,
 * which would hold their messages back. Graphs with such calls are destroyed before
 * copse_comm_destroy, or else not launched any more; it waits for that 5 s at most.
 */
COPSE_API copse_status copse_comm_init_nccl(copse_comm **comm, void *nccl_comm) COPSE_CHECKED;

/*
 * Waits for what is enqueued (on a broken communicator: ends it), then frees; the handle is gone
 * whatever the status, which tells of errors that nobody has seen yet. Takes NULL. Collective
 * across processes; in one process in any order and from any threads, but calls of ranks that
 * are left are refused from then on. COPSE_INVALID, and nothing is freed, while the calling
 * thread's group has calls on it.
 */
COPSE_API copse_status copse_comm_destroy(copse_comm *comm);

/*
 * Ends whatever runs or waits on this communicator and on those made with it in this process:
 * kernels leave, blocked calls return COPSE_ABORTED. Any thread may call it. The communicator
 * must still be destroyed. Over a wire the other processes see it in a call that it ends, or
 * else when it is destroyed: do that before waiting for them in another way.
 */
COPSE_API copse_status copse_comm_abort(copse_comm *comm);

/* Sets *async to COPSE_OK or to why the communicator is broken; never blocks. copse_last_error has
 * the text. */
COPSE_API copse_status copse_comm_get_async_error(copse_comm *comm, copse_status *async);

/* Returns what ncclCommCount, ncclCommUserRank and ncclCommCuDevice do for NCCL's communicators.
 * COPSE_INVALID for NULL. *device: COPSE_DEVICE_CPU is the CPU. */
COPSE_API copse_status copse_comm_count(const copse_comm *comm, int *count);
COPSE_API copse_status copse_comm_user_rank(const copse_comm *comm, int *rank);
COPSE_API copse_status copse_comm_device(const copse_comm *comm, int *device);

/* Sets how long a rank waits for another within a collective, and on the CPU for another's call,
 * before it says COPSE_TIMEOUT (between hosts see copse_comm_init_nccl). Seconds, > 0; default 600.
 * Holds for all ranks of the communicator in this process. */
COPSE_API copse_status copse_comm_set_timeout(copse_comm *comm, double seconds);

/* ---- plans ---------------------------------------------------------------------------- */

/*
 * Makes the communicator able to run a plan of its number of ranks. The plan must outlive it.
 * For ranks of one process: once, on any of them. Across processes: collective, and every rank
 * must give the same plan (checksums are compared; COPSE_REFUTED names the ranks that differ).
 * COPSE_UNSUPPORTED where a GPU can't hold the plan's workers at once; the text says how many
 * would fit (copse lower --workers), and for an alltoall by demand: it moves no more than its own
 * demand, so it can serve no call (copse_all_to_all_v with any other plan does).
 */
COPSE_API copse_status copse_comm_add_plan(copse_comm *comm, const copse_plan *plan) COPSE_CHECKED;

/*
 * Adds every plan file (*.plan) of a folder that is for this number of ranks, in order of name;
 * NULL: the folder that the environment variable COPSE_PLAN_DIR names. Plans for other numbers of
 * ranks and alltoalls by demand are passed over, and those that don't fit the GPU of some rank are
 * left out at all (the log says which and why). *n_loaded (may be NULL) gets how many; none is no
 * error, unless none fits. After an error (a damaged file) none is added. The communicator owns
 * them. Else as copse_comm_add_plan.
 */
COPSE_API copse_status copse_comm_load_plans(copse_comm *comm, const char *folder,
                                             int *n_loaded) COPSE_CHECKED;

/*
 * Finds the plan that a call would run: of those for the collective (and root) whose range of
 * message sizes holds it, the one with the narrowest range, then the one added first. The size is
 * that of the whole message as nccl-tests counts it: for all_gather, reduce_scatter and all_to_all
 * n_ranks * count elements. *plan is NULL where there is none. root is -1 where there is none,
 * count as in the collective's own argument. copse_all_to_all_v runs only plans of the bandwidth
 * protocol, else it chooses like copse_all_to_all.
 */
COPSE_API copse_status copse_comm_find_plan(const copse_comm *comm, copse_collective collective,
                                            int root, size_t count, copse_type type,
                                            const copse_plan **plan) COPSE_CHECKED;

/*
 * Lets peers write straight into [buffer, buffer + bytes) instead of a staging buffer that is
 * then copied. Across processes: collective, and in a call all ranks use the same offset from
 * the start of their buffers; all deregister between the same calls, before the memory is freed
 * (copse_comm_destroy closes what peers gave too, but doesn't tell when the others have).
 * Needless (and harmless) for the ranks of one process.
 */
COPSE_API copse_status copse_comm_register(copse_comm *comm, void *buffer, size_t bytes,
                                           void **handle) COPSE_CHECKED;
COPSE_API copse_status copse_comm_deregister(copse_comm *comm, void *handle);

/*
 * Orders collectives with work of another library that waits for other ranks too.
 * copse_comm_follow lets the stream wait for the last operation that was enqueued on this rank's
 * GPU (then enqueue the other work there); copse_comm_lead lets later ones wait for what the
 * stream holds now. Nothing is waited for where the streams are the same. In a capture they take
 * part in the graph. COPSE_DEVICE.
 */
COPSE_API copse_status copse_comm_follow(copse_comm *comm, copse_stream stream) COPSE_CHECKED;
COPSE_API copse_status copse_comm_lead(copse_comm *comm, copse_stream stream) COPSE_CHECKED;

/* ---- collectives: NCCL's arguments ------------------------------------------------------ */

/*
 * Runs an allreduce by the plan that covers it. Of this and the other collectives:
 * COPSE_UNSUPPORTED where no plan covers the call (copse_comm_find_plan). A count of 0 returns at
 * once and needs no plan. Buffers are aligned to their elements, and apart or in place as in NCCL:
 * recvbuff == sendbuff, for all_gather sendbuff == recvbuff + rank * sendcount, for reduce_scatter
 * recvbuff == sendbuff + rank * recvcount. NULL may be what NCCL ignores: sendbuff of a broadcast
 * and recvbuff of a reduce at ranks that aren't the root.
 */
COPSE_API copse_status copse_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                        copse_type type, copse_redop op, copse_comm *comm,
                                        copse_stream stream) COPSE_CHECKED;
COPSE_API copse_status copse_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                        copse_type type, copse_comm *comm,
                                        copse_stream stream) COPSE_CHECKED;
COPSE_API copse_status copse_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                            copse_type type, copse_redop op, copse_comm *comm,
                                            copse_stream stream) COPSE_CHECKED;
COPSE_API copse_status copse_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                                       copse_type type, int root, copse_comm *comm,
                                       copse_stream stream) COPSE_CHECKED;
COPSE_API copse_status copse_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                    copse_type type, copse_redop op, int root, copse_comm *comm,
                                    copse_stream stream) COPSE_CHECKED;
/* Sends count elements to each rank and receives as many from each. Not in place. */
COPSE_API copse_status copse_all_to_all(const void *sendbuff, void *recvbuff, size_t count,
                                        copse_type type, copse_comm *comm,
                                        copse_stream stream) COPSE_CHECKED;

/*
 * Runs an all-to-all of uneven blocks: blocks lie `count` elements apart as in copse_all_to_all,
 * and of the block from rank i to rank j the first pair_counts[i * n_ranks + j] <= count elements
 * are sent; nothing else is read or written. pair_counts is the same matrix at every rank and is
 * read when the operation runs: device memory on a GPU, where counts beyond `count` are cut off;
 * on the CPU counts that are too large or differ between ranks are COPSE_INVALID.
 *
 * Between GPUs of several hosts (copse_comm_init_nccl) blocks travel whole, of which the receiver
 * takes what there is: it costs the bandwidth of copse_all_to_all, since a host that doesn't know
 * the counts can't size a message. At all ranks alike pair_counts may be page-locked memory
 * instead (cudaMallocHost, cudaHostAlloc): then the call reads it too, no more is sent than there
 * is, and it must not change before the operation has run, nor between launches of a graph.
 */
COPSE_API copse_status copse_all_to_all_v(const void *sendbuff, void *recvbuff, size_t count,
                                          const uint64_t *pair_counts, copse_type type,
                                          copse_comm *comm, copse_stream stream) COPSE_CHECKED;

/*
 * Opens a group of the calling thread, over any communicators: between start and end collectives
 * only queue up; the end of the outermost group starts them, in order, and reports the first
 * error. A call that is refused at once keeps its whole group from starting, and the end reports
 * it; where one of several calls fails later, the others run.
 */
COPSE_API copse_status copse_group_start(void);
COPSE_API copse_status copse_group_end(void) COPSE_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
