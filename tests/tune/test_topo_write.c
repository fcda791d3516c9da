/*
 * Topology XML that is written for NCCL: read back by copse's reader it is the same topology, by
 * the reader that follows NCCL's it is without what NCCL misreads.
 */
#include <glob.h>

#include "nccl/tune/topo_write.h"
#include "topology/helpers.h"
#include "tune/nccl_reader.h"

/* ---- random hosts as NCCL knows them
 * ------------------------------------------------------------- */

struct host {
  struct copse_topology_builder *builder;
  struct copse_err err;
  uint64_t random;
};

static int pick(struct host *h, int low, int high) {
  return copse_test_random_int(&h->random, low, high);
}

static int add(struct host *h, const char *type, int number) {
  char id[32];
  int index = -1;
  snprintf(id, sizeof id, "%s%d", type, number);
  const struct copse_node node = {.id = id, .type = type, .rank = -1};
  ASSERT_OK(copse_builder_add_node(h->builder, 0, &node, &index, &h->err), &h->err);
  return index;
}

static void join(struct host *h, int a, int b, int64_t num, int64_t den) {
  struct copse_q bandwidth;
  ASSERT_OK(copse_q_make(num, den, &bandwidth, &h->err), &h->err);
  ASSERT_OK(copse_builder_add_duplex(h->builder, 0, a, b, bandwidth, COPSE_Q_ZERO, &h->err),
            &h->err);
}

/* CPUs joined all to all, PCIe switches below them or below each other, GPUs and NICs below any. */
static struct copse_topology *random_host(uint64_t seed, bool *has_nics) {
  static const int sockets[] = {6, 10, 16, 22, 40}, rates[] = {15, 30, 60, 120, 240, 480};
  static const int lanes[] = {1, 2, 4, 8, 12, 16, 32};
  struct host host = {.err = COPSE_ERR_INIT, .random = seed}, *h = &host;
  struct copse_topology *t = NULL;
  int up[24], n_up = pick(h, 1, 4), socket = sockets[pick(h, 0, 4)], gpus[12];
  int n_switches = pick(h, 0, 6), n_gpus = pick(h, 2, 8), n_nics = pick(h, 0, 4);
  ASSERT_OK(copse_builder_new("random", &h->builder, &h->err), &h->err);
  for (int i = 0; i < n_up; i++) up[i] = add(h, "cpu", i);
  for (int i = 0; i < n_up; i++)
    for (int j = 0; j < i; j++) join(h, up[i], up[j], socket, 1);
  for (int i = 0; i < n_switches + n_gpus + n_nics; i++) {
    bool gpu = i >= n_switches && i < n_switches + n_gpus;
    int v = add(h, i < n_switches ? "pcie" : gpu ? "gpu" : "nic", i);
    join(h, v, up[pick(h, 0, n_up - 1)], rates[pick(h, 0, 5)] * lanes[pick(h, 0, 6)], 80);
    if (i < n_switches) up[n_up++] = v;
    if (gpu) gpus[i - n_switches] = v;
    if (i < n_switches + n_gpus) continue;
    int port = add(h, "net", i);
    join(h, v, port, pick(h, 1, 8) * 25, 2);
  }
  *has_nics = n_nics > 0;
  if (pick(h, 0, 1)) { /* on one switch, full: sm_90 */
    int s = add(h, "nvswitch", 0);
    for (int i = 0; i < n_gpus; i++) join(h, gpus[i], s, 1854, 5);
  } else { /* links of 20 GB/s, full at one GPU: sm_80 */
    for (int i = 1; i < n_gpus; i++) join(h, gpus[i], gpus[i - 1], i == 1 ? 240 : 20, 1);
    for (int i = 3; i < n_gpus; i++)
      if (pick(h, 0, 1)) join(h, gpus[i], gpus[i - 2], 40, 1);
  }
  ASSERT_OK(copse_builder_finish(h->builder, &t, &h->err), &h->err);
  copse_builder_free(h->builder);
  return t;
}

