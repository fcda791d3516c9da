/* The executors' common face: state, scratch, and the choice of the backend. */
#include "runtime/interpreter/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/interpreter/element_move.h"
#include "runtime/interpreter/exec_internal.h"

#define DEFAULT_STALL_SECONDS 20.0

/* Like copse_calloc, aligned to cache lines, which calloc doesn't promise. */
static copse_status calloc_lines(size_t n, size_t size, void *out_pointer, struct copse_err *err) {
  size_t bytes;
  if (__builtin_mul_overflow(n ? n : 1, size, &bytes)) return copse_fail_nomem(err);
  void *p = aligned_alloc(COPSE_CACHE_LINE, bytes); /* size: a multiple of the line */
  if (!p) return copse_fail_nomem(err);
  memset(p, 0, bytes);
  *(void **)out_pointer = p;
  return COPSE_OK;
}

static copse_status new_exec(const struct copse_plan *plan, enum copse_backend backend,
                             struct copse_mesh *mesh, struct copse_exec **out,
                             struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_exec *exec = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *exec, &exec, err));
  exec->plan = plan;
  exec->backend = backend;
  exec->stall_seconds = DEFAULT_STALL_SECONDS;
  COPSE_TRY(copse_layout_new(plan, &exec->layout, err));
  if (mesh) exec->layout.flat = false; /* a chunk is a message, which wires want short */
  COPSE_TRY(copse_calloc(h->n_ranks, sizeof *exec->memory, &exec->memory, err));
  COPSE_TRY(copse_calloc(h->n_ranks, sizeof *exec->scratch_capacity, &exec->scratch_capacity, err));
  COPSE_TRY(calloc_lines(h->n_workers, sizeof *exec->workers, &exec->workers, err));
  COPSE_TRY(calloc_lines(h->n_channels, sizeof *exec->channels, &exec->channels, err));
  switch (backend) {
    case COPSE_BACKEND_CUDA: COPSE_TRY(copse_exec_gpu_new(exec, err)); break;
    case COPSE_BACKEND_THREADS: COPSE_TRY(copse_exec_threads_new(exec, err)); break;
    case COPSE_BACKEND_MPI: COPSE_TRY(copse_exec_mesh_new(exec, mesh, err)); break;
    default: COPSE_TRY(copse_exec_cpu_new(exec, err)); break;
  }
  *out = exec;
  return COPSE_OK;
out:
  copse_exec_free(exec);
  return status;
}

copse_status copse_exec_new(const struct copse_plan *plan, enum copse_backend backend,
                            struct copse_exec **out, struct copse_err *err) {
  *out = NULL;
  if (backend == COPSE_BACKEND_MPI)
    return copse_fail(err, COPSE_INVALID, "the mpi backend needs the processes of a job");
  return new_exec(plan, backend, NULL, out, err);
}

copse_status copse_exec_new_mesh(const struct copse_plan *plan, struct copse_mesh *mesh,
                                 struct copse_exec **out, struct copse_err *err) {
  return new_exec(plan, COPSE_BACKEND_MPI, mesh, out, err);
}

void copse_exec_free(struct copse_exec *exec) {
  if (!exec) return;
  copse_exec_threads_free(exec); /* first: the threads use the rest */
  copse_exec_cpu_free(exec);
  copse_exec_gpu_free(exec);
  copse_exec_mesh_free(exec);
  if (exec->memory)
    for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++) {
      free(exec->memory[r].scratch);
      free(exec->memory[r].packets);
    }
  free(exec->memory);
  free(exec->scratch_capacity);
  free(exec->workers);
  free(exec->channels);
  copse_layout_free(&exec->layout);
  free(exec);
}

void copse_exec_set_stall_seconds(struct copse_exec *exec, double seconds) {
  exec->stall_seconds = seconds;
  if (exec->gpu) copse_exec_gpu_set_stall_seconds(exec);
}

/* Scratch only grows: launches of the same size don't allocate. Its content between
 * launches means nothing. */
