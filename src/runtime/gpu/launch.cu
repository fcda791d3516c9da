/* One collective on the GPUs: arguments, streams, and parts for outputs that aren't shared. */
#include "runtime/gpu/cuda_machine.h"

uint32_t copse_cuda_threads = COPSE_CUDA_MAX_THREADS;
uint64_t copse_cuda_staging_bytes = (uint64_t)32 << 20;

/* ---- streams --------------------------------------------------------------------------- */

/* The capture that a stream is in, or 0. */
static unsigned long long capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(stream, &status, &id) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

/* A number that no other stream has or had; a handle may come again when its stream is gone. A
 * stream that is being captured stays, and must not be asked. */
static copse_status identity_of(cudaStream_t stream, unsigned long long capture,
                                unsigned long long *id, struct copse_err *err) {
  *id = (unsigned long long)(uintptr_t)stream;
  if (!capture) COPSE_CUDA(cudaStreamGetId(stream, id));
  return COPSE_OK;
}

/* The streams of a site's ranks meet in the first one's. *last: where to note this launch. */
static copse_status join_streams(struct copse_cuda_machine *m, uint32_t s,
                                 const struct copse_call *calls, cudaStream_t stream,
                                 struct copse_last_launch **last, struct copse_err *err) {
  struct copse_site *site = &m->sites[s];
  unsigned long long id = 0;
  for (uint32_t i = 0; i < m->n_local; i++) {
    cudaStream_t other = (cudaStream_t)calls[i].stream;
    if (m->site_of[i] != s || other == stream) continue;
    COPSE_CUDA(cudaEventRecord(site->entered, other));
    COPSE_CUDA(cudaStreamWaitEvent(stream, site->entered, 0));
  }
  /* Launches of a communicator come one after the other, whatever their streams. Those of
   * another graph, or outside of this one, are ordered by whoever launches the graph. */
  unsigned long long capture = capture_of(stream);
  *last = capture ? &site->captured : &site->eager;
  if (capture && capture != site->capture) site->captured.launched = false;
  if (capture) {
    site->capture = capture;
    site->untracked = true;
  }
  COPSE_CHECK(identity_of(stream, capture, &id, err));
  if ((*last)->launched && (*last)->stream != id)
    COPSE_CUDA(cudaStreamWaitEvent(stream, (*last)->done, 0));
  (*last)->stream = id;
  return COPSE_OK;
}

static copse_status split_streams(struct copse_cuda_machine *m, uint32_t s,
                                  const struct copse_call *calls, cudaStream_t stream,
                                  struct copse_last_launch *last, struct copse_err *err) {
  COPSE_CUDA(cudaEventRecord(last->done, stream));
  last->launched = true;
  for (uint32_t i = 0; i < m->n_local; i++) {
    cudaStream_t other = (cudaStream_t)calls[i].stream;
    if (m->site_of[i] == s && other != stream)
      COPSE_CUDA(cudaStreamWaitEvent(other, last->done, 0));
  }
  return COPSE_OK;
}

static cudaStream_t stream_of_site(const struct copse_cuda_machine *m, uint32_t s,
                                   const struct copse_call *calls) {
  for (uint32_t i = 0; i < m->n_local; i++)
    if (m->site_of[i] == s) return (cudaStream_t)calls[i].stream;
  return NULL;
}

/* ---- outputs that peers write ---------------------------------------------------------------- */

/* The registered buffer that holds the output, or NULL. */
static const struct copse_cuda_buffer *registered(const struct copse_cuda_machine *m,
                                                  const void *output, uint64_t bytes) {
  const unsigned char *at = (const unsigned char *)output;
  for (const struct copse_cuda_buffer *b = m->buffers; b; b = b->next)
    if (at >= b->start && bytes <= b->bytes && (uint64_t)(at - b->start) <= b->bytes - bytes)
      return b;
  return NULL;
}

/* One part of a message: elements [first, first + count) of every block. */
struct part {
  uint64_t first, count, whole;
  bool staged;
  const struct copse_cuda_buffer *buffer;
  const uint64_t *host_counts; /* counts of pairs, where the host is to size messages by them */
};

