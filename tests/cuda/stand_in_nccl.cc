#include "cuda/stand_in_nccl.h"

#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "cuda/ring.h"
#include "emulation/emulation.h"
#include "runtime/internode/nccl_bootstrap.h"

#define NCCL extern "C" __attribute__((visibility("default"), used))

struct message {
  bool sends;
  unsigned char *at;
  size_t count;
  int peer;
  unsigned char header[8]; /* the count, before the bytes: sizes must match */
  size_t moved;            /* of header and bytes */
};

/* What moves at once, in the stream. Graphs come back to it, so it lives until the end. */
struct group {
  struct stand_in_comm *comm;
  struct meeting *meeting;
  cudaStream_t stream;
  std::vector<message> messages;
  /* as a kernel: */
  std::mutex lock;
  std::condition_variable changed;
  bool done;     /* all has moved */
  unsigned left; /* blocks that have seen it */
};

static std::vector<group *> all_groups;
static group *open_group;
static unsigned n_blocks;
static int n_alive, n_aborted, reported;
static bool aborts_are_held, ends_are_held, connections_are_held, readiness_is_held; /* atomically */
static bool always_blocks;
static int version = 22809;
static struct meeting *who_meets;
static std::vector<stand_in_comm *> all_comms;
static uint64_t n_sent, n_sent_data;

uint64_t stand_in_sent(void) { return n_sent; }
uint64_t stand_in_sent_data(void) { return n_sent_data; }

void stand_in_take_blocks(unsigned blocks) { n_blocks = blocks; }

void stand_in_meet(struct meeting *meeting) { who_meets = meeting; }
void stand_in_hold_aborts(bool hold) {
  __atomic_store_n(&aborts_are_held, hold, __ATOMIC_RELEASE);
}
void stand_in_hold_connections(bool hold) {
  __atomic_store_n(&connections_are_held, hold, __ATOMIC_RELEASE);
}
void stand_in_hold_readiness(void) { __atomic_store_n(&readiness_is_held, true, __ATOMIC_RELEASE); }
void stand_in_set_version(int v) { version = v; }
void stand_in_always_block(void) { always_blocks = true; }
void stand_in_hold_ends(bool hold) { __atomic_store_n(&ends_are_held, hold, __ATOMIC_RELEASE); }
int stand_in_alive(void) { return __atomic_load_n(&n_alive, __ATOMIC_ACQUIRE); }
int stand_in_aborted(void) { return __atomic_load_n(&n_aborted, __ATOMIC_ACQUIRE); }
/* Of calls that end at once: how often "in progress" is still to be said. */
static bool is_slow;
static int n_in_progress;
enum { IN_PROGRESS = 7 /* ncclResult_t */ };

void stand_in_be_slow(void) { is_slow = true; }
static int said_slowly(int result) {
  if (!is_slow || result != 0) return result;
  __atomic_store_n(&n_in_progress, 2, __ATOMIC_RELEASE);
  return IN_PROGRESS;
}

void stand_in_report(int failure) { __atomic_store_n(&reported, failure, __ATOMIC_RELEASE); }

void stand_in_free(void) {
  for (stand_in_comm *comm : all_comms) delete comm;
  all_comms.clear();
  for (group *g : all_groups) delete g;
  all_groups.clear();
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* As many bytes as there are, or is room for. */
static bool advance(struct meeting *m, message *it) {
  meeting_ring *ring =
      it->sends ? &m->place->rings[m->rank][it->peer] : &m->place->rings[it->peer][m->rank];
  uint64_t put = __atomic_load_n(&ring->put, __ATOMIC_ACQUIRE);
  uint64_t taken = __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE);
  uint64_t n = it->sends ? MAX_RING - (put - taken) : put - taken;
  size_t left = sizeof it->header + it->count - it->moved;
  if (n > left) n = left;
  const bool has_header = ring_move(ring->bytes, MAX_RING, it->sends ? &put : &taken, it->sends,
                                    it->header, sizeof it->header, it->at, &it->moved, n);
  if (!it->sends && has_header) {
    uint64_t sent;
    memcpy(&sent, it->header, sizeof sent);
    DEVICE_ASSERT(sent == it->count, "rank %d: %llu bytes from rank %d, it expects %zu", m->rank,
                  (unsigned long long)sent, it->peer, it->count);
  }
  __atomic_store_n(it->sends ? &ring->put : &ring->taken, it->sends ? put : taken,
                   __ATOMIC_RELEASE);
  return n > 0;
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All at once, but between two ranks one way one after the other. */
static void move_group(void *data) {
  group *g = (group *)data;
  double since = seconds_now();
  usleep((unsigned)(getpid() * 7919 + (int)g->messages.size() * 104729) % 300);
  for (message &it : g->messages) {
    uint64_t count = it.count;
    memcpy(it.header, &count, sizeof count);
    it.moved = 0;
  }
  unsigned us = FIRST_NAP_US;
  for (bool done = false; !done && !__atomic_load_n(&g->comm->aborted, __ATOMIC_ACQUIRE);) {
    bool moved = false, busy[2][MAX_PROCESSES] = {};
    done = true;
    for (message &it : g->messages) {
      if (it.moved == sizeof it.header + it.count || busy[it.sends][it.peer]) continue;
      moved = advance(g->meeting, &it) || moved;
      busy[it.sends][it.peer] = it.moved < sizeof it.header + it.count;
      done = done && !busy[it.sends][it.peer];
    }
    if (moved) {
      since = seconds_now();
      us = FIRST_NAP_US;
    } else if (!done) {
      nap(&us);
    }
    DEVICE_ASSERT(seconds_now() - since < 60, "rank %d: a message never comes or is never taken",
                  g->meeting->rank);
  }
}

/* As a kernel of NCCL's would: its blocks come as there is room, and stay until the end. */
static void message_kernel(group *g) {
  if (blockIdx.x == 0) {
    move_group(g);
    std::lock_guard<std::mutex> hold(g->lock);
    g->done = true;
    g->changed.notify_all();
  }
  std::unique_lock<std::mutex> hold(g->lock);
  g->changed.wait(hold, [g] { return g->done; });
  if (++g->left < gridDim.x) return;
  g->left = 0;
  g->done = false;
}

static bool is_aborted(const stand_in_comm *comm) {
  return __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE);
}

