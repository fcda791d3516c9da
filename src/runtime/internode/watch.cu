/*
 * Messages that never come. A kernel has patience of its own; a round of NCCL's waits for ever for a
 * rank that is gone, and nobody who waits for the stream comes back. So messages go over a
 * communicator of the machine's own, of the same ranks, and a thread watches: where a call is
 * under way (the stream says so) and for twice the time limit no kernel of it has begun, or NCCL
 * itself reports a failure, all kernels are told to leave and the communicator is aborted, which ends
 * NCCL's. Twice, since within a kernel each wait has the limit for itself, and a kernel that loses
 * patience knows better for whom. What was told to leave has a shorter time to send its last words.
 *
 * Calls of NCCL may wait too: for the other side of a connection that they are the first to need,
 * and for room in the GPU's queue behind a message that never comes. So the communicator doesn't block:
 * such a call goes on in a thread of NCCL's, and the caller asks again and again whether it is over,
 * which an abort answers too.
 *
 * The job's communicator is left alone: it is the job's to abort. NCCL ends a communicator's kernels
 * at once, but ncclCommAbort returns only when no graph holds its messages any more, and it or
 * ncclCommDestroy perhaps only when the host's other ranks end theirs: nobody is kept by that.
 */
#include <pthread.h>

#include "runtime/gpu/cuda_machine.h"

extern "C" {
#include "base/clock.h"
#include "copse/copse.h"
}

#define LAST_WORDS_SECONDS 5.0
#define MOST_SECONDS_A_LOOK 0.5

struct copse_cuda_watch {
  pthread_t thread;
  bool started;
  pthread_mutex_t lock; /* of what follows */
  pthread_cond_t changed;
  bool ends;
  pthread_mutex_t nccl; /* of links.comm; nobody keeps it where NCCL may wait for another rank */
  bool aborted;
  bool is_over; /* the abort, or nobody waits for it any more. Atomically */
  /* What a caller awaits, as control->underway, 0: nothing; and whether in a capture. Atomically */
  uint64_t awaited, n_awaits; /* n: how many of them so far */
  bool captured;
  /* Written before control->leave says COPSE_LEAVE_MESSAGES, read after it. */
  int failure; /* NCCL's; 0: nothing moved */
  uint32_t plan;
};

/* ---- what is seen ---------------------------------------------------------------------------- */

/* What has been the same since some moment. */
struct sight {
  uint64_t underway, moved, n_awaits;
  uint32_t leave;
  double since;
};

static struct sight look(const struct copse_cuda_machine *m) {
  const struct copse_control *control = m->control;
  const uint64_t awaited = __atomic_load_n(&m->watch->awaited, __ATOMIC_ACQUIRE);
  const uint32_t leave = __atomic_load_n(&control->leave, __ATOMIC_ACQUIRE);
  const bool now = __atomic_load_n(&m->watch->captured, __ATOMIC_ACQUIRE) || leave != COPSE_LEAVE_NOT;
  return {awaited && now ? awaited : __atomic_load_n(&control->underway, __ATOMIC_ACQUIRE),
          __atomic_load_n(&control->moved, __ATOMIC_ACQUIRE),
          __atomic_load_n(&m->watch->n_awaits, __ATOMIC_ACQUIRE), leave, copse_clock_seconds()};
}

static double patience_of(const struct copse_cuda_machine *m, uint32_t leave) {
  double limit = (double)__atomic_load_n(&m->limit_ns, __ATOMIC_RELAXED) * 1e-9;
  if (leave == COPSE_LEAVE_NOT) return 2 * limit;
  return limit < LAST_WORDS_SECONDS ? limit : LAST_WORDS_SECONDS;
}

/* What NCCL says of itself; 0 also where some thread is in a call of it. */
static int failure_of(struct copse_cuda_machine *m) {
  int error = 0;
  if (pthread_mutex_trylock(&m->watch->nccl) != 0) return 0;
  if (!m->watch->aborted && m->links.async_error(m->links.comm, &error) != 0) error = 0;
  pthread_mutex_unlock(&m->watch->nccl);
  return error == COPSE_NCCL_IN_PROGRESS ? 0 : error;
}

