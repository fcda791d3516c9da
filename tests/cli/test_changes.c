/* Chosen ranks, broken parts, failures in advance and the curve over k, as users ask for them. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

static cJSON *parsed(void) {
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_msg(json != NULL, "no JSON: %s%s", result.out, result.err);
  return json;
}

static const char *text_of(const cJSON *object, const char *key) {
  const cJSON *item = cJSON_GetObjectItem(object, key);
  ck_assert_msg(cJSON_IsString(item), "no string \"%s\"", key);
  return item->valuestring;
}

static double number_of(const cJSON *object, const char *key) {
  const cJSON *item = cJSON_GetObjectItem(object, key);
  ck_assert_msg(cJSON_IsNumber(item), "no number \"%s\"", key);
  return item->valuedouble;
}

/* Two hosts of four GPUs, a NIC each, on rails: small enough to know the answers. */
#define FABRIC "--synthetic 'hosts:2 gpus:4@300 nics:4@25 rails'"

/* ---- ranks ------------------------------------------------------------------------------- */

/* One GPU of each host: with relays all four NICs carry, 1/2 M over 100 GB/s; without, one. */
START_TEST(chosen_ranks_go_through_the_whole_tool) {
  static const char *const collectives[] = {"allgather", "reduce_scatter", "allreduce", "alltoall"};
  const char *c = collectives[_i];
  const char *with[] = {"1/200", "1/200", "1/100", "1/200"};
  const char *without[] = {"1/50", "1/50", "1/25", "1/50"};
  for (int exclude = 0; exclude < 2; exclude++) {
    ck_assert_int_eq(
        run("@ solve " FABRIC " -c %s --ranks h1.gpu0,0 --others %s -o %%/s.json --json", c,
            exclude ? "exclude" : "relay"),
        0);
    cJSON *json = parsed();
    ck_assert_str_eq(text_of(json, "time_per_GB"), exclude ? without[_i] : with[_i]);
    ck_assert_int_eq((int)number_of(json, "nranks"), 2);
    cJSON_Delete(json);
    char *file = copse_test_read("s.json");
    ck_assert_ptr_nonnull(strstr(file, "\"ranks\": [\"h1.gpu0\",\"h0.gpu0\"]"));
    ck_assert((strstr(file, "\"others\": \"exclude\"") != NULL) == exclude);
    free(file);
    ck_assert_int_eq(run("@ verify %%/s.json " FABRIC " --json"), 0);
    json = parsed();
    ck_assert_int_eq((int)number_of(json, "nranks"), 2);
    ck_assert_int_eq((int)number_of(json, "gpus"), 8);
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "same_topology")));
    cJSON_Delete(json);
    ck_assert_int_eq(run("@ verify %%/s.json " FABRIC), 0);
    ck_assert_ptr_nonnull(
        strstr(result.out, exclude ? "2 of 8 GPUs, the others left out" : "the others relays"));
    ck_assert_int_eq(run("@ simulate %%/s.json " FABRIC " -b 1M -e 1M"), 0);
    ck_assert_int_eq(run("@ lower %%/s.json --to plan -o %%/s.plan && @ check %%/s.plan && "
                         "@ run %%/s.plan -b 64K -e 64K -n 1"),
                     0);
    ck_assert_ptr_nonnull(strstr(result.out, "proved for 2 ranks"));
    ck_assert_ptr_nonnull(strstr(result.out, "Out of bounds values : 0 OK"));
  }
}
END_TEST

START_TEST(a_schedule_whose_ranks_are_no_gpus_is_refuted) {
  ck_assert_int_eq(
      run("@ solve --synthetic ring:4@50 -c allgather --ranks 0,1 --others relay -o "
          "%%/s.json; sed -i 's/\\[\"gpu0\",\"gpu1\"\\]/[\"gpu0\",\"gpu7\"]/' %%/s.json"),
      0);
  ck_assert_int_eq(run("@ verify %%/s.json --synthetic ring:4@50"), 1);
}
END_TEST

START_TEST(all_ranks_in_another_order_are_a_choice_too) {
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c broadcast --root 0 --ranks 3,0-2 -o "
                       "%%/s.json && @ verify %%/s.json --synthetic ring:4@50"),
                   0);
  ck_assert_ptr_nonnull(strstr(result.out, "4 ranks, in an order of their own"));
  char *file = copse_test_read("s.json");
  ck_assert_ptr_nonnull(strstr(file, "\"ranks\": [\"gpu3\",\"gpu0\",\"gpu1\",\"gpu2\"]"));
  free(file);
}
END_TEST

