/*
 * The cooperative backend: one thread steps the workers of all ranks in turn. A worker
 * runs until it waits; it enters the queue again when its channel is signalled, so the
 * cost is that of the operations, whatever the number of workers. Deterministic.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/interpreter/exec_internal.h"

/* Not a channel: the worker waits for none. */
#define NO_CHANNEL UINT32_MAX
#define NO_WORKER UINT32_MAX

struct copse_exec_cpu {
  uint32_t *queue; /* [n_workers] ring of those that can move; each is in it at most once */
  uint32_t head, used;
  uint32_t *waiting_on; /* [n_workers] channel, or NO_CHANNEL */
  uint32_t missing;     /* a worker that reads packets which nobody has sent, or NO_WORKER */
};

copse_status copse_exec_cpu_new(struct copse_exec *exec, struct copse_err *err) {
  uint32_t n = exec->plan->header.n_workers;
  copse_status status;
  COPSE_TRY(copse_calloc(1, sizeof *exec->cpu, &exec->cpu, err));
  COPSE_TRY(copse_calloc(n, sizeof *exec->cpu->queue, &exec->cpu->queue, err));
  COPSE_TRY(copse_calloc(n, sizeof *exec->cpu->waiting_on, &exec->cpu->waiting_on, err));
out:
  return status;
}

void copse_exec_cpu_free(struct copse_exec *exec) {
  if (!exec->cpu) return;
  free(exec->cpu->queue);
  free(exec->cpu->waiting_on);
  free(exec->cpu);
}

static void enqueue(struct copse_exec *exec, uint32_t w) {
  struct copse_exec_cpu *cpu = exec->cpu;
  uint64_t tail = ((uint64_t)cpu->head + cpu->used) % exec->plan->header.n_workers;
  cpu->queue[tail] = w;
  cpu->used++;
  cpu->waiting_on[w] = NO_CHANNEL;
}

static uint32_t dequeue(struct copse_exec *exec) {
  struct copse_exec_cpu *cpu = exec->cpu;
  uint32_t w = cpu->queue[cpu->head];
  cpu->head = cpu->head + 1 == exec->plan->header.n_workers ? 0 : cpu->head + 1;
  cpu->used--;
  return w;
}

/* Runs w until it waits or is finished, waking those that it signals. */
static bool run_worker(struct copse_exec *exec, uint32_t w) {
  for (;;) {
    uint32_t channel;
    enum copse_exec_step step = copse_exec_advance(exec, w, &channel);
    if (step == COPSE_STEP_FINISHED) return true;
    if (step == COPSE_STEP_LOOKS) { /* its channels said that they are there */
      exec->cpu->missing = w;
      return false;
    }
    if (step == COPSE_STEP_WAITS) {
      exec->cpu->waiting_on[w] = channel;
      return false;
    }
    uint32_t waiter = exec->plan->channels[channel].dst_worker;
    if (exec->cpu->waiting_on[waiter] == channel) enqueue(exec, waiter);
  }
}

static copse_status report_missing(const struct copse_exec *exec, struct copse_err *err) {
  uint32_t w = exec->cpu->missing, rank = exec->plan->workers[w].rank;
  return copse_fail(err, COPSE_REFUTED,
                    "rank %u worker %u, op %u: reads packets that nobody has sent before", rank,
                    w - exec->plan->ranks[rank].first_worker, exec->workers[w].op);
}

copse_status copse_exec_cpu_run(struct copse_exec *exec, struct copse_err *err) {
  uint32_t n = exec->plan->header.n_workers, finished = 0;
  exec->cpu->head = exec->cpu->used = 0;
  exec->cpu->missing = NO_WORKER;
  for (uint32_t w = 0; w < n; w++) enqueue(exec, w);
  while (exec->cpu->used > 0)
    if (run_worker(exec, dequeue(exec))) finished++;
  if (exec->cpu->missing != NO_WORKER) return report_missing(exec, err);
  if (finished < n) return copse_exec_report_standstill(exec, "deadlock", err);
  return COPSE_OK;
}
