/*
 * The public API of communicators (include/copse/comm.h), over runtime/comm/local_ranks.h.
 *
 * Communicators are made and ended, plans and buffers registered, and collectives called, alone or
 * in groups. Arguments are checked, the CPU's backend or the GPUs' is chosen, transports are
 * joined, and what a backend does by itself it is asked for here, under the lock of its ranks. Each
 * function ends in done(), which logs an error and keeps its text for copse_last_error.
 */
#include <stdlib.h>
#include <string.h>

#include "copse/wire.h"
#include "runtime/comm/local_ranks.h"
#include "base/err.h"
#include "base/parallel.h"
#include "runtime/cpu/cpu.h"
#include "runtime/gpu/gpu.h"
#include "runtime/transport/transport.h"

/* As many as a plan may have. */
#define MAX_RANKS 65536
/* Longer than any job, and within what clocks count. */
#define MAX_TIMEOUT_SECONDS 1e9

/* Ends every function here: logs an error and keeps its text for copse_last_error. */
static copse_status done(int rank, copse_status status, struct copse_err *err) {
  if (status == COPSE_OK) return COPSE_OK;
  err->status = status;
  copse_debug(COPSE_DEBUG_WARN, rank, "%s: %s", copse_status_string(status), err->text);
  return copse_publish_error(err);
}

static int rank_of(const copse_comm *comm) { return comm ? (int)comm->rank : -1; }

/* The same for what is wrong with a call's arguments, with its `err`. */
#define REJECT(rank, status, ...) done(rank, copse_fail(&err, status, __VA_ARGS__), &err)

static copse_status missing(const copse_comm *comm, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  return REJECT(rank_of(comm), COPSE_INVALID, "%s is NULL", what);
}

static void set_timeout(struct copse_local_ranks *local, double seconds) {
  copse_gather_set_timeout(&local->gather, seconds);
  COPSE_HOLD(&local->backend_lock);
  local->ops->set_timeout(local->backend, seconds);
}

/* ---- making and ending ------------------------------------------------------------------- */

/* Returns the GPU parts; COPSE_UNSUPPORTED in a build without them. */
static copse_status need_gpus(const struct copse_gpu_support **gpus, struct copse_err *err) {
  *gpus = copse_gpu();
  if (*gpus) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "this copse was built without CUDA: only ranks on the CPU "
                    "(COPSE_DEVICE_CPU, copse_comm_init_all)");
}

/* Chooses the CPU's backend or the GPUs'; COPSE_INVALID where both are mixed. */
static copse_status choose_backend(const int *devices, int n, const struct copse_backend_ops **ops,
                                   struct copse_err *err) {
  *ops = &copse_cpu_backend;
  for (int r = 0; r < n; r++) {
    if (devices[r] < COPSE_DEVICE_CPU)
      return copse_fail(err, COPSE_INVALID, "rank %d: %d is no device", r, devices[r]);
    if ((devices[r] == COPSE_DEVICE_CPU) != (devices[0] == COPSE_DEVICE_CPU))
      return copse_fail(err, COPSE_INVALID,
                        "ranks 0 and %d: one on the CPU and one on a GPU, must be alike", r);
  }
  if (devices[0] == COPSE_DEVICE_CPU) return COPSE_OK;
  const struct copse_gpu_support *gpus;
  copse_status status = need_gpus(&gpus, err);
  if (status == COPSE_OK) *ops = gpus->backend;
  return status;
}

