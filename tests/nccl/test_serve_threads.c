/*
 * The drop-in over a fake NCCL and copse's communicators on the CPU, a thread per rank: which calls
 * are served and which are passed, results, groups, errors, and the log.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_support.h"
#include "dropin/comms.h"

#define COUNT 100

/* Of the agreement when a communicator is made. */
#define OWN_ALL_GATHERS 2

static int served(const char *name) {
  char part[64];
  snprintf(part, sizeof part, "NCCL %s: served by the plan for hand-built", name);
  return nccl_logged(part, "");
}

static int passed(const char *name, const char *reason) {
  char part[64];
  snprintf(part, sizeof part, "NCCL %s: passed", name);
  return nccl_logged(part, reason);
}

/* ---- every collective, checked against its definition ---------------------------------------- */

static float value(int rank, size_t i) { return (float)(rank * 1000 + (int)(i % 977)); }

static float sum_at(size_t i) {
  float sum = 0;
  for (int r = 0; r < N; r++) sum += value(r, i);
  return sum;
}

struct buffers {
  float in[N * COUNT], out[N * COUNT];
};

static void fill(struct buffers *b, int rank) {
  for (size_t i = 0; i < N * COUNT; i++) {
    b->in[i] = value(rank, i);
    b->out[i] = -1;
  }
}

enum {
  ALL_REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  BROADCAST,
  BCAST,
  REDUCE,
  ALL_TO_ALL,
  EXCHANGE,
  N_CALLS
};

static ncclResult_t exchange(struct nccl_rank *it, struct buffers *b) {
  ncclResult_t result = ncclGroupStart();
  for (int peer = 0; peer < N && result == ncclSuccess; peer++) {
    result = ncclSend(b->in + peer * COUNT, COUNT, NCCL_FLOAT, peer, it->comm, NULL);
    if (result == ncclSuccess)
      result = ncclRecv(b->out + peer * COUNT, COUNT, NCCL_FLOAT, peer, it->comm, NULL);
  }
  return result == ncclSuccess ? ncclGroupEnd() : result;
}

static ncclResult_t call(int what, struct nccl_rank *it, struct buffers *b) {
  ncclComm_t comm = it->comm;
  switch (what) {
    case ALL_REDUCE: return ncclAllReduce(b->in, b->out, COUNT, NCCL_FLOAT, NCCL_SUM, comm, NULL);
    case ALL_GATHER: return ncclAllGather(b->in, b->out, COUNT, NCCL_FLOAT, comm, NULL);
    case REDUCE_SCATTER:
      return ncclReduceScatter(b->in, b->out, COUNT, NCCL_FLOAT, NCCL_SUM, comm, NULL);
    case BROADCAST: return ncclBroadcast(b->in, b->out, COUNT, NCCL_FLOAT, 0, comm, NULL);
    case BCAST:
      memcpy(b->out, b->in, sizeof b->out);
      return ncclBcast(b->out, COUNT, NCCL_FLOAT, 0, comm, NULL);
    case REDUCE: return ncclReduce(b->in, b->out, COUNT, NCCL_FLOAT, NCCL_SUM, 0, comm, NULL);
    case ALL_TO_ALL: return ncclAlltoAll(b->in, b->out, COUNT, NCCL_FLOAT, comm, NULL);
    default: return exchange(it, b);
  }
}

static float expected(int what, int rank, size_t i) {
  int block = (int)(i / COUNT);
  switch (what) {
    case ALL_REDUCE: return block == 0 ? sum_at(i) : -1;
    case ALL_GATHER: return value(block, i % COUNT);
    case REDUCE_SCATTER: return block == 0 ? sum_at((size_t)rank * COUNT + i) : -1;
    case BROADCAST: return block == 0 ? value(0, i) : -1;
    case BCAST: return value(block == 0 ? 0 : rank, i);
    case REDUCE: return block == 0 && rank == 0 ? sum_at(i) : -1;
    default: return value(block, (size_t)rank * COUNT + i % COUNT);
  }
}

static void check(int what, int rank, const struct buffers *b) {
  for (size_t i = 0; i < N * COUNT; i++) {
    /* what a reduce leaves elsewhere than at the root is anybody's */
    if (what == REDUCE && rank != 0) return;
    ck_assert_msg(b->out[i] == expected(what, rank, i), "call %d, rank %d, element %zu: %g", what,
                  rank, i, (double)b->out[i]);
  }
}

