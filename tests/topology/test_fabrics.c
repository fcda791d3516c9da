/* Fabrics of clusters: clos, dragonfly, torus, mixed hosts, and those of other tools' files. */
#include "helpers.h"
#include "topology/fabric/fabric.h"

#define HOST(name, gpus) \
  "{\"format\": \"copse-synthetic/1\", \"name\": \"" name "\", \"synthetic\": \"" gpus "\"}"

static const char *folder;
static void set_up(void) {
  folder = temp_folder();
  temp_file(folder, "one.json", HOST("one", "gpus:1@100 nics:1@24"));
  temp_file(folder, "two.json", HOST("two", "gpus:2@100 nics:2@24"));
}
static void tear_down(void) { remove_folder(folder); }

static copse_status load(const char *text, struct copse_topology **t, struct copse_err *err) {
  const struct copse_notes notes = {take_note, NULL};
  const struct copse_topology_options options = {.notes = &notes};
  seen_notes[0] = '\0';
  return copse_topology_load(temp_file(folder, "c.json", text), &options, t, err);
}

static struct copse_topology *load_good(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  int unbalanced = 0;
  ASSERT_OK(load(text, &t, &err), &err);
  ASSERT_OK(copse_topology_find_unbalanced(t, &unbalanced, NULL, NULL, &err), &err);
  ck_assert_int_eq(unbalanced, -1);
  return t;
}

static void load_bad(const char *text, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(load(text, &t, &err), COPSE_BAD_INPUT, &err, part);
  ck_assert_ptr_null(t);
}

#define CLUSTER(host, hosts, fabric)                                            \
  "{\"format\": \"copse-cluster/1\", \"host\": \"" host "\", \"hosts\": " hosts \
  ",\n \"fabric\": " fabric "}"

/* ---- clos --------------------------------------------------------------------------------- */

START_TEST(a_clos_leaf_sends_up_what_it_takes_in) {
  struct copse_topology *t = load_good(
      CLUSTER("two.json", "4", "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 2}"));
  ck_assert_int_eq(t->n_nodes, 4 * 5 + 2 + 1);
  ck_assert_str_eq(bandwidth(t, "h0.nic1", "leaf0"), "25");
  ck_assert_str_eq(bandwidth(t, "h3.nic0", "leaf1"), "25");
  ck_assert_str_eq(bandwidth(t, "leaf1", "spine"), "100");
  copse_topology_free(t);
}
END_TEST

START_TEST(a_clos_is_oversubscribed_and_spread_over_spines) {
  struct copse_topology *t = load_good(
      CLUSTER("two.json", "3",
              "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 2, \"oversubscription\": "
              "\"3/2\", \"spines\": 2, \"latency\": 0.7}"));
  ck_assert_str_eq(bandwidth(t, "leaf0", "spine1"), "100/3"); /* 4 * 25 / (3/2) / 2 */
  ck_assert_str_eq(bandwidth(t, "spine0", "leaf1"), "50/3");  /* one host on it */
  int link = copse_topology_find_link(t, copse_topology_find(t, "leaf0"),
                                      copse_topology_find(t, "spine0"));
  ck_assert_int_eq(t->links[link].latency.num, 7);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_clos_of_one_leaf_has_no_spine) {
  struct copse_topology *t = load_good(
      CLUSTER("two.json", "2", "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 2}"));
  ck_assert_int_eq(copse_topology_find(t, "spine"), -1);
  ck_assert_int_ge(copse_topology_find(t, "leaf0"), 0);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_clos_can_have_a_leaf_for_each_rail) {
  struct copse_topology *t = load_good(
      CLUSTER("two.json", "4",
              "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 2, \"rails\": true}"));
  ck_assert_str_eq(bandwidth(t, "h2.nic1", "leaf1.rail1"), "25");
  ck_assert_str_eq(bandwidth(t, "h2.nic1", "leaf1.rail0"), "none");
  ck_assert_str_eq(bandwidth(t, "leaf1.rail1", "spine"), "50");
  copse_topology_free(t);
}
END_TEST

/* ---- dragonfly and torus ---------------------------------------------------------------- */

