/* Pictures of a schedule on its topology: which links are the bottleneck, and how one tree
 * runs. */
#pragma once

#include "schedule/schedule.h"
#include "view/draw.h"

/* Counts what moves together: a tree, or for an alltoall all that one rank sends. So the schedule's
 * trees, or one for each rank. */
static inline int copse_schedule_parts(const struct copse_schedule *s) {
  return s->collective == COPSE_ALLTOALL ? s->n_ranks : s->n_trees;
}

/* One hop from rank to rank of a part. */
struct copse_schedule_hop {
  int src, dst; /* ranks */
  int step;     /* 1 + the step of the hops that it waits for; from 1 */
  const int *path;
  int n_path;
};

/* Zero-initialise; free with copse_schedule_hops_free. */
struct copse_schedule_hops {
  struct copse_schedule_hop *list; /* [n] in order; paths are the schedule's */
  size_t n, capacity;
  int *scratch; /* [n_nodes or n_ranks] */
};

/* Finds the hops of a part, in place of what was there; the schedule must be expanded.
 * COPSE_INVALID where there is no such part. */
copse_status copse_schedule_hops_find(const struct copse_schedule *schedule, int part,
                                      struct copse_schedule_hops *hops,
                                      struct copse_err *err) COPSE_CHECKED;
static inline void copse_schedule_hops_free(struct copse_schedule_hops *hops) {
  free(hops->list);
  free(hops->scratch);
}

/* The pictures need a schedule whose node numbers are the topology's, as of a schedule that was
 * solved on it (else COPSE_INVALID). A compact schedule must have been expanded. */

/* Draws each direction of each link by its load over bandwidth, as a part of the time that the
 * schedule takes; links of the bound's cut (or greatest lengths) glow, the smaller side of the cut
 * has a ring. COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_schedule_draw_load(const struct copse_schedule *schedule,
                                      const struct copse_topology *topology,
                                      const struct copse_arrangement *arrangement, bool inlined,
                                      struct copse_text *text, struct copse_err *err) COPSE_CHECKED;

/* Draws a part's hops by colour. COPSE_INVALID where there is no such part. Part -1: part 0 as the
 * first of many that a page's script will show; title and legend are for all of them. */
copse_status copse_schedule_draw_part(const struct copse_schedule *schedule,
                                      const struct copse_topology *topology,
                                      const struct copse_arrangement *arrangement, int part,
                                      bool inlined, struct copse_text *text,
                                      struct copse_err *err) COPSE_CHECKED;
