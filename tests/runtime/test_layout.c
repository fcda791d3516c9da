/* Where chunks lie: pieces tile a block, chunks tile a piece, slots hold every chunk. */
#include "runtime/plan/layout.h"

#include "runtime/comm/executor.h"
#include "runtime/interpreter/view.h"
#include "support/plan_builder.h"
#include "support/support.h"

static struct copse_plan *random_plan(uint64_t *state, int n_pieces) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  pb_header(b)->fifo = (uint32_t)copse_test_random_int(state, 1, 9);
  pb_header(b)->pipeline_chunks = (uint32_t)copse_test_random_int(state, 1, 40);
  pb_header(b)->min_chunk_bytes = (uint64_t)copse_test_random_int(state, 1, 300);
  pb_header(b)->chunk_bytes =
      pb_header(b)->min_chunk_bytes + (uint64_t)copse_test_random_int(state, 0, 2000);
  int64_t den = copse_test_random_int(state, n_pieces, 200), lo = 0;
  for (int i = 0; i < n_pieces; i++) {
    int64_t left = n_pieces - 1 - i;
    int64_t hi = left ? lo + copse_test_random_int(state, 0, (int)(den - lo)) : den;
    pb_region(b, (uint32_t)(i % 2), pb_piece(b, lo, den, hi, den));
    lo = hi;
  }
  return pb_finish(b);
}

/* Check's own assertions tell the parent of every success, which is slow in loops. */
#define FAST_ASSERT(condition)                        \
  do {                                                \
    if (!(condition)) ck_abort_msg("%s", #condition); \
  } while (0)

static struct copse_view view_of(const struct copse_layout *layout,
                                 const struct copse_shape *shape) {
  return (struct copse_view){
      .pieces = layout->plan->pieces, .places = layout->places, .shape = *shape};
}

static void check_chunks(const struct copse_layout *layout, const struct copse_shape *shape,
                         uint32_t piece) {
  struct copse_view view = view_of(layout, shape);
  struct copse_span span = copse_view_piece(&view, piece);
  uint64_t at = span.first;
  for (uint32_t c = 0; c < shape->n_chunks; c++) {
    struct copse_span chunk = copse_view_chunk(&view, piece, c);
    FAST_ASSERT(chunk.first == at);
    FAST_ASSERT(c == 0 || chunk.count == 0 || (chunk.first - span.first) % shape->unit == 0);
    at += chunk.count;
    for (uint32_t i = 0; i < layout->plan->header.n_regions; i++)
      if (layout->plan->regions[i].piece == piece)
        FAST_ASSERT(chunk.count <= copse_slot_elements(shape, &layout->places[i]));
  }
  ck_assert_uint_eq(at, span.first + span.count);
}

START_TEST(pieces_and_chunks_tile_any_count) {
  uint64_t state = 5;
  struct copse_err err = COPSE_ERR_INIT;
  for (int round = 0; round < 300; round++) {
    int n_pieces = copse_test_random_int(&state, 1, 12);
    struct copse_plan *plan = random_plan(&state, n_pieces);
    struct copse_layout layout;
    ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
    ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
    for (int k = 0; k < 5; k++) {
      uint64_t count = (uint64_t)copse_test_random_int(&state, 0, k == 0 ? 20 : 20000);
      uint32_t bytes = 1u << copse_test_random_int(&state, 0, 3);
      struct copse_shape shape;
      ASSERT_OK(copse_layout_shape(&layout, count, bytes, &shape, &err), &err);
      struct copse_view view = view_of(&layout, &shape);
      uint64_t at = 0;
      for (uint32_t p = 0; p < plan->header.n_pieces; p++) {
        struct copse_span span = copse_view_piece(&view, p);
        ck_assert_uint_eq(span.first, at);
        ck_assert(span.count == 0 || at * bytes % COPSE_PLAN_ALIGN_BYTES == 0);
        at += span.count;
        check_chunks(&layout, &shape, p);
      }
      ck_assert_uint_eq(at, count);
    }
    copse_layout_free(&layout);
    pb_free(plan);
  }
}
END_TEST

START_TEST(the_number_of_chunks_follows_the_largest_piece) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  pb_header(b)->pipeline_chunks = 8;
  pb_header(b)->min_chunk_bytes = 100;
  pb_header(b)->chunk_bytes = 1000;
  pb_piece(b, 0, 1, 1, 4);
  uint32_t large = pb_piece(b, 1, 4, 1, 1); /* 3/4 */
  pb_region(b, 0, large);                   /* something to pass on */
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  /* bytes of the block, chunks: one; by the smallest chunk; by the wish; by the largest */
  const uint64_t expected[][2] = {{0, 1}, {64, 1}, {384, 3}, {3200, 8}, {16000, 12}};
  for (int i = 0; i < 5; i++) {
    struct copse_shape shape;
    ASSERT_OK(copse_layout_shape(&layout, expected[i][0] / 4, 4, &shape, &err), &err);
    ck_assert_uint_eq(shape.n_chunks, expected[i][1]);
  }
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

/* A plan of puts with `when`: does it go in chunks? */
static uint32_t chunks_of_puts(enum copse_plan_when when) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  pb_header(b)->min_chunk_bytes = pb_header(b)->chunk_bytes = 1000;
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), from = pb_worker(b, 0), to = pb_worker(b, 1);
  uint32_t channel = pb_channel(b, from, to);
  pb_move(b, from, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(1, 0));
  pb_signal(b, from, channel, when);
  pb_wait(b, to, channel, when);
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  struct copse_shape shape;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  ASSERT_OK(copse_layout_shape(&layout, 1000000, 4, &shape, &err), &err);
  copse_layout_free(&layout);
  pb_free(plan);
  return shape.n_chunks;
}
START_TEST(who_passes_nothing_on_needs_no_chunks) {
  ck_assert_uint_eq(chunks_of_puts(COPSE_WHEN_LAST), 1);
  ck_assert_uint_eq(chunks_of_puts(COPSE_WHEN_ALWAYS), 4000);
}
END_TEST

