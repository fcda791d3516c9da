/* Trees within a given part of the links. */
#include "schedule/loads.h"
#include "schedule/solve/internal.h"
#include "schedule/solve/shares.h"

static copse_status pack_part(struct copse_solving *b, bool reduce,
                              const struct copse_instance *instance,
                              const struct copse_solve_part *part, struct copse_solved_phase *phase,
                              struct copse_solve_seconds *seconds, struct copse_err *err) {
  const int64_t *capacities = reduce ? part->reduce : part->broadcast;
  struct copse_forest_options options = {.as_given = true,
                                         .progress = b->options->progress,
                                         .trust_from = b->options->trust_from};
  copse_status status = COPSE_OK;
  if (!capacities) return COPSE_OK;
  phase->used = true;
  COPSE_TRY(copse_free_shares_instance(instance, part->weights, capacities, reduce,
                                       &phase->instance, err));
  COPSE_TRY(copse_forest_solve(&phase->instance.network, &options, &phase->forest, err));
  seconds->split += phase->forest.seconds_split;
  seconds->pack += phase->forest.seconds_pack;
out:
  return status;
}

copse_status copse_solving_part(struct copse_solving *b, const struct copse_instance *instance,
                                const struct copse_solve_part *part,
                                struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_solving given = {
      .topology = b->topology, .options = b->options, .schedule = b->schedule};
  struct copse_schedule *schedule = b->schedule;
  copse_status status;
  COPSE_TRY(pack_part(b, false, instance, part, &given.broadcast, seconds, err));
  COPSE_TRY(pack_part(b, true, instance, part, &given.reduce, seconds, err));
  COPSE_TRY(copse_solving_trees(&given, err));
  schedule->n_rotations = 0; /* roots of one orbit may have unequal shares */
  COPSE_TRY(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                            &schedule->time_per_GB, err));
  schedule->k = copse_schedule_unit_k(schedule);
out:
  copse_solving_free_phases(&given);
  return status;
}

copse_status copse_solve_in_part(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 const struct copse_solve_part *part, struct copse_schedule **out,
                                 struct copse_solve_seconds *seconds, struct copse_err *err) {
  if (options->collective == COPSE_ALLTOALL)
    return copse_solve_exchange_in_part(topology, options, part, out, seconds, err);
  struct copse_solve_options bound_only = *options;
  struct copse_solving b = {.topology = topology, .options = &bound_only};
  struct copse_instance instance = {0};
  copse_status status;
  *out = NULL;
  bound_only.bound_only = true;
  COPSE_TRY(copse_solving_start(&b, err));
  COPSE_TRY(copse_solving_phases(&b, seconds, err));
  COPSE_TRY(copse_solving_bound(&b, err));
  if (options->collective == COPSE_ALLREDUCE) COPSE_TRY(copse_solving_narrowest_bound(&b, err));
  b.schedule->time_per_GB = b.schedule->bound.time_per_GB;
  if (part) {
    COPSE_TRY(copse_instance_make(topology, options->label, -1, false, &instance, err));
    COPSE_TRY(copse_solving_part(&b, &instance, part, seconds, err));
  }
  *out = copse_solving_finish(&b);
out:
  copse_solving_free(&b);
  copse_instance_free(&instance);
  return status;
}
