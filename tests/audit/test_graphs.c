/*
 * NCCL's graph files and how NCCL joins hosts: what NCCL 2.30.7's own code joined for machines of
 * all kinds comes out of ours; what NCCL refuses is refused, what it misreads is remarked on;
 * damaged files never crash.
 */
#include "nccl/graph.h"

#include "base/text.h"
#include "nccl/judge.h"
#include "nccl_files.h"

/* ---- joining ------------------------------------------------------------------------------ */

/* The joined rings and trees in the form of NCCL's log lines. */
static void print_joined(const struct copse_nccl_joined *j, struct copse_text *text) {
  for (int c = 0; c < j->n_channels; c++) {
    copse_text_add(text, "Channel %02d/%02d :", c, j->n_channels);
    for (int i = 0, r = 0; i < j->n_ranks; i++, r = copse_nccl_role_of(j, c, r)->next)
      copse_text_add(text, " %d", r);
    copse_text_add(text, "\n");
  }
  for (int r = 0; r < j->n_ranks; r++) {
    copse_text_add(text, "rank %d Trees", r);
    for (int c = 0; c < j->n_channels; c++) {
      const struct copse_nccl_role *s = copse_nccl_role_of(j, c, r);
      copse_text_add(text, " [%d] %d/%d/%d->%d->%d", c, s->down[0], s->down[1], s->down[2], r,
                     s->up);
    }
    copse_text_add(text, "\n");
  }
}

/* Removes blanks before line ends. */
static void trim(char *text) {
  char *to = text;
  for (char *p = text; *p; p++) {
    if (*p == '\n')
      while (to > text && to[-1] == ' ') to--;
    *to++ = *p;
  }
  *to = '\0';
}

static bool check_joined(const char *folder, const char *name, int hosts) {
  char graph_path[256], joined_path[256];
  if (!machine_file(folder, name, hosts, "joined.txt", joined_path) ||
      !machine_file(folder, name, hosts, "graph.xml", graph_path) || access(graph_path, R_OK) != 0)
    return false;
  char path[256];
  snprintf(path, sizeof path, "%s/%s.topo.xml", folder, name);
  if (access(path, R_OK) != 0) return false;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = load_machine(folder, name, hosts);
  struct copse_nccl_machine machine;
  struct copse_nccl_graphs graphs;
  struct copse_nccl_joined joined;
  struct copse_text ours = {0};
  char *theirs = NULL;
  size_t size;
  ASSERT_OK(copse_nccl_machine_open(t, &machine, &err), &err);
  ASSERT_OK(copse_nccl_graphs_load(graph_path, NULL, &graphs, &err), &err);
  ASSERT_OK(copse_nccl_join(graph_path, &(const struct copse_nccl_graphs *){&graphs}, 1, &machine, &joined,
                            &err), &err);
  ASSERT_OK(copse_file_read(joined_path, &theirs, &size, &err), &err);
  print_joined(&joined, &ours);
  trim(theirs);
  ck_assert_msg(strcmp(theirs, ours.data) == 0, "%s of %d hosts is\n%.2000s\nand NCCL's\n%.2000s",
                name, hosts, ours.data, theirs);
  free(theirs);
  copse_text_free(&ours);
  copse_nccl_joined_free(&joined);
  copse_nccl_graphs_free(&graphs);
  copse_nccl_machine_free(&machine);
  copse_topology_free(t);
  return true;
}

static int check_folder(const char *folder) {
  static char names[256][64];
  int n = list_machines(folder, names, 256), checked = 0;
  for (int i = 0; i < n; i++)
    for (int hosts = 2; hosts <= 4; hosts += 2) checked += check_joined(folder, names[i], hosts);
  return checked;
}

START_TEST(hosts_are_joined_as_nccl_joins_them) { ck_assert_int_ge(check_folder(OWN_MACHINES), 4); }
END_TEST

START_TEST(all_machines_are_joined_as_nccl_joins_them) {
  if (access(SHARED_MACHINES, R_OK) != 0) COPSE_SKIP("no %s", SHARED_MACHINES);
  ck_assert_int_ge(check_folder(SHARED_MACHINES), 40);
}
END_TEST

