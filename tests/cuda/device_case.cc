#include "cuda/device_case.h"

#include <stdarg.h>

extern "C" {
#include "codegen/lower/lower.h"
#include "schedule/solve/solve.h"
}

void device_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  fprintf(stderr, "%s:%d: ", file, line);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

template <typename T>
static T *new_array(uint32_t n) {
  T *p = (T *)calloc(n ? n : 1, sizeof(T));
  if (!p) abort();
  return p;
}

/* ---- plans ------------------------------------------------------------------------------- */

void device_plan_open(struct device_plan *d, const struct copse_plan *plan, int n_devices,
                      enum device_streams streams) {
  struct copse_err err = COPSE_ERR_INIT;
  uint32_t n = plan->header.n_ranks;
  memset(d, 0, sizeof *d);
  d->plan = plan;
  d->n_ranks = n;
  d->streams = new_array<cudaStream_t>(n);
  d->devices = new_array<int>(n);
  for (uint32_t r = 0; r < n; r++) {
    d->devices[r] = (int)r % n_devices;
    CUDA_OK(cudaSetDevice(d->devices[r]));
    if (streams == STREAM_PER_RANK || r < (uint32_t)n_devices)
      CUDA_OK(cudaStreamCreateWithFlags(&d->streams[r], cudaStreamNonBlocking));
    else
      d->streams[r] = d->streams[d->devices[r]];
  }
  const struct copse_comm_shape shape = {n, 0, n, d->devices, NULL, NULL, NULL};
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &d->backend, &err), &err);
  copse_cuda_backend.set_timeout(d->backend, 60);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(d->backend, &plan, 1, &d->prepared, &err), &err);
}

void device_plan_close(struct device_plan *d) {
  struct copse_err err = COPSE_ERR_INIT;
  (void)copse_cuda_backend.finish(d->backend, &err);
  copse_cuda_backend.destroy(d->backend);
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    bool first = true;
    for (uint32_t s = 0; s < r; s++) first = first && d->streams[s] != d->streams[r];
    if (first) CUDA_OK(cudaStreamDestroy(d->streams[r]));
  }
  free(d->streams);
  free(d->devices);
}

struct copse_plan *device_multicast_plan(int n) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = NULL;
  char text[4096];
  int at = snprintf(text, sizeof text,
                    "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"s\", \"type\": \"switch\","
                    " \"multicast\": true, \"aggregation\": true}");
  for (int r = 0; r < n; r++)
    at += snprintf(text + at, sizeof text - (size_t)at, ", {\"id\": \"g%d\", \"type\": \"gpu\"}", r);
  at += snprintf(text + at, sizeof text - (size_t)at, "], \"links\": [");
  for (int r = 0; r < n; r++)
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "%s{\"src\": \"g%d\", \"dst\": \"s\", \"bandwidth\": 100}", r ? ", " : "", r);
  snprintf(text + at, sizeof text - (size_t)at, "]}");
  struct copse_topology *topology;
  struct copse_schedule *schedule;
  struct copse_solve_options solve;
  struct copse_solve_seconds seconds;
  struct copse_lower_options lower;
  memset(&solve, 0, sizeof solve);
  memset(&lower, 0, sizeof lower);
  solve.collective = COPSE_ALLREDUCE;
  solve.root = -1;
  solve.in_network = true;
  solve.label = "t.json";
  lower.instances = 2;
  lower.chunk_bytes = 512;
  COPSE_SUCCEEDS(copse_topology_parse("switch", text, strlen(text), NULL, &topology, &err), &err);
  COPSE_SUCCEEDS(copse_solve_schedule(topology, &solve, &schedule, &seconds, &err), &err);
  COPSE_SUCCEEDS(copse_lower_schedule(schedule, &lower, &plan, &err), &err);
  copse_schedule_free(schedule);
  copse_topology_free(topology);
  DEVICE_ASSERT(copse_plan_has_groups(plan), "the plan of %d ranks has no groups", n);
  return plan;
}

