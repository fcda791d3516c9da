/* JSON input: exact digits, lines, strictness, and hostile documents. */
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
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

START_TEST(objects_have_known_keys_once_each) {
  static const char *const keys[] = {"a", "b", NULL};
  struct copse_json json = parse_good(
      "[{\"a\": 1, \"b\": 2},\n{\"a\": 1, \"c\": 2},\n"
      "{\"a\": 1, \"a\": 1},\n7]");
  static const char *const parts[] = {"", "t:2: unknown key \"c\" in it",
                                      "t:3: key \"a\" twice in it", "t:4: it must be an object"};
  int i = 0;
  COPSE_JSON_EACH (item, json.root) {
    struct copse_err err = COPSE_ERR_INIT;
    copse_status status = copse_json_expect_object(&json, item, json.root, "it", keys, &err);
    ck_assert_int_eq(status, i == 0 ? COPSE_OK : COPSE_BAD_INPUT);
    ck_assert_str_eq(err.text, parts[i]);
    i++;
  }
  ck_assert_int_eq(i, 4);
  copse_json_free(&json);
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

int main(void) {
  Suite *suite = suite_create("base/json");
  TCase *tc = tcase_create("reading");
  tcase_add_test(tc, values_keep_their_types_digits_and_lines);
  tcase_add_test(tc, escapes_are_decoded);
  tcase_add_test(tc, integers_have_bounds);
  tcase_add_test(tc, objects_have_known_keys_once_each);
  tcase_add_test(tc, numbers_are_checked_when_asked_for);
  tcase_add_test(tc, strings_written_are_read_back);
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
