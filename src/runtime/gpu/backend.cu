/* The CUDA backend's devices, life and errors; uploads; and whether devices of one process reach
 * each other's memory; what a build with CUDA offers to the rest of the runtime (gpu.h). */
#include "runtime/gpu/cuda_backend.h"

/* ---- memory -------------------------------------------------------------------------------
 * By a stream of their own. The default stream may not be used while a stream that waits for it is
 * captured. Waiting for the whole device is never permitted while a stream of it is captured, and
 * else waits for other work (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations" of
 * stream captures). */

static copse_status set(void *to, const void *from, size_t bytes, cudaStream_t stream,
                        struct copse_err *err) {
  if (from)
    COPSE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  else
    COPSE_CUDA(cudaMemsetAsync(to, 0, bytes, stream));
  COPSE_CUDA(cudaStreamSynchronize(stream));
  return COPSE_OK;
}

copse_status copse_cuda_upload(void *to, const void *from, size_t bytes, struct copse_err *err) {
  copse_beside_captures permitted;
  cudaStream_t stream = NULL;
  COPSE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  copse_status status = set(to, from, bytes, stream, err);
  if (status != COPSE_OK) (void)cudaStreamSynchronize(stream); /* `from` is the caller's again */
  (void)cudaStreamDestroy(stream);
  return status;
}

copse_status copse_cuda_allocate(int device, size_t bytes, void **out, struct copse_err *err) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  if (bytes == 0) bytes = 1;
  *out = NULL;
  COPSE_CUDA(cudaMalloc(out, bytes));
  copse_status status = copse_cuda_upload(*out, NULL, bytes, err);
  if (status == COPSE_OK) return COPSE_OK;
  copse_cuda_release(device, *out);
  *out = NULL;
  return status;
}

void copse_cuda_release(int device, void *memory) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  (void)cudaFree(memory);
}

/* ---- reach ---------------------------------------------------------------------------------
 * With several GPUs in one process kernels write straight into every rank's output. All of them
 * reach memory of cudaMalloc, since peer access is on. They reach memory of a pool
 * (cudaMallocAsync), or memory that was mapped (cuMemMap, as PyTorch's expandable segments are),
 * only where its owner granted it, and else a kernel faults. */

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

/* Whether the memory's owner decides which devices may use it. */
static bool needs_grant(pointer_attribute get, uint64_t pointer) {
  int type = 0, managed = 0, for_ipc = 1;
  if (get(&type, ATTRIBUTE_MEMORY_TYPE, pointer) != 0 || type != MEMORY_OF_DEVICE) return false;
  if (get(&managed, ATTRIBUTE_IS_MANAGED, pointer) != 0 || managed) return false;
  return get(&for_ipc, ATTRIBUTE_FOR_IPC, pointer) == 0 && !for_ipc;
}

/* Whether a device may write. True where the driver can't say (memory of another process): then the
 * owner is trusted. */
static copse_status find_grant(void *pool, uint64_t pointer, int device, bool *writes,
                               struct copse_err *err) {
  const struct location location = {LOCATION_IS_DEVICE, device};
  void *function = NULL;
  unsigned long long flags = 0;
  int flags_of_pool = 0;
  COPSE_DO(copse_cuda_find_driver(pool ? "cuMemPoolGetAccess" : "cuMemGetAccess", &function, err));
  const int failed = pool ? ((pool_access)function)(&flags_of_pool, pool, &location)
                          : ((mapped_access)function)(&flags, &location, pointer);
  if (pool) flags = (unsigned long long)flags_of_pool;
  *writes = failed != 0 || flags == ACCESS_TO_WRITE;
  return COPSE_OK;
}

static copse_status check_device(const struct copse_cuda *cuda, uint32_t rank, void *pool,
                                 uint64_t pointer, int device, struct copse_err *err) {
  bool writes = false;
  COPSE_DO(find_grant(pool, pointer, device, &writes, err));
  if (writes) return COPSE_OK;
  return copse_fail(
      err, COPSE_INVALID,
      "rank %u's output is in memory %s, which GPU %d may not write: %s, or memory of "
      "cudaMalloc",
      cuda->first_local + rank, pool ? "of a pool" : "that was mapped", device,
      pool ? "cudaMemPoolSetAccess" : "cuMemSetAccess");
}