START_TEST(large_pieces_start_at_lines_of_memory) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  pb_piece(b, 0, 1, 1, 3);
  pb_piece(b, 1, 3, 1, 1);
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  struct copse_shape shape;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  ASSERT_OK(copse_layout_shape(&layout, 1000003, 2, &shape, &err), &err);
  struct copse_span second = copse_piece_span(&plan->pieces[1], 1000003, shape.unit);
  ck_assert_uint_eq(second.first, 1000003 / 3 / 256 * 256);
  ck_assert_uint_eq(second.first + second.count, 1000003);
  ASSERT_OK(copse_layout_shape(&layout, 1003, 2, &shape, &err), &err);
  ck_assert_uint_eq(copse_piece_span(&plan->pieces[1], 1003, shape.unit).first, 1003 / 3 / 8 * 8);
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

/* Half of what the slots would take, unless that is too little for any chunk. */
static void limit_to_half(struct copse_layout *layout) {
  struct copse_err err = COPSE_ERR_INIT;
  const uint64_t before = layout->chunk_bytes;
  uint64_t most[2] = {copse_layout_most_slot_bytes(layout, 0),
                      copse_layout_most_slot_bytes(layout, 1)};
  const uint64_t half = (most[0] > most[1] ? most[0] : most[1]) / 2;
  const copse_status status = copse_layout_limit(layout, half, &err);
  FAST_ASSERT(layout->chunk_bytes <= before);
  for (uint32_t r = 0; r < 2 && status == COPSE_OK; r++)
    FAST_ASSERT(copse_layout_most_slot_bytes(layout, r) <= half);
  FAST_ASSERT(status == COPSE_OK || status == COPSE_UNSUPPORTED);
}

/* Slot by slot and packet region by packet region, at any size; and what is allocated once for
 * every size is enough. */
