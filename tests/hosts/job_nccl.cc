#include "hosts/job_nccl.h"

#include "cuda/ring.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>

#define NCCL extern "C" JOB_EXPORT

/* ---- memory that the processes share ----------------------------------------------------------- */

enum { MAX_RANKS = 8, MAX_GROUPS = 2000, RING_BYTES = 4096 };

/* Messages, collectives, and what the calls themselves tell each other, don't mix. */
enum lane { PAIRS, COLLECTIVES, CALLS, N_LANES };

struct ring {
  uint64_t put, taken; /* bytes ever; atomically */
  unsigned char bytes[RING_BYTES];
};

/* A communicator, as all its ranks see it. */
struct rank_group {
  char id[128];
  uint32_t n_ranks, n_joined; /* the latter atomically */
  ring rings[N_LANES][MAX_RANKS][MAX_RANKS]; /* from, to */
};

struct place {
  uint32_t lock, n_ids, n_groups;
  rank_group groups[MAX_GROUPS];
};

static place *shared;
static std::mutex lock; /* of all of this process's that isn't a thread's */

[[noreturn]] static void die(const char *what) {
  fprintf(stderr, "the job's NCCL: %s\n", what);
  abort();
}

static place *map_place(int file) {
  void *p = mmap(NULL, sizeof(place), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) die("no memory to share");
  return (place *)p;
}

void job_nccl_begin(void) {
  char text[16];
  const int file = memfd_create("nccl", 0);
  if (file < 0 || ftruncate(file, sizeof(place)) != 0) die("no memory to share");
  snprintf(text, sizeof text, "%d", file);
  setenv("JOB_NCCL_PLACE", text, 1);
}

void job_nccl_end(void) {
  const char *text = getenv("JOB_NCCL_PLACE");
  if (text) close(atoi(text));
  unsetenv("JOB_NCCL_PLACE");
}

static place *the_place(void) {
  std::lock_guard<std::mutex> hold(lock);
  const char *text = getenv("JOB_NCCL_PLACE");
  if (!shared && !text) die("JOB_NCCL_PLACE is not set");
  if (!shared) shared = map_place(atoi(text));
  return shared;
}

static rank_group *find_group(const char *id, int n_ranks) {
  place *p = the_place();
  uint32_t i = 0, nobody = 0;
  while (!__atomic_compare_exchange_n(&p->lock, &nobody, 1, false, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED)) {
    nobody = 0;
    sched_yield();
  }
  while (i < p->n_groups && memcmp(p->groups[i].id, id, sizeof p->groups[i].id) != 0) i++;
  if (i == MAX_GROUPS) die("too many communicators");
  if (i == p->n_groups) {
    memcpy(p->groups[i].id, id, sizeof p->groups[i].id);
    p->groups[i].n_ranks = (uint32_t)n_ranks;
    p->n_groups++;
  }
  __atomic_store_n(&p->lock, 0, __ATOMIC_RELEASE);
  if (p->groups[i].n_ranks != (uint32_t)n_ranks) die("ranks of one id differ in their number");
  return &p->groups[i];
}

/* ---- what tests ask ---------------------------------------------------------------------------- */

static std::map<std::string, int> calls, failing;
static int n_alive;

static ncclResult_t called(const char *name) {
  std::lock_guard<std::mutex> hold(lock);
  calls[name]++;
  auto it = failing.find(name);
  if (it == failing.end()) return ncclSuccess;
  if (it->second == 0) return ncclInternalError;
  if (--it->second > 0) return ncclSuccess;
  failing.erase(it);
  return ncclInternalError;
}

int job_nccl_calls(const char *name) {
  std::lock_guard<std::mutex> hold(lock);
  return calls[name];
}

void job_nccl_fail(const char *name, int nth) {
  std::lock_guard<std::mutex> hold(lock);
  if (name)
    failing[name] = nth;
  else
    failing.clear();
}

int job_nccl_alive(void) {
  std::lock_guard<std::mutex> hold(lock);
  return n_alive;
}

/* ---- communicators ------------------------------------------------------------------------------ */

