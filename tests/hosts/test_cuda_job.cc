/*
 * The drop-in for NCCL over several hosts, end to end: a job calls NCCL's API, on emulated GPUs of
 * hosts that share nothing but a fake NCCL's messages; every element of every result is compared
 * with its definition, and which calls are served and which are passed is counted.
 */
#include <stdlib.h>
#include <unistd.h>

#include "emulation/emulation.h"
#include "hosts/job.h"

extern "C" {
#include "support/support.h"
int job_set_timeout(ncclComm_t nccl, double seconds);
int job_allocations(void);
void job_fail_allocations(int nth, int n); /* n from the nth on, 1: the next; 0: none, or all */
}

/* ---- elements: whole numbers, exact in every type ----------------------------------------------- */

enum { INT32 = 2, INT64 = 4, HALF = 6, FLOAT = 7, DOUBLE = 8, BFLOAT16 = 9 };
enum { SUM, PROD, MAX, MIN, AVG };

static size_t bytes_of(unsigned type) {
  return type == INT64 || type == DOUBLE ? 8 : type == INT32 || type == FLOAT ? 4 : 2;
}

static uint16_t half_of(int v) { /* 0 .. 2048 */
  int e = 0;
  if (v == 0) return 0;
  while (v >> (e + 1)) e++;
  return (uint16_t)((e + 15) << 10 | (v - (1 << e)) << (10 - e));
}

static void put(unsigned type, void *memory, size_t i, double v) {
  const float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  switch (type) {
    case INT32: ((int32_t *)memory)[i] = (int32_t)v; break;
    case INT64: ((int64_t *)memory)[i] = (int64_t)v; break;
    case HALF: ((uint16_t *)memory)[i] = half_of((int)v); break;
    case FLOAT: ((float *)memory)[i] = f; break;
    case DOUBLE: ((double *)memory)[i] = v; break;
    default: ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16); break;
  }
}

/* ---- calls ------------------------------------------------------------------------------------------ */

enum what {
  ALL_REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  BROADCAST,
  BCAST,
  REDUCE,
  ALL_TO_ALL,
  EXCHANGE, /* an all-to-all of sends and receives */
  RING,     /* a send to the next rank, a receive from the one before */
  CONFIGURED, /* an allreduce with a configuration of its own */
  N_WHATS
};

static const struct {
  const char *function, *kind; /* NCCL's, and in the log */
} names[N_WHATS] = {
    {"AllReduce", "AllReduce"}, {"AllGather", "AllGather"}, {"ReduceScatter", "ReduceScatter"},
    {"Broadcast", "Broadcast"}, {"Bcast", "Broadcast"},     {"Reduce", "Reduce"},
    {"AlltoAll", "AlltoAll"},   {"Send", "AlltoAll"},       {"Send", "Send/Recv"},
    {"AllReduceConfig", "AllReduce"},
};

struct call {
  enum what what;
  size_t count;
  unsigned type, redop;
  int root;
  bool in_place;
  unsigned seed;
};

/* A communicator as a rank sees it. */
struct side {
  ncclComm_t comm;
  int rank, n;
};

static double value(const struct call *c, int rank, size_t i) {
  if (c->redop == PROD) return 1 + (double)((c->seed + (size_t)rank + i) % 2);
  return (double)((c->seed * 7 + (size_t)rank * 13 + i * 5 + i / 64) % 20);
}

static bool sends_blocks(enum what what) {
  return what == REDUCE_SCATTER || what == ALL_TO_ALL || what == EXCHANGE;
}
static bool gets_blocks(enum what what) {
  return what == ALL_GATHER || what == ALL_TO_ALL || what == EXCHANGE;
}

static double folded(const struct call *c, int n, size_t i) {
  double x = value(c, 0, i);
  for (int r = 1; r < n; r++) {
    const double y = value(c, r, i);
    if (c->redop == PROD) x *= y;
    if (c->redop == MAX) x = x > y ? x : y;
    if (c->redop == MIN) x = x < y ? x : y;
    if (c->redop != PROD && c->redop != MAX && c->redop != MIN) x += y;
  }
  if (c->redop == AVG) return (double)((float)x / (float)n);
  return c->redop > AVG ? 3 * x : x; /* ncclRedOpCreatePreMulSum with 3 */
}

/* Element i of what a rank gets. */
static double expected(const struct call *c, const struct side *s, size_t i) {
  const int block = (int)(i / c->count);
  const size_t own = (size_t)s->rank * c->count;
  switch (c->what) {
    case ALL_REDUCE:
    case CONFIGURED:
    case REDUCE: return folded(c, s->n, i);
    case REDUCE_SCATTER: return folded(c, s->n, own + i);
    case ALL_GATHER: return value(c, block, i % c->count);
    case BROADCAST:
    case BCAST: return value(c, c->root, i);
    case RING: return value(c, (s->rank + s->n - 1) % s->n, i);
    default: return value(c, block, own + i % c->count);
  }
}

/* Of one call: what it reads and writes on the device, and behind the latter a guard. */
struct buffers {
  unsigned char *memory, *in, *out;
  size_t in_bytes, out_bytes;
};
enum { GUARD = 64, POISON = 0xa5 };

static void fill(const struct call *c, const struct side *s, struct buffers *b) {
  const size_t n = c->count * (sends_blocks(c->what) ? (size_t)s->n : 1);
  unsigned char *host = (unsigned char *)calloc(b->in_bytes + 1, 1);
  for (size_t i = 0; i < n; i++) put(c->type, host, i, value(c, s->rank, i));
  JOB_CUDA(cudaMemset(b->memory, POISON, b->in_bytes + b->out_bytes + 2 * GUARD));
  JOB_CUDA(cudaMemcpy(b->in, host, b->in_bytes, cudaMemcpyHostToDevice));
  JOB_CUDA(cudaDeviceSynchronize());
  free(host);
}

static void prepare(const struct call *c, const struct side *s, struct buffers *b) {
  const size_t block = c->count * bytes_of(c->type), n = (size_t)s->n, rank = (size_t)s->rank;
  b->in_bytes = block * (sends_blocks(c->what) ? n : 1);
  b->out_bytes = block * (gets_blocks(c->what) ? n : 1);
  JOB_CUDA(cudaMalloc((void **)&b->memory, b->in_bytes + b->out_bytes + 2 * GUARD));
  b->in = b->memory;
  b->out = b->memory + (b->in_bytes + GUARD - 1) / GUARD * GUARD;
  if (c->in_place || c->what == BCAST) {
    if (c->what == ALL_GATHER) b->in = b->out + rank * block;
    else if (c->what == REDUCE_SCATTER) b->out = b->in + rank * block;
    else b->in = b->out;
  }
  fill(c, s, b);
}

/* Where a rank gets nothing, nothing is promised: a reduce away from its root. */
static void check(const struct call *c, const struct side *s, const struct buffers *b) {
  const size_t n = c->count * (gets_blocks(c->what) ? (size_t)s->n : 1), size = bytes_of(c->type);
  unsigned char *host = (unsigned char *)malloc(b->out_bytes + GUARD), want[8];
  if (c->what != REDUCE || s->rank == c->root) {
    JOB_CUDA(cudaMemcpy(host, b->out, b->out_bytes + GUARD, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) {
      put(c->type, want, 0, expected(c, s, i));
      JOB_ASSERT(memcmp(host + i * size, want, size) == 0,
                 "%s of %zu, type %u, op %u, in place %d: rank %d of %d, element %zu is wrong",
                 names[c->what].function, c->count, c->type, c->redop, c->in_place, s->rank, s->n,
                 i);
    }
    const bool apart = c->what != REDUCE_SCATTER || !c->in_place;
    for (size_t i = 0; apart && i < GUARD; i++)
      JOB_ASSERT(host[b->out_bytes + i] == POISON, "%s of %zu: rank %d, byte %zu behind the end",
                 names[c->what].function, c->count, s->rank, i);
  }
  free(host);
}

static void discard(struct buffers *b) { JOB_CUDA(cudaFree(b->memory)); }

static ncclResult_t exchange(const struct call *c, const struct side *s, const struct buffers *b,
                             cudaStream_t stream) {
  const size_t block = c->count * bytes_of(c->type);
  ncclResult_t result = ncclGroupStart();
  for (int p = 0; p < s->n && result == ncclSuccess; p++) {
    result = ncclSend(b->in + (size_t)p * block, c->count, c->type, p, s->comm, stream);
    if (result == ncclSuccess)
      result = ncclRecv(b->out + (size_t)p * block, c->count, c->type, p, s->comm, stream);
  }
  return result == ncclSuccess ? ncclGroupEnd() : result;
}

static ncclResult_t ring(const struct call *c, const struct side *s, const struct buffers *b,
                         cudaStream_t stream) {
  const int to = (s->rank + 1) % s->n, from = (s->rank + s->n - 1) % s->n;
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) result = ncclSend(b->in, c->count, c->type, to, s->comm, stream);
  if (result == ncclSuccess) result = ncclRecv(b->out, c->count, c->type, from, s->comm, stream);
  return result == ncclSuccess ? ncclGroupEnd() : result;
}

