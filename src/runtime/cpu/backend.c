/*
 * CPUs as a backend: a call runs on the spot, by the interpreter of its plan, on the callers'
 * buffers. When launch returns the call is over.
 *
 * The cooperative engine: one thread steps the workers of all ranks in turn. A worker runs until it
 * waits; it enters the queue again when its channel is signalled, so the cost is that of the
 * operations, whatever the number of workers. Deterministic.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/cpu/cpu.h"

/* Not a channel: the worker waits for none. */
#define NO_CHANNEL UINT32_MAX
#define NO_WORKER UINT32_MAX

struct cooperative {
  uint32_t *queue; /* [n_workers] ring of those that can move; each is in it at most once */
  uint32_t head, used;
  uint32_t *waiting_on; /* [n_workers] channel, or NO_CHANNEL */
  uint32_t missing;     /* a worker that reads packets which nobody has sent, or NO_WORKER */
};

static void close_engine(struct copse_interpreter *exec) {
  struct cooperative *it = exec->own;
  free(it->queue);
  free(it->waiting_on);
  free(it);
}

static copse_status open_engine(struct copse_interpreter *exec, void *context,
                                struct copse_err *err) {
  uint32_t n = exec->plan->header.n_workers;
  struct cooperative *it;
  (void)context;
  COPSE_DO(copse_calloc(1, sizeof *it, &it, err));
  exec->own = it;
  COPSE_DO(copse_calloc(n, sizeof *it->queue, &it->queue, err));
  return copse_calloc(n, sizeof *it->waiting_on, &it->waiting_on, err);
}

static void enqueue(struct copse_interpreter *exec, uint32_t w) {
  struct cooperative *cpu = exec->own;
  uint64_t tail = ((uint64_t)cpu->head + cpu->used) % exec->plan->header.n_workers;
  cpu->queue[tail] = w;
  cpu->used++;
  cpu->waiting_on[w] = NO_CHANNEL;
}

static uint32_t dequeue(struct copse_interpreter *exec) {
  struct cooperative *cpu = exec->own;
  uint32_t w = cpu->queue[cpu->head];
  cpu->head = cpu->head + 1 == exec->plan->header.n_workers ? 0 : cpu->head + 1;
  cpu->used--;
  return w;
}

/* Runs w until it waits or is finished, waking those that it signals. */
static bool run_worker(struct copse_interpreter *exec, uint32_t w) {
  struct cooperative *cpu = exec->own;
  for (;;) {
    uint32_t channel;
    enum copse_exec_step step = copse_exec_advance(exec, w, &channel);
    if (step == COPSE_STEP_FINISHED) return true;
    if (step == COPSE_STEP_LOOKS) { /* its channels said that they are there */
      cpu->missing = w;
      return false;
    }
    if (step == COPSE_STEP_WAITS) {
      cpu->waiting_on[w] = channel;
      return false;
    }
    uint32_t waiter = exec->plan->channels[channel].dst_worker;
    if (cpu->waiting_on[waiter] == channel) enqueue(exec, waiter);
  }
}

static copse_status report_missing(const struct copse_interpreter *exec, struct copse_err *err) {
  uint32_t w = ((const struct cooperative *)exec->own)->missing, rank = exec->plan->workers[w].rank;
  return copse_fail(err, COPSE_REFUTED,
                    "rank %u worker %u, op %u: reads packets that nobody has sent before", rank,
                    w - exec->plan->ranks[rank].first_worker, exec->workers[w].op);
}

static copse_status run(struct copse_interpreter *exec, struct copse_err *err) {
  struct cooperative *cpu = exec->own;
  uint32_t n = exec->plan->header.n_workers, finished = 0;
  cpu->head = cpu->used = 0;
  cpu->missing = NO_WORKER;
  for (uint32_t w = 0; w < n; w++) enqueue(exec, w);
  while (cpu->used > 0)
    if (run_worker(exec, dequeue(exec))) finished++;
  if (cpu->missing != NO_WORKER) return report_missing(exec, err);
  if (finished < n) return copse_exec_report_standstill(exec, "deadlock", err);
  return COPSE_OK;
}

const struct copse_engine copse_cooperative_engine = {
    .open = open_engine, .close = close_engine, .run = run};

/* ---- what all backends on CPUs share --------------------------------------------------------- */

copse_status copse_host_init(struct copse_host *host, const struct copse_comm_shape *shape,
                             const struct copse_engine *engine, struct copse_err *err) {
  host->engine = engine;
  host->n_ranks = shape->n_ranks;
  host->first_local = shape->first_local;
  host->n_local = shape->n_local;
  COPSE_DO(copse_calloc(host->n_ranks, sizeof *host->inputs, &host->inputs, err));
  return copse_calloc(host->n_ranks, sizeof *host->outputs, &host->outputs, err);
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
  COPSE_DO(copse_host_new_plan(host, plan, NULL, &prepared, err));
  copse_host_keep(host, prepared);
  *out = prepared;
  return COPSE_OK;
}

/* The ranks' matrices must be the same. */
static copse_status check_pair_counts(const struct copse_host *host, const struct copse_call *calls,
                                      struct copse_err *err) {
  const uint32_t n = host->n_ranks;
  const uint64_t *first = calls[0].pair_counts;
  for (uint32_t r = 0; first && r < n; r++) {
    COPSE_DO(copse_host_check_pair_counts(host, r, &calls[r], err));
    for (uint64_t pair = 0; calls[r].pair_counts != first && pair < (uint64_t)n * n; pair++)
      if (calls[r].pair_counts[pair] != first[pair])
        return copse_fail(err, COPSE_INVALID,
                          "pair_counts from rank %u to rank %u is %llu at rank 0 and %llu at rank "
                          "%u; it must be the same matrix everywhere",
                          (unsigned)(pair / n), (unsigned)(pair % n),
                          (unsigned long long)first[pair],
                          (unsigned long long)calls[r].pair_counts[pair], r);
  }
  return COPSE_OK;
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