static void fill_buffers(const struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                         const struct copse_call *calls, const struct part *part,
                         uint32_t element_bytes, struct copse_launch_args *args) {
  uint64_t skip = part->first * element_bytes;
  for (uint32_t r = 0; r < m->n_ranks; r++) args->buffers[r].input = args->buffers[r].output = NULL;
  for (uint32_t i = 0; i < m->n_local; i++) {
    struct copse_launch_args::copse_rank_buffers *own = &args->buffers[m->first_local + i];
    own->input = (unsigned char *)(uintptr_t)calls[i].send;
    own->output = (unsigned char *)calls[i].recv;
    if (own->input) own->input += skip;
    if (own->output) own->output += skip;
  }
  if (!m->many_processes || !p->puts) return;
  uint64_t offset = part->buffer ? (uint64_t)((unsigned char *)calls[0].recv - part->buffer->start)
                                 : 0;
  for (uint32_t r = 0; r < m->n_ranks; r++)
    if (m->host_of[r] == m->host_of[m->first_local])
      args->buffers[r].output =
          part->buffer ? part->buffer->mapped[r] + offset + skip : p->staging[r];
}

/* Where a block isn't full, what lies behind its end stays as it is. */
static copse_status unstage_pairs(const struct copse_cuda_machine *m,
                                  const struct copse_cuda_plan *p, const struct copse_call *call,
                                  const struct part *part, uint32_t element_bytes,
                                  struct copse_err *err) {
  struct copse_unstage_args args = {p->staging[m->first_local],
                                    (unsigned char *)call->recv,
                                    call->pair_counts,
                                    part->first,
                                    part->count,
                                    part->whole,
                                    m->n_ranks,
                                    m->first_local,
                                    element_bytes};
  void *arguments[] = {&args};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_unstage_kernel()), dim3(m->n_ranks),
                              dim3(copse_cuda_threads), arguments, 0,
                              (cudaStream_t)call->stream));
  return COPSE_OK;
}

/* `n` rows of `row` bytes that lie one after the other, to rows `pitch` bytes apart. */
static copse_status copy_rows(const struct copse_cuda_machine *m, unsigned char *to,
                              uint64_t pitch, const unsigned char *from, uint64_t row, uint32_t n,
                              cudaStream_t stream, struct copse_err *err) {
  if (n > 1 && pitch <= m->sites[0].max_pitch) {
    COPSE_CUDA(
        cudaMemcpy2DAsync(to, pitch, from, row, row, n, cudaMemcpyDeviceToDevice, stream));
    return COPSE_OK;
  }
  for (uint32_t i = 0; i < n; i++)
    COPSE_CUDA(cudaMemcpyAsync(to + i * pitch, from + i * row, row, cudaMemcpyDeviceToDevice,
                               stream));
  return COPSE_OK;
}

/* From the staging buffer to where the caller wants it. */
static copse_status unstage(const struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                            const struct copse_call *call, const struct part *part,
                            uint32_t element_bytes, struct copse_err *err) {
  if (part->staged && call->pair_counts)
    return unstage_pairs(m, p, call, part, element_bytes, err);
  unsigned char *to = (unsigned char *)call->recv + part->first * element_bytes;
  if (!part->staged || !to) return COPSE_OK;
  return copy_rows(m, to, part->whole * element_bytes, p->staging[m->first_local],
                   part->count * element_bytes, p->plan->header.output_blocks,
                   (cudaStream_t)call->stream, err);
}

/* ---- launching --------------------------------------------------------------------------------- */

copse_status copse_cuda_launch_site(const struct copse_cuda_machine *m,
                                    const struct copse_cuda_plan *p, uint32_t s,
                                    cudaStream_t stream, struct copse_launch_args *args,
                                    struct copse_err *err) {
  bool reduces = copse_collective_reduces((copse_collective)p->plan->header.collective);
  const struct copse_site_plan *site = &p->sites[s];
  if (site->n_blocks == 0) return COPSE_OK;
  cudaLaunchAttribute together = cudaLaunchAttribute();
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = cudaLaunchConfig_t();
  config.gridDim = dim3(site->n_blocks);
  config.blockDim = dim3(site->n_threads);
  config.dynamicSmemBytes = copse_kernel_shared_bytes();
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  void *arguments[] = {args};
  copse_on_device here(m->sites[s].device);
  copse_kernel kernel = copse_kernel_of((copse_type)args->type, reduces);
  COPSE_CUDA(cudaLaunchKernelExC(&config, COPSE_KERNEL_ADDRESS(kernel), arguments));
  return COPSE_OK;
}

