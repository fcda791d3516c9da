/*
 * One rank per process, on emulated GPUs: memory shared by CUDA IPC, outputs staged in parts or
 * registered, peers that die.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda/process_case.h"
#include "emulation/emulation.h"
#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "support/command.h"
#include "support/support.h"
}

/* In a container of its own a process finds no file of the others. */
static bool is_apart;

extern "C" int shm_open(const char *name, int flags, mode_t mode) {
  char path[300];
  snprintf(path, sizeof path, "/dev/shm%s", name);
  if (!is_apart) return open(path, flags | O_CLOEXEC, mode);
  errno = ENOENT;
  return -1;
}

/* Shared memory: a signal comes into every other request, and the nth from now on finds /dev/shm full; 0:
 * none. */
static int fail_shared, n_shared;

extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  static bool interrupts;
  /* a profiler's signals come so often that no long request gets through */
  if ((interrupts = !interrupts) || bytes > 2 << 20) return EINTR;
  n_shared++;
  if (fail_shared > 0 && --fail_shared == 0) return ENOSPC;
  return ftruncate(file, at + bytes) == 0 ? 0 : errno;
}

/* The nth message with descriptors from now on fails, or comes without them; 0: none. */
static int fail_sending, lose_files;

extern "C" ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
  static const auto real = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
  struct msghdr without = *message;
  if (fail_sending > 0 && --fail_sending == 0) {
    errno = EPERM;
    return -1;
  }
  if (lose_files == 0 || --lose_files > 0) return real(socket, message, flags);
  without.msg_control = NULL;
  without.msg_controllen = 0;
  return real(socket, &without, flags);
}

/* Rank 1 leaves only when the others are back from leaving; what they shared stays until then. */
static void leave_late(struct process *p, bool keeps) {
  pthread_barrier_t *barrier = &p->meeting.place->barrier;
  size_t left = 0, total = 0;
  copse_cuda_leave_seconds = 0.05;
  if (p->meeting.rank == 1) pthread_barrier_wait(barrier);
  process_stop(p);
  if (p->meeting.rank != 1) {
    CUDA_OK(cudaMemGetInfo(&left, &total));
    DEVICE_ASSERT(!keeps || left < total, "freed although rank 1 may use it");
    pthread_barrier_wait(barrier);
  }
  pthread_barrier_wait(barrier);
  copse_cuda_leave_sweep(); /* as with the process's next communicator */
}

/* ---- what a folder of plans takes -------------------------------------------------------------
 */

/* All ranks are like this one. */
struct alone {
  int n, calls;
};
static copse_status alone_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct alone *it = (struct alone *)context;
  for (int r = 0; r < it->n; r++) memcpy((char *)all + (size_t)r * bytes, mine, bytes);
  it->calls++;
  return COPSE_OK;
}

struct set {
  struct copse_plan *plans[64];
  uint64_t wanted; /* slots, if each plan had its own */
  size_t n;
};

static void add(struct set *set, struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_layout layout;
  COPSE_SUCCEEDS(copse_layout_new(plan, &layout, &err), &err);
  set->wanted += copse_layout_most_slot_bytes(&layout, 0);
  copse_layout_free(&layout);
  ck_assert_uint_lt(set->n, 64);
  set->plans[set->n++] = plan;
}

/* What `copse plans` makes, as the drop-in loads it. */
static void add_folder(struct set *set, const char *arguments) {
  char path[300];
  struct copse_err err = COPSE_ERR_INIT;
  if (copse_test_command("rm -rf %%/set && @ plans --search 0.05 %s -o %%/set", arguments) != 0) ck_abort_msg("%s", copse_test_result.err);
  ck_assert_int_eq(copse_test_command("cd %%/set && ls *.plan"), 0);
  char *names = strdup(copse_test_result.out);
  for (char *name = strtok(names, "\n"); name; name = strtok(NULL, "\n")) {
    struct copse_plan *plan;
    snprintf(path, sizeof path, "%s/set/%s", copse_test_folder(), name);
    COPSE_SUCCEEDS(copse_plan_open(path, &plan, &err), &err);
    add(set, plan);
  }
  free(names);
}

/* What a large allreduce into a buffer that isn't registered is, in launches: a third of the staging in
 * one kernel and one copy, more in equal parts of at most a half, each copied beside the next one's
 * kernel. */
