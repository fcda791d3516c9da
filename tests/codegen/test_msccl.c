/*
 * MSCCL XML: everything that is written is proved and runs right in a second model; changed
 * programs are refuted with the step named, or still run right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/msccl/check.h"
#include "codegen/msccl/lower.h"
#include "support/fabric.h"
#include "support/msccl_model.h"
#include "support/random_topology.h"
#include "support/support.h"

static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                               COPSE_ALLREDUCE, COPSE_ALLTOALL};

/* The XML of a fabric's schedule, or NULL where the executors' limits are in the way. */
static char *lower(const char *fabric, copse_collective collective,
                   struct copse_msccl_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_msccl_summary summary;
  struct copse_schedule *schedule = copse_test_solve(fabric, collective, 0);
  char *text = NULL;
  size_t size;
  copse_status status = copse_lower_msccl(schedule, &options, &text, &size, &summary, &err);
  if (status == COPSE_UNSUPPORTED) {
    struct copse_err again = COPSE_ERR_INIT;
    char advice[160];
    ASSERT_OK(copse_msccl_advise(schedule, &options, advice, sizeof advice, &again), &again);
    ck_assert_msg(strstr(advice, " fits") != NULL, "%s: %s", err.text, advice);
    options.chunks = 8;
    ASSERT_OK(copse_lower_msccl(schedule, &options, &text, &size, &summary, &again), &again);
  } else {
    ASSERT_OK(status, &err);
  }
  copse_schedule_free(schedule);
  return text;
}

static copse_status check(const char *xml, struct copse_err *err) {
  struct copse_check_msccl_report report;
  return copse_check_msccl("test.xml", xml, strlen(xml), &report, err);
}

static void prove(const char *fabric, copse_collective collective,
                  struct copse_msccl_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_msccl_report report;
  uint64_t seed = 1;
  char *xml = lower(fabric, collective, options);
  ASSERT_OK(copse_check_msccl("test.xml", xml, strlen(xml), &report, &err), &err);
  if (options.executor == COPSE_MSCCL_ANY) ck_assert(report.on_rccl);
  ck_assert_int_eq(report.in_place,
                   options.layout != COPSE_MSCCL_OUT_OF_PLACE && collective != COPSE_ALLTOALL);
  ck_assert_int_eq(report.out_of_place,
                   options.layout != COPSE_MSCCL_IN_PLACE || collective == COPSE_ALLTOALL);
  struct copse_test_mx *m = copse_test_mx_read(xml);
  ck_assert(copse_test_mx_runs(m, 3, &seed));
  copse_test_mx_free(m);
  free(xml);
}

START_TEST(what_is_written_is_proved_and_runs_right) {
  for (int f = 0; f < copse_test_n_fabrics; f += COPSE_TEST_UP_TO(1, 4))
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
      for (int e = COPSE_MSCCL_ANY; e <= COPSE_MSCCL_NCCL; e++) {
        struct copse_msccl_options o = {.executor = (enum copse_msccl_executor)e};
        prove(copse_test_fabrics[f], collectives[c], o);
        o.layout = COPSE_MSCCL_OUT_OF_PLACE;
        o.instances = 3;
        prove(copse_test_fabrics[f], collectives[c], o);
        o.protocol = COPSE_MSCCL_LL;
        o.channels = 1;
        o.instances = 1;
        prove(copse_test_fabrics[f], collectives[c], o);
        o.chunks = 4;
        o.layout = COPSE_MSCCL_BOTH;
        prove(copse_test_fabrics[f], collectives[c], o);
        o.layout = COPSE_MSCCL_IN_PLACE;
        if (collectives[c] != COPSE_ALLTOALL) prove(copse_test_fabrics[f], collectives[c], o);
      }
}
END_TEST

/* ---- rounding ---------------------------------------------------------------------------- */

/* Links of three GPUs whose bandwidths have no small common part: exact shares are parts of more
 * than 32767. */
