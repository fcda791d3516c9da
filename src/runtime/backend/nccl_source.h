/*
 * The NCCL behind a bootstrap that was made elsewhere, so that ranks on several hosts can send each
 * other messages. The drop-in sets it: it has a bootstrap of its own, and a look-up of NCCL's
 * functions by name would find the drop-in itself.
 */
#ifndef COPSE_RUNTIME_BACKEND_NCCL_SOURCE_H
#define COPSE_RUNTIME_BACKEND_NCCL_SOURCE_H

#include <stdbool.h>

#include "copse/comm.h"

struct copse_nccl_source {
  void *comm;                      /* an ncclComm_t of the same ranks */
  void *(*find)(const char *name); /* a function of its NCCL, or NULL */
};

/* Fills *out; false where the bootstrap isn't the source's. */
typedef bool (*copse_nccl_source_of_type)(const copse_bootstrap *bootstrap,
                                          struct copse_nccl_source *out);
/* May be called by any thread; the last call counts. */
void copse_nccl_source_set(copse_nccl_source_of_type of);
/* False where no source is set, or the bootstrap isn't the source's. */
bool copse_nccl_source_of(const copse_bootstrap *bootstrap, struct copse_nccl_source *out);

#endif
