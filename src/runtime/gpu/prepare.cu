/*
 * Prepares a plan for the GPUs: its tables, its counters, its scratch, and whether it fits.
 *
 * All thread blocks of a launch wait for each other, so all must be resident at once. Blocks have
 * 512 threads; a plan with more blocks than fit so gets narrower ones, down to 128 threads, several
 * to a multiprocessor: while one waits the others move data. A plan that still doesn't fit is
 * refused with the number of workers that would.
 *
 * Where ranks are in several processes each rank's memory for the plans is shared once, here, for
 * all plans of a folder together. The processes vote after every step, so that none waits for one
 * that gave up; a plan that doesn't fit at one rank is left out at all.
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

copse_status copse_cuda_room(bool reduces, const struct copse_cuda_device *at, uint32_t n_threads,
                             uint32_t *room, struct copse_err *err) {
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

static copse_status too_many(const struct copse_cuda *cuda, uint32_t device, uint32_t n_blocks,
                             uint32_t room, struct copse_err *err) {
  uint32_t ranks = ranks_on(cuda, device);
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the plan takes %u thread blocks on GPU %d (%u ranks), which holds %u at once; "
                    "copse lower --workers %u fits",
                    n_blocks, cuda->devices[device].ordinal, ranks, room, room / ranks);
}

static copse_status choose_threads(const struct copse_cuda *cuda, const struct copse_plan *plan,
                                   uint32_t device, struct copse_plan_on_device *it,
                                   struct copse_err *err) {
  const struct copse_cuda_device *at = &cuda->devices[device];
  const bool reduces = copse_collective_reduces((copse_collective)plan->header.collective);
  uint32_t room = 0, room_beside = 0;
  it->n_blocks = blocks_on(cuda, plan, device);
  it->n_threads = copse_cuda_threads;
  for (;;) {
    COPSE_DO(copse_cuda_room(reduces, at, it->n_threads, &room, err));
    if (it->n_blocks <= room) break;
    if (it->n_threads / 2 < COPSE_CUDA_LEAST_THREADS)
      return too_many(cuda, device, it->n_blocks, room, err);
    it->n_threads /= 2;
  }
  COPSE_DO(copse_cuda_room(true, at, it->n_threads, &room_beside, err));
  it->fits_beside = it->n_blocks <= room_beside;
  return COPSE_OK;
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
  const struct copse_plan_operand *operands; /* [n_operands] */
  struct copse_channel_place *channels;      /* [n_channels] */
  struct copse_block_work *works;            /* [n_blocks] */
  struct copse_rank_segment *segments;       /* [n_segments] */
  uint32_t n_segments;                       /* n_ranks, or twice that where there are mirrors */
};

static void put_all(struct writer *w, const struct copse_cuda_plan *p, const struct parts *parts,
                    struct copse_plan_on_device *on) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  struct copse_device_plan *d = &on->plan;
  d->ops = put(w, plan->ops, h->n_ops);
  d->operands = put(w, parts->operands, h->n_operands);
  d->pieces = put(w, plan->pieces, h->n_pieces);
  d->extents = put(w, plan->extents, h->n_extents);
  if (h->n_extents == 0) d->extents = NULL;
  d->places = put(w, p->layout.places, h->n_regions);
  d->channels = put(w, parts->channels, h->n_channels);
  d->works = put(w, parts->works, on->n_blocks);
  d->epochs = put(w, (const uint32_t *)NULL, h->n_workers);
  d->segments = put(w, parts->segments, parts->n_segments);
  d->n_segments = parts->n_segments;
  d->sent = put(w, (const uint64_t *)NULL, h->n_channels);
  d->taken = put(w, (const uint64_t *)NULL, h->n_channels);
  d->met = put(w, (const uint32_t *)NULL, 2);
}

static struct copse_block_work work_of(const struct copse_plan *plan, uint32_t worker) {
  const struct copse_plan_worker *it = &plan->workers[worker];
  struct copse_block_work work = {worker, it->rank, it->first_op, it->n_ops, 0, 0, 0};
  uint64_t first = UINT64_MAX, end = 0;
  for (uint32_t i = 0; i < it->n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[it->first_op + i];
    if (op->kind != COPSE_OP_MOVE) continue;
    if (op->operand < end) work.shared = 1; /* lower's ascend */
    if (op->operand < first) first = op->operand;
    uint64_t after = (uint64_t)op->operand + op->n_src + op->n_dst;
    if (after > end) end = after;
  }
  if (end == 0) return work;
  work.first_operand = (uint32_t)first;
  work.n_operands = (uint32_t)(end - first);
  return work;
}

