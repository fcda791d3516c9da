/*
 * Memory of other processes, by CUDA IPC, and how processes that share memory leave each other.
 * Processes exchange handles through the bootstrap.
 *
 * Memory that a process shares must not be freed before its peers have closed it. So a process that
 * leaves closes what it opened, arrives at a barrier (peer_barrier.h), and waits there for the
 * others of its host. It waits copse_cuda_leave_seconds at most, since a peer may be gone or busy
 * elsewhere. Memory that such a peer may still use is kept, and freed when a later communicator of
 * this process comes or goes and the peer has arrived by then. Where processes of a host share no
 * files they meet by an all_gather of the bootstrap, and wait for each other without limit.
 */
#include <pthread.h>

#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "base/clock.h"
#include "runtime/gpu/peer_barrier.h"
}

double copse_cuda_leave_seconds = 2;

/* ---- agreement --------------------------------------------------------------------------- */

copse_status copse_cuda_gather(const struct copse_cuda *cuda, const void *mine, void *all,
                               size_t bytes, struct copse_err *err) {
  copse_status status = cuda->bootstrap.all_gather(cuda->bootstrap.context, mine, all, bytes);
  return status == COPSE_OK ? status : copse_fail(err, status, "the bootstrap's all_gather failed");
}

copse_status copse_cuda_agree(struct copse_cuda *cuda, copse_status mine, struct copse_err *err) {
  if (!cuda->many_processes) return mine;
  int32_t own = (int32_t)mine, all[COPSE_CUDA_MAX_RANKS];
  copse_status status =
      copse_cuda_gather(cuda, &own, all, sizeof own, mine == COPSE_OK ? err : NULL);
  if (mine != COPSE_OK) return mine;
  if (status != COPSE_OK) return status;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (all[r] != COPSE_OK)
      return copse_fail(err, (copse_status)all[r], "stopped because rank %u failed: %s", r,
                        copse_status_string((copse_status)all[r]));
  return COPSE_OK;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* What a rank sends the others about its memory. */
struct offer {
  cudaIpcMemHandle_t handle;
  uint64_t offset; /* from the start of the allocation */
  uint64_t bytes;
  int32_t ok;
  char why[100];
};

/* Every rank sees whether all could offer, so that all fail or none does. */
static copse_status exchange(const struct copse_cuda *cuda, const struct offer *mine,
                             struct offer *all, struct copse_err *err) {
  COPSE_DO(copse_cuda_gather(cuda, mine, all, sizeof *mine, err));
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (!all[r].ok)
      return copse_fail(err, COPSE_UNSUPPORTED, "rank %u can't share its memory: %.99s", r,
                        all[r].why);
  return COPSE_OK;
}

static copse_status open_all(struct copse_cuda *cuda, const struct offer *all, unsigned char *mine,
                             unsigned char **mapped, void **opened, struct copse_err *err) {
  copse_on_device here(cuda->devices[0].ordinal);
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    if (r == cuda->first_local) {
      mapped[r] = mine;
      continue;
    }
    if (cuda->host_of[r] != cuda->host_of[cuda->first_local]) continue;
    COPSE_CUDA(cudaIpcOpenMemHandle(&opened[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess));
    mapped[r] = (unsigned char *)opened[r] + all[r].offset;
  }
  return COPSE_OK;
}

static copse_status share(struct copse_cuda *cuda, struct offer *mine, unsigned char *memory,
                          unsigned char **mapped, void **opened, struct copse_err *err) {
  struct offer
      all[COPSE_CUDA_MAX_RANKS]; /* on the stack: failing here would leave others waiting */
  copse_on_device here(cuda->devices[0].ordinal);
  cudaError_t error = cudaSuccess;
  mine->ok = mine->why[0] == '\0';
  if (mine->ok) error = cudaIpcGetMemHandle(&mine->handle, memory - mine->offset);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    mine->ok = 0;
    snprintf(mine->why, sizeof mine->why, "cudaIpcGetMemHandle: %s", cudaGetErrorString(error));
  }
  COPSE_DO(exchange(cuda, mine, all, err));
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (all[r].bytes != mine->bytes)
      return copse_fail(err, COPSE_INVALID, "rank %u gives %llu bytes where rank %u gives %llu", r,
                        (unsigned long long)all[r].bytes, cuda->first_local,
                        (unsigned long long)mine->bytes);
  return open_all(cuda, all, memory, mapped, opened, err);
}

