#include "dropin/call.h"

#include "dropin/group.h"
#include "dropin/real.h"
#include "dropin/status.h"
#include "dropin/tally.h"

int copse_nccl_call_kind(const struct copse_nccl_call *call) {
  switch (call->function) {
    case COPSE_NCCL_ALL_REDUCE: return COPSE_ALLREDUCE;
    case COPSE_NCCL_ALL_GATHER: return COPSE_ALLGATHER;
    case COPSE_NCCL_REDUCE_SCATTER: return COPSE_REDUCE_SCATTER;
    case COPSE_NCCL_BROADCAST:
    case COPSE_NCCL_BCAST: return COPSE_BROADCAST;
    case COPSE_NCCL_REDUCE: return COPSE_REDUCE;
    case COPSE_NCCL_ALL_TO_ALL: return COPSE_ALLTOALL;
    case COPSE_NCCL_SEND:
    case COPSE_NCCL_RECV: break;
  }
  return COPSE_NCCL_SEND_RECV;
}

static ncclResult_t run_real(const struct copse_nccl_call *c) {
  switch (c->function) {
    case COPSE_NCCL_ALL_REDUCE:
      return copse_nccl_real_AllReduce(c->send, c->recv, c->count, c->type, c->op, c->nccl,
                                       c->stream);
    case COPSE_NCCL_ALL_GATHER:
      return copse_nccl_real_AllGather(c->send, c->recv, c->count, c->type, c->nccl, c->stream);
    case COPSE_NCCL_REDUCE_SCATTER:
      return copse_nccl_real_ReduceScatter(c->send, c->recv, c->count, c->type, c->op, c->nccl,
                                           c->stream);
    case COPSE_NCCL_BROADCAST:
      return copse_nccl_real_Broadcast(c->send, c->recv, c->count, c->type, c->root, c->nccl,
                                       c->stream);
    case COPSE_NCCL_BCAST:
      return copse_nccl_real_Bcast(c->recv, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_REDUCE:
      return copse_nccl_real_Reduce(c->send, c->recv, c->count, c->type, c->op, c->root, c->nccl,
                                    c->stream);
    case COPSE_NCCL_ALL_TO_ALL:
      return copse_nccl_real_AlltoAll(c->send, c->recv, c->count, c->type, c->nccl, c->stream);
    case COPSE_NCCL_SEND:
      return copse_nccl_real_Send(c->send, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_RECV:
      return copse_nccl_real_Recv(c->recv, c->count, c->type, c->root, c->nccl, c->stream);
  }
  return ncclInternalError;
}

ncclResult_t copse_nccl_call_real(const struct copse_nccl_call *call) {
  copse_nccl_enter();
  ncclResult_t result = run_real(call);
  copse_nccl_leave();
  return result;
}

static copse_status run_copse(const struct copse_nccl_call *c, copse_comm *comm) {
  copse_type type = (copse_type)c->type;
  copse_redop op = (copse_redop)c->op;
  switch (copse_nccl_call_kind(c)) {
    case COPSE_ALLREDUCE:
      return copse_all_reduce(c->send, c->recv, c->count, type, op, comm, c->stream);
    case COPSE_ALLGATHER:
      return copse_all_gather(c->send, c->recv, c->count, type, comm, c->stream);
    case COPSE_REDUCE_SCATTER:
      return copse_reduce_scatter(c->send, c->recv, c->count, type, op, comm, c->stream);
    case COPSE_BROADCAST:
      return copse_broadcast(c->send, c->recv, c->count, type, c->root, comm, c->stream);
    case COPSE_REDUCE:
      return copse_reduce(c->send, c->recv, c->count, type, op, c->root, comm, c->stream);
    case COPSE_ALLTOALL: return copse_all_to_all(c->send, c->recv, c->count, type, comm, c->stream);
    default: return COPSE_INTERNAL;
  }
}

ncclResult_t copse_nccl_call_copse(const struct copse_nccl_call *call, copse_comm *comm) {
  copse_nccl_enter();
  copse_status status = run_copse(call, comm);
  copse_nccl_leave();
  return copse_nccl_failed(status);
}

static bool reduces(enum copse_nccl_function function) {
  return function == COPSE_NCCL_ALL_REDUCE || function == COPSE_NCCL_REDUCE_SCATTER ||
         function == COPSE_NCCL_REDUCE;
}

/*
 * Looks only at what is the same on all ranks of the communicator, so that all decide alike. The
 * exceptions: an all-to-all in place is wrong on all ranks or none of a sane program; sends and
 * receives are looked at only where the user has promised that they are alike
 * (COPSE_NCCL_ALLTOALL).
 */
static enum copse_nccl_reason decide(const struct copse_nccl_comm *comm,
                                     const struct copse_nccl_call *call, const copse_plan **plan) {
  bool pair = copse_nccl_call_kind(call) == COPSE_NCCL_SEND_RECV;
  if (!comm->copse) return COPSE_NCCL_NO_COPSE;
  if (pair && !comm->exchanges) return COPSE_NCCL_NOT_PROMISED;
  if (pair && !copse_nccl_in_group()) return COPSE_NCCL_ALONE;
  if (call->type >= COPSE_N_TYPES) return COPSE_NCCL_OTHER_TYPE;
  if (pair) return COPSE_NCCL_SERVE; /* perhaps: the end of the group decides */
  if (call->count == 0) return COPSE_NCCL_EMPTY;
  if (reduces(call->function) && call->op >= COPSE_N_REDOPS) return COPSE_NCCL_OTHER_REDOP;
  if (call->function == COPSE_NCCL_ALL_TO_ALL && call->send == call->recv)
    return COPSE_NCCL_IN_PLACE;
  int kind = copse_nccl_call_kind(call);
  bool rooted = kind == COPSE_BROADCAST || kind == COPSE_REDUCE;
  copse_status status =
      copse_comm_find_plan(comm->copse, (copse_collective)kind, rooted ? call->root : -1,
                           call->count, (copse_type)call->type, plan);
  if (status != COPSE_OK || !*plan) return COPSE_NCCL_NO_PLAN;
  return COPSE_NCCL_SERVE;
}

ncclResult_t copse_nccl_call_do(const struct copse_nccl_call *call) {
  struct copse_nccl_comm *comm = copse_nccl_is_inside() ? NULL : copse_nccl_acquire(call->nccl);
  if (!comm) return copse_nccl_call_real(call);
  ncclResult_t result;
  int kind = copse_nccl_call_kind(call);
  const copse_plan *plan = NULL;
  enum copse_nccl_reason reason = decide(comm, call, &plan);
  if (reason != COPSE_NCCL_SERVE) {
    copse_nccl_tally_passed(comm, kind, reason, call->count, call->type);
    result = copse_nccl_call_real(call);
  } else {
    if (kind != COPSE_NCCL_SEND_RECV) copse_nccl_tally_served(comm, kind, plan);
    if (copse_nccl_in_group()) {
      copse_status status = copse_nccl_group_hold(call, comm);
      if (status == COPSE_OK) return ncclSuccess; /* the group holds comm now */
      result = copse_nccl_result(status);
    } else {
      result = copse_nccl_call_copse(call, comm->copse);
    }
  }
  (void)copse_nccl_release(comm);
  return result;
}
