/* What ranks tell each other, and that all conclude the same. */
#include "dropin/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "nccl/nccl_support.h"

static struct copse_nccl_record all[N], mine;
static char why[160];

static enum copse_nccl_way judge(void) {
  *why = '\0';
  return copse_nccl_way_of(all, N, why, sizeof why);
}

static void setup(void) {
  struct copse_err err = COPSE_ERR_INIT;
  nccl_setup();
  for (int r = 0; r < N; r++) {
    copse_nccl_record_fill(&all[r], nccl_plan_folder(), N, r, &err);
    ck_assert_msg(err.status == COPSE_OK, "%s", err.text);
    all[r].process[1] += (uint64_t)r;
  }
}

static void fill(int n_ranks) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_nccl_record_fill(&mine, nccl_plan_folder(), n_ranks, 0, &err);
  ck_assert_msg(err.status == COPSE_OK, "%s", err.text);
}

static void write_file(const char *name, const char *text) {
  char path[128];
  struct copse_err err = COPSE_ERR_INIT;
  snprintf(path, sizeof path, "%s/%s", nccl_plan_folder(), name);
  ASSERT_OK(copse_file_write(path, text, strlen(text), &err), &err);
}

/* ---- conclusions ------------------------------------------------------------------------- */

START_TEST(a_process_each) { ck_assert_int_eq(judge(), COPSE_NCCL_PROCESS_EACH); }
END_TEST

START_TEST(all_in_one_process) {
  for (int r = 0; r < N; r++) all[r].process[1] = 1;
  ck_assert_int_eq(judge(), COPSE_NCCL_ONE_PROCESS);
}
END_TEST

static const char *const reasons[] = {
    "some have more than one rank",
    "ranks 0 and 2 have different versions",
    "rank 2 has no COPSE_PLAN_DIR",
    "rank 2 can't read",
    "the plans in COPSE_PLAN_DIR of ranks 0 and 2 differ",
    "COPSE_NCCL_ALLTOALL of ranks 0 and 2 differs",
    "no plan for 4 ranks",
};

START_TEST(hosts_are_counted_and_may_be_several) {
  ck_assert_int_eq(copse_nccl_count_hosts(all, N), 1);
  all[2].host++;
  ck_assert_int_eq(copse_nccl_count_hosts(all, N), 2);
  all[0].host += 2;
  ck_assert_int_eq(copse_nccl_count_hosts(all, N), 3);
  ck_assert_int_eq(judge(), COPSE_NCCL_PROCESS_EACH);
}
END_TEST

START_TEST(one_odd_rank_makes_all_pass) {
  switch (_i) {
    case 0: all[2].process[1] = all[1].process[1]; break;
    case 1: all[2].version++; break;
    case 2: all[2].trouble = COPSE_NCCL_NO_FOLDER; break;
    case 3: all[2].trouble = COPSE_NCCL_UNREADABLE; break;
    case 4: all[2].folder[31] ^= 1; break;
    case 5: all[2].exchanges = 1; break;
    case 6:
      for (int r = 0; r < N; r++) all[r].n_plans = 0;
      break;
  }
  ck_assert_int_eq(judge(), COPSE_NCCL_PASS);
  ck_assert_msg(strstr(why, reasons[_i]) != NULL, "%s", why);
}
END_TEST

/* ---- this rank ----------------------------------------------------------------------------- */

START_TEST(only_plans_for_the_ranks_count) {
  fill(N);
  ck_assert_uint_eq(mine.n_plans, 6);
  fill(2);
  ck_assert_uint_eq(mine.n_plans, 1);
  fill(3);
  ck_assert_uint_eq(mine.n_plans, 0);
}
END_TEST

START_TEST(the_checksum_is_that_of_names_and_contents) {
  uint8_t before[32];
  fill(N);
  memcpy(before, mine.folder, 32);
  write_file("notes.txt", "not a plan");
  write_file(".hidden.plan", "not a plan");
  fill(N);
  ck_assert_mem_eq(mine.folder, before, 32);
  write_file("z.plan", "something");
  fill(N);
  ck_assert_uint_eq(mine.n_plans, 7); /* loading will say what is wrong with it */
  ck_assert_mem_ne(mine.folder, before, 32);
  memcpy(before, mine.folder, 32);
  write_file("z.plan", "something else");
  fill(N);
  ck_assert_mem_ne(mine.folder, before, 32);
}
END_TEST

START_TEST(a_missing_folder_is_told) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_nccl_record_fill(&mine, NULL, N, 0, &err);
  ck_assert_uint_eq(mine.trouble, COPSE_NCCL_NO_FOLDER);
  ck_assert_int_eq(err.status, COPSE_OK);
  copse_nccl_record_fill(&mine, "/nowhere/at/all", N, 0, &err);
  ck_assert_uint_eq(mine.trouble, COPSE_NCCL_UNREADABLE);
  ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/at/all"));
}
END_TEST

START_TEST(the_promise_of_exchanges_is_told) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  fill(N);
  ck_assert_uint_eq(mine.exchanges, 1);
  setenv("COPSE_NCCL_ALLTOALL", "0", 1);
  fill(N);
  ck_assert_uint_eq(mine.exchanges, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/record");
  TCase *tc = tcase_create("record");
  tcase_add_checked_fixture(tc, setup, nccl_teardown);
  tcase_add_test(tc, a_process_each);
  tcase_add_test(tc, all_in_one_process);
  tcase_add_test(tc, hosts_are_counted_and_may_be_several);
  tcase_add_loop_test(tc, one_odd_rank_makes_all_pass, 0, 7);
  tcase_add_test(tc, only_plans_for_the_ranks_count);
  tcase_add_test(tc, the_checksum_is_that_of_names_and_contents);
  tcase_add_test(tc, a_missing_folder_is_told);
  tcase_add_test(tc, the_promise_of_exchanges_is_told);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
