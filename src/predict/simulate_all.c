/* Several simulations at once: what those of the same transfers share is made once. */
#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "predict/simulate_frame.h"

int copse_simulate_threads = 0;

/* Fewer steps than this are done before a thread has started. */
#define STEPS_FOR_THREADS 50000

/* Questions about the same transfers, one after the other. */
struct group {
  pthread_mutex_t mutex;
  struct copse_sim_frame frame;
  bool made;
  int left; /* questions without an answer; the last one frees the frame */
};

struct all {
  const struct copse_topology *topology;
  struct copse_sim_question *questions;
  struct group *groups;
  int *group_of; /* [n questions] */
  pthread_mutex_t mutex;
  struct copse_sim_scratch *idle; /* [n_idle] not in use; room for one each question */
  int n_idle;
};

static copse_status need_frame(struct all *all, int i, struct copse_err *err) {
  struct group *g = &all->groups[all->group_of[i]];
  copse_status status = COPSE_OK;
  pthread_mutex_lock(&g->mutex);
  if (!g->made) {
    status = copse_sim_frame_make(all->topology, all->questions[i].dag, &g->frame, err);
    g->made = status == COPSE_OK;
    if (!g->made) copse_sim_frame_free(&g->frame);
  }
  pthread_mutex_unlock(&g->mutex);
  return status;
}

static void leave_frame(struct group *g) {
  pthread_mutex_lock(&g->mutex);
  if (--g->left == 0) copse_sim_frame_free(&g->frame);
  pthread_mutex_unlock(&g->mutex);
}

static struct copse_sim_scratch take_scratch(struct all *all) {
  struct copse_sim_scratch scratch = {0};
  pthread_mutex_lock(&all->mutex);
  if (all->n_idle > 0) scratch = all->idle[--all->n_idle];
  pthread_mutex_unlock(&all->mutex);
  return scratch;
}

static void give_back(struct all *all, struct copse_sim_scratch scratch) {
  pthread_mutex_lock(&all->mutex);
  all->idle[all->n_idle++] = scratch;
  pthread_mutex_unlock(&all->mutex);
}

static copse_status answer(void *arg, int i, struct copse_err *err) {
  struct all *all = arg;
  struct copse_sim_question *q = &all->questions[i];
  struct group *g = &all->groups[all->group_of[i]];
  copse_status status;
  COPSE_TRY(need_frame(all, i, err));
  struct copse_sim_scratch scratch = take_scratch(all);
  status =
      copse_sim_frame_run(&g->frame, q->options, q->unit_bytes, &scratch, &q->result, NULL, err);
  give_back(all, scratch);
out:
  leave_frame(g);
  return status;
}

static int count_threads(const struct copse_sim_question *questions, int n) {
  size_t steps = 0;
  if (copse_simulate_threads > 0) return copse_simulate_threads;
  for (int i = 0; i < n; i++) steps += questions[i].dag->n_ints;
  return steps < STEPS_FOR_THREADS ? 1 : copse_processors();
}

copse_status copse_simulate_all(const struct copse_topology *topology,
                                struct copse_sim_question *questions, int n,
                                struct copse_err *err) {
  struct all all = {.topology = topology, .questions = questions};
  int n_groups = 0;
  copse_status status;
  pthread_mutex_init(&all.mutex, NULL);
  COPSE_TRY(copse_calloc((size_t)n, sizeof *all.groups, &all.groups, err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *all.group_of, &all.group_of, err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *all.idle, &all.idle, err));
  for (int i = 0; i < n; i++) {
    bool new = i == 0 || questions[i].dag != questions[i - 1].dag;
    if (new) pthread_mutex_init(&all.groups[n_groups++].mutex, NULL);
    all.group_of[i] = n_groups - 1;
    all.groups[n_groups - 1].left++;
  }
  status = copse_parallel(n, count_threads(questions, n), answer, &all, err);
out:
  for (int i = 0; i < n_groups; i++) {
    copse_sim_frame_free(&all.groups[i].frame);
    pthread_mutex_destroy(&all.groups[i].mutex);
  }
  for (int i = 0; i < all.n_idle; i++) copse_sim_scratch_free(&all.idle[i]);
  pthread_mutex_destroy(&all.mutex);
  free(all.idle);
  free(all.groups);
  free(all.group_of);
  return status;
}
