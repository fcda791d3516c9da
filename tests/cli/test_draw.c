/*
 * Pictures: well-formed, complete (every node, every direction of every link), true (loads worked
 * out again from the schedule file), safe with hostile names, refused in one line without
 * Graphviz.
 */
#include <cjson/cJSON.h>
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

static bool have_graphviz(void) { return system("dot -V >/dev/null 2>&1") == 0; }
#define NEED_GRAPHVIZ() \
  if (!have_graphviz()) COPSE_SKIP("no Graphviz")

/* ---- reading pictures ------------------------------------------------------------------------ */

struct picture {
  xmlDocPtr document;
  xmlXPathContextPtr context;
};

static struct picture open_picture(const char *name) {
  struct picture p;
  char *text = copse_test_read(name);
  p.document = xmlReadMemory(text, (int)strlen(text), name, NULL,
                             XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
  ck_assert_msg(p.document != NULL, "%s is not well-formed", name);
  p.context = xmlXPathNewContext(p.document);
  xmlXPathRegisterNs(p.context, BAD_CAST "s", BAD_CAST "http://www.w3.org/2000/svg");
  free(text);
  return p;
}

static void close_picture(struct picture *p) {
  xmlXPathFreeContext(p->context);
  xmlFreeDoc(p->document);
}

static int count(const struct picture *p, const char *path) {
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  ck_assert_ptr_nonnull(found);
  int n = found->nodesetval ? found->nodesetval->nodeNr : 0;
  xmlXPathFreeObject(found);
  return n;
}

/* Each number from 0 to n - 1 exactly once in the attribute, over all elements. */
static void assert_complete(const struct picture *p, const char *attribute, int n) {
  char path[64];
  int *seen = calloc((size_t)n + 1, sizeof *seen), total = 0;
  snprintf(path, sizeof path, "//s:g/@%s", attribute);
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  for (int i = 0; i < found->nodesetval->nodeNr; i++) {
    char *value = (char *)xmlNodeGetContent(found->nodesetval->nodeTab[i]), *at = value, *end;
    for (long v = strtol(at, &end, 10); end != at; at = end, v = strtol(at, &end, 10)) {
      ck_assert_msg(v >= 0 && v < n, "%s %ld", attribute, v);
      seen[v]++;
      total++;
    }
    xmlFree(value);
  }
  for (int v = 0; v < n; v++) ck_assert_msg(seen[v] == 1, "%s %d: %d times", attribute, v, seen[v]);
  ck_assert_int_eq(total, n);
  xmlXPathFreeObject(found);
  free(seen);
}

/* The <title> of the element with the attribute; the caller frees it. */
static char *title_of(const struct picture *p, const char *attribute, int i) {
  char path[64];
  snprintf(path, sizeof path, "//s:g[@%s='%d']/s:title", attribute, i);
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  ck_assert_msg(found->nodesetval && found->nodesetval->nodeNr == 1, "%s", path);
  char *text = (char *)xmlNodeGetContent(found->nodesetval->nodeTab[0]);
  char *copy = strdup(text);
  xmlFree(text);
  xmlXPathFreeObject(found);
  return copy;
}

static int json_int(const char *key) {
  cJSON *json = cJSON_Parse(result.out);
  ck_assert_ptr_nonnull(json);
  int value = cJSON_GetObjectItem(json, key)->valueint;
  cJSON_Delete(json);
  return value;
}

/* ---- topologies -------------------------------------------------------------------------------
 */

static const char *const files[] = {
    "topologies/a100-host.json",
    "topologies/a100-x2.json",
    "topologies/a100-x4.json",
    "topologies/dgx-a100.xml",
    "tests/data/reference/a100-x8.json",
    "tests/data/reference/dgx1-v100.json",
    "tests/data/reference/mi250-x2.json",
    "tests/data/reference/torus-4x4x2.json",
    "tests/data/reference/random-1.json",
    "tests/data/dumps/rccl_topo_16p1h.xml",
    "tests/data/dumps/azure_ndv4.xml",
};

START_TEST(a_topology_s_picture_is_well_formed_and_complete) {
  NEED_GRAPHVIZ();
  const char *file = files[_i];
  run("@ topo %s --draw %%/t.svg --json", file);
  ck_assert_msg(result.status == 0, "%s", result.err);
  struct picture p = open_picture("t.svg");
  assert_complete(&p, "data-node", json_int("nodes"));
  assert_complete(&p, "data-links", json_int("links"));
  ck_assert_int_eq(count(&p, "//s:script"), 0);
  close_picture(&p);
}
END_TEST

START_TEST(hosts_are_framed_and_named) {
  NEED_GRAPHVIZ();
  run("@ topo topologies/a100-x4.json --draw %%/t.svg --matrix"); /* both */
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "300 NVS"));
  run("@ topo topologies/a100-x4.json --draw %%/t.svg");
  struct picture p = open_picture("t.svg");
  ck_assert_int_eq(count(&p, "//s:rect[@class='host']"), 4);
  ck_assert_int_eq(count(&p, "//s:text[@class='hostname']"), 4);
  ck_assert_int_eq(count(&p, "//s:text[@class='hostname'][text()='h3']"), 1);
  close_picture(&p);
}
END_TEST

