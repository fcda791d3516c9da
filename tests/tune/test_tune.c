/*
 * copse tune: what is in the folder, as NCCL, RCCL and a shell read it. Of the machines whose
 * graphs NCCL 2.30.7 found (OUTSIDE/nccl/data, where it is there) ours are at least as fast.
 */
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <glob.h>
#include <math.h>

#include "base/file.h"
#include "nccl/tuner_table.h"
#include "support/command.h"
#include "topology/topology.h"
#include "tune/nccl_reader.h"

static struct read_graph graphs[5];

/* Graph 0 and 1 of the folder: equally many channels, each with every GPU once. */
static void read_graphs(const char *file, long version, int gpus) {
  char *text = copse_test_read(file);
  reader_graphs(text, version, graphs);
  free(text);
  for (int id = 0; id < 2; id++) {
    ck_assert(graphs[id].there);
    ck_assert_int_eq(graphs[id].n_channels, graphs[0].n_channels);
    ck_assert_int_eq(graphs[id].n_gpus, gpus);
    for (int c = 0; c < graphs[id].n_channels; c++) {
      unsigned long seen = 0;
      for (int i = 0; i < gpus; i++) seen |= 1ul << graphs[id].devs[c][i];
      ck_assert_uint_eq(seen, (1ul << gpus) - 1);
    }
  }
}

/* Each collective's rules cover every size, the first of a range being the choice. Those of `calls`
 * (digits, NCCL's numbers) are there. */
static void check_table(const char *file, int nodes, int ranks, const char *calls) {
  bool seen[COPSE_TUNER_N_COLLECTIVES] = {false};
  struct copse_tuner_table table;
  struct copse_err err = COPSE_ERR_INIT;
  char *text = copse_test_read(file);
  uint64_t next = 0;
  ASSERT_OK(copse_tuner_table_parse(file, text, strlen(text), &table, &err), &err);
  ck_assert_uint_gt(table.n, 0);
  for (size_t i = 0; i < table.n; i++) {
    const struct copse_tuner_rule *r = &table.rules[i];
    bool first = i == 0 || r->collective != table.rules[i - 1].collective;
    if (first) {
      ck_assert_uint_eq(next, 0); /* 2^64: the last call's rules cover all sizes */
      ck_assert_msg(!seen[r->collective], "%d twice", r->collective);
      seen[r->collective] = true;
    }
    ck_assert_int_eq(r->nodes, nodes);
    ck_assert_int_eq(r->ranks, ranks);
    ck_assert_int_eq(r->channels, 0);
    if (!first && r->min_bytes == table.rules[i - 1].min_bytes) {
      ck_assert_int_eq(r->algorithm, COPSE_TUNER_RING);
      ck_assert_uint_eq(r->max_bytes, table.rules[i - 1].max_bytes);
      continue;
    }
    ck_assert_uint_eq(r->min_bytes, next);
    next = r->max_bytes + 1;
  }
  ck_assert_uint_eq(next, 0);
  for (int c = 0; c < COPSE_TUNER_N_COLLECTIVES; c++)
    ck_assert_msg(seen[c] == (strchr(calls, '0' + c) != NULL), "%s: %d", file, c);
  copse_tuner_table_free(&table);
  free(text);
}

/* The plugin of the folder takes the table beside it without a setting. */
static void plugin_finds_table(const char *folder) {
  char path[300];
  unsetenv("NCCL_TUNER_CONFIG_FILE");
  snprintf(path, sizeof path, "%s/%s/libnccl-tuner-copse.so", copse_test_folder(), folder);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *context = NULL;
  ck_assert_msg(library != NULL, "%s", dlerror());
  const struct {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, void *log, void **context);
    int (*get)(void *context, int coll, size_t bytes, int ops, float **costs, int n_algo,
               int n_proto, int *channels);
    int (*destroy)(void *context);
  } *plugin = dlsym(library, "ncclTunerPlugin_v3");
  float costs[7][3];
  int channels = 0;
  ck_assert_ptr_nonnull(plugin);
  for (int i = 0; i < 21; i++) costs[i / 3][i % 3] = 5;
  ck_assert_int_eq(plugin->init(6, 1, NULL, &context), 0);
  ck_assert_int_eq(plugin->get(context, 4, (size_t)1 << 33, 1, (float **)costs, 7, 3, &channels),
                   0);
  ck_assert(costs[COPSE_TUNER_TREE][COPSE_TUNER_SIMPLE] == 0);
  ck_assert_int_eq(plugin->destroy(context), 0);
  dlclose(library);
}

