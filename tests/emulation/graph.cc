/*
 * Stream capture and graphs. A captured node keeps the work itself; a launch runs every node
 * once those before it are done, nodes that don't depend on each other at the same time.
 */
#include <algorithm>
#include <stdio.h>

#include "internal.h"

struct CUgraphExec_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
  std::vector<std::vector<size_t>> next; /* [node] */
  copse_emulation::CompletionPtr last;   /* launch, under `order` */
};

namespace copse_emulation {

namespace {

typedef std::shared_ptr<Capture> CapturePtr;
typedef std::shared_ptr<CUgraphExec_st> Exec;

struct Graphs {
  Registry<CUgraph_st> graphs;
  Registry<CUgraphExec_st> execs;
  std::vector<CapturePtr> captures; /* under `order`: those going on */
  unsigned long long next_id = 1;
};
Graphs &state() {
  static Graphs *g = new Graphs;
  return *g;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* [node] Whether it comes before `last` in every launch. */
std::vector<bool> all_before(const CUgraph_st &graph, size_t last) {
  std::vector<bool> before(graph.nodes.size(), false);
  before[last] = true;
  for (size_t node = last + 1; node-- > 0;)
    for (size_t it : graph.nodes[node]->after) before[it] = before[it] || before[node];
  return before;
}

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->is_null)
    return misuse(cudaErrorStreamCaptureUnsupported, "the NULL stream can't be captured");
  std::lock_guard<std::mutex> hold(order);
  if (stream->capture) return misuse(cudaErrorIllegalState, "the stream is being captured already");
  CapturePtr capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->graph = std::make_shared<CUgraph_st>();
  join_capture(*stream, capture, {});
  state().captures.push_back(capture);
  return cudaSuccess;
}

/* Is every node before one of `tail`, or one of them? */
bool is_joined(const CUgraph_st &graph, const std::vector<size_t> &tail) {
  std::vector<bool> reached(graph.nodes.size(), false);
  for (size_t node : tail) reached[node] = true;
  for (size_t node = graph.nodes.size(); node-- > 0;)
    if (reached[node])
      for (size_t before : graph.nodes[node]->after) reached[before] = true;
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

/* Takes the streams out of the capture. */
void close_capture(const CapturePtr &capture) {
  capture->is_over = true;
  for (CUstream_st *stream : capture->streams) {
    stream->capture = nullptr;
    stream->tail.clear();
  }
  std::vector<CapturePtr> &list = state().captures;
  list.erase(std::find(list.begin(), list.end(), capture));
}

cudaError_t end(cudaStream_t handle, cudaGraph_t *out) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!out) return cudaErrorInvalidValue;
  *out = nullptr;
  std::lock_guard<std::mutex> hold(order);
  CapturePtr capture = stream->capture;
  if (!capture) return misuse(cudaErrorIllegalState, "the stream is not being captured");
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return misuse(cudaErrorStreamCaptureWrongThread, "the capture began in another thread");
  if (capture->origin != stream.get()) {
    capture->is_invalid = true;
    return misuse(cudaErrorStreamCaptureUnmatched, "the capture began in another stream");
  }
  bool joined = is_joined(*capture->graph, stream->tail);
  close_capture(capture);
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined)
    return misuse(cudaErrorStreamCaptureUnjoined, "a stream of the capture was not joined");
  *out = state().graphs.add(capture->graph);
  return cudaSuccess;
}

cudaStreamCaptureStatus status_of(const CUstream_st &stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
}

/* ---- replay ------------------------------------------------------------------------------- */

/* What the nodes with events finish, or wait for, in one launch. */
struct Points {
  Exec exec;
  std::vector<CompletionPtr> all; /* [node]; NULL where there is none */
  explicit Points(const Exec &e) : exec(e), all(e->nodes.size()) {}
  ~Points() { /* also of a launch that a fault kept from running */
    for (size_t i = 0; i < all.size(); i++)
      if (exec->nodes[i]->records && !all[i]->is_finished()) all[i]->finish();
  }
};
typedef std::shared_ptr<Points> PointsPtr;

struct Replay {
  Exec exec;
  PointsPtr points;
  std::vector<std::atomic<size_t>> missing; /* [node] how many it still waits for */
  std::atomic<size_t> left;
  Completion done;
  Replay(const Exec &e, const PointsPtr &p)
      : exec(e), points(p), missing(e->nodes.size()), left(e->nodes.size()) {
    for (size_t i = 0; i < missing.size(); i++) missing[i] = exec->nodes[i]->after.size();
  }
};

