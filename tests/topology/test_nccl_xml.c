/* NCCL and RCCL topology XML: what the elements mean, and what is refused. */
#include "helpers.h"

#define SYSTEM(body) "<system version=\"1\">" body "</system>"
#define CPU(numaid, body) \
  "<cpu numaid=\"" numaid "\" arch=\"x86_64\" vendor=\"AuthenticAMD\">" body "</cpu>"
#define PCI(bus, class, body) \
  "<pci busid=\"" bus         \
  "\" class=\"" class "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" body "</pci>"
#define GPU(bus, attributes, links) PCI(bus, "0x030200", "<gpu " attributes ">" links "</gpu>")
#define NVLINK(target, count, tclass) \
  "<nvlink target=\"" target "\" count=\"" count "\" tclass=\"" tclass "\"/>"
#define A "0000:0a:00.0"
#define B "0000:0b:00.0"
#define ID_A "gpu@" A
#define ID_B "gpu@" B

/* The bandwidth from ID_A to ID_B (or what `to` says) of one host with the given parts. */
static void expect_bandwidth(const char *text, const char *from, const char *to,
                             const char *expected) {
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_str_eq(bandwidth(t, from, to), expected);
  copse_topology_free(t);
}

/* ---- bandwidths --------------------------------------------------------------------- */

static const struct {
  const char *gpu, *element, *expected;
} generations[] = {
    {"sm=\"120\"", "nvlink", "802/5"},
    {"sm=\"100\"", "nvlink", "802/5"},
    {"sm=\"90\"", "nvlink", "412/5"},
    {"sm=\"89\"", "nvlink", "80"},
    {"sm=\"86\"", "nvlink", "48"},
    {"sm=\"80\"", "nvlink", "80"},
    {"sm=\"70\"", "nvlink", "80"},
    {"sm=\"61\"", "nvlink", "72"},
    {"sm=\"60\"", "nvlink", "72"},
    {"sm=\"52\"", "nvlink", "80"},
    {"gcn=\"906\"", "xgmi", "96"},
    {"gcn=\"908\"", "xgmi", "96"},
    {"gcn=\"910\"", "xgmi", "144"},
    {"gcn=\"gfx90a\"", "xgmi", "144"},
    {"gcn=\"gfx90a:sramecc+:xnack-\"", "xgmi", "144"},
    {"gcn=\"940\"", "xgmi", "192"},
    {"gcn=\"gfx942:sramecc+\"", "xgmi", "192"},
    {"gcn=\"gfx950\"", "xgmi", "96"},
    {"gcn=\"9\"", "xgmi", "96"},
    {"", "xgmi", "96"},
};

START_TEST(nvlink_and_xgmi_go_by_generation) {
  char text[2048];
  snprintf(text, sizeof text,
           SYSTEM(CPU("0", PCI(A, "0x030000",
                               "<gpu %s><%s target=\"" B "\" count=\"4\" "
                               "tclass=\"0x030000\"/></gpu>") GPU(B, "", ""))),
           generations[_i].gpu, generations[_i].element);
  expect_bandwidth(text, ID_A, ID_B, generations[_i].expected);
  expect_bandwidth(text, ID_B, ID_A, "none"); /* as written */
}
END_TEST

static const struct {
  const char *attributes, *expected;
} pci_links[] = {
    {"link_speed=\"2.5 GT/s\" link_width=\"16\"", "3"},
    {"link_speed=\"2.5 GT/s PCIe\" link_width=\"1\"", "3/16"},
    {"link_speed=\"5 GT/s\" link_width=\"8\"", "3"},
    {"link_speed=\"5.0 GT/s PCIe\" link_width=\"16\"", "6"},
    {"link_speed=\"8 GT/s\" link_width=\"16\"", "12"},
    {"link_speed=\"16 GT/s\" link_width=\"16\"", "24"},
    {"link_speed=\"16.0 GT/s PCIe\" link_width=\"4\"", "6"},
    {"link_speed=\"32.0 GT/s PCIe\" link_width=\"0\"", "48"},
    {"link_speed=\"32 GT/s\"", "48"},
    {"link_speed=\"64.0 GT/s PCIe\" link_width=\"16\"", "96"},
    {"link_speed=\"Unknown speed\" link_width=\"16\"", "12"},
    {"link_speed=\"\" link_width=\"16\"", "12"},
    {"link_speed=\"16.5 GT/s\" link_width=\"16\"", "12"},
    {"link_speed=\"160 GT/s\" link_width=\"16\"", "12"},
    {"link_speed=\"16.0000001 GT/s\" link_width=\"16\"", "12"},
    {"", "12"},
};