START_TEST(a_two_socket_box_gets_trees) {
  ck_assert_int_eq(copse_test_command("@ tune summit-node -o %%/t"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "env.sh graph.xml topo.xml tuner.csv"));
  read_graphs("t/graph.xml", 23007, 6);
  ck_assert_int_le(graphs[0].n_channels, 32);
  check_table("t/tuner.csv", 1, 6, "01234");
  char *readme = copse_test_read("t/README"), *csv = copse_test_read("t/tuner.csv");
  ck_assert_ptr_nonnull(strstr(readme, "Trees beat rings"));
  ck_assert_ptr_nonnull(strstr(readme, "unset NCCL_GRAPH_FILE"));
  ck_assert_ptr_nonnull(strstr(readme, "NCCL 2.18 and later read it as it is meant"));
  ck_assert_ptr_nonnull(strstr(csv, "18446744073709551615,tree,simple"));
  plugin_finds_table("t");
  ck_assert(!copse_test_exists("t/hostfile"));
  ck_assert_ptr_nonnull(strstr(readme, "tuner.csv takes trees where they are faster"));
  free(readme);
  free(csv);
  /* by the links trees, by NCCL's model and so by the table rings: no promise of trees */
  ck_assert_int_eq(copse_test_command("@ tune dgx1-v100 --hosts 2 -o %%/two"), 0);
  readme = copse_test_read("two/README"), csv = copse_test_read("two/tuner.csv");
  ck_assert_ptr_nonnull(strstr(csv, "allreduce,67558177,18446744073709551615,ring,simple"));
  ck_assert_ptr_nonnull(strstr(readme, "Trees beat rings"));
  ck_assert_ptr_nonnull(strstr(readme, "so that rings are what runs"));
  free(readme);
  free(csv);
}
END_TEST

/* With a list of what is sourced, so that nothing else of the environment matters. */
START_TEST(a_shell_sources_it) {
  static const char *const shells[] = {"sh", "bash"};
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 -o \"%%/it's one\""), 0);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(
        copse_test_command("cd / && env -i PATH=\"$PATH\" %s -c '. \"$1\"; test -r "
                           "\"$NCCL_GRAPH_FILE\" && test -r \"$NCCL_TOPO_FILE\" && test -r "
                           "\"$NCCL_TUNER_PLUGIN\" && test -r \"$NCCL_TUNER_CONFIG_FILE\" && "
                           "case $NCCL_GRAPH_FILE in /*) ;; *) exit 9 ;; esac && "
                           "test -z \"$COPSE_NCCL_GRAPHS\"' - \"%%/it's one/env.sh\"",
                           shells[i]),
        0);
    ck_assert_int_eq(copse_test_command("env -i LD_PRELOAD= PATH=\"$PATH\" %s -c "
                                        "'LD_PRELOAD=/x/libcopse-nccl.so; . \"$1\"; unset "
                                        "LD_PRELOAD; test -r \"$COPSE_NCCL_GRAPHS\" && test -z "
                                        "\"$NCCL_GRAPH_FILE\"' - \"%%/it's one/env.sh\"",
                                        shells[i]),
                     0);
  }
}
END_TEST

/* An env.sh takes back what that of another folder has set and it does not, and nothing else: not a
 * file that a cloud has set. Only the first of these topologies has a file for NCCL_TOPO_FILE. */
