/* Disjoint sets, adjacency, queues and permutations against direct computations on random inputs. */
#include "base/graph.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

enum { MOST = 40 };

static int below(uint64_t *seed, int n) { return (int)(copse_test_random(seed) % (uint64_t)n); }

START_TEST(sets_are_the_connected_parts_named_by_their_least_member) {
  uint64_t seed = 1 + (uint64_t)_i;
  int n = 1 + below(&seed, MOST), parent[MOST];
  bool joined[MOST][MOST] = {{false}};
  copse_sets_init(parent, n);
  for (int i = 0; i < n; i++) joined[i][i] = true;
  for (int k = 0; k < n; k++) {
    int a = below(&seed, n), b = below(&seed, n);
    ck_assert_int_eq(copse_sets_unite(parent, a, b), !joined[a][b]);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        if ((joined[i][a] && joined[j][b]) || (joined[i][b] && joined[j][a])) joined[i][j] = true;
  }
  for (int i = 0; i < n; i++) {
    int least = 0;
    while (!joined[least][i]) least++;
    ck_assert_int_eq(copse_sets_find(parent, i), least);
  }
}
END_TEST

START_TEST(every_item_stands_under_its_key_in_order) {
  struct pair {
    char other;
    int key;
  } items[3 * MOST];
  uint64_t seed = 100 + (uint64_t)_i;
  int n_keys = 1 + below(&seed, MOST), n_items = below(&seed, 3 * MOST), seen = 0, left_out = 0;
  for (int i = 0; i < n_items; i++) items[i].key = below(&seed, n_keys + 1) - 1;
  for (int i = 0; i < n_items; i++) left_out += items[i].key < 0;
  struct copse_arena arena = {0};
  struct copse_adjacency by;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_adjacency_by(&arena, n_keys, n_items, &items[0].key, sizeof *items, &by, &err),
            &err);
  for (int v = 0; v < n_keys; v++)
    for (int i = by.first[v], before = -1; i < by.first[v + 1]; i++, seen++) {
      ck_assert_int_eq(items[by.item[i]].key, v);
      ck_assert_int_gt(by.item[i], before);
      before = by.item[i];
    }
  ck_assert_int_eq(seen + left_out, n_items);
  copse_arena_free(&arena);
}
END_TEST

START_TEST(a_permutation_and_its_inverse_compose_to_the_identity) {
  uint64_t seed = 200 + (uint64_t)_i;
  int n = 1 + below(&seed, MOST), image[MOST], inverse[MOST];
  for (int i = 0; i < n; i++) image[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = below(&seed, i + 1), swap = image[i];
    image[i] = image[j];
    image[j] = swap;
  }
  copse_permutation_invert(image, n, inverse);
  copse_permutation_compose(image, inverse, n, image);
  for (int i = 0; i < n; i++) ck_assert_int_eq(image[i], i);
}
END_TEST

/* A queue that goes round holds what a list that grows holds. */
START_TEST(a_queue_that_goes_round_keeps_its_order) {
  uint64_t seed = 300 + (uint64_t)_i;
  int items[MOST + 1], size = 2 + below(&seed, MOST), all[20 * MOST], n_in = 0, n_out = 0;
  struct copse_queue queue = {.items = items};
  for (int k = 0; k < 20 * MOST; k++) {
    bool full = n_in - n_out == size - 1, empty = n_in == n_out;
    ck_assert_int_eq(copse_queue_is_empty(&queue), empty);
    if (full || (!empty && below(&seed, 2))) {
      ck_assert_int_eq(copse_queue_pop_around(&queue, size), all[n_out++]);
    } else {
      all[n_in] = below(&seed, 1000);
      copse_queue_push_around(&queue, size, all[n_in++]);
    }
  }
}
END_TEST

/* Of the generator's published constants, and of FNV-1a's published values. */
START_TEST(numbers_and_hashes_are_the_published_ones) {
  uint64_t state = 1;
  for (int i = 0; i < 3; i++) {
    static const uint32_t expected[] = {0x6c576facu, 0x826886b3u, 0xa5fae199u};
    ck_assert_uint_eq(copse_random(&state), expected[i]);
  }
  state = 1;
  for (int i = 0; i < 4; i++) {
    static const int limits[] = {7, 10, 3, 1000000}, expected[] = {1, 3, 0, 192870};
    ck_assert_int_eq(copse_random_below(&state, limits[i]), expected[i]);
  }
  ck_assert(copse_key_text("") == 0xcbf29ce484222325u);
  ck_assert(copse_key_text("a") == 0xaf63dc4c8601ec8cu);
  ck_assert(copse_key_text("foobar") == 0x85944171f73967e8u);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("base/graph");
  TCase *tc = tcase_create("graph");
  tcase_add_loop_test(tc, sets_are_the_connected_parts_named_by_their_least_member, 0, COPSE_TEST_SOME(200));
  tcase_add_loop_test(tc, every_item_stands_under_its_key_in_order, 0, COPSE_TEST_SOME(200));
  tcase_add_loop_test(tc, a_permutation_and_its_inverse_compose_to_the_identity, 0, 50);
  tcase_add_loop_test(tc, a_queue_that_goes_round_keeps_its_order, 0, COPSE_TEST_SOME(200));
  tcase_add_test(tc, numbers_and_hashes_are_the_published_ones);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
