/*
 * Every allocation of loading and running a plan fails once: each must be reported, and
 * what was taken before given back. Under the sanitizers the test is skipped.
 */
#include <stdlib.h>

#include "runtime/comm/executor.h"
#include "runtime/interpreter/expected.h"
#include "support/exec_support.h"
#include "support/failing_malloc.h"
#include "support/plan_builder.h"
#include "support/support.h"

/* A plan is decoded, run once on buffers, and everything freed. */
static copse_status whole_life(const char *bytes, size_t size, struct copse_err *err) {
  struct copse_plan *plan = NULL;
  struct copse_exec *exec = NULL;
  struct copse_buffers buffers = {0};
  uint64_t scratch;
  copse_status status;
  COPSE_TRY(copse_plan_decode("it.plan", bytes, size, &plan, err));
  COPSE_TRY(copse_exec_scratch_bytes(plan, 100, COPSE_FLOAT, &scratch, err));
  COPSE_TRY(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, err));
  COPSE_TRY(copse_buffers_new(4, 400, 400, &buffers, err));
  const struct copse_data data = {COPSE_ALLREDUCE, 4, -1, 100, COPSE_FLOAT, COPSE_SUM, 1, NULL, NULL};
  copse_buffers_fill(&buffers, &data, false);
  const struct copse_launch launch = {100, COPSE_FLOAT, COPSE_SUM, buffers.inputs, buffers.outputs, NULL};
  COPSE_TRY(copse_exec_run(exec, &launch, err));
  if (copse_buffers_count_wrong(&buffers) != 0) status = COPSE_INTERNAL;
out:
  copse_buffers_free(&buffers);
  copse_exec_free(exec);
  copse_plan_free(plan);
  return status;
}

START_TEST(every_failing_allocation_is_reported_and_nothing_leaks) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 4, -1, PB_OPTIONS_DEFAULT);
  char *bytes;
  size_t size;
  ASSERT_OK(copse_plan_encode(plan, &bytes, &size, &err), &err);
  int failures = 0;
  for (;; failures++) {
    long before = live;
    err = (struct copse_err)COPSE_ERR_INIT;
    until_failure = failures;
    copse_status status = whole_life(bytes, size, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert_int_eq(live, before);
    if (!reached) {
      ck_assert_int_eq(status, COPSE_OK);
      break;
    }
    ck_assert_int_eq(status, COPSE_NOMEM);
    ck_assert_str_eq(err.text, "out of memory");
  }
  ck_assert_int_gt(failures, 15);
  free(bytes);
  pb_free(plan);
}
END_TEST

START_TEST(an_encoding_without_memory_is_reported) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 4, -1, PB_OPTIONS_DEFAULT);
  char *bytes;
  size_t size;
  until_failure = 0;
  copse_status status = copse_plan_encode(plan, &bytes, &size, &err);
  until_failure = -1;
  ck_assert_int_eq(status, COPSE_NOMEM);
  ck_assert_ptr_null(bytes);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/out_of_memory");
  TCase *tc = tcase_create("out_of_memory");
  tcase_add_test(tc, every_failing_allocation_is_reported_and_nothing_leaks);
  tcase_add_test(tc, an_encoding_without_memory_is_reported);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