START_TEST(bad_choices_are_one_line) {
  static const struct {
    int status;
    const char *options, *part;
  } cases[] = {
      {2, "--ranks 0,0", "rank 0 ('gpu0') twice"},
      {2, "--ranks 0-8", "the topology has ranks 0 to 7"},
      {2, "--ranks 3-1", "runs backwards"},
      {2, "--ranks gpu9", "is no node"},
      {2, "--ranks ''", "'--ranks' needs a value"},
      {2, "--ranks 99999999999999999999", "is no node"},
      {2, "--others relay", "--others is for --ranks"},
      {2, "--ranks 0 --others both", "must be relay or exclude"},
      {2, "--ranks 0-3 --down gpu2", "'gpu2' can't be down and one of the ranks"},
      {3, "--ranks 0,4 --others exclude", "can't be reached"},
      {2, "--down gpu8", "no node \"gpu8\""},
      {2, "--down 'gpu0>gpu4'", "no link from \"gpu0\" to \"gpu4\""},
      {2, "--derate gpu0", "--derate must be"},
      {2, "--derate gpu0=0", "above 0"},
      {2, "--derate gpu0=1.01", "at most 100%"},
      {2, "--derate gpu0=-0.05", "--derate must be"},
      {3, "--down 'gpu0>gpu1' --down 'gpu0>gpu7'", "can't be reached"},
      {2, "--pareto -o x", "--pareto makes a table"},
      {2, "--each-failure nic", "no node of type \"nic\""},
      {2, "--each-failure gpu --ranks 0-3", "moves ranks"},
      {2, "--each-failure gpu -o -", "give a folder"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run("@ solve --synthetic ring:8@50 -c allgather %s", cases[i].options);
    copse_test_refused(cases[i].status, cases[i].part);
  }
}
END_TEST

/* ---- broken parts ------------------------------------------------------------------------ */

/* The changed topology, written and solved as it is, gives the same; so does verify's. */
START_TEST(what_is_left_is_that_of_the_written_topology) {
  static const char *const changes[] = {"--down h0.nic1", "--derate 'h0.gpu0>h0.nic0=0.5'",
                                        "--down h1.gpu3 --derate h0.nic2=0.125",
                                        "--down 'rail0>h1.nic0'"};
  const char *change = changes[_i];
  ck_assert_int_eq(run("@ topo " FABRIC " %s -o %%/t.json", change), 0);
  ck_assert_int_eq(run("@ solve %%/t.json -c allgather -o %%/a.json"), 0);
  ck_assert_int_eq(run("@ solve " FABRIC " %s -c allgather -o %%/b.json --json", change), 0);
  cJSON *json = parsed();
  const cJSON *healthy = cJSON_GetObjectItem(json, "healthy");
  ck_assert_str_eq(text_of(healthy, "time_per_GB"), "1/200"); /* 4/8 M over 100 GB/s */
  double slowdown = number_of(json, "algbw_GBps") * number_of(healthy, "slowdown");
  ck_assert(fabs(slowdown - number_of(healthy, "algbw_GBps")) < 1e-6);
  cJSON_Delete(json);
  char *a = copse_test_read("a.json"), *b = copse_test_read("b.json");
  ck_assert_str_eq(a, b);
  free(a);
  free(b);
  ck_assert_int_eq(run("@ verify %%/b.json " FABRIC " %s --json", change), 0);
  json = parsed();
  ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "same_topology")));
  cJSON_Delete(json);
  ck_assert_int_eq(run("@ verify %%/b.json " FABRIC), 1); /* the healthy fabric could do better */
}
END_TEST

static double algbw_of(const char *fabric, const char *options) {
  ck_assert_msg(run("@ solve %s -c allreduce %s -o %%/s.json --json", fabric, options) == 0, "%s",
                result.err);
  cJSON *json = parsed();
  double algbw = number_of(json, "algbw_GBps");
  cJSON_Delete(json);
  return algbw;
}

/* Where unequal shares are much faster a tolerance is one to them; --k, which has equal shares,
 * says what it leaves; and so does a fabric with a marked switch, where the trees would serve as
 * well. */
