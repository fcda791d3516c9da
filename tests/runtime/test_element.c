/* Element arithmetic: conversions against double arithmetic, wrap-around, and MOVE. */
#include "runtime/interpreter/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/interpreter/element_move.h"
#include "runtime/comm/executor.h"
#include "support/support.h"

/* Check's own assertions tell the parent of every success, which is slow in loops. */
#define FAST_ASSERT(condition, ...)              \
  do {                                           \
    if (!(condition)) ck_abort_msg(__VA_ARGS__); \
  } while (0)

/* A 16-bit float type as numbers: what its bits mean, by definition. */
struct narrow {
  int mantissa_bits, bias;
  uint16_t infinity; /* bits */
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);
};

static float half_to_float(uint16_t h) { return copse_half_to_float(h); }
static uint16_t half_from_float(float v) { return copse_half_from_float(v); }
static float bfloat16_to_float(uint16_t h) { return copse_bfloat16_to_float(h); }
static uint16_t bfloat16_from_float(float v) { return copse_bfloat16_from_float(v); }

static const struct narrow types[2] = {
    {10, 15, 0x7c00, half_to_float, half_from_float},
    {7, 127, 0x7f80, bfloat16_to_float, bfloat16_from_float},
};

/* What bits without the sign mean, by definition. */
static double magnitude_of(int bits, int mantissa_bits, int bias) {
  int exponent = bits >> mantissa_bits;
  int mantissa = bits & ((1 << mantissa_bits) - 1);
  return exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                       : ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/* The value of finite bits; of infinity's the next power of two, where rounding to it
 * starts from. */
static double value_of(const struct narrow *t, uint16_t bits) {
  double v = magnitude_of(bits & 0x7fff, t->mantissa_bits, t->bias);
  return bits & 0x8000 ? -v : v;
}

static bool is_nan(const struct narrow *t, uint16_t bits) { return (bits & 0x7fff) > t->infinity; }

START_TEST(every_value_converts_exactly_and_back) {
  const struct narrow *t = &types[_i];
  for (uint32_t u = 0; u < 65536; u++) {
    uint16_t bits = (uint16_t)u;
    float f = t->to_float(bits);
    FAST_ASSERT(!signbit(f) == !(bits & 0x8000), "the sign of 0x%04x", u);
    if (is_nan(t, bits)) {
      FAST_ASSERT(isnan(f), "0x%04x is a NaN", u);
      FAST_ASSERT(is_nan(t, t->from_float(f)), "0x%04x stays a NaN", u);
    } else if ((bits & 0x7fff) == t->infinity) {
      FAST_ASSERT(isinf(f), "0x%04x is infinite", u);
      FAST_ASSERT(t->from_float(f) == bits, "0x%04x does not come back", bits);
    } else {
      FAST_ASSERT((double)f == value_of(t, bits), "0x%04x is %a", u, f);
      FAST_ASSERT(t->from_float(f) == bits, "0x%04x does not come back", bits);
    }
  }
}
END_TEST

/* `got` must be the nearest to v, of two the even one. All differences are exact. */
static void check_rounding(const struct narrow *t, float v) {
  uint16_t got = t->from_float(v), magnitude = got & 0x7fff;
  FAST_ASSERT(magnitude <= t->infinity, "%a became NaN", v);
  FAST_ASSERT(!signbit(v) == !(got & 0x8000), "the sign of %a", v);
  double exact = fabs((double)v), here = fabs(value_of(t, got));
  if (isinf(v)) exact = ldexp(1, t->bias + 1);
  if (magnitude > 0) {
    double below = exact - fabs(value_of(t, (uint16_t)(magnitude - 1)));
    FAST_ASSERT(below > fabs(exact - here) || (below == fabs(exact - here) && got % 2 == 0),
                "%a became 0x%04x, should be smaller", v, got);
  }
  if (magnitude < t->infinity) {
    double above = fabs(value_of(t, (uint16_t)(magnitude + 1))) - exact;
    FAST_ASSERT(above > fabs(exact - here) || (above == fabs(exact - here) && got % 2 == 0),
                "%a became 0x%04x, should be larger", v, got);
  }
}

START_TEST(rounding_is_to_nearest_even_around_every_tie) {
  const struct narrow *t = &types[_i];
  for (uint16_t bits = 0; bits < t->infinity; bits++) {
    double tie = (value_of(t, bits) + value_of(t, (uint16_t)(bits + 1))) / 2;
    float f = (float)tie;
    FAST_ASSERT((double)f == tie, "%a is no float", tie);
    const float around[] = {f, nextafterf(f, 0), nextafterf(f, INFINITY)};
    for (int k = 0; k < 3; k++) {
      check_rounding(t, around[k]);
      check_rounding(t, -around[k]);
    }
  }
}
END_TEST

START_TEST(rounding_is_right_for_random_floats) {
  const struct narrow *t = &types[_i];
  uint64_t state = 7;
  for (int i = 0; i < 2000000; i++) {
    float v = copse_float_from_bits((uint32_t)copse_test_random(&state));
    if (isnan(v))
      FAST_ASSERT(is_nan(t, t->from_float(v)), "a NaN becomes a number");
    else if (fabsf(v) < ldexpf(1, t->bias == 15 ? 16 : 127)) /* beyond: the next test */
      check_rounding(t, v);
  }
}
END_TEST

START_TEST(what_is_too_large_becomes_infinity_and_a_nan_stays_one) {
  const struct narrow *t = &types[_i];
  float limit = t->bias == 15 ? 65520.0f : copse_float_from_bits(0x7f7f8000u);
  ck_assert_uint_eq(t->from_float(nextafterf(limit, 0)), t->infinity - 1);
  ck_assert_uint_eq(t->from_float(limit), t->infinity);
  ck_assert_uint_eq(t->from_float(-limit), t->infinity | 0x8000);
  ck_assert_uint_eq(t->from_float(copse_float_from_bits(0x7f7fffffu)), t->infinity);
  ck_assert_uint_eq(t->from_float(-INFINITY), t->infinity | 0x8000);
  ck_assert(is_nan(t, t->from_float(copse_float_from_bits(0x7f800001u)))); /* low payload */
  ck_assert(is_nan(t, t->from_float(copse_float_from_bits(0xffffffffu))));
}
END_TEST

/* ---- fp8 ------------------------------------------------------------------------------------ */

struct fp8 {
  int mantissa_bits, bias;
  uint8_t largest;  /* bits of the largest finite value */
  uint8_t infinity; /* bits; 0: none */
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);
};

