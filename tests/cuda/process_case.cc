#include "cuda/process_case.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/gpu/cuda_backend.h"

#if defined(COPSE_CUDA_EMULATED) /* a GPU's machine has not the libraries that solving needs */
extern "C" {
#include "schedule/solve/solve.h"
}
#endif

copse_status meeting_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct meeting *m = (struct meeting *)context;
  if (bytes > MAX_GATHER) return COPSE_NOMEM;
  memcpy(m->place->gathered[m->rank], mine, bytes);
  pthread_barrier_wait(&m->place->barrier);
  for (int r = 0; r < m->n; r++) memcpy((char *)all + r * bytes, m->place->gathered[r], bytes);
  pthread_barrier_wait(&m->place->barrier);
  return COPSE_OK;
}

/* ---- one rank ---------------------------------------------------------------------------- */

void process_open(struct process *p, copse_collective collective, struct pb_options trees,
                  const copse_bootstrap *bootstrap) {
  const uint32_t n = (uint32_t)p->meeting.n;
  const int32_t root = copse_collective_rooted(collective) ? (int32_t)(n / 2) : -1;
  process_start(p, pb_tree_plan(collective, n, root, trees), bootstrap);
}

void process_meet(struct process *p, const copse_bootstrap *bootstrap) {
  struct copse_err err = COPSE_ERR_INIT;
  uint32_t n = (uint32_t)p->meeting.n, rank = (uint32_t)p->meeting.rank;
  int device = 0;
  CUDA_OK(cudaGetDeviceCount(&device));
  device = (int)rank % device;
  CUDA_OK(cudaSetDevice(device));
  const struct copse_comm_shape shape = {n, rank, 1, &device, bootstrap, NULL, NULL};
  copse_cuda_leave_seconds = 60; /* nothing is kept, and so nothing leaks */
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &p->backend, &err), &err);
}

void process_start(struct process *p, const struct copse_plan *plan,
                   const copse_bootstrap *bootstrap) {
  struct copse_err err = COPSE_ERR_INIT;
  process_meet(p, bootstrap);
  p->plan = plan;
  copse_cuda_backend.set_timeout(p->backend, 60);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(p->backend, &p->plan, 1, &p->prepared, &err), &err);
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
}

void process_stop(struct process *p) {
  copse_cuda_backend.destroy(p->backend);
  CUDA_OK(cudaStreamDestroy(p->stream));
}

void process_close(struct process *p) {
  process_stop(p);
  pb_free((struct copse_plan *)p->plan);
}

#if defined(COPSE_CUDA_EMULATED)
static struct copse_schedule *in_stages(const struct copse_topology *topology,
                                        const struct copse_doubling *stages) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_routes routes;
  struct copse_schedule *schedule;
  COPSE_SUCCEEDS(copse_plan_routes_find(topology, &routes, &err), &err);
  COPSE_SUCCEEDS(copse_doubling_make(topology, &routes, stages, NULL, &schedule, &err), &err);
  copse_routes_free(&routes);
  return schedule;
}

struct copse_plan *process_lower(copse_collective collective, int n,
                                 const struct copse_lower_options *options,
                                 const struct copse_doubling *stages) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan;
  char json[1 << 14] = "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[";
  size_t used = strlen(json);
  for (int r = 0; r < n; r++)
    used +=
        (size_t)snprintf(json + used, sizeof json - used, "{\"id\":\"g%d\",\"type\":\"gpu\"},", r);
  used += (size_t)snprintf(json + used, sizeof json - used,
                           "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[");
  for (int r = 0; r < n; r++)
    used += (size_t)snprintf(json + used, sizeof json - used,
                             "%s{\"src\":\"g%d\",\"dst\":\"s\",\"bandwidth\":%d}", r ? "," : "", r,
                             100 + 50 * (r % 2));
  snprintf(json + used, sizeof json - used, "]}");
  struct copse_topology *topology;
  struct copse_schedule *schedule;
  struct copse_solve_options solve;
  struct copse_solve_seconds seconds;
  memset(&solve, 0, sizeof solve);
  solve.collective = collective;
  solve.root = copse_collective_rooted(collective) ? 0 : -1;
  solve.label = "switch";
  COPSE_SUCCEEDS(copse_topology_parse("switch", json, strlen(json), NULL, &topology, &err), &err);
  if (stages)
    schedule = in_stages(topology, stages);
  else
    COPSE_SUCCEEDS(copse_solve_schedule(topology, &solve, &schedule, &seconds, &err), &err);
  copse_topology_free(topology);
  COPSE_SUCCEEDS(copse_lower_schedule(schedule, options, &plan, &err), &err);
  copse_schedule_free(schedule);
  return plan;
}