#define UNEVEN                                                                                  \
  "{\"format\": \"copse-topology/1\", \"name\": \"uneven\", \"nodes\": [{\"id\": \"g0\", "      \
  "\"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"}, {\"id\": \"g2\", \"type\": "        \
  "\"gpu\"}], \"links\": [{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 99991}, {\"src\": " \
  "\"g0\", \"dst\": \"g2\", \"bandwidth\": 70001}, {\"src\": \"g1\", \"dst\": \"g2\", "         \
  "\"bandwidth\": 33331}]}"

/* The chunks that the file sends over a link, over those of the schedule's trees. */
static double grown(const struct copse_schedule *s, const struct copse_test_mx *m, int src,
                    int dst) {
  double exact = 0, sent = 0;
  for (int t = 0; t < s->n_trees; t++)
    for (int e = 0; e < s->trees[t].n_edges; e++)
      if (s->trees[t].edges[e].src == src && s->trees[t].edges[e].dst == dst)
        exact += copse_q_to_double(s->trees[t].weight) * m->chunks;
  for (int b = 0; b < m->n_tbs; b++)
    for (int i = 0; i < m->tbs[b].n && m->tbs[b].gpu == src && m->tbs[b].send == dst; i++)
      if (strcmp(m->tbs[b].steps[i].type, "s") == 0) sent += m->tbs[b].steps[i].cnt;
  return exact > 0 ? sent / exact : 1;
}

START_TEST(shares_that_do_not_fit_are_rounded_at_the_price_that_is_said) {
  const copse_collective collective = collectives[_i];
  struct copse_msccl_options options = {0};
  struct copse_msccl_summary sum;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = copse_test_solve(UNEVEN, collective, 0);
  char *text = NULL;
  size_t size;
  uint64_t seed = 1;
  double most = 1;
  ASSERT_OK(copse_lower_msccl(s, &options, &text, &size, &sum, &err), &err);
  ck_assert(sum.rounded && sum.more > 0 && sum.more < 0.1);
  ck_assert_int_eq(sum.multiple & (sum.multiple - 1), 0);
  ASSERT_OK(check(text, &err), &err);
  struct copse_test_mx *m = copse_test_mx_read(text);
  for (int src = 0; src < 3; src++)
    for (int dst = 0; dst < 3; dst++)
      if (grown(s, m, src, dst) > most) most = grown(s, m, src, dst);
  ck_assert_double_eq_tol(most - 1, sum.more, 1e-9);
  ck_assert(copse_test_mx_runs(m, 2, &seed));
  copse_test_mx_free(m);
  free(text);
  options.chunks = 32767; /* what is asked for is not changed */
  ck_assert_int_eq(copse_lower_msccl(s, &options, &text, &size, &sum, &err), COPSE_UNSUPPORTED);
  copse_schedule_free(s);
}
END_TEST

/* ---- few thread blocks --------------------------------------------------------------------- */

/* Whether a schedule is written with so many thread blocks; what is written is proved, and runs
 * right in the second model. */
static bool is_written(const struct copse_schedule *s, struct copse_msccl_options options,
                       int blocks) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_msccl_summary sum;
  char *text = NULL;
  size_t size;
  uint64_t seed = 3;
  options.max_blocks = blocks;
  copse_status status = copse_lower_msccl(s, &options, &text, &size, &sum, &err);
  if (status == COPSE_UNSUPPORTED) return false;
  ASSERT_OK(status, &err);
  ck_assert_int_le(sum.blocks, blocks);
  ASSERT_OK(check(text, &err), &err);
  struct copse_test_mx *m = copse_test_mx_read(text);
  ck_assert(copse_test_mx_runs(m, 1, &seed));
  copse_test_mx_free(m);
  free(text);
  return true;
}

/* By trying one number after the other. */
static void find_least_blocks(const struct copse_schedule *s, struct copse_msccl_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  int most = copse_msccl_default_blocks(&options), least = 1, said;
  while (least <= most && !is_written(s, options, least)) least++;
  options.max_blocks = 1;
  ASSERT_OK(copse_msccl_least_blocks(s, &options, most, &said, &err), &err);
  ck_assert_int_eq(said, least <= most ? least : 0);
}

