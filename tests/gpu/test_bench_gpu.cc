/*
 * make bench-gpu: how fast are plans on the first GPU of this machine, as virtual ranks? The
 * ceiling, a device-to-device copy, is measured in the same run, before and after. Figures are
 * medians of launches timed by events. Options: --plans FOLDER (default build/gpu/plans).
 */
#include "gpu/gpu_support.h"

extern "C" {
#include "runtime/layout.h"
}

static const uint64_t MiB = 1 << 20;
static const int MOST_RANKS = GPU_IS_REAL ? 8 : 2;

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* What is timed. */
struct timed {
  void (*enqueue)(void *context, cudaStream_t stream);
  void *context;
  cudaStream_t stream;
  int repetitions;
};

/* Median milliseconds of one repetition. */
static double milliseconds(const struct timed *t) {
  enum { SAMPLES = GPU_IS_REAL ? 15 : 1 };
  float samples[SAMPLES];
  cudaEvent_t start, end;
  CUDA_OK(cudaEventCreate(&start));
  CUDA_OK(cudaEventCreate(&end));
  for (int i = 0; i < 3; i++) t->enqueue(t->context, t->stream); /* warm up */
  for (int s = 0; s < SAMPLES; s++) {
    CUDA_OK(cudaEventRecord(start, t->stream));
    for (int i = 0; i < t->repetitions; i++) t->enqueue(t->context, t->stream);
    CUDA_OK(cudaEventRecord(end, t->stream));
    CUDA_OK(cudaEventSynchronize(end));
    CUDA_OK(cudaEventElapsedTime(&samples[s], start, end));
  }
  qsort(samples, SAMPLES, sizeof *samples, by_value);
  CUDA_OK(cudaEventDestroy(start));
  CUDA_OK(cudaEventDestroy(end));
  return (double)samples[SAMPLES / 2] / t->repetitions;
}

/* ---- the ceiling --------------------------------------------------------------------------- */

struct copy {
  unsigned char *from, *to;
  uint64_t bytes;
};

static void enqueue_copy(void *context, cudaStream_t stream) {
  const struct copy *c = (const struct copy *)context;
  CUDA_OK(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, stream));
}

/* GB/s of a copy, bytes read and bytes written counted. */
static double copy_rate(void) {
  struct copy c = {NULL, NULL, GPU_IS_REAL ? 2048 * MiB : 1 << 16};
  cudaStream_t stream;
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA_OK(cudaMalloc((void **)&c.from, c.bytes));
  CUDA_OK(cudaMalloc((void **)&c.to, c.bytes));
  CUDA_OK(cudaMemset(c.from, 0x5a, c.bytes));
  CUDA_OK(cudaDeviceSynchronize());
  struct timed t = {enqueue_copy, &c, stream, 5};
  double rate = 2e-6 * (double)c.bytes / milliseconds(&t);
  CUDA_OK(cudaFree(c.from));
  CUDA_OK(cudaFree(c.to));
  CUDA_OK(cudaStreamDestroy(stream));
  return rate;
}

/* ---- plans ------------------------------------------------------------------------------------ */

/* Bytes that the plan's operations read and write for blocks of `count` elements. */
static double plan_bytes(const struct copse_plan *plan, uint64_t count, uint32_t element_bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_layout layout;
  struct copse_shape shape;
  double total = 0;
  COPSE_SUCCEEDS(copse_layout_new(plan, &layout, &err), &err);
  COPSE_SUCCEEDS(copse_layout_shape(&layout, count, element_bytes, &shape, &err), &err);
  copse_layout_free(&layout);
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind != COPSE_OP_MOVE) continue;
    struct copse_span span = copse_piece_span(&plan->pieces[op->piece], count, shape.unit);
    total += (double)span.count * element_bytes * (op->n_src + op->n_dst);
  }
  return total;
}

struct running {
  struct device_plan d;
  struct copse_call *calls;
  unsigned char **memory;
};

