/* Groups of ranks that share a fabric, as users ask for them. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

/* Two hosts of four GPUs, a NIC each, on rails: small enough to know the answers. */
#define FABRIC "--synthetic 'hosts:2 gpus:4@300 nics:4@25 rails'"
#define TENSOR "0-3\n4-7\n"
#define DATA "0,4\n1,5\n2,6\n3,7\n"

static cJSON *parsed(void) {
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_msg(json != NULL, "no JSON: %s%s", result.out, result.err);
  return json;
}

static void expect_time(const char *list, const char *options, const char *time) {
  copse_test_write("groups.txt", list);
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --groups %%/groups.txt %s --json", options),
                   0);
  cJSON *json = parsed();
  ck_assert_str_eq(cJSON_GetObjectItem(json, "time_per_GB")->valuestring, time);
  ck_assert_str_eq(cJSON_GetObjectItem(json, "bound_time_per_GB")->valuestring, time);
  cJSON_Delete(json);
}

/* Data groups alone: a NIC takes in half of M, 1/50. Tensor groups alone: 3/4 of M into a GPU, by
 * the switch at 300 and the NIC's 25 to spare where GPUs may relay. Together with what is faster
 * the slower decide here. A group twice has half of the link each. An alltoall of all sends half of
 * M to the other host, as every data group does. */
START_TEST(times_are_those_worked_out_by_hand) {
  expect_time(DATA, "--others exclude", "1/50");
  expect_time(TENSOR, "--others exclude", "1/400");
  expect_time(TENSOR DATA, "--others exclude", "1/50");
  expect_time("0,4\n0,4\n", "--others exclude", "1/25");
  expect_time("0,4\n", "--others relay", "1/200");
  expect_time("allreduce 0,4\n", "--others exclude", "1/25");
  expect_time("0,4\nreduce_scatter 4,0\n", "--others exclude", "1/25");
  expect_time("alltoall 0-7\n", "--others exclude", "1/50");
  expect_time(DATA "alltoall 0-7\n", "--others exclude", "1/25");
}
END_TEST

START_TEST(each_schedule_goes_through_the_whole_tool) {
  copse_test_write("groups.txt", TENSOR DATA "alltoall 0-7\n");
  ck_assert_int_eq(
      run("@ solve " FABRIC " -c allgather --groups %%/groups.txt --others exclude -o %%/set"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "7 groups of "));
  ck_assert_ptr_nonnull(strstr(result.out, "optimal"));
  ck_assert_int_eq(run("@ verify %%/set/index.json " FABRIC), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "7 groups of "));
  for (int g = 0; g < 7; g++) {
    ck_assert_int_eq(run("@ verify %%/set/group-%d.json " FABRIC, g), 0);
    ck_assert_int_eq(run("@ lower %%/set/group-%d.json --to plan -o %%/g.plan", g), 0);
    ck_assert_int_eq(run("@ check %%/g.plan"), 0);
    ck_assert_int_eq(run("@ run %%/g.plan -b 1K -e 4K"), 0);
  }
  ck_assert_int_eq(run("@ verify %%/set/index.json " FABRIC " --json"), 0);
  cJSON *json = parsed();
  ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "groups_optimal")));
  ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "same_topology")));
  cJSON_Delete(json);
}
END_TEST

/* Two boxes of A100 with tensor and data groups, where every GPU relays: the NICs decide, 25 GB/s
 * for half of each data group's M (both ways for an allreduce). */
START_TEST(data_and_tensor_groups_share_two_boxes) {
  static const char *const collectives[] = {"allreduce", "allgather"}, *const times[] = {"1/25",
                                                                                         "1/50"};
  copse_test_write("boxes.txt", "0-7\n8-15\n0,8\n1,9\n2,10\n3,11\n4,12\n5,13\n6,14\n7,15\n");
  for (int i = 0; i < 2; i++)
    for (int symmetry = 0; symmetry < 2; symmetry++) {
      ck_assert_int_eq(run("@ solve a100-x2 -c %s --groups %%/boxes.txt --others relay %s -o "
                           "%%/boxes --json",
                           collectives[i], symmetry ? "" : "--no-symmetry"),
                       0);
      cJSON *json = parsed();
      ck_assert_str_eq(cJSON_GetObjectItem(json, "time_per_GB")->valuestring, times[i]);
      ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "groups_optimal")));
      cJSON_Delete(json);
      ck_assert_int_eq(run("@ verify %%/boxes/index.json -t a100-x2"), 0);
      ck_assert_ptr_nonnull(strstr(result.out, "optimal among all"));
    }
  ck_assert_int_eq(run("@ lower %%/boxes/group-9.json --to plan -o %%/g.plan"), 0);
  ck_assert_int_eq(run("@ check %%/g.plan"), 0);
}
END_TEST

/* 64 GPUs with tensor, data and expert parallel groups at once. Into a NIC of 25 go 7/8 of a data
 * group's M and 1/2 of an expert group's. */
