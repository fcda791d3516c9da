/*
 * Inside src/runtime: the ranks of one communicator of this process, with the backend
 * they run on and their plans. The handles (struct copse_comm) share it; the last one ends it,
 * in whatever order they go.
 *
 * Two locks are never held together. backend_lock guards the backend, plans and registrations; it
 * is held during launches and while plans are prepared. The gathering's own lock guards waiting
 * calls; it is held briefly, so that an abort or a query of the state never waits for a launch.
 */
#pragma once

#include <pthread.h>

#include "base/memory.h"
#include "runtime/backend/backend.h"
#include "runtime/comm/gather.h"

struct copse_comm {
  struct copse_local_ranks *local;
  uint32_t rank;
};

struct copse_plan_entry {
  const struct copse_plan *plan;
  void *prepared; /* the backend's */
  bool grouped;   /* multicast */
};

/* Zero-initialise to start. */
struct copse_plans {
  struct copse_plan_entry *entries; /* in the order in which plans were added */
  size_t n, capacity;
  /* Those from files, to be freed after the backend, which may hold some that aren't entries. */
  struct copse_plan **read;
  size_t n_read, read_capacity;
  /* Those that were passed over for being for other numbers of ranks, and the last one's number. */
  uint32_t n_others, other_ranks;
};

struct copse_registration {
  uint32_t rank;
  void *backend_handle;
  struct copse_registration *next;
};

struct copse_local_ranks {
  struct copse_comm_shape shape; /* devices and bootstrap are its own */
  struct copse_arena memory;     /* of devices and handles */
  copse_bootstrap bootstrap;
  void (*free_bootstrap)(copse_bootstrap *); /* NULL: the caller's */
  struct copse_gather gather;

  pthread_mutex_t backend_lock; /* of all below */
  uint32_t n_handles;
  const struct copse_backend_ops *ops;
  void *backend;
  struct copse_plans plans;
  struct copse_registration *registrations;
};

/* Makes the local ranks: comms[i] gets the handle of rank shape->first_local + i. `shape` and what
 * it points to are copied. free_bootstrap (may be NULL) ends the bootstrap with the local ranks,
 * but not when this fails. */
copse_status copse_local_new(const struct copse_comm_shape *shape,
                             const struct copse_backend_ops *ops,
                             void (*free_bootstrap)(copse_bootstrap *), struct copse_comm **comms,
                             struct copse_err *err) COPSE_CHECKED;

/* Ends a handle, and with the last one the local ranks. The handle is gone whatever the status. */
copse_status copse_local_leave(struct copse_comm *comm, struct copse_err *err);

copse_status copse_local_add_plan(struct copse_local_ranks *local, const struct copse_plan *plan,
                                  struct copse_err *err) COPSE_CHECKED;
/* Does what copse_comm_load_plans does; the folder is the one to read. */
copse_status copse_local_load_plans(struct copse_local_ranks *local, const char *folder,
                                    uint32_t *n_loaded, struct copse_err *err) COPSE_CHECKED;
/* Finds the plan for a call; *plan is NULL where none fits. */
copse_status copse_local_find_plan(struct copse_local_ranks *local, const struct copse_call *call,
                                   const struct copse_plan **plan,
                                   struct copse_err *err) COPSE_CHECKED;

/* ==== groups of calls ========================================================================= */

/* Of the calling thread, between group start and end. */

void copse_call_group_open(void);

/* Closes a group. The end of the outermost one starts what is queued, in order, waits until all of
 * it is done, and gives the first error in the order of the calls. Where a call of the group was
 * refused (copse_call_group_refuse), nothing starts and that error is the group's. */
copse_status copse_call_group_close(struct copse_err *err) COPSE_CHECKED;

/* Checks a call, and queues it, or runs it to its end where no group is open. What is refused is
 * so for the open group too. comm NULL is refused. */
copse_status copse_call_group_add(struct copse_comm *comm, const struct copse_call *call,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_call_group_refuse(const struct copse_err *err);

/* Whether the thread has a group open: its calls run only at the end. */
bool copse_call_group_is_open(void);

/* Whether the thread's open group has calls on the communicator. */
bool copse_call_group_holds(const struct copse_comm *comm);
