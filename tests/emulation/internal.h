/*
 * Inside the emulation. One lock, `order`, guards what the host's calls change (streams' tails,
 * events, captures); memory and residency have their own. Work is done by threads of the pool:
 * one drains a stream while there is something in it, one is each block of a running kernel.
 */
#ifndef COPSE_EMULATION_INTERNAL_H
#define COPSE_EMULATION_INTERNAL_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <string>
#include <vector>

#include "emulation.h"

namespace copse_emulation {

typedef std::function<void()> Work;
using Clock = std::chrono::steady_clock;

/* ---- pool.cc ------------------------------------------------------------------------------ */
/* Runs each piece of work on a thread of its own, all at once. False, and nothing was started,
 * where the system has no more threads. */
bool start_threads(std::vector<Work> work);
void start_thread(Work work); /* ends the program where there is none */

/* Something that happens once, and that others wait for. */
class Completion {
 public:
  void finish();
  void wait();
  bool is_finished();
  Clock::time_point when(); /* once finished */

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  bool finished_ = false;
  Clock::time_point when_;
};
typedef std::shared_ptr<Completion> CompletionPtr;

/* Objects that the program holds by address. Removed ones are kept a while, so that the address
 * of a destroyed object isn't taken for that of a new one. */
template <class T>
class Registry {
 public:
  T *add(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> hold(lock_);
    return (alive_[object.get()] = object).get();
  }
  std::shared_ptr<T> find(T *address) {
    std::lock_guard<std::mutex> hold(lock_);
    auto at = alive_.find(address);
    return at == alive_.end() ? nullptr : at->second;
  }
  std::shared_ptr<T> remove(T *address) {
    std::lock_guard<std::mutex> hold(lock_);
    auto at = alive_.find(address);
    if (at == alive_.end()) return nullptr;
    std::shared_ptr<T> object = at->second;
    alive_.erase(at);
    removed_.push_back(object);
    if (removed_.size() > kept) removed_.pop_front();
    return object;
  }
  std::vector<std::shared_ptr<T>> all() {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<std::shared_ptr<T>> list;
    for (auto &entry : alive_) list.push_back(entry.second);
    return list;
  }

 private:
  static constexpr size_t kept = 4096;
  std::mutex lock_;
  std::unordered_map<T *, std::shared_ptr<T>> alive_;
  std::deque<std::shared_ptr<T>> removed_;
};

/* ---- runtime.cc --------------------------------------------------------------------------- */
/* One line about the program's mistake. Returns `error`. */
cudaError_t misuse(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Work failed when its turn came: from now on every call returns the error, as CUDA's do. */
void fault(cudaError_t error);
cudaError_t current_fault();

/* What a call does, for as long as it lasts: of each body it instantiates one function, where std::function takes ten,
 * a quarter of the emulation's compile time. */
template <class Result>
class Body {
 public:
  template <class F>
  Body(const F &body) : body_(&body), run_([](const void *it) { return (Result)(*(const F *)it)(); }) {}
  Result operator()() const { return run_(body_); }

 private:
  const void *body_;
  Result (*run_)(const void *);
};

/* Around every call of the runtime: refuses calls from kernels, callbacks and forked children,
 * injects failures, and keeps the thread's last error. */
cudaError_t api(const char *function, const Body<cudaError_t> &body);
/* The function of the `api` that the thread is in, for messages. */
const char *current_function();
/* While it lives, this thread belongs to a kernel or callback. */
struct OnDevice {
  OnDevice();
  ~OnDevice();
};

const copse_emulated_config &config();
int current_device(); /* of the calling thread */
/* The devices of a group have access to each other's memory. */
int group_of(int device);
bool is_device(int device);

/* ---- memory.cc ---------------------------------------------------------------------------- */
enum class MemoryKind { Device, Pool, Host, Registered, Mapped };
struct Memory {
  char *base;
  size_t bytes;
  int device;
  MemoryKind kind;
  uint64_t id; /* never used twice */
  bool is_host() const { return kind == MemoryKind::Host || kind == MemoryKind::Registered; }
};

/* The allocation that holds the address; false where there is none. */
bool find_memory(const void *address, Memory *found);
/* Where an allocation lies in its device's memory file. */
struct Place {
  int file;
  size_t offset;
};
Place place_of(const Memory &memory);
/* Memory that isn't from this process's devices: the caller unmaps it. */
void add_mapped(void *base, size_t bytes, int device);
/* Takes an allocation of that base and kind out of the table. */
bool remove_memory(const void *base, MemoryKind kind, Memory *removed);
int report_memory();
void reset_memory(); /* new devices: nothing is allocated */
/* Takes memory of a device that is mapped elsewhere; false where so much isn't left. Gives it back. */
bool charge(int device, size_t bytes);
void discharge(int device, size_t bytes);
int report_handles(); /* driver.cc: what cuMemCreate and cuMulticastCreate made */

/* ---- stream.cc ---------------------------------------------------------------------------- */
struct Capture;
struct Operation {
  Work run;
  std::vector<CompletionPtr> after;
  CompletionPtr done;
};

}  // namespace copse_emulation

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  int device;
  unsigned flags;
  int priority;
  unsigned long long id;
  bool is_null; /* its device's NULL stream */
  /* under `order` */
  copse_emulation::CompletionPtr last; /* of what was submitted last; NULL at first */
  std::shared_ptr<copse_emulation::Capture> capture;
  std::vector<size_t> tail; /* what the next captured node depends on */
  /* under `lock` */
  std::mutex lock;
  std::deque<copse_emulation::Operation> queue;
  bool is_draining = false;
};

