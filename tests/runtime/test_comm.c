/*
 * Communicators on the CPU, all ranks from one thread: the collectives through the public
 * functions, what is refused and what a refusal leaves, which plan runs, folders of plans, and
 * ends in any order. tests/runtime/test_comm_threads.c has a thread per rank.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/gpu/gpu.h"
#include "runtime/plan/plan.h"
#include "support/comm_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define N 4
static float in[N][64], out[N][64];

static copse_status sum(copse_comm *comm, int r, size_t count) {
  return copse_all_reduce(in[r], out[r], count, COPSE_FLOAT, COPSE_SUM, comm, NULL);
}

static void start_sums(struct comm_job *job, size_t count) {
  COMM_OK(copse_group_start());
  for (int r = 0; r < job->n; r++) {
    in[r][0] = (float)(r + 1);
    out[r][0] = 0;
    COMM_OK(sum(job->comms[r], r, count));
  }
}

/* The communicator works: 1 + 2 + 3 + 4. */
static void assert_works(struct comm_job *job) {
  start_sums(job, 1);
  COMM_OK(copse_group_end());
  for (int r = 0; r < job->n; r++) ck_assert(out[r][0] == 10);
}

/* ---- right results ------------------------------------------------------------------------- */

START_TEST(every_collective_is_right_from_a_group) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  comm_check_all(&job, (copse_collective)_i, comm_run_group);
  comm_job_free(&job);
}
END_TEST

START_TEST(uneven_blocks_move_their_counts_and_nothing_else) {
  struct comm_job job;
  uint64_t counts[N * N], state = 7;
  comm_job_new(&job, N, true);
  for (int turn = 0; turn < 20; turn++) {
    struct copse_data data = {.collective = COPSE_ALLTOALL,
                              .n_ranks = N,
                              .root = -1,
                              .count = 100,
                              .type = (copse_type)(turn % COPSE_N_TYPES),
                              .pair_counts = counts};
    for (int i = 0; i < N * N; i++)
      counts[i] = turn == 0 ? 0 : (uint64_t)copse_test_random_int(&state, 0, 100);
    ck_assert_uint_eq(comm_run_group(&job, &data, false), 0);
  }
  comm_job_free(&job);
}
END_TEST

START_TEST(calls_of_a_group_run_in_order_over_communicators) {
  struct comm_job a, b;
  comm_job_new(&a, N, true);
  comm_job_new(&b, N, true);
  COMM_OK(copse_group_start());
  for (int turn = 0; turn < 3; turn++) {
    struct comm_job *job = turn == 1 ? &b : &a; /* each sums the sums before it */
    COMM_OK(copse_group_start());
    for (int r = 0; r < N; r++) {
      in[r][0] = 1;
      COMM_OK(copse_all_reduce(turn ? out[r] : in[r], out[r], 1, COPSE_FLOAT, COPSE_SUM,
                               job->comms[r], NULL));
    }
    COMM_OK(copse_group_end()); /* an inner end starts nothing */
    ck_assert(out[0][0] == 0);
  }
  COMM_OK(copse_group_end());
  for (int r = 0; r < N; r++) ck_assert(out[r][0] == N * N * N);
  comm_job_free(&a);
  comm_job_free(&b);
}
END_TEST

START_TEST(a_handle_knows_its_place) {
  static const int cpus[N] = {COPSE_DEVICE_CPU, COPSE_DEVICE_CPU, COPSE_DEVICE_CPU,
                              COPSE_DEVICE_CPU};
  copse_comm *comms[N];
  COMM_OK(copse_comm_init_all(comms, N, cpus));
  for (int r = 0; r < N; r++) {
    int count, rank, device;
    COMM_OK(copse_comm_count(comms[r], &count));
    COMM_OK(copse_comm_user_rank(comms[r], &rank));
    COMM_OK(copse_comm_device(comms[r], &device));
    ck_assert_int_eq(count, N);
    ck_assert_int_eq(rank, r);
    ck_assert_int_eq(device, COPSE_DEVICE_CPU);
    ck_assert_int_eq(copse_comm_count(comms[r], NULL), COPSE_INVALID);
    ck_assert_int_eq(copse_comm_user_rank(NULL, &rank), COPSE_INVALID);
    ck_assert_int_eq(copse_comm_device(NULL, &device), COPSE_INVALID);
  }
  for (int r = 0; r < N; r++) COMM_OK(copse_comm_destroy(comms[r]));
}
END_TEST

/* ---- refusals ------------------------------------------------------------------------------ */