START_TEST(an_env_after_another_leaves_nothing_of_it) {
  static const char *const shells[] = {"sh", "bash"};
  static const char script[] =
      "'. %/xml/env.sh; test -r $NCCL_TOPO_FILE && . %/rccl/env.sh && . %/plain/env.sh; echo "
      "[$NCCL_TOPO_FILE$NCCL_RINGS$RCCL_TREES]; test -r $NCCL_TUNER_PLUGIN'";
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 -o %%/xml"), 0);
  ck_assert_int_eq(copse_test_command("@ tune dgx-h100 -o %%/plain"), 0);
  ck_assert_int_eq(copse_test_command("@ tune mi300x-8 --for rccl -o %%/rccl"), 0);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(copse_test_command("env -u NCCL_TOPO_FILE %s -c %s", shells[i], script), 0);
    ck_assert_str_eq(copse_test_result.out, "[]\n");
    ck_assert_int_eq(copse_test_command("NCCL_TOPO_FILE=cloud.xml %s -c '. %%/plain/env.sh; . "
                                        "%%/plain/env.sh; echo $NCCL_TOPO_FILE'",
                                        shells[i]),
                     0);
    ck_assert_str_eq(copse_test_result.out, "cloud.xml\n");
  }
}
END_TEST

START_TEST(made_up_bus_ids_are_not_for_the_machine) {
  ck_assert_int_eq(copse_test_command("@ tune dgx-h100 -o %%/t"), 0);
  char *env = copse_test_read("t/env.sh");
  ck_assert(copse_test_exists("t/topo.xml"));
  ck_assert_ptr_null(strstr(env, "NCCL_TOPO_FILE"));
  free(env);
}
END_TEST

/* NICs at both ends of a ring's list, the same in all hosts: it goes in where it came out. */
START_TEST(several_hosts_have_nics) {
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 --hosts 3 -o %%/t"), 0);
  read_graphs("t/graph.xml", 23007, 8);
  ck_assert_int_eq(graphs[0].n_nets, 2);
  for (int c = 0; c < graphs[0].n_channels; c++) {
    int twin = graphs[0].crossnic == 2 ? c ^ 1 : c;
    ck_assert_uint_eq(graphs[0].nets[c][0], graphs[0].nets[twin][1]);
  }
  check_table("t/tuner.csv", 3, 24, "01234");
  char *readme = copse_test_read("t/README");
  ck_assert_ptr_nonnull(strstr(readme, "their order does not matter"));
  free(readme);
}
END_TEST

/* The times that are said are of what the table takes at that size. */
START_TEST(times_by_size_are_of_what_the_table_takes) {
  struct copse_tuner_table table;
  struct copse_err err = COPSE_ERR_INIT;
  double before = 0;
  int n = 0;
  size_t at;
  ck_assert_int_eq(copse_test_command("@ tune h100-x8-clos2 -o %%/t --json"), 0);
  cJSON *json = cJSON_Parse(copse_test_result.out), *it;
  char *text = copse_test_read("t/tuner.csv"), *readme = copse_test_read("t/README");
  ASSERT_OK(copse_tuner_table_parse("t", text, strlen(text), &table, &err), &err);
  cJSON_ArrayForEach(it, cJSON_GetObjectItem(json, "allreduce_by_nccl")) {
    const struct copse_tuner_call call = {
        COPSE_TUNER_ALLREDUCE, (uint64_t)cJSON_GetObjectItem(it, "bytes")->valuedouble, 8, 64, 1, 0};
    const struct copse_tuner_rule *rule = copse_tuner_table_find(&table, &call, 0, &at);
    ck_assert_ptr_nonnull(rule);
    ck_assert_str_eq(copse_tuner_algorithms[rule->algorithm],
                     cJSON_GetObjectItem(it, "algorithm")->valuestring);
    ck_assert_str_eq(copse_tuner_protocols[rule->protocol],
                     cJSON_GetObjectItem(it, "protocol")->valuestring);
    double us = cJSON_GetObjectItem(it, "us")->valuedouble;
    ck_assert(us > before); /* more bytes take longer */
    before = us;
    n++;
  }
  ck_assert_int_eq(n, 11);
  ck_assert_ptr_nonnull(strstr(readme, "| 1073741824 | "));
  copse_tuner_table_free(&table);
  cJSON_Delete(json);
  free(text);
  free(readme);
}
END_TEST

