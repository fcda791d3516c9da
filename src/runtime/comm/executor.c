/* Executors over backends. CPUs work on the caller's buffers. On GPUs inputs and outputs have
 * copies, so that launches can be timed without moving them; ranks take the GPUs that are there in
 * turn, and with one GPU all ranks are virtual ones of it. */
#include "runtime/comm/executor.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/comm/gather.h"
#include "runtime/cpu/cpu.h"
#include "runtime/gpu/gpu.h"
#include "runtime/transport/transport.h"

struct gpu_rank {
  int device;
  unsigned char *input, *output; /* device memory */
  uint64_t input_room, output_room;
};

struct copse_exec {
  const struct copse_plan *plan;
  const struct copse_backend_ops *ops;
  void *backend, *prepared;
  uint32_t first_local, n_local;
  struct copse_call *calls;            /* [n_local] */
  const struct copse_gpu_support *gpu; /* NULL: CPUs */
  struct gpu_rank *ranks;              /* [n_ranks] on GPUs */
};

/* Opens the backend. *out may be half made on failure. */
static copse_status open_backend(const struct copse_plan *plan, const struct copse_backend_ops *ops,
                                 const struct copse_comm_shape *shape,
                                 const struct copse_gpu_support *gpu, struct copse_exec **out,
                                 struct copse_err *err) {
  struct copse_exec *exec;
  COPSE_DO(copse_calloc(1, sizeof *exec, &exec, err));
  *out = exec;
  *exec = (struct copse_exec){.plan = plan,
                              .ops = ops,
                              .first_local = shape->first_local,
                              .n_local = shape->n_local,
                              .gpu = gpu};
  COPSE_DO(copse_calloc(shape->n_local, sizeof *exec->calls, &exec->calls, err));
  if (gpu) {
    COPSE_DO(copse_calloc(shape->n_ranks, sizeof *exec->ranks, &exec->ranks, err));
    for (uint32_t r = 0; r < shape->n_ranks; r++) exec->ranks[r].device = shape->devices[r];
  }
  return ops->create(shape, &exec->backend, err);
}

static void drop_exec(struct copse_exec **exec) { copse_exec_free(*exec); }

static copse_status new_exec(const struct copse_plan *plan, const struct copse_backend_ops *ops,
                             const struct copse_comm_shape *shape,
                             const struct copse_gpu_support *gpu, struct copse_exec **out,
                             struct copse_err *err) {
  COPSE_AT_END(drop_exec) struct copse_exec *exec = NULL;
  *out = NULL;
  copse_status mine = open_backend(plan, ops, shape, gpu, &exec, err);
  COPSE_DO(copse_agree(shape, mine, NULL, 0, err)); /* memory may run out at one rank alone */
  COPSE_DO(ops->prepare(exec->backend, &plan, 1, &exec->prepared, err));
  *out = exec;
  exec = NULL;
  return COPSE_OK;
}

static copse_status new_on_gpus(const struct copse_plan *plan, struct copse_exec **out,
                                struct copse_err *err) {
  uint32_t n = plan->header.n_ranks;
  const struct copse_gpu_support *gpu = copse_gpu();
  COPSE_AT_END(copse_free_at) int *devices = NULL;
  if (!gpu)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "this copse was built without CUDA: backends are cpu, threads, mpi and ucx");
  int n_devices = gpu->device_count();
  COPSE_DO(copse_calloc(n, sizeof *devices, &devices, err));
  for (uint32_t r = 0; r < n; r++) devices[r] = n_devices > 0 ? (int)(r % (uint32_t)n_devices) : 0;
  const struct copse_comm_shape shape = {.n_ranks = n, .n_local = n, .devices = devices};
  return new_exec(plan, gpu->backend, &shape, gpu, out, err);
}

copse_status copse_exec_new(const struct copse_plan *plan, enum copse_backend backend,
                            struct copse_exec **out, struct copse_err *err) {
  const struct copse_comm_shape shape = {
      .n_ranks = plan->header.n_ranks,
      .n_local = plan->header.n_ranks,
      .engine = backend == COPSE_BACKEND_THREADS ? &copse_threads_engine : NULL};
  *out = NULL;
  if (backend >= COPSE_BACKEND_MPI)
    return copse_fail(err, COPSE_INVALID, "the mpi and ucx backends need the processes of a job");
  if (backend == COPSE_BACKEND_CUDA) return new_on_gpus(plan, out, err);
  return new_exec(plan, &copse_cpu_backend, &shape, NULL, out, err);
}

