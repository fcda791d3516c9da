/*
 * What `copse topo` draws as text, ids and patterns of ids, ids that are proposed; what is said of
 * a schedule: the bottleneck in words, both bandwidths.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

#define SAYS(part)                                                                         \
  ck_assert_msg(strstr(result.out, part) != NULL, "no \"%s\" in:\n%s%s", part, result.out, \
                result.err)
#define SAYS_NOT(part) \
  ck_assert_msg(strstr(result.out, part) == NULL, "\"%s\" in:\n%s", part, result.out)

static int count(const char *text, const char *part) {
  int n = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) n++;
  return n;
}

/* ---- the drawing ----------------------------------------------------------------------------- */

START_TEST(a_host_is_drawn_with_its_switch_gpus_and_nics) {
  run("@ topo --synthetic 'hosts:1 gpus:2@300 nics:2@25 flat'");
  ck_assert_int_eq(result.status, 0);
  SAYS("NVSwitch ");
  SAYS("2 GPUs at 300 GB/s\n");
  SAYS("  GPU 0 ");
  SAYS("  GPU 1 ");
  ck_assert_int_eq(count(result.out, "25 GB/s\n"), 3); /* two NICs, one switch; the total is more */
}
END_TEST

START_TEST(stated_routes_are_counted_that_are_left) {
  static const char echo[] =
      "echo '{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"}, "
      "{\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"s\", \"type\": \"switch\"}], \"links\": ["
      "{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1}, {\"src\": \"a\", \"dst\": \"s\", "
      "\"bandwidth\": 2}, {\"src\": \"s\", \"dst\": \"b\", \"bandwidth\": 2}], "
      "\"routes\": [{\"path\": [\"a\", \"s\", \"b\"]}]}'";
  run("%s | @ topo -", echo);
  SAYS("routes: 2 stated, from GPU to GPU\n");
  run("%s | @ topo - --derate 'a>s=0.5'", echo);
  SAYS("routes: 2 stated");
  run("%s | @ topo - --down 'a>s'", echo);
  ck_assert_int_eq(result.status, 0);
  SAYS_NOT("routes");
}
END_TEST

START_TEST(hosts_that_are_alike_are_drawn_once) {
  run("@ topo --synthetic 'hosts:32 gpus:8@300 nics:8@25 rails'");
  SAYS("hosts x 32: h0 (ranks 0-7) .. h31 (ranks 248-255)\n");
  ck_assert_int_eq(count(result.out, "  GPU "), 8);
  ck_assert_int_eq(count(result.out, "  NIC "), 8);
  SAYS("fabric\n  switches x 8: ");
  SAYS("32 NICs at 25 GB/s\n");
  run("@ topo --synthetic 'hosts:4 gpus:2@300 nics:2@25 rails' --derate h2.gpu1=0.5");
  SAYS("hosts x 3: h0 (ranks 0-1) .. h3 (ranks 6-7)\n");
  SAYS("host h2 (ranks 4-5)\n");
  SAYS("at 150 GB/s");
}
END_TEST

START_TEST(a_dump_is_drawn_as_a_tree_with_bus_ids) {
  run("@ topo topologies/dgx-a100.xml --links all");
  SAYS("\n  CPU 3 "); /* one of four */
  SAYS("\n        GPU 0 0000:07:00.0 ");
  SAYS("sm_80; 24 GB/s; NVSwitch nvswitch at 240 GB/s\n");
  SAYS("\n        NIC 0000:0c:00.0 ");
  SAYS("\n          port mlx5_0 ");
  ck_assert_int_eq(count(result.out, " GPU "), 8);
}
END_TEST

START_TEST(links_between_gpus_are_named_and_one_way_links_told) {
  run("@ topo topologies/dgx1-v100.json");
  SAYS("GPU 1, GPU 2 at 25 GB/s; GPU 3, GPU 4 at 50 GB/s\n");
  copse_test_write("t.json",
                   "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": "
                   "\"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}],\n \"links\": [{\"src\": \"a\", "
                   "\"dst\": \"b\", \"bandwidth\": 10, \"duplex\": false},\n  {\"src\": \"b\", "
                   "\"dst\": \"a\", \"bandwidth\": 7, \"duplex\": false}]}");
  run("@ topo %%/t.json");
  SAYS("  GPU 0 a                         GPU 1 at 10 GB/s out, 7 in\n");
  SAYS("  GPU 1 b                         GPU 0 at 7 GB/s out, 10 in\n");
}
END_TEST

