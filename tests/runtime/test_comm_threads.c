/*
 * Communicators used from many threads: a thread per rank, peers that never call, aborts, ends
 * while others wait, and ranks of different "processes" (cliques of one rank each) that agree
 * over a bootstrap, on a machine made for the test.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/comm/local_ranks.h"
#include "support/comm_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define N 4
#define SHORT_SECONDS 0.2
#define LONG_SECONDS 200.0 /* never over in a test */

static void pause_seconds(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
  nanosleep(&t, NULL);
}

/* What one rank's thread does, and how it went. */
struct rank {
  pthread_t thread;
  struct comm_job *job;
  int r;
  copse_status status;
  char text[512];
  float in, out;
};

static copse_status keep(struct rank *rank, copse_status status) {
  rank->status = status;
  strcpy(rank->text, status == COPSE_OK ? "" : copse_last_error());
  return status;
}

static void *sum_once(void *context) {
  struct rank *rank = context;
  rank->in = (float)(rank->r + 1);
  keep(rank, copse_all_reduce(&rank->in, &rank->out, 1, COPSE_FLOAT, COPSE_SUM,
                              rank->job->comms[rank->r], NULL));
  return NULL;
}

static void start(struct rank *ranks, struct comm_job *job, int first, int n,
                  void *(*work)(void *)) {
  for (int r = first; r < first + n; r++) {
    ranks[r] = (struct rank){.job = job, .r = r};
    ck_assert_int_eq(pthread_create(&ranks[r].thread, NULL, work, &ranks[r]), 0);
  }
}

static void join(struct rank *ranks, int first, int n) {
  for (int r = first; r < first + n; r++) pthread_join(ranks[r].thread, NULL);
}

static void assert_all(const struct rank *ranks, int first, int n, copse_status status,
                       const char *part) {
  for (int r = first; r < first + n; r++) {
    ck_assert_msg(ranks[r].status == status, "rank %d: %s (%s)", r, ranks[r].text,
                  copse_status_string(ranks[r].status));
    ck_assert_msg(strstr(ranks[r].text, part) != NULL, "rank %d: \"%s\" lacks \"%s\"", r,
                  ranks[r].text, part);
  }
}

static void assert_works(struct comm_job *job) {
  struct rank ranks[N];
  start(ranks, job, 0, N, sum_once);
  join(ranks, 0, N);
  assert_all(ranks, 0, N, COPSE_OK, "");
  for (int r = 0; r < N; r++) ck_assert(ranks[r].out == 10);
}

START_TEST(every_collective_is_right_from_a_thread_each) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  comm_check_all(&job, (copse_collective)_i, comm_run_threads);
  comm_job_free(&job);
}
END_TEST

static void *maximum_of_two(void *context) {
  struct rank *rank = context;
  float in[2] = {0, 0}, out[2];
  keep(rank, copse_all_reduce(in, out, 2, COPSE_FLOAT, COPSE_MAX, rank->job->comms[rank->r], NULL));
  return NULL;
}

START_TEST(a_call_that_differs_is_refused_on_every_rank) {
  struct comm_job job;
  struct rank ranks[N];
  comm_job_new(&job, N, true);
  for (int turn = 0; turn < 20; turn++) {
    start(ranks, &job, 0, N - 1, sum_once);
    start(ranks, &job, N - 1, 1, maximum_of_two);
    join(ranks, 0, N);
    assert_all(ranks, 0, N, COPSE_INVALID,
               "rank 3 calls all_reduce of 2 float max where rank 0 calls all_reduce of 1");
    assert_works(&job);
  }
  comm_job_free(&job);
}
END_TEST

