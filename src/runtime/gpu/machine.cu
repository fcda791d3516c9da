/* Sites, life and errors of the CUDA machine. */
#include "runtime/gpu/cuda_machine.h"

static uint32_t load_word(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* ---- making ---------------------------------------------------------------------------- */

static copse_status add_site(struct copse_cuda_machine *m, int device, int n_devices,
                             uint32_t *index, struct copse_err *err) {
  for (*index = 0; *index < m->n_sites; ++*index)
    if (m->sites[*index].device == device) return COPSE_OK;
  if (device < 0 || device >= n_devices)
    return copse_fail(err, COPSE_INVALID, "no GPU %d, there are %d", device, n_devices);
  if (m->n_sites == COPSE_CUDA_MAX_SITES)
    return copse_fail(err, COPSE_UNSUPPORTED, "more than %u GPUs", COPSE_CUDA_MAX_SITES);
  struct copse_site *site = &m->sites[m->n_sites];
  int cooperative = 0, multiprocessors = 0, max_pitch = 0;
  COPSE_CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  COPSE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  COPSE_CUDA(cudaDeviceGetAttribute(&max_pitch, cudaDevAttrMaxPitch, device));
  if (!cooperative)
    return copse_fail(err, COPSE_UNSUPPORTED, "GPU %d has no cooperative launch", device);
  site->device = device;
  site->n_multiprocessors = (uint32_t)multiprocessors;
  site->max_pitch = (uint64_t)max_pitch;
  m->n_sites++;
  copse_on_device here(device);
  COPSE_CUDA(cudaEventCreateWithFlags(&site->entered, cudaEventDisableTiming));
  COPSE_CUDA(cudaEventCreateWithFlags(&site->eager.done, cudaEventDisableTiming));
  COPSE_CUDA(cudaEventCreateWithFlags(&site->captured.done, cudaEventDisableTiming));
  return COPSE_OK;
}

static copse_status enable_peers(struct copse_cuda_machine *m, struct copse_err *err) {
  for (uint32_t i = 0; i < m->n_sites; i++)
    for (uint32_t j = 0; j < m->n_sites; j++) {
      int can = 0;
      if (i == j) continue;
      COPSE_CUDA(cudaDeviceCanAccessPeer(&can, m->sites[i].device, m->sites[j].device));
      if (!can)
        return copse_fail(err, COPSE_UNSUPPORTED, "GPU %d can't reach the memory of GPU %d",
                          m->sites[i].device, m->sites[j].device);
      copse_on_device here(m->sites[i].device);
      cudaError_t error = cudaDeviceEnablePeerAccess(m->sites[j].device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
      else
        COPSE_CHECK(copse_cuda_check(error, "cudaDeviceEnablePeerAccess", err));
    }
  return COPSE_OK;
}

static copse_status fill(struct copse_cuda_machine *m, const struct copse_comm_shape *shape,
                         struct copse_err *err) {
  int n_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&n_devices);
  if (error != cudaSuccess || n_devices == 0) {
    (void)cudaGetLastError();
    return copse_fail(err, COPSE_UNSUPPORTED, "no usable GPU: %s",
                      error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
  }
  for (uint32_t i = 0; i < m->n_local; i++)
    COPSE_CHECK(add_site(m, shape->devices[i], n_devices, &m->site_of[i], err));
  COPSE_CHECK(enable_peers(m, err));
  void *control = NULL;
  COPSE_CUDA(cudaHostAlloc(&control, sizeof *m->control, cudaHostAllocMapped | cudaHostAllocPortable));
  m->control = (struct copse_control *)control;
  memset(m->control, 0, sizeof *m->control);
  return COPSE_OK;
}

static void free_machine(void *machine) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  if (!m) return;
  copse_beside_captures permitted;
  if (m->many_processes) copse_cuda_leave(m);
  while (m->plans) {
    struct copse_cuda_plan *plan = m->plans;
    m->plans = plan->next;
    copse_cuda_plan_free(m, plan);
  }
  while (m->buffers) {
    struct copse_err ignored = COPSE_ERR_INIT;
    (void)copse_cuda_remove_buffer(m, 0, m->buffers, &ignored);
  }
  for (uint32_t i = 0; i < m->n_sites; i++) {
    if (m->sites[i].entered) (void)cudaEventDestroy(m->sites[i].entered);
    if (m->sites[i].eager.done) (void)cudaEventDestroy(m->sites[i].eager.done);
    if (m->sites[i].captured.done) (void)cudaEventDestroy(m->sites[i].captured.done);
  }
  copse_cuda_watch_close(m);
  if (m->upload) (void)cudaStreamDestroy(m->upload);
  copse_cuda_lanes_close(m);
  if (m->control) (void)cudaFreeHost(m->control);
  free(m);
}

static void set_timeout(void *machine, double seconds) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  m->timeout_seconds = seconds;
  __atomic_store_n(&m->limit_ns, (uint64_t)(seconds * 1e9), __ATOMIC_RELAXED);
}

static copse_status new_machine(const struct copse_comm_shape *shape, void **machine,
                                struct copse_err *err) {
  struct copse_cuda_machine *m = NULL;
  *machine = NULL;
  if (shape->n_ranks > COPSE_CUDA_MAX_RANKS)
    return copse_fail(err, COPSE_UNSUPPORTED, "%u ranks, this version takes %u on GPUs",
                      shape->n_ranks, COPSE_CUDA_MAX_RANKS);
  if (shape->n_local != shape->n_ranks && shape->n_local != 1)
    return copse_fail(err, COPSE_UNSUPPORTED, "%u of %u ranks in a process: all or one",
                      shape->n_local, shape->n_ranks);
  copse_beside_captures permitted;
  copse_cuda_leave_sweep();
  copse_status status = copse_calloc(1, sizeof *m, &m, err);
  if (status != COPSE_OK) return status;
  m->n_ranks = shape->n_ranks;
  m->first_local = shape->first_local;
  m->n_local = shape->n_local;
  m->many_processes = shape->n_local < shape->n_ranks;
  if (shape->bootstrap) m->bootstrap = *shape->bootstrap;
  set_timeout(m, 600);
  status = fill(m, shape, err);
  if (status == COPSE_OK)
    *machine = m;
  else
    free_machine(m);
  return status;
}