START_TEST(a_drawing_of_thousands_of_nodes_ends) {
  run("@ topo --synthetic 'full:400@25'");
  ck_assert_int_eq(result.status, 0);
  SAYS("399 GPUs at 25 GB/s");
  SAYS(".. and more: copse topo TOPO --ids \"*\"\n");
  ck_assert_int_lt(count(result.out, "\n"), 120);
}
END_TEST

START_TEST(the_matrix_says_what_lies_between) {
  run("@ topo topologies/pcie-8-2s.json --matrix");
  SAYS("GPU 0                          X    31.5 PIX    31.5 PHB    31.5 PHB    31.5 SYS");
  SAYS("\nNIC nic3 ");
  run("@ topo topologies/dgx1-v100.json --matrix");
  SAYS(
      "GPU 0                          X   25 direct   25 direct   50 direct   50 direct           "
      "-");
  run("@ topo topologies/a100-x2.json --matrix");
  SAYS("\nGPU 7                    300 NVS");
  ck_assert_int_eq(count(result.out, "\nGPU "), 8);
}
END_TEST

/* From a NIC to the GPUs of another one of its host there is no way but through the fabric. */
START_TEST(the_matrix_stays_inside_the_host) {
  run("@ topo a100-x2 --matrix");
  SAYS("NIC nic0               25 direct           -           -");
  run("@ topo a100-x2 --matrix --json | grep -c '\"net\"'");
  ck_assert_str_eq(result.out, "0\n");
  run("@ topo perlmutter-x16 --matrix");
  ck_assert_ptr_null(strstr(result.out, " net "));
}
END_TEST

START_TEST(the_matrix_is_json_too) {
  run("@ topo a100-x2 --matrix --json");
  cJSON *json = cJSON_Parse(result.out);
  const cJSON *rows = cJSON_GetObjectItem(json, "rows");
  ck_assert_str_eq(cJSON_GetObjectItem(json, "host")->valuestring, "h0");
  ck_assert_int_eq(cJSON_GetObjectItem(json, "gpus")->valueint, 8);
  ck_assert_int_eq(cJSON_GetArraySize(rows), 16);
  const cJSON *nic = cJSON_GetArrayItem(rows, 8);
  ck_assert_str_eq(cJSON_GetObjectItem(nic, "id")->valuestring, "h0.nic0");
  const cJSON *GBps = cJSON_GetObjectItem(nic, "GBps");
  const cJSON *through = cJSON_GetObjectItem(nic, "through");
  ck_assert(cJSON_GetArrayItem(GBps, 0)->valuedouble == 25);
  ck_assert_str_eq(cJSON_GetArrayItem(through, 0)->valuestring, "direct");
  ck_assert(cJSON_IsNull(cJSON_GetArrayItem(GBps, 7)) == cJSON_IsNull(cJSON_GetArrayItem(through, 7)));
  const cJSON *gpu = cJSON_GetArrayItem(rows, 1);
  ck_assert(cJSON_IsNull(cJSON_GetArrayItem(cJSON_GetObjectItem(gpu, "GBps"), 1)));
  cJSON_Delete(json);
}
END_TEST

START_TEST(one_bandwidth_is_said_once_and_loads_in_words) {
  run("@ topo --synthetic 'ring:4@100'");
  SAYS("GB/s in all, each 100 GB/s\n");
  run("@ topo a100-x2");
  SAYS("GB/s in all, each from 25 to 300 GB/s\n");
  run("@ solve a100-x2 -c allgather -o %%/l.json; @ verify %%/l.json -t a100-x2");
  SAYS("most loaded: GPU 0 of h0 -> h0.nvswitch (GPU's NVLinks, 300 GB/s) and others alike\n");
}
END_TEST

START_TEST(json_is_the_summary_alone) {
  run("@ topo topologies/a100-x2.json --json");
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_ptr_nonnull(json);
  ck_assert_int_eq(cJSON_GetObjectItem(json, "ranks")->valueint, 16);
  cJSON_Delete(json);
  SAYS_NOT("NVSwitch");
}
END_TEST

