/*
 * From a schedule to a native plan: options and their defaults, which lowering it is, and the plan
 * in words. What a plan means: runtime/plan/plan_abi.h. The lowerings:
 *
 *   trees.c     broadcast, reduce, allgather, reduce_scatter, allreduce in chunks and signals
 *               and an allreduce by a switch that copies and adds
 *   packets.c   the same in packets for small messages
 *   doubling.c  an allreduce in stages or one hop, in chunks or packets
 *   flows.c     alltoall, in chunks or packets
 */
#include "codegen/lower/lower.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/types.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "schedule/chunks.h"

/* ==== tables of a plan ======================================================================== */

/* The tables of a plan while a lowering fills them. Additions return nothing or a number, and a
 * failure, which can only be of memory, is kept and reported at the end: so a lowering's text is
 * the list of operations that it makes. */

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

/* Fills in the header. `options` must be filled in; the schedule is borrowed. */
static copse_status build_start(struct copse_plan_build *b, const struct copse_schedule *s,
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

static void build_free(struct copse_plan_build *b) {
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

/* Whether there is room for one more after n. Counts take 32 bits of the file. */
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

/* Passes the plan through the file format, so that what runs is what a file would hold. */
static copse_status build_finish(struct copse_plan_build *b, struct copse_plan **out) {
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

/* ==== the lowerings =========================================================================== */

/* ---- options ----------------------------------------------------------------------------- */

static copse_status check_range(const char *what, int64_t value, int64_t min, int64_t max,
                                struct copse_err *err) {
  if (value >= min && value <= max) return COPSE_OK;
  return copse_fail(err, COPSE_INVALID, "%s must be from %lld to %lld", what, (long long)min,
                    (long long)max);
}

/* Fills in what a low-latency plan has instead of the usual defaults. */
static copse_status fill_low_latency(struct copse_lower_options *o, struct copse_err *err) {
  if (o->one_hop && !o->low_latency)
    return copse_fail(err, COPSE_INVALID, "one hop is for a low-latency plan");
  if (!o->low_latency) return COPSE_OK;
  if (o->max_bytes == 0)
    o->max_bytes = o->one_hop ? COPSE_POLICY_ONE_HOP_BYTES : COPSE_POLICY_LOW_LATENCY_BYTES;
  if (o->max_bytes > COPSE_POLICY_LOW_LATENCY_MOST)
    return copse_fail(err, COPSE_INVALID,
                      "a low-latency plan is for messages of at most %lld bytes, all of which its "
                      "packets must hold at once",
                      (long long)COPSE_POLICY_LOW_LATENCY_MOST);
  if (o->instances == COPSE_LOWER_AUTO || o->instances == 0) {
    int64_t parts = o->one_hop ? o->max_bytes / COPSE_POLICY_ONE_HOP_PART_BYTES : 1;
    parts = copse_smaller(parts > 0 ? parts : 1, COPSE_LOWER_MOST_INSTANCES);
    o->instances = (int)copse_smaller(parts, o->max_workers);
  }
  return COPSE_OK;
}

/* Fills in what a schedule for one size says of its chunks; it is cut as it is to be. The smallest
 * chunk also says to the simulator that the plan's pieces are numbered in the order in which they
 * take turns, and which goes first. */
static void fill_objective(const struct copse_schedule *s, struct copse_lower_options *o) {
  if (s->objective.bytes == 0) return;
  if (o->instances == COPSE_LOWER_AUTO && !o->one_hop) o->instances = 1;
  if (o->fifo == 0) o->fifo = copse_objective_fifo(s->objective.chunks, s->objective.fifo);
  if (o->chunk_bytes == 0) o->chunk_bytes = copse_schedule_chunk_bytes(s);
  bool far_first = s->objective.far_first && o->chunk_bytes >= COPSE_FAR_FIRST_CHUNK_BYTES;
  if (o->min_chunk_bytes == 0)
    o->min_chunk_bytes = far_first ? COPSE_FAR_FIRST_CHUNK_BYTES : COPSE_LEAST_CHUNK_BYTES;
  if (o->pipeline_chunks == 0) o->pipeline_chunks = s->objective.chunks;
}

static copse_status fill_options(struct copse_lower_options *o, int least_workers,
                                 struct copse_err *err) {
  if (o->max_workers == 0) o->max_workers = COPSE_POLICY_WORKERS;
  COPSE_DO(fill_low_latency(o, err));
  if (o->instances == 0) o->instances = 1;
  if (o->fifo == 0) o->fifo = COPSE_FIFO;
  if (o->chunk_bytes == 0) o->chunk_bytes = COPSE_CHUNK_BYTES;
  if (o->min_chunk_bytes == 0)
    o->min_chunk_bytes = copse_smaller(o->chunk_bytes, COPSE_MIN_CHUNK_BYTES);
  if (o->max_bytes == 0) o->max_bytes = INT64_MAX;
  COPSE_DO(check_range("the largest message", o->max_bytes, 1, INT64_MAX, err));
  COPSE_DO(check_range("the smallest message", o->min_bytes, 0, o->max_bytes, err));
  if (o->max_workers >= 1 && o->max_workers < least_workers)
    return copse_fail(err, COPSE_INVALID,
                      "the number of workers must be from %d to 1024: both phases of an allreduce "
                      "have workers of their own",
                      least_workers);
  COPSE_DO(check_range("the number of workers", o->max_workers, 1, 1024, err));
  if (o->instances != COPSE_LOWER_AUTO)
    COPSE_DO(
        check_range("the number of instances", o->instances, 1, COPSE_LOWER_MOST_INSTANCES, err));
  COPSE_DO(check_range("the FIFO depth", o->fifo, 1, 64, err));
  COPSE_DO(check_range("the number of chunks", o->pipeline_chunks, 0, 1 << 20, err));
  COPSE_DO(check_range("the chunk size", o->chunk_bytes, COPSE_PLAN_ALIGN_BYTES, 1LL << 40, err));
  return check_range("the smallest chunk size", o->min_chunk_bytes, COPSE_PLAN_ALIGN_BYTES,
                     o->chunk_bytes, err);
}

copse_status copse_lower_schedule(const struct copse_schedule *schedule,
                                  const struct copse_lower_options *options,
                                  struct copse_plan **out, struct copse_err *err) {
  struct copse_lower_options o = options ? *options : (struct copse_lower_options){0};
  bool flows = schedule->collective == COPSE_ALLTOALL && !o.one_hop;
  bool doubles = copse_schedule_doubles(schedule);
  bool multicast = schedule->n_copying + schedule->n_adding > 0 && !o.one_hop && !o.low_latency;
  bool trees = !flows && !o.one_hop && !o.low_latency && !doubles && !multicast;
  COPSE_AT_END(build_free) struct copse_plan_build b = {0};
  *out = NULL;
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "a compact schedule must be expanded before it is lowered");
  if (flows && o.low_latency && schedule->demand)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall by demand has no low-latency plan: its blocks may be empty");
  /* both phases of an allreduce have workers of their own */
  fill_objective(schedule, &o);
  COPSE_DO(fill_options(&o, trees && schedule->collective == COPSE_ALLREDUCE ? 2 : 1, err));
  COPSE_DO(build_start(&b, schedule, &o, err));
  COPSE_DO(o.one_hop       ? copse_lower_one_hop(&b)
           : flows         ? copse_lower_flows(&b)
           : doubles       ? copse_lower_doubling(&b)
           : multicast     ? copse_lower_multicast(&b)
           : o.low_latency ? copse_lower_packets(&b)
                           : copse_lower_trees(&b));
  return build_finish(&b, out);
}

/* ---- in words: what lower --text prints; nothing reads it back ------------------------------ */

static const char *const when_names[] = {"", "first", "after_fifo", "before_fifo", "last"};

static void add_fraction(struct copse_text *text, int64_t num, int64_t den) {
  if (den == 1)
    copse_text_add(text, "\"%" PRId64 "\"", num);
  else
    copse_text_add(text, "\"%" PRId64 "/%" PRId64 "\"", num, den);
}

/* Adds "input[0]", "scratch[17]", and at a peer "rank3.output[2]". */
static void add_operand(struct copse_text *text, const struct copse_plan_operand *o,
                        uint32_t rank) {
  static const char *const buffers[] = {"input", "output", "scratch", "packets"};
  copse_text_add(text, "\"");
  if (o->rank != rank) copse_text_add(text, "rank%" PRIu32 ".", o->rank);
  copse_text_add(text, "%s[%" PRIu32 "]\"", buffers[o->buffer], o->index);
}

/* Names a MOVE as follows from its operands: copy, put, reduce, or both. */
static const char *move_name(const struct copse_plan *plan, const struct copse_plan_op *op,
                             uint32_t rank) {
  bool remote = false;
  for (uint32_t i = 0; i < op->n_dst; i++)
    if (plan->operands[op->operand + op->n_src + i].rank != rank) remote = true;
  if (op->flags & COPSE_MOVE_REDUCE_LOAD)
    return op->flags & COPSE_MOVE_GROUP_STORE ? "reduce_load_group_store" : "reduce_load";
  if (op->flags & COPSE_MOVE_GROUP_STORE) return "group_store";
  if (op->n_src > 1) return remote ? "reduce_put" : "reduce";
  return remote ? "put" : "copy";
}

static void add_list(struct copse_text *text, const struct copse_plan *plan, const char *name,
                     uint32_t from, uint32_t n, uint32_t rank) {
  copse_text_add(text, ", \"%s\": [", name);
  for (uint32_t i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ", ");
    add_operand(text, &plan->operands[from + i], rank);
  }
  copse_text_add(text, "]");
}

static void add_op(struct copse_text *text, const struct copse_plan *plan,
                   const struct copse_plan_op *op, uint32_t rank) {
  if (op->kind == COPSE_OP_MOVE) {
    copse_text_add(text, "{\"op\": \"%s\", \"piece\": %" PRIu32, move_name(plan, op, rank),
                   op->piece);
    add_list(text, plan, "from", op->operand, op->n_src, rank);
    add_list(text, plan, "to", op->operand + op->n_src, op->n_dst, rank);
    if (op->flags & COPSE_MOVE_FINAL) copse_text_add(text, ", \"final\": true");
  } else {
    const struct copse_plan_channel *ch = &plan->channels[op->channel];
    bool signal = op->kind == COPSE_OP_SIGNAL;
    uint32_t peer = plan->workers[signal ? ch->dst_worker : ch->src_worker].rank;
    copse_text_add(text, "{\"op\": \"%s\", \"channel\": %" PRIu32 ", \"%s\": %" PRIu32,
                   signal ? "signal" : "wait", op->channel, signal ? "to" : "from", peer);
    if (op->flags & COPSE_SYNC_IN_DATA) copse_text_add(text, ", \"in_data\": true");
  }
  if (op->when != COPSE_WHEN_ALWAYS)
    copse_text_add(text, ", \"when\": \"%s\"", when_names[op->when]);
  copse_text_add(text, "}");
}

static void add_worker(struct copse_text *text, const struct copse_plan *plan, uint32_t w) {
  const struct copse_plan_worker *worker = &plan->workers[w];
  copse_text_add(text, "   {\"worker\": %" PRIu32 ", \"ops\": [", w);
  for (uint32_t i = 0; i < worker->n_ops; i++) {
    copse_text_add(text, "%s\n     ", i > 0 ? "," : "");
    add_op(text, plan, &plan->ops[worker->first_op + i], worker->rank);
  }
  copse_text_add(text, "]}");
}

static void add_tables(struct copse_text *text, const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  copse_text_add(text, " \"pieces\": [");
  for (uint32_t i = 0; i < h->n_pieces; i++) {
    const struct copse_plan_piece *p = &plan->pieces[i];
    copse_text_add(text, "%s[", i > 0 ? ", " : "");
    add_fraction(text, p->lo_num, p->lo_den);
    copse_text_add(text, ", ");
    add_fraction(text, p->hi_num, p->hi_den);
    if (p->pair > 0 && h->n_extents > 0) { /* of so much of the block */
      const struct copse_plan_extent *e = &plan->extents[p->pair - 1];
      copse_text_add(text, ", ");
      add_fraction(text, e->num, e->den);
    }
    copse_text_add(text, "]");
  }
  copse_text_add(text, "],\n \"regions\": [");
  for (uint32_t i = 0; i < h->n_regions; i++)
    copse_text_add(text, "%s{\"rank\": %" PRIu32 ", \"piece\": %" PRIu32 "%s}", i > 0 ? ", " : "",
                   plan->regions[i].rank, plan->regions[i].piece,
                   plan->regions[i].kind == COPSE_REGION_PACKETS ? ", \"packets\": true" : "");
  copse_text_add(text, "],\n");
}

copse_status copse_plan_to_text(const struct copse_plan *plan, char **out, size_t *size,
                                struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_text text = {0};
  copse_text_add(&text, COPSE_JSON_HEAD("plan-text") ", \"collective\": \"%s\", \"topology\": ",
                 copse_collective_name((copse_collective)h->collective));
  copse_text_add_json_string(&text, plan->name);
  copse_text_add(&text,
                 ",\n \"protocol\": \"%s\", \"min_bytes\": %" PRIu64 ", \"max_bytes\": %" PRIu64
                 ",\n \"n_ranks\": %" PRIu32 ", \"root\": %" PRId32 ", \"input_blocks\": %" PRIu32
                 ", \"output_blocks\": %" PRIu32 ",\n \"fifo\": %" PRIu32
                 ", \"chunk_bytes\": %" PRIu64 ", \"min_chunk_bytes\": %" PRIu64
                 ", \"pipeline_chunks\": %" PRIu32 ",\n",
                 h->protocol == COPSE_PROTOCOL_LOW_LATENCY ? "low-latency" : "bandwidth",
                 h->min_bytes, h->max_bytes, h->n_ranks, h->root, h->input_blocks, h->output_blocks,
                 h->fifo, h->chunk_bytes, h->min_chunk_bytes, h->pipeline_chunks);
  add_tables(&text, plan);
  copse_text_add(&text, " \"ranks\": [");
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    copse_text_add(&text, "%s\n  {\"rank\": %" PRIu32 ", \"workers\": [\n", r > 0 ? "," : "", r);
    for (uint32_t w = 0; w < plan->ranks[r].n_workers; w++) {
      if (w > 0) copse_text_add(&text, ",\n");
      add_worker(&text, plan, plan->ranks[r].first_worker + w);
    }
    copse_text_add(&text, "]}");
  }
  copse_text_add(&text, "\n ]}\n");
  return copse_text_take(&text, out, size, err);
}

