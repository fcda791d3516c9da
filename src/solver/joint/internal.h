/* Inside src/solver/joint only: one search for a joint optimum. joint.c runs its rounds, model.c
 * writes the programme, proof.c turns its rational solution into integers and its multipliers into
 * cuts, rounded ones where its fractions are too fine. */
#pragma once

#include "solver/joint/joint.h"
#include "solver/lp/linear_programme.h"

struct copse_joint_phase {
  int group;
  bool reduce;
  bool rest;      /* has what the phase before it, of the same columns, leaves of each link */
  int sink;       /* the member that all goes to; -1: to every terminal */
  bool *terminal; /* [n_nodes] */
  int *column;    /* [n_links] column of a_q[e] and all its images; -1: the phase needs none */
  int *relay_row; /* [n_nodes] of the balance, with a sink of what a node adds; -1: none */
  int *anchor;    /* [n_nodes] the only node that a relay of no use hangs on, -1: of use */
  int *leader;    /* [n_nodes] a node's first image over all phases; -1: not in this phase */
};

struct copse_joint_row {
  int phase, row;
  const bool *inside; /* [n_nodes] */
};

/* Columns: first the rates, one for all or one for each group; then the free shares; then the
 * links. What symmetries map to each other has one column, and one row. */
struct copse_joint_search {
  const struct copse_network *network;
  const struct copse_joint_group *groups;
  int n_groups, n_phases, n_columns;
  int n_rates;                             /* 1 or n_groups */
  int64_t *units;                          /* [n_links] capacities in the programme's units */
  const struct copse_joint_limits *limits; /* NULL: capacities of links */
  int *limit_row;                          /* [limits->n] -1: no link counts in it */
  int *link_row;                           /* [n_links] of its capacity, without limits; or -1 */
  bool whole; /* options.whole_links: no column of a rate, which is the sum of the shares */
  bool turned; /* each reduction is its group's broadcast with all links turned round */
  int *back;   /* [n_links] the link back of each, where that is so */
  int *twin;  /* [n_groups] the first group that symmetries map to it, whose rate it has */
  struct copse_joint_phase *phases; /* [n_phases] */
  int **share;                      /* [n_groups][n_members] columns, NULL: shares are equal */
  bool *leads;                      /* [n_links] is the first of its images */
  int64_t n_places;                 /* links of use, summed over phases */
  int64_t *uses;                    /* [n_columns] how many of them; 0: not of a link */
  struct copse_lp *lp;
  struct copse_lp_term *terms; /* [n_columns] a row being written */
  int n_terms;
  int *term_at; /* [n_columns] 1 + place in the row being written, 0: none */
  struct copse_joint_row *cuts;
  size_t n_cuts, cuts_capacity;
  int64_t *value, *inner; /* [n_columns] in units: the solution, a point that no cut forbids */
  int64_t *end, *middle;  /* [n_columns] the first point beyond it that one does, half way there */
  int64_t *shares, *capacities;    /* [n_nodes], [n_links]: a phase to be looked at */
  bool *side, *set;                /* [n_nodes] a cut to be added; room for it among the cuts */
  bool rounded;                    /* the parts or the proof at hand */
  int64_t max_whole;               /* of parts */
  struct copse_arena arena;        /* of all arrays but cuts */
  struct copse_err *err;
};

/* Counts roots of equal share, 0 where they are free. */
static inline int copse_joint_roots(const struct copse_joint_search *s, int group) {
  const struct copse_joint_group *g = &s->groups[group];
  if (g->broadcasts && g->reduces) return 0;
  return g->root >= 0 ? 1 : g->n_members;
}
static inline bool copse_joint_is_root(const struct copse_joint_group *group, int member) {
  return group->root < 0 || group->members[member] == group->root;
}

/* Returns the node that a node was merged into, or itself: in a proof both are on one side, so that
 * links between them do not count. */
static inline int copse_joint_anchor(const struct copse_joint_phase *phase, int node) {
  while (phase->anchor[node] >= 0) node = phase->anchor[node];
  return node;
}

/* Whether a node is the first of its images, which stands for all of them. */
static inline bool copse_joint_leads(const struct copse_joint_phase *phase, int node) {
  return phase->leader[node] == node;
}

static inline int copse_joint_rate_column(const struct copse_joint_search *s, int group) {
  return s->n_rates > 1 ? s->twin[group] : 0;
}

/* Counts the terminals of a phase: its group's members, then its extra ones (copse_joint_terminal:
 * the i-th). */
static inline int copse_joint_terminals(const struct copse_joint_search *s,
                                        const struct copse_joint_phase *phase) {
  return s->groups[phase->group].n_members + s->groups[phase->group].n_extra[phase->reduce];
}
static inline int copse_joint_terminal(const struct copse_joint_search *s,
                                       const struct copse_joint_phase *phase, int i) {
  const struct copse_joint_group *group = &s->groups[phase->group];
  return i < group->n_members ? group->members[i]
                              : group->extra[phase->reduce][i - group->n_members];
}

/* Returns the amounts of this phase in its group's part. */
static inline const int64_t *copse_joint_amounts(const struct copse_joint_phase *phase,
                                                 const struct copse_joint_part *part) {
  if (phase->sink >= 0) return part->exchange[phase->sink];
  return phase->reduce ? part->reduce : part->broadcast;
}

/* Makes columns, and the rows that are no cuts. *small is false where there are too many
 * columns. */
copse_status copse_joint_model(struct copse_joint_search *s,
                               const struct copse_joint_options *options,
                               bool *small) COPSE_CHECKED;
/* Adds the cut of a set, `inside`, unless the phase has it from `first` on. */
copse_status copse_joint_add_cut(struct copse_joint_search *s, int phase, const bool *inside,
                                 size_t first) COPSE_CHECKED;

/* Adds a group's rate to `rate`, which is 0. */
static inline void copse_joint_rate(const struct copse_joint_search *s, int group, mpq_t *solution,
                                    mpq_t rate) {
  if (!s->whole) mpq_set(rate, solution[copse_joint_rate_column(s, group)]);
  for (int i = 0; s->whole && i < s->groups[group].n_members; i++)
    mpq_add(rate, rate, solution[s->share[group][i]]);
}

/* Writes the parts in whole numbers into *out. *fits is false where they leave 64 bits. */
copse_status copse_joint_parts(const struct copse_joint_search *s, mpq_t *solution,
                               struct copse_joint *out, bool *fits) COPSE_CHECKED;
/* Writes the same in rounded numbers, which load links a little more; false where that can't be. */
copse_status copse_joint_round(const struct copse_joint_search *s, mpq_t *solution,
                               struct copse_joint *out, bool *fits) COPSE_CHECKED;
/* Rounds multipliers to whole numbers of about 30 bits, whose cuts and potentials are a proof of a
 * little less. */
void copse_joint_round_multipliers(mpq_t *multipliers, size_t n);
/* Writes the cuts and potentials into *out, whose parts are there. */
copse_status copse_joint_proof(const struct copse_joint_search *s, mpq_t *multipliers,
                               struct copse_joint *out, bool *fits) COPSE_CHECKED;

/* Adds the cuts that parts in whole numbers violate. */
copse_status copse_joint_separate_parts(struct copse_joint_search *s,
                                        const struct copse_joint *found) COPSE_CHECKED;

/* Tries several groups by paths from member to member, into *out. *done: the outcome is there. Else
 * nothing has changed: sets of members are too many, or the method fails. */
copse_status copse_joint_by_paths(struct copse_joint_search *s,
                                  const struct copse_joint_options *options,
                                  struct copse_joint *out, bool *done) COPSE_CHECKED;
