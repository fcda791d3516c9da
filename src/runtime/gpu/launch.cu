/*
 * Collectives on the GPUs: arguments, streams, and parts for outputs that aren't shared.
 *
 *   ranks' streams   --+              +--> each rank's stream waits for the end
 *   of one device    --+-> kernel ----+
 *                      ^   (first rank's stream)
 *   last launch's end -+   launches of a communicator follow each other, whatever their streams
 *
 * Calls of a group on one stream share a launch: the kernel runs them one after another, and
 * between two of them all of a GPU's blocks meet (kernels.cu), so that other ranks can't tell
 * whether they do. So each process decides by itself how many go together, by what a kernel's
 * arguments hold, the kernel's type, the blocks' width, and whether a call needs what is copied out
 * behind the kernel.
 *
 * A kernel of several blocks is launched cooperatively: all of its blocks start or none does. That
 * all fit an empty GPU isn't enough. Blocks wait for each other, and where another kernel that
 * waits for its peers (NCCL's, another communicator's) holds some multiprocessors, each of the two
 * may get a part of what it needs and wait for ever; a stream may also have only a part of the GPU
 * (green contexts). Nothing that a library can ask says that this isn't so. A kernel of one block
 * needs no such promise.
 *
 * Several processes: peers write an output in place where its buffer is registered. Else they write
 * a staging buffer, which is copied out. In host memory, and without registration, where some GPU
 * doesn't reach another one's memory; then also in one process. Large messages move part by part,
 * each in the half of the staging that the part before doesn't use: a stream of the backend's
 * copies one out while the kernel moves the next one.
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

/* Finds a number that no other stream has or had, since a handle may be used again when its stream
 * is gone. A stream that is being captured can't be, and must not be queried. */
static copse_status identity_of(cudaStream_t stream, unsigned long long capture,
                                unsigned long long *id, struct copse_err *err) {
  *id = (unsigned long long)(uintptr_t)stream;
  if (!capture) COPSE_CUDA(cudaStreamGetId(stream, id));
  return COPSE_OK;
}

/* Enters a capture by its first launch: the graph will wait for what was launched before it. */
static copse_status enter_capture(const struct copse_cuda *cuda, struct copse_cuda_device *device,
                                  cudaStream_t stream, struct copse_captured_launch *it,
                                  unsigned long long capture, struct copse_err *err) {
  it->last.launched = false;
  it->capture = capture;
  device->n_captures++;
  device->untracked = true;
  if (!cuda->mixes_graphs) return COPSE_OK;
  device->in_graphs = true;
  COPSE_CUDA(cudaStreamWaitEvent(stream, device->eager.done, cudaEventWaitExternal));
  return COPSE_OK;
}

/* Returns where the capture's last launch is kept. One capture too many takes the oldest one's
 * place, which has most likely ended: order is lost only where more than COPSE_CUDA_CAPTURES are
 * open and take turns. */
static struct copse_captured_launch *place_of(struct copse_cuda_device *device,
                                              unsigned long long capture) {
  for (struct copse_captured_launch &it : device->captured)
    if (it.capture == capture) return &it;
  return &device->captured[device->n_captures % COPSE_CUDA_CAPTURES];
}

/* Lets the stream wait for the last launch. *last: where to record what follows. */
static copse_status join_last(const struct copse_cuda *cuda, struct copse_cuda_device *device,
                              cudaStream_t stream, struct copse_last_launch **last,
                              struct copse_err *err) {
  unsigned long long id = 0;
  const struct copse_capture in = copse_capture_of(stream);
  unsigned long long capture = in.status == cudaStreamCaptureStatusActive ? in.id : 0;
  struct copse_captured_launch *captured = capture ? place_of(device, capture) : NULL;
  *last = captured ? &captured->last : &device->eager;
  if (captured && captured->capture != capture)
    COPSE_DO(enter_capture(cuda, device, stream, captured, capture, err));
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
  if (last != &device->eager && cuda->mixes_graphs)
    COPSE_CUDA(cudaEventRecordWithFlags(device->eager.done, stream, cudaEventRecordExternal));
  COPSE_CUDA(cudaEventRecord(last->done, stream)); /* last: others wait for both by it */
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

/* Returns the registered buffer that holds the output, or NULL. */
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
  uint32_t half;   /* of the staging, which copies are waited for in */
  uint64_t at;     /* bytes from its start */
  const struct copse_cuda_buffer *buffer;
  const uint64_t *host_counts; /* counts of pairs where the host sizes messages by them; or NULL */
};

