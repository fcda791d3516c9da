/*
 * copse report: one well-formed page that fetches nothing, whose numbers are the schedule's, safe
 * with hostile names.
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
#define NEED_GRAPHVIZ() \
  if (system("dot -V >/dev/null 2>&1") != 0) COPSE_SKIP("no Graphviz")

struct page {
  char *text;
  xmlDocPtr document;
  xmlXPathContextPtr context;
};

static struct page open_page(const char *name) {
  struct page p = {.text = copse_test_read(name)};
  p.document = xmlReadMemory(p.text, (int)strlen(p.text), name, NULL,
                             XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
  ck_assert_msg(p.document != NULL, "%s is not well-formed", name);
  p.context = xmlXPathNewContext(p.document);
  xmlXPathRegisterNs(p.context, BAD_CAST "h", BAD_CAST "http://www.w3.org/1999/xhtml");
  xmlXPathRegisterNs(p.context, BAD_CAST "s", BAD_CAST "http://www.w3.org/2000/svg");
  return p;
}

static void close_page(struct page *p) {
  xmlXPathFreeContext(p->context);
  xmlFreeDoc(p->document);
  free(p->text);
}

static int count(const struct page *p, const char *path) {
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  ck_assert_ptr_nonnull(found);
  int n = found->nodesetval ? found->nodesetval->nodeNr : 0;
  xmlXPathFreeObject(found);
  return n;
}

/* The text of the i-th match; the caller frees it. */
static char *text_of(const struct page *p, const char *path, int i) {
  xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST path, p->context);
  ck_assert_msg(found && found->nodesetval && found->nodesetval->nodeNr > i, "%s", path);
  char *content = (char *)xmlNodeGetContent(found->nodesetval->nodeTab[i]), *copy = strdup(content);
  xmlFree(content);
  xmlXPathFreeObject(found);
  return copy;
}

static cJSON *data_of(const struct page *p) {
  char *text = text_of(p, "//h:script[@id='data']", 0);
  cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);
  ck_assert_ptr_nonnull(json);
  free(text);
  return json;
}

/* No reference to anything outside: no src, no href but into the page, no url(), no import. */
static void assert_self_contained(const struct page *p) {
  ck_assert_int_eq(count(p, "//@src"), 0);
  ck_assert_int_eq(count(p, "//h:link | //h:iframe | //h:img | //h:object | //s:image"), 0);
  ck_assert_int_eq(count(p, "//@href[not(starts-with(., '#'))]"), 0);
  ck_assert_ptr_null(strstr(p->text, "url("));
  ck_assert_ptr_null(strstr(p->text, "@import"));
  ck_assert_ptr_null(strstr(p->text, "fetch("));
  ck_assert_ptr_null(strstr(p->text, "XMLHttpRequest"));
  for (const char *at = p->text; (at = strstr(at, "http")) != NULL; at++)
    ck_assert_msg(strncmp(at, "http://www.w3.org/", 18) == 0, "%.60s", at);
}

static const char *const collectives[] = {"allgather",      "reduce_scatter", "allreduce",
                                          "broadcast -r 1", "reduce -r 2",    "alltoall"};

