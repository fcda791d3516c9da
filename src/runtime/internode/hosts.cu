/* Which ranks share a host: those of one name and one boot of the kernel. */
#include <unistd.h>

#include "runtime/gpu/cuda_machine.h"

extern "C" {
#include "base/file.h"
}

uint64_t copse_cuda_host = 0;

/* Hosts may have one name, and containers of one host one boot id. */
static uint64_t number_of_host(void) {
  char text[256] = "";
  uint8_t digest[COPSE_SHA256_BYTES];
  uint64_t number;
  if (copse_cuda_host) return copse_cuda_host;
  if (gethostname(text, sizeof text - 65) != 0) text[0] = '\0';
  text[sizeof text - 66] = '\0';
  size_t used = strlen(text) + 1;
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file) {
    if (fgets(text + used, 64, file)) used += strlen(text + used);
    fclose(file);
  }
  copse_sha256(text, used, digest);
  memcpy(&number, digest, sizeof number);
  return number;
}

copse_status copse_cuda_find_hosts(struct copse_cuda_machine *m, struct copse_err *err) {
  if (m->n_hosts > 0) return COPSE_OK;
  uint64_t own = number_of_host(), all[COPSE_CUDA_MAX_RANKS];
  uint32_t n_hosts = 0;
  if (m->many_processes) {
    copse_status status = m->bootstrap.all_gather(m->bootstrap.context, &own, all, sizeof own);
    if (status != COPSE_OK) return copse_fail(err, status, "the bootstrap's all_gather failed");
  }
  for (uint32_t r = 0; m->many_processes && r < m->n_ranks; r++) {
    uint32_t first = 0;
    while (all[first] != all[r]) first++;
    m->host_of[r] = first < r ? m->host_of[first] : n_hosts++;
  }
  COPSE_CHECK(copse_cuda_leave_open(m, err));
  if (n_hosts < 2) {
    memset(m->host_of, 0, sizeof m->host_of);
    m->n_hosts = 1;
    return COPSE_OK;
  }
  COPSE_CHECK(copse_cuda_agree(m, copse_nccl_links_of(&m->bootstrap, &m->links, err), err));
  copse_on_device here(m->sites[0].device);
  cudaError_t error =
      m->upload ? cudaSuccess : cudaStreamCreateWithFlags(&m->upload, cudaStreamNonBlocking);
  copse_status status = copse_cuda_check(error, "cudaStreamCreateWithFlags", err);
  if (status == COPSE_OK) status = copse_cuda_lanes_open(m, err);
  COPSE_CHECK(copse_cuda_agree(m, status, err));
  COPSE_CHECK(copse_cuda_watch_open(m, err));
  m->n_hosts = n_hosts;
  return COPSE_OK;
}
