/* The CUDA backend on emulated GPUs: the kernels and host code of src/runtime/gpu, run by CPU
 * threads against the CPU executors' test data. */

#include "cuda/process_case.h"
#include "runtime/gpu/cuda_backend.h"
#include "runtime/gpu/sync.cuh"
#include "emulation/emulation_tests.h"

extern "C" {
#include "runtime/moe/job.h"
#include "support/support.h"
}

extern uint32_t copse_cuda_threads;

/* The default check takes few of what only repeats. */
static int up_to(int all, int few) { return COPSE_TEST_SWEEPS ? all : few; }

static const struct pb_options small = {2, 2, 2, 3, 512, 64};

static void setup(void) {
  copse_emulated_config config = copse_emulated_defaults();
  config.devices = 3;
  config.multiprocessors = 64;
  copse_emulated_configure(&config);
  copse_cuda_threads = 3;
}

static void teardown(void) {
  ck_assert_int_eq(copse_emulated_misuses(), 0);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}

/* A rank's call on floats, without a root. */
static struct copse_call call_of(copse_collective collective, uint64_t count, const void *send, void *recv,
                                 copse_stream stream) {
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = collective;
  call.root = -1;
  call.count = count;
  call.type = COPSE_FLOAT;
  call.send = send;
  call.recv = recv;
  call.stream = stream;
  return call;
}

static struct copse_plan *tree_plan(copse_collective collective, uint32_t n) {
  return pb_tree_plan(collective, n, exec_case_root(collective, n), small);
}

/* Every collective, type, reduction and a few counts, in and out of place. */
START_TEST(every_collective_is_right) {
  const copse_collective collective = (copse_collective)_i;
  static const uint64_t counts[] = {1, 37, 1000};
  struct copse_plan *plan = tree_plan(collective, 3);
  struct device_plan d;
  device_plan_open(&d, plan, 1, ONE_STREAM);
  int redops = copse_collective_reduces(collective) ? COPSE_N_REDOPS : 1;
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < redops; redop++)
      for (int k = 0; k < 3; k++) {
        if ((type + redop + k) % COPSE_TEST_ONE_IN) continue;
        bool in_place = copse_buffers_has_in_place(collective) && (type + redop + k) % 2;
        struct exec_case it = {(copse_type)type, (copse_redop)redop, counts[k], in_place};
        DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s of %llu %s, %s, in place %d",
                      copse_collective_name(collective), (unsigned long long)it.count,
                      copse_type_name(it.type), copse_redop_name(it.redop), in_place);
        if (k == 2)
          DEVICE_ASSERT(device_case_compare(&d, it, (uint64_t)(type * 7 + redop)) == 0,
                        "bits of %s of %s, %s", copse_collective_name(collective),
                        copse_type_name(it.type), copse_redop_name(it.redop));
      }
  device_plan_close(&d);
  pb_free(plan);
}
END_TEST

static void run_counts(const struct copse_plan *plan) {
  struct device_plan d;
  device_plan_open(&d, plan, 1, ONE_STREAM);
  for (uint64_t count = 1; count < 5000; count = 5 * count + 2) {
    struct exec_case it = {COPSE_FLOAT, COPSE_SUM, count, false};
    DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s of %llu", d.plan->name,
                  (unsigned long long)count);
  }
  device_plan_close(&d);
}

/* Two warps to a block: what the first has waited for must reach the second. */
START_TEST(blocks_of_several_warps) {
  struct copse_plan *plan =
      pb_tree_plan((copse_collective)_i, 2, exec_case_root((copse_collective)_i, 2), small);
  copse_cuda_threads = 40;
  run_counts(plan);
  pb_free(plan);
}
END_TEST

/* A broadcast of many pieces by one worker, each with a signal: more operations than a block loads, with 60
 * pieces, and more operands, with 120. */
START_TEST(a_list_longer_than_a_block_keeps) {
  const int PIECES = _i == 0 ? 60 : 120;
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t from = pb_worker(b, 0), to = pb_worker(b, 1), entered = pb_channel(b, to, from);
  pb_header(b)->min_chunk_bytes = pb_header(b)->chunk_bytes = 64;
  pb_signal(b, to, entered, COPSE_WHEN_FIRST);
  pb_wait(b, from, entered, COPSE_WHEN_FIRST);
  for (int i = 0; i < PIECES; i++) {
    uint32_t piece = pb_piece(b, i, PIECES, i + 1, PIECES), there = pb_channel(b, from, to);
    pb_move(b, from, piece, 0);
    pb_src(b, pb_input(0, 0));
    pb_dst(b, pb_output(0, 0));
    pb_dst(b, pb_output(1, 0));
    enum copse_plan_when when = i % 2 ? COPSE_WHEN_LAST : COPSE_WHEN_ALWAYS;
    pb_signal(b, from, there, when);
    pb_wait(b, to, there, when);
  }
  struct copse_plan *plan = pb_finish(b);
  ck_assert_uint_gt(plan->workers[0].n_ops, 96);
  ck_assert_int_eq(plan->header.n_operands > 256, _i == 1);
  run_counts(plan);
  pb_free(plan);
}
END_TEST

START_TEST(devices_and_streams_of_their_own) {
  const copse_collective collective = (copse_collective)_i;
  struct copse_plan *plan = tree_plan(collective, 4);
  for (int devices = up_to(1, 3); devices <= 3; devices++) {
    struct device_plan d;
    device_plan_open(&d, plan, devices, STREAM_PER_RANK);
    for (int round = 0; round < 4; round++) {
      struct exec_case it = {COPSE_FLOAT, COPSE_SUM, (uint64_t)(100 + 333 * round), false};
      DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s on %d devices",
                    copse_collective_name(collective), devices);
    }
    device_plan_close(&d);
  }
  pb_free(plan);
}
END_TEST

/* ---- without peer access ------------------------------------------------------------------------ */

/* Four GPUs, each `reach` of which have access to each other's memory. */
static void configure_apart(int reach) {
  copse_emulated_config config = copse_emulated_defaults();
  config.devices = 4;
  config.multiprocessors = 64;
  config.reach = reach;
  copse_emulated_configure(&config);
}

/* Which of the operands in other ranks' memory that device d sees are in host memory, and which
 * not. */
static void count_places(const struct device_plan *d, int device, int *on_host, int *on_device) {
  const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)d->prepared;
  const struct copse_plan *plan = d->plan;
  const struct copse_plan_operand *operands = p->devices[device].plan.operands;
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      for (uint32_t k = op->operand; op->kind == COPSE_OP_MOVE && k < op->operand + op->n_src + op->n_dst; k++)
        if (plan->operands[k].rank != plan->workers[w].rank &&
            plan->operands[k].buffer != COPSE_BUFFER_OUTPUT)
          ++*(operands[k].rank >= d->n_ranks ? on_host : on_device);
    }
}

/* Through host memory, pair by pair; a device that touched another one's memory would find no
 * address. */
START_TEST(devices_without_peer_access) {
  const copse_collective collective = (copse_collective)(_i / 2);
  const int reach = 1 + _i % 2;
  struct copse_plan *plan = tree_plan(collective, 4);
  struct device_plan d;
  int on_host = 0, on_device = 0;
  configure_apart(reach);
  copse_cuda_staging_bytes = 32768; /* bits are those of the whole message in one part */
  device_plan_open(&d, plan, 4, STREAM_PER_RANK);
  count_places(&d, 0, &on_host, &on_device);
  ck_assert_int_eq(on_device > 0, reach > 1 && on_host > 0);
  for (int round = 0; round < up_to(6, 3); round++) {
    const bool in_place = copse_buffers_has_in_place(collective) && round % 2;
    struct exec_case it = {round % 3 ? COPSE_FLOAT : COPSE_BFLOAT16, COPSE_SUM,
                           (uint64_t)(1 + 311 * round), in_place};
    copse_cuda_staging_bytes = 2048;
    DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s, reach %d",
                  copse_collective_name(collective), reach);
    copse_cuda_staging_bytes = 32768;
    DEVICE_ASSERT(device_case_compare(&d, it, (uint64_t)round) == 0, "bits of %s",
                  copse_collective_name(collective));
  }
  device_plan_close(&d);
  copse_cuda_staging_bytes = 96u << 20;
  pb_free(plan);
}
END_TEST