/* ---- the calls --------------------------------------------------------------------------------- */

static struct meeting *meeting_of(void *comm) { return ((struct stand_in_comm *)comm)->meeting; }

NCCL int ncclCommCount(void *comm, int *count) {
  *count = meeting_of(comm)->n;
  return 0;
}

NCCL int ncclCommUserRank(void *comm, int *rank) {
  *rank = meeting_of(comm)->rank;
  return 0;
}

NCCL int ncclCommCuDevice(void *, int *device) {
  *device = 0;
  return 0;
}

NCCL const char *ncclGetErrorString(int) { return "a failure"; }

NCCL int ncclGetVersion(int *v) {
  *v = version;
  return 0;
}

NCCL int ncclGetUniqueId(struct copse_nccl_id *id) {
  memset(id, 'i', sizeof *id);
  return 0;
}

NCCL int ncclCommInitRank(void **made, int n_ranks, struct copse_nccl_id id, int rank) {
  if (!who_meets || n_ranks != who_meets->n || rank != who_meets->rank || id.bytes[127] != 'i')
    return 4;
  stand_in_comm *child = new stand_in_comm(who_meets);
  all_comms.push_back(child);
  __atomic_fetch_add(&n_alive, 1, __ATOMIC_RELEASE);
  *made = child;
  return said_slowly(0);
}

NCCL int ncclCommInitRankConfig(void **made, int n_ranks, struct copse_nccl_id id, int rank,
                                struct copse_nccl_config *config) {
  if (config->size < sizeof *config || config->magic != 0xcafebeef || config->version != 21400)
    return 4;
  DEVICE_ASSERT(version >= 22703 || config->blocking, "asked not to block");
  const int result = ncclCommInitRank(made, n_ranks, id, rank);
  stand_in_comm *comm = (stand_in_comm *)*made;
  if (result == 0 || result == IN_PROGRESS) comm->blocks = config->blocking || always_blocks;
  if (result != 0 || comm->blocks) return result;
  comm->result = IN_PROGRESS;
  comm->goes_on = std::thread([comm] {
    while (__atomic_load_n(&readiness_is_held, __ATOMIC_ACQUIRE) && !is_aborted(comm)) usleep(1000);
    __atomic_store_n(&comm->result, 0, __ATOMIC_RELEASE);
  });
  return IN_PROGRESS;
}

static int result_of(const stand_in_comm *comm) {
  return __atomic_load_n(&comm->result, __ATOMIC_ACQUIRE);
}

/* Frees nothing: graphs may hold it. */
static void end(stand_in_comm *comm) {
  while (__atomic_load_n(&ends_are_held, __ATOMIC_ACQUIRE)) usleep(1000);
  if (comm->goes_on.joinable()) comm->goes_on.join();
  __atomic_fetch_sub(&n_alive, 1, __ATOMIC_RELEASE);
}

NCCL int ncclCommDestroy(void *comm) {
  DEVICE_ASSERT(result_of((stand_in_comm *)comm) == 0, "destroyed, but its last call hasn't ended well");
  end((stand_in_comm *)comm);
  return 0;
}

NCCL int ncclCommAbort(void *comm) {
  __atomic_store_n(&((stand_in_comm *)comm)->aborted, true, __ATOMIC_RELEASE);
  __atomic_fetch_add(&n_aborted, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&aborts_are_held, __ATOMIC_ACQUIRE)) usleep(1000);
  end((stand_in_comm *)comm);
  return 0;
}

