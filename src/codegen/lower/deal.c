#include "codegen/lower/deal.h"

#include <stdlib.h>

#include "codegen/lower/lower.h"

/*
 * Workers that are busy for this part of the time are balanced well enough; where each has many
 * roles already, each of which costs a signal and a wait, a fair balance is. And a plan with too
 * many roles would cost more than it gains.
 */
#define ENOUGH_BALANCE 0.92
#define FAIR_BALANCE 0.7
#define MANY_ROLES 8
#define ENOUGH_ROLES (1 << 18)

static int larger_first(const void *a, const void *b) {
  const struct copse_deal_role *x = a, *y = b;
  if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
  return x->key < y->key ? -1 : x->key > y->key;
}

copse_status copse_deal(struct copse_deal_role *roles, size_t n, int n_workers, double *most,
                        struct copse_err *err) {
  double *load = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)n_workers, sizeof *load, &load, err));
  if (n > 0) qsort(roles, n, sizeof *roles, larger_first);
  for (size_t i = 0; i < n; i++) {
    int best = 0;
    for (int w = 1; w < n_workers; w++)
      if (load[w] < load[best]) best = w;
    roles[i].worker = best;
    load[best] += roles[i].cost;
    if (load[best] > *most) *most = load[best];
  }
out:
  free(load);
  return status;
}

static bool is_enough(const struct copse_deal_outcome *it) {
  return it->balance >= ENOUGH_BALANCE || it->roles > ENOUGH_ROLES ||
         (it->per_worker >= MANY_ROLES && it->balance >= FAIR_BALANCE);
}

copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  struct copse_err *err) {
  struct copse_deal_outcome it = {0, 0, 0};
  double best_balance = 0;
  int best = 1, tried = 0;
  copse_status status = COPSE_OK;
  if (instances != COPSE_LOWER_AUTO) return cut(lowering, instances, &it, err);
  for (int i = 1; i <= COPSE_LOWER_MOST_INSTANCES && !is_enough(&it); i++) {
    COPSE_TRY(cut(lowering, -i, &it, err));
    tried = i;
    if (it.balance > best_balance * 1.01) {
      best_balance = it.balance;
      best = i;
    }
  }
  if (tried != best) COPSE_TRY(cut(lowering, -best, &it, err));
out:
  return status;
}
