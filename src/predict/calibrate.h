/*
 * The costs of the model (predict/README.md) that give measured times of a plan back: a profile
 * (topology/input/profile.h) is fitted to the times of several sizes.
 *
 *   small messages --> hop_us            large ones --> scale, of all links' bandwidth
 *
 * The two are those for which the logarithms of simulated over measured times are least, in the sum
 * of their squares, by Levenberg and Marquardt's method. What the times do not tell stays at its
 * default: message_us, reduce_GBps and duplex in any case, since they add up with the two.
 */
#pragma once

#include "predict/predict.h"

#define COPSE_CALIBRATED_SIZES 64

struct copse_calibration {
  bool has_hop, has_scale; /* measured; else the default */
  double hop_us;
  struct copse_q scale; /* of all links */
  double off;           /* the most that a simulated time is over or below its measured one: 0.05 */
  int worst;            /* that size */
  bool is_far;          /* it is so much that the costs hardly describe the plan: FIT_FAR */
};

/*
 * Fits the costs to us [n] of messages of bytes [n], ascending, that the plan took, and simulates
 * it with these: simulated_us [n]. COPSE_INVALID, with the reason, where the times do not tell a
 * hop from links: fewer than two sizes, or sizes that lie too near; times that do not grow, or fall
 * by half or more from one size to a larger one. Others as copse_predict_plan.
 */
copse_status copse_calibrate(const char *label, const struct copse_topology *topology,
                             const struct copse_plan *plan, const double *bytes, const double *us,
                             int n, struct copse_calibration *out, double *simulated_us,
                             struct copse_err *err) COPSE_CHECKED;

/* Adds the profile, whose source is that text. */
void copse_calibration_add_profile(const struct copse_calibration *calibration, const char *source,
                                   struct copse_text *text);
