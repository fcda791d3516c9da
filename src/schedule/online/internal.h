/* The two kinds of planner behind schedule/online.h. */
#ifndef COPSE_SCHEDULE_ONLINE_INTERNAL_H
#define COPSE_SCHEDULE_ONLINE_INTERNAL_H

#include "schedule/online/online.h"

/* "h12.gpu3" is host 12; -1 for an id without such a beginning. */
int copse_online_host_of(const char *id);

/* Bandwidths of all links as integers, `scale` of them to the GB/s. The caller frees *units. */
copse_status copse_online_link_units(const struct copse_topology *topology, int64_t **units,
                                     int64_t *scale, struct copse_err *err) COPSE_CHECKED;

/* Offline paths, re-scaled. */
struct copse_rescale;
copse_status copse_rescale_create(const struct copse_topology *topology,
                                  const struct copse_schedule *offline, struct copse_rescale **out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_rescale_release(struct copse_rescale *rescale);
copse_status copse_rescale_plan(struct copse_rescale *rescale, const int64_t *bytes,
                                struct copse_err *err) COPSE_CHECKED;
void copse_rescale_bound(const struct copse_rescale *rescale, struct copse_online_bound *bound);
double copse_rescale_busiest_seconds(const struct copse_rescale *rescale);
copse_status copse_rescale_transfers(struct copse_rescale *rescale, int rank, int which,
                                     struct copse_online_transfer *out, int64_t capacity,
                                     int64_t *n, struct copse_err *err) COPSE_CHECKED;
copse_status copse_rescale_add_to_sim(struct copse_rescale *rescale, struct copse_sim_dag *dag,
                                      struct copse_err *err) COPSE_CHECKED;

struct copse_planner {
  const struct copse_topology *topology;
  struct copse_two_tier tier;
  struct copse_online *online; /* one of these two */
  struct copse_rescale *rescale;
};

copse_status copse_online_add_to_sim(struct copse_planner *planner, struct copse_sim_dag *dag,
                                     struct copse_err *err) COPSE_CHECKED;

#endif
