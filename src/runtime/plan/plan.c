/*
 * Plans in memory and in files. A file is the header, the tables in the order of their counts, the
 * name, and a checksum:
 *
 *   header | ranks | workers | ops | operands | pieces | regions | channels | extents |
 *   name | SHA-256
 *
 * Fields are fixed-width and little-endian, without padding. Validation lets no index through that
 * an executor would have to check again; what a plan computes is proved elsewhere (codegen/check).
 * docs/formats.md, "Plan".
 */
#include "runtime/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* ---- validation ---------------------------------------------------------------------------- */

#define MAX_RANKS 65536u
#define MAX_FIFO 64u
#define MAX_PIPELINE_CHUNKS (1u << 20)
/* Far beyond any message, and small enough that adding one to it can't wrap around. */
#define MAX_CHUNK_BYTES ((uint64_t)1 << 62)

/* What the checks below share. */
struct checker {
  const struct copse_plan *plan;
  const char *label;
  struct copse_err *err;
};

#define BAD(check, ...) copse_fail_at((check)->err, COPSE_BAD_INPUT, (check)->label, 0, __VA_ARGS__)

static copse_status check_blocks(const struct checker *check) {
  const struct copse_plan_header *h = &check->plan->header;
  copse_collective collective = (copse_collective)h->collective;
  uint32_t in = (uint32_t)copse_collective_inputs(collective, (int)h->n_ranks);
  uint32_t out = (uint32_t)copse_collective_outputs(collective, (int)h->n_ranks);
  if (h->input_blocks != in || h->output_blocks != out)
    return BAD(check, "header: %s over %u ranks has %u input and %u output blocks, not %u and %u",
               copse_collective_name(collective), h->n_ranks, in, out, h->input_blocks,
               h->output_blocks);
  bool rooted = copse_collective_rooted(collective);
  if (rooted && (h->root < 0 || (uint32_t)h->root >= h->n_ranks))
    return BAD(check, "header: root %d is no rank of 0..%u", h->root, h->n_ranks - 1);
  if (!rooted && h->root != -1)
    return BAD(check, "header: %s has no root, the field must be -1, not %d",
               copse_collective_name(collective), h->root);
  return COPSE_OK;
}

static copse_status check_header(const struct checker *check) {
  const struct copse_plan_header *h = &check->plan->header;
  if (h->collective >= (uint32_t)COPSE_N_COLLECTIVES)
    return BAD(check, "header: unknown collective %u", h->collective);
  if (h->n_ranks < 1 || h->n_ranks > MAX_RANKS)
    return BAD(check, "header: %u ranks, must be 1..%u", h->n_ranks, MAX_RANKS);
  uint64_t pairs = (uint64_t)h->n_ranks * h->n_ranks;
  if (h->collective == COPSE_ALLTOALL && pairs > UINT32_MAX)
    return BAD(check, "header: %u ranks, an alltoall may have 65535", h->n_ranks);
  if ((h->n_extents != 0 && h->n_extents != pairs) ||
      (h->n_extents != 0 && h->collective != COPSE_ALLTOALL))
    return BAD(check, "header: %u extents, only an alltoall has some, one per pair of ranks",
               h->n_extents);
  if (h->fifo < 1 || h->fifo > MAX_FIFO)
    return BAD(check, "header: fifo of %u slots, must be 1..%u", h->fifo, MAX_FIFO);
  if (h->pipeline_chunks < 1 || h->pipeline_chunks > MAX_PIPELINE_CHUNKS)
    return BAD(check, "header: %u pipeline chunks, must be 1..%u", h->pipeline_chunks,
               MAX_PIPELINE_CHUNKS);
  if (h->chunk_bytes < 1 || h->chunk_bytes > MAX_CHUNK_BYTES)
    return BAD(check, "header: chunks of %llu bytes, must be 1..2^62",
               (unsigned long long)h->chunk_bytes);
  if (h->min_chunk_bytes < 1 || h->min_chunk_bytes > h->chunk_bytes)
    return BAD(check, "header: smallest chunk of %llu bytes, must be 1..%llu (the largest)",
               (unsigned long long)h->min_chunk_bytes, (unsigned long long)h->chunk_bytes);
  if (h->min_bytes > h->max_bytes)
    return BAD(check, "header: for messages from %llu to %llu bytes: none",
               (unsigned long long)h->min_bytes, (unsigned long long)h->max_bytes);
  if (h->protocol > COPSE_PROTOCOL_LOW_LATENCY)
    return BAD(check, "header: unknown protocol %u", h->protocol);
  if (h->protocol == COPSE_PROTOCOL_LOW_LATENCY && h->n_extents != 0)
    return BAD(check, "header: an alltoall by demand, whose blocks may be empty, has no packets");
  const char *name = check->plan->name;
  if (!name || strlen(name) != h->name_bytes)
    return BAD(check, "header: the name is not of %u bytes without NUL", h->name_bytes);
  return check_blocks(check);
}

