/*
 * Ranks on several hosts, one per process on emulated GPUs: links within a host by CUDA IPC, links
 * between hosts by a stand-in for NCCL. The modes name which rank is where: "0011" are two hosts of
 * two; behind a point stands what is tried.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/stand_in_nccl.h"
#include "emulation/emulation.h"
#include "runtime/internode/internode.h"

extern "C" {
#include "runtime/backend/nccl_source.h"
#include "support/support.h"
}

/* ---- one rank ---------------------------------------------------------------------------- */

static const uint64_t room = 64 << 10;

/* In a chain over all ranks the last one leaves the job. The one before, on its host, sees that,
 * and signals the one before itself on the other host, for which rank 0 waits. */
static void outlive(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  if (p->meeting.rank == p->meeting.n - 1) _exit(0);
  copse_cuda_backend.set_timeout(p->backend, process_limit(0.3));
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  copse_status status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(p->meeting.rank == 1 ? status == COPSE_ABORTED &&
                                           strstr(err.text, "rank 2, on another host, gave up")
                                     : status == COPSE_TIMEOUT && process_waited(&err, 0.3, "rank"),
                "rank %d: %s: %s", p->meeting.rank, copse_status_string(status), err.text);
}

/* Rank 2 leaves the job before a call. Rank 1 has messages from it, rank 3 shares its host, and
 * rank 0 gets rank 1's status word, or times out first. */
static void miss(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_cuda *m = (struct copse_cuda *)p->backend;
  if (p->meeting.rank == 2) _exit(0);
  copse_cuda_backend.set_timeout(p->backend, process_limit(0.5));
  stand_in_hold_aborts(true);
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  copse_status status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(status == COPSE_TIMEOUT, "%s: %s", copse_status_string(status), err.text);
  DEVICE_ASSERT(p->meeting.rank == 1 ? process_waited(&err, 1, "messages between hosts") &&
                                           strstr(err.text, "may be gone: 2")
                                     : process_waited(&err, 0.5, "rank"),
                "rank %d: %s", p->meeting.rank, err.text);
  if (p->meeting.rank == 1) { /* also whoever is in the midst of a call comes back */
    DEVICE_ASSERT(stand_in_aborted() == 1, "nothing was aborted");
    DEVICE_ASSERT(copse_watch_begin(m, &err) == COPSE_TIMEOUT, "%s", err.text);
  }
  stand_in_hold_aborts(false);
  err = COPSE_ERR_INIT;
  status = process_launch(p, &data, buffer, buffer + room, &err);
  DEVICE_ASSERT(status == COPSE_TIMEOUT, "%s", copse_status_string(status));
}

/* NCCL knows by itself that something is wrong, and nobody need wait. */
static void hear_of_failure(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_status status = COPSE_OK;
  if (p->meeting.rank == 2) _exit(0);
  copse_cuda_backend.set_timeout(p->backend, 60);
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  stand_in_report(6);
  status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(status == COPSE_DEVICE && strstr(err.text, "joins the hosts: a failure"), "%s: %s",
                copse_status_string(status), err.text);
}

/* Messages take the whole GPU, as a kernel of NCCL's may. */
static bool takes_room(const char *what) { return strcmp(what, "crowded") == 0; }

/* On the thread's own stream, whose handle means another one to a thread of NCCL's. */
static void check_own_stream(struct process *p, unsigned char *buffer) {
  const cudaStream_t own = p->stream;
  p->stream = cudaStreamPerThread;
  for (uint64_t i = 0; i < 6; i++) {
    const bool graph = i == 2 || i == 5;
    const struct process_call call = {i < 4 ? 10u : 1500u, i, i % 2 == 1 && !graph, graph ? 2 : 0};
    process_check(p, &call, buffer, room);
  }
  p->stream = own;
}

/* The ranks on the two sides of the only way between hosts. */
static bool crosses(const struct process *p) { return p->meeting.rank == 1 || p->meeting.rank == 2; }

