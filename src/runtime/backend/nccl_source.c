/* Where ranks on several hosts find NCCL: the source that the drop-in has set, for all threads. */
#include "runtime/backend/nccl_source.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(copse_nccl_source_type) source_of;

void copse_nccl_source_set(copse_nccl_source_type source) { atomic_store(&source_of, source); }

copse_nccl_find_type copse_nccl_source_of(const copse_bootstrap *bootstrap) {
  copse_nccl_source_type source = atomic_load(&source_of);
  return source ? source(bootstrap) : NULL;
}
