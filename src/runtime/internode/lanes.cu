/*
 * Ranks on several hosts: which is where, and the rounds of a launch (rounds.h) in streams.
 *
 * A large message moves in two parts, each a launch of its own in its lane: while one part's
 * messages are between the hosts, on a stream of the backend's own, the kernel moves the other part
 * on the caller's stream.
 *
 *   caller's stream   kernel 0.0   kernel 1.0     kernel 0.1     kernel 1.1     ...  (lane.round)
 *   own stream                     messages 0.0   messages 1.0   messages 0.1   ...
 *
 * A round's messages come after its kernel, and the lane's next kernel comes after them, by events.
 * No kernel waits for another host. The own stream forks from the caller's and joins it again
 * within the call. So it follows into a capture, and whoever waits for the caller's stream waits
 * for all.
 *
 * The parts are the first and the second half of every piece's chunks. The same element lies in the
 * same piece as without parts, so the bits are the same. A second lane doubles the plan's memory.
 *
 * Why nothing deadlocks. Take the order of the picture from left to right, in each column the
 * kernel first; all ranks have the same order. A kernel waits for messages and kernels further
 * left, and for the same kernel at its host's other ranks. Messages wait for what is further left,
 * for the same messages at other ranks, and, since they are a kernel of NCCL's, for multiprocessors
 * that the kernel above them holds. The one thing to exclude is a kernel that waits for
 * multiprocessors which messages hold: these wait for another host, whose messages may wait for
 * multiprocessors there. So a plan has two lanes only where, at all ranks, its kernel fits beside
 * the largest kernel of NCCL's. All other plans, and small messages, have one lane. Then everything
 * is in the caller's stream, and kernels and messages never run at once.
 */
#include <unistd.h>

#include "runtime/internode/internode.h"

extern "C" {
#include "base/file.h"
}

/* An estimate, not measured: a round more or less takes some 20 us, and two parts take as many more
 * rounds as there are hosts in a row; a NIC of 50 GB/s moves a few megabytes in that time. */
uint64_t copse_cuda_lanes_bytes = (uint64_t)4 << 20;

/* Blocks of one of NCCL's kernels at most, one for each of its channels (MAXCHANNELS). Each may
 * fill a multiprocessor. */
#define NCCL_MOST_BLOCKS 64u

/* ---- streams ------------------------------------------------------------------------------- */

static copse_status add_side(struct copse_internode *in, struct copse_err *err) {
  struct copse_side_stream *side = NULL;
  COPSE_CHECK(copse_calloc(1, sizeof *side, &side, err));
  copse_status status =
      copse_cuda_check(cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking),
                       "cudaStreamCreateWithFlags", err);
  if (status != COPSE_OK) {
    free(side);
    return status;
  }
  side->next = in->sides;
  in->sides = side;
  return COPSE_OK;
}

static copse_status make_streams(struct copse_internode *in, int device, struct copse_err *err) {
  copse_on_device here(device);
  COPSE_CUDA(cudaStreamCreateWithFlags(&in->upload, cudaStreamNonBlocking));
  COPSE_CUDA(cudaEventCreateWithFlags(&in->computed, cudaEventDisableTiming));
  for (cudaEvent_t &arrived : in->arrived)
    COPSE_CUDA(cudaEventCreateWithFlags(&arrived, cudaEventDisableTiming));
  return add_side(in, err);
}

void copse_internode_close(struct copse_cuda *cuda) {
  struct copse_internode *in = cuda->internode;
  if (!in) return;
  copse_watch_close(cuda);
  while (in->sides) {
    struct copse_side_stream *side = in->sides;
    in->sides = side->next;
    (void)cudaStreamDestroy(side->stream);
    free(side);
  }
  if (in->upload) (void)cudaStreamDestroy(in->upload);
  if (in->computed) (void)cudaEventDestroy(in->computed);
  for (cudaEvent_t arrived : in->arrived)
    if (arrived) (void)cudaEventDestroy(arrived);
  free(in);
  cuda->internode = NULL;
}

/* ---- hosts --------------------------------------------------------------------------------- */

