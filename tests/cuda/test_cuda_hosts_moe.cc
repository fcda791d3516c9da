/*
 * An MoE layer over several hosts, through the public API: one rank per process on emulated GPUs,
 * a stand-in for NCCL between hosts. The digits of a mode name each rank's host.
 */
#include <stdlib.h>
#include <unistd.h>

#include "copse/moe.h"
#include "cuda/stand_in_nccl.h"
#include "emulation/emulation.h"
#include "runtime/internode/internode.h"

extern "C" {
#include "support/moe_case.h"
#include "support/support.h"
}

#define API_OK(call) DEVICE_ASSERT((call) == COPSE_OK, "%s: %s", #call, copse_last_error())

/* ---- one rank ---------------------------------------------------------------------------- */

struct layer {
  struct moe_options options;
  uint32_t rank;
  struct copse_plan *plans[2];
  copse_comm *comm;
  copse_moe *moe;
  copse_moe_dispatch_args dispatch;
  copse_moe_combine_args combine;
};

static void *take(size_t bytes) {
  void *p = NULL;
  CUDA_OK(cudaMalloc(&p, bytes));
  return p;
}

/* Exact, or with a capacity; every rank has all its tokens, so that a graph fits each routing. */
static struct moe_options options_of(uint32_t n, bool exact) {
  struct moe_options options;
  memset(&options, 0, sizeof options);
  options.n_ranks = n;
  options.config.n_experts = (int)n + 1;
  options.config.top_k = 2;
  options.config.max_tokens = 20;
  options.config.capacity = exact ? COPSE_MOE_EXACT : 5;
  options.config.row = {24, COPSE_BFLOAT16};
  options.weights = options.echo = options.full = true;
  return options;
}

static void layer_open(struct layer *l, struct stand_in_comm *nccl,
                       const struct moe_options *options) {
  static const struct pb_options small = {2, 2, 2, 3, 512, 64};
  const uint32_t n = (uint32_t)nccl->meeting->n;
  memset(l, 0, sizeof *l);
  l->options = *options;
  l->rank = (uint32_t)nccl->meeting->rank;
  const copse_moe_config *config = &l->options.config;
  const size_t tokens = (size_t)config->max_tokens, choices = 8 * tokens * (size_t)config->top_k;
  const size_t row = (size_t)config->row.elements * copse_type_bytes(config->row.type);
  API_OK(copse_comm_init_nccl(&l->comm, nccl));
  API_OK(copse_comm_set_timeout(l->comm, 60));
  l->plans[0] = pb_ring_allgather(n, small);
  l->plans[1] = pb_tree_plan(COPSE_ALLTOALL, n, -1, small);
  for (struct copse_plan *plan : l->plans) API_OK(copse_comm_add_plan(l->comm, plan));
  API_OK(copse_moe_create(l->comm, config, &l->moe));
  l->dispatch.tokens = take(tokens * row);
  l->dispatch.n_tokens = config->max_tokens;
  l->dispatch.expert_ids = (int32_t *)take(choices);
  l->dispatch.rows = take((size_t)copse_moe_max_rows(l->moe) * row);
  l->combine.rows = l->dispatch.rows;
  l->combine.weights = take(choices);
  l->combine.tokens = take(tokens * row);
}

static void layer_close(struct layer *l) {
  const void *const memory[] = {l->dispatch.tokens, l->dispatch.expert_ids, l->dispatch.rows,
                                l->combine.weights, l->combine.tokens};
  for (const void *m : memory) CUDA_OK(cudaFree((void *)(uintptr_t)m));
  copse_moe_free(l->moe);
  API_OK(copse_comm_destroy(l->comm));
  for (struct copse_plan *plan : l->plans) pb_free(plan);
}

static void layer_fill(const struct layer *l, const struct moe_case *c) {
  const struct moe_rank *in = &c->ranks[l->rank];
  const size_t choices = (size_t)in->n_tokens * (size_t)l->options.config.top_k;
  const size_t most = (size_t)copse_moe_max_rows(l->moe);
  const size_t weight = l->options.config.row.type == COPSE_DOUBLE ? 8 : 4;
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->dispatch.tokens, in->tokens,
                     (size_t)in->n_tokens * c->row_bytes, cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->dispatch.expert_ids, in->expert_ids, 4 * choices,
                     cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->combine.weights, in->weights, weight * choices,
                     cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemset(l->dispatch.rows, MOE_POISON, most * c->row_bytes));
  CUDA_OK(cudaDeviceSynchronize());
}