static copse_status grow_scratch(struct copse_exec *exec, struct copse_err *err) {
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++) {
    uint64_t bytes = copse_layout_slot_bytes(&exec->layout, &exec->view.shape, r);
    if (!copse_exec_is_here(exec, r)) continue;
    if (bytes <= exec->scratch_capacity[r]) continue;
    free(exec->memory[r].scratch);
    exec->memory[r].scratch = NULL;
    exec->scratch_capacity[r] = 0;
    copse_status status = copse_calloc((size_t)bytes, 1, &exec->memory[r].scratch, err);
    if (status != COPSE_OK) return status;
    exec->scratch_capacity[r] = bytes;
  }
  return COPSE_OK;
}

/* The two copies lie at a distance that doesn't depend on the size, or the packets of one
 * launch could lie on those of the launch before. New ones have no launch's flag. */
static copse_status grow_packets(struct copse_exec *exec, struct copse_err *err) {
  uint32_t n = exec->plan->header.n_ranks;
  uint64_t most = 0;
  for (uint32_t r = 0; r < n; r++) {
    uint64_t bytes = copse_layout_packet_bytes(&exec->layout, &exec->view.shape, r);
    if (bytes > most) most = bytes;
  }
  most = copse_round_up(most, COPSE_CACHE_LINE);
  if (most <= exec->packets_capacity) return COPSE_OK;
  exec->packets_capacity = 0;
  for (uint32_t r = 0; r < n; r++) {
    free(exec->memory[r].packets);
    exec->memory[r].packets = NULL;
    if (exec->layout.packets[r].n == 0 || !copse_exec_is_here(exec, r)) continue;
    copse_status status = copse_calloc((size_t)most, 2, &exec->memory[r].packets, err);
    if (status != COPSE_OK) return status;
  }
  exec->packets_capacity = most;
  return COPSE_OK;
}

static copse_status check_launch(const struct copse_exec *exec, const struct copse_launch *launch,
                                 struct copse_err *err) {
  const struct copse_plan_header *h = &exec->plan->header;
  if (exec->broken)
    return copse_fail(err, COPSE_INVALID, "an earlier launch of this executor failed");
  if ((unsigned)launch->type >= COPSE_N_TYPES || (unsigned)launch->redop >= COPSE_N_REDOPS)
    return copse_fail(err, COPSE_INVALID, "unknown element type or reduction");
  if (launch->pair_counts &&
      (h->collective != COPSE_ALLTOALL || h->n_extents > 0 ||
       h->protocol != COPSE_PROTOCOL_BANDWIDTH))
    return copse_fail(err, COPSE_INVALID, "counts of pairs, and a plan that takes none");
  return COPSE_OK;
}

static copse_status prepare(struct copse_exec *exec, const struct copse_launch *launch,
                            struct copse_err *err) {
  const struct copse_plan *plan = exec->plan;
  struct copse_view *view = &exec->view;
  copse_status status;
  COPSE_TRY(check_launch(exec, launch, err));
  *view = (struct copse_view){.ops = plan->ops,
                              .operands = plan->operands,
                              .pieces = plan->pieces,
                              .extents = plan->header.n_extents > 0 ? plan->extents : NULL,
                              .places = exec->layout.places,
                              .ranks = exec->memory,
                              .pair_counts = launch->pair_counts,
                              .n_ranks = plan->header.n_ranks,
                              .type = launch->type,
                              .redop = launch->redop};
  COPSE_TRY(copse_layout_shape(&exec->layout, launch->count, copse_element_bytes(launch->type),
                               &view->shape, err));
  COPSE_TRY(grow_scratch(exec, err));
  COPSE_TRY(grow_packets(exec, err));
  view->packets_copy = exec->packets_capacity;
  for (uint32_t r = 0; r < view->n_ranks; r++) {
    exec->memory[r].input = launch->inputs[r];
    exec->memory[r].output = launch->outputs[r];
  }
  /* Nothing is combined, hence nothing averaged either. */
  if (!copse_collective_reduces((copse_collective)plan->header.collective))
    view->redop = COPSE_SUM;
  memset(exec->workers, 0, plan->header.n_workers * sizeof *exec->workers);
out:
  return status;
}