uint64_t copse_cuda_host = 0;

/* A number for this host from its name and the boot id of its kernel: hosts may share a name, and
 * containers of one host a boot id. */
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

/* Numbers the hosts from 0 in the order of their first ranks. */
static copse_status number_hosts(struct copse_cuda *cuda, uint32_t *n_hosts,
                                 struct copse_err *err) {
  uint64_t own = number_of_host(), all[COPSE_CUDA_MAX_RANKS];
  *n_hosts = 1;
  if (!cuda->many_processes) return COPSE_OK;
  COPSE_CHECK(copse_cuda_gather(cuda, &own, all, sizeof own, err));
  *n_hosts = 0;
  for (uint32_t r = 0; r < cuda->n_ranks; r++) {
    uint32_t first = 0;
    while (all[first] != all[r]) first++;
    cuda->host_of[r] = first < r ? cuda->host_of[first] : (*n_hosts)++;
  }
  return COPSE_OK;
}

static copse_status make_internode(struct copse_cuda *cuda, struct copse_err *err) {
  COPSE_CHECK(copse_calloc(1, sizeof *cuda->internode, &cuda->internode, err));
  COPSE_CHECK(copse_nccl_links_of(&cuda->bootstrap, &cuda->internode->links, err));
  return make_streams(cuda->internode, cuda->devices[0].ordinal, err);
}

copse_status copse_internode_find_hosts(struct copse_cuda *cuda, struct copse_err *err) {
  uint32_t n_hosts = 0;
  if (cuda->n_hosts > 0) return COPSE_OK;
  COPSE_CHECK(number_hosts(cuda, &n_hosts, err));
  COPSE_CHECK(copse_cuda_leave_open(cuda, err));
  if (n_hosts > 1) {
    copse_internode_close(cuda); /* of an attempt that failed */
    COPSE_CHECK(copse_cuda_agree(cuda, make_internode(cuda, err), err));
    COPSE_CHECK(copse_watch_open(cuda, err));
  }
  cuda->n_hosts = n_hosts;
  return COPSE_OK;
}

/* ---- which stream ---------------------------------------------------------------------------- */

/* Whether a side stream can fork from the caller's. One that has followed into a capture stays in
 * it until the capture ends, and must not be used for anything else. */
static bool can_follow(cudaStream_t side, const struct copse_capture *capture) {
  struct copse_capture own = copse_capture_of(side);
  return own.status == cudaStreamCaptureStatusNone ||
         (own.status == capture->status && own.id == capture->id);
}

static copse_status find_side(struct copse_internode *in, cudaStream_t stream, cudaStream_t *out,
                              struct copse_err *err) {
  const struct copse_capture capture = copse_capture_of(stream);
  struct copse_side_stream *side = in->sides;
  while (side && !can_follow(side->stream, &capture)) side = side->next;
  if (!side) {
    copse_beside_captures permitted;
    COPSE_CHECK(add_side(in, err));
    side = in->sides;
  }
  *out = side->stream;
  return COPSE_OK;
}

/* ---- how many ------------------------------------------------------------------------------ */

copse_status copse_internode_count_lanes(const struct copse_cuda *cuda,
                                         const struct copse_cuda_plan *p, uint32_t *n_lanes,
                                         struct copse_err *err) {
  const struct copse_cuda_device *device = &cuda->devices[0];
  uint32_t room = 0;
  *n_lanes = 1;
  if (!p->split || p->plan->header.max_bytes < copse_cuda_lanes_bytes) return COPSE_OK;
  if (p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY) return COPSE_OK; /* one chunk */
  if (device->n_multiprocessors <= NCCL_MOST_BLOCKS) return COPSE_OK;
  COPSE_CHECK(copse_cuda_room(p->plan, device->ordinal,
                              device->n_multiprocessors - NCCL_MOST_BLOCKS, p->devices[0].n_threads,
                              &room, err));
  if (p->devices[0].n_blocks <= room) *n_lanes = COPSE_CUDA_LANES;
  return COPSE_OK;
}

