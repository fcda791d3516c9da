/* The barrier of a host's processes: locks on a file that has no name for long. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/gpu/peer_barrier.h"
#include "support/support.h"

struct pair {
  char name[COPSE_PEER_BARRIER_NAME];
  struct copse_peer_barrier *one, *other;
};

static struct pair make_pair(void) {
  struct copse_err err = COPSE_ERR_INIT;
  struct pair it;
  ck_assert_msg(copse_peer_barrier_new(it.name, &it.one, &err) == COPSE_OK, "%s", err.text);
  ck_assert_msg(copse_peer_barrier_open(it.name, &it.other, &err) == COPSE_OK, "%s", err.text);
  return it;
}

START_TEST(each_knows_whether_the_other_has_arrived) {
  struct pair it = make_pair();
  copse_peer_barrier_unlink(it.name);
  ck_assert(!copse_peer_barrier_all_arrived(it.one));
  ck_assert(!copse_peer_barrier_all_arrived(it.other));
  copse_peer_barrier_arrive(it.one);
  ck_assert(!copse_peer_barrier_all_arrived(it.one)); /* of the others */
  ck_assert(copse_peer_barrier_all_arrived(it.other));
  copse_peer_barrier_free(it.other);
  ck_assert(copse_peer_barrier_all_arrived(it.one));
  copse_peer_barrier_free(it.one);
  copse_peer_barrier_free(NULL);
}
END_TEST

START_TEST(nothing_stays_in_shared_memory) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_peer_barrier *late = NULL;
  struct pair it = make_pair(), another = make_pair();
  ck_assert_str_ne(it.name, another.name);
  copse_peer_barrier_unlink(it.name);
  copse_peer_barrier_unlink(another.name);
  ck_assert_int_eq(copse_peer_barrier_open(it.name, &late, &err), COPSE_IO);
  ck_assert_ptr_null(late);
  ck_assert_ptr_nonnull(strstr(err.text, it.name));
  copse_peer_barrier_free(it.one);
  copse_peer_barrier_free(it.other);
  copse_peer_barrier_free(another.one);
  copse_peer_barrier_free(another.other);
}
END_TEST

START_TEST(a_killed_process_has_arrived) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_peer_barrier *mine;
  char name[COPSE_PEER_BARRIER_NAME], byte;
  int ready[2];
  ck_assert_int_eq(copse_peer_barrier_new(name, &mine, &err), COPSE_OK);
  ck_assert_int_eq(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    struct copse_peer_barrier *its;
    if (copse_peer_barrier_open(name, &its, &err) != COPSE_OK) _exit(1);
    (void)!write(ready[1], "r", 1);
    for (;;) pause();
  }
  ck_assert_int_eq(read(ready[0], &byte, 1), 1);
  copse_peer_barrier_unlink(name);
  ck_assert(!copse_peer_barrier_all_arrived(mine));
  kill(child, SIGKILL);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  ck_assert(copse_peer_barrier_all_arrived(mine));
  copse_peer_barrier_free(mine);
  close(ready[0]);
  close(ready[1]);
}
END_TEST

/* A child that was forked has the file, and lives on. */
START_TEST(a_child_does_not_speak_for_its_parent) {
  struct pair it = make_pair();
  pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  copse_peer_barrier_unlink(it.name);
  ck_assert(!copse_peer_barrier_all_arrived(it.other));
  copse_peer_barrier_free(it.one);
  ck_assert(copse_peer_barrier_all_arrived(it.other));
  kill(child, SIGKILL);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  copse_peer_barrier_free(it.other);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/barrier");
  TCase *tc = tcase_create("barrier");
  tcase_add_test(tc, each_knows_whether_the_other_has_arrived);
  tcase_add_test(tc, nothing_stays_in_shared_memory);
  tcase_add_test(tc, a_killed_process_has_arrived);
  tcase_add_test(tc, a_child_does_not_speak_for_its_parent);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
