/*
 * Inside src/codegen: what there is to do and who does it. A unit is one piece of one block with
 * the tree that reduces it and the tree that broadcasts it (either may be missing). A chain is one
 * piece of one pair's block of an alltoall with the ranks along which it travels. What one rank
 * does for a unit or a chain is a role, and roles are dealt to workers by what they move.
 */
#ifndef COPSE_CODEGEN_LOWER_WORK_H
#define COPSE_CODEGEN_LOWER_WORK_H

#include "base/memory.h"
#include "schedule/schedule.h"

/* ---- units ---------------------------------------------------------------------------- */

/* A tree seen from its vertices. */
struct copse_unit_tree {
  int *parent;      /* [n_ranks], -1 at the root */
  int *first_child; /* [n_ranks + 1] into children */
  int *children;    /* [n_ranks - 1], of each rank in the schedule's order */
};

static inline int copse_tree_children(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

struct copse_unit {
  int root;
  int tree; /* of the schedule: the one that reduces it, else the one that broadcasts it */
  int block; /* of the buffer that has one block per rank, else 0 */
  struct copse_q lo, hi;
  const struct copse_unit_tree *reduce, *broadcast; /* NULL: no such phase */
};

struct copse_units {
  int n_units;
  struct copse_unit *units; /* by root, then by position in the block; or as below */
  bool in_order;            /* of a schedule for one size: in the order of its trees, in which they take
                               turns; an allreduce's by root as ever, as its schedule is meant */
  size_t capacity;
  struct copse_arena arena;
};

/*
 * Cuts every root's share along the trees' weights. An allreduce gets the common
 * refinement of both phases' cuts, so that every unit has one tree of each. Each unit is then cut
 * into `instances` equal parts; if that is below 0, the widest into -instances, the others into so
 * many fewer that parts are about as wide. COPSE_UNSUPPORTED for a schedule whose switches copy or
 * add, COPSE_OVERFLOW, COPSE_NOMEM. O(trees * ranks + units).
 */
copse_status copse_units_make(const struct copse_schedule *schedule, int instances,
                              struct copse_units *out, struct copse_err *err) COPSE_CHECKED;
void copse_units_free(struct copse_units *units);

/* ---- chains --------------------------------------------------------------------------- */

struct copse_chain {
  int n;
  const int *ranks;      /* [n], from sender to receiver; n = 1: a rank's own block */
  struct copse_q lo, hi; /* of the pair's block */
};

struct copse_chains {
  int n_chains;
  struct copse_chain *chains; /* by distance from sender to receiver, then by sender; of a schedule
                                 for one size as its flows are listed, own blocks first */
  size_t capacity;
  struct copse_arena arena;
};

/*
 * All chains of an alltoall, own blocks included, each cut into parts as in copse_units_make; with
 * `own_whole` not a rank's own block. Paths that differ only in relays are one chain. Pairs whose
 * demand is 0 have none. COPSE_OVERFLOW, COPSE_NOMEM. O(chains log chains + length of all paths).
 */
copse_status copse_chains_make(const struct copse_schedule *schedule, int instances, bool own_whole,
                               struct copse_chains *out, struct copse_err *err) COPSE_CHECKED;
void copse_chains_free(struct copse_chains *chains);

/* From the sender to the receiver, 0 .. n_ranks - 1. */
static inline int copse_chain_distance(const struct copse_chain *c, int n_ranks) {
  return (c->ranks[c->n - 1] - c->ranks[0] + n_ranks) % n_ranks;
}

static inline double copse_width(struct copse_q lo, struct copse_q hi) {
  return copse_q_to_double(hi) - copse_q_to_double(lo);
}

/* ---- dealing -------------------------------------------------------------------------- */

struct copse_deal_role {
  double cost; /* the data that it moves; COPSE_POLICY_WAIT times that if it only waits */
  int key;     /* the caller's name for it; roles that cost the same are dealt in its order */
  int worker;  /* the answer, from 0 */
};

/*
 * Largest first to the least loaded worker (Graham 1969). Sorts the roles. *most: raised to
 * the largest load of a worker. O(n log n + n n_workers).
 */
copse_status copse_deal(struct copse_deal_role *roles, size_t n, int n_workers, double *most,
                        struct copse_err *err) COPSE_CHECKED;

/* Deals units to at most `most` workers, the same on every rank: worker_of[u], and how many are
 * used. */
copse_status copse_units_spread(const struct copse_units *units, int most, int *worker_of,
                                int *n_workers, struct copse_err *err) COPSE_CHECKED;

/* How well a cut into so many instances can be dealt. */
struct copse_deal_outcome {
  double balance;    /* the busiest rank's work over what its workers could do in the same time */
  double per_worker; /* roles */
  int64_t roles;
};

/* Cuts into so many instances (below 0: see copse_units_make), instead of how it was cut before. */
typedef copse_status (*copse_deal_cut)(void *lowering, int instances,
                                       struct copse_deal_outcome *outcome, struct copse_err *err);

/*
 * Cuts into `instances`; COPSE_LOWER_AUTO: into the fewest with which all workers have about as
 * much to do, or into the best of those tried if none keeps them all busy.
 */
copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
