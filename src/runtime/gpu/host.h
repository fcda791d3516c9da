/*
 * Inside src/runtime/cuda only: the rest of the runtime, which is C, for .cu files.
 */
#ifndef COPSE_RUNTIME_GPU_HOST_H
#define COPSE_RUNTIME_GPU_HOST_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copse/comm.h"

extern "C" {
#include "base/err.h"
#include "base/memory.h"
#include "base/types.h"
#include "runtime/plan/layout.h"
#include "runtime/backend/backend.h"
#include "runtime/plan/plan.h"
}

/* COPSE_DEVICE with the call's name and what CUDA says; also clears CUDA's last error. */
static inline copse_status copse_cuda_check(cudaError_t error, const char *call,
                                            struct copse_err *err) {
  if (error == cudaSuccess) return COPSE_OK;
  (void)cudaGetLastError();
  if (error == cudaErrorMemoryAllocation)
    return copse_fail(err, COPSE_NOMEM, "%s: the GPU is out of memory", call);
  return copse_fail(err, COPSE_DEVICE, "%s: %s (%s)", call, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

/* In functions that clean up nothing. */
#define COPSE_CUDA(call)                                               \
  do {                                                                 \
    copse_status cuda_status = copse_cuda_check((call), #call, err);   \
    if (cuda_status != COPSE_OK) return cuda_status;                   \
  } while (0)
#define COPSE_CHECK(call)                          \
  do {                                             \
    copse_status check_status = (call);            \
    if (check_status != COPSE_OK) return check_status; \
  } while (0)

/* Makes a device current, and the one before it again at the end of the scope. */
class copse_on_device {
 public:
  /* No call where nothing changes: to set a device makes a context on it. */
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

/* Until the end of the scope calls that have nothing to do with anybody's capture are permitted while
 * some thread captures a graph; in the stricter modes they would spoil it (CUDA Runtime API, "Stream
 * Management", cudaThreadExchangeStreamCaptureMode). */
class copse_beside_captures {
 public:
  copse_beside_captures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~copse_beside_captures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  copse_beside_captures(const copse_beside_captures &) = delete;
  copse_beside_captures &operator=(const copse_beside_captures &) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/* upload.cu. Bytes of the host, or zeros where `from` is NULL, are in memory of the current device when
 * this returns; beside captures, and beside what else the GPU does. */
copse_status copse_cuda_upload(void *to, const void *from, size_t bytes, struct copse_err *err);
/* The other way. */
copse_status copse_cuda_download(void *to, const void *from, size_t bytes, struct copse_err *err);

#endif