START_TEST(a_rank_that_never_calls_is_named_after_the_time_limit) {
  struct comm_job job;
  struct rank ranks[N];
  copse_status async;
  comm_job_new(&job, N, true);
  COMM_OK(copse_comm_set_timeout(job.comms[3], SHORT_SECONDS));
  double before = copse_clock_seconds();
  start(ranks, &job, 0, 2, sum_once);
  join(ranks, 0, 2);
  double waited = copse_clock_seconds() - before;
  ck_assert_msg(waited >= SHORT_SECONDS && waited < 60, "%g s", waited);
  assert_all(ranks, 0, 2, COPSE_TIMEOUT, "waited 0.2 s for the call of rank 2, 3");
  start(ranks, &job, 2, 2, sum_once); /* too late */
  join(ranks, 2, 2);
  assert_all(ranks, 2, 2, COPSE_TIMEOUT, "waited 0.2 s");
  COMM_OK(copse_comm_get_async_error(job.comms[1], &async));
  ck_assert_int_eq(async, COPSE_TIMEOUT);
  comm_job_free(&job);
}
END_TEST

START_TEST(a_shorter_limit_holds_for_those_who_wait) {
  struct comm_job job;
  struct rank ranks[N];
  comm_job_new(&job, N, true);
  start(ranks, &job, 0, 1, sum_once);
  pause_seconds(0.05);
  COMM_OK(copse_comm_set_timeout(job.comms[3], SHORT_SECONDS));
  join(ranks, 0, 1);
  assert_all(ranks, 0, 1, COPSE_TIMEOUT, "rank 1, 2, 3");
  comm_job_free(&job);
}
END_TEST

START_TEST(an_abort_ends_those_who_wait) {
  struct comm_job job;
  struct rank ranks[N];
  comm_job_new(&job, N, true);
  COMM_OK(copse_comm_set_timeout(job.comms[0], LONG_SECONDS));
  start(ranks, &job, 0, N - 1, sum_once);
  pause_seconds(_i * 0.02); /* also before all of them wait */
  COMM_OK(copse_comm_abort(job.comms[0]));
  join(ranks, 0, N - 1);
  assert_all(ranks, 0, N - 1, COPSE_ABORTED, "called on rank 0");
  comm_job_free(&job);
}
END_TEST

START_TEST(a_rank_that_ends_releases_those_who_wait) {
  struct comm_job job;
  struct rank ranks[N];
  comm_job_new(&job, N, true);
  COMM_OK(copse_comm_set_timeout(job.comms[0], LONG_SECONDS));
  start(ranks, &job, 0, N - 1, sum_once);
  pause_seconds(_i * 0.02);
  COMM_OK(copse_comm_destroy(job.comms[N - 1]));
  job.comms[N - 1] = NULL;
  join(ranks, 0, N - 1);
  assert_all(ranks, 0, N - 1, COPSE_INVALID, "rank 3 has destroyed its communicator");
  comm_job_free(&job);
}
END_TEST

static void *sum_and_end(void *context) {
  struct rank *rank = context;
  sum_once(rank);
  keep(rank,
       rank->status == COPSE_OK ? copse_comm_destroy(rank->job->comms[rank->r]) : rank->status);
  rank->job->comms[rank->r] = NULL;
  return NULL;
}

START_TEST(ranks_end_from_their_own_threads) {
  for (int turn = 0; turn < 30; turn++) {
    struct comm_job job;
    struct rank ranks[N];
    comm_job_new(&job, N, true);
    start(ranks, &job, 0, N, sum_and_end);
    join(ranks, 0, N);
    assert_all(ranks, 0, N, COPSE_OK, "");
    for (int r = 0; r < N; r++) ck_assert(ranks[r].out == 10);
    comm_job_free(&job);
  }
}
END_TEST

/* ---- two communicators --------------------------------------------------------------------- */

#define TURNS 100
static struct comm_job two[2];

/* Two ranks of each communicator, in groups; one thread begins with one of them, one with the
 * other. */
static void *crosswise(void *context) {
  struct rank *rank = context;
  for (int turn = 0; turn < TURNS; turn++) {
    float in[2][2], out[2][2];
    COMM_OK(copse_group_start());
    for (int i = 0; i < 4; i++) {
      int j = (i / 2 + rank->r) % 2, half = i % 2, r = 2 * rank->r + half;
      in[j][half] = (float)(r + turn * (j + 1));
      COMM_OK(copse_all_reduce(&in[j][half], &out[j][half], 1, COPSE_FLOAT, COPSE_SUM,
                               two[j].comms[r], NULL));
    }
    COMM_OK(copse_group_end());
    for (int i = 0; i < 4; i++) ck_assert(out[i / 2][i % 2] == (float)(6 + 4 * turn * (i / 2 + 1)));
  }
  return NULL;
}

