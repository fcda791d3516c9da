#include "solver/optimum.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/flow.h"

/* The terminals to ask a flow for. */
static int n_sinks(const struct copse_network *network) {
  return network->sinks ? network->n_sinks : network->n_terminals;
}

static int sink(const struct copse_network *network, int i) {
  return network->sinks ? network->sinks[i] : network->terminals[i];
}

static int64_t total_weight(const struct copse_network *network) {
  int64_t sum = 0;
  for (int i = 0; i < network->n_roots; i++) sum += network->roots[i].weight;
  return sum;
}

/* The graph with a super source (node n_nodes): links scaled by `scale`, roots by `rate`. */
static copse_status build_flow(const struct copse_network *network, const int64_t *capacities,
                               int64_t scale, int64_t rate, struct copse_flow **out,
                               struct copse_err *err) {
  copse_status status;
  struct copse_flow *flow = NULL;
  int64_t capacity;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1, &flow, err));
  for (int i = 0; i < network->n_links; i++) {
    const struct copse_net_link *link = &network->links[i];
    if (copse_mul_overflows(capacities ? capacities[i] : link->capacity, scale, &capacity))
      capacity = INT64_MAX;
    if (capacity > 0) COPSE_TRY(copse_flow_change(flow, link->src, link->dst, capacity, err));
  }
  for (int i = 0; i < network->n_roots; i++) {
    if (copse_mul_overflows(network->roots[i].weight, rate, &capacity)) capacity = INT64_MAX;
    COPSE_TRY(copse_flow_change(flow, network->n_nodes, network->roots[i].node, capacity, err));
  }
  *out = flow;
  return COPSE_OK;
out:
  copse_flow_free(flow);
  return status;
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

/* One flow to terminal v at the current rate; if it falls short, its cut gives the next. */
static copse_status improve(const struct copse_network *network, struct copse_flow *flow,
                            int64_t total, int v, struct copse_optimum *best, bool *improved,
                            struct copse_err *err) {
  int64_t demand = total * best->x.num;
  *improved = copse_flow_max(flow, network->n_nodes, v, demand) < demand;
  if (!*improved) return COPSE_OK;
  for (int i = 0; i < network->n_nodes; i++) best->in_cut[i] = copse_flow_on_source_side(flow, i);
  best->unreached = v;
  return rate_of_cut(network, best->in_cut, &best->x, err);
}

static copse_status check_demand(const struct copse_network *network, struct copse_q x,
                                 struct copse_err *err) {
  int64_t demand;
  if (copse_mul_overflows(total_weight(network), x.num, &demand) || demand > COPSE_FLOW_MAX)
    return copse_fail(err, COPSE_OVERFLOW,
                      "the bandwidths need more than 61 bits once brought to a common "
                      "denominator; use fewer digits");
  return COPSE_OK;
}

/* Goes on from the terminal that fell short; done after one full round without. */
static copse_status newton(const struct copse_network *network,
                           const struct copse_progress *progress, struct copse_optimum *best,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_flow *flow = NULL;
  int64_t total = total_weight(network);
  int passed = 0, next = 0;
  while (passed < n_sinks(network) && best->x.num > 0) {
    if (!flow) {
      COPSE_TRY(check_demand(network, best->x, err));
      COPSE_TRY(build_flow(network, NULL, best->x.den, best->x.num, &flow, err));
    }
    bool improved;
    COPSE_TRY(improve(network, flow, total, sink(network, next), best, &improved, err));
    copse_progress_report(progress, "optimum", passed, n_sinks(network));
    if (improved) {
      copse_flow_free(flow);
      flow = NULL;
      passed = 0;
    } else {
      passed++;
      next = (next + 1) % n_sinks(network);
    }
  }
out:
  copse_flow_free(flow);
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
  *feasible = true;
  COPSE_TRY(build_flow(network, capacities, 1, k, &flow, err));
  int64_t demand = total_weight(network) * k;
  for (int i = 0; i < network->n_terminals && *feasible; i++)
    if (copse_flow_max(flow, network->n_nodes, network->terminals[i], demand) < demand)
      *feasible = false;
out:
  copse_flow_free(flow);
  return status;
}
