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

static copse_status map_nodes(struct small *m, const int **nodes, int n) {
  const int *from = *nodes;
  int *to;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)n, to, m->err));
  for (int i = 0; i < n; i++) to[i] = m->contraction.node[from[i]];
  *nodes = to;
  return COPSE_OK;
}

static copse_status map_marks(struct small *m, const bool **marks) {
  const bool *from = *marks;
  bool *to;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->contraction.network.n_nodes, to, m->err));
  for (int v = 0; v < m->network->n_nodes; v++)
    if (from[v]) to[m->contraction.node[v]] = true;
  *marks = to;
  return COPSE_OK;
}

static copse_status map_group(struct small *m, const struct copse_joint_group *from,
                              struct copse_joint_group *to) {
  *to = *from;
  COPSE_DO(map_nodes(m, &to->members, from->n_members));
  for (int i = 0; i < 2; i++) COPSE_DO(map_nodes(m, &to->extra[i], from->n_extra[i]));
  if (from->root >= 0) to->root = m->contraction.node[from->root];
  COPSE_DO(map_marks(m, &to->closed));
  return map_marks(m, &to->unbalanced);
}

/* *fits: what is left has all symmetries. */
static copse_status map_symmetries(struct small *m, const struct copse_joint_options *from,
                                   bool *fits) {
  struct copse_permutation *to;
  int *image, *nodes;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)from->n_symmetries, to, m->err));
  *fits = true;
  m->options = *from;
  m->options.symmetries = to;
  for (int i = 0; i < from->n_symmetries && *fits; i++) {
    COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->contraction.network.n_nodes, nodes, m->err));
    /* what is none in the whole network could be one in what is left */
    COPSE_DO(copse_links_image(m->network, &from->symmetries[i], &m->arena, &image, m->err));
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
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_links, to, m->err));
  copse_contraction_lift(&m->contraction, from, to, m->network->n_links);
  *out = to;
  return COPSE_OK;
}

static copse_status lift_potentials(struct small *m, const struct copse_q **potentials) {
  const struct copse_q *from = *potentials;
  struct copse_q *to;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_nodes, to, m->err));
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
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)group->n_members, exchange, m->err));
  for (int i = 0; i < group->n_members; i++)
    COPSE_DO(lift_amounts(m, part->exchange[i], &exchange[i]));
  part->exchange = exchange;
  return COPSE_OK;
}

/* Nodes that are one lie on the same side. */
static copse_status lift_cuts(struct small *m) {
  struct copse_joint_cut *cuts;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->out->n_cuts, cuts, m->err));
  for (int c = 0; c < m->out->n_cuts; c++) {
    bool *inside;
    COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_nodes, inside, m->err));
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

static void release(struct small *m) {
  copse_arena_free(&m->arena);
  copse_contraction_free(&m->contraction);
}

copse_status copse_joint_find(const struct copse_network *network,
                              const struct copse_joint_group *groups, int n_groups,
                              const struct copse_joint_options *options, struct copse_joint *out,
                              struct copse_err *err) {
  COPSE_AT_END(release)
  struct small m = {
      .network = network, .groups = groups, .n_groups = n_groups, .out = out, .err = err};
  bool fits;
  *out = (struct copse_joint){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  COPSE_DO(contract(&m));
  COPSE_DO(map_symmetries(&m, options, &fits));
  if (!fits || m.contraction.n_merges == 0)
    return copse_joint_search(network, groups, n_groups, options, out, err);
  COPSE_DO(COPSE_ARRAY(&m.arena, (size_t)n_groups, m.small_groups, err));
  for (int g = 0; g < n_groups; g++) COPSE_DO(map_group(&m, &groups[g], &m.small_groups[g]));
  COPSE_DO(
      copse_joint_search(&m.contraction.network, m.small_groups, n_groups, &m.options, out, err));
  return lift(&m);
}

void copse_joint_free(struct copse_joint *joint) { copse_arena_free(&joint->arena); }
