/* scripts/run_gpu, with programs that only pretend: parts, limits, and what is left when it is cut
 * off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

/* A folder as the repository's, whose programs print their arguments. A file `fail` or
 * `slow` makes check_gpu so. */
static void make_repository(void) {
  ck_assert_int_eq(copse_test_command("rm -rf %%/repo %%/bin && mkdir -p %%/repo/scripts "
                                      "%%/repo/tests/gpu %%/repo/build/gpu/plans %%/bin && cp "
                                      "scripts/run_gpu %%/repo/scripts && cp tests/gpu/variants.* "
                                      "%%/repo/tests/gpu"),
                   0);
  copse_test_write("repo/build/gpu/check_gpu",
                   "#!/bin/sh\necho \"check_gpu $*\"\n[ -e fail ] && exit 1\n"
                   "[ -e slow ] && { sleep 30; echo 'too late'; }\nexit 0\n");
  copse_test_write("repo/build/gpu/bench_gpu",
                   "#!/bin/sh\necho \"bench_gpu $*\"\nwhile [ $# -gt 0 ]; do\n"
                   "[ \"$1\" = --variants ] && cat \"$2\"; shift; done\nexit 0\n");
  copse_test_write("bin/python3", "#!/bin/sh\nexit 77 # as check_pytorch.py without PyTorch\n");
  copse_test_write("bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: pretended, 1.0'\n");
  ck_assert_int_eq(copse_test_command("chmod +x %%/repo/build/gpu/*_gpu %%/bin/*"), 0);
}

/* With a GPU; before: settings. */
static int run_gpu(const char *before, const char *parts) {
  return copse_test_command("cd %%/repo && %s PATH=%%/bin:$PATH scripts/run_gpu %s", before, parts);
}

static bool said(const char *part) { return strstr(copse_test_result.out, part) != NULL; }

/* A row of the closing table that says result, after whatever seconds the part took. */
static bool closed_with(const char *part, const char *result) {
  char start[32];
  snprintf(start, sizeof start, "\n| %-18s |", part);
  const char *row = strstr(copse_test_result.out, start);
  char *seconds_end = NULL;
  if (row == NULL || strtol(row + strlen(start), &seconds_end, 10) < 0) return false;
  char end[48];
  snprintf(end, sizeof end, " | %-24s |\n", result);
  return strncmp(seconds_end, end, strlen(end)) == 0;
}

START_TEST(parts_run_in_the_order_asked_for_and_are_logged) {
  ck_assert_int_eq(run_gpu("", "latency quick pytorch"), 0);
  const char *latency = strstr(copse_test_result.out, "bench_gpu --only copy,floor,latency");
  const char *quick = strstr(copse_test_result.out, "check_gpu --small");
  ck_assert(latency && quick && latency < quick);
  ck_assert(said("---- latency: done") && said("---- quick: done") &&
            said("---- pytorch: skipped"));
  char *log = copse_test_read("repo/build/gpu/run.log");
  ck_assert_str_eq(log, copse_test_result.out);
  free(log);
  ck_assert_int_eq(run_gpu("", "quick"), 0); /* added to the log */
  ck_assert_int_eq(copse_test_command("grep -c '==== quick' %%/repo/build/gpu/run.log"), 0);
  ck_assert_str_eq(copse_test_result.out, "2\n");
}
END_TEST

START_TEST(it_closes_with_a_table) {
  copse_test_write("repo/build/gpu/check_gpu",
                   "#!/bin/sh\n[ \"$2\" = inverted ] && { echo '7 passed, 1 failed, 0 skipped'; exit 1; }\n"
                   "echo '12 passed, 0 failed, 3 skipped'\n");
  ck_assert_int_eq(run_gpu("COPSE_GPU_SECONDS=200", "inverted system pytorch soak"), 1);
  ck_assert(said("| part               |    s | result                   |\n| ---"));
  ck_assert(closed_with("inverted", "7 passed, 1 failed"));
  ck_assert(closed_with("system", "12 passed, 0 failed"));
  ck_assert(closed_with("pytorch", "skipped"));
  ck_assert(said("| soak               |    - | not begun                |\n"));
  ck_assert(said("# failed: inverted\n"));
}
END_TEST

