/* Test data: exact by construction, and a wrong result is counted. */
#include "runtime/interpreter/expected.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/interpreter/element_move.h"
#include "runtime/comm/executor.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define N_FLOATS 6
static const enum copse_type floats[N_FLOATS] = {
    COPSE_HALF, COPSE_BFLOAT16, COPSE_FLOAT, COPSE_DOUBLE, COPSE_FLOAT8_E4M3, COPSE_FLOAT8_E5M2};

static double to_double(enum copse_type type, const void *element) {
  const uint8_t *byte = element;
  uint16_t narrow = 0;
  float f;
  double d;
  if (copse_type_bytes(type) == 2) memcpy(&narrow, element, sizeof narrow);
  switch (type) {
    case COPSE_FLOAT8_E4M3: return copse_float8_e4m3_to_float(*byte);
    case COPSE_FLOAT8_E5M2: return copse_float8_e5m2_to_float(*byte);
    case COPSE_HALF: return copse_half_to_float(narrow);
    case COPSE_BFLOAT16: return copse_bfloat16_to_float(narrow);
    case COPSE_FLOAT: memcpy(&f, element, sizeof f); return f;
    default: memcpy(&d, element, sizeof d); return d;
  }
}

static double input_value(const struct copse_data *data, uint32_t rank, uint64_t element) {
  uint64_t bits;
  copse_data_input(data, rank, element, 1, &bits);
  return to_double(data->type, &bits);
}

/* Integers up to here are exact, and so is every sum that stays below. */
static double exact_limit(enum copse_type type) {
  switch (type) {
    case COPSE_FLOAT8_E4M3: return 16;
    case COPSE_FLOAT8_E5M2: return 8;
    case COPSE_HALF: return 2048;
    case COPSE_BFLOAT16: return 256;
    case COPSE_FLOAT: return 16777216;
    default: return 9007199254740992.0;
  }
}

/* An operand's plain memory. */
static struct copse_place at(const void *p) {
  return (struct copse_place){(unsigned char *)(uintptr_t)p, 0};
}

START_TEST(sums_are_exact_in_any_order_for_any_number_of_ranks) {
  static const uint32_t rank_counts[] = {1, 2, 3, 8, 63, 64, 65, 512, 4096, 65536};
  for (int t = 0; t < N_FLOATS; t++)
    for (int k = 0; k < 10; k++) {
      struct copse_data data = {COPSE_ALLREDUCE, rank_counts[k], -1, 100,
                                floats[t],       COPSE_SUM,      5,  NULL, NULL};
      for (uint64_t e = 0; e < 3; e++) {
        double sum = 0, magnitude = 0, out;
        uint64_t bits;
        for (uint32_t r = 0; r < data.n_ranks; r++) {
          double v = input_value(&data, r, e);
          if (v != floor(v)) ck_abort_msg("%g is no integer", v);
          sum += v;
          magnitude += fabs(v);
        }
        ck_assert_double_le(magnitude, exact_limit(data.type));
        copse_data_output(&data, 0, e, 1, &bits);
        out = to_double(data.type, &bits);
        ck_assert_double_eq(out, sum);
      }
    }
}
END_TEST

/* Ranks one after the other, stored in the type after every step, from any rank on. */
START_TEST(rounding_after_every_step_changes_nothing) {
  static const uint32_t rank_counts[] = {2, 5, 64, 300};
  for (int t = 0; t < N_FLOATS; t++)
    for (int k = 0; k < 4; k++)
      for (int redop = 0; redop < COPSE_AVG; redop++) {
        const uint32_t n = rank_counts[k];
        const struct copse_data data = {COPSE_ALLREDUCE,         n, -1,  100, floats[t],
                                        (enum copse_redop)redop, 5, NULL, NULL};
        for (uint64_t e = 0; e < 8; e++) {
          uint64_t total = 0, term = 0, expected = 0;
          const struct copse_place src[] = {at(&total), at(&term)};
          const struct copse_place dst[] = {at(&total)};
          const struct copse_move m = {data.type, data.redop, 2, 1, 1, 1, src, dst, NULL};
          copse_data_input(&data, (uint32_t)e % n, e, 1, &total);
          for (uint32_t r = 1; r < n; r++) {
            copse_data_input(&data, ((uint32_t)e + r) % n, e, 1, &term);
            copse_move_run(&m, 0, 1);
          }
          copse_data_output(&data, 0, e, 1, &expected);
          ck_assert_uint_eq(total, expected);
        }
      }
}
END_TEST