static void fill_pattern(unsigned char *memory, uint64_t bytes, uint32_t rank) {
  const uint64_t BLOCK = 1 << 20;
  static unsigned char block[1 << 20];
  for (uint32_t i = 0; i < BLOCK; i += 4) { /* floats between 1 and 2, no two alike */
    uint32_t bits = 0x3f800000u | ((i * 2654435761u + rank * 40503u) >> 9);
    memcpy(block + i, &bits, 4);
  }
  uint64_t done = bytes < BLOCK ? bytes : BLOCK;
  CUDA_OK(cudaMemcpy(memory, block, done, cudaMemcpyHostToDevice));
  for (uint64_t more; done < bytes; done += more) {
    more = bytes - done < done ? bytes - done : done;
    CUDA_OK(cudaMemcpy(memory + done, memory, more, cudaMemcpyDeviceToDevice));
  }
}

static void running_open(struct running *r, const struct copse_plan *plan, uint64_t count) {
  const struct copse_plan_header *h = &plan->header;
  device_plan_open(&r->d, plan, 1, ONE_STREAM);
  r->calls = (struct copse_call *)calloc(h->n_ranks, sizeof *r->calls);
  r->memory = (unsigned char **)calloc(h->n_ranks, sizeof *r->memory);
  for (uint32_t i = 0; i < h->n_ranks; i++) {
    uint64_t in = h->input_blocks * count * 4, out = h->output_blocks * count * 4;
    CUDA_OK(cudaMalloc((void **)&r->memory[i], in + out));
    fill_pattern(r->memory[i], in + out, i);
    r->calls[i].collective = (copse_collective)h->collective;
    r->calls[i].root = h->root;
    r->calls[i].count = count;
    r->calls[i].type = COPSE_FLOAT;
    r->calls[i].redop = COPSE_SUM;
    r->calls[i].send = r->memory[i];
    r->calls[i].recv = r->memory[i] + in;
    r->calls[i].stream = r->d.streams[0];
  }
  CUDA_OK(cudaDeviceSynchronize());
}

static void running_close(struct running *r) {
  device_wait(&r->d);
  for (uint32_t i = 0; i < r->d.n_ranks; i++) CUDA_OK(cudaFree(r->memory[i]));
  device_plan_close(&r->d);
  free(r->calls);
  free(r->memory);
}

static void enqueue_plan(void *context, cudaStream_t stream) {
  struct running *r = (struct running *)context;
  struct copse_err err = COPSE_ERR_INIT;
  (void)stream;
  COPSE_SUCCEEDS(copse_cuda_machine.launch(r->d.machine, r->d.prepared, r->calls, &err), &err);
}

static void bench_bandwidth(const struct plan_folder *folder, double ceiling) {
  static const char *const collectives[] = {"allreduce", "allgather", "reduce_scatter",
                                            "alltoall"};
  printf("\n# collective      ranks  MiB/rank      us    algbw   plan GB   GB/s   of copy\n");
  for (int c = 0; c < 4; c++)
    for (int n = 2; n <= MOST_RANKS; n *= 2)
      for (uint64_t mib = 256; mib <= (GPU_IS_REAL ? 1024 : 256); mib *= 2) {
        char name[64];
        snprintf(name, sizeof name, "%s-%d.plan", collectives[c], n);
        const struct copse_plan *plan = plan_named(folder, name);
        if (!plan) continue;
        uint64_t bytes = GPU_IS_REAL ? mib * MiB : mib * 16;
        uint64_t count = copse_plan_block_bytes(plan, bytes) / 4;
        struct running r;
        running_open(&r, plan, count);
        struct timed t = {enqueue_plan, &r, r.d.streams[0], 3};
        double ms = milliseconds(&t), moved = plan_bytes(plan, count, 4);
        double rate = 1e-6 * moved / ms;
        printf("  %-15s %5d %9llu %8.1f %7.1f %9.3f %7.0f   %5.1f %%\n", collectives[c], n,
               (unsigned long long)mib, 1e3 * ms, 1e-6 * (double)bytes / ms, 1e-9 * moved, rate,
               100 * rate / ceiling);
        fflush(stdout);
        running_close(&r);
      }
}

/* ---- latency ------------------------------------------------------------------------------------- */

struct graph {
  cudaGraphExec_t exec;
};

static void enqueue_graph(void *context, cudaStream_t stream) {
  CUDA_OK(cudaGraphLaunch(((struct graph *)context)->exec, stream));
}

