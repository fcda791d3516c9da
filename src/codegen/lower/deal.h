/*
 * Inside src/codegen only: dealing a rank's roles to its workers. A role is what one rank does
 * for one piece; what it costs is the data that it moves. Each rank deals for itself: who has
 * little to do for one piece has more to do for another.
 */
#ifndef COPSE_CODEGEN_LOWER_DEAL_H
#define COPSE_CODEGEN_LOWER_DEAL_H

#include <stddef.h>

#include "base/memory.h"

/* A role that only waits costs this part of one that reads or writes the piece once. */
#define COPSE_DEAL_WAIT 0.02

struct copse_deal_role {
  double cost;
  int key;    /* the caller's name for it; roles that cost the same are dealt in its order */
  int worker; /* the answer, from 0 */
};

/*
 * Largest first to the least loaded worker (Graham's rule). Sorts the roles. *most: raised to
 * the largest load of a worker. O(n log n + n n_workers).
 */
copse_status copse_deal(struct copse_deal_role *roles, size_t n, int n_workers, double *most,
                        struct copse_err *err) COPSE_CHECKED;

/* How well a cut into so many instances can be dealt. */
struct copse_deal_outcome {
  double balance;    /* the busiest rank's work over what its workers could do in the same time */
  double per_worker; /* roles */
  int64_t roles;
};

/* Cuts into so many instances (below 0: see copse_units_make), instead of how it was cut before. */
typedef copse_status (*copse_deal_cut)(void *lowering, int instances,
                                       struct copse_deal_outcome *outcome, struct copse_err *err);

/*
 * Cuts into `instances`; COPSE_LOWER_AUTO: into the fewest with which all workers have about as
 * much to do, or into the best of those tried if none keeps them all busy.
 */
copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