/* ---- state ------------------------------------------------------------------------------- */

const struct copse_cuda_plan *copse_cuda_plan_number(const struct copse_cuda_machine *m,
                                                     uint32_t number) {
  const struct copse_cuda_plan *plan = m->plans;
  while (plan && plan->number != number) plan = plan->next;
  return plan;
}

/* A WAIT that a kernel may stand at: those for other hosts are over before it begins. */
static bool is_waited_for(const struct copse_cuda_plan *p, const struct copse_plan_op *op) {
  return op->kind == COPSE_OP_WAIT && !(p->split && p->split->crosses[op->channel]);
}

/* "rank 3, worker 1 waited 600 s for rank 5 (channel 17, chunk 2)". */
static copse_status report_timeout(const struct copse_cuda_machine *m, struct copse_err *err) {
  const struct copse_control *control = m->control;
  const struct copse_cuda_plan *prepared = copse_cuda_plan_number(m, control->plan);
  const struct copse_plan *plan = prepared ? prepared->plan : NULL;
  if (!plan || control->worker >= plan->header.n_workers)
    return copse_fail(err, COPSE_TIMEOUT, "a wait of over %g s", m->timeout_seconds);
  const struct copse_plan_worker *worker = &plan->workers[control->worker];
  uint32_t i = control->op < worker->n_ops ? control->op : 0;
  const struct copse_plan_op *op = &plan->ops[worker->first_op + i];
  while (!is_waited_for(prepared, op) && i > 0) op--, i--; /* packets: the wait before them */
  char whom[80] = "";
  if (is_waited_for(prepared, op)) {
    uint32_t from = plan->workers[plan->channels[op->channel].src_worker].rank;
    snprintf(whom, sizeof whom, " for rank %u (channel %u, chunk %u)", from, op->channel,
             control->chunk);
  }
  return copse_fail(err, COPSE_TIMEOUT, "%s of %s: rank %u, worker %u waited over %g s%s",
                    copse_collective_name((copse_collective)plan->header.collective), plan->name,
                    worker->rank, control->worker - plan->ranks[worker->rank].first_worker,
                    m->timeout_seconds, whom);
}

bool copse_cuda_is_broken(const struct copse_cuda_machine *m) {
  return m->control && load_word(&m->control->leave) != COPSE_LEAVE_NOT;
}

copse_status copse_cuda_check_left(const struct copse_cuda_machine *m, struct copse_err *err) {
  uint32_t leave = load_word(&m->control->leave);
  switch (leave) {
    case COPSE_LEAVE_NOT: return COPSE_OK;
    case COPSE_LEAVE_TIMEOUT: return report_timeout(m, err);
    case COPSE_LEAVE_MESSAGES: return copse_cuda_watch_report(m, err);
    case COPSE_LEAVE_ABORT: return copse_fail(err, COPSE_ABORTED, "the communicator was aborted");
    default:
      return copse_fail(err, COPSE_ABORTED, "rank %u, on another host, gave up; its error says why",
                        leave - COPSE_LEAVE_PEER);
  }
}

copse_status copse_cuda_poll(void *machine, struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  COPSE_CHECK(copse_cuda_check_left(m, err));
  copse_beside_captures permitted;
  for (uint32_t i = 0; i < m->n_sites; i++) {
    if (!m->sites[i].eager.launched) continue;
    cudaError_t error = cudaEventQuery(m->sites[i].eager.done);
    if (error == cudaErrorNotReady)
      (void)cudaGetLastError();
    else
      COPSE_CHECK(copse_cuda_check(error, "a collective", err));
  }
  return COPSE_OK;
}

/* Launches come one after the other, so the last one's end is all's, and whoever else uses the GPU isn't
 * waited for. Of graphs, and of a call that failed half-way, nobody knows when they end. */
static copse_status wait_for_site(const struct copse_site *site, struct copse_err *err) {
  copse_on_device here(site->device);
  if (site->untracked)
    COPSE_CUDA(cudaDeviceSynchronize());
  else if (site->eager.launched)
    COPSE_CUDA(cudaEventSynchronize(site->eager.done));
  return COPSE_OK;
}

/* All sites, also where one fails: memory is freed after this. */
static copse_status finish(void *machine, struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  copse_beside_captures permitted;
  copse_status first = COPSE_OK;
  for (uint32_t i = 0; i < m->n_sites; i++) {
    copse_status status = wait_for_site(&m->sites[i], first == COPSE_OK ? err : NULL);
    if (first == COPSE_OK) first = status;
  }
  return first == COPSE_OK ? copse_cuda_poll(machine, err) : first;
}

static void abort_machine(void *machine) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  uint32_t expected = COPSE_LEAVE_NOT;
  __atomic_compare_exchange_n(&m->control->leave, &expected, (uint32_t)COPSE_LEAVE_ABORT, false,
                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static bool sizes_messages(const void *machine) {
  return ((const struct copse_cuda_machine *)machine)->n_hosts > 1;
}

extern "C" const struct copse_backend_ops copse_cuda_machine = {
    new_machine,           free_machine,  copse_cuda_prepare, copse_cuda_launch,
    finish,                copse_cuda_poll, abort_machine,    set_timeout,
    copse_cuda_add_buffer, copse_cuda_remove_buffer, sizes_messages};
