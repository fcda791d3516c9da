/* Dumps and topologies that users have: counts and total bandwidths, once checked by hand. */
#include <glob.h>

#include "base/json.h"
#include "base/text.h"
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

/* ---- the tree of a log -------------------------------------------------------------------------
 */

/* What NCCL prints of a topology, in one of two ways: GPUs as PCI devices, or below them (2.30). */
struct printer {
  const struct copse_topology *t;
  bool below, shorter; /* ids without a system */
  struct copse_text text;
};

static bool is_a(const struct copse_topology *t, int node, const char *type) {
  return strcmp(t->nodes[node].type, type) == 0;
}

static const char *word_of(const struct printer *p, int a, int b) {
  const struct copse_topology *t = p->t;
  bool gpu = is_a(t, a, "gpu"), to = is_a(t, b, "gpu");
  if ((gpu && to) || is_a(t, a, "nvswitch") || is_a(t, b, "nvswitch")) return "NVL";
  if (is_a(t, a, "cpu") && is_a(t, b, "cpu")) return "SYS";
  if (is_a(t, b, "net")) return "NET";
  bool to_cpu = (gpu && is_a(t, b, "cpu")) || (to && is_a(t, a, "cpu"));
  for (int i = 0; to_cpu && i < t->n_links; i++) /* of a GPU that has PCIe too */
    if (t->links[i].src == (gpu ? a : b) && is_a(t, t->links[i].dst, "pcie")) return "C2C";
  return "PCI";
}

static int system_of(const struct copse_topology *t, int node) {
  int host = 0;
  return copse_host_prefix(t->nodes[node].id, &host) > 0 ? host : 0;
}

/* A GPU's number is its bus id, others' are any. */
static void add_name(struct printer *p, const char *word, int node) {
  unsigned long id = (unsigned long)node;
  const char *bus = strchr(p->t->nodes[node].id, '@');
  if (is_a(p->t, node, "gpu")) {
    ck_assert_ptr_nonnull(bus);
    char digits[40] = "";
    for (const char *c = bus + 1; *c; c++)
      if (*c != ':' && *c != '.') strncat(digits, c, 1);
    id = strtoul(digits, NULL, 16);
  }
  if (p->shorter)
    copse_text_add(&p->text, "%s/%lX", word, id);
  else
    copse_text_add(&p->text, "%s/%x-%lx", word, (unsigned)system_of(p->t, node), id);
}

static void begin_line(struct printer *p, int column) {
  copse_text_add(&p->text, "node-b:9:9 [1] NCCL INFO + PCI[9.0] - PCI/0-9\n"); /* another rank's */
  copse_text_add(&p->text, "[2026-01-01 00:00:%02d] node-a:7:70 [0] NCCL INFO %*s", column % 60,
                 column, "");
}

static int add_link(struct printer *p, int column, const char *word, struct copse_q bandwidth) {
  char link[40];
  begin_line(p, column);
  snprintf(link, sizeof link, "+ %s[%2.1f] - ", word, copse_q_to_double(bandwidth));
  copse_text_add(&p->text, "%s", link);
  return column + (int)strlen(link);
}

static const char *kind_of(const struct printer *p, int node) {
  const struct copse_topology *t = p->t;
  return is_a(t, node, "gpu")        ? (p->below ? "DEV" : "GPU")
         : is_a(t, node, "cpu")      ? "CPU"
         : is_a(t, node, "nvswitch") ? "NVS"
         : is_a(t, node, "nic")      ? "NIC"
         : is_a(t, node, "net")      ? "NET"
                                     : "PCI";
}

static void print_below(struct printer *p, int node, int from, int column) {
  const struct copse_topology *t = p->t;
  ck_assert_int_lt(column, 300);
  if (p->below && is_a(t, node, "gpu")) {
    (void)add_link(p, column, "LOC", (struct copse_q){5000, 1});
    add_name(p, "GPU", node);
    copse_text_add(&p->text, " (0)\n");
  }
  for (int i = 0; i < t->n_links; i++) {
    int to = t->links[i].dst;
    const char *word = word_of(p, node, to);
    if (t->links[i].src != node || to == from) continue;
    int next = add_link(p, column, word, t->links[i].bandwidth);
    add_name(p, kind_of(p, to), to);
    if (is_a(t, to, "net"))
      copse_text_add(&p->text, " (0/1/1/%f)", copse_q_to_double(t->links[i].bandwidth));
    copse_text_add(&p->text, "\n");
    if (strcmp(word, "PCI") == 0) print_below(p, to, node, next);
  }
}