struct ncclComm {
  rank_group *all;
  int rank, n, device;
  uint32_t n_splits;
  bool aborted; /* atomically */
  std::vector<double> scalars; /* of ncclRedOpCreatePreMulSum */
};

static std::vector<ncclComm *> comms; /* streams and graphs may hold them till the end */

static ncclComm_t new_comm(const char *id, int n_ranks, int rank) {
  ncclComm_t comm = new ncclComm{find_group(id, n_ranks), rank, n_ranks, 0, 0, false, {}};
  if (n_ranks > MAX_RANKS || cudaGetDevice(&comm->device) != cudaSuccess) die("no such rank");
  __atomic_fetch_add(&comm->all->n_joined, 1, __ATOMIC_ACQ_REL);
  std::lock_guard<std::mutex> hold(lock);
  comms.push_back(comm);
  n_alive++;
  return comm;
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_for_ranks(const ncclComm *comm) {
  const double since = seconds_now();
  while (__atomic_load_n(&comm->all->n_joined, __ATOMIC_ACQUIRE) < comm->all->n_ranks) {
    usleep(100);
    if (seconds_now() - since > 60) die("a rank doesn't join a communicator");
  }
}

static bool is_aborted(const ncclComm *comm) {
  return __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE);
}

/* ---- moving --------------------------------------------------------------------------------------- */

struct message {
  const ncclComm *comm;
  ring *way;
  bool sends;
  unsigned char *at;
  uint64_t count;
  unsigned char header[8]; /* the count, before the bytes: sizes must match */
  size_t moved;            /* of both */
};

static message message_of(const ncclComm *comm, lane in, bool sends, int peer, const void *at,
                          uint64_t count) {
  const int from = sends ? comm->rank : peer, to = sends ? peer : comm->rank;
  message it = {comm, &comm->all->rings[in][from][to], sends, (unsigned char *)(uintptr_t)at,
                count, {}, 0};
  memcpy(it.header, &count, sizeof count);
  return it;
}

static void check_count(const message *it) {
  uint64_t count;
  memcpy(&count, it->header, sizeof count);
  if (count == it->count) return;
  fprintf(stderr, "the job's NCCL: %llu bytes come to rank %d, which expects %llu\n",
          (unsigned long long)count, it->comm->rank, (unsigned long long)it->count);
  abort();
}

/* As many bytes as there are, or is room for. */
static bool advance(message *it) {
  ring *way = it->way;
  uint64_t put = __atomic_load_n(&way->put, __ATOMIC_ACQUIRE);
  uint64_t taken = __atomic_load_n(&way->taken, __ATOMIC_ACQUIRE);
  uint64_t n = it->sends ? RING_BYTES - (put - taken) : put - taken;
  const size_t head = sizeof it->header, left = head + it->count - it->moved;
  if (n > left) n = left;
  const bool has_header = ring_move(way->bytes, RING_BYTES, it->sends ? &put : &taken, it->sends,
                                    it->header, head, it->at, &it->moved, n);
  if (!it->sends && has_header) check_count(it);
  __atomic_store_n(it->sends ? &way->put : &way->taken, it->sends ? put : taken, __ATOMIC_RELEASE);
  return n > 0;
}

/* All at once, but one way of a communicator one after the other. */
static void move_all(std::vector<message> *messages) {
  double since = seconds_now();
  unsigned us = FIRST_NAP_US;
  for (bool done = false; !done;) {
    bool moved = false;
    std::vector<const ring *> busy[2];
    done = true;
    for (message &it : *messages) {
      bool behind = false;
      if (it.moved == sizeof it.header + it.count || is_aborted(it.comm)) continue;
      for (const ring *way : busy[it.sends]) behind = behind || way == it.way;
      if (!behind) moved = advance(&it) || moved;
      if (it.moved < sizeof it.header + it.count) {
        busy[it.sends].push_back(it.way);
        done = false;
      }
    }
    if (moved) {
      since = seconds_now();
      us = FIRST_NAP_US;
    } else if (!done) {
      nap(&us);
    }
    if (seconds_now() - since > 60) die("a message never comes or is never taken");
  }
}