copse_status copse_cuda_check_reach(struct copse_cuda *cuda, uint32_t rank, const void *output,
                                    struct copse_err *err) {
  const uint64_t pointer = (uint64_t)(uintptr_t)output;
  void *pool = NULL;
  unsigned long long id = 0;
  if (!output) return COPSE_OK;
  if (!cuda->get_attribute)
    COPSE_DO(copse_cuda_find_driver("cuPointerGetAttribute", &cuda->get_attribute, err));
  const pointer_attribute get = (pointer_attribute)cuda->get_attribute;
  if (get(&id, ATTRIBUTE_BUFFER_ID, pointer) != 0) id = 0;
  if (id != 0 && cuda->reached[rank] == id) return COPSE_OK;
  if (needs_grant(get, pointer)) {
    if (get(&pool, ATTRIBUTE_POOL, pointer) != 0) pool = NULL;
    for (uint32_t d = 0; d < cuda->n_devices; d++)
      if (d != cuda->device_of[rank])
        COPSE_DO(check_device(cuda, rank, pool, pointer, cuda->devices[d].ordinal, err));
  }
  cuda->reached[rank] = id;
  return COPSE_OK;
}

/* ---- life -------------------------------------------------------------------------------- */

/* Records an event from the start, since graphs wait for it (launch.cu). */
static copse_status record_once(cudaEvent_t event, struct copse_err *err) {
  cudaStream_t stream = NULL;
  COPSE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const cudaError_t error = cudaEventRecord(event, stream);
  (void)cudaStreamDestroy(stream);
  return copse_cuda_check(error, "cudaEventRecord", err);
}

static copse_status add_device(struct copse_cuda *cuda, int ordinal, int n_usable, uint32_t *index,
                               struct copse_err *err) {
  for (*index = 0; *index < cuda->n_devices; ++*index)
    if (cuda->devices[*index].ordinal == ordinal) return COPSE_OK;
  if (ordinal < 0 || ordinal >= n_usable)
    return copse_fail(err, COPSE_INVALID, "no GPU %d, there are %d", ordinal, n_usable);
  if (cuda->n_devices == COPSE_CUDA_MAX_DEVICES)
    return copse_fail(err, COPSE_UNSUPPORTED, "more than %u GPUs", COPSE_CUDA_MAX_DEVICES);
  struct copse_cuda_device *device = &cuda->devices[cuda->n_devices];
  int cooperative = 0, multiprocessors = 0, max_pitch = 0;
  COPSE_CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, ordinal));
  COPSE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal));
  COPSE_CUDA(cudaDeviceGetAttribute(&max_pitch, cudaDevAttrMaxPitch, ordinal));
  if (!cooperative)
    return copse_fail(err, COPSE_UNSUPPORTED, "GPU %d has no cooperative launch", ordinal);
  device->ordinal = ordinal;
  device->n_multiprocessors = (uint32_t)multiprocessors;
  device->max_pitch = (uint64_t)max_pitch;
  cuda->n_devices++;
  copse_on_device here(ordinal);
  for (cudaEvent_t *event : {&device->entered, &device->eager.done, &device->moved,
                             &device->copied[0], &device->copied[1]})
    COPSE_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  for (struct copse_captured_launch &it : device->captured)
    COPSE_CUDA(cudaEventCreateWithFlags(&it.last.done, cudaEventDisableTiming));
  /* Loads it (those of collectives are loaded where their blocks are counted). Loaded at its first
   * launch it may wait for the whole device, so for a kernel there that waits for one not launched
   * yet (CUDA C++ Programming Guide, "Lazy Loading"). */
  int unused = 0;
  COPSE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&unused, copse_unstage_kernel(), 32, 0));
  return record_once(device->eager.done, err);
}