static void check_stuck(const struct process *p, copse_status status, const struct copse_err *err) {
  DEVICE_ASSERT(status == COPSE_TIMEOUT && process_waited(err, 0.6, "messages between hosts"),
                "rank %d: %s: %s", p->meeting.rank, copse_status_string(status), err->text);
}

/* A call of NCCL waits for the other side's part in a connection, which never comes; also where the
 * call is captured, and so no stream can tell that it began. */
static void connect_for_ever(struct process *p, unsigned char *buffer, bool captured) {
  struct copse_err err = COPSE_ERR_INIT;
  cudaGraph_t graph = NULL;
  copse_cuda_backend.set_timeout(p->backend, process_limit(0.3));
  stand_in_hold_connections(true);
  const struct copse_data data = process_data(p, 500, 1);
  if (captured) CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
  copse_status status = process_launch(p, &data, buffer, buffer + room, &err);
  if (captured) CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
  if (graph) CUDA_OK(cudaGraphDestroy(graph));
  if (crosses(p)) {
    check_stuck(p, status, &err);
    DEVICE_ASSERT(stand_in_aborted() == 1, "nothing was aborted");
    return;
  }
  COPSE_SUCCEEDS(status, &err); /* its kernel waits for that of the host's other rank */
  status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(captured ? status == COPSE_OK : status == COPSE_TIMEOUT, "rank %d: %s: %s",
                p->meeting.rank, copse_status_string(status), err.text);
}

static void wait_for_flag(void *flag) {
  while (!__atomic_load_n((bool *)flag, __ATOMIC_ACQUIRE)) usleep(1000);
}

static void *abort_soon(void *backend) {
  usleep(300000);
  copse_cuda_backend.abort(backend);
  return NULL;
}

/* The same, and another thread aborts. The stream hangs in a call of somebody
 * else's before, so that nothing of this one begins. */
static void abort_connecting(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  pthread_t thread;
  bool flag = false;
  copse_cuda_backend.set_timeout(p->backend, process_limit(1)); /* of work that never begins */
  stand_in_hold_connections(true);
  CUDA_OK(cudaLaunchHostFunc(p->stream, wait_for_flag, &flag));
  DEVICE_ASSERT(pthread_create(&thread, NULL, abort_soon, p->backend) == 0, "no thread");
  const struct copse_data data = process_data(p, 500, 1);
  copse_status status = process_launch(p, &data, buffer, buffer + room, &err);
  DEVICE_ASSERT(pthread_join(thread, NULL) == 0, "not joined");
  DEVICE_ASSERT((status == COPSE_ABORTED) == crosses(p), "rank %d: %s", p->meeting.rank,
                copse_status_string(status));
  __atomic_store_n(&flag, true, __ATOMIC_RELEASE);
  CUDA_OK(cudaStreamSynchronize(p->stream));
  if (status == COPSE_OK) status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(status == COPSE_ABORTED && strstr(err.text, "was aborted"), "rank %d: %s: %s",
                p->meeting.rank, copse_status_string(status), err.text);
}

/* NCCL's end waits for a rank that doesn't end its own. */
static void end_alone(struct process *p) {
  copse_nccl_end_seconds = 0.05;
  stand_in_hold_ends(true);
  process_close(p);
  DEVICE_ASSERT(stand_in_alive() == 1, "NCCL's end was not held");
  stand_in_hold_ends(false);
  while (stand_in_alive() > 0) usleep(1000);
  usleep(20000); /* for its thread to be gone */
}

static void check_calls(struct process *p, const char *what, unsigned char *buffer) {
  const uint64_t counts[] = {1, 100, 1023, p->meeting.n > 4 ? 2000u : 3000u};
  const bool graphs = strcmp(what, "graphs") == 0;
  if (takes_room(what)) { /* slow: a thread for each of NCCL's blocks, in every round */
    const struct process_call call = {300, 4, false, 0};
    process_check(p, &call, buffer, room);
    return;
  }
  for (uint64_t i = 0; i < 8; i++) {
    const struct process_call call = {counts[i / 2], i, !graphs && i % 2 == 1, graphs ? 3 : 0};
    process_check(p, &call, buffer, room);
  }
}