START_TEST(regions_of_a_rank_do_not_overlap) {
  uint64_t state = 9;
  struct copse_err err = COPSE_ERR_INIT;
  for (int round = 0; round < 200; round++) {
    struct copse_plan *plan = random_plan(&state, copse_test_random_int(&state, 1, 12));
    bool packets = round % 2;
    if (packets) {
      plan->header.protocol = COPSE_PROTOCOL_LOW_LATENCY;
      plan->header.max_bytes = 100000;
      for (uint32_t i = 0; i < plan->header.n_regions; i++)
        ((struct copse_plan_region *)plan->regions)[i].kind = COPSE_REGION_PACKETS;
    }
    struct copse_layout layout;
    struct copse_shape shape;
    ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
    if (round % 4 == 0) limit_to_half(&layout);
    uint32_t bytes = 1u << copse_test_random_int(&state, 0, 3);
    uint64_t count = (uint64_t)copse_test_random_int(&state, 1, round % 3 ? 50 : 100000) / bytes;
    ASSERT_OK(copse_layout_shape(&layout, count, bytes, &shape, &err), &err);
    uint64_t end[2] = {0, 0};
    for (uint32_t i = 0; i < plan->header.n_regions; i++) {
      uint32_t r = plan->regions[i].rank;
      uint64_t slot = copse_slot_elements(&shape, &layout.places[i]) * bytes;
      FAST_ASSERT(slot % COPSE_PLAN_ALIGN_BYTES == 0);
      uint64_t first = packets ? copse_view_packets(&shape, &layout.places[i])
                               : copse_view_slot(&shape, &layout.places[i], 0);
      uint64_t last = packets ? first : copse_view_slot(&shape, &layout.places[i], shape.fifo - 1);
      FAST_ASSERT(first >= end[r] && first % COPSE_PLAN_ALIGN_BYTES == 0);
      FAST_ASSERT(packets || last == first + (shape.fifo - 1) * slot);
      end[r] = last + (packets ? 2 : 1) * slot;
    }
    for (uint32_t r = 0; r < 2; r++) {
      uint64_t now = packets ? copse_layout_packet_bytes(&layout, &shape, r)
                             : copse_layout_slot_bytes(&layout, &shape, r);
      uint64_t most = packets ? copse_layout_most_packet_bytes(&layout, r)
                              : copse_layout_most_slot_bytes(&layout, r);
      FAST_ASSERT(end[r] <= now && now <= most);
    }
    copse_layout_free(&layout);
    pb_free(plan);
  }
}
END_TEST

/* 65536 ranks have 2^32 pairs, which a 32-bit count takes for none at all. */
START_TEST(an_alltoall_has_pairs_that_can_be_counted) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_finish(pb_new(COPSE_ALLTOALL, 65536, -1));
  ASSERT_FAILS(copse_plan_validate(plan, "plan", &err), COPSE_BAD_INPUT, &err,
               "65536 ranks, an alltoall may have 65535");
  pb_free(plan);
}
END_TEST

START_TEST(sizes_beyond_64_bits_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_ALLGATHER, 65536, -1);
  pb_header(b)->fifo = 64;
  pb_header(b)->chunk_bytes = (uint64_t)1 << 62;
  pb_header(b)->pipeline_chunks = 1;
  pb_header(b)->min_chunk_bytes = (uint64_t)1 << 62;
  pb_region(b, 0, pb_piece(b, 0, 1, 1, 1));
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  struct copse_shape shape;
  ASSERT_OK(copse_layout_shape(&layout, (uint64_t)1 << 29, 8, &shape, &err), &err); /* 2^48 */
  ASSERT_FAILS(copse_layout_shape(&layout, ((uint64_t)1 << 29) + 1, 8, &shape, &err), COPSE_INVALID,
               &err, "elements a block, the most is 536870912");
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

/* ---- extreme sizes ------------------------------------------------------------------------ */

/* A fraction near 0, near 1, or anywhere, with a denominator of up to 62 bits. */
static int64_t random_part(uint64_t *state, int64_t den) {
  uint64_t r = copse_test_random(state), small = copse_test_random(state) % 8;
  if (small > (uint64_t)den) small = (uint64_t)den;
  if (r % 4 == 0) return (int64_t)small;
  if (r % 4 == 1) return den - (int64_t)small;
  return (int64_t)(copse_test_random(state) % ((uint64_t)den + 1));
}

