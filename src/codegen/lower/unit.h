/*
 * Inside src/codegen only: units of work. A unit is one piece of one block with the tree
 * that reduces it and the tree that broadcasts it (either may be missing).
 */
#ifndef COPSE_CODEGEN_LOWER_UNIT_H
#define COPSE_CODEGEN_LOWER_UNIT_H

#include "schedule/schedule.h"

/* A tree seen from its vertices. */
struct copse_unit_tree {
  int *parent;      /* [n_ranks], -1 at the root */
  int *first_child; /* [n_ranks + 1] into children */
  int *children;    /* [n_ranks - 1], of each rank in the schedule's order */
};

struct copse_unit {
  int root;
  int block; /* of the buffer that has one block per rank, else 0 */
  struct copse_q lo, hi;
  const struct copse_unit_tree *reduce, *broadcast; /* NULL: no such phase */
};

struct copse_units {
  int n_units;
  struct copse_unit *units; /* by root, then by position in the block */
  struct copse_arena arena;
};

/*
 * Cuts every root's share along the trees' weights. An allreduce gets the common
 * refinement of both phases' cuts, so that every unit has one tree of each. Each unit is then cut
 * into `instances` equal parts; if that is below 0, the widest into -instances, the others into so
 * many fewer that parts are about as wide.
 */
copse_status copse_units_make(const struct copse_schedule *schedule, int instances,
                              struct copse_units *out, struct copse_err *err) COPSE_CHECKED;

/* Parts of what has so large a part of the widest one's width. */
int copse_instances_of(int instances, double part_of_widest);

/*
 * Spreads units over at most `most` workers, largest first to the least loaded one:
 * worker_of[u], and how many are used. The same on every rank.
 */
copse_status copse_units_spread(const struct copse_units *units, int most, int *worker_of,
                                int *n_workers, struct copse_err *err) COPSE_CHECKED;
void copse_units_free(struct copse_units *units);

#endif
