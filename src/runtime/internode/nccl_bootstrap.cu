/*
 * NCCL, found at run time, so that the library loads where there is none: all_gather as a
 * bootstrap, and a communicator of copse's own for messages between hosts. The few functions that
 * all_gather needs have had the same signatures since NCCL 2.0. Its bytes go through a small buffer
 * on the device and a stream of their own.
 */
#include "runtime/internode/nccl_bootstrap.h"

#include <dlfcn.h>
#include <math.h>

#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "base/clock.h"
#include "base/parallel.h"
#include "runtime/backend/nccl_source.h"
}

/* ---- functions ------------------------------------------------------------------------------ */

/* Where functions are found. */
struct finder {
  copse_nccl_find_type source; /* nccl_source.h, or NULL: by dlsym in ... */
  void *library;               /* ... what dlopen gave, or NULL: the process's own symbols */
};

static bool find(const struct finder *finder, const char *name, void *function) {
  void *symbol = finder->source ? finder->source(name)
                                : dlsym(finder->library ? finder->library : RTLD_DEFAULT, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

copse_status copse_nccl_check(const struct copse_nccl_links *links, int result, const char *call,
                              struct copse_err *err) {
  if (result == 0) return COPSE_OK;
  return copse_fail(err, COPSE_DEVICE, "%s: %s", call, links->error_string(result));
}

static bool is_set(const uint32_t *leave) { return __atomic_load_n(leave, __ATOMIC_ACQUIRE) != 0; }

/* Returns the result of a call. A communicator that doesn't block (config.blocking,
 * NCCL_COMM_BLOCKING) first returns COPSE_NCCL_IN_PROGRESS. So does this where the call isn't over
 * within the limit, or *leave (unless NULL) is set before. */
static int await(const struct copse_nccl_links *links, void *comm, int result, double limit_seconds,
                 const uint32_t *leave) {
  const double since = copse_clock_seconds();
  if (!links->async_error || !comm) return result;
  for (uint32_t poll = 0; result == COPSE_NCCL_IN_PROGRESS; poll++) {
    if (copse_clock_seconds() - since > limit_seconds || (leave && is_set(leave))) break;
    copse_poll_pause(poll);
    int now = 0, failed = links->async_error(comm, &now);
    result = failed ? failed : now;
  }
  return result;
}

/* ---- the bootstrap ------------------------------------------------------------------------- */

struct context {
  struct finder finder;
  struct copse_nccl_links nccl; /* error_string, and async_error, which is NULL before NCCL 2.4 */
  int (*all_gather)(const void *send, void *recv, size_t count, int type, void *comm,
                    cudaStream_t stream);
  void *comm;
  int n_ranks, device;
  cudaStream_t stream;
  unsigned char *memory; /* on the device: this rank's, then every rank's */
  size_t bytes;          /* room for each rank */
};

static copse_status grow(struct context *c, size_t bytes, struct copse_err *err) {
  if (bytes <= c->bytes) return COPSE_OK;
  if (c->memory) (void)cudaFree(c->memory);
  c->memory = NULL;
  c->bytes = 0;
  void *memory = NULL;
  COPSE_CUDA(cudaMalloc(&memory, bytes * ((size_t)c->n_ranks + 1)));
  c->memory = (unsigned char *)memory;
  c->bytes = bytes;
  return COPSE_OK;
}

static copse_status gather(struct context *c, const void *mine, void *all, size_t bytes,
                           struct copse_err *err) {
  copse_on_device here(c->device);
  copse_beside_captures permitted;
  COPSE_DO(grow(c, bytes, err));
  unsigned char *all_ranks = c->memory + c->bytes;
  COPSE_CUDA(cudaMemcpyAsync(c->memory, mine, bytes, cudaMemcpyHostToDevice, c->stream));
  int result = c->all_gather(c->memory, all_ranks, bytes, COPSE_NCCL_UINT8, c->comm, c->stream);
  result = await(&c->nccl, c->comm, result, INFINITY, NULL);
  COPSE_DO(copse_nccl_check(&c->nccl, result, "ncclAllGather", err));
  COPSE_CUDA(cudaMemcpyAsync(all, all_ranks, bytes * (size_t)c->n_ranks, cudaMemcpyDeviceToHost,
                             c->stream));
  COPSE_CUDA(cudaStreamSynchronize(c->stream));
  return COPSE_OK;
}

static copse_status all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_status status = gather((struct context *)context, mine, all, bytes, &err);
  return status == COPSE_OK ? status : copse_publish_error(&err);
}

static copse_status find_library(struct finder *finder, struct copse_err *err) {
  if (dlsym(RTLD_DEFAULT, "ncclAllGather")) return COPSE_OK;
  finder->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (!finder->library) finder->library = dlopen("libnccl.so.2", RTLD_NOW);
  if (finder->library) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED, "no NCCL in this process: %s", dlerror());
}