/* ---- operations ------------------------------------------------------------------------------------ */

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, SEND, RECV };

struct op {
  enum kind kind;
  const unsigned char *send;
  unsigned char *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t redop;
  int root; /* or peer */
  ncclComm_t comm;
  cudaStream_t stream;
};

static size_t bytes_of(ncclDataType_t type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

template <typename T>
static void fold(T *to, const T *from, size_t n, const op &o, double scalar) {
  for (size_t i = 0; i < n; i++) {
    const T x = o.redop >= 5 ? (T)(from[i] * (T)scalar) : from[i];
    if (o.redop == 0 || o.redop >= 4) to[i] = (T)(to[i] + x);
    if (o.redop == 1) to[i] = (T)(to[i] * x);
    if (o.redop == 2) to[i] = to[i] > x ? to[i] : x;
    if (o.redop == 3) to[i] = to[i] < x ? to[i] : x;
  }
}

/* In the order of the ranks. Of those types that tests pass. */
template <typename T>
static void reduce(unsigned char *out, const std::vector<std::vector<unsigned char>> &in, size_t n,
                   const op &o) {
  const double scalar = o.redop >= 5 ? o.comm->scalars.at(o.redop - 5) : 1;
  std::vector<T> sum(n, (T)(o.redop == 1));
  for (size_t r = 0; r < in.size(); r++) {
    const T *from = (const T *)(const void *)in[r].data();
    if (r == 0 && (o.redop == 2 || o.redop == 3))
      memcpy(sum.data(), from, n * sizeof(T));
    else
      fold(sum.data(), from, n, o, scalar);
  }
  for (T &x : sum)
    if (o.redop == 4) x = (T)(x / (T)in.size());
  memcpy(out, sum.data(), n * sizeof(T));
}

/* What comes from every rank to this one, [n] each `bytes`; nothing where none does. */
struct inbox {
  op o;
  std::vector<std::vector<unsigned char>> in;
};

/* What rank `to` needs of this one's input. */
static const unsigned char *part_for(const op &o, int to, size_t block) {
  const bool apart = o.kind == REDUCE_SCATTER || o.kind == ALL_TO_ALL;
  return o.send + (apart ? (size_t)to * block : 0);
}

static bool goes(const op &o, int from, int to) {
  if (o.kind == BROADCAST) return from == o.root;
  return o.kind != REDUCE || to == o.root;
}

static void add_collective(const op &o, inbox *box, std::vector<message> *messages) {
  const int n = o.comm->n, rank = o.comm->rank;
  const size_t block = o.count * bytes_of(o.type);
  box->o = o;
  box->in.resize((size_t)n);
  for (int r = 0; r < n; r++) {
    if (goes(o, rank, r) && r != rank)
      messages->push_back(
          message_of(o.comm, COLLECTIVES, true, r, part_for(o, r, block), block));
    if (!goes(o, r, rank)) continue;
    box->in[(size_t)r].resize(block);
    if (r == rank)
      memcpy(box->in[(size_t)r].data(), part_for(o, rank, block), block);
    else
      messages->push_back(
          message_of(o.comm, COLLECTIVES, false, r, box->in[(size_t)r].data(), block));
  }
}

static void finish_collective(const inbox &box) {
  const op &o = box.o;
  const size_t block = o.count * bytes_of(o.type);
  if (o.kind == ALL_GATHER || o.kind == ALL_TO_ALL) {
    for (size_t r = 0; r < box.in.size(); r++)
      memcpy(o.recv + r * block, box.in[r].data(), block);
  } else if (o.kind == BROADCAST) {
    memcpy(o.recv, box.in[(size_t)o.root].data(), block);
  } else if (o.kind != REDUCE || o.comm->rank == o.root) {
    switch (o.type) {
      case 2: reduce<int32_t>(o.recv, box.in, o.count, o); break;
      case 7: reduce<float>(o.recv, box.in, o.count, o); break;
      case 8: reduce<double>(o.recv, box.in, o.count, o); break;
      default: die("a reduction of a type that it doesn't know");
    }
  }
}

/* What a group has for a stream. Graphs come back to it. */
struct batch {
  cudaStream_t stream;
  std::vector<op> ops;
  /* as a kernel: */
  std::mutex lock;
  std::condition_variable changed;
  unsigned n_blocks;
  bool done;              /* all has moved */
  unsigned entered, left; /* blocks that have come, and that have seen it */
};
static std::vector<batch *> batches;
static unsigned n_blocks; /* 0: no room at all */

void job_nccl_take_blocks(unsigned blocks) { n_blocks = blocks; }

static void run_batch(void *data) {
  const batch *b = (const batch *)data;
  std::vector<message> messages;
  std::vector<inbox> boxes(b->ops.size());
  for (size_t i = 0; i < b->ops.size(); i++) {
    const op &o = b->ops[i];
    if (o.kind == SEND || o.kind == RECV)
      messages.push_back(message_of(o.comm, PAIRS, o.kind == SEND, o.root,
                                    o.kind == SEND ? o.send : o.recv, o.count * bytes_of(o.type)));
    else if (o.count > 0)
      add_collective(o, &boxes[i], &messages);
  }
  usleep((unsigned)(getpid() * 7919 + (int)messages.size() * 104729) % 300);
  move_all(&messages);
  for (const inbox &box : boxes)
    if (!box.in.empty() && !is_aborted(box.o.comm)) finish_collective(box);
}

/* As a kernel of NCCL's would: its blocks come as there is room, and stay until the end. Each has a
 * part of the data, so that nothing ends before all have come. */
static void message_kernel(batch *b) {
  std::unique_lock<std::mutex> hold(b->lock);
  if (++b->entered == b->n_blocks) {
    hold.unlock();
    run_batch(b);
    hold.lock();
    b->done = true;
    b->changed.notify_all();
  }
  b->changed.wait(hold, [b] { return b->done; });
  if (++b->left < b->n_blocks) return;
  b->entered = b->left = 0;
  b->done = false;
}

static cudaError_t start(batch *b) {
  const size_t all = 227 << 10; /* shared memory that a block can have */
  void *arguments[] = {&b};
  if (b->n_blocks == 0) return cudaLaunchHostFunc(b->stream, run_batch, b);
  cudaError_t error = cudaFuncSetAttribute(
      message_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)all);
  if (error != cudaSuccess) return error;
  return cudaLaunchKernel(message_kernel, dim3(b->n_blocks), dim3(1), arguments, all, b->stream);
}

