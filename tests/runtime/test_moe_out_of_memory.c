/*
 * Every allocation of making a Mixture-of-Experts layer fails once: each must be reported, and
 * what was taken before given back. Calls allocate nothing. Under the sanitizers both are skipped.
 */
#include <string.h>

#include "copse/moe.h"
#include "support/failing_malloc.h"
#include "support/support.h"

static const copse_moe_config config = {.n_experts = 4,
                                        .top_k = 2,
                                        .max_tokens = 8,
                                        .capacity = COPSE_MOE_EXACT,
                                        .row = {4, COPSE_FLOAT}};

START_TEST(every_failing_allocation_is_reported_and_nothing_leaks) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  copse_comm *comm;
  copse_moe *moe;
  ck_assert_int_eq(copse_comm_init_all(&comm, 1, NULL), COPSE_OK);
  int failures = 0;
  for (;; failures++) {
    long before = live;
    until_failure = failures;
    copse_status status = copse_moe_create(comm, &config, &moe);
    until_failure = -1;
    if (status == COPSE_OK) break;
    ck_assert_int_eq(status, COPSE_NOMEM);
    ck_assert_str_eq(copse_last_error(), "out of memory");
    ck_assert_ptr_null(moe);
    ck_assert_int_eq(live, before);
  }
  ck_assert_int_ge(failures, 2);
  copse_moe_free(moe);
  ck_assert_int_eq(copse_comm_destroy(comm), COPSE_OK);
}
END_TEST

START_TEST(dispatching_and_combining_allocate_nothing) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  copse_comm *comm;
  copse_moe *moe;
  float tokens[8 * 4] = {0}, rows[16 * 4];
  int32_t ids[16] = {0};
  const copse_moe_dispatch_args dispatch = {
      .tokens = tokens, .n_tokens = 8, .expert_ids = ids, .rows = rows};
  const copse_moe_combine_args combine = {.rows = rows, .tokens = tokens};
  ck_assert_int_eq(copse_comm_init_all(&comm, 1, NULL), COPSE_OK);
  ck_assert_int_eq(copse_moe_create(comm, &config, &moe), COPSE_OK);
  until_failure = 0;
  copse_status dispatched = copse_moe_dispatch(moe, &dispatch);
  copse_status combined = copse_moe_combine(moe, &combine);
  until_failure = -1;
  ck_assert_int_eq(dispatched, COPSE_OK);
  ck_assert_int_eq(combined, COPSE_OK);
  copse_moe_free(moe);
  ck_assert_int_eq(copse_comm_destroy(comm), COPSE_OK);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/moe_out_of_memory");
  TCase *tc = tcase_create("moe_out_of_memory");
  tcase_add_test(tc, every_failing_allocation_is_reported_and_nothing_leaks);
  tcase_add_test(tc, dispatching_and_combining_allocate_nothing);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