static void call_and_check(int what, struct nccl_rank *it) {
  struct buffers *b = malloc(sizeof *b);
  fill(b, it->rank);
  NCCL_OK(call(what, it, b));
  check(what, it->rank, b);
  free(b);
}

static void work_once(struct nccl_rank *it) { call_and_check(*(int *)it->context, it); }

static const struct {
  const char *function, *kind;
} names[N_CALLS] = {
    {"AllReduce", "AllReduce"}, {"AllGather", "AllGather"}, {"ReduceScatter", "ReduceScatter"},
    {"Broadcast", "Broadcast"}, {"Bcast", "Broadcast"},     {"Reduce", "Reduce"},
    {"AlltoAll", "AlltoAll"},   {"Send", "AlltoAll"},
};

static int calls_of_real(int what) {
  return fake_nccl_calls(names[what].function) - (what == ALL_GATHER ? N * OWN_ALL_GATHERS : 0);
}

START_TEST(each_collective_is_served_with_a_plan) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, work_once, &_i);
  ck_assert_int_eq(calls_of_real(_i), 0);
  ck_assert_int_eq(served(names[_i].kind), N);
  ck_assert_int_eq(nccl_logged("1 served, 0 passed in all", names[_i].kind), N);
}
END_TEST

/* ncclBcast of the real NCCL calls ncclBroadcast, which is the drop-in's: it must not be served or
 * counted a second time. */
START_TEST(each_collective_is_passed_without) {
  setenv("COPSE_PLAN_DIR", "/", 1);
  nccl_run(N, work_once, &_i);
  int calls = fake_nccl_calls(names[_i].function) - (_i == ALL_GATHER ? N : 0);
  ck_assert_int_eq(calls, _i == EXCHANGE ? N * N : N);
  const char *kind = _i == EXCHANGE ? "Send/Recv" : names[_i].kind;
  ck_assert_int_eq(passed(kind, "COPSE_PLAN_DIR has no plan for 4 ranks"), N);
  if (_i != EXCHANGE) ck_assert_int_eq(nccl_logged("0 served, 1 passed in all", kind), N);
}
END_TEST

static void profile(struct nccl_rank *it) {
  float x = 1;
  NCCL_OK(pncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL));
  ck_assert(x == N);
}

START_TEST(profiling_names_mean_the_real_nccl) {
  nccl_run(N, profile, NULL);
  ck_assert_int_eq(fake_nccl_calls("pncclAllReduce"), N);
}
END_TEST

/* ---- what is passed although there are plans --------------------------------------------------
 */

static void sum_passed(struct nccl_rank *it, size_t count, ncclRedOp_t op, const char *reason) {
  float *in = calloc(count + 1, sizeof *in), *out = calloc(count + 1, sizeof *out);
  for (size_t i = 0; i < count; i++) in[i] = value(it->rank, i);
  NCCL_OK(ncclAllReduce(in, out, count, NCCL_FLOAT, op, it->comm, NULL));
  for (size_t i = 0; i < count; i++) ck_assert(out[i] == sum_at(i));
  ck_assert_int_ge(passed("AllReduce", reason), 1);
  free(in);
  free(out);
}