/* Returns where a rank's memory lies in its segment; nowhere where the device doesn't reach it. */
static struct copse_rank_segment segment_at(const struct copse_cuda_plan *p, unsigned char *segment,
                                            unsigned char *slots) {
  if (!segment) return {NULL, NULL, NULL};
  return {slots, segment + p->segment.signals_bytes, (uint64_t *)segment};
}

/* Whether a device's ranks reach a rank's GPU. */
static bool device_reaches(const struct copse_cuda *cuda, uint32_t device, uint32_t rank) {
  for (uint32_t i = 0; i < cuda->n_local; i++)
    if (cuda->device_of[i] == device && !copse_cuda_reaches(cuda, cuda->first_local + i, rank))
      return false;
  return true;
}

static void find_segments(const struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                          uint32_t device, const struct parts *parts) {
  const uint32_t n = p->plan->header.n_ranks;
  for (uint32_t r = 0; r < n; r++) {
    if (device_reaches(cuda, device, r))
      parts->segments[r] = segment_at(p, p->segments[r], p->slots[r]);
    if (parts->n_segments > n)
      parts->segments[n + r] = segment_at(p, p->mirror_segments[r], p->mirror_slots[r]);
  }
}

/* Converts operands to what devices see: the mirror of slots and packets that a device which names
 * them does not reach. */
static copse_status mirror_operands(const struct copse_cuda *cuda, const struct copse_plan *plan,
                                    struct copse_arena *scratch, struct parts *parts,
                                    struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_plan_operand *operands = NULL;
  bool *mirrored = NULL;
  COPSE_DO(COPSE_ARRAY(scratch, h->n_operands, operands, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_regions, mirrored, err));
  for (uint32_t w = 0; w < h->n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      for (uint32_t k = 0; op->kind == COPSE_OP_MOVE && k < (uint32_t)op->n_src + op->n_dst; k++) {
        const struct copse_plan_operand *it = &plan->operands[op->operand + k];
        if ((it->buffer == COPSE_BUFFER_SCRATCH || it->buffer == COPSE_BUFFER_PACKETS) &&
            !copse_cuda_reaches(cuda, plan->workers[w].rank, it->rank))
          mirrored[it->index] = true;
      }
    }
  for (uint32_t k = 0; k < h->n_operands; k++) {
    struct copse_plan_operand *it = &operands[k];
    *it = plan->operands[k];
    if ((it->buffer == COPSE_BUFFER_SCRATCH || it->buffer == COPSE_BUFFER_PACKETS) &&
        mirrored[it->index])
      it->rank += h->n_ranks;
  }
  parts->operands = operands;
  return COPSE_OK;
}

static copse_status make_parts(const struct copse_cuda *cuda, const struct copse_cuda_plan *p,
                               uint32_t device, struct copse_arena *scratch, struct parts *parts,
                               struct copse_err *err) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  uint32_t *counters = NULL, block = 0;
  COPSE_DO(COPSE_ARRAY(scratch, h->n_channels, parts->channels, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_workers, parts->works, err));
  parts->n_segments = cuda->has_mirrors ? 2 * h->n_ranks : h->n_ranks;
  parts->operands = plan->operands;
  if (cuda->has_mirrors) COPSE_DO(mirror_operands(cuda, plan, scratch, parts, err));
  COPSE_DO(COPSE_ARRAY(scratch, parts->n_segments, parts->segments, err));
  COPSE_DO(COPSE_ARRAY(scratch, h->n_ranks, counters, err));
  for (uint32_t c = 0; c < h->n_channels; c++) {
    const uint32_t rank = plan->workers[plan->channels[c].dst_worker].rank;
    const uint32_t from = plan->workers[plan->channels[c].src_worker].rank;
    parts->channels[c].rank = rank;
    if (!copse_cuda_reaches(cuda, from, rank)) parts->channels[c].rank += h->n_ranks;
    parts->channels[c].ordinal = counters[rank]++;
  }
  for (uint32_t w = 0; w < h->n_workers; w++)
    if (is_on_device(cuda, plan->workers[w].rank, device)) parts->works[block++] = work_of(plan, w);
  find_segments(cuda, p, device, parts);
  return COPSE_OK;
}

