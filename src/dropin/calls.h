/*
 * A call of an NCCL collective, send or receive as data, and the calling thread's group.
 *
 * Order. NCCL runs the calls of a communicator one after the other, whatever their streams. copse
 * does the same with its own calls. With both at work one rank may start copse's kernel and
 * another one NCCL's. Each kernel needs all multiprocessors and waits for its peers: a hang. So
 * the stream of a passed call waits for copse's last launch, and copse's next launch waits for the
 * passed call. This is done by events, and only where the streams differ. On one stream nothing
 * waits, and a passed call costs the record of an event. Calls in a captured graph are in that
 * order too, at each launch of the graph, as with NCCL. NCCL_GRAPH_MIXING_SUPPORT=0 turns that off
 * in both.
 *
 * 2.31's collectives with a configuration (ncclAllReduceConfig and so on) are passed in that
 * order. With a NULL configuration they are handled like those without.
 *
 * The one-sided functions of 2.29 (ncclPutSignal, ncclSignal, ncclWaitSignal) are passed in no
 * order with copse's launches, on purpose. By NCCL's announcement (NVIDIA/nccl, discussion 2007)
 * copy engines and a CPU proxy do them. So they hold no multiprocessor that a peer's kernel needs,
 * and a target makes no matching call. If they were ordered, a rank's ncclWaitSignal would delay
 * its next collective until a peer has put. The peer may put only after that collective: a
 * deadlock. Streams and signals order them, as their callers wrote it.
 *
 * Groups. NCCL runs a group as one operation and promises no order inside. At the outermost end,
 * sends and receives that are no all-to-all go to NCCL. NCCL's group is launched first, then
 * copse's calls in their order. If NCCL's part fails, copse's is not started.
 *
 * Calls of one communicator and stream that follow each other in a group share a launch. One
 * kernel runs them one after another, as many as its 4 KB of arguments hold (9 of 8 ranks, 3 of
 * 64). Between two calls all blocks of the GPU meet at a barrier. To other ranks that looks like
 * the end of one kernel and the start of the next. So each rank decides by itself how many calls
 * share a launch, and groups may differ between ranks. A call has a launch of its own where it
 * reduces another type than those before it, moves in parts (over 32 MiB), has blocks of another
 * width, or takes as input what is staged for an earlier one's output. Counted in emulation: seven
 * calls of five collectives, 1 launch a GPU instead of 7; the copies out of the staging stay one a
 * call.
 *
 * A kernel of several blocks is launched cooperatively, a kernel of one block is not. The blocks
 * of a plan wait for each other, so all must be resident, and other kernels may hold
 * multiprocessors. Two kernels that wait for their peers, copse's and that of another communicator
 * of NCCL, may each hold a part of the multiprocessors that both need. NCCL takes that risk: its
 * kernels have few blocks, it no longer launches cooperatively (NVIDIA/nccl, pull request 774),
 * and its guide says that concurrent communicators "could break at any time". Occupancy says what
 * an empty GPU holds, not what is free. A stream may be limited to a part of the GPU (green
 * contexts, MPS).
 *
 * Sends and receives. A full exchange of even blocks is an all-to-all. One rank can't know that
 * the groups of other ranks are even too: it doesn't see blocks between two others. With
 * COPSE_NCCL_ALLTOALL=1 the user states that they are. Without it they are passed. ncclAlltoAll
 * (2.28) doesn't need it.
 *
 * Time. A late rank is waited for, as by NCCL, unless COPSE_TIMEOUT is set. After a call that
 * gives up, its stream runs on with results that aren't there, so aborting is left to the job's
 * watchdog. An abort asks copse's kernels to end, then NCCL's. What they used is freed once the
 * device has finished with them. If that takes over 10 s (another communicator hangs there), the
 * abort returns and a thread frees it later. Destroying a communicator waits for what was launched
 * on it, and at most two seconds for the host's other ranks.
 *
 * Several GPUs in one process. A call waits until all ranks of the process have made it, from a
 * thread each or in a group, where NCCL's returns at once. So threads must make the calls of
 * several communicators in the same order. cudaStreamPerThread is taken for the stream of the
 * thread that comes last: threads need streams of their own. Peers write outputs directly. Memory
 * of PyTorch's expandable segments and of cudaMallocAsync is open to a peer only where it was
 * given access. Such a call is refused as an invalid argument.
 *
 * Registered buffers (ncclCommRegister, windows) are registered with NCCL only: ncclCommRegister
 * is local, while copse's registration across processes is collective. Unregistered buffers go
 * through copse's staging. Calls of the four collectives without a root whose buffers both lie in
 * symmetric windows (ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC) are passed: NCCL reaches
 * those without copies. NCCL requires that a call's buffers lie there at all ranks or at none, so
 * all ranks decide alike.
 */
#pragma once

#include "base/err.h"
#include "copse/comm.h"
#include "dropin/comms.h"

/* The collectives have copse's numbers. */
enum copse_nccl_function {
  COPSE_NCCL_ALL_REDUCE = COPSE_ALLREDUCE,
  COPSE_NCCL_ALL_GATHER = COPSE_ALLGATHER,
  COPSE_NCCL_REDUCE_SCATTER = COPSE_REDUCE_SCATTER,
  COPSE_NCCL_BROADCAST = COPSE_BROADCAST,
  COPSE_NCCL_REDUCE = COPSE_REDUCE,
  COPSE_NCCL_ALL_TO_ALL = COPSE_ALLTOALL,
  COPSE_NCCL_BCAST,
  COPSE_NCCL_SEND,
  COPSE_NCCL_RECV,
  COPSE_NCCL_GATHER,
  COPSE_NCCL_SCATTER
};

struct copse_nccl_call {
  enum copse_nccl_function function;
  const void *send;
  void *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root; /* or the peer */
  ncclComm_t nccl;
  cudaStream_t stream;
  const ncclCollConfig_t *config; /* NULL: NCCL's function without */
};

/* Whether the calling thread has a group open. */
bool copse_nccl_in_group(void);

/*
 * Whether calls[0 .. n-1], sends and receives of one rank on one communicator of n_ranks, are a
 * number of all-to-alls: to and from every rank, itself included, equally often; the i-th send
 * to each and the i-th receive from each all on one stream, of one type and count, and from and
 * to blocks that lie `count` elements apart in order of rank, not in place. NCCL pairs sends and
 * receives of two ranks in their order, so that is what they mean; their order in the group is any.
 * all_to_alls (room for n / (2 * n_ranks)) gets them; *n_found is 0 where it is anything else.
 * COPSE_NOMEM. Complexity: linear.
 */
copse_status copse_nccl_find_exchanges(const struct copse_nccl_call *calls, size_t n, int n_ranks,
                                       struct copse_nccl_call *all_to_alls, size_t *n_found,
                                       struct copse_err *err) COPSE_CHECKED;