START_TEST(the_least_thread_blocks_are_those_that_are_found_by_trying) {
  const struct copse_test_random_options shape = {
      .min_ranks = 3, .max_ranks = 7, .max_relays = 2, .rational = true};
  uint64_t state = 23;
  for (int i = 0; i < COPSE_TEST_UP_TO(12, 60); i++) {
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    struct copse_schedule *s = copse_test_solve_as(
        t, (struct copse_solve_options){.collective = collectives[i % 4], .root = -1});
    find_least_blocks(s, (struct copse_msccl_options){.executor = i / 4 % 2 ? COPSE_MSCCL_NCCL
                                                                            : COPSE_MSCCL_ANY});
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* Shares that are too fine for MSCCL are rounded; each rank of a torus has four neighbours, however
 * they are. */
START_TEST(the_reason_is_the_true_one) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_msccl_summary sum;
  struct copse_msccl_options options = {.max_blocks = 1};
  struct copse_schedule *s = copse_test_solve(UNEVEN, COPSE_ALLGATHER, 0);
  char *text = NULL;
  size_t size;
  ck_assert_int_eq(copse_lower_msccl(s, &options, &text, &size, &sum, &err), COPSE_UNSUPPORTED);
  ck_assert_msg(strstr(err.text, "needs 2 thread blocks and may have 1") != NULL, "%s", err.text);
  ck_assert_ptr_nonnull(strstr(err.text, "however its shares are rounded"));
  err = (struct copse_err)COPSE_ERR_INIT;
  options = (struct copse_msccl_options){.chunks = 32767};
  ck_assert_int_eq(copse_lower_msccl(s, &options, &text, &size, &sum, &err), COPSE_UNSUPPORTED);
  ck_assert_msg(strstr(err.text, "32767 chunks of each of 3 blocks") != NULL, "%s", err.text);
  copse_schedule_free(s);
}
END_TEST

/* ---- mutants --------------------------------------------------------------------------- */

struct tally {
  int refuted, harmless;
};

/*
 * Refuted with a place that names the step, or right in every run of the other model. The
 * checker may refuse what happens to run right (a race that no run showed), never the reverse.
 */
static bool judge(const struct copse_test_mx *m, struct tally *tally) {
  static uint64_t seed = 7;
  struct copse_err err = COPSE_ERR_INIT;
  char *xml = copse_test_mx_write(m);
  copse_status status = check(xml, &err);
  if (status == COPSE_OK) {
    ck_assert_msg(copse_test_mx_runs(m, 12, &seed), "accepted, but it runs wrong:\n%s", xml);
    tally->harmless++;
  } else {
    ck_assert_msg(status == COPSE_REFUTED || status == COPSE_BAD_INPUT, "%s", err.text);
    ck_assert_msg(strstr(err.text, "test.xml:") && strstr(err.text, "gpu "), "%s", err.text);
    ck_assert_msg(strstr(err.text, " tb ") || strstr(err.text, "never written"), "%s", err.text);
    tally->refuted++;
  }
  free(xml);
  return status != COPSE_OK;
}

/* Applies `change` to every step in turn; it returns false where it does not apply. */
typedef bool change_fn(struct copse_test_mx *m, int tb, int step);

static struct tally mutate(change_fn *change, struct copse_msccl_options options) {
  struct tally tally = {0, 0};
  int n = 0;
  for (int f = 0; f < 4; f++)
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
      char *xml = lower(copse_test_fabrics[f], collectives[c], options);
      struct copse_test_mx *m = copse_test_mx_read(xml), *changed = copse_test_mx_read(xml);
      for (int t = 0; t < m->n_tbs; t++)
        for (int s = 0; s < m->tbs[t].n; s++) {
          if (change(changed, t, s) && n++ % COPSE_TEST_ONE_IN == 0) judge(changed, &tally);
          copse_test_mx_restore(changed, m);
        }
      copse_test_mx_free(changed);
      copse_test_mx_free(m);
      free(xml);
    }
  tally.refuted *= COPSE_TEST_ONE_IN;
  tally.harmless *= COPSE_TEST_ONE_IN;
  return tally;
}