static copse_status make_tables(struct copse_cuda *cuda, struct copse_cuda_plan *p, uint32_t device,
                                struct copse_arena *scratch, struct copse_err *err) {
  struct copse_plan_on_device *on = &p->devices[device];
  struct parts parts = {NULL, NULL, NULL, NULL, 0};
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
  return it->signals_bytes + 2 * it->packets_copy + it->words_bytes;
}

static copse_status make_device(struct copse_cuda *cuda, struct copse_cuda_plan *p, uint32_t device,
                                struct copse_err *err) {
  struct copse_arena scratch = {NULL};
  const uint32_t own = cuda->first_local;
  copse_status status = make_tables(cuda, p, device, &scratch, err);
  copse_arena_free(&scratch);
  struct copse_device_plan *d = &p->devices[device].plan;
  d->control = cuda->control;
  d->group = p->group;
  d->packets_copy = p->segment.packets_copy;
  d->n_ranks = p->plan->header.n_ranks;
  d->n_blocks = p->devices[device].n_blocks;
  d->fifo = p->plan->header.fifo;
  d->low_latency = p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY;
  d->system = copse_cuda_system || cuda->n_devices > 1 || cuda->many_processes;
  d->number = p->number;
  if (!p->split) return status;
  d->own_word = own;
  d->words = (uint32_t *)(p->segments[own] + segment_bytes(&p->segment) - p->segment.words_bytes);
  return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Lays out the same segment for every rank, so that processes need not exchange theirs. */
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

/* Allocates zeroed memory of a local rank, on its device. */
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

uint64_t copse_cuda_slots_limit(uint32_t n_ranks) {
  const uint64_t mib = 112 + 2 * (uint64_t)n_ranks;
  return (mib < 208 ? mib : 208) << 20;
}

static void empty_area(struct copse_cuda *cuda, struct copse_cuda_area *area) {
  copse_cuda_unshare(cuda, area);
  if (area->on_host) copse_cuda_host_free(cuda, area);
  if (area->grouped) copse_cuda_group_free(cuda, area);
  for (uint32_t i = 0; i < cuda->n_local && !area->on_host && !area->grouped; i++)
    (void)cudaFree(area->at[cuda->first_local + i]);
  memset(area, 0, sizeof *area);
}

void copse_cuda_areas_free(struct copse_cuda *cuda) {
  while (cuda->areas) {
    struct copse_cuda_area *area = cuda->areas;
    cuda->areas = area->next;
    empty_area(cuda, area);
    free(area);
  }
}

static void free_tables(struct copse_cuda *cuda, struct copse_cuda_plan *p) {
  for (uint32_t d = 0; d < cuda->n_devices; d++) {
    (void)cudaFree(p->devices[d].tables);
    p->devices[d].tables = NULL;
  }
}

void copse_cuda_plan_free(struct copse_cuda *cuda, struct copse_cuda_plan *p) {
  if (!p) return;
  free_tables(cuda, p);
  copse_internode_plan_free(p);
  copse_layout_free(&p->layout);
  free(p);
}

/* ---- step by step --------------------------------------------------------------------------- */

/* Plans that are prepared together. */
struct batch {
  struct copse_cuda *cuda;
  const struct copse_plan *const *plans;
  struct copse_cuda_plan **made; /* [n] NULL: left out */
  size_t n;
  /* New. Those that are needed come first, and then NULL. */
  struct copse_cuda_area *areas[3], *arena, *mirror, *staging;
  uint32_t n_areas;
  uint64_t slots_bytes; /* at the start of the arena; 0: those that there are will do */
  bool shared;          /* other processes may have opened this one's areas */
};

/* Checks that the switch's group is all ranks, or else the plan can't run. */
static copse_status check_groups(struct copse_cuda *cuda, const struct copse_plan *plan,
                                 struct copse_err *err) {
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind != COPSE_OP_MOVE) continue;
    if ((op->flags & COPSE_MOVE_REDUCE_LOAD && op->n_src != plan->header.n_ranks) ||
        (op->flags & COPSE_MOVE_GROUP_STORE && op->n_dst != plan->header.n_ranks))
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "the plan is multicast to groups of some ranks, and GPUs have one of all");
  }
  return copse_cuda_group_check(cuda, err);
}