/* Checks that ranks split the workers, and workers the operations, in order and without a rest. */
static copse_status check_partition(const struct checker *check) {
  const struct copse_plan *plan = check->plan;
  const struct copse_plan_header *h = &plan->header;
  uint64_t worker = 0, op = 0;
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    const struct copse_plan_rank *rank = &plan->ranks[r];
    if (rank->first_worker != worker || rank->n_workers > h->n_workers - worker)
      return BAD(check, "rank %u: workers %u + %u, must start at %llu and end by %u", r,
                 rank->first_worker, rank->n_workers, (unsigned long long)worker, h->n_workers);
    worker += rank->n_workers;
  }
  if (worker != h->n_workers)
    return BAD(check, "ranks have %llu workers, the plan has %u", (unsigned long long)worker,
               h->n_workers);
  for (uint32_t w = 0; w < h->n_workers; w++) {
    const struct copse_plan_worker *it = &plan->workers[w];
    if (it->first_op != op || it->n_ops > h->n_ops - op)
      return BAD(check, "worker %u: operations %u + %u, must start at %llu and end by %u", w,
                 it->first_op, it->n_ops, (unsigned long long)op, h->n_ops);
    op += it->n_ops;
    if (it->rank >= h->n_ranks || w < plan->ranks[it->rank].first_worker ||
        w - plan->ranks[it->rank].first_worker >= plan->ranks[it->rank].n_workers)
      return BAD(check, "worker %u: is not one of rank %u", w, it->rank);
  }
  if (op != h->n_ops)
    return BAD(check, "workers have %llu operations, the plan has %u", (unsigned long long)op,
               h->n_ops);
  return COPSE_OK;
}

static bool is_fraction(int64_t num, int64_t den) { return den > 0 && num >= 0 && num <= den; }

static copse_status check_tables(const struct checker *check) {
  const struct copse_plan *plan = check->plan;
  const struct copse_plan_header *h = &plan->header;
  const uint64_t pairs = h->collective == COPSE_ALLTOALL ? (uint64_t)h->n_ranks * h->n_ranks : 0;
  for (uint32_t p = 0; p < h->n_pieces; p++) {
    const struct copse_plan_piece *it = &plan->pieces[p];
    if (!is_fraction(it->lo_num, it->lo_den) || !is_fraction(it->hi_num, it->hi_den) ||
        (__int128)it->lo_num * it->hi_den > (__int128)it->hi_num * it->lo_den)
      return BAD(check, "piece %u: [%lld/%lld, %lld/%lld) is not an interval within [0, 1)", p,
                 (long long)it->lo_num, (long long)it->lo_den, (long long)it->hi_num,
                 (long long)it->hi_den);
    if (it->pair > pairs || (it->pair == 0) != (pairs == 0) || it->zero != 0)
      return BAD(check, "piece %u: pair %u of %llu", p, it->pair, (unsigned long long)pairs);
  }
  for (uint32_t i = 0; i < h->n_extents; i++)
    if (!is_fraction(plan->extents[i].num, plan->extents[i].den))
      return BAD(check, "extent %u: %lld/%lld is not a fraction", i,
                 (long long)plan->extents[i].num, (long long)plan->extents[i].den);
  for (uint32_t i = 0; i < h->n_regions; i++) {
    const struct copse_plan_region *it = &plan->regions[i];
    if (it->rank >= h->n_ranks) return BAD(check, "region %u: no rank %u", i, it->rank);
    if (it->piece >= h->n_pieces) return BAD(check, "region %u: no piece %u", i, it->piece);
    if (it->kind > COPSE_REGION_PACKETS)
      return BAD(check, "region %u: unknown kind %u", i, it->kind);
    if (it->kind == COPSE_REGION_PACKETS && h->protocol != COPSE_PROTOCOL_LOW_LATENCY)
      return BAD(check, "region %u: packets, in a plan of another protocol", i);
    if (i > 0 && it->rank < plan->regions[i - 1].rank)
      return BAD(check, "region %u: rank %u after rank %u, regions must be grouped by rank", i,
                 it->rank, plan->regions[i - 1].rank);
  }
  for (uint32_t c = 0; c < h->n_channels; c++) {
    const struct copse_plan_channel *it = &plan->channels[c];
    if (it->src_worker >= h->n_workers || it->dst_worker >= h->n_workers)
      return BAD(check, "channel %u: no worker %u", c,
                 it->src_worker >= h->n_workers ? it->src_worker : it->dst_worker);
  }
  return COPSE_OK;
}