/* Where the host reads the counts too, less goes between hosts. */
static void check_uneven(struct process *p, const char *what, unsigned char *buffer) {
  const int graph_launches = strcmp(what, "graphs") == 0 ? 3 : 0;
  const bool hosts = ((const struct copse_cuda_plan *)p->prepared)->split != NULL;
  uint64_t sent[3] = {stand_in_sent()};
  for (int on_host = 0; on_host < 2; on_host++) {
    const struct process_uneven it = {700, on_host ? 0 : graph_launches, on_host != 0};
    process_check_uneven(p, &it, buffer, room);
    sent[on_host + 1] = stand_in_sent();
  }
  DEVICE_ASSERT(!hosts || 3 * (sent[2] - sent[1]) < 2 * (sent[1] - sent[0]),
                "%llu bytes for blocks in part, %llu for whole ones",
                (unsigned long long)(sent[2] - sent[1]), (unsigned long long)(sent[1] - sent[0]));
  const struct process_uneven small = {3, graph_launches, false};
  process_check_uneven(p, &small, buffer, room);
}

/* Two graphs are captured at the same time, and a call is made while they are. */
static void check_open_captures(struct process *p, unsigned char *buffer) {
  const struct copse_data data = process_data(p, 1000, 2);
  struct copse_err err = COPSE_ERR_INIT;
  cudaStream_t streams[2] = {p->stream, NULL}, own = p->stream;
  cudaGraph_t graphs[2];
  CUDA_OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  for (cudaStream_t stream : streams)
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  for (int i = 0; i < 4; i++) {
    p->stream = streams[i % 2];
    COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  }
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  const struct process_call call = {1000, 3, false, 0};
  process_check(p, &call, buffer, room);
  CUDA_OK(cudaStreamDestroy(p->stream));
  p->stream = own;
  for (int i = 0; i < 2; i++) {
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamEndCapture(streams[i], &graphs[i]));
    CUDA_OK(cudaGraphInstantiate(&exec, graphs[i], 0));
    CUDA_OK(cudaGraphLaunch(exec, streams[i]));
    CUDA_OK(cudaStreamSynchronize(streams[i]));
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graphs[i]));
  }
  CUDA_OK(cudaStreamDestroy(streams[1]));
}

/* The CPU's time goes into the barriers of blocks: not in all modes. */
static bool has_wide_blocks(const char *what, int n_ranks) {
  return n_ranks == 4 && (strcmp(what, "staged") == 0 || strcmp(what, "registered") == 0 ||
                          takes_room(what));
}

static void configure(const char *what, int n_ranks) {
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 64;
  copse_emulated_configure(&config);
  copse_cuda_threads = has_wide_blocks(what, n_ranks) ? 3 : 1;
  copse_cuda_staging_bytes = 1024;
  if (takes_room(what)) stand_in_take_blocks(64);
  if (strcmp(what, "slow") == 0) stand_in_be_slow();
  if (strcmp(what, "slow") == 0 || strcmp(what, "blocks") == 0) stand_in_always_block();
  if (strcmp(what, "old") == 0) stand_in_set_version(22605);
}

