/* How bench_gpu times: medians of samples between two events of a stream. */
#ifndef COPSE_TESTS_GPU_BENCH_TIMING_H
#define COPSE_TESTS_GPU_BENCH_TIMING_H

#include "gpu/gpu_support.h"

#define TIMING_MOST_SAMPLES 1000
static int timing_samples = GPU_IS_REAL ? 15 : 1;

/* What is timed. */
struct timed {
  void (*enqueue)(void *context, cudaStream_t stream);
  void *context;
  cudaStream_t stream;
  int repetitions; /* of a sample */
};

static inline int timing_by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Median milliseconds of one repetition. */
static inline double milliseconds(const struct timed *t) {
  static float samples[TIMING_MOST_SAMPLES];
  cudaEvent_t start, end;
  CUDA_OK(cudaEventCreate(&start));
  CUDA_OK(cudaEventCreate(&end));
  for (int i = 0; i < 3; i++) t->enqueue(t->context, t->stream); /* warm up */
  for (int s = 0; s < timing_samples; s++) {
    CUDA_OK(cudaEventRecord(start, t->stream));
    for (int i = 0; i < t->repetitions; i++) t->enqueue(t->context, t->stream);
    CUDA_OK(cudaEventRecord(end, t->stream));
    CUDA_OK(cudaEventSynchronize(end));
    CUDA_OK(cudaEventElapsedTime(&samples[s], start, end));
  }
  qsort(samples, (size_t)timing_samples, sizeof *samples, timing_by_value);
  CUDA_OK(cudaEventDestroy(start));
  CUDA_OK(cudaEventDestroy(end));
  return (double)samples[timing_samples / 2] / t->repetitions;
}

#endif
