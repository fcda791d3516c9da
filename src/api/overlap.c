/* The public API of adaptive pipelining. */
#include "predict/overlap.h"

static copse_status predict(const copse_topology *topology, const copse_schedule *alltoall,
                            const copse_moe_layer *layer, struct copse_overlap_row *rows, int *best,
                            struct copse_err *err) {
  static const int degrees[] = {1, 2, 4, 8, 16, 32, 64};
  struct copse_sim_dag dispatch = {0}, combine = {0};
  double share;
  copse_status status;
  if (alltoall->collective != COPSE_ALLTOALL || alltoall->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "the schedule must be an alltoall's, and not compact");
  COPSE_TRY(copse_sim_dag_of_schedule(alltoall, topology, &dispatch, err));
  if (alltoall->demand) COPSE_TRY(copse_overlap_add_combine(alltoall, topology, &combine, err));
  COPSE_TRY(copse_overlap_busiest_share(alltoall, &share, err));
  struct copse_overlap_problem problem = {
      .topology = topology,
      .dispatch = &dispatch,
      .combine = alltoall->demand ? &combine : NULL,
      .bytes = layer->bytes,
      .tokens = layer->tokens * share,
      .compute = {.alpha_us = layer->alpha_us, .us_per_token = layer->us_per_token},
      .network = COPSE_OVERLAP_ONE,
      .degrees = degrees,
      .n_degrees = (int)(sizeof degrees / sizeof *degrees)};
  status = copse_overlap_choose(&problem, rows, best, err);
out:
  copse_sim_dag_free(&dispatch);
  copse_sim_dag_free(&combine);
  return status;
}

copse_status copse_overlap_degree(const copse_topology *topology, const copse_schedule *alltoall,
                                  const copse_moe_layer *layer, int *degree, double *step_us,
                                  double *plain_us) {
  struct copse_overlap_row rows[8];
  struct copse_err err = COPSE_ERR_INIT;
  copse_status status;
  int best;
  if (!topology || !alltoall || !layer || !degree)
    status = copse_fail(&err, COPSE_INVALID, "a NULL argument");
  else
    status = predict(topology, alltoall, layer, rows, &best, &err);
  if (status != COPSE_OK) return copse_publish_error(&err);
  *degree = rows[best].degree;
  if (step_us) *step_us = rows[best].total_us;
  if (plain_us) *plain_us = rows[0].total_us;
  return COPSE_OK;
}
