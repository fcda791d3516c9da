/*
 * Messages that never come. A kernel has a time limit of its own. NCCL has none: its send and
 * receive wait for ever for a rank that is gone, and nobody who waits for the stream returns. So
 * messages go over a communicator of copse's own, of the same ranks, made from a unique id (one
 * that is split off may share the abort of the job's), and a thread watches it:
 *
 *   stream    mark(plan)  kernel  messages  kernel  messages ...  mark(none)
 *                 |          |                 |
 *                 v          v                 v
 *   control   underway     moved             moved          the watch polls these
 *
 *   underway, and for 2 * limit no kernel has begun   -->  all kernels leave; the communicator is
 *   NCCL reports an error by itself                   -->  aborted, which ends NCCL's kernels
 *   kernels are leaving for another reason            -->  likewise, after a shorter time
 *
 * The limit is doubled because within a kernel each wait has the whole limit, and a kernel that
 * times out names the rank that it waited for. Kernels that leave still send their status
 * words, so the abort comes STATUS_WORD_SECONDS later at most.
 *
 * Calls of NCCL may hang too: where they first connect to a rank that is gone, or where so many
 * launches wait behind a message that never comes that no more fit into the GPU's queue. So the
 * communicator doesn't block, from NCCL 2.27.3 on (nccl_bootstrap.cu): the call goes on in a thread
 * of NCCL's, the caller polls for its end, and an abort ends both. That costs a thread for each
 * group of messages; NCCL_COMM_BLOCKING=1 takes it back, with the hanging.
 *
 * The job's own communicator is never aborted; only the job may do that. After an abort graphs that
 * hold the communicator's calls must not be launched again. NCCL ends a communicator's kernels at
 * once, but ncclCommAbort returns only when no graph holds its messages any more, and it or
 * ncclCommDestroy may wait for the host's other ranks. So either runs in a thread of its own, which
 * is waited for 5 seconds (copse_nccl_end).
 */
#include <pthread.h>

#include "runtime/internode/internode.h"

extern "C" {
#include "base/clock.h"
#include "copse/copse.h"
}

#define STATUS_WORD_SECONDS 5.0
#define MOST_POLL_SECONDS 0.5

struct copse_watch {
  pthread_t thread;
  bool started;
  pthread_mutex_t lock; /* of `changed` and `ends` */
  pthread_cond_t changed;
  bool ends;
  pthread_mutex_t nccl; /* of links.comm; never held while NCCL may wait for another rank */
  bool aborted;
  bool is_over; /* the abort has ended, or is no longer waited for. Atomic */
  /* Atomic: the call that a caller awaits, numbered as control->underway, or 0; how many were
   * awaited so far; and whether the caller's stream is captured. */
  uint64_t awaited, n_awaits;
  bool captured;
  /* Written before control->leave becomes COPSE_LEAVE_MESSAGES, read after it. */
  int failure; /* NCCL's error; 0: nothing moved */
  uint32_t plan;
};

/* ---- watching ---------------------------------------------------------------------------- */

/* What the watch saw, unchanged since a moment. */
struct snapshot {
  uint64_t underway, moved, n_awaits;
  uint32_t leave;
  double since;
};

static struct snapshot take_snapshot(const struct copse_cuda *cuda) {
  const struct copse_control *control = cuda->control;
  const struct copse_watch *watch = cuda->internode->watch;
  const uint64_t awaited = __atomic_load_n(&watch->awaited, __ATOMIC_ACQUIRE);
  const uint32_t leave = __atomic_load_n(&control->leave, __ATOMIC_ACQUIRE);
  const bool counts =
      __atomic_load_n(&watch->captured, __ATOMIC_ACQUIRE) || leave != COPSE_LEAVE_NOT;
  return {awaited && counts ? awaited : __atomic_load_n(&control->underway, __ATOMIC_ACQUIRE),
          __atomic_load_n(&control->moved, __ATOMIC_ACQUIRE),
          __atomic_load_n(&watch->n_awaits, __ATOMIC_ACQUIRE), leave, copse_clock_seconds()};
}

static double limit_of(const struct copse_cuda *cuda, uint32_t leave) {
  double limit = (double)__atomic_load_n(&cuda->limit_ns, __ATOMIC_RELAXED) * 1e-9;
  if (leave == COPSE_LEAVE_NOT) return 2 * limit;
  return limit < STATUS_WORD_SECONDS ? limit : STATUS_WORD_SECONDS;
}

