/* The steps of a Mixture-of-Experts layer on a GPU: kernels and their launches. steps.h says what
 * the steps do. The shape of a launch never depends on the routing, so all launches can be
 * captured. */
#if defined(__CUDACC__)
/* nvcc's host code loses the `inline` of some functions that it doesn't use */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "runtime/gpu/host.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/sync.cuh"

extern "C" {
#include "runtime/moe/steps.h"
}

#define COPSE_MOE_JOB const COPSE_GRID_CONSTANT struct copse_moe_job

#define LANES 256u /* threads of a block that moves rows */
#define WARP 32u
#define LOCATE_THREADS 1024u /* at most, of a block that locates */
#define SHARED_WORDS 10240u  /* less than 48 KiB; more needs cudaFuncSetAttribute */
#define BLOCKS_PER_SM 8u

/* ---- LOCATE: a block per bin ------------------------------------------------------------- */

/* Returns the sum of `value` over all threads before this one. part: [blockDim.x] in shared
 * memory. */
__device__ static inline uint32_t sum_before(uint32_t *part, uint32_t value) {
  const uint32_t thread = threadIdx.x;
  part[thread] = value;
  __syncthreads();
  for (uint32_t distance = 1; distance < blockDim.x; distance *= 2) {
    const uint32_t left = thread >= distance ? part[thread - distance] : 0;
    __syncthreads();
    part[thread] += left;
    __syncthreads();
  }
  return part[thread] - value;
}

__global__ void __launch_bounds__(LOCATE_THREADS) copse_moe_locate_kernel(COPSE_MOE_JOB job) {
  COPSE_SHARED_MEMORY(uint32_t, sums); /* [top_k][blockDim.x], then [blockDim.x] */
  const uint32_t bin = blockIdx.x, thread = threadIdx.x, n_threads = blockDim.x;
  uint32_t *part = sums + job.top_k * n_threads;
  copse_moe_count_run(&job, bin, sums, thread, n_threads);
  __syncthreads();
  const uint32_t mine = copse_moe_add_part(&job, sums, thread);
  const uint32_t before = sum_before(part, mine);
  copse_moe_scan_part(&job, sums, before, thread);
  if (thread == n_threads - 1) copse_moe_set_chosen(&job, bin, before + mine);
  __syncthreads();
  copse_moe_place_run(&job, bin, sums, thread, n_threads);
}

/* ---- PLAN: one block --------------------------------------------------------------------- */

__global__ void __launch_bounds__(LANES) copse_moe_plan_kernel(COPSE_MOE_JOB job) {
  copse_moe_plan_pairs(&job, threadIdx.x, blockDim.x);
  __syncthreads();
  copse_moe_plan_offsets(&job, threadIdx.x, blockDim.x);
  __syncthreads();
  copse_moe_plan_places(&job, threadIdx.x, blockDim.x);
}

/* ---- the others: blocks of (lanes of a row, rows) ---------------------------------------- */

__device__ static inline struct copse_moe_lane lane_of(void) {
  return copse_moe_lane{blockIdx.x * blockDim.y + threadIdx.y, gridDim.x * blockDim.y, threadIdx.x,
                        blockDim.x};
}

__global__ void __launch_bounds__(LANES) copse_moe_pack_kernel(COPSE_MOE_JOB job) {
  copse_moe_pack(&job, lane_of());
}
__global__ void __launch_bounds__(LANES) copse_moe_unpack_kernel(COPSE_MOE_JOB job) {
  copse_moe_unpack(&job, lane_of());
}
__global__ void __launch_bounds__(LANES) copse_moe_collect_kernel(COPSE_MOE_JOB job) {
  copse_moe_collect(&job, lane_of());
}
__global__ void __launch_bounds__(LANES) copse_moe_reduce_kernel(COPSE_MOE_JOB job) {
  copse_moe_reduce(&job, lane_of());
}

/* ---- launching --------------------------------------------------------------------------- */

typedef void (*moe_kernel)(const struct copse_moe_job);

static copse_status launch(moe_kernel kernel, dim3 grid, dim3 block, size_t shared,
                           const struct copse_moe_job *job, copse_stream stream,
                           struct copse_err *err) {
  struct copse_moe_job copy = *job;
  void *args[] = {&copy};
  COPSE_CUDA(cudaLaunchKernel(COPSE_KERNEL_ADDRESS(kernel), grid, block, args, shared,
                              (cudaStream_t)stream));
  return COPSE_OK;
}

/* Launches as many threads as there are tokens for, and shared memory for their sums. */
static copse_status launch_locate(const struct copse_moe_job *job, copse_stream stream,
                                  struct copse_err *err) {
  uint32_t threads = WARP;
  while (threads < LOCATE_THREADS && 2 * threads * (job->top_k + 1) <= SHARED_WORDS &&
         threads * 2 < job->n_tokens)
    threads *= 2;
  return launch(copse_moe_locate_kernel, dim3(copse_moe_bins(job)), dim3(threads),
                (size_t)threads * (job->top_k + 1) * sizeof(uint32_t), job, stream, err);
}

