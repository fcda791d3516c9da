/* JSON input: exact digits, lines, strictness, and hostile documents. */
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "support/random.h"
#include "support/support.h"

static struct copse_json parse_good(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_json json;
  ASSERT_OK(copse_json_parse("t", text, strlen(text), &json, &err), &err);
  return json;
}

START_TEST(values_keep_their_types_digits_and_lines) {
  struct copse_json json = parse_good(
      "\xef\xbb\xbf{\"n\": 0.1,\n \"s\": \"x\\n\\u00e9\\\"\", \"t\": true,\n"
      " \"o\": {\"deep\": [1,\n 2.50]}, \"e\": {}, \"a\": []}\n");
  struct copse_err err = COPSE_ERR_INIT;
  const char *s = NULL;
  struct copse_q q;
  bool flag = false;
  int64_t v = 0;
  const cJSON *root = json.root, *o = copse_json_get(root, "o");
  ASSERT_OK(copse_json_get_rational(&json, root, "n", &q, &err), &err);
  ck_assert(q.num == 1 && q.den == 10);
  ck_assert(copse_json_is_number(copse_json_get(root, "n")));
  ck_assert(!copse_json_is_string(copse_json_get(root, "n")));
  ck_assert(!copse_json_is_number(copse_json_get(root, "s")));
  ck_assert_ptr_null(copse_json_get(root, "S"));
  ck_assert(copse_json_get_string(&json, root, "n", &s, NULL) == COPSE_BAD_INPUT);
  ASSERT_OK(copse_json_get_bool_or(&json, root, "t", false, &flag, &err), &err);
  ck_assert(flag);
  ASSERT_OK(copse_json_get_bool_or(&json, root, "none", true, &flag, &err), &err);
  ck_assert(flag);
  ck_assert_int_eq(copse_json_line(root, NULL), 1);
  ck_assert_int_eq(copse_json_line(o, root), 3);
  const cJSON *two = copse_json_first(copse_json_get(o, "deep"))->next;
  ck_assert_int_eq(copse_json_line(two, o), 4);
  ASSERT_OK(copse_json_rational(&json, two, o, "x", &q, &err), &err);
  ck_assert(q.num == 5 && q.den == 2);
  ck_assert_int_eq(copse_json_int(&json, two, o, "x", 0, 9, &v, NULL), COPSE_BAD_INPUT);
  ck_assert_ptr_null(copse_json_first(copse_json_get(root, "e")));
  ck_assert_ptr_null(copse_json_first(copse_json_get(root, "a")));
  copse_json_free(&json);
}
END_TEST

START_TEST(escapes_are_decoded) {
  struct copse_json json = parse_good("{\"s\": \"x\\n\\u00e9\\\"\\\\u0000\", \"\\u006b\": \"\"}");
  struct copse_err err = COPSE_ERR_INIT;
  const char *s = NULL;
  ASSERT_OK(copse_json_get_string(&json, json.root, "s", &s, &err), &err);
  ck_assert_str_eq(s, "x\n\xc3\xa9\"\\u0000");
  ASSERT_OK(copse_json_get_string(&json, json.root, "k", &s, &err), &err);
  ck_assert_str_eq(s, "");
  copse_json_free(&json);
}
END_TEST

START_TEST(integers_have_bounds) {
  struct copse_json json = parse_good("{\"a\": 5,\n\"b\": 5e0, \"c\": 5.5, \"d\": \"5\"}");
  struct copse_err err = COPSE_ERR_INIT, other = COPSE_ERR_INIT;
  int64_t v = 0;
  ASSERT_OK(copse_json_get_int(&json, json.root, "a", 5, 5, &v, &err), &err);
  ASSERT_OK(copse_json_get_int(&json, json.root, "b", 0, 9, &v, &err), &err);
  ck_assert_int_eq(v, 5);
  ASSERT_FAILS(copse_json_get_int(&json, json.root, "b", 6, 9, &v, &err), COPSE_BAD_INPUT, &err,
               "t:2: \"b\" must be an integer from 6 to 9");
  ck_assert_int_eq(copse_json_get_int(&json, json.root, "a", 0, 4, &v, NULL), COPSE_BAD_INPUT);
  ck_assert_int_eq(copse_json_get_int(&json, json.root, "c", 0, 9, &v, NULL), COPSE_BAD_INPUT);
  ck_assert_int_eq(copse_json_get_int(&json, json.root, "d", 0, 9, &v, NULL), COPSE_BAD_INPUT);
  ASSERT_FAILS(copse_json_get_int(&json, json.root, "z", 0, 9, &v, &other), COPSE_BAD_INPUT, &other,
               "t:1: \"z\" is missing");
  copse_json_free(&json);
}
END_TEST