static void other_redop(struct nccl_rank *it) {
  ncclRedOp_t op;
  float two = 2;
  NCCL_OK(ncclRedOpCreatePreMulSum(&op, &two, NCCL_FLOAT, 1, it->comm));
  sum_passed(it, COUNT, op, "ncclRedOpCreatePreMulSum");
}
static void too_large(struct nccl_rank *it) { sum_passed(it, 300000, NCCL_SUM, "no plan"); }
static void empty(struct nccl_rank *it) { sum_passed(it, 0, NCCL_SUM, "no elements"); }
static void other_root(struct nccl_rank *it) {
  float x = (float)it->rank;
  NCCL_OK(ncclBroadcast(&x, &x, 1, NCCL_FLOAT, 2, it->comm, NULL));
  ck_assert(x == 2);
  ck_assert_int_ge(passed("Broadcast", "no plan for this size (and root)"), 1);
}
static void in_place(struct nccl_rank *it) {
  float x[N] = {0};
  NCCL_OK(ncclAlltoAll(x, x, 1, NCCL_FLOAT, it->comm, NULL));
  ck_assert_int_ge(passed("AlltoAll", "in place"), 1);
}
static void other_type(struct nccl_rank *it) {
  fake_nccl_fail("AllReduce"); /* as NCCL does with such a type */
  ck_assert_int_eq(ncclAllReduce(NULL, NULL, 1, 99, NCCL_SUM, it->comm, NULL), ncclInternalError);
  ck_assert_int_ge(passed("AllReduce", "an unknown type"), 1);
}
static void lonely_send(struct nccl_rank *it) {
  int x = it->rank, y = -1;
  if (it->rank == 0) NCCL_OK(ncclSend(&x, 1, NCCL_INT32, 1, it->comm, NULL));
  if (it->rank == 1) NCCL_OK(ncclRecv(&y, 1, NCCL_INT32, 0, it->comm, NULL));
  if (it->rank == 1) ck_assert_int_eq(y, 0);
  if (it->rank < 2) ck_assert_int_ge(passed("Send/Recv", "not in a group"), 1);
}

static void (*const passes[])(struct nccl_rank *) = {
    other_redop, too_large, empty, other_root, in_place, other_type, lonely_send};

START_TEST(what_copse_does_not_do_is_passed) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, passes[_i], NULL);
}
END_TEST

/* ---- sends and receives -----------------------------------------------------------------------
 */

/* Rank r sends r + p + 1 elements to rank p. */
static void uneven(struct nccl_rank *it) {
  int in[N][16], out[N][16];
  NCCL_OK(ncclGroupStart());
  for (int p = 0; p < N; p++) {
    for (int i = 0; i < 16; i++) in[p][i] = 100 * it->rank + 10 * p + i;
    NCCL_OK(ncclSend(in[p], (size_t)(it->rank + p + 1), NCCL_INT32, p, it->comm, NULL));
    NCCL_OK(ncclRecv(out[p], (size_t)(it->rank + p + 1), NCCL_INT32, p, it->comm, NULL));
  }
  NCCL_OK(ncclGroupEnd());
  for (int p = 0; p < N; p++)
    for (int i = 0; i < it->rank + p + 1; i++)
      ck_assert_int_eq(out[p][i], 100 * p + 10 * it->rank + i);
}

START_TEST(an_uneven_exchange_is_passed) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, uneven, NULL);
  ck_assert_int_eq(fake_nccl_calls("Send"), N * N);
  ck_assert_int_eq(fake_nccl_calls("Recv"), N * N);
  ck_assert_int_eq(passed("Send/Recv", "the group is no all-to-all"), N);
}
END_TEST

START_TEST(an_exchange_is_passed_unless_promised) {
  int what = EXCHANGE;
  nccl_run(N, work_once, &what);
  ck_assert_int_eq(fake_nccl_calls("Send"), N * N);
  ck_assert_int_eq(passed("Send/Recv", "COPSE_NCCL_ALLTOALL=1 is not set"), N);
}
END_TEST

/* Two exchanges in one group, as nccl-tests' aggregated iterations. */
static void twice(struct nccl_rank *it) {
  struct buffers *b = malloc(2 * sizeof *b);
  NCCL_OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    fill(&b[i], it->rank);
    NCCL_OK(exchange(it, &b[i]));
  }
  NCCL_OK(ncclGroupEnd());
  for (int i = 0; i < 2; i++) check(EXCHANGE, it->rank, &b[i]);
  free(b);
}

START_TEST(two_exchanges_of_a_group_are_both_served) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, twice, NULL);
  ck_assert_int_eq(fake_nccl_calls("Send"), 0);
  ck_assert_int_eq(nccl_logged("2 served, 0 passed in all", "AlltoAll"), N);
}
END_TEST

static void large_exchange(struct nccl_rank *it) {
  size_t count = 100000;
  int *in = malloc(N * count * sizeof *in), *out = malloc(N * count * sizeof *out);
  for (size_t i = 0; i < N * count; i++) in[i] = it->rank * N + (int)(i / count);
  NCCL_OK(ncclGroupStart());
  for (int p = 0; p < N; p++) {
    NCCL_OK(ncclSend(in + (size_t)p * count, count, NCCL_INT32, p, it->comm, NULL));
    NCCL_OK(ncclRecv(out + (size_t)p * count, count, NCCL_INT32, p, it->comm, NULL));
  }
  NCCL_OK(ncclGroupEnd());
  for (size_t i = 0; i < N * count; i++) ck_assert_int_eq(out[i], (int)(i / count) * N + it->rank);
  free(in);
  free(out);
}