/* Where PAT may run, which the model lacks, the other calls have rules all the same; NVLS trees,
 * which NCCL's model takes for some sizes on two DGX H100, are among the rules there. */
START_TEST(calls_that_are_not_modelled_have_no_rules) {
  static const struct {
    const char *arguments, *calls;
    int nodes, ranks;
    const char *said;
  } cases[] = {{"dgx-h100 --hosts 2", "01234", 2, 16, "NVLSTree, NCCL's own"},
               {"--synthetic 'hosts:3 gpus:1@300 nics:1@25 flat'", "014", 3, 3,
                "by size of allreduce, broadcast, reduce, for"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_eq(copse_test_command("@ tune %s -o %%/t", cases[i].arguments), 0);
    check_table("t/tuner.csv", cases[i].nodes, cases[i].ranks, cases[i].calls);
    COPSE_AT_END(copse_free_at) char *readme = copse_test_read("t/README");
    ck_assert_msg(strstr(readme, cases[i].said) != NULL, "%s", readme);
    COPSE_AT_END(copse_free_at) char *table = copse_test_read("t/tuner.csv");
    ck_assert((strstr(table, ",nvls_tree,simple") != NULL) == (i == 0));
  }
}
END_TEST

/* NCCL receives on the GPU itself, so that this must be near the NIC: of DGX-1's 4 NICs each is at
 * one PCIe switch with two GPUs. */
START_TEST(rings_come_in_at_gpus_near_their_nics) {
  ck_assert_int_eq(
      copse_test_command("@ tune tests/data/nccl/dgx1-v100.topo.xml --hosts 2 -o %%/t"), 0);
  read_graphs("t/graph.xml", 23007, 8);
  for (int c = 0; c < graphs[0].n_channels; c++)
    ck_assert_uint_eq(graphs[0].devs[c][0] / 2, graphs[0].nets[c][0]);
  ck_assert_str_eq(graphs[0].type_inter, "PIX");
}
END_TEST

START_TEST(older_nccl_has_room_for_fewer_channels) {
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 --nccl-version 2.20 -o %%/t"), 0);
  read_graphs("t/graph.xml", 22000, 8);
  ck_assert_int_le(graphs[0].n_channels, 16);
}
END_TEST

/* Hosts of two kinds have a graph each, of as many channels of one speed, and a shell finds the own one
 * by what launchers say. audit takes both files. */
START_TEST(hosts_that_differ_have_graphs_of_their_own) {
  static const struct {
    const char *says, *file; /* NULL: none, with a line that says why */
  } hosts[] = {{"COPSE_HOST=0", "graph.xml"},
               {"COPSE_HOST=3", "graph-1.xml"},
               {"SLURM_NODEID=1", "graph.xml"},
               {"SLURM_NODEID=2 COPSE_HOST=0", "graph.xml"},
               {"GROUP_RANK=2", "graph-1.xml"},
               {"OMPI_COMM_WORLD_RANK=23 OMPI_COMM_WORLD_LOCAL_SIZE=8", "graph-1.xml"},
               {"PMI_RANK=15 MPI_LOCALNRANKS=8", "graph.xml"},
               {"COPSE_HOST=4", NULL},
               {"LANG=C", NULL}};
  char said[300];
  ck_assert_int_eq(copse_test_command("@ tune mixed-a100-h100 -o %%/t"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, " graph-1.xml"));
  read_graphs("t/graph.xml", 23000, 8);
  struct read_graph first[2] = {graphs[0], graphs[1]};
  read_graphs("t/graph-1.xml", 23000, 8);
  for (int id = 0; id < 2; id++) {
    ck_assert_int_eq(graphs[id].n_channels, first[id].n_channels);
    ck_assert_double_eq(graphs[id].speed_inter, first[id].speed_inter);
  }
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    ck_assert_int_eq(copse_test_command("env -u COPSE_HOST -u SLURM_NODEID -u GROUP_RANK "
                                        "NCCL_GRAPH_FILE=older COPSE_NCCL_GRAPHS=older %s sh -c "
                                        "'. %%/t/env.sh; echo \"[$NCCL_GRAPH_FILE$COPSE_NCCL_GRAPHS]\"'",
                                        hosts[i].says),
                     0);
    snprintf(said, sizeof said, "%s%s]\n", hosts[i].file ? "/t/" : "[",
             hosts[i].file ? hosts[i].file : "");
    ck_assert_msg(strstr(copse_test_result.out, said) != NULL, "%s: %s", hosts[i].says,
                  copse_test_result.out);
    ck_assert(hosts[i].file || strstr(copse_test_result.err, "COPSE_HOST must say"));
  }
  ck_assert_int_eq(copse_test_command("sh -c '. %%/t/env.sh; echo [$NCCL_IGNORE_NET_MISMATCH]'"), 0);
  ck_assert_str_eq(copse_test_result.out, "[]\n"); /* all have 8 NICs */
  ck_assert_int_eq(copse_test_command("@ audit mixed-a100-h100 %%/t/graph.xml %%/t/graph-1.xml"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "200"));
  /* the bound has several cuts, and one is said */
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "cuts, of both phases; of most weight: "));
  /* NCCL's own graphs may be of several kinds of hosts too; here they are the best ones */
  ck_assert_int_eq(copse_test_command("@ tune mixed-a100-h100 -o %%/own --nccl %%/t/graph.xml --nccl "
                                      "%%/t/graph-1.xml"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "NCCL's own graph: 200 GB/s (Ring)"));
  ck_assert_int_eq(copse_test_command("@ tune a100-x2 --down h0.nic0 -o %%/d"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "14 channels"));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, " graph-1.xml"));
  ck_assert_int_eq(copse_test_command("sh -c '. %%/d/env.sh; echo [$NCCL_IGNORE_NET_MISMATCH]'"), 0);
  ck_assert_str_eq(copse_test_result.out, "[1]\n");
  ck_assert_int_eq(
      copse_test_command("@ audit a100-x2 --down h0.nic0 %%/d/graph-1.xml %%/d/graph.xml"), 2);
  copse_test_refused(2, "the graph files in this order (one for each kind of hosts");
  ck_assert_int_eq(copse_test_command("@ audit a100-x2 %%/t/graph.xml %%/t/graph-1.xml"), 2);
  copse_test_refused(2, "2 graph files, and the topology has hosts of 1 kind");
}
END_TEST

