/*
 * An MoE layer over several hosts, through the public API: one rank per process on emulated GPUs,
 * a stand-in for NCCL between hosts. The digits of a mode name each rank's host.
 */
#include <stdlib.h>
#include <unistd.h>

#include "copse/moe.h"
#include "cuda/stand_in_nccl.h"
#include "emulation/emulation.h"
#include "runtime/cuda/cuda_machine.h"

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

static void layer_open(struct layer *l, struct stand_in_comm *nccl, bool exact) {
  static const struct pb_options small = {2, 2, 2, 3, 512, 64};
  const uint32_t n = (uint32_t)nccl->meeting->n;
  memset(l, 0, sizeof *l);
  l->options = options_of(n, exact);
  l->rank = (uint32_t)nccl->meeting->rank;
  const copse_moe_config *config = &l->options.config;
  const size_t tokens = (size_t)config->max_tokens, row = 48, choices = 4 * tokens * 2;
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
  const size_t choices = 4 * (size_t)in->n_tokens * 2, most = (size_t)copse_moe_max_rows(l->moe);
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->dispatch.tokens, in->tokens,
                     (size_t)in->n_tokens * c->row_bytes, cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->dispatch.expert_ids, in->expert_ids, choices,
                     cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemcpy((void *)(uintptr_t)l->combine.weights, in->weights, choices,
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
static void run_rank(struct meeting meeting, const char *mode) {
  struct stand_in_comm nccl = {&meeting, false};
  stand_in_meet(&meeting);
  struct layer l;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  uint64_t state = 15;
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 80;
  copse_emulated_configure(&config);
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  copse_cuda_lanes_bytes = 150;
  copse_cuda_host = 1 + (uint64_t)(mode[meeting.rank] - '0');
  layer_open(&l, &nccl, strstr(mode, "exact") != NULL);
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

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.mode);
    return 0;
  }
  Suite *suite = suite_create("cuda/hosts_moe");
  TCase *tc = tcase_create("moe");
  tcase_set_timeout(tc, 150);
  tcase_add_loop_test(tc, layers_over_hosts_are_those_of_the_reference, 0, 3);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