/* Checks operand `o` of the MOVE `i` by `worker`. */
static copse_status check_operand(const struct checker *check, uint32_t i, uint32_t worker,
                                  uint32_t o) {
  const struct copse_plan *plan = check->plan;
  const struct copse_plan_header *h = &plan->header;
  const struct copse_plan_op *op = &plan->ops[i];
  const struct copse_plan_operand *it = &plan->operands[o];
  bool is_source = o - op->operand < op->n_src;
  if (it->rank >= h->n_ranks) return BAD(check, "op %u: operand %u: no rank %u", i, o, it->rank);
  if (is_source && !(op->flags & COPSE_MOVE_REDUCE_LOAD) && it->rank != plan->workers[worker].rank)
    return BAD(check, "op %u: operand %u: a source at rank %u, the worker's rank is %u", i, o,
               it->rank, plan->workers[worker].rank);
  uint32_t limit;
  switch (it->buffer) {
    case COPSE_BUFFER_INPUT: limit = h->input_blocks; break;
    case COPSE_BUFFER_OUTPUT: limit = h->output_blocks; break;
    case COPSE_BUFFER_SCRATCH:
    case COPSE_BUFFER_PACKETS: limit = h->n_regions; break;
    default: return BAD(check, "op %u: operand %u: unknown buffer %u", i, o, it->buffer);
  }
  if (!is_source && it->buffer == COPSE_BUFFER_INPUT)
    return BAD(check, "op %u: operand %u: writes an input", i, o);
  if (it->index >= limit)
    return BAD(check, "op %u: operand %u: index %u, must be below %u", i, o, it->index, limit);
  bool is_region = it->buffer == COPSE_BUFFER_SCRATCH || it->buffer == COPSE_BUFFER_PACKETS;
  if (!is_region && h->collective == COPSE_ALLTOALL) {
    uint32_t pair = it->buffer == COPSE_BUFFER_INPUT ? it->rank * h->n_ranks + it->index
                                                     : it->index * h->n_ranks + it->rank;
    if (plan->pieces[op->piece].pair != pair + 1)
      return BAD(check, "op %u: operand %u: a piece of another block", i, o);
  }
  if (!is_region) return COPSE_OK;
  const struct copse_plan_region *region = &plan->regions[it->index];
  if (region->rank != it->rank)
    return BAD(check, "op %u: operand %u: region %u is at rank %u, not %u", i, o, it->index,
               region->rank, it->rank);
  if ((region->kind == COPSE_REGION_PACKETS) != (it->buffer == COPSE_BUFFER_PACKETS))
    return BAD(check, "op %u: operand %u: region %u is of the other kind", i, o, it->index);
  if (region->piece != op->piece)
    return BAD(check, "op %u: operand %u: region %u is for piece %u, the operation's is %u", i, o,
               it->index, region->piece, op->piece);
  return COPSE_OK;
}

/* Checks operands [first, first + n) of the MOVE `i`, which are a group's: the same slots of ranks
 * that ascend, the worker's among them. */
static copse_status check_group(const struct checker *check, uint32_t i, uint32_t worker,
                                uint32_t first, uint32_t n) {
  const struct copse_plan *plan = check->plan;
  const struct copse_plan_operand *it = &plan->operands[first];
  const uint32_t own = plan->workers[worker].rank;
  bool has_own = false;
  if (n < 2) return BAD(check, "op %u: a group of %u ranks, at least two are needed", i, n);
  for (uint32_t k = 0; k < n; k++) {
    has_own = has_own || it[k].rank == own;
    if (it[k].buffer != COPSE_BUFFER_SCRATCH)
      return BAD(check, "op %u: operand %u: only slots have an address for a group", i, first + k);
    if (k > 0 && it[k].rank <= it[k - 1].rank)
      return BAD(check, "op %u: operand %u: rank %u after rank %u, a group's must ascend", i,
                 first + k, it[k].rank, it[k - 1].rank);
    uint32_t each = plan->header.n_regions / plan->header.n_ranks; /* regions of a rank */
    if (it[k].index % each != it->index % each)
      return BAD(check, "op %u: operand %u: region %u lies elsewhere than the group's first, %u", i,
                 first + k, it[k].index, it->index);
  }
  if (!has_own) return BAD(check, "op %u: a group without the worker's rank %u", i, own);
  return COPSE_OK;
}

