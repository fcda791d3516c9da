#include "nccl/fake_nccl.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- counting ------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything here */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static struct {
  char name[32];
  int n;
} counts[64];
static char failing[32];

static ncclResult_t called(const char *name) {
  pthread_mutex_lock(&lock);
  int i = 0;
  while (*counts[i].name && strcmp(counts[i].name, name) != 0) i++;
  strcpy(counts[i].name, name);
  counts[i].n++;
  ncclResult_t result = strcmp(failing, name) == 0 ? ncclInternalError : ncclSuccess;
  pthread_mutex_unlock(&lock);
  return result;
}
#define CALLED(name)                            \
  do {                                          \
    ncclResult_t called_ = called(name);        \
    if (called_ != ncclSuccess) return called_; \
  } while (0)

int fake_nccl_calls(const char *name) {
  int n = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 64; i++)
    if (strcmp(counts[i].name, name) == 0) n = counts[i].n;
  pthread_mutex_unlock(&lock);
  return n;
}

void fake_nccl_fail(const char *name) {
  pthread_mutex_lock(&lock);
  strcpy(failing, name ? name : "");
  pthread_mutex_unlock(&lock);
}

/* ---- communicators ------------------------------------------------------------------------- */

enum kind {
  ALL_REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  BROADCAST,
  REDUCE,
  ALL_TO_ALL,
  SEND,
  RECV,
  JOIN,
  SPLIT
};

struct op {
  enum kind kind;
  const char *send;
  char *recv;
  size_t count;
  ncclDataType_t type;
  int root; /* or peer; color of a split */
  ncclComm_t comm;
  ncclComm_t *made; /* SPLIT */
};

/* One collective on its way, or the making of a communicator. */
struct round {
  struct op ops[16];
  int n_posted, n_computed;
};

struct message {
  struct message *next;
  int src, dst;
  char *data;
};

struct shared {
  struct shared *next;
  char id[128];
  int n_ranks, n_left;
  struct round *rounds[4096]; /* kept until the end: the test is short */
  struct message *messages;
};
static struct shared *all_shared;

struct ncclComm {
  struct shared *shared;
  int rank, n_rounds;
  bool blocking;
};

static struct shared *find_shared(const char *id, int n_ranks) {
  struct shared *it = all_shared;
  while (it && memcmp(it->id, id, sizeof it->id) != 0) it = it->next;
  if (it) return it;
  it = calloc(1, sizeof *it);
  memcpy(it->id, id, sizeof it->id);
  it->n_ranks = it->n_left = n_ranks;
  it->next = all_shared;
  all_shared = it;
  return it;
}

static ncclComm_t new_comm(const char *id, int n_ranks, int rank, bool blocking) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  pthread_mutex_lock(&lock);
  comm->shared = find_shared(id, n_ranks);
  pthread_mutex_unlock(&lock);
  comm->rank = rank;
  comm->blocking = blocking;
  return comm;
}

