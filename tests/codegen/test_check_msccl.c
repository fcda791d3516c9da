/* The MSCCL checker on small files by hand: what other tools write, and what is wrong with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/msccl/check.h"
#include "support/support.h"

/* One step; s is its number, d and p the wait (tb, step). */
#define ST(s, type, sb, so, db, dof, n, d, p, h)                                              \
  "<step s=\"" #s "\" type=\"" #type "\" srcbuf=\"" #sb "\" srcoff=\"" #so "\" dstbuf=\"" #db \
  "\" dstoff=\"" #dof "\" cnt=\"" #n "\" depid=\"" #d "\" deps=\"" #p "\" hasdep=\"" #h "\"/>\n"
#define TB(id, send, recv, chan, steps) \
  "<tb id=\"" #id "\" send=\"" #send "\" recv=\"" #recv "\" chan=\"" #chan "\">\n" steps "</tb>\n"
#define GPU(id, i, o, s, tbs)                                                              \
  "<gpu id=\"" #id "\" i_chunks=\"" #i "\" o_chunks=\"" #o "\" s_chunks=\"" #s "\">\n" tbs \
  "</gpu>\n"
#define ALGO_OF(proto, coll, c, n, in, out, max, gpus)                                          \
  "<algo name=\"t\" proto=\"" #proto "\" nchannels=\"2\" nchunksperloop=\"" #c "\" ngpus=\"" #n \
  "\" coll=\"" #coll "\" inplace=\"" #in "\" outofplace=\"" #out                                \
  "\" minBytes=\"0\" maxBytes=\"" #max "\">\n" gpus "</algo>\n"
#define ALGO(coll, c, n, in, out, gpus) ALGO_OF(Simple, coll, c, n, in, out, 0, gpus)

static copse_status check(const char *xml, struct copse_check_msccl_report *report,
                          struct copse_err *err) {
  return copse_check_msccl("f.xml", xml, strlen(xml), report, err);
}

static struct copse_check_msccl_report proved(const char *xml) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_msccl_report report;
  ASSERT_OK(check(xml, &report, &err), &err);
  return report;
}

static void refused(const char *xml, copse_status status, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_msccl_report report;
  ASSERT_FAILS(check(xml, &report, &err), status, &err, part);
}

#define REFUTED(xml, part) refused(xml, COPSE_REFUTED, part)

/* ---- right ones ------------------------------------------------------------------------ */

/* A ring of two: send, then add what comes, pass it on and keep it. */
#define RING_GPU(id, peer, own, other)                                                        \
  GPU(id, 2, 2, 0,                                                                            \
      TB(0, peer, peer, 0,                                                                    \
         ST(0, s, o, own, o, own, 1, -1, -1, 0) ST(1, rrcs, o, other, o, other, 1, -1, -1, 0) \
             ST(2, r, o, own, o, own, 1, -1, -1, 0)))

START_TEST(a_ring_with_fused_steps_is_proved) {
  struct copse_check_msccl_report r =
      proved(ALGO(allreduce, 2, 2, 1, 0, RING_GPU(0, 1, 0, 1) RING_GPU(1, 0, 1, 0)));
  ck_assert(!r.on_rccl);
  ck_assert(r.in_place && !r.out_of_place);
  ck_assert_int_eq(r.n_steps, 6);
}
END_TEST

START_TEST(root_of_a_broadcast_or_reduce_is_found) {
  proved(ALGO(broadcast, 1, 2, 1, 1,
              GPU(0, 1, 1, 0, TB(0, -1, 1, 0, ST(0, r, o, 0, o, 0, 1, -1, -1, 0)))
                  GPU(1, 1, 1, 0,
                      TB(0, 0, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0))
                          TB(1, -1, -1, 0, ST(0, cpy, i, 0, o, 0, 1, -1, -1, 0)))));
  proved(ALGO(reduce, 1, 2, 0, 1,
              GPU(0, 1, 1, 0, TB(0, 1, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0)))
                  GPU(1, 1, 1, 0, TB(0, -1, 0, 0, ST(0, rrc, i, 0, o, 0, 1, -1, -1, 0)))));
}
END_TEST

