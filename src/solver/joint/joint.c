/*
 * The search (rounds.c) in a network without relays that never bind, and its result in the whole
 * one.
 */
#include <stdlib.h>

#include "solver/network/contract.h"
#include "solver/joint/internal.h"

/* The same groups in what is left of the network. */
struct small {
  const struct copse_network *network;
  const struct copse_joint_group *groups;
  int n_groups;
  struct copse_contraction contraction;
  struct copse_joint_group *small_groups; /* [n_groups] */
  struct copse_joint_options options;
  struct copse_arena arena;
  struct copse_joint *out;
  struct copse_err *err;
};

/* ---- into it ------------------------------------------------------------------------------- */

static copse_status contract(struct small *m) {
  size_t nodes = (size_t)m->network->n_nodes;
  bool *fixed, *apart;
  COPSE_DO(COPSE_ARRAYS(&m->arena, nodes, bool, m->err, &fixed, &apart));
  for (int g = 0; g < m->n_groups; g++) {
    const struct copse_joint_group *group = &m->groups[g];
    for (int i = 0; i < group->n_members; i++) fixed[group->members[i]] = true;
    for (int i = 0; i < 2; i++)
      for (int k = 0; k < group->n_extra[i]; k++) fixed[group->extra[i][k]] = true;
    for (size_t v = 0; v < nodes; v++) {
      if (group->unbalanced && group->unbalanced[v]) fixed[v] = true;
      if (group->closed && group->closed[v]) apart[v] = true;
    }
  }
  return copse_contract(m->network, fixed, apart, &m->contraction, m->err);
}

static const int *map_nodes(struct small *m, const int *from, int n) {
  int *to = copse_arena_alloc(&m->arena, (size_t)n, sizeof *to);
  for (int i = 0; to && i < n; i++) to[i] = m->contraction.node[from[i]];
  return to;
}

static const bool *map_marks(struct small *m, const bool *from) {
  bool *to = copse_arena_alloc(&m->arena, (size_t)m->contraction.network.n_nodes, sizeof *to);
  for (int v = 0; to && v < m->network->n_nodes; v++)
    if (from[v]) to[m->contraction.node[v]] = true;
  return to;
}

static copse_status map_group(struct small *m, const struct copse_joint_group *from,
                              struct copse_joint_group *to) {
  bool good;
  *to = *from;
  good = (to->members = map_nodes(m, from->members, from->n_members)) != NULL;
  for (int i = 0; i < 2; i++)
    good = (to->extra[i] = map_nodes(m, from->extra[i], from->n_extra[i])) != NULL && good;
  if (from->root >= 0) to->root = m->contraction.node[from->root];
  if (from->closed) good = (to->closed = map_marks(m, from->closed)) != NULL && good;
  if (from->unbalanced) good = (to->unbalanced = map_marks(m, from->unbalanced)) != NULL && good;
  return good ? COPSE_OK : copse_fail_nomem(m->err);
}

/* What is none in the whole network could be one in what is left. */
static copse_status check_symmetry(const struct small *m,
                                   const struct copse_permutation *symmetry) {
  int *image = NULL;
  copse_status status = copse_links_image(m->network, symmetry, &image, m->err);
  free(image);
  return status;
}

/* *fits: what is left has all symmetries. */
static copse_status map_symmetries(struct small *m, const struct copse_joint_options *from,
                                   bool *fits) {
  struct copse_permutation *to =
      copse_arena_alloc(&m->arena, (size_t)from->n_symmetries, sizeof *to);
  *fits = true;
  m->options = *from;
  m->options.symmetries = to;
  if (!to) return copse_fail_nomem(m->err);
  for (int i = 0; i < from->n_symmetries && *fits; i++) {
    int *nodes =
        copse_arena_alloc(&m->arena, (size_t)m->contraction.network.n_nodes, sizeof *nodes);
    COPSE_DO(check_symmetry(m, &from->symmetries[i]));
    if (!nodes) return copse_fail_nomem(m->err);
    *fits = copse_contraction_map(&m->contraction, from->symmetries[i].image, nodes,
                                  m->network->n_nodes);
    to[i] = (struct copse_permutation){.image = nodes, .groups = from->symmetries[i].groups};
  }
  return COPSE_OK;
}

/* ---- out of it ----------------------------------------------------------------------------- */

