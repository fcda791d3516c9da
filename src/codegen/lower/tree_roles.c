#include "codegen/lower/tree_roles.h"

#include <stdlib.h>

bool copse_tree_has_role(const struct copse_tree_roles *t, int phase, int u, int rank) {
  const struct copse_unit *unit = &t->units.units[u];
  if (!t->parts[phase][u].tree) return false;
  return phase == COPSE_TREE_REDUCE || !unit->reduce || rank != unit->root;
}

/* Pieces read and written. */
static double role_cost(const struct copse_tree_roles *t, int phase, int u, int rank) {
  const struct copse_unit *unit = &t->units.units[u];
  int children = copse_tree_children(t->parts[phase][u].tree, rank);
  double operands = 1 + children;
  if (phase == COPSE_TREE_REDUCE)
    operands +=
        1 +
        (rank == unit->root && unit->broadcast ? copse_tree_children(unit->broadcast, rank) : 0);
  else if (rank == unit->root)
    operands++; /* its own copy */
  else if (children == 0)
    operands = COPSE_DEAL_WAIT;
  return operands * (copse_q_to_double(unit->hi) - copse_q_to_double(unit->lo));
}

/* Levels of one tree: a broadcast's from the root down, a reduction's from the leaves up. */
static void find_levels(const struct copse_unit_tree *tree, int root, int phase, int *level,
                        int *order) {
  int n = 1;
  order[0] = root;
  level[root] = 0;
  for (int i = 0; i < n; i++) /* ranks by distance from the root */
    for (int k = tree->first_child[order[i]]; k < tree->first_child[order[i] + 1]; k++) {
      level[tree->children[k]] = phase == COPSE_TREE_BROADCAST ? level[order[i]] + 1 : 0;
      order[n++] = tree->children[k];
    }
  for (int i = n - 1; i > 0 && phase == COPSE_TREE_REDUCE; i--) {
    int parent = tree->parent[order[i]];
    if (level[parent] <= level[order[i]]) level[parent] = level[order[i]] + 1;
  }
}

static copse_status make_parts(struct copse_tree_roles *t, struct copse_err *err) {
  size_t n = (size_t)t->schedule->n_ranks;
  int *order = copse_arena_alloc(&t->arena, n, sizeof *order);
  copse_status status = order ? COPSE_OK : copse_fail_nomem(err);
  for (int p = 0; p < COPSE_TREE_PHASES && status == COPSE_OK; p++) {
    COPSE_TRY(
        copse_calloc((size_t)t->units.n_units, sizeof(struct copse_tree_part), &t->parts[p], err));
    for (int u = 0; u < t->units.n_units; u++) {
      struct copse_tree_part *part = &t->parts[p][u];
      const struct copse_unit *unit = &t->units.units[u];
      part->tree = p == COPSE_TREE_REDUCE ? unit->reduce : unit->broadcast;
      if (!part->tree) continue;
      part->level = copse_arena_alloc(&t->arena, n, sizeof(int));
      part->worker = copse_arena_alloc(&t->arena, n, sizeof(int));
      if (!part->level || !part->worker) return copse_fail_nomem(err);
      find_levels(part->tree, unit->root, p, part->level, order);
    }
  }
out:
  return status;
}

/* ---- workers ---------------------------------------------------------------------- */

/* What the busiest rank has to do in a phase. */
struct effort {
  double cost;
  int movers, waiters; /* roles that move data, and roles that don't */
};

static struct effort phase_effort(const struct copse_tree_roles *t, int phase) {
  struct effort most = {0, 0, 0};
  for (int rank = 0; rank < t->schedule->n_ranks; rank++) {
    struct effort it = {0, 0, 0};
    for (int u = 0; u < t->units.n_units; u++) {
      if (!copse_tree_has_role(t, phase, u, rank)) continue;
      bool waits = phase == COPSE_TREE_BROADCAST && rank != t->units.units[u].root &&
                   copse_tree_children(t->parts[phase][u].tree, rank) == 0;
      *(waits ? &it.waiters : &it.movers) += 1;
      it.cost += role_cost(t, phase, u, rank);
    }
    if (it.cost > most.cost) most.cost = it.cost;
    if (it.movers > most.movers) most.movers = it.movers;
    if (it.waiters > most.waiters) most.waiters = it.waiters;
  }
  return most;
}

static int at_most(int value, int most) { return value < most ? value : most; }

/*
 * Reductions and broadcasts that are passed on have workers of their own, in proportion to what
 * they move: one worker for both would wait for its own chunk to come back before it sent
 * the next. Who only waits for the end of a broadcast does that anywhere.
 */