START_TEST(groups_of_threads_cross_without_blocking) {
  struct rank ranks[2];
  for (int j = 0; j < 2; j++) comm_job_new(&two[j], N, true);
  for (int j = 0; j < 2; j++) COMM_OK(copse_comm_set_timeout(two[j].comms[0], 30));
  start(ranks, NULL, 0, 2, crosswise);
  join(ranks, 0, 2);
  for (int j = 0; j < 2; j++) comm_job_free(&two[j]);
}
END_TEST

static void *random_collectives(void *context) {
  struct rank *rank = context;
  uint64_t state = 5; /* the same everywhere */
  static int64_t in[N][4 * 300], out[N][4 * 300];
  for (int turn = 0; turn < 300; turn++) {
    struct copse_data data = {
        .collective = (copse_collective)copse_test_random_int(&state, 0, COPSE_N_COLLECTIVES - 1),
        .count = (uint64_t)copse_test_random_int(&state, 0, 300),
        .type = COPSE_INT64};
    data.root = comm_job_root(data.collective, N);
    int64_t *p = in[rank->r], *q = out[rank->r];
    for (int i = 0; i < 4 * 300; i++) p[i] = rank->r * 10000 + i + turn;
    if (keep(rank, comm_call(rank->job->comms[rank->r], &data, p, q)) != COPSE_OK) break;
    if (data.collective != COPSE_ALLREDUCE) continue;
    for (int64_t i = 0; i < (int64_t)data.count; i++) ck_assert(q[i] == 60000 + 4 * (i + turn));
  }
  return NULL;
}

static void *look_at_state(void *context) {
  struct rank *rank = context;
  const struct copse_plan *plan;
  copse_status async;
  for (int i = 0; i < 300; i++) {
    COMM_OK(copse_comm_get_async_error(rank->job->comms[0], &async));
    ck_assert_int_eq(async, COPSE_OK);
    COMM_OK(copse_comm_find_plan(rank->job->comms[0], COPSE_ALLTOALL, -1, 7, COPSE_FLOAT, &plan));
    COMM_OK(copse_comm_set_timeout(rank->job->comms[0], LONG_SECONDS + i));
  }
  return NULL;
}

START_TEST(threads_keep_step_over_many_collectives) {
  struct comm_job job;
  struct rank ranks[N], looker[1];
  comm_job_new(&job, N, true);
  start(ranks, &job, 0, N, random_collectives);
  start(looker, &job, 0, 1, look_at_state);
  join(ranks, 0, N);
  join(looker, 0, 1);
  assert_all(ranks, 0, N, COPSE_OK, "");
  comm_job_free(&job);
}
END_TEST

/* ---- a machine for tests ------------------------------------------------------------------- */

static struct {
  double launch_seconds;
  copse_status launch, prepare, poll;
  int lacks_device; /* the rank whose machine can't be made; 0: every rank's can */
  atomic_int n_launches, n_aborts, n_prepared, n_added, n_removed, n_machines;
} fake;

