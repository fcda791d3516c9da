/* Events: the completion of what a stream held, or a place in a capture. */
#include <stdio.h>

#include "internal.h"

namespace copse_emulation {

namespace {

Registry<CUevent_st> &events() {
  static Registry<CUevent_st> *r = new Registry<CUevent_st>;
  return *r;
}

Event find_event(cudaEvent_t handle) {
  Event event = events().find(handle);
  if (!event) misuse(cudaErrorInvalidResourceHandle, "no such event, or a destroyed one");
  return event;
}

cudaError_t create(cudaEvent_t *out, unsigned flags) {
  if (!out) return cudaErrorInvalidValue;
  if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
    return misuse(cudaErrorNotSupported, "flags 0x%x are not emulated", flags);
  if (!is_device(current_device())) return cudaErrorNoDevice;
  Event event = std::make_shared<CUevent_st>();
  event->device = current_device();
  event->flags = flags;
  *out = events().add(event);
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t handle, cudaStream_t where, unsigned flags) {
  if (flags & ~(unsigned)cudaEventRecordExternal) return cudaErrorInvalidValue;
  Event event = find_event(handle);
  Stream stream = find_stream(where);
  if (!event || !stream) return cudaErrorInvalidResourceHandle;
  if (event->device != stream->device)
    return misuse(cudaErrorInvalidResourceHandle, "the event is of device %d, the stream of %d",
                  event->device, stream->device);
  std::lock_guard<std::mutex> hold(order);
  if (stream->capture) {
    if (stream->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    if (flags & cudaEventRecordExternal) return capture_event(*stream, event, true);
    event->recorded = nullptr;
    event->capture = stream->capture;
    event->tail = stream->tail;
    return cudaSuccess;
  }
  event->capture = nullptr;
  return submit_locked(
      *stream, [] {}, {}, &event->recorded);
}

/* A capturing stream waits for, or a stream joins, what `event` stands for. Under `order`. */
cudaError_t wait_captured(CUstream_st &stream, CUevent_st &event) {
  if (!event.capture) {
    if (!event.recorded) return cudaSuccess;
    stream.capture->is_invalid = true;
    return misuse(cudaErrorStreamCaptureIsolation, "the event was recorded outside the capture");
  }
  if (event.capture->is_over)
    return misuse(cudaErrorCapturedEvent, "the event's capture has ended");
  if (event.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.is_null) {
    event.capture->is_invalid = true;
    return misuse(cudaErrorStreamCaptureImplicit, "the NULL stream can't be captured");
  }
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->is_invalid = event.capture->is_invalid = true;
    return misuse(cudaErrorStreamCaptureMerge, "the event is of another capture");
  }
  join_capture(stream, event.capture, event.tail);
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t where, cudaEvent_t handle, unsigned flags) {
  if (flags & ~(unsigned)cudaEventWaitExternal) return cudaErrorInvalidValue;
  Stream stream = find_stream(where);
  Event event = find_event(handle);
  if (!event || !stream) return cudaErrorInvalidResourceHandle;
  std::lock_guard<std::mutex> hold(order);
  if (flags & cudaEventWaitExternal) {
    if (!stream->capture) return cudaErrorIllegalState; /* as CUDA says */
    return capture_event(*stream, event, false);
  }
  if (stream->capture || event->capture) return wait_captured(*stream, *event);
  if (!event->recorded) return cudaSuccess;
  return submit_locked(*stream, [] {}, {event->recorded});
}

/* What the event stands for outside of captures; NULL where it was never recorded. */
cudaError_t completion_of(cudaEvent_t handle, CompletionPtr *done) {
  Event event = find_event(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  std::lock_guard<std::mutex> hold(order);
  if (event->capture) return misuse(cudaErrorCapturedEvent, "the event was recorded in a capture");
  *done = event->recorded;
  return cudaSuccess;
}

/* When a timing event happened. */
cudaError_t time_of(cudaEvent_t handle, Clock::time_point *when) {
  CompletionPtr done;
  cudaError_t error = completion_of(handle, &done);
  if (error) return error;
  if (!done || (find_event(handle)->flags & cudaEventDisableTiming))
    return misuse(cudaErrorInvalidResourceHandle, "an event without timing, or never recorded");
  if (!done->is_finished()) return cudaErrorNotReady;
  *when = done->when();
  return cudaSuccess;
}

}  // namespace

int report_events() {
  int n = (int)events().all().size();
  if (n) fprintf(stderr, "emulated CUDA: leaked: %d events\n", n);
  return n;
}

}  // namespace copse_emulation

using namespace copse_emulation;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return api("cudaEventCreate", [=] { return create(event, cudaEventDefault); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return api("cudaEventCreateWithFlags", [=] { return create(event, flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", [=] {
    return events().remove(event) ? cudaSuccess
                                  : misuse(cudaErrorInvalidResourceHandle, "no such event");
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api("cudaEventRecord",
             [=] { return record(event, stream, cudaEventRecordDefault); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return api("cudaEventRecordWithFlags", [=] { return record(event, stream, flags); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", [=] { return wait(stream, event, flags); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [=] {
    CompletionPtr done;
    cudaError_t error = check_unsafe();
    if (!error) error = completion_of(event, &done);
    if (error) return error;
    return !done || done->is_finished() ? current_fault() : cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [=] {
    CompletionPtr done;
    cudaError_t error = check_unsafe();
    if (!error) error = completion_of(event, &done);
    if (error) return error;
    if (done) done->wait();
    return current_fault();
  });
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", [=] {
    Clock::time_point first, last;
    cudaError_t error = time_of(start, &first);
    if (!error) error = time_of(end, &last);
    if (error) return error;
    *ms = std::chrono::duration<float, std::milli>(last - first).count();
    return cudaSuccess;
  });
}
}