static void split_workers(const struct effort effort[COPSE_TREE_PHASES], int most,
                          int first[COPSE_TREE_PHASES], int count[COPSE_TREE_PHASES]) {
  const struct effort reduce = effort[COPSE_TREE_REDUCE];
  const struct effort broadcast = effort[COPSE_TREE_BROADCAST];
  int roles = broadcast.movers > 0 ? broadcast.movers : broadcast.waiters;
  first[COPSE_TREE_REDUCE] = first[COPSE_TREE_BROADCAST] = 0;
  count[COPSE_TREE_REDUCE] = at_most(reduce.movers, most);
  count[COPSE_TREE_BROADCAST] = at_most(roles, most);
  if (reduce.movers == 0) return;
  count[COPSE_TREE_BROADCAST] = count[COPSE_TREE_REDUCE];
  if (broadcast.movers == 0) return;
  int share = (int)(most * broadcast.cost / (reduce.cost + broadcast.cost) + 0.5);
  share = share < 1 ? 1 : at_most(share, most - 1);
  count[COPSE_TREE_REDUCE] = at_most(reduce.movers, most - share);
  count[COPSE_TREE_BROADCAST] = at_most(broadcast.movers, share);
  first[COPSE_TREE_BROADCAST] = count[COPSE_TREE_REDUCE];
}

static copse_status deal_phase(struct copse_tree_roles *t, int phase, int rank, int first,
                               int count, struct copse_deal_role *roles, double *most,
                               struct copse_err *err) {
  size_t n = 0;
  copse_status status;
  for (int u = 0; u < t->units.n_units; u++)
    if (copse_tree_has_role(t, phase, u, rank))
      roles[n++] = (struct copse_deal_role){.cost = role_cost(t, phase, u, rank), .key = u};
  COPSE_TRY(copse_deal(roles, n, count, most, err));
  for (size_t i = 0; i < n; i++)
    t->parts[phase][roles[i].key].worker[rank] = first + roles[i].worker;
out:
  return status;
}

/* Those of a rank: of the first phase all have something to do, of the second maybe fewer. */
static int count_workers(const struct copse_tree_roles *t, int rank) {
  int n = 0;
  for (int p = 0; p < COPSE_TREE_PHASES; p++)
    for (int u = 0; u < t->units.n_units; u++)
      if (copse_tree_has_role(t, p, u, rank) && t->parts[p][u].worker[rank] >= n)
        n = t->parts[p][u].worker[rank] + 1;
  return n;
}

/* *balance: the busiest rank's work over what its workers could do in the time of the busiest. */
static copse_status make_workers(struct copse_tree_roles *t, double *balance,
                                 struct copse_err *err) {
  int first[COPSE_TREE_PHASES], count[COPSE_TREE_PHASES], n = t->schedule->n_ranks;
  struct effort effort[COPSE_TREE_PHASES];
  double most = 0, cost = 0;
  struct copse_deal_role *roles = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)t->units.n_units, sizeof *roles, &roles, err));
  COPSE_TRY(copse_calloc((size_t)n + 1, sizeof(int), &t->first_worker, err));
  for (int p = 0; p < COPSE_TREE_PHASES; p++) effort[p] = phase_effort(t, p);
  split_workers(effort, t->max_workers, first, count);
  for (int p = 0; p < COPSE_TREE_PHASES; p++) {
    for (int rank = 0; rank < n && count[p] > 0; rank++)
      COPSE_TRY(deal_phase(t, p, rank, first[p], count[p], roles, &most, err));
    cost += effort[p].cost;
  }
  for (int rank = 0; rank < n; rank++)
    t->first_worker[rank + 1] = t->first_worker[rank] + count_workers(t, rank);
  *balance = most > 0 ? cost / (most * t->max_workers) : 1;
out:
  free(roles);
  return status;
}

int copse_tree_levels(const struct copse_tree_roles *t) {
  int levels = 0;
  for (int p = 0; p < COPSE_TREE_PHASES; p++) {
    int most = 0;
    for (int u = 0; u < t->units.n_units; u++)
      for (int rank = 0; rank < t->schedule->n_ranks && t->parts[p][u].tree; rank++)
        if (t->parts[p][u].level[rank] > most) most = t->parts[p][u].level[rank];
    levels += most;
  }
  return levels;
}

uint32_t copse_tree_worker(const struct copse_tree_roles *t, int phase, int u, int rank) {
  return (uint32_t)(t->first_worker[rank] + t->parts[phase][u].worker[rank]);
}

void copse_tree_roles_free(struct copse_tree_roles *t) {
  copse_units_free(&t->units);
  for (int p = 0; p < COPSE_TREE_PHASES; p++) {
    free(t->parts[p]);
    t->parts[p] = NULL;
  }
  free(t->first_worker);
  t->first_worker = NULL;
  copse_arena_free(&t->arena);
}

copse_status copse_tree_roles_cut(void *roles, int instances, struct copse_deal_outcome *outcome,
                                  struct copse_err *err) {
  struct copse_tree_roles *t = roles;
  copse_status status;
  copse_tree_roles_free(t);
  COPSE_TRY(copse_units_make(t->schedule, instances, &t->units, err));
  COPSE_TRY(make_parts(t, err));
  COPSE_TRY(make_workers(t, &outcome->balance, err));
  outcome->roles = (int64_t)t->units.n_units * t->schedule->n_ranks;
  outcome->per_worker = (double)t->units.n_units / t->max_workers;
out:
  return status;
}
