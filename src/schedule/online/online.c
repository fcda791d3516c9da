#include "schedule/online/online.h"

#include <stdlib.h>

#include "base/memory.h"
#include "schedule/online/internal.h"

copse_status copse_planner_create(const struct copse_topology *topology,
                                  const struct copse_schedule *offline,
                                  const struct copse_online_options *options,
                                  struct copse_planner **out, struct copse_err *err) {
  struct copse_planner *p = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *p, &p, err));
  p->topology = topology;
  COPSE_TRY(copse_two_tier_find(topology, &p->tier, err));
  if (p->tier.found)
    COPSE_TRY(copse_online_create(&p->tier.model, options, &p->online, err));
  else if (offline)
    COPSE_TRY(copse_rescale_create(topology, offline, &p->rescale, err));
  else
    COPSE_TRY(copse_fail(err, COPSE_UNSUPPORTED,
                         "not hosts of two tiers (%s): an alltoall schedule is needed to plan from",
                         p->tier.why_not));
  *out = p;
  p = NULL;
out:
  copse_planner_release(p);
  return status;
}

void copse_planner_release(struct copse_planner *p) {
  if (!p) return;
  copse_online_free(p->online);
  copse_rescale_release(p->rescale);
  copse_two_tier_release(&p->tier);
  free(p);
}

struct copse_online *copse_planner_two_tier(struct copse_planner *p) {
  return p->online;
}

copse_status copse_planner_plan(struct copse_planner *p, const int64_t *bytes,
                                struct copse_err *err) {
  return p->online ? copse_online_plan(p->online, bytes, err)
                   : copse_rescale_plan(p->rescale, bytes, err);
}

void copse_planner_bound(const struct copse_planner *p, struct copse_online_bound *bound) {
  if (p->online)
    copse_online_bound(p->online, bound);
  else
    copse_rescale_bound(p->rescale, bound);
}

double copse_planner_busiest_seconds(const struct copse_planner *p) {
  if (!p->online) return copse_rescale_busiest_seconds(p->rescale);
  const struct copse_online_model *m = &p->tier.model;
  int64_t bound, bytes;
  copse_online_inter(p->online, &bound, &bytes);
  double seconds_per_byte = (double)m->scale / 1e9 / (double)m->nic / (double)m->ranks_per_host;
  return (double)bytes * seconds_per_byte;
}

copse_status copse_planner_transfers(struct copse_planner *p, int rank, int which,
                                     struct copse_online_transfer *out, int64_t capacity,
                                     int64_t *n, struct copse_err *err) {
  return p->online ? copse_online_transfers(p->online, rank, which, out, capacity, n, err)
                   : copse_rescale_transfers(p->rescale, rank, which, out, capacity, n, err);
}

copse_status copse_planner_add_to_sim(struct copse_planner *p, struct copse_sim_dag *dag,
                                      struct copse_err *err) {
  return p->online ? copse_online_add_to_sim(p, dag, err)
                   : copse_rescale_add_to_sim(p->rescale, dag, err);
}
