/*
 * Grouped sends and receives that are an all-to-all: the calls are sorted by round, direction and
 * peer, then every block is compared with the place that an all-to-all would give it.
 */
#include "dropin/exchange.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/types.h"

/* The calls sorted by round, by direction (send, receive) and by peer. */
struct grid {
  const struct copse_nccl_call **calls; /* [n_rounds][2][n_ranks] */
  size_t *n_seen;                       /* [2][n_ranks] */
  size_t n_rounds, n_ranks;
};

static bool sort_calls(struct grid *grid, const struct copse_nccl_call *calls, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t direction = calls[i].function == COPSE_NCCL_RECV;
    if (calls[i].root < 0 || (size_t)calls[i].root >= grid->n_ranks) return false;
    size_t column = direction * grid->n_ranks + (size_t)calls[i].root;
    size_t round = grid->n_seen[column]++;
    if (round >= grid->n_rounds) return false;
    grid->calls[round * 2 * grid->n_ranks + column] = &calls[i];
  }
  return true; /* n calls, none too often: every place is taken */
}

static uintptr_t address(const struct copse_nccl_call *call) {
  return (uintptr_t)(call->function == COPSE_NCCL_SEND ? call->send : call->recv);
}

static bool is_uniform(const struct copse_nccl_call **round, size_t n_ranks) {
  const struct copse_nccl_call *first = round[0];
  uintptr_t block;
  if (first->count == 0 ||
      __builtin_mul_overflow(first->count, copse_type_bytes((copse_type)first->type), &block))
    return false;
  for (size_t i = 0; i < 2 * n_ranks; i++) {
    const struct copse_nccl_call *it = round[i];
    uintptr_t base = address(round[i < n_ranks ? 0 : n_ranks]);
    if (it->count != first->count || it->type != first->type || it->stream != first->stream ||
        address(it) - base != (i % n_ranks) * block)
      return false;
  }
  return true;
}

copse_status copse_nccl_find_exchanges(const struct copse_nccl_call *calls, size_t n, int n_ranks,
                                       struct copse_nccl_call *all_to_alls, size_t *n_found,
                                       struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct grid grid = {.n_ranks = (size_t)n_ranks, .n_rounds = n / (2 * (size_t)n_ranks)};
  *n_found = 0;
  if (n == 0 || n % (2 * grid.n_ranks) != 0) return COPSE_OK;
  COPSE_TRY(copse_calloc(n, sizeof *grid.calls, &grid.calls, err));
  COPSE_TRY(copse_calloc(2 * grid.n_ranks, sizeof *grid.n_seen, &grid.n_seen, err));
  bool all = sort_calls(&grid, calls, n);
  for (size_t i = 0; all && i < grid.n_rounds; i++) {
    const struct copse_nccl_call **round = &grid.calls[i * 2 * grid.n_ranks];
    all = is_uniform(round, grid.n_ranks);
    all_to_alls[i] = *round[0];
    all_to_alls[i].function = COPSE_NCCL_ALL_TO_ALL;
    all_to_alls[i].recv = round[grid.n_ranks]->recv;
    all = all && all_to_alls[i].send != all_to_alls[i].recv;
  }
  if (all) *n_found = grid.n_rounds;
out:
  free(grid.calls);
  free(grid.n_seen);
  return status;
}
