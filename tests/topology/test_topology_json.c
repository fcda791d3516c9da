/* Topology JSON: what is read, and every refusal with its line. */
#include "helpers.h"
#include "topology/modify.h"

#define HEAD "{\"format\": \"copse-topology/1\", \"name\": \"x\",\n"
#define NODES                                                                              \
  " \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"},\n" \
  "   {\"id\": \"s\", \"type\": \"switch\"}],\n"
#define DOC(links) HEAD NODES " \"links\": [\n" links "]}"
#define LINK(rest) "{\"src\": \"a\", \"dst\": \"b\"" rest "}"
#define BACK(rest) "{\"src\": \"b\", \"dst\": \"a\"" rest "}"

START_TEST(contract_example_is_read) {
  struct copse_topology *t = read_good(
      "{\"format\": \"copse-topology/1\", \"name\": \"two-gpus\",\n"
      " \"nodes\": [{\"id\": \"gpu0\", \"type\": \"gpu\"}, {\"id\": \"gpu1\", \"type\": \"gpu\"},"
      " {\"id\": \"sw\", \"type\": \"switch\", \"multicast\": true}],\n"
      " \"links\": [{\"src\": \"gpu0\", \"dst\": \"sw\", \"bandwidth\": 300, \"latency\": 0.5},"
      " {\"src\": \"gpu1\", \"dst\": \"sw\", \"bandwidth\": \"625/2\"}]}",
      COPSE_LINKS_DEFAULT);
  ck_assert_str_eq(t->name, "two-gpus");
  ck_assert_int_eq(t->n_nodes, 3);
  ck_assert_int_eq(t->n_ranks, 2);
  ck_assert_int_eq(t->n_links, 4);
  ck_assert_str_eq(bandwidth(t, "gpu0", "sw"), "300");
  ck_assert_str_eq(bandwidth(t, "sw", "gpu1"), "625/2");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "none");
  ck_assert_int_eq(t->links[0].latency.num, 1);
  ck_assert_int_eq(t->links[0].latency.den, 2);
  ck_assert(t->nodes[2].multicast && !t->nodes[2].aggregation && !t->nodes[0].multicast);
  ck_assert_int_eq(t->nodes[2].rank, -1);
  ck_assert_int_eq(t->rank_nodes[1], 1);
  ck_assert_int_eq(copse_topology_find(t, "nobody"), -1);
  copse_topology_free(t);
}
END_TEST

START_TEST(parallel_links_add_up_exactly) {
  struct copse_topology *t = read_good(
      DOC(LINK(", \"bandwidth\": 0.1, \"latency\": 2") "," LINK(
          ", \"bandwidth\": 0.2, \"latency\": 7, \"duplex\": false") "," LINK(", \"bandwidth\": "
                                                                              "\"1/3\"")),
      COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->n_links, 2);
  ck_assert_str_eq(bandwidth(t, "a", "b"), "19/30");
  ck_assert_str_eq(bandwidth(t, "b", "a"), "13/30");
  ck_assert_int_eq(t->links[0].latency.num, 7);
  ck_assert_int_eq(t->links[1].latency.num, 2);
  copse_topology_free(t);
}
END_TEST