/* Waits name positions in the file: nops and the re that run as one count. */
#define GATHER(first, second, third, waiter)                                                     \
  ALGO(reduce, 1, 4, 0, 1,                                                                       \
       GPU(0, 1, 1, 4,                                                                           \
           TB(0, -1, 1, 0, ST(0, r, s, 0, s, 0, 1, -1, -1, 1))                                   \
               TB(1, -1, 2, 0, ST(0, r, s, 1, s, 1, 1, -1, -1, 1))                               \
                   TB(2, -1, 3, 0, ST(0, r, s, 2, s, 2, 1, -1, -1, 1))                           \
                       TB(3, -1, -1, 0, ST(0, nop, i, -1, o, -1, 0, 0, 0, 0) first second third) \
                           TB(4, -1, -1, 0, waiter))                                             \
           GPU(1, 1, 1, 0, TB(0, 0, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0)))                  \
               GPU(2, 1, 1, 0, TB(0, 0, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0)))              \
                   GPU(3, 1, 1, 0, TB(0, 0, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0))))
#define FIRST ST(1, nop, i, -1, o, -1, 0, 1, 0, 0) ST(2, re, s, 1, s, 0, 1, 2, 0, 0)
#define SECOND ST(3, re, s, 2, s, 0, 1, -1, -1, 0)
#define THIRD ST(4, re, i, 0, s, 0, 1, -1, -1, 1)
#define COPY ST(0, cpy, s, 0, o, 0, 1, 3, 4, 0)

START_TEST(nops_and_sums_that_run_as_one_are_counted) {
  proved(GATHER(FIRST, SECOND, THIRD, COPY));
  /* one wait too few, and waits that end too early or never */
  REFUTED(GATHER(ST(1, re, s, 1, s, 0, 1, 2, 0, 0), ST(2, re, s, 2, s, 0, 1, -1, -1, 0),
                 ST(3, re, i, 0, s, 0, 1, -1, -1, 1), ST(0, cpy, s, 0, o, 0, 1, 3, 3, 0)),
          "a race");
  REFUTED(GATHER(FIRST, SECOND, THIRD, ST(0, cpy, s, 0, o, 0, 1, 3, 5, 0)),
          "gpu 0 tb 4 step 0 waits for step 5 of tb 3");
  REFUTED(GATHER(FIRST, SECOND, THIRD, ST(0, cpy, s, 0, o, 0, 1, -1, -1, 0)), "a race");
  /* a nop without a wait shifts the numbers: step 4 is published as 3 */
  REFUTED(GATHER(FIRST, ST(3, nop, i, -1, o, -1, 0, -1, -1, 0) ST(4, re, s, 2, s, 0, 1, -1, -1, 0),
                 ST(5, re, i, 0, s, 0, 1, -1, -1, 1), ST(0, cpy, s, 0, o, 0, 1, 3, 5, 0)),
          "waits for step 5 of tb 3");
}
END_TEST

START_TEST(traps_of_sums_that_run_as_one_are_refuted) {
  REFUTED(GATHER(FIRST, ST(3, nop, i, -1, o, -1, 0, 1, 0, 0) ST(4, re, s, 2, s, 0, 1, -1, -1, 0),
                 ST(5, re, i, 0, s, 0, 1, -1, -1, 1), ST(0, cpy, s, 0, o, 0, 1, 3, 5, 0)),
          "is lost");
  REFUTED(GATHER(FIRST, ST(3, re, s, 2, s, 0, 0, -1, -1, 0), THIRD, COPY), "another cnt");
  REFUTED(GATHER(FIRST ST(3, nop, i, -1, o, -1, 0, 1, 0, 0) ST(4, cpy, s, 0, s, 0, 1, -1, -1, 0), ,
                 , COPY),
          "needs a depid of its own");
  REFUTED(GATHER(FIRST, SECOND, ST(4, re, i, 0, s, 0, 1, 3, 4, 1), COPY),
          "waits for itself or a later step");
}
END_TEST