static ncclResult_t issue(const struct call *c, const struct side *s, const struct buffers *b,
                          cudaStream_t stream) {
  const size_t n = c->count;
  switch (c->what) {
    case ALL_REDUCE: return ncclAllReduce(b->in, b->out, n, c->type, c->redop, s->comm, stream);
    case CONFIGURED:
      return ncclAllReduceConfig(b->in, b->out, n, c->type, c->redop, s->comm, stream,
                                 (const ncclCollConfig_t *)c);
    case ALL_GATHER: return ncclAllGather(b->in, b->out, n, c->type, s->comm, stream);
    case REDUCE_SCATTER:
      return ncclReduceScatter(b->in, b->out, n, c->type, c->redop, s->comm, stream);
    case BROADCAST: return ncclBroadcast(b->in, b->out, n, c->type, c->root, s->comm, stream);
    case BCAST: return ncclBcast(b->out, n, c->type, c->root, s->comm, stream);
    case REDUCE:
      return ncclReduce(b->in, s->rank == c->root ? b->out : NULL, n, c->type, c->redop, c->root,
                        s->comm, stream);
    case ALL_TO_ALL: return ncclAlltoAll(b->in, b->out, n, c->type, s->comm, stream);
    case EXCHANGE: return exchange(c, s, b, stream);
    default: return ring(c, s, b, stream);
  }
}

/* ---- served or passed --------------------------------------------------------------------------------- */

/* What the log must say of a communicator at its end. */
struct sums {
  int served[N_WHATS], passed[N_WHATS];
};

static int kind_of(enum what what) { /* the first call of its kind */
  for (int k = 0;; k++)
    if (strcmp(names[k].kind, names[what].kind) == 0) return k;
}

static void check_sums(const struct sums *sums) {
  for (int k = 0; k < N_WHATS; k++) {
    char part[64], all[64];
    if (kind_of((enum what)k) != k || sums->served[k] + sums->passed[k] == 0) continue;
    snprintf(part, sizeof part, "NCCL %s:", names[k].kind);
    snprintf(all, sizeof all, " %d served, %d passed in all", sums->served[k], sums->passed[k]);
    JOB_ASSERT(job_logged(part, all) == 1, "the log lacks \"%s%s\"", part, all);
  }
}

/* Over several hosts what is served goes by NCCL's sends, of some ranks at least; all on one host do
 * without. */
static void check_served(struct job *job, int sends) {
  int all[MAX_PROCESSES], sum = 0;
  JOB_ASSERT(meeting_all_gather(&job->meeting, &sends, all, sizeof sends) == COPSE_OK, "no meeting");
  for (int r = 0; r < job->n; r++) sum += all[r];
  JOB_ASSERT((sum > 0) == (job->n_hosts > 1), "%d sends between %d hosts", sum, job->n_hosts);
}

enum outcome { PASSED, SERVED };

/* One call on the world, and all about it. */
static void run(struct job *job, struct sums *sums, struct call c, enum outcome outcome) {
  const struct side world = {job->world, job->rank, job->n};
  struct buffers b;
  const int calls = job_nccl_calls(names[c.what].function), sends = job_nccl_calls("Send");
  prepare(&c, &world, &b);
  JOB_NCCL(issue(&c, &world, &b, job->stream));
  JOB_CUDA(cudaStreamSynchronize(job->stream));
  check(&c, &world, &b);
  discard(&b);
  const int k = c.what == EXCHANGE && outcome == PASSED ? RING : kind_of(c.what);
  if (outcome == SERVED) {
    sums->served[k]++;
    if (c.what < EXCHANGE) JOB_ASSERT(job_nccl_calls(names[c.what].function) == calls, "not served");
    check_served(job, job_nccl_calls("Send") - sends);
  } else {
    JOB_ASSERT(job_nccl_calls(names[c.what].function) > calls, "%s of %zu wasn't passed",
               names[c.what].function, c.count);
    sums->passed[k] += c.what == RING ? 2 : c.what == EXCHANGE ? 2 * job->n : 1;
  }
}

static enum outcome outcome_of(const struct job *job, const struct call *c) {
  const size_t bytes = c->count * bytes_of(c->type);
  if (c->count == 0 || c->what == RING || c->redop > AVG || c->root > 0) return PASSED;
  if (c->what == ALL_REDUCE && bytes > JOB_ALLREDUCE_BYTES) return PASSED;
  return sends_blocks(c->what) && c->what != REDUCE_SCATTER &&
                 bytes * (size_t)job->n > JOB_ALLTOALL_BYTES
             ? PASSED
             : SERVED;
}

/* ---- what is tried ------------------------------------------------------------------------------------ */

static void run_sizes(struct job *job, struct sums *sums, const size_t *counts, int n) {
  static const unsigned types[] = {FLOAT, INT32, BFLOAT16, DOUBLE, HALF, INT64};
  unsigned seed = 0;
  for (int what = ALL_REDUCE; what <= ALL_TO_ALL; what++)
    for (int i = 0; i < n; i++) {
      struct call c = {(enum what)what, counts[i], types[(seed + (unsigned)i) % 6], SUM, 0,
                       what != ALL_TO_ALL && i % 2 == 1, ++seed};
      if (c.count > 2000) c.type = FLOAT; /* may be passed */
      if (c.type == FLOAT) c.redop = seed % 5;
      run(job, sums, c, outcome_of(job, &c));
    }
}

/* Calls that there is no plan for: the same results by NCCL. */
static void run_passed(struct job *job, struct sums *sums) {
  float three = 3;
  ncclRedOp_t times;
  JOB_NCCL(ncclRedOpCreatePreMulSum(&times, &three, FLOAT, 1, job->world));
  const struct call calls[] = {
      {BROADCAST, 50, INT32, SUM, 1, false, 1}, {REDUCE, 50, FLOAT, MAX, 1, false, 2},
      {BCAST, 5, DOUBLE, SUM, 1, true, 3},      {ALL_REDUCE, 0, FLOAT, SUM, 0, false, 4},
      {ALL_REDUCE, 60, FLOAT, times, 0, true, 5}, {ALL_REDUCE, 9000, FLOAT, MIN, 0, true, 6},
      {RING, 300, HALF, SUM, 0, false, 7},      {CONFIGURED, 300, FLOAT, SUM, 0, true, 8},
  };
  for (const struct call &c : calls) run(job, sums, c, PASSED);
  JOB_ASSERT(job_logged("NCCL Broadcast: passed", "no plan for this size (and root)") == 1 &&
                 job_logged("NCCL AllReduce: passed", "ncclRedOpCreatePreMulSum") == 1 &&
                 job_logged("NCCL AllReduce: passed", "no elements") == 1 &&
                 job_logged("NCCL AllReduce: passed", "a configuration of its own") == 1 &&
                 job_logged("NCCL Send/Recv: passed", "COPSE_NCCL_ALLTOALL=1 is not set") == 1,
             "the log doesn't say why");
}