START_TEST(both_ways_may_be_listed_where_one_says_what_it_is) {
  static const struct {
    const char *text, *there, *back;
  } cases[] = {
      {DOC(LINK(", \"bandwidth\": 3, \"duplex\": false") "," BACK(
           ", \"bandwidth\": 5, \"duplex\": false")),
       "3", "5"},
      {DOC(LINK(", \"bandwidth\": 3, \"duplex\": true") "," BACK(
           ", \"bandwidth\": 5, \"duplex\": true")),
       "8", "8"},
      {DOC(LINK(", \"bandwidth\": 3") "," BACK(", \"bandwidth\": 5, \"duplex\": false")), "3", "8"},
      {DOC(LINK(", \"bandwidth\": 3") "," LINK(", \"bandwidth\": 5")), "8", "8"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_topology *t = read_good(cases[i].text, COPSE_LINKS_DEFAULT);
    ck_assert_str_eq(bandwidth(t, "a", "b"), cases[i].there);
    ck_assert_str_eq(bandwidth(t, "b", "a"), cases[i].back);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(parallel_sum_beyond_64_bits_is_overflow) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(
      parse_as(DOC(LINK(", \"bandwidth\": 9223372036854775807") ",\n" LINK(", \"bandwidth\": 1")),
               COPSE_LINKS_ALL, &t, &err),
      COPSE_OVERFLOW, &err, "t:6: the sum of the parallel links from \"a\" to \"b\"");
}
END_TEST

START_TEST(stated_ranks_are_used) {
  struct copse_topology *t =
      read_good(HEAD
                " \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 1},"
                "{\"id\": \"b\", \"type\": \"gpu\", \"rank\": 0}], \"links\": []}",
                COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->nodes[0].rank, 1);
  ck_assert_int_eq(t->rank_nodes[0], 1);
  ck_assert_int_eq(t->rank_nodes[1], 0);
  ck_assert_str_eq(seen_notes, "");
  copse_topology_free(t);
}
END_TEST

START_TEST(partly_stated_ranks_give_way_to_appearance_with_a_note) {
  struct copse_topology *t =
      read_good(HEAD
                " \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},"
                "{\"id\": \"b\", \"type\": \"gpu\", \"rank\": 0}], \"links\": []}",
                COPSE_LINKS_DEFAULT);
  ck_assert_int_eq(t->nodes[0].rank, 0);
  ck_assert_int_eq(t->nodes[1].rank, 1);
  ck_assert_ptr_nonnull(strstr(seen_notes, "1 of 2 gpus state no rank"));
  copse_topology_free(t);
}
END_TEST

/* Two gpus with a link, and a way over two switches. */
#define DIAMOND(rest)                                                                             \
  HEAD " \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 1}, {\"id\": \"b\", \"type\": " \
       "\"gpu\", \"rank\": 0},\n"                                                                 \
       "   {\"id\": \"s\", \"type\": \"switch\"}, {\"id\": \"u\", \"type\": \"switch\"}],\n"      \
       " \"links\": [{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1},"                         \
       "  {\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 1}, {\"src\": \"s\", \"dst\": \"u\", "  \
       "\"bandwidth\": 1}, {\"src\": \"u\", \"dst\": \"b\", \"bandwidth\": 1}],\n" rest "}"
#define WAY "[\"a\", \"s\", \"u\", \"b\"]"

static void check_route(const struct copse_topology *t, int src, int dst, const char *want) {
  const struct copse_stated_route *route = copse_topology_route(t, src, dst);
  char text[64] = "";
  for (int i = 0; route && i < route->n_nodes; i++) strcat(text, t->nodes[route->nodes[i]].id);
  ck_assert_str_eq(text, want);
}

START_TEST(routes_are_of_both_directions_unless_they_say_so) {
  struct copse_topology *t =
      read_good(DIAMOND(" \"routes\": [{\"path\": " WAY "}]"), COPSE_LINKS_DEFAULT);
  check_route(t, 1, 0, "asub");
  check_route(t, 0, 1, "busa");
  copse_topology_free(t);
  t = read_good(DIAMOND(" \"routes\": [{\"path\": " WAY ", \"duplex\": false}]"),
                COPSE_LINKS_DEFAULT);
  check_route(t, 1, 0, "asub");
  check_route(t, 0, 1, "");
  copse_topology_free(t);
}
END_TEST

/* The text that a topology comes from and goes to has all of it; what is broken has what is left.
 */
START_TEST(routes_come_along_while_they_are_whole) {
  struct copse_topology *t =
      read_good(DIAMOND(" \"routes\": [{\"path\": " WAY "}]"), COPSE_LINKS_DEFAULT);
  static const struct copse_fault derate = {"s>u", {1, 2}}, lost = {"s>u", {0, 1}},
                                  node = {"u", {0, 1}};
  static const struct {
    const struct copse_fault *fault;
    const char *want;
  } cases[] = {{&derate, "asub"}, {&lost, ""}, {&node, ""}};
  struct copse_topology *changed = NULL, *back = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  char *text = to_json(t);
  ck_assert_ptr_nonnull(
      strstr(text, "],\n \"routes\": [\n  {\"path\": [\"b\", \"u\", \"s\", \"a\"]}]}\n"));
  ASSERT_OK(parse_as(text, COPSE_LINKS_DEFAULT, &back, &err), &err);
  char *again = to_json(back);
  ck_assert_str_eq(again, text);
  free(text);
  free(again);
  copse_topology_free(back);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ASSERT_OK(copse_topology_break(t, "t", cases[i].fault, 1, &changed, &err), &err);
    check_route(changed, 1, 0, cases[i].want);
    copse_topology_free(changed);
  }
  const int turned[] = {0, 1}, one[] = {1};
  ASSERT_OK(copse_topology_choose_ranks(t, turned, 2, false, &changed, &err), &err);
  check_route(changed, 0, 1, "asub");
  copse_topology_free(changed);
  ASSERT_OK(copse_topology_choose_ranks(t, one, 1, false, &changed, &err), &err);
  ck_assert_int_eq(changed->n_routes, 0);
  copse_topology_free(changed);
  copse_topology_free(t);
}
END_TEST

START_TEST(routes_that_are_none_are_refused) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"{\"path\": [\"a\", \"x\", \"b\"]}", "t:6: \"path\" names \"x\", which is no node's id"},
      {"{\"path\": [\"a\", 3, \"b\"]}", "t:6: a node of \"path\" must be an id"},
      {"{\"path\": [\"a\"]}", "t:6: a route of 1 nodes; it needs two gpus"},
      {"{\"path\": []}", "t:6: a route of 0 nodes; it needs two gpus"},
      {"{\"path\": [\"a\", \"u\", \"b\"]}", "t:6: \"u\" has no link from the node before it"},
      {"{\"path\": [\"s\", \"u\", \"b\"]}", "t:6: \"s\" is no gpu, but a route's end"},
      {"{\"path\": [\"s\", \"a\", \"b\"]}", "t:6: \"s\" is no gpu, but a route's end"},
      {"{\"path\": [\"a\", \"b\", \"u\", \"b\"]}", "t:6: \"b\" is a gpu in the middle of a route"},
      {"{\"path\": [\"a\", \"s\", \"u\", \"s\", \"u\", \"b\"]}", "t:6: \"s\" comes twice"},
      {"{\"path\": " WAY "}, {\"path\": [\"b\", \"a\"]}", "two routes from"},
      {"{\"path\": " WAY ", \"way\": 1}", "t:6:"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1024];
    struct copse_topology *t = NULL;
    struct copse_err err = COPSE_ERR_INIT;
    snprintf(text, sizeof text, DIAMOND(" \"routes\": [\n%s]"), cases[i].text);
    ASSERT_FAILS(parse_as(text, COPSE_LINKS_DEFAULT, &t, &err), COPSE_BAD_INPUT, &err,
                 cases[i].message);
  }
}
END_TEST

