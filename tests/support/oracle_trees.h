/*
 * The optimum of tree collectives on a small fabric by an LP whose columns are all trees that there
 * are, each with the load that the format gives it. Knows nothing of cuts and splitting.
 */
#ifndef COPSE_TESTS_ORACLE_TREES_H
#define COPSE_TESTS_ORACLE_TREES_H

#include "copse/copse.h"
#include "topology/topology.h"

/* T/M of an allgather, reduce_scatter or allreduce (whose roots share as they like), to about 1e-8
 * relative. At most 4 ranks, and few ways between them. */
double copse_test_all_trees_time(const struct copse_topology *topology,
                                 copse_collective collective);

/* The same over the ways that hardware takes: inside the host "h12." of both where there is one, of
 * the fewest links, of these the widest. */
double copse_test_routed_trees_time(const struct copse_topology *topology,
                                    copse_collective collective);

#endif
