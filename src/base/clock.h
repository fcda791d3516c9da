/* Wall-clock time for reports, progress and limits; never part of a result. */
#ifndef COPSE_BASE_CLOCK_H
#define COPSE_BASE_CLOCK_H

double copse_clock_seconds(void); /* monotonic; since some fixed moment */

#endif