START_TEST(an_exchange_without_a_plan_is_passed) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, large_exchange, NULL);
  ck_assert_int_eq(fake_nccl_calls("Send"), N * N);
  ck_assert_int_eq(passed("Send/Recv", "no plan"), N);
}
END_TEST

/* Two communicators in one group: an exchange on the first, a ring on the second. */
static void two_comms(struct nccl_rank *it) {
  ncclComm_t other;
  struct buffers *b = malloc(sizeof *b);
  int to = (it->rank + 1) % N, from = (it->rank + N - 1) % N, got = -1;
  fill(b, it->rank);
  NCCL_OK(ncclCommSplit(it->comm, 0, it->rank, &other, NULL));
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclSend(&it->rank, 1, NCCL_INT32, to, other, NULL));
  NCCL_OK(exchange(it, b));
  NCCL_OK(ncclRecv(&got, 1, NCCL_INT32, from, other, NULL));
  ck_assert(b->out[0] == -1); /* nothing before the outermost end */
  NCCL_OK(ncclGroupEnd());
  check(EXCHANGE, it->rank, b);
  ck_assert_int_eq(got, from);
  NCCL_OK(ncclCommDestroy(other));
  free(b);
}

START_TEST(communicators_of_a_group_are_told_apart) {
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  nccl_run(N, two_comms, NULL);
  ck_assert_int_eq(fake_nccl_calls("Send"), N);
  ck_assert_int_eq(served("AlltoAll"), N);
}
END_TEST

/* ---- groups -----------------------------------------------------------------------------------
 */

/* Served and passed calls on the same communicator, nested. */
static void mixed_group(struct nccl_rank *it) {
  struct buffers *a = malloc(sizeof *a), *b = malloc(sizeof *b), *c = malloc(sizeof *c);
  float big = 1, root2 = (float)it->rank;
  fill(a, it->rank);
  fill(b, it->rank);
  fill(c, it->rank);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(call(ALL_REDUCE, it, a));
  NCCL_OK(ncclBroadcast(&root2, &root2, 1, NCCL_FLOAT, 2, it->comm, NULL)); /* passed */
  NCCL_OK(ncclGroupStart());
  NCCL_OK(call(ALL_TO_ALL, it, b));
  NCCL_OK(ncclGroupEnd());
  NCCL_OK(call(REDUCE_SCATTER, it, c));
  ck_assert(a->out[0] == -1 && b->out[0] == -1 && c->out[0] == -1);
  NCCL_OK(ncclGroupEnd());
  check(ALL_REDUCE, it->rank, a);
  check(ALL_TO_ALL, it->rank, b);
  check(REDUCE_SCATTER, it->rank, c);
  ck_assert(root2 == 2 && big == 1);
  free(a);
  free(b);
  free(c);
}

START_TEST(groups_mix_and_nest) {
  nccl_run(N, mixed_group, NULL);
  ck_assert_int_eq(fake_nccl_calls("Broadcast"), N);
  ck_assert_int_eq(fake_nccl_calls("AllReduce") + fake_nccl_calls("AlltoAll"), 0);
}
END_TEST

/* As nccl-tests does with several GPUs in one thread. */
static void one_thread_all_ranks(ncclComm_t *comms) {
  struct buffers *b = malloc(N * sizeof *b);
  for (int turn = 0; turn < 3; turn++) {
    NCCL_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
      struct nccl_rank it = {r, N, comms[r], NULL};
      fill(&b[r], r);
      NCCL_OK(call(turn == 2 ? EXCHANGE : turn, &it, &b[r]));
    }
    NCCL_OK(ncclGroupEnd());
    for (int r = 0; r < N; r++) check(turn == 2 ? EXCHANGE : turn, r, &b[r]);
  }
  for (int r = 0; r < N; r++) NCCL_OK(ncclCommDestroy(comms[r]));
  free(b);
  ck_assert_int_eq(served("AllReduce"), N);
  ck_assert_int_eq(served("AllGather"), N);
  ck_assert_int_eq(served("AlltoAll"), N);
}

