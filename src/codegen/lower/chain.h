/*
 * Inside src/codegen only: the chains of an alltoall. A chain is the ranks along which one
 * piece of one pair's block travels; paths that differ only in relays are one chain.
 */
#ifndef COPSE_CODEGEN_LOWER_CHAIN_H
#define COPSE_CODEGEN_LOWER_CHAIN_H

#include "schedule/schedule.h"

struct copse_chain {
  int n;
  const int *ranks;      /* [n], from sender to receiver; n = 1: a rank's own block */
  struct copse_q lo, hi; /* of the pair's block */
};

struct copse_chains {
  int n_chains;
  struct copse_chain *chains; /* by distance from sender to receiver, then by sender */
  struct copse_arena arena;
};

/*
 * All chains of a uniform alltoall, own blocks included, each cut into `instances` equal
 * parts. COPSE_UNSUPPORTED for a demand matrix and for a compact schedule.
 */
copse_status copse_chains_make(const struct copse_schedule *schedule, int instances,
                               struct copse_chains *out, struct copse_err *err) COPSE_CHECKED;
void copse_chains_free(struct copse_chains *chains);

#endif
