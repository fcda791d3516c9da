/*
 * Inside src/codegen: what there is to do and who does it. A unit is one piece of one block with
 * what moves it: the tree that reduces it and the tree that broadcasts it (either may be missing),
 * or in an alltoall the path from its sender to its receiver. What one rank does for a unit is a
 * role, and roles are dealt to workers by what they move.
 */
#pragma once

#include "base/memory.h"
#include "base/text.h"
#include "codegen/lower/options.h"
#include "schedule/schedule.h"

/* ---- units ---------------------------------------------------------------------------- */

/* A tree seen from its vertices. */
struct copse_unit_tree {
  int *parent;      /* [n_ranks], -1 at the root */
  int *first_child; /* [n_ranks + 1] into children */
  int *children;    /* [n_ranks - 1], of each rank in the schedule's order */
  bool reduce;      /* sums go to the root */
};

static inline int copse_tree_children(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

struct copse_unit {
  struct copse_q lo, hi; /* of the block */
  int root;
  int tree; /* the schedule's tree that reduces the piece, else the one that broadcasts it */
  int broadcast_tree; /* of the schedule, -1: none */
  int block;          /* of the buffer with one block per rank; else 0 */
  const struct copse_unit_tree *reduce, *broadcast; /* NULL: no such phase */
  /* of an allreduce in stages instead: [n_stages * n_ranks] what a root's sum goes along in a
   * stage, NULL: nowhere */
  const struct copse_unit_tree *const *stages;
  int n_stages;
  const int *path; /* [n_path] of an alltoall's pair, from sender to receiver */
  int n_path;      /* 1: a rank's own block */
};

/* In the order of root and position in the block; an alltoall's by distance from sender to
 * receiver, then by sender: at any moment the ranks send to different ranks. Of a schedule for one
 * size in the order of its trees (an allreduce's by root all the same) or flows. */
struct copse_units {
  int n_units;
  struct copse_unit *units;
  bool in_order; /* trees of a schedule for one size: they take turns as it lists them */
  bool far_first; /* but for what has farther to go */
};

/*
 * Cuts every root's share along the trees' weights. An allreduce gets the common
 * refinement of both phases' cuts, so that every unit has one tree of each; in stages a unit for
 * each piece. An alltoall has the own blocks and a unit for each path of a pair; paths that differ
 * only in relays are one, and pairs whose demand is 0 have none. Each unit is then cut into
 * `instances` equal parts; if that is below 0, the widest into -instances, the others into so many
 * fewer that parts are about as wide; with `own_whole` a rank's own block stays whole. In the
 * arena. COPSE_UNSUPPORTED for a schedule whose switches copy or add, COPSE_OVERFLOW, COPSE_NOMEM.
 * O(trees * ranks + units log units + length of all paths).
 */
copse_status copse_units_make(struct copse_arena *arena, const struct copse_schedule *schedule,
                              int instances, bool own_whole, struct copse_units *out,
                              struct copse_err *err) COPSE_CHECKED;

/* Returns the distance from the sender to the receiver, 0 .. n_ranks - 1. */
static inline int copse_path_distance(const struct copse_unit *unit, int n_ranks) {
  return (unit->path[unit->n_path - 1] - unit->path[0] + n_ranks) % n_ranks;
}

static inline double copse_width(const struct copse_unit *unit) {
  return copse_q_to_double(unit->hi) - copse_q_to_double(unit->lo);
}

/* ---- dealing -------------------------------------------------------------------------- */

/* What one rank does for a unit in a phase, and when among the rest. */
struct copse_role {
  double cost;      /* data that the role moves; COPSE_POLICY_WAIT times that if it only waits */
  int rank, worker; /* of the rank's, from 0 */
  int phase;        /* in an alltoall the hop */
  int level, turn, unit;
  int first, end; /* of the tree's children: those that a broadcast puts to */
};

/* Puts roles in the order in which they run: by rank, worker, phase, level, turn and unit. */
void copse_roles_sort(struct copse_role *roles, size_t n);

/* Counts how many of the roles, in that order, are the first one's worker's. */
size_t copse_roles_of_worker(const struct copse_role *roles, size_t n);

/* Deals to workers [first, first + n_workers), the largest first to the least loaded (Graham 1969),
 * of equal ones by phase and unit. Sorts the roles. *most: raised to the largest load of a worker.
 * O(n log n + n n_workers). */
copse_status copse_roles_deal(struct copse_role *roles, size_t n, int first, int n_workers,
                              double *most, struct copse_err *err) COPSE_CHECKED;

/* Computes to how many roles each rank's puts to its children are dealt, 1: not at all: *ways
 * [n_units * n_ranks], of the arena. A root deals by how many trees begin there; others pass on
 * those that come through. Small messages keep a worker each. In packets always, else in a schedule
 * for one size, where messages keep workers longer than links. */
copse_status copse_units_ways(struct copse_arena *arena, const struct copse_schedule *schedule,
                              const struct copse_units *units,
                              const struct copse_lower_options *options, int **ways,
                              struct copse_err *err) COPSE_CHECKED;

/* Returns to how many ways a rank's puts to so many children are dealt, which puts in so many
 * trees.
 */
static inline int copse_ways(const struct copse_lower_options *options, int children, int n_trees) {
  int ways = children > 1 ? copse_smaller(options->max_workers / n_trees, children) : 1;
  return ways > 1 ? ways : 1;
}

/* Returns where in a tree's list, of children [first, end), those of such a role begin; all ways'
 * are all. */
static inline int copse_way_first(int first, int end, int way, int ways) {
  return first + (end - first) * way / ways;
}

/* How well a cut into so many instances can be dealt. */
struct copse_deal_outcome {
  double balance; /* the busiest rank's work over what its workers could do in the same time */
  int64_t roles;
};

/* Cuts into so many instances (below 0: see copse_units_make), instead of how it was cut before. */
typedef copse_status (*copse_deal_cut)(void *lowering, int instances,
                                       struct copse_deal_outcome *outcome, struct copse_err *err);

/* Cuts into `instances`; COPSE_LOWER_AUTO: into the fewest with which all workers, so many in all,
 * have about as much to do, or into the best of those tried if none keeps them all busy. */
copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  int64_t n_workers, struct copse_err *err) COPSE_CHECKED;