/* Launches as many threads as the longest loop has iterations. */
static copse_status launch_plan(const struct copse_moe_job *job, copse_stream stream,
                                struct copse_err *err) {
  uint32_t threads = WARP;
  while (threads < LANES && (threads < job->n_experts || threads < job->n_ranks * job->n_ranks))
    threads *= 2;
  return launch(copse_moe_plan_kernel, dim3(1), dim3(threads), 0, job, stream, err);
}

/* Launches a kernel over `rows`, an upper bound. Each lane moves a few units of a row, unless it is
 * too short. */
static copse_status launch_rows(moe_kernel kernel, uint64_t rows, int device,
                                const struct copse_moe_job *job, copse_stream stream,
                                struct copse_err *err) {
  int multiprocessors = 0;
  if (rows == 0) return COPSE_OK;
  COPSE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  uint32_t lanes = 1;
  while (lanes < LANES && (uint64_t)lanes * COPSE_MOE_IN_FLIGHT * job->unit < job->row_bytes)
    lanes *= 2;
  /* few rows spread over the multiprocessors */
  uint32_t rows_of_block = LANES / lanes;
  while (rows_of_block > 1 && rows_of_block * lanes > WARP &&
         rows / rows_of_block < (uint64_t)multiprocessors)
    rows_of_block /= 2;
  uint64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  const uint64_t most = (uint64_t)multiprocessors * BLOCKS_PER_SM;
  if (blocks > most) blocks = most;
  return launch(kernel, dim3((uint32_t)blocks), dim3(lanes, rows_of_block), 0, job, stream, err);
}

static copse_status run(int device, enum copse_moe_step step, const struct copse_moe_job *job,
                        copse_stream stream, struct copse_err *err) {
  copse_on_device here(device);
  const uint64_t most = copse_moe_rows_at_most(job);
  switch (step) {
    case COPSE_MOE_LOCATE: return launch_locate(job, stream, err);
    case COPSE_MOE_PLAN: return launch_plan(job, stream, err);
    case COPSE_MOE_PACK:
      return launch_rows(copse_moe_pack_kernel, job->n_tokens, device, job, stream, err);
    case COPSE_MOE_UNPACK:
      return launch_rows(copse_moe_unpack_kernel, most, device, job, stream, err);
    case COPSE_MOE_COLLECT:
      return launch_rows(copse_moe_collect_kernel, most, device, job, stream, err);
    case COPSE_MOE_REDUCE:
      return launch_rows(copse_moe_reduce_kernel, job->n_tokens, device, job, stream, err);
  }
  return copse_fail(err, COPSE_INTERNAL, "no such step of a layer: %d", (int)step);
}

/* ---- counts of pairs on their way to the host, which sizes messages between hosts by them -----
 * Kernels use their own copy, since a GPU reads page-locked memory slowly. */

static void free_counts(int device, struct copse_moe_counts *counts) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  if (counts->there) (void)cudaEventDestroy((cudaEvent_t)counts->there);
  if (counts->memory) (void)cudaFreeHost(counts->memory);
  *counts = copse_moe_counts();
}

static copse_status make_counts(size_t bytes, struct copse_moe_counts *counts,
                                struct copse_err *err) {
  cudaEvent_t there = NULL;
  COPSE_CUDA(cudaHostAlloc(&counts->memory, bytes, cudaHostAllocPortable));
  memset(counts->memory, 0, bytes);
  COPSE_CUDA(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
  counts->there = there;
  return COPSE_OK;
}

static copse_status take_counts(int device, uint32_t n_ranks, struct copse_moe_counts *counts,
                                struct copse_err *err) {
  const size_t n_pairs = (size_t)n_ranks * n_ranks;
  copse_on_device here(device);
  copse_beside_captures permitted;
  *counts = copse_moe_counts();
  copse_status status = make_counts(2 * n_pairs * sizeof *counts->pairs, counts, err);
  if (status != COPSE_OK) {
    free_counts(device, counts);
    return status;
  }
  counts->pairs = (const uint64_t *)counts->memory;
  counts->pairs_back = counts->pairs + n_pairs;
  return COPSE_OK;
}

static copse_status fetch_counts(int device, const struct copse_moe_job *job,
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

static copse_status wait_for_counts(int device, const struct copse_moe_counts *counts,
                                    struct copse_err *err) {
  copse_on_device here(device);
  copse_beside_captures permitted;
  COPSE_CUDA(cudaEventSynchronize((cudaEvent_t)counts->there));
  return COPSE_OK;
}

static bool is_captured(int device, copse_stream stream) {
  copse_on_device here(device);
  return copse_capture_of((cudaStream_t)stream).status != cudaStreamCaptureStatusNone;
}

static const struct copse_moe_counts_ops counts_ops = {take_counts, free_counts, fetch_counts,
                                                       wait_for_counts, is_captured};

extern "C" const struct copse_moe_ops copse_moe_cuda = {copse_cuda_allocate, copse_cuda_release,
                                                        run, &counts_ops};
