/*
 * Inside src/schedule only: what the readers of trees (read_json.c) and of flows
 * (read_flows.c) share.
 */
#ifndef COPSE_SCHEDULE_READ_INTERNAL_H
#define COPSE_SCHEDULE_READ_INTERNAL_H

#include "base/json.h"
#include "schedule/schedule.h"

/* Node ids seen so far, by open addressing; ids are copied into the schedule's arena. */
struct copse_schedule_reader {
  struct copse_json json;
  struct copse_schedule *schedule;
  const char **nodes;
  size_t n_nodes, nodes_capacity;
  int *table; /* node + 1, 0: free */
  size_t table_size;
  char *seen;              /* [n_ranks] per tree */
  size_t n_rotation_nodes; /* nodes that the rotation maps, 0 without one */
  copse_status untrue;     /* for what is well formed and wrong: COPSE_BAD_INPUT or COPSE_REFUTED */
  struct copse_err *err;
};

/* COPSE_BAD_INPUT at the item's line, or its parent's. */
copse_status copse_reader_refuse(struct copse_schedule_reader *r, const cJSON *item,
                                 const cJSON *parent, const char *what);
/* The same for a schedule that is well formed but not one of its collective, with `untrue`. */
copse_status copse_reader_refute(struct copse_schedule_reader *r, const cJSON *item,
                                 const cJSON *parent, const char *what);
/* The index of a node id, new ones appended. */
copse_status copse_reader_intern(struct copse_schedule_reader *r, const char *id, int *index)
    COPSE_CHECKED;
/* The index of an id seen before, -1 for others. */
int copse_reader_known(const struct copse_schedule_reader *r, const char *id);
/* Zeroed memory of the schedule, NULL when it ran out. */
void *copse_reader_take(struct copse_schedule_reader *r, size_t n, size_t size);
/* An array of node ids. */
copse_status copse_reader_nodes(struct copse_schedule_reader *r, const cJSON *array,
                                const cJSON *parent, const char *what, const int **out, int *n)
    COPSE_CHECKED;

/* "flows", "demand", "forward" and "rotation" of an alltoall. */
copse_status copse_reader_flows(struct copse_schedule_reader *r) COPSE_CHECKED;
/* "lengths" of its bound. */
copse_status copse_reader_lengths(struct copse_schedule_reader *r, const cJSON *bound)
    COPSE_CHECKED;
/* "cuts" and "potentials" of an allreduce's. */
copse_status copse_reader_cuts(struct copse_schedule_reader *r, const cJSON *bound) COPSE_CHECKED;

#endif