/* Written down from NCCL's documents: parents over 5 hosts, and the mirrored tree over 4. */
START_TEST(double_trees_are_nccls) {
  static const int up5[2][5] = {{-1, 2, 4, 2, 0}, {1, -1, 3, 0, 3}};
  static const int up4[2][4] = {{-1, 2, 0, 2}, {1, 3, 1, -1}};
  struct copse_nccl_tree_place p[2];
  for (int tree = 0; tree < 2; tree++) {
    for (int h = 0; h < 4; h++) {
      copse_nccl_double_tree(4, h, p);
      ck_assert_int_eq(p[tree].up, up4[tree][h]);
    }
    for (int h = 0; h < 5; h++) {
      copse_nccl_double_tree(5, h, p);
      ck_assert_msg(p[tree].up == up5[tree][h], "tree %d of 5: host %d below %d", tree, h,
                    p[tree].up);
    }
  }
}
END_TEST

/* For any number of hosts: one root, every host below its parent, parents and children agree. */
START_TEST(double_trees_span) {
  int n = _i + 1;
  for (int tree = 0; tree < 2; tree++) {
    int roots = 0;
    for (int h = 0; h < n; h++) {
      struct copse_nccl_tree_place p[2], q[2];
      copse_nccl_double_tree(n, h, p);
      roots += p[tree].up < 0;
      int steps = 0, at = h;
      for (; at >= 0 && steps <= n; steps++) {
        copse_nccl_double_tree(n, at, q);
        at = q[tree].up;
      }
      ck_assert_int_le(steps, n);
      if (p[tree].up < 0) continue;
      copse_nccl_double_tree(n, p[tree].up, q);
      ck_assert_int_eq(q[tree].down[p[tree].child], h);
    }
    ck_assert_int_eq(roots, 1);
  }
}
END_TEST

/* ---- reading ------------------------------------------------------------------------------- */

#define GRAPH(attributes, channels) \
  "<graphs version=\"1\"><graph " attributes ">" channels "</graph></graphs>"
#define NUMBERS                                                                            \
  "pattern=\"4\" crossnic=\"0\" speedintra=\"45.1\" speedinter=\"1e2\" typeintra=\"NVL\" " \
  "typeinter=\"PXN\" samechannels=\"1\""
#define TWO \
  "<channel><net dev=\"0x3\"/><gpu dev=\"0\"/><gpu dev=\"0x1\"/><net dev=\"1\"/></channel>"

static char remarks[8192];
static void take_remark(void *ctx, const char *text) {
  (void)ctx;
  size_t n = strlen(remarks);
  snprintf(remarks + n, sizeof remarks - n, "%s\n", text);
}

static copse_status parse(const char *text, struct copse_nccl_graphs *out, struct copse_err *err) {
  const struct copse_notes notes = {take_remark, NULL};
  remarks[0] = '\0';
  return copse_nccl_graphs_parse("g", text, strlen(text), &notes, out, err);
}

START_TEST(a_graph_is_read_exactly) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_nccl_graphs g;
  ASSERT_OK(parse("<!-- as NCCL wrote it -->\n" GRAPH("id=\"0\" nchannels=\"0x1\" " NUMBERS, TWO),
                  &g, &err),
            &err);
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(&g, COPSE_NCCL_RING);
  ck_assert_ptr_nonnull(ring);
  ck_assert_str_eq(COPSE_Q_STRING(ring->speed_intra), "451/10");
  ck_assert_str_eq(COPSE_Q_STRING(ring->speed_inter), "100");
  ck_assert_int_eq(ring->n_channels, 1);
  ck_assert_int_eq(ring->type_intra, COPSE_NCCL_PATH_NVL);
  ck_assert_int_eq(ring->type_inter, COPSE_NCCL_PATH_PXN);
  ck_assert(ring->same_channels);
  ck_assert_int_eq(ring->channels[0].n_gpus, 2);
  ck_assert_int_eq((int)ring->channels[0].nets[0], 3);
  ck_assert_int_eq((int)ring->channels[0].nets[1], 1);
  ck_assert_ptr_null(ring->channels[0].ranks);
  ck_assert_ptr_null(copse_nccl_graph(&g, COPSE_NCCL_TREE));
  ck_assert_str_eq(remarks, "");
  copse_nccl_graphs_free(&g);
}
END_TEST

