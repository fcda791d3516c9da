/* Where chunks lie: pieces tile a block, chunks tile a piece, slots hold every chunk. */
#include "runtime/layout.h"

#include "runtime/executor.h"
#include "runtime/view.h"
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
  pb_piece(b, 1, 4, 1, 1); /* 3/4 */
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
  ASSERT_FAILS(copse_layout_shape(&layout, ((uint64_t)1 << 29) + 1, 8, &shape, &err),
               COPSE_INVALID, &err, "elements a block, the most is 536870912");
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/layout");
  TCase *tc = tcase_create("layout");
  tcase_add_test(tc, pieces_and_chunks_tile_any_count);
  tcase_add_test(tc, the_number_of_chunks_follows_the_largest_piece);
  tcase_add_test(tc, regions_of_a_rank_do_not_overlap);
  tcase_add_test(tc, sizes_beyond_64_bits_are_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