static uint64_t half_bytes(void) { return copse_round_down(copse_cuda_staging_bytes / 2, 256); }

/* Returns where a part is in a rank's staging. */
static unsigned char *staged_at(const struct copse_cuda *cuda, uint32_t rank,
                                const struct part *part) {
  return cuda->staging->at[rank] + part->at;
}

static void fill_buffers(const struct copse_cuda *cuda, const struct copse_call *calls,
                         const struct part *part, uint32_t element_bytes,
                         struct copse_launch_args *args) {
  uint64_t skip = part->first * element_bytes;
  for (uint32_t r = 0; r < cuda->n_ranks; r++)
    args->buffers[r].input = args->buffers[r].output = NULL;
  for (uint32_t i = 0; i < cuda->n_local; i++) {
    struct copse_rank_buffers *own = &args->buffers[cuda->first_local + i];
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
  /* what others of a reduction name is no output */
  if (call->collective == COPSE_REDUCE && call->root != (int)rank) return COPSE_OK;
  unsigned char *to = (unsigned char *)call->recv + part->first * element_bytes;
  const unsigned char *from = staged_at(cuda, rank, part);
  const uint64_t row = part->count * element_bytes, pitch = part->whole * element_bytes;
  const uint32_t n = p->plan->header.output_blocks;
  if (n > 1 && pitch <= cuda->devices[cuda->device_of[rank - cuda->first_local]].max_pitch) {
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

/* ---- launching ------------------------------------------------------------------------ */

/* A kernel's argument while it is put together, and what the launch needs beside it. */
struct packed {
  struct copse_kernel_args args;
  uint32_t n_blocks, n_threads;
  bool reduces;
  copse_type type; /* the element type, where it reduces */
};

static bool reduces(const struct copse_cuda_plan *p) {
  return copse_collective_reduces((copse_collective)p->plan->header.collective);
}

static void begin_packing(struct packed *it) {
  it->args.n_calls = it->args.call_bytes = 0;
  it->n_blocks = it->n_threads = 0;
  it->reduces = false;
  it->type = COPSE_UINT8;
}

/* Adds a call. The ranks of all are as many. */
static void pack(struct packed *it, const struct copse_cuda_plan *p, uint32_t d,
                 const struct copse_launch_args *args) {
  const struct copse_plan_on_device *on = &p->devices[d];
  const uint32_t n_ranks = p->plan->header.n_ranks;
  if (on->n_blocks == 0) return;
  it->args.call_bytes = copse_call_bytes(n_ranks);
  unsigned char *at = (unsigned char *)it->args.calls + it->args.n_calls++ * it->args.call_bytes;
  struct copse_call_args call = *args;
  call.plan = on->plan;
  memcpy(at, &call, sizeof call);
  memcpy(at + sizeof call, args->buffers, n_ranks * sizeof *args->buffers);
  if (on->n_blocks > it->n_blocks) it->n_blocks = on->n_blocks;
  it->n_threads = on->n_threads;
  if (!reduces(p)) return;
  it->reduces = true;
  it->type = (copse_type)args->type;
}

static copse_status launch_packed(const struct copse_cuda *cuda, uint32_t d, cudaStream_t stream,
                                  struct packed *it, struct copse_err *err) {
  if (it->n_blocks == 0) return COPSE_OK;
  cudaLaunchAttribute together = cudaLaunchAttribute();
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = cudaLaunchConfig_t();
  config.gridDim = dim3(it->n_blocks);
  config.blockDim = dim3(it->n_threads);
  config.dynamicSmemBytes = copse_kernel_shared_bytes();
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = it->n_blocks > 1; /* see above */
  void *arguments[] = {&it->args};
  copse_on_device here(cuda->devices[d].ordinal);
  copse_kernel kernel = copse_kernel_of(it->type, it->reduces);
  COPSE_CUDA(cudaLaunchKernelExC(&config, COPSE_KERNEL_ADDRESS(kernel), arguments));
  return COPSE_OK;
}

copse_status copse_cuda_launch_kernel(const struct copse_cuda *cuda,
                                      const struct copse_cuda_plan *p, uint32_t d,
                                      cudaStream_t stream, const struct copse_launch_args *args,
                                      struct copse_err *err) {
  struct packed it;
  begin_packing(&it);
  pack(&it, p, d, args);
  return launch_packed(cuda, d, stream, &it, err);
}

/* Finds the counts of pairs as the host can read them, or NULL: the caller's own host copy, or the
 * counts themselves where they are in page-locked memory. With them messages are no larger than
 * needed. */
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

/* Returns the elements of the longest block. All ranks have the same counts, so all find the
 * same. */
static uint64_t longest(const uint64_t *counts, uint32_t n_ranks, uint64_t count) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < (uint64_t)n_ranks * n_ranks; i++)
    if (counts[i] > most) most = counts[i];
  return most < count ? most : count;
}

/* A call, or a part of one, as it is launched. */
struct step {
  struct copse_cuda_plan *p;
  const struct copse_call *calls;
  struct part part;
  uint32_t element_bytes;
  struct copse_launch_args args;
};

static copse_status fill_args(const struct copse_cuda *cuda, struct step *it,
                              struct copse_err *err) {
  const struct part *part = &it->part;
  struct copse_launch_args *args = &it->args;
  static_cast<struct copse_call_args &>(*args) = copse_call_args();
  COPSE_DO(copse_layout_shape(&it->p->layout, part->count, it->element_bytes, &args->shape, err));
  args->shape.input_stride = part->whole;
  args->shape.output_stride = part->staged ? part->count : part->whole;
  args->pair_counts = it->calls[0].pair_counts;
  args->host_counts = part->host_counts;
  args->pair_first = part->first;
  args->limit_ns = cuda->limit_ns;
  args->ends = 1;
  args->type = (uint32_t)it->calls[0].type;
  args->redop = reduces(it->p) ? (uint32_t)it->calls[0].redop : (uint32_t)COPSE_SUM;
  fill_buffers(cuda, it->calls, part, it->element_bytes, args);
  return COPSE_OK;
}

/* Copies out what has moved to the ranks of a device, behind the kernel where it is all, else
 * beside the next part's. Where no stream can be had for that, behind it too. */
static copse_status unstage_device(struct copse_cuda *cuda, uint32_t d, const struct step *it,
                                   cudaStream_t stream, struct copse_err *err) {
  const struct part *part = &it->part;
  struct copse_cuda_device *device = &cuda->devices[d];
  cudaStream_t aside = stream;
  if (!part->only) (void)copse_cuda_own_stream(device, stream, &aside, NULL);
  if (aside != stream) {
    COPSE_CUDA(cudaEventRecord(device->moved, stream));
    COPSE_CUDA(cudaStreamWaitEvent(aside, device->moved, 0));
  }
  for (uint32_t i = 0; i < cuda->n_local; i++)
    if (cuda->device_of[i] == d)
      COPSE_DO(unstage(cuda, it->p, cuda->first_local + i, &it->calls[i], part, it->element_bytes,
                       aside, err));
  if (aside != stream) {
    COPSE_CUDA(cudaEventRecord(device->copied[part->half], aside));
    device->copying[part->half] = true;
  }
  for (uint32_t half = 0; part->last && half < 2; half++)
    COPSE_DO(await_copies(device, half, stream, err));
  return COPSE_OK;
}

static copse_status launch_kernels(struct copse_cuda *cuda, struct step *steps, uint32_t n,
                                   uint32_t d, cudaStream_t stream, struct copse_err *err) {
  struct packed it;
  if (steps->p->split) {
    steps->args.plan = steps->p->devices[d].plan;
    return copse_internode_launch(cuda, steps->p, stream, &steps->args, err);
  }
  begin_packing(&it);
  for (uint32_t i = 0; i < n; i++) pack(&it, steps[i].p, d, &steps[i].args);
  return launch_packed(cuda, d, stream, &it, err);
}

/* Launches n steps on a device, whose calls come on the same streams. */
static copse_status launch_on(struct copse_cuda *cuda, struct step *steps, uint32_t n, uint32_t d,
                              struct copse_err *err) {
  struct copse_cuda_device *device = &cuda->devices[d];
  const struct copse_call *calls = steps->calls;
  cudaStream_t stream = stream_of_device(cuda, d, calls);
  struct copse_last_launch *last;
  copse_on_device here(device->ordinal);
  if (steps->p->split) COPSE_DO(copse_internode_find_stream(cuda, &stream, err));
  COPSE_DO(join_streams(cuda, d, calls, stream, &last, err));
  if (steps->part.first == 0) device->copying[0] = device->copying[1] = false;
  COPSE_DO(await_copies(device, steps->part.half, stream, err));
  COPSE_DO(launch_kernels(cuda, steps, n, d, stream, err));
  for (uint32_t i = 0; i < n; i++)
    if (steps[i].part.staged) COPSE_DO(unstage_device(cuda, d, &steps[i], stream, err));
  return split_streams(cuda, d, calls, stream, last, err);
}

static copse_status launch_steps(struct copse_cuda *cuda, struct step *steps, uint32_t n,
                                 struct copse_err *err) {
  for (uint32_t i = 0; i < n; i++) COPSE_DO(fill_args(cuda, &steps[i], err));
  for (uint32_t d = 0; d < cuda->n_devices; d++) {
    const copse_status status = launch_on(cuda, steps, n, d, err);
    if (status == COPSE_OK) continue;
    cuda->devices[d].untracked = true;
    /* other GPUs, or parts before, may wait for this: it is no refusal, after which all goes on */
    return status == COPSE_NOMEM ? COPSE_DEVICE : status;
  }
  return COPSE_OK;
}

/* Chooses how many elements of a block are staged at a time: all, or equal parts in whole lines of
 * memory. What a third of the staging takes isn't worth a second launch (12 us of copies against
 * about as much). */
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

static uint64_t output_bytes(const struct step *it) {
  return it->part.whole * it->element_bytes * it->p->plan->header.output_blocks;
}

/* Gives a call that is staged whole its place behind the last one: *to. */
static void place_staged(struct step *it, uint64_t *to) {
  const uint64_t bytes = copse_round_up(output_bytes(it), 256);
  it->part.at =
      bytes <= copse_cuda_staging_bytes && *to <= copse_cuda_staging_bytes - bytes ? *to : 0;
  *to = it->part.at + bytes;
}

/* Says once of a multicast plan that a reduction isn't the switch's: then the same plan has each
 * root read all ranks' slots and write all. */
static void tell_no_switch(const struct copse_cuda *cuda, struct copse_cuda_plan *p,
                           const struct copse_call *call) {
  if (!p->grouped || p->logged || copse_kernel_switches(call->type, call->redop)) return;
  p->logged = true;
  copse_debug(COPSE_DEBUG_INFO, (int)cuda->first_local,
              "%s of %s: the switch has no %s of %s, the GPUs do it by themselves",
              copse_collective_name(call->collective), p->plan->name, copse_redop_name(call->redop),
              copse_type_name(call->type));
}

/* Finds what a batch needs, before anything starts. *most: elements of a block that are launched at
 * a time; *staged_to: see struct copse_cuda. */
static copse_status examine(struct copse_cuda *cuda, const struct copse_batch *batch,
                            struct step *it, uint64_t *most, uint64_t *staged_to,
                            struct copse_err *err) {
  struct copse_cuda_plan *p = (struct copse_cuda_plan *)batch->prepared;
  const struct copse_call *calls = batch->calls;
  struct part *part = &it->part;
  it->p = p;
  it->calls = calls;
  it->element_bytes = (uint32_t)copse_type_bytes(calls[0].type);
  tell_no_switch(cuda, p, &calls[0]);
  *part = {0, calls[0].count, calls[0].count, false, true, true, 0, 0, NULL, NULL};
  for (uint32_t i = 0; i < cuda->n_local && cuda->n_devices > 1 && p->puts && !cuda->has_mirrors;
       i++)
    COPSE_DO(copse_cuda_check_reach(cuda, i, calls[i].recv, err));
  COPSE_DO(find_counts(p, &calls[0], &part->host_counts, err));
  /* nothing moves behind the longest block */
  if (part->host_counts) part->count = longest(part->host_counts, cuda->n_ranks, part->count);
  *most = part->count;
  if ((cuda->many_processes || cuda->has_mirrors) && p->puts) {
    /* in a reduction only the root need give an output, and no rank sees another's */
    if (calls[0].collective != COPSE_REDUCE)
      part->buffer = registered(cuda, calls[0].recv, output_bytes(it));
    part->staged = part->buffer == NULL;
  }
  if (!part->staged) return COPSE_OK;
  *most = part_elements(p, part->count, it->element_bytes);
  part->only = *most >= part->count;
  if (part->only) place_staged(it, staged_to);
  return COPSE_OK;
}

static copse_status launch_parts(struct copse_cuda *cuda, struct step *it, uint64_t most,
                                 struct copse_err *err) {
  struct part *part = &it->part;
  const uint64_t count = part->count;
  for (part->first = 0; part->first < count; part->first += part->count, part->half ^= 1) {
    part->at = part->half * half_bytes();
    part->count = count - part->first < most ? count - part->first : most;
    part->last = part->first + part->count == count;
    COPSE_DO(launch_steps(cuda, it, 1, err));
  }
  return COPSE_OK;
}

/* ---- several calls in one launch --------------------------------------------------------------
 */

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return a && b && x < y + b_bytes && y < x + a_bytes;
}