static void count_launches(void *backend, void *prepared) {
  static const struct {
    size_t mib;
    int parts;
  } cases[] = {{16, 1}, {32, 1}, {64, 2}, {256, 6}, {1024, 22}};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_call call;
  cudaStream_t stream;
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  memset(&call, 0, sizeof call);
  call.collective = COPSE_ALLREDUCE;
  call.type = COPSE_FLOAT;
  call.stream = stream;
  CUDA_OK(cudaMalloc(&call.recv, (size_t)1 << 30));
  call.send = call.recv;
  for (const auto &it : cases) {
    cudaGraph_t graph;
    call.count = it.mib << 18;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    COPSE_SUCCEEDS(copse_launch_one(&copse_cuda_backend, backend, prepared, &call, &err), &err);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    const struct copse_emulated_graph_shape shape = copse_emulated_graph(graph);
    ck_assert_msg(shape.kernels == it.parts && shape.copies == it.parts && shape.lone_copies == 1,
                  "%zu MiB: %d kernels, %d copies, %d alone", it.mib, shape.kernels, shape.copies,
                  shape.lone_copies);
    CUDA_OK(cudaGraphDestroy(graph));
  }
  CUDA_OK(cudaFree(call.recv));
  CUDA_OK(cudaStreamDestroy(stream));
}

/* Counts the bytes of a communicator of n ranks, a process each, with a set of plans: all that it takes
 * of its device, the runtime's own apart. */
static void count_bytes(struct set *set, int n, size_t most) {
  struct copse_err err = COPSE_ERR_INIT;
  struct alone alone = {n, 0};
  const copse_bootstrap bootstrap = {alone_all_gather, &alone};
  const int device = 0;
  const struct copse_comm_shape shape = {(uint32_t)n, 0, 1, &device, &bootstrap, NULL, NULL};
  void *backend, *prepared[64];
  size_t left = 0, total = 0;
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 132;
  config.memory = (size_t)2 << 30;
  config.alone = is_apart = true;
  copse_emulated_configure(&config);
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &backend, &err), &err);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(backend, (const struct copse_plan *const *)set->plans,
                                            set->n, prepared, &err), &err);
  CUDA_OK(cudaMemGetInfo(&left, &total));
  for (size_t i = 0; i < set->n; i++) ck_assert_msg(prepared[i] != NULL, "plan %zu doesn't fit", i);
  ck_assert_msg(total - left <= most, "%zu MiB, not %zu", (total - left) >> 20, most >> 20);
  ck_assert_uint_gt(total - left, copse_cuda_staging_bytes);
  /* two shared allocations, after one of a few bytes */
  ck_assert_int_eq(copse_emulated_calls_of("cudaIpcGetMemHandle"), 1 + 2);
  ck_assert_int_eq(alone.calls, 4);
  for (size_t i = 0; i < set->n; i++)
    if (set->plans[i]->header.collective == COPSE_ALLREDUCE && set->plans[i]->header.max_bytes > 1u << 30)
      count_launches(backend, prepared[i]);
  copse_cuda_backend.destroy(backend);
  for (size_t i = 0; i < set->n; i++) copse_plan_free(set->plans[i]);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}

/* The memory of a communicator is bounded, whatever plans it has. */
START_TEST(plans_share_their_memory) {
  static const struct {
    int n_ranks, n_plans;
    size_t most;
  } sets[] = {{8, 6, (size_t)256 << 20}, {64, 3, (size_t)384 << 20}};
  struct copse_lower_options options = {};
  struct set set = {};
  options.chunk_bytes = 8 << 20;
  for (int i = 0; i < sets[_i].n_plans; i++)
    add(&set, process_lower((copse_collective)i, sets[_i].n_ranks, &options));
  ck_assert_uint_gt(set.wanted, sets[_i].most); /* so that it is the sharing which is bounded */
  count_bytes(&set, sets[_i].n_ranks, sets[_i].most);
}
END_TEST

START_TEST(plans_of_the_tool_share_their_memory) {
  static const struct {
    const char *arguments;
    int n_ranks;
    size_t most;
  } sets[] = {{"dgx-h100 -c allgather", 8, (size_t)256 << 20},
              {"dgx-h100", 8, (size_t)256 << 20},
              {"dgx-h100 -c allgather -c reduce_scatter -c allreduce -c broadcast -c reduce -c alltoall", 8,
               (size_t)384 << 20},
              {"--synthetic switch:64@450", 64, (size_t)384 << 20}};
  struct set set = {};
  add_folder(&set, sets[_i].arguments);
  count_bytes(&set, sets[_i].n_ranks, sets[_i].most);
}
END_TEST

struct counted {
  struct meeting meeting;
  int calls;
};
static copse_status counted_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct counted *it = (struct counted *)context;
  it->calls++;
  return meeting_all_gather(&it->meeting, mine, all, bytes);
}

/* ---- groups ------------------------------------------------------------------------------------- */

enum { MEMBERS = 4 };

/* A call of a group: its data and memory, output first. */
struct member {
  struct copse_data data;
  struct copse_call call;
  unsigned char *memory, *host;
  uint64_t in, out; /* bytes */
};