static ncclResult_t launch(const std::vector<op> &ops) {
  std::vector<batch *> fresh;
  for (const op &o : ops) {
    batch *b = NULL;
    for (batch *it : fresh)
      if (it->stream == o.stream) b = it;
    if (!b) fresh.push_back(b = new batch{o.stream, {}, {}, {}, n_blocks, false, 0, 0});
    b->ops.push_back(o);
  }
  for (batch *b : fresh) {
    int before = 0;
    {
      std::lock_guard<std::mutex> hold(lock);
      batches.push_back(b);
    }
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(b->ops[0].comm->device); /* as NCCL does, whatever is current */
    cudaError_t error = start(b);
    (void)cudaSetDevice(before);
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

void job_nccl_free(void) {
  std::lock_guard<std::mutex> hold(lock);
  for (batch *b : batches) delete b;
  for (ncclComm *comm : comms) delete comm;
  batches.clear();
  comms.clear();
}

/* ---- groups ---------------------------------------------------------------------------------------- */

static thread_local int depth;
static thread_local std::vector<op> queue;
static thread_local std::vector<const ncclComm *> joining;
static thread_local ncclResult_t group_result;

static ncclResult_t flush(void) {
  ncclResult_t result = group_result;
  std::vector<op> ops;
  std::vector<const ncclComm *> fresh;
  ops.swap(queue);
  fresh.swap(joining);
  group_result = ncclSuccess;
  if (result == ncclSuccess)
    for (const ncclComm *comm : fresh) wait_for_ranks(comm);
  return result == ncclSuccess ? launch(ops) : result;
}

NCCL ncclResult_t ncclGroupStart(void) {
  depth++;
  return called("GroupStart");
}

NCCL ncclResult_t ncclGroupEnd(void) {
  if (depth == 0) return ncclInvalidUsage;
  ncclResult_t result = called("GroupEnd");
  if (--depth > 0) return result;
  if (group_result == ncclSuccess) group_result = result;
  return flush();
}

/* NCCL wants memory that the GPU reaches. */
static bool is_reached(const void *memory) {
  struct cudaPointerAttributes it;
  return cudaPointerGetAttributes(&it, memory) == cudaSuccess &&
         it.type != cudaMemoryTypeUnregistered;
}

static ncclResult_t check(const op &o) {
  const ncclComm *comm = o.comm;
  const bool rooted = o.kind == BROADCAST || o.kind == REDUCE || o.kind >= SEND;
  const bool reads = o.kind != RECV && (o.kind != BROADCAST || o.root == comm->rank);
  const bool writes = o.kind != SEND && (o.kind != REDUCE || o.root == comm->rank);
  if (is_aborted(comm)) return ncclInvalidUsage;
  if (o.type > 11 || (rooted && (o.root < 0 || o.root >= comm->n))) return ncclInvalidArgument;
  if (o.count == 0) return ncclSuccess;
  if ((reads && !is_reached(o.send)) || (writes && !is_reached(o.recv))) return ncclInvalidArgument;
  return ncclSuccess;
}

static ncclResult_t enqueue(const char *name, const op &o) {
  ncclResult_t result = called(name);
  if (result == ncclSuccess) result = check(o);
  if (result == ncclSuccess)
    queue.push_back(o);
  else if (depth > 0)
    group_result = result;
  return depth > 0 || result != ncclSuccess ? result : flush();
}

/* ---- the functions: communicators ------------------------------------------------------------------ */

NCCL ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "id %u",
           __atomic_add_fetch(&the_place()->n_ids, 1, __ATOMIC_RELAXED));
  return called("GetUniqueId");
}