/* ---- limits of size ------------------------------------------------------------------------- */

/* Bytes of a plan while it is made, for each hop of a path from rank to rank and for each link.
 * Measured: 1.0 to 1.4 times the peak for rings, tori and rails of 64 to 1,024 ranks. And for each
 * edge of a tree of one instance: 160 to 280, where nothing is broadcast 280 to 430. */
enum { HOP_BYTES = 550, LINK_BYTES = 64, EDGE_BYTES = 200, REDUCED_BYTES = 400 };

/* Bytes in a plan's file for each channel, at least: no channel is without a signal and a wait. */
enum { CHANNEL_BYTES = sizeof(struct copse_plan_channel) + 2 * sizeof(struct copse_plan_op) };

static copse_status check_room(const struct copse_schedule *s, const struct copse_lower_options *o,
                               const char *place, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) bool *is_rank = calloc((size_t)s->n_nodes + 1, sizeof *is_rank);
  uint64_t images = (uint64_t)copse_schedule_images(s), bytes = 0;
  if (!is_rank) return copse_fail_nomem(err);
  for (int r = 0; r < s->n_ranks; r++) is_rank[s->rank_nodes[r]] = true;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++) {
      const struct copse_schedule_path *path = &s->flows[f].paths[p];
      for (int i = 1; i < path->n_nodes; i++)
        bytes += images * (LINK_BYTES + (is_rank[path->nodes[i]] ? HOP_BYTES : 0));
    }
  uint64_t edge = copse_collective_broadcasts(s->collective) ? EDGE_BYTES : REDUCED_BYTES;
  for (int t = 0; t < s->n_trees && o && !o->one_hop; t++)
    bytes +=
        images * edge * (uint64_t)s->trees[t].n_edges * (uint64_t)copse_larger(o->instances, 1);
  return copse_memory_check(bytes, place, "a schedule of fewer ranks", err, "the plan of %llu %s",
                            (unsigned long long)(images * (uint64_t)(s->n_flows + s->n_trees)),
                            s->n_flows > 0 ? "flows" : "trees");
}

