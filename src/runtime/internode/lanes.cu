/*
 * Rounds over several hosts beside each other. A large message moves in two parts, each a launch
 * of its own in a lane: while one's messages are between the hosts, on a stream of the machine's
 * own, the kernel moves the other on the caller's stream.
 *
 *   caller's stream   kernel 0.0   kernel 1.0     kernel 0.1     kernel 1.1     ...  (lane.round)
 *   own stream                     messages 0.0   messages 1.0   messages 0.1   ...
 *
 * A round's messages come after its kernel, and the lane's next kernel after them: by events. No
 * kernel waits for another host. The own stream leaves the caller's and comes back to it within the
 * call, so it follows into a capture, and whoever waits for the caller's stream waits for all.
 *
 * Nothing can stand still. Take the order that the picture has from left to right, in each column
 * the kernel first: the same at all ranks. A kernel waits for messages and kernels further left, and
 * for the same kernel at its host's other ranks. Messages wait for what is further left, for the
 * same messages at other ranks, and, being a kernel of NCCL's, for room that the kernel above
 * them takes. What must not be is that a kernel waits for room which messages take: these wait for
 * another host, whose messages may wait for room there. So a plan has lanes only where its kernel
 * has room beside as many blocks as a kernel of NCCL's can have. With one lane everything is in the
 * caller's stream, and kernels and messages never meet.
 */
#include "runtime/gpu/cuda_machine.h"

/* By reckoning, not measured: a round more or less takes some 20 us, and two parts take as many
 * more as there are hosts in a row; so long takes a NIC of 50 GB/s for a few megabytes. */
uint64_t copse_cuda_lanes_bytes = (uint64_t)4 << 20;

/* Blocks of one of NCCL's kernels, one for each of its channels (MAXCHANNELS); each may fill a
 * multiprocessor. */
#define NCCL_MOST_BLOCKS 64u

/* ---- streams ------------------------------------------------------------------------------- */

static copse_status add_side(struct copse_cuda_machine *m, struct copse_err *err) {
  struct copse_side_stream *side = NULL;
  COPSE_CHECK(copse_calloc(1, sizeof *side, &side, err));
  copse_status status =
      copse_cuda_check(cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking),
                       "cudaStreamCreateWithFlags", err);
  if (status != COPSE_OK) {
    free(side);
    return status;
  }
  side->next = m->sides;
  m->sides = side;
  return COPSE_OK;
}

copse_status copse_cuda_lanes_open(struct copse_cuda_machine *m, struct copse_err *err) {
  copse_on_device here(m->sites[0].device);
  copse_cuda_lanes_close(m); /* of an attempt that failed elsewhere */
  COPSE_CUDA(cudaEventCreateWithFlags(&m->computed, cudaEventDisableTiming));
  for (cudaEvent_t &arrived : m->arrived)
    COPSE_CUDA(cudaEventCreateWithFlags(&arrived, cudaEventDisableTiming));
  return add_side(m, err);
}

void copse_cuda_lanes_close(struct copse_cuda_machine *m) {
  while (m->sides) {
    struct copse_side_stream *side = m->sides;
    m->sides = side->next;
    (void)cudaStreamDestroy(side->stream);
    free(side);
  }
  if (m->computed) (void)cudaEventDestroy(m->computed);
  m->computed = NULL;
  for (cudaEvent_t &arrived : m->arrived) {
    if (arrived) (void)cudaEventDestroy(arrived);
    arrived = NULL;
  }
}

/* The capture that a stream is in. */
struct capture {
  cudaStreamCaptureStatus status;
  unsigned long long id;
};

/* A stream that can't be asked, since others are captured, isn't itself. */
static struct capture capture_of(cudaStream_t stream) {
  struct capture it = {cudaStreamCaptureStatusNone, 0};
  if (cudaStreamGetCaptureInfo(stream, &it.status, &it.id) == cudaSuccess) return it;
  (void)cudaGetLastError();
  return {cudaStreamCaptureStatusNone, 0};
}

/* Whether a stream of ours can go where the caller's is: a stream that has followed into a capture
 * stays there until the capture ends, and must not be used for anything else. */
static bool can_follow(cudaStream_t side, const struct capture *capture) {
  struct capture own = capture_of(side);
  return own.status == cudaStreamCaptureStatusNone ||
         (own.status == capture->status && own.id == capture->id);
}

static copse_status find_side(struct copse_cuda_machine *m, cudaStream_t stream,
                              cudaStream_t *out, struct copse_err *err) {
  const struct capture capture = capture_of(stream);
  struct copse_side_stream *side = m->sides;
  while (side && !can_follow(side->stream, &capture)) side = side->next;
  if (!side) {
    copse_beside_captures permitted;
    COPSE_CHECK(add_side(m, err));
    side = m->sides;
  }
  *out = side->stream;
  return COPSE_OK;
}

/* ---- how many ------------------------------------------------------------------------------ */

