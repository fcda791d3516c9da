/*
 * The optimum, and the integer problem that reaches it.
 *
 *     S: holds a root, misses a terminal            x <= capacity leaving S / weight of roots in S
 *    +---------+
 *    | a   b --|--50--> c     x = 100 / 2           a cut that a flow finds broken at rate x gives
 *    |     +---|--50--> d                           the next, smaller x; no cut broken: x is it
 *    +---------+
 *
 * By Newton's iteration over cuts (W. Dinkelbach, "On nonlinear fractional programming", Management
 * Science 13, 1967). At the end, few trees on purpose: the smallest U such that floor(U * b)
 * carries k trees per root.
 */
#include "solver/trees/optimum.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/network/flow.h"

static int64_t total_weight(const struct copse_network *network) {
  int64_t sum = 0;
  for (int i = 0; i < network->n_roots; i++) sum += network->roots[i].weight;
  return sum;
}

/* Computes the rate that the cut in_cut allows: capacity leaving it over the weight inside. */
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

/* Measures what enters each node, and the weight of its root. */
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

/* Starts with the tightest of the cuts "everything but one terminal". */
static copse_status start_rate(const struct copse_network *network, struct copse_optimum *best,
                               struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n = (size_t)network->n_nodes;
  int64_t *entering, *weight, total = total_weight(network);
  best->x = COPSE_Q_ZERO;
  best->unreached = -1;
  COPSE_DO(COPSE_ARRAY(&scratch, n, entering, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, weight, err));
  COPSE_DO(measure_nodes(network, entering, weight, err));
  for (int i = 0; i < network->n_terminals; i++) {
    int v = network->terminals[i];
    struct copse_q x;
    if (total == weight[v]) continue; /* no root outside of it */
    COPSE_DO(copse_q_make(entering[v], total - weight[v], &x, err));
    if (best->unreached >= 0 && copse_q_cmp(x, best->x) >= 0) continue;
    best->x = x;
    best->unreached = v;
  }
  if (best->unreached < 0) return COPSE_OK;
  memset(best->in_cut, true, n);
  best->in_cut[best->unreached] = false;
  return COPSE_OK;
}

/* Iterates: the cut of a sink that falls short gives the next rate; goes on from that sink, and is
 * done when none falls short. */
static copse_status newton(const struct copse_network *network,
                           const struct copse_progress *progress, struct copse_optimum *best,
                           struct copse_err *err) {
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  COPSE_AT_END(copse_sinks_free) struct copse_sinks sinks = {0};
  struct copse_sink_question question = {
      .source = network->n_nodes,
      .sinks = network->sinks ? network->sinks : network->terminals,
      .n_sinks = network->sinks ? network->n_sinks : network->n_terminals,
      .most = 1,
      .threads = network->threads,
  };
  for (int64_t round = 1; best->x.num > 0; round++) {
    COPSE_DO(
        copse_sinks_graph(network, NULL, best->x.den, best->x.num, &flow, &question.demand, err));
    COPSE_DO(copse_sinks_ask(&sinks, flow, &question, err));
    copse_progress_report(progress, "optimum", round, round + sinks.n_cuts);
    if (sinks.n_cuts == 0) break;
    for (int i = 0; i < network->n_nodes; i++) best->in_cut[i] = !sinks.cuts[0].inside[i];
    question.start = sinks.cuts[0].place;
    best->unreached = question.sinks[question.start];
    COPSE_DO(rate_of_cut(network, best->in_cut, &best->x, err));
    copse_flow_free(flow);
    flow = NULL;
  }
  return COPSE_OK;
}

copse_status copse_optimum_find(const struct copse_network *network,
                                const struct copse_progress *progress, struct copse_optimum *out,
                                struct copse_err *err) {
  *out = (struct copse_optimum){.x = COPSE_Q_ZERO, .unreached = -1};
  COPSE_DO(copse_calloc((size_t)network->n_nodes, 1, &out->in_cut, err));
  if (network->n_terminals == 1) return COPSE_OK;
  copse_status status = start_rate(network, out, err);
  if (status == COPSE_OK) status = newton(network, progress, out, err);
  if (status != COPSE_OK) copse_optimum_free(out);
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
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  COPSE_AT_END(copse_sinks_free) struct copse_sinks sinks = {0};
  struct copse_sink_question question = {.source = network->n_nodes,
                                         .sinks = network->terminals,
                                         .n_sinks = network->n_terminals,
                                         .most = 1,
                                         .threads = network->threads};
  COPSE_DO(copse_sinks_graph(network, capacities, 1, k, &flow, &question.demand, err));
  COPSE_DO(copse_sinks_ask(&sinks, flow, &question, err));
  *feasible = sinks.n_cuts == 0;
  return COPSE_OK;
}