static copse_status fake_new(const struct copse_comm_shape *shape, void **machine,
                             struct copse_err *err) {
  if (fake.lacks_device && shape->first_local == (uint32_t)fake.lacks_device)
    return copse_fail(err, COPSE_DEVICE, "no such GPU");
  atomic_fetch_add(&fake.n_machines, 1);
  *machine = &fake;
  return COPSE_OK;
}
static void fake_free(void *machine) {
  (void)machine;
  atomic_fetch_sub(&fake.n_machines, 1);
}
/* All plans, or none where one reduces and fake.prepare is an error. */
static copse_status fake_prepare(void *machine, const struct copse_plan *const *plans, size_t n,
                                 void **prepared, struct copse_err *err) {
  (void)machine;
  for (size_t i = 0; i < n; i++) {
    prepared[i] = &fake;
    if (plans[i]->header.collective == COPSE_REDUCE && fake.prepare != COPSE_OK)
      return copse_fail(err, fake.prepare, "too many workers");
  }
  atomic_fetch_add(&fake.n_prepared, (int)n);
  return COPSE_OK;
}
static copse_status fake_launch(void *machine, const struct copse_batch *rounds, uint32_t n,
                                uint32_t *n_taken, struct copse_err *err) {
  (void)machine, (void)rounds, (void)n;
  *n_taken = 1;
  atomic_fetch_add(&fake.n_launches, 1);
  pause_seconds(fake.launch_seconds);
  return fake.launch == COPSE_OK ? COPSE_OK : copse_fail(err, fake.launch, "the launch failed");
}
static copse_status fake_finish(void *machine, struct copse_err *err) {
  (void)machine, (void)err;
  return COPSE_OK;
}
static copse_status fake_poll(void *machine, struct copse_err *err) {
  (void)machine;
  return fake.poll == COPSE_OK ? COPSE_OK : copse_fail(err, fake.poll, "a kernel gave up");
}
static void fake_abort(void *machine) {
  (void)machine;
  atomic_fetch_add(&fake.n_aborts, 1);
}
static void fake_set_timeout(void *machine, double seconds) { (void)machine, (void)seconds; }
static copse_status fake_add(void *machine, uint32_t local_rank, void *buffer, size_t bytes,
                             void **handle, struct copse_err *err) {
  (void)machine, (void)local_rank, (void)bytes, (void)err;
  atomic_fetch_add(&fake.n_added, 1);
  *handle = buffer;
  return COPSE_OK;
}
static copse_status fake_remove(void *machine, uint32_t local_rank, void *handle,
                                struct copse_err *err) {
  (void)machine, (void)local_rank, (void)err;
  ck_assert_ptr_nonnull(handle);
  atomic_fetch_add(&fake.n_removed, 1);
  return COPSE_OK;
}

static const struct copse_backend_ops fake_backend = {.create = fake_new,
                                                      .destroy = fake_free,
                                                      .prepare = fake_prepare,
                                                      .launch = fake_launch,
                                                      .finish = fake_finish,
                                                      .poll = fake_poll,
                                                      .abort = fake_abort,
                                                      .set_timeout = fake_set_timeout,
                                                      .add_buffer = fake_add,
                                                      .remove_buffer = fake_remove};

static const int gpus[N] = {0, 0, 0, 0};

/* All ranks in this process on the fake backend, with plans. */
static void fake_job(struct comm_job *job) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_comm_shape shape = {.n_ranks = N, .n_local = N, .devices = gpus};
  memset(job, 0, sizeof *job);
  job->n = N;
  ASSERT_OK(copse_local_new(&shape, &fake_backend, NULL, job->comms, &err), &err);
  comm_job_add(job, pb_tree_plan(COPSE_ALLREDUCE, N, -1, PB_OPTIONS_DEFAULT));
}

START_TEST(a_long_launch_is_no_timeout) {
  struct comm_job job;
  struct rank ranks[N];
  fake_job(&job);
  COMM_OK(copse_comm_set_timeout(job.comms[0], SHORT_SECONDS));
  fake.launch_seconds = 3 * SHORT_SECONDS;
  start(ranks, &job, 0, N, sum_once);
  join(ranks, 0, N);
  assert_all(ranks, 0, N, COPSE_OK, "");
  ck_assert_int_eq(fake.n_launches, 1);
  comm_job_free(&job);
  ck_assert_int_eq(fake.n_machines, 0);
}
END_TEST

START_TEST(an_abort_during_a_launch_reaches_the_machine_and_all_callers) {
  struct comm_job job;
  struct rank ranks[N];
  copse_status async;
  fake_job(&job);
  fake.launch_seconds = 1.5; /* on a busy machine a thread may wait for its turn for long */
  start(ranks, &job, 0, N, sum_once);
  while (fake.n_launches == 0) pause_seconds(0.005);
  double before = copse_clock_seconds();
  COMM_OK(copse_comm_get_async_error(job.comms[0], &async)); /* never blocks */
  ck_assert_int_eq(async, COPSE_OK);
  COMM_OK(copse_comm_abort(job.comms[1]));
  ck_assert_double_lt(copse_clock_seconds() - before, 1);
  ck_assert_int_eq(fake.n_aborts, 1);
  join(ranks, 0, N);
  assert_all(ranks, 0, N, COPSE_ABORTED, "rank 1");
  comm_job_free(&job);
}
END_TEST