static void member_begin(struct member *m, const struct process *p, const struct copse_plan *plan,
                         uint64_t count, uint64_t seed) {
  const struct copse_plan_header *h = &plan->header;
  struct process of = *p;
  of.plan = plan;
  memset(m, 0, sizeof *m);
  m->data = process_data(&of, count, 2 * seed + 1);
  m->in = h->input_blocks * count * sizeof(float);
  m->out = h->output_blocks * count * sizeof(float);
  m->host = (unsigned char *)calloc(m->in + 2 * m->out, 1);
  copse_data_input(&m->data, (uint32_t)p->meeting.rank, 0, h->input_blocks * count, m->host);
  copse_data_output(&m->data, (uint32_t)p->meeting.rank, 0, h->output_blocks * count,
                    m->host + m->in);
  CUDA_OK(cudaMalloc((void **)&m->memory, m->out + m->in));
  CUDA_OK(cudaMemset(m->memory, 0xa5, m->out));
  CUDA_OK(cudaMemcpy(m->memory + m->out, m->host, m->in, cudaMemcpyHostToDevice));
  m->call.collective = m->data.collective;
  m->call.root = -1;
  m->call.count = count;
  m->call.type = COPSE_FLOAT;
  m->call.send = m->memory + m->out;
  m->call.recv = m->memory;
  m->call.stream = p->stream;
}

static void member_check(struct member *m, int rank) {
  CUDA_OK(cudaMemcpy(m->host + m->in + m->out, m->memory, m->out, cudaMemcpyDeviceToHost));
  DEVICE_ASSERT(memcmp(m->host + m->in, m->host + m->in + m->out, m->out) == 0, "rank %d: wrong %s", rank,
                copse_collective_name(m->data.collective));
  CUDA_OK(cudaMemset(m->memory, 0xa5, m->out));
}

/* A group's calls, in one launch at even ranks and one by one at odd ones, straight and as a graph. */
static void run_grouped(struct process *p) {
  struct copse_err err = COPSE_ERR_INIT;
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  const uint32_t n = (uint32_t)p->meeting.n;
  struct copse_plan *plans[] = {pb_tree_plan(COPSE_ALLREDUCE, n, -1, PROCESS_TREES),
                                pb_tree_plan(COPSE_ALLGATHER, n, -1, PROCESS_TREES),
                                pb_tree_plan(COPSE_ALLTOALL, n, -1, PROCESS_TREES)};
  void *prepared[3];
  struct member members[MEMBERS];
  struct copse_batch rounds[MEMBERS];
  copse_cuda_staging_bytes = 8192; /* not a whole number of groups: places move on */
  process_meet(p, &bootstrap);
  copse_cuda_backend.set_timeout(p->backend, 60);
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(p->backend, (const struct copse_plan *const *)plans, 3,
                                            prepared, &err),
                 &err);
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  for (uint32_t i = 0; i < MEMBERS; i++) {
    member_begin(&members[i], p, plans[i % 3], 30 + 17 * i, i);
    rounds[i] = {prepared[i % 3], &members[i].call};
  }
  for (int turn = 0; turn < 8; turn++) {
    const bool captures = turn > 4;
    const bool together = (p->meeting.rank + turn / 2) % 2 == 0;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const int before = copse_emulated_calls_of("cudaLaunchKernelExC");
    CUDA_OK(cudaStreamSynchronize(NULL));
    if (captures) CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
    for (uint32_t at = 0, taken; at < MEMBERS; at += taken)
      COPSE_SUCCEEDS(copse_cuda_backend.launch(p->backend, rounds + at, together ? MEMBERS - at : 1,
                                               &taken, &err),
                     &err);
    const int launches = copse_emulated_calls_of("cudaLaunchKernelExC") - before;
    /* where the staging begins anew within the group, two */
    DEVICE_ASSERT(together ? launches <= 2 : launches == MEMBERS, "%d launches", launches);
    if (captures) {
      CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
      CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
      for (int i = 0; i < 2; i++) CUDA_OK(cudaGraphLaunch(exec, p->stream));
    }
    CUDA_OK(cudaStreamSynchronize(p->stream));
    for (struct member &m : members) member_check(&m, p->meeting.rank);
    if (captures) {
      CUDA_OK(cudaGraphExecDestroy(exec));
      CUDA_OK(cudaGraphDestroy(graph));
    }
  }
  for (struct member &m : members) {
    CUDA_OK(cudaFree(m.memory));
    free(m.host);
  }
  process_stop(p);
  for (struct copse_plan *plan : plans) pb_free(plan);
  DEVICE_ASSERT(copse_emulated_misuses() == 0 && copse_emulated_leaks() == 0, "misuse, or a leak");
}