/* As the drop-in does it: a bootstrap of its own, and a source that knows NCCL. */
static void *find_here(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static copse_nccl_find_type source_of(const copse_bootstrap *bootstrap) {
  return bootstrap->all_gather == meeting_all_gather ? find_here : NULL;
}

static void make_bootstrap(struct stand_in_comm *nccl, const char *what, copse_bootstrap *out) {
  struct copse_err err = COPSE_ERR_INIT;
  int n, rank, device;
  if (strcmp(what, "source") != 0) {
    COPSE_SUCCEEDS(copse_nccl_bootstrap_new(nccl, &n, &rank, &device, out, &err), &err);
    return;
  }
  *out = {meeting_all_gather, nccl->meeting};
  struct copse_nccl_links links; /* nobody knows the bootstrap yet */
  DEVICE_ASSERT(copse_nccl_links_of(out, &links, &err) == COPSE_UNSUPPORTED &&
                    strstr(err.text, "joined by NCCL only"),
                "%s", err.text);
  copse_nccl_source_set(source_of);
}

static void run_collective(struct meeting meeting, copse_collective collective, const char *what) {
  struct process p;
  copse_bootstrap bootstrap;
  struct copse_err err = COPSE_ERR_INIT;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  struct stand_in_comm comm(&p.meeting);
  stand_in_meet(&p.meeting);
  make_bootstrap(&comm, what, &bootstrap);
  const bool dies = strcmp(what, "dies") == 0 || strcmp(what, "misses") == 0 ||
                    strcmp(what, "fails") == 0 || strcmp(what, "connects") == 0 ||
                    strcmp(what, "captures") == 0 || strcmp(what, "aborts") == 0;
  struct pb_options trees = PROCESS_TREES;
  if (dies) trees = {1, 1, 2, 3, 512, 64};
  if (meeting.n > 4) trees.n_trees = 1;
  process_open(&p, collective, trees, &bootstrap);
  unsigned char *memory;
  void *handle = NULL;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  unsigned char *buffer = memory + 256;
  if (strcmp(what, "registered") == 0)
    COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p.backend, 0, buffer, room, &handle, &err), &err);
  check_calls(&p, what, buffer);
  if (strcmp(what, "graphs") == 0) check_open_captures(&p, buffer);
  if (strcmp(what, "staged") == 0 && p.meeting.n == 3) check_own_stream(&p, buffer);
  if (collective == COPSE_ALLTOALL && !takes_room(what)) check_uneven(&p, what, buffer);
  if (strcmp(what, "dies") == 0) outlive(&p, buffer);
  if (strcmp(what, "misses") == 0) miss(&p, buffer);
  if (strcmp(what, "fails") == 0) hear_of_failure(&p, buffer);
  if (strcmp(what, "connects") == 0) connect_for_ever(&p, buffer, false);
  if (strcmp(what, "captures") == 0) connect_for_ever(&p, buffer, true);
  if (strcmp(what, "aborts") == 0) abort_connecting(&p, buffer);
  if (handle) COPSE_SUCCEEDS(copse_cuda_backend.remove_buffer(p.backend, 0, handle, &err), &err);
  if (strcmp(what, "ends") == 0)
    end_alone(&p);
  else
    process_close(&p);
  if (strcmp(what, "source") != 0) copse_nccl_bootstrap_free(&bootstrap);
  copse_nccl_source_set(NULL);
  CUDA_OK(cudaFree(memory));
  DEVICE_ASSERT(stand_in_alive() == 0, "a communicator of NCCL is left");
  stand_in_free();
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* NCCL begins to join the ranks, and doesn't end; or an old one joins them to something that doesn't
 * block, though it wasn't asked for. */
