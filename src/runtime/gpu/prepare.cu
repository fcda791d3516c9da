/*
 * Prepares a plan for the GPUs: its tables, its counters, its scratch, and whether it fits.
 *
 * All thread blocks of a launch wait for each other, so all must be resident at once. Blocks have
 * 512 threads; a plan with more blocks than fit so gets narrower ones, down to 128 threads, several
 * to a multiprocessor: while one waits the others move data. A plan that still doesn't fit is
 * refused with the number of workers that would.
 *
 * Where ranks are in several processes each rank's memory for the plan is shared by CUDA IPC once,
 * here. The processes agree after every step, so that none waits for one that gave up.
 */
#include "runtime/gpu/cuda_backend.h"

#define ALIGN 256u /* bytes, of every table and area */

static uint64_t aligned(uint64_t bytes) { return copse_round_up(bytes, ALIGN); }

/* ---- which workers run where ---------------------------------------------------------------- */

static bool is_on_device(const struct copse_cuda *cuda, uint32_t rank, uint32_t device) {
  return rank >= cuda->first_local && rank - cuda->first_local < cuda->n_local &&
         cuda->device_of[rank - cuda->first_local] == device;
}

static uint32_t ranks_on(const struct copse_cuda *cuda, uint32_t device) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < cuda->n_local; i++) n += cuda->device_of[i] == device;
  return n;
}

static uint32_t blocks_on(const struct copse_cuda *cuda, const struct copse_plan *plan,
                          uint32_t device) {
  uint32_t n = 0;
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    n += is_on_device(cuda, plan->workers[w].rank, device);
  return n;
}

copse_status copse_cuda_room(const struct copse_plan *plan, const struct copse_cuda_device *at,
                             uint32_t n_threads, uint32_t *room, struct copse_err *err) {
  bool reduces = copse_collective_reduces((copse_collective)plan->header.collective);
  int fewest = -1;
  copse_on_device here(at->ordinal);
  for (int type = 0; type < COPSE_N_TYPES; type++) {
    copse_kernel kernel = copse_kernel_of((copse_type)type, reduces);
    int blocks = 0;
    COPSE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)n_threads,
                                                             copse_kernel_shared_bytes()));
    if (fewest < 0 || blocks < fewest) fewest = blocks;
  }
  *room = (uint32_t)fewest * at->n_multiprocessors;
  return COPSE_OK;
}

static copse_status choose_threads(const struct copse_cuda *cuda, const struct copse_plan *plan,
                                   uint32_t device, struct copse_plan_on_device *it,
                                   struct copse_err *err) {
  const struct copse_cuda_device *at = &cuda->devices[device];
  uint32_t room = 0;
  it->n_blocks = blocks_on(cuda, plan, device);
  it->n_threads = copse_cuda_threads;
  for (;;) {
    COPSE_DO(copse_cuda_room(plan, at, it->n_threads, &room, err));
    if (it->n_blocks <= room) return COPSE_OK;
    if (it->n_threads / 2 < COPSE_CUDA_LEAST_THREADS) break;
    it->n_threads /= 2;
  }
  uint32_t ranks = ranks_on(cuda, device);
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the plan takes %u thread blocks on GPU %d (%u ranks), which holds %u at once; "
                    "copse lower --workers %u fits",
                    it->n_blocks, at->ordinal, ranks, room, room / ranks);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Lays out a device's tables: once to measure them, once to fill them. */
struct writer {
  unsigned char *host; /* NULL: measure only */
  unsigned char *device;
  uint64_t used;
};

/* Copies n records (zeros where NULL); returns their address on the device. */
template <typename T>
static T *put(struct writer *w, const T *records, uint64_t n) {
  uint64_t at = w->used;
  w->used = aligned(at + n * sizeof(T));
  if (!w->host) return NULL;
  if (records && n) memcpy(w->host + at, records, n * sizeof(T));
  return (T *)(w->device + at);
}

/* The tables that the plan doesn't hold itself. */
struct parts {
  struct copse_channel_place *channels; /* [n_channels] */
  struct copse_block_work *works;       /* [n_blocks] */
  struct copse_rank_segment *segments;  /* [n_ranks] */
};

static void put_all(struct writer *w, const struct copse_cuda_plan *p, const struct parts *parts,
                    struct copse_plan_on_device *on) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  struct copse_device_plan *d = &on->plan;
  d->ops = put(w, plan->ops, h->n_ops);
  d->operands = put(w, plan->operands, h->n_operands);
  d->pieces = put(w, plan->pieces, h->n_pieces);
  d->extents = put(w, plan->extents, h->n_extents);
  if (h->n_extents == 0) d->extents = NULL;
  d->places = put(w, p->layout.places, h->n_regions);
  d->channels = put(w, parts->channels, h->n_channels);
  d->works = put(w, parts->works, on->n_blocks);
  d->epochs = put(w, (const uint32_t *)NULL, h->n_workers);
  d->segments = put(w, parts->segments, h->n_ranks);
  d->sent = put(w, (const uint64_t *)NULL, h->n_channels);
  d->taken = put(w, (const uint64_t *)NULL, h->n_channels);
}

