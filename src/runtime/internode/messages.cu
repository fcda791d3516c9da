/*
 * Plans over several hosts: the rounds of a launch, their cursors on the GPU, and the messages
 * between rounds, by NCCL's send and receive (its guide, "Point-to-point communication").
 *
 * In a round every worker runs from one cursor to another. Then what was written for other hosts
 * goes there, out of the outboxes at this rank. No kernel waits for another host: the order of a
 * stream takes the place of signals. Every pair of ranks that signal or send in a round also
 * exchanges one status word. So a SIGNAL without data has a message too, and a rank that has timed
 * out makes the other hosts leave, too, instead of sending them garbage.
 *
 *   rank a's stream                                  rank b's stream
 *   kernel, round r: writes outboxes, word           kernel, round r
 *   ncclGroup { send outbox, send word }  ------->   ncclGroup { recv slot, recv word }
 *   kernel, round r + 1                              kernel, round r + 1: leaves if a word is 1
 *
 * Why nothing deadlocks. All ranks have the same order, and of one rank everything is in one
 * stream. So a kernel and messages, which are a kernel of NCCL's, never run at once on a GPU, and
 * neither waits for multiprocessors that the other one holds. A round's kernel waits for what is
 * before it in its stream, and within the round for the kernel of its host's other ranks. Messages
 * wait for what is before them, and for the same messages at other ranks. Nothing waits for what
 * comes later in this order, so the first that is not done at all ranks can always go on.
 *
 * A plan is cut, and its cursors uploaded, once per number of chunks, of which there are few
 * (copse_rounds_shape).
 *
 * Blocks of all_to_all_v: only the GPUs know their lengths, and the host sizes messages. So whole
 * slots travel, at the end into an inbox, and a kernel in the same stream copies out what there is.
 * Where the host can read the counts too messages are exact and end with the longest block.
 */
#include <pthread.h>
#include <unistd.h>

#include "runtime/internode/internode.h"
#include "runtime/interpreter/view.h"

extern "C" {
#include "base/clock.h"
#include "base/file.h"
#include "copse/copse.h"
}

/* ==== the watch =========================================================================== */

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

/* Returns NCCL's own error; 0 where there is none, or while some thread is in a call of NCCL. */
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

/* Polls once. False when there is nothing left to watch. */
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

/* Closes the links; orderly: all ranks do the same, so the communicator is destroyed and not
 * aborted. */
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

/* Aborts the communicator where some ranks may be gone, which waits for none of them. */
void copse_watch_close(struct copse_cuda *cuda) { close_all(cuda, !copse_cuda_is_broken(cuda)); }

/* ---- calls ----------------------------------------------------------------------------------- */

/* Begins calls of NCCL, which it and end_calls enclose. Where the communicator was aborted begin
 * fails, and no end follows. */
copse_status copse_watch_begin(struct copse_cuda *cuda, struct copse_err *err) {
  pthread_mutex_lock(&cuda->internode->watch->nccl);
  if (!cuda->internode->watch->aborted) return COPSE_OK;
  pthread_mutex_unlock(&cuda->internode->watch->nccl);
  return copse_cuda_check_left(cuda, err);
}

static void end_calls(struct copse_cuda *cuda) {
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
    end_calls(cuda);
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

/* Waits, after end_calls, for the end of what NCCL left in progress for the plan in the stream.
 * While the call is awaited the watch counts its time from the mark in the stream. In a capture no
 * mark runs, and where kernels are leaving the mark may be behind others in the stream: then
 * `awaited` stands in for it. */
static copse_status await_calls(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
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

/* Marks in the stream that a call of the plan begins here; NULL: ends. */
static copse_status mark_call(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                              cudaStream_t stream, struct copse_err *err) {
  uint64_t *underway = &cuda->control->underway, value = p ? (uint64_t)p->number + 1 : 0;
  void *arguments[] = {&underway, &value};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_mark_kernel()), dim3(1), dim3(1),
                              arguments, 0, stream));
  return COPSE_OK;
}

/* Lists, as "2, 5", the ranks of other hosts that send to this one in the plan. */
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

/* ==== rounds ===================================================================================
 */

/* ---- splitting ----------------------------------------------------------------------------- */

