/*
 * Communicators on (emulated) GPUs through the public functions: virtual ranks of one GPU and
 * ranks of two, a thread per rank, on streams. What the backend itself does is in
 * test_cuda_backend.cc, what communicators do on any backend in tests/runtime/test_comm*.c.
 */
#include <cuda_runtime.h>
#include <pthread.h>
#include <string.h>

extern "C" {
#include "copse/copse.h"
#include "support/plan_builder.h"
#include "support/support.h"
}
#include "emulation/emulation.h"

#define N 4
#define COUNT 1000
#define TURNS 5

#define COMM_OK(call) ck_assert_msg((call) == COPSE_OK, "%s: %s", #call, copse_last_error())
#define CUDA_OK(call) ck_assert_int_eq((call), cudaSuccess)

struct rank {
  pthread_t thread;
  copse_comm *comm;
  cudaStream_t stream;
  float *data;
};

static struct rank ranks[N];
static struct copse_plan *plan;

static void begin(const int *devices) {
  copse_comm *comms[N];
  plan = pb_tree_plan(COPSE_ALLREDUCE, N, -1, PB_OPTIONS_DEFAULT);
  COMM_OK(copse_comm_init_all(comms, N, devices));
  COMM_OK(copse_comm_add_plan(comms[0], plan));
  for (int r = 0; r < N; r++) {
    float host[COUNT];
    ranks[r].comm = comms[r];
    int device;
    COMM_OK(copse_comm_device(comms[r], &device));
    ck_assert_int_eq(device, devices[r]);
    CUDA_OK(cudaSetDevice(devices[r]));
    CUDA_OK(cudaMalloc((void **)&ranks[r].data, sizeof host));
    CUDA_OK(cudaStreamCreateWithFlags(&ranks[r].stream, cudaStreamNonBlocking));
    for (int i = 0; i < COUNT; i++) host[i] = (float)(4 * r + i);
    CUDA_OK(cudaMemcpy(ranks[r].data, host, sizeof host, cudaMemcpyHostToDevice));
  }
}

static void end() {
  for (int r = 0; r < N; r++) {
    COMM_OK(copse_comm_destroy(ranks[r].comm));
    CUDA_OK(cudaStreamDestroy(ranks[r].stream));
    CUDA_OK(cudaFree(ranks[r].data));
  }
  pb_free(plan);
}

/* The average of 4 r + i is 6 + i, and so is the average of those. */
static void *average(void *context) {
  struct rank *rank = (struct rank *)context;
  for (int turn = 0; turn < TURNS; turn++) {
    if (turn % 2) COMM_OK(copse_group_start());
    for (int k = 0; k < 1 + turn % 2; k++)
      COMM_OK(copse_all_reduce(rank->data, rank->data, COUNT, COPSE_FLOAT, COPSE_AVG, rank->comm,
                               rank->stream));
    if (turn % 2) COMM_OK(copse_group_end());
  }
  CUDA_OK(cudaStreamSynchronize(rank->stream));
  return NULL;
}

