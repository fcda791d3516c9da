/* Ranks on several hosts: which is where, and the streams that NCCL can use. */
#include <unistd.h>

#include "runtime/internode/internode.h"

extern "C" {
#include "base/file.h"
}

/* ---- hosts --------------------------------------------------------------------------------- */

uint64_t copse_cuda_host = 0;

/* A number for this host from its name and the boot id of its kernel: hosts may share a name, and
 * containers of one host a boot id. */
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

/* Of each rank: its host and GPU, whether plans over several hosts are asked for there, and the barrier at
 * which it would leave. */
struct arrival {
  uint64_t host, asked;
  char gpu[24]; /* its PCI bus id; "" where CUDA doesn't say */
  char barrier[COPSE_PEER_BARRIER_NAME];
  struct copse_cuda_probe probe;
};

static bool is_asked_for(void) {
  const char *text = getenv("COPSE_SEVERAL_HOSTS");
  return text && strcmp(text, "1") == 0;
}

/* Numbers the hosts from 0 in the order of their first ranks. *asked: by all ranks. */
static copse_status number_hosts(struct copse_cuda *cuda, uint32_t *n_hosts, bool *asked,
                                 struct copse_err *err) {
  struct arrival own, all[COPSE_CUDA_MAX_RANKS];
  struct copse_cuda_probe probes[COPSE_CUDA_MAX_RANKS];
  *n_hosts = 1;
  *asked = true;
  if (!cuda->many_processes) return COPSE_OK;
  memset(&own, 0, sizeof own);
  own.host = number_of_host();
  own.asked = is_asked_for();
  if (cudaDeviceGetPCIBusId(own.gpu, sizeof own.gpu, cuda->devices[0].ordinal) != cudaSuccess) {
    (void)cudaGetLastError();
    own.gpu[0] = '\0';
  }
  copse_cuda_leave_offer(cuda, own.barrier);
  copse_cuda_probe_offer(cuda, &own.probe);
  COPSE_DO(copse_cuda_gather(cuda, &own, all, sizeof own, err));
  *n_hosts = 0;
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    uint32_t first = 0;
    *asked = *asked && all[r].asked;
    while (all[first].host != all[r].host) first++;
    cuda->host_of[r] = first < r ? cuda->host_of[first] : (*n_hosts)++;
    for (uint32_t q = first; q < r; q++)
      cuda->shares_gpus = cuda->shares_gpus || (all[q].host == all[r].host && all[r].gpu[0] &&
                                                memcmp(all[q].gpu, all[r].gpu, sizeof own.gpu) == 0);
    all[r].barrier[COPSE_PEER_BARRIER_NAME - 1] = '\0';
    if (r == cuda->first_local) copse_cuda_leave_choose(cuda, all[first].barrier);
    probes[r] = all[r].probe;
  }
  copse_cuda_probe_try(cuda, probes);
  return COPSE_OK;
}

static copse_status make_internode(struct copse_cuda *cuda, struct copse_err *err) {
  COPSE_DO(copse_calloc(1, sizeof *cuda->internode, &cuda->internode, err));
  return copse_nccl_links_of(&cuda->bootstrap, &cuda->internode->links, err);
}

void copse_internode_close(struct copse_cuda *cuda) {
  struct copse_internode *in = cuda->internode;
  if (!in) return;
  copse_watch_close(cuda);
  free(in);
  cuda->internode = NULL;
}

copse_status copse_internode_find_hosts(struct copse_cuda *cuda, struct copse_err *err) {
  uint32_t n_hosts = 0;
  bool asked = false;
  if (cuda->n_hosts > 0) return COPSE_OK;
  COPSE_DO(number_hosts(cuda, &n_hosts, &asked, err));
  if (n_hosts > 1) {
    /* it has run over a stand-in for NCCL only */
    if (!asked)
      return copse_fail(
          err, COPSE_UNSUPPORTED,
          "ranks on %u hosts: plans over several hosts are experimental, and run where "
          "all ranks have COPSE_SEVERAL_HOSTS=1",
          n_hosts);
    copse_debug(COPSE_DEBUG_WARN, (int)cuda->first_local,
                "plans over %u hosts: experimental, COPSE_SEVERAL_HOSTS=1", n_hosts);
    copse_internode_close(cuda); /* of an attempt that failed */
    COPSE_DO(copse_watch_open(cuda, make_internode(cuda, err), err));
  }
  cuda->n_hosts = n_hosts;
  return COPSE_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

copse_status copse_internode_find_stream(struct copse_cuda *cuda, cudaStream_t *stream,
                                         struct copse_err *err) {
  if (*stream != cudaStreamPerThread) return COPSE_OK;
  return copse_cuda_own_stream(&cuda->devices[0], *stream, stream, err);
}
