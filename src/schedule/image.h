/* A schedule carried over to another topology by renaming nodes. */
#ifndef COPSE_SCHEDULE_IMAGE_H
#define COPSE_SCHEDULE_IMAGE_H

#include "schedule/schedule.h"
#include "topology/topology.h"

/*
 * ids [schedule->n_nodes] are nodes of `target`, each once: what the schedule's nodes become.
 * Where that takes links to links of the same bandwidth and ranks to ranks, the image is as good
 * there as the schedule is; nothing of it is checked here. The schedule must be without a root
 * and a demand, and expanded. Ranks are target's. The caller releases *out. COPSE_INVALID for an
 * id that target lacks, and for a schedule of another kind.
 */
copse_status copse_schedule_image(const struct copse_schedule *schedule, const char *const *ids,
                                  const struct copse_topology *target, struct copse_schedule **out,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