static const struct copse_json_key shape[] = {
    {"id", COPSE_JSON_STRING, "a name"},
    {"bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE, "GB/s, such as 50"},
    {"latency", COPSE_JSON_NOT_NEGATIVE, "us, such as 0.5"},
    {"value", COPSE_JSON_NUMBER, "such as -1"},
    {"duplex", COPSE_JSON_BOOL, "both directions"},
    {"list", COPSE_JSON_ARRAY, "such as []"},
    {"map", COPSE_JSON_OBJECT, "such as {}"},
    {"rank", COPSE_JSON_INDEX, "such as 0"},
    {"count", COPSE_JSON_COUNT, "such as 4"},
    {"any", COPSE_JSON_ANY, ""},
    {0}};

/* Each is an object in a list; NULL: it is as it should be. */
static const struct {
  const char *text, *part;
} objects[] = {
    {"{\"bandwidth\": 1}", NULL},
    {"{\"bandwidth\": \"1/2\", \"id\": \"\", \"latency\": 0, \"value\": -1, \"duplex\": false, "
     "\"list\": [], \"map\": {}, \"rank\": 0, \"count\": 1, \"any\": null}",
     NULL},
    {"7", "t:2: it must be an object"},
    {"{}", "t:2: it needs \"bandwidth\": GB/s, such as 50"},
    {"{\"id\": \"a\"}", "t:2: it (\"a\") needs \"bandwidth\": GB/s, such as 50"},
    {"{\"src\": \"a\", \"dst\": \"b\"}",
     "unknown key \"src\" in it (\"a\" to \"b\"), which may have"},
    {"{\"bandwith\": 1}", "unknown key \"bandwith\" in it; did you mean \"bandwidth\"?"},
    {"{\"Bandwidht\": 1}", "unknown key \"Bandwidht\" in it; did you mean \"bandwidth\"?"},
    {"{\"speed\": 1}", "unknown key \"speed\" in it, which may have \"id\", \"bandwidth\", "},
    {"{\"$schema\": \"x\", \"bandwidth\": 1}", "unknown key \"$schema\" in it"},
    {"{\"bandwidth\": 1,\n \"bandwidth\": 1}", "t:2: key \"bandwidth\" twice in it"},
    {"{\n\"bandwidth\": 0}", "t:3: it: \"bandwidth\" must be positive (it is 0): GB/s, such as 50"},
    {"{\"bandwidth\": \"-1/2\"}", "\"bandwidth\" must be positive (it is -1/2)"},
    {"{\"bandwidth\": \"fast\"}", "it: \"bandwidth\": 'fast' is not a number; GB/s, such as 50"},
    {"{\"bandwidth\": true}", "\"bandwidth\" must be a number or a string \"p/q\": GB/s"},
    {"{\"bandwidth\": 1e400}", "\"bandwidth\": 1e400 is out of the range"},
    {"{\"latency\": -1}", "\"latency\" must not be negative (it is -1): us, such as 0.5"},
    {"{\"value\": []}", "\"value\" must be a number or a string \"p/q\": such as -1"},
    {"{\"id\": 5}", "\"id\" must be a string: a name"},
    {"{\"id\": null}", "\"id\" must be a string: a name"},
    {"{\"duplex\": 0}", "\"duplex\" must be true or false: both directions"},
    {"{\"list\": {}}", "\"list\" must be an array: such as []"},
    {"{\"map\": []}", "\"map\" must be an object: such as {}"},
    {"{\"rank\": -1}", "\"rank\" must be an integer from 0: such as 0"},
    {"{\"rank\": \"1\"}", "\"rank\" must be an integer from 0"},
    {"{\"rank\": 0.5}", "\"rank\" must be an integer from 0"},
    {"{\"count\": 0}", "\"count\" must be an integer from 1: such as 4"},
};

START_TEST(objects_have_known_keys_of_the_right_kind) {
  struct copse_err err = COPSE_ERR_INIT;
  char text[400];
  snprintf(text, sizeof text, "[\n%s]", objects[_i].text);
  struct copse_json json = parse_good(text);
  const cJSON *item = copse_json_first(json.root);
  copse_status status = copse_json_expect_object(&json, item, json.root, "it", shape, &err);
  ck_assert_int_eq(status, objects[_i].part ? COPSE_BAD_INPUT : COPSE_OK);
  if (objects[_i].part)
    ck_assert_msg(strstr(err.text, objects[_i].part) != NULL, "\"%s\" lacks \"%s\"", err.text,
                  objects[_i].part);
  copse_json_free(&json);
}
END_TEST

START_TEST(a_document_may_name_its_schema) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_json json = parse_good("{\"$schema\": \"x\", \"bandwidth\": 1}");
  ASSERT_OK(copse_json_expect_object(&json, json.root, NULL, "it", shape, &err), &err);
  copse_json_free(&json);
}
END_TEST

