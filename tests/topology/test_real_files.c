/* Dumps and topologies that users have: counts and total bandwidths, once checked by hand. */
#include "base/json.h"
#include "helpers.h"

static const struct {
  const char *file;
  enum copse_link_mode mode;
  int ranks, nodes, links;
  const char *bandwidth;
} dumps[] = {
    {"aws_p4d.xml", COPSE_LINKS_NVLINK, 8, 8, 0, "0"},
    {"aws_p4d.xml", COPSE_LINKS_DEFAULT, 8, 18, 34, "404"},
    {"azure_ndv4.xml", COPSE_LINKS_ALL, 8, 24, 52, "1152"},
    {"ibm_h100_gx3d.xml", COPSE_LINKS_NVLINK, 8, 9, 16, "29664/5"},
    {"ibm_h100_gx3d.xml", COPSE_LINKS_ALL, 8, 35, 82, "39579/5"},
    {"ibm_h100_gx3d.xml", COPSE_LINKS_DEFAULT, 8, 33, 64, "39344/5"},
    {"mixed_nvlink_5gpu.xml", COPSE_LINKS_NVLINK, 5, 5, 12, "1854/5"},
    {"mixed_nvlink_5gpu.xml", COPSE_LINKS_ALL, 5, 11, 32, "14121/20"},
    {"mixed_nvlink_5gpu.xml", COPSE_LINKS_DEFAULT, 5, 11, 32, "14121/20"},
    {"rccl_topo_16p1h.xml", COPSE_LINKS_NVLINK, 16, 16, 56, "4032"},
    {"rccl_topo_16p1h.xml", COPSE_LINKS_ALL, 16, 64, 188, "7504"},
    {"rccl_topo_16p1h.xml", COPSE_LINKS_DEFAULT, 16, 56, 152, "6736"},
    {"rccl_topo_4p2h.xml", COPSE_LINKS_NVLINK, 8, 8, 16, "384"},
    {"rccl_topo_4p2h.xml", COPSE_LINKS_DEFAULT, 8, 21, 56, "1057"},
    {"rccl_topo_8p6l_6nic.xml", COPSE_LINKS_NVLINK, 8, 8, 48, "1152"},
    {"rccl_topo_8p6l_6nic.xml", COPSE_LINKS_ALL, 8, 30, 106, "2540"},
    {"rccl_topo_8p6l_6nic.xml", COPSE_LINKS_DEFAULT, 8, 30, 104, "2508"},
    {"rccl_topo_8p_940.xml", COPSE_LINKS_NVLINK, 8, 8, 56, "2688"},
    {"rccl_topo_8p_940.xml", COPSE_LINKS_ALL, 8, 50, 154, "7372"},
    {"rccl_topo_8p_940.xml", COPSE_LINKS_DEFAULT, 8, 48, 136, "6560"},
    {"rccl_topo_8p_pcie.xml", COPSE_LINKS_NVLINK, 8, 8, 0, "0"},
    {"rccl_topo_8p_pcie.xml", COPSE_LINKS_ALL, 8, 21, 40, "673"},
};

static struct copse_topology *load(const char *path, enum copse_link_mode mode) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  const struct copse_topology_options options = {.links = mode};
  ASSERT_OK(copse_topology_load(path, &options, &t, &err), &err);
  return t;
}

START_TEST(dumps_give_the_known_graph) {
  char name[64];
  snprintf(name, sizeof name, "dumps/%s", dumps[_i].file);
  struct copse_topology *t = load(copse_test_data(name), dumps[_i].mode);
  ck_assert_int_eq(t->n_ranks, dumps[_i].ranks);
  ck_assert_int_eq(t->n_nodes, dumps[_i].nodes);
  ck_assert_int_eq(t->n_links, dumps[_i].links);
  ck_assert_str_eq(total_bandwidth(t), dumps[_i].bandwidth);
  struct copse_err err = COPSE_ERR_INIT;
  int unbalanced;
  ASSERT_OK(copse_topology_find_unbalanced(t, &unbalanced, NULL, NULL, &err), &err);
  ck_assert_int_eq(unbalanced, -1);
  char *text = to_json(t);
  struct copse_topology *back = read_good(text, COPSE_LINKS_DEFAULT);
  char *again = to_json(back);
  ck_assert_str_eq(text, again);
  free(text);
  free(again);
  copse_topology_free(back);
  copse_topology_free(t);
}
END_TEST