static copse_status open_context(struct context *c, int *rank, struct copse_err *err) {
  const struct finder *finder = &c->finder;
  int (*comm_count)(void *, int *), (*user_rank)(void *, int *), (*comm_device)(void *, int *);
  COPSE_DO(find_library(&c->finder, err));
  if (!find(finder, "ncclCommCount", &comm_count) ||
      !find(finder, "ncclCommUserRank", &user_rank) ||
      !find(finder, "ncclCommCuDevice", &comm_device) ||
      !find(finder, "ncclAllGather", &c->all_gather) ||
      !find(finder, "ncclGetErrorString", &c->nccl.error_string)) {
    if (finder->library) dlclose(finder->library);
    return copse_fail(err, COPSE_UNSUPPORTED, "the NCCL of this process lacks functions");
  }
  (void)find(finder, "ncclCommGetAsyncError", &c->nccl.async_error);
  COPSE_DO(copse_nccl_check(&c->nccl, comm_count(c->comm, &c->n_ranks), "ncclCommCount", err));
  COPSE_DO(copse_nccl_check(&c->nccl, user_rank(c->comm, rank), "ncclCommUserRank", err));
  COPSE_DO(copse_nccl_check(&c->nccl, comm_device(c->comm, &c->device), "ncclCommCuDevice", err));
  copse_on_device here(c->device);
  COPSE_CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
  return COPSE_OK;
}

static void free_context(struct context *c) {
  if (c->memory) (void)cudaFree(c->memory);
  if (c->stream) (void)cudaStreamDestroy(c->stream);
  free(c); /* the library stays loaded: a thread may still be ending a communicator in it */
}

copse_status copse_nccl_bootstrap_new(void *nccl_comm, int *n_ranks, int *rank, int *device,
                                      copse_bootstrap *out, struct copse_err *err) {
  struct context *c = NULL;
  COPSE_DO(copse_calloc(1, sizeof *c, &c, err));
  c->comm = nccl_comm;
  copse_status status = open_context(c, rank, err);
  if (status != COPSE_OK) {
    free_context(c);
    return status;
  }
  *n_ranks = c->n_ranks;
  *device = c->device;
  out->all_gather = all_gather;
  out->context = c;
  return COPSE_OK;
}

void copse_nccl_bootstrap_free(copse_bootstrap *bootstrap) {
  if (bootstrap->context) free_context((struct context *)bootstrap->context);
  bootstrap->context = NULL;
}

/* ---- messages between hosts ---------------------------------------------------------------- */

/*
 * Whether communicators that don't block are safe. Before 2.27.3 (src/group.cc) NCCL keeps the open
 * work of such a communicator's group in the caller's thread. There the next call on another
 * communicator fails over it (NVIDIA/nccl issue 1605), and an abort by another thread ends the
 * wrong one.
 */
static bool has_groups_of_their_own(const struct finder *finder) {
  int (*get_version)(int *version);
  int version = 0;
  return find(finder, "ncclGetVersion", &get_version) && get_version(&version) == 0 &&
         version >= 22703;
}

copse_status copse_nccl_links_of(const copse_bootstrap *bootstrap, struct copse_nccl_links *out,
                                 struct copse_err *err) {
  struct finder finder = {copse_nccl_source_of(bootstrap), NULL};
  memset(out, 0, sizeof *out);
  if (bootstrap->all_gather == all_gather)
    finder = ((const struct context *)bootstrap->context)->finder;
  else if (!finder.source)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "ranks on several hosts are joined by NCCL only: copse_comm_init_nccl");
  if (!find(&finder, "ncclGetErrorString", &out->error_string) ||
      !find(&finder, "ncclGroupStart", &out->group_start) ||
      !find(&finder, "ncclGroupEnd", &out->group_end) || !find(&finder, "ncclSend", &out->send) ||
      !find(&finder, "ncclRecv", &out->recv) ||
      !find(&finder, "ncclGetUniqueId", &out->get_unique_id) ||
      !find(&finder, "ncclCommInitRank", &out->init_rank) ||
      !find(&finder, "ncclCommAbort", &out->abort) ||
      !find(&finder, "ncclCommDestroy", &out->destroy) ||
      !find(&finder, "ncclCommGetAsyncError", &out->async_error))
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "ranks on several hosts, and this NCCL has no ncclSend (2.7 has)");
  if (has_groups_of_their_own(&finder))
    (void)find(&finder, "ncclCommInitRankConfig", &out->init_rank_config);
  return COPSE_OK;
}

