/* The kernels of a Mixture-of-Experts layer (src/runtime/moe/moe.cu) on the emulated GPU: the same cases and
 * the same bits as on the CPU. */
#include <cuda_runtime.h>
#include <emulation.h>
#include <stdlib.h>

extern "C" {
#include "runtime/comm/executor.h"
#include "support/moe_driver.h"
#include "support/plan_builder.h"
#include "support/support.h"
}

static void copy(void *to, const void *from, size_t bytes) {
  ck_assert_int_eq(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
}

/* Every thread of a GPU is one of the CPU: few cases, and fewer where those are watched. */
#if defined(__SANITIZE_THREAD__)
#define N_RANDOM 3
#define N_LARGE 1
#define LARGE_TOKENS 60
#else
#define N_RANDOM 8
#define N_LARGE 4
#define LARGE_TOKENS 150
#endif

static const struct moe_driver gpu = {&copse_moe_cuda, 0, copy};

/* Few multiprocessors: blocks with more rows than one. */
static void start_with(int multiprocessors) {
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = multiprocessors;
  config.threads = 512; /* each is one of the CPU, and TSan keeps memory for it */
  copse_emulated_configure(&config);
}

static void start(void) { start_with(2); }

static void end(void) {
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
  ck_assert_int_eq(copse_emulated_misuses(), 0);
}

START_TEST(random_layers_are_those_of_the_reference) {
  uint64_t state = 11;
  start();
  for (int i = 0; i < N_RANDOM; i++) {
    struct moe_options options = moe_options_random(&state);
    options.n_ranks = options.n_ranks % 4 + 1;
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

/* Many tokens: runs of several tokens a thread, blocks of several rows, rows of several units. */
START_TEST(large_layers_are_those_of_the_reference) {
  uint64_t state = 12;
  start();
  for (int i = 0; i < N_LARGE; i++) {
    struct moe_options options = moe_options_random(&state);
    options.n_ranks = 2;
    options.config.n_experts = 3;
    options.config.max_tokens = LARGE_TOKENS;
    options.config.capacity = i % 2 ? COPSE_MOE_EXACT : 50;
    options.config.padded = i == 0;
    options.config.row.elements = i % 2 ? 520 : 77;
    options.routing = i % 2 ? MOE_UNIFORM : MOE_DROPPED;
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

START_TEST(every_float_type_is_scaled_and_summed_bit_for_bit) {
  uint64_t state = 13;
  start();
  for (int type = COPSE_HALF; type < COPSE_N_TYPES; type++) {
    struct moe_options options = {};
    options.n_ranks = 2;
    options.config.n_experts = 2;
    options.config.top_k = 2;
    options.config.max_tokens = 9;
    options.config.capacity = COPSE_MOE_EXACT;
    options.config.row = {19, (copse_type)type};
    options.weights = options.scales = true;
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

/* A layer of one rank, and the memory of its buffers. */
struct lone_layer {
  struct copse_moe_job job;
  void *memory, *ids, *weights, *tokens, *combined, *rows;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
};
static const size_t lone_choices = 120 * 4, lone_row_bytes = 24, lone_rows = 100;

static struct moe_options lone_options(void) {
  struct moe_options options = {};
  options.n_ranks = 1;
  options.config.n_experts = 5;
  options.config.top_k = 3;
  options.config.max_tokens = 40; /* rank 0 always has as many */
  options.config.capacity = 20;
  options.config.row = {12, COPSE_HALF};
  options.routing = MOE_DROPPED;
  options.weights = options.echo = true;
  return options;
}

static void make_lone(struct lone_layer *l, const struct moe_options *options) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_moe_shape(&options->config, 1, 0, &l->job, &err), &err);
  ck_assert_uint_eq(copse_moe_rows_at_most(&l->job), lone_rows);
  ASSERT_OK(copse_moe_furnish(&l->job, &options->config, &copse_moe_cuda, 0, &l->memory, &err), &err);
  void **const buffers[] = {&l->ids, &l->weights, &l->tokens, &l->combined, &l->rows};
  const size_t sizes[] = {lone_choices, lone_choices, 40 * lone_row_bytes, 40 * lone_row_bytes,
                          lone_rows * lone_row_bytes};
  for (int i = 0; i < 5; i++) ASSERT_OK(copse_moe_cuda.take(0, sizes[i], buffers[i], &err), &err);
  l->job.n_tokens = 40;
  l->job.expert_ids = static_cast<int32_t *>(l->ids);
  l->job.tokens_in = static_cast<unsigned char *>(l->tokens);
  l->job.tokens_out = static_cast<unsigned char *>(l->combined);
  l->job.rows = static_cast<unsigned char *>(l->rows);
  copse_moe_set_row(&l->job, &options->config.row, l->tokens, l->rows);
}

static void capture_lone(struct lone_layer *l) {
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert_int_eq(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), cudaSuccess);
  ck_assert_int_eq(cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  for (int step = COPSE_MOE_LOCATE; step <= COPSE_MOE_REDUCE; step++) {
    l->job.weights = step == COPSE_MOE_REDUCE ? l->weights : NULL;
    ASSERT_OK(copse_moe_cuda.run(0, (enum copse_moe_step)step, &l->job, l->stream, &err), &err);
  }
  ck_assert_int_eq(cudaStreamEndCapture(l->stream, &l->graph), cudaSuccess);
  ck_assert_int_eq(cudaGraphInstantiate(&l->exec, l->graph, 0), cudaSuccess);
}

/* Replays the graph with a routing; the rows that come are what the experts answer. */
static void replay_lone(struct lone_layer *l, struct moe_case *c) {
  struct moe_rank *r = &c->ranks[0];
  unsigned char got[lone_rows * lone_row_bytes], sums[40 * lone_row_bytes];
  copy(l->ids, r->expert_ids, lone_choices);
  copy(l->weights, r->weights, lone_choices);
  copy(l->tokens, r->tokens, sizeof sums);
  ck_assert_int_eq(cudaMemset(l->rows, MOE_POISON, sizeof got), cudaSuccess);
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
  ck_assert_int_eq(cudaGraphLaunch(l->exec, l->stream), cudaSuccess);
  ck_assert_int_eq(cudaStreamSynchronize(l->stream), cudaSuccess);
  copy(got, l->rows, sizeof got);
  copy(sums, l->combined, sizeof sums);
  moe_check_rows(c, 0, got, (int64_t)lone_rows);
  moe_check_combined(c, 0, sums);
}

/* A layer of one rank in a graph: captured once, replayed on what lies in its buffers then. */
START_TEST(a_captured_layer_is_replayed_with_new_routings) {
  struct lone_layer l;
  uint64_t state = 14;
  const struct moe_options options = lone_options();
  start();
  make_lone(&l, &options);
  capture_lone(&l);
  for (int round = 0; round < 3; round++) {
    struct moe_case *c = moe_case_new(&options, &state);
    replay_lone(&l, c);
    moe_case_free(c);
  }
  ck_assert_int_eq(cudaGraphExecDestroy(l.exec), cudaSuccess);
  ck_assert_int_eq(cudaGraphDestroy(l.graph), cudaSuccess);
  ck_assert_int_eq(cudaStreamDestroy(l.stream), cudaSuccess);
  void *const taken[] = {l.ids, l.weights, l.tokens, l.combined, l.rows, l.memory};
  for (void *memory : taken) copse_moe_cuda.give_back(0, memory);
  end();
}
END_TEST

/* ---- through the public API: virtual ranks, streams, graphs --------------------------------- */

extern uint32_t copse_cuda_threads;

#define MAX_RANKS 3
#define API_OK(call)                                                           \
  do {                                                                         \
    if ((call) != COPSE_OK) ck_abort_msg("%s: %s", #call, copse_last_error()); \
  } while (0)

/* A layer on a communicator, and buffers of every rank for the largest case. */
struct layer {
  uint32_t n;
  struct moe_options options;
  struct copse_plan *plans[2];
  copse_comm *comms[MAX_RANKS];
  copse_moe *moes[MAX_RANKS];
  copse_moe_dispatch_args dispatch[MAX_RANKS];
  copse_moe_combine_args combine[MAX_RANKS];
};

static void *take(size_t bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  void *p;
  ASSERT_OK(copse_moe_cuda.take(0, bytes, &p, &err), &err);
  return p;
}

static void layer_open(struct layer *l, const struct moe_options *options, const int *devices) {
  static const struct pb_options small = {2, 2, 2, 3, 512, 64};
  const copse_moe_config *config = &options->config;
  l->n = options->n_ranks;
  l->options = *options;
  API_OK(copse_comm_init_all(l->comms, (int)l->n, devices));
  l->plans[0] = pb_ring_allgather(l->n, small);
  l->plans[1] = pb_tree_plan(COPSE_ALLTOALL, l->n, -1, small);
  for (int i = 0; i < 2; i++) API_OK(copse_comm_add_plan(l->comms[0], l->plans[i]));
  for (uint32_t r = 0; r < l->n; r++) {
    const size_t row = (size_t)config->row.elements * copse_type_bytes(config->row.type);
    const size_t choices = (size_t)config->max_tokens * (size_t)config->top_k;
    API_OK(copse_moe_create(l->comms[r], config, &l->moes[r]));
    void *rows = take((size_t)copse_moe_max_rows(l->moes[r]) * row);
    l->dispatch[r] = {};
    l->dispatch[r].tokens = take((size_t)config->max_tokens * row);
    l->dispatch[r].n_tokens = config->max_tokens;
    l->dispatch[r].expert_ids = static_cast<int32_t *>(take(choices * sizeof(int32_t)));
    l->dispatch[r].rows = rows;
    l->combine[r] = {};
    l->combine[r].rows = rows;
    l->combine[r].weights = take(choices * sizeof(float));
    l->combine[r].tokens = take((size_t)config->max_tokens * row);
  }
}

static void layer_close(struct layer *l) {
  for (uint32_t r = 0; r < l->n; r++) {
    const void *const memory[] = {l->dispatch[r].tokens, l->dispatch[r].expert_ids,
                                  l->dispatch[r].rows, l->combine[r].weights, l->combine[r].tokens};
    for (const void *m : memory) copse_moe_cuda.give_back(0, const_cast<void *>(m));
    copse_moe_free(l->moes[r]);
  }
  for (uint32_t r = 0; r < l->n; r++) API_OK(copse_comm_destroy(l->comms[r]));
  for (int i = 0; i < 2; i++) pb_free(l->plans[i]);
}

/* Every rank has max_tokens tokens, so that what was captured once fits. */
static void layer_fill(const struct layer *l, const struct moe_case *c) {
  for (uint32_t r = 0; r < l->n; r++) {
    const struct moe_rank *in = &c->ranks[r];
    const size_t choices = (size_t)in->n_tokens * (size_t)l->options.config.top_k;
    ck_assert_int_eq(in->n_tokens, l->options.config.max_tokens);
    copy(const_cast<void *>(l->dispatch[r].tokens), in->tokens,
         (size_t)in->n_tokens * c->row_bytes);
    copy(const_cast<int32_t *>(l->dispatch[r].expert_ids), in->expert_ids, choices * 4);
    copy(const_cast<void *>(l->combine[r].weights), in->weights, choices * 4);
    ck_assert_int_eq(cudaMemset(l->dispatch[r].rows, MOE_POISON,
                                (size_t)copse_moe_max_rows(l->moes[r]) * c->row_bytes),
                     cudaSuccess);
  }
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
}

static void *fetch(const void *from, size_t bytes) {
  void *p = malloc(bytes + 1);
  copy(p, from, bytes);
  return p;
}

static void layer_check(const struct layer *l, const struct moe_case *c) {
  for (uint32_t r = 0; r < l->n; r++) {
    const int64_t most = copse_moe_max_rows(l->moes[r]);
    void *rows = fetch(l->dispatch[r].rows, (size_t)most * c->row_bytes);
    void *tokens = fetch(l->combine[r].tokens, (size_t)c->ranks[r].n_tokens * c->row_bytes);
    moe_check_rows(c, r, static_cast<unsigned char *>(rows), most);
    moe_check_combined(c, r, static_cast<unsigned char *>(tokens));
    free(rows);
    free(tokens);
  }
}

/* Exact messages are nothing to ranks of one process: no waiting, and graphs too. */
static struct moe_options virtual_ranks(void) {
  struct moe_options options = {};
  options.config.exact_messages = 1;
  options.n_ranks = MAX_RANKS;
  options.config.n_experts = 4;
  options.config.top_k = 2;
  options.config.max_tokens = 10;
  options.config.capacity = COPSE_MOE_EXACT;
  options.config.row = {24, COPSE_BFLOAT16};
  options.weights = options.echo = options.full = true;
  return options;
}

START_TEST(virtual_ranks_with_streams_of_their_own) {
  static const int devices[MAX_RANKS] = {0, 0, 0};
  const struct moe_options options = virtual_ranks();
  cudaStream_t streams[MAX_RANKS];
  uint64_t state = 15;
  struct layer l;
  start_with(32); /* all workers of a plan at once */
  layer_open(&l, &options, devices);
  for (uint32_t r = 0; r < l.n; r++) {
    ck_assert_int_eq(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking), cudaSuccess);
    l.dispatch[r].stream = l.combine[r].stream = streams[r];
  }
  for (int round = 0; round < 2; round++) {
    struct moe_case *c = moe_case_new(&options, &state);
    layer_fill(&l, c);
    API_OK(copse_moe_dispatch_all(l.moes, l.dispatch, (int)l.n));
    API_OK(copse_moe_combine_all(l.moes, l.combine, (int)l.n));
    for (uint32_t r = 0; r < l.n; r++)
      ck_assert_int_eq(cudaStreamSynchronize(streams[r]), cudaSuccess);
    layer_check(&l, c);
    moe_case_free(c);
  }
  layer_close(&l);
  for (uint32_t r = 0; r < l.n; r++) ck_assert_int_eq(cudaStreamDestroy(streams[r]), cudaSuccess);
  end();
}
END_TEST

START_TEST(dispatch_and_combine_are_captured_into_one_graph) {
  static const int devices[MAX_RANKS] = {0, 0, 0};
  const struct moe_options options = virtual_ranks();
  uint64_t state = 16;
  struct layer l;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  start_with(32); /* all workers of a plan at once */
  layer_open(&l, &options, devices);
  ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (uint32_t r = 0; r < l.n; r++) l.dispatch[r].stream = l.combine[r].stream = stream;
  ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  API_OK(copse_moe_dispatch_all(l.moes, l.dispatch, (int)l.n));
  API_OK(copse_moe_combine_all(l.moes, l.combine, (int)l.n));
  ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ck_assert_int_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int round = 0; round < 2; round++) {
    struct moe_case *c = moe_case_new(&options, &state);
    layer_fill(&l, c);
    ck_assert_int_eq(cudaGraphLaunch(exec, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    layer_check(&l, c);
    moe_case_free(c);
  }
  ck_assert_int_eq(cudaGraphExecDestroy(exec), cudaSuccess);
  ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
  layer_close(&l);
  ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
  end();
}
END_TEST

/* ---- counts on their way to the host ---------------------------------------------------------- */

START_TEST(counts_come_to_the_host) {
  const struct copse_moe_counts_ops *ops = copse_moe_cuda.counts;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_moe_counts counts;
  struct copse_moe_job job = {};
  cudaStream_t streams[2];
  cudaGraph_t graph;
  uint64_t pairs[2][9];
  void *memory;
  start();
  job.n_ranks = 3;
  for (uint64_t i = 0; i < 9; i++) {
    pairs[0][i] = 100 * i;
    pairs[1][i] = 7 + i;
  }
  ASSERT_OK(copse_moe_cuda.take(0, 1024, &memory, &err), &err);
  job.pairs = static_cast<uint64_t *>(memory);
  job.pairs_back = job.pairs + 64;
  copy(job.pairs, pairs[0], sizeof pairs[0]);
  copy(job.pairs_back, pairs[1], sizeof pairs[1]);
  ASSERT_OK(ops->take(0, 3, &counts, &err), &err);
  for (cudaStream_t &s : streams)
    ck_assert_int_eq(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  /* what another stream's capture in the strictest mode must survive */
  ck_assert_int_eq(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal), cudaSuccess);
  ck_assert(!ops->is_captured(0, streams[0]) && ops->is_captured(0, streams[1]));
  ASSERT_OK(ops->fetch(0, &job, &counts, streams[0], &err), &err);
  ASSERT_OK(ops->wait(0, &counts, &err), &err);
  ck_assert_int_eq(cudaStreamEndCapture(streams[1], &graph), cudaSuccess);
  ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
  ck_assert_int_eq(memcmp(counts.pairs, pairs[0], sizeof pairs[0]), 0);
  ck_assert_int_eq(memcmp(counts.pairs_back, pairs[1], sizeof pairs[1]), 0);
  static const char *const calls[] = {"cudaMemcpyAsync", "cudaEventRecord"};
  for (const char *call : calls) {
    err = COPSE_ERR_INIT;
    copse_emulated_fail(call, 1, cudaErrorLaunchFailure);
    ASSERT_FAILS(ops->fetch(0, &job, &counts, streams[0], &err), COPSE_DEVICE, &err, call);
  }
  err = COPSE_ERR_INIT;
  copse_emulated_fail("cudaEventSynchronize", 1, cudaErrorLaunchFailure);
  ASSERT_FAILS(ops->wait(0, &counts, &err), COPSE_DEVICE, &err, "cudaEventSynchronize");
  ops->give_back(0, &counts);
  ops->give_back(0, &counts); /* zeroed now */
  for (cudaStream_t s : streams) ck_assert_int_eq(cudaStreamDestroy(s), cudaSuccess);
  copse_moe_cuda.give_back(0, memory);
  end();
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------ */

START_TEST(memory_that_is_not_there_is_reported) {
  struct copse_err err = COPSE_ERR_INIT;
  void *memory;
  start();
  ASSERT_FAILS(copse_moe_cuda.take(0, (uint64_t)1 << 50, &memory, &err), COPSE_NOMEM, &err,
               "cudaMalloc");
  ck_assert_ptr_null(memory);
  static const char *const calls[] = {"cudaMemsetAsync", "cudaStreamSynchronize"};
  for (const char *call : calls) {
    err = COPSE_ERR_INIT;
    copse_emulated_fail(call, 1, cudaErrorLaunchFailure);
    ASSERT_FAILS(copse_moe_cuda.take(0, 1000, &memory, &err), COPSE_DEVICE, &err, call);
    ck_assert_ptr_null(memory);
  }
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}
END_TEST

int main(void) {
  copse_cuda_threads = 3; /* each of a block's is one of the CPU's */
  Suite *suite = suite_create("cuda/moe");
  TCase *tc = tcase_create("moe");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, random_layers_are_those_of_the_reference);
  tcase_add_test(tc, large_layers_are_those_of_the_reference);
  tcase_add_test(tc, every_float_type_is_scaled_and_summed_bit_for_bit);
  tcase_add_test(tc, a_captured_layer_is_replayed_with_new_routings);
  tcase_add_test(tc, virtual_ranks_with_streams_of_their_own);
  tcase_add_test(tc, dispatch_and_combine_are_captured_into_one_graph);
  tcase_add_test(tc, counts_come_to_the_host);
  tcase_add_test(tc, memory_that_is_not_there_is_reported);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