/* No two nodes overlap, and none sticks out of the picture. */
START_TEST(nodes_do_not_overlap) {
  NEED_GRAPHVIZ();
  const char *file = files[_i];
  run("@ topo %s --draw %%/t.svg", file);
  struct picture p = open_picture("t.svg");
  xmlXPathObjectPtr found =
      xmlXPathEvalExpression(BAD_CAST "//s:g[@data-node]/s:rect[@class='box']", p.context);
  int n = found->nodesetval->nodeNr;
  double(*box)[4] = calloc((size_t)n, sizeof *box);
  static const char *const names[4] = {"x", "y", "width", "height"};
  for (int i = 0; i < n; i++)
    for (int j = 0; j < 4; j++) {
      char *value = (char *)xmlGetProp(found->nodesetval->nodeTab[i], BAD_CAST names[j]);
      box[i][j] = atof(value);
      xmlFree(value);
    }
  for (int i = 0; i < n; i++) {
    ck_assert(box[i][0] >= 0 && box[i][1] >= 0);
    for (int j = 0; j < i; j++)
      ck_assert_msg(box[i][0] + box[i][2] <= box[j][0] || box[j][0] + box[j][2] <= box[i][0] ||
                        box[i][1] + box[i][3] <= box[j][1] || box[j][1] + box[j][3] <= box[i][1],
                    "%s: boxes %d and %d", file, i, j);
  }
  free(box);
  xmlXPathFreeObject(found);
  close_picture(&p);
}
END_TEST

START_TEST(hostile_names_are_text) {
  NEED_GRAPHVIZ();
  static const char *const ids[] = {"<script>alert(1)</script>", "\"];n [shellcmd=\"x\"", "a&b'",
                                    "]]>--", "\xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x8c\xb3 tree"};
  cJSON *json = cJSON_CreateObject(), *nodes = cJSON_AddArrayToObject(json, "nodes"),
        *links = cJSON_AddArrayToObject(json, "links");
  cJSON_AddStringToObject(json, "format", "copse-topology/1");
  cJSON_AddStringToObject(json, "name", "</title><x y=\"");
  for (int i = 0; i < 5; i++) {
    cJSON *node = cJSON_CreateObject(), *link = cJSON_CreateObject();
    cJSON_AddStringToObject(node, "id", ids[i]);
    cJSON_AddStringToObject(node, "type", i < 4 ? "gpu" : "\"><!--");
    cJSON_AddItemToArray(nodes, node);
    cJSON_AddStringToObject(link, "src", ids[i]);
    cJSON_AddStringToObject(link, "dst", ids[(i + 1) % 5]);
    cJSON_AddNumberToObject(link, "bandwidth", 10);
    cJSON_AddItemToArray(links, link);
  }
  char *text = cJSON_Print(json);
  copse_test_write("hostile.json", text);
  cJSON_free(text);
  cJSON_Delete(json);
  run("@ topo %%/hostile.json --draw %%/t.svg");
  ck_assert_msg(result.status == 0, "%s", result.err);
  struct picture p = open_picture("t.svg");
  assert_complete(&p, "data-node", 5);
  assert_complete(&p, "data-links", 10);
  ck_assert_int_eq(count(&p, "//s:script"), 0);
  ck_assert_int_eq(count(&p, "//s:x"), 0);
  for (int i = 0; i < 5; i++) {
    char *title = title_of(&p, "data-node", i);
    ck_assert_msg(strncmp(title, ids[i], strlen(ids[i])) == 0, "'%s'", title);
    free(title);
  }
  close_picture(&p);
}
END_TEST

