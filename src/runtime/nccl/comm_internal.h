/* Between the files that make and that keep the drop-in's communicators. */
#ifndef COPSE_RUNTIME_NCCL_COMM_INTERNAL_H
#define COPSE_RUNTIME_NCCL_COMM_INTERNAL_H

#include "runtime/nccl/comm.h"

/* Takes over a complete communicator; its first user is the registry. */
void copse_nccl_register(struct copse_nccl_comm *comm);

#endif
