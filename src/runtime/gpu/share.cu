/* Memory of other processes, by CUDA IPC. The processes meet through the bootstrap. */
#include "runtime/gpu/cuda_machine.h"

/* What a rank tells of its memory. */
struct offer {
  cudaIpcMemHandle_t handle;
  uint64_t offset; /* from the start of the allocation */
  uint64_t bytes;
  int32_t ok;
  char why[100];
};

copse_status copse_cuda_agree(struct copse_cuda_machine *m, copse_status mine,
                              struct copse_err *err) {
  if (!m->many_processes) return mine;
  int32_t own = (int32_t)mine, all[COPSE_CUDA_MAX_RANKS];
  copse_status status = m->bootstrap.all_gather(m->bootstrap.context, &own, all, sizeof own);
  if (mine != COPSE_OK) return mine;
  if (status != COPSE_OK) return copse_fail(err, status, "the bootstrap's all_gather failed");
  for (uint32_t r = 0; r < m->n_ranks; r++)
    if (all[r] != COPSE_OK)
      return copse_fail(err, (copse_status)all[r], "stopped because rank %u failed: %s", r,
                        copse_status_string((copse_status)all[r]));
  return COPSE_OK;
}

copse_status copse_cuda_least(struct copse_cuda_machine *m, uint32_t mine, uint32_t *least,
                              struct copse_err *err) {
  uint32_t all[COPSE_CUDA_MAX_RANKS];
  *least = mine;
  if (!m->many_processes) return COPSE_OK;
  copse_status status = m->bootstrap.all_gather(m->bootstrap.context, &mine, all, sizeof mine);
  if (status != COPSE_OK) return copse_fail(err, status, "the bootstrap's all_gather failed");
  for (uint32_t r = 0; r < m->n_ranks; r++)
    if (all[r] < *least) *least = all[r];
  return COPSE_OK;
}

/* Every rank hears whether all could offer, so that all fail or none does. */
static copse_status exchange(const struct copse_cuda_machine *m, const struct offer *mine,
                             struct offer *all, struct copse_err *err) {
  copse_status status = m->bootstrap.all_gather(m->bootstrap.context, mine, all, sizeof *mine);
  if (status != COPSE_OK)
    return copse_fail(err, status, "the bootstrap's all_gather failed");
  for (uint32_t r = 0; r < m->n_ranks; r++)
    if (!all[r].ok)
      return copse_fail(err, COPSE_UNSUPPORTED, "rank %u can't share its memory: %.99s", r,
                        all[r].why);
  return COPSE_OK;
}

static copse_status open_all(struct copse_cuda_machine *m, const struct offer *all,
                             unsigned char *mine, unsigned char **mapped, void **opened,
                             struct copse_err *err) {
  copse_on_device here(m->sites[0].device);
  for (uint32_t r = 0; r < m->n_ranks; r++) {
    if (r == m->first_local) {
      mapped[r] = mine;
      continue;
    }
    if (m->host_of[r] != m->host_of[m->first_local]) continue;
    COPSE_CUDA(
        cudaIpcOpenMemHandle(&opened[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess));
    mapped[r] = (unsigned char *)opened[r] + all[r].offset;
  }
  return COPSE_OK;
}

static copse_status share(struct copse_cuda_machine *m, struct offer *mine, unsigned char *memory,
                          unsigned char **mapped, void **opened, struct copse_err *err) {
  struct offer all[COPSE_CUDA_MAX_RANKS]; /* no memory that could be out: the others wait */
  copse_on_device here(m->sites[0].device);
  mine->ok = mine->why[0] == '\0';
  cudaError_t error = mine->ok ? cudaIpcGetMemHandle(&mine->handle, memory - mine->offset) : cudaSuccess;
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    mine->ok = 0;
    snprintf(mine->why, sizeof mine->why, "cudaIpcGetMemHandle: %s", cudaGetErrorString(error));
  }
  copse_status status = exchange(m, mine, all, err);
  for (uint32_t r = 0; r < m->n_ranks && status == COPSE_OK; r++)
    if (all[r].bytes != mine->bytes)
      status = copse_fail(err, COPSE_INVALID, "rank %u gives %llu bytes where rank %u gives %llu",
                          r, (unsigned long long)all[r].bytes, m->first_local,
                          (unsigned long long)mine->bytes);
  if (status == COPSE_OK) status = open_all(m, all, memory, mapped, opened, err);
  return status;
}