static struct tally mutate_both(change_fn *change) {
  struct copse_msccl_options options = {.chunks = 4};
  struct tally a = mutate(change, options), b;
  options.executor = COPSE_MSCCL_NCCL;
  options.channels = 1; /* blocks with several steps */
  b = mutate(change, options);
  return (struct tally){a.refuted + b.refuted, a.harmless + b.harmless};
}

static bool is(const struct copse_test_mx *m, int tb, int step, const char *type) {
  return strcmp(m->tbs[tb].steps[step].type, type) == 0;
}

static bool drop(struct copse_test_mx *m, int tb, int step) {
  if (is(m, tb, step, "nop")) return false;
  copse_test_mx_drop(m, tb, step);
  return true;
}

/* Nothing that is written is superfluous. */
START_TEST(a_dropped_step_is_refuted) {
  struct tally t = mutate_both(drop);
  ck_assert_int_gt(t.refuted, 1000);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

/* A copy done twice changes nothing, and neither does a wait. */
static bool repeat(struct copse_test_mx *m, int tb, int step) {
  if (is(m, tb, step, "nop") || is(m, tb, step, "cpy") || m->tbs[tb].n > 60) return false;
  copse_test_mx_double(m, tb, step);
  return true;
}

START_TEST(a_doubled_step_is_refuted) {
  struct tally t = mutate_both(repeat);
  ck_assert_int_gt(t.refuted, 1000);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

static bool repeat_copy(struct copse_test_mx *m, int tb, int step) {
  if (!is(m, tb, step, "cpy")) return false;
  copse_test_mx_double(m, tb, step);
  return true;
}

START_TEST(a_doubled_copy_is_harmless_and_accepted) {
  struct tally t = mutate_both(repeat_copy);
  ck_assert_int_gt(t.harmless, 50);
  ck_assert_int_eq(t.refuted, 0);
}
END_TEST

static bool swap(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_tb *b = &m->tbs[tb];
  if (step + 1 == b->n) return false;
  struct copse_test_mx_step t = b->steps[step];
  b->steps[step] = b->steps[step + 1];
  b->steps[step + 1] = t;
  return true;
}

/* Two nops, two parts of a sum, or steps of different chunks may change places. */
START_TEST(swapped_steps_are_refuted_or_harmless) {
  struct tally t = mutate_both(swap);
  ck_assert_int_gt(t.refuted, 300);
  ck_assert_int_gt(t.harmless, 10);
}
END_TEST

static bool redirect(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_tb *b = &m->tbs[tb];
  if (step > 0 || (b->send < 0 && b->recv < 0) || m->n_ranks < 3) return false;
  int *peer = b->send >= 0 ? &b->send : &b->recv;
  do *peer = (*peer + 1) % m->n_ranks;
  while (*peer == b->gpu);
  return true;
}

START_TEST(a_redirected_block_is_refuted) {
  struct tally t = mutate_both(redirect);
  ck_assert_int_gt(t.refuted, 300);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

/* The offset that the step uses, to the next chunk. */
static bool move_source(struct copse_test_mx *m, int tb, int step) {
  if (is(m, tb, step, "nop") || is(m, tb, step, "r") || is(m, tb, step, "rcs")) return false;
  m->tbs[tb].steps[step].srcoff++;
  return true;
}

static bool move_destination(struct copse_test_mx *m, int tb, int step) {
  if (is(m, tb, step, "nop") || is(m, tb, step, "s") || is(m, tb, step, "rrs")) return false;
  /* an rcs passes on what came in, so nobody reads where it keeps it in scratch */
  if (is(m, tb, step, "rcs") && m->tbs[tb].steps[step].dst == 's') return false;
  m->tbs[tb].steps[step].dstoff++;
  return true;
}

START_TEST(a_moved_chunk_is_refuted) {
  struct tally s = mutate_both(move_source), d = mutate_both(move_destination);
  ck_assert_int_gt(s.refuted, 500);
  ck_assert_int_gt(d.refuted, 500);
  ck_assert_int_eq(s.harmless + d.harmless, 0);
}
END_TEST

static bool other_buffer(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_step *s = &m->tbs[tb].steps[step];
  if (is(m, tb, step, "nop") || is(m, tb, step, "r") || is(m, tb, step, "rcs")) return false;
  s->src = s->src == 's' ? 'i' : 's';
  return true;
}

START_TEST(another_buffer_is_refuted) {
  struct tally t = mutate_both(other_buffer);
  ck_assert_int_gt(t.refuted, 500);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

static bool fewer_chunks(struct copse_test_mx *m, int tb, int step) {
  if (is(m, tb, step, "nop")) return false;
  m->tbs[tb].steps[step].cnt--;
  return true;
}

START_TEST(a_missing_chunk_is_refuted) {
  struct tally t = mutate_both(fewer_chunks);
  ck_assert_int_gt(t.refuted, 1000);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

/* A nop goes, a real step loses its wait to the nop before it. */
static bool forget_wait(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_step *s = &m->tbs[tb].steps[step];
  if (s->depid < 0) return false;
  if (is(m, tb, step, "nop") || (step > 0 && is(m, tb, step - 1, "nop"))) {
    int nop = is(m, tb, step, "nop") ? step : step - 1;
    if (nop < step) s->depid = m->tbs[tb].steps[nop].depid, s->deps = m->tbs[tb].steps[nop].deps;
    copse_test_mx_drop(m, tb, nop);
  } else {
    s->depid = s->deps = -1;
  }
  return true;
}

/* What is written waits for nothing that it could do without. */
START_TEST(a_forgotten_wait_is_refuted) {
  struct tally t = mutate_both(forget_wait);
  ck_assert_int_gt(t.refuted, 300);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

static bool hide(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_step *s = &m->tbs[tb].steps[step];
  if (!s->hasdep) return false;
  s->hasdep = 0;
  return true;
}

/* Where a later step of the block is published, the wait is for that one instead. */
START_TEST(an_unpublished_step_is_refuted_or_harmless) {
  struct tally t = mutate_both(hide);
  ck_assert_int_gt(t.refuted, 100);
}
END_TEST

static bool wait_for_later(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_step *s = &m->tbs[tb].steps[step];
  if (s->depid < 0) return false;
  s->deps++;
  return true;
}

START_TEST(a_later_wait_is_refuted_or_harmless) {
  struct tally t = mutate_both(wait_for_later);
  ck_assert_int_gt(t.refuted, 100);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/msccl");
  TCase *tc = tcase_create("all");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, what_is_written_is_proved_and_runs_right);
  tcase_add_loop_test(tc, shares_that_do_not_fit_are_rounded_at_the_price_that_is_said, 0, 3);
  tcase_add_test(tc, the_least_thread_blocks_are_those_that_are_found_by_trying);
  tcase_add_test(tc, the_reason_is_the_true_one);
  tcase_add_test(tc, a_dropped_step_is_refuted);
  tcase_add_test(tc, a_doubled_step_is_refuted);
  tcase_add_test(tc, a_doubled_copy_is_harmless_and_accepted);
  tcase_add_test(tc, swapped_steps_are_refuted_or_harmless);
  tcase_add_test(tc, a_redirected_block_is_refuted);
  tcase_add_test(tc, a_moved_chunk_is_refuted);
  tcase_add_test(tc, another_buffer_is_refuted);
  tcase_add_test(tc, a_missing_chunk_is_refuted);
  tcase_add_test(tc, a_forgotten_wait_is_refuted);
  tcase_add_test(tc, an_unpublished_step_is_refuted_or_harmless);
  tcase_add_test(tc, a_later_wait_is_refuted_or_harmless);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