START_TEST(pci_links_go_by_speed_and_width) {
  char text[1024];
  snprintf(text, sizeof text,
           SYSTEM(CPU("0", "<pci busid=\"" A "\" class=\"0x030000\" %s><gpu rank=\"0\"/></pci>")),
           pci_links[_i].attributes);
  expect_bandwidth(text, ID_A, "cpu@0", pci_links[_i].expected);
  expect_bandwidth(text, "cpu@0", ID_A, pci_links[_i].expected);
}
END_TEST

static const struct {
  const char *speed, *expected;
} nets[] = {{"speed=\"200000\"", "25"}, {"speed=\"400000\"", "50"}, {"speed=\"1000\"", "1/8"},
            {"speed=\"0\"", "5/4"},     {"speed=\"-1\"", "5/4"},    {"", "5/4"}};

START_TEST(net_ports_go_by_speed) {
  char text[1024];
  snprintf(
      text, sizeof text,
      SYSTEM(CPU("0", GPU(A, "", "") PCI(B, "0x020000", "<nic><net name=\"eth0\" %s/></nic>"))),
      nets[_i].speed);
  expect_bandwidth(text, "nic@" B, "net@eth0", nets[_i].expected);
  expect_bandwidth(text, "net@eth0", "nic@" B, nets[_i].expected);
}
END_TEST

static const struct {
  const char *attributes, *expected;
} cpus[] = {
    {"arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\"", "16"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"207\"", "40"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"206\"", "22"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"0x8f\"", "22"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\"", "10"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"84\"", "6"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"15\" modelid=\"207\"", "6"},
    {"arch=\"x86_64\" vendor=\"GenuineIntel\"", "6"},
    {"arch=\"ppc64\"", "32"},
    {"arch=\"arm64\"", "6"},
    {"arch=\"x86_64\" vendor=\"CentaurHauls\" familyid=\"7\" modelid=\"91\"", "9"},
    {"arch=\"x86_64\" vendor=\"  Shanghai  \" familyid=\"7\" modelid=\"59\"", "6"},
    {"arch=\"riscv64\" vendor=\"AuthenticAMD\"", "5000"},
    {"arch=\"x86_64\" vendor=\"Somebody\"", "5000"},
    {"", "5000"},
};

START_TEST(links_between_cpus_go_by_the_sending_cpu) {
  char text[1024];
  snprintf(text, sizeof text, SYSTEM("<cpu numaid=\"0\" %s>" GPU(A, "", "") "</cpu>" CPU("1", "")),
           cpus[_i].attributes);
  expect_bandwidth(text, "cpu@0", "cpu@1", cpus[_i].expected);
  expect_bandwidth(text, "cpu@1", "cpu@0", "16");
}
END_TEST

/* ---- structure ---------------------------------------------------------------------- */

START_TEST(targets_that_are_gpus_count_before_the_class) {
  const char *text = SYSTEM(CPU(
      "0", GPU(A, "sm=\"80\"", NVLINK("0000:0B:00.0", "2", "0x068000")) GPU(B, "sm=\"80\"", "")));
  expect_bandwidth(text, ID_A, ID_B, "40");
  expect_bandwidth(text, ID_A, "nvswitch", "no such node");
}
END_TEST

START_TEST(nvswitches_of_a_host_are_one_relay) {
  const char *text = SYSTEM(
      CPU("0", GPU(A, "sm=\"90\"",
                   NVLINK("0000:f1:00.0", "5", "0x068000") NVLINK("0000:f2:00.0", "4", "0x068000"))
                   GPU(B, "sm=\"90\"", NVLINK("0000:f1:00.0", "9", "0x068000"))));
  struct copse_topology *t = read_good(text, COPSE_LINKS_NVLINK);
  ck_assert_int_eq(t->n_nodes, 3);
  ck_assert_int_eq(t->n_links, 4);
  ck_assert_str_eq(bandwidth(t, ID_A, "nvswitch"), "927/5");
  ck_assert_str_eq(bandwidth(t, "nvswitch", ID_A), "927/5");
  ck_assert_str_eq(t->nodes[copse_topology_find(t, "nvswitch")].type, "nvswitch");
  copse_topology_free(t);
}
END_TEST

START_TEST(nvlink_to_the_cpu_joins_the_gpus_own) {
  const char *text = SYSTEM(CPU("0", GPU(B, "", "")) CPU(
      "8", PCI("0000:01:00.0", "0x060400",
               GPU(A, "sm=\"70\"", NVLINK("0000:00:00.0", "3", "0x068001")))));
  expect_bandwidth(text, ID_A, "cpu@8", "60");
  expect_bandwidth(text, "cpu@8", ID_A, "60");
  struct copse_topology *t = read_good(text, COPSE_LINKS_NVLINK);
  ck_assert_int_eq(t->n_nodes, 3); /* both GPUs and the one CPU */
  copse_topology_free(t);
}
END_TEST

