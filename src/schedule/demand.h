/*
 * Demand of an alltoall: how many bytes each rank sends to each.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/rational.h"

/*
 * Reads {"format": "copse-demand/1", "bytes": [[...]]}: n_ranks rows of n_ranks integers
 * >= 0. The diagonal (a rank to itself) moves nothing over links; it is kept, and counts
 * in M as NCCL counts it. The caller frees *bytes. COPSE_BAD_INPUT for a matrix that is not
 * square or of another size, negative, fractional or too large entries, and all zero.
 */
copse_status copse_demand_parse(const char *label, const char *data, size_t size, int n_ranks,
                                int64_t **bytes, struct copse_err *err) COPSE_CHECKED;

/* Computes M: the largest row sum, the diagonal included. COPSE_OVERFLOW. */
copse_status copse_demand_total(const int64_t *bytes, int n_ranks, int64_t *m,
                                struct copse_err *err) COPSE_CHECKED;

/* Computes the fraction of M that src sends to dst; uniform (1/n) where bytes is NULL. */
static inline copse_status copse_demand_share(const int64_t *bytes, int n_ranks, int64_t m, int src,
                                              int dst, struct copse_q *share,
                                              struct copse_err *err) {
  if (!bytes) return copse_q_make(1, n_ranks, share, err);
  return copse_q_make(bytes[(size_t)src * (size_t)n_ranks + (size_t)dst], m, share, err);
}