/* Both buffers in windows: NCCL's. One of them outside, or no window any more: served. */
static void run_windows(struct job *job, struct sums *sums) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 100, FLOAT, SUM, 0, false, 9};
  ncclWindow_t windows[2];
  struct buffers b;
  prepare(&c, &world, &b);
  for (int turn = 0; turn < 4; turn++) {
    if (turn == 1) JOB_NCCL(ncclCommWindowRegister(job->world, b.in, b.in_bytes, &windows[0], 1));
    if (turn == 2) {
      JOB_NCCL(ncclGroupStart());
      JOB_NCCL(ncclCommWindowRegister(job->world, b.out, b.out_bytes, &windows[1], 1));
      JOB_NCCL(ncclGroupEnd());
    }
    if (turn == 3) JOB_NCCL(ncclCommWindowDeregister(job->world, windows[0]));
    const int calls = job_nccl_calls("AllReduce");
    JOB_NCCL(issue(&c, &world, &b, job->stream));
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    check(&c, &world, &b);
    const bool passed = job_nccl_calls("AllReduce") > calls;
    JOB_ASSERT(passed == (turn == 2), "turn %d: passed %d", turn, passed);
    (passed ? sums->passed : sums->served)[ALL_REDUCE]++;
  }
  JOB_NCCL(ncclCommWindowDeregister(job->world, windows[1]));
  discard(&b);
  JOB_ASSERT(job_logged("NCCL AllReduce: passed", "symmetric windows") == 1, "the log doesn't say why");
}

static void check_hosts_logged(const struct job *job, int n_ranks, int n_hosts) {
  char part[64];
  (void)job;
  snprintf(part, sizeof part, "NCCL communicator of %d ranks on %d hosts", n_ranks, n_hosts);
  JOB_ASSERT(job_logged(part, "plans") >= 1, "the log lacks \"%s\"", part);
}

/* Of which the drop-in has two, as of its records and of what became of them. */
enum { MOST_GATHERS = 10 };

static void run_all(struct job *job) {
  static const size_t few[] = {1, 61, 700}, many[] = {1, 37, 61, 700, 2500};
  struct sums sums = {};
  check_hosts_logged(job, job->n, job->n_hosts);
  JOB_ASSERT(job_nccl_calls("AllGather") <= MOST_GATHERS, "%d all-gathers to make a communicator",
             job_nccl_calls("AllGather"));
  run_sizes(job, &sums, job->n > 4 ? few : many, job->n > 4 ? 3 : 5);
  run_passed(job, &sums);
  run_windows(job, &sums);
  JOB_ASSERT(job_logged("NCCL AllReduce: served", "low latency") == 1, "no packets");
  JOB_NCCL(ncclCommFinalize(job->world));
  check_sums(&sums);
}

/* With COPSE_NCCL_ALLTOALL=1: served and passed calls of one group, and an exchange. */
static void run_groups(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call calls[] = {
      {ALL_REDUCE, 333, FLOAT, SUM, 0, true, 1},      {BROADCAST, 40, INT32, SUM, 1, false, 2},
      {ALL_GATHER, 77, BFLOAT16, SUM, 0, false, 3},   {EXCHANGE, 90, INT64, SUM, 0, false, 4},
      {REDUCE_SCATTER, 55, DOUBLE, SUM, 0, false, 5}, {ALL_REDUCE, 9, INT32, MAX, 0, false, 6},
      {EXCHANGE, 90, INT64, SUM, 0, false, 7},
  };
  const int n = (int)(sizeof calls / sizeof *calls);
  struct buffers b[sizeof calls / sizeof *calls];
  struct sums sums = {};
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < n; i++) prepare(&calls[i], &world, &b[i]);
    JOB_NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) {
      JOB_NCCL(issue(&calls[i], &world, &b[i], job->stream));
      int *count = calls[i].root ? sums.passed : sums.served;
      count[kind_of(calls[i].what)]++;
    }
    JOB_NCCL(ncclGroupEnd());
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    for (int i = 0; i < n; i++) check(&calls[i], &world, &b[i]);
    for (int i = 0; i < n; i++) discard(&b[i]);
  }
  run(job, &sums, {EXCHANGE, 30, FLOAT, SUM, 0, false, 8}, SERVED);
  run(job, &sums, {EXCHANGE, 5000, FLOAT, SUM, 0, false, 9}, PASSED); /* too large */
  run(job, &sums, {RING, 100, FLOAT, SUM, 0, false, 10}, PASSED);
  JOB_ASSERT(job_logged("NCCL Send/Recv: passed", "no all-to-all of even blocks") == 1 &&
                 job_logged("NCCL Send/Recv: passed", "no plan for this size") == 1,
             "the log doesn't say why");
  JOB_NCCL(ncclCommDestroy(job->world));
  job->world = NULL;
  check_sums(&sums);
}

/* ---- communicators that are split off ----------------------------------------------------------------- */

/* Who is in a split, in the order of its keys. */
static struct side split(struct job *job, int (*color_of)(const struct job *, int), bool turned) {
  struct side s = {NULL, 0, 0};
  const int color = color_of(job, job->rank);
  JOB_NCCL(ncclCommSplit(job->world, color, turned ? -job->rank : job->rank, &s.comm, NULL));
  JOB_ASSERT((color < 0) == (s.comm == NULL), "color %d", color);
  if (!s.comm) return s;
  for (int r = 0; r < job->n; r++) {
    if (color_of(job, r) != color) continue;
    s.n++;
    s.rank += turned ? r > job->rank : r < job->rank;
  }
  int n = 0, rank = -1;
  JOB_NCCL(ncclCommCount(s.comm, &n));
  JOB_NCCL(ncclCommUserRank(s.comm, &rank));
  JOB_ASSERT(n == s.n && rank == s.rank, "rank %d of %d, not %d of %d", rank, n, s.rank, s.n);
  return s;
}

static int by_host(const struct job *job, int rank) { return job_host(job, rank); }
static int by_turns(const struct job *job, int rank) { return (rank + (job->n > 99)) % 2; }
static int by_halves(const struct job *job, int rank) { return rank < job->n / 2; }
static int but_the_last(const struct job *job, int rank) { return rank < job->n - 1 ? 5 : -1; }
static int but_the_first(const struct job *job, int rank) { return job->n > 0 && rank > 0; }

/* Each on its own, then all of them and the world in one group. */
static void use_splits(struct job *job, struct side *sides, int n) {
  struct call calls[8];
  struct buffers b[8];
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < n; i++) {
      calls[i] = {turn ? ALL_REDUCE : ALL_GATHER, (size_t)(40 + 90 * i), FLOAT, SUM, 0, false,
                  (unsigned)i};
      if (sides[i].comm) prepare(&calls[i], &sides[i], &b[i]);
    }
    if (turn) JOB_NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++)
      if (sides[i].comm) JOB_NCCL(issue(&calls[i], &sides[i], &b[i], job->stream));
    if (turn) JOB_NCCL(ncclGroupEnd());
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    for (int i = 0; i < n; i++) {
      if (!sides[i].comm) continue;
      check(&calls[i], &sides[i], &b[i]);
      discard(&b[i]);
    }
  }
}

static bool has_plans(const struct job *job, int n) {
  return n == 2 || n == job->n || n == job->n / 2;
}

static void run_splits(struct job *job) {
  enum { N = 6 };
  struct side sides[N] = {split(job, by_host, false),      split(job, by_turns, true),
                          split(job, by_halves, false),    split(job, but_the_last, false),
                          split(job, but_the_first, true), {job->world, job->rank, job->n}};
  int served = 0, passed = 0;
  use_splits(job, sides, N);
  const int order[N] = {3, 5, 0, 4, 1, 2}; /* the world before some of its children */
  for (int i : order) {
    if (!sides[i].comm) continue;
    (has_plans(job, sides[i].n) && sides[i].n > 1 ? served : passed)++;
    JOB_NCCL(ncclCommDestroy(sides[i].comm));
  }
  job->world = NULL;
  JOB_ASSERT(job_logged("NCCL AllReduce: 1 served, 0 passed in all", "") == served &&
                 job_logged("NCCL AllReduce: 0 served, 1 passed in all", "") == passed,
             "not %d communicators served and %d passed", served, passed);
}