static void layer_check(const struct layer *l, const struct moe_case *c) {
  const size_t most = (size_t)copse_moe_max_rows(l->moe), n = (size_t)c->ranks[l->rank].n_tokens;
  unsigned char *rows = (unsigned char *)malloc((most + n) * c->row_bytes + 1);
  unsigned char *tokens = rows + most * c->row_bytes;
  CUDA_OK(cudaMemcpy(rows, l->dispatch.rows, most * c->row_bytes, cudaMemcpyDeviceToHost));
  CUDA_OK(cudaMemcpy(tokens, l->combine.tokens, n * c->row_bytes, cudaMemcpyDeviceToHost));
  moe_check_rows(c, l->rank, rows, (int64_t)most);
  moe_check_combined(c, l->rank, tokens);
  free(rows);
}

static void run_layer(const struct layer *l) {
  API_OK(copse_moe_dispatch(l->moe, &l->dispatch));
  API_OK(copse_moe_combine(l->moe, &l->combine));
}

/* Each round another routing, alike at all ranks: eagerly, then as one graph. */
static void run_graphs(struct stand_in_comm *nccl, const char *mode) {
  const struct moe_options all = options_of((uint32_t)nccl->meeting->n, strstr(mode, "exact"));
  struct layer l;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  uint64_t state = 15;
  layer_open(&l, nccl, &all);
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  l.dispatch.stream = l.combine.stream = stream;
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  run_layer(&l);
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 4; round++) {
    struct moe_options options = l.options;
    options.routing = (enum moe_routing)round; /* uniform, popular ones, all to one, none */
    struct moe_case *c = moe_case_new(&options, &state);
    layer_fill(&l, c);
    if (round % 2) {
      CUDA_OK(cudaGraphLaunch(exec, stream));
    } else {
      run_layer(&l);
    }
    CUDA_OK(cudaStreamSynchronize(stream));
    layer_check(&l, c);
    moe_case_free(c);
  }
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
  layer_close(&l);
  CUDA_OK(cudaStreamDestroy(stream));
}

/* ---- exact messages --------------------------------------------------------------------------- */

/* Rows of doubles: no message with some is as long as a word. Ranks have few tokens, many, or
 * none. */
static struct moe_options exact_options(uint32_t n, bool capacity) {
  struct moe_options options = options_of(n, !capacity);
  options.config.padded = capacity;
  options.config.exact_messages = 1;
  options.config.top_k = 3;
  options.config.row = {5, COPSE_DOUBLE};
  options.config.combined = {3, COPSE_DOUBLE};
  options.full = options.echo = false;
  options.idle = true;
  return options;
}

/* Rows that the rank sends to other hosts' ranks, or (back) has from them. */
static uint64_t crossing_rows(const struct layer *l, const struct moe_case *c, const char *hosts,
                              bool back) {
  const uint32_t n = l->options.n_ranks, n_experts = (uint32_t)l->options.config.n_experts;
  uint64_t rows = 0;
  for (uint32_t other = 0; other < n; other++) {
    if (hosts[other] == hosts[l->rank]) continue;
    const uint32_t from = back ? other : l->rank, to = back ? l->rank : other;
    for (uint32_t e = to * n_experts / n; e < (to + 1) * n_experts / n; e++)
      rows += (uint64_t)c->taken[from * n_experts + e];
  }
  return rows;
}

struct traffic {
  uint64_t dispatched, combined; /* bytes */
};

/* The tokens' rows, and what the experts make of them on the way back. */
static struct traffic run_case(struct layer *l, const struct moe_case *c, unsigned char *rows,
                               unsigned char *tokens) {
  const struct moe_rank *in = &c->ranks[l->rank];
  const size_t most = (size_t)copse_moe_max_rows(l->moe), n = (size_t)in->n_tokens;
  const uint64_t before = stand_in_sent_data();
  layer_fill(l, c);
  l->dispatch.n_tokens = in->n_tokens;
  API_OK(copse_moe_dispatch(l->moe, &l->dispatch));
  const uint64_t between = stand_in_sent_data();
  CUDA_OK(cudaStreamSynchronize((cudaStream_t)l->dispatch.stream));
  CUDA_OK(cudaMemcpy(rows, l->dispatch.rows, most * c->row_bytes, cudaMemcpyDeviceToHost));
  CUDA_OK(cudaMemcpy(l->dispatch.rows, in->answers, (size_t)in->n_rows * c->combined_bytes,
                     cudaMemcpyHostToDevice));
  CUDA_OK(cudaDeviceSynchronize());
  API_OK(copse_moe_combine(l->moe, &l->combine));
  const uint64_t after = stand_in_sent_data();
  CUDA_OK(cudaStreamSynchronize((cudaStream_t)l->dispatch.stream));
  CUDA_OK(cudaMemcpy(tokens, l->combine.tokens, n * c->combined_bytes, cudaMemcpyDeviceToHost));
  moe_check_rows(c, l->rank, rows, (int64_t)most);
  moe_check_combined(c, l->rank, tokens);
  return {between - before, after - between};
}

