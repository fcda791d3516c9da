/*
 * Several GPUs in one process: kernels write straight into every rank's output. What cudaMalloc gave all of
 * them reach, since peer access is on; memory of a pool (cudaMallocAsync) or that was mapped (cuMemMap, as
 * PyTorch's expandable segments are) only where its owner has said so, and else a kernel faults.
 */
#include "runtime/gpu/cuda_machine.h"

/* As in cuda.h. */
enum {
  ATTRIBUTE_MEMORY_TYPE = 2,
  ATTRIBUTE_BUFFER_ID = 7, /* never used again */
  ATTRIBUTE_IS_MANAGED = 8,
  ATTRIBUTE_FOR_IPC = 10,
  ATTRIBUTE_POOL = 17
};
enum { MEMORY_OF_DEVICE = 2, LOCATION_IS_DEVICE = 1, ACCESS_TO_WRITE = 3 };
struct location {
  int type, id;
};
typedef int (*pointer_attribute)(void *value, int attribute, uint64_t pointer);
typedef int (*pool_access)(int *flags, void *pool, const struct location *location);
typedef int (*mapped_access)(unsigned long long *flags, const struct location *location,
                             uint64_t pointer);

copse_status copse_cuda_find_driver(const char *name, void **function, struct copse_err *err) {
  cudaDriverEntryPointQueryResult found;
  *function = NULL;
#if CUDART_VERSION >= 12050
  COPSE_CUDA(cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &found));
#else
  COPSE_CUDA(cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &found));
#endif
  if (found == cudaDriverEntryPointSuccess && *function) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED, "the CUDA driver has no %s", name);
}

/* Whose owner decides who may use it. */
static bool is_granted(pointer_attribute get, uint64_t pointer) {
  int type = 0, managed = 0, for_ipc = 1;
  if (get(&type, ATTRIBUTE_MEMORY_TYPE, pointer) != 0 || type != MEMORY_OF_DEVICE) return false;
  if (get(&managed, ATTRIBUTE_IS_MANAGED, pointer) != 0 || managed) return false;
  return get(&for_ipc, ATTRIBUTE_FOR_IPC, pointer) == 0 && !for_ipc;
}

/* Refused is only what the driver says may not be written; of what it can't say (memory of another
 * process, say) the owner knows. */
static copse_status find_grant(void *pool, uint64_t pointer, int device, bool *writes,
                               struct copse_err *err) {
  const struct location location = {LOCATION_IS_DEVICE, device};
  void *function = NULL;
  unsigned long long flags = 0;
  int flags_of_pool = 0;
  COPSE_CHECK(
      copse_cuda_find_driver(pool ? "cuMemPoolGetAccess" : "cuMemGetAccess", &function, err));
  const int failed = pool ? ((pool_access)function)(&flags_of_pool, pool, &location)
                          : ((mapped_access)function)(&flags, &location, pointer);
  if (pool) flags = (unsigned long long)flags_of_pool;
  *writes = failed != 0 || flags == ACCESS_TO_WRITE;
  return COPSE_OK;
}

static copse_status check_site(const struct copse_cuda_machine *m, uint32_t rank, void *pool,
                               uint64_t pointer, int device, struct copse_err *err) {
  bool writes = false;
  COPSE_CHECK(find_grant(pool, pointer, device, &writes, err));
  if (writes) return COPSE_OK;
  return copse_fail(err, COPSE_INVALID,
                    "rank %u's output is in memory %s, which GPU %d may not write: %s, or memory of "
                    "cudaMalloc",
                    m->first_local + rank, pool ? "of a pool" : "that was mapped", device,
                    pool ? "cudaMemPoolSetAccess" : "cuMemSetAccess");
}

copse_status copse_cuda_check_reach(struct copse_cuda_machine *m, uint32_t rank, const void *output,
                                    struct copse_err *err) {
  const uint64_t pointer = (uint64_t)(uintptr_t)output;
  void *pool = NULL;
  unsigned long long id = 0;
  if (!output) return COPSE_OK;
  if (!m->get_attribute)
    COPSE_CHECK(copse_cuda_find_driver("cuPointerGetAttribute", &m->get_attribute, err));
  const pointer_attribute get = (pointer_attribute)m->get_attribute;
  if (get(&id, ATTRIBUTE_BUFFER_ID, pointer) != 0) id = 0;
  if (id != 0 && m->reached[rank] == id) return COPSE_OK;
  if (is_granted(get, pointer)) {
    if (get(&pool, ATTRIBUTE_POOL, pointer) != 0) pool = NULL;
    for (uint32_t s = 0; s < m->n_sites; s++)
      if (s != m->site_of[rank])
        COPSE_CHECK(check_site(m, rank, pool, pointer, m->sites[s].device, err));
  }
  m->reached[rank] = id;
  return COPSE_OK;
}