START_TEST(missing_name_is_the_stem_of_the_file) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  const char *text =
      "\xef\xbb\xbf {\"format\": \"copse-topology/1\","
      " \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"}], \"links\": []}";
  ASSERT_OK(copse_topology_parse("some/where/box.v2.json", text, strlen(text), NULL, &t, &err),
            &err);
  ck_assert_str_eq(t->name, "box.v2");
  copse_topology_free(t);
}
END_TEST

START_TEST(unbalanced_relay_is_found_with_both_sums) {
  struct copse_topology *t =
      read_good(DOC("{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 5},"
                    "{\"src\": \"s\", \"dst\": \"b\", \"bandwidth\": 0.5, \"duplex\": false}"),
                COPSE_LINKS_DEFAULT);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q in, out;
  int node;
  ASSERT_OK(copse_topology_find_unbalanced(t, &node, &in, &out, &err), &err);
  ck_assert_int_eq(node, 2);
  ck_assert(in.num == 5 && in.den == 1);
  ck_assert(out.num == 11 && out.den == 2);
  copse_topology_free(t);
  t = read_good(DOC(LINK(", \"bandwidth\": 5, \"duplex\": false")), COPSE_LINKS_DEFAULT);
  ASSERT_OK(copse_topology_find_unbalanced(t, &node, NULL, NULL, &err), &err);
  ck_assert_int_eq(node, -1); /* ranks may be */
  copse_topology_free(t);
}
END_TEST

/* ---- refusals ----------------------------------------------------------------------- */