/* The second of three plans takes more blocks than rank 1's GPU holds. */
static void run_too_large(struct process *p) {
  struct copse_err err = COPSE_ERR_INIT;
  struct counted counted = {p->meeting, 0};
  const copse_bootstrap bootstrap = {counted_all_gather, &counted};
  struct pb_options many = PROCESS_TREES;
  copse_emulated_config config = copse_emulated_defaults();
  many.n_trees = 64;
  config.multiprocessors = p->meeting.rank == 1 ? 4 : 80;
  copse_emulated_configure(&config);
  copse_cuda_threads = COPSE_CUDA_LEAST_THREADS;
  process_meet(p, &bootstrap);
  const uint32_t n = (uint32_t)p->meeting.n;
  struct copse_plan *plans[] = {pb_tree_plan(COPSE_ALLGATHER, n, -1, PROCESS_TREES),
                                pb_tree_plan(COPSE_ALLREDUCE, n, -1, many),
                                pb_tree_plan(COPSE_ALLREDUCE, n, -1, PROCESS_TREES)};
  void *prepared[3], *none;
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(p->backend, (const struct copse_plan *const *)plans, 3,
                                            prepared, &err),
                 &err);
  DEVICE_ASSERT(prepared[0] && !prepared[1] && prepared[2], "rank %d: not the second one",
                p->meeting.rank);
  DEVICE_ASSERT(counted.calls == 4, "%d all-gathers", counted.calls);
  const copse_status status = copse_cuda_backend.prepare(
      p->backend, (const struct copse_plan *const *)plans + 1, 1, &none, &err);
  DEVICE_ASSERT(status == COPSE_UNSUPPORTED && !none && *err.text, "%s",
                copse_status_string(status));
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  copse_cuda_threads = 3;
  unsigned char *memory;
  CUDA_OK(cudaMalloc((void **)&memory, 64 << 10));
  for (uint64_t i = 0; i < 6; i++) { /* both in turn, in the same slots and staging */
    const struct process_call check = {900 + i, i, false, 0};
    p->plan = plans[i % 2 ? 0 : 2];
    p->prepared = prepared[i % 2 ? 0 : 2];
    process_check(p, &check, memory, 32 << 10);
  }
  CUDA_OK(cudaFree(memory));
  process_stop(p);
  for (struct copse_plan *plan : plans) pb_free(plan);
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* The nth call of a function from now on fails at rank 1, while a plan is prepared: all ranks
 * succeed, or none, and nothing is left. How many calls there were at rank 1. */
static int prepare_failing(struct process *p, const struct copse_plan *plan, const char *function,
                           int nth, int *n_failed) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  struct copse_err err = COPSE_ERR_INIT;
  int mine[2], all[MAX_PROCESSES][2];
  void *prepared = NULL;
  const bool is_full = strcmp(function, "posix_fallocate") == 0, is_rank = p->meeting.rank == 1;
  copse_cuda_staging_bytes = is_full ? 3 << 20 : 1024;
  process_meet(p, &bootstrap);
  const int before = is_full ? n_shared : copse_emulated_calls_of(function);
  fail_shared = is_full && is_rank ? nth : 0;
  if (!is_full && is_rank) copse_emulated_fail(function, nth, cudaErrorMemoryAllocation);
  const copse_status status = copse_cuda_backend.prepare(p->backend, &plan, 1, &prepared, &err);
  copse_emulated_fail(NULL, 0, cudaSuccess);
  if (is_rank && status == COPSE_NOMEM && strncmp(function, "cudaHost", 8) == 0)
    DEVICE_ASSERT(strstr(err.text, "page-locked") && !strstr(err.text, "GPU"), "%s", err.text);
  if (is_rank && is_full && status != COPSE_OK) DEVICE_ASSERT(strstr(err.text, "--shm-size"), "%s", err.text);
  mine[0] = status == COPSE_OK;
  mine[1] = (is_full ? n_shared : copse_emulated_calls_of(function)) - before;
  (void)meeting_all_gather(&p->meeting, mine, all, sizeof mine);
  for (int r = 0; r < p->meeting.n; r++)
    DEVICE_ASSERT(all[r][0] == mine[0], "%s, call %d: ranks %d and %d differ: %s", function, nth, r,
                  p->meeting.rank, err.text);
  DEVICE_ASSERT(mine[0] == (prepared != NULL) && (mine[0] || *err.text), "%s, call %d", function,
                nth);
  *n_failed += !mine[0];
  copse_cuda_backend.destroy(p->backend);
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "%s, call %d: something leaks", function, nth);
  return all[1][1];
}

/* Each call that makes something, in turn. */
static void run_any_failure(struct process *p, bool mirrored) {
  static const char *const functions[] = {"cudaMalloc",
                                          "cudaIpcGetMemHandle",
                                          "cudaIpcOpenMemHandle",
                                          "cudaStreamCreateWithFlags",
                                          "cudaMemsetAsync",
                                          "cudaMemcpyAsync",
                                          "cudaStreamSynchronize",
                                          "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                          "cudaHostRegister",
                                          "cudaHostGetDevicePointer",
                                          "posix_fallocate"};
  struct copse_plan *plan =
      pb_tree_plan(COPSE_ALLREDUCE, (uint32_t)p->meeting.n, -1, PROCESS_TREES);
  for (size_t f = 0; f < sizeof functions / sizeof *functions - (mirrored ? 0 : 3); f++) {
    int n_failed = 0;
    int nth = 1; /* each call in turn, until there are fewer */
    while (prepare_failing(p, plan, functions[f], nth, &n_failed) >= nth) nth++;
    DEVICE_ASSERT(n_failed > 0, "no call of %s failed", functions[f]);
  }
  pb_free(plan);
}

