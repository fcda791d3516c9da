/* Plans over several hosts: cursors on the device, and the messages between rounds. */
#include "runtime/gpu/cuda_machine.h"
#include "runtime/interpreter/view.h"

/* ---- cursors ------------------------------------------------------------------------------- */

/* Those messages to this rank that have an inbox, round by round. *n: how many in all. */
static copse_status list_items(const struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                               struct copse_cuda_rounds *it, struct copse_unpack_item **items,
                               uint32_t *n, struct copse_err *err) {
  const struct copse_rounds *r = it->rounds;
  const size_t n_messages = r->first_message[r->n_rounds];
  *items = NULL;
  *n = 0;
  if (!p->split->inboxes) return COPSE_OK;
  COPSE_CHECK(copse_calloc((size_t)r->n_rounds + 1, sizeof *it->first_item, &it->first_item, err));
  COPSE_CHECK(copse_calloc(n_messages, sizeof **items, items, err));
  for (uint32_t round = 0; round < r->n_rounds; round++) {
    for (size_t i = r->first_message[round]; i < r->first_message[round + 1]; i++) {
      const struct copse_message *message = &r->messages[i];
      const uint32_t operand = message->operand;
      if (operand == COPSE_NO_OPERAND || message->dst != m->first_local ||
          p->split->inboxes[operand] == COPSE_NO_INBOX)
        continue;
      (*items)[(*n)++] = {p->split->inboxes[operand], message->piece, message->chunk,
                          p->split->lands[operand].index};
    }
    it->first_item[round + 1] = *n;
  }
  return COPSE_OK;
}

/* Allocates and copies although some stream may be captured: neither is part of a graph. */
static copse_status upload(struct copse_cuda_machine *m, struct copse_cuda_rounds *it,
                           const struct copse_unpack_item *items, uint32_t n_items,
                           struct copse_err *err) {
  const struct copse_rounds *r = it->rounds;
  const size_t cursors = ((size_t)r->n_rounds + 1) * r->n_workers * sizeof *it->cursors;
  const size_t bytes = cursors + n_items * sizeof *items;
  void *memory = NULL;
  copse_on_device here(m->sites[0].device);
  if (bytes == 0) return COPSE_OK;
  COPSE_CUDA(cudaMalloc(&memory, bytes));
  it->memory = (unsigned char *)memory;
  it->cursors = (struct copse_cursor *)memory;
  it->items = (struct copse_unpack_item *)(it->memory + cursors);
  if (cursors > 0)
    COPSE_CUDA(cudaMemcpyAsync(memory, r->cursors, cursors, cudaMemcpyHostToDevice, m->upload));
  if (n_items > 0)
    COPSE_CUDA(cudaMemcpyAsync(it->items, items, n_items * sizeof *items, cudaMemcpyHostToDevice,
                               m->upload));
  COPSE_CUDA(cudaStreamSynchronize(m->upload));
  return COPSE_OK;
}

static copse_status make_one(struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                             uint32_t n_chunks, struct copse_cuda_rounds *it,
                             struct copse_err *err) {
  struct copse_unpack_item *items = NULL;
  uint32_t n_items = 0;
  COPSE_CHECK(copse_rounds_new(p->split, n_chunks, m->first_local, &it->rounds, err));
  copse_status status = list_items(m, p, it, &items, &n_items, err);
  if (status == COPSE_OK) status = upload(m, it, items, n_items, err);
  free(items);
  return status;
}

static void free_one(struct copse_cuda_rounds *it) {
  if (it->memory) (void)cudaFree(it->memory);
  copse_rounds_free(it->rounds);
  free(it->first_item);
  free(it);
}

void copse_cuda_free_rounds(struct copse_cuda_plan *p) {
  while (p->rounds) {
    struct copse_cuda_rounds *it = p->rounds;
    p->rounds = it->next;
    free_one(it);
  }
}