/* Runs a node, and on this thread one of those that it frees; others have their own. */
void run_chain(const std::shared_ptr<Replay> &replay, size_t node) {
  for (;;) {
    const CompletionPtr &point = replay->points->all[node];
    if (point && replay->exec->nodes[node]->records)
      point->finish();
    else if (point)
      point->wait();
    else if (!current_fault())
      replay->exec->nodes[node]->run();
    std::vector<size_t> ready;
    for (size_t next : replay->exec->next[node])
      if (replay->missing[next].fetch_sub(1) == 1) ready.push_back(next);
    if (replay->left.fetch_sub(1) == 1) replay->done.finish();
    if (ready.empty()) return;
    for (size_t i = 1; i < ready.size(); i++)
      start_thread([replay, at = ready[i]] { run_chain(replay, at); });
    node = ready[0];
  }
}

void run_graph(const Exec &exec, const PointsPtr &points) {
  if (exec->nodes.empty()) return;
  auto replay = std::make_shared<Replay>(exec, points);
  for (size_t i = 0; i < exec->nodes.size(); i++)
    if (exec->nodes[i]->after.empty()) start_thread([replay, i] { run_chain(replay, i); });
  replay->done.wait();
}

/* As if the calls were made at the launch, in the order in which they were captured. */
PointsPtr points_of(const Exec &exec) {
  PointsPtr points = std::make_shared<Points>(exec);
  for (size_t i = 0; i < points->all.size(); i++) {
    const CUgraphNode_st &node = *exec->nodes[i];
    if (!node.event) continue;
    if (node.records) {
      node.event->capture = nullptr;
      node.event->recorded = std::make_shared<Completion>();
    }
    points->all[i] = node.event->recorded;
  }
  return points;
}

/* Of a graph within another one. */
PointsPtr points_now(const Exec &exec) {
  std::lock_guard<std::mutex> hold(order);
  return points_of(exec);
}

cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t handle) {
  std::shared_ptr<CUgraph_st> graph = state().graphs.find(handle);
  if (!graph || !out) return misuse(cudaErrorInvalidValue, "no such graph, or a destroyed one");
  Exec exec = std::make_shared<CUgraphExec_st>();
  exec->nodes = graph->nodes;
  exec->next.resize(exec->nodes.size());
  for (size_t node = 0; node < exec->nodes.size(); node++)
    for (size_t before : exec->nodes[node]->after) exec->next[before].push_back(node);
  *out = state().execs.add(exec);
  return cudaSuccess;
}

cudaError_t launch(cudaGraphExec_t handle, cudaStream_t where) {
  Exec exec = state().execs.find(handle);
  if (!exec) return misuse(cudaErrorInvalidValue, "no such executable graph, or a destroyed one");
  Stream stream = find_stream(where);
  if (!stream) return cudaErrorInvalidResourceHandle;
  std::lock_guard<std::mutex> hold(order);
  /* launches of one executable graph don't overlap */
  std::vector<CompletionPtr> after;
  if (exec->last) after.push_back(exec->last);
  CompletionPtr done;
  const PointsPtr points = stream->capture ? nullptr : points_of(exec);
  const auto run = [exec, points] { run_graph(exec, points ? points : points_now(exec)); };
  cudaError_t error = submit_locked(*stream, run, after, &done);
  if (done) exec->last = done;
  return error;
}

cudaError_t get_info(cudaStream_t handle, cudaStreamCaptureStatus *status, unsigned long long *id,
                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *n_nodes) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  static thread_local std::vector<cudaGraphNode_t> tail; /* valid until the thread's next call */
  std::lock_guard<std::mutex> hold(order);
  if (stream->is_null) {
    cudaError_t error = check_implicit(stream->device);
    if (error) return error;
  }
  *status = status_of(*stream);
  if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
  tail.clear();
  for (size_t node : stream->tail) tail.push_back(stream->capture->graph->nodes[node].get());
  if (id) *id = stream->capture->id;
  if (graph) *graph = stream->capture->graph.get();
  if (nodes) *nodes = tail.data();
  if (n_nodes) *n_nodes = tail.size();
  return cudaSuccess;
}

cudaError_t get_nodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *n_nodes) {
  std::shared_ptr<CUgraph_st> graph = state().graphs.find(handle);
  if (!graph || !n_nodes) return misuse(cudaErrorInvalidValue, "no such graph");
  size_t room = *n_nodes;
  *n_nodes = graph->nodes.size();
  if (!nodes) return cudaSuccess;
  for (size_t i = 0; i < room; i++)
    nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
  *n_nodes = std::min(room, graph->nodes.size());
  return cudaSuccess;
}

}  // namespace

