/* Inside src/verify only: the least length of an order of GPUs, for bounds of rings and chains. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What is no step. */
#define COPSE_VERIFY_NO_STEP INT64_MAX
/* Lengths of steps at most, so that no sum overflows. */
#define COPSE_VERIFY_LONGEST_STEP ((int64_t)1 << 44)
/* GPUs for which all orders are searched, and at most. */
#define COPSE_VERIFY_ALL_ORDERS 16
#define COPSE_VERIFY_MOST_GPUS 256

struct copse_verify_orders {
  int n, n_doors;       /* doors: 0 for cycles and chains of one host */
  bool closed;          /* the last GPU goes to the first */
  bool same_door;       /* in and out (or at the second GPU) by one */
  const int64_t *move;  /* [n * n] */
  const int64_t *first; /* [n_doors * n] and what follows: added there; NULL: 0 */
  const int64_t *second, *last;
};

/*
 * No order is shorter than *least. *all: it is the shortest of all orders; else of all assignments
 * of next GPUs (cycles that leave some out among them). COPSE_REFUTED where there is no order;
 * COPSE_NOMEM. O(2^n n^2) or O(n^4).
 */
copse_status copse_verify_least_order(const struct copse_verify_orders *orders, int64_t *least,
                                      bool *all, struct copse_err *err) COPSE_CHECKED;