/* ---- memory ------------------------------------------------------------------------------- */

enum { MOST_SHIFT = 256 };

/* Of cudaMalloc, and some elements behind its start, so that it is aligned to those alone. */
static unsigned char *device_memory(int device, uint64_t bytes, uint64_t shift) {
  void *p = NULL;
  CUDA_OK(cudaSetDevice(device));
  CUDA_OK(cudaMalloc(&p, bytes + shift));
  DEVICE_ASSERT((uintptr_t)p % MOST_SHIFT == 0 && shift < MOST_SHIFT, "%p and %llu bytes", p,
                (unsigned long long)shift);
  return (unsigned char *)p + shift;
}

static void free_device_memory(unsigned char *p) {
  CUDA_OK(cudaFree(p - (uintptr_t)p % MOST_SHIFT));
}

void device_buffers_new(struct device_buffers *d, const struct device_plan *plan,
                        const struct copse_buffers *host) {
  static uint64_t turn; /* a third of all start where vectors do */
  const bool is_filled = host->data.n_ranks > 0; /* so that its type is known */
  const uint64_t element = ++turn % 3 == 0 ? 0 : is_filled ? copse_type_bytes(host->data.type) : 8;
  d->n_ranks = plan->n_ranks;
  d->input_bytes = host->input_capacity + 2 * COPSE_GUARD_BYTES;
  d->output_bytes = host->output_capacity + 2 * COPSE_GUARD_BYTES;
  d->inputs = new_array<unsigned char *>(d->n_ranks);
  d->outputs = new_array<unsigned char *>(d->n_ranks);
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    d->inputs[r] = device_memory(plan->devices[r], d->input_bytes, (turn + r) % 7 * element);
    d->outputs[r] = device_memory(plan->devices[r], d->output_bytes, (2 * turn + 3 * r) % 5 * element);
  }
}

void device_buffers_free(struct device_buffers *d) {
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    free_device_memory(d->inputs[r]);
    free_device_memory(d->outputs[r]);
  }
  free(d->inputs);
  free(d->outputs);
}

void device_upload(const struct device_buffers *d, const struct copse_buffers *host) {
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    CUDA_OK(cudaMemcpy(d->inputs[r], host->input_memory[r], d->input_bytes,
                       cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(d->outputs[r], host->output_memory[r], d->output_bytes,
                       cudaMemcpyHostToDevice));
  }
  CUDA_OK(cudaDeviceSynchronize());
}

void device_download(const struct device_buffers *d, struct copse_buffers *host) {
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    CUDA_OK(cudaMemcpy(host->input_memory[r], d->inputs[r], d->input_bytes,
                       cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(host->output_memory[r], d->outputs[r], d->output_bytes,
                       cudaMemcpyDeviceToHost));
  }
}

/* The device's address of what lies at `p` in the host's buffers. */
static void *on_device(const struct device_buffers *d, const struct copse_buffers *host, uint32_t r,
                       const void *p) {
  const unsigned char *at = (const unsigned char *)p;
  const unsigned char *input = host->input_memory[r], *output = host->output_memory[r];
  if (!p) return NULL;
  if (at >= input && at < input + d->input_bytes) return d->inputs[r] + (at - input);
  return d->outputs[r] + (at - output);
}

/* ---- launches ------------------------------------------------------------------------------- */

/* The ranks' calls; the caller frees them. */
static struct copse_call *make_calls(const struct device_plan *d,
                                     const struct device_buffers *buffers,
                                     const struct copse_buffers *host, struct exec_case it,
                                     const uint64_t *pair_counts) {
  struct copse_call *calls = new_array<struct copse_call>(d->n_ranks);
  for (uint32_t r = 0; r < d->n_ranks; r++) {
    struct copse_call *call = &calls[r];
    call->collective = (copse_collective)d->plan->header.collective;
    call->root = d->plan->header.root;
    call->count = it.count;
    call->type = it.type;
    call->redop = it.redop;
    call->send = on_device(buffers, host, r, host->inputs[r]);
    call->recv = on_device(buffers, host, r, host->outputs[r]);
    call->pair_counts = pair_counts;
    call->stream = d->streams[r];
  }
  return calls;
}

