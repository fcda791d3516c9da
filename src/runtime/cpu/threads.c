/*
 * The threads engine: one thread per worker, kept from launch to launch. Data is ordered
 * by the channels' counters alone (release and acquire), as on a GPU. A worker that waits
 * spins briefly, yields, and then sleeps until its channel is signalled, since there may
 * be a thousand workers on two cores.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "runtime/cpu/cpu.h"

#define STACK_BYTES ((size_t)256 << 10)
#define YIELDS 4
/* Looks for packets before the first nap, and naps of one length: then they are twice as long, up
 * to 32 times, so that hundreds that wait for long leave the cores to those that work. */
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

/* False when the launch is given up. */
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

/* After the counter was raised. A read-modify-write, for the order with `sleeping`'s
 * exchange. */
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

/* Nobody wakes a worker for packets: it looks, then yields, then naps. From its first nap until
 * its packets have come it counts as asleep: of many that look, one or another is always awake.
 * False when the launch is given up. */
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

static void run_worker(struct thread *self) {
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
    run_worker(self);
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

static copse_status open_engine(struct copse_interpreter *exec, void *context,
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

static void close_engine(struct copse_interpreter *exec) {
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

static copse_status run(struct copse_interpreter *exec, struct copse_err *err) {
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

const struct copse_engine copse_threads_engine = {
    .looks_at_packets = true, .open = open_engine, .close = close_engine, .run = run};