/* ---- packets, counts of pairs ---------------------------------------------------------------- */

/* Allgather by packets from every rank to every rank. */
static struct copse_plan *packet_allgather(uint32_t n) {
  struct plan_builder *b = pb_new(COPSE_ALLGATHER, n, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t regions[8][8], channels[8][8];
  pb_header(b)->max_bytes = 1 << 16;
  for (uint32_t r = 0; r < n; r++) pb_worker(b, r);
  for (uint32_t r = 0; r < n; r++)
    for (uint32_t s = 0; s < n; s++)
      if (r != s) {
        regions[r][s] = pb_packets(b, r, piece); /* at r, from s */
        channels[r][s] = pb_channel(b, s, r);
      }
  for (uint32_t r = 0; r < n; r++) {
    pb_move(b, r, piece, 0);
    pb_src(b, pb_input(r, 0));
    pb_dst(b, pb_output(r, r));
    for (uint32_t s = 0; s < n; s++)
      if (s != r) pb_dst(b, pb_packet(s, regions[s][r]));
    for (uint32_t s = 0; s < n; s++)
      if (s != r) pb_data_signal(b, r, channels[s][r]);
    for (uint32_t s = 0; s < n; s++) {
      if (s == r) continue;
      pb_data_wait(b, r, channels[r][s]);
      pb_move(b, r, piece, 0);
      pb_src(b, pb_packet(r, regions[r][s]));
      pb_dst(b, pb_output(r, s));
    }
  }
  return pb_finish(b);
}

/* Sums by packets from everybody, in the order of the ranks' distance. */
static struct copse_plan *packet_allreduce(uint32_t n) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, n, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t regions[8][8], channels[8][8];
  pb_header(b)->max_bytes = 1 << 16;
  for (uint32_t r = 0; r < n; r++) pb_worker(b, r);
  for (uint32_t r = 0; r < n; r++)
    for (uint32_t s = 0; s < n; s++) {
      regions[r][s] = pb_packets(b, r, piece);
      channels[r][s] = pb_channel(b, s, r);
    }
  for (uint32_t r = 0; r < n; r++) {
    pb_move(b, r, piece, 0);
    pb_src(b, pb_input(r, 0));
    for (uint32_t s = 0; s < n; s++) pb_dst(b, pb_packet(s, regions[s][r]));
    for (uint32_t s = 0; s < n; s++) pb_data_signal(b, r, channels[s][r]);
    for (uint32_t s = 0; s < n; s++) pb_data_wait(b, r, channels[r][s]);
    pb_move(b, r, piece, COPSE_MOVE_FINAL);
    for (uint32_t s = 0; s < n; s++) pb_src(b, pb_packet(r, regions[r][s]));
    pb_dst(b, pb_output(r, 0));
  }
  return pb_finish(b);
}

START_TEST(packets_carry_every_type_and_size) {
  struct copse_plan *plans[] = {packet_allgather(4), packet_allreduce(4)};
  if (_i > 0) configure_apart(_i);
  for (int p = 0; p < 2; p++) {
    struct device_plan d;
    device_plan_open(&d, plans[p], _i > 0 ? 4 : 2, ONE_STREAM);
    for (int round = 0; round < (_i > 0 ? up_to(30, 12) : up_to(150, 24)); round++) { /* small and large take turns */
      struct exec_case it;
      it.type = (copse_type)(round % COPSE_N_TYPES);
      it.redop = p == 0 ? COPSE_SUM : (copse_redop)(round % COPSE_N_REDOPS);
      it.count = (uint64_t)(round % 3 == 0 ? 1 + round : round % 3 == 1 ? 1000 - round : 7);
      it.in_place = round % 2;
      DEVICE_ASSERT(device_case_run(&d, it) == 0, "plan %d, round %d", p, round);
      if (p == 1 && round % 7 == 0)
        DEVICE_ASSERT(device_case_compare(&d, it, (uint64_t)round) == 0, "bits, round %d", round);
    }
    device_plan_close(&d);
    pb_free(plans[p]);
  }
}
END_TEST

/* Where launch numbers start again, what larger messages left behind must not pass for new. */
START_TEST(numbers_that_start_again_find_no_old_packets) {
  struct copse_plan *plan = packet_allreduce(4);
  if (_i > 0) configure_apart(_i);
  for (uint32_t back = 1; back < 6; back += up_to(1, 2)) {
    struct device_plan d;
    device_plan_open(&d, plan, 2, ONE_STREAM);
    const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)d.prepared;
    struct exec_case large = {COPSE_FLOAT, COPSE_SUM, 2000, false};
    struct exec_case small_one = {COPSE_FLOAT, COPSE_SUM, 5, false};
    /* launches 1 to 4 are large, the last ones before the end small, then large again */
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(device_case_run(&d, large), 0);
    for (int s = 0; s < 2; s++)
      for (uint32_t w = 0; w < plan->header.n_workers; w++) {
        uint32_t epoch = UINT32_MAX - back;
        CUDA_OK(cudaMemcpy(p->devices[s].plan.epochs + w, &epoch, 4, cudaMemcpyHostToDevice));
      }
    for (uint32_t i = 0; i < back; i++) ck_assert_uint_eq(device_case_run(&d, small_one), 0);
    for (uint32_t r = 0; r < 4; r++) { /* after the last two launches nothing is left */
      uint64_t n = 2 * p->segment.packets_copy / 8, found = 0, *copy = (uint64_t *)malloc(8 * n);
      unsigned char *segment = _i > 0 ? p->mirror_segments[r] : p->segments[r];
      CUDA_OK(cudaMemcpy(copy, segment + p->segment.signals_bytes, 8 * n, cudaMemcpyDefault));
      for (uint64_t i = 0; i < n; i++) found += copy[i] != 0;
      free(copy);
      ck_assert_msg(back < 2 || found == 0, "%llu packets are left", (unsigned long long)found);
    }
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(device_case_run(&d, large), 0);
    device_plan_close(&d);
  }
  pb_free(plan);
}
END_TEST

START_TEST(an_alltoall_sends_as_much_as_the_device_says) {
  const uint32_t n = 4;
  struct copse_plan *plan = tree_plan(COPSE_ALLTOALL, n);
  struct device_plan d;
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = 4;
  if (_i > 0) configure_apart(_i);
  if (_i > 0) copse_cuda_staging_bytes = 4096;
  device_plan_open(&d, plan, _i > 0 ? 4 : 1, _i > 0 ? STREAM_PER_RANK : ONE_STREAM);
  for (int round = 0; round < 20; round += up_to(1, 3)) {
    const uint64_t count = (uint64_t)(1 + 70 * round);
    uint64_t counts[16], *on_device;
    for (int i = 0; i < 16; i++)
      counts[i] = (uint64_t)copse_test_random_int(&state, 0, (int)count) * (uint64_t)(i % 3 != 0);
    CUDA_OK(cudaMalloc((void **)&on_device, sizeof counts));
    CUDA_OK(cudaMemcpy(on_device, counts, sizeof counts, cudaMemcpyHostToDevice));
    struct copse_buffers host;
    struct device_buffers device;
    COPSE_SUCCEEDS(copse_buffers_new(n, n * count * 4, n * count * 4, &host, &err), &err);
    struct copse_data data;
    memset(&data, 0, sizeof data);
    data.collective = COPSE_ALLTOALL;
    data.n_ranks = n;
    data.root = -1;
    data.count = count;
    data.type = COPSE_FLOAT;
    data.seed = (uint64_t)round;
    data.pair_counts = counts;
    copse_buffers_fill(&host, &data, false);
    device_buffers_new(&device, &d, &host);
    device_upload(&device, &host);
    const struct exec_case it = {COPSE_FLOAT, COPSE_SUM, count, false};
    COPSE_SUCCEEDS(device_launch(&d, &device, &host, it, on_device, &err), &err);
    device_wait(&d);
    device_download(&device, &host);
    ck_assert_uint_eq(copse_buffers_count_wrong(&host), 0);
    device_buffers_free(&device);
    copse_buffers_free(&host);
    CUDA_OK(cudaFree(on_device));
  }
  device_plan_close(&d);
  copse_cuda_staging_bytes = 96u << 20;
  pb_free(plan);
}
END_TEST