START_TEST(link_to_an_absent_target_is_left_out_with_a_note) {
  struct copse_topology *t =
      read_good(SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK("0000:99:00.0", "2", "0x030200")))),
                COPSE_LINKS_NVLINK);
  ck_assert_int_eq(t->n_links, 0);
  ck_assert_ptr_nonnull(strstr(seen_notes, "t:1: a link to 0000:99:00.0, which is no GPU"));
  copse_topology_free(t);
}
END_TEST

START_TEST(devices_join_their_bridge_and_it_the_cpu) {
  const char *text = SYSTEM(CPU(
      "3", PCI("0000:01:00.0", "0x060400",
               PCI("0000:02:00.0", "0x060400", GPU(A, "", ""))
                   PCI(B, "0x020700", "<nic><net name=\"p\" dev=\"4\"/><net dev=\"7\"/></nic>"))));
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_int_eq(t->n_nodes, 7);
  ck_assert_str_eq(bandwidth(t, ID_A, "pcie@0000:02:00.0"), "24");
  ck_assert_str_eq(bandwidth(t, "pcie@0000:02:00.0", "pcie@0000:01:00.0"), "24");
  ck_assert_str_eq(bandwidth(t, "nic@" B, "pcie@0000:01:00.0"), "24");
  ck_assert_str_eq(bandwidth(t, "pcie@0000:01:00.0", "cpu@3"), "24");
  ck_assert_str_eq(bandwidth(t, "nic@" B, "net@7"), "5/4");
  ck_assert_str_eq(t->nodes[copse_topology_find(t, "net@p")].type, "net");
  copse_topology_free(t);
}
END_TEST

START_TEST(a_gpu_element_makes_a_gpu_of_any_class) {
  expect_bandwidth(SYSTEM(CPU("0", PCI(A, "0x120000", "<gpu rank=\"0\"/>"))), ID_A, "cpu@0", "24");
  expect_bandwidth(SYSTEM(CPU("0", "<pci busid=\"" A "\"><gpu/></pci>")), ID_A, "cpu@0", "12");
}
END_TEST

START_TEST(unknown_class_with_devices_below_is_a_bridge_else_left_out) {
  struct copse_topology *t = read_good(
      SYSTEM(CPU("0", PCI("0000:01:00.0", "0x080100", GPU(A, "", ""))
                          PCI("0000:02:00.0", "0x068000", "") PCI("0000:03:00.0", "0x060400", ""))),
      COPSE_LINKS_ALL);
  ck_assert_str_eq(bandwidth(t, ID_A, "pcie@0000:01:00.0"), "24");
  ck_assert_int_eq(copse_topology_find(t, "pcie@0000:02:00.0"), -1);
  ck_assert_int_ge(copse_topology_find(t, "pcie@0000:03:00.0"), 0);
  ck_assert_ptr_nonnull(strstr(seen_notes, "class \"0x068000\""));
  copse_topology_free(t);
}
END_TEST

START_TEST(cloud_images_files_go_by_class) {
  const char *pci = PCI("ffff:ff:01.0", "0x060400",
                        PCI(A, "0x030200", "") PCI(B, "0x020700", "") PCI(
                            "0000:0c:00.0", "0x120000", "") PCI("0000:0d:00.0", "0x010802", ""));
  char text[2048];
  snprintf(text, sizeof text, SYSTEM(CPU("0", "%s")), pci);
  struct copse_topology *t = read_good(text, COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->n_ranks, 2);
  ck_assert_int_eq(t->n_nodes, 5);
  ck_assert_str_eq(bandwidth(t, "nic@" B, "pcie@ffff:ff:01.0"), "24");
  copse_topology_free(t);
  /* with a single gpu element the class says nothing any more */
  snprintf(text, sizeof text, SYSTEM(CPU("0", "%s" GPU("0000:0e:00.0", "", ""))), pci);
  t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_int_eq(t->n_ranks, 1);
  copse_topology_free(t);
}
END_TEST