START_TEST(a_failure_of_the_machine_breaks_and_a_refusal_does_not) {
  struct comm_job job;
  struct rank ranks[N];
  copse_status async;
  fake_job(&job);
  const copse_status refusals[] = {COPSE_NOMEM, COPSE_INVALID, COPSE_UNSUPPORTED, COPSE_OK};
  for (int i = 0; i < 4; i++) {
    fake.launch = refusals[i];
    start(ranks, &job, 0, N, sum_once);
    join(ranks, 0, N);
    assert_all(ranks, 0, N, refusals[i], i < 3 ? "the launch failed" : "");
  }
  if (_i == 0) {
    fake.launch = COPSE_DEVICE;
    start(ranks, &job, 0, N, sum_once);
    join(ranks, 0, N);
    assert_all(ranks, 0, N, COPSE_DEVICE, "the launch failed");
  } else {
    fake.poll = COPSE_TIMEOUT; /* something enqueued before */
  }
  COMM_OK(copse_comm_get_async_error(job.comms[2], &async));
  ck_assert_int_eq(async, _i == 0 ? COPSE_DEVICE : COPSE_TIMEOUT);
  int launches = fake.n_launches;
  start(ranks, &job, 0, N, sum_once);
  join(ranks, 0, N);
  assert_all(ranks, 0, N, async, _i == 0 ? "the launch failed" : "a kernel gave up");
  ck_assert_int_eq(fake.n_launches, launches);
  comm_job_free(&job);
  ck_assert_int_ge(fake.n_aborts, 1); /* the end must not wait for what hangs */
}
END_TEST

START_TEST(a_machine_that_registers_gets_every_buffer) {
  struct comm_job job;
  void *a, *b;
  fake_job(&job);
  COMM_OK(copse_comm_register(job.comms[1], &job, sizeof job, &a));
  COMM_OK(copse_comm_register(job.comms[2], &job, sizeof job, &b));
  ck_assert_int_eq(fake.n_added, 2);
  COMM_OK(copse_comm_deregister(job.comms[1], a));
  ck_assert_int_eq(fake.n_removed, 1);
  comm_job_free(&job);
}
END_TEST

/* ---- ranks of different processes --------------------------------------------------------------
 */

static pthread_barrier_t barrier;
static unsigned char board[N][256];
static atomic_int bootstraps_ended;

/* A thread each plays the processes; the context is the rank. */
static copse_status gather_over_board(void *context, const void *mine, void *all, size_t bytes) {
  int rank = *(int *)context;
  ck_assert_uint_le(bytes, sizeof board[0]);
  memcpy(board[rank], mine, bytes);
  pthread_barrier_wait(&barrier);
  for (int r = 0; r < N; r++) memcpy((char *)all + (size_t)r * bytes, board[r], bytes);
  pthread_barrier_wait(&barrier);
  return COPSE_OK;
}

static void end_bootstrap(copse_bootstrap *bootstrap) {
  bootstrap->context = NULL;
  atomic_fetch_add(&bootstraps_ended, 1);
}

static copse_status try_process(struct rank *rank, copse_comm **comm, struct copse_err *err) {
  const copse_bootstrap bootstrap = {gather_over_board, &rank->r};
  const struct copse_comm_shape shape = {N, (uint32_t)rank->r, 1, gpus, &bootstrap, NULL, NULL};
  return copse_local_new(&shape, &fake_backend, end_bootstrap, comm, err);
}

static void new_process(struct rank *rank, copse_comm **comm) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(try_process(rank, comm, &err), &err);
}