static void run_unready(struct meeting meeting, bool old) {
  struct process p;
  copse_bootstrap bootstrap;
  struct copse_err err = COPSE_ERR_INIT;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  struct stand_in_comm comm(&p.meeting);
  stand_in_meet(&p.meeting);
  if (old) {
    stand_in_set_version(22605);
    stand_in_be_slow();
  } else {
    stand_in_hold_readiness();
  }
  make_bootstrap(&comm, "unready", &bootstrap);
  process_meet(&p, &bootstrap);
  copse_cuda_backend.set_timeout(p.backend, process_limit(0.2));
  p.plan = pb_tree_plan(COPSE_ALLREDUCE, (uint32_t)meeting.n, 0, PROCESS_TREES);
  const copse_status status = copse_cuda_backend.prepare(p.backend, &p.plan, 1, &p.prepared, &err);
  DEVICE_ASSERT(
      old ? status == COPSE_UNSUPPORTED && strstr(err.text, "NCCL_COMM_BLOCKING=0")
          : status == COPSE_TIMEOUT && strstr(err.text, "NCCL had not joined the ranks after"),
      "%s: %s", copse_status_string(status), err.text);
  copse_cuda_backend.destroy(p.backend);
  pb_free((struct copse_plan *)p.plan);
  copse_nccl_bootstrap_free(&bootstrap);
  DEVICE_ASSERT(stand_in_aborted() == 1 && stand_in_alive() == 0, "NCCL's is left");
  stand_in_free();
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* Rank 1 has not asked for plans over several hosts: no rank gets them. */
static void run_unasked(struct meeting meeting) {
  struct process p;
  struct copse_err err = COPSE_ERR_INIT;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  const copse_bootstrap bootstrap = {meeting_all_gather, &p.meeting};
  if (meeting.rank == 1) unsetenv("COPSE_SEVERAL_HOSTS");
  process_meet(&p, &bootstrap);
  p.plan = pb_tree_plan(COPSE_ALLREDUCE, (uint32_t)meeting.n, 0, PROCESS_TREES);
  const copse_status status = copse_cuda_backend.prepare(p.backend, &p.plan, 1, &p.prepared, &err);
  DEVICE_ASSERT(status == COPSE_UNSUPPORTED && strstr(err.text, "COPSE_SEVERAL_HOSTS=1"), "%s: %s",
                copse_status_string(status), err.text);
  copse_cuda_backend.destroy(p.backend);
  pb_free((struct copse_plan *)p.plan);
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  const char *what = strchr(mode, '.') + 1;
  configure(what, meeting.n);
  setenv("COPSE_SEVERAL_HOSTS", "1", 1);
  copse_cuda_host = 1 + (uint64_t)(mode[meeting.rank] - '0');
  if (strcmp(what, "unasked") == 0) return run_unasked(meeting);
  if (strcmp(what, "unready") == 0) return run_unready(meeting, false);
  if (strcmp(what, "stubborn") == 0) return run_unready(meeting, true);
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++)
    if (collective == ALL_COLLECTIVES || collective == (copse_collective)c)
      run_collective(meeting, (copse_collective)c, what);
}

/* ---- all ranks ------------------------------------------------------------------------------ */

static void run_hosts(copse_collective collective, const char *hosts, const char *what) {
  char mode[24];
  snprintf(mode, sizeof mode, "%s.%s", hosts, what);
  processes_run(collective, mode, (int)strlen(hosts));
}

static void run_hosts_in_time(const char *hosts, const char *what) {
  char mode[24];
  snprintf(mode, sizeof mode, "%s.%s", hosts, what);
  processes_run_in_time(COPSE_ALLREDUCE, mode, (int)strlen(hosts));
}

/* Ways of connecting with one collective: the others meet all of them. */
static copse_collective some_collectives(void) {
  return COPSE_TEST_SWEEPS ? ALL_COLLECTIVES : COPSE_ALLREDUCE;
}

START_TEST(two_hosts_of_two) { run_hosts(ALL_COLLECTIVES, "0011", "staged"); }
END_TEST
START_TEST(one_rank_and_three) { run_hosts(ALL_COLLECTIVES, "0111", "registered"); }
END_TEST
START_TEST(three_hosts_and_ranks_in_no_order) { run_hosts(some_collectives(), "0102", "narrow"); }
END_TEST
START_TEST(a_host_for_each_rank) { run_hosts(ALL_COLLECTIVES, "012", "staged"); }
END_TEST
START_TEST(one_host_after_all) { run_hosts(ALL_COLLECTIVES, "000", "staged"); }
END_TEST
START_TEST(graphs_are_captured_at_first_use) { run_hosts(some_collectives(), "0011", "graphs"); }
END_TEST
START_TEST(two_hosts_of_four) { run_hosts(ALL_COLLECTIVES, "00001111", "staged"); }
END_TEST
START_TEST(three_hosts_of_two) { run_hosts(ALL_COLLECTIVES, "001122", "registered"); }
END_TEST
START_TEST(four_hosts_of_two) { run_hosts(ALL_COLLECTIVES, "00112233", "staged"); }
END_TEST
START_TEST(kernels_and_messages_take_turns) { run_hosts((copse_collective)_i, "0011", "crowded"); }
END_TEST
START_TEST(communicators_need_not_block) { run_hosts(some_collectives(), "0011", "slow"); }
END_TEST
START_TEST(older_ones_are_not_asked_to_go_on) { run_hosts(COPSE_ALLREDUCE, "0011", "old"); }
END_TEST
START_TEST(communicators_may_block) { run_hosts(some_collectives(), "0011", "blocks"); }
END_TEST
START_TEST(a_connection_that_never_comes_ends_the_call) { run_hosts_in_time("0011", "connects"); }
END_TEST
START_TEST(a_connection_that_never_comes_ends_a_captured_call) {
  run_hosts_in_time("0011", "captures");
}
END_TEST
START_TEST(an_abort_ends_a_call_that_connects) { run_hosts_in_time("0011", "aborts"); }
END_TEST
START_TEST(nobody_waits_for_nccls_end) { run_hosts(COPSE_ALLREDUCE, "0011", "ends"); }
END_TEST
START_TEST(ranks_that_are_never_joined) { run_hosts_in_time("0011", "unready"); }
END_TEST
START_TEST(old_ones_that_do_not_block_are_refused) { run_hosts_in_time("0011", "stubborn"); }
END_TEST
START_TEST(other_hosts_hear_of_a_rank_that_dies) { run_hosts_in_time("0011", "dies"); }
END_TEST

