/*
 * The steps of a Mixture-of-Experts layer against the reference of tests/support/moe_case.c, with
 * a plain exchange in place of the collectives; and the parts that only GPUs run, thread by thread.
 */
#include "runtime/moe/steps.h"

#include <stdlib.h>
#include <string.h>

#include "support/moe_driver.h"
#include "support/support.h"

static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

static const struct moe_driver cpu = {&copse_moe_cpu, COPSE_DEVICE_CPU, copy};

START_TEST(random_layers_are_those_of_the_reference) {
  uint64_t state = 1;
  for (int i = 0; i < (COPSE_TEST_SWEEPS ? 3000 : 800); i++) {
    struct moe_options options = moe_options_random(&state);
    moe_drive(&cpu, &options, &state);
  }
}
END_TEST

/* ---- every type, capacity and routing at least once -------------------------------------- */

static struct moe_options plain(copse_type type, int top_k) {
  return (struct moe_options){
      .n_ranks = 3,
      .config = {.n_experts = 6,
                 .top_k = top_k,
                 .max_tokens = 24,
                 .capacity = COPSE_MOE_EXACT,
                 .row = {16, type}},
      .weights = true,
  };
}

START_TEST(every_float_type_is_scaled_and_summed_bit_for_bit) {
  uint64_t state = 2;
  for (copse_type type = COPSE_HALF; type < COPSE_N_TYPES; type++)
    for (int top_k = 1; top_k <= 4; top_k++)
      for (int64_t elements = 1; elements <= 17; elements++) {
        struct moe_options options = plain(type, top_k);
        options.config.row.elements = elements;
        options.scales = elements % 2 == 0;
        moe_drive(&cpu, &options, &state);
      }
}
END_TEST

START_TEST(capacities_cut_where_they_should) {
  uint64_t state = 3;
  for (int padded = 0; padded <= 1; padded++)
    for (int64_t capacity = 0; capacity <= 50; capacity++) { /* 24 tokens * 2 choices */
      struct moe_options options = plain(COPSE_FLOAT, 2);
      options.config.capacity = capacity;
      options.config.padded = padded;
      options.routing = capacity % 2 ? MOE_ONE : MOE_UNIFORM;
      moe_drive(&cpu, &options, &state);
    }
}
END_TEST

START_TEST(dispatch_and_combine_with_identity_experts_give_back_the_tokens) {
  static const int top_ks[] = {1, 2, 4};
  uint64_t state = 4;
  for (copse_type type = COPSE_HALF; type < COPSE_N_TYPES; type++)
    for (int i = 0; i < 3; i++) {
      struct moe_options options = plain(type, top_ks[i]);
      options.identity = true;
      struct moe_case *c = moe_case_new(&options, &state);
      for (uint32_t r = 0; r < options.n_ranks; r++) /* so says the reference */
        moe_check_combined(c, r, c->ranks[r].tokens);
      moe_case_free(c);
      moe_drive(&cpu, &options, &state);
    }
}
END_TEST

/* ---- what GPUs do with many threads ------------------------------------------------------ */

/* The kernel's order of work (src/runtime/moe/moe.cu), its threads one after the other. */
static void locate_by_runs(const struct copse_moe_job *job, uint32_t n_threads, uint32_t *sums) {
  for (uint32_t bin = 0; bin < copse_moe_bins(job); bin++) {
    uint32_t before = 0;
    for (uint32_t t = 0; t < n_threads; t++) copse_moe_count_run(job, bin, sums, t, n_threads);
    for (uint32_t t = 0; t < n_threads; t++) {
      uint32_t mine = copse_moe_add_part(job, sums, t);
      copse_moe_scan_part(job, sums, before, t);
      before += mine;
    }
    copse_moe_set_chosen(job, bin, before);
    for (uint32_t t = 0; t < n_threads; t++) copse_moe_place_run(job, bin, sums, t, n_threads);
  }
}

#define MANY_THREADS 64

START_TEST(runs_of_many_threads_locate_as_one_thread_does) {
  uint64_t state = 5;
  uint32_t *sums = malloc(MANY_THREADS * 4 * sizeof *sums);
  for (int i = 0; i < (COPSE_TEST_SWEEPS ? 500 : 150); i++) {
    struct moe_options options = moe_options_random(&state);
    struct moe_case *c = moe_case_new(&options, &state);
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_moe_job job;
    void *memory;
    ASSERT_OK(copse_moe_shape(&options.config, options.n_ranks, 0, &job, &err), &err);
    ASSERT_OK(copse_moe_furnish(&job, &options.config, &copse_moe_cpu, 0, &memory, &err), &err);
    job.n_tokens = (uint32_t)c->ranks[0].n_tokens;
    job.expert_ids = c->ranks[0].expert_ids;
    job.order = c->ranks[0].order;
    const size_t choices = (size_t)job.n_tokens * job.top_k * sizeof(uint32_t);
    uint32_t *right = malloc(choices + 1);
    copse_moe_locate_alone(&job);
    memcpy(right, job.location, choices);
    memset(job.location, 0xff, choices);
    memset(job.chosen, 0xff, copse_moe_bins(&job) * sizeof(uint32_t));
    locate_by_runs(&job, 1u << copse_test_random_int(&state, 0, 6), sums);
    ck_assert(memcmp(right, job.location, choices) == 0);
    ck_assert(memcmp(c->ranks[0].chosen, job.chosen, copse_moe_bins(&job) * 4) == 0);
    free(right);
    copse_moe_cpu.give_back(0, memory);
    moe_case_free(c);
  }
  free(sums);
}
END_TEST

