/*
 * Ranks on several hosts, one per process on emulated GPUs: links within a host by CUDA IPC, links
 * between hosts by NCCL. This program has an NCCL of its own, which copse finds as it would find
 * the job's: messages are host functions in their stream and go through memory that the processes
 * share, a few kilobytes at a time. The modes name which rank is where: "0011" are two hosts of
 * two; behind a point stands what is tried.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "cuda/process_case.h"
#include "emulation/emulation.h"
#include "runtime/cuda/cuda_machine.h"
#include "runtime/cuda/nccl_bootstrap.h"

extern "C" {
#include "support/support.h"
}

/* ---- an NCCL ----------------------------------------------------------------------------- */

#define NCCL extern "C" __attribute__((visibility("default"), used))

struct message {
  bool sends;
  unsigned char *at;
  size_t count;
  int peer;
  unsigned char header[8]; /* the count, before the bytes: sizes must match */
  size_t moved;            /* of header and bytes */
};

/* What moves at once, in the stream. Graphs come back to it, so it lives until the end. */
struct group {
  struct meeting *meeting;
  cudaStream_t stream;
  std::vector<message> messages;
};

static std::vector<group *> all_groups;
static group *open_group;

/* As many bytes as there are, or is room for. */
static bool advance(struct meeting *m, message *it) {
  meeting_ring *ring =
      it->sends ? &m->place->rings[m->rank][it->peer] : &m->place->rings[it->peer][m->rank];
  uint64_t put = __atomic_load_n(&ring->put, __ATOMIC_ACQUIRE);
  uint64_t taken = __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE);
  uint64_t n = it->sends ? MAX_RING - (put - taken) : put - taken;
  size_t left = sizeof it->header + it->count - it->moved;
  if (n > left) n = left;
  for (uint64_t i = 0; i < n; i++, it->moved++) {
    unsigned char *own = it->moved < sizeof it->header ? &it->header[it->moved]
                                                       : &it->at[it->moved - sizeof it->header];
    unsigned char *there = &ring->bytes[(it->sends ? put : taken) % MAX_RING];
    if (it->sends)
      *there = *own, put++;
    else
      *own = *there, taken++;
    if (it->sends || it->moved + 1 != sizeof it->header) continue;
    uint64_t count;
    memcpy(&count, it->header, sizeof count);
    DEVICE_ASSERT(count == it->count, "rank %d: %llu bytes from rank %d, it expects %zu", m->rank,
                  (unsigned long long)count, it->peer, it->count);
  }
  __atomic_store_n(it->sends ? &ring->put : &ring->taken, it->sends ? put : taken,
                   __ATOMIC_RELEASE);
  return n > 0;
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All at once, but between two ranks one way one after the other. */
static void move_group(void *data) {
  group *g = (group *)data;
  double since = seconds_now();
  usleep((unsigned)(getpid() * 7919 + (int)g->messages.size() * 104729) % 300);
  for (message &it : g->messages) {
    uint64_t count = it.count;
    memcpy(it.header, &count, sizeof count);
    it.moved = 0;
  }
  for (bool done = false; !done;) {
    bool moved = false, busy[2][MAX_PROCESSES] = {};
    done = true;
    for (message &it : g->messages) {
      if (it.moved == sizeof it.header + it.count || busy[it.sends][it.peer]) continue;
      moved = advance(g->meeting, &it) || moved;
      busy[it.sends][it.peer] = it.moved < sizeof it.header + it.count;
      done = done && !busy[it.sends][it.peer];
    }
    if (moved)
      since = seconds_now();
    else if (!done)
      usleep(50);
    DEVICE_ASSERT(seconds_now() - since < 60, "rank %d: a message never comes or is never taken",
                  g->meeting->rank);
  }
}

NCCL int ncclCommCount(void *comm, int *count) {
  *count = ((struct meeting *)comm)->n;
  return 0;
}

NCCL int ncclCommUserRank(void *comm, int *rank) {
  *rank = ((struct meeting *)comm)->rank;
  return 0;
}

NCCL int ncclCommCuDevice(void *, int *device) {
  *device = 0;
  return 0;
}

NCCL const char *ncclGetErrorString(int) { return "a failure"; }

NCCL int ncclAllGather(const void *send, void *recv, size_t count, int type, void *comm,
                       cudaStream_t stream) {
  if (type != COPSE_NCCL_UINT8 || cudaStreamSynchronize(stream) != cudaSuccess) return 1;
  return meeting_all_gather(comm, send, recv, count) == COPSE_OK ? 0 : 1;
}

NCCL int ncclGroupStart(void) {
  if (open_group) return 1;
  open_group = new group{};
  return 0;
}

static int add_message(bool sends, void *at, size_t count, int type, int peer, void *comm,
                       cudaStream_t stream) {
  struct meeting *m = (struct meeting *)comm;
  if (!open_group || type != COPSE_NCCL_UINT8 || peer < 0 || peer >= m->n || peer == m->rank)
    return 1;
  open_group->meeting = m;
  open_group->stream = stream;
  open_group->messages.push_back(message{sends, (unsigned char *)at, count, peer, {}, 0});
  return 0;
}

NCCL int ncclSend(const void *from, size_t count, int type, int peer, void *comm,
                  cudaStream_t stream) {
  return add_message(true, (unsigned char *)(uintptr_t)from, count, type, peer, comm, stream);
}

