/* Emulated capture, graphs, and memory shared between processes. */
#include <atomic>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/wait.h>
#include <thread>

#include "emulation_tests.h"

/* ---- capture and graphs ------------------------------------------------------------------- */

struct Capturing {
  cudaStream_t origin = new_stream(cudaStreamNonBlocking);
  cudaStream_t side = new_stream(cudaStreamNonBlocking);
  cudaEvent_t fork = new_event(), join = new_event();
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    OK(cudaStreamBeginCapture(origin, mode));
  }
  void fork_out() {
    OK(cudaEventRecord(fork, origin));
    OK(cudaStreamWaitEvent(side, fork));
  }
  void join_in() {
    OK(cudaEventRecord(join, side));
    OK(cudaStreamWaitEvent(origin, join));
  }
  cudaGraphExec_t end() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(origin, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
  }
  void end_with(cudaError_t error) {
    cudaGraph_t graph;
    EXPECT(cudaStreamEndCapture(origin, &graph), error);
    ck_assert_ptr_null(graph);
    cudaStreamCaptureStatus status;
    for (cudaStream_t stream : {origin, side}) {
      OK(cudaStreamIsCapturing(stream, &status));
      ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
    }
  }
  void close() {
    OK(cudaStreamDestroy(origin));
    OK(cudaStreamDestroy(side));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
  }
};

START_TEST(a_graph_replays_what_was_captured) {
  Capturing c;
  int *data = new_device<int>(3), host = 1, result[3];
  c.begin();
  OK(cudaMemcpyAsync(data, &host, sizeof host, cudaMemcpyHostToDevice, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data, 2}, c.origin);
  c.fork_out();
  OK(cudaMemcpyAsync(data + 1, data, sizeof *data, cudaMemcpyDeviceToDevice, c.side));
  launch(append_kernel, 1, 1, AddArgs{data + 1, 3}, c.side);
  OK(cudaMemsetAsync(data + 2, 0, sizeof *data, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data + 2, 4}, c.origin);
  cudaStreamCaptureStatus status;
  unsigned long long id;
  cudaGraph_t graph;
  const cudaGraphNode_t *nodes;
  size_t n_nodes;
  OK(cudaStreamGetCaptureInfo(c.side, &status, &id, &graph, &nodes, &n_nodes));
  ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
  ck_assert_uint_eq(n_nodes, 1);
  c.join_in();
  OK(cudaStreamGetCaptureInfo(c.origin, &status, &id, &graph, &nodes, nullptr, &n_nodes));
  ck_assert_uint_eq(n_nodes, 2);
  OK(cudaMemcpyAsync(result, data, sizeof result, cudaMemcpyDeviceToHost, c.origin));
  OK(cudaStreamEndCapture(c.origin, &graph));
  ck_assert_int_eq(read_back(data, 1)[0], 0); /* nothing ran */
  OK(cudaGraphGetNodes(graph, NULL, &n_nodes));
  ck_assert_uint_eq(n_nodes, 7);
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 50; i++) {
    host = i + 5; /* as it is at the replay */
    OK(cudaGraphLaunch(exec, c.origin));
    OK(cudaStreamSynchronize(c.origin));
    ck_assert_int_eq(result[0], 10 * (i + 5) + 2);
    ck_assert_int_eq(result[1], 100 * (i + 5) + 23);
    ck_assert_int_eq(result[2], 4);
  }
  OK(cudaGraphExecDestroy(exec));
  EXPECT(cudaGraphLaunch(exec, c.origin), cudaErrorInvalidValue);
  OK(cudaFree(data));
  c.close();
  finish(1);
}
END_TEST

