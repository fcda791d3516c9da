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

#include "base/text.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "schedule/chunks.h"

/* ---- options ----------------------------------------------------------------------------- */

static copse_status check_range(const char *what, int64_t value, int64_t min, int64_t max,
                                struct copse_err *err) {
  if (value >= min && value <= max) return COPSE_OK;
  return copse_fail(err, COPSE_INVALID, "%s must be from %lld to %lld", what, (long long)min,
                    (long long)max);
}

/* What a low-latency plan has instead of the usual defaults. */
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

/* What a schedule for one size says of its chunks. The smallest chunk also tells the simulator that
 * the plan's pieces are numbered in the order in which they take turns, and which goes first. */
static void fill_objective(const struct copse_schedule *s, struct copse_lower_options *o) {
  if (s->objective.bytes == 0) return;
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
  COPSE_DO(check_range("the number of workers", o->max_workers, least_workers, 1024, err));
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
  COPSE_AT_END(copse_build_free) struct copse_plan_build b = {0};
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
  COPSE_DO(copse_build_start(&b, schedule, &o, err));
  COPSE_DO(o.one_hop       ? copse_lower_one_hop(&b)
           : flows         ? copse_lower_flows(&b)
           : doubles       ? copse_lower_doubling(&b)
           : multicast     ? copse_lower_multicast(&b)
           : o.low_latency ? copse_lower_packets(&b)
                           : copse_lower_trees(&b));
  return copse_build_finish(&b, out);
}

/* ---- in words: what lower --text prints; nothing reads it back ------------------------------ */

static const char *const when_names[] = {"", "first", "after_fifo", "before_fifo", "last"};

static void add_fraction(struct copse_text *text, int64_t num, int64_t den) {
  if (den == 1)
    copse_text_add(text, "\"%" PRId64 "\"", num);
  else
    copse_text_add(text, "\"%" PRId64 "/%" PRId64 "\"", num, den);
}

/* "input[0]", "scratch[17]", and at a peer "rank3.output[2]". */
static void add_operand(struct copse_text *text, const struct copse_plan_operand *o,
                        uint32_t rank) {
  static const char *const buffers[] = {"input", "output", "scratch", "packets"};
  copse_text_add(text, "\"");
  if (o->rank != rank) copse_text_add(text, "rank%" PRIu32 ".", o->rank);
  copse_text_add(text, "%s[%" PRIu32 "]\"", buffers[o->buffer], o->index);
}

/* Copy, put, reduce, or both: what a MOVE is called follows from its operands. */
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
