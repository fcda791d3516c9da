/* Where regions lie in a rank's scratch memory, and the shape of a launch. Nothing is computed or
 * uploaded per region at launch: its place is its share of all before it (plan_math.h), so that a
 * launch costs little and every rank finds the same numbers by itself. */
#include "runtime/plan/layout.h"

#define ONE ((uint64_t)1 << 32) /* a whole block, as a share */

static uint64_t ceil_share(int64_t num, int64_t den) {
  unsigned __int128 scaled = (unsigned __int128)(uint64_t)num << 32;
  return (uint64_t)((scaled + (uint64_t)den - 1) / (uint64_t)den);
}

/* Returns a piece's share of a full block, rounded up. */
static uint64_t piece_share(const struct copse_plan *plan, uint32_t piece) {
  const struct copse_plan_piece *it = &plan->pieces[piece];
  uint64_t lo = (uint64_t)(((unsigned __int128)(uint64_t)it->lo_num << 32) / (uint64_t)it->lo_den);
  uint64_t share = ceil_share(it->hi_num, it->hi_den) - lo;
  if (it->pair == 0 || plan->header.n_extents == 0) return share;
  const struct copse_plan_extent *extent = &plan->extents[it->pair - 1];
  return copse_share_of(share, ceil_share(extent->num, extent->den)) + 1;
}

/* Whether workers signal only that they have entered and that they are done. */
static bool is_flat(const struct copse_plan *plan) {
  if (plan->header.n_regions > 0) return false;
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind == COPSE_OP_MOVE ? op->when != COPSE_WHEN_ALWAYS
                                  : op->when != COPSE_WHEN_FIRST && op->when != COPSE_WHEN_LAST)
      return false;
  }
  return true;
}

copse_status copse_layout_new(const struct copse_plan *plan, struct copse_layout *layout,
                              struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_arena *arena = &layout->arena;
  *layout = (struct copse_layout){.plan = plan,
                                  .chunk_bytes = h->chunk_bytes,
                                  .min_chunk_bytes = h->min_chunk_bytes,
                                  .flat = is_flat(plan)};
  COPSE_DO(COPSE_ARRAY(arena, h->n_regions, layout->places, err));
  COPSE_DO(COPSE_ARRAYS(arena, h->n_ranks, struct copse_region_end, err, &layout->slots,
                        &layout->packets));
  for (uint32_t p = 0; p < h->n_pieces; p++) {
    uint64_t share = piece_share(plan, p);
    if (share > layout->largest) layout->largest = share;
  }
  for (uint32_t i = 0; i < h->n_regions; i++) {
    const struct copse_plan_region *region = &plan->regions[i];
    bool packets = region->kind == COPSE_REGION_PACKETS;
    struct copse_region_end *end = &(packets ? layout->packets : layout->slots)[region->rank];
    uint64_t weight = piece_share(plan, region->piece);
    layout->places[i] = (struct copse_region_place){end->total, weight, end->n, 0};
    end->total += weight; /* below 2^32 regions of at most 2^32 + 1: no overflow */
    end->n++;
  }
  return COPSE_OK;
}

void copse_layout_free(struct copse_layout *layout) {
  copse_arena_free(&layout->arena);
  *layout = (struct copse_layout){0};
}

/* ---- messages ------------------------------------------------------------------------- */

/* Returns the blocks that a message consists of, in millionths: its size is so many times a
 * block's. By demand a message is the most that a rank sends, and blocks are as large as the
 * largest pair's. */
static uint64_t message_millionths(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  uint64_t blocks = h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
  double most = 0;
  if (h->n_extents == 0) return blocks * 1000000;
  for (uint32_t i = 0; i < h->n_ranks; i++) {
    double row = 0;
    for (uint32_t j = 0; j < h->n_ranks; j++) {
      const struct copse_plan_extent *e = &plan->extents[i * h->n_ranks + j];
      row += (double)e->num / (double)e->den;
    }
    if (row > most) most = row;
  }
  return most > 1e-6 ? (uint64_t)(most * 1e6 + 0.5) : 1000000;
}

