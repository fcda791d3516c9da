/*
 * CPUs as a backend: a call runs on the spot, by the interpreter of its plan, on the callers'
 * buffers. When launch returns the call is over.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/cpu/cpu.h"

/* ---- what all backends on CPUs share --------------------------------------------------------- */

copse_status copse_host_init(struct copse_host *host, const struct copse_comm_shape *shape,
                             const struct copse_engine *engine, struct copse_err *err) {
  copse_status status;
  host->engine = engine;
  host->n_ranks = shape->n_ranks;
  host->first_local = shape->first_local;
  host->n_local = shape->n_local;
  COPSE_TRY(copse_calloc(host->n_ranks, sizeof *host->inputs, &host->inputs, err));
  COPSE_TRY(copse_calloc(host->n_ranks, sizeof *host->outputs, &host->outputs, err));
out:
  return status;
}

void copse_host_free_plan(struct copse_host_plan *plan) {
  if (!plan) return;
  copse_interpreter_free(plan->exec);
  free(plan);
}

void copse_host_free(struct copse_host *host, bool with_interpreters) {
  while (host->plans) {
    struct copse_host_plan *next = host->plans->next;
    if (with_interpreters)
      copse_host_free_plan(host->plans);
    else
      free(host->plans);
    host->plans = next;
  }
  free(host->inputs);
  free(host->outputs);
}

copse_status copse_host_new_plan(const struct copse_host *host, const struct copse_plan *plan,
                                 void *context, struct copse_host_plan **out,
                                 struct copse_err *err) {
  copse_status status = copse_calloc(1, sizeof **out, out, err);
  if (status != COPSE_OK) return status;
  status = copse_interpreter_new(plan, host->engine, context, &(*out)->exec, err);
  if (status == COPSE_OK) {
    if (host->stall_seconds > 0) (*out)->exec->stall_seconds = host->stall_seconds;
    return COPSE_OK;
  }
  free(*out);
  *out = NULL;
  return status;
}

void copse_host_keep(struct copse_host *host, struct copse_host_plan *plan) {
  plan->next = host->plans;
  host->plans = plan;
}

copse_status copse_host_launch(struct copse_host *host, struct copse_host_plan *plan,
                               const struct copse_call *calls, struct copse_err *err) {
  for (uint32_t i = 0; i < host->n_local; i++) { /* plans don't write inputs */
    host->inputs[host->first_local + i] = (void *)(uintptr_t)calls[i].send;
    host->outputs[host->first_local + i] = calls[i].recv;
  }
  const struct copse_launch launch = {.count = calls[0].count,
                                      .type = calls[0].type,
                                      .redop = calls[0].redop,
                                      .inputs = host->inputs,
                                      .outputs = host->outputs,
                                      .pair_counts = calls[0].pair_counts};
  return copse_interpreter_run(plan->exec, &launch, err);
}

copse_status copse_host_check_pair_counts(const struct copse_host *host, uint32_t rank,
                                          const struct copse_call *call, struct copse_err *err) {
  uint64_t n = host->n_ranks;
  for (uint64_t pair = 0; call->pair_counts && pair < n * n; pair++)
    if (call->pair_counts[pair] > call->count)
      return copse_fail(err, COPSE_INVALID,
                        "rank %u: pair_counts has %llu elements from rank %u to rank %u, a block "
                        "has %llu",
                        rank, (unsigned long long)call->pair_counts[pair], (unsigned)(pair / n),
                        (unsigned)(pair % n), (unsigned long long)call->count);
  return COPSE_OK;
}

/* ---- all ranks in this process ----------------------------------------------------------------
 */

static void destroy(void *context) {
  struct copse_host *host = context;
  if (!host) return;
  copse_host_free(host, true);
  free(host);
}

static copse_status create(const struct copse_comm_shape *shape, const struct copse_engine *engine,
                           void **out, struct copse_err *err) {
  struct copse_host *host = NULL;
  copse_status status;
  *out = NULL;
  if (shape->n_local != shape->n_ranks)
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks on the CPU must all be in one process");
  COPSE_TRY(copse_calloc(1, sizeof *host, &host, err));
  COPSE_TRY(copse_host_init(host, shape, engine, err));
  *out = host;
  return COPSE_OK;
out:
  destroy(host);
  return status;
}

static copse_status create_cooperative(const struct copse_comm_shape *shape, void **out,
                                       struct copse_err *err) {
  return create(shape, &copse_cooperative_engine, out, err);
}

static copse_status create_threads(const struct copse_comm_shape *shape, void **out,
                                   struct copse_err *err) {
  return create(shape, &copse_threads_engine, out, err);
}

static copse_status prepare(void *host, const struct copse_plan *plan, void **out,
                            struct copse_err *err) {
  struct copse_host_plan *prepared;
  *out = NULL;
  copse_status status = copse_host_new_plan(host, plan, NULL, &prepared, err);
  if (status != COPSE_OK) return status;
  copse_host_keep(host, prepared);
  *out = prepared;
  return COPSE_OK;
}

/* The ranks' matrices must be the same. */
static copse_status check_pair_counts(const struct copse_host *host, const struct copse_call *calls,
                                      struct copse_err *err) {
  const uint32_t n = host->n_ranks;
  const uint64_t *first = calls[0].pair_counts;
  copse_status status = COPSE_OK;
  for (uint32_t r = 0; first && r < n; r++) {
    COPSE_TRY(copse_host_check_pair_counts(host, r, &calls[r], err));
    for (uint64_t pair = 0; calls[r].pair_counts != first && pair < (uint64_t)n * n; pair++)
      if (calls[r].pair_counts[pair] != first[pair])
        return copse_fail(err, COPSE_INVALID,
                          "pair_counts from rank %u to rank %u is %llu at rank 0 and %llu at rank "
                          "%u; it must be the same matrix everywhere",
                          (unsigned)(pair / n), (unsigned)(pair % n),
                          (unsigned long long)first[pair],
                          (unsigned long long)calls[r].pair_counts[pair], r);
  }
out:
  return status;
}

static copse_status launch(void *host, void *prepared, const struct copse_call *calls,
                           struct copse_err *err) {
  copse_status status = check_pair_counts(host, calls, err);
  return status == COPSE_OK ? copse_host_launch(host, prepared, calls, err) : status;
}

/* A launch has ended when it returns. */
static copse_status finish(void *host, struct copse_err *err) {
  (void)host, (void)err;
  return COPSE_OK;
}
static copse_status poll(void *host, struct copse_err *err) {
  (void)host, (void)err;
  return COPSE_OK;
}
static void abort_backend(void *host) { (void)host; }

/* Only the threads engine watches the clock: the cooperative one sees a deadlock at once. */
static void set_timeout(void *context, double seconds) {
  struct copse_host *host = context;
  host->stall_seconds = seconds;
  for (struct copse_host_plan *it = host->plans; it; it = it->next)
    it->exec->stall_seconds = seconds;
}

const struct copse_backend_ops copse_cpu_backend = {.create = create_cooperative,
                                                    .destroy = destroy,
                                                    .prepare = prepare,
                                                    .launch = launch,
                                                    .finish = finish,
                                                    .poll = poll,
                                                    .abort = abort_backend,
                                                    .set_timeout = set_timeout};
const struct copse_backend_ops copse_threads_backend = {.create = create_threads,
                                                        .destroy = destroy,
                                                        .prepare = prepare,
                                                        .launch = launch,
                                                        .finish = finish,
                                                        .poll = poll,
                                                        .abort = abort_backend,
                                                        .set_timeout = set_timeout};
