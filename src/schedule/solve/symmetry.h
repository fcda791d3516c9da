/* Inside src/schedule only: symmetries of a topology as the solver of trees takes them. */
#ifndef COPSE_SCHEDULE_SOLVE_SYMMETRY_H
#define COPSE_SCHEDULE_SOLVE_SYMMETRY_H

#include "schedule/schedule.h"
#include "solver/network/network.h"
#include "topology/symmetry/symmetry.h"

/* Where every rank is a root of the same weight; zero-initialised, or without generators: none. */
struct copse_solve_symmetry {
  struct copse_symmetry found;
  struct copse_rotation *generators;     /* the same, as `network` has them */
  struct copse_network_symmetry network; /* for trees of base roots */
  int *sinks, n_sinks;                   /* the first rank's node of each orbit */
};

copse_status copse_solve_symmetry_find(const struct copse_topology *topology,
                                       struct copse_solve_symmetry *out,
                                       struct copse_err *err) COPSE_CHECKED;
void copse_solve_symmetry_free(struct copse_solve_symmetry *symmetry);

/* Makes the schedule a compact one, of trees that are those of base roots: its time_per_GB becomes
 * that of all images. */
copse_status copse_solve_symmetry_set(const struct copse_topology *topology,
                                      const struct copse_solve_symmetry *symmetry,
                                      struct copse_schedule *schedule,
                                      struct copse_err *err) COPSE_CHECKED;

#endif
