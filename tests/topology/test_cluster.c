/* Cluster JSON: hosts on a fabric. */
#include "helpers.h"

#define HOST                                                                                \
  "{\"format\": \"copse-topology/1\", \"name\": \"host\", \"nodes\": ["                     \
  "{\"id\": \"g0\", \"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"},"               \
  "{\"id\": \"n0\", \"type\": \"nic\"}, {\"id\": \"n1\", \"type\": \"nic\"}], \"links\": [" \
  "{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 300},"                                 \
  "{\"src\": \"g0\", \"dst\": \"n0\", \"bandwidth\": 24, \"latency\": 0.5},"                \
  "{\"src\": \"g1\", \"dst\": \"n1\", \"bandwidth\": 24}]}"
#define CLUSTER(hosts, fabric)                                                    \
  "{\"format\": \"copse-cluster/1\", \"name\": \"c\", \"host\": \"host.json\",\n" \
  " \"hosts\": " hosts ",\n \"fabric\": " fabric "}"

static const char *folder;
static void set_up(void) {
  folder = temp_folder();
  temp_file(folder, "host.json", HOST);
}
static void tear_down(void) { remove_folder(folder); }

static copse_status load(const char *text, struct copse_topology **t, struct copse_err *err) {
  const struct copse_notes notes = {take_note, NULL};
  const struct copse_topology_options options = {.notes = &notes};
  return copse_topology_load(temp_file(folder, "cluster.json", text), &options, t, err);
}

static struct copse_topology *load_good(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(load(text, &t, &err), &err);
  return t;
}

static void load_bad(const char *text, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(load(text, &t, &err), COPSE_BAD_INPUT, &err, part);
  ck_assert_ptr_null(t);
}

START_TEST(flat_fabric_joins_every_nic_to_one_switch) {
  struct copse_topology *t =
      load_good(CLUSTER("3", "{\"type\": \"flat\", \"bandwidth\": 25, \"latency\": 1.5}"));
  ck_assert_str_eq(t->name, "c");
  ck_assert_int_eq(t->n_nodes, 3 * 4 + 1);
  ck_assert_int_eq(t->n_ranks, 6);
  ck_assert_int_eq(t->n_links, 3 * 6 + 3 * 2 * 2);
  ck_assert_str_eq(bandwidth(t, "h2.n1", "fabric"), "25");
  ck_assert_str_eq(bandwidth(t, "fabric", "h0.n0"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.g0", "h1.g1"), "300");
  ck_assert_str_eq(bandwidth(t, "h0.g0", "h1.g0"), "none");
  ck_assert_str_eq(t->nodes[copse_topology_find(t, "fabric")].type, "switch");
  int link = copse_topology_find_link(t, copse_topology_find(t, "h1.n0"),
                                      copse_topology_find(t, "fabric"));
  ck_assert(t->links[link].latency.num == 3 && t->links[link].latency.den == 2);
  copse_topology_free(t);
}
END_TEST

START_TEST(ranks_go_host_by_host) {
  struct copse_topology *t = load_good(CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 25}"));
  ck_assert_str_eq(t->nodes[t->rank_nodes[1]].id, "h0.g1");
  ck_assert_str_eq(t->nodes[t->rank_nodes[2]].id, "h1.g0");
  copse_topology_free(t);
}
END_TEST

START_TEST(routes_of_a_host_are_each_host_s) {
  temp_file(folder, "host.json",
            "{\"format\": \"copse-topology/1\", \"name\": \"host\", \"nodes\": ["
            "{\"id\": \"g0\", \"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"},"
            "{\"id\": \"n0\", \"type\": \"nic\"}], \"links\": ["
            "{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 5},"
            "{\"src\": \"g0\", \"dst\": \"n0\", \"bandwidth\": 24},"
            "{\"src\": \"g1\", \"dst\": \"n0\", \"bandwidth\": 24}],"
            "\"routes\": [{\"path\": [\"g1\", \"n0\", \"g0\"], \"duplex\": false}]}");
  struct copse_topology *t = load_good(CLUSTER("3", "{\"type\": \"flat\", \"bandwidth\": 25}"));
  ck_assert_int_eq(t->n_routes, 3);
  for (int h = 0; h < 3; h++) {
    const struct copse_stated_route *route = copse_topology_route(t, 2 * h + 1, 2 * h);
    ck_assert_ptr_nonnull(route);
    ck_assert_int_eq(route->n_nodes, 3);
    for (int i = 0; i < 3; i++)
      ck_assert_str_eq(t->nodes[route->nodes[i]].id + 3, ((const char *[]){"g1", "n0", "g0"})[i]);
    ck_assert_int_eq(t->nodes[route->nodes[1]].id[1] - '0', h);
    ck_assert_ptr_null(copse_topology_route(t, 2 * h, 2 * h + 1));
  }
  copse_topology_free(t);
}
END_TEST

START_TEST(rails_join_the_same_nic_of_every_host) {
  struct copse_topology *t =
      load_good(CLUSTER("2", "{\"type\": \"rails\", \"bandwidth\": \"25\"}"));
  ck_assert_int_eq(t->n_nodes, 2 * 4 + 2);
  ck_assert_int_eq(t->n_links, 2 * 6 + 2 * 2 * 2);
  ck_assert_str_eq(bandwidth(t, "h0.n1", "rail1"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.n1", "rail1"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.n1", "rail0"), "none");
  ck_assert_int_eq(copse_topology_find(t, "spine"), -1);
  copse_topology_free(t);
}
END_TEST

START_TEST(spine_joins_the_rails) {
  struct copse_topology *t =
      load_good(CLUSTER("2", "{\"type\": \"rails\", \"bandwidth\": 25, \"spine_bandwidth\": 100}"));
  ck_assert_int_eq(t->n_nodes, 2 * 4 + 3);
  ck_assert_str_eq(bandwidth(t, "rail0", "spine"), "100");
  ck_assert_str_eq(bandwidth(t, "spine", "rail1"), "100");
  copse_topology_free(t);
  t = load_good(CLUSTER("2", "{\"type\": \"rails\", \"bandwidth\": 25, \"spine_bandwidth\": 0}"));
  ck_assert_int_eq(copse_topology_find(t, "spine"), -1);
  copse_topology_free(t);
}
END_TEST

START_TEST(net_ports_of_an_xml_host_take_the_cables) {
  temp_file(
      folder, "host.json",
      "<system version=\"1\"><cpu numaid=\"0\">"
      "<pci busid=\"0000:01:00.0\" class=\"0x030000\"><gpu sm=\"80\" rank=\"0\"/></pci>"
      "<pci busid=\"0000:02:00.0\" class=\"0x020000\"><nic><net name=\"p0\" speed=\"200000\"/>"
      "</nic></pci></cpu></system>");
  struct copse_topology *t = load_good(CLUSTER("2", "{\"type\": \"rails\", \"bandwidth\": 25}"));
  ck_assert_int_eq(t->n_nodes, 2 * 4 + 1);
  ck_assert_str_eq(bandwidth(t, "h1.net@p0", "rail0"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.nic@0000:02:00.0", "rail0"), "none");
  copse_topology_free(t);
}
END_TEST

START_TEST(a_cluster_can_be_a_host) {
  temp_file(folder, "inner.json", CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 25}"));
  struct copse_topology *t = load_good(
      "{\"format\": \"copse-cluster/1\", \"host\": \"inner.json\", \"hosts\": 2,"
      " \"fabric\": {\"type\": \"flat\", \"bandwidth\": 5}}");
  ck_assert_str_eq(t->name, "cluster");
  ck_assert_int_eq(t->n_nodes, 2 * 9 + 1);
  ck_assert_str_eq(bandwidth(t, "h1.h0.n1", "fabric"), "5");
  ck_assert_str_eq(bandwidth(t, "h1.h0.n1", "h1.fabric"), "25");
  copse_topology_free(t);
}
END_TEST

#define NESTED(host)                                    \
  "{\"format\": \"copse-cluster/1\", \"host\": \"" host \
  "\", \"hosts\": 1,"                                   \
  " \"fabric\": {\"type\": \"flat\", \"bandwidth\": 5}}"

START_TEST(four_levels_of_clusters_are_possible_and_no_more) {
  temp_file(folder, "1.json", NESTED("host.json"));
  temp_file(folder, "2.json", NESTED("1.json"));
  temp_file(folder, "3.json", NESTED("2.json"));
  struct copse_topology *t = load_good(NESTED("3.json"));
  ck_assert_int_ge(copse_topology_find(t, "h0.h0.h0.h0.g1"), 0);
  copse_topology_free(t);
  temp_file(folder, "4.json", NESTED("3.json"));
  load_bad(NESTED("4.json"), "1.json:1: clusters within clusters more than 4 levels deep");
}
END_TEST

static const struct {
  const char *text, *part;
} refusals[] = {
    {CLUSTER("2", "{\"type\": \"clos\", \"bandwidth\": 25}"), "needs \"leaf_hosts\": "},
    {CLUSTER("2", "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 0}"),
     "\"leaf_hosts\" must be an integer from 1"},
    {CLUSTER("2",
             "{\"type\": \"clos\", \"bandwidth\": 25, \"leaf_hosts\": 2,"
             " \"oversubscription\": 0}"),
     "\"oversubscription\" must be positive"},
    {CLUSTER("2",
             "{\"type\": \"dragonfly\", \"bandwidth\": 1, \"group_routers\": 2,"
             " \"local_bandwidth\": 1}"),
     "needs \"global_bandwidth\": "},
    {CLUSTER("3",
             "{\"type\": \"torus\", \"bandwidth\": 1, \"link_bandwidth\": 1,"
             " \"dims\": [2, 2]}"),
     "cluster.json:3: 3 hosts, 1 on a router, need a torus of 3 routers; \"dims\" multiply to at "
     "least 4"},
    {CLUSTER("3", "{\"type\": \"torus\", \"bandwidth\": 1, \"link_bandwidth\": 1, \"dims\": []}"),
     "\"dims\" is empty"},
    {CLUSTER("2", "{\"type\": \"ring\", \"bandwidth\": 25}"), "unknown fabric type \"ring\""},
    {CLUSTER("2", "{\"type\": \"flat\"}"),
     "cluster.json:3: a flat fabric needs \"bandwidth\": GB/s per NIC and direction, such as 50"},
    {CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 0}"), "\"bandwidth\" must be positive"},
    {CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 1e400}"), "out of the range"},
    {CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 1, \"latency\": -1}"),
     "\"latency\" must not be negative"},
    {CLUSTER("2", "{\"type\": \"rails\", \"bandwidth\": 1, \"spine_bandwidth\": -1}"),
     "\"spine_bandwidth\" must not be negative"},
    {CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 1, \"spine_bandwidth\": 1}"),
     "unknown key \"spine_bandwidth\" in a flat fabric"},
    {CLUSTER("2", "{\"bandwidth\": 1}"), "\"fabric\" needs \"type\": flat, rails"},
    {CLUSTER("2", "7"), "\"fabric\" must be an object"},
    {CLUSTER("0", "{\"type\": \"flat\", \"bandwidth\": 1}"), "cluster.json:2: \"hosts\" must be"},
    {CLUSTER("-1", "{\"type\": \"flat\", \"bandwidth\": 1}"), "\"hosts\" must be an integer"},
    {CLUSTER("1.5", "{\"type\": \"flat\", \"bandwidth\": 1}"), "\"hosts\" must be an integer"},
    {CLUSTER("\"2\"", "{\"type\": \"flat\", \"bandwidth\": 1}"),
     "a cluster needs \"hosts\": how many"},
    {CLUSTER("4000000", "{\"type\": \"flat\", \"bandwidth\": 1}"),
     "cluster.json:2: 4000000 hosts make 16000001 nodes"},
    {CLUSTER("99999999999999999999", "{\"type\": \"flat\", \"bandwidth\": 1}"), "\"hosts\" must"},
    {"{\"format\": \"copse-cluster/1\", \"hosts\": 1, \"host\": \"host.json\"}",
     "needs \"fabric\": "},
    {"{\"format\": \"copse-cluster/1\", \"hosts\": 1, \"fabric\": {\"type\": \"flat\","
     " \"bandwidth\": 1}}",
     "needs \"host\": "},
    {"{\"format\": \"copse-cluster/1\", \"hosts\": 1, \"size\": 4}", "unknown key \"size\""},
    {"{\"format\": \"copse-cluster/1\", \"host\": \"cluster.json\", \"hosts\": 1,"
     " \"fabric\": {\"type\": \"flat\", \"bandwidth\": 1}}",
     "does a host name the cluster it is part of"},
};

START_TEST(bad_clusters_are_refused) { load_bad(refusals[_i].text, refusals[_i].part); }
END_TEST

START_TEST(host_without_nic_is_refused) {
  temp_file(folder, "host.json",
            "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"}],"
            " \"links\": []}");
  load_bad(CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 1}"), "no node of type \"nic\"");
}
END_TEST

