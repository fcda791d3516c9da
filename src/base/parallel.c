#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

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
  pthread_mutex_lock(&crew->mutex);
  if (i < atomic_load(&crew->end)) {
    atomic_store(&crew->end, i);
    crew->failure = *err;
    crew->failure.status = status;
  }
  pthread_mutex_unlock(&crew->mutex);
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