copse_status copse_comm_init_all(copse_comm **comms, int n_ranks, const int *devices) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) int *cpus = NULL;
  const struct copse_backend_ops *ops;
  if (!comms) return missing(NULL, "comms");
  if (n_ranks < 1 || n_ranks > MAX_RANKS)
    return REJECT(-1, COPSE_INVALID, "%d ranks, must be 1..%d", n_ranks, MAX_RANKS);
  memset(comms, 0, (size_t)n_ranks * sizeof *comms);
  if (!devices) {
    cpus = malloc((size_t)n_ranks * sizeof *cpus);
    if (!cpus) return done(-1, copse_fail_nomem(&err), &err);
    for (int r = 0; r < n_ranks; r++) cpus[r] = COPSE_DEVICE_CPU;
    devices = cpus;
  }
  const struct copse_comm_shape shape = {
      .n_ranks = (uint32_t)n_ranks, .n_local = (uint32_t)n_ranks, .devices = devices};
  copse_status status = choose_backend(devices, n_ranks, &ops, &err);
  if (status == COPSE_OK) status = copse_local_new(&shape, ops, NULL, comms, &err);
  return done(-1, status, &err);
}

copse_status copse_comm_init_rank(copse_comm **comm, int n_ranks, int rank, int device,
                                  const copse_bootstrap *bootstrap) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm) return missing(NULL, "comm");
  *comm = NULL;
  if (!bootstrap || !bootstrap->all_gather) return missing(NULL, "bootstrap");
  if (n_ranks < 1 || n_ranks > MAX_RANKS || rank < 0 || rank >= n_ranks)
    return REJECT(-1, COPSE_INVALID, "rank %d of %d ranks", rank, n_ranks);
  if (device < COPSE_DEVICE_CPU) return REJECT(rank, COPSE_INVALID, "%d is no device", device);
  if (device == COPSE_DEVICE_CPU)
    return REJECT(rank, COPSE_UNSUPPORTED,
                  "ranks on the CPU need more than a bootstrap: copse_comm_init_all for all in one "
                  "process, copse_comm_init_mpi or copse_comm_init_wire for one each");
  const struct copse_gpu_support *gpus;
  copse_status status = need_gpus(&gpus, &err);
  if (status != COPSE_OK) return done(rank, status, &err);
  const struct copse_comm_shape shape = {(uint32_t)n_ranks, (uint32_t)rank, 1,   &device,
                                         bootstrap,         NULL,           NULL};
  return done(rank, copse_local_new(&shape, gpus->backend, NULL, comm, &err), &err);
}

copse_status copse_comm_init_nccl(copse_comm **comm, void *nccl_comm) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_gpu_support *gpus;
  int n_ranks, rank = -1, device;
  copse_bootstrap bootstrap = {NULL, NULL};
  copse_status status;
  if (!comm) return missing(NULL, "comm");
  *comm = NULL;
  if (!nccl_comm) return missing(NULL, "nccl_comm");
  COPSE_TRY(need_gpus(&gpus, &err));
  COPSE_TRY(gpus->nccl_bootstrap_new(nccl_comm, &n_ranks, &rank, &device, &bootstrap, &err));
  const struct copse_comm_shape shape = {(uint32_t)n_ranks, (uint32_t)rank, 1,   &device,
                                         &bootstrap,        NULL,           NULL};
  status = copse_local_new(&shape, gpus->backend, gpus->nccl_bootstrap_free, comm, &err);
  if (status != COPSE_OK) gpus->nccl_bootstrap_free(&bootstrap);
out:
  return done(rank, status, &err);
}

static void free_transport(copse_bootstrap *bootstrap) { copse_transport_free(bootstrap->context); }

/* Gives the wire to the transport from the start, so that the transport ends it in every case. */
copse_status copse_comm_init_wire(copse_comm **comm, const copse_wire *wire,
                                  double timeout_seconds) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_transport *transport = NULL;
  copse_bootstrap bootstrap;
  struct copse_comm_shape shape;
  copse_status status;
  if (!comm) return missing(NULL, "comm");
  *comm = NULL;
  if (!wire) return missing(NULL, "wire");
  if (wire->n_ranks < 1 || wire->rank < 0 || wire->rank >= wire->n_ranks)
    return REJECT(-1, COPSE_INVALID, "no ranks to join: %s",
                  wire->why ? wire->why(wire->context) : "the wire has none");
  COPSE_TRY(copse_transport_new(wire, timeout_seconds, &transport, &err));
  copse_transport_shape(transport, &bootstrap, &shape);
  status = copse_local_new(&shape, &copse_cpu_backend, free_transport, comm, &err);
  if (status != COPSE_OK) copse_transport_free(transport);
  if (status == COPSE_OK && timeout_seconds > 0) set_timeout((*comm)->local, timeout_seconds);
