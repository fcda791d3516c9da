/* The registry of NCCL's communicators, counts and log lines of their calls, and errors. */
#include "dropin/comms.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/parallel.h"
#include "dropin/real.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"

static const char *const kind_names[COPSE_NCCL_N_KINDS] = {
    [COPSE_ALLGATHER] = "AllGather",
    [COPSE_REDUCE_SCATTER] = "ReduceScatter",
    [COPSE_ALLREDUCE] = "AllReduce",
    [COPSE_BROADCAST] = "Broadcast",
    [COPSE_REDUCE] = "Reduce",
    [COPSE_ALLTOALL] = "AlltoAll",
    [COPSE_NCCL_SEND_RECV] = "Send/Recv",
    [COPSE_NCCL_OTHER] = "Gather/Scatter",
};

/* COPSE_NCCL_NO_COPSE: comm->why_not. */
static const char *const reasons[] = {
    [COPSE_NCCL_EMPTY] = "no elements",
    [COPSE_NCCL_OTHER_TYPE] = "an unknown type",
    [COPSE_NCCL_OTHER_REDOP] = "an operation of ncclRedOpCreatePreMulSum",
    [COPSE_NCCL_IN_PLACE] = "in place",
    [COPSE_NCCL_NO_PLAN] = "no plan for this size (and root)",
    [COPSE_NCCL_NOT_PROMISED] = "COPSE_NCCL_ALLTOALL=1 is not set",
    [COPSE_NCCL_ALONE] = "not in a group",
    [COPSE_NCCL_NO_EXCHANGE] = "the group is no all-to-all of even blocks",
    [COPSE_NCCL_NO_COLLECTIVE] = "copse has no such collective",
    [COPSE_NCCL_CONFIGURED] = "it has a configuration of its own",
    [COPSE_NCCL_IN_WINDOWS] = "it is in symmetric windows, which NCCL reaches without copies",
};

void copse_nccl_tally_served(struct copse_nccl_comm *comm, int kind, const copse_plan *plan) {
  struct copse_nccl_tally *tally = &comm->tally[kind];
  tally->served++;
  if (tally->said == plan) return;
  tally->said = plan;
  const struct copse_plan_header *h = &plan->header;
  char most[40] = "any size";
  if (h->max_bytes < COPSE_BUFFER_MAX_BYTES)
    snprintf(most, sizeof most, "%llu bytes", (unsigned long long)h->max_bytes);
  copse_debug(COPSE_DEBUG_INFO, comm->rank,
              "NCCL %s: served by the plan for %s, %llu bytes to %s, %s", kind_names[kind],
              plan->name, (unsigned long long)h->min_bytes, most,
              h->protocol == COPSE_PROTOCOL_LOW_LATENCY ? "low latency" : "bandwidth");
}

void copse_nccl_tally_passed(struct copse_nccl_comm *comm, int kind, enum copse_nccl_reason reason,
                             size_t count, ncclDataType_t type) {
  struct copse_nccl_tally *tally = &comm->tally[kind];
  tally->passed++;
  if (tally->reasons_said & 1u << reason) return;
  tally->reasons_said |= 1u << reason;
  copse_debug(COPSE_DEBUG_INFO, comm->rank, "NCCL %s: passed to NCCL, count %zu of type %u: %s",
              kind_names[kind], count, type,
              reason == COPSE_NCCL_NO_COPSE ? comm->why_not : reasons[reason]);
}

/* Prints the sums so far, at INFO. */
static void nccl_tally_say(const struct copse_nccl_comm *comm) {
  for (int kind = 0; kind < COPSE_NCCL_N_KINDS; kind++) {
    const struct copse_nccl_tally *tally = &comm->tally[kind];
    if (tally->served + tally->passed == 0) continue;
    copse_debug(COPSE_DEBUG_INFO, comm->rank, "NCCL %s: %llu served, %llu passed in all",
                kind_names[kind], (unsigned long long)tally->served,
                (unsigned long long)tally->passed);
  }
}

ncclResult_t copse_nccl_result(copse_status status) {
  switch (status) {
    case COPSE_OK: return ncclSuccess;
    case COPSE_INVALID: return ncclInvalidArgument;
    case COPSE_REFUTED: /* ranks differ */
    case COPSE_UNSUPPORTED: return ncclInvalidUsage;
    case COPSE_BAD_INPUT:
    case COPSE_IO:
    case COPSE_NOMEM: return ncclSystemError;
    case COPSE_DEVICE: return ncclUnhandledCudaError;
    case COPSE_TIMEOUT: /* a peer is gone, or has given up */
    case COPSE_ABORTED: return ncclRemoteError;
    case COPSE_INFEASIBLE:
    case COPSE_OVERFLOW:
    case COPSE_INTERNAL: return ncclInternalError;
  }
  return ncclInternalError;
}