/* Checks that all ranks have the same regions in the same order, so that a group's slots lie
 * alike. */
static copse_status check_alike(const struct checker *check) {
  const struct copse_plan_header *h = &check->plan->header;
  const struct copse_plan_region *regions = check->plan->regions;
  const uint32_t each = h->n_regions / h->n_ranks;
  if (h->protocol != COPSE_PROTOCOL_BANDWIDTH)
    return BAD(check, "header: multicast is not for a low-latency plan");
  for (uint32_t i = 0; i < h->n_regions; i++)
    if (h->n_regions % h->n_ranks != 0 || regions[i].rank != i / each ||
        regions[i].piece != regions[i % each].piece)
      return BAD(check, "region %u: in a plan with multicast all ranks must have the same ones", i);
  return COPSE_OK;
}

bool copse_plan_has_groups(const struct copse_plan *plan) {
  for (uint32_t i = 0; i < plan->header.n_ops; i++)
    if (plan->ops[i].kind == COPSE_OP_MOVE &&
        plan->ops[i].flags & (COPSE_MOVE_REDUCE_LOAD | COPSE_MOVE_GROUP_STORE))
      return true;
  return false;
}

/* Checks that packets are announced: proofs and reports need to know who sends them. */
static copse_status check_announced(const struct checker *check, uint32_t i, bool has_waited) {
  const struct copse_plan_op *op = &check->plan->ops[i];
  for (uint32_t k = 0; k < op->n_src && !has_waited; k++)
    if (check->plan->operands[op->operand + k].buffer == COPSE_BUFFER_PACKETS)
      return BAD(check, "op %u: reads packets, and its worker has not waited for any", i);
  return COPSE_OK;
}

static copse_status check_move(const struct checker *check, uint32_t i, uint32_t worker,
                               bool has_waited) {
  const struct copse_plan_header *h = &check->plan->header;
  const struct copse_plan_op *op = &check->plan->ops[i];
  uint32_t n = (uint32_t)op->n_src + op->n_dst;
  if (op->n_src == 0 || op->n_dst == 0)
    return BAD(check, "op %u: %u sources and %u destinations, at least one of each is needed", i,
               op->n_src, op->n_dst);
  if (op->flags & ~(COPSE_MOVE_FINAL | COPSE_MOVE_REDUCE_LOAD | COPSE_MOVE_GROUP_STORE))
    return BAD(check, "op %u: unknown flags 0x%x", i, op->flags);
  if (op->piece >= h->n_pieces) return BAD(check, "op %u: no piece %u", i, op->piece);
  if (op->channel != 0) return BAD(check, "op %u: a MOVE has no channel, must be 0", i);
  if (n > h->n_operands || op->operand > h->n_operands - n)
    return BAD(check, "op %u: operands %u + %u, the plan has %u", i, op->operand, n, h->n_operands);
  for (uint32_t k = 0; k < n; k++) COPSE_DO(check_operand(check, i, worker, op->operand + k));
  if (op->flags & COPSE_MOVE_REDUCE_LOAD)
    COPSE_DO(check_group(check, i, worker, op->operand, op->n_src));
  if (op->flags & COPSE_MOVE_GROUP_STORE)
    COPSE_DO(check_group(check, i, worker, op->operand + op->n_src, op->n_dst));
  return check_announced(check, i, has_waited);
}

static copse_status check_channel_op(const struct checker *check, uint32_t i, uint32_t worker) {
  const struct copse_plan *plan = check->plan;
  const struct copse_plan_op *op = &plan->ops[i];
  bool is_signal = op->kind == COPSE_OP_SIGNAL;
  bool low_latency = plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY;
  if (op->flags & ~(low_latency ? COPSE_SYNC_IN_DATA : 0u))
    return BAD(check, "op %u: unknown flags 0x%x", i, op->flags);
  if (op->n_src || op->n_dst || op->piece || op->operand)
    return BAD(check, "op %u: a %s has a channel only, the other fields must be 0", i,
               is_signal ? "SIGNAL" : "WAIT");
  if (op->channel >= plan->header.n_channels)
    return BAD(check, "op %u: no channel %u", i, op->channel);
  const struct copse_plan_channel *channel = &plan->channels[op->channel];
  uint32_t owner = is_signal ? channel->src_worker : channel->dst_worker;
  if (owner != worker)
    return BAD(check, "op %u: channel %u is %s by worker %u, not %u", i, op->channel,
               is_signal ? "signalled" : "waited on", owner, worker);
  return COPSE_OK;
}