/* ---- streams and graphs ------------------------------------------------------------------------ */

/* What a graph's launch needs to be repeated on new data. */
struct repeated {
  struct device_plan d;
  struct copse_buffers host;
  struct device_buffers device;
  struct exec_case it;
};

static void repeated_open(struct repeated *r, const struct copse_plan *plan, int devices,
                          enum device_streams streams, uint64_t count) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_plan_header *h = &plan->header;
  device_plan_open(&r->d, plan, devices, streams);
  r->it.type = COPSE_FLOAT;
  r->it.redop = COPSE_SUM;
  r->it.count = count;
  r->it.in_place = false;
  COPSE_SUCCEEDS(copse_buffers_new(h->n_ranks, h->input_blocks * count * 4,
                                   h->output_blocks * count * 4, &r->host, &err),
                 &err);
  device_buffers_new(&r->device, &r->d, &r->host);
}

static void repeated_fill(struct repeated *r, uint64_t seed) {
  const struct copse_plan_header *h = &r->d.plan->header;
  struct copse_data data;
  memset(&data, 0, sizeof data);
  data.collective = (copse_collective)h->collective;
  data.n_ranks = h->n_ranks;
  data.root = h->root;
  data.count = r->it.count;
  data.type = r->it.type;
  data.redop = r->it.redop;
  data.seed = seed;
  copse_buffers_fill(&r->host, &data, false);
  device_upload(&r->device, &r->host);
}

static uint64_t repeated_wrong(struct repeated *r) {
  device_download(&r->device, &r->host);
  return copse_buffers_count_wrong(&r->host);
}

static void repeated_close(struct repeated *r) {
  device_plan_close(&r->d);
  device_buffers_free(&r->device);
  copse_buffers_free(&r->host);
}

START_TEST(a_graph_can_be_launched_again_and_again) {
  struct copse_plan *plans[] = {tree_plan(COPSE_ALLREDUCE, 4), packet_allreduce(4),
                                tree_plan(COPSE_ALLGATHER, 4)};
  for (int p = 0; p < 3; p++) {
    for (int streams = 0; streams < 2; streams++) {
      struct copse_err err = COPSE_ERR_INIT;
      struct repeated r;
      repeated_open(&r, plans[p], 1, streams ? STREAM_PER_RANK : ONE_STREAM, 333);
      repeated_fill(&r, 1);
      COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
      device_wait(&r.d);
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      cudaEvent_t fork, join;
      CUDA_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
      CUDA_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
      CUDA_OK(cudaStreamBeginCapture(r.d.streams[0], cudaStreamCaptureModeThreadLocal));
      CUDA_OK(cudaEventRecord(fork, r.d.streams[0]));
      for (uint32_t k = 1; k < 4 && streams; k++)
        CUDA_OK(cudaStreamWaitEvent(r.d.streams[k], fork, 0));
      for (int twice = 0; twice < 2; twice++) {
        COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
        ck_assert_int_eq(copse_cuda_backend.poll(r.d.backend, &err), COPSE_OK);
      }
      for (uint32_t k = 1; k < 4 && streams; k++) {
        CUDA_OK(cudaEventRecord(join, r.d.streams[k]));
        CUDA_OK(cudaStreamWaitEvent(r.d.streams[0], join, 0));
      }
      CUDA_OK(cudaStreamEndCapture(r.d.streams[0], &graph));
      CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
      for (uint64_t seed = 2; seed < 8; seed++) {
        repeated_fill(&r, seed);
        CUDA_OK(cudaGraphLaunch(exec, r.d.streams[0]));
        if (seed % 2) /* launches outside of the graph in between */
          COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
        device_wait(&r.d);
        ck_assert_uint_eq(repeated_wrong(&r), 0);
      }
      CUDA_OK(cudaGraphExecDestroy(exec));
      CUDA_OK(cudaGraphDestroy(graph));
      CUDA_OK(cudaEventDestroy(fork));
      CUDA_OK(cudaEventDestroy(join));
      repeated_close(&r);
    }
    pb_free(plans[p]);
  }
}
END_TEST

START_TEST(launches_on_changing_streams_come_one_after_the_other) {
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  cudaStream_t streams[3], own[3];
  repeated_open(&r, plan, 1, STREAM_PER_RANK, 500);
  for (int i = 0; i < 3; i++) {
    CUDA_OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    own[i] = r.d.streams[i];
  }
  repeated_fill(&r, 5);
  for (int i = 0; i < 60; i++) {
    for (int k = 0; k < 3; k++) r.d.streams[k] = streams[(i + k) % 3];
    COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  }
  device_wait(&r.d);
  ck_assert_uint_eq(repeated_wrong(&r), 0);
  for (int i = 0; i < 3; i++) {
    CUDA_OK(cudaStreamDestroy(streams[i]));
    r.d.streams[i] = own[i];
  }
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* A capture in between takes part in no order, and changes none. */
START_TEST(a_capture_between_two_launches_does_not_part_them) {
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  cudaStream_t streams[3];
  cudaGraph_t graph;
  Gate gate;
  repeated_open(&r, plan, 1, ONE_STREAM, 500);
  cudaStream_t own = r.d.streams[0];
  for (int i = 0; i < 3; i++) streams[i] = new_stream(cudaStreamNonBlocking);
  repeated_fill(&r, 6);
  gate.close(streams[0]);
  CUDA_OK(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 3; k++) r.d.streams[k] = streams[i];
    COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  }
  CUDA_OK(cudaStreamEndCapture(streams[1], &graph));
  usleep(100000);
  ck_assert_int_eq(cudaStreamQuery(streams[2]), cudaErrorNotReady);
  ck_assert_int_eq(copse_cuda_backend.poll(r.d.backend, &err), COPSE_OK);
  gate.open();
  CUDA_OK(cudaDeviceSynchronize());
  ck_assert_uint_eq(repeated_wrong(&r), 0);
  CUDA_OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    CUDA_OK(cudaStreamDestroy(streams[i]));
    r.d.streams[i] = own;
  }
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* One capture has two streams, and between its two launches another capture has one: the second still waits for the
 * first, in the graph. */