START_TEST(one_thread_may_be_all_ranks_by_init_all) {
  ncclComm_t comms[N];
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  NCCL_OK(ncclCommInitAll(comms, N, NULL));
  one_thread_all_ranks(comms);
}
END_TEST

START_TEST(one_thread_may_be_all_ranks_by_a_group) {
  ncclComm_t comms[N];
  ncclUniqueId id;
  setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  NCCL_OK(ncclGetUniqueId(&id));
  NCCL_OK(ncclGroupStart());
  for (int r = 0; r < N; r++) NCCL_OK(ncclCommInitRank(&comms[r], N, id, r));
  NCCL_OK(ncclGroupEnd());
  one_thread_all_ranks(comms);
}
END_TEST

/* NCCL's part of a group fails: copse's part is not started. */
START_TEST(a_failed_group_runs_nothing) {
  ncclComm_t comms[N];
  float in[N] = {1, 2, 3, 4}, out[N] = {0};
  NCCL_OK(ncclCommInitAll(comms, N, NULL));
  NCCL_OK(ncclGroupStart());
  for (int r = 0; r < N; r++)
    NCCL_OK(ncclAllReduce(&in[r], &out[r], 1, NCCL_FLOAT, NCCL_SUM, comms[r], NULL));
  fake_nccl_fail("GroupEnd");
  ck_assert_int_eq(ncclGroupEnd(), ncclInternalError);
  fake_nccl_fail(NULL);
  for (int r = 0; r < N; r++) ck_assert(out[r] == 0);
  /* and the next one is a new group */
  NCCL_OK(ncclGroupStart());
  for (int r = 0; r < N; r++)
    NCCL_OK(ncclAllReduce(&in[r], &out[r], 1, NCCL_FLOAT, NCCL_SUM, comms[r], NULL));
  NCCL_OK(ncclGroupEnd());
  for (int r = 0; r < N; r++) ck_assert(out[r] == 10);
  for (int r = 0; r < N; r++) NCCL_OK(ncclCommDestroy(comms[r]));
}
END_TEST

START_TEST(a_simulated_group_runs_nothing) {
  ncclComm_t comms[N];
  float in = 1, out = 0;
  NCCL_OK(ncclCommInitAll(comms, N, NULL));
  NCCL_OK(ncclGroupStart());
  for (int r = 0; r < N; r++)
    NCCL_OK(ncclAllReduce(&in, &out, 1, NCCL_FLOAT, NCCL_SUM, comms[r], NULL));
  NCCL_OK(ncclGroupSimulateEnd(NULL));
  ck_assert(out == 0);
  ck_assert_int_eq(ncclGroupEnd(), ncclInvalidUsage); /* it is over */
  for (int r = 0; r < N; r++) NCCL_OK(ncclCommDestroy(comms[r]));
}
END_TEST

/* ---- communicators ------------------------------------------------------------------------------
 */

/* Ranks 0 and 2 get one of two ranks, served by the plan for 2; rank 1 none; rank 3 one alone. */
static void split(struct nccl_rank *it) {
  static const int colors[N] = {7, -1, 7, 3};
  ncclComm_t child = it->comm;
  float x = (float)it->rank + 1;
  NCCL_OK(ncclCommSplit(it->comm, colors[it->rank], 0, &child, NULL));
  ck_assert_int_eq(child == NULL, it->rank == 1);
  if (!child) return;
  NCCL_OK(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, child, NULL));
  ck_assert(x == 4); /* 1 + 3, or 4 */
  NCCL_OK(ncclCommDestroy(child));
}

START_TEST(a_split_is_a_communicator_of_its_own) {
  nccl_run(N, split, NULL);
  ck_assert_int_eq(served("AllReduce"), 2);
  ck_assert_int_eq(passed("AllReduce", "one rank"), 1);
  ck_assert_int_eq(fake_nccl_calls("AllReduce"), 1);
}
END_TEST

