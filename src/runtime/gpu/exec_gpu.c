/*
 * The executor on GPUs: all ranks of a plan in this process, rank r on GPU r modulo their number. With
 * one GPU all ranks are virtual ones of it. Inputs and outputs have copies on the GPUs, so that
 * launches can be timed without copying.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/interpreter/exec_internal.h"
#include "runtime/gpu/gpu.h"

struct gpu_rank {
  int device;
  unsigned char *input, *output; /* device memory */
  uint64_t input_room, output_room;
};

struct copse_exec_gpu {
  const struct copse_gpu_support *gpu;
  void *backend, *prepared;
  struct gpu_rank *ranks;   /* [n_ranks] */
  struct copse_call *calls; /* [n_ranks] */
};

copse_status copse_exec_gpu_new(struct copse_exec *exec, struct copse_err *err) {
  uint32_t n = exec->plan->header.n_ranks;
  const struct copse_gpu_support *gpu = copse_gpu();
  struct copse_exec_gpu *self = NULL;
  int *devices = NULL;
  copse_status status;
  if (!gpu) return copse_fail(err, COPSE_UNSUPPORTED, "this copse was built without CUDA: backends cpu and threads");
  int n_devices = gpu->device_count();
  COPSE_TRY(copse_calloc(1, sizeof *self, &self, err));
  exec->gpu = self;
  self->gpu = gpu;
  COPSE_TRY(copse_calloc(n, sizeof *self->ranks, &self->ranks, err));
  COPSE_TRY(copse_calloc(n, sizeof *self->calls, &self->calls, err));
  COPSE_TRY(copse_calloc(n, sizeof *devices, &devices, err));
  for (uint32_t r = 0; r < n; r++)
    devices[r] = self->ranks[r].device = n_devices > 0 ? (int)(r % (uint32_t)n_devices) : 0;
  const struct copse_clique_shape shape = {n, 0, n, devices, NULL};
  COPSE_TRY(gpu->backend->new_machine(&shape, &self->backend, err));
  COPSE_TRY(gpu->backend->prepare(self->backend, exec->plan, &self->prepared, err));
out:
  free(devices);
  return status;
}

void copse_exec_gpu_free(struct copse_exec *exec) {
  struct copse_exec_gpu *self = exec->gpu;
  struct copse_err ignored = COPSE_ERR_INIT;
  if (!self) return;
  if (self->backend) {
    if (self->gpu->backend->finish(self->backend, &ignored) != COPSE_OK)
      self->gpu->backend->abort(self->backend);
    self->gpu->backend->free_machine(self->backend);
  }
  for (uint32_t r = 0; self->ranks && r < exec->plan->header.n_ranks; r++) {
    if (self->ranks[r].input) self->gpu->release(self->ranks[r].device, self->ranks[r].input);
    if (self->ranks[r].output) self->gpu->release(self->ranks[r].device, self->ranks[r].output);
  }
  free(self->ranks);
  free(self->calls);
  free(self);
}

/* ---- memory --------------------------------------------------------------------------- */

static copse_status make_room(const struct copse_exec_gpu *self, int device, uint64_t bytes,
                              unsigned char **memory, uint64_t *room, struct copse_err *err) {
  if (bytes <= *room) return COPSE_OK;
  if (*memory) self->gpu->release(device, *memory);
  *memory = NULL;
  *room = 0;
  void *fresh;
  copse_status status = self->gpu->allocate(device, (size_t)bytes, &fresh, err);
  if (status != COPSE_OK) return status;
  *memory = fresh;
  *room = bytes;
  return COPSE_OK;
}

/* A rank's buffers on the host and on its GPU. In place one is within the other on both. */
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
  const struct gpu_rank *rank = &exec->gpu->ranks[r];
  uint64_t block = launch->count * copse_type_bytes(launch->type);
  struct pair p = {launch->inputs[r],       launch->outputs[r], rank->input, rank->output,
                   h->input_blocks * block, h->output_blocks * block};
  if (!p.host_in) p.in = NULL;
  if (!p.host_out) p.out = NULL;
  /* in place: the smaller buffer is within the larger */
  if (p.out_bytes > p.in_bytes && p.host_in && within(p.host_in, p.host_out, p.out_bytes))
    p.in = p.out + (p.host_in - p.host_out);
  else if (p.host_out && within(p.host_out, p.host_in, p.in_bytes))
    p.out = p.in + (p.host_out - p.host_in);
  return p;
}

copse_status copse_exec_gpu_load(struct copse_exec *exec, const struct copse_launch *launch,
                                 struct copse_err *err) {
  struct copse_exec_gpu *self = exec->gpu;
  const struct copse_plan_header *h = &exec->plan->header;
  uint64_t block = launch->count * copse_type_bytes(launch->type);
  copse_status status = COPSE_OK;
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    struct gpu_rank *rank = &self->ranks[r];
    COPSE_TRY(make_room(self, rank->device, h->input_blocks * block, &rank->input,
                        &rank->input_room, err));
    COPSE_TRY(make_room(self, rank->device, h->output_blocks * block, &rank->output,
                        &rank->output_room, err));
    struct pair p = pair_of(exec, launch, r);
    if (p.in) COPSE_TRY(self->gpu->copy(rank->device, p.in, p.host_in, (size_t)p.in_bytes, err));
    if (p.out)
      COPSE_TRY(self->gpu->copy(rank->device, p.out, p.host_out, (size_t)p.out_bytes, err));
  }
out:
  return status;
}

copse_status copse_exec_gpu_store(struct copse_exec *exec, const struct copse_launch *launch,
                                  struct copse_err *err) {
  struct copse_exec_gpu *self = exec->gpu;
  copse_status status = COPSE_OK;
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++) {
    struct pair p = pair_of(exec, launch, r);
    int device = self->ranks[r].device;
    if (p.in) COPSE_TRY(self->gpu->copy(device, p.host_in, p.in, (size_t)p.in_bytes, err));
    if (p.out) COPSE_TRY(self->gpu->copy(device, p.host_out, p.out, (size_t)p.out_bytes, err));
  }
out:
  return status;
}

/* ---- launches ---------------------------------------------------------------------------- */

copse_status copse_exec_gpu_start(struct copse_exec *exec, const struct copse_launch *launch,
                                  struct copse_err *err) {
  struct copse_exec_gpu *self = exec->gpu;
  const struct copse_plan_header *h = &exec->plan->header;
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    struct pair p = pair_of(exec, launch, r);
    self->calls[r] = (struct copse_call){.collective = (copse_collective)h->collective,
                                         .root = h->root,
                                         .count = launch->count,
                                         .type = launch->type,
                                         .redop = launch->redop,
                                         .send = p.in,
                                         .recv = p.out};
  }
  return self->gpu->backend->launch(self->backend, self->prepared, self->calls, err);
}

copse_status copse_exec_gpu_finish(struct copse_exec *exec, struct copse_err *err) {
  return exec->gpu->gpu->backend->finish(exec->gpu->backend, err);
}

void copse_exec_gpu_set_stall_seconds(struct copse_exec *exec) {
  exec->gpu->gpu->backend->set_timeout(exec->gpu->backend, exec->stall_seconds);
}
