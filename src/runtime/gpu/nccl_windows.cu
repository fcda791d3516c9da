#include "runtime/gpu/nccl_windows.h"

#include "runtime/internode/nccl_bootstrap.h"

#if defined(__CUDACC__) && __has_include(<nccl_device.h>)
#include <nccl.h>
#include <nccl_device.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define HAVE_WINDOWS 1
#endif
#endif

#if defined(HAVE_WINDOWS)

#include <dlfcn.h>

/* NCCL's functions that only newer ones have. */
struct functions {
  ncclResult_t (*get_version)(int *version);
  ncclResult_t (*alloc)(void **memory, size_t bytes);
  ncclResult_t (*free)(void *memory);
  ncclResult_t (*window_register)(ncclComm_t comm, void *memory, size_t bytes,
                                  ncclWindow_t *window, int flags);
  ncclResult_t (*window_deregister)(ncclComm_t comm, ncclWindow_t window);
  ncclTeam_t (*team_lsa)(ncclComm_t comm);
};

static bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library ? library : RTLD_DEFAULT, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

/* Window structures belong to one version: what was compiled here must be what runs. */
static copse_status find_functions(const struct copse_nccl_handle *nccl, struct functions *f,
                                   struct copse_err *err) {
  int version = 0;
  if (!find(nccl->library, "ncclGetVersion", &f->get_version) ||
      !find(nccl->library, "ncclMemAlloc", &f->alloc) ||
      !find(nccl->library, "ncclMemFree", &f->free) ||
      !find(nccl->library, "ncclCommWindowRegister", &f->window_register) ||
      !find(nccl->library, "ncclCommWindowDeregister", &f->window_deregister) ||
      !find(nccl->library, "ncclTeamLsa", &f->team_lsa))
    return copse_fail(err, COPSE_UNSUPPORTED, "this NCCL has no windows");
  if (f->get_version(&version) != ncclSuccess || version / 100 != NCCL_VERSION_CODE / 100)
    return copse_fail(err, COPSE_UNSUPPORTED, "NCCL %d, built for %d", version, NCCL_VERSION_CODE);
  return COPSE_OK;
}

__global__ void window_addresses(ncclWindow_t window, int n, unsigned char **addresses) {
  for (int r = (int)threadIdx.x; r < n; r += (int)blockDim.x)
    addresses[r] = (unsigned char *)ncclGetLsaPointer(window, 0, r);
}

static copse_status read_addresses(struct copse_cuda_machine *m, ncclWindow_t window,
                                   unsigned char **mapped, struct copse_err *err) {
  void *on_device = NULL;
  size_t bytes = m->n_ranks * sizeof *mapped;
  cudaStream_t stream = NULL;
  COPSE_CUDA(cudaMalloc(&on_device, bytes));
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) {
    window_addresses<<<1, 128, 0, stream>>>(window, (int)m->n_ranks, (unsigned char **)on_device);
    error = cudaGetLastError(); /* of the launch; the wait tells what came later */
  }
  if (error == cudaSuccess)
    error = cudaMemcpyAsync(mapped, on_device, bytes, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (stream) (void)cudaStreamDestroy(stream);
  (void)cudaFree(on_device);
  return copse_cuda_check(error, "the addresses of NCCL's windows", err);
}

/* Every rank writes its number into its own memory and reads everybody's. All take part in every
 * agreement, whatever has failed before. */
static copse_status try_addresses(struct copse_cuda_machine *m, unsigned char *const *mapped,
                                  struct copse_err *err) {
  uint64_t mine = 0xc0b5e0000u + m->first_local;
  unsigned char *own = mapped[m->first_local];
  copse_status status = copse_cuda_upload(own, &mine, sizeof mine, err);
  COPSE_CHECK(copse_cuda_agree(m, status, err));
  for (uint32_t r = 0; r < m->n_ranks && status == COPSE_OK; r++) {
    uint64_t theirs = 0;
    status = copse_cuda_download(&theirs, mapped[r], sizeof theirs, err);
    if (status == COPSE_OK && theirs != 0xc0b5e0000u + r)
      status = copse_fail(err, COPSE_UNSUPPORTED, "rank %u is out of reach of NCCL's windows", r);
  }
  COPSE_CHECK(copse_cuda_agree(m, status, err));
  status = copse_cuda_upload(own, NULL, sizeof mine, err);
  return copse_cuda_agree(m, status, err); /* nobody starts before all are zero again */
}