START_TEST(tensor_data_and_expert_groups_share_eight_boxes) {
  char list[2000];
  int n = 0;
  for (int h = 0; h < 8; h++)
    n += snprintf(list + n, sizeof list - (size_t)n, "%d-%d\n", 8 * h, 8 * h + 7);
  for (int i = 0; i < 8; i++)
    for (int h = 0; h < 8; h++)
      n += snprintf(list + n, sizeof list - (size_t)n, "%d%c", 8 * h + i, h == 7 ? '\n' : ',');
  for (int e = 0; e < 4; e++)
    n += snprintf(list + n, sizeof list - (size_t)n, "alltoall %d-%d\n", 16 * e, 16 * e + 15);
  copse_test_write("job.txt", list);
  ck_assert_int_eq(run("@ solve --synthetic 'hosts:8 gpus:8@300 nics:8@25 rails' -c allgather "
                       "--groups %%/job.txt --others relay -o %%/job --json"),
                   0);
  cJSON *json = parsed();
  ck_assert_str_eq(cJSON_GetObjectItem(json, "time_per_GB")->valuestring, "11/200");
  cJSON_Delete(json);
  ck_assert_int_eq(
      run("@ verify %%/job/index.json --synthetic 'hosts:8 gpus:8@300 nics:8@25 rails'"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "optimal among all"));
}
END_TEST

/* A schedule replaced by one that is right for its group, but not made to share. */
START_TEST(a_schedule_that_takes_too_much_is_found) {
  copse_test_write("groups.txt", "0,4\n0,4\n");
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --groups %%/groups.txt --others relay -o "
                       "%%/two"),
                   0);
  ck_assert_int_eq(run("@ verify %%/two/index.json " FABRIC), 0);
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --ranks 0,4 --others exclude -o "
                       "%%/two/group-0.json"),
                   0);
  ck_assert_int_eq(run("@ verify %%/two/index.json " FABRIC " --json"), 1);
  cJSON *json = parsed();
  ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(json, "verified")));
  cJSON_Delete(json);
}
END_TEST

START_TEST(broken_parts_are_left_out) {
  copse_test_write("groups.txt", DATA);
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --groups %%/groups.txt --others exclude "
                       "--derate h0.nic1=0.5 -o %%/slow --json"),
                   0);
  cJSON *json = parsed();
  ck_assert_str_eq(cJSON_GetObjectItem(json, "time_per_GB")->valuestring, "1/25");
  cJSON_Delete(json);
  ck_assert_int_eq(run("@ verify %%/slow/index.json " FABRIC " --derate h0.nic1=0.5"), 0);
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --groups %%/groups.txt --down h1.gpu2"), 2);
  ck_assert_ptr_nonnull(strstr(result.err, "groups.txt:3: 'h1.gpu2' can't be down"));
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather --groups %%/groups.txt --others exclude "
                       "--down h0.nic1"),
                   3);
  ck_assert_ptr_nonnull(strstr(result.err, "groups.txt:2: "));
}
END_TEST

START_TEST(what_makes_no_sense_is_refused) {
  static const struct {
    int status;
    const char *options, *part;
  } cases[] = {
      {2, "-c allgather --groups %/none.txt", "none.txt"},
      {2, "-c allgather --groups %/bad.txt", "bad.txt:2: "},
      {2, "-c alltoall --no-forward --groups %/groups.txt", "--no-forward"},
      {2, "-c allgather --groups %/groups.txt -o -", "folder"},
      {2, "-c allgather --groups %/groups.txt --ranks 0-3", "leave out --ranks"},
      {2, "-c allgather --groups %/groups.txt --k 2", "--k"},
      {2, "-c allgather --groups %/groups.txt --bound-only -o %/x", "leave out -o"},
      {2, "--groups %/groups.txt", "collective"},
      {2, "-c allgather --others relay", "--ranks"},
      {2, "-c allreduce --in-network --groups %/groups.txt", "--in-network"},
      {2, "-c allgather --in-network", "--in-network is for allreduce"},
      {2, "-c allreduce --in-network --k 1", "leave out --k"},
  };
  char line[200];
  copse_test_write("groups.txt", DATA);
  copse_test_write("bad.txt", "0-3\n4-99\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(line, sizeof line, "@ solve " FABRIC " %s", cases[i].options);
    ck_assert_int_eq(run("%s", line), cases[i].status);
    copse_test_refused(cases[i].status, cases[i].part);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("groups_command");
  TCase *tc = tcase_create("groups");
  copse_test_folder();
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, times_are_those_worked_out_by_hand);
  tcase_add_test(tc, each_schedule_goes_through_the_whole_tool);
  tcase_add_test(tc, data_and_tensor_groups_share_two_boxes);
  tcase_add_test(tc, tensor_data_and_expert_groups_share_eight_boxes);
  tcase_add_test(tc, a_schedule_that_takes_too_much_is_found);
  tcase_add_test(tc, broken_parts_are_left_out);
  tcase_add_test(tc, what_makes_no_sense_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