/* Every two groups have their cables, and every router as many as another, give or take one. */
START_TEST(dragonfly_groups_are_all_joined_and_evenly) {
  enum { GROUPS = 5, ROUTERS = 3 };
  struct copse_topology *t =
      load_good(CLUSTER("one.json", "15",
                        "{\"type\": \"dragonfly\", \"bandwidth\": 1, \"group_routers\": 3,"
                        " \"local_bandwidth\": 10, \"global_bandwidth\": 4, \"global_links\": 2}"));
  char a[48], b[48];
  for (int g = 0; g < GROUPS; g++) {
    for (int h = 0; h < GROUPS; h++) {
      struct copse_q sum = COPSE_Q_ZERO;
      for (int i = 0; i < ROUTERS * ROUTERS; i++) {
        snprintf(a, sizeof a, "group%d.router%d", g, i / ROUTERS);
        snprintf(b, sizeof b, "group%d.router%d", h, i % ROUTERS);
        int link =
            copse_topology_find_link(t, copse_topology_find(t, a), copse_topology_find(t, b));
        if (link >= 0)
          ck_assert(copse_q_add(sum, t->links[link].bandwidth, &sum, NULL) == COPSE_OK);
      }
      ck_assert_int_eq(sum.num, g == h ? 60 : 8);
    }
    for (int i = 0; i < ROUTERS; i++) { /* 8 cables of 4 GB/s leave a group: 3, 3 and 2 */
      int out = 0;
      snprintf(a, sizeof a, "group%d.router%d", g, i);
      for (int l = 0; l < t->n_links; l++)
        if (t->links[l].src == copse_topology_find(t, a)) out += (int)t->links[l].bandwidth.num;
      ck_assert_int_ge(out, 1 + 2 * 10 + 2 * 4);
      ck_assert_int_le(out, 1 + 2 * 10 + 3 * 4);
    }
  }
  ck_assert_str_eq(bandwidth(t, "h14.nic0", "group4.router2"), "1");
  copse_topology_free(t);
}
END_TEST

START_TEST(a_torus_of_routers_has_hosts_in_order) {
  struct copse_topology *t = load_good(
      CLUSTER("one.json", "12",
              "{\"type\": \"torus\", \"bandwidth\": 5, \"link_bandwidth\": 9, \"dims\": [2, 3],"
              " \"router_hosts\": 2}"));
  ck_assert_int_eq(t->n_nodes, 12 * 3 + 6);
  ck_assert_str_eq(bandwidth(t, "h5.nic0", "router0_2"), "5");
  ck_assert_str_eq(bandwidth(t, "router0_2", "router0_0"), "9");
  ck_assert_str_eq(bandwidth(t, "router0_1", "router1_1"), "18");
  ck_assert_str_eq(bandwidth(t, "router0_1", "router1_2"), "none");
  copse_topology_free(t);
}
END_TEST

/* ---- hosts of several kinds ----------------------------------------------------------------- */

#define MIXED(hosts, fabric) \
  "{\"format\": \"copse-cluster/1\", \"hosts\": [" hosts "],\n \"fabric\": " fabric "}"

START_TEST(kinds_of_hosts_follow_each_other) {
  struct copse_topology *t = load_good(
      MIXED("{\"host\": \"two.json\"}, {\"host\": \"one.json\", \"count\": 2, \"bandwidth\": 50},"
            " {\"host\": \"two.json\"}",
            "{\"type\": \"rails\", \"bandwidth\": 25}"));
  ck_assert_int_eq(t->n_ranks, 6);
  ck_assert_int_eq(t->n_nodes, 5 + 3 + 3 + 5 + 2);
  ck_assert_str_eq(bandwidth(t, "h0.nic1", "rail1"), "25");
  ck_assert_str_eq(bandwidth(t, "h2.nic0", "rail0"), "50");
  ck_assert_str_eq(bandwidth(t, "h3.nic1", "rail1"), "25");
  ck_assert_int_eq(t->nodes[copse_topology_find(t, "h2.gpu0")].rank, 3);
  ck_assert_int_eq(t->nodes[copse_topology_find(t, "h3.gpu1")].rank, 5);
  copse_topology_free(t);
  t = load_good(MIXED("{\"host\": \"two.json\"}, {\"host\": \"one.json\", \"bandwidth\": 50}",
                      "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 1}"));
  ck_assert_str_eq(bandwidth(t, "leaf1", "spine"), "50");
  copse_topology_free(t);
}
END_TEST

