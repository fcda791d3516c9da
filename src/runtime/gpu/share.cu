/*
 * Memory of other processes, by CUDA IPC (CUDA C++ Programming Guide, "Interprocess
 * Communication"), and how processes that share memory leave each other. Processes exchange handles
 * through the bootstrap, and descriptors of multicast memory by sockets.
 *
 * Memory that a process shares must not be freed before its peers have closed it. So a process that
 * leaves closes what it opened, arrives at a barrier (peer_barrier.h), and waits there for the
 * others of its host. It waits copse_cuda_leave_seconds at most, since a peer may be gone or busy
 * elsewhere. Memory that such a peer may still use is kept, and freed when a later communicator of
 * this process comes or goes and the peer has arrived by then. Where processes of a host share no
 * files they meet by an all_gather of the bootstrap, and wait for each other without limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "base/clock.h"
#include "runtime/gpu/peer_barrier.h"
}

double copse_cuda_leave_seconds = 2;

double copse_cuda_swap_seconds = 10;

/* ---- agreement --------------------------------------------------------------------------- */

copse_status copse_cuda_gather(const struct copse_cuda *cuda, const void *mine, void *all,
                               size_t bytes, struct copse_err *err) {
  copse_status status = cuda->bootstrap.all_gather(cuda->bootstrap.context, mine, all, bytes);
  return status == COPSE_OK ? status : copse_fail(err, status, "the bootstrap's all_gather failed");
}

/* Removes the barrier's name when every rank has decided alike: it serves nobody any more. */
static void settle_barrier(struct copse_cuda *cuda, bool all_have) {
  if (cuda->barrier_name[0]) copse_peer_barrier_unlink(cuda->barrier_name);
  cuda->barrier_name[0] = '\0';
  if (all_have) return;
  copse_peer_barrier_free(cuda->peer_barrier);
  cuda->peer_barrier = NULL;
}

copse_status copse_cuda_vote(struct copse_cuda *cuda, struct copse_cuda_ballot *mine,
                             struct copse_err *err) {
  /* on the stack: failing here would leave others waiting */
  struct copse_cuda_ballot all[COPSE_CUDA_MAX_RANKS];
  const copse_status own = (copse_status)mine->status;
  bool all_have = true;
  if (!cuda->many_processes) return own;
  mine->lacks_barrier = cuda->peer_barrier == NULL;
  memcpy(mine->beyond, cuda->beyond[cuda->first_local], sizeof mine->beyond);
  copse_status status =
      copse_cuda_gather(cuda, mine, all, sizeof *mine, own == COPSE_OK ? err : NULL);
  if (status != COPSE_OK) return own != COPSE_OK ? own : status;
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    all_have = all_have && !all[r].lacks_barrier;
    for (uint32_t i = 0; i < 16; i++) mine->left_out[i] |= all[r].left_out[i];
    memcpy(cuda->beyond[r], all[r].beyond, sizeof cuda->beyond[r]);
    cuda->has_mirrors = cuda->has_mirrors || all[r].beyond[0] || all[r].beyond[1];
  }
  (void)cudaFree(cuda->probe); /* all have tried */
  cuda->probe = NULL;
  settle_barrier(cuda, all_have);
  if (own != COPSE_OK) return own;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (all[r].status != COPSE_OK)
      return copse_fail(err, (copse_status)all[r].status, "stopped because rank %u failed: %s", r,
                        copse_status_string((copse_status)all[r].status));
  return COPSE_OK;
}

copse_status copse_cuda_agree(struct copse_cuda *cuda, copse_status mine, struct copse_err *err) {
  struct copse_cuda_ballot vote;
  memset(&vote, 0, sizeof vote);
  vote.status = (int32_t)mine;
  return copse_cuda_vote(cuda, &vote, err);
}

/* ---- memory of the host --------------------------------------------------------------------
 * Page-locked, so that GPUs address it; between processes in POSIX shared memory. The name is
 * removed as soon as all have opened it. */