static copse_status lift_amounts(struct small *m, const int64_t *from, const int64_t **out) {
  int64_t *to;
  if (!from) return COPSE_OK;
  to = copse_arena_alloc(&m->out->arena, (size_t)m->network->n_links, sizeof *to);
  if (!to) return copse_fail_nomem(m->err);
  copse_contraction_lift(&m->contraction, from, to, m->network->n_links);
  *out = to;
  return COPSE_OK;
}

static copse_status lift_potentials(struct small *m, const struct copse_q **potentials) {
  const struct copse_q *from = *potentials;
  struct copse_q *to;
  if (!from) return COPSE_OK;
  to = copse_arena_alloc(&m->out->arena, (size_t)m->network->n_nodes, sizeof *to);
  if (!to) return copse_fail_nomem(m->err);
  for (int v = 0; v < m->network->n_nodes; v++) to[v] = from[m->contraction.node[v]];
  *potentials = to;
  return COPSE_OK;
}

static copse_status lift_part(struct small *m, const struct copse_joint_group *group,
                              struct copse_joint_part *part) {
  const int64_t **exchange;
  COPSE_DO(lift_amounts(m, part->broadcast, &part->broadcast));
  COPSE_DO(lift_amounts(m, part->reduce, &part->reduce));
  COPSE_DO(lift_potentials(m, &part->broadcast_potentials));
  COPSE_DO(lift_potentials(m, &part->reduce_potentials));
  if (!part->exchange) return COPSE_OK;
  exchange = copse_arena_alloc(&m->out->arena, (size_t)group->n_members, sizeof *exchange);
  if (!exchange) return copse_fail_nomem(m->err);
  for (int i = 0; i < group->n_members; i++)
    COPSE_DO(lift_amounts(m, part->exchange[i], &exchange[i]));
  part->exchange = exchange;
  return COPSE_OK;
}

/* Nodes that are one lie on the same side. */
static copse_status lift_cuts(struct small *m) {
  struct copse_joint_cut *cuts =
      copse_arena_alloc(&m->out->arena, (size_t)m->out->n_cuts, sizeof *cuts);
  if (!cuts) return copse_fail_nomem(m->err);
  for (int c = 0; c < m->out->n_cuts; c++) {
    bool *inside = copse_arena_alloc(&m->out->arena, (size_t)m->network->n_nodes, sizeof *inside);
    if (!inside) return copse_fail_nomem(m->err);
    cuts[c] = m->out->cuts[c];
    for (int v = 0; v < m->network->n_nodes; v++)
      inside[v] = cuts[c].inside[m->contraction.node[v]];
    cuts[c].inside = inside;
  }
  m->out->cuts = cuts;
  return COPSE_OK;
}

static copse_status lift(struct small *m) {
  for (int g = 0; m->out->parts && g < m->n_groups; g++)
    COPSE_DO(lift_part(m, &m->groups[g], &m->out->parts[g]));
  if (m->out->n_cuts > 0) return lift_cuts(m);
  return COPSE_OK;
}

copse_status copse_joint_find(const struct copse_network *network,
                              const struct copse_joint_group *groups, int n_groups,
                              const struct copse_joint_options *options, struct copse_joint *out,
                              struct copse_err *err) {
  struct small m = {
      .network = network, .groups = groups, .n_groups = n_groups, .out = out, .err = err};
  bool fits;
  copse_status status;
  *out = (struct copse_joint){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  COPSE_TRY(contract(&m));
  COPSE_TRY(map_symmetries(&m, options, &fits));
  if (!fits || m.contraction.n_merges == 0) {
    status = copse_joint_search(network, groups, n_groups, options, out, err);
    goto out;
  }
  COPSE_TRY(
      copse_arena_array(&m.arena, (size_t)n_groups, sizeof *m.small_groups, &m.small_groups, err));
  for (int g = 0; g < n_groups; g++) COPSE_TRY(map_group(&m, &groups[g], &m.small_groups[g]));
  COPSE_TRY(
      copse_joint_search(&m.contraction.network, m.small_groups, n_groups, &m.options, out, err));
  status = lift(&m);
out:
  copse_arena_free(&m.arena);
  copse_contraction_free(&m.contraction);
  return status;
}

void copse_joint_free(struct copse_joint *joint) { copse_arena_free(&joint->arena); }