static void free_comm(ncclComm_t comm) {
  struct shared *shared = comm->shared, **at = &all_shared;
  free(comm);
  pthread_mutex_lock(&lock);
  if (--shared->n_left == 0) {
    while (*at != shared) at = &(*at)->next;
    *at = shared->next;
    for (int i = 0; i < 4096; i++) free(shared->rounds[i]);
    free(shared);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- running -------------------------------------------------------------------------------- */

static size_t bytes_of(ncclDataType_t type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

/* Sums of float and int32; of others, bytes are added. */
static void sum(char *to, const char *from, size_t count, ncclDataType_t type) {
  for (size_t i = 0; i < count; i++) {
    if (type == 7)
      ((float *)to)[i] += ((const float *)from)[i];
    else if (type == 2)
      ((int32_t *)to)[i] += ((const int32_t *)from)[i];
    else
      to[i] = (char)(to[i] + from[i]);
  }
}

/* What this rank receives, computed while nobody writes. */
static char *compute(const struct op *op, const struct round *round, size_t *bytes) {
  int n = op->comm->shared->n_ranks, r = op->comm->rank;
  size_t block = op->count * bytes_of(op->type);
  bool wide = op->kind == ALL_GATHER || op->kind == ALL_TO_ALL;
  *bytes = wide ? block * (size_t)n : block;
  char *out = calloc(*bytes + 1, 1);
  for (int s = 0; s < n; s++) {
    const char *send = round->ops[s].send;
    if (op->kind == ALL_GATHER) memcpy(out + (size_t)s * block, send, block);
    if (op->kind == ALL_TO_ALL) memcpy(out + (size_t)s * block, send + (size_t)r * block, block);
    if (op->kind == BROADCAST && s == op->root) memcpy(out, send, block);
    if (op->kind == ALL_REDUCE || op->kind == REDUCE) sum(out, send, op->count, op->type);
    if (op->kind == REDUCE_SCATTER) sum(out, send + (size_t)r * block, op->count, op->type);
  }
  if (op->kind == REDUCE && r != op->root) *bytes = 0;
  return out;
}

static struct round *post(const struct op *op) {
  struct shared *shared = op->comm->shared;
  int i = op->comm->n_rounds++;
  if (i >= 4096) abort();
  pthread_mutex_lock(&lock);
  if (!shared->rounds[i]) shared->rounds[i] = calloc(1, sizeof *shared->rounds[i]);
  struct round *round = shared->rounds[i];
  round->ops[op->comm->rank] = *op;
  round->n_posted++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return round;
}

static void wait_for(const int *counter, int n) {
  pthread_mutex_lock(&lock);
  while (*counter < n) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void make_child(const struct op *op, const struct round *round) {
  char id[128] = "child";
  int n = 0, rank = 0;
  if (op->root < 0) return;
  for (int r = 0; r < op->comm->shared->n_ranks; r++) {
    if (round->ops[r].root != op->root) continue;
    if (r == op->comm->rank) rank = n;
    n++;
  }
  memcpy(id + 8, &round, sizeof round);
  memcpy(id + 16, &op->root, sizeof op->root);
  *op->made = new_comm(id, n, rank, op->comm->blocking);
}

/* A thread may have several ranks of a round: all of them compute before one of them writes. */
struct result {
  struct round *round;
  char *data;
  size_t bytes;
};

static void compute_one(const struct op *op, struct result *result) {
  wait_for(&result->round->n_posted, op->comm->shared->n_ranks);
  if (op->kind < SEND) result->data = compute(op, result->round, &result->bytes);
  if (op->kind == SPLIT) make_child(op, result->round);
  pthread_mutex_lock(&lock);
  result->round->n_computed++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void write_one(const struct op *op, const struct result *result) {
  wait_for(&result->round->n_computed, op->comm->shared->n_ranks);
  if (result->bytes > 0) memcpy(op->recv, result->data, result->bytes);
  free(result->data);
}

static void send_message(const struct op *op) {
  struct message *it = malloc(sizeof *it), **at = &op->comm->shared->messages;
  size_t bytes = op->count * bytes_of(op->type);
  *it = (struct message){NULL, op->comm->rank, op->root, malloc(bytes + 1)};
  memcpy(it->data, op->send, bytes);
  pthread_mutex_lock(&lock);
  while (*at) at = &(*at)->next;
  *at = it;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void receive_message(const struct op *op) {
  struct message *it = NULL, **at;
  pthread_mutex_lock(&lock);
  for (;;) {
    for (at = &op->comm->shared->messages; *at; at = &(*at)->next)
      if ((*at)->src == op->root && (*at)->dst == op->comm->rank) break;
    if (*at) break;
    pthread_cond_wait(&changed, &lock);
  }
  it = *at;
  *at = it->next;
  pthread_mutex_unlock(&lock);
  memcpy(op->recv, it->data, op->count * bytes_of(op->type));
  free(it->data);
  free(it);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static _Thread_local int depth;
static _Thread_local struct op queue[1024];
static _Thread_local int n_queued;
static _Thread_local ncclResult_t group_result;
static _Thread_local bool group_in_progress;

static bool is_pair(const struct op *op) { return op->kind == SEND || op->kind == RECV; }

static void run_queue(void) {
  struct result results[1024] = {{NULL, NULL, 0}};
  for (int i = 0; i < n_queued; i++) {
    if (queue[i].kind == SEND) send_message(&queue[i]);
    if (!is_pair(&queue[i])) results[i].round = post(&queue[i]);
  }
  for (int i = 0; i < n_queued; i++)
    if (!is_pair(&queue[i])) compute_one(&queue[i], &results[i]);
  for (int i = 0; i < n_queued; i++) {
    if (queue[i].kind == RECV) receive_message(&queue[i]);
    if (!is_pair(&queue[i])) write_one(&queue[i], &results[i]);
  }
  n_queued = 0;
}

static ncclResult_t enqueue(const char *name, struct op op) {
  ncclResult_t result = called(name);
  if (result == ncclSuccess) queue[n_queued++] = op;
  if (depth > 0 && result != ncclSuccess) group_result = result;
  if (depth > 0 && op.kind == JOIN && !op.comm->blocking) group_in_progress = true;
  if (depth == 0) run_queue();
  return result;
}

FAKE ncclResult_t ncclGroupStart(void) {
  depth++;
  return called("GroupStart");
}

FAKE ncclResult_t ncclGroupEnd(void) {
  if (depth == 0) return ncclInvalidUsage;
  ncclResult_t result = called("GroupEnd");
  if (--depth > 0) return result;
  if (result == ncclSuccess) result = group_result;
  if (result == ncclSuccess) run_queue();
  if (result == ncclSuccess && group_in_progress) result = ncclInProgress;
  n_queued = 0;
  group_result = ncclSuccess;
  group_in_progress = false;
  return result;
}

FAKE ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  (void)info;
  depth--;
  n_queued = 0;
  return called("GroupSimulateEnd");
}

/* ---- the functions ----------------------------------------------------------------------------
 */

FAKE ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int n;
  memset(id, 0, sizeof *id);
  pthread_mutex_lock(&lock);
  snprintf(id->internal, sizeof id->internal, "id %d", ++n);
  pthread_mutex_unlock(&lock);
  return called("GetUniqueId");
}

FAKE ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank) {
  *comm = new_comm(id.internal, n_ranks, rank, true);
  return enqueue("CommInitRank", (struct op){.kind = JOIN, .comm = *comm});
}

FAKE ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                         ncclConfig_t *config) {
  bool blocking = !config || config->blocking != 0;
  *comm = new_comm(id.internal, n_ranks, rank, blocking);
  ncclResult_t result = enqueue("CommInitRankConfig", (struct op){.kind = JOIN, .comm = *comm});
  return result == ncclSuccess && !blocking ? ncclInProgress : result;
}

FAKE ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
  ncclUniqueId id;
  (void)devices;
  CALLED("CommInitAll");
  (void)ncclGetUniqueId(&id);
  for (int r = 0; r < n; r++) comms[r] = new_comm(id.internal, n, r, true);
  return ncclSuccess;
}

static char graph_file[256];

FAKE const char *fake_nccl_graph_file(void) { return graph_file; }

FAKE ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                                ncclConfig_t *config) {
  (void)key, (void)config;
  pthread_mutex_lock(&lock);
  const char *path = getenv("NCCL_GRAPH_FILE");
  snprintf(graph_file, sizeof graph_file, "%s", path ? path : "");
  pthread_mutex_unlock(&lock);
  *made = NULL;
  return enqueue("CommSplit",
                 (struct op){.kind = SPLIT, .comm = comm, .root = color, .made = made});
}

/* All ranks but one leave it out. */
FAKE ncclResult_t ncclCommShrink(ncclComm_t comm, int *without, int n_without, ncclComm_t *made,
                                 ncclConfig_t *config, int flags) {
  char id[128] = "shrunk";
  (void)config, (void)flags;
  CALLED("CommShrink");
  if (n_without != 1) return ncclInvalidArgument;
  memcpy(id + 8, &comm->shared, sizeof comm->shared);
  *made = new_comm(id, comm->shared->n_ranks - 1, comm->rank - (comm->rank > *without), true);
  return ncclSuccess;
}

FAKE ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  (void)comm;
  return called("CommFinalize");
}
FAKE ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  free_comm(comm);
  return called("CommDestroy");
}
FAKE ncclResult_t ncclCommAbort(ncclComm_t comm) {
  free_comm(comm);
  return called("CommAbort");
}
FAKE ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  (void)comm, (void)flags;
  return called("CommRevoke");
}
FAKE ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *async) {
  (void)comm;
  *async = ncclSuccess;
  return called("CommGetAsyncError");
}
FAKE const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "the fake's last error";
}
FAKE const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of the fake";
}
FAKE ncclResult_t ncclGetVersion(int *version) {
  *version = 22899;
  return called("GetVersion");
}
FAKE ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) {
  CALLED("CommCount");
  *n = comm->shared->n_ranks;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  (void)comm;
  *device = -1; /* COPSE_DEVICE_CPU */
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes,
                                   void **handle) {
  (void)comm, (void)bytes;
  *handle = buffer;
  return called("CommRegister");
}
FAKE ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                           ncclScalarResidence_t residence, ncclComm_t comm) {
  (void)scalar, (void)type, (void)residence, (void)comm;
  *op = 5;
  return called("RedOpCreatePreMulSum");
}

