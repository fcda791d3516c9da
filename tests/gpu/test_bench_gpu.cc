/*
 * make bench-gpu: how fast are plans on the first GPU of this machine, as virtual ranks? The
 * ceiling, a device-to-device copy, is measured in the same run. Figures are medians of launches
 * timed by events; a table's line stands as soon as it is measured.
 *
 *   --only A,B              of copy, floor, latency, bandwidth; default all
 *   --collectives A,B       default allreduce,allgather,reduce_scatter,alltoall
 *   --ranks A,B             default 2,4,8
 *   --mib A,B  --bytes A,B  of bandwidth and of latency
 *   --samples N             default 15
 *   --variant NAME[:SET]    a column; SET: comma-separated plans=FOLDER, threads=N (of a block),
 *                           chunk=BYTES, min-chunk=BYTES, pipeline=N (as in copse lower)
 *   --variants FILE         one a line
 *   --plans FOLDER          of variants that name none; default build/gpu/plans
 *
 * Without variants there is one, the plans as they are, and the table says more of it. Chunks can
 * be set at will: a plan's proof holds for any number of them.
 */
#include "gpu/bench_timing.h"
#include "gpu/bench_variants.h"

extern "C" {
#include "runtime/plan/layout.h"
}

static const uint64_t MiB = 1 << 20;

/* ---- what is asked for --------------------------------------------------------------------- */

enum { MOST_ITEMS = 16 };

struct number_list {
  int n;
  uint64_t of[MOST_ITEMS];
};

struct options {
  const char *only, *collectives;
  struct number_list ranks, mib, bytes;
  struct variant_list variants;
};

static struct number_list numbers_of(const char *text) {
  struct number_list list = {0, {0}};
  while (*text && list.n < MOST_ITEMS) {
    char *end;
    list.of[list.n++] = bytes_of(text, &end);
    DEVICE_ASSERT(end != text && (*end == ',' || *end == 0), "bench_gpu: no number: %s", text);
    text = *end ? end + 1 : end;
  }
  return list;
}

