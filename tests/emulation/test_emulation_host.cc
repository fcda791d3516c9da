/*
 * The emulation's host calls keep CUDA's promises: what is asynchronous is so, what is ordered is
 * ordered, what must not be done is refused. Each test ends with nothing alive.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thread>

#include "emulation_tests.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

/* ---- devices and errors ------------------------------------------------------------------- */

START_TEST(devices_are_as_configured) {
  configure(3, 5, 512, 4 << 20);
  int value;
  OK(cudaGetDeviceCount(&value));
  ck_assert_int_eq(value, 3);
  OK(cudaSetDevice(2));
  OK(cudaGetDevice(&value));
  ck_assert_int_eq(value, 2);
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 2));
  ck_assert_int_eq(p.multiProcessorCount, 5);
  ck_assert_uint_eq(p.totalGlobalMem, 4 << 20);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerMultiProcessor, 1));
  ck_assert_int_eq(value, 512);
  EXPECT(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT(cudaGetDeviceProperties(&p, -1), cudaErrorInvalidDevice);
  int can;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  ck_assert_int_eq(can, 1);
  OK(cudaDeviceEnablePeerAccess(0, 0));
  EXPECT(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
  OK(cudaDeviceDisablePeerAccess(0));
  EXPECT(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
  copse_emulated_config apart = copse_emulated_defaults(); /* pairs: 0; 1 and 2 */
  apart.devices = 3;
  apart.reach = 2;
  apart.first = 3;
  copse_emulated_configure(&apart);
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  ck_assert_int_eq(can, 0);
  OK(cudaDeviceCanAccessPeer(&can, 2, 1));
  ck_assert_int_eq(can, 1);
  EXPECT(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
  configure(0, 1, 32, 0);
  EXPECT(cudaGetDeviceCount(&value), cudaErrorNoDevice);
  ck_assert_int_eq(value, 0);
  finish(0);
}
END_TEST

START_TEST(the_last_error_is_kept_until_read) {
  EXPECT(cudaSetDevice(7), cudaErrorInvalidDevice);
  int device;
  OK(cudaGetDevice(&device));
  std::thread([] { EXPECT(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaSuccess);
  ck_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  ck_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  finish(0);
}
END_TEST

START_TEST(ordered_failures_strike_once) {
  void *p;
  copse_emulated_fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));
  EXPECT(cudaMalloc(&p, 16), cudaErrorMemoryAllocation);
  int calls = copse_emulated_calls();
  OK(cudaMalloc(&p, 16));
  copse_emulated_fail(NULL, 1, cudaErrorUnknown);
  EXPECT(cudaFree(p), cudaErrorUnknown);
  OK(cudaFree(p));
  ck_assert_int_eq(copse_emulated_calls() - calls, 3);
  finish(0);
}
END_TEST

START_TEST(leaks_are_counted) {
  void *p, *host;
  cudaEvent_t event = new_event();
  cudaStream_t stream = new_stream(cudaStreamDefault);
  OK(cudaMalloc(&p, 16));
  OK(cudaMallocHost(&host, 16));
  ck_assert_int_eq(copse_emulated_leaks(), 4);
  OK(cudaFree(p));
  OK(cudaFreeHost(host));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

START_TEST(a_forked_child_is_refused) {
  int device;
  OK(cudaGetDevice(&device));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) _exit(cudaGetDevice(&device) == cudaErrorInitializationError ? 0 : 1);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  finish(0);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------- */

START_TEST(memory_ends_and_comes_back) {
  configure(2, 8, 2048, 1 << 20);
  void *a, *b, *c;
  size_t left, total;
  OK(cudaMalloc(&a, 600 << 10));
  EXPECT(cudaMalloc(&b, 600 << 10), cudaErrorMemoryAllocation);
  ck_assert_ptr_null(b);
  EXPECT(cudaMalloc(&b, SIZE_MAX), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&b, 424 << 10)); /* to the last byte */
  EXPECT(cudaMalloc(&c, 1), cudaErrorMemoryAllocation);
  OK(cudaMemGetInfo(&left, &total));
  ck_assert_uint_eq(left, 0);
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&c, 1 << 20)); /* the other device has its own */
  OK(cudaFree(a));
  OK(cudaSetDevice(0));
  for (int i = 0; i < 100; i++) { /* in pieces that are not freed in order */
    void *p[3];
    for (void *&one : p) OK(cudaMalloc(&one, 150 << 10));
    for (int k : {1, 0, 2}) OK(cudaFree(p[k]));
  }
  OK(cudaMalloc(&a, 600 << 10));
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
  OK(cudaMalloc(&a, 0));
  ck_assert_ptr_null(a);
  OK(cudaFree(NULL));
  finish(0);
}
END_TEST

START_TEST(pointers_are_told_apart) {
  configure(2, 8, 2048, 1 << 20);
  cudaPointerAttributes a;
  char *device, *host, plain[64];
  void *mapped;
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&device, 64));
  OK(cudaHostAlloc(&host, 64, cudaHostAllocMapped));
  OK(cudaPointerGetAttributes(&a, device + 63));
  ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
  ck_assert_int_eq(a.device, 1);
  OK(cudaPointerGetAttributes(&a, device + 64));
  ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
  OK(cudaPointerGetAttributes(&a, host + 1));
  ck_assert_int_eq(a.type, cudaMemoryTypeHost);
  OK(cudaHostGetDevicePointer(&mapped, host, 0));
  ck_assert_ptr_eq(mapped, host);
  OK(cudaPointerGetAttributes(&a, plain));
  ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
  EXPECT(cudaHostGetDevicePointer(&mapped, plain, 0), cudaErrorInvalidValue);
  OK(cudaHostRegister(plain, sizeof plain, cudaHostRegisterMapped));
  EXPECT(cudaHostRegister(plain + 8, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostGetDevicePointer(&mapped, plain, 0));
  OK(cudaHostUnregister(plain));
  EXPECT(cudaHostUnregister(plain), cudaErrorHostMemoryNotRegistered);
  OK(cudaFree(device));
  OK(cudaFreeHost(host));
  finish(1);
}
END_TEST