static copse_status map_host(struct copse_cuda_area *area, uint32_t rank, int file,
                             struct copse_err *err) {
  void *device = NULL;
  void *at = mmap(NULL, area->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return copse_fail(err, COPSE_NOMEM, "mapping shared memory: %s", strerror(errno));
  const copse_status status = copse_cuda_check(
      cudaHostRegister(at, area->bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
      "cudaHostRegister", err);
  if (status != COPSE_OK) {
    munmap(at, area->bytes);
    return status;
  }
  area->opened[rank] = at;
  COPSE_CUDA(cudaHostGetDevicePointer(&device, at, 0));
  area->at[rank] = (unsigned char *)device;
  return COPSE_OK;
}

/* Takes room in /dev/shm: a page that it has none for would end the process where it is touched. In
 * steps, since a signal (a profiler's timer) undoes a request that it interrupts. Returns 0 or an
 * errno. */
static int take_room(int file, uint64_t bytes) {
  const uint64_t step = (uint64_t)1 << 20;
  int error = 0;
  for (uint64_t at = 0; at < bytes && error == 0; at += step) {
    const uint64_t n = bytes - at < step ? bytes - at : step;
    do
      error = posix_fallocate(file, (off_t)at, (off_t)n);
    while (error == EINTR);
  }
  return error;
}

static copse_status make_shared(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                struct copse_err *err) {
  int file = -1;
  COPSE_DO(copse_peer_shared_new(area->name, &file, err));
  const int error = take_room(file, area->bytes);
  copse_status status =
      error == 0
          ? map_host(area, cuda->first_local, file, err)
          : copse_fail(err, COPSE_NOMEM,
                       "%llu MiB of shared memory in /dev/shm, which GPUs without peer access "
                       "need: %s (docker: --shm-size)",
                       (unsigned long long)(area->bytes >> 20) + 1, strerror(error));
  close(file);
  return status;
}

static copse_status open_shared(struct copse_cuda_area *area, uint32_t rank, const char *name,
                                struct copse_err *err) {
  const int file = shm_open(name, O_RDWR, 0);
  if (file < 0) return copse_fail(err, COPSE_IO, "shared memory %s: %s", name, strerror(errno));
  const copse_status status = map_host(area, rank, file, err);
  close(file);
  return status;
}

copse_status copse_cuda_host_area(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                  struct copse_err *err) {
  if (cuda->many_processes) return make_shared(cuda, area, err);
  for (uint32_t r = 0; r < cuda->n_local; r++) {
    void *memory = NULL;
    COPSE_CUDA(cudaHostAlloc(&memory, area->bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    memset(memory, 0, area->bytes);
    area->at[r] = (unsigned char *)memory;
  }
  return COPSE_OK;
}

void copse_cuda_host_settle(struct copse_cuda_area *area) {
  if (area->name[0]) copse_peer_barrier_unlink(area->name);
  area->name[0] = '\0';
}

void copse_cuda_host_free(struct copse_cuda *cuda, struct copse_cuda_area *area) {
  copse_cuda_host_settle(area);
  for (uint32_t r = 0; r < cuda->n_local && !cuda->many_processes; r++)
    (void)cudaFreeHost(area->at[r]);
}

/* ---- memory of a group -------------------------------------------------------------------------
 * Each rank's part by itself and all parts at one address (cuda.h, "Virtual Memory Management",
 * "Multicast Object Management"; as there, in the order of the calls).
 *
 *   copse_cuda_group_area   rank 0's process makes the group, each its ranks' parts
 *   open_group              several processes: each imports the group and the others' parts
 *   add_devices             each; then all agree, since binding may wait for devices not added
 *   copse_cuda_group_bind   each binds its parts; all agree before somebody uses the address
 *
 * The driver keeps a part as long as somebody has it mapped, so nobody waits for others to free
 * theirs. */

struct location {
  int type, id; /* 1: a device */
};
struct part_properties {
  int type, handle_types; /* 1: pinned */
  struct location location;
  void *windows;
  unsigned char flags[8];
};
struct group_properties {
  unsigned n_devices;
  size_t bytes;
  unsigned long long handle_types, flags;
};
struct access_of {
  struct location location;
  int flags; /* 3: to read and write */
};
enum { MULTICAST_SUPPORTED = 132, FILE_DESCRIPTORS = 1 };

/* Calls a function of the driver by name. Its result is a CUresult. */
template <typename... A>
static copse_status driver(const char *name, struct copse_err *err, A... arguments) {
  void *function = NULL;
  COPSE_DO(copse_cuda_find_driver(name, &function, err));
  const int result = ((int (*)(A...))function)(arguments...);
  if (result == 0) return COPSE_OK;
  return copse_fail(err, result == 2 ? COPSE_NOMEM : COPSE_DEVICE, "%s: the CUDA driver's error %d",
                    name, result);
}

static int handle_types(const struct copse_cuda *cuda) {
  return cuda->many_processes ? FILE_DESCRIPTORS : 0;
}

static copse_status make_group(const struct copse_cuda *cuda, uint64_t bytes, uint64_t *group,
                               struct copse_err *err) {
  const struct group_properties wanted = {cuda->n_ranks, bytes,
                                          (unsigned long long)handle_types(cuda), 0};
  return driver("cuMulticastCreate", err, group, &wanted);
}

static copse_status add_devices(const struct copse_cuda *cuda, uint64_t group,
                                struct copse_err *err) {
  for (uint32_t i = 0; i < cuda->n_local; i++)
    COPSE_DO(driver("cuMulticastAddDevice", err, group, cuda->devices[cuda->device_of[i]].ordinal));
  return COPSE_OK;
}

static copse_status find_granularity(struct copse_cuda *cuda, uint64_t *granularity,
                                     struct copse_err *err) {
  struct group_properties any = {cuda->n_ranks, 1, (unsigned long long)handle_types(cuda), 0};
  uint64_t group = 0;
  size_t bytes = 0;
  for (uint32_t d = 0; d < cuda->n_devices; d++) {
    int supported = 0;
    COPSE_DO(driver("cuDeviceGetAttribute", err, &supported, (int)MULTICAST_SUPPORTED,
                    cuda->devices[d].ordinal));
    if (!supported)
      return copse_fail(err, COPSE_UNSUPPORTED, "GPU %d has no multicast",
                        cuda->devices[d].ordinal);
  }
  COPSE_DO(
      driver("cuMulticastGetGranularity", err, &bytes, (const struct group_properties *)&any, 0));
  /* where the fabric isn't ready, only this says so */
  COPSE_DO(make_group(cuda, bytes, &group, err));
  const copse_status status = add_devices(cuda, group, err);
  (void)driver("cuMemRelease", NULL, group);
  if (status == COPSE_OK) *granularity = bytes;
  return status;
}

copse_status copse_cuda_group_check(struct copse_cuda *cuda, struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  if (cuda->group_granularity) return COPSE_OK;
  if (cuda->n_hosts > 1)
    (void)copse_fail(&why, COPSE_UNSUPPORTED, "ranks are on several hosts");
  else if (cuda->shares_gpus || cuda->n_devices < cuda->n_local)
    (void)copse_fail(&why, COPSE_UNSUPPORTED, "ranks share a GPU");
  else if (cuda->has_mirrors)
    (void)copse_fail(&why, COPSE_UNSUPPORTED, "GPUs have no access to each other's memory");
  else if (find_granularity(cuda, &cuda->group_granularity, &why) == COPSE_OK)
    return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the plan is multicast (NVLink SHARP), and here %s: lower a schedule that was "
                    "solved without --in-network",
                    why.text);
}

/* Maps a part, or the whole group, for all devices. *at is set as soon as there is a range to
 * free. */
static copse_status map_part(const struct copse_cuda *cuda, uint64_t handle, uint64_t bytes,
                             unsigned char **at, struct copse_err *err) {
  struct access_of access[COPSE_CUDA_MAX_DEVICES];
  uint64_t pointer = 0;
  for (uint32_t d = 0; d < cuda->n_devices; d++)
    access[d] = access_of{{1, cuda->devices[d].ordinal}, 3};
  COPSE_DO(
      driver("cuMemAddressReserve", err, &pointer, (size_t)bytes, (size_t)0, (uint64_t)0, 0ull));
  copse_status status = driver("cuMemMap", err, pointer, (size_t)bytes, (size_t)0, handle, 0ull);
  if (status != COPSE_OK) {
    (void)driver("cuMemAddressFree", NULL, pointer, (size_t)bytes);
    return status;
  }
  *at = (unsigned char *)(uintptr_t)pointer;
  return driver("cuMemSetAccess", err, pointer, (size_t)bytes, (const struct access_of *)access,
                (size_t)cuda->n_devices);
}

static void unmap_part(unsigned char **at, uint64_t bytes) {
  if (!*at) return;
  (void)driver("cuMemUnmap", NULL, (uint64_t)(uintptr_t)*at, (size_t)bytes);
  (void)driver("cuMemAddressFree", NULL, (uint64_t)(uintptr_t)*at, (size_t)bytes);
  *at = NULL;
}

static void release(uint64_t *handle) {
  if (*handle) (void)driver("cuMemRelease", NULL, *handle);
  *handle = 0;
}

copse_status copse_cuda_group_area(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                   struct copse_err *err) {
  const size_t bytes = area->bytes;
  copse_beside_captures permitted;
  if (cuda->first_local == 0) COPSE_DO(make_group(cuda, bytes, &area->whole, err));
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    const uint32_t r = cuda->first_local + i;
    const int device = cuda->devices[cuda->device_of[i]].ordinal;
    const struct part_properties wanted = {1, handle_types(cuda), {1, device}, NULL, {0}};
    copse_on_device here(device);
    COPSE_DO(driver("cuMemCreate", err, &area->parts[r], bytes, &wanted, 0ull));
    COPSE_DO(map_part(cuda, area->parts[r], bytes, &area->at[r], err));
    COPSE_DO(copse_cuda_upload(area->at[r], NULL, bytes, err));
  }
  return cuda->many_processes ? COPSE_OK : add_devices(cuda, area->whole, err);
}

copse_status copse_cuda_group_bind(struct copse_cuda *cuda, struct copse_cuda_area *area,
                                   struct copse_err *err) {
  const size_t bytes = area->bytes;
  copse_beside_captures permitted;
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    copse_on_device here(cuda->devices[cuda->device_of[i]].ordinal);
    COPSE_DO(driver("cuMulticastBindMem", err, area->whole, (size_t)0,
                    area->parts[cuda->first_local + i], (size_t)0, bytes, 0ull));
    area->n_bound++;
  }
  return map_part(cuda, area->whole, bytes, &area->group, err);
}

void copse_cuda_group_free(struct copse_cuda *cuda, struct copse_cuda_area *area) {
  const size_t bytes = area->bytes;
  copse_beside_captures permitted;
  unmap_part(&area->group, bytes);
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    const uint32_t r = cuda->first_local + i;
    const int device = cuda->devices[cuda->device_of[i]].ordinal;
    copse_on_device here(device);
    if (i < area->n_bound)
      (void)driver("cuMulticastUnbind", NULL, area->whole, device, (size_t)0, bytes);
    unmap_part(&area->at[r], bytes);
    release(&area->parts[r]);
  }
  release(&area->whole);
}

