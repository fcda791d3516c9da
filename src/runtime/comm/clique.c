/* Cliques from their making to their end. */
#include "runtime/comm/clique.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/comm/clique_launch.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/debug.h"

/* Takes NULL, and what is half made; the handles are not its own. */
static void free_clique(struct copse_clique *clique) {
  if (!clique) return;
  while (clique->registrations) {
    struct copse_registration *next = clique->registrations->next;
    free(clique->registrations);
    clique->registrations = next;
  }
  if (clique->machine) clique->ops->free_machine(clique->machine);
  for (size_t i = 0; i < clique->n_owned; i++) copse_plan_release(clique->owned[i]);
  free(clique->owned);
  free(clique->plans.entries);
  copse_gather_destroy(&clique->gather);
  if (clique->has_machine_lock) pthread_mutex_destroy(&clique->machine_lock);
  if (clique->free_bootstrap) clique->free_bootstrap(&clique->bootstrap);
  free(clique->devices);
  free(clique);
}

static copse_status copy_shape(struct copse_clique *clique, const struct copse_clique_shape *shape,
                               struct copse_err *err) {
  copse_status status;
  clique->shape = *shape;
  COPSE_TRY(copse_calloc(shape->n_local, sizeof *clique->devices, &clique->devices, err));
  memcpy(clique->devices, shape->devices, shape->n_local * sizeof *clique->devices);
  clique->shape.devices = clique->devices;
  if (shape->bootstrap) {
    clique->bootstrap = *shape->bootstrap;
    clique->shape.bootstrap = &clique->bootstrap;
  }
out:
  return status;
}

static copse_status new_handles(struct copse_clique *clique, struct copse_comm **comms,
                                struct copse_err *err) {
  uint32_t n = clique->shape.n_local;
  copse_status status;
  memset(comms, 0, n * sizeof *comms);
  for (uint32_t i = 0; i < n; i++) {
    COPSE_TRY(copse_calloc(1, sizeof *comms[i], &comms[i], err));
    *comms[i] = (struct copse_comm){clique, clique->shape.first_local + i};
  }
  clique->n_handles = n;
  return COPSE_OK;
out:
  for (uint32_t i = 0; i < n; i++) {
    free(comms[i]);
    comms[i] = NULL;
  }
  return status;
}

copse_status copse_clique_new(const struct copse_clique_shape *shape,
                              const struct copse_machine_ops *ops,
                              void (*free_bootstrap)(copse_bootstrap *), struct copse_comm **comms,
                              struct copse_err *err) {
  struct copse_clique *clique = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(1, sizeof *clique, &clique, err));
  clique->ops = ops;
  COPSE_TRY(copy_shape(clique, shape, err));
  clique->gather.launch = copse_clique_launch;
  clique->gather.context = clique;
  COPSE_TRY(copse_gather_init(&clique->gather, shape->first_local, shape->n_local, err));
  clique->has_machine_lock = pthread_mutex_init(&clique->machine_lock, NULL) == 0;
  if (!clique->has_machine_lock) {
    status = copse_fail_nomem(err);
    goto out;
  }
  status = ops->new_machine(&clique->shape, &clique->machine, err);
  COPSE_TRY(copse_agree(&clique->shape, status, NULL, 0, err));
  ops->set_timeout(clique->machine, clique->gather.timeout_seconds);
  COPSE_TRY(new_handles(clique, comms, err));
  clique->free_bootstrap = free_bootstrap;
  copse_debug(COPSE_DEBUG_INFO, (int)shape->first_local, "communicator %p: %u of %u ranks here",
              (void *)clique, shape->n_local, shape->n_ranks);
  return COPSE_OK;
out:
  free_clique(clique);
  return status;
}

/* Of the rank; the machine frees what it made of them at its end. */
static void drop_registrations(struct copse_clique *clique, uint32_t rank) {
  struct copse_registration **at = &clique->registrations;
  while (*at) {
    struct copse_registration *it = *at;
    if (it->rank != rank) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    free(it);
  }
}

copse_status copse_clique_leave(struct copse_comm *comm, struct copse_err *err) {
  struct copse_clique *clique = comm->clique;
  uint32_t rank = comm->rank;
  copse_gather_leave(&clique->gather, rank - clique->shape.first_local);
  bool broken = copse_gather_broken(&clique->gather, NULL) != COPSE_OK;
  pthread_mutex_lock(&clique->machine_lock);
  /* what broke it has been told; nothing enqueued may keep this waiting */
  if (broken) clique->ops->abort(clique->machine);
  copse_status status = clique->ops->finish(clique->machine, broken ? NULL : err);
  drop_registrations(clique, rank);
  bool last = --clique->n_handles == 0;
  pthread_mutex_unlock(&clique->machine_lock);
  copse_debug(COPSE_DEBUG_INFO, (int)rank, "communicator %p: rank ends%s", (void *)clique,
              last ? ", the last one here" : "");
  free(comm);
  if (last) free_clique(clique);
  return broken ? COPSE_OK : status;
}

void copse_clique_abort(struct copse_clique *clique, uint32_t rank) {
  struct copse_err why = COPSE_ERR_INIT;
  (void)copse_fail(&why, COPSE_ABORTED, "copse_comm_abort was called on rank %u", rank);
  copse_gather_break(&clique->gather, &why);
  clique->ops->abort(clique->machine);
}

copse_status copse_clique_poll(struct copse_clique *clique, struct copse_err *err) {
  copse_status status = copse_gather_broken(&clique->gather, err);
  if (status != COPSE_OK || pthread_mutex_trylock(&clique->machine_lock) != 0) return status;
  struct copse_err why = COPSE_ERR_INIT;
  why.status = status = clique->ops->poll(clique->machine, &why);
  if (status != COPSE_OK) clique->ops->abort(clique->machine); /* on the GPUs that still work */
  pthread_mutex_unlock(&clique->machine_lock);
  if (status == COPSE_OK) return COPSE_OK;
  copse_gather_break(&clique->gather, &why);
  return copse_gather_broken(&clique->gather, err);
}

bool copse_clique_sizes_messages(struct copse_clique *clique) {
  pthread_mutex_lock(&clique->machine_lock);
  bool sizes = clique->ops->sizes_messages && clique->ops->sizes_messages(clique->machine);
  pthread_mutex_unlock(&clique->machine_lock);
  return sizes;
}

void copse_clique_set_timeout(struct copse_clique *clique, double seconds) {
  copse_gather_set_timeout(&clique->gather, seconds);
  pthread_mutex_lock(&clique->machine_lock);
  clique->ops->set_timeout(clique->machine, seconds);
  pthread_mutex_unlock(&clique->machine_lock);
}