static struct copse_block_work work_of(const struct copse_plan *plan, uint32_t worker) {
  const struct copse_plan_worker *it = &plan->workers[worker];
  struct copse_block_work work = {worker, it->rank, it->first_op, it->n_ops, 0, 0};
  uint64_t first = UINT64_MAX, end = 0;
  for (uint32_t i = 0; i < it->n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[it->first_op + i];
    if (op->kind != COPSE_OP_MOVE) continue;
    if (op->operand < first) first = op->operand;
    uint64_t after = (uint64_t)op->operand + op->n_src + op->n_dst;
    if (after > end) end = after;
  }
  if (end == 0) return work;
  work.first_operand = (uint32_t)first;
  work.n_operands = (uint32_t)(end - first);
  return work;
}

/* Where every rank's memory lies in its segment. */
static void find_segments(const struct copse_cuda_plan *p, struct copse_rank_segment *segments) {
  for (uint32_t r = 0; r < p->plan->header.n_ranks; r++) {
    unsigned char *segment = p->segments[r];
    if (!segment) continue; /* of another host */
    segments[r].signals = (uint64_t *)segment;
    segments[r].scratch = segment + p->segment.signals_bytes;
    segments[r].packets = segments[r].scratch + p->segment.slots_bytes;
  }
}

static copse_status make_parts(const struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                               uint32_t device, struct copse_arena *scratch, struct parts *parts,
                               struct copse_err *err) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  uint32_t *counters = NULL, block = 0;
  COPSE_DO(COPSE_ARRAY(scratch, h->n_channels, parts->channels, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_workers, parts->works, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_ranks, parts->segments, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_ranks, counters, err));
  for (uint32_t c = 0; c < h->n_channels; c++) {
    uint32_t rank = plan->workers[plan->channels[c].dst_worker].rank;
    parts->channels[c].rank = rank;
    parts->channels[c].ordinal = counters[rank]++;
  }
  for (uint32_t w = 0; w < h->n_workers; w++)
    if (is_on_device(cuda, plan->workers[w].rank, device)) parts->works[block++] = work_of(plan, w);
  find_segments(p, parts->segments);
  return COPSE_OK;
}

static copse_status make_tables(struct copse_cuda *cuda, struct copse_cuda_plan *p, uint32_t device,
                                struct copse_arena *scratch, struct copse_err *err) {
  struct copse_plan_on_device *on = &p->devices[device];
  struct parts parts = {NULL, NULL, NULL};
  struct writer measuring = {NULL, NULL, 0}, filling = {NULL, NULL, 0};
  void *tables = NULL;
  COPSE_DO(make_parts(cuda, p, device, scratch, &parts, err));
  put_all(&measuring, p, &parts, on);
  copse_on_device here(cuda->devices[device].ordinal);
  COPSE_CUDA(cudaMalloc(&tables, measuring.used));
  on->tables = filling.device = (unsigned char *)tables;
  /* zeroed, since counters start at 0 */
  COPSE_DO(COPSE_ARRAY(scratch, measuring.used, filling.host, err));
  put_all(&filling, p, &parts, on);
  return copse_cuda_upload(on->tables, filling.host, filling.used, err);
}

static uint64_t segment_bytes(const struct copse_segment_layout *it) {
  return it->signals_bytes + it->slots_bytes + 2 * it->packets_copy + it->words_bytes;
}

static copse_status make_device(struct copse_cuda *cuda, struct copse_cuda_plan *p, uint32_t device,
                                struct copse_err *err) {
  struct copse_arena scratch = {NULL};
  const uint32_t own = cuda->first_local;
  copse_status status = make_tables(cuda, p, device, &scratch, err);
  copse_arena_free(&scratch);
  struct copse_device_plan *d = &p->devices[device].plan;
  d->control = cuda->control;
  d->packets_copy = p->segment.packets_copy;
  d->n_ranks = p->plan->header.n_ranks;
  d->fifo = p->plan->header.fifo;
  d->low_latency = p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY;
  d->system = cuda->n_devices > 1 || cuda->many_processes;
  d->number = p->number;
  if (!p->split) return status;
  d->own_word = own;
  d->words = (uint32_t *)(p->segments[own] + segment_bytes(&p->segment) - p->segment.words_bytes);
  return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* The same layout for every rank, so that processes need not exchange theirs. */
static void lay_out_segment(struct copse_cuda_plan *p) {
  const struct copse_plan *plan = p->plan;
  struct copse_segment_layout *s = &p->segment;
  s->signals_bytes = aligned((uint64_t)plan->header.n_channels * sizeof(uint64_t));
  for (uint32_t r = 0; r < plan->header.n_ranks; r++) {
    uint64_t slots = aligned(copse_layout_most_slot_bytes(&p->layout, r));
    uint64_t packets = aligned(copse_layout_most_packet_bytes(&p->layout, r));
    if (slots > s->slots_bytes) s->slots_bytes = slots;
    if (packets > s->packets_copy) s->packets_copy = packets;
  }
  if (p->split) s->words_bytes = aligned(plan->header.n_ranks * sizeof(uint32_t));
}

/* Zeroed memory of a local rank, on its device. */
static copse_status allocate(struct copse_cuda *cuda, uint32_t rank, uint64_t bytes,
                             unsigned char **out, struct copse_err *err) {
  const uint32_t device = cuda->device_of[rank - cuda->first_local];
  void *memory = NULL;
  copse_status status = copse_cuda_allocate(cuda->devices[device].ordinal, bytes, &memory, err);
  *out = (unsigned char *)memory;
  return status;
}

/* Whether some worker writes another rank's output. */
static bool plan_puts(const struct copse_plan *plan) {
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      for (uint32_t k = 0; op->kind == COPSE_OP_MOVE && k < op->n_dst; k++) {
        const struct copse_plan_operand *dst = &plan->operands[op->operand + op->n_src + k];
        if (dst->buffer == COPSE_BUFFER_OUTPUT && dst->rank != plan->workers[w].rank) return true;
      }
    }
  return false;
}