START_TEST(branches_of_a_graph_run_at_the_same_time) {
  Capturing c;
  const int rounds = 9;
  uint32_t *flags = new_device<uint32_t>(2);
  unsigned *data = new_device<unsigned>(1);
  c.begin();
  OK(cudaMemsetAsync(flags, 0, 2 * sizeof *flags, c.origin));
  OK(cudaMemsetAsync(data, 0, sizeof *data, c.origin));
  c.fork_out();
  launch(ping_kernel, 1, 4, PingArgs{flags, flags + 1, data, rounds, 0}, c.origin);
  launch(ping_kernel, 1, 4, PingArgs{flags + 1, flags, data, rounds, 1}, c.side);
  c.join_in();
  cudaGraphExec_t exec = c.end();
  for (int i = 0; i < 5; i++) OK(cudaGraphLaunch(exec, c.side));
  OK(cudaGraphLaunch(exec, c.origin)); /* one executable graph never overlaps itself */
  OK(cudaDeviceSynchronize());
  ck_assert_uint_eq(read_back(data, 1)[0], ping_result(rounds));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(flags));
  OK(cudaFree(data));
  c.close();
  finish(0);
}
END_TEST

START_TEST(a_graph_launched_in_a_capture_becomes_part_of_it) {
  Capturing c;
  int *data = new_device<int>(1);
  c.begin();
  launch(append_kernel, 1, 1, AddArgs{data, 1}, c.origin);
  launch(append_kernel, 1, 1, AddArgs{data, 2}, c.origin);
  cudaGraphExec_t inner = c.end();
  c.begin();
  OK(cudaGraphLaunch(inner, c.origin));
  launch(append_kernel, 1, 1, AddArgs{data, 3}, c.origin);
  cudaGraphExec_t outer = c.end();
  OK(cudaGraphLaunch(outer, c.origin));
  OK(cudaGraphLaunch(outer, c.origin));
  OK(cudaStreamSynchronize(c.origin));
  ck_assert_int_eq(read_back(data, 1)[0], 123123);
  OK(cudaGraphExecDestroy(inner));
  OK(cudaGraphExecDestroy(outer));
  OK(cudaFree(data));
  c.close();
  finish(0);
}
END_TEST

