#include "runtime/cpu/comm_host.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_host_init(struct copse_host *host, const struct copse_clique_shape *shape,
                             struct copse_err *err) {
  copse_status status;
  host->n_ranks = shape->n_ranks;
  host->first_local = shape->first_local;
  host->n_local = shape->n_local;
  COPSE_TRY(copse_calloc(host->n_ranks, sizeof *host->inputs, &host->inputs, err));
  COPSE_TRY(copse_calloc(host->n_ranks, sizeof *host->outputs, &host->outputs, err));
out:
  return status;
}

void copse_host_free(struct copse_host *host, bool with_executors) {
  while (host->plans) {
    struct copse_host_plan *next = host->plans->next;
    if (with_executors) copse_exec_free(host->plans->exec);
    free(host->plans);
    host->plans = next;
  }
  free(host->inputs);
  free(host->outputs);
}

copse_status copse_host_new_plan(struct copse_host_plan **out, struct copse_err *err) {
  return copse_calloc(1, sizeof **out, out, err);
}

void copse_host_keep(struct copse_host *host, struct copse_host_plan *plan) {
  plan->next = host->plans;
  host->plans = plan;
}

copse_status copse_host_launch(struct copse_host *host, struct copse_host_plan *plan,
                               const struct copse_call *calls, struct copse_err *err) {
  for (uint32_t i = 0; i < host->n_local; i++) { /* plans don't write inputs */
    host->inputs[host->first_local + i] = (void *)(uintptr_t)calls[i].send;
    host->outputs[host->first_local + i] = calls[i].recv;
  }
  const struct copse_launch launch = {.count = calls[0].count,
                                      .type = calls[0].type,
                                      .redop = calls[0].redop,
                                      .inputs = host->inputs,
                                      .outputs = host->outputs,
                                      .pair_counts = calls[0].pair_counts};
  return copse_exec_run(plan->exec, &launch, err);
}

copse_status copse_host_check_pair_counts(const struct copse_host *host, uint32_t rank,
                                          const struct copse_call *call, struct copse_err *err) {
  uint64_t n = host->n_ranks;
  for (uint64_t pair = 0; call->pair_counts && pair < n * n; pair++)
    if (call->pair_counts[pair] > call->count)
      return copse_fail(err, COPSE_INVALID,
                        "rank %u: pair_counts has %llu elements from rank %u to rank %u, a block "
                        "has %llu",
                        rank, (unsigned long long)call->pair_counts[pair], (unsigned)(pair / n),
                        (unsigned)(pair % n), (unsigned long long)call->count);
  return COPSE_OK;
}