/* What the exchange of counts sends, which is the same each time: a routing without a row. */
static uint64_t bytes_of_counts(struct layer *l, unsigned char *rows, unsigned char *tokens) {
  struct moe_options options = l->options;
  uint64_t state = 7;
  options.routing = MOE_NONE;
  struct moe_case *c = moe_case_new(&options, &state);
  const struct traffic it = run_case(l, c, rows, tokens);
  DEVICE_ASSERT(!l->options.config.exact_messages || it.combined == 0,
                "%llu bytes where there are no rows", (unsigned long long)it.combined);
  moe_case_free(c);
  return it.dispatched;
}

static void refuse_capture(struct layer *l) {
  cudaStream_t stream = (cudaStream_t)l->dispatch.stream;
  cudaGraph_t graph;
  size_t n_nodes = 1;
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int combines = 0; combines < 2; combines++) {
    copse_status status = combines ? copse_moe_combine(l->moe, &l->combine)
                                   : copse_moe_dispatch(l->moe, &l->dispatch);
    DEVICE_ASSERT(status == COPSE_UNSUPPORTED && strstr(copse_last_error(), "exact_messages") &&
                      !strchr(copse_last_error(), '\n'),
                  "%s: %s", copse_status_string(status), copse_last_error());
  }
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphGetNodes(graph, NULL, &n_nodes));
  DEVICE_ASSERT(n_nodes == 0, "%zu nodes of calls that were refused", n_nodes);
  CUDA_OK(cudaGraphDestroy(graph));
}

/* Where all ranks share a host nothing waits, and all of it may be captured. */
static void capture(struct layer *l) {
  cudaStream_t stream = (cudaStream_t)l->dispatch.stream;
  cudaGraph_t graph;
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  run_layer(l);
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphDestroy(graph));
}

/* The same routings by a layer with exact messages and by one without: the same bits. */
static void run_messages(struct stand_in_comm *nccl, const char *hosts) {
  const bool capacity = strstr(hosts, "capacity") != NULL;
  const struct moe_options options = exact_options((uint32_t)nccl->meeting->n, capacity);
  const bool one_host = (int)strspn(hosts, "0") == nccl->meeting->n;
  struct layer l[2];
  unsigned char *rows[2], *tokens[2];
  uint64_t of_counts[2], whole = 0, exact = 0, state = 33;
  cudaStream_t stream;
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 2; i++) {
    struct moe_options own = options;
    own.config.exact_messages = i == 0;
    layer_open(&l[i], nccl, &own);
    l[i].dispatch.stream = l[i].combine.stream = stream;
    rows[i] = (unsigned char *)calloc((size_t)copse_moe_max_rows(l[i].moe) + 1, 40);
    tokens[i] = (unsigned char *)calloc((size_t)own.config.max_tokens + 1, 40);
    of_counts[i] = bytes_of_counts(&l[i], rows[i], tokens[i]);
  }
  for (int round = 0; round < 2 * MOE_N_ROUTINGS; round++) {
    struct moe_options now = options;
    struct traffic sent[2];
    now.routing = (enum moe_routing)(round % MOE_N_ROUTINGS);
    now.full = round == MOE_ZIPF;
    struct moe_case *c = moe_case_new(&now, &state);
    for (int i = 0; i < 2; i++) sent[i] = run_case(&l[i], c, rows[i], tokens[i]);
    const uint64_t out = c->row_bytes * crossing_rows(&l[0], c, hosts, false);
    const uint64_t back = c->combined_bytes * crossing_rows(&l[0], c, hosts, true);
    DEVICE_ASSERT(sent[0].dispatched - of_counts[0] == out && sent[0].combined == back,
                  "rank %u, routing %d: %llu bytes out, there are %llu; %llu back, of %llu",
                  l[0].rank, now.routing, (unsigned long long)(sent[0].dispatched - of_counts[0]),
                  (unsigned long long)out, (unsigned long long)sent[0].combined,
                  (unsigned long long)back);
    DEVICE_ASSERT(memcmp(rows[0], rows[1], (size_t)copse_moe_max_rows(l[0].moe) * c->row_bytes) ==
                          0 &&
                      memcmp(tokens[0], tokens[1],
                             (size_t)c->ranks[l[0].rank].n_tokens * c->combined_bytes) == 0,
                  "rank %u: other bits than without exact messages", l[0].rank);
    exact += sent[0].dispatched + sent[0].combined;
    whole += sent[1].dispatched + sent[1].combined;
    moe_case_free(c);
  }
  DEVICE_ASSERT(one_host || (capacity ? 1 : 2) * exact < whole, "%llu bytes instead of %llu",
                (unsigned long long)exact, (unsigned long long)whole);
  if (one_host)
    capture(&l[0]);
  else
    refuse_capture(&l[0]);
  for (int i = 0; i < 2; i++) {
    layer_close(&l[i]);
    free(rows[i]);
    free(tokens[i]);
  }
  CUDA_OK(cudaStreamDestroy(stream));
}

