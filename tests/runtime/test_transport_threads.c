/* Ranks joined by a wire, here between threads: right results whatever comes when, and every
 * fault named. Over MPI: test_mpi.c. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copse/wire.h"
#include "runtime/comm/executor.h"
#include "support/comm_support.h"
#include "support/command.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"
#include "support/thread_wire.h"

#define N 4
#define TIME_LIMIT 60.0 /* where nothing goes wrong, on a busy machine too */
#define TIMEOUT 3.0

struct job {
  int n;
  double timeout;
  unsigned most_tag; /* 0: the wires' own */
  struct thread_wires *wires;
  struct copse_plan *plans[COPSE_N_COLLECTIVES];
  int n_plans;
  copse_status statuses[N];
  char texts[N][512];
};

struct rank {
  struct job *job;
  int r;
  pthread_t thread;
};

/* Each rank's part, in a thread of its own; what it returns is kept with copse_last_error. */
typedef copse_status part(struct rank *rank);
static part *the_part;

static void *run_part(void *context) {
  struct rank *rank = context;
  rank->job->statuses[rank->r] = the_part(rank);
  strcpy(rank->job->texts[rank->r], copse_last_error());
  return NULL;
}

static void run(struct job *job, part *it) {
  struct rank ranks[N];
  the_part = it;
  for (int r = 0; r < job->n; r++) {
    ranks[r] = (struct rank){.job = job, .r = r};
    ck_assert_int_eq(pthread_create(&ranks[r].thread, NULL, run_part, &ranks[r]), 0);
  }
  for (int r = 0; r < job->n; r++) pthread_join(ranks[r].thread, NULL);
}

static void job_new(struct job *job, int n, unsigned latest) {
  memset(job, 0, sizeof *job);
  job->n = n;
  job->timeout = TIMEOUT;
  job->wires = thread_wires_new(n, latest);
}

static void job_free(struct job *job) {
  for (int i = 0; i < job->n_plans; i++) pb_free(job->plans[i]);
  thread_wires_free(job->wires);
}

/* Ranks that wait for the end of a time limit cost little then. */
static void sleep_a_while(void *context, unsigned microseconds) {
  (void)context;
  (void)usleep(microseconds);
}

static copse_status join(struct rank *rank, copse_comm **comm) {
  copse_wire wire = thread_wire(rank->job->wires, rank->r);
  if (rank->job->timeout == TIMEOUT) wire.wait = sleep_a_while;
  if (rank->job->most_tag) wire.most_tag = rank->job->most_tag;
  copse_status status = copse_comm_init_wire(comm, &wire, rank->job->timeout);
  for (int i = 0; i < rank->job->n_plans && status == COPSE_OK; i++)
    status = copse_comm_add_plan(*comm, rank->job->plans[i]);
  return status;
}

/* All ranks but those of `except` ended so, with a text that contains `text`. */
static void expect(const struct job *job, copse_status status, const char *text, int except) {
  for (int r = 0; r < job->n; r++) {
    if (r == except) continue;
    ck_assert_msg(job->statuses[r] == status, "rank %d: %s: %s", r,
                  copse_status_string(job->statuses[r]), job->texts[r]);
    ck_assert_msg(!text || strstr(job->texts[r], text), "rank %d: \"%s\" lacks \"%s\"", r,
                  job->texts[r], text);
  }
}

/* ---- results --------------------------------------------------------------------------------- */

static copse_status check_call(struct rank *rank, copse_comm *comm, struct copse_data *data,
                               bool in_place) {
  struct copse_buffers buffers;
  uint64_t bytes = data->n_ranks * data->count * copse_type_bytes(data->type);
  copse_status status =
      copse_buffers_new_some(data->n_ranks, (uint32_t)rank->r, 1, bytes, bytes, &buffers, NULL);
  if (status != COPSE_OK) return status;
  copse_buffers_fill(&buffers, data, in_place);
  status = comm_call(comm, data, buffers.inputs[rank->r], buffers.outputs[rank->r]);
  if (status == COPSE_OK && copse_buffers_count_wrong(&buffers) > 0) status = COPSE_INTERNAL;
  copse_buffers_free(&buffers);
  return status;
}

