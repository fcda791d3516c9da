/* What --links keeps of an NCCL dump. */
#include "helpers.h"

/*
 * cpu@0 - sw1 - { gpu A, gpu B, nic N0 - net n0 }   cpu@0 - nic N1 - net n1
 * cpu@1 - sw2 - { gpu C }, sw3 (nothing below)
 */
#define A "0000:0a:00.0"
#define B "0000:0b:00.0"
#define C "0000:0c:00.0"
#define N0 "0000:e0:00.0"
#define N1 "0000:e1:00.0"
#define SW1 "0000:01:00.0"
#define SW2 "0000:02:00.0"
#define SW3 "0000:03:00.0"
#define SWITCH(bus, body) "<pci busid=\"" bus "\" class=\"0x060400\">" body "</pci>"
#define GPU(bus, links) \
  "<pci busid=\"" bus "\" class=\"0x030200\"><gpu sm=\"80\">" links "</gpu></pci>"
#define NIC(bus, name) \
  "<pci busid=\"" bus "\" class=\"0x020000\"><nic><net name=\"" name "\"/></nic></pci>"
#define TO(target, tclass) "<nvlink target=\"" target "\" count=\"1\" tclass=\"" tclass "\"/>"
#define DUMP(of_a, of_b, of_c)                                                                   \
  "<system version=\"1\"><cpu numaid=\"0\" vendor=\"AuthenticAMD\">" SWITCH(                     \
      SW1, GPU(A, of_a) GPU(B, of_b) NIC(N0, "n0"))                                              \
      NIC(N1, "n1") "</cpu><cpu numaid=\"1\" vendor=\"AuthenticAMD\">" SWITCH(SW2, GPU(C, of_c)) \
          SWITCH(SW3, "") "</cpu></system>"
#define RING DUMP(TO(B, "0x03"), TO(C, "0x03"), TO(A, "0x03"))
#define CHAIN DUMP(TO(B, "0x03"), TO(C, "0x03"), "")
#define BACK_CHAIN DUMP("", TO(A, "0x03"), TO(B, "0x03"))
#define STAR DUMP(TO("f0", "0x068000"), TO("f0", "0x068000"), TO("f1", "0x068000"))
#define BY_CPU DUMP(TO("00", "0x068001"), TO("00", "0x068001"), TO("00", "0x068001"))
#define NOTHING DUMP("", "", "")

static const struct {
  const char *what, *text;
  enum copse_link_mode mode;
  int nodes, links;
} cases[] = {
    {"nvlink keeps GPUs and NVLink", RING, COPSE_LINKS_NVLINK, 3, 3},
    {"nvlink keeps the NVSwitch", STAR, COPSE_LINKS_NVLINK, 4, 6},
    {"nvlink keeps CPUs that have NVLink", BY_CPU, COPSE_LINKS_NVLINK, 5, 6},
    {"nvlink keeps GPUs without any link", NOTHING, COPSE_LINKS_NVLINK, 3, 0},
    /* three GPUs, three bridges, two CPUs, two NICs, two ports; ten of them hang on another, and
       the two CPUs are joined: 11 links of two directions */
    {"all keeps all", NOTHING, COPSE_LINKS_ALL, 12, 22},
    {"all adds NVLink", RING, COPSE_LINKS_ALL, 12, 25},
    {"default keeps all where no NVLink is", NOTHING, COPSE_LINKS_DEFAULT, 12, 22},
    {"default keeps all where NVLink leads one way only", CHAIN, COPSE_LINKS_DEFAULT, 12, 24},
    {"default keeps all where NVLink leads one way only, the other one", BACK_CHAIN,
     COPSE_LINKS_DEFAULT, 12, 24},
    {"default keeps all where NVLink leads over CPUs only", BY_CPU, COPSE_LINKS_DEFAULT, 12, 28},
    /* A, B, C; sw1, cpu0; n0, n1 and their ports; 3 nvlinks; A-sw1, B-sw1, N0-sw1, sw1-cpu0,
       N1-cpu0, both nets in both directions */
    {"default keeps the ways of NICs", RING, COPSE_LINKS_DEFAULT, 9, 3 + 2 * 7},
    {"default takes an NVSwitch too", STAR, COPSE_LINKS_DEFAULT, 10, 6 + 2 * 7},
};