/* ---- wrong ones ------------------------------------------------------------------------ */

#define EXCHANGE(proto, n, max)                                                                 \
  ALGO_OF(                                                                                      \
      proto, alltoall, 6, 2, 0, 1, max,                                                         \
      GPU(0, 6, 6, 0,                                                                           \
          TB(0, 1, 1, 0, ST(0, s, i, 3, i, 3, n, -1, -1, 0) ST(1, r, o, 3, o, 3, n, -1, -1, 0)) \
              TB(1, -1, -1, 0, ST(0, cpy, i, 0, o, 0, 3, -1, -1, 0)))                           \
          GPU(1, 6, 6, 0,                                                                       \
              TB(0, 0, 0, 0,                                                                    \
                 ST(0, s, i, 0, i, 0, n, -1, -1, 0) ST(1, r, o, 0, o, 0, n, -1, -1, 0))         \
                  TB(1, -1, -1, 0, ST(0, cpy, i, 3, o, 3, 3, -1, -1, 0))))

/* Three chunks of up to 128 GiB are three groups, for which Simple has no room; where the file is
 * for short messages they are one. LL has room for eight. */
START_TEST(room_in_a_connection_depends_on_the_sizes_served) {
  REFUTED(EXCHANGE(Simple, 3, 0), "a deadlock: gpu 0 tb 0 step 0 waits for room to send to gpu 1");
  proved(EXCHANGE(Simple, 3, 1000000));
  REFUTED(EXCHANGE(Simple, 3, 12582918), "a deadlock");
  proved(EXCHANGE(LL, 3, 0));
  REFUTED(EXCHANGE(Simple, 2, 0), "never written");
}
END_TEST

/*
 * Recursive doubling of n ranks: in round k those whose numbers differ in bit k send each other
 * `count` chunks and add what comes. In a block for each round, or, with `apart`, two.
 */
static char *doubling(int n, int count, bool apart, const char *max) {
  char *xml = malloc(1 << 20), *end = xml;
  int rounds = 0;
  while (1 << rounds < n) rounds++;
  end += sprintf(end,
                 "<algo name=\"rd\" nchannels=\"1\" nchunksperloop=\"%d\" proto=\"Simple\" "
                 "ngpus=\"%d\" coll=\"allreduce\" inplace=\"1\" outofplace=\"0\" minBytes=\"0\" "
                 "maxBytes=\"%s\">\n",
                 count, n, max);
  for (int r = 0; r < n; r++) {
    end += sprintf(end, "<gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"0\" s_chunks=\"%d\">\n", r,
                   count, count * rounds);
    for (int k = 0; k < rounds; k++) {
      static const char step[] =
          "<step s=\"%d\" type=\"%s\" srcbuf=\"%s\" srcoff=\"%d\" dstbuf=\"%s\" dstoff=\"%d\" "
          "cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n";
      int peer = r ^ 1 << k, tb = apart ? 2 * k : k, sum = apart ? 1 : 2;
      int before = k == 0 ? -1 : tb - 1, at = k == 0 ? -1 : sum;
      end += sprintf(end, "<tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"0\">\n", tb, peer,
                     apart ? -1 : peer);
      end += sprintf(end, step, 0, "s", "i", 0, "s", k * count, count, before, at, apart);
      if (apart)
        end += sprintf(end, "</tb>\n<tb id=\"%d\" send=\"-1\" recv=\"%d\" chan=\"0\">\n", tb + 1,
                       peer);
      end += sprintf(end, step, apart ? 0 : 1, "r", "i", 0, "s", k * count, count, -1, -1, 0);
      end += sprintf(end, step, sum, "re", "s", k * count, "i", 0, count, apart ? tb : -1,
                     apart ? 0 : -1, k + 1 < rounds);
      end += sprintf(end, "</tb>\n");
    }
    end += sprintf(end, "</gpu>\n");
  }
  sprintf(end, "</algo>\n");
  return xml;
}

