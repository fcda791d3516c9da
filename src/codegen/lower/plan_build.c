#include "codegen/lower/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "schedule/chunks.h"

static copse_status check_range(struct copse_plan_build *b, const char *what, int64_t value,
                                int64_t min, int64_t max) {
  if (value >= min && value <= max) return COPSE_OK;
  return copse_fail(b->err, COPSE_INVALID, "%s must be from %lld to %lld", what, (long long)min,
                    (long long)max);
}

#define LOW_LATENCY_MOST ((int64_t)16 << 20)
#define LOW_LATENCY_BYTES ((int64_t)256 << 10)
#define ONE_HOP_BYTES ((int64_t)16 << 10)
#define ONE_HOP_PART_BYTES ((int64_t)512)

/* What a low-latency plan has instead of the usual defaults. */
static copse_status fill_low_latency(struct copse_plan_build *b) {
  struct copse_lower_options *o = &b->options;
  if (o->one_hop && !o->low_latency)
    return copse_fail(b->err, COPSE_INVALID, "one hop is for a low-latency plan");
  if (!o->low_latency) return COPSE_OK;
  if (o->max_bytes == 0) o->max_bytes = o->one_hop ? ONE_HOP_BYTES : LOW_LATENCY_BYTES;
  if (o->max_bytes > LOW_LATENCY_MOST)
    return copse_fail(b->err, COPSE_INVALID,
                      "a low-latency plan is for messages of at most %lld bytes, all of which its "
                      "packets must hold at once",
                      (long long)LOW_LATENCY_MOST);
  if (o->instances == COPSE_LOWER_AUTO || o->instances == 0) {
    int64_t parts = o->one_hop ? o->max_bytes / ONE_HOP_PART_BYTES : 1;
    parts = copse_smaller(parts > 0 ? parts : 1, COPSE_LOWER_MOST_INSTANCES);
    o->instances = (int)copse_smaller(parts, o->max_workers);
  }
  return COPSE_OK;
}