#endif

copse_status process_launch(struct process *p, const struct copse_data *data, void *send,
                            void *recv, struct copse_err *err) {
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = data->collective;
  call.root = data->root;
  call.count = data->count;
  call.type = data->type;
  call.redop = data->redop;
  call.send = send;
  call.recv = recv;
  call.stream = p->stream;
  return copse_launch_one(&copse_cuda_backend, p->backend, p->prepared, &call, err);
}

struct copse_data process_data(const struct process *p, uint64_t count, uint64_t seed) {
  const struct copse_plan_header *h = &p->plan->header;
  struct copse_data data;
  memset(&data, 0, sizeof data);
  data.collective = (copse_collective)h->collective;
  data.n_ranks = h->n_ranks;
  data.root = h->root;
  data.count = count;
  data.type = seed % 2 ? COPSE_FLOAT : COPSE_HALF;
  data.redop = COPSE_SUM;
  data.seed = seed;
  return data;
}

static void launch(struct process *p, const struct process_call *it, const struct copse_data *data,
                   void *send, void *recv) {
  struct copse_err err = COPSE_ERR_INIT;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  if (it->graph_launches == 0) {
    COPSE_SUCCEEDS(process_launch(p, data, send, recv, &err), &err);
    return;
  }
  CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
  COPSE_SUCCEEDS(process_launch(p, data, send, recv, &err), &err);
  CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < it->graph_launches; i++) CUDA_OK(cudaGraphLaunch(exec, p->stream));
  CUDA_OK(cudaStreamSynchronize(p->stream));
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
}

/* Where a call's input lies: the output is at the start of `memory`. */
static unsigned char *send_at(const struct process *p, const struct process_call *it,
                              uint64_t block, unsigned char *memory, uint64_t room) {
  if (it->in_place && p->plan->header.collective == COPSE_ALLGATHER)
    return memory + (uint64_t)p->meeting.rank * block;
  return it->in_place && p->plan->header.collective == COPSE_ALLREDUCE ? memory : memory + room;
}

/* Gives `host` to the collective, in bytes, and takes from it `out` bytes of output behind that. */
static void start_call(struct process *p, const struct process_call *it,
                       const struct copse_data *data, const unsigned char *host, uint64_t in,
                       uint64_t out, unsigned char *memory, uint64_t room) {
  unsigned char *send = send_at(p, it, it->count * copse_type_bytes(data->type), memory, room);
  CUDA_OK(cudaMemset(memory, 0xa5, out));
  CUDA_OK(cudaMemcpy(send, host, in, cudaMemcpyHostToDevice));
  CUDA_OK(cudaStreamSynchronize(NULL)); /* the device may have streams in captures */
  launch(p, it, data, send, memory);
}
static void end_call(struct process *p, unsigned char *host, uint64_t in, uint64_t out,
                     const unsigned char *memory) {
  struct copse_err err = COPSE_ERR_INIT;
  CUDA_OK(cudaStreamSynchronize(p->stream));
  COPSE_SUCCEEDS(copse_cuda_backend.poll(p->backend, &err), &err);
  CUDA_OK(cudaMemcpy(host + in, memory, out, cudaMemcpyDeviceToHost));
}