out:
  return done(wire->rank, status, &err);
}

copse_status copse_comm_destroy(copse_comm *comm) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm) return COPSE_OK;
  int rank = rank_of(comm);
  if (copse_call_group_holds(comm))
    return REJECT(rank, COPSE_INVALID, "rank %d has calls in a group that is still open", rank);
  return done(rank, copse_local_leave(comm, &err), &err);
}

copse_status copse_comm_abort(copse_comm *comm) {
  struct copse_err why = COPSE_ERR_INIT;
  if (!comm) return missing(comm, "comm");
  struct copse_local_ranks *local = comm->local;
  (void)copse_fail(&why, COPSE_ABORTED, "copse_comm_abort was called on rank %u", comm->rank);
  copse_gather_break(&local->gather, &why);
  local->ops->abort(local->backend);
  return COPSE_OK;
}

/* Returns why the communicator is broken, or COPSE_OK; asks the backend too if it does not block.
 */
static copse_status poll_ranks(struct copse_local_ranks *local, struct copse_err *err) {
  copse_status status = copse_gather_broken(&local->gather, err);
  if (status != COPSE_OK || pthread_mutex_trylock(&local->backend_lock) != 0) return status;
  struct copse_err why = COPSE_ERR_INIT;
  why.status = status = local->ops->poll(local->backend, &why);
  if (status != COPSE_OK) local->ops->abort(local->backend); /* on the GPUs that still work */
  pthread_mutex_unlock(&local->backend_lock);
  if (status == COPSE_OK) return COPSE_OK;
  copse_gather_break(&local->gather, &why);
  return copse_gather_broken(&local->gather, err);
}

copse_status copse_comm_get_async_error(copse_comm *comm, copse_status *async) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm || !async) return missing(comm, comm ? "async" : "comm");
  *async = poll_ranks(comm->local, &err);
  (void)copse_publish_error(&err);
  return COPSE_OK;
}

copse_status copse_comm_count(const copse_comm *comm, int *count) {
  if (!comm || !count) return missing(comm, comm ? "count" : "comm");
  *count = (int)comm->local->shape.n_ranks;
  return COPSE_OK;
}

copse_status copse_comm_user_rank(const copse_comm *comm, int *rank) {
  if (!comm || !rank) return missing(comm, comm ? "rank" : "comm");
  *rank = (int)comm->rank;
  return COPSE_OK;
}

copse_status copse_comm_device(const copse_comm *comm, int *device) {
  if (!comm || !device) return missing(comm, comm ? "device" : "comm");
  *device = comm->local->shape.devices[comm->rank - comm->local->shape.first_local];
  return COPSE_OK;
}

copse_status copse_comm_set_timeout(copse_comm *comm, double seconds) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm) return missing(comm, "comm");
  if (!(seconds > 0))
    return REJECT(rank_of(comm), COPSE_INVALID, "a time limit of %g s, must be positive", seconds);
  if (seconds > MAX_TIMEOUT_SECONDS) seconds = MAX_TIMEOUT_SECONDS;
  set_timeout(comm->local, seconds);
  return COPSE_OK;
}

/* ---- plans and buffers ------------------------------------------------------------------- */

copse_status copse_comm_add_plan(copse_comm *comm, const copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm || !plan) return missing(comm, comm ? "plan" : "comm");
  return done(rank_of(comm), copse_local_add_plan(comm->local, plan, &err), &err);
}

