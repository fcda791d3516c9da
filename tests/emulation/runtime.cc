/* Configuration, errors, and what surrounds every call. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <map>
#include <string>

#include "internal.h"

namespace copse_emulation {

namespace {

std::atomic<int> misuses{0}, calls{0}, sticky{cudaSuccess};
std::atomic<bool> is_forked{false};
thread_local cudaError_t last_error = cudaSuccess;
thread_local int chosen_device = 0;
thread_local int on_device = 0;
thread_local const char *function_name = "";

struct Failure {
  std::mutex lock;
  std::map<std::string, int> calls; /* of each function so far */
  std::string function;
  int left = 0; /* calls until it strikes; 0: none is ordered */
  cudaError_t error = cudaSuccess;
};
Failure &failure() {
  static Failure *f = new Failure;
  return *f;
}

long long from_environment(const char *name, long long otherwise) {
  const char *text = getenv(name);
  if (!text) return otherwise;
  char *end;
  long long value = strtoll(text, &end, 10);
  if (*text && !*end && value >= 0) return value;
  fprintf(stderr, "emulated CUDA: %s=%s is not a number\n", name, text);
  abort();
}

copse_emulated_config &mutable_config() {
  static copse_emulated_config *c = new copse_emulated_config(copse_emulated_defaults());
  return *c;
}

/* The ordered failure, or cudaSuccess. */
cudaError_t strike(const char *function) {
  Failure &f = failure();
  std::lock_guard<std::mutex> hold(f.lock);
  f.calls[function]++;
  if (f.left == 0 || (!f.function.empty() && f.function != function)) return cudaSuccess;
  return f.left < 0 || --f.left == 0 ? f.error : cudaSuccess;
}

cudaError_t check_call(const char *function) {
  if (on_device)
    return misuse(cudaErrorNotPermitted, "called by a kernel or by a host function of a stream");
  if (is_forked) return misuse(cudaErrorInitializationError, "called in a forked child");
  cudaError_t error = strike(function);
  return error ? error : current_fault();
}

}  // namespace

cudaError_t misuse(cudaError_t error, const char *format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "emulated CUDA: %s: %s (%s)\n", function_name, text, cudaGetErrorName(error));
  misuses++;
  return error;
}

void fault(cudaError_t error) {
  int none = cudaSuccess;
  sticky.compare_exchange_strong(none, error);
}
cudaError_t current_fault() { return (cudaError_t)sticky.load(); }

cudaError_t api(const char *function, const Body<cudaError_t> &body) {
  /* Children can't have the parent's threads. Only runtimes that were used are lost to them. */
  static bool is_watching = pthread_atfork(nullptr, nullptr, [] { is_forked = true; }) == 0;
  (void)is_watching;
  calls++;
  const char *outer = function_name;
  function_name = function;
  cudaError_t error = check_call(function);
  if (!error) error = body();
  function_name = outer;
  if (error) last_error = error;
  return error;
}

const char *current_function() { return function_name; }
OnDevice::OnDevice() { on_device++; }
OnDevice::~OnDevice() { on_device--; }

const copse_emulated_config &config() { return mutable_config(); }
int current_device() { return chosen_device; }
bool is_device(int device) { return device >= 0 && device < config().devices; }
int group_of(int device) {
  return config().reach > 0 ? (config().first + device) / config().reach : 0;
}

}  // namespace copse_emulation

using namespace copse_emulation;

copse_emulated_config copse_emulated_defaults(void) {
  return {(int)from_environment("COPSE_EMULATED_DEVICES", 1),
          (int)from_environment("COPSE_EMULATED_MULTIPROCESSORS", 8),
          (int)from_environment("COPSE_EMULATED_THREADS", 2048),
          (size_t)from_environment("COPSE_EMULATED_MEMORY", 1LL << 30),
          (int)from_environment("COPSE_EMULATED_PITCH", INT32_MAX),
          (int)from_environment("COPSE_EMULATED_REACH", 0), 0, false,
          from_environment("COPSE_EMULATED_MULTICAST", 1) != 0};
}

void copse_emulated_configure(const copse_emulated_config *wanted) {
  if (copse_emulated_leaks()) {
    fprintf(stderr, "emulated CUDA: configured anew while the above is in use\n");
    abort();
  }
  reset_streams();
  reset_memory();
  reset_peers();
  mutable_config() = *wanted;
  reset_residency();
  chosen_device = 0;
  last_error = cudaSuccess;
  sticky = cudaSuccess;
}

int copse_emulated_leaks(void) {
  for (int d = 0; d < config().devices; d++) wait_for_device(d);
  return report_memory() + report_handles() + report_streams() + report_events() + report_graphs();
}

int copse_emulated_misuses(void) { return misuses; }
int copse_emulated_calls(void) { return calls; }
int copse_emulated_calls_of(const char *function) {
  Failure &f = failure();
  std::lock_guard<std::mutex> hold(f.lock);
  return f.calls[function];
}

void copse_emulated_fail(const char *function, int nth, cudaError_t error) {
  Failure &f = failure();
  std::lock_guard<std::mutex> hold(f.lock);
  f.function = function ? function : "";
  f.left = error ? nth : 0; /* COPSE_EMULATED_EVERY: below 0 */
  f.error = error;
}

#if defined(__SANITIZE_THREAD__)
/* The pool's threads are there at exit: each test's process would wait a second for them. */
extern "C" __attribute__((visibility("default"))) const char *__tsan_default_options(void) {
  return "atexit_sleep_ms=10";
}
#endif

extern "C" {

cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return current_fault() ? current_fault() : last_error; }

const char *cudaGetErrorName(cudaError_t error) {
#define NAME(name, value, text) \
  if (error == value) return #name;
  COPSE_EMULATED_ERRORS(NAME)
#undef NAME
  return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
#define TEXT(name, value, text) \
  if (error == value) return text;
  COPSE_EMULATED_ERRORS(TEXT)
#undef TEXT
  return "unrecognized error code";
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [=] {
    if (!is_device(device)) return config().devices ? cudaErrorInvalidDevice : cudaErrorNoDevice;
    chosen_device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int *device) {
  return api("cudaGetDevice", [=] {
    if (!config().devices) return cudaErrorNoDevice;
    *device = chosen_device;
    return cudaSuccess;
  });
}
}
