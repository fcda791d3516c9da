/*
 * Tasks by several threads, and a call in a detached thread.
 *
 * Threads take the next number from one counter. The lowest task that fails ends the counting, so
 * what is returned does not depend on the threads: each task below it has been begun and ends.
 * A detached call and its waiting caller share a record that the later of the two frees.
 */
#include "base/parallel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

#define MOST_THREADS 16

struct crew {
  copse_task *task;
  void *arg;
  atomic_int next;
  atomic_int end;        /* no task from here on is begun: n, or the lowest that failed */
  pthread_mutex_t mutex; /* guards what comes of failures */
  struct copse_err failure;
};

int copse_processors(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (int)n;
}

static void note_failure(struct crew *crew, int i, copse_status status,
                         const struct copse_err *err) {
  COPSE_HOLD(&crew->mutex);
  if (i >= atomic_load(&crew->end)) return;
  atomic_store(&crew->end, i);
  crew->failure = *err;
  crew->failure.status = status;
}

static void *work(void *arg) {
  struct crew *crew = arg;
  for (;;) {
    struct copse_err err = COPSE_ERR_INIT;
    int i = atomic_fetch_add(&crew->next, 1);
    if (i >= atomic_load(&crew->end)) return NULL;
    copse_status status = crew->task(crew->arg, i, &err);
    if (status != COPSE_OK) note_failure(crew, i, status, &err);
  }
}

copse_status copse_parallel(int n, int threads, copse_task *task, void *arg,
                            struct copse_err *err) {
  struct crew crew = {.task = task, .arg = arg, .failure = COPSE_ERR_INIT};
  pthread_t others[MOST_THREADS];
  int most = threads < n ? threads : n, n_others = 0;
  atomic_init(&crew.next, 0);
  atomic_init(&crew.end, n);
  pthread_mutex_init(&crew.mutex, NULL);
  for (; n_others < most - 1 && n_others < MOST_THREADS; n_others++)
    if (pthread_create(&others[n_others], NULL, work, &crew) != 0) break;
  work(&crew);
  for (int i = 0; i < n_others; i++) pthread_join(others[i], NULL);
  pthread_mutex_destroy(&crew.mutex);
  if (crew.failure.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, crew.failure.status, "%s", crew.failure.text);
}

struct detached {
  void (*run)(void *context);
  void *context;
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool is_over, left; /* left: nobody waits, so the thread frees this */
};

static void free_detached(struct detached *it) {
  pthread_mutex_destroy(&it->lock);
  pthread_cond_destroy(&it->over);
  free(it);
}

static void *run_detached(void *context) {
  struct detached *it = context;
  it->run(it->context);
  pthread_mutex_lock(&it->lock);
  it->is_over = true;
  bool left = it->left;
  pthread_cond_signal(&it->over);
  pthread_mutex_unlock(&it->lock);
  if (left) free_detached(it);
  return NULL;
}

static bool wait_a_while(struct detached *it, double seconds) {
  const struct timespec until = copse_clock_at(copse_clock_seconds() + seconds);
  pthread_mutex_lock(&it->lock);
  while (!it->is_over && pthread_cond_timedwait(&it->over, &it->lock, &until) == 0) continue;
  bool is_over = it->is_over;
  it->left = !is_over;
  pthread_mutex_unlock(&it->lock);
  if (is_over) free_detached(it);
  return is_over;
}

static struct detached *new_detached(void (*run)(void *), void *context) {
  struct detached *it = calloc(1, sizeof *it);
  if (!it) return NULL;
  it->run = run;
  it->context = context;
  pthread_mutex_init(&it->lock, NULL);
  copse_clock_condition(&it->over);
  return it;
}

static bool start(struct detached *it) {
  pthread_attr_t detached;
  pthread_t thread;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  bool started = pthread_create(&thread, &detached, run_detached, it) == 0;
  pthread_attr_destroy(&detached);
  return started;
}

bool copse_run_detached(void (*run)(void *context), void *context, double seconds) {
  struct detached *it = new_detached(run, context);
  if (it && start(it)) return wait_a_while(it, seconds);
  if (it) free_detached(it);
  run(context);
  return true;
}