static struct copse_plan *extreme_plan(uint64_t *state, bool packets) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 1, 0);
  struct copse_plan_header *h = pb_header(b);
  int most_pieces = 1 << copse_test_random_int(state, 0, 4);
  int n_pieces = copse_test_random_int(state, 1, most_pieces);
  int n_regions = 1 << copse_test_random_int(state, 0, copse_test_random_int(state, 0, 16));
  h->fifo = (uint32_t)(1 << copse_test_random_int(state, 0, 6));
  h->pipeline_chunks = (uint32_t)1 << copse_test_random_int(state, 0, 20);
  h->chunk_bytes = (uint64_t)1 << copse_test_random_int(state, 0, 62);
  h->chunk_bytes -= copse_test_random(state) % h->chunk_bytes;
  h->min_chunk_bytes = 1 + copse_test_random(state) % h->chunk_bytes;
  h->max_bytes =
      packets ? copse_test_random(state) >> copse_test_random_int(state, 0, 63) : 1 << 30;
  for (int i = 0; i < n_pieces; i++) {
    int64_t den = (int64_t)1 << copse_test_random_int(state, 0, 62);
    if (den > 2) den -= (int64_t)(copse_test_random(state) % ((uint64_t)den / 2));
    int64_t x = random_part(state, den), y = random_part(state, den);
    pb_piece(b, x < y ? x : y, den, x < y ? y : x, den);
  }
  for (int i = 0; i < n_regions; i++) {
    uint32_t piece = (uint32_t)copse_test_random_int(state, 0, n_pieces - 1);
    if (packets)
      pb_packets(b, 0, piece);
    else
      pb_region(b, 0, piece);
  }
  return pb_finish(b);
}

/* The largest chunk of a region's piece, by some that are likely to be. */
static uint64_t largest_chunk(const struct copse_view *view, uint32_t piece, uint64_t *state) {
  uint32_t n = view->shape.n_chunks, tries[6] = {0, n - 1, n / 2, n / 3};
  uint64_t most = 0;
  tries[4] = (uint32_t)(copse_test_random(state) % n);
  tries[5] = n > 1 ? n - 2 : 0;
  for (int i = 0; i < 6; i++) {
    uint64_t count = copse_view_chunk(view, piece, tries[i]).count;
    if (count > most) most = count;
  }
  return most;
}

/* In 128 bits: where a region starts. */
static unsigned __int128 wide_start(const struct copse_shape *shape, uint64_t start, uint32_t n) {
  unsigned __int128 share = (unsigned __int128)shape->chunk_base * start >> 32;
  return (share + shape->unit - 1) / shape->unit * shape->unit +
         (unsigned __int128)n * COPSE_REGION_SLACK * shape->unit;
}

static void check_extreme(const struct copse_layout *layout, const struct copse_shape *shape,
                          bool packets, uint64_t *state) {
  const struct copse_plan *plan = layout->plan;
  struct copse_view view = view_of(layout, shape);
  uint64_t bytes = shape->element_bytes, end = 0;
  for (uint32_t i = 0; i < plan->header.n_regions; i++) {
    const struct copse_region_place *place = &layout->places[i];
    uint64_t slot = copse_slot_elements(shape, place);
    if (i < 64) FAST_ASSERT(largest_chunk(&view, plan->regions[i].piece, state) <= slot);
    FAST_ASSERT(copse_region_start(shape, place->start, place->ordinal) ==
                wide_start(shape, place->start, place->ordinal));
    uint64_t first = packets ? copse_view_packets(shape, place) : copse_view_slot(shape, place, 0);
    uint64_t last = packets ? first : copse_view_slot(shape, place, shape->fifo - 1);
    FAST_ASSERT(first >= end && first % COPSE_PLAN_ALIGN_BYTES == 0);
    FAST_ASSERT(last - first == (packets ? 0 : (shape->fifo - 1) * slot * bytes));
    end = last + (packets ? 2 : 1) * slot * bytes;
  }
  uint64_t now = packets ? copse_layout_packet_bytes(layout, shape, 0)
                         : copse_layout_slot_bytes(layout, shape, 0);
  uint64_t most =
      packets ? copse_layout_most_packet_bytes(layout, 0) : copse_layout_most_slot_bytes(layout, 0);
  FAST_ASSERT(end <= now && now <= most && now <= COPSE_BUFFER_MAX_BYTES + (1 << 20));
}

/* Sizes up to the largest, shares of next to nothing and next to all, up to 2^16 regions: either
 * refused, or without overlap and overflow and within what is allocated once. */