static const struct {
  const char *text, *part;
} refusals[] = {
    {"", "t:1: empty"},
    {" \n\t ", "t:1: empty"},
    {"\x7f"
     "ELF",
     "t:1: neither topology JSON"},
    {"GPU0 GPU1", "t:1: the row of GPU0 is missing"},
    {"GPU0 is a GPU", "t:1: neither topology JSON"},
    {"[]", "must be a JSON object"},
    {"{}", "t:1: a topology needs \"format\": \"copse-topology/1\""},
    {"{\"format\": 1}", "\"format\" must be a string"},
    {"{\"format\": \"copse-topology/2\"}", "reads \"copse-topology/1\""},
    {"{\"format\": \"copse-cluster/9\"}", "reads \"copse-cluster/1\""},
    {"{\"format\": \"copse-schedule/1\"}", "unknown format \"copse-schedule/1\""},
    {"{\"format\": \"copse-topology/1\"", "ends inside an object"},
    {HEAD "\"nodes\": [], \"links\": []}", "no node of type \"gpu\""},
    {HEAD "\"nodes\": [{\"id\": \"s\", \"type\": \"switch\"}], \"links\": []}",
     "no node of type \"gpu\""},
    {HEAD "\"links\": []}", "needs \"nodes\": "},
    {HEAD "\"nodes\": {}, \"links\": []}", "\"nodes\" must be an array"},
    {HEAD NODES " \"links\": 7}", "t:4: a topology: \"links\" must be an array"},
    {HEAD NODES " \"links\": [], \"edges\": []}",
     "unknown key \"edges\" in a topology, which may have"},
    {HEAD NODES " \"link\": []}", "unknown key \"link\" in a topology; did you mean \"links\"?"},
    {"{\"$schema\": 1, \"format\": \"copse-topology/1\"}", "\"$schema\" must be a string"},
    {HEAD "\"nodes\": [{\"$schema\": \"x\"}], \"links\": []}", "unknown key \"$schema\" in a node"},
    {HEAD NODES " \"links\": [], \"links\": []}", "key \"links\" twice"},
    {HEAD "\"nodes\": [7], \"links\": []}", "a node must be an object"},
    {HEAD "\"nodes\": [{\"id\": 5, \"type\": \"gpu\"}], \"links\": []}", "\"id\" must be a string"},
    {HEAD "\"nodes\": [{\"id\": \"\", \"type\": \"gpu\"}], \"links\": []}", "id is empty"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"\"}], \"links\": []}", "type of node \"a\""},
    {HEAD "\"nodes\": [{\"id\": \"a\"}], \"links\": []}", "t:2: a node (\"a\") needs \"type\": "},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},\n{\"id\": \"a\", \"type\": \"nic\"}],"
          "\"links\": []}",
     "t:3: node id \"a\" twice (first on line 2)"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"memory\": 5}], \"links\": []}",
     "t:2: unknown key \"memory\" in a node"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"multicast\": 1}], \"links\": []}",
     "\"multicast\" must be true or false"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 1}], \"links\": []}",
     "t:2: gpu \"a\" has rank 1; the ranks of 1 gpus must be 0 to 0"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": -1}], \"links\": []}",
     "\"rank\" must be an integer"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0.5}], \"links\": []}",
     "\"rank\" must be an integer"},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0},\n"
          "{\"id\": \"b\", \"type\": \"gpu\", \"rank\": 0}], \"links\": []}",
     "t:3: rank 0 twice: \"a\" (line 2) and \"b\""},
    {HEAD "\"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},\n"
          "{\"id\": \"s\", \"type\": \"nic\", \"rank\": 0}], \"links\": []}",
     "t:3: node \"s\" of type \"nic\" has a rank; only a gpu can"},
    {DOC(LINK("")),
     "t:5: a link (\"a\" to \"b\") needs \"bandwidth\": GB/s per direction, such as 50"},
    {DOC(LINK(", \"bandwidth\": 25") ",\n" BACK(", \"bandwidth\": 25")),
     "t:6: \"b\" to \"a\" has a link, and so has the way back (line 5), and neither says "
     "\"duplex\": give both \"duplex\": false for one direction each, or list the pair once"},
    {DOC(BACK(", \"bandwidth\": 1, \"duplex\": true") ", " LINK(", \"bandwidth\": 1") ",\n" LINK(
         ", \"bandwidth\": 2") ",\n" BACK(", \"bandwidth\": 25")),
     "t:7: \"b\" to \"a\" has a link"},
    {DOC(LINK(", \"bandwidth\": 0")),
     "t:5: a link (\"a\" to \"b\"): \"bandwidth\" must be positive (it is 0): GB/s"},
    {DOC(LINK(", \"bandwidth\": -3")), "must be positive (it is -3)"},
    {DOC(LINK(", \"bandwidth\": NaN")), "t:5: "},
    {DOC(LINK(", \"bandwidth\": Infinity")), "t:5: "},
    {DOC(LINK(", \"bandwidth\": -Infinity")), "t:5: "},
    {DOC(LINK(", \"bandwidth\": 1e400")), "\"bandwidth\": 1e400 is out of the range"},
    {DOC(LINK(", \"bandwidth\": 1e-400")), "\"bandwidth\": 1e-400 is out of the range"},
    {DOC(LINK(", \"bandwidth\": \"1/0\"")), "divides by zero"},
    {DOC(LINK(", \"bandwidth\": \"abc\"")), "'abc' is not a number"},
    {DOC(LINK(", \"bandwidth\": \"\"")), "is not a number"},
    {DOC(LINK(", \"bandwidth\": true")), "\"bandwidth\" must be a number or a string"},
    {DOC(LINK(", \"bandwidth\": null")), "\"bandwidth\" must be a number or a string"},
    {DOC(LINK(", \"bandwidth\": [5]")), "\"bandwidth\" must be a number or a string"},
    {DOC(LINK(", \"bandwidth\": 5, \"latency\": -1")),
     "\"latency\" must not be negative (it is -1): us, such as 0.5"},
    {DOC(LINK(", \"bandwidth\": 5, \"latency\": \"x\"")), "\"latency\": 'x' is not a number"},
    {DOC(LINK(", \"bandwidth\": 5, \"duplex\": \"no\"")), "\"duplex\" must be true or false"},
    {DOC(LINK(", \"bandwidth\": 5, \"colour\": 1")), "t:5: unknown key \"colour\" in a link"},
    {DOC(LINK(", \"bandwidth\": 5") ",\n{\"src\": \"a\", \"dst\": \"z\", \"bandwidth\": 1}"),
     "t:6: \"dst\" names \"z\", which is no node's id"},
    {DOC("{\"src\": \"\", \"dst\": \"b\", \"bandwidth\": 1}"), "\"src\" names \"\""},
    {DOC("{\"dst\": \"b\", \"bandwidth\": 1}"), "t:5: a link needs \"src\": the id of a node"},
    {DOC("{\"src\": \"s\", \"dst\": \"s\", \"bandwidth\": 1}"), "t:5: a link from \"s\" to itself"},
    {DOC(LINK(", \"bandwidth\": 5")) "x", "not"},
};

