/*
 * Ranks that launch on their own, as GPUs do: each has a thread per worker and goes from launch
 * to launch when its own workers are through, whatever the others do. Packets and counters are
 * all that holds them together, so this is what finds a plan that may overwrite packets unread.
 */
#ifndef COPSE_TESTS_FREE_RUN_H
#define COPSE_TESTS_FREE_RUN_H

#include "runtime/plan/plan.h"

struct free_run_options {
  int launches;
  int jump;       /* after so many launches their numbers go on from, if not 0: */
  uint32_t epoch; /* this one or the next, in step with even and odd */
  int most_delay; /* microseconds that a worker sleeps now and then; 0: never */
  double seconds; /* after which it has failed */
  uint64_t seed;  /* of sizes, types, reductions and delays */
};

/*
 * Launches a plan of packets with sizes from none to the largest, in and out of place. The number
 * of wrong elements, or UINT64_MAX when it stood still. Only packets, no slots.
 */
uint64_t free_run(const struct copse_plan *plan, const struct free_run_options *options);

#endif