START_TEST(wrong_arguments_are_refused_by_name) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  copse_comm *c = job.comms[1];
  float *p = in[1], *q = out[1];
  copse_type no_type = (copse_type)99;
  copse_redop no_op = (copse_redop)COPSE_N_REDOPS;
  COMM_FAILS(copse_all_reduce(p, q, 1, COPSE_FLOAT, COPSE_SUM, NULL, NULL), COPSE_INVALID, "comm");
  COMM_FAILS(copse_all_reduce(NULL, q, 1, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_INVALID,
             "sendbuff is NULL");
  COMM_FAILS(copse_all_reduce(p, NULL, 1, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_INVALID,
             "recvbuff is NULL");
  COMM_FAILS(copse_all_reduce(p, q, 1, no_type, COPSE_SUM, c, NULL), COPSE_INVALID, "copse_type");
  COMM_FAILS(copse_all_reduce(p, q, 1, COPSE_FLOAT, no_op, c, NULL), COPSE_INVALID, "copse_redop");
  COMM_FAILS(copse_all_reduce(p, (char *)q + 1, 1, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_INVALID,
             "aligned");
  COMM_FAILS(copse_all_gather(p, q, SIZE_MAX / 2, COPSE_DOUBLE, c, NULL), COPSE_INVALID, "2^48");
  COMM_FAILS(copse_all_gather(p, q, SIZE_MAX, COPSE_INT8, c, NULL), COPSE_INVALID, "2^48");
  COMM_FAILS(copse_broadcast(p, q, 1, COPSE_FLOAT, N, c, NULL), COPSE_INVALID, "root 4");
  COMM_FAILS(copse_broadcast(p, q, 1, COPSE_FLOAT, -1, c, NULL), COPSE_INVALID, "root -1");
  COMM_FAILS(copse_reduce(p, q, 1, COPSE_FLOAT, COPSE_SUM, N, c, NULL), COPSE_INVALID, "root 4");
  COMM_FAILS(copse_broadcast(NULL, q, 1, COPSE_FLOAT, 1, c, NULL), COPSE_INVALID, "sendbuff");
  COMM_FAILS(copse_reduce(p, NULL, 1, COPSE_FLOAT, COPSE_SUM, 1, c, NULL), COPSE_INVALID,
             "recvbuff");
  COMM_FAILS(copse_all_to_all_v(p, q, 1, NULL, COPSE_FLOAT, c, NULL), COPSE_INVALID, "pair_counts");
  /* in place as in NCCL, or apart */
  COMM_FAILS(copse_all_reduce(p, p + 1, 2, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_INVALID,
             "recvbuff == sendbuff");
  COMM_FAILS(copse_all_gather(p, p, 2, COPSE_FLOAT, c, NULL), COPSE_INVALID, "rank * sendcount");
  COMM_FAILS(copse_reduce_scatter(p, p, 2, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_INVALID,
             "rank * recvcount");
  COMM_FAILS(copse_all_to_all(p, p, 2, COPSE_FLOAT, c, NULL), COPSE_INVALID, "not done in place");
  COMM_FAILS(copse_all_to_all(p, p + 7, 2, COPSE_FLOAT, c, NULL), COPSE_INVALID,
             "not done in place");
  assert_works(&job); /* none of them counted as rank 1's call */
  comm_job_free(&job);
}
END_TEST

START_TEST(making_a_communicator_checks_its_arguments) {
  static const int mixed[2] = {COPSE_DEVICE_CPU, 0}, none[2] = {-2, -2};
  copse_comm *comms[2] = {(copse_comm *)in, (copse_comm *)in};
  copse_bootstrap nobody = {NULL, NULL};
  COMM_FAILS(copse_comm_init_all(NULL, 2, NULL), COPSE_INVALID, "comms");
  COMM_FAILS(copse_comm_init_all(comms, 0, NULL), COPSE_INVALID, "0 ranks");
  COMM_FAILS(copse_comm_init_all(comms, 1 << 20, NULL), COPSE_INVALID, "ranks");
  COMM_FAILS(copse_comm_init_all(comms, 2, mixed), COPSE_INVALID, "must be alike");
  ck_assert_ptr_null(comms[0]);
  ck_assert_ptr_null(comms[1]);
  COMM_FAILS(copse_comm_init_all(comms, 2, none), COPSE_INVALID, "no device");
  COMM_FAILS(copse_comm_init_rank(comms, 2, 0, COPSE_DEVICE_CPU, NULL), COPSE_INVALID, "bootstrap");
  COMM_FAILS(copse_comm_init_rank(comms, 2, 0, 0, &nobody), COPSE_INVALID, "bootstrap");
  COMM_FAILS(copse_comm_init_nccl(comms, NULL), COPSE_INVALID, "nccl_comm");
  COMM_OK(copse_comm_destroy(NULL));
  COMM_FAILS(copse_comm_abort(NULL), COPSE_INVALID, "comm");
}
END_TEST

static copse_status no_gather(void *context, const void *mine, void *all, size_t bytes) {
  (void)context, (void)mine, (void)all, (void)bytes;
  return COPSE_INTERNAL;
}

START_TEST(what_this_build_lacks_is_said_in_one_line) {
  copse_comm *comm;
  copse_bootstrap bootstrap = {no_gather, NULL};
  COMM_FAILS(copse_comm_init_rank(&comm, 2, 2, 0, &bootstrap), COPSE_INVALID, "rank 2 of 2");
  COMM_FAILS(copse_comm_init_rank(&comm, 2, 0, COPSE_DEVICE_CPU, &bootstrap), COPSE_UNSUPPORTED,
             "copse_comm_init_all for all in one process, copse_comm_init_mpi");
  static const int gpus[2] = {0, 1};
  copse_comm *comms[2];
  if (!copse_gpu()) {
    COMM_FAILS(copse_comm_init_all(comms, 2, gpus), COPSE_UNSUPPORTED, "without CUDA");
    COMM_FAILS(copse_comm_init_rank(&comm, 2, 0, 0, &bootstrap), COPSE_UNSUPPORTED, "without CUDA");
    COMM_FAILS(copse_comm_init_nccl(&comm, comms), COPSE_UNSUPPORTED, "without CUDA");
  }
  ck_assert_ptr_null(comm);
}
END_TEST

START_TEST(nothing_to_send_needs_no_plan_and_no_peer) {
  struct comm_job job;
  uint64_t counts[N * N] = {0};
  comm_job_new(&job, N, false);
  copse_comm *c = job.comms[2];
  COMM_OK(copse_all_reduce(NULL, NULL, 0, COPSE_FLOAT, COPSE_SUM, c, NULL));
  COMM_OK(copse_all_to_all_v(NULL, NULL, 0, counts, COPSE_FLOAT, c, NULL));
  COMM_FAILS(copse_broadcast(NULL, NULL, 0, COPSE_FLOAT, 9, c, NULL), COPSE_INVALID, "root 9");
  COMM_OK(copse_comm_abort(c));
  COMM_FAILS(copse_all_reduce(NULL, NULL, 0, COPSE_FLOAT, COPSE_SUM, c, NULL), COPSE_ABORTED,
             "copse_comm_abort");
  comm_job_free(&job);
}
END_TEST

START_TEST(calls_that_differ_are_refused_and_leave_the_communicator_usable) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  for (int kind = 0; kind < 4; kind++) {
    static const char *const texts[] = {
        "rank 3 calls all_reduce of 2 float sum where rank 0 calls all_reduce of 1 float sum",
        "all_reduce of 1 float max where", "broadcast of 1 float, root 2 where", "int32 sum where"};
    COMM_OK(copse_group_start());
    for (int r = 0; r < N - 1; r++) COMM_OK(sum(job.comms[r], r, 1));
    copse_comm *c = job.comms[3];
    float *p = in[3], *q = out[3];
    if (kind == 0) COMM_OK(sum(c, 3, 2));
    if (kind == 1) COMM_OK(copse_all_reduce(p, q, 1, COPSE_FLOAT, COPSE_MAX, c, NULL));
    if (kind == 2) COMM_OK(copse_broadcast(p, q, 1, COPSE_FLOAT, 2, c, NULL));
    if (kind == 3) COMM_OK(copse_all_reduce(p, q, 1, COPSE_INT32, COPSE_SUM, c, NULL));
    COMM_FAILS(copse_group_end(), COPSE_INVALID, texts[kind]);
    assert_works(&job);
  }
  comm_job_free(&job);
}
END_TEST

START_TEST(uneven_counts_must_be_the_same_and_fit) {
  struct comm_job job;
  uint64_t counts[2][N * N] = {{0}, {0}};
  comm_job_new(&job, N, true);
  for (int kind = 0; kind < 3; kind++) {
    counts[0][6] = kind == 0 ? 9 : 3; /* from rank 1 to rank 2 */
    counts[1][6] = kind == 1 ? 4 : counts[0][6];
    COMM_OK(copse_group_start());
    for (int r = 0; r < N; r++)
      COMM_OK(
          copse_all_to_all_v(in[r], out[r], 8, counts[r == 3], COPSE_FLOAT, job.comms[r], NULL));
    if (kind == 0)
      COMM_FAILS(copse_group_end(), COPSE_INVALID, "9 elements from rank 1 to rank 2");
    else if (kind == 1)
      COMM_FAILS(copse_group_end(), COPSE_INVALID, "3 at rank 0 and 4 at rank 3");
    else
      COMM_OK(copse_group_end());
  }
  assert_works(&job);
  comm_job_free(&job);
}
END_TEST

/* One rank alone, from one thread: nobody else will ever call. */
START_TEST(a_call_without_a_plan_is_refused_before_its_peers_call) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  for (int r = 0; r < N; r += 3)
    COMM_FAILS(copse_broadcast(in[r], out[r], 1, COPSE_INT, 0, job.comms[r], NULL),
               COPSE_UNSUPPORTED, "no plan for broadcast of 1 int32, root 0, 4 bytes over 4 ranks");
  assert_works(&job);
  comm_job_free(&job);
}
END_TEST

START_TEST(a_refused_call_keeps_its_group_from_starting) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  start_sums(&job, 1);
  COMM_FAILS(copse_all_reduce(NULL, out[0], 1, COPSE_FLOAT, COPSE_SUM, job.comms[0], NULL),
             COPSE_INVALID, "sendbuff");
  COMM_FAILS(copse_all_reduce(in[0], NULL, 1, COPSE_FLOAT, COPSE_SUM, job.comms[0], NULL),
             COPSE_INVALID, "recvbuff");
  COMM_FAILS(copse_group_end(), COPSE_INVALID, "sendbuff"); /* the first */
  ck_assert(out[0][0] == 0);
  assert_works(&job);
  COMM_FAILS(copse_group_end(), COPSE_INVALID, "not started");
  assert_works(&job);
  comm_job_free(&job);
}
END_TEST

START_TEST(a_group_reports_its_first_error_and_runs_the_rest) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  start_sums(&job, 1);
  for (int r = 0; r < N; r++) /* no plan for this root */
    COMM_OK(copse_broadcast(in[r], out[r] + 8, 1, COPSE_FLOAT, 0, job.comms[r], NULL));
  for (int r = 0; r < N; r++)
    COMM_OK(copse_all_reduce(in[r], out[r] + 4, 1, COPSE_FLOAT, COPSE_MAX, job.comms[r], NULL));
  COMM_FAILS(copse_group_end(), COPSE_UNSUPPORTED,
             "no plan for broadcast of 1 float, root 0, 4 bytes over 4 ranks: there are ");
  ck_assert(out[0][0] == 10 && out[0][4] == 4);
  assert_works(&job);
  comm_job_free(&job);
}
END_TEST

