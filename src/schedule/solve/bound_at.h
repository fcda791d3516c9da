/*
 * Bounds for every size: what no schedule beats for a message of some bytes, latencies and alpha
 * counted (struct copse_bound_at; docs/theory.md, "Every size").
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/topology.h"

/* What is the same for all sizes: symmetries, distances, the networks. */
struct copse_bounds;

/*
 * Prepares the bounds of a collective on a topology (borrowed) and a root (-1 where it has none),
 * with alpha_us of software latency for each hop from rank to rank. schedule (may be NULL, not
 * kept): one of the same, whose own bound is put to use; an alltoall's demand, and the lengths
 * that prove it. COPSE_OVERFLOW where latencies or bandwidths have no common denominator in 63
 * bits. The caller frees *out.
 */
copse_status copse_bounds_new(const struct copse_topology *topology, copse_collective collective,
                              int root, struct copse_q alpha_us,
                              const struct copse_schedule *schedule, struct copse_bounds **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_bounds_free(struct copse_bounds *bounds);
static inline void copse_bounds_free_at(struct copse_bounds **bounds) {
  copse_bounds_free(*bounds);
}

/*
 * Finds the best bound, with its proof in memory of the arena; nodes are the topology's. A single
 * rank: 0 us without a proof. Of many ranks one of each kind is asked for, and not all sets of
 * senders are: there may be better bounds, and this is one in any case. COPSE_INFEASIBLE where a
 * rank can't be reached, COPSE_OVERFLOW.
 */
copse_status copse_bounds_at(struct copse_bounds *bounds, int64_t bytes, struct copse_arena *arena,
                             struct copse_bound_at *out, struct copse_err *err) COPSE_CHECKED;

/* Does both in one, for a single size. */
copse_status copse_bound_at(const struct copse_topology *topology, copse_collective collective,
                            int root, int64_t bytes, struct copse_q alpha_us,
                            struct copse_arena *arena, struct copse_bound_at *out,
                            struct copse_err *err) COPSE_CHECKED;
