/*
 * Inside src/runtime: the ranks of one communicator that live in this process, with the machine
 * they run on and their plans. The handles (struct copse_comm) share it; the last one ends it,
 * in whatever order they go.
 *
 * Two locks, never held together: machine_lock for the machine, plans and registrations, held
 * during launches and while plans are prepared; the gathering's own for calls on their way, held
 * briefly, so that an abort or a look at the state never waits for a launch.
 */
#ifndef COPSE_RUNTIME_COMM_CLIQUE_H
#define COPSE_RUNTIME_COMM_CLIQUE_H

#include <pthread.h>

#include "runtime/comm/gather.h"
#include "runtime/comm/plans.h"
#include "runtime/comm/machine.h"

struct copse_clique;

struct copse_comm {
  struct copse_clique *clique;
  uint32_t rank;
};

struct copse_registration {
  uint32_t rank;
  void *machine_handle;
  struct copse_registration *next;
};

struct copse_clique {
  struct copse_clique_shape shape; /* devices and bootstrap are the clique's own */
  int *devices;
  copse_bootstrap bootstrap;
  void (*free_bootstrap)(copse_bootstrap *); /* NULL: the caller's */
  struct copse_gather gather;

  pthread_mutex_t machine_lock; /* of all below */
  bool has_machine_lock;
  uint32_t n_handles;
  const struct copse_machine_ops *ops;
  void *machine;
  struct copse_plan_table plans;
  /* Read from files; freed after the machine, which may hold more plans than the table. */
  struct copse_plan **owned;
  size_t n_owned, owned_capacity;
  struct copse_registration *registrations;
};

/*
 * comms[i] gets the handle of rank shape->first_local + i. `shape` and what it points to are
 * copied. free_bootstrap (may be NULL) ends the bootstrap with the clique, but not when this fails.
 */
copse_status copse_clique_new(const struct copse_clique_shape *shape,
                              const struct copse_machine_ops *ops,
                              void (*free_bootstrap)(copse_bootstrap *), struct copse_comm **comms,
                              struct copse_err *err) COPSE_CHECKED;

/* Ends a handle, and with the last one the clique. The handle is gone whatever the status. */
copse_status copse_clique_leave(struct copse_comm *comm, struct copse_err *err);

void copse_clique_abort(struct copse_clique *clique, uint32_t rank);
/* Why it is broken, or COPSE_OK; asks the machine too if that doesn't block. */
copse_status copse_clique_poll(struct copse_clique *clique, struct copse_err *err);
void copse_clique_set_timeout(struct copse_clique *clique, double seconds);

copse_status copse_clique_add_plan(struct copse_clique *clique, const struct copse_plan *plan,
                                   struct copse_err *err) COPSE_CHECKED;
/* See copse_comm_load_plans; the folder is the one to read. */
copse_status copse_clique_load_plans(struct copse_clique *clique, const char *folder,
                                     uint32_t *n_loaded, struct copse_err *err) COPSE_CHECKED;
/* *plan is NULL where none fits. */
copse_status copse_clique_find_plan(struct copse_clique *clique, const struct copse_call *call,
                                    const struct copse_plan **plan,
                                    struct copse_err *err) COPSE_CHECKED;

/* See sizes_messages in machine.h. */
bool copse_clique_sizes_messages(struct copse_clique *clique);

copse_status copse_clique_register(struct copse_comm *comm, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err) COPSE_CHECKED;
copse_status copse_clique_deregister(struct copse_comm *comm, void *handle,
                                     struct copse_err *err) COPSE_CHECKED;

#endif
