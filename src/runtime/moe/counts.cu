/*
 * A layer's counts of pairs on their way to the host, which sizes the messages between hosts by
 * them. The kernels keep to their own copy: page-locked memory is far away from a GPU.
 */
#include "runtime/moe/counts.h"

#include "runtime/gpu/host.h"

static void give_back(int device, struct copse_moe_counts *counts) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  if (counts->there) (void)cudaEventDestroy((cudaEvent_t)counts->there);
  if (counts->memory) (void)cudaFreeHost(counts->memory);
  *counts = copse_moe_counts();
}

static copse_status make(size_t bytes, struct copse_moe_counts *counts, struct copse_err *err) {
  cudaEvent_t there = NULL;
  COPSE_CUDA(cudaHostAlloc(&counts->memory, bytes, cudaHostAllocPortable));
  memset(counts->memory, 0, bytes);
  COPSE_CUDA(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
  counts->there = there;
  return COPSE_OK;
}

static copse_status take(int device, uint32_t n_ranks, struct copse_moe_counts *counts,
                         struct copse_err *err) {
  const size_t n_pairs = (size_t)n_ranks * n_ranks;
  copse_on_device here(device);
  copse_beside_captures permitted;
  *counts = copse_moe_counts();
  copse_status status = make(2 * n_pairs * sizeof *counts->pairs, counts, err);
  if (status != COPSE_OK) {
    give_back(device, counts);
    return status;
  }
  counts->pairs = (const uint64_t *)counts->memory;
  counts->pairs_back = counts->pairs + n_pairs;
  return COPSE_OK;
}

static copse_status fetch(int device, const struct copse_moe_job *job,
                          const struct copse_moe_counts *counts, copse_stream stream,
                          struct copse_err *err) {
  const size_t n_pairs = (size_t)job->n_ranks * job->n_ranks, bytes = n_pairs * sizeof *job->pairs;
  uint64_t *to = (uint64_t *)counts->memory;
  copse_on_device here(device);
  COPSE_CUDA(cudaMemcpyAsync(to, job->pairs, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream));
  COPSE_CUDA(cudaMemcpyAsync(to + n_pairs, job->pairs_back, bytes, cudaMemcpyDeviceToHost,
                             (cudaStream_t)stream));
  COPSE_CUDA(cudaEventRecord((cudaEvent_t)counts->there, (cudaStream_t)stream));
  return COPSE_OK;
}

static copse_status wait(int device, const struct copse_moe_counts *counts,
                         struct copse_err *err) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  COPSE_CUDA(cudaEventSynchronize((cudaEvent_t)counts->there));
  return COPSE_OK;
}

/* A stream that can't be asked, since others are captured, isn't itself. */
static bool is_captured(int device, copse_stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  copse_on_device here(device);
  if (cudaStreamIsCapturing((cudaStream_t)stream, &status) == cudaSuccess)
    return status != cudaStreamCaptureStatusNone;
  (void)cudaGetLastError();
  return false;
}

const struct copse_moe_counts_ops copse_moe_counts_cuda = {take, give_back, fetch, wait,
                                                           is_captured};