/* Computed from what all ranks know, so that all find the same. */
static uint32_t count_parts(const struct copse_cuda_plan *p, const struct copse_shape *shape) {
  uint64_t bytes = copse_plan_message_bytes(p->plan, shape->count * shape->element_bytes);
  return shape->n_chunks >= p->n_lanes && bytes >= copse_cuda_lanes_bytes ? p->n_lanes : 1;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* One call while it is being enqueued. */
struct rounds_launch {
  struct copse_cuda *cuda;
  struct copse_cuda_plan *plan;
  const struct copse_cuda_rounds *it;
  struct copse_launch_args *args;
  cudaStream_t stream, side;       /* most often the same where there is one lane */
  bool underway[COPSE_CUDA_LANES]; /* messages that the caller's stream doesn't wait for yet */
};

static copse_status wait_for_messages(struct rounds_launch *launch, uint32_t lane,
                                      struct copse_err *err) {
  if (!launch->underway[lane]) return COPSE_OK;
  launch->underway[lane] = false;
  COPSE_CUDA(cudaStreamWaitEvent(launch->stream, launch->cuda->internode->arrived[lane], 0));
  return COPSE_OK;
}

static copse_status send_messages(struct rounds_launch *launch, uint32_t lane, uint32_t round,
                                  struct copse_err *err) {
  const struct copse_internode *in = launch->cuda->internode;
  const bool beside = launch->side != launch->stream;
  if (!copse_round_has_messages(launch->it, round)) return COPSE_OK;
  if (beside) {
    COPSE_CUDA(cudaEventRecord(in->computed, launch->stream));
    COPSE_CUDA(cudaStreamWaitEvent(launch->side, in->computed, 0));
  }
  const struct copse_lane_round at = {launch->it, round, lane};
  COPSE_CHECK(
      copse_internode_exchange(launch->cuda, launch->plan, &at, launch->args, launch->side, err));
  if (!beside) return COPSE_OK;
  COPSE_CUDA(cudaEventRecord(in->arrived[lane], launch->side));
  launch->underway[lane] = true;
  return COPSE_OK;
}

static copse_status run_round(struct rounds_launch *launch, uint32_t lane, uint32_t round,
                              struct copse_err *err) {
  struct copse_launch_args *args = launch->args;
  const struct copse_rounds *rounds = launch->it->rounds;
  args->plan = launch->plan->devices[0].lanes[lane];
  args->shape.first_chunk = lane * args->shape.n_chunks;
  args->from = launch->it->cursors + (size_t)round * rounds->n_workers;
  args->to = args->from + rounds->n_workers;
  args->ends = copse_rounds_ends(rounds, round);
  if (copse_rounds_moves(rounds, round)) {
    COPSE_CHECK(wait_for_messages(launch, lane, err));
    COPSE_CHECK(copse_cuda_launch_kernel(launch->cuda, launch->plan, 0, launch->stream, args, err));
  }
  return send_messages(launch, lane, round, err);
}

copse_status copse_internode_launch(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                    cudaStream_t stream, struct copse_launch_args *args,
                                    struct copse_err *err) {
  struct rounds_launch launch = {cuda, p, NULL, args, stream, stream, {false}};
  const uint32_t n_parts = count_parts(p, &args->shape);
  copse_rounds_shape(&args->shape, n_parts);
  COPSE_CHECK(copse_internode_find_rounds(cuda, p, args->shape.n_chunks, &launch.it, err));
  /* NCCL may enqueue in a thread of its own, where this handle means another stream */
  if (n_parts > 1 || stream == cudaStreamPerThread)
    COPSE_CHECK(find_side(cuda->internode, stream, &launch.side, err));
  COPSE_CHECK(copse_watch_mark(cuda, p, stream, err));
  for (uint32_t round = 0; round < launch.it->rounds->n_rounds; round++)
    for (uint32_t lane = 0; lane < n_parts; lane++)
      COPSE_CHECK(run_round(&launch, lane, round, err));
  for (uint32_t lane = 0; lane < n_parts; lane++)
    COPSE_CHECK(wait_for_messages(&launch, lane, err));
  return copse_watch_mark(cuda, NULL, stream, err);
}
