/*
 * A job that knows NCCL and not copse, for tests of the drop-in over several hosts: one rank per
 * process on emulated GPUs. The digits at the start of a mode name each rank's host; behind a
 * point stands what is tried.
 */
#ifndef COPSE_TESTS_JOB_H
#define COPSE_TESTS_JOB_H

#include "cuda/process_case.h"
#include "hosts/job_nccl.h"

struct job {
  struct meeting meeting;
  const char *mode;
  int rank, n, n_hosts, device;
  ncclComm_t world;
  cudaStream_t stream;
};

#define JOB_ASSERT(condition, ...)                                \
  do {                                                            \
    if (!(condition)) job_fail(__FILE__, __LINE__, __VA_ARGS__);  \
  } while (0)
#define JOB_NCCL(call)                                                                         \
  do {                                                                                         \
    ncclResult_t job_result = (call);                                                          \
    if (job_result != ncclSuccess)                                                             \
      job_fail(__FILE__, __LINE__, "%s: %d, %s", #call, job_result, ncclGetLastError(NULL));   \
  } while (0)
#define JOB_CUDA(call)                                                                      \
  do {                                                                                      \
    cudaError_t job_error = (call);                                                         \
    if (job_error != cudaSuccess)                                                           \
      job_fail(__FILE__, __LINE__, "%s: %s", #call, cudaGetErrorString(job_error));         \
  } while (0)
/* With the end of the log, where this process's errors are. */
[[noreturn]] void job_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* In the test: a folder with plans, then all ranks of the mode (its digits); all must leave
 * with 0. */
void job_run(const char *mode);

/* In a rank's process. */
void job_begin(struct job *job, struct meeting meeting, const char *mode);
/* Ends the communicator too, if there is one; nothing may be left. */
void job_end(struct job *job);
ncclComm_t job_comm(struct job *job); /* of all ranks, by a unique id of rank 0's */
void job_meet(struct job *job);       /* all ranks of the job */
char job_host(const struct job *job, int rank);

/* How many lines of this rank's log so far contain both. */
int job_logged(const char *part, const char *other);

/* Plans that job_run makes, for as many ranks as a communicator has: allgather and reduce_scatter
 * of any size, broadcast and reduce with root 0, allreduce and alltoall up to these bytes, and a
 * low-latency allreduce for the least ones. */
#define JOB_ALLREDUCE_BYTES 8192u
#define JOB_ALLTOALL_BYTES 40000u
#define JOB_LOW_LATENCY_BYTES 256u

#endif