copse_status copse_lower_check_size(const struct copse_schedule *s,
                                    const struct copse_lower_options *options, const char *place,
                                    struct copse_err *err) {
  /* each edge of a tree has a channel for data, and one back unless an allreduce's other tree
   * stands in for it */
  int64_t least = (s->n_ranks - 1) * (s->collective == COPSE_ALLREDUCE ? 1LL : 2LL) * CHANNEL_BYTES;
  /* what is listed could be read */
  if (!options || options->low_latency || s->n_rotations == 0 ||
      (!__builtin_mul_overflow(least, s->n_trees, &least) &&
       !__builtin_mul_overflow(least, copse_schedule_images(s), &least) &&
       least <= (int64_t)COPSE_FILE_MAX_BYTES))
    return check_room(s, options, place, err);
  const long long trees = s->n_trees * (long long)copse_schedule_images(s);
  return copse_fail_at(err, COPSE_NOMEM, place, 0,
                       "the plan of %lld trees of %d ranks takes over %lld MiB, and a plan's file "
                       "at most %lld; a schedule of fewer ranks would do",
                       trees, s->n_ranks, (long long)(least >> 20),
                       (long long)(COPSE_FILE_MAX_BYTES >> 20));
}

/* ---- how a plan was lowered ---------------------------------------------------------------- */

