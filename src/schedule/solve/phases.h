/* Inside src/schedule/solve only: a schedule of trees while it is being made. */
#ifndef COPSE_SCHEDULE_SOLVE_PHASES_H
#define COPSE_SCHEDULE_SOLVE_PHASES_H

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "schedule/solve/symmetry.h"
#include "solver/trees/forest.h"

/* One phase as solved: a broadcast forest, on the reversed graph for a reduce phase. */
struct copse_solved_phase {
  struct copse_instance instance;
  struct copse_forest forest;
  bool used;
};

struct copse_solving {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  struct copse_schedule *schedule;
  struct copse_solved_phase broadcast, reduce;
  struct copse_solve_symmetry symmetry; /* none for one root */
  bool orbit_trees;                     /* trees of base roots are made, */
  bool compact;                         /* and all that is listed in the end */
  struct copse_solve_options chosen;    /* options with the k that a tolerance leads to */
  bool mirrored;                        /* the reduce phase is the broadcast phase turned around */
};

/* Checks the options and makes the schedule, named and otherwise empty. */
copse_status copse_solving_start(struct copse_solving *b, struct copse_err *err) COPSE_CHECKED;
/* The schedule, which is the caller's from now on. */
struct copse_schedule *copse_solving_finish(struct copse_solving *b);
/* Gives back all but what was finished. */
void copse_solving_free(struct copse_solving *b);

/* n (0 too) things of a size, in the schedule's arena; NULL: no memory. */
void *copse_solving_take(struct copse_solving *b, int n, size_t size);

/* ---- phases ------------------------------------------------------------------------------ */

/* All phases of the collective, and by which symmetries. */
copse_status copse_solving_phases(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) COPSE_CHECKED;

/* ---- what is made of them ---------------------------------------------------------------- */

copse_status copse_solving_trees(struct copse_solving *b, struct copse_err *err) COPSE_CHECKED;

/* The phases' optimum and its cuts; an allreduce adds up its phases. */
copse_status copse_solving_bound(struct copse_solving *b, struct copse_err *err) COPSE_CHECKED;
/* Any allreduce: M must leave every set that separates ranks; the narrowest one. */
copse_status copse_solving_narrowest_bound(struct copse_solving *b,
                                           struct copse_err *err) COPSE_CHECKED;

/* Trees with given shares within a given part of the links, in the place of any others. */
copse_status copse_solving_part(struct copse_solving *b, const struct copse_instance *instance,
                                const struct copse_solve_part *part,
                                struct copse_solve_seconds *seconds,
                                struct copse_err *err) COPSE_CHECKED;

#endif
