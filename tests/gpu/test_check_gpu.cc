/*
 * make check-gpu: is what copse does on the GPUs of this machine right? Prints a line per
 * group and the totals. What it has printed stands, wherever it is cut off.
 *
 *   --only A,B      of the groups below, in their order; default all
 *   --small         few and short cases, for compute-sanitizer
 *   --threads N     of a block, at most; default 512
 *   --soak N        collectives in a row, default 1000000; --from K: the first K were before;
 *                   --seconds S: no more are begun after so long, and it says where to go on
 *   --plans FOLDER  default build/gpu/plans
 */
#include <time.h>

#include "cuda/process_case.h"
#include "gpu/gpu_support.h"
#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "support/moe_driver.h"
}

struct options {
  bool small;
  long soak, from;
  double seconds; /* of the soak; 0: no limit */
  const char *plans, *only;
};

static unsigned long passed, failed, skipped;
static const char *group;

static void begin(const char *name) {
  group = name;
  printf("%s ...\n", name);
  fflush(stdout);
}

static void expect(bool ok, const struct device_plan *d, struct exec_case it, const char *what) {
  if (ok) {
    passed++;
    return;
  }
  failed++;
  printf("FAIL %s: %s, %s over %u ranks of %s, %llu %s %s%s\n", group, what, d->plan->name,
         d->n_ranks, copse_collective_name((copse_collective)d->plan->header.collective),
         (unsigned long long)it.count, copse_type_name(it.type), copse_redop_name(it.redop),
         it.in_place ? ", in place" : "");
}

static int n_devices(void) {
  int n = 0;
  CUDA_OK(cudaGetDeviceCount(&n));
  return n;
}

static int32_t root_of(copse_collective collective, uint32_t n) {
  return copse_collective_rooted(collective) ? (int32_t)(n / 2) : -1;
}

static struct exec_case case_of(copse_type type, copse_redop redop, uint64_t count,
                                bool in_place) {
  struct exec_case it;
  memset(&it, 0, sizeof it);
  it.type = type;
  it.redop = redop;
  it.count = count;
  it.in_place = in_place;
  return it;
}

/* Message sizes that a plan takes: a low-latency one has a limit. */
static bool takes(const struct copse_plan *plan, struct exec_case it) {
  if (plan->header.protocol != COPSE_PROTOCOL_LOW_LATENCY) return true;
  return copse_plan_message_bytes(plan, it.count * copse_type_bytes(it.type)) <=
         plan->header.max_bytes;
}

static void run_both(const struct device_plan *d, struct exec_case it) {
  copse_collective collective = (copse_collective)d->plan->header.collective;
  if (!takes(d->plan, it) || (it.in_place && !copse_buffers_has_in_place(collective))) return;
  expect(device_case_run(d, it) == 0, d, it, "wrong elements");
  if (it.count < 100000)
    expect(device_case_compare(d, it, it.count + 17) == 0, d, it, "bits that are not the CPU's");
}

/* Every type and reduction, sizes around the edges of vectors and tiles. */
static void check_matrix(const struct device_plan *d, const uint64_t *counts, int n_counts) {
  bool reduces = copse_collective_reduces((copse_collective)d->plan->header.collective);
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < (reduces ? COPSE_N_REDOPS : 1); redop++)
      for (int k = 0; k < n_counts; k++)
        run_both(d, case_of((copse_type)type, (copse_redop)redop, counts[k],
                            (type + redop + k) % 2 == 1));
}

static void check_built_in(const struct options *options) {
  static const uint64_t counts[] = {0, 1, 7, 511, 4099, 262147};
  begin("every collective, type and reduction, textbook plans");
  for (uint32_t n = 1; n <= (options->small ? 3u : 8u); n += options->small ? 2 : n < 4 ? 1 : 4)
    for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
      copse_collective collective = (copse_collective)c;
      struct pb_options shape = {2, 2, 2, 4, 64 << 10, 1 << 10};
      struct copse_plan *plan = pb_tree_plan(collective, n, root_of(collective, n), shape);
      struct device_plan d;
      device_plan_open(&d, plan, n_devices() < (int)n ? n_devices() : 1, STREAM_PER_RANK);
      check_matrix(&d, counts, options->small ? 4 : 6);
      device_plan_close(&d);
      pb_free(plan);
    }
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void check_random(const struct options *options) {
  uint64_t state = 11;
  begin("random plans and sizes");
  for (int round = 0; round < (options->small ? 4 : 200); round++) {
    copse_collective collective = (copse_collective)(next_random(&state) % COPSE_N_COLLECTIVES);
    uint32_t n = 1 + (uint32_t)next_random(&state) % 8;
    struct pb_options shape = {1 + (uint32_t)next_random(&state) % 3,
                               1 + (uint32_t)next_random(&state) % 3,
                               1 + (uint32_t)next_random(&state) % 5,
                               1 + (uint32_t)next_random(&state) % 20,
                               1000 + next_random(&state) % 100000,
                               1 + next_random(&state) % 1000};
    struct copse_plan *plan = pb_tree_plan(collective, n, root_of(collective, n), shape);
    struct device_plan d;
    device_plan_open(&d, plan, n_devices(), round % 2 ? STREAM_PER_RANK : ONE_STREAM);
    for (int k = 0; k < 3; k++)
      run_both(&d, case_of((copse_type)(next_random(&state) % COPSE_N_TYPES),
                           (copse_redop)(next_random(&state) % COPSE_N_REDOPS),
                           next_random(&state) % (options->small ? 2000 : 300000), k == 1));
    device_plan_close(&d);
    pb_free(plan);
  }
}