copse_status copse_cuda_share(struct copse_cuda *cuda, unsigned char *mine, unsigned char **mapped,
                              void **opened, struct copse_err *err) {
  struct offer offer;
  memset(&offer, 0, sizeof offer); /* `mine` is the start of an allocation of our own */
  return share(cuda, &offer, mine, mapped, opened, err);
}

void copse_cuda_unshare(struct copse_cuda *cuda, void **opened) {
  copse_on_device here(cuda->devices[0].ordinal); /* that opened them */
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    if (opened[r]) (void)cudaIpcCloseMemHandle(opened[r]);
    opened[r] = NULL;
  }
}

/* ---- buffers of the user ------------------------------------------------------------------ */

/* Where in its allocation the buffer starts, from the driver: a handle names a whole allocation. */
static copse_status offset_in_allocation(const void *buffer, uint64_t *offset,
                                         struct copse_err *err) {
  typedef int (*address_range)(uint64_t * base, size_t * size, uint64_t pointer);
  void *symbol = NULL;
  uint64_t base = 0;
  size_t size = 0;
  COPSE_DO(copse_cuda_find_driver("cuMemGetAddressRange", &symbol, err));
  if (((address_range)symbol)(&base, &size, (uint64_t)(uintptr_t)buffer) != 0)
    return copse_fail(err, COPSE_INVALID, "not memory that cudaMalloc gave");
  *offset = (uint64_t)(uintptr_t)buffer - base;
  return COPSE_OK;
}

static void free_buffer(struct copse_cuda *cuda, struct copse_cuda_buffer *b) {
  if (!b) return;
  copse_cuda_unshare(cuda, b->opened);
  free(b);
}

copse_status copse_cuda_add_buffer(void *backend, uint32_t local_rank, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_buffer *b = NULL;
  struct offer offer;
  (void)local_rank;
  *handle = NULL;
  if (!cuda->many_processes) return COPSE_OK; /* peers of this process reach everything */
  memset(&offer, 0, sizeof offer);
  offer.bytes = bytes;
  copse_status status = copse_cuda_agree(cuda, copse_calloc(1, sizeof *b, &b, err), err);
  if (status == COPSE_OK) status = copse_internode_find_hosts(cuda, err);
  if (status == COPSE_OK) {
    struct copse_err why = COPSE_ERR_INIT;
    b->start = (unsigned char *)buffer;
    b->bytes = bytes;
    if (offset_in_allocation(buffer, &offer.offset, &why) != COPSE_OK)
      snprintf(offer.why, sizeof offer.why, "%.99s", why.text);
    /* registered at all ranks or at none: who writes an output must know where it is */
    status = copse_cuda_agree(cuda, share(cuda, &offer, b->start, b->mapped, b->opened, err), err);
  }
  if (status != COPSE_OK) {
    free_buffer(cuda, b);
    return status;
  }
  b->next = cuda->buffers;
  cuda->buffers = b;
  *handle = b;
  return COPSE_OK;
}

copse_status copse_cuda_remove_buffer(void *backend, uint32_t local_rank, void *handle,
                                      struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  (void)local_rank;
  if (!handle) return COPSE_OK;
  for (struct copse_cuda_buffer **at = &cuda->buffers; *at; at = &(*at)->next)
    if (*at == handle) {
      struct copse_cuda_buffer *b = *at;
      *at = b->next;
      free_buffer(cuda, b);
      return COPSE_OK;
    }
  return copse_fail(err, COPSE_INVALID, "not a handle of copse_comm_register");
}

/* ---- leaving: the barrier ----------------------------------------------------------------- */

struct name {
  char text[COPSE_PEER_BARRIER_NAME];
};

/* The host's first rank creates the barrier. It is used only if all ranks of all hosts have one, so
 * that all leave in the same way. */