/* Ranks 1 and 2 go: first 2 of 4, then 1 of the three that stay. */
static void shrink(struct nccl_rank *it) {
  ncclComm_t three, two;
  int without = 2;
  float x = 1;
  if (it->rank == 2) return;
  NCCL_OK(ncclCommShrink(it->comm, &without, 1, &three, NULL, 0));
  if (it->rank != 1) {
    without = 1;
    NCCL_OK(ncclCommShrink(three, &without, 1, &two, NULL, COPSE_NCCL_SHRINK_ABORT));
    NCCL_OK(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, two, NULL));
    ck_assert(x == 2);
    NCCL_OK(ncclCommDestroy(two));
  }
  NCCL_OK(ncclCommDestroy(three));
}

START_TEST(a_shrunk_communicator_is_served_anew) {
  nccl_run(N, shrink, NULL);
  ck_assert_int_eq(served("AllReduce"), 2);
}
END_TEST

static void non_blocking(struct nccl_rank *it) {
  ncclConfig_t config = {.size = sizeof config, .blocking = 0};
  float x = 1;
  ck_assert_int_eq(
      ncclCommInitRankConfig(&it->comm, N, *(ncclUniqueId *)it->context, it->rank, &config),
      ncclInProgress);
  NCCL_OK(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL));
  ck_assert(x == N);
}

START_TEST(a_non_blocking_communicator_is_left_alone) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  nccl_run_bare(N, non_blocking, &id);
  ck_assert_int_eq(fake_nccl_calls("AllGather"), 0);
  ck_assert_int_eq(passed("AllReduce", "non-blocking"), N);
}
END_TEST

/* The environment overrules; NCCL may well be done when the call returns. */
static void blocking_by_default(struct nccl_rank *it) {
  float x = 1;
  NCCL_OK(ncclCommInitRank(&it->comm, N, *(ncclUniqueId *)it->context, it->rank));
  NCCL_OK(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL));
  ck_assert(x == N);
}

START_TEST(the_environment_makes_communicators_non_blocking) {
  static const char *const values[] = {"0", "1", "", "-1", "yes"};
  int n_passed = 0;
  for (int i = 0; i < 5; i++) {
    ncclUniqueId id;
    setenv("NCCL_COMM_BLOCKING", values[i], 1);
    NCCL_OK(ncclGetUniqueId(&id));
    nccl_run_bare(N, blocking_by_default, &id);
    n_passed += i == 0 ? N : 0;
    ck_assert_msg(passed("AllReduce", "non-blocking") == n_passed, "NCCL_COMM_BLOCKING=%s",
                  values[i]);
  }
}
END_TEST

/* Two in a group, one of them non-blocking: NCCL finishes neither before the group returns. */
static void half_blocking(struct nccl_rank *it) {
  const ncclUniqueId *ids = it->context;
  ncclConfig_t config = {.size = sizeof config, .blocking = 0};
  ncclComm_t other;
  float x = 1;
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclCommInitRank(&it->comm, N, ids[0], it->rank));
  ck_assert_int_eq(ncclCommInitRankConfig(&other, N, ids[1], it->rank, &config), ncclInProgress);
  ck_assert_int_eq(ncclGroupEnd(), ncclInProgress);
  NCCL_OK(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL));
  ck_assert(x == N);
  NCCL_OK(ncclCommDestroy(other));
}

START_TEST(a_group_with_a_non_blocking_communicator_is_left_alone) {
  ncclUniqueId ids[2];
  NCCL_OK(ncclGetUniqueId(&ids[0]));
  NCCL_OK(ncclGetUniqueId(&ids[1]));
  nccl_run_bare(N, half_blocking, ids);
  ck_assert_int_eq(fake_nccl_calls("AllGather"), 0);
  ck_assert_int_eq(passed("AllReduce", "non-blocking"), N);
}
END_TEST

static void with_config(struct nccl_rank *it) {
  ncclConfig_t config = {.size = sizeof config, .blocking = 1};
  NCCL_OK(ncclCommInitRankConfig(&it->comm, N, *(ncclUniqueId *)it->context, it->rank,
                                 it->rank % 2 ? &config : NULL));
  call_and_check(ALL_REDUCE, it);
  NCCL_OK(ncclCommFinalize(it->comm));
}

START_TEST(a_config_and_a_finalize_change_nothing) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  nccl_run_bare(N, with_config, &id);
  ck_assert_int_eq(served("AllReduce"), N);
  ck_assert_int_eq(nccl_logged("1 served, 0 passed in all", "AllReduce"), N); /* once */
}
END_TEST