static void check_folder(const struct options *options, const struct plan_folder *folder) {
  static const uint64_t counts[] = {1, 1000, 65537};
  begin("plans of copse lower");
  if (folder->n == 0) {
    printf("SKIP plans of copse lower: none in %s (make gpu-plans)\n", options->plans);
    skipped++;
  }
  for (int i = 0; i < folder->n; i++) {
    struct device_plan d;
    device_plan_open(&d, folder->files[i].plan, n_devices(), ONE_STREAM);
    if (options->small)
      run_both(&d, case_of(COPSE_FLOAT, COPSE_SUM, 999, false));
    else
      check_matrix(&d, counts, 3);
    device_plan_close(&d);
  }
}

/* Up to 1 GiB of message, odd counts. */
static void check_large(const struct options *options, const struct plan_folder *folder) {
  static const char *const names[] = {"allreduce-2.plan", "allgather-4.plan",
                                      "reduce_scatter-4.plan", "alltoall-8.plan"};
  if (options->small) return;
  begin("messages of up to 1 GiB");
  for (int i = 0; i < 4; i++) {
    const struct copse_plan *plan = plan_named(folder, names[i]);
    if (!plan) continue;
    struct device_plan d;
    device_plan_open(&d, plan, n_devices(), ONE_STREAM);
    for (uint64_t bytes = GPU_IS_REAL ? 64 << 20 : 1 << 16; bytes <= (GPU_IS_REAL ? 1 << 30 : 1 << 16);
         bytes *= 4) {
      uint64_t count = copse_plan_block_bytes(plan, bytes) / 4 - 1;
      struct exec_case it = case_of(COPSE_FLOAT, COPSE_SUM, count, i % 2 == 0);
      it.in_place = it.in_place && copse_buffers_has_in_place(
                                       (copse_collective)plan->header.collective);
      expect(device_case_run(&d, it) == 0, &d, it, "wrong elements");
    }
    device_plan_close(&d);
  }
}

/* ---- graphs, busy streams, a million in a row ------------------------------------------------ */

/* Every element of the inputs gets `value` times its rank plus one. */
struct fill_args {
  int32_t *inputs[8];
  uint64_t count;
  uint32_t n_ranks;
  int32_t value;
};
__global__ void fill_inputs(struct fill_args args) {
  for (uint64_t i = threadIdx.x; i < args.count; i += blockDim.x)
    args.inputs[blockIdx.x][i] = args.value * (int32_t)(blockIdx.x + 1) + (int32_t)i;
}

/* Counts what isn't the sum; poisons what it has read. */
struct verify_args {
  int32_t *outputs[8];
  uint64_t count;
  uint32_t n_ranks;
  int32_t value;
  unsigned int *wrong;
};
__global__ void verify_sums(struct verify_args args) {
  int32_t n = (int32_t)args.n_ranks;
  for (uint64_t i = threadIdx.x; i < args.count; i += blockDim.x) {
    int32_t expected = args.value * (n * (n + 1) / 2) + n * (int32_t)i;
    if (args.outputs[blockIdx.x][i] != expected) args.wrong[blockIdx.x] = 1;
    args.outputs[blockIdx.x][i] = -1;
  }
}

template <typename ARGS>
static void launch_blocks(void (*kernel)(ARGS), ARGS args, uint32_t n, cudaStream_t stream) {
  cudaLaunchConfig_t config = cudaLaunchConfig_t();
  config.gridDim = dim3(n);
  config.blockDim = dim3(GPU_IS_REAL ? 256 : 2);
  config.stream = stream;
  CUDA_OK(cudaLaunchKernelEx(&config, kernel, args));
}