/* ---- groups of GPUs at a switch ---------------------------------------------------------------- */

/* Every process sees all GPUs, and its own is that of its rank. */
static void configure_switch(int n) {
  copse_emulated_config config = copse_emulated_defaults();
  config.devices = n;
  copse_emulated_configure(&config);
}

static int n_open_files(void) {
  DIR *folder = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(folder)) n++;
  closedir(folder);
  return n;
}

/* Every reduction and type, also those that the switch doesn't have. */
static void run_switch(struct process *p, bool late) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  struct copse_plan *plan = device_multicast_plan(p->meeting.n);
  const uint64_t room = 64 << 10;
  unsigned char *memory;
  configure_switch(p->meeting.n);
  process_start(p, plan, &bootstrap);
  const struct copse_cuda_plan *prepared = (const struct copse_cuda_plan *)p->prepared;
  DEVICE_ASSERT(prepared->grouped && prepared->group, "no group");
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room));
  static const uint64_t counts[] = {1, 37, 1023, 3001};
  for (uint64_t i = 0; i < 8; i++) {
    const struct process_call check = {counts[i / 2], i, i % 2 == 1, i == 4 ? 2 : 0};
    process_check(p, &check, memory, room);
    const long before = copse_emulated_multimems();
    process_compare(p, &check, memory, room);
    DEVICE_ASSERT(check.count < 37 || copse_emulated_multimems() > before, "not by the switch");
  }
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < COPSE_N_REDOPS; redop++) {
      const struct process_call check = {100, 5, false, 0, true, (copse_type)type, (copse_redop)redop};
      process_check(p, &check, memory, room);
    }
  CUDA_OK(cudaFree(memory));
  if (late)
    leave_late(p, false);
  else
    process_stop(p);
  copse_plan_free(plan);
}

/* A multicast plan and one that isn't: where the first can't be served, the second is, at all ranks. */
static void prepare_two(struct process *p, const struct copse_plan *const *plans, const char *what,
                        int *n_left, struct copse_err *err) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  int mine[2], all[MAX_PROCESSES][2];
  void *prepared[2];
  const copse_status status = copse_cuda_backend.prepare(p->backend, plans, 2, prepared, err);
  copse_emulated_fail(NULL, 0, cudaSuccess);
  mine[0] = status == COPSE_OK && prepared[0];
  mine[1] = status == COPSE_OK && prepared[1];
  (void)bootstrap.all_gather(bootstrap.context, mine, all, sizeof mine);
  for (int r = 0; r < p->meeting.n; r++)
    DEVICE_ASSERT(all[r][0] == mine[0] && all[r][1] == mine[1], "%s: ranks %d and %d differ: %s", what,
                  r, p->meeting.rank, err->text);
  *n_left += !mine[0] && mine[1];
  if (!mine[1]) return;
  unsigned char *memory;
  const struct process_call check = {500, 3, false, 0};
  CUDA_OK(cudaMalloc((void **)&memory, 16 << 10));
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  for (int i = 0; i < 2; i++) {
    p->plan = plans[i];
    p->prepared = prepared[i];
    if (mine[i]) process_check(p, &check, memory, 8 << 10);
  }
  CUDA_OK(cudaStreamDestroy(p->stream));
  CUDA_OK(cudaFree(memory));
}