START_TEST(edits_are_counted) {
  static const struct {
    const char *a, *b;
    int edits;
    bool near;
  } cases[] = {{"", "", 0, true},
               {"", "abc", 3, false},
               {"kitten", "sitting", 3, false},
               {"dgxh100", "dgx-h100", 1, true},
               {"spnies", "spines", 1, true},
               {"Bandwidth", "bandwidth", 0, true},
               {"gpu", "cpu", 1, true},
               {"tpo", "topo", 1, true},
               {"foo", "topo", 2, false},
               {"nic", "gpu", 3, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_eq(copse_text_edits(cases[i].a, cases[i].b), cases[i].edits);
    ck_assert_int_eq(copse_text_edits(cases[i].b, cases[i].a), cases[i].edits);
    ck_assert_int_eq(copse_text_is_near(cases[i].a, cases[i].b), cases[i].near);
  }
  char longer[200];
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  ck_assert_int_eq(copse_text_edits(longer, "a"), 62);
}
END_TEST

static const struct {
  const char *text;
  const char *part;
} refusals[] = {
    {"", "t:1: empty"},
    {"{", "t:1: the file ends inside an object or array"},
    {"{\"a\": \"b", "t:1: the file ends inside a string"},
    {"{\"a\": \"b\\", "t:1: the file ends inside a string"},
    {"{\n\"a\": NaN}", "t:2: not JSON"},
    {"{\n\"a\": nan}", "t:2: not valid JSON"},
    {"{\"a\": Infinity}", "t:1: not JSON"},
    {"{\"a\": tru}", "t:1: not valid JSON"},
    {"{\"a\": 'b'}", "t:1: not JSON"},
    {"{\n\n\"a\" 1}", "t:3: not valid JSON"},
    {"{\"a\": 1,}", "t:1: not valid JSON"},
    {"[1,]", "t:1: not valid JSON"},
    {"[1 2]", "t:1: not valid JSON"},
    {"[1]]", "t:1: ']' closes nothing"},
    {"[1}", "t:1: '}' closes nothing"},
    {"{\"a\": [}]", "closes nothing"},
    {"{} {}", "t:1: not valid JSON"},
    {"{}\n\nx", "t:3: not JSON"},
    {"{} // a comment", "t:1: not JSON"},
    {"{\"a\": \"\t\"}", "control character inside a string"},
    {"{\"a\": \"\n\"}", "control character inside a string"},
    {"{\"a\": \"\\u0000\"}", "control character inside a string"},
    {"{\"a\": \"\\u0001"
     "1:5\"}",
     "control character inside a string"},
    {"{\"\\u0001\": 1}", "control character inside a string"},
    {"{\"a\": \"\\u001F\"}", "control character inside a string"},
    {"{\"a\": \"\\ud800\"}", "t:1: not valid JSON"},
    {"{\"a\": \"\\x41\"}", "t:1: not valid JSON"},
    {"\xff\xfe{\0}", "not JSON: a byte outside of text"},
    {"\x89PNG\r\n", "not JSON: a byte outside of text"},
    {"{1: 2}", "t:1: a number where a key was expected"},
    {"{\"a\": 5, -0.5\n: 2}", "t:1: a number where a key was expected"},
};

START_TEST(what_is_no_json_is_refused_with_its_line) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_json json;
  ASSERT_FAILS(copse_json_parse("t", refusals[_i].text, strlen(refusals[_i].text), &json, &err),
               COPSE_BAD_INPUT, &err, refusals[_i].part);
  ck_assert_ptr_null(json.root);
}
END_TEST