START_TEST(nics_below_a_cpu_join_it_and_names_stay_unique) {
  struct copse_topology *t =
      read_good(SYSTEM(CPU("1", GPU(A, "", "") "<nic><net name=\"eth0\"/><net name=\"eth0\"/></nic>"
                                               "<nic><net name=\"eth0\"/></nic>")),
                COPSE_LINKS_ALL);
  ck_assert_str_eq(bandwidth(t, "nic@cpu1", "cpu@1"), "5000");
  ck_assert_str_eq(bandwidth(t, "nic@cpu1", "net@eth0.1"), "5/4");
  ck_assert_str_eq(bandwidth(t, "nic@cpu1.1", "net@eth0.2"), "5/4");
  copse_topology_free(t);
}
END_TEST

/* Real dumps of a chassis have eight bridges of one bus id, and a bridge with a NIC's. */
START_TEST(bridges_of_one_bus_id_are_several) {
  struct copse_topology *t =
      read_good(SYSTEM(CPU("0", PCI("0000:c5:00.0", "0x060400", GPU(A, "", ""))
                                    PCI("0000:c5:00.0", "0x060400", GPU(B, "", ""))
                                        PCI("0000:c5:00.0", "0x020000", "<nic/>"))),
                COPSE_LINKS_ALL);
  ck_assert_int_eq(t->n_nodes, 6);
  ck_assert_str_eq(bandwidth(t, ID_B, "pcie@0000:c5:00.0.1"), "24");
  ck_assert_str_eq(bandwidth(t, ID_B, "pcie@0000:c5:00.0"), "none");
  copse_topology_free(t);
}
END_TEST

START_TEST(hosts_are_told_apart_by_their_hash) {
#define HOST(hash)                                                                                 \
  "<cpu host_hash=\"" hash "\" numaid=\"0\" vendor=\"AuthenticAMD\">" GPU(                         \
      A, "sm=\"80\"",                                                                              \
      NVLINK(B, "1", "0x030000")                                                                   \
          NVLINK("0000:f1:00.0", "1", "0x068000")) "</cpu><cpu host_hash=\"" hash                  \
                                                   "\" numaid=\"1\" vendor=\"AuthenticAMD\">" GPU( \
                                                       B, "sm=\"80\"", "") "</cpu>"
  struct copse_topology *t = read_good(SYSTEM(HOST("0x1") HOST("0x2")), COPSE_LINKS_ALL);
  ck_assert_int_eq(t->n_ranks, 4);
  ck_assert_int_eq(t->n_nodes, 9);
  ck_assert_str_eq(bandwidth(t, "h1." ID_A, "h1." ID_B), "20");
  ck_assert_str_eq(bandwidth(t, "h1." ID_A, "h0." ID_B), "none");
  ck_assert_str_eq(bandwidth(t, "h0." ID_A, "nvswitch"), "20"); /* one for the NVLink domain */
  ck_assert_str_eq(bandwidth(t, "nvswitch", "h1." ID_A), "20");
  ck_assert_str_eq(bandwidth(t, "h1.cpu@0", "h1.cpu@1"), "16");
  ck_assert_str_eq(bandwidth(t, "h0.cpu@0", "h1.cpu@1"), "none");
  copse_topology_free(t);
  t = read_good(SYSTEM(HOST("0x1")), COPSE_LINKS_ALL);
  ck_assert_str_eq(bandwidth(t, ID_A, ID_B), "20"); /* one host: no prefix */
  copse_topology_free(t);
}
END_TEST

START_TEST(ranks_are_numbered_in_their_order) {
  struct copse_topology *t = read_good(
      SYSTEM(CPU("0", GPU(A, "rank=\"15\"", "") GPU(B, "rank=\"8\"", ""))), COPSE_LINKS_ALL);
  ck_assert_str_eq(t->nodes[t->rank_nodes[0]].id, ID_B);
  ck_assert_str_eq(t->nodes[t->rank_nodes[1]].id, ID_A);
  ck_assert_str_eq(seen_notes, "");
  copse_topology_free(t);
  t = read_good(SYSTEM(CPU("0", GPU(A, "", "") GPU(B, "rank=\"0\"", ""))), COPSE_LINKS_ALL);
  ck_assert_str_eq(t->nodes[t->rank_nodes[0]].id, ID_A);
  ck_assert_ptr_nonnull(strstr(seen_notes, "1 of 2 gpus have no rank"));
  copse_topology_free(t);
}
END_TEST

START_TEST(unknown_elements_are_noted_and_not_endlessly) {
  char text[8192] = "<system version=\"1\"><cpu numaid=\"0\">" GPU(A, "", "<c3c count=\"1\"/>");
  for (int i = 0; i < 100; i++) strcat(text, "<what/>");
  strcat(text, "</cpu></system>");
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_ptr_nonnull(strstr(seen_notes, "<what> in <cpu> is left out"));
  ck_assert_ptr_nonnull(strstr(seen_notes, "and 85 more remarks like these"));
  copse_topology_free(t);
}
END_TEST