void process_begin(struct process *p, struct process_call it, unsigned char *memory, uint64_t room,
                   struct process_running *running) {
  const struct copse_plan_header *h = &p->plan->header;
  running->it = it;
  running->data = process_data(p, it.count, it.seed);
  if (it.typed) {
    running->data.type = it.type;
    running->data.redop = it.redop;
  }
  const uint64_t bytes = copse_type_bytes(running->data.type);
  running->in = h->input_blocks * it.count * bytes;
  running->out = h->output_blocks * it.count * bytes;
  running->memory = memory;
  running->host = (unsigned char *)calloc(running->in + 2 * running->out + 1, 1);
  copse_data_input(&running->data, (uint32_t)p->meeting.rank, 0, h->input_blocks * it.count,
                   running->host);
  start_call(p, &it, &running->data, running->host, running->in, running->out, memory, room);
}

void process_end(struct process *p, struct process_running *running) {
  const uint32_t rank = (uint32_t)p->meeting.rank;
  unsigned char *came = running->host + running->in, *right = came + running->out;
  end_call(p, running->host, running->in, running->out, running->memory);
  if (copse_data_is_promised(&running->data, rank)) {
    copse_data_output(&running->data, rank, 0,
                      p->plan->header.output_blocks * running->it.count, right);
    DEVICE_ASSERT(memcmp(came, right, running->out) == 0,
                  "rank %u: wrong %s of %llu elements, in place %d, graph %d", rank,
                  copse_collective_name(running->data.collective),
                  (unsigned long long)running->it.count, running->it.in_place,
                  running->it.graph_launches);
  }
  free(running->host);
}

void process_check(struct process *p, const struct process_call *it, unsigned char *memory,
                   uint64_t room) {
  struct process_running running;
  process_begin(p, *it, memory, room, &running);
  process_end(p, &running);
}

void process_compare(struct process *p, const struct process_call *it, unsigned char *memory,
                     uint64_t room) {
  const struct copse_plan_header *h = &p->plan->header;
  const struct exec_case rough = {COPSE_FLOAT, COPSE_SUM, it->count, false};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  struct copse_data data = process_data(p, it->count, 1); /* float */
  uint32_t rank = (uint32_t)p->meeting.rank;
  uint64_t in = h->input_blocks * it->count * 4, out = h->output_blocks * it->count * 4;
  void *inputs[MAX_PROCESSES], *outputs[MAX_PROCESSES];
  unsigned char *host = (unsigned char *)calloc(in + out + 1, 1);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    inputs[r] = calloc(in + 1, 1);
    outputs[r] = calloc(out + 1, 1);
    device_fill_rough(rough, inputs[r], in / 4, it->seed * 1000 + r);
  }
  COPSE_SUCCEEDS(copse_exec_new(p->plan, COPSE_BACKEND_CPU, &exec, &err), &err);
  const struct copse_launch on_cpu = {it->count, COPSE_FLOAT, COPSE_SUM, inputs, outputs, NULL};
  COPSE_SUCCEEDS(copse_exec_run(exec, &on_cpu, &err), &err);
  memcpy(host, inputs[rank], in);
  start_call(p, it, &data, host, in, out, memory, room);
  end_call(p, host, in, out, memory);
  DEVICE_ASSERT(!copse_data_is_promised(&data, rank) || memcmp(host + in, outputs[rank], out) == 0,
                "rank %u: other bits of %s of %llu elements than the CPU's", rank,
                copse_collective_name(data.collective), (unsigned long long)it->count);
  copse_exec_free(exec);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    free(inputs[r]);
    free(outputs[r]);
  }
  free(host);
}

/* ---- uneven blocks ------------------------------------------------------------------------- */