static void give_up(struct copse_cuda_machine *m, const struct sight *sight, int failure) {
  struct copse_cuda_watch *watch = m->watch;
  uint32_t expected = COPSE_LEAVE_NOT;
  watch->failure = failure;
  watch->plan = (uint32_t)sight->underway - 1;
  __atomic_compare_exchange_n(&m->control->leave, &expected, (uint32_t)COPSE_LEAVE_MESSAGES, false,
                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  pthread_mutex_lock(&watch->nccl); /* no thread is in a call of NCCL, nor will be */
  watch->aborted = true;
  pthread_mutex_unlock(&watch->nccl);
  copse_nccl_end(m->links.abort, m->links.comm, m->sites[0].device);
  __atomic_store_n(&watch->is_over, true, __ATOMIC_RELEASE);
}

/* False when there is nothing left to watch. */
static bool watch_on(struct copse_cuda_machine *m, struct sight *sight) {
  struct sight now = look(m);
  if (now.underway != sight->underway || now.moved != sight->moved ||
      now.n_awaits != sight->n_awaits || now.leave != sight->leave)
    *sight = now;
  int failure = failure_of(m);
  bool stands =
      sight->underway != 0 && now.since - sight->since > patience_of(m, sight->leave);
  if (!stands && failure == 0) return true;
  give_up(m, sight, failure);
  return false;
}

static void *run_watch(void *context) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)context;
  struct copse_cuda_watch *watch = m->watch;
  struct sight sight = look(m);
  pthread_mutex_lock(&watch->lock);
  for (bool goes_on = true; goes_on && !watch->ends;) {
    double nap = patience_of(m, COPSE_LEAVE_ABORT) / 8;
    if (nap > MOST_SECONDS_A_LOOK) nap = MOST_SECONDS_A_LOOK;
    const struct timespec until = copse_clock_at(copse_clock_seconds() + nap);
    (void)pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    if (watch->ends) break;
    pthread_mutex_unlock(&watch->lock);
    goes_on = watch_on(m, &sight);
    pthread_mutex_lock(&watch->lock);
  }
  pthread_mutex_unlock(&watch->lock);
  return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static copse_status start(struct copse_cuda_machine *m, struct copse_err *err) {
  struct copse_cuda_watch *watch = NULL;
  pthread_condattr_t monotonic;
  COPSE_CHECK(copse_calloc(1, sizeof *watch, &watch, err));
  pthread_mutex_init(&watch->lock, NULL);
  pthread_mutex_init(&watch->nccl, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&watch->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  m->watch = watch;
  watch->started = pthread_create(&watch->thread, NULL, run_watch, m) == 0;
  return watch->started ? COPSE_OK : copse_fail_nomem(err);
}

/* orderly: all ranks do it. */
static void close_all(struct copse_cuda_machine *m, bool orderly) {
  struct copse_cuda_watch *watch = m->watch;
  if (watch && watch->started) {
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
  }
  if (m->links.comm && !(watch && watch->aborted)) {
    int error = 0; /* of the last call, after which NCCL wouldn't destroy */
    if (m->links.async_error(m->links.comm, &error) != 0 || error != 0) orderly = false;
    copse_nccl_end(orderly ? m->links.destroy : m->links.abort, m->links.comm, m->sites[0].device);
  }
  m->links.comm = NULL;
  if (!watch) return;
  pthread_cond_destroy(&watch->changed);
  pthread_mutex_destroy(&watch->lock);
  pthread_mutex_destroy(&watch->nccl);
  free(watch);
  m->watch = NULL;
}

copse_status copse_cuda_watch_open(struct copse_cuda_machine *m, struct copse_err *err) {
  copse_on_device here(m->sites[0].device);
  copse_status status = copse_nccl_links_join(&m->links, &m->bootstrap, m->n_ranks, m->first_local,
                                              m->timeout_seconds, &m->control->leave, err);
  if (status == COPSE_OK) status = start(m, err);
  status = copse_cuda_agree(m, status, err);
  if (status != COPSE_OK) close_all(m, false);
  return status;
}

/* Where some ranks may be gone, nothing that waits for them. */
void copse_cuda_watch_close(struct copse_cuda_machine *m) {
  close_all(m, !copse_cuda_is_broken(m));
}

/* ---- calls ----------------------------------------------------------------------------------- */

copse_status copse_cuda_watch_begin(struct copse_cuda_machine *m, struct copse_err *err) {
  pthread_mutex_lock(&m->watch->nccl);
  if (!m->watch->aborted) return COPSE_OK;
  pthread_mutex_unlock(&m->watch->nccl);
  return copse_cuda_check_left(m, err);
}

void copse_cuda_watch_end(struct copse_cuda_machine *m) {
  pthread_mutex_unlock(&m->watch->nccl);
}

static bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) (void)cudaGetLastError();
  return status == cudaStreamCaptureStatusActive;
}