START_TEST(what_a_capture_forbids_ends_it) {
  Capturing c;
  void *p;
  int plain;
  c.begin();
  EXPECT(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaLaunchHostFunc(c.origin, Gate::pass, NULL), cudaErrorStreamCaptureInvalidated);
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* other threads are bound by a global capture */
  std::thread([&] { EXPECT(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported); }).join();
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(cudaStreamCaptureModeThreadLocal); /* but not by this one */
  std::thread([&] { OK(cudaMalloc(&p, 16)); }).join();
  OK(cudaGraphExecDestroy(c.end()));
  OK(cudaFree(p));

  c.begin(cudaStreamCaptureModeThreadLocal); /* the capturing thread is */
  EXPECT(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  ck_assert_int_eq(mode, cudaStreamCaptureModeRelaxed);
  OK(cudaGraphExecDestroy(c.end()));

  c.begin(cudaStreamCaptureModeRelaxed);
  EXPECT(cudaStreamSynchronize(c.origin), cudaErrorStreamCaptureUnsupported);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  c.begin(cudaStreamCaptureModeRelaxed); /* a device is all of its streams */
  EXPECT(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  OK(cudaMalloc(&p, 16));
  c.begin(cudaStreamCaptureModeRelaxed);
  OK(cudaMemcpy(&plain, p, 4, cudaMemcpyDeviceToHost)); /* non-blocking streams only */
  OK(cudaGraphExecDestroy(c.end()));
  OK(cudaFree(p));
  c.close();
  finish(5);
}
END_TEST

START_TEST(captures_are_closed_in_themselves) {
  Capturing c, d;
  int *data = new_device<int>(1);
  cudaGraph_t graph;
  c.begin(); /* a branch that never comes back */
  c.fork_out();
  launch(append_kernel, 1, 1, AddArgs{data, 1}, c.side);
  c.end_with(cudaErrorStreamCaptureUnjoined);

  OK(cudaEventRecord(c.fork, c.side)); /* work outside */
  c.begin();
  EXPECT(cudaStreamWaitEvent(c.origin, c.fork), cudaErrorStreamCaptureIsolation);
  c.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* two captures */
  d.begin();
  OK(cudaEventRecord(c.fork, c.origin));
  EXPECT(cudaStreamWaitEvent(d.origin, c.fork), cudaErrorStreamCaptureMerge);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  d.end_with(cudaErrorStreamCaptureInvalidated);

  c.begin(); /* from a stream that joined, or from another thread */
  std::thread([&] {
    EXPECT(cudaStreamEndCapture(c.origin, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  c.fork_out();
  EXPECT(cudaEventQuery(c.join), cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(c.side, &graph), cudaErrorStreamCaptureUnmatched);
  c.end_with(cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaStreamEndCapture(c.origin, &graph), cudaErrorIllegalState);
  EXPECT(cudaEventSynchronize(c.fork), cudaErrorCapturedEvent);
  EXPECT(cudaStreamWaitEvent(c.side, c.fork), cudaErrorCapturedEvent);
  EXPECT(cudaStreamBeginCapture(0, cudaStreamCaptureModeRelaxed),
         cudaErrorStreamCaptureUnsupported);
  OK(cudaFree(data));
  c.close();
  d.close();
  finish(10);
}
END_TEST

START_TEST(the_null_stream_must_not_meet_a_capture) {
  cudaStream_t blocking = new_stream(cudaStreamDefault);
  int *data = new_device<int>(1);
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  AddArgs args = {data, 1};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, list, 0, 0), cudaErrorStreamCaptureImplicit);
  EXPECT(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamDestroy(blocking));
  OK(cudaFree(data));
  finish(1);
}
END_TEST

/* ---- between processes -------------------------------------------------------------------- */

struct Shared {
  uint32_t flags[2];
  unsigned data;
};
static const int ipc_rounds = 20;

/* Without Check's macros, which work in its own processes only. */
static bool play(Shared *shared, int parity) {
  PingArgs args = {&shared->flags[parity], &shared->flags[1 - parity], &shared->data, ipc_rounds,
                   parity};
  void *list[] = {&args};
  return cudaLaunchKernel(ping_kernel, 1, 4, list) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
}

static std::string hex_of(const cudaIpcMemHandle_t &handle) {
  std::string text;
  char digits[3];
  for (char c : handle.reserved) {
    snprintf(digits, sizeof digits, "%02x", (unsigned char)c);
    text += digits;
  }
  return text;
}

/* The other process: opens the memory twice, plays, and writes past the first page too. */
static int ipc_child(const char *hex) {
  cudaIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof handle.reserved; i++)
    handle.reserved[i] = (char)strtol(std::string(hex + 2 * i, 2).c_str(), NULL, 16);
  void *p, *again;
  bool ok = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
            cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
            p == again;
  if (!ok || !play(static_cast<Shared *>(p), 1)) return 1;
  ok = cudaMemset(static_cast<char *>(p) + 9000, 0x77, 1000) == cudaSuccess &&
       cudaMemset(static_cast<char *>(p) + 9001, 0x77, 1000) == cudaErrorInvalidValue &&
       cudaFree(p) == cudaErrorInvalidValue && cudaDeviceSynchronize() == cudaSuccess &&
       cudaIpcCloseMemHandle(p) == cudaSuccess && copse_emulated_leaks() == 1 &&
       cudaIpcCloseMemHandle(p) == cudaSuccess && copse_emulated_leaks() == 0 &&
       cudaIpcCloseMemHandle(p) == cudaErrorInvalidValue;
  return ok ? 0 : 2;
}

static void wait_for_flag(void *flag) {
  while (!static_cast<std::atomic<bool> *>(flag)->load()) std::this_thread::yield();
}

/* As if recorded and waited for at each launch, among other records and waits. */
START_TEST(a_graph_records_and_waits_for_events_outside) {
  Capturing c;
  cudaStream_t after = new_stream(cudaStreamNonBlocking);
  cudaEvent_t event = new_event();
  int *data = new_device<int>(1);
  std::atomic<bool> flag{false};
  OK(cudaMemset(data, 0, sizeof *data));
  OK(cudaDeviceSynchronize());
  EXPECT(cudaStreamWaitEvent(c.origin, event, cudaEventWaitExternal), cudaErrorIllegalState);
  c.begin();
  OK(cudaStreamWaitEvent(c.origin, event, cudaEventWaitExternal));
  launch(append_kernel, 1, 1, AddArgs{data, 2}, c.origin);
  OK(cudaEventRecordWithFlags(event, c.origin, cudaEventRecordExternal));
  cudaGraphExec_t exec = c.end();
  OK(cudaLaunchHostFunc(c.side, wait_for_flag, &flag));
  launch(append_kernel, 1, 1, AddArgs{data, 1}, c.side);
  OK(cudaEventRecord(event, c.side));
  for (int i = 0; i < 2; i++) {
    OK(cudaGraphLaunch(exec, c.origin));
    OK(cudaStreamWaitEvent(after, event));
    launch(append_kernel, 1, 1, AddArgs{data, 3}, after);
    OK(cudaEventRecordWithFlags(event, after, cudaEventRecordExternal)); /* as any outside */
  }
  flag = true;
  OK(cudaStreamSynchronize(after));
  ck_assert_int_eq(read_back(data, 1)[0], 12323);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaStreamDestroy(after));
  OK(cudaEventDestroy(event));
  OK(cudaFree(data));
  c.close();
  finish(0);
}
END_TEST

START_TEST(processes_share_device_memory) {
  char *before, *p, *pool;
  OK(cudaMalloc(&before, 9000)); /* so that it starts neither on a page nor on the first */
  OK(cudaMalloc(&p, 10000));
  OK(cudaMemset(p, 0, 10000));
  OK(cudaDeviceSynchronize());
  cudaIpcMemHandle_t handle, broken;
  OK(cudaIpcGetMemHandle(&handle, p));
  EXPECT(cudaIpcGetMemHandle(&broken, p + 8), cudaErrorInvalidValue);
  OK(cudaMallocAsync(&pool, 8, 0));
  EXPECT(cudaIpcGetMemHandle(&broken, pool), cudaErrorInvalidValue);
  OK(cudaFreeAsync(pool, 0));
  void *opened;
  EXPECT(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
         cudaErrorDeviceUninitialized);
  memset(&broken, 1, sizeof broken);
  EXPECT(cudaIpcOpenMemHandle(&opened, broken, cudaIpcMemLazyEnablePeerAccess),
         cudaErrorInvalidResourceHandle);

  std::string hex = hex_of(handle);
  char self[] = "test_emulation_graphs", option[] = "--ipc-child";
  char *arguments[] = {self, option, &hex[0], NULL};
  pid_t child;
  fflush(NULL);
  ck_assert_int_eq(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
  ck_assert(play(reinterpret_cast<Shared *>(p), 0));
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  Shared shared;
  OK(cudaMemcpy(&shared, p, sizeof shared, cudaMemcpyDeviceToHost));
  ck_assert_uint_eq(shared.data, ping_result(ipc_rounds));
  std::vector<char> tail = read_back(p + 8999, 1001);
  ck_assert_int_eq(tail[0], 0);
  ck_assert_int_eq(tail[1], 0x77);
  ck_assert_int_eq(tail[1000], 0x77);
  OK(cudaFree(p));
  OK(cudaFree(before));
  finish(4);
}
END_TEST

static Suite *suite() {
  Suite *s = suite_create("emulation/graphs");
  TCase *t = tcase_create("graphs");
  tcase_add_test(t, a_graph_replays_what_was_captured);
  tcase_add_test(t, branches_of_a_graph_run_at_the_same_time);
  tcase_add_test(t, a_graph_launched_in_a_capture_becomes_part_of_it);
  tcase_add_test(t, what_a_capture_forbids_ends_it);
  tcase_add_test(t, captures_are_closed_in_themselves);
  tcase_add_test(t, the_null_stream_must_not_meet_a_capture);
  tcase_add_test(t, a_graph_records_and_waits_for_events_outside);
  tcase_add_test(t, processes_share_device_memory);
  suite_add_tcase(s, t);
  return s;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--ipc-child") == 0) return ipc_child(argv[2]);
  return copse_test_run(suite());
}