START_TEST(bytes_of_zero_are_refused_anywhere) {
  static const char texts[][10] = {"{\"a\":1}\0\0", "\0{\"a\":1}\0", "{\"a\0b\":1}"};
  for (size_t i = 0; i < 3; i++) {
    struct copse_json json;
    ck_assert_int_eq(copse_json_parse("t", texts[i], 9, &json, NULL), COPSE_BAD_INPUT);
  }
}
END_TEST

static copse_status parse_nested(int depth, char open, char close, const char *inner) {
  struct copse_text text = {0};
  struct copse_json json;
  struct copse_err err = COPSE_ERR_INIT;
  for (int i = 0; i < depth; i++)
    copse_text_append(&text, open == '[' ? "[" : "{\"a\":", open == '[' ? 1 : 5);
  copse_text_append(&text, inner, strlen(inner));
  for (int i = 0; i < depth; i++) copse_text_append(&text, &close, 1);
  copse_status status = copse_json_parse("t", text.data, text.size, &json, &err);
  copse_json_free(&json);
  copse_text_free(&text);
  return status;
}

START_TEST(nesting_ends_at_64_levels) {
  ck_assert_int_eq(parse_nested(64, '[', ']', "1"), COPSE_OK);
  ck_assert_int_eq(parse_nested(65, '[', ']', "1"), COPSE_BAD_INPUT);
  ck_assert_int_eq(parse_nested(64, '{', '}', "1"), COPSE_OK);
  ck_assert_int_eq(parse_nested(65, '{', '}', "1"), COPSE_BAD_INPUT);
}
END_TEST

START_TEST(a_hundred_megabytes_of_brackets_fail_at_once) {
  size_t n = (size_t)100 << 20;
  char *text = malloc(n);
  ck_assert_ptr_nonnull(text);
  struct copse_json json;
  for (int i = 0; i < 3; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    memset(text, "[{\""[i], n);
    ck_assert_int_eq(copse_json_parse("t", text, n, &json, &err), COPSE_BAD_INPUT);
  }
  free(text);
}
END_TEST

START_TEST(numbers_of_endless_digits_are_refused) {
  char text[1000] = "[";
  memset(text + 1, '1', 500);
  strcpy(text + 501, "]");
  struct copse_json json;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_FAILS(copse_json_parse("t", text, strlen(text), &json, &err), COPSE_BAD_INPUT, &err,
               "more than 400 digits");
}
END_TEST

START_TEST(numbers_are_checked_when_asked_for) {
  static const char *const bad[] = {"-", "01", "1.", "1e", "1e400", "1e-400", "--1", "1-2", "+"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[64];
    struct copse_json json;
    struct copse_q q;
    int n = snprintf(text, sizeof text, "{\"a\": %s}", bad[i]);
    if (copse_json_parse("t", text, (size_t)n, &json, NULL) == COPSE_OK) {
      struct copse_err err = COPSE_ERR_INIT;
      ASSERT_FAILS(copse_json_get_rational(&json, json.root, "a", &q, &err), COPSE_BAD_INPUT, &err,
                   "t:1: \"a\": ");
    }
    copse_json_free(&json);
  }
}
END_TEST

START_TEST(random_bytes_never_crash) {
  static const char alphabet[] = "{}[]\",:0123456789.eE+-truefalsn \n\\u\x01\x80";
  uint64_t state = 17;
  for (int i = 0; i < 50000; i++) {
    char text[48];
    size_t n = (size_t)copse_test_random_int(&state, 0, 47);
    for (size_t j = 0; j < n; j++) text[j] = alphabet[copse_test_random(&state) % sizeof alphabet];
    struct copse_json json;
    struct copse_err err = COPSE_ERR_INIT;
    copse_status status = copse_json_parse("t", text, n, &json, &err);
    ck_assert(status == COPSE_OK || status == COPSE_BAD_INPUT);
    ck_assert((status == COPSE_OK) == (json.root != NULL));
    copse_json_free(&json);
  }
}
END_TEST

START_TEST(strings_written_are_read_back) {
  uint64_t state = 23;
  for (int i = 0; i < 2000; i++) {
    char s[24];
    int n = copse_test_random_int(&state, 0, 23);
    for (int j = 0; j < n; j++) s[j] = (char)copse_test_random_int(&state, 0x20, 0x7f);
    s[n] = '\0';
    struct copse_text text = {0};
    copse_text_add(&text, "{\"s\": ");
    copse_text_add_json_string(&text, s);
    copse_text_add(&text, "}");
    struct copse_json json = parse_good(text.data);
    struct copse_err err = COPSE_ERR_INIT;
    const char *back = NULL;
    ASSERT_OK(copse_json_get_string(&json, json.root, "s", &back, &err), &err);
    ck_assert_str_eq(back, s);
    copse_json_free(&json);
    copse_text_free(&text);
  }
}
END_TEST