/* Whether a call touches what is only copied to the output of an earlier one behind the kernel, or
 * takes its place in the staging. */
static bool needs_copy(const struct copse_cuda *cuda, const struct step *earlier,
                       const struct step *later) {
  const uint64_t sends =
      later->part.whole * later->element_bytes * later->p->plan->header.input_blocks;
  const uint64_t out = output_bytes(earlier), out_later = output_bytes(later);
  if (!earlier->part.staged) return false;
  if (later->part.staged && earlier->part.at < later->part.at + out_later &&
      later->part.at < earlier->part.at + out)
    return true;
  for (uint32_t i = 0; i < cuda->n_local; i++)
    for (uint32_t j = 0; j < cuda->n_local; j++)
      if (overlap(earlier->calls[i].recv, out, later->calls[j].send, sends) ||
          overlap(earlier->calls[i].recv, out, later->calls[j].recv, out_later))
        return true;
  return false;
}

/* Whether a call can run in the kernel of those before it, the first of which steps[0] is. */
static bool joins(const struct copse_cuda *cuda, const struct step *steps, uint32_t n,
                  const struct step *it) {
  if (it->part.count == 0 || !it->part.only || it->p->split) return false;
  for (uint32_t i = 0; i < cuda->n_local; i++)
    if (it->calls[i].stream != steps->calls[i].stream) return false;
  bool any_reduces = reduces(it->p);
  for (uint32_t i = 0; i < n; i++) {
    if (reduces(it->p) && reduces(steps[i].p) && it->calls[0].type != steps[i].calls[0].type)
      return false;
    any_reduces = any_reduces || reduces(steps[i].p);
    if (needs_copy(cuda, &steps[i], it)) return false;
  }
  for (uint32_t d = 0; d < cuda->n_devices; d++) {
    const struct copse_plan_on_device *on = &it->p->devices[d];
    for (uint32_t i = 0; i < n; i++) {
      const struct copse_plan_on_device *other = &steps[i].p->devices[d];
      if (on->n_threads != other->n_threads ||
          (any_reduces && !(on->fits_beside && other->fits_beside)))
        return false;
    }
  }
  return true;
}

enum { MOST_STEPS = 16 };

copse_status copse_cuda_launch(void *backend, const struct copse_batch *batches, uint32_t n,
                               uint32_t *n_taken, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct step steps[MOST_STEPS];
  const uint32_t room = COPSE_CALLS_BYTES / copse_call_bytes(cuda->n_ranks);
  uint64_t most = 0, staged_to = cuda->staged_to;
  *n_taken = 1;
  COPSE_DO(copse_cuda_check_left(cuda, err));
  COPSE_DO(examine(cuda, &batches[0], &steps[0], &most, &staged_to, err));
  cuda->staged_to = staged_to;
  if (steps[0].part.count == 0) return COPSE_OK; /* no packet would be sent: see copse_next_epoch */
  if (!steps[0].part.only) return launch_parts(cuda, &steps[0], most, err);
  uint32_t k = 1;
  while (k < n && k < MOST_STEPS && k < room && !steps[0].p->split &&
         examine(cuda, &batches[k], &steps[k], &most, &staged_to, NULL) == COPSE_OK &&
         joins(cuda, steps, k, &steps[k])) {
    cuda->staged_to = staged_to;
    k++;
  }
  *n_taken = k;
  return launch_steps(cuda, steps, k, err);
}