/* What each rank brings: its status so far, and from rank 0 the new communicator's id. */
struct joining {
  int32_t status, result;
  struct copse_nccl_id id;
};

static int init(const struct copse_nccl_links *links, void **comm, uint32_t n_ranks,
                const struct copse_nccl_id *id, uint32_t rank) {
  struct copse_nccl_config config = {sizeof config, 0xcafebeef, 21400, 0};
  if (!links->init_rank_config) return links->init_rank(comm, (int)n_ranks, *id, (int)rank);
  return links->init_rank_config(comm, (int)n_ranks, *id, (int)rank, &config);
}

double copse_nccl_end_seconds = 5;

struct ending {
  int (*call)(void *comm);
  void *comm;
  int device;
};

static void run_ending(void *context) {
  struct ending it = *(struct ending *)context;
  free(context);
  copse_on_device here(it.device);
  copse_beside_captures permitted;
  (void)it.call(it.comm);
}

void copse_nccl_end(int (*call)(void *comm), void *comm, int device) {
  struct ending *it = (struct ending *)malloc(sizeof *it);
  if (!it) return; /* the communicator stays */
  *it = {call, comm, device};
  (void)copse_run_detached(run_ending, it, copse_nccl_end_seconds);
}

static copse_status check_joining(const struct copse_cuda *cuda, const struct joining *all,
                                  copse_status mine, struct copse_err *err) {
  for (uint32_t r = 0; r < cuda->n_ranks && mine == COPSE_OK; r++)
    if (all[r].status != COPSE_OK)
      return copse_fail(err, (copse_status)all[r].status, "stopped because rank %u failed: %s", r,
                        copse_status_string((copse_status)all[r].status));
  return mine;
}

copse_status copse_nccl_links_join(struct copse_nccl_links *links, const struct copse_cuda *cuda,
                                   copse_status before, struct copse_err *err) {
  const uint32_t rank = cuda->first_local, *leave = &cuda->control->leave;
  /* on the stack: failing here would leave others waiting */
  struct joining mine, all[COPSE_CUDA_MAX_RANKS];
  void *comm = NULL;
  memset(&mine, 0, sizeof mine);
  mine.status = (int32_t)before;
  if (rank == 0 && before == COPSE_OK) mine.result = links->get_unique_id(&mine.id);
  COPSE_DO(copse_cuda_gather(cuda, &mine, all, sizeof mine, before == COPSE_OK ? err : NULL));
  COPSE_DO(check_joining(cuda, all, before, err));
  COPSE_DO(copse_nccl_check(links, all[0].result, "ncclGetUniqueId of rank 0", err));
  int result = init(links, &comm, cuda->n_ranks, &all[0].id, rank);
  const bool goes_on = result == COPSE_NCCL_IN_PROGRESS;
  result = await(links, comm, result, cuda->timeout_seconds, leave);
  if (result == 0 && !(goes_on && !links->init_rank_config)) {
    links->comm = comm;
    return COPSE_OK;
  }
  if (comm) copse_nccl_end(links->abort, comm, cuda->devices[0].ordinal);
  if (result == 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "ranks on several hosts, NCCL before 2.27.3, and NCCL_COMM_BLOCKING=0");
  if (result == COPSE_NCCL_IN_PROGRESS && is_set(leave))
    return copse_fail(err, COPSE_ABORTED, "the communicator was aborted");
  if (result == COPSE_NCCL_IN_PROGRESS)
    return copse_fail(err, COPSE_TIMEOUT, "NCCL had not joined the ranks after %g s",
                      cuda->timeout_seconds);
  return copse_nccl_check(links, result, "ncclCommInitRank", err);
}
