#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "solver/lp/equations.h"
#include "solver/joint/joint_internal.h"

struct proof {
  const struct copse_joint_search *s;
  mpq_t *multipliers;
  struct copse_joint *out;
  struct copse_joint_cut *cuts;
  size_t n_cuts, capacity;
  bool fits;
  struct copse_err *err;
};

static copse_status add_cut(struct proof *p, const struct copse_joint_phase *phase,
                            const bool *inside, const mpq_t weight) {
  size_t nodes = (size_t)p->s->network->n_nodes;
  struct copse_joint_cut cut = {
      .group = phase->group, .reduce = phase->reduce, .sink = phase->sink};
  bool *copy = copse_arena_alloc(&p->out->arena, nodes, sizeof *copy);
  copse_status status;
  if (!copy) return copse_fail_nomem(p->err);
  memcpy(copy, inside, nodes * sizeof *copy);
  cut.inside = copy;
  p->fits = p->fits && copse_joint_q(weight, &cut.weight);
  COPSE_TRY(copse_grow(&p->cuts, &p->capacity, p->n_cuts + 1, sizeof *p->cuts, p->err));
  p->cuts[p->n_cuts++] = cut;
out:
  return status;
}

static copse_status add_row_cuts(struct proof *p) {
  copse_status status = COPSE_OK;
  mpq_t weight, roots;
  mpq_inits(weight, roots, NULL);
  for (size_t i = 0; i < p->s->n_cuts && p->fits; i++) {
    const struct copse_joint_row *row = &p->s->cuts[i];
    const struct copse_joint_phase *phase = &p->s->phases[row->phase];
    int n_roots = copse_joint_roots(p->s, phase->group);
    if (mpq_sgn(p->multipliers[row->row]) == 0) continue;
    mpq_set_si(roots, n_roots > 0 ? n_roots : 1, 1);
    mpq_mul(weight, p->multipliers[row->row], roots); /* of a link in the row */
    COPSE_TRY(add_cut(p, phase, row->inside, weight));
  }
out:
  mpq_clears(weight, roots, NULL);
  return status;
}

/* ---- flows to one member ------------------------------------------------------------------- */

/*
 * The multipliers of a flow's rows are distances to the sink, and a row's is that of all images
 * together: here those of this phase, which also stands for all of its images. 0 at the sink and
 * where there is no row.
 */
static void set_distances(const struct proof *p, const struct copse_joint_phase *phase, int *images,
                          mpq_t *distance) {
  int n_nodes = p->s->network->n_nodes, roots = copse_joint_roots(p->s, phase->group);
  mpq_t q;
  mpq_init(q);
  memset(images, 0, (size_t)n_nodes * sizeof *images);
  for (int v = 0; v < n_nodes; v++) images[phase->leader[v]]++;
  for (int v = 0; v < n_nodes; v++) {
    int leader = phase->leader[copse_joint_anchor(phase, v)], row = phase->relay_row[leader];
    mpq_set_ui(distance[v], 0, 1);
    if (row < 0) continue;
    mpq_set_si(q, -roots, (unsigned long)images[leader]);
    mpq_canonicalize(q);
    mpq_mul(distance[v], p->multipliers[row], q);
  }
  mpq_clear(q);
}

/* The least distance above a given one, of which a member that is farther; false: none. */
static bool next_distance(const struct proof *p, const struct copse_joint_phase *phase,
                          mpq_t *distance, const mpq_t above, mpq_t next) {
  const struct copse_joint_group *group = &p->s->groups[phase->group];
  bool member = false, found = false;
  for (int i = 0; i < group->n_members; i++)
    member = member || mpq_cmp(distance[group->members[i]], above) > 0;
  for (int v = 0; v < p->s->network->n_nodes && member; v++) {
    if (mpq_cmp(distance[v], above) <= 0 || (found && mpq_cmp(distance[v], next) >= 0)) continue;
    mpq_set(next, distance[v]);
    found = true;
  }
  return found;
}

/* A cut between every two distances, of the weight of what lies between them. */
static copse_status add_flow_cuts(struct proof *p, const struct copse_joint_phase *phase) {
  size_t n_nodes = (size_t)p->s->network->n_nodes;
  mpq_t *distance = copse_rationals_new(n_nodes), last, next, weight;
  bool *inside = NULL;
  int *images = NULL;
  copse_status status;
  mpq_inits(last, next, weight, NULL);
  COPSE_TRY(copse_calloc(n_nodes, sizeof *inside, &inside, p->err));
  COPSE_TRY(copse_calloc(n_nodes, sizeof *images, &images, p->err));
  if (!distance) {
    status = copse_fail_nomem(p->err);
    goto out;
  }
  set_distances(p, phase, images, distance);
  while (next_distance(p, phase, distance, last, next)) {
    for (size_t v = 0; v < n_nodes; v++) inside[v] = mpq_cmp(distance[v], next) >= 0;
    mpq_sub(weight, next, last);
    COPSE_TRY(add_cut(p, phase, inside, weight));
    mpq_set(last, next);
  }
out:
  mpq_clears(last, next, weight, NULL);
  copse_rationals_free(distance, n_nodes);
  free(inside);
  free(images);
  return status;
}

/* ---- potentials ---------------------------------------------------------------------------- */

static copse_status set_potentials(struct proof *p, const struct copse_joint_phase *phase) {
  struct copse_joint_part *part = &p->out->parts[phase->group];
  int n_nodes = p->s->network->n_nodes;
  struct copse_q *potentials =
      copse_arena_alloc(&p->out->arena, (size_t)n_nodes, sizeof *potentials);
  if (!potentials) return copse_fail_nomem(p->err);
  for (int v = 0; v < n_nodes && p->fits; v++) {
    int row = phase->relay_row[copse_joint_anchor(phase, v)];
    potentials[v] = COPSE_Q_ZERO;
    if (row >= 0) p->fits = copse_joint_q(p->multipliers[row], &potentials[v]);
  }
  *(phase->reduce ? &part->reduce_potentials : &part->broadcast_potentials) = potentials;
  return COPSE_OK;
}

copse_status copse_joint_proof(const struct copse_joint_search *s, mpq_t *multipliers,
                               struct copse_joint *out, bool *fits, struct copse_err *err) {
  struct proof p = {.s = s, .multipliers = multipliers, .out = out, .fits = true, .err = err};
  struct copse_joint_cut *cuts;
  copse_status status;
  COPSE_TRY(add_row_cuts(&p));
  for (int q = 0; q < s->n_phases && p.fits; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->sink < 0)
      COPSE_TRY(set_potentials(&p, phase));
    else if (copse_joint_leads(phase, copse_joint_terminal(s, phase, phase->sink)))
      COPSE_TRY(add_flow_cuts(&p, phase));
  }
  cuts = copse_arena_alloc(&out->arena, p.n_cuts, sizeof *cuts);
  if (!cuts) {
    status = copse_fail_nomem(err);
    goto out;
  }
  if (p.n_cuts > 0) memcpy(cuts, p.cuts, p.n_cuts * sizeof *cuts);
  out->cuts = cuts;
  out->n_cuts = (int)p.n_cuts;
  *fits = p.fits;
out:
  free(p.cuts);
  return status;
}