/* Rank 2 is gone: whoever waits for the counts comes back, and says why. */
static void run_missing(struct stand_in_comm *nccl) {
  const struct moe_options options = exact_options((uint32_t)nccl->meeting->n, false);
  struct layer l;
  copse_status async = COPSE_OK;
  layer_open(&l, nccl, &options);
  if (l.rank == 2) _exit(0);
  API_OK(copse_comm_set_timeout(l.comm, 0.5));
  CUDA_OK(cudaMemset((void *)(uintptr_t)l.dispatch.expert_ids, 0, 4));
  CUDA_OK(cudaDeviceSynchronize());
  l.dispatch.n_tokens = 1;
  copse_status status = copse_moe_dispatch(l.moe, &l.dispatch);
  CUDA_OK(cudaDeviceSynchronize());
  API_OK(copse_comm_get_async_error(l.comm, &async));
  DEVICE_ASSERT(async == COPSE_TIMEOUT || async == COPSE_ABORTED, "rank %u: %s, %s", l.rank,
                copse_status_string(status), copse_status_string(async));
  DEVICE_ASSERT(status == COPSE_OK || status == async, "rank %u: %s", l.rank,
                copse_status_string(status));
  layer_close(&l);
}

/* A layer whose making fails gives back what it took. */
static void run_failing(struct stand_in_comm *nccl) {
  const struct moe_options options = exact_options((uint32_t)nccl->meeting->n, false);
  static const char *const calls[] = {"cudaHostAlloc", "cudaEventCreateWithFlags", "cudaMalloc"};
  struct layer l;
  copse_moe *moe;
  layer_open(&l, nccl, &options);
  for (const char *call : calls) {
    copse_emulated_fail(call, 1, cudaErrorMemoryAllocation);
    copse_status status = copse_moe_create(l.comm, &options.config, &moe);
    DEVICE_ASSERT(status == COPSE_NOMEM && !moe && strstr(copse_last_error(), call), "%s: %s, %s",
                  call, copse_status_string(status), copse_last_error());
  }
  layer_close(&l);
}

static void run_rank(struct meeting meeting, const char *mode) {
  struct stand_in_comm nccl(&meeting);
  stand_in_meet(&meeting);
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 80;
  copse_emulated_configure(&config);
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  copse_cuda_leave_seconds = 60;
  setenv("COPSE_SEVERAL_HOSTS", "1", 1);
  copse_cuda_host = 1 + (uint64_t)(mode[meeting.rank] - '0');
  if (strstr(mode, "messages"))
    run_messages(&nccl, mode);
  else if (strstr(mode, "misses"))
    run_missing(&nccl);
  else if (strstr(mode, "fails"))
    run_failing(&nccl);
  else
    run_graphs(&nccl, mode);
  stand_in_free();
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* ---- all ranks ------------------------------------------------------------------------------ */

START_TEST(layers_over_hosts_are_those_of_the_reference) {
  static const char *const modes[] = {"0011.exact", "0011.capacity", "0102.exact"};
  processes_run(COPSE_ALLTOALL, modes[_i], 4);
}
END_TEST

START_TEST(exact_messages_are_as_long_as_there_are_rows) {
  static const char *const modes[] = {"0011.messages", "0111.messages", "0102.messages",
                                      "01.messages", "000.messages", "0011.capacity.messages"};
  processes_run(COPSE_ALLTOALL, modes[_i], (int)strcspn(modes[_i], "."));
}
END_TEST

START_TEST(waiting_for_counts_ends_where_a_rank_is_gone) {
  processes_run(COPSE_ALLTOALL, "0011.misses", 4);
}
END_TEST

START_TEST(a_layer_that_cannot_be_made_leaves_nothing) {
  processes_run(COPSE_ALLTOALL, "01.fails", 2);
}
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.mode);
    return 0;
  }
  Suite *suite = suite_create("cuda/hosts_moe");
  TCase *tc = tcase_create("moe");
  tcase_set_timeout(tc, 150);
  tcase_add_loop_test(tc, layers_over_hosts_are_those_of_the_reference, 0, COPSE_TEST_SWEEPS ? 3 : 1);
  tcase_add_loop_test(tc, exact_messages_are_as_long_as_there_are_rows, COPSE_TEST_SWEEPS ? 0 : 4, 6);
  tcase_add_test(tc, waiting_for_counts_ends_where_a_rank_is_gone);
  tcase_add_test(tc, a_layer_that_cannot_be_made_leaves_nothing);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