copse_status copse_comm_load_plans(copse_comm *comm, const char *folder, int *n_loaded) {
  struct copse_err err = COPSE_ERR_INIT;
  uint32_t n = 0;
  if (n_loaded) *n_loaded = 0;
  if (!comm) return missing(comm, "comm");
  if (!folder) folder = getenv("COPSE_PLAN_DIR");
  copse_status status = copse_local_load_plans(comm->local, folder, &n, &err);
  if (n_loaded) *n_loaded = (int)n;
  return done(rank_of(comm), status, &err);
}

copse_status copse_comm_find_plan(const copse_comm *comm, copse_collective collective, int root,
                                  size_t count, copse_type type, const copse_plan **plan) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm || !plan) return missing(comm, comm ? "plan" : "comm");
  *plan = NULL;
  if ((unsigned)collective >= COPSE_N_COLLECTIVES || (unsigned)type >= COPSE_N_TYPES)
    return REJECT(rank_of(comm), COPSE_INVALID, "no such collective or element type");
  const struct copse_call call = {
      .collective = collective, .root = root, .count = count, .type = type};
  return done(rank_of(comm), copse_local_find_plan(comm->local, &call, plan, &err), &err);
}

static copse_status register_buffer(struct copse_comm *comm, void *buffer, size_t bytes,
                                    void **handle, struct copse_err *err) {
  struct copse_local_ranks *local = comm->local;
  COPSE_AT_END(copse_free_at) struct copse_registration *it = NULL;
  *handle = NULL;
  COPSE_DO(copse_gather_broken(&local->gather, err));
  COPSE_DO(copse_calloc(1, sizeof *it, &it, err));
  it->rank = comm->rank;
  COPSE_HOLD(&local->backend_lock);
  if (local->ops->add_buffer)
    COPSE_DO(local->ops->add_buffer(local->backend, comm->rank - local->shape.first_local, buffer,
                                    bytes, &it->backend_handle, err));
  it->next = local->registrations;
  *handle = local->registrations = it;
  it = NULL;
  return COPSE_OK;
}

copse_status copse_comm_register(copse_comm *comm, void *buffer, size_t bytes, void **handle) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm || !handle) return missing(comm, comm ? "handle" : "comm");
  *handle = NULL;
  if (!buffer) return missing(comm, "buffer");
  if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)buffer)
    return REJECT(rank_of(comm), COPSE_INVALID, "%zu bytes at %p are no buffer", bytes, buffer);
  return done(rank_of(comm), register_buffer(comm, buffer, bytes, handle, &err), &err);
}

static copse_status deregister(struct copse_comm *comm, void *handle, struct copse_err *err) {
  struct copse_local_ranks *local = comm->local;
  COPSE_HOLD(&local->backend_lock);
  struct copse_registration **at = &local->registrations;
  while (*at && (*at != handle || (*at)->rank != comm->rank)) at = &(*at)->next;
  COPSE_AT_END(copse_free_at) struct copse_registration *it = *at;
  if (!it)
    return copse_fail(err, COPSE_INVALID, "no registration of rank %u has this handle", comm->rank);
  *at = it->next;
  if (!local->ops->remove_buffer) return COPSE_OK;
  return local->ops->remove_buffer(local->backend, comm->rank - local->shape.first_local,
                                   it->backend_handle, err);
}

copse_status copse_comm_deregister(copse_comm *comm, void *handle) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm || !handle) return missing(comm, comm ? "handle" : "comm");
  return done(rank_of(comm), deregister(comm, handle, &err), &err);
}

/* Does what follow of backend.h does; nothing where the communicator is broken. */
static copse_status follow(struct copse_comm *comm, copse_stream stream, struct copse_err *err) {
  struct copse_local_ranks *local = comm->local;
  const uint32_t r = comm->rank - local->shape.first_local;
  if (!local->ops->follow || copse_gather_broken(&local->gather, NULL) != COPSE_OK) return COPSE_OK;
  COPSE_HOLD(&local->backend_lock);
  return local->ops->follow(local->backend, r, stream, err);
}

copse_status copse_comm_follow(copse_comm *comm, copse_stream stream) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm) return missing(comm, "comm");
  return done(rank_of(comm), follow(comm, stream, &err), &err);
}