START_TEST(every_rank_matters_somewhere) {
  for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
    for (int t = 0; t < N_FLOATS; t++) {
      struct copse_data data = {COPSE_ALLREDUCE,         512, -1,  20000, floats[t],
                                (enum copse_redop)redop, 9,   NULL, NULL};
      for (uint32_t r = 0; r < 512; r += 73) {
        int active = 0;
        double neutral = redop == COPSE_PROD ? 1 : 0;
        for (uint64_t e = 0; e < 5000 && !active; e++) active = input_value(&data, r, e) != neutral;
        ck_assert_msg(active, "rank %u of %s %s", r, copse_type_name(floats[t]),
                      copse_redop_name((enum copse_redop)redop));
      }
    }
}
END_TEST

START_TEST(products_stay_exact_powers_of_two) {
  for (int t = 0; t < N_FLOATS; t++) {
    struct copse_data data = {COPSE_ALLREDUCE, 1000, -1, 100, floats[t], COPSE_PROD, 5, NULL, NULL};
    for (uint64_t e = 0; e < 20; e++) {
      double product = 1, low = 1, high = 1;
      for (uint32_t r = 0; r < 1000; r++) {
        double v = fabs(input_value(&data, r, e));
        ck_assert(v == 0.5 || v == 1 || v == 2);
        product *= input_value(&data, r, e);
        low *= v < 1 ? v : 1; /* the worst orders */
        high *= v > 1 ? v : 1;
      }
      ck_assert(low >= ldexp(1, -8) && high <= 256);
      uint64_t bits;
      copse_data_output(&data, 0, e, 1, &bits);
      ck_assert_double_eq(to_double(data.type, &bits), product);
    }
  }
}
END_TEST

START_TEST(extremes_and_integers_are_what_plain_arithmetic_gives) {
  struct copse_data data = {COPSE_ALLREDUCE, 17, -1, 100, COPSE_INT32, COPSE_MIN, 3, NULL, NULL};
  for (int redop = COPSE_SUM; redop < COPSE_N_REDOPS; redop++)
    for (uint64_t e = 0; e < 100; e++) {
      data.redop = (enum copse_redop)redop;
      int32_t v, out;
      copse_data_input(&data, 0, e, 1, &v);
      int64_t best = v;
      uint32_t sum = (uint32_t)v, product = (uint32_t)v;
      for (uint32_t r = 1; r < 17; r++) {
        copse_data_input(&data, r, e, 1, &v);
        if (redop == COPSE_MIN ? v < best : v > best) best = v;
        sum += (uint32_t)v;
        product *= (uint32_t)v;
      }
      copse_data_output(&data, 0, e, 1, &out);
      const int32_t expected[] = {(int32_t)sum, (int32_t)product, (int32_t)best, (int32_t)best,
                                  (int32_t)sum / 17};
      ck_assert_int_eq(out, expected[redop]);
      ck_assert(redop != COPSE_PROD || out % 2 != 0);
    }
}
END_TEST

START_TEST(min_and_max_have_both_signs) {
  for (int t = 0; t < N_FLOATS; t++) {
    struct copse_data data = {COPSE_ALLREDUCE, 2, -1, 100, floats[t], COPSE_MAX, 3, NULL, NULL};
    int negative = 0, positive = 0;
    for (uint64_t e = 0; e < 100; e++) {
      uint64_t bits;
      copse_data_output(&data, 0, e, 1, &bits);
      double v = to_double(data.type, &bits), a = input_value(&data, 0, e);
      double b = input_value(&data, 1, e);
      ck_assert_double_eq(v, a > b ? a : b);
      negative += v < 0;
      positive += v > 0;
    }
    ck_assert(negative > 5 && positive > 5);
  }
}
END_TEST

