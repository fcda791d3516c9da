/* Maximum flow on a graph whose capacities change between runs: the solver's one
 * oracle, asked thousands of times on the same graph. */
#pragma once

#include "base/err.h"
#include "solver/network/network.h"

/* No capacity, flow or sum of capacities at a node may reach this. */
#define COPSE_FLOW_MAX ((int64_t)1 << 61)

struct copse_flow;

/* Makes a graph; the caller frees *out in every case. */
copse_status copse_flow_new(int n_nodes, struct copse_flow **out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_flow_free(struct copse_flow *flow);
/* Frees at the end of a scope (COPSE_AT_END). */
static inline void copse_flow_free_at(struct copse_flow **flow) { copse_flow_free(*flow); }
int64_t copse_flow_links(const struct copse_flow *flow); /* pairs of nodes with an arc */

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

/* Drops arcs without capacity, so that later runs don't walk over them. */
void copse_flow_compact(struct copse_flow *flow);

/* Computes the value of a maximum flow from s to t, cut off at `limit`. Dinic's algorithm (E. A.
 * Dinic, 1970), levels from the sink: O(n^2 m) at worst, a few sweeps in practice. The capacities
 * are not changed. */
int64_t copse_flow_max(struct copse_flow *flow, int s, int t, int64_t limit);

/* Makes copse_flow_on_source_side tell the sides of the minimum cut nearest to t, after a run to t
 * that reached its limit, where the limit is the most that can leave s. Only until the flow is
 * changed. */
void copse_flow_find_sides(struct copse_flow *flow, int t);

/* Whether `node` is on the source's side of the minimum cut that is nearest to the sink, after a
 * run that did not reach its limit. */
bool copse_flow_on_source_side(const struct copse_flow *flow, int node);

/* ==== one flow per sink ======================================================================= */

/*
 * The proof that everything else leans on: from a source of all roots enough flows to every sink.
 */

/*
 * Makes the graph of a network: links of capacities [n_links] (NULL: the network's) times `scale`,
 * and a source, node n_nodes, joined to each root by its weight times `rate`. *demand is what
 * leaves the source, COPSE_OVERFLOW where that is too much for exact flows. The caller frees *out
 * in every case.
 */
copse_status copse_sinks_graph(const struct copse_network *network, const int64_t *capacities,
                               int64_t scale, int64_t rate, struct copse_flow **out,
                               int64_t *demand, struct copse_err *err) COPSE_CHECKED;

/*
 * What is asked: whether all that leaves `source` on a graph flows to each of `sinks`. The answer
 * is the first `most` sinks, by their place, that fall short; with `tight` also all others up to
 * there, for the sake of their cuts.
 *
 * Every cut that keeps v from the source keeps u from it, or v from u. So where the demand flows
 * from u to v and back, which for neighbours on one switch is seen from a few capacities, u stands
 * for v: they fall short together, and by the same cut. With `tight` a little more than the demand
 * must flow between them, so that no narrow cut keeps them apart either.
 */
struct copse_sink_question {
  int source;
  int64_t demand;   /* the capacities of the links that leave the source, in sum */
  const int *sinks; /* [n_sinks] */
  int n_sinks;
  int start; /* places are counted on from this one and around */
  int most;
  bool tight;
  int threads; /* at most; 0: one per processor */
};

/* The minimum cut nearest to a sink: what it lets through, and the nodes on the sink's side. */
struct copse_sink_cut {
  int place; /* of the sink in question.sinks */
  int64_t flows;
  unsigned char *inside; /* [n_nodes of the graph] */
};

/* Threads' graphs and the answer. Zero-initialise to start. */
struct copse_sinks {
  struct sinks_state *state;
  int n_cuts;                  /* the answer to the last question, by place */
  struct copse_sink_cut *cuts; /* [n_cuts] */
};

/*
 * Answers a question about `flow`. Each sink's flow goes on from the one before (move_flow);
 * the sinks are shared by that many threads, each on a copy of the graph.
 * The answer depends neither on how many there are nor on where the flows came from: the minimum
 * cut nearest to a sink is one and the same. The cuts are owned by `sinks`, valid until the next
 * question.
 */
copse_status copse_sinks_ask(struct copse_sinks *sinks, struct copse_flow *flow,
                             const struct copse_sink_question *question,
                             struct copse_err *err) COPSE_CHECKED;
void copse_sinks_free(struct copse_sinks *sinks);
