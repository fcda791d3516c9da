/*
 * Inside src/runtime: the NCCL communicator behind a bootstrap that somebody else made, so that
 * ranks on several hosts can send each other messages. The drop-in sets it: its bootstrap is one
 * of its own, and the NCCL that it means is not that which a look-up by name finds, itself.
 */
#ifndef COPSE_RUNTIME_INTERNODE_NCCL_SOURCE_H
#define COPSE_RUNTIME_INTERNODE_NCCL_SOURCE_H

#include <stdbool.h>

#include "copse/comm.h"

struct copse_nccl_source {
  void *comm;                      /* an ncclComm_t of the same ranks */
  void *(*find)(const char *name); /* a function of its NCCL, or NULL */
};

/* Whether it knows the bootstrap. */
typedef bool (*copse_nccl_source_of_type)(const copse_bootstrap *bootstrap,
                                          struct copse_nccl_source *out);
/* Any thread; the last one holds. */
void copse_nccl_source_set(copse_nccl_source_of_type of);
/* False where none is set, or that knows it not. */
bool copse_nccl_source_of(const copse_bootstrap *bootstrap, struct copse_nccl_source *out);

#endif