/* ---- ids ------------------------------------------------------------------------------------- */

static const struct {
  const char *pattern;
  int n;
} patterns[] = {{"net@mlx5_*", 8}, {"mlx5_?", 8}, {"mlx5_0", 1},   {"nic", 8},  {"gpu", 8},
                {"gpu@*:0f:*", 1}, {"*", 33},     {"nvswitch", 1}, {"cpu@*", 0}};

START_TEST(patterns_match_what_dumps_contain) {
  run("@ topo topologies/dgx-a100.xml --ids '%s'", patterns[_i].pattern);
  ck_assert_int_eq(result.status, patterns[_i].n > 0 ? 0 : 2);
  ck_assert_msg(count(result.out, "\n") == patterns[_i].n, "%s: %s", patterns[_i].pattern,
                result.out);
}
END_TEST

START_TEST(ids_of_a_cluster_match_with_and_without_the_host) {
  run("@ topo topologies/a100-x2.json --ids 'nic[0-3]' --json");
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_ptr_nonnull(json);
  ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "ids")), 8);
  cJSON_Delete(json);
  run("@ topo topologies/a100-x2.json --ids 'h1.gpu*'");
  ck_assert_int_eq(count(result.out, "\n"), 8);
  SAYS("h1.gpu7                          gpu, rank 15\n");
}
END_TEST

/* --down and --ranks take what --ids lists. */
START_TEST(a_pattern_takes_down_all_that_it_lists) {
  run("@ topo topologies/a100-x2.json --down 'h1.*' --json");
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_ptr_nonnull(json);
  ck_assert_int_eq(cJSON_GetObjectItem(json, "ranks")->valueint, 8);
  cJSON_Delete(json);
  run("@ topo topologies/a100-x2.json --down 'nic[0-3]' --ids nic");
  ck_assert_int_eq(count(result.out, "\n"), 8);
  run("@ topo topologies/a100-x2.json --ranks 'h0.gpu[0-3],15' --ids gpu");
  ck_assert_int_eq(count(result.out, "\n"), 5);
  SAYS("h1.gpu7                          gpu, rank 4\n");
}
END_TEST

static const char *const near_cases[][2] = {
    {"topo topologies/dgx-h100.json --down gpu9", "no node \"gpu9\""},
    {"topo topologies/dgx-h100.json --down 'GPU 3'", "did you mean \"gpu3\"?"},
    {"topo topologies/dgx-h100.json --down 'gpu3>nvswich'", "did you mean \"nvswitch\"?"},
    {"topo topologies/dgx-h100.json --derate nvswtch=0.5", "did you mean \"nvswitch\"?"},
    {"topo topologies/dgx-h100.json --ranks gpu0,gup1", "did you mean \"gpu1\"?"},
    {"topo topologies/dgx-h100.json --ranks 'x*'", "no GPU's id matches \"x*\""},
    {"topo topologies/dgx-a100.xml --down mlx5_0", "did you mean \"net@mlx5_0\"?"},
    {"topo topologies/dgx-a100.xml --down elephant", "--ids \"*\"' lists the ids"},
    {"topo topologies/dgx-h100.json --ids nicc0", "did you mean \"nic0\"?"},
    {"solve topologies/dgx-h100.json -c broadcast --root gpu9", "no GPU \"gpu9\""},
    {"solve topologies/dgx-a100.xml -c broadcast --root mlx5_0", "no GPU \"mlx5_0\""},
    {"topo topologies/dgx-h100.json --ids nic --draw t.svg", "--ids lists ids"},
    {"topo --list --matrix", "--list takes no topology"},
    {"topo --list -o list.txt", "--list takes no topology"},
    {"topo --list a100-x2", "--list takes no topology"},
};

START_TEST(ids_that_are_near_are_proposed) {
  copse_test_all_refused(near_cases, sizeof near_cases / sizeof *near_cases);
}
END_TEST

START_TEST(a_root_may_be_named_by_its_id) {
  char *by_rank;
  run("@ solve topologies/a100-x2.json -c broadcast --root 9 --bound-only --json | grep cut");
  by_rank = strdup(result.out);
  run("@ solve topologies/a100-x2.json -c broadcast --root h1.gpu1 --bound-only --json | grep cut");
  ck_assert_int_eq(result.status, 0);
  ck_assert_str_eq(result.out, by_rank);
  free(by_rank);
}
END_TEST

