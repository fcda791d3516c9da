/* Inside src/runtime: calls of the calling thread between group start and end. */
#pragma once

#include "runtime/comm/local_ranks.h"

void copse_group_open(void);

/* The end of the outermost group starts what is queued, in order, waits until all of it is
 * done, and gives the first error in the order of the calls. Where a call of the group was
 * refused (copse_group_refuse), nothing starts and that error is the group's. */
copse_status copse_group_close(struct copse_err *err) COPSE_CHECKED;

/* Checks a call, and queues it, or runs it to its end where no group is open. What is refused is
 * so for the open group too. comm NULL is refused. */
copse_status copse_group_call(struct copse_comm *comm, const struct copse_call *call,
                              struct copse_err *err) COPSE_CHECKED;
void copse_group_refuse(const struct copse_err *err);

/* Whether the thread has a group open: its calls run only at the end. */
bool copse_group_is_open(void);

/* Whether the thread's open group has calls on the communicator. */
bool copse_group_holds(const struct copse_comm *comm);