/* ---- equality but for names
 * ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ b * 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return (z ^ (z >> 27)) * 0x94d049bb133111ebu;
}

static uint64_t of_text(const char *text) {
  uint64_t hash = 1;
  for (; *text; text++) hash = mix(hash, (uint64_t)(unsigned char)*text);
  return hash;
}

static int by_hash(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Colours of nodes: their type and rank, refined by their links' bandwidths and ends. GPUs have
 * ranks, so that no two are alike, and what is below them neither. */
static uint64_t fingerprint(const struct copse_topology *t) {
  size_t n = (size_t)t->n_nodes;
  uint64_t *colour = calloc(n, sizeof *colour), *next = calloc(n, sizeof *next), sum = 0;
  ck_assert(colour && next);
  for (size_t v = 0; v < n; v++)
    colour[v] = mix(of_text(t->nodes[v].type), (uint64_t)t->nodes[v].rank);
  for (int round = 0; round < 12; round++) {
    memcpy(next, colour, n * sizeof *next);
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *l = &t->links[i];
      uint64_t bandwidth = mix((uint64_t)l->bandwidth.num, (uint64_t)l->bandwidth.den);
      next[l->src] += mix(mix(colour[l->dst], bandwidth), 1);
      next[l->dst] += mix(mix(colour[l->src], bandwidth), 2);
    }
    for (size_t v = 0; v < n; v++) colour[v] = mix(next[v], 3);
  }
  qsort(colour, n, sizeof *colour, by_hash);
  for (size_t v = 0; v < n; v++) sum = mix(sum, colour[v]);
  free(colour);
  free(next);
  return sum;
}

/* ---- as NCCL reads it
 * ---------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *known) {
  for (; *known; known++)
    if (strcmp(text, *known) == 0) return true;
  return false;
}

static bool is_bus_id(const char *text) {
  return strlen(text) == 12 && strspn(text, "0123456789abcdef:.") == 12;
}

/* Every element has what NCCL needs, in words that it knows. */
static void assert_nccl_reads(const char *text) {
  static const char *const speed_words[] = {
      "2.5 GT/s", "2.5 GT/s PCIe",  "5 GT/s",  "5.0 GT/s PCIe",  "8 GT/s",         "8.0 GT/s PCIe",
      "16 GT/s",  "16.0 GT/s PCIe", "32 GT/s", "32.0 GT/s PCIe", "64.0 GT/s PCIe", NULL};
  static const char *const archs[] = {"x86_64", "arm64", "ppc64", NULL};
  struct reader_xml xml = reader_parse(text, 128, 256);
  ck_assert_str_eq(xml.nodes[0].name, "system");
  ck_assert_str_eq(reader_need(&xml, 0, "version"), "1");
  for (int i = 1; i < xml.n; i++) {
    const char *name = xml.nodes[i].name;
    ck_assert(!reader_get(&xml, i, "keep"));
    if (strcmp(name, "pci") == 0) {
      ck_assert(is_bus_id(reader_need(&xml, i, "busid")));
      ck_assert_msg(is_one_of(reader_need(&xml, i, "link_speed"), speed_words), "%s",
                    reader_need(&xml, i, "link_speed"));
      ck_assert_int_gt(atoi(reader_need(&xml, i, "link_width")), 0);
      ck_assert_int_eq(strncmp(reader_need(&xml, i, "class"), "0x0", 3), 0);
      for (int k = 1; k < i; k++)
        if (strcmp(xml.nodes[k].name, "pci") == 0)
          ck_assert_str_ne(reader_get(&xml, k, "busid"), reader_get(&xml, i, "busid"));
    } else if (strcmp(name, "cpu") == 0) {
      ck_assert(is_one_of(reader_need(&xml, i, "arch"), archs));
      reader_need(&xml, i, "numaid");
      if (strcmp(reader_get(&xml, i, "arch"), "x86_64") == 0) {
        reader_need(&xml, i, "vendor");
        reader_need(&xml, i, "familyid");
        reader_need(&xml, i, "modelid");
      }
    } else if (strcmp(name, "gpu") == 0) {
      reader_need(&xml, i, "dev");
      reader_need(&xml, i, "sm");
      reader_need(&xml, i, "rank");
      reader_need(&xml, i, "gdr");
    } else if (strcmp(name, "nvlink") == 0) {
      reader_need(&xml, i, "target");
      reader_need(&xml, i, "tclass");
      ck_assert_int_gt(atoi(reader_need(&xml, i, "count")), 0);
    } else if (strcmp(name, "net") == 0) {
      reader_need(&xml, i, "dev");
      ck_assert_int_gt(atoi(reader_need(&xml, i, "speed")), 0);
      reader_need(&xml, i, "name");
    }
  }
  reader_free(&xml);
}