/* Each call for a group fails in turn, at rank 0, which makes it, or at rank 1. */
static void run_switch_failing(struct process *p) {
  static const char *const functions[] = {"cuMulticastCreate", "cuMulticastAddDevice", "cuMemCreate",
                                          "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
                                          "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                                          "cuMulticastBindMem", "cudaMemsetAsync", "cudaMalloc", "sendmsg", "files"};
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  struct copse_plan *const plans[] = {device_multicast_plan(p->meeting.n),
                                      pb_tree_plan(COPSE_ALLREDUCE, (uint32_t)p->meeting.n, -1, PROCESS_TREES)};
  configure_switch(p->meeting.n);
  copse_cuda_swap_seconds = 0.5;
  int n_open = 0;
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
    for (int rank = 0; rank < 2; rank++) {
      int n_left = 0;
      for (int nth = 1; nth <= 3; nth++) {
        struct copse_err err = COPSE_ERR_INIT;
        char what[80];
        snprintf(what, sizeof what, "%s, call %d at rank %d", functions[f], nth, rank);
        process_meet(p, &bootstrap);
        if (p->meeting.rank == rank) {
          fail_sending = strcmp(functions[f], "sendmsg") == 0 ? nth : 0;
          lose_files = strcmp(functions[f], "files") == 0 ? nth : 0;
          copse_emulated_fail(functions[f], nth, nth == 2 ? cudaErrorMemoryAllocation : cudaErrorUnknown);
        }
        prepare_two(p, (const struct copse_plan *const *)plans, what, &n_left, &err);
        fail_sending = lose_files = 0;
        copse_cuda_backend.destroy(p->backend);
        DEVICE_ASSERT(copse_emulated_leaks() == 0, "%s: something leaks", what);
        if (n_open == 0) n_open = n_open_files(); /* with the devices' memory */
        DEVICE_ASSERT(n_open_files() == n_open, "%s: a file stays open", what);
      }
      DEVICE_ASSERT(n_left > 0, "%s at rank %d: the multicast plan is never left out", functions[f], rank);
    }
  copse_plan_free(plans[0]);
  pb_free(plans[1]);
}

/* Two processes that have the same GPU. */
static void run_switch_shared(struct process *p) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  struct copse_plan *plan = device_multicast_plan(p->meeting.n);
  struct copse_err err = COPSE_ERR_INIT;
  void *prepared;
  process_meet(p, &bootstrap); /* one device each, of the same number */
  const copse_status status =
      copse_cuda_backend.prepare(p->backend, (const struct copse_plan *const *)&plan, 1, &prepared, &err);
  DEVICE_ASSERT(status == COPSE_UNSUPPORTED && strstr(err.text, "ranks share a GPU"), "%s", err.text);
  copse_cuda_backend.destroy(p->backend);
  copse_plan_free(plan);
}

/* Outputs that aren't registered: how many kernels and copies a call of so many bytes is, and that only
 * the last part's copies have no kernel beside them. */
static void run_parts(struct process *p) {
  static const struct {
    uint64_t count;
    int parts; /* of an allreduce: up to 341 bytes one, else of 512 at most */
  } cases[] = {{80, 1}, {85, 1}, {86, 1}, {129, 2}, {1023, 8}};
  unsigned char *memory;
  struct copse_err err = COPSE_ERR_INIT;
  CUDA_OK(cudaMalloc((void **)&memory, 64 << 10));
  for (const auto &it : cases) {
    const struct copse_data data = process_data(p, it.count, 1);
    cudaGraph_t graph;
    CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
    COPSE_SUCCEEDS(process_launch(p, &data, memory + (32 << 10), memory, &err), &err);
    CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
    const struct copse_emulated_graph_shape shape = copse_emulated_graph(graph);
    DEVICE_ASSERT(shape.kernels == it.parts, "%d kernels, not %d", shape.kernels, it.parts);
    DEVICE_ASSERT(shape.copies == shape.kernels && shape.lone_copies == 1,
                  "%llu elements: %d kernels, %d copies, %d of them alone",
                  (unsigned long long)it.count, shape.kernels, shape.copies, shape.lone_copies);
    CUDA_OK(cudaGraphDestroy(graph));
  }
  CUDA_OK(cudaFree(memory));
}

/* A host of GPUs, each `reach` of which have access to each other's memory. */
static void configure_apart(int rank, int reach) {
  copse_emulated_config config = copse_emulated_defaults();
  config.reach = reach;
  config.first = rank;
  copse_emulated_configure(&config);
}

/* Runs a mode that opens its own backends; returns whether it is one. */
static bool run_other(struct process *p, const char *mode, bool is_mirrored) {
  const bool is_switch = strncmp(mode, "switch", 6) == 0;
  if (strcmp(mode, "large") == 0)
    run_too_large(p);
  else if (strcmp(mode, "grouped") == 0)
    run_grouped(p);
  else if (strcmp(mode, "switch failing") == 0)
    run_switch_failing(p);
  else if (strcmp(mode, "switch shared") == 0)
    run_switch_shared(p);
  else if (is_switch)
    run_switch(p, strcmp(mode, "switch late") == 0);
  else if (strcmp(mode, "any") == 0)
    run_any_failure(p, is_mirrored);
  else
    return false;
  if (is_switch) DEVICE_ASSERT(copse_emulated_misuses() == 0 && copse_emulated_leaks() == 0, "misuse, or a leak");
  return true;
}

/* Registers a buffer where the mode says so; what fails at one rank fails at all. */
static void *register_buffer(struct process *p, const char *mode, unsigned char *buffer, uint64_t room) {
  struct copse_err err = COPSE_ERR_INIT;
  void *handle = NULL;
  if (strcmp(mode, "registered") == 0)
    COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p->backend, 0, buffer, room, &handle, &err), &err);
  if (strcmp(mode, "unregistered") == 0) {
    if (p->meeting.rank == 1) copse_emulated_fail("cudaIpcOpenMemHandle", 1, cudaErrorUnknown);
    copse_status status = copse_cuda_backend.add_buffer(p->backend, 0, buffer, room, &handle, &err);
    DEVICE_ASSERT(status == COPSE_DEVICE && !handle, "%s", copse_status_string(status));
  }
  return handle;
}