START_TEST(some_nics_may_not_be_on_the_fabric) {
  struct copse_topology *t = load_good(
      "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"hosts\": 2, \"nics\": "
      "\"*[1-9]\","
      " \"fabric\": {\"type\": \"rails\", \"bandwidth\": 25}}");
  ck_assert_str_eq(bandwidth(t, "h1.nic1", "rail0"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.nic0", "rail0"), "none");
  ck_assert_int_eq(copse_topology_find(t, "rail1"), -1);
  copse_topology_free(t);
  load_bad(
      "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"hosts\": 2, \"nics\": \"mlx*\","
      " \"fabric\": {\"type\": \"rails\", \"bandwidth\": 25}}",
      "or \"net\" with an id like mlx* and can't join a fabric");
}
END_TEST

START_TEST(kinds_of_hosts_are_refused_where_they_make_no_sense) {
  load_bad(MIXED("", "{\"type\": \"flat\", \"bandwidth\": 1}"), "\"hosts\" is empty");
  load_bad(MIXED("7", "{\"type\": \"flat\", \"bandwidth\": 1}"), "a kind of hosts must be");
  load_bad(MIXED("{\"host\": \"one.json\", \"size\": 2}", "{\"type\": \"flat\", \"bandwidth\": 1}"),
           "unknown key \"size\" in a kind of hosts");
  load_bad(
      MIXED("{\"host\": \"one.json\", \"count\": 0}", "{\"type\": \"flat\", \"bandwidth\": 1}"),
      "\"count\" must be an integer from 1");
  load_bad(
      "{\"format\": \"copse-cluster/1\", \"host\": \"one.json\", \"hosts\": [],"
      " \"fabric\": {\"type\": \"flat\", \"bandwidth\": 1}}",
      "\"host\" beside a list of \"hosts\"");
}
END_TEST

/* ---- Slurm -------------------------------------------------------------------------------- */

#define SLURM                                       \
  "# a comment\n"                                   \
  "SwitchName=leaf1 Nodes=n[01-02],x LinkSpeed=7\n" \
  "SwitchName=leaf2 \\\r\n  Nodes=n[03-04]\n"       \
  "switchname=top Switches=leaf[1-2]\n"
#define ON_SLURM(names, rest)                                                                   \
  "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"names\": \"" names               \
  "\",\n \"fabric\": {\"type\": \"slurm\", \"file\": \"topology.conf\", \"bandwidth\": 25" rest \
  "}}"

START_TEST(slurm_switches_carry_what_the_whole_file_can_send) {
  temp_file(folder, "topology.conf", SLURM);
  struct copse_topology *t = load_good(ON_SLURM("n[02-03],x", ", \"oversubscription\": 2"));
  ck_assert_int_eq(t->n_nodes, 3 * 5 + 3);
  ck_assert_str_eq(bandwidth(t, "h0.nic1", "leaf1"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.nic1", "leaf2"), "25");
  ck_assert_str_eq(bandwidth(t, "h2.nic0", "leaf1"), "25");
  ck_assert_str_eq(bandwidth(t, "leaf1", "top"), "75"); /* 3 hosts of 2 NICs of 25, halved */
  ck_assert_str_eq(bandwidth(t, "leaf2", "top"), "50");
  ck_assert_ptr_nonnull(strstr(seen_notes, "topology.conf has no speeds"));
  copse_topology_free(t);
}
END_TEST

static const struct {
  const char *text, *part;
} bad_slurm[] = {
    {"", "no SwitchName="},
    {"Nodes=a\n", "topology.conf:1: Nodes=a where SwitchName=NAME was expected"},
    {"SwitchName=a\n", "needs Nodes= or Switches="},
    {"SwitchName=a Nodes=n Switches=b\n", "needs Nodes= or Switches="},
    {"\nSwitchName=a Nods=n\n", "topology.conf:2: Nods=n isn't known"},
    {"SwitchName=a Nodes=n[1\n", "a [ without ]"},
    {"SwitchName=a Nodes=n[2-1]\n", "a range that ends before it begins"},
    {"SwitchName=a Nodes=n[0-999999999]\n", "too many hosts"},
    {"SwitchName=a Nodes=n1,,n2\n", "an empty name"},
    {"SwitchName=a Nodes=n\nSwitchName=a Nodes=m\n", "SwitchName=a twice"},
    {"SwitchName=a Switches=a\n", "a is a switch below itself"},
    {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is below itself, by way of others"},
    {"SwitchName=a Switches=b\n", "b is named and has no line"},
    {"SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
     "a is below two switches"},
    {"SwitchName=a Nodes=other\n", "host \"n01\" is not in the fabric's file"},
};

START_TEST(bad_slurm_files_are_refused) {
  temp_file(folder, "topology.conf", bad_slurm[_i].text);
  load_bad(ON_SLURM("n01", ""), bad_slurm[_i].part);
}
END_TEST

START_TEST(names_must_fit) {
  temp_file(folder, "topology.conf", SLURM);
  load_bad(ON_SLURM("n01,n01", ""), "host \"n01\" is named twice");
  load_bad(CLUSTER("two.json", "2",
                   "{\"type\": \"slurm\", \"file\": \"topology.conf\", \"bandwidth\": 25}"),
           "give their \"names\"");
  load_bad(
      "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"hosts\": 3,"
      " \"names\": \"n[01-02]\", \"fabric\": {\"type\": \"slurm\","
      " \"file\": \"topology.conf\", \"bandwidth\": 25}}",
      "\"names\" are 2 and \"hosts\" is 3");
}
END_TEST

/* ---- host lists ----------------------------------------------------------------------------- */

static copse_status collect(void *ctx, const char *name) {
  strcat(strcat(ctx, name), " ");
  return COPSE_OK;
}

static const struct {
  const char *list, *names;
} lists[] = {
    {"a", "a "},
    {"a,b1", "a b1 "},
    {"n[1-3]", "n1 n2 n3 "},
    {"n[08-11]", "n08 n09 n10 n11 "},
    {"n[1,3,5-6]x,y", "n1x n3x n5x n6x y "},
    {"r[0-1]n[0-1]", "r0n0 r0n1 r1n0 r1n1 "},
    {"a[1-2],b[7]", "a1 a2 b7 "},
};

START_TEST(host_lists_are_slurms) {
  char names[256] = "";
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_hostlist("t", 1, lists[_i].list, 100, collect, names, &err), &err);
  ck_assert_str_eq(names, lists[_i].names);
}
END_TEST

/* ---- ibnetdiscover ----------------------------------------------------------------------------
 */

#define IB                                                                \
  "# Topology file: generated on ..\n\nvendid=0x2c9\nswitchguid=0xa(a)\n" \
  "Switch\t41 \"S-a\"\t\t# \"leaf one\" enhanced port 0 lid 7 lmc 0\n"    \
  "[1]\t\"H-1\"[1](1) \t\t# \"n01 mlx5_0\" lid 12 4xHDR\n"                \
  "[2]\t\"H-2\"[1](2) \t\t# \"n01 mlx5_10\" lid 13 4xHDR\n"               \
  "[39]\t\"S-b\"[1]\t\t# \"leaf two\" lid 9 4xHDR\n"                      \
  "[40]\t\"S-b\"[2]\t\t# \"leaf two\" lid 9 4xHDR\n\n"                    \
  "Switch\t41 \"S-b\"\t\t# \"leaf two\" enhanced port 0 lid 9 lmc 0\n"    \
  "[1]\t\"S-a\"[39]\t\t# \"leaf one\" lid 7 4xHDR\n"                      \
  "[2]\t\"S-a\"[40]\t\t# \"leaf one\" lid 7 4xHDR\n"                      \
  "[3]\t\"H-3\"[1](3) \t\t# \"n02 mlx5_2\" lid 14 4xNDR\n"                \
  "[4]\t\"H-4\"[1](4) \t\t# \"n02 mlx5_1\" lid 15 2xFDR\n"                \
  "[5]\t\"R-4\"[1](4) \t\t# \"a router\" lid 15 2xFDR\n\n"                \
  "Ca\t1 \"H-1\"\t\t# \"n01 mlx5_0\"\n"                                   \
  "[1](1) \t\"S-a\"[1]\t\t# lid 12 lmc 0 \"leaf one\" lid 7 4xHDR\n"
#define ON_IB                                                                            \
  "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"names\": \"n[01-02]\",\n" \
  " \"fabric\": {\"type\": \"ibnetdiscover\", \"file\": \"ib.txt\"}}"

START_TEST(infiniband_cables_count_once_at_their_own_speed) {
  temp_file(folder, "ib.txt", IB);
  struct copse_topology *t = load_good(ON_IB);
  ck_assert_int_eq(t->n_nodes, 2 * 5 + 2);
  ck_assert_str_eq(bandwidth(t, "leaf one", "leaf two"), "50");
  ck_assert_str_eq(bandwidth(t, "h0.nic0", "leaf one"), "25");
  ck_assert_str_eq(bandwidth(t, "h0.nic1", "leaf one"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.nic0", "leaf two"), "75/22"); /* mlx5_1, 2 lanes of FDR */
  ck_assert_str_eq(bandwidth(t, "h1.nic1", "leaf two"), "50");
  copse_topology_free(t);
}
END_TEST

START_TEST(infiniband_devices_go_by_name_where_the_host_has_names) {
  temp_file(folder, "ib.txt", IB);
  temp_file(folder, "two.json",
            "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"g\", \"type\": \"gpu\"},"
            " {\"id\": \"net@mlx5_2\", \"type\": \"net\"}], \"links\": [{\"src\": \"g\","
            " \"dst\": \"net@mlx5_2\", \"bandwidth\": 9}]}");
  struct copse_topology *t = load_good(
      "{\"format\": \"copse-cluster/1\", \"host\": \"two.json\", \"names\": \"n02\","
      " \"fabric\": {\"type\": \"ibnetdiscover\", \"file\": \"ib.txt\"}}");
  ck_assert_str_eq(bandwidth(t, "h0.net@mlx5_2", "leaf two"), "50");
  copse_topology_free(t);
  load_bad(ON_IB, "host \"n01\" has 2 ports in the fabric's file and 1 NICs");
}
END_TEST

static const struct {
  const char *text, *part;
} bad_ib[] = {
    {"", "no switch in it"},
    {"Switch 4 \"S-a\" # \"a\"\n[1] \"S-b\"[2] # \"b\" lid 1\n", "ib.txt:2: a port without width"},
    {"Switch 4 \"S-a\" # \"a\"\n[1] \"S-b\"[2] # \"b\" 4xZDR\n", "a port without width and speed"},
    {"Switch 4 \"S-a\" # \"a\"\n[1] \"S-b\" # \"b\" 4xHDR\n", "a port's line is such as"},
    {"Switch 4 \"S-a\" # \"a\"\n[x] \"S-b\"[1] # \"b\" 4xHDR\n", "a port's line is such as"},
    {"Switch 4 \"S-a\" # \"a\"\n[1] \"S-b\"[1] 4xHDR\n", "without its comment"},
};

START_TEST(bad_infiniband_files_are_refused) {
  temp_file(folder, "ib.txt", bad_ib[_i].text);
  load_bad(ON_IB, bad_ib[_i].part);
}
END_TEST

START_TEST(a_fabric_alone_is_no_topology) {
  expect_refusal(SLURM, "\"fabric\": {\"type\": \"slurm\"");
  expect_refusal(IB, "\"fabric\": {\"type\": \"ibnetdiscover\"");
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
int main(void) {
  Suite *suite = suite_create("topology/fabrics");
  TCase *all = tcase_create("fabrics");
  tcase_add_checked_fixture(all, set_up, tear_down);
  tcase_add_test(all, a_clos_leaf_sends_up_what_it_takes_in);
  tcase_add_test(all, a_clos_is_oversubscribed_and_spread_over_spines);
  tcase_add_test(all, a_clos_of_one_leaf_has_no_spine);
  tcase_add_test(all, a_clos_can_have_a_leaf_for_each_rail);
  tcase_add_test(all, dragonfly_groups_are_all_joined_and_evenly);
  tcase_add_test(all, a_torus_of_routers_has_hosts_in_order);
  tcase_add_test(all, kinds_of_hosts_follow_each_other);
  tcase_add_test(all, some_nics_may_not_be_on_the_fabric);
  tcase_add_test(all, kinds_of_hosts_are_refused_where_they_make_no_sense);
  tcase_add_test(all, slurm_switches_carry_what_the_whole_file_can_send);
  tcase_add_loop_test(all, bad_slurm_files_are_refused, 0, COUNT(bad_slurm));
  tcase_add_test(all, names_must_fit);
  tcase_add_loop_test(all, host_lists_are_slurms, 0, COUNT(lists));
  tcase_add_test(all, infiniband_cables_count_once_at_their_own_speed);
  tcase_add_test(all, infiniband_devices_go_by_name_where_the_host_has_names);
  tcase_add_loop_test(all, bad_infiniband_files_are_refused, 0, COUNT(bad_ib));
  tcase_add_test(all, a_fabric_alone_is_no_topology);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