/* Trees of the page against those of the file: roots, hops in order, links joining nodes. */
static void compare_trees(const cJSON *data, const cJSON *schedule) {
  const cJSON *trees = cJSON_GetObjectItem(schedule, "trees"),
              *parts = cJSON_GetObjectItem(data, "parts"),
              *links = cJSON_GetObjectItem(data, "links"),
              *nodes = cJSON_GetObjectItem(data, "nodes");
  ck_assert_int_eq(cJSON_GetArraySize(parts), cJSON_GetArraySize(trees));
  const cJSON *part = parts->child, *tree = trees->child;
  for (; tree; tree = tree->next, part = part->next) {
    ck_assert_int_eq(cJSON_GetObjectItem(part, "root")->valueint,
                     cJSON_GetObjectItem(tree, "root")->valueint);
    ck_assert_ptr_nonnull(strstr(cJSON_GetObjectItem(part, "name")->valuestring,
                                 cJSON_GetObjectItem(tree, "weight")->valuestring));
    const cJSON *hop = cJSON_GetObjectItem(part, "hops")->child,
                *edge = cJSON_GetObjectItem(tree, "edges")->child;
    for (; edge; edge = edge->next, hop = hop->next) {
      ck_assert_ptr_nonnull(hop);
      ck_assert_int_eq(cJSON_GetArrayItem(hop, 0)->valueint,
                       cJSON_GetObjectItem(edge, "src")->valueint);
      ck_assert_int_eq(cJSON_GetArrayItem(hop, 1)->valueint,
                       cJSON_GetObjectItem(edge, "dst")->valueint);
      const cJSON *id = cJSON_GetObjectItem(edge, "path")->child, *link;
      cJSON_ArrayForEach(link, cJSON_GetArrayItem(hop, 3)) {
        const cJSON *ends = cJSON_GetArrayItem(links, link->valueint);
        for (int end = 0; end < 2; end++)
          ck_assert_str_eq(
              cJSON_GetArrayItem(nodes, cJSON_GetArrayItem(ends, end)->valueint)->valuestring,
              end == 0 ? id->valuestring : id->next->valuestring);
        id = id->next;
      }
      ck_assert_ptr_null(id->next);
    }
    ck_assert_ptr_null(hop);
  }
}

START_TEST(the_page_s_numbers_are_the_schedule_s) {
  NEED_GRAPHVIZ();
  run("@ topo --synthetic 'hosts:2 gpus:2@300 nics:2@25 rails' -o %%/t.json && "
      "@ solve %%/t.json -c %s -o %%/s.json && @ report %%/t.json -c %s -o %%/r.html",
      collectives[_i], collectives[_i]);
  ck_assert_msg(result.status == 0, "%s", result.err);
  char *file = copse_test_read("s.json");
  cJSON *schedule = cJSON_Parse(file);
  struct page p = open_page("r.html");
  assert_self_contained(&p);
  char *time = text_of(&p, "//h:div[@class='card']//h:span[@class='exact']", 0);
  char *bound = text_of(&p, "//h:div[@class='card']//h:span[@class='exact']", 1);
  ck_assert_str_eq(time, cJSON_GetObjectItem(schedule, "time_per_GB")->valuestring);
  ck_assert_str_eq(
      bound,
      cJSON_GetObjectItem(cJSON_GetObjectItem(schedule, "bound"), "time_per_GB")->valuestring);
  char *algbw = text_of(&p, "//h:div[@class='card']//h:b", 0);
  ck_assert(fabs(atof(algbw) / cJSON_GetObjectItem(schedule, "algbw_GBps")->valuedouble - 1) <
            1e-5);
  const cJSON *cut = cJSON_GetObjectItem(cJSON_GetObjectItem(schedule, "bound"), "cut");
  ck_assert_int_eq(count(&p, "//h:p[@class='cut']"), _i == 5 ? 0 : _i == 2 ? 2 : 1);
  if (cut) { /* named by its smaller side: here one rank, in the file or not in it */
    char *named = text_of(&p, "//h:p[@class='cut']", 0);
    const cJSON *rank;
    bool smaller = cJSON_GetArraySize(cut) < 6;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItem(schedule, "ranks")) {
      const cJSON *node;
      bool inside = false;
      char name[64];
      snprintf(name, sizeof name, ": %s (", rank->valuestring);
      cJSON_ArrayForEach(node, cut) {
        inside = inside || strcmp(node->valuestring, rank->valuestring) == 0;
      }
      if (strstr(named, " (1 of 4 ranks)"))
        ck_assert_int_eq(strstr(named, name) != NULL, inside == smaller);
    }
    free(named);
  }
  cJSON *data = data_of(&p);
  if (_i < 5)
    compare_trees(data, schedule);
  else
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(data, "parts")), 4);
  /* three pictures with all 12 nodes, and the script can find all 24 links in the last */
  ck_assert_int_eq(count(&p, "//s:svg[contains(@class, 'cp')]"), 3);
  ck_assert_int_eq(count(&p, "//s:g[@data-node]"), 3 * 12);
  ck_assert_int_eq(count(&p, "//h:div[@id='stepper']//s:g[@data-links]"), 24);
  ck_assert_int_eq(count(&p, "//h:section[@id='links']//h:tbody/h:tr"), 24);
  cJSON_Delete(data);
  cJSON_Delete(schedule);
  free(file);
  free(time);
  free(bound);
  free(algbw);
  close_page(&p);
}
END_TEST

