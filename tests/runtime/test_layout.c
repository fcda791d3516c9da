/* Where chunks lie: pieces tile a block, chunks tile a piece, slots hold every chunk. */
#include "runtime/layout.h"

#include "runtime/executor.h"
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

static void check_chunks(const struct copse_layout *layout, uint32_t piece) {
  struct copse_span span = layout->pieces[piece];
  uint64_t at = span.first;
  for (uint32_t c = 0; c < layout->n_chunks; c++) {
    struct copse_span chunk = copse_layout_chunk(layout, piece, c);
    FAST_ASSERT(chunk.first == at);
    FAST_ASSERT(c == 0 || chunk.count == 0 || (chunk.first - span.first) % layout->unit == 0);
    at += chunk.count;
    for (uint32_t i = 0; i < layout->plan->header.n_regions; i++)
      if (layout->plan->regions[i].piece == piece)
        FAST_ASSERT(chunk.count * layout->element_bytes <= layout->slot_bytes[i]);
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
      ASSERT_OK(copse_layout_set(&layout, count, bytes, &err), &err);
      uint64_t at = 0;
      for (uint32_t p = 0; p < plan->header.n_pieces; p++) {
        ck_assert_uint_eq(layout.pieces[p].first, at);
        ck_assert(layout.pieces[p].count == 0 || at * bytes % COPSE_PLAN_ALIGN_BYTES == 0);
        at += layout.pieces[p].count;
        check_chunks(&layout, p);
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
    ASSERT_OK(copse_layout_set(&layout, expected[i][0] / 4, 4, &err), &err);
    ck_assert_uint_eq(layout.n_chunks, expected[i][1]);
  }
  copse_layout_free(&layout);
  pb_free(plan);
}
END_TEST

START_TEST(regions_of_a_rank_do_not_overlap) {
  uint64_t state = 9;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = random_plan(&state, 8);
  struct copse_layout layout;
  ASSERT_OK(copse_layout_new(plan, &layout, &err), &err);
  ASSERT_OK(copse_layout_set(&layout, 5000, 2, &err), &err);
  uint64_t end[2] = {0, 0};
  for (uint32_t i = 0; i < plan->header.n_regions; i++) {
    uint32_t r = plan->regions[i].rank;
    ck_assert_uint_eq(layout.region_offsets[i], end[r]);
    ck_assert_uint_eq(layout.slot_bytes[i] % COPSE_PLAN_ALIGN_BYTES, 0);
    end[r] += layout.slot_bytes[i] * plan->header.fifo;
  }
  ck_assert_uint_eq(end[0], layout.scratch_bytes[0]);
  ck_assert_uint_eq(end[1], layout.scratch_bytes[1]);
  ck_assert_uint_eq(end[0] + end[1], layout.total_scratch);
  copse_layout_free(&layout);
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
  ASSERT_OK(copse_layout_set(&layout, (uint64_t)1 << 29, 8, &err), &err); /* 2^48 in all */
  ASSERT_FAILS(copse_layout_set(&layout, ((uint64_t)1 << 29) + 1, 8, &err), COPSE_INVALID, &err,
               "elements a block, the most is 536870912");
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
