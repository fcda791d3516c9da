/*
 * The cooperative engine: one thread steps the workers of all ranks in turn. A worker
 * runs until it waits; it enters the queue again when its channel is signalled, so the
 * cost is that of the operations, whatever the number of workers. Deterministic.
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
  copse_status status;
  (void)context;
  COPSE_TRY(copse_calloc(1, sizeof *it, &it, err));
  exec->own = it;
  COPSE_TRY(copse_calloc(n, sizeof *it->queue, &it->queue, err));
  COPSE_TRY(copse_calloc(n, sizeof *it->waiting_on, &it->waiting_on, err));
out:
  return status;
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