START_TEST(systems_and_ranks_are_read) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_nccl_graphs g;
  ASSERT_OK(parse(GRAPH("id=\"1\" nchannels=\"1\" " NUMBERS,
                        "<channel><gpu dev='0x200000000000003' rank='11'/></channel>"),
                  &g, &err),
            &err);
  const struct copse_nccl_channel *c = &g.graph[COPSE_NCCL_TREE].channels[0];
  ck_assert_int_eq(copse_nccl_dev_system(c->devs[0]), 2);
  ck_assert_int_eq((int)copse_nccl_dev_index(c->devs[0]), 3);
  ck_assert_int_eq(c->ranks[0], 11);
  copse_nccl_graphs_free(&g);
}
END_TEST

/* What NCCL's reader, or its initialisation right after, fails on. */
START_TEST(what_nccl_refuses_is_refused) {
  static const char *const cases[][2] = {
      {"<?xml version=\"1.0\"?><graphs version=\"1\"/>", "an XML declaration"},
      {"<!DOCTYPE x><graphs version=\"1\"/>", "DOCTYPE"},
      {"<graphs version=\"1\">\n\t<graph/></graphs>", "g:2: NCCL refuses a tab"},
      {"<graphs\nversion=\"1\"></graphs>", "a line end or tab inside of a tag"},
      {"<graphs version=\"1\">text</graphs>", "text between elements"},
      {"<graphs version=\"1\"></graphs >", "a blank in a closing tag"},
      {"<graphs version=\"2\"></graphs>", "version \"2\""},
      {"<graphs></graphs>", "version \"\""},
      {"<system version=\"1\"></system>", "the root element is <system>"},
      {"<graphs version=\"1\"><graph/></graphs>", "a <graph> without id"},
      {GRAPH("id=\"0\" nchannels=\"1\"", TWO), "without pattern"},
      {GRAPH("id=\"0\" nchannels=\"2\" " NUMBERS, TWO), "nchannels is 2 and there are 1"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS, "<channel/>"), "a channel without a <gpu>"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS, "<channel><gpu rank=\"0\"/></channel>"),
       "a <gpu> without dev"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS, "<channel><gpu dev=\"x\"/></channel>"),
       "no hexadecimal number"},
      {GRAPH("id=\"0\" nchannels=\"-1\" " NUMBERS, TWO), "no whole number"},
      {GRAPH("id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"0\" speedintra=\"1\" "
             "speedinter=\"1\" typeintra=\"NVL\" samechannels=\"0\"",
             ""),
       "without typeinter, on which NCCL crashes"},
      {GRAPH("id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"0\" speedintra=\"nan\" "
             "speedinter=\"1\" typeintra=\"NVL\" typeinter=\"NVL\" samechannels=\"0\"",
             ""),
       "is no number from 0 on"},
      {"<graphs version=\"1\"><graph id=\"0\"", "not well-formed"},
      {"", "not well-formed"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_nccl_graphs g;
    copse_status status = parse(cases[i][0], &g, &err);
    ck_assert_msg(status == COPSE_BAD_INPUT && strstr(err.text, cases[i][1]),
                  "case %zu: \"%s\" lacks \"%s\"", i, err.text, cases[i][1]);
    copse_nccl_graphs_free(&g);
  }
}
END_TEST