/* Several communicators of all ranks in one group, which half the ranks name the other way round. */
static void run_crowd(struct job *job) {
  struct side sides[2] = {{NULL, job->rank, job->n}, {NULL, job->rank, job->n}};
  ncclUniqueId own[2], all[MAX_PROCESSES][2];
  memset(own, 0, sizeof own);
  for (ncclUniqueId &id : own)
    if (job->rank == 0) JOB_NCCL(ncclGetUniqueId(&id));
  JOB_ASSERT(meeting_all_gather(&job->meeting, own, all, sizeof own) == COPSE_OK, "no meeting");
  JOB_NCCL(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    const int k = job->rank % 2 ? 1 - i : i;
    JOB_NCCL(ncclCommInitRank(&sides[k].comm, job->n, all[0][k], job->rank));
  }
  JOB_NCCL(ncclGroupEnd());
  use_splits(job, sides, 2);
  JOB_NCCL(ncclGroupStart()); /* they may end in a group */
  for (struct side &s : sides) JOB_NCCL(ncclCommFinalize(s.comm));
  JOB_NCCL(ncclGroupEnd());
  for (struct side &s : sides) JOB_NCCL(ncclCommDestroy(s.comm));
  JOB_ASSERT(job_logged("NCCL AllReduce: 1 served, 0 passed in all", "") == 2, "not both served");
}

/* ---- graphs ------------------------------------------------------------------------------------------- */

static void run_graphs(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  struct call calls[] = {
      {ALL_REDUCE, 400, FLOAT, SUM, 0, true, 1},  {BROADCAST, 40, INT32, SUM, 1, false, 2},
      {ALL_TO_ALL, 120, HALF, SUM, 0, false, 3},  {ALL_REDUCE, 6, FLOAT, MIN, 0, false, 4},
      {RING, 80, DOUBLE, SUM, 0, false, 5},       {REDUCE, 200, FLOAT, SUM, 0, false, 6},
  };
  const int n = (int)(sizeof calls / sizeof *calls);
  struct buffers b[sizeof calls / sizeof *calls];
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  for (int i = 0; i < n; i++) prepare(&calls[i], &world, &b[i]);
  JOB_CUDA(cudaStreamBeginCapture(job->stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < n; i++) JOB_NCCL(issue(&calls[i], &world, &b[i], job->stream));
  JOB_CUDA(cudaStreamEndCapture(job->stream, &graph));
  JOB_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (unsigned turn = 0; turn < 3; turn++) {
    for (int i = 0; i < n; i++) {
      calls[i].seed += turn;
      fill(&calls[i], &world, &b[i]);
    }
    JOB_CUDA(cudaGraphLaunch(exec, job->stream));
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    for (int i = 0; i < n; i++) check(&calls[i], &world, &b[i]);
  }
  JOB_CUDA(cudaGraphExecDestroy(exec));
  JOB_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < n; i++) discard(&b[i]);
}

static void nap(void *) { usleep(30000); }

/* One capture of two communicators, each on a stream of its own, groups within groups; launched beside
 * calls of one of them outside of it. The graph is destroyed after its communicators. */
static void run_joint(struct job *job) {
  enum { N = 4 };
  const struct side sides[2] = {{job->world, job->rank, job->n}, {job_comm(job), job->rank, job->n}};
  struct call calls[N] = {{ALL_REDUCE, 400, FLOAT, SUM, 0, true, 1}, {ALL_GATHER, 90, FLOAT, SUM, 0, false, 2},
                          {RING, 80, DOUBLE, SUM, 0, false, 3},      {ALL_REDUCE, 900, FLOAT, MAX, 0, false, 4}};
  struct buffers b[N];
  cudaStream_t other;
  cudaEvent_t forked, joined;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  JOB_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  JOB_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  JOB_CUDA(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  for (int i = 0; i < N; i++) prepare(&calls[i], &sides[i % 2], &b[i]);
  JOB_CUDA(cudaStreamBeginCapture(job->stream, cudaStreamCaptureModeGlobal));
  JOB_CUDA(cudaEventRecord(forked, job->stream));
  JOB_CUDA(cudaStreamWaitEvent(other, forked, 0));
  JOB_NCCL(ncclGroupStart());
  for (int i = 0; i < N; i++) {
    JOB_NCCL(ncclGroupStart());
    JOB_NCCL(issue(&calls[i], &sides[i % 2], &b[i], i % 2 ? other : job->stream));
    JOB_NCCL(ncclGroupEnd());
  }
  JOB_NCCL(ncclGroupEnd());
  JOB_CUDA(cudaEventRecord(joined, other));
  JOB_CUDA(cudaStreamWaitEvent(job->stream, joined, 0));
  JOB_CUDA(cudaStreamEndCapture(job->stream, &graph));
  JOB_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (unsigned turn = 0; turn < 3; turn++) {
    for (int i = 0; i < N; i++) {
      calls[i].seed += turn;
      fill(&calls[i], &sides[i % 2], &b[i]);
    }
    JOB_CUDA(cudaGraphLaunch(exec, job->stream));
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    for (int i = 0; i < N; i++) check(&calls[i], &sides[i % 2], &b[i]);
    for (int i = 0; i < N; i += 2) fill(&calls[i], &sides[0], &b[i]);
    for (int i = 0; i < N; i += 2) JOB_NCCL(issue(&calls[i], &sides[0], &b[i], other));
    JOB_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) check(&calls[i], &sides[i % 2], &b[i]);
  }
  JOB_CUDA(cudaLaunchHostFunc(job->stream, nap, NULL));
  JOB_CUDA(cudaGraphLaunch(exec, job->stream)); /* ending a communicator waits for it */
  JOB_NCCL(ncclCommDestroy(sides[1].comm));
  JOB_CUDA(cudaStreamQuery(job->stream));
  JOB_NCCL(ncclCommDestroy(sides[0].comm));
  job->world = NULL;
  JOB_CUDA(cudaGraphExecDestroy(exec));
  JOB_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < N; i++) discard(&b[i]);
  JOB_CUDA(cudaEventDestroy(forked));
  JOB_CUDA(cudaEventDestroy(joined));
  JOB_CUDA(cudaStreamDestroy(other));
}

/* ---- what goes wrong ---------------------------------------------------------------------------------- */

/* The last rank doesn't come; all give the communicator up, and make another. */
static void run_abort(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 500, FLOAT, SUM, 0, false, 1};
  struct sums sums = {};
  struct buffers b;
  prepare(&c, &world, &b);
  if (job->rank < job->n - 1) JOB_NCCL(issue(&c, &world, &b, job->stream));
  usleep(100000);
  JOB_NCCL(ncclCommAbort(job->world));
  JOB_CUDA(cudaStreamSynchronize(job->stream));
  discard(&b);
  job_meet(job);
  job->world = job_comm(job);
  run(job, &sums, c, SERVED);
}

static void wait_for_flag(void *flag) {
  while (!__atomic_load_n((bool *)flag, __ATOMIC_ACQUIRE)) usleep(1000);
}

/* Something else on the GPU, as a communicator that hangs, ends after the abort only. */
static void run_held(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 500, FLOAT, SUM, 0, false, 1};
  struct sums sums = {};
  struct buffers b;
  bool flag = false;
  cudaStream_t other;
  prepare(&c, &world, &b);
  JOB_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  JOB_CUDA(cudaLaunchHostFunc(other, wait_for_flag, &flag));
  if (job->rank < job->n - 1) JOB_NCCL(issue(&c, &world, &b, job->stream));
  JOB_NCCL(ncclCommAbort(job->world));
  __atomic_store_n(&flag, true, __ATOMIC_RELEASE);
  JOB_CUDA(cudaDeviceSynchronize());
  JOB_CUDA(cudaStreamDestroy(other));
  discard(&b);
  job_meet(job);
  job->world = job_comm(job);
  run(job, &sums, c, SERVED);
}

static ncclResult_t wait_for_error(struct job *job) {
  ncclResult_t async = ncclSuccess;
  for (int i = 0; i < 2000 && async == ncclSuccess; i++) {
    JOB_NCCL(ncclCommGetAsyncError(job->world, &async));
    usleep(10000);
  }
  return async;
}