bool copse_cuda_denies_peers(void) {
  const char *denied = getenv("NCCL_P2P_DISABLE");
  return denied && strcmp(denied, "1") == 0;
}

/* Notes that the ranks on device i have no access to device j. */
static void part(struct copse_cuda *cuda, uint32_t i, uint32_t j) {
  cuda->has_mirrors = true;
  for (uint32_t a = 0; a < cuda->n_local; a++)
    for (uint32_t b = 0; b < cuda->n_local; b++)
      if (cuda->device_of[a] == i && cuda->device_of[b] == j)
        cuda->beyond[a][b / 64] |= UINT64_C(1) << b % 64;
}

static copse_status enable_peers(struct copse_cuda *cuda, struct copse_err *err) {
  for (uint32_t i = 0; i < cuda->n_devices; i++)
    for (uint32_t j = 0; j < cuda->n_devices; j++) {
      const int from = cuda->devices[i].ordinal, to = cuda->devices[j].ordinal;
      int can = 0;
      if (i == j) continue;
      if (!copse_cuda_denies_peers()) COPSE_CUDA(cudaDeviceCanAccessPeer(&can, from, to));
      if (!can) {
        part(cuda, i, j);
        continue;
      }
      copse_on_device here(from);
      cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
      else
        COPSE_DO(copse_cuda_check(error, "cudaDeviceEnablePeerAccess", err));
    }
  return COPSE_OK;
}

static copse_status fill(struct copse_cuda *cuda, const struct copse_comm_shape *shape,
                         struct copse_err *err) {
  int n_usable = 0;
  cudaError_t error = cudaGetDeviceCount(&n_usable);
  if (error != cudaSuccess || n_usable == 0) {
    (void)cudaGetLastError();
    return copse_fail(err, COPSE_UNSUPPORTED, "no usable GPU: %s",
                      error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
  }
  for (uint32_t i = 0; i < cuda->n_local; i++)
    COPSE_DO(add_device(cuda, shape->devices[i], n_usable, &cuda->device_of[i], err));
  COPSE_DO(enable_peers(cuda, err));
  void *control = NULL;
  COPSE_CUDA(
      cudaHostAlloc(&control, sizeof *cuda->control, cudaHostAllocMapped | cudaHostAllocPortable));
  cuda->control = (struct copse_control *)control;
  memset(cuda->control, 0, sizeof *cuda->control);
  return COPSE_OK;
}

static void free_backend(void *backend) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  if (!cuda) return;
  copse_beside_captures permitted;
  if (cuda->many_processes) copse_cuda_leave(cuda);
  while (cuda->plans) {
    struct copse_cuda_plan *plan = cuda->plans;
    cuda->plans = plan->next;
    copse_cuda_plan_free(cuda, plan);
  }
  copse_cuda_areas_free(cuda);
  while (cuda->buffers) {
    struct copse_err ignored = COPSE_ERR_INIT;
    (void)copse_cuda_remove_buffer(cuda, 0, cuda->buffers, &ignored);
  }
  for (uint32_t i = 0; i < cuda->n_devices; i++) {
    const struct copse_cuda_device *device = &cuda->devices[i];
    for (cudaEvent_t event : {device->entered, device->eager.done, device->moved, device->copied[0],
                              device->copied[1]})
      if (event) (void)cudaEventDestroy(event);
    for (const struct copse_captured_launch &it : device->captured)
      if (it.last.done) (void)cudaEventDestroy(it.last.done);
    for (size_t k = 0; k < device->n_own; k++) (void)cudaStreamDestroy(device->own[k]);
    free(device->own);
  }
  copse_internode_close(cuda);
  (void)cudaFree(cuda->probe);
  if (cuda->control) (void)cudaFreeHost(cuda->control);
  free(cuda);
}

static void set_timeout(void *backend, double seconds) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  cuda->timeout_seconds = seconds;
  __atomic_store_n(&cuda->limit_ns, (uint64_t)(seconds * 1e9), __ATOMIC_RELAXED);
}

