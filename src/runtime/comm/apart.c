#include "runtime/comm/apart.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

struct apart {
  void (*run)(void *context);
  void *context;
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool is_over, left; /* left: nobody waits, so the thread frees this */
};

static void free_apart(struct apart *it) {
  pthread_mutex_destroy(&it->lock);
  pthread_cond_destroy(&it->over);
  free(it);
}

static void *run_apart(void *context) {
  struct apart *it = context;
  it->run(it->context);
  pthread_mutex_lock(&it->lock);
  it->is_over = true;
  bool left = it->left;
  pthread_cond_signal(&it->over);
  pthread_mutex_unlock(&it->lock);
  if (left) free_apart(it);
  return NULL;
}

static bool wait_a_while(struct apart *it, double seconds) {
  const struct timespec until = copse_clock_at(copse_clock_seconds() + seconds);
  pthread_mutex_lock(&it->lock);
  while (!it->is_over && pthread_cond_timedwait(&it->over, &it->lock, &until) == 0) continue;
  bool is_over = it->is_over;
  it->left = !is_over;
  pthread_mutex_unlock(&it->lock);
  if (is_over) free_apart(it);
  return is_over;
}

static struct apart *new_apart(void (*run)(void *), void *context) {
  struct apart *it = calloc(1, sizeof *it);
  pthread_condattr_t monotonic;
  if (!it) return NULL;
  it->run = run;
  it->context = context;
  pthread_mutex_init(&it->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&it->over, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return it;
}

static bool start(struct apart *it) {
  pthread_attr_t detached;
  pthread_t thread;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  bool started = pthread_create(&thread, &detached, run_apart, it) == 0;
  pthread_attr_destroy(&detached);
  return started;
}

bool copse_run_apart(void (*run)(void *context), void *context, double seconds) {
  struct apart *it = new_apart(run, context);
  if (it && start(it)) return wait_a_while(it, seconds);
  if (it) free_apart(it);
  run(context);
  return true;
}
