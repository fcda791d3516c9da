/* Canonical topology JSON: a fixpoint, and what its checksum depends on. */
#include "helpers.h"

START_TEST(canonical_text_is_as_documented) {
  struct copse_topology *t = read_good(
      "{\"format\":\"copse-topology/1\",\"name\":\"q\\\"\\u00e9\",\"nodes\":["
      "{\"id\":\"a\",\"type\":\"gpu\"},{\"id\":\"b\",\"type\":\"gpu\"},"
      "{\"id\":\"s\",\"type\":\"switch\",\"aggregation\":true,\"gdr\":false,\"multicast\":true}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":12.50,\"latency\":0.5,\"duplex\":false},"
      "{\"src\":\"b\",\"dst\":\"s\",\"bandwidth\":\"1/3\"},"
      "{\"src\":\"s\",\"dst\":\"a\",\"bandwidth\":\"25/2\",\"latency\":0.5,\"duplex\":false},"
      "{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":1e3,\"duplex\":false},"
      "{\"src\":\"b\",\"dst\":\"a\",\"bandwidth\":0.000000001,\"duplex\":false}]}",
      COPSE_LINKS_DEFAULT);
  char *text = to_json(t);
  ck_assert_str_eq(text,
                   "{\"format\": \"copse-topology/1\", \"name\": \"q\\\"\xc3\xa9\",\n"
                   " \"nodes\": [\n"
                   "  {\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0},\n"
                   "  {\"id\": \"b\", \"type\": \"gpu\", \"rank\": 1},\n"
                   "  {\"id\": \"s\", \"type\": \"switch\", \"multicast\": true, "
                   "\"aggregation\": true, \"gdr\": false}],\n"
                   " \"links\": [\n"
                   "  {\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 12.5, \"latency\": 0.5},\n"
                   "  {\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": \"1/3\"},\n"
                   "  {\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1000, \"duplex\": false},\n"
                   "  {\"src\": \"b\", \"dst\": \"a\", \"bandwidth\": 0.000000001, "
                   "\"duplex\": false}]}\n");
  free(text);
  copse_topology_free(t);
}
END_TEST

/* A random topology, with every kind of bandwidth, parallel and one-way links. */
static void random_text(uint64_t *state, char *text, size_t size) {
  static const char *const bandwidths[] = {"25",      "0.1",  "12.5",  "\"625/2\"",
                                           "\"1/3\"", "3e-7", "1e-12", "9007199254740993"};
  int n = copse_test_random_int(state, 2, 9);
  size_t used = (size_t)snprintf(text, size, "{\"format\":\"copse-topology/1\",\"nodes\":[");
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(text + used, size - used, "%s{\"id\":\"n\\\\%d\",\"type\":\"%s\"}",
                             i ? "," : "", i,
                             i == 0 || copse_test_random_int(state, 0, 1) ? "gpu" : "nic");
  used += (size_t)snprintf(text + used, size - used, "],\"links\":[");
  for (int i = 0, links = copse_test_random_int(state, 0, 20); i < links; i++) {
    int a = copse_test_random_int(state, 0, n - 1), b = copse_test_random_int(state, 0, n - 2);
    used += (size_t)snprintf(
        text + used, size - used,
        "%s{\"src\":\"n\\\\%d\",\"dst\":\"n\\\\%d\",\"bandwidth\":%s,\"latency\":%d,\"duplex\":%s}",
        i ? "," : "", a, b >= a ? b + 1 : b, bandwidths[copse_test_random_int(state, 0, 7)],
        copse_test_random_int(state, 0, 2), copse_test_random_int(state, 0, 1) ? "true" : "false");
  }
  snprintf(text + used, size - used, "]}");
}

START_TEST(reading_back_gives_the_same_topology_and_bytes) {
  uint64_t state = 99;
  static char text[8192];
  for (int round = 0; round < 300; round++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    random_text(&state, text, sizeof text);
    copse_status status = parse_as(text, COPSE_LINKS_ALL, &t, &err);
    if (status == COPSE_OVERFLOW) continue; /* a sum of 3e-7, 1/3 and 2^53 */
    ASSERT_OK(status, &err);
    char *first = to_json(t);
    struct copse_topology *back = read_good(first, COPSE_LINKS_DEFAULT);
    char *second = to_json(back);
    ck_assert_str_eq(first, second);
    ck_assert_int_eq(t->n_links, back->n_links);
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *link = &t->links[i];
      int j = copse_topology_find_link(back, link->src, link->dst);
      ck_assert_int_ge(j, 0);
      ck_assert(copse_q_eq(link->bandwidth, back->links[j].bandwidth));
      ck_assert(copse_q_eq(link->latency, back->links[j].latency));
    }
    free(first);
    free(second);
    copse_topology_free(t);
    copse_topology_free(back);
  }
}
END_TEST

#define SMALL(bandwidth)                                                 \
  "{\"format\": \"copse-topology/1\", \"name\": \"s\",\n \"nodes\": [\n" \
  "  {\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0},\n"                 \
  "  {\"id\": \"b\", \"type\": \"gpu\", \"rank\": 1}],\n \"links\": [\n" \
  "  {\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": " bandwidth "}]}\n"

static void checksum(const char *text, char hex[COPSE_SHA256_HEX]) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = read_good(text, COPSE_LINKS_DEFAULT);
  ASSERT_OK(copse_topology_sha256(t, hex, &err), &err);
  copse_topology_free(t);
}

START_TEST(checksum_is_of_the_canonical_bytes) {
  char direct[COPSE_SHA256_HEX], hex[COPSE_SHA256_HEX], other[COPSE_SHA256_HEX];
  copse_sha256_hex(SMALL("25"), strlen(SMALL("25")), direct);
  checksum(SMALL("25"), hex);
  ck_assert_str_eq(hex, direct);
  checksum(SMALL("2.50e1"), other);
  ck_assert_str_eq(hex, other);
  checksum(SMALL("26"), other);
  ck_assert_str_ne(hex, other);
  ck_assert_str_eq(hex, "9f83b0870cc24b6f7fbc043d66445081567662a911b421199d3602329cc516fc");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/canonical_json");
  TCase *tc = tcase_create("writing");
  tcase_add_test(tc, canonical_text_is_as_documented);
  tcase_add_test(tc, reading_back_gives_the_same_topology_and_bytes);
  tcase_add_test(tc, checksum_is_of_the_canonical_bytes);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
