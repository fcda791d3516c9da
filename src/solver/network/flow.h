/* Maximum flow on a graph whose capacities change between runs: the solver's one
 * oracle, asked thousands of times on the same graph. */
#pragma once

#include "base/err.h"

/* No capacity, flow or sum of capacities at a node may reach this. */
#define COPSE_FLOW_MAX ((int64_t)1 << 61)

struct copse_flow;

/* The caller frees *out in every case. */
copse_status copse_flow_new(int n_nodes, struct copse_flow **out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_flow_free(struct copse_flow *flow);
/* For COPSE_AT_END. */
static inline void copse_flow_free_at(struct copse_flow **flow) { copse_flow_free(*flow); }
int copse_flow_nodes(const struct copse_flow *flow);
int64_t copse_flow_links(const struct copse_flow *flow); /* pairs of nodes that have one */

/* The same graph once more, to be run beside it but not changed; *copy is NULL or an older copy of
 * a graph with as many nodes, whose memory is used again. The caller frees it. */
copse_status copse_flow_copy(const struct copse_flow *flow, struct copse_flow **copy,
                             struct copse_err *err) COPSE_CHECKED;

/* Adds `amount` (may be negative) to the capacity of src -> dst, making the arc when it
 * isn't there. Amortised O(degree). The capacity must stay in 0..COPSE_FLOW_MAX. */
copse_status copse_flow_change(struct copse_flow *flow, int src, int dst, int64_t amount,
                               struct copse_err *err) COPSE_CHECKED;
int64_t copse_flow_capacity(const struct copse_flow *flow, int src, int dst);

/* The neighbours that `node` has links to (from), with their capacities. */
struct copse_flow_neighbours {
  int n;
  const int *nodes;          /* [n], valid until the next call on this flow */
  const int64_t *capacities; /* [n] */
};
struct copse_flow_neighbours copse_flow_leaving(struct copse_flow *flow, int node);
struct copse_flow_neighbours copse_flow_entering(struct copse_flow *flow, int node);

/* Forgets arcs without capacity, so that later runs don't walk over them. */
void copse_flow_compact(struct copse_flow *flow);

/* The value of a maximum flow from s to t, cut off at `limit`. Dinic's algorithm (E. A.
 * Dinic, 1970), levels from the sink: O(n^2 m) at worst, a few sweeps in practice. The
 * capacities are not changed. */
int64_t copse_flow_max(struct copse_flow *flow, int s, int t, int64_t limit);

/*
 * Goes on from the run before, whose flow ended at `from`: moves up to `limit` of it on to
 * `to` and returns how much that is. Where all that can leave s flows to `from`, this is all of it
 * exactly when as much can flow to `to`, and the minimum cut nearest to `to` is that of a run from
 * s: neighbours need few paths where a run from s takes one for every root.
 */
int64_t copse_flow_move(struct copse_flow *flow, int from, int to, int64_t limit);

/* Makes the last move undone, once; false where too much would have had to be remembered for it. */
bool copse_flow_take_back(struct copse_flow *flow);

/* After a run to t that reached its limit, where the limit is the most that can leave s:
 * makes copse_flow_on_source_side tell the sides of the minimum cut nearest to t. Only until
 * the flow is changed. */
void copse_flow_find_sides(struct copse_flow *flow, int t);

/* After a run that did not reach its limit: whether `node` is on the source's side of
 * the minimum cut that is nearest to the sink. */
bool copse_flow_on_source_side(const struct copse_flow *flow, int node);
