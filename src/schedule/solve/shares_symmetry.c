#include "schedule/solve/shares_symmetry.h"

#include <stdlib.h>
#include <string.h>

#include "solver/joint/joint.h"

#define MOST_CUTS 8192        /* with their images */
#define TABLE (4 * MOST_CUTS) /* of sets, a power of two */

struct job {
  const struct copse_topology *topology;
  const struct copse_network *network;
  const bool *loose;
  struct copse_permutation *symmetries;
  int n_symmetries;
  struct copse_joint joint;
  struct copse_shares *out;
  struct copse_shares_cut *cuts; /* [MOST_CUTS] */
  int *table;                    /* [TABLE] 1 + a cut, by its set; 0: none */
  bool *image;                   /* [n_nodes] */
  bool fits;                     /* 64 bits, and MOST_CUTS */
  struct copse_err *err;
};

/* ---- the programme ------------------------------------------------------------------------- */

copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_permutation **out, int *n_out,
                                     struct copse_err *err) {
  struct copse_group all = {.collective = COPSE_ALLREDUCE,
                            .root = -1,
                            .nodes = (int *)topology->rank_nodes,
                            .n = topology->n_ranks};
  return copse_groups_symmetries(topology, &all, 1, out, n_out, err);
}

/* With no share above `most` of the rate, or 0/1: any. */
static copse_status solve(struct job *j, const struct copse_shares_options *options,
                          struct copse_q most, struct copse_joint *out) {
  struct copse_joint_group all = {.n_members = j->network->n_terminals,
                                  .members = j->network->terminals,
                                  .broadcasts = true,
                                  .reduces = true,
                                  .root = -1,
                                  .loose = j->loose};
  struct copse_joint_options search = {.max_columns = options->max_columns,
                                       .n_symmetries = j->n_symmetries,
                                       .symmetries = j->symmetries,
                                       .most = most,
                                       .progress = options->progress};
  return copse_joint_find(j->network, &all, 1, &search, out, j->err);
}

/* ---- images of cuts ------------------------------------------------------------------------ */

static uint64_t hash_of(const bool *set, int n) {
  uint64_t h = 1469598103934665603U; /* FNV-1a */
  for (int v = 0; v < n; v++) h = (h ^ set[v]) * 1099511628211U;
  return h ^ h >> 29;
}

/* The place of a set among this cut's images: its own, or a free one. */
static int *place_of(struct job *j, const bool *set) {
  size_t nodes = (size_t)j->network->n_nodes;
  size_t at = hash_of(set, j->network->n_nodes) % TABLE;
  while (j->table[at] > 0 && memcmp(j->cuts[j->table[at] - 1].inside, set, nodes) != 0)
    at = (at + 1) % TABLE;
  return &j->table[at];
}

static copse_status add_image(struct job *j, const struct copse_joint_cut *from, const bool *set) {
  size_t nodes = (size_t)j->network->n_nodes;
  int *place = place_of(j, set);
  bool *inside;
  if (*place > 0) return COPSE_OK;
  j->fits = j->out->n_cuts < MOST_CUTS;
  if (!j->fits) return COPSE_OK;
  if (!(inside = copse_arena_alloc(&j->out->arena, nodes, 1))) return copse_fail_nomem(j->err);
  memcpy(inside, set, nodes);
  j->cuts[j->out->n_cuts++] = (struct copse_shares_cut){from->reduce, from->weight, inside};
  *place = j->out->n_cuts;
  return COPSE_OK;
}

/* A cut of the joint optimum stands for the mean over all of its images. */
static copse_status add_images(struct job *j, const struct copse_joint_cut *cut) {
  int first = j->out->n_cuts;
  copse_status status;
  memset(j->table, 0, TABLE * sizeof *j->table);
  COPSE_TRY(add_image(j, cut, cut->inside));
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    for (int i = 0; i < j->n_symmetries && j->fits; i++) {
      for (int v = 0; v < j->network->n_nodes; v++)
        j->image[j->symmetries[i].image[v]] = j->cuts[c].inside[v];
      COPSE_TRY(add_image(j, cut, j->image));
    }
  struct copse_q n = {j->out->n_cuts - first, 1};
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    j->fits = copse_q_div(cut->weight, n, &j->cuts[c].weight, NULL) == COPSE_OK;
out:
  return status;
}