/* Pairs that exchange: both send first, for which the connection must have room. */
START_TEST(recursive_doubling_needs_room_for_what_it_sends) {
  static const struct {
    int count;
    bool apart;
    const char *max;
    bool right;
  } cases[] = {{1, false, "0", true},     {2, false, "0", true}, {3, false, "0", false},
               {3, false, "65536", true}, {3, true, "0", true},  {16, false, "65536", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *xml = doubling(COPSE_TEST_RESULTS ? 64 : 8, cases[i].count, cases[i].apart, cases[i].max);
    if (cases[i].right)
      proved(xml);
    else
      REFUTED(xml,
              "waits for room to send to gpu 1 tb 0, gpu 1 tb 0 step 0 waits for room to send to "
              "gpu 0 tb 0, and so on in a ring of 2 waits; a connection has room for 2 times 1 "
              "chunks of the largest message: a smaller \"maxBytes\", or sends and receives in "
              "blocks of their own");
    free(xml);
  }
}
END_TEST

#define PAIR(a, b) ALGO(allgather, 2, 2, 0, 1, GPU(0, 1, 2, 1, a) GPU(1, 1, 2, 1, b))
#define OWN(me) TB(0, -1, -1, 0, ST(0, cpy, i, 0, o, me, 1, -1, -1, 0))
#define SEND(me, peer) TB(1, peer, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0))
#define RECV(me, peer) TB(2, -1, peer, 0, ST(0, r, o, peer, o, peer, 1, -1, -1, 0))
#define GOOD_1 OWN(1) SEND(1, 0) RECV(1, 0)

START_TEST(defects_are_named_with_their_place) {
  proved(PAIR(OWN(0) SEND(0, 1) RECV(0, 1), GOOD_1));
  REFUTED(PAIR(SEND(0, 1) RECV(0, 1), GOOD_1), "ids of its 2 tbs must be 0 to 1");
  REFUTED(PAIR(OWN(0) SEND(0, 1) TB(2, -1, -1, 0, ""), GOOD_1),
          "f.xml:17: gpu 1 tb 1 step 0 sends to gpu 0 on channel 0, where no tb receives from it");
  REFUTED(PAIR(OWN(0) TB(1, -1, -1, 0, "") RECV(0, 1), GOOD_1),
          "gpu 1 tb 2 step 0 receives from gpu 0 on channel 0, where no tb sends to it");
  REFUTED(PAIR(OWN(0) SEND(0, 1) TB(2, -1, 1, 1, ST(0, r, o, 1, o, 1, 1, -1, -1, 0)), GOOD_1),
          "where no tb");
  REFUTED(PAIR(OWN(0) SEND(0, 1) TB(2, -1, 1, 0, ST(0, r, o, 0, o, 0, 1, -1, -1, 0)), GOOD_1),
          "gpu 0 tb 2 step 0 writes o[0] of gpu 0, which gpu 0 tb 0 step 0 writes too: a race");
  REFUTED(PAIR(TB(0, -1, -1, 0, "") SEND(0, 1) RECV(0, 1), GOOD_1),
          "o[0] of gpu 0 is never written (out of place): it needs chunk 0 of ranks 0");
  REFUTED(PAIR(OWN(0) TB(1, 1, -1, 0, ST(0, s, s, 0, s, 0, 1, -1, -1, 0)) RECV(0, 1), GOOD_1),
          "gpu 0 tb 1 step 0 reads undefined memory for o[0] of gpu 1");
  REFUTED(PAIR(OWN(0) TB(1, 1, -1, 0, ST(0, s, i, 1, i, 1, 1, -1, -1, 0)) RECV(0, 1), GOOD_1),
          "uses i[1] to i[1]; there are 1 chunks");
  REFUTED(PAIR(OWN(0) TB(1, 1, -1, 0, ST(0, s, i, 0, i, 0, 1, 0, 3, 0)) RECV(0, 1), GOOD_1),
          "gpu 0 tb 1 step 0 waits for step 3 of tb 0, but neither");
  REFUTED(PAIR(OWN(0) TB(1, 1, -1, 0, ST(0, s, i, 0, i, 0, 1, 9, 0, 0)) RECV(0, 1), GOOD_1),
          "waits for a tb that its gpu does not have");
  REFUTED(PAIR(OWN(0) SEND(0, 1) RECV(0, 1) TB(3, 1, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0)),
               GOOD_1),
          "tb 1 and tb 3 both send to gpu 1 on channel 0");
  REFUTED(
      PAIR(OWN(0) SEND(0, 1) RECV(0, 1),
           OWN(1) SEND(1, 0) TB(
               2, -1, 0, 0, ST(0, r, o, 0, o, 0, 1, -1, -1, 0) ST(1, r, o, 0, o, 0, 1, -1, -1, 0))),
      "gpu 1 tb 2 step 1 waits forever on channel 0");
  REFUTED(PAIR(OWN(0) SEND(0, 1) TB(2, -1, 1, 0, ST(0, r, i, 0, i, 0, 1, -1, -1, 0)), GOOD_1),
          "writes the caller's input");
  REFUTED(PAIR(OWN(0) SEND(0, 1) TB(2, -1, 1, 0, ST(1, r, o, 1, o, 1, 1, -1, -1, 0)), GOOD_1),
          "step s=\"1\" is at place 0");
}
END_TEST

