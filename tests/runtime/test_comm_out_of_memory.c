/*
 * Every allocation in a communicator's life fails once: each failure is reported, and nothing is
 * kept. Under the sanitizers, which don't let malloc be replaced, the test is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/comm_support.h"
#include "support/failing_malloc.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define N 3
#define N_FILES 2
static float data[N][8];
static char folder[] = "/tmp/copse-comm-memory-XXXXXX";

static copse_status sum_in_group(copse_comm **comms) {
  (void)copse_group_start();
  for (int r = 0; r < N; r++) {
    copse_status queued =
        copse_all_reduce(data[r], data[r], 8, COPSE_FLOAT, COPSE_SUM, comms[r], NULL);
    (void)queued; /* the group's end reports it */
  }
  return copse_group_end();
}

static copse_status whole_life(const copse_plan *plan) {
  copse_comm *comms[N];
  void *handle;
  copse_status status;
  COPSE_TRY(copse_comm_init_all(comms, N, NULL));
  COPSE_TRY(copse_comm_add_plan(comms[0], plan));
  COPSE_TRY(copse_comm_load_plans(comms[0], folder, NULL));
  COPSE_TRY(copse_comm_register(comms[1], data, sizeof data, &handle));
  COPSE_TRY(sum_in_group(comms));
out:
  for (int r = 0; r < N; r++) (void)copse_comm_destroy(comms[r]);
  return status;
}

START_TEST(every_failing_allocation_is_reported_and_nothing_leaks) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  char path[128], command[128];
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, N, -1, PB_OPTIONS_DEFAULT);
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int i = 0; i < N_FILES; i++) {
    snprintf(path, sizeof path, "%s/%d.plan", folder, i);
    COMM_OK(copse_plan_write(plan, path));
  }
  int failures = 0, unbuffered = 0;
  for (;; failures++) {
    long before = live;
    until_failure = failures;
    copse_status status = whole_life(plan);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert_int_eq(live, before);
    if (!reached) {
      ck_assert_int_eq(status, COPSE_OK);
      break;
    }
    /* libc's own while it opens folder and files are errors of reading; without the buffer of a
     * file it reads unbuffered */
    if (status == COPSE_OK) unbuffered++;
    ck_assert_msg(status == COPSE_NOMEM || status == COPSE_IO || unbuffered <= N_FILES,
                  "allocation %d: %s (%s)", failures, copse_status_string(status),
                  copse_last_error());
  }
  ck_assert_int_gt(failures, 40);
  pb_free(plan);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/comm_out_of_memory");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, every_failing_allocation_is_reported_and_nothing_leaks);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