static float e4m3_to_float(uint8_t b) { return copse_float8_e4m3_load(b); }
static uint8_t e4m3_from_float(float v) { return copse_float8_e4m3_store(v); }
static float e5m2_to_float(uint8_t b) { return copse_float8_e5m2_load(b); }
static uint8_t e5m2_from_float(float v) { return copse_float8_e5m2_store(v); }

static const struct fp8 fp8s[2] = {
    {3, 7, 0x7e, 0, e4m3_to_float, e4m3_from_float},
    {2, 15, 0x7b, 0x7c, e5m2_to_float, e5m2_from_float},
};

static double fp8_magnitude(const struct fp8 *t, int bits) {
  return magnitude_of(bits & 0x7f, t->mantissa_bits, t->bias);
}

/* The nearest finite value, of two the even one, found by trying all. The differences that
 * decide are exact in double. */
static uint8_t nearest_fp8(const struct fp8 *t, float v) {
  double exact = fabs((double)v), best_distance = exact;
  uint8_t best = 0;
  if (isnan(v)) return 0x7f;
  if (exact >= fp8_magnitude(t, t->largest)) best = t->largest;
  for (uint8_t bits = 1; bits <= t->largest && best != t->largest; bits++) {
    double distance = fabs(fp8_magnitude(t, bits) - exact);
    if (distance > best_distance) break; /* they are in order */
    if (distance < best_distance || bits % 2 == 0) best = bits;
    best_distance = distance;
  }
  return (uint8_t)(best | (signbit(v) ? 0x80 : 0));
}

static void check_fp8(const struct fp8 *t, float v) {
  uint8_t got = t->from_float(v), right = nearest_fp8(t, v);
  FAST_ASSERT(got == right, "%a became 0x%02x, should be 0x%02x", v, got, right);
}