START_TEST(a_message_that_never_comes_ends_the_wait) { run_hosts_in_time("0011", "misses"); }
END_TEST
START_TEST(what_nccl_knows_ends_the_wait) { run_hosts(COPSE_ALLREDUCE, "0011", "fails"); }
END_TEST
START_TEST(anothers_bootstrap_may_name_its_nccl) { run_hosts(some_collectives(), "0110", "source"); }
END_TEST

START_TEST(they_are_off_unless_all_ranks_ask) { run_hosts(COPSE_ALLREDUCE, "011", "unasked"); }
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.collective, arguments.mode);
    return 0;
  }
  Suite *suite = suite_create("cuda/hosts");
  TCase *tc = tcase_create("hosts");
  tcase_set_timeout(tc, 150);
  tcase_add_test(tc, two_hosts_of_two);
  tcase_add_test(tc, they_are_off_unless_all_ranks_ask);
  tcase_add_test(tc, three_hosts_and_ranks_in_no_order);
  tcase_add_test(tc, communicators_may_block);
  tcase_add_test(tc, older_ones_are_not_asked_to_go_on);
  tcase_add_test(tc, ranks_that_are_never_joined);
  tcase_add_test(tc, old_ones_that_do_not_block_are_refused);
  tcase_add_test(tc, anothers_bootstrap_may_name_its_nccl);
  tcase_add_test(tc, a_connection_that_never_comes_ends_the_call); /* a captured call's does too */
  tcase_add_test(tc, one_rank_and_three);
  tcase_add_test(tc, one_host_after_all);
  if (COPSE_TEST_SWEEPS) { /* the same ways with other numbers */
    tcase_add_test(tc, a_host_for_each_rank);
    tcase_add_test(tc, three_hosts_of_two);
  }
  /* A sanitizer sees a process at a time: more of them show it nothing. */
  if (COPSE_TEST_SWEEPS) {
    tcase_add_test(tc, two_hosts_of_four);
    tcase_add_test(tc, four_hosts_of_two);
  }
  tcase_add_loop_test(tc, kernels_and_messages_take_turns, COPSE_TEST_SWEEPS ? 0 : 2, 3);
  tcase_add_test(tc, communicators_need_not_block);
  tcase_add_test(tc, nobody_waits_for_nccls_end);
  tcase_add_test(tc, graphs_are_captured_at_first_use);
  tcase_add_test(tc, a_connection_that_never_comes_ends_a_captured_call);
  tcase_add_test(tc, an_abort_ends_a_call_that_connects);
  tcase_add_test(tc, other_hosts_hear_of_a_rank_that_dies);
  tcase_add_test(tc, a_message_that_never_comes_ends_the_wait);
  tcase_add_test(tc, what_nccl_knows_ends_the_wait);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
