/*
 * Cuts that were seen to be narrow, each with what it can spare. A search that stays within
 * them rarely breaks another cut, so it can run ahead of the proof: one maximum flow per
 * terminal for many steps in place of some for each. A cut that a proof finds broken joins.
 */
#ifndef COPSE_SOLVER_NETWORK_CUTS_H
#define COPSE_SOLVER_NETWORK_CUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A cut is the set of nodes that must be entered. When all places are taken, a new one
 * replaces the one that can spare most. */
struct copse_cuts {
  int n_nodes, n, most;
  int64_t *slack;        /* [n] by how much the links into the set exceed what must enter */
  uint64_t *hash;        /* [n] of the set */
  unsigned char *member; /* [n_nodes * most] by node: whether it is in cut c */
  int *n_holding;        /* [n_nodes] the same as lists: */
  int *holding;          /* [n_nodes * most] by node: the cuts it is in */
};

copse_status copse_cuts_new(int n_nodes, struct copse_cuts *out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_cuts_free(struct copse_cuts *cuts);

/* Which cuts hold `node`: [n] flags. */
const unsigned char *copse_cuts_of(const struct copse_cuts *cuts, int node);

/* The cuts that hold `node`: [cuts.n_holding[node]]. */
const int *copse_cuts_holding(const struct copse_cuts *cuts, int node);

/* Adds the set given by flags [n_nodes]; -1 where it is known, else its place. */
int copse_cuts_add(struct copse_cuts *cuts, const unsigned char *inside, int64_t slack);

/*
 * Networks of so many terminals are split, and those of so many roots packed, by trust in known
 * cuts: many guesses under one proof, which is faster. Smaller ones get the trees of the careful
 * way, relay by relay and root by root, which are often lower. From so many terminals on the trees
 * of a single root are looked for over physical links first (solver/single.h). Tests set it.
 */
extern int copse_trust_from;

#endif