START_TEST(c2c_leads_to_the_cpu) {
  const char *text = SYSTEM(
      CPU("0", GPU(A, "sm=\"90\"", "<c2c bw=\"44712\" count=\"10\"/>" NVLINK(B, "6", "0x0302"))
                   GPU(B, "sm=\"90\"", NVLINK(A, "6", "0x0302"))));
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "cpu@0"), "11778/25"); /* 447.12 and PCIe's 24 */
  ck_assert_str_eq(bandwidth(t, "cpu@0", "gpu@" B), "24");
  copse_topology_free(t);
  t = read_good(text, COPSE_LINKS_DEFAULT);
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "gpu@" B), "618/5");
  ck_assert_int_eq(copse_topology_find(t, "cpu@0"), -1);
  copse_topology_free(t);
  expect_refusal(SYSTEM(CPU("0", GPU(A, "", "<c2c count=\"1\"/>"))),
                 "a <c2c> without count and bw");
}
END_TEST

START_TEST(a_link_to_itself_is_noted_and_left_out) {
  struct copse_topology *t = read_good(
      SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK(A, "12", "0x0302")) GPU(B, "sm=\"80\"", ""))),
      COPSE_LINKS_DEFAULT);
  ck_assert_ptr_nonnull(strstr(seen_notes, "t:1: a link from a GPU to itself is left out"));
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "cpu@0"), "24"); /* no NVLink joins them: all is kept */
  copse_topology_free(t);
}
END_TEST

static copse_status read_switched(const char *text, struct copse_topology **t,
                                  struct copse_err *err) {
  const struct copse_topology_options options = {.nvlink_switch = {240, 1}};
  return copse_topology_parse("t", text, strlen(text), &options, t, err);
}

START_TEST(a_switch_can_be_put_into_cloud_images) {
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(read_switched(SYSTEM(CPU("0", PCI(A, "0x030200", "") PCI(B, "0x030200", "")
                                              PCI("0000:0c:00.0", "0x020700", ""))),
                          &t, &err),
            &err);
  ck_assert_str_eq(bandwidth(t, "gpu@" A, "nvswitch"), "240");
  ck_assert_str_eq(bandwidth(t, "nvswitch", "gpu@" B), "240");
  ck_assert_str_eq(bandwidth(t, "nic@0000:0c:00.0", "cpu@0"), "24"); /* the way to the NIC */
  copse_topology_free(t);
  ASSERT_FAILS(read_switched(SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK(B, "1", "0x0302"))
                                                 GPU(B, "sm=\"80\"", ""))),
                             &t, &err),
               COPSE_BAD_INPUT, &err, "the file has NVLinks of its own");
}
END_TEST

START_TEST(a_switch_is_put_into_each_host_without_nvlink) {
  const char *text = SYSTEM("<cpu numaid=\"0\" host_hash=\"1\">" GPU(A, "sm=\"80\"", NVLINK(
      B, "1", "0x0302")) GPU(B, "sm=\"80\"", NVLINK(A, "1", "0x0302")) "</cpu>"
      "<cpu numaid=\"0\" host_hash=\"2\">" GPU(A, "sm=\"80\"", "") "</cpu>");
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(read_switched(text, &t, &err), &err);
  ck_assert_str_eq(bandwidth(t, "h1.gpu@" A, "h1.nvswitch"), "240");
  ck_assert_str_eq(bandwidth(t, "h0.gpu@" A, "h0.gpu@" B), "20");
  ck_assert_int_eq(copse_topology_find(t, "h0.nvswitch"), -1);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_comment_can_say_what_it_is) {
  struct copse_topology *t = read_good(
      "<?xml version=\"1.0\"?><!-- a\n  description:  two words \n source: me -->\n" SYSTEM(
          "<!-- description: no --><cpu numaid=\"0\">" GPU(A, "", "") "</cpu>"),
      COPSE_LINKS_ALL);
  ck_assert_str_eq(t->description, "two words");
  ck_assert_str_eq(t->source, "me");
  copse_topology_free(t);
}
END_TEST

/* ---- what must not matter ----------------------------------------------------------- */

