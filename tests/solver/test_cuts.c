/* The pool of known cuts: membership by node and by list stays in step, also when it is full. */
#include "solver/network/cuts.h"

#include <string.h>

#include "support/support.h"

#define N 24

static void check_lists(const struct copse_cuts *cuts) {
  for (int v = 0; v < N; v++) {
    bool listed[2048] = {false};
    const int *list = copse_cuts_holding(cuts, v);
    for (int i = 0; i < cuts->n_holding[v]; i++) {
      ck_assert_int_lt(list[i], cuts->n);
      ck_assert(!listed[list[i]]);
      listed[list[i]] = true;
    }
    for (int c = 0; c < cuts->n; c++) ck_assert_int_eq(listed[c], copse_cuts_of(cuts, v)[c]);
  }
}

/* The set whose members are the bits of `number`. */
static void set_of(unsigned number, unsigned char *inside) {
  for (int v = 0; v < N; v++) inside[v] = number >> v & 1;
}

START_TEST(a_known_cut_is_not_added_again) {
  struct copse_cuts cuts;
  struct copse_err err = COPSE_ERR_INIT;
  unsigned char inside[N];
  ASSERT_OK(copse_cuts_new(N, &cuts, &err), &err);
  set_of(5, inside);
  ck_assert_int_eq(copse_cuts_add(&cuts, inside, 7), 0);
  ck_assert_int_eq(copse_cuts_add(&cuts, inside, 3), -1);
  ck_assert_int_eq(cuts.slack[0], 7);
  set_of(6, inside);
  ck_assert_int_eq(copse_cuts_add(&cuts, inside, 3), 1);
  ck_assert_int_eq(cuts.n, 2);
  check_lists(&cuts);
  copse_cuts_free(&cuts);
}
END_TEST

START_TEST(a_full_pool_gives_up_the_cut_that_spares_most) {
  struct copse_cuts cuts;
  struct copse_err err = COPSE_ERR_INIT;
  unsigned char inside[N];
  ASSERT_OK(copse_cuts_new(N, &cuts, &err), &err);
  for (int c = 0; c < cuts.most; c++) {
    set_of((unsigned)c * 2654435761u | 1u, inside);
    ck_assert_int_eq(copse_cuts_add(&cuts, inside, c == 17 ? 1000 : c % 5), c);
  }
  check_lists(&cuts);
  for (int c = 0; c < 50; c++) {
    set_of(2u * (unsigned)(c + 1), inside); /* not one that is there: bit 0 */
    int place = copse_cuts_add(&cuts, inside, 0);
    if (c == 0) ck_assert_int_eq(place, 17);
    ck_assert_int_ge(place, 0);
    ck_assert_int_eq(cuts.slack[place], 0);
    ck_assert_int_eq(cuts.n, cuts.most);
  }
  check_lists(&cuts);
  copse_cuts_free(&cuts);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/cuts");
  TCase *tests = tcase_create("cuts");
  tcase_add_test(tests, a_known_cut_is_not_added_again);
  tcase_add_test(tests, a_full_pool_gives_up_the_cut_that_spares_most);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