START_TEST(captures_that_take_turns_keep_their_own_order) {
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  cudaStream_t streams[3]; /* the first and the last are in one capture */
  cudaGraph_t graphs[2];
  cudaGraphExec_t exec;
  cudaEvent_t fork = new_event(), join = new_event();
  Gate gate;
  static const int turns[] = {0, 1, 2};
  setenv("NCCL_GRAPH_MIXING_SUPPORT", _i ? "1" : "0", 1); /* 0: nothing but the graph's own order */
  repeated_open(&r, plan, 1, ONE_STREAM, 500);
  cudaStream_t own = r.d.streams[0];
  for (int i = 0; i < 3; i++) streams[i] = new_stream(cudaStreamNonBlocking);
  repeated_fill(&r, 8);
  for (int i = 0; i < 2; i++) CUDA_OK(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeRelaxed));
  CUDA_OK(cudaEventRecord(fork, streams[0]));
  CUDA_OK(cudaStreamWaitEvent(streams[2], fork, 0));
  gate.close(streams[0]);
  for (int turn : turns) {
    for (int k = 0; k < 3; k++) r.d.streams[k] = streams[turn];
    COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  }
  CUDA_OK(cudaEventRecord(join, streams[2]));
  CUDA_OK(cudaStreamWaitEvent(streams[0], join, 0));
  for (int i = 0; i < 2; i++) CUDA_OK(cudaStreamEndCapture(streams[i], &graphs[i]));
  CUDA_OK(cudaGraphInstantiate(&exec, graphs[0], 0));
  CUDA_OK(cudaGraphLaunch(exec, streams[0]));
  usleep(100000);
  const uint64_t wrong_before = repeated_wrong(&r);
  gate.open();
  CUDA_OK(cudaDeviceSynchronize());
  ck_assert_uint_gt(wrong_before, 0); /* no launch has passed the gate */
  ck_assert_uint_eq(repeated_wrong(&r), 0);
  CUDA_OK(cudaGraphExecDestroy(exec));
  for (cudaGraph_t graph : graphs) CUDA_OK(cudaGraphDestroy(graph));
  for (cudaEvent_t event : {fork, join}) CUDA_OK(cudaEventDestroy(event));
  for (int i = 0; i < 3; i++) {
    CUDA_OK(cudaStreamDestroy(streams[i]));
    r.d.streams[i] = own;
  }
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* Another backend is created, works and is destroyed, and a layer's memory too, while a stream is captured that the
 * default one would wait for. */
START_TEST(a_capture_elsewhere_is_left_alone) {
  static const cudaStreamCaptureMode modes[] = {
      cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  cudaStream_t captured = new_stream(cudaStreamDefault);
  repeated_open(&r, plan, 1, ONE_STREAM, 500);
  repeated_fill(&r, 7);
  const struct copse_comm_shape shape = {3, 0, 3, r.d.devices, NULL, NULL, NULL};
  for (cudaStreamCaptureMode mode : modes) {
    struct device_plan another = r.d;
    cudaGraph_t graph;
    void *rows;
    CUDA_OK(cudaStreamBeginCapture(captured, mode));
    COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &another.backend, &err), &err);
    COPSE_SUCCEEDS(
        copse_cuda_backend.prepare(another.backend, &plan, 1, &another.prepared, &err), &err);
    COPSE_SUCCEEDS(device_launch(&another, &r.device, &r.host, r.it, NULL, &err), &err);
    device_wait(&another);
    copse_cuda_backend.destroy(another.backend);
    COPSE_SUCCEEDS(copse_moe_cuda.take(0, 1000, &rows, &err), &err);
    copse_moe_cuda.give_back(0, rows);
    CUDA_OK(cudaStreamEndCapture(captured, &graph));
    CUDA_OK(cudaGraphDestroy(graph));
    ck_assert_uint_eq(repeated_wrong(&r), 0);
  }
  CUDA_OK(cudaStreamDestroy(captured));
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* Peers write outputs; memory of a pool, or mapped, they reach only where its owner has said so. */
START_TEST(outputs_out_of_reach_are_refused) {
  const bool pool = _i == 0;
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  repeated_open(&r, plan, 3, STREAM_PER_RANK, 500);
  repeated_fill(&r, 9);
  copse_emulated_grant(r.device.outputs[0], pool, 3);
  copse_emulated_grant(r.device.outputs[1], pool, 2);
  ASSERT_FAILS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), COPSE_INVALID, &err,
               "rank 1's output is in memory");
  ck_assert_ptr_nonnull(strstr(err.text, "GPU 2 may not write"));
  ck_assert_ptr_nonnull(strstr(err.text, pool ? "cudaMemPoolSetAccess" : "cuMemSetAccess"));
  copse_emulated_grant(r.device.outputs[1], pool, 3);
  COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  device_wait(&r.d);
  ck_assert_uint_eq(repeated_wrong(&r), 0);
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* Other work on the GPU may hang. Waiting for a backend's own work doesn't wait for it. */
START_TEST(nobody_waits_for_the_work_of_others) {
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  cudaStream_t other = new_stream(cudaStreamNonBlocking);
  Gate gate;
  repeated_open(&r, plan, 2, STREAM_PER_RANK, 500);
  repeated_fill(&r, 8);
  gate.close(other);
  COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  device_wait(&r.d);
  ck_assert_int_eq(cudaStreamQuery(other), cudaErrorNotReady);
  gate.open();
  ck_assert_uint_eq(repeated_wrong(&r), 0);
  CUDA_OK(cudaStreamDestroy(other));
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* What `copse run --backend cuda` uses: buffers of the host, copied there and back. */
START_TEST(the_cuda_backend_runs_plans_on_host_buffers) {
  const copse_collective collective = (copse_collective)_i;
  static const uint64_t counts[] = {0, 1, 700, UINT64_MAX};
  struct copse_plan *plan = tree_plan(collective, 4);
  exec_check_all(plan, COPSE_BACKEND_CUDA, counts);
  pb_free(plan);
}
END_TEST

/* What `copse run --backend cuda --write-profile` does. */
START_TEST(times_of_launches_make_a_profile) {
  char device[COPSE_EXEC_DEVICE_TEXT];
  struct copse_plan *plan = tree_plan(COPSE_ALLGATHER, 4);
  exec_check_profile(plan, COPSE_BACKEND_CUDA);
  copse_exec_device(COPSE_BACKEND_CUDA, device);
  ck_assert_ptr_nonnull(strstr(device, " emulated device 0"));
  copse_exec_device(COPSE_BACKEND_THREADS, device);
  ck_assert_str_eq(device, "");
  pb_free(plan);
}
END_TEST

/* Workers of a rank share what it puts: its input in the first stage, its sum in the second. */
START_TEST(stages_are_put_by_several_workers) {
  static const struct copse_doubling stages = {2, {3, 3}, 0, false, false};
  static const uint64_t counts[] = {0, 1, 700, UINT64_MAX};
  struct copse_lower_options options = {};
  options.fifo = 2;
  options.pipeline_chunks = 5;
  options.min_chunk_bytes = 16;
  struct copse_plan *plan = process_lower(COPSE_ALLREDUCE, 9, &options, &stages);
  ck_assert_uint_eq(plan->ranks[0].n_workers, 2);
  exec_check_all(plan, COPSE_BACKEND_CUDA, counts);
  copse_plan_free(plan);
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------------ */

/* Rank 1 waits for a signal that rank 0 never gives. */
static struct copse_plan *hanging_plan(void) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, 2, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++) pb_worker(b, r);
  uint32_t channel = pb_channel(b, 0, 1);
  for (uint32_t r = 0; r < 2; r++) {
    if (r == 1) pb_wait(b, r, channel, COPSE_WHEN_ALWAYS);
    pb_move(b, r, piece, COPSE_MOVE_FINAL);
    pb_src(b, pb_input(r, 0));
    pb_dst(b, pb_output(r, 0));
  }
  return pb_finish(b);
}

