/* Where ranks on several hosts find NCCL: the source that the drop-in has set, for all threads. */
#include "runtime/backend/nccl_source.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(copse_nccl_source_of_type) source_of;

void copse_nccl_source_set(copse_nccl_source_of_type of) { atomic_store(&source_of, of); }

bool copse_nccl_source_of(const copse_bootstrap *bootstrap, struct copse_nccl_source *out) {
  copse_nccl_source_of_type of = atomic_load(&source_of);
  return of != NULL && of(bootstrap, out);
}
