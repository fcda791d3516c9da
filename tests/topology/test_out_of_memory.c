/*
 * Every allocation of a reading fails once: the reader must say so and free what it has.
 * Under the sanitizers the test is skipped.
 */
#include "helpers.h"
#include "support/failing_malloc.h"
#include "support/libxml_aside.h"
#include "topology/fabric/fabric.h"
#include "topology/input/profile.h"
#include "topology/symmetry/symmetry.h"

static const char *const texts[] = {
    "{\"format\": \"copse-topology/1\", \"name\": \"n\", \"nodes\": ["
    "{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0}, {\"id\": \"b\", \"type\": \"odd\"}],"
    "\"links\": [{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1}]}",
    "{\"format\": \"copse-cluster/1\", \"host\": \"topologies/a100-host.json\", \"hosts\": 2,"
    " \"fabric\": {\"type\": \"rails\", \"bandwidth\": 25, \"spine_bandwidth\": 5}}",
    "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"1\" class=\"0x0604\"><pci busid=\"2\">"
    "<gpu sm=\"80\" rank=\"0\"><nvlink target=\"3\" count=\"1\" tclass=\"0x068000\"/></gpu></pci>"
    "<pci busid=\"4\"><nic><net name=\"x\"/><net name=\"x\"/></nic></pci></pci></cpu>"
    "<cpu numaid=\"1\"/></system>",
    "<!-- description: d\nsource: s\n--><system version=\"1\"><cpu numaid=\"0\"><pci busid=\"2\">"
    "<gpu sm=\"90\"><c2c count=\"1\" bw=\"2\"/></gpu></pci></cpu></system>",
    "GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity\nGPU0 X NV4 PIX 0-1 0\nGPU1 NV4 X SYS 2-3 1\n"
    "NIC0 PIX SYS X\nNIC Legend:\nNIC0: mlx5_0\n",
    "GPU0 GPU1 GPU2\nGPU0 X NV18 NV18\nGPU1 NV18 X NV18\nGPU2 NV18 NV18 X\n",
    "==== Link Type between two GPUs ====\nGPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n"
    "==== Numa Nodes ====\nGPU[0] : (Topology) Numa Node: 0\n",
    "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"hosts:4 gpus:2@3 nics:2@1 clos:2/2\"}",
    "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"torus:2x3@5\", \"source\": \"s\"}",
    "{\"format\": \"copse-cluster/1\", \"hosts\": [{\"host\": \"topologies/a100-host.json\"},"
    " {\"host\": \"topologies/h100-host.json\", \"count\": 2}], \"fabric\": {\"type\":"
    " \"dragonfly\", \"bandwidth\": 25, \"group_routers\": 2, \"local_bandwidth\": 9,"
    " \"global_bandwidth\": 9}}",
};

START_TEST(a_failed_allocation_is_reported_and_leaks_nothing) {
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  set_libxml_aside();
  struct copse_topology *warm = read_good(texts[_i], COPSE_LINKS_DEFAULT);
  copse_topology_free(warm);
  long failures = 0;
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    long before = live;
    until_failure = n;
    copse_status status = copse_topology_parse("t", texts[_i], strlen(texts[_i]), NULL, &t, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert((status == COPSE_OK) == (t != NULL));
    if (status == COPSE_OK) copse_topology_free(t);
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    if (!reached) break;
    failures += status != COPSE_OK;
  }
  ck_assert_int_gt(failures, 10);
}
END_TEST

/* What isn't a topology by itself: 0 Slurm, 1 ibnetdiscover, 2 a profile over a topology. */
static copse_status read_part(int which, struct copse_err *err) {
  static const char slurm[] = "SwitchName=a Nodes=n[1-3]\nSwitchName=t Switches=a\n";
  static const char ib[] =
      "Switch 4 \"S-a\" # \"a\"\n[1] \"H-1\"[1] # \"n1 m0\" lid 1 4xHDR\n"
      "[2] \"S-b\"[1] # \"b\" lid 2 4xHDR\n";
  static const char rules[] =
      "{\"format\": \"copse-profile/1\", \"links\": [{\"src\": \"a\", \"scale\": 2}]}";
  struct copse_fabric_map map = {0};
  struct copse_topology_options options = {0};
  struct copse_profile *profile = NULL;
  struct copse_topology *t = NULL;
  copse_status status = COPSE_OK;
  if (which == 0) status = copse_read_slurm("f", slurm, strlen(slurm), NULL, &map, err);
  if (which == 1) status = copse_read_ibnetdiscover("f", ib, strlen(ib), &map, err);
  if (which == 2) {
    status = copse_profile_parse("p", rules, strlen(rules), &profile, err);
    options.profile = profile;
    if (status == COPSE_OK)
      status = copse_topology_parse("t", texts[0], strlen(texts[0]), &options, &t, err);
    copse_topology_free(t);
    copse_profile_free(profile);
  }
  copse_fabric_map_free(&map);
  return status;
}

START_TEST(the_same_of_fabrics_and_profiles) {
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  struct copse_err warm = COPSE_ERR_INIT;
  ASSERT_OK(read_part(_i, &warm), &warm);
  long failures = 0;
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    long before = live;
    until_failure = n;
    copse_status status = read_part(_i, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    if (!reached) break;
    failures += status == COPSE_NOMEM;
  }
  ck_assert_int_ge(failures, 4); /* lists share the blocks of their owner's arena */
}
END_TEST

/* Fabrics with generators, and with one that only joins orbits: the ends of a chain. */
START_TEST(the_same_of_a_search_for_symmetries) {
  static const char *const lines[] = {
      "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"torus:2x3@5\"}",
      "{\"format\": \"copse-topology/1\", \"name\": \"n\", \"nodes\": ["
      "{\"id\": \"a\", \"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"},"
      "{\"id\": \"c\", \"type\": \"gpu\"}], \"links\": [{\"src\": \"a\", \"dst\": \"b\","
      " \"bandwidth\": 1}, {\"src\": \"b\", \"dst\": \"c\", \"bandwidth\": 1}]}"};
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  struct copse_topology *t = read_good(lines[_i], COPSE_LINKS_DEFAULT);
  long failures = 0;
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_symmetry s;
    long before = live;
    until_failure = n;
    copse_status status = copse_topology_symmetry(t, &s, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    if (status == COPSE_OK) ck_assert_int_gt(_i == 0 ? s.n : s.n_others, 0);
    if (status == COPSE_OK) copse_symmetry_free(&s);
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    if (!reached) break;
    failures += status == COPSE_NOMEM;
  }
  ck_assert_int_ge(failures, 3); /* arrays and images share the blocks of two arenas */
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/out_of_memory");
  TCase *tc = tcase_create("readers");
  tcase_add_loop_test(tc, a_failed_allocation_is_reported_and_leaks_nothing, 0,
                      (int)(sizeof texts / sizeof *texts));
  tcase_add_loop_test(tc, the_same_of_fabrics_and_profiles, 0, 3);
  tcase_add_loop_test(tc, the_same_of_a_search_for_symmetries, 0, 2);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
