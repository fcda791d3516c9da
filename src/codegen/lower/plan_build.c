/* The tables of a plan while a lowering fills them. Additions return nothing or a number, and a
 * failure, which can only be of memory, is kept and reported at the end: so a lowering's text is
 * the list of operations that it makes. */
#include "codegen/lower/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "schedule/chunks.h"

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
                               const struct copse_lower_options *o, struct copse_err *err) {
  uint32_t n = (uint32_t)s->n_ranks;
  *b = (struct copse_plan_build){.schedule = s, .options = *o, .err = err};
  b->header = (struct copse_plan_header){
      .version = COPSE_PLAN_VERSION,
      .header_bytes = sizeof b->header,
      .collective = (uint32_t)s->collective,
      .root = copse_collective_rooted(s->collective) ? s->root : -1,
      .input_blocks = (uint32_t)copse_collective_inputs(s->collective, s->n_ranks),
      .output_blocks = (uint32_t)copse_collective_outputs(s->collective, s->n_ranks),
      .fifo = (uint32_t)o->fifo,
      .pipeline_chunks = (uint32_t)(o->pipeline_chunks ? o->pipeline_chunks : 1),
      .chunk_bytes = (uint64_t)o->chunk_bytes,
      .min_chunk_bytes = (uint64_t)o->min_chunk_bytes,
      .min_bytes = (uint64_t)o->min_bytes,
      .max_bytes = (uint64_t)o->max_bytes,
      .protocol = o->low_latency ? COPSE_PROTOCOL_LOW_LATENCY : COPSE_PROTOCOL_BANDWIDTH,
      .n_ranks = n,
      .name_bytes = (uint32_t)strlen(s->topology_name)};
  fill_sha256(&b->header, s->topology_sha256);
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

/* Whether there is room for one more after n. Counts live in 32 bits of the file. */
static bool room(struct copse_plan_build *b, void *array, size_t *capacity, uint32_t n,
                 size_t size) {
  if (b->status != COPSE_OK) return false;
  b->status = n > UINT32_MAX / 2
                  ? copse_fail(b->err, COPSE_NOMEM, "the plan has tables of over 2^31 entries")
                  : copse_grow(array, capacity, (size_t)n + 1, size, b->err);
  return b->status == COPSE_OK;
}

/* Appends to one of the tables. */
#define ADD(b, table, ...)                                                                       \
  do {                                                                                           \
    if (room(b, &(b)->table, &(b)->table##_capacity, (b)->header.n_##table, sizeof *(b)->table)) \
      (b)->table[(b)->header.n_##table++] = (__VA_ARGS__);                                       \
  } while (0)

uint32_t copse_build_channel(struct copse_plan_build *b, uint32_t src, uint32_t dst) {
  ADD(b, channels, (struct copse_plan_channel){src, dst});
  return b->header.n_channels - 1;
}

static uint32_t add_region(struct copse_plan_build *b, int rank, int piece, uint32_t kind) {
  ADD(b, regions, (struct copse_plan_region){(uint32_t)rank, (uint32_t)piece, kind});
  return b->header.n_regions - 1;
}

uint32_t copse_build_region(struct copse_plan_build *b, int rank, int piece) {
  return add_region(b, rank, piece,
                    b->options.low_latency ? COPSE_REGION_PACKETS : COPSE_REGION_SLOTS);
}

uint32_t copse_build_slots(struct copse_plan_build *b, int rank, int piece) {
  return add_region(b, rank, piece, COPSE_REGION_SLOTS);
}

uint32_t copse_build_piece(struct copse_plan_build *b, struct copse_q lo, struct copse_q hi,
                           uint32_t pair) {
  ADD(b, pieces,
      (struct copse_plan_piece){
          .lo_num = lo.num, .lo_den = lo.den, .hi_num = hi.num, .hi_den = hi.den, .pair = pair});
  return b->header.n_pieces - 1;
}

static void add_sync(struct copse_plan_build *b, uint8_t kind, uint8_t when, uint8_t flags,
                     uint32_t channel) {
  ADD(b, ops,
      (struct copse_plan_op){.kind = kind, .when = when, .flags = flags, .channel = channel});
}

void copse_build_signal(struct copse_plan_build *b, enum copse_plan_when when, uint32_t channel) {
  add_sync(b, COPSE_OP_SIGNAL, (uint8_t)when, 0, channel);
}

void copse_build_wait(struct copse_plan_build *b, enum copse_plan_when when, uint32_t channel) {
  add_sync(b, COPSE_OP_WAIT, (uint8_t)when, 0, channel);
}

void copse_build_data_signal(struct copse_plan_build *b, uint32_t channel) {
  add_sync(b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS, b->options.low_latency ? COPSE_SYNC_IN_DATA : 0,
           channel);
}

void copse_build_data_wait(struct copse_plan_build *b, uint32_t channel) {
  add_sync(b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS, b->options.low_latency ? COPSE_SYNC_IN_DATA : 0,
           channel);
}

void copse_build_operand(struct copse_plan_build *b, int rank, uint32_t buffer, uint32_t index) {
  ADD(b, operands, (struct copse_plan_operand){(uint32_t)rank, buffer, index});
}

void copse_build_block(struct copse_plan_build *b, int rank, uint32_t buffer, int block) {
  uint32_t n = buffer == COPSE_BUFFER_INPUT ? b->header.input_blocks : b->header.output_blocks;
  copse_build_operand(b, rank, buffer, n > 1 ? (uint32_t)block : 0);
}

void copse_build_move(struct copse_plan_build *b, int piece, uint32_t first, int n_dst,
                      uint8_t flags) {
  int n = (int)(b->header.n_operands - first);
  ADD(b, ops,
      (struct copse_plan_op){.kind = COPSE_OP_MOVE,
                             .flags = flags,
                             .n_src = (uint8_t)(n - n_dst),
                             .n_dst = (uint8_t)n_dst,
                             .piece = (uint32_t)piece,
                             .operand = first});
}

void copse_build_worker(struct copse_plan_build *b, int rank, uint32_t first_op) {
  if (b->ranks[rank].n_workers++ == 0) b->ranks[rank].first_worker = b->header.n_workers;
  ADD(b, workers, (struct copse_plan_worker){(uint32_t)rank, first_op, b->header.n_ops - first_op});
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
                            .name = b->schedule->topology_name};
  if (b->status != COPSE_OK) return b->status;
  return copse_plan_copy(&plan, out, b->err);
}