copse_status copse_internode_split(const struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                   struct copse_err *err) {
  if (cuda->n_hosts < 2) return COPSE_OK;
  COPSE_DO(copse_split_new(p->plan, cuda->host_of, &p->split, err));
  p->plan = &p->split->local;
  p->crosses = p->split->crosses;
  return COPSE_OK;
}

/* ---- cursors ------------------------------------------------------------------------------- */

/* Lists the messages to this rank that have an inbox, round by round; n of them in all. */
static copse_status list_items(const struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                               struct copse_cuda_rounds *it, struct copse_unpack_item **items,
                               uint32_t *n, struct copse_err *err) {
  const struct copse_rounds *r = it->rounds;
  const size_t n_messages = r->first_message[r->n_rounds];
  *items = NULL;
  *n = 0;
  if (!p->split->inboxes) return COPSE_OK;
  COPSE_DO(copse_calloc((size_t)r->n_rounds + 1, sizeof *it->first_item, &it->first_item, err));
  COPSE_DO(copse_calloc(n_messages, sizeof **items, items, err));
  for (uint32_t round = 0; round < r->n_rounds; round++) {
    for (size_t i = r->first_message[round]; i < r->first_message[round + 1]; i++) {
      const struct copse_message *message = &r->messages[i];
      const uint32_t operand = message->operand;
      if (operand == COPSE_NO_OPERAND || message->dst != cuda->first_local ||
          p->split->inboxes[operand] == COPSE_NO_INBOX)
        continue;
      (*items)[(*n)++] = {p->split->inboxes[operand], message->piece, message->chunk,
                          p->split->lands[operand].index};
    }
    it->first_item[round + 1] = *n;
  }
  return COPSE_OK;
}

/* Allocates and copies at once, also while some stream is captured. */
static copse_status upload(struct copse_cuda *cuda, struct copse_cuda_rounds *it,
                           const struct copse_unpack_item *items, uint32_t n_items,
                           struct copse_err *err) {
  const struct copse_rounds *r = it->rounds;
  const size_t cursors = ((size_t)r->n_rounds + 1) * r->n_workers * sizeof *it->cursors;
  const size_t bytes = cursors + n_items * sizeof *items;
  void *memory = NULL;
  copse_on_device here(cuda->devices[0].ordinal);
  if (bytes == 0) return COPSE_OK;
  COPSE_CUDA(cudaMalloc(&memory, bytes));
  it->memory = (unsigned char *)memory;
  it->cursors = (struct copse_cursor *)memory;
  it->items = (struct copse_unpack_item *)(it->memory + cursors);
  if (cursors > 0) COPSE_DO(copse_cuda_upload(memory, r->cursors, cursors, err));
  return n_items > 0 ? copse_cuda_upload(it->items, items, n_items * sizeof *items, err) : COPSE_OK;
}

static copse_status make_one(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                             uint32_t n_chunks, struct copse_cuda_rounds *it,
                             struct copse_err *err) {
  struct copse_unpack_item *items = NULL;
  uint32_t n_items = 0;
  COPSE_DO(copse_rounds_new(p->split, n_chunks, cuda->first_local, &it->rounds, err));
  copse_status status = list_items(cuda, p, it, &items, &n_items, err);
  if (status == COPSE_OK) status = upload(cuda, it, items, n_items, err);
  free(items);
  return status;
}

static void free_one(struct copse_cuda_rounds *it) {
  if (it->memory) (void)cudaFree(it->memory);
  copse_rounds_free(it->rounds);
  free(it->first_item);
  free(it);
}

void copse_internode_plan_free(struct copse_cuda_plan *p) {
  while (p->rounds) {
    struct copse_cuda_rounds *it = p->rounds;
    p->rounds = it->next;
    free_one(it);
  }
  copse_split_free(p->split);
}

/* Finds the rounds of a split plan for so many chunks, cut at the first call. May be called while
 * some stream is captured. */
static copse_status find_rounds(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                uint32_t n_chunks, const struct copse_cuda_rounds **out,
                                struct copse_err *err) {
  struct copse_cuda_rounds *it = NULL;
  for (it = p->rounds; it; it = it->next)
    if (it->rounds->n_chunks == n_chunks) {
      *out = it;
      return COPSE_OK;
    }
  COPSE_DO(copse_calloc(1, sizeof *it, &it, err));
  copse_beside_captures permitted;
  copse_status status = make_one(cuda, p, n_chunks, it, err);
  if (status != COPSE_OK) {
    free_one(it);
    return status;
  }
  it->next = p->rounds;
  p->rounds = it;
  *out = it;
  return COPSE_OK;
}

