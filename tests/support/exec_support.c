#include "support/exec_support.h"

#include "runtime/interpreter/expected.h"
#include "support/support.h"

static struct copse_data data_of(const struct copse_plan *plan, struct exec_case it) {
  return (struct copse_data){.collective = (copse_collective)plan->header.collective,
                             .n_ranks = plan->header.n_ranks,
                             .root = plan->header.root,
                             .count = it.count,
                             .type = it.type,
                             .redop = it.redop,
                             .seed = it.count * 31 + it.type};
}

static copse_status run(struct copse_exec *exec, const struct copse_plan *plan, struct exec_case it,
                        uint64_t *wrong, struct copse_err *err) {
  struct copse_buffers buffers;
  struct copse_data data = data_of(plan, it);
  uint64_t bytes = it.count * copse_type_bytes(it.type);
  ASSERT_OK(copse_buffers_new(plan->header.n_ranks, plan->header.input_blocks * bytes,
                              plan->header.output_blocks * bytes, &buffers, err),
            err);
  copse_buffers_fill(&buffers, &data, it.in_place);
  const struct copse_launch launch = {it.count, it.type, it.redop, buffers.inputs, buffers.outputs, NULL};
  copse_status status = copse_exec_run(exec, &launch, err);
  *wrong = copse_buffers_count_wrong(&buffers);
  copse_buffers_free(&buffers);
  return status;
}

uint64_t exec_case_run(struct copse_exec *exec, const struct copse_plan *plan,
                       struct exec_case it) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t wrong;
  ASSERT_OK(run(exec, plan, it, &wrong, &err), &err);
  return wrong;
}

copse_status exec_case_status(struct copse_exec *exec, const struct copse_plan *plan,
                              struct exec_case it, struct copse_err *err) {
  uint64_t wrong;
  return run(exec, plan, it, &wrong, err);
}

int32_t exec_case_root(copse_collective collective, uint32_t n_ranks) {
  bool rooted = collective == COPSE_BROADCAST || collective == COPSE_REDUCE;
  return rooted ? (int32_t)(n_ranks / 2) : -1;
}

/* Every type and reduction; in a sanitized build one in so many, `first` and on. */
static void check_types(struct copse_exec *exec, const struct copse_plan *plan, int first,
                        struct exec_case it) {
  copse_collective collective = (copse_collective)plan->header.collective;
  int n_redops = copse_collective_reduces(collective) ? COPSE_N_REDOPS : 1;
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < n_redops; redop++) {
      if ((type + redop) % COPSE_TEST_ONE_IN != first % COPSE_TEST_ONE_IN) continue;
      it.type = (enum copse_type)type;
      it.redop = (enum copse_redop)redop;
      uint64_t wrong = exec_case_run(exec, plan, it);
      ck_assert_msg(wrong == 0, "%s of %u ranks, %s %s, count %llu, %s: %llu wrong",
                    copse_collective_name(collective), plan->header.n_ranks,
                    copse_type_name(it.type), copse_redop_name(it.redop),
                    (unsigned long long)it.count, it.in_place ? "in place" : "out of place",
                    (unsigned long long)wrong);
    }
}

void exec_check_all(const struct copse_plan *plan, enum copse_backend backend,
                    const uint64_t *counts) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  bool has_in_place = copse_buffers_has_in_place((copse_collective)plan->header.collective);
  for (int i = 0; counts[i] != UINT64_MAX; i++) {
    check_types(exec, plan, i, (struct exec_case){.count = counts[i], .in_place = false});
    if (has_in_place)
      check_types(exec, plan, i + 2, (struct exec_case){.count = counts[i], .in_place = true});
  }
  copse_exec_free(exec);
}
