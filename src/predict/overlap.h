/*
 * Adaptive pipelining of a Mixture-of-Experts layer (Tutel, arXiv 2206.03382, section 4.2): the
 * tokens are cut into d equal parts, so that the all-to-all of one part runs while the
 * experts compute another. How many parts are best?
 *
 *   question                                      function
 *   -------------------------------------------   ----------------------------------
 *   how long do so many tokens take to compute?   copse_compute_us
 *   how long does the pipeline take?              copse_overlap_pipeline
 *   which degree is best on this topology?        copse_overlap_choose
 *   a dispatch and the combine that answers it    copse_overlap_predict
 *
 * The model. Part i = 1 .. d is dispatched (an all-to-all), computed, combined (the transposed
 * all-to-all), in this order. The experts compute one part at a time, parts in order, and all
 * ranks as long as the busiest one. The time of an all-to-all of M/d bytes is the simulator's,
 * alone on the network, as its plan (predict.h); smaller messages pay more latency per byte,
 * which is the cost of many parts. Two ways to use the network:
 *
 *   COPSE_OVERLAP_ONE     one all-to-all at a time; dispatches first, then combines, each in
 *                         order. No other order of the same all-to-alls ends sooner: dispatching
 *                         first makes every part ready as early as it can be, and until the last
 *                         dispatch the network isn't idle.
 *   COPSE_OVERLAP_SHARED  the oldest dispatch and the oldest combine under way at the same time;
 *                         when both are, each goes at half its speed
 *
 * Computing is not slowed by communication, nor the other way round. Parts are of equal size
 * even where d doesn't divide the tokens.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "schedule/schedule.h"
#include "predict/predict.h"
#include "topology/topology.h"

#define COPSE_OVERLAP_MAX_DEGREE 4096

struct copse_compute_point {
  double tokens, us;
};

/*
 * What an expert's rank needs for so many tokens. Without points: alpha_us + us_per_token *
 * tokens. With points (ascending tokens, us never falling): straight lines between them; below
 * the first the first one's time, as a kernel's floor; beyond the last the last line goes on
 * (with one point: in proportion).
 */
struct copse_compute {
  double alpha_us, us_per_token; /* >= 0 */
  const struct copse_compute_point *points;
  int n_points;
};

/* Returns the microseconds that so many tokens take. */
double copse_compute_us(const struct copse_compute *compute, double tokens);

/*
 * Reads {"format": "copse-compute/1", "points": [{"tokens": 0, "us": 12.5}, ...]} or, instead of
 * points, "alpha_us" and "us_per_token". The caller frees *points, which out->points borrows.
 * COPSE_BAD_INPUT with the line.
 */
copse_status copse_compute_parse(const char *label, const char *data, size_t size,
                                 struct copse_compute *out, struct copse_compute_point **points,
                                 struct copse_err *err) COPSE_CHECKED;

enum copse_overlap_network { COPSE_OVERLAP_ONE, COPSE_OVERLAP_SHARED };

/* Returns the time of d parts of which each takes so long in each stage; d >= 1. O(d). */
double copse_overlap_pipeline(int d, double dispatch_us, double compute_us, double combine_us,
                              enum copse_overlap_network network);

struct copse_overlap_problem {
  const struct copse_topology *topology;
  const struct copse_prediction *dispatch, *combine; /* combine NULL: as dispatch */
  double bytes;                                      /* M of the whole layer's dispatch, > 0 */
  double combine_bytes;                              /* of its combine, where there is one, > 0 */
  double tokens;                                     /* that the busiest rank computes, > 0 */
  struct copse_compute compute;
  enum copse_overlap_network network;
  const int *degrees; /* [n_degrees] 1 .. COPSE_OVERLAP_MAX_DEGREE */
  int n_degrees;      /* > 0 */
};

struct copse_overlap_row {
  int degree;
  double dispatch_us, compute_us, combine_us; /* of one part */
  double total_us;                            /* of the step */
};

/*
 * Predicts the step for every degree: rows [n_degrees], in the order given. *best is the index
 * of the shortest; of equal ones the smallest degree. COPSE_INVALID, and what the simulator
 * returns. Deterministic, one thread.
 */
copse_status copse_overlap_choose(const struct copse_overlap_problem *problem,
                                  struct copse_overlap_row *rows, int *best,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Predicts the dispatch of an alltoall schedule and its combine: the transposed alltoall, with
 * every path the other way round. A uniform alltoall is its own combine: then *n is 1, else 2.
 * options NULL: the defaults. The caller frees both with copse_predictions_free. COPSE_UNSUPPORTED
 * where a link has no opposite; COPSE_INVALID for other collectives and for compact schedules.
 */
copse_status copse_overlap_predict(const struct copse_schedule *schedule,
                                   const struct copse_topology *topology,
                                   const struct copse_predict_options *options,
                                   struct copse_prediction predictions[2], int *n,
                                   struct copse_err *err) COPSE_CHECKED;

/* Computes what the busiest rank receives, as a multiple of M, its own block included: 1 if
 * uniform. So M of the combine is this times M of the dispatch. */
copse_status copse_overlap_busiest_share(const struct copse_schedule *schedule, double *share,
                                         struct copse_err *err) COPSE_CHECKED;
