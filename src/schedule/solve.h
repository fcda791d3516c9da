/*
 * From a topology to an optimal schedule.
 */
#ifndef COPSE_SCHEDULE_SOLVE_H
#define COPSE_SCHEDULE_SOLVE_H

#include "schedule/schedule.h"
#include "solver/network.h"
#include "topology/topology.h"

struct copse_solve_options {
  copse_collective collective;
  int root;          /* broadcast, reduce; else -1 */
  int64_t k;         /* 0: exact; else exactly this many trees per root */
  bool bound_only;          /* no trees or flows; time_per_GB is the optimum */
  const int64_t *demand;    /* alltoall: [n_ranks * n_ranks] bytes, NULL: uniform */
  bool no_forward;          /* alltoall: ranks do not relay */
  bool no_symmetry;         /* alltoall: do not look for a rotation of hosts */
  bool equal_shares;        /* allreduce: 1/N per root also where unequal shares are faster */
  struct copse_q tolerance; /* trees: the fewest per root within this of the optimum; alltoall:
                               stop within this of the bound; 0: exact */
  const char *label; /* names the topology's file in messages */
  const struct copse_progress *progress;
};

struct copse_solve_seconds {
  double optimum, split, pack;
};

/*
 * A permutation of the topology's nodes that turns host i into host i + 1 (node ids "hI.x"),
 * proved: links go to links of equal bandwidth, ranks to ranks, none stays in place.
 * *image is NULL and *order 1 where there is none. The caller frees *image.
 */
copse_status copse_find_host_rotation(const struct copse_topology *topology, int *order,
                                      int **image, struct copse_err *err) COPSE_CHECKED;

/* The alltoall part of copse_solve_schedule: flows instead of trees. `schedule` is named and
 * empty. */
copse_status copse_solve_alltoall(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule *schedule,
                                  struct copse_solve_seconds *seconds, struct copse_err *err)
    COPSE_CHECKED;

/*
 * Computes the exactly optimal schedule (with options.k: the best of k trees per root) and
 * the cut that proves the optimum. An allreduce is a reduce_scatter and an allgather with
 * equal shares, each optimal; its time_per_GB is the most loaded link's with both loads
 * added, so at most the sum of the two. Without k and tolerance, and where
 * unequal shares are faster, the roots have those of the best pair of forests with common
 * shares (solver/shares.h), unless equal_shares; such are not looked for beyond 1,200 ranks and
 * links. An alltoall is a maximum concurrent flow, exact
 * where the solver's numbers turn out to be fractions, else with a stated tiny gap.
 * The caller frees *out. COPSE_INFEASIBLE naming two ranks; COPSE_BAD_INPUT for an
 * unbalanced relay; COPSE_INVALID for a root out of range; COPSE_OVERFLOW; COPSE_NOMEM.
 * Deterministic: the same topology gives the same bytes.
 */
copse_status copse_solve_schedule(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
