/*
 * One collective on the GPUs: arguments, streams, and parts for outputs that aren't shared.
 *
 *   ranks' streams   --+              +--> each rank's stream waits for the end
 *   of one device    --+-> kernel ----+
 *                      ^   (first rank's stream)
 *   last launch's end -+   launches of a communicator follow each other, whatever their streams
 *
 * Several processes: peers write an output in place where its buffer is registered. Else they write
 * a staging buffer, which is copied out. In host memory, and without registration, where some GPU
 * doesn't reach another one's memory; then also in one process. Large messages move part by part,
 * each in the half of the staging that the part before doesn't use: a stream of the backend's copies
 * one out while the kernel moves the next one.
 *
 *   kernels   | part 0 | part 1 | part 2 |        | <- end
 *   copies             |   0    |   1    |   2    |
 *   half           0        1        0
 *
 * Graphs: a launch of a graph and a launch outside of it use the same counters and slots. So the
 * event of the last launch is also what a graph waits for before its first launch and what it
 * records after each, as NCCL does (cudaEventWaitExternal, cudaEventRecordExternal: as of when the
 * graph is launched). NCCL_GRAPH_MIXING_SUPPORT=0 leaves that out, as in NCCL.
 *
 * Kernels of others that need other ranks' (NCCL's) run on the same GPU at the same time unless
 * somebody orders them, and two ranks may each hold the multiprocessors that the other one's kernel
 * waits for. For work on the communicator that the drop-in serves, copse_cuda_follow and
 * copse_cuda_lead order it. For other communicators the rule is NCCL's: all ranks order such calls
 * alike, on one stream or by events.
 */
#include "runtime/gpu/cuda_backend.h"

bool copse_cuda_system;
uint32_t copse_cuda_threads = COPSE_CUDA_MAX_THREADS;
uint64_t copse_cuda_staging_bytes = (uint64_t)96 << 20;

/* ---- streams --------------------------------------------------------------------------- */

/* A number that no other stream has or had, since a handle may be used again when its stream is
 * gone. A stream that is being captured can't be, and must not be queried. */
static copse_status identity_of(cudaStream_t stream, unsigned long long capture,
                                unsigned long long *id, struct copse_err *err) {
  *id = (unsigned long long)(uintptr_t)stream;
  if (!capture) COPSE_CUDA(cudaStreamGetId(stream, id));
  return COPSE_OK;
}

/* The first launch in a capture: the graph will wait for what was launched before it. */
static copse_status enter_capture(const struct copse_cuda *cuda, struct copse_cuda_device *device,
                                  unsigned long long capture, cudaStream_t stream,
                                  struct copse_err *err) {
  device->captured.launched = false;
  device->capture = capture;
  device->untracked = true;
  if (!cuda->mixes_graphs) return COPSE_OK;
  device->in_graphs = true;
  COPSE_CUDA(cudaStreamWaitEvent(stream, device->eager.done, cudaEventWaitExternal));
  return COPSE_OK;
}

/* Lets the stream wait for the last launch. *last: where to record what follows. */
static copse_status join_last(const struct copse_cuda *cuda, struct copse_cuda_device *device,
                              cudaStream_t stream, struct copse_last_launch **last,
                              struct copse_err *err) {
  unsigned long long id = 0;
  const struct copse_capture in = copse_capture_of(stream);
  unsigned long long capture = in.status == cudaStreamCaptureStatusActive ? in.id : 0;
  *last = capture ? &device->captured : &device->eager;
  if (capture && capture != device->capture)
    COPSE_DO(enter_capture(cuda, device, capture, stream, err));
  COPSE_DO(identity_of(stream, capture, &id, err));
  const bool moved = (*last)->launched && (*last)->stream != id;
  if (moved || (!capture && device->in_graphs)) /* a graph's stream isn't known */
    COPSE_CUDA(cudaStreamWaitEvent(stream, (*last)->done, 0));
  (*last)->stream = id;
  return COPSE_OK;
}

