/*
 * Communicators all of whose ranks live in this process: one thread makes them for all, the other
 * ranks' threads find theirs here.
 */
#ifndef COPSE_DROPIN_CLIQUE_H
#define COPSE_DROPIN_CLIQUE_H

#include "base/err.h"
#include "copse/comm.h"
#include "dropin/record.h"

/*
 * Rank `rank`'s communicator of the clique that all[0].clique names, with the plans of `folder`
 * loaded; each rank takes its own once. All ranks get the same status.
 */
copse_status copse_nccl_clique_take(const struct copse_nccl_record *all, int n_ranks, int rank,
                                    const char *folder, copse_comm **comm, int *n_plans,
                                    struct copse_err *err) COPSE_CHECKED;

#endif