static void check_averages() {
  for (int r = 0; r < N; r++) {
    float host[COUNT];
    CUDA_OK(cudaStreamSynchronize(ranks[r].stream));
    CUDA_OK(cudaMemcpy(host, ranks[r].data, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) ck_assert(host[i] == (float)(6 + i));
  }
}

static void average_on(const int *devices) {
  begin(devices);
  for (int r = 0; r < N; r++)
    ck_assert_int_eq(pthread_create(&ranks[r].thread, NULL, average, &ranks[r]), 0);
  for (int r = 0; r < N; r++) pthread_join(ranks[r].thread, NULL);
  check_averages();
  end();
}

START_TEST(virtual_ranks_call_from_a_thread_each) {
  static const int devices[N] = {0, 0, 0, 0};
  average_on(devices);
}
END_TEST

START_TEST(ranks_of_two_gpus_call_from_a_thread_each) {
  static const int devices[N] = {0, 1, 1, 0};
  average_on(devices);
}
END_TEST

/* A thread's group of calls for all ranks: each GPU gets one kernel. */
START_TEST(a_group_is_one_launch_a_gpu) {
  static const int devices[N] = {0, 1, 1, 0};
  begin(devices);
  const int before = copse_emulated_calls_of("cudaLaunchKernelExC");
  COMM_OK(copse_group_start());
  for (int turn = 0; turn < TURNS; turn++)
    for (int r = 0; r < N; r++)
      COMM_OK(copse_all_reduce(ranks[r].data, ranks[r].data, COUNT, COPSE_FLOAT, COPSE_AVG,
                               ranks[r].comm, ranks[r].stream));
  COMM_OK(copse_group_end());
  ck_assert_int_eq(copse_emulated_calls_of("cudaLaunchKernelExC") - before, 2);
  check_averages();
  end();
}
END_TEST

/* A call that is refused takes none of its neighbours with it. */
START_TEST(a_group_goes_on_behind_a_call_without_a_plan) {
  static const int devices[N] = {0, 1, 1, 0};
  begin(devices);
  COMM_OK(copse_group_start());
  for (int turn = 0; turn < 3; turn++)
    for (int r = 0; r < N; r++)
      COMM_OK(turn == 1 ? copse_broadcast(ranks[r].data, ranks[r].data, COUNT, COPSE_FLOAT, 0, ranks[r].comm,
                                          ranks[r].stream)
                        : copse_all_reduce(ranks[r].data, ranks[r].data, COUNT, COPSE_FLOAT, COPSE_AVG,
                                           ranks[r].comm, ranks[r].stream));
  ck_assert_int_eq(copse_group_end(), COPSE_UNSUPPORTED);
  check_averages();
  end();
}
END_TEST

START_TEST(a_missing_call_is_a_timeout_on_gpus_too) {
  static const int devices[N] = {0, 0, 0, 0};
  copse_status async;
  begin(devices);
  COMM_OK(copse_comm_set_timeout(ranks[0].comm, 0.2));
  COMM_OK(copse_group_start());
  for (int r = 0; r < N - 1; r++)
    COMM_OK(copse_all_reduce(ranks[r].data, ranks[r].data, COUNT, COPSE_FLOAT, COPSE_SUM,
                             ranks[r].comm, ranks[r].stream));
  ck_assert_int_eq(copse_group_end(), COPSE_TIMEOUT);
  ck_assert_ptr_nonnull(strstr(copse_last_error(), "the call of rank 3"));
  COMM_OK(copse_comm_get_async_error(ranks[1].comm, &async));
  ck_assert_int_eq(async, COPSE_TIMEOUT);
  end();
}
END_TEST

/* What one GPU has begun doesn't wait for the other, which has got nothing: whatever the error. */
START_TEST(a_launch_that_fails_on_one_gpu_ends_on_the_others) {
  static const int devices[N] = {0, 1, 1, 0};
  static const cudaError_t errors[] = {cudaErrorUnknown, cudaErrorMemoryAllocation};
  copse_status async;
  begin(devices);
  copse_emulated_fail("cudaLaunchKernelExC", 2, errors[_i]);
  COMM_OK(copse_group_start());
  for (int r = 0; r < N; r++)
    COMM_OK(copse_all_reduce(ranks[r].data, ranks[r].data, COUNT, COPSE_FLOAT, COPSE_SUM,
                             ranks[r].comm, ranks[r].stream));
  ck_assert_int_eq(copse_group_end(), COPSE_DEVICE);
  ck_assert_ptr_nonnull(strstr(copse_last_error(), "cudaLaunchKernelExC"));
  for (int r = 0; r < N; r++) CUDA_OK(cudaStreamSynchronize(ranks[r].stream));
  COMM_OK(copse_comm_get_async_error(ranks[1].comm, &async));
  ck_assert_int_eq(async, COPSE_DEVICE);
  end();
}
END_TEST

START_TEST(a_gpu_that_is_not_there_is_refused) {
  static const int devices[2] = {0, 77};
  copse_comm *comms[2];
  ck_assert_int_eq(copse_comm_init_all(comms, 2, devices), COPSE_INVALID);
  ck_assert_ptr_nonnull(strstr(copse_last_error(), "77"));
  ck_assert_ptr_null(comms[0]);
}
END_TEST

extern uint32_t copse_cuda_threads;

int main() {
  copse_cuda_threads = 3; /* each of a block's is one of the CPU's */
  setenv("COPSE_EMULATED_DEVICES", "2", 1);
  Suite *suite = suite_create("cuda/comm");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, virtual_ranks_call_from_a_thread_each);
  tcase_add_test(tc, ranks_of_two_gpus_call_from_a_thread_each);
  tcase_add_test(tc, a_group_is_one_launch_a_gpu);
  tcase_add_test(tc, a_group_goes_on_behind_a_call_without_a_plan);
  tcase_add_test(tc, a_missing_call_is_a_timeout_on_gpus_too);
  tcase_add_loop_test(tc, a_launch_that_fails_on_one_gpu_ends_on_the_others, 0, 2);
  tcase_add_test(tc, a_gpu_that_is_not_there_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