static copse_status record_last(const struct copse_cuda *cuda, struct copse_cuda_device *device,
                                cudaStream_t stream, struct copse_last_launch *last,
                                struct copse_err *err) {
  if (last == &device->captured && cuda->mixes_graphs)
    COPSE_CUDA(cudaEventRecordWithFlags(device->eager.done, stream, cudaEventRecordExternal));
  COPSE_CUDA(cudaEventRecord(last->done, stream)); /* after it: other streams join both */
  last->launched = true;
  return COPSE_OK;
}

copse_status copse_cuda_follow(void *backend, uint32_t local_rank, copse_stream stream,
                               struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_device *device = &cuda->devices[cuda->device_of[local_rank]];
  struct copse_last_launch *last;
  copse_on_device here(device->ordinal);
  return join_last(cuda, device, (cudaStream_t)stream, &last, err);
}

copse_status copse_cuda_lead(void *backend, uint32_t local_rank, copse_stream stream,
                             struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_device *device = &cuda->devices[cuda->device_of[local_rank]];
  struct copse_last_launch *last;
  copse_on_device here(device->ordinal);
  COPSE_DO(join_last(cuda, device, (cudaStream_t)stream, &last, err));
  return record_last(cuda, device, (cudaStream_t)stream, last, err);
}

/* Whether a stream of the backend's can follow the caller's. One that has followed into a capture
 * stays in it until the capture ends, and must not be used for anything else. */
static bool can_follow(cudaStream_t own, const struct copse_capture *capture) {
  const struct copse_capture it = copse_capture_of(own);
  return it.status == cudaStreamCaptureStatusNone ||
         (it.status == capture->status && it.id == capture->id);
}

copse_status copse_cuda_own_stream(struct copse_cuda_device *device, cudaStream_t beside,
                                   cudaStream_t *stream, struct copse_err *err) {
  const struct copse_capture capture = copse_capture_of(beside);
  size_t i = 0;
  while (i < device->n_own && (device->own[i] == beside || !can_follow(device->own[i], &capture)))
    i++;
  if (i == device->n_own) {
    copse_beside_captures permitted;
    COPSE_DO(COPSE_GROW(device->own, device->own_capacity, i + 1, err));
    COPSE_CUDA(cudaStreamCreateWithFlags(&device->own[i], cudaStreamNonBlocking));
    device->n_own++;
  }
  *stream = device->own[i];
  return COPSE_OK;
}

/* Lets `stream`, the first rank's, wait for those of the device's other ranks and for the last
 * launch. *last: where to record this launch. */
static copse_status join_streams(struct copse_cuda *cuda, uint32_t d,
                                 const struct copse_call *calls, cudaStream_t stream,
                                 struct copse_last_launch **last, struct copse_err *err) {
  struct copse_cuda_device *device = &cuda->devices[d];
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    cudaStream_t other = (cudaStream_t)calls[i].stream;
    if (cuda->device_of[i] != d || other == stream) continue;
    COPSE_CUDA(cudaEventRecord(device->entered, other));
    COPSE_CUDA(cudaStreamWaitEvent(stream, device->entered, 0));
  }
  return join_last(cuda, device, stream, last, err);
}

static copse_status split_streams(struct copse_cuda *cuda, uint32_t d,
                                  const struct copse_call *calls, cudaStream_t stream,
                                  struct copse_last_launch *last, struct copse_err *err) {
  COPSE_DO(record_last(cuda, &cuda->devices[d], stream, last, err));
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    cudaStream_t other = (cudaStream_t)calls[i].stream;
    if (cuda->device_of[i] == d && other != stream)
      COPSE_CUDA(cudaStreamWaitEvent(other, last->done, 0));
  }
  return COPSE_OK;
}

static cudaStream_t stream_of_device(const struct copse_cuda *cuda, uint32_t d,
                                     const struct copse_call *calls) {
  for (uint32_t i = 0; i < cuda->n_local; i++)
    if (cuda->device_of[i] == d) return (cudaStream_t)calls[i].stream;
  return NULL;
}

/* ---- outputs that peers write ---------------------------------------------------------------- */