struct nothing {
  int zero;
};
__global__ void do_nothing(struct nothing) {}

/* A kernel that does nothing, of as many threads as a GPU's multiprocessors hold at 512 each. */
static void enqueue_nothing(void *context, cudaStream_t stream) {
  cudaLaunchAttribute together = cudaLaunchAttribute();
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = *(int *)context;
  cudaLaunchConfig_t config = cudaLaunchConfig_t();
  config.gridDim = dim3(GPU_IS_REAL ? 128 : 2);
  config.blockDim = dim3(GPU_IS_REAL ? 512 : 2);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  CUDA_OK(cudaLaunchKernelEx(&config, do_nothing, nothing{0}));
}

/* Microseconds of a graph of one launch, and of a tenth of a graph of ten. */
static void time_graphs(const struct timed *launch, double us[2]) {
  for (int k = 0; k < 2; k++) {
    cudaGraph_t graph;
    struct graph g;
    CUDA_OK(cudaStreamBeginCapture(launch->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < (k ? 10 : 1); i++) launch->enqueue(launch->context, launch->stream);
    CUDA_OK(cudaStreamEndCapture(launch->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&g.exec, graph, 0));
    struct timed t = {enqueue_graph, &g, launch->stream, 1};
    us[k] = 1e3 * milliseconds(&t) / (k ? 10 : 1);
    CUDA_OK(cudaGraphExecDestroy(g.exec));
    CUDA_OK(cudaGraphDestroy(graph));
  }
}

static void bench_floor(void) {
  cudaStream_t stream;
  double us[2];
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  printf("\n# in a graph, us                      one     one of ten\n");
  for (int cooperative = 0; cooperative < 2; cooperative++) {
    struct timed t = {enqueue_nothing, &cooperative, stream, 1};
    time_graphs(&t, us);
    printf("  an empty kernel%-16s %8.2f     %8.2f\n", cooperative ? ", cooperative" : "", us[0],
           us[1]);
  }
  CUDA_OK(cudaStreamDestroy(stream));
}

/* Launch to completion of a graph of one collective, seen from the host's clock of events; and of
 * ten in one graph, a tenth of it. */
static void bench_latency(const struct plan_folder *folder) {
  bench_floor();
  for (int n = 2; n <= MOST_RANKS; n *= 2)
    for (int protocol = 0; protocol < 2; protocol++)
      for (uint64_t bytes = 1024; bytes <= 65536; bytes *= 4) {
        char name[64];
        snprintf(name, sizeof name, "allreduce-%d.%splan", n, protocol ? "" : "ll.");
        const struct copse_plan *plan = plan_named(folder, name);
        if (!plan) continue;
        struct running r;
        running_open(&r, plan, bytes / 4);
        double us[2];
        struct timed launch = {enqueue_plan, &r, r.d.streams[0], 1};
        time_graphs(&launch, us);
        printf("  %d ranks, %5llu bytes, %-11s %8.2f     %8.2f\n", n, (unsigned long long)bytes,
               protocol ? "bandwidth" : "low latency", us[0], us[1]);
        fflush(stdout);
        running_close(&r);
      }
}

int main(int argc, char **argv) {
  const char *plans = GPU_IS_REAL ? "build/gpu/plans" : "";
  struct plan_folder folder;
  for (int i = 1; i + 1 < argc; i++)
    if (strcmp(argv[i], "--plans") == 0) plans = argv[i + 1];
  gpu_make_small();
  if (!gpu_is_there("bench_gpu")) return 0;
  plan_folder_open(&folder, plans);
  if (GPU_IS_REAL && folder.n == 0) {
    fprintf(stderr, "bench_gpu: no plans in %s (make gpu-plans)\n", plans);
    return 2;
  }
  double before = copy_rate();
  printf("# device-to-device copy, read + written: %.0f GB/s\n", before);
  bench_bandwidth(&folder, before);
  bench_latency(&folder);
  printf("\n# device-to-device copy again: %.0f GB/s\n", copy_rate());
  plan_folder_close(&folder);
  if (!GPU_IS_REAL) printf("RESULT run=1 failed=0\n");
  return 0;
}