/* ---- the proof ----------------------------------------------------------------------------- */

static int find(int *orbit, int v) {
  while (orbit[v] != v) v = orbit[v] = orbit[orbit[v]];
  return v;
}

/*
 * A schedule has potentials of its broadcast alone. Those of the reduction, r, are the same as -r
 * there: relays have as much bandwidth in as out, so that r[dst] - r[src] over all links, times
 * their bandwidths, comes to nothing.
 */
static copse_status set_potentials(struct job *j, struct copse_q *to) {
  const struct copse_joint_part *part = &j->joint.parts[0];
  int n_nodes = j->network->n_nodes, *orbit = NULL, *size = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)n_nodes, sizeof *orbit, &orbit, j->err));
  COPSE_TRY(copse_calloc((size_t)n_nodes, sizeof *size, &size, j->err));
  for (int v = 0; v < n_nodes; v++) orbit[v] = v;
  for (int i = 0; i < j->n_symmetries; i++)
    for (int v = 0; v < n_nodes; v++) {
      int a = find(orbit, v), b = find(orbit, j->symmetries[i].image[v]);
      orbit[a > b ? a : b] = a > b ? b : a;
    }
  for (int v = 0; v < n_nodes; v++) to[v] = COPSE_Q_ZERO;
  for (int v = 0; v < n_nodes && j->fits; v++) {
    struct copse_q *sum = &to[find(orbit, v)], gain;
    size[find(orbit, v)]++;
    j->fits = copse_q_sub(part->broadcast_potentials[v], part->reduce_potentials[v], &gain, NULL) ==
                  COPSE_OK &&
              copse_q_add(*sum, gain, sum, NULL) == COPSE_OK;
  }
  for (int v = 0; v < n_nodes && j->fits; v++) {
    int first = find(orbit, v); /* comes before v */
    to[v] = to[first];
    if (first == v)
      j->fits = copse_q_div(to[v], (struct copse_q){size[v], 1}, &to[v], NULL) == COPSE_OK;
  }
out:
  free(orbit);
  free(size);
  return status;
}

/* The least weight around a terminal is to be 1. */
static bool norm(struct job *j, struct copse_q *potentials) {
  struct copse_q least = COPSE_Q_ZERO;
  bool fits = true;
  for (int i = 0; i < j->network->n_terminals && fits; i++) {
    struct copse_q around = COPSE_Q_ZERO;
    for (int c = 0; c < j->out->n_cuts && fits; c++)
      if (j->cuts[c].inside[j->network->terminals[i]])
        fits = copse_q_add(around, j->cuts[c].weight, &around, NULL) == COPSE_OK;
    if (i == 0 || copse_q_cmp(around, least) < 0) least = around;
  }
  fits = fits && least.num > 0;
  for (int c = 0; c < j->out->n_cuts && fits; c++)
    fits = copse_q_div(j->cuts[c].weight, least, &j->cuts[c].weight, NULL) == COPSE_OK;
  for (int v = 0; v < j->network->n_nodes && fits; v++)
    fits = copse_q_div(potentials[v], least, &potentials[v], NULL) == COPSE_OK;
  return fits;
}

