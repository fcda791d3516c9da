#include "runtime/comm/clique_launch.h"

#include "runtime/comm/call.h"
#include "runtime/comm/debug.h"

static copse_status find(struct copse_clique *clique, const struct copse_call *call,
                         const struct copse_plan_entry **entry, size_t *n_fitting, uint64_t *bytes,
                         struct copse_err *err) {
  *entry = NULL;
  copse_status status = copse_message_bytes(call->collective, clique->shape.n_ranks, call->count,
                                            call->type, bytes, err);
  if (status != COPSE_OK) return status;
  const struct copse_plan_want want = {.collective = call->collective,
                                       .root = call->root,
                                       .uneven = call->pair_counts != NULL,
                                       .message_bytes = *bytes};
  *entry = copse_plan_table_find(&clique->plans, &want, n_fitting);
  return COPSE_OK;
}

copse_status copse_clique_find_plan(struct copse_clique *clique, const struct copse_call *call,
                                    const struct copse_plan **plan, struct copse_err *err) {
  const struct copse_plan_entry *entry;
  size_t n_fitting;
  uint64_t bytes;
  pthread_mutex_lock(&clique->machine_lock);
  copse_status status = find(clique, call, &entry, &n_fitting, &bytes, err);
  *plan = entry ? entry->plan : NULL;
  pthread_mutex_unlock(&clique->machine_lock);
  return status;
}

static void trace(const struct copse_clique *clique, const struct copse_call *call, uint64_t bytes,
                  const struct copse_plan_entry *entry, size_t n_fitting) {
  if (!copse_debug_wants(COPSE_DEBUG_TRACE)) return;
  const struct copse_plan_header *h = &entry->plan->header;
  char text[COPSE_CALL_TEXT];
  copse_call_describe(call, text);
  copse_debug(COPSE_DEBUG_TRACE, (int)clique->shape.first_local,
              "%s, %llu bytes over %u ranks: plan %zu of %zu (%s, %s, messages of %llu to %llu "
              "bytes), %s",
              text, (unsigned long long)bytes, clique->shape.n_ranks,
              (size_t)(entry - clique->plans.entries) + 1, clique->plans.n, entry->plan->name,
              h->protocol == COPSE_PROTOCOL_LOW_LATENCY ? "low latency" : "bandwidth",
              (unsigned long long)h->min_bytes, (unsigned long long)h->max_bytes,
              n_fitting == 1 ? "the only one for it" : "the narrowest range that holds it");
}

static copse_status lacks_plan(const struct copse_clique *clique, const struct copse_call *call,
                               uint64_t bytes, struct copse_err *err) {
  char text[COPSE_CALL_TEXT];
  copse_call_describe(call, text);
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "no plan for %s, %llu bytes over %u ranks, among the %zu of this communicator "
                    "(copse_comm_load_plans)",
                    text, (unsigned long long)bytes, clique->shape.n_ranks, clique->plans.n);
}

/* Whether ranks may be out of step after a launch with this status. Refused arguments are so
 * everywhere, but memory runs out on one host alone. */
static bool breaks_clique(const struct copse_clique *clique, copse_status status) {
  if (status == COPSE_NOMEM) return clique->shape.n_local < clique->shape.n_ranks;
  return status != COPSE_OK && status != COPSE_INVALID && status != COPSE_UNSUPPORTED;
}

copse_status copse_clique_launch(void *context, const struct copse_call *calls, bool *breaks,
                                 struct copse_err *err) {
  struct copse_clique *clique = context;
  const struct copse_plan_entry *entry;
  size_t n_fitting;
  uint64_t bytes;
  copse_status status;
  pthread_mutex_lock(&clique->machine_lock);
  COPSE_TRY(clique->ops->poll(clique->machine, err));
  COPSE_TRY(find(clique, &calls[0], &entry, &n_fitting, &bytes, err));
  if (!entry) {
    status = lacks_plan(clique, &calls[0], bytes, err);
    goto out;
  }
  trace(clique, &calls[0], bytes, entry, n_fitting);
  status = clique->ops->launch(clique->machine, entry->prepared, calls, err);
out:
  *breaks = breaks_clique(clique, status);
  /* what a failed launch has started on some GPUs would wait for the rest */
  if (*breaks) clique->ops->abort(clique->machine);
  pthread_mutex_unlock(&clique->machine_lock);
  return status;
}