/* What process_check_uneven works on. */
struct uneven {
  struct copse_data data;
  uint64_t counts[MAX_PROCESSES * MAX_PROCESSES], *on_device; /* or page-locked */
  unsigned char *host, *send, *recv; /* host: input, what came, what should have */
  uint64_t bytes, all;               /* of an element, of a buffer */
};

static void new_counts(struct uneven *u, uint32_t turn) {
  const uint32_t n = u->data.n_ranks;
  for (uint32_t i = 0; i < n * n; i++)
    u->counts[i] = (i + turn) % 3 == 0 ? 0 : ((i + turn) * 211) % (u->data.count + 1);
  CUDA_OK(cudaMemcpy(u->on_device, u->counts, sizeof u->counts, cudaMemcpyDefault));
  CUDA_OK(cudaMemset(u->recv, 0xa5, u->all));
  CUDA_OK(cudaDeviceSynchronize());
}

static void check_blocks(const struct uneven *u, uint32_t rank) {
  const uint64_t block = u->data.count * u->bytes;
  CUDA_OK(cudaMemcpy(u->host + u->all, u->recv, u->all, cudaMemcpyDeviceToHost));
  for (uint32_t i = 0; i < u->data.n_ranks; i++) {
    unsigned char *got = u->host + u->all + i * block;
    uint64_t there = u->counts[i * u->data.n_ranks + rank] * u->bytes;
    DEVICE_ASSERT(memcmp(got, got + u->all, there) == 0, "rank %u: wrong block from %u", rank, i);
    for (uint64_t b = there; b < block; b++)
      DEVICE_ASSERT(got[b] == 0xa5, "rank %u: byte %llu of the block from %u was written", rank,
                    (unsigned long long)b, i);
  }
}

static void launch_uneven(struct process *p, const struct uneven *u) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = COPSE_ALLTOALL;
  call.root = -1;
  call.count = u->data.count;
  call.type = u->data.type;
  call.send = u->send;
  call.recv = u->recv;
  call.pair_counts = u->on_device;
  call.stream = p->stream;
  COPSE_SUCCEEDS(copse_launch_one(&copse_cuda_backend, p->backend, p->prepared, &call, &err), &err);
}

static void launch_uneven_graph(struct process *p, struct uneven *u, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
  launch_uneven(p, u);
  CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < launches; i++) {
    char word = 0, words[MAX_PROCESSES]; /* nobody is at the launch before */
    meeting_all_gather(&p->meeting, &word, words, 1);
    new_counts(u, (uint32_t)i);
    meeting_all_gather(&p->meeting, &word, words, 1);
    CUDA_OK(cudaGraphLaunch(exec, p->stream));
    CUDA_OK(cudaStreamSynchronize(p->stream));
    check_blocks(u, (uint32_t)p->meeting.rank);
  }
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
}

