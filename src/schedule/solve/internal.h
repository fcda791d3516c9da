/*
 * Inside src/schedule/solve*.c only: a schedule of trees while it is being made.
 *
 *   solve_start.c      begin and end
 *   solve_phases.c     each phase as the solver's forest
 *   solve_trees.c      forests as trees of the schedule
 *   solve_bound.c      the optimum and its certificate
 *   solve_tolerance.c  fewer trees
 *   solve_faster.c     an allreduce's unequal shares, switches that copy or add
 *   solve_part.c       trees within a part of the links
 *   solve.c            all of it, in order
 */
#ifndef COPSE_SCHEDULE_SOLVE_INTERNAL_H
#define COPSE_SCHEDULE_SOLVE_INTERNAL_H

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
  bool templates;                       /* trees of base roots are made, */
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
/* One of them. `reversed`: links turned around. */
copse_status copse_solving_phase(struct copse_solving *b, bool reversed,
                                 struct copse_solved_phase *phase,
                                 struct copse_solve_seconds *seconds,
                                 struct copse_err *err) COPSE_CHECKED;
void copse_solving_free_phases(struct copse_solving *b);

/* The smallest k whose best phase is within the options' tolerance; 0 (exact) if none is. */
copse_status copse_solving_smallest_k(const struct copse_solving *b, bool reversed, int64_t *k,
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

/* ---- better ones ------------------------------------------------------------------------- */

/*
 * Unequal shares where they are faster. Also where they are not, but today's bound leaves open
 * whether anything is: then only the bound changes. Where switches are marked the programme, which
 * counts every copy, has trees but no bound.
 */
copse_status copse_solving_free_shares(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                       struct copse_err *err) COPSE_CHECKED;

/* One copy into switches that copy, one out of those that add, where that is faster. The bound is
 * one that holds for any allreduce, or for any trees; if neither is reached without such switches,
 * what was said before stands. */
copse_status copse_solving_switches(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                    struct copse_err *err) COPSE_CHECKED;
/* Which switches the trees' time counts on, if any. */
copse_status copse_solving_list_switches(struct copse_solving *b,
                                         struct copse_err *err) COPSE_CHECKED;

/* A tolerance chooses among equal shares. Where unequal ones are so much faster that those are
 * outside it, the exact schedule takes their place. `options`: as they were given. */
copse_status copse_solving_meet_tolerance(struct copse_solving *b,
                                          const struct copse_solve_options *options,
                                          struct copse_err *err) COPSE_CHECKED;

#endif