/* The registered buffer that holds the output, or NULL. */
static const struct copse_cuda_buffer *registered(const struct copse_cuda *cuda, const void *output,
                                                  uint64_t bytes) {
  const unsigned char *at = (const unsigned char *)output;
  for (const struct copse_cuda_buffer *b = cuda->buffers; b; b = b->next)
    if (at >= b->start && bytes <= b->bytes && (uint64_t)(at - b->start) <= b->bytes - bytes)
      return b;
  return NULL;
}

/* One part of a message: elements [first, first + count) of every block. */
struct part {
  uint64_t first, count, whole;
  bool staged;
  bool only, last; /* of the staged ones; the only one is copied out where the kernel runs */
  uint32_t half;   /* of the staging */
  const struct copse_cuda_buffer *buffer;
  const uint64_t *host_counts; /* counts of pairs where the host sizes messages by them; or NULL */
};

static uint64_t half_bytes(void) { return copse_round_down(copse_cuda_staging_bytes / 2, 256); }

/* Where a part is in a rank's staging. */
static unsigned char *staged_at(const struct copse_cuda *cuda, uint32_t rank,
                                const struct part *part) {
  return cuda->staging->at[rank] + part->half * half_bytes();
}

static void fill_buffers(const struct copse_cuda *cuda, const struct copse_call *calls,
                         const struct part *part, uint32_t element_bytes,
                         struct copse_launch_args *args) {
  uint64_t skip = part->first * element_bytes;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    args->buffers[r].input = args->buffers[r].output = NULL;
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    struct copse_launch_args::copse_rank_buffers *own = &args->buffers[cuda->first_local + i];
    own->input = (unsigned char *)(uintptr_t)calls[i].send;
    own->output = (unsigned char *)calls[i].recv;
    if (own->input) own->input += skip;
    if (own->output) own->output += skip;
  }
  if (!part->staged && !part->buffer) return;
  uint64_t offset =
      part->buffer ? (uint64_t)((unsigned char *)calls[0].recv - part->buffer->start) : 0;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    if (cuda->host_of[r] == cuda->host_of[cuda->first_local])
      args->buffers[r].output =
          part->buffer ? part->buffer->area.at[r] + offset + skip : staged_at(cuda, r, part);
}

/* Copies out an alltoall's blocks. What lies behind the end of a block that isn't full keeps its
 * value. */
static copse_status unstage_pairs(const struct copse_cuda *cuda, uint32_t rank,
                                  const struct copse_call *call, const struct part *part,
                                  uint32_t element_bytes, cudaStream_t stream,
                                  struct copse_err *err) {
  struct copse_unstage_args args = {staged_at(cuda, rank, part),
                                    (unsigned char *)call->recv,
                                    call->pair_counts,
                                    part->first,
                                    part->count,
                                    part->whole,
                                    cuda->n_ranks,
                                    rank,
                                    element_bytes};
  void *arguments[] = {&args};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(copse_unstage_kernel()), dim3(cuda->n_ranks),
                              dim3(copse_cuda_threads), arguments, 0, stream));
  return COPSE_OK;
}

/* Copies a rank's staging buffer to the caller's output: of each block this part. */
static copse_status unstage(const struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                            uint32_t rank, const struct copse_call *call, const struct part *part,
                            uint32_t element_bytes, cudaStream_t stream, struct copse_err *err) {
  if (call->pair_counts) return unstage_pairs(cuda, rank, call, part, element_bytes, stream, err);
  if (!call->recv) return COPSE_OK;
  unsigned char *to = (unsigned char *)call->recv + part->first * element_bytes;
  const unsigned char *from = staged_at(cuda, rank, part);
  const uint64_t row = part->count * element_bytes, pitch = part->whole * element_bytes;
  const uint32_t n = p->plan->header.output_blocks;
  if (n > 1 && pitch <= cuda->devices[0].max_pitch) {
    COPSE_CUDA(cudaMemcpy2DAsync(to, pitch, from, row, row, n, cudaMemcpyDefault, stream));
    return COPSE_OK;
  }
  for (uint32_t i = 0; i < n; i++)
    COPSE_CUDA(cudaMemcpyAsync(to + i * pitch, from + i * row, row, cudaMemcpyDefault, stream));
  return COPSE_OK;
}