struct soak {
  struct device_plan small, large;
  int32_t *inputs[8], *outputs[8];
  unsigned int *wrong;
};

static const uint64_t soak_room = 1 << 16; /* elements of each rank */

static void soak_open(struct soak *s, const struct copse_plan *small,
                      const struct copse_plan *large) {
  device_plan_open(&s->small, small, 1, ONE_STREAM);
  device_plan_open(&s->large, large, 1, ONE_STREAM);
  for (uint32_t r = 0; r < s->small.n_ranks; r++) {
    CUDA_OK(cudaMalloc((void **)&s->inputs[r], soak_room * 4));
    CUDA_OK(cudaMalloc((void **)&s->outputs[r], soak_room * 4));
    CUDA_OK(cudaMemset(s->outputs[r], 0xff, soak_room * 4));
  }
  CUDA_OK(cudaMalloc((void **)&s->wrong, 8 * sizeof *s->wrong));
  CUDA_OK(cudaMemset(s->wrong, 0, 8 * sizeof *s->wrong));
  CUDA_OK(cudaDeviceSynchronize());
}

/* Fill, allreduce, verify: enqueued. */
static void soak_once(struct soak *s, uint64_t count, int32_t value, bool low_latency) {
  struct copse_err err = COPSE_ERR_INIT;
  struct device_plan *d = low_latency ? &s->small : &s->large;
  cudaStream_t stream = s->small.streams[0];
  uint32_t n = s->small.n_ranks;
  struct fill_args fill = {{}, count, n, value};
  struct verify_args verify = {{}, count, n, value, s->wrong};
  struct copse_call calls[8];
  memset(calls, 0, sizeof calls);
  for (uint32_t r = 0; r < n; r++) {
    fill.inputs[r] = s->inputs[r];
    verify.outputs[r] = s->outputs[r];
    calls[r].collective = COPSE_ALLREDUCE;
    calls[r].root = -1;
    calls[r].count = count;
    calls[r].type = COPSE_INT32;
    calls[r].redop = COPSE_SUM;
    calls[r].send = s->inputs[r];
    calls[r].recv = s->outputs[r];
    calls[r].stream = stream;
  }
  launch_blocks(fill_inputs, fill, n, stream);
  COPSE_SUCCEEDS(copse_launch_one(&copse_cuda_backend, d->backend, d->prepared, calls, &err), &err);
  launch_blocks(verify_sums, verify, n, stream);
}

static void soak_close(struct soak *s, const char *what, struct exec_case last) {
  unsigned int wrong[8], any = 0;
  device_wait(&s->small);
  device_wait(&s->large);
  CUDA_OK(cudaMemcpy(wrong, s->wrong, sizeof wrong, cudaMemcpyDeviceToHost));
  for (uint32_t r = 0; r < s->small.n_ranks; r++) {
    any |= wrong[r];
    CUDA_OK(cudaFree(s->inputs[r]));
    CUDA_OK(cudaFree(s->outputs[r]));
  }
  expect(any == 0, &s->small, last, what);
  CUDA_OK(cudaFree(s->wrong));
  device_plan_close(&s->small);
  device_plan_close(&s->large);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of the i-th collective in a row, whatever was before, so that a soak can be continued. */
static uint64_t random_of(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z >> 33;
}

static bool soak_is_right(struct soak *s) {
  unsigned int wrong[8], any = 0;
  device_wait(&s->small);
  CUDA_OK(cudaMemcpy(wrong, s->wrong, sizeof wrong, cudaMemcpyDeviceToHost));
  for (uint32_t r = 0; r < s->small.n_ranks; r++) any |= wrong[r];
  return any == 0;
}

/* How many were done, from the first on: all, or as many as there was time for. */
static long soak_run(const struct options *options, struct soak *s, struct exec_case *it) {
  const long report = GPU_IS_REAL ? 20000 : 100;
  const double start = now();
  long i = options->from;
  while (i < options->soak) {
    uint64_t random = random_of((uint64_t)i);
    it->count = 1 + random % (i % 16 == 0 ? soak_room : 1024);
    soak_once(s, it->count, (int32_t)i, takes(s->small.plan, *it) && i % 3 != 0);
    i++;
    if (i % 1000 == 0) device_wait(&s->small); /* the queue of a stream is finite */
    if (i % report != 0) continue;
    bool right = soak_is_right(s);
    printf("  %ld of %ld, %s, %.1f s\n", i, options->soak, right ? "right" : "WRONG",
           now() - start);
    fflush(stdout);
    if (!right || (options->seconds > 0 && now() - start > options->seconds)) break;
  }
  return i;
}

static void check_soak(const struct options *options, const struct copse_plan *small,
                       const struct copse_plan *large) {
  struct soak s;
  struct exec_case it = case_of(COPSE_INT32, COPSE_SUM, 0, false);
  char name[100];
  snprintf(name, sizeof name, "%ld small allreduces of random sizes in a row", options->soak);
  begin(name);
  soak_open(&s, small, large);
  long done = soak_run(options, &s, &it);
  if (done < options->soak) printf("  go on with --soak %ld --from %ld\n", options->soak, done);
  soak_close(&s, "a wrong sum", it);
}

static void check_graph(const struct copse_plan *small, const struct copse_plan *large) {
  struct soak s;
  struct exec_case it = case_of(COPSE_INT32, COPSE_SUM, 3001, false);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  begin("graphs, launched again and again, and launches in between");
  soak_open(&s, small, large);
  cudaStream_t stream = s.small.streams[0];
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 6; i++) soak_once(&s, 500 + 499 * (uint64_t)i, i, i % 2);
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < (GPU_IS_REAL ? 1000 : 5); i++) {
    CUDA_OK(cudaGraphLaunch(exec, stream));
    if (i % 3 == 0) soak_once(&s, it.count, i, i % 2);
  }
  device_wait(&s.small);
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
  soak_close(&s, "a wrong sum", it);
}