static copse_status all_calls(struct rank *rank) {
  static const uint64_t counts[] = {1, 17, 30000};
  copse_comm *comm = NULL;
  copse_status status = join(rank, &comm);
  for (int i = 0; i < 6 * 3 * 2 && status == COPSE_OK; i++) {
    copse_collective collective = (copse_collective)(i % 6);
    bool in_place = i / 18 && copse_buffers_has_in_place(collective);
    struct copse_data data = {.collective = collective,
                              .n_ranks = (uint32_t)rank->job->n,
                              .root = exec_case_root(collective, (uint32_t)rank->job->n),
                              .count = counts[i / 6 % 3],
                              .type = i % 4 ? COPSE_FLOAT : COPSE_INT8,
                              .redop = COPSE_SUM,
                              .seed = (uint64_t)i};
    status = check_call(rank, comm, &data, in_place);
  }
  copse_status ended = copse_comm_destroy(comm);
  return status == COPSE_OK ? ended : status;
}

/* Receivers are notified once, of all: a plan that other backends run in one chunk. */
static void tell_at_the_end(struct copse_plan *plan) {
  struct copse_plan_op *ops = (struct copse_plan_op *)plan->ops;
  for (uint32_t i = 0; i < plan->header.n_ops; i++)
    if (ops[i].kind != COPSE_OP_MOVE && ops[i].when == COPSE_WHEN_ALWAYS)
      ops[i].when = COPSE_WHEN_LAST;
}

START_TEST(results_are_right_whatever_comes_when) {
  const unsigned latest[] = {0, 3, COPSE_TEST_SWEEPS ? 50 : 12};
  struct job job;
  job_new(&job, 2 + _i, latest[_i]);
  job.timeout = TIME_LIMIT;
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    uint32_t n = (uint32_t)job.n;
    struct pb_options options = PB_OPTIONS_DEFAULT;
    options.chunk_bytes = 6 << 10; /* a message of its own; the last of a piece may be in a batch */
    int32_t root = exec_case_root((copse_collective)c, n);
    job.plans[job.n_plans++] = pb_tree_plan((copse_collective)c, n, root, options);
  }
  if (_i > 0) tell_at_the_end(job.plans[COPSE_ALLTOALL]);
  run(&job, all_calls);
  expect(&job, COPSE_OK, NULL, -1);
  ck_assert_uint_le(thread_wires_longest(job.wires), 32 << 10);
  job_free(&job);
}
END_TEST

static copse_status broadcast_once(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[64] = {0}, out[64];
  copse_status status = join(rank, &comm);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 64, COPSE_FLOAT, 0, comm, NULL);
  copse_status ended = comm ? copse_comm_destroy(comm) : COPSE_OK;
  return status == COPSE_OK ? ended : status;
}

/* 16 trees, so 16 handshakes, pieces and signals: each step's are one message. */
START_TEST(short_messages_go_together) {
  struct job job;
  job_new(&job, 2, 0);
  struct pb_options options = PB_OPTIONS_DEFAULT;
  options.n_trees = 16;
  job.plans[job.n_plans++] = pb_tree_plan(COPSE_BROADCAST, 2, 0, options);
  run(&job, broadcast_once);
  expect(&job, COPSE_OK, NULL, -1);
  ck_assert_uint_gt(thread_wires_messages(job.wires), 2);
  ck_assert_uint_le(thread_wires_messages(job.wires), 12);
  job_free(&job);
}
END_TEST

