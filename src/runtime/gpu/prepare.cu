/* A plan on the GPUs: its tables, its counters, its scratch, and whether it fits. */
#include "runtime/gpu/cuda_machine.h"

#define ALIGN 256u /* of every table and area */

static uint64_t aligned(uint64_t bytes) { return copse_round_up(bytes, ALIGN); }

/* ---- which workers run where --------------------------------------------------------------- */

static bool is_local(const struct copse_cuda_machine *m, uint32_t rank) {
  return rank >= m->first_local && rank - m->first_local < m->n_local;
}

static bool is_at_site(const struct copse_cuda_machine *m, uint32_t rank, uint32_t site) {
  return is_local(m, rank) && m->site_of[rank - m->first_local] == site;
}

static uint32_t ranks_at(const struct copse_cuda_machine *m, uint32_t site) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n_local; i++) n += m->site_of[i] == site;
  return n;
}

static uint32_t blocks_at(const struct copse_cuda_machine *m, const struct copse_plan *plan,
                          uint32_t site) {
  uint32_t n = 0;
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    n += is_at_site(m, plan->workers[w].rank, site);
  return n;
}

copse_status copse_cuda_room(const struct copse_plan *plan, int device,
                             uint32_t n_multiprocessors, uint32_t n_threads, uint32_t *room,
                             struct copse_err *err) {
  bool reduces = copse_collective_reduces((copse_collective)plan->header.collective);
  int fewest = -1;
  copse_on_device here(device);
  for (int type = 0; type < COPSE_N_TYPES; type++) {
    copse_kernel kernel = copse_kernel_of((copse_type)type, reduces);
    int blocks = 0;
    COPSE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, (int)n_threads, copse_kernel_shared_bytes()));
    if (fewest < 0 || blocks < fewest) fewest = blocks;
  }
  *room = (uint32_t)fewest * n_multiprocessors;
  return COPSE_OK;
}

/* All blocks of a launch wait for each other, so all must be resident at once. Where there are
 * many they are narrower: while some of a multiprocessor's wait, the others move data. */
static copse_status choose_threads(const struct copse_cuda_machine *m,
                                   const struct copse_plan *plan, uint32_t site,
                                   struct copse_site_plan *it, struct copse_err *err) {
  const struct copse_site *at = &m->sites[site];
  uint32_t room = 0;
  it->n_blocks = blocks_at(m, plan, site);
  it->n_threads = copse_cuda_threads;
  COPSE_CHECK(
      copse_cuda_room(plan, at->device, at->n_multiprocessors, it->n_threads, &room, err));
  while (it->n_blocks > room && it->n_threads / 2 >= COPSE_CUDA_LEAST_THREADS) {
    it->n_threads /= 2;
    COPSE_CHECK(
        copse_cuda_room(plan, at->device, at->n_multiprocessors, it->n_threads, &room, err));
  }
  if (it->n_blocks <= room) return COPSE_OK;
  uint32_t ranks = ranks_at(m, site);
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the plan takes %u thread blocks on GPU %d (%u ranks), which holds %u at once; "
                    "copse lower --workers %u fits",
                    it->n_blocks, at->device, ranks, room, room / ranks);
}

/* ---- tables -------------------------------------------------------------------------------- */

/* A site's tables while they are laid out, first to see how long they are, then to fill them. */
struct writer {
  unsigned char *host; /* NULL: measure only */
  unsigned char *device;
  uint64_t used;
};

/* A copy of n records; its address on the device. */
template <typename T>
static T *put(struct writer *w, const T *records, uint64_t n) {
  uint64_t at = w->used;
  w->used = aligned(at + n * sizeof(T));
  if (!w->host) return NULL;
  if (records && n) memcpy(w->host + at, records, n * sizeof(T));
  return (T *)(w->device + at);
}