START_TEST(wrong_pointers_are_refused) {
  char *device, *host, plain[64] = {0};
  OK(cudaMalloc(&device, 64));
  OK(cudaMallocHost(&host, 64));
  EXPECT(cudaFree(plain), cudaErrorInvalidValue);
  EXPECT(cudaFree(device + 1), cudaErrorInvalidValue);
  EXPECT(cudaFree(host), cudaErrorInvalidValue);
  EXPECT(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device + 1, plain, 64, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(plain, device + 32, 33, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 8, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(device, plain, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT(cudaMemset(plain, 0, 8), cudaErrorInvalidValue);
  EXPECT(cudaMemset(device, 0, 65), cudaErrorInvalidValue);
  EXPECT(cudaFreeAsync(device, 0), cudaErrorInvalidValue);
  OK(cudaMemcpy(device, plain, 64, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(plain, NULL, 0, cudaMemcpyDeviceToHost));
  OK(cudaFree(device));
  EXPECT(cudaFree(device), cudaErrorInvalidValue);
  EXPECT(cudaMemset(device, 0, 8), cudaErrorInvalidValue);
  OK(cudaFreeHost(host));
  finish(14);
}
END_TEST

START_TEST(memory_that_is_freed_too_early_is_a_fault) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  char *p, plain[8] = {0};
  OK(cudaMallocAsync(&p, 8, stream));
  OK(cudaFreeAsync(p, stream));
  gate.close(stream);
  EXPECT(cudaFreeAsync(p, stream), cudaErrorInvalidValue);
  gate.open();
  OK(cudaStreamSynchronize(stream));

  Gate second;
  OK(cudaMallocAsync(&p, 8, stream));
  second.close(stream);
  OK(cudaFreeAsync(p, stream));
  OK(cudaMemcpyAsync(p, plain, 8, cudaMemcpyHostToDevice, stream));
  second.open();
  EXPECT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT(cudaStreamDestroy(stream), cudaErrorIllegalAddress); /* for good, as in CUDA */
  EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
  ck_assert_int_eq(copse_emulated_misuses(), 2);
}
END_TEST

START_TEST(copies_go_between_devices) {
  configure(2, 1, 32, 1 << 20);
  char id[16];
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 1));
  ck_assert_str_eq(id, "0000:02:00.0");
  int *p[2], *back;
  for (int d = 0; d < 2; d++) {
    OK(cudaSetDevice(d));
    p[d] = new_device<int>(4);
  }
  OK(cudaMallocHost(&back, sizeof *back));
  int value = 77;
  OK(cudaMemcpy(p[0] + 1, &value, sizeof value, cudaMemcpyDefault));
  OK(cudaMemcpyPeer(p[1] + 2, 1, p[0] + 1, 0, sizeof value));
  EXPECT(cudaMemcpyPeer(p[1], 0, p[0], 0, sizeof value), cudaErrorInvalidValue);
  EXPECT(cudaMemcpyPeer(p[1], 1, p[0], 2, sizeof value), cudaErrorInvalidDevice);
  OK(cudaDeviceSynchronize()); /* device 1's NULL stream made the copy */
  OK(cudaSetDevice(0));
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  OK(cudaMemcpyPeerAsync(p[0] + 3, 0, p[1] + 2, 1, sizeof value, stream));
  OK(cudaMemcpyAsync(back, p[0] + 3, sizeof value, cudaMemcpyDefault, stream));
  OK(cudaStreamSynchronize(stream));
  ck_assert_int_eq(*back, 77);
  OK(cudaStreamDestroy(stream));
  for (int *one : p) OK(cudaFree(one));
  OK(cudaFreeHost(back));
  finish(1);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__)
START_TEST(sanitizer_knows_the_bounds) {
  char *p, *q;
  OK(cudaMalloc(&p, 100));
  OK(cudaMalloc(&q, 512));
  ck_assert(!__asan_address_is_poisoned(p) && !__asan_address_is_poisoned(p + 99));
  ck_assert(__asan_address_is_poisoned(p + 100) && __asan_address_is_poisoned(q + 512));
  OK(cudaFree(p));
  ck_assert(__asan_address_is_poisoned(p));
  OK(cudaFree(q));
  finish(0);
}
END_TEST
#endif

/* ---- streams and events ------------------------------------------------------------------- */

START_TEST(streams_run_on_their_own_and_in_order) {
  cudaStream_t one = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(2), *host;
  OK(cudaMallocHost(&host, sizeof *host));
  *host = 1;
  Gate gate;
  gate.close(one);
  OK(cudaMemcpyAsync(data, host, sizeof *host, cudaMemcpyHostToDevice, one));
  for (int i = 2; i <= 5; i++) launch(append_kernel, 1, 1, AddArgs{data, i}, one);
  EXPECT(cudaStreamQuery(one), cudaErrorNotReady);
  launch(append_kernel, 1, 1, AddArgs{data + 1, 7}, other); /* doesn't wait for the first */
  OK(cudaStreamSynchronize(other));
  OK(cudaStreamQuery(other));
  EXPECT(cudaStreamQuery(one), cudaErrorNotReady);
  *host = 9; /* read when the copy runs */
  gate.open();
  OK(cudaStreamSynchronize(one));
  std::vector<int> values = read_back(data, 2);
  ck_assert_int_eq(values[0], 92345);
  ck_assert_int_eq(values[1], 7);
  OK(cudaFree(data));
  OK(cudaFreeHost(host));
  OK(cudaStreamDestroy(one));
  OK(cudaStreamDestroy(other));
  EXPECT(cudaStreamQuery(one), cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamDestroy(one), cudaErrorInvalidResourceHandle);
  finish(2);
}
END_TEST

START_TEST(a_destroyed_stream_finishes_its_work) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(1);
  Gate gate;
  gate.close(stream);
  launch(append_kernel, 1, 1, AddArgs{data, 3}, stream);
  OK(cudaStreamDestroy(stream));
  gate.open();
  OK(cudaDeviceSynchronize());
  ck_assert_int_eq(read_back(data, 1)[0], 3);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

START_TEST(the_null_stream_and_blocking_streams_wait_for_each_other) {
  cudaStream_t blocking = new_stream(cudaStreamDefault), free = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(2);
  Gate gate;
  gate.close(blocking);
  launch(append_kernel, 1, 1, AddArgs{data, 1}, blocking);
  launch(append_kernel, 1, 1, AddArgs{data, 2}, cudaStream_t(0));
  launch(append_kernel, 1, 1, AddArgs{data, 3}, blocking);
  launch(append_kernel, 1, 1, AddArgs{data + 1, 4}, free);
  OK(cudaStreamSynchronize(free));
  usleep(20000);
  EXPECT(cudaStreamQuery(0), cudaErrorNotReady);
  gate.open();
  OK(cudaStreamSynchronize(0));
  OK(cudaStreamQuery(cudaStreamLegacy));
  std::vector<int> values = read_back(data, 2);
  ck_assert_int_eq(values[0], 123);
  ck_assert_int_eq(values[1], 4);
  Gate second;
  second.close(free);
  OK(cudaMemset(data, 0, sizeof *data)); /* doesn't wait for a non-blocking stream */
  OK(cudaStreamSynchronize(0));
  second.open();
  OK(cudaFree(data));
  OK(cudaStreamDestroy(blocking));
  OK(cudaStreamDestroy(free));
  finish(0);
}
END_TEST

START_TEST(events_order_streams_of_all_devices) {
  configure(2, 2, 256, 1 << 20);
  cudaStream_t one = new_stream(cudaStreamNonBlocking);
  cudaEvent_t event = new_event(), foreign;
  int *data = new_device<int>(1);
  OK(cudaSetDevice(1));
  foreign = new_event();
  cudaStream_t other = new_stream(cudaStreamNonBlocking);
  Gate gate;
  OK(cudaStreamWaitEvent(other, event)); /* never recorded: nothing to wait for */
  gate.close(one);
  EXPECT(cudaEventRecord(foreign, one), cudaErrorInvalidResourceHandle);
  int value = 5;
  OK(cudaMemcpyAsync(data, &value, sizeof value, cudaMemcpyHostToDevice, one));
  OK(cudaEventRecord(event, one));
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  OK(cudaStreamWaitEvent(other, event));
  launch(append_kernel, 1, 1, AddArgs{data, 6}, other);
  usleep(20000); /* time to do what it must not */
  EXPECT(cudaStreamQuery(other), cudaErrorNotReady);
  gate.open();
  OK(cudaEventSynchronize(event));
  OK(cudaEventQuery(event));
  OK(cudaStreamSynchronize(other));
  ck_assert_int_eq(read_back(data, 1)[0], 56);
  AddArgs args = {data, 0};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, list, 0, one), cudaErrorInvalidResourceHandle);
  OK(cudaFree(data));
  OK(cudaEventDestroy(event));
  OK(cudaEventDestroy(foreign));
  EXPECT(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(one));
  OK(cudaStreamDestroy(other));
  finish(3);
}
END_TEST

