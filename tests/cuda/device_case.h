/*
 * Running plans on GPUs with test data: on real ones (make check-gpu) and on those that
 * tests/emulation makes of the CPU's threads (make check). The same source for both.
 */
#ifndef COPSE_TESTS_DEVICE_CASE_H
#define COPSE_TESTS_DEVICE_CASE_H

#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "runtime/interpreter/expected.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
}

/* Ends the test with the call, CUDA's word, and the place. */
#define CUDA_OK(call)                                                                          \
  do {                                                                                         \
    cudaError_t cuda_ok_error = (call);                                                        \
    if (cuda_ok_error != cudaSuccess)                                                          \
      device_fail(__FILE__, __LINE__, "%s: %s", #call, cudaGetErrorString(cuda_ok_error));     \
  } while (0)
#define COPSE_SUCCEEDS(call, err)                                                              \
  do {                                                                                         \
    copse_status succeeds = (call);                                                            \
    if (succeeds != COPSE_OK)                                                                  \
      device_fail(__FILE__, __LINE__, "%s: %s: %s", #call, copse_status_string(succeeds),      \
                  (err)->text);                                                                \
  } while (0)
#define DEVICE_ASSERT(condition, ...)                                       \
  do {                                                                      \
    if (!(condition)) device_fail(__FILE__, __LINE__, __VA_ARGS__);         \
  } while (0)
[[noreturn]] void device_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A backend with one plan, all ranks in this process. */
struct device_plan {
  const struct copse_plan *plan;
  void *backend, *prepared;
  uint32_t n_ranks;
  cudaStream_t *streams; /* [n_ranks] one of each rank, or all the same */
  int *devices;          /* [n_ranks] */
};

enum device_streams { ONE_STREAM, STREAM_PER_RANK };

/* Ranks go round over n_devices devices. */
void device_plan_open(struct device_plan *d, const struct copse_plan *plan, int n_devices,
                      enum device_streams streams);
void device_plan_close(struct device_plan *d);

/* An allreduce of n >= 3 ranks at a switch that adds and copies, as `copse lower` makes it of `solve
 * --in-network`, in small chunks. */
struct copse_plan *device_multicast_plan(int n);

/* Device copies of the raw memory of a struct copse_buffers, guards included. */
struct device_buffers {
  uint32_t n_ranks;
  uint64_t input_bytes, output_bytes; /* of each rank's memory */
  unsigned char **inputs, **outputs;  /* [n_ranks] */
};
void device_buffers_new(struct device_buffers *d, const struct device_plan *plan,
                        const struct copse_buffers *host);
void device_buffers_free(struct device_buffers *d);
/* Everything to the devices; back comes the outputs' and inputs' memory. Both wait. */
void device_upload(const struct device_buffers *d, const struct copse_buffers *host);
void device_download(const struct device_buffers *d, struct copse_buffers *host);

/* One collective on what is in the device buffers, enqueued. */
copse_status device_launch(const struct device_plan *d, const struct device_buffers *buffers,
                           const struct copse_buffers *host, struct exec_case it,
                           const uint64_t *pair_counts, struct copse_err *err);
void device_wait(const struct device_plan *d);

/* Values that round when they are summed, and no NaN, whose bits are the hardware's choice. */
void device_fill_rough(struct exec_case it, void *memory, uint64_t n, uint64_t seed);
/* Fills, runs, and counts wrong elements, changed inputs and guards. */
uint64_t device_case_run(const struct device_plan *d, struct exec_case it);
/* The same on data that rounds at every step: elements that differ from the CPU executor's bits. */
uint64_t device_case_compare(const struct device_plan *d, struct exec_case it, uint64_t seed);
/* The same for a group of collectives on d's backend, as many in a launch as it takes: how many launches.
 * graph_launches > 0 (all ranks on one stream): captured, and each launch of the graph beside one more of
 * the group. */
struct device_member {
  const struct copse_plan *plan;
  void *prepared;
  struct exec_case it;
};
uint64_t device_group_compare(const struct device_plan *d, const struct device_member *members,
                              uint32_t n, int graph_launches, uint64_t seed, int *launches);

#endif