/* What a process gives the others of its group: descriptors of its part, and of the group at rank
 * 0. */
struct gift {
  int socket, files[COPSE_PEER_FILES];
};

static copse_status wrap_gift(const struct copse_cuda *cuda, const struct copse_cuda_area *area,
                              struct gift *gift, struct copse_peer_address *address,
                              struct copse_err *err) {
  const uint64_t handles[COPSE_PEER_FILES] = {area->parts[cuda->first_local], area->whole};
  for (int i = 0; i < COPSE_PEER_FILES; i++)
    if (handles[i])
      COPSE_DO(driver("cuMemExportToShareableHandle", err, (void *)&gift->files[i], handles[i],
                      (int)FILE_DESCRIPTORS, 0ull));
  return copse_peer_socket_new(address, &gift->socket, err);
}

static void close_files(int *files, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (files[i] >= 0) close(files[i]);
}

static copse_status import(int file, uint64_t *handle, struct copse_err *err) {
  if (file < 0) return copse_fail(err, COPSE_IO, "a descriptor is missing");
  return driver("cuMemImportFromShareableHandle", err, handle, (void *)(intptr_t)file,
                (int)FILE_DESCRIPTORS);
}

static copse_status open_parts(struct copse_cuda *cuda, struct copse_cuda_area *area,
                               int (*files)[COPSE_PEER_FILES], struct copse_err *err) {
  if (!area->whole) COPSE_DO(import(files[0][1], &area->whole, err));
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    if (r == cuda->first_local) continue;
    COPSE_DO(import(files[r][0], &area->parts[r], err));
    COPSE_DO(map_part(cuda, area->parts[r], area->bytes, &area->at[r], err));
  }
  return add_devices(cuda, area->whole, err);
}