/* The times of baselines for 64 MiB: of the best rings, or of NCCL's with these files. */
#define TWO_KINDS "--synthetic 'hosts:2 gpus:4@300 nics:4@25 rails' --down h0.nic0"
static double ring_time(const char *files, const char *name) {
  ck_assert_int_eq(copse_test_command("@ simulate %%/s.json " TWO_KINDS " -b 64M -e 64M --json %s", files), 0);
  cJSON *json = cJSON_Parse(copse_test_result.out);
  const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "rows"), 0);
  const cJSON *time = cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(row, "times"), name), "time");
  ck_assert_msg(cJSON_IsNumber(time), "no %s: %s", name, copse_test_result.out);
  double us = time->valuedouble;
  cJSON_Delete(json);
  return us;
}

/* The files that tune wrote are the best rings, found again: with both the prediction is theirs.
 * One of the two is that host's GPUs and NICs for all, which can't be: a rail has a NIC of each
 * host. */
START_TEST(predictions_take_a_graph_for_each_kind_of_host) {
  ck_assert_int_eq(copse_test_command("@ tune " TWO_KINDS " -o %%/d"), 0);
  ck_assert_int_eq(copse_test_command("@ solve " TWO_KINDS " -c allgather -o %%/s.json"), 0);
  double best = ring_time("", "best-rings");
  ck_assert_double_eq(ring_time("--nccl %/d/graph.xml --nccl %/d/graph-1.xml", "nccl"), best);
  ck_assert_int_eq(copse_test_command("@ simulate %%/s.json " TWO_KINDS
                                      " -b 64M -e 64M --json --nccl %%/d/graph.xml"),
                   0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "a ring from h0.nic1 to h1.nic0 would pass"));
  ck_assert_int_eq(copse_test_command("@ report " TWO_KINDS " -c allgather -o %%/page.html --nccl "
                                      "%%/d/graph.xml --nccl %%/d/graph-1.xml"), 0);
  char *page = copse_test_read("page.html");
  ck_assert_ptr_nonnull(strstr(page, "\"nccl\""));
  ck_assert_ptr_null(strstr(page, "best-rings\""));
  free(page);
  static const char *const refused[][2] = {
      {"--nccl %/d/graph-1.xml --nccl %/d/graph.xml", "the graph files in this order"},
      {"--nccl %/d/graph-1.xml", "names NIC 0x3, which host 0"},
      {"--nccl %/d/graph.xml --nccl %/d/graph.xml --nccl %/d/graph.xml",
       "3 graph files, and the topology has hosts of 2 kinds"},
      {"--nccl %/d/graph.xml --nccl %/s.json", "s.json"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    ck_assert_int_eq(copse_test_command("@ simulate %%/s.json " TWO_KINDS " %s", refused[i][0]), 2);
    copse_test_refused(2, refused[i][1]);
  }
}
END_TEST