START_TEST(errors_of_the_host_name_its_file) {
  temp_file(folder, "host.json", "{\"format\":\n 3}");
  load_bad(CLUSTER("2", "{\"type\": \"flat\", \"bandwidth\": 1}"), "/host.json:2: \"format\"");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  const char *missing =
      "\n{\"format\": \"copse-cluster/1\", \"host\": \"/nowhere.json\", \"hosts\": 1,"
      " \"fabric\": {\"type\": \"flat\", \"bandwidth\": 1}}";
  ASSERT_FAILS(copse_topology_parse("t", missing, strlen(missing), NULL, &t, &err), COPSE_IO, &err,
               "t:2: \"host\": /nowhere.json: cannot open");
}
END_TEST

START_TEST(catalogue_clusters_compose) {
  static const struct {
    const char *file;
    int ranks, nodes, links;
  } known[] = {{"a100-x2.json", 16, 42, 96}, {"a100-x4.json", 32, 76, 192}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    char path[64];
    snprintf(path, sizeof path, "topologies/%s", known[i].file);
    ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
    ck_assert_int_eq(t->n_ranks, known[i].ranks);
    ck_assert_int_eq(t->n_nodes, known[i].nodes);
    ck_assert_int_eq(t->n_links, known[i].links);
    copse_topology_free(t);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/cluster");
  TCase *good = tcase_create("composition"), *bad = tcase_create("refusals");
  tcase_add_checked_fixture(good, set_up, tear_down);
  tcase_add_checked_fixture(bad, set_up, tear_down);
  tcase_add_test(good, flat_fabric_joins_every_nic_to_one_switch);
  tcase_add_test(good, ranks_go_host_by_host);
  tcase_add_test(good, routes_of_a_host_are_each_host_s);
  tcase_add_test(good, rails_join_the_same_nic_of_every_host);
  tcase_add_test(good, spine_joins_the_rails);
  tcase_add_test(good, net_ports_of_an_xml_host_take_the_cables);
  tcase_add_test(good, a_cluster_can_be_a_host);
  tcase_add_test(good, four_levels_of_clusters_are_possible_and_no_more);
  tcase_add_test(good, catalogue_clusters_compose);
  tcase_add_loop_test(bad, bad_clusters_are_refused, 0, (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(bad, host_without_nic_is_refused);
  tcase_add_test(bad, errors_of_the_host_name_its_file);
  suite_add_tcase(suite, good);
  suite_add_tcase(suite, bad);
  return copse_test_run(suite);
}