static copse_status fill_options(struct copse_plan_build *b,
                                 const struct copse_lower_options *given, int least_workers) {
  struct copse_lower_options *o = &b->options;
  copse_status status;
  if (given) *o = *given;
  if (o->max_workers == 0) o->max_workers = 32;
  COPSE_TRY(fill_low_latency(b));
  if (o->instances == 0) o->instances = 1;
  if (o->fifo == 0) o->fifo = COPSE_FIFO;
  if (o->chunk_bytes == 0) o->chunk_bytes = COPSE_CHUNK_BYTES;
  if (o->min_chunk_bytes == 0)
    o->min_chunk_bytes = copse_smaller(o->chunk_bytes, COPSE_MIN_CHUNK_BYTES);
  if (o->max_bytes == 0) o->max_bytes = INT64_MAX;
  COPSE_TRY(check_range(b, "the largest message", o->max_bytes, 1, INT64_MAX));
  COPSE_TRY(check_range(b, "the smallest message", o->min_bytes, 0, o->max_bytes));
  COPSE_TRY(check_range(b, "the number of workers", o->max_workers, least_workers, 1024));
  if (o->instances != COPSE_LOWER_AUTO)
    COPSE_TRY(check_range(b, "the number of instances", o->instances, 1,
                          COPSE_LOWER_MOST_INSTANCES));
  COPSE_TRY(check_range(b, "the FIFO depth", o->fifo, 1, 64));
  COPSE_TRY(check_range(b, "the number of chunks", o->pipeline_chunks, 0, 1 << 20));
  COPSE_TRY(check_range(b, "the chunk size", o->chunk_bytes, COPSE_PLAN_ALIGN_BYTES, 1LL << 40));
  COPSE_TRY(check_range(b, "the smallest chunk size", o->min_chunk_bytes, COPSE_PLAN_ALIGN_BYTES,
                        o->chunk_bytes));
out:
  return status;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

static void fill_sha256(struct copse_plan_header *h, const char *hex) {
  if (strlen(hex) != 2 * sizeof h->topology_sha256) return;
  for (size_t i = 0; i < sizeof h->topology_sha256; i++) {
    int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
    h->topology_sha256[i] = hi < 0 || lo < 0 ? 0 : (uint8_t)(16 * hi + lo);
  }
}

copse_status copse_build_start(struct copse_plan_build *b, const struct copse_schedule *s,
                               const struct copse_lower_options *options, int least_workers,
                               struct copse_err *err) {
  struct copse_plan_header *h = &b->header;
  uint32_t n = (uint32_t)s->n_ranks;
  *b = (struct copse_plan_build){.name = s->topology_name, .err = err};
  copse_status status = fill_options(b, options, least_workers);
  if (status != COPSE_OK) return status;
  bool many_in = s->collective == COPSE_REDUCE_SCATTER || s->collective == COPSE_ALLTOALL;
  bool many_out = s->collective == COPSE_ALLGATHER || s->collective == COPSE_ALLTOALL;
  h->version = COPSE_PLAN_VERSION;
  h->header_bytes = sizeof *h;
  h->collective = (uint32_t)s->collective;
  h->root = copse_collective_rooted(s->collective) ? s->root : -1;
  h->input_blocks = many_in ? n : 1;
  h->output_blocks = many_out ? n : 1;
  h->fifo = (uint32_t)b->options.fifo;
  h->pipeline_chunks = (uint32_t)(b->options.pipeline_chunks ? b->options.pipeline_chunks : 1);
  h->chunk_bytes = (uint64_t)b->options.chunk_bytes;
  h->min_chunk_bytes = (uint64_t)b->options.min_chunk_bytes;
  h->min_bytes = (uint64_t)b->options.min_bytes;
  h->max_bytes = (uint64_t)b->options.max_bytes;
  h->protocol = b->options.low_latency ? COPSE_PROTOCOL_LOW_LATENCY : COPSE_PROTOCOL_BANDWIDTH;
  h->n_ranks = n;
  h->name_bytes = (uint32_t)strlen(s->topology_name);
  fill_sha256(h, s->topology_sha256);
  return copse_calloc(n, sizeof *b->ranks, &b->ranks, err);
}

void copse_build_free(struct copse_plan_build *b) {
  free(b->ranks);
  free(b->workers);
  free(b->ops);
  free(b->operands);
  free(b->pieces);
  free(b->regions);
  free(b->channels);
  free(b->extents);
}

void copse_build_levels(struct copse_plan_build *b, int levels) {
  if (b->options.pipeline_chunks == 0)
    b->header.pipeline_chunks = (uint32_t)copse_pipeline_chunks(levels);
}

/* Counts live in 32 bits of the file. */
static copse_status room(struct copse_plan_build *b, void *array, size_t *capacity, uint32_t n,
                         size_t size) {
  if (n > UINT32_MAX / 2)
    return copse_fail(b->err, COPSE_NOMEM, "the plan has tables of over 2^31 entries");
  return copse_grow(array, capacity, (size_t)n + 1, size, b->err);
}

copse_status copse_build_channel(struct copse_plan_build *b, uint32_t src, uint32_t dst) {
  copse_status status =
      room(b, &b->channels, &b->channels_capacity, b->header.n_channels, sizeof *b->channels);
  if (status == COPSE_OK)
    b->channels[b->header.n_channels++] = (struct copse_plan_channel){src, dst};
  return status;
}

copse_status copse_build_region(struct copse_plan_build *b, int rank, int piece, uint32_t *index) {
  copse_status status =
      room(b, &b->regions, &b->regions_capacity, b->header.n_regions, sizeof *b->regions);
  if (status != COPSE_OK) return status;
  *index = b->header.n_regions;
  b->regions[b->header.n_regions++] = (struct copse_plan_region){
      (uint32_t)rank, (uint32_t)piece,
      b->options.low_latency ? COPSE_REGION_PACKETS : COPSE_REGION_SLOTS};
  return COPSE_OK;
}

uint32_t copse_build_region_buffer(const struct copse_plan_build *b) {
  return b->options.low_latency ? COPSE_BUFFER_PACKETS : COPSE_BUFFER_SCRATCH;
}

copse_status copse_build_piece(struct copse_plan_build *b, struct copse_q lo, struct copse_q hi,
                               uint32_t pair) {
  copse_status status =
      room(b, &b->pieces, &b->pieces_capacity, b->header.n_pieces, sizeof *b->pieces);
  if (status == COPSE_OK)
    b->pieces[b->header.n_pieces++] = (struct copse_plan_piece){
        .lo_num = lo.num, .lo_den = lo.den, .hi_num = hi.num, .hi_den = hi.den, .pair = pair};
  return status;
}

static copse_status add_op(struct copse_plan_build *b, struct copse_plan_op op) {
  copse_status status = room(b, &b->ops, &b->ops_capacity, b->header.n_ops, sizeof *b->ops);
  if (status == COPSE_OK) b->ops[b->header.n_ops++] = op;
  return status;
}

copse_status copse_build_sync(struct copse_plan_build *b, uint8_t kind, uint8_t when,
                              uint32_t channel) {
  return add_op(b, (struct copse_plan_op){.kind = kind, .when = when, .channel = channel});
}

copse_status copse_build_data_sync(struct copse_plan_build *b, uint8_t kind, uint32_t channel) {
  return add_op(b, (struct copse_plan_op){.kind = kind,
                                          .when = COPSE_WHEN_ALWAYS,
                                          .flags = b->options.low_latency ? COPSE_SYNC_IN_DATA : 0,
                                          .channel = channel});
}

copse_status copse_build_operand(struct copse_plan_build *b, int rank, uint32_t buffer,
                                 uint32_t index) {
  copse_status status =
      room(b, &b->operands, &b->operands_capacity, b->header.n_operands, sizeof *b->operands);
  if (status == COPSE_OK)
    b->operands[b->header.n_operands++] =
        (struct copse_plan_operand){(uint32_t)rank, buffer, index};
  return status;
}

copse_status copse_build_move(struct copse_plan_build *b, int piece, uint32_t first, int n_dst,
                              uint8_t flags) {
  int n = (int)(b->header.n_operands - first);
  return add_op(b, (struct copse_plan_op){.kind = COPSE_OP_MOVE,
                                          .flags = flags,
                                          .n_src = (uint8_t)(n - n_dst),
                                          .n_dst = (uint8_t)n_dst,
                                          .piece = (uint32_t)piece,
                                          .operand = first});
}

copse_status copse_build_worker(struct copse_plan_build *b, int rank, uint32_t first_op) {
  copse_status status =
      room(b, &b->workers, &b->workers_capacity, b->header.n_workers, sizeof *b->workers);
  if (status != COPSE_OK) return status;
  if (b->ranks[rank].n_workers++ == 0) b->ranks[rank].first_worker = b->header.n_workers;
  b->workers[b->header.n_workers++] =
      (struct copse_plan_worker){(uint32_t)rank, first_op, b->header.n_ops - first_op};
  return COPSE_OK;
}

copse_status copse_build_finish(struct copse_plan_build *b, struct copse_plan **out) {
  struct copse_plan plan = {.header = b->header,
                            .ranks = b->ranks,
                            .workers = b->workers,
                            .ops = b->ops,
                            .operands = b->operands,
                            .pieces = b->pieces,
                            .regions = b->regions,
                            .channels = b->channels,
                            .extents = b->extents,
                            .name = b->name};
  char *bytes = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_plan_encode(&plan, &bytes, &size, b->err));
  COPSE_TRY(copse_plan_decode("plan", bytes, size, out, b->err));
out:
  free(bytes);
  return status;
}

copse_status copse_lower_schedule(const struct copse_schedule *schedule,
                                  const struct copse_lower_options *options,
                                  struct copse_plan **out, struct copse_err *err) {
  *out = NULL;
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "a compact schedule must be expanded before it is lowered");
  if (options && options->one_hop) return copse_lower_one_hop(schedule, options, out, err);
  if (schedule->collective == COPSE_ALLTOALL) return copse_lower_flows(schedule, options, out, err);
  if (options && options->low_latency) return copse_lower_packets(schedule, options, out, err);
  return copse_lower_trees(schedule, options, out, err);
}
