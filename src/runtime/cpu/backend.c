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
#include "runtime/transport/transport.h"

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

static const struct copse_engine cooperative_engine = {
    .open = open_engine, .close = close_engine, .run = run};

/* ---- the backend ----------------------------------------------------------------------------- */

struct cpu {
  uint32_t n_ranks, first_local, n_local;
  const struct copse_engine *engine;
  struct copse_transport *transport; /* to the other ranks; the communicator ends it. NULL: none */
  struct copse_interpreter *plans;
  double stall_seconds; /* 0: the interpreter's default */
};

/* Of a broken transport, messages may still be on their way into an interpreter's memory: it
 * stays. */
static void destroy(void *context) {
  struct cpu *cpu = context;
  if (!cpu) return;
  const bool stay = cpu->transport && copse_transport_status(cpu->transport, NULL) != COPSE_OK;
  while (cpu->plans && !stay) {
    struct copse_interpreter *next = cpu->plans->next;
    copse_interpreter_free(cpu->plans);
    cpu->plans = next;
  }
  free(cpu);
}

static copse_status create(const struct copse_comm_shape *shape, void **out,
                           struct copse_err *err) {
  const bool transports = shape->engine == &copse_transport_engine;
  struct cpu *cpu = NULL;
  *out = NULL;
  if (!transports && shape->n_local != shape->n_ranks)
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks on the CPU must all be in one process");
  COPSE_DO(copse_calloc(1, sizeof *cpu, &cpu, err));
  *cpu = (struct cpu){.n_ranks = shape->n_ranks,
                      .first_local = shape->first_local,
                      .n_local = shape->n_local,
                      .engine = shape->engine ? shape->engine : &cooperative_engine,
                      .transport = transports ? shape->bootstrap->context : NULL};
  *out = cpu;
  return COPSE_OK;
}

/* Notifies all ranks where preparing failed at one. */
static copse_status agree(const struct cpu *cpu, copse_status mine, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) uint32_t *all = NULL;
  const uint32_t status = (uint32_t)mine;
  if (copse_calloc(cpu->n_ranks, sizeof *all, &all, err) != COPSE_OK)
    return copse_transport_out_of_memory(cpu->transport);
  if (copse_transport_all_gather(cpu->transport, &status, all, sizeof status) != COPSE_OK)
    mine = copse_transport_status(cpu->transport, err);
  for (uint32_t r = 0; (mine == COPSE_OK || mine == COPSE_UNSUPPORTED) && r < cpu->n_ranks; r++)
    if (all[r] != mine) /* also where they would leave out different plans */
      mine = copse_fail(err, COPSE_REFUTED, "the plan can't be used: rank %u: %s", r,
                        copse_status_string((copse_status)all[r]));
  return mine;
}

static copse_status prepare_one(void *context, const struct copse_plan *plan, void **out,
                                struct copse_err *err) {
  struct cpu *cpu = context;
  struct copse_interpreter *prepared = NULL;
  *out = NULL;
  copse_status status = copse_interpreter_new(plan, cpu->engine, cpu->transport, &prepared, err);
  if (cpu->transport) status = agree(cpu, status, err);
  if (status != COPSE_OK) {
    copse_interpreter_free(prepared);
    return status;
  }
  if (cpu->stall_seconds > 0) prepared->stall_seconds = cpu->stall_seconds;
  prepared->next = cpu->plans;
  *out = cpu->plans = prepared;
  return COPSE_OK;
}

/* Leaves out what the engine doesn't run (multicast, by messages), unless that is all. */
static copse_status prepare(void *context, const struct copse_plan *const *plans, size_t n,
                            void **out, struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  size_t n_left = 0;
  for (size_t i = 0; i < n; i++) {
    const copse_status status = prepare_one(context, plans[i], &out[i], &why);
    if (status == COPSE_UNSUPPORTED && ++n_left < n) {
      copse_debug(COPSE_DEBUG_INFO, -1, "%s is left out: %s", plans[i]->name, why.text);
      continue;
    }
    if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  }
  return COPSE_OK;
}

/* Counts are no larger than blocks, and the matrices of the ranks here the same. The transport
 * compares those of others. */
static copse_status check_pair_counts(const struct cpu *cpu, const struct copse_call *calls,
                                      struct copse_err *err) {
  const uint64_t n = cpu->n_ranks, *first = calls[0].pair_counts;
  for (uint32_t i = 0; first && i < cpu->n_local; i++) {
    const uint64_t *counts = calls[i].pair_counts;
    for (uint64_t pair = 0; pair < n * n; pair++)
      if (counts[pair] > calls[i].count)
        return copse_fail(err, COPSE_INVALID,
                          "rank %u: pair_counts has %llu elements from rank %u to rank %u, a block "
                          "has %llu",
                          cpu->first_local + i, (unsigned long long)counts[pair],
                          (unsigned)(pair / n), (unsigned)(pair % n),
                          (unsigned long long)calls[i].count);
    for (uint64_t pair = 0; counts != first && pair < n * n; pair++)
      if (counts[pair] != first[pair])
        return copse_fail(err, COPSE_INVALID,
                          "pair_counts from rank %u to rank %u is %llu at rank 0 and %llu at rank "
                          "%u; it must be the same matrix everywhere",
                          (unsigned)(pair / n), (unsigned)(pair % n),
                          (unsigned long long)first[pair], (unsigned long long)counts[pair], i);
  }
  return COPSE_OK;
}

/* One round at a time. */
static copse_status launch(void *context, const struct copse_round *rounds, uint32_t n,
                           uint32_t *n_taken, struct copse_err *err) {
  struct cpu *cpu = context;
  struct copse_err why = COPSE_ERR_INIT;
  (void)n;
  *n_taken = 1;
  COPSE_DO(check_pair_counts(cpu, rounds->calls, err));
  copse_status status = copse_interpreter_run(rounds->prepared, rounds->calls, &why);
  if (status == COPSE_OK) return COPSE_OK;
  /* other ranks may be running it */
  if (cpu->transport) (void)copse_transport_fail(cpu->transport, &why);
  return copse_fail(err, status, "%s", why.text);
}

/* A launch has ended when it returns. */
static copse_status finish(void *cpu, struct copse_err *err) {
  (void)cpu, (void)err;
  return COPSE_OK;
}

static copse_status poll(void *context, struct copse_err *err) {
  struct cpu *cpu = context;
  return cpu->transport ? copse_transport_status(cpu->transport, err) : COPSE_OK;
}

static void abort_backend(void *context) {
  struct cpu *cpu = context;
  if (cpu->transport) copse_transport_abort(cpu->transport);
}

/* The cooperative engine doesn't watch the clock: it sees a deadlock at once. */
static void set_timeout(void *context, double seconds) {
  struct cpu *cpu = context;
  cpu->stall_seconds = seconds;
  for (struct copse_interpreter *it = cpu->plans; it; it = it->next) it->stall_seconds = seconds;
  if (cpu->transport) copse_transport_set_timeout(cpu->transport, seconds);
}

const struct copse_backend_ops copse_cpu_backend = {.create = create,
                                                    .destroy = destroy,
                                                    .prepare = prepare,
                                                    .launch = launch,
                                                    .finish = finish,
                                                    .poll = poll,
                                                    .abort = abort_backend,
                                                    .set_timeout = set_timeout};