START_TEST(events_measure_time) {
  cudaEvent_t start, end, untimed = new_event();
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  float ms;
  EXPECT(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(start, stream));
  gate.close(stream);
  OK(cudaEventRecord(end, stream));
  OK(cudaEventRecord(untimed, stream));
  EXPECT(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  usleep(3000);
  gate.open();
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&ms, start, end));
  ck_assert(ms > 0);
  EXPECT(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, end, untimed}) OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
  finish(2);
}
END_TEST

START_TEST(host_functions_must_not_call_the_runtime) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  std::atomic<int> result{-1};
  OK(cudaLaunchHostFunc(
      stream,
      [](void *where) {
        int device;
        *static_cast<std::atomic<int> *>(where) = cudaGetDevice(&device);
      },
      &result));
  OK(cudaStreamSynchronize(stream));
  ck_assert_int_eq(result, cudaErrorNotPermitted);
  OK(cudaStreamDestroy(stream));
  finish(1);
}
END_TEST

START_TEST(streams_tell_what_they_are) {
  configure(2, 1, 32, 1 << 20);
  OK(cudaSetDevice(1));
  cudaStream_t stream;
  int least, greatest, priority, device;
  unsigned flags;
  unsigned long long id, null_id;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  ck_assert_int_lt(greatest, least);
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
  OK(cudaStreamGetPriority(stream, &priority));
  OK(cudaStreamGetFlags(stream, &flags));
  OK(cudaStreamGetDevice(stream, &device));
  OK(cudaStreamGetId(stream, &id));
  OK(cudaStreamGetId(0, &null_id));
  ck_assert_int_eq(priority, greatest);
  ck_assert_uint_eq(flags, cudaStreamNonBlocking);
  ck_assert_int_eq(device, 1);
  ck_assert_uint_ne(id, null_id);
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

static Suite *suite() {
  Suite *s = suite_create("emulation/host");
  TCase *t = tcase_create("host");
  tcase_add_test(t, devices_are_as_configured);
  tcase_add_test(t, the_last_error_is_kept_until_read);
  tcase_add_test(t, ordered_failures_strike_once);
  tcase_add_test(t, leaks_are_counted);
  tcase_add_test(t, a_forked_child_is_refused);
  tcase_add_test(t, memory_ends_and_comes_back);
  tcase_add_test(t, pointers_are_told_apart);
  tcase_add_test(t, wrong_pointers_are_refused);
  tcase_add_test(t, memory_that_is_freed_too_early_is_a_fault);
  tcase_add_test(t, copies_go_between_devices);
#if defined(__SANITIZE_ADDRESS__)
  tcase_add_test(t, sanitizer_knows_the_bounds);
#endif
  tcase_add_test(t, streams_run_on_their_own_and_in_order);
  tcase_add_test(t, a_destroyed_stream_finishes_its_work);
  tcase_add_test(t, the_null_stream_and_blocking_streams_wait_for_each_other);
  tcase_add_test(t, events_order_streams_of_all_devices);
  tcase_add_test(t, events_measure_time);
  tcase_add_test(t, host_functions_must_not_call_the_runtime);
  tcase_add_test(t, streams_tell_what_they_are);
  suite_add_tcase(s, t);
  return s;
}

int main() { return copse_test_run(suite()); }