static void run_dies(struct process *p, unsigned char *buffer, uint64_t room) {
  struct copse_err err = COPSE_ERR_INIT;
  if (p->meeting.rank == 1) _exit(0);
  copse_cuda_backend.set_timeout(p->backend, process_limit(0.3));
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  copse_status status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(status == COPSE_TIMEOUT && process_waited(&err, 0.3, "rank"), "%s: %s",
                copse_status_string(status), err.text);
}

/* Without peer access registering is without effect. */
static void run_mirrored(struct process *p, unsigned char *buffer, uint64_t room) {
  const struct copse_cuda *cuda = (const struct copse_cuda *)p->backend;
  uint64_t on_host = 0, on_device = 0; /* what the plans take: a mirror of the device's, and the staging */
  struct copse_err err = COPSE_ERR_INIT;
  void *handle = NULL;
  DEVICE_ASSERT(cuda->has_mirrors, "peer access after all");
  for (const struct copse_cuda_area *a = cuda->areas; a; a = a->next)
    (a->on_host ? on_host : on_device) += a->bytes;
  DEVICE_ASSERT(on_host == on_device + (cuda->staging ? cuda->staging->bytes : 0),
                "%llu bytes on the host, %llu on the device", (unsigned long long)on_host,
                (unsigned long long)on_device);
  COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p->backend, 0, buffer, room, &handle, &err), &err);
  DEVICE_ASSERT(!handle, "registered");
  const struct process_call graph = {1500, 3, false, 2};
  process_check(p, &graph, buffer, room);
}

static void check_calls(struct process *p, copse_collective collective, unsigned char *buffer, uint64_t room) {
  static const uint64_t counts[] = {1, 100, 1023, 3000};
  for (uint64_t i = 0; i < 8; i++) {
    const struct process_call check = {counts[i / 2], i, i % 2 == 1, 0};
    process_check(p, &check, buffer, room);
  }
  const struct process_uneven uneven[] = {{700, 0, false}, {700, 0, true}};
  for (const struct process_uneven &it : uneven)
    if (collective == COPSE_ALLTOALL) process_check_uneven(p, &it, buffer, room);
}

/* Makes calls of one plan as the mode says. */
static void run_calls(struct process *p, copse_collective collective, const char *mode) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  is_apart = strcmp(mode, "apart") == 0 && p->meeting.rank == 1;
  process_open(p, collective, PROCESS_TREES, &bootstrap);
  const bool meets_again = !((const struct copse_cuda *)p->backend)->peer_barrier;
  DEVICE_ASSERT(meets_again == (strcmp(mode, "apart") == 0), "leaves in another way");
  const uint64_t room = 64 << 10;
  unsigned char *memory;
  struct copse_err err = COPSE_ERR_INIT;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  /* not at the start of the allocation, and at another place in every rank's memory */
  unsigned char *buffer = memory + 260; /* a float, and no vector, starts there */
  void *handle = register_buffer(p, mode, buffer, room);
  check_calls(p, collective, buffer, room);
  if (strcmp(mode, "dies") == 0) run_dies(p, buffer, room);
  if (strcmp(mode, "mirrored") == 0) run_mirrored(p, buffer, room);
  if (strcmp(mode, "parts") == 0) run_parts(p);
  if (handle) COPSE_SUCCEEDS(copse_cuda_backend.remove_buffer(p->backend, 0, handle, &err), &err);
  CUDA_OK(cudaFree(memory));
  if (strcmp(mode, "late") == 0)
    leave_late(p, true);
  else
    process_stop(p);
  pb_free((struct copse_plan *)p->plan);
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  struct process p;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  const bool is_mirrored = strncmp(mode, "host ", 5) == 0;
  if (is_mirrored) {
    configure_apart(meeting.rank, mode[5] - '0');
    mode += 7;
  }
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  if (!run_other(&p, mode, is_mirrored)) run_calls(&p, collective, mode);
}

START_TEST(outputs_that_are_not_registered_are_staged) {
  processes_run((copse_collective)_i, "staged", 3);
}
END_TEST

/* Through host memory too: as many kernels and copies. */
START_TEST(a_part_is_copied_out_beside_the_next) {
  processes_run(COPSE_ALLREDUCE, _i == 0 ? "parts" : "host 1 parts", 2);
}
END_TEST

/* CUDA copies in rows only up to some distance between them. */
START_TEST(blocks_far_apart_are_copied_one_by_one) {
  setenv("COPSE_EMULATED_PITCH", "4000", 1);
  processes_run((copse_collective)_i, "staged", 2);
  unsetenv("COPSE_EMULATED_PITCH");
}
END_TEST