static copse_status broadcast_long(struct rank *rank) {
  enum { COUNT = 65536 };
  copse_comm *comm = NULL;
  float *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
  for (int i = 0; in && i < COUNT; i++) in[i] = (float)(i % 1021);
  copse_status status = in && out ? join(rank, &comm) : COPSE_NOMEM;
  if (status == COPSE_OK) status = copse_broadcast(in, out, COUNT, COPSE_FLOAT, 0, comm, NULL);
  if (status == COPSE_OK && memcmp(in, out, COUNT * sizeof *in) != 0) status = COPSE_INTERNAL;
  copse_status ended = comm ? copse_comm_destroy(comm) : COPSE_OK;
  free(in);
  free(out);
  return status == COPSE_OK ? ended : status;
}

/* Each of two ranks gets the 32 chunks of 8 KiB that the plan would be cut into as 8 messages, and
 * the signal behind each in its tag, unless the wire's tags end before. The other 28 are those of
 * joining and a handshake. */
START_TEST(a_signal_goes_with_the_data_before_it) {
  size_t messages[2];
  for (int i = 0; i < 2; i++) {
    struct job job;
    job_new(&job, 3, 0);
    struct pb_options options = PB_OPTIONS_DEFAULT;
    options.n_trees = 1;
    options.min_chunk_bytes = 8 << 10;
    options.pipeline_chunks = 64;
    job.plans[job.n_plans++] = pb_tree_plan(COPSE_BROADCAST, 3, 0, options);
    job.most_tag = i == 0 ? 0 : 11; /* data and signals of two ranks are 8 and 9 */
    run(&job, broadcast_long);
    expect(&job, COPSE_OK, NULL, -1);
    messages[i] = thread_wires_messages(job.wires);
    job_free(&job);
  }
  ck_assert_uint_le(messages[0], 44);
  ck_assert_uint_ge(messages[1], messages[0] + 14);
}
END_TEST

/* The root does not call copse again before the other rank has its data, or has given up. */
static _Atomic bool has_come;

static copse_status broadcast_and_stay_away(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[64] = {0}, out[64];
  copse_status status = join(rank, &comm);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 64, COPSE_FLOAT, 0, comm, NULL);
  if (rank->r == 1) has_come = true;
  while (!has_come) sched_yield();
  copse_status ended = comm ? copse_comm_destroy(comm) : COPSE_OK;
  return status == COPSE_OK ? ended : status;
}

START_TEST(a_rank_leaves_nothing_behind_that_needs_its_calls) {
  struct job job;
  job_new(&job, 2, 3);
  job.timeout = TIME_LIMIT / 4;
  has_come = false;
  thread_wires_hold(job.wires);
  job.plans[job.n_plans++] = pb_tree_plan(COPSE_BROADCAST, 2, 0, PB_OPTIONS_DEFAULT);
  run(&job, broadcast_and_stay_away);
  expect(&job, COPSE_OK, NULL, -1);
  job_free(&job);
}
END_TEST

/* ---- faults ------------------------------------------------------------------------------------
 */

/* Rank 2 says that it is another version, as a program of that version would: this is what every
 * version must go on to understand. */
static copse_status speak_another_version(struct rank *rank) {
  copse_comm *comm = NULL;
  if (rank->r != 2) return join(rank, &comm);
  struct {
    char version[32];
    uint32_t sizes[2];
  } hello = {"9.9.9", {1, 1}};
  copse_wire wire = thread_wire(rank->job->wires, rank->r);
  for (int r = 0; r < rank->job->n; r++) {
    void *request;
    int done = 0;
    if (r == rank->r) continue;
    copse_status status = wire.send(wire.context, r, 3, &hello, sizeof hello, &request);
    while (status == COPSE_OK && !done) status = wire.test(wire.context, request, &done);
    if (status != COPSE_OK) return status;
  }
  return COPSE_OK;
}

