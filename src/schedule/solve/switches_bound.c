#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schedule/solve/shares_symmetry.h"
#include "schedule/solve/shares.h"
#include "schedule/solve/switches.h"
#include "solver/joint/joint.h"

#define MAX_COLUMNS 8000

void copse_mark_loose(const struct copse_topology *t, bool *loose) {
  for (int v = 0; v < t->n_nodes; v++) loose[v] = t->nodes[v].multicast || t->nodes[v].aggregation;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_node *src = &t->nodes[t->links[e].src], *dst = &t->nodes[t->links[e].dst];
    if (src->multicast || src->aggregation) loose[t->links[e].dst] = true;
    if (dst->multicast || dst->aggregation) loose[t->links[e].src] = true;
  }
}

/* The proof in the terms of solver/shares.h: one potential for both phases, their difference, which
 * is as good where all links together are balanced. */
static copse_status take_proof(const struct copse_joint *joint, int n_nodes,
                               struct copse_shares *out, struct copse_err *err) {
  struct copse_shares_cut *cuts =
      copse_arena_alloc(&out->arena, (size_t)joint->n_cuts + 1, sizeof *cuts);
  struct copse_q *potentials = copse_arena_alloc(&out->arena, (size_t)n_nodes, sizeof *potentials);
  copse_status status = COPSE_OK;
  if (!cuts || !potentials) return copse_fail_nomem(err);
  for (int c = 0; c < joint->n_cuts; c++) {
    bool *inside = copse_arena_alloc(&out->arena, (size_t)n_nodes, sizeof *inside);
    if (!inside) return copse_fail_nomem(err);
    memcpy(inside, joint->cuts[c].inside, (size_t)n_nodes * sizeof *inside);
    cuts[c] = (struct copse_shares_cut){joint->cuts[c].reduce, joint->cuts[c].weight, inside};
  }
  for (int v = 0; v < n_nodes; v++)
    COPSE_TRY(copse_q_sub(joint->parts[0].broadcast_potentials[v],
                          joint->parts[0].reduce_potentials[v], &potentials[v], err));
  out->n_cuts = joint->n_cuts;
  out->cuts = cuts;
  out->potentials = potentials;
out:
  return status;
}

static copse_status find_all(const struct copse_topology *topology,
                             const struct copse_solve_options *options,
                             const struct copse_instance *instance, const bool *loose,
                             struct copse_shares *out, struct copse_err *err) {
  struct copse_joint_options search = {.max_columns = MAX_COLUMNS, .progress = options->progress};
  struct copse_joint_group all = {.n_members = topology->n_ranks,
                                  .members = topology->rank_nodes,
                                  .broadcasts = true,
                                  .reduces = true,
                                  .root = -1,
                                  .loose = loose};
  struct copse_joint joint;
  copse_status status;
  *out = (struct copse_shares){.outcome = COPSE_SHARES_UNPROVED};
  COPSE_TRY(copse_joint_find(&instance->network, &all, 1, &search, &joint, err));
  if (joint.outcome != COPSE_JOINT_PROVED) goto out;
  out->outcome = COPSE_SHARES_PROVED;
  out->rate = joint.rate;
  status = take_proof(&joint, topology->n_nodes, out, err);
out:
  copse_joint_free(&joint);
  return status;
}

/* By symmetries, if there are any. */
static copse_status find(const struct copse_topology *topology,
                         const struct copse_solve_options *options,
                         const struct copse_instance *instance, const bool *loose,
                         struct copse_shares *out, struct copse_err *err) {
  struct copse_shares_options search = {
      .at_least = COPSE_Q_ZERO, .max_columns = MAX_COLUMNS, .progress = options->progress};
  copse_status status = COPSE_OK;
  if (!options->no_symmetry && topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_TRY(copse_free_shares_by_symmetry(topology, instance, &search, loose, out, err));
  if (out->outcome == COPSE_SHARES_PROVED) goto out;
  copse_shares_free(out);
  status = find_all(topology, options, instance, loose, out, err);
out:
  return status;
}

copse_status copse_bound_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_shares proof = {.outcome = COPSE_SHARES_UNPROVED};
  struct copse_q time, scale = {instance->scale, 1};
  bool *loose = NULL;
  double start = copse_clock_seconds();
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, sizeof *loose, &loose, err));
  copse_mark_loose(topology, loose);
  COPSE_TRY(find(topology, options, instance, loose, &proof, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (proof.outcome != COPSE_SHARES_PROVED || copse_q_div(scale, proof.rate, &time, NULL)) goto out;
  if (copse_q_cmp(time, schedule->bound.time_per_GB) <= 0) goto out;
  COPSE_TRY(copse_free_shares_bound(topology, &proof, time, schedule, err));
out:
  free(loose);
  copse_shares_free(&proof);
  return status;
}