copse_status copse_cuda_count_lanes(const struct copse_cuda_machine *m,
                                    const struct copse_cuda_plan *p, uint32_t *n_lanes,
                                    struct copse_err *err) {
  const struct copse_site *site = &m->sites[0];
  uint32_t room = 0;
  *n_lanes = 1;
  if (!p->split || p->plan->header.max_bytes < copse_cuda_lanes_bytes) return COPSE_OK;
  if (p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY) return COPSE_OK; /* one chunk */
  if (site->n_multiprocessors <= NCCL_MOST_BLOCKS) return COPSE_OK;
  COPSE_CHECK(copse_cuda_room(p->plan, site->device, site->n_multiprocessors - NCCL_MOST_BLOCKS,
                              p->sites[0].n_threads, &room, err));
  if (p->sites[0].n_blocks <= room) *n_lanes = COPSE_CUDA_LANES;
  return COPSE_OK;
}

/* From what all ranks know, so that all find the same. */
static uint32_t count_parts(const struct copse_cuda_plan *p, const struct copse_shape *shape) {
  uint64_t bytes = copse_plan_message_bytes(p->plan, shape->count * shape->element_bytes);
  return shape->n_chunks >= p->n_lanes && bytes >= copse_cuda_lanes_bytes ? p->n_lanes : 1;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* One call while it is enqueued. */
struct rounds_launch {
  struct copse_cuda_machine *machine;
  struct copse_cuda_plan *plan;
  const struct copse_cuda_rounds *it;
  struct copse_launch_args *args;
  cudaStream_t stream, side; /* mostly the same where there is one lane */
  bool underway[COPSE_CUDA_LANES]; /* messages that the caller's stream has not waited for */
};

static copse_status wait_for_messages(struct rounds_launch *launch, uint32_t lane,
                                      struct copse_err *err) {
  if (!launch->underway[lane]) return COPSE_OK;
  launch->underway[lane] = false;
  COPSE_CUDA(cudaStreamWaitEvent(launch->stream, launch->machine->arrived[lane], 0));
  return COPSE_OK;
}

static copse_status send_messages(struct rounds_launch *launch, uint32_t lane, uint32_t round,
                                  struct copse_err *err) {
  struct copse_cuda_machine *m = launch->machine;
  const bool beside = launch->side != launch->stream;
  if (!copse_cuda_has_messages(launch->it, round)) return COPSE_OK;
  if (beside) {
    COPSE_CUDA(cudaEventRecord(m->computed, launch->stream));
    COPSE_CUDA(cudaStreamWaitEvent(launch->side, m->computed, 0));
  }
  const struct copse_cuda_stage stage = {launch->it, round, lane};
  COPSE_CHECK(copse_cuda_exchange(m, launch->plan, &stage, launch->args, launch->side, err));
  if (!beside) return COPSE_OK;
  COPSE_CUDA(cudaEventRecord(m->arrived[lane], launch->side));
  launch->underway[lane] = true;
  return COPSE_OK;
}

static copse_status run_round(struct rounds_launch *launch, uint32_t lane, uint32_t round,
                              struct copse_err *err) {
  struct copse_launch_args *args = launch->args;
  const struct copse_rounds *rounds = launch->it->rounds;
  args->plan = launch->plan->sites[0].device[lane];
  args->shape.first_chunk = lane * args->shape.n_chunks;
  args->from = launch->it->cursors + (size_t)round * rounds->n_workers;
  args->to = args->from + rounds->n_workers;
  args->ends = copse_rounds_ends(rounds, round);
  if (copse_rounds_moves(rounds, round)) {
    COPSE_CHECK(wait_for_messages(launch, lane, err));
    COPSE_CHECK(copse_cuda_launch_site(launch->machine, launch->plan, 0, launch->stream, args, err));
  }
  return send_messages(launch, lane, round, err);
}

copse_status copse_cuda_launch_rounds(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                                      cudaStream_t stream, struct copse_launch_args *args,
                                      struct copse_err *err) {
  struct rounds_launch launch = {m, p, NULL, args, stream, stream, {false}};
  const uint32_t n_parts = count_parts(p, &args->shape);
  copse_rounds_shape(&args->shape, n_parts);
  COPSE_CHECK(copse_cuda_find_rounds(m, p, args->shape.n_chunks, &launch.it, err));
  /* NCCL may enqueue in a thread of its own, where the handle is of another stream */
  if (n_parts > 1 || stream == cudaStreamPerThread)
    COPSE_CHECK(find_side(m, stream, &launch.side, err));
  COPSE_CHECK(copse_cuda_watch_mark(m, p, stream, err));
  for (uint32_t round = 0; round < launch.it->rounds->n_rounds; round++)
    for (uint32_t lane = 0; lane < n_parts; lane++)
      COPSE_CHECK(run_round(&launch, lane, round, err));
  for (uint32_t lane = 0; lane < n_parts; lane++) COPSE_CHECK(wait_for_messages(&launch, lane, err));
  return copse_cuda_watch_mark(m, NULL, stream, err);
}