/* Checks an operation; has_waited: one of the worker before it is a WAIT. */
static copse_status check_op(const struct checker *check, uint32_t i, uint32_t worker,
                             bool has_waited) {
  const struct copse_plan_op *op = &check->plan->ops[i];
  if (op->when > COPSE_WHEN_LAST) return BAD(check, "op %u: unknown condition %u", i, op->when);
  if (op->zero[0] || op->zero[1] || op->zero[2])
    return BAD(check, "op %u: reserved bytes must be 0", i);
  switch (op->kind) {
    case COPSE_OP_MOVE: return check_move(check, i, worker, has_waited);
    case COPSE_OP_SIGNAL:
    case COPSE_OP_WAIT: return check_channel_op(check, i, worker);
    default: return BAD(check, "op %u: unknown kind %u", i, op->kind);
  }
}

copse_status copse_plan_validate(const struct copse_plan *plan, const char *label,
                                 struct copse_err *err) {
  const struct checker check = {plan, label, err};
  COPSE_DO(check_header(&check));
  COPSE_DO(check_partition(&check));
  COPSE_DO(check_tables(&check));
  if (copse_plan_has_groups(plan)) COPSE_DO(check_alike(&check));
  for (uint32_t w = 0; w < plan->header.n_workers; w++) {
    const struct copse_plan_worker *worker = &plan->workers[w];
    bool has_waited = false;
    for (uint32_t i = worker->first_op; i < worker->first_op + worker->n_ops; i++) {
      COPSE_DO(check_op(&check, i, w, has_waited));
      has_waited = has_waited || plan->ops[i].kind == COPSE_OP_WAIT;
    }
  }
  return COPSE_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

static const char magic[8] = {'C', 'O', 'P', 'S', 'E', 'P', 'L', 'N'};

/* A table of the file: the widths of a record's fields, which have no padding between them in
 * memory either, and where the plan has its records and their number. */
struct table {
  const char *widths;
  size_t record_bytes;
  size_t records, count; /* offsets in struct copse_plan and its header */
};

#define TABLE(name, type, widths)                                   \
  {                                                                 \
    widths, sizeof(struct type), offsetof(struct copse_plan, name), \
        offsetof(struct copse_plan_header, n_##name)                \
  }
#define N_TABLES (sizeof tables / sizeof *tables)
static const struct table tables[] = {
    TABLE(ranks, copse_plan_rank, "44"),       TABLE(workers, copse_plan_worker, "444"),
    TABLE(ops, copse_plan_op, "11111111444"),  TABLE(operands, copse_plan_operand, "444"),
    TABLE(pieces, copse_plan_piece, "888844"), TABLE(regions, copse_plan_region, "444"),
    TABLE(channels, copse_plan_channel, "44"), TABLE(extents, copse_plan_extent, "88"),
};
static const struct table header_table = {
    "11111111"
    "448444444"
    "88884444444444"
    "11111111111111111111111111111111", /* SHA-256 */
    sizeof(struct copse_plan_header), 0, 0};

_Static_assert(sizeof(struct copse_plan_header) == 152 && sizeof(struct copse_plan_rank) == 8 &&
                   sizeof(struct copse_plan_worker) == 12 && sizeof(struct copse_plan_op) == 20 &&
                   sizeof(struct copse_plan_operand) == 12 &&
                   sizeof(struct copse_plan_piece) == 40 &&
                   sizeof(struct copse_plan_region) == 12 &&
                   sizeof(struct copse_plan_channel) == 8 && sizeof(struct copse_plan_extent) == 16,
               "the file's records");

static size_t count_of(const struct copse_plan *plan, const struct table *table) {
  return *(const uint32_t *)((const char *)&plan->header + table->count);
}

/* Turns fields of this machine's byte order into little-endian ones and back (the same
 * exchange); on little-endian machines a copy. */
static void copy_records(const struct table *table, size_t n, void *to, const void *from) {
  if (n == 0) return;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  memcpy(to, from, n * table->record_bytes);
#else
  unsigned char *dst = to;
  const unsigned char *src = from;
  for (size_t i = 0; i < n; i++)
    for (const char *field = table->widths; *field; field++) {
      int width = *field - '0';
      for (int b = 0; b < width; b++) dst[b] = src[width - 1 - b];
      dst += width;
      src += width;
    }
#endif
}

/* Computes the bytes of a file with these counts. No overflow: nine counts below 2^32, times at
 * most 40 bytes each. */
static uint64_t file_bytes(const struct copse_plan *plan) {
  uint64_t bytes = sizeof(struct copse_plan_header) + COPSE_SHA256_BYTES;
  for (size_t t = 0; t < N_TABLES; t++)
    bytes += (uint64_t)count_of(plan, &tables[t]) * tables[t].record_bytes;
  return bytes + plan->header.name_bytes;
}

/* Validates a plan and fills in what its header says of a file. */
static copse_status check_and_head(const struct copse_plan *plan, struct copse_plan_header *header,
                                   struct copse_err *err) {
  COPSE_DO(copse_plan_validate(plan, "plan", err));
  *header = plan->header;
  memcpy(header->magic, magic, sizeof magic);
  header->version = COPSE_PLAN_VERSION;
  header->header_bytes = sizeof *header;
  header->file_bytes = file_bytes(plan);
  if (header->file_bytes > COPSE_FILE_MAX_BYTES)
    return copse_fail(err, COPSE_UNSUPPORTED, "a plan of %llu bytes: larger than 1 GiB",
                      (unsigned long long)header->file_bytes);
  return COPSE_OK;
}

copse_status copse_plan_encode(const struct copse_plan *plan, char **bytes, size_t *size,
                               struct copse_err *err) {
  struct copse_plan_header header;
  char *out = NULL;
  *bytes = NULL;
  *size = 0;
  COPSE_DO(check_and_head(plan, &header, err));
  COPSE_DO(copse_calloc((size_t)header.file_bytes, 1, &out, err));
  char *at = out;
  copy_records(&header_table, 1, at, &header);
  at += sizeof header;
  for (size_t t = 0; t < N_TABLES; t++) {
    const void *records;
    size_t n = count_of(plan, &tables[t]);
    memcpy(&records, (const char *)plan + tables[t].records, sizeof records);
    copy_records(&tables[t], n, at, records);
    at += n * tables[t].record_bytes;
  }
  memcpy(at, plan->name, header.name_bytes);
  at += header.name_bytes;
  copse_sha256(out, (size_t)(at - out), (uint8_t *)at);
  *bytes = out;
  *size = (size_t)header.file_bytes;
  return COPSE_OK;
}

copse_status copse_plan_checksum(const struct copse_plan *plan, uint8_t digest[COPSE_SHA256_BYTES],
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *bytes = NULL;
  size_t size;
  COPSE_DO(copse_plan_encode(plan, &bytes, &size, err));
  memcpy(digest, bytes + size - COPSE_SHA256_BYTES, COPSE_SHA256_BYTES);
  return COPSE_OK;
}

/* ---- parts of ranks ------------------------------------------------------------------------ */

struct channel_key {
  uint32_t src, dst, channel;
};

COPSE_ORDER(by_ends, struct channel_key, COPSE_UP(src) ?: COPSE_UP(dst) ?: COPSE_UP(channel))

/* What numbers over the whole plan stand for. */
struct parts {
  const struct copse_plan *plan;
  struct copse_arena arena;
  uint32_t *ordinal;                     /* [n_channels] among those of the same two workers */
  uint8_t (*places)[COPSE_SHA256_BYTES]; /* [n_regions] digest of its rank's regions up to it */
};

static void free_parts(struct parts *parts) { copse_arena_free(&parts->arena); }

static copse_status number_channels(struct parts *parts, struct copse_err *err) {
  const struct copse_plan *plan = parts->plan;
  uint32_t n = plan->header.n_channels;
  struct channel_key *keys;
  COPSE_DO(COPSE_ARRAY(&parts->arena, n, keys, err));
  COPSE_DO(COPSE_ARRAY(&parts->arena, n, parts->ordinal, err));
  for (uint32_t c = 0; c < n; c++)
    keys[c] = (struct channel_key){plan->channels[c].src_worker, plan->channels[c].dst_worker, c};
  COPSE_SORT(keys, n, by_ends);
  for (uint32_t i = 1; i < n; i++) {
    bool same = keys[i].src == keys[i - 1].src && keys[i].dst == keys[i - 1].dst;
    parts->ordinal[keys[i].channel] = same ? parts->ordinal[keys[i - 1].channel] + 1 : 0;
  }
  return COPSE_OK;
}

/* Places regions one after the other at their rank. */
static copse_status place_regions(struct parts *parts, struct copse_err *err) {
  const struct copse_plan *plan = parts->plan;
  struct {
    uint8_t before[COPSE_SHA256_BYTES];
    struct copse_plan_piece piece;
    uint64_t kind;
  } it;
  COPSE_DO(COPSE_ARRAY(&parts->arena, plan->header.n_regions, parts->places, err));
  memset(&it, 0, sizeof it);
  for (uint32_t i = 0; i < plan->header.n_regions; i++) {
    const struct copse_plan_region *region = &plan->regions[i];
    if (i > 0 && region->rank == plan->regions[i - 1].rank)
      memcpy(it.before, parts->places[i - 1], sizeof it.before);
    else
      memset(it.before, 0, sizeof it.before);
    it.piece = plan->pieces[region->piece];
    it.kind = region->kind;
    copse_sha256(&it, sizeof it, parts->places[i]);
  }
  return COPSE_OK;
}

static void add_operand(const struct parts *parts, const struct copse_plan_operand *it,
                        struct copse_text *to) {
  bool scratch = it->buffer == COPSE_BUFFER_SCRATCH || it->buffer == COPSE_BUFFER_PACKETS;
  const uint32_t head[] = {it->rank, it->buffer, scratch ? 0 : it->index};
  copse_text_append(to, (const char *)head, sizeof head);
  if (scratch) copse_text_append(to, (const char *)parts->places[it->index], COPSE_SHA256_BYTES);
}

/* Adds a worker, by its rank and its number there. */
static void add_worker(const struct copse_plan *plan, uint32_t worker, struct copse_text *to) {
  uint32_t rank = plan->workers[worker].rank;
  const uint32_t head[] = {rank, worker - plan->ranks[rank].first_worker};
  copse_text_append(to, (const char *)head, sizeof head);
}

static void add_op(const struct parts *parts, const struct copse_plan_op *op,
                   struct copse_text *to) {
  const struct copse_plan *plan = parts->plan;
  const uint8_t head[] = {op->kind, op->when, op->flags, op->n_src, op->n_dst};
  copse_text_append(to, (const char *)head, sizeof head);
  if (op->kind == COPSE_OP_MOVE) {
    copse_text_append(to, (const char *)&plan->pieces[op->piece], sizeof *plan->pieces);
    for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++)
      add_operand(parts, &plan->operands[op->operand + k], to);
    return;
  }
  add_worker(plan, plan->channels[op->channel].src_worker, to);
  add_worker(plan, plan->channels[op->channel].dst_worker, to);
  copse_text_append(to, (const char *)&parts->ordinal[op->channel], sizeof *parts->ordinal);
}

/* Adds what all ranks have in common. */
static void add_common(const struct copse_plan *plan, struct copse_text *to) {
  const struct copse_plan_header *h = &plan->header;
  const uint64_t head[] = {h->collective,  (uint64_t)h->root,  h->fifo,    h->pipeline_chunks,
                           h->chunk_bytes, h->min_chunk_bytes, h->n_ranks, h->protocol};
  copse_text_append(to, (const char *)head, sizeof head);
  if (h->n_extents > 0)
    copse_text_append(to, (const char *)plan->extents, h->n_extents * sizeof *plan->extents);
}

copse_status copse_plan_digest_parts(const struct copse_plan *plan,
                                     uint8_t (*digests)[COPSE_SHA256_BYTES],
                                     struct copse_err *err) {
  COPSE_AT_END(free_parts) struct parts parts = {.plan = plan};
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  COPSE_DO(number_channels(&parts, err));
  COPSE_DO(place_regions(&parts, err));
  for (uint32_t r = 0; r < plan->header.n_ranks; r++) {
    const struct copse_plan_rank *rank = &plan->ranks[r];
    text.size = 0;
    add_common(plan, &text);
    for (uint32_t w = 0; w < rank->n_workers; w++) {
      const struct copse_plan_worker *worker = &plan->workers[rank->first_worker + w];
      copse_text_append(&text, (const char *)&worker->n_ops, sizeof worker->n_ops);
      for (uint32_t i = 0; i < worker->n_ops; i++)
        add_op(&parts, &plan->ops[worker->first_op + i], &text);
    }
    COPSE_DO(copse_text_status(&text, err));
    copse_sha256(text.data, text.size, digests[r]);
  }
  return COPSE_OK;
}

/* Checks what comes before any use of a count. check->plan is `plan`, whose header this fills. */
static copse_status check_frame(const struct checker *check, const char *bytes, size_t size,
                                struct copse_plan *plan) {
  struct copse_plan_header *header = &plan->header;
  size_t smallest = sizeof *header + COPSE_SHA256_BYTES;
  size_t seen = size < sizeof magic ? size : sizeof magic;
  if (size == 0) return BAD(check, "is empty, not a plan");
  if (memcmp(bytes, magic, seen) != 0)
    return BAD(check, "is not a copse plan (a plan starts with COPSEPLN)");
  if (size < smallest) return BAD(check, "the plan is cut off: %zu bytes", size);
  copy_records(&header_table, 1, header, bytes);
  if (header->version != COPSE_PLAN_VERSION)
    return BAD(check, "a plan of version %u; this copse reads version %u", header->version,
               COPSE_PLAN_VERSION);
  if (header->header_bytes != sizeof *header)
    return BAD(check, "a header of %u bytes, must be %zu", header->header_bytes, sizeof *header);
  if (header->file_bytes != size || file_bytes(plan) != size)
    return BAD(check, "the plan has %zu bytes, its header says %llu and its tables make %llu", size,
               (unsigned long long)header->file_bytes, (unsigned long long)file_bytes(plan));
  uint8_t digest[COPSE_SHA256_BYTES];
  copse_sha256(bytes, size - sizeof digest, digest);
  if (memcmp(digest, bytes + size - sizeof digest, sizeof digest) != 0)
    return BAD(check, "the plan's checksum is wrong: the file is damaged");
  return COPSE_OK;
}

/* A decoded plan and its memory. */
struct owned_plan {
  struct copse_plan plan;
  struct copse_arena arena;
};

/* Copies the tables of a file, which also aligns them, or of another plan. The sizes add up to the
 * file's: checked. */
static copse_status copy_tables(struct owned_plan *owned, const char *bytes,
                                const struct copse_plan *from, struct copse_err *err) {
  struct copse_plan *plan = &owned->plan;
  const char *at = bytes ? bytes + sizeof plan->header : NULL;
  void *records;
  char *name;
  for (size_t t = 0; t < N_TABLES; t++) {
    size_t n = count_of(plan, &tables[t]), size = tables[t].record_bytes;
    COPSE_DO(copse_arena_array(&owned->arena, n, size, &records, err));
    if (from) memcpy(&at, (const char *)from + tables[t].records, sizeof at);
    if (from && n > 0) memcpy(records, at, n * size);
    if (!from) copy_records(&tables[t], n, records, at);
    memcpy((char *)plan + tables[t].records, &records, sizeof records);
    at += n * size;
  }
  if (from) at = from->name;
  COPSE_DO(COPSE_ARRAY(&owned->arena, (size_t)plan->header.name_bytes + 1, name, err));
  memcpy(name, at, plan->header.name_bytes);
  plan->name = name;
  return COPSE_OK;
}

static void drop_plan(struct owned_plan **owned) { copse_plan_free((struct copse_plan *)*owned); }

copse_status copse_plan_decode(const char *label, const char *bytes, size_t size,
                               struct copse_plan **out, struct copse_err *err) {
  COPSE_AT_END(drop_plan) struct owned_plan *owned = NULL;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof *owned, &owned, err));
  const struct checker check = {&owned->plan, label, err};
  COPSE_DO(check_frame(&check, bytes, size, &owned->plan));
  COPSE_DO(copse_memory_check(size, label, NULL, err, "the plan"));
  COPSE_DO(copy_tables(owned, bytes, NULL, err));
  COPSE_DO(copse_plan_validate(&owned->plan, label, err));
  *out = &owned->plan;
  owned = NULL;
  return COPSE_OK;
}

copse_status copse_plan_copy(const struct copse_plan *plan, struct copse_plan **out,
                             struct copse_err *err) {
  COPSE_AT_END(drop_plan) struct owned_plan *owned = NULL;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof *owned, &owned, err));
  COPSE_DO(check_and_head(plan, &owned->plan.header, err));
  COPSE_DO(copy_tables(owned, NULL, plan, err));
  *out = &owned->plan;
  owned = NULL;
  return COPSE_OK;
}

copse_status copse_plan_open(const char *path, struct copse_plan **out, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *bytes = NULL;
  size_t size;
  *out = NULL;
  COPSE_DO(copse_file_read(path, &bytes, &size, err));
  return copse_plan_decode(copse_file_label(path), bytes, size, out, err);
}

/* Frees the plan's owner, of which it is the first member. */
void copse_plan_free(struct copse_plan *plan) {
  struct owned_plan *owned = (struct owned_plan *)plan;
  if (!owned) return;
  copse_arena_free(&owned->arena);
  free(owned);
}