START_TEST(fp8_limits_are_those_of_the_standard) {
  static const double largest[2] = {448, 57344};
  static const int smallest[2] = {-9, -16};
  const struct fp8 *t = &fp8s[_i];
  ck_assert_double_eq(t->to_float(t->largest), largest[_i]);
  ck_assert_double_eq(t->to_float(1), ldexp(1, smallest[_i]));
  ck_assert(isnan(t->to_float(0x7f)) && isnan(t->to_float(0xff)));
}
END_TEST

START_TEST(every_fp8_converts_exactly_and_back) {
  const struct fp8 *t = &fp8s[_i];
  for (int bits = 0; bits < 256; bits++) {
    float f = t->to_float((uint8_t)bits);
    int sign = bits & 0x80, rest = bits & 0x7f;
    FAST_ASSERT(!signbit(f) == !sign, "the sign of 0x%02x", bits);
    if (rest <= t->largest) {
      FAST_ASSERT(fabs((double)f) == fp8_magnitude(t, rest), "0x%02x is %a", bits, f);
      FAST_ASSERT(t->from_float(f) == bits, "0x%02x does not come back", bits);
    } else if (rest == t->infinity) {
      FAST_ASSERT(isinf(f), "0x%02x is infinite", bits);
    } else {
      FAST_ASSERT(isnan(f), "0x%02x is a NaN", bits);
    }
  }
}
END_TEST

START_TEST(fp8_rounds_to_nearest_even_around_every_tie) {
  const struct fp8 *t = &fp8s[_i];
  for (int bits = 0; bits <= t->largest; bits++) { /* the last: towards what is too large */
    float tie = (float)((fp8_magnitude(t, bits) + fp8_magnitude(t, bits + 1)) / 2);
    const float around[] = {tie, nextafterf(tie, 0), nextafterf(tie, INFINITY)};
    for (int k = 0; k < 3; k++) {
      check_fp8(t, around[k]);
      check_fp8(t, -around[k]);
    }
  }
}
END_TEST

START_TEST(fp8_rounding_is_right_all_over_the_floats) {
  const struct fp8 *t = &fp8s[_i];
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021)
    check_fp8(t, copse_float_from_bits((uint32_t)bits));
}
END_TEST

START_TEST(fp8_saturates_and_a_nan_stays_one) {
  const struct fp8 *t = &fp8s[_i];
  float largest = (float)fp8_magnitude(t, t->largest);
  ck_assert_uint_eq(t->from_float(nextafterf(largest, INFINITY)), t->largest);
  ck_assert_uint_eq(t->from_float(2 * largest), t->largest);
  ck_assert_uint_eq(t->from_float(-2 * largest), t->largest | 0x80);
  ck_assert_uint_eq(t->from_float(copse_float_from_bits(0x7f7fffffu)), t->largest);
  ck_assert_uint_eq(t->from_float(INFINITY), t->largest);
  ck_assert_uint_eq(t->from_float(-INFINITY), t->largest | 0x80);
  ck_assert_uint_eq(t->from_float(copse_float_from_bits(0x7f800001u)), 0x7f); /* low payload */
  ck_assert_uint_eq(t->from_float(copse_float_from_bits(0xffffffffu)), 0x7f);
  ck_assert_uint_eq(t->from_float(-0.0f), 0x80);
}
END_TEST

/* ---- integers, min and max, names ----------------------------------------------------------- */

START_TEST(integers_wrap_around) {
  for (int a = -128; a < 128; a++)
    for (int b = -128; b < 128; b++) {
      FAST_ASSERT(copse_int8_sum((int8_t)a, (int8_t)b) == (int8_t)(uint8_t)(a + b), "%d + %d", a,
                  b);
      FAST_ASSERT(copse_int8_prod((int8_t)a, (int8_t)b) == (int8_t)(uint8_t)(a * b), "%d * %d", a,
                  b);
      FAST_ASSERT(copse_int8_min((int8_t)a, (int8_t)b) == (a < b ? a : b), "min %d %d", a, b);
      uint8_t ua = (uint8_t)a, ub = (uint8_t)b;
      FAST_ASSERT(copse_uint8_max(ua, ub) == (ua > ub ? ua : ub), "max %u %u", ua, ub);
    }
  ck_assert_int_eq(copse_int32_sum(INT32_MAX, 1), INT32_MIN);
  ck_assert_int_eq(copse_int32_prod(65536 * 3, 65536 / 2), INT32_MIN);
  ck_assert_uint_eq(copse_uint32_sum(UINT32_MAX, 2), 1);
  ck_assert_int_eq(copse_int64_sum(INT64_MAX, 1), INT64_MIN);
  ck_assert_int_eq(copse_int64_prod(INT64_MIN, -1), INT64_MIN);
  ck_assert_uint_eq(copse_uint64_prod(UINT64_MAX, UINT64_MAX), 1);
}
END_TEST