/* NCCL's own error; 0 where there is none, or while some thread is in a call of NCCL. */
static int failure_of(struct copse_cuda *cuda) {
  const struct copse_nccl_links *nccl = &cuda->internode->links;
  struct copse_watch *watch = cuda->internode->watch;
  int error = 0;
  if (pthread_mutex_trylock(&watch->nccl) != 0) return 0;
  if (!watch->aborted && nccl->async_error(nccl->comm, &error) != 0) error = 0;
  pthread_mutex_unlock(&watch->nccl);
  return error == COPSE_NCCL_IN_PROGRESS ? 0 : error;
}

static void give_up(struct copse_cuda *cuda, const struct snapshot *seen, int failure) {
  const struct copse_nccl_links *nccl = &cuda->internode->links;
  struct copse_watch *watch = cuda->internode->watch;
  uint32_t expected = COPSE_LEAVE_NOT;
  watch->failure = failure;
  watch->plan = (uint32_t)seen->underway - 1;
  __atomic_compare_exchange_n(&cuda->control->leave, &expected, (uint32_t)COPSE_LEAVE_MESSAGES,
                              false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  pthread_mutex_lock(&watch->nccl); /* now no thread is in a call of NCCL, and none will be */
  watch->aborted = true;
  pthread_mutex_unlock(&watch->nccl);
  copse_nccl_end(nccl->abort, nccl->comm, cuda->devices[0].ordinal);
  __atomic_store_n(&watch->is_over, true, __ATOMIC_RELEASE);
}

/* One poll. False when there is nothing left to watch. */
static bool watch_on(struct copse_cuda *cuda, struct snapshot *seen) {
  struct snapshot now = take_snapshot(cuda);
  if (now.underway != seen->underway || now.moved != seen->moved ||
      now.n_awaits != seen->n_awaits || now.leave != seen->leave)
    *seen = now;
  int failure = failure_of(cuda);
  bool stands = seen->underway != 0 && now.since - seen->since > limit_of(cuda, seen->leave);
  if (!stands && failure == 0) return true;
  give_up(cuda, seen, failure);
  return false;
}

static void *run_watch(void *context) {
  struct copse_cuda *cuda = (struct copse_cuda *)context;
  struct copse_watch *watch = cuda->internode->watch;
  struct snapshot seen = take_snapshot(cuda);
  pthread_mutex_lock(&watch->lock);
  for (bool goes_on = true; goes_on && !watch->ends;) {
    double wait = limit_of(cuda, COPSE_LEAVE_ABORT) / 8;
    if (wait > MOST_POLL_SECONDS) wait = MOST_POLL_SECONDS;
    const struct timespec until = copse_clock_at(copse_clock_seconds() + wait);
    (void)pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    if (watch->ends) break;
    pthread_mutex_unlock(&watch->lock);
    goes_on = watch_on(cuda, &seen);
    pthread_mutex_lock(&watch->lock);
  }
  pthread_mutex_unlock(&watch->lock);
  return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static copse_status start(struct copse_cuda *cuda, struct copse_err *err) {
  struct copse_watch *watch = NULL;
  COPSE_DO(copse_calloc(1, sizeof *watch, &watch, err));
  pthread_mutex_init(&watch->lock, NULL);
  pthread_mutex_init(&watch->nccl, NULL);
  copse_clock_condition(&watch->changed);
  cuda->internode->watch = watch;
  watch->started = pthread_create(&watch->thread, NULL, run_watch, cuda) == 0;
  return watch->started ? COPSE_OK : copse_fail_nomem(err);
}

/* orderly: all ranks do the same, so the communicator is destroyed and not aborted. */
static void close_all(struct copse_cuda *cuda, bool orderly) {
  struct copse_nccl_links *nccl = &cuda->internode->links;
  struct copse_watch *watch = cuda->internode->watch;
  if (watch && watch->started) {
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
  }
  if (nccl->comm && !(watch && watch->aborted)) {
    int error = 0; /* of the last call; after an error NCCL wouldn't destroy */
    if (nccl->async_error(nccl->comm, &error) != 0 || error != 0) orderly = false;
    copse_nccl_end(orderly ? nccl->destroy : nccl->abort, nccl->comm, cuda->devices[0].ordinal);
  }
  nccl->comm = NULL;
  if (!watch) return;
  pthread_cond_destroy(&watch->changed);
  pthread_mutex_destroy(&watch->lock);
  pthread_mutex_destroy(&watch->nccl);
  free(watch);
  cuda->internode->watch = NULL;
}

copse_status copse_watch_open(struct copse_cuda *cuda, copse_status mine, struct copse_err *err) {
  struct copse_nccl_links none;
  memset(&none, 0, sizeof none);
  copse_on_device here(cuda->devices[0].ordinal);
  copse_status status =
      copse_nccl_links_join(cuda->internode ? &cuda->internode->links : &none, cuda, mine, err);
  if (status == COPSE_OK) status = start(cuda, err);
  status = copse_cuda_agree(cuda, status, err);
  if (status != COPSE_OK && cuda->internode) close_all(cuda, false);
  return status;
}

/* Where some ranks may be gone the communicator is aborted, which waits for none of them. */
void copse_watch_close(struct copse_cuda *cuda) { close_all(cuda, !copse_cuda_is_broken(cuda)); }

/* ---- calls ----------------------------------------------------------------------------------- */

copse_status copse_watch_begin(struct copse_cuda *cuda, struct copse_err *err) {
  pthread_mutex_lock(&cuda->internode->watch->nccl);
  if (!cuda->internode->watch->aborted) return COPSE_OK;
  pthread_mutex_unlock(&cuda->internode->watch->nccl);
  return copse_cuda_check_left(cuda, err);
}

void copse_watch_end(struct copse_cuda *cuda) {
  pthread_mutex_unlock(&cuda->internode->watch->nccl);
}

static copse_status await(struct copse_cuda *cuda, struct copse_err *err) {
  const struct copse_nccl_links *nccl = &cuda->internode->links;
  copse_status status = COPSE_OK;
  for (uint32_t poll = 0;; poll++) {
    int error = 0;
    copse_poll_pause(poll);
    status = copse_watch_begin(cuda, err);
    if (status != COPSE_OK) break;
    int result = nccl->async_error(nccl->comm, &error);
    copse_watch_end(cuda);
    if (result == 0) result = error;
    if (result != COPSE_NCCL_IN_PROGRESS)
      return copse_nccl_check(nccl, result, "ncclGroupEnd", err);
  }
  /* NCCL's thread may use the caller's stream until the abort is over */
  const bool *is_over = &cuda->internode->watch->is_over;
  for (uint32_t poll = 0; !__atomic_load_n(is_over, __ATOMIC_ACQUIRE); poll++)
    copse_poll_pause(poll);
  return status;
}

/* While the call is awaited the watch counts its time from the mark in the stream. In a capture no
 * mark runs, and where kernels are leaving the mark may be behind others in the stream: then
 * `awaited` stands in for it. */
copse_status copse_watch_await(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                               cudaStream_t stream, struct copse_err *err) {
  struct copse_watch *watch = cuda->internode->watch;
  const bool captured = copse_capture_of(stream).status == cudaStreamCaptureStatusActive;
  __atomic_store_n(&watch->captured, captured, __ATOMIC_RELEASE);
  __atomic_store_n(&watch->awaited, (uint64_t)p->number + 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&watch->n_awaits, 1, __ATOMIC_RELEASE);
  copse_status status = await(cuda, err);
  __atomic_store_n(&watch->awaited, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&watch->captured, false, __ATOMIC_RELEASE);
  return status;
}

copse_status copse_watch_mark(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                              cudaStream_t stream, struct copse_err *err) {
  uint64_t *underway = &cuda->control->underway, value = p ? (uint64_t)p->number + 1 : 0;
  void *arguments[] = {&underway, &value};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_mark_kernel()), dim3(1), dim3(1),
                              arguments, 0, stream));
  return COPSE_OK;
}

