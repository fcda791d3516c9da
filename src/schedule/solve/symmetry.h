/*
 * Symmetries as solvers take them (topology/symmetry/symmetry.h finds them): of a topology for
 * trees, and of a fabric for groups at work on it.
 */
#ifndef COPSE_SCHEDULE_SOLVE_SYMMETRY_H
#define COPSE_SCHEDULE_SOLVE_SYMMETRY_H

#include "schedule/groups.h"
#include "schedule/schedule.h"
#include "solver/network/network.h"
#include "topology/symmetry/symmetry.h"

/* Where every rank is a root of the same weight; zero-initialised, or without generators: none. */
struct copse_solve_symmetry {
  struct copse_symmetry found;
  struct copse_network_symmetry network; /* its generators, for trees of base roots */
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

/*
 * Symmetries of the topology that take each group to one of the same collective, ranks to its
 * ranks, root to root: all are `others`, with `groups` [n]. As many orbits of ranks become one as a
 * search without backtracking finds. The caller frees *out with copse_symmetry_free.
 */
copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;
/* The same with all ranks as one group. */
copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;

#endif
