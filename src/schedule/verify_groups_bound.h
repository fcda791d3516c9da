/* Inside src/schedule only: the part of copse_verify_groups that adds up the bound's proof. */
#ifndef COPSE_SCHEDULE_VERIFY_GROUPS_BOUND_H
#define COPSE_SCHEDULE_VERIFY_GROUPS_BOUND_H

#include "schedule/verify_groups.h"

/* T/M that the cuts and potentials prove for any schedules of these groups, whose ranks are known
 * to be GPUs of the topology. COPSE_REFUTED where one of them, or a symmetry, is none. */
copse_status copse_verify_groups_bound(const struct copse_groups *groups,
                                       const struct copse_topology *topology, const char *label,
                                       struct copse_q *bound, struct copse_err *err) COPSE_CHECKED;

#endif