static copse_status make_own(struct copse_cuda *cuda, struct copse_cuda_plan *p,
                             struct copse_err *err) {
  p->grouped = copse_plan_has_groups(p->plan);
  if (p->grouped) COPSE_DO(check_groups(cuda, p->plan, err));
  COPSE_DO(copse_internode_split(cuda, p, err));
  COPSE_DO(copse_layout_new(p->plan, &p->layout, err));
  COPSE_DO(copse_layout_limit(&p->layout, copse_cuda_slots_limit(cuda->n_ranks), err));
  if (p->split) p->layout.flat = false; /* data for other hosts stay until they are sent */
  p->puts = plan_puts(p->plan);
  lay_out_segment(p);
  for (uint32_t d = 0; d < cuda->n_devices; d++)
    COPSE_DO(choose_threads(cuda, p->plan, d, &p->devices[d], err));
  return p->split ? copse_internode_try_rounds(cuda, p, err) : COPSE_OK;
}

/* Makes what takes no memory of other ranks. A plan that doesn't fit is noted in the vote, and *why
 * says of the first one why not. */
static copse_status make_plans(struct batch *batch, struct copse_cuda_ballot *vote,
                               struct copse_err *why, struct copse_err *err) {
  struct copse_cuda *cuda = batch->cuda;
  COPSE_DO(copse_calloc(batch->n, sizeof *batch->made, &batch->made, err));
  COPSE_DO(copse_calloc(1, sizeof *batch->arena, &batch->arena, err));
  COPSE_DO(copse_calloc(1, sizeof *batch->mirror, &batch->mirror, err));
  COPSE_DO(copse_calloc(1, sizeof *batch->staging, &batch->staging, err));
  for (uint32_t i = 0; i < batch->n; i++) {
    struct copse_cuda_plan *p = NULL;
    struct copse_err mine = COPSE_ERR_INIT;
    COPSE_DO(copse_calloc(1, sizeof *p, &p, err));
    batch->made[i] = p;
    p->plan = batch->plans[i];
    p->number = cuda->n_plans + i;
    const copse_status status = make_own(cuda, p, &mine);
    if (status != COPSE_OK && status != COPSE_UNSUPPORTED)
      return copse_fail(err, status, "%s", mine.text);
    if (status == COPSE_OK) continue;
    vote->left_out[i / 64] |= UINT64_C(1) << i % 64;
    copse_debug(COPSE_DEBUG_WARN, (int)cuda->first_local, "%s of %s is left out: %s",
                copse_collective_name((copse_collective)batch->plans[i]->header.collective),
                batch->plans[i]->name, mine.text);
    if (why->status == COPSE_OK) (void)copse_fail(why, status, "%s", mine.text);
  }
  return COPSE_OK;
}

/* Leaves out what any rank has left out. */
static copse_status leave_out(struct batch *batch, const struct copse_cuda_ballot *vote,
                              const struct copse_err *why, struct copse_err *err) {
  size_t n_left = 0;
  for (size_t i = 0; i < batch->n; i++) {
    if (!(vote->left_out[i / 64] >> i % 64 & 1)) continue;
    copse_cuda_plan_free(batch->cuda, batch->made[i]);
    batch->made[i] = NULL;
    n_left++;
  }
  if (n_left < batch->n) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED, "%s",
                    why->status != COPSE_OK ? why->text
                                            : "no plan fits the GPUs of all ranks; others' logs "
                                              "say why");
}

static void need(struct batch *batch, struct copse_cuda_area *area, uint64_t bytes, bool on_host) {
  area->bytes = bytes > 0 ? bytes : ALIGN;
  area->on_host = on_host;
  batch->areas[batch->n_areas++] = area;
}

/* Computes what the new plans need: an arena of their segments, with slots before them where those
 * that there are don't suffice, and staging. */
static void size_areas(struct batch *batch) {
  const struct copse_cuda *cuda = batch->cuda;
  uint64_t slots = 0, segments = 0;
  bool stages = false, grouped = false;
  for (size_t i = 0; i < batch->n; i++) {
    const struct copse_cuda_plan *p = batch->made[i];
    if (!p) continue;
    if (p->segment.slots_bytes > slots) slots = p->segment.slots_bytes;
    segments += segment_bytes(&p->segment);
    stages = stages || p->puts;
    grouped = grouped || p->grouped;
  }
  grouped = grouped && !(cuda->slots && cuda->slots->grouped && slots <= cuda->slots_bytes);
  batch->slots_bytes = !cuda->slots || slots > cuda->slots_bytes || grouped ? slots : 0;
  need(batch, batch->arena, batch->slots_bytes + segments, false);
  batch->arena->grouped = grouped;
  if (grouped)
    batch->arena->bytes = copse_round_up(batch->arena->bytes, cuda->group_granularity);
  if (cuda->has_mirrors) {
    need(batch, batch->mirror, batch->arena->bytes, true);
    batch->arena->mirror = batch->mirror;
  }
  if (stages && (cuda->many_processes || cuda->has_mirrors) && !cuda->staging)
    need(batch, batch->staging, copse_cuda_staging_bytes, cuda->has_mirrors);
}

