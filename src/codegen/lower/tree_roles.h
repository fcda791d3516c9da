/*
 * Inside src/codegen only: what each rank does for each tree, and which of its workers does it.
 * A role is a rank's part in one phase of one unit. README.md tells the design.
 */
#ifndef COPSE_CODEGEN_LOWER_TREE_ROLES_H
#define COPSE_CODEGEN_LOWER_TREE_ROLES_H

#include "codegen/lower/deal.h"
#include "codegen/lower/unit.h"

enum { COPSE_TREE_REDUCE = 0, COPSE_TREE_BROADCAST = 1, COPSE_TREE_PHASES = 2 };

/* One phase of one unit. */
struct copse_tree_part {
  const struct copse_unit_tree *tree; /* NULL: the unit lacks this phase */
  int *level;  /* [n_ranks] moves from the tree's leaves (reduce) or root (broadcast) */
  int *worker; /* [n_ranks] among the rank's workers */
};

struct copse_tree_roles {
  const struct copse_schedule *schedule; /* set by the caller, as is max_workers */
  int max_workers;                       /* of a rank */
  struct copse_units units;
  struct copse_tree_part *parts[COPSE_TREE_PHASES]; /* [n_units] */
  int *first_worker;                                /* [n_ranks + 1] */
  struct copse_arena arena;
};

/* Cuts every tree into so many instances and deals the roles; see copse_deal_instances.
 * O(units * ranks * workers). */
copse_status copse_tree_roles_cut(void *roles, int instances, struct copse_deal_outcome *outcome,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_tree_roles_free(struct copse_tree_roles *roles);

/* Whether the rank has a part in it: the reduction's root sends on what it has summed up in the
 * same operation, and has none in the broadcast. */
bool copse_tree_has_role(const struct copse_tree_roles *roles, int phase, int u, int rank);
/* The number of the rank's worker over all ranks. */
uint32_t copse_tree_worker(const struct copse_tree_roles *roles, int phase, int u, int rank);
/* Moves one after the other: up the deepest tree, and down. */
int copse_tree_levels(const struct copse_tree_roles *roles);

static inline int copse_tree_children(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

#endif