START_TEST(comments_whitespace_and_attribute_order_change_nothing) {
  const char *plain =
      "<system version=\"1\"><cpu numaid=\"0\" vendor=\"AuthenticAMD\">"
      "<pci busid=\"" A
      "\" class=\"0x030000\" link_width=\"8\"><gpu sm=\"80\" rank=\"0\">"
      "<nvlink target=\"" B
      "\" count=\"2\" tclass=\"0x03\"/></gpu></pci>"
      "<pci busid=\"" B
      "\" class=\"0x030000\" link_width=\"8\"><gpu sm=\"80\" rank=\"1\"/></pci>"
      "<pci busid=\"0000:0c:00.0\" class=\"0x02\"><nic><net name=\"a&amp;b\"/></nic></pci>"
      "</cpu></system>";
  const char *decorated =
      "\xef\xbb\xbf<?xml version='1.0' encoding='UTF-8'?><!-- x --><?pi y?>\n<system version='1' >"
      "<!-- a --><cpu vendor='AuthenticAMD'\n numaid='0'>text<!-- b --><?pi?>\n"
      "<pci link_width='8' class='0x030000' busid='0000:0A:00.0'><!-- c -->\n<gpu rank='0' sm='80'>"
      "<!-- <gpu/> --><nvlink tclass='0x03' count='2' target='0000:0B:00.0'></nvlink><!-- d "
      "--></gpu>"
      "<!-- e --></pci><![CDATA[ ]]><pci busid='" B
      "' link_width='8' class='0x030000'>\n\n\n"
      "<gpu rank='1' sm='80'></gpu></pci><pci class='0x02' busid='0000:0c:00.0'><?pi?><nic><!-- -->"
      "<net name='a&#38;b'/></nic></pci></cpu><!-- f --></system><!-- g -->\n";
  struct copse_topology *a = read_good(plain, COPSE_LINKS_ALL);
  struct copse_topology *b = read_good(decorated, COPSE_LINKS_ALL);
  char *x = to_json(a), *y = to_json(b);
  ck_assert_str_eq(x, y);
  ck_assert_ptr_null(strstr(seen_notes, "left out"));
  ck_assert_int_ge(copse_topology_find(a, "net@a&b"), 0);
  free(x);
  free(y);
  copse_topology_free(a);
  copse_topology_free(b);
}
END_TEST

/* ---- refusals ----------------------------------------------------------------------- */

#define BILLION                                                                         \
  "<?xml version=\"1.0\"?>\n<!DOCTYPE s [<!ENTITY a \"aaaaaaaaaa\">"                    \
  "<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;\">" \
  "<!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;\"><!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;\">]>"