START_TEST(what_nccl_misreads_is_remarked_on) {
  static const char *const cases[][2] = {
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS, TWO TWO), "2 <channel>, of which nchannels"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS, "<channel><gpu dev=\"10\"/></channel>"),
       "hexadecimal to NCCL from 2.21 on, 16"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS,
             "<channel><gpu dev=\"1\"/><gpu dev=\"1\"/></channel>"),
       "names GPU 0x1 twice"},
      {GRAPH("id=\"1\" nchannels=\"2\" " NUMBERS, TWO "<channel><gpu dev=\"0\"/></channel>"),
       "joins such a tree in silence"},
      {GRAPH("id=\"0\" nchannels=\"1\" " NUMBERS,
             "<channel><net dev=\"0\"/><gpu dev=\"1\"/></channel>"),
       "sends over NIC 0"},
      {GRAPH("id=\"0\" pattern=\"9\" crossnic=\"0\" nchannels=\"0\" speedintra=\"1\" "
             "speedinter=\"1\" typeintra=\"C2C\" typeinter=\"PIXEL\" samechannels=\"0\"",
             ""),
       "typeintra=\"C2C\" is a word that NCCL can't read; it takes it for LOC"},
      {GRAPH("id=\"7\" nchannels=\"1\" " NUMBERS, TWO), "graph 7 is none"},
      {"<graphs version=\"1\"><graph id=\"0\" nchannels=\"1\" " NUMBERS ">" TWO "</graph>"
       "<graph id=\"0\" nchannels=\"0\" " NUMBERS "/></graphs>",
       "the last one counts"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_nccl_graphs g;
    ASSERT_OK(parse(cases[i][0], &g, &err), &err);
    ck_assert_msg(strstr(remarks, cases[i][1]) != NULL, "\"%s\" lacks \"%s\"", remarks,
                  cases[i][1]);
    copse_nccl_graphs_free(&g);
  }
}
END_TEST

START_TEST(graphs_are_told_by_content) {
  static const char *const yes[] = {"<graphs version=\"1\">", " \n<!-- c --> <graphs>"};
  static const char *const no[] = {"", "<", "<system version=\"1\">", "graphs", "<!-- <graphs>"};
  for (size_t i = 0; i < 2; i++) ck_assert(copse_nccl_is_graphs(yes[i], strlen(yes[i])));
  for (size_t i = 0; i < 5; i++) ck_assert(!copse_nccl_is_graphs(no[i], strlen(no[i])));
}
END_TEST

/* A file cut off, or with bytes changed: an error or a graph that joins or is refused. */
START_TEST(damaged_files_do_not_crash) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_nccl_machine machine;
  struct copse_topology *t = load_machine(OWN_MACHINES, "pcie-8-2s-skl", 2);
  uint64_t random = 20;
  char *data;
  size_t size;
  ASSERT_OK(copse_nccl_machine_open(t, &machine, &err), &err);
  ASSERT_OK(copse_file_read(OWN_MACHINES "/pcie-8-2s-skl.2.graph.xml", &data, &size, &err), &err);
  for (int i = 0; i < COPSE_TEST_SOME(2000); i++) {
    struct copse_nccl_graphs g;
    struct copse_nccl_joined joined;
    struct copse_err ignored = COPSE_ERR_INIT;
    char *copy = malloc(size);
    memcpy(copy, data, size);
    size_t n = i % 4 == 0 ? (size_t)copse_test_random_int(&random, 0, (int)size) : size;
    for (int k = 0; k < i % 4; k++)
      copy[copse_test_random_int(&random, 0, (int)size - 1)] =
          "<>\"'0x=1/9 \n"[copse_test_random_int(&random, 0, 11)];
    if (copse_nccl_graphs_parse("g", copy, n, NULL, &g, &ignored) == COPSE_OK) {
      copse_status status = copse_nccl_join(
          "g", &(const struct copse_nccl_graphs *){&g}, 1, &machine, &joined, &ignored);
      ck_assert(status == COPSE_OK || status == COPSE_BAD_INPUT);
      copse_nccl_joined_free(&joined);
    }
    copse_nccl_graphs_free(&g);
    free(copy);
  }
  free(data);
  copse_nccl_machine_free(&machine);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl graphs");
  TCase *joining = tcase_create("joining"), *reading = tcase_create("reading");
  tcase_add_test(joining, hosts_are_joined_as_nccl_joins_them);
  tcase_add_test(joining, all_machines_are_joined_as_nccl_joins_them);
  tcase_add_test(joining, double_trees_are_nccls);
  tcase_add_loop_test(joining, double_trees_span, 0, 40);
  tcase_add_test(reading, a_graph_is_read_exactly);
  tcase_add_test(reading, systems_and_ranks_are_read);
  tcase_add_test(reading, what_nccl_refuses_is_refused);
  tcase_add_test(reading, what_nccl_misreads_is_remarked_on);
  tcase_add_test(reading, graphs_are_told_by_content);
  tcase_add_test(reading, damaged_files_do_not_crash);
  suite_add_tcase(suite, joining);
  suite_add_tcase(suite, reading);
  return copse_test_run(suite);
}