START_TEST(averages_are_the_rounded_quotient) {
  struct copse_data data = {COPSE_ALLREDUCE, 48, -1, 300, COPSE_HALF, COPSE_AVG, 3, NULL, NULL};
  for (int t = 0; t < N_FLOATS; t++)
    for (uint64_t e = 0; e < 300; e++) {
      data.type = floats[t];
      data.redop = COPSE_SUM;
      uint64_t sum_bits, avg_bits;
      copse_data_output(&data, 0, e, 1, &sum_bits);
      double sum = to_double(data.type, &sum_bits);
      data.redop = COPSE_AVG;
      copse_data_output(&data, 0, e, 1, &avg_bits);
      double avg = to_double(data.type, &avg_bits);
      float quotient = (float)sum / 48.0f;
      switch (data.type) {
        case COPSE_HALF:
          ck_assert_double_eq(avg, copse_half_to_float(copse_half_from_float(quotient)));
          break;
        case COPSE_BFLOAT16:
          ck_assert_double_eq(avg, copse_bfloat16_to_float(copse_bfloat16_from_float(quotient)));
          break;
        case COPSE_FLOAT8_E4M3:
          ck_assert_double_eq(avg, copse_float8_e4m3_load(copse_float8_e4m3_store(quotient)));
          break;
        case COPSE_FLOAT8_E5M2:
          ck_assert_double_eq(avg, copse_float8_e5m2_load(copse_float8_e5m2_store(quotient)));
          break;
        case COPSE_FLOAT: ck_assert_double_eq(avg, quotient); break;
        default: ck_assert_double_eq(avg, sum / 48.0); break;
      }
    }
}
END_TEST

START_TEST(copied_data_has_all_kinds_of_bits) {
  struct copse_data data = {COPSE_ALLGATHER, 4, -1, 5000, COPSE_HALF, COPSE_SUM, 3, NULL, NULL};
  uint16_t v[5000];
  int nans = 0;
  copse_data_input(&data, 2, 0, 5000, v);
  for (int i = 0; i < 5000; i++) nans += (v[i] & 0x7fff) > 0x7c00;
  ck_assert_int_gt(nans, 20);
  uint16_t out[10];
  copse_data_output(&data, 0, 2 * 5000 + 7, 10, out);
  ck_assert_mem_eq(out, v + 7, sizeof out);
}
END_TEST

/* ---- wrong results are counted ------------------------------------------------------------- */

struct done { /* a collective that was run, right so far */
  struct copse_plan *plan;
  struct copse_buffers buffers;
};

