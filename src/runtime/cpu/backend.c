/* CPUs as a backend, and its two engines: threads, and one thread that steps all workers. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/graph.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "runtime/cpu/cpu.h"
#include "runtime/transport/transport.h"

/* ==== the threads engine ====================================================================== */

/*
 * The threads engine: one thread per worker, kept from launch to launch. Data is ordered
 * by the channels' counters alone (release and acquire), as on a GPU. A worker that waits
 * spins briefly, yields, and then sleeps until its channel is signalled, since there may
 * be a thousand workers on two cores.
 */

#define STACK_BYTES ((size_t)256 << 10)
#define YIELDS 4
/* Looks for packets before the first nap, and naps of one length. After so many naps their length
 * doubles, up to 32 times the first, so that hundreds of threads that wait for long leave the cores
 * to the threads that work. */
#define LOOKS 100
#define NAPS 8u
#define NAP_NS 50000
#define MOST_DOUBLINGS 5u
/* How often the watchdog looks; a fraction of the limit where that is short. */
#define WATCH_SECONDS 0.1

struct thread {
  alignas(COPSE_CACHE_LINE) struct copse_interpreter *exec;
  uint32_t worker;
  pthread_t id;
  pthread_mutex_t lock; /* for sleeping only */
  pthread_cond_t wake;
  alignas(COPSE_CACHE_LINE) _Atomic uint32_t sleeping; /* 1 from before it looks a last time */
  _Atomic uint32_t finished;
  _Atomic uint64_t steps; /* signals, waits and looks passed: the watchdog compares them */
};

struct team {
  struct thread *threads; /* [n_workers] */
  uint32_t n_started;
  int spins;          /* while every worker has a core, waiting is short */
  _Atomic bool leave; /* the launch is given up: whoever waits returns */
  pthread_mutex_t lock;
  pthread_cond_t start, done;
  uint64_t launch;  /* counts launches: a new value starts one */
  uint32_t running; /* threads that are still in the launch */
  bool quit;
};

/* ---- one worker's thread ------------------------------------------------------------- */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/* Sleeps until the channel is signalled; false when the launch is given up. */
static bool sleep_until_signalled(struct thread *self, const struct copse_exec_channel *channel,
                                  const _Atomic bool *leave) {
  /* Either this exchange comes after the signaller's in wake_waiter, and then the counter
   * read below has its value, or the signaller sees the 1 and wakes this thread. */
  atomic_exchange_explicit(&self->sleeping, 1, memory_order_acq_rel);
  bool is_signalled = copse_exec_is_signalled(channel);
  if (!is_signalled) {
    pthread_mutex_lock(&self->lock);
    while (!(is_signalled = copse_exec_is_signalled(channel)) &&
           !atomic_load_explicit(leave, memory_order_relaxed))
      pthread_cond_wait(&self->wake, &self->lock);
    pthread_mutex_unlock(&self->lock);
  }
  atomic_store_explicit(&self->sleeping, 0, memory_order_relaxed);
  return is_signalled;
}

static bool wait_for(struct thread *self, const struct copse_exec_channel *channel) {
  const struct team *team = self->exec->own;
  for (int i = 0; i < team->spins; i++) {
    if (copse_exec_is_signalled(channel)) return true;
    relax();
  }
  for (int i = 0; i < YIELDS; i++) {
    if (copse_exec_is_signalled(channel)) return true;
    sched_yield();
  }
  return sleep_until_signalled(self, channel, &team->leave);
}

static void wake(struct thread *thread) {
  COPSE_HOLD(&thread->lock);
  pthread_cond_signal(&thread->wake);
}

/* Wakes the waiter after the counter was raised, by a read-modify-write, for the order with
 * `sleeping`'s exchange. */
static void wake_waiter(struct copse_interpreter *exec, uint32_t channel) {
  struct thread *waiter =
      &((struct team *)exec->own)->threads[exec->plan->channels[channel].dst_worker];
  if (atomic_fetch_or_explicit(&waiter->sleeping, 0, memory_order_acq_rel)) wake(waiter);
}