START_TEST(a_wait_that_never_ends_is_a_timeout_with_the_place) {
  struct copse_plan *plan = hanging_plan();
  struct copse_err err = COPSE_ERR_INIT, later = COPSE_ERR_INIT;
  struct repeated r;
  repeated_open(&r, plan, 1, ONE_STREAM, 100);
  repeated_fill(&r, 1);
  copse_cuda_backend.set_timeout(r.d.backend, 0.2);
  COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  ck_assert_int_eq(copse_cuda_backend.finish(r.d.backend, &err), COPSE_TIMEOUT);
  ck_assert_ptr_nonnull(strstr(
      err.text, "rank 1, worker 0 waited over 0.2 s for rank 0 (channel 0, chunk 0)"));
  ck_assert_int_eq(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &later), COPSE_TIMEOUT);
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* Rank 1 waits for packets that rank 0 never sends. */
static struct copse_plan *packetless_plan(void) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, 2, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  pb_header(b)->max_bytes = 1 << 16;
  for (uint32_t r = 0; r < 2; r++) pb_worker(b, r);
  uint32_t region = pb_packets(b, 1, piece), channel = pb_channel(b, 0, 1);
  for (uint32_t r = 0; r < 2; r++) {
    if (r == 1) pb_data_wait(b, r, channel);
    pb_move(b, r, piece, COPSE_MOVE_FINAL);
    pb_src(b, r == 1 ? pb_packet(r, region) : pb_input(r, 0));
    pb_dst(b, pb_output(r, 0));
  }
  return pb_finish(b);
}

/* Where launch numbers start again all blocks meet, also those that have given up. */
START_TEST(packets_that_never_come_are_a_timeout_in_any_launch) {
  struct copse_plan *plan = packetless_plan();
  for (uint32_t back = 1; back < 4; back++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct repeated r;
    repeated_open(&r, plan, 1, ONE_STREAM, 100);
    repeated_fill(&r, 1);
    const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)r.d.prepared;
    const uint32_t epochs[2] = {UINT32_MAX - back, UINT32_MAX - back};
    CUDA_OK(cudaMemcpy(p->devices[0].plan.epochs, epochs, sizeof epochs, cudaMemcpyHostToDevice));
    copse_cuda_backend.set_timeout(r.d.backend, 0.2);
    COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
    ck_assert_int_eq(copse_cuda_backend.finish(r.d.backend, &err), COPSE_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.text, "rank 1, worker 0 waited over 0.2 s for rank 0"));
    repeated_close(&r);
  }
  pb_free(plan);
}
END_TEST

/* A limit of hours: the count of polls wraps around before it is over. */
START_TEST(looks_may_wrap_around) {
  struct copse_control control;
  memset(&control, 0, sizeof control);
  const struct copse_limit limit = {&control, 5000000000u, 7, 6};
  const struct copse_timeout timeout = {&limit, 5, 4};
  struct copse_wait wait = {copse_device_clock() - 10000000000u, COPSE_CONTROL_POLLS - 1};
  ck_assert(!copse_keep_waiting(&timeout, &wait));
  ck_assert_uint_eq(control.leave, COPSE_LEAVE_TIMEOUT);
  ck_assert_uint_eq(control.plan, 7);
}
END_TEST

START_TEST(an_abort_ends_what_runs) {
  struct copse_plan *plan = hanging_plan();
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  repeated_open(&r, plan, 1, ONE_STREAM, 100);
  repeated_fill(&r, 1);
  COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
  ck_assert_int_eq(copse_cuda_backend.poll(r.d.backend, &err), COPSE_OK);
  copse_cuda_backend.abort(r.d.backend);
  ck_assert_int_eq(copse_cuda_backend.finish(r.d.backend, &err), COPSE_ABORTED);
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

START_TEST(a_plan_that_does_not_fit_names_the_cap_that_would) {
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 1; /* of 2048 threads; how many blocks, their shared memory decides */
  copse_emulated_configure(&config);
  copse_cuda_threads = COPSE_CUDA_MAX_THREADS; /* nothing is launched */
  struct pb_options many = small;
  many.n_trees = 4; /* an allreduce takes two workers a tree and rank */
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 3, -1, many);
  struct copse_err err = COPSE_ERR_INIT;
  const int devices[] = {0, 0, 0};
  const struct copse_comm_shape shape = {3, 0, 3, devices, NULL, NULL, NULL};
  void *backend, *prepared;
  unsigned room = 0, workers = 0;
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &backend, &err), &err);
  ck_assert_int_eq(copse_cuda_backend.prepare(backend, &plan, 1, &prepared, &err), COPSE_UNSUPPORTED);
  ck_assert_int_eq(
      sscanf(err.text,
             "the plan takes 24 thread blocks on GPU 0 (3 ranks), which holds %u at once; copse "
             "lower --workers %u fits",
             &room, &workers),
      2);
  ck_assert_uint_lt(room, 24);
  ck_assert_uint_eq(workers, room / 3);
  pb_free(plan);
  many.n_trees = workers / 2; /* and so it does */
  plan = pb_tree_plan(COPSE_ALLREDUCE, 3, -1, many);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(backend, &plan, 1, &prepared, &err), &err);
  copse_cuda_backend.destroy(backend);
  pb_free(plan);
}
END_TEST

static bool same_operands(const struct copse_plan *plan, const struct copse_plan_op *a,
                          const struct copse_plan_op *b) {
  const size_t n = (size_t)a->n_src + a->n_dst;
  return a->kind == COPSE_OP_MOVE && b->kind == COPSE_OP_MOVE && a->piece != b->piece &&
         a->n_src == b->n_src && a->n_dst == b->n_dst &&
         memcmp(plan->operands + a->operand, plan->operands + b->operand, n * sizeof *plan->operands) == 0;
}

/* What lower makes needs no second look at places: each operand is one MOVE's. */
START_TEST(lowered_operands_are_not_shared) {
  struct copse_lower_options options = {};
  options.low_latency = _i >= COPSE_N_COLLECTIVES;
  options.instances = 2;
  struct copse_plan *plan = process_lower((copse_collective)(_i % COPSE_N_COLLECTIVES), 4, &options);
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0, end = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      if (op->kind != COPSE_OP_MOVE) continue;
      ck_assert_uint_ge(op->operand, end);
      end = op->operand + op->n_src + op->n_dst;
    }
  copse_plan_free(plan);
}
END_TEST

/* Two MOVEs of a worker may name the same operands, for different pieces. */
START_TEST(operands_may_be_shared) {
  struct copse_lower_options options = {};
  struct copse_err err = COPSE_ERR_INIT;
  struct device_plan d;
  int n_shared = 0;
  options.max_workers = 1;
  options.instances = 3;
  struct copse_plan *plan = process_lower(COPSE_ALLGATHER, 3, &options);
  for (uint32_t w = 0; w < plan->header.n_workers; w++) {
    struct copse_plan_op *ops = (struct copse_plan_op *)plan->ops + plan->workers[w].first_op;
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++)
      for (uint32_t j = 0; j < i; j++)
        if (same_operands(plan, &ops[i], &ops[j])) {
          ops[i].operand = ops[j].operand;
          n_shared++;
          break;
        }
  }
  ck_assert_int_gt(n_shared, 0);
  COPSE_SUCCEEDS(copse_plan_validate(plan, "shared", &err), &err);
  device_plan_open(&d, plan, 3, STREAM_PER_RANK);
  for (uint64_t count : {5, 100, 5000}) { /* one chunk, and more */
    ck_assert_uint_eq(device_case_run(&d, {COPSE_FLOAT, COPSE_SUM, count, false}), 0);
  }
  device_plan_close(&d);
  copse_plan_free(plan);
}
END_TEST