copse_status copse_exec_new_transport(const struct copse_plan *plan,
                                      struct copse_transport *transport, struct copse_exec **out,
                                      struct copse_err *err) {
  copse_bootstrap bootstrap;
  struct copse_comm_shape shape;
  copse_transport_shape(transport, &bootstrap, &shape);
  return new_exec(plan, &copse_cpu_backend, &shape, NULL, out, err);
}

void copse_exec_free(struct copse_exec *exec) {
  struct copse_err ignored = COPSE_ERR_INIT;
  if (!exec) return;
  if (exec->backend) {
    if (exec->ops->finish(exec->backend, &ignored) != COPSE_OK) exec->ops->abort(exec->backend);
    exec->ops->destroy(exec->backend);
  }
  for (uint32_t r = 0; exec->ranks && r < exec->plan->header.n_ranks; r++) {
    if (exec->ranks[r].input) exec->gpu->release(exec->ranks[r].device, exec->ranks[r].input);
    if (exec->ranks[r].output) exec->gpu->release(exec->ranks[r].device, exec->ranks[r].output);
  }
  free(exec->ranks);
  free(exec->calls);
  free(exec);
}

struct copse_interpreter *copse_exec_interpreter(struct copse_exec *exec) {
  return exec->gpu ? NULL : exec->prepared;
}

void copse_exec_device(enum copse_backend backend, char text[COPSE_EXEC_DEVICE_TEXT]) {
  const struct copse_gpu_support *gpu = backend == COPSE_BACKEND_CUDA ? copse_gpu() : NULL;
  char name[COPSE_EXEC_DEVICE_TEXT - 12] = "GPU";
  text[0] = '\0';
  if (!gpu) return;
  gpu->device_name(0, name, sizeof name);
  snprintf(text, COPSE_EXEC_DEVICE_TEXT, "%d %s", gpu->device_count(), name);
}

void copse_exec_set_stall_seconds(struct copse_exec *exec, double seconds) {
  exec->ops->set_timeout(exec->backend, seconds);
}

/* ---- memory of GPUs ------------------------------------------------------------------- */

static copse_status make_room(const struct copse_exec *exec, int device, uint64_t bytes,
                              unsigned char **memory, uint64_t *room, struct copse_err *err) {
  if (bytes <= *room) return COPSE_OK;
  if (*memory) exec->gpu->release(device, *memory);
  *memory = NULL;
  *room = 0;
  void *fresh;
  COPSE_DO(exec->gpu->allocate(device, (size_t)bytes, &fresh, err));
  *memory = fresh;
  *room = bytes;
  return COPSE_OK;
}

/* A rank's buffers on the host and on its GPU. In place one lies within the other. */
struct pair {
  unsigned char *host_in, *host_out, *in, *out;
  uint64_t in_bytes, out_bytes;
};

static bool within(const unsigned char *p, const unsigned char *start, uint64_t bytes) {
  return start && (uintptr_t)p >= (uintptr_t)start && (uintptr_t)p - (uintptr_t)start < bytes;
}

static struct pair pair_of(const struct copse_exec *exec, const struct copse_launch *launch,
                           uint32_t r) {
  const struct copse_plan_header *h = &exec->plan->header;
  const struct gpu_rank *rank = &exec->ranks[r];
  uint64_t block = launch->count * copse_type_bytes(launch->type);
  struct pair p = {launch->inputs[r], launch->outputs[r],      rank->input,
                   rank->output,      h->input_blocks * block, h->output_blocks * block};
  if (!p.host_in) p.in = NULL;
  if (!p.host_out) p.out = NULL;
  /* the smaller one lies within the larger */
  if (p.out_bytes > p.in_bytes && within(p.host_in, p.host_out, p.out_bytes))
    p.in = p.out + (p.host_in - p.host_out);
  else if (within(p.host_out, p.host_in, p.in_bytes))
    p.out = p.in + (p.host_out - p.host_in);
  return p;
}