static const struct copse_notes notes = {take_note, NULL};

static char *written(const struct copse_topology *t, int sm) {
  const struct copse_nccl_topo_options options = {.sm = sm, .notes = &notes};
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  seen_notes[0] = '\0';
  ASSERT_OK(copse_nccl_topo_write(t, &options, &text, &size, &err), &err);
  ck_assert_uint_eq(strlen(text), size);
  assert_nccl_reads(text);
  return text;
}

static struct copse_topology *parse_quietly(const char *text, enum copse_link_mode links) {
  const struct copse_topology_options options = {.links = links};
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_parse("t", text, strlen(text), &options, &t, &err), &err);
  return t;
}

START_TEST(random_hosts_read_back_the_same) {
  bool has_nics;
  struct copse_topology *t = random_host((uint64_t)_i, &has_nics);
  char *text = written(t, 0);
  ck_assert_msg(!strstr(seen_notes, "not what NCCL counts"), "%s", seen_notes);
  struct copse_topology *back = parse_quietly(text, COPSE_LINKS_ALL);
  ck_assert_int_eq(back->n_nodes, t->n_nodes);
  ck_assert_int_eq(back->n_links, t->n_links);
  ck_assert_msg(fingerprint(back) == fingerprint(t), "%s", text);
  copse_topology_free(back);
  copse_topology_free(t);
  free(text);
}
END_TEST

/* The check above can fail: another bandwidth, another place. */
START_TEST(fingerprints_tell_hosts_apart) {
  bool has_nics;
  struct copse_topology *a = random_host(1, &has_nics), *b = random_host(1, &has_nics);
  ck_assert_uint_eq(fingerprint(a), fingerprint(b));
  ((struct copse_link *)b->links)[b->n_links / 2].bandwidth.num++;
  ck_assert_uint_ne(fingerprint(a), fingerprint(b));
  copse_topology_free(a);
  copse_topology_free(b);
}
END_TEST

/* ---- topologies of the catalogue
 * ----------------------------------------------------------------- */

static struct copse_topology *load(const char *path) {
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
  return t;
}

START_TEST(a_box_of_the_data_sheets_has_nccl_s_links) {
  struct copse_topology *t = load("topologies/dgx-h100.json");
  char *text = written(t, 0);
  ck_assert_ptr_nonnull(strstr(text, "sm=\"90\""));
  ck_assert_ptr_nonnull(strstr(text, "<nvlink target=\"fffffff:ffff:ff\" count=\"18\""));
  ck_assert_ptr_nonnull(strstr(text, "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\""));
  ck_assert_msg(strstr(seen_notes, "gpu0>nvswitch of 450 GB/s is 370.8 to it") ||
                    strstr(seen_notes, "63 GB/s is 48 to it"),
                "%s", seen_notes);
  ck_assert_ptr_nonnull(strstr(seen_notes, "sm_90"));
  copse_topology_free(t);
  free(text);
}
END_TEST

