/* Wall-clock time and memory of the process, for reports, progress and limits; never part of a
 * result. */
#pragma once

#include <pthread.h>
#include <time.h>

double copse_clock_seconds(void); /* monotonic; since some fixed moment */
/* A moment of that clock for calls that wait until one (CLOCK_MONOTONIC). */
struct timespec copse_clock_at(double seconds);
/* Makes a condition whose timed waits are until such moments. */
void copse_clock_condition(pthread_cond_t *condition);
/* The most memory that the process has held, in MiB; -1 where the system does not tell. */
long copse_peak_mib(void);
