/*
 * Local exchange: a forest whose trees each go as one chunk, improved edge by edge under the
 * simulator's rules for one message size.
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/route.h"
#include "topology/symmetry/symmetry.h"

struct copse_exchange {
  const struct copse_topology *topology;
  const struct copse_routes *routes; /* of plans: a way over relays alone is a hop */
  const struct copse_symmetry
      *symmetry; /* what all ranks' trees are kept alike under; may be NULL */
  const struct copse_schedule_tree
      *trees;        /* [n_trees] to begin with: of one phase, in the topology's
                        numbers; of like roots the first one's count */
  int n_trees, root; /* root: of all, or -1 */
  double bytes, alpha_us;
  bool alpha_occupies; /* as in simulate.h */
  bool far_first;      /* as the schedule's objective has it */
  int pieces;          /* trees of a root to begin with, at least: trees are cut to be so many */
  int most_transfers;  /* of all trees; twice as many pieces are tried while they are not more */
  double grow;         /* > 0: begins with trees of its own, of the same roots and shares, and looks
                          for better ones for so much work, once at least */
  double enough_us;    /* no schedule is faster */
  double beat_us;      /* of no use is what is not faster */
  double message_us;   /* trees are not cut so small that they take a link for less */
  bool fold;     /* the images of a tree may be taken to fare alike: then *us is about right */
  bool
      counts_more; /* an event counts as the time that few transfers of a root take it (policy.h) */
  uint64_t seed; /* another one tries other moves */
  double work;   /* stop after so much, in steps of the simulator: chunks times links */
};

/*
 * Sets *trees [*n], in `arena`, to all trees, in order, and *us to what the simulator says of them
 * in one chunk. Where none can be faster than beat_us, *us is INFINITY, and *trees are as they
 * were. What it took is added to *work. Only floats choose; what comes out is a forest by
 * construction. COPSE_UNSUPPORTED where that is not for the schedule.
 */
copse_status copse_exchange_edges(const struct copse_exchange *exchange, struct copse_arena *arena,
                                  const struct copse_schedule_tree **trees, int *n, double *us,
                                  double *work, struct copse_err *err) COPSE_CHECKED;