START_TEST(a_cluster_gives_its_first_host) {
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:4@300 nics:2@25 rails", NULL, &t, &err), &err);
  char *text = written(t, 80);
  struct copse_topology *back = parse_quietly(text, COPSE_LINKS_ALL);
  ck_assert_int_eq(back->n_ranks, 4);
  ck_assert_ptr_nonnull(strstr(text, "count=\"15\"")); /* of 20 GB/s */
  ck_assert_ptr_nonnull(strstr(text, "speed=\"200000\""));
  ck_assert_ptr_nonnull(strstr(seen_notes, "made up"));
  copse_topology_free(back);
  copse_topology_free(t);
  free(text);
}
END_TEST

static void refuses(const char *text, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_nccl_topo_options options = {0};
  struct copse_topology *t = parse_quietly(text, COPSE_LINKS_ALL);
  char *xml = NULL;
  size_t size = 0;
  ASSERT_FAILS(copse_nccl_topo_write(t, &options, &xml, &size, &err), COPSE_UNSUPPORTED, &err,
               part);
  ck_assert_ptr_null(xml);
  copse_topology_free(t);
}

#define JSON(nodes, links) \
  "{\"format\": \"copse-topology/1\", \"nodes\": [" nodes "], \"links\": [" links "]}"
#define NODE(id, type) "{\"id\": \"" id "\", \"type\": \"" type "\"}"
#define LINK(a, b, bw) "{\"src\": \"" a "\", \"dst\": \"" b "\", \"bandwidth\": " bw "}"

START_TEST(what_nccl_has_no_words_for_is_refused) {
  refuses(JSON(NODE("a", "gpu") "," NODE("b", "gpu") "," NODE("s", "nvswitch") "," NODE("r",
                                                                                        "nvswitch"),
               LINK("a", "s", "20") "," LINK("b", "s", "20") "," LINK("a", "r", "20")),
          "r: NCCL takes all NVSwitches");
  refuses(JSON(NODE("a", "gpu") "," NODE("p", "pcie") "," NODE("q", "pcie"),
               LINK("a", "p", "24") "," LINK("a", "q", "24")),
          "two ways up");
  refuses(JSON(NODE("a", "gpu") "," NODE("p", "router") "," NODE("n", "nic"),
               LINK("a", "p", "24") "," LINK("n", "p", "24")),
          "p: NCCL has no router in a host");
  refuses(JSON(NODE("a", "gpu") "," NODE("c", "cpu") "," NODE("s", "nvswitch"),
               LINK("a", "c", "24") "," LINK("a", "s", "20") "," LINK("s", "c", "20")),
          "NCCL has no such link");
}
END_TEST

START_TEST(domains_of_72_gpus_do_not_fit) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_nccl_topo_options options = {0};
  struct copse_topology *t = load("topologies/gb200-nvl72.json");
  char *xml = NULL;
  size_t size = 0;
  ASSERT_FAILS(copse_nccl_topo_write(t, &options, &xml, &size, &err), COPSE_UNSUPPORTED, &err,
               "elements; NCCL reads at most 256");
  copse_topology_free(t);
}
END_TEST

/* ---- files that are there
 * ------------------------------------------------------------------------ */

static char *mended(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  char *out = NULL;
  size_t size = 0;
  seen_notes[0] = '\0';
  ASSERT_OK(copse_nccl_topo_mend("t.xml", text, strlen(text), &notes, &out, &size, &err), &err);
  ck_assert_uint_eq(strlen(out), size);
  return out;
}

static void assert_same(const char *a, const char *b, enum copse_link_mode links) {
  struct copse_topology *x = parse_quietly(a, links), *y = parse_quietly(b, links);
  char *of_x = to_json(x), *of_y = to_json(y);
  ck_assert_str_eq(of_x, of_y);
  copse_topology_free(x);
  copse_topology_free(y);
  free(of_x);
  free(of_y);
}

