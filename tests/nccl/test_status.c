/* copse's errors in NCCL's words. */
#include "dropin/comms.h"

#include <string.h>

#include "nccl/nccl_support.h"

static const struct {
  copse_status status;
  ncclResult_t result;
} pairs[] = {
    {COPSE_OK, ncclSuccess},
    {COPSE_REFUTED, ncclInvalidUsage},
    {COPSE_INVALID, ncclInvalidArgument},
    {COPSE_BAD_INPUT, ncclSystemError},
    {COPSE_IO, ncclSystemError},
    {COPSE_INFEASIBLE, ncclInternalError},
    {COPSE_OVERFLOW, ncclInternalError},
    {COPSE_NOMEM, ncclSystemError},
    {COPSE_UNSUPPORTED, ncclInvalidUsage},
    {COPSE_INTERNAL, ncclInternalError},
    {COPSE_DEVICE, ncclUnhandledCudaError},
    {COPSE_TIMEOUT, ncclRemoteError},
    {COPSE_ABORTED, ncclRemoteError},
    {(copse_status)99, ncclInternalError},
};

START_TEST(every_status_has_a_result) {
  ck_assert_int_eq(copse_nccl_result(pairs[_i].status), pairs[_i].result);
}
END_TEST

START_TEST(the_text_of_a_failure_comes_before_that_of_nccl) {
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert_str_eq(copse_nccl_last_error("NCCL's"), "NCCL's");
  ck_assert_int_eq(copse_nccl_failed(COPSE_OK), ncclSuccess);
  ck_assert_str_eq(copse_nccl_last_error("NCCL's"), "NCCL's");
  copse_status status =
      copse_publish_error((copse_fail(&err, COPSE_TIMEOUT, "rank 3 does not come"), &err));
  ck_assert_int_eq(copse_nccl_failed(status), ncclRemoteError);
  ck_assert_str_eq(copse_nccl_last_error("NCCL's"), "copse: rank 3 does not come\nNCCL's");
  ck_assert_str_eq(copse_nccl_last_error(NULL), "copse: rank 3 does not come\n");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/status");
  TCase *tc = tcase_create("status");
  tcase_add_loop_test(tc, every_status_has_a_result, 0, (int)(sizeof pairs / sizeof *pairs));
  tcase_add_test(tc, the_text_of_a_failure_comes_before_that_of_nccl);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