static struct options parse(int argc, char **argv) {
  struct options o;
  memset(&o, 0, sizeof o);
  o.only = "copy,floor,latency,bandwidth";
  o.collectives = "allreduce,allgather,reduce_scatter,alltoall";
  o.ranks = numbers_of(GPU_IS_REAL ? "2,4,8" : "2");
  o.mib = numbers_of(GPU_IS_REAL ? "256,512,1024" : "256");
  o.bytes = numbers_of("1024,4096,16384,65536");
  o.variants.plans = GPU_IS_REAL ? "build/gpu/plans" : "";
  for (int i = 1; i < argc; i += 2) {
    const char *value = argv[i + 1];
    DEVICE_ASSERT(i + 1 < argc, "bench_gpu: %s takes a value", argv[i]);
    if (strcmp(argv[i], "--only") == 0)
      o.only = value;
    else if (strcmp(argv[i], "--collectives") == 0)
      o.collectives = value;
    else if (strcmp(argv[i], "--ranks") == 0)
      o.ranks = numbers_of(value);
    else if (strcmp(argv[i], "--mib") == 0)
      o.mib = numbers_of(value);
    else if (strcmp(argv[i], "--bytes") == 0)
      o.bytes = numbers_of(value);
    else if (strcmp(argv[i], "--samples") == 0)
      timing_samples = atoi(value) > 0 && atoi(value) < TIMING_MOST_SAMPLES ? atoi(value) : 1;
    else if (strcmp(argv[i], "--plans") == 0)
      o.variants.plans = value;
    else if (strcmp(argv[i], "--variant") == 0)
      variants_add(&o.variants, value);
    else if (strcmp(argv[i], "--variants") == 0)
      variants_read(&o.variants, value);
    else
      DEVICE_ASSERT(false, "bench_gpu: no option %s", argv[i]);
  }
  if (o.variants.n == 0) variants_add(&o.variants, "as-is");
  return o;
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
static double copy_rate(uint64_t bytes) {
  struct copy c = {NULL, NULL, bytes};
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

/* The large one is the ceiling; smaller ones show what any kernel of their length loses. */
static double print_copy_rate(const char *when, bool all) {
  const uint64_t most = GPU_IS_REAL ? 2048 * MiB : 1 << 16;
  double rate = copy_rate(most);
  printf("# device-to-device copy%s, read + written: %.0f GB/s", when, rate);
  for (int shift = 2; all && shift <= 4; shift++)
    printf("; of %.0f MiB %.0f", (double)(most >> shift) / (double)MiB, copy_rate(most >> shift));
  printf("\n");
  fflush(stdout);
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
  COPSE_SUCCEEDS(copse_launch_one(&copse_cuda_backend, r->d.backend, r->d.prepared, r->calls, &err), &err);
}

/* ---- bandwidth ------------------------------------------------------------------------------ */

struct measured {
  double ms, bytes; /* of one launch; that the plan reads and writes */
};

/* The variant's plan, if it has one of this name and its blocks fit. */
static struct copse_plan *open_plan(const struct variant *v, const char *name) {
  struct copse_plan *plan = variant_plan(v, name);
  if (!plan || variant_fits(v, plan)) return plan;
  copse_plan_free(plan);
  return NULL;
}

static struct measured measure(const struct variant *v, const struct copse_plan *plan,
                               uint64_t bytes) {
  uint64_t count = copse_plan_block_bytes(plan, bytes) / 4;
  struct measured out;
  struct running r;
  variant_enter(v);
  running_open(&r, plan, count);
  struct timed t = {enqueue_plan, &r, r.d.streams[0], 3};
  out.ms = milliseconds(&t);
  out.bytes = plan_bytes(plan, count, 4);
  running_close(&r);
  variant_leave();
  return out;
}

static void print_measured(const struct options *o, const struct measured *it, uint64_t bytes,
                           double ceiling) {
  double rate = 1e-6 * it->bytes / it->ms;
  if (o->variants.n == 1)
    printf(" %8.1f %7.1f %9.3f %7.0f   %5.1f %%", 1e3 * it->ms, 1e-6 * (double)bytes / it->ms,
           1e-9 * it->bytes, rate, 100 * rate / ceiling);
  else
    printf(" %8.1f %%", 100 * rate / ceiling);
  fflush(stdout);
}

/* A plan of one rank: a move for each block and no signal: what a block's loop can do at best. */
static struct copse_plan *copying_plan(copse_collective collective) {
  const uint32_t blocks = GPU_IS_REAL ? 132 : 2;
  const struct pb_options shape = {blocks, 1, 2, 1, (uint64_t)1 << 30, 1 << 20};
  return pb_tree_plan(collective, 1, -1, shape);
}

static void copying_line(const struct options *o, copse_collective collective, double ceiling) {
  const uint64_t mib = GPU_IS_REAL ? 1024 : 1;
  struct copse_plan *plan = copying_plan(collective);
  printf("  %-15s %5d %9llu", copse_collective_name(collective), 1, (unsigned long long)mib);
  for (int i = 0; i < o->variants.n; i++) {
    struct measured it = measure(&o->variants.of[i], plan, mib * MiB);
    print_measured(o, &it, mib * MiB, ceiling);
  }
  printf("\n");
  pb_free(plan);
}

static void bandwidth_line(const struct options *o, const char *collective, int n, uint64_t mib,
                           double ceiling) {
  const uint64_t bytes = GPU_IS_REAL ? mib * MiB : mib * 16;
  char name[64];
  snprintf(name, sizeof name, "%s-%d.plan", collective, n);
  printf("  %-15s %5d %9llu", collective, n, (unsigned long long)mib);
  for (int i = 0; i < o->variants.n; i++) {
    struct copse_plan *plan = open_plan(&o->variants.of[i], name);
    if (!plan) {
      printf(" %10s", "-");
      continue;
    }
    struct measured it = measure(&o->variants.of[i], plan, bytes);
    print_measured(o, &it, bytes, ceiling);
    copse_plan_free(plan);
  }
  printf("\n");
}

static void bench_bandwidth(const struct options *o, double ceiling) {
  printf("\n# collective      ranks  MiB/rank");
  if (o->variants.n == 1)
    printf("       us   algbw   plan GB    GB/s   of copy");
  else
    variants_print_names(&o->variants, " %10.10s");
  printf("\n");
  copying_line(o, COPSE_ALLGATHER, ceiling);
  copying_line(o, COPSE_ALLREDUCE, ceiling);
  for (const char *at = o->collectives; at;) {
    char collective[32];
    at = next_word(at, collective, sizeof collective);
    for (int n = 0; n < o->ranks.n; n++)
      for (int k = 0; k < o->mib.n; k++)
        bandwidth_line(o, collective, (int)o->ranks.of[n], o->mib.of[k], ceiling);
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
  struct copse_plan *plan = copying_plan(COPSE_ALLREDUCE);
  struct running r;
  running_open(&r, plan, 16384);
  struct timed launch = {enqueue_plan, &r, r.d.streams[0], 1};
  time_graphs(&launch, us);
  printf("  one rank, 65536 bytes, no hop  %8.2f     %8.2f\n", us[0], us[1]);
  running_close(&r);
  pb_free(plan);
  fflush(stdout);
  CUDA_OK(cudaStreamDestroy(stream));
}

static bool measure_graph(const struct variant *v, const char *name, uint64_t bytes, double us[2]) {
  struct copse_plan *plan = open_plan(v, name);
  if (!plan || bytes > plan->header.max_bytes) {
    copse_plan_free(plan);
    return false;
  }
  struct running r;
  variant_enter(v);
  running_open(&r, plan, bytes / 4);
  struct timed launch = {enqueue_plan, &r, r.d.streams[0], 1};
  time_graphs(&launch, us);
  running_close(&r);
  variant_leave();
  copse_plan_free(plan);
  return true;
}

/* Launch to completion of a graph of one collective, by the clock of events; and of ten in one
 * graph, a tenth of it. Where there are no variants, all kinds of plans, for comparison. */
static void bench_latency(const struct options *o) {
  static const char *const kinds[][2] = {
      {"ll.", "low latency"}, {"one-hop.", "one hop"}, {"", "bandwidth"}};
  printf("\n# allreduce in a graph, us: one / one of ten");
  if (o->variants.n > 1) variants_print_names(&o->variants, "   %13.13s");
  printf("\n");
  for (int n = 0; n < o->ranks.n; n++)
    for (int kind = 0; kind < (o->variants.n == 1 ? 3 : 1); kind++)
      for (int k = 0; k < o->bytes.n; k++) {
        char name[64];
        snprintf(name, sizeof name, "allreduce-%d.%splan", (int)o->ranks.of[n],
                 kinds[kind][0]);
        printf("  %d ranks, %6llu bytes, %-11s", (int)o->ranks.of[n],
               (unsigned long long)o->bytes.of[k], kinds[kind][1]);
        for (int i = 0; i < o->variants.n; i++) {
          double us[2];
          if (measure_graph(&o->variants.of[i], name, o->bytes.of[k], us))
            printf("   %6.2f %6.2f", us[0], us[1]);
          else
            printf("   %13s", "-");
          fflush(stdout);
        }
        printf("\n");
      }
}

/* On an emulated GPU, to see that all this works: textbook plans, with two variants of chunks. */
#if !GPU_IS_REAL
static void write_plan(const char *folder, copse_collective collective, const char *name) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct pb_options shape = {2, 2, 2, 4, 64 << 10, 1 << 10};
  struct copse_plan *plan = pb_tree_plan(collective, 2, -1, shape);
  char path[200], *bytes = NULL;
  size_t size = 0;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  COPSE_SUCCEEDS(copse_plan_encode(plan, &bytes, &size, &err), &err);
  FILE *file = fopen(path, "wb");
  DEVICE_ASSERT(file && fwrite(bytes, 1, size, file) == size, "can't write %s", path);
  fclose(file);
  free(bytes);
  pb_free(plan);
}

static void bench_emulated(double ceiling) {
  char folder[] = "/tmp/copse-bench-XXXXXX", command[60], variant[100];
  DEVICE_ASSERT(mkdtemp(folder), "no folder for plans");
  write_plan(folder, COPSE_ALLREDUCE, "allreduce-2.plan");
  write_plan(folder, COPSE_ALLREDUCE, "allreduce-2.ll.plan");
  write_plan(folder, COPSE_ALLGATHER, "allgather-2.plan");
  snprintf(variant, sizeof variant, "small:plans=%s,chunk=2K,min-chunk=1K,pipeline=3", folder);
  char program[] = "bench_gpu", plans[] = "--plans", first[] = "--variant", second[] = "--variant",
       usual[] = "usual";
  char *arguments[] = {program, plans, folder, first, usual, second, variant};
  for (int n = 3; n <= 7; n += 4) {
    struct options o = parse(n, arguments);
    bench_latency(&o);
    bench_bandwidth(&o, ceiling);
  }
  snprintf(command, sizeof command, "rm -r %s", folder);
  DEVICE_ASSERT(system(command) == 0, "%s", command);
}
#endif

int main(int argc, char **argv) {
  gpu_make_small();
  struct options o = parse(argc, argv);
  if (!gpu_is_there("bench_gpu")) return 0;
  double ceiling = print_copy_rate("", has_word(o.only, "copy"));
  if (has_word(o.only, "floor")) bench_floor();
  if (has_word(o.only, "latency")) bench_latency(&o);
  if (has_word(o.only, "bandwidth")) bench_bandwidth(&o, ceiling);
#if !GPU_IS_REAL
  bench_emulated(ceiling);
#endif
  printf("\n");
  print_copy_rate(" again", false);
  if (!GPU_IS_REAL) printf("RESULT run=1 failed=0\n");
  return 0;
}