START_TEST(extreme_sizes_are_refused_or_fit) {
  uint64_t state = (uint64_t)_i + 100;
  struct copse_err err = COPSE_ERR_INIT;
  int fit = 0;
  for (int round = 0; round < 150; round++) {
    bool packets = round % 2;
    struct copse_plan *plan = extreme_plan(&state, packets);
    struct copse_layout layout;
    ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
    ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
    for (int k = 0; k < 6; k++) {
      uint32_t bytes = 1u << copse_test_random_int(&state, 0, 3);
      uint64_t most = COPSE_BUFFER_MAX_BYTES / bytes;
      if (packets && plan->header.max_bytes / bytes < most) most = plan->header.max_bytes / bytes;
      uint64_t count = most >> (k % 2 ? copse_test_random_int(&state, 0, 47) : 0);
      if (k > 1 && count > 0) count -= copse_test_random(&state) % count;
      struct copse_shape shape;
      struct copse_err e = COPSE_ERR_INIT;
      copse_status status = copse_layout_shape(&layout, count, bytes, &shape, &e);
      FAST_ASSERT(status == COPSE_OK || status == COPSE_INVALID);
      if (status != COPSE_OK) continue;
      fit++;
      check_extreme(&layout, &shape, packets, &state);
    }
    copse_layout_free(&layout);
    pb_free(plan);
  }
  ck_assert_int_gt(fit, 100);
}
END_TEST

START_TEST(more_chunks_than_2_to_the_30_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 1, 0);
  pb_header(b)->chunk_bytes = pb_header(b)->min_chunk_bytes = 16;
  pb_region(b, 0, pb_piece(b, 0, 1, 1, 1));
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  struct copse_shape shape;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  ASSERT_OK(copse_layout_shape(&layout, (uint64_t)1 << 34, 1, &shape, &err), &err);
  ck_assert_uint_eq(shape.n_chunks, 1u << 30);
  ASSERT_FAILS(copse_layout_shape(&layout, ((uint64_t)1 << 34) + 1, 1, &shape, &err), COPSE_INVALID,
               &err, "17179869185 elements a block need more than 2^30 chunks of 16 bytes");
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

/* A plan of packets for any message: only memory bounds it. */
START_TEST(packets_beyond_memory_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 1, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (int i = 0; i < 1 << 16; i++) pb_packets(b, 0, piece);
  pb_header(b)->max_bytes = UINT64_MAX;
  struct copse_plan *plan = pb_finish(b);
  struct copse_layout layout;
  struct copse_shape shape;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  ASSERT_OK(copse_layout_shape(&layout, 1000, 1, &shape, &err), &err);
  ASSERT_FAILS(copse_layout_shape(&layout, (uint64_t)1 << 48, 1, &shape, &err), COPSE_INVALID, &err,
               "need more scratch than 2^48 bytes");
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

/* A message is the most that a rank sends: 3/2 blocks of rank 0, 1/2 of rank 1. */
START_TEST(by_a_demand_a_block_is_a_part_of_the_largest_row) {
  const struct copse_plan_extent extents[] = {{0, 1}, {3, 2}, {1, 2}, {0, 1}};
  struct copse_plan plan = {.header = {.n_ranks = 2, .n_extents = 4}, .extents = extents};
  ck_assert_uint_eq(copse_plan_block_bytes(&plan, 3000), 2000);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/layout");
  TCase *tc = tcase_create("layout");
  tcase_add_test(tc, pieces_and_chunks_tile_any_count);
  tcase_add_test(tc, the_number_of_chunks_follows_the_largest_piece);
  tcase_add_test(tc, who_passes_nothing_on_needs_no_chunks);
  tcase_add_test(tc, large_pieces_start_at_lines_of_memory);
  tcase_add_test(tc, regions_of_a_rank_do_not_overlap);
  tcase_add_test(tc, an_alltoall_has_pairs_that_can_be_counted);
  tcase_add_test(tc, by_a_demand_a_block_is_a_part_of_the_largest_row);
  tcase_add_test(tc, sizes_beyond_64_bits_are_refused);
  tcase_add_loop_test(tc, extreme_sizes_are_refused_or_fit, 0, 4);
  tcase_add_test(tc, more_chunks_than_2_to_the_30_are_refused);
  tcase_add_test(tc, packets_beyond_memory_are_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
