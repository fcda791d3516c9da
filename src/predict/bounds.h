/* What nothing beats at a message size (schedule/solve/bound_at.h), and how far a time is above it.
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/topology.h"

/* Which bounds are asked for: root as in a schedule; schedule (may be NULL) as for
 * copse_bounds_new. */
struct copse_bounds_question {
  copse_collective collective;
  int root;
  const struct copse_schedule *schedule;
  double alpha_us;
};

/* What nothing beats (schedule/solve/bound_at.h) for messages of so many bytes [n]: us [n], 0 where
 * none is known that fits into 64 bits. Of an alltoall without a schedule the lengths are found. */
copse_status copse_bounds_predict(const struct copse_topology *topology,
                                  const struct copse_bounds_question *question, const double *bytes,
                                  int n, double *us, struct copse_err *err) COPSE_CHECKED;

/* Writes the bound for that many bytes into the schedule, with its proof; none where none is known
 * that fits into 64 bits. */
copse_status copse_bound_state(const struct copse_topology *topology,
                               struct copse_schedule *schedule, double bytes, double alpha_us,
                               struct copse_err *err) COPSE_CHECKED;

/* "3.1 %", by how much a time is above its bound; "-" without one. */
#define COPSE_GAP_TEXT 24
const char *copse_gap_text(double us, double bound_us, char buffer[COPSE_GAP_TEXT]);