static copse_status new_backend(const struct copse_comm_shape *shape, void **backend,
                                struct copse_err *err) {
  struct copse_cuda *cuda = NULL;
  *backend = NULL;
  if (shape->n_ranks > COPSE_CUDA_MAX_RANKS)
    return copse_fail(err, COPSE_UNSUPPORTED, "%u ranks, this version takes %u on GPUs",
                      shape->n_ranks, COPSE_CUDA_MAX_RANKS);
  if (shape->n_local != shape->n_ranks && shape->n_local != 1)
    return copse_fail(err, COPSE_UNSUPPORTED, "%u of %u ranks in a process: all or one",
                      shape->n_local, shape->n_ranks);
  copse_beside_captures permitted;
  copse_cuda_leave_sweep();
  copse_status status = copse_calloc(1, sizeof *cuda, &cuda, err);
  if (status != COPSE_OK) return status;
  cuda->n_ranks = shape->n_ranks;
  cuda->first_local = shape->first_local;
  cuda->n_local = shape->n_local;
  cuda->many_processes = shape->n_local < shape->n_ranks;
  const char *mixes = getenv("NCCL_GRAPH_MIXING_SUPPORT");
  cuda->mixes_graphs = !mixes || strcmp(mixes, "0") != 0;
  if (shape->bootstrap) cuda->bootstrap = *shape->bootstrap;
  set_timeout(cuda, 600);
  status = fill(cuda, shape, err);
  if (status == COPSE_OK)
    *backend = cuda;
  else
    free_backend(cuda);
  return status;
}

/* ---- state ------------------------------------------------------------------------------- */