/* The table of predictions is what `copse simulate` says of the schedule file. */
START_TEST(predictions_are_those_of_simulate) {
  NEED_GRAPHVIZ();
  run("@ report topologies/a100-host.json -c allgather -o %%/r.html && "
      "@ solve topologies/a100-host.json -c allgather -o %%/s.json");
  ck_assert_int_eq(result.status, 0);
  run("@ simulate %%/s.json -t topologies/a100-host.json -b 1K -e 4G -f 4 --json");
  cJSON *simulated = cJSON_Parse(result.out);
  ck_assert_ptr_nonnull(simulated);
  struct page p = open_page("r.html");
  const cJSON *rows = cJSON_GetObjectItem(simulated, "rows");
  ck_assert_int_eq(cJSON_GetArraySize(rows), 12);
  for (int i = 0; i < 12; i++) {
    static const char *const names[] = {"copse", "best-rings", "tree", "direct"};
    char path[96];
    snprintf(path, sizeof path, "//h:section[@id='predictions']//h:tbody/h:tr[%d]/h:td", i + 1);
    for (int a = 0; a < 4; a++) {
      char *us = text_of(&p, path, 3 * a);
      const cJSON *times = cJSON_GetObjectItem(cJSON_GetArrayItem(rows, i), "times");
      double want = cJSON_GetObjectItem(cJSON_GetObjectItem(times, names[a]), "time")->valuedouble;
      ck_assert_msg(fabs(atof(us) / want - 1) < 1e-4, "%s: %s, not %g", names[a], us, want);
      free(us);
    }
  }
  ck_assert_int_eq(count(&p, "//s:g[@class='series']"), 8);
  cJSON_Delete(simulated);
  close_page(&p);
}
END_TEST

START_TEST(hostile_names_are_text) {
  NEED_GRAPHVIZ();
  copse_test_write(
      "hostile.json",
      "{\"format\":\"copse-topology/1\",\"name\":\"</title><script>alert(1)</script>\","
      "\"nodes\":[{\"id\":\"</script><script>x()//\",\"type\":\"gpu\"},"
      "{\"id\":\"]]>&amp;<b>\",\"type\":\"gpu\"}],\"links\":["
      "{\"src\":\"</script><script>x()//\",\"dst\":\"]]>&amp;<b>\",\"bandwidth\":1}]}");
  run("@ report %%/hostile.json -c allgather -o %%/r.html");
  ck_assert_msg(result.status == 0, "%s", result.err);
  struct page p = open_page("r.html");
  ck_assert_int_eq(count(&p, "//h:script"), 2);
  ck_assert_int_eq(count(&p, "//h:b[not(ancestor::h:main)]"), 0);
  /* as HTML, too: a script ends at the first "</script" */
  int scripts = 0;
  for (const char *at = p.text; (at = strstr(at, "</script")) != NULL; at++) scripts++;
  ck_assert_int_eq(scripts, 2);
  cJSON *data = data_of(&p);
  ck_assert_str_eq(cJSON_GetArrayItem(cJSON_GetObjectItem(data, "nodes"), 0)->valuestring,
                   "</script><script>x()//");
  cJSON_Delete(data);
  close_page(&p);
}
END_TEST