/* Shows the watchdog that the worker moves. */
static void count_step(struct thread *self) {
  uint64_t steps = atomic_load_explicit(&self->steps, memory_order_relaxed);
  atomic_store_explicit(&self->steps, steps + 1, memory_order_relaxed);
  atomic_store_explicit(&self->sleeping, 0, memory_order_relaxed);
}

/* Looks, then yields, then naps: nobody wakes a worker for packets. From its first nap until its
 * packets have come it counts as asleep: of many that look, one or another is always awake. False
 * when the launch is given up. */
static bool look_again(struct thread *self, uint32_t *looks) {
  const struct team *team = self->exec->own;
  uint32_t n = ++*looks, naps_from = (uint32_t)team->spins + LOOKS;
  if (n <= (uint32_t)team->spins) {
    relax();
  } else if (n <= naps_from) {
    sched_yield();
  } else {
    uint32_t doublings = (n - naps_from) / NAPS;
    if (doublings > MOST_DOUBLINGS) doublings = MOST_DOUBLINGS;
    const struct timespec nap = {0, (long)NAP_NS << doublings};
    atomic_store_explicit(&self->sleeping, 1, memory_order_relaxed);
    nanosleep(&nap, NULL);
  }
  return !atomic_load_explicit(&team->leave, memory_order_relaxed);
}

static void run_thread_worker(struct thread *self) {
  struct copse_interpreter *exec = self->exec;
  const struct copse_exec_worker *at = &exec->workers[self->worker];
  uint32_t looks = 0, looks_at = UINT32_MAX;
  for (;;) {
    uint32_t channel;
    enum copse_exec_step step = copse_exec_advance(exec, self->worker, &channel);
    if (step == COPSE_STEP_FINISHED) break;
    if (step == COPSE_STEP_LOOKS) {
      if (at->op != looks_at) { /* those of another operation: the ones before have come */
        count_step(self);
        looks_at = at->op;
        looks = 0;
      }
      if (!look_again(self, &looks)) return;
      continue;
    }
    if (step == COPSE_STEP_SIGNALLED)
      wake_waiter(exec, channel);
    else if (!wait_for(self, &exec->channels[channel]))
      return;
    count_step(self);
  }
  count_step(self);
  atomic_store_explicit(&self->finished, 1, memory_order_relaxed);
}

static void *thread_main(void *argument) {
  struct thread *self = argument;
  struct team *team = self->exec->own;
  uint64_t seen = 0;
  pthread_mutex_lock(&team->lock);
  for (;;) {
    while (team->launch == seen && !team->quit) pthread_cond_wait(&team->start, &team->lock);
    if (team->quit) break;
    seen = team->launch;
    pthread_mutex_unlock(&team->lock);
    run_thread_worker(self);
    pthread_mutex_lock(&team->lock);
    if (--team->running == 0) pthread_cond_signal(&team->done);
  }
  pthread_mutex_unlock(&team->lock);
  return NULL;
}

/* ---- start and end ------------------------------------------------------------------- */

static copse_status start_threads(struct copse_interpreter *exec, struct copse_err *err) {
  struct team *team = exec->own;
  uint32_t n = exec->plan->header.n_workers;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return copse_fail_nomem(err);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int error = 0;
  for (uint32_t w = 0; w < n && error == 0; w++) {
    struct thread *thread = &team->threads[w];
    thread->exec = exec;
    thread->worker = w;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->wake, NULL);
    error = pthread_create(&thread->id, &attributes, thread_main, thread);
    if (error == 0) team->n_started++;
  }
  pthread_attr_destroy(&attributes);
  if (error == 0) return COPSE_OK;
  return copse_fail(err, COPSE_NOMEM,
                    "the plan takes %u threads and this machine gives %u (%s); the cpu backend "
                    "takes one",
                    n, team->n_started, strerror(error));
}

