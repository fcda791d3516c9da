/* Groups of calls: what a thread calls between group start and group end is checked at once, queued
 * at the end, and waited for together. The interface is that of NCCL's ncclGroupStart and
 * ncclGroupEnd. */
#include "runtime/comm/group.h"

#include <stdlib.h>

#include "base/memory.h"
#include "runtime/comm/gather.h"

struct queued {
  struct copse_comm *comm;
  struct copse_pending pending;
};

static _Thread_local struct {
  unsigned depth;
  struct queued *calls;
  size_t n, capacity;
  struct copse_err refused; /* the first */
} group;

void copse_group_open(void) { group.depth++; }

void copse_group_refuse(const struct copse_err *err) {
  if (group.depth > 0 && group.refused.status == COPSE_OK) group.refused = *err;
}

bool copse_group_is_open(void) { return group.depth > 0; }

bool copse_group_holds(const struct copse_comm *comm) {
  for (size_t i = 0; i < group.n; i++)
    if (group.calls[i].comm == comm) return true;
  return false;
}

static void queue(struct copse_comm *comm, struct copse_pending *pending) {
  struct copse_local_ranks *local = comm->local;
  copse_gather_queue(&local->gather, comm->rank - local->shape.first_local, pending);
}

/* Calls of one communicator in a row go together. A call of another one between two keeps them apart:
 * a rank that doesn't group them has it between them in its stream. */
static void submit_group(void) {
  for (size_t i = 0; i < group.n; i++) {
    struct copse_gather *gather = &group.calls[i].comm->local->gather;
    queue(group.calls[i].comm, &group.calls[i].pending);
    if (i + 1 == group.n || &group.calls[i + 1].comm->local->gather != gather)
      copse_gather_run(gather);
  }
}

static copse_status take_result(const struct copse_pending *pending, struct copse_err *err) {
  copse_status status = pending->result.status;
  return status == COPSE_OK ? COPSE_OK : copse_fail(err, status, "%s", pending->result.text);
}

static copse_status take_call(struct copse_comm *comm, const struct copse_call *call,
                              struct copse_err *err) {
  if (group.depth == 0) {
    struct copse_pending pending = {.call = *call};
    queue(comm, &pending);
    copse_gather_run(&comm->local->gather);
    copse_gather_wait(&comm->local->gather, &pending);
    return take_result(&pending, err);
  }
  COPSE_DO(COPSE_GROW(group.calls, group.capacity, group.n + 1, err));
  group.calls[group.n++] = (struct queued){.comm = comm, .pending = {.call = *call}};
  return COPSE_OK;
}

static copse_status try_call(struct copse_comm *comm, const struct copse_call *call,
                             struct copse_err *err) {
  if (!comm) return copse_fail(err, COPSE_INVALID, "comm is NULL");
  COPSE_DO(copse_call_check(call, comm->local->shape.n_ranks, comm->rank, err));
  COPSE_DO(copse_gather_broken(&comm->local->gather, err));
  /* what no rank can be served is said at once, not when the last rank has called */
  if (call->count > 0 && group.depth == 0 && comm->local->shape.n_local > 1)
    COPSE_DO(copse_local_covers(comm->local, call, err));
  if (call->count > 0) COPSE_DO(take_call(comm, call, err));
  return COPSE_OK;
}

copse_status copse_group_call(struct copse_comm *comm, const struct copse_call *call,
                              struct copse_err *err) {
  copse_status status = try_call(comm, call, err);
  if (status == COPSE_OK) return COPSE_OK;
  err->status = status;
  copse_group_refuse(err);
  return status;
}

copse_status copse_group_close(struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (group.depth == 0) return copse_fail(err, COPSE_INVALID, "a group ends that was not started");
  if (--group.depth > 0) return COPSE_OK;
  if (group.refused.status != COPSE_OK)
    status = copse_fail(err, group.refused.status, "%s", group.refused.text);
  /* from here on the calls must stay where they are: others point to them */
  if (status == COPSE_OK) submit_group();
  for (size_t i = 0; group.refused.status == COPSE_OK && i < group.n; i++) {
    copse_gather_wait(&group.calls[i].comm->local->gather, &group.calls[i].pending);
    copse_status result = take_result(&group.calls[i].pending, err);
    if (status == COPSE_OK) status = result;
  }
  free(group.calls);
  group.calls = NULL;
  group.n = group.capacity = 0;
  group.refused = (struct copse_err)COPSE_ERR_INIT;
  return status;
}
