#include "dropin/tally.h"

#include <stdio.h>

#include "runtime/comm/debug.h"
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
};

static const char *reason_text(const struct copse_nccl_comm *comm, enum copse_nccl_reason reason) {
  switch (reason) {
    case COPSE_NCCL_NO_COPSE: return comm->why_not;
    case COPSE_NCCL_EMPTY: return "no elements";
    case COPSE_NCCL_OTHER_TYPE: return "an unknown type";
    case COPSE_NCCL_OTHER_REDOP: return "an operation of ncclRedOpCreatePreMulSum";
    case COPSE_NCCL_IN_PLACE: return "in place";
    case COPSE_NCCL_NO_PLAN: return "no plan for this size (and root)";
    case COPSE_NCCL_NOT_PROMISED: return "COPSE_NCCL_ALLTOALL=1 is not set";
    case COPSE_NCCL_ALONE: return "not in a group";
    case COPSE_NCCL_NO_EXCHANGE: return "the group is no all-to-all of even blocks";
    case COPSE_NCCL_SERVE: break;
  }
  return "";
}

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
              kind_names[kind], count, type, reason_text(comm, reason));
}

void copse_nccl_tally_say(const struct copse_nccl_comm *comm) {
  for (int kind = 0; kind < COPSE_NCCL_N_KINDS; kind++) {
    const struct copse_nccl_tally *tally = &comm->tally[kind];
    if (tally->served + tally->passed == 0) continue;
    copse_debug(COPSE_DEBUG_INFO, comm->rank, "NCCL %s: %llu served, %llu passed in all",
                kind_names[kind], (unsigned long long)tally->served,
                (unsigned long long)tally->passed);
  }
}