uint64_t copse_plan_block_bytes(const struct copse_plan *plan, uint64_t message_bytes) {
  unsigned __int128 scaled = (unsigned __int128)message_bytes * 1000000;
  return (uint64_t)(scaled / message_millionths(plan));
}

uint64_t copse_plan_message_bytes(const struct copse_plan *plan, uint64_t block_bytes) {
  return (uint64_t)((unsigned __int128)block_bytes * message_millionths(plan) / 1000000);
}

/* ---- shapes ----------------------------------------------------------------------------- */

static copse_status check_size(const struct copse_layout *layout, uint64_t count,
                               uint32_t element_bytes, struct copse_err *err) {
  const struct copse_plan_header *h = &layout->plan->header;
  uint64_t blocks = h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
  uint64_t limit = COPSE_BUFFER_MAX_BYTES / (blocks * element_bytes);
  if (count > limit)
    return copse_fail(err, COPSE_INVALID, "%llu elements a block, the most is %llu",
                      (unsigned long long)count, (unsigned long long)limit);
  uint64_t message = copse_plan_message_bytes(layout->plan, count * element_bytes);
  if (h->protocol == COPSE_PROTOCOL_LOW_LATENCY && message > h->max_bytes)
    return copse_fail(err, COPSE_INVALID,
                      "a message of %llu bytes, this low-latency plan takes at most %llu",
                      (unsigned long long)message, (unsigned long long)h->max_bytes);
  return COPSE_OK;
}

/* Estimates how many elements the regions of a rank have: in doubles, as a guard only, since in 64
 * bits a rank's might overflow. */
static double row_elements(const struct copse_shape *shape, const struct copse_region_end *end) {
  return (double)shape->chunk_base * ((double)end->total / (double)ONE) +
         (double)end->n * COPSE_REGION_SLACK * shape->unit;
}

copse_status copse_layout_shape(const struct copse_layout *layout, uint64_t count,
                                uint32_t element_bytes, struct copse_shape *shape,
                                struct copse_err *err) {
  struct copse_plan_header limited = layout->plan->header;
  const struct copse_plan_header *h = &limited;
  limited.chunk_bytes = layout->chunk_bytes;
  limited.min_chunk_bytes = layout->min_chunk_bytes;
  COPSE_DO(check_size(layout, count, element_bytes, err));
  uint64_t largest = copse_share_of(count, layout->largest) * element_bytes;
  shape->count = shape->input_stride = shape->output_stride = count;
  shape->element_bytes = element_bytes;
  shape->unit = copse_align_bytes(h, largest) / element_bytes;
  shape->n_chunks = layout->flat ? 1 : copse_chunk_count(h, largest);
  /* or chunks were larger than the plan says, and than what is kept for them */
  uint64_t chunk = (largest + shape->n_chunks - 1) / shape->n_chunks;
  if (h->protocol == COPSE_PROTOCOL_BANDWIDTH && !layout->flat && chunk > h->chunk_bytes)
    return copse_fail(err, COPSE_INVALID,
                      "%llu elements a block need more than 2^30 chunks of %llu bytes",
                      (unsigned long long)count, (unsigned long long)h->chunk_bytes);
  shape->chunk_base = count / shape->n_chunks + 1;
  shape->fifo = h->fifo;
  double total = 0;
  for (uint32_t r = 0; r < h->n_ranks; r++)
    total += row_elements(shape, &layout->slots[r]) * shape->fifo +
             row_elements(shape, &layout->packets[r]) * 4; /* two copies, twice as large */
  if (total * element_bytes > (double)COPSE_BUFFER_MAX_BYTES)
    return copse_fail(err, COPSE_INVALID, "%llu elements a block need more scratch than 2^48 bytes",
                      (unsigned long long)count);
  return COPSE_OK;
}

uint64_t copse_layout_slot_bytes(const struct copse_layout *layout, const struct copse_shape *shape,
                                 uint32_t rank) {
  const struct copse_region_end *end = &layout->slots[rank];
  if (end->n == 0) return 0;
  return copse_region_start(shape, end->total, end->n) * shape->fifo * shape->element_bytes;
}