/* Units of every width, with more lanes than units and fewer. */
START_TEST(lanes_of_a_row_move_all_of_it_and_nothing_else) {
  unsigned char from[200], to[200], want[200];
  for (int i = 0; i < 200; i++) from[i] = (unsigned char)(i + 1);
  for (uint32_t unit = 1; unit <= 16; unit *= 2)
    for (uint32_t units = 1; units <= 160 / unit; units++)
      for (uint32_t n_lanes = 2; n_lanes <= 32; n_lanes += 5) {
        struct copse_moe_job job = {.unit = unit, .row_bytes = (uint64_t)unit * units};
        memset(to, MOE_POISON, sizeof to);
        memcpy(want, to, sizeof want);
        memcpy(want + 16, from, job.row_bytes);
        for (uint32_t lane = 0; lane < n_lanes; lane++)
          copse_moe_copy_row(&job, to + 16, from, (struct copse_moe_lane){0, 1, lane, n_lanes});
        ck_assert(memcmp(to, want, sizeof to) == 0);
        memset(want + 16, 0, job.row_bytes);
        for (uint32_t lane = 0; lane < n_lanes; lane++)
          copse_moe_clear_row(&job, to + 16, (struct copse_moe_lane){0, 1, lane, n_lanes});
        ck_assert(memcmp(to, want, sizeof to) == 0);
      }
}
END_TEST

START_TEST(blocks_have_room_for_what_can_come_and_no_more) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_moe_config config = {.n_experts = 10, .top_k = 3, .max_tokens = 7, .row = {4, COPSE_INT8}};
  static const struct {
    int64_t capacity;
    uint32_t block_rows; /* the most experts of a rank: 3 */
    int padded;
    uint64_t rows[4]; /* 2, 3, 2 and 3 experts, 4 sources */
  } right[] = {{COPSE_MOE_EXACT, 21, 0, {84, 84, 84, 84}},
               {0, 0, 0, {0, 0, 0, 0}},
               {2, 6, 0, {16, 24, 16, 24}},
               {2, 6, 1, {16, 24, 16, 24}},
               {7, 21, 0, {56, 84, 56, 84}},
               {8, 21, 0, {64, 84, 64, 84}},
               {8, 21, 1, {64, 96, 64, 96}},
               {INT64_MAX, 21, 0, {84, 84, 84, 84}}};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++)
    for (uint32_t rank = 0; rank < 4; rank++) {
      struct copse_moe_job job;
      config.capacity = right[i].capacity;
      config.padded = right[i].padded;
      ASSERT_OK(copse_moe_shape(&config, 4, rank, &job, &err), &err);
      ck_assert_uint_eq(job.block_rows, right[i].block_rows);
      ck_assert_uint_eq(copse_moe_rows_at_most(&job), right[i].rows[rank]);
    }
}
END_TEST

/* An order that is no permutation must not make the steps leave their memory (ASan looks). */
START_TEST(a_wrong_order_stays_within_memory) {
  static const int32_t wrong[] = {-1, 0, 7, 8, INT32_MIN, INT32_MAX, 3, 3};
  uint64_t state = 6;
  for (int i = 0; i < 200; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    copse_moe_config config = {.n_experts = 3, .top_k = 2, .max_tokens = 8, .row = {4, COPSE_INT8}};
    config.capacity = i % 2 ? COPSE_MOE_EXACT : 2;
    int32_t ids[16], order[8];
    unsigned char tokens[32] = {0}, rows[64];
    struct copse_moe_job job;
    void *memory;
    ASSERT_OK(copse_moe_shape(&config, 1, 0, &job, &err), &err);
    ASSERT_OK(copse_moe_furnish(&job, &config, &copse_moe_cpu, 0, &memory, &err), &err);
    ck_assert_uint_le(copse_moe_rows_at_most(&job) * 4, sizeof rows);
    job.n_tokens = 8;
    job.expert_ids = ids;
    job.tokens_in = tokens;
    job.rows = rows;
    copse_moe_set_row(&job, &config.row, tokens, rows);
    for (int k = 0; k < 4; k++) { /* what an earlier call left is used */
      for (int j = 0; j < 16; j++) ids[j] = copse_test_random_int(&state, 0, 2);
      for (int j = 0; j < 8; j++) order[j] = wrong[copse_test_random_int(&state, 0, 7)];
      job.order = k ? order : NULL;
      for (int step = COPSE_MOE_LOCATE; step <= COPSE_MOE_UNPACK; step++)
        ASSERT_OK(copse_moe_cpu.run(0, (enum copse_moe_step)step, &job, NULL, &err), &err);
      uint32_t sums[2 * 4];
      locate_by_runs(&job, 4, sums);
    }
    copse_moe_cpu.give_back(0, memory);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/moe_steps");
  TCase *tc = tcase_create("moe_steps");
  tcase_add_test(tc, random_layers_are_those_of_the_reference);
  tcase_add_test(tc, every_float_type_is_scaled_and_summed_bit_for_bit);
  tcase_add_test(tc, capacities_cut_where_they_should);
  tcase_add_test(tc, dispatch_and_combine_with_identity_experts_give_back_the_tokens);
  tcase_add_test(tc, runs_of_many_threads_locate_as_one_thread_does);
  tcase_add_test(tc, lanes_of_a_row_move_all_of_it_and_nothing_else);
  tcase_add_test(tc, blocks_have_room_for_what_can_come_and_no_more);
  tcase_add_test(tc, a_wrong_order_stays_within_memory);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