/* "2, 5": the ranks of other hosts that send to this one in the plan. */
static void list_senders(const struct copse_cuda *cuda, const struct copse_cuda_plan *p, char *text,
                         size_t size) {
  const struct copse_rounds *rounds = p->rounds->rounds;
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t r = 0; r < cuda->n_ranks && used + 12 < size; r++) {
    bool sends = false;
    for (size_t i = 0; i < rounds->first_message[rounds->n_rounds]; i++)
      sends = sends || rounds->messages[i].src == r;
    if (!sends || r == cuda->first_local) continue;
    used += (size_t)snprintf(text + used, size - used, used ? ", %u" : "%u", r);
  }
}

copse_status copse_internode_report(const struct copse_cuda *cuda, struct copse_err *err) {
  const struct copse_watch *watch = cuda->internode->watch;
  const struct copse_cuda_plan *p = copse_cuda_plan_number(cuda, watch->plan);
  char senders[120];
  if (watch->failure)
    return copse_fail(err, COPSE_DEVICE, "NCCL, which joins the hosts: %s",
                      cuda->internode->links.error_string(watch->failure));
  if (!p || !p->rounds)
    return copse_fail(err, COPSE_TIMEOUT, "messages between hosts stood still for over %g s",
                      2 * cuda->timeout_seconds);
  list_senders(cuda, p, senders, sizeof senders);
  return copse_fail(err, COPSE_TIMEOUT,
                    "%s of %s: rank %u waited over %g s for messages between hosts; one of the "
                    "ranks that it has them from may be gone: %s",
                    copse_collective_name((copse_collective)p->plan->header.collective),
                    p->plan->name, cuda->first_local, 2 * cuda->timeout_seconds, senders);
}
