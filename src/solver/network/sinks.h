/*
 * The proof that everything else leans on: from a source of all roots enough flows to every sink.
 */
#pragma once

#include "solver/network/flow.h"
#include "solver/network/network.h"

/*
 * The graph of a network: links of capacities [n_links] (NULL: the network's) times `scale`, and
 * a source, node n_nodes, joined to each root by its weight times `rate`. *demand is what leaves
 * the source, COPSE_OVERFLOW where that is too much for exact flows. The caller frees *out in every
 * case.
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
 * Answers a question about `flow`. Each sink's flow goes on from the one before (copse_flow_move);
 * the sinks are shared by that many threads, each on a copy of the graph.
 * The answer depends neither on how many there are nor on where the flows came from: the minimum
 * cut nearest to a sink is one and the same. The cuts are owned by `sinks`, valid until the next
 * question.
 */
copse_status copse_sinks_ask(struct copse_sinks *sinks, struct copse_flow *flow,
                             const struct copse_sink_question *question,
                             struct copse_err *err) COPSE_CHECKED;
void copse_sinks_free(struct copse_sinks *sinks);