static copse_status open_group(struct copse_cuda *cuda, struct copse_cuda_area *area,
                               const struct gift *gift, const struct copse_peer_address *all,
                               struct copse_err *err) {
  int files[COPSE_CUDA_MAX_RANKS][COPSE_PEER_FILES];
  copse_status status = copse_peer_files_swap(gift->socket, all, cuda->n_ranks, cuda->first_local,
                                              gift->files, files, copse_cuda_swap_seconds, err);
  if (status == COPSE_OK) status = open_parts(cuda, area, files, err);
  close_files(files[0], cuda->n_ranks * COPSE_PEER_FILES);
  return status;
}

/* Closes the memory of other processes that this one has open. */
static void close_group(struct copse_cuda *cuda, struct copse_cuda_area *area) {
  if (!cuda->many_processes) return;
  copse_beside_captures permitted;
  unmap_part(&area->group, area->bytes);
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    if (r == cuda->first_local) continue;
    unmap_part(&area->at[r], area->bytes);
    release(&area->parts[r]);
  }
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The description of a rank's memory that is sent to the others. */
struct offer {
  union {
    cudaIpcMemHandle_t handle;
    char name[COPSE_PEER_BARRIER_NAME]; /* of memory on the host */
    struct copse_peer_address address;  /* where to send descriptors of multicast memory */
  };
  uint64_t offset; /* from the start of the allocation */
  uint64_t bytes;
  int32_t status;
  char why[100]; /* of a status that isn't COPSE_OK */
};