/* Every type and reduction, also those that the switch doesn't have; odd counts, of several chunks. */
START_TEST(a_switch_adds_and_copies) {
  static const uint64_t counts[] = {1, 37, 3001};
  struct copse_plan *plan = device_multicast_plan(3);
  struct device_plan d;
  copse_cuda_threads = 32;
  device_plan_open(&d, plan, 3, STREAM_PER_RANK);
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
      for (int k = 0; k < 3; k++) {
        if ((type + redop + k) % COPSE_TEST_ONE_IN) continue;
        ((struct copse_cuda_plan *)d.prepared)->logged = false;
        struct exec_case it = {(copse_type)type, (copse_redop)redop, counts[k], (type + k) % 2 != 0};
        DEVICE_ASSERT(device_case_run(&d, it) == 0, "%llu %s, %s", (unsigned long long)it.count,
                      copse_type_name(it.type), copse_redop_name(it.redop));
        const bool by_switch = redop == COPSE_SUM ? copse_type_bytes(it.type) > 1
                                                  : (redop == COPSE_MIN || redop == COPSE_MAX) &&
                                                        (type == COPSE_INT32 || type == COPSE_UINT32 ||
                                                         type == COPSE_INT64 || type == COPSE_UINT64);
        ck_assert_int_eq(((struct copse_cuda_plan *)d.prepared)->logged, !by_switch); /* the log says so */
        if (k == 2)
          DEVICE_ASSERT(device_case_compare(&d, it, (uint64_t)(type * 7 + redop)) == 0,
                        "bits of %s, %s", copse_type_name(it.type), copse_redop_name(it.redop));
      }
  device_plan_close(&d);
  copse_plan_free(plan);
}
END_TEST

/* Refused where there is no switch that does it, with the reason. */
START_TEST(a_multicast_plan_without_its_switch_is_refused) {
  static const int devices[][3] = {{0, 1, 2}, {0, 1, 1}, {0, 1, 2}};
  static const char *const why[] = {"GPU 0 has no multicast", "ranks share a GPU",
                                    "GPUs have no access to each other's memory"};
  struct copse_err err = COPSE_ERR_INIT;
  copse_emulated_config config = copse_emulated_defaults();
  const struct copse_comm_shape shape = {3, 0, 3, devices[_i], NULL, NULL, NULL};
  struct copse_plan *plan = device_multicast_plan(3);
  void *backend, *prepared;
  config.devices = 3;
  config.multicast = _i > 0;
  config.reach = _i == 2 ? 1 : 0;
  copse_emulated_configure(&config);
  ASSERT_OK(copse_cuda_backend.create(&shape, &backend, &err), &err);
  ck_assert_int_eq(
      copse_cuda_backend.prepare(backend, (const struct copse_plan *const *)&plan, 1, &prepared, &err),
      COPSE_UNSUPPORTED);
  ck_assert_msg(strstr(err.text, why[_i]) && strstr(err.text, "the plan is multicast (NVLink SHARP)"), "%s",
                err.text);
  ck_assert_ptr_null(prepared);
  copse_cuda_backend.destroy(backend);
  copse_plan_free(plan);
}
END_TEST

START_TEST(devices_that_are_not_there_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  const int devices[] = {0, 3};
  const struct copse_comm_shape shape = {2, 0, 2, devices, NULL, NULL, NULL};
  void *backend;
  ck_assert_int_eq(copse_cuda_backend.create(&shape, &backend, &err), COPSE_INVALID);
  ck_assert_str_eq(err.text, "no GPU 3, there are 3");
  ck_assert_ptr_null(backend);
}
END_TEST

/* One whole life; the status of the first call that fails. A multicast plan's ranks share no GPU. */
static copse_status whole_life(const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  const int devices[] = {0, 1, copse_plan_has_groups(plan) ? 2 : 1};
  const struct copse_comm_shape shape = {3, 0, 3, devices, NULL, NULL, NULL};
  struct copse_call calls[3];
  void *backend, *prepared;
  copse_status status = copse_cuda_backend.create(&shape, &backend, &err);
  if (status != COPSE_OK) return status;
  unsigned char *memory = NULL;
  CUDA_OK(cudaMalloc((void **)&memory, 6 * 256));
  CUDA_OK(cudaMemset(memory, 0, 6 * 256));
  CUDA_OK(cudaDeviceSynchronize()); /* the other device's stream doesn't wait for this one's memset */
  for (int r = 0; r < 3; r++)
    calls[r] = call_of(COPSE_ALLREDUCE, 50, memory + r * 256, memory + (r + 3) * 256, NULL);
  status = copse_cuda_backend.prepare(backend, &plan, 1, &prepared, &err);
  if (status == COPSE_OK) status = copse_launch_one(&copse_cuda_backend, backend, prepared, calls, &err);
  if (status == COPSE_OK) status = copse_cuda_backend.finish(backend, &err);
  if (status != COPSE_OK) {
    ck_assert_str_ne(err.text, "");
    copse_cuda_backend.abort(backend); /* a part of the launch may be waiting for the rest */
    (void)copse_cuda_backend.finish(backend, &err);
  }
  copse_cuda_backend.destroy(backend);
  for (int d = 2; d >= 0; d--) { /* CUDA's cudaFree waits for all kernels, the emulation's doesn't */
    CUDA_OK(cudaSetDevice(d));
    CUDA_OK(cudaDeviceSynchronize());
  }
  CUDA_OK(cudaFree(memory));
  return status;
}

/* Each call of CUDA fails once: an error in words, nothing leaks (teardown), nothing hangs. */
START_TEST(any_call_of_cuda_may_fail) {
  static const char *const functions[] = {
      "cudaGetDeviceCount",     "cudaDeviceGetAttribute", "cudaEventCreateWithFlags",
      "cudaDeviceCanAccessPeer", "cudaDeviceEnablePeerAccess", "cudaHostAlloc",
      "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaStreamWaitEvent",
      "cudaEventRecord",        "cudaLaunchKernelExC",    "cudaEventSynchronize",
      "cudaStreamCreateWithFlags", "cudaMemsetAsync",     "cudaMemcpyAsync"};
  struct copse_plan *plan = tree_plan(COPSE_ALLREDUCE, 3);
  copse_cuda_staging_bytes = 32768; /* zeroed on the host, 43 times */
  if (_i > 0) configure_apart(_i);
  ck_assert_int_eq(whole_life(plan), COPSE_OK);
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
    for (int nth = 1; nth <= up_to(3, 1); nth++) {
      copse_emulated_fail(functions[f], nth, cudaErrorUnknown);
      (void)whole_life(plan);
      copse_emulated_fail(NULL, 0, cudaSuccess);
    }
  copse_cuda_staging_bytes = 96u << 20;
  pb_free(plan);
}
END_TEST

/* ---- groups ------------------------------------------------------------------------------------- */

/* A backend with several plans. */
struct grouped {
  struct device_plan d;
  struct copse_plan *plans[6];
  void *prepared[6];
};
enum { SUM, GATHER, EXCHANGE, PACKET_SUM, PACKET_GATHER, BROADCAST };

static void grouped_open(struct grouped *g, int devices, enum device_streams streams) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plans[] = {tree_plan(COPSE_ALLREDUCE, 4), tree_plan(COPSE_ALLGATHER, 4),
                                tree_plan(COPSE_ALLTOALL, 4),  packet_allreduce(4),
                                packet_allgather(4),           tree_plan(COPSE_BROADCAST, 4)};
  memcpy(g->plans, plans, sizeof plans);
  device_plan_open(&g->d, plans[0], devices, streams);
  g->prepared[0] = g->d.prepared;
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(g->d.backend, (const struct copse_plan *const *)plans + 1, 5,
                                            g->prepared + 1, &err),
                 &err);
}

static void grouped_close(struct grouped *g) {
  device_plan_close(&g->d);
  for (struct copse_plan *plan : g->plans) pb_free(plan);
}

static struct device_member member_of(const struct grouped *g, int plan, copse_type type, copse_redop redop,
                                      uint64_t count, bool in_place = false) {
  return {g->plans[plan], g->prepared[plan], {type, redop, count, in_place}};
}

/* One after another in one kernel a GPU, with the bits of the CPU: chunks, packets, copies of other types,
 * the same plan again; two where two types are reduced. */