static void *make_and_end(void *context) {
  struct rank *rank = context;
  struct copse_err err = COPSE_ERR_INIT;
  copse_comm *comm;
  rank->status = try_process(rank, &comm, &err);
  strcpy(rank->text, err.text);
  if (rank->status == COPSE_OK) COMM_OK(copse_comm_destroy(comm));
  return NULL;
}

START_TEST(processes_are_joined_all_or_none) {
  struct rank ranks[N];
  pthread_barrier_init(&barrier, NULL, N);
  fake.lacks_device = 3;
  start(ranks, NULL, 0, N, make_and_end);
  join(ranks, 0, N);
  assert_all(ranks, 0, 3, COPSE_REFUTED, "rank 3 failed (rank 3: device failure)");
  assert_all(ranks, 3, 1, COPSE_DEVICE, "no such GPU");
  ck_assert_int_eq(bootstraps_ended, 0); /* still the caller's */
  fake.lacks_device = 0;
  start(ranks, NULL, 0, N, make_and_end);
  join(ranks, 0, N);
  assert_all(ranks, 0, N, COPSE_OK, "");
  ck_assert_int_eq(bootstraps_ended, N);
  ck_assert_int_eq(fake.n_machines, 0);
  pthread_barrier_destroy(&barrier);
}
END_TEST

static struct copse_plan *plans[3]; /* an allreduce, another, and one for five ranks */

/* Each rank adds the plan that `chosen` has for it, which is refused or not; then one that all
 * have in common, and calls. */
static const struct copse_plan *chosen[N];

static void *add_chosen(void *context) {
  struct rank *rank = context;
  copse_comm *comm;
  float x = 1;
  new_process(rank, &comm);
  keep(rank, copse_comm_add_plan(comm, chosen[rank->r]));
  bool added = rank->status == COPSE_OK;
  const struct copse_plan *plan;
  COMM_OK(copse_comm_find_plan(comm, COPSE_ALLREDUCE, -1, 1, COPSE_FLOAT, &plan));
  ck_assert(!plan == !added);
  if (!added) COMM_OK(copse_comm_add_plan(comm, plans[0]));
  COMM_OK(
      copse_all_reduce(&x, &x, 1, COPSE_FLOAT, COPSE_SUM, comm, NULL)); /* waits for no thread */
  COMM_OK(copse_comm_destroy(comm));
  return NULL;
}

START_TEST(processes_add_the_same_plan_or_none) {
  static const struct {
    int of_rank[N]; /* which of the plans */
    copse_status status[N];
    const char *part;
  } cases[] = {
      {{0, 0, 0, 0}, {COPSE_OK, COPSE_OK, COPSE_OK, COPSE_OK}, ""},
      {{0, 1, 0, 1},
       {COPSE_REFUTED, COPSE_REFUTED, COPSE_REFUTED, COPSE_REFUTED},
       "rank 1, 3 has not"},
      {{0, 0, 2, 0}, {COPSE_REFUTED, COPSE_REFUTED, COPSE_INVALID, COPSE_REFUTED}, ""},
  };
  struct rank ranks[N];
  struct pb_options other = PB_OPTIONS_DEFAULT;
  other.arity = 1;
  plans[0] = pb_tree_plan(COPSE_ALLREDUCE, N, -1, PB_OPTIONS_DEFAULT);
  plans[1] = pb_tree_plan(COPSE_ALLREDUCE, N, -1, other);
  plans[2] = pb_tree_plan(COPSE_ALLREDUCE, 5, -1, PB_OPTIONS_DEFAULT);
  pthread_barrier_init(&barrier, NULL, N);
  for (int r = 0; r < N; r++) chosen[r] = plans[cases[_i].of_rank[r]];
  start(ranks, NULL, 0, N, add_chosen);
  join(ranks, 0, N);
  for (int r = 0; r < N; r++) {
    assert_all(ranks, r, 1, cases[_i].status[r], cases[_i].part);
    if (_i == 2)
      assert_all(ranks, r, 1, cases[_i].status[r], r == 2 ? "for 5 ranks" : "rank 2 failed");
  }
  ck_assert_int_eq(bootstraps_ended, N);
  ck_assert_int_eq(fake.n_machines, 0);
  ck_assert_int_eq(fake.n_launches, N);
  pthread_barrier_destroy(&barrier);
  for (int i = 0; i < 3; i++) pb_free(plans[i]);
}
END_TEST