/* ---- plans ---------------------------------------------------------------------------------- */

static struct copse_plan *plan_for(copse_collective collective, int root, uint64_t min,
                                   uint64_t max) {
  struct copse_plan *plan = pb_tree_plan(collective, N, root, PB_OPTIONS_DEFAULT);
  plan->header.min_bytes = min;
  plan->header.max_bytes = max;
  return plan;
}

static const struct copse_plan *found(struct comm_job *job, copse_collective collective, int root,
                                      size_t count) {
  const struct copse_plan *plan;
  COMM_OK(copse_comm_find_plan(job->comms[1], collective, root, count, COPSE_FLOAT, &plan));
  return plan;
}

START_TEST(the_narrowest_range_that_holds_the_message_wins) {
  struct comm_job job;
  comm_job_new(&job, N, false);
  ck_assert_ptr_null(found(&job, COPSE_ALLREDUCE, -1, 1));
  comm_job_add(&job, plan_for(COPSE_ALLREDUCE, -1, 0, UINT64_MAX));
  comm_job_add(&job, plan_for(COPSE_ALLREDUCE, -1, 100, 4000));
  comm_job_add(&job, plan_for(COPSE_ALLREDUCE, -1, 200, 4100)); /* as narrow, but later */
  comm_job_add(&job, plan_for(COPSE_ALLREDUCE, -1, 4000, 4096));
  struct copse_plan *const *plans = job.plans;
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 24), plans[0]); /* 96 bytes */
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 25), plans[1]);
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 999), plans[1]);
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 1000), plans[3]); /* ends belong to it */
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 1024), plans[3]);
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 1025), plans[2]);
  ck_assert_ptr_eq(found(&job, COPSE_ALLREDUCE, -1, 1026), plans[0]);
  ck_assert_ptr_null(found(&job, COPSE_ALLGATHER, -1, 1));
  comm_job_add(&job, plan_for(COPSE_ALLGATHER, -1, 64, 64)); /* of all ranks together */
  ck_assert_ptr_eq(found(&job, COPSE_ALLGATHER, -1, 4), plans[4]);
  ck_assert_ptr_null(found(&job, COPSE_ALLGATHER, -1, 16));
  COMM_FAILS(copse_all_gather(in[0], out[0], 16, COPSE_FLOAT, job.comms[0], NULL), COPSE_UNSUPPORTED,
             "there are 5 plans for 4 ranks, of these for 64 to 64 bytes");
  COMM_FAILS(copse_reduce_scatter(in[0], out[0], 1, COPSE_FLOAT, COPSE_SUM, job.comms[0], NULL),
             COPSE_UNSUPPORTED, "there are 5 plans for 4 ranks, none of these for this collective");
  comm_job_free(&job);
}
END_TEST