/* Communicators made, used and ended at the same time by many threads. */
static void churn(struct nccl_rank *it) {
  for (int turn = 0; turn < 5; turn++) {
    ncclComm_t child;
    NCCL_OK(ncclCommSplit(it->comm, turn % 2 ? it->rank % 2 : 0, 0, &child, NULL));
    struct nccl_rank in_child = {it->rank, N, child, NULL};
    if (turn % 2 == 0) call_and_check(turn % ALL_TO_ALL, &in_child);
    NCCL_OK(ncclCommDestroy(child));
  }
}

START_TEST(communicators_come_and_go) { nccl_run(N, churn, NULL); }
END_TEST

/* ---- the driver
 * ---------------------------------------------------------------------------------- */

static void *of_driver(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  ck_assert_ptr_nonnull(driver);
  void *function = dlsym(driver, name);
  ck_assert_ptr_nonnull(function);
  return function;
}

START_TEST(the_memory_of_the_agreement_is_given_back) {
  int what = ALL_REDUCE;
  nccl_run(N, work_once, &what);
  int (*allocated)(void) = (int (*)(void))of_driver("fake_driver_allocated");
  ck_assert_int_eq(allocated(), 0);
}
END_TEST

static void make_in_vain(struct nccl_rank *it) {
  ncclComm_t comm = NULL;
  ck_assert_int_eq(ncclCommInitRank(&comm, it->n, *(const ncclUniqueId *)it->context, it->rank),
                   ncclSystemError);
  ck_assert_ptr_null(comm);
}

/* A rank that can't even take part in the agreement must not go on alone: it can't know what the
 * others conclude. */
START_TEST(without_memory_for_the_agreement_no_communicator_is_made) {
  void (*run_out)(bool) = (void (*)(bool))of_driver("fake_driver_run_out_of_memory");
  void (*fill_host)(bool) = (void (*)(bool))of_driver("fake_driver_fill_host");
  int (*allocated)(void) = (int (*)(void))of_driver("fake_driver_allocated");
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  run_out(true);
  fill_host(true);
  nccl_run_bare(N, make_in_vain, &id);
  ck_assert_int_eq(nccl_logged("given up", "cuMemAlloc_v2: out of memory"), N);
  ck_assert_int_eq(fake_nccl_calls("CommAbort"), N);
  ck_assert_int_eq(allocated(), 0);
}
END_TEST

/* Where the device is full the host's memory does. */
START_TEST(the_agreement_needs_no_memory_of_the_device) {
  void (*run_out)(bool) = (void (*)(bool))of_driver("fake_driver_run_out_of_memory");
  int (*allocated)(void) = (int (*)(void))of_driver("fake_driver_allocated");
  int what = ALL_REDUCE;
  run_out(true);
  nccl_run(N, work_once, &what);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: served by", ""), N);
  ck_assert_int_eq(allocated(), 0);
}
END_TEST

/* ---- what breaks ---------------------------------------------------------------------------- */

/* Rank 0 alone calls; the others wait until it has got its error. */
static void late(struct nccl_rank *it) {
  pthread_barrier_t *barrier = it->context;
  float x = 1;
  if (it->rank == 0) {
    ncclResult_t async = ncclSuccess;
    ck_assert_int_eq(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL),
                     ncclRemoteError);
    ck_assert_ptr_nonnull(strstr(ncclGetLastError(it->comm), "copse: "));
    ck_assert_ptr_nonnull(strstr(ncclGetLastError(it->comm), "the fake's last error"));
    NCCL_OK(ncclCommGetAsyncError(it->comm, &async));
    ck_assert_int_eq(async, ncclRemoteError);
  }
  pthread_barrier_wait(barrier);
}

START_TEST(a_peer_that_does_not_come_is_a_remote_error) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, N);
  ck_assert_str_eq(ncclGetLastError(NULL), "the fake's last error");
  setenv("COPSE_TIMEOUT", "0.1", 1); /* without it rank 0 would wait for ever */
  nccl_run(N, late, &barrier);
  pthread_barrier_destroy(&barrier);
}
END_TEST