static copse_status lead(struct copse_comm *comm, copse_stream stream, struct copse_err *err) {
  struct copse_local_ranks *local = comm->local;
  const uint32_t r = comm->rank - local->shape.first_local;
  if (!local->ops->lead || copse_gather_broken(&local->gather, NULL) != COPSE_OK) return COPSE_OK;
  COPSE_HOLD(&local->backend_lock);
  return local->ops->lead(local->backend, r, stream, err);
}

copse_status copse_comm_lead(copse_comm *comm, copse_stream stream) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!comm) return missing(comm, "comm");
  return done(rank_of(comm), lead(comm, stream, &err), &err);
}

/* ---- collectives --------------------------------------------------------------------------- */

static copse_status run_call(copse_comm *comm, const struct copse_call *call) {
  struct copse_err err = COPSE_ERR_INIT;
  return done(rank_of(comm), copse_call_group_add(comm, call, &err), &err);
}

copse_status copse_all_reduce(const void *sendbuff, void *recvbuff, size_t count, copse_type type,
                              copse_redop op, copse_comm *comm, copse_stream stream) {
  return run_call(comm, &(struct copse_call){COPSE_ALLREDUCE, -1, count, type, op, sendbuff,
                                             recvbuff, NULL, stream, NULL});
}

copse_status copse_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                              copse_type type, copse_comm *comm, copse_stream stream) {
  return run_call(comm, &(struct copse_call){COPSE_ALLGATHER, -1, sendcount, type, COPSE_SUM,
                                             sendbuff, recvbuff, NULL, stream, NULL});
}

copse_status copse_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                  copse_type type, copse_redop op, copse_comm *comm,
                                  copse_stream stream) {
  const struct copse_call call = {
      COPSE_REDUCE_SCATTER, -1, recvcount, type, op, sendbuff, recvbuff, NULL, stream, NULL};
  return run_call(comm, &call);
}

copse_status copse_broadcast(const void *sendbuff, void *recvbuff, size_t count, copse_type type,
                             int root, copse_comm *comm, copse_stream stream) {
  return run_call(comm, &(struct copse_call){COPSE_BROADCAST, root, count, type, COPSE_SUM,
                                             sendbuff, recvbuff, NULL, stream, NULL});
}

copse_status copse_reduce(const void *sendbuff, void *recvbuff, size_t count, copse_type type,
                          copse_redop op, int root, copse_comm *comm, copse_stream stream) {
  return run_call(comm, &(struct copse_call){COPSE_REDUCE, root, count, type, op, sendbuff,
                                             recvbuff, NULL, stream, NULL});
}

copse_status copse_all_to_all(const void *sendbuff, void *recvbuff, size_t count, copse_type type,
                              copse_comm *comm, copse_stream stream) {
  return run_call(comm, &(struct copse_call){COPSE_ALLTOALL, -1, count, type, COPSE_SUM, sendbuff,
                                             recvbuff, NULL, stream, NULL});
}

copse_status copse_all_to_all_v(const void *sendbuff, void *recvbuff, size_t count,
                                const uint64_t *pair_counts, copse_type type, copse_comm *comm,
                                copse_stream stream) {
  const struct copse_call call = {COPSE_ALLTOALL, -1,       count,       type,   COPSE_SUM,
                                  sendbuff,       recvbuff, pair_counts, stream, NULL};
  if (!pair_counts) {
    struct copse_err err = COPSE_ERR_INIT;
    (void)copse_fail(&err, COPSE_INVALID, "pair_counts is NULL");
    copse_call_group_refuse(&err);
    return done(rank_of(comm), COPSE_INVALID, &err);
  }
  return run_call(comm, &call);
}

copse_status copse_group_start(void) {
  copse_call_group_open();
  return COPSE_OK;
}

copse_status copse_group_end(void) {
  struct copse_err err = COPSE_ERR_INIT;
  return done(-1, copse_call_group_close(&err), &err);
}