/* ---- lists that stay text ------------------------------------------------------------------ */

static const char *const kept[COPSE_JSON_LISTS] = {"trees", "flows"};

/* A value of brackets, strings with brackets and quotes in them, and numbers. */
static void add_value(struct copse_text *text, uint64_t *state, int depth) {
  static const char *const leaves[] = {"1",    "-2.5e3", "\"a\"", "\"}],{[\"", "\"\\\"]\\\\\"",
                                       "true", "null"};
  int kind = copse_test_random_int(state, 0, depth > 0 ? 2 : 0),
      n = copse_test_random_int(state, 0, 3);
  if (kind == 0) {
    copse_text_add(text, "%s", leaves[copse_test_random_int(state, 0, 6)]);
    return;
  }
  copse_text_add(text, kind == 1 ? "[" : "{");
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s%s", i ? "," : "", copse_test_random_int(state, 0, 2) ? "" : " \n ");
    if (kind == 2) copse_text_add(text, "\"trees%d\" :", i);
    add_value(text, state, depth - 1);
  }
  copse_text_add(text, kind == 1 ? "\n]" : "}");
}

/* Every item is what a parse of the whole document has there, with its line. */
START_TEST(lists_have_the_items_of_the_whole_document) {
  uint64_t state = 31u * (uint64_t)_i + 7;
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  struct copse_json whole, parts, item;
  copse_text_add(&text, "{\"a\": {\"trees\": [1, 2]},\n\"trees\": [");
  for (int i = 0, n = copse_test_random_int(&state, 0, 5); i < n; i++) {
    copse_text_add(&text, i ? " ,\n" : "\n");
    add_value(&text, &state, 4);
  }
  copse_text_add(&text, "\n], \"b\": [{}], \"last\": {}}");
  ASSERT_OK(copse_json_parse("t", text.data, text.size, &whole, &err), &err);
  ASSERT_OK(copse_json_parse_lists("t", text.data, text.size, kept, &parts, &err), &err);
  const struct copse_json_list *list = copse_json_list(&parts, "trees");
  const cJSON *there = copse_json_get(whole.root, "trees")->child;
  for (size_t i = 0; i < list->n; i++, there = there->next) {
    ck_assert_ptr_nonnull(there);
    ASSERT_OK(copse_json_item(&parts, list, i, &item, &err), &err);
    ck_assert_msg(cJSON_Compare(item.root, there, true), "item %zu of %s", i, text.data);
    copse_json_free(&item);
  }
  ck_assert_ptr_null(there);
  ck_assert_ptr_null(copse_json_get(parts.root, "trees")->child);
  ck_assert_int_eq(copse_json_line(copse_json_get(parts.root, "last"), NULL),
                   copse_json_line(copse_json_get(whole.root, "last"), NULL));
  ck_assert(cJSON_Compare(copse_json_get(parts.root, "b"), copse_json_get(whole.root, "b"), true));
  copse_json_free(&parts);
  copse_json_free(&whole);
}
END_TEST

/* Where the whole is refused, so is a list or an item of it. */
START_TEST(lists_refuse_what_the_whole_does) {
  static const char *const bad[] = {"{\"trees\": [1,]}",
                                    "{\"trees\": [,1]}",
                                    "{\"trees\": [1 2]}",
                                    "{\"trees\": [",
                                    "{\"trees\": [1}",
                                    "{\"trees\": [[1}]}",
                                    "{\"trees\": [{]}",
                                    "{\"trees\": [\"a]}",
                                    "{\"trees\": [1]],\"a\":1}",
                                    "{\"trees\" [1]}",
                                    "{\"trees\": [1] 2}",
                                    "{\"trees\": [01x]}",
                                    "{\"trees\": [{\"a\" 1}]}",
                                    "{\"trees\": [\"\\u0001\"]}",
                                    "{\"trees\": [\xef\xbb\xbf"
                                    "1]}"};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_json json, item;
  ck_assert_int_ne(copse_json_parse("t", bad[_i], strlen(bad[_i]), &json, &err), COPSE_OK);
  copse_json_free(&json);
  err.status = COPSE_OK;
  copse_status status = copse_json_parse_lists("t", bad[_i], strlen(bad[_i]), kept, &json, &err);
  const struct copse_json_list *list = copse_json_list(&json, "trees");
  for (size_t i = 0; status == COPSE_OK && i < list->n; i++) {
    status = copse_json_item(&json, list, i, &item, &err);
    copse_json_free(&item);
  }
  ck_assert_msg(status == COPSE_BAD_INPUT, "%s", bad[_i]);
  copse_json_free(&json);
}
END_TEST