static copse_status await(struct copse_cuda_machine *m, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (uint32_t look = 0;; look++) {
    int error = 0;
    copse_nccl_nap(look);
    status = copse_cuda_watch_begin(m, err);
    if (status != COPSE_OK) break;
    int result = m->links.async_error(m->links.comm, &error);
    copse_cuda_watch_end(m);
    if (result == 0) result = error;
    if (result != COPSE_NCCL_IN_PROGRESS)
      return copse_nccl_check(&m->links, result, "ncclGroupEnd", err);
  }
  /* NCCL's thread may still use the caller's stream */
  for (uint32_t look = 0; !__atomic_load_n(&m->watch->is_over, __ATOMIC_ACQUIRE); look++)
    copse_nccl_nap(look);
  return status;
}

/* In a stream the mark of the call's begin tells the watch how long it lasts. In a capture nothing runs,
 * and nothing else may hold it up; and where all are to leave, whatever is before it in the stream. */
copse_status copse_cuda_watch_await(struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                                    cudaStream_t stream, struct copse_err *err) {
  __atomic_store_n(&m->watch->captured, is_captured(stream), __ATOMIC_RELEASE);
  __atomic_store_n(&m->watch->awaited, (uint64_t)p->number + 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&m->watch->n_awaits, 1, __ATOMIC_RELEASE);
  copse_status status = await(m, err);
  __atomic_store_n(&m->watch->awaited, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&m->watch->captured, false, __ATOMIC_RELEASE);
  return status;
}

copse_status copse_cuda_watch_mark(struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                                   cudaStream_t stream, struct copse_err *err) {
  uint64_t *underway = &m->control->underway, value = p ? (uint64_t)p->number + 1 : 0;
  void *arguments[] = {&underway, &value};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_mark_kernel()), dim3(1), dim3(1),
                              arguments, 0, stream));
  return COPSE_OK;
}

/* "ranks 2, 5": those of other hosts that send to this one by the plan. */
static void list_senders(const struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                         char *text, size_t size) {
  const struct copse_rounds *rounds = p->rounds->rounds;
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t r = 0; r < m->n_ranks && used + 12 < size; r++) {
    bool sends = false;
    for (size_t i = 0; i < rounds->first_message[rounds->n_rounds]; i++)
      sends = sends || rounds->messages[i].src == r;
    if (!sends || r == m->first_local) continue;
    used += (size_t)snprintf(text + used, size - used, used ? ", %u" : "%u", r);
  }
}

copse_status copse_cuda_watch_report(const struct copse_cuda_machine *m, struct copse_err *err) {
  const struct copse_cuda_watch *watch = m->watch;
  const struct copse_cuda_plan *p = copse_cuda_plan_number(m, watch->plan);
  char senders[120];
  if (watch->failure)
    return copse_fail(err, COPSE_DEVICE, "NCCL, which joins the hosts: %s",
                      m->links.error_string(watch->failure));
  if (!p || !p->rounds)
    return copse_fail(err, COPSE_TIMEOUT, "messages between hosts stood still for over %g s",
                      2 * m->timeout_seconds);
  list_senders(m, p, senders, sizeof senders);
  return copse_fail(err, COPSE_TIMEOUT,
                    "%s of %s: rank %u waited over %g s for messages between hosts; one of the "
                    "ranks that it has them from may be gone: %s",
                    copse_collective_name((copse_collective)p->plan->header.collective),
                    p->plan->name, m->first_local, 2 * m->timeout_seconds, senders);
}