FAKE ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)op, (void)stream;
  return enqueue("AllReduce", (struct op){ALL_REDUCE, send, recv, count, type, -1, comm, NULL});
}
FAKE ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)op, (void)stream;
  return enqueue("pncclAllReduce",
                 (struct op){ALL_REDUCE, send, recv, count, type, -1, comm, NULL});
}
FAKE ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclComm_t comm, cudaStream_t stream) {
  (void)stream;
  return enqueue("AllGather", (struct op){ALL_GATHER, send, recv, count, type, -1, comm, NULL});
}
FAKE ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)op, (void)stream;
  return enqueue("ReduceScatter",
                 (struct op){REDUCE_SCATTER, send, recv, count, type, -1, comm, NULL});
}
FAKE ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                int root, ncclComm_t comm, cudaStream_t stream) {
  (void)stream;
  return enqueue("Broadcast", (struct op){BROADCAST, send, recv, count, type, root, comm, NULL});
}
/* As in the real one, through the public function, which a preloaded library may have taken. */
FAKE ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  CALLED("Bcast");
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
FAKE ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  (void)op, (void)stream;
  return enqueue("Reduce", (struct op){REDUCE, send, recv, count, type, root, comm, NULL});
}
FAKE ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  (void)stream;
  return enqueue("AlltoAll", (struct op){ALL_TO_ALL, send, recv, count, type, -1, comm, NULL});
}
FAKE ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t comm, cudaStream_t stream) {
  (void)stream;
  return enqueue("Send", (struct op){SEND, send, NULL, count, type, peer, comm, NULL});
}
FAKE ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
  (void)stream;
  return enqueue("Recv", (struct op){RECV, NULL, recv, count, type, peer, comm, NULL});
}
