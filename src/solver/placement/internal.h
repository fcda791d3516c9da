/* The inside of expert placement: what model, search, bound and branch and cut share. */
#pragma once

#include <string.h>

#include "base/memory.h"
#include "solver/placement/place.h"

/* The problem, rearranged. A kind is one of the two all-to-alls of a step; where every
 * group's costs are alike both ways the two take the same time, and one kind counts twice. */
struct copse_place_model {
  const struct copse_place_problem *p;
  size_t n_steps, n_experts, n_ranks, n_groups; /* the problem's, as sizes */
  int n_kinds;                                  /* 1 or 2 */
  int multiplicity;                             /* 2 / n_kinds */
  int64_t *sent;                                /* [g][e][s] tokens of group g for expert e */
  int64_t *tokens;                              /* [e][s] tokens for expert e */
  int64_t *sum;                                 /* [g][s] all tokens of group g */
  int *first;                                   /* [n_ranks + 1] into groups_of */
  int *groups_of;                               /* groups of each rank */
  char *inside;                                 /* [g][r] */
  struct copse_arena arena;
};

/* Returns the cost of what leaves (in dispatch) a group, in the all-to-all of a kind
 * (copse_place_in_cost: of what enters): in a combine what came in goes out. */
static inline int64_t copse_place_out_cost(const struct copse_place_model *m, size_t g, int kind) {
  const struct copse_place_group *group = &m->p->groups[g];
  return kind == 0 ? group->out_cost : group->in_cost;
}
static inline int64_t copse_place_in_cost(const struct copse_place_model *m, size_t g, int kind) {
  const struct copse_place_group *group = &m->p->groups[g];
  return kind == 0 ? group->in_cost : group->out_cost;
}
static inline const int64_t *copse_place_sent(const struct copse_place_model *m, size_t g,
                                              size_t e) {
  return m->sent + (g * m->n_experts + e) * m->n_steps;
}
static inline const int64_t *copse_place_tokens(const struct copse_place_model *m, size_t e) {
  return m->tokens + e * m->n_steps;
}

/* Computes, of a placement, tokens entering and leaving each group, [g][s], and the sum of step
 * times; step_times, if not NULL, gets [kind][s]. */
void copse_place_loads(const struct copse_place_model *model, const int *rank_of, int64_t *in,
                       int64_t *out, int64_t *step_times, int64_t *time);

/* Takes the placement over where its time is less. */
static inline void copse_place_take(const struct copse_place_model *m, const int *rank_of,
                                    int64_t time, struct copse_placement *best) {
  if (time >= best->time) return;
  best->time = time;
  memcpy(best->rank_of, rank_of, m->n_experts * sizeof *rank_of);
}

/* An expert with tokens that speak for or against it. */
struct copse_place_load {
  int64_t tokens;
  int expert;
};
/* Compares for qsort: fewest tokens first, equal ones by number. */
static inline int copse_place_by_load(const void *a, const void *b) {
  const struct copse_place_load *x = a, *y = b;
  if (x->tokens != y->tokens) return x->tokens < y->tokens ? -1 : 1;
  return x->expert - y->expert;
}

/* Proves bounds of the time: the relaxation's, then those of branch and cut, if the problem is
 * small enough. Either may find a better placement on its way. */
copse_status copse_place_prove(struct copse_place_model *model, struct copse_placement *best,
                               struct copse_err *err) COPSE_CHECKED;
