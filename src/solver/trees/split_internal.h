/* Edge splitting in parts: moves of capacity with their proof (split_moves.c), the guess for one
 * relay (split_guess.c), the pairwise rule (split_pairs.c), the order of the whole (split.c). */
#ifndef COPSE_SOLVER_TREES_SPLIT_INTERNAL_H
#define COPSE_SOLVER_TREES_SPLIT_INTERNAL_H

#include "base/rational.h"
#include "solver/network/cuts.h"
#include "solver/network/sinks.h"
#include "solver/trees/split.h"

/* `amount` of (u, w) and (w, t) to be replaced by (u, t). */
struct copse_split_step {
  int u, t;
  int64_t amount;
};

/* A step that the flow graph has seen and the paths have not. */
struct copse_split_taken {
  int w;
  struct copse_split_step step;
};

struct copse_splitter {
  const struct copse_network *network;
  struct copse_flow *flow; /* node n_nodes is the source of all roots */
  struct copse_paths *paths;
  struct copse_sinks sinks;
  int64_t demand;    /* what every terminal must be able to receive */
  int *order;        /* [n_terminals] terminals, those that failed lately first */
  bool *is_terminal; /* [n_nodes] */
  bool trusts;
  bool many_pairs;                /* the pairwise rule takes many pairs under one proof */
  struct copse_split_step *steps; /* the guess for one relay */
  size_t n_steps, steps_capacity;
  struct copse_split_taken *taken; /* steps to be proved, to be undone if that fails */
  size_t n_taken, taken_capacity;
  struct copse_cuts cuts;  /* with what they can spare now */
  int *entering, *leaving; /* [n_nodes] neighbours of the relay at hand */
  int *group;              /* [n_nodes] union-find by fast links */
  int *turn;               /* [n_nodes] of relays: how many before it have as many links */
  int *members;            /* [n_nodes] neighbours sorted by group */
  int *group_start;        /* [n_nodes + 1] */
};

/* Neighbours kept beyond the next query; returns how many. */
int copse_splitter_copy_neighbours(struct copse_flow_neighbours list, int *nodes);

/* Whether relay w has no links left. */
bool copse_splitter_is_empty(struct copse_splitter *s, int w);

/* ---- moves ----------------------------------------------------------------------------- */

/* What the known cuts leave of a step. */
int64_t copse_splitter_spared(const struct copse_splitter *s, int w,
                              const struct copse_split_step *step);

/* A step on trust: proved, then committed, or undone. */
copse_status copse_splitter_take(struct copse_splitter *s, int w, struct copse_split_step step,
                                 struct copse_err *err) COPSE_CHECKED;

/* The steps taken become part of the paths. */
copse_status copse_splitter_commit(struct copse_splitter *s, struct copse_err *err) COPSE_CHECKED;

/* Takes back all steps but the first `keep`. */
copse_status copse_splitter_undo(struct copse_splitter *s, size_t keep,
                                 struct copse_err *err) COPSE_CHECKED;

/* A cut, and the same with relay w on the other side if that has no links (w >= 0). */
void copse_splitter_learn(struct copse_splitter *s, const struct copse_sink_cut *cut, int w);

/* A terminal that failed is likely to fail again: ask it first next time. */
void copse_splitter_to_front(struct copse_splitter *s, int i);

/* Which terminals from place `from` on receive less than the demand; so many of them. */
copse_status copse_splitter_ask(struct copse_splitter *s, int from, int most, bool tight,
                                struct copse_err *err) COPSE_CHECKED;

/* Whether every terminal still receives its demand. */
copse_status copse_splitter_all_served(struct copse_splitter *s, bool *served,
                                       struct copse_err *err) COPSE_CHECKED;

/*
 * Splits by the largest safe amount, at most step->amount. A split lowers a cut by the
 * amount or leaves it, so a terminal that comes up short by d is served again exactly
 * when the amount is lowered by d.
 */
copse_status copse_splitter_take_largest(struct copse_splitter *s, int w,
                                         struct copse_split_step step,
                                         struct copse_err *err) COPSE_CHECKED;

/* Does steps [from, to) if all together are safe; else halves, down to none for one. */
copse_status copse_splitter_try(struct copse_splitter *s, int w, size_t from, size_t to,
                                struct copse_err *err) COPSE_CHECKED;

/* ---- pairs ------------------------------------------------------------------------------- */

/* The pairwise rule on whatever the guess left of relay w; pairs u = t only when nothing else goes.
 * All of it: what the network carried it carries without w. */
copse_status copse_splitter_pairwise(struct copse_splitter *s, int w,
                                     struct copse_err *err) COPSE_CHECKED;

/* ---- the guess --------------------------------------------------------------------------- */

/* The capacity of the fastest link into relay w or out of it. */
int64_t copse_splitter_fastest_link(struct copse_splitter *s, int w);

/* Guesses for relay w, whose n distinct neighbours are sorted in s->members, what of its capacity
 * each sends to which other: s->steps. */
copse_status copse_splitter_guess(struct copse_splitter *s, int w, int n,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
