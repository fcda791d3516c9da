#include "predict/comparison.h"

static copse_status add_schedule(const struct copse_schedule *schedule,
                                 const struct copse_topology *topology, struct copse_prediction *p,
                                 struct copse_err *err) {
  p->name = "copse";
  p->time_per_GB = schedule->time_per_GB;
  return copse_sim_dag_of_schedule(schedule, topology, &p->dag, err);
}

static copse_status add_baseline(const struct copse_baseline_options *like,
                                 const struct copse_topology *topology, enum copse_baseline kind,
                                 struct copse_prediction *p, struct copse_err *err) {
  struct copse_schedule *schedule = NULL;
  p->name = copse_baseline_name(kind);
  copse_status status = copse_baseline_make(topology, kind, like, &schedule, &p->dag, &p->why);
  if (status == COPSE_OK) p->time_per_GB = schedule->time_per_GB;
  copse_schedule_release(schedule);
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW)
    return COPSE_OK; /* said beside the others */
  return copse_fail(err, status, "%s", p->why.text);
}

copse_status copse_predict_baselines(const struct copse_baseline_options *like,
                                     const struct copse_topology *topology,
                                     struct copse_prediction predictions[COPSE_MAX_PREDICTIONS],
                                     int *n, struct copse_err *err) {
  struct copse_baseline_shared shared = {0};
  struct copse_baseline_options options = *like;
  copse_status status = COPSE_OK;
  if (!options.shared) options.shared = &shared;
  for (int kind = 0; kind < COPSE_N_BASELINES; kind++) {
    if (!copse_baseline_exists((enum copse_baseline)kind, like->collective)) continue;
    predictions[*n] = (struct copse_prediction){0};
    COPSE_TRY(
        add_baseline(&options, topology, (enum copse_baseline)kind, &predictions[(*n)++], err));
  }
out:
  copse_baseline_shared_free(&shared);
  return status;
}

copse_status copse_predict(const struct copse_schedule *schedule,
                           const struct copse_topology *topology, bool baselines,
                           struct copse_prediction predictions[COPSE_MAX_PREDICTIONS], int *n,
                           struct copse_err *err) {
  const struct copse_baseline_options like = {.collective = schedule->collective,
                                              .root = schedule->root,
                                              .demand = schedule->demand,
                                              .like = schedule};
  copse_status status;
  *n = 0;
  predictions[0] = (struct copse_prediction){0};
  COPSE_TRY(add_schedule(schedule, topology, &predictions[(*n)++], err));
  if (baselines) COPSE_TRY(copse_predict_baselines(&like, topology, predictions, n, err));
out:
  return status;
}

void copse_predictions_free(struct copse_prediction *predictions, int n) {
  for (int i = 0; i < n; i++) copse_sim_dag_free(&predictions[i].dag);
}