copse_status copse_cuda_find_rounds(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                                    uint32_t n_chunks, const struct copse_cuda_rounds **out,
                                    struct copse_err *err) {
  struct copse_cuda_rounds *it = NULL;
  for (it = p->rounds; it; it = it->next)
    if (it->rounds->n_chunks == n_chunks) {
      *out = it;
      return COPSE_OK;
    }
  COPSE_CHECK(copse_calloc(1, sizeof *it, &it, err));
  copse_beside_captures permitted;
  copse_status status = make_one(m, p, n_chunks, it, err);
  if (status != COPSE_OK) {
    free_one(it);
    return status;
  }
  it->next = p->rounds;
  p->rounds = it;
  *out = it;
  return COPSE_OK;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* Where this process's rank has the chunk of a message, and how much of it there is; or the whole
 * slot that it is in. */
static uint64_t find_place(const struct copse_split *split, const struct copse_view *view,
                           const struct copse_message *message, bool sends, bool whole_slot,
                           unsigned char **at) {
  const struct copse_plan_operand *operand =
      &(sends ? split->local.operands : split->lands)[message->operand];
  const struct copse_shape *shape = &view->shape;
  uint32_t region = operand->index;
  if (!whole_slot) {
    struct copse_span chunk = copse_view_chunk(view, message->piece, message->chunk);
    *at = copse_view_operand(view, operand, chunk, message->chunk, 0).at;
    return chunk.count * shape->element_bytes;
  }
  if (!sends && split->inboxes[message->operand] != COPSE_NO_INBOX)
    region = split->inboxes[message->operand];
  const struct copse_region_place *place = &view->places[region];
  *at = view->ranks[operand->rank].scratch + copse_view_slot(shape, place, message->chunk);
  return copse_slot_elements(shape, place) * shape->element_bytes;
}

/* Nobody here knows how much of each block there is. */
static bool moves_slots(const struct copse_launch_args *args) {
  return args->pair_counts && !args->host_counts;
}

static copse_status move_message(const struct copse_cuda_machine *m,
                                 const struct copse_cuda_plan *p, const struct copse_view *view,
                                 const struct copse_message *message,
                                 const struct copse_launch_args *args, cudaStream_t stream,
                                 struct copse_err *err) {
  const struct copse_nccl_links *nccl = &m->links;
  const bool sends = message->src == m->first_local;
  const int peer = (int)(sends ? message->dst : message->src);
  unsigned char *at = (unsigned char *)&args->plan.words[message->src];
  uint64_t bytes = sizeof *args->plan.words;
  if (message->operand != COPSE_NO_OPERAND)
    bytes = find_place(p->split, view, message, sends, moves_slots(args), &at);
  if (bytes == 0) return COPSE_OK;
  if (sends)
    return copse_nccl_check(
        nccl, nccl->send(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, stream), "ncclSend", err);
  return copse_nccl_check(nccl, nccl->recv(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, stream),
                          "ncclRecv", err);
}

/* What has come to inboxes in this round. */
static copse_status unpack(const struct copse_cuda_machine *m, const struct copse_view *view,
                           const struct copse_cuda_stage *stage,
                           const struct copse_launch_args *args, cudaStream_t stream,
                           struct copse_err *err) {
  const struct copse_cuda_rounds *it = stage->it;
  const struct copse_rank_memory *own = &view->ranks[m->first_local];
  const uint32_t first = it->first_item[stage->round],
                 n = it->first_item[stage->round + 1] - first;
  if (n == 0) return COPSE_OK;
  struct copse_unpack_args unpacking = {
      it->items + first, args->plan.pieces, args->plan.places, args->pair_counts, args->pair_first,
      own->scratch,      own->output,       args->shape,       view->n_ranks};
  void *arguments[] = {&unpacking};
  copse_on_device here(m->sites[0].device);
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_unpack_kernel()), dim3(n),
                              dim3(copse_cuda_threads), arguments, 0, stream));
  return COPSE_OK;
}

copse_status copse_cuda_exchange(struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                                 const struct copse_cuda_stage *stage,
                                 const struct copse_launch_args *args, cudaStream_t stream,
                                 struct copse_err *err) {
  const struct copse_rounds *rounds = stage->it->rounds;
  const size_t first = rounds->first_message[stage->round],
               end = rounds->first_message[stage->round + 1];
  const uint32_t own = m->first_local;
  struct copse_rank_memory memory[COPSE_CUDA_MAX_RANKS];
  struct copse_view view;
  memset(memory, 0, sizeof memory);
  memory[own].output = args->buffers[own].output;
  memory[own].scratch =
      p->arenas[own] + copse_lane_offset(&p->shape, stage->lane) + p->shape.signals_bytes;
  memset(&view, 0, sizeof view);
  view.pieces = p->plan->pieces;
  view.extents = p->plan->header.n_extents > 0 ? p->plan->extents : NULL;
  view.places = p->layout.places;
  view.pair_counts = args->host_counts;
  view.pair_first = args->pair_first;
  view.ranks = memory;
  view.shape = args->shape;
  view.n_ranks = m->n_ranks;
  COPSE_CHECK(copse_cuda_watch_begin(m, err));
  copse_status status =
      copse_nccl_check(&m->links, m->links.group_start(), "ncclGroupStart", err);
  bool started = status == COPSE_OK;
  for (size_t i = first; i < end && status == COPSE_OK; i++)
    status = move_message(m, p, &view, &rounds->messages[i], args, stream, err);
  int result = started ? m->links.group_end() : 0;
  bool goes_on = result == COPSE_NCCL_IN_PROGRESS;
  if (status == COPSE_OK && !goes_on)
    status = copse_nccl_check(&m->links, result, "ncclGroupEnd", err);
  copse_cuda_watch_end(m);
  if (status == COPSE_OK && goes_on) status = copse_cuda_watch_await(m, p, stream, err);
  if (status == COPSE_OK && moves_slots(args))
    status = unpack(m, &view, stage, args, stream, err);
  return status;
}