/* ---- whole chunks: for executors that cut every message into a fixed number of them --------- */

/* Consecutive chunks of one block, and the unit that moves them. */
struct copse_chunk_run {
  const struct copse_unit *unit;
  int offset, count; /* offset: within the block */
};

/* Finds the host of each rank, by the part of ids before a point (all on one where there is none),
 * or so many ranks each where ranks_per_host > 0. Returns how many there are. */
int copse_schedule_hosts(const struct copse_schedule *schedule, int ranks_per_host, int *host);

/* Whether every tree goes from or to its root in one hop, by a switch that copies and adds: what
 * --in-network gives where all ranks are at one. */
bool copse_schedule_is_group(const struct copse_schedule *schedule);

struct copse_whole_chunks {
  const struct copse_schedule *schedule;
  int stretch; /* no run crosses a multiple of so many chunks of its block */
  int blocks;  /* of the message: one per rank, or 1 for an allreduce */
  int block;   /* chunks of a block; 0: not cut yet */
  bool spread; /* roots round up and down at different parts of a chunk */
  int chunks;  /* blocks * block */
  struct copse_units units;
  struct copse_chunk_run *runs;
  size_t n_runs, runs_capacity;
  struct copse_arena arena; /* of the units */
};

/* Makes units of the schedule; not yet in chunks. COPSE_UNSUPPORTED: rooted, by demand. */
copse_status copse_chunks_start(struct copse_whole_chunks *w, const struct copse_schedule *schedule,
                                int instances, int stretch, struct copse_err *err) COPSE_CHECKED;
void copse_chunks_free(struct copse_whole_chunks *w);

/* Computes the fewest chunks of a block on which every boundary falls; more than `most` may be less
 * than that. */
copse_status copse_chunks_exact(const struct copse_whole_chunks *w, int most, int64_t *block,
                                struct copse_err *err) COPSE_CHECKED;

/* Cuts blocks of `block` chunks; a boundary within a chunk goes to the nearest, or with `spread`,
 * where each root has a block of its own, the more of them up the farther it is in the chunk: so of
 * a tree that has less than a chunk of each block some roots have one. */
copse_status copse_chunks_cut(struct copse_whole_chunks *w, int block, bool spread,
                              struct copse_err *err) COPSE_CHECKED;

/* Adds the topology's name in letters that no format reads as its own; other programs key by it. */
void copse_chunks_add_name(const struct copse_whole_chunks *w, struct copse_text *text);