START_TEST(what_nccl_misreads_is_mended) {
  const char *text =
      "<?xml version='1.0'?>\n<!-- a dump -->\n<system version='1'>\n"
      "\t<cpu numaid='0' arch='aarch64' vendor='' host_hash='0x1'>\n"
      "\t\t<pci busid='0000:1A:00.0' class='0x030200' link_speed='16.0 GT/s'\n link_width='16'>"
      "<gpu dev='0' sm='80' rank='0' gdr='1' keep='1'/></pci></cpu></system>";
  char *out = mended(text);
  assert_nccl_reads(out);
  assert_same(text, out, COPSE_LINKS_ALL);
  ck_assert_ptr_nonnull(strstr(out, "busid=\"0000:1a:00.0\""));
  ck_assert_ptr_nonnull(strstr(out, "link_speed=\"16.0 GT/s PCIe\""));
  ck_assert_ptr_nonnull(strstr(out, "arch=\"arm64\""));
  ck_assert_msg(strstr(seen_notes, "link_speed=\"16.0 GT/s\", which NCCL misr"), "%s", seen_notes);
  free(out);
}
END_TEST

START_TEST(other_xml_is_refused) {
  static const struct {
    const char *text, *says;
    copse_status status;
  } cases[] = {{"<graphs version='1'/>", "<system>", COPSE_BAD_INPUT},
               {"<system version='1'", "t.xml", COPSE_BAD_INPUT},
               {"<system version='1' a='&lt;'/>", "without markup", COPSE_UNSUPPORTED},
               {"<system version='1'><cpu host_hash='1'/><cpu host_hash='2'/></system>",
                "several hosts", COPSE_UNSUPPORTED}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    char *out = NULL;
    size_t size = 0;
    ASSERT_FAILS(copse_nccl_topo_mend("t.xml", cases[i].text, strlen(cases[i].text), NULL, &out,
                                      &size, &err),
                 cases[i].status, &err, cases[i].says);
    ck_assert_ptr_null(out);
  }
}
END_TEST

/* Files that are there: mended they mean the same, and they survive being made anew of the
 * topology. */
static void check_file(const char *path) {
  char *data = NULL;
  size_t size = 0;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
  char *out = mended(data);
  struct reader_xml xml = reader_parse(out, 128, 256);
  reader_free(&xml);
  for (int links = COPSE_LINKS_DEFAULT; links <= COPSE_LINKS_ALL; links++)
    assert_same(data, out, (enum copse_link_mode)links);
  free(out);
  struct copse_topology *t = parse_quietly(data, COPSE_LINKS_ALL);
  char *anew = written(t, 0);
  struct copse_topology *back = parse_quietly(anew, COPSE_LINKS_ALL);
  if (!strstr(seen_notes, "not what NCCL counts"))
    ck_assert_msg(fingerprint(back) == fingerprint(t), "%s", path);
  copse_topology_free(back);
  copse_topology_free(t);
  free(anew);
  free(data);
}

START_TEST(nccl_s_files_read_back_the_same) {
  glob_t files = {0};
  check_file("topologies/dgx-a100.xml");
  if (glob(COPSE_TEST_OUTSIDE "/nccl/data/*.topo.xml", 0, NULL, &files) != 0)
    COPSE_SKIP("no " COPSE_TEST_OUTSIDE "/nccl/data");
  for (size_t i = 0; i < files.gl_pathc; i++)
    if (!strstr(files.gl_pathv[i], "gb200-mnnvl") && !strstr(files.gl_pathv[i], "nvl72"))
      check_file(files.gl_pathv[i]);
  globfree(&files);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/topo_write");
  TCase *t = tcase_create("topologies");
  tcase_add_loop_test(t, random_hosts_read_back_the_same, 0, COPSE_TEST_UP_TO(200, 30));
  tcase_add_test(t, fingerprints_tell_hosts_apart);
  tcase_add_test(t, a_box_of_the_data_sheets_has_nccl_s_links);
  tcase_add_test(t, a_cluster_gives_its_first_host);
  tcase_add_test(t, what_nccl_has_no_words_for_is_refused);
  tcase_add_test(t, domains_of_72_gpus_do_not_fit);
  tcase_add_test(t, what_nccl_misreads_is_mended);
  tcase_add_test(t, other_xml_is_refused);
  tcase_add_test(t, nccl_s_files_read_back_the_same);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
