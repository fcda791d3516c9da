/*
 * Several schedules of one collective on one topology, and which of them the simulator likes best
 * for a message of some size: the best for 64 KiB is rarely the best for 1 GiB.
 */
#ifndef COPSE_PREDICT_CANDIDATES_H
#define COPSE_PREDICT_CANDIDATES_H

#include "predict/predict.h"
#include "schedule/solve/solve.h"

struct copse_candidate {
  char name[24];                   /* "optimal", "k=2", "ring", ... */
  struct copse_schedule *schedule; /* expanded */
};

#define COPSE_MAX_CANDIDATES 16

struct copse_candidates {
  const struct copse_topology *topology; /* borrowed */
  int n;
  struct copse_candidate list[COPSE_MAX_CANDIDATES];
  struct copse_prediction predictions[COPSE_MAX_CANDIDATES]; /* of each, by `options` */
  struct copse_predict_options options;                      /* with routes of the list's own */
  struct copse_routes routes;
};

/*
 * The schedule that `options` ask for comes first, as "optimal" (or with its k). Then, for trees:
 * the best ones of 1, 2, 4 and 8 trees per root where those are fewer; of an allreduce with unequal
 * shares that with equal ones; ring, double binary tree and direct exchange. All are verified;
 * a kind that doesn't apply to the topology, or isn't exact in 64 bits, is left out. An alltoall
 * has the first alone. `seconds` are the first one's.
 * Times are predicted as `predict` says; NULL: the defaults.
 * As copse_solve_schedule, and COPSE_INTERNAL for a schedule that fails verification. Free with
 * copse_candidates_free in every case.
 */
copse_status copse_candidates_make(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   const struct copse_predict_options *predict,
                                   struct copse_candidates *out,
                                   struct copse_solve_seconds *seconds,
                                   struct copse_err *err) COPSE_CHECKED;
void copse_candidates_free(struct copse_candidates *candidates);

/* The predicted time of every candidate for messages of so many bytes, by several threads: us
 * [n_sizes]. With `quick`, in chunks enough to tell schedules apart and an eighth of the work. */
copse_status copse_candidates_time(const struct copse_candidates *candidates, const double *bytes,
                                   int n_sizes, bool quick, double (*us)[COPSE_MAX_CANDIDATES],
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * The one of times [n] to take: of those within MODEL_ERROR (policy.h) of the fastest the fastest
 * one with fewest hops, of those within SAME_TIME of each other the list's first.
 */
int copse_candidates_best(const struct copse_candidates *candidates, const double *us);

/* The one that is within CLOSE_TIME of the best (as above), with no more hops, for the most sizes
 * from the first on, of equals the list's first; *n_close: for how many, at least 1. */
int copse_candidates_lasting(const struct copse_candidates *candidates,
                             double (*us)[COPSE_MAX_CANDIDATES], int n_sizes, int *n_close);

/* Message sizes that one candidate is for, both included. */
struct copse_candidate_range {
  uint64_t min_bytes, max_bytes;
  int candidate;
};

#define COPSE_MAX_RANGES 24

/*
 * Cuts all message sizes at powers of two from `smallest` to `largest` (powers of two themselves,
 * smallest < largest) so that each range has a candidate that is the best there or within
 * CLOSE_TIME of it, in as few ranges as there can be: a range more is a plan more to load, and
 * the times are a model's. The first range begins at 0, the last ends at INT64_MAX; neighbours have
 * different candidates.
 */
copse_status copse_candidates_ranges(const struct copse_candidates *candidates, uint64_t smallest,
                                     uint64_t largest,
                                     struct copse_candidate_range ranges[COPSE_MAX_RANGES], int *n,
                                     struct copse_err *err) COPSE_CHECKED;

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

#endif
