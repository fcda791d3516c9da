#include "solver/trees/optimum.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/network/sinks.h"

static int64_t total_weight(const struct copse_network *network) {
  int64_t sum = 0;
  for (int i = 0; i < network->n_roots; i++) sum += network->roots[i].weight;
  return sum;
}

/* The rate that the cut in_cut allows: capacity leaving it over the weight inside. */
static copse_status rate_of_cut(const struct copse_network *network, const bool *in_cut,
                                struct copse_q *x, struct copse_err *err) {
  int64_t leaving = 0, weight = 0;
  for (int i = 0; i < network->n_links; i++) {
    const struct copse_net_link *link = &network->links[i];
    if (!in_cut[link->src] || in_cut[link->dst]) continue;
    if (copse_add_overflows(leaving, link->capacity, &leaving))
      return copse_fail(err, COPSE_OVERFLOW, "the bandwidths of a cut add up to over 63 bits");
  }
  for (int i = 0; i < network->n_roots; i++)
    if (in_cut[network->roots[i].node]) weight += network->roots[i].weight;
  return copse_q_make(leaving, weight, x, err);
}

/* What enters each node, and the weight of its root. */
static copse_status measure_nodes(const struct copse_network *network, int64_t *entering,
                                  int64_t *weight, struct copse_err *err) {
  for (int i = 0; i < network->n_links; i++) {
    int64_t *sum = &entering[network->links[i].dst];
    if (copse_add_overflows(*sum, network->links[i].capacity, sum))
      return copse_fail(err, COPSE_OVERFLOW, "the bandwidths of a cut add up to over 63 bits");
  }
  for (int i = 0; i < network->n_roots; i++)
    weight[network->roots[i].node] = network->roots[i].weight;
  return COPSE_OK;
}

/* Start: the tightest of the cuts "everything but one terminal". */
static copse_status start_rate(const struct copse_network *network, struct copse_optimum *best,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  int64_t *entering = NULL, *weight = NULL, total = total_weight(network);
  best->x = COPSE_Q_ZERO;
  best->unreached = -1;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *entering, &entering, err));
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *weight, &weight, err));
  COPSE_TRY(measure_nodes(network, entering, weight, err));
  for (int i = 0; i < network->n_terminals; i++) {
    int v = network->terminals[i];
    struct copse_q x;
    if (total == weight[v]) continue; /* no root outside of it */
    COPSE_TRY(copse_q_make(entering[v], total - weight[v], &x, err));
    if (best->unreached >= 0 && copse_q_cmp(x, best->x) >= 0) continue;
    best->x = x;
    best->unreached = v;
  }
  if (best->unreached < 0) goto out;
  memset(best->in_cut, true, (size_t)network->n_nodes);
  best->in_cut[best->unreached] = false;
out:
  free(entering);
  free(weight);
  return status;
}

/* The cut of a sink that falls short gives the next rate; goes on from that sink, and is done
 * when none falls short. */
static copse_status newton(const struct copse_network *network,
                           const struct copse_progress *progress, struct copse_optimum *best,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_flow *flow = NULL;
  struct copse_sinks sinks = {0};
  struct copse_sink_question question = {
      .source = network->n_nodes,
      .sinks = network->sinks ? network->sinks : network->terminals,
      .n_sinks = network->sinks ? network->n_sinks : network->n_terminals,
      .most = 1,
  };
  for (int64_t round = 1; best->x.num > 0; round++) {
    COPSE_TRY(
        copse_sinks_graph(network, NULL, best->x.den, best->x.num, &flow, &question.demand, err));
    COPSE_TRY(copse_sinks_ask(&sinks, flow, &question, err));
    copse_progress_report(progress, "optimum", round, round + sinks.n_cuts);
    if (sinks.n_cuts == 0) break;
    for (int i = 0; i < network->n_nodes; i++) best->in_cut[i] = !sinks.cuts[0].inside[i];
    question.start = sinks.cuts[0].place;
    best->unreached = question.sinks[question.start];
    COPSE_TRY(rate_of_cut(network, best->in_cut, &best->x, err));
    copse_flow_free(flow);
    flow = NULL;
  }
out:
  copse_flow_free(flow);
  copse_sinks_free(&sinks);
  return status;
}

copse_status copse_optimum_find(const struct copse_network *network,
                                const struct copse_progress *progress, struct copse_optimum *out,
                                struct copse_err *err) {
  copse_status status;
  *out = (struct copse_optimum){.x = COPSE_Q_ZERO, .unreached = -1};
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, 1, &out->in_cut, err));
  if (network->n_terminals == 1) return COPSE_OK;
  COPSE_TRY(start_rate(network, out, err));
  COPSE_TRY(newton(network, progress, out, err));
  return COPSE_OK;
out:
  copse_optimum_free(out);
  return status;
}

void copse_optimum_free(struct copse_optimum *optimum) {
  free(optimum->in_cut);
  optimum->in_cut = NULL;
}

copse_status copse_optimum_scale(const struct copse_network *network, struct copse_q x,
                                 struct copse_scale *out, struct copse_err *err) {
  int64_t g = x.num; /* 1/x = den/num: n = den, d = num */
  for (int i = 0; i < network->n_links && g > 1; i++) g = copse_gcd(g, network->links[i].capacity);
  int64_t scaled;
  for (int i = 0; i < network->n_links; i++)
    if (copse_mul_overflows(network->links[i].capacity / g, x.den, &scaled) ||
        scaled > COPSE_FLOW_MAX)
      return copse_fail(err, COPSE_OVERFLOW,
                        "the exact schedule needs capacities of more than 61 bits; use fewer "
                        "digits, or --k");
  *out = (struct copse_scale){.k = x.num / g, .numerator = x.den, .divisor = g};
  return COPSE_OK;
}

copse_status copse_optimum_feasible(const struct copse_network *network, const int64_t *capacities,
                                    int64_t k, bool *feasible, struct copse_err *err) {
  copse_status status;
  struct copse_flow *flow = NULL;
  struct copse_sinks sinks = {0};
  struct copse_sink_question question = {.source = network->n_nodes,
                                         .sinks = network->terminals,
                                         .n_sinks = network->n_terminals,
                                         .most = 1};
  COPSE_TRY(copse_sinks_graph(network, capacities, 1, k, &flow, &question.demand, err));
  COPSE_TRY(copse_sinks_ask(&sinks, flow, &question, err));
  *feasible = sinks.n_cuts == 0;
out:
  copse_flow_free(flow);
  copse_sinks_free(&sinks);
  return status;
}
