/* The CPU as a machine: all ranks in this process, run by the cooperative executor. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/cpu/comm_host.h"

static void free_machine(void *context) {
  struct copse_host *host = context;
  if (!host) return;
  copse_host_free(host, true);
  free(host);
}

static copse_status new_machine(const struct copse_clique_shape *shape, void **out,
                                struct copse_err *err) {
  struct copse_host *host = NULL;
  copse_status status;
  *out = NULL;
  if (shape->n_local != shape->n_ranks)
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks on the CPU must all be in one process");
  COPSE_TRY(copse_calloc(1, sizeof *host, &host, err));
  COPSE_TRY(copse_host_init(host, shape, err));
  *out = host;
  return COPSE_OK;
out:
  free_machine(host);
  return status;
}

static copse_status prepare(void *host, const struct copse_plan *plan, void **out,
                            struct copse_err *err) {
  struct copse_host_plan *prepared = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_host_new_plan(&prepared, err));
  COPSE_TRY(copse_exec_new(plan, COPSE_BACKEND_CPU, &prepared->exec, err));
  copse_host_keep(host, prepared);
  *out = prepared;
  return COPSE_OK;
out:
  free(prepared);
  return status;
}

/* The ranks' matrices must be the same. */
static copse_status check_pair_counts(const struct copse_host *host, const struct copse_call *calls,
                                      struct copse_err *err) {
  const uint32_t n = host->n_ranks;
  const uint64_t *first = calls[0].pair_counts;
  copse_status status = COPSE_OK;
  for (uint32_t r = 0; first && r < n; r++) {
    COPSE_TRY(copse_host_check_pair_counts(host, r, &calls[r], err));
    for (uint64_t pair = 0; pair < (uint64_t)n * n; pair++)
      if (calls[r].pair_counts[pair] != first[pair])
        return copse_fail(err, COPSE_INVALID,
                          "pair_counts from rank %u to rank %u is %llu at rank 0 and %llu at rank "
                          "%u; it must be the same matrix everywhere",
                          (unsigned)(pair / n), (unsigned)(pair % n),
                          (unsigned long long)first[pair],
                          (unsigned long long)calls[r].pair_counts[pair], r);
  }
out:
  return status;
}

static copse_status launch(void *host, void *prepared, const struct copse_call *calls,
                           struct copse_err *err) {
  copse_status status = check_pair_counts(host, calls, err);
  return status == COPSE_OK ? copse_host_launch(host, prepared, calls, err) : status;
}

/* A launch has ended when it returns, and can't hang: the executor reports a deadlock. */
static copse_status finish(void *machine, struct copse_err *err) {
  (void)machine, (void)err;
  return COPSE_OK;
}
static copse_status poll_machine(void *machine, struct copse_err *err) {
  (void)machine, (void)err;
  return COPSE_OK;
}
static void abort_machine(void *machine) { (void)machine; }
static void set_timeout(void *machine, double seconds) { (void)machine, (void)seconds; }

const struct copse_machine_ops copse_cpu_machine = {.new_machine = new_machine,
                                                    .free_machine = free_machine,
                                                    .prepare = prepare,
                                                    .launch = launch,
                                                    .finish = finish,
                                                    .poll = poll_machine,
                                                    .abort = abort_machine,
                                                    .set_timeout = set_timeout};