/* Tries these numbers of chunks: a plan that can't run shows it for one of them, before it is
 * used. */
copse_status copse_internode_try_rounds(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                        struct copse_err *err) {
  const uint32_t fifo = p->plan->header.fifo, chunks[] = {1, fifo + 1, 2 * fifo + 1};
  const struct copse_cuda_rounds *rounds;
  if (p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY)
    return find_rounds(cuda, p, 1, &rounds, err);
  for (uint32_t n : chunks) COPSE_DO(find_rounds(cuda, p, n, &rounds, err));
  return COPSE_OK;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* The messages of one round while they are enqueued. */
struct transfer {
  const struct copse_cuda *cuda;
  const struct copse_cuda_plan *plan;
  const struct copse_launch_args *args;
  cudaStream_t stream;
  struct copse_rank_memory memory[COPSE_CUDA_MAX_RANKS]; /* own rank only */
  struct copse_view view;
};

static void make_view(struct transfer *t) {
  const struct copse_cuda_plan *p = t->plan;
  const struct copse_launch_args *args = t->args;
  const uint32_t own = t->cuda->first_local;
  memset(t->memory, 0, sizeof t->memory);
  t->memory[own].output = args->buffers[own].output;
  t->memory[own].scratch = p->slots[own];
  memset(&t->view, 0, sizeof t->view);
  t->view.pieces = p->plan->pieces;
  t->view.extents = p->plan->header.n_extents > 0 ? p->plan->extents : NULL;
  t->view.places = p->layout.places;
  t->view.pair_counts = args->host_counts;
  t->view.pair_first = args->pair_first;
  t->view.ranks = t->memory;
  t->view.shape = args->shape;
  t->view.n_ranks = t->cuda->n_ranks;
}

/* Whether the host doesn't know how long each block is, so that whole slots travel. */
static bool moves_slots(const struct copse_launch_args *args) {
  return args->pair_counts && !args->host_counts;
}

/* Finds the bytes of a message at this process's rank, and where: the chunk as far as its block
 * reaches, or the whole slot that it is in. */
static uint64_t find_place(const struct transfer *t, const struct copse_message *message,
                           bool sends, unsigned char **at) {
  const struct copse_split *split = t->plan->split;
  const struct copse_plan_operand *operand =
      &(sends ? split->local.operands : split->lands)[message->operand];
  const struct copse_shape *shape = &t->view.shape;
  uint32_t region = operand->index;
  if (!moves_slots(t->args)) {
    struct copse_span chunk = copse_view_chunk(&t->view, message->piece, message->chunk);
    *at = copse_view_operand(&t->view, operand, chunk, message->chunk, 0).at;
    return chunk.count * shape->element_bytes;
  }
  if (!sends && split->inboxes[message->operand] != COPSE_NO_INBOX)
    region = split->inboxes[message->operand];
  const struct copse_region_place *place = &t->view.places[region];
  *at = t->view.ranks[operand->rank].scratch + copse_view_slot(shape, place, message->chunk);
  return copse_slot_elements(shape, place) * shape->element_bytes;
}

static copse_status move_message(const struct transfer *t, const struct copse_message *message,
                                 struct copse_err *err) {
  const struct copse_nccl_links *nccl = &t->cuda->internode->links;
  const bool sends = message->src == t->cuda->first_local;
  const int peer = (int)(sends ? message->dst : message->src);
  unsigned char *at = (unsigned char *)&t->args->plan.words[message->src];
  uint64_t bytes = sizeof *t->args->plan.words;
  if (message->operand != COPSE_NO_OPERAND) bytes = find_place(t, message, sends, &at);
  if (bytes == 0) return COPSE_OK;
  if (sends)
    return copse_nccl_check(nccl,
                            nccl->send(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, t->stream),
                            "ncclSend", err);
  return copse_nccl_check(
      nccl, nccl->recv(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, t->stream), "ncclRecv", err);
}

/* Moves messages in one group; *goes_on: NCCL enqueues them in a thread of its own, which must be
 * awaited. */
static copse_status move_group(const struct transfer *t, const struct copse_message *messages,
                               size_t n, bool *goes_on, struct copse_err *err) {
  const struct copse_nccl_links *nccl = &t->cuda->internode->links;
  COPSE_DO(copse_nccl_check(nccl, nccl->group_start(), "ncclGroupStart", err));
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < n && status == COPSE_OK; i++) status = move_message(t, &messages[i], err);
  int result = nccl->group_end(); /* also after an error */
  *goes_on = result == COPSE_NCCL_IN_PROGRESS;
  return status != COPSE_OK || *goes_on ? status
                                        : copse_nccl_check(nccl, result, "ncclGroupEnd", err);
}