START_TEST(registered_outputs_are_written_straight) {
  processes_run((copse_collective)_i, "registered", 2);
}
END_TEST

START_TEST(a_registration_that_fails_at_one_rank_is_none) {
  processes_run(COPSE_ALLGATHER, "unregistered", 3);
}
END_TEST

START_TEST(a_plan_that_does_not_fit_is_left_out_everywhere) {
  processes_run(COPSE_ALLREDUCE, "large", 3);
}
END_TEST

/* Whether a rank groups its calls is its own affair. */
START_TEST(some_ranks_group_their_calls) {
  processes_run(COPSE_ALLREDUCE, _i == 0 ? "grouped" : "host 1 grouped", 3);
}
END_TEST

START_TEST(a_process_that_dies_is_a_timeout_for_the_others) {
  processes_run_in_time(COPSE_ALLREDUCE, "dies", 3);
}
END_TEST

START_TEST(nobody_waits_for_one_that_leaves_late) { processes_run(COPSE_ALLREDUCE, "late", 3); }
END_TEST

/* Where processes share no files either, they leave together. */
START_TEST(leaving_needs_no_shared_files) { processes_run(COPSE_ALLREDUCE, "apart", 3); }
END_TEST

/* GPUs that don't reach each other's memory: none, or pairs only. */
START_TEST(processes_without_peer_access) {
  processes_run((copse_collective)(_i / 2), _i % 2 ? "host 2 mirrored" : "host 1 mirrored", 4);
}
END_TEST

START_TEST(a_process_without_peer_access_dies) {
  processes_run_in_time(COPSE_ALLREDUCE, "host 1 dies", 3);
}
END_TEST

START_TEST(any_call_may_fail_at_one_rank) {
  processes_run(COPSE_ALLREDUCE, _i == 0 ? "any" : _i == 1 ? "host 1 any" : "host 2 any", 3);
}
END_TEST

START_TEST(a_switch_adds_and_copies_for_processes) {
  static const char *const modes[] = {"switch", "switch late", "switch shared"};
  processes_run(COPSE_ALLREDUCE, modes[_i], _i == 0 ? 4 : 3);
}
END_TEST

START_TEST(any_call_for_a_group_may_fail_at_one_rank) { processes_run(COPSE_ALLREDUCE, "switch failing", 3); }
END_TEST

START_TEST(peer_access_can_be_denied) {
  setenv("NCCL_P2P_DISABLE", "1", 1);
  processes_run(COPSE_ALLREDUCE, "mirrored", 2);
  unsetenv("NCCL_P2P_DISABLE");
}
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.collective, arguments.mode);
    return 0;
  }
  (void)copse_test_folder();
  Suite *suite = suite_create("cuda/processes");
  TCase *tc = tcase_create("processes");
  tcase_set_timeout(tc, 150);
  /* Threads are the same in all collectives. */
  const int first = COPSE_TEST_RACES ? COPSE_N_COLLECTIVES - 2 : 0;
  const int few = COPSE_TEST_SWEEPS ? 0 : COPSE_N_COLLECTIVES - 2; /* of what differs by where outputs are */
  tcase_add_loop_test(tc, outputs_that_are_not_registered_are_staged, first, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, blocks_far_apart_are_copied_one_by_one, few, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, registered_outputs_are_written_straight, few, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, processes_without_peer_access, 2 * few, 2 * COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, a_part_is_copied_out_beside_the_next, 0, 2);
  tcase_add_test(tc, a_process_without_peer_access_dies);
  tcase_add_loop_test(tc, any_call_may_fail_at_one_rank, 0, 3);
  tcase_add_test(tc, peer_access_can_be_denied);
  tcase_add_loop_test(tc, a_switch_adds_and_copies_for_processes, 0, 3);
  tcase_add_test(tc, any_call_for_a_group_may_fail_at_one_rank);
  tcase_add_test(tc, a_registration_that_fails_at_one_rank_is_none);
  if (first == 0) tcase_add_test(tc, a_plan_that_does_not_fit_is_left_out_everywhere); /* much memory, no new threads */
  if (first == 0) {
    tcase_add_loop_test(tc, plans_share_their_memory, 0, COPSE_TEST_UP_TO(2, 1));
    /* about bytes; and a build that looks for races has no copse */
    tcase_add_loop_test(tc, plans_of_the_tool_share_their_memory, 0,
                        COPSE_TEST_RACES ? 0 : COPSE_TEST_SWEEPS ? 4 : 1);
  }
  tcase_add_loop_test(tc, some_ranks_group_their_calls, 0, 2);
  tcase_add_test(tc, a_process_that_dies_is_a_timeout_for_the_others);
  tcase_add_test(tc, nobody_waits_for_one_that_leaves_late);
  tcase_add_test(tc, leaving_needs_no_shared_files);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