copse_status copse_cuda_leave_open(struct copse_cuda *cuda, struct copse_err *err) {
  struct copse_err why_not = COPSE_ERR_INIT;
  struct copse_peer_barrier *barrier = NULL;
  struct name mine, all[COPSE_CUDA_MAX_RANKS];
  uint8_t all_have[COPSE_CUDA_MAX_RANKS];
  uint32_t first = 0;
  if (!cuda->many_processes || cuda->peer_barrier) return COPSE_OK;
  while (cuda->host_of[first] != cuda->host_of[cuda->first_local]) first++;
  const bool creates = first == cuda->first_local;
  memset(&mine, 0, sizeof mine);
  copse_status made = COPSE_OK;
  if (creates) made = copse_peer_barrier_new(mine.text, &barrier, &why_not);
  copse_status status = copse_cuda_gather(cuda, &mine, all, sizeof mine, err);
  all[first].text[COPSE_PEER_BARRIER_NAME - 1] = '\0';
  if (status == COPSE_OK && !creates)
    made = copse_peer_barrier_open(all[first].text, &barrier, &why_not);
  const uint8_t has = made == COPSE_OK;
  if (status == COPSE_OK) status = copse_cuda_gather(cuda, &has, all_have, sizeof has, err);
  if (mine.text[0]) copse_peer_barrier_unlink(mine.text);
  if (status == COPSE_OK && !memchr(all_have, 0, cuda->n_ranks))
    cuda->peer_barrier = barrier;
  else
    copse_peer_barrier_free(barrier);
  return status;
}

/* ---- leaving: memory that can't be freed yet ----------------------------------------------- */

struct kept {
  struct kept *next;
  struct copse_peer_barrier *barrier;
  int device;
  uint32_t n;
  void *memory[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all_kept;

static void free_kept(struct kept *it) {
  copse_on_device here(it->device);
  for (uint32_t i = 0; i < it->n; i++) (void)cudaFree(it->memory[i]);
  copse_peer_barrier_free(it->barrier);
  free(it);
}

void copse_cuda_leave_sweep(void) {
  pthread_mutex_lock(&lock);
  for (struct kept **at = &all_kept; *at;) {
    struct kept *it = *at;
    if (!copse_peer_barrier_all_arrived(it->barrier)) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    free_kept(it);
  }
  pthread_mutex_unlock(&lock);
}

/* Takes all shared memory from the plans. Where there is no memory for the list it is never freed.
 */
static void keep(struct copse_cuda *cuda) {
  uint32_t most = 0;
  for (const struct copse_cuda_plan *p = cuda->plans; p; p = p->next) most += 2;
  struct kept *it = (struct kept *)calloc(1, sizeof *it + most * sizeof *it->memory);
  for (struct copse_cuda_plan *p = cuda->plans; p; p = p->next)
    for (unsigned char **own : {&p->segments[cuda->first_local], &p->staging[cuda->first_local]}) {
      if (it && *own) it->memory[it->n++] = *own;
      *own = NULL;
    }
  if (!it) return;
  it->barrier = cuda->peer_barrier;
  it->device = cuda->devices[0].ordinal;
  cuda->peer_barrier = NULL;
  pthread_mutex_lock(&lock);
  it->next = all_kept;
  all_kept = it;
  pthread_mutex_unlock(&lock);
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void close_all(struct copse_cuda *cuda) {
  for (struct copse_cuda_plan *p = cuda->plans; p; p = p->next) {
    copse_cuda_unshare(cuda, p->opened);
    copse_cuda_unshare(cuda, p->opened_staging);
  }
  for (struct copse_cuda_buffer *b = cuda->buffers; b; b = b->next)
    copse_cuda_unshare(cuda, b->opened);
}

static bool wait_for_all(const struct copse_peer_barrier *barrier, double seconds) {
  const double since = copse_clock_seconds();
  for (uint32_t poll = 0; !copse_peer_barrier_all_arrived(barrier); poll++) {
    if (copse_clock_seconds() - since >= seconds) return false;
    copse_poll_pause(poll);
  }
  return true;
}

void copse_cuda_leave(struct copse_cuda *cuda) {
  close_all(cuda);
  if (cuda->peer_barrier) {
    copse_peer_barrier_arrive(cuda->peer_barrier);
    if (!wait_for_all(cuda->peer_barrier, copse_cuda_leave_seconds)) keep(cuda);
    copse_cuda_leave_sweep();
  } else if (!copse_cuda_is_broken(cuda) && cuda->n_hosts > 0) { /* some ranks share no files */
    unsigned char here = 1, all[COPSE_CUDA_MAX_RANKS];
    (void)copse_cuda_gather(cuda, &here, all, 1, NULL);
  }
  copse_peer_barrier_free(cuda->peer_barrier);
  cuda->peer_barrier = NULL;
}