static copse_status load_gpu(struct copse_exec *exec, const struct copse_launch *launch,
                             struct copse_err *err) {
  const struct copse_plan_header *h = &exec->plan->header;
  uint64_t block = launch->count * copse_type_bytes(launch->type);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    struct gpu_rank *rank = &exec->ranks[r];
    COPSE_DO(make_room(exec, rank->device, h->input_blocks * block, &rank->input, &rank->input_room,
                       err));
    COPSE_DO(make_room(exec, rank->device, h->output_blocks * block, &rank->output,
                       &rank->output_room, err));
    struct pair p = pair_of(exec, launch, r);
    if (p.in) COPSE_DO(exec->gpu->copy(rank->device, p.in, p.host_in, (size_t)p.in_bytes, err));
    if (p.out) COPSE_DO(exec->gpu->copy(rank->device, p.out, p.host_out, (size_t)p.out_bytes, err));
  }
  return COPSE_OK;
}

static copse_status store_gpu(struct copse_exec *exec, const struct copse_launch *launch,
                              struct copse_err *err) {
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++) {
    struct pair p = pair_of(exec, launch, r);
    int device = exec->ranks[r].device;
    if (p.in) COPSE_DO(exec->gpu->copy(device, p.host_in, p.in, (size_t)p.in_bytes, err));
    if (p.out) COPSE_DO(exec->gpu->copy(device, p.host_out, p.out, (size_t)p.out_bytes, err));
  }
  return COPSE_OK;
}

/* ---- launches ---------------------------------------------------------------------------- */

static copse_status check_launch(const struct copse_plan *plan, const struct copse_launch *launch,
                                 struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  if ((unsigned)launch->type >= COPSE_N_TYPES || (unsigned)launch->redop >= COPSE_N_REDOPS)
    return copse_fail(err, COPSE_INVALID, "unknown element type or reduction");
  if (launch->pair_counts && (h->collective != COPSE_ALLTOALL || h->n_extents > 0 ||
                              h->protocol != COPSE_PROTOCOL_BANDWIDTH))
    return copse_fail(err, COPSE_INVALID, "counts of pairs, and a plan that takes none");
  return COPSE_OK;
}

copse_status copse_exec_load(struct copse_exec *exec, const struct copse_launch *launch,
                             struct copse_err *err) {
  COPSE_DO(check_launch(exec->plan, launch, err));
  return exec->gpu ? load_gpu(exec, launch, err) : COPSE_OK;
}

copse_status copse_exec_start(struct copse_exec *exec, const struct copse_launch *launch,
                              struct copse_err *err) {
  const struct copse_plan_header *h = &exec->plan->header;
  copse_status status = check_launch(exec->plan, launch, err);
  if (status != COPSE_OK || (exec->gpu && launch->count == 0)) return status;
  for (uint32_t i = 0; i < exec->n_local; i++) {
    uint32_t r = exec->first_local + i;
    exec->calls[i] = (struct copse_call){.collective = (copse_collective)h->collective,
                                         .root = h->root,
                                         .count = launch->count,
                                         .type = launch->type,
                                         .redop = launch->redop,
                                         .send = launch->inputs[r],
                                         .recv = launch->outputs[r],
                                         .pair_counts = launch->pair_counts};
    if (!exec->gpu) continue;
    struct pair p = pair_of(exec, launch, r);
    exec->calls[i].send = p.in;
    exec->calls[i].recv = p.out;
    exec->calls[i].pair_counts = NULL; /* it would have to be in device memory */
  }
  return copse_launch_one(exec->ops, exec->backend, exec->prepared, exec->calls, err);
}

copse_status copse_exec_finish(struct copse_exec *exec, struct copse_err *err) {
  return exec->ops->finish(exec->backend, err);
}

copse_status copse_exec_run(struct copse_exec *exec, const struct copse_launch *launch,
                            struct copse_err *err) {
  COPSE_DO(copse_exec_load(exec, launch, err));
  COPSE_DO(copse_exec_start(exec, launch, err));
  COPSE_DO(copse_exec_finish(exec, err));
  return exec->gpu ? store_gpu(exec, launch, err) : COPSE_OK;
}

copse_status copse_exec_scratch_bytes(const struct copse_plan *plan, uint64_t count,
                                      enum copse_type type, uint64_t *bytes,
                                      struct copse_err *err) {
  COPSE_AT_END(copse_layout_free) struct copse_layout layout = {0};
  struct copse_shape shape;
  *bytes = 0;
  COPSE_DO(copse_layout_new(plan, &layout, err));
  COPSE_DO(copse_layout_shape(&layout, count, copse_type_bytes(type), &shape, err));
  for (uint32_t r = 0; r < plan->header.n_ranks; r++)
    *bytes += copse_layout_slot_bytes(&layout, &shape, r) +
              2 * copse_layout_packet_bytes(&layout, &shape, r);
  return COPSE_OK;
}