/* A plan whose slots are stored to by a switch; it needs memory that ranks share. */
static struct copse_plan *multicast_plan(void) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, N, -1);
  const uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t slots[N];
  for (uint32_t r = 0; r < N; r++) pb_worker(b, r);
  for (uint32_t r = 0; r < N; r++) slots[r] = pb_region(b, r, piece);
  pb_move(b, 0, piece, COPSE_MOVE_GROUP_STORE);
  pb_src(b, pb_input(0, 0));
  for (uint32_t r = 0; r < N; r++) pb_dst(b, pb_scratch(r, slots[r]));
  return pb_finish(b);
}

static copse_status load(struct rank *rank) {
  copse_comm *comm = NULL;
  int n = 0;
  copse_status status = join(rank, &comm);
  if (status == COPSE_OK) status = copse_comm_load_plans(comm, copse_test_folder(), &n);
  if (status == COPSE_OK && n != 1) status = COPSE_INTERNAL;
  (void)copse_comm_abort(comm);
  return status;
}

/* Alone it is refused; beside others it is left out at all ranks, and the others are used. */
START_TEST(a_plan_that_wires_do_not_run_is_left_out) {
  char paths[2][256];
  struct copse_plan *plans[2] = {
      multicast_plan(),
      pb_tree_plan(COPSE_ALLREDUCE, N, -1, (struct pb_options){2, 2, 2, 3, 512, 64})};
  for (int i = 0; i < 2; i++) {
    struct job job;
    snprintf(paths[i], sizeof paths[i], "%s/%d.plan", copse_test_folder(), i);
    ck_assert_int_eq(copse_plan_write(plans[i], paths[i]), COPSE_OK);
    job_new(&job, N, 0);
    job.timeout = TIME_LIMIT;
    run(&job, load);
    expect(&job, i == 0 ? COPSE_UNSUPPORTED : COPSE_OK, i == 0 ? "the plan is multicast" : NULL,
           -1);
    job_free(&job);
  }
  for (int i = 0; i < 2; i++) {
    remove(paths[i]);
    pb_free(plans[i]);
  }
}
END_TEST

START_TEST(another_version_is_refused_by_name) {
  struct job job;
  job_new(&job, N, 0);
  run(&job, speak_another_version);
  expect(&job, COPSE_REFUTED, "rank 2 runs copse 9.9.9", 2);
  job_free(&job);
}
END_TEST

static copse_status call_once(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[16] = {0}, out[16];
  copse_status status = join(rank, &comm);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 16, COPSE_FLOAT, 0, comm, NULL);
  copse_status ended = comm ? copse_comm_destroy(comm) : COPSE_OK;
  return status == COPSE_OK ? ended : status;
}

START_TEST(ranks_that_do_not_come_are_named) {
  struct job job;
  job_new(&job, N, 0);
  job.n = N - 1 - _i; /* the last ones have a wire and no thread */
  run(&job, call_once);
  expect(&job, COPSE_TIMEOUT, _i ? "rank 2 does not answer" : "rank 3 does not answer", -1);
  expect(&job, COPSE_TIMEOUT, "(no message has ever come from it", -1);
  if (_i) expect(&job, COPSE_TIMEOUT, "; nor does rank 3", -1);
  job_free(&job);
}
END_TEST

/* Ranks 0 and 1 wait for each other; the rest of the plan is right. */
static struct copse_plan *deadlocked(void) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1), piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t forth = pb_channel(b, w0, w1), back = pb_channel(b, w1, w0);
  pb_wait(b, w0, back, COPSE_WHEN_ALWAYS);
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_output(1, 0));
  pb_signal(b, w0, forth, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, forth, COPSE_WHEN_ALWAYS);
  pb_signal(b, w1, back, COPSE_WHEN_ALWAYS);
  return pb_finish(b);
}

START_TEST(a_standstill_is_no_dead_rank) {
  struct job job;
  job_new(&job, 2, 2);
  job.plans[job.n_plans++] = deadlocked();
  run(&job, call_once);
  expect(&job, COPSE_REFUTED, "standstill: all ranks answer and none has moved", -1);
  expect(&job, COPSE_REFUTED, " waits for rank ", -1);
  job_free(&job);
}
END_TEST

