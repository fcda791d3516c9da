/* The library itself, preloaded into a program that knows nothing of it, or loaded by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/nccl_support.h"

static char build[512]; /* the variant's folder */
static char output[1 << 16];

static void setup(void) {
  nccl_setup();
  ssize_t n = readlink("/proc/self/exe", build, sizeof build - 1);
  ck_assert_int_gt(n, 0);
  build[n] = '\0';
  for (int up = 0; up < 3; up++) *strrchr(build, '/') = '\0'; /* tests/nccl/test_preload */
}

/* Runs the job with an environment of its own ("PRELOAD" stands for the library). */
static void run_job(const char *environment, const char *arguments) {
  char command[2048];
  snprintf(command, sizeof command,
           "env -u COPSE_DEBUG -u COPSE_PLAN_DIR %s "
           "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 %s/tests/nccl/fake/job %s 2>&1",
           environment, build, arguments);
  FILE *job = popen(command, "r");
  ck_assert_ptr_nonnull(job);
  size_t n = fread(output, 1, sizeof output - 1, job);
  output[n] = '\0';
  ck_assert_msg(pclose(job) == 0, "%s: %s", command, output);
}

static const char *with(const char *format) {
  static char text[1500];
  char library[600];
  snprintf(library, sizeof library, "%s/libcopse-nccl.so", build);
  snprintf(text, sizeof text, format, library, nccl_plan_folder());
  return text;
}

static void assert_says(const char *part) {
  ck_assert_msg(strstr(output, part) != NULL, "\"%s\" is not in:\n%s", part, output);
}

static void assert_sums(void) {
  for (int r = 0; r < N; r++) {
    char line[64];
    snprintf(line, sizeof line, "rank %d: result 0, sum 10\n", r);
    assert_says(line);
  }
}

START_TEST(a_preloaded_job_is_served) {
  run_job(with("LD_PRELOAD=%s COPSE_PLAN_DIR=%s COPSE_DEBUG=INFO"), "sum");
  assert_sums();
  assert_says("AllReduce of the real NCCL: 0\n");
  assert_says("NCCL AllReduce: served by the plan for hand-built");
  assert_says("NCCL AllReduce: 1 served, 0 passed in all");
}
END_TEST

START_TEST(without_plans_it_is_passed) {
  run_job(with("LD_PRELOAD=%s COPSE_DEBUG=INFO"), "sum");
  assert_sums();
  assert_says("AllReduce of the real NCCL: 4\n");
  assert_says("NCCL AllReduce: passed to NCCL, count 1 of type 7: rank 0 has no COPSE_PLAN_DIR");
}
END_TEST

START_TEST(without_debug_nothing_is_said) {
  run_job(with("LD_PRELOAD=%s COPSE_PLAN_DIR=%s"), "sum");
  assert_sums();
  ck_assert_ptr_null(strstr(output, "COPSE"));
}
END_TEST

START_TEST(without_preload_it_is_not_there) {
  run_job("COPSE_DEBUG=INFO", "sum");
  assert_sums();
  assert_says("AllReduce of the real NCCL: 4\n");
  ck_assert_ptr_null(strstr(output, "COPSE"));
}
END_TEST

/* ctypes users and the like. NCCL is found in the process, or by the name that is given. */
START_TEST(loaded_by_name_it_has_all_functions) {
  run_job("COPSE_DEBUG=INFO", with("names %s"));
  assert_says("result 0, version 22899, 0 missing\n");
}
END_TEST

START_TEST(a_library_may_be_named) {
  char environment[2048];
  snprintf(environment, sizeof environment,
           "LD_PRELOAD=%s/libcopse-nccl.so COPSE_NCCL_LIBRARY=%s/tests/nccl/fake/libnccl.so.2",
           build, build);
  run_job(environment, "version");
  assert_says("result 0, version 22899\n");
}
END_TEST

/* 5: ncclInvalidUsage. Nothing else is tried: the user has said what to use. */
START_TEST(a_named_library_that_is_not_there_is_an_error) {
  run_job(with("LD_PRELOAD=%s COPSE_NCCL_LIBRARY=/nowhere/libnccl.so.2 COPSE_DEBUG=WARN"),
          "version");
  assert_says("result 5, version 0\n");
  assert_says("COPSE_NCCL_LIBRARY: /nowhere/libnccl.so.2");
}
END_TEST

START_TEST(a_library_that_is_ourselves_is_no_nccl) {
  run_job(with("COPSE_NCCL_LIBRARY=%1$s LD_PRELOAD=%1$s COPSE_DEBUG=WARN"), "version");
  assert_says("result 5, version 0\n");
  assert_says("no ncclGetVersion");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/preload");
  TCase *tc = tcase_create("preload");
  tcase_add_checked_fixture(tc, setup, nccl_teardown);
  tcase_add_test(tc, a_preloaded_job_is_served);
  tcase_add_test(tc, without_plans_it_is_passed);
  tcase_add_test(tc, without_debug_nothing_is_said);
  tcase_add_test(tc, without_preload_it_is_not_there);
  tcase_add_test(tc, loaded_by_name_it_has_all_functions);
  tcase_add_test(tc, a_library_may_be_named);
  tcase_add_test(tc, a_named_library_that_is_not_there_is_an_error);
  tcase_add_test(tc, a_library_that_is_ourselves_is_no_nccl);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
