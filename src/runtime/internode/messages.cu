/*
 * Plans over several hosts: the rounds of a launch, their cursors on the GPU, and the messages
 * between rounds, by NCCL's send and receive.
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
#include "runtime/internode/internode.h"
#include "runtime/interpreter/view.h"

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

/* The rounds of a split plan for so many chunks, cut at the first call. May be called while some
 * stream is captured. */
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

/* A plan that can't run shows it for one of these numbers of chunks, before it is used. */
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

/* The bytes of a message at this process's rank, and where: the chunk as far as its block reaches,
 * or the whole slot that it is in. */
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

/* *goes_on: NCCL enqueues them in a thread of its own, which must be awaited. */
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
  copse_watch_end(cuda);
  if (status == COPSE_OK && goes_on) status = copse_watch_await(cuda, p, stream, err);
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
  COPSE_DO(copse_watch_mark(cuda, p, stream, err));
  for (uint32_t round = 0; round < rounds->n_rounds; round++) {
    args->from = it->cursors + (size_t)round * rounds->n_workers;
    args->to = args->from + rounds->n_workers;
    args->ends = copse_rounds_ends(rounds, round);
    if (copse_rounds_moves(rounds, round))
      COPSE_DO(copse_cuda_launch_kernel(cuda, p, 0, stream, args, err));
    if (rounds->first_message[round] < rounds->first_message[round + 1])
      COPSE_DO(exchange(cuda, p, it, round, args, stream, err));
  }
  return copse_watch_mark(cuda, NULL, stream, err);
}