START_TEST(integer_averages_truncate_towards_zero) {
  for (int a = -128; a < 128; a++)
    for (uint32_t n = 1; n < 300; n++) {
      FAST_ASSERT(copse_int8_divide((int8_t)a, n) == a / (int)n, "%d / %u", a, n);
      FAST_ASSERT(copse_uint8_divide((uint8_t)a, n) == (uint8_t)a / (int)n, "%u / %u", (uint8_t)a,
                  n);
    }
  ck_assert_int_eq(copse_int32_divide(INT32_MIN, 65536), -32768);
  ck_assert_int_eq(copse_int64_divide(-7, 2), -3);
  ck_assert_uint_eq(copse_uint64_divide(UINT64_MAX, 3), UINT64_MAX / 3);
}
END_TEST

START_TEST(min_and_max_prefer_the_number_and_the_first_zero) {
  ck_assert(copse_float_min(NAN, 1) == 1 && copse_float_min(1, NAN) == 1);
  ck_assert(copse_float_max(NAN, 1) == 1 && copse_float_max(1, NAN) == 1);
  ck_assert(isnan(copse_double_max(NAN, NAN)));
  ck_assert(signbit(copse_float_min(-0.0f, 0.0f)) && !signbit(copse_float_min(0.0f, -0.0f)));
  ck_assert(copse_double_min(-2, 3) == -2 && copse_double_max(-2, 3) == 3);
}
END_TEST

