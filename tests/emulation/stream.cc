/*
 * Streams. While something is in a stream, a thread of the pool runs it in order. The NULL
 * stream of a device and its blocking streams wait for each other, as CUDA's legacy stream; every
 * thread's own is one of the latter.
 */
#include <stdio.h>

#include "device.h"
#include "internal.h"

namespace copse_emulation {

std::mutex &order = *new std::mutex;

namespace {

struct Streams {
  Registry<CUstream_st> registry;
  std::atomic<unsigned long long> next_id{1};
  /* under `order` */
  std::vector<Stream> null_streams;                     /* [device] */
  std::vector<Stream> of_threads;                       /* every thread's cudaStreamPerThread */
  std::vector<std::pair<int, CompletionPtr>> destroyed; /* device; that may be running still */
};
Streams &streams() {
  static Streams *s = new Streams;
  return *s;
}

Stream new_stream(int device, unsigned flags, int priority) {
  Stream stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = streams().next_id++;
  stream->is_null = false;
  return stream;
}

CUstream_st &null_stream_locked(int device) {
  std::vector<Stream> &list = streams().null_streams;
  if (list.size() <= (size_t)device) list.resize((size_t)device + 1);
  Stream &stream = list[(size_t)device];
  if (!stream) {
    stream = new_stream(device, cudaStreamDefault, 0);
    stream->is_null = true;
  }
  return *stream;
}

thread_local std::vector<Stream> own_streams; /* [device] */

/* A blocking stream, as CUDA's. */
Stream stream_of_thread(int device) {
  std::lock_guard<std::mutex> hold(order);
  if (own_streams.size() <= (size_t)device) own_streams.resize((size_t)device + 1);
  Stream &stream = own_streams[(size_t)device];
  if (!stream) {
    stream = new_stream(device, cudaStreamDefault, 0);
    streams().of_threads.push_back(stream);
  }
  return stream;
}

void drain(CUstream_st &stream) {
  for (;;) {
    Operation next;
    {
      std::lock_guard<std::mutex> hold(stream.lock);
      if (stream.queue.empty()) {
        stream.is_draining = false;
        return;
      }
      next = std::move(stream.queue.front());
      stream.queue.pop_front();
    }
    for (CompletionPtr &before : next.after) before->wait();
    if (!current_fault()) next.run();
    next.done->finish();
  }
}

void append(CUstream_st &stream, Operation operation) {
  bool starts;
  {
    std::lock_guard<std::mutex> hold(stream.lock);
    stream.queue.push_back(std::move(operation));
    starts = !stream.is_draining;
    stream.is_draining = true;
  }
  if (!starts) return;
  Stream self = stream.shared_from_this();
  start_thread([self] { drain(*self); });
}

/* What runs on the device now: its streams' ends, or those of the blocking ones. */
std::vector<CompletionPtr> ends_of(int device, bool only_blocking) {
  std::vector<CompletionPtr> ends;
  for (const Stream &stream : streams().registry.all()) {
    if (stream->device != device || !stream->last) continue;
    if (only_blocking && (stream->flags & cudaStreamNonBlocking)) continue;
    ends.push_back(stream->last);
  }
  for (const Stream &stream : streams().of_threads)
    if (stream->device == device && stream->last) ends.push_back(stream->last);
  std::vector<std::pair<int, CompletionPtr>> &gone = streams().destroyed;
  for (size_t i = 0; i < gone.size();) {
    if (gone[i].second->is_finished()) {
      gone.erase(gone.begin() + (ptrdiff_t)i);
      continue;
    }
    if (gone[i].first == device) ends.push_back(gone[i].second);
    i++;
  }
  return ends;
}

cudaError_t create(cudaStream_t *out, unsigned flags, int priority) {
  if (!out || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  if (!is_device(current_device())) return cudaErrorNoDevice;
  if (priority > 0) priority = 0;
  if (priority < greatest_priority) priority = greatest_priority;
  *out = streams().registry.add(new_stream(current_device(), flags, priority));
  return cudaSuccess;
}

cudaError_t refuse_captured(const CUstream_st &stream) {
  if (!stream.capture) return cudaSuccess;
  stream.capture->is_invalid = true;
  return misuse(cudaErrorStreamCaptureUnsupported, "the stream is being captured");
}

cudaError_t destroy(cudaStream_t handle) {
  Stream stream = streams().registry.find(handle);
  if (!stream) return misuse(cudaErrorInvalidResourceHandle, "no such stream");
  std::lock_guard<std::mutex> hold(order);
  cudaError_t error = refuse_captured(*stream);
  if (error) return error;
  streams().registry.remove(handle);
  if (stream->last) streams().destroyed.emplace_back(stream->device, stream->last);
  return cudaSuccess;
}

/* What to wait for until a stream is empty; the NULL stream stands for the blocking ones too. */
cudaError_t ends_now(cudaStream_t handle, std::vector<CompletionPtr> *ends) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  cudaError_t error = check_unsafe();
  if (error) return error;
  std::lock_guard<std::mutex> hold(order);
  error = refuse_captured(*stream);
  if (error) return error;
  if (stream->is_null) *ends = ends_of(stream->device, true);
  if (stream->last) ends->push_back(stream->last);
  return cudaSuccess;
}

cudaError_t launch_host(cudaStream_t handle, cudaHostFn_t function, void *data) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!function) return cudaErrorInvalidValue;
  return submit(stream, [=] {
    OnDevice here;
    function(data);
  });
}

}  // namespace

