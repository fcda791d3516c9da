#include "support/exec_support.h"

#include "runtime/interpreter/expected.h"
#include "base/clock.h"
#include "predict/calibrate.h"
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

void exec_check_profile(const struct copse_plan *plan, enum copse_backend backend) {
  struct copse_err err = COPSE_ERR_INIT;
  const double bytes[] = {1 << 10, 1 << 16};
  struct copse_topology *t;
  struct copse_exec *exec;
  struct copse_buffers buffers;
  struct copse_calibration fit;
  double us[2], simulated_us[2];
  ASSERT_OK(copse_topology_synthetic("switch:4@10", &(struct copse_topology_options){0}, &t, &err),
            &err);
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  ASSERT_OK(copse_buffers_new(4, 1 << 14, 1 << 16, &buffers, &err), &err);
  for (int i = 0; i < 2; i++) {
    const struct copse_data data = {.collective = COPSE_ALLGATHER,
                                    .n_ranks = 4,
                                    .root = -1,
                                    .count = (uint64_t)bytes[i] / 16,
                                    .type = COPSE_FLOAT};
    copse_buffers_fill(&buffers, &data, false);
    const struct copse_launch it = {data.count,     COPSE_FLOAT,     COPSE_SUM,
                                    buffers.inputs, buffers.outputs, NULL};
    ASSERT_OK(copse_exec_load(exec, &it, &err), &err);
    for (int launch = 0; launch < 2; launch++) { /* the first one warms up */
      double start = copse_clock_seconds();
      ASSERT_OK(copse_exec_start(exec, &it, &err), &err);
      ASSERT_OK(copse_exec_finish(exec, &err), &err);
      us[i] = 1e6 * (copse_clock_seconds() - start);
    }
  }
  if (us[1] < 4 * us[0]) us[1] = 4 * us[0]; /* on a machine with other work */
  ASSERT_OK(copse_calibrate("a.plan", t, plan, bytes, us, 2, &fit, simulated_us, &err), &err);
  ck_assert_double_eq_tol(simulated_us[1], us[1], 0.3 * us[1]);
  copse_buffers_free(&buffers);
  copse_exec_free(exec);
  copse_topology_free(t);
}