copse_status device_launch(const struct device_plan *d, const struct device_buffers *buffers,
                           const struct copse_buffers *host, struct exec_case it,
                           const uint64_t *pair_counts, struct copse_err *err) {
  struct copse_call *calls = make_calls(d, buffers, host, it, pair_counts);
  copse_status status = copse_launch_one(&copse_cuda_backend, d->backend, d->prepared, calls, err);
  free(calls);
  return status;
}

void device_wait(const struct device_plan *d) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_SUCCEEDS(copse_cuda_backend.finish(d->backend, &err), &err);
}

static void make_host(const struct device_plan *d, struct exec_case it,
                      struct copse_buffers *buffers) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_plan_header *h = &d->plan->header;
  uint64_t block = it.count * copse_type_bytes(it.type);
  COPSE_SUCCEEDS(copse_buffers_new(h->n_ranks, h->input_blocks * block, h->output_blocks * block,
                                   buffers, &err),
                 &err);
  static uint64_t seed = 1;
  struct copse_data data;
  memset(&data, 0, sizeof data);
  data.collective = (copse_collective)h->collective;
  data.n_ranks = h->n_ranks;
  data.root = h->root;
  data.count = it.count;
  data.type = it.type;
  data.redop = it.redop;
  data.seed = seed++;
  data.extents = h->n_extents > 0 ? d->plan->extents : NULL;
  copse_buffers_fill(buffers, &data, it.in_place);
}

uint64_t device_case_run(const struct device_plan *d, struct exec_case it) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_buffers host;
  struct device_buffers device;
  make_host(d, it, &host);
  device_buffers_new(&device, d, &host);
  device_upload(&device, &host);
  COPSE_SUCCEEDS(device_launch(d, &device, &host, it, NULL, &err), &err);
  device_wait(d);
  device_download(&device, &host);
  uint64_t wrong = copse_buffers_count_wrong(&host);
  device_buffers_free(&device);
  copse_buffers_free(&host);
  return wrong;
}

/* ---- the CPU's bits ----------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 11;
}

void device_fill_rough(struct exec_case it, void *memory, uint64_t n, uint64_t seed) {
  uint64_t state = seed;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t r = next_random(&state);
    double v = ((double)(r % 2000001) - 1000000) / 65536;
    switch (it.type) {
      case COPSE_FLOAT: ((float *)memory)[i] = (float)v; break;
      case COPSE_DOUBLE: ((double *)memory)[i] = v / 3; break;
      case COPSE_HALF: ((uint16_t *)memory)[i] = (uint16_t)(0x3000 + r % 0x1800); break;
      case COPSE_BFLOAT16: ((uint16_t *)memory)[i] = (uint16_t)(0x3e00 + r % 0x0300); break;
      case COPSE_FLOAT8_E4M3:
      case COPSE_FLOAT8_E5M2: ((uint8_t *)memory)[i] = (uint8_t)(0x20 + r % 0x18); break;
      default: memcpy((char *)memory + i * copse_type_bytes(it.type), &r, copse_type_bytes(it.type));
    }
  }
}

/* A collective on data that rounds, and the same for the CPU's executor. */
struct compared {
  struct device_plan d;
  struct exec_case it;
  struct copse_buffers host, cpu;
  struct device_buffers device;
  struct copse_call *calls;
};

