/* What every test program shares. A test file is one Check program: its main() returns
 * copse_test_run(suite). */
#ifndef COPSE_TESTS_SUPPORT_H
#define COPSE_TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "support/random.h"

/* Runs a suite: one line a failure, a closing line that scripts/run_tests adds up. */
int copse_test_run(Suite *suite);

/* Adds to `suite` the test case for what only the plain build shows, of a program that ASan's build runs too. By default
 * scripts/run_tests runs the plain program with its cases alone. */
TCase *copse_test_plain(Suite *suite, double timeout_s);

/* Check writes the place of every assertion that held to a file, for the report of a crash, which
 * takes longer than most of what is asserted. Here it does so once a clock tick: what such a
 * report says, "after this point", stays true. */
void copse_test_mark(const char *file, int line);
#define _mark_point copse_test_mark /* what Check's own macros call */

/* Leaves the running test and makes the skip visible in the totals. */
#define COPSE_SKIP(...)              \
  do {                               \
    copse_test_skipped(__VA_ARGS__); \
    return;                          \
  } while (0)
void copse_test_skipped(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Long sweeps (every mutant of a plan, every type with every reduction) take one case in so many.
 * Under COPSE_TEST_ALL, which scripts/check --all sets, the plain build takes every case. The
 * sanitized builds, many times slower, look for slips in memory and between threads: they take
 * fewer. The numbers are primes, so that a sweep over a product meets all values of its factors.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COPSE_TEST_SANITIZED 1
#else
#define COPSE_TEST_SANITIZED 0
#endif
#ifdef __SANITIZE_THREAD__
#define COPSE_TEST_RACES 1 /* this build looks for slips between threads only */
#else
#define COPSE_TEST_RACES 0
#endif
int copse_test_one_in(void);
#define COPSE_TEST_ONE_IN copse_test_one_in()

/* Says how many of n cases drawn at random are taken: at least one. */
#define COPSE_TEST_SOME(n) (((n) + COPSE_TEST_ONE_IN - 1) / COPSE_TEST_ONE_IN)

/* Says whether COPSE_TEST_ALL is set: for the cases that only scripts/check --all runs, where a sanitizer sees more in
 * more of them (hostile input, failing allocations, threads). */
bool copse_test_all(void);

/* Says whether to run what a sanitizer learns nothing new from: in the plain build. */
#define COPSE_TEST_RESULTS !COPSE_TEST_SANITIZED
#define COPSE_TEST_UP_TO(results, few) (COPSE_TEST_RESULTS ? (results) : (few))

/* Says whether to take the long sweeps of results: in the plain build under COPSE_TEST_ALL. A sanitizer sees the same
 * code in fewer cases. */
#define COPSE_TEST_SWEEPS (!COPSE_TEST_SANITIZED && copse_test_all())

/* Fails with the error's own text. */
#define ASSERT_OK(call, err)                                                 \
  do {                                                                       \
    copse_status assert_ok_ = (call);                                        \
    ck_assert_msg(assert_ok_ == COPSE_OK, "%s: %s (%s)", #call, (err)->text, \
                  copse_status_string(assert_ok_));                          \
  } while (0)

/* The call must fail with `expected`, and its text must contain `part`. */
#define ASSERT_FAILS(call, expected, err, part)                                                    \
  do {                                                                                             \
    copse_status assert_fails_ = (call);                                                           \
    ck_assert_msg(assert_fails_ == (expected), "%s: got %s (%s), expected %s", #call,              \
                  copse_status_string(assert_fails_), (err)->text, copse_status_string(expected)); \
    ck_assert_msg(strstr((err)->text, (part)) != NULL, "\"%s\" lacks \"%s\"", (err)->text,         \
                  (part));                                                                         \
  } while (0)

/* Gives the path of a file of tests/data; fails where it isn't there. `name` such as
 * "reference/ring-8.json". The path is valid until the next call. */
const char *copse_test_data(const char *name);

/* Reads a whole file, which must be there; a NUL follows it. The caller frees it; size may be NULL. */
char *copse_test_load(const char *path, size_t *size);

#endif