/* The same amount at every rank of every process; addresses[r] as this process addresses it. */
static copse_status make_shared(struct copse_cuda *cuda, uint64_t bytes, unsigned char **addresses,
                                void **opened, struct copse_err *err) {
  unsigned char **own = &addresses[cuda->first_local];
  COPSE_DO(copse_cuda_agree(cuda, allocate(cuda, cuda->first_local, bytes, own, err), err));
  return copse_cuda_agree(cuda, copse_cuda_share(cuda, *own, addresses, opened, err), err);
}

static copse_status make_memory(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                struct copse_err *err) {
  const uint64_t bytes = segment_bytes(&p->segment);
  uint32_t first = cuda->first_local;
  p->is_shared = cuda->many_processes;
  if (cuda->many_processes) {
    COPSE_DO(make_shared(cuda, bytes, p->segments, p->opened, err));
    if (!p->puts) return COPSE_OK;
    return make_shared(cuda, copse_cuda_staging_bytes * p->plan->header.output_blocks, p->staging,
                       p->opened_staging, err);
  }
  for (uint32_t i = 0; i < cuda->n_local; i++)
    COPSE_DO(allocate(cuda, first + i, bytes, &p->segments[first + i], err));
  return COPSE_OK;
}

static void close_shared(struct copse_cuda *cuda, struct copse_cuda_plan *p) {
  copse_cuda_unshare(cuda, p->opened);
  copse_cuda_unshare(cuda, p->opened_staging);
}

void copse_cuda_plan_free(struct copse_cuda *cuda, struct copse_cuda_plan *p) {
  if (!p) return;
  close_shared(cuda, p);
  for (uint32_t i = 0; i < cuda->n_local; i++) (void)cudaFree(p->segments[cuda->first_local + i]);
  (void)cudaFree(p->staging[cuda->first_local]);
  for (uint32_t d = 0; d < cuda->n_devices; d++) (void)cudaFree(p->devices[d].tables);
  copse_internode_plan_free(p);
  copse_layout_free(&p->layout);
  free(p);
}

/* ---- step by step --------------------------------------------------------------------------- */

static copse_status make_own(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                             struct copse_err *err) {
  COPSE_DO(copse_internode_split(cuda, p, err));
  COPSE_DO(copse_layout_new(p->plan, &p->layout, err));
  if (p->split) p->layout.flat = false; /* data for other hosts stay until they are sent */
  p->puts = plan_puts(p->plan);
  lay_out_segment(p);
  for (uint32_t d = 0; d < cuda->n_devices; d++)
    COPSE_DO(choose_threads(cuda, p->plan, d, &p->devices[d], err));
  return COPSE_OK;
}

static copse_status make_devices(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                                 struct copse_err *err) {
  for (uint32_t d = 0; d < cuda->n_devices; d++) COPSE_DO(make_device(cuda, p, d, err));
  return p->split ? copse_internode_try_rounds(cuda, p, err) : COPSE_OK;
}

static copse_status prepare(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                            struct copse_err *err) {
  COPSE_DO(copse_internode_find_hosts(cuda, err));
  COPSE_DO(copse_cuda_agree(cuda, make_own(cuda, p, err), err));
  COPSE_DO(make_memory(cuda, p, err));
  return copse_cuda_agree(cuda, make_devices(cuda, p, err), err);
}

copse_status copse_cuda_prepare(void *backend, const struct copse_plan *plan, void **prepared,
                                struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct copse_cuda_plan *p = NULL;
  copse_beside_captures permitted;
  *prepared = NULL;
  COPSE_DO(copse_calloc(1, sizeof *p, &p, err));
  p->plan = plan;
  p->number = cuda->n_plans++;
  copse_status status = prepare(cuda, p, err);
  if (status != COPSE_OK) {
    if (p->is_shared) {
      /* peers close what they opened before its owner frees it; all have failed, so all come */
      struct copse_err ignored = COPSE_ERR_INIT;
      close_shared(cuda, p);
      (void)copse_cuda_agree(cuda, COPSE_OK, &ignored);
    }
    copse_cuda_plan_free(cuda, p);
    return status;
  }
  p->next = cuda->plans;
  cuda->plans = p;
  *prepared = p;
  return COPSE_OK;
}