static copse_status open_threads(struct copse_interpreter *exec, void *context,
                                 struct copse_err *err) {
  uint32_t n = exec->plan->header.n_workers;
  struct team *team = NULL;
  (void)context;
  COPSE_DO(copse_calloc(1, sizeof *team, &team, err));
  exec->own = team;
  pthread_mutex_init(&team->lock, NULL);
  pthread_cond_init(&team->start, NULL);
  copse_clock_condition(&team->done);
  team->spins = (long)n <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 20;
  COPSE_DO(copse_calloc_aligned(COPSE_CACHE_LINE, n, sizeof *team->threads, &team->threads, err));
  return start_threads(exec, err);
}

static void close_threads(struct copse_interpreter *exec) {
  struct team *team = exec->own;
  pthread_mutex_lock(&team->lock);
  team->quit = true;
  pthread_cond_broadcast(&team->start);
  pthread_mutex_unlock(&team->lock);
  for (uint32_t w = 0; w < team->n_started; w++) {
    pthread_join(team->threads[w].id, NULL);
    pthread_mutex_destroy(&team->threads[w].lock);
    pthread_cond_destroy(&team->threads[w].wake);
  }
  pthread_mutex_destroy(&team->lock);
  pthread_cond_destroy(&team->start);
  pthread_cond_destroy(&team->done);
  free(team->threads);
  free(team);
}

/* ---- one launch ---------------------------------------------------------------------- */

/* Whether some worker computes or has moved since the last look (*steps is the sum then).
 * One that is in the middle of a long MOVE doesn't sleep, and so counts as alive. */
static bool is_alive(const struct copse_interpreter *exec, uint64_t *steps) {
  uint64_t sum = 0;
  bool awake = false;
  for (uint32_t w = 0; w < exec->plan->header.n_workers; w++) {
    struct thread *thread = &((struct team *)exec->own)->threads[w];
    sum += atomic_load_explicit(&thread->steps, memory_order_relaxed);
    if (!atomic_load_explicit(&thread->finished, memory_order_relaxed) &&
        !atomic_load_explicit(&thread->sleeping, memory_order_relaxed))
      awake = true;
  }
  bool moved = sum != *steps;
  *steps = sum;
  return moved || awake;
}

/* Waits for the end of the launch, watching; called with the lock held. True when nothing
 * moved for too long. */
static bool wait_for_all(struct copse_interpreter *exec) {
  struct team *team = exec->own;
  double slice = exec->stall_seconds / 4;
  if (slice > WATCH_SECONDS) slice = WATCH_SECONDS;
  if (slice < 0.001) slice = 0.001;
  double alive_at = copse_clock_seconds();
  uint64_t steps = UINT64_MAX;
  while (team->running > 0) {
    struct timespec until = copse_clock_at(copse_clock_seconds() + slice);
    if (pthread_cond_timedwait(&team->done, &team->lock, &until) != ETIMEDOUT) continue;
    double now = copse_clock_seconds();
    if (is_alive(exec, &steps)) alive_at = now;
    if (now - alive_at >= exec->stall_seconds) return true;
  }
  return false;
}

/* Makes all threads return; called with the lock held. */
static void give_up(struct copse_interpreter *exec) {
  struct team *team = exec->own;
  atomic_store_explicit(&team->leave, true, memory_order_relaxed);
  for (uint32_t w = 0; w < team->n_started; w++) wake(&team->threads[w]);
  while (team->running > 0) pthread_cond_wait(&team->done, &team->lock);
}

static copse_status run_threads(struct copse_interpreter *exec, struct copse_err *err) {
  struct team *team = exec->own;
  for (uint32_t w = 0; w < team->n_started; w++)
    atomic_store_explicit(&team->threads[w].finished, 0, memory_order_relaxed);
  pthread_mutex_lock(&team->lock);
  team->running = team->n_started;
  team->launch++;
  pthread_cond_broadcast(&team->start);
  bool stalled = wait_for_all(exec);
  if (stalled) give_up(exec);
  pthread_mutex_unlock(&team->lock);
  bool all_finished = true;
  for (uint32_t w = 0; w < team->n_started; w++)
    if (!exec->workers[w].finished) all_finished = false;
  if (all_finished) return COPSE_OK;
  char what[64];
  snprintf(what, sizeof what, "nothing moved for %g s", exec->stall_seconds);
  return copse_exec_report_standstill(exec, what, err);
}

