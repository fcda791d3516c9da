/* Inside src/schedule/solve only: from the solver's forests to the trees of a schedule. */
#pragma once

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/trees/forest.h"

/*
 * Adds the trees of a forest on these terminals to the schedule's, turned around for a reduce
 * phase; one of multiplicity m has m * unit of the data. Its edges join ranks: a relay among the
 * terminals is reached by the path of the edge that enters it.
 */
copse_status copse_add_trees(const struct copse_topology *topology,
                             const struct copse_forest *forest, int n_terminals, bool reduce,
                             struct copse_q unit, struct copse_schedule *schedule,
                             struct copse_err *err) COPSE_CHECKED;

/*
 * Finds a part of all links with smaller whole numbers, so that it makes fewer trees: shares
 * rounded to `to->whole` in all, and links to what carries them within (1 + within) times the
 * time. All ranks are roots. *found: whether there is one, of a few that are tried; *to is in the
 * arena.
 */
copse_status copse_round_part(const struct copse_instance *instance,
                              const struct copse_joint_part *part, struct copse_q within,
                              struct copse_arena *arena, struct copse_joint_part *to, bool *found,
                              struct copse_err *err) COPSE_CHECKED;

/* Parts of an instance's links; each has of[i].rate / rate of the data, one part alone all of it.
 */
struct copse_tree_parts {
  const struct copse_joint_part *of; /* [n] */
  int n;
  struct copse_q rate;
  const struct copse_joint_group
      *groups; /* [n] what their trees reach besides the ranks, or NULL */
};

/* Makes trees within the parts, all ranks roots, in the place of any others of the schedule, with
 * their time and k. */
copse_status copse_solve_trees_in_parts(const struct copse_topology *topology,
                                        const struct copse_solve_options *options,
                                        const struct copse_instance *instance,
                                        const struct copse_tree_parts *parts,
                                        struct copse_schedule *schedule,
                                        struct copse_solve_seconds *seconds,
                                        struct copse_err *err) COPSE_CHECKED;

/* Finds the smallest k whose best phase is within the options' tolerance; 0 (exact) if none is. */
copse_status copse_smallest_k(const struct copse_topology *topology,
                              const struct copse_solve_options *options, bool reversed, int64_t *k,
                              struct copse_err *err) COPSE_CHECKED;