START_TEST(a_plan_serves_its_root_only) {
  struct comm_job job;
  comm_job_new(&job, N, false);
  comm_job_add(&job, plan_for(COPSE_BROADCAST, 1, 0, UINT64_MAX));
  comm_job_add(&job, plan_for(COPSE_BROADCAST, 3, 0, UINT64_MAX));
  ck_assert_ptr_null(found(&job, COPSE_BROADCAST, 0, 1));
  ck_assert_ptr_eq(found(&job, COPSE_BROADCAST, 1, 1), job.plans[0]);
  ck_assert_ptr_eq(found(&job, COPSE_BROADCAST, 3, 1), job.plans[1]);
  const struct copse_plan *plan;
  COMM_FAILS(copse_comm_find_plan(job.comms[0], (copse_collective)7, 0, 1, COPSE_FLOAT, &plan),
             COPSE_INVALID, "collective");
  COMM_FAILS(copse_comm_find_plan(job.comms[0], COPSE_ALLTOALL, 0, SIZE_MAX, COPSE_FLOAT, &plan),
             COPSE_INVALID, "2^48");
  comm_job_free(&job);
}
END_TEST

START_TEST(packets_do_not_serve_uneven_blocks) {
  struct comm_job job;
  uint64_t counts[N * N] = {0, 1};
  comm_job_new(&job, N, false);
  struct copse_plan *small = plan_for(COPSE_ALLTOALL, -1, 0, 1024);
  small->header.protocol = COPSE_PROTOCOL_LOW_LATENCY;
  comm_job_add(&job, small);
  for (int turn = 0; turn < 2; turn++) {
    ck_assert_ptr_eq(found(&job, COPSE_ALLTOALL, -1, 2), small);
    COMM_OK(copse_group_start());
    for (int r = 0; r < N; r++)
      COMM_OK(copse_all_to_all_v(in[r], out[r], 2, counts, COPSE_FLOAT, job.comms[r], NULL));
    if (turn == 0) {
      COMM_FAILS(copse_group_end(), COPSE_UNSUPPORTED, "no plan for all_to_all_v");
      comm_job_add(&job, plan_for(COPSE_ALLTOALL, -1, 0, UINT64_MAX));
    } else {
      COMM_OK(copse_group_end());
    }
  }
  comm_job_free(&job);
}
END_TEST

