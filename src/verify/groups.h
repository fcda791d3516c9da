/* The independent check of groups that share a fabric: every schedule by itself, and all of them
 * together. */
#pragma once

#include "base/err.h"
#include "schedule/groups.h"
#include "verify/verify.h"

struct copse_verify_groups_report {
  bool same_topology;           /* the index was made for this topology */
  struct copse_q time_per_GB;   /* recomputed, of all groups together */
  struct copse_q bound;         /* recomputed from the cuts and potentials */
  bool optimal;                 /* the two are equal */
  int busiest_src, busiest_dst; /* nodes of a most loaded link; -1 without links */
};

/* Verifies schedules that run together; COPSE_REFUTED with what is wrong. `topology` is the whole
 * fabric, before any choice of ranks; `label` names the index in messages, a group's own by the
 * name of its file. Shares nothing with src/solver. */
copse_status copse_verify_groups(const struct copse_groups *groups,
                                 const struct copse_topology *topology, const char *label,
                                 struct copse_verify_groups_report *report,
                                 struct copse_err *err) COPSE_CHECKED;

/* Computes the time of all schedules together; the index's own is not looked at. */
copse_status copse_verify_groups_time(const struct copse_groups *groups,
                                      const struct copse_topology *topology, const char *label,
                                      struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/* Computes T/M that the index's cuts and potentials prove for any schedules of these groups, whose
 * ranks are GPUs of the topology; where 64 bits are too few, rounded down. COPSE_REFUTED where one
 * of them, or a symmetry, is none. */
copse_status copse_verify_groups_bound(const struct copse_groups *groups,
                                       const struct copse_topology *topology, const char *label,
                                       struct copse_q *bound, struct copse_err *err) COPSE_CHECKED;