/* By NCCL's number, which a port may pass. */
START_TEST(numbers_names_and_sizes_are_those_of_nccl) {
  static const struct {
    const char *name;
    size_t bytes;
  } nccl[] = {{"int8", 1},   {"uint8", 1},    {"int32", 4},  {"uint32", 4},
              {"int64", 8},  {"uint64", 8},   {"half", 2},   {"float", 4},
              {"double", 8}, {"bfloat16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1}};
  static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
  ck_assert_int_eq(COPSE_N_TYPES, 12);
  for (int i = 0; i < 12; i++) {
    ck_assert_str_eq(copse_type_name((enum copse_type)i), nccl[i].name);
    ck_assert_uint_eq(copse_type_bytes((enum copse_type)i), nccl[i].bytes);
  }
  ck_assert_int_eq(COPSE_N_REDOPS, 5);
  for (int i = 0; i < 5; i++) ck_assert_str_eq(copse_redop_name((enum copse_redop)i), ops[i]);
}
END_TEST

/* ---- MOVE ----------------------------------------------------------------------------------- */

/* An operand's plain memory. */
static struct copse_place at(const void *p) {
  return (struct copse_place){(unsigned char *)(uintptr_t)p, 0};
}

static void move(enum copse_type type, enum copse_redop redop, uint64_t count,
                 const struct copse_place *src, uint32_t n_src, void *dst) {
  const struct copse_place dsts[] = {at(dst)};
  const struct copse_move m = {type, redop, n_src, 1, 1, count, src, dsts, NULL};
  copse_move_run(&m, 0, 1);
}

START_TEST(small_floats_accumulate_in_float_and_round_once) {
  uint16_t big = copse_half_from_float(2048), one = copse_half_from_float(1), out;
  const struct copse_place src[] = {at(&big), at(&one), at(&one)};
  move(COPSE_HALF, COPSE_SUM, 1, src, 3, &out);
  ck_assert_float_eq(copse_half_to_float(out), 2050);
  uint16_t b = copse_bfloat16_from_float(256), b1 = copse_bfloat16_from_float(1);
  const struct copse_place src2[] = {at(&b), at(&b1), at(&b1)};
  move(COPSE_BFLOAT16, COPSE_SUM, 1, src2, 3, &out);
  ck_assert_float_eq(copse_bfloat16_to_float(out), 258);
  for (int i = 0; i < 2; i++) {
    const struct fp8 *t = &fp8s[i];
    enum copse_type type = i == 0 ? COPSE_FLOAT8_E4M3 : COPSE_FLOAT8_E5M2;
    float big8 = i == 0 ? 16 : 8; /* the next is big8 + 2 */
    uint8_t c = t->from_float(big8), c1 = t->from_float(1), out8;
    const struct copse_place src3[] = {at(&c), at(&c1), at(&c1)};
    move(type, COPSE_SUM, 1, src3, 3, &out8);
    ck_assert_float_eq(t->to_float(out8), big8 + 2);
  }
}
END_TEST

/* Only what is stored saturates, not the accumulator. */
START_TEST(fp8_saturates_where_it_is_stored) {
  for (int i = 0; i < 2; i++) {
    const struct fp8 *t = &fp8s[i];
    enum copse_type type = i == 0 ? COPSE_FLOAT8_E4M3 : COPSE_FLOAT8_E5M2;
    const uint8_t most = t->largest, least = (uint8_t)(t->largest | 0x80);
    uint8_t out;
    const struct copse_place src[] = {at(&most), at(&most), at(&least)};
    move(type, COPSE_SUM, 1, src, 2, &out);
    ck_assert_uint_eq(out, most);
    move(type, COPSE_SUM, 1, src, 3, &out);
    ck_assert_uint_eq(out, most);
    move(type, COPSE_PROD, 1, src, 3, &out);
    ck_assert_uint_eq(out, least);
    const struct copse_place dst[] = {at(&out)};
    const struct copse_move avg = {type, COPSE_AVG, 2, 1, 2, 1, src, dst, NULL};
    copse_move_run(&avg, 0, 1);
    ck_assert_uint_eq(out, most);
  }
}
END_TEST

START_TEST(sources_are_folded_in_the_order_given) {
  const double a = 1e16, b = 1, c = -1e16;
  double out;
  const struct copse_place abc[] = {at(&a), at(&b), at(&c)};
  const struct copse_place acb[] = {at(&a), at(&c), at(&b)};
  move(COPSE_DOUBLE, COPSE_SUM, 1, abc, 3, &out);
  ck_assert_double_eq(out, 0);
  move(COPSE_DOUBLE, COPSE_SUM, 1, acb, 3, &out);
  ck_assert_double_eq(out, 1);
}
END_TEST

START_TEST(one_source_is_copied_bit_for_bit) {
  const uint32_t signalling_nan = 0x7f800001u;
  uint32_t out = 0;
  const struct copse_place src[] = {at(&signalling_nan)};
  move(COPSE_FLOAT, COPSE_SUM, 1, src, 1, &out);
  ck_assert_uint_eq(out, signalling_nan);
  const uint16_t half_nan = 0x7c01;
  uint16_t half_out = 0;
  const struct copse_place half_src[] = {at(&half_nan)};
  move(COPSE_HALF, COPSE_MAX, 1, half_src, 1, &half_out);
  ck_assert_uint_eq(half_out, half_nan);
  for (int bits = 0; bits < 256; bits++) {
    const uint8_t in8 = (uint8_t)bits;
    uint8_t out8 = (uint8_t)~in8;
    const struct copse_place src8[] = {at(&in8)};
    move(COPSE_FLOAT8_E4M3, COPSE_SUM, 1, src8, 1, &out8);
    FAST_ASSERT(out8 == in8, "e4m3 0x%02x became 0x%02x", in8, out8);
    out8 = (uint8_t)~in8;
    move(COPSE_FLOAT8_E5M2, COPSE_MIN, 1, src8, 1, &out8);
    FAST_ASSERT(out8 == in8, "e5m2 0x%02x became 0x%02x", in8, out8);
  }
}
END_TEST

START_TEST(a_destination_may_be_a_source) {
  for (uint64_t n = 0; n < 700; n += 13) {
    int32_t a[700], b[700], c[700];
    for (int i = 0; i < 700; i++) a[i] = i, b[i] = 1000 * i, c[i] = -1;
    const struct copse_place src[] = {at(a), at(b)};
    const struct copse_place dst[] = {at(b), at(c)};
    const struct copse_move m = {COPSE_INT32, COPSE_SUM, 2, 2, 1, n, src, dst, NULL};
    copse_move_run(&m, 0, 1);
    for (int i = 0; i < 700; i++) {
      FAST_ASSERT(a[i] == i, "a source changed");
      FAST_ASSERT(b[i] == ((uint64_t)i < n ? 1001 * i : 1000 * i), "b[%d]", i);
      FAST_ASSERT(c[i] == ((uint64_t)i < n ? 1001 * i : -1), "c[%d]", i);
    }
  }
}
END_TEST

/* A GPU's threads share the elements of a MOVE; here they come one after the other. */
START_TEST(threads_share_a_move_without_gap_or_overlap) {
  enum { MAX = 3000 };
  static uint8_t a[MAX * 8], b[MAX * 8], whole[MAX * 8], shared[MAX * 8];
  uint64_t state = 3;
  for (int i = 0; i < MAX * 8; i++) {
    a[i] = (uint8_t)copse_test_random_int(&state, 0, 63); /* no NaN */
    b[i] = (uint8_t)copse_test_random_int(&state, 0, 63);
  }
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
      for (uint32_t n_threads = 1; n_threads <= 7; n_threads += 3) {
        const struct copse_place src[] = {at(a), at(b)};
        const struct copse_place dst[] = {at(whole)};
        struct copse_move m = {(enum copse_type)type,      (enum copse_redop)redop, 2,   1,
                               redop == COPSE_AVG ? 3 : 1, (uint64_t)MAX - 1,       src, dst, NULL};
        memset(whole, 0, sizeof whole);
        memset(shared, 0, sizeof shared);
        copse_move_run(&m, 0, 1);
        const struct copse_place dst2[] = {at(shared)};
        m.dst = dst2;
        for (uint32_t t = 0; t < n_threads; t++) copse_move_run(&m, t, n_threads);
        ck_assert_mem_eq(whole, shared, sizeof whole);
      }
}
END_TEST

START_TEST(avg_divides_once_where_it_is_final) {
  const float a = 1, b = 9;
  float out;
  const struct copse_place src[] = {at(&a), at(&b)};
  const struct copse_place dst[] = {at(&out)};
  const struct copse_move m = {COPSE_FLOAT, COPSE_AVG, 2, 1, 3, 1, src, dst, NULL};
  copse_move_run(&m, 0, 1);
  ck_assert_float_eq(out, 10.0f / 3.0f);
  const struct copse_move one = {COPSE_FLOAT, COPSE_AVG, 1, 1, 3, 1, src, dst, NULL};
  copse_move_run(&one, 0, 1);
  ck_assert_float_eq(out, 1.0f / 3.0f);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/element");
  TCase *tc = tcase_create("element");
  tcase_add_loop_test(tc, every_value_converts_exactly_and_back, 0, 2);
  tcase_add_loop_test(tc, rounding_is_to_nearest_even_around_every_tie, 0, 2);
  tcase_add_loop_test(tc, rounding_is_right_for_random_floats, 0, 2);
  tcase_add_loop_test(tc, what_is_too_large_becomes_infinity_and_a_nan_stays_one, 0, 2);
  tcase_add_loop_test(tc, fp8_limits_are_those_of_the_standard, 0, 2);
  tcase_add_loop_test(tc, every_fp8_converts_exactly_and_back, 0, 2);
  tcase_add_loop_test(tc, fp8_rounds_to_nearest_even_around_every_tie, 0, 2);
  tcase_add_loop_test(tc, fp8_rounding_is_right_all_over_the_floats, 0, 2);
  tcase_add_loop_test(tc, fp8_saturates_and_a_nan_stays_one, 0, 2);
  tcase_add_test(tc, integers_wrap_around);
  tcase_add_test(tc, integer_averages_truncate_towards_zero);
  tcase_add_test(tc, min_and_max_prefer_the_number_and_the_first_zero);
  tcase_add_test(tc, numbers_names_and_sizes_are_those_of_nccl);
  tcase_add_test(tc, small_floats_accumulate_in_float_and_round_once);
  tcase_add_test(tc, fp8_saturates_where_it_is_stored);
  tcase_add_test(tc, sources_are_folded_in_the_order_given);
  tcase_add_test(tc, one_source_is_copied_bit_for_bit);
  tcase_add_test(tc, a_destination_may_be_a_source);
  tcase_add_test(tc, threads_share_a_move_without_gap_or_overlap);
  tcase_add_test(tc, avg_divides_once_where_it_is_final);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