cudaError_t capture_work(CUstream_st &stream, Work run) {
  if (stream.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  auto node = std::make_shared<CUgraphNode_st>();
  node->run = std::move(run);
  node->function = current_function();
  node->after = stream.tail;
  std::vector<std::shared_ptr<CUgraphNode_st>> &nodes = stream.capture->graph->nodes;
  nodes.push_back(node);
  stream.tail = {nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t capture_event(CUstream_st &stream, const Event &event, bool records) {
  cudaError_t error = capture_work(stream, [] {});
  if (error) return error;
  CUgraphNode_st &node = *stream.capture->graph->nodes.back();
  node.event = event;
  node.records = records;
  return cudaSuccess;
}

void join_capture(CUstream_st &stream, const CapturePtr &capture, const std::vector<size_t> &tail) {
  if (!stream.capture) {
    stream.capture = capture;
    stream.tail.clear();
    capture->streams.push_back(&stream);
  }
  for (size_t node : tail)
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end())
      stream.tail.push_back(node);
}

cudaError_t check_implicit(int device) {
  for (const CapturePtr &capture : state().captures)
    for (CUstream_st *stream : capture->streams)
      if (stream->device == device && !(stream->flags & cudaStreamNonBlocking)) {
        capture->is_invalid = true;
        return misuse(cudaErrorStreamCaptureImplicit,
                      "the NULL stream would wait for a blocking stream in capture");
      }
  return cudaSuccess;
}

cudaError_t check_unsafe() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  std::lock_guard<std::mutex> hold(order);
  bool forbidden = false;
  for (const CapturePtr &capture : state().captures) {
    bool own = capture->thread == std::this_thread::get_id() &&
               capture->mode != cudaStreamCaptureModeRelaxed;
    bool global =
        thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (own || global) forbidden = capture->is_invalid = true;
  }
  if (!forbidden) return cudaSuccess;
  return misuse(cudaErrorStreamCaptureUnsupported, "not permitted while a stream is captured");
}

/* Whatever the thread's mode is: a device stands for all of its streams. */
cudaError_t check_device(int device) {
  std::lock_guard<std::mutex> hold(order);
  bool forbidden = false;
  for (const CapturePtr &capture : state().captures)
    for (CUstream_st *stream : capture->streams)
      if (stream->device == device) forbidden = capture->is_invalid = true;
  if (!forbidden) return cudaSuccess;
  return misuse(cudaErrorStreamCaptureUnsupported, "a stream of the device is being captured");
}

int report_graphs() {
  int graphs = (int)state().graphs.all().size(), execs = (int)state().execs.all().size();
  if (graphs) fprintf(stderr, "emulated CUDA: leaked: %d graphs\n", graphs);
  if (execs) fprintf(stderr, "emulated CUDA: leaked: %d executable graphs\n", execs);
  return graphs + execs;
}

}  // namespace copse_emulation

using namespace copse_emulation;

copse_emulated_graph_shape copse_emulated_graph(cudaGraph_t handle) {
  copse_emulated_graph_shape shape = {0, 0, 0};
  const CUgraph_st &graph = *handle;
  const size_t n = graph.nodes.size();
  std::vector<std::vector<bool>> before;
  for (size_t i = 0; i < n; i++) before.push_back(all_before(graph, i));
  const auto is = [&](size_t i, const char *what) {
    return graph.nodes[i]->function.find(what) != std::string::npos;
  };
  for (size_t i = 0; i < n; i++) {
    bool beside = false;
    for (size_t k = 0; k < n; k++)
      beside = beside || (is(k, "Launch") && !before[i][k] && !before[k][i]);
    shape.kernels += is(i, "Launch");
    shape.copies += is(i, "Memcpy");
    shape.lone_copies += is(i, "Memcpy") && !beside;
  }
  return shape;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", [=] { return begin(stream, mode); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return api("cudaStreamEndCapture", [=] { return end(stream, graph); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  return api("cudaStreamIsCapturing",
             [=] { return get_info(stream, status, nullptr, nullptr, nullptr, nullptr); });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n_nodes) {
  return api("cudaStreamGetCaptureInfo", [=] {
    if (edges) *edges = nullptr;
    return get_info(stream, status, id, graph, nodes, n_nodes);
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  return api("cudaThreadExchangeStreamCaptureMode", [=] {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n_nodes) {
  return api("cudaGraphGetNodes", [=] { return get_nodes(graph, nodes, n_nodes); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", [=] { return instantiate(exec, graph); });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphUpload", [=] {
    if (!state().execs.find(exec)) return misuse(cudaErrorInvalidValue, "no such graph");
    return find_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", [=] { return launch(exec, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", [=] {
    return state().graphs.remove(graph) ? cudaSuccess
                                        : misuse(cudaErrorInvalidValue, "no such graph");
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", [=] {
    return state().execs.remove(exec) ? cudaSuccess
                                      : misuse(cudaErrorInvalidValue, "no such executable graph");
  });
}
}