struct CUevent_st {
  int device;
  unsigned flags;
  /* under `order` */
  copse_emulation::CompletionPtr recorded;
  std::shared_ptr<copse_emulation::Capture> capture; /* recorded in it */
  std::vector<size_t> tail;
};

struct CUgraphNode_st {
  copse_emulation::Work run;
  std::string function;              /* that made it */
  std::vector<size_t> after;         /* earlier nodes of the graph */
  std::shared_ptr<CUevent_st> event; /* that the node records or waits for, or NULL */
  bool records = false;
};
struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

namespace copse_emulation {

typedef std::shared_ptr<CUstream_st> Stream;
typedef std::shared_ptr<CUevent_st> Event;

extern std::mutex &order;

/* The stream of a handle; NULL, and the misuse was reported, where it is none. */
Stream find_stream(cudaStream_t handle);
Stream null_stream(int device);

/* Appends work to a stream, or to the graph that it is captured into. It runs after what the
 * stream holds, after `after`, and in the order that the NULL stream demands. `done` may be
 * NULL; it gets what to wait for, or NULL during capture. */
cudaError_t submit(const Stream &stream, Work run, std::vector<CompletionPtr> after = {},
                   CompletionPtr *done = nullptr);
/* The same for a caller that holds `order`. */
cudaError_t submit_locked(CUstream_st &stream, Work run, std::vector<CompletionPtr> after = {},
                          CompletionPtr *done = nullptr);
void wait_for_device(int device);
int report_streams();
void reset_streams();

/* ---- event.cc, graph.cc ------------------------------------------------------------------- */
int report_events();

struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st *origin;
  std::shared_ptr<CUgraph_st> graph;
  bool is_invalid = false, is_over = false;
  std::vector<CUstream_st *> streams; /* that take part */
};
/* All for callers that hold `order`. */
cudaError_t capture_work(CUstream_st &stream, Work run);
/* A node that records the event, or waits for it, as of when the graph is launched. */
cudaError_t capture_event(CUstream_st &stream, const Event &event, bool records);
void join_capture(CUstream_st &stream, const std::shared_ptr<Capture> &capture,
                  const std::vector<size_t> &tail);
/* Would the NULL stream's order reach into a capture? Then that capture is lost. */
cudaError_t check_implicit(int device);

/* For calls that may wait or change what captured work relies on: refused, and the captures
 * lost, while the calling thread must not make them. */
cudaError_t check_unsafe();
/* The same where a device is waited for. */
cudaError_t check_device(int device);
int report_graphs();

/* ---- device.cc, kernel.cc ---------------------------------------------------------------------
 */
void reset_peers();
void reset_residency();

}  // namespace copse_emulation

#endif