static ncclResult_t join(const char *name, ncclComm_t *comm, const char *id, int n, int rank) {
  ncclResult_t result = called(name);
  *comm = NULL;
  if (result != ncclSuccess) return result;
  *comm = new_comm(id, n, rank);
  joining.push_back(*comm);
  return depth > 0 ? ncclSuccess : flush();
}

NCCL ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
  return join("CommInitRank", comm, id.internal, n, rank);
}

/* The part of a config that all versions have. */
static bool is_config(const ncclConfig_t *config) {
  return !config || (config->size >= 24 && config->magic == 0xcafebeef);
}

NCCL ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                         ncclConfig_t *config) {
  if (!is_config(config)) return ncclInvalidArgument;
  ncclResult_t result = join("CommInitRankConfig", comm, id.internal, n, rank);
  return result == ncclSuccess && config && config->blocking == 0 ? ncclInProgress : result;
}

/* Everybody's words to everybody, at once. */
struct words {
  int32_t color, key;
};

static std::vector<words> tell_all(const ncclComm *comm, words own) {
  std::vector<words> all((size_t)comm->n);
  std::vector<message> messages;
  all[(size_t)comm->rank] = own;
  for (int r = 0; r < comm->n; r++) {
    if (r == comm->rank) continue;
    messages.push_back(message_of(comm, CALLS, true, r, &own, sizeof own));
    messages.push_back(message_of(comm, CALLS, false, r, &all[(size_t)r], sizeof own));
  }
  move_all(&messages);
  return all;
}

/* The new rank: by key, then by the parent's rank. In a group it is made at once; nothing else in
 * the group needs it. */
NCCL ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                                ncclConfig_t *config) {
  char id[128] = "";
  int n = 0, rank = 0;
  *made = NULL;
  ncclResult_t result = called("CommSplit");
  if (result != ncclSuccess) return result;
  if (!is_config(config)) return ncclInvalidArgument;
  const std::vector<words> all = tell_all(comm, {color, key});
  const uint32_t turn = comm->n_splits++;
  if (color < 0) return ncclSuccess;
  for (int r = 0; r < comm->n; r++) {
    const words &it = all[(size_t)r];
    if (it.color != color) continue;
    n++;
    rank += it.key < key || (it.key == key && r < comm->rank);
  }
  snprintf(id, sizeof id, "%ld.%u.%d", (long)(comm->all - the_place()->groups), turn, color);
  *made = new_comm(id, n, rank);
  wait_for_ranks(*made);
  return ncclSuccess;
}