START_TEST(a_group_is_one_launch) {
  struct grouped g;
  const int devices = _i == 0 ? 1 : _i == 1 ? 2 : 4;
  int launches = 0;
  if (_i == 2) configure_apart(1);
  grouped_open(&g, devices, _i == 0 ? ONE_STREAM : STREAM_PER_RANK);
  const bool graph = _i == 0;
  const struct device_member one[] = {
      member_of(&g, PACKET_SUM, COPSE_FLOAT, COPSE_SUM, 17),
      member_of(&g, SUM, COPSE_FLOAT, COPSE_AVG, 1000, !graph),
      member_of(&g, GATHER, COPSE_INT8, COPSE_SUM, 333),
      member_of(&g, SUM, COPSE_FLOAT, COPSE_SUM, 50),
      member_of(&g, PACKET_GATHER, COPSE_DOUBLE, COPSE_SUM, 29),
      member_of(&g, EXCHANGE, COPSE_HALF, COPSE_SUM, 111),
      member_of(&g, PACKET_SUM, COPSE_FLOAT, COPSE_MAX, 900)};
  const struct device_member two[] = {member_of(&g, SUM, COPSE_FLOAT, COPSE_SUM, 64),
                                      member_of(&g, BROADCAST, COPSE_HALF, COPSE_SUM, 100),
                                      member_of(&g, PACKET_SUM, COPSE_HALF, COPSE_SUM, 33),
                                      member_of(&g, GATHER, COPSE_FLOAT, COPSE_SUM, 12)};
  for (int turn = 0; turn < up_to(6, 1); turn++) {
    const int before = copse_emulated_calls_of("cudaLaunchKernelExC");
    ck_assert_uint_eq(device_group_compare(&g.d, one, 7, 0, turn, &launches), 0);
    ck_assert_int_eq(launches, 1);
    ck_assert_int_eq(copse_emulated_calls_of("cudaLaunchKernelExC") - before, devices);
    ck_assert_uint_eq(device_group_compare(&g.d, two, 4, graph ? 3 : 0, turn, &launches), 0);
    ck_assert_int_eq(launches, 2);
    if (graph) ck_assert_uint_eq(device_group_compare(&g.d, one, 7, 3, turn, &launches), 0);
    for (int i = 0; i < 7; i++) /* and each by itself */
      ck_assert_uint_eq(device_case_compare(&g.d, one[i].it, turn), 0);
  }
  struct device_member many[40]; /* more than a kernel's arguments hold */
  for (int i = 0; i < 40; i++)
    many[i] = member_of(&g, i % 3 ? PACKET_SUM : SUM, COPSE_FLOAT, COPSE_SUM, 1 + i * 7 % 60);
  ck_assert_uint_eq(device_group_compare(&g.d, many, 40, 0, 5, &launches), 0);
  const int most = COPSE_CALLS_BYTES / copse_call_bytes(4);
  ck_assert_int_eq(launches, (40 + most - 1) / most);
  grouped_close(&g);
}
END_TEST

/* The numbers of packets start again within a group, while other blocks are in other calls. */
START_TEST(numbers_start_again_in_a_group) {
  struct grouped g;
  if (_i > 0) configure_apart(_i);
  grouped_open(&g, 2, ONE_STREAM);
  const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)g.prepared[PACKET_SUM];
  struct device_member members[6];
  for (int i = 0; i < 6; i++)
    members[i] = member_of(&g, i % 3 == 1 ? SUM : PACKET_SUM, COPSE_FLOAT, COPSE_SUM, i % 2 ? 900 : 5);
  for (int back = 1; back < up_to(9, 6); back += up_to(1, 3)) {
    for (int s = 0; s < 2; s++)
      for (uint32_t w = 0; w < g.plans[PACKET_SUM]->header.n_workers; w++) {
        const uint32_t epoch = UINT32_MAX - back;
        CUDA_OK(cudaMemcpy(p->devices[s].plan.epochs + w, &epoch, 4, cudaMemcpyHostToDevice));
      }
    for (uint64_t turn = 0; turn < 3; turn++) {
      int launches = 0;
      ck_assert_uint_eq(device_group_compare(&g.d, members, 6, 0, turn, &launches), 0);
      ck_assert_int_eq(launches, 1);
    }
  }
  grouped_close(&g);
}
END_TEST

/* What waits in vain ends with its limit, or by an abort, and the calls behind it in the kernel too. */
START_TEST(a_group_that_stands_still_ends) {
  struct copse_plan *plan = hanging_plan();
  struct copse_err err = COPSE_ERR_INIT;
  struct repeated r;
  struct copse_call calls[2];
  uint32_t taken = 0;
  repeated_open(&r, plan, 1, ONE_STREAM, 100);
  repeated_fill(&r, 1);
  for (uint32_t k = 0; k < 2; k++)
    calls[k] = call_of(COPSE_ALLREDUCE, 100, r.device.inputs[k] + COPSE_GUARD_BYTES,
                       r.device.outputs[k] + COPSE_GUARD_BYTES, r.d.streams[0]);
  const struct copse_batch rounds[] = {{r.d.prepared, calls}, {r.d.prepared, calls}, {r.d.prepared, calls}};
  copse_cuda_backend.set_timeout(r.d.backend, _i == 0 ? 0.2 : 60);
  COPSE_SUCCEEDS(copse_cuda_backend.launch(r.d.backend, rounds, 3, &taken, &err), &err);
  ck_assert_uint_eq(taken, 3);
  if (_i == 1) copse_cuda_backend.abort(r.d.backend);
  ck_assert_int_eq(copse_cuda_backend.finish(r.d.backend, &err), _i == 0 ? COPSE_TIMEOUT : COPSE_ABORTED);
  ck_assert(_i == 1 || strstr(err.text, "rank 1, worker 0 waited over 0.2 s for rank 0 (channel 0, chunk 0)"));
  repeated_close(&r);
  pb_free(plan);
}
END_TEST

/* Where outputs are staged a call that reads what an earlier one copies out behind its kernel, or puts its
 * own over it, or in whose place of the staging that still is, comes in a launch of its own. */
START_TEST(a_call_that_needs_what_is_copied_out_comes_after_it) {
  struct copse_err err = COPSE_ERR_INIT;
  struct grouped g;
  unsigned char *memory[4];
  struct copse_call calls[3][4];
  copse_cuda_staging_bytes = 4096;
  configure_apart(1);
  grouped_open(&g, 4, ONE_STREAM);
  for (int r = 0; r < 4; r++) {
    CUDA_OK(cudaSetDevice(g.d.devices[r]));
    CUDA_OK(cudaMalloc((void **)&memory[r], 20480));
  }
  static const struct {
    uint64_t at[3][2], count; /* where calls send from and receive */
    uint32_t first;           /* how many go together */
  } cases[] = {
      {{{0, 1024}, {2048, 3072}, {4096, 5120}}, 20, 3},
      {{{0, 1024}, {1024 + 60, 3072}, {4096, 5120}}, 20, 1},  /* reads a part of it */
      {{{0, 1024}, {2048, 3072}, {4096, 1024 + 300}}, 20, 2}, /* writes a part of it */
      {{{0, 1024}, {1024 - 80, 3072}, {4096, 5120}}, 20, 3},  /* ends before it */
      {{{0, 8192}, {2048, 12288}, {4096, 16384}}, 80, 3},     /* 3840 of 4096 bytes of staging */
      {{{0, 8192}, {2048, 12288}, {4096, 16384}}, 85, 2},     /* 4608: the third begins anew */
  };
  for (const auto &it : cases) {
    struct copse_batch rounds[3];
    uint32_t taken = 0;
    ((struct copse_cuda *)g.d.backend)->staged_to = 0;
    for (int k = 0; k < 3; k++) {
      for (int r = 0; r < 4; r++)
        calls[k][r] = call_of(COPSE_ALLGATHER, it.count, memory[r] + it.at[k][0], memory[r] + it.at[k][1], NULL);
      rounds[k] = {g.prepared[GATHER], calls[k]};
    }
    for (uint32_t at = 0; at < 3; at += taken) {
      COPSE_SUCCEEDS(copse_cuda_backend.launch(g.d.backend, rounds + at, 3 - at, &taken, &err), &err);
      ck_assert_msg(at > 0 || taken == it.first, "case %ld: %u together", (long)(&it - cases), taken);
    }
    device_wait(&g.d);
  }
  for (int r = 0; r < 4; r++) CUDA_OK(cudaFree(memory[r]));
  grouped_close(&g);
  copse_cuda_staging_bytes = 96u << 20;
}
END_TEST

