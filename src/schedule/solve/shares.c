/*
 * Unequal shares of an allreduce, from the programme of solver/joint/joint.h with one group of all
 * ranks, and the proof for a schedule's file.
 *
 * A fabric with symmetries has a programme with one column for all that they map to each other,
 * small where few kinds of ranks and links are left, as with one slow NIC among a thousand. A cut
 * of it stands for the mean over its images:
 *
 *   programme:  {h0}, weight w          file:  {h0}, {h1}, {h2}, {h3}, weight w/4 each
 *
 * Without symmetries each link has one column for both phases, and each cut is its only image.
 */
#include "schedule/solve/shares.h"

#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/symmetry.h"

#define TABLE (4 * COPSE_SHARES_CUTS) /* of sets, a power of two */

struct job {
  const struct copse_network *network;
  const struct copse_shares_options *options;
  struct copse_permutation *symmetries;
  int n_symmetries;
  struct copse_joint joint;
  struct copse_shares *out;
  struct copse_shares_cut *cuts; /* [COPSE_SHARES_CUTS] */
  int *table;                    /* [TABLE] 1 + a cut, by its set; 0: none */
  bool *image;                   /* [n_nodes] */
  bool fits;                     /* 64 bits, and COPSE_SHARES_CUTS */
  struct copse_arena scratch;
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
static copse_status solve(struct job *j, struct copse_q most, struct copse_joint *out) {
  const struct copse_shares_options *options = j->options;
  struct copse_joint_group all = {.n_members = j->network->n_terminals,
                                  .members = j->network->terminals,
                                  .broadcasts = true,
                                  .reduces = true,
                                  .root = -1,
                                  .unbalanced = options->unbalanced};
  struct copse_joint_options search = {.max_columns = options->max_columns,
                                       .n_symmetries = j->n_symmetries,
                                       .symmetries = j->symmetries,
                                       .most = most,
                                       .whole_links = !options->symmetric && !options->unbalanced,
                                       .at_least = options->at_least,
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
  j->fits = j->out->n_cuts < COPSE_SHARES_CUTS;
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
  memset(j->table, 0, TABLE * sizeof *j->table);
  COPSE_DO(add_image(j, cut, cut->inside));
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    for (int i = 0; i < j->n_symmetries && j->fits; i++) {
      for (int v = 0; v < j->network->n_nodes; v++)
        j->image[j->symmetries[i].image[v]] = j->cuts[c].inside[v];
      COPSE_DO(add_image(j, cut, j->image));
    }
  struct copse_q n = {j->out->n_cuts - first, 1};
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    j->fits = copse_q_div(cut->weight, n, &j->cuts[c].weight, NULL) == COPSE_OK;
  return COPSE_OK;
}

/* ---- the proof ----------------------------------------------------------------------------- */

/*
 * A schedule has potentials of its broadcast alone. Those of the reduction, r, are the same as -r
 * there: relays have as much bandwidth in as out, so that r[dst] - r[src] over all links, times
 * their bandwidths, comes to nothing.
 */
static copse_status set_potentials(struct job *j, struct copse_q *to) {
  const struct copse_joint_part *part = &j->joint.parts[0];
  size_t nodes = (size_t)j->network->n_nodes;
  int n_nodes = j->network->n_nodes, *orbit, *size;
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *orbit, &orbit, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *size, &size, j->err));
  copse_sets_init(orbit, n_nodes);
  for (int i = 0; i < j->n_symmetries; i++)
    for (int v = 0; v < n_nodes; v++) copse_sets_unite(orbit, v, j->symmetries[i].image[v]);
  for (int v = 0; v < n_nodes; v++) to[v] = COPSE_Q_ZERO;
  for (int v = 0; v < n_nodes && j->fits; v++) {
    struct copse_q *sum = &to[copse_sets_find(orbit, v)], gain;
    size[copse_sets_find(orbit, v)]++;
    gain = part->broadcast_potentials[v];
    if (part->reduce_potentials)
      j->fits = copse_q_sub(gain, part->reduce_potentials[v], &gain, NULL) == COPSE_OK;
    j->fits = j->fits && copse_q_add(*sum, gain, sum, NULL) == COPSE_OK;
  }
  for (int v = 0; v < n_nodes && j->fits; v++) {
    int first = copse_sets_find(orbit, v); /* comes before v */
    to[v] = to[first];
    if (first == v)
      j->fits = copse_q_div(to[v], (struct copse_q){size[v], 1}, &to[v], NULL) == COPSE_OK;
  }
  return COPSE_OK;
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
  struct copse_q *potentials;
  COPSE_DO(copse_arena_array(&j->out->arena, nodes, sizeof *potentials, &potentials, j->err));
  COPSE_DO(copse_arena_array(&j->out->arena, COPSE_SHARES_CUTS, sizeof *j->cuts, &j->cuts, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, TABLE, sizeof *j->table, &j->table, j->err));
  COPSE_DO(copse_arena_array(&j->scratch, nodes, sizeof *j->image, &j->image, j->err));
  j->out->cuts = j->cuts;
  j->out->potentials = potentials;
  for (int c = 0; c < j->joint.n_cuts && j->fits; c++) COPSE_DO(add_images(j, &j->joint.cuts[c]));
  if (j->fits) COPSE_DO(set_potentials(j, potentials));
  j->fits = j->fits && norm(j, potentials);
  return COPSE_OK;
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

/* Whole links have even shares already; a programme by symmetries has them by limits. */
static copse_status take_even(struct job *j) {
  struct copse_joint limited = {0};
  int n = j->network->n_terminals;
  copse_status status = take(j, &j->joint);
  bool done = !j->options->symmetric;
  for (int64_t most = 1; most < n && !done && status == COPSE_OK; most *= 2) {
    copse_joint_free(&limited);
    COPSE_TRY(solve(j, (struct copse_q){most, n}, &limited));
    done = limited.outcome == COPSE_JOINT_PROVED && copse_q_eq(limited.rate, j->joint.rate);
    if (done) status = take(j, &limited);
  }
out:
  copse_joint_free(&limited);
  return status;
}

static copse_status hand_over(struct job *j) {
  j->out->rate = j->joint.rate;
  j->fits = true;
  if (!j->options->unbalanced) COPSE_DO(take_even(j));
  COPSE_DO(set_proof(j));
  j->out->outcome = j->fits ? COPSE_JOINT_PROVED : COPSE_JOINT_UNPROVED;
  return COPSE_OK;
}

copse_status copse_shares_find(const struct copse_topology *topology,
                               const struct copse_instance *instance,
                               const struct copse_shares_options *options, struct copse_shares *out,
                               struct copse_err *err) {
  struct job j = {.network = &instance->network, .options = options, .out = out, .err = err};
  copse_status status = COPSE_OK;
  *out = (struct copse_shares){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  if (options->symmetric) {
    COPSE_TRY(copse_fabric_symmetries(topology, &j.symmetries, &j.n_symmetries, err));
    if (j.n_symmetries == 0) goto out;
  }
  COPSE_TRY(solve(&j, COPSE_Q_ZERO, &j.joint));
  out->outcome = j.joint.outcome == COPSE_JOINT_CLOSE ? COPSE_JOINT_UNPROVED : j.joint.outcome;
  if (out->outcome != COPSE_JOINT_PROVED) goto out;
  if (copse_q_cmp(j.joint.rate, options->at_least) <= 0)
    out->outcome = COPSE_JOINT_NOT_BETTER;
  else
    status = hand_over(&j);
out:
  copse_groups_symmetries_free(j.symmetries, j.n_symmetries);
  copse_joint_free(&j.joint);
  copse_arena_free(&j.scratch);
  return status;
}

void copse_shares_free(struct copse_shares *shares) { copse_arena_free(&shares->arena); }

/* ---- in a schedule ------------------------------------------------------------------------- */

static bool is_open(const struct copse_shares *shares) {
  return shares->outcome == COPSE_JOINT_TOO_LARGE || shares->outcome == COPSE_JOINT_UNPROVED;
}

/* By symmetries if there are any: shares that are alike make fewer and lower trees. */
static copse_status find(const struct copse_topology *topology,
                         const struct copse_solve_options *options,
                         const struct copse_instance *instance, struct copse_q at_least,
                         struct copse_shares *shares, struct copse_err *err) {
  struct copse_shares_options search = {.at_least = at_least, .progress = options->progress};
  shares->outcome = COPSE_JOINT_TOO_LARGE;
  search.symmetric = true;
  search.max_columns = COPSE_SHARES_KINDS;
  if (!options->no_symmetry) COPSE_DO(copse_shares_find(topology, instance, &search, shares, err));
  if (!is_open(shares)) return COPSE_OK;
  copse_shares_free(shares);
  search.symmetric = false;
  search.max_columns = COPSE_SHARES_COLUMNS;
  return copse_shares_find(topology, instance, &search, shares, err);
}

copse_status copse_free_shares_find(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) {
  struct copse_q scale = {instance->scale, 1}, at_least = COPSE_Q_ZERO;
  *shares = (struct copse_shares){.outcome = COPSE_JOINT_NOT_BETTER};
  if (topology->n_ranks == 1) return COPSE_OK;
  if (only_faster) COPSE_DO(copse_q_div(scale, at_most, &at_least, err));
  shares->outcome = COPSE_JOINT_TOO_LARGE;
  if (topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(find(topology, options, instance, at_least, shares, err));
  if (shares->outcome == COPSE_JOINT_PROVED && copse_q_div(scale, shares->rate, time, NULL))
    shares->outcome = COPSE_JOINT_UNPROVED;
  if (is_open(shares))
    copse_note(options->notes, "%s: unequal shares, which may be faster, were not tried: %s",
               options->label,
               shares->outcome == COPSE_JOINT_UNPROVED ? "their fractions don't fit 64 bits"
               : topology->n_ranks > COPSE_SYMMETRY_RANKS
                   ? "there are too many ranks"
                   : "too many ranks and links are of different kinds");
  return COPSE_OK;
}

void copse_free_shares_note(const struct copse_solve_options *options, struct copse_q time) {
  char text[COPSE_Q_TEXT];
  copse_note(
      options->notes,
      "%s: unequal shares would take %s s/GB, but their trees are made for at most %d ranks; "
      "these have equal shares",
      options->label, copse_q_text(time, text), COPSE_FREE_SHARES_RANKS);
}

copse_status copse_free_shares_instance(const struct copse_instance *instance,
                                        const int64_t *weights, const int64_t *capacities,
                                        bool reduce, struct copse_instance *out,
                                        struct copse_err *err) {
  const struct copse_network *from = &instance->network;
  *out = (struct copse_instance){.network = *from, .scale = 1};
  out->network.n_links = out->network.n_roots = out->network.n_sinks = 0;
  out->network.sinks = NULL; /* equal weights only make ranks of an orbit alike */
  COPSE_DO(copse_calloc((size_t)from->n_links, sizeof *out->links, &out->links, err));
  COPSE_DO(copse_calloc((size_t)from->n_terminals, sizeof *out->roots, &out->roots, err));
  out->network.links = out->links;
  out->network.roots = out->roots;
  for (int e = 0; e < from->n_links; e++) {
    const struct copse_net_link *link = &from->links[e];
    if (capacities[e] > 0)
      out->links[out->network.n_links++] = (struct copse_net_link){
          reduce ? link->dst : link->src, reduce ? link->src : link->dst, capacities[e]};
  }
  for (int i = 0; i < from->n_terminals; i++)
    if (weights[i] > 0)
      out->roots[out->network.n_roots++] = (struct copse_net_root){from->terminals[i], weights[i]};
  return COPSE_OK;
}

static copse_status copy_cut(const struct copse_topology *topology,
                             const struct copse_shares_cut *from, struct copse_schedule *schedule,
                             struct copse_schedule_cut *to, struct copse_err *err) {
  int *nodes = copse_arena_alloc(&schedule->arena, (size_t)topology->n_nodes, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(err);
  to->phase = from->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  to->weight = from->weight;
  to->nodes = nodes;
  for (int v = 0; v < topology->n_nodes; v++)
    if (from->inside[v]) nodes[to->n_nodes++] = v;
  return COPSE_OK;
}

copse_status copse_free_shares_bound(const struct copse_topology *topology,
                                     const struct copse_shares *shares, struct copse_q time,
                                     struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_schedule_cut *cuts =
      copse_arena_alloc(&schedule->arena, (size_t)shares->n_cuts, sizeof *cuts);
  struct copse_schedule_potential *potentials =
      copse_arena_alloc(&schedule->arena, (size_t)topology->n_nodes, sizeof *potentials);
  if (!cuts || !potentials) return copse_fail_nomem(err);
  schedule->bound = (struct copse_bound){
      .kind = COPSE_BOUND_FORESTS, .time_per_GB = time, .cuts = cuts, .potentials = potentials};
  for (int i = 0; i < shares->n_cuts; i++)
    COPSE_DO(copy_cut(topology, &shares->cuts[i], schedule, &cuts[schedule->bound.n_cuts++], err));
  for (int v = 0; v < topology->n_nodes; v++)
    if (shares->potentials[v].num != 0)
      potentials[schedule->bound.n_potentials++] =
          (struct copse_schedule_potential){v, shares->potentials[v]};
  return COPSE_OK;
}