/* Counts of pairs in page-locked memory the host reads as well: messages are then no larger. */
static copse_status find_counts(const struct copse_cuda_plan *p, const struct copse_call *call,
                                const uint64_t **counts, struct copse_err *err) {
  struct cudaPointerAttributes it;
  *counts = NULL;
  if (!p->split || !call->pair_counts) return COPSE_OK;
  *counts = call->host_counts;
  if (*counts) return COPSE_OK;
  COPSE_CUDA(cudaPointerGetAttributes(&it, call->pair_counts));
  if (it.type == cudaMemoryTypeHost) *counts = (const uint64_t *)it.hostPointer;
  return COPSE_OK;
}

/* Elements of the longest block. All ranks have the same counts, and find the same. */
static uint64_t longest(const uint64_t *counts, uint32_t n_ranks, uint64_t count) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < (uint64_t)n_ranks * n_ranks; i++)
    if (counts[i] > most) most = counts[i];
  return most < count ? most : count;
}

static copse_status launch_part(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                                const struct copse_call *calls, const struct part *part,
                                struct copse_err *err) {
  struct copse_launch_args args;
  uint32_t element_bytes = (uint32_t)copse_type_bytes(calls[0].type);
  memset(&args, 0, sizeof args);
  COPSE_CHECK(copse_layout_shape(&p->layout, part->count, element_bytes, &args.shape, err));
  args.shape.input_stride = part->whole;
  args.shape.output_stride = part->staged ? part->count : part->whole;
  args.pair_counts = calls[0].pair_counts;
  args.host_counts = part->host_counts;
  args.pair_first = part->first;
  args.limit_ns = m->limit_ns;
  args.ends = 1;
  args.type = (uint32_t)calls[0].type;
  args.redop = (uint32_t)calls[0].redop;
  if (!copse_collective_reduces((copse_collective)p->plan->header.collective))
    args.redop = COPSE_SUM;
  fill_buffers(m, p, calls, part, element_bytes, &args);
  for (uint32_t s = 0; s < m->n_sites; s++) {
    cudaStream_t stream = stream_of_site(m, s, calls);
    copse_on_device here(m->sites[s].device);
    struct copse_last_launch *last;
    copse_status status = join_streams(m, s, calls, stream, &last, err);
    args.plan = p->sites[s].device[0];
    if (status == COPSE_OK)
      status = p->split ? copse_cuda_launch_rounds(m, p, stream, &args, err)
                        : copse_cuda_launch_site(m, p, s, stream, &args, err);
    if (status == COPSE_OK) status = unstage(m, p, &calls[0], part, element_bytes, err);
    if (status == COPSE_OK) status = split_streams(m, s, calls, stream, last, err);
    if (status == COPSE_OK) continue;
    m->sites[s].untracked = true;
    return status;
  }
  return COPSE_OK;
}

copse_status copse_cuda_launch(void *machine, void *prepared, const struct copse_call *calls,
                               struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  struct copse_cuda_plan *p = (struct copse_cuda_plan *)prepared;
  uint64_t count = calls[0].count, bytes = copse_type_bytes(calls[0].type);
  struct part part = {0, count, count, false, NULL, NULL};
  COPSE_CHECK(copse_cuda_check_left(m, err));
  for (uint32_t i = 0; i < m->n_local && m->n_sites > 1 && p->puts; i++)
    COPSE_CHECK(copse_cuda_check_reach(m, i, calls[i].recv, err));
  COPSE_CHECK(find_counts(p, &calls[0], &part.host_counts, err));
  /* behind the longest block nothing moves */
  if (part.host_counts) part.count = count = longest(part.host_counts, m->n_ranks, count);
  if (count == 0) return COPSE_OK; /* packets would say nothing: see copse_next_epoch */
  if (m->many_processes && p->puts) {
    /* of a reduction only the root need give an output: no rank knows of another's */
    if (calls[0].collective != COPSE_REDUCE)
      part.buffer =
          registered(m, calls[0].recv, part.whole * bytes * p->plan->header.output_blocks);
    part.staged = part.buffer == NULL;
  }
  if (!part.staged) return launch_part(m, p, calls, &part, err);
  uint64_t most = copse_cuda_staging_bytes / bytes;
  for (part.first = 0; part.first < count; part.first += part.count) {
    part.count = count - part.first < most ? count - part.first : most;
    COPSE_CHECK(launch_part(m, p, calls, &part, err));
  }
  return COPSE_OK;
}