/* Returns floor(u * capacity); u and capacities are positive. */
static int64_t floor_of(struct copse_q u, int64_t capacity) {
  __int128 v = (__int128)capacity * u.num / u.den;
  return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* Takes `excess` off the links that enter (or leave) `node`, largest first. */
static void trim(const struct copse_network *network, int64_t *capacities, int node, bool entering,
                 int64_t excess) {
  while (excess > 0) {
    int largest = -1;
    for (int i = 0; i < network->n_links; i++) {
      int end = entering ? network->links[i].dst : network->links[i].src;
      if (end == node && (largest < 0 || capacities[i] > capacities[largest])) largest = i;
    }
    int64_t take = excess < capacities[largest] ? excess : 1;
    if (take > capacities[largest]) take = capacities[largest];
    capacities[largest] -= take;
    excess -= take;
  }
}

/*
 * Trims relays until they are balanced: floors can leave one with more coming in than going out,
 * which splitting can't handle. Trimming one relay may unbalance the next, so it sweeps until
 * nothing moves; every trim lowers the total, so this ends.
 */
static copse_status balance(const struct copse_network *network, int64_t *capacities,
                            struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  bool *is_terminal;
  int64_t *surplus;
  COPSE_DO(copse_network_terminals(network, &scratch, &is_terminal, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_nodes, surplus, err));
  for (bool moved = true; moved;) {
    moved = false;
    for (int v = 0; v < network->n_nodes; v++) surplus[v] = 0;
    for (int i = 0; i < network->n_links; i++) {
      surplus[network->links[i].dst] += capacities[i];
      surplus[network->links[i].src] -= capacities[i];
    }
    for (int v = 0; v < network->n_nodes && !moved; v++) {
      if (is_terminal[v] || surplus[v] == 0) continue;
      trim(network, capacities, v, surplus[v] > 0, surplus[v] > 0 ? surplus[v] : -surplus[v]);
      moved = true;
    }
  }
  return COPSE_OK;
}

copse_status copse_optimum_round(const struct copse_network *network, struct copse_q u, int64_t k,
                                 int64_t *capacities, bool *carries, struct copse_err *err) {
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = floor_of(u, network->links[i].capacity);
  COPSE_DO(balance(network, capacities, err));
  return copse_optimum_feasible(network, capacities, k, carries, err);
}

int64_t copse_optimum_step(const struct copse_network *network,
                           const struct copse_optimum *optimum) {
  int64_t g = optimum->x.num;
  for (int i = 0; i < network->n_links && g > 1; i++) {
    const struct copse_net_link *link = &network->links[i];
    if (optimum->in_cut[link->src] && !optimum->in_cut[link->dst]) g = copse_gcd(g, link->capacity);
  }
  return optimum->x.num / g;
}

COPSE_ORDER(compare_int64, int64_t, COPSE_COMPARE(*a, *b))

/* Lists the distinct capacities [n_links], ascending; n is their number. */
static void distinct_capacities(const struct copse_network *network, int64_t *out, int *n) {
  for (int i = 0; i < network->n_links; i++) out[i] = network->links[i].capacity;
  COPSE_SORT(out, network->n_links, compare_int64);
  *n = 0;
  for (int i = 0; i < network->n_links; i++)
    if (*n == 0 || out[i] != out[*n - 1]) out[(*n)++] = out[i];
}

/*
 * Finds, for one b, the smallest m with (lo <) m/b <= hi that is feasible, by bisection; hi is
 * feasible, lo is not. Floors only change at U = m / b.
 */
static copse_status bisect(const struct copse_network *network, int64_t b, int64_t k,
                           struct copse_q lo, struct copse_q *hi, int64_t *tried,
                           struct copse_err *err) {
  int64_t below = floor_of(lo, b), above = floor_of(*hi, b);
  while (below < above) {
    int64_t middle = below + (above - below + 1) / 2;
    struct copse_q u;
    bool feasible;
    COPSE_DO(copse_q_make(middle, b, &u, err));
    COPSE_DO(copse_optimum_round(network, u, k, tried, &feasible, err));
    if (feasible) {
      *hi = u;
      if (above == middle) break;
      above = middle;
    } else {
      below = middle;
    }
  }
  return COPSE_OK;
}

copse_status copse_optimum_fixed_k(const struct copse_network *network, struct copse_q x_optimum,
                                   int64_t k, struct copse_q *u, int64_t *capacities,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n = (size_t)network->n_links;
  int64_t *distinct, *tried;
  int n_distinct;
  bool feasible;
  COPSE_DO(COPSE_ARRAYS(&scratch, n, int64_t, err, &distinct, &tried));
  distinct_capacities(network, distinct, &n_distinct);

  /* k / x is a lower bound; 1 / min b above it every floor has at least its exact share. */
  struct copse_q lower, upper, slack, k_q;
  COPSE_DO(copse_q_make(k, 1, &k_q, err));
  COPSE_DO(copse_q_div(k_q, x_optimum, &lower, err));
  COPSE_DO(copse_q_make(1, distinct[0], &slack, err));
  COPSE_DO(copse_q_add(lower, slack, &upper, err));
  COPSE_DO(copse_optimum_round(network, lower, k, capacities, &feasible, err));
  for (*u = lower; !feasible;) {
    COPSE_DO(copse_optimum_round(network, upper, k, capacities, &feasible, err));
    *u = upper;
    if (!feasible) COPSE_DO(copse_q_add(upper, slack, &upper, err)); /* trimmed relays */
  }
  if (!copse_q_eq(*u, lower))
    for (int i = 0; i < n_distinct; i++)
      COPSE_DO(bisect(network, distinct[i], k, lower, u, tried, err));
  COPSE_DO(copse_optimum_round(network, *u, k, capacities, &feasible, err));
  if (!feasible) return copse_fail(err, COPSE_INTERNAL, "fixed k: the bound does not hold");
  return COPSE_OK;
}