/* Occupies a part of the GPU for a while. */
enum { BUSY_WORDS = 64 * 256 }; /* a thread's own each */
struct busy_args {
  unsigned int *memory;
  uint32_t rounds;
};
__global__ void keep_busy(struct busy_args args) {
  unsigned int *own = &args.memory[blockIdx.x * blockDim.x + threadIdx.x], v = *own;
  for (uint32_t i = 0; i < args.rounds; i++) v = v * 1664525u + 1013904223u;
  *own = v;
}

static void check_busy(const struct copse_plan *small, const struct copse_plan *large) {
  struct soak s;
  struct exec_case it = case_of(COPSE_INT32, COPSE_SUM, 2000, false);
  struct busy_args busy = {NULL, GPU_IS_REAL ? 200000u : 1000u};
  cudaStream_t other;
  begin("other kernels on other streams at the same time");
  soak_open(&s, small, large);
  CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CUDA_OK(cudaMalloc((void **)&busy.memory, BUSY_WORDS * sizeof *busy.memory));
  CUDA_OK(cudaMemset(busy.memory, 1, BUSY_WORDS * sizeof *busy.memory));
  for (int i = 0; i < (GPU_IS_REAL ? 300 : 10); i++) {
    launch_blocks(keep_busy, busy, GPU_IS_REAL ? 64 : 2, other);
    soak_once(&s, it.count, i, i % 2);
  }
  CUDA_OK(cudaStreamSynchronize(other));
  CUDA_OK(cudaStreamDestroy(other));
  CUDA_OK(cudaFree(busy.memory));
  soak_close(&s, "a wrong sum", it);
}

/* ---- layers of experts ----------------------------------------------------------------------- */

static void copy_ordered(void *to, const void *from, size_t bytes) {
  CUDA_OK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

/* The kernels of dispatch and combination against the reference, bit for bit; the program ends
 * at the first that differs. */
static void check_moe(const struct options *options) {
  static const struct moe_driver driver = {&copse_moe_cuda, 0, copy_ordered};
  uint64_t state = 77;
  begin("layers of experts, steps");
  for (int i = 0; i < (GPU_IS_REAL ? options->small ? 40 : 400 : 3); i++) {
    struct moe_options layer = moe_options_random(&state);
    if (!options->small && i % 4 == 0) {
      layer.config.max_tokens *= 20;
      layer.config.row.elements *= 16;
      if (layer.config.capacity != COPSE_MOE_EXACT) layer.config.capacity *= 20;
    }
    moe_drive(&driver, &layer, &state);
    passed++;
  }
}

/* ---- what a small GPU of threads can't show ------------------------------------------------------ */

/* Blocks of several widths: narrow ones share a multiprocessor. */
static void check_widths(const struct options *options) {
  const uint32_t usual = copse_cuda_threads;
  const struct pb_options shape = {4, 2, 2, 4, 16 << 10, 1 << 10};
  begin("blocks of other widths");
  for (uint32_t threads = usual; threads >= (GPU_IS_REAL ? 64u : 1u); threads /= 2) {
    copse_cuda_threads = threads;
    for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
      copse_collective collective = (copse_collective)c;
      struct copse_plan *plan = pb_tree_plan(collective, 4, root_of(collective, 4), shape);
      struct device_plan d;
      device_plan_open(&d, plan, 1, ONE_STREAM);
      run_both(&d, case_of(COPSE_HALF, COPSE_SUM, options->small ? 1001 : 100003, false));
      run_both(&d, case_of(COPSE_FLOAT, COPSE_SUM, 5, true));
      device_plan_close(&d);
      pb_free(plan);
    }
  }
  copse_cuda_threads = usual;
}