/* Rank 1 sums into rank 0's output. */
static struct copse_plan *putting_reduce(void) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  const uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  for (uint32_t r = 0; r < 2; r++) pb_worker(b, r);
  const uint32_t region = pb_region(b, 1, piece), there = pb_channel(b, 0, 1), back = pb_channel(b, 1, 0);
  pb_move(b, 0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_scratch(1, region));
  pb_signal(b, 0, there, COPSE_WHEN_ALWAYS);
  pb_wait(b, 0, back, COPSE_WHEN_ALWAYS);
  pb_wait(b, 1, there, COPSE_WHEN_ALWAYS);
  pb_move(b, 1, piece, COPSE_MOVE_FINAL);
  pb_src(b, pb_scratch(1, region));
  pb_src(b, pb_input(1, 0));
  pb_dst(b, pb_output(0, 0));
  pb_signal(b, 1, back, COPSE_WHEN_ALWAYS);
  return pb_finish(b);
}

/* What ranks beside the root name as their output, such as their input, stays as it is. */
START_TEST(a_reduction_is_copied_out_at_its_root_alone) {
  struct copse_plan *plan = putting_reduce();
  struct repeated r;
  struct copse_err err = COPSE_ERR_INIT;
  configure_apart(1);
  copse_cuda_staging_bytes = 4096;
  repeated_open(&r, plan, 2, ONE_STREAM, 100);
  for (uint64_t seed = 1; seed < 3; seed++) { /* the second finds what the first has staged */
    repeated_fill(&r, seed);
    COPSE_SUCCEEDS(device_launch(&r.d, &r.device, &r.host, r.it, NULL, &err), &err);
    device_wait(&r.d);
    unsigned char *before = (unsigned char *)malloc(r.device.output_bytes);
    memcpy(before, r.host.output_memory[1], r.device.output_bytes);
    ck_assert_uint_eq(repeated_wrong(&r), 0);
    ck_assert_mem_eq(before, r.host.output_memory[1], r.device.output_bytes);
    free(before);
  }
  repeated_close(&r);
  copse_cuda_staging_bytes = 96u << 20;
  pb_free(plan);
}
END_TEST

/* Blocks that wait for each other start all together; one by itself needs no such promise. */
START_TEST(a_kernel_of_one_block_is_an_ordinary_one) {
  for (int devices = 1; devices <= 3; devices += 2) {
    struct copse_plan *plan = pb_ring_allgather(3, small);
    struct device_plan d;
    device_plan_open(&d, plan, devices, ONE_STREAM);
    const int before = copse_emulated_cooperative();
    ck_assert_uint_eq(device_case_run(&d, {COPSE_FLOAT, COPSE_SUM, 100, false}), 0);
    ck_assert_int_eq(copse_emulated_cooperative() - before, devices == 1);
    device_plan_close(&d);
    pb_free(plan);
  }
}
END_TEST

/* The same for what a multicast plan asks of the driver: the second time when its memory is made. */
START_TEST(any_call_for_a_group_may_fail) {
  static const char *const functions[] = {
      "cuMulticastCreate", "cuMulticastAddDevice", "cuMemCreate",        "cuMemAddressReserve",
      "cuMemMap",          "cuMemSetAccess",       "cuMulticastBindMem", "cudaMemsetAsync"};
  struct copse_plan *plan = device_multicast_plan(3);
  copse_status status = whole_life(plan);
  ck_assert_int_eq(status, COPSE_OK);
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
    for (int nth = 1; nth <= (COPSE_TEST_RACES ? 1 : 4); nth++) {
      copse_emulated_fail(functions[f], nth, nth == 2 ? cudaErrorMemoryAllocation : cudaErrorUnknown);
      status = whole_life(plan);
      ck_assert_msg(nth > 1 || status != COPSE_OK, "%s fails unseen", functions[f]);
      copse_emulated_fail(NULL, 0, cudaSuccess);
    }
  copse_plan_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda/backend");
  TCase *tc = tcase_create("backend");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_set_timeout(tc, 120);
  /* Threads are the same in all collectives, once each has been right. */
  const int few = up_to(0, COPSE_N_COLLECTIVES - 2);
  tcase_add_loop_test(tc, every_collective_is_right, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, blocks_of_several_warps, up_to(0, 2),
                      up_to(COPSE_N_COLLECTIVES, 4));
  tcase_add_loop_test(tc, a_list_longer_than_a_block_keeps, 0, 2);
  tcase_add_loop_test(tc, devices_and_streams_of_their_own, few, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, devices_without_peer_access, 2 * few, 2 * COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, packets_carry_every_type_and_size, 0, 3);
  tcase_add_loop_test(tc, numbers_that_start_again_find_no_old_packets, 0, 2);
  tcase_add_loop_test(tc, an_alltoall_sends_as_much_as_the_device_says, 0, 3);
  tcase_add_test(tc, a_graph_can_be_launched_again_and_again);
  tcase_add_test(tc, launches_on_changing_streams_come_one_after_the_other);
  tcase_add_test(tc, a_capture_between_two_launches_does_not_part_them);
  tcase_add_loop_test(tc, captures_that_take_turns_keep_their_own_order, 0, 2);
  tcase_add_test(tc, a_capture_elsewhere_is_left_alone);
  tcase_add_loop_test(tc, outputs_out_of_reach_are_refused, 0, 2);
  tcase_add_test(tc, nobody_waits_for_the_work_of_others);
  tcase_add_loop_test(tc, the_cuda_backend_runs_plans_on_host_buffers, few, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, times_of_launches_make_a_profile);
  tcase_add_test(tc, stages_are_put_by_several_workers);
  tcase_add_test(tc, a_wait_that_never_ends_is_a_timeout_with_the_place);
  tcase_add_test(tc, packets_that_never_come_are_a_timeout_in_any_launch);
  tcase_add_test(tc, looks_may_wrap_around);
  tcase_add_test(tc, an_abort_ends_what_runs);
  tcase_add_test(tc, a_plan_that_does_not_fit_names_the_cap_that_would);
  tcase_add_test(tc, a_switch_adds_and_copies);
  tcase_add_test(tc, operands_may_be_shared);
  tcase_add_loop_test(tc, lowered_operands_are_not_shared, 0, 2 * COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, a_multicast_plan_without_its_switch_is_refused, 0, 3);
  tcase_add_test(tc, devices_that_are_not_there_are_refused);
  tcase_add_test(tc, any_call_for_a_group_may_fail);
  tcase_add_loop_test(tc, any_call_of_cuda_may_fail, 0, 2);
  tcase_add_loop_test(tc, a_group_is_one_launch, 0, 3);
  tcase_add_loop_test(tc, numbers_start_again_in_a_group, 0, 2);
  tcase_add_loop_test(tc, a_group_that_stands_still_ends, 0, 2);
  tcase_add_test(tc, a_call_that_needs_what_is_copied_out_comes_after_it);
  tcase_add_test(tc, a_reduction_is_copied_out_at_its_root_alone);
  tcase_add_test(tc, a_kernel_of_one_block_is_an_ordinary_one);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