uint64_t copse_layout_packet_bytes(const struct copse_layout *layout,
                                   const struct copse_shape *shape, uint32_t rank) {
  const struct copse_region_end *end = &layout->packets[rank];
  if (end->n == 0) return 0;
  return 2 * copse_region_start(shape, end->total, end->n) * shape->element_bytes;
}

/* Computes it in bytes instead of elements: rounding up and slack cover every element's size. */
static uint64_t most_row(const struct copse_region_end *end, unsigned __int128 base,
                         uint32_t align_bytes) {
  unsigned __int128 row = base * end->total >> 32;
  row += (unsigned __int128)(end->n + 1) * COPSE_REGION_SLACK * align_bytes;
  return row > COPSE_BUFFER_MAX_BYTES ? COPSE_BUFFER_MAX_BYTES : (uint64_t)row;
}

/* Returns, of a low-latency plan, the bytes of the largest message's block, and what chunk_base
 * adds to it. */
static unsigned __int128 most_block(const struct copse_layout *layout) {
  uint64_t block = copse_plan_block_bytes(layout->plan, layout->plan->header.max_bytes);
  if (block > COPSE_BUFFER_MAX_BYTES) block = COPSE_BUFFER_MAX_BYTES;
  return (unsigned __int128)block + 32;
}

uint64_t copse_layout_most_slot_bytes(const struct copse_layout *layout, uint32_t rank) {
  const struct copse_region_end *end = &layout->slots[rank];
  const struct copse_plan_header *h = &layout->plan->header;
  if (end->n == 0) return 0;
  if (h->protocol == COPSE_PROTOCOL_LOW_LATENCY) /* one chunk, as large as it may be */
    return most_row(end, most_block(layout), COPSE_PLAN_ALIGN_BYTES) * h->fifo;
  /* floor(count * largest) elements go into chunks of at most chunk_bytes, so count / n_chunks
   * elements have less than (chunk_bytes + one element) / largest bytes. */
  uint64_t largest = layout->largest ? layout->largest : 1;
  unsigned __int128 base = ((unsigned __int128)(layout->chunk_bytes + 8) << 32) / largest + 16;
  return most_row(end, base, COPSE_PLAN_WIDE_ALIGN_BYTES) * h->fifo;
}

static uint64_t most_of_all(const struct copse_layout *layout) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < layout->plan->header.n_ranks; r++) {
    uint64_t bytes = copse_layout_most_slot_bytes(layout, r);
    if (bytes > most) most = bytes;
  }
  return most;
}

copse_status copse_layout_limit(struct copse_layout *layout, uint64_t bytes,
                                struct copse_err *err) {
  enum { LEAST = 4096 };
  const uint64_t wanted = most_of_all(layout);
  for (uint64_t most = wanted; most > bytes; most = most_of_all(layout)) {
    if (layout->plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY || layout->chunk_bytes <= LEAST)
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "the plan takes %llu MiB of scratch at a rank, of which there are %llu; "
                        "copse lower with fewer --workers, --instances or slots takes less",
                        (unsigned long long)(wanted >> 20), (unsigned long long)(bytes >> 20));
    /* first about in proportion, then step by step: slack doesn't shrink with chunks */
    uint64_t next = (uint64_t)((unsigned __int128)layout->chunk_bytes * bytes / most);
    if (next > layout->chunk_bytes - layout->chunk_bytes / 16)
      next = layout->chunk_bytes - layout->chunk_bytes / 16;
    layout->chunk_bytes = copse_round_down(next > LEAST ? next : LEAST, 512);
  }
  return COPSE_OK;
}

uint64_t copse_layout_most_packet_bytes(const struct copse_layout *layout, uint32_t rank) {
  const struct copse_region_end *end = &layout->packets[rank];
  if (end->n == 0) return 0;
  return 2 * most_row(end, most_block(layout), COPSE_PLAN_ALIGN_BYTES);
}