static copse_status make(struct copse_cuda_machine *m, const struct copse_nccl_handle *nccl,
                         const struct functions *f, uint64_t bytes,
                         struct copse_nccl_window *window, struct copse_err *err) {
  ncclComm_t comm = (ncclComm_t)nccl->comm;
  if (f->team_lsa(comm).nRanks != (int)m->n_ranks)
    return copse_fail(err, COPSE_UNSUPPORTED, "not all ranks reach each other by load and store");
  bytes = copse_round_up(bytes, NCCL_WIN_REQUIRED_ALIGNMENT);
  if (f->alloc(&window->memory, bytes) != ncclSuccess)
    return copse_fail(err, COPSE_NOMEM, "ncclMemAlloc of %llu bytes", (unsigned long long)bytes);
  return copse_cuda_upload(window->memory, NULL, bytes, err);
}

static copse_status map(struct copse_cuda_machine *m, const struct copse_nccl_handle *nccl,
                        const struct functions *f, uint64_t bytes, unsigned char **mapped,
                        struct copse_nccl_window *window, struct copse_err *err) {
  ncclWindow_t handle = NULL;
  bytes = copse_round_up(bytes, NCCL_WIN_REQUIRED_ALIGNMENT);
  if (f->window_register((ncclComm_t)nccl->comm, window->memory, bytes, &handle,
                         NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess || !handle)
    return copse_fail(err, COPSE_UNSUPPORTED, "ncclCommWindowRegister gave no window");
  window->window = handle;
  return read_addresses(m, handle, mapped, err);
}

copse_status copse_nccl_window_new(struct copse_cuda_machine *m, uint64_t bytes,
                                   unsigned char **mapped, struct copse_nccl_window *window,
                                   struct copse_err *err) {
  struct copse_nccl_handle nccl;
  struct functions f;
  if (!copse_nccl_handle_of(&m->bootstrap, &nccl)) /* the same at every rank */
    return copse_fail(err, COPSE_UNSUPPORTED, "the bootstrap isn't NCCL");
  copse_on_device here(m->sites[0].device);
  copse_status status = find_functions(&nccl, &f, err);
  if (status == COPSE_OK) status = make(m, &nccl, &f, bytes, window, err);
  status = copse_cuda_agree(m, status, err);
  if (status == COPSE_OK)
    status = copse_cuda_agree(m, map(m, &nccl, &f, bytes, mapped, window, err), err);
  if (status == COPSE_OK) status = try_addresses(m, mapped, err);
  if (status != COPSE_OK) copse_nccl_window_free(m, window);
  return status;
}

void copse_nccl_window_free(struct copse_cuda_machine *m, struct copse_nccl_window *window) {
  struct copse_nccl_handle nccl;
  struct functions f;
  struct copse_err ignored = COPSE_ERR_INIT;
  if (!window->memory || !copse_nccl_handle_of(&m->bootstrap, &nccl) ||
      find_functions(&nccl, &f, &ignored) != COPSE_OK)
    return;
  if (window->window)
    (void)f.window_deregister((ncclComm_t)nccl.comm, (ncclWindow_t)window->window);
  (void)f.free(window->memory);
  window->memory = window->window = NULL;
}

#else /* an older NCCL, or none, where this was built */

copse_status copse_nccl_window_new(struct copse_cuda_machine *, uint64_t, unsigned char **,
                                   struct copse_nccl_window *, struct copse_err *err) {
  return copse_fail(err, COPSE_UNSUPPORTED, "built without NCCL 2.28's windows");
}

void copse_nccl_window_free(struct copse_cuda_machine *, struct copse_nccl_window *) {}

#endif