START_TEST(bad_input_is_refused_with_its_line) {
  expect_refusal(refusals[_i].text, refusals[_i].part);
}
END_TEST

START_TEST(every_truncation_is_refused) {
  const char *whole = DOC(LINK(", \"bandwidth\": 12.5, \"latency\": 1"));
  for (size_t n = 0; n < strlen(whole); n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    copse_status status = copse_topology_parse("t", whole, n, NULL, &t, &err);
    ck_assert_msg(status == COPSE_BAD_INPUT, "cut at %zu: %s", n, copse_status_string(status));
    ck_assert_ptr_null(t);
  }
}
END_TEST

START_TEST(a_hundred_megabytes_of_brackets_fail_at_once) {
  size_t n = (size_t)100 << 20;
  char *text = malloc(n);
  ck_assert_ptr_nonnull(text);
  memset(text, '[', n);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(copse_topology_parse("t", text, n, NULL, &t, &err), COPSE_BAD_INPUT, &err,
               "nested more than");
  free(text);
}
END_TEST

START_TEST(a_changed_byte_is_read_or_refused) {
  const char *whole = DOC(LINK(", \"bandwidth\": 12.5, \"latency\": 1"));
  expect_changed_bytes_answered(whole, 7);
}
END_TEST

START_TEST(a_missing_file_is_an_io_error) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(copse_topology_load("/nowhere/x.json", NULL, &t, &err), COPSE_IO, &err,
               "/nowhere/x.json: cannot open");
  struct copse_err folder = COPSE_ERR_INIT;
  ASSERT_FAILS(copse_topology_load("/tmp", NULL, &t, &folder), COPSE_IO, &folder, "/tmp: cannot");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/topology_json");
  TCase *good = tcase_create("reading"), *bad = tcase_create("refusals");
  tcase_add_test(good, contract_example_is_read);
  tcase_add_test(good, parallel_links_add_up_exactly);
  tcase_add_test(good, both_ways_may_be_listed_where_one_says_what_it_is);
  tcase_add_test(good, parallel_sum_beyond_64_bits_is_overflow);
  tcase_add_test(good, stated_ranks_are_used);
  tcase_add_test(good, partly_stated_ranks_give_way_to_appearance_with_a_note);
  tcase_add_test(good, routes_are_of_both_directions_unless_they_say_so);
  tcase_add_test(good, routes_come_along_while_they_are_whole);
  tcase_add_test(good, routes_that_are_none_are_refused);
  tcase_add_test(good, missing_name_is_the_stem_of_the_file);
  tcase_add_test(good, unbalanced_relay_is_found_with_both_sums);
  tcase_add_loop_test(bad, bad_input_is_refused_with_its_line, 0,
                      (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(bad, every_truncation_is_refused);
  tcase_add_test(bad, a_hundred_megabytes_of_brackets_fail_at_once);
  tcase_add_test(bad, a_changed_byte_is_read_or_refused);
  tcase_add_test(bad, a_missing_file_is_an_io_error);
  suite_add_tcase(suite, good);
  suite_add_tcase(suite, bad);
  return copse_test_run(suite);
}