static void end(ncclComm_t comm) {
  (void)comm;
  std::lock_guard<std::mutex> hold(lock);
  n_alive--;
}

NCCL ncclResult_t ncclCommFinalize(ncclComm_t) { return called("CommFinalize"); }
NCCL ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  end(comm);
  return called("CommDestroy");
}
NCCL ncclResult_t ncclCommAbort(ncclComm_t comm) {
  __atomic_store_n(&comm->aborted, true, __ATOMIC_RELEASE);
  end(comm);
  return called("CommAbort");
}
NCCL ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *async) {
  *async = ncclSuccess;
  return is_aborted(comm) ? ncclInvalidArgument : called("CommGetAsyncError");
}
NCCL const char *ncclGetLastError(ncclComm_t) { return "the job's NCCL has no last error"; }
NCCL const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of the job's NCCL";
}
NCCL ncclResult_t ncclGetVersion(int *version) {
  *version = 22809;
  return called("GetVersion");
}
NCCL ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) {
  *n = comm->n;
  return called("CommCount");
}
NCCL ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
NCCL ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  *device = comm->device;
  return ncclSuccess;
}
/* Of a float in the host's memory. */
NCCL ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *redop, void *scalar, ncclDataType_t type,
                                           ncclScalarResidence_t residence, ncclComm_t comm) {
  float value;
  if (type != 7 || residence != 1) return ncclInvalidArgument;
  memcpy(&value, scalar, sizeof value);
  *redop = (ncclRedOp_t)(5 + comm->scalars.size());
  comm->scalars.push_back((double)value);
  return called("RedOpCreatePreMulSum");
}

/* ---- the functions: moving data ---------------------------------------------------------------------- */

#define OP(kind, send, recv, redop, root)                                                     \
  op {                                                                                        \
    kind, (const unsigned char *)(send), (unsigned char *)(recv), count, type, redop, root,   \
        comm, stream                                                                          \
  }

NCCL ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("AllReduce", OP(ALL_REDUCE, send, recv, redop, -1));
}
/* Its configurations are not looked at. */
NCCL ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t redop, ncclComm_t comm,
                                      cudaStream_t stream, const ncclCollConfig_t *) {
  return enqueue("AllReduceConfig", OP(ALL_REDUCE, send, recv, redop, -1));
}
/* The handle is the memory. */
NCCL ncclResult_t ncclCommWindowRegister(ncclComm_t, void *buffer, size_t, ncclWindow_t *window,
                                         int) {
  *window = (ncclWindow_t)buffer;
  return called("CommWindowRegister");
}
NCCL ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return called("CommWindowDeregister");
}
NCCL ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclComm_t comm, cudaStream_t stream) {
  return enqueue("AllGather", OP(ALL_GATHER, send, recv, 0, -1));
}
NCCL ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                    ncclDataType_t type, ncclRedOp_t redop, ncclComm_t comm,
                                    cudaStream_t stream) {
  return enqueue("ReduceScatter", OP(REDUCE_SCATTER, send, recv, redop, -1));
}
NCCL ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("Broadcast", OP(BROADCAST, send, recv, 0, root));
}
/* As in the real one, through the public function, which the drop-in has taken. */
NCCL ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = called("Bcast");
  return result == ncclSuccess ? ncclBroadcast(buffer, buffer, count, type, root, comm, stream)
                               : result;
}
NCCL ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                             ncclRedOp_t redop, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("Reduce", OP(REDUCE, send, recv, redop, root));
}
NCCL ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  return enqueue("AlltoAll", OP(ALL_TO_ALL, send, recv, 0, -1));
}
NCCL ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue("Send", OP(SEND, send, NULL, 0, peer));
}
NCCL ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue("Recv", OP(RECV, NULL, recv, 0, peer));
}