static char *print_tree(const struct copse_topology *t, bool below, bool shorter) {
  struct printer p = {.t = t, .below = below, .shorter = shorter};
  size_t size;
  char *text;
  begin_line(&p, 0);
  copse_text_add(&p.text, "=== System : maxBw 1.0 totalBw 1.0 ===\n");
  for (int v = 0; v < t->n_nodes; v++) {
    if (!is_a(t, v, "cpu")) continue;
    begin_line(&p, 0);
    add_name(&p, "CPU", v);
    copse_text_add(&p.text, " (1/1/3)\n");
    print_below(&p, v, -1, 0);
  }
  begin_line(&p, 0);
  copse_text_add(&p.text, "==========================================\n");
  ck_assert_int_eq(copse_text_take(&p.text, &text, &size, NULL), COPSE_OK);
  return text;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Each link as "gpu@0000:01:00.0 cpu 24.0", sorted: GPUs by name, others by type. */
static char **list_links(const struct copse_topology *t) {
  char **lines = calloc((size_t)t->n_links + 1, sizeof *lines);
  ck_assert_ptr_nonnull(lines);
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    const struct copse_node *a = &t->nodes[l->src], *b = &t->nodes[l->dst];
    bool port = is_a(t, l->src, "net") || is_a(t, l->dst, "net");
    ck_assert_int_ge(
        asprintf(&lines[i], port ? "%s %s %.6f" : "%s %s %.1f", a->rank >= 0 ? a->id : a->type,
                 b->rank >= 0 ? b->id : b->type, copse_q_to_double(l->bandwidth)),
        0);
  }
  qsort(lines, (size_t)t->n_links, sizeof *lines, by_text);
  return lines;
}

static void free_links(char **lines) {
  for (char **p = lines; *p; p++) free(*p);
  free(lines);
}

/* As NCCL prints them, machines of one host and of one NVLink domain are read as their XML is. */
static void expect_read_back(const char *path) {
  struct copse_topology *t = load(path, COPSE_LINKS_ALL);
  bool several = false;
  for (int v = 0; v < t->n_nodes; v++) several = several || system_of(t, v) > 0;
  for (int way = 0; way < (several ? 2 : 3); way++) {
    char *text = print_tree(t, way == 1, way == 2);
    struct copse_topology *back = read_good(text, COPSE_LINKS_ALL);
    ck_assert_int_eq(back->n_ranks, t->n_ranks);
    ck_assert_msg(back->n_nodes == t->n_nodes, "%s: %d nodes, not %d", path, back->n_nodes,
                  t->n_nodes);
    ck_assert_int_eq(back->n_links, t->n_links);
    char **lines = list_links(t), **read = list_links(back);
    for (int i = 0; i < t->n_links; i++)
      ck_assert_msg(strcmp(lines[i], read[i]) == 0, "%s: %s, read %s", path, lines[i], read[i]);
    free_links(lines);
    free_links(read);
    copse_topology_free(back);
    free(text);
  }
  copse_topology_free(t);
}

START_TEST(trees_in_logs_are_the_machines) {
  static const char *const folders[] = {"tests/data/nccl/*.topo.xml",
                                        COPSE_TEST_OUTSIDE "/nccl/data/*.topo.xml"};
  glob_t found = {0};
  int n = 0;
  for (int i = 0; i < 2; i++) (void)glob(folders[i], i > 0 ? GLOB_APPEND : 0, NULL, &found);
  for (size_t i = 0; i < found.gl_pathc; i++, n++) expect_read_back(found.gl_pathv[i]);
  ck_assert_int_gt(n, 3);
  globfree(&found);
}
END_TEST

START_TEST(damaged_trees_are_refused_or_read) {
  struct copse_topology *t = load("tests/data/nccl/pcie-8-2s-skl.topo.xml", COPSE_LINKS_ALL);
  char *text = print_tree(t, true, false);
  expect_changed_bytes_answered(text, 3);
  *strstr(text, " =====") = '\0'; /* cut off */
  expect_refusal(text, "without a whole tree");
  expect_refusal(
      "a:1:2 [0] NCCL INFO === System : maxBw 1\na:1:2 [0] NCCL INFO CPU/0-0 (1)\n"
      "a:1:2 [0] NCCL INFO ====\n",
      "t:2: its tree has no GPU");
  free(text);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/real_files");
  TCase *tc = tcase_create("files");
  tcase_add_loop_test(tc, dumps_give_the_known_graph, 0, (int)(sizeof dumps / sizeof *dumps));
  tcase_add_test(tc, reference_topologies_have_the_stated_counts);
  tcase_add_test(tc, trees_in_logs_are_the_machines);
  tcase_add_test(tc, damaged_trees_are_refused_or_read);
  tcase_add_test(tc, our_own_dump_is_an_nvswitch_host);
  tcase_add_test(tc, a_cloud_image_with_a_switch_can_be_a_host);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
