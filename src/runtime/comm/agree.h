/* Inside src/runtime: whether all processes of a communicator go on alike. */
#pragma once

#include "runtime/backend/backend.h"

/*
 * Collective over the bootstrap; without one it only returns `mine`. `mine` is how this rank has
 * fared so far (err then has the text): if anywhere it is not COPSE_OK, no rank goes on. `plans`
 * (n may be 0) are those that this rank is about to add: all ranks must have the same.
 * COPSE_REFUTED names the ranks that have failed, or whose plans differ from rank 0's.
 */
copse_status copse_agree(const struct copse_comm_shape *shape, copse_status mine,
                         const struct copse_plan *const *plans, size_t n,
                         struct copse_err *err) COPSE_CHECKED;
