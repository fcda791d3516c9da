#include "support/plan_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growable array of T. */
#define LIST(T)  \
  struct {       \
    T *at;       \
    uint32_t n;  \
    size_t room; \
  }

static void *grown(void *at, uint32_t n, size_t *room, size_t size) {
  if (n < *room) return at;
  *room = *room ? 2 * *room : 16;
  at = realloc(at, *room * size);
  if (!at) abort();
  return at;
}
#define PUSH(list, value)                                                   \
  ((list).at = grown((list).at, (list).n, &(list).room, sizeof *(list).at), \
   (list).at[(list).n] = (value), (list).n++)

struct builder_worker {
  uint32_t rank;
  LIST(struct copse_plan_op) ops;
};

struct plan_builder {
  struct copse_plan_header header;
  LIST(struct builder_worker) workers;
  LIST(struct copse_plan_operand) operands;
  LIST(struct copse_plan_piece) pieces;
  LIST(struct copse_plan_region) regions;
  LIST(struct copse_plan_channel) channels;
  struct copse_plan_op *open; /* the MOVE that takes operands */
};

struct plan_builder *pb_new(copse_collective collective, uint32_t n_ranks, int32_t root) {
  struct plan_builder *b = calloc(1, sizeof *b);
  if (!b) abort();
  struct copse_plan_header *h = &b->header;
  bool gathers = collective == COPSE_ALLGATHER || collective == COPSE_ALLTOALL;
  bool scatters = collective == COPSE_REDUCE_SCATTER || collective == COPSE_ALLTOALL;
  h->collective = collective;
  h->root = root;
  h->n_ranks = n_ranks;
  h->input_blocks = scatters ? n_ranks : 1;
  h->output_blocks = gathers ? n_ranks : 1;
  h->fifo = 2;
  h->pipeline_chunks = 4;
  h->chunk_bytes = 1 << 20;
  h->min_chunk_bytes = 1 << 10;
  h->max_bytes = 1 << 30;
  return b;
}

struct copse_plan_header *pb_header(struct plan_builder *b) {
  return &b->header;
}

uint32_t pb_worker(struct plan_builder *b, uint32_t rank) {
  struct builder_worker worker = {.rank = rank};
  return PUSH(b->workers, worker);
}

uint32_t pb_piece(struct plan_builder *b, int64_t lo_num, int64_t lo_den, int64_t hi_num,
                  int64_t hi_den) {
  struct copse_plan_piece piece = {lo_num, lo_den, hi_num, hi_den, 0, 0};
  return PUSH(b->pieces, piece);
}

uint32_t pb_pair_piece(struct plan_builder *b, uint32_t src, uint32_t dst, int64_t lo_num,
                       int64_t lo_den, int64_t hi_num, int64_t hi_den) {
  uint32_t piece = pb_piece(b, lo_num, lo_den, hi_num, hi_den);
  b->pieces.at[piece].pair = src * b->header.n_ranks + dst + 1;
  return piece;
}

uint32_t pb_region(struct plan_builder *b, uint32_t rank, uint32_t piece) {
  struct copse_plan_region region = {rank, piece, COPSE_REGION_SLOTS};
  return PUSH(b->regions, region);
}

uint32_t pb_packets(struct plan_builder *b, uint32_t rank, uint32_t piece) {
  struct copse_plan_region region = {rank, piece, COPSE_REGION_PACKETS};
  b->header.protocol = COPSE_PROTOCOL_LOW_LATENCY;
  return PUSH(b->regions, region);
}

uint32_t pb_channel(struct plan_builder *b, uint32_t src_worker, uint32_t dst_worker) {
  struct copse_plan_channel channel = {src_worker, dst_worker};
  return PUSH(b->channels, channel);
}

struct copse_plan_operand pb_input(uint32_t rank, uint32_t block) {
  return (struct copse_plan_operand){rank, COPSE_BUFFER_INPUT, block};
}
struct copse_plan_operand pb_output(uint32_t rank, uint32_t block) {
  return (struct copse_plan_operand){rank, COPSE_BUFFER_OUTPUT, block};
}
struct copse_plan_operand pb_scratch(uint32_t rank, uint32_t region) {
  return (struct copse_plan_operand){rank, COPSE_BUFFER_SCRATCH, region};
}
struct copse_plan_operand pb_packet(uint32_t rank, uint32_t region) {
  return (struct copse_plan_operand){rank, COPSE_BUFFER_PACKETS, region};
}

static void add_op(struct plan_builder *b, uint32_t worker, struct copse_plan_op op) {
  struct builder_worker *w = &b->workers.at[worker];
  PUSH(w->ops, op);
  b->open = op.kind == COPSE_OP_MOVE ? &w->ops.at[w->ops.n - 1] : NULL;
}

void pb_move(struct plan_builder *b, uint32_t worker, uint32_t piece, uint8_t flags) {
  struct copse_plan_op op = {
      .kind = COPSE_OP_MOVE, .flags = flags, .piece = piece, .operand = b->operands.n};
  add_op(b, worker, op);
}

void pb_src(struct plan_builder *b, struct copse_plan_operand operand) {
  PUSH(b->operands, operand);
  b->open->n_src++;
}

void pb_dst(struct plan_builder *b, struct copse_plan_operand operand) {
  PUSH(b->operands, operand);
  b->open->n_dst++;
}

void pb_signal(struct plan_builder *b, uint32_t worker, uint32_t channel,
               enum copse_plan_when when) {
  struct copse_plan_op op = {.kind = COPSE_OP_SIGNAL, .when = (uint8_t)when, .channel = channel};
  add_op(b, worker, op);
}