/* An alltoall by demand: half of every block. */
static struct copse_plan *by_demand(void) {
  static struct copse_plan_extent extents[N * N];
  struct copse_plan *plan = plan_for(COPSE_ALLTOALL, -1, 0, UINT64_MAX);
  for (int i = 0; i < N * N; i++) extents[i] = (struct copse_plan_extent){1, 2};
  plan->extents = extents;
  plan->header.n_extents = N * N;
  return plan;
}

START_TEST(plans_that_can_serve_no_call_are_refused) {
  struct comm_job job;
  comm_job_new(&job, N, false);
  struct copse_plan *five = pb_tree_plan(COPSE_ALLREDUCE, 5, -1, PB_OPTIONS_DEFAULT);
  struct copse_plan *demand = by_demand();
  COMM_FAILS(copse_comm_add_plan(job.comms[0], five), COPSE_INVALID, "for 5 ranks");
  COMM_FAILS(copse_comm_add_plan(job.comms[0], demand), COPSE_UNSUPPORTED, "one demand");
  COMM_FAILS(copse_comm_add_plan(job.comms[0], NULL), COPSE_INVALID, "plan is NULL");
  COMM_FAILS(copse_comm_add_plan(NULL, demand), COPSE_INVALID, "comm is NULL");
  pb_free(five);
  pb_free(demand);
  /* rank 1 copies its input, which in a broadcast from rank 0 may be NULL */
  struct plan_builder *b = pb_new(COPSE_BROADCAST, N, 0);
  uint32_t w = pb_worker(b, 1);
  for (uint32_t r = 0; r < N; r++)
    if (r != 1) (void)pb_worker(b, r);
  pb_move(b, w, pb_piece(b, 0, 1, 1, 1), 0);
  pb_src(b, pb_input(1, 0));
  pb_dst(b, pb_output(1, 0));
  struct copse_plan *reads = pb_finish(b);
  COMM_FAILS(copse_comm_add_plan(job.comms[0], reads), COPSE_UNSUPPORTED, "input of rank 1");
  pb_free(reads);
  comm_job_free(&job);
}
END_TEST

