#include "cli/plans_one_hop.h"

#include <stdlib.h>

#include "predict/simulate_programs.h"

/* A plan's predicted time at each of sizes [n]. */
static copse_status predict(const struct copse_topology *topology, const struct copse_plan *plan,
                            const uint64_t *sizes, int n, double *us, struct copse_err *err) {
  struct copse_sim_dag dag = {0};
  struct copse_foreign what = {0};
  struct copse_sim_options options = copse_sim_defaults;
  copse_status status;
  COPSE_TRY(copse_sim_dag_of_plan("plan", plan, topology, &dag, &what, err));
  copse_sim_options_of_plan(&plan->header, &options);
  for (int i = 0; i < n; i++) {
    struct copse_sim_result result;
    COPSE_TRY(copse_simulate(topology, &dag, &options, (double)sizes[i], &result, NULL, err));
    us[i] = result.us;
  }
out:
  free(what.demand);
  copse_sim_dag_free(&dag);
  return status;
}

copse_status copse_cli_one_hop_reach(const struct copse_topology *topology,
                                     const struct copse_schedule *schedule,
                                     const struct copse_lower_options *packets, uint64_t smallest,
                                     uint64_t *reach, struct copse_err *err) {
  struct copse_lower_options one_hop = *packets;
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_plan *one = NULL, *two = NULL;
  uint64_t sizes[64], most = (uint64_t)packets->max_bytes;
  double one_us[64], two_us[64];
  int n = 0;
  copse_status status;
  *reach = 0;
  one_hop.one_hop = true;
  one_hop.instances = 0; /* the ones given are a tree's */
  status = copse_lower_schedule(schedule, &one_hop, &one, &why);
  if (status == COPSE_UNSUPPORTED) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  for (uint64_t size = smallest; size <= most && n < 63; size *= 2) sizes[n++] = size;
  if (n == 0 || sizes[n - 1] < most) sizes[n++] = most;
  COPSE_TRY(copse_lower_schedule(schedule, packets, &two, err));
  COPSE_TRY(predict(topology, one, sizes, n, one_us, err));
  COPSE_TRY(predict(topology, two, sizes, n, two_us, err));
  for (int i = 0; i < n && one_us[i] < two_us[i]; i++) *reach = sizes[i];
out:
  copse_plan_release(one);
  copse_plan_release(two);
  return status;
}
