/*
 * Few trees on purpose: the smallest U such that floor(U * b) carries k trees per root.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "solver/trees/optimum.h"

/* floor(u * capacity); u and capacities are positive. */
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
 * Floors can leave a relay with more coming in than going out, which splitting can't
 * handle. Trimming one relay may unbalance the next, so sweep until nothing moves; every
 * trim lowers the total, so this ends.
 */
static copse_status balance(const struct copse_network *network, int64_t *capacities,
                            struct copse_err *err) {
  copse_status status;
  bool *is_terminal = NULL;
  int64_t *surplus = NULL;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, 1, &is_terminal, err));
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *surplus, &surplus, err));
  for (int i = 0; i < network->n_terminals; i++) is_terminal[network->terminals[i]] = true;
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
out:
  free(is_terminal);
  free(surplus);
  return status;
}

static copse_status try_u(const struct copse_network *network, struct copse_q u, int64_t k,
                          int64_t *capacities, bool *feasible, struct copse_err *err) {
  for (int i = 0; i < network->n_links; i++)
    capacities[i] = floor_of(u, network->links[i].capacity);
  copse_status status = balance(network, capacities, err);
  if (status != COPSE_OK) return status;
  return copse_optimum_feasible(network, capacities, k, feasible, err);
}

static int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The distinct capacities, ascending; n is their number. */
static copse_status distinct_capacities(const struct copse_network *network, int64_t **out, int *n,
                                        struct copse_err *err) {
  copse_status status = copse_calloc((size_t)network->n_links, sizeof **out, out, err);
  if (status != COPSE_OK) return status;
  for (int i = 0; i < network->n_links; i++) (*out)[i] = network->links[i].capacity;
  qsort(*out, (size_t)network->n_links, sizeof **out, compare_int64);
  *n = 0;
  for (int i = 0; i < network->n_links; i++)
    if (*n == 0 || (*out)[i] != (*out)[*n - 1]) (*out)[(*n)++] = (*out)[i];
  return COPSE_OK;
}

/*
 * Floors only change at U = m / b. For one b: the smallest m with (lo <) m/b <= hi that is
 * feasible, by bisection; hi is feasible, lo is not.
 */
static copse_status bisect(const struct copse_network *network, int64_t b, int64_t k,
                           struct copse_q lo, struct copse_q *hi, int64_t *scratch,
                           struct copse_err *err) {
  int64_t below = floor_of(lo, b), above = floor_of(*hi, b);
  copse_status status;
  while (below < above) {
    int64_t middle = below + (above - below + 1) / 2;
    struct copse_q u;
    bool feasible;
    COPSE_TRY(copse_q_make(middle, b, &u, err));
    COPSE_TRY(try_u(network, u, k, scratch, &feasible, err));
    if (feasible) {
      *hi = u;
      if (above == middle) break;
      above = middle;
    } else {
      below = middle;
    }
  }
  status = COPSE_OK;
out:
  return status;
}

copse_status copse_optimum_fixed_k(const struct copse_network *network, struct copse_q x_optimum,
                                   int64_t k, struct copse_q *u, int64_t *capacities,
                                   struct copse_err *err) {
  copse_status status;
  int64_t *distinct = NULL, *scratch = NULL;
  int n_distinct;
  bool feasible;
  COPSE_TRY(distinct_capacities(network, &distinct, &n_distinct, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *scratch, &scratch, err));

  /* k / x is a lower bound; 1 / min b above it every floor has at least its exact share. */
  struct copse_q lower, upper, slack, k_q;
  COPSE_TRY(copse_q_make(k, 1, &k_q, err));
  COPSE_TRY(copse_q_div(k_q, x_optimum, &lower, err));
  COPSE_TRY(copse_q_make(1, distinct[0], &slack, err));
  COPSE_TRY(copse_q_add(lower, slack, &upper, err));
  COPSE_TRY(try_u(network, lower, k, capacities, &feasible, err));
  for (*u = lower; !feasible;) {
    COPSE_TRY(try_u(network, upper, k, capacities, &feasible, err));
    *u = upper;
    if (!feasible) COPSE_TRY(copse_q_add(upper, slack, &upper, err)); /* trimmed relays */
  }
  if (!copse_q_eq(*u, lower))
    for (int i = 0; i < n_distinct; i++)
      COPSE_TRY(bisect(network, distinct[i], k, lower, u, scratch, err));
  COPSE_TRY(try_u(network, *u, k, capacities, &feasible, err));
  if (!feasible) status = copse_fail(err, COPSE_INTERNAL, "fixed k: the bound does not hold");
out:
  free(distinct);
  free(scratch);
  return status;
}