static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512]; /* "" before any */

ncclResult_t copse_nccl_failed(copse_status status) {
  if (status == COPSE_OK) return ncclSuccess;
  COPSE_HOLD(&error_lock);
  snprintf(last_error, sizeof last_error, "%s", copse_last_error());
  return copse_nccl_result(status);
}

const char *copse_nccl_last_error(const char *of_nccl) {
  static _Thread_local char both[2048];
  COPSE_HOLD(&error_lock);
  if (*last_error == '\0') return of_nccl;
  snprintf(both, sizeof both, "copse: %s\n%s", last_error, of_nccl ? of_nccl : "");
  return both;
}

static pthread_rwlock_t registry_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct copse_nccl_comm *comms;

void copse_nccl_register(struct copse_nccl_comm *comm) {
  atomic_init(&comm->users, 1);
  pthread_rwlock_wrlock(&registry_lock);
  comm->next = comms;
  comms = comm;
  pthread_rwlock_unlock(&registry_lock);
}

struct copse_nccl_comm *copse_nccl_acquire(ncclComm_t nccl) {
  if (!nccl) return NULL;
  pthread_rwlock_rdlock(&registry_lock);
  struct copse_nccl_comm *it = comms;
  while (it && it->nccl != nccl) it = it->next;
  if (it) copse_nccl_use(it);
  pthread_rwlock_unlock(&registry_lock);
  return it;
}

static pthread_rwlock_t windows_lock = PTHREAD_RWLOCK_INITIALIZER;

void copse_nccl_window_add(struct copse_nccl_comm *comm, struct copse_nccl_window *window) {
  pthread_rwlock_wrlock(&windows_lock);
  window->next = comm->windows;
  comm->windows = window;
  pthread_rwlock_unlock(&windows_lock);
}

void copse_nccl_window_remove(struct copse_nccl_comm *comm, ncclWindow_t window) {
  pthread_rwlock_wrlock(&windows_lock);
  struct copse_nccl_window *it = comm->windows, *before = NULL;
  while (it && it->window != window) before = it, it = it->next;
  if (it && before)
    before->next = it->next;
  else if (it)
    comm->windows = it->next;
  pthread_rwlock_unlock(&windows_lock);
  free(it);
}

bool copse_nccl_window_holds(struct copse_nccl_comm *comm, const void *start, uint64_t bytes) {
  const uintptr_t at = (uintptr_t)start;
  if (!comm->windows) return false;
  pthread_rwlock_rdlock(&windows_lock);
  const struct copse_nccl_window *it = comm->windows;
  while (it && (at < it->start || bytes > it->bytes || at - it->start > it->bytes - bytes))
    it = it->next;
  pthread_rwlock_unlock(&windows_lock);
  return it != NULL;
}

copse_status copse_nccl_release(struct copse_nccl_comm *comm) {
  if (!comm || atomic_fetch_sub(&comm->users, 1) > 1) return COPSE_OK;
  copse_nccl_enter();
  copse_status status = copse_comm_destroy(comm->copse);
  copse_nccl_leave();
  while (comm->windows) copse_nccl_window_remove(comm, comm->windows->window);
  free(comm);
  return status;
}

static void release(void *comm) { (void)copse_nccl_release(comm); }

/* Mostly it takes milliseconds, with messages of other hosts under way 5 s (internode/messages.cu),
 * and the log says that it is over. */
#define RELEASE_SECONDS 10.0

void copse_nccl_release_aside(struct copse_nccl_comm *comm) {
  if (comm && comm->copse)
    (void)copse_run_detached(release, comm, RELEASE_SECONDS);
  else
    release(comm);
}

struct copse_nccl_comm *copse_nccl_forget(ncclComm_t nccl) {
  if (!nccl) return NULL;
  pthread_rwlock_wrlock(&registry_lock);
  struct copse_nccl_comm **at = &comms;
  while (*at && (*at)->nccl != nccl) at = &(*at)->next;
  struct copse_nccl_comm *it = *at;
  if (it) *at = it->next;
  pthread_rwlock_unlock(&registry_lock);
  if (it) nccl_tally_say(it);
  return it;
}