NCCL int ncclCommGetAsyncError(void *handle, int *error) {
  stand_in_comm *comm = (stand_in_comm *)handle;
  DEVICE_ASSERT(!is_aborted(comm), "an aborted communicator is asked");
  *error = comm->is_late ? (int)IN_PROGRESS : result_of(comm);
  comm->is_late = false;
  if (*error != 0) return 0;
  if (comm->goes_on.joinable()) comm->goes_on.join();
  const int left = __atomic_load_n(&n_in_progress, __ATOMIC_ACQUIRE);
  if (left > 0) __atomic_store_n(&n_in_progress, left - 1, __ATOMIC_RELEASE);
  *error = left > 0 ? (int)IN_PROGRESS : __atomic_load_n(&reported, __ATOMIC_ACQUIRE);
  return 0;
}

NCCL int ncclAllGather(const void *send, void *recv, size_t count, int type, void *comm,
                       cudaStream_t stream) {
  if (type != COPSE_NCCL_UINT8 || cudaStreamSynchronize(stream) != cudaSuccess) return 1;
  return said_slowly(
      meeting_all_gather(meeting_of(comm), send, recv, count) == COPSE_OK ? 0 : 1);
}

NCCL int ncclGroupStart(void) {
  if (open_group) return 1;
  open_group = new group{};
  return 0;
}

static int add_message(bool sends, void *at, size_t count, int type, int peer, void *comm,
                       cudaStream_t stream) {
  struct meeting *m = meeting_of(comm);
  if (!open_group || type != COPSE_NCCL_UINT8 || peer < 0 || peer >= m->n || peer == m->rank)
    return 1;
  if (result_of((stand_in_comm *)comm) != 0) return 4; /* the last call goes on, or failed */
  if (sends) n_sent += count;
  if (sends && count != sizeof(uint32_t)) n_sent_data += count;
  open_group->comm = (stand_in_comm *)comm;
  open_group->meeting = m;
  open_group->stream = stream;
  open_group->messages.push_back(message{sends, (unsigned char *)at, count, peer, {}, 0});
  return 0;
}

NCCL int ncclSend(const void *from, size_t count, int type, int peer, void *comm,
                  cudaStream_t stream) {
  return add_message(true, (unsigned char *)(uintptr_t)from, count, type, peer, comm, stream);
}

NCCL int ncclRecv(void *to, size_t count, int type, int peer, void *comm, cudaStream_t stream) {
  return add_message(false, to, count, type, peer, comm, stream);
}

static int enqueue(group *g) {
  if (n_blocks == 0)
    return cudaLaunchHostFunc(g->stream, move_group, g) == cudaSuccess ? 0 : 1;
  const size_t shared = 227 << 10; /* all that a block can have */
  void *arguments[] = {&g};
  if (cudaFuncSetAttribute(message_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           (int)shared) != cudaSuccess)
    return 1;
  return cudaLaunchKernel(message_kernel, dim3(n_blocks), dim3(1), arguments, shared, g->stream) ==
                 cudaSuccess
             ? 0
             : 1;
}

/* Until the other side is there, for ever if need be. */
static int connect_and_enqueue(group *g) {
  while (__atomic_load_n(&connections_are_held, __ATOMIC_ACQUIRE) && !is_aborted(g->comm))
    usleep(1000);
  return is_aborted(g->comm) ? 3 : enqueue(g);
}

/* NCCL has a thread for each group of a communicator that doesn't block; here some do, since under
 * sanitizers threads are slow. */
enum { GROUPS_TO_A_THREAD = 4 };
static bool needs_thread(stand_in_comm *comm) {
  return comm->n_groups++ % GROUPS_TO_A_THREAD == 0 ||
         __atomic_load_n(&connections_are_held, __ATOMIC_ACQUIRE);
}

NCCL int ncclGroupEnd(void) {
  group *g = open_group;
  if (!g) return 1;
  open_group = NULL;
  all_groups.push_back(g);
  if (!g->comm) return 0; /* empty */
  stand_in_comm *comm = g->comm;
  if (comm->blocks) return said_slowly(connect_and_enqueue(g));
  if (comm->goes_on.joinable()) comm->goes_on.join();
  if (!needs_thread(comm)) {
    comm->is_late = true;
    __atomic_store_n(&comm->result, connect_and_enqueue(g), __ATOMIC_RELEASE);
    return IN_PROGRESS;
  }
  __atomic_store_n(&comm->result, (int)IN_PROGRESS, __ATOMIC_RELEASE);
  comm->goes_on = std::thread([g] {
    __atomic_store_n(&g->comm->result, connect_and_enqueue(g), __ATOMIC_RELEASE);
  });
  return IN_PROGRESS;
}