/* ---- schedules --------------------------------------------------------------------------------
 */

static double fraction(const char *text) {
  char *end;
  double value = strtod(text, &end);
  return *end == '/' ? value / strtod(end + 1, NULL) : value;
}

/* How often a path goes straight from src to dst. */
static int uses(const cJSON *path, const char *src, const char *dst) {
  int n = 0;
  for (const cJSON *hop = path->child; hop && hop->next; hop = hop->next)
    n += strcmp(hop->valuestring, src) == 0 && strcmp(hop->next->valuestring, dst) == 0;
  return n;
}

/* The weights of all parts that cross src -> dst, each part having a list of paths. */
static double load_of_parts(const cJSON *parts, const char *list, const char *src,
                            const char *dst) {
  const cJSON *part, *one;
  double sum = 0;
  cJSON_ArrayForEach(part, parts) {
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(part, list)) {
      const cJSON *owner = cJSON_GetObjectItem(one, "weight") ? one : part;
      sum += fraction(cJSON_GetObjectItem(owner, "weight")->valuestring) *
             uses(cJSON_GetObjectItem(one, "path"), src, dst);
    }
  }
  return sum;
}

/* The load that a schedule file puts on src -> dst; no switch copies or combines. */
static double load_of(const cJSON *schedule, const char *src, const char *dst) {
  return load_of_parts(cJSON_GetObjectItem(schedule, "trees"), "edges", src, dst) +
         load_of_parts(cJSON_GetObjectItem(schedule, "flows"), "paths", src, dst);
}

static const char *const collectives[] = {"allgather",      "reduce_scatter", "allreduce",
                                          "broadcast -r 1", "reduce -r 2",    "alltoall"};

START_TEST(a_load_picture_has_the_schedule_s_loads) {
  NEED_GRAPHVIZ();
  run("@ solve topologies/a100-x2.json -c %s -o %%/s.json --draw %%/s.svg --json", collectives[_i]);
  ck_assert_msg(result.status == 0, "%s", result.err);
  char *text = copse_test_read("s.json");
  cJSON *schedule = cJSON_Parse(text);
  int links = json_int("links"), full = 0;
  double time = fraction(cJSON_GetObjectItem(schedule, "time_per_GB")->valuestring);
  struct picture p = open_picture("s.svg");
  assert_complete(&p, "data-node", json_int("nodes"));
  assert_complete(&p, "data-links", links);
  for (int i = 0; i < links; i++) {
    char src[64], dst[64], bandwidth[32], load[64], seconds[64];
    char *title = title_of(&p, "data-links", i);
    ck_assert_msg(sscanf(title, "%63s \xe2\x86\x92 %63[^:]: %31s GB/s load %63s of M", src, dst,
                         bandwidth, load) == 4,
                  "'%s'", title);
    const char *takes = strstr(title, "takes ");
    ck_assert(takes && sscanf(takes, "takes %63s", seconds) == 1);
    double want = load_of(schedule, src, dst);
    ck_assert_msg(fabs(fraction(load) - want) <= 1e-12, "%s: %g", title, want);
    ck_assert(fabs(fraction(seconds) - want / fraction(bandwidth)) <= 1e-12);
    full += want / fraction(bandwidth) >= time * (1 - 1e-12);
    free(title);
  }
  ck_assert_int_gt(full, 0);
  ck_assert_int_eq(count(&p, "//s:g[@class='u7'][@data-links]"), full);
  ck_assert_int_gt(count(&p, "//s:path[@class='glow']"), 1);
  close_picture(&p);
  cJSON_Delete(schedule);
  free(text);
}
END_TEST