NCCL int ncclRecv(void *to, size_t count, int type, int peer, void *comm, cudaStream_t stream) {
  return add_message(false, to, count, type, peer, comm, stream);
}

NCCL int ncclGroupEnd(void) {
  group *g = open_group;
  if (!g) return 1;
  open_group = NULL;
  all_groups.push_back(g);
  return cudaLaunchHostFunc(g->stream, move_group, g) == cudaSuccess ? 0 : 1;
}

/* ---- one rank ---------------------------------------------------------------------------- */

static const uint64_t room = 64 << 10;

/* In a chain over all ranks the last one leaves the job. The one before, on its host, sees that,
 * and tells the one before itself on the other host, for which rank 0 waits. */
static void outlive(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  if (p->meeting.rank == p->meeting.n - 1) _exit(0);
  copse_cuda_machine.set_timeout(p->machine, 0.3);
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  copse_status status = copse_cuda_machine.finish(p->machine, &err);
  DEVICE_ASSERT(
      p->meeting.rank == 1
          ? status == COPSE_ABORTED && strstr(err.text, "rank 2, on another host, gave up")
          : status == COPSE_TIMEOUT && strstr(err.text, "waited over 0.3 s for rank"),
      "rank %d: %s: %s", p->meeting.rank, copse_status_string(status), err.text);
}

static void refuse_uneven(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  const uint64_t counts[MAX_PROCESSES * MAX_PROCESSES] = {0};
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = COPSE_ALLTOALL;
  call.count = 5;
  call.send = buffer;
  call.recv = buffer + room;
  call.pair_counts = counts;
  call.stream = p->stream;
  copse_status status = copse_cuda_machine.launch(p->machine, p->prepared, &call, &err);
  DEVICE_ASSERT(status == COPSE_UNSUPPORTED && strstr(err.text, "over several hosts"), "%s",
                err.text);
}

static void check_calls(struct process *p, bool graphs, unsigned char *buffer) {
  static const uint64_t counts[] = {1, 100, 1023, 3000};
  for (uint64_t i = 0; i < 8; i++) {
    const struct process_call call = {counts[i / 2], i, !graphs && i % 2 == 1, graphs ? 3 : 0};
    process_check(p, &call, buffer, room);
  }
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  struct process p;
  copse_bootstrap bootstrap;
  struct copse_err err = COPSE_ERR_INIT;
  int n, rank, device;
  const char *what = strchr(mode, '.') + 1;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  copse_cuda_host = 1 + (uint64_t)(mode[meeting.rank] - '0');
  COPSE_SUCCEEDS(copse_nccl_bootstrap_new(&p.meeting, &n, &rank, &device, &bootstrap, &err), &err);
  const bool dies = strcmp(what, "dies") == 0;
  const struct pb_options chain = {1, 1, 2, 3, 512, 64};
  process_open(&p, collective, dies ? chain : PROCESS_TREES, &bootstrap);
  unsigned char *memory;
  void *handle = NULL;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  unsigned char *buffer = memory + 256;
  if (strcmp(what, "registered") == 0)
    COPSE_SUCCEEDS(copse_cuda_machine.add_buffer(p.machine, 0, buffer, room, &handle, &err), &err);
  check_calls(&p, strcmp(what, "graphs") == 0, buffer);
  if (collective == COPSE_ALLTOALL && strpbrk(mode, "12")) refuse_uneven(&p, buffer);
  if (dies) outlive(&p, buffer);
  if (handle) COPSE_SUCCEEDS(copse_cuda_machine.remove_buffer(p.machine, 0, handle, &err), &err);
  process_close(&p);
  copse_nccl_bootstrap_free(&bootstrap);
  CUDA_OK(cudaFree(memory));
  for (group *g : all_groups) delete g;
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* ---- all ranks ------------------------------------------------------------------------------ */

static void run_hosts(copse_collective collective, const char *hosts, const char *what) {
  char mode[16];
  snprintf(mode, sizeof mode, "%s.%s", hosts, what);
  processes_run(collective, mode, (int)strlen(hosts));
}

START_TEST(two_hosts_of_two) { run_hosts((copse_collective)_i, "0011", "staged"); }
END_TEST
START_TEST(one_rank_and_three) { run_hosts((copse_collective)_i, "0111", "registered"); }
END_TEST
START_TEST(three_hosts_and_ranks_in_no_order) { run_hosts((copse_collective)_i, "0102", "staged"); }
END_TEST
START_TEST(a_host_for_each_rank) { run_hosts((copse_collective)_i, "012", "staged"); }
END_TEST
START_TEST(one_host_after_all) { run_hosts((copse_collective)_i, "000", "staged"); }
END_TEST
START_TEST(graphs_are_captured_at_first_use) { run_hosts((copse_collective)_i, "0011", "graphs"); }
END_TEST
START_TEST(other_hosts_hear_of_a_rank_that_dies) { run_hosts(COPSE_ALLREDUCE, "0011", "dies"); }
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
  tcase_add_loop_test(tc, two_hosts_of_two, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, one_rank_and_three, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, three_hosts_and_ranks_in_no_order, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, a_host_for_each_rank, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, one_host_after_all, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, graphs_are_captured_at_first_use, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, other_hosts_hear_of_a_rank_that_dies);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
