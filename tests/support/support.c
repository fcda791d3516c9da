#include "base/file.h"
#include "support/support.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TCase *copse_test_plain(Suite *suite, double timeout_s) {
  TCase *tests = tcase_create("plain");
  tcase_set_tags(tests, "plain");
  tcase_set_timeout(tests, timeout_s);
  suite_add_tcase(suite, tests);
  return tests;
}

int copse_test_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  int run = srunner_ntests_run(runner);
  printf("RESULT run=%d failed=%d\n", run, failed);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#undef _mark_point
void copse_test_mark(const char *file, int line) {
  static _Atomic int64_t marked_at;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
  if (atomic_exchange_explicit(&marked_at, now, memory_order_relaxed) != now)
    _mark_point(file, line);
}

/* Check forks each test, so a skip is handed to the runner through the output. */
void copse_test_skipped(const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  printf("SKIP %s\n", text);
  fflush(stdout);
}

bool copse_test_all(void) {
  const char *all = getenv("COPSE_TEST_ALL");
  return all && all[0] && strcmp(all, "0") != 0;
}

int copse_test_one_in(void) {
  if (COPSE_TEST_SANITIZED) return copse_test_all() ? 5 : 29;
  return copse_test_all() ? 1 : 7;
}

const char *copse_test_data(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "tests/data/%s", name);
  ck_assert_msg(access(path, R_OK) == 0, "%s can't be read", path);
  return path;
}

char *copse_test_load(const char *path, size_t *size) {
  struct copse_err err = COPSE_ERR_INIT;
  char *data = NULL;
  size_t n;
  ASSERT_OK(copse_file_read(path, &data, &n, &err), &err);
  if (size) *size = n;
  return data;
}