START_TEST(a_tree_s_picture_has_its_links_and_no_others) {
  NEED_GRAPHVIZ();
  run("@ solve topologies/a100-x2.json -c allreduce -o %%/s.json --draw %%/s.svg --tree %d --json",
      _i * 25);
  ck_assert_msg(result.status == 0, "%s", result.err);
  char *text = copse_test_read("s.json");
  cJSON *schedule = cJSON_Parse(text);
  cJSON *tree = cJSON_GetArrayItem(cJSON_GetObjectItem(schedule, "trees"), _i * 25);
  cJSON *trees = cJSON_CreateObject(), *array = cJSON_AddArrayToObject(trees, "trees");
  cJSON_AddItemReferenceToArray(array, tree);
  struct picture p = open_picture("s.svg");
  int links = json_int("links");
  assert_complete(&p, "data-links", links);
  for (int i = 0; i < links; i++) {
    char src[64], dst[64], path[64];
    char *title = title_of(&p, "data-links", i);
    ck_assert(sscanf(title, "%63s \xe2\x86\x92 %63[^:]:", src, dst) == 2);
    snprintf(path, sizeof path, "//s:g[@class='faint'][@data-links='%d']", i);
    ck_assert_int_eq(count(&p, path), load_of(trees, src, dst) == 0);
    free(title);
  }
  ck_assert_int_eq(count(&p, "//s:g[@class='gpu solid']"), 1);
  close_picture(&p);
  cJSON_Delete(trees);
  cJSON_Delete(schedule);
  free(text);
}
END_TEST

/* ---- refusals ---------------------------------------------------------------------------------
 */

START_TEST(without_graphviz_one_line_says_what_to_install) {
  run("rm -f %%/*.svg; mkdir -p %%/empty; PATH=%%/empty @ topo topologies/a100-x2.json --draw "
      "%%/t.svg");
  copse_test_refused(2, "apt-get install graphviz");
  run("PATH=%%/empty @ solve topologies/a100-x2.json -c allgather -o %%/n.json --draw %%/t.svg");
  copse_test_refused(2, "apt-get install graphviz");
  ck_assert(!copse_test_exists("t.svg"));
  ck_assert(!copse_test_exists("n.json"));
  run("PATH=%%/empty @ topo topologies/a100-x2.json");
  ck_assert_int_eq(result.status, 0);
}
END_TEST

static const char *const false_programs[] = {
    "exit 1",
    "echo nonsense; cat >/dev/null",
    "cat >/dev/null; echo graph 1 1; echo stop",
    "cat >/dev/null; echo graph 1 nan 1; echo node 0 1 1",
    "cat >/dev/null; echo graph 1 1 1; echo node 999999 1 1 1 1",
    "cat >/dev/null; echo graph 1 1 1; echo edge 0 1 5 1 1 1 1 1",
    "cat >/dev/null; echo graph 1 1 1; echo edge 0 1 4 1 1 1 1 1",
    "cat >/dev/null; echo graph 1 1 1; echo edge 0 -1 4 1 1 1 1 1 1 1 1",
    "cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9; do echo graph 1 1 1; done",
    "cat >/dev/null; kill -9 $$",
};