static const struct {
  const char *text, *part;
} refusals[] = {
    {"<", "t:1: not well-formed XML"},
    {"<system version=\"1\">\n<cpu", "t:2: not well-formed XML"},
    {"<system version=\"1\">\n<cpu></system>", "t:2: not well-formed XML"},
    {"<system version=\"1\"/>x", "not well-formed XML"},
    {"<system version=\"1\" version=\"1\"/>", "not well-formed XML"},
    {"<system>\xff\xfe</system>", "not well-formed XML"},
    {"<?xml version=\"1.0\" encoding=\"no-such\"?><system/>", "not well-formed XML"},
    {"<system>&nobody;</system>", "not well-formed XML"},
    {BILLION "<system version=\"1\">&e;</system>", "t:2: a DOCTYPE, which no NCCL topology has"},
    {"<!DOCTYPE s SYSTEM \"file:///etc/passwd\"><system version=\"1\"/>", "t:1: a DOCTYPE"},
    {"<!DOCTYPE s SYSTEM \"http://localhost:1/x.dtd\"><system version=\"1\"/>", "t:1: a DOCTYPE"},
    {"<!DOCTYPE s [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><system version=\"1\">&x;</system>",
     "t:1: a DOCTYPE"},
    {"<!DOCTYPE s [<!ENTITY % p SYSTEM \"file:///etc/passwd\">%p;]><system version=\"1\"/>",
     "t:1: a DOCTYPE"},
    {"<graphs version=\"1\"/>", "t:1: the root element is <graphs>"},
    {"<system version=\"3\"/>", "unknown version \"3\" of <system>"},
    {"<system version=\"1\"/>", "t:1: no GPU"},
    {SYSTEM(CPU("0", PCI(A, "0x020000", "<nic/>"))), "no GPU"},
    {SYSTEM("<cpu>" GPU(A, "", "") "</cpu>"), "a <cpu> without numaid"},
    {SYSTEM(CPU("x", "")), "numaid=\"x\" of <cpu> must be an integer"},
    {SYSTEM(CPU("0", GPU(A, "", "")) "\n" CPU("0", "")),
     "t:2: numaid 0 twice in a host (first on line 1)"},
    {SYSTEM(CPU("0", "<pci class=\"0x030000\"><gpu/></pci>")), "a <pci> without busid"},
    {SYSTEM(CPU("0", GPU("", "", ""))), "busid=\"\" is not a PCI bus id"},
    {SYSTEM(CPU("0", GPU("0000:xy:00.0", "", ""))), "busid=\"0000:xy:00.0\" is not a PCI bus id"},
    {SYSTEM(CPU("0", GPU(A, "", "") "\n" GPU("0000:0A:00.0", "", ""))),
     "t:2: bus id 0000:0a:00.0 twice (first on line 1)"},
    {SYSTEM(CPU("0", GPU(A, "", "") PCI(A, "0x02", "<nic/>"))), "twice (first on line 1)"},
    {SYSTEM(CPU("0", GPU(A, "rank=\"2\"", "") "\n" GPU(B, "rank=\"2\"", ""))),
     "t:2: rank 2 twice: gpu@0000:0a:00.0 (line 1) and gpu@0000:0b:00.0"},
    {SYSTEM(CPU("0", GPU(A, "rank=\"zero\"", ""))), "rank=\"zero\" of <gpu> must be an integer"},
    {SYSTEM(CPU("0", GPU(A, "rank=\"1e3\"", ""))), "rank=\"1e3\" of <gpu> must be"},
    {SYSTEM(CPU("0", GPU(A, "", NVLINK(B, "1", "0x03")))), "a <gpu> without sm"},
    {SYSTEM(CPU("0", GPU(A, "sm=\"no\"", NVLINK(B, "1", "0x03")))), "sm=\"no\" of <gpu>"},
    {SYSTEM(CPU("0", GPU(A, "sm=\"80\"", "<nvlink target=\"" B "\"/>"))), "a link without count"},
    {SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK(B, "0", "0x03")))), "count=\"0\" of <nvlink>"},
    {SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK(B, "-1", "0x03")))), "count=\"-1\" of <nvlink>"},
    {SYSTEM(CPU("0", GPU(A, "sm=\"80\"", NVLINK(B, "99999999999999999999", "0x03")))),
     "of <nvlink> must be an integer"},
    {SYSTEM(CPU("0", "<pci busid=\"" A "\" link_width=\"-4\"><gpu/></pci>")),
     "link_width=\"-4\" of <pci> must be"},
    {SYSTEM(CPU("0", GPU(A, "", "") PCI(B, "0x02", "<nic><net speed=\"fast\"/></nic>"))),
     "speed=\"fast\" of <net> must be"},
    {SYSTEM(CPU("0", PCI(A, "0x03", "<gpu/><nic/>"))), "both a <gpu> and a <nic>"},
    {SYSTEM(CPU("0", PCI(A, "0x03", "<gpu/><gpu/>"))), "a second <gpu> in one <pci>"},
    {SYSTEM(GPU(A, "", "")), "<pci> inside of <system>, where NCCL has none"},
    {SYSTEM(CPU("0", "<gpu rank=\"0\"/>")), "<gpu> inside of <cpu>, where NCCL has none"},
    {SYSTEM(CPU("0", PCI(A, "0x03", "<gpu/>" GPU(B, "", "")))), "<pci> inside of <pci>"},
    {SYSTEM(CPU("0", GPU(A, "", "<net name=\"x\"/>"))), "<net> inside of <gpu>"},
};

START_TEST(bad_input_is_refused_with_its_line) {
  expect_refusal(refusals[_i].text, refusals[_i].part);
}
END_TEST

START_TEST(every_truncation_is_refused) {
  const char *whole =
      SYSTEM(CPU("0", GPU(A, "sm=\"80\" rank=\"0\"", NVLINK(B, "2", "0x068000"))
                          PCI(B, "0x020000", "<nic><net name=\"a\" speed=\"1000\"/></nic>")));
  for (size_t n = 0; n < strlen(whole); n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    ck_assert_int_eq(copse_topology_parse("t", whole, n, NULL, &t, &err), COPSE_BAD_INPUT);
    ck_assert_ptr_null(t);
  }
}
END_TEST

START_TEST(deep_nesting_is_refused) {
  enum { LEVELS = 200000, EACH = 40 };
  char *text = malloc((size_t)LEVELS * EACH + 100);
  ck_assert_ptr_nonnull(text);
  char *p = text + sprintf(text, "<system version=\"1\"><cpu numaid=\"0\">");
  for (int i = 0; i < LEVELS; i++) p += sprintf(p, "<pci busid=\"%x\" class=\"0x0604\">", i);
  expect_refusal(text, "t:1: not well-formed XML: nested more than 256 levels deep");
  free(text);
}
END_TEST