/* What the tables are made of, beside the plan's own. */
struct parts {
  struct copse_channel_place *channels; /* [n_channels] */
  struct copse_block_work *works;       /* [n_blocks] */
  struct copse_rank_arena *arenas;      /* [n_lanes * n_ranks] */
};

static void put_all(struct writer *w, const struct copse_cuda_plan *p, const struct parts *parts,
                    struct copse_site_plan *site) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  struct copse_device_plan *d = &site->device[0];
  d->ops = put(w, plan->ops, h->n_ops);
  d->operands = put(w, plan->operands, h->n_operands);
  d->pieces = put(w, plan->pieces, h->n_pieces);
  d->extents = put(w, plan->extents, h->n_extents);
  if (h->n_extents == 0) d->extents = NULL;
  d->places = put(w, p->layout.places, h->n_regions);
  d->channels = put(w, parts->channels, h->n_channels);
  d->works = put(w, parts->works, site->n_blocks);
  d->epochs = put(w, (const uint32_t *)NULL, h->n_workers);
  for (uint32_t lane = 0; lane < p->n_lanes; lane++) {
    struct copse_device_plan *it = &site->device[lane];
    *it = *d;
    it->arenas = put(w, parts->arenas + (size_t)lane * h->n_ranks, h->n_ranks);
    it->sent = put(w, (const uint64_t *)NULL, h->n_channels);
    it->taken = put(w, (const uint64_t *)NULL, h->n_channels);
  }
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

static copse_status make_parts(const struct copse_cuda_machine *m, const struct copse_cuda_plan *p,
                               uint32_t site, struct parts *parts, struct copse_err *err) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  uint32_t *counters = NULL;
  COPSE_CHECK(copse_calloc(h->n_channels, sizeof *parts->channels, &parts->channels, err));
  COPSE_CHECK(copse_calloc(h->n_workers, sizeof *parts->works, &parts->works, err));
  COPSE_CHECK(copse_calloc((size_t)p->n_lanes * h->n_ranks, sizeof *parts->arenas,
                           &parts->arenas, err));
  COPSE_CHECK(copse_calloc(h->n_ranks, sizeof *counters, &counters, err));
  for (uint32_t c = 0; c < h->n_channels; c++) {
    uint32_t rank = plan->workers[plan->channels[c].dst_worker].rank;
    parts->channels[c].rank = rank;
    parts->channels[c].ordinal = counters[rank]++;
  }
  free(counters);
  uint32_t block = 0;
  for (uint32_t w = 0; w < h->n_workers; w++)
    if (is_at_site(m, plan->workers[w].rank, site)) parts->works[block++] = work_of(plan, w);
  for (uint32_t i = 0; i < p->n_lanes * h->n_ranks; i++) {
    unsigned char *arena = p->arenas[i % h->n_ranks];
    struct copse_rank_arena *it = &parts->arenas[i];
    if (!arena) continue; /* of another host */
    arena += copse_lane_offset(&p->shape, i / h->n_ranks);
    it->signals = (uint64_t *)arena;
    it->scratch = arena + p->shape.signals_bytes;
    it->packets = it->scratch + p->shape.slots_bytes;
  }
  return COPSE_OK;
}

static void free_parts(struct parts *parts) {
  free(parts->channels);
  free(parts->works);
  free(parts->arenas);
}

static copse_status upload(struct copse_cuda_machine *m, struct copse_cuda_plan *p, uint32_t site,
                           const struct parts *parts, struct copse_err *err) {
  struct copse_site_plan *it = &p->sites[site];
  struct writer w = {NULL, NULL, 0};
  put_all(&w, p, parts, it);
  uint64_t bytes = w.used;
  copse_on_device here(m->sites[site].device);
  void *tables = NULL;
  COPSE_CUDA(cudaMalloc(&tables, bytes));
  it->tables = (unsigned char *)tables;
  struct writer filling = {NULL, it->tables, 0};
  COPSE_CHECK(copse_calloc(bytes, 1, &filling.host, err)); /* counters start at 0 */
  put_all(&filling, p, parts, it);
  copse_status status = copse_cuda_upload(it->tables, filling.host, bytes, err);
  free(filling.host);
  return status;
}