/* On a torus hosts differ in how far they are apart. */
START_TEST(a_torus_has_an_order_of_hosts) {
  ck_assert_int_eq(copse_test_command("@ tune --synthetic 'hosts:16 gpus:2@300 nics:1@25 "
                                      "torus:4x4@50' -o %%/t"),
                   0);
  char *hosts = copse_test_read("t/hostfile");
  bool seen[16] = {false};
  int lines = 0, last = -1, far = 0;
  for (char *p = hosts; *p; p = strchr(p, '\n') + 1, lines++) {
    int h, slots;
    ck_assert_int_eq(sscanf(p, "h%d slots=%d\n", &h, &slots), 2);
    ck_assert_int_eq(slots, 2);
    ck_assert(h >= 0 && h < 16 && !seen[h]);
    seen[h] = true;
    if (last >= 0) { /* in a grid of 4 x 4 that closes */
      int dx = abs(h % 4 - last % 4), dy = abs(h / 4 - last / 4);
      far += (dx < 4 - dx ? dx : 4 - dx) + (dy < 4 - dy ? dy : 4 - dy) > 1;
    }
    last = h;
  }
  ck_assert_int_eq(lines, 16);
  ck_assert_int_le(far, 2);
  free(hosts);
}
END_TEST

/* ---- RCCL
 * ---------------------------------------------------------------------------------------- */

/* Reads "0 2 3 1|1 3 2 0": all rings have each GPU once. */
static int check_rings(const char *p, int gpus) {
  int rings = 0;
  while (*p != '\'') {
    unsigned long seen = 0;
    for (int i = 0; i < gpus; i++) {
      char *end;
      seen |= 1ul << strtoul(p, &end, 10);
      ck_assert(end > p && (*end == ' ' || *end == '|' || *end == '\''));
      p = *end == ' ' ? end + 1 : end;
    }
    ck_assert_uint_eq(seen, (1ul << gpus) - 1);
    rings++;
    if (*p == '|') p++;
  }
  return rings;
}