START_TEST(endless_elements_are_refused_before_memory_ends) {
  enum { ELEMENTS = (1 << 22) + 10 };
  char *text = malloc((size_t)ELEMENTS * 4 + 100);
  ck_assert_ptr_nonnull(text);
  char *p = text + sprintf(text, "<system version=\"1\">\n");
  for (int i = 0; i < ELEMENTS; i++) p = (char *)memcpy(p, "<x/>", 4) + 4;
  strcpy(p, "</system>");
  expect_refusal(text, "t:2: more than 4194304 elements");
  free(text);
}
END_TEST

START_TEST(a_changed_byte_is_read_or_refused) {
  const char *whole =
      SYSTEM(CPU("0", GPU(A, "sm=\"80\" rank=\"0\"", NVLINK(B, "2", "0x068000"))
                          PCI(B, "0x020000", "<nic><net name=\"a\" speed=\"1000\"/></nic>")));
  expect_changed_bytes_answered(whole, 3);
}
END_TEST

START_TEST(as_many_twins_as_you_like_stay_cheap) {
  enum { TWINS = 50000 };
  char *text = malloc((size_t)TWINS * 32 + 300);
  ck_assert_ptr_nonnull(text);
  char *p = text + sprintf(text, "<system version=\"1\"><cpu numaid=\"0\">" GPU(A, "", "") "<nic>");
  for (int i = 0; i < TWINS; i++) p += sprintf(p, "<net name=\"x\"/>");
  sprintf(p, "</nic></cpu></system>");
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  ck_assert_int_eq(t->n_nodes, TWINS + 3);
  ck_assert_int_ge(copse_topology_find(t, "net@x.49999"), 0);
  copse_topology_free(t);
  free(text);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

int main(void) {
  Suite *suite = suite_create("topology/nccl_xml");
  TCase *tc = tcase_create("bandwidths");
  tcase_add_loop_test(tc, nvlink_and_xgmi_go_by_generation, 0, COUNT(generations));
  tcase_add_loop_test(tc, pci_links_go_by_speed_and_width, 0, COUNT(pci_links));
  tcase_add_loop_test(tc, net_ports_go_by_speed, 0, COUNT(nets));
  tcase_add_loop_test(tc, links_between_cpus_go_by_the_sending_cpu, 0, COUNT(cpus));
  suite_add_tcase(suite, tc);
  tc = tcase_create("structure");
  tcase_add_test(tc, targets_that_are_gpus_count_before_the_class);
  tcase_add_test(tc, nvswitches_of_a_host_are_one_relay);
  tcase_add_test(tc, nvlink_to_the_cpu_joins_the_gpus_own);
  tcase_add_test(tc, link_to_an_absent_target_is_left_out_with_a_note);
  tcase_add_test(tc, devices_join_their_bridge_and_it_the_cpu);
  tcase_add_test(tc, a_gpu_element_makes_a_gpu_of_any_class);
  tcase_add_test(tc, unknown_class_with_devices_below_is_a_bridge_else_left_out);
  tcase_add_test(tc, cloud_images_files_go_by_class);
  tcase_add_test(tc, nics_below_a_cpu_join_it_and_names_stay_unique);
  tcase_add_test(tc, bridges_of_one_bus_id_are_several);
  tcase_add_test(tc, hosts_are_told_apart_by_their_hash);
  tcase_add_test(tc, ranks_are_numbered_in_their_order);
  tcase_add_test(tc, unknown_elements_are_noted_and_not_endlessly);
  tcase_add_test(tc, comments_whitespace_and_attribute_order_change_nothing);
  suite_add_tcase(suite, tc);
  tc = tcase_create("refusals");
  tcase_add_loop_test(tc, bad_input_is_refused_with_its_line, 0, COUNT(refusals));
  tcase_add_test(tc, c2c_leads_to_the_cpu);
  tcase_add_test(tc, a_link_to_itself_is_noted_and_left_out);
  tcase_add_test(tc, a_switch_can_be_put_into_cloud_images);
  tcase_add_test(tc, a_switch_is_put_into_each_host_without_nvlink);
  tcase_add_test(tc, a_comment_can_say_what_it_is);
  tcase_add_test(tc, every_truncation_is_refused);
  tcase_add_test(tc, deep_nesting_is_refused);
  tcase_add_test(tc, a_changed_byte_is_read_or_refused);
  tcase_add_test(tc, as_many_twins_as_you_like_stay_cheap);
  suite_add_tcase(suite, tc);
  if (COPSE_TEST_RESULTS) /* of 4 million elements, most of the time a sanitizer's */
    tcase_add_test(copse_test_plain(suite, 60), endless_elements_are_refused_before_memory_ends);
  return copse_test_run(suite);
}