static uint32_t load_word(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

const struct copse_cuda_plan *copse_cuda_plan_number(const struct copse_cuda *cuda,
                                                     uint32_t number) {
  const struct copse_cuda_plan *plan = cuda->plans;
  while (plan && plan->number != number) plan = plan->next;
  return plan;
}

/* Whether a kernel may wait at this operation. WAITs for other hosts are over before it begins. */
static bool is_waited_for(const struct copse_cuda_plan *p, const struct copse_plan_op *op) {
  return op->kind == COPSE_OP_WAIT && !(p->crosses && p->crosses[op->channel]);
}

/* Reports "rank 3, worker 1 waited 600 s for rank 5 (channel 17, chunk 2)". */
static copse_status report_timeout(const struct copse_cuda *cuda, struct copse_err *err) {
  const struct copse_control *control = cuda->control;
  const struct copse_cuda_plan *prepared = copse_cuda_plan_number(cuda, control->plan);
  const struct copse_plan *plan = prepared ? prepared->plan : NULL;
  if (!plan || control->worker >= plan->header.n_workers)
    return copse_fail(err, COPSE_TIMEOUT, "a wait of over %g s", cuda->timeout_seconds);
  const struct copse_plan_worker *worker = &plan->workers[control->worker];
  uint32_t i = control->op < worker->n_ops ? control->op : 0;
  const struct copse_plan_op *op = &plan->ops[worker->first_op + i];
  /* a MOVE that waited for packets: the WAIT before it names the sender */
  while (!is_waited_for(prepared, op) && i > 0) op--, i--;
  char whom[80] = "";
  if (is_waited_for(prepared, op)) {
    uint32_t from = plan->workers[plan->channels[op->channel].src_worker].rank;
    snprintf(whom, sizeof whom, " for rank %u (channel %u, chunk %u)", from, op->channel,
             control->chunk);
  }
  return copse_fail(err, COPSE_TIMEOUT, "%s of %s: rank %u, worker %u waited over %g s%s",
                    copse_collective_name((copse_collective)plan->header.collective), plan->name,
                    worker->rank, control->worker - plan->ranks[worker->rank].first_worker,
                    cuda->timeout_seconds, whom);
}

bool copse_cuda_is_broken(const struct copse_cuda *cuda) {
  return cuda->control && load_word(&cuda->control->leave) != COPSE_LEAVE_NOT;
}

copse_status copse_cuda_check_left(const struct copse_cuda *cuda, struct copse_err *err) {
  uint32_t leave = load_word(&cuda->control->leave);
  switch (leave) {
    case COPSE_LEAVE_NOT: return COPSE_OK;
    case COPSE_LEAVE_TIMEOUT: return report_timeout(cuda, err);
    case COPSE_LEAVE_MESSAGES: return copse_internode_report(cuda, err);
    case COPSE_LEAVE_ABORT: return copse_fail(err, COPSE_ABORTED, "the communicator was aborted");
    default:
      return copse_fail(err, COPSE_ABORTED, "rank %u, on another host, gave up; its error says why",
                        leave - COPSE_LEAVE_PEER);
  }
}

/* Polls, and also asks CUDA. */
static copse_status poll_devices(void *backend, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  COPSE_DO(copse_cuda_check_left(cuda, err));
  copse_beside_captures permitted;
  for (uint32_t i = 0; i < cuda->n_devices; i++) {
    if (!cuda->devices[i].eager.launched) continue;
    cudaError_t error = cudaEventQuery(cuda->devices[i].eager.done);
    if (error == cudaErrorNotReady)
      (void)cudaGetLastError();
    else
      COPSE_DO(copse_cuda_check(error, "a collective", err));
  }
  return COPSE_OK;
}

/* Launches follow each other, so the last one's event covers all, and other work on the GPU isn't
 * waited for. No event covers graphs and calls that failed half-way: for these the whole device is
 * waited for. */
static copse_status wait_for_device(const struct copse_cuda_device *device, struct copse_err *err) {
  copse_on_device here(device->ordinal);
  if (device->untracked)
    COPSE_CUDA(cudaDeviceSynchronize());
  else if (device->eager.launched)
    COPSE_CUDA(cudaEventSynchronize(device->eager.done));
  return COPSE_OK;
}

/* Waits for all devices, also where one fails: memory is freed after this. */
static copse_status finish(void *backend, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  copse_beside_captures permitted;
  copse_status first = COPSE_OK;
  for (uint32_t i = 0; i < cuda->n_devices; i++) {
    copse_status status = wait_for_device(&cuda->devices[i], first == COPSE_OK ? err : NULL);
    if (first == COPSE_OK) first = status;
  }
  return first == COPSE_OK ? poll_devices(backend, err) : first;
}

static void abort_all(void *backend) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  uint32_t expected = COPSE_LEAVE_NOT;
  __atomic_compare_exchange_n(&cuda->control->leave, &expected, (uint32_t)COPSE_LEAVE_ABORT, false,
                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static bool sizes_messages(const void *backend) {
  return ((const struct copse_cuda *)backend)->n_hosts > 1;
}

extern "C" const struct copse_backend_ops copse_cuda_backend = {new_backend,
                                                                free_backend,
                                                                copse_cuda_prepare,
                                                                copse_cuda_launch,
                                                                finish,
                                                                poll_devices,
                                                                abort_all,
                                                                set_timeout,
                                                                copse_cuda_add_buffer,
                                                                copse_cuda_remove_buffer,
                                                                copse_cuda_follow,
                                                                copse_cuda_lead,
                                                                sizes_messages};

extern "C" {
#include "runtime/gpu/gpu.h"

extern const struct copse_moe_ops copse_moe_cuda; /* runtime/moe/moe.cu */
}

static int device_count(void) {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  (void)cudaGetLastError();
  return 0;
}

static void device_name(int device, char *name, size_t size) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess)
    snprintf(name, size, "%.*s", (int)size - 1, properties.name);
  else
    (void)cudaGetLastError();
}

static copse_status copy(int device, void *to, const void *from, size_t bytes,
                         struct copse_err *err) {
  copse_on_device here(device);
  COPSE_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  return COPSE_OK;
}

static const struct copse_gpu_support support = {
    &copse_cuda_backend, &copse_moe_cuda,          device_count,
    device_name,         copse_nccl_bootstrap_new, copse_nccl_bootstrap_free,
    copse_cuda_allocate, copse_cuda_release,       copy};

extern "C" const struct copse_gpu_support *copse_gpu(void) { return &support; }