START_TEST(a_single_rank_has_a_page) {
  NEED_GRAPHVIZ();
  copse_test_write("one.json",
                   "{\"format\":\"copse-topology/1\",\"name\":\"one\",\"nodes\":["
                   "{\"id\":\"a\",\"type\":\"gpu\"}],\"links\":[]}");
  for (int i = 0; i < 3; i++) {
    run("@ report %%/one.json -c %s -o %%/r.html", collectives[i]);
    ck_assert_msg(result.status == 0, "%s", result.err);
    struct page p = open_page("r.html");
    assert_self_contained(&p);
    ck_assert_ptr_null(strstr(p.text, "nan"));
    ck_assert_ptr_null(strstr(p.text, ">inf"));
    close_page(&p);
  }
}
END_TEST

START_TEST(bad_usage_is_one_line) {
  run("rm -f %%/r.html; @ report topologies/a100-x2.json -c allgather");
  copse_test_refused(2, "name the page with -o");
  run("@ report topologies/a100-x2.json -o %%/r.html");
  copse_test_refused(2, "name a collective with -c");
  run("@ report topologies/a100-x2.json -c broadcast -o %%/r.html");
  copse_test_refused(2, "broadcast needs --root");
  run("mkdir -p %%/empty; PATH=%%/empty @ report topologies/a100-x2.json -c allgather -o "
      "%%/r.html");
  copse_test_refused(2, "apt-get install graphviz");
  ck_assert(!copse_test_exists("r.html"));
  static const char *const names[] = {"r.png", "r.SVG", "r.pdf"};
  for (int i = 0; i < 3; i++) {
    run("@ report ring-8 -c allgather -o %%/%s", names[i]);
    copse_test_refused(2, "-o is a page of HTML: give it a name that ends in .html");
    ck_assert(!copse_test_exists(names[i]));
  }
  run("@ topo ring-8 --draw %%/r.html");
  copse_test_refused(2, "--draw writes SVG: give it a name that ends in .svg");
}
END_TEST

START_TEST(a_page_says_what_made_it_and_fits_a_phone) {
  NEED_GRAPHVIZ();
  run("@ report --synthetic 'ring:4@25' -c allgather -o %%/r.html");
  ck_assert_msg(result.status == 0, "%s", result.err);
  struct page p = open_page("r.html");
  ck_assert_ptr_nonnull(strstr(p.text, "<code>copse report --synthetic ring:4@25 -c allgather -o "));
  ck_assert_ptr_nonnull(strstr(p.text, "topology sha256 "));
  ck_assert_ptr_nonnull(strstr(p.text, "name=\"viewport\" content=\"width=device-width"));
  ck_assert_ptr_nonnull(strstr(p.text, "@media (max-width: 720px)"));
  ck_assert_ptr_nonnull(strstr(p.text, "@media (prefers-color-scheme: dark)"));
  close_page(&p);
}
END_TEST

/* Two pages of one name, one that can't be made: the others are, and the index says why. */
START_TEST(one_topology_goes_into_a_folder_too) {
  ck_assert_int_eq(run("@ report dgx-a100 -c allgather -o %%/one/"), 0);
  ck_assert_int_eq(run("test -s %%/one/index.html && test -s %%/one/dgx-a100.html"), 0);
  ck_assert_int_eq(run("@ report dgx-a100 -c allgather -o %%/one"), 0); /* it is there */
  ck_assert_int_eq(run("grep -q dgx-a100.html %%/one/index.html"), 0);
}
END_TEST

/* A folder has the pages of one run: older ones go, other people's HTML stays. */
START_TEST(pages_of_an_earlier_run_go) {
  NEED_GRAPHVIZ();
  run("mkdir -p %%/again; echo '<html>mine</html>' >%%/again/mine.html");
  ck_assert_int_eq(run("@ report topologies/ring-8.json topologies/dgx1-v100.json -c allgather -o "
                       "%%/again"),
                   0);
  ck_assert_int_eq(run("@ report topologies/ring-8.json -c allgather -o %%/again"), 0);
  run("ls %%/again");
  ck_assert_str_eq(result.out, "index.html\nmine.html\nring-8.html\n");
}
END_TEST

