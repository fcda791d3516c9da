/* Wall-clock time for reports, progress and limits; never part of a result. */
#ifndef COPSE_BASE_CLOCK_H
#define COPSE_BASE_CLOCK_H

#include <time.h>

double copse_clock_seconds(void); /* monotonic; since some fixed moment */
/* A moment of that clock for calls that wait until one (CLOCK_MONOTONIC). */
struct timespec copse_clock_at(double seconds);

#endif