static void give_up(struct job *job, struct buffers *b) {
  JOB_NCCL(ncclCommAbort(job->world));
  job->world = NULL;
  JOB_CUDA(cudaStreamSynchronize(job->stream));
  discard(b);
}

/* The last rank's process ends: the others see it, by copse's clock. */
static void run_gone(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 500, FLOAT, SUM, 0, false, 1};
  struct buffers b;
  if (job->rank == job->n - 1) _exit(0);
  JOB_ASSERT(job_set_timeout(job->world, 0.4), "no time limit");
  prepare(&c, &world, &b);
  JOB_NCCL(issue(&c, &world, &b, job->stream));
  const ncclResult_t async = wait_for_error(job);
  JOB_ASSERT(async == ncclRemoteError, "%d", async);
  JOB_ASSERT(strstr(ncclGetLastError(job->world), "copse: "), "%s", ncclGetLastError(job->world));
  give_up(job, &b);
}

/* NCCL fails in the middle of a call at rank 0, and says so there; nobody hangs. */
static void run_failing(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 500, FLOAT, SUM, 0, false, 1};
  struct buffers b;
  JOB_ASSERT(job_set_timeout(job->world, 0.4), "no time limit");
  prepare(&c, &world, &b);
  if (job->rank == 0) job_nccl_fail("GroupEnd", 2);
  const ncclResult_t result = issue(&c, &world, &b, job->stream);
  JOB_ASSERT((result == ncclSuccess) == (job->rank != 0), "%d", result);
  JOB_ASSERT(wait_for_error(job) != ncclSuccess, "no error at rank %d", job->rank);
  give_up(job, &b);
}

/* One rank, on another host than rank 0, has no plans: all calls are NCCL's, and right. */
static void run_bare(struct job *job) {
  struct sums sums = {};
  for (int what = ALL_REDUCE; what <= RING; what++)
    run(job, &sums, {(enum what)what, 300, FLOAT, SUM, 0, false, (unsigned)what}, PASSED);
  JOB_ASSERT(job_logged("NCCL communicator: calls are passed", "has no COPSE_PLAN_DIR") == 1,
             "the log doesn't say why");
  JOB_NCCL(ncclCommDestroy(job->world));
  job->world = NULL;
  check_sums(&sums);
}

/* NCCL can't make a communicator for copse's messages: all is passed. */
static void run_unjoined(struct job *job) {
  struct sums sums = {};
  run(job, &sums, {ALL_REDUCE, 300, FLOAT, SUM, 0, false, 1}, PASSED);
  JOB_ASSERT(job_logged("NCCL AllReduce: passed", "ncclGetUniqueId of rank 0") == 1,
             "the log doesn't say why");
}

/* ---- as jobs do it ------------------------------------------------------------------------------------ */

/* Many calls before anybody waits, on streams in turn, the NULL stream among them and one that is
 * gone at once; another device is current. */
static void run_streams(struct job *job) {
  enum { N = 12 };
  const struct side world = {job->world, job->rank, job->n};
  struct call calls[N];
  struct buffers b[N];
  cudaStream_t other, brief;
  for (int i = 0; i < N; i++) {
    static const enum what whats[] = {ALL_REDUCE, ALL_TO_ALL, RING, ALL_GATHER, REDUCE};
    calls[i] = {whats[i % 5], (size_t)(20 + 97 * (i % 4)), FLOAT, SUM, 0, false, (unsigned)i};
    prepare(&calls[i], &world, &b[i]);
  }
  JOB_CUDA(cudaStreamCreate(&other));
  JOB_CUDA(cudaSetDevice(1 - job->device));
  for (int i = 0; i < N; i++) {
    cudaStream_t streams[] = {job->stream, other, NULL, other};
    const bool is_brief = i % 4 == 3, is_null = i % 4 == 2; /* which means the current device's */
    if (is_brief || is_null) JOB_CUDA(cudaSetDevice(job->device));
    if (is_brief) JOB_CUDA(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
    JOB_NCCL(issue(&calls[i], &world, &b[i], is_brief ? brief : streams[i % 4]));
    if (is_brief) JOB_CUDA(cudaStreamDestroy(brief));
    JOB_CUDA(cudaSetDevice(1 - job->device));
  }
  JOB_CUDA(cudaSetDevice(job->device));
  JOB_CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < N; i++) check(&calls[i], &world, &b[i]);
  for (int i = 0; i < N; i++) discard(&b[i]);
  JOB_CUDA(cudaStreamDestroy(other));
}

/* ---- making a communicator, and one rank fails -------------------------------------------------------- */

/* Each call of CUDA and NCCL by which a communicator is made, and each allocation, failing once, at
 * one rank. */
enum source { OF_CUDA, OF_NCCL, OF_COPSE };
static const struct {
  const char *function;
  enum source of;
} faults[] = {
    {"cudaMalloc", OF_CUDA},          {"cudaStreamCreateWithFlags", OF_CUDA},
    {"cudaMemcpyAsync", OF_CUDA},     {"cudaMemsetAsync", OF_CUDA},
    {"cudaStreamSynchronize", OF_CUDA}, {"cudaEventCreateWithFlags", OF_CUDA},
    {"cudaEventRecord", OF_CUDA},     {"cudaHostAlloc", OF_CUDA},
    {"cudaIpcGetMemHandle", OF_CUDA}, {"cudaIpcOpenMemHandle", OF_CUDA},
    {"cudaDeviceGetAttribute", OF_CUDA}, {"cudaGetDeviceCount", OF_CUDA},
    {"cudaOccupancyMaxActiveBlocksPerMultiprocessor", OF_CUDA},
    {"CommCount", OF_NCCL},           {"AllGather", OF_NCCL},
    {"an allocation", OF_COPSE},
};

static int n_calls(const char *function, enum source of) {
  if (of == OF_COPSE) return job_allocations();
  return of == OF_NCCL ? job_nccl_calls(function) : copse_emulated_calls_of(function);
}

static void fail_at(const char *function, enum source of, int nth) {
  if (of == OF_NCCL) job_nccl_fail(function, nth);
  if (of == OF_CUDA) copse_emulated_fail(function, nth, cudaErrorMemoryAllocation);
  if (of == OF_COPSE) job_fail_allocations(nth, 1);
}

static void fail_no_more(void) {
  copse_emulated_fail(NULL, 0, cudaSuccess);
  job_nccl_fail(NULL, 0);
  job_fail_allocations(0, 0);
}

/* All serve a call, or all pass it, and it is right. */
static bool check_alike(struct job *job, ncclComm_t comm, const char *what, int nth) {
  const struct side side = {comm, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 200, FLOAT, SUM, 0, false, (unsigned)nth};
  struct buffers b;
  const int calls = job_nccl_calls("AllReduce");
  prepare(&c, &side, &b);
  JOB_NCCL(issue(&c, &side, &b, job->stream));
  JOB_CUDA(cudaStreamSynchronize(job->stream));
  check(&c, &side, &b);
  discard(&b);
  const bool served = job_nccl_calls("AllReduce") == calls;
  bool all[MAX_PROCESSES];
  JOB_ASSERT(meeting_all_gather(&job->meeting, &served, all, sizeof served) == COPSE_OK, "no meeting");
  for (int r = 0; r < job->n; r++)
    JOB_ASSERT(all[r] == served, "call %d of %s failed: rank %d differs", nth, what, r);
  return served;
}

/* How many calls of each there are at the last rank while a communicator is made. */
static void count_faults(struct job *job, int *counts) {
  const int n_faults = (int)(sizeof faults / sizeof *faults);
  for (int i = 0; i < n_faults; i++) counts[i] = n_calls(faults[i].function, faults[i].of);
  ncclComm_t comm = job_comm(job);
  for (int i = 0; i < n_faults; i++) {
    int own = n_calls(faults[i].function, faults[i].of) - counts[i], all[MAX_PROCESSES];
    JOB_ASSERT(meeting_all_gather(&job->meeting, &own, all, sizeof own) == COPSE_OK, "no meeting");
    counts[i] = all[job->n - 1];
  }
  JOB_NCCL(ncclCommDestroy(comm));
}

