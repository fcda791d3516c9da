/*
 * Leaving the other processes. What a process shares by CUDA IPC must not be freed before its peers have
 * closed it; so each closes what it opened, says so, and waits for the others. Not for long: a peer may
 * be gone, or busy elsewhere. What may not be freed yet is kept, and looked at again when communicators
 * of this process come or go.
 */
#include <pthread.h>

#include "runtime/gpu/cuda_machine.h"
#include "runtime/internode/nccl_bootstrap.h"

extern "C" {
#include "base/clock.h"
#include "runtime/gpu/farewell.h"
}

double copse_cuda_leave_seconds = 2;

/* ---- meeting ------------------------------------------------------------------------------------ */

struct name {
  char text[COPSE_FAREWELL_NAME];
};

copse_status copse_cuda_leave_open(struct copse_cuda_machine *m, struct copse_err *err) {
  struct copse_err why_not = COPSE_ERR_INIT;
  struct copse_farewell *farewell = NULL;
  struct name mine, all[COPSE_CUDA_MAX_RANKS];
  uint32_t first = 0;
  if (!m->many_processes || m->farewell) return COPSE_OK;
  while (m->host_of[first] != m->host_of[m->first_local]) first++;
  const bool makes = first == m->first_local;
  memset(&mine, 0, sizeof mine);
  copse_status made = COPSE_OK;
  if (makes) made = copse_farewell_new(mine.text, &farewell, &why_not);
  copse_status status = m->bootstrap.all_gather(m->bootstrap.context, &mine, all, sizeof mine);
  all[first].text[COPSE_FAREWELL_NAME - 1] = '\0';
  if (status == COPSE_OK && !makes)
    made = copse_farewell_open(all[first].text, &farewell, &why_not);
  uint32_t everywhere = 0;
  if (status == COPSE_OK) status = copse_cuda_least(m, made == COPSE_OK, &everywhere, &why_not);
  if (mine.text[0]) copse_farewell_forget(mine.text);
  if (status == COPSE_OK && everywhere) {
    m->farewell = farewell;
    return COPSE_OK;
  }
  copse_farewell_free(farewell);
  if (status != COPSE_OK) return copse_fail(err, status, "the bootstrap's all_gather failed");
  return COPSE_OK; /* they meet once more over the bootstrap when they leave */
}

/* ---- what can't be freed yet ---------------------------------------------------------------------- */

struct remains {
  struct remains *next;
  struct copse_farewell *farewell;
  int device;
  uint32_t n;
  void *memory[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct remains *kept;

static void free_remains(struct remains *it) {
  copse_on_device here(it->device);
  for (uint32_t i = 0; i < it->n; i++) (void)cudaFree(it->memory[i]);
  copse_farewell_free(it->farewell);
  free(it);
}

void copse_cuda_leave_sweep(void) {
  pthread_mutex_lock(&lock);
  for (struct remains **at = &kept; *at;) {
    struct remains *it = *at;
    if (!copse_farewell_all_said(it->farewell)) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    free_remains(it);
  }
  pthread_mutex_unlock(&lock);
}

/* Without memory for the list all of it stays. */
static void keep(struct copse_cuda_machine *m) {
  uint32_t most = 0;
  for (const struct copse_cuda_plan *p = m->plans; p; p = p->next) most += 2;
  struct remains *it = (struct remains *)calloc(1, sizeof *it + most * sizeof *it->memory);
  for (struct copse_cuda_plan *p = m->plans; p; p = p->next) {
    unsigned char **own[] = {&p->arenas[m->first_local], &p->staging[m->first_local]};
    for (int i = 0; i < 2; i++) {
      if (!*own[i]) continue;
      if (it) it->memory[it->n++] = *own[i];
      *own[i] = NULL;
    }
  }
  if (!it) return;
  it->farewell = m->farewell;
  it->device = m->sites[0].device;
  m->farewell = NULL;
  pthread_mutex_lock(&lock);
  it->next = kept;
  kept = it;
  pthread_mutex_unlock(&lock);
}

/* ---- leaving ---------------------------------------------------------------------------------------- */

static void close_all(struct copse_cuda_machine *m) {
  for (struct copse_cuda_plan *p = m->plans; p; p = p->next) {
    copse_cuda_unshare(m, p->opened);
    copse_cuda_unshare(m, p->opened + m->n_ranks);
  }
  for (struct copse_cuda_buffer *b = m->buffers; b; b = b->next) copse_cuda_unshare(m, b->opened);
}

static bool wait_for_all(const struct copse_farewell *farewell, double seconds) {
  const double since = copse_clock_seconds();
  for (uint32_t look = 0; !copse_farewell_all_said(farewell); look++) {
    if (copse_clock_seconds() - since >= seconds) return false;
    copse_nccl_nap(look);
  }
  return true;
}

void copse_cuda_leave(struct copse_cuda_machine *m) {
  close_all(m);
  if (m->farewell) {
    copse_farewell_say(m->farewell);
    if (!wait_for_all(m->farewell, copse_cuda_leave_seconds)) keep(m);
    copse_cuda_leave_sweep();
  } else if (!copse_cuda_is_broken(m) && m->n_hosts > 0) { /* some share no files with the others */
    unsigned char here = 1, all[COPSE_CUDA_MAX_RANKS];
    (void)m->bootstrap.all_gather(m->bootstrap.context, &here, all, 1);
  }
  copse_farewell_free(m->farewell);
  m->farewell = NULL;
}
