/* Calls that may never return, and those who don't wait for them. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/parallel.h"
#include "support/support.h"

struct job {
  atomic_bool goes, over;
};

static void do_job(void *context) {
  struct job *it = context;
  while (!atomic_load(&it->goes)) usleep(1000);
  atomic_store(&it->over, true);
}

START_TEST(what_ends_is_waited_for) {
  struct job it = {true, false};
  ck_assert(copse_run_detached(do_job, &it, 60));
  ck_assert(atomic_load(&it.over));
}
END_TEST

START_TEST(what_does_not_end_goes_on_by_itself) {
  static const double seconds[] = {0, 0.001, 0.3};
  for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
    struct job it = {false, false};
    ck_assert(!copse_run_detached(do_job, &it, seconds[i]));
    ck_assert(!atomic_load(&it.over));
    atomic_store(&it.goes, true);
    while (!atomic_load(&it.over)) usleep(1000);
    usleep(20000); /* for the thread to free what is its own */
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("base/parallel");
  TCase *tc = tcase_create("detached");
  tcase_add_test(tc, what_ends_is_waited_for);
  tcase_add_test(tc, what_does_not_end_goes_on_by_itself);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
