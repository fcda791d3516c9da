/* Predictions of a schedule beside those of today's algorithms on the same topology. */
#ifndef COPSE_PREDICT_COMPARISON_H
#define COPSE_PREDICT_COMPARISON_H

#include "predict/baseline.h"

#define COPSE_MAX_PREDICTIONS (1 + COPSE_N_BASELINES)

/* One algorithm; free its dag with copse_predictions_free. */
struct copse_prediction {
  const char *name;
  struct copse_sim_dag dag;
  struct copse_q time_per_GB;
  struct copse_err why; /* status COPSE_OK: it is there; else why it isn't */
};

static inline bool copse_prediction_exists(const struct copse_prediction *p) {
  return p->why.status == COPSE_OK;
}

/*
 * The schedule, which must be expanded, as "copse"; then, unless not wanted, every baseline of
 * its collective, those that don't apply to the topology with the reason.
 */
copse_status copse_predict(const struct copse_schedule *schedule,
                           const struct copse_topology *topology, bool baselines,
                           struct copse_prediction predictions[COPSE_MAX_PREDICTIONS], int *n,
                           struct copse_err *err) COPSE_CHECKED;
/* The baselines alone, after the *n that are there; of like->collective and so on. */
copse_status copse_predict_baselines(const struct copse_baseline_options *like,
                                     const struct copse_topology *topology,
                                     struct copse_prediction predictions[COPSE_MAX_PREDICTIONS],
                                     int *n, struct copse_err *err) COPSE_CHECKED;
void copse_predictions_free(struct copse_prediction *predictions, int n);

#endif
