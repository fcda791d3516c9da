/* Inside src/schedule/solve only: from the solver's forests to the trees of a schedule. */
#ifndef COPSE_SCHEDULE_SOLVE_TREES_H
#define COPSE_SCHEDULE_SOLVE_TREES_H

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/trees/forest.h"

/* A list of trees that grows, in the memory of the schedule. Zero-initialise the rest to start. */
struct copse_tree_list {
  const struct copse_topology *topology;
  struct copse_schedule *schedule;
  struct copse_schedule_tree *trees;
  size_t n, capacity;
  struct copse_err *err;
};

/*
 * Adds the trees of a forest on these terminals, turned around for a reduce phase; one of
 * multiplicity m has m * unit of the data. Its edges join ranks: a relay among the terminals is
 * reached by the path of the edge that enters it.
 */
copse_status copse_tree_list_add(struct copse_tree_list *list, const struct copse_forest *forest,
                                 int n_terminals, bool reduce, struct copse_q unit) COPSE_CHECKED;
/* Makes them the schedule's trees. */
copse_status copse_tree_list_take(struct copse_tree_list *list) COPSE_CHECKED;
void copse_tree_list_free(struct copse_tree_list *list);

/*
 * Trees within parts [n] of the links of an instance, all ranks roots, in the place of any others
 * of the schedule, with their time and k. Each part has parts[i].rate / rate of the data (one part
 * alone all of it); groups NULL, or [n]: what its trees reach besides the ranks.
 */
copse_status copse_solve_trees_in_parts(const struct copse_topology *topology,
                                        const struct copse_solve_options *options,
                                        const struct copse_instance *instance,
                                        const struct copse_joint_part *parts,
                                        const struct copse_joint_group *groups, int n,
                                        struct copse_q rate, struct copse_schedule *schedule,
                                        struct copse_solve_seconds *seconds,
                                        struct copse_err *err) COPSE_CHECKED;

#endif