START_TEST(reference_topologies_have_the_stated_counts) {
  const char *path = copse_test_data("reference/optima.json");
  struct copse_err err = COPSE_ERR_INIT;
  char *data = NULL;
  size_t size = 0;
  struct copse_json optima;
  ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
  ASSERT_OK(copse_json_parse("optima.json", data, size, &optima, &err), &err);
  COPSE_JSON_EACH (item, optima.root) {
    char name[96];
    int64_t ranks = 0, relays = 0, links = 0;
    snprintf(name, sizeof name, "reference/%s.json", item->string);
    path = copse_test_data(name);
    ASSERT_OK(copse_json_get_int(&optima, item, "ranks", 1, 1000, &ranks, &err), &err);
    ASSERT_OK(copse_json_get_int(&optima, item, "relays", 0, 1000, &relays, &err), &err);
    ASSERT_OK(copse_json_get_int(&optima, item, "links", 0, 10000, &links, &err), &err);
    struct copse_topology *t = load(path, COPSE_LINKS_DEFAULT);
    ck_assert_str_eq(t->name, item->string);
    ck_assert_int_eq(t->n_ranks, ranks);
    ck_assert_int_eq(t->n_nodes, ranks + relays);
    ck_assert_int_eq(t->n_links, links);
    copse_topology_free(t);
  }
  copse_json_free(&optima);
  free(data);
}
END_TEST

START_TEST(our_own_dump_is_an_nvswitch_host) {
  struct copse_topology *t = load("topologies/dgx-a100.xml", COPSE_LINKS_ALL);
  ck_assert_str_eq(t->name, "dgx-a100");
  ck_assert_int_eq(t->n_ranks, 8);
  ck_assert_int_eq(t->n_nodes, 41);
  ck_assert_int_eq(t->n_links, 100);
  ck_assert_str_eq(total_bandwidth(t), "5776");
  ck_assert_str_eq(bandwidth(t, "gpu@0000:07:00.0", "nvswitch"), "240");
  ck_assert_str_eq(bandwidth(t, "nic@0000:0c:00.0", "net@mlx5_0"), "25");
  copse_topology_free(t);
}
END_TEST

/* A cloud's image as a host: the user's switch, and only the ways to the NICs beside it. */
START_TEST(a_cloud_image_with_a_switch_can_be_a_host) {
  const char *path = copse_test_data("dumps/azure_ndv4.xml");
  char text[512];
  snprintf(text, sizeof text,
           "{\"format\": \"copse-cluster/1\", \"host\": \"%s\", \"hosts\": 2,"
           " \"nvlink_switch\": 240, \"fabric\": {\"type\": \"rails\", \"bandwidth\": 25}}",
           path);
  struct copse_topology *t = read_good(text, COPSE_LINKS_DEFAULT);
  int switches = 0, cpus = 0, joined = 0;
  for (int i = 0; i < t->n_nodes; i++) {
    switches += strcmp(t->nodes[i].type, "nvswitch") == 0;
    cpus += strcmp(t->nodes[i].type, "cpu") == 0;
  }
  for (int r = 0; r < t->n_ranks; r++)
    joined +=
        strcmp(bandwidth(t, t->nodes[t->rank_nodes[r]].id, r < 8 ? "h0.nvswitch" : "h1.nvswitch"),
               "240") == 0;
  ck_assert_int_eq(t->n_ranks, 16);
  ck_assert_int_eq(joined, 16);
  ck_assert_int_eq(switches, 2);
  ck_assert_int_eq(cpus, 0);
  ck_assert_int_ge(copse_topology_find(t, "rail7"), 0);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/real_files");
  TCase *tc = tcase_create("files");
  tcase_add_loop_test(tc, dumps_give_the_known_graph, 0, (int)(sizeof dumps / sizeof *dumps));
  tcase_add_test(tc, reference_topologies_have_the_stated_counts);
  tcase_add_test(tc, our_own_dump_is_an_nvswitch_host);
  tcase_add_test(tc, a_cloud_image_with_a_switch_can_be_a_host);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