START_TEST(many_topologies_have_an_index) {
  NEED_GRAPHVIZ();
  run("mkdir -p %%/other && cp topologies/ring-8.json %%/other/ring-8.json");
  run("@ report topologies/ring-8.json %%/other/ring-8.json %%/none.json topologies/full-8.json "
      "-c allgather -o %%/pages");
  ck_assert_int_eq(result.status, 2);
  ck_assert_ptr_nonnull(strstr(result.out, "3 pages, 1 failed"));
  struct page p = open_page("pages/index.html");
  ck_assert_int_eq(count(&p, "//@href[contains(., '/')] | //@src"), 0); /* pages beside it */
  ck_assert_ptr_nonnull(strstr(p.text, "<a href=\"ring-8.html\">"));
  ck_assert_ptr_nonnull(strstr(p.text, "<a href=\"ring-8-2.html\">"));
  ck_assert_ptr_nonnull(strstr(p.text, "none.json: cannot open"));
  ck_assert_ptr_nonnull(strstr(p.text, "<a href=\"full-8.html\">"));
  ck_assert_ptr_nonnull(strstr(p.text, "into GPU 0: 7 links between GPUs of 25 GB/s (175 GB/s)"));
  close_page(&p);
  p = open_page("pages/ring-8-2.html");
  close_page(&p);
  run("@ report topologies/ring-8.json topologies/full-8.json -c allgather -o -");
  copse_test_refused(2, "-o is a folder");
  run("@ report topologies/ring-8.json topologies/full-8.json -c allgather --json -o %%/pages");
  ck_assert_ptr_nonnull(strstr(result.out, "\"topologies\": 2, \"failed\": 0}"));
}
END_TEST

/* Of two GPUs of 200/53 GB/s the bound is 400/53 GB/s, and the chart ends at 8 GB/s: in eight
 * steps of 1, which are as many as fit. */
START_TEST(a_chart_has_up_to_eight_steps) {
  copse_test_write(
      "two.json",
      "{\"format\": \"copse-topology/1\", \"name\": \"two\", \"nodes\": [{\"id\": \"a\", "
      "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}], \"links\": [{\"src\": \"a\", "
      "\"dst\": \"b\", \"bandwidth\": \"200/53\"}]}");
  ck_assert_int_eq(run("@ report %%/two.json -c allgather -o %%/two.html"), 0);
  char *page = copse_test_read("two.html");
  int n = 0;
  for (const char *at = strstr(page, "y=\"13\">algbw (GB/s)"); at && at > page; at--)
    if (strncmp(at, "<svg", 4) == 0)
      break;
    else
      n += strncmp(at, "class=\"grid\"", 12) == 0;
  ck_assert_int_eq(n, 9);
  free(page);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/report");
  TCase *tests = tcase_create("report");
  copse_test_folder();
  tcase_add_loop_test(tests, the_page_s_numbers_are_the_schedule_s, COPSE_TEST_UP_TO(0, 2),
                      COPSE_TEST_UP_TO(6, 3));
  tcase_add_test(tests, predictions_are_those_of_simulate);
  tcase_add_test(tests, hostile_names_are_text);
  tcase_add_test(tests, a_single_rank_has_a_page);
  tcase_add_test(tests, a_page_says_what_made_it_and_fits_a_phone);
  tcase_add_test(tests, pages_of_an_earlier_run_go);
  tcase_add_test(tests, many_topologies_have_an_index);
  tcase_add_test(tests, one_topology_goes_into_a_folder_too);
  tcase_add_test(tests, a_chart_has_up_to_eight_steps);
  tcase_add_test(tests, bad_usage_is_one_line);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