Stream null_stream(int device) {
  std::lock_guard<std::mutex> hold(order);
  return null_stream_locked(device).shared_from_this();
}

Stream find_stream(cudaStream_t handle) {
  if (!is_device(current_device())) return nullptr;
  if (!handle || handle == cudaStreamLegacy) return null_stream(current_device());
  if (handle == cudaStreamPerThread) return stream_of_thread(current_device());
  Stream stream = streams().registry.find(handle);
  if (!stream) misuse(cudaErrorInvalidResourceHandle, "no such stream, or a destroyed one");
  return stream;
}

cudaError_t submit_locked(CUstream_st &stream, Work run, std::vector<CompletionPtr> after,
                          CompletionPtr *done) {
  if (done) done->reset();
  if (stream.capture) return capture_work(stream, std::move(run));
  if (stream.is_null) {
    cudaError_t error = check_implicit(stream.device);
    if (error) return error;
    for (CompletionPtr &end : ends_of(stream.device, true)) after.push_back(std::move(end));
  } else if (!(stream.flags & cudaStreamNonBlocking)) {
    CompletionPtr end = null_stream_locked(stream.device).last;
    if (end) after.push_back(std::move(end));
  }
  stream.last = std::make_shared<Completion>();
  if (done) *done = stream.last;
  append(stream, {std::move(run), std::move(after), stream.last});
  return cudaSuccess;
}

cudaError_t submit(const Stream &stream, Work run, std::vector<CompletionPtr> after,
                   CompletionPtr *done) {
  std::lock_guard<std::mutex> hold(order);
  return submit_locked(*stream, std::move(run), std::move(after), done);
}

void wait_for_device(int device) {
  std::vector<CompletionPtr> ends;
  {
    std::lock_guard<std::mutex> hold(order);
    ends = ends_of(device, false);
    CompletionPtr end = null_stream_locked(device).last;
    if (end) ends.push_back(end);
  }
  for (CompletionPtr &end : ends) end->wait();
}

int report_streams() {
  std::vector<Stream> list = streams().registry.all();
  for (const Stream &stream : list)
    fprintf(stderr, "emulated CUDA: leaked: stream %llu of device %d\n", stream->id,
            stream->device);
  return (int)list.size();
}

void reset_streams() {
  std::lock_guard<std::mutex> hold(order);
  streams().null_streams.clear();
}

}  // namespace copse_emulation

using namespace copse_emulation;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return api("cudaStreamCreate", [=] { return create(stream, cudaStreamDefault, 0); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return api("cudaStreamCreateWithFlags", [=] { return create(stream, flags, 0); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  return api("cudaStreamCreateWithPriority", [=] { return create(stream, flags, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", [=] { return destroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", [=] {
    std::vector<CompletionPtr> ends;
    cudaError_t error = ends_now(stream, &ends);
    if (error) return error;
    for (CompletionPtr &end : ends) end->wait();
    return current_fault();
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return api("cudaStreamQuery", [=] {
    std::vector<CompletionPtr> ends;
    cudaError_t error = ends_now(stream, &ends);
    if (error) return error;
    for (CompletionPtr &end : ends)
      if (!end->is_finished()) return cudaErrorNotReady;
    return current_fault();
  });
}
cudaError_t cudaDeviceSynchronize(void) {
  return api("cudaDeviceSynchronize", [=] {
    if (!is_device(current_device())) return cudaErrorNoDevice;
    cudaError_t error = check_unsafe();
    if (!error) error = check_device(current_device());
    if (error) return error;
    wait_for_device(current_device());
    return current_fault();
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  return api("cudaStreamGetFlags", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  return api("cudaStreamGetPriority", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
  return api("cudaStreamGetId", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    std::lock_guard<std::mutex> hold(order);
    cudaError_t error = refuse_captured(*stream); /* so do GPUs, as of driver 580 */
    if (error) return error;
    *id = stream->id;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
  return api("cudaStreamGetDevice", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return api("cudaLaunchHostFunc", [=] { return launch_host(stream, function, data); });
}
}