static void run_faults(struct job *job) {
  const int n_faults = (int)(sizeof faults / sizeof *faults);
  int counts[sizeof faults / sizeof *faults], n_served = 0, n_tried = 0;
  JOB_NCCL(ncclCommDestroy(job->world));
  job->world = NULL;
  count_faults(job, counts);
  for (int i = 0; i < n_faults; i++)
    /* the first, and of many some between it and the last */
    for (int nth = 1; nth <= counts[i]; nth += copse_test_all() ? counts[i] / 100 + 1 : nth < counts[i] ? (counts[i] + 2) / 4 : 1) {
      if (job->rank == job->n - 1) fail_at(faults[i].function, faults[i].of, nth);
      ncclComm_t comm = job_comm(job);
      fail_no_more();
      n_served += check_alike(job, comm, faults[i].function, nth);
      JOB_NCCL(ncclCommDestroy(comm));
      n_tried++;
    }
  JOB_ASSERT(n_served > 0 && n_served < n_tried, "%d of %d served", n_served, n_tried);
}

/* What fails at the last rank as often as it is tried, from the start or after some calls: it can't
 * come to the all-gather, or not to a later one, or does without. */
static const struct {
  const char *function;
  enum source of;
  bool made; /* in spite of it; else at no rank */
} lacks[] = {
    {"cudaMalloc", OF_CUDA, true},
    {"cudaHostAlloc", OF_CUDA, true},
    {"cudaStreamCreateWithFlags", OF_CUDA, false},
    {"cudaStreamSynchronize", OF_CUDA, false},
    {"cudaMemcpyAsync", OF_CUDA, true},
    {"CommCount", OF_NCCL, false},
    {"AllGather", OF_NCCL, false},
    {"an allocation", OF_COPSE, false},
};

/* A rank that can't tell its peers: making the communicator fails at all, and none waits for ever. */
static void try_lack(struct job *job, size_t i, bool in_group) {
  ncclUniqueId id, ids[MAX_PROCESSES];
  ncclComm_t comm = NULL;
  int made, all[MAX_PROCESSES];
  memset(&id, 0, sizeof id);
  if (job->rank == 0) JOB_NCCL(ncclGetUniqueId(&id));
  JOB_ASSERT(meeting_all_gather(&job->meeting, &id, ids, sizeof id) == COPSE_OK, "no meeting");
  if (job->rank == job->n - 1) {
    if (lacks[i].of == OF_NCCL) job_nccl_fail(lacks[i].function, 0);
    if (lacks[i].of == OF_CUDA)
      copse_emulated_fail(lacks[i].function, COPSE_EMULATED_EVERY, cudaErrorMemoryAllocation);
    if (lacks[i].of == OF_COPSE) job_fail_allocations(1, 0);
  }
  if (in_group) JOB_NCCL(ncclGroupStart());
  ncclResult_t result = ncclCommInitRank(&comm, job->n, ids[0], job->rank);
  if (in_group) {
    const ncclResult_t ended = ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
  }
  fail_no_more();
  made = result == ncclSuccess;
  JOB_ASSERT(made == lacks[i].made, "without %s: %d at rank %d", lacks[i].function, result, job->rank);
  JOB_ASSERT(made || !comm || in_group, "a communicator in spite of %d", result);
  JOB_ASSERT(meeting_all_gather(&job->meeting, &made, all, sizeof made) == COPSE_OK, "no meeting");
  if (!comm) return;
  if (made) check_alike(job, comm, lacks[i].function, 0);
  JOB_NCCL(made ? ncclCommDestroy(comm) : ncclCommAbort(comm));
}

static void run_lacks(struct job *job) {
  JOB_NCCL(ncclCommDestroy(job->world));
  job->world = NULL;
  setenv("COPSE_JOIN_TIMEOUT", "0.5", 1); /* or they would wait for two minutes each */
  for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
    if (!lacks[i].made)
      for (int in_group = 0; in_group < 2; in_group++) try_lack(job, i, in_group == 1);
  setenv("COPSE_JOIN_TIMEOUT", "60", 1);
  for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
    if (lacks[i].made) try_lack(job, i, false);
}

/* ---- one communicator, two engines -------------------------------------------------------------------- */

/* A served call and a passed one on streams of their own, one right after the other, as PyTorch issues
 * them. The last rank's stream of the first is held up, so that it would start with the second. NCCL's
 * kernels take all multiprocessors, so then none of the two would end. replayed: the served one is a
 * graph's. */
static void run_engines_as(struct job *job, bool replayed) {
  static const struct call served = {ALL_REDUCE, 700, FLOAT, SUM, 0, false, 1};
  static const struct call passed[] = { /* the last is too large to be served */
      {RING, 700, FLOAT, SUM, 0, false, 2},
      {CONFIGURED, 700, FLOAT, SUM, 0, false, 3},
      {ALL_REDUCE, 9000, FLOAT, SUM, 0, false, 4}};
  const struct side world = {job->world, job->rank, job->n};
  cudaStream_t streams[2] = {job->stream, NULL};
  job_nccl_take_blocks(80);
  JOB_CUDA(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  for (const struct call &it : passed)
    for (int first = 0; first < 2; first++) { /* 0: the served one */
      const struct call calls[2] = {served, it};
      struct buffers b[2];
      cudaGraph_t graph;
      cudaGraphExec_t exec = NULL;
      for (int i = 0; i < 2; i++) prepare(&calls[i], &world, &b[i]);
      if (replayed) {
        JOB_CUDA(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
        JOB_NCCL(issue(&calls[0], &world, &b[0], streams[0]));
        JOB_CUDA(cudaStreamEndCapture(streams[0], &graph));
        JOB_CUDA(cudaGraphInstantiate(&exec, graph, 0));
        JOB_CUDA(cudaGraphDestroy(graph));
      }
      if (job->rank == job->n - 1) JOB_CUDA(cudaLaunchHostFunc(streams[first], nap, NULL));
      for (int k = 0; k < 2; k++) {
        const int i = k ^ first;
        if (exec && i == 0)
          JOB_CUDA(cudaGraphLaunch(exec, streams[0]));
        else
          JOB_NCCL(issue(&calls[i], &world, &b[i], streams[i]));
      }
      JOB_CUDA(cudaDeviceSynchronize());
      for (int i = 0; i < 2; i++) check(&calls[i], &world, &b[i]);
      for (int i = 0; i < 2; i++) discard(&b[i]);
      if (exec) JOB_CUDA(cudaGraphExecDestroy(exec));
    }
  JOB_CUDA(cudaStreamDestroy(streams[1]));
}

/* On one stream nothing waits: the order is the stream's. Staged messages in parts have a stream of
 * the backend's beside it. */
static void check_one_stream(struct job *job) {
  struct sums sums = {};
  const int waits = copse_emulated_calls_of("cudaStreamWaitEvent");
  run(job, &sums, {ALL_REDUCE, 150, FLOAT, SUM, 0, false, 1}, SERVED);
  run(job, &sums, {BROADCAST, 150, FLOAT, SUM, 1, false, 2}, PASSED);
  run(job, &sums, {ALL_REDUCE, 150, FLOAT, SUM, 0, false, 3}, SERVED);
  JOB_ASSERT(copse_emulated_calls_of("cudaStreamWaitEvent") == waits, "one stream, and waits");
}

static void run_engines(struct job *job) {
  check_one_stream(job);
  run_engines_as(job, false);
}

static void run_replays(struct job *job) { run_engines_as(job, true); }

/* A replay of a captured call on one stream and the same call outside of the graph on another use
 * the same counters and slots. */
static void run_mixed(struct job *job) {
  enum { N = 8 };
  const struct side world = {job->world, job->rank, job->n};
  struct call calls[2] = {{ALL_REDUCE, 900, FLOAT, SUM, 0, false, 1},
                          {ALL_REDUCE, 900, FLOAT, MAX, 0, false, 2}};
  struct buffers b[2];
  cudaStream_t other;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  JOB_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  for (int i = 0; i < 2; i++) prepare(&calls[i], &world, &b[i]);
  JOB_CUDA(cudaStreamBeginCapture(job->stream, cudaStreamCaptureModeGlobal));
  JOB_NCCL(issue(&calls[0], &world, &b[0], job->stream));
  JOB_CUDA(cudaStreamEndCapture(job->stream, &graph));
  JOB_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < N; i++) {
    const bool late = job->rank == job->n - 1 && i % 2;
    if (late) JOB_CUDA(cudaLaunchHostFunc(i % 4 == 1 ? other : job->stream, nap, NULL));
    JOB_CUDA(cudaGraphLaunch(exec, job->stream));
    JOB_NCCL(issue(&calls[1], &world, &b[1], other));
  }
  JOB_CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 2; i++) check(&calls[i], &world, &b[i]);
  for (int i = 0; i < 2; i++) discard(&b[i]);
  JOB_CUDA(cudaGraphExecDestroy(exec));
  JOB_CUDA(cudaGraphDestroy(graph));
  JOB_CUDA(cudaStreamDestroy(other));
}

