/* Plans over several hosts: cursors on the device, and the messages between rounds. */
#include "runtime/cuda/cuda_machine.h"
#include "runtime/view.h"

/* ---- cursors ------------------------------------------------------------------------------- */

/* Allocates and copies although some stream may be captured: neither is part of a graph. */
static copse_status upload(struct copse_cuda_machine *m, struct copse_cuda_rounds *it,
                           struct copse_err *err) {
  const struct copse_rounds *r = it->rounds;
  size_t bytes = ((size_t)r->n_rounds + 1) * r->n_workers * sizeof *it->cursors;
  void *memory = NULL;
  copse_on_device here(m->sites[0].device);
  if (bytes == 0) return COPSE_OK;
  COPSE_CUDA(cudaMalloc(&memory, bytes));
  it->cursors = (struct copse_cursor *)memory;
  COPSE_CUDA(cudaMemcpyAsync(memory, r->cursors, bytes, cudaMemcpyHostToDevice, m->upload));
  COPSE_CUDA(cudaStreamSynchronize(m->upload));
  return COPSE_OK;
}

static void free_one(struct copse_cuda_rounds *it) {
  if (it->cursors) (void)cudaFree(it->cursors);
  copse_rounds_free(it->rounds);
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
  copse_status status = copse_rounds_new(p->split, n_chunks, m->first_local, &it->rounds, err);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (status == COPSE_OK) status = upload(m, it, err);
  if (status != COPSE_OK) free_one(it);
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (status != COPSE_OK) return status;
  it->next = p->rounds;
  p->rounds = it;
  *out = it;
  return COPSE_OK;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* Where this process's rank has the chunk of a message, and how much of it there is. */
static uint64_t find_place(const struct copse_view *view, const struct copse_plan_operand *operand,
                           const struct copse_message *message, unsigned char **at) {
  struct copse_span chunk = copse_view_chunk(view, message->piece, message->chunk);
  *at = copse_view_operand(view, operand, chunk, message->chunk, 0).at;
  return chunk.count * view->shape.element_bytes;
}

static copse_status move_message(const struct copse_cuda_machine *m,
                                 const struct copse_cuda_plan *p, const struct copse_view *view,
                                 const struct copse_message *message, uint32_t *words,
                                 cudaStream_t stream, struct copse_err *err) {
  const struct copse_nccl_links *nccl = &m->links;
  const bool sends = message->src == m->first_local;
  const int peer = (int)(sends ? message->dst : message->src);
  unsigned char *at = (unsigned char *)&words[message->src];
  uint64_t bytes = sizeof *words;
  if (message->operand != COPSE_NO_OPERAND)
    bytes = find_place(
        view, &(sends ? p->split->local.operands : p->split->lands)[message->operand], message, &at);
  if (bytes == 0) return COPSE_OK;
  if (sends)
    return copse_nccl_check(
        nccl, nccl->send(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, stream), "ncclSend", err);
  return copse_nccl_check(nccl, nccl->recv(at, bytes, COPSE_NCCL_UINT8, peer, nccl->comm, stream),
                          "ncclRecv", err);
}

copse_status copse_cuda_exchange(struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                                 const struct copse_cuda_stage *stage,
                                 const struct copse_launch_args *args, cudaStream_t stream,
                                 struct copse_err *err) {
  const struct copse_rounds *rounds = stage->rounds;
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
  view.ranks = memory;
  view.shape = args->shape;
  view.n_ranks = m->n_ranks;
  COPSE_CHECK(copse_cuda_watch_begin(m, err));
  copse_status status =
      copse_nccl_check(&m->links, m->links.group_start(), "ncclGroupStart", err);
  bool started = status == COPSE_OK;
  for (size_t i = first; i < end && status == COPSE_OK; i++)
    status = move_message(m, p, &view, &rounds->messages[i], args->plan.words, stream, err);
  int result = started ? m->links.group_end() : 0;
  if (status == COPSE_OK) status = copse_nccl_check(&m->links, result, "ncclGroupEnd", err);
  copse_cuda_watch_end(m);
  return status;
}