const struct copse_engine copse_threads_engine = {.looks_at_packets = true,
                                                  .open = open_threads,
                                                  .close = close_threads,
                                                  .run = run_threads};

/* ==== the cooperative engine, the backend ===================================================== */

/*
 * CPUs as a backend: a call runs on the spot, by the interpreter of its plan, on the callers'
 * buffers. When launch returns the call is over.
 *
 * The cooperative engine: one thread steps the workers of all ranks in turn. A worker runs until it
 * waits; it enters the queue again when its channel is signalled, so the cost is that of the
 * operations, whatever the number of workers. Deterministic.
 */

/* Not a channel: the worker waits for none. */
#define NO_CHANNEL UINT32_MAX
#define NO_WORKER UINT32_MAX

struct cooperative {
  struct copse_queue queue; /* [n_workers + 1], round, of those that can move; each once at most */
  uint32_t *waiting_on; /* [n_workers] channel, or NO_CHANNEL */
  uint32_t missing;     /* a worker that reads packets which nobody has sent, or NO_WORKER */
};

static void close_engine(struct copse_interpreter *exec) {
  struct cooperative *it = exec->own;
  free(it->queue.items);
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
  COPSE_DO(copse_calloc((size_t)n + 1, sizeof *it->queue.items, &it->queue.items, err));
  return copse_calloc(n, sizeof *it->waiting_on, &it->waiting_on, err);
}

static void enqueue(struct copse_interpreter *exec, uint32_t w) {
  struct cooperative *cpu = exec->own;
  copse_queue_push_around(&cpu->queue, (int)exec->plan->header.n_workers + 1, (int)w);
  cpu->waiting_on[w] = NO_CHANNEL;
}

static uint32_t dequeue(struct copse_interpreter *exec) {
  struct cooperative *cpu = exec->own;
  return (uint32_t)copse_queue_pop_around(&cpu->queue, (int)exec->plan->header.n_workers + 1);
}

/* Runs worker w until it waits or is finished. Wakes the workers that it signals. */
static bool run_worker(struct copse_interpreter *exec, uint32_t w) {
  struct cooperative *cpu = exec->own;
  for (;;) {
    uint32_t channel;
    enum copse_exec_step step = copse_exec_advance(exec, w, &channel);
    if (step == COPSE_STEP_FINISHED) return true;
    if (step == COPSE_STEP_LOOKS) { /* its channels said that the packets have come */
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
  copse_queue_reset(&cpu->queue);
  cpu->missing = NO_WORKER;
  for (uint32_t w = 0; w < n; w++) enqueue(exec, w);
  while (!copse_queue_is_empty(&cpu->queue))
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

/* Frees the backend, but of a broken transport not the interpreters: messages may still be on their
 * way into their memory. */
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

/* Checks that counts are no larger than blocks, and the matrices of the ranks here the same. The
 * transport compares those of others. */
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

/* Launches one batch at a time. */
static copse_status launch(void *context, const struct copse_batch *batches, uint32_t n,
                           uint32_t *n_taken, struct copse_err *err) {
  struct cpu *cpu = context;
  struct copse_err why = COPSE_ERR_INIT;
  (void)n;
  *n_taken = 1;
  COPSE_DO(check_pair_counts(cpu, batches->calls, err));
  copse_status status = copse_interpreter_run(batches->prepared, batches->calls, &why);
  if (status == COPSE_OK) return COPSE_OK;
  /* other ranks may be running it */
  if (cpu->transport) (void)copse_transport_fail(cpu->transport, &why);
  return copse_fail(err, status, "%s", why.text);
}

/* Does nothing: a launch has ended when it returns. */
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

/* Sets the time limit. The cooperative engine doesn't watch the clock: it sees a deadlock at
 * once. */
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