/* A thread asks for errors all the time, as frameworks do. */
struct watchdog {
  ncclComm_t comm;
  bool ends, aborts; /* ends: atomically */
  pthread_t thread;
};

static void *run_watchdog(void *context) {
  struct watchdog *it = (struct watchdog *)context;
  for (int i = 0; !__atomic_load_n(&it->ends, __ATOMIC_ACQUIRE); i++) {
    ncclResult_t async;
    JOB_NCCL(ncclCommGetAsyncError(it->comm, &async));
    const bool notified = async == ncclRemoteError && it->aborts; /* another rank's abort, before */
    JOB_ASSERT(async == ncclSuccess || notified, "%d", async);
    usleep(2000);
    if (!it->aborts || (i < 50 && !notified)) continue;
    JOB_NCCL(ncclCommAbort(it->comm));
    break;
  }
  return NULL;
}

static void start_watchdog(struct watchdog *it) {
  JOB_ASSERT(pthread_create(&it->thread, NULL, run_watchdog, it) == 0, "no thread");
}

/* Two communicators, each with a thread and a stream of its own, at the same time. Nothing waits
 * for the whole device: calls of the other thread's may be there whose turn at other ranks comes
 * later. */
struct worker {
  enum { N_CALLS = 8 };
  struct side side;
  cudaStream_t stream;
  struct call calls[N_CALLS];
  struct buffers b[N_CALLS];
  pthread_t thread;
};

static void *run_worker(void *context) {
  struct worker *it = (struct worker *)context;
  int device = 0;
  JOB_NCCL(ncclCommCuDevice(it->side.comm, &device));
  JOB_CUDA(cudaSetDevice(device));
  for (int i = 0; i < worker::N_CALLS; i++) {
    JOB_NCCL(issue(&it->calls[i], &it->side, &it->b[i], it->stream));
    if (i % 2) JOB_CUDA(cudaStreamSynchronize(it->stream));
  }
  return NULL;
}

static void prepare_worker(struct worker *it, const struct side *side) {
  static const enum what whats[] = {ALL_REDUCE, ALL_GATHER, RING, ALL_TO_ALL};
  it->side = *side;
  JOB_CUDA(cudaStreamCreateWithFlags(&it->stream, cudaStreamNonBlocking));
  for (unsigned i = 0; i < worker::N_CALLS; i++) {
    it->calls[i] = {whats[i % 4], 50 + 70 * (i % 3), FLOAT, SUM, 0, false, i};
    prepare(&it->calls[i], side, &it->b[i]);
  }
}

static void finish_worker(struct worker *it) {
  for (int i = 0; i < worker::N_CALLS; i++) {
    check(&it->calls[i], &it->side, &it->b[i]);
    discard(&it->b[i]);
  }
  JOB_CUDA(cudaStreamDestroy(it->stream));
}

static void run_threads(struct job *job) {
  struct worker workers[2];
  struct watchdog dogs[2];
  for (int i = 0; i < 2; i++) {
    const struct side side = {i ? job_comm(job) : job->world, job->rank, job->n};
    prepare_worker(&workers[i], &side);
    dogs[i] = {side.comm, false, false, {}};
  }
  for (int i = 0; i < 2; i++) {
    JOB_ASSERT(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0, "no thread");
    start_watchdog(&dogs[i]);
  }
  for (struct worker &it : workers) pthread_join(it.thread, NULL);
  for (struct worker &it : workers) finish_worker(&it);
  for (struct watchdog &it : dogs) {
    __atomic_store_n(&it.ends, true, __ATOMIC_RELEASE);
    pthread_join(it.thread, NULL);
  }
  job_meet(job);
  JOB_NCCL(ncclCommDestroy(workers[1].side.comm));
}

/* The last rank doesn't come; the others stand in a wait for their stream while a thread aborts. */
static void run_watched(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call c = {ALL_REDUCE, 500, FLOAT, SUM, 0, false, 1};
  struct watchdog dog = {job->world, false, true, {}};
  struct buffers b;
  prepare(&c, &world, &b);
  if (job->rank < job->n - 1) JOB_NCCL(issue(&c, &world, &b, job->stream));
  start_watchdog(&dog);
  JOB_CUDA(cudaStreamSynchronize(job->stream));
  pthread_join(dog.thread, NULL);
  discard(&b);
  job->world = NULL;
}

/* ---- what the drop-in takes -------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

/* Of a communicator: memory, shared allocations, all-gathers over NCCL. */
static void count_making(struct job *job) {
  size_t before = 0, left = 0, total = 0;
  const int gathers = job_nccl_calls("AllGather"), shared = copse_emulated_calls_of("cudaIpcGetMemHandle");
  JOB_CUDA(cudaMemGetInfo(&before, &total));
  job->world = job_comm(job);
  JOB_CUDA(cudaMemGetInfo(&left, &total));
  JOB_ASSERT(before - left > 96 * MIB && before - left <= 98 * MIB, "%zu KiB", (before - left) >> 10);
  JOB_ASSERT(copse_emulated_calls_of("cudaIpcGetMemHandle") - shared == 1 + 2, "%d shared allocations",
             copse_emulated_calls_of("cudaIpcGetMemHandle") - shared);
  JOB_ASSERT(job_nccl_calls("AllGather") - gathers == 8, "%d all-gathers",
             job_nccl_calls("AllGather") - gathers);
}

/* Of calls of so many MiB into buffers that nobody has registered: kernels, and copies out of the staging,
 * of which only the last has no kernel beside it. docs/measurements.md has this table. */
static void count_parts(struct job *job) {
  static const struct {
    size_t mib;
    int parts;
  } cases[] = {{16, 1}, {32, 1}, {64, 2}, {256, 6}, {1024, 22}};
  void *memory;
  JOB_CUDA(cudaMalloc(&memory, (size_t)1024 * MIB));
  for (const auto &it : cases) {
    cudaGraph_t graph;
    JOB_CUDA(cudaStreamBeginCapture(job->stream, cudaStreamCaptureModeThreadLocal));
    JOB_NCCL(ncclBroadcast(memory, memory, it.mib * MIB / 4, FLOAT, 0, job->world, job->stream));
    JOB_CUDA(cudaStreamEndCapture(job->stream, &graph));
    const struct copse_emulated_graph_shape shape = copse_emulated_graph(graph);
    JOB_ASSERT(shape.kernels == it.parts && shape.copies == it.parts && shape.lone_copies == 1,
               "%zu MiB: %d kernels, %d copies, %d alone", it.mib, shape.kernels, shape.copies,
               shape.lone_copies);
    JOB_CUDA(cudaGraphDestroy(graph));
  }
  JOB_CUDA(cudaFree(memory));
}