START_TEST(a_program_that_is_no_graphviz_is_refused) {
  run("mkdir -p %%/false && printf '#!/bin/sh\\n%s\\n' >%%/false/dot && chmod +x %%/false/dot",
      false_programs[_i]);
  ck_assert_int_eq(result.status, 0);
  run("rm -f %%/t.svg; PATH=%%/false:$PATH @ topo topologies/a100-x2.json --draw %%/t.svg");
  copse_test_refused(2, "dot");
  ck_assert(!copse_test_exists("t.svg"));
}
END_TEST

START_TEST(bad_usage_is_one_line) {
  run("@ solve topologies/a100-x2.json -c allgather --tree 1");
  copse_test_refused(2, "--tree is for --draw");
  run("@ solve topologies/a100-x2.json -c allgather --bound-only --draw %%/t.svg");
  copse_test_refused(2, "--bound-only makes no schedule");
  run("@ topo topologies/a100-x2.json --draw - --json");
  copse_test_refused(2, "standard output");
  run("@ solve topologies/a100-x2.json -c allgather --draw - -o -");
  copse_test_refused(2, "standard output");
  run("{ printf '{\"format\":\"copse-topology/1\",\"name\":\"n\",\"links\":[],\"nodes\":['; "
      "for i in $(seq 2600); do printf '{\"id\":\"g'$i'\",\"type\":\"gpu\"},'; done; "
      "printf '{\"id\":\"g\",\"type\":\"gpu\"}]}'; } >%%/large.json");
  run("@ topo %%/large.json --draw %%/t.svg");
  copse_test_refused(2, "too many for a picture");
  NEED_GRAPHVIZ();
  run("@ solve topologies/a100-x2.json -c allgather --draw %%/t.svg --tree 5000");
  copse_test_refused(2, "there is no tree 5000: they are from 0 to");
  run("@ topo topologies/a100-x2.json --draw -");
  ck_assert_int_eq(result.status, 0);
  ck_assert(strncmp(result.out, "<?xml", 5) == 0);
}
END_TEST

/* ---- what people look for ---------------------------------------------------------------------- */

static double number_at(const struct picture *p, const char *path) {
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  double value = xmlXPathCastToNumber(found);
  xmlXPathFreeObject(found);
  ck_assert_msg(isfinite(value), "%s", path);
  return value;
}

/* The angle between ranks that follow each other is a full turn over their number, clockwise. */
START_TEST(gpus_without_a_switch_are_a_circle_in_rank_order) {
  NEED_GRAPHVIZ();
  double x[8], y[8], middle_x = 0, middle_y = 0;
  char path[128];
  run("@ topo topologies/dgx1-v100.json --draw %%/t.svg");
  struct picture p = open_picture("t.svg");
  for (int v = 0; v < 8; v++) { /* the GPUs are the file's first nodes */
    snprintf(path, sizeof path, "//s:g[@data-node='%d']/s:text[1]/@x", v);
    middle_x += (x[v] = number_at(&p, path)) / 8;
    snprintf(path, sizeof path, "//s:g[@data-node='%d']/s:text[1]/@y", v);
    middle_y += (y[v] = number_at(&p, path)) / 8;
  }
  for (int v = 0; v < 8; v++) {
    int next = (v + 1) % 8;
    double a = atan2(y[v] - middle_y, x[v] - middle_x);
    double b = atan2(y[next] - middle_y, x[next] - middle_x);
    ck_assert_msg(fabs(remainder(b - a, 2 * M_PI) - M_PI / 4) < 0.02, "GPU %d", v);
  }
  ck_assert_int_eq(count(&p, "//s:text[.='GPU 0']"), 1);
  close_picture(&p);
}
END_TEST

