/*
 * The calling thread's group: between ncclGroupStart and ncclGroupEnd calls that copse serves
 * wait, NCCL's own go to NCCL's group at once. At the outermost end NCCL's group is launched
 * first, on all ranks alike, then copse's calls in their order. NCCL runs a group as one
 * operation and promises no order inside it.
 */
#ifndef COPSE_DROPIN_GROUP_H
#define COPSE_DROPIN_GROUP_H

#include <stdbool.h>

#include "dropin/call.h"

bool copse_nccl_in_group(void);

/* Keeps a call for the end of the group; takes over the caller's use of comm if it succeeds. */
copse_status copse_nccl_group_hold(const struct copse_nccl_call *call,
                                   struct copse_nccl_comm *comm) COPSE_CHECKED;

/* Communicators that NCCL makes: now, or where a group is open, at its end. */
void copse_nccl_group_made(ncclComm_t *where, bool blocking);

#endif