/* Both wait for the other's data before they send their own. */
START_TEST(a_ring_of_waits_is_a_deadlock) {
  REFUTED(ALGO(allgather, 2, 2, 0, 1,
               GPU(0, 1, 2, 0,
                   TB(0, 1, 1, 0,
                      ST(0, r, o, 1, o, 1, 1, -1, -1, 0) ST(1, s, i, 0, i, 0, 1, -1, -1, 0)))
                   GPU(1, 1, 2, 0,
                       TB(0, 0, 0, 0,
                          ST(0, r, o, 0, o, 0, 1, -1, -1, 0) ST(1, s, i, 0, i, 0, 1, -1, -1, 0)))),
          "a deadlock: gpu 0 tb 0 step 0 waits for data from gpu 1 tb 0, gpu 1 tb 0 step 0 waits "
          "for data from gpu 0 tb 0, and so on in a ring of 2 waits");
}
END_TEST

/* In place i[0] is o[0] or o[1]: what is right out of place overwrites what is still to be sent. */
START_TEST(each_layout_is_proved_by_itself) {
#define LATE(in, out)                                                 \
  ALGO(allreduce, 1, 2, in, out,                                      \
       GPU(0, 1, 1, 1,                                                \
           TB(0, 1, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0))        \
               TB(1, -1, 1, 0, ST(0, rrc, i, 0, o, 0, 1, -1, -1, 0))) \
           GPU(1, 1, 1, 1,                                            \
               TB(0, 0, -1, 0, ST(0, s, i, 0, i, 0, 1, -1, -1, 0))    \
                   TB(1, -1, 0, 0, ST(0, rrc, i, 0, o, 0, 1, -1, -1, 0))))
  proved(LATE(0, 1));
  REFUTED(LATE(1, 0), "writes o[0] of gpu");
  REFUTED(LATE(1, 1), "a race");
  REFUTED(LATE(0, 0), "no call is served");
}
END_TEST

/* ---- files ----------------------------------------------------------------------------- */