/* 300 and 25 GB/s are the same colours wherever they stand. */
START_TEST(a_bandwidth_has_one_colour_in_all_pictures) {
  NEED_GRAPHVIZ();
  run("@ topo topologies/a100-x2.json --draw %%/t.svg");
  struct picture p = open_picture("t.svg");
  ck_assert_int_eq(count(&p, "//s:g[@class='b2'][@data-links]"), 16);
  ck_assert_int_eq(count(&p, "//s:g[@class='b5'][@data-links]"), 32);
  close_picture(&p);
  run("@ topo --synthetic 'ring:4@25' --draw %%/t.svg");
  p = open_picture("t.svg");
  ck_assert_int_eq(count(&p, "//s:g[@class='b5'][@data-links]"), 4);
  close_picture(&p);
}
END_TEST

START_TEST(parts_that_are_down_are_crossed_out) {
  NEED_GRAPHVIZ();
  run("@ solve topologies/a100-x2.json -c allgather --down h1.nic3 --down 'h0.gpu2>h0.nvswitch' "
      "--draw %%/t.svg");
  ck_assert_msg(result.status == 0, "%s", result.err);
  struct picture p = open_picture("t.svg");
  ck_assert_int_eq(count(&p, "//s:path[@class='cross']"), 2); /* and one in the legend */
  ck_assert_int_eq(count(&p, "//s:g[@class='dead'][contains(s:title, 'h1.nic3: down')]"), 2);
  ck_assert_int_eq(count(&p, "//s:g[@class='dead']/s:path[@class='line']"), 3);
  assert_complete(&p, "data-node", 41); /* all that is left, and no more */
  assert_complete(&p, "data-links", 90);
  close_picture(&p);
  run("@ solve topologies/a100-x2.json -c allgather --draw %%/t.svg");
  p = open_picture("t.svg");
  ck_assert_int_eq(count(&p, "//s:g[@class='dead']"), 0);
  close_picture(&p);
}
END_TEST

START_TEST(the_busiest_links_have_their_number) {
  NEED_GRAPHVIZ();
  run("@ solve topologies/dgx1-v100.json -c broadcast --root 0 --draw %%/t.svg");
  struct picture p = open_picture("t.svg");
  int n = count(&p, "//s:text[@class='number']");
  ck_assert_msg(n > 0 && n <= 6, "%d", n);
  ck_assert_int_ge(count(&p, "//s:text[@class='number'][.='100 %']"), 1);
  ck_assert_int_eq(count(&p, "//s:rect[@class='paper'][not(@fill)]"), 1);
  char *text = copse_test_read("t.svg");
  ck_assert_ptr_nonnull(strstr(text, "@media (prefers-color-scheme:dark)"));
  ck_assert_ptr_nonnull(strstr(text, "svg.cp{max-width:100%;height:auto}")); /* a phone */
  free(text);
  close_picture(&p);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/draw");
  TCase *tests = tcase_create("draw");
  int n_files = sizeof files / sizeof *files;
  copse_test_folder();
  tcase_add_loop_test(tests, a_topology_s_picture_is_well_formed_and_complete, 0, n_files);
  tcase_add_test(tests, hosts_are_framed_and_named);
  tcase_add_loop_test(tests, nodes_do_not_overlap, 0, n_files);
  tcase_add_test(tests, hostile_names_are_text);
  tcase_add_loop_test(tests, a_load_picture_has_the_schedule_s_loads, 0, 6);
  tcase_add_loop_test(tests, a_tree_s_picture_has_its_links_and_no_others, 0, 4);
  tcase_add_test(tests, without_graphviz_one_line_says_what_to_install);
  tcase_add_loop_test(tests, a_program_that_is_no_graphviz_is_refused, 0,
                      sizeof false_programs / sizeof *false_programs);
  tcase_add_test(tests, gpus_without_a_switch_are_a_circle_in_rank_order);
  tcase_add_test(tests, a_bandwidth_has_one_colour_in_all_pictures);
  tcase_add_test(tests, parts_that_are_down_are_crossed_out);
  tcase_add_test(tests, the_busiest_links_have_their_number);
  tcase_add_test(tests, bad_usage_is_one_line);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
