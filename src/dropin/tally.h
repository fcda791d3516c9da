/*
 * What the log says about calls: once per communicator and collective for each plan that served
 * it and each reason why NCCL did, and sums when the communicator ends.
 */
#ifndef COPSE_DROPIN_TALLY_H
#define COPSE_DROPIN_TALLY_H

#include "dropin/comm.h"

enum copse_nccl_reason {
  COPSE_NCCL_SERVE = -1, /* by copse */
  COPSE_NCCL_NO_COPSE,   /* comm->why_not */
  COPSE_NCCL_EMPTY,
  COPSE_NCCL_OTHER_TYPE,
  COPSE_NCCL_OTHER_REDOP,
  COPSE_NCCL_IN_PLACE,
  COPSE_NCCL_NO_PLAN,
  COPSE_NCCL_NOT_PROMISED, /* sends and receives, COPSE_NCCL_ALLTOALL is not 1 */
  COPSE_NCCL_ALONE,        /* a send or receive outside of a group */
  COPSE_NCCL_NO_EXCHANGE   /* grouped, but no all-to-all */
};

void copse_nccl_tally_served(struct copse_nccl_comm *comm, int kind, const copse_plan *plan);
void copse_nccl_tally_passed(struct copse_nccl_comm *comm, int kind, enum copse_nccl_reason reason,
                             size_t count, ncclDataType_t type);

/* The sums so far, at INFO. */
void copse_nccl_tally_say(const struct copse_nccl_comm *comm);

#endif