enum { MOST_AREAS = 3 };

static void refuse(struct offer *offer, copse_status status, const char *why) {
  offer->status = (int32_t)status;
  snprintf(offer->why, sizeof offer->why, "%.99s", why);
}

/* Checks whether all ranks could offer their memory; each sees the same, so that all fail or none.
 */
static copse_status check_offers(const struct copse_cuda *cuda, const struct offer *all,
                                 const struct offer *mine, uint32_t n, struct copse_err *err) {
  for (uint32_t i = 0; i < cuda->n_ranks * n; i++)
    if (all[i].status != COPSE_OK)
      return copse_fail(err, (copse_status)all[i].status, "rank %u can't share its memory: %.99s",
                        i / n, all[i].why);
  for (uint32_t i = 0; i < cuda->n_ranks * n; i++)
    if (all[i].bytes != mine[i % n].bytes)
      return copse_fail(err, COPSE_INVALID, "rank %u gives %llu bytes where rank %u gives %llu",
                        i / n, (unsigned long long)all[i].bytes, cuda->first_local,
                        (unsigned long long)mine[i % n].bytes);
  return COPSE_OK;
}

static copse_status open_area(struct copse_cuda *cuda, const struct offer *all, uint32_t n,
                              struct copse_cuda_area *area, struct copse_err *err) {
  const uint32_t own = cuda->first_local;
  copse_on_device here(cuda->devices[0].ordinal);
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    const struct offer *offer = &all[r * n];
    if (r == own || cuda->host_of[r] != cuda->host_of[own]) continue;
    if (area->on_host) {
      COPSE_DO(open_shared(area, r, offer->name, err));
      continue;
    }
    if (!copse_cuda_reaches(cuda, own, r)) continue;
    COPSE_CUDA(
        cudaIpcOpenMemHandle(&area->opened[r], offer->handle, cudaIpcMemLazyEnablePeerAccess));
    area->at[r] = (unsigned char *)area->opened[r] + offer->offset;
  }
  return COPSE_OK;
}

static void make_offer(const struct copse_cuda *cuda, const struct copse_cuda_area *area,
                       struct gift *gift, struct offer *mine) {
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = COPSE_OK;
  if (mine->status != COPSE_OK) return;
  if (area->on_host)
    memcpy(mine->name, area->name, sizeof mine->name);
  else if (area->grouped)
    status = wrap_gift(cuda, area, gift, &mine->address, &why);
  else if (copse_cuda_check(
               cudaIpcGetMemHandle(&mine->handle, area->at[cuda->first_local] - mine->offset),
               "cudaIpcGetMemHandle", &why) != COPSE_OK)
    status = COPSE_UNSUPPORTED;
  if (status != COPSE_OK) refuse(mine, status, why.text);
}

static copse_status open_all(struct copse_cuda *cuda, const struct offer *all,
                             struct copse_cuda_area *const *areas, uint32_t n,
                             const struct gift *gift, struct copse_err *err) {
  struct copse_peer_address addresses[COPSE_CUDA_MAX_RANKS];
  for (uint32_t i = 0; i < n; i++) {
    if (!areas[i]->grouped) {
      COPSE_DO(open_area(cuda, all + i, n, areas[i], err));
      continue;
    }
    for (uint32_t r = 0; r < cuda->n_ranks; r++) addresses[r] = all[r * n + i].address;
    COPSE_DO(open_group(cuda, areas[i], gift, addresses, err));
  }
  return COPSE_OK;
}

