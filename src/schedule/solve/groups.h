/*
 * From groups of ranks on one fabric to schedules that reach their joint optimum.
 */
#ifndef COPSE_SCHEDULE_SOLVE_GROUPS_H
#define COPSE_SCHEDULE_SOLVE_GROUPS_H

#include "schedule/groups.h"
#include "schedule/solve/solve.h"

struct copse_solve_groups_options {
  bool exclude;    /* GPUs that are not of a group, and their links, are not used for it; else
                      they relay */
  bool bound_only; /* the rate and its proof; each schedule is the bound of its group alone */
  bool no_symmetry;
  const char *label, *groups_label; /* name the files in messages */
  const struct copse_progress *progress;
};

/*
 * The schedules of all groups for the largest common rate (solver/joint.h), and the proof of it.
 * Groups may overlap. The caller releases *out. COPSE_INFEASIBLE naming the group's line and two
 * of its ranks; COPSE_BAD_INPUT for a relay that is not balanced; COPSE_UNSUPPORTED for more groups
 * and links than the programme can take; COPSE_NOMEM where it takes too many steps. Deterministic.
 *
 * The time is the bound, unless the optimum's fractions don't fit 64 bits, which leaves a gap of
 * about 1e-9, or some switches copy or add: no use is made of those, but what they save counts
 * (loads.h), and the bound allows for more.
 */
copse_status copse_solve_groups(const struct copse_topology *topology,
                                const struct copse_group *groups, int n,
                                const struct copse_solve_groups_options *options,
                                struct copse_groups **out, struct copse_solve_seconds *seconds,
                                struct copse_err *err) COPSE_CHECKED;

#endif