/* "/cuts": of an object in the root, no other; its items have the file's lines. */
START_TEST(lists_of_an_object_in_the_root_stay_text_too) {
  static const char *const names[COPSE_JSON_LISTS] = {"trees", "/cuts"};
  static const char text[] =
      "{\"cuts\": [7], \"trees\": [{\"cuts\": [8]}],\n"
      " \"bound\": {\"x\": {\"cuts\": [9]}, \"trees\": [6],\n  \"cuts\": [{\"a\": 1},\n {\"a\": "
      "2}]},\n"
      " \"last\": {}, \"list\": [{\"cuts\": [5]}]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_json json, item;
  ASSERT_OK(copse_json_parse_lists("t", text, sizeof text - 1, names, &json, &err), &err);
  const cJSON *bound = copse_json_get(json.root, "bound");
  ck_assert_int_eq(cJSON_GetArraySize(copse_json_get(json.root, "cuts")), 1);
  ck_assert_int_eq(cJSON_GetArraySize(copse_json_get(bound, "trees")), 1);
  ck_assert_int_eq(cJSON_GetArraySize(copse_json_get(bound, "cuts")), 0);
  ck_assert_int_eq(cJSON_GetArraySize(copse_json_get(copse_json_get(bound, "x"), "cuts")), 1);
  const cJSON *in_list = copse_json_first(copse_json_get(json.root, "list"));
  ck_assert_int_eq(cJSON_GetArraySize(copse_json_get(in_list, "cuts")), 1);
  ck_assert_uint_eq(copse_json_list(&json, "trees")->n, 1);
  const struct copse_json_list *list = copse_json_list(&json, "/cuts");
  ck_assert_uint_eq(list->n, 2);
  for (int i = 0; i < 2; i++) {
    int64_t a;
    ASSERT_OK(copse_json_item(&json, list, (size_t)i, &item, &err), &err);
    ASSERT_OK(copse_json_get_int(&item, item.root, "a", i + 1, i + 1, &a, &err), &err);
    ck_assert_int_eq(copse_json_line(item.root, NULL), 3 + i);
    copse_json_free(&item);
  }
  ck_assert_int_eq(copse_json_line(copse_json_get(json.root, "last"), NULL), 5);
  copse_json_free(&json);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("base/json");
  TCase *tc = tcase_create("reading");
  tcase_add_test(tc, values_keep_their_types_digits_and_lines);
  tcase_add_test(tc, escapes_are_decoded);
  tcase_add_test(tc, integers_have_bounds);
  tcase_add_loop_test(tc, objects_have_known_keys_of_the_right_kind, 0,
                      sizeof objects / sizeof *objects);
  tcase_add_test(tc, a_document_may_name_its_schema);
  tcase_add_test(tc, edits_are_counted);
  tcase_add_test(tc, numbers_are_checked_when_asked_for);
  tcase_add_test(tc, strings_written_are_read_back);
  suite_add_tcase(suite, tc);
  tc = tcase_create("lists");
  tcase_add_loop_test(tc, lists_have_the_items_of_the_whole_document, 0,
                      COPSE_TEST_SOME(copse_test_all() ? 3000 : 700));
  tcase_add_loop_test(tc, lists_refuse_what_the_whole_does, 0, 15);
  tcase_add_test(tc, lists_of_an_object_in_the_root_stay_text_too);
  suite_add_tcase(suite, tc);
  tc = tcase_create("refusals");
  tcase_add_loop_test(tc, what_is_no_json_is_refused_with_its_line, 0,
                      (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(tc, bytes_of_zero_are_refused_anywhere);
  tcase_add_test(tc, nesting_ends_at_64_levels);
  tcase_add_test(tc, a_hundred_megabytes_of_brackets_fail_at_once);
  tcase_add_test(tc, numbers_of_endless_digits_are_refused);
  tcase_add_test(tc, random_bytes_never_crash);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
