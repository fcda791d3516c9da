/* Every allocation of the readers of logs and reports fails once: no crash, no leak. */
#include <string.h>

#include "base/file.h"
#include "nccl/calls.h"
#include "nccl/log.h"
#include "nccl/reports.h"
#include "support/failing_malloc.h"
#include "support/support.h"
#include "topology/input/profile.h"

static const char *const samples[] = {"nccl/nccl-2.18.1.log",
                                      "nccl/nccl-2.20.5-2hosts.log",
                                      "nccl/nccl-2.29-split.log",
                                      "nccl/all_reduce_2.19.txt",
                                      "nccl/all_reduce_2.19.json",
                                      "nccl/rccl-tests.csv",
                                      "nccl/rccl-tests.json",
                                      "nccl/nvbandwidth-2.txt",
                                      "nccl/nvbandwidth-2.json",
                                      "nccl/ras.txt",
                                      "nccl/ras.json",
                                      "nccl/inspector.log",
                                      "nccl/inspector.prom",
                                      "nccl/flight-rank0.pickle",
                                      "nccl/flight-rank1.json"};
#define N_SAMPLES ((int)(sizeof samples / sizeof *samples))

static copse_status read_one(const char *text, size_t size, struct copse_err *err) {
  struct copse_nccl_log log;
  struct copse_tests tests;
  struct copse_nvbandwidth nv;
  struct copse_ras ras;
  struct copse_calls calls = {0};
  unsigned kinds = copse_nccl_detect(text, size);
  copse_status status = COPSE_OK;
  if (kinds & COPSE_NCCL_IS_LOG) {
    status = copse_nccl_log_open(&log, err);
    if (status == COPSE_OK) status = copse_nccl_log_add(&log, text, size, err);
    if (status == COPSE_OK) status = copse_nccl_log_finish(&log, "l", NULL, err);
    copse_nccl_log_free(&log);
  }
  if (status == COPSE_OK && kinds & COPSE_NCCL_IS_TESTS) {
    status = copse_tests_parse("t", text, size, &tests, err);
    copse_tests_free(&tests);
  }
  if (kinds & COPSE_NCCL_IS_NVBANDWIDTH) {
    status = copse_nvbandwidth_parse("n", text, size, &nv, err);
    copse_nvbandwidth_free(&nv);
  }
  if (kinds & COPSE_NCCL_IS_RAS) {
    status = copse_ras_parse("r", text, size, &ras, err);
    copse_ras_free(&ras);
  }
  if (kinds & COPSE_NCCL_IS_CALLS) {
    status = copse_calls_add(&calls, "i", text, size, err);
    copse_calls_free(&calls);
  }
  return status;
}

START_TEST(any_allocation_may_fail) {
  struct copse_err warm = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  long failures = 0;
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  ASSERT_OK(copse_file_read(copse_test_data(samples[_i]), &text, &size, &warm), &warm);
  ASSERT_OK(read_one(text, size, &warm), &warm);
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    long before = live;
    until_failure = n;
    copse_status status = read_one(text, size, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    if (!reached) break;
    failures += status == COPSE_NOMEM;
  }
  free(text);
  ck_assert_int_ge(failures, 1); /* one where all that is read shares a block of its arena */
}
END_TEST

int main(void) {
  Suite *suite = suite_create("audit/nccl_out_of_memory");
  TCase *all = tcase_create("out of memory");
  tcase_set_timeout(all, 120);
  tcase_add_loop_test(all, any_allocation_may_fail, 0, N_SAMPLES);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