START_TEST(what_unequal_shares_would_take_is_kept_to_or_told) {
  const char *fabric = "--synthetic 'hosts:3 gpus:2@300 nics:2@25 flat' --derate h0.nic0=0.5";
  double best = algbw_of(fabric, ""), equal = algbw_of(fabric, "--equal-shares");
  ck_assert(best > 1.1 * equal);
  ck_assert(algbw_of(fabric, "--tolerance 0.01") >= best / 1.01 - 1e-9);
  ck_assert(algbw_of(fabric, "--tolerance 0.5") >= best / 1.5 - 1e-9);
  ck_assert_int_eq(run("@ verify %%/s.json %s", fabric), 0);
  ck_assert(algbw_of(fabric, "--k 1") <= equal);
  ck_assert_ptr_nonnull(strstr(result.err, "--k gives equal shares; without it unequal ones take"));
  ck_assert(algbw_of(fabric, "--k 1 --equal-shares") <= equal);
  ck_assert_str_eq(result.err, "");
  ck_assert_int_eq(run("@ topo %s -o %%/plain.json", fabric), 0);
  ck_assert_int_eq(run("sed '0,/\"type\": *\"switch\"/s//&, \"multicast\": true/' %%/plain.json "
                       ">%%/marked.json"),
                   0);
  char *file = copse_test_read("marked.json");
  ck_assert_ptr_nonnull(strstr(file, "multicast"));
  free(file);
  ck_assert(fabs(algbw_of("%/marked.json", "") - best) < 1e-9 * best);
  ck_assert_int_eq(run("@ verify %%/s.json -t %%/marked.json"), 0);
  ck_assert(algbw_of("%/marked.json", "--tolerance 0.01") >= best / 1.01 - 1e-9);
  ck_assert(algbw_of("%/marked.json", "--k 1") <= equal);
  ck_assert_ptr_nonnull(strstr(result.err, "--k gives equal shares"));
}
END_TEST

/* x, which takes nothing in, is what keeps the whole fabric from having trees. */
/* The healthy cluster, which the result is compared with, has too many ranks likewise. */
START_TEST(what_was_not_tried_is_said_once) {
  ck_assert_int_eq(run("@ solve --synthetic 'hosts:257 gpus:8@300 nics:2@25 rails' -c allreduce "
                       "--down h0.nic1 --json"),
                   0);
  const char *note = strstr(result.err, "not tried: there are too many ranks");
  ck_assert_ptr_nonnull(note);
  ck_assert_ptr_null(strstr(note + 1, "not tried"));
}
END_TEST

START_TEST(a_healthy_fabric_without_trees_is_not_compared_with) {
  copse_test_write(
      "u.json",
      "{\"format\":\"copse-topology/1\",\"name\":\"u\",\"nodes\":[{\"id\":\"g0\",\"type\":\"gpu\"},"
      "{\"id\":\"g1\",\"type\":\"gpu\"},{\"id\":\"x\",\"type\":\"nic\"},{\"id\":\"s\",\"type\":"
      "\"switch\"}],\"links\":[{\"src\":\"g0\",\"dst\":\"s\",\"bandwidth\":4},{\"src\":\"g1\","
      "\"dst\":\"s\",\"bandwidth\":4},{\"src\":\"x\",\"dst\":\"s\",\"bandwidth\":5,\"duplex\":"
      "false}]}");
  ck_assert_int_eq(run("@ solve %%/u.json -c allgather"), 2);
  ck_assert_msg(run("@ solve %%/u.json -c allgather --down x -o %%/s.json") == 0, "%s", result.err);
  ck_assert_ptr_nonnull(strstr(result.out, "healthy: no comparison"));
  ck_assert_int_eq(run("@ verify %%/s.json -t %%/u.json --down x"), 0);
}
END_TEST

/* What is left is the same fabric, in name and checksum too, whatever was named first,
 * and what is down as often as it likes. */
START_TEST(the_order_of_faults_does_not_matter) {
  static const char *const orders[] = {
      "--down h0.nic1 --derate h1.nic2=0.5 --derate h1.nic2=0.25 --down h1.gpu0",
      "--derate h1.nic2=0.25 --down h1.gpu0 --derate h1.nic2=0.5 --down h0.nic1",
      "--down h0.nic1 --down h1.gpu0 --derate h1.nic2=0.5 --derate h1.nic2=0.25 --down h0.nic1"};
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(run("@ topo " FABRIC " %s -o %%/order%d.json", orders[i], i), 0);
  char *a = copse_test_read("order0.json"), *b = copse_test_read("order1.json");
  char *twice = copse_test_read("order2.json");
  ck_assert_str_eq(a, b);
  ck_assert_str_eq(a, twice);
  ck_assert_ptr_nonnull(
      strstr(a, "without h0.nic1, without h1.gpu0, with h1.nic2 at 25% and 1 more fault\""));
  free(a);
  free(b);
  free(twice);
}
END_TEST

