/* Wall-clock time and memory of the process, for reports, progress and limits; never part of a
 * result. Inline: libcopse-ucx uses it and links nothing else of copse. */
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

/* Returns the monotonic clock's seconds since some fixed moment. */
static inline double copse_clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Converts a moment of that clock for calls that wait until one (CLOCK_MONOTONIC). */
static inline struct timespec copse_clock_at(double seconds) {
  struct timespec t = {(time_t)seconds, 0};
  t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
  return t;
}

/* Makes a condition whose timed waits are until such moments. */
static inline void copse_clock_condition(pthread_cond_t *condition) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

/* Returns the most memory that the process has held, in MiB; -1 where the system does not tell. */
static inline long copse_peak_mib(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss / 1024 : -1;
}