void process_check_uneven(struct process *p, const struct process_uneven *it, unsigned char *memory,
                          uint64_t room) {
  const uint64_t count = it->count;
  const uint32_t rank = (uint32_t)p->meeting.rank;
  struct copse_err err = COPSE_ERR_INIT;
  struct uneven u;
  memset(&u, 0, sizeof u);
  u.data = process_data(p, count, 9);
  u.bytes = copse_type_bytes(u.data.type);
  u.all = u.data.n_ranks * count * u.bytes;
  u.host = (unsigned char *)calloc(3 * u.all + 1, 1);
  u.recv = memory;
  u.send = memory + room;
  CUDA_OK(it->on_host ? cudaMallocHost((void **)&u.on_device, sizeof u.counts)
                      : cudaMalloc((void **)&u.on_device, sizeof u.counts));
  copse_data_input(&u.data, rank, 0, u.data.n_ranks * count, u.host);
  copse_data_output(&u.data, rank, 0, u.data.n_ranks * count, u.host + 2 * u.all);
  CUDA_OK(cudaMemcpy(u.send, u.host, u.all, cudaMemcpyHostToDevice));
  if (it->graph_launches > 0) {
    launch_uneven_graph(p, &u, it->graph_launches);
  } else {
    new_counts(&u, 0);
    launch_uneven(p, &u);
    COPSE_SUCCEEDS(copse_cuda_backend.finish(p->backend, &err), &err);
    check_blocks(&u, rank);
  }
  free(u.host);
  CUDA_OK(it->on_host ? cudaFreeHost(u.on_device) : cudaFree(u.on_device));
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static struct meeting_place *map_place(int file) {
  void *p = mmap(NULL, sizeof(struct meeting_place), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) abort();
  return (struct meeting_place *)p;
}

static void start_rank(int file, int rank, int n, copse_collective collective, const char *mode,
                       pid_t *child) {
  *child = fork();
  if (*child != 0) return;
  char texts[4][16];
  const int numbers[] = {file, rank, n, (int)collective};
  for (int i = 0; i < 4; i++) snprintf(texts[i], sizeof texts[i], "%d", numbers[i]);
  execl("/proc/self/exe", "rank", texts[0], texts[1], texts[2], texts[3], mode, (char *)NULL);
  _exit(127);
}

/* Where one fails the others would wait for it. Returns the first that failed, or -1. */
static int wait_for_all(const pid_t *children, int n, int *how) {
  int failed = -1;
  for (int i = 0; i < n; i++) {
    int status = -1, r = 0;
    pid_t pid = waitpid(-1, &status, 0);
    while (r < n && children[r] != pid) r++;
      if (failed >= 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    failed = r;
    *how = status;
    for (int k = 0; k < n; k++)
      if (k != r && waitid(P_PID, (id_t)children[k], NULL, WEXITED | WNOWAIT | WNOHANG) == 0)
        kill(children[k], SIGKILL);
  }
  return failed;
}

static int run_all(copse_collective collective, const char *mode, int n, int *how) {
  int file = memfd_create("meeting", 0);
  DEVICE_ASSERT(file >= 0 && ftruncate(file, sizeof(struct meeting_place)) == 0, "no memory file");
  struct meeting_place *place = map_place(file);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&place->barrier, &shared, (unsigned)n);
  pid_t children[MAX_PROCESSES];
  for (int r = 0; r < n; r++) start_rank(file, r, n, collective, mode, &children[r]);
  const int failed = wait_for_all(children, n, how);
  munmap(place, sizeof *place);
  close(file);
  return failed;
}

void processes_run(copse_collective collective, const char *mode, int n) {
  int how = 0;
  const int failed = run_all(collective, mode, n, &how);
  DEVICE_ASSERT(failed < 0, "rank %d: status 0x%x", failed, how);
}

#define FACTOR "COPSE_TEST_LIMIT_FACTOR"

void processes_run_in_time(copse_collective collective, const char *mode, int n) {
  int failed = 0, how = 0;
  for (int factor = 1; factor <= 16 && failed >= 0; factor *= 4) {
    char text[16];
    snprintf(text, sizeof text, "%d", factor);
    setenv(FACTOR, text, 1);
    failed = run_all(collective, mode, n, &how);
  }
  unsetenv(FACTOR);
  DEVICE_ASSERT(failed < 0, "rank %d: status 0x%x", failed, how);
}

double process_limit(double seconds) {
  const char *factor = getenv(FACTOR);
  return factor ? atoi(factor) * seconds : seconds;
}

bool process_waited(const struct copse_err *err, double seconds, const char *what) {
  char text[120];
  snprintf(text, sizeof text, "waited over %.3g s for %s", process_limit(seconds), what);
  return strstr(err->text, text) != NULL;
}

bool process_is_rank(int argc, char **argv, struct process_arguments *out) {
  if (argc != 6 || strcmp(argv[0], "rank") != 0) return false;
  alarm(120);
  out->meeting = {map_place(atoi(argv[1])), atoi(argv[2]), atoi(argv[3])};
  out->collective = (copse_collective)atoi(argv[4]);
  out->mode = argv[5];
  return true;
}