START_TEST(a_limit_that_is_no_number_is_told) {
  static const char *const texts[] = {"10s", "-1", "0", "inf", "nan", "ten", "1e999"};
  int what = ALL_REDUCE;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char line[100];
    setenv("COPSE_TIMEOUT", texts[i], 1);
    nccl_run(N, work_once, &what);
    snprintf(line, sizeof line, "COPSE_TIMEOUT=%s is no number", texts[i]);
    ck_assert_int_eq(nccl_logged(line, "passed over"), N);
  }
  setenv("COPSE_TIMEOUT", "", 1);
  nccl_run(N, work_once, &what);
  ck_assert_int_eq(nccl_logged("COPSE_TIMEOUT= ", ""), 0);
}
END_TEST

/* Ranks 1 to 3 wait in a call; rank 0 aborts (or revokes), which ends it for all. */
static void abort_others(struct nccl_rank *it) {
  bool revoke = *(int *)it->context;
  float x = 1;
  if (it->rank == 0) {
    if (revoke)
      NCCL_OK(ncclCommRevoke(it->comm, 0));
    else
      NCCL_OK(ncclCommAbort(it->comm));
    if (!revoke) it->comm = NULL;
  } else {
    ck_assert_int_eq(ncclAllReduce(&x, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL),
                     ncclRemoteError);
  }
}

START_TEST(an_abort_ends_the_calls_of_others) {
  nccl_run(N, abort_others, &_i);
  ck_assert_int_eq(fake_nccl_calls(_i ? "CommRevoke" : "CommAbort"), 1);
}
END_TEST

static void abuse(struct nccl_rank *it) {
  float x = 1;
  if (it->rank == 0)
    ck_assert_int_eq(ncclAllReduce(NULL, &x, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL),
                     ncclInvalidArgument);
}

START_TEST(a_refused_argument_is_an_invalid_argument) { nccl_run(N, abuse, NULL); }
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("nccl/serve");
  TCase *tc = tcase_create("serve");
  tcase_add_checked_fixture(tc, nccl_setup, nccl_teardown);
  tcase_add_loop_test(tc, each_collective_is_served_with_a_plan, 0, N_CALLS);
  tcase_add_loop_test(tc, each_collective_is_passed_without, 0, N_CALLS);
  tcase_add_test(tc, profiling_names_mean_the_real_nccl);
  tcase_add_loop_test(tc, what_copse_does_not_do_is_passed, 0, 7);
  tcase_add_test(tc, an_uneven_exchange_is_passed);
  tcase_add_test(tc, an_exchange_is_passed_unless_promised);
  tcase_add_test(tc, two_exchanges_of_a_group_are_both_served);
  tcase_add_test(tc, an_exchange_without_a_plan_is_passed);
  tcase_add_test(tc, communicators_of_a_group_are_told_apart);
  tcase_add_test(tc, groups_mix_and_nest);
  tcase_add_test(tc, one_thread_may_be_all_ranks_by_init_all);
  tcase_add_test(tc, one_thread_may_be_all_ranks_by_a_group);
  tcase_add_test(tc, a_failed_group_runs_nothing);
  tcase_add_test(tc, a_simulated_group_runs_nothing);
  tcase_add_test(tc, a_split_is_a_communicator_of_its_own);
  tcase_add_test(tc, a_shrunk_communicator_is_served_anew);
  tcase_add_test(tc, a_non_blocking_communicator_is_left_alone);
  tcase_add_test(tc, the_environment_makes_communicators_non_blocking);
  tcase_add_test(tc, a_group_with_a_non_blocking_communicator_is_left_alone);
  tcase_add_test(tc, a_config_and_a_finalize_change_nothing);
  tcase_add_test(tc, communicators_come_and_go);
  tcase_add_test(tc, the_memory_of_the_agreement_is_given_back);
  tcase_add_test(tc, without_memory_for_the_agreement_no_communicator_is_made);
  tcase_add_test(tc, the_agreement_needs_no_memory_of_the_device);
  tcase_add_test(tc, a_peer_that_does_not_come_is_a_remote_error);
  tcase_add_test(tc, a_limit_that_is_no_number_is_told);
  tcase_add_loop_test(tc, an_abort_ends_the_calls_of_others, 0, 2);
  tcase_add_test(tc, a_refused_argument_is_an_invalid_argument);
  suite_add_tcase(suite, tc);
  return suite;
}

int main(void) { return copse_test_run(make_suite()); }