/* Waits on the device until nothing is copied out of a half any more. */
static copse_status await_copies(struct copse_cuda_device *device, uint32_t half,
                                 cudaStream_t stream, struct copse_err *err) {
  if (!device->copying[half]) return COPSE_OK;
  COPSE_CUDA(cudaStreamWaitEvent(stream, device->copied[half], 0));
  device->copying[half] = false;
  return COPSE_OK;
}

/* Copies out what has moved to the ranks of a device, behind the kernel where it is all, else beside
 * the next part's. Where no stream can be had for that, behind it too. */
static copse_status unstage_device(struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                                   uint32_t d, const struct copse_call *calls,
                                   const struct part *part, uint32_t element_bytes,
                                   cudaStream_t stream, struct copse_err *err) {
  struct copse_cuda_device *device = &cuda->devices[d];
  cudaStream_t aside = stream;
  if (!part->only) (void)copse_cuda_own_stream(device, stream, &aside, NULL);
  if (aside != stream) {
    COPSE_CUDA(cudaEventRecord(device->moved, stream));
    COPSE_CUDA(cudaStreamWaitEvent(aside, device->moved, 0));
  }
  for (uint32_t i = 0; i < cuda->n_local; i++)
    if (cuda->device_of[i] == d)
      COPSE_DO(unstage(cuda, p, cuda->first_local + i, &calls[i], part, element_bytes, aside, err));
  if (aside != stream) {
    COPSE_CUDA(cudaEventRecord(device->copied[part->half], aside));
    device->copying[part->half] = true;
  }
  for (uint32_t half = 0; part->last && half < 2; half++)
    COPSE_DO(await_copies(device, half, stream, err));
  return COPSE_OK;
}

/* ---- launching ------------------------------------------------------------------------ */

copse_status copse_cuda_launch_kernel(const struct copse_cuda *cuda,
                                      const struct copse_cuda_plan *p, uint32_t d,
                                      cudaStream_t stream, struct copse_launch_args *args,
                                      struct copse_err *err) {
  bool reduces = copse_collective_reduces((copse_collective)p->plan->header.collective);
  const struct copse_plan_on_device *on = &p->devices[d];
  if (on->n_blocks == 0) return COPSE_OK;
  cudaLaunchAttribute together = cudaLaunchAttribute();
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = cudaLaunchConfig_t();
  config.gridDim = dim3(on->n_blocks);
  config.blockDim = dim3(on->n_threads);
  config.dynamicSmemBytes = copse_kernel_shared_bytes();
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  void *arguments[] = {args};
  copse_on_device here(cuda->devices[d].ordinal);
  copse_kernel kernel = copse_kernel_of((copse_type)args->type, reduces);
  COPSE_CUDA(cudaLaunchKernelExC(&config, COPSE_KERNEL_ADDRESS(kernel), arguments));
  return COPSE_OK;
}

/* The counts of pairs as the host can read them, or NULL: the caller's own host copy, or the counts
 * themselves where they are in page-locked memory. With them messages are no larger than needed. */
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

/* Elements of the longest block. All ranks have the same counts, so all find the same. */
static uint64_t longest(const uint64_t *counts, uint32_t n_ranks, uint64_t count) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < (uint64_t)n_ranks * n_ranks; i++)
    if (counts[i] > most) most = counts[i];
  return most < count ? most : count;
}