void pb_wait(struct plan_builder *b, uint32_t worker, uint32_t channel, enum copse_plan_when when) {
  struct copse_plan_op op = {.kind = COPSE_OP_WAIT, .when = (uint8_t)when, .channel = channel};
  add_op(b, worker, op);
}

void pb_data_signal(struct plan_builder *b, uint32_t worker, uint32_t channel) {
  struct copse_plan_op op = {
      .kind = COPSE_OP_SIGNAL, .flags = COPSE_SYNC_IN_DATA, .channel = channel};
  add_op(b, worker, op);
}

void pb_data_wait(struct plan_builder *b, uint32_t worker, uint32_t channel) {
  struct copse_plan_op op = {
      .kind = COPSE_OP_WAIT, .flags = COPSE_SYNC_IN_DATA, .channel = channel};
  add_op(b, worker, op);
}

/* ---- the tables ------------------------------------------------------------------------- */

/* new_id[old] of things sorted by rank, the order within a rank kept. */
static uint32_t *order_by_rank(const uint32_t *ranks, uint32_t n, uint32_t n_ranks) {
  uint32_t *new_id = calloc(n + 1, sizeof *new_id), *next = calloc(n_ranks + 1, sizeof *next);
  if (!new_id || !next) abort();
  for (uint32_t i = 0; i < n; i++) next[ranks[i] + 1]++;
  for (uint32_t r = 0; r < n_ranks; r++) next[r + 1] += next[r];
  for (uint32_t i = 0; i < n; i++) new_id[i] = next[ranks[i]]++;
  free(next);
  return new_id;
}

static void finish_workers(struct plan_builder *b, struct copse_plan *plan) {
  uint32_t n = b->workers.n, n_ops = 0;
  uint32_t *ranks = calloc(n + 1, sizeof *ranks), *old_id = calloc(n + 1, sizeof *old_id);
  if (!ranks || !old_id) abort();
  for (uint32_t w = 0; w < n; w++) {
    ranks[w] = b->workers.at[w].rank;
    n_ops += b->workers.at[w].ops.n;
  }
  uint32_t *new_id = order_by_rank(ranks, n, b->header.n_ranks);
  for (uint32_t w = 0; w < n; w++) old_id[new_id[w]] = w;
  struct copse_plan_worker *workers = calloc(n + 1, sizeof *workers);
  struct copse_plan_rank *table = calloc(b->header.n_ranks + 1, sizeof *table);
  struct copse_plan_op *ops = calloc(n_ops + 1, sizeof *ops);
  if (!workers || !table || !ops) abort();
  uint32_t op = 0;
  for (uint32_t w = 0; w < n; w++) {
    struct builder_worker *it = &b->workers.at[old_id[w]];
    workers[w] = (struct copse_plan_worker){it->rank, op, it->ops.n};
    if (it->ops.n) memcpy(ops + op, it->ops.at, it->ops.n * sizeof *ops);
    op += it->ops.n;
    table[it->rank].n_workers++;
    free(it->ops.at);
  }
  for (uint32_t r = 1; r < b->header.n_ranks; r++)
    table[r].first_worker = table[r - 1].first_worker + table[r - 1].n_workers;
  for (uint32_t c = 0; c < b->channels.n; c++) {
    b->channels.at[c].src_worker = new_id[b->channels.at[c].src_worker];
    b->channels.at[c].dst_worker = new_id[b->channels.at[c].dst_worker];
  }
  plan->header.n_ops = n_ops;
  plan->ranks = table;
  plan->workers = workers;
  plan->ops = ops;
  free(ranks);
  free(old_id);
  free(new_id);
}

static void finish_regions(struct plan_builder *b, struct copse_plan *plan) {
  uint32_t n = b->regions.n;
  uint32_t *ranks = calloc(n + 1, sizeof *ranks);
  struct copse_plan_region *regions = calloc(n + 1, sizeof *regions);
  if (!ranks || !regions) abort();
  for (uint32_t i = 0; i < n; i++) ranks[i] = b->regions.at[i].rank;
  uint32_t *new_id = order_by_rank(ranks, n, b->header.n_ranks);
  for (uint32_t i = 0; i < n; i++) regions[new_id[i]] = b->regions.at[i];
  for (uint32_t i = 0; i < b->operands.n; i++)
    if (b->operands.at[i].buffer >= COPSE_BUFFER_SCRATCH)
      b->operands.at[i].index = new_id[b->operands.at[i].index];
  plan->regions = regions;
  free(ranks);
  free(new_id);
  free(b->regions.at);
}

struct copse_plan *pb_finish(struct plan_builder *b) {
  static const char name[] = "hand-built";
  struct copse_plan *plan = calloc(1, sizeof *plan);
  if (!plan) abort();
  plan->header = b->header;
  plan->header.n_workers = b->workers.n;
  plan->header.n_operands = b->operands.n;
  plan->header.n_pieces = b->pieces.n;
  plan->header.n_regions = b->regions.n;
  plan->header.n_channels = b->channels.n;
  plan->header.name_bytes = sizeof name - 1;
  plan->name = name;
  finish_workers(b, plan);
  finish_regions(b, plan);
  plan->operands = b->operands.at;
  plan->pieces = b->pieces.at;
  plan->channels = b->channels.at;
  free(b->workers.at);
  free(b);
  return plan;
}

void pb_free(struct copse_plan *plan) {
  if (!plan) return;
  free((void *)plan->ranks);
  free((void *)plan->workers);
  free((void *)plan->ops);
  free((void *)plan->operands);
  free((void *)plan->pieces);
  free((void *)plan->regions);
  free((void *)plan->channels);
  free(plan);
}