/* Where launch numbers start again all blocks meet and packets are cleared. */
static void check_numbers(const struct copse_plan *small) {
  struct device_plan d;
  begin("launch numbers that start again");
  device_plan_open(&d, small, 1, ONE_STREAM);
  const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)d.prepared;
  const uint32_t n = small->header.n_workers;
  uint32_t *numbers = (uint32_t *)calloc(n, sizeof *numbers);
  for (uint32_t i = 0; i < n; i++) numbers[i] = UINT32_MAX - 4;
  CUDA_OK(cudaMemcpy(p->devices[0].plan.epochs, numbers, n * sizeof *numbers,
                     cudaMemcpyHostToDevice));
  for (uint64_t i = 0; i < 8; i++)
    expect(device_case_run(&d, case_of(COPSE_INT32, COPSE_SUM, i % 3 ? 17 : 4001, false)) == 0, &d,
           case_of(COPSE_INT32, COPSE_SUM, i % 3 ? 17 : 4001, false), "wrong elements");
  CUDA_OK(cudaMemcpy(numbers, p->devices[0].plan.epochs, n * sizeof *numbers,
                     cudaMemcpyDeviceToHost));
  /* only packets have numbers that are cleared for, but every plan counts */
  for (uint32_t i = 0; i < n; i++)
    DEVICE_ASSERT(numbers[i] < 100, "worker %u has launch number %u", i, numbers[i]);
  free(numbers);
  device_plan_close(&d);
}

/* Groups of calls in one kernel, all blocks meeting between two: as they are and in a graph. */
static void check_groups(const struct copse_plan *small, const struct copse_plan *large) {
  const struct pb_options shape = {2, 2, 2, 4, 64 << 10, 1 << 10};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *gather = pb_tree_plan(COPSE_ALLGATHER, large->header.n_ranks, -1, shape);
  const struct copse_plan *plans[] = {small, large, gather};
  void *prepared[3];
  struct device_member members[6];
  struct device_plan d;
  begin("groups of calls in one kernel");
  device_plan_open(&d, small, 1, ONE_STREAM);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(d.backend, plans, 3, prepared, &err), &err);
  for (uint64_t turn = 0; turn < (GPU_IS_REAL ? 100u : 3u); turn++) {
    const int graph_launches = turn % 4 == 1 ? 3 : 0;
    int launches = 0;
    for (uint64_t i = 0; i < 6; i++) {
      const struct exec_case it = case_of(i % 3 == 2 ? COPSE_INT32 : COPSE_FLOAT, COPSE_SUM,
                                          1 + random_of(6 * turn + i) % (i % 3 ? 50000 : 1000), false);
      members[i] = {plans[i % 3], prepared[i % 3], it};
    }
    expect(device_group_compare(&d, members, 6, graph_launches, turn, &launches) == 0, &d, members[0].it,
           "bits that are not the CPU's");
    /* a plan of other widths than the others' has launches of its own */
    expect(GPU_IS_REAL ? launches <= 6 : launches == 1, &d, members[0].it, "several launches");
    if (turn == 0) printf("  6 calls in %d launches\n", launches);
  }
  device_plan_close(&d);
  pb_free(gather);
}

/* Rank 1 waits for a signal, or for packets, that rank 0 never sends. */
static struct copse_plan *hanging_plan(bool packets) {
  struct plan_builder *b = pb_new(COPSE_ALLREDUCE, 2, -1);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  if (packets) pb_header(b)->max_bytes = 1 << 16;
  for (uint32_t r = 0; r < 2; r++) pb_worker(b, r);
  uint32_t region = packets ? pb_packets(b, 1, piece) : 0, channel = pb_channel(b, 0, 1);
  for (uint32_t r = 0; r < 2; r++) {
    if (r == 1 && packets) pb_data_wait(b, r, channel);
    if (r == 1 && !packets) pb_wait(b, r, channel, COPSE_WHEN_ALWAYS);
    pb_move(b, r, piece, COPSE_MOVE_FINAL);
    pb_src(b, r == 1 && packets ? pb_packet(r, region) : pb_input(r, 0));
    pb_dst(b, pb_output(r, 0));
  }
  return pb_finish(b);
}

