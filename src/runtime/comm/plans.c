#include "runtime/comm/plans.h"

#include "runtime/interpreter/executor.h"
#include "runtime/plan/layout.h"

copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes, struct copse_err *err) {
  bool per_rank = collective == COPSE_ALLGATHER || collective == COPSE_REDUCE_SCATTER ||
                  collective == COPSE_ALLTOALL;
  uint64_t blocks = per_rank ? n_ranks : 1;
  if (__builtin_mul_overflow(count, copse_type_bytes(type), bytes) ||
      __builtin_mul_overflow(*bytes, blocks, bytes) || *bytes > COPSE_BUFFER_MAX_BYTES)
    return copse_fail(err, COPSE_INVALID,
                      "%llu blocks of %llu %s: a buffer may have up to 2^48 bytes",
                      (unsigned long long)blocks, (unsigned long long)count, copse_type_name(type));
  return COPSE_OK;
}

static bool fits(const struct copse_plan_header *h, const struct copse_plan_want *want) {
  if (h->collective != (uint32_t)want->collective) return false;
  if (copse_collective_rooted(want->collective) && h->root != want->root) return false;
  if (want->uneven && h->protocol != COPSE_PROTOCOL_BANDWIDTH) return false;
  return h->min_bytes <= want->message_bytes && want->message_bytes <= h->max_bytes;
}

const struct copse_plan_entry *copse_plan_table_find(const struct copse_plan_table *table,
                                                     const struct copse_plan_want *want,
                                                     size_t *n_fitting) {
  const struct copse_plan_entry *best = NULL;
  uint64_t narrowest = 0;
  size_t n = 0;
  for (size_t i = 0; i < table->n; i++) {
    const struct copse_plan_header *h = &table->entries[i].plan->header;
    if (!fits(h, want)) continue;
    uint64_t width = h->max_bytes - h->min_bytes;
    if (!best || width < narrowest) {
      best = &table->entries[i];
      narrowest = width;
    }
    n++;
  }
  if (n_fitting) *n_fitting = n;
  return best;
}

/* The first operand in a buffer that a caller may leave NULL, or NULL. */
static const struct copse_plan_operand *find_unpromised(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  if (!copse_collective_rooted((copse_collective)h->collective)) return NULL;
  uint32_t unpromised = h->collective == COPSE_BROADCAST ? COPSE_BUFFER_INPUT : COPSE_BUFFER_OUTPUT;
  for (uint32_t i = 0; i < h->n_operands; i++) {
    const struct copse_plan_operand *it = &plan->operands[i];
    if (it->buffer == unpromised && it->rank != (uint32_t)h->root) return it;
  }
  return NULL;
}

copse_status copse_plan_check_servable(const struct copse_plan *plan, uint32_t n_ranks,
                                       struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  if (h->n_ranks != n_ranks)
    return copse_fail(err, COPSE_INVALID, "a plan for %u ranks, the communicator has %u",
                      h->n_ranks, n_ranks);
  if (h->n_extents != 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall plan for one demand serves no calls of a communicator; "
                      "lower a schedule that was solved without --demand");
  const struct copse_plan_operand *it = find_unpromised(plan);
  if (it)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "the plan touches the %s of rank %u, which in a %s with root %d may be NULL",
                      it->buffer == COPSE_BUFFER_INPUT ? "input" : "output", it->rank,
                      copse_collective_name((copse_collective)h->collective), h->root);
  return COPSE_OK;
}