START_TEST(what_the_executors_scanner_cannot_read_is_refuted) {
  const char *good = PAIR(OWN(0) SEND(0, 1) RECV(0, 1), GOOD_1);
  static const char *const heads[][2] = {
      {"<?xml version=\"1.0\"?>\n", "prolog"},
      {"<!-- fine = here -->\n", NULL},
      {"<!--k=3 is not -->\n", "first word of a comment"},
      {"\t", "a tab"},
  };
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    char text[8192];
    snprintf(text, sizeof text, "%s%s", heads[i][0], good);
    if (heads[i][1])
      REFUTED(text, heads[i][1]);
    else
      proved(text);
  }
  REFUTED("<algo name='t'/>", "single quotes");
  REFUTED("<algo name=\"t\"\nproto=\"LL\"/>", "on several lines");
}
END_TEST

START_TEST(what_is_no_such_file_is_bad_input) {
  refused("<topology/>", COPSE_BAD_INPUT, "<topology> is no MSCCL algorithm");
  refused("<algo", COPSE_BAD_INPUT, "not well-formed");
  refused("<algo proto=\"Fast\"/>", COPSE_BAD_INPUT, "must be one of Simple, LL, LL128");
  refused("<algo proto=\"LL\" nchannels=\"0\"/>", COPSE_BAD_INPUT, "from 1 to 128");
  refused("<algo proto=\"LL\" nchannels=\"010\"/>", COPSE_BAD_INPUT, "octal");
  refused("<algo proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\"/>", COPSE_BAD_INPUT,
          "<algo> lacks ngpus");
  refused(ALGO(reduce_scatter, 2, 2, 0, 1, ""), COPSE_BAD_INPUT, "reducescatter");
  REFUTED(ALGO(allgather, 3, 2, 0, 1, ""), "must be a multiple of ngpus");
  REFUTED(ALGO(allgather, 2, 2, 0, 1, ""), "gpu 0 is missing");
}
END_TEST

/* Every prefix of a good file, and every byte of it changed: an answer, not a crash. */
START_TEST(damaged_files_are_answered) {
  const char *good = PAIR(OWN(0) SEND(0, 1) RECV(0, 1), GOOD_1);
  size_t n = strlen(good) - 1; /* the last line break may go */
  for (size_t i = 0; i < n; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_check_msccl_report report;
    char *copy = strndup(good, i);
    ck_assert_int_ne(copse_check_msccl("f.xml", copy, i, &report, &err), COPSE_OK);
    free(copy);
    for (int c = 0; c < 4; c++) {
      copy = strdup(good);
      copy[i] = "9-<\""[c];
      err = (struct copse_err)COPSE_ERR_INIT;
      copse_status status = copse_check_msccl("f.xml", copy, n, &report, &err);
      ck_assert(status == COPSE_OK || status == COPSE_BAD_INPUT || status == COPSE_REFUTED ||
                status == COPSE_UNSUPPORTED);
      free(copy);
    }
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/check_msccl");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, a_ring_with_fused_steps_is_proved);
  tcase_add_test(tc, root_of_a_broadcast_or_reduce_is_found);
  tcase_add_test(tc, nops_and_sums_that_run_as_one_are_counted);
  tcase_add_test(tc, traps_of_sums_that_run_as_one_are_refuted);
  tcase_add_test(tc, room_in_a_connection_depends_on_the_sizes_served);
  tcase_add_test(tc, recursive_doubling_needs_room_for_what_it_sends);
  tcase_add_test(tc, defects_are_named_with_their_place);
  tcase_add_test(tc, a_ring_of_waits_is_a_deadlock);
  tcase_add_test(tc, each_layout_is_proved_by_itself);
  tcase_add_test(tc, what_the_executors_scanner_cannot_read_is_refuted);
  tcase_add_test(tc, what_is_no_such_file_is_bad_input);
  tcase_add_test(tc, damaged_files_are_answered);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