/* Copies out what this round has brought to inboxes. */
static copse_status unpack(const struct transfer *t, const struct copse_cuda_rounds *it,
                           uint32_t round, struct copse_err *err) {
  const struct copse_launch_args *args = t->args;
  const struct copse_rank_memory *own = &t->memory[t->cuda->first_local];
  const uint32_t first = it->first_item[round], n = it->first_item[round + 1] - first;
  if (n == 0) return COPSE_OK;
  struct copse_unpack_args unpacking = {it->items + first, args->plan.pieces, args->plan.places,
                                        args->pair_counts, args->pair_first,  own->scratch,
                                        own->output,       args->shape,       t->view.n_ranks};
  void *arguments[] = {&unpacking};
  copse_on_device here(t->cuda->devices[0].ordinal);
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_unpack_kernel()), dim3(n),
                              dim3(copse_cuda_threads), arguments, 0, t->stream));
  return COPSE_OK;
}

/* Enqueues a round's messages from and to this process's rank, and then the copies out of inboxes
 * where there are counts of pairs. args: those of the round's kernel. */
static copse_status exchange(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                             const struct copse_cuda_rounds *it, uint32_t round,
                             const struct copse_launch_args *args, cudaStream_t stream,
                             struct copse_err *err) {
  const struct copse_rounds *rounds = it->rounds;
  const size_t first = rounds->first_message[round];
  struct transfer t;
  bool goes_on = false;
  t.cuda = cuda;
  t.plan = p;
  t.args = args;
  t.stream = stream;
  make_view(&t);
  COPSE_DO(copse_watch_begin(cuda, err));
  copse_status status = move_group(&t, rounds->messages + first,
                                   rounds->first_message[round + 1] - first, &goes_on, err);
  end_calls(cuda);
  if (status == COPSE_OK && goes_on) status = await_calls(cuda, p, stream, err);
  if (status == COPSE_OK && moves_slots(args)) status = unpack(&t, it, round, err);
  return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

copse_status copse_internode_launch(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                    cudaStream_t stream, struct copse_launch_args *args,
                                    struct copse_err *err) {
  const struct copse_cuda_rounds *it;
  copse_rounds_shape(&args->shape);
  COPSE_DO(find_rounds(cuda, p, args->shape.n_chunks, &it, err));
  const struct copse_rounds *rounds = it->rounds;
  COPSE_DO(mark_call(cuda, p, stream, err));
  for (uint32_t round = 0; round < rounds->n_rounds; round++) {
    args->from = it->cursors + (size_t)round * rounds->n_workers;
    args->to = args->from + rounds->n_workers;
    args->ends = copse_rounds_ends(rounds, round);
    if (copse_rounds_moves(rounds, round))
      COPSE_DO(copse_cuda_launch_kernel(cuda, p, 0, stream, args, err));
    if (rounds->first_message[round] < rounds->first_message[round + 1])
      COPSE_DO(exchange(cuda, p, it, round, args, stream, err));
  }
  return mark_call(cuda, NULL, stream, err);
}

/* ==== hosts: which rank is where, and the streams that NCCL can use
 * =============================== */

uint64_t copse_cuda_host = 0;

/* Derives a number for this host from its name and the boot id of its kernel: hosts may share a
 * name, and containers of one host a boot id. */
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

/* Of each rank: its host and GPU, whether plans over several hosts are asked for there, and the
 * barrier at which it would leave. */
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
      cuda->shares_gpus =
          cuda->shares_gpus || (all[q].host == all[r].host && all[r].gpu[0] &&
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