/* Shares areas, at most one of which is grouped. */
static copse_status share(struct copse_cuda *cuda, struct offer *mine,
                          struct copse_cuda_area *const *areas, uint32_t n, struct copse_err *err) {
  /* on the stack: failing here would leave others waiting */
  struct offer all[MOST_AREAS * COPSE_CUDA_MAX_RANKS];
  struct gift gift = {-1, {-1, -1}};
  copse_on_device here(cuda->devices[0].ordinal);
  for (uint32_t i = 0; i < n; i++) make_offer(cuda, areas[i], &gift, &mine[i]);
  copse_status status = copse_cuda_gather(cuda, mine, all, n * sizeof *mine, err);
  if (status == COPSE_OK) status = check_offers(cuda, all, mine, n, err);
  if (status == COPSE_OK) status = open_all(cuda, all, areas, n, &gift, err);
  close_files(gift.files, COPSE_PEER_FILES);
  close_files(&gift.socket, 1);
  return status;
}

copse_status copse_cuda_share(struct copse_cuda *cuda, struct copse_cuda_area *const *areas,
                              uint32_t n, copse_status mine, struct copse_err *err) {
  struct offer offers[MOST_AREAS];
  memset(offers, 0, sizeof offers);
  for (uint32_t i = 0; i < n; i++) {
    offers[i].bytes = areas[i]->bytes;
    if (mine != COPSE_OK) refuse(&offers[i], mine, err ? err->text : "");
  }
  return share(cuda, offers, areas, n, err);
}

void copse_cuda_unshare(struct copse_cuda *cuda, struct copse_cuda_area *area) {
  copse_on_device here(cuda->devices[0].ordinal); /* that opened them */
  if (area->grouped) close_group(cuda, area);
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    void *opened = area->opened[r];
    area->opened[r] = NULL;
    if (!opened) continue;
    if (!area->on_host) {
      (void)cudaIpcCloseMemHandle(opened);
      continue;
    }
    (void)cudaHostUnregister(opened);
    munmap(opened, area->bytes);
  }
}

/* ---- peer access ---------------------------------------------------------------------------
 * Between processes nobody can be asked: a process need not see the others' GPUs. So each rank
 * tries to open a few bytes of every other one's. */

/* Tries to open a peer's memory; *opened: whether there is access. Other errors than its lack are
 * errors. */
static copse_status try_peer(const struct copse_cuda_probe *peer, bool *opened,
                             struct copse_err *err) {
  void *at = NULL;
  *opened = false;
  if (copse_cuda_denies_peers()) return COPSE_OK;
  const cudaError_t error = cudaIpcOpenMemHandle(&at, peer->handle, cudaIpcMemLazyEnablePeerAccess);
  if (error == cudaErrorPeerAccessUnsupported || error == cudaErrorMapBufferObjectFailed) {
    (void)cudaGetLastError();
    return COPSE_OK;
  }
  COPSE_DO(copse_cuda_check(error, "cudaIpcOpenMemHandle", err));
  *opened = true;
  COPSE_CUDA(cudaIpcCloseMemHandle(at));
  return COPSE_OK;
}

static copse_status try_peers(struct copse_cuda *cuda, const struct copse_cuda_probe *all,
                              struct copse_err *err) {
  const uint32_t own = cuda->first_local;
  const cudaIpcMemHandle_t *mine = &all[own].handle;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (all[r].status != COPSE_OK)
      return copse_fail(err, (copse_status)all[r].status, "rank %u can't share its memory", r);
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    bool opened = true;
    if (cuda->host_of[r] != cuda->host_of[own]) continue;
    if (memcmp(&all[r].handle, mine, sizeof *mine) == 0) continue; /* this process */
    COPSE_DO(try_peer(&all[r], &opened, err));
    if (!opened) cuda->beyond[own][r / 64] |= UINT64_C(1) << r % 64;
  }
  return COPSE_OK;
}

static copse_status make_probe(struct copse_cuda *cuda, struct copse_cuda_probe *mine,
                               struct copse_err *err) {
  copse_on_device here(cuda->devices[0].ordinal);
  if (!cuda->probe) COPSE_CUDA(cudaMalloc(&cuda->probe, 1));
  COPSE_CUDA(cudaIpcGetMemHandle(&mine->handle, cuda->probe));
  return COPSE_OK;
}

