/* CUDA calls from host code: status codes for errors, the current device, stream captures, uploads.
 * For C++ sources only. */
#pragma once

#include <cuda_runtime.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "base/err.h"
#include "base/memory.h"
}

/* Returns COPSE_DEVICE (COPSE_NOMEM where no memory is left) with the call's name and what CUDA
 * says. Also clears CUDA's last error. */
static inline copse_status copse_cuda_check(cudaError_t error, const char *call,
                                            struct copse_err *err) {
  if (error == cudaSuccess) return COPSE_OK;
  (void)cudaGetLastError();
  if (error == cudaErrorMemoryAllocation)
    return copse_fail(
        err, COPSE_NOMEM, "%s: %s", call,
        strncmp(call, "cudaHost", 8) == 0
            ? "the host has no page-locked memory left (ulimit -l, a container's limit)"
            : "the GPU is out of memory");
  return copse_fail(err, COPSE_DEVICE, "%s: %s (%s)", call, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

/* COPSE_DO (base/err.h) for a call of CUDA. */
#define COPSE_CUDA(call)                                             \
  do {                                                               \
    copse_status cuda_status = copse_cuda_check((call), #call, err); \
    if (cuda_status != COPSE_OK) return cuda_status;                 \
  } while (0)

/* Makes a device current until the end of the scope. */
class copse_on_device {
 public:
  /* Makes no call where the device is current already: setting a device creates a context on it. */
  explicit copse_on_device(int device) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ == device) return;
    changed_ = true;
    (void)cudaSetDevice(device);
  }
  ~copse_on_device() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  copse_on_device(const copse_on_device &) = delete;
  copse_on_device &operator=(const copse_on_device &) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/* Allows calls that belong to no capture until the end of the scope, although some thread may be
 * capturing a graph. In CUDA's stricter capture modes such calls would invalidate that capture
 * (CUDA Runtime API, "Stream Management", cudaThreadExchangeStreamCaptureMode). */
class copse_beside_captures {
 public:
  copse_beside_captures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~copse_beside_captures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  copse_beside_captures(const copse_beside_captures &) = delete;
  copse_beside_captures &operator=(const copse_beside_captures &) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/* The capture that a stream is in. */
struct copse_capture {
  cudaStreamCaptureStatus status;
  unsigned long long id;
};

/* Returns a stream's capture. None where the stream can't be queried because others are captured:
 * then it isn't itself. */
static inline struct copse_capture copse_capture_of(cudaStream_t stream) {
  struct copse_capture it = {cudaStreamCaptureStatusNone, 0};
  if (cudaStreamGetCaptureInfo(stream, &it.status, &it.id) == cudaSuccess) return it;
  (void)cudaGetLastError();
  return {cudaStreamCaptureStatusNone, 0};
}

/* Copies bytes of the host, or zeros where `from` is NULL, to memory of the current device, and
 * returns when they are there. backend.cu. Works while streams are captured, and waits for nothing
 * else on the GPU. */
copse_status copse_cuda_upload(void *to, const void *from, size_t bytes, struct copse_err *err);

/* Allocates zeroed memory of a device (backend.cu); copse_cuda_release frees it and takes NULL.
 * Also while streams are captured. */
copse_status copse_cuda_allocate(int device, size_t bytes, void **out, struct copse_err *err);
void copse_cuda_release(int device, void *memory);

/* Pauses a thread that polls; poll counts from 0. Most waits take microseconds, so the first 200
 * polls only yield. */
static inline void copse_poll_pause(uint32_t poll) {
  if (poll < 200)
    sched_yield();
  else
    usleep(50);
}
