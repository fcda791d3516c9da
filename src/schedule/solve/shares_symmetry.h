/* Inside src/schedule only: free shares of a fabric that has symmetries. */
#ifndef COPSE_SCHEDULE_SOLVE_SHARES_SYMMETRY_H
#define COPSE_SCHEDULE_SOLVE_SHARES_SYMMETRY_H

#include "schedule/solve/symmetry.h"
#include "schedule/solve/instance.h"
#include "solver/joint/shares.h"

/* Of more ranks it takes more than a second or two to find the symmetries. */
#define COPSE_SYMMETRY_RANKS 2048

/* Those of the topology with all ranks alike; copse_groups_symmetries says more. */
copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_permutation **out, int *n_out,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * The same as copse_shares_find, by a programme with one column for all that symmetries of the
 * topology map to each other (solver/joint.h): small where few kinds of ranks and links are left,
 * as with one slow NIC among a thousand. Shares of ranks that are alike are the same. The proof has
 * the cuts' images one by one. `instance` is the topology's, all ranks roots. loose: NULL, or
 * [n_nodes] relays that need not be balanced, as copse_mark_loose has them; then the rate and its
 * proof are all there is of the result.
 *
 * COPSE_SHARES_TOO_LARGE without symmetries, or with too many kinds of links or images of cuts.
 * The caller frees *out in every case. COPSE_NOMEM.
 */
copse_status copse_free_shares_by_symmetry(const struct copse_topology *topology,
                                           const struct copse_instance *instance,
                                           const struct copse_shares_options *options,
                                           const bool *loose, struct copse_shares *out,
                                           struct copse_err *err) COPSE_CHECKED;

#endif
