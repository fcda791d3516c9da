/*
 * Grouped sends and receives that are an all-to-all.
 */
#ifndef COPSE_DROPIN_EXCHANGE_H
#define COPSE_DROPIN_EXCHANGE_H

#include "base/err.h"

#include "dropin/calls.h"

/*
 * Whether calls[0 .. n-1], sends and receives of one rank on one communicator of n_ranks, are a
 * number of all-to-alls: to and from every rank, itself included, equally often; the i-th send
 * to each and the i-th receive from each all on one stream, of one type and count, and from and
 * to blocks that lie `count` elements apart in order of rank, not in place. NCCL pairs sends and
 * receives of two ranks in their order, so that is what they mean; their order in the group is any.
 * all_to_alls (room for n / (2 * n_ranks)) gets them; *n_found is 0 where it is anything else.
 * COPSE_NOMEM. Complexity: linear.
 */
copse_status copse_nccl_find_exchanges(const struct copse_nccl_call *calls, size_t n, int n_ranks,
                                       struct copse_nccl_call *all_to_alls, size_t *n_found,
                                       struct copse_err *err) COPSE_CHECKED;

#endif