copse_status copse_cuda_share(struct copse_cuda_machine *m, unsigned char *mine,
                              unsigned char **mapped, void **opened, struct copse_err *err) {
  struct offer offer;
  memset(&offer, 0, sizeof offer); /* the start of an allocation of our own */
  return share(m, &offer, mine, mapped, opened, err);
}

void copse_cuda_unshare(struct copse_cuda_machine *m, void **opened) {
  copse_on_device here(m->sites[0].device); /* that opened them */
  for (uint32_t r = 0; r < m->n_ranks; r++) {
    if (opened[r]) (void)cudaIpcCloseMemHandle(opened[r]);
    opened[r] = NULL;
  }
}

/* ---- buffers of the user ------------------------------------------------------------------- */

/* A handle names a whole allocation: where in it does the buffer start? The driver knows. */
static copse_status offset_in_allocation(const void *buffer, uint64_t *offset,
                                         struct copse_err *err) {
  typedef int (*address_range)(uint64_t *base, size_t *size, uint64_t pointer);
  void *symbol = NULL;
  uint64_t base = 0;
  size_t size = 0;
  COPSE_CHECK(copse_cuda_find_driver("cuMemGetAddressRange", &symbol, err));
  if (((address_range)symbol)(&base, &size, (uint64_t)(uintptr_t)buffer) != 0)
    return copse_fail(err, COPSE_INVALID, "not memory that cudaMalloc gave");
  *offset = (uint64_t)(uintptr_t)buffer - base;
  return COPSE_OK;
}

static copse_status new_buffer(const struct copse_cuda_machine *m, void *buffer, size_t bytes,
                               struct copse_cuda_buffer **out, struct copse_err *err) {
  COPSE_CHECK(copse_calloc(1, sizeof **out, out, err));
  (*out)->start = (unsigned char *)buffer;
  (*out)->bytes = bytes;
  COPSE_CHECK(copse_calloc(m->n_ranks, sizeof *(*out)->mapped, &(*out)->mapped, err));
  return copse_calloc(m->n_ranks, sizeof *(*out)->opened, &(*out)->opened, err);
}

static void free_buffer(struct copse_cuda_machine *m, struct copse_cuda_buffer *b) {
  if (!b) return;
  if (b->opened) copse_cuda_unshare(m, b->opened);
  free(b->mapped);
  free(b->opened);
  free(b);
}

copse_status copse_cuda_add_buffer(void *machine, uint32_t local_rank, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  struct copse_cuda_buffer *b = NULL;
  struct offer offer;
  (void)local_rank;
  *handle = NULL;
  if (!m->many_processes) return COPSE_OK; /* peers of this process reach everything */
  memset(&offer, 0, sizeof offer);
  offer.bytes = bytes;
  copse_status status = copse_cuda_agree(m, new_buffer(m, buffer, bytes, &b, err), err);
  if (status == COPSE_OK) status = copse_cuda_find_hosts(m, err);
  if (status == COPSE_OK) {
    struct copse_err why = COPSE_ERR_INIT;
    if (offset_in_allocation(buffer, &offer.offset, &why) != COPSE_OK)
      snprintf(offer.why, sizeof offer.why, "%.99s", why.text);
    /* registered at all ranks or at none: whoever writes an output must know where it is */
    status = copse_cuda_agree(m, share(m, &offer, b->start, b->mapped, b->opened, err), err);
  }
  if (status != COPSE_OK) {
    free_buffer(m, b);
    return status;
  }
  b->next = m->buffers;
  m->buffers = b;
  *handle = b;
  return COPSE_OK;
}

copse_status copse_cuda_remove_buffer(void *machine, uint32_t local_rank, void *handle,
                                      struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  (void)local_rank;
  if (!handle) return COPSE_OK;
  for (struct copse_cuda_buffer **at = &m->buffers; *at; at = &(*at)->next)
    if (*at == handle) {
      struct copse_cuda_buffer *b = *at;
      *at = b->next;
      free_buffer(m, b);
      return COPSE_OK;
    }
  return copse_fail(err, COPSE_INVALID, "not a handle of copse_comm_register");
}