/* 63 GPUs: trees of unequal shares, listed, would be 26 hops high. */
START_TEST(high_trees_of_few_gpus_are_repaired_instead) {
  ck_assert_int_eq(run("@ solve perlmutter-x16 -c allreduce --down h1.gpu1 -o %%/p.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "repaired: "));
  ck_assert_int_eq(run("@ verify %%/p.json -t perlmutter-x16 --down h1.gpu1"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "bound 0.0188147 s/GB: above it by 0."));
}
END_TEST

/* One tree for all 200 ranks is not found: 8 are, for the rotations of the torus alone. */
START_TEST(fewer_rotations_serve_where_all_are_too_many) {
  copse_test_write(
      "torus.json",
      "{\"format\": \"copse-cluster/1\", \"name\": \"torus\", \"host\": \"a100-host\", "
      "\"hosts\": 25, \"fabric\": {\"type\": \"torus\", \"dims\": [5, 5], "
      "\"bandwidth\": 25, \"link_bandwidth\": 100}}");
  ck_assert_int_eq(run("@ solve %%/torus.json -c allgather --compact -o %%/t.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "8 trees of base ranks"));
  ck_assert_ptr_nonnull(strstr(result.out, "under 2 symmetries: 200 trees in all"));
  ck_assert_int_eq(run("@ verify %%/t.json -t %%/torus.json"), 0);
  ck_assert_int_eq(run("@ expand %%/t.json -o %%/listed.json"), 0);
  ck_assert_int_eq(run("@ verify %%/listed.json -t %%/torus.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, ": optimal"));
}
END_TEST

/* Repaired trees are within 1 % of the optimum; who asks for less is told what they are. */
START_TEST(a_tolerance_that_is_missed_is_told) {
  const char *const fabric = "--synthetic 'hosts:12 gpus:8@300 nics:8@25 rails' --down h0.gpu1";
  ck_assert_int_eq(run("@ solve %s -c allreduce", fabric), 0);
  ck_assert_ptr_null(strstr(result.err, "--tolerance"));
  ck_assert_int_eq(run("@ solve %s -c allreduce --tolerance 0.01", fabric), 0);
  ck_assert_ptr_null(strstr(result.err, "--tolerance"));
  ck_assert_int_eq(run("@ solve %s -c allreduce --tolerance 0 --json", fabric), 0);
  cJSON *json = parsed();
  char said[120];
  ck_assert_double_gt(number_of(json, "gap_percent"), 0.001);
  snprintf(said, sizeof said, "note: --tolerance 0%%: no such trees were found; these take %.3g %% more than the bound\n",
           number_of(json, "gap_percent"));
  ck_assert_msg(strstr(result.err, said) != NULL, "no \"%s\" in %s", said, result.err);
  cJSON_Delete(json);
}
END_TEST

/* A GPU that is down is the root of no tree. */
START_TEST(trees_are_counted_as_they_are) {
  const char *const fabric = "--synthetic 'hosts:8 gpus:8@300 nics:8@25 rails' --down h0.gpu1";
  ck_assert_int_eq(run("@ solve %s -c allgather --compact -o %%/63.json", fabric), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "under 2 symmetries: 63 trees in all"));
  ck_assert_int_eq(run("@ verify %%/63.json %s", fabric), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "verified, 63 trees on 63 ranks"));
  ck_assert_int_eq(run("@ verify %%/63.json %s --json", fabric), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "\"trees\": 63, \"flows\": 0"));
  ck_assert_int_eq(run("@ expand %%/63.json -o %%/63-listed.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "became 63, "));
}
END_TEST

/* Phases that share links are within 1 % of the optimum and at most four hops higher than healthy
 * trees, of 2 hops; in turn they would take 42 and 9 % more. */
START_TEST(a_compact_allreduce_is_as_fast) {
  static const char *const of[] = {
      "--synthetic 'hosts:6 gpus:4@300 nics:4@50 rails' --down h0.nic3 --derate h0.nic0=0.5 "
      "--down h2.gpu3",
      "--synthetic 'hosts:6 gpus:8@300 nics:8@50 rails' --down h4.nic5 --down h1.nic5"};
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(run("@ solve %s -c allreduce --compact -o %%/c.json", of[i]), 0);
    const char *above = strstr(result.out, "; this is "), *most = strstr(result.out, "at most ");
    ck_assert_ptr_nonnull(above);
    ck_assert_double_le(strtod(above + strlen("; this is "), NULL), 1);
    ck_assert_ptr_nonnull(most);
    ck_assert_int_le(atoi(most + strlen("at most ")), 2 + 4);
    ck_assert_int_eq(run("@ verify %%/c.json %s", of[i]), 0);
  }
}
END_TEST

/* What is noted is in the JSON report too, and nothing where there is no note. */
START_TEST(a_report_has_the_notes) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allreduce --in-network --json"), 0);
  const char *note = strstr(result.err, "copse: note: ");
  ck_assert_ptr_nonnull(note);
  char said[200];
  snprintf(said, sizeof said, "\"notes\": [\"%.40s", note + strlen("copse: note: "));
  ck_assert_ptr_nonnull(strstr(result.out, said));
  ck_assert_int_eq(run("@ solve " FABRIC " -c allreduce --json"), 0);
  ck_assert_ptr_null(strstr(result.out, "notes"));
}
END_TEST

/* A NIC of four at half speed: 4/8 M over 87.5 GB/s; none is left: 4/8 M over 75. */
START_TEST(the_loss_is_told) {
  ck_assert_int_eq(
      run("@ solve " FABRIC " --exact -c allgather --derate h0.nic1=50$(printf '\\045')"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "algbw 175 GB/s, busbw 153.125 GB/s (1/175 s/GB)"));
  ck_assert_ptr_nonnull(strstr(result.out, "what is left takes 1.143 times as long"));
  ck_assert_int_eq(run("@ solve " FABRIC " -c allreduce --down h0.nic1"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "algbw 75 GB/s, busbw 131.25 GB/s (0.0133333 s/GB)"));
  ck_assert_ptr_nonnull(
      strstr(result.out, "healthy: algbw 100 GB/s, busbw 175 GB/s (0.01 s/GB) on 8 ranks"));
}
END_TEST

/* A link whose directions differ leaves the relay behind it unbalanced: refused by name. */
START_TEST(an_unbalanced_rest_is_refused_by_name) {
  copse_test_write(
      "uneven.json",
      "{\"format\": \"copse-topology/1\", \"name\": \"u\", \"nodes\": [{\"id\": \"a\", \"type\": "
      "\"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"sw\", \"type\": \"switch\"}],"
      "\"links\": [{\"src\": \"a\", \"dst\": \"sw\", \"bandwidth\": 10, \"duplex\": false},"
      "{\"src\": \"sw\", \"dst\": \"a\", \"bandwidth\": 20, \"duplex\": false},"
      "{\"src\": \"b\", \"dst\": \"sw\", \"bandwidth\": 20, \"duplex\": false},"
      "{\"src\": \"sw\", \"dst\": \"b\", \"bandwidth\": 10, \"duplex\": false}]}");
  ck_assert_int_eq(run("@ solve %%/uneven.json -c allgather"), 0);
  run("@ solve %%/uneven.json -c allgather --derate 'a>sw=0.5'");
  copse_test_refused(2, "relay 'sw' takes in 25 GB/s and lets out 20 GB/s");
}
END_TEST

/* ---- every failure in advance ------------------------------------------------------------ */

static void check_failure(const cJSON *entry, const char *collective) {
  const char *down = text_of(entry, "down");
  ck_assert_int_eq(
      run("@ verify %%/set/%s " FABRIC " --down '%s' --json", text_of(entry, "file"), down), 0);
  cJSON *verified = parsed();
  ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(verified, "same_topology")));
  ck_assert_str_eq(text_of(verified, "time_per_GB"), text_of(entry, "time_per_GB"));
  cJSON_Delete(verified);
  ck_assert_int_eq(run("@ solve " FABRIC " -c %s --down '%s' --json", collective, down), 0);
  cJSON *alone = parsed();
  ck_assert_str_eq(text_of(alone, "time_per_GB"), text_of(entry, "time_per_GB"));
  ck_assert(fabs(number_of(cJSON_GetObjectItem(alone, "healthy"), "slowdown") -
                 number_of(entry, "slowdown")) < 1e-9);
  cJSON_Delete(alone);
}

START_TEST(each_failure_has_the_schedule_that_it_would_get_alone) {
  static const char *const collectives[] = {"allgather", "allreduce", "alltoall",
                                            "allreduce --equal-shares"};
  int images = 0, n = 0;
  const cJSON *entry;
  run("rm -rf %%/set");
  ck_assert_int_eq(
      run("@ solve " FABRIC " -c %s --each-failure nic -o %%/set --json", collectives[_i]), 0);
  char *index = copse_test_read("set/index.json");
  ck_assert_str_eq(index, result.out);
  cJSON *json = cJSON_Parse(index);
  ck_assert_ptr_nonnull(json);
  cJSON_ArrayForEach(entry, cJSON_GetObjectItem(json, "failures")) {
    check_failure(entry, collectives[_i]);
    images += cJSON_HasObjectItem(entry, "image_of");
    n++;
  }
  ck_assert_int_eq(n, 8);
  ck_assert_int_eq(images, 7); /* all NICs are alike: hosts swap, and so do places in them */
  ck_assert_int_eq(run("@ verify %%/set/healthy.json " FABRIC), 0);
  cJSON_Delete(json);
  free(index);
}
END_TEST

/* Images are as good as what is solved alone, whatever kind of fabric; of some two kinds of parts
 * fail, some are of one type and yet not alike. */
START_TEST(images_of_failures_are_as_good_as_solving_them) {
  static const struct {
    const char *fabric, *down, *ranks, *type, *collective; /* `ranks`: the file tells them again */
    int n, solved;                                         /* solved: at most */
  } cases[] = {
      {"--synthetic ring:6@50", "", "", "gpu", "allgather", 6, 1},
      {"--synthetic torus:3x4@50", "", "", "gpu", "allreduce", 12, 1},
      {"--synthetic hypercube:3@50", "", "", "gpu", "alltoall", 8, 1},
      {"--synthetic 'hosts:3 gpus:2@100 nics:2@25'", "", "", "nic", "reduce_scatter", 6, 1},
      {"-t frontier-node", "", "--bound-only", "gpu", "allgather", 8, 2},
      {"-t a100-x2", "--down h1.nic3", "", "nic", "allgather", 15, 3},
      {"-t a100-x2", "", "--ranks 0-3,8-11", "nic", "allreduce", 16, 5}};
  const char *fabric = cases[_i].fabric + (cases[_i].fabric[1] == 't' ? 3 : 0);
  int solved = 0, n = 0;
  const cJSON *entry;
  run("rm -rf %%/set");
  ck_assert_int_eq(run("@ solve %s %s %s -c %s --each-failure %s --no-symmetry --json", fabric,
                       cases[_i].down, cases[_i].ranks, cases[_i].collective, cases[_i].type),
                   0);
  cJSON *alone = parsed();
  ck_assert_int_eq(run("@ solve %s %s %s -c %s --each-failure %s -o %%/set --json", fabric,
                       cases[_i].down, cases[_i].ranks, cases[_i].collective, cases[_i].type),
                   0);
  cJSON *json = parsed();
  cJSON_ArrayForEach(entry, cJSON_GetObjectItem(json, "failures")) {
    const cJSON *like = cJSON_GetArrayItem(cJSON_GetObjectItem(alone, "failures"), n++);
    ck_assert(!cJSON_HasObjectItem(like, "image_of"));
    ck_assert_str_eq(text_of(like, "down"), text_of(entry, "down"));
    ck_assert_str_eq(text_of(like, "time_per_GB"), text_of(entry, "time_per_GB"));
    ck_assert_str_eq(text_of(like, "bound_time_per_GB"), text_of(entry, "bound_time_per_GB"));
    ck_assert_str_eq(text_of(like, "topology_sha256"), text_of(entry, "topology_sha256"));
    solved += !cJSON_HasObjectItem(entry, "image_of");
    if (cJSON_HasObjectItem(entry, "file"))
      ck_assert_int_eq(run("@ verify %%/set/%s %s %s --down '%s'", text_of(entry, "file"),
                           cases[_i].fabric, cases[_i].down, text_of(entry, "down")),
                       0);
  }
  ck_assert_int_eq(n, cases[_i].n);
  ck_assert_int_le(solved, cases[_i].solved); /* fewer, the more symmetries are found */
  cJSON_Delete(alone);
  cJSON_Delete(json);
}
END_TEST

/* Losing the only switch of a star leaves nothing; that is an answer, not an error. */
START_TEST(a_failure_without_a_solution_is_told) {
  ck_assert_int_eq(run("@ solve --synthetic switch:4@50 -c allgather --each-failure switch"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "no solution:"));
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather --each-failure gpu --json"), 0);
  cJSON *json = parsed();
  const cJSON *failures = cJSON_GetObjectItem(json, "failures");
  ck_assert_int_eq(cJSON_GetArraySize(failures), 4);
  /* a line of three: 2/3 M into its ends */
  ck_assert_str_eq(text_of(cJSON_GetArrayItem(failures, 2), "time_per_GB"), "1/75");
  cJSON_Delete(json);
}
END_TEST

/* No command divides by the time that nothing takes: neither in words nor as JSON. */
START_TEST(a_rank_alone_has_nothing_to_send) {
  static const struct {
    const char *command;
    int status;
    const char *part;
  } cases[] = {
      {"solve " FABRIC " --ranks 2 -c %s -o %%/one.json", 0, "0 s/GB, nothing to send\n"},
      {"verify %%/one.json " FABRIC, 0, "nothing to send, "},
      {"simulate %%/one.json " FABRIC " -e 4K", 0, "copse      0 s/GB, nothing to send\n"},
      {"solve " FABRIC " --ranks 2 -c %s --bound-only", 0, "nothing to send"},
      {"solve " FABRIC " --ranks 2 -c %s --predict", 0, "nothing to send"},
      {"solve " FABRIC " --ranks 2 -c %s --objective 64K", 0, "nothing to send"},
      {"solve --synthetic full:2@10 -c %s --each-failure gpu", 0, "  -          -          -\n"},
      {"report " FABRIC " --ranks 2 -c %s -o %%/one.html", 0, ""}};
  static const char *const collectives[] = {"allgather", "reduce_scatter", "allreduce", "alltoall",
                                            "broadcast --root 0"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[300];
    bool rooted = strstr(collectives[_i], "root");
    if (rooted && strstr(cases[i].command, "each-failure")) continue; /* the root may not fail */
    snprintf(line, sizeof line, cases[i].command, collectives[_i]);
    for (int json = 0; json < 2 && !(json && i == 7); json++) {
      ck_assert_int_eq(run("@ %s %s", line, json ? "--json" : ""), cases[i].status);
      ck_assert_ptr_null(strstr(result.out, "inf"));
      ck_assert_ptr_null(strstr(result.out, "nan"));
      if (json)
        cJSON_Delete(parsed());
      else
        ck_assert_msg(strstr(result.out, cases[i].part), "%s: %s", line, result.out);
    }
  }
  char *page = copse_test_read("one.html");
  ck_assert_ptr_null(strstr(page, "inf GB/s"));
  ck_assert_ptr_nonnull(strstr(page, "nothing to send"));
  free(page);
}
END_TEST

/* ---- hops against bandwidth -------------------------------------------------------------- */

#define PARETO "solve topologies/a100-x2.json -c broadcast --root 0"

/* Where the row with the most bandwidth of so many hops, or fewer, stands. */
static const cJSON *row_of(const cJSON *rows, double hops) {
  const cJSON *row, *found = NULL;
  cJSON_ArrayForEach(row, rows) if (number_of(row, "max_height") <= hops) found = row;
  return found;
}

/* Whether another row has no more hops and more bandwidth, or fewer hops and no less. */
static bool is_dominated(const cJSON *rows, const cJSON *row) {
  const cJSON *other;
  cJSON_ArrayForEach(other, rows) {
    double hops = number_of(other, "hops") - number_of(row, "hops");
    double rate = number_of(other, "algbw_GBps") - number_of(row, "algbw_GBps");
    if (hops <= 0 && rate >= 0 && (hops < 0 || rate > 0)) return true;
  }
  return false;
}

/* Rows are by hops; those that another dominates are fastest somewhere; no number of trees does
 * better. */
START_TEST(the_frontier_is_that_of_single_solves) {
  const cJSON *row;
  double hops = 0;
  int sizes = 0, n = 0;
  ck_assert_int_eq(run("@ " PARETO " --pareto --json"), 0);
  cJSON *json = parsed();
  const cJSON *rows = cJSON_GetObjectItem(json, "rows");
  int exact = (int)number_of(json, "exact_k");
  cJSON_ArrayForEach(row, rows) {
    int fastest = cJSON_GetArraySize(cJSON_GetObjectItem(row, "fastest_at"));
    ck_assert(number_of(row, "hops") >= hops);
    ck_assert(fastest > 0 || !is_dominated(rows, row));
    hops = number_of(row, "hops");
    sizes += fastest;
    n++;
  }
  ck_assert_int_ge(n, 2);
  ck_assert_int_eq(sizes, 11);
  ck_assert_str_eq(text_of(row_of(rows, INFINITY), "time_per_GB"),
                   text_of(json, "bound_time_per_GB"));
  for (int k = 1; k <= exact; k++) {
    ck_assert_int_eq(run("@ " PARETO " --k %d --json", k), 0);
    cJSON *alone = parsed();
    row = row_of(rows, number_of(alone, "max_height"));
    ck_assert_ptr_nonnull(row);
    ck_assert(number_of(row, "algbw_GBps") >= number_of(alone, "algbw_GBps") * (1 - 1e-12));
    cJSON_Delete(alone);
  }
  cJSON_Delete(json);
}
END_TEST

/* The row that is the fastest at a size. */
static const cJSON *fastest_row(const cJSON *rows, double bytes) {
  const cJSON *row, *size, *found = NULL;
  cJSON_ArrayForEach(row, rows) cJSON_ArrayForEach(size, cJSON_GetObjectItem(row, "fastest_at")) {
    if (size->valuedouble != bytes) continue;
    ck_assert_ptr_null(found);
    found = row;
  }
  ck_assert_ptr_nonnull(found);
  return found;
}

/*
 * By hand, of two hosts of four GPUs behind one NIC of 25 GB/s: what must go into a host is half a
 * message, 0.02 s/GB, and passes one GPU, then the host's others: 2 hops. In one hop every block
 * goes to each of the other host's four GPUs by itself, four times as much: 0.08.
 */
START_TEST(the_frontier_of_a_small_fabric_is_as_by_hand) {
  ck_assert_int_eq(run("@ solve --synthetic 'hosts:2 gpus:4@300 nics:1@25 rails' -c allgather "
                       "--pareto --json"),
                   0);
  cJSON *json = parsed();
  const cJSON *rows = cJSON_GetObjectItem(json, "rows"), *one = NULL, *two = NULL, *row;
  cJSON_ArrayForEach(row, rows) {
    if (is_dominated(rows, row)) continue;
    if (number_of(row, "hops") == 1) one = row;
    if (number_of(row, "hops") == 2) two = row;
    ck_assert(number_of(row, "hops") <= 2);
  }
  ck_assert_ptr_nonnull(one);
  ck_assert_ptr_nonnull(two);
  ck_assert_str_eq(text_of(one, "time_per_GB"), "2/25");
  ck_assert_str_eq(text_of(two, "time_per_GB"), "1/50");
  ck_assert(fastest_row(rows, 1024) == one);
  ck_assert(number_of(fastest_row(rows, 1 << 30), "algbw_GBps") >= 50 * (1 - 1e-9));
  cJSON_Delete(json);
}
END_TEST

/*
 * Eight hosts of 8 GPUs, two on a leaf whose way up has half the NICs' bandwidth. What one GPU of a
 * host gets from another host is passed on within: into a host go 7/8 of a message, out of a leaf
 * to each of six other hosts its quarter, 3/2 over 400 GB/s: 3/800 s/GB, in 2 hops. For a small
 * message what counts is hops, once ranks deal their sends to workers.
 */
START_TEST(the_frontier_has_what_a_search_for_a_size_begins_with) {
  ck_assert_int_eq(run("@ solve h100-x8-clos2 -c allgather --pareto --json"), 0);
  cJSON *json = parsed();
  const cJSON *rows = cJSON_GetObjectItem(json, "rows"), *row = row_of(rows, 2);
  ck_assert_str_eq(text_of(row, "time_per_GB"), "3/800");
  ck_assert(number_of(row, "hops") == 2 && !is_dominated(rows, row));
  ck_assert(number_of(fastest_row(rows, 1024), "hops") == 1);
  ck_assert(fastest_row(rows, 1 << 20) == row);
  cJSON_Delete(json);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/changes");
  TCase *tests = tcase_create("changes");
  copse_test_folder();
  tcase_set_timeout(tests, 240);
  tcase_add_loop_test(tests, chosen_ranks_go_through_the_whole_tool, COPSE_TEST_UP_TO(0, 2), 4);
  tcase_add_test(tests, a_schedule_whose_ranks_are_no_gpus_is_refuted);
  tcase_add_test(tests, all_ranks_in_another_order_are_a_choice_too);
  tcase_add_test(tests, bad_choices_are_one_line);
  tcase_add_loop_test(tests, what_is_left_is_that_of_the_written_topology, 0, 4);
  tcase_add_test(tests, high_trees_of_few_gpus_are_repaired_instead);
  tcase_add_test(tests, a_compact_allreduce_is_as_fast);
  tcase_add_test(tests, fewer_rotations_serve_where_all_are_too_many);
  tcase_add_test(tests, a_report_has_the_notes);
  tcase_add_test(tests, trees_are_counted_as_they_are);
  tcase_add_test(tests, a_tolerance_that_is_missed_is_told);
  tcase_add_test(tests, the_loss_is_told);
  tcase_add_test(tests, the_order_of_faults_does_not_matter);
  tcase_add_test(tests, an_unbalanced_rest_is_refused_by_name);
  tcase_add_test(tests, what_unequal_shares_would_take_is_kept_to_or_told);
  tcase_add_test(tests, what_was_not_tried_is_said_once);
  tcase_add_test(tests, a_healthy_fabric_without_trees_is_not_compared_with);
  tcase_add_loop_test(tests, a_rank_alone_has_nothing_to_send, COPSE_TEST_UP_TO(0, 3), 5);
  tcase_add_loop_test(tests, images_of_failures_are_as_good_as_solving_them, 0,
                      COPSE_TEST_UP_TO(7, 5));
  tcase_add_loop_test(tests, each_failure_has_the_schedule_that_it_would_get_alone, 0,
                      COPSE_TEST_UP_TO(4, 3));
  tcase_add_test(tests, a_failure_without_a_solution_is_told);
  tcase_add_test(tests, the_frontier_is_that_of_single_solves);
  tcase_add_test(tests, the_frontier_of_a_small_fabric_is_as_by_hand);
  tcase_add_test(tests, the_frontier_has_what_a_search_for_a_size_begins_with);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
