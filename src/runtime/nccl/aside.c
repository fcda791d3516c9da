/* Ending a communicator of copse's that has been aborted, without keeping its caller. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/nccl/comm.h"

/* Mostly it takes milliseconds, with messages of other hosts under way 5 s (cuda/watch.cu), and it
 * is good to know that it is over. */
#define PATIENCE_SECONDS 10

struct aside {
  struct copse_nccl_comm *comm;
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool is_over, left; /* left: nobody waits, so the thread frees this */
};

static void free_aside(struct aside *it) {
  pthread_mutex_destroy(&it->lock);
  pthread_cond_destroy(&it->over);
  free(it);
}

static void *run(void *context) {
  struct aside *it = context;
  (void)copse_nccl_release(it->comm);
  pthread_mutex_lock(&it->lock);
  it->is_over = true;
  bool left = it->left;
  pthread_cond_signal(&it->over);
  pthread_mutex_unlock(&it->lock);
  if (left) free_aside(it);
  return NULL;
}

static void wait_a_while(struct aside *it) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_SECONDS;
  pthread_mutex_lock(&it->lock);
  while (!it->is_over && pthread_cond_timedwait(&it->over, &it->lock, &until) == 0) continue;
  bool is_over = it->is_over;
  it->left = !is_over;
  pthread_mutex_unlock(&it->lock);
  if (is_over) free_aside(it);
}

void copse_nccl_release_aside(struct copse_nccl_comm *comm) {
  pthread_attr_t detached;
  pthread_t thread;
  struct aside *it = comm && comm->copse ? calloc(1, sizeof *it) : NULL;
  if (!it) {
    (void)copse_nccl_release(comm);
    return;
  }
  it->comm = comm;
  pthread_mutex_init(&it->lock, NULL);
  pthread_cond_init(&it->over, NULL);
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  bool started = pthread_create(&thread, &detached, run, it) == 0;
  pthread_attr_destroy(&detached);
  if (started) {
    wait_a_while(it);
  } else {
    free_aside(it);
    (void)copse_nccl_release(comm);
  }
}
