/* Exact rationals: values, edges of 64 bits, and random sums against 128-bit arithmetic. */
#include "base/rational.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"

#define MAX INT64_MAX

static struct copse_q q(int64_t num, int64_t den) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  ASSERT_OK(copse_q_make(num, den, &out, &err), &err);
  return out;
}

static void expect(struct copse_q value, int64_t num, int64_t den) {
  ck_assert_msg(value.num == num && value.den == den,
                "%" PRId64 "/%" PRId64 ", expected %" PRId64 "/%" PRId64, value.num, value.den, num,
                den);
}

START_TEST(fractions_are_in_lowest_terms_with_positive_denominator) {
  expect(q(6, 4), 3, 2);
  expect(q(-6, 4), -3, 2);
  expect(q(6, -4), -3, 2);
  expect(q(0, -7), 0, 1);
  expect(q(MAX, MAX), 1, 1);
  expect(q(MAX, -MAX), -1, 1);
  expect(q(INT64_MIN, 2), INT64_MIN / 2, 1);
  expect(q(4, INT64_MIN), -1, (int64_t)1 << 61);
}
END_TEST

START_TEST(results_beyond_64_bits_are_overflow) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  ck_assert_int_eq(copse_q_make(1, INT64_MIN, &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_make(INT64_MIN, 1, &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_add(q(MAX, 1), q(1, 1), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_sub(q(-MAX, 1), q(1, 1), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_mul(q(MAX, 1), q(2, 1), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_mul(q(1, MAX), q(1, 2), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_add(q(1, MAX), q(1, MAX - 1), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_div(q(MAX, 1), q(1, 2), &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_div(q(1, 1), COPSE_Q_ZERO, &out, &err), COPSE_INVALID);
  ck_assert_int_eq(copse_q_make(1, 0, &out, NULL), COPSE_INVALID);
}
END_TEST

START_TEST(results_at_the_edge_are_exact) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  ASSERT_OK(copse_q_add(q(MAX - 1, 1), q(1, 1), &out, &err), &err);
  expect(out, MAX, 1);
  ASSERT_OK(copse_q_sub(q(-MAX + 1, 1), q(1, 1), &out, &err), &err);
  expect(out, -MAX, 1);
  /* both products leave 64 bits before they are reduced */
  ASSERT_OK(copse_q_mul(q(MAX, 3), q(3, MAX), &out, &err), &err);
  expect(out, 1, 1);
  ASSERT_OK(copse_q_add(q(1, MAX), q(-1, MAX), &out, &err), &err);
  expect(out, 0, 1);
  ASSERT_OK(copse_q_add(q(MAX, MAX - 1), q(-1, MAX - 1), &out, &err), &err);
  expect(out, 1, 1);
  ASSERT_OK(copse_q_div(q(MAX, 2), q(-MAX, 2), &out, &err), &err);
  expect(out, -1, 1);
}
END_TEST

START_TEST(comparison_is_exact_where_doubles_are_not) {
  ck_assert_int_lt(copse_q_cmp(q(MAX - 1, MAX), q(1, 1)), 0);
  ck_assert_int_lt(copse_q_cmp(q(MAX - 2, MAX - 1), q(MAX - 1, MAX)), 0);
  ck_assert_int_gt(copse_q_cmp(q(1, MAX - 1), q(1, MAX)), 0);
  ck_assert_int_lt(copse_q_cmp(q(-1, 1), q(1, MAX)), 0);
  ck_assert_int_eq(copse_q_cmp(q(2, 6), q(1, 3)), 0);
  ck_assert_int_eq(copse_q_cmp(q(-MAX, 1), q(-MAX, 1)), 0);
}
END_TEST

static int64_t random_value(uint64_t *state) {
  int bits = copse_test_random_int(state, 1, 63);
  int64_t v = (int64_t)(copse_test_random(state) >> (64 - bits));
  return copse_test_random_int(state, 0, 1) ? v : -v;
}

static struct copse_q random_q(uint64_t *state) {
  int64_t den = random_value(state);
  return q(random_value(state), den ? den : 1);
}

/* value == num/den, cross-multiplied; parts stay below 2^126 and are reduced by hand here. */
static void expect_equal(copse_status status, struct copse_q value, __int128 num, __int128 den) {
  __int128 a = num < 0 ? -num : num, b = den < 0 ? -den : den;
  while (b) {
    __int128 t = a % b;
    a = b;
    b = t;
  }
  num /= a;
  den /= a;
  if (den < 0) num = -num, den = -den;
  if (num > MAX || num < -MAX || den > MAX) {
    ck_assert_int_eq(status, COPSE_OVERFLOW);
    return;
  }
  ck_assert_int_eq(status, COPSE_OK);
  expect(value, (int64_t)num, (int64_t)den);
}

START_TEST(arithmetic_agrees_with_128_bits) {
  uint64_t state = 2024;
  for (int i = 0; i < 50000; i++) {
    struct copse_q a = random_q(&state), b = random_q(&state), out = COPSE_Q_ZERO;
    __int128 an = a.num, ad = a.den, bn = b.num, bd = b.den;
    copse_status status = copse_q_add(a, b, &out, NULL);
    expect_equal(status, out, an * bd + bn * ad, ad * bd);
    status = copse_q_sub(a, b, &out, NULL);
    expect_equal(status, out, an * bd - bn * ad, ad * bd);
    status = copse_q_mul(a, b, &out, NULL);
    expect_equal(status, out, an * bn, ad * bd);
    int order = (an * bd > bn * ad) - (an * bd < bn * ad);
    ck_assert_int_eq(copse_q_cmp(a, b), order);
    if (b.num == 0) continue;
    status = copse_q_div(a, b, &out, NULL);
    expect_equal(status, out, an * bd, ad * bn);
  }
}
END_TEST

START_TEST(gcd_and_lcm_are_those_of_absolute_values) {
  struct copse_err err = COPSE_ERR_INIT;
  int64_t lcm;
  ck_assert_int_eq(copse_gcd(0, 0), 0);
  ck_assert_int_eq(copse_gcd(-12, 18), 6);
  ck_assert_int_eq(copse_gcd(MAX, MAX), MAX);
  ck_assert_int_eq(copse_gcd(0, -5), 5);
  ASSERT_OK(copse_lcm(4, 6, &lcm, &err), &err);
  ck_assert_int_eq(lcm, 12);
  ASSERT_OK(copse_lcm(0, 6, &lcm, &err), &err);
  ck_assert_int_eq(lcm, 0);
  ASSERT_OK(copse_lcm(MAX, MAX, &lcm, &err), &err);
  ck_assert_int_eq(lcm, MAX);
  ASSERT_FAILS(copse_lcm(MAX, MAX - 1, &lcm, &err), COPSE_OVERFLOW, &err, "common denominator");
}
END_TEST

/* ---- text --------------------------------------------------------------------------- */

static const struct {
  const char *text;
  int64_t num, den;
} decimals[] = {
    {"0", 0, 1},
    {"-0", 0, 1},
    {"0.0e99999", 0, 1},
    {"25", 25, 1},
    {"0.1", 1, 10},
    {"-1.25e3", -1250, 1},
    {"1E+2", 100, 1},
    {"625e-1", 125, 2},
    {"12.50", 25, 2},
    {"9223372036854775807", MAX, 1},
    {"-9223372036854775807", -MAX, 1},
    {"0.000000000000000001", 1, 1000000000000000000},
    {"100000000000000000000e-20", 1, 1},
    {"0.00000000000000000000000000000000000000000000001e47", 1, 1},
    {"1.0000000000000000000000000000000000000000000000000", 1, 1},
    {"9007199254740993", 9007199254740993, 1}, /* 2^53 + 1: no double has it */
};

START_TEST(decimals_are_read_digit_by_digit) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  ASSERT_OK(copse_q_parse_decimal(decimals[_i].text, &out, &err), &err);
  expect(out, decimals[_i].num, decimals[_i].den);
}
END_TEST

static const struct {
  const char *text;
  copse_status status;
} bad_decimals[] = {
    {"", COPSE_BAD_INPUT},
    {"-", COPSE_BAD_INPUT},
    {"+1", COPSE_BAD_INPUT},
    {".5", COPSE_BAD_INPUT},
    {"1.", COPSE_BAD_INPUT},
    {"01", COPSE_BAD_INPUT},
    {"1e", COPSE_BAD_INPUT},
    {"1e+", COPSE_BAD_INPUT},
    {"0x10", COPSE_BAD_INPUT},
    {"NaN", COPSE_BAD_INPUT},
    {"inf", COPSE_BAD_INPUT},
    {"1 ", COPSE_BAD_INPUT},
    {" 1", COPSE_BAD_INPUT},
    {"1.5.2", COPSE_BAD_INPUT},
    {"1e5e5", COPSE_BAD_INPUT},
    {"--1", COPSE_BAD_INPUT},
    {"1,5", COPSE_BAD_INPUT},
    {"1e400", COPSE_OVERFLOW},
    {"1e-400", COPSE_OVERFLOW},
    {"1e999999999999", COPSE_OVERFLOW},
    {"9223372036854775808", COPSE_OVERFLOW},
    {"0.0000000000000000001", COPSE_OVERFLOW},
    {"3.14159265358979323846264338327950288419716939937510582097", COPSE_OVERFLOW},
};

START_TEST(other_texts_are_no_decimals) {
  struct copse_q out;
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert_int_eq(copse_q_parse_decimal(bad_decimals[_i].text, &out, &err),
                   bad_decimals[_i].status);
  ck_assert_int_ne(err.text[0], '\0');
}
END_TEST

START_TEST(fractions_are_read_and_written) {
  static const char *const bad[] = {"",      "/",   "1/",   "/2",   "1/-2", "1/0",  "a/2",
                                    "1/2/3", "1.5", " 1/2", "1/2 ", "+1/2", "0x1/2"};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q out;
  char text[COPSE_Q_TEXT];
  ASSERT_OK(copse_q_parse_fraction("6/4", &out, &err), &err);
  ck_assert_str_eq(copse_q_text(out, text), "3/2");
  ASSERT_OK(copse_q_parse_fraction("-7", &out, &err), &err);
  ck_assert_str_eq(copse_q_text(out, text), "-7");
  ASSERT_OK(copse_q_parse_fraction("0/5", &out, &err), &err);
  ck_assert_str_eq(copse_q_text(out, text), "0");
  ASSERT_OK(copse_q_parse_fraction("-9223372036854775807/9223372036854775806", &out, &err), &err);
  ck_assert_str_eq(copse_q_text(out, text), "-9223372036854775807/9223372036854775806");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    ck_assert_int_eq(copse_q_parse_fraction(bad[i], &out, NULL), COPSE_BAD_INPUT);
  ck_assert_int_eq(copse_q_parse_fraction("9223372036854775808", &out, NULL), COPSE_OVERFLOW);
  ck_assert_int_eq(copse_q_parse_fraction("1/9223372036854775808", &out, NULL), COPSE_OVERFLOW);
}
END_TEST

START_TEST(what_is_written_is_read_back) {
  uint64_t state = 11;
  for (int i = 0; i < 20000; i++) {
    struct copse_q a = random_q(&state), back;
    char text[COPSE_Q_TEXT];
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_q_parse_fraction(copse_q_text(a, text), &back, &err), &err);
    ck_assert(copse_q_eq(a, back));
  }
}
END_TEST

/* By division, which takes longer. */
static uint64_t residue(int64_t num, int64_t den, uint64_t prime) {
  unsigned __int128 a = (uint64_t)den % prime, result = (uint64_t)num % prime;
  for (uint64_t power = prime - 2; power > 0; power /= 2, a = a * a % prime)
    if (power % 2 == 1) result = result * a % prime;
  return (uint64_t)result;
}

START_TEST(two_residues_are_those_of_one_fraction) {
  const uint64_t p = (UINT64_C(1) << 61) - 1, q = (UINT64_C(1) << 60) - 93;
  uint64_t state = 7;
  ck_assert(copse_prime_value(&copse_primes[0]) == p && copse_prime_value(&copse_primes[1]) == q);
  for (int i = 0; i < 2000; i++) {
    int bits = 1 + i % 47;
    int64_t num = (int64_t)(copse_test_random(&state) >> (64 - bits)), got_num, got_den;
    int64_t den = 1 + (int64_t)(copse_test_random(&state) >> (64 - bits)) / (1 + i % 3);
    for (int64_t g; (g = copse_gcd(num, den)) > 1;) num /= g, den /= g;
    uint64_t first = residue(num, den, p), second = residue(num, den, q);
    ck_assert(copse_prime_fraction(first, second, 48, &got_num, &got_den));
    ck_assert(got_num == num && got_den == den);
    ck_assert(copse_prime_times(&copse_primes[0], first, second) ==
              (uint64_t)((unsigned __int128)first * second % p));
    ck_assert(copse_prime_times(&copse_primes[1], second, q - 1) ==
              (uint64_t)((unsigned __int128)second * (q - 1) % q));
    ck_assert(copse_prime_inverse(&copse_primes[1], 1 + second) ==
              residue(1, (int64_t)second + 1, q));
    if (num > 0) /* less than nothing */
      ck_assert(!copse_prime_fraction(p - first, q - second, 48, &got_num, &got_den));
    if (den >= 2 && bits < 40) /* beyond the bits */
      ck_assert(!copse_prime_fraction(residue(1, den << 22 | 1, p), residue(1, den << 22 | 1, q),
                                      20, &got_num, &got_den));
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("base/rational");
  TCase *tc = tcase_create("arithmetic");
  tcase_add_test(tc, fractions_are_in_lowest_terms_with_positive_denominator);
  tcase_add_test(tc, results_beyond_64_bits_are_overflow);
  tcase_add_test(tc, results_at_the_edge_are_exact);
  tcase_add_test(tc, comparison_is_exact_where_doubles_are_not);
  tcase_add_test(tc, arithmetic_agrees_with_128_bits);
  tcase_add_test(tc, gcd_and_lcm_are_those_of_absolute_values);
  tcase_add_test(tc, two_residues_are_those_of_one_fraction);
  suite_add_tcase(suite, tc);
  tc = tcase_create("text");
  tcase_add_loop_test(tc, decimals_are_read_digit_by_digit, 0,
                      (int)(sizeof decimals / sizeof *decimals));
  tcase_add_loop_test(tc, other_texts_are_no_decimals, 0,
                      (int)(sizeof bad_decimals / sizeof *bad_decimals));
  tcase_add_test(tc, fractions_are_read_and_written);
  tcase_add_test(tc, what_is_written_is_read_back);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