/* Reads "(0(1(2))(3))|..": each rank once, at most three children. */
static const char *check_tree(const char *p, unsigned long *seen) {
  char *end;
  ck_assert_int_eq(*p, '(');
  unsigned long rank = strtoul(p + 1, &end, 10);
  ck_assert(end > p + 1 && !(*seen & 1ul << rank));
  *seen |= 1ul << rank;
  int children = 0;
  for (p = end; *p == '('; children++) p = check_tree(p, seen);
  ck_assert_int_le(children, 3);
  ck_assert_int_eq(*p, ')');
  return p + 1;
}

START_TEST(rccl_gets_rings_as_its_variable) {
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 --for rccl -o %%/t"), 0);
  char *env = copse_test_read("t/env.sh");
  char *rings = strstr(env, "export NCCL_RINGS='");
  ck_assert_ptr_nonnull(rings);
  ck_assert_int_gt(check_rings(strchr(rings, '\'') + 1, 8), 1);
  ck_assert(!copse_test_exists("t/graph.xml"));
  ck_assert(!copse_test_exists("t/libnccl-tuner-copse.so"));
  free(env);
}
END_TEST

START_TEST(rccl_gets_trees_where_they_are_better) {
  ck_assert_int_eq(copse_test_command("@ tune mi100-8 --for rccl -o %%/t"), 0);
  char *env = copse_test_read("t/env.sh"), *csv = copse_test_read("t/tuner.csv");
  ck_assert_ptr_nonnull(strstr(csv, ",tree,simple,-1,1,8,")); /* RCCL refuses 0 channels */
  const char *p = strstr(env, "export RCCL_TREES='");
  ck_assert_ptr_nonnull(p);
  for (p = strchr(p, '\'') + 1; *p != '\''; p += *p == '|') {
    unsigned long seen = 0;
    p = check_tree(p, &seen);
    ck_assert_uint_eq(seen, 0xff);
  }
  free(env);
  free(csv);
}
END_TEST

/* ---- the folder
 * ---------------------------------------------------------------------------------- */

START_TEST(it_is_replaced_whole_or_not_at_all) {
  ck_assert_int_eq(copse_test_command("@ tune pcie-8-2s -o %%/r"), 0);
  ck_assert_int_eq(copse_test_command("@ tune dgx-a100 -o %%/r/"), 0);
  char *readme = copse_test_read("r/README");
  ck_assert_ptr_nonnull(strstr(readme, "dgx-a100"));
  free(readme);
  ck_assert_int_eq(copse_test_command("ls -a %%"), 0);
  ck_assert_ptr_null(strstr(copse_test_result.out, "r."));
  copse_test_write("r/mine", "x");
  ck_assert_int_eq(copse_test_command("@ tune pcie-8-2s -o %%/r"), 2);
  copse_test_refused(2, "holds mine");
  ck_assert_int_eq(copse_test_command("@ tune ring-8 -o %%/nowhere/t"), 2);
  copse_test_refused(2, "cannot be made a folder");
  ck_assert(copse_test_exists("r/mine"));
}
END_TEST

START_TEST(what_cannot_be_tuned_is_refused) {
  static const char *const cases[][2] = {
      {"tune dgx-a100", "give -o FOLDER"},
      {"tune dgx-a100 -o -", "-o must be a folder"},
      {"tune dgx-a100 -o %/x --for mscclpp", "--for must be nccl or rccl"},
      {"tune a100-x2 --hosts 3 -o %/x", "3 of them are for a topology of a single host"},
      {"tune dgx-a100 -o %/x --nccl topologies/dgx-a100.xml", "dgx-a100.xml"},
      {"tune --synthetic full:1@5 -o %/x", "copse: "},
      {"tune nowhere.xml -o %/x", "nowhere.xml"},
      {"tune tests/data/nccl/gb200-mnnvl-2trays.topo.xml -o %/x --for rccl",
       "gb200-mnnvl-2trays.topo.xml: NCCL_RINGS is for GPUs of one host, and this domain is of "
       "several: leave RCCL its own rings"},
      {"tune tests/data/dumps/aws_p4d.xml -o %/x", "say --nvlink-switch BW"},
  };
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
  ck_assert(!copse_test_exists("x"));
}
END_TEST