void copse_cuda_probe_offer(struct copse_cuda *cuda, struct copse_cuda_probe *mine) {
  cuda->probed = COPSE_ERR_INIT;
  mine->status = (int32_t)make_probe(cuda, mine, &cuda->probed);
}

void copse_cuda_probe_try(struct copse_cuda *cuda, const struct copse_cuda_probe *all) {
  copse_on_device here(cuda->devices[0].ordinal);
  if (cuda->probed.status == COPSE_OK) (void)try_peers(cuda, all, &cuda->probed);
}

copse_status copse_cuda_probe_status(const struct copse_cuda *cuda, struct copse_err *err) {
  if (cuda->probed.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, cuda->probed.status, "%s", cuda->probed.text);
}

/* ---- buffers of the user ------------------------------------------------------------------ */

/* Returns where in its allocation the buffer starts, from the driver: a handle names a whole
 * allocation. */
static copse_status offset_in_allocation(const void *buffer, uint64_t *offset,
                                         struct copse_err *err) {
  typedef int (*address_range)(uint64_t * base, size_t * size, uint64_t pointer);
  void *symbol = NULL;
  uint64_t base = 0;
  size_t size = 0;
  COPSE_DO(copse_cuda_find_driver("cuMemGetAddressRange", &symbol, err));
  if (((address_range)symbol)(&base, &size, (uint64_t)(uintptr_t)buffer) != 0)
    return copse_fail(err, COPSE_INVALID, "not memory that cudaMalloc gave");
  *offset = (uint64_t)(uintptr_t)buffer - base;
  return COPSE_OK;
}

static void free_buffer(struct copse_cuda *cuda, struct copse_cuda_buffer *b) {
  if (!b) return;
  copse_cuda_unshare(cuda, &b->area);
  free(b);
}

copse_status copse_cuda_add_buffer(void *backend, uint32_t local_rank, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_buffer *b = NULL;
  struct offer offer;
  (void)local_rank;
  *handle = NULL;
  if (!cuda->many_processes) return COPSE_OK; /* peers of this process reach everything */
  memset(&offer, 0, sizeof offer);
  offer.bytes = bytes;
  copse_status status = copse_internode_find_hosts(cuda, err);
  if (status == COPSE_OK) {
    status = copse_cuda_probe_status(cuda, err);
    if (status == COPSE_OK) status = copse_calloc(1, sizeof *b, &b, err);
    status = copse_cuda_agree(cuda, status, err);
  }
  if (status == COPSE_OK && cuda->has_mirrors) { /* some device does not reach it: staged */
    free(b);
    return COPSE_OK;
  }
  if (status == COPSE_OK) {
    struct copse_err why = COPSE_ERR_INIT;
    b->start = (unsigned char *)buffer;
    b->bytes = bytes;
    if (offset_in_allocation(buffer, &offer.offset, &why) != COPSE_OK)
      refuse(&offer, COPSE_UNSUPPORTED, why.text);
    b->area.at[cuda->first_local] = b->start;
    struct copse_cuda_area *const area = &b->area;
    /* registered at all ranks or at none: who writes an output must know where it is */
    status = copse_cuda_agree(cuda, share(cuda, &offer, &area, 1, err), err);
  }
  if (status != COPSE_OK) {
    free_buffer(cuda, b);
    return status;
  }
  b->next = cuda->buffers;
  cuda->buffers = b;
  *handle = b;
  return COPSE_OK;
}

copse_status copse_cuda_remove_buffer(void *backend, uint32_t local_rank, void *handle,
                                      struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  (void)local_rank;
  if (!handle) return COPSE_OK;
  for (struct copse_cuda_buffer **at = &cuda->buffers; *at; at = &(*at)->next)
    if (*at == handle) {
      struct copse_cuda_buffer *b = *at;
      *at = b->next;
      free_buffer(cuda, b);
      return COPSE_OK;
    }
  return copse_fail(err, COPSE_INVALID, "not a handle of copse_comm_register");
}

/* ---- leaving: the barrier ----------------------------------------------------------------- */