/* See copse_epoch_is_last. */
static void clear_packets(struct copse_exec *exec) {
  uint64_t bytes = exec->packets_capacity;
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++)
    if (exec->memory[r].packets)
      memset(exec->memory[r].packets + (exec->epoch & 1) * bytes, 0, (size_t)bytes);
}

static copse_status run_on_cpu(struct copse_exec *exec, const struct copse_launch *launch,
                               struct copse_err *err) {
  copse_status status;
  COPSE_TRY(prepare(exec, launch, err));
  /* on no machine, and without a number: nobody would hear of anybody */
  if (launch->count == 0) return COPSE_OK;
  exec->epoch = copse_next_epoch(exec->epoch);
  exec->broken = true;
  if (exec->backend == COPSE_BACKEND_THREADS)
    COPSE_TRY(copse_exec_threads_run(exec, err));
  else if (exec->backend == COPSE_BACKEND_MPI)
    COPSE_TRY(copse_exec_mesh_run(exec, err));
  else
    COPSE_TRY(copse_exec_cpu_run(exec, err));
  COPSE_TRY(copse_exec_check_balance(exec, err));
  if (copse_epoch_is_last(exec->epoch)) clear_packets(exec);
  exec->broken = false;
out:
  return status;
}

copse_status copse_exec_load(struct copse_exec *exec, const struct copse_launch *launch,
                             struct copse_err *err) {
  if (exec->backend != COPSE_BACKEND_CUDA) return COPSE_OK;
  copse_status status = check_launch(exec, launch, err);
  return status == COPSE_OK ? copse_exec_gpu_load(exec, launch, err) : status;
}

copse_status copse_exec_start(struct copse_exec *exec, const struct copse_launch *launch,
                              struct copse_err *err) {
  if (exec->backend != COPSE_BACKEND_CUDA) return run_on_cpu(exec, launch, err);
  copse_status status = check_launch(exec, launch, err);
  if (status != COPSE_OK || launch->count == 0) return status;
  return copse_exec_gpu_start(exec, launch, err);
}

copse_status copse_exec_finish(struct copse_exec *exec, struct copse_err *err) {
  return exec->backend == COPSE_BACKEND_CUDA ? copse_exec_gpu_finish(exec, err) : COPSE_OK;
}

copse_status copse_exec_store(struct copse_exec *exec, const struct copse_launch *launch,
                              struct copse_err *err) {
  return exec->backend == COPSE_BACKEND_CUDA ? copse_exec_gpu_store(exec, launch, err) : COPSE_OK;
}

copse_status copse_exec_run(struct copse_exec *exec, const struct copse_launch *launch,
                            struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_exec_load(exec, launch, err));
  COPSE_TRY(copse_exec_start(exec, launch, err));
  COPSE_TRY(copse_exec_finish(exec, err));
  COPSE_TRY(copse_exec_store(exec, launch, err));
out:
  return status;
}

copse_status copse_exec_scratch_bytes(const struct copse_plan *plan, uint64_t count,
                                      enum copse_type type, uint64_t *bytes,
                                      struct copse_err *err) {
  struct copse_layout layout;
  struct copse_shape shape;
  *bytes = 0;
  copse_status status = copse_layout_new(plan, &layout, err);
  if (status != COPSE_OK) return status;
  status = copse_layout_shape(&layout, count, copse_element_bytes(type), &shape, err);
  for (uint32_t r = 0; r < plan->header.n_ranks && status == COPSE_OK; r++)
    *bytes += copse_layout_slot_bytes(&layout, &shape, r) +
              2 * copse_layout_packet_bytes(&layout, &shape, r);
  copse_layout_free(&layout);
  return status;
}