/* One launch that stands still, ended by its limit or by an abort. */
static void check_hanging(bool packets, bool by_abort) {
  struct copse_plan *plan = hanging_plan(packets);
  struct device_plan d;
  struct copse_err err = COPSE_ERR_INIT;
  const struct exec_case it = case_of(COPSE_INT32, COPSE_SUM, 1000, false);
  int32_t *memory[2];
  struct copse_call calls[2];
  memset(calls, 0, sizeof calls);
  device_plan_open(&d, plan, 1, ONE_STREAM);
  for (uint32_t r = 0; r < 2; r++) {
    CUDA_OK(cudaMalloc((void **)&memory[r], 2 * it.count * 4));
    CUDA_OK(cudaMemset(memory[r], 0, 2 * it.count * 4));
    calls[r].collective = COPSE_ALLREDUCE;
    calls[r].root = -1;
    calls[r].count = it.count;
    calls[r].type = it.type;
    calls[r].redop = it.redop;
    calls[r].send = memory[r];
    calls[r].recv = memory[r] + it.count;
    calls[r].stream = d.streams[0];
  }
  CUDA_OK(cudaDeviceSynchronize());
  copse_cuda_backend.set_timeout(d.backend, by_abort ? 30 : 0.2);
  COPSE_SUCCEEDS(copse_launch_one(&copse_cuda_backend, d.backend, d.prepared, calls, &err), &err);
  if (by_abort) copse_cuda_backend.abort(d.backend);
  copse_status status = copse_cuda_backend.finish(d.backend, &err);
  expect(status == (by_abort ? COPSE_ABORTED : COPSE_TIMEOUT), &d, it, "not the error it should be");
  expect(by_abort || strstr(err.text, "rank 1, worker 0 waited over 0.2 s for rank 0"), &d, it,
         "a report that doesn't say where");
  for (uint32_t r = 0; r < 2; r++) CUDA_OK(cudaFree(memory[r]));
  device_plan_close(&d);
  pb_free(plan);
}

static void check_waits(void) {
  begin("waits in vain, ended by their limit and by an abort");
  for (int k = 0; k < 4; k++) check_hanging(k % 2, k / 2);
}

/* ---- what no run on one GPU shows otherwise: other scopes, processes, two communicators ---------------- */

/* Signals and packets as between GPUs, on one. */
static void check_system(const struct options *options, const struct copse_plan *small,
                         const struct copse_plan *large) {
  static const uint64_t counts[] = {1, 511, 4099, 262147};
  const struct pb_options shape = {2, 2, 2, 4, 64 << 10, 1 << 10};
  begin("the scope of the system, on one GPU");
  copse_cuda_system = true;
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    copse_collective collective = (copse_collective)c;
    struct copse_plan *plan = pb_tree_plan(collective, 4, root_of(collective, 4), shape);
    struct device_plan d;
    device_plan_open(&d, plan, 1, STREAM_PER_RANK);
    const struct copse_cuda_plan *p = (const struct copse_cuda_plan *)d.prepared;
    expect(p->devices[0].plan.system != 0, &d, case_of(COPSE_FLOAT, COPSE_SUM, 0, false),
           "the scope of one GPU");
    check_matrix(&d, counts, options->small ? 2 : 4);
    device_plan_close(&d);
    pb_free(plan);
  }
  struct soak s;
  struct exec_case it = case_of(COPSE_INT32, COPSE_SUM, 0, false);
  soak_open(&s, small, large);
  for (int i = 0; i < (GPU_IS_REAL ? 3000 : 20); i++) {
    it.count = 1 + random_of((uint64_t)i) % (i % 4 == 0 ? soak_room : 1024);
    soak_once(&s, it.count, i, takes(s.small.plan, it) && i % 3 != 0);
    if (i % 1000 == 999) device_wait(&s.small);
  }
  soak_close(&s, "a wrong sum", it);
  copse_cuda_system = false;
}

static const uint64_t process_room = 4 << 20; /* bytes of an output */