static copse_status launch_part(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                const struct copse_call *calls, const struct part *part,
                                struct copse_err *err) {
  struct copse_launch_args args;
  uint32_t element_bytes = (uint32_t)copse_type_bytes(calls[0].type);
  memset(&args, 0, sizeof args);
  COPSE_DO(copse_layout_shape(&p->layout, part->count, element_bytes, &args.shape, err));
  args.shape.input_stride = part->whole;
  args.shape.output_stride = part->staged ? part->count : part->whole;
  args.pair_counts = calls[0].pair_counts;
  args.host_counts = part->host_counts;
  args.pair_first = part->first;
  args.limit_ns = cuda->limit_ns;
  args.ends = 1;
  args.type = (uint32_t)calls[0].type;
  args.redop = (uint32_t)calls[0].redop;
  if (!copse_collective_reduces((copse_collective)p->plan->header.collective))
    args.redop = COPSE_SUM;
  fill_buffers(cuda, calls, part, element_bytes, &args);
  for (uint32_t d = 0; d < cuda->n_devices; d++) {
    cudaStream_t stream = stream_of_device(cuda, d, calls);
    copse_on_device here(cuda->devices[d].ordinal);
    if (p->split) COPSE_DO(copse_internode_find_stream(cuda, &stream, err));
    struct copse_last_launch *last;
    copse_status status = join_streams(cuda, d, calls, stream, &last, err);
    if (part->first == 0) cuda->devices[d].copying[0] = cuda->devices[d].copying[1] = false;
    if (status == COPSE_OK) status = await_copies(&cuda->devices[d], part->half, stream, err);
    args.plan = p->devices[d].plan;
    if (status == COPSE_OK)
      status = p->split ? copse_internode_launch(cuda, p, stream, &args, err)
                        : copse_cuda_launch_kernel(cuda, p, d, stream, &args, err);
    if (part->staged && status == COPSE_OK)
      status = unstage_device(cuda, p, d, calls, part, element_bytes, stream, err);
    if (status == COPSE_OK) status = split_streams(cuda, d, calls, stream, last, err);
    if (status == COPSE_OK) continue;
    cuda->devices[d].untracked = true;
    return status;
  }
  return COPSE_OK;
}

/* Elements of a block that are staged at a time: all, or equal parts in whole lines of memory. What
 * a third of the staging takes isn't worth a second launch (12 us of copies against about as much). */
static uint64_t part_elements(const struct copse_cuda_plan *p, uint64_t count,
                              uint64_t element_bytes) {
  const uint64_t n = p->plan->header.output_blocks, most = half_bytes() / n;
  if (count * element_bytes <= copse_cuda_staging_bytes / 3 / n) return count;
  const uint64_t n_parts = (count * element_bytes + most - 1) / most;
  uint64_t bytes = (count + n_parts - 1) / n_parts * element_bytes;
  if (most >= 4096) bytes = copse_round_down(bytes + 511, 512);
  if (bytes > most) bytes = most >= 4096 ? copse_round_down(most, 512) : most;
  return bytes > element_bytes ? bytes / element_bytes : 1;
}

copse_status copse_cuda_launch(void *backend, void *prepared, const struct copse_call *calls,
                               struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_plan *p = (struct copse_cuda_plan *)prepared;
  uint64_t count = calls[0].count, bytes = copse_type_bytes(calls[0].type);
  struct part part = {0, count, count, false, false, false, 0, NULL, NULL};
  COPSE_DO(copse_cuda_check_left(cuda, err));
  for (uint32_t i = 0; i < cuda->n_local && cuda->n_devices > 1 && p->puts && !cuda->has_mirrors;
       i++)
    COPSE_DO(copse_cuda_check_reach(cuda, i, calls[i].recv, err));
  COPSE_DO(find_counts(p, &calls[0], &part.host_counts, err));
  /* nothing moves behind the longest block */
  if (part.host_counts) part.count = count = longest(part.host_counts, cuda->n_ranks, count);
  if (count == 0) return COPSE_OK; /* no packet would be sent: see copse_next_epoch */
  if ((cuda->many_processes || cuda->has_mirrors) && p->puts) {
    /* in a reduction only the root need give an output, and no rank knows another's */
    if (calls[0].collective != COPSE_REDUCE)
      part.buffer =
          registered(cuda, calls[0].recv, part.whole * bytes * p->plan->header.output_blocks);
    part.staged = part.buffer == NULL;
  }
  if (!part.staged) return launch_part(cuda, p, calls, &part, err);
  const uint64_t most = part_elements(p, count, bytes);
  part.only = most >= count;
  for (part.first = 0; part.first < count; part.first += part.count, part.half ^= 1) {
    part.count = count - part.first < most ? count - part.first : most;
    part.last = part.first + part.count == count;
    COPSE_DO(launch_part(cuda, p, calls, &part, err));
  }
  return COPSE_OK;
}