/* Of a group: one launch for all of its calls. */
static void count_group(struct job *job) {
  const struct side world = {job->world, job->rank, job->n};
  const struct call calls[] = {
      {ALL_REDUCE, 333, FLOAT, SUM, 0, true, 1},      {BROADCAST, 40, INT32, SUM, 0, false, 2},
      {ALL_GATHER, 77, BFLOAT16, SUM, 0, false, 3},   {ALL_TO_ALL, 90, INT64, SUM, 0, false, 4},
      {REDUCE_SCATTER, 55, FLOAT, SUM, 0, false, 5},  {ALL_REDUCE, 300, FLOAT, MAX, 0, false, 6},
      {ALL_GATHER, 900, FLOAT, SUM, 0, false, 7},
  };
  const int n = (int)(sizeof calls / sizeof *calls);
  for (int grouped = 0; grouped < 2; grouped++) {
    struct buffers b[sizeof calls / sizeof *calls];
    for (int i = 0; i < n; i++) prepare(&calls[i], &world, &b[i]);
    const int before = copse_emulated_calls_of("cudaLaunchKernelExC");
    if (grouped) JOB_NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) JOB_NCCL(issue(&calls[i], &world, &b[i], job->stream));
    if (grouped) JOB_NCCL(ncclGroupEnd());
    JOB_CUDA(cudaStreamSynchronize(job->stream));
    const int launches = copse_emulated_calls_of("cudaLaunchKernelExC") - before;
    JOB_ASSERT(launches == (grouped ? 1 : n), "%d launches of %d calls, grouped %d", launches, n, grouped);
    for (int i = 0; i < n; i++) check(&calls[i], &world, &b[i]);
    for (int i = 0; i < n; i++) discard(&b[i]);
  }
}

static void run_counts(struct job *job) {
  JOB_NCCL(ncclCommDestroy(job->world));
  copse_cuda_staging_bytes = 96 * MIB;
  count_making(job);
  count_parts(job);
  count_group(job);
  for (const auto &it : names)
    if (strcmp(it.function, "AllGather") != 0) /* by which the ranks agree */
      JOB_ASSERT(job_nccl_calls(it.function) == 0, "%s by NCCL", it.function);
}

static void run_rank(struct meeting meeting, const char *mode) {
  static const struct {
    const char *name;
    void (*run)(struct job *);
  } modes[] = {{"all", run_all},     {"groups", run_groups}, {"splits", run_splits},
               {"crowd", run_crowd}, {"graphs", run_graphs}, {"abort", run_abort},
               {"joint", run_joint},
               {"held", run_held},
               {"gone", run_gone},   {"fails", run_failing}, {"bare", run_bare},
               {"unjoined", run_unjoined}, {"streams", run_streams}, {"threads", run_threads},
               {"watched", run_watched},   {"engines", run_engines}, {"replays", run_replays},
               {"mixed", run_mixed},       {"faults", run_faults},
               {"lacks", run_lacks},       {"counts", run_counts}};
  const char *what = strchr(mode, '.') + 1;
  struct job job;
  if (strcmp(what, "groups") == 0) setenv("COPSE_NCCL_ALLTOALL", "1", 1);
  if (strcmp(what, "unjoined") == 0) job_nccl_fail("GetUniqueId", 2); /* the first is the world's */
  if (strcmp(what, "bare") == 0 && meeting.rank == meeting.n - 1) unsetenv("COPSE_PLAN_DIR");
  job_begin(&job, meeting, mode);
  for (const auto &it : modes)
    if (strcmp(it.name, what) == 0) it.run(&job);
  job_end(&job);
}

/* ---- all ranks ------------------------------------------------------------------------------------------ */

static const char *const layouts[] = {"0011", "00001111", "01111", "0102", "01", "000"};

START_TEST(every_collective_is_served_or_passed) {
  char mode[24];
  snprintf(mode, sizeof mode, "%s.all", layouts[_i]);
  job_run(mode);
}
END_TEST

START_TEST(groups_are_served_in_part) { job_run(_i ? "00001111.groups" : "0111.groups"); }
END_TEST

START_TEST(splits_are_served_where_there_are_plans) {
  job_run(_i ? "00001111.splits" : "0011.splits");
}
END_TEST

START_TEST(communicators_of_a_group_are_made_alike) { job_run("0101.crowd"); }
END_TEST
START_TEST(graphs_hold_served_and_passed_calls) { job_run(_i ? "00.joint" : "0011.graphs"); }
END_TEST
START_TEST(an_aborted_communicator_is_followed_by_another) { job_run("0011.abort"); }
END_TEST
START_TEST(an_abort_does_not_wait_for_others) { job_run("0011.held"); }
END_TEST
START_TEST(a_process_that_ends_is_a_remote_error) { job_run("0011.gone"); }
END_TEST
START_TEST(a_failure_of_nccl_is_an_error_everywhere) { job_run("0011.fails"); }
END_TEST
START_TEST(a_rank_without_plans_makes_all_pass) { job_run("0011.bare"); }
END_TEST
START_TEST(without_links_between_hosts_all_is_passed) { job_run("0011.unjoined"); }
END_TEST
START_TEST(calls_on_many_streams_are_in_order) { job_run(_i ? "0102.streams" : "0011.streams"); }
END_TEST
START_TEST(threads_have_communicators_of_their_own) { job_run("0011.threads"); }
END_TEST
START_TEST(two_engines_of_a_communicator_are_in_order) {
  static const char *const modes[] = {"00.engines", "00.replays", "00.mixed"};
  job_run(modes[_i]);
}
END_TEST
START_TEST(what_fails_at_one_rank_is_told_the_others) { job_run(_i ? "01.faults" : "00.faults"); }
END_TEST
START_TEST(memory_launches_and_copies_are_counted) { job_run("00.counts"); }
END_TEST
START_TEST(a_rank_that_can_not_join_is_not_waited_for) { job_run("000.lacks"); }
END_TEST
START_TEST(a_watchdog_may_abort) { job_run("0011.watched"); }
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.mode);
    return 0;
  }
  Suite *suite = suite_create("hosts/job");
  TCase *tc = tcase_create("job");
  tcase_set_timeout(tc, 150);
  tcase_add_loop_test(tc, every_collective_is_served_or_passed, COPSE_TEST_UP_TO(0, 2),
                      COPSE_TEST_UP_TO(6, 4));
  if (!COPSE_TEST_RACES) { /* the same threads, serving other calls */
    tcase_add_loop_test(tc, groups_are_served_in_part, 0, COPSE_TEST_UP_TO(2, 1));
    tcase_add_loop_test(tc, splits_are_served_where_there_are_plans, COPSE_TEST_UP_TO(0, 1), 2);
    tcase_add_test(tc, a_rank_without_plans_makes_all_pass);
    tcase_add_test(tc, without_links_between_hosts_all_is_passed);
  }
  tcase_add_test(tc, communicators_of_a_group_are_made_alike);
  tcase_add_loop_test(tc, graphs_hold_served_and_passed_calls, 0, 2);
  tcase_add_test(tc, an_aborted_communicator_is_followed_by_another);
  tcase_add_test(tc, an_abort_does_not_wait_for_others);
  tcase_add_test(tc, a_process_that_ends_is_a_remote_error);
  tcase_add_test(tc, a_failure_of_nccl_is_an_error_everywhere);
  tcase_add_loop_test(tc, calls_on_many_streams_are_in_order, 0, COPSE_TEST_UP_TO(2, 1));
  tcase_add_test(tc, threads_have_communicators_of_their_own);
  tcase_add_test(tc, a_watchdog_may_abort);
  suite_add_tcase(suite, tc);
  TCase *engines = tcase_create("engines");
  tcase_set_timeout(engines, 100);
  tcase_add_loop_test(engines, two_engines_of_a_communicator_are_in_order, 0, 3);
  suite_add_tcase(suite, engines);
  TCase *making = tcase_create("making");
  tcase_set_timeout(making, 100);
  if (!COPSE_TEST_RACES)
    tcase_add_loop_test(making, what_fails_at_one_rank_is_told_the_others, 0, COPSE_TEST_UP_TO(2, 1));
  tcase_add_test(making, a_rank_that_can_not_join_is_not_waited_for);
  tcase_add_test(making, memory_launches_and_copies_are_counted);
  suite_add_tcase(suite, making);
  return copse_test_run(suite);
}