/* A rank of its own process: eight calls, staged and into a registered buffer, and a graph. */
static void run_process(struct meeting meeting, copse_collective collective) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &meeting};
  struct copse_err err = COPSE_ERR_INIT;
  struct process p;
  unsigned char *memory;
  void *handle;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  copse_cuda_staging_bytes = 1 << 20;
  process_open(&p, collective, {2, 2, 2, 4, 64 << 10, 1 << 10}, &bootstrap);
  CUDA_OK(cudaMalloc((void **)&memory, 2 * process_room));
  for (uint64_t i = 0; i < 8; i++) {
    if (i == 4)
      COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p.backend, 0, memory, process_room, &handle, &err),
                     &err);
    const struct process_call call = {GPU_IS_REAL ? 1 + i * 20011 : 1 + i * 101, i, i % 2 == 1,
                                      i % 4 == 2 ? 3 : 0};
    process_check(&p, &call, memory, process_room);
  }
  COPSE_SUCCEEDS(copse_cuda_backend.remove_buffer(p.backend, 0, handle, &err), &err);
  CUDA_OK(cudaFree(memory));
  process_close(&p);
}

/* Two communicators of the same ranks on streams of their own; every other rank calls the second one
 * first. Both have room at once, so both must end. */
static void run_inverted(struct meeting meeting) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &meeting};
  struct process p[2];
  struct process_running running[2];
  unsigned char *memory[2];
  memset(p, 0, sizeof p);
  for (int k = 0; k < 2; k++) {
    p[k].meeting = meeting;
    process_open(&p[k], k ? COPSE_ALLGATHER : COPSE_ALLREDUCE, {2, 2, 2, 4, 64 << 10, 1 << 10},
                 &bootstrap);
    CUDA_OK(cudaMalloc((void **)&memory[k], 2 * process_room));
  }
  for (uint64_t i = 0; i < (GPU_IS_REAL ? 20u : 6u); i++) {
    const int first = (meeting.rank + (int)i / 2) % 2;
    for (int k = 0; k < 2; k++) {
      const int which = k ? !first : first;
      process_begin(&p[which], {1 + i * 311, i, false, 0}, memory[which], process_room,
                    &running[which]);
    }
    for (int k = 0; k < 2; k++) process_end(&p[k], &running[k]);
  }
  for (int k = 0; k < 2; k++) {
    CUDA_OK(cudaFree(memory[k]));
    process_close(&p[k]);
  }
}

/* Sums by the switch, a process per GPU. */
static void run_multicast(struct meeting meeting) {
  static const uint64_t counts[] = {1, 511, 4099, 262147};
  const copse_bootstrap bootstrap = {meeting_all_gather, &meeting};
  struct copse_plan *plan = device_multicast_plan(meeting.n);
  struct process p;
  unsigned char *memory;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  gpu_make_several(meeting.n);
  process_start(&p, plan, &bootstrap);
  CUDA_OK(cudaMalloc((void **)&memory, 2 * process_room));
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
      for (int k = 0; k < (GPU_IS_REAL ? 4 : 2); k++) {
        const struct process_call call = {counts[k], (uint64_t)(type + redop), (type + redop + k) % 2 == 1,
                                          0, true, (copse_type)type, (copse_redop)redop};
        process_check(&p, &call, memory, process_room);
      }
  CUDA_OK(cudaFree(memory));
  process_stop(&p);
  copse_plan_free(plan);
}

static void run_as_rank(const struct process_arguments *arguments) {
  gpu_make_small();
  if (strcmp(arguments->mode, "multicast") == 0) return run_multicast(arguments->meeting);
  if (strcmp(arguments->mode, "inverted") == 0)
    run_inverted(arguments->meeting);
  else
    run_process(arguments->meeting, arguments->collective);
}

/* As many as GPUs, at least two: then they share one. A rank that fails ends this program. */
static int n_processes(void) {
  const int n = n_devices();
  return n < 2 ? 2 : n > MAX_PROCESSES ? (int)MAX_PROCESSES : n;
}

static void check_processes(void) {
  begin("a process per rank, memory by IPC");
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++, passed++)
    processes_run((copse_collective)c, "plain", n_processes());
}

static void check_inverted(void) {
  begin("two communicators on two streams, called in inverted order");
  processes_run(COPSE_ALLREDUCE, "inverted", n_processes());
  passed++;
}

/* Whether the driver makes groups of the first n GPUs' memory; says why not. */
static bool has_switch(int n) {
  struct copse_err err = COPSE_ERR_INIT;
  int devices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const struct copse_comm_shape shape = {(uint32_t)n, 0, (uint32_t)n, devices, NULL, NULL, NULL};
  void *backend;
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &backend, &err), &err);
  const copse_status status = copse_cuda_group_check((struct copse_cuda *)backend, &err);
  copse_cuda_backend.destroy(backend);
  if (status != COPSE_OK) printf("SKIP %s: %s\n", group, err.text);
  return status == COPSE_OK;
}