void copse_cuda_leave_offer(struct copse_cuda *cuda, char name[COPSE_PEER_BARRIER_NAME]) {
  struct copse_err why_not = COPSE_ERR_INIT;
  memset(name, 0, COPSE_PEER_BARRIER_NAME);
  if (cuda->peer_barrier || !cuda->many_processes) return;
  if (copse_peer_barrier_new(name, &cuda->peer_barrier, &why_not) != COPSE_OK) name[0] = '\0';
  memcpy(cuda->barrier_name, name, COPSE_PEER_BARRIER_NAME);
}

void copse_cuda_leave_choose(struct copse_cuda *cuda, const char *name) {
  struct copse_err why_not = COPSE_ERR_INIT;
  struct copse_peer_barrier *chosen = NULL;
  if (strcmp(name, cuda->barrier_name) == 0) return; /* its own */
  if (cuda->barrier_name[0]) copse_peer_barrier_unlink(cuda->barrier_name);
  cuda->barrier_name[0] = '\0';
  copse_peer_barrier_free(cuda->peer_barrier);
  (void)copse_peer_barrier_open(name, &chosen, &why_not);
  cuda->peer_barrier = chosen;
}

/* ---- leaving: memory that can't be freed yet ----------------------------------------------- */

struct kept {
  struct kept *next;
  struct copse_peer_barrier *barrier;
  int device;
  uint32_t n;
  void *memory[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all_kept;

static void free_kept(struct kept *it) {
  copse_on_device here(it->device);
  for (uint32_t i = 0; i < it->n; i++) (void)cudaFree(it->memory[i]);
  copse_peer_barrier_free(it->barrier);
  free(it);
}

void copse_cuda_leave_sweep(void) {
  pthread_mutex_lock(&lock);
  for (struct kept **at = &all_kept; *at;) {
    struct kept *it = *at;
    if (!copse_peer_barrier_all_arrived(it->barrier)) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    free_kept(it);
  }
  pthread_mutex_unlock(&lock);
}

/* Takes all shared memory. Where there is no memory for the list it is never freed. */
static void keep(struct copse_cuda *cuda) {
  uint32_t most = 0;
  for (const struct copse_cuda_area *a = cuda->areas; a; a = a->next) most++;
  struct kept *it = (struct kept *)calloc(1, sizeof *it + most * sizeof *it->memory);
  for (struct copse_cuda_area *a = cuda->areas; a; a = a->next) {
    unsigned char **own = &a->at[cuda->first_local];
    if (a->on_host) continue; /* each process has a mapping of its own */
    if (a->grouped) {         /* so the driver keeps it, bound */
      a->n_bound = 0;
      continue;
    }
    if (it && *own) it->memory[it->n++] = *own;
    *own = NULL;
  }
  if (!it) return;
  it->barrier = cuda->peer_barrier;
  it->device = cuda->devices[0].ordinal;
  cuda->peer_barrier = NULL;
  pthread_mutex_lock(&lock);
  it->next = all_kept;
  all_kept = it;
  pthread_mutex_unlock(&lock);
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void close_all(struct copse_cuda *cuda) {
  for (struct copse_cuda_area *a = cuda->areas; a; a = a->next) copse_cuda_unshare(cuda, a);
  for (struct copse_cuda_buffer *b = cuda->buffers; b; b = b->next)
    copse_cuda_unshare(cuda, &b->area);
}

static bool wait_for_all(const struct copse_peer_barrier *barrier, double seconds) {
  const double since = copse_clock_seconds();
  for (uint32_t poll = 0; !copse_peer_barrier_all_arrived(barrier); poll++) {
    if (copse_clock_seconds() - since >= seconds) return false;
    copse_poll_pause(poll);
  }
  return true;
}

void copse_cuda_leave(struct copse_cuda *cuda) {
  close_all(cuda);
  if (cuda->barrier_name[0]) copse_peer_barrier_unlink(cuda->barrier_name);
  if (cuda->peer_barrier) {
    copse_peer_barrier_arrive(cuda->peer_barrier);
    if (!wait_for_all(cuda->peer_barrier, copse_cuda_leave_seconds)) keep(cuda);
    copse_cuda_leave_sweep();
  } else if (!copse_cuda_is_broken(cuda) && cuda->n_hosts > 0) { /* some ranks share no files */
    unsigned char here = 1, all[COPSE_CUDA_MAX_RANKS];
    (void)copse_cuda_gather(cuda, &here, all, 1, NULL);
  }
  copse_peer_barrier_free(cuda->peer_barrier);
  cuda->peer_barrier = NULL;
}