static copse_status make_areas(struct batch *batch, struct copse_err *err) {
  struct copse_cuda *cuda = batch->cuda;
  for (uint32_t a = 0; a < batch->n_areas; a++) {
    struct copse_cuda_area *area = batch->areas[a];
    if (area->on_host) COPSE_DO(copse_cuda_host_area(cuda, area, err));
    if (area->grouped) COPSE_DO(copse_cuda_group_area(cuda, area, err));
    for (uint32_t i = 0; i < cuda->n_local && !area->on_host && !area->grouped; i++) {
      const uint32_t r = cuda->first_local + i;
      COPSE_DO(allocate(cuda, r, area->bytes, &area->at[r], err));
    }
  }
  return COPSE_OK;
}

/* Gives the plans their places. */
static void place_plans(struct batch *batch) {
  const struct copse_cuda *cuda = batch->cuda;
  const struct copse_cuda_area *arena = batch->arena;
  const struct copse_cuda_area *slots = batch->slots_bytes || !cuda->slots ? arena : cuda->slots;
  uint64_t at = batch->slots_bytes;
  for (size_t i = 0; i < batch->n; i++) {
    struct copse_cuda_plan *p = batch->made[i];
    for (uint32_t r = 0; p && r < cuda->n_ranks; r++) {
      p->segments[r] = arena->at[r] ? arena->at[r] + at : NULL;
      p->slots[r] = slots->at[r];
      if (p->grouped) p->group = slots->group;
      if (!arena->mirror) continue;
      p->mirror_segments[r] = arena->mirror->at[r] ? arena->mirror->at[r] + at : NULL;
      p->mirror_slots[r] = slots->mirror->at[r];
    }
    if (p) at += segment_bytes(&p->segment);
  }
}

static copse_status make_devices(struct batch *batch, struct copse_err *err) {
  for (size_t i = 0; i < batch->n; i++)
    for (uint32_t d = 0; batch->made[i] && d < batch->cuda->n_devices; d++)
      COPSE_DO(make_device(batch->cuda, batch->made[i], d, err));
  return COPSE_OK;
}

/* Makes what the plans need of memory, in one step of all ranks: all have it or none does. */
static copse_status make_memory(struct batch *batch, struct copse_err *err) {
  struct copse_cuda *cuda = batch->cuda;
  size_areas(batch);
  copse_status mine = make_areas(batch, err);
  batch->shared = cuda->many_processes;
  if (batch->shared) mine = copse_cuda_share(cuda, batch->areas, batch->n_areas, mine, err);
  if (batch->arena->grouped) {
    mine = copse_cuda_agree(cuda, mine, err); /* all devices are in the group */
    if (mine != COPSE_OK) return mine;
    mine = copse_cuda_group_bind(cuda, batch->arena, err);
  }
  if (mine == COPSE_OK) place_plans(batch);
  if (mine == COPSE_OK) mine = make_devices(batch, err);
  return copse_cuda_agree(cuda, mine, err);
}

/* Frees the memory after a failure. Peers close what they opened before its owner frees it; all
 * have failed, so all come. */
static void undo_memory(struct batch *batch) {
  struct copse_cuda *cuda = batch->cuda;
  for (uint32_t a = 0; a < batch->n_areas; a++) copse_cuda_unshare(cuda, batch->areas[a]);
  if (batch->shared) (void)copse_cuda_agree(cuda, COPSE_OK, NULL);
  for (uint32_t a = 0; a < batch->n_areas; a++) empty_area(cuda, batch->areas[a]);
  for (size_t i = 0; batch->made && i < batch->n; i++)
    if (batch->made[i]) free_tables(cuda, batch->made[i]);
  batch->n_areas = 0;
  batch->shared = false;
}

/* Leaves out the multicast plans, for which there is no memory of a group. False where no others
 * are. */