static char folder[64];

static void *load_folder(void *context) {
  struct rank *rank = context;
  copse_comm *comm;
  int n = -1;
  new_process(rank, &comm);
  /* rank 2 looks in the wrong place at first */
  keep(rank, copse_comm_load_plans(comm, rank->r == 2 ? "/nowhere" : folder, &n));
  ck_assert_int_eq(n, 0);
  COMM_FAILS(copse_comm_load_plans(comm, folder, &n), COPSE_UNSUPPORTED, "too many workers");
  const struct copse_plan *plan; /* the one before it has not entered either */
  COMM_OK(copse_comm_find_plan(comm, COPSE_ALLREDUCE, -1, 1, COPSE_FLOAT, &plan));
  ck_assert_ptr_null(plan);
  pthread_barrier_wait(&barrier);
  if (rank->r == 1) fake.prepare = COPSE_OK;
  pthread_barrier_wait(&barrier);
  COMM_OK(copse_comm_load_plans(comm, folder, &n));
  ck_assert_int_eq(n, 3);
  COMM_OK(copse_comm_find_plan(comm, COPSE_REDUCE, 0, 1, COPSE_FLOAT, &plan));
  ck_assert_ptr_nonnull(plan);
  COMM_OK(copse_comm_destroy(comm));
  return NULL;
}

START_TEST(processes_load_the_same_folder_or_nothing) {
  char path[128], command[128];
  struct rank ranks[N];
  strcpy(folder, "/tmp/copse-comm-threads-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int i = 0; i < 3; i++) {
    static const copse_collective of[] = {COPSE_ALLREDUCE, COPSE_BROADCAST, COPSE_REDUCE};
    struct copse_plan *plan = pb_tree_plan(of[i], N, i ? 0 : -1, PB_OPTIONS_DEFAULT);
    snprintf(path, sizeof path, "%s/%d.plan", folder, i);
    COMM_OK(copse_plan_write(plan, path));
    pb_free(plan);
  }
  pthread_barrier_init(&barrier, NULL, N);
  fake.prepare = COPSE_UNSUPPORTED;
  start(ranks, NULL, 0, N, load_folder);
  join(ranks, 0, N);
  assert_all(ranks, 2, 1, COPSE_IO, "/nowhere");
  assert_all(ranks, 0, 2, COPSE_REFUTED, "rank 2 failed (rank 2: input or output error)");
  assert_all(ranks, 3, 1, COPSE_REFUTED, "rank 2 failed");
  pthread_barrier_destroy(&barrier);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/comm_threads");
  TCase *tc = tcase_create("all");
  tcase_add_loop_test(tc, every_collective_is_right_from_a_thread_each, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, a_call_that_differs_is_refused_on_every_rank);
  tcase_add_test(tc, a_rank_that_never_calls_is_named_after_the_time_limit);
  tcase_add_test(tc, a_shorter_limit_holds_for_those_who_wait);
  tcase_add_loop_test(tc, an_abort_ends_those_who_wait, 0, 4);
  tcase_add_loop_test(tc, a_rank_that_ends_releases_those_who_wait, 0, 4);
  tcase_add_test(tc, ranks_end_from_their_own_threads);
  tcase_add_test(tc, groups_of_threads_cross_without_blocking);
  tcase_add_test(tc, threads_keep_step_over_many_collectives);
  tcase_add_test(tc, a_long_launch_is_no_timeout);
  tcase_add_test(tc, an_abort_during_a_launch_reaches_the_machine_and_all_callers);
  tcase_add_loop_test(tc, a_failure_of_the_machine_breaks_and_a_refusal_does_not, 0, 2);
  tcase_add_test(tc, a_machine_that_registers_gets_every_buffer);
  tcase_add_test(tc, processes_are_joined_all_or_none);
  tcase_add_loop_test(tc, processes_add_the_same_plan_or_none, 0, 3);
  tcase_add_test(tc, processes_load_the_same_folder_or_nothing);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