/* Workers of ranks 0 and 1 wait for each other's rank, and their other workers for rank 2: who
 * waits for whom, notified of one worker each, leads from 0 to 1 and back. */
static struct copse_plan *tangled(void) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 3, 0);
  uint32_t first[2], second[2], piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++) {
    first[r] = pb_worker(b, r);
    second[r] = pb_worker(b, r);
  }
  uint32_t w2 = pb_worker(b, 2);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t go = pb_channel(b, w2, second[r]), on = pb_channel(b, second[r], first[1 - r]);
    pb_signal(b, w2, go, COPSE_WHEN_ALWAYS);
    pb_wait(b, second[r], go, COPSE_WHEN_ALWAYS);
    pb_signal(b, second[r], on, COPSE_WHEN_ALWAYS);
    pb_wait(b, first[1 - r], on, COPSE_WHEN_ALWAYS);
  }
  pb_move(b, first[0], piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  return pb_finish(b);
}

static copse_status call_but_for_the_last(struct rank *rank) {
  if (rank->r < 2) return call_once(rank);
  copse_comm *comm;
  return join(rank, &comm); /* and never again */
}

START_TEST(a_dead_rank_is_found_whoever_seems_to_wait_for_whom) {
  struct job job;
  job_new(&job, 3, 0);
  job.plans[job.n_plans++] = tangled();
  run(&job, call_but_for_the_last);
  expect(&job, COPSE_TIMEOUT, "rank 2 does not answer", 2);
  job_free(&job);
}
END_TEST

static copse_status call_with_rank_1_deaf(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[16] = {0}, out[16];
  copse_status status = join(rank, &comm);
  if (rank->r == 2) return status; /* and never again */
  if (rank->r == 1) thread_wires_deafen(rank->job->wires, 1);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 16, COPSE_FLOAT, 0, comm, NULL);
  if (comm) (void)copse_comm_destroy(comm);
  return status;
}

/* As UCX leaves rank 1 where rank 2 is killed while it writes to rank 1's queue: rank 1 hears
 * neither the dead nor the living, and blames nobody; rank 0, which waits for rank 1, names rank 2.
 */
START_TEST(a_rank_to_which_nothing_comes_blames_nobody) {
  struct job job;
  job_new(&job, 3, 0);
  job.plans[job.n_plans++] = tangled();
  run(&job, call_with_rank_1_deaf);
  ck_assert_int_eq(job.statuses[0], COPSE_TIMEOUT);
  ck_assert_msg(
      strncmp(job.texts[0], "rank 2 does not answer", 22) == 0 && !strstr(job.texts[0], "nor does"),
      "%s", job.texts[0]);
  ck_assert_int_eq(job.statuses[1], COPSE_TIMEOUT);
  ck_assert_msg(strncmp(job.texts[1], "no rank answers rank 1", 22) == 0, "%s", job.texts[1]);
  job_free(&job);
}
END_TEST

static copse_status call_until_it_fails(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[16] = {0}, out[16];
  copse_status status = join(rank, &comm);
  while (status == COPSE_OK) status = copse_broadcast(in, out, 16, COPSE_FLOAT, 0, comm, NULL);
  if (comm) (void)copse_comm_destroy(comm);
  return status;
}

/* A plan in which the receiver doesn't wait for what it gets. */
START_TEST(data_for_a_launch_that_is_over_is_refused) {
  struct job job;
  job_new(&job, 2, 0);
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t w1 = pb_worker(b, 1), back = pb_channel(b, w1, w0);
  pb_signal(b, w1, back, COPSE_WHEN_ALWAYS);
  pb_wait(b, w0, back, COPSE_WHEN_ALWAYS); /* rank 1 has left or is about to */
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_output(1, 0));
  job.plans[job.n_plans++] = pb_finish(b);
  run(&job, call_until_it_fails);
  expect(&job, COPSE_REFUTED, ", which has left it: the plan is wrong", -1);
  job_free(&job);
}
END_TEST

