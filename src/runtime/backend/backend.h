/* The interface of backends: what runs plans. Communicators (comm/local_ranks.c) and executors
 * (comm/executor.c) bring calls together, pick the plan and give both to a backend. Backends are
 * cpu/backend.c (CPUs, with an engine) and gpu/ (CUDA). */
#pragma once

#include "base/err.h"
#include "copse/comm.h"
#include "runtime/plan/plan.h"

/* One rank's call of a collective; arguments are checked, the plan fits them. */
struct copse_call {
  copse_collective collective;
  int root;       /* broadcast, reduce; else -1 */
  uint64_t count; /* elements of a block */
  copse_type type;
  copse_redop redop;
  const void *send;
  void *recv;
  const uint64_t *pair_counts; /* all_to_all_v; else NULL */
  copse_stream stream;
  /* The same counts where the host can read them during the launch, or NULL: at all ranks alike.
   * It may also find out by itself that it can read pair_counts. */
  const uint64_t *host_counts;
};

/* The calls of all local ranks that belong together, and the plan that runs them. */
struct copse_batch {
  void *prepared;
  const struct copse_call *calls; /* [n_local] */
};

struct copse_engine; /* runtime/interpreter/interpreter.h */

/* Who is in a communicator. */
struct copse_comm_shape {
  uint32_t n_ranks;
  uint32_t first_local, n_local;    /* the ranks of this process */
  const int *devices;               /* [n_local] */
  const copse_bootstrap *bootstrap; /* NULL where all ranks are local */
  /* Why the bootstrap failed, by its context; NULL: it can't say. */
  copse_status (*bootstrap_error)(void *context, struct copse_err *err);
  const struct copse_engine *engine; /* of CPUs; NULL: one thread steps all workers in turn */
};

/* All functions are called with the communicator's backend_lock held, but for abort, which any
 * thread may call at any time. `backend` is what create made, `prepared` what prepare made. */
struct copse_backend_ops {
  copse_status (*create)(const struct copse_comm_shape *shape, void **backend,
                         struct copse_err *err);
  void (*destroy)(void *backend); /* after finish; frees what is prepared */

  /* Makes n plans ready to run: memory, counters, co-residency. Collective across processes: it
   * fails at all of them or at none. prepared[i] is NULL for a plan that doesn't fit some rank's
   * device, at all ranks, and the log says why; COPSE_UNSUPPORTED where that is all of them. The
   * plans are borrowed until destroy, also where preparing fails and none is used. */
  copse_status (*prepare)(void *backend, const struct copse_plan *const *plans, size_t n,
                          void **prepared, struct copse_err *err);

  /* Runs (CPU) or enqueues (GPU) the first of n >= 1 batches, and as many after it as one launch
   * can hold: *n_taken. They run one after the other; how many go together is each process's own
   * affair. The status is of all that were taken. After COPSE_INVALID and COPSE_UNSUPPORTED
   * (refused alike in every process), and after COPSE_NOMEM where all ranks are local, nothing has
   * started and the backend is as before; any other error breaks the communicator. */
  copse_status (*launch)(void *backend, const struct copse_batch *batches, uint32_t n,
                         uint32_t *n_taken, struct copse_err *err);

  copse_status (*finish)(void *backend, struct copse_err *err); /* waits for what is enqueued */
  copse_status (*poll)(void *backend, struct copse_err *err);   /* why it broke, or COPSE_OK */
  void (*abort)(void *backend);
  void (*set_timeout)(void *backend, double seconds);

  /* Collective across processes. May be NULL: nothing to register. */
  copse_status (*add_buffer)(void *backend, uint32_t local_rank, void *buffer, size_t bytes,
                             void **handle, struct copse_err *err);
  copse_status (*remove_buffer)(void *backend, uint32_t local_rank, void *handle,
                                struct copse_err *err);

  /* Order of a local rank's launches with work of others that waits for other ranks too: follow
   * lets the stream wait for the last launch; lead makes later launches wait for what the stream
   * holds. Each takes effect where the streams differ. May be NULL: nothing is enqueued. */
  copse_status (*follow)(void *backend, uint32_t local_rank, copse_stream stream,
                         struct copse_err *err);
  copse_status (*lead)(void *backend, uint32_t local_rank, copse_stream stream,
                       struct copse_err *err);

  /* Whether the host sizes messages to ranks that share no memory with this process; known once a
   * plan is prepared. May be NULL: no. */
  bool (*sizes_messages)(const void *backend);
};

/* Launches one batch. calls[i] is that of local rank i. */
static inline copse_status copse_launch_one(const struct copse_backend_ops *ops, void *backend,
                                            void *prepared, const struct copse_call *calls,
                                            struct copse_err *err) {
  const struct copse_batch batch = {prepared, calls};
  uint32_t n_taken;
  return ops->launch(backend, &batch, 1, &n_taken, err);
}

/* The GPUs'; only in builds with CUDA, where copse_gpu() in gpu/gpu.h has it. */
extern const struct copse_backend_ops copse_cuda_backend;
