/* The hash map behind ids and pairs, and the lookups that rest on it. */
#include "base/graph.h"

#include "helpers.h"

START_TEST(equal_keys_come_back_in_order_of_addition) {
  struct copse_index_map map = {0};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = 5;
  static int expected[64][2000];
  int n[64] = {0};
  for (int i = 0; i < 2000; i++) {
    int key = copse_test_random_int(&state, 0, 63);
    ASSERT_OK(copse_index_map_add(&map, (uint64_t)key, i, &err), &err);
    expected[key][n[key]++] = i;
  }
  for (int key = 0; key < 64; key++) {
    size_t cursor = 0;
    for (int i = 0; i < n[key]; i++)
      ck_assert_int_eq(copse_index_map_next(&map, (uint64_t)key, &cursor), expected[key][i]);
    ck_assert_int_eq(copse_index_map_next(&map, (uint64_t)key, &cursor), -1);
  }
  copse_index_map_free(&map);
}
END_TEST

START_TEST(empty_map_has_nothing) {
  struct copse_index_map map = {0};
  size_t cursor = 0;
  ck_assert_int_eq(copse_index_map_next(&map, 7, &cursor), -1);
  copse_index_map_free(&map);
}
END_TEST

START_TEST(every_node_and_link_of_a_large_topology_is_found) {
  enum { NODES = 500 };
  char *text = malloc(200000);
  ck_assert_ptr_nonnull(text);
  char *p = text + sprintf(text, "{\"format\":\"copse-topology/1\",\"nodes\":[");
  for (int i = 0; i < NODES; i++)
    p += sprintf(p, "%s{\"id\":\"n%d\",\"type\":\"gpu\"}", i ? "," : "", i);
  p += sprintf(p, "],\"links\":[");
  for (int i = 0; i < NODES; i++)
    p += sprintf(p, "%s{\"src\":\"n%d\",\"dst\":\"n%d\",\"bandwidth\":1,\"duplex\":true}",
                 i ? "," : "", i, (i * 7 + 1) % NODES == i ? (i + 1) % NODES : (i * 7 + 1) % NODES);
  sprintf(p, "]}");
  struct copse_topology *t = read_good(text, COPSE_LINKS_ALL);
  for (int i = 0; i < NODES; i++) ck_assert_int_eq(copse_topology_find(t, t->nodes[i].id), i);
  int found = 0;
  for (int a = 0; a < NODES; a++)
    for (int b = 0; b < NODES; b++) {
      int link = copse_topology_find_link(t, a, b);
      if (link < 0) continue;
      found++;
      ck_assert(t->links[link].src == a && t->links[link].dst == b);
    }
  ck_assert_int_eq(found, t->n_links);
  copse_topology_free(t);
  free(text);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/index_map");
  TCase *tc = tcase_create("lookups");
  tcase_add_test(tc, equal_keys_come_back_in_order_of_addition);
  tcase_add_test(tc, empty_map_has_nothing);
  tcase_add_test(tc, every_node_and_link_of_a_large_topology_is_found);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