/* Sums whatever their order: the test data's are exact. */
static void check_multicast(void) {
  static const uint64_t counts[] = {1, 511, 4099, 262147};
  begin("multicast: sums by the switch");
  gpu_make_several(3);
  const int n = n_devices() < 8 ? n_devices() : 8;
  if (n < 3) printf("SKIP %s: %d GPUs, a group's sums are worth it from 3 on\n", group, n);
  if (n < 3 || !has_switch(n)) {
    skipped++;
    return gpu_make_several(1);
  }
  struct copse_plan *plan = device_multicast_plan(n);
  struct device_plan d;
  device_plan_open(&d, plan, n, STREAM_PER_RANK);
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++)
      for (int k = 0; k < (GPU_IS_REAL ? 4 : 2); k++) {
        struct exec_case it = case_of((copse_type)type, (copse_redop)redop, counts[k],
                                      (type + redop + k) % 2 == 1);
        expect(device_case_run(&d, it) == 0, &d, it, "wrong elements");
      }
  device_plan_close(&d);
  copse_plan_free(plan);
  gpu_make_several(1);
  begin("multicast: a process per rank");
  processes_run(COPSE_ALLREDUCE, "multicast", n);
  passed++;
}

/* ---- main ---------------------------------------------------------------------------------------- */

static struct options parse(int argc, char **argv) {
  struct options o;
  memset(&o, 0, sizeof o);
  o.small = !GPU_IS_REAL;
  o.soak = GPU_IS_REAL ? 1000000 : 300;
  o.plans = "build/gpu/plans";
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--small") == 0) {
      o.small = true;
      continue;
    }
    DEVICE_ASSERT(*value, "check_gpu: %s takes a value, or is no option", argv[i]);
    if (strcmp(argv[i], "--soak") == 0)
      o.soak = atol(value);
    else if (strcmp(argv[i], "--from") == 0)
      o.from = atol(value);
    else if (strcmp(argv[i], "--seconds") == 0)
      o.seconds = atof(value);
    else if (strcmp(argv[i], "--threads") == 0)
      copse_cuda_threads = (uint32_t)atol(value);
    else if (strcmp(argv[i], "--plans") == 0)
      o.plans = value;
    else if (strcmp(argv[i], "--only") == 0)
      o.only = value;
    else
      DEVICE_ASSERT(false, "check_gpu: no option %s", argv[i]);
    i++;
  }
  if (o.small && o.soak > 300) o.soak = 300;
  return o;
}

static bool wanted(const struct options *options, const char *name) {
  return !options->only || has_word(options->only, name);
}

int main(int argc, char **argv) {
  struct plan_folder folder;
  struct process_arguments rank;
  if (process_is_rank(argc, argv, &rank)) {
    run_as_rank(&rank);
    return 0;
  }
  gpu_make_small();
  struct options options = parse(argc, argv);
  if (!gpu_is_there("check_gpu")) return 0;
  plan_folder_open(&folder, options.plans);
  struct pb_options few = {2, 2, 2, 4, 64 << 10, 1 << 10};
  struct copse_plan *textbook = pb_tree_plan(COPSE_ALLREDUCE, 4, -1, few);
  const struct copse_plan *small = plan_named(&folder, "allreduce-8.ll.plan");
  const struct copse_plan *large = plan_named(&folder, "allreduce-8.plan");
  if (!small || !large || !GPU_IS_REAL) small = large = textbook;
  if (wanted(&options, "types")) check_built_in(&options);
  if (wanted(&options, "random")) check_random(&options);
  if (wanted(&options, "widths")) check_widths(&options);
  if (wanted(&options, "numbers")) check_numbers(small);
  if (wanted(&options, "graphs")) check_graph(small, large);
  if (wanted(&options, "groups")) check_groups(small, large);
  if (wanted(&options, "busy")) check_busy(small, large);
  if (wanted(&options, "waits")) check_waits();
  if (wanted(&options, "system")) check_system(&options, small, large);
  if (wanted(&options, "processes")) check_processes();
  if (wanted(&options, "inverted")) check_inverted();
  if (wanted(&options, "multicast")) check_multicast();
  if (wanted(&options, "plans") && GPU_IS_REAL) check_folder(&options, &folder);
  if (wanted(&options, "moe")) check_moe(&options);
  if (wanted(&options, "soak")) check_soak(&options, small, large);
  if (wanted(&options, "large")) check_large(&options, &folder);
  pb_free(textbook);
  plan_folder_close(&folder);
  printf("%lu passed, %lu failed, %lu skipped\n", passed, failed, skipped);
  printf("RESULT run=%lu failed=%lu\n", passed + failed, failed);
  return failed ? 1 : 0;
}