/* ---- beside NCCL's own
 * --------------------------------------------------------------------------- */

#define DATA COPSE_TEST_OUTSIDE "/nccl/data/"

/* Channels times speed of NCCL's ring: busbw of an allreduce of large messages. */
static double nccl_s(const char *name, int hosts) {
  char path[300];
  static struct read_graph theirs[5];
  snprintf(path, sizeof path, DATA "%s.%d.graph.xml", name, hosts);
  char *text = NULL, *rank;
  size_t size;
  ck_assert_int_eq(copse_file_read(path, &text, &size, NULL), COPSE_OK);
  while ((rank = strstr(text, " rank=\""))) { /* the reader refuses ranks, as a writer should */
    char *end = strchr(rank + 7, '"') + 1;
    memmove(rank, end, strlen(end) + 1);
  }
  reader_graphs(text, 23007, theirs);
  free(text);
  return theirs[0].n_channels * (double)(hosts > 1 ? theirs[0].speed_inter : theirs[0].speed_intra);
}

START_TEST(rings_are_at_least_as_fast_as_nccl_s) {
  static const int hosts[] = {1, 2, 4};
  glob_t files = {0};
  if (glob(DATA "*.topo.xml", 0, NULL, &files) != 0) COPSE_SKIP("no " DATA);
  for (size_t i = 0; i < files.gl_pathc; i += 3) { /* a sample: solver/rings has all */
    char name[80];
    int n = hosts[i / 3 % 3];
    sscanf(files.gl_pathv[i], DATA "%79[^.]", name);
    /* NVLink domains of several trays count as one host; a GPU alone has no ring */
    if (strstr(name, "mnnvl") || strstr(name, "nvl72") || strcmp(name, "h100-1gpu") == 0) continue;
    ck_assert_int_eq(copse_test_command("@ tune %s --hosts %d -o %%/t", files.gl_pathv[i], n), 0);
    char *text = copse_test_read("t/graph.xml");
    reader_graphs(text, 23007, graphs);
    free(text);
    double ours = graphs[0].n_channels * (double)graphs[0].speed_intra;
    ck_assert_msg(ours >= 0.9999 * nccl_s(name, n), "%s on %d: %g, NCCL %g", name, n, ours,
                  nccl_s(name, n));
  }
  globfree(&files);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/tune");
  TCase *t = tcase_create("tune");
  copse_test_folder();
  tcase_add_test(t, a_two_socket_box_gets_trees);
  tcase_add_test(t, a_shell_sources_it);
  tcase_add_test(t, an_env_after_another_leaves_nothing_of_it);
  tcase_add_test(t, made_up_bus_ids_are_not_for_the_machine);
  tcase_add_test(t, several_hosts_have_nics);
  tcase_add_test(t, times_by_size_are_of_what_the_table_takes);
  tcase_add_test(t, calls_that_are_not_modelled_have_no_rules);
  tcase_add_test(t, rings_come_in_at_gpus_near_their_nics);
  tcase_add_test(t, older_nccl_has_room_for_fewer_channels);
  tcase_add_test(t, a_torus_has_an_order_of_hosts);
  tcase_add_test(t, hosts_that_differ_have_graphs_of_their_own);
  tcase_add_test(t, predictions_take_a_graph_for_each_kind_of_host);
  tcase_add_test(t, rccl_gets_rings_as_its_variable);
  tcase_add_test(t, rccl_gets_trees_where_they_are_better);
  tcase_add_test(t, it_is_replaced_whole_or_not_at_all);
  tcase_add_test(t, what_cannot_be_tuned_is_refused);
  tcase_add_test(t, rings_are_at_least_as_fast_as_nccl_s);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
