/*
 * A topology as the solver sees it: integer capacities, terminals, roots; and what is alike in it
 * (topology/symmetry/symmetry.h) for groups at work on it.
 */
#ifndef COPSE_SCHEDULE_SOLVE_INSTANCE_H
#define COPSE_SCHEDULE_SOLVE_INSTANCE_H

#include "schedule/groups.h"
#include "solver/network/network.h"
#include "topology/symmetry/symmetry.h"

/*
 * Node and link numbers are the topology's. `reversed` turns every link around: a reduce
 * phase is a broadcast phase on the reversed graph (docs/theory.md, "src/schedule").
 */
struct copse_instance {
  struct copse_network network;
  int64_t scale; /* capacity = bandwidth * scale: the LCM of the denominators */
  struct copse_net_link *links;
  struct copse_net_root *roots;
  struct copse_arena arena;
};

/*
 * root < 0: every rank is a root of weight 1. Refuses relays that are not balanced, naming
 * the relay and both sums (COPSE_BAD_INPUT with `label` as the place), and bandwidths
 * whose common denominator overflows (COPSE_OVERFLOW). The topology is borrowed. *out
 * is to be freed in every case.
 */
copse_status copse_instance_make(const struct copse_topology *topology, const char *label, int root,
                                 bool reversed, struct copse_instance *out,
                                 struct copse_err *err) COPSE_CHECKED;
/* The same for flows, which need no balanced relays: every rank a terminal, no roots. */
copse_status copse_instance_scale(const struct copse_topology *topology, struct copse_instance *out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_instance_free(struct copse_instance *instance);

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