static bool leave_out_grouped(struct batch *batch, const struct copse_err *why) {
  bool others = false;
  for (size_t i = 0; i < batch->n; i++) {
    others = others || (batch->made[i] && !batch->made[i]->grouped);
    if (!batch->made[i] || !batch->made[i]->grouped) continue;
    copse_debug(COPSE_DEBUG_WARN, (int)batch->cuda->first_local, "%s of %s is left out: %s",
                copse_collective_name((copse_collective)batch->plans[i]->header.collective),
                batch->plans[i]->name, why->text);
    copse_cuda_plan_free(batch->cuda, batch->made[i]);
    batch->made[i] = NULL;
  }
  return others;
}

static copse_status prepare(struct batch *batch, struct copse_err *err) {
  struct copse_cuda *cuda = batch->cuda;
  struct copse_cuda_ballot vote;
  struct copse_err why = COPSE_ERR_INIT;
  memset(&vote, 0, sizeof vote);
  COPSE_DO(copse_internode_find_hosts(cuda, err));
  copse_status mine = copse_cuda_probe_status(cuda, err);
  if (mine == COPSE_OK) mine = make_plans(batch, &vote, &why, err);
  vote.status = (int32_t)mine;
  COPSE_DO(copse_cuda_vote(cuda, &vote, err));
  COPSE_DO(leave_out(batch, &vote, &why, err));
  if (cuda->has_mirrors && 2 * cuda->n_ranks > COPSE_CUDA_MAX_RANKS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "%u ranks, the most are %u where GPUs have no access to each other's memory",
                      cuda->n_ranks, COPSE_CUDA_MAX_RANKS / 2);
  struct copse_err no_group = COPSE_ERR_INIT;
  copse_status status = make_memory(batch, &no_group);
  if (status != COPSE_OK && batch->arena->grouped) { /* at all ranks */
    undo_memory(batch);
    if (leave_out_grouped(batch, &no_group)) return make_memory(batch, err);
  }
  return status == COPSE_OK ? status : copse_fail(err, status, "%s", no_group.text);
}

static void undo(struct batch *batch) {
  struct copse_cuda *cuda = batch->cuda;
  undo_memory(batch);
  for (struct copse_cuda_area *area : {batch->arena, batch->mirror, batch->staging}) free(area);
  for (size_t i = 0; batch->made && i < batch->n; i++) copse_cuda_plan_free(cuda, batch->made[i]);
}

static void keep(struct batch *batch, void **prepared) {
  struct copse_cuda *cuda = batch->cuda;
  if (batch->slots_bytes || !cuda->slots) {
    cuda->slots = batch->arena;
    cuda->slots_bytes = batch->slots_bytes;
  }
  if (batch->staging->bytes > 0) cuda->staging = batch->staging;
  for (uint32_t a = 0; a < batch->n_areas; a++) {
    copse_cuda_host_settle(batch->areas[a]);
    batch->areas[a]->next = cuda->areas;
    cuda->areas = batch->areas[a];
  }
  for (struct copse_cuda_area *area : {batch->mirror, batch->staging})
    if (area->bytes == 0) free(area);
  for (size_t i = 0; i < batch->n; i++) {
    struct copse_cuda_plan *p = batch->made[i];
    prepared[i] = p;
    if (!p) continue;
    p->next = cuda->plans;
    cuda->plans = p;
  }
  cuda->n_plans += (uint32_t)batch->n;
}

copse_status copse_cuda_prepare(void *backend, const struct copse_plan *const *plans, size_t n,
                                void **prepared, struct copse_err *err) {
  struct copse_cuda *cuda = (struct copse_cuda *)backend;
  struct batch batch;
  memset(&batch, 0, sizeof batch);
  batch.cuda = cuda;
  batch.plans = plans;
  batch.n = n;
  copse_beside_captures permitted;
  for (size_t i = 0; i < n; i++) prepared[i] = NULL;
  if (n == 0) return COPSE_OK;
  if (n > COPSE_CUDA_MOST_VOTES)
    return copse_fail(err, COPSE_UNSUPPORTED, "%zu plans at once, the most are %d", n,
                      (int)COPSE_CUDA_MOST_VOTES);
  const copse_status status = prepare(&batch, err);
  if (status == COPSE_OK)
    keep(&batch, prepared);
  else
    undo(&batch);
  free(batch.made);
  return status;
}