/* ---- what is said of a schedule -------------------------------------------------------------- */

/* Seven of eight hosts' data go into a host over its NICs: 7/8 M over 400 GB/s. */
START_TEST(bottlenecks_are_said_in_words_of_the_small_side) {
  run("@ solve topologies/h100-x8-clos7.json -c allgather --bound-only");
  SAYS("bottleneck: into host h0: 8 NICs of 50 GB/s (400 GB/s)\n");
  run("@ solve topologies/h100-x8-clos7.json -c reduce_scatter --bound-only");
  SAYS("bottleneck: out of host h0: 8 NICs of 50 GB/s (400 GB/s)\n");
  run("@ solve topologies/a100-x2.json -c allgather --bound-only");
  SAYS("bottleneck: into GPU 0 of h0: 1 GPU's NVLinks of 300 GB/s, 1 NIC of 25 GB/s (325 GB/s)\n");
  run("@ solve topologies/a100-x2.json -c alltoall --bound-only");
  SAYS("bottleneck: h0.gpu0 -> h0.nic0 (NIC, 25 GB/s) and 15 links like it");
}
END_TEST

/* 15/16 M over 325 GB/s: 3/1040 s/GB; a bus bandwidth of 325 GB/s. */
START_TEST(both_bandwidths_are_told_and_fractions_on_demand) {
  run("@ solve topologies/a100-x2.json -c allgather -o %%/s.json");
  SAYS("algbw 346.667 GB/s, busbw 325 GB/s (0.00288462 s/GB)\n");
  SAYS_NOT("1040");
  run("@ verify %%/s.json -t topologies/a100-x2.json");
  SAYS("algbw 346.667 GB/s, busbw 325 GB/s (0.00288462 s/GB), bound 0.00288462 s/GB: optimal\n");
  run("@ verify %%/s.json -t topologies/a100-x2.json --exact");
  SAYS("algbw 346.667 GB/s, busbw 325 GB/s (3/1040 s/GB), bound 3/1040 s/GB: optimal\n");
  run("@ simulate %%/s.json -t topologies/a100-x2.json -e 1M");
  SAYS("# copse      algbw 346.667 GB/s, busbw 325 GB/s (0.00288462 s/GB) at most\n");
  run("@ solve topologies/a100-x2.json -c allgather --bound-only --json");
  SAYS("\"time_per_GB\": \"3/1040\"");
}
END_TEST

int main(void) {
  Suite *s = suite_create("cli/topo");
  TCase *tc = tcase_create("topo");
  copse_test_folder();
  tcase_add_test(tc, a_host_is_drawn_with_its_switch_gpus_and_nics);
  tcase_add_test(tc, stated_routes_are_counted_that_are_left);
  tcase_add_test(tc, hosts_that_are_alike_are_drawn_once);
  tcase_add_test(tc, a_dump_is_drawn_as_a_tree_with_bus_ids);
  tcase_add_test(tc, links_between_gpus_are_named_and_one_way_links_told);
  tcase_add_test(tc, a_drawing_of_thousands_of_nodes_ends);
  tcase_add_test(tc, the_matrix_says_what_lies_between);
  tcase_add_test(tc, the_matrix_stays_inside_the_host);
  tcase_add_test(tc, the_matrix_is_json_too);
  tcase_add_test(tc, one_bandwidth_is_said_once_and_loads_in_words);
  tcase_add_test(tc, json_is_the_summary_alone);
  tcase_add_loop_test(tc, patterns_match_what_dumps_contain, 0,
                      (int)(sizeof patterns / sizeof *patterns));
  tcase_add_test(tc, ids_of_a_cluster_match_with_and_without_the_host);
  tcase_add_test(tc, a_pattern_takes_down_all_that_it_lists);
  tcase_add_test(tc, ids_that_are_near_are_proposed);
  tcase_add_test(tc, a_root_may_be_named_by_its_id);
  tcase_add_test(tc, bottlenecks_are_said_in_words_of_the_small_side);
  tcase_add_test(tc, both_bandwidths_are_told_and_fractions_on_demand);
  suite_add_tcase(s, tc);
  return copse_test_run(s);
}
