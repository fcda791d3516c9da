#include "base/clock.h"

double copse_clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct timespec copse_clock_at(double seconds) {
  struct timespec t = {(time_t)seconds, 0};
  t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
  return t;
}