static void compare_begin(struct compared *c, const struct device_plan *d, struct exec_case it,
                          uint64_t seed) {
  const struct copse_plan_header *h = &d->plan->header;
  c->d = *d;
  c->it = it;
  make_host(d, it, &c->host);
  make_host(d, it, &c->cpu);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    device_fill_rough(it, c->host.inputs[r], h->input_blocks * it.count, seed * 1000 + r);
    memcpy(c->cpu.inputs[r], c->host.inputs[r],
           h->input_blocks * it.count * copse_type_bytes(it.type));
  }
  device_buffers_new(&c->device, d, &c->host);
  device_upload(&c->device, &c->host);
  c->calls = make_calls(d, &c->device, &c->host, it, NULL);
}

/* How many elements are other ones than the CPU's. */
static uint64_t compare_end(struct compared *c) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_plan_header *h = &c->d.plan->header;
  const struct copse_launch launch = {c->it.count,   c->it.type,     c->it.redop,
                                      c->cpu.inputs, c->cpu.outputs, NULL};
  const uint64_t bytes = copse_type_bytes(c->it.type);
  uint64_t wrong = 0;
  struct copse_exec *exec;
  COPSE_SUCCEEDS(copse_exec_new(c->d.plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  COPSE_SUCCEEDS(copse_exec_run(exec, &launch, &err), &err);
  device_download(&c->device, &c->host);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    if (!copse_data_is_promised(&c->host.data, r)) continue;
    const unsigned char *a = (const unsigned char *)c->host.outputs[r];
    const unsigned char *b = (const unsigned char *)c->cpu.outputs[r];
    for (uint64_t i = 0; i < h->output_blocks * c->it.count; i++)
      wrong += memcmp(a + i * bytes, b + i * bytes, bytes) != 0;
  }
  copse_exec_free(exec);
  device_buffers_free(&c->device);
  copse_buffers_free(&c->host);
  copse_buffers_free(&c->cpu);
  free(c->calls);
  return wrong;
}

uint64_t device_case_compare(const struct device_plan *d, struct exec_case it, uint64_t seed) {
  const struct device_member one = {d->plan, d->prepared, it};
  return device_group_compare(d, &one, 1, 0, seed, NULL);
}

/* Enqueues all, as many together as the backend takes; in how many launches. */
static int launch_rounds(const struct device_plan *d, const struct copse_batch *rounds,
                         uint32_t n) {
  struct copse_err err = COPSE_ERR_INIT;
  int launches = 0;
  for (uint32_t at = 0, taken = 0; at < n; at += taken, launches++)
    COPSE_SUCCEEDS(copse_cuda_backend.launch(d->backend, rounds + at, n - at, &taken, &err), &err);
  return launches;
}

uint64_t device_group_compare(const struct device_plan *d, const struct device_member *members,
                              uint32_t n, int graph_launches, uint64_t seed, int *launches) {
  struct compared *all = new_array<struct compared>(n);
  struct copse_batch *rounds = new_array<struct copse_batch>(n);
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < n; i++) {
    struct device_plan of = *d;
    of.plan = members[i].plan;
    of.prepared = members[i].prepared;
    compare_begin(&all[i], &of, members[i].it, seed + i);
    rounds[i] = {members[i].prepared, all[i].calls};
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  if (graph_launches > 0)
    CUDA_OK(cudaStreamBeginCapture(d->streams[0], cudaStreamCaptureModeThreadLocal));
  const int n_launches = launch_rounds(d, rounds, n);
  if (graph_launches > 0) {
    CUDA_OK(cudaStreamEndCapture(d->streams[0], &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < graph_launches; i++) {
      CUDA_OK(cudaGraphLaunch(exec, d->streams[0]));
      (void)launch_rounds(d, rounds, n); /* beside it */
    }
  }
  device_wait(d);
  for (uint32_t i = 0; i < n; i++) wrong += compare_end(&all[i]);
  if (launches) *launches = n_launches;
  if (graph_launches > 0) {
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
  }
  free(all);
  free(rounds);
  return wrong;
}
