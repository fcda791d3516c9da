/* The NCCL communicators of this process that the drop-in has registered, each with copse's
 * communicator of the same ranks or with the reason why it has none; what the log says of their
 * calls (once for each plan and each reason, and sums at the end); copse's errors in NCCL's words.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "copse/comm.h"
#include "copse/copse.h"
#include "dropin/abi.h"

/* What is counted and logged apart: the six collectives, sends and receives, and what copse has no
 * collective for. */
#define COPSE_NCCL_SEND_RECV (COPSE_ALLTOALL + 1)
#define COPSE_NCCL_OTHER (COPSE_NCCL_SEND_RECV + 1)
#define COPSE_NCCL_N_KINDS (COPSE_NCCL_OTHER + 1)

struct copse_nccl_tally {
  uint64_t served, passed;
  uint32_t reasons_said;  /* bit r: reason r was logged */
  const copse_plan *said; /* the plan logged last */
};

/* Memory that all ranks have registered with NCCL (NCCL_WIN_COLL_SYMMETRIC). */
struct copse_nccl_window {
  struct copse_nccl_window *next;
  ncclWindow_t window;
  uintptr_t start, bytes;
};

struct copse_nccl_comm {
  struct copse_nccl_comm *next;
  atomic_int users; /* the registry is one; the last one frees */

  /* Constant once it is registered. */
  ncclComm_t nccl;
  int n_ranks, rank, device;
  bool blocking;     /* no config.blocking = 0 */
  bool exchanges;    /* a full exchange of sends and receives is an all-to-all */
  copse_comm *copse; /* NULL: all calls are passed to NCCL */
  bool made;         /* until then all-gathers have a time limit */
  bool lost;         /* while it is made: an all-gather failed here, the others can't be notified */
  bool aborted;      /* NCCL's communicator too, since peers didn't come in time */
  char why_not[512]; /* ... because */

  _Atomic(struct copse_nccl_window *) windows; /* written under a lock of comms.c */
  struct copse_nccl_tally tally[COPSE_NCCL_N_KINDS]; /* of the thread that uses the communicator */
};

/* A communicator that NCCL has just made. */
struct copse_nccl_made {
  ncclComm_t *where; /* the caller's handle; NULL in it: a rank that left a split */
  bool blocking;     /* the caller takes no ncclInProgress */
};

/* Registers them. Collective over each of them, so it must not be called inside a
 * group. What fails is logged, the other ranks are notified, and NCCL keeps the communicator.
 * False where this rank couldn't notify them, or waited for one that couldn't
 * (COPSE_JOIN_TIMEOUT): these communicators were aborted, and are NULL. */
bool copse_nccl_comms_made(const struct copse_nccl_made *made, size_t n);

/* Takes over a complete communicator; its first user is the registry. */
void copse_nccl_register(struct copse_nccl_comm *comm);

/* Returns the communicator, kept alive until it is released; NULL where it isn't registered. */
struct copse_nccl_comm *copse_nccl_acquire(ncclComm_t nccl);
/* Adds a user of a communicator that the caller uses. */
static inline void copse_nccl_use(struct copse_nccl_comm *comm) {
  atomic_fetch_add(&comm->users, 1);
}
/* Drops a user; the last one ends copse's communicator and gets its status. Takes NULL. */
copse_status copse_nccl_release(struct copse_nccl_comm *comm);
/* Does the same in a thread of its own, for which the caller waits 10 s. Ending waits for the
 * device and so for whatever else runs there, such as another communicator that hangs, and whose
 * abort comes after this one's. */
void copse_nccl_release_aside(struct copse_nccl_comm *comm);

/* Takes over a window of malloc, or takes one out and frees it. */
void copse_nccl_window_add(struct copse_nccl_comm *comm, struct copse_nccl_window *window);
void copse_nccl_window_remove(struct copse_nccl_comm *comm, ncclWindow_t window);
/* Whether the bytes lie in one of them. */
bool copse_nccl_window_holds(struct copse_nccl_comm *comm, const void *start, uint64_t bytes);

/* Takes the communicator out of the registry; the caller now holds the registry's use and releases
 * it. NULL where it isn't registered. At INFO the log gets the sums of its calls. */
struct copse_nccl_comm *copse_nccl_forget(ncclComm_t nccl);
enum copse_nccl_reason {
  COPSE_NCCL_SERVE = -1, /* by copse */
  COPSE_NCCL_NO_COPSE,   /* comm->why_not */
  COPSE_NCCL_EMPTY,
  COPSE_NCCL_OTHER_TYPE,
  COPSE_NCCL_OTHER_REDOP,
  COPSE_NCCL_IN_PLACE,
  COPSE_NCCL_NO_PLAN,
  COPSE_NCCL_NOT_PROMISED,  /* sends and receives, COPSE_NCCL_ALLTOALL is not 1 */
  COPSE_NCCL_ALONE,         /* a send or receive outside of a group */
  COPSE_NCCL_NO_EXCHANGE,   /* the group's sends and receives are no all-to-all */
  COPSE_NCCL_NO_COLLECTIVE, /* copse has no such collective */
  COPSE_NCCL_CONFIGURED,    /* a configuration that only NCCL understands */
  COPSE_NCCL_IN_WINDOWS     /* NCCL needs no staging there */
};

void copse_nccl_tally_served(struct copse_nccl_comm *comm, int kind, const copse_plan *plan);
void copse_nccl_tally_passed(struct copse_nccl_comm *comm, int kind, enum copse_nccl_reason reason,
                             size_t count, ncclDataType_t type);
ncclResult_t copse_nccl_result(copse_status status);

/* Returns the same, and keeps copse_last_error() as the text of the last failure (of any
 * thread). */
ncclResult_t copse_nccl_failed(copse_status status);

/* Returns the text of ncclGetLastError: NCCL's own, after copse's if there was a failure. Valid
 * until the thread's next call. */
const char *copse_nccl_last_error(const char *of_nccl);