/* ---- folders --------------------------------------------------------------------------------- */

static char folder[64];

static void new_folder(void) {
  strcpy(folder, "/tmp/copse-comm-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void end_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* Ends the plan. */
static void write_plan(const char *name, struct copse_plan *plan) {
  COMM_OK(copse_plan_write(plan, in_folder(name)));
  pb_free(plan);
}

START_TEST(a_folder_is_loaded_in_order_of_name_for_these_ranks) {
  struct comm_job job;
  int n = -1;
  new_folder();
  write_plan("b.plan", plan_for(COPSE_ALLREDUCE, -1, 10, 1000));
  write_plan("a.plan", plan_for(COPSE_ALLREDUCE, -1, 0, 990)); /* as narrow; first by name */
  write_plan("B.plan", plan_for(COPSE_ALLGATHER, -1, 0, 5000));
  write_plan("five.plan", pb_tree_plan(COPSE_ALLREDUCE, 5, -1, PB_OPTIONS_DEFAULT));
  write_plan("demand.plan", by_demand());
  write_plan(".hidden.plan", plan_for(COPSE_BROADCAST, 0, 0, 5000));
  write_plan("other.txt", plan_for(COPSE_BROADCAST, 0, 0, 5000));
  comm_job_new(&job, N, false);
  COMM_OK(copse_comm_load_plans(job.comms[2], folder, &n));
  ck_assert_int_eq(n, 3);
  ck_assert_ptr_null(found(&job, COPSE_BROADCAST, 0, 1));
  ck_assert_ptr_nonnull(found(&job, COPSE_ALLGATHER, -1, 1));
  ck_assert_uint_eq(found(&job, COPSE_ALLREDUCE, -1, 100)->header.min_bytes, 0);
  ck_assert_uint_eq(found(&job, COPSE_ALLREDUCE, -1, 249)->header.min_bytes, 10);
  assert_works(&job);
  comm_job_free(&job);
  end_folder();
}
END_TEST

START_TEST(a_damaged_file_adds_nothing) {
  struct comm_job job;
  int n = -1;
  char *bytes;
  size_t size;
  struct copse_err err = COPSE_ERR_INIT;
  new_folder();
  write_plan("a.plan", plan_for(COPSE_ALLREDUCE, -1, 0, 1000));
  write_plan("z.plan", plan_for(COPSE_ALLREDUCE, -1, 0, 2000));
  ASSERT_OK(copse_file_read(in_folder("a.plan"), &bytes, &size, &err), &err);
  bytes[size / 2] ^= 1;
  ASSERT_OK(copse_file_write(in_folder("b.plan"), bytes, size, &err), &err);
  free(bytes);
  comm_job_new(&job, N, false);
  COMM_FAILS(copse_comm_load_plans(job.comms[0], folder, &n), COPSE_BAD_INPUT, "b.plan");
  ck_assert_int_eq(n, 0);
  ck_assert_ptr_null(found(&job, COPSE_ALLREDUCE, -1, 1));
  unlink(in_folder("b.plan"));
  ck_assert_int_eq(mkdir(in_folder("b.plan"), 0700), 0);
  COMM_FAILS(copse_comm_load_plans(job.comms[0], folder, NULL), COPSE_IO, "b.plan");
  rmdir(in_folder("b.plan"));
  ck_assert_int_eq(mkfifo(in_folder("b.plan"), 0600), 0); /* not waited for */
  COMM_FAILS(copse_comm_load_plans(job.comms[0], folder, NULL), COPSE_IO, "b.plan");
  unlink(in_folder("b.plan"));
  COMM_OK(copse_comm_load_plans(job.comms[0], folder, NULL));
  assert_works(&job);
  comm_job_free(&job);
  end_folder();
}
END_TEST

START_TEST(the_environment_names_the_folder) {
  struct comm_job job;
  int n;
  new_folder();
  comm_job_new(&job, N, false);
  unsetenv("COPSE_PLAN_DIR");
  COMM_FAILS(copse_comm_load_plans(job.comms[0], NULL, &n), COPSE_INVALID, "COPSE_PLAN_DIR");
  setenv("COPSE_PLAN_DIR", in_folder("nowhere"), 1);
  COMM_FAILS(copse_comm_load_plans(job.comms[0], NULL, &n), COPSE_IO, "nowhere");
  setenv("COPSE_PLAN_DIR", folder, 1);
  COMM_OK(copse_comm_load_plans(job.comms[0], NULL, &n)); /* none there, and none is no error */
  ck_assert_int_eq(n, 0);
  write_plan("a.plan", plan_for(COPSE_ALLREDUCE, -1, 0, 1000));
  COMM_OK(copse_comm_load_plans(job.comms[0], NULL, &n));
  ck_assert_int_eq(n, 1);
  COMM_FAILS(copse_comm_load_plans(NULL, NULL, &n), COPSE_INVALID, "comm");
  comm_job_free(&job);
  end_folder();
}
END_TEST

/* ---- ends -------------------------------------------------------------------------------------
 */

START_TEST(an_abort_breaks_all_ranks_until_they_are_destroyed) {
  struct comm_job job;
  copse_status async = COPSE_INTERNAL;
  void *handle;
  comm_job_new(&job, N, true);
  COMM_OK(copse_comm_get_async_error(job.comms[0], &async));
  ck_assert_int_eq(async, COPSE_OK);
  COMM_OK(copse_comm_abort(job.comms[2]));
  COMM_FAILS(sum(job.comms[0], 0, 1), COPSE_ABORTED, "called on rank 2");
  COMM_OK(copse_comm_get_async_error(job.comms[3], &async));
  ck_assert_int_eq(async, COPSE_ABORTED);
  ck_assert_ptr_nonnull(strstr(copse_last_error(), "called on rank 2"));
  COMM_FAILS(copse_comm_add_plan(job.comms[0], job.plans[0]), COPSE_ABORTED, "rank 2");
  COMM_FAILS(copse_comm_register(job.comms[0], in, 4, &handle), COPSE_ABORTED, "rank 2");
  COMM_OK(copse_comm_abort(job.comms[0])); /* the first reason stays */
  COMM_FAILS(sum(job.comms[1], 1, 1), COPSE_ABORTED, "called on rank 2");
  comm_job_free(&job);
}
END_TEST

START_TEST(handles_go_in_any_order) {
  static const int orders[3][N] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
  for (int broken = 0; broken < 2; broken++)
    for (int o = 0; o < 3; o++) {
      struct comm_job job;
      comm_job_new(&job, N, true);
      assert_works(&job);
      if (broken) COMM_OK(copse_comm_abort(job.comms[1]));
      for (int i = 0; i < N; i++) {
        int r = orders[o][i];
        COMM_OK(copse_comm_destroy(job.comms[r]));
        job.comms[r] = NULL;
        if (i == N - 1) break;
        copse_comm *left = job.comms[orders[o][N - 1]];
        if (broken)
          COMM_FAILS(sum(left, 0, 1), COPSE_ABORTED, "rank 1");
        else
          COMM_FAILS(sum(left, 0, 1), COPSE_INVALID, "has destroyed its communicator");
      }
      comm_job_free(&job);
    }
}
END_TEST

START_TEST(an_open_group_keeps_its_communicators) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  start_sums(&job, 1);
  COMM_FAILS(copse_comm_destroy(job.comms[1]), COPSE_INVALID, "group that is still open");
  COMM_OK(copse_group_end());
  ck_assert(out[1][0] == 10);
  comm_job_free(&job);
}
END_TEST

START_TEST(registered_buffers_are_handed_back_once) {
  struct comm_job job;
  void *a, *b, *nothing = in;
  comm_job_new(&job, N, true);
  COMM_OK(copse_comm_register(job.comms[0], in, sizeof in, &a));
  COMM_OK(copse_comm_register(job.comms[1], in, sizeof in, &b));
  COMM_FAILS(copse_comm_register(job.comms[0], NULL, 4, &nothing), COPSE_INVALID, "buffer is NULL");
  ck_assert_ptr_null(nothing);
  COMM_FAILS(copse_comm_register(job.comms[0], in, 0, &nothing), COPSE_INVALID, "no buffer");
  COMM_FAILS(copse_comm_register(job.comms[0], in, SIZE_MAX, &nothing), COPSE_INVALID, "no buffer");
  COMM_FAILS(copse_comm_deregister(job.comms[1], a), COPSE_INVALID, "rank 1");
  assert_works(&job);
  COMM_OK(copse_comm_deregister(job.comms[0], a));
  COMM_FAILS(copse_comm_deregister(job.comms[0], in), COPSE_INVALID, "handle");
  COMM_FAILS(copse_comm_deregister(job.comms[0], NULL), COPSE_INVALID, "handle");
  comm_job_free(&job); /* b is left to the destruction */
}
END_TEST

START_TEST(time_limits_must_be_positive) {
  struct comm_job job;
  comm_job_new(&job, N, true);
  COMM_FAILS(copse_comm_set_timeout(job.comms[0], 0), COPSE_INVALID, "positive");
  COMM_FAILS(copse_comm_set_timeout(job.comms[0], -1), COPSE_INVALID, "positive");
  COMM_FAILS(copse_comm_set_timeout(job.comms[0], NAN), COPSE_INVALID, "positive");
  COMM_FAILS(copse_comm_set_timeout(NULL, 1), COPSE_INVALID, "comm");
  COMM_OK(copse_comm_set_timeout(job.comms[0], 1e300));
  assert_works(&job);
  comm_job_free(&job);
}
END_TEST

/* ---- diagnostics ------------------------------------------------------------------------------
 */

/* What a job says on standard error with COPSE_DEBUG=level (NULL: unset). */
static void say(const char *level, char *text, size_t size) {
  struct comm_job job;
  int pipes[2], kept = dup(STDERR_FILENO);
  if (level)
    setenv("COPSE_DEBUG", level, 1);
  else
    unsetenv("COPSE_DEBUG");
  ck_assert_int_eq(pipe(pipes), 0);
  ck_assert_int_ge(dup2(pipes[1], STDERR_FILENO), 0);
  close(pipes[1]);
  comm_job_new(&job, N, true);
  assert_works(&job);
  (void)!sum(NULL, 0, 1);
  comm_job_free(&job);
  dup2(kept, STDERR_FILENO);
  close(kept);
  ssize_t n = read(pipes[0], text, size - 1);
  text[n > 0 ? n : 0] = '\0';
  close(pipes[0]);
}

START_TEST(diagnostics_are_as_loud_as_asked) {
  static const char *const levels[] = {NULL, "WARN", "info", "TRACE", "loud"};
  char text[16384];
  say(levels[_i], text, sizeof text); /* each in a process of its own: it is read once */
  bool warns = _i > 0, informs = _i == 2 || _i == 3, traces = _i == 3;
  if (!warns) ck_assert_str_eq(text, "");
  ck_assert(!strstr(text, "COPSE WARN invalid argument: comm is NULL\n") == !warns);
  ck_assert(!strstr(text, " [0] COPSE INFO communicator") == !informs);
  ck_assert(
      !strstr(text, "COPSE TRACE all_reduce of 1 float sum, 4 bytes over 4 ranks: plan 3 of 6") ==
      !traces);
  ck_assert(!strstr(text, "COPSE_DEBUG is none of") == (_i != 4));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/comm");
  TCase *tc = tcase_create("all");
  tcase_add_loop_test(tc, every_collective_is_right_from_a_group, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, uneven_blocks_move_their_counts_and_nothing_else);
  tcase_add_test(tc, calls_of_a_group_run_in_order_over_communicators);
  tcase_add_test(tc, a_handle_knows_its_place);
  tcase_add_test(tc, wrong_arguments_are_refused_by_name);
  tcase_add_test(tc, making_a_communicator_checks_its_arguments);
  tcase_add_test(tc, what_this_build_lacks_is_said_in_one_line);
  tcase_add_test(tc, nothing_to_send_needs_no_plan_and_no_peer);
  tcase_add_test(tc, calls_that_differ_are_refused_and_leave_the_communicator_usable);
  tcase_add_test(tc, uneven_counts_must_be_the_same_and_fit);
  tcase_add_test(tc, a_refused_call_keeps_its_group_from_starting);
  tcase_add_test(tc, a_call_without_a_plan_is_refused_before_its_peers_call);
  tcase_add_test(tc, a_group_reports_its_first_error_and_runs_the_rest);
  tcase_add_test(tc, the_narrowest_range_that_holds_the_message_wins);
  tcase_add_test(tc, a_plan_serves_its_root_only);
  tcase_add_test(tc, packets_do_not_serve_uneven_blocks);
  tcase_add_test(tc, plans_that_can_serve_no_call_are_refused);
  tcase_add_test(tc, a_folder_is_loaded_in_order_of_name_for_these_ranks);
  tcase_add_test(tc, a_damaged_file_adds_nothing);
  tcase_add_test(tc, the_environment_names_the_folder);
  tcase_add_test(tc, an_abort_breaks_all_ranks_until_they_are_destroyed);
  tcase_add_test(tc, handles_go_in_any_order);
  tcase_add_test(tc, an_open_group_keeps_its_communicators);
  tcase_add_test(tc, registered_buffers_are_handed_back_once);
  tcase_add_test(tc, time_limits_must_be_positive);
  tcase_add_loop_test(tc, diagnostics_are_as_loud_as_asked, 0, 5);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