copse_status copse_lower_digest(const struct copse_schedule *schedule,
                                const struct copse_lower_options *options,
                                struct copse_arena *arena, struct copse_plan_header *header,
                                uint8_t (**parts)[COPSE_SHA256_BYTES], struct copse_err *err) {
  struct copse_plan *plan;
  COPSE_DO(copse_lower_schedule(schedule, options, &plan, err));
  *header = plan->header;
  copse_status status = COPSE_ARRAY(arena, plan->header.n_ranks, *parts, err);
  if (status == COPSE_OK) status = copse_plan_digest_parts(plan, *parts, err);
  copse_plan_free(plan);
  return status;
}

copse_status copse_lower_find(const struct copse_schedule *schedule,
                              const struct copse_plan_header *header,
                              uint8_t (*const parts)[COPSE_SHA256_BYTES],
                              struct copse_arena *arena, struct copse_lower_options *options,
                              bool *found, struct copse_err *err) {
  const struct copse_lower_options given = *options;
  *found = false;
  for (int low = 0; low < 3 && !*found; low++) {
    struct copse_err why = COPSE_ERR_INIT;
    struct copse_plan_header other;
    uint8_t(*digests)[COPSE_SHA256_BYTES];
    *options = given;
    options->low_latency = low > 0;
    if ((options->one_hop = low > 1)) options->instances = 0; /* as candidates of plans have it */
    options->min_bytes = (int64_t)header->min_bytes;
    options->max_bytes = (int64_t)header->max_bytes;
    if ((low > 0) != (header->protocol == COPSE_PROTOCOL_LOW_LATENCY)) continue;
    copse_status status = copse_lower_digest(schedule, options, arena, &other, &digests, &why);
    if (status == COPSE_UNSUPPORTED) continue;
    if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
    *found = other.n_ranks == header->n_ranks &&
             memcmp(parts, digests, other.n_ranks * sizeof *digests) == 0;
  }
  return COPSE_OK;
}