START_TEST(modes_keep_what_they_promise) {
  struct copse_topology *t = read_good(cases[_i].text, cases[_i].mode);
  ck_assert_msg(t->n_nodes == cases[_i].nodes && t->n_links == cases[_i].links,
                "%s: %d nodes, %d links", cases[_i].what, t->n_nodes, t->n_links);
  ck_assert_int_eq(t->n_ranks, 3);
  copse_topology_free(t);
}
END_TEST

START_TEST(default_drops_ways_that_no_nic_needs) {
  struct copse_topology *t = read_good(RING, COPSE_LINKS_DEFAULT);
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "pcie@" SW1), "12");
  ck_assert_str_eq(bandwidth(t, "nic@" N1, "cpu@0"), "12");
  ck_assert_str_eq(bandwidth(t, "net@n1", "nic@" N1), "5/4");
  ck_assert_int_eq(copse_topology_find(t, "cpu@1"), -1);
  ck_assert_int_eq(copse_topology_find(t, "pcie@" SW2), -1);
  ck_assert_int_eq(copse_topology_find(t, "pcie@" SW3), -1);
  copse_topology_free(t);
}
END_TEST

/* The only GPUs are on the other CPU: both CPUs and their link are on the way. */
START_TEST(default_way_may_cross_cpus) {
  struct copse_topology *t = read_good(
      "<system version=\"1\"><cpu numaid=\"0\" vendor=\"AuthenticAMD\">" NIC(
          N0, "n0") "</cpu><cpu numaid=\"1\" vendor=\"AuthenticAMD\">" GPU(A, "")
          "</cpu><cpu numaid=\"2\" vendor=\"AuthenticAMD\"></cpu></system>",
      COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->n_nodes, 5);
  ck_assert_str_eq(bandwidth(t, "cpu@0", "cpu@1"), "16");
  copse_topology_free(t);
}
END_TEST

START_TEST(nvlink_over_a_common_cpu_does_not_join_gpus) {
  struct copse_topology *t =
      read_good("<system version=\"1\"><cpu numaid=\"0\">" GPU(A, TO("00", "0x068001"))
                    GPU(B, TO("00", "0x068001")) "</cpu><cpu numaid=\"1\"/></system>",
                COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->n_nodes, 4);
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "cpu@0"), "32"); /* NVLink 20 and PCIe 12 */
  copse_topology_free(t);
}
END_TEST

START_TEST(default_is_decided_for_each_host) {
  struct copse_topology *t =
      read_good("<system version=\"1\"><cpu host_hash=\"1\" numaid=\"0\">" GPU(A, TO(B, "0x03"))
                    GPU(B, TO(A, "0x03")) "</cpu><cpu host_hash=\"2\" numaid=\"0\">" GPU(A, "")
                        GPU(B, "") "</cpu></system>",
                COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(copse_topology_find(t, "h0.cpu@0"), -1);
  ck_assert_str_eq(bandwidth(t, "h1.gpu@" A, "h1.cpu@0"), "12");
  ck_assert_int_eq(t->n_links, 2 + 4);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/link_modes");
  TCase *tc = tcase_create("modes");
  tcase_add_loop_test(tc, modes_keep_what_they_promise, 0, (int)(sizeof cases / sizeof *cases));
  tcase_add_test(tc, default_drops_ways_that_no_nic_needs);
  tcase_add_test(tc, default_way_may_cross_cpus);
  tcase_add_test(tc, nvlink_over_a_common_cpu_does_not_join_gpus);
  tcase_add_test(tc, default_is_decided_for_each_host);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