static copse_status cut_then_call(struct rank *rank) {
  copse_comm *comm = NULL;
  float in[16] = {0}, out[16];
  copse_status status = join(rank, &comm);
  if (rank->r == 0) thread_wires_cut(rank->job->wires, 1);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 16, COPSE_FLOAT, 0, comm, NULL);
  if (comm) (void)copse_comm_destroy(comm);
  return status;
}

START_TEST(a_wire_that_fails_says_why_to_all_it_reaches) {
  struct job job;
  job_new(&job, 3, 0);
  job.plans[job.n_plans++] =
      pb_tree_plan(COPSE_BROADCAST, 3, 0, ((struct pb_options){1, 2, 2, 4, 1 << 20, 1 << 10}));
  run(&job, cut_then_call);
  expect(&job, COPSE_DEVICE, "sending to rank 1: the cable is cut", 1);
  ck_assert_int_ne(job.statuses[1], COPSE_OK); /* it can't be notified, and finds out */
  job_free(&job);
}
END_TEST

static copse_status send_half_a_batch(struct rank *rank) {
  static const uint32_t cut[] = {8, 100}; /* 100 bytes, as tag 8, which don't come */
  copse_comm *comm = NULL;
  copse_wire wire = thread_wire(rank->job->wires, rank->r);
  float in[16] = {0}, out[16];
  void *request;
  copse_status status = join(rank, &comm);
  if (status == COPSE_OK && rank->r == 1)
    status = wire.send(wire.context, 0, 5, cut, sizeof cut - (size_t)rank->job->n_plans, &request);
  if (status == COPSE_OK) status = copse_broadcast(in, out, 16, COPSE_FLOAT, 0, comm, NULL);
  if (comm) (void)copse_comm_destroy(comm);
  return status;
}

START_TEST(a_batch_that_ends_too_early_is_refused) {
  struct job job;
  job_new(&job, 2, 0);
  for (int i = 0; i < _i; i++) /* also within what says how long a message is */
    job.plans[job.n_plans++] = pb_tree_plan(COPSE_BROADCAST, 2, i, PB_OPTIONS_DEFAULT);
  run(&job, send_half_a_batch);
  expect(&job, COPSE_REFUTED, "rank 1 sends a batch that ends within a message", -1);
  job_free(&job);
}
END_TEST

/* After a fault the transport leaves memory that the wire may still touch, on purpose:
 * LeakSanitizer asks here whether to look. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

int main(void) {
  Suite *suite = suite_create("runtime/mesh_threads");
  TCase *tc = tcase_create("transport");
  tcase_add_loop_test(tc, results_are_right_whatever_comes_when, 0, 3);
  tcase_add_test(tc, short_messages_go_together);
  tcase_add_test(tc, a_signal_goes_with_the_data_before_it);
  tcase_add_test(tc, a_rank_leaves_nothing_behind_that_needs_its_calls);
  tcase_add_loop_test(tc, a_batch_that_ends_too_early_is_refused, 1, 3);
  tcase_add_test(tc, a_plan_that_wires_do_not_run_is_left_out);
  tcase_add_test(tc, another_version_is_refused_by_name);
  tcase_add_loop_test(tc, ranks_that_do_not_come_are_named, 0, 2);
  tcase_add_test(tc, a_standstill_is_no_dead_rank);
  tcase_add_test(tc, a_dead_rank_is_found_whoever_seems_to_wait_for_whom);
  tcase_add_test(tc, a_rank_to_which_nothing_comes_blames_nobody);
  tcase_add_test(tc, data_for_a_launch_that_is_over_is_refused);
  tcase_add_test(tc, a_wire_that_fails_says_why_to_all_it_reaches);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