static struct done run(copse_collective collective, struct exec_case it) {
  struct copse_err err = COPSE_ERR_INIT;
  struct done d;
  struct copse_exec *exec;
  int32_t root = exec_case_root(collective, 4);
  d.plan = pb_tree_plan(collective, 4, root, PB_OPTIONS_DEFAULT);
  uint64_t bytes = it.count * copse_type_bytes(it.type);
  ASSERT_OK(copse_buffers_new(4, d.plan->header.input_blocks * bytes,
                              d.plan->header.output_blocks * bytes, &d.buffers, &err),
            &err);
  struct copse_data data = {collective, 4, root, it.count, it.type, it.redop, 77, NULL, NULL};
  copse_buffers_fill(&d.buffers, &data, it.in_place);
  ASSERT_OK(copse_exec_new(d.plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  const struct copse_launch launch = {it.count, it.type, it.redop, d.buffers.inputs,
                                      d.buffers.outputs, NULL};
  ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
  copse_exec_free(exec);
  ck_assert_uint_eq(copse_buffers_count_wrong(&d.buffers), 0);
  return d;
}

static void end(struct done *d) {
  copse_buffers_free(&d->buffers);
  pb_free(d->plan);
}

static const struct exec_case plain = {COPSE_FLOAT, COPSE_SUM, 1000, false};

START_TEST(one_flipped_bit_of_any_output_is_counted) {
  for (int c = 0; c < 6; c++) {
    struct done d = run((copse_collective)c, plain);
    uint64_t elements = 1000 * d.plan->header.output_blocks;
    for (uint32_t r = 0; r < 4; r++)
      for (uint64_t e = 0; e < elements; e += 333) {
        unsigned char *byte = (unsigned char *)d.buffers.outputs[r] + 4 * e + e % 4;
        *byte ^= 1;
        bool promised = c != COPSE_REDUCE || r == 2;
        ck_assert_uint_eq(copse_buffers_count_wrong(&d.buffers), promised);
        *byte ^= 1;
      }
    end(&d);
  }
}
END_TEST

START_TEST(swapped_blocks_are_counted) {
  struct done d = run(COPSE_ALLGATHER, plain);
  unsigned char block[4000], *out = d.buffers.outputs[1];
  memcpy(block, out, 4000);
  memcpy(out, out + 8000, 4000);
  memcpy(out + 8000, block, 4000);
  ck_assert_uint_gt(copse_buffers_count_wrong(&d.buffers), 1990);
  end(&d);
}
END_TEST

START_TEST(a_missing_contribution_is_counted) {
  for (int t = 0; t < COPSE_N_TYPES; t++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++) {
      /* the result over the first 3 ranks, offered as that of 4 */
      struct exec_case it = {(enum copse_type)t, (enum copse_redop)redop, 1000, false};
      struct done d = run(COPSE_ALLREDUCE, it);
      struct copse_data three = d.buffers.data;
      three.n_ranks = 3;
      copse_data_output(&three, 0, 0, 1000, d.buffers.outputs[0]);
      ck_assert_uint_gt(copse_buffers_count_wrong(&d.buffers), 50);
      end(&d);
    }
}
END_TEST

START_TEST(a_result_that_never_arrived_is_counted) {
  for (int in_place = 0; in_place < 2; in_place++) {
    struct done d = run(COPSE_BROADCAST, (struct exec_case){COPSE_INT8, COPSE_SUM, 1000, in_place});
    copse_buffers_fill(&d.buffers, &d.buffers.data, in_place);
    ck_assert_uint_gt(copse_buffers_count_wrong(&d.buffers), 2900);
    end(&d);
  }
}
END_TEST

START_TEST(a_changed_input_is_counted) {
  for (int c = 0; c < 6; c++) {
    struct done d = run((copse_collective)c, plain);
    ((unsigned char *)d.buffers.inputs[3])[1234] ^= 0x80;
    ck_assert_uint_eq(copse_buffers_count_wrong(&d.buffers), 1);
    end(&d);
  }
  /* in place the other blocks of a reduce_scatter's input stay, too */
  struct done d = run(COPSE_REDUCE_SCATTER, (struct exec_case){COPSE_FLOAT, COPSE_SUM, 1000, true});
  ((unsigned char *)d.buffers.inputs[3])[1234] ^= 0x80;
  ck_assert_uint_eq(copse_buffers_count_wrong(&d.buffers), 1);
  end(&d);
}
END_TEST

START_TEST(a_touched_guard_is_counted) {
  struct done d = run(COPSE_ALLREDUCE, plain);
  unsigned char *in = d.buffers.inputs[0], *out = d.buffers.outputs[3];
  in[-1] ^= 1;
  in[4000] ^= 1;
  out[-(int)COPSE_GUARD_BYTES] ^= 1;
  out[4000 + COPSE_GUARD_BYTES - 1] ^= 1;
  ck_assert_uint_eq(copse_buffers_count_wrong(&d.buffers), 4);
  end(&d);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/verify_data");
  TCase *tc = tcase_create("verify_data");
  tcase_add_test(tc, sums_are_exact_in_any_order_for_any_number_of_ranks);
  tcase_add_test(tc, rounding_after_every_step_changes_nothing);
  tcase_add_test(tc, every_rank_matters_somewhere);
  tcase_add_test(tc, products_stay_exact_powers_of_two);
  tcase_add_test(tc, extremes_and_integers_are_what_plain_arithmetic_gives);
  tcase_add_test(tc, min_and_max_have_both_signs);
  tcase_add_test(tc, averages_are_the_rounded_quotient);
  tcase_add_test(tc, copied_data_has_all_kinds_of_bits);
  tcase_add_test(tc, one_flipped_bit_of_any_output_is_counted);
  tcase_add_test(tc, swapped_blocks_are_counted);
  tcase_add_test(tc, a_missing_contribution_is_counted);
  tcase_add_test(tc, a_result_that_never_arrived_is_counted);
  tcase_add_test(tc, a_changed_input_is_counted);
  tcase_add_test(tc, a_touched_guard_is_counted);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