static copse_status make_site(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                              uint32_t site, struct copse_err *err) {
  struct parts parts = {NULL, NULL, NULL};
  const uint32_t own = m->first_local;
  copse_status status = make_parts(m, p, site, &parts, err);
  if (status == COPSE_OK) status = upload(m, p, site, &parts, err);
  free_parts(&parts);
  for (uint32_t lane = 0; lane < p->n_lanes; lane++) {
    struct copse_device_plan *d = &p->sites[site].device[lane];
    d->control = m->control;
    d->packets_copy = p->shape.packets_copy;
    d->n_ranks = p->plan->header.n_ranks;
    d->fifo = p->plan->header.fifo;
    d->low_latency = p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY;
    d->system = m->n_sites > 1 || m->many_processes;
    d->number = p->number;
    if (!p->split) continue;
    d->own_word = own;
    d->words = (uint32_t *)(p->arenas[own] + copse_lane_offset(&p->shape, lane + 1) -
                            p->shape.words_bytes);
  }
  return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The same shape for every rank, so that processes need not tell each other theirs. */
static void shape_arena(struct copse_cuda_plan *p) {
  const struct copse_plan *plan = p->plan;
  struct copse_arena_shape *s = &p->shape;
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
static copse_status allocate(struct copse_cuda_machine *m, uint32_t rank, uint64_t bytes,
                             unsigned char **out, struct copse_err *err) {
  copse_on_device here(m->sites[m->site_of[rank - m->first_local]].device);
  void *memory = NULL;
  COPSE_CUDA(cudaMalloc(&memory, bytes ? bytes : ALIGN));
  *out = (unsigned char *)memory;
  return copse_cuda_upload(memory, NULL, bytes ? bytes : ALIGN, err);
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

/* The same amount at every rank of every process; addresses[r] as this process reaches it. */
static copse_status make_shared(struct copse_cuda_machine *m, uint64_t bytes,
                                unsigned char **addresses, void **opened, struct copse_err *err) {
  uint32_t own = m->first_local;
  COPSE_CHECK(copse_cuda_agree(m, allocate(m, own, bytes, &addresses[own], err), err));
  return copse_cuda_agree(m, copse_cuda_share(m, addresses[own], addresses, opened, err), err);
}

static copse_status make_memory(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                                struct copse_err *err) {
  uint64_t bytes = copse_lane_offset(&p->shape, p->n_lanes);
  uint32_t first = m->first_local;
  p->is_shared = m->many_processes;
  if (m->many_processes) {
    COPSE_CHECK(make_shared(m, bytes, p->arenas, p->opened, err));
    if (!p->puts) return COPSE_OK;
    return make_shared(m, copse_cuda_staging_bytes * p->plan->header.output_blocks, p->staging,
                       p->opened + m->n_ranks, err);
  }
  for (uint32_t i = 0; i < m->n_local; i++)
    COPSE_CHECK(allocate(m, first + i, bytes, &p->arenas[first + i], err));
  return COPSE_OK;
}

void copse_cuda_plan_free(struct copse_cuda_machine *m, struct copse_cuda_plan *p) {
  if (!p) return;
  if (p->opened) copse_cuda_unshare(m, p->opened);
  if (p->opened) copse_cuda_unshare(m, p->opened + m->n_ranks);
  for (uint32_t i = 0; p->arenas && i < m->n_local; i++)
    (void)cudaFree(p->arenas[m->first_local + i]);
  if (p->staging) (void)cudaFree(p->staging[m->first_local]);
  for (uint32_t s = 0; p->sites && s < m->n_sites; s++)
    if (p->sites[s].tables) (void)cudaFree(p->sites[s].tables);
  copse_cuda_free_rounds(p);
  copse_split_free(p->split);
  free(p->arenas);
  free(p->staging);
  free(p->opened);
  free(p->sites);
  copse_layout_free(&p->layout);
  free(p);
}

static copse_status make_own(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                             struct copse_err *err) {
  if (m->n_hosts > 1) {
    COPSE_CHECK(copse_split_new(p->plan, m->host_of, &p->split, err));
    p->plan = &p->split->local;
  }
  COPSE_CHECK(copse_layout_new(p->plan, &p->layout, err));
  if (p->split) p->layout.flat = false; /* what goes to other hosts is kept until it is sent */
  COPSE_CHECK(copse_calloc(m->n_ranks, sizeof *p->arenas, &p->arenas, err));
  COPSE_CHECK(copse_calloc(m->n_ranks, sizeof *p->staging, &p->staging, err));
  COPSE_CHECK(copse_calloc(2 * m->n_ranks, sizeof *p->opened, &p->opened, err));
  COPSE_CHECK(copse_calloc(m->n_sites, sizeof *p->sites, &p->sites, err));
  p->puts = plan_puts(p->plan);
  shape_arena(p);
  for (uint32_t s = 0; s < m->n_sites; s++)
    COPSE_CHECK(choose_threads(m, p->plan, s, &p->sites[s], err));
  return copse_cuda_count_lanes(m, p, &p->n_lanes, err);
}

static copse_status make_sites(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                               struct copse_err *err) {
  for (uint32_t s = 0; s < m->n_sites; s++) COPSE_CHECK(make_site(m, p, s, err));
  if (!p->split) return COPSE_OK;
  /* a plan that stands still does so for one of these, and is refused before it is used */
  const uint32_t fifo = p->plan->header.fifo, chunks[] = {1, fifo + 1, 2 * fifo + 1};
  const struct copse_cuda_rounds *rounds;
  if (p->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY)
    return copse_cuda_find_rounds(m, p, 1, &rounds, err);
  for (uint32_t n : chunks) COPSE_CHECK(copse_cuda_find_rounds(m, p, n, &rounds, err));
  return COPSE_OK;
}

/* Step by step, and after each the processes agree, so that none waits for one that gave up. */
static copse_status prepare(struct copse_cuda_machine *m, struct copse_cuda_plan *p,
                            struct copse_err *err) {
  COPSE_CHECK(copse_cuda_find_hosts(m, err));
  COPSE_CHECK(copse_cuda_agree(m, make_own(m, p, err), err));
  COPSE_CHECK(copse_cuda_least(m, p->n_lanes, &p->n_lanes, err));
  COPSE_CHECK(make_memory(m, p, err));
  return copse_cuda_agree(m, make_sites(m, p, err), err);
}

/* Peers close what they opened before its owner frees it. All are here, since all have failed. */
static void close_shared(struct copse_cuda_machine *m, struct copse_cuda_plan *p) {
  struct copse_err ignored = COPSE_ERR_INIT;
  if (!p->is_shared) return;
  copse_cuda_unshare(m, p->opened);
  copse_cuda_unshare(m, p->opened + m->n_ranks);
  (void)copse_cuda_agree(m, COPSE_OK, &ignored);
}

copse_status copse_cuda_prepare(void *machine, const struct copse_plan *plan, void **prepared,
                                struct copse_err *err) {
  struct copse_cuda_machine *m = (struct copse_cuda_machine *)machine;
  struct copse_cuda_plan *p = NULL;
  copse_beside_captures permitted;
  *prepared = NULL;
  COPSE_CHECK(copse_calloc(1, sizeof *p, &p, err));
  p->plan = plan;
  p->number = m->n_plans++;
  copse_status status = prepare(m, p, err);
  if (status != COPSE_OK) {
    close_shared(m, p);
    copse_cuda_plan_free(m, p);
    return status;
  }
  p->next = m->plans;
  m->plans = p;
  *prepared = p;
  return COPSE_OK;
}
