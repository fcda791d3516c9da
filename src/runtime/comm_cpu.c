/* The CPU as a machine: all ranks in this process, run by the cooperative executor. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/executor.h"
#include "runtime/machine.h"

struct cpu_machine {
  uint32_t n_ranks;
  void **inputs, **outputs; /* [n_ranks] of a launch */
  struct prepared *prepared;
};

struct prepared {
  struct copse_exec *exec;
  struct prepared *next;
};

static void free_machine(void *context) {
  struct cpu_machine *machine = context;
  if (!machine) return;
  while (machine->prepared) {
    struct prepared *next = machine->prepared->next;
    copse_exec_free(machine->prepared->exec);
    free(machine->prepared);
    machine->prepared = next;
  }
  free(machine->inputs);
  free(machine->outputs);
  free(machine);
}

static copse_status new_machine(const struct copse_clique_shape *shape, void **out,
                                struct copse_err *err) {
  struct cpu_machine *machine = NULL;
  copse_status status;
  *out = NULL;
  if (shape->n_local != shape->n_ranks)
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks on the CPU must all be in one process");
  COPSE_TRY(copse_calloc(1, sizeof *machine, &machine, err));
  machine->n_ranks = shape->n_ranks;
  COPSE_TRY(copse_calloc(shape->n_ranks, sizeof *machine->inputs, &machine->inputs, err));
  COPSE_TRY(copse_calloc(shape->n_ranks, sizeof *machine->outputs, &machine->outputs, err));
  *out = machine;
  return COPSE_OK;
out:
  free_machine(machine);
  return status;
}

static copse_status prepare(void *context, const struct copse_plan *plan, void **out,
                            struct copse_err *err) {
  struct cpu_machine *machine = context;
  struct prepared *prepared = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *prepared, &prepared, err));
  COPSE_TRY(copse_exec_new(plan, COPSE_BACKEND_CPU, &prepared->exec, err));
  prepared->next = machine->prepared;
  machine->prepared = prepared;
  *out = prepared;
  return COPSE_OK;
out:
  free(prepared);
  return status;
}

/* What the ranks' matrices must be: the same, with no count beyond the block's. */
static copse_status check_pair_counts(const struct copse_call *calls, uint32_t n,
                                      struct copse_err *err) {
  const uint64_t *first = calls[0].pair_counts;
  if (!first) return COPSE_OK;
  for (uint32_t r = 0; r < n; r++)
    for (uint64_t pair = 0; pair < (uint64_t)n * n; pair++) {
      uint64_t count = calls[r].pair_counts[pair];
      unsigned from = (unsigned)(pair / n), to = (unsigned)(pair % n);
      if (count > calls[r].count)
        return copse_fail(err, COPSE_INVALID,
                          "rank %u: pair_counts has %llu elements from rank %u to rank %u, a block "
                          "has %llu",
                          r, (unsigned long long)count, from, to,
                          (unsigned long long)calls[r].count);
      if (count != first[pair])
        return copse_fail(err, COPSE_INVALID,
                          "pair_counts from rank %u to rank %u is %llu at rank 0 and %llu at rank "
                          "%u; it must be the same matrix everywhere",
                          from, to, (unsigned long long)first[pair], (unsigned long long)count, r);
    }
  return COPSE_OK;
}

static copse_status launch(void *context, void *prepared, const struct copse_call *calls,
                           struct copse_err *err) {
  struct cpu_machine *machine = context;
  copse_status status;
  COPSE_TRY(check_pair_counts(calls, machine->n_ranks, err));
  for (uint32_t r = 0; r < machine->n_ranks; r++) {
    machine->inputs[r] = (void *)(uintptr_t)calls[r].send; /* only read: plans don't write inputs */
    machine->outputs[r] = calls[r].recv;
  }
  const struct copse_launch it = {.count = calls[0].count,
                                  .type = calls[0].type,
                                  .redop = calls[0].redop,
                                  .inputs = machine->inputs,
                                  .outputs = machine->outputs,
                                  .pair_counts = calls[0].pair_counts};
  COPSE_TRY(copse_exec_run(((struct prepared *)prepared)->exec, &it, err));
out:
  return status;
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