START_TEST(the_first_ten_minutes_fit) {
  ck_assert_int_eq(run_gpu("", "gpu-first"), 0);
  const char *at = copse_test_result.out;
  long seconds = 0;
  for (; (at = strstr(at, "(at most ")) != NULL; at++) seconds += strtol(at + 9, NULL, 10);
  ck_assert_int_gt(seconds, 0);
  ck_assert_int_le(seconds, 600);
  ck_assert(said("check_gpu --only system") && said("check_gpu --only processes") &&
            said("check_gpu --only inverted"));
}
END_TEST

START_TEST(a_kind_is_its_parts) {
  ck_assert_int_eq(run_gpu("", "bench-gpu"), 0);
  ck_assert(said("==== latency ") && said("==== bandwidth ") && said("==== bandwidth-variants "));
  ck_assert(!said("check_gpu"));
  /* variants name folders of plans */
  ck_assert(said("two-256K:plans=/") && said("/build/gpu/plans/two,chunk=256K"));
}
END_TEST

START_TEST(a_part_that_fails_does_not_end_the_others) {
  copse_test_write("repo/fail", "");
  ck_assert_int_eq(run_gpu("", "quick latency"), 1);
  ck_assert(said("---- quick: FAILED, exit status 1") && said("---- latency: done"));
  ck_assert(said("# failed: quick\n"));
}
END_TEST

START_TEST(a_part_is_cut_off_at_its_limit_and_what_it_wrote_stands) {
  copse_test_write("repo/slow", "");
  ck_assert_int_eq(run_gpu("COPSE_GPU_LIMIT=1", "soak latency"), 1);
  ck_assert(said("check_gpu --only soak") && !said("too late"));
  ck_assert(said("---- soak: CUT OFF after 1 s") && said("---- latency: done"));
}
END_TEST

START_TEST(no_part_is_begun_that_may_outlast_the_time_left) {
  ck_assert_int_eq(run_gpu("COPSE_GPU_SECONDS=100", "quick bandwidth pytorch soak"), 0);
  ck_assert(said("---- quick: done") && said("---- pytorch: skipped") && !said("==== bandwidth"));
  ck_assert(said("# not begun, no time left: scripts/run_gpu bandwidth soak\n"));
}
END_TEST

START_TEST(a_soak_can_be_continued) {
  ck_assert_int_eq(run_gpu("COPSE_GPU_SOAK='--from 300000'", "soak"), 0);
  ck_assert(said("check_gpu --only soak --seconds 200 --from 300000\n"));
}
END_TEST

START_TEST(without_a_gpu_it_says_so_and_passes) {
  copse_test_write("bin/nvidia-smi", "#!/bin/sh\necho 'No devices were found'\nexit 6\n");
  ck_assert_int_eq(run_gpu("", "check-gpu"), 0);
  ck_assert(said("SKIP check-gpu: this machine has no NVIDIA GPU") && !said("check_gpu --"));
}
END_TEST

START_TEST(a_part_that_is_none_is_refused) {
  ck_assert_int_eq(run_gpu("", "quick nonsense"), 2);
  ck_assert(strstr(copse_test_result.err, "no part 'nonsense'") && !said("check_gpu"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gpu/run_gpu");
  TCase *tc = tcase_create("run_gpu");
  (void)copse_test_folder();
  tcase_add_checked_fixture(tc, make_repository, NULL);
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, parts_run_in_the_order_asked_for_and_are_logged);
  tcase_add_test(tc, it_closes_with_a_table);
  tcase_add_test(tc, the_first_ten_minutes_fit);
  tcase_add_test(tc, a_kind_is_its_parts);
  tcase_add_test(tc, a_part_that_fails_does_not_end_the_others);
  tcase_add_test(tc, a_part_is_cut_off_at_its_limit_and_what_it_wrote_stands);
  tcase_add_test(tc, no_part_is_begun_that_may_outlast_the_time_left);
  tcase_add_test(tc, a_soak_can_be_continued);
  tcase_add_test(tc, without_a_gpu_it_says_so_and_passes);
  tcase_add_test(tc, a_part_that_is_none_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