static copse_status set_proof(struct job *j) {
  size_t nodes = (size_t)j->network->n_nodes;
  struct copse_q *potentials = copse_arena_alloc(&j->out->arena, nodes, sizeof *potentials);
  copse_status status;
  j->cuts = copse_arena_alloc(&j->out->arena, MOST_CUTS, sizeof *j->cuts);
  if (!potentials || !j->cuts) return copse_fail_nomem(j->err);
  j->out->cuts = j->cuts;
  j->out->potentials = potentials;
  COPSE_TRY(copse_calloc(TABLE, sizeof *j->table, &j->table, j->err));
  COPSE_TRY(copse_calloc(nodes, sizeof *j->image, &j->image, j->err));
  for (int c = 0; c < j->joint.n_cuts && j->fits; c++) COPSE_TRY(add_images(j, &j->joint.cuts[c]));
  if (j->fits) COPSE_TRY(set_potentials(j, potentials));
  j->fits = j->fits && norm(j, potentials);
out:
  return status;
}

/* ---- the shares ---------------------------------------------------------------------------- */

static const int64_t *copy(struct job *j, const int64_t *from, int n) {
  int64_t *to = copse_arena_alloc(&j->out->arena, (size_t)n, sizeof *to);
  if (to) memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

static copse_status take(struct job *j, const struct copse_joint *from) {
  const struct copse_joint_part *part = &from->parts[0];
  j->out->whole = part->whole;
  j->out->weights = copy(j, part->weights, j->network->n_terminals);
  j->out->broadcast = copy(j, part->broadcast, j->network->n_links);
  j->out->reduce = copy(j, part->reduce, j->network->n_links);
  return j->out->weights && j->out->broadcast && j->out->reduce ? COPSE_OK
                                                                : copse_fail_nomem(j->err);
}

/* As solver/shares.h: the largest share within a factor of two of the least possible. */
static copse_status take_even(struct job *j, const struct copse_shares_options *options) {
  struct copse_joint capped = {0};
  int n = j->network->n_terminals;
  copse_status status = take(j, &j->joint);
  bool done = false;
  for (int64_t most = 1; most < n && !done && status == COPSE_OK; most *= 2) {
    copse_joint_free(&capped);
    COPSE_TRY(solve(j, options, (struct copse_q){most, n}, &capped));
    done = capped.outcome == COPSE_JOINT_PROVED && copse_q_eq(capped.rate, j->joint.rate);
    if (done) status = take(j, &capped);
  }
out:
  copse_joint_free(&capped);
  return status;
}

static copse_status hand_over(struct job *j, const struct copse_shares_options *options) {
  copse_status status;
  j->out->rate = j->joint.rate;
  j->out->rounds = j->joint.rounds;
  j->fits = true;
  if (!j->loose) COPSE_TRY(take_even(j, options));
  COPSE_TRY(set_proof(j));
  j->out->outcome = j->fits ? COPSE_SHARES_PROVED : COPSE_SHARES_UNPROVED;
out:
  return status;
}

copse_status copse_free_shares_by_symmetry(const struct copse_topology *topology,
                                           const struct copse_instance *instance,
                                           const struct copse_shares_options *options,
                                           const bool *loose, struct copse_shares *out,
                                           struct copse_err *err) {
  struct job j = {
      .topology = topology, .network = &instance->network, .loose = loose, .out = out, .err = err};
  copse_status status;
  *out = (struct copse_shares){.outcome = COPSE_SHARES_TOO_LARGE, .rate = COPSE_Q_ZERO};
  COPSE_TRY(copse_fabric_symmetries(topology, &j.symmetries, &j.n_symmetries, err));
  if (j.n_symmetries == 0) goto out;
  COPSE_TRY(solve(&j, options, COPSE_Q_ZERO, &j.joint));
  if (j.joint.outcome == COPSE_JOINT_TOO_LARGE) goto out;
  out->outcome = COPSE_SHARES_UNPROVED;
  if (j.joint.outcome != COPSE_JOINT_PROVED) goto out;
  if (copse_q_cmp(j.joint.rate, options->at_least) <= 0)
    out->outcome = COPSE_SHARES_NOT_BETTER;
  else
    status = hand_over(&j, options);
out:
  copse_groups_symmetries_free(j.symmetries, j.n_symmetries);
  copse_joint_free(&j.joint);
  free(j.table);
  free(j.image);
  return status;
}
